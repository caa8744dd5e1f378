CREATE TABLE tasks (
    id BYTEA NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL, issuer TEXT NOT NULL, subject TEXT NOT NULL, app TEXT NOT NULL,
    owner BYTEA NOT NULL,
    kid BIGINT NOT NULL,
    name TEXT NOT NULL,
    tool TEXT NOT NULL,
    session TEXT NOT NULL,
    origin TEXT NOT NULL,
    hidden BIGINT NOT NULL,
    version BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    purge_after BIGINT NOT NULL,
    idem BYTEA,
    digest BYTEA NOT NULL,
    phase TEXT NOT NULL,
    ending TEXT,
    run TEXT NOT NULL,
    runner BYTEA,
    fence BIGINT NOT NULL,
    starts BIGINT NOT NULL,
    legs BIGINT NOT NULL,
    strays BIGINT NOT NULL,
    stop TEXT NOT NULL,
    open BIGINT NOT NULL,
    due_at BIGINT,
    expires_at BIGINT NOT NULL,
    not_before BIGINT NOT NULL,
    approved_until BIGINT,
    upstream BIGINT NOT NULL,
    checkpoint BIGINT NOT NULL,
    rules TEXT NOT NULL,
    status BYTEA NOT NULL,
    format BIGINT NOT NULL,
    is_error BIGINT NOT NULL
);
CREATE UNIQUE INDEX tasks_name ON tasks (owner, name);
CREATE UNIQUE INDEX tasks_idem ON tasks (owner, idem) WHERE idem IS NOT NULL;
CREATE UNIQUE INDEX tasks_owner ON tasks (owner, created_at, id);
CREATE INDEX tasks_recent ON tasks (created_at, id);
CREATE INDEX tasks_open ON tasks (owner) WHERE open = 1;
CREATE INDEX tasks_due ON tasks (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX tasks_runner ON tasks (runner) WHERE runner IS NOT NULL;
CREATE INDEX tasks_purge ON tasks (purge_after) WHERE open = 0;

CREATE TABLE bodies (
    task BYTEA NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    body BYTEA NOT NULL,
    PRIMARY KEY (task, name)
);

CREATE TABLE questions (
    task BYTEA NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    key BIGINT NOT NULL,
    reader TEXT NOT NULL,
    state TEXT NOT NULL,
    until BIGINT,
    misfits BIGINT NOT NULL,
    bind BYTEA NOT NULL,
    PRIMARY KEY (task, key)
);

CREATE TABLE counters (
    key TEXT NOT NULL PRIMARY KEY,
    body BYTEA NOT NULL
);

CREATE TABLE records (
    kind TEXT NOT NULL,
    tenant TEXT NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    expires_at BIGINT,
    body BYTEA NOT NULL,
    PRIMARY KEY (kind, tenant, id)
);
CREATE INDEX records_expiry ON records (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE audit (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    seq BIGINT UNIQUE,
    step_id BYTEA NOT NULL UNIQUE,
    body BYTEA NOT NULL
);

CREATE TABLE runners (
    id BYTEA NOT NULL PRIMARY KEY,
    host TEXT NOT NULL,
    boot TEXT NOT NULL,
    pid BIGINT NOT NULL,
    pid_start TEXT NOT NULL,
    lease_until BIGINT NOT NULL,
    fenced BIGINT NOT NULL
);

CREATE TABLE data_keys (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant TEXT NOT NULL,
    principal BYTEA NOT NULL,
    wrapped BYTEA NOT NULL,
    UNIQUE (tenant, principal)
);
CREATE INDEX audit_unsealed ON audit (id) WHERE seq IS NULL;
