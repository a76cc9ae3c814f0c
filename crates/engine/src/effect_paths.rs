//! The ways by which a branch has effects, and where it may be forked at all (law 4).

use crate::branch::{Branch, name};
use crate::disk::participant;
use crate::options::Layer;
use forkpoint_model::Result;
use forkpoint_model::state::{ForkLayer, check_fork_point};
use forkpoint_store::BranchRecord;

/// One way by which a branch has effects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectPath {
    /// The participant, or what is open that nothing captures.
    pub path: String,
    /// Why it is one.
    pub why: String,
    /// Whether what goes that way is undone by a rollback.
    pub captured: bool,
}

impl Branch {
    /// By which ways it has effects: none at the reasoning layer.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn effect_paths(&self) -> Result<Vec<EffectPath>> {
        let record = self.record()?;
        if record.layer == ForkLayer::Reasoning {
            return Ok(Vec::new());
        }
        let captured = |path: String, why: String| EffectPath {
            path,
            why,
            captured: true,
        };
        let mut paths = Vec::new();
        for (index, disk) in self.world()?.disks().iter().enumerate() {
            paths.push(captured(
                participant(index).0,
                format!("what is written to {} is the branch's", disk.path.display()),
            ));
        }
        paths.push(captured(
            "socket".into(),
            "keys and events can be written through FORKPOINT_SOCK".into(),
        ));
        let journal = self.effects()?.len();
        if journal > 0 {
            paths.push(captured(
                "effects".into(),
                format!("its journal has {journal}"),
            ));
        }
        paths.extend(record.uncaptured.iter().map(|path| EffectPath {
            path: path.clone(),
            why: "nothing captures what goes that way".into(),
            captured: false,
        }));
        Ok(paths)
    }

    /// Whether a fork of it at `layer` is sound. At the reasoning layer only of what has no effect
    /// path itself; and nothing below such a branch may have one, since the whole of it is dropped
    /// without anything being undone.
    pub(crate) fn check_fork_layer(&self, record: &BranchRecord, layer: Layer) -> Result<()> {
        match (record.layer, layer) {
            (ForkLayer::Effect, Layer::Reasoning) => {
                let paths = self.effect_paths()?.into_iter().map(|p| p.path);
                check_fork_point(ForkLayer::Reasoning, &paths.collect::<Vec<_>>())
            }
            (ForkLayer::Reasoning, Layer::Effect) => {
                let below = format!(
                    "disk:0 of a fork at the effect layer below {}",
                    name(record)
                );
                check_fork_point(ForkLayer::Reasoning, &[below])
            }
            _ => Ok(()),
        }
    }
}
