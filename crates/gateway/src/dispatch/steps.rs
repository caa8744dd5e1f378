//! What a transport asks for the next frame of one request, whichever request it is.

use super::{Held, Left, Step, Waiting};
use crate::session::feed::Seen;

/// A request whose reply is to come, and what it has for its client before.
pub(crate) trait Steps: Send + 'static {
    /// The next thing for the client. Safe to drop and call again; after the reply it is the reply again.
    fn next(&mut self) -> impl Future<Output = Step> + Send;
    /// How far the client will have come with what `next` gave last.
    fn seen(&self) -> Seen;
    /// The reply was handed on.
    fn delivered(self) -> impl Future<Output = ()> + Send;
    /// The client waits no longer.
    fn leave(self, left: Left);
}

impl Steps for Held {
    fn next(&mut self) -> impl Future<Output = Step> + Send {
        Held::next(self)
    }

    fn seen(&self) -> Seen {
        Held::seen(self)
    }

    fn delivered(self) -> impl Future<Output = ()> + Send {
        Held::delivered(self)
    }

    fn leave(self, left: Left) {
        Held::leave(self, left);
    }
}

impl Steps for Waiting {
    fn next(&mut self) -> impl Future<Output = Step> + Send {
        Waiting::next(self)
    }

    fn seen(&self) -> Seen {
        Waiting::seen(self)
    }

    fn delivered(self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// the task is as it was.
    fn leave(self, _left: Left) {}
}
