-- What a runner may take is found apart from the moments that come by themselves, and tool by tool: a long queue
-- of one tool then hides neither a deadline nor another tool's work.
ALTER TABLE tasks ADD COLUMN claim_at BIGINT;
UPDATE tasks SET claim_at = CASE
    WHEN run IN ('queued', 'queued:reattach') THEN greatest(not_before, 1)
    WHEN run = 'stop_owed' THEN 0
END;
UPDATE tasks SET due_at = CASE WHEN phase <> 'finished' THEN least(
    expires_at,
    coalesce(approved_until, expires_at),
    coalesce((SELECT min(until) FROM questions WHERE task = tasks.id AND state = 'open'), expires_at)
) END;
CREATE INDEX tasks_claim ON tasks (tool, claim_at, id) WHERE claim_at IS NOT NULL;
