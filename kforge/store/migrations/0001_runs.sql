-- Runs, the candidates they proposed, every evaluation, and what advice expected against what it achieved.
CREATE TABLE runs (
    id          TEXT PRIMARY KEY,      -- name of the run's folder
    task        TEXT NOT NULL,         -- path of op.py as given
    task_digest TEXT,
    target      TEXT,                  -- GPU name or "emulator"
    folder      TEXT NOT NULL,
    started     REAL NOT NULL,         -- seconds since the epoch
    finished    REAL,
    status      TEXT,                  -- CONTRACTS 6; NULL while it runs or when it died
    verdict     TEXT,
    best        TEXT,                  -- digest
    exit_code   INTEGER
);
CREATE INDEX runs_started ON runs (started);

CREATE TABLE candidates (
    digest        TEXT NOT NULL,
    run           TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    module        TEXT NOT NULL,
    proposer      TEXT NOT NULL,
    parent        TEXT,
    idea          TEXT NOT NULL DEFAULT '',
    expected_gain REAL,                -- factor over the parent
    PRIMARY KEY (run, digest)
);

CREATE TABLE evaluations (
    id        INTEGER PRIMARY KEY,
    run       TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    candidate TEXT NOT NULL,
    time      REAL NOT NULL,
    plan      TEXT NOT NULL,
    status    TEXT NOT NULL,
    verdict   TEXT NOT NULL,
    speedup   REAL,
    ms        REAL,                    -- the candidate's median
    seconds   REAL,                    -- what the evaluation took
    report    TEXT NOT NULL            -- the whole Report as JSON
);
CREATE INDEX evaluations_run ON evaluations (run, candidate);

CREATE TABLE ledger (
    id            INTEGER PRIMARY KEY,
    run           TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    source        TEXT NOT NULL,       -- analysis tool or proposer whose advice it was
    advice        TEXT NOT NULL,
    parent        TEXT NOT NULL,       -- candidate the advice was about
    child         TEXT NOT NULL,       -- candidate that followed it
    expected_low  REAL NOT NULL,       -- factors over the parent
    expected_high REAL NOT NULL,
    achieved      REAL,                -- NULL: untimed; 0: the child was not verified
    time          REAL NOT NULL
);
CREATE INDEX ledger_source ON ledger (source);
