//! Starting what runs in a branch: what its processes see, and what of it nothing captures.

use crate::branch::{Branch, NETWORK_HOST, name, process_record};
use crate::codes;
use crate::command::StartOptions;
use crate::detail::Detail;
use crate::device;
use crate::lock;
use forkpoint_model::state::{BranchState, ForkLayer, check_fork_point};
use forkpoint_model::{Error, Result};
use forkpoint_sandbox::{Network, Sandbox, SandboxSpec};
use forkpoint_store::{BranchRecord, NetworkKind};
use std::path::PathBuf;

impl Branch {
    /// The sandbox of this open branch: the one that runs, or a new one. Its socket is served from
    /// here on, where it has one.
    pub(crate) fn running(&self, start: StartOptions) -> Result<(Sandbox, ForkLayer)> {
        let _lock = self.lock()?;
        // A base that a commit is changing is mounted under nobody: whoever starts holds this until
        // its process is on record, and a commit waits for it before it looks who runs.
        let _starting = lock::shared(&self.engine.paths().starts(self.record()?.world))?;
        let record = self.record()?;
        if record.state != BranchState::Open {
            return Err(not_open(&record));
        }
        self.not_held(&record)?;
        if let Some(sandbox) = self.attach(&record)? {
            forkpoint_sandbox::stop_ahead();
            self.shows_devices(&record)?;
            return self.with_socket(&record, sandbox);
        }
        let spec = self.spec(&record, start)?;
        self.record_open(&record, &spec)?;
        // On record while its view is being mounted, and before anything can run in it.
        let sandbox = Sandbox::start_known(spec, |process| {
            let process = process_record(process);
            self.engine.store().set_process(self.id, &process)
        })?;
        self.with_socket(&record, sandbox)
    }

    fn with_socket(&self, record: &BranchRecord, sandbox: Sandbox) -> Result<(Sandbox, ForkLayer)> {
        if record.layer == ForkLayer::Effect {
            self.engine.serve(record, &sandbox)?;
        }
        Ok((sandbox, record.layer))
    }

    /// Devices that are asked for of a branch that runs without them are refused: what is mounted in it
    /// is settled when it starts.
    fn shows_devices(&self, record: &BranchRecord) -> Result<()> {
        let asked = &self.engine.inner.options.devices;
        if asked.is_empty() {
            return Ok(());
        }
        let shown = Detail::of(record)?.shown_devices;
        match asked.iter().find(|device| !shown.contains(device)) {
            None => Ok(()),
            Some(device) => Err(codes::STATE
                .error(format!(
                    "{} runs already, without {}",
                    name(record),
                    device.display()
                ))
                .hint(format!("stop it first: forkpoint stop {}", name(record)))),
        }
    }

    /// Puts on record what nothing captures, before it can happen.
    fn record_open(&self, record: &BranchRecord, spec: &SandboxSpec) -> Result<()> {
        let host = (spec.network == Network::Host).then(|| NETWORK_HOST.to_owned());
        let devices = spec.devices.iter().map(|path| device::effect(path));
        let open: Vec<String> = host.into_iter().chain(devices).collect();
        if !open.is_empty() {
            check_fork_point(record.layer, &open)?;
        }
        let mut detail = Detail::of(record)?;
        let devices = detail.shown_devices != spec.devices;
        let known = |path: &String| record.uncaptured.contains(path);
        if !devices && open.iter().all(known) {
            return Ok(());
        }
        detail.shown_devices.clone_from(&spec.devices);
        let text = detail.text()?;
        self.engine
            .store()
            .modify_branch(self.id, |b| {
                b.detail = text;
                for path in open {
                    if !b.uncaptured.contains(&path) {
                        b.uncaptured.push(path);
                    }
                }
            })
            .map(drop)
    }

    fn spec(&self, record: &BranchRecord, start: StartOptions) -> Result<SandboxSpec> {
        let paths = self.engine.paths();
        let disks = self.disks(record)?;
        for disk in &disks {
            self.engine.make_upper(disk)?;
        }
        let root_upper = paths.root_upper(self.id);
        crate::files::make_dir(&root_upper)?;
        let kept = defaults(record)?;
        let mut spec = SandboxSpec::new(self.id, self.engine.inner.identity.clone(), root_upper);
        // At the reasoning layer there is no effect path: what it says is all that comes of it.
        let shut = record.layer == ForkLayer::Reasoning;
        spec.disks = disks
            .iter()
            .map(|d| d.mount(!record.durable, shut))
            .collect();
        spec.root_layers = record.root_layers.iter().map(|&l| paths.layer(l)).collect();
        spec.masks = self.engine.masks();
        spec.masks
            .extend(self.engine.staged_in(record.world, &disks)?);
        spec.devices = device::resolve(&kept.devices)?;
        for device in &self.engine.inner.options.devices {
            if !spec.devices.contains(device) {
                spec.devices.push(device.clone());
            }
        }
        if !shut {
            let out = paths.out(self.id);
            crate::files::make_dir(&out)?;
            spec.out_dir = Some(out);
        }
        spec.network = start.network.unwrap_or(kept.network);
        spec.limits = start.limits;
        spec.hostname = hostname(record);
        spec.control_socket = Some(paths.socket(self.id));
        spec.branch_socket = !shut;
        spec.lifeline = start.lifeline;
        Ok(spec)
    }
}

/// What the commands of a branch get unless they ask otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Defaults {
    /// What they can reach.
    pub network: Network,
    /// Devices of the host that they are shown.
    pub devices: Vec<PathBuf>,
    /// Names of the caller's variables that they are given though they hold secrets.
    pub secrets: Vec<String>,
}

/// What the commands of the branch with this record get.
///
/// # Errors
/// When the record is damaged.
pub fn defaults(record: &BranchRecord) -> Result<Defaults> {
    let detail = Detail::of(record)?;
    Ok(Defaults {
        network: match record.network {
            NetworkKind::Loopback => Network::Loopback,
            NetworkKind::Host => Network::Host,
        },
        devices: detail.devices,
        secrets: detail.secrets,
    })
}

/// Host names hold letters, digits and dashes.
fn hostname(record: &BranchRecord) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-';
    match &record.name {
        Some(n) if n.len() <= 63 && n.chars().all(fits) => n.clone(),
        _ => record.id.to_string(),
    }
}

fn not_open(record: &BranchRecord) -> Error {
    codes::STATE
        .error(format!(
            "{} is {}: nothing can be run in it",
            name(record),
            record.state
        ))
        .hint("fork it to go on from there: forkpoint fork BRANCH")
}
