//! How fast a server may tell and ask of its own accord.
//!
//! Kept by the reader of each connection. Whoever goes faster is read more slowly, so nothing of an honest server is
//! lost; one that goes on for [`FLOOD_TIME`] is ended. Replies are not counted: each answers a request of ours.

use std::time::Duration;

use tokio::time::Instant;

/// How many notifications and requests of a server are read at once.
pub const BURST: u32 = 5_000;
/// How many of them are read in a second, beyond that.
pub const PER_SECOND: u32 = 2_000;
/// How long a server may send more than [`PER_SECOND`] without a rest.
pub const FLOOD_TIME: Duration = Duration::from_secs(30);
/// How many are read between two pauses; timers are coarse.
const LOT: f64 = 100.0;

/// What one connection may still send.
pub(super) struct Pace {
    left: f64,
    at: Instant,
    hurried_since: Option<Instant>,
}

/// What follows from one more.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    On,
    /// After this pause.
    Pause(Duration),
    /// It is a flood.
    End,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Pace {
        Pace {
            left: f64::from(BURST),
            at: now,
            hurried_since: None,
        }
    }

    /// One more came.
    pub(super) fn take(&mut self, now: Instant) -> Step {
        let (burst, per_second) = (f64::from(BURST), f64::from(PER_SECOND));
        self.left = (self.left + (now - self.at).as_secs_f64() * per_second).min(burst);
        self.at = now;
        if self.left >= burst / 2.0 {
            self.hurried_since = None;
        }
        self.left -= 1.0;
        if self.left >= 0.0 {
            return Step::On;
        }
        let since = *self.hurried_since.get_or_insert(now);
        if now - since >= FLOOD_TIME {
            return Step::End;
        }
        Step::Pause(Duration::from_secs_f64((LOT - self.left) / per_second))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `count`, waiting whenever it is told to, and returns how long that takes; `None` when it is ended.
    fn send(pace: &mut Pace, now: &mut Instant, count: u32) -> Option<Duration> {
        let began = *now;
        for _ in 0..count {
            match pace.take(*now) {
                Step::On => {}
                Step::Pause(pause) => *now += pause,
                Step::End => return None,
            }
        }
        Some(*now - began)
    }

    #[test]
    fn a_burst_is_read_at_once_and_a_large_one_a_little_later() {
        let mut now = Instant::now();
        let mut pace = Pace::new(now);
        assert_eq!(send(&mut pace, &mut now, BURST), Some(Duration::ZERO));
        now += Duration::from_secs(60);
        let took = send(&mut pace, &mut now, 20_000).expect("it is no flood");
        assert!(took < Duration::from_secs(10), "{took:?}");
    }

    #[test]
    fn who_rests_in_between_may_go_on_for_ever() {
        let mut now = Instant::now();
        let mut pace = Pace::new(now);
        for _ in 0..100 {
            assert!(send(&mut pace, &mut now, 10_000).is_some());
            now += Duration::from_secs(5);
        }
    }

    #[test]
    fn a_flood_is_read_slowly_and_ended() {
        let mut now = Instant::now();
        let mut pace = Pace::new(now);
        let began = now;
        assert_eq!(send(&mut pace, &mut now, 1_000_000), None);
        let lasted = now - began;
        assert!(
            lasted >= FLOOD_TIME && lasted < FLOOD_TIME + Duration::from_secs(1),
            "{lasted:?}"
        );
    }
}
