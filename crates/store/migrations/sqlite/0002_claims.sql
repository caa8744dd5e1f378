-- What a runner may take is found apart from the moments that come by themselves, and tool by tool: a long queue
-- of one tool then hides neither a deadline nor another tool's work.
ALTER TABLE tasks ADD COLUMN claim_at INTEGER;
UPDATE tasks SET claim_at = CASE
    WHEN run IN ('queued', 'queued:reattach') THEN max(not_before, 1)
    WHEN run = 'stop_owed' THEN 0
END;
UPDATE tasks SET due_at = CASE WHEN phase <> 'finished' THEN min(
    expires_at,
    coalesce(approved_until, expires_at),
    coalesce((SELECT min(until) FROM questions WHERE task = tasks.id AND state = 'open'), expires_at)
) END;
CREATE INDEX tasks_claim ON tasks (tool, claim_at, id) WHERE claim_at IS NOT NULL;

-- How many tasks of an owner are open, so that a birth need not count them.
CREATE TABLE open_tasks (
    owner BLOB NOT NULL PRIMARY KEY,
    number INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO open_tasks (owner, number) SELECT owner, count(*) FROM tasks WHERE open = 1 GROUP BY owner;
DROP INDEX tasks_open;
