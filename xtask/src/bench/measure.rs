//! Interleaved rounds, medians, and the table they end in.

use std::fmt;
use std::time::Duration;

use anyhow::{Result, ensure};

/// One thing measured: runs it once and says how long that took.
pub(super) type Subject<'a> = Box<dyn FnMut() -> Result<Duration> + 'a>;

/// Samples of one subject.
#[derive(Debug, Clone)]
pub(super) struct Series(Vec<Duration>);

impl Series {
    pub(super) fn new(mut samples: Vec<Duration>) -> Result<Series> {
        ensure!(!samples.is_empty(), "nothing was measured");
        samples.sort_unstable();
        Ok(Series(samples))
    }

    pub(super) fn median(&self) -> Duration {
        let n = self.0.len();
        (self.0[(n - 1) / 2] + self.0[n / 2]) / 2
    }

    fn min(&self) -> Duration {
        self.0[0]
    }

    fn max(&self) -> Duration {
        self.0[self.0.len() - 1]
    }
}

/// Runs all subjects in turn, `rounds` times, each round beginning with another one; the first round, which fills the
/// caches, is not counted.
pub(super) fn interleave(rounds: usize, subjects: &mut [Subject<'_>]) -> Result<Vec<Series>> {
    let count = subjects.len();
    let mut samples = vec![Vec::with_capacity(rounds); count];
    for round in 0..=rounds {
        for turn in 0..count {
            let which = (round + turn) % count;
            let took = subjects[which]()?;
            if round > 0 {
                samples[which].push(took);
            }
        }
    }
    samples.into_iter().map(Series::new).collect()
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Bar {
    /// At most this ratio to the reference.
    Ratio(f64),
    /// At most this long.
    Time(Duration),
    None,
}

#[derive(Debug)]
pub(super) struct Row {
    pub(super) what: String,
    pub(super) ours: Series,
    pub(super) reference: Option<Series>,
    pub(super) bar: Bar,
}

impl Row {
    fn ratio(&self) -> Option<f64> {
        let reference = self.reference.as_ref()?.median().as_secs_f64();
        Some(self.ours.median().as_secs_f64() / reference)
    }

    fn within(&self) -> bool {
        match self.bar {
            Bar::None => true,
            Bar::Time(limit) => self.ours.median() <= limit,
            Bar::Ratio(limit) => self.ratio().is_some_and(|r| r <= limit),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Table {
    /// What the second column is, and the third ("native", "bubblewrap", …).
    pub(super) ours: String,
    pub(super) reference: String,
    pub(super) rows: Vec<Row>,
    pub(super) notes: Vec<String>,
}

impl Table {
    pub(super) fn all_within(&self) -> bool {
        self.rows.iter().all(Row::within)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| what | {} | {} | ratio | bar | |",
            self.ours, self.reference
        )?;
        writeln!(f, "| --- | --- | --- | --- | --- | --- |")?;
        for row in &self.rows {
            let reference = row.reference.as_ref().map_or("–".to_owned(), spread);
            let ratio = row.ratio().map_or("–".to_owned(), |r| format!("{r:.2}"));
            let bar = match row.bar {
                Bar::None => "–".to_owned(),
                Bar::Ratio(r) => format!("≤ {r}×"),
                Bar::Time(t) => format!("≤ {}", time(t)),
            };
            let verdict = match (row.bar, row.within()) {
                (Bar::None, _) => "",
                (_, true) => "met",
                (_, false) => "**not met**",
            };
            let ours = spread(&row.ours);
            writeln!(
                f,
                "| {} | {ours} | {reference} | {ratio} | {bar} | {verdict} |",
                row.what
            )?;
        }
        for note in &self.notes {
            writeln!(f, "\n{note}")?;
        }
        Ok(())
    }
}

/// `median (smallest–largest)`
fn spread(series: &Series) -> String {
    format!(
        "{} ({}–{})",
        time(series.median()),
        time(series.min()),
        time(series.max())
    )
}

fn time(t: Duration) -> String {
    let us = t.as_secs_f64() * 1e6;
    match us {
        _ if us < 1000.0 => format!("{us:.0} µs"),
        _ if us < 10_000.0 => format!("{:.2} ms", us / 1e3),
        _ if us < 1e6 => format!("{:.0} ms", us / 1e3),
        _ => format!("{:.2} s", us / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(us: &[u64]) -> Series {
        Series::new(us.iter().map(|&n| Duration::from_micros(n)).collect()).unwrap()
    }

    #[test]
    fn medians() {
        assert_eq!(series(&[3, 1, 2]).median(), Duration::from_micros(2));
        assert_eq!(series(&[4, 1, 2, 3]).median(), Duration::from_nanos(2500));
        assert!(Series::new(Vec::new()).is_err());
    }

    #[test]
    fn each_round_begins_with_another_and_the_first_is_not_counted() {
        let order = std::cell::RefCell::new(Vec::new());
        let subject = |name: char| -> Subject<'_> {
            let order = &order;
            Box::new(move || {
                order.borrow_mut().push(name);
                Ok(Duration::from_micros(order.borrow().len() as u64))
            })
        };
        let found = interleave(2, &mut [subject('a'), subject('b')]).unwrap();
        assert_eq!(*order.borrow(), ['a', 'b', 'b', 'a', 'a', 'b']);
        assert_eq!(
            found[0].0,
            [Duration::from_micros(4), Duration::from_micros(5)]
        );
    }

    #[test]
    fn a_row_knows_its_bar() {
        let mut row = Row {
            what: "x".into(),
            ours: series(&[150]),
            reference: Some(series(&[100])),
            bar: Bar::Ratio(1.5),
        };
        assert!(row.within());
        row.bar = Bar::Ratio(1.4);
        assert!(!row.within());
        row.bar = Bar::Time(Duration::from_micros(149));
        assert!(!row.within());
        let table = Table {
            rows: vec![row],
            ..Table::default()
        };
        assert!(table.to_string().contains("**not met**"));
        assert!(!table.all_within());
    }
}
