-- Times are seconds since the epoch.

CREATE TABLE IF NOT EXISTS accounts (
    name TEXT PRIMARY KEY, role TEXT NOT NULL, password TEXT NOT NULL, disabled INTEGER NOT NULL DEFAULT 0,
    created_at REAL NOT NULL, created_by TEXT NOT NULL) WITHOUT ROWID;

-- `name`: the account that gets a new password, with the role it has. NULL: whoever accepts makes an account.
CREATE TABLE IF NOT EXISTS invitations (
    digest TEXT PRIMARY KEY, role TEXT NOT NULL, name TEXT, created_by TEXT NOT NULL, created_at REAL NOT NULL,
    expires_at REAL NOT NULL, used_at REAL, used_by TEXT, project TEXT NOT NULL DEFAULT 'default') WITHOUT ROWID;

-- Whose queues an account sees.
CREATE TABLE IF NOT EXISTS members (
    project TEXT NOT NULL, name TEXT NOT NULL, PRIMARY KEY (project, name)) WITHOUT ROWID;

-- Named lists of people, to which queues are assigned.
CREATE TABLE IF NOT EXISTS person_groups (
    project TEXT NOT NULL, name TEXT NOT NULL, member TEXT NOT NULL, PRIMARY KEY (project, name, member)) WITHOUT ROWID;

-- `role`: of somebody without an account, on a server that has none; else the account's counts, as it is now.
CREATE TABLE IF NOT EXISTS sessions (
    digest TEXT PRIMARY KEY, name TEXT NOT NULL, role TEXT, csrf TEXT NOT NULL, created_at REAL NOT NULL,
    seen_at REAL NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS sessions_of ON sessions (name);

-- `role`: the most that it may, whatever its account may.
CREATE TABLE IF NOT EXISTS tokens (
    digest TEXT PRIMARY KEY, id TEXT NOT NULL UNIQUE, name TEXT NOT NULL, label TEXT NOT NULL, role TEXT NOT NULL,
    created_at REAL NOT NULL, expires_at REAL NOT NULL, used_at REAL) WITHOUT ROWID;

-- Of an OpenID provider: whose account each is.
CREATE TABLE IF NOT EXISTS identities (
    issuer TEXT NOT NULL, subject TEXT NOT NULL, name TEXT NOT NULL, PRIMARY KEY (issuer, subject)) WITHOUT ROWID;

-- Sign-ins on their way through the provider. `name`: of somebody signed in, whose account gets the identity.
CREATE TABLE IF NOT EXISTS pending_sign_ins (
    state TEXT PRIMARY KEY, browser TEXT NOT NULL, nonce TEXT NOT NULL, verifier TEXT NOT NULL, target TEXT NOT NULL,
    name TEXT, at REAL NOT NULL) WITHOUT ROWID;

-- When an account's sessions that have ended were last used, however they ended.
CREATE TABLE IF NOT EXISTS last_seen (name TEXT PRIMARY KEY, at REAL NOT NULL) WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS session_ended AFTER DELETE ON sessions WHEN old.role IS NULL BEGIN
    INSERT INTO last_seen VALUES (old.name, old.seen_at)
    ON CONFLICT (name) DO UPDATE SET at = max(at, excluded.at); END;

-- Buckets of failed attempts: how much was taken, as of when.
CREATE TABLE IF NOT EXISTS attempts (key TEXT PRIMARY KEY, used REAL NOT NULL, at REAL NOT NULL) WITHOUT ROWID;

-- From where an account has signed in, and when last.
CREATE TABLE IF NOT EXISTS known_addresses (
    name TEXT NOT NULL, network TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (name, network)) WITHOUT ROWID;

-- Appended to, never changed. `hash`: of the line and of the hash of the line before (assay.system.hash_chain).
CREATE TABLE IF NOT EXISTS audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, person TEXT NOT NULL, action TEXT NOT NULL,
    subject TEXT NOT NULL, detail TEXT NOT NULL, address TEXT NOT NULL,
    hash TEXT NOT NULL DEFAULT '');
CREATE INDEX IF NOT EXISTS audit_by_person ON audit (person);
CREATE INDEX IF NOT EXISTS audit_by_action ON audit (action);
