//! Times and sizes as people write them: `90`, `1.5s`, `10m`, `1h30m`; `4096`, `512K`, `2GiB`.
//! Times are kept in whole milliseconds, sizes in bytes; units of size are powers of 1024.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{fmt, str::FromStr, time::Duration};

/// The longest time that can be asked for: ten years. Beyond it deadlines would overflow.
const MAX_MS: u128 = 10 * 365 * 86_400_000;

/// A length of time, above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub Duration);

/// A number of bytes, above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

/// A decimal number as thousandths, without floating point: `1.5` is 1500. At most three decimals
/// count; a sign, an exponent, `NaN` and `inf` are refused.
fn thousandths(text: &str) -> Option<u128> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && decimals.is_empty()) || whole.len() > 20 || decimals.len() > 20 {
        return None;
    }
    if !digits(whole) || !digits(decimals) {
        return None;
    }
    let whole: u128 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let three: String = decimals.chars().chain("000".chars()).take(3).collect();
    Some(whole * 1000 + three.parse::<u128>().ok()?)
}

/// Where the number at the front of `text` ends.
fn number_length(text: &str) -> usize {
    text.bytes()
        .take_while(|b| b.is_ascii_digit() || *b == b'.')
        .count()
}

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || {
            format!(
                "'{text}' is not a time: write seconds, or a number with ms, s, m, h or d, as in 90s or 1h30m"
            )
        };
        let mut rest = text.trim();
        let mut total: u128 = 0;
        if rest.is_empty() {
            return Err(bad());
        }
        while !rest.is_empty() {
            let (number, tail) = rest.split_at(number_length(rest));
            let unit = tail.bytes().take_while(u8::is_ascii_alphabetic).count();
            let (unit, tail) = tail.split_at(unit);
            let milliseconds: u128 = match unit {
                "ms" => 1,
                "" | "s" | "sec" => 1000,
                "m" | "min" => 60_000,
                "h" => 3_600_000,
                "d" => 86_400_000,
                _ => return Err(bad()),
            };
            if unit.is_empty() && !(tail.is_empty() && total == 0) {
                return Err(bad());
            }
            total += thousandths(number).ok_or_else(bad)? * milliseconds / 1000;
            if total > MAX_MS {
                return Err(format!("'{text}' is too long: at most ten years"));
            }
            rest = tail;
        }
        let milliseconds = u64::try_from(total).map_err(|_| bad())?;
        if milliseconds == 0 {
            return Err(format!(
                "'{text}' is no time at all: it must be at least 1ms"
            ));
        }
        Ok(Self(Duration::from_millis(milliseconds)))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_millis();
        if ms.is_multiple_of(1000) {
            write!(f, "{}s", ms / 1000)
        } else {
            write!(f, "{ms}ms")
        }
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || {
            format!(
                "'{text}' is not a size: write bytes, or a number with K, M, G or T, as in 512M or 1.5G"
            )
        };
        let trimmed = text.trim();
        let (number, unit) = trimmed.split_at(number_length(trimmed));
        let unit = unit.trim_end_matches("iB").trim_end_matches(['B', 'b']);
        let shift = match unit {
            "" => 0,
            "K" | "k" => 10,
            "M" | "m" => 20,
            "G" | "g" => 30,
            "T" | "t" => 40,
            _ => return Err(bad()),
        };
        let bytes = (thousandths(number).ok_or_else(bad)? << shift) / 1000;
        match u64::try_from(bytes) {
            Ok(0) => Err(format!(
                "'{text}' is no size at all: it must be at least one byte"
            )),
            Ok(bytes) if bytes <= i64::MAX as u64 => Ok(Self(bytes)),
            _ => Err(format!("'{text}' is too large")),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, unit) in [(40, "T"), (30, "G"), (20, "M"), (10, "K")] {
            if self.0 >= 1 << shift && self.0.is_multiple_of(1 << shift) {
                return write!(f, "{}{unit}", self.0 >> shift);
            }
        }
        write!(f, "{}", self.0)
    }
}

macro_rules! as_text {
    ($name:ident) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                #[derive(Deserialize)]
                #[serde(untagged)]
                enum Form {
                    Number(u64),
                    Text(String),
                }
                let text = match Form::deserialize(d)? {
                    Form::Number(number) => number.to_string(),
                    Form::Text(text) => text,
                };
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

as_text!(Time);
as_text!(Size);

/// As many as there are processors to run on, at most 1024.
pub fn processors() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get().min(1024) as u32)
}

/// Bytes as a person reads them: three significant digits at most, powers of 1024.
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = if value < 9.95 { 1 } else { 0 };
    format!("{value:.decimals$} {}", UNITS[unit])
}

/// A time as a person reads it: `3 ms`, `1.4 s`, `2m05s`.
pub fn human_time(time: Duration) -> String {
    let ms = time.as_millis();
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..60_000 => format!("{:.1} s", time.as_secs_f64()),
        60_000..3_600_000 => format!("{}m{:02}s", ms / 60_000, ms / 1000 % 60),
        _ => format!("{}h{:02}m", ms / 3_600_000, ms / 60_000 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        let ms = |text: &str| text.parse::<Time>().map(|t| t.0.as_millis());
        assert_eq!(ms("90"), Ok(90_000));
        assert_eq!(ms("1.5s"), Ok(1500));
        assert_eq!(ms("250ms"), Ok(250));
        assert_eq!(ms("1h30m"), Ok(5_400_000));
        assert_eq!(ms("2d"), Ok(172_800_000));
        for bad in [
            "",
            " ",
            "-1",
            "1x",
            "s",
            "1 2",
            "1s2",
            "NaN",
            "inf",
            "1e3",
            "0",
            "0.0001s",
            "9999999999h",
            ".",
        ] {
            assert!(ms(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_read() {
        let bytes = |text: &str| text.parse::<Size>().map(|s| s.0);
        assert_eq!(bytes("4096"), Ok(4096));
        assert_eq!(bytes("512K"), Ok(512 << 10));
        assert_eq!(bytes("1.5GiB"), Ok(3 << 29));
        assert_eq!(bytes("2GB"), Ok(2 << 30));
        for bad in [
            "",
            "-1",
            "1Q",
            "K",
            "NaN",
            "0",
            "99999999999T",
            "1.2.3M",
            "1MiBB ",
        ] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_time_and_a_size_survive_their_text() {
        for text in ["90s", "1500ms", "5400s"] {
            assert_eq!(text.parse::<Time>().unwrap().to_string(), text);
        }
        for text in ["3G", "512K", "4097"] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
        }
        assert_eq!(
            serde_json::from_str::<Time>("7").unwrap(),
            Time(Duration::from_secs(7))
        );
    }

    #[test]
    fn people_read_them() {
        assert_eq!(human_bytes(999), "999 B");
        assert_eq!(human_bytes(1536), "1.5 KiB");
        assert_eq!(human_bytes(300 << 20), "300 MiB");
        assert_eq!(human_time(Duration::from_millis(12)), "12 ms");
        assert_eq!(human_time(Duration::from_secs(125)), "2m05s");
    }
}
