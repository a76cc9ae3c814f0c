//! The only unsafe code of Forkpoint: kernel interfaces behind safe functions.

pub mod apply_io;
pub mod caps;
pub mod clock;
pub mod clone;
pub mod handle;
pub mod ids;
pub mod ioctl;
pub mod keyring;
pub mod memfd;
pub mod mount;
pub mod ns;
pub mod openat;
pub mod overlay;
pub mod pty;
pub mod rand;
pub mod range_lock;
pub mod scm;
pub mod seccomp;
pub mod signal;
pub mod xattr;
