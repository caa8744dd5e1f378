//! Finds out how a server speaks: a machine that says what to send next and is told what came back (B-16).
//!
//! A stateless probe goes first. What only a stateless server can say settles it; anything else means that the
//! server has sessions, and `initialize` follows. No single code decides it, for servers of sessions refuse the
//! probe in many ways, and some not at all: they are silent, or end. The caller owns the clock and the wires.

use thiserror::Error;

use super::{Carrier, Era, Hello, Kind, Sent, Version, outgoing};
use crate::{
    clean,
    frame::{Obj, Raw},
    meta,
    request::RequestId,
    rpc_error, shape, v2026_07_28 as stateless,
};

/// The longest instructions of a server that are kept, in bytes.
pub const INSTRUCTIONS_BYTES_MAX: usize = 64 * 1_024;

/// Which generation to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Find out; begin with the one that worked last, or with [`Kind::Stateless`] (B-17).
    Find {
        /// The first to be tried.
        first: Kind,
    },
    /// This one and no other.
    Only(Kind),
}

impl Choice {
    /// How an operator says it: `auto`, or the year of a generation.
    pub fn named(text: &str) -> Option<Choice> {
        match text {
            "auto" => Some(Choice::Find {
                first: Kind::Stateless,
            }),
            year => Kind::of_year(year).map(Choice::Only),
        }
    }
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Send this, and tell [`Dial::heard`] what comes back.
    Send(Probe),
    /// The server speaks.
    Done {
        /// How, and what it offers.
        spoken: Box<Spoken>,
        /// To be sent before anything else.
        then: Option<Sent>,
    },
    /// The server cannot be spoken to.
    Failed(Failure),
}

/// A request that tries a generation.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// Its id; a reply to an earlier probe has another one and is dropped.
    pub id: RequestId,
    /// What to send.
    pub sent: Sent,
    /// The generation that it tries.
    pub kind: Kind,
    /// The server has ended: it must be started anew before this is sent.
    pub afresh: bool,
}

/// What came back.
#[derive(Clone, Debug, PartialEq)]
pub enum Heard {
    /// The reply to the last probe, whatever its HTTP status.
    Reply {
        /// The result, or the error object.
        outcome: Result<Raw, Raw>,
        /// Over HTTP.
        status: Option<u16>,
    },
    /// An HTTP response without a reply in it.
    Status(u16),
    /// Nothing, in the time that the caller allows.
    Silence,
    /// The end of the pipe or connection.
    Closed,
}

/// How a server speaks and what it offers.
#[derive(Clone, Debug, PartialEq)]
pub struct Spoken {
    /// The version that both ends speak.
    pub era: Era,
    /// What it offers, as it wrote it.
    pub capabilities: Obj,
    /// What it calls itself, as it wrote it. For people only: nothing is ever decided by it (B-7).
    pub server_info: Option<Obj>,
    /// For the model: how to use the server. At most [`INSTRUCTIONS_BYTES_MAX`].
    pub instructions: Option<String>,
    /// The first integer that no probe used as its id.
    pub next_id: i64,
}

/// What a server offers, as far as a gateway acts on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    /// It has tools.
    pub tools: bool,
    /// It tells when their list changes.
    pub tools_change: bool,
    /// It has resources.
    pub resources: bool,
    /// It tells when their list changes.
    pub resources_change: bool,
    /// It tells when a resource changes.
    pub subscribe: bool,
    /// It has prompts.
    pub prompts: bool,
    /// It tells when their list changes.
    pub prompts_change: bool,
    /// It completes arguments.
    pub completions: bool,
    /// It sends log messages.
    pub logging: bool,
    /// It can run calls as tasks.
    pub tasks: bool,
    /// It takes orders to cancel a task.
    pub tasks_cancel: bool,
}

impl Spoken {
    /// What the capabilities say, in the terms of the server's generation.
    pub fn offers(&self) -> Offers {
        let has = |path: &[&str]| path_is_there(&self.capabilities, path);
        let says = |part: &str, member: &str| {
            let part = self.capabilities.obj(part);
            part.is_some_and(|part| part.get::<bool>(member) == Some(true))
        };
        Offers {
            tools: has(&["tools"]),
            tools_change: says("tools", "listChanged"),
            resources: has(&["resources"]),
            resources_change: says("resources", "listChanged"),
            subscribe: says("resources", "subscribe"),
            prompts: has(&["prompts"]),
            prompts_change: says("prompts", "listChanged"),
            completions: has(&["completions"]),
            logging: has(&["logging"]),
            tasks: match self.era {
                Era::Stateless => has(&["extensions", meta::TASKS_EXTENSION]),
                //
                Era::Session(version) => version.has_tasks() && has(&["tasks", "requests", "tools", "call"]),
            },
            tasks_cancel: match self.era {
                Era::Stateless => has(&["extensions", meta::TASKS_EXTENSION]),
                //
                Era::Session(_) => has(&["tasks", "cancel"]),
            },
        }
    }
}

fn path_is_there(object: &Obj, path: &[&str]) -> bool {
    match path {
        [] => true,
        [name, rest @ ..] => object.obj(name).is_some_and(|inner| path_is_there(&inner, rest)),
    }
}

/// Why a server cannot be spoken to.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// It refuses what every server must answer.
    #[error("the server refuses to begin: {message} (code {code})")]
    Refused {
        /// Its code.
        code: i64,
        /// Its message, fit to be shown.
        message: String,
    },
    /// It answers with an HTTP status that no other request would change.
    #[error("the server answers with HTTP status {0}")]
    Status(u16),
    /// It speaks no version that Longhaul speaks.
    #[error("the server speaks no version that Longhaul speaks; it offers {}", offered.join(", "))]
    NoCommonVersion {
        /// What it speaks, fit to be shown; at most 10.
        offered: Vec<String>,
    },
    /// It does not answer in time.
    #[error("the server does not answer")]
    Silent,
    /// It ended, or closed the connection.
    #[error("the server ended before it answered")]
    Closed,
    /// Its answer has not the shape of one.
    #[error("the server's answer has no {member}")]
    Unreadable {
        /// What is missing or of the wrong type.
        member: &'static str,
    },
}

/// Finds out how one server speaks.
#[derive(Clone, Debug)]
pub struct Dial {
    hello: Hello,
    carrier: Carrier,
    choice: Choice,
    asked: Asked,
    next_id: i64,
    has_tried_both: bool,
    /// It knows the newer generation's errors but not its discovery.
    is_undiscoverable: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Discover { again: bool },
    Initialize { version: Version, again: bool },
}

impl Dial {
    /// A server behind `carrier` that nothing was sent to yet.
    pub fn new(hello: Hello, carrier: Carrier, choice: Choice) -> Dial {
        let (Choice::Find { first } | Choice::Only(first)) = choice;
        Dial {
            hello,
            carrier,
            choice,
            asked: opening(first),
            next_id: 1,
            has_tried_both: false,
            is_undiscoverable: false,
        }
    }

    /// What to send first.
    pub fn first(&mut self) -> Probe {
        self.probe(false)
    }

    /// What came back for the last probe, and what follows from it.
    pub fn heard(&mut self, heard: Heard) -> Step {
        match self.asked {
            Asked::Discover { again } => self.discovered(heard, again),
            Asked::Initialize { version, again } => self.initialized(heard, version, again),
        }
    }

    fn probe(&mut self, afresh: bool) -> Probe {
        let id = RequestId::Integer(self.next_id.into());
        self.next_id += 1;
        let mut params = Obj::default();
        let (kind, method) = match self.asked {
            Asked::Discover { .. } => {
                params.edit("_meta", |members| self.hello.introduce(members));
                (Kind::Stateless, "server/discover")
            }
            //
            Asked::Initialize { version, .. } => {
                params.set("protocolVersion", version.as_str());
                params.set("capabilities", &self.hello.capabilities.to_raw());
                params.set("clientInfo", &self.hello.info().to_raw());
                (Kind::Sessions, "initialize")
            }
        };
        let headers = match (self.carrier, kind) {
            (Carrier::Http, Kind::Stateless) => outgoing::headers(Era::Stateless, method),
            (Carrier::Http, Kind::Sessions) | (Carrier::Pipe, _) => Vec::new(),
        };
        let frame = shape::request_frame(&id, &Raw::string(method), &params);
        Probe {
            id,
            sent: Sent { frame, headers },
            kind,
            afresh,
        }
    }

    fn discovered(&mut self, heard: Heard, again: bool) -> Step {
        match heard {
            Heard::Reply {
                outcome: Ok(result), ..
            } => self.discovery(&result),
            Heard::Reply {
                outcome: Err(error),
                status,
            } => self.discovery_refused(&error, status, again),
            Heard::Status(status) if is_final(status) => Step::Failed(Failure::Status(status)),
            Heard::Status(status) => self.other(Failure::Status(status), false),
            Heard::Silence => self.other(Failure::Silent, false),
            Heard::Closed => self.other(Failure::Closed, true),
        }
    }

    fn discovery(&mut self, result: &Raw) -> Step {
        let unreadable = Failure::Unreadable {
            member: "supportedVersions",
        };
        let Ok(result) = result.read::<Obj>() else {
            return self.other(unreadable, false);
        };
        let Some(versions) = result.get::<Vec<String>>("supportedVersions") else {
            return self.other(unreadable, false);
        };
        if !speaks(&versions, stateless::VERSION) {
            return self.by_versions(&versions);
        }
        let info = result
            .obj("_meta")
            .and_then(|members| members.obj(meta::SERVER_INFO));
        let capabilities = result.obj("capabilities").unwrap_or_default();
        self.done(Era::Stateless, capabilities, info, &result)
    }

    /// B-16: what only a stateless server says settles it, and is mended where it can be.
    fn discovery_refused(&mut self, error: &Raw, status: Option<u16>, again: bool) -> Step {
        let (code, failure) = refused(error);
        match code {
            rpc_error::UNSUPPORTED_VERSION => match supported(error) {
                None => Step::Failed(failure),
                Some(versions) if speaks(&versions, stateless::VERSION) && !again => {
                    self.asked = Asked::Discover { again: true };
                    Step::Send(self.probe(false))
                }
                Some(versions) => self.by_versions(&versions),
            },
            rpc_error::HEADER_MISMATCH | rpc_error::MISSING_CAPABILITY => Step::Failed(failure),
            rpc_error::METHOD_NOT_FOUND if status == Some(404) => {
                self.is_undiscoverable = true;
                self.other(failure, false)
            }
            _ => match status {
                Some(status) if is_final(status) => Step::Failed(Failure::Status(status)),
                Some(_) | None => self.other(failure, false),
            },
        }
    }

    /// A server that names its versions, and not the one that was tried.
    fn by_versions(&mut self, versions: &[String]) -> Step {
        let failure = no_common(versions);
        if Version::ALL
            .iter()
            .any(|version| speaks(versions, version.as_str()))
        {
            self.other(failure, false)
        } else {
            Step::Failed(failure)
        }
    }

    fn initialized(&mut self, heard: Heard, version: Version, again: bool) -> Step {
        match heard {
            Heard::Reply {
                outcome: Ok(result), ..
            } => self.session(&result),
            Heard::Reply {
                outcome: Err(error),
                status,
            } => {
                let common = supported(&error).and_then(|versions| latest_common(&versions));
                if let Some(common) = common.filter(|common| *common != version && !again) {
                    self.asked = Asked::Initialize {
                        version: common,
                        again: true,
                    };
                    return Step::Send(self.probe(false));
                }
                match status {
                    Some(status) if is_final(status) => Step::Failed(Failure::Status(status)),
                    Some(_) | None => self.other(refused(&error).1, false),
                }
            }
            Heard::Status(status) if is_final(status) => Step::Failed(Failure::Status(status)),
            Heard::Status(status) => self.other(Failure::Status(status), false),
            Heard::Silence => self.other(Failure::Silent, false),
            Heard::Closed => self.other(Failure::Closed, true),
        }
    }

    fn session(&mut self, result: &Raw) -> Step {
        let unreadable = Failure::Unreadable {
            member: "protocolVersion",
        };
        let Ok(result) = result.read::<Obj>() else {
            return self.other(unreadable, false);
        };
        let Some(named) = result.get::<String>("protocolVersion") else {
            return self.other(unreadable, false);
        };
        //
        let Some(version) = Version::parse(&named) else {
            return self.other(no_common(&[named]), false);
        };
        let capabilities = result.obj("capabilities").unwrap_or_default();
        let info = result.obj("serverInfo");
        self.done(Era::Session(version), capabilities, info, &result)
    }

    /// Tries the other generation, unless it was tried or is ruled out.
    fn other(&mut self, failure: Failure, has_ended: bool) -> Step {
        let is_open = matches!(self.choice, Choice::Find { .. }) && !self.has_tried_both;
        if is_open {
            self.has_tried_both = true;
            self.asked = match self.asked {
                Asked::Discover { .. } => opening(Kind::Sessions),
                Asked::Initialize { .. } => opening(Kind::Stateless),
            };
            let afresh = has_ended && self.carrier == Carrier::Pipe;
            return Step::Send(self.probe(afresh));
        }
        if self.is_undiscoverable {
            let mut tools = Obj::default();
            tools.edit("tools", |_| {});
            return self.done(Era::Stateless, tools, None, &Obj::default());
        }
        Step::Failed(failure)
    }

    fn done(&self, era: Era, capabilities: Obj, server_info: Option<Obj>, result: &Obj) -> Step {
        let instructions = result.get::<String>("instructions");
        let then = match era {
            Era::Stateless => None,
            //
            Era::Session(_) => Some(Sent {
                frame: shape::bare_notification("notifications/initialized"),
                headers: match self.carrier {
                    Carrier::Http => outgoing::headers(era, "notifications/initialized"),
                    Carrier::Pipe => Vec::new(),
                },
            }),
        };
        let spoken = Spoken {
            era,
            capabilities,
            server_info,
            instructions: instructions.map(|mut text| {
                text.truncate(text.floor_char_boundary(INSTRUCTIONS_BYTES_MAX));
                text
            }),
            next_id: self.next_id,
        };
        Step::Done {
            spoken: Box::new(spoken),
            then,
        }
    }
}

fn opening(kind: Kind) -> Asked {
    match kind {
        Kind::Stateless => Asked::Discover { again: false },
        Kind::Sessions => Asked::Initialize {
            version: Version::LATEST,
            again: false,
        },
    }
}

/// Says nothing of the generation: it redirects, wants credentials or says that it is asked too often.
fn is_final(status: u16) -> bool {
    matches!(status, 300..=399 | 401 | 403 | 407 | 429)
}

fn refused(error: &Raw) -> (i64, Failure) {
    let error: Obj = error.read().unwrap_or_default();
    let code = error.get("code").unwrap_or(rpc_error::INTERNAL_ERROR);
    let message = clean(&error.get::<String>("message").unwrap_or_default(), 500);
    (code, Failure::Refused { code, message })
}

/// What an error says is supported (B-13).
fn supported(error: &Raw) -> Option<Vec<String>> {
    let data = error.read::<Obj>().ok()?.obj("data")?;
    data.get("supported")
}

fn speaks(versions: &[String], version: &str) -> bool {
    versions.iter().any(|other| other == version)
}

fn latest_common(versions: &[String]) -> Option<Version> {
    let all = Version::ALL.into_iter().rev();
    all.into_iter().find(|version| speaks(versions, version.as_str()))
}

fn no_common(versions: &[String]) -> Failure {
    Failure::NoCommonVersion {
        offered: versions.iter().take(10).map(|text| clean(text, 50)).collect(),
    }
}
