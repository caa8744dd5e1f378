//! One request over HTTP, and what comes of it: a reply, a stream that is read and resumed, or a reason.
//!
//! Started by the link for each request, and for the stream of the session. It never sends a request twice.

use std::{sync::Arc, time::Duration};

use longhaul_mcp::client::{
    Sent,
    sse::{Decoder, Event, Limits},
};
use reqwest::{Response, StatusCode};
use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

use super::{
    super::link::{FRAME_MAX, Heard, Over, Via, reply_to},
    BODY_IDLE_MAX, REFUSAL_MAX, RESUMES_MAX, RETRY,
    wire::{Room, Wire, causes, has_type, is_stream},
};

/// After its reply a stream should end at once; then the connection can serve the next request.
const AFTER_REPLY_MAX: Duration = Duration::from_secs(1);

/// The frame in an event; `None` when it only marks a place, or is of a kind of its own.
fn frame(event: Event) -> Option<Vec<u8>> {
    let is_message = event.event.as_deref().is_none_or(|kind| kind == "message");
    (is_message && !event.data.is_empty()).then_some(event.data)
}

/// How far a stream was read.
#[derive(Default)]
struct Reached {
    id: Option<String>,
    retry: Option<Duration>,
    /// How often it was resumed since the last event.
    resumed: u32,
    /// Something was read of it.
    is_begun: bool,
}

impl Reached {
    fn take(&mut self, event: &Event) {
        if let Some(id) = &event.id {
            self.id = (!id.is_empty()).then(|| id.clone());
        }
        if let Some(retry) = event.retry {
            self.retry = Some(Duration::from_millis(retry));
        }
        if !event.data.is_empty() {
            self.resumed = 0;
        }
    }

    /// The id with which the stream begins, when this is the event that only says that.
    fn first(&mut self, event: &Event) -> Option<String> {
        let is_first = !std::mem::replace(&mut self.is_begun, true);
        self.id.clone().filter(|_| is_first && event.data.is_empty())
    }

    fn pause(&mut self) -> Duration {
        let (first, longest) = RETRY;
        let pause = self.retry.unwrap_or(first);
        let factor = 1 << self.resumed.min(6);
        self.resumed += 1;
        (pause * factor).min(longest)
    }
}

/// The events of a response.
struct Events<'a> {
    response: Response,
    decoder: Decoder,
    room: Room<'a>,
    ready: std::vec::IntoIter<Event>,
}

impl<'a> Events<'a> {
    fn new(response: Response, wire: &'a Wire) -> Events<'a> {
        Events {
            response,
            room: Room::of(wire),
            decoder: Decoder::new(Limits {
                line_bytes_max: FRAME_MAX + 64,
                event_bytes_max: FRAME_MAX,
            }),
            ready: Vec::new().into_iter(),
        }
    }

    /// `None` at the end of the response, however it came.
    async fn next(&mut self) -> Result<Option<Event>, Over> {
        loop {
            if let Some(event) = self.ready.next() {
                return Ok(Some(event));
            }
            let chunk = self.response.chunk();
            let chunk = match self.room.is_large() {
                // Others wait for the room.
                true => timeout(BODY_IDLE_MAX, chunk).await,
                false => Ok(chunk.await),
            };
            let Ok(Ok(Some(bytes))) = chunk else {
                return Ok(None);
            };
            let mut events = Vec::new();
            let fed = self.decoder.feed(&bytes, &mut events);
            if events.is_empty() {
                fed.map_err(|_broken| Over::TooLong)?;
            }
            if events.is_empty() {
                self.room.take(self.decoder.held()).await;
            }
            self.ready = events.into_iter();
        }
    }
}

/// One request and what comes of it.
pub(super) struct Exchange {
    pub(super) wire: Arc<Wire>,
    pub(super) id: u64,
    pub(super) begins_session: bool,
}

impl Exchange {
    pub(super) async fn run(self, sent: Sent) {
        let heard = self.reply(sent).await;
        self.end(heard).await;
    }

    /// Of a request that was sent before: the rest of its stream.
    pub(super) async fn go_on(self, after: String) {
        let place = Reached {
            id: Some(after),
            is_begun: true,
            ..Reached::default()
        };
        let heard = self.follow(None, place).await;
        self.end(heard).await;
    }

    async fn end(self, heard: Result<(), Over>) {
        if let Err(over) = heard {
            let ended = over == Over::SessionEnded;
            let request = self.id;
            self.wire.hear(Heard::Over { request, over }).await;
            if ended {
                self.wire.session_ended().await;
            }
        }
    }

    /// `Ok` when the reply was heard, or its refusal.
    async fn reply(&self, sent: Sent) -> Result<(), Over> {
        let (request, in_session) = self.wire.post(sent).map_err(Over::Unsent)?;
        let response = request.send().await.map_err(|error| unsent(&error))?;
        let status = response.status();
        if status == StatusCode::NOT_FOUND && in_session {
            //
            return Err(Over::SessionEnded);
        }
        if !status.is_success() {
            return self.refused(response).await;
        }
        if self.begins_session {
            self.wire.begin_session(&response);
        }
        if is_stream(&response) {
            return self.follow(Some(response), Reached::default()).await;
        }
        if status == StatusCode::ACCEPTED || status == StatusCode::NO_CONTENT {
            return Err(Over::NoReply);
        }
        if !has_type(&response, "application/json") {
            return Err(Over::NotJson);
        }
        let mut room = Room::of(&self.wire);
        let bytes = body(response, FRAME_MAX, &mut room).await?;
        let via = Via::Whole(self.id);
        self.wire.hear_in(room, Heard::Frame { bytes, via }).await;
        Ok(())
    }

    async fn refused(&self, response: Response) -> Result<(), Over> {
        let status = response.status().as_u16();
        // A refusal is one without its reasons too.
        let mut room = Room::of(&self.wire);
        let body = body(response, REFUSAL_MAX, &mut room).await.unwrap_or_default();
        let request = self.id;
        self.wire
            .hear(Heard::Refused {
                request,
                status,
                body,
            })
            .await;
        Ok(())
    }

    /// Reads the stream until the reply was on it, and resumes it where it can be; without a response at once.
    async fn follow(&self, first: Option<Response>, mut place: Reached) -> Result<(), Over> {
        let mut is_at_once = first.is_none();
        let mut response = first;
        loop {
            if let Some(response) = response.take()
                && self.read(response, &mut place).await?
            {
                return Ok(());
            }
            let can_resume = self.wire.is_resumable() && place.resumed < RESUMES_MAX;
            let Some(id) = place.id.clone().filter(|_| can_resume) else {
                return Err(Over::Cut);
            };
            let pause = place.pause();
            if !std::mem::take(&mut is_at_once) {
                sleep(pause).await;
            }
            match self.wire.stream(Some(&id)).send().await {
                Ok(resumed) if is_stream(&resumed) => response = Some(resumed),
                Ok(refused) if refused.status() == StatusCode::NOT_FOUND && self.wire.has_session() => {
                    return Err(Over::SessionEnded);
                }
                Ok(refused) if refused.status().is_client_error() => return Err(Over::Cut),
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// Whether the reply was on the stream; it ended otherwise.
    async fn read(&self, response: Response, place: &mut Reached) -> Result<bool, Over> {
        let mut events = Events::new(response, &self.wire);
        while let Some(event) = events.next().await? {
            place.take(&event);
            if let Some(after) = place.first(&event)
                && self.wire.has_session()
            {
                let request = self.id;
                self.wire.hear(Heard::Placed { request, after }).await;
            }
            let Some(bytes) = frame(event) else {
                continue;
            };
            let is_reply = reply_to(&bytes) == Some(self.id);
            let via = Via::Request(self.id);
            let room = events.room.leave();
            self.wire.hear_in(room, Heard::Frame { bytes, via }).await;
            if is_reply {
                // What stands behind the reply belongs to nobody.
                let _rest = timeout(AFTER_REPLY_MAX, async {
                    while let Ok(Some(_)) = events.next().await {}
                })
                .await;
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The stream of the session, again and again. `open` is told when it is open for the first time, and
/// dropped when it will not be.
pub(super) async fn listen(wire: Arc<Wire>, open: oneshot::Sender<()>) {
    let mut open = Some(open);
    let mut place = Reached::default();
    let mut was_open = false;
    loop {
        let response = wire.stream(place.id.as_deref()).send().await;
        match response {
            Ok(response) if is_stream(&response) => {
                was_open = true;
                if let Some(open) = open.take() {
                    // Nobody waits that long for it.
                    let _late = open.send(());
                }
                let mut events = Events::new(response, &wire);
                while let Some(event) = events.next().await.unwrap_or(None) {
                    place.take(&event);
                    if let Some(bytes) = frame(event) {
                        let (room, via) = (events.room.leave(), Via::Shared);
                        wire.hear_in(room, Heard::Frame { bytes, via }).await;
                    }
                }
            }
            // Before a stream was open this may be all that the server says to a GET.
            Ok(response) if response.status() == StatusCode::NOT_FOUND && was_open => {
                return wire.session_ended().await;
            }
            Ok(response) if response.status().is_server_error() => {}
            // Other credentials may be found before the next time.
            Ok(response) if was_open && matches!(response.status().as_u16(), 401 | 403) => {}
            Ok(_not_offered) => return,
            Err(_unreachable) => {}
        }
        sleep(place.pause()).await;
    }
}

async fn body(mut response: Response, max: usize, room: &mut Room<'_>) -> Result<Vec<u8>, Over> {
    let mut body = Vec::new();
    loop {
        match timeout(BODY_IDLE_MAX, response.chunk()).await {
            Ok(Ok(Some(bytes))) if body.len() + bytes.len() > max => return Err(Over::TooLong),
            Ok(Ok(Some(bytes))) => {
                room.take(body.len() + bytes.len()).await;
                body.extend_from_slice(&bytes);
            }
            Ok(Ok(None)) => return Ok(body),
            Ok(Err(error)) => return Err(Over::Broken(causes(&error))),
            Err(_late) => return Err(Over::Broken("it stopped in the middle".to_owned())),
        }
    }
}

fn unsent(error: &reqwest::Error) -> Over {
    if error.is_connect() || error.is_builder() {
        Over::Unsent(causes(error))
    } else {
        Over::Broken(causes(error))
    }
}
