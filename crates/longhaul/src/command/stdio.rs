//! `longhaul stdio`: what an MCP client starts. It carries lines between the client and the user's server, and
//! starts that server where none runs. `longhaul wrap` is the same pipe with one server at its end.
//!
//! It outlives its server: when the connection ends before the client does, it connects to the next server and sends
//! again what had no reply. It decides nothing about tasks and keeps nothing of them.

use std::{
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use longhaul_gateway::stdio::lines::{Line, Lines};
use longhaul_mcp::{edge, rpc_error::RpcError};
use tokio::{
    io::{AsyncWriteExt as _, Stdout},
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::{
    background::{self, Env},
    client::{Shown, Way},
    exit::{Exit, Failure, Outcome},
    flags::{Common, Stdio},
    pipe::{Again, Ledger},
};

/// The longest line of a client: no setting of `server.body_max` allows more.
const SAID_MAX: usize = 64 * 1024 * 1024;
/// The longest line of a server: the largest result, escaped, and some room.
const HEARD_MAX: usize = 256 * 1024 * 1024;
/// How many lines wait on each side of the pipe.
const LINES_MAX: usize = 4;
/// How often in a row a server is looked for, or started, before the pipe gives up.
const TRIES_MAX: u32 = 8;
/// The wait after the first try; it doubles after each further one.
const TRY_AGAIN_MIN: Duration = Duration::from_millis(50);
const TRY_AGAIN_MAX: Duration = Duration::from_secs(2);
/// How long replies may still come once one side has ended.
const LAST_REPLIES: Duration = Duration::from_secs(1);

/// Runs the command.
pub(crate) async fn stdio(common: &Common, flags: &Stdio) -> Outcome {
    let shown = flags.toolset.as_deref().map_or(Shown::All, Shown::Toolset);
    carry_all(
        common,
        Way {
            hold: flags.hold,
            shown,
        },
    )
    .await
}

/// Carries all that the client says to one server after the other, until the client leaves.
pub(crate) async fn carry_all(common: &Common, way: Way<'_>) -> Outcome {
    let mut client = Client::begin();
    let key = random_key();
    let ledger = Mutex::new(Ledger::new(key.clone()));
    let mut read = None;
    let mut tries = 0;
    let failure = loop {
        let connected = tokio::select! {
            connected = connect(common, &mut read, &way, &key, tries) => connected,
            // Whether there is such a toolset is told even to a client that says nothing.
            () = client.left(), if tries > 0 || !matches!(way.shown, Shown::Toolset(_)) => break None,
        };
        tries += 1;
        let stream = match connected {
            Ok(stream) => stream,
            Err(failure) if tries >= TRIES_MAX || is_final(&failure) => break Some(failure),
            Err(_) => continue,
        };
        let carried = carry(stream, &ledger, &mut client).await;
        match carried.ended {
            Side::Client => break None,
            Side::Server if tries >= TRIES_MAX && !carried.was_served => {
                break Some(Failure::new(
                    Exit::Unreachable,
                    "unreachable",
                    "the server ends each connection at once",
                ));
            }
            Side::Server => {}
        }
        if carried.was_served {
            tries = 0;
        }
    };
    let lost = locked(&ledger).give_up();
    for reply in lost {
        client.hear(reply).await;
    }
    client.end().await;
    match failure {
        None => Ok(Exit::Done),
        Some(failure) => Err(failure),
    }
}

/// Whether trying again is no use: what is wrong is on this machine, not with the server.
fn is_final(failure: &Failure) -> bool {
    failure.exit != Exit::Unreachable || failure.reason == background::NOT_STARTED
}

/// Connects to the server, which is started where none runs. `read` is the configuration of the last one: a server that a
/// person started may read another file than one in the background would by itself.
async fn connect(
    common: &Common,
    read: &mut Option<PathBuf>,
    way: &Way<'_>,
    key: &str,
    tries: u32,
) -> Result<TokioIo<Upgraded>, Failure> {
    if tries > 0 {
        let wait = TRY_AGAIN_MIN.saturating_mul(1 << (tries - 1).min(10));
        sleep(wait.min(TRY_AGAIN_MAX)).await;
    }
    let last = read.clone().filter(|file| file.is_file());
    let is_given = common.config.is_some();
    let common = Common {
        config: common.config.clone().or(last),
        ..common.clone()
    };
    let env = match way.shown {
        Shown::All | Shown::Toolset(_) => Env::Whole,
        Shown::Wrapped(_) => Env::Plain,
    };
    let server = background::reach_quietly(&common, env).await?;
    let stream = server.pipe(way, key).await?;
    if !is_given && let Ok(health) = server.health().await {
        *read = health.config.first().map(PathBuf::from);
    }
    Ok(stream)
}

/// Which side of a pipe ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

struct Carried {
    ended: Side,
    /// The server said something.
    was_served: bool,
}

/// Carries lines both ways until one side ends.
async fn carry(stream: TokioIo<Upgraded>, ledger: &Mutex<Ledger>, client: &mut Client) -> Carried {
    let (reader, mut writer) = tokio::io::split(stream);
    let (heard, unread) = (client.heard.clone(), client.heard.clone());
    let mut was_served = false;
    let ended = {
        let down = async {
            let mut lines = Lines::new(reader, HEARD_MAX);
            while let Ok(Some(Line::Whole(mut line))) = lines.next().await {
                was_served = true;
                if locked(ledger).heard(&line) {
                    line.push(b'\n');
                    if heard.send(line).await.is_err() {
                        return Side::Client;
                    }
                }
            }
            Side::Server
        };
        let up = async {
            let Again { lines, lost } = locked(ledger).again();
            for mut reply in lost {
                reply.push(b'\n');
                if heard.send(reply).await.is_err() {
                    return Side::Client;
                }
            }
            for line in lines {
                if write(&mut writer, &line).await.is_err() {
                    return Side::Server;
                }
            }
            loop {
                let line = match client.said.recv().await {
                    None => {
                        // The server sees that this was the end, and says its last.
                        let _ = writer.shutdown().await;
                        return Side::Client;
                    }
                    Some(Line::TooLong) => {
                        if heard.send(too_long()).await.is_err() {
                            return Side::Client;
                        }
                        continue;
                    }
                    Some(Line::Whole(line)) => locked(ledger).said(line),
                };
                if write(&mut writer, &line).await.is_err() {
                    return Side::Server;
                }
                locked(ledger).sent();
            }
        };
        tokio::pin!(down, up);
        tokio::select! {
            ended = &mut down => ended,
            () = unread.closed() => Side::Client,
            ended = &mut up => {
                // What the server has already said is not lost with its connection.
                let _ = timeout(LAST_REPLIES, down).await;
                ended
            }
        }
    };
    Carried { ended, was_served }
}

async fn write(writer: &mut (impl tokio::io::AsyncWrite + Unpin), line: &[u8]) -> std::io::Result<()> {
    writer.write_all(line).await?;
    writer.write_all(b"\n").await?;
    writer.flush().await
}

fn too_long() -> Vec<u8> {
    let error = RpcError::invalid_request(format!("The line is longer than {SAID_MAX} bytes"));
    let mut frame = edge::error(&error, None);
    frame.push(b'\n');
    frame
}

fn locked(ledger: &Mutex<Ledger>) -> std::sync::MutexGuard<'_, Ledger> {
    // Invariant: no code that can panic runs under this lock, so a poisoned one still holds whole data.
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The client at the standard streams.
struct Client {
    said: mpsc::Receiver<Line>,
    has_ended: watch::Receiver<bool>,
    heard: mpsc::Sender<Vec<u8>>,
    writing: JoinHandle<()>,
}

impl Client {
    fn begin() -> Client {
        let (say, said) = mpsc::channel(LINES_MAX);
        let (end, has_ended) = watch::channel(false);
        tokio::spawn(async move {
            let mut lines = Lines::new(tokio::io::stdin(), SAID_MAX);
            while let Ok(Some(line)) = lines.next().await {
                if say.send(line).await.is_err() {
                    break;
                }
            }
            end.send_replace(true);
        });
        let (heard, hear) = mpsc::channel(LINES_MAX);
        let writing = tokio::spawn(print(tokio::io::stdout(), hear));
        Client {
            said,
            has_ended,
            heard,
            writing,
        }
    }

    /// Resolves when the client has closed its side and all that it said was taken, or when it reads no more.
    async fn left(&mut self) {
        let (said, heard) = (&self.said, &self.heard);
        let silent = async {
            // A sender that is gone is an end, too.
            let _ = self.has_ended.wait_for(|ended| *ended).await;
            if !said.is_empty() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = silent => {}
            () = heard.closed() => {}
        }
    }

    async fn hear(&self, mut line: Vec<u8>) {
        line.push(b'\n');
        // Nobody reads any more when this fails.
        let _ = self.heard.send(line).await;
    }

    /// Prints what was heard.
    async fn end(self) {
        drop(self.heard);
        let _ = timeout(LAST_REPLIES, self.writing).await;
    }
}

async fn print(mut out: Stdout, mut lines: mpsc::Receiver<Vec<u8>>) {
    while let Some(line) = lines.recv().await {
        if out.write_all(&line).await.is_err() || out.flush().await.is_err() {
            return;
        }
    }
}

/// Names this pipe: no other has the same.
fn random_key() -> String {
    longhaul_engine::clock::step_id().to_string()
}
