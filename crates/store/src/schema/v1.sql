-- Version 1. Identifiers are their 40 bits; times are nanoseconds since the epoch; paths are bytes.
-- Lists and small structures that no query looks into are JSON.

CREATE TABLE worlds (
    id INTEGER PRIMARY KEY,
    head INTEGER NOT NULL,
    created_ns INTEGER NOT NULL
) STRICT;

CREATE TABLE disks (
    world INTEGER NOT NULL,
    disk INTEGER NOT NULL,
    path BLOB NOT NULL,
    dev INTEGER NOT NULL,
    ino INTEGER NOT NULL,
    kind TEXT NOT NULL,
    snapshot_layer INTEGER,
    PRIMARY KEY (world, disk)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX disks_base ON disks (path, kind) WHERE disk = 0;

CREATE TABLE branches (
    id INTEGER PRIMARY KEY,
    name TEXT,
    world INTEGER NOT NULL,
    parent_kind TEXT NOT NULL,
    parent INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    group_id INTEGER,
    exploration INTEGER,
    attempt INTEGER,
    state TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    stacks TEXT,
    root_layers TEXT,
    stamp_ns INTEGER NOT NULL,
    durable INTEGER NOT NULL,
    layer TEXT NOT NULL,
    network TEXT NOT NULL,
    uncaptured TEXT,
    verified TEXT,
    reason TEXT,
    process TEXT,
    created_ns INTEGER NOT NULL,
    ended_ns INTEGER,
    retained INTEGER NOT NULL,
    bytes INTEGER,
    detail TEXT
) STRICT;
CREATE UNIQUE INDEX branches_name ON branches (name) WHERE name IS NOT NULL AND ended_ns IS NULL;
CREATE INDEX branches_world ON branches (world);
CREATE INDEX branches_live ON branches (state) WHERE ended_ns IS NULL;
CREATE INDEX branches_child ON branches (parent) WHERE parent_kind = 'branch';
CREATE INDEX branches_group ON branches (group_id) WHERE group_id IS NOT NULL;
CREATE INDEX branches_attempt ON branches (exploration, attempt) WHERE exploration IS NOT NULL;
CREATE INDEX branches_process ON branches (id) WHERE process IS NOT NULL;

CREATE TABLE layers (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    entries INTEGER NOT NULL,
    merged INTEGER NOT NULL,
    created_ns INTEGER NOT NULL
) STRICT;

CREATE TABLE commits (
    id INTEGER PRIMARY KEY,
    world INTEGER NOT NULL,
    branch INTEGER NOT NULL,
    from_generation INTEGER NOT NULL,
    to_generation INTEGER NOT NULL,
    group_id INTEGER,
    participants TEXT,
    state TEXT NOT NULL,
    votes TEXT,
    blocked TEXT,
    verified INTEGER NOT NULL,
    summary TEXT,
    created_ns INTEGER NOT NULL,
    decided_ns INTEGER,
    ended_ns INTEGER
) STRICT;
CREATE UNIQUE INDEX commits_reservation ON commits (world)
    WHERE state IN ('reserved', 'applying', 'apply_blocked', 'undoing');
CREATE INDEX commits_in_doubt ON commits (id) WHERE ended_ns IS NULL;
CREATE INDEX commits_world ON commits (world, to_generation);

-- One per decision, never removed. `contender` is the sibling group, or the branch without one.
CREATE TABLE decisions (
    world INTEGER NOT NULL,
    from_generation INTEGER NOT NULL,
    contender TEXT NOT NULL,
    txn INTEGER NOT NULL UNIQUE,
    PRIMARY KEY (world, from_generation, contender)
) STRICT, WITHOUT ROWID;

CREATE TABLE journals (
    txn INTEGER NOT NULL,
    participant TEXT NOT NULL,
    journal BLOB NOT NULL,
    PRIMARY KEY (txn, participant)
) STRICT;

CREATE TABLE explorations (
    id INTEGER PRIMARY KEY,
    world INTEGER NOT NULL,
    cwd BLOB NOT NULL,
    spec TEXT NOT NULL,
    state TEXT NOT NULL,
    supervisor TEXT,
    created_ns INTEGER NOT NULL,
    ended_ns INTEGER,
    result TEXT
) STRICT;
CREATE INDEX explorations_cwd ON explorations (cwd, created_ns);
CREATE INDEX explorations_running ON explorations (id) WHERE ended_ns IS NULL;

CREATE TABLE attempts (
    exploration INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    branch INTEGER,
    params TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT,
    exit_code INTEGER,
    score REAL,
    passed INTEGER,
    detail TEXT,
    PRIMARY KEY (exploration, attempt)
) STRICT, WITHOUT ROWID;

CREATE TABLE checkpoints (
    id INTEGER PRIMARY KEY,
    name TEXT UNIQUE,
    world INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    stacks TEXT,
    root_layers TEXT,
    stamp_ns INTEGER NOT NULL,
    created_ns INTEGER NOT NULL
) STRICT;

CREATE TABLE prepares (
    key BLOB NOT NULL,
    base BLOB NOT NULL,
    disk_layers TEXT,
    root_layers TEXT,
    pinned BLOB NOT NULL,
    created_ns INTEGER NOT NULL,
    used_ns INTEGER NOT NULL,
    PRIMARY KEY (key, base)
) STRICT;

CREATE TABLE history (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ns INTEGER NOT NULL,
    verb TEXT NOT NULL,
    world INTEGER,
    branch INTEGER,
    txn INTEGER,
    line TEXT NOT NULL,
    json TEXT
) STRICT;
CREATE INDEX history_world ON history (world, seq) WHERE world IS NOT NULL;
CREATE INDEX history_branch ON history (branch, seq) WHERE branch IS NOT NULL;
