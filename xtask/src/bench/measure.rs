//! Interleaved rounds, medians, and the table they end in.

use std::fmt;
use std::time::Duration;

use anyhow::{Result, ensure};

/// One thing measured: runs it once and says how long that took.
pub(super) type Subject<'a> = Box<dyn FnMut() -> Result<Duration> + 'a>;

/// What the samples of a series are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Unit {
    /// Nanoseconds.
    Time,
    Bytes,
    Percent,
    /// Things of a kind the row names.
    Count,
}

/// Samples of one subject, ascending.
#[derive(Debug, Clone)]
pub(super) struct Series {
    unit: Unit,
    samples: Vec<f64>,
}

impl Series {
    pub(super) fn new(samples: Vec<Duration>) -> Result<Series> {
        let ns = samples.iter().map(|d| d.as_nanos() as f64).collect();
        Series::of(Unit::Time, ns)
    }

    pub(super) fn of(unit: Unit, mut samples: Vec<f64>) -> Result<Series> {
        ensure!(!samples.is_empty(), "nothing was measured");
        samples.sort_unstable_by(f64::total_cmp);
        Ok(Series { unit, samples })
    }

    /// In the series' unit.
    pub(super) fn median(&self) -> f64 {
        let n = self.samples.len();
        (self.samples[(n - 1) / 2] + self.samples[n / 2]) / 2.0
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
    /// At most this many of the series' unit.
    Most(f64),
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
        Some(self.ours.median() / self.reference.as_ref()?.median())
    }

    fn within(&self) -> bool {
        match self.bar {
            Bar::None => true,
            Bar::Time(limit) => self.ours.median() <= limit.as_nanos() as f64,
            Bar::Most(limit) => self.ours.median() <= limit,
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
    /// With the rows that an ordinary user's measurement gave.
    pub(super) fn with_user(mut self, user: Table) -> Table {
        self.rows.extend(user.rows.into_iter().map(|row| Row {
            what: format!("{}, as an ordinary user", row.what),
            ..row
        }));
        self
    }

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
                Bar::Time(t) => format!("≤ {}", shown(Unit::Time, t.as_nanos() as f64)),
                Bar::Most(n) => format!("≤ {}", shown(row.ours.unit, n)),
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

/// `median (smallest–largest)`, or the one sample there is.
fn spread(series: &Series) -> String {
    let median = shown(series.unit, series.median());
    match &series.samples[..] {
        [_] => median,
        [first, .., last] => format!(
            "{median} ({}–{})",
            shown(series.unit, *first),
            shown(series.unit, *last)
        ),
        [] => median,
    }
}

fn shown(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Time => time(value / 1e3),
        Unit::Bytes => format!("{:.1} MB", value / 1e6),
        Unit::Percent => format!("{value:.2} %"),
        Unit::Count => format!("{value:.0}"),
    }
}

fn time(us: f64) -> String {
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
        assert_eq!(series(&[3, 1, 2]).median(), 2000.0);
        assert_eq!(series(&[4, 1, 2, 3]).median(), 2500.0);
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
        assert_eq!(found[0].samples, [4000.0, 5000.0]);
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
        let size = Row {
            what: "y".into(),
            ours: Series::of(Unit::Bytes, vec![20.5e6]).unwrap(),
            reference: None,
            bar: Bar::Most(20e6),
        };
        assert!(!size.within());
        let table = Table {
            rows: vec![size],
            ..Table::default()
        };
        let line = "| y | 20.5 MB | – | – | ≤ 20.0 MB | **not met** |";
        assert!(table.to_string().contains(line), "{table}");
        let table = Table {
            rows: vec![row],
            ..Table::default()
        };
        assert!(table.to_string().contains("**not met**"));
        assert!(!table.all_within());
    }
}
