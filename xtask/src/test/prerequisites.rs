//! The system programs that tests use, and the Debian packages that bring them.

use std::process::Command;

use anyhow::{Result, bail};

use crate::cmd;

/// (program, package). Only what a test really calls.
const PROGRAMS: &[(&str, &str)] = &[
    ("bwrap", "bubblewrap"),
    ("newuidmap", "uidmap"),
    ("git", "git"),
    ("sqlite3", "sqlite3"),
    ("strace", "strace"),
    ("tar", "tar"),
    ("gcc", "gcc"),
    ("make", "make"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("setpriv", "util-linux"),
    ("losetup", "mount"),
    ("getfattr", "attr"),
    ("python3", "python3"),
    ("useradd", "passwd"),
];

/// Installs what is missing (root, with apt), or says exactly what is missing and how to get it.
pub(crate) fn ensure() -> Result<()> {
    let missing = missing();
    if missing.is_empty() {
        return Ok(());
    }
    let packages = packages(&missing);
    let names: Vec<&str> = missing.iter().map(|(program, _)| *program).collect();
    let command = format!(
        "apt-get install --yes --no-install-recommends {}",
        packages.join(" ")
    );
    if !cmd::is_root() || !cmd::on_path("apt-get") {
        bail!("missing programs: {}\nas root: {command}", names.join(", "));
    }
    println!("installing: {}", packages.join(" "));
    if install(&packages).is_err() {
        // Most often there is no package index yet.
        cmd::must(apt().args(["update", "--quiet"]))?;
        install(&packages)?;
    }
    let missing = self::missing();
    if !missing.is_empty() {
        bail!("`{command}` succeeded and yet there is no {missing:?}");
    }
    Ok(())
}

fn install(packages: &[&str]) -> Result<()> {
    cmd::must(
        apt()
            .args(["install", "--yes", "--quiet", "--no-install-recommends"])
            .args(packages),
    )
}

fn apt() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

fn missing() -> Vec<(&'static str, &'static str)> {
    PROGRAMS
        .iter()
        .filter(|(program, _)| !cmd::on_path(program))
        .copied()
        .collect()
}

fn packages(missing: &[(&'static str, &'static str)]) -> Vec<&'static str> {
    let mut packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}
