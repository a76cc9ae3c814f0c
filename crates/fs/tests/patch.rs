//! A patch is applied by `git apply` itself, and gives what the branch has, as far as git can carry
//! it; taken back, it gives the base again.

mod common;

use common::ops::{self, Random};
use common::{Layers, everywhere, root_of, snapshot};
use forkpoint_fs::delta::{self, Sides};
use forkpoint_fs::patch::{self, PatchReport, What};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

type Carried = BTreeMap<PathBuf, (char, bool, Vec<u8>)>;

fn same(found: &Carried, wanted: &Carried, patch: &str) {
    for path in found.keys().chain(wanted.keys()) {
        let (found, wanted) = (found.get(path), wanted.get(path));
        let short = |node: Option<&(char, bool, Vec<u8>)>| {
            node.map(|(kind, runs, text)| (*kind, *runs, text.len(), text.first().copied()))
        };
        assert_eq!(short(found), short(wanted), "{path:?} by {patch}");
        assert!(found == wanted, "{path:?} by {patch}");
    }
}

/// What git can carry of a tree: files with their executable bit, and symbolic links.
fn carried(tree: &snapshot::Tree) -> Carried {
    tree.iter()
        .filter(|(path, node)| "fl".contains(node.kind) && !path.starts_with(".git"))
        .map(|(path, node)| {
            let runs = node.kind == 'f' && node.mode & 0o100 != 0;
            (path.clone(), (node.kind, runs, node.content.clone()))
        })
        .collect()
}

fn sides(layers: &Layers) -> Sides {
    Sides {
        old: layers.layers[1..].to_vec(),
        new: layers.layers.clone(),
        options: layers.diff_options(),
    }
}

fn patch_of(layers: &Layers) -> (Vec<u8>, PatchReport) {
    let changes = delta::diff(&layers.layers, 1, &layers.diff_options()).expect("diff");
    let mut text = Vec::new();
    let report = patch::write(&sides(layers), &changes, &mut text).expect("patch");
    (text, report)
}

/// Runs `git apply` in `dir`, which is in no repository.
fn apply(dir: &Path, patch: &[u8], flags: &[&str]) -> Result<(), String> {
    let file = dir.with_extension("patch");
    std::fs::write(&file, patch).expect("write");
    let output = Command::new("git")
        .args(["apply", "--whitespace=nowarn", "--allow-empty"])
        .args(flags)
        .arg(&file)
        .current_dir(dir)
        .env("GIT_CEILING_DIRECTORIES", dir.parent().expect("a parent"))
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .expect("git");
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Applies the patch to a copy of the base, looks, and takes it back. Then only contents are compared:
/// `git apply -R` restores a removed file without its mode, also from git's own patches.
fn check(layers: &Layers, text: &[u8]) {
    let copy = layers.dir.path().join("copy");
    let options = forkpoint_fs::tree::CopyOptions::default();
    forkpoint_fs::tree::copy(layers.base(), &copy, &options).expect("copy");
    // What git does not know of stands in its way: a FIFO where a file is to be.
    for (path, _) in snapshot::take(&copy).iter().filter(|(_, n)| n.kind == 'p') {
        std::fs::remove_file(copy.join(path)).expect("rm");
    }
    let shown = String::from_utf8_lossy(text);
    let before = carried(&snapshot::take(&copy));
    apply(&copy, text, &[]).unwrap_or_else(|e| panic!("{e}\n{shown}"));
    let now = carried(&snapshot::take(&root_of(&layers.view(0))));
    same(&carried(&snapshot::take(&copy)), &now, &shown);
    apply(&copy, text, &["-R"]).unwrap_or_else(|e| panic!("back: {e}\n{shown}"));
    let back = carried(&snapshot::take(&copy));
    let loose = |tree: &Carried| -> Carried {
        let nodes = tree
            .iter()
            .map(|(path, (_, _, text))| (path.clone(), ('f', false, text.clone())));
        nodes.collect()
    };
    same(&loose(&back), &loose(&before), &format!("back: {shown}"));
}

#[test]
fn random_trees_survive_git_apply() {
    everywhere("random_trees_survive_git_apply", |userxattr| {
        for seed in 0..12 {
            let mut random = Random::new(seed * 2 + u64::from(userxattr));
            let mut layers = Layers::new(userxattr);
            let base = layers.base().to_owned();
            for _ in 0..60 {
                // What the file system refuses did not happen.
                ops::perform(&base, &ops::draw(&mut random)).unwrap_or(());
            }
            texts(&base, &mut random);
            layers.level(|view| {
                for _ in 0..50 {
                    ops::perform(view, &ops::draw(&mut random)).unwrap_or(());
                }
                texts(view, &mut random);
            });
            let (text, _) = patch_of(&layers);
            check(&layers, &text);
        }
    });
}

/// Files whose lines change here and there, with and without an end.
fn texts(root: &Path, random: &mut Random) {
    for name in ["t1", "t2", "t3"] {
        let path = root.join(name);
        let mut lines: Vec<String> = match std::fs::read_to_string(&path) {
            Ok(text) => text.split_inclusive('\n').map(str::to_owned).collect(),
            Err(_) => (0..random.below(60))
                .map(|i| format!("line {i}\n"))
                .collect(),
        };
        for _ in 0..random.below(6) {
            let at = random.below(lines.len() as u64 + 1) as usize;
            match random.below(3) {
                0 => lines.insert(at, format!("+ {}\r\n", random.below(9))),
                1 if at < lines.len() => drop(lines.remove(at)),
                _ if at < lines.len() => lines[at] = "-- a/x \\ \n".into(),
                _ => lines.push("no end".into()),
            }
        }
        std::fs::write(&path, lines.concat()).expect("write");
    }
}

#[test]
fn every_kind_of_change_and_what_is_left_out() {
    everywhere("every_kind_of_change_and_what_is_left_out", |userxattr| {
        use std::fs;
        use std::os::unix::fs::{PermissionsExt, symlink};
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
        };
        let mut layers = Layers::new(userxattr);
        let base = layers.base().to_owned();
        for (name, text) in [
            ("file", "1\n"),
            ("becomes-link", "x"),
            ("grows", ""),
            ("shrinks", "y"),
        ] {
            fs::write(base.join(name), text).expect("write");
            mode(&base.join(name), 0o644);
        }
        symlink("file", base.join("becomes-file")).expect("link");
        fs::create_dir_all(base.join("gone/deep/empty")).expect("mkdir");
        fs::write(base.join("gone/deep/x"), [0, 1, 2]).expect("write");
        fs::create_dir(base.join("becomes")).expect("mkdir");
        fs::write(base.join("becomes/below"), "b\n").expect("write");
        fs::write(base.join("becomes-dir"), "d\n").expect("write");
        fs::create_dir(base.join("kept")).expect("mkdir");
        fs::write(base.join("kept/only"), "").expect("write");
        layers.level(|view| {
            let at = |name: &str| view.join(name);
            mode(&at("file"), 0o4755);
            fs::remove_file(at("becomes-link")).expect("rm");
            symlink("a \"b\"\n\\", at("becomes-link")).expect("link");
            fs::remove_file(at("becomes-file")).expect("rm");
            fs::write(at("becomes-file"), [0; 300]).expect("write");
            fs::write(at("grows"), "no end").expect("write");
            fs::write(at("shrinks"), "").expect("write");
            fs::remove_dir_all(at("gone")).expect("rm");
            fs::remove_dir_all(at("becomes")).expect("rm");
            fs::write(at("becomes"), "file now\n").expect("write");
            fs::remove_file(at("becomes-dir")).expect("rm");
            fs::create_dir(at("becomes-dir")).expect("mkdir");
            fs::write(at("becomes-dir/x"), "x\n").expect("write");
            fs::remove_file(at("kept/only")).expect("rm");
            fs::create_dir_all(at("new/empty")).expect("mkdir");
            fs::write(at("new/ trailing "), "").expect("write");
            fs::create_dir(at(".git")).expect("mkdir");
            fs::write(at(".git/index"), "i").expect("write");
            fs::write(at("big"), "text\n".repeat(2 << 20)).expect("write");
            fs::hard_link(at("big"), at("big2")).expect("link");
            ops::perform(view, &ops::Op::Fifo("pipe".into())).expect("fifo");
            ops::perform(view, &ops::Op::Xattr("grows".into(), 7)).expect("xattr");
        });
        let (text, report) = patch_of(&layers);
        check(&layers, &text);
        let left = |what: What| -> Vec<String> {
            let found = report.left.iter().find(|left| left.what == what);
            let paths = found.map(|left| left.paths.clone()).unwrap_or_default();
            paths.iter().map(|p| p.display().to_string()).collect()
        };
        assert_eq!(
            left(What::EmptyDir),
            ["gone/deep/empty", "new/empty", "kept"]
        );
        assert_eq!(left(What::Special), ["pipe"]);
        assert_eq!(left(What::Mode), ["file"]);
        assert_eq!(left(What::Xattrs), ["grows"]);
        assert_eq!(left(What::Links), ["big", "big2"]);
        assert_eq!(left(What::GitsOwn), [".git", ".git/index"]);
        assert_eq!(report.bytes, text.len() as u64);
        assert!(text.len() < 100_000, "10 MB of one line: {}", text.len());
    });
}

#[test]
fn a_reader_that_goes_away_ends_the_patch() {
    everywhere("a_reader_that_goes_away_ends_the_patch", |userxattr| {
        let mut layers = Layers::new(userxattr);
        layers.level(|view| std::fs::write(view.join("x"), "x\n".repeat(99_999)).expect("write"));
        let changes = delta::diff(&layers.layers, 1, &layers.diff_options()).expect("diff");
        let (read, write) = rustix::pipe::pipe().expect("pipe");
        drop(read);
        let output = std::fs::File::from(write);
        let report = patch::write(&sides(&layers), &changes, output).expect("no failure");
        assert!(report.closed);
    });
}
