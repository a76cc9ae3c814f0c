//! What a person at a terminal sees: the real binary in a real pseudo-terminal.
//!
//! The terminal is made by `forkpoint_sys::pty`, and util-linux's `setsid --ctty` gives it to the
//! command as a login would: no further dependency is needed for that.

mod common;

use common::{Lab, processes_with, wait_until};
use forkpoint_sys::{pty, signal as sig};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

/// A terminal with a command in it.
struct Term {
    master: Option<OwnedFd>,
    slave: OwnedFd,
    child: Child,
    seen: String,
}

impl Term {
    /// Runs `command` with the terminal as its standard streams. `None`: there are no terminals here.
    fn start(lab: &Lab, args: &[&str]) -> Option<Self> {
        Self::start_with(lab, args, None)
    }

    /// As [`Term::start`], with standard output elsewhere.
    fn start_with(lab: &Lab, args: &[&str], out: Option<OwnedFd>) -> Option<Self> {
        // Where the one in /dev/pts is closed to users, the one in /dev is not.
        let made = ["/dev/pts", "/dev"].into_iter().find_map(|dir| {
            let root = rustix::fs::open(dir, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
            pty::open(root.ok()?.as_fd()).ok()
        });
        let Some((master, slave)) = made else {
            eprintln!("SKIP: no terminal can be made here");
            return None;
        };
        let size = |row, col| Winsize {
            ws_row: row,
            ws_col: col,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&master, size(30, 90)).unwrap();
        let own = lab.command(args);
        let mut command = Command::new("setsid");
        command
            .arg("--ctty")
            .arg(own.get_program())
            .args(own.get_args());
        command.current_dir(lab.base());
        command
            .env("FORKPOINT_HOME", lab.store())
            .env("SHELL", "/bin/sh");
        let copy = || slave.try_clone().unwrap();
        command.stdin(copy()).stdout(copy()).stderr(copy());
        if let Some(out) = out {
            command.stdout(out);
        }
        let child = command.spawn().unwrap();
        Some(Self {
            master: Some(master),
            slave,
            child,
            seen: String::new(),
        })
    }

    fn type_in(&self, text: &str) {
        let master = self.master.as_ref().unwrap();
        let mut bytes = text.as_bytes();
        while !bytes.is_empty() {
            let count = rustix::io::write(master, bytes).unwrap();
            bytes = &bytes[count..];
        }
    }

    fn resize(&self, rows: u16, cols: u16) {
        let size = Winsize {
            ws_row: rows,
            ws_col: cols,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(self.master.as_ref().unwrap(), size).unwrap();
    }

    /// Reads what is shown within `ms`. `false`: nothing.
    fn look(&mut self, ms: i64) -> bool {
        let master = self.master.as_ref().unwrap();
        let mut fds = [PollFd::new(master, PollFlags::IN)];
        let time = Timespec {
            tv_sec: 0,
            tv_nsec: ms * 1_000_000,
        };
        poll(&mut fds, Some(&time)).unwrap();
        if fds[0].revents().is_empty() {
            return false;
        }
        let mut buffer = [0; 4096];
        match rustix::io::read(master, &mut buffer) {
            Ok(count) => self.seen += &String::from_utf8_lossy(&buffer[..count]),
            Err(_) => return false,
        }
        true
    }

    /// Waits until `text` was shown; forgets all up to its end.
    #[track_caller]
    fn expect(&mut self, text: &str) -> String {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if let Some(at) = self.seen.find(text) {
                let rest = self.seen.split_off(at + text.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            self.look(100);
        }
        panic!("{text:?} was never shown, only {:?}", self.seen);
    }

    /// Waits for the end; returns the status and what was shown since.
    #[track_caller]
    fn end(&mut self) -> (ExitStatus, String) {
        let begun = Instant::now();
        loop {
            while self.master.is_some() && self.look(50) {}
            if let Some(status) = self.child.try_wait().unwrap() {
                while self.master.is_some() && self.look(0) {}
                return (status, std::mem::take(&mut self.seen));
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "it never ended: {:?}",
                self.seen
            );
        }
    }

    /// Whether the caller's terminal treats typing as lines.
    fn cooked(&self) -> bool {
        let modes = tcgetattr(&self.slave).unwrap().local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }
}

impl Drop for Term {
    fn drop(&mut self) {
        self.child.kill().unwrap_or(());
        self.child.wait().unwrap();
    }
}

fn lab() -> Lab {
    let lab = Lab::new(&[("file", "base\n")]);
    lab.run(&["fork", ".", "--name", "b1"]).expect(0);
    lab
}

#[test]
fn a_command_has_a_terminal_of_the_branch_s_own_and_its_size_follows() {
    let lab = lab();
    let script =
        "test -t 0 && test -t 1 && test -t 2 && tty && stty size && read x && stty size; exit 7";
    let Some(mut term) = Term::start(&lab, &["exec", "b1", "--", "sh", "-c", script]) else {
        return;
    };
    term.expect("/dev/pts/0\r\n30 90\r\n");
    assert!(!term.cooked(), "what is typed goes through as it is");
    term.resize(50, 132);
    term.type_in("x\r");
    let (status, shown) = term.end();
    assert!(shown.contains("50 132"), "{shown}");
    assert_eq!(status.code(), Some(7));
    assert!(term.cooked(), "the terminal is as it was");
}

#[test]
fn an_interrupt_arrives_once() {
    let lab = lab();
    let script = "trap 'echo GOT' INT; echo ready; n=0; \
        while [ $n -lt 12 ]; do sleep 0.1; n=$((n+1)); done; echo end";
    for how in [&["exec", "b1"][..], &["exec", "-T", "b1"]] {
        let args: Vec<&str> = how
            .iter()
            .copied()
            .chain(["--", "sh", "-c", script])
            .collect();
        let Some(mut term) = Term::start(&lab, &args) else {
            return;
        };
        term.expect("ready");
        term.type_in("\x03");
        let (status, shown) = term.end();
        assert_eq!(shown.matches("GOT").count(), 1, "{how:?}: {shown}");
        assert!(shown.contains("end"), "{shown}");
        assert_eq!(status.code(), Some(0));
    }
}

/// Whether a process is stopped as its shell's job.
fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| rest.starts_with('T'))
}

#[test]
fn a_shell_has_job_control() {
    let lab = lab();
    let job = || processes_with("sleep\x0060.5");
    let stopped = || job().into_iter().any(is_stopped);
    let Some(mut term) = Term::start(&lab, &["shell", "b1"]) else {
        return;
    };
    term.expect("(b1) $ ");
    term.type_in("sleep 60.5\r");
    term.expect("sleep 60.5");
    wait_until(PATIENCE, || !job().is_empty()).unwrap();
    term.type_in("\x1a");
    term.expect("topped");
    wait_until(PATIENCE, stopped).unwrap();
    term.type_in("echo stil''l; fg\r");
    term.expect("still");
    term.expect("sleep 60.5");
    // A shell names the job before it makes it the foreground again: an interrupt then would be its own.
    wait_until(PATIENCE, || !stopped()).unwrap();
    term.type_in("\x03");
    term.expect("(b1) $ ");
    term.type_in("echo made > new; echo st=$?; exit 3\r");
    term.expect("st=0");
    let (status, _) = term.end();
    assert_eq!(status.code(), Some(3));
    assert!(term.cooked());
    assert_eq!(lab.read("new"), None, "it was in the branch");
    let diff = lab.run(&["diff", "b1"]).expect(0);
    assert!(diff.stdout.contains("new"), "{diff:?}");
}

#[test]
fn the_terminal_is_given_back_whatever_ends_it() {
    let lab = lab();
    // By a signal to the command: by one to us, which an exec passes on and a shell hangs up at; and
    // when everything in the branch is killed.
    type End<'a> = &'a dyn Fn(&Term);
    let ends: [(&[&str], End<'_>); 3] = [
        (&["exec", "b1", "--", "sh", "-c"], &|term| {
            sig::send_pid(term.child.id(), sig::SIGTERM).unwrap();
        }),
        (&["shell", "b1", "--", "sh", "-c"], &|term| {
            sig::send_pid(term.child.id(), sig::SIGTERM).unwrap();
        }),
        (&["exec", "b1", "--", "sh", "-c"], &|_| {
            lab.run(&["abort", "b1"]).expect(0);
        }),
    ];
    for (args, end) in ends {
        let mut args = args.to_vec();
        args.push("echo ready; sleep 61");
        let Some(mut term) = Term::start(&lab, &args) else {
            return;
        };
        term.expect("ready");
        wait_until(PATIENCE, || !term.cooked()).unwrap();
        end(&term);
        let (status, shown) = term.end();
        assert!(!status.success(), "{args:?} {shown}");
        assert!(term.cooked(), "{args:?} {shown}");
    }
}

#[test]
fn stopped_from_outside_it_gives_the_terminal_back_meanwhile() {
    let lab = lab();
    let script = "echo ready; read x; echo got $x";
    let Some(mut term) = Term::start(&lab, &["exec", "b1", "--", "sh", "-c", script]) else {
        return;
    };
    term.expect("ready");
    wait_until(PATIENCE, || !term.cooked()).unwrap();
    sig::send_pid(term.child.id(), 20).unwrap();
    wait_until(PATIENCE, || term.cooked()).expect("given back");
    sig::send_pid(term.child.id(), sig::SIGCONT).unwrap();
    wait_until(PATIENCE, || !term.cooked()).expect("taken again");
    term.type_in("it\r");
    term.expect("got it");
    assert_eq!(term.end().0.code(), Some(0));
    assert!(term.cooked());
}

#[test]
fn when_the_terminal_goes_the_shell_goes_and_what_ignores_that_stays() {
    let lab = lab();
    let Some(mut term) = Term::start(&lab, &["shell", "b1"]) else {
        return;
    };
    term.expect("(b1) $ ");
    term.type_in("nohup sleep 62.5 >/dev/null 2>&1 &\r");
    term.type_in("sleep 63.5\r");
    wait_until(PATIENCE, || !processes_with("sleep\x0063.5").is_empty()).unwrap();
    wait_until(PATIENCE, || !processes_with("sleep\x0062.5").is_empty()).unwrap();
    drop(term.master.take());
    let gone = wait_until(PATIENCE, || processes_with("sleep\x0063.5").is_empty());
    gone.expect("the foreground job ended");
    wait_until(PATIENCE, || term.child.try_wait().unwrap().is_some()).expect("we ended");
    assert!(!processes_with("sleep\x0062.5").is_empty(), "documented");
    lab.run(&["abort", "b1"]).expect(0);
    assert!(processes_with("sleep\x0062.5").is_empty());
}

#[test]
fn what_is_left_behind_reads_nothing_of_what_is_typed_later() {
    let lab = lab();
    let script = "(trap '' HUP; : >armed; cat </dev/tty; echo over) >left 2>&1 & \
        until [ -e armed ]; do sleep 0.05; done; sleep 0.2; echo begun";
    let Some(mut term) = Term::start(&lab, &["exec", "b1", "--", "sh", "-c", script]) else {
        return;
    };
    term.expect("begun");
    assert_eq!(term.end().0.code(), Some(0));
    term.type_in("secret\r");
    let left = || {
        let done = lab.run(&["exec", "b1", "--", "cat", "left"]);
        done.stdout.contains("over").then_some(done.stdout)
    };
    wait_until(PATIENCE, || left().is_some()).expect("its terminal was hung up");
    assert!(!left().unwrap().contains("secret"));
}

#[test]
fn a_terminal_can_be_asked_for_and_refused() {
    let lab = lab();
    let done = lab.run(&[
        "exec",
        "-t",
        "b1",
        "--",
        "sh",
        "-c",
        "test -t 1 && stty size",
    ]);
    assert!(done.stdout.contains("24 80"), "{done:?}");
    let mut args = vec!["exec", "-T", "b1", "--", "sh", "-c"];
    args.push("test -t 0 || test -t 1 || test -t 2 || echo none");
    let Some(mut term) = Term::start(&lab, &args) else {
        return;
    };
    assert!(term.end().1.contains("none"));
}

#[test]
fn with_output_to_a_file_the_command_still_has_a_controlling_terminal() {
    let lab = lab();
    let file = lab.path("out");
    let script = "test -t 0 && test -t 2 && ! test -t 1 || exit 9; echo seen >/dev/tty; read x; \
        echo typed $x; trap 'echo GOT >&2' INT; echo ready >&2; n=0; \
        while [ $n -lt 12 ]; do sleep 0.1; n=$((n+1)); done; exit 5";
    let out = std::fs::File::create(&file).unwrap().into();
    let args = ["exec", "b1", "--", "sh", "-c", script];
    let Some(mut term) = Term::start_with(&lab, &args, Some(out)) else {
        return;
    };
    term.expect("seen");
    term.type_in("it\r");
    term.expect("ready");
    term.type_in("\x03");
    let (status, shown) = term.end();
    assert_eq!(shown.matches("GOT").count(), 1, "{shown}");
    assert_eq!(status.code(), Some(5), "{shown}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "typed it\n");
    assert!(term.cooked());
}

#[test]
fn into_a_pipe_there_is_a_terminal_when_it_is_asked_for() {
    let lab = lab();
    let script = "test -t 0 && echo yes >/dev/tty; echo out";
    for (flag, expected) in [("-T", false), ("-t", true)] {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let args = ["exec", flag, "b1", "--", "sh", "-c", script];
        let Some(mut term) = Term::start_with(&lab, &args, Some(writer)) else {
            return;
        };
        let (_, shown) = term.end();
        assert_eq!(shown.contains("yes"), expected, "{flag}: {shown}");
        let mut text = String::new();
        std::io::Read::read_to_string(&mut std::fs::File::from(reader), &mut text).unwrap();
        assert_eq!(text, "out\n", "{flag}");
    }
    // Unasked it is left to whoever reads the pipe.
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let args = ["exec", "b1", "--", "sh", "-c", "test -t 0; echo $?"];
    let Some(mut term) = Term::start_with(&lab, &args, Some(writer)) else {
        return;
    };
    term.end();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut std::fs::File::from(reader), &mut text).unwrap();
    assert_eq!(text, "1\n");
}
