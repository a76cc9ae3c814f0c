//! Names: length, bytes that are no text, dots, and what overlay file systems use for themselves.

use super::{Row, Verdict, fails, file_and_dir, holds, nothing, ok, same};
use rustix::fs::{Mode, OFlags, mkdir, open};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub(super) const CASES: &[Row] = &[
    ("a_name_of_255_bytes_is_allowed", nothing, longest),
    ("a_name_of_256_bytes_is_refused", nothing, too_long),
    (
        "a_path_of_more_than_4095_bytes_is_refused",
        nothing,
        path_too_long,
    ),
    ("any_byte_but_slash_and_nul_is_allowed", nothing, any_byte),
    ("names_differ_by_case", nothing, case),
    ("names_differ_by_normal_form", nothing, normal_form),
    (
        "names_that_look_like_whiteouts_are_names",
        whiteout_names,
        keep_whiteout_names,
    ),
    ("dot_and_dotdot_cannot_be_made", file_and_dir, dots),
    ("slashes_in_a_row_are_one", file_and_dir, slashes),
    (
        "dotdot_of_a_link_is_its_target_s",
        file_and_dir,
        dotdot_of_link,
    ),
];

fn longest(dir: &Path) -> Verdict {
    let name = "n".repeat(255);
    ok(std::fs::write(dir.join(&name), b"x"))?;
    ok(std::fs::remove_file(dir.join(&name)))?;
    ok(std::fs::create_dir(dir.join(&name)))
}

fn too_long(dir: &Path) -> Verdict {
    let path = dir.join("n".repeat(256));
    fails(
        open(&path, OFlags::CREATE | OFlags::WRONLY, Mode::RUSR),
        &[Errno::NAMETOOLONG],
    )?;
    fails(mkdir(&path, Mode::RWXU), &[Errno::NAMETOOLONG])?;
    fails(rustix::fs::rename(dir, &path), &[Errno::NAMETOOLONG])
}

fn path_too_long(dir: &Path) -> Verdict {
    let path = dir.join("./".repeat(2100)).join("f");
    fails(
        open(&path, OFlags::CREATE | OFlags::WRONLY, Mode::RUSR),
        &[Errno::NAMETOOLONG],
    )
}

fn any_byte(dir: &Path) -> Verdict {
    for byte in (1..=255u8).filter(|b| *b != b'/') {
        let name = [b'n', byte, b'n'];
        ok(std::fs::write(dir.join(OsStr::from_bytes(&name)), [byte]))?;
    }
    let mut seen = 0;
    for entry in ok(std::fs::read_dir(dir))? {
        let entry = ok(entry)?;
        same(
            ok(std::fs::read(entry.path()))?,
            vec![entry.file_name().as_bytes()[1]],
        )?;
        seen += 1;
    }
    same(seen, 254)
}

fn case(dir: &Path) -> Verdict {
    ok(std::fs::write(dir.join("name"), b"1"))?;
    ok(std::fs::write(dir.join("NAME"), b"2"))?;
    same(ok(std::fs::read(dir.join("name")))?, b"1".to_vec())
}

fn normal_form(dir: &Path) -> Verdict {
    ok(std::fs::write(dir.join("\u{e9}"), b"1"))?;
    ok(std::fs::write(dir.join("e\u{301}"), b"2"))?;
    same(ok(std::fs::read_dir(dir))?.count(), 2)
}

const LIKE_WHITEOUTS: [&str; 5] = [".wh.f", ".wh..wh..opq", "@f", "#f", ".overlay"];

fn whiteout_names(dir: &Path) -> Verdict {
    LIKE_WHITEOUTS
        .iter()
        .try_for_each(|n| ok(std::fs::write(dir.join(n), n)))
}

fn keep_whiteout_names(dir: &Path) -> Verdict {
    for name in LIKE_WHITEOUTS {
        same(ok(std::fs::read_to_string(dir.join(name)))?.as_str(), name)?;
        ok(std::fs::rename(dir.join(name), dir.join("moved")))?;
        ok(std::fs::rename(dir.join("moved"), dir.join(name)))?;
    }
    same(ok(std::fs::read_dir(dir))?.count(), LIKE_WHITEOUTS.len())
}

fn dots(dir: &Path) -> Verdict {
    let known = [Errno::EXIST, Errno::INVAL, Errno::NOTEMPTY, Errno::BUSY];
    fails(mkdir(dir.join("d/."), Mode::RWXU), &known)?;
    fails(mkdir(dir.join("d/.."), Mode::RWXU), &known)?;
    fails(rustix::fs::rmdir(dir.join("d/.")), &known)?;
    holds(dir.join("d").is_dir(), "it is still there")
}

fn slashes(dir: &Path) -> Verdict {
    let path = format!("{}///./f", dir.display());
    same(ok(std::fs::read(path))?.len(), 10)
}

fn dotdot_of_link(dir: &Path) -> Verdict {
    ok(std::fs::create_dir(dir.join("d/s")))?;
    ok(std::os::unix::fs::symlink("d/s", dir.join("l")))?;
    ok(std::fs::write(dir.join("d/here"), b"x"))?;
    same(ok(std::fs::read(dir.join("l/../here")))?.len(), 1)
}
