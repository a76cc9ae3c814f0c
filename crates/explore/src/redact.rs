//! Takes the values of secrets out of what is written down: logs, lines that are shown, events.
//! A value is found where it stands as it is; one that a command encodes (base64, reversed) is not.
//!
//! **Architecture invariant:** a value enters here and the environment of a command, nothing else: not
//! the specification, not a record, not a message.

use forkpoint_engine::Redactor;
use forkpoint_model::Result;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::codes;
use crate::vars::{Caller, Vars};

/// A value shorter than this would be found in every other word.
pub const MIN_BYTES: usize = 6;

/// Reads the secrets' values from the caller's variables.
///
/// # Errors
/// `FP0501` where one is not set, or too short to be told from ordinary text.
pub(crate) fn values(names: &[String], caller: Caller<'_>) -> Result<Vars> {
    let value = |name: &String| -> Result<(OsString, OsString)> {
        let value = caller(OsStr::new(name)).ok_or_else(|| {
            codes::SPEC
                .error(format!("the secret {name} is not set"))
                .hint(format!(
                    "set the variable {name}, or do not name it as a secret"
                ))
        })?;
        if value.as_bytes().len() < MIN_BYTES {
            return Err(codes::SPEC
                .error(format!(
                    "the secret {name} has fewer than {MIN_BYTES} bytes: it could not be told from \
                     ordinary output"
                ))
                .hint(format!("pass it with --env {name} if it is none")));
        }
        Ok((name.into(), value))
    };
    names.iter().map(value).collect()
}

/// The secrets of one command that is no attempt's.
pub struct Secrets {
    vars: Vars,
    redactor: Redactor,
}

impl Secrets {
    /// Reads their values from the caller's variables.
    ///
    /// # Errors
    /// `FP0501` where one is not set, or too short to be told from ordinary text.
    pub fn read(names: &[String], caller: Caller<'_>) -> Result<Self> {
        let vars = values(names, caller)?;
        let redactor = redactor(&vars);
        Ok(Self { vars, redactor })
    }

    /// The variables for the command's environment, and nothing else.
    pub fn vars(&self) -> &[(OsString, OsString)] {
        &self.vars
    }

    /// A text that is to be kept, without the values that stand in it.
    pub fn clean(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.redactor.clean(text.as_bytes())).into_owned()
    }
}

/// What finds the values of `secrets`.
pub(crate) fn redactor(secrets: &Vars) -> Redactor {
    Redactor::new(secrets.iter().map(|(_, value)| value.as_bytes().to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_that_is_missing_or_short_is_refused() {
        let caller = |name: &OsStr| (name == "A").then(|| OsString::from("abc"));
        let of = |name: &str| values(&[name.to_owned()], &caller).unwrap_err().message;
        assert!(of("A").contains("fewer than"));
        assert!(of("B").contains("not set"));
    }
}
