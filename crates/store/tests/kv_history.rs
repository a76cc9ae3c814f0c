//! Random histories of keys against a model: whatever validation lets through is as if the branches had
//! run one after another, in the order of their commits.

mod common;

use common::{Fixture, branch, decision, reserve};
use forkpoint_model::state::BranchEvent;
use forkpoint_model::{BranchId, CommitId, Epoch, Source, WorldId};
use forkpoint_store::{BranchRecord, Race, Store};
use std::collections::BTreeMap;

const WORLD: WorldId = WorldId::from_bits(1);
const E0: Epoch = Epoch(0);
const HISTORIES: u64 = 30;
const STEPS: usize = 120;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a branch did, with what it was told.
#[derive(Clone, Debug)]
enum Did {
    Got(Vec<u8>, Option<Vec<u8>>),
    Listed(Vec<u8>, Vec<(Vec<u8>, Vec<u8>)>),
    Put(Vec<u8>, Vec<u8>),
    Added(Vec<u8>, Vec<u8>, bool),
    Deleted(Vec<u8>, bool),
}

impl Did {
    /// Does it once more, and compares what is told.
    fn again(&self, model: &mut Model) {
        match self {
            Self::Got(key, value) => assert_eq!(model.get(key), value.as_ref(), "{self:?}"),
            Self::Listed(prefix, found) => {
                let now: Vec<_> = (model.iter())
                    .filter(|(k, _)| k.starts_with(prefix))
                    .map(|(k, v)| (k.clone(), v.clone()))
                    .collect();
                assert_eq!(&now, found, "{self:?}");
            }
            Self::Put(key, value) => drop(model.insert(key.clone(), value.clone())),
            Self::Added(key, value, done) => {
                assert_eq!(model.contains_key(key), !done, "{self:?}");
                if *done {
                    model.insert(key.clone(), value.clone());
                }
            }
            Self::Deleted(key, was) => assert_eq!(model.remove(key).is_some(), *was, "{self:?}"),
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }

    fn key(&mut self) -> Vec<u8> {
        [&b"a"[..], b"ab", b"abc", b"b", b"b\xff", b"c", b"cc"][self.below(7)].to_vec()
    }
}

struct Live {
    id: BranchId,
    parent: Option<BranchId>,
    log: Vec<Did>,
    /// How much of the log is the parent's.
    inherited: usize,
}

fn act(s: &Store, live: &mut Live, random: &mut Random, n: usize) {
    let (key, value) = (random.key(), n.to_string().into_bytes());
    let did = match random.below(5) {
        0 => {
            let found = s.kv_get(live.id, E0, &key).unwrap();
            Did::Got(key, found.map(|e| e.value))
        }
        1 => {
            let prefix = key[..random.below(2)].to_vec();
            let page = s.kv_list(live.id, E0, &prefix, None, 100).unwrap();
            let found = page.entries.into_iter().map(|e| (e.key, e.value));
            Did::Listed(prefix, found.collect())
        }
        2 => {
            s.kv_write(live.id, E0, &key, Some(&value), None).unwrap();
            Did::Put(key, value)
        }
        3 => {
            let done = s
                .kv_write(live.id, E0, &key, Some(&value), Some(0))
                .unwrap();
            Did::Added(key, value, done.done)
        }
        _ => {
            let done = s.kv_write(live.id, E0, &key, None, None).unwrap();
            Did::Deleted(key, done.was != Some(0))
        }
    };
    live.log.push(did);
}

/// Commits, or says that it conflicts.
fn commit(s: &Store, b: BranchId, txn: u64) -> bool {
    s.transition(b, &BranchEvent::Sealed, 1).unwrap();
    // Files are nobody's business here: every branch is on the head.
    let sealed = s.transition(b, &BranchEvent::Rebased, 1).unwrap();
    if !s.kv_conflicts(b).unwrap().is_empty() {
        return false;
    }
    assert_eq!(reserve(s, txn, &sealed), Race::Won(()));
    assert!(matches!(
        s.decide(&decision(txn, false), 9).unwrap(),
        Race::Won(_)
    ));
    s.end_commit(CommitId::from_bits(txn), 10).unwrap();
    for child in s.children(b).unwrap() {
        if child.state.is_live() {
            s.kv_settle(child.id, b, s.world(WORLD).unwrap().head)
                .unwrap();
        }
    }
    true
}

fn history(seed: u64) -> (u32, u32) {
    let f = Fixture::new();
    let s = &f.store;
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (mut world, mut all, mut next) = (Model::new(), Vec::<Live>::new(), 1);
    let (mut done, mut refused) = (0, 0);
    for n in 0..STEPS {
        let which = random.below(all.len().max(1));
        match random.below(12) {
            0 | 1 => {
                let head = s.world(WORLD).unwrap().head;
                s.insert_branch(&BranchRecord {
                    generation: head,
                    ..branch(next)
                })
                .unwrap();
                let id = BranchId::from_bits(next);
                all.push(Live {
                    id,
                    parent: None,
                    log: Vec::new(),
                    inherited: 0,
                });
                next += 1;
            }
            2 if !all.is_empty() => {
                let of = all[which].id;
                let shared = s.seal_overlay(of).unwrap();
                let id = BranchId::from_bits(next);
                let generation = s.branch(of).unwrap().generation;
                let record = BranchRecord::new(id, WORLD, Source::Branch(of), generation);
                s.insert_branch(&BranchRecord { shared, ..record }).unwrap();
                let log = all[which].log.clone();
                all.push(Live {
                    id,
                    parent: Some(of),
                    inherited: log.len(),
                    log,
                });
                next += 1;
            }
            3 => {
                let (key, value) = (random.key(), n.to_string().into_bytes());
                s.kv_write_head(WORLD, &key, Some(&value), None).unwrap();
                world.insert(key, value);
            }
            4 if !all.is_empty() => {
                let live = all.swap_remove(which);
                let into = all.iter().position(|p| Some(p.id) == live.parent);
                match into {
                    Some(into)
                        if s.kv_nested_conflicts(live.id, all[into].id)
                            .unwrap()
                            .is_empty() =>
                    {
                        s.kv_commit_into(live.id, all[into].id).unwrap();
                        let force = false;
                        s.transition(live.id, &BranchEvent::Sealed, 1).unwrap();
                        s.transition(live.id, &BranchEvent::Rebased, 1).unwrap();
                        s.transition(live.id, &BranchEvent::StageBegan { force }, 1)
                            .unwrap();
                        let decided = BranchEvent::Decided { in_place: false };
                        s.transition(live.id, &decided, 1).unwrap();
                        all[into].log.extend_from_slice(&live.log[live.inherited..]);
                        done += 1;
                    }
                    Some(_) => refused += 1,
                    None if commit(s, live.id, 1000 + n as u64) => {
                        live.log.iter().for_each(|did| did.again(&mut world));
                        // Who stood on it and stays fresh has the rest of its log to answer for.
                        for child in all.iter_mut().filter(|c| c.parent == Some(live.id)) {
                            let moved = s.branch(child.id).unwrap().shared;
                            if moved.position == Some(s.position(WORLD).unwrap()) {
                                child.log.drain(..child.inherited);
                                (child.inherited, child.parent) = (0, None);
                            }
                        }
                        done += 1;
                    }
                    None => refused += 1,
                }
            }
            5 if n % 7 == 0 => drop(s.kv_collect(false).unwrap()),
            _ if !all.is_empty() => act(s, &mut all[which], &mut random, n),
            _ => {}
        }
        let page = s.kv_list_head(WORLD, b"", None, 100).unwrap();
        let found: Model = page.entries.into_iter().map(|e| (e.key, e.value)).collect();
        assert_eq!(found, world, "seed {seed}, step {n}");
    }
    (done, refused)
}

#[test]
fn what_validation_allows_is_a_serial_order() {
    let (mut done, mut refused) = (0, 0);
    for seed in 1..=HISTORIES {
        let (d, r) = history(seed);
        done += d;
        refused += r;
    }
    eprintln!("{done} commits, {refused} refused");
    assert!(done > 50 && refused > 10, "{done} {refused}");
}
