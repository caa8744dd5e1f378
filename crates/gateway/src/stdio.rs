//! MCP as lines of JSON over a pipe: bytes to frames, frames to bytes.
//!
//! `serve --stdio` speaks it on its standard streams, and `longhaul stdio` reaches it over the user's socket. One
//! task reads, one writes, and every request is served in a task of its own, so that no call and no large result
//! keeps another request waiting. It decides nothing about tasks.

pub mod lines;

mod requests;
mod wrapped;
mod writer;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use longhaul_core::Span;
use longhaul_mcp::{
    Incoming, Message, Reply, RequestId, RpcError,
    edge::{self, Edge, Offer, Opening, Received},
    frame::Frame,
    malformed::Malformed,
    request::{Answer, Notice},
    rpc_error::{Data, Refusal, RefusalCode, Who},
    scan,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::{AbortHandle, JoinSet},
};

use self::{
    lines::{Line, Lines},
    requests::{Request, Requests, Taken},
    writer::Writer,
};
use crate::{
    catalog::Catalog,
    dispatch::{Conversation, Dispatch, Handled, Step, Steps},
    identity::{Caller, Origin},
    listen::{Listener, Tick},
    parse::Parser,
    replies::{self, Full, Share},
    session::{Session, shared::Shared},
    toolset::Selection,
    upstream::fleet::InUse,
};

/// What a connection is limited to.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The longest line, in bytes (`server.body_max`).
    pub line_max: usize,
    /// The most requests of one connection that wait for their reply.
    pub requests_max: usize,
    /// The most frames that wait to be written.
    pub queue_max: usize,
    /// How long a reader may take nothing of what waits for it (`server.slow_reader`).
    pub reader_time: Duration,
    /// What a frame may hold.
    pub scan: scan::Limits,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            line_max: 4 * 1024 * 1024,
            requests_max: 256,
            queue_max: 8,
            reader_time: Duration::from_secs(30),
            scan: scan::Limits::default(),
        }
    }
}

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A client. When this server drains, the client's subscriptions are ended in good order.
    Client,
    /// `longhaul stdio`. It connects to the next server when this one closes, and sends again what had no reply.
    Pipe {
        /// How long its calls may be held, when that was written down.
        hold: Option<Span>,
        /// Which pipe it is: its session is the same at each server.
        key: Option<u128>,
    },
}

impl Peer {
    /// What names the pipe among its owner's, if anything does.
    fn pipe(self) -> Option<String> {
        match self {
            Peer::Client => None,
            Peer::Pipe { key, .. } => key.map(|key| format!("pipe:{key:032x}")),
        }
    }
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The other end closed its side, or broke off.
    Left,
    /// The other end took nothing for too long, or cannot be written to.
    Unread,
    /// This server closed it.
    Closed,
}

/// Serves connections; cheap to clone.
#[derive(Clone)]
pub struct Stdio {
    dispatch: Dispatch,
    catalog: Arc<Catalog>,
    limits: Arc<Limits>,
    parser: Parser,
    /// What its connections are shown.
    selection: Selection,
    /// The wrapped server that they are shown.
    _in_use: Option<InUse>,
}

impl Stdio {
    /// Serves the requests of all its connections through `dispatch`.
    pub fn new(dispatch: Dispatch, catalog: Arc<Catalog>, limits: Limits) -> Stdio {
        Stdio {
            dispatch,
            catalog,
            parser: Parser::new(limits.scan),
            limits: Arc::new(limits),
            selection: Selection::all(),
            _in_use: None,
        }
    }

    /// The same, of connections that are shown one toolset; `None` where there is no such toolset.
    #[must_use]
    pub fn of_toolset(&self, toolset: &str) -> Option<Stdio> {
        let selection = self.catalog.selection(toolset)?;
        Some(Stdio {
            selection,
            ..self.clone()
        })
    }

    /// Who calls: whoever holds the pipe is the local user.
    fn caller(&self) -> Caller {
        Caller {
            selection: self.selection.clone(),
            ..Caller::local(Origin::Client)
        }
    }

    /// Serves one connection. When the other end closes its side, every open call was left: its work goes on.
    /// When `closing` resolves, nothing more is read, and what is open has `last` to get its reply.
    pub async fn serve(
        &self,
        reader: impl AsyncRead + Unpin,
        writer: impl AsyncWrite + Unpin + Send + 'static,
        peer: Peer,
        closing: impl Future<Output = ()>,
        last: Duration,
    ) -> Ended {
        let _open = peer.pipe().map(|pipe| self.dispatch.open_pipe(pipe));
        let (writer, written) = Writer::begin(writer, self.limits.queue_max, self.limits.reader_time);
        let mut connection = Connection {
            stdio: self.clone(),
            peer,
            writer,
            session: None,
            shared: None,
            requests: Requests::default(),
            serving: JoinSet::new(),
        };
        let ended = connection.read(reader, closing).await;
        connection.end(ended, last).await;
        // What was queued goes out; a reader that takes nothing ends it.
        let taken = written.await.unwrap_or(false);
        match ended {
            Ended::Left | Ended::Closed if !taken => Ended::Unread,
            Ended::Left | Ended::Closed | Ended::Unread => ended,
        }
    }
}

struct Connection {
    stdio: Stdio,
    peer: Peer,
    writer: Writer,
    /// Once the client has sent `initialize`: the connection is the session.
    session: Option<Arc<Session>>,
    /// Writes what belongs to no single request of the session.
    shared: Option<AbortHandle>,
    requests: Requests,
    serving: JoinSet<()>,
}

impl Connection {
    async fn read(&mut self, reader: impl AsyncRead + Unpin, closing: impl Future<Output = ()>) -> Ended {
        let mut lines = Lines::new(reader, self.stdio.limits.line_max);
        tokio::pin!(closing);
        let writer = self.writer.clone();
        loop {
            let line = tokio::select! {
                () = &mut closing => return Ended::Closed,
                () = writer.broken() => return Ended::Unread,
                Some(served) = self.serving.join_next(), if !self.serving.is_empty() => {
                    if served.is_err_and(|error| error.is_panic()) {
                        tracing::error!("serving a request panicked; it gets no reply");
                    }
                    continue;
                }
                line = lines.next() => line,
            };
            match line {
                Ok(Some(Line::Whole(line))) => self.line(line).await,
                Ok(Some(Line::TooLong)) => self.too_long().await,
                Ok(None) => return Ended::Left,
                Err(error) => {
                    tracing::debug!(%error, "a connection broke off");
                    return Ended::Left;
                }
            }
        }
    }

    async fn line(&mut self, line: Vec<u8>) {
        let frame = self.stdio.parser.frame(line).await;
        let (edge, received) = self.receive(frame);
        match received {
            Err(malformed) => self.writer.send(edge.malformed(&malformed)).await,
            Ok(Received::Open(opening)) => self.open(&opening).await,
            Ok(Received::Message(Message::Request(incoming))) => self.request(edge, *incoming).await,
            Ok(Received::Message(Message::Notice(Notice::Cancelled { request, reason }))) => {
                self.requests.cancel(&request, reason);
            }
            Ok(Received::Message(Message::Answer(answer))) => self.answer(answer),
            Ok(Received::Message(Message::Notice(Notice::Ignored))) => {}
        }
    }

    /// Reads a frame on the edge that it belongs to. Frames are judged one by one: one that names its version
    /// stands for itself on any connection.
    fn receive(&self, frame: Result<Frame, Malformed>) -> (Edge, Result<Received, Malformed>) {
        let agreed = self.session.as_ref().map(|session| session.peer());
        match frame {
            Err(malformed) => (Edge::Stateless, Err(malformed)),
            Ok(frame) => {
                let belongs = edge::of(None, &frame, agreed);
                let stdio = &self.stdio;
                let read = |offer: &Offer<'_>| edge::receive(None, frame, belongs, agreed, offer);
                let received = stdio
                    .catalog
                    .read_against(&stdio.selection, false, stdio.limits.scan, read);
                (belongs.edge(agreed), received)
            }
        }
    }

    async fn open(&mut self, opening: &Opening) {
        let dispatch = &self.stdio.dispatch;
        let caller = self.stdio.caller();
        let key = match self.peer {
            Peer::Client => None,
            Peer::Pipe { key, .. } => key,
        };
        let edge = Edge::Session(opening.peer.version);
        if let Some(error) = dispatch.unreached(&caller.selection) {
            return self.writer.send(edge::error(&error, Some(&opening.id))).await;
        }
        let session = match dispatch.pipe_session(&caller, opening.peer.clone(), key).await {
            Ok(session) => session,
            Err(error) => return self.writer.send(edge::error(&error, Some(&opening.id))).await,
        };
        self.writer
            .send(edge::opened(&dispatch.discovery(&caller.selection), opening))
            .await;
        let shared = tell(
            dispatch.shared_pipe(&caller, &session),
            edge,
            opening.id.clone(),
            self.writer.clone(),
        );
        self.shared = Some(tokio::spawn(shared).abort_handle());
        self.session = Some(session);
    }

    /// An answer to a question of the session.
    fn answer(&mut self, answer: Answer) {
        let Some(session) = self.session.clone() else {
            return;
        };
        let dispatch = self.stdio.dispatch.clone();
        let caller = self.stdio.caller();
        self.serving.spawn(async move {
            if dispatch.take_answer(&caller, &session, answer).await.is_err() {
                tracing::warn!("an answer could not be stored; its question stays open");
            }
        });
    }

    async fn too_long(&self) {
        let most = self.stdio.limits.line_max;
        let error = RpcError::invalid_request(format!(
            "The line is longer than {most} bytes (`server.body_max`)"
        ));
        self.writer.send(edge::error(&error, None)).await;
    }

    /// Begins to serve a request.
    async fn request(&mut self, edge: Edge, incoming: Incoming) {
        let error = match self.requests.take(&incoming.id, self.stdio.limits.requests_max) {
            Taken::Request(request) => {
                let server = Server {
                    stdio: self.stdio.clone(),
                    peer: self.peer,
                    edge,
                    writer: self.writer.clone(),
                    request,
                    share: None,
                    session: match edge {
                        Edge::Session(_) => self.session.clone(),
                        Edge::Stateless => None,
                    },
                };
                self.serving.spawn(server.serve(incoming));
                return;
            }
            Taken::Duplicate => RpcError::invalid_request("A request with this id waits for its reply"),
            Taken::TooMany => too_many(self.stdio.limits.requests_max),
        };
        let frame = edge::error(&error, Some(&incoming.id));
        self.writer.send(frame).await;
    }

    /// Lets what is open end, and closes the queue.
    async fn end(mut self, ended: Ended, last: Duration) {
        if let Some(shared) = self.shared.take() {
            shared.abort();
        }
        match ended {
            Ended::Closed => {
                self.requests.close();
                let all = async { while self.serving.join_next().await.is_some() {} };
                // What gets no reply now was left by a server that ends, not by its client.
                let _ = tokio::time::timeout(last, all).await;
            }
            Ended::Left | Ended::Unread => {}
        }
        self.requests.leave();
        while self.serving.join_next().await.is_some() {}
    }
}

fn too_many(requests_max: usize) -> RpcError {
    RpcError::refused(
        RefusalCode::OverLimit,
        format!("{requests_max} requests of this connection wait for their reply, which is the most"),
        Refusal {
            reason: "request_limit".into(),
            who: Who::Wait,
            retry_after_ms: Some(RETRY_MS),
        },
    )
}

/// When a client with too many open requests should try again, in milliseconds.
const RETRY_MS: u64 = 1_000;

/// Serves one request.
struct Server {
    stdio: Stdio,
    peer: Peer,
    edge: Edge,
    writer: Writer,
    request: Request,
    session: Option<Arc<Session>>,
    /// Room that was waited for.
    share: Option<Share>,
}

impl Server {
    async fn serve(mut self, incoming: Incoming) {
        let hold = match self.peer {
            Peer::Client => None,
            Peer::Pipe { hold, .. } => hold,
        };
        let caller = Caller {
            hold,
            pipe: self.peer.pipe(),
            ..self.stdio.caller()
        };
        let id = incoming.id.clone();
        let again = incoming.request.repeats().then(|| incoming.clone());
        // Never dropped half-way: a row that is born needs somebody who hands it out.
        let place = self.session.take().map(|session| Conversation {
            session,
            has_stream: false,
        });
        let dispatch = self.stdio.dispatch.clone();
        let looked_at = again.as_ref().and_then(|again| again.request.looks_at());
        if let Some(full) = looked_at.and_then(|sealed| dispatch.replies().known(&caller.owner, sealed))
            && !self.room(&id, full).await
        {
            return;
        }
        let mut handled = dispatch.handle(&caller, place.as_ref(), incoming).await;
        loop {
            match (handled, &again) {
                (Handled::Reply(reply), again) => {
                    let full = match self.fit(&id, &reply) {
                        Ok(ready) => {
                            self.give(ready).await;
                            return;
                        }
                        Err(full) => full,
                    };
                    drop(reply);
                    if let Some(sealed) = looked_at {
                        dispatch.replies().learn(&caller.owner, sealed, full);
                    }
                    let (true, Some(again)) = (self.room(&id, full).await, again) else {
                        return;
                    };
                    handled = dispatch.handle(&caller, place.as_ref(), again.clone()).await;
                }
                (Handled::Call(held), _) => return self.steps(&id, *held).await,
                (Handled::Wait(waiting), _) => return self.steps(&id, *waiting).await,
                (Handled::Relay(relaying), _) => return self.steps(&id, *relaying).await,
                (Handled::Listen(listener), _) => return self.listen(&id, *listener).await,
            }
        }
    }

    /// What one request has for its client, then its reply.
    async fn steps(&mut self, id: &RequestId, mut source: impl Steps) {
        loop {
            let step = tokio::select! {
                left = self.request.left() => return source.leave(left),
                step = source.next() => step,
            };
            let full = match step {
                Step::Push(push) => {
                    self.writer.send(self.edge.push(&push, id)).await;
                    continue;
                }
                Step::Reply(reply) => match self.fit(id, &reply) {
                    Ok(ready) => {
                        if self.give(ready).await {
                            source.delivered().await;
                        }
                        return;
                    }
                    Err(full) => full,
                },
            };
            if !self.room(id, full).await {
                return;
            }
        }
    }

    async fn listen(&mut self, id: &RequestId, mut listener: Listener) {
        let dispatch = self.stdio.dispatch.clone();
        let ends = self.peer == Peer::Client;
        let last = loop {
            let tick = tokio::select! {
                _ = self.request.left() => return,
                () = dispatch.draining(), if ends => break Reply::ListenEnded,
                tick = listener.next() => tick,
            };
            match tick {
                Tick::Push(push) => {
                    let fitted = self.fit_line(self.edge.push(&push, id));
                    drop(push);
                    match fitted {
                        Ok(line) => self.writer.send_line(line).await,
                        Err(full) if self.room(id, full).await => listener.again(),
                        Err(_) => return,
                    }
                }
                Tick::End(reply) => break reply,
            }
        };
        if self.reply(id, &last).await {
            // on a pipe the end is said twice, because the two texts disagree.
            self.writer.send(cancelled(id)).await;
        }
    }

    /// The reply as a line, when there is room for it.
    fn fit(&mut self, id: &RequestId, reply: &Reply) -> Result<Ready, Full> {
        let line = self.fit_line(self.edge.render(reply, id))?;
        // The next server takes what this one refuses only because it ends.
        let is_for_the_next = self.peer != Peer::Client && self.request.is_closing() && is_draining(reply);
        Ok(Ready {
            line,
            is_for_the_next,
        })
    }

    fn fit_line(&mut self, mut line: Vec<u8>) -> Result<Bytes, Full> {
        line.push(b'\n');
        self.stdio.dispatch.replies().fit(line, &mut self.share)
    }

    /// Waits for room. False when there is none for too long: the client is told so.
    async fn room(&mut self, id: &RequestId, full: Full) -> bool {
        self.share = self.stdio.dispatch.replies().wait(full).await;
        if self.share.is_none() {
            self.reply(id, &Reply::Error(replies::refusal())).await;
        }
        self.share.is_some()
    }

    /// A small last frame.
    async fn reply(&mut self, id: &RequestId, reply: &Reply) -> bool {
        match self.fit(id, reply) {
            Ok(ready) => self.give(ready).await,
            Err(_) => false,
        }
    }

    /// The last frame of a request, unless its client waits for it no longer (B-34). Its id is free before the
    /// client can have read it. Whether the other end was handed the frame.
    async fn give(&mut self, ready: Ready) -> bool {
        let is_wanted = self.request.end();
        is_wanted && !ready.is_for_the_next && self.writer.hand_over(ready.line).await
    }
}

/// A reply that found room.
struct Ready {
    line: Bytes,
    is_for_the_next: bool,
}

/// Writes what the session is told on its pipe besides replies.
async fn tell(mut shared: Shared, edge: Edge, id: RequestId, writer: Writer) {
    while let Some(push) = shared.next().await {
        writer.send(edge.push(&push, &id)).await;
    }
}

fn is_draining(reply: &Reply) -> bool {
    matches!(
        reply,
        Reply::Error(RpcError { code, data: Data::Refusal(_), .. }) if *code == RefusalCode::Draining.number()
    )
}

fn cancelled(id: &RequestId) -> Vec<u8> {
    let frame = serde_json::json!({
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": { "requestId": id, "reason": "The subscription has ended" },
    });
    frame.to_string().into_bytes()
}
