//! Measures requests through a branch's socket, by this very program inside a branch.

mod common;

use common::{BENCH, Bar, bases, engine, files, fork, io, note, row, work};
use forkpoint_engine::{Branch, Client, ExitKind, Result, Stream, WorldOptions};
use serde_json::{Value, json};
use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const ROUNDS: usize = 5_000;
/// Not counted: the first requests find everything cold.
const COLD: usize = 200;

/// What is asked for, by name.
fn requests() -> [(&'static str, Value); 5] {
    [
        ("info", json!({"op": "info"})),
        (
            "kv.put",
            json!({"op": "kv.put", "key": "key", "value": "a value of some bytes"}),
        ),
        ("kv.get", json!({"op": "kv.get", "key": "key"})),
        ("a cost", json!({"op": "cost", "cost": 0.001})),
        ("bus.read of nothing", json!({"op": "bus.read"})),
    ]
}

/// Inside: asks for one thing again and again, and prints how long each took, in nanoseconds.
fn inside(name: &str) -> Result<()> {
    let known = requests().into_iter().find(|(known, _)| *known == name);
    let (_, request) = known.ok_or_else(|| BENCH.error(format!("no request {name}")))?;
    let socket = std::env::var_os("FORKPOINT_SOCK").map(PathBuf::from);
    let mut client = Client::connect(&socket.unwrap_or_default())?;
    let mut took = Vec::with_capacity(ROUNDS);
    for round in 0..COLD + ROUNDS {
        let begun = Instant::now();
        client.call(&request)?;
        if round >= COLD {
            took.push(begun.elapsed().as_nanos());
        }
    }
    for ns in took {
        println!("{ns}");
    }
    Ok(())
}

fn measured(branch: &Branch, name: &str) -> Result<Vec<Duration>> {
    let own = io("this program", File::open("/proc/self/exe"))?;
    let output = branch
        .command("sh")
        .args(["-c", "exec /proc/self/fd/0 --inside \"$1\"", "sh", name])
        .stdin(Stream::Fd(own.into()))
        .output()?;
    if output.exit.status != ExitKind::Code(0) {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(BENCH.error(format!("{name}: {said}")));
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let numbers = text.lines().filter_map(|line| line.parse().ok());
    Ok(numbers.map(Duration::from_nanos).collect())
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() == Some("--inside") {
        return inside(&args.next().unwrap_or_default());
    }
    let (work, bases) = (work()?, bases()?);
    let engine = engine(&work)?;
    let world = engine.world(&files(&bases, 100)?, WorldOptions::default())?;
    let branch = fork(&world, false)?;
    for (name, _) in requests() {
        let what = format!("a request through the socket: {name}");
        row(
            &what,
            &measured(&branch, name)?,
            None,
            Some(Bar::Ns(60_000)),
        );
    }
    note(&format!(
        "{ROUNDS} requests one after the other on one connection, from inside a branch."
    ));
    Ok(())
}
