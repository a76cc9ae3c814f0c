//! The branch's socket is handed over to whoever holds the branch, and to nobody inside.

mod common;

use common::{Place, run, spawn, start};
use forkpoint_sandbox::{Door, Sandbox};
use forkpoint_sys::scm;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendFlags, SocketFlags, accept_with, send};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Speaks to the socket from inside and prints what it is answered.
const TALK: &str = "import socket\n\
    s=socket.socket(socket.AF_UNIX); s.connect('/run/forkpoint/sock')\n\
    s.sendall(b'hello\\n'); print(s.recv(99).decode(), end='')";

fn python() -> bool {
    let there = Path::new("/usr/bin/python3").exists();
    if !there {
        eprintln!("SKIP: no python3 to speak to the socket");
    }
    there
}

fn with_socket(place: &Place) -> Sandbox {
    let mut spec = place.spec();
    spec.branch_socket = true;
    spec.control_socket = Some(place.branch.join("control"));
    start(spec)
}

fn door(sandbox: &Sandbox) -> Door {
    sandbox.ask_for_socket().expect("ask").take().expect("take")
}

fn readable(fd: BorrowedFd<'_>, ms: i64) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let limit = Timespec {
        tv_sec: ms / 1000,
        tv_nsec: ms % 1000 * 1_000_000,
    };
    poll(&mut fds, Some(&limit)).expect("poll") == 1
}

#[track_caller]
fn accept(door: &Door) -> OwnedFd {
    assert!(readable(door.listener.as_fd(), 10_000), "nobody connects");
    accept_with(&door.listener, SocketFlags::CLOEXEC).expect("accept")
}

#[test]
fn any_holder_accepts_and_what_came_before_waits() {
    let place = Place::new();
    let sandbox = with_socket(&place);
    if !python() {
        return;
    }
    let process = sandbox.process().clone();
    let control = place.branch.join("control");
    let other = Sandbox::attach(&process, &control)
        .expect("attach")
        .expect("it lives");
    std::thread::scope(|scope| {
        // Nobody holds the listener yet: the command waits for its answer.
        let command = scope.spawn(|| run(&sandbox, &["python3", "-c", TALK], Path::new("/")));
        for sandbox in [&sandbox, &other] {
            let door = door(sandbox);
            assert_eq!(door.left_ms, None);
            assert!(readable(door.listener.as_fd(), 10_000), "it waits");
        }
        let client = accept(&door(&other));
        let mut buffer = [0u8; 16];
        let len = scm::receive_bytes(client.as_fd(), &mut buffer).expect("receive");
        assert_eq!(&buffer[..len], b"hello\n");
        send(&client, b"welcome\n", SendFlags::NOSIGNAL).expect("send");
        let output = command.join().expect("join");
        assert_eq!(output.out, "welcome\n", "{output:?}");
    });
}

#[test]
fn no_descriptor_comes_in_through_it() {
    let place = Place::new();
    let sandbox = with_socket(&place);
    if !python() {
        return;
    }
    let pass = "import socket,array,os\n\
        s=socket.socket(socket.AF_UNIX); s.connect('/run/forkpoint/sock')\n\
        r,w=os.pipe()\n\
        try:\n s.sendmsg([b'x\\n'],[(socket.SOL_SOCKET,socket.SCM_RIGHTS,array.array('i',[w]))])\n\
        except OSError: s.sendall(b'x\\n')\n\
        os.close(w); print(os.read(r,1))";
    let door = door(&sandbox);
    std::thread::scope(|scope| {
        let command = scope.spawn(|| run(&sandbox, &["python3", "-c", pass], Path::new("/")));
        let client = accept(&door);
        let mut buffer = [0u8; 16];
        let len = scm::receive_bytes(client.as_fd(), &mut buffer).expect("receive");
        assert_eq!(&buffer[..len], b"x\n");
        // Our end stays open: the pipe ends only because nobody was given it.
        let output = command.join().expect("join");
        assert_eq!(output.out, "b''\n", "{output:?}");
    });
}

#[test]
fn its_end_and_its_time_are_known() {
    let place = Place::new();
    let mut spec = place.spec();
    spec.branch_socket = true;
    spec.limits.wall_ms = Some(60_000);
    let sandbox = start(spec);
    let door = door(&sandbox);
    let left = door.left_ms.expect("a time limit");
    assert!((1..=60_000).contains(&left), "{left}");
    let _sleeps = spawn(&sandbox, "sleep 100");
    assert!(!readable(door.ended.as_fd(), 0));
    sandbox.kill().expect("kill");
    assert!(readable(door.ended.as_fd(), 10_000));
    let asked = sandbox.ask_for_socket();
    let error = asked
        .and_then(|asked| asked.take())
        .expect_err("it is gone");
    assert_eq!(error.code, "FP0303", "{error}");
}

#[test]
fn what_is_held_goes_on_when_its_holder_is_gone() {
    let place = Place::new();
    let sandbox = with_socket(&place);
    let ticks = place.branch.join("disk-0/upper/ticks");
    let script = format!(
        "while :; do echo x >> {}/ticks; sleep 0.01; done",
        place.base.display()
    );
    let _ticking = spawn(&sandbox, &script);
    let count = || std::fs::metadata(&ticks).map_or(0, |m| m.len());
    let moment = |ms| readable(door(&sandbox).listener.as_fd(), ms);
    while count() == 0 {
        assert!(!moment(20));
    }
    let control = place.branch.join("control");
    let holder = Sandbox::attach(sandbox.process(), &control)
        .expect("attach")
        .expect("it lives");
    holder.hold().expect("hold");
    let held = count();
    moment(200);
    assert_eq!(count(), held, "it is held");
    drop(holder);
    let mut waited = 0;
    while count() == held {
        assert!(waited < 500, "it does not go on");
        waited += 1;
        moment(20);
    }
}

#[test]
fn a_branch_without_a_socket_has_none_to_give() {
    let place = Place::new();
    let sandbox = place.start();
    let asked = sandbox.ask_for_socket().expect("ask");
    let error = asked.take().expect_err("there is none");
    assert!(error.message.contains("no socket"), "{error}");
    let output = run(&sandbox, &["sh", "-c", "ls /run/forkpoint"], Path::new("/"));
    assert!(!output.out.contains("sock"), "{output:?}");
}
