//! What branches that are whole copies can do beyond running: steps, comparisons, exports that share
//! blocks.

mod common;

use common::{Mounted, Place, host, is_root, ok, skip, without_overlay};
use forkpoint_engine::{
    Against, Cancel, ForkOptions, Limits, Network, PrepareOptions, World, WorldOptions,
};
use std::os::fd::AsFd;
use std::path::Path;

fn one(world: &World, options: &ForkOptions) -> forkpoint_engine::Branch {
    let forks = world.fork(options).unwrap();
    forks.into_iter().next().unwrap().unwrap()
}

#[test]
fn a_copy_has_steps_to_go_back_to() {
    let Some((place, _mounted, _under)) = without_overlay() else {
        return;
    };
    place.write("a", "a");
    let branch = one(&place.world(), &ForkOptions::default());
    ok(&branch, "echo -n 1 > a");
    branch.kill().unwrap();
    let mark = branch.mark(true).unwrap().unwrap();
    assert!(branch.mark(false).unwrap().is_none(), "too dear unasked");
    assert_eq!(branch.step("the second").unwrap(), 1);
    ok(&branch, "echo -n 2 > a; echo -n n > new");
    branch.kill().unwrap();
    let since = mark.since().unwrap().unwrap();
    assert_eq!((since.added, since.modified, since.removed), (1, 1, 0));
    let (to, kept) = branch.rewind(None).unwrap();
    assert_eq!((to.number, kept), (1, 2));
    assert_eq!(ok(&branch, "cat a; ls"), "1a\n");
    ok(&branch, "echo -n 3 > a");
    branch.kill().unwrap();
    // Forward again, and the step gone back to is still what it was.
    branch.rewind(Some(2)).unwrap();
    assert_eq!(ok(&branch, "cat a new"), "2n");
    branch.kill().unwrap();
    branch.rewind(Some(1)).unwrap();
    assert_eq!(ok(&branch, "cat a"), "1");
    branch.kill().unwrap();
    assert_eq!(place.read("a"), "a");
    let changes = branch.diff().unwrap();
    let paths: Vec<_> = changes.changes.iter().map(|c| c.path.clone()).collect();
    assert_eq!(paths, [Path::new("a")]);
}

#[test]
fn a_step_of_a_copy_that_runs_is_of_one_moment() {
    let Some((place, _mounted, _under)) = without_overlay() else {
        return;
    };
    place.write("a", "a");
    let branch = one(&place.world(), &ForkOptions::default());
    let script = "echo -n 1 > a; sleep 60 >/dev/null 2>&1 & sleep 0.05";
    ok(&branch, script);
    assert!(branch.is_running().unwrap());
    branch.step("meanwhile").unwrap();
    assert!(branch.is_running().unwrap());
    branch.kill().unwrap();
    ok(&branch, "echo -n 2 > a");
    branch.kill().unwrap();
    branch.rewind(None).unwrap();
    assert_eq!(ok(&branch, "cat a"), "1");
    branch.kill().unwrap();
}

#[test]
fn a_copy_is_compared_with_what_its_preparation_left() {
    let Some((place, _mounted, _under)) = without_overlay() else {
        return;
    };
    place.write("a", "a\n");
    let world = place.world();
    let prepare = PrepareOptions {
        argv: ["/bin/sh", "-c", "echo built > built; echo b > a"]
            .map(Into::into)
            .to_vec(),
        env: Vec::new(),
        network: Network::Loopback,
        limits: Limits::default(),
        inputs: Vec::new(),
        log: None,
        redactor: Default::default(),
        cancel: Cancel::new().unwrap(),
    };
    let options = ForkOptions {
        over: Some(world.prepare(&prepare).unwrap().layers),
        ..ForkOptions::default()
    };
    let branch = one(&world, &options);
    ok(&branch, "echo c > a");
    branch.kill().unwrap();
    let compared = branch.compare(Against::Preparation).unwrap();
    assert_eq!(compared.changes.changes.len(), 1);
    let file = tempfile::tempfile().unwrap();
    compared.patch(file.as_fd()).unwrap();
    let patch = text(file);
    assert!(
        patch.contains("-b\n+c\n") && !patch.contains("built"),
        "{patch}"
    );
}

fn text(mut file: std::fs::File) -> String {
    use std::io::{Read, Seek};
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    text
}

/// How many stretches of a file's blocks are shared with another file.
fn shared(path: &Path) -> usize {
    let told = host("filefrag", &["-v", path.to_str().unwrap()]);
    told.lines().filter(|line| line.contains("shared")).count()
}

#[test]
fn an_export_shares_blocks_where_the_file_system_can() {
    if !is_root() {
        return skip("a file system that shares blocks is mounted by root");
    }
    let under = tempfile::tempdir().unwrap();
    let (image, at) = (under.path().join("image"), under.path().join("at"));
    std::fs::create_dir(&at).unwrap();
    let file = std::fs::File::create(&image).unwrap();
    file.set_len(400 << 20).unwrap();
    if !common::has("mkfs.xfs") || !common::has("filefrag") {
        return skip("there is no mkfs.xfs or no filefrag");
    }
    host("mkfs.xfs", &["-q", image.to_str().unwrap()]);
    let loops = std::process::Command::new("mount")
        .args(["-o", "loop"])
        .args([&image, &at])
        .status()
        .unwrap();
    if !loops.success() {
        return skip("no loop device can be had");
    }
    let _mounted = Mounted::at(&at);
    let dir = tempfile::tempdir_in(&at).unwrap();
    std::fs::create_dir(dir.path().join("base")).unwrap();
    let place = Place::within(dir);
    let bytes = "forkpoint ".repeat(100_000);
    place.write("d/old", &bytes);
    let world = place
        .engine
        .world(&place.base(), WorldOptions::default())
        .unwrap();
    let branch = one(&world, &ForkOptions::default());
    ok(
        &branch,
        "mv d e && head -c 500000 e/old > e/new && mkdir f && cp e/new f/ && rm e/new && cp f/new e/new",
    );
    branch.kill().unwrap();
    let out = place.dir().join("out");
    branch.export(&out, false).unwrap();
    assert_eq!(std::fs::read_to_string(out.join("e/old")).unwrap(), bytes);
    for name in ["e/old", "e/new", "f/new"] {
        assert!(
            shared(&out.join(name)) > 0,
            "{name} takes blocks of its own"
        );
        let (a, b) = (std::fs::metadata(out.join(name)), bytes.len() as u64);
        assert_eq!(a.unwrap().len(), if name == "e/old" { b } else { 500_000 });
    }
    // A part of it, and a copy of the branch's own.
    let part = place.dir().join("part");
    branch.export(&part, true).unwrap();
    assert!(shared(&part.join("f/new")) > 0);
    drop(branch);
}
