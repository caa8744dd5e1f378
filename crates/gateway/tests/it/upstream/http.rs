//! The link over HTTP: each request is sent once, and each way in which its reply can fail to come is told.

use std::sync::Arc;

use longhaul_gateway::upstream::{
    http::{self, Inlet, Outlet, Remote},
    link::{FRAME_MAX, Heard, Over, Via, Why},
};
use longhaul_mcp::client::Sent;
use serde_json::{Value as Json, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    process::Child,
};

use super::*;
use crate::support::listening;

/// The fixture as an HTTP server; it ends with this.
pub(super) struct Site {
    _process: Child,
    pub(super) port: u16,
}

impl Site {
    pub(super) async fn start(options: &[&str]) -> Site {
        let (process, port) = listening(&[&[FIXTURE, "http"][..], options].concat()).await;
        Site {
            _process: process,
            port,
        }
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    /// What it counted.
    pub(super) async fn seen(&self) -> Json {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))
            .await
            .expect("it listens");
        let request = b"GET /seen HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("text");
        let (_, body) = text.split_once("\r\n\r\n").expect("a body");
        serde_json::from_str(body).expect("JSON")
    }

    pub(super) async fn until_seen(&self, name: &str, mut condition: impl FnMut(&Json) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let seen = self.seen().await;
            if condition(&seen) {
                return;
            }
            assert!(Instant::now() < deadline, "not in time: {name}; {seen}");
            sleep(Duration::from_millis(10)).await;
        }
    }
}

struct Link {
    outlet: Outlet,
    inlet: Inlet,
    site: Arc<Site>,
}

impl Link {
    /// A link in a session.
    async fn open(options: &[&str]) -> Link {
        let site = Arc::new(Site::start(options).await);
        Link::to(site).await
    }

    async fn to(site: Arc<Site>) -> Link {
        let remote = Remote {
            url: site.url(),
            headers: vec![("Authorization".into(), "Bearer secret".into())],
        };
        let (outlet, inlet) = http::open(&remote).expect("it is usable");
        let mut link = Link { outlet, inlet, site };
        let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}});
        link.outlet.request(1, sent(&hello), true);
        assert_eq!(link.reply(1).await["result"]["protocolVersion"], "2025-11-25");
        let version = ("mcp-protocol-version".to_owned(), "2025-11-25".to_owned());
        link.outlet.in_session(vec![version]);
        link
    }

    fn call(&self, id: u64, tool: &str, arguments: Json) {
        let frame = json!({
            "jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": {"name": tool, "arguments": arguments},
        });
        self.outlet.request(id, sent(&frame), false);
    }

    async fn next(&mut self) -> Heard {
        within(PATIENCE, self.inlet.next()).await
    }

    async fn reply(&mut self, id: u64) -> Json {
        let heard = self.next().await;
        let Heard::Frame { bytes, via } = heard else {
            panic!("{heard:?}");
        };
        assert!(
            matches!(via, Via::Request(of) | Via::Whole(of) if of == id),
            "{via:?}"
        );
        serde_json::from_slice(&bytes).expect("JSON")
    }

    /// The id with which the stream of a request begins.
    async fn placed(&mut self, id: u64) -> String {
        let heard = self.next().await;
        let Heard::Placed { request, after } = heard else {
            panic!("{heard:?}");
        };
        assert_eq!(request, id);
        after
    }

    async fn over(&mut self, id: u64) -> Over {
        let heard = self.next().await;
        let Heard::Over { request, over } = heard else {
            panic!("{heard:?}");
        };
        assert_eq!(request, id);
        over
    }
}

fn sent(frame: &Json) -> Sent {
    Sent {
        frame: frame.to_string().into_bytes(),
        headers: Vec::new(),
    }
}

fn said(frame: &Json) -> &str {
    frame["result"]["content"][0]["text"].as_str().expect("text")
}

#[tokio::test]
async fn a_reply_comes_as_json_or_on_a_stream_and_the_connection_is_kept() {
    for options in [&["--json"][..], &[]] {
        let mut link = Link::open(options).await;
        for id in 2..10 {
            link.call(id, "echo", json!({"n": id}));
            assert_eq!(said(&link.reply(id).await), json!({"n": id}).to_string());
        }
        let seen = link.site.seen().await;
        assert_eq!(seen["headers"]["authorization"], "Bearer secret");
        assert_eq!(seen["headers"]["mcp-session-id"], "session-0");
        // One is this question. A request that is sent before the last stream has ended takes another.
        let connections = seen["connections"].as_u64().expect("a number");
        assert!(connections < 6, "{seen}");
    }
}

#[tokio::test]
async fn what_comes_before_the_reply_is_heard_in_order() {
    let mut link = Link::open(&[]).await;
    link.call(2, "progress", json!({"steps": 50}));
    for step in 1..=50 {
        assert_eq!(link.reply(2).await["params"]["progress"], step);
    }
    assert_eq!(said(&link.reply(2).await), "done");
}

#[tokio::test]
async fn a_reply_that_will_not_come_is_told_by_its_cause() {
    let mut link = Link::open(&[]).await;
    let cases = [
        ("accepted", json!({}), Over::NoReply),
        ("html", json!({}), Over::NotJson),
        ("huge", json!({}), Over::TooLong),
        ("drip", json!({}), Over::TooLong),
    ];
    for (id, (tool, arguments, expected)) in (2..).zip(cases) {
        link.call(id, tool, arguments);
        assert_eq!(link.over(id).await, expected, "{tool}");
    }
    link.call(10, "cut", json!({}));
    assert_eq!(link.reply(10).await["method"], "notifications/message");
    assert_eq!(link.over(10).await, Over::Cut);
    for (id, tool) in [(20, "short"), (21, "drop")] {
        link.call(id, tool, json!({}));
        assert!(matches!(link.over(id).await, Over::Broken(_)), "{tool}");
    }
    let seen = link.site.seen().await;
    for tool in ["accepted", "html", "huge", "drip", "cut", "short", "drop"] {
        assert_eq!(seen["calls"][tool], 1, "{tool} was sent once");
    }
    link.call(30, "echo", json!({}));
    assert_eq!(said(&link.reply(30).await), "{}");
}

#[tokio::test]
async fn a_json_reply_is_bounded() {
    let mut link = Link::open(&["--json"]).await;
    let before = memory("VmRSS:");
    link.call(2, "huge", json!({}));
    assert_eq!(link.over(2).await, Over::TooLong);
    let grown = memory("VmHWM:").saturating_sub(before);
    assert!(grown < 3 * FRAME_MAX as u64, "grew by {grown} bytes");
}

#[tokio::test]
async fn a_server_that_is_not_there_was_sent_nothing() {
    let remote = Remote {
        // Reserved: nothing listens there.
        url: "http://127.0.0.1:1/mcp?key=secret".to_owned(),
        headers: Vec::new(),
    };
    let (outlet, mut inlet) = http::open(&remote).expect("it is usable");
    outlet.request(1, sent(&json!({})), false);
    let heard = within(PATIENCE, inlet.next()).await;
    let Heard::Over {
        request: 1,
        over: Over::Unsent(why),
    } = heard
    else {
        panic!("{heard:?}");
    };
    assert!(why.contains("refused") && !why.contains("secret"), "{why}");
}

#[tokio::test]
async fn a_refusal_is_told_with_its_status_and_body_and_no_redirect_is_followed() {
    let mut link = Link::open(&[]).await;
    for (id, status) in [(2, 302), (3, 401), (4, 500)] {
        let location = json!({"Location": link.site.url()});
        link.call(
            id,
            "status",
            json!({"status": status, "body": "why", "headers": location}),
        );
        let heard = link.next().await;
        let Heard::Refused {
            request,
            status: told,
            body,
        } = heard
        else {
            panic!("{heard:?}");
        };
        assert_eq!((request, told, &body[..]), (id, status, &b"why"[..]));
    }
}

#[tokio::test]
async fn a_stream_that_breaks_is_resumed_and_the_call_is_sent_once() {
    let mut link = Link::open(&[]).await;
    link.call(2, "cut", json!({"id": "e-1"}));
    assert_eq!(link.placed(2).await, "e-1");
    assert_eq!(said(&link.reply(2).await), "resumed");
    let seen = link.site.seen().await;
    assert_eq!(
        (&seen["calls"]["cut"], &seen["resumed"]),
        (&json!(1), &json!(["e-1"]))
    );
}

#[tokio::test]
async fn a_stream_that_cannot_be_resumed_ends_its_call() {
    let mut link = Link::open(&[]).await;
    link.call(2, "cut", json!({"id": "e-1", "lost": true}));
    assert_eq!(link.placed(2).await, "e-1");
    assert_eq!(link.over(2).await, Over::Cut);
    let seen = link.site.seen().await;
    assert_eq!(
        (&seen["calls"]["cut"], &seen["resumed"]),
        (&json!(1), &json!(["e-1"]))
    );
}

#[tokio::test]
async fn a_forgotten_session_ends_the_link_and_nothing_is_sent_again() {
    let mut link = Link::open(&[]).await;
    link.call(2, "forget", json!({}));
    assert_eq!(link.over(2).await, Over::SessionEnded);
    assert!(matches!(link.next().await, Heard::Lost(lost) if lost.why == Why::SessionEnded));
    assert_eq!(link.site.seen().await["calls"]["forget"], 1);
}

#[tokio::test]
async fn giving_a_request_up_closes_its_stream() {
    let mut link = Link::open(&[]).await;
    link.call(2, "hang", json!({}));
    link.site.until_seen("it hangs", |seen| seen["count"] == 1).await;
    link.outlet.abandon(2);
    link.site
        .until_seen("it was dropped", |seen| seen["cancelled"] == json!([2]))
        .await;
    link.call(3, "echo", json!({}));
    assert_eq!(said(&link.reply(3).await), "{}");
}

#[tokio::test]
async fn the_stream_of_the_session_is_heard() {
    let mut link = Link::open(&[]).await;
    link.outlet.listen().await;
    let mut id = 2;
    // What else is said on the call's own stream comes in any order with it.
    let shared = loop {
        link.call(id, "change", json!({}));
        let heard = link.next().await;
        let Heard::Frame { bytes, via } = heard else {
            panic!("{heard:?}");
        };
        if via == Via::Shared {
            break bytes;
        }
        id += 1;
    };
    let notice: Json = serde_json::from_slice(&shared).expect("JSON");
    assert_eq!(notice["method"], "notifications/tools/list_changed");
}

#[tokio::test]
async fn a_server_without_such_a_stream_is_left_alone() {
    let mut link = Link::open(&["--no-get"]).await;
    link.outlet.listen().await;
    link.call(2, "echo", json!({}));
    link.reply(2).await;
    link.site
        .until_seen("one GET was refused", |seen| seen["posts"] == 2)
        .await;
}

#[tokio::test]
async fn the_end_of_the_link_ends_the_session() {
    let link = Link::open(&[]).await;
    let lost = within(PATIENCE, link.inlet.close(Why::Closed)).await;
    assert_eq!(lost.why, Why::Closed);
    assert_eq!(link.site.seen().await["deleted"], 1);
}

#[tokio::test]
async fn what_cannot_be_used_is_told_without_its_secrets() {
    let open = |url: &str, name: &str, value: &str| {
        let headers = vec![(name.to_owned(), value.to_owned())];
        http::open(&Remote {
            url: url.to_owned(),
            headers,
        })
        .err()
        .map(|error| error.to_string())
    };
    let url = open("ftp://example.org", "a", "b").expect("it is refused");
    assert_eq!(url, "its address is no http or https URL");
    let header = open("https://example.org", "Authorization", "secret\n").expect("it is refused");
    assert!(
        header.contains("`Authorization`") && !header.contains("secret"),
        "{header}"
    );
    assert_eq!(open("https://example.org", "Authorization", "secret"), None);
}
