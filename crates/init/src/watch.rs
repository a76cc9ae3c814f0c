//! The watcher: looks at what the branch takes and says which limit was hit.
//!
//! With a cgroup the kernel holds the limit and the watcher only tells that it was reached. Without
//! one it samples: memory and processor time often, the uppers' size as often as walking them is
//! cheap. Between two looks more can be taken; the interval bounds how much.

use crate::cgroup::Cgroups;
use crate::procs;
use crate::spec::{Limit, Limits, SandboxSpec, Usage};
use forkpoint_sys::{clock, clone};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// How often memory, processor time and pids are looked at.
const LOOK_NS: u64 = 20_000_000;
/// How often the uppers are walked at most; and walking may take this part of the time.
const WALK_NS: u64 = 100_000_000;
const WALK_SHARE: u64 = 20;
/// The kernel's `USER_HZ`, the unit of times in `/proc/PID/stat` on every architecture we know.
const TICK_NS: u64 = 10_000_000;

/// The watcher's state.
#[derive(Debug)]
pub struct Watch {
    limits: Limits,
    started_ns: u64,
    cgroups: Cgroups,
    in_memory: Vec<OwnedFd>,
    uppers: Vec<OwnedFd>,
    page: u64,
    peak_memory: u64,
    disk_bytes: u64,
    /// What the disks that are whole copies held at the start, which nobody wrote since.
    copied_bytes: u64,
    next_look: u64,
    next_walk: u64,
    /// Since when everything is held: then time does not count.
    held_ns: Option<u64>,
}

impl Watch {
    /// Watches a sandbox that starts now. `uppers` are those of [`Watch::upper_paths`].
    pub fn new(
        spec: &SandboxSpec,
        cgroups: Cgroups,
        in_memory: Vec<OwnedFd>,
        uppers: Vec<OwnedFd>,
    ) -> io::Result<Self> {
        let now = clock::monotonic_ns();
        let mut copied_bytes = 0u64;
        for (disk, tree) in spec.disks.iter().zip(&uppers) {
            if disk.copy_tree.is_some() {
                let held = crate::walk::allocated_bytes(tree.as_fd())?;
                copied_bytes = copied_bytes.saturating_add(held);
            }
        }
        Ok(Self {
            limits: spec.limits,
            started_ns: now,
            cgroups,
            in_memory,
            uppers,
            page: rustix::param::page_size() as u64,
            peak_memory: 0,
            disk_bytes: 0,
            copied_bytes,
            next_look: now,
            next_walk: now,
            held_ns: None,
        })
    }

    /// The wall clock's limit does not run from now on.
    pub fn hold(&mut self) {
        self.held_ns.get_or_insert(clock::monotonic_ns());
    }

    /// It runs again.
    pub fn release(&mut self) {
        if let Some(since) = self.held_ns.take() {
            let held = clock::monotonic_ns().saturating_sub(since);
            self.started_ns = self.started_ns.saturating_add(held);
        }
    }

    /// The directories whose size counts: opened before the old root goes away.
    pub fn upper_paths(spec: &SandboxSpec) -> Vec<PathBuf> {
        let disks = spec.disks.iter();
        let mut paths: Vec<PathBuf> = disks
            .map(|disk| {
                disk.copy_tree
                    .clone()
                    .unwrap_or_else(|| disk.stack.upper.clone())
            })
            .collect();
        paths.push(spec.root_upper.clone());
        paths.extend(spec.out_dir.clone());
        paths
    }

    fn samples(&self) -> bool {
        self.limits.cpu_ms.is_some()
            || self.limits.memory_bytes.is_some()
            || self.limits.pids.is_some()
    }

    /// Nanoseconds until the next look. `None`: nothing has to be looked at.
    pub fn due_in(&self) -> Option<u64> {
        let now = clock::monotonic_ns();
        let wall = self.wall_end();
        let look = self.samples().then_some(self.next_look);
        let walk = self.limits.disk_bytes.map(|_| self.next_walk);
        let next = [wall, look, walk].into_iter().flatten().min()?;
        Some(next.saturating_sub(now))
    }

    /// How long it may still run, in milliseconds. `None`: as long as it likes, or it is held.
    pub fn left_ms(&self) -> Option<u64> {
        let left = self.wall_end()?.saturating_sub(clock::monotonic_ns());
        Some(left / 1_000_000)
    }

    fn wall_end(&self) -> Option<u64> {
        let wall = self.limits.wall_ms?.saturating_mul(1_000_000);
        if self.held_ns.is_some() {
            return None;
        }
        Some(self.started_ns.saturating_add(wall))
    }

    /// Looks at what is due. `Some`: that limit was hit.
    pub fn look(&mut self, proc: BorrowedFd<'_>) -> io::Result<Option<Limit>> {
        let now = clock::monotonic_ns();
        if self.wall_end().is_some_and(|end| now >= end) {
            return Ok(Some(Limit::Wall));
        }
        if self.samples() && now >= self.next_look {
            self.next_look = now.saturating_add(LOOK_NS);
            if let Some(limit) = self.sample(proc)? {
                return Ok(Some(limit));
            }
        }
        let Some(bound) = self.limits.disk_bytes else {
            return Ok(None);
        };
        if now >= self.next_walk {
            self.walk()?;
            let after = clock::monotonic_ns();
            let pause = after.saturating_sub(now).saturating_mul(WALK_SHARE);
            self.next_walk = after.saturating_add(pause.max(WALK_NS));
            if self.disk_bytes > bound {
                return Ok(Some(Limit::Disk));
            }
        }
        Ok(None)
    }

    fn sample(&mut self, proc: BorrowedFd<'_>) -> io::Result<Option<Limit>> {
        let usage = self.usage_now(proc)?;
        let over = |limit: Option<u64>, value: u64| limit.is_some_and(|limit| value > limit);
        if over(self.limits.cpu_ms, usage.cpu_ns / 1_000_000) {
            return Ok(Some(Limit::Cpu));
        }
        // At the limit no process can be added: that is what a fork bomb looks like.
        let pids = self
            .limits
            .pids
            .is_some_and(|limit| u64::from(usage.pids) >= limit);
        if pids || self.cgroups.out_of_pids() {
            return Ok(Some(Limit::Pids));
        }
        if self.cgroups.out_of_memory() || over(self.limits.memory_bytes, usage.memory_bytes) {
            return Ok(Some(Limit::Memory));
        }
        Ok(None)
    }

    /// Which limit a process that was just killed from outside may have hit.
    pub fn blame(&self) -> Option<Limit> {
        self.cgroups.out_of_memory().then_some(Limit::Memory)
    }

    /// What is taken now; the uppers' size is that of the last walk.
    pub fn usage_now(&mut self, proc: BorrowedFd<'_>) -> io::Result<Usage> {
        let processes = procs::list(proc)?;
        let living: u64 = processes.iter().map(|p| p.ticks).sum();
        let (dead_ns, max_rss) = clone::children_usage();
        let seen = dead_ns.saturating_add(living.saturating_mul(TICK_NS));
        let memory = match self.cgroups.memory() {
            Some(bytes) => bytes,
            None => self.sampled_memory(proc, &processes)?,
        };
        self.peak_memory = self.peak_memory.max(memory).max(max_rss);
        Ok(Usage {
            cpu_ns: self.cgroups.cpu_ns().unwrap_or(seen),
            memory_bytes: memory,
            peak_memory_bytes: self.peak(),
            pids: u32::try_from(processes.len()).unwrap_or(u32::MAX),
            disk_bytes: self.disk_bytes,
        })
    }

    /// As [`Watch::usage_now`], with the uppers walked.
    pub fn usage(&mut self, proc: BorrowedFd<'_>) -> io::Result<Usage> {
        self.walk()?;
        self.usage_now(proc)
    }

    /// The most memory in use that is known of.
    pub fn peak(&self) -> u64 {
        self.cgroups.peak_memory().unwrap_or(self.peak_memory)
    }

    /// Resident pages of all, counting shared ones once for each; near the limit, where that
    /// could do wrong, by shares. Files in memory count too.
    fn sampled_memory(
        &self,
        proc: BorrowedFd<'_>,
        processes: &[procs::Process],
    ) -> io::Result<u64> {
        let pages: u64 = processes.iter().map(|p| p.pages).sum();
        let mut bytes = pages.saturating_mul(self.page);
        let files = self.files_in_memory()?;
        let limit = self.limits.memory_bytes.unwrap_or(u64::MAX);
        if bytes.saturating_add(files) > limit {
            bytes = 0;
            for process in processes {
                bytes = bytes.saturating_add(procs::proportional_bytes(proc, process.pid)?);
            }
        }
        Ok(bytes.saturating_add(files))
    }

    fn files_in_memory(&self) -> io::Result<u64> {
        let mut bytes = 0u64;
        for root in &self.in_memory {
            let found = rustix::fs::fstatvfs(root)?;
            let used = found.f_blocks.saturating_sub(found.f_bfree);
            bytes = bytes.saturating_add(used.saturating_mul(found.f_frsize));
        }
        Ok(bytes)
    }

    fn walk(&mut self) -> io::Result<()> {
        let mut bytes = self.files_in_memory()?;
        for upper in &self.uppers {
            bytes = bytes.saturating_add(crate::walk::allocated_bytes(upper.as_fd())?);
        }
        self.disk_bytes = bytes.saturating_sub(self.copied_bytes);
        Ok(())
    }
}
