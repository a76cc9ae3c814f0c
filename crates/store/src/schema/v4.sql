-- Version 4. How many bytes an overlay holds, which is bounded for the overlays of a branch together;
-- and the position at which a commit changed keys, so that they can be taken back. `collected` is up to
-- where the versions of a world's keys were collected.

ALTER TABLE overlays ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE commits ADD COLUMN position INTEGER;
ALTER TABLE worlds ADD COLUMN collected INTEGER NOT NULL DEFAULT 0;
