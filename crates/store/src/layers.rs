//! Layers and preparations, and which layers nobody uses.

use crate::{
    Durability, LayerKind, LayerRecord, PrepareRecord, Store, codes,
    row::{Reader, key, list_json, path_bytes, rows, signed, sql},
};
use forkpoint_model::{Digest, LayerId, Result};
use rusqlite::params;
use std::path::Path;

const LAYER: &str = "SELECT id, kind, bytes, entries, merged, created_ns FROM layers";
const PREPARE: &str =
    "SELECT key, base, disk_layers, root_layers, pinned, created_ns, used_ns FROM prepares";

/// Every reference to a layer. Branches that have ended hold theirs as long as they are retained.
const REFERENCED: &str = "
    SELECT l.value FROM branches b, json_each(b.stacks) s, json_each(s.value) l
        WHERE b.ended_ns IS NULL OR b.retained = 1
    UNION ALL SELECT l.value FROM branches b, json_each(b.root_layers) l
        WHERE b.ended_ns IS NULL OR b.retained = 1
    UNION ALL SELECT l.value FROM checkpoints c, json_each(c.stacks) s, json_each(s.value) l
    UNION ALL SELECT l.value FROM checkpoints c, json_each(c.root_layers) l
    UNION ALL SELECT l.value FROM prepares p, json_each(p.disk_layers) s, json_each(s.value) l
    UNION ALL SELECT l.value FROM prepares p, json_each(p.root_layers) l";

impl Store {
    /// Adds a layer.
    pub fn insert_layer(&self, layer: &LayerRecord) -> Result<()> {
        let durability = self.durability(Durability::Normal);
        self.write(durability, |_| {
            self.cached(
                "INSERT INTO layers (id, kind, bytes, entries, merged, created_ns) \
                 VALUES (?, ?, ?, ?, ?, ?)",
            )?
            .execute(params![
                key(layer.id.bits()),
                layer.kind.as_str(),
                signed(layer.bytes),
                signed(layer.entries),
                layer.merged,
                layer.created_ns,
            ])
            .map_err(sql("adding a layer"))?;
            Ok(())
        })
    }

    /// A layer. FP0108 if there is none.
    pub fn layer(&self, id: LayerId) -> Result<LayerRecord> {
        let text = format!("{LAYER} WHERE id = ?");
        rows(&mut *self.cached(&text)?, [key(id.bits())], read_layer)?
            .pop()
            .ok_or_else(|| codes::NOT_FOUND.error(format!("there is no layer {id}")))
    }

    /// Every layer, oldest first.
    pub fn layers(&self) -> Result<Vec<LayerRecord>> {
        let text = format!("{LAYER} ORDER BY created_ns, id");
        rows(&mut *self.cached(&text)?, [], read_layer)
    }

    /// The layers that no live or retained branch, checkpoint, preparation or snapshot uses.
    pub fn unreferenced_layers(&self) -> Result<Vec<LayerRecord>> {
        let mut used: std::collections::HashSet<LayerId> =
            rows(&mut *self.cached(REFERENCED)?, [], |r| {
                r.text(|s| s.parse::<LayerId>().ok())
            })?
            .into_iter()
            .collect();
        let snapshots = "SELECT snapshot_layer FROM disks WHERE snapshot_layer IS NOT NULL";
        used.extend(rows(&mut *self.cached(snapshots)?, [], |r| {
            r.id(LayerId::from_bits)
        })?);
        let mut layers = self.layers()?;
        layers.retain(|layer| !used.contains(&layer.id));
        Ok(layers)
    }

    /// Forgets a layer if nothing uses it any more; says whether it did. The caller removes the
    /// directory afterwards: a crash between the two leaves a directory without a row, which `gc`
    /// removes as well.
    pub fn remove_layer(&self, id: LayerId) -> Result<bool> {
        Ok(!self.remove_layers(&[id])?.is_empty())
    }

    /// As [`Store::remove_layer`] for many; returns those it forgot.
    pub fn remove_layers(&self, ids: &[LayerId]) -> Result<Vec<LayerId>> {
        self.write(self.durability(Durability::Full), |_| {
            // Looked at again under the lock: a fork may have taken the layer meanwhile.
            let free = self.unreferenced_layers()?;
            let mut removed = Vec::new();
            let mut delete = self.cached("DELETE FROM layers WHERE id = ?")?;
            for &id in ids {
                if free.iter().any(|layer| layer.id == id) {
                    delete
                        .execute([key(id.bits())])
                        .map_err(sql("removing a layer"))?;
                    removed.push(id);
                }
            }
            Ok(removed)
        })
    }

    /// Adds a preparation, or replaces the one of the same key and base.
    pub fn put_prepare(&self, p: &PrepareRecord) -> Result<()> {
        self.write(self.durability(Durability::Full), |_| {
            self.cached(
                "INSERT OR REPLACE INTO prepares (key, base, disk_layers, root_layers, pinned, \
                 created_ns, used_ns) VALUES (?, ?, ?, ?, ?, ?, ?)",
            )?
            .execute(params![
                &p.key.0[..],
                path_bytes(&p.base),
                list_json(&p.disk_layers)?,
                list_json(&p.root_layers)?,
                p.pinned,
                p.created_ns,
                p.used_ns,
            ])
            .map_err(sql("adding a preparation"))?;
            Ok(())
        })
    }

    /// The preparation of these inputs for this base.
    pub fn prepare(&self, inputs: Digest, base: &Path) -> Result<Option<PrepareRecord>> {
        let text = format!("{PREPARE} WHERE key = ? AND base = ?");
        let found = rows(
            &mut *self.cached(&text)?,
            params![&inputs.0[..], path_bytes(base)],
            read_prepare,
        )?;
        Ok(found.into_iter().next())
    }

    /// Every preparation, least recently used first.
    pub fn prepares(&self) -> Result<Vec<PrepareRecord>> {
        let text = format!("{PREPARE} ORDER BY used_ns");
        rows(&mut *self.cached(&text)?, [], read_prepare)
    }

    /// Records that a preparation was used.
    pub fn touch_prepare(&self, inputs: Digest, base: &Path, now_ns: i64) -> Result<()> {
        self.write(Durability::Normal, |_| {
            self.cached("UPDATE prepares SET used_ns = ? WHERE key = ? AND base = ?")?
                .execute(params![now_ns, &inputs.0[..], path_bytes(base)])
                .map_err(sql("updating a preparation"))?;
            Ok(())
        })
    }

    /// Forgets a preparation; its layers become collectable. Says whether there was one.
    pub fn remove_prepare(&self, inputs: Digest, base: &Path) -> Result<bool> {
        self.write(Durability::Normal, |_| {
            self.cached("DELETE FROM prepares WHERE key = ? AND base = ?")?
                .execute(params![&inputs.0[..], path_bytes(base)])
                .map(|n| n > 0)
                .map_err(sql("removing a preparation"))
        })
    }
}

fn read_layer(r: &mut Reader<'_, '_>) -> Result<LayerRecord> {
    Ok(LayerRecord {
        id: r.id(LayerId::from_bits)?,
        kind: r.text(LayerKind::parse)?,
        bytes: r.unsigned()?,
        entries: r.unsigned()?,
        merged: r.get()?,
        created_ns: r.get()?,
    })
}

fn read_prepare(r: &mut Reader<'_, '_>) -> Result<PrepareRecord> {
    Ok(PrepareRecord {
        key: Digest(r.get()?),
        base: r.path()?,
        disk_layers: r.list()?,
        root_layers: r.list()?,
        pinned: r.get()?,
        created_ns: r.get()?,
        used_ns: r.get()?,
    })
}
