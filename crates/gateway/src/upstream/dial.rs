//! Opens a connection: starts the link, detects how the server speaks, and says hello.
//!
//! Called by the pool. The order of the questions is [`Dial`]'s; here are the clock and the wires. Until the
//! server has answered, nothing that it says has an effect.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use longhaul_engine::{clock, process::Unstartable};
use longhaul_mcp::{
    client::{
        self, Carrier, Dial, Hello, Incoming, Kind, Sent, Version,
        dial::{Choice, Failure, Heard as Answer, Probe, Step},
        incoming::{Ask, AskKind},
    },
    frame::Obj,
    request::RequestId,
};
use tokio::time::{Duration, Instant, timeout_at};

use super::{
    connection::{Connection, Greeted, LIMITS, Notices},
    credentials::Unreadable,
    http::{self, Credentials, Remote, Unusable},
    link::{Heard, Inlet, Lost, Noise, Outlet, Over, Via, Why},
    stdio::{self, Host, Program},
};

/// How long it may take until it is known how a server speaks.
pub const DIAL_MAX: Duration = Duration::from_secs(30);
/// How long the first question waits for its answer: an old server may be silent where it does not understand.
pub const PROBE_MAX: Duration = Duration::from_secs(10);

/// How a server is reached.
#[derive(Clone)]
pub enum Place {
    /// A program of ours.
    Program(Program, Arc<Host>),
    /// A URL.
    Remote(Remote),
    /// What is looked up each time, since it may be different then: a token that was renewed.
    LookedUp(LookUp),
}

impl Place {
    /// It is no program of ours.
    pub fn is_remote(&self) -> bool {
        match self {
            Place::Program(..) => false,
            Place::Remote(_) => true,
            Place::LookedUp(look_up) => look_up.is_remote,
        }
    }
}

/// What finds a place; given credentials that were refused, with others where there are some.
pub type Find =
    Arc<dyn Fn(Option<Credentials>) -> BoxFuture<'static, Result<Place, Unreadable>> + Send + Sync>;

/// Looks up how a server is reached.
#[derive(Clone)]
pub struct LookUp {
    /// What is found is a URL.
    pub is_remote: bool,
    /// Finds it: a program or a URL. It is given what was refused, where something was.
    pub find: Find,
}

/// What is said to every server, and how long its answers are waited for.
#[derive(Clone)]
pub struct Ours {
    /// Who we are and what can be asked of us.
    pub hello: Hello,
    /// The result of `roots/list`; without it the question goes to the call that it belongs to.
    pub roots: Option<Obj>,
    /// All calls on one connection are of one owner.
    pub one_owner: bool,
    /// At most so long: [`DIAL_MAX`], but for tests.
    pub dial_max: Duration,
    /// At most so long for the first question: [`PROBE_MAX`], but for tests.
    pub probe_max: Duration,
}

impl Ours {
    /// Longhaul, with these capabilities and roots.
    pub fn new(capabilities: Obj, roots: Option<Obj>) -> Ours {
        Ours {
            hello: Hello::own(capabilities),
            roots,
            one_owner: false,
            dial_max: DIAL_MAX,
            probe_max: PROBE_MAX,
        }
    }
}

/// Why there is no connection. Nothing of the server is left, as far as its end can be confirmed.
#[derive(Debug, thiserror::Error)]
pub enum Unopened {
    /// Its program cannot be started.
    #[error(transparent)]
    Unstartable(#[from] Unstartable),
    /// A value of its settings that stands elsewhere cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// Its settings cannot be used.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// It cannot be reached.
    #[error("{0}")]
    Unreachable(Over),
    /// It was ended.
    #[error("{lost}")]
    Lost {
        /// How.
        lost: Lost,
    },
    /// It ended by itself before it answered.
    #[error("{}: {lost}", Failure::Closed)]
    Ended {
        /// How.
        lost: Lost,
    },
    /// Something answers, and not as a server does.
    #[error("{odd}")]
    Odd {
        /// What it does instead.
        odd: Odd,
        /// The end of its standard error.
        stderr: String,
    },
    /// It is there and cannot be spoken to.
    #[error("{failure}")]
    Failed {
        /// Why.
        failure: Failure,
        /// The end of its standard error.
        stderr: String,
    },
    /// It was given up by order.
    #[error("it was given up")]
    Stopped,
}

/// What is no MCP.
#[derive(Debug, thiserror::Error)]
pub enum Odd {
    /// A program's lines.
    #[error("it does not answer, and what it writes on its standard output is not MCP")]
    Output,
    /// The response of a URL.
    #[error("what answers is no MCP server: {0}")]
    Response(Over),
    /// A response of JSON.
    #[error("what answers is no MCP server: its reply cannot be read")]
    Reply,
}

impl Unopened {
    /// The end of the server's standard error, for whoever runs it.
    pub fn stderr(&self) -> &str {
        match self {
            Unopened::Lost { lost } | Unopened::Ended { lost } => &lost.stderr,
            Unopened::Failed { stderr, .. } | Unopened::Odd { stderr, .. } => stderr,
            Unopened::Unstartable(_)
            | Unopened::Unreadable(_)
            | Unopened::Unusable(_)
            | Unopened::Unreachable(_)
            | Unopened::Stopped => "",
        }
    }
}

/// Opens one, until `stop`. When the future is dropped, what was started ends by itself.
///
/// # Errors
/// [`Unopened`].
pub async fn open(
    place: &Place,
    ours: &Ours,
    choice: Choice,
    notices: Notices,
    stop: impl Future<Output = ()>,
) -> Result<Connection, Unopened> {
    tokio::pin!(stop);
    let found = tokio::select! {
        biased;
        () = &mut stop => return Err(Unopened::Stopped),
        found = find(place) => found?,
    };
    // A start is not given up in the middle: nobody would wait for its end.
    let ends = start(&found).await?;
    let mut dialling = Dialling {
        place: &found,
        until: Instant::now() + ours.dial_max,
        ends,
        begun: 0,
        late: false,
        noise: Noise::new(),
        odd: None,
        ended: None,
    };
    let dialled = tokio::select! {
        biased;
        () = &mut stop => Err(Unopened::Stopped),
        dialled = dialling.dial_at_last(ours, choice) => dialled,
    };
    let (outlet, inlet) = dialling.ends;
    match dialled {
        Ok(Dialled::Done { spoken, then }) => {
            let greeted = Greeted {
                spoken: *spoken,
                outlet,
                inlet,
                ids_from: dialling.begun + 1,
            };
            Ok(Connection::begin(greeted, then, ours.clone(), notices).await)
        }
        Ok(Dialled::Failed(failure)) => {
            let odd = match failure {
                Failure::Silent if inlet.has_skipped() => Some(Odd::Output),
                Failure::Silent | Failure::Closed => dialling.odd,
                Failure::Refused { .. }
                | Failure::Status(_)
                | Failure::NoCommonVersion { .. }
                | Failure::Unreadable { .. } => None,
            };
            let ended = dialling.ended.filter(|_| matches!(failure, Failure::Closed));
            let stderr = inlet.close(Why::Closed).await.stderr;
            Err(match (odd, ended) {
                (Some(odd), _) => Unopened::Odd { odd, stderr },
                (None, Some(lost)) => Unopened::Ended { lost },
                (None, None) => Unopened::Failed { failure, stderr },
            })
        }
        Err(Unopened::Lost { lost }) => {
            let closed = inlet.close(lost.why).await;
            Err(Unopened::Lost { lost: closed })
        }
        Err(unopened) => {
            inlet.close(Why::Closed).await;
            Err(unopened)
        }
    }
}

/// A session behind a URL that was begun on a connection before, perhaps by another process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Resumed {
    /// Its id.
    pub session: String,
    /// The version that was agreed in it.
    pub version: Version,
}

/// Goes on with a session: nothing is sent but the request for its stream. Whether the server still knows it shows with
/// the first request.
///
/// # Errors
/// [`Unopened`].
pub(super) async fn resume(
    place: &Place,
    ours: &Ours,
    resumed: &Resumed,
    notices: Notices,
) -> Result<Connection, Unopened> {
    let found = find(place).await?;
    let (outlet, inlet) = start(&found).await?;
    if let Outlet::Http(outlet) = &outlet {
        outlet.go_on_with(&resumed.session);
        outlet.in_session(client::session_headers(resumed.version));
    }
    // whoever began the session has used small numbers, and may have gone on with it before.
    let ids_from = clock::now().0.saturating_mul(1_000);
    let greeted = Greeted {
        spoken: client::Spoken {
            era: client::Era::Session(resumed.version),
            capabilities: Obj::default(),
            server_info: None,
            instructions: None,
            next_id: i64::try_from(ids_from).unwrap_or(i64::MAX),
        },
        outlet,
        inlet,
        ids_from,
    };
    Ok(Connection::begin(greeted, None, ours.clone(), notices).await)
}

async fn find(place: &Place) -> Result<Place, Unopened> {
    Ok(match place {
        Place::LookedUp(look_up) => (look_up.find)(None).await?,
        Place::Program(..) | Place::Remote(_) => place.clone(),
    })
}

async fn start(found: &Place) -> Result<(Outlet, Inlet), Unopened> {
    Ok(match found {
        Place::Program(program, host) => {
            let (outlet, inlet) = stdio::open(program, host).await?;
            (Outlet::Stdio(outlet), Inlet::Stdio(Box::new(inlet)))
        }
        Place::Remote(remote) => {
            let (outlet, inlet) = http::open(remote)?;
            (Outlet::Http(outlet), Inlet::Http(inlet))
        }
        // Where it leads is no further look-up.
        Place::LookedUp(_) => return Err(Unopened::Unreachable(Over::Unsent("it leads nowhere".to_owned()))),
    })
}

enum Dialled {
    Done {
        spoken: Box<client::Spoken>,
        then: Option<Sent>,
    },
    Failed(Failure),
}

struct Dialling<'a> {
    place: &'a Place,
    until: Instant,
    ends: (Outlet, Inlet),
    /// The last id that was used.
    begun: u64,
    /// A question of the newer generation was answered after its time.
    late: bool,
    noise: Noise,
    odd: Option<Odd>,
    /// How its link ended, where it did.
    ended: Option<Lost>,
}

impl Dialling<'_> {
    async fn dial_at_last(&mut self, ours: &Ours, choice: Choice) -> Result<Dialled, Unopened> {
        let dialled = self.dial(ours, choice).await?;
        if matches!(dialled, Dialled::Failed(_)) && self.late {
            // It was merely slow: the first question was answered while the second waited.
            return self.dial(ours, Choice::Only(Kind::Stateless)).await;
        }
        Ok(dialled)
    }

    async fn dial(&mut self, ours: &Ours, choice: Choice) -> Result<Dialled, Unopened> {
        let mut dial = Dial::new(ours.hello.clone(), self.ends.0.carrier(), choice);
        let mut probe = dial.first();
        let mut is_first = matches!(choice, Choice::Find { .. });
        loop {
            if probe.afresh {
                self.ends = start(self.place).await?;
                self.ended = None;
            }
            let most = if is_first { ours.probe_max } else { ours.dial_max };
            let answer = self.ask(probe, most).await?;
            is_first = false;
            probe = match dial.heard(answer) {
                Step::Send(next) => next,
                Step::Done { spoken, then } => return Ok(Dialled::Done { spoken, then }),
                Step::Failed(failure) => return Ok(Dialled::Failed(failure)),
            };
        }
    }

    async fn ask(&mut self, probe: Probe, most: Duration) -> Result<Answer, Unopened> {
        let id = number(&probe.id);
        self.begun = self.begun.max(id);
        let until = self.until.min(Instant::now() + most);
        let begins_session = probe.kind == Kind::Sessions;
        // One that ended says so at its other end.
        let sent = timeout_at(until, self.ends.0.request(id, probe.sent, begins_session)).await;
        if sent.is_err() {
            return Ok(Answer::Silence);
        }
        match timeout_at(until, self.answer(id)).await {
            Ok(answer) => answer,
            Err(_late) => {
                self.ends.0.abandon(id);
                Ok(Answer::Silence)
            }
        }
    }

    async fn answer(&mut self, id: u64) -> Result<Answer, Unopened> {
        loop {
            match self.ends.1.next().await {
                Heard::Frame { bytes, via } => match client::read(&bytes, &LIMITS) {
                    Ok(Incoming::Reply { id: told, outcome }) if number(&told) == id => {
                        return Ok(Answer::Reply {
                            outcome,
                            status: self.status(200),
                        });
                    }
                    Ok(Incoming::Reply { outcome, .. }) => {
                        self.late |= outcome.is_ok();
                        self.heed(bytes.len())?;
                    }
                    Ok(Incoming::Ask(ask)) => {
                        self.heed(bytes.len())?;
                        self.pong(&ask).await;
                    }
                    Ok(Incoming::Unread(error)) => {
                        return Ok(Answer::Reply {
                            outcome: Err(error),
                            status: self.status(200),
                        });
                    }
                    Err(_) if matches!(via, Via::Whole(_)) => {
                        self.odd = Some(Odd::Reply);
                        return Ok(Answer::Closed);
                    }
                    Ok(Incoming::Notice { .. }) | Err(_) => self.heed(bytes.len())?,
                },
                Heard::Refused { status, body, .. } => {
                    return Ok(match client::read(&body, &LIMITS) {
                        Ok(Incoming::Reply { outcome, .. }) => Answer::Reply {
                            outcome,
                            status: self.status(status),
                        },
                        Ok(Incoming::Unread(error)) => Answer::Reply {
                            outcome: Err(error),
                            status: self.status(status),
                        },
                        Ok(Incoming::Notice { .. } | Incoming::Ask(_)) | Err(_) => Answer::Status(status),
                    });
                }
                Heard::Over { request, over } if request == id => {
                    return match over {
                        Over::Unsent(_) => Err(Unopened::Unreachable(over)),
                        Over::NoReply | Over::NotJson | Over::TooLong => {
                            self.odd = Some(Odd::Response(over));
                            Ok(Answer::Closed)
                        }
                        Over::Broken(_) | Over::Cut | Over::SessionEnded => Ok(Answer::Closed),
                    };
                }
                Heard::Over { .. } | Heard::TooLong { .. } | Heard::Placed { .. } => {}
                // Another start would end the same way.
                Heard::Lost(lost) if lost.why == Why::Noise => return Err(Unopened::Lost { lost }),
                Heard::Lost(lost) => {
                    self.ended = Some(lost);
                    return Ok(Answer::Closed);
                }
            }
        }
    }

    /// Counts what is of no use.
    fn heed(&mut self, bytes: usize) -> Result<(), Unopened> {
        if !self.noise.add(bytes) {
            return Ok(());
        }
        Err(Unopened::Lost {
            lost: Lost {
                why: Why::Noise,
                stderr: self.ends.0.stderr(),
                confirmed: false,
            },
        })
    }

    fn status(&self, status: u16) -> Option<u16> {
        match self.ends.0.carrier() {
            Carrier::Http => Some(status),
            Carrier::Pipe => None,
        }
    }

    /// a server may ask whether we are there before all else.
    async fn pong(&self, ask: &Ask) {
        if ask.kind == AskKind::Ping {
            let sent = client::answer(&ask.id, &Obj::default(), Version::LATEST);
            let _gone = self.ends.0.tell(sent).await;
        }
    }
}

/// Ids of ours are small numbers; any other id is nobody's, as 0 is.
pub(super) fn number(id: &RequestId) -> u64 {
    match id {
        RequestId::Integer(number) => u64::try_from(*number).unwrap_or(0),
        RequestId::Text(_) => 0,
    }
}
