-- Times are seconds since the epoch. An item with a `check_label` is a gold check. `taken`: standing votes that count
-- towards the overlap. `done`: as many votes as asked, or `removed` from the queue. `conflict`: done, or two and more where
-- all are asked, and no majority. Of a queue `guideline` is the first version; `title`, `options` (see queue_options),
-- `asked` (people and groups, NULL: everybody), `paused`, `deleted` and the tables down to `item_people` follow from its
-- `changes` (see queue_state).

CREATE TABLE IF NOT EXISTS queues (
    name TEXT PRIMARY KEY, queue_id TEXT NOT NULL, overlap INTEGER NOT NULL, gold_checks REAL NOT NULL,
    seed INTEGER NOT NULL, lease_seconds REAL NOT NULL, guideline TEXT NOT NULL, closed INTEGER NOT NULL DEFAULT 0,
    run_id TEXT, created_at REAL NOT NULL, project TEXT NOT NULL DEFAULT 'default',
    title TEXT, options TEXT NOT NULL DEFAULT '{}', asked TEXT, paused INTEGER NOT NULL DEFAULT 0,
    deleted INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS items (
    item_id INTEGER PRIMARY KEY, queue TEXT NOT NULL, comparison_id TEXT NOT NULL, priority REAL NOT NULL,
    draw TEXT NOT NULL, check_label TEXT, is_check INTEGER NOT NULL,
    taken INTEGER NOT NULL DEFAULT 0, done INTEGER NOT NULL DEFAULT 0, conflict INTEGER NOT NULL DEFAULT 0,
    removed INTEGER NOT NULL DEFAULT 0, UNIQUE (queue, comparison_id));
CREATE INDEX IF NOT EXISTS items_next ON items (queue, is_check, done, priority DESC, draw, taken, item_id);
CREATE INDEX IF NOT EXISTS items_conflict ON items (queue, priority DESC, draw) WHERE conflict = 1;

-- What a person sees; apart from the items, so that looking for the next one reads little.
CREATE TABLE IF NOT EXISTS payloads (item_id INTEGER PRIMARY KEY, payload TEXT NOT NULL);

CREATE TABLE IF NOT EXISTS annotators (name TEXT PRIMARY KEY, kind TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS leases (
    item_id INTEGER NOT NULL, annotator TEXT NOT NULL, role TEXT NOT NULL, attempt INTEGER NOT NULL,
    shown_order TEXT NOT NULL, leased_at REAL NOT NULL, expires_at REAL NOT NULL, guideline INTEGER, suggestion TEXT,
    PRIMARY KEY (item_id, annotator, role)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS leases_held ON leases (annotator, role);

CREATE TABLE IF NOT EXISTS votes (
    judgment_id TEXT PRIMARY KEY, item_id INTEGER NOT NULL, annotator TEXT NOT NULL, role TEXT NOT NULL,
    attempt INTEGER NOT NULL, answer TEXT NOT NULL, strength INTEGER, confidence REAL, rationale TEXT,
    shown_order TEXT NOT NULL, seconds REAL, counts INTEGER NOT NULL, at REAL NOT NULL,
    withdrawn_at REAL, guideline INTEGER, suggestion TEXT, UNIQUE (item_id, annotator, role, attempt)) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS votes_standing ON votes (item_id, annotator, role) WHERE withdrawn_at IS NULL;
CREATE INDEX IF NOT EXISTS votes_by ON votes (annotator, at);

-- What was said of principles with a vote; `response` is A or B, as the vote's answer.
CREATE TABLE IF NOT EXISTS vote_principles (
    judgment_id TEXT NOT NULL, response TEXT NOT NULL, principle TEXT NOT NULL, answer TEXT NOT NULL, evidence TEXT,
    PRIMARY KEY (judgment_id, response, principle)) WITHOUT ROWID;

-- What a vote on an item that is no pair says: see assay.annotation.item_answers. Empty: passed on.
CREATE TABLE IF NOT EXISTS vote_labels (judgment_id TEXT PRIMARY KEY, labels TEXT NOT NULL) WITHOUT ROWID;

-- Entries on their way to the journal: written with what they tell of, deleted once they are durable there.
CREATE TABLE IF NOT EXISTS outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, entry TEXT NOT NULL);

-- Closings and the like on their way into the store.
CREATE TABLE IF NOT EXISTS events (
    event_id TEXT PRIMARY KEY, queue_id TEXT NOT NULL, event TEXT NOT NULL, detail TEXT, run_id TEXT,
    at REAL NOT NULL, stored INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS changes (
    change_id TEXT PRIMARY KEY, queue_id TEXT NOT NULL, change TEXT NOT NULL, detail TEXT NOT NULL, person TEXT,
    at REAL NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS changes_of ON changes (queue_id, change, at);

-- Of a guideline those after the first.
CREATE TABLE IF NOT EXISTS guidelines (
    queue_id TEXT NOT NULL, version INTEGER NOT NULL, text TEXT NOT NULL, person TEXT, at REAL NOT NULL,
    PRIMARY KEY (queue_id, version)) WITHOUT ROWID;

-- Flags and comments on items, to those who run the queue.
CREATE TABLE IF NOT EXISTS notes (
    note_id TEXT PRIMARY KEY, queue_id TEXT NOT NULL, comparison_id TEXT NOT NULL, person TEXT NOT NULL, kind TEXT NOT NULL,
    text TEXT NOT NULL, at REAL NOT NULL, resolved_by TEXT, resolved_at REAL, reply TEXT NOT NULL DEFAULT '') WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS notes_of ON notes (queue_id, comparison_id);

-- Who passed or failed the qualification, or is held back: by a rule where `person` is NULL.
CREATE TABLE IF NOT EXISTS admissions (
    queue_id TEXT NOT NULL, annotator TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL, person TEXT, at REAL NOT NULL,
    PRIMARY KEY (queue_id, annotator)) WITHOUT ROWID;

-- Items that only these people are asked; without a row everybody is.
CREATE TABLE IF NOT EXISTS item_people (
    queue_id TEXT NOT NULL, comparison_id TEXT NOT NULL, annotator TEXT NOT NULL,
    PRIMARY KEY (queue_id, comparison_id, annotator)) WITHOUT ROWID;
