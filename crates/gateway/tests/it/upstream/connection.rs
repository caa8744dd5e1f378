//! A connection in both generations and over both carriers: each request ends in a stated way.

mod asked;

use std::sync::{Arc, Mutex};

use longhaul_gateway::upstream::{
    Event, Failed, Outcome, Request, Unsent,
    connection::{BURST, CANCEL_WAIT, Connection, PER_SECOND},
    dial::{self, Ours, PROBE_MAX, Place, Unopened},
    http::Remote,
    link::{Over, Why},
};
use longhaul_mcp::{
    client::{
        Era, Kind,
        dial::{Choice, Failure},
        incoming::Notice,
        result::Came,
    },
    frame::Obj,
};
use serde_json::{Value as Json, json};
use tokio::sync::mpsc;

use super::{http::Site, *};
use crate::support::choose_fault;

const FIND: Choice = Choice::Find {
    first: Kind::Stateless,
};

/// A connection and what it stands on.
struct Peer {
    connection: Connection,
    notices: Arc<Mutex<Vec<Notice>>>,
    site: Option<Site>,
    _spool: TempDir,
}

fn ours() -> Ours {
    let object = |text| Obj::parse(text).expect("an object");
    let roots = object(r#"{"roots":[{"uri":"file:///tmp"}]}"#);
    Ours::new(
        object(r#"{"roots":{},"sampling":{},"elicitation":{}}"#),
        Some(roots),
    )
}

impl Peer {
    async fn open(options: &[&str]) -> Result<Peer, Unopened> {
        let spool = directory();
        let place = Place::Program(fixture(options), Arc::new(host(&spool)));
        Peer::of(place, None, spool, &ours()).await
    }

    async fn program(options: &[&str]) -> Peer {
        Peer::open(options).await.expect("it opens")
    }

    async fn remote(options: &[&str]) -> Peer {
        Peer::reached(options).await.expect("it opens")
    }

    async fn reached(options: &[&str]) -> Result<Peer, Unopened> {
        let site = Site::start(options).await;
        let place = Place::Remote(Remote {
            url: site.url(),
            headers: Vec::new(),
        });
        Peer::of(place, Some(site), directory(), &ours()).await
    }

    async fn of(place: Place, site: Option<Site>, spool: TempDir, ours: &Ours) -> Result<Peer, Unopened> {
        choose_fault();
        let notices = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&notices);
        let tell = Arc::new(move |notice| told.lock().expect("whole").push(notice));
        let connection = within(
            PATIENCE,
            dial::open(&place, ours, FIND, tell, std::future::pending()),
        )
        .await?;
        Ok(Peer {
            connection,
            notices,
            site,
            _spool: spool,
        })
    }

    /// Every way in which a server is spoken to.
    async fn all() -> Vec<(&'static str, Peer)> {
        vec![
            ("a pipe, with sessions", Peer::program(&["--era=2025"]).await),
            ("a pipe, stateless", Peer::program(&[]).await),
            ("HTTP, with sessions", Peer::remote(&["--era=2025"]).await),
            ("HTTP, stateless", Peer::remote(&[]).await),
            (
                "HTTP, stateless, JSON",
                Peer::remote(&["--era=2026", "--json"]).await,
            ),
        ]
    }

    async fn call(&self, tool: &str, arguments: Json) -> Outcome {
        self.call_until(tool, arguments, None, std::future::pending())
            .await
    }

    async fn call_until(
        &self,
        tool: &str,
        arguments: Json,
        events: Option<mpsc::Sender<Event>>,
        stop: impl Future<Output = ()>,
    ) -> Outcome {
        let params = json!({"name": tool, "arguments": arguments}).to_string();
        let params = Obj::parse(&params).expect("an object");
        let request = Request {
            method: "tools/call",
            params: Some(&params),
            ..Request::default()
        };
        within(PATIENCE, self.connection.request(request, events, stop)).await
    }

    async fn text(&self, tool: &str, arguments: Json) -> String {
        text(self.call(tool, arguments).await)
    }
}

fn result(outcome: Outcome) -> Json {
    let Outcome::Came(Came::Complete(result)) = outcome else {
        panic!("{outcome:?}");
    };
    result.read().expect("JSON")
}

fn text(outcome: Outcome) -> String {
    let result = result(outcome);
    result["content"][0]["text"].as_str().expect("text").to_owned()
}

#[tokio::test]
async fn b16_the_generation_is_found_out_on_a_pipe_and_over_http() {
    for (name, peer) in Peer::all().await {
        let stateless = matches!(peer.connection.spoken().era, Era::Stateless);
        assert_eq!(stateless, name.contains("stateless"), "{name}");
        assert_eq!(
            peer.connection.spoken().instructions.as_deref(),
            Some("Call echo.")
        );
        assert!(peer.connection.spoken().offers().tools_change, "{name}");
        let echoed = peer.text("echo", json!({"a": 1.0})).await;
        assert_eq!(echoed, r#"{"a":1.0}"#, "{name}");
    }
}

#[tokio::test]
async fn many_requests_at_once_get_their_own_replies() {
    for (name, peer) in Peer::all().await {
        let calls = (0..50).map(|n| peer.text("echo", json!({"n": n})));
        let replies = futures_util::future::join_all(calls).await;
        let expected: Vec<_> = (0..50).map(|n| json!({"n": n}).to_string()).collect();
        assert_eq!(replies, expected, "{name}");
        assert_eq!(peer.connection.pending(), 0);
    }
}

#[tokio::test]
async fn progress_comes_in_order_and_before_the_reply() {
    for (name, peer) in Peer::all().await {
        if name.contains("JSON") {
            continue;
        }
        let (events, mut heard) = mpsc::channel(100);
        let outcome = peer.call_until(
            "progress",
            json!({"steps": 20}),
            Some(events),
            std::future::pending(),
        );
        assert_eq!(text(outcome.await), "done", "{name}");
        let mut steps = Vec::new();
        while let Ok(Event::Progress(progress)) = heard.try_recv() {
            steps.push(progress.progress);
        }
        let expected: Vec<_> = (1..=20).map(f64::from).collect();
        assert_eq!(steps, expected, "{name}");
    }
}

#[tokio::test]
async fn a_log_message_goes_to_the_call_that_it_can_only_belong_to() {
    let peer = Peer::program(&["--era=2025"]).await;
    let (events, mut heard) = mpsc::channel(10);
    peer.call_until("log", json!({}), Some(events), std::future::pending())
        .await;
    assert!(matches!(heard.try_recv(), Ok(Event::Log { .. })));

    // Two calls are open: it could belong to either.
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (other, mut others) = mpsc::channel(10);
    let hang = peer.call_until("hang", json!({}), Some(other), async { drop(stopped.await) });
    let log = async {
        while peer.connection.pending() == 0 {
            tokio::task::yield_now().await;
        }
        let (events, mut heard) = mpsc::channel(10);
        peer.call_until("log", json!({}), Some(events), std::future::pending())
            .await;
        drop(stop);
        heard.try_recv().is_err()
    };
    let (_, unheard) = tokio::join!(hang, log);
    assert!(unheard && others.try_recv().is_err());
}

#[tokio::test]
async fn an_error_passes_as_it_was_written() {
    for (name, peer) in Peer::all().await {
        let Outcome::Errored(error) = peer.call("refuse", json!({})).await else {
            panic!("{name}");
        };
        assert!(
            error.text().contains(r#""why":1.0"#) || error.text().contains(r#""why": 1.0"#),
            "{}",
            error.text()
        );
    }
}

#[tokio::test]
async fn a_reply_that_nobody_can_read_fails_its_request_at_once() {
    for (name, peer) in Peer::all().await {
        if !name.contains("pipe") {
            continue;
        }
        for tool in ["bad_utf8", "twice"] {
            let outcome = peer.call(tool, json!({})).await;
            assert!(
                matches!(outcome, Outcome::Failed(Failed::Unreadable(_))),
                "{name}, {tool}: {outcome:?}"
            );
        }
        for (bytes, first) in [(17 << 20, false), (17 << 20, true)] {
            let outcome = peer.call("long", json!({"bytes": bytes, "first": first})).await;
            assert!(
                matches!(outcome, Outcome::Failed(Failed::TooLong)),
                "{name}: {outcome:?}"
            );
        }
        let deep = "[".repeat(70) + &"]".repeat(70);
        let outcome = peer
            .call("raw", json!({"result": format!(r#"{{"x":{deep}}}"#)}))
            .await;
        assert!(
            matches!(outcome, Outcome::Failed(Failed::Unreadable(_))),
            "{name}: {outcome:?}"
        );
        let outcome = peer.call("raw", json!({"result": "[1]"})).await;
        assert!(matches!(outcome, Outcome::Unusable(_)), "{name}: {outcome:?}");
        assert_eq!(
            peer.text("echo", json!({})).await,
            "{}",
            "{name}: the connection lives on"
        );
    }
}

#[tokio::test]
async fn replies_to_nobody_are_dropped() {
    let peer = Peer::program(&["--era=2025"]).await;
    assert_eq!(peer.text("wrong_ids", json!({})).await, "right");
    assert_eq!(peer.text("again", json!({})).await, "0");
    assert_eq!(peer.text("noise", json!({})).await, "after the noise");
    assert_eq!(
        peer.text("flood_frames", json!({"count": 10_000})).await,
        "flooded"
    );
    assert_eq!(peer.text("echo", json!({})).await, "{}");
}

#[tokio::test]
async fn a_frame_with_a_wrong_id_is_skipped_over_http_as_on_a_pipe() {
    for options in [&["--era=2025"][..], &["--era=2026"]] {
        for peer in [Peer::program(options).await, Peer::remote(options).await] {
            assert_eq!(peer.text("wrong_ids", json!({})).await, "right");
            assert_eq!(peer.text("echo", json!({})).await, "{}");
        }
    }
}

#[tokio::test]
async fn a_reply_of_json_that_answers_nothing_fails_its_request() {
    let peer = Peer::remote(&["--era=2026", "--json"]).await;
    for body in [
        "{",
        r#"{"jsonrpc":"2.0","id":1000,"result":{}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#,
    ] {
        let outcome = peer.call("status", json!({"status": 200, "body": body})).await;
        assert!(
            matches!(outcome, Outcome::Failed(Failed::Unreadable(_))),
            "{body}: {outcome:?}"
        );
    }
}

#[tokio::test]
async fn a_server_that_tells_too_much_is_read_slowly_and_nothing_is_lost() {
    let peer = Peer::program(&["--era=2025"]).await;
    let began = Instant::now();
    let count = BURST + PER_SECOND;
    assert_eq!(
        peer.text("flood_changes", json!({"count": count})).await,
        "flooded"
    );
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(900), "{took:?}");
    assert_eq!(peer.notices.lock().expect("whole").len(), count as usize);
    assert_eq!(peer.text("echo", json!({})).await, "{}");
}

#[tokio::test]
async fn frames_of_no_use_without_end_end_the_connection() {
    let peer = Peer::program(&["--era=2025"]).await;
    let outcome = peer.call("flood_frames", json!({"count": 1_000_000})).await;
    let Outcome::Failed(Failed::Lost(lost)) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!((&lost.why, lost.confirmed), (&Why::Noise, true));
}

#[tokio::test]
async fn a_death_ends_every_request_that_waits() {
    for tool in ["die", "half", "mute"] {
        let peer = Peer::program(&[]).await;
        let hang = peer.call("hang", json!({}));
        let die = async {
            while peer.connection.pending() == 0 {
                tokio::task::yield_now().await;
            }
            peer.call(tool, json!({})).await
        };
        let (hung, died) = tokio::join!(hang, die);
        assert!(
            matches!(hung, Outcome::Failed(Failed::Lost(_))),
            "{tool}: {hung:?}"
        );
        assert!(
            matches!(died, Outcome::Failed(Failed::Lost(_))),
            "{tool}: {died:?}"
        );
        peer.connection.ended().await;
        assert!(
            peer.connection.lost().is_some_and(|lost| lost.confirmed),
            "{tool}"
        );
        let after = peer.call("echo", json!({})).await;
        assert!(
            matches!(after, Outcome::Unsent(Unsent::Unreachable(_))),
            "{tool}: {after:?}"
        );
    }
}

#[tokio::test]
async fn a_cancelled_request_is_told_by_the_means_of_its_generation() {
    let peers = Peer::all().await;
    futures_util::future::join_all(peers.iter().map(|(name, peer)| cancel(name, peer))).await;
}

async fn cancel(name: &str, peer: &Peer) {
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let hang = peer.call_until("hang", json!({}), None, async { drop(stopped.await) });
    let began = Instant::now();
    let watch = async {
        match &peer.site {
            Some(site) => site.until_seen("it hangs", |seen| seen["count"] == 1).await,
            None => while !peer.text("seen", json!({})).await.contains(r#""count": 1"#) {},
        }
        drop(stop);
        match &peer.site {
            Some(site) => {
                site.until_seen("it was told", |seen| seen["cancelled"] != json!([]))
                    .await;
            }
            None => while peer.text("seen", json!({})).await.contains(r#""cancelled": []"#) {},
        }
    };
    let (outcome, ()) = tokio::join!(hang, watch);
    assert!(
        matches!(outcome, Outcome::Stopped { confirmed: false }),
        "{name}: {outcome:?}"
    );
    assert!(began.elapsed() < CANCEL_WAIT + PATIENCE / 2, "{name}");
    assert_eq!(peer.connection.pending(), 0, "{name}");
}

#[tokio::test]
async fn a_reply_to_a_cancelled_request_confirms_that_its_work_is_over() {
    let peer = Peer::program(&[]).await;
    let stop = async {
        while peer.connection.pending() == 0 {
            tokio::task::yield_now().await;
        }
    };
    let outcome = peer.call_until("late", json!({"seconds": 0.3}), None, stop).await;
    assert!(
        matches!(outcome, Outcome::Stopped { confirmed: true }),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_request_whose_caller_is_gone_is_given_up() {
    let peer = Peer::program(&[]).await;
    let hang = timeout(Duration::from_millis(300), peer.call("hang", json!({}))).await;
    assert!(hang.is_err());
    assert_eq!(peer.connection.pending(), 0);
    while peer.text("seen", json!({})).await.contains(r#""cancelled": []"#) {}
}

#[tokio::test]
async fn changes_are_told() {
    for (name, peer) in Peer::all().await {
        if name.contains("stateless") {
            continue;
        }
        // The session's own stream may open after the first change.
        while peer.notices.lock().expect("whole").is_empty() {
            assert_eq!(peer.text("change", json!({})).await, "changed", "{name}");
        }
        assert_eq!(
            peer.notices.lock().expect("whole")[0],
            Notice::ToolsChanged,
            "{name}"
        );
    }
}

#[tokio::test]
async fn an_unasked_task_is_recognised() {
    let peer = Peer::program(&["--era=2025"]).await;
    let outcome = peer.call("unasked_task", json!({})).await;
    assert!(
        matches!(&outcome, Outcome::Came(Came::Task { task, .. }) if task == "t-1"),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn over_http_each_failure_is_told_by_its_cause_and_the_call_was_sent_once() {
    for options in [&["--era=2025"][..], &["--era=2026"]] {
        let peer = Peer::remote(options).await;
        for tool in ["accepted", "html", "short", "drop", "cut"] {
            let outcome = peer.call(tool, json!({})).await;
            assert!(
                matches!(outcome, Outcome::Failed(Failed::Over(_))),
                "{tool}: {outcome:?}"
            );
        }
        for tool in ["huge", "drip"] {
            let outcome = peer.call(tool, json!({})).await;
            assert!(
                matches!(outcome, Outcome::Failed(Failed::TooLong)),
                "{tool}: {outcome:?}"
            );
        }
        let outcome = peer.call("status", json!({"status": 503, "body": "busy"})).await;
        assert!(
            matches!(outcome, Outcome::Failed(Failed::Status(503))),
            "{outcome:?}"
        );
        let body = r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32602,"message":"No"}}"#;
        let outcome = peer.call("status", json!({"status": 400, "body": body})).await;
        assert!(matches!(outcome, Outcome::Errored(_)), "{outcome:?}");
        let calls = peer.site.as_ref().expect("a site").seen().await["calls"].clone();
        assert!(
            calls
                .as_object()
                .expect("an object")
                .iter()
                .all(|(tool, times)| *times == 1 || tool == "status")
        );
        assert_eq!(peer.text("echo", json!({})).await, "{}");
    }
}

#[tokio::test]
async fn over_http_no_request_is_answered_on_the_stream_of_another() {
    for options in [&["--era=2025"][..], &["--era=2026"]] {
        let peer = Peer::remote(options).await;
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let hang = peer.call_until("hang", json!({}), None, async { drop(stopped.await) });
        let reply = async {
            let site = peer.site.as_ref().expect("a site");
            site.until_seen("it hangs", |seen| seen["count"] == 1).await;
            // The fixture guesses the id of the request before its own.
            let outcome = peer.call("reply_to_the_last", json!({})).await;
            drop(stop);
            text(outcome)
        };
        let (hung, replied) = tokio::join!(hang, reply);
        assert!(matches!(hung, Outcome::Stopped { .. }), "{hung:?}");
        assert_eq!(replied, "mine");
    }
}

#[tokio::test]
async fn a_forgotten_session_ends_the_connection_and_its_requests() {
    let peer = Peer::remote(&["--era=2025"]).await;
    let hang = peer.call("hang", json!({}));
    let forget = async {
        while peer.connection.pending() == 0 {
            tokio::task::yield_now().await;
        }
        peer.call("forget", json!({})).await
    };
    let (hung, forgotten) = tokio::join!(hang, forget);
    assert!(
        matches!(forgotten, Outcome::Failed(Failed::Over(Over::SessionEnded))),
        "{forgotten:?}"
    );
    let Outcome::Failed(Failed::Lost(lost)) = hung else {
        panic!("{hung:?}");
    };
    assert_eq!(lost.why, Why::SessionEnded);
}

#[tokio::test]
async fn a_server_that_cannot_be_spoken_to_is_told_by_its_cause() {
    for era in ["--era=2025", "--era=2026", "--era=both"] {
        let failed = Peer::open(&[era, "--dial=error"]).await.err().expect("it fails");
        assert!(
            matches!(
                &failed,
                Unopened::Failed {
                    failure: Failure::Refused { .. },
                    ..
                }
            ),
            "{failed:?}"
        );
        let died = Peer::open(&[era, "--dial=die"]).await.err().expect("it fails");
        assert!(died.stderr().contains("no configuration"), "{died:?}");
    }
    let odd = Peer::reached(&["--dial=html"]).await;
    let odd = odd.err().expect("it fails").to_string();
    assert!(odd.contains("neither JSON nor a stream of events"), "{odd}");
    let spool = directory();
    let mut program = fixture(&[]);
    program.command[0] = "no-such-program".into();
    let place = Place::Program(program, Arc::new(host(&spool)));
    let ours = ours();
    let failed = dial::open(&place, &ours, FIND, Arc::new(|_| ()), std::future::pending());
    let failed = failed.await.err();
    assert!(matches!(failed, Some(Unopened::Unstartable(_))));
}

#[tokio::test]
async fn silence_is_waited_for_as_long_as_a_dial_may_take() {
    let mut ours = ours();
    ours.probe_max = Duration::from_millis(300);
    ours.dial_max = Duration::from_secs(1);
    let began = Instant::now();
    let spool = directory();
    let place = Place::Program(
        fixture(&["--dial=silent", "--say=thinking"]),
        Arc::new(host(&spool)),
    );
    let failed = Peer::of(place, None, spool, &ours).await.err().expect("it fails");
    assert!(began.elapsed() >= ours.dial_max && began.elapsed() < PROBE_MAX);
    assert!(
        matches!(
            &failed,
            Unopened::Failed {
                failure: Failure::Silent,
                ..
            }
        ),
        "{failed:?}"
    );
    assert_eq!(failed.stderr(), "thinking\n");

    let spool = directory();
    let place = Place::Program(fixture(&["--dial=lines"]), Arc::new(host(&spool)));
    let odd = Peer::of(place, None, spool, &ours).await.err().expect("it fails");
    assert!(odd.to_string().contains("standard output is not MCP"), "{odd}");
}

#[tokio::test]
async fn a_server_that_answers_its_first_question_late_is_understood() {
    let mut ours = ours();
    ours.probe_max = Duration::from_millis(50);
    let spool = directory();
    let place = Place::Program(fixture(&["--era=2026", "--slow=0.5"]), Arc::new(host(&spool)));
    let peer = Peer::of(place, None, spool, &ours).await.expect("it opens");
    assert_eq!(peer.connection.spoken().era, Era::Stateless);
    assert_eq!(peer.text("echo", json!({})).await, "{}");
}

#[tokio::test]
async fn a_close_tells_those_who_wait_and_leaves_nothing() {
    let peer = Peer::program(&["--stubborn"]).await;
    let pid = peer.connection.pid().expect("a program");
    let hang = peer.call("hang", json!({}));
    let close = async {
        while peer.connection.pending() == 0 {
            tokio::task::yield_now().await;
        }
        peer.connection.close().await
    };
    let (hung, lost) = tokio::join!(hang, close);
    assert!(matches!(hung, Outcome::Failed(Failed::Lost(_))), "{hung:?}");
    assert!(lost.confirmed && !is_alive(pid));
}

#[tokio::test]
async fn the_last_clone_that_is_dropped_ends_the_server() {
    let peer = Peer::program(&[]).await;
    let pid = peer.connection.pid().expect("a program");
    let other = peer.connection.clone();
    drop(peer);
    assert!(is_alive(pid));
    drop(other);
    until("nothing is left", PATIENCE, || !is_alive(pid)).await;
}
