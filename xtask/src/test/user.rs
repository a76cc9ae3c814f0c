//! A temporary ordinary user, and running the tests again as that user.
//!
//! The user can read neither the source tree nor the build directory (they may lie in root's home), so both are copied
//! to a directory of the user's own. The account, its processes and its files are removed at the end, and by the next
//! run where this one was killed.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::run::{Runner, below};
use crate::cmd::{self, Artifact};

const PREFIX: &str = "forkpoint-test-";
const NOTE: &str = "forkpoint xtask, temporary";
/// How many subordinate ids the account is given where the system has newuidmap.
const SUB_IDS: u32 = 65536;

/// What the tests may need to know of our environment.
const KEPT_VARIABLES: &[&str] = &[
    "CI",
    "RUST_BACKTRACE",
    "PROPTEST_CASES",
    "LANG",
    "LC_ALL",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
];

pub(crate) struct TemporaryUser {
    name: String,
    uid: u32,
    gid: u32,
    sub_ids: Option<(u32, u32)>,
    /// Holds bin/, source/ and home/. Below /var/tmp, since a branch has a /tmp of its own.
    work: tempfile::TempDir,
    /// The user's temporary directory, where everybody's is.
    tmp: tempfile::TempDir,
    /// An overlay that the user may write to, for tests of what happens where no upper can lie. Where every branch sees
    /// it, so that all tests also run on a machine that has such a mount.
    overlay: PathBuf,
    source: PathBuf,
    forkpoint: Option<PathBuf>,
}

impl TemporaryUser {
    /// Makes the account and gives it copies of the source tree and of the `forkpoint` executable, if there is one.
    pub(crate) fn create(forkpoint: Option<&Path>) -> Result<TemporaryUser> {
        remove_leftovers()?;
        let work = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir_in("/var/tmp")?;
        let tmp = tempfile::Builder::new().prefix(PREFIX).tempdir_in("/tmp")?;
        open_to_all(work.path())?;
        let name = format!("{PREFIX}{}", std::process::id());
        let home = work.path().join("home");
        cmd::must(
            Command::new("useradd")
                .args([
                    "--create-home",
                    "--no-log-init",
                    "--shell",
                    "/bin/sh",
                    "--comment",
                    NOTE,
                ])
                .arg("--home-dir")
                .arg(&home)
                .arg(&name),
        )?;
        // From here on `Drop` removes the account.
        let mut user = TemporaryUser {
            uid: id_of(&name, "-u")?,
            gid: id_of(&name, "-g")?,
            overlay: work.path().join("overlay"),
            source: work.path().join("source"),
            sub_ids: None,
            forkpoint: None,
            name,
            work,
            tmp,
        };
        user.sub_ids = user.give_sub_ids()?;
        user.copy_source()?;
        user.forkpoint = forkpoint.map(|f| user.copy_executable(f)).transpose()?;
        user.own(user.tmp.path())?;
        user.mount_overlay()?;
        Ok(user)
    }

    pub(crate) fn describe(&self) -> String {
        let ids = if self.sub_ids.is_some() {
            "with"
        } else {
            "without"
        };
        format!(
            "user {} (uid {}, {ids} subordinate ids)",
            self.name, self.uid
        )
    }

    fn give_sub_ids(&self) -> Result<Option<(u32, u32)>> {
        if !cmd::on_path("newuidmap") {
            return Ok(None);
        }
        // useradd gives a range by itself where the system is set up so.
        if let Some(range) = sub_range(&self.name)? {
            return Ok(Some(range));
        }
        let first = free_sub_id()?;
        let range = format!("{first}-{}", first + SUB_IDS - 1);
        cmd::must(
            Command::new("usermod")
                .args(["--add-subuids", &range, "--add-subgids", &range])
                .arg(&self.name),
        )?;
        sub_range(&self.name)
    }

    fn mount_overlay(&self) -> Result<()> {
        let part = |name: &str| -> Result<String> {
            let dir = self.work.path().join("overlay-parts").join(name);
            fs::create_dir_all(&dir)?;
            Ok(dir.display().to_string())
        };
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            part("lower")?,
            part("upper")?,
            part("work")?
        );
        fs::create_dir(&self.overlay)?;
        cmd::must(
            Command::new("mount")
                .args(["-t", "overlay", "-o", &options, "overlay"])
                .arg(&self.overlay),
        )?;
        self.own(&self.overlay)
    }

    /// Copies what version control knows of (and new files it does not ignore), so that no build directory comes along.
    fn copy_source(&self) -> Result<()> {
        let root = cmd::root();
        let list = cmd::output(
            Command::new("git")
                .arg("-c")
                .arg(format!("safe.directory={}", root.display()))
                .arg("-C")
                .arg(&root)
                .args([
                    "ls-files",
                    "-z",
                    "--cached",
                    "--others",
                    "--exclude-standard",
                ]),
        )?;
        for name in list.split(|&b| b == 0).filter(|n| !n.is_empty()) {
            use std::os::unix::ffi::OsStrExt;
            let name = Path::new(std::ffi::OsStr::from_bytes(name));
            let (from, to) = (root.join(name), self.source.join(name));
            // A file may be gone from the tree and still be known.
            if !from.is_file() {
                continue;
            }
            if let Some(parent) = to.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::copy(&from, &to).with_context(|| from.display().to_string())?;
        }
        self.own(&self.source)
    }

    fn copy_executable(&self, from: &Path) -> Result<PathBuf> {
        let dir = self.work.path().join("bin");
        fs::create_dir_all(&dir)?;
        open_to_all(&dir)?;
        let to = dir.join(from.file_name().context("an executable has a name")?);
        if fs::hard_link(from, &to).is_err() {
            fs::copy(from, &to)?;
        }
        Ok(to)
    }

    fn own(&self, path: &Path) -> Result<()> {
        let owner = format!("{}:{}", self.uid, self.gid);
        cmd::must(
            Command::new("chown")
                .args(["--recursive", "--no-dereference", &owner])
                .arg(path),
        )
    }

    fn environment(&self) -> Vec<(&'static str, OsString)> {
        let mut env: Vec<(&'static str, OsString)> = vec![
            ("HOME", self.work.path().join("home").into()),
            ("TMPDIR", self.tmp.path().into()),
            ("FORKPOINT_TEST_SOURCE", self.source.clone().into()),
            ("FORKPOINT_TEST_OVERLAY", self.overlay.clone().into()),
            ("INSTA_WORKSPACE_ROOT", self.source.clone().into()),
            ("INSTA_UPDATE", "no".into()),
        ];
        for name in ["FORKPOINT_TEST_BIN", "CARGO_BIN_EXE_forkpoint"] {
            env.extend(self.forkpoint.iter().map(|f| (name, f.clone().into())));
        }
        env.push(("PATH", reachable_path()));
        for &name in KEPT_VARIABLES {
            env.extend(std::env::var_os(name).map(|value| (name, value)));
        }
        env
    }
}

impl Runner for TemporaryUser {
    fn command(&self, test: &Artifact) -> Result<Command> {
        let executable = self.copy_executable(&test.executable)?;
        let dir = self.source.join(below(&cmd::root(), &test.package_dir));
        let mut command = Command::new("setpriv");
        command
            .arg(format!("--reuid={}", self.uid))
            .arg(format!("--regid={}", self.gid))
            .args(["--clear-groups", "--reset-env", "env"]);
        for (name, value) in self.environment() {
            let mut pair = OsString::from(name);
            pair.push("=");
            pair.push(value);
            command.arg(pair);
        }
        let mut manifest = OsString::from("CARGO_MANIFEST_DIR=");
        manifest.push(&dir);
        command.arg(manifest).arg(executable).current_dir(dir);
        Ok(command)
    }
}

impl Drop for TemporaryUser {
    fn drop(&mut self) {
        let mut ids = vec![(self.uid, 1)];
        ids.extend(self.sub_ids);
        let ended = kill_all(&ids).and_then(|()| unmount(&self.overlay));
        if let Err(e) = ended.and_then(|()| remove_account(&self.name)) {
            eprintln!(
                "xtask: the temporary user {} is still there: {e:#}",
                self.name
            );
        }
    }
}

/// Our search path, without directories that only we can reach.
fn reachable_path() -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let open = |dir: &Path| {
        dir.metadata()
            .is_ok_and(|m| m.permissions().mode() & 0o001 != 0)
    };
    let reachable = std::env::split_paths(&path).filter(|dir| dir.ancestors().all(open));
    std::env::join_paths(reachable).unwrap_or(path)
}

/// Readable and searchable for everybody.
fn open_to_all(path: &Path) -> Result<()> {
    Ok(fs::set_permissions(
        path,
        fs::Permissions::from_mode(0o755),
    )?)
}

fn id_of(name: &str, which: &str) -> Result<u32> {
    let out = cmd::output(Command::new("id").args([which, name]))?;
    String::from_utf8_lossy(&out)
        .trim()
        .parse()
        .context("id printed no number")
}

/// The account's range in /etc/subuid, as (first, count).
fn sub_range(name: &str) -> Result<Option<(u32, u32)>> {
    Ok(sub_ids()?
        .into_iter()
        .find(|(n, _, _)| n == name)
        .map(|(_, first, count)| (first, count)))
}

fn sub_ids() -> Result<Vec<(String, u32, u32)>> {
    let text = match fs::read_to_string("/etc/subuid") {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(e) => return Err(e.into()),
    };
    let fields = |line: &str| {
        let mut f = line.split(':');
        Some((
            f.next()?.to_owned(),
            f.next()?.parse().ok()?,
            f.next()?.parse().ok()?,
        ))
    };
    Ok(text.lines().filter_map(fields).collect())
}

fn free_sub_id() -> Result<u32> {
    let used = sub_ids()?
        .into_iter()
        .map(|(_, first, count)| first.saturating_add(count))
        .max();
    let first = used.unwrap_or(0).max(200_000);
    if first.checked_add(SUB_IDS).is_none() {
        bail!("no subordinate ids left");
    }
    Ok(first)
}

/// Kills every process that runs under the ids of the temporary account, (first, count) each, and waits for their ends.
fn kill_all(ids: &[(u32, u32)]) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    let ours = |uid: u32| {
        ids.iter()
            .any(|&(first, count)| uid >= first && uid - first < count)
    };
    // A process may start another while we look; each round leaves fewer that can.
    for _ in 0..20 {
        let mut found = 0;
        for entry in fs::read_dir("/proc")? {
            let entry = entry?;
            let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else {
                continue;
            };
            let (Ok(meta), Some(pid)) = (entry.metadata(), Pid::from_raw(pid)) else {
                continue;
            };
            if ours(meta.uid()) && !is_zombie(&entry.path()) {
                found += 1;
                kill_and_wait(pid)?;
            }
        }
        if found == 0 {
            return Ok(());
        }
    }
    bail!("some of its processes do not end")
}

/// Through a pidfd, which becomes readable at the process's end and never means another process.
fn kill_and_wait(pid: Pid) -> Result<()> {
    const LIMIT: Timespec = Timespec {
        tv_sec: 5,
        tv_nsec: 0,
    };
    let fd = match pidfd_open(pid, PidfdFlags::empty()) {
        Err(Errno::SRCH) => return Ok(()),
        other => other?,
    };
    match pidfd_send_signal(&fd, Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(e) => return Err(e.into()),
    }
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&LIMIT))?;
    Ok(())
}

fn is_zombie(proc_dir: &Path) -> bool {
    let Ok(stat) = fs::read_to_string(proc_dir.join("stat")) else {
        return true;
    };
    stat.rsplit_once(") ")
        .is_none_or(|(_, rest)| rest.starts_with('Z'))
}

/// Unmounts what is mounted there, if anything is.
fn unmount(dir: &Path) -> Result<()> {
    match rustix::mount::unmount(dir, rustix::mount::UnmountFlags::DETACH) {
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

fn remove_account(name: &str) -> Result<()> {
    // Its home is below our work directory and goes with that.
    let out = Command::new("userdel").arg("--force").arg(name).output()?;
    if !out.status.success() {
        bail!("userdel: {}", String::from_utf8_lossy(&out.stderr).trim());
    }
    Ok(())
}

/// Accounts of runs that were killed: ours by name and note, of a process that is gone.
fn remove_leftovers() -> Result<()> {
    let passwd = fs::read_to_string("/etc/passwd")?;
    for line in passwd.lines().filter(|l| l.starts_with(PREFIX)) {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, uid, _, note, home, ..] = fields[..] else {
            continue;
        };
        let pid = name.trim_start_matches(PREFIX);
        if note != NOTE || Path::new("/proc").join(pid).exists() {
            continue;
        }
        let mut ids = vec![(uid.parse().context("a user id")?, 1)];
        ids.extend(sub_range(name)?);
        kill_all(&ids)?;
        remove_account(name)?;
        if let Some(work) = Path::new(home)
            .parent()
            .filter(|w| w.starts_with("/var/tmp/"))
        {
            match fs::remove_dir_all(work) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e.into()),
                _ => {}
            }
        }
    }
    Ok(())
}
