CREATE TABLE tasks (
    id BLOB NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL, issuer TEXT NOT NULL, subject TEXT NOT NULL, app TEXT NOT NULL,
    owner BLOB NOT NULL,
    kid INTEGER NOT NULL,
    name TEXT NOT NULL,
    tool TEXT NOT NULL,
    session TEXT NOT NULL,
    origin TEXT NOT NULL,
    hidden INTEGER NOT NULL,
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    purge_after INTEGER NOT NULL,
    idem BLOB,
    digest BLOB NOT NULL,
    phase TEXT NOT NULL,
    ending TEXT,
    run TEXT NOT NULL,
    runner BLOB,
    fence INTEGER NOT NULL,
    starts INTEGER NOT NULL,
    legs INTEGER NOT NULL,
    strays INTEGER NOT NULL,
    stop TEXT NOT NULL,
    open INTEGER NOT NULL,
    due_at INTEGER,
    expires_at INTEGER NOT NULL,
    not_before INTEGER NOT NULL,
    approved_until INTEGER,
    upstream INTEGER NOT NULL,
    checkpoint INTEGER NOT NULL,
    rules TEXT NOT NULL,
    status BLOB NOT NULL,
    format INTEGER NOT NULL,
    is_error INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX tasks_name ON tasks (owner, name);
CREATE UNIQUE INDEX tasks_idem ON tasks (owner, idem) WHERE idem IS NOT NULL;
CREATE UNIQUE INDEX tasks_owner ON tasks (owner, created_at, id);
CREATE INDEX tasks_recent ON tasks (created_at, id);
CREATE INDEX tasks_open ON tasks (owner) WHERE open = 1;
CREATE INDEX tasks_due ON tasks (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX tasks_runner ON tasks (runner) WHERE runner IS NOT NULL;
CREATE INDEX tasks_purge ON tasks (purge_after) WHERE open = 0;

CREATE TABLE bodies (
    task BLOB NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (task, name)
) STRICT;

CREATE TABLE questions (
    task BLOB NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    key INTEGER NOT NULL,
    reader TEXT NOT NULL,
    state TEXT NOT NULL,
    until INTEGER,
    misfits INTEGER NOT NULL,
    bind BLOB NOT NULL,
    PRIMARY KEY (task, key)
) STRICT;

CREATE TABLE counters (
    key TEXT NOT NULL PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;

CREATE TABLE records (
    kind TEXT NOT NULL,
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    version INTEGER NOT NULL,
    expires_at INTEGER,
    body BLOB NOT NULL,
    PRIMARY KEY (kind, tenant, id)
) STRICT;
CREATE INDEX records_expiry ON records (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE audit (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    step_id BLOB NOT NULL UNIQUE,
    body BLOB NOT NULL
) STRICT;

CREATE TABLE runners (
    id BLOB NOT NULL PRIMARY KEY,
    host TEXT NOT NULL,
    boot TEXT NOT NULL,
    pid INTEGER NOT NULL,
    pid_start TEXT NOT NULL,
    fenced INTEGER NOT NULL
) STRICT;

CREATE TABLE data_keys (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    principal BLOB NOT NULL,
    wrapped BLOB NOT NULL,
    UNIQUE (tenant, principal)
) STRICT;
