//! Judging: running a command against a sealed branch (or the base) in a throwaway fork of it.
//!
//! The fork's writes are thrown away, its system root is the preparation's and not what the attempt
//! did to `/`, and no process of the attempt lives while it runs. Through its socket it reads keys and
//! events of what it judges, and changes none.

use crate::branch::{Branch, OUT_INSIDE, SOCK_INSIDE, name};
use crate::cancel::Cancel;
use crate::codes;
use crate::command::null;
use crate::engine::Engine;
use crate::env::environment;
use crate::files::{Scratch, make_dir};
use crate::layers::DiskLayers;
use crate::options::{JudgeSpec, Judgement, PreparedLayers};
use crate::serve::Look;
use crate::tail::Tail;
use crate::world::World;
use forkpoint_model::state::{BranchEvent, BranchState};
use forkpoint_model::{BranchId, LayerId, Result};
use forkpoint_sandbox::{ExecRequest, ExitKind, Limits, Network, Sandbox, SandboxSpec};
use forkpoint_store::{BranchRecord, VerifiedRecord};
use rustix::fs::{Mode, OFlags};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A score is a number or a small document; more than this is not read.
const SCORE_LIMIT: u64 = 1 << 20;
/// How much of a judge's output is returned unless said otherwise.
const DEFAULT_CAPTURE: usize = 64 << 10;

impl Branch {
    /// Runs a command against this sealed branch, in a throwaway fork of it.
    ///
    /// # Errors
    /// `FP0405` when it is not sealed, `FP0411` when the command cannot be started, `FP0412` when it
    /// was cancelled, kind `Unavailable` when a sandbox cannot be made.
    pub fn judge(&self, spec: &JudgeSpec) -> Result<Judgement> {
        let record = self.record()?;
        self.check_judged(&record)?;
        let disks: Vec<_> = self.disks(&record)?.iter().map(over).collect();
        let look = Look::at(&record);
        let under = (&*disks, &*record.root_layers);
        judge(&self.engine, self.id, under, Some(look), spec)
    }

    fn check_judged(&self, record: &BranchRecord) -> Result<()> {
        if matches!(
            record.state,
            BranchState::Sealed | BranchState::Verified { .. }
        ) {
            return Ok(());
        }
        Err(codes::STATE
            .error(format!(
                "{} is {}: only a sealed branch is judged",
                name(record),
                record.state
            ))
            .hint("seal it first"))
    }

    /// Judges it and records the verdict: it passes when the command exits with 0.
    ///
    /// # Errors
    /// As [`Branch::judge`].
    pub fn verify(&self, spec: &JudgeSpec) -> Result<Judgement> {
        let judgement = self.judge(spec)?;
        self.record_verdict(judgement.passed(), spec)?;
        Ok(judgement)
    }

    /// Records a verdict that was reached by [`Branch::judge`], perhaps of several runs.
    ///
    /// # Errors
    /// When the branch is no longer sealed.
    pub fn record_verdict(&self, passed: bool, spec: &JudgeSpec) -> Result<()> {
        let at_ns = self.engine.now();
        let words: Vec<_> = spec
            .argv
            .iter()
            .map(|a| a.to_string_lossy().into_owned())
            .collect();
        let verdict = VerifiedRecord {
            passed,
            command: words.join(" "),
            at_ns,
        };
        self.engine
            .store()
            .transition_with(self.id, &BranchEvent::Verified { passed }, at_ns, |b| {
                b.verified = Some(verdict);
            })
            .map(drop)
    }
}

impl World {
    /// Runs a command against the base itself (over a preparation, where one is given), in a
    /// throwaway fork.
    ///
    /// # Errors
    /// As [`Branch::judge`].
    pub fn judge(&self, over: Option<&PreparedLayers>, spec: &JudgeSpec) -> Result<Judgement> {
        let disks = self.judged(over);
        let root = over.map(|o| o.root.as_slice()).unwrap_or(&[]);
        judge(
            &self.engine,
            self.engine.draw(BranchId::from_bits),
            (&disks, root),
            Some(Look::at_base(self.id())),
            spec,
        )
    }

    fn judged(&self, over: Option<&PreparedLayers>) -> Vec<Judged> {
        let paths = self.engine.paths();
        self.disks()
            .iter()
            .enumerate()
            .map(|(index, disk)| {
                let layers = over
                    .and_then(|o| o.disks.get(index))
                    .map(Vec::as_slice)
                    .unwrap_or(&[]);
                let mut lowers: Vec<_> = layers.iter().map(|&l| paths.layer(l)).collect();
                lowers.push(disk.path.clone());
                Judged {
                    target: disk.path.clone(),
                    lowers,
                    copy: self.copies(),
                    copied: over.is_some_and(|o| !o.disks.is_empty()),
                }
            })
            .collect()
    }
}

/// Where [`World::compare`] shows its two branches.
pub const COMPARED: [&str; 2] = ["/run/forkpoint/left", "/run/forkpoint/right"];

impl World {
    /// Runs a command over the base that sees the base disks of two sealed branches at [`COMPARED`],
    /// in a throwaway fork of all three: what it writes to any of them is gone afterwards.
    ///
    /// # Errors
    /// As [`Branch::judge`].
    pub fn compare(
        &self,
        over: Option<&PreparedLayers>,
        branches: [&Branch; 2],
        spec: &JudgeSpec,
    ) -> Result<Judgement> {
        let mut disks = self.judged(over);
        for (branch, place) in branches.into_iter().zip(COMPARED) {
            let record = branch.record()?;
            branch.check_judged(&record)?;
            let first = branch.disks(&record)?.into_iter().next();
            let first = first.ok_or_else(|| codes::INTERNAL.error("a branch without a disk"))?;
            disks.push(Judged {
                target: PathBuf::from(place),
                ..self::over(&first)
            });
        }
        let root = over.map(|o| o.root.as_slice()).unwrap_or(&[]);
        let id = self.engine.draw(BranchId::from_bits);
        // Of two at once there is no one view of keys.
        judge(&self.engine, id, (&disks, root), None, spec)
    }
}

impl JudgeSpec {
    /// A command without limits, on a loopback network, whose output is not logged.
    ///
    /// # Errors
    /// `FP0420` when the process has no descriptor left.
    pub fn new(
        program: impl AsRef<OsStr>,
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<Self> {
        let mut argv = vec![program.as_ref().to_owned()];
        argv.extend(args.into_iter().map(|a| a.as_ref().to_owned()));
        Ok(Self {
            argv,
            env: Vec::new(),
            timeout: None,
            limits: Limits::default(),
            network: Network::Loopback,
            mounts: Vec::new(),
            log: None,
            redactor: crate::Redactor::default(),
            capture_limit: DEFAULT_CAPTURE,
            score: false,
            cancel: Cancel::new()?,
        })
    }
}

impl Judgement {
    /// Whether the command exited with 0.
    pub fn passed(&self) -> bool {
        self.exit.status == ExitKind::Code(0)
    }
}

/// A disk to judge: what lies under the throwaway upper.
pub(crate) struct Judged {
    pub(crate) target: PathBuf,
    pub(crate) lowers: Vec<PathBuf>,
    pub(crate) copy: bool,
    /// The topmost of them is a copy already.
    pub(crate) copied: bool,
}

fn over(disk: &DiskLayers) -> Judged {
    let lowers = if disk.copy {
        vec![disk.upper.clone()]
    } else {
        disk.all()
    };
    Judged {
        target: disk.target.clone(),
        lowers,
        copy: disk.copy,
        copied: true,
    }
}

/// Makes the throwaway uppers of a judge (or of a preparation, which keeps them).
pub(crate) fn throwaway(engine: &Engine, dir: &Path, disks: &[Judged]) -> Result<Vec<DiskLayers>> {
    let mut made = Vec::with_capacity(disks.len());
    for (index, judged) in disks.iter().enumerate() {
        let place = dir.join(format!("disk-{index}"));
        make_dir(&place)?;
        let (bottom, sealed) = judged
            .lowers
            .split_last()
            .ok_or_else(|| codes::INTERNAL.error("a disk without a bottom layer"))?;
        let disk = DiskLayers {
            target: judged.target.clone(),
            bottom: bottom.clone(),
            sealed: sealed.to_vec(),
            upper: place.join("upper"),
            work: place.join("work"),
            copy: judged.copy,
        };
        if judged.copy {
            let from = &judged.lowers[0];
            match judged.copied {
                true => engine.copy_tree(from, &disk.upper, false)?,
                false => engine.copy_base_tree(from, &disk.upper)?,
            };
        } else {
            engine.make_upper(&disk)?;
        }
        made.push(disk);
    }
    Ok(made)
}

fn judge(
    engine: &Engine,
    branch: BranchId,
    (disks, root_layers): (&[Judged], &[LayerId]),
    look: Option<Look>,
    spec: &JudgeSpec,
) -> Result<Judgement> {
    if spec.cancel.is_cancelled() {
        return Err(codes::CANCELLED.error("cancelled"));
    }
    let scratch = Scratch::new(engine, "judge")?;
    let made = throwaway(engine, scratch.path(), disks)?;
    let run = Run {
        branch,
        disks: &made,
        root_layers,
        root_upper: scratch.path().join("root"),
        out: scratch.path().join("out"),
        mounts: &spec.mounts,
        network: spec.network,
        limits: with_timeout(spec.limits, spec.timeout),
        volatile: true,
        socket: look.is_some(),
    };
    let sandbox = run.start(engine)?;
    let socket = look.is_some();
    let served = look.map_or(Ok(()), |look| engine.serve_judge(branch, look, &sandbox));
    let channel = match spec.score {
        true => Some(score_channel(scratch.path())?),
        false => None,
    };
    let result =
        served.and_then(|()| execute(engine, &sandbox, (&made, socket), spec, channel.as_ref()));
    // Nothing of it may outlive the verdict, however it was reached.
    let killed = sandbox.kill();
    let (exit, stdout) = result?;
    killed?;
    let score_text = match channel {
        Some(file) => read_score(file, &scratch.path().join("out/score"))?,
        None => None,
    };
    Ok(Judgement {
        exit,
        stdout,
        score_text,
    })
}

fn with_timeout(mut limits: Limits, timeout: Option<Duration>) -> Limits {
    if let Some(timeout) = timeout {
        let ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        limits.wall_ms = Some(limits.wall_ms.map_or(ms, |l| l.min(ms)));
    }
    limits
}

/// A sandbox over throwaway uppers.
pub(crate) struct Run<'a> {
    pub(crate) branch: BranchId,
    pub(crate) disks: &'a [DiskLayers],
    pub(crate) root_layers: &'a [LayerId],
    pub(crate) root_upper: PathBuf,
    pub(crate) out: PathBuf,
    pub(crate) mounts: &'a [(PathBuf, PathBuf)],
    pub(crate) network: Network,
    pub(crate) limits: Limits,
    pub(crate) volatile: bool,
    /// Whether it has a socket.
    pub(crate) socket: bool,
}

impl Run<'_> {
    pub(crate) fn start(self, engine: &Engine) -> Result<Sandbox> {
        make_dir(&self.root_upper)?;
        make_dir(&self.out)?;
        let identity = engine.inner.identity.clone();
        let mut spec = SandboxSpec::new(self.branch, identity, self.root_upper);
        spec.disks = self
            .disks
            .iter()
            .map(|d| d.mount(self.volatile, false))
            .collect();
        spec.root_layers = self
            .root_layers
            .iter()
            .map(|&l| engine.paths().layer(l))
            .collect();
        spec.masks = engine.masks();
        spec.devices = engine.inner.options.devices.clone();
        spec.out_dir = Some(self.out);
        spec.verify_mounts = self.mounts.to_vec();
        spec.network = self.network;
        spec.limits = self.limits;
        spec.lifeline = true;
        spec.branch_socket = self.socket;
        Sandbox::start(spec)
    }
}

fn execute(
    engine: &Engine,
    sandbox: &Sandbox,
    (disks, socket): (&[DiskLayers], bool),
    spec: &JudgeSpec,
    channel: Option<&File>,
) -> Result<(forkpoint_sandbox::ExitReport, Vec<u8>)> {
    let mut ours = vec![("FORKPOINT_OUT", OsString::from(OUT_INSIDE))];
    if socket {
        ours.push(("FORKPOINT_SOCK", SOCK_INSIDE.into()));
    }
    if channel.is_some() {
        ours.push(("FORKPOINT_SCORE_FILE", format!("{OUT_INSIDE}/score").into()));
    }
    let changes: Vec<_> = spec
        .env
        .iter()
        .map(|(k, v)| (k.clone(), Some(v.clone())))
        .collect();
    let mut tail = Tail::start(spec.log.as_deref(), &spec.redactor, spec.capture_limit)?;
    let score_fd = channel
        .map(|file| file.try_clone().map(OwnedFd::from))
        .transpose()
        .map_err(|e| codes::IO.io("cannot pass on the score's channel", e))?;
    let running = sandbox.exec(ExecRequest {
        argv: spec.argv.clone(),
        env: environment(&engine.inner.options.env, &ours, &changes),
        cwd: disks[0].target.clone(),
        stdin: null()?,
        stdout: tail.take_stdout()?,
        stderr: tail.take_stderr()?,
        score_fd,
        new_session: true,
        terminal: None,
    })?;
    let cancelled = crate::wait::either(running.wait_fd(), spec.cancel.fd())?;
    if cancelled {
        sandbox.kill()?;
    }
    let exit = running.wait();
    if spec.cancel.is_cancelled() {
        return Err(codes::CANCELLED.error("cancelled"));
    }
    let exit = exit?;
    if let ExitKind::StartFailed { errno, what } = &exit.status {
        return Err(codes::COMMAND.io(what, std::io::Error::from_raw_os_error(*errno)));
    }
    // Whatever the command left running must be dead before its output can be said to have ended.
    sandbox.kill()?;
    Ok((exit, tail.finish()?))
}

/// Descriptor 3 of a scoring command: a file that is read when it has ended.
fn score_channel(dir: &Path) -> Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    rustix::fs::open(dir.join("score-fd"), flags, Mode::RUSR | Mode::WUSR)
        .map(File::from)
        .map_err(|e| codes::IO.io("cannot make the score's channel", e))
}

fn read_score(mut channel: File, file: &Path) -> Result<Option<Vec<u8>>> {
    let io = |e| codes::IO.io("cannot read the score", e);
    let mut text = Vec::new();
    channel.rewind().map_err(io)?;
    channel
        .take(SCORE_LIMIT)
        .read_to_end(&mut text)
        .map_err(io)?;
    if !text.is_empty() {
        return Ok(Some(text));
    }
    // The name is the judged command's to choose a type for: only a regular file is read.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(fd) = rustix::fs::open(file, flags, Mode::empty()) else {
        return Ok(None);
    };
    let file = File::from(fd);
    if !file.metadata().map_err(io)?.is_file() {
        return Ok(None);
    }
    file.take(SCORE_LIMIT).read_to_end(&mut text).map_err(io)?;
    Ok((!text.is_empty()).then_some(text))
}
