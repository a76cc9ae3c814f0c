//! The programs people use, doing real work inside a branch that is then committed: git, tar,
//! sqlite3, a tree as npm makes them, cargo. And what the kernel does otherwise inside a branch, as
//! docs/semantics.md declares it.

mod common;

use common::{Place, has, is_root, ok, run, run_with, skip, tree};
use forkpoint_engine::{Branch, CommitOptions, CommitOutcome, Stream};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

#[track_caller]
fn commit(branch: &Branch) -> Vec<String> {
    let options = CommitOptions {
        // Set-user-id bits are withheld otherwise.
        allow_host_exec: true,
        ..CommitOptions::default()
    };
    let report = branch.commit(&options).unwrap();
    assert!(
        matches!(report.outcome, CommitOutcome::Committed),
        "{:?}",
        report.outcome
    );
    report.notes
}

/// Runs a script natively.
#[track_caller]
fn native(dir: &Path, script: &str) -> String {
    let output = Command::new("/bin/sh")
        .args(["-c", script])
        .current_dir(dir)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{script}: {text}");
    text
}

const GIT: &str = "git() { command git -c user.name=T -c user.email=t@example.invalid \
    -c init.defaultBranch=main -c commit.gpgsign=false \"$@\"; }; set -e;";

#[test]
fn git_commits_branches_merges_and_packs_inside() {
    if !has("git") {
        return skip("git is not installed");
    }
    let place = Place::new();
    let script = "git init -q; for i in $(seq 200); do mkdir -p d$((i % 10)); echo $i > d$((i % 10))/$i; done
        git add .; git commit -qm first; git tag v1; git gc -q";
    native(&place.base(), &format!("{GIT} {script}"));
    // git asks for a rename and does not fall back; see the renaming of directories below.
    let rename = match is_root() {
        true => "git mv d3 moved",
        false => "mv d3 moved; git add -A",
    };
    let branch = place.fork();
    ok(
        &branch,
        &format!(
            "{GIT} git checkout -q -b topic; echo topic > d1/1; git rm -q d2/2; {rename}
            git commit -qam topic; git checkout -q main; echo main > d4/4; git commit -qam main
            git merge -q --no-edit topic; git stash -q 2>/dev/null || true; git gc -q --prune=now; git fsck --strict
            echo untracked > u; echo dirty >> d5/5"
        ),
    );
    commit(&branch);
    let seen = native(
        &place.base(),
        &format!(
            "{GIT} git fsck --strict --no-dangling >&2; git --no-optional-locks status --porcelain; git log --format=%s"
        ),
    );
    let lines: Vec<_> = seen
        .lines()
        .filter(|l| !l.starts_with("Checking"))
        .collect();
    assert_eq!(
        lines,
        [
            " M d5/5",
            "?? u",
            "Merge branch 'topic'",
            "main",
            "topic",
            "first"
        ],
        "{seen}"
    );
    place.engine.undo(None, &place.base()).unwrap();
    let seen = native(
        &place.base(),
        &format!("{GIT} git fsck 2>/dev/null; git status --porcelain; git log --format=%s"),
    );
    assert_eq!(seen, "first\n");
}

#[test]
fn what_tar_extracts_is_committed_to_the_last_attribute() {
    let place = Place::new();
    let native_dir = place.dir().join("native");
    fs::create_dir(&native_dir).unwrap();
    native(
        place.dir(),
        "mkdir src; cd src; for i in $(seq 300); do mkdir -p d$((i % 7))/e$((i % 3)); echo $i > d$((i % 7))/e$((i % 3))/$i; done
        ln d0/e0/21 hard; ln -s d0 soft; ln -s /nowhere dangling; mkfifo pipe; mkdir empty; chmod 500 empty; chmod 4711 hard
        truncate -s 3M hole; echo x >> hole; touch -d '2003-02-01 04:05:06.789' d1 d0/e0/42 soft -h; cd ..
        tar -S -cf archive.tar -C src .; cp archive.tar base/archive.tar; cp archive.tar native/archive.tar
        touch -d 2004-01-01 base/archive.tar native/archive.tar base native",
    );
    let branch = place.fork();
    let extract = "tar -xpf archive.tar && rm archive.tar && touch -d 2005-01-01 .";
    ok(&branch, extract);
    native(&native_dir, extract);
    commit(&branch);
    tree::same(
        &tree::take(&place.base()),
        &tree::take(&native_dir),
        "extracted and committed",
    );
    // A second branch packs what was committed: the same bytes as natively.
    let branch = place.fork();
    let pack = "tar --sort=name -S -cf - . | sha256sum";
    assert_eq!(ok(&branch, pack), native(&native_dir, pack));
    native(place.dir(), "chmod -R u+rwx base src native");
}

#[test]
fn sqlite_keeps_its_promises_inside() {
    if !has("sqlite3") {
        return skip("sqlite3 is not installed");
    }
    let place = Place::new();
    native(
        &place.base(),
        "sqlite3 db 'pragma journal_mode=wal; create table t(a integer primary key, b); insert into t(b) values (1);'",
    );
    let branch = place.fork();
    ok(
        &branch,
        "set -e; for i in $(seq 20); do sqlite3 db \"begin; insert into t(b) select hex(randomblob(100)) from t limit 500; commit;\"; done
        sqlite3 db 'pragma integrity_check; create index i on t(b); pragma journal_mode=delete; vacuum;'
        sqlite3 other 'create table u(x); insert into u values (7);'",
    );
    assert_eq!(
        native(&place.base(), "sqlite3 db 'select count(*) from t'"),
        "1\n"
    );
    let inside = ok(
        &branch,
        "sqlite3 db 'select count(*), sum(length(b)) from t'",
    );
    // Reading made files beside it; they are the host's own.
    native(
        &place.base(),
        "sqlite3 db 'pragma journal_mode=delete' >/dev/null; test ! -e db-wal",
    );
    let fresh = place.fork();
    ok(
        &fresh,
        "sqlite3 db 'delete from t; pragma integrity_check' && sqlite3 db 'select count(*) from t'",
    );
    fresh.kill().unwrap();
    match branch.commit(&CommitOptions::default()).unwrap().outcome {
        // The host changed the same file meanwhile: refused, and nothing is lost on either side.
        CommitOutcome::Conflict(list) => assert_eq!(list[0].item, "db", "{list:?}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(
        native(&place.base(), "sqlite3 db 'select count(*) from t'"),
        "1\n"
    );
    let branch = place.fork();
    ok(
        &branch,
        "sqlite3 db \"begin; insert into t(b) values ('x'),('y'); commit;\"; sqlite3 other 'create table u(x)'",
    );
    commit(&branch);
    assert_eq!(
        native(
            &place.base(),
            "sqlite3 db 'select count(*) from t; pragma integrity_check'"
        ),
        "3\nok\n"
    );
    assert!(!inside.is_empty());
}

const PACKAGES: &str = "set -e; umask 022; mkdir -p node_modules/.bin
    for i in $(seq 150); do
        p=node_modules/package-$i; mkdir -p $p/lib $p/node_modules/inner-$i
        echo '{\"name\":\"package-'$i'\"}' > $p/package.json
        for f in a b c d e; do echo \"module.exports = $i\" > $p/lib/$f.js; done
        echo '#!/usr/bin/env node' > $p/cli.js; chmod 755 $p/cli.js
        ln -s ../package-$i/cli.js node_modules/.bin/package-$i
        ln -s ../../package-$(( i % 150 + 1 )) $p/node_modules/peer
    done
    find . -exec touch -h -d '2010-10-10 10:10:10.101' {} +";

#[test]
fn a_tree_of_packages_is_installed_upgraded_and_committed() {
    let place = Place::new();
    let native_dir = place.dir().join("native");
    fs::create_dir(&native_dir).unwrap();
    native(&native_dir, PACKAGES);
    let branch = place.fork();
    ok(&branch, PACKAGES);
    assert!(!place.file("node_modules").exists());
    commit(&branch);
    tree::same(
        &tree::take(&place.base()),
        &tree::take(&native_dir),
        "installed",
    );
    // An upgrade as installers do it: beside, then renamed over; removed; deduplicated.
    let upgrade = "set -e; cd node_modules
        for i in $(seq 1 3 150); do cp -a package-$i .package-$i.new; echo 2 > .package-$i.new/package.json
            mv package-$i .package-$i.old; mv .package-$i.new package-$i; rm -rf .package-$i.old; done
        for i in $(seq 2 3 150); do rm -rf package-$i .bin/package-$i; done
        find .. -newermt 2011-01-01 -exec touch -h -d '2012-10-10 10:10:10.101' {} +";
    let branch = place.fork();
    ok(&branch, upgrade);
    native(&native_dir, upgrade);
    commit(&branch);
    tree::same(
        &tree::take(&place.base()),
        &tree::take(&native_dir),
        "upgraded",
    );
}

#[test]
fn what_cargo_built_inside_is_fresh_for_the_host_after_the_commit() {
    let usable = Command::new("cargo").arg("--version").output();
    if !usable.is_ok_and(|o| o.status.success()) {
        return skip("cargo cannot be used by this user");
    }
    let place = Place::new();
    place.write(
        "Cargo.toml",
        "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n",
    );
    place.write(
        "src/main.rs",
        "mod part;\nfn main() { println!(\"{}\", part::answer()); }\n",
    );
    place.write(
        "src/part.rs",
        "pub fn answer() -> u32 { 41 }\n#[test]\nfn right() { assert_eq!(answer(), 42); }\n",
    );
    let branch = place.fork();
    let home = std::env::var("HOME").unwrap_or_default();
    let env = [("HOME", home.as_str())];
    let cargo = |branch: &Branch, script: &str| run_with(branch, script, Stream::Null, &env);
    let (code, text) = cargo(&branch, "cargo test --offline");
    if text.contains("rustup could not") || text.contains("not found") {
        return skip("cargo cannot be used inside a branch by this user");
    }
    assert_ne!(code, 0, "{text}");
    assert!(text.contains("right"), "{text}");
    let (code, text) = cargo(
        &branch,
        "sed -i s/41/42/ src/part.rs && cargo test --offline && cargo build --offline",
    );
    assert_eq!(code, 0, "{text}");
    commit(&branch);
    // With the environment of the branch: whoever runs the tests may have set a target directory.
    let text = native(
        &place.base(),
        "target/debug/tiny; env -i PATH=\"$PATH\" HOME=\"$HOME\" cargo build --offline -v",
    );
    assert!(text.starts_with("42\n"), "{text}");
    assert!(text.contains("Fresh"), "{text}");
}

// What the kernel does otherwise inside a branch (docs/semantics.md).

#[test]
fn a_hard_link_of_the_base_is_broken_by_the_name_written_to() {
    let place = Place::new();
    place.write("a", "old\n");
    fs::hard_link(place.file("a"), place.file("b")).unwrap();
    let branch = place.fork();
    assert_eq!(ok(&branch, "echo new >> a; cat a b"), "old\nnew\nold\n");
    commit(&branch);
    assert_eq!(
        (place.read("a"), place.read("b")),
        ("old\nnew\n".into(), "old\n".into())
    );
    place.engine.undo(None, &place.base()).unwrap();
    let inode = |name: &str| fs::metadata(place.file(name)).unwrap().ino();
    assert_eq!(inode("a"), inode("b"), "undo gives the link back");
}

#[test]
fn renaming_a_directory_of_the_base_works_for_root_and_is_a_copy_for_others() {
    let place = Place::new();
    let other = place.dir().join("native");
    let make = "mkdir -p d/e; echo 1 > d/f; echo 2 > d/e/g; ln -s f d/l; chmod 750 d/e; touch -h -d '2010-10-10 10:10:10.1' d/f d/e/g d/l d/e d .";
    fs::create_dir(&other).unwrap();
    native(&place.base(), make);
    native(&other, make);
    let branch = place.fork();
    let program = "perl -e 'exit(rename(\"d\", \"r\") ? 0 : $! + 0)'; echo $?";
    let renamed = if has("perl") {
        ok(&branch, program)
    } else {
        String::new()
    };
    let rename = match renamed.trim() {
        "0" => "mv r moved",
        _ => "mv d moved",
    };
    if has("perl") {
        assert_eq!(renamed.trim(), if is_root() { "0" } else { "18" });
    }
    let settle = "touch -d 2011-11-11 .";
    ok(&branch, &format!("{rename} && {settle}"));
    native(&other, &format!("mv d moved && {settle}"));
    commit(&branch);
    tree::same(
        &tree::take(&place.base()),
        &tree::take(&other),
        "a moved directory",
    );
}

#[test]
fn a_set_user_id_bit_survives_and_is_cleared_by_a_write_also_for_root() {
    let place = Place::new();
    for name in ["kept", "written"] {
        place.write(name, "x");
    }
    let branch = place.fork();
    ok(&branch, "chmod 4755 kept written; mkdir d; chmod 2775 d");
    ok(&branch, "echo y >> written");
    commit(&branch);
    let mode = |name: &str| fs::metadata(place.file(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!(
        (mode("kept"), mode("written"), mode("d")),
        (0o4755, 0o755, 0o2775)
    );
}

#[test]
fn files_of_others_are_seen_as_their_modes_allow() {
    let place = Place::new();
    place.write("f", "f");
    let branch = place.fork();
    if is_root() {
        let uid = ok(
            &branch,
            "stat -c %u:%g /etc/passwd; chown 12:34 f; stat -c %u:%g f",
        );
        assert_eq!(uid, "0:0\n12:34\n");
        commit(&branch);
        let meta = fs::metadata(place.file("f")).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (12, 34), "root keeps owners");
        return;
    }
    let (_, text) = run(
        &branch,
        "stat -c %u /etc/passwd; stat -c %u:%g f; cat /etc/shadow 2>&1; echo x > /etc/hosts",
    );
    let own = rustix::process::getuid().as_raw();
    let mut lines = text.lines();
    let other = lines.next().unwrap();
    assert_ne!(other, own.to_string());
    assert_eq!(
        lines.next().unwrap(),
        format!("{own}:{}", rustix::process::getgid().as_raw())
    );
    assert!(text.contains("ermission denied"), "{text}");
}

#[test]
fn owners_a_user_cannot_give_become_the_users_and_are_told() {
    if is_root() {
        return skip("root gives owners");
    }
    let place = Place::new();
    place.write("f", "f");
    let branch = place.fork();
    let (code, text) = run(&branch, "echo x > new && chown 100001 new");
    if code != 0 {
        return skip(&format!(
            "no other id is mapped in a branch: {}",
            text.trim()
        ));
    }
    let notes = commit(&branch);
    let own = rustix::process::getuid().as_raw();
    assert_eq!(fs::metadata(place.file("new")).unwrap().uid(), own);
    assert!(notes.iter().any(|n| n.contains("new")), "{notes:?}");
}

#[test]
fn a_hole_survives_in_a_new_file_and_in_whole_megabytes_of_an_old_one() {
    let place = Place::new();
    native(
        &place.base(),
        "truncate -s 8M old; printf x | dd of=old bs=1 seek=4194304 conv=notrunc 2>/dev/null",
    );
    let branch = place.fork();
    ok(
        &branch,
        "echo y >> old; echo begin > new; truncate -s 8M new; echo end >> new",
    );
    commit(&branch);
    for name in ["old", "new"] {
        let meta = fs::metadata(place.file(name)).unwrap();
        assert!(
            meta.size() > 8 << 20 && meta.blocks() * 512 < 3 << 20,
            "{name}: {} blocks",
            meta.blocks()
        );
    }
}

#[test]
fn a_shared_mapping_made_before_the_copy_up_goes_on_showing_the_old_content() {
    if !has("perl") && !has("python3") {
        return skip("neither perl nor python3 is there to make a mapping");
    }
    let place = Place::new();
    place.write("f", "old");
    let branch = place.fork();
    if !has("python3") {
        return skip("python3 is not there to make a mapping");
    }
    let script = "python3 -c 'import mmap,os
f=os.open(\"f\",os.O_RDONLY); m=mmap.mmap(f,3,prot=mmap.PROT_READ)
open(\"f\",\"r+\").write(\"new\"); print(m[:].decode(), open(\"f\").read())'";
    let (code, text) = run(&branch, script);
    if code != 0 {
        return skip(&format!("python3 does not run inside: {}", text.trim()));
    }
    assert_eq!(text, "old new\n");
}
