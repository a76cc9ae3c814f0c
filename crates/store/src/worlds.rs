//! Worlds, their disks, and checkpoints.

use crate::{
    CheckpointRecord, DiskKind, DiskRecord, Durability, SharedRecord, Store, WorldRecord, codes,
    row::{Reader, key, list_json, path_bytes, rows, signed, sql},
};
use forkpoint_model::{CheckpointId, Generation, LayerId, Result, WorldId};
use rusqlite::params;
use std::path::Path;

const WORLD: &str = "SELECT id, head, created_ns FROM worlds";
const CHECKPOINT: &str = "SELECT id, name, world, generation, stacks, root_layers, stamp_ns, \
    created_ns, position, overlays FROM checkpoints";

impl Store {
    /// Adds a world, durably. FP0110 if its base already has one of that kind.
    pub fn insert_world(&self, world: &WorldRecord) -> Result<()> {
        self.write(self.durability(Durability::Full), |_| {
            self.cached("INSERT INTO worlds (id, head, created_ns) VALUES (?, ?, ?)")?
                .execute(params![
                    key(world.id.bits()),
                    signed(world.head.0),
                    world.created_ns
                ])
                .map_err(sql("adding a world"))?;
            let mut insert = self.cached(
                "INSERT INTO disks (world, disk, path, dev, ino, kind, snapshot_layer) \
                 VALUES (?, ?, ?, ?, ?, ?, ?)",
            )?;
            for (disk, n) in world.disks.iter().zip(0i64..) {
                insert
                    .execute(params![
                        key(world.id.bits()),
                        n,
                        path_bytes(&disk.path),
                        disk.dev.cast_signed(),
                        disk.ino.cast_signed(),
                        disk.kind.as_str(),
                        disk.snapshot_layer.map(|l| key(l.bits())),
                    ])
                    .map_err(sql("adding a disk of a world"))?;
            }
            Ok(())
        })
    }

    /// The world whose first disk has this canonical path, used in this way.
    pub fn find_world(&self, base: &Path, kind: DiskKind) -> Result<Option<WorldRecord>> {
        let sql = format!(
            "{WORLD} WHERE id = (SELECT world FROM disks WHERE disk = 0 AND path = ? AND kind = ?)"
        );
        self.world_by(&sql, params![path_bytes(base), kind.as_str()])
    }

    /// A world. FP0108 if there is none.
    pub fn world(&self, id: WorldId) -> Result<WorldRecord> {
        self.world_by(&format!("{WORLD} WHERE id = ?"), [key(id.bits())])?
            .ok_or_else(|| codes::NOT_FOUND.error(format!("there is no world {id}")))
    }

    /// Every world, oldest first.
    pub fn worlds(&self) -> Result<Vec<WorldRecord>> {
        let mut statement = self.cached(&format!("{WORLD} ORDER BY created_ns, id"))?;
        let mut worlds = rows(&mut statement, [], read_world)?;
        for world in &mut worlds {
            world.disks = self.disks(world.id)?;
        }
        Ok(worlds)
    }

    /// Replaces the device and inode numbers and snapshots of a world's disks, as after a base was
    /// moved to another file system.
    pub fn update_disks(&self, id: WorldId, disks: &[DiskRecord]) -> Result<()> {
        self.write(Durability::Normal, |_| {
            let mut update = self.cached(
                "UPDATE disks SET dev = ?, ino = ?, snapshot_layer = ? \
                 WHERE world = ? AND disk = ? AND path = ?",
            )?;
            for (disk, n) in disks.iter().zip(0i64..) {
                update
                    .execute(params![
                        disk.dev.cast_signed(),
                        disk.ino.cast_signed(),
                        disk.snapshot_layer.map(|l| key(l.bits())),
                        key(id.bits()),
                        n,
                        path_bytes(&disk.path),
                    ])
                    .map_err(sql("updating a disk of a world"))?;
            }
            Ok(())
        })
    }

    fn world_by(&self, text: &str, params: impl rusqlite::Params) -> Result<Option<WorldRecord>> {
        self.look(|store| {
            let mut statement = store.cached(text)?;
            let found = rows(&mut statement, params, read_world)?.pop();
            let Some(mut world) = found else {
                return Ok(None);
            };
            world.disks = store.disks(world.id)?;
            Ok(Some(world))
        })
    }

    fn disks(&self, world: WorldId) -> Result<Vec<DiskRecord>> {
        let mut statement = self.cached(
            "SELECT path, dev, ino, kind, snapshot_layer FROM disks WHERE world = ? ORDER BY disk",
        )?;
        rows(&mut statement, [key(world.bits())], |r| {
            Ok(DiskRecord {
                path: r.path()?,
                dev: r.bits()?,
                ino: r.bits()?,
                kind: r.text(DiskKind::parse)?,
                snapshot_layer: r.opt_id(LayerId::from_bits)?,
            })
        })
    }

    /// Adds a checkpoint, durably. FP0110 if its name is taken.
    pub fn insert_checkpoint(&self, c: &CheckpointRecord) -> Result<()> {
        self.write(self.durability(Durability::Full), |_| {
            self.cached(
                "INSERT INTO checkpoints (id, name, world, generation, stacks, root_layers, \
                 stamp_ns, created_ns, position, overlays) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, \
                 coalesce(?9, (SELECT position FROM worlds WHERE id = ?3)), ?10)",
            )?
            .execute(params![
                key(c.id.bits()),
                c.name,
                key(c.world.bits()),
                signed(c.generation.0),
                list_json(&c.stacks)?,
                list_json(&c.root_layers)?,
                c.stamp_ns,
                c.created_ns,
                c.shared.position.map(signed),
                list_json(&c.shared.stack())?,
            ])
            .map_err(sql("adding a checkpoint"))?;
            Ok(())
        })
    }

    /// The checkpoints of a world, or all; oldest first.
    pub fn checkpoints(&self, world: Option<WorldId>) -> Result<Vec<CheckpointRecord>> {
        let text = format!("{CHECKPOINT} WHERE ?1 IS NULL OR world = ?1 ORDER BY created_ns, id");
        rows(
            &mut *self.cached(&text)?,
            [world.map(|w| key(w.bits()))],
            read_checkpoint,
        )
    }

    /// A checkpoint. FP0108 if there is none.
    pub fn checkpoint(&self, id: CheckpointId) -> Result<CheckpointRecord> {
        rows(
            &mut *self.cached(&format!("{CHECKPOINT} WHERE id = ?"))?,
            [key(id.bits())],
            read_checkpoint,
        )?
        .pop()
        .ok_or_else(|| codes::NOT_FOUND.error(format!("there is no checkpoint {id}")))
    }

    /// Removes a checkpoint; its layers become collectable. Says whether there was one.
    pub fn remove_checkpoint(&self, id: CheckpointId) -> Result<bool> {
        self.write(self.durability(Durability::Full), |_| {
            self.cached("DELETE FROM checkpoints WHERE id = ?")?
                .execute([key(id.bits())])
                .map(|n| n > 0)
                .map_err(sql("removing a checkpoint"))
        })
    }
}

fn read_world(r: &mut Reader<'_, '_>) -> Result<WorldRecord> {
    Ok(WorldRecord {
        id: r.id(WorldId::from_bits)?,
        disks: Vec::new(),
        head: Generation(r.unsigned()?),
        created_ns: r.get()?,
    })
}

fn read_checkpoint(r: &mut Reader<'_, '_>) -> Result<CheckpointRecord> {
    Ok(CheckpointRecord {
        id: r.id(CheckpointId::from_bits)?,
        name: r.get()?,
        world: r.id(WorldId::from_bits)?,
        generation: Generation(r.unsigned()?),
        stacks: r.list()?,
        root_layers: r.list()?,
        stamp_ns: r.get()?,
        created_ns: r.get()?,
        shared: SharedRecord {
            position: Some(r.unsigned()?),
            overlay: None,
            overlays: r.list()?,
        },
    })
}
