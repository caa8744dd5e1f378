//! How many bytes of replies wait for their readers.
//!
//! Made by the server, used by the transports. A small reply always passes. A large one takes room until it is
//! written; without room it is dropped, and made again from its row once there is some. So readers that stop hold
//! no more than the limit, however many they are. Which replies were too large is remembered for a while, so that
//! they wait before they are made.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use longhaul_mcp::{
    RpcError,
    rpc_error::{Refusal, RefusalCode, Who},
};
use longhaul_store::Owner;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The room for replies; cheap to clone.
#[derive(Clone)]
pub(crate) struct Room {
    free: Arc<Semaphore>,
    units_max: u32,
    large: Arc<Large>,
}

/// The sizes of replies that found no room, by whose task they are of.
#[derive(Default)]
struct Large {
    names: RandomState,
    sizes: Mutex<HashMap<u64, usize>>,
}

/// Some of the room. Dropping it gives it back.
pub(crate) struct Share {
    units: u32,
    _taken: OwnedSemaphorePermit,
}

/// A frame for which there is no room now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    bytes: usize,
}

impl Room {
    /// Room for this many bytes. A single frame that is larger takes all of it.
    pub(crate) fn new(bytes: usize) -> Room {
        let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX).max(1);
        let units_max = units.min(u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
        Room {
            free: Arc::new(Semaphore::new(units_max as usize)),
            units_max,
            large: Arc::default(),
        }
    }

    /// What looking at this task needs room for, as far as is known.
    pub(crate) fn known(&self, owner: &Owner, sealed: &str) -> Option<Full> {
        let bytes = self
            .sizes()
            .get(&self.large.names.hash_one((owner, sealed)))
            .copied()?;
        Some(Full { bytes })
    }

    /// Looking at this task found no room.
    pub(crate) fn learn(&self, owner: &Owner, sealed: &str, full: Full) {
        let mut sizes = self.sizes();
        if sizes.len() >= LARGE_MAX {
            sizes.clear();
        }
        sizes.insert(self.large.names.hash_one((owner, sealed)), full.bytes);
    }

    /// The frame, with what it holds of the room until its last byte is written. `share` is what was waited for.
    ///
    /// # Errors
    /// [`Full`]: the frame is gone, and is to be made again after [`Room::wait`].
    pub(crate) fn fit(&self, frame: Vec<u8>, share: &mut Option<Share>) -> Result<Bytes, Full> {
        if frame.len() <= SMALL {
            return Ok(frame.into());
        }
        let units = self.units(frame.len());
        let share = match share.take() {
            Some(share) if share.units >= units => share,
            Some(_) | None => match Arc::clone(&self.free).try_acquire_many_owned(units) {
                Ok(taken) => Share { units, _taken: taken },
                Err(_) => return Err(Full { bytes: frame.len() }),
            },
        };
        Ok(Bytes::from_owner(Kept { frame, _share: share }))
    }

    /// Waits for room. `None` when there is none for too long.
    pub(crate) async fn wait(&self, full: Full) -> Option<Share> {
        let units = self.units(full.bytes);
        let taken = Arc::clone(&self.free).acquire_many_owned(units);
        let taken = tokio::time::timeout(WAIT_MAX, taken).await.ok()?;
        Some(Share {
            units,
            _taken: taken.expect("the semaphore is never closed"),
        })
    }

    fn sizes(&self) -> MutexGuard<'_, HashMap<u64, usize>> {
        // Invariant: no code that can panic runs under this lock, so a poisoned one still holds whole data.
        self.large.sizes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn units(&self, bytes: usize) -> u32 {
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        units.min(self.units_max)
    }
}

/// What a client is told whose reply found no room in time.
pub(crate) fn refusal() -> RpcError {
    RpcError::refused(
        RefusalCode::OverLimit,
        "The server holds as many replies as it may (`server.replies_max`), because their readers are slow: ask again",
        Refusal {
            reason: "reply_limit".into(),
            who: Who::Wait,
            retry_after_ms: Some(RETRY_MS),
        },
    )
}

struct Kept {
    frame: Vec<u8>,
    _share: Share,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.frame
    }
}

/// Room is counted in units of this many bytes.
const UNIT: usize = 1024;
/// The largest reply that takes no room, in bytes: every question fits.
const SMALL: usize = 80 * 1024;
/// How many large replies are remembered.
const LARGE_MAX: usize = 4_096;
/// How long a reply waits for room.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// When a client whose reply found no room should ask again, in milliseconds.
const RETRY_MS: u64 = 1_000;
