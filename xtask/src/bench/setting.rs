//! Where and as whom is measured.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The ordinary user of measurements: an id that distributions leave to the machine's owner and that no account has, so
/// without subordinate ids.
const USER: u32 = 59_999;

/// What every measurement works with.
pub(super) struct Setting {
    forkpoint: PathBuf,
    /// A directory on the file system to be measured (`FORKPOINT_BENCH_DIR`, else the default one).
    pub(super) work: PathBuf,
    /// The directory of bases that cost minutes to make, which all may read.
    pub(super) bases: PathBuf,
    /// As whom all is run, if not as who measures.
    user: Option<u32>,
}

impl Setting {
    /// Measures as whoever runs this.
    pub(super) fn new(forkpoint: &Path, work: &Path) -> Result<Setting> {
        open_to_all(work)?;
        let bases = work.join("bases");
        fs::create_dir_all(&bases)?;
        Ok(Setting {
            forkpoint: forkpoint.to_path_buf(),
            work: work.to_path_buf(),
            bases,
            user: None,
        })
    }

    /// As root: measures as an ordinary user, in a directory below, with the same bases.
    pub(super) fn ordinary(forkpoint: &Path, work: &Path) -> Result<Setting> {
        let mut setting = Setting {
            user: Some(USER),
            work: work.join("user"),
            ..Setting::new(forkpoint, work)?
        };
        fs::create_dir_all(setting.work.join("home"))?;
        open_to_all(&setting.work)?;
        for dir in [setting.work.clone(), setting.work.join("home")] {
            chown(&dir, Some(USER), Some(USER)).with_context(|| dir.display().to_string())?;
        }
        setting.forkpoint = setting.copied(forkpoint)?;
        Ok(setting)
    }

    /// A new directory of whoever is measured.
    pub(super) fn dir(&self, name: &str) -> Result<PathBuf> {
        let dir = self.work.join(name);
        fs::create_dir_all(&dir)?;
        if let Some(user) = self.user {
            chown(&dir, Some(user), Some(user))?;
        }
        Ok(dir)
    }

    /// A program that whoever is measured can execute: a copy where the build directory may be closed to him.
    pub(super) fn copied(&self, program: &Path) -> Result<PathBuf> {
        if self.user.is_none() {
            return Ok(program.to_path_buf());
        }
        let to = self
            .work
            .join(program.file_name().context("a program has a name")?);
        fs::copy(program, &to)?;
        Ok(to)
    }

    pub(super) fn store(&self) -> PathBuf {
        self.work.join("store")
    }

    /// A program, run as whoever is measured.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if let Some(user) = self.user {
            // Other groups are dropped with it.
            command
                .uid(user)
                .gid(user)
                .env("HOME", self.work.join("home"));
        }
        command
            .env("FORKPOINT_HOME", self.store())
            .stdin(Stdio::null());
        command
    }

    /// The command, with a store of its own beside the bases.
    pub(super) fn forkpoint(&self) -> Command {
        self.command(&self.forkpoint)
    }

    /// Runs it quietly; what it said on standard error is told when it fails.
    pub(super) fn must(&self, arguments: &[&str], dir: &Path) -> Result<String> {
        let out = self.forkpoint().args(arguments).current_dir(dir).output()?;
        if !out.status.success() {
            let text = String::from_utf8_lossy(&out.stderr);
            bail!(
                "forkpoint {}: {}\n{}",
                arguments.join(" "),
                out.status,
                text.trim()
            );
        }
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    }
}

fn open_to_all(dir: &Path) -> Result<()> {
    Ok(fs::set_permissions(dir, fs::Permissions::from_mode(0o755))?)
}
