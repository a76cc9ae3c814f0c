//! While attempts run they are looked at from time to time: what they use, so that what is over its
//! budget is stopped, and what they say of themselves.

use forkpoint_model::Result;
use std::time::{Duration, Instant};

use super::{Message, Rounds};
use crate::codes;
use crate::logs::printable;
use crate::observer::Progress;

/// How often running attempts are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How often the observer is told what running attempts use: each costs a question to its branch.
const TELL_USAGE_EVERY: Duration = Duration::from_secs(2);

impl Rounds<'_, '_, '_> {
    /// The next message; meanwhile the attempts are looked at.
    pub(super) fn next_message(&mut self) -> Result<Message> {
        use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};
        let gone = || codes::INTERNAL.error("every thread of the exploration is gone");
        loop {
            match self.messages.recv_timeout(LOOK_EVERY) {
                Ok(message) => return Ok(message),
                Err(Disconnected) => return Err(gone()),
                Err(Timeout) => self.look(),
            }
        }
    }

    /// Looks at what runs, and stops what is over.
    fn look(&mut self) {
        self.read_progress();
        let tells = self.usage_is_due();
        let watches = self.meter.watches();
        if !watches && !tells {
            return;
        }
        for i in self.meter.running() {
            let Some(branch) = self.branch(i) else {
                continue;
            };
            // One that ends just now answers nobody; its end says what it used.
            if let Ok(usage) = branch.usage(self.meter.watches_disk()) {
                self.meter.saw(i, usage);
                if tells {
                    self.context.shared.tell(&Progress::Usage {
                        index: i,
                        cpu: usage.cpu,
                        memory_bytes: usage.memory_bytes,
                    });
                }
            }
            if watches {
                self.read_cost(i);
            }
        }
        if watches {
            self.stop_what_is_over();
        }
    }

    /// Whether the observer is to be told now what attempts use.
    fn usage_is_due(&mut self) -> bool {
        let now = Instant::now();
        let recent = |at: Instant| now.duration_since(at) < TELL_USAGE_EVERY;
        if self.usage_told.is_some_and(recent) || !self.context.shared.wants_usage() {
            return false;
        }
        self.usage_told = Some(now);
        true
    }

    /// Tells how far running attempts say they are, where that is new.
    fn read_progress(&mut self) {
        for i in 0..self.slots.len() as u32 {
            let slot = &self.slots[i as usize];
            if !slot.started || slot.running.is_none() || slot.sealed {
                continue;
            }
            // What cannot be read is no news; nothing depends on it.
            let Some(Ok(Some(told))) = self.branch(i).map(|branch| branch.progress()) else {
                continue;
            };
            if slot.told.as_ref() == Some(&told) {
                continue;
            }
            let shared = &self.context.shared;
            let clean = shared.redactor.clean(told.text.as_bytes());
            shared.tell(&Progress::Told {
                index: i,
                text: &printable(&String::from_utf8_lossy(&clean)),
                fraction: told.fraction,
            });
            self.slots[i as usize].told = Some(told);
        }
    }

    /// Reads what the attempt says its score is, now that it has ended.
    pub(super) fn read_claimed_score(&mut self, i: u32) {
        // What cannot be read says nothing: it is a claim, and ranks nothing.
        if let Some(Ok(score)) = self.branch(i).map(|branch| branch.claimed_score()) {
            self.report.attempts[i as usize].claimed_score = score;
        }
    }

    /// Reads what the attempt says that it costs.
    pub(super) fn read_cost(&mut self, i: u32) {
        let Some(branch) = self.branch(i) else { return };
        match branch.cost() {
            Ok(cost) => {
                self.meter.costs(i, cost);
                self.report.attempts[i as usize].cost = cost.as_f64();
                self.report.cost = self.meter.cost().as_f64();
            }
            Err(error) => {
                let note = format!("the cost of attempt {i} cannot be read: {}", error.message);
                if !self.report.notes.contains(&note) {
                    self.context.note(self.report, note);
                }
            }
        }
    }

    pub(super) fn stop_what_is_over(&mut self) {
        for (i, why) in self.meter.over() {
            let slot = &mut self.slots[i as usize];
            let Some(cancel) = &slot.running else {
                continue;
            };
            if slot.over_budget.is_none() {
                cancel.cancel();
                slot.over_budget = Some(why);
            }
        }
    }
}
