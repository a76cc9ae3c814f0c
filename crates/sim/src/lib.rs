//! Seeded simulator: the laws as invariants, through crashes, delays and full disks.
#![forbid(unsafe_code)]
