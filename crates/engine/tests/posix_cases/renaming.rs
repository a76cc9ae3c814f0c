//! rename(2) and renameat2(2).

use super::{Row, Verdict, fails, file_and_dir, holds, nothing, ok, same, tree};
use rustix::fs::{CWD, RenameFlags, rename, renameat_with};
use rustix::io::Errno;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

pub(super) const CASES: &[Row] = &[
    ("rename_moves_a_file", file_and_dir, moves),
    ("rename_replaces_a_file", two_files, replaces),
    (
        "rename_moves_a_directory_with_what_is_in_it",
        tree,
        moves_directory,
    ),
    (
        "rename_replaces_an_empty_directory",
        tree,
        replaces_directory,
    ),
    (
        "rename_refuses_a_directory_that_is_not_empty",
        tree,
        not_empty,
    ),
    (
        "rename_refuses_a_file_over_a_directory",
        file_and_dir,
        file_over_directory,
    ),
    (
        "rename_refuses_a_directory_over_a_file",
        file_and_dir,
        directory_over_file,
    ),
    ("rename_refuses_a_directory_into_itself", tree, into_itself),
    ("rename_of_nothing_is_refused", nothing, of_nothing),
    ("rename_onto_itself_does_nothing", file_and_dir, onto_itself),
    ("rename_keeps_contents_mode_and_times", file_and_dir, keeps),
    (
        "rename_moves_a_link_and_not_its_target",
        file_and_dir,
        moves_link,
    ),
    ("rename_into_another_directory", tree, into_another),
    ("rename_without_replacing_refuses", two_files, no_replace),
    ("exchange_swaps_two_files", two_files, swaps),
    ("exchange_swaps_a_file_and_a_directory", tree, swaps_kinds),
    ("the_old_name_is_free_after_a_rename", tree, old_name_free),
    (
        "an_open_file_follows_its_rename",
        file_and_dir,
        open_follows,
    ),
];

fn two_files(dir: &Path) -> Verdict {
    ok(std::fs::write(dir.join("a"), b"A"))?;
    ok(std::fs::write(dir.join("b"), b"B"))
}

fn text(path: &Path) -> Result<String, String> {
    ok(std::fs::read_to_string(path))
}

fn moves(dir: &Path) -> Verdict {
    ok(rename(dir.join("f"), dir.join("g")))?;
    fails(rustix::fs::stat(dir.join("f")), &[Errno::NOENT])?;
    same(text(&dir.join("g"))?.as_str(), "0123456789")
}

fn replaces(dir: &Path) -> Verdict {
    ok(rename(dir.join("a"), dir.join("b")))?;
    same(text(&dir.join("b"))?.as_str(), "A")?;
    same(ok(std::fs::read_dir(dir))?.count(), 1)
}

fn moves_directory(dir: &Path) -> Verdict {
    ok(rename(dir.join("d"), dir.join("e")))?;
    same(text(&dir.join("e/s/g"))?.as_str(), "deep")?;
    fails(rustix::fs::stat(dir.join("d")), &[Errno::NOENT])
}

fn replaces_directory(dir: &Path) -> Verdict {
    ok(std::fs::create_dir(dir.join("e")))?;
    ok(rename(dir.join("d"), dir.join("e")))?;
    same(text(&dir.join("e/f"))?.as_str(), "inner")
}

fn not_empty(dir: &Path) -> Verdict {
    ok(std::fs::create_dir(dir.join("e")))?;
    fails(
        rename(dir.join("e"), dir.join("d")),
        &[Errno::NOTEMPTY, Errno::EXIST],
    )?;
    same(text(&dir.join("d/f"))?.as_str(), "inner")
}

fn file_over_directory(dir: &Path) -> Verdict {
    fails(rename(dir.join("f"), dir.join("d")), &[Errno::ISDIR])
}

fn directory_over_file(dir: &Path) -> Verdict {
    fails(rename(dir.join("d"), dir.join("f")), &[Errno::NOTDIR])
}

fn into_itself(dir: &Path) -> Verdict {
    fails(rename(dir.join("d"), dir.join("d/s/d")), &[Errno::INVAL])
}

fn of_nothing(dir: &Path) -> Verdict {
    fails(rename(dir.join("none"), dir.join("x")), &[Errno::NOENT])?;
    ok(std::fs::write(dir.join("f"), b""))?;
    fails(rename(dir.join("f"), dir.join("none/x")), &[Errno::NOENT])
}

fn onto_itself(dir: &Path) -> Verdict {
    ok(rename(dir.join("f"), dir.join("f")))?;
    same(text(&dir.join("f"))?.len(), 10)
}

fn keeps(dir: &Path) -> Verdict {
    use std::os::unix::fs::PermissionsExt;
    let f = dir.join("f");
    ok(std::fs::set_permissions(
        &f,
        PermissionsExt::from_mode(0o641),
    ))?;
    super::attributes::long_ago(&f)?;
    ok(rename(&f, dir.join("g")))?;
    let meta = ok(std::fs::metadata(dir.join("g")))?;
    same(
        (meta.mode() & 0o7777, meta.mtime(), meta.len()),
        (0o641, 1000, 10),
    )
}

fn moves_link(dir: &Path) -> Verdict {
    ok(std::os::unix::fs::symlink("f", dir.join("l")))?;
    ok(rename(dir.join("l"), dir.join("m")))?;
    holds(
        ok(std::fs::symlink_metadata(dir.join("m")))?
            .file_type()
            .is_symlink(),
        "a link",
    )?;
    holds(dir.join("f").exists(), "its target is where it was")
}

fn into_another(dir: &Path) -> Verdict {
    ok(rename(dir.join("f"), dir.join("d/s/f")))?;
    ok(rename(dir.join("d/f"), dir.join("f")))?;
    same(text(&dir.join("f"))?.as_str(), "inner")?;
    same(text(&dir.join("d/s/f"))?.len(), 10)
}

fn with(dir: &Path, from: &str, to: &str, flags: RenameFlags) -> Result<(), Errno> {
    renameat_with(CWD, dir.join(from), CWD, dir.join(to), flags)
}

fn no_replace(dir: &Path) -> Verdict {
    fails(with(dir, "a", "b", RenameFlags::NOREPLACE), &[Errno::EXIST])?;
    ok(with(dir, "a", "c", RenameFlags::NOREPLACE))?;
    same(text(&dir.join("c"))?.as_str(), "A")
}

fn swaps(dir: &Path) -> Verdict {
    ok(with(dir, "a", "b", RenameFlags::EXCHANGE))?;
    same(
        (
            text(&dir.join("a"))?.as_str(),
            text(&dir.join("b"))?.as_str(),
        ),
        ("B", "A"),
    )?;
    fails(
        with(dir, "a", "none", RenameFlags::EXCHANGE),
        &[Errno::NOENT],
    )
}

fn swaps_kinds(dir: &Path) -> Verdict {
    ok(with(dir, "f", "d", RenameFlags::EXCHANGE))?;
    same(text(&dir.join("d"))?.len(), 10)?;
    same(text(&dir.join("f/s/g"))?.as_str(), "deep")
}

fn old_name_free(dir: &Path) -> Verdict {
    ok(rename(dir.join("f"), dir.join("g")))?;
    ok(std::fs::create_dir(dir.join("f")))?;
    same(ok(std::fs::read_dir(dir.join("f")))?.count(), 0)?;
    ok(std::fs::remove_dir(dir.join("f")))?;
    ok(std::fs::write(dir.join("f"), b"new"))?;
    same(text(&dir.join("f"))?.as_str(), "new")
}

fn open_follows(dir: &Path) -> Verdict {
    let file = ok(std::fs::OpenOptions::new().write(true).open(dir.join("f")))?;
    ok(rename(dir.join("f"), dir.join("g")))?;
    ok(rustix::io::pwrite(&file, b"X", 0))?;
    same(text(&dir.join("g"))?.as_str(), "X123456789")
}
