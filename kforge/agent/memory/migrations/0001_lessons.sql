-- Every attempt that was judged: what was tried, expected and achieved, and why it failed.
CREATE TABLE lessons (
    id          INTEGER PRIMARY KEY,
    time        REAL NOT NULL,         -- seconds since the epoch
    family      TEXT NOT NULL,         -- of the operator: softmax, norm, reduction, pointwise, matmul ...
    shape_class TEXT NOT NULL,
    chip        TEXT NOT NULL,         -- GPU name or "emulator"
    direction   TEXT NOT NULL,         -- kind of change
    outcome     TEXT NOT NULL,         -- gain | loss | same | right | failed | hacked | note
    success     INTEGER,               -- 1 right and better, 0 not, NULL: not an attempt (a note)
    expected    REAL,                  -- factor over the parent
    gain        REAL,                  -- achieved factor over the parent; NULL: untimed or failed
    text        TEXT NOT NULL,         -- what was tried, in words
    why         TEXT NOT NULL,         -- first line of what failed
    run         TEXT NOT NULL,
    candidate   TEXT NOT NULL,         -- digest
    source      TEXT NOT NULL          -- of a hack, to find similar ones
);
CREATE INDEX lessons_key ON lessons (family, shape_class, chip);
CREATE UNIQUE INDEX lessons_once ON lessons (run, candidate, chip) WHERE candidate <> '';
