//! Devices of the host that a branch is shown because somebody asked for them by name. What a command
//! does with one is captured by nothing: it is an effect path of the branch.

use crate::codes;
use forkpoint_model::{Error, Result};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

/// What every branch has anyway, by device number: null, zero, full, random, urandom, and terminals of
/// its own.
const OWN: &[(u32, u32)] = &[(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 2)];
/// Pseudo-terminals of the host.
const TERMINALS: std::ops::RangeInclusive<u32> = 136..=143;

/// The effect path of a device, as it is named everywhere.
pub(crate) fn effect(path: &Path) -> String {
    format!("device {}", path.display())
}

/// The paths of the devices to show: each once, and none that a branch has anyway.
///
/// # Errors
/// `FP0414` for what is not there, is no device, or is a terminal of the host.
pub(crate) fn resolve(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::with_capacity(paths.len());
    for given in paths {
        if let Some(path) = resolve_one(given)?
            && !found.contains(&path)
        {
            found.push(path);
        }
    }
    Ok(found)
}

fn resolve_one(given: &Path) -> Result<Option<PathBuf>> {
    let refused = |why: &str| refused(given, why);
    let io = |e| {
        codes::DEVICE
            .io(
                format!("the device {} cannot be looked at", given.display()),
                e,
            )
            .hint("ls -l /dev shows what there is")
    };
    let real = std::fs::canonicalize(given).map_err(io)?;
    let meta = std::fs::metadata(&real).map_err(io)?;
    let kind = meta.file_type();
    if kind.is_dir() {
        return Err(refused("is a directory").hint("name each device in it"));
    }
    if !kind.is_char_device() && !kind.is_block_device() {
        return Err(refused("is no device").hint(
            "files need no --device: a branch sees them; --expose shows those that are masked",
        ));
    }
    let number = (
        rustix::fs::major(meta.rdev()),
        rustix::fs::minor(meta.rdev()),
    );
    if kind.is_char_device() {
        if OWN.contains(&number) {
            return Ok(None);
        }
        if TERMINALS.contains(&number.0) {
            return Err(refused("is a terminal of the host")
                .hint("a branch has terminals of its own: forkpoint exec --tty"));
        }
    }
    // Under the name it was asked for, where that is a plain one among the devices.
    let plain = given.starts_with("/dev")
        && given
            .components()
            .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    let path = if plain { given.to_owned() } else { real };
    if path.to_str().is_none() {
        return Err(
            refused("has a name that is not UTF-8").hint("make a link to it with another name")
        );
    }
    Ok(Some(path))
}

fn refused(given: &Path, why: &str) -> Error {
    codes::DEVICE.error(format!("{} {why}", given.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str) -> std::result::Result<Vec<PathBuf>, String> {
        resolve(&[path.into()]).map_err(|e| format!("{} {}", e.code, e.message))
    }

    #[test]
    fn what_is_there_anyway_is_not_shown_again() {
        for path in [
            "/dev/null",
            "/dev/zero",
            "/dev/urandom",
            "/dev/tty",
            "/dev/../dev/full",
        ] {
            assert_eq!(of(path), Ok(Vec::new()), "{path}");
        }
    }

    #[test]
    fn what_is_no_device_is_refused() {
        for (path, why) in [
            ("/etc/passwd", "is no device"),
            ("/dev", "is a directory"),
            ("/nonexistent/x", "cannot be looked at"),
        ] {
            let error = of(path).expect_err(path);
            assert!(
                error.starts_with("FP0414") && error.contains(why),
                "{error}"
            );
        }
    }

    #[test]
    fn a_link_among_the_devices_keeps_its_name() {
        let Some(device) = ["/dev/fuse", "/dev/kmsg", "/dev/kvm"]
            .into_iter()
            .find(|path| Path::new(path).exists())
        else {
            return eprintln!("SKIP: there is no device to look at");
        };
        assert_eq!(of(device), Ok(vec![device.into()]));
        let dir = tempfile::tempdir().expect("a directory");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(device, &link).expect("a link");
        assert_eq!(of(link.to_str().expect("text")), Ok(vec![device.into()]));
        let twice = resolve(&[device.into(), link]).expect("a device");
        assert_eq!(twice, [PathBuf::from(device)]);
    }
}
