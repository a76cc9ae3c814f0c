//! `forkpoint kv` inside a branch: through the branch's socket, never through a store.

use forkpoint_engine::{Client, KvEntry, KvPage, KvWritten};
use forkpoint_model::Result;

use crate::codes;
use crate::verbs::kv::{Keys, Whose};

/// The keys of the branch this process runs in; none where it runs in none.
///
/// # Errors
/// `FP0001` where the options name another one's keys; `FP0452` when nothing answers at the socket.
pub(crate) fn keys(whose: &Whose) -> Result<Option<Box<dyn Keys>>> {
    if std::env::var_os("FORKPOINT_SOCK").is_none_or(|path| path.is_empty()) {
        return Ok(None);
    }
    if whose.branch.is_some() || whose.base.is_some() {
        return Err(codes::USAGE
            .error("inside a branch there are the keys of that branch alone")
            .hint("leave --branch and --base out"));
    }
    let client = super::attempt::client()?;
    Ok(client.map(|client| Box::new(Inside(client)) as Box<dyn Keys>))
}

struct Inside(Client);

impl Keys for Inside {
    fn get(&mut self, key: &[u8]) -> Result<Option<KvEntry>> {
        let found = self.0.get(key)?;
        Ok(found.map(|(value, version)| KvEntry {
            key: key.to_vec(),
            value,
            version,
        }))
    }

    fn write(
        &mut self,
        key: &[u8],
        value: Option<&[u8]>,
        version: Option<u64>,
    ) -> Result<KvWritten> {
        // What a plain removal found is told, and the socket does not say.
        let was = match (value, version) {
            (None, None) => Some(self.0.get(key)?.map_or(0, |(_, version)| version)),
            _ => None,
        };
        let (done, version) = self.0.set(key, value, version)?;
        Ok(KvWritten { done, version, was })
    }

    fn list(&mut self, prefix: &[u8], after: Option<&[u8]>, limit: u32) -> Result<KvPage> {
        self.0.list(prefix, after, limit)
    }
}
