//! The second part of the demo: a worker that is rejected, and what the others see of it. Types the example's own
//! page, and looks whether what it says is so.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Demo, copy};
use crate::cmd;

impl Demo<'_> {
    /// Returns what is wrong.
    pub(super) fn incident(&self) -> Result<Vec<String>> {
        let base = self.work.join("incident");
        copy(&cmd::root().join("examples/the-incident"), &base)?;
        let page = fs::read_to_string(base.join("README.md"))?;
        let block = page
            .split_once("```sh\n")
            .and_then(|(_, rest)| rest.split_once("```"))
            .map(|(block, _)| block)
            .context("the example's page has no commands")?;
        println!(
            "\nthe incident: a worker is rejected after it wrote two keys and sent an event\n"
        );
        print!("{block}");
        let path = std::env::var_os("PATH").unwrap_or_default();
        // The workers call it too, and where it was built may be hidden from them.
        let bin = base.join("bin");
        fs::create_dir(&bin)?;
        fs::copy(&self.forkpoint, bin.join("forkpoint"))?;
        let all = std::iter::once(bin).chain(std::env::split_paths(&path));
        let status = std::process::Command::new("sh")
            .args(["-e", "-c", block])
            .current_dir(&base)
            .env("PATH", std::env::join_paths(all)?)
            .env("FORKPOINT_HOME", self.work.join("store"))
            .stdin(std::process::Stdio::null())
            .status()?;
        ensure!(
            status.success(),
            "the commands of the page failed: {status}"
        );
        let mut wrong = Vec::new();
        let mut check = |holds: bool, what: &str| {
            println!("{} {what}", if holds { "ok   " } else { "WRONG" });
            if !holds {
                wrong.push(format!("the incident: {what}"));
            }
        };
        let (c, clean) = ("after-the-incident.txt", "from-a-clean-store.txt");
        let (c, clean) = (fs::read(base.join(c))?, fs::read(base.join(clean))?);
        check(
            c == clean && !c.is_empty(),
            "C made what it makes where B never was",
        );
        let rejected = self.asked(&base, &["show", "worker-2"])?;
        check(rejected["state"] == "rolled_back", "B is rolled back");
        let journal = self.asked(&base, &["effect", "worker-2", "--list"])?;
        let states = journal["effects"].as_array().cloned().unwrap_or_default();
        let never = |effect: &Value| effect["state"] == "never_sent";
        check(
            states.len() == 1 && states.iter().all(never),
            "B's event was held, and never sent",
        );
        let keys = self.asked(&base, &["kv", "list"])?;
        let keys: Vec<_> = keys["keys"].as_array().into_iter().flatten().collect();
        let names: Vec<_> = keys.iter().filter_map(|key| key["key"].as_str()).collect();
        check(
            names == ["plan/budget", "plan/trains"] && keys[0]["value"] == "100",
            "the keys are C's and those of before",
        );
        let bus = self.asked(&base, &["bus", "read"])?;
        check(
            bus["events"].as_array().is_some_and(Vec::is_empty),
            "no event of A or B went out",
        );
        let audit = self.asked(&base, &["audit"])?;
        check(audit["sound"] == true, "the audit finds it sound");
        Ok(wrong)
    }

    fn asked(&self, base: &Path, args: &[&str]) -> Result<Value> {
        let mut command = self.forkpoint();
        command
            .arg(args[0])
            .arg("--json")
            .args(&args[1..])
            .current_dir(base);
        serde_json::from_slice(&cmd::output(&mut command)?)
            .with_context(|| format!("{} printed no JSON", args.join(" ")))
    }
}
