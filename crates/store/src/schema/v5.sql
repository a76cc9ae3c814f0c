-- Version 5. A long stack of small overlays is merged into one, which knows of which: whoever compares
-- stacks goes by those.

ALTER TABLE overlays ADD COLUMN merged TEXT;
