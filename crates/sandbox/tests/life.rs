//! How a sandbox ends, stops, is found again, and is limited.

mod common;

use common::{Place, eventually, is_root, request, run, sh, spawn, start};
use forkpoint_sandbox::{ExitKind, Limit, Limits, Sandbox, is_alive, kill_process};
use forkpoint_sys::clock;
use std::path::Path;

fn ended(sandbox: &Sandbox) -> bool {
    !is_alive(sandbox.process()).expect("is_alive")
}

#[test]
fn kill_ends_everything_however_it_hides() {
    let place = Place::new();
    let sandbox = place.start();
    let marker = format!("4{}", std::process::id());
    sh(
        &sandbox,
        &format!(
            "trap '' TERM HUP INT; (setsid sleep {marker} >/dev/null 2>&1 &) ; (setsid sh -c 'trap \"\" TERM; (sleep {marker} &) ; exec sleep {marker}' >/dev/null 2>&1 &)"
        ),
    );
    let seen = || {
        std::fs::read_dir("/proc")
            .expect("proc")
            .flatten()
            .any(|entry| {
                let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
                line == format!("sleep\0{marker}\0").into_bytes()
            })
    };
    eventually("the daemons run", seen);
    sandbox.kill().expect("kill");
    assert!(!seen());
    assert!(ended(&sandbox));
    sandbox.kill().expect("again");
    assert!(!kill_process(sandbox.process()).expect("gone"));
}

#[test]
fn a_branch_ends_when_its_last_process_does() {
    let place = Place::new();
    let sandbox = place.start();
    let process = sandbox.process().clone();
    let running = spawn(&sandbox, "sleep 0.3");
    drop(sandbox);
    assert!(is_alive(&process).expect("alive"), "a command runs");
    assert_eq!(running.wait().expect("wait").status, ExitKind::Code(0));
    eventually("init ends", || !is_alive(&process).expect("alive"));
}

#[test]
fn a_branch_held_open_stays() {
    let place = Place::new();
    let sandbox = place.start();
    for _ in 0..3 {
        sh(&sandbox, "true");
    }
    assert!(!ended(&sandbox));
    assert!(sandbox.kill().is_ok());
}

#[test]
fn a_broken_lifeline_ends_everything() {
    let place = Place::new();
    let mut spec = place.spec();
    spec.lifeline = true;
    let sandbox = start(spec);
    let process = sandbox.process().clone();
    let running = spawn(&sandbox, "exec sleep 300");
    drop(sandbox);
    assert_eq!(running.wait().expect("wait").status, ExitKind::Signal(9));
    eventually("init ends", || !is_alive(&process).expect("alive"));
}

#[test]
fn another_process_can_attach() {
    let place = Place::new();
    let mut spec = place.spec();
    let socket = place.branch.join("sock");
    spec.control_socket = Some(socket.clone());
    let first = start(spec);
    let running = spawn(&first, "exec sleep 300");
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(&socket).expect("stat").permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
    let second = Sandbox::attach(first.process(), &socket)
        .expect("attach")
        .expect("alive");
    eventually("the other's command is seen", || {
        sh(&second, "cat /proc/[0-9]*/comm 2> /dev/null; true").contains("sleep")
    });
    let process = first.process().clone();
    drop(first);
    assert_eq!(sh(&second, "echo still"), "still\n");
    second.kill().expect("kill");
    assert_eq!(running.wait().expect("wait").status, ExitKind::Signal(9));
    assert!(
        Sandbox::attach(&process, &socket)
            .expect("attach")
            .is_none()
    );
}

#[test]
fn a_process_that_only_has_the_pid_is_left_alone() {
    let place = Place::new();
    let sandbox = place.start();
    let mut other = sandbox.process().clone();
    other.start_time += 1;
    assert!(!is_alive(&other).expect("alive"));
    assert!(!kill_process(&other).expect("kill"));
    let mut older = sandbox.process().clone();
    older.boot_id = "another boot".into();
    assert!(!kill_process(&older).expect("kill"));
    assert!(!ended(&sandbox));
}

#[test]
fn a_frozen_branch_makes_no_progress() {
    let place = Place::new();
    let sandbox = place.start();
    let count = place.stack().upper.join("count");
    let path = place.base.join("count");
    let script = format!(
        "n=0; while :; do n=$((n+1)); echo $n > {}; done",
        path.display()
    );
    let running = spawn(&sandbox, &script);
    let read = || std::fs::read(&count).unwrap_or_default();
    eventually("it counts", || !read().is_empty());
    for _ in 0..3 {
        sandbox.freeze().expect("freeze");
        let before = read();
        let until = clock::monotonic_ns() + 100_000_000;
        eventually("a moment", || clock::monotonic_ns() > until);
        assert_eq!(read(), before);
        let (request, _out, _err) = request(&["true"], Path::new("/"));
        assert!(
            sandbox.exec(request).expect("exec").wait().is_err(),
            "frozen"
        );
        sandbox.thaw().expect("thaw");
        eventually("it goes on", || !read().is_empty() && read() != before);
    }
    sandbox.freeze().expect("freeze");
    sandbox.kill().expect("a frozen branch can be killed");
    assert_eq!(running.wait().expect("wait").status, ExitKind::Signal(9));
}

/// A parent waits for the child of its vfork without a signal reaching it, and the child may be
/// stopped before it runs a program. Shells, make and `posix_spawn` start every command this way.
#[test]
fn what_starts_commands_without_end_freezes_every_time() {
    let place = Place::new();
    let sandbox = place.start();
    let loops = "for i in 1 2 3; do (while :; do /bin/true; done) & done; wait";
    let running = spawn(&sandbox, loops);
    for _ in 0..200 {
        sandbox.freeze().expect("freeze");
        sandbox.thaw().expect("thaw");
    }
    sandbox.kill().expect("kill");
    assert_eq!(running.wait().expect("wait").status, ExitKind::Signal(9));
}

#[test]
fn many_threads_start_sandboxes() {
    std::thread::scope(|scope| {
        for number in 0..8 {
            scope.spawn(move || {
                let place = Place::new();
                let sandbox = place.start();
                let said = sh(&sandbox, &format!("echo {number}"));
                assert_eq!(said, format!("{number}\n"));
                sandbox.kill().expect("kill");
            });
        }
    });
    eventually("no init is left unreaped", || zombies() == 0);
}

/// Inits that this process started, that have ended, and that nobody has reaped.
fn zombies() -> usize {
    let all = std::fs::read_dir("/proc").expect("proc").flatten();
    let zombies = all.filter(|entry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let Some((name, rest)) = stat.rsplit_once(')') else {
            return false;
        };
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next();
        let parent = fields.next().and_then(|p| p.parse::<u32>().ok());
        state == Some("Z") && parent == Some(std::process::id()) && name.contains("forkpoint")
    });
    zombies.count()
}

fn limited(limits: Limits, script: &str) -> (ExitKind, Sandbox, Place) {
    let place = Place::new();
    let mut spec = place.spec();
    spec.limits = limits;
    let sandbox = start(spec);
    let output = run(&sandbox, &["sh", "-c", script], &place.base);
    (output.report.status, sandbox, place)
}

fn assert_limit(limits: Limits, script: &str, limit: Limit) {
    let (status, sandbox, _place) = limited(limits, script);
    assert_eq!(status, ExitKind::LimitHit(limit));
    assert_eq!(sandbox.kill().expect("kill").limit, Some(limit));
}

#[test]
fn the_wall_clock_limits() {
    let limits = Limits {
        wall_ms: Some(300),
        ..Limits::default()
    };
    let began = clock::monotonic_ns();
    assert_limit(limits, "sleep 300", Limit::Wall);
    assert!(clock::monotonic_ns() - began < 5_000_000_000);
}

#[test]
fn processor_time_limits() {
    let limits = Limits {
        cpu_ms: Some(300),
        ..Limits::default()
    };
    assert_limit(limits, "while :; do :; done", Limit::Cpu);
}

#[test]
fn a_fork_bomb_is_ended() {
    let limits = Limits {
        pids: Some(50),
        ..Limits::default()
    };
    // Without a cgroup a refused fork is not seen, only that the limit is reached: fill it.
    let bomb = "(while :; do sleep 300 & done) & exec sleep 300";
    assert_limit(limits, bomb, Limit::Pids);
}

#[test]
fn a_memory_hog_is_ended() {
    let limits = Limits {
        memory_bytes: Some(64 << 20),
        ..Limits::default()
    };
    assert_limit(
        limits,
        "x=aaaaaaaaaaaaaaaa; while :; do x=$x$x; done",
        Limit::Memory,
    );
}

#[test]
fn files_in_memory_count_as_memory() {
    let limits = Limits {
        memory_bytes: Some(64 << 20),
        ..Limits::default()
    };
    let (status, sandbox, _place) =
        limited(limits, "head -c 200M /dev/zero > /tmp/big; sleep 1; exit 3");
    assert_ne!(status, ExitKind::Code(0), "more than the limit was kept");
    assert!(sandbox.kill().expect("kill").usage.peak_memory_bytes < 150 << 20);
}

#[test]
fn a_disk_filler_is_ended() {
    let limits = Limits {
        disk_bytes: Some(8 << 20),
        ..Limits::default()
    };
    let script = "while :; do head -c 1M /dev/zero >> fill; sleep 0.01; done";
    assert_limit(limits, script, Limit::Disk);
}

#[test]
fn usage_is_told() {
    let limits = Limits {
        memory_bytes: Some(1 << 30),
        cpu_ms: Some(60_000),
        ..Limits::default()
    };
    let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; head -c 3M /dev/zero > three";
    let (status, sandbox, _place) = limited(limits, script);
    assert_eq!(status, ExitKind::Code(0));
    let usage = sandbox.usage().expect("usage");
    assert!(usage.cpu_ns > 10_000_000, "{usage:?}");
    assert!(usage.disk_bytes >= 3 << 20, "{usage:?}");
    let last = sandbox.kill().expect("kill");
    assert!(last.usage.cpu_ns >= usage.cpu_ns, "{last:?}");
    assert!(last.usage.peak_memory_bytes > 100_000, "{last:?}");
    assert_eq!(last.limit, None);
}

#[test]
fn no_cgroup_is_left_behind() {
    let limits = Limits {
        memory_bytes: Some(1 << 30),
        pids: Some(100),
        ..Limits::default()
    };
    let place = Place::new();
    let mut spec = place.spec();
    spec.limits = limits;
    let branch = spec.branch;
    let others = |id| id != branch;
    let sandbox = start(spec);
    assert_eq!(
        forkpoint_sandbox::sweep(&others).expect("sweep"),
        0,
        "in use"
    );
    sandbox.kill().expect("kill");
    assert_eq!(forkpoint_sandbox::sweep(&others).expect("sweep"), 0);
    if !is_root() {
        eprintln!("SKIP: an ordinary user has no cgroups to leave here");
    }
}

#[test]
fn cgroups_of_dead_runs_are_swept() {
    if !is_root() {
        eprintln!("SKIP: an ordinary user has no cgroups to leave here");
        return;
    }
    let place = Place::new();
    let mut spec = place.spec();
    spec.limits.pids = Some(100);
    let branch = spec.branch;
    let sandbox = start(spec);
    let pid = sandbox.process().pid;
    let own = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("cgroups");
    let pids = own.lines().find(|line| line.contains(":pids:"));
    let Some(path) = pids.and_then(|line| line.splitn(3, ':').nth(2)) else {
        eprintln!("SKIP: this machine has no pids controller of its own");
        return;
    };
    let own = Path::new("/sys/fs/cgroup/pids").join(path.trim_start_matches('/'));
    // As a starter that was killed leaves one, and as one that is just starting makes one.
    let mut dead = std::process::Command::new("true").spawn().expect("true");
    dead.wait().expect("wait");
    let beside = |maker: u32| own.with_file_name(format!("forkpoint-{branch}-{maker}"));
    let (left, fresh) = (beside(dead.id()), beside(1));
    std::fs::create_dir(&left).expect("mkdir");
    std::fs::create_dir(&fresh).expect("mkdir");
    forkpoint_sandbox::sweep(&|id| id != branch).expect("sweep");
    assert!(!left.exists(), "its maker is dead");
    assert!(fresh.exists(), "its maker lives, and will enter it");
    assert!(own.exists());
    std::fs::remove_dir(&fresh).expect("rmdir");
    sandbox.kill().expect("kill");
    drop(sandbox);
}
