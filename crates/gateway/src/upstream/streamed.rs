//! A plain call whose stream can be gone on with: behind a URL, in a session, on a stream that begins with an event id.
//!
//! `talk` keeps where it is as soon as the call takes longer, or asks. After a restart of ours `relayed` goes on with it
//! here: the session and the stream are taken up again, and the server sends what it has said since the call began
//! (A-23). What it asked before is not asked again where it was answered. Nothing is called twice: where the server does
//! not know the session or the stream any more, the task ends as interrupted.

use std::time::Duration;

use longhaul_core::{Body, Reason};
use longhaul_engine::tool::Finish;
use longhaul_mcp::client::{Version, result::Came};
use serde::{Deserialize, Serialize};
use tokio::{sync::Notify, time::timeout};

use super::{
    back_off::{BACK_OFF, Pause},
    followed::{Unreached, reach},
    outcome::Outcome,
    reason::Asked,
    relayed::Relayed,
    server::{Caller, Line},
    talk::Talk,
};
use crate::outbound::Note;

/// How long a server is tried for that is down when its call is to be gone on with.
const REACHED_WITHIN: Duration = Duration::from_secs(300);
/// The present form of what is stored. A form that is not known here cannot be gone on with.
const FORM: u32 = 1;

/// Where a call is: in which session, and where its stream begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Streamed {
    /// The id of the session (A-24).
    pub session: String,
    /// The version that was agreed in it.
    pub version: Version,
    /// The id of the call there.
    pub request: u64,
    /// The id of the first event of its stream.
    pub after: String,
}

/// A [`Streamed`] as it is kept with the task.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Handle {
    form: u32,
    /// For people who read the database.
    server: String,
    tool: String,
    stream: Streamed,
}

/// Whose call it is: the server's name in the configuration, and the tool's there.
#[derive(Clone, Debug)]
pub(super) struct Whose {
    pub(super) server: String,
    pub(super) tool: String,
}

impl Whose {
    pub(super) fn handle(&self, stream: Streamed) -> Handle {
        Handle {
            form: FORM,
            server: self.server.clone(),
            tool: self.tool.clone(),
            stream,
        }
    }
}

impl Handle {
    pub(super) fn encode(&self) -> Body {
        Body::new(&serde_json::to_vec(self).expect("texts and numbers always serialize"))
    }

    /// `None` for what is no such handle, or of a form that is not known here.
    pub(super) fn decode(body: &Body) -> Option<Handle> {
        let handle: Handle = serde_json::from_slice(body.bytes()?).ok()?;
        (handle.form == FORM).then_some(handle)
    }
}

impl Relayed {
    /// Goes on with a call that was sent before a restart of ours.
    pub(super) async fn go_on(
        &self,
        handle: &Handle,
        caller: &Caller,
        asked: Asked<'_>,
        mut talk: Talk,
    ) -> Finish {
        let context = talk.context();
        talk.goes_on();
        let line = match self.back(&handle.stream, caller, &mut talk).await {
            Ok(line) => line,
            Err(finish) => return finish,
        };
        let given_up = Notify::new();
        let stop = async {
            tokio::select! {
                () = context.stop() => {}
                () = given_up.notified() => {}
            }
        };
        let Streamed { request, after, .. } = &handle.stream;
        let events = talk.events();
        let replied = async {
            let outcome = line.connection().go_on(*request, after, events, stop).await;
            let is_task = matches!(outcome, Outcome::Came(Came::Task { .. }));
            (outcome, is_task.then_some(line))
        };
        match self.hear_out(&mut talk, &given_up, replied).await {
            Ok((Outcome::Came(Came::Task { task, result }), Some(line))) => {
                self.follow(task, &result, line, caller, asked, talk).await
            }
            Ok((outcome @ (Outcome::Failed(_) | Outcome::Unsent(_)), _)) => {
                interrupted(&talk, &outcome.why())
            }
            // It may have been made again after that.
            Ok((outcome, _)) if !outcome.links().is_empty() => {
                interrupted(&talk, "links had to be opened first")
            }
            Ok((outcome, _)) => self.finish(talk.fit_to_show(outcome), asked),
            Err(_nobody) => Finish::Failed(Reason::NobodyToAnswer),
        }
    }

    /// The way back into the session of a call.
    async fn back(&self, stream: &Streamed, caller: &Caller, talk: &mut Talk) -> Result<Line, Finish> {
        let session = Some((stream.session.as_str(), stream.version));
        let mut pause = Pause::new(BACK_OFF);
        let reached = reach(&self.server, caller, session, talk, &mut pause, "call");
        match timeout(REACHED_WITHIN, reached).await {
            Ok(Ok(line)) => Ok(line),
            Ok(Err(Unreached::Stop)) => Err(Finish::Stopped { confirmed: false }),
            Ok(Err(Unreached::Late)) => Err(self.late()),
            Ok(Err(Unreached::Nobody)) => Err(Finish::Failed(Reason::NobodyToAnswer)),
            Err(_late) => Err(interrupted(talk, "the server could not be reached again")),
        }
    }
}

/// What became of it is not known, and it is not called again.
fn interrupted(talk: &Talk, why: &str) -> Finish {
    talk.context().note(Note::new(None, None, Some(why)).encode());
    Finish::Failed(Reason::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_that_was_stored_is_read_for_ever() {
        let stored = r#"{"form":1,"server":"s","tool":"t","stream":{"session":"a","version":"2025-11-25","request":7,"after":"e"}}"#;
        let handle = Handle::decode(&Body::new(stored.as_bytes())).expect("a handle");
        assert_eq!((handle.stream.request, handle.stream.after.as_str()), (7, "e"));
        assert_eq!(handle.encode(), Body::new(stored.as_bytes()));
    }

    #[test]
    fn a_handle_of_another_form_is_none() {
        let stored = r#"{"form":2,"server":"s","tool":"t","stream":{"session":"a","version":"2025-11-25","request":7,"after":"e"}}"#;
        assert_eq!(Handle::decode(&Body::new(stored.as_bytes())), None);
        assert_eq!(Handle::decode(&Body::new(b"{}")), None);
    }
}
