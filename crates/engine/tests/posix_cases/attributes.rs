//! Modes, owners, times, extended attributes, sizes of file systems.

use super::{Row, Verdict, bound_by_permissions, fails, file_and_dir, holds, ok, same};
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, chmod, chownat, utimensat,
};
use rustix::io::Errno;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

pub(super) const CASES: &[Row] = &[
    ("chmod_sets_every_bit", file_and_dir, every_bit),
    ("chmod_keeps_contents_and_times", file_and_dir, chmod_keeps),
    ("chmod_of_nothing_is_refused", file_and_dir, chmod_nothing),
    (
        "chmod_of_another_s_file_is_refused",
        file_and_dir,
        chmod_foreign,
    ),
    ("chown_to_oneself_is_allowed", file_and_dir, chown_self),
    (
        "chown_to_another_needs_privilege",
        file_and_dir,
        chown_other,
    ),
    (
        "chown_of_a_link_leaves_its_target",
        file_and_dir,
        chown_link,
    ),
    (
        "writing_clears_the_set_user_id_bit",
        file_and_dir,
        clears_set_id,
    ),
    ("times_are_set_to_the_nanosecond", file_and_dir, nanoseconds),
    ("times_before_1970_are_kept", file_and_dir, before_1970),
    ("times_are_omitted_and_now", file_and_dir, omit_and_now),
    ("times_of_a_link_are_its_own", file_and_dir, link_times),
    (
        "attributes_are_set_read_listed_and_removed",
        file_and_dir,
        xattrs,
    ),
    (
        "attributes_can_be_created_or_replaced_only",
        file_and_dir,
        xattr_flags,
    ),
    (
        "attributes_of_a_directory_are_kept",
        file_and_dir,
        xattr_directory,
    ),
    (
        "an_attribute_that_is_not_there_is_no_data",
        file_and_dir,
        xattr_missing,
    ),
    (
        "attributes_beside_a_later_write_are_kept",
        with_attribute,
        xattr_after_write,
    ),
    (
        "overlay_attributes_of_a_user_are_theirs",
        file_and_dir,
        overlay_xattr,
    ),
    ("access_tells_what_may_be_done", file_and_dir, access),
    ("stat_counts_blocks_and_links", file_and_dir, stat),
    (
        "an_inode_number_lasts_through_a_write",
        file_and_dir,
        inode_lasts,
    ),
    ("statvfs_answers", file_and_dir, statvfs),
];

/// Sets both times of a path to the first day of 1970.
pub(super) fn long_ago(path: &Path) -> Verdict {
    set(path, (1000, 0), (1000, 0), AtFlags::empty())
}

fn set(path: &Path, access: (i64, i64), change: (i64, i64), flags: AtFlags) -> Verdict {
    let spec = |(tv_sec, tv_nsec): (i64, i64)| Timespec {
        tv_sec,
        tv_nsec: tv_nsec as _,
    };
    let times = Timestamps {
        last_access: spec(access),
        last_modification: spec(change),
    };
    ok(utimensat(CWD, path, &times, flags))
}

fn mode(path: &Path) -> Result<u32, String> {
    Ok(ok(std::fs::symlink_metadata(path))?.mode() & 0o7777)
}

fn every_bit(dir: &Path) -> Verdict {
    for bits in [0o777, 0o640, 0o4755, 0o1644, 0o700] {
        ok(chmod(dir.join("f"), Mode::from_raw_mode(bits)))?;
        same(mode(&dir.join("f"))?, bits)?;
    }
    for bits in [0o1777, 0o2755, 0o700] {
        ok(chmod(dir.join("d"), Mode::from_raw_mode(bits)))?;
        same(mode(&dir.join("d"))?, bits)?;
    }
    Ok(())
}

fn chmod_keeps(dir: &Path) -> Verdict {
    let f = dir.join("f");
    long_ago(&f)?;
    ok(chmod(&f, Mode::from_raw_mode(0o600)))?;
    let meta = ok(std::fs::metadata(&f))?;
    same((meta.mtime(), meta.len()), (1000, 10))?;
    holds(
        meta.ctime() > 1_000_000,
        "the change of the mode has a time",
    )?;
    same(ok(std::fs::read(&f))?, b"0123456789".to_vec())
}

fn chmod_nothing(dir: &Path) -> Verdict {
    fails(chmod(dir.join("none"), Mode::RUSR), &[Errno::NOENT])?;
    fails(chmod(dir.join("f/x"), Mode::RUSR), &[Errno::NOTDIR])
}

fn chmod_foreign(_: &Path) -> Verdict {
    if bound_by_permissions() {
        fails(
            chmod("/etc/passwd", Mode::RUSR),
            &[Errno::PERM, Errno::ROFS],
        )?;
    }
    Ok(())
}

fn ids() -> (Option<Uid>, Option<Gid>) {
    (
        Some(rustix::process::geteuid()),
        Some(rustix::process::getegid()),
    )
}

fn chown_self(dir: &Path) -> Verdict {
    let (user, group) = ids();
    ok(chownat(CWD, dir.join("f"), user, group, AtFlags::empty()))?;
    ok(chownat(CWD, dir.join("f"), None, None, AtFlags::empty()))
}

fn chown_other(dir: &Path) -> Verdict {
    let other = Some(Uid::from_raw(rustix::process::geteuid().as_raw() + 1));
    let result = chownat(CWD, dir.join("f"), other, None, AtFlags::empty());
    if bound_by_permissions() {
        return fails(result, &[Errno::PERM, Errno::INVAL]);
    }
    ok(result)?;
    same(ok(std::fs::metadata(dir.join("f")))?.uid(), 1)
}

fn chown_link(dir: &Path) -> Verdict {
    ok(std::os::unix::fs::symlink("f", dir.join("l")))?;
    let (user, group) = ids();
    ok(chownat(
        CWD,
        dir.join("l"),
        user,
        group,
        AtFlags::SYMLINK_NOFOLLOW,
    ))
}

fn clears_set_id(dir: &Path) -> Verdict {
    let f = dir.join("f");
    ok(chmod(&f, Mode::from_raw_mode(0o6755)))?;
    ok(rustix::io::pwrite(
        ok(std::fs::OpenOptions::new().write(true).open(&f))?,
        b"x",
        0,
    ))?;
    if bound_by_permissions() {
        same(mode(&f)?, 0o755)?;
    }
    Ok(())
}

fn nanoseconds(dir: &Path) -> Verdict {
    for path in [dir.join("f"), dir.join("d")] {
        set(
            &path,
            (1_600_000_001, 123_456_789),
            (1_600_000_002, 987_654_321),
            AtFlags::empty(),
        )?;
        let meta = ok(std::fs::metadata(&path))?;
        same(
            (meta.mtime(), meta.mtime_nsec()),
            (1_600_000_002, 987_654_321),
        )?;
        same(
            (meta.atime(), meta.atime_nsec()),
            (1_600_000_001, 123_456_789),
        )?;
    }
    Ok(())
}

fn before_1970(dir: &Path) -> Verdict {
    set(&dir.join("f"), (-5, 0), (-7, 1), AtFlags::empty())?;
    let meta = ok(std::fs::metadata(dir.join("f")))?;
    same((meta.atime(), meta.mtime(), meta.mtime_nsec()), (-5, -7, 1))
}

fn omit_and_now(dir: &Path) -> Verdict {
    let f = dir.join("f");
    long_ago(&f)?;
    set(
        &f,
        (0, rustix::fs::UTIME_NOW),
        (0, rustix::fs::UTIME_OMIT),
        AtFlags::empty(),
    )?;
    let meta = ok(std::fs::metadata(&f))?;
    holds(meta.atime() > 1_000_000, "now")?;
    same(meta.mtime(), 1000)
}

fn link_times(dir: &Path) -> Verdict {
    long_ago(&dir.join("f"))?;
    ok(std::os::unix::fs::symlink("f", dir.join("l")))?;
    set(&dir.join("l"), (77, 0), (78, 0), AtFlags::SYMLINK_NOFOLLOW)?;
    same(ok(std::fs::symlink_metadata(dir.join("l")))?.mtime(), 78)?;
    same(ok(std::fs::metadata(dir.join("f")))?.mtime(), 1000)
}

fn get(path: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; 256];
    let length = rustix::fs::lgetxattr(path, name, &mut value)?;
    value.truncate(length);
    Ok(value)
}

fn xattrs(dir: &Path) -> Verdict {
    let f = dir.join("f");
    ok(rustix::fs::setxattr(
        &f,
        "user.one",
        b"1",
        XattrFlags::empty(),
    ))?;
    ok(rustix::fs::setxattr(
        &f,
        "user.two",
        b"\0\xff",
        XattrFlags::empty(),
    ))?;
    same(ok(get(&f, "user.two"))?, b"\0\xff".to_vec())?;
    let mut list = vec![0; 1024];
    let length = ok(rustix::fs::listxattr(&f, &mut list))?;
    let names: Vec<_> = list[..length].split(|b| *b == 0).collect();
    holds(
        names.contains(&b"user.one".as_slice()),
        "the first is listed",
    )?;
    ok(rustix::fs::removexattr(&f, "user.one"))?;
    fails(get(&f, "user.one"), &[Errno::NODATA])
}

fn xattr_flags(dir: &Path) -> Verdict {
    let f = dir.join("f");
    fails(
        rustix::fs::setxattr(&f, "user.x", b"", XattrFlags::REPLACE),
        &[Errno::NODATA],
    )?;
    ok(rustix::fs::setxattr(&f, "user.x", b"", XattrFlags::CREATE))?;
    fails(
        rustix::fs::setxattr(&f, "user.x", b"", XattrFlags::CREATE),
        &[Errno::EXIST],
    )
}

fn xattr_directory(dir: &Path) -> Verdict {
    ok(rustix::fs::setxattr(
        dir.join("d"),
        "user.x",
        b"v",
        XattrFlags::empty(),
    ))?;
    ok(std::fs::write(dir.join("d/n"), b""))?;
    same(ok(get(&dir.join("d"), "user.x"))?, b"v".to_vec())
}

fn xattr_missing(dir: &Path) -> Verdict {
    fails(get(&dir.join("f"), "user.none"), &[Errno::NODATA])?;
    fails(
        rustix::fs::removexattr(dir.join("f"), "user.none"),
        &[Errno::NODATA],
    )
}

fn with_attribute(dir: &Path) -> Verdict {
    file_and_dir(dir)?;
    ok(rustix::fs::setxattr(
        dir.join("f"),
        "user.x",
        b"kept",
        XattrFlags::empty(),
    ))
}

fn xattr_after_write(dir: &Path) -> Verdict {
    ok(std::fs::write(dir.join("f"), b"new"))?;
    same(ok(get(&dir.join("f"), "user.x"))?, b"kept".to_vec())
}

fn overlay_xattr(dir: &Path) -> Verdict {
    // Whether it may be set is the file system's affair; a set one must come back as it is.
    match rustix::fs::setxattr(
        dir.join("d"),
        "user.overlay.opaque",
        b"y",
        XattrFlags::empty(),
    ) {
        Ok(()) => same(
            ok(get(&dir.join("d"), "user.overlay.opaque"))?,
            b"y".to_vec(),
        ),
        Err(_) => Ok(()),
    }
}

fn access(dir: &Path) -> Verdict {
    use rustix::fs::Access;
    let f = dir.join("f");
    ok(std::fs::set_permissions(
        &f,
        PermissionsExt::from_mode(0o400),
    ))?;
    ok(rustix::fs::access(&f, Access::READ_OK))?;
    fails(rustix::fs::access(&f, Access::EXEC_OK), &[Errno::ACCESS])?;
    if bound_by_permissions() {
        fails(rustix::fs::access(&f, Access::WRITE_OK), &[Errno::ACCESS])?;
    }
    fails(
        rustix::fs::access(dir.join("none"), Access::EXISTS),
        &[Errno::NOENT],
    )
}

fn stat(dir: &Path) -> Verdict {
    let meta = ok(std::fs::metadata(dir.join("f")))?;
    same((meta.nlink(), meta.len()), (1, 10))?;
    holds(meta.blocks() <= 16, "ten bytes take little room")
}

fn inode_lasts(dir: &Path) -> Verdict {
    let before = ok(std::fs::metadata(dir.join("f")))?.ino();
    ok(std::fs::write(dir.join("f"), b"new"))?;
    same(ok(std::fs::metadata(dir.join("f")))?.ino(), before)
}

fn statvfs(dir: &Path) -> Verdict {
    let answer = ok(rustix::fs::statvfs(dir))?;
    same(answer.f_namemax, 255)?;
    holds(answer.f_blocks > 0 && answer.f_bsize > 0, "it has a size")
}
