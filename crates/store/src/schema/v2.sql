-- Version 2: what a world shares beside its disks (keys and events), each branch's overlay of it, and
-- the effect journal. `position` counts the changes of a world's shared state; a branch sees those
-- up to its own position, under its overlays.

ALTER TABLE worlds ADD COLUMN position INTEGER NOT NULL DEFAULT 0;

-- `overlay` is the one a branch writes to, once it has; `overlays` the sealed ones below, topmost first.
ALTER TABLE branches ADD COLUMN position INTEGER NOT NULL DEFAULT 0;
ALTER TABLE branches ADD COLUMN overlay INTEGER;
ALTER TABLE branches ADD COLUMN overlays TEXT;
ALTER TABLE checkpoints ADD COLUMN position INTEGER NOT NULL DEFAULT 0;
ALTER TABLE checkpoints ADD COLUMN overlays TEXT;

-- Numbers overlays; a row for each that something was written to or read through.
CREATE TABLE overlays (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    world INTEGER NOT NULL,
    branch INTEGER NOT NULL
) STRICT;

-- Every committed version of every key; a value that is absent is a removal.
CREATE TABLE kv (
    world INTEGER NOT NULL,
    key BLOB NOT NULL,
    position INTEGER NOT NULL,
    value BLOB,
    PRIMARY KEY (world, key, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX kv_position ON kv (world, position);

CREATE TABLE overlay_kv (
    overlay INTEGER NOT NULL,
    key BLOB NOT NULL,
    version INTEGER NOT NULL,
    value BLOB,
    PRIMARY KEY (overlay, key)
) STRICT, WITHOUT ROWID;

-- What was read through an overlay from below it: keys, and prefixes that were listed. A commit
-- fails when another changed any of them.
CREATE TABLE overlay_reads (
    overlay INTEGER NOT NULL,
    prefix INTEGER NOT NULL,
    key BLOB NOT NULL,
    PRIMARY KEY (overlay, prefix, key)
) STRICT, WITHOUT ROWID;

-- Committed events, in the order of their commits and of their publishing within each.
CREATE TABLE bus (
    world INTEGER NOT NULL,
    position INTEGER NOT NULL,
    n INTEGER NOT NULL,
    topic TEXT NOT NULL,
    id TEXT NOT NULL,
    payload BLOB NOT NULL,
    branch INTEGER,
    txn INTEGER,
    at_ns INTEGER NOT NULL,
    PRIMARY KEY (world, position, n)
) STRICT, WITHOUT ROWID;
CREATE INDEX bus_topic ON bus (world, topic, position, n);

-- How far a named consumer has acknowledged.
CREATE TABLE bus_consumers (
    world INTEGER NOT NULL,
    consumer TEXT NOT NULL,
    topic TEXT NOT NULL,
    position INTEGER NOT NULL,
    n INTEGER NOT NULL,
    at_ns INTEGER NOT NULL,
    PRIMARY KEY (world, consumer, topic)
) STRICT, WITHOUT ROWID;

-- The effect journal: never rolled back with a branch. `branch` answers for the effect now (a nested
-- commit moves it to the parent), `origin` performed it. `place` counts the effects of a line: going
-- back to a step goes back to its place, and what is then intended anew may be what a row recorded.
CREATE TABLE effects (
    branch INTEGER NOT NULL,
    ordinal INTEGER NOT NULL,
    origin INTEGER NOT NULL,
    overlay INTEGER NOT NULL,
    place INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    participant TEXT NOT NULL,
    class TEXT NOT NULL,
    state TEXT NOT NULL,
    key TEXT NOT NULL,
    intent BLOB NOT NULL,
    inverse BLOB,
    response BLOB,
    attempts INTEGER NOT NULL DEFAULT 0,
    why TEXT,
    created_ns INTEGER NOT NULL,
    settled_ns INTEGER,
    PRIMARY KEY (branch, ordinal)
) STRICT, WITHOUT ROWID;
CREATE INDEX effects_open ON effects (branch) WHERE settled_ns IS NULL;
CREATE INDEX effects_overlay ON effects (overlay, place);
CREATE INDEX effects_place ON effects (branch, place);
