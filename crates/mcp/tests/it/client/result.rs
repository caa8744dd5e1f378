//! What came of a request, the same from either generation.

use longhaul_mcp::{
    client::{
        Era,
        result::{Bad, Came, error, read},
    },
    frame::Raw,
    reply::InputRequest,
    request::Answers,
};
use serde_json::{Value, json};

use super::SESSION;
use crate::support::raw;

fn came(value: Value, era: Era) -> Result<Came, Bad> {
    read(raw(&value), era)
}

/// D-8, B-8.
#[test]
fn a_result_is_stored_alike_from_either_generation() {
    let text = r#"{"content":[{"type":"new","n":1.50}],"vendor":{"z":1,"a":12345678901234567890123},"_meta":{"k":null}}"#;
    let parse = |text: &str| Raw::parse(text).expect("JSON");
    let typed = text.replacen('{', r#"{"resultType":"complete","#, 1);
    for (given, era) in [
        (text.to_owned(), SESSION),
        (text.to_owned(), Era::Stateless),
        (typed.clone(), Era::Stateless),
        (typed, SESSION),
    ] {
        let Ok(Came::Complete(result)) = read(parse(&given), era) else {
            panic!("not complete: {given}")
        };
        assert_eq!(result.text(), text);
    }
}

#[test]
fn a_result_of_an_unknown_type_is_none() {
    for (value, era, expect) in [
        (json!([]), SESSION, Bad::NotAnObject),
        (json!(null), Era::Stateless, Bad::NotAnObject),
        (
            json!({ "resultType": "partial", "content": [] }),
            Era::Stateless,
            Bad::UnknownType {
                kind: "partial".to_owned(),
            },
        ),
        (
            json!({ "resultType": 1 }),
            Era::Stateless,
            Bad::UnknownType {
                kind: "not a string".to_owned(),
            },
        ),
    ] {
        assert_eq!(came(value, era), Err(expect));
    }
}

/// B-37 to B-39.
#[test]
fn questions_before_a_result_are_told_from_it() {
    let go = json!({ "method": "elicitation/create", "params": { "mode": "form", "message": "?" } });
    let asked = json!({ "resultType": "input_required", "inputRequests": { "z": go, "a": { "method": "roots/list" } }, "requestState": "v1" });
    let expect = Came::InputRequired {
        requests: vec![
            InputRequest {
                key: "a".to_owned(),
                ask: raw(&json!({ "method": "roots/list" })),
            },
            InputRequest {
                key: "z".to_owned(),
                ask: raw(&go),
            },
        ],
        state: Some("v1".to_owned()),
    };
    assert_eq!(came(asked, Era::Stateless), Ok(expect));
    let again = json!({ "resultType": "input_required", "requestState": "v1" });
    assert!(
        matches!(came(again, Era::Stateless), Ok(Came::InputRequired { requests, .. }) if requests.is_empty())
    );
    let many: serde_json::Map<String, Value> = (0..101)
        .map(|n| (format!("k{n}"), json!({ "method": "roots/list" })))
        .collect();
    for bad in [
        json!({ "resultType": "input_required" }),
        json!({ "resultType": "input_required", "inputRequests": {} }),
        json!({ "resultType": "input_required", "inputRequests": [] }),
        json!({ "resultType": "input_required", "requestState": 1 }),
        json!({ "resultType": "input_required", "inputRequests": { "k": { "method": "tools/call" } } }),
        json!({ "resultType": "input_required", "inputRequests": { "k": 1 } }),
        json!({ "resultType": "input_required", "inputRequests": many }),
    ] {
        assert_eq!(came(bad.clone(), Era::Stateless), Err(Bad::BadQuestions), "{bad}");
    }
}

/// A-43, C-4, C-7, C-8.
#[test]
fn a_task_of_either_generation_is_told_from_a_result() {
    let nested = json!({ "task": { "taskId": "tk", "status": "working" } });
    let flat = json!({ "resultType": "task", "taskId": "tk", "status": "working" });
    for (value, era) in [(&nested, SESSION), (&flat, Era::Stateless)] {
        let expect = Came::Task {
            task: "tk".to_owned(),
            result: raw(value),
        };
        assert_eq!(came(value.clone(), era), Ok(expect));
    }
    let both = json!({ "task": { "taskId": "tk" }, "content": [] });
    assert!(matches!(came(both, SESSION), Ok(Came::Complete(_))));
    assert!(matches!(came(nested, Era::Stateless), Ok(Came::Complete(_))));
    assert_eq!(
        came(json!({ "resultType": "task" }), Era::Stateless),
        Err(Bad::BadTask)
    );
    assert_eq!(came(json!({ "task": {} }), SESSION), Err(Bad::BadTask));
}

/// D-9.
#[test]
fn an_error_of_the_hop_does_not_reach_the_client_as_its_own() {
    for (code, reason) in [
        (-32020, "upstream_refused"),
        (-32021, "upstream_refused"),
        (-32022, "upstream_refused"),
    ] {
        let bad = error(&raw(&json!({ "code": code, "message": "no" }))).expect_err("of the hop");
        let shown = bad.error(Answers::default());
        assert_eq!(shown.code, -32603);
        assert!(format!("{:?}", shown.data).contains(reason));
    }
    for code in [-32602, -32603, -32042, -32002, 4711, -1] {
        let value = json!({ "code": code, "message": "no", "data": [1.5], "more": true });
        let kept = error(&raw(&value)).expect("an error of what was asked");
        assert_eq!(kept.to_raw(), raw(&value));
    }
    for bad in [
        json!({}),
        json!({ "code": "x", "message": "m" }),
        json!({ "code": 1 }),
        json!(1),
    ] {
        assert_eq!(error(&raw(&bad)), Err(Bad::BadError));
    }
    assert_eq!(
        Bad::NotAnObject.error(Answers::ALL).message,
        "The result is no object"
    );
}

/// B-6, D-9: a client is told to declare what it did not declare, and nothing that would not help.
#[test]
fn a_missing_capability_is_the_client_s_only_where_declaring_it_helps() {
    let declared = Answers {
        form: true,
        ..Answers::default()
    };
    let shown = |required: Value| {
        let value = json!({ "code": -32021, "message": "no", "data": { "requiredCapabilities": required } });
        let shown = error(&raw(&value)).expect_err("of the hop").error(declared);
        let object: Value = shown.object().to_raw().read().expect("JSON");
        (shown.code, object["data"]["requiredCapabilities"].clone())
    };
    assert_eq!(
        shown(json!({ "sampling": {} })),
        (-32021, json!({ "sampling": {} }))
    );
    assert_eq!(
        shown(json!({ "elicitation": {}, "roots": { "listChanged": true } })),
        (-32021, json!({ "roots": {} }))
    );
    assert_eq!(
        shown(json!({ "elicitation": { "url": {} } })),
        (-32021, json!({ "elicitation": { "url": {} } }))
    );
    // It declared that, and Longhaul did not say so; or Longhaul would not say so.
    for required in [
        json!({ "elicitation": {} }),
        json!({ "elicitation": { "form": {} } }),
        json!({ "extensions": { "com.example/x": {} } }),
        json!({ "sampling": {}, "extensions": {} }),
        json!({}),
        json!([]),
    ] {
        assert_eq!(shown(required), (-32603, Value::Null));
    }
}
