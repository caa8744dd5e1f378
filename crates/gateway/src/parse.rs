//! Frames from bytes, without keeping others waiting: a large one is read beside the tasks of the runtime, and few
//! at a time.
//!
//! Called by the transports.

use std::sync::Arc;

use longhaul_mcp::{frame::Frame, malformed::Malformed, scan::Limits};
use tokio::sync::Semaphore;

/// Reads frames; cheap to clone.
#[derive(Clone)]
pub(crate) struct Parser {
    limits: Limits,
    large: Arc<Semaphore>,
}

impl Parser {
    pub(crate) fn new(limits: Limits) -> Parser {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Parser {
            limits,
            large: Arc::new(Semaphore::new(processors)),
        }
    }

    /// The frame in `bytes`, which are given up.
    pub(crate) async fn frame(&self, bytes: impl AsRef<[u8]> + Send + 'static) -> Result<Frame, Malformed> {
        let limits = self.limits;
        if bytes.as_ref().len() <= BESIDE {
            return Frame::parse(bytes.as_ref(), &limits);
        }
        let turn = Arc::clone(&self.large).acquire_owned().await;
        let turn = turn.expect("the semaphore is never closed");
        let parsed = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            Frame::parse(bytes.as_ref(), &limits)
        });
        // Invariant: the parser does not panic (it is fuzzed), and nobody stops it.
        parsed.await.expect("the parser ends")
    }
}

/// The largest frame that is read at once, in bytes: it takes less than a millisecond.
const BESIDE: usize = 64 * 1024;
