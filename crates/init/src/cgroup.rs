//! Reading what the starter's cgroups measure, through descriptors of their directories.

use crate::protocol::CgroupKind;
use forkpoint_sys::openat;
use rustix::fs::{Mode, OFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// The cgroups this sandbox runs in; any may be missing.
#[derive(Debug, Default)]
pub struct Cgroups {
    dirs: Vec<(CgroupKind, OwnedFd)>,
}

impl Cgroups {
    /// Takes the directories.
    pub fn new(dirs: Vec<(CgroupKind, OwnedFd)>) -> Self {
        Self { dirs }
    }

    fn text(&self, kind: CgroupKind, file: &str) -> Option<String> {
        let (_, dir) = self.dirs.iter().find(|(k, _)| *k == kind)?;
        let flags = OFlags::RDONLY;
        let fd = openat::beneath(dir.as_fd(), Path::new(file), flags, Mode::empty()).ok()?;
        let mut text = String::new();
        std::io::Read::read_to_string(&mut std::fs::File::from(fd), &mut text).ok()?;
        Some(text)
    }

    fn number(&self, kind: CgroupKind, file: &str) -> Option<u64> {
        self.text(kind, file)?.trim().parse().ok()
    }

    fn entry(&self, kind: CgroupKind, file: &str, key: &str) -> Option<u64> {
        let text = self.text(kind, file)?;
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim().parse().ok()
    }

    /// Bytes in use now.
    pub fn memory(&self) -> Option<u64> {
        let v2 = || self.number(CgroupKind::V2, "memory.current");
        v2().or_else(|| self.number(CgroupKind::V1Memory, "memory.usage_in_bytes"))
    }

    /// The most bytes that were ever in use.
    pub fn peak_memory(&self) -> Option<u64> {
        let v2 = || self.number(CgroupKind::V2, "memory.peak");
        v2().or_else(|| self.number(CgroupKind::V1Memory, "memory.max_usage_in_bytes"))
    }

    /// Whether the kernel killed for want of memory.
    pub fn out_of_memory(&self) -> bool {
        let v2 = || self.entry(CgroupKind::V2, "memory.events", "oom_kill ");
        let v1 = || self.entry(CgroupKind::V1Memory, "memory.oom_control", "oom_kill ");
        v2().or_else(v1).unwrap_or(0) > 0
    }

    /// Whether a fork was refused for want of pids.
    pub fn out_of_pids(&self) -> bool {
        let v2 = || self.entry(CgroupKind::V2, "pids.events", "max ");
        let v1 = || self.entry(CgroupKind::V1Pids, "pids.events", "max ");
        v2().or_else(v1).unwrap_or(0) > 0
    }

    /// Processor time so far, in nanoseconds.
    pub fn cpu_ns(&self) -> Option<u64> {
        let v2 = self.entry(CgroupKind::V2, "cpu.stat", "usage_usec ");
        v2.map(|usec| usec.saturating_mul(1000))
            .or_else(|| self.number(CgroupKind::V1Cpu, "cpuacct.usage"))
    }
}
