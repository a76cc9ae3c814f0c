//! Measures views, diffs and removal. Run as root:
//! `cargo run --release -p forkpoint-fs --example measure -- DIR [FILES]`
//! makes a base of FILES files (1,000,000 unless given) in DIR, which must not exist, prints
//! medians, and removes it.

use forkpoint_fs::delta::{self, DiffOptions};
use forkpoint_fs::{MountOptions, Stack, stamp, tree, view};
use forkpoint_sys::clock::monotonic_ns;
use std::error::Error;
use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

const ROUNDS: usize = 51;
const PER_DIRECTORY: u64 = 1000;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

fn main() -> Outcome {
    let mut arguments = std::env::args_os().skip(1);
    let dir = arguments.next().ok_or("usage: measure DIR [FILES]")?;
    let dir = Path::new(&dir);
    let files = match arguments.next() {
        Some(text) => text.to_string_lossy().parse()?,
        None => 1_000_000,
    };
    fs::create_dir(dir)?;
    let result = measure(dir, files);
    tree::remove(dir)?;
    result
}

fn measure(dir: &Path, files: u64) -> Outcome {
    let small = make_base(&dir.join("small"), 100)?;
    let large = make_base(&dir.join("large"), files)?;
    for (name, base) in [("100", &small), ("all", &large)] {
        let mut fork = Times::default();
        let mut mount = Times::default();
        let mut diff = Times::default();
        let mut remove = Times::default();
        let mut stamped = Times::default();
        for round in 0..ROUNDS {
            let branch = dir.join(format!("branch-{name}-{round}"));
            let upper = branch.join("upper");
            let stack = Stack {
                lowers: vec![base.clone()],
                upper: upper.clone(),
                work: branch.join("work"),
            };
            let options = MountOptions {
                volatile: true,
                userxattr: false,
            };
            let start = monotonic_ns();
            fs::create_dir(&branch)?;
            view::prepare_pair(&stack.upper, &stack.work, base)?;
            let prepared = monotonic_ns();
            let fd = view::mount(&stack, &options)?;
            let file = rustix::fs::openat(
                fd.as_fd(),
                "d0/f7",
                rustix::fs::OFlags::RDONLY,
                rustix::fs::Mode::empty(),
            )?;
            rustix::io::read(&file, &mut [0u8; 16])?;
            fork.add(start);
            mount.add(prepared);
            drop(file);
            fs::write(format!("/proc/self/fd/{}/d0/f3", fd.as_raw_fd()), "changed")?;
            drop(fd);
            let start = monotonic_ns();
            stamp::take(&branch)?;
            stamped.add(start);
            let start = monotonic_ns();
            let set = delta::diff(&[upper, base.clone()], 1, &DiffOptions::default())?;
            diff.add(start);
            assert_eq!(set.changes.len(), 1, "{set:?}");
            let start = monotonic_ns();
            tree::remove(&branch)?;
            remove.add(start);
        }
        println!(
            "{name} files: fork and first read {} (of it mount and read {}), stamp {}, \
             diff of one file {}, removal of the branch {}",
            fork.median(),
            mount.median(),
            stamped.median(),
            diff.median(),
            remove.median()
        );
    }
    Ok(())
}

fn make_base(base: &Path, files: u64) -> Outcome<std::path::PathBuf> {
    let start = monotonic_ns();
    fs::create_dir(base)?;
    for number in 0..files {
        let directory = base.join(format!("d{}", number / PER_DIRECTORY));
        if number % PER_DIRECTORY == 0 {
            fs::create_dir(&directory)?;
        }
        fs::write(
            directory.join(format!("f{}", number % PER_DIRECTORY)),
            "content",
        )?;
    }
    eprintln!(
        "{files} files made in {} ms",
        (monotonic_ns() - start) / 1_000_000
    );
    Ok(base.to_owned())
}

#[derive(Default)]
struct Times(Vec<u64>);

impl Times {
    fn add(&mut self, start: u64) {
        self.0.push(monotonic_ns() - start);
    }

    fn median(&mut self) -> String {
        self.0.sort_unstable();
        format!("{} µs", self.0[self.0.len() / 2] / 1000)
    }
}
