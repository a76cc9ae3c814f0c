//! `forkpoint tree`.

use forkpoint_engine::records::BranchRecord;
use forkpoint_engine::{BranchFilter, Engine};
use forkpoint_explore::logs::printable;
use forkpoint_explore::units::human_bytes;
use forkpoint_model::{Result, Source, WorldId};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::PathBuf;

use crate::app::{App, Masks};
use crate::style::Style;
use crate::{exit, output, records};

/// Show which branch was forked from which
///
/// Beside each its state, and what its changes take on the disk; checkpoints of a directory are listed below
/// it. Lines are drawn in ASCII where the locale is not UTF-8, and cut at the width of a
/// terminal.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Only those of this directory
    #[arg(long, value_name = "DIR")]
    base: Option<PathBuf>,
    /// Also those that have ended
    #[arg(long, short)]
    all: bool,
}

/// The deepest level that is drawn: a loop in the records must not hang.
const DEPTH: usize = 200;

/// How the picture looks.
struct Look {
    style: Style,
    unicode: bool,
    /// The terminal's columns, where it is one.
    width: Option<usize>,
}

impl Look {
    fn of_stdout() -> Self {
        let stdout = std::io::stdout();
        let size = match stdout.is_terminal() {
            true => rustix::termios::tcgetwinsize(&stdout).ok(),
            false => None,
        };
        Self {
            style: Style::of_stdout(),
            unicode: is_utf8(|name| std::env::var_os(name)),
            width: size.map(|s| usize::from(s.ws_col)).filter(|&w| w > 0),
        }
    }

    fn arm(&self, last: bool) -> &'static str {
        match (self.unicode, last) {
            (true, true) => "└─",
            (true, false) => "├─",
            (false, true) => "`-",
            (false, false) => "|-",
        }
    }

    fn stem(&self, last: bool) -> &'static str {
        match (self.unicode, last) {
            (_, true) => "   ",
            (true, false) => "│  ",
            (false, false) => "|  ",
        }
    }

    /// One line: what leads to it, what it is, and its state in colour; cut where it is too long.
    fn line(&self, lead: &str, what: &str, state: &str) -> String {
        let what = printable(what);
        let plain = format!("{lead}{what}  {state}");
        let width = self.width.unwrap_or(usize::MAX);
        if plain.chars().count() > width {
            let more = if self.unicode { "…" } else { ">" };
            let kept: String = plain.chars().take(width.saturating_sub(1)).collect();
            return format!("{kept}{more}\n");
        }
        let state = match state {
            s if s.starts_with("committed") => self.style.green(s),
            s if s.contains("stale") || s.contains("failed") || s.contains("incomplete") => {
                self.style.red(s)
            }
            s if s.starts_with("open") || s.starts_with("sealed") || s.starts_with("verified") => {
                s.to_owned()
            }
            s => self.style.dim(s),
        };
        format!("{lead}{what}  {state}\n")
    }
}

/// The first of these variables that is set decides, as for every program.
fn is_utf8(var: impl Fn(&str) -> Option<std::ffi::OsString>) -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|name| var(name).filter(|v| !v.is_empty()));
    let text = set
        .map(|v| v.to_string_lossy().to_lowercase())
        .unwrap_or_default();
    text.contains("utf-8") || text.contains("utf8")
}

/// Draws.
pub(crate) fn run(app: &App, args: &Args) -> Result<u8> {
    let engine = app.engine(&Masks::default())?;
    let only = match &args.base {
        Some(base) => match engine.find_world(&app.cwd.join(base))? {
            Some(world) => Some(world.id()),
            None => Some(WorldId::from_bits(0)),
        },
        None => None,
    };
    let branches = engine.branches(BranchFilter {
        world: only,
        ended: args.all,
    })?;
    let mut worlds: BTreeMap<WorldId, Vec<&BranchRecord>> = BTreeMap::new();
    for branch in &branches {
        worlds.entry(branch.world).or_default().push(branch);
    }
    let look = Look::of_stdout();
    let mut text = String::new();
    let mut documents = Vec::new();
    for (id, all) in worlds {
        let world = engine.world_by_id(id)?;
        let head = world.head()?;
        let shown = |b: &BranchRecord| all.iter().any(|o| b.parent == Source::Branch(o.id));
        let roots = all.iter().copied().filter(|b| !shown(b));
        let nodes = roots
            .map(|b| Node::of(&engine, b, &all, 0))
            .collect::<Result<Vec<_>>>()?;
        if app.json() {
            let children: Vec<Value> = nodes.iter().map(Node::json).collect();
            documents.push(json!({
                "world": id, "base": world.base().to_string_lossy(), "head": head.0, "branches": children,
            }));
            continue;
        }
        let mut kept = engine.checkpoints(Some(id))?;
        kept.retain(|checkpoint| !checkpoint.is_step());
        let kept = kept.iter().map(|checkpoint| {
            let name = checkpoint.name().unwrap_or_default();
            format!("{} {name}", checkpoint.id())
        });
        let base = world.base().display().to_string();
        look.picture(&mut text, &base, head.0, &kept.collect::<Vec<_>>(), &nodes);
    }
    if app.json() {
        output::print_json(&json!({"schema": "forkpoint.tree/1", "worlds": documents}))?;
    } else if text.is_empty() {
        app.say("there are no branches");
    } else {
        output::print(&text)?;
    }
    Ok(exit::DONE)
}

/// A branch in the picture.
struct Node {
    what: String,
    state: String,
    fields: Value,
    below: Vec<Node>,
}

impl Node {
    fn of(
        engine: &Engine,
        branch: &BranchRecord,
        all: &[&BranchRecord],
        depth: usize,
    ) -> Result<Self> {
        let below = all.iter().filter(|b| b.parent == Source::Branch(branch.id));
        let below = match depth < DEPTH {
            true => below
                .map(|b| Self::of(engine, b, all, depth + 1))
                .collect::<Result<Vec<_>>>()?,
            false => Vec::new(),
        };
        let name = branch
            .name
            .clone()
            .unwrap_or_else(|| records::attempt_name(branch));
        // Of one that has ended it is noted, as far as anything is kept.
        let bytes = match branch.ended_ns {
            None => Some(engine.own_bytes(branch)?),
            Some(_) => branch.bytes,
        };
        Ok(Self {
            what: format!("{} {name}", branch.id),
            state: state(&records::state_now(engine, branch)?, bytes),
            fields: json!({
                "branch": branch.id, "name": branch.name, "state": branch.state,
                "stale": branch.stale, "activity": engine.activity(branch)?,
                "generation": branch.generation, "bytes": bytes,
            }),
            below,
        })
    }

    fn json(&self) -> Value {
        let mut document = self.fields.clone();
        document["branches"] = self.below.iter().map(Self::json).collect();
        document
    }
}

/// A state, and what the branch takes where that is anything.
fn state(words: &str, bytes: Option<u64>) -> String {
    match bytes {
        Some(bytes) if bytes > 0 => format!("{words}, {}", human_bytes(bytes)),
        _ => words.to_owned(),
    }
}

impl Look {
    /// Draws a directory, its checkpoints and its branches.
    fn picture(&self, text: &mut String, base: &str, head: u64, kept: &[String], nodes: &[Node]) {
        text.push_str(&self.line("", base, &format!("(generation {head})")));
        for (i, what) in kept.iter().enumerate() {
            let last = i + 1 == kept.len() && nodes.is_empty();
            let lead = format!("{} ", self.arm(last));
            text.push_str(&self.line(&lead, what.trim_end(), "checkpoint"));
        }
        self.branches(text, nodes, "");
    }

    fn branches(&self, text: &mut String, level: &[Node], indent: &str) {
        for (i, node) in level.iter().enumerate() {
            let last = i + 1 == level.len();
            let lead = format!("{indent}{} ", self.arm(last));
            text.push_str(&self.line(&lead, node.what.trim_end(), &node.state));
            let indent = format!("{indent}{}", self.stem(last));
            self.branches(text, &node.below, &indent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_follow_the_locale_and_the_width() {
        let look = |unicode, width| Look {
            style: Style::PLAIN,
            unicode,
            width,
        };
        let wide = look(true, None);
        assert_eq!(wide.line("└─ ", "b1 one", "open"), "└─ b1 one  open\n");
        assert_eq!(wide.line("", "a\u{1b}[31m", "x"), "a  x\n");
        assert_eq!(
            look(true, Some(10)).line("└─ ", "b1 one", "open"),
            "└─ b1 one…\n"
        );
        assert_eq!(
            look(false, Some(10)).line("`- ", "b1 one", "open"),
            "`- b1 one>\n"
        );
        assert_eq!(
            (look(false, None).arm(true), look(false, None).stem(false)),
            ("`-", "|  ")
        );
    }

    fn node(what: &str, words: &str, bytes: Option<u64>, below: Vec<Node>) -> Node {
        Node {
            what: what.into(),
            state: state(words, bytes),
            fields: Value::Null,
            below,
        }
    }

    fn drawn(unicode: bool, width: Option<usize>) -> String {
        let deep = node("b3 deep", "open, running", Some(0), Vec::new());
        let child = node("b2 child", "sealed, stale", Some(3 << 20), vec![deep]);
        let nodes = [
            node("b1 first", "open", Some(4096), vec![child]),
            node("b4 ", "verified passed", None, Vec::new()),
        ];
        let look = Look {
            style: Style::PLAIN,
            unicode,
            width,
        };
        let mut text = String::new();
        look.picture(&mut text, "/work", 2, &["c1 start".into()], &nodes);
        look.picture(&mut text, "/other", 0, &["c2 ".into()], &[]);
        text
    }

    #[test]
    fn pictures_are_these() {
        insta::assert_snapshot!(drawn(true, None), @r"
        /work  (generation 2)
        ├─ c1 start  checkpoint
        ├─ b1 first  open, 4.0 KiB
        │  └─ b2 child  sealed, stale, 3.0 MiB
        │     └─ b3 deep  open, running
        └─ b4  verified passed
        /other  (generation 0)
        └─ c2  checkpoint
        ");
        insta::assert_snapshot!(drawn(false, None), @r"
        /work  (generation 2)
        |- c1 start  checkpoint
        |- b1 first  open, 4.0 KiB
        |  `- b2 child  sealed, stale, 3.0 MiB
        |     `- b3 deep  open, running
        `- b4  verified passed
        /other  (generation 0)
        `- c2  checkpoint
        ");
        insta::assert_snapshot!(drawn(true, Some(24)), @r"
        /work  (generation 2)
        ├─ c1 start  checkpoint
        ├─ b1 first  open, 4.0 …
        │  └─ b2 child  sealed,…
        │     └─ b3 deep  open,…
        └─ b4  verified passed
        /other  (generation 0)
        └─ c2  checkpoint
        ");
    }

    #[test]
    fn the_first_variable_that_is_set_decides() {
        let of = |vars: &[(&str, &str)]| {
            is_utf8(|name| {
                vars.iter()
                    .find(|(n, _)| *n == name)
                    .map(|(_, v)| (*v).into())
            })
        };
        assert!(of(&[("LANG", "de_DE.UTF-8")]) && of(&[("LC_ALL", ""), ("LC_CTYPE", "C.utf8")]));
        assert!(!of(&[]) && !of(&[("LC_ALL", "C"), ("LANG", "de_DE.UTF-8")]));
    }
}
