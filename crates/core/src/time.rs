//! Time as the core sees it: numbers that the caller hands in.

use core::ops::Add;

/// A moment: milliseconds since the Unix epoch, by the store's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

impl Millis {
    /// The time from `earlier` to this moment; zero when `earlier` is later.
    pub fn since(self, earlier: Millis) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Span> for Millis {
    type Output = Millis;

    /// Saturates, so that a hostile or absurd span cannot wrap into the past.
    fn add(self, span: Span) -> Millis {
        Millis(self.0.saturating_add(span.0))
    }
}

/// A length of time in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub u64);

impl Span {
    /// A span of whole seconds.
    pub const fn seconds(seconds: u64) -> Span {
        Span(seconds.saturating_mul(1000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_neither_wraps_nor_runs_backwards() {
        assert_eq!(Millis(5) + Span(2), Millis(7));
        assert_eq!(Millis(5) + Span(u64::MAX), Millis(u64::MAX));
        assert_eq!(Millis(5).since(Millis(3)), Span(2));
        assert_eq!(Millis(3).since(Millis(5)), Span(0));
        assert_eq!(Span::seconds(2), Span(2000));
    }
}
