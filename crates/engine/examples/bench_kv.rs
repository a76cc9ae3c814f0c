//! Measures the keys of a world through the library: reads and writes of a branch, and whether a fork costs the same with
//! a million keys as with none. The two stores lie side by side and are measured in turn.

mod common;

use common::{Bar, abort, bases, engine, files, fork, interleave, note, row, timed, work};
use forkpoint_engine::{Engine, Result, World, WorldOptions};
use forkpoint_store::Durability;
use std::time::Duration;

const ROUNDS: usize = 2000;
const FORKS: usize = 100;
const KEYS: u64 = 1_000_000;
/// So many keys are written in one transaction.
const TOGETHER: u64 = 10_000;

fn fill(engine: &Engine, world: &World) -> Result<()> {
    for first in (0..KEYS).step_by(TOGETHER as usize) {
        engine.store().batch(Durability::Full, |store| {
            for n in first..first + TOGETHER {
                let key = format!("key/{n:08}");
                store.kv_write_head(
                    world.id(),
                    key.as_bytes(),
                    Some(b"a value of some bytes"),
                    None,
                )?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn forked(world: &World) -> Result<Duration> {
    let (took, branch) = timed(|| fork(world, false))?;
    abort(&branch)?;
    Ok(took)
}

fn main() -> Result<()> {
    let (work, bases) = (work()?, bases()?);
    let base = files(&bases, 100)?;
    let world = |name: &str| -> Result<(Engine, World)> {
        let engine = engine(&work.join(name))?;
        let world = engine.world(&base, WorldOptions::default())?;
        Ok((engine, world))
    };
    let (_few, empty) = world("empty")?;
    let (many, full) = world("full")?;
    fill(&many, &full)?;
    let branch = fork(&full, false)?;
    let kv = branch.kv()?;
    let mut n = 0;
    let mut key = || {
        n += 7919;
        format!("key/{:08}", n % KEYS)
    };
    kv.put(b"own", b"x")?;
    let found = interleave(
        ROUNDS,
        &mut [
            &mut || timed(|| kv.get(b"own")).map(|t| t.0),
            &mut || timed(|| kv.put(b"own", b"a value of some bytes")).map(|t| t.0),
            &mut || timed(|| kv.get(b"key/00000077")).map(|t| t.0),
        ],
    )?;
    let bar = || Some(Bar::Ns(60_000));
    row(
        "kv get of a key that the branch wrote, library",
        &found[0],
        None,
        bar(),
    );
    row("kv put, library", &found[1], None, bar());
    row(
        "kv get of a key of the fork, read before",
        &found[2],
        None,
        bar(),
    );
    let first = interleave(
        ROUNDS,
        &mut [&mut || timed(|| kv.get(key().as_bytes())).map(|t| t.0)],
    )?;
    row(
        "kv get of a key of the fork, for the first time",
        &first[0],
        None,
        bar(),
    );
    let found = interleave(FORKS, &mut [&mut || forked(&empty), &mut || forked(&full)])?;
    row(
        "fork with 1,000,000 keys, against none",
        &found[1],
        Some(&found[0]),
        Some(Bar::Ratio(1.2)),
    );
    note(&format!(
        "{ROUNDS} reads and writes one after the other, {FORKS} forks; the keys lie in the world."
    ));
    Ok(())
}
