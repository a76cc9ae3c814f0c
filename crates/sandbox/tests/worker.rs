//! The worker of ordinary users.

mod common;

use common::Place;
use forkpoint_fs::ops::{FsRequest, FsResponse};
use forkpoint_sandbox::{Identity, Worker, identity};
use std::os::fd::AsFd;
use std::path::Path;

/// Whose worker it is; root needs none, and has one for this test all the same.
fn worker() -> Worker {
    Worker::start(&identity().expect("identity")).expect("start")
}

#[test]
fn a_view_mounted_by_the_worker_is_usable_here() {
    let place = Place::new();
    let stack = place.stack();
    let view = worker().mount_view(&stack, true).expect("view");
    let flags = rustix::fs::OFlags::RDONLY;
    let read = forkpoint_sys::openat::beneath(
        view.as_fd(),
        Path::new("file"),
        flags,
        rustix::fs::Mode::empty(),
    );
    let mut file = std::fs::File::from(read.expect("open"));
    let mut text = String::new();
    std::io::Read::read_to_string(&mut file, &mut text).expect("read");
    assert_eq!(text, "base\n");
}

#[test]
fn the_worker_removes_what_the_user_cannot() {
    let place = Place::new();
    let dir = place.dir.path().join("delta/locked/below");
    std::fs::create_dir_all(&dir).expect("mkdir");
    std::fs::write(dir.join("file"), "x").expect("write");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o0);
    std::fs::set_permissions(dir.parent().expect("parent"), mode).expect("chmod");
    let path = place.dir.path().join("delta");
    let done = worker().call(FsRequest::Remove { path: path.clone() });
    assert_eq!(done.expect("remove"), FsResponse::Done);
    assert!(!path.exists());
}

#[test]
fn an_error_comes_back_as_itself() {
    let dir = Path::new("/no/such/tree").to_owned();
    let error = worker()
        .call(FsRequest::Usage { dir })
        .expect_err("missing");
    assert!(error.code.starts_with("FP02"), "{error}");
}

#[test]
fn threads_share_a_worker() {
    let place = Place::new();
    let worker = worker();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let dir = place.base.clone();
                let used = worker.call(FsRequest::Usage { dir }).expect("usage");
                assert!(matches!(used, FsResponse::Usage(_)), "{used:?}");
            });
        }
    });
}

#[test]
fn a_held_lock_outlives_its_owner_until_the_worker_ends() {
    use rustix::fs::{FlockOperation, flock};
    let place = Place::new();
    let worker = worker();
    let open = || std::fs::File::open(place.base.join("file")).expect("open");
    let lock = open();
    flock(&lock, FlockOperation::LockExclusive).expect("lock");
    worker.hold(lock.as_fd()).expect("hold");
    drop(lock);
    let other = open();
    let attempt = flock(&other, FlockOperation::NonBlockingLockExclusive);
    assert!(attempt.is_err(), "the worker holds it");
    drop(worker);
    flock(&other, FlockOperation::NonBlockingLockExclusive).expect("free");
}

#[test]
fn an_identity_that_cannot_be_mapped_is_refused() {
    if common::is_root() {
        eprintln!("SKIP: root may map any id");
        return;
    }
    let somebody = Identity::User {
        uid: 4242,
        gid: 4242,
        sub: Vec::new(),
    };
    let error = Worker::start(&somebody).expect_err("not ours");
    assert_eq!(error.code, "FP0301");
}
