//! The edge of sessions: generation 2025-11-25, whose tasks are part of the core, and the versions before it.
//!
//! A session begins with `initialize`; what is agreed there is a [`Peer`], and every later frame is read and
//! answered by it. Only [`crate::edge`] calls this module. It keeps no session: the caller hands the peer in.

mod parse;
mod render;
mod task;

use serde::{Deserialize, Serialize};

pub use parse::{open, parse};
pub use render::{opened, push, render, render_error, render_malformed, status};

use crate::request::{Answers, Asked, Client, RequestId};

/// A version of the protocol that has sessions, the oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Version {
    /// The first one.
    #[serde(rename = "2024-11-05")]
    V2024_11_05,
    /// Brought hints about a tool's effects.
    #[serde(rename = "2025-03-26")]
    V2025_03_26,
    /// Brought forms, structured results and titles.
    #[serde(rename = "2025-06-18")]
    V2025_06_18,
    /// Brought tasks, and links to open.
    #[serde(rename = "2025-11-25")]
    V2025_11_25,
}

impl Version {
    /// All of them, the oldest first.
    pub const ALL: [Version; 4] = [
        Version::V2024_11_05,
        Version::V2025_03_26,
        Version::V2025_06_18,
        Version::V2025_11_25,
    ];

    /// What a client is offered that asks for a version which no session has.
    pub const LATEST: Version = Version::V2025_11_25;

    /// The version as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Version::V2024_11_05 => "2024-11-05",
            Version::V2025_03_26 => "2025-03-26",
            Version::V2025_06_18 => "2025-06-18",
            Version::V2025_11_25 => "2025-11-25",
        }
    }

    /// The version that is written so.
    pub fn parse(text: &str) -> Option<Version> {
        Version::ALL.into_iter().find(|version| version.as_str() == text)
    }

    /// A call can become a task.
    pub fn has_tasks(self) -> bool {
        self >= Version::V2025_11_25
    }

    /// A client can be asked to open a link.
    pub fn has_url_elicitation(self) -> bool {
        self >= Version::V2025_11_25
    }

    /// A client can be asked to fill in a form.
    pub fn has_elicitation(self) -> bool {
        self >= Version::V2025_06_18
    }

    /// Tools have an `outputSchema`, and results `structuredContent`.
    pub fn has_output_schema(self) -> bool {
        self >= Version::V2025_06_18
    }

    /// Tools have a title for people.
    pub fn has_titles(self) -> bool {
        self >= Version::V2025_06_18
    }

    /// Tools have hints about their effects.
    pub fn has_annotations(self) -> bool {
        self >= Version::V2025_03_26
    }

    /// A server says whether it completes arguments.
    pub fn has_completions(self) -> bool {
        self >= Version::V2025_03_26
    }

    /// Progress is told in words, too.
    pub fn has_progress_messages(self) -> bool {
        self >= Version::V2025_03_26
    }
}

/// Who is at the other end of a session, as `initialize` agreed it. Its stored form is an object; members that
/// a later version adds are ignored, and absent ones are what they are by default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct Peer {
    /// The version that both ends speak.
    pub version: Version,
    /// What the client said about itself. What belongs to one request only is empty here.
    pub client: Client,
}

/// A session that begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Opening {
    /// The id of the `initialize` request.
    pub id: RequestId,
    /// What is agreed.
    pub peer: Peer,
}

/// What is kept of a [`Peer`].
#[derive(Serialize, Deserialize)]
struct Stored {
    version: Version,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client_version: Option<String>,
    #[serde(default)]
    form: bool,
    #[serde(default)]
    url: bool,
    #[serde(default)]
    sampling: bool,
    #[serde(default)]
    roots: bool,
}

impl From<Peer> for Stored {
    fn from(peer: Peer) -> Stored {
        let Answers {
            form,
            url,
            sampling,
            roots,
        } = peer.client.answers;
        Stored {
            version: peer.version,
            name: peer.client.name,
            client_version: peer.client.version,
            form,
            url,
            sampling,
            roots,
        }
    }
}

impl From<Stored> for Peer {
    fn from(stored: Stored) -> Peer {
        Peer {
            version: stored.version,
            client: Client {
                answers: Answers {
                    form: stored.form,
                    url: stored.url,
                    sampling: stored.sampling,
                    roots: stored.roots,
                },
                asked: Asked::OnStream,
                name: stored.name,
                version: stored.client_version,
                ..Client::default()
            },
        }
    }
}
