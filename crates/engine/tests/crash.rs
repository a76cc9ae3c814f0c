//! kill -9 of whoever commits, at every step: afterwards there is the old base or the new one, to
//! every attribute, and a branch that says which.
//!
//! `strace` kills the committing process as it enters the n-th call of each kind that changes
//! anything. `FORKPOINT_CRASH_ALL=1` tries every n; without it some of each kind are tried.

mod common;

use common::drive::{Drive, here, in_branch, inside, twins};
use common::tree::{self, Tree};
use common::{Place, has, ok, skip};
use forkpoint_engine::{
    Branch, BranchState, CommitOptions, CommitOutcome, Engine, ForkOptions, JudgeSpec, SealOptions,
    Stream,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const COMMITTER: &str = "FORKPOINT_TEST_COMMIT";
const SUPERVISOR: &str = "FORKPOINT_TEST_SUPERVISE";

#[test]
#[ignore = "executed by the others inside a branch"]
fn driver() {
    inside();
}

/// The process that is killed.
#[test]
#[ignore = "executed by the others as a process of its own"]
fn committer() {
    let Some(branch) = given(COMMITTER) else {
        return;
    };
    println!("\nREADY");
    let report = branch.commit(&all()).unwrap();
    println!("\nENDED {:?}", report.outcome);
}

/// Nothing is withheld: set-user-id bits are among the changes.
fn all() -> CommitOptions {
    CommitOptions {
        allow_host_exec: true,
        ..CommitOptions::default()
    }
}

fn given(variable: &str) -> Option<Branch> {
    let text = std::env::var(variable).ok()?;
    let (dir, id) = text.split_once('|').expect("a place and a branch");
    Some(common::open(Path::new(dir)).branch(id).expect("the branch"))
}

/// A base with a branch of some forty mixed changes, ready to be committed.
struct Prepared {
    dir: tempfile::TempDir,
    branch: String,
    old: Tree,
    new: Tree,
}

fn prepare(seed: u64) -> Prepared {
    let place = Place::new();
    let native = twins(&place, seed);
    let branch = place.fork();
    let drive = Drive {
        seed: seed + 7,
        count: 150,
        links: true,
    };
    let results = in_branch(&branch, &drive);
    here(&drive, &native, Some(&results));
    branch.kv().unwrap().put(b"key", b"new").unwrap();
    branch.seal(&SealOptions::default()).unwrap();
    Prepared {
        old: tree::take(&place.base()),
        new: tree::take(&native),
        branch: branch.id().to_string(),
        dir: place.close(),
    }
}

impl Prepared {
    fn program(&self, before: &[&str]) -> Command {
        let own = std::env::current_exe().expect("this program");
        let mut command = match before.split_first() {
            Some((program, args)) => {
                let mut command = Command::new(program);
                command.args(args).arg(own);
                command
            }
            None => Command::new(own),
        };
        command
            .args(["--exact", "committer", "--ignored", "--nocapture"])
            .args(["--test-threads=1"])
            .env(
                COMMITTER,
                format!("{}|{}", self.dir.path().display(), self.branch),
            )
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        command
    }

    fn base(&self) -> PathBuf {
        std::fs::canonicalize(self.dir.path().join("base")).expect("the base")
    }

    /// Opens the store again until whoever else held the base has ended.
    #[track_caller]
    fn recovered(&self) -> Engine {
        // Killed is not yet dead: what held the base's lock lets go of it a moment later.
        let base = std::fs::File::open(self.base()).unwrap();
        base.lock().unwrap();
        base.unlock().unwrap();
        let mut said = Vec::new();
        for _ in 0..1000 {
            let engine = common::open(self.dir.path());
            said = engine.recovered().to_vec();
            if engine.store().in_doubt().unwrap().is_empty() {
                return engine;
            }
            drop(engine);
            wait_ms(10);
        }
        panic!("a commit stays in doubt: {said:?}");
    }

    /// The promise: old or new, said truly, and everything can go on. Whether it was committed.
    fn check(&self, what: &str) -> bool {
        let engine = self.recovered();
        let branch = engine.branch(&self.branch).unwrap();
        let state = branch.state().unwrap();
        let now = tree::take(&self.base());
        let committed = state == BranchState::Committed;
        let key = |engine: &Engine| {
            let world = engine.find_world(&self.base()).unwrap().unwrap();
            world.kv().get(b"key").unwrap().is_some()
        };
        assert_eq!(
            key(&engine),
            committed,
            "{what}: the key and the files are not together"
        );
        match state {
            BranchState::Committed => tree::same(&now, &self.new, &format!("{what}: committed")),
            BranchState::Sealed => tree::same(&now, &self.old, &format!("{what}: sealed")),
            other => panic!("{what}: {other:?}"),
        }
        let beside: Vec<_> = names(self.dir.path())
            .into_iter()
            .filter(|n| n.starts_with(".forkpoint"))
            .collect();
        assert!(beside.is_empty(), "{what}: {beside:?}");
        if !committed {
            assert_eq!(
                names(&self.dir.path().join("store/commits")),
                Vec::<String>::new(),
                "{what}: a stage was left"
            );
        }
        assert_eq!(
            names(&self.dir.path().join("store/tmp")),
            Vec::<String>::new(),
            "{what}: scratch was left"
        );
        drop((branch, engine));
        let engine = common::open(self.dir.path());
        assert_eq!(engine.recovered(), &[] as &[String], "{what}: twice");
        if !committed {
            let branch = engine.branch(&self.branch).unwrap();
            let report = branch.commit(&all()).unwrap();
            assert!(
                matches!(report.outcome, CommitOutcome::Committed),
                "{what}: {:?}",
                report.outcome
            );
            tree::same(
                &tree::take(&self.base()),
                &self.new,
                &format!("{what}: again"),
            );
        }
        assert!(key(&engine), "{what}: the key is not there");
        engine.undo(None, &self.base()).unwrap();
        assert!(!key(&engine), "{what}: the key is not taken back");
        tree::same(
            &tree::take(&self.base()),
            &self.old,
            &format!("{what}: undone"),
        );
        committed
    }
}

fn names(dir: &Path) -> Vec<String> {
    match std::fs::read_dir(dir) {
        Ok(entries) => entries
            .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
            .collect(),
        Err(_) => Vec::new(),
    }
}

fn wait_ms(ms: u32) {
    wait_ns(u64::from(ms) * 1_000_000);
}

fn wait_ns(ns: u64) {
    let timeout = Timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    };
    poll(&mut [], Some(&timeout)).ok();
}

const CALLS: [&str; 18] = [
    "renameat2",
    "renameat",
    "fsync",
    "fdatasync",
    "pwrite64",
    "ftruncate",
    "mkdirat",
    "mkdir",
    "linkat",
    "symlinkat",
    "mknodat",
    "unlinkat",
    "unlink",
    "fchmod",
    "utimensat",
    "fsetxattr",
    "sendmsg",
    "recvmsg",
];

/// Why a commit cannot be run under `strace` here.
fn untraceable() -> Option<&'static str> {
    if !has("strace") {
        return Some("strace is not installed");
    }
    let uid = rustix::process::geteuid();
    let subordinate = !uid.is_root()
        && has("newuidmap")
        && std::fs::read_to_string("/etc/subuid").is_ok_and(|text| {
            let name = native_name();
            text.lines().any(|line| {
                line.split(':')
                    .next()
                    .is_some_and(|who| who == name || who == uid.as_raw().to_string())
            })
        });
    subordinate
        .then_some("a traced newuidmap loses its set-user-id right, so that no ids can be mapped")
}

/// The user's name.
fn native_name() -> String {
    let output = Command::new("id").arg("-un").output().expect("id");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn law_08_kill_9_of_the_committing_process_at_any_call_leaves_old_or_new() {
    if let Some(why) = untraceable() {
        return skip(why);
    }
    let all = std::env::var_os("FORKPOINT_CRASH_ALL").is_some();
    let counted = count_calls();
    assert!(
        counted.iter().map(|(_, n)| n).sum::<usize>() > 40,
        "{counted:?}"
    );
    let (mut before, mut after) = (0, 0);
    for (call, count) in counted {
        let step = if all { 1 } else { count.div_ceil(5).max(1) };
        // The last ones are the most interesting: they are those around and after the decision.
        for at in (1..=count).rev().step_by(step) {
            let prepared = prepare(3);
            let inject = format!("inject={call}:signal=KILL:when={at}");
            let status = prepared
                .program(&["strace", "-f", "-o", "/dev/null", "-qq", "-e", &inject])
                .stdout(Stdio::null())
                .status()
                .unwrap();
            match prepared.check(&format!("{call} {at} of {count} ({status})")) {
                true => after += 1,
                false => before += 1,
            }
        }
    }
    eprintln!("killed: {before} times the old base, {after} times the new one");
    assert!(before > 0 && after > 0, "{before} {after}");
}

/// How often the thread that makes a call most makes it. `strace` counts each thread by itself.
fn count_calls() -> Vec<(&'static str, usize)> {
    let prepared = prepare(3);
    let log = prepared.dir.path().join("strace");
    let trace = format!("trace={}", CALLS.map(|c| format!("?{c}")).join(","));
    let output = prepared
        .program(&[
            "strace",
            "-f",
            "-o",
            log.to_str().unwrap(),
            "-qq",
            "-e",
            &trace,
        ])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("ENDED Committed"), "{text}");
    let log = std::fs::read_to_string(log).unwrap();
    CALLS
        .into_iter()
        .map(|call| {
            let mut of = std::collections::HashMap::new();
            for line in log.lines() {
                let (thread, rest) = line.split_once(' ').unwrap_or_default();
                if rest.trim_start().starts_with(&format!("{call}(")) {
                    *of.entry(thread).or_insert(0) += 1;
                }
            }
            (call, of.into_values().max().unwrap_or(0))
        })
        .filter(|(_, count)| *count > 0)
        .collect()
}

#[test]
fn law_08_kill_9_of_all_processes_of_a_commit_at_any_moment_leaves_old_or_new() {
    let (mut before, mut after) = (0, 0);
    for round in 0..24u64 {
        let prepared = prepare(5);
        let mut child = prepared.program(&[]).spawn().unwrap();
        ready(&mut child);
        wait_ns(round * round * 250_000);
        kill_tree(&mut child);
        match prepared.check(&format!("round {round}")) {
            true => after += 1,
            false => before += 1,
        }
    }
    eprintln!("killed: {before} times the old base, {after} times the new one");
    assert!(before > 0, "{before} {after}");
}

fn ready(child: &mut Child) {
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while line.trim() != "READY" {
        line.clear();
        assert_ne!(out.read_line(&mut line).unwrap(), 0, "it ended early");
    }
    // Kept open: a closed pipe would end it in another way.
    child.stdout = Some(out.into_inner());
}

/// Stops a process, so that it starts no more, then kills its children and it.
fn kill_tree(child: &mut Child) {
    let pid = Pid::from_child(child);
    kill_process(pid, Signal::STOP).ok();
    for task in std::fs::read_dir(format!("/proc/{}/task", child.id())).unwrap() {
        let children = task.unwrap().path().join("children");
        for other in std::fs::read_to_string(children)
            .unwrap_or_default()
            .split_whitespace()
        {
            let other = Pid::from_raw(other.parse().unwrap()).unwrap();
            kill_process(other, Signal::KILL).ok();
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The supervisor that is killed while a branch runs and another one is judged.
#[test]
#[ignore = "executed by the others as a process of its own"]
fn supervisor() {
    let Some(branch) = given(SUPERVISOR) else {
        return;
    };
    let mut command = branch.command("/bin/sh");
    command
        .args([
            "-c",
            "setsid sh -c 'trap \"\" TERM HUP; sleep 31415' & exec sleep 31415",
        ])
        .stdin(Stream::Null)
        .lifeline(true);
    let _child = command.spawn().unwrap();
    let sealed = branch
        .world()
        .unwrap()
        .fork(&ForkOptions::default())
        .unwrap();
    let sealed = sealed.into_iter().next().unwrap().unwrap();
    sealed.seal(&SealOptions::default()).unwrap();
    let spec = JudgeSpec::new("/bin/sh", ["-c", "echo > judged; exec sleep 31415"]).unwrap();
    println!("\nREADY");
    sealed.judge(&spec).unwrap();
}

/// The processes with this argument, on the whole host.
fn with_argument(argument: &str) -> Vec<i32> {
    let own = rustix::process::getuid().as_raw();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else {
            continue;
        };
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else {
            continue;
        };
        let ours =
            own == 0 || std::os::unix::fs::MetadataExt::uid(&entry.metadata().unwrap()) == own;
        if ours && line.split(|&b| b == 0).any(|a| a == argument.as_bytes()) {
            found.push(pid);
        }
    }
    found
}

#[test]
fn law_10_kill_9_of_the_supervisor_ends_what_runs_and_the_next_opening_cleans() {
    let place = Place::new();
    place.write("f", "0");
    let branch = place.fork();
    let id = branch.id().to_string();
    drop(branch);
    let dir = place.close();
    let own = std::env::current_exe().unwrap();
    let mut child = Command::new(own)
        .args(["--exact", "supervisor", "--ignored", "--nocapture"])
        .args(["--test-threads=1"])
        .env(SUPERVISOR, format!("{}|{id}", dir.path().display()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    ready(&mut child);
    // Both run when the verifier has begun: three sleeps.
    for _ in 0..500 {
        if with_argument("31415").len() >= 3 {
            break;
        }
        wait_ms(10);
    }
    let running = with_argument("31415");
    assert!(running.len() >= 3, "{running:?}");
    assert!(
        !names(&dir.path().join("store/tmp")).is_empty(),
        "no scratch"
    );
    let watched: Vec<_> = running
        .iter()
        .filter_map(|&pid| pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok())
        .collect();
    child.kill().unwrap();
    child.wait().unwrap();
    for pidfd in &watched {
        let limit = Timespec {
            tv_sec: 10,
            tv_nsec: 0,
        };
        let ended = poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&limit));
        assert_eq!(ended.unwrap(), 1, "a process outlived its supervisor");
    }
    let engine = common::open(dir.path());
    assert_eq!(names(&dir.path().join("store/tmp")), Vec::<String>::new());
    let branch = engine.branch(&id).unwrap();
    assert!(!branch.is_running().unwrap());
    assert_eq!(branch.state().unwrap(), BranchState::Open);
    assert_eq!(ok(&branch, "cat f"), "0");
}

#[test]
fn law_08_both_disks_of_a_linked_worktree_become_visible_together() {
    if !has("git") {
        return skip("git is not installed");
    }
    if let Some(why) = untraceable() {
        return skip(why);
    }
    let git =
        "git() { command git -c user.name=T -c user.email=t@example.invalid \"$@\"; }; set -e;";
    let host = |dir: &Path, script: &str| {
        let output = Command::new("/bin/sh")
            .args(["-c", &format!("{git} {script}")])
            .current_dir(dir)
            .output()
            .unwrap();
        assert!(output.status.success(), "{script}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let (mut before, mut after) = (0, 0);
    // The renames of both disks; the first is staging's, and past the last it ends by itself.
    for at in [1, 2, 3, 4, 5, 7, 9, 12, 16, 99] {
        let place = Place::new();
        std::fs::remove_dir(place.base()).unwrap();
        host(
            place.dir(),
            "mkdir main; cd main; git init -q -b main; echo 1 > f; git add f; git commit -qm first
            git worktree add -q -b side ../base",
        );
        let branch = place.fork();
        ok(
            &branch,
            &format!(
                "{git} echo 2 > f; echo new > n; mkdir d; echo x > d/x; git add -A; git commit -qm second"
            ),
        );
        let prepared = Prepared {
            branch: branch.id().to_string(),
            old: Tree::new(),
            new: Tree::new(),
            dir: place.close(),
        };
        let inject = format!("inject=renameat2:signal=KILL:when={at}");
        prepared
            .program(&["strace", "-f", "-o", "/dev/null", "-qq", "-e", &inject])
            .stdout(Stdio::null())
            .status()
            .unwrap();
        let engine = prepared.recovered();
        let state = engine.branch(&prepared.branch).unwrap().state().unwrap();
        let seen = host(
            &prepared.base(),
            "git fsck --no-dangling >&2; git log --format=%s; cat f; ls; git --no-optional-locks status --porcelain",
        );
        match state {
            BranchState::Committed => {
                assert_eq!(seen, "second\nfirst\n2\nd\nf\nn\n", "rename {at}");
                after += 1;
            }
            BranchState::Sealed => {
                assert_eq!(seen, "first\n1\nf\n", "rename {at}");
                before += 1;
            }
            other => panic!("rename {at}: {other:?}"),
        }
    }
    eprintln!("killed: {before} times both old, {after} times both new");
    assert!(after > 0);
}
