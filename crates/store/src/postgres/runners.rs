//! Who runs work on this database, and who is dead: a lease for each runner, by the database's clock.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use deadpool_postgres::Pool;
use longhaul_core::{Millis, RunnerId, fault};

use super::{
    connection::{Call, Failure, Lease, NOW},
    read,
};
use crate::{
    Beat, Error, Runner,
    layout::{self, Cell},
};

/// How long a runner lives after its last beat, in milliseconds.
const LEASE_MS: i64 = 20_000;

/// Registers or renews `runner`, and declares dead whoever let its lease pass (T3).
pub(super) async fn beat(
    pool: &Pool,
    registered: &Mutex<BTreeSet<RunnerId>>,
    runner: Runner,
) -> Result<Beat, Error> {
    let failed = |failure: Failure| failure.error("renew the runner's lease in PostgreSQL");
    let id = || Cell::Blob(runner.id.0.to_vec());
    let until = format!("{NOW} + {LEASE_MS}");
    let mut calls = Vec::new();
    let known = registered
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .contains(&runner.id);
    if !known {
        let sql = format!(
            "INSERT INTO runners (id, host, boot, pid, pid_start, lease_until, fenced) \
             VALUES ($1, $2, $3, $4, $5, {until}, 0) ON CONFLICT DO NOTHING"
        );
        calls.push(Call::new(sql, layout::runner_cells(&runner)));
    }
    let alive = if fault!("store-beat-ignores-fence") {
        "fenced >= 0"
    } else {
        "fenced = 0"
    };
    calls.extend([
        Call::new(format!("SELECT {NOW}"), Vec::new()),
        Call::new(
            format!("UPDATE runners SET lease_until = {until} WHERE id = $1 AND {alive} RETURNING pid"),
            vec![id()],
        ),
        Call::new(
            format!("UPDATE runners SET fenced = 1 WHERE id <> $1 AND fenced = 0 AND lease_until < {NOW}"),
            vec![id()],
        ),
        Call::new(
            "SELECT id, host, boot, pid, pid_start, fenced FROM runners WHERE id <> $1 AND fenced = 1 ORDER BY id",
            vec![id()],
        ),
    ]);
    let lease = Lease::take(pool).await?;
    let answers = lease
        .all(Some("BEGIN"), &calls, Some("COMMIT"))
        .await
        .map_err(failed)?;
    lease.give_back();
    registered
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(runner.id);
    let mut answers = answers.into_iter().skip(usize::from(!known));
    let mut next = || answers.next().unwrap_or_default();
    let now = Millis(read::number(next())?);
    let fenced = next().is_empty();
    next();
    let dead = next()
        .into_iter()
        .map(|row| layout::runner(row).map(|(runner, _)| runner));
    Ok(Beat {
        now,
        fenced,
        dead: dead.collect::<Result<_, _>>()?,
    })
}

/// Removes a dead runner that holds nothing.
pub(super) async fn forget(pool: &Pool, runner: RunnerId) -> Result<(), Error> {
    let lease = Lease::take(pool).await?;
    let sql = "DELETE FROM runners WHERE id = $1 AND fenced = 1 \
               AND NOT EXISTS (SELECT 1 FROM tasks WHERE runner = $1)";
    let call = Call::new(sql, vec![Cell::Blob(runner.0.to_vec())]);
    lease
        .one(call)
        .await
        .map_err(|failure| failure.error("forget a runner in PostgreSQL"))?;
    lease.give_back();
    Ok(())
}
