//! A.9 and the rules for questions: which forms are shown, and which answers fit.

use longhaul_mcp::form::{
    Answer, BadField, BadForm, FIELDS_MAX, FORM_BYTES_MAX, Fit, Form, Kind, Misfit, Unfit,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{Official, assert_is, check as official, raw};

fn parse(properties: Value, required: Value) -> Result<Form, BadForm> {
    let schema = json!({ "type": "object", "properties": properties, "required": required });
    Form::parse(&raw(
        &json!({ "mode": "form", "message": "Go on?", "requestedSchema": schema }),
    ))
}

fn form(properties: Value, required: Value) -> Form {
    parse(properties, required).expect("a form")
}

/// The whole table of A.9 in one form.
fn every_kind() -> Value {
    json!({
        "approve": { "type": "boolean", "title": "Run it", "default": false },
        "window": { "type": "string", "oneOf": [
            { "const": "now", "title": "Immediately" }, { "const": "night", "title": "Tonight" }],
            "default": "night" },
        "tier": { "type": "string", "enum": ["s", "m"], "enumNames": ["Small", "Medium"] },
        "colour": { "type": "string", "enum": ["red", "green"] },
        "regions": { "type": "array", "minItems": 1, "maxItems": 2,
            "items": { "type": "string", "enum": ["eu", "us", "ap"] }, "default": ["eu"] },
        "zones": { "type": "array", "items": { "anyOf": [{ "const": "a", "title": "A" }] } },
        "owner": { "type": "string", "format": "email", "maxLength": 120 },
        "name": { "type": "string", "minLength": 2, "maxLength": 4, "description": "Short" },
        "site": { "type": "string", "format": "uri" },
        "day": { "type": "string", "format": "date" },
        "at": { "type": "string", "format": "date-time" },
        "batch": { "type": "integer", "minimum": 1, "maximum": 1000, "default": 100 },
        "ratio": { "type": "number", "minimum": 0.5 },
    })
}

#[track_caller]
fn fits(field: &str, value: Value) {
    let answer = Answer::Accept(Some(raw(&json!({ field: value }))));
    form(every_kind(), json!([]))
        .check(&answer)
        .unwrap_or_else(|misfit| panic!("{misfit}"));
}

#[track_caller]
fn misfit(field: &str, value: Value, text: &str) {
    let answer = Answer::Accept(Some(raw(&json!({ field: value }))));
    let misfit = form(every_kind(), json!([])).check(&answer).expect_err("no fit");
    assert_eq!(misfit.field, field);
    assert_eq!(misfit.to_string(), format!("`{field}` {text}"));
}

#[test]
fn every_kind_of_field_is_read_and_sent_as_an_official_form() {
    let form = form(every_kind(), json!(["approve", "name"]));
    assert_eq!(form.fields().len(), 13);
    let sent: Value = form.params().read().expect("JSON");
    assert_is(Official::Core, "ElicitRequestFormParams", &sent);
    assert_eq!(sent["requestedSchema"]["required"], json!(["approve", "name"]));
    let tier = &sent["requestedSchema"]["properties"]["tier"];
    assert_eq!(
        tier,
        &json!({ "type": "string", "enum": ["s", "m"], "enumNames": ["Small", "Medium"] }),
        "the spelling of the tool is kept"
    );
    let mut again = form.clone();
    again = Form::parse(&again.params()).expect("what is sent is a form");
    assert_eq!(again, form);
}

#[test]
fn strings_are_checked() {
    fits("name", json!("éé"));
    misfit("name", json!("x"), "must have 2 to 4 characters");
    misfit("name", json!("xxxxx"), "must have 2 to 4 characters");
    misfit("name", json!(5), "must be a string");
    misfit("name", json!(null), "must be a string");
}

#[test]
fn formats_are_checked() {
    fits("owner", json!("a.b+c@mail.example.org"));
    for bad in [
        "a", "@b", "a@", "a b@c.d", "a@b..c", "a@-b.c", "a@b@c d", "<a>@b.c",
    ] {
        misfit("owner", json!(bad), "must be a mail address");
    }
    fits("site", json!("https://example.org/a?b=c#d"));
    for bad in [
        "example.org",
        "http:",
        "1a:b",
        "https://exa mple.org",
        "https://é.org",
        "https://a.example/#b#c",
        "https://a.example/%zz",
        "https://a.example:x/",
        "https://[::1/",
        ":x",
    ] {
        misfit("site", json!(bad), "must be a URI");
    }
    fits("day", json!("2028-02-29"));
    for bad in ["2027-02-29", "2027-2-1", "20270201", "2027-02-01T00:00:00Z", ""] {
        misfit("day", json!(bad), "must be a date");
    }
    fits("at", json!("2026-11-29T09:00:00Z"));
    fits("at", json!("2026-11-29t09:00:00.123+05:30"));
    fits("at", json!("2026-11-29T09:00:00.0123456789012Z"));
    fits("at", json!("2016-12-31T23:59:60Z"));
    fits("at", json!("2017-01-01T00:59:60.5+01:00"));
    for bad in [
        "2026-11-29T09:00:00",
        "2026-11-29",
        "2026-11-29 09:00:00Z",
        "2026-13-29T09:00:00Z",
        "2026-11-29T09:00:60Z",
        "2016-12-31T23:59:60+01:00",
        "2026-11-29T09:00Z",
        "2026-11-29T09:00:00,5Z",
        "2026-11-29T09:00:00.Z",
        "2026-11-29T09:00:00+0530",
        "2026-11-29T09:00:00+05",
        "2026-11-29T09:00:00Z[UTC]",
        "+002026-11-29T09:00:00Z",
        "now",
        "é",
    ] {
        misfit("at", json!(bad), "must be a date and time with an offset");
    }
}

#[test]
fn numbers_are_checked() {
    fits("batch", json!(1));
    fits("batch", json!(5.0));
    misfit("batch", json!(0), "must be between 1 and 1000");
    misfit("batch", json!(1001), "must be between 1 and 1000");
    misfit("batch", json!(1.5), "must be an integer");
    misfit("batch", json!("5"), "must be a number");
    fits("ratio", json!(0.5));
    misfit("ratio", json!(0.4), "must be between 0.5 and any");
}

#[test]
fn bounds_hold_beyond_two_to_the_53() {
    let maximum = 9_007_199_254_740_992_u64;
    let form = form(
        json!({ "n": { "type": "integer", "maximum": maximum } }),
        json!([]),
    );
    let check = |n: u64| form.check(&Answer::Accept(Some(raw(&json!({ "n": n })))));
    assert!(check(maximum).is_ok());
    assert!(check(maximum + 1).is_err());
}

#[test]
fn booleans_and_choices_are_checked() {
    fits("approve", json!(true));
    misfit("approve", json!("true"), "must be true or false");
    fits("window", json!("now"));
    misfit("window", json!("Immediately"), "must be one of the choices");
    misfit("tier", json!("Small"), "must be one of the choices");
    misfit("colour", json!("RED"), "must be one of the choices");
}

#[test]
fn several_choices_are_checked() {
    fits("regions", json!(["eu", "us"]));
    fits("zones", json!([]));
    misfit("regions", json!([]), "must be 1 to 2 of the choices, each once");
    misfit(
        "regions",
        json!(["eu", "us", "ap"]),
        "must be 1 to 2 of the choices, each once",
    );
    misfit(
        "regions",
        json!(["eu", "eu"]),
        "must be 1 to 2 of the choices, each once",
    );
    misfit("regions", json!(["mars"]), "must be one of the choices");
    misfit("regions", json!([1]), "must be a list of strings");
    misfit("regions", json!("eu"), "must be a list of strings");
}

#[test]
fn required_fields_must_be_there_and_strangers_must_not() {
    let form = form(
        json!({ "ok": { "type": "boolean" }, "why": { "type": "string" } }),
        json!(["ok"]),
    );
    let check = |content: Value| form.check(&Answer::Accept(Some(raw(&content))));
    let misfit = |field: &str, why| {
        Err(Misfit {
            field: field.to_owned(),
            why,
        })
    };
    assert_eq!(
        check(json!({ "ok": true })),
        Ok(Fit::Accept(raw(&json!({ "ok": true }))))
    );
    assert_eq!(check(json!({ "why": "x" })), misfit("ok", Unfit::Missing));
    assert_eq!(
        check(json!({ "ok": true, "Ok": 1 })),
        misfit("Ok", Unfit::Unknown)
    );
    assert_eq!(
        form.check(&Answer::Accept(None)),
        misfit("content", Unfit::Missing)
    );
}

#[test]
fn a_form_without_fields_is_accepted_without_content() {
    let form = form(json!({}), json!([]));
    assert_eq!(
        form.check(&Answer::Accept(None)),
        Ok(Fit::Accept(raw(&json!({}))))
    );
}

#[test]
fn a_decline_and_a_dismissal_fit_every_form() {
    let form = form(every_kind(), json!(["name"]));
    assert_eq!(form.check(&Answer::Decline), Ok(Fit::Decline));
    assert_eq!(form.check(&Answer::Dismiss), Ok(Fit::Dismiss));
}

#[test]
fn an_answer_has_one_of_three_actions() {
    let answer = |result: Value| Answer::parse(&raw(&result));
    let content = json!({ "ok": true });
    assert_eq!(
        answer(json!({ "action": "accept", "content": content })),
        Ok(Answer::Accept(Some(raw(&content))))
    );
    assert_eq!(answer(json!({ "action": "accept" })), Ok(Answer::Accept(None)));
    assert_eq!(
        answer(json!({ "action": "decline", "content": 5 })),
        Ok(Answer::Decline)
    );
    assert_eq!(answer(json!({ "action": "cancel" })), Ok(Answer::Dismiss));
    for bad in [
        json!({}),
        json!({ "action": "Accept" }),
        json!({ "action": null }),
        json!([]),
    ] {
        assert_eq!(
            answer(bad).map_err(|misfit| misfit.field),
            Err("action".to_owned())
        );
    }
    let list = json!({ "action": "accept", "content": [1] });
    assert_eq!(
        answer(list).map_err(|misfit| misfit.field),
        Err("content".to_owned())
    );
}

#[test]
fn fields_of_other_kinds_are_refused() {
    let why = |schema: Value| match parse(json!({ "f": schema }), json!([])) {
        Err(BadForm::Field { field, why }) if field == "f" => why,
        other => panic!("{other:?}"),
    };
    for nested in [
        json!({ "type": "object", "properties": {} }),
        json!({ "type": "null" }),
        json!({ "type": ["string", "null"] }),
        json!({ "enum": ["a"] }),
        json!({ "type": "array" }),
        json!({ "type": "array", "items": { "type": "string" } }),
        json!(true),
    ] {
        assert_eq!(why(nested.clone()), BadField::NotPrimitive, "{nested}");
    }
    let unknown = |keyword: &str| BadField::UnknownKeyword {
        keyword: keyword.to_owned(),
    };
    for (keyword, schema) in [
        ("pattern", json!({ "type": "string", "pattern": "(a+)+$" })),
        ("writeOnly", json!({ "type": "string", "writeOnly": true })),
        ("$ref", json!({ "type": "string", "$ref": "https://example.org" })),
        ("minimum", json!({ "type": "string", "minimum": 1 })),
        ("minLength", json!({ "type": "boolean", "minLength": 1 })),
        (
            "uniqueItems",
            json!({ "type": "array", "uniqueItems": true, "items": { "type": "string", "enum": ["a"] } }),
        ),
        (
            "x",
            json!({ "type": "array", "items": { "type": "string", "enum": ["a"], "x": 1 } }),
        ),
    ] {
        assert_eq!(why(schema), unknown(keyword));
    }
    for (keyword, schema) in [
        ("format", json!({ "type": "string", "format": "password" })),
        ("maxLength", json!({ "type": "string", "maxLength": -1 })),
        ("minimum", json!({ "type": "number", "minimum": "1" })),
        ("title", json!({ "type": "boolean", "title": 1 })),
        ("enum", json!({ "type": "string", "enum": [1] })),
    ] {
        assert_eq!(why(schema), BadField::BadKeyword { keyword });
    }
    assert_eq!(why(json!({ "type": "string", "enum": [] })), BadField::BadChoices);
    assert_eq!(
        why(json!({ "type": "string", "oneOf": [{ "const": "a" }] })),
        BadField::BadChoices
    );
    assert_eq!(
        why(json!({ "type": "boolean", "default": "yes" })),
        BadField::BadDefault
    );
    assert_eq!(
        why(json!({ "type": "integer", "maximum": 1, "default": 2 })),
        BadField::BadDefault
    );
}

#[test]
fn a_form_has_limits() {
    let fields = |count: usize| {
        let fields = (0..count).map(|n| (format!("f{n}"), json!({ "type": "boolean" })));
        parse(Value::Object(fields.collect()), json!([]))
    };
    assert!(fields(FIELDS_MAX).is_ok());
    assert_eq!(fields(FIELDS_MAX + 1), Err(BadForm::TooManyFields));
    let long = json!({ "f": { "type": "string", "description": "x".repeat(FORM_BYTES_MAX) } });
    assert_eq!(parse(long, json!([])), Err(BadForm::TooLarge));
}

#[test]
fn the_shape_of_a_form_is_checked() {
    let parse = |params: Value| Form::parse(&raw(&params)).map(|_| ());
    let schema = json!({ "type": "object", "properties": {} });
    assert_eq!(
        parse(json!({ "requestedSchema": schema })),
        Err(BadForm::NoMessage)
    );
    for bad in [
        json!(null),
        json!({ "type": "object" }),
        json!({ "properties": {} }),
        json!({ "type": "array", "properties": {} }),
    ] {
        assert_eq!(
            parse(json!({ "message": "m", "requestedSchema": bad })),
            Err(BadForm::NotAnObjectSchema)
        );
    }
    let open = json!({ "type": "object", "properties": {}, "additionalProperties": true });
    let keyword = "additionalProperties".to_owned();
    assert_eq!(
        parse(json!({ "message": "m", "requestedSchema": open })),
        Err(BadForm::UnknownKeyword { keyword })
    );
    for required in [json!(["f"]), json!("f"), json!([1])] {
        let schema = json!({ "type": "object", "properties": {}, "required": required });
        assert_eq!(
            parse(json!({ "message": "m", "requestedSchema": schema })),
            Err(BadForm::BadRequired)
        );
    }
}

#[test]
fn what_people_read_is_cleaned_and_bounded() {
    let schema = json!({ "type": "object", "properties": {
        "f": { "type": "string", "title": "A\u{202e}B", "description": "\u{1b}[0mC" },
        "g": { "type": "string", "oneOf": [{ "const": "x\u{200b}", "title": "X\u{200b}" }] },
    } });
    let params = json!({ "message": format!("Hi\u{7}{}", "x".repeat(5_000)), "requestedSchema": schema });
    let form = Form::parse(&raw(&params)).expect("a form");
    assert_eq!(form.message().chars().count(), 4_000);
    assert!(form.message().starts_with("Hix") && form.message().ends_with('…'));
    let field = &form.fields()[0];
    assert_eq!(
        (field.title.as_deref(), field.description.as_deref()),
        (Some("AB"), Some("[0mC"))
    );
    let Kind::Choice(choices) = &form.fields()[1].kind else {
        panic!("choices")
    };
    assert_eq!(
        (choices[0].value.as_str(), choices[0].title.as_deref()),
        ("x\u{200b}", Some("X"))
    );
}

proptest! {
    /// The check is the JSON Schema of the field, without its formats.
    #[test]
    fn the_check_agrees_with_json_schema(
        field in prop::sample::select(vec!["approve", "window", "tier", "colour", "name", "batch", "ratio"]),
        value in prop_oneof![
            Just(json!(null)), Just(json!(true)), Just(json!("now")), Just(json!("s")), Just(json!("red")),
            Just(json!(["eu"])), Just(json!({})), (-3_i64..1_005).prop_map(Value::from),
            (-2.0_f64..2.0).prop_map(Value::from), "[a-zé]{0,6}".prop_map(Value::from),
        ],
    ) {
        let schema = &every_kind()[field];
        let mut schema = schema.clone();
        schema.as_object_mut().expect("a schema").remove("enumNames");
        let answer = Answer::Accept(Some(raw(&json!({ field: value }))));
        let ours = form(every_kind(), json!([])).check(&answer).is_ok();
        prop_assert_eq!(ours, jsonschema::is_valid(&schema, &value), "{} {}", field, value);
    }
}

#[test]
fn an_official_answer_is_read() {
    for answer in [
        json!({ "action": "accept", "content": { "a": ["x"] } }),
        json!({ "action": "cancel" }),
    ] {
        assert!(official(Official::Core, "ElicitResult", &answer).is_ok());
        assert!(Answer::parse(&raw(&answer)).is_ok());
    }
}
