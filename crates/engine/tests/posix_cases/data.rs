//! What files hold: reading, writing, holes, truncation, mappings, copies inside the kernel, locks.

use super::{Row, Verdict, fails, file_and_dir, holds, nothing, ok, same};
use rustix::fs::{
    FallocateFlags, FlockOperation, Mode, OFlags, SeekFrom, fallocate, flock, ftruncate, open, seek,
};
use rustix::io::{Errno, pread, pwrite};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

pub(super) const CASES: &[Row] = &[
    ("writing_in_the_middle_keeps_the_rest", file_and_dir, middle),
    ("writing_past_the_end_leaves_zeros", file_and_dir, past_end),
    ("a_hole_takes_no_room_and_is_found", nothing, hole),
    ("holes_are_kept_by_a_first_write", holed, hole_is_kept),
    ("truncate_grows_with_zeros", file_and_dir, grows),
    ("truncate_shrinks_for_good", file_and_dir, shrinks),
    (
        "truncate_of_a_directory_is_refused",
        file_and_dir,
        truncate_directory,
    ),
    (
        "a_write_to_a_reader_s_descriptor_is_refused",
        file_and_dir,
        read_only_descriptor,
    ),
    (
        "a_seek_before_the_start_is_refused",
        file_and_dir,
        seek_before,
    ),
    ("fallocate_makes_room", file_and_dir, makes_room),
    ("punching_a_hole_reads_as_zeros", file_and_dir, punches),
    ("copy_file_range_copies", file_and_dir, copies),
    ("sendfile_sends", file_and_dir, sends),
    ("fsync_and_fdatasync_succeed", file_and_dir, syncs),
    (
        "fsync_of_a_directory_succeeds",
        file_and_dir,
        syncs_directory,
    ),
    ("flock_excludes_another_description", file_and_dir, excludes),
    ("flock_is_shared_by_readers", file_and_dir, shared_lock),
    ("record_locks_exclude_by_range", file_and_dir, record_locks),
    ("many_small_writes_add_up", nothing, many_writes),
    ("a_file_of_64_mebibytes_is_what_was_written", nothing, big),
    (
        "two_descriptors_see_each_other_s_writes",
        file_and_dir,
        two_descriptors,
    ),
    ("writing_changes_the_times", file_and_dir, times),
];

fn writer(path: &Path) -> Result<File, String> {
    ok(OpenOptions::new().read(true).write(true).open(path))
}

fn middle(dir: &Path) -> Verdict {
    let f = writer(&dir.join("f"))?;
    ok(pwrite(&f, b"XY", 4))?;
    same(ok(std::fs::read(dir.join("f")))?, b"0123XY6789".to_vec())
}

fn past_end(dir: &Path) -> Verdict {
    let f = writer(&dir.join("f"))?;
    ok(pwrite(&f, b"Z", 14))?;
    same(
        ok(std::fs::read(dir.join("f")))?,
        b"0123456789\0\0\0\0Z".to_vec(),
    )
}

fn holed(dir: &Path) -> Verdict {
    let f = ok(File::create(dir.join("h")))?;
    ok(f.set_len(8 << 20))?;
    ok(pwrite(&f, b"end", (8 << 20) - 3)).map(drop)
}

fn hole(dir: &Path) -> Verdict {
    holed(dir)?;
    hole_is_found(&dir.join("h"))
}

fn hole_is_found(path: &Path) -> Verdict {
    let f = writer(path)?;
    let meta = ok(f.metadata())?;
    same(meta.len(), 8 << 20)?;
    holds(
        meta.blocks() * 512 < 1 << 20,
        "it takes less than it is long",
    )?;
    let data = ok(seek(&f, SeekFrom::Data(0)))?;
    holds(data > 4 << 20, "its data begins late")
}

fn hole_is_kept(dir: &Path) -> Verdict {
    let f = writer(&dir.join("h"))?;
    ok(pwrite(&f, b"END", (8 << 20) - 3))?;
    drop(f);
    hole_is_found(&dir.join("h"))
}

fn grows(dir: &Path) -> Verdict {
    ok(writer(&dir.join("f"))?.set_len(12))?;
    same(
        ok(std::fs::read(dir.join("f")))?,
        b"0123456789\0\0".to_vec(),
    )
}

fn shrinks(dir: &Path) -> Verdict {
    let f = writer(&dir.join("f"))?;
    ok(f.set_len(3))?;
    ok(f.set_len(5))?;
    same(ok(std::fs::read(dir.join("f")))?, b"012\0\0".to_vec())
}

fn truncate_directory(dir: &Path) -> Verdict {
    let d = ok(open(dir.join("d"), OFlags::RDONLY, Mode::empty()))?;
    fails(ftruncate(&d, 0), &[Errno::INVAL, Errno::BADF])
}

fn read_only_descriptor(dir: &Path) -> Verdict {
    let f = ok(File::open(dir.join("f")))?;
    fails(pwrite(&f, b"x", 0), &[Errno::BADF])?;
    fails(ftruncate(&f, 0), &[Errno::INVAL, Errno::BADF])
}

fn seek_before(dir: &Path) -> Verdict {
    let f = writer(&dir.join("f"))?;
    fails(seek(&f, SeekFrom::Current(-1)), &[Errno::INVAL])?;
    fails(seek(&f, SeekFrom::Data(100)), &[Errno::NXIO])
}

fn makes_room(dir: &Path) -> Verdict {
    let f = writer(&dir.join("f"))?;
    ok(fallocate(&f, FallocateFlags::empty(), 0, 1 << 16))?;
    same(ok(f.metadata())?.len(), 1 << 16)?;
    ok(fallocate(&f, FallocateFlags::KEEP_SIZE, 0, 1 << 17))?;
    same(ok(f.metadata())?.len(), 1 << 16)
}

fn punches(dir: &Path) -> Verdict {
    let f = writer(&dir.join("f"))?;
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    ok(fallocate(&f, flags, 2, 3))?;
    same(
        ok(std::fs::read(dir.join("f")))?,
        b"01\0\0\x0056789".to_vec(),
    )
}

fn copies(dir: &Path) -> Verdict {
    let (from, to) = (
        ok(File::open(dir.join("f")))?,
        ok(File::create(dir.join("to")))?,
    );
    let mut at = 2;
    let copied = ok(rustix::fs::copy_file_range(
        &from,
        Some(&mut at),
        &to,
        None,
        5,
    ))?;
    same((copied, at), (5, 7))?;
    same(ok(std::fs::read(dir.join("to")))?, b"23456".to_vec())
}

fn sends(dir: &Path) -> Verdict {
    let (from, to) = (
        ok(File::open(dir.join("f")))?,
        ok(File::create(dir.join("to")))?,
    );
    same(ok(rustix::fs::sendfile(&to, &from, None, 100))?, 10)?;
    same(ok(std::fs::read(dir.join("to")))?.len(), 10)
}

fn syncs(dir: &Path) -> Verdict {
    let mut f = writer(&dir.join("f"))?;
    ok(f.write_all(b"x"))?;
    ok(f.sync_data())?;
    ok(f.sync_all())
}

fn syncs_directory(dir: &Path) -> Verdict {
    ok(std::fs::write(dir.join("d/n"), b"x"))?;
    ok(ok(File::open(dir.join("d")))?.sync_all())
}

fn excludes(dir: &Path) -> Verdict {
    let (one, two) = (writer(&dir.join("f"))?, writer(&dir.join("f"))?);
    ok(flock(&one, FlockOperation::LockExclusive))?;
    fails(
        flock(&two, FlockOperation::NonBlockingLockExclusive),
        &[Errno::WOULDBLOCK],
    )?;
    ok(flock(&one, FlockOperation::Unlock))?;
    ok(flock(&two, FlockOperation::NonBlockingLockExclusive))
}

fn shared_lock(dir: &Path) -> Verdict {
    let (one, two) = (
        ok(File::open(dir.join("f")))?,
        ok(File::open(dir.join("f")))?,
    );
    ok(flock(&one, FlockOperation::LockShared))?;
    ok(flock(&two, FlockOperation::NonBlockingLockShared))?;
    fails(
        flock(&two, FlockOperation::NonBlockingLockExclusive),
        &[Errno::WOULDBLOCK],
    )
}

fn record_locks(dir: &Path) -> Verdict {
    // Within one process record locks never conflict; that they can be taken and released is what can be checked here.
    let f = writer(&dir.join("f"))?;
    ok(rustix::fs::fcntl_lock(
        &f,
        FlockOperation::NonBlockingLockExclusive,
    ))?;
    ok(rustix::fs::fcntl_lock(
        &f,
        FlockOperation::NonBlockingLockShared,
    ))?;
    ok(rustix::fs::fcntl_lock(&f, FlockOperation::Unlock))
}

fn many_writes(dir: &Path) -> Verdict {
    let mut f = ok(File::create(dir.join("m")))?;
    for n in 0..5000u32 {
        ok(f.write_all(&n.to_le_bytes()))?;
    }
    let text = ok(std::fs::read(dir.join("m")))?;
    let right = (0..5000u32).flat_map(u32::to_le_bytes);
    holds(text.iter().copied().eq(right), "every number is there")
}

fn big(dir: &Path) -> Verdict {
    let block: Vec<u8> = (0..1 << 20).map(|n: u32| (n * 7 + n / 251) as u8).collect();
    let mut f = ok(File::create(dir.join("big")))?;
    for _ in 0..64 {
        ok(f.write_all(&block))?;
    }
    let f = ok(File::open(dir.join("big")))?;
    same(ok(f.metadata())?.len(), 64 << 20)?;
    let mut read = vec![0; 1 << 20];
    for index in [0u64, 31, 63] {
        same(ok(pread(&f, &mut read, index << 20))?, 1 << 20)?;
        holds(read == block, "the block is what was written")?;
    }
    Ok(())
}

fn two_descriptors(dir: &Path) -> Verdict {
    let (one, two) = (writer(&dir.join("f"))?, writer(&dir.join("f"))?);
    ok(pwrite(&one, b"A", 0))?;
    ok(pwrite(&two, b"B", 1))?;
    let mut text = [0; 2];
    ok(pread(&one, &mut text, 0))?;
    same(&text, b"AB")
}

fn times(dir: &Path) -> Verdict {
    super::attributes::long_ago(&dir.join("f"))?;
    ok(pwrite(writer(&dir.join("f"))?, b"x", 0))?;
    let meta = ok(std::fs::metadata(dir.join("f")))?;
    holds(
        meta.mtime() > 1_000_000 && meta.ctime() > 1_000_000,
        "new times",
    )
}
