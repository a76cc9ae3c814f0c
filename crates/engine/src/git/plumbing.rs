//! Running `git` as plumbing: no hook, no filter, no monitor, no helper of the repository's or of the
//! user's configuration ever runs. The command is used, and not a library, so that whatever format the
//! user's repository has, his own git reads and writes it.

use crate::codes;
use crate::engine::Engine;
use forkpoint_model::{Error, Result};
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Bytes of paths given to one call.
const ARGS: usize = 96 << 10;

/// Of the caller's variables that speak to git, those that are kept: who he is, and where his
/// configuration lies.
const KEPT: &[&str] = &[
    "GIT_AUTHOR_NAME",
    "GIT_AUTHOR_EMAIL",
    "GIT_AUTHOR_DATE",
    "GIT_COMMITTER_NAME",
    "GIT_COMMITTER_EMAIL",
    "GIT_COMMITTER_DATE",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "GIT_CONFIG_NOSYSTEM",
];

/// What makes git run something, turned off.
const SAFE: &[&str] = &[
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "gc.auto=0",
    "maintenance.auto=false",
    "user.useConfigOnly=true",
];

/// The repository a directory is in.
#[derive(Debug, Clone)]
pub(super) struct Repo {
    env: Vec<(OsString, OsString)>,
    /// Where git is started: the top of the work tree.
    pub(super) top: PathBuf,
    /// The directory, relative to it.
    pub(super) prefix: PathBuf,
    git_dir: PathBuf,
}

/// One entry of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TreeEntry {
    pub(super) mode: u32,
    pub(super) name: String,
    pub(super) path: PathBuf,
}

impl Repo {
    /// The repository `dir` lies in.
    ///
    /// # Errors
    /// `FP0430` when there is none, or one that cannot be used.
    pub(super) fn of(engine: &Engine, dir: &Path) -> Result<Self> {
        let mut env: Vec<_> = engine.inner.options.env.clone();
        env.retain(|(key, _)| {
            let gits = key.as_bytes().starts_with(b"GIT_");
            !gits || KEPT.iter().any(|kept| key == *kept)
        });
        let ours = [
            ("LC_ALL", "C"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_NO_REPLACE_OBJECTS", "1"),
        ];
        env.retain(|(key, _)| !ours.iter().any(|(own, _)| key == *own));
        env.extend(ours.map(|(key, value)| (key.into(), value.into())));
        let mut repo = Self {
            env,
            top: dir.to_owned(),
            prefix: PathBuf::new(),
            git_dir: PathBuf::new(),
        };
        let facts = ["rev-parse", "--is-inside-work-tree", "--show-object-format"];
        let text = repo.text(&facts).map_err(|e| {
            codes::GIT
                .error(format!("{}: {}", dir.display(), e.message))
                .hint("--git-branch needs a directory in a git repository that is yours")
        })?;
        if !text.starts_with("true") {
            let bare = format!("{} is not in the work tree of a repository", dir.display());
            return Err(codes::GIT
                .error(bare)
                .hint("a bare repository has no base to compare with"));
        }
        if !text.ends_with("sha1") {
            return Err(codes::GIT
                .error("the repository names its objects by something other than SHA-1")
                .hint("forkpoint diff --patch, and git apply --3way where its text allows it"));
        }
        let top = repo.path(&["rev-parse", "--show-toplevel"])?;
        repo.git_dir = repo.path(&["rev-parse", "--absolute-git-dir"])?;
        let prefix = dir.strip_prefix(&top).map_err(|_| {
            codes::GIT.error(format!("{} is not below {}", dir.display(), top.display()))
        })?;
        repo.prefix = prefix.to_owned();
        repo.top = top;
        Ok(repo)
    }

    pub(super) fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = Command::new("git");
        command.env_clear().envs(self.env.iter().cloned());
        for setting in SAFE {
            command.arg("-c").arg(setting);
        }
        command.args(args).current_dir(&self.top);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// What a call prints; its failure is an error with what it complained of.
    pub(super) fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<Vec<u8>> {
        let output = self.command(args).output().map_err(not_started)?;
        match output.status.success() {
            true => Ok(output.stdout),
            false => Err(failed(args, &output.stderr)),
        }
    }

    /// The same as text, without the last line's end.
    pub(super) fn text(&self, args: &[&str]) -> Result<String> {
        let bytes = self.run(args)?;
        Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
    }

    fn path(&self, args: &[&str]) -> Result<PathBuf> {
        let mut bytes = self.run(args)?;
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
        }
        let path = PathBuf::from(OsString::from_vec(bytes));
        std::fs::canonicalize(&path)
            .map_err(|e| codes::GIT.io(format!("cannot find {}", path.display()), e))
    }

    /// What `reference` names, if it is there.
    pub(super) fn resolve(&self, reference: &str) -> Result<Option<String>> {
        let args = [
            "rev-parse",
            "--verify",
            "--quiet",
            "--end-of-options",
            reference,
        ];
        let output = self.command(&args).output().map_err(not_started)?;
        let text = String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned();
        Ok((output.status.success() && !text.is_empty()).then_some(text))
    }

    /// The entries of `commit` at these paths (relative to the repository), and all below them where
    /// `deep`.
    pub(super) fn entries(
        &self,
        commit: &str,
        paths: &[PathBuf],
        deep: bool,
    ) -> Result<Vec<TreeEntry>> {
        let mut found = Vec::new();
        let mut rest = paths;
        while !rest.is_empty() {
            let mut size = 0;
            let fits = |path: &&PathBuf| {
                size += path.as_os_str().len() + 1;
                size <= ARGS
            };
            let count = rest.iter().take_while(fits).count().max(1);
            let (now, later) = rest.split_at(count);
            rest = later;
            let mut args: Vec<&OsStr> = vec!["--literal-pathspecs".as_ref(), "ls-tree".as_ref()];
            args.extend(deep.then_some(OsStr::new("-r")));
            for arg in ["-z", "--full-tree", commit, "--"] {
                args.push(arg.as_ref());
            }
            args.extend(now.iter().map(|path| path.as_os_str()));
            let bytes = self.run(&args)?;
            for line in bytes.split(|&b| b == 0).filter(|line| !line.is_empty()) {
                found.push(entry(line)?);
            }
        }
        Ok(found)
    }

    /// Which of the paths (relative to the repository) the ignore rules of `tree` leave out. `tree`
    /// holds nothing but `.gitignore` files.
    pub(super) fn ignored(&self, tree: &Path, paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
        let args = ["check-ignore", "-z", "--stdin", "--no-index"];
        let mut command = self.command(&args);
        command
            .current_dir(tree)
            .env("GIT_DIR", &self.git_dir)
            .env("GIT_WORK_TREE", tree)
            .stdin(Stdio::piped());
        let mut child = command.spawn().map_err(not_started)?;
        let input: Vec<u8> = paths
            .iter()
            .flat_map(|path| [path.as_os_str().as_bytes(), b"\0"].concat())
            .collect();
        let output = feed(&mut child, input)
            .and_then(|()| child.wait_with_output())
            .map_err(|e| codes::GIT_FAILED.io("git check-ignore", e))?;
        // 1 says that none is ignored.
        if !matches!(output.status.code(), Some(0 | 1)) {
            return Err(failed(&args, &output.stderr));
        }
        let found = output.stdout.split(|&b| b == 0).filter(|p| !p.is_empty());
        Ok(found.map(|p| PathBuf::from(OsStr::from_bytes(p))).collect())
    }
}

/// Writes all of a child's input from a thread of its own, since it answers meanwhile.
fn feed(child: &mut Child, input: Vec<u8>) -> std::io::Result<()> {
    if let Some(mut stdin) = child.stdin.take() {
        std::thread::Builder::new().spawn(move || {
            // Whoever reads no more says why in its own words.
            stdin.write_all(&input).unwrap_or(());
        })?;
    }
    Ok(())
}

fn entry(line: &[u8]) -> Result<TreeEntry> {
    let parse = || {
        let tab = line.iter().position(|&b| b == b'\t')?;
        let head = std::str::from_utf8(&line[..tab]).ok()?;
        let mut words = head.split(' ');
        let mode = u32::from_str_radix(words.next()?, 8).ok()?;
        let name = words.nth(1)?.to_owned();
        let path = PathBuf::from(OsStr::from_bytes(&line[tab + 1..]));
        Some(TreeEntry { mode, name, path })
    };
    parse().ok_or_else(|| codes::GIT_FAILED.error("git ls-tree answered in another form"))
}

pub(super) fn not_started(e: std::io::Error) -> Error {
    codes::GIT_FAILED
        .io("git cannot be started", e)
        .hint("install git, or put it on PATH")
}

/// What git complained of, in one line.
pub(super) fn failed<S: AsRef<OsStr>>(args: &[S], stderr: &[u8]) -> Error {
    let text = String::from_utf8_lossy(stderr);
    let line = text
        .lines()
        .find(|line| line.starts_with("fatal:") || line.starts_with("error:"))
        .or_else(|| text.lines().next())
        .unwrap_or("it said nothing");
    let verb = args.iter().map(AsRef::as_ref);
    let verb = verb.filter(|arg| !arg.as_bytes().starts_with(b"-"));
    let verb = verb.map(OsStr::to_string_lossy).next().unwrap_or_default();
    codes::GIT_FAILED.error(format!("git {verb}: {line}"))
}
