//! B-16: how a server speaks is found out by what it answers, whatever that is.

use longhaul_mcp::{
    client::{
        Carrier, Dial, Era, Kind, Spoken, Version,
        dial::{Choice, Failure, Heard, Offers, Probe, Step},
    },
    frame::{Obj, Raw},
    request::RequestId,
};
use serde_json::{Value, json};

use super::{header, hello, shown};
use crate::support::{Official, assert_is, raw};

const FIND: Choice = Choice::Find {
    first: Kind::Stateless,
};
const REMEMBERED: Choice = Choice::Find {
    first: Kind::Sessions,
};

fn discovery() -> Value {
    json!({
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": { "tools": { "listChanged": true }, "vendor": 1.50 },
        "instructions": "Ask.",
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": { "io.modelcontextprotocol/serverInfo": { "name": "s", "version": "1" } },
    })
}

fn initialized(version: &str) -> Value {
    json!({
        "protocolVersion": version,
        "capabilities": { "tools": {}, "resources": { "subscribe": true } },
        "serverInfo": { "name": "old", "version": "0" },
        "instructions": "Begin.",
    })
}

fn result(value: &Value) -> Heard {
    Heard::Reply {
        outcome: Ok(raw(value)),
        status: None,
    }
}

fn error(code: i64, data: Option<Value>, status: Option<u16>) -> Heard {
    let mut error = json!({ "code": code, "message": "no\u{1b}[2J" });
    if let Some(data) = data {
        error["data"] = data;
    }
    Heard::Reply {
        outcome: Err(raw(&error)),
        status,
    }
}

/// Plays a server that gives these answers in turn. Gives what was tried, and how it ended.
fn play(carrier: Carrier, choice: Choice, answers: Vec<Heard>) -> (Vec<Kind>, Result<Spoken, Failure>) {
    let mut dial = Dial::new(hello(), carrier, choice);
    let mut tried = vec![dial.first().kind];
    for answer in answers {
        match dial.heard(answer) {
            Step::Send(probe) => tried.push(probe.kind),
            Step::Done { spoken, then: _ } => return (tried, Ok(*spoken)),
            Step::Failed(failure) => return (tried, Err(failure)),
        }
    }
    panic!("not settled after {tried:?}");
}

fn era(carrier: Carrier, choice: Choice, answers: Vec<Heard>) -> (Vec<Kind>, Option<Era>) {
    let (tried, ended) = play(carrier, choice, answers);
    (tried, ended.ok().map(|spoken| spoken.era))
}

fn probe(choice: Choice, carrier: Carrier) -> Probe {
    Dial::new(hello(), carrier, choice).first()
}

#[test]
fn a_generation_is_named_by_the_year_of_its_newest_version() {
    for (text, choice) in [
        ("auto", Some(FIND)),
        ("2025", Some(Choice::Only(Kind::Sessions))),
        ("2026", Some(Choice::Only(Kind::Stateless))),
        ("2024", None),
        ("", None),
        ("2026-07-28", None),
    ] {
        assert_eq!(Choice::named(text), choice, "{text}");
    }
}

#[test]
fn the_probes_have_the_official_shapes() {
    let discover = probe(FIND, Carrier::Http);
    let value = shown(&discover.sent);
    assert_is(Official::Core, "DiscoverRequest", &value);
    assert_eq!(header(&discover.sent, "mcp-method"), Some("server/discover"));
    assert_eq!(header(&discover.sent, "mcp-protocol-version"), Some("2026-07-28"));
    assert_eq!(
        value["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"],
        json!({ "elicitation": { "form": {} } })
    );

    //
    let initialize = probe(REMEMBERED, Carrier::Http);
    let value = shown(&initialize.sent);
    assert_is(Official::Sessions, "InitializeRequest", &value);
    assert_eq!(value["params"]["protocolVersion"], "2025-11-25");
    assert_eq!(value["params"]["clientInfo"]["name"], "longhaul");
    assert_eq!(initialize.sent.headers, []);
    assert_eq!(probe(FIND, Carrier::Pipe).sent.headers, []);
}

///
#[test]
fn a_session_begins_with_initialized() {
    let mut dial = Dial::new(hello(), Carrier::Http, REMEMBERED);
    assert!(!dial.first().afresh);
    let Step::Done { spoken, then } = dial.heard(result(&initialized("2025-06-18"))) else {
        panic!("not settled")
    };
    assert_eq!(spoken.era, Era::Session(Version::V2025_06_18));
    let then = then.expect("initialized");
    let value = shown(&then);
    assert_is(Official::Sessions, "InitializedNotification", &value);
    assert_eq!(value.get("params"), None);
    assert_eq!(header(&then, "mcp-protocol-version"), Some("2025-06-18"));

    let mut dial = Dial::new(hello(), Carrier::Http, FIND);
    dial.first();
    assert!(matches!(
        dial.heard(result(&discovery())),
        Step::Done { then: None, .. }
    ));
}

#[test]
fn what_a_server_says_of_itself_is_kept_as_it_wrote_it() {
    let text = discovery().to_string().replace("1.5", "1.50");
    let heard = Heard::Reply {
        outcome: Ok(Raw::parse(&text).expect("JSON")),
        status: Some(200),
    };
    let (_, spoken) = play(Carrier::Http, FIND, vec![heard]);
    let spoken = spoken.expect("it speaks");
    assert_eq!(spoken.capabilities.raw("vendor").map(Raw::text), Some("1.50"));
    assert_eq!(spoken.instructions.as_deref(), Some("Ask."));
    let name = spoken.server_info.and_then(|info| info.get::<String>("name"));
    assert_eq!(name.as_deref(), Some("s"));
    assert_eq!(spoken.next_id, 2);

    let (_, spoken) = play(
        Carrier::Pipe,
        REMEMBERED,
        vec![result(&initialized("2025-11-25"))],
    );
    let spoken = spoken.expect("it speaks");
    assert_eq!(spoken.instructions.as_deref(), Some("Begin."));
    let name = spoken.server_info.and_then(|info| info.get::<String>("name"));
    assert_eq!(name.as_deref(), Some("old"));
}

/// Each row: what a server answers to the probe, over which carrier, and whether `initialize` follows.
#[test]
fn anything_that_only_a_stateless_server_says_settles_it_and_all_else_means_sessions() {
    use Carrier::{Http, Pipe};
    let not_found = |status| error(-32601, None, status);
    let falls_back = [
        (Pipe, not_found(None)),
        (Pipe, error(-32602, None, None)),
        (Pipe, error(-32000, None, None)),
        (Pipe, error(0, None, None)),
        (Pipe, Heard::Silence),
        (Pipe, Heard::Closed),
        (Pipe, result(&json!({}))),
        (Pipe, result(&json!([]))),
        (Pipe, result(&json!({ "supportedVersions": "2026-07-28" }))),
        (Pipe, result(&json!({ "supportedVersions": ["2025-11-25"] }))),
        (
            Pipe,
            error(-32022, Some(json!({ "supported": ["2025-06-18"] })), None),
        ),
        (Http, not_found(Some(200))),
        (Http, not_found(Some(400))),
        (Http, error(-32000, None, Some(400))),
        (Http, error(-32001, None, Some(404))),
        (Http, error(-32600, None, Some(422))),
        (Http, error(-32603, None, Some(500))),
        (Http, Heard::Status(400)),
        (Http, Heard::Status(404)),
        (Http, Heard::Status(405)),
        (Http, Heard::Status(406)),
        (Http, Heard::Status(415)),
        (Http, Heard::Status(202)),
        (Http, Heard::Status(500)),
        (Http, Heard::Silence),
        (Http, Heard::Closed),
    ];
    let both = [Kind::Stateless, Kind::Sessions];
    for (carrier, answer) in falls_back {
        let shown = format!("{carrier:?} {answer:?}");
        let (tried, era) = era(
            carrier,
            FIND,
            vec![answer.clone(), result(&initialized("2025-11-25"))],
        );
        assert_eq!(tried, both, "{shown}");
        assert_eq!(era, Some(Era::Session(Version::LATEST)), "{shown}");
        let (tried, ended) = play(carrier, Choice::Only(Kind::Stateless), vec![answer]);
        assert_eq!(tried, [Kind::Stateless], "{shown}");
        assert!(ended.is_err(), "{shown}");
    }
    let settles = [
        (Pipe, error(-32020, None, None)),
        (
            Pipe,
            error(-32021, Some(json!({ "requiredCapabilities": {} })), None),
        ),
        (Pipe, error(-32022, None, None)),
        (
            Pipe,
            error(-32022, Some(json!({ "supported": ["2027-01-01"] })), None),
        ),
        (Http, error(-32020, None, Some(400))),
        (Http, error(-32021, None, Some(400))),
        (Http, error(-32022, Some(json!({ "supported": [] })), Some(400))),
        (Pipe, result(&json!({ "supportedVersions": ["2027-01-01"] }))),
        (Http, Heard::Status(301)),
        (Http, Heard::Status(401)),
        (Http, Heard::Status(403)),
        (Http, Heard::Status(429)),
        (Http, error(-32001, None, Some(401))),
    ];
    for (carrier, answer) in settles {
        let (tried, ended) = play(carrier, FIND, vec![answer.clone()]);
        assert_eq!(tried, [Kind::Stateless], "{answer:?}");
        assert!(ended.is_err(), "{answer:?}");
    }
}

#[test]
fn a_version_that_is_named_and_spoken_is_tried_once_more() {
    let again = || error(-32022, Some(json!({ "supported": ["2026-07-28"] })), Some(400));
    let (tried, era) = era(Carrier::Http, FIND, vec![again(), result(&discovery())]);
    assert_eq!(tried, [Kind::Stateless, Kind::Stateless]);
    assert_eq!(era, Some(Era::Stateless));
    let (tried, ended) = play(Carrier::Http, FIND, vec![again(), again()]);
    assert_eq!(tried.len(), 2);
    let offered = vec!["2026-07-28".to_owned()];
    assert_eq!(ended, Err(Failure::NoCommonVersion { offered }));

    let older = || {
        error(
            -32602,
            Some(json!({ "supported": ["2024-11-05", "2025-03-26"] })),
            None,
        )
    };
    let (tried, era) = self::era(
        Carrier::Pipe,
        REMEMBERED,
        vec![older(), result(&initialized("2025-03-26"))],
    );
    assert_eq!(tried, [Kind::Sessions, Kind::Sessions]);
    assert_eq!(era, Some(Era::Session(Version::V2025_03_26)));
}

/// B-17: what worked last goes first, and is no more than a first guess.
#[test]
fn a_server_that_changed_is_found_out_again() {
    for answer in [
        error(-32601, None, Some(404)),
        error(-32022, Some(json!({ "supported": ["2026-07-28"] })), Some(400)),
        error(-32602, None, None),
        result(&json!({ "protocolVersion": "2026-07-28", "capabilities": {} })),
        result(&json!({ "capabilities": {} })),
        Heard::Status(400),
        Heard::Silence,
    ] {
        let (tried, era) = era(
            Carrier::Http,
            REMEMBERED,
            vec![answer.clone(), result(&discovery())],
        );
        assert_eq!(tried, [Kind::Sessions, Kind::Stateless], "{answer:?}");
        assert_eq!(era, Some(Era::Stateless), "{answer:?}");
    }
}

#[test]
fn a_server_that_does_not_tell_what_it_offers_is_taken_to_have_tools() {
    let not_found = || error(-32601, None, Some(404));
    let (tried, spoken) = play(Carrier::Http, FIND, vec![not_found(), not_found()]);
    assert_eq!(tried, [Kind::Stateless, Kind::Sessions]);
    let spoken = spoken.expect("it speaks");
    assert_eq!(spoken.era, Era::Stateless);
    let expect = Offers {
        tools: true,
        ..Offers::default()
    };
    assert_eq!(spoken.offers(), expect);
    let only = Choice::Only(Kind::Stateless);
    assert_eq!(
        era(Carrier::Http, only, vec![not_found()]).1,
        Some(Era::Stateless)
    );
    let session = vec![not_found(), result(&initialized("2025-11-25"))];
    assert_eq!(
        era(Carrier::Http, FIND, session).1,
        Some(Era::Session(Version::LATEST))
    );
}

#[test]
fn each_generation_is_tried_once_and_the_last_failure_is_told() {
    let (tried, ended) = play(Carrier::Pipe, FIND, vec![Heard::Silence, Heard::Closed]);
    assert_eq!(tried, [Kind::Stateless, Kind::Sessions]);
    assert_eq!(ended, Err(Failure::Closed));
    let (tried, ended) = play(Carrier::Http, FIND, vec![Heard::Status(404), Heard::Status(405)]);
    assert_eq!(tried.len(), 2);
    assert_eq!(ended, Err(Failure::Status(405)));
    let only = Choice::Only(Kind::Sessions);
    let (tried, ended) = play(Carrier::Pipe, only, vec![error(-32601, None, None)]);
    assert_eq!(tried, [Kind::Sessions]);
    let expect = Failure::Refused {
        code: -32601,
        message: "no[2J".to_owned(),
    };
    assert_eq!(ended, Err(expect));
    let (_, ended) = play(Carrier::Pipe, only, vec![result(&initialized("1999-01-01"))]);
    let offered = vec!["1999-01-01".to_owned()];
    assert_eq!(ended, Err(Failure::NoCommonVersion { offered }));
}

#[test]
fn a_process_that_ended_at_the_probe_is_started_anew() {
    for (carrier, heard, expect) in [
        (Carrier::Pipe, Heard::Closed, true),
        (Carrier::Pipe, Heard::Silence, false),
        (Carrier::Http, Heard::Closed, false),
    ] {
        let mut dial = Dial::new(hello(), carrier, FIND);
        dial.first();
        let Step::Send(probe) = dial.heard(heard) else {
            panic!("settled")
        };
        assert_eq!(probe.afresh, expect);
        // the reply to the probe before may still come.
        assert_eq!(probe.id, RequestId::Integer(2));
    }
}

#[test]
fn each_generation_says_in_its_own_way_what_is_offered() {
    let spoken = |era, capabilities: Value| Spoken {
        era,
        capabilities: Obj::parse(&capabilities.to_string()).expect("an object"),
        server_info: None,
        instructions: None,
        next_id: 1,
    };
    let all = json!({
        "tools": { "listChanged": true },
        "resources": { "listChanged": true, "subscribe": true },
        "prompts": { "listChanged": true },
        "completions": {},
        "logging": {},
        "tasks": { "cancel": {}, "requests": { "tools": { "call": {} } } },
        "extensions": { "io.modelcontextprotocol/tasks": {} },
    });
    let everything = Offers {
        tools: true,
        tools_change: true,
        resources: true,
        resources_change: true,
        subscribe: true,
        prompts: true,
        prompts_change: true,
        completions: true,
        logging: true,
        tasks: true,
        tasks_cancel: true,
    };
    let session = Era::Session(Version::LATEST);
    assert_eq!(spoken(session, all.clone()).offers(), everything);
    assert_eq!(spoken(Era::Stateless, all.clone()).offers(), everything);
    // A-39, C-13
    let without = |part: &str| {
        let mut some = all.clone();
        some.as_object_mut().expect("an object").remove(part);
        some
    };
    assert!(!spoken(session, without("tasks")).offers().tasks);
    assert!(!spoken(Era::Stateless, without("extensions")).offers().tasks);
    assert!(!spoken(Era::Session(Version::V2025_06_18), all).offers().tasks);
    let odd = json!({ "tools": true, "resources": { "subscribe": "yes" }, "prompts": null });
    let expect = Offers {
        resources: true,
        ..Offers::default()
    };
    assert_eq!(spoken(session, odd).offers(), expect);
}
