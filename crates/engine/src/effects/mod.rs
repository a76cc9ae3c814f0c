//! Effects outside the storage a branch owns: performing them, and undoing them.
//!
//! What is to happen is in the journal before it does, with what undoes it; a rollback goes through
//! the journal and is called one only if nothing is left (law 5). Who performs the effects of one kind
//! is a [`Remote`]; that of host commands is built in, and others are registered by the program.

mod command;
mod drain;
mod perform;
mod resolve;

pub use command::{COMMAND, CommandEffect};
pub use perform::Performed;
pub use resolve::{ResolveOptions, ResolveReport};

use crate::engine::Engine;
use forkpoint_model::effect::{Answer, EffectState};
use forkpoint_model::{BranchId, Result};
use forkpoint_store::EffectRecord;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, PoisonError};

/// How a performance went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sent {
    /// It happened, and this was answered.
    Acknowledged(Vec<u8>),
    /// It did not happen, for certain.
    Refused(String),
    /// Whether it happened is not known.
    Lost(String),
}

/// Whoever performs the effects of one participant outside. Every call carries the effect's
/// idempotency key: the same key is the same effect, however often it is sent.
pub trait Remote: Send + Sync {
    /// Performs it. Whatever may go on performing it when this process is killed holds a copy of
    /// `lock` as long as it does: only then is it not asked for, or undone, too early.
    fn perform(&self, effect: &EffectRecord, lock: BorrowedFd<'_>) -> Sent;
    /// Sends what was held, after its commit was decided. At least once: after an error, or a crash
    /// before the answer was recorded, it is sent again.
    ///
    /// # Errors
    /// Why it is not out, in words.
    fn release(&self, effect: &EffectRecord) -> std::result::Result<Vec<u8>, String>;
    /// Whether it happened: [`Answer::Happened`], [`Answer::Absent`] or [`Answer::Failed`]. Called
    /// when nobody is performing it any more.
    fn inquire(&self, effect: &EffectRecord) -> Answer;
    /// Undoes it: [`Answer::Compensated`] or [`Answer::Failed`]. May be called again after it worked.
    fn compensate(&self, effect: &EffectRecord) -> Answer;
    /// Whether it can be asked ([`Remote::inquire`]) for this effect.
    fn can_inquire(&self, effect: &EffectRecord) -> bool;
    /// Whether undoing it does nothing where it had not happened.
    fn absence_safe(&self, effect: &EffectRecord) -> bool;
    /// What it is, in one line for people.
    fn describe(&self, effect: &EffectRecord) -> String;
}

impl Engine {
    /// Makes this process able to perform and undo the effects of a participant.
    pub fn register_remote(&self, participant: &str, remote: Arc<dyn Remote>) {
        self.inner
            .remotes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(participant.to_owned(), remote);
    }

    pub(crate) fn remote(&self, participant: &str) -> Option<Arc<dyn Remote>> {
        if participant == COMMAND {
            return Some(Arc::new(command::Commands));
        }
        self.inner
            .remotes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(participant)
            .cloned()
    }

    /// What of a committed branch's effects is out and stays there when its files are taken back.
    pub(crate) fn sent_with(&self, branch: BranchId) -> Result<Vec<String>> {
        let effects = self.store().effects(branch)?;
        let out = |state| matches!(state, EffectState::Released | EffectState::Acknowledged);
        let sent = effects.iter().filter(|effect| out(effect.state));
        Ok(sent.map(|effect| self.describe_effect(effect)).collect())
    }

    /// What an effect is, in one line for people.
    pub fn describe_effect(&self, effect: &EffectRecord) -> String {
        if effect.participant.0 == forkpoint_store::bus::BUS {
            let topic = effect.intent.split(|&b| b == 0).next().unwrap_or_default();
            return format!("event on {}", String::from_utf8_lossy(topic));
        }
        match self.remote(&effect.participant.0) {
            Some(remote) => remote.describe(effect),
            None => format!(
                "an effect of {}, of {} bytes",
                effect.participant,
                effect.intent.len()
            ),
        }
    }
}
