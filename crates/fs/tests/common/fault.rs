//! A file layer that counts, records, fails one call, or dies at one.

use forkpoint_fs::apply::io::{Call, Hook};
use forkpoint_sys::openat;
use std::cell::{Cell, RefCell};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::BorrowedFd;

/// What happens at the chosen call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing, ever.
    None,
    /// This call fails with this error number, the others work.
    Errno(i32),
    /// The program dies before this call.
    Crash,
}

/// One call, with the inode it acted on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub call: Call,
    pub inode: u64,
    pub name: OsString,
}

pub struct Layer<'l> {
    fault: Fault,
    at: usize,
    count: Cell<usize>,
    dead: Cell<bool>,
    pub events: RefCell<Vec<Event>>,
    /// Run at the chosen call, before it: for a power loss.
    pub at_fault: Option<&'l dyn Fn()>,
}

impl<'l> Layer<'l> {
    pub fn new(fault: Fault, at: usize) -> Self {
        Self {
            fault,
            at,
            count: Cell::new(0),
            dead: Cell::new(false),
            events: RefCell::new(Vec::new()),
            at_fault: None,
        }
    }

    /// How many calls there were.
    pub fn count(&self) -> usize {
        self.count.get()
    }

    /// Whether the chosen call was reached.
    pub fn hit(&self) -> bool {
        self.count.get() > self.at
    }
}

impl Hook for Layer<'_> {
    fn before(&self, _call: Call, _on: BorrowedFd<'_>, _name: &OsStr) -> io::Result<()> {
        let n = self.count.get();
        self.count.set(n + 1);
        if self.dead.get() {
            return Err(io::Error::other("dead"));
        }
        if n == self.at {
            if let Some(run) = self.at_fault {
                run();
            }
            match self.fault {
                Fault::None => {}
                Fault::Errno(errno) => return Err(io::Error::from_raw_os_error(errno)),
                Fault::Crash => {
                    self.dead.set(true);
                    return Err(io::Error::other("dead"));
                }
            }
        }
        Ok(())
    }

    fn after(&self, call: Call, on: BorrowedFd<'_>, name: &OsStr) {
        let inode = openat::stat_fd(on).map_or(0, |meta| meta.ino);
        let name = name.to_owned();
        self.events.borrow_mut().push(Event { call, inode, name });
    }

    fn dead(&self) -> bool {
        self.dead.get()
    }
}
