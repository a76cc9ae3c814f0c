//! Who the caller is, and what of the caller's a branch must not see.

use crate::codes::HOST_IO;
use forkpoint_init::{IdRange, Identity};
use forkpoint_model::Result;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The first host id that root's branches use; above what distributions hand out by default.
const SHIFT: u32 = 0x6000_0000;
/// How many ids a branch of root has.
const SHIFT_LEN: u32 = 0x1_0000;

/// The caller's identity: root by the effective user id, else the user with the subordinate ids
/// of `/etc/subuid` and `/etc/subgid` where `newuidmap` and `newgidmap` can map them.
pub fn identity() -> Result<Identity> {
    if rustix::process::geteuid().is_root() {
        return Ok(Identity::Root {
            shift: SHIFT,
            len: SHIFT_LEN,
        });
    }
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    let sub = if on_path("newuidmap") && on_path("newgidmap") {
        subordinate(uid)?
    } else {
        Vec::new()
    };
    Ok(Identity::User { uid, gid, sub })
}

fn on_path(program: &str) -> bool {
    ["/usr/bin", "/bin", "/usr/local/bin", "/usr/sbin"]
        .iter()
        .any(|dir| Path::new(dir).join(program).exists())
}

fn subordinate(uid: u32) -> Result<Vec<IdRange>> {
    let passwd = read_optional("/etc/passwd")?;
    let name = user_name(&passwd, uid);
    let uids = ranges(&read_optional("/etc/subuid")?, uid, name);
    let gids = ranges(&read_optional("/etc/subgid")?, uid, name);
    let pairs = uids.iter().zip(&gids);
    Ok(pairs
        .map(|(u, g)| IdRange {
            uid: u.0,
            gid: g.0,
            len: u.1.min(g.1),
        })
        .collect())
}

fn read_optional(path: &str) -> Result<String> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(e) => Err(HOST_IO.io(format!("cannot read {path}"), e)),
    }
}

fn user_name(passwd: &str, uid: u32) -> Option<&str> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    })
}

fn ranges(text: &str, uid: u32, name: Option<&str>) -> Vec<(u32, u32)> {
    let number = uid.to_string();
    let mine = |who: &str| who == number || Some(who) == name;
    text.lines()
        .filter_map(|line| {
            let mut fields = line.trim().split(':');
            let who = fields.next()?;
            let first = fields.next()?.parse().ok()?;
            let len: u32 = fields.next()?.parse().ok()?;
            (mine(who) && len > 0).then_some((first, len))
        })
        .collect()
}

/// Below the home directory: what commonly holds credentials.
const SECRETS_IN_HOME: &[&str] = &[
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".config/gcloud",
    ".config/gh",
    ".config/glab-cli",
    ".config/hub",
    ".config/op",
    ".config/doctl",
    ".config/rclone",
    ".config/git/credentials",
    ".docker/config.json",
    ".config/containers/auth.json",
    ".netrc",
    ".npmrc",
    ".yarnrc.yml",
    ".pypirc",
    ".config/pypoetry/auth.toml",
    ".git-credentials",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".m2/settings.xml",
    ".m2/settings-security.xml",
    ".gradle/gradle.properties",
    ".composer/auth.json",
    ".nuget/NuGet/NuGet.Config",
    ".terraform.d/credentials.tfrc.json",
    ".terraformrc",
    ".vault-token",
    ".pgpass",
    ".my.cnf",
    ".boto",
    ".s3cfg",
    ".password-store",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".mozilla",
    ".thunderbird",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".bash_history",
    ".zsh_history",
    ".python_history",
    ".psql_history",
    ".mysql_history",
];

/// Of the system: what only root can read, and root's branch must not.
const SYSTEM_SECRETS: &[&str] = &[
    "/etc/shadow-",
    "/etc/gshadow-",
    "/etc/krb5.keytab",
    "/etc/docker/key.json",
    "/etc/kubernetes",
    "/etc/rancher",
    "/etc/wireguard",
    "/etc/ssl/private",
    "/etc/letsencrypt",
    "/etc/NetworkManager/system-connections",
    "/var/lib/docker",
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/lib/sss/secrets",
];

/// What to mask by default: the store, and where credentials of the user and of the system
/// commonly are. (`/etc/shadow` and `/etc/gshadow` are not masked but replaced by copies without
/// passwords, so that programs that add users keep working.)
pub fn default_masks(home: &Path, store: &Path) -> Vec<PathBuf> {
    let mut masks = vec![store.to_owned()];
    masks.extend(SECRETS_IN_HOME.iter().map(|name| home.join(name)));
    masks.extend(SYSTEM_SECRETS.iter().map(PathBuf::from));
    for kind in ["rsa", "dsa", "ecdsa", "ed25519"] {
        masks.push(format!("/etc/ssh/ssh_host_{kind}_key").into());
    }
    masks
}

/// Whether a variable's name says that its value is a credential.
pub fn is_secret_env(name: &OsStr) -> bool {
    let upper = name.as_bytes().to_ascii_uppercase();
    let upper = String::from_utf8_lossy(&upper);
    const EXACT: &[&str] = &[
        "SSH_AUTH_SOCK",
        "SSH_AGENT_PID",
        "GPG_AGENT_INFO",
        "DBUS_SESSION_BUS_ADDRESS",
        "DOCKER_HOST",
        "KUBECONFIG",
        "DATABASE_URL",
        "PGPASSWORD",
        "MYSQL_PWD",
        "REDISCLI_AUTH",
        "NETRC",
        "XAUTHORITY",
    ];
    const ENDINGS: &[&str] = &[
        "_TOKEN",
        "_SECRET",
        "_SECRET_KEY",
        "_PASSWORD",
        "_PASSWD",
        "_PASSPHRASE",
        "_API_KEY",
        "_APIKEY",
        "_ACCESS_KEY",
        "_ACCESS_KEY_ID",
        "_PRIVATE_KEY",
        "_CREDENTIALS",
        "_AUTH_TOKEN",
        "_PAT",
    ];
    const WHOLE: &[&str] = &["TOKEN", "SECRET", "PASSWORD", "API_KEY", "CREDENTIALS"];
    EXACT.contains(&&*upper)
        || WHOLE.contains(&&*upper)
        || ENDINGS.iter().any(|end| upper.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subordinate_ids_are_found_by_name_and_by_number() {
        let passwd = "root:x:0:0::/:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n";
        assert_eq!(user_name(passwd, 1000), Some("ann"));
        assert_eq!(user_name(passwd, 7), None);
        let sub = "bob:1:2\nann:100000:65536\n1000:300000:10\nann:bad:1\nann:5:0\n";
        assert_eq!(
            ranges(sub, 1000, Some("ann")),
            vec![(100_000, 65_536), (300_000, 10)]
        );
        assert!(ranges(sub, 7, None).is_empty());
    }

    #[test]
    fn secret_variables_are_known_by_name() {
        for name in [
            "GITHUB_TOKEN",
            "aws_secret_access_key",
            "OPENAI_API_KEY",
            "SSH_AUTH_SOCK",
        ] {
            assert!(is_secret_env(OsStr::new(name)), "{name}");
        }
        for name in ["PATH", "HOME", "TOKENIZERS_PARALLELISM", "KEYBOARD", "LANG"] {
            assert!(!is_secret_env(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn the_store_is_always_masked() {
        let masks = default_masks(Path::new("/home/ann"), Path::new("/srv/store"));
        assert!(masks.contains(&PathBuf::from("/srv/store")));
        assert!(masks.contains(&PathBuf::from("/home/ann/.ssh")));
    }
}
