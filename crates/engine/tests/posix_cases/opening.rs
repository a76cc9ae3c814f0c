//! open(2): creating, exclusive, truncating, appending, what may not be opened, and how.

use super::{Row, Verdict, bound_by_permissions, fails, file_and_dir, holds, nothing, ok, same};
use rustix::fs::{CWD, Mode, OFlags, open, openat};
use rustix::io::Errno;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

pub(super) const CASES: &[Row] = &[
    (
        "open_creates_with_the_mode_less_the_mask",
        nothing,
        creates_with_mode,
    ),
    (
        "open_exclusively_refuses_what_is_there",
        file_and_dir,
        exclusive,
    ),
    (
        "open_exclusively_refuses_a_dangling_link",
        nothing,
        exclusive_dangling,
    ),
    (
        "open_creates_through_a_dangling_link",
        nothing,
        through_dangling,
    ),
    ("open_truncates", file_and_dir, truncates),
    (
        "open_to_read_keeps_the_times_of_change",
        file_and_dir,
        reading_keeps,
    ),
    (
        "open_truncating_changes_the_times",
        file_and_dir,
        truncating_changes,
    ),
    (
        "open_of_a_directory_to_write_is_refused",
        file_and_dir,
        directory_to_write,
    ),
    ("open_of_nothing_is_refused", nothing, of_nothing),
    ("open_below_a_file_is_refused", file_and_dir, below_file),
    (
        "open_with_a_slash_at_a_file_is_refused",
        file_and_dir,
        slash_at_file,
    ),
    (
        "open_as_a_directory_refuses_a_file",
        file_and_dir,
        as_directory,
    ),
    (
        "open_without_following_refuses_a_link",
        file_and_dir,
        no_follow,
    ),
    ("open_follows_no_endless_links", nothing, endless),
    (
        "open_without_permission_is_refused",
        file_and_dir,
        no_permission,
    ),
    (
        "append_writes_at_the_end_of_another_writer",
        file_and_dir,
        appends,
    ),
    (
        "a_reader_sees_what_a_later_writer_writes",
        file_and_dir,
        reader_sees,
    ),
    (
        "an_unlinked_open_file_lives_on",
        file_and_dir,
        unlinked_open,
    ),
    ("a_file_without_a_name_can_get_one", nothing, tmpfile),
    (
        "a_path_descriptor_can_be_reopened",
        file_and_dir,
        path_descriptor,
    ),
    (
        "creating_changes_the_directory_s_times",
        file_and_dir,
        directory_times,
    ),
];

fn creates_with_mode(dir: &Path) -> Verdict {
    let old = rustix::process::umask(Mode::from_raw_mode(0o027));
    let made = std::fs::OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o666)
        .open(dir.join("n"));
    rustix::process::umask(old);
    let meta = ok(ok(made)?.metadata())?;
    same(meta.permissions().mode() & 0o7777, 0o640)?;
    same((meta.len(), meta.nlink()), (0, 1))?;
    same(meta.uid(), rustix::process::geteuid().as_raw())
}

const NEW: OFlags = OFlags::CREATE.union(OFlags::EXCL).union(OFlags::WRONLY);

fn exclusive(dir: &Path) -> Verdict {
    fails(open(dir.join("f"), NEW, Mode::RUSR), &[Errno::EXIST])?;
    fails(open(dir.join("d"), NEW, Mode::RUSR), &[Errno::EXIST])
}

fn exclusive_dangling(dir: &Path) -> Verdict {
    ok(std::os::unix::fs::symlink("nowhere", dir.join("l")))?;
    fails(open(dir.join("l"), NEW, Mode::RUSR), &[Errno::EXIST])?;
    holds(!dir.join("nowhere").exists(), "nothing was made")
}

fn through_dangling(dir: &Path) -> Verdict {
    ok(std::os::unix::fs::symlink("there", dir.join("l")))?;
    ok(open(
        dir.join("l"),
        OFlags::CREATE | OFlags::WRONLY,
        Mode::RUSR,
    ))?;
    holds(dir.join("there").exists(), "the target was made")
}

fn truncates(dir: &Path) -> Verdict {
    ok(open(
        dir.join("f"),
        OFlags::WRONLY | OFlags::TRUNC,
        Mode::empty(),
    ))?;
    same(ok(std::fs::metadata(dir.join("f")))?.len(), 0)
}

fn reading_keeps(dir: &Path) -> Verdict {
    let before = ok(std::fs::metadata(dir.join("f")))?;
    let mut text = String::new();
    ok(ok(std::fs::File::open(dir.join("f")))?.read_to_string(&mut text))?;
    let after = ok(std::fs::metadata(dir.join("f")))?;
    same(
        (after.mtime(), after.mtime_nsec()),
        (before.mtime(), before.mtime_nsec()),
    )?;
    same(
        (after.ctime(), after.ctime_nsec()),
        (before.ctime(), before.ctime_nsec()),
    )
}

fn truncating_changes(dir: &Path) -> Verdict {
    super::attributes::long_ago(&dir.join("f"))?;
    ok(open(
        dir.join("f"),
        OFlags::WRONLY | OFlags::TRUNC,
        Mode::empty(),
    ))?;
    holds(
        ok(std::fs::metadata(dir.join("f")))?.mtime() > 1_000_000,
        "a new time",
    )
}

fn directory_to_write(dir: &Path) -> Verdict {
    fails(
        open(dir.join("d"), OFlags::WRONLY, Mode::empty()),
        &[Errno::ISDIR],
    )?;
    fails(
        open(dir.join("d"), OFlags::RDWR, Mode::empty()),
        &[Errno::ISDIR],
    )?;
    ok(open(dir.join("d"), OFlags::RDONLY, Mode::empty())).map(drop)
}

fn of_nothing(dir: &Path) -> Verdict {
    fails(
        open(dir.join("none"), OFlags::RDONLY, Mode::empty()),
        &[Errno::NOENT],
    )?;
    fails(open(dir.join("none/f"), NEW, Mode::RUSR), &[Errno::NOENT])?;
    fails(
        openat(CWD, "", OFlags::RDONLY, Mode::empty()),
        &[Errno::NOENT],
    )
}

fn below_file(dir: &Path) -> Verdict {
    fails(
        open(dir.join("f/g"), OFlags::RDONLY, Mode::empty()),
        &[Errno::NOTDIR],
    )?;
    fails(open(dir.join("f/g"), NEW, Mode::RUSR), &[Errno::NOTDIR])
}

fn slash_at_file(dir: &Path) -> Verdict {
    let with_slash = format!("{}/", dir.join("f").display());
    fails(
        open(with_slash.as_str(), OFlags::RDONLY, Mode::empty()),
        &[Errno::NOTDIR],
    )
}

fn as_directory(dir: &Path) -> Verdict {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    fails(open(dir.join("f"), flags, Mode::empty()), &[Errno::NOTDIR])?;
    ok(open(dir.join("d"), flags, Mode::empty())).map(drop)
}

fn no_follow(dir: &Path) -> Verdict {
    ok(std::os::unix::fs::symlink("f", dir.join("l")))?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW;
    fails(open(dir.join("l"), flags, Mode::empty()), &[Errno::LOOP])
}

fn endless(dir: &Path) -> Verdict {
    ok(std::os::unix::fs::symlink("b", dir.join("a")))?;
    ok(std::os::unix::fs::symlink("a", dir.join("b")))?;
    fails(
        open(dir.join("a"), OFlags::RDONLY, Mode::empty()),
        &[Errno::LOOP],
    )?;
    fails(rustix::fs::stat(dir.join("a/x")), &[Errno::LOOP])
}

fn no_permission(dir: &Path) -> Verdict {
    if !bound_by_permissions() {
        return Ok(());
    }
    let f = dir.join("f");
    ok(std::fs::set_permissions(
        &f,
        PermissionsExt::from_mode(0o200),
    ))?;
    fails(open(&f, OFlags::RDONLY, Mode::empty()), &[Errno::ACCESS])?;
    ok(std::fs::set_permissions(
        &f,
        PermissionsExt::from_mode(0o400),
    ))?;
    fails(open(&f, OFlags::WRONLY, Mode::empty()), &[Errno::ACCESS])?;
    ok(std::fs::set_permissions(
        dir.join("d"),
        PermissionsExt::from_mode(0o500),
    ))?;
    fails(open(dir.join("d/n"), NEW, Mode::RUSR), &[Errno::ACCESS])
}

fn appends(dir: &Path) -> Verdict {
    let append = || std::fs::OpenOptions::new().append(true).open(dir.join("f"));
    let (mut one, mut two) = (ok(append())?, ok(append())?);
    ok(one.write_all(b"A"))?;
    ok(two.write_all(b"B"))?;
    ok(one.write_all(b"C"))?;
    same(ok(std::fs::read(dir.join("f")))?, b"0123456789ABC".to_vec())
}

fn reader_sees(dir: &Path) -> Verdict {
    let mut reader = ok(std::fs::File::open(dir.join("f")))?;
    ok(std::fs::write(dir.join("f"), b"new"))?;
    let mut text = String::new();
    ok(reader.read_to_string(&mut text))?;
    same(text.as_str(), "new")
}

fn unlinked_open(dir: &Path) -> Verdict {
    let mut file = ok(std::fs::OpenOptions::new()
        .read(true)
        .append(true)
        .open(dir.join("f")))?;
    ok(std::fs::remove_file(dir.join("f")))?;
    ok(file.write_all(b"more"))?;
    let mut text = String::new();
    ok(std::io::Seek::rewind(&mut file))?;
    ok(file.read_to_string(&mut text))?;
    same(text.as_str(), "0123456789more")?;
    same(ok(file.metadata())?.nlink(), 0)
}

fn tmpfile(dir: &Path) -> Verdict {
    let made = open(dir, OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR | Mode::WUSR);
    let mut file = std::fs::File::from(ok(made)?);
    ok(file.write_all(b"text"))?;
    let own = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let follow = rustix::fs::AtFlags::SYMLINK_FOLLOW;
    ok(rustix::fs::linkat(CWD, own, CWD, dir.join("named"), follow))?;
    same(ok(std::fs::read(dir.join("named")))?, b"text".to_vec())
}

fn path_descriptor(dir: &Path) -> Verdict {
    let held = ok(open(dir.join("f"), OFlags::PATH, Mode::empty()))?;
    let own = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&held));
    same(ok(std::fs::read(own))?, b"0123456789".to_vec())?;
    fails(rustix::io::read(&held, &mut [0; 4]), &[Errno::BADF])
}

fn directory_times(dir: &Path) -> Verdict {
    super::attributes::long_ago(&dir.join("d"))?;
    ok(std::fs::write(dir.join("d/n"), b""))?;
    holds(
        ok(std::fs::metadata(dir.join("d")))?.mtime() > 1_000_000,
        "a new time",
    )
}
