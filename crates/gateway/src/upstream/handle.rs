//! The handle of a server's task, as it is kept with ours: all that is needed to find it again after this process, or
//! the connection to the server, is gone.
//!
//! Written by `followed` before anything depends on the task. It holds the id of a session, and is encrypted like every
//! other body.

use longhaul_core::Body;
use longhaul_mcp::client::{Era, Version};
use serde::{Deserialize, Serialize};

use super::connection::Connection;

/// The present form of what is stored. A form that is not known here cannot be followed.
const FORM: u32 = 1;

/// Where a task of a server is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Handle {
    form: u32,
    /// The server's name in the configuration, and the tool's there: for people who read the database.
    server: String,
    tool: String,
    /// Its id, as the server says it.
    pub(super) task: String,
    /// The version that was agreed in the session; `None` of a stateless server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<Version>,
    /// The id of the session, behind a URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    /// The token under which the server tells of its progress (A-34).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) token: Option<u64>,
    /// The server takes orders to cancel it.
    pub(super) cancels: bool,
}

impl Handle {
    /// Of a task that the server has just made on this connection, of a call of this tool.
    pub(super) fn of(server: &str, tool: &str, task: String, connection: &Connection) -> Handle {
        let spoken = connection.spoken();
        Handle {
            form: FORM,
            server: server.to_owned(),
            tool: tool.to_owned(),
            version: match spoken.era {
                Era::Session(version) => Some(version),
                Era::Stateless => None,
            },
            session: connection.session_id(),
            token: connection.call_of(&task),
            cancels: match spoken.era {
                Era::Session(_) => spoken.offers().tasks_cancel,
                // C-30: it has to.
                Era::Stateless => true,
            },
            task,
        }
    }

    pub(super) fn encode(&self) -> Body {
        Body::new(&serde_json::to_vec(self).expect("texts and numbers always serialize"))
    }

    /// `None` for what is of a form that is not known here.
    pub(super) fn decode(body: &Body) -> Option<Handle> {
        let handle: Handle = serde_json::from_slice(body.bytes()?).ok()?;
        (handle.form == FORM).then_some(handle)
    }

    /// The session in which it is, where that can be gone on with.
    pub(super) fn session(&self) -> Option<(&str, Version)> {
        self.session.as_deref().zip(self.version)
    }

    /// The server does not know the session any more.
    pub(super) fn forget_session(&mut self) {
        self.session = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_that_was_stored_is_read_for_ever() {
        let stored = r#"{"form":1,"server":"s","tool":"t","task":"tk","version":"2025-11-25","session":"a","token":7,"cancels":true}"#;
        let handle = Handle::decode(&Body::new(stored.as_bytes())).expect("a handle");
        assert_eq!(handle.session(), Some(("a", Version::V2025_11_25)));
        assert_eq!((handle.token, handle.cancels), (Some(7), true));
        assert_eq!(handle.encode(), Body::new(stored.as_bytes()));
        let stored = r#"{"form":1,"server":"s","tool":"t","task":"tk","cancels":false}"#;
        let handle = Handle::decode(&Body::new(stored.as_bytes())).expect("a handle");
        assert_eq!(handle.session(), None);
    }

    #[test]
    fn a_handle_of_another_form_is_none() {
        let stored = r#"{"form":2,"server":"s","tool":"t","task":"tk","cancels":false}"#;
        assert_eq!(Handle::decode(&Body::new(stored.as_bytes())), None);
        assert_eq!(Handle::decode(&Body::new(b"x")), None);
    }
}
