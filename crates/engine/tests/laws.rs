//! The laws that a single machine can be held to, end to end and by name.

mod common;

use common::{Place, is_root, ok, run_with, skip, tree};
use forkpoint_engine::{
    AbortOptions, Branch, BranchState, Budget, CommitOptions, CommitOutcome, ForkOptions,
    JudgeSpec, Network, SealOptions, Stream, records,
};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Instant;

#[track_caller]
fn commit(branch: &Branch) {
    let report = branch.commit(&CommitOptions::default()).unwrap();
    assert!(
        matches!(report.outcome, CommitOutcome::Committed),
        "{:?}",
        report.outcome
    );
}

fn fork(of: &Branch) -> Branch {
    let forks = of.fork(&ForkOptions::default()).unwrap();
    forks.into_iter().next().unwrap().unwrap()
}

#[test]
fn law_02_every_mutation_lands_in_the_branch_and_none_is_seen_outside_before_the_commit() {
    let place = Place::new();
    for name in [
        "edit",
        "chmod",
        "attr",
        "gone",
        "touch",
        "dir/inner",
        "linked",
    ] {
        place.write(name, name);
    }
    let before = tree::take(&place.base());
    let branch = place.fork();
    let home = std::env::var("HOME").unwrap_or("/".into());
    let unique = format!("forkpoint-law-02-{}", std::process::id());
    let script = format!(
        "set -e
        echo new > edit; chmod 700 chmod; rm gone; touch -d 2001-01-01 touch; mv dir/inner dir/moved
        mkdir made; ln -s made link; ln linked again; mkfifo pipe; truncate -s 1M hole
        exec 7> unlinked; rm unlinked; echo held >&7
        echo x > /tmp/{unique}; echo x > /dev/shm/{unique}; echo x > /run/{unique} || true
        mkdir -p {home} && echo x > {home}/{unique} || true
        if [ $(id -u) = 0 ]; then echo x > /etc/{unique}; echo x > /usr/{unique}; rm -f /etc/hostname; fi
        cat /tmp/{unique} /dev/shm/{unique}"
    );
    let hostname = Path::new("/etc/hostname").exists();
    assert_eq!(ok(&branch, &script), "x\nx\n");
    tree::same(&tree::take(&place.base()), &before, "before the commit");
    for dir in ["/tmp", "/dev/shm", "/run", "/etc", "/usr", &home] {
        assert!(!Path::new(dir).join(&unique).exists(), "{dir}");
    }
    assert_eq!(Path::new("/etc/hostname").exists(), hostname);
    // It is all there for the branch itself, and only the disk's part for the base.
    assert_eq!(
        ok(&branch, "test ! -e gone; cat edit dir/moved"),
        "new\ndir/inner"
    );
    commit(&branch);
    assert_eq!(place.read("edit"), "new\n");
    for dir in ["/tmp", "/dev/shm", "/run", "/etc", "/usr", &home] {
        assert!(!Path::new(dir).join(&unique).exists(), "{dir}");
    }
    assert_eq!(Path::new("/etc/hostname").exists(), hostname);
}

const ROLE: &str = "FORKPOINT_TEST_ROLE";
const SECRET: &str = "8d1f-secret-of-the-sibling";

/// Executed inside a branch.
#[test]
#[ignore = "executed by the others inside a branch"]
fn driver() {
    match std::env::var(ROLE).ok().as_deref() {
        Some("keeper") => keeper(),
        Some("seeker") => seeker(),
        _ => {}
    }
}

/// Puts a secret wherever a process can put one, and stays.
fn keeper() {
    for path in ["secret", "/tmp/secret", "/dev/shm/secret"] {
        fs::write(path, SECRET).unwrap();
    }
    let name = SocketAddr::from_abstract_name("forkpoint-law-03").unwrap();
    let _abstract = UnixListener::bind_addr(&name).unwrap();
    let _path = UnixListener::bind("sock").unwrap();
    let _tcp = std::net::TcpListener::bind("127.0.0.1:31417").unwrap();
    std::process::Command::new("ipcmk")
        .args(["-M", "4096"])
        .output()
        .ok();
    println!("\nREADY");
    let mut never = [0];
    std::io::stdin().read_exact(&mut never).ok();
}

/// Looks for it by every path it can think of; says what it found.
fn seeker() {
    let mut found = Vec::new();
    let base = std::env::current_dir().unwrap();
    let mut places: Vec<PathBuf> = vec![
        base.join("secret"),
        "/tmp/secret".into(),
        "/dev/shm/secret".into(),
    ];
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let root = entry.path();
        for way in ["root", "cwd"] {
            let root = root.join(way);
            places.push(root.join(base.strip_prefix("/").unwrap()).join("secret"));
            places.push(root.join("secret"));
            places.push(root.join("tmp/secret"));
            places.push(root.join("dev/shm/secret"));
        }
        if let Ok(text) = fs::read(root.join("cmdline"))
            && String::from_utf8_lossy(&text).contains("keeper")
        {
            found.push(format!("a process: {}", root.display()));
        }
    }
    // The overlay's own directories, as the mount table names them.
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    for option in mounts.split([' ', ',', '\n']) {
        if let Some((_, dirs)) = option.split_once("dir=") {
            places.extend(dirs.split(':').map(|d| Path::new(d).join("secret")));
        }
    }
    for place in places {
        if let Ok(text) = fs::read_to_string(&place)
            && text.contains(SECRET)
        {
            found.push(format!("a file: {}", place.display()));
        }
    }
    let store = PathBuf::from(std::env::var_os("FORKPOINT_TEST_STORE").unwrap());
    for dir in [store.clone(), store.join("layers"), store.join("branches")] {
        if let Ok(mut entries) = fs::read_dir(&dir)
            && let Some(entry) = entries.next()
        {
            found.push(format!("the store: {:?}", entry.unwrap().path()));
        }
    }
    let name = SocketAddr::from_abstract_name("forkpoint-law-03").unwrap();
    if UnixStream::connect_addr(&name).is_ok() {
        found.push("an abstract socket".into());
    }
    if UnixStream::connect("sock").is_ok() {
        found.push("a socket".into());
    }
    if std::net::TcpStream::connect("127.0.0.1:31417").is_ok() {
        found.push("a port".into());
    }
    if fs::read_to_string("/proc/sysvipc/shm").is_ok_and(|t| t.lines().count() > 1) {
        found.push("shared memory".into());
    }
    // 0 is this program, 1 and 2 the output, 3 the listing itself.
    for fd in fs::read_dir("/proc/self/fd").unwrap().flatten() {
        let number: i32 = fd.file_name().to_string_lossy().parse().unwrap();
        if number > 3 {
            found.push(format!(
                "a descriptor: {number} {:?}",
                fs::read_link(fd.path())
            ));
        }
    }
    println!("\nFOUND {found:?}");
}

#[test]
fn law_03_a_sibling_finds_nothing_of_anothers_uncommitted_state() {
    let place = Place::new();
    let forks = place.forks(2);
    let program = || Stream::Fd(File::open("/proc/self/exe").unwrap().into());
    let script =
        "exec 9<&0; exec /proc/self/fd/0 --exact driver --ignored --nocapture --test-threads=1";
    let mut keeper = forks[0].command("/bin/sh");
    keeper
        .args(["-c", "cp /proc/self/fd/0 keeper-program; tail -f /dev/null | ./keeper-program --exact driver --ignored --nocapture --test-threads=1"])
        .stdin(program())
        .stdout(Stream::Piped)
        .stderr(Stream::Inherit)
        .env(ROLE, "keeper");
    let mut child = keeper.spawn().unwrap();
    let mut text = String::new();
    let mut out = child.stdout.take().unwrap();
    while !text.contains("READY") {
        let mut some = [0; 512];
        let count = out.read(&mut some).unwrap();
        assert_ne!(count, 0, "the keeper ended: {text}");
        text.push_str(&String::from_utf8_lossy(&some[..count]));
    }
    let store = place.dir().join("store");
    let (code, text) = run_with(
        &forks[1],
        &script.replace("exec 9<&0; ", ""),
        program(),
        &[
            (ROLE, "seeker"),
            ("FORKPOINT_TEST_STORE", store.to_str().unwrap()),
        ],
    );
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("FOUND []"), "{text}");
    assert!(!place.file("secret").exists());
    // The keeper still has it, so there was something to be found.
    assert_eq!(
        ok(&forks[0], "cat secret /tmp/secret /dev/shm/secret"),
        SECRET.repeat(3)
    );
    child.kill().unwrap();
}

/// What every sealed layer of a store holds.
fn layers(place: &Place, sealed: &[PathBuf]) -> Vec<(PathBuf, tree::Tree)> {
    sealed
        .iter()
        .map(|dir| (dir.clone(), tree::take(dir)))
        .filter(|_| place.dir().exists())
        .collect()
}

fn sealed_of(place: &Place, branch: &Branch) -> Vec<PathBuf> {
    let record = branch.record().unwrap();
    record.stacks[0][1..]
        .iter()
        .map(|id| place.dir().join("store/layers").join(id.to_string()))
        .collect()
}

#[track_caller]
fn unchanged(before: &[(PathBuf, tree::Tree)], what: &str) {
    for (dir, was) in before {
        tree::same(&tree::take(dir), was, &format!("{what}: {}", dir.display()));
    }
}

#[test]
fn law_09_a_sealed_layer_is_never_written_again() {
    let place = Place::new();
    for index in 0..10 {
        place.write(&format!("f{index}"), "0");
        place.write(&format!("d/e/g{index}"), "0");
    }
    let outer = place.fork();
    ok(
        &outer,
        "echo 1 > f1; rm f2; mv d/e/g3 moved; mkdir new; ln f4 f4b; chmod 600 f5; echo x > d/e/n",
    );
    let mut inner = fork(&outer);
    let mut seen = layers(&place, &sealed_of(&place, &inner));
    assert_eq!(seen.len(), 1);
    // Everything that could touch them: work above, a chain deep enough to be compacted, a judge.
    for depth in 0..20 {
        ok(
            &inner,
            &format!(
                "echo {depth} >> f1; rm -rf new d/e/n; mkdir new; echo {depth} > new/{depth}; echo {depth} >> f4b; mv moved moved2; mv moved2 moved"
            ),
        );
        inner = fork(&inner);
        let fresh = sealed_of(&place, &inner);
        for layer in layers(&place, &fresh) {
            if !seen.iter().any(|(dir, _)| *dir == layer.0) {
                seen.push(layer);
            }
        }
        unchanged(&seen, "a nested fork");
    }
    assert!(sealed_of(&place, &inner).len() <= 17, "it was compacted");
    ok(&inner, "echo last > last; echo more >> f6");
    inner.seal(&SealOptions::default()).unwrap();
    let spec = JudgeSpec::new(
        "/bin/sh",
        ["-c", "echo judged > f1; rm -rf d; test -e last"],
    )
    .unwrap();
    assert!(inner.judge(&spec).unwrap().passed());
    unchanged(&seen, "a judge");
    // A sealed branch's own upper is a sealed layer too.
    let record = inner.record().unwrap();
    let own = place
        .dir()
        .join("store/layers")
        .join(record.stacks[0][0].to_string());
    seen.extend(layers(&place, &[own]));
    assert!(inner.judge(&spec).unwrap().passed());
    let again = fork(&inner);
    ok(&again, "echo again > f1; rm last");
    unchanged(&seen, "a fork of a sealed branch");
    assert!(inner.diff().unwrap().get(Path::new("last")).is_some());
    unchanged(&seen, "a diff");
    // An independent commit makes them stale; a rebase moves them.
    let other = place.fork();
    ok(&other, "echo other > other");
    commit(&other);
    inner.rebase().unwrap();
    unchanged(&seen, "a rebase");
    again.abort(&AbortOptions::default()).unwrap();
    unchanged(&seen, "an abort of a child");
    place.engine.gc(&Default::default()).unwrap();
    unchanged(&seen, "a collection");
}

#[test]
fn law_10_a_full_disk_surfaces_and_loses_nothing() {
    if !is_root() {
        return skip("mounting a small file system needs root");
    }
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("base")).unwrap();
    fs::create_dir(dir.path().join("store")).unwrap();
    let store = dir.path().join("store");
    let _mounted = common::mount_tmpfs(&store, "12m");
    let place = Place::within(dir);
    place.write("f", "0");
    let world = place.world();
    let branch = place.fork();
    let failing = ok(
        &branch,
        "echo kept > kept; head -c 40m /dev/zero > big; echo $?; stat -c %s big",
    );
    assert!(failing.contains("No space left on device"), "{failing}");
    // Full to the last byte, also for the rows.
    fill(&store.join("filler"));
    let before = tree::take(&place.base());
    let errors = [
        branch
            .commit(&CommitOptions::default())
            .map(|r| format!("{:?}", r.outcome)),
        world.fork(&ForkOptions::default()).and_then(|f| {
            let fork = f.into_iter().next().unwrap()?;
            fork.command("/bin/true").status().map(|s| format!("{s:?}"))
        }),
        branch.fork(&ForkOptions::default()).and_then(|f| {
            let fork = f.into_iter().next().unwrap()?;
            fork.command("/bin/true").status().map(|s| format!("{s:?}"))
        }),
    ];
    for result in &errors {
        eprintln!("on a full disk: {result:?}");
    }
    let committed = branch.state().unwrap() == BranchState::Committed;
    if !committed {
        tree::same(&tree::take(&place.base()), &before, "not committed");
        assert!(errors[0].is_err(), "{:?}", errors[0]);
        // One can still look at it.
        let diff = branch.diff().unwrap();
        assert!(diff.get(Path::new("kept")).is_some());
        // Not even the row of an end can be written now; that is said, and nothing is deleted.
        let error = branch.abort(&AbortOptions::default()).unwrap_err();
        assert_eq!(error.code, "FP0105", "{error}");
        assert_eq!(branch.diff().unwrap().changes, diff.changes);
        let size = "remount,size=40m";
        common::host("mount", &["-o", size, store.to_str().unwrap()]);
        fs::remove_file(store.join("filler")).unwrap();
        if branch.state().unwrap() == BranchState::Open {
            ok(&branch, "rm big; cat kept");
        }
        let again = place.again();
        let branch = again.branch(&branch.id().to_string()).unwrap();
        let report = branch.commit(&CommitOptions::default()).unwrap();
        assert!(
            matches!(report.outcome, CommitOutcome::Committed),
            "{:?}",
            report.outcome
        );
    }
    assert_eq!(place.read("kept"), "kept\n");
}

fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    for size in [1 << 20, 4096, 1] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
}

#[test]
fn law_10_a_full_disk_under_the_base_leaves_the_base_as_it_was() {
    if !is_root() {
        return skip("mounting a small file system needs root");
    }
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("base")).unwrap();
    let _mounted = common::mount_tmpfs(&dir.path().join("base"), "8m");
    fs::create_dir(dir.path().join("base/project")).unwrap();
    let place = Place::within(dir);
    let base = place.base().join("project");
    fs::write(base.join("f"), "0").unwrap();
    let world = place.engine.world(&base, Default::default()).unwrap();
    let branch = world
        .fork(&ForkOptions::default())
        .unwrap()
        .remove(0)
        .unwrap();
    ok(
        &branch,
        "head -c 6m /dev/zero > big; echo 1 > f; mkdir d; echo x > d/x",
    );
    let filler = place.base().join("filler");
    fill(&filler);
    let before = tree::take(&base);
    let error = branch.commit(&CommitOptions::default()).unwrap_err();
    eprintln!("{error}");
    tree::same(&tree::take(&base), &before, "nothing was committed");
    assert_eq!(branch.diff().unwrap().changes.len(), 4);
    fs::remove_file(&filler).unwrap();
    commit(&branch);
    assert_eq!(fs::metadata(base.join("big")).unwrap().len(), 6 << 20);
    drop(world);
}

const VERBS: [&str; 4] = ["fork", "diff", "commit", "abort"];

/// Microseconds of each verb on a world, once.
fn measure(place: &Place, round: usize) -> [f64; 4] {
    let world = place.world();
    let options = CommitOptions {
        // Looking for drift is told apart: it has a budget of its own.
        drift_budget: Budget {
            entries: 0,
            millis: 0,
        },
        ..CommitOptions::default()
    };
    let mut times = [0.0; 4];
    let mut timed = |slot: usize, what: &mut dyn FnMut()| {
        let start = Instant::now();
        what();
        times[slot] = start.elapsed().as_secs_f64() * 1e6;
    };
    let mut made = None;
    timed(0, &mut || {
        let forks = world.fork(&ForkOptions::default()).unwrap();
        made = Some(forks.into_iter().next().unwrap().unwrap());
    });
    let branch = made.unwrap();
    ok(&branch, &format!("echo {round} > changed"));
    branch.seal(&SealOptions::default()).unwrap();
    timed(1, &mut || drop(branch.diff().unwrap()));
    timed(2, &mut || {
        let report = branch.commit(&options).unwrap();
        let committed = matches!(report.outcome, CommitOutcome::Committed);
        assert!(committed, "{:?}", report.outcome);
    });
    let branch = place.fork();
    ok(&branch, "echo x > changed");
    branch.kill().unwrap();
    timed(3, &mut || {
        drop(branch.abort(&AbortOptions::default()).unwrap())
    });
    times
}

/// Measures two places in turns, so that both meet the same noise, and compares the medians.
fn compare(much: &Place, little: &Place, what: &str) {
    let places = [much, little];
    let mut times = [const { [const { Vec::new() }; 4] }; 2];
    for round in 0..15 {
        for (place, times) in places.iter().zip(&mut times) {
            for (list, time) in times.iter_mut().zip(measure(place, round)) {
                list.push(time);
            }
        }
    }
    let median = |list: &mut Vec<f64>| {
        list.sort_by(f64::total_cmp);
        list[list.len() / 2]
    };
    let [mut of_much, mut of_little] = times;
    for (verb, (a, b)) in VERBS.iter().zip(of_much.iter_mut().zip(&mut of_little)) {
        let (a, b) = (median(a), median(b));
        eprintln!("{verb}: {a:.0} µs with {what}, else {b:.0} µs");
        // A millisecond is allowed for the noise of a busy machine.
        assert!(
            a < b * 3.0 + 1000.0,
            "{verb}: {a:.0} µs with {what}, else {b:.0} µs"
        );
    }
}

#[test]
fn law_11_the_cost_of_fork_diff_commit_and_abort_follows_the_change() {
    let make = |count: usize| {
        let place = Place::new();
        for index in 0..count {
            let dir = place.file(&format!("d{}", index / 500));
            if index % 500 == 0 {
                fs::create_dir(&dir).unwrap();
            }
            fs::write(dir.join(index.to_string()), b"").unwrap();
        }
        place
    };
    let (small, large, crowded) = (make(50), make(50_000), make(50));
    compare(&large, &small, "50,000 files");
    let mut others = crowded.forks(300);
    // Each with a delta of its own.
    for other in &mut others[..20] {
        ok(other, "echo x > own");
        other.seal(&SealOptions::default()).unwrap();
    }
    compare(&crowded, &small, "300 other branches");
}

#[test]
fn law_12_a_path_that_nothing_captures_is_on_record_before_anything_runs() {
    let place = Place::new();
    let options = ForkOptions {
        network: Network::Host,
        ..ForkOptions::default()
    };
    let forks = place.world().fork(&options).unwrap();
    let branch = forks.into_iter().next().unwrap().unwrap();
    assert_eq!(branch.record().unwrap().network, records::NetworkKind::Host);
    // On record although the command then does not exist: it was written before anything began.
    assert!(branch.command("/does/not/exist").status().is_err());
    assert_eq!(branch.record().unwrap().uncaptured, ["network host"]);
    let report = branch.abort(&AbortOptions::default()).unwrap();
    assert_eq!(report.state, BranchState::Abandoned);

    // Asked for by the command instead.
    let branch = place.fork();
    assert!(branch.record().unwrap().uncaptured.is_empty());
    let mut command = branch.command("/does/not/exist");
    assert!(command.network(Network::Host).status().is_err());
    assert_eq!(branch.record().unwrap().uncaptured, ["network host"]);
    let report = branch.abort(&AbortOptions::default()).unwrap();
    assert_eq!(report.state, BranchState::Abandoned);
}
