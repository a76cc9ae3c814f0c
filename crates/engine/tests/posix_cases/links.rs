//! Hard links and symbolic links.

use super::{Row, Verdict, fails, file_and_dir, holds, nothing, ok, same};
use rustix::fs::{AtFlags, CWD, linkat, readlink, symlink};
use rustix::io::Errno;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

pub(super) const CASES: &[Row] = &[
    ("link_makes_a_second_name", file_and_dir, second_name),
    ("link_refuses_what_is_there", file_and_dir, link_there),
    ("link_refuses_a_directory", file_and_dir, link_directory),
    ("link_of_nothing_is_refused", nothing, link_nothing),
    ("links_of_one_file_share_what_is_written", two_names, share),
    (
        "links_made_here_share_what_is_written",
        file_and_dir,
        share_new,
    ),
    ("unlinking_one_name_keeps_the_other", two_names, keeps_other),
    (
        "renaming_one_link_over_the_other_does_nothing",
        two_names,
        over_itself,
    ),
    ("symlink_keeps_any_text", nothing, any_text),
    ("symlink_refuses_what_is_there", file_and_dir, symlink_there),
    ("symlink_of_an_empty_text_is_refused", nothing, empty_text),
    ("symlink_of_4095_bytes_is_kept", nothing, long_text),
    ("readlink_of_a_file_is_refused", file_and_dir, readlink_file),
    ("lstat_is_of_the_link", file_and_dir, lstat),
    ("removing_a_link_keeps_its_target", with_link, remove_link),
    ("writing_through_a_link_keeps_it", with_link, write_through),
    ("a_link_can_be_linked", with_link, link_to_link),
];

fn second_name(dir: &Path) -> Verdict {
    ok(std::fs::hard_link(dir.join("f"), dir.join("g")))?;
    let (f, g) = (
        ok(std::fs::metadata(dir.join("f")))?,
        ok(std::fs::metadata(dir.join("g")))?,
    );
    same((f.nlink(), g.nlink()), (2, 2))?;
    same((f.dev(), f.ino()), (g.dev(), g.ino()))
}

fn link(from: &Path, to: &Path) -> Result<(), Errno> {
    linkat(CWD, from, CWD, to, AtFlags::empty())
}

fn link_there(dir: &Path) -> Verdict {
    fails(link(&dir.join("f"), &dir.join("d")), &[Errno::EXIST])?;
    fails(link(&dir.join("f"), &dir.join("f")), &[Errno::EXIST])
}

fn link_directory(dir: &Path) -> Verdict {
    fails(link(&dir.join("d"), &dir.join("e")), &[Errno::PERM])
}

fn link_nothing(dir: &Path) -> Verdict {
    fails(link(&dir.join("none"), &dir.join("e")), &[Errno::NOENT])
}

fn two_names(dir: &Path) -> Verdict {
    ok(std::fs::write(dir.join("f"), b"one"))?;
    ok(std::fs::hard_link(dir.join("f"), dir.join("g")))
}

fn share(dir: &Path) -> Verdict {
    ok(std::fs::write(dir.join("f"), b"two"))?;
    same(ok(std::fs::read(dir.join("g")))?, b"two".to_vec())
}

fn share_new(dir: &Path) -> Verdict {
    ok(std::fs::hard_link(dir.join("f"), dir.join("g")))?;
    share(dir)
}

fn keeps_other(dir: &Path) -> Verdict {
    ok(std::fs::remove_file(dir.join("f")))?;
    same(ok(std::fs::read(dir.join("g")))?, b"one".to_vec())
}

fn over_itself(dir: &Path) -> Verdict {
    ok(std::fs::rename(dir.join("f"), dir.join("g")))?;
    same(ok(std::fs::read(dir.join("g")))?, b"one".to_vec())
}

fn any_text(dir: &Path) -> Verdict {
    for (n, text) in [&b"a b"[..], b"/nowhere", b"\xff\n", b"../..//x"]
        .into_iter()
        .enumerate()
    {
        let path = dir.join(format!("l{n}"));
        ok(symlink(text, &path))?;
        same(ok(readlink(&path, Vec::new()))?.as_bytes(), text)?;
    }
    Ok(())
}

fn symlink_there(dir: &Path) -> Verdict {
    fails(symlink("x", dir.join("f")), &[Errno::EXIST])?;
    fails(symlink("x", dir.join("none/l")), &[Errno::NOENT])
}

fn empty_text(dir: &Path) -> Verdict {
    fails(symlink("", dir.join("l")), &[Errno::NOENT])
}

fn long_text(dir: &Path) -> Verdict {
    let text = "t/".repeat(2047) + "t";
    ok(symlink(text.as_str(), dir.join("l")))?;
    same(
        ok(readlink(dir.join("l"), Vec::new()))?.as_bytes(),
        text.as_bytes(),
    )?;
    same(ok(std::fs::symlink_metadata(dir.join("l")))?.len(), 4095)
}

fn readlink_file(dir: &Path) -> Verdict {
    fails(readlink(dir.join("f"), Vec::new()), &[Errno::INVAL])?;
    fails(readlink(dir.join("d"), Vec::new()), &[Errno::INVAL])
}

fn lstat(dir: &Path) -> Verdict {
    ok(symlink("f", dir.join("l")))?;
    let meta = ok(std::fs::symlink_metadata(dir.join("l")))?;
    holds(meta.file_type().is_symlink(), "it is a link")?;
    same(meta.len(), 1)
}

fn with_link(dir: &Path) -> Verdict {
    file_and_dir(dir)?;
    ok(symlink("f", dir.join("l")))
}

fn remove_link(dir: &Path) -> Verdict {
    ok(std::fs::remove_file(dir.join("l")))?;
    same(ok(std::fs::read(dir.join("f")))?.len(), 10)
}

fn write_through(dir: &Path) -> Verdict {
    ok(std::fs::write(dir.join("l"), b"new"))?;
    holds(
        ok(std::fs::symlink_metadata(dir.join("l")))?
            .file_type()
            .is_symlink(),
        "still a link",
    )?;
    same(ok(std::fs::read(dir.join("f")))?, b"new".to_vec())
}

fn link_to_link(dir: &Path) -> Verdict {
    ok(link(&dir.join("l"), &dir.join("m")))?;
    holds(
        ok(std::fs::symlink_metadata(dir.join("m")))?
            .file_type()
            .is_symlink(),
        "a link too",
    )?;
    ok(symlink("l", dir.join("n")))?;
    same(ok(std::fs::read(dir.join("n")))?.len(), 10)
}
