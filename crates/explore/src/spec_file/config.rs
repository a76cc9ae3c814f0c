//! The configuration file: what a person wants by default, on this machine, for every command that says
//! nothing else. It holds bounds and defaults only; what an exploration does stands in its own file.

use forkpoint_model::Result;
use std::path::{Path, PathBuf};

use super::Format;
use super::convert::Reader;
use super::shape::{Kind, LIMITS, NETWORKS, Shape, key};
use crate::codes;
use crate::logs::printable;
use crate::spec::{ExploreSpec, LimitSpec, NetworkSpec};
use crate::units::{Size, Time};

static CONFIG: Shape = Shape {
    name: "",
    keys: &[
        key(
            "network",
            NETWORKS,
            "What forks, and explorations without a specification file, can reach. Default: loopback.",
        ),
        key(
            "expose",
            Kind::List(&Kind::Path),
            "Paths that are not masked, although they hold credentials.",
        ),
        key(
            "hide",
            Kind::List(&Kind::Path),
            "Paths that are masked too.",
        ),
        key(
            "jobs",
            Kind::Count(1, 1024),
            "How many attempts run at once. Default: the number of processors.",
        ),
        key("timeout", Kind::Time, "The time limit of one attempt."),
        key(
            "total-timeout",
            Kind::Time,
            "The time limit of a whole exploration.",
        ),
        key("limits", Kind::Table(&LIMITS), "What one attempt may use."),
        key(
            "retention",
            Kind::Table(&RETENTION),
            "How much is kept of branches that have ended.",
        ),
    ],
};

static RETENTION: Shape = Shape {
    name: "retention",
    keys: &[
        key(
            "age",
            Kind::Time,
            "What was kept longer than this is freed. Default: 7d.",
        ),
        key(
            "size",
            Kind::Size,
            "The oldest is freed until the rest takes no more than this. Default: 5G.",
        ),
    ],
};

static FORMAT: Format = Format {
    code: codes::CONFIG_FILE,
    what: "configuration",
    hint: "mend it, or take it away: docs/configuration.md lists the keys",
    shape: &CONFIG,
    all: &[&CONFIG, &RETENTION, &LIMITS],
};

/// What a person wants by default. Nothing is set where there is no file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// What forks, and explorations without a file, can reach.
    pub network: Option<NetworkSpec>,
    /// Paths of the host that are not masked.
    pub expose: Vec<PathBuf>,
    /// Further paths of the host to mask.
    pub hide: Vec<PathBuf>,
    /// How many attempts run at once.
    pub jobs: Option<u32>,
    /// The time limit of one attempt.
    pub timeout: Option<Time>,
    /// The time limit of a whole exploration.
    pub total_timeout: Option<Time>,
    /// What one attempt may use.
    pub limits: LimitSpec,
    /// How long ended branches are kept.
    pub age: Option<Time>,
    /// How much they may take together.
    pub size: Option<Size>,
}

impl Config {
    /// Reads the file at `path`; `None` where there is none. A path in it that begins with `~/` begins
    /// at `home`, another relative one at the directory the file lies in.
    ///
    /// # Errors
    /// `FP0511` with line and column.
    pub fn load(path: &Path, home: Option<&Path>) -> Result<Option<Self>> {
        match path.symlink_metadata() {
            Err(e)
                if matches!(
                    e.kind(),
                    std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
                ) =>
            {
                return Ok(None);
            }
            _ => {}
        }
        let name = printable(&path.display().to_string());
        let (text, dir) = FORMAT.text(path, &name)?;
        Self::parse(&text, &name, &dir, home).map(Some)
    }

    /// Reads `text`, which is called `name` in errors. See [`Config::load`].
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse(text: &str, name: &str, dir: &Path, home: Option<&Path>) -> Result<Self> {
        FORMAT.parse(text, name, |table, _| {
            let root = Reader { table, dir };
            let path = |text: String| match (text.strip_prefix("~/"), home) {
                (Some(rest), Some(home)) => home.join(rest),
                _ => dir.join(text),
            };
            let paths = |key: &str| root.list(key).into_iter().map(path).collect();
            let kept = root.sub("retention");
            Self {
                network: root.text("network").map(|name| match name.as_str() {
                    "host" => NetworkSpec::Host,
                    _ => NetworkSpec::Loopback,
                }),
                expose: paths("expose"),
                hide: paths("hide"),
                jobs: root.count("jobs"),
                timeout: root.parsed("timeout"),
                total_timeout: root.parsed("total-timeout"),
                limits: root.limits(),
                age: kept.and_then(|k| k.parsed("age")),
                size: kept.and_then(|k| k.parsed("size")),
            }
        })
    }

    /// Fills in what neither flags nor a file say of an exploration. `file`: it has a specification
    /// file, which means the same network to everybody.
    pub fn under(&self, spec: &mut ExploreSpec, network_given: bool, file: bool) {
        fn set<T: Copy>(value: &mut Option<T>, default: Option<T>) {
            *value = value.or(default);
        }
        set(&mut spec.jobs, self.jobs);
        set(&mut spec.timeout, self.timeout);
        set(&mut spec.total_timeout, self.total_timeout);
        set(&mut spec.limits.memory, self.limits.memory);
        set(&mut spec.limits.cpu, self.limits.cpu);
        set(&mut spec.limits.pids, self.limits.pids);
        set(&mut spec.limits.disk, self.limits.disk);
        if let Some(network) = self.network
            && !network_given
            && !file
        {
            spec.network = network;
        }
        spec.expose.extend(self.expose.iter().map(|p| p.into()));
        spec.hide.extend(self.hide.iter().map(|p| p.into()));
    }

    /// Every key that is set, with its value, as it would be written.
    pub fn held(&self) -> Vec<(&'static str, String)> {
        fn add<T: ToString>(
            all: &mut Vec<(&'static str, String)>,
            name: &'static str,
            value: Option<T>,
        ) {
            all.extend(value.map(|value| (name, value.to_string())));
        }
        let mut all = Vec::new();
        let network = self.network.map(|network| match network {
            NetworkSpec::Loopback => "loopback",
            NetworkSpec::Host => "host",
        });
        add(&mut all, "network", network);
        for (name, paths) in [("expose", &self.expose), ("hide", &self.hide)] {
            for path in paths {
                add(&mut all, name, Some(path.display()));
            }
        }
        add(&mut all, "jobs", self.jobs);
        add(&mut all, "timeout", self.timeout);
        add(&mut all, "total-timeout", self.total_timeout);
        add(&mut all, "limits.memory", self.limits.memory);
        add(&mut all, "limits.cpu", self.limits.cpu);
        add(&mut all, "limits.pids", self.limits.pids);
        add(&mut all, "limits.disk", self.limits.disk);
        add(&mut all, "retention.age", self.age);
        add(&mut all, "retention.size", self.size);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> std::result::Result<Config, String> {
        let home = Some(Path::new("/home/ann"));
        Config::parse(text, "config.toml", Path::new("/c"), home)
            .map_err(|e| format!("{} {} | {}", e.code, e.message, e.hint))
    }

    #[test]
    fn every_key_is_read() {
        let config = read(
            "network = \"host\"\nexpose = [\"~/.netrc\"]\nhide = [\"x\", \"/y\"]\njobs = 3\n\
             timeout = \"2m\"\ntotal-timeout = 900\n[limits]\nmemory = \"1G\"\ncpu = \"1m\"\npids = 9\n\
             disk = \"2G\"\n[retention]\nage = \"3d\"\nsize = \"1G\"\n",
        )
        .expect("a configuration");
        assert_eq!(config.network, Some(NetworkSpec::Host));
        assert_eq!(config.expose, [PathBuf::from("/home/ann/.netrc")]);
        assert_eq!(config.hide, [PathBuf::from("/c/x"), "/y".into()]);
        assert_eq!(config.jobs, Some(3));
        let names: Vec<_> = config.held().iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), 13, "{names:?}");
        // What is written is what would be read.
        let again: String = config
            .held()
            .iter()
            .filter(|(name, _)| name.starts_with("retention."))
            .map(|(name, value)| format!("{name} = \"{value}\"\n"))
            .collect();
        let again = read(&again).expect("the same again");
        assert_eq!((again.age, again.size), (config.age, config.size));
        assert_eq!(read("").expect("nothing"), Config::default());
    }

    #[test]
    fn mistakes_are_told_by_line_and_only_of_this_kind_of_file() {
        for (text, told) in [
            (
                "jobs = 2\nretain = 1\n",
                "config.toml:2:1: unknown key \"retain\"",
            ),
            (
                "[retention]\nmax = 1\n",
                "config.toml:2:1: unknown key \"max\" in [retention]",
            ),
            ("network = \"lan\"\n", "config.toml:1:11:"),
            ("jobs = 0\n", "config.toml:1:8:"),
            ("[retention]\nage = \"old\"\n", "config.toml:2:7:"),
            ("jobs = \n", "config.toml:1:"),
        ] {
            let error = read(text).expect_err(text);
            assert!(
                error.starts_with("FP0511") && error.contains(told),
                "{error}"
            );
        }
        // A key of specification files is not promised a place here.
        let error = read("verify = \"x\"\n").expect_err("a key of another file");
        assert!(
            error.contains("keys at the top of the file are network"),
            "{error}"
        );
    }

    #[test]
    fn it_lies_under_flags_and_files() {
        let config =
            read("network = \"host\"\njobs = 3\ntimeout = 5\nhide = [\"/h\"]\n").expect("one");
        let mut spec = ExploreSpec {
            jobs: Some(1),
            ..ExploreSpec::default()
        };
        config.under(&mut spec, false, true);
        assert_eq!((spec.jobs, spec.network), (Some(1), NetworkSpec::Loopback));
        assert_eq!(spec.timeout, config.timeout);
        assert_eq!(spec.hide.len(), 1);
        config.under(&mut spec, true, false);
        assert_eq!(spec.network, NetworkSpec::Loopback);
        config.under(&mut spec, false, false);
        assert_eq!(spec.network, NetworkSpec::Host);
    }
}
