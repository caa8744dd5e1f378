//! When a server that failed is tried again: later and later, and for ever.
//!
//! A `BackOff` is kept by the pool of each server, a `Pause` by whoever keeps a subscription. The clock is the caller's.

use std::time::Duration;

use tokio::time::Instant;

/// The pause after a failure: the first, and the longest. Each is twice the one before, give or take a fifth.
pub const BACK_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Failures in a row. A server that fails again and again answers in between, so a row ends with time alone.
#[derive(Default)]
pub(super) struct BackOff {
    /// The last pause, and when it was over.
    last: Option<(Duration, Instant)>,
    until: Option<Instant>,
    why: String,
}

impl BackOff {
    /// It answers.
    pub(super) fn succeeded(&mut self) {
        self.until = None;
    }

    /// The next try is made later than the last.
    pub(super) fn failed(&mut self, why: &str, now: Instant) {
        let (first, longest) = BACK_OFF;
        let in_a_row = self.last.filter(|(_, over)| now < *over + longest);
        let pause = in_a_row.map_or(first, |(pause, _)| (pause * 2).min(longest));
        let until = now + shaken(pause);
        *self = BackOff {
            last: Some((pause, until)),
            until: Some(until),
            why: why.to_owned(),
        };
    }

    /// When the next try may be made; `None` where nothing failed.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// What failed last.
    pub(super) fn why(&self) -> &str {
        &self.why
    }
}

/// The pause before something is begun again, twice the one before where it fails again and again.
pub(crate) struct Pause {
    now: Duration,
    first: Duration,
    longest: Duration,
}

impl Pause {
    /// The first, and the longest.
    pub(crate) fn new((first, longest): (Duration, Duration)) -> Pause {
        Pause {
            now: first,
            first,
            longest,
        }
    }

    /// How long it is now.
    pub(crate) fn now(&self) -> Duration {
        self.now
    }

    /// It did not fail at once.
    pub(crate) fn reset(&mut self) {
        self.now = self.first;
    }

    /// It failed.
    pub(crate) fn lengthen(&mut self) {
        self.now = (self.now * 2).min(self.longest);
    }
}

/// A fifth more or less, so that servers that failed together are not tried together.
pub(super) fn shaken(pause: Duration) -> Duration {
    let mut byte = [128];
    // Without randomness the pause is as it is.
    let _none = getrandom::fill(&mut byte);
    pause.mul_f64(0.8 + 0.4 * f64::from(byte[0]) / 255.0)
}
