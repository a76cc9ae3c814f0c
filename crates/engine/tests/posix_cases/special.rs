//! FIFOs, sockets, devices, and descriptors of directories.

use super::{Row, Verdict, fails, file_and_dir, holds, nothing, ok, same, tree};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, mknodat, open, openat, statat, unlinkat};
use rustix::io::Errno;
use std::io::{Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

pub(super) const CASES: &[Row] = &[
    ("a_fifo_carries_bytes", fifo, carries),
    ("a_fifo_without_a_reader_refuses_a_writer", fifo, no_reader),
    ("a_socket_can_be_bound_and_reached", nothing, socket),
    ("a_bound_name_is_not_bound_twice", nothing, bound_twice),
    ("a_device_needs_privilege", nothing, device),
    ("names_are_relative_to_a_descriptor", tree, relative),
    ("a_descriptor_follows_its_directory", tree, follows),
    ("unlinkat_tells_directories_from_files", tree, unlink_kinds),
    (
        "statat_of_an_empty_name_is_of_the_descriptor",
        file_and_dir,
        empty_name,
    ),
    ("notify_tells_of_a_new_file", file_and_dir, notify),
];

fn fifo(dir: &Path) -> Verdict {
    ok(mknodat(
        CWD,
        dir.join("p"),
        FileType::Fifo,
        Mode::RUSR | Mode::WUSR,
        0,
    ))
}

fn carries(dir: &Path) -> Verdict {
    holds(
        ok(std::fs::metadata(dir.join("p")))?.file_type().is_fifo(),
        "a FIFO",
    )?;
    let both = ok(open(dir.join("p"), OFlags::RDWR, Mode::empty()))?;
    let mut both = std::fs::File::from(both);
    ok(both.write_all(b"bytes"))?;
    let mut text = [0; 5];
    ok(both.read_exact(&mut text))?;
    same(&text, b"bytes")
}

fn no_reader(dir: &Path) -> Verdict {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK;
    fails(open(dir.join("p"), flags, Mode::empty()), &[Errno::NXIO])
}

fn socket(dir: &Path) -> Verdict {
    // A socket's address is short, wherever the test lies.
    let here = ok(open(dir, OFlags::PATH, Mode::empty()))?;
    let path = format!("/proc/self/fd/{}/s", std::os::fd::AsRawFd::as_raw_fd(&here));
    let listener = ok(std::os::unix::net::UnixListener::bind(&path))?;
    let mut one = ok(std::os::unix::net::UnixStream::connect(&path))?;
    let (mut two, _) = ok(listener.accept())?;
    ok(one.write_all(b"x"))?;
    let mut text = [0; 1];
    ok(two.read_exact(&mut text))?;
    holds(
        ok(std::fs::metadata(dir.join("s")))?
            .file_type()
            .is_socket(),
        "a socket",
    )
}

fn bound_twice(dir: &Path) -> Verdict {
    let here = ok(open(dir, OFlags::PATH, Mode::empty()))?;
    let path = format!("/proc/self/fd/{}/s", std::os::fd::AsRawFd::as_raw_fd(&here));
    let _first = ok(std::os::unix::net::UnixListener::bind(&path))?;
    match std::os::unix::net::UnixListener::bind(&path) {
        Ok(_) => Err("it was bound twice".to_owned()),
        Err(e) => same(e.kind(), std::io::ErrorKind::AddrInUse),
    }
}

fn device(dir: &Path) -> Verdict {
    if super::bound_by_permissions() {
        let made = mknodat(
            CWD,
            dir.join("n"),
            FileType::CharacterDevice,
            Mode::RUSR,
            0x103,
        );
        fails(made, &[Errno::PERM])?;
    }
    Ok(())
}

fn relative(dir: &Path) -> Verdict {
    let d = ok(open(
        dir.join("d"),
        OFlags::PATH | OFlags::DIRECTORY,
        Mode::empty(),
    ))?;
    let file = ok(openat(&d, "s/g", OFlags::RDONLY, Mode::empty()))?;
    let mut text = String::new();
    ok(std::fs::File::from(file).read_to_string(&mut text))?;
    same(text.as_str(), "deep")
}

fn follows(dir: &Path) -> Verdict {
    ok(std::fs::create_dir(dir.join("e")))?;
    let e = ok(open(
        dir.join("e"),
        OFlags::PATH | OFlags::DIRECTORY,
        Mode::empty(),
    ))?;
    ok(std::fs::rename(dir.join("e"), dir.join("moved")))?;
    ok(openat(&e, "n", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR))?;
    holds(dir.join("moved/n").exists(), "it was made there")
}

fn unlink_kinds(dir: &Path) -> Verdict {
    let d = ok(open(
        dir.join("d"),
        OFlags::PATH | OFlags::DIRECTORY,
        Mode::empty(),
    ))?;
    fails(unlinkat(&d, "f", AtFlags::REMOVEDIR), &[Errno::NOTDIR])?;
    fails(
        unlinkat(&d, "s", AtFlags::empty()),
        &[Errno::ISDIR, Errno::PERM],
    )?;
    ok(unlinkat(&d, "f", AtFlags::empty()))
}

fn empty_name(dir: &Path) -> Verdict {
    let f = ok(open(dir.join("f"), OFlags::RDONLY, Mode::empty()))?;
    same(ok(statat(&f, "", AtFlags::EMPTY_PATH))?.st_size, 10)
}

fn notify(dir: &Path) -> Verdict {
    use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};
    let notify = ok(init(CreateFlags::NONBLOCK))?;
    ok(add_watch(&notify, dir.join("d"), WatchFlags::CREATE))?;
    ok(std::fs::write(dir.join("d/n"), b""))?;
    let mut room = [std::mem::MaybeUninit::uninit(); 512];
    let mut reader = Reader::new(&notify, &mut room);
    let event = ok(reader.next())?;
    same(event.file_name(), Some(c"n"))
}
