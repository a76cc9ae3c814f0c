//! Power loss: a real file system on a loop device is shut down at every call of a commit, mounted
//! again, and recovered from a journal that was kept elsewhere. For root.

mod common;

use common::apply::exact;
use common::fault::{Fault, Layer};
use common::{Layers, root_of, snapshot};
use forkpoint_fs::apply::io::Io;
use forkpoint_fs::apply::{self, Journal, Owners, Redo, StageRequest};
use forkpoint_fs::{delta, stamp};
use forkpoint_sys::{ioctl, openat};
use std::fs;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Command;

/// A file system of its own, mounted from an image.
struct Device {
    dir: tempfile::TempDir,
    mounted: bool,
}

fn run(program: &str, args: &[&str]) -> Result<(), String> {
    let output = Command::new(program)
        .args(args)
        .output()
        .map_err(|e| e.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

impl Device {
    fn new(mkfs: &[&str], size: u64) -> Result<Self, String> {
        let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
        let image = dir.path().join("image");
        let file = fs::File::create(&image).map_err(|e| e.to_string())?;
        file.set_len(size).map_err(|e| e.to_string())?;
        let mut args = mkfs[1..].to_vec();
        let image = image.to_str().ok_or("a name that is not UTF-8")?.to_owned();
        args.push(&image);
        run(mkfs[0], &args)?;
        fs::create_dir(dir.path().join("mnt")).map_err(|e| e.to_string())?;
        let mut device = Self {
            dir,
            mounted: false,
        };
        device.mount()?;
        Ok(device)
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    fn mount(&mut self) -> Result<(), String> {
        let image = self.dir.path().join("image");
        let (image, mnt) = (image.to_string_lossy(), self.path());
        run("mount", &["-o", "loop", &image, &mnt.to_string_lossy()])?;
        self.mounted = true;
        Ok(())
    }

    fn unmount(&mut self) {
        let path = self.path();
        forkpoint_fs::view::settle();
        run("umount", &[&path.to_string_lossy()]).expect("umount");
        self.mounted = false;
    }

    fn lose_power(&self) {
        let root = openat::directory(&self.path()).expect("open");
        ioctl::shutdown(root.as_fd(), ioctl::Shutdown::PowerLoss).expect("shutdown");
    }

    fn come_back(&mut self) {
        self.unmount();
        self.mount().expect("mount again");
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.mounted {
            let path = self.path();
            if let Err(e) = run("umount", &[&path.to_string_lossy()]) {
                eprintln!("left mounted: {e}");
            }
        }
    }
}

const FILES: usize = 24;

/// A base on the device, and one layer on the test's own file system.
struct Case {
    layers: Layers,
    base: PathBuf,
    stage: PathBuf,
}

fn case(device: &Device, number: usize) -> Case {
    let top = device.path().join(format!("case-{number}"));
    let base = top.join("base");
    for dir in ["d", "gone"] {
        fs::create_dir_all(base.join(dir)).expect("mkdir");
    }
    fs::write(base.join("gone/x"), "x").expect("write");
    fs::write(base.join("chmod"), "x").expect("write");
    for n in 0..FILES {
        fs::write(base.join(format!("d/f{n}")), format!("old {n}")).expect("write");
    }
    let stage = top.join("stage");
    fs::create_dir(&stage).expect("mkdir");
    openat::syncfs(openat::directory(&top).expect("open").as_fd()).expect("sync");
    let mut layers = Layers::new(false);
    layers.layers = vec![base.clone()];
    layers.level(|view| {
        for n in 0..FILES {
            fs::write(view.join(format!("d/f{n}")), vec![n as u8; 20_000]).expect("write");
        }
        fs::create_dir_all(view.join("tree/deep")).expect("mkdir");
        fs::write(view.join("tree/deep/leaf"), vec![9; 100_000]).expect("write");
        std::os::unix::fs::symlink("x", view.join("link")).expect("symlink");
        fs::remove_dir_all(view.join("gone")).expect("remove");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o711);
        fs::set_permissions(view.join("chmod"), mode).expect("chmod");
    });
    Case {
        layers,
        base,
        stage,
    }
}

impl Case {
    fn request(&self) -> StageRequest {
        let layers = self.layers.layers.clone();
        let changes = delta::diff(&layers, 1, &self.layers.diff_options()).expect("diff");
        let stamp = stamp::take(&self.stage).expect("stamp");
        StageRequest {
            layers,
            top: 1,
            changes,
            base: self.base.clone(),
            stage: self.stage.clone(),
            stamp,
            userxattr: false,
            owners: Owners::Keep,
            baseline: None,
        }
    }

    fn shown(&self) -> snapshot::Tree {
        let view = self.layers.view(0);
        snapshot::take(&root_of(&view))
    }
}

fn done(outcome: forkpoint_model::Result<Redo>, at: usize) {
    assert_eq!(outcome.expect("no error"), Redo::Done, "at {at}");
}

/// Power fails before call `at` of the redo (or right after its end): recovery makes all of it new.
fn lost_in_redo(device: &mut Device, number: usize, at: usize) -> bool {
    let case = case(device, number);
    let (old, new) = (exact(&case.base), case.shown());
    let staged = apply::stage(&case.request()).expect("stage");
    let record = staged.journal.to_bytes().expect("bytes");
    let hit = {
        let lose = || device.lose_power();
        let mut layer = Layer::new(Fault::Crash, at);
        layer.at_fault = Some(&lose);
        let outcome = apply::redo_with(Io::hooked(&layer), &case.base, &staged.journal);
        if layer.hit() {
            assert!(
                matches!(outcome, Ok(Redo::Blocked(_)) | Err(_)),
                "{at}: {outcome:?}"
            );
        } else {
            done(outcome, at);
            device.lose_power();
        }
        layer.hit()
    };
    device.come_back();
    let journal = Journal::from_bytes(&record).expect("the record");
    if !hit {
        assert_eq!(
            exact(&case.base).tree,
            new,
            "what was said to be done is not durable"
        );
    }
    done(apply::redo(&case.base, &journal), at);
    assert_eq!(exact(&case.base).tree, new, "at {at}");
    done(apply::undo(&case.base, &journal), at);
    device.lose_power();
    device.come_back();
    assert_eq!(exact(&case.base), old, "undo at {at} is not durable");
    hit
}

/// Power fails before call `at` of staging: the base is as it was. Past the end: all that was
/// staged is there.
fn lost_in_stage(device: &mut Device, number: usize, at: usize) -> bool {
    let case = case(device, number);
    let old = exact(&case.base);
    let new = case.shown();
    let request = case.request();
    let lose = || device.lose_power();
    let mut layer = Layer::new(Fault::Crash, at);
    layer.at_fault = Some(&lose);
    let outcome = apply::stage_with(Io::hooked(&layer), &request);
    let hit = layer.hit();
    if !hit {
        device.lose_power();
    }
    device.come_back();
    assert_eq!(exact(&case.base), old, "at {at}");
    if hit {
        outcome.expect_err("staged without power");
        apply::discard(&case.stage).expect("discard");
    } else {
        let journal = outcome.expect("staged").journal;
        done(apply::redo(&case.base, &journal), at);
        assert_eq!(exact(&case.base).tree, new);
    }
    hit
}

/// Set in the environment of a test that runs again in a mount namespace of its own.
const INSIDE: &str = "FORKPOINT_TEST_POWER";

/// Runs the test once more in a mount namespace of its own, where no other process can copy, and
/// so keep alive, the mount that is taken away.
fn power(name: &str, mkfs: &[&str], size: u64) {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIP: a loop device needs root");
        return;
    }
    if std::env::var_os(INSIDE).is_some() {
        return trials(mkfs, size);
    }
    let output = Command::new("unshare")
        .arg("-m")
        .arg(std::env::current_exe().expect("own path"))
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .output()
        .expect("unshare");
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    eprint!("{err}");
    assert!(
        output.status.success() && out.contains("1 passed"),
        "{out}\n{err}"
    );
}

fn trials(mkfs: &[&str], size: u64) {
    let mut device = match Device::new(mkfs, size) {
        Ok(device) => device,
        Err(why) => {
            eprintln!("SKIP: no {} on a loop device: {why}", mkfs[0]);
            return;
        }
    };
    let mut number = 0;
    for at in 0.. {
        number += 1;
        if !lost_in_redo(&mut device, number, at) {
            assert!(at > 30, "only {at} calls");
            break;
        }
    }
    // Staging makes many more calls; every seventh, and the end.
    for at in (0..).step_by(7) {
        number += 1;
        if !lost_in_stage(&mut device, number, at) {
            break;
        }
    }
}

#[test]
fn law_10_power_loss_at_any_call_on_ext4() {
    power(
        "law_10_power_loss_at_any_call_on_ext4",
        &["mkfs.ext4", "-q", "-F"],
        256 << 20,
    );
}

#[test]
fn law_10_power_loss_at_any_call_on_xfs() {
    power(
        "law_10_power_loss_at_any_call_on_xfs",
        &["mkfs.xfs", "-q", "-f"],
        400 << 20,
    );
}
