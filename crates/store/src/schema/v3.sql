-- Version 3. A fork writes two pages in place of three: what is looked for among the branches that have
-- not ended is indexed for those alone, and by state only where that is an unusual one.

DROP INDEX branches_live;
DROP INDEX branches_world;
CREATE INDEX branches_live ON branches (world) WHERE ended_ns IS NULL;
CREATE INDEX branches_unfinished ON branches (id) WHERE ended_ns IS NULL AND state IN ('staged',
    'applying', 'apply_blocked', 'invalidated', 'aborting', 'rollback_incomplete');
