//! Time and boot identity. The only place that reads the wall clock: everything above is given
//! its time by whoever calls it, so that the simulator can drive it.

use rustix::time::{ClockId, clock_gettime};
use std::io;

/// The wall clock, in nanoseconds since 1970. It can jump; use it for display and records only.
pub fn wall_ns() -> i64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec
        .saturating_mul(1_000_000_000)
        .saturating_add(now.tv_nsec)
}

/// A clock that never goes back, in nanoseconds since an arbitrary point of this boot.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec
        .unsigned_abs()
        .saturating_mul(1_000_000_000)
        .saturating_add(now.tv_nsec.unsigned_abs())
}

/// The kernel's identity of this boot. With a pid and its start time it names a process for ever.
pub fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned())
}

/// When process `pid` started, in clock ticks since boot (field 22 of `/proc/PID/stat`).
/// `NotFound` when there is no such process.
pub fn process_start_time(pid: u32) -> io::Result<u64> {
    let stat = std::fs::read(format!("/proc/{pid}/stat"))?;
    parse_start_time(&stat).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("/proc/{pid}/stat has no start time"),
        )
    })
}

/// The command's name (field 2) is in parentheses and may hold anything, so count from the last
/// closing one.
fn parse_start_time(stat: &[u8]) -> Option<u64> {
    let after_name = stat.iter().rposition(|&b| b == b')')? + 1;
    let text = std::str::from_utf8(&stat[after_name..]).ok()?;
    text.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_time_is_found_behind_a_hostile_name() {
        let mut stat = b"7 (a) S 9 (b) R ".to_vec();
        for field in 4..=30 {
            stat.extend_from_slice(format!("{field} ").as_bytes());
        }
        assert_eq!(parse_start_time(&stat), Some(22));
    }

    #[test]
    fn this_process_has_a_start_time_and_a_missing_one_has_not() {
        assert!(process_start_time(std::process::id()).expect("own stat") > 0);
        let missing = process_start_time(u32::MAX).expect_err("no such process");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert_eq!(boot_id().expect("boot id").len(), 36);
    }

    #[test]
    fn the_monotonic_clock_does_not_go_back() {
        let first = monotonic_ns();
        assert!(monotonic_ns() >= first);
        assert!(wall_ns() > 1_600_000_000_000_000_000);
    }
}
