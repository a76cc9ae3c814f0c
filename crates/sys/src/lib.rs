//! The only unsafe code of Forkpoint: kernel interfaces behind safe functions.

pub mod clock;
pub mod handle;
pub mod ioctl;
pub mod openat;
pub mod rand;
pub mod xattr;
