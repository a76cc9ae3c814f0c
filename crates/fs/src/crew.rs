//! A few threads that are kept for what can be done beside the caller's work: unmounting, and syncing
//! several files at once. Starting a thread costs as much as what it would be started for.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Threads at most. Jobs wait for the device or the kernel, not for a processor.
const MOST: usize = 8;
/// Enough for what a job calls.
const STACK: usize = 256 << 10;

type Job = Box<dyn FnOnce() + Send>;

struct Crew {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

static CREW: Mutex<Crew> = Mutex::new(Crew {
    jobs: VecDeque::new(),
    threads: 0,
    idle: 0,
});
static WANTED: Condvar = Condvar::new();

fn crew() -> MutexGuard<'static, Crew> {
    // Jobs run without the lock, so that nothing panics while it is held.
    CREW.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has `job` done by a thread of the crew, soon; by the caller, now, where there is none and none can
/// be had. A job must not wait for another.
pub(crate) fn give(job: impl FnOnce() + Send + 'static) {
    let mut crew = crew();
    if crew.idle <= crew.jobs.len() && crew.threads < MOST {
        let thread = std::thread::Builder::new()
            .name("fs-crew".into())
            .stack_size(STACK);
        if thread.spawn(work).is_ok() {
            crew.threads += 1;
        } else if crew.threads == 0 {
            drop(crew);
            return job();
        }
    }
    crew.jobs.push_back(Box::new(job));
    WANTED.notify_one();
}

fn work() {
    let mut now = crew();
    loop {
        while let Some(job) = now.jobs.pop_front() {
            drop(now);
            // A job that panics ends itself, not the thread that others wait for.
            drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)));
            now = crew();
        }
        now.idle += 1;
        now = WANTED.wait(now).unwrap_or_else(PoisonError::into_inner);
        now.idle -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn every_job_is_done_also_after_one_that_panics() {
        let (send, receive) = mpsc::channel();
        for n in 0..200 {
            let send = send.clone();
            give(move || {
                assert!(n % 50 != 7, "a job that panics, as it should here");
                send.send(n).unwrap();
            });
        }
        drop(send);
        let mut done: Vec<_> = receive.iter().collect();
        done.sort_unstable();
        assert_eq!(done, (0..200).filter(|n| n % 50 != 7).collect::<Vec<_>>());
        assert!(crew().threads <= MOST);
    }
}
