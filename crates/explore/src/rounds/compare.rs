//! Comparisons: a command over the trees of two attempts, on a thread of its own.

use forkpoint_model::Result;
use forkpoint_model::strategy::{Comparison, Event};
use std::thread::Scope;

use super::Rounds;
use crate::backend::Judged;
use crate::jobs::{self, Done};
use crate::observer::Progress;
use crate::report::ComparisonReport;
use crate::{Cancel, claims, codes};

impl<'a> Rounds<'a, '_, '_> {
    pub(super) fn compare<'s, 'e>(
        &mut self,
        left: u32,
        right: u32,
        scope: &'s Scope<'s, 'e>,
    ) -> Result<()>
    where
        'a: 's,
    {
        let context = self.context;
        let (Some(compare), Some(one), Some(other)) = (
            &context.spec.search.compare,
            self.branch(left),
            self.branch(right),
        ) else {
            return Err(codes::INTERNAL.error("there is nothing to compare, or nothing to do it"));
        };
        let cancel = Cancel::new()?;
        let mut vars = context.vars.clone();
        vars.push((
            "FORKPOINT_EXPLORATION".into(),
            context.exploration.to_string().into(),
        ));
        let number = self.report.comparisons.len() + self.comparing.len();
        let log = format!("compare-{number}.log");
        let mut request = context.judge(&compare.command, compare.timeout, vars, &log);
        request.run.cancel = cancel.clone();
        self.comparing.push((left, right));
        self.spawn(left, cancel, scope, move || {
            let cancelled = || request.run.cancel.is_cancelled();
            let result = context
                .backend
                .compare(context.exploration, [&*one, &*other], &request);
            jobs::Outcome::Compared(Done::of(result.map(Some), cancelled()))
        });
        Ok(())
    }

    /// Writes down what the comparison of `left` said. One that could not be made counts as one that
    /// failed: the strategy decides what follows from that.
    pub(super) fn compared(&mut self, left: u32, done: Done<Judged>) -> Event {
        let at = self.comparing.iter().position(|&(l, _)| l == left);
        let Some((_, right)) = at.map(|at| self.comparing.remove(at)) else {
            return Event::Stopped { attempt: left };
        };
        let (verdict, exit_code, log, detail) = match done {
            Done::Stopped => return Event::Stopped { attempt: left },
            Done::Failed(error) => (Comparison::Error, None, None, Some(error.to_string())),
            Done::Ok(judged) => {
                self.meter.judged(judged.exit.cpu);
                let verdict = claims::comparison(&judged);
                let failed = verdict == Comparison::Error;
                let detail =
                    failed.then(|| format!("the comparison {}", jobs::words(&judged.exit.ended)));
                let exit = judged.exit.ended.exit_code();
                (verdict, exit, judged.log.map(Into::into), detail)
            }
        };
        self.context.shared.tell(&Progress::Compared {
            left,
            right,
            verdict,
        });
        self.report.comparisons.push(ComparisonReport {
            left,
            right,
            verdict,
            exit_code,
            log,
            detail,
        });
        Event::Compared {
            left,
            right,
            verdict,
        }
    }
}
