//! Random bits from the kernel. The only place that draws them.

use rustix::rand::{GetRandomFlags, getrandom};

/// 64 random bits.
///
/// # Panics
/// If the kernel has no `getrandom` at all, which Linux has had since 3.17.
pub fn bits() -> u64 {
    let mut bytes = [0u8; 8];
    fill(&mut bytes);
    u64::from_ne_bytes(bytes)
}

/// Fills `bytes` with random bits.
///
/// # Panics
/// As [`bits`].
pub fn fill(bytes: &mut [u8]) {
    let mut done = 0;
    while done < bytes.len() {
        match getrandom(&mut bytes[done..], GetRandomFlags::empty()) {
            Ok(count) => done += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => panic!("getrandom: {errno}"),
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn two_draws_differ() {
        assert_ne!(super::bits(), super::bits());
    }
}
