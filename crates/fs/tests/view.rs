//! Views: every kernel interface, what their root looks like, and the traps of the mount calls.

mod common;

use common::{Layers, everywhere, root_of};
use forkpoint_fs::view::{self, Method};
use forkpoint_fs::{MountOptions, Stack, probe, tree};
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

#[test]
fn every_interface_mounts_the_same_view() {
    everywhere("every_interface_mounts_the_same_view", |userxattr| {
        for method in [
            Method::Descriptors,
            Method::Texts,
            Method::OneText,
            Method::Mount2,
        ] {
            let mut layers = Layers::new(userxattr);
            fs::write(layers.base().join("f"), "base").expect("write");
            layers.level(|view| fs::write(view.join("g"), "level").expect("write"));
            let stack = layers.next_stack();
            let fd = match view::mount_by(&stack, &layers.options(), Some(method)) {
                Ok(fd) => fd,
                Err(e) => {
                    // A kernel may lack the newer ones, but never all of them.
                    eprintln!("SKIP: {method:?}: {e}");
                    assert_ne!(method, Method::Mount2, "{e}");
                    continue;
                }
            };
            let root = root_of(&fd);
            assert_eq!(
                fs::read(root.join("f")).expect("read"),
                b"base",
                "{method:?}"
            );
            assert_eq!(
                fs::read(root.join("g")).expect("read"),
                b"level",
                "{method:?}"
            );
            fs::write(root.join("f"), "mine").expect("write");
            fs::remove_file(root.join("g")).expect("remove");
            assert_eq!(fs::read(layers.base().join("f")).expect("read"), b"base");
            assert_eq!(
                fs::read(stack.upper.join("f")).expect("read"),
                b"mine",
                "{method:?}"
            );
        }
    });
}

#[test]
fn the_root_of_a_view_looks_like_its_base() {
    everywhere("the_root_of_a_view_looks_like_its_base", |userxattr| {
        let mut layers = Layers::new(userxattr);
        let base = layers.base().to_owned();
        rustix::fs::setxattr(&base, "user.k", b"v", rustix::fs::XattrFlags::empty()).expect("set");
        fs::set_permissions(&base, fs::Permissions::from_mode(0o2751)).expect("chmod");
        let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_234_567_890, 987);
        let dir = fs::File::open(&base).expect("open");
        dir.set_times(fs::FileTimes::new().set_modified(time))
            .expect("times");
        let stack = layers.next_stack();
        let fd = view::mount(&stack, &layers.options()).expect("mount");
        let root = fs::metadata(root_of(&fd)).expect("stat");
        assert_eq!(root.mode() & 0o7777, 0o2751);
        assert_eq!(root.modified().expect("mtime"), time);
        let mut value = [0; 8];
        let len = rustix::fs::getxattr(root_of(&fd), "user.k", &mut value).expect("get");
        assert_eq!(&value[..len], b"v");
        // Nothing changed yet.
        drop(fd);
        layers.layers.insert(0, stack.upper);
        let set = forkpoint_fs::delta::diff(&layers.layers, 1, &layers.diff_options());
        let set = set.expect("diff");
        assert!(set.is_empty() && set.dir_times.is_empty(), "{set:?}");
    });
}

#[test]
fn a_volatile_view_can_be_mounted_again() {
    everywhere("a_volatile_view_can_be_mounted_again", |userxattr| {
        let mut layers = Layers::new(userxattr);
        let stack = layers.next_stack();
        for round in 0..3 {
            let fd = view::mount(&stack, &layers.options()).expect("mount");
            fs::write(root_of(&fd).join(format!("f{round}")), "x").expect("write");
            assert_eq!(
                fs::read_dir(root_of(&fd)).expect("read dir").count(),
                round + 1
            );
        }
        let durable = MountOptions {
            volatile: false,
            ..layers.options()
        };
        let fd = view::mount(&stack, &durable).expect("mount");
        assert_eq!(fs::read_dir(root_of(&fd)).expect("read dir").count(), 3);
    });
}

#[test]
fn a_view_that_comes_up_read_only_is_an_error() {
    // The kernel mounts read-only, with no error, when it cannot clear its directory in the work
    // directory: here because something too deep for it is in there.
    everywhere("a_view_that_comes_up_read_only_is_an_error", |userxattr| {
        let mut layers = Layers::new(userxattr);
        let stack = layers.next_stack();
        fs::create_dir_all(stack.work.join("work/a/b/c/d")).expect("mkdir");
        let error = view::mount(&stack, &layers.options()).expect_err("cannot be written");
        assert_eq!(error.code, "FP0201", "{error}");
    });
}

#[test]
fn a_refusal_says_what_the_kernel_said() {
    everywhere("a_refusal_says_what_the_kernel_said", |userxattr| {
        let layers = Layers::new(userxattr);
        let upper = PathBuf::from("/proc/sys/kernel");
        let stack = Stack {
            lowers: layers.layers.clone(),
            upper: upper.clone(),
            work: upper,
        };
        let error = view::mount(&stack, &layers.options()).expect_err("an upper in /proc");
        assert_eq!(error.code, "FP0200");
        assert!(error.message.contains("not supported"), "{error}");
    });
}

#[test]
fn a_single_layer_is_read_only() {
    everywhere("a_single_layer_is_read_only", |userxattr| {
        let layers = Layers::new(userxattr);
        fs::write(layers.base().join("f"), "x").expect("write");
        let fd = view::mount_readonly(&layers.layers, &layers.options()).expect("view");
        assert_eq!(fs::read(root_of(&fd).join("f")).expect("read"), b"x");
        let error = fs::write(root_of(&fd).join("g"), "x").expect_err("read-only");
        assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    });
}

#[test]
fn a_stack_without_layers_or_with_too_many_is_refused() {
    let options = MountOptions::default();
    let error = view::mount_fds(&[], None, &options).expect_err("no layer");
    assert_eq!(error.code, "FP0202");
    let dir = fs::File::open("/").expect("open");
    let many = vec![dir.as_fd(); 501];
    assert_eq!(
        view::mount_fds(&many, None, &options)
            .expect_err("too many")
            .code,
        "FP0202"
    );
}

#[test]
fn two_hundred_layers_with_long_paths_are_mounted() {
    everywhere(
        "two_hundred_layers_with_long_paths_are_mounted",
        |userxattr| {
            let mut layers = Layers::new(userxattr);
            let long = layers
                .dir
                .path()
                .join("l".repeat(200))
                .join("m,:\\".repeat(40));
            fs::create_dir_all(&long).expect("mkdir");
            for layer in 0..200 {
                let path = long.join(layer.to_string());
                fs::create_dir(&path).expect("mkdir");
                fs::write(path.join(format!("f{layer}")), "x").expect("write");
                layers.layers.insert(0, path);
            }
            let stack = layers.next_stack();
            let fd = view::mount(&stack, &layers.options()).expect("mount");
            assert_eq!(fs::read_dir(root_of(&fd)).expect("read dir").count(), 200);
        },
    );
}

#[test]
fn what_the_machine_can_do_is_found() {
    everywhere("what_the_machine_can_do_is_found", |userxattr| {
        let layers = Layers::new(userxattr);
        let found = probe::support(layers.dir.path(), layers.base(), userxattr).expect("probe");
        assert!(found.overlay, "{found:?}");
        assert!(found.exchange && found.same_mount && !found.remote && !found.read_only);
        assert_eq!(
            fs::read_dir(layers.dir.path()).expect("read dir").count(),
            1,
            "left behind"
        );
        // An upper on an overlay cannot be had, and that is said.
        let fd = view::mount_readonly(&[layers.base().to_owned()], &layers.options());
        drop(fd);
        let mut inner = Layers::new(userxattr);
        let stack = inner.next_stack();
        let on_overlay = view::mount(&stack, &inner.options()).expect("mount");
        let store = root_of(&on_overlay).join("store");
        fs::create_dir(&store).expect("mkdir");
        let found = probe::support(&store, layers.base(), userxattr).expect("probe");
        assert!(!found.overlay && found.why_not.is_some(), "{found:?}");
        tree::remove(&store).expect("remove");
    });
}
