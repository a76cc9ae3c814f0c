//! The live view: all attempts on a terminal, redrawn in place. Where there is no terminal, or one that
//! cannot move its cursor, `progress` writes plain lines instead.
//!
//! `state` is what is known, `frame` what of it fits, `paint` how that gets onto the terminal.

mod frame;
mod paint;
mod state;
#[cfg(test)]
mod tests;

use forkpoint_explore::{Observer, Progress};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::IsTerminal;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use crate::progress;
use crate::style::Style;
use paint::Painter;
use state::State;
pub(crate) use state::told;

/// How often the view is redrawn. A person does not read faster, and nothing else costs anything.
const EVERY_MS: i64 = 200;

/// Whether standard error is a terminal that can be redrawn.
pub(crate) fn possible() -> bool {
    let dumb = |t: std::ffi::OsString| t.is_empty() || t == "dumb";
    std::io::stderr().is_terminal() && !std::env::var_os("TERM").is_none_or(dumb)
}

/// What the drawing thread and the observer share.
struct Screen {
    state: State,
    painter: Painter,
}

impl Screen {
    fn draw(&mut self) {
        if let Some((columns, rows)) = size() {
            let lines = frame::lines(
                &self.state,
                Instant::now(),
                columns,
                rows,
                self.painter.style,
            );
            self.painter.draw(&lines, columns);
        }
    }
}

/// The size of the terminal; asked anew each time, so that it may change.
fn size() -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).ok()?;
    // A terminal that does not know its size says zero.
    let or = |n: u16, default| if n == 0 { default } else { usize::from(n) };
    Some((or(size.ws_col, 80), or(size.ws_row, 24)))
}

/// Shows an exploration while it runs.
pub(crate) struct Live {
    screen: Arc<Mutex<Screen>>,
    /// Closed to end the thread.
    over: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Live {
    /// Begins; none where no thread or pipe can be had, and plain lines have to do.
    pub(crate) fn start() -> Option<Self> {
        let (reader, over) = rustix::pipe::pipe().ok()?;
        let screen = Arc::new(Mutex::new(Screen {
            state: State::default(),
            painter: Painter::new(Style::of_stderr()),
        }));
        let shared = screen.clone();
        let thread = std::thread::Builder::new()
            .name("live".into())
            .spawn(move || tick(&reader, &shared))
            .ok()?;
        Some(Self {
            screen,
            over: Some(over),
            thread: Some(thread),
        })
    }
}

/// Redraws until the other end of `over` is closed.
fn tick(over: &OwnedFd, screen: &Mutex<Screen>) {
    let time = Timespec {
        tv_sec: 0,
        tv_nsec: EVERY_MS * 1_000_000,
    };
    loop {
        let mut fds = [PollFd::new(over, PollFlags::IN)];
        match poll(&mut fds, Some(&time)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            _ => return,
        }
        screen.lock().unwrap_or_else(PoisonError::into_inner).draw();
    }
}

impl Observer for Live {
    fn on(&mut self, progress: &Progress<'_>) {
        let mut screen = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        screen.state.on(progress, Instant::now());
        // What must not be missed is written above the view, and stays.
        if state::stays(progress)
            && let Some(line) = progress::line(progress, screen.painter.style)
        {
            screen.painter.above(&line);
            screen.draw();
        }
    }

    fn wants_usage(&self) -> bool {
        true
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        drop(self.over.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has drawn its last frame; there is nothing to say about it.
            thread.join().unwrap_or(());
        }
        let mut screen = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        screen.painter.clear();
    }
}
