//! How often each task is looked at. Looking as often as the poll hint says is free, and so is looking a few times in
//! a row; who goes on at more than four times that rate is told to wait, and is hinted a longer interval.
//!
//! Memory only: a restart forgives.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    sync::{Mutex, MutexGuard, PoisonError},
};

use longhaul_core::TaskId;
use longhaul_mcp::{
    RpcError,
    rpc_error::{Refusal, RefusalCode, Who},
};
use longhaul_store::Owner;
use tokio::time::Instant;

/// The looks at tasks.
pub(super) struct Polls {
    began: Instant,
    /// Names who looks at which task.
    names: RandomState,
    buckets: Mutex<HashMap<u64, Bucket>>,
}

/// A bucket of looks at one task: full at first, and filled at four looks for each hinted interval.
#[derive(Clone, Copy)]
struct Bucket {
    /// When it is full again, in milliseconds from the beginning.
    full_at: u64,
    hint_ms: u32,
    /// How often the hint is doubled.
    raised: u8,
}

/// Whoever looks at a task.
#[derive(Clone, Copy)]
pub(super) struct Look(u64);

impl Polls {
    pub(super) fn new() -> Polls {
        Polls {
            began: Instant::now(),
            names: RandomState::new(),
            buckets: Mutex::default(),
        }
    }

    /// Takes a look from the bucket of `burst` looks.
    ///
    /// # Errors
    /// The refusal, with the time after which there is a look again. It depends on the caller and its id alone, so it
    /// tells nothing of another's task.
    pub(super) fn take(
        &self,
        owner: &Owner,
        task: TaskId,
        hint_ms: u64,
        burst: u32,
    ) -> Result<Look, RpcError> {
        let look = Look(self.names.hash_one((owner, task)));
        let now = self.now();
        let mut buckets = self.lock();
        if buckets.len() >= TASKS_MAX && !buckets.contains_key(&look.0) {
            make_room(&mut buckets, now);
        }
        let bucket = buckets.entry(look.0).or_insert(Bucket {
            full_at: now,
            hint_ms: short(hint_ms),
            raised: 0,
        });
        if bucket.full_at <= now {
            bucket.full_at = now;
            bucket.raised = 0;
        }
        let each = u64::from(bucket.hint_ms / FASTER).max(1);
        let full_at = bucket.full_at + each;
        let late_ms = (full_at - now).saturating_sub(each.saturating_mul(u64::from(burst)));
        if late_ms > 0 {
            bucket.raised = (bucket.raised + 1).min(RAISED_MAX);
            return Err(refusal(late_ms));
        }
        bucket.full_at = full_at;
        Ok(look)
    }

    /// The hint for whoever looked: as the task's age says, or longer after a refusal.
    pub(super) fn hint(&self, look: Look, hint_ms: u64) -> u64 {
        match self.lock().get_mut(&look.0) {
            Some(bucket) => {
                bucket.hint_ms = short(hint_ms);
                hint_ms << bucket.raised
            }
            None => hint_ms,
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Bucket>> {
        // Invariant: no code that can panic runs under this lock, so a poisoned one still holds whole data.
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forgets full buckets, which say nothing. Where so many are not full, all are forgotten: a limit on memory comes
/// before a limit on looks.
fn make_room(buckets: &mut HashMap<u64, Bucket>, now: u64) {
    buckets.retain(|_, bucket| bucket.full_at > now);
    if buckets.len() >= TASKS_MAX {
        buckets.clear();
    }
}

fn short(ms: u64) -> u32 {
    u32::try_from(ms).unwrap_or(u32::MAX)
}

fn refusal(retry_after_ms: u64) -> RpcError {
    RpcError::refused(
        RefusalCode::OverLimit,
        "This task is looked at too often: keep to its poll interval (`tasks.poll_burst`)",
        Refusal {
            reason: "poll_limit".into(),
            who: Who::Wait,
            retry_after_ms: Some(retry_after_ms),
        },
    )
}

/// How much faster than the hint a bucket fills.
const FASTER: u32 = 4;
/// How often a hint is doubled at most.
const RAISED_MAX: u8 = 3;
/// The most tasks whose looks are counted; each takes about 40 bytes.
const TASKS_MAX: usize = 65_536;
