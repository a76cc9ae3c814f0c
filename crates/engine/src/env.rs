//! The environment of a command in a branch: the caller's, less its secrets.

use forkpoint_sandbox::is_secret_env;
use std::ffi::{OsStr, OsString};

/// The caller's variables without secrets, then `ours`, then `changes` (a value, or none to remove).
/// Later settings of a name win; a name appears once.
pub(crate) fn environment(
    caller: &[(OsString, OsString)],
    ours: &[(&str, OsString)],
    changes: &[(OsString, Option<OsString>)],
) -> Vec<(OsString, OsString)> {
    let mut env: Vec<(OsString, OsString)> = caller
        .iter()
        .filter(|(key, _)| {
            !is_secret_env(key) && !key.as_encoded_bytes().starts_with(b"FORKPOINT_")
        })
        .cloned()
        .collect();
    for (key, value) in ours {
        set(&mut env, OsStr::new(key), Some(value));
    }
    for (key, value) in changes {
        set(&mut env, key, value.as_ref());
    }
    env
}

fn set(env: &mut Vec<(OsString, OsString)>, key: &OsStr, value: Option<&OsString>) {
    env.retain(|(present, _)| present != key);
    if let Some(value) = value {
        env.push((key.to_owned(), value.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(key: &str, value: &str) -> (OsString, OsString) {
        (key.into(), value.into())
    }

    #[test]
    fn secrets_and_our_own_variables_do_not_pass_but_explicit_ones_do() {
        let caller = [
            pair("PATH", "/bin"),
            pair("AWS_SECRET_ACCESS_KEY", "x"),
            pair("FORKPOINT_HOME", "/s"),
        ];
        let ours = [("FORKPOINT_BRANCH", OsString::from("b1"))];
        let changes = [
            ("GITHUB_TOKEN".into(), Some("given".into())),
            ("PATH".into(), None),
            ("A".into(), Some("1".into())),
            ("A".into(), Some("2".into())),
        ];
        let env = environment(&caller, &ours, &changes);
        assert_eq!(
            env,
            [
                pair("FORKPOINT_BRANCH", "b1"),
                pair("GITHUB_TOKEN", "given"),
                pair("A", "2")
            ]
        );
    }
}
