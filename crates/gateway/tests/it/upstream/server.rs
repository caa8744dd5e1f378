//! A server over its life: isolation, limits, failures and their end, what it defines, and what it tells.

mod remote;

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use futures_util::future::BoxFuture;
use longhaul_gateway::upstream::{
    Caller, Definitions, Failed, Isolation, Outcome, Request, Server, Spec, State, Times,
    dial::{LookUp, Ours, Place},
    http::Remote,
    level::HEARD_WITHIN,
    pool::Key,
    stdio::Program,
    subscription::Due,
};
use longhaul_mcp::{
    client::{Kind, dial::Choice, result::Came, tools::TOOLS_MAX},
    frame::{Obj, Raw},
    request::{Answers, LogLevel},
};
use serde_json::{Value as Json, json};

use super::{http::Site, *};
use crate::support::choose_fault;

/// A server and the folder of its processes' records.
struct Rig {
    server: Server,
    spool: TempDir,
}

impl Rig {
    fn of(program: Program, change: impl FnOnce(&mut Spec)) -> Rig {
        let spool = directory();
        let place = Place::Program(program, Arc::new(host(&spool)));
        Rig::at(place, spool, change)
    }

    fn at(place: Place, spool: TempDir, change: impl FnOnce(&mut Spec)) -> Rig {
        choose_fault();
        let mut spec = Spec {
            name: "fixture".to_owned(),
            place,
            choice: Choice::Find {
                first: Kind::Stateless,
            },
            isolation: Isolation::Session,
            processes_max: 8,
            times: Times {
                idle_stop: Duration::from_secs(600),
                keep_idle: Duration::from_secs(30),
                wait: Duration::from_secs(300),
                request: Duration::from_secs(60),
                lists: Duration::from_secs(120),
            },
            ours: Ours::new(Obj::default(), None),
            may_ask: Answers::ALL,
            asks_undeclared: true,
            known: None,
            sleeps: false,
        };
        change(&mut spec);
        Rig {
            server: Server::open(spec),
            spool,
        }
    }

    async fn ready(options: &[&str], change: impl FnOnce(&mut Spec)) -> Rig {
        let rig = Rig::of(fixture(options), change);
        rig.until(|state| *state == State::Ready).await;
        rig
    }

    async fn remote(site: &Site, change: impl FnOnce(&mut Spec)) -> Rig {
        let place = Place::Remote(Remote {
            url: site.url(),
            headers: Vec::new(),
        });
        let rig = Rig::at(place, directory(), change);
        rig.until(|state| *state == State::Ready).await;
        rig
    }

    async fn until(&self, condition: impl FnMut(&State) -> bool) -> State {
        let mut state = self.server.watch_state();
        let state = within(PATIENCE, state.wait_for(condition)).await;
        state.expect("the server lives").clone()
    }

    async fn call(&self, session: &str, tool: &str, arguments: Json) -> Outcome {
        self.call_until(session, tool, arguments, std::future::pending())
            .await
    }

    async fn call_until(
        &self,
        session: &str,
        tool: &str,
        arguments: Json,
        stop: impl Future<Output = ()>,
    ) -> Outcome {
        self.call_by(&caller(session), tool, arguments, stop).await
    }

    async fn call_by(
        &self,
        caller: &Caller,
        tool: &str,
        arguments: Json,
        stop: impl Future<Output = ()>,
    ) -> Outcome {
        let params = json!({"name": tool, "arguments": arguments}).to_string();
        let params = Obj::parse(&params).expect("an object");
        let request = Request {
            method: "tools/call",
            params: Some(&params),
            ..Request::default()
        };
        within(PATIENCE, self.server.call(caller, request, None, stop)).await
    }

    async fn text(&self, session: &str, tool: &str) -> String {
        let outcome = self.call(session, tool, json!({})).await;
        text(&outcome).unwrap_or_else(|| panic!("{outcome:?}"))
    }

    async fn pid(&self, session: &str) -> i32 {
        self.text(session, "pid").await.parse().expect("a number")
    }

    fn names(&self) -> Vec<String> {
        let definitions = self.server.definitions().expect("it was seen");
        definitions.tools.iter().map(|tool| tool.name.clone()).collect()
    }

    /// How many programs of it run.
    fn programs(&self) -> usize {
        std::fs::read_dir(self.spool.path()).expect("a folder").count()
    }

    async fn close(self) {
        let live = self.server.live();
        within(PATIENCE, self.server.close()).await;
        assert!(live.iter().filter_map(|live| live.pid).all(|pid| !is_alive(pid)));
        self.until(|state| *state == State::Closed).await;
    }
}

/// The text of a result, if one came.
fn text(outcome: &Outcome) -> Option<String> {
    let Outcome::Came(Came::Complete(result)) = outcome else {
        return None;
    };
    let result: Json = result.read().expect("JSON");
    Some(result["content"][0]["text"].as_str().expect("text").to_owned())
}

/// A caller of `ann`; an empty session is none.
fn caller(session: &str) -> Caller {
    Caller {
        session: Some(session.to_owned()).filter(|session| !session.is_empty()),
        principal: "ann".to_owned(),
        declared: Answers::default(),
        is_local: false,
    }
}

#[tokio::test]
async fn each_session_has_a_process_of_its_own_that_keeps_its_state() {
    let rig = Rig::ready(&[], |_| {}).await;
    for expected in ["1", "2", "3"] {
        assert_eq!(rig.text("a", "counted").await, expected);
    }
    assert_eq!(rig.text("b", "counted").await, "1");
    assert_eq!(
        rig.text("", "counted").await,
        "1",
        "a caller without a session has its owner's"
    );
    let keys: Vec<Key> = rig.server.live().into_iter().map(|live| live.key).collect();
    let expected = [
        Key::Session("a".into()),
        Key::Session("b".into()),
        Key::Principal("ann".into()),
    ];
    assert_eq!(keys, expected);
    rig.close().await;
}

#[tokio::test]
async fn isolation_says_who_shares_a_process() {
    for (isolation, processes) in [
        (Isolation::Principal, 1),
        (Isolation::Shared, 1),
        (Isolation::Call, 4),
    ] {
        let rig = Rig::ready(&[], |spec| spec.isolation = isolation).await;
        let mut pids = BTreeSet::new();
        for session in ["a", "b", "a", "b"] {
            pids.insert(rig.pid(session).await);
        }
        assert_eq!(pids.len(), processes, "{isolation:?}");
        if isolation == Isolation::Call {
            until("each ends with its call", PATIENCE, || {
                !pids.iter().any(|pid| is_alive(*pid))
            })
            .await;
        }
        rig.close().await;
    }
}

#[tokio::test]
async fn callers_that_come_at_once_get_their_own_processes_and_no_more() {
    let rig = Rig::ready(&[], |_| {}).await;
    let calls = ["a", "b", "c", "a", "b", "c"].map(|session| rig.pid(session));
    let pids = futures_util::future::join_all(calls).await;
    assert_eq!(pids[..3], pids[3..]);
    assert_eq!(pids.iter().collect::<BTreeSet<_>>().len(), 3);
    assert_eq!(rig.server.count(), 3);
    rig.close().await;
}

#[tokio::test]
async fn the_cap_on_processes_holds_and_an_idle_one_makes_way() {
    let rig = Rig::ready(&[], |spec| {
        spec.processes_max = 1;
        spec.times.idle_stop = Duration::from_millis(400);
    })
    .await;
    let first = rig.pid("a").await;
    let began = Instant::now();
    let second = rig.pid("b").await;
    assert_ne!(first, second);
    assert!(
        began.elapsed() >= Duration::from_millis(300),
        "the first was kept for a while"
    );
    assert!(!is_alive(first) && rig.server.count() == 1);
    rig.close().await;
}

/// Resolves when one of the server's processes has a call.
async fn calling(rig: &Rig) {
    let begins = async {
        while !rig.server.live().iter().any(|live| live.calls == 1) {
            tokio::task::yield_now().await;
        }
    };
    within(PATIENCE, begins).await;
}

#[tokio::test]
async fn a_busy_process_does_not_make_way() {
    let rig = Rig::ready(&[], |spec| {
        spec.processes_max = 1;
        spec.times.idle_stop = Duration::from_millis(100);
    })
    .await;
    let busy = rig.call("a", "late", json!({"seconds": 1.5}));
    let other = async {
        calling(&rig).await;
        rig.pid("b").await
    };
    let began = Instant::now();
    let (busy, _) = tokio::join!(busy, other);
    assert!(matches!(busy, Outcome::Came(_)), "{busy:?}");
    assert!(began.elapsed() >= Duration::from_millis(1500));
    rig.close().await;
}

#[tokio::test]
async fn an_idle_process_is_ended_and_the_next_call_starts_another() {
    let rig = Rig::ready(&[], |spec| spec.times.idle_stop = Duration::from_millis(200)).await;
    let first = rig.pid("a").await;
    until("it is ended", PATIENCE, || {
        !is_alive(first) && rig.server.count() == 0
    })
    .await;
    assert_eq!(rig.server.state(), State::Ready);
    assert_ne!(rig.pid("a").await, first);
    rig.close().await;
}

#[tokio::test]
async fn a_death_fails_its_call_once_and_the_next_call_starts_anew() {
    let rig = Rig::ready(&[], |_| {}).await;
    assert_eq!(rig.text("a", "counted").await, "1");
    let died = rig.call("a", "die", json!({})).await;
    assert!(matches!(died, Outcome::Failed(Failed::Lost(_))), "{died:?}");
    assert_eq!(rig.text("a", "counted").await, "1", "a new process");
    rig.close().await;
}

#[tokio::test]
async fn a_server_that_fails_is_degraded_and_tried_until_it_answers() {
    let folder = directory();
    let needed = folder.path().join("needed");
    let option = format!("--needs={}", needed.display());
    let failing = Rig::of(fixture(&[&option]), |_| {});
    let other = Rig::ready(&[], |_| {}).await;

    let state = failing
        .until(|state| matches!(state, State::Degraded { .. }))
        .await;
    let State::Degraded { why, stderr, .. } = state else {
        panic!("{state:?}");
    };
    assert!(
        why.contains("ended before it answered: its program exited with code 1"),
        "{why}"
    );
    assert!(stderr.contains("needed is missing"), "{stderr}");
    assert!(
        !why.contains("missing"),
        "what a server writes there is for its operator"
    );
    assert_eq!(other.text("a", "counted").await, "1", "others are not disturbed");

    std::fs::write(&needed, "").expect("written");
    failing.until(|state| *state == State::Ready).await;
    assert_eq!(failing.text("a", "counted").await, "1");
    failing.close().await;
    other.close().await;
}

#[tokio::test]
async fn a_call_to_a_server_that_is_down_is_told_why_and_nothing_was_sent() {
    let mut program = fixture(&[]);
    program.command[0] = "no-such-program".into();
    let rig = Rig::of(program, |_| {});
    rig.until(|state| matches!(state, State::Degraded { .. })).await;
    let outcome = rig.call("a", "pid", json!({})).await;
    let Outcome::Unsent(unsent) = &outcome else {
        panic!("{outcome:?}");
    };
    assert!(unsent.to_string().contains("start `no-such-program`"), "{unsent}");
    rig.close().await;
}

#[tokio::test]
async fn definitions_are_fetched_whole_and_kept_as_they_were_written() {
    let mut digests = BTreeSet::new();
    for era in ["--era=2025", "--era=2026"] {
        let rig = Rig::ready(&[era], |_| {}).await;
        let definitions = rig.server.definitions().expect("it was seen");
        let names = rig.names();
        assert!(names.len() > 20, "more than two pages");
        assert_eq!(names[..3], ["echo", "params", "pid"]);
        let raw = definitions.tools[0].raw.to_raw();
        assert!(raw.text().contains(r#""vendor":{"kept":1.0}"#), "{}", raw.text());
        assert_eq!(
            definitions.prompts[0].raw.to_raw().text(),
            r#"{"name":"greet","vendor":1.0}"#
        );
        assert_eq!((definitions.resources.len(), definitions.templates.len()), (1, 0));

        let encoded = Raw::parse(definitions.encode().text()).expect("JSON");
        let decoded = Definitions::decode(&encoded).expect("the same");
        assert_eq!(
            (decoded.digest, decoded.spoken.era),
            (definitions.digest, definitions.spoken.era)
        );
        assert_eq!(
            (&decoded.tools, &decoded.prompts),
            (&definitions.tools, &definitions.prompts)
        );
        digests.insert(definitions.digest);
        rig.close().await;
    }
    assert_eq!(digests.len(), 2);
    assert!(Definitions::decode(&Raw::parse("{}").expect("JSON")).is_none());
}

#[tokio::test]
async fn what_was_known_before_is_there_at_once() {
    let rig = Rig::ready(&["--era=2025"], |_| {}).await;
    let known = rig.server.definitions().expect("it was seen");
    rig.close().await;
    let kept = Definitions::clone(&known);
    let slow = Rig::of(fixture(&["--era=2025", "--slow=1"]), |spec| {
        spec.known = Some(kept)
    });
    assert_eq!(slow.server.state(), State::Starting);
    assert_eq!(slow.server.definitions().expect("at once").digest, known.digest);
    let definitions = slow.server.watch();
    slow.until(|state| *state == State::Ready).await;
    assert!(!definitions.has_changed().expect("it lives"), "they are the same");
    slow.close().await;
}

#[tokio::test]
async fn a_list_that_changes_is_fetched_again() {
    let mut rigs = Vec::new();
    for era in ["--era=2025", "--era=2026"] {
        rigs.push((
            Rig::ready(&[era], |spec| spec.isolation = Isolation::Shared).await,
            None,
        ));
        let site = Site::start(&[era]).await;
        rigs.push((
            Rig::remote(&site, |spec| spec.isolation = Isolation::Shared).await,
            Some(site),
        ));
    }
    for (rig, _site) in rigs {
        assert!(!rig.names().contains(&"late_tool".to_owned()));
        let mut definitions = rig.server.watch();
        let late = async {
            // It may not listen yet.
            loop {
                rig.text("a", "change").await;
                let changed = timeout(Duration::from_secs(3), definitions.changed()).await;
                if changed.is_ok() {
                    return;
                }
            }
        };
        within(PATIENCE, late).await;
        assert!(rig.names().contains(&"late_tool".to_owned()));
        rig.close().await;
    }
}

#[tokio::test]
async fn a_server_defines_no_more_than_it_may() {
    let rig = Rig::ready(&["--tools=2003"], |_| {}).await;
    let definitions = rig.server.definitions().expect("it was seen");
    assert_eq!(
        (definitions.tools.len(), definitions.dropped_count),
        (TOOLS_MAX, 3)
    );
    rig.close().await;
}

#[tokio::test]
async fn a_call_with_a_process_of_its_own_is_stopped_for_certain() {
    let rig = Rig::ready(&["--stubborn"], |spec| spec.isolation = Isolation::Call).await;
    let outcome = rig.call_until("a", "hang", json!({}), calling(&rig)).await;
    assert!(
        matches!(outcome, Outcome::Stopped { confirmed: true }),
        "{outcome:?}"
    );
    rig.close().await;
}

#[tokio::test]
async fn a_resource_is_subscribed_to_by_the_means_of_the_generation() {
    for era in ["--era=2025", "--era=2026"] {
        let rig = Rig::ready(&[era], |_| {}).await;
        let due = Arc::new(Due::default());
        let subscription = rig
            .server
            .subscribe(&caller("a"), "fixture://one", &due)
            .await
            .expect("it subscribes");
        assert_eq!(within(PATIENCE, due.next()).await, "fixture://one");
        drop(subscription);
        rig.close().await;
    }
}

#[tokio::test]
async fn a_restart_ends_the_processes_and_dials_again() {
    let rig = Rig::ready(&[], |_| {}).await;
    let first = rig.pid("a").await;
    within(PATIENCE, rig.server.restart()).await;
    until("the first is gone", PATIENCE, || !is_alive(first)).await;
    assert_ne!(rig.pid("a").await, first);
    rig.close().await;
}

#[tokio::test]
async fn the_last_clone_that_is_dropped_ends_the_processes() {
    let rig = Rig::ready(&["--stubborn"], |_| {}).await;
    let pid = rig.pid("a").await;
    drop(rig);
    until("nothing is left", PATIENCE, || !is_alive(pid)).await;
}

#[tokio::test]
async fn lists_have_their_time_and_a_restart_is_heard_meanwhile() {
    for (option, request, lists, why) in [
        ("--lists=/nowhere", 300, 60_000, "did not answer in time"),
        ("--pages", 60_000, 500, "lists_timeout"),
    ] {
        let rig = Rig::of(fixture(&[option]), |spec| {
            spec.times.request = Duration::from_millis(request);
            spec.times.lists = Duration::from_millis(lists);
        });
        let state = rig.until(|state| matches!(state, State::Degraded { .. })).await;
        assert!(format!("{state:?}").contains(why), "{state:?}");
        rig.close().await;
    }
    let folder = directory();
    let path = folder.path().join("lists");
    let option = format!("--lists={}", path.display());
    let rig = Rig::of(fixture(&[&option]), |_| {});
    until("it is asked", PATIENCE, || {
        rig.server.live().iter().any(|live| live.calls == 1)
    })
    .await;
    std::fs::write(&path, "").expect("written");
    rig.server.restart().await;
    rig.until(|state| *state == State::Ready).await;
    rig.close().await;
}

/// A server whose first program never answers, as soon as that runs.
async fn hung() -> Rig {
    let spool = directory();
    let host = Arc::new(host(&spool));
    let starts = Arc::new(AtomicU32::new(0));
    let find = move |_refused| -> BoxFuture<'static, _> {
        let is_first = starts.fetch_add(1, Ordering::Relaxed) == 0;
        let options: &[&str] = if is_first { &["--dial=silent"] } else { &[] };
        let place = Place::Program(fixture(options), Arc::clone(&host));
        Box::pin(async move { Ok(place) })
    };
    let place = Place::LookedUp(LookUp {
        is_remote: false,
        find: Arc::new(find),
    });
    let rig = Rig::at(place, spool, |spec| {
        spec.ours.probe_max = Duration::from_secs(600);
        spec.ours.dial_max = Duration::from_secs(600);
    });
    until("its program runs", PATIENCE, || rig.programs() == 1).await;
    rig
}

#[tokio::test]
async fn a_restart_ends_what_is_being_opened() {
    let rig = hung().await;
    rig.server.restart().await;
    rig.until(|state| *state == State::Ready).await;
    assert_eq!((rig.server.count(), rig.programs()), (1, 1));
    rig.close().await;
}

#[tokio::test]
async fn a_close_ends_what_is_being_opened() {
    let rig = hung().await;
    within(PATIENCE, rig.server.close()).await;
    assert_eq!((rig.server.count(), rig.programs()), (0, 0));
}

#[tokio::test]
async fn a_list_that_was_cut_short_leaves_the_known_one() {
    let folder = directory();
    let path = folder.path().join("mute");
    std::fs::write(&path, "").expect("written");
    let option = format!("--mute={}", path.display());
    let rig = Rig::ready(&["--era=2025", &option], |spec| {
        spec.times.request = Duration::from_millis(300);
    })
    .await;
    let known = rig.server.definitions().expect("it was seen");
    assert_eq!((known.resources.len(), rig.server.cut()), (1, Vec::new()));

    std::fs::write(&path, "resources/list").expect("written");
    rig.server.refresh();
    until("a list is cut short", PATIENCE, || !rig.server.cut().is_empty()).await;
    assert_eq!(
        rig.server.definitions().expect("it was seen").digest,
        known.digest
    );
    let cut = rig.server.cut()[0].to_string();
    assert!(
        cut.contains("resources/list") && cut.contains("did not answer in time"),
        "{cut}"
    );

    std::fs::write(&path, "").expect("written");
    rig.server.refresh();
    until("it is whole again", PATIENCE, || rig.server.cut().is_empty()).await;
    rig.close().await;
}

#[tokio::test]
async fn a_server_that_is_deaf_to_levels_holds_no_call_up() {
    let folder = directory();
    let path = folder.path().join("mute");
    std::fs::write(&path, "logging/setLevel").expect("written");
    let option = format!("--mute={}", path.display());
    let rig = Rig::ready(&["--era=2025", &option], |_| {}).await;
    let params = Obj::parse(r#"{"name":"hang"}"#).expect("an object");
    let request = Request {
        method: "tools/call",
        params: Some(&params),
        timeout: Some(Duration::from_secs(600)),
        log_level: Some(LogLevel::Debug),
        ..Request::default()
    };
    let began = Instant::now();
    let one = caller("a");
    let stop = async { until("it is live", PATIENCE, || rig.server.is_live(&one)).await };
    let outcome = within(PATIENCE, rig.server.call(&one, request, None, stop)).await;
    assert!(
        matches!(outcome, Outcome::Stopped { confirmed: true }),
        "{outcome:?}"
    );
    assert!(began.elapsed() < HEARD_WITHIN);
    rig.close().await;
}
