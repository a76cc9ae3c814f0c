//! Exports, checkpoints, completions and manual pages, with the real binary and real tools.

mod common;

use common::Lab;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// A base and a branch of it that holds every hard case.
fn branched() -> Lab {
    let lab = Lab::new(&[("kept", "k\n"), ("gone/x", "x\n"), ("mod", "1\n")]);
    lab.run(&["fork", ".", "--name", "one"]).expect(0);
    let script = "rm -r gone; echo 2 > mod; echo l > l1; ln l1 l2; ln -s mod s; mkfifo pipe; mkdir -p d/empty; \
        chmod 750 d; truncate -s 3M holes; printf end >> holes; printf x > \"$(printf 'a\\377\\nb')\"; \
        touch -d '1960-01-02 03:04:05.25 UTC' l1; chmod 4711 kept; \
        python3 -c \"import os; os.setxattr('mod', 'user.k', b'v')\" 2>/dev/null || true; \
        long=$(printf 'n%.0s' $(seq 120)); mkdir -p $long/$long; echo deep > $long/$long/f";
    lab.run(&["exec", "one", "--", "sh", "-ec", script])
        .expect(0);
    lab
}

/// Every path with what a tree has of it, as `find` and `stat` see it.
fn listing(dir: &Path) -> String {
    let script = "find . -mindepth 1 ! -name .forkpoint-deleted -printf '%P|%y|%m|%U:%G|%l|%n|' \
                  \\( ! -type d -printf '%s|%T@' -o -true \\) -printf '\\n' | LC_ALL=C sort";
    let output = Command::new("sh")
        .args(["-c", script])
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout.escape_ascii().to_string()
}

#[test]
fn an_export_is_the_whole_view_as_directory_or_archive() {
    let lab = branched();
    let text = |name: &str| lab.path(name).display().to_string();
    let done = lab.run(&["export", "one", &text("dir")]).expect(0);
    assert!(done.stdout.starts_with("exported one to "), "{done:?}");
    let dir = listing(&lab.path("dir"));
    for wanted in [
        "s|l|777|",
        "|mod|1|",
        "pipe|p|",
        "d/empty|d|",
        "a\\xff",
        "l2|f|644",
        "-315521755.2500000000",
    ] {
        assert!(
            dir.contains(wanted),
            "{wanted}: {}",
            dir.replace("\\n", "\n")
        );
    }
    assert!(!dir.contains("gone"));
    let holes = std::fs::metadata(lab.path("dir/holes")).unwrap();
    assert!(
        holes.size() == (3 << 20) + 3 && holes.blocks() < 64,
        "{}",
        holes.blocks()
    );
    for (archive, flag) in [("x.tar", "-xf"), ("x.tar.gz", "-xzf"), ("x.tar.zst", "-xf")] {
        lab.run(&["export", "one", &text(archive)]).expect(0);
        let out = lab.path(&format!("{archive}.d"));
        std::fs::create_dir(&out).unwrap();
        let packed = match archive {
            "x.tar.zst" => {
                let plain = zstd(&lab.path(archive));
                if plain.is_none() {
                    eprintln!("SKIP: zstd is not installed");
                    continue;
                }
                plain.unwrap()
            }
            _ => lab.path(archive),
        };
        let tar = Command::new("tar")
            .args([
                "--xattrs",
                "--xattrs-include=user.*",
                "--warning=no-timestamp",
                "-p",
                flag,
            ])
            .arg(&packed)
            .current_dir(&out)
            .output()
            .unwrap();
        assert!(
            tar.status.success() && tar.stderr.is_empty(),
            "{archive}: {tar:?}"
        );
        assert_eq!(listing(&out), dir, "{archive}");
        let holes = std::fs::metadata(out.join("holes")).unwrap();
        assert!(
            holes.blocks() < 64,
            "{archive}: holes of {} blocks",
            holes.blocks()
        );
    }
    let left: Vec<_> = std::fs::read_dir(lab.path("")).unwrap().flatten().collect();
    assert!(
        left.iter()
            .all(|e| !e.file_name().to_string_lossy().starts_with(".forkpoint"))
    );
}

fn zstd(archive: &Path) -> Option<std::path::PathBuf> {
    let plain = archive.with_extension("plain");
    let done = Command::new("zstd")
        .args(["-dqf", "-o"])
        .arg(&plain)
        .arg(archive)
        .status();
    done.is_ok_and(|status| status.success()).then_some(plain)
}

#[test]
fn an_export_of_changes_lists_what_is_gone_and_nothing_is_overwritten() {
    let lab = branched();
    let text = |name: &str| lab.path(name).display().to_string();
    std::fs::create_dir(lab.path("dir")).unwrap();
    lab.run(&["export", "one", &text("dir"), "--changes"])
        .expect(0);
    let deleted = std::fs::read_to_string(lab.path("dir/.forkpoint-deleted")).unwrap();
    assert_eq!(deleted, "gone\n");
    assert!(lab.path("dir/mod").exists() && lab.path("dir/d/empty").exists());
    lab.run(&["export", "one", &text("x.tar"), "--changes"])
        .expect(0);
    let tar = Command::new("tar")
        .arg("-tf")
        .arg(lab.path("x.tar"))
        .output()
        .unwrap();
    let names = String::from_utf8_lossy(&tar.stdout).into_owned();
    assert!(
        names.contains("mod\n") && names.contains(".forkpoint-deleted\n"),
        "{names}"
    );
    for (target, code) in [("dir", 2), ("x.tar", 2), ("no/such/dir", 2), ("store/x", 2)] {
        lab.run(&["export", "one", &text(target)]).expect(code);
    }
    lab.run(&["export", "nobody", &text("y")]).expect(2);
    let (json, done) = lab.json(&["export", "one", &text("z")]);
    done.expect(0);
    assert_eq!(json["packing"], "directory");
}

#[test]
fn a_checkpoint_stays_what_it_was_and_is_forked_by_name() {
    let lab = Lab::new(&[("a", "1\n")]);
    let made = lab
        .run(&["checkpoint", "create", ".", "--name", "start"])
        .expect(0);
    assert_eq!(made.stdout, "start\n");
    assert!(made.stderr.contains("1 files, 2 bytes"), "{made:?}");
    lab.run(&["checkpoint", "create", ".", "--name", "start"])
        .expect(3);
    lab.run(&["checkpoint", "create", ".", "--name", "../x"])
        .expect(2);
    lab.run(&["checkpoint", "create", "nothing"]).expect(2);
    lab.run(&["fork", ".", "--name", "one"]).expect(0);
    lab.run(&["exec", "one", "--", "sh", "-c", "echo one > b"])
        .expect(0);
    lab.run(&["checkpoint", "create", "one", "--name", "of-one"])
        .expect(0);
    lab.run(&["exec", "one", "--", "sh", "-c", "echo later > b"])
        .expect(0);
    // The directory goes on; no checkpoint does.
    std::fs::write(lab.base().join("a"), "edited\n").unwrap();
    let see = |fork: &str| {
        lab.run(&["exec", fork, "--", "sh", "-c", "cat a b 2>/dev/null; :"])
            .expect(0)
            .stdout
    };
    lab.run(&["fork", "start", "--name", "f1"]).expect(0);
    lab.run(&["fork", "of-one", "--name", "f2"]).expect(0);
    assert_eq!(see("f1"), "1\n");
    assert_eq!(see("f2"), "1\none\n");
    assert_eq!(see("one"), "edited\nlater\n");
    assert_eq!(lab.run(&["diff", "f2"]).expect(0).stdout, "A b\n");
    let list = lab.run(&["checkpoint", "list"]).expect(0).stdout;
    assert!(list.contains("start") && list.contains("of-one"), "{list}");
    let (shown, _) = lab.json(&["checkpoint", "show", "start"]);
    assert_eq!(shown["branches"].as_array().unwrap().len(), 1);
    lab.run(&["checkpoint", "delete", "start", "nothing"])
        .expect(2);
    let deleted = lab
        .run(&["checkpoint", "delete", "start", "of-one"])
        .expect(0);
    assert!(
        deleted.stderr.contains("1 branches stand on what it kept"),
        "{deleted:?}"
    );
    lab.run(&["gc"]).expect(0);
    assert_eq!(see("f1"), "1\n");
    assert_eq!(see("f2"), "1\none\n");
    lab.run(&["fork", "start"]).expect(2);
    // What a fork of a checkpoint changed is committed into the directory.
    lab.run(&["exec", "f1", "--", "sh", "-c", "echo c > c"])
        .expect(0);
    lab.run(&["commit", "f1"]).expect(0);
    assert_eq!(lab.read("c").as_deref(), Some("c\n"));
    lab.run(&["abort", "f2"]).expect(0);
    let freed = lab.run(&["gc"]).expect(0);
    assert!(freed.stdout.contains("layer"), "{freed:?}");
}

#[test]
fn completions_and_manual_pages_are_complete() {
    let lab = Lab::new(&[]);
    for (shell, check) in [("bash", "bash"), ("zsh", "zsh"), ("fish", "fish")] {
        let text = lab.run(&["completions", shell]).expect(0).stdout;
        assert!(text.contains("FORKPOINT_COMPLETE"), "{shell}");
        let file = lab.path(shell);
        std::fs::write(&file, &text).unwrap();
        match Command::new(check).arg("-n").arg(&file).output() {
            Ok(output) => assert!(output.status.success(), "{shell}: {output:?}"),
            Err(_) => eprintln!("SKIP: {check} is not installed"),
        }
    }
    lab.run(&["completions", "tcsh"]).expect(2);
    let dir = lab.path("man");
    lab.run(&["man", dir.to_str().unwrap()]).expect(0);
    for page in [
        "forkpoint",
        "forkpoint-commit",
        "forkpoint-checkpoint-create",
    ] {
        let text = std::fs::read_to_string(dir.join(format!("{page}.1"))).unwrap();
        assert!(text.contains(".SH SYNOPSIS"), "{page}: {text}");
    }
    lab.run(&["man", "/proc/no"]).expect(125);
}
