//! mkdir, rmdir, unlink, reading a directory while it changes.

use super::{
    Row, Verdict, bound_by_permissions, fails, file_and_dir, holds, nothing, ok, same, tree,
};
use rustix::fs::{Mode, mkdir, rmdir, unlink};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

pub(super) const CASES: &[Row] = &[
    ("mkdir_makes_with_the_mode_less_the_mask", nothing, makes),
    ("mkdir_refuses_what_is_there", file_and_dir, mkdir_there),
    (
        "mkdir_over_a_dangling_link_is_refused",
        nothing,
        mkdir_dangling,
    ),
    ("mkdir_inherits_the_group_bit", nothing, group_bit),
    ("rmdir_removes_an_empty_directory", file_and_dir, removes),
    ("rmdir_refuses_one_that_is_not_empty", tree, not_empty),
    ("rmdir_refuses_a_file", file_and_dir, rmdir_file),
    (
        "a_removed_directory_can_be_made_again_empty",
        tree,
        made_again,
    ),
    (
        "a_file_can_take_a_removed_directory_s_name",
        tree,
        file_for_directory,
    ),
    ("unlink_removes_a_file", file_and_dir, unlinks),
    ("unlink_refuses_a_directory", file_and_dir, unlink_directory),
    ("unlink_of_nothing_is_refused", nothing, unlink_nothing),
    (
        "unlink_without_permission_is_refused",
        tree,
        unlink_forbidden,
    ),
    ("the_sticky_bit_lets_the_owner_remove", tree, sticky),
    ("a_directory_lists_what_is_in_it_once", tree, lists),
    ("a_listing_of_2000_is_whole", many, whole_listing),
    (
        "a_listing_goes_on_while_entries_are_removed",
        many,
        removed_meanwhile,
    ),
    ("link_counts_of_directories_make_sense", tree, link_counts),
    ("a_directory_s_dotdot_is_its_parent", tree, parent),
    (
        "a_removed_directory_that_is_held_is_empty",
        file_and_dir,
        held,
    ),
    ("a_tree_of_100_levels_is_made_and_removed", nothing, deep),
];

fn mode(path: &Path) -> Result<u32, String> {
    Ok(ok(std::fs::metadata(path))?.permissions().mode() & 0o7777)
}

fn makes(dir: &Path) -> Verdict {
    let old = rustix::process::umask(Mode::from_raw_mode(0o022));
    let made = mkdir(dir.join("n"), Mode::from_raw_mode(0o777));
    rustix::process::umask(old);
    ok(made)?;
    same(mode(&dir.join("n"))?, 0o755)
}

fn mkdir_there(dir: &Path) -> Verdict {
    fails(mkdir(dir.join("f"), Mode::RWXU), &[Errno::EXIST])?;
    fails(mkdir(dir.join("d"), Mode::RWXU), &[Errno::EXIST])?;
    fails(mkdir(dir.join("none/x"), Mode::RWXU), &[Errno::NOENT])?;
    fails(mkdir(dir.join("f/x"), Mode::RWXU), &[Errno::NOTDIR])
}

fn mkdir_dangling(dir: &Path) -> Verdict {
    ok(std::os::unix::fs::symlink("none", dir.join("l")))?;
    fails(mkdir(dir.join("l"), Mode::RWXU), &[Errno::EXIST])
}

fn group_bit(dir: &Path) -> Verdict {
    ok(std::fs::create_dir(dir.join("g")))?;
    ok(std::fs::set_permissions(
        dir.join("g"),
        PermissionsExt::from_mode(0o2755),
    ))?;
    ok(std::fs::create_dir(dir.join("g/h")))?;
    same(mode(&dir.join("g/h"))? & 0o2000, 0o2000)
}

fn removes(dir: &Path) -> Verdict {
    ok(rmdir(dir.join("d")))?;
    fails(rustix::fs::stat(dir.join("d")), &[Errno::NOENT])?;
    fails(rmdir(dir.join("d")), &[Errno::NOENT])
}

fn not_empty(dir: &Path) -> Verdict {
    fails(rmdir(dir.join("d")), &[Errno::NOTEMPTY, Errno::EXIST])?;
    ok(std::fs::remove_file(dir.join("d/f")))?;
    fails(rmdir(dir.join("d")), &[Errno::NOTEMPTY, Errno::EXIST])?;
    ok(std::fs::remove_dir_all(dir.join("d/s")))?;
    ok(rmdir(dir.join("d")))
}

fn rmdir_file(dir: &Path) -> Verdict {
    fails(rmdir(dir.join("f")), &[Errno::NOTDIR])?;
    ok(std::os::unix::fs::symlink("d", dir.join("l")))?;
    fails(rmdir(dir.join("l")), &[Errno::NOTDIR])
}

fn made_again(dir: &Path) -> Verdict {
    ok(std::fs::remove_dir_all(dir.join("d")))?;
    ok(std::fs::create_dir(dir.join("d")))?;
    same(ok(std::fs::read_dir(dir.join("d")))?.count(), 0)?;
    fails(rustix::fs::stat(dir.join("d/s/g")), &[Errno::NOENT])
}

fn file_for_directory(dir: &Path) -> Verdict {
    ok(std::fs::remove_dir_all(dir.join("d")))?;
    ok(std::fs::write(dir.join("d"), b"file"))?;
    fails(rustix::fs::stat(dir.join("d/f")), &[Errno::NOTDIR])?;
    ok(std::fs::remove_file(dir.join("d")))?;
    ok(std::fs::create_dir(dir.join("d")))?;
    same(ok(std::fs::read_dir(dir.join("d")))?.count(), 0)
}

fn unlinks(dir: &Path) -> Verdict {
    ok(unlink(dir.join("f")))?;
    fails(unlink(dir.join("f")), &[Errno::NOENT])?;
    ok(std::fs::write(dir.join("f"), b"again"))?;
    same(ok(std::fs::read(dir.join("f")))?, b"again".to_vec())
}

fn unlink_directory(dir: &Path) -> Verdict {
    fails(unlink(dir.join("d")), &[Errno::ISDIR, Errno::PERM])
}

fn unlink_nothing(dir: &Path) -> Verdict {
    fails(unlink(dir.join("none")), &[Errno::NOENT])
}

fn unlink_forbidden(dir: &Path) -> Verdict {
    if bound_by_permissions() {
        ok(std::fs::set_permissions(
            dir.join("d"),
            PermissionsExt::from_mode(0o555),
        ))?;
        fails(unlink(dir.join("d/f")), &[Errno::ACCESS])?;
        ok(std::fs::set_permissions(
            dir.join("d"),
            PermissionsExt::from_mode(0o755),
        ))?;
    }
    ok(unlink(dir.join("d/f")))
}

fn sticky(dir: &Path) -> Verdict {
    ok(std::fs::set_permissions(
        dir.join("d"),
        PermissionsExt::from_mode(0o1777),
    ))?;
    ok(unlink(dir.join("d/f")))
}

fn names(dir: &Path) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for entry in ok(std::fs::read_dir(dir))? {
        names.push(ok(entry)?.file_name().to_string_lossy().into_owned());
    }
    Ok(names)
}

fn lists(dir: &Path) -> Verdict {
    ok(std::fs::write(dir.join("d/f"), b"changed"))?;
    ok(std::fs::write(dir.join("d/n"), b"new"))?;
    let mut seen = names(&dir.join("d"))?;
    seen.sort();
    same(seen, vec!["f".to_owned(), "n".to_owned(), "s".to_owned()])
}

fn many(dir: &Path) -> Verdict {
    (0..2000).try_for_each(|n| ok(std::fs::write(dir.join(format!("n{n}")), b"")))
}

fn whole_listing(dir: &Path) -> Verdict {
    ok(std::fs::write(dir.join("n7"), b"changed"))?;
    let seen = names(dir)?;
    same(seen.len(), 2000)?;
    same(seen.into_iter().collect::<BTreeSet<_>>().len(), 2000)
}

fn removed_meanwhile(dir: &Path) -> Verdict {
    let mut seen = BTreeSet::new();
    for entry in ok(std::fs::read_dir(dir))? {
        let entry = ok(entry)?;
        holds(seen.insert(entry.file_name()), "each is seen once")?;
        ok(std::fs::remove_file(entry.path()))?;
    }
    same(seen.len(), 2000)?;
    same(ok(std::fs::read_dir(dir))?.count(), 0)
}

fn link_counts(dir: &Path) -> Verdict {
    // Two and one for each subdirectory, or always one where a file system does not count.
    let count = ok(std::fs::metadata(dir.join("d")))?.nlink();
    holds(count == 3 || count == 1, "a count of directories")
}

fn parent(dir: &Path) -> Verdict {
    let (up, here) = (
        ok(std::fs::metadata(dir.join("d/s/..")))?,
        ok(std::fs::metadata(dir.join("d")))?,
    );
    same((up.dev(), up.ino()), (here.dev(), here.ino()))
}

fn held(dir: &Path) -> Verdict {
    use rustix::fs::{OFlags, open, openat};
    let d = ok(open(
        dir.join("d"),
        OFlags::RDONLY | OFlags::DIRECTORY,
        Mode::empty(),
    ))?;
    ok(rmdir(dir.join("d")))?;
    let new = OFlags::CREATE | OFlags::WRONLY;
    fails(openat(&d, "n", new, Mode::RUSR), &[Errno::NOENT])
}

fn deep(dir: &Path) -> Verdict {
    let mut path = dir.join("t");
    for _ in 0..100 {
        path.push("l");
    }
    ok(std::fs::create_dir_all(&path))?;
    ok(std::fs::write(path.join("f"), b"x"))?;
    ok(std::fs::remove_dir_all(dir.join("t")))?;
    same(ok(std::fs::read_dir(dir))?.count(), 0)
}
