//! A list of tools passes on whole; what a strict client would choke on is dropped alone.

use longhaul_mcp::{
    ToolRule,
    client::{
        list,
        tools::{BYTES_MAX, Bad, BadPage, DROPPED_MAX, Definition, Listing, TOOLS_MAX, listable},
    },
    frame::Raw,
    reply::{Annotations, TaskSupport},
};
use serde_json::{Value, json};

use crate::support::{Official, assert_is, raw};

fn tool(name: &str) -> Value {
    json!({ "name": name, "inputSchema": { "type": "object" } })
}

fn with(member: &str, value: Value) -> Value {
    let mut tool = tool("t");
    tool[member] = value;
    tool
}

fn listed(tools: &[Value]) -> Listing {
    let mut listing = Listing::default();
    assert_eq!(listing.add(&raw(&json!({ "tools": tools }))), Ok(None));
    listing
}

fn read(value: &Value) -> Result<Definition, Bad> {
    Definition::read(&raw(value))
}

#[test]
fn a_definition_is_kept_whole_and_in_order() {
    let text = r#"{"vendor":1.50,"title":"T","name":"t","inputSchema":{"type":"object","x":12345678901234567890123},"description":"D","outputSchema":{"type":"array"},"annotations":{"readOnlyHint":true,"title":"A","new":1},"execution":{"taskSupport":"optional"},"icons":[],"_meta":{"k":1}}"#;
    let definition = Definition::read(&Raw::parse(text).expect("JSON")).expect("a tool");
    assert_eq!(definition.raw.to_raw().text(), text);
    assert_eq!(
        (definition.title.as_deref(), definition.description.as_deref()),
        (Some("T"), Some("D"))
    );
    assert_eq!(
        definition.output_schema.as_ref().map(Raw::text),
        Some(r#"{"type":"array"}"#)
    );
    assert_eq!(definition.task_support, TaskSupport::Optional);
    let expect = Annotations {
        read_only: Some(true),
        ..Annotations::default()
    };
    assert_eq!(definition.annotations, expect);
    // A-40
    assert_eq!(
        read(&tool("t")).map(|tool| tool.task_support),
        Ok(TaskSupport::Forbidden)
    );
}

#[test]
fn a_definition_is_listed_under_the_name_it_has_here() {
    let definition = read(&with("outputSchema", json!({ "type": "object" }))).expect("a tool");
    let listed = definition.listing("s__t", TaskSupport::Optional, true);
    assert_eq!(
        (listed.name.as_str(), listed.task_support),
        ("s__t", TaskSupport::Optional)
    );
    assert_eq!(listed.output_schema, definition.output_schema);
    assert_eq!(listed.relayed, Some(definition.raw.clone()));
    let hidden = definition.listing("t", TaskSupport::Forbidden, false);
    assert_eq!(hidden.output_schema, None);
}

/// E-3.
#[test]
fn the_digest_tells_a_change_and_no_other_spelling() {
    let digest = |text: &str| {
        Definition::read(&Raw::parse(text).expect("JSON"))
            .expect("a tool")
            .digest
    };
    let one = digest(r#"{"name":"t","inputSchema":{"type":"object","minProperties":1.0}}"#);
    assert_eq!(
        one,
        digest(r#"{ "inputSchema":{"minProperties":1,"type":"object"}, "name":"\u0074"}"#)
    );
    assert_ne!(
        one,
        digest(r#"{"name":"t","inputSchema":{"type":"object","minProperties":2}}"#)
    );
    assert_ne!(
        one,
        digest(r#"{"name":"t","inputSchema":{"type":"object","minProperties":1},"description":""}"#)
    );
}

#[test]
fn a_name_that_no_tool_can_have_becomes_the_nearest_to_it() {
    for name in ["a", "A-b_c.9", &"x".repeat(128)] {
        assert_eq!(listable(name), name);
    }
    assert_eq!(listable("get item/é"), "get_item__");
    assert_eq!(listable(&"x".repeat(200)), "x".repeat(128));
    let kept = Definition::read(&raw(&tool("get item"))).expect("a tool");
    assert_eq!(kept.name, "get item");
}

#[test]
fn one_bad_definition_takes_no_other_with_it() {
    let member = |member| Bad::Member { member };
    let bad = [
        (json!(1), Bad::NotAnObject),
        (json!({ "inputSchema": { "type": "object" } }), Bad::Name),
        (tool(""), Bad::Name),
        (tool(&"x".repeat(513)), Bad::Name),
        (with("name", json!(1)), member("name")),
        (tool("first"), Bad::Duplicate),
        (json!({ "name": "t" }), member("inputSchema")),
        (with("inputSchema", json!(true)), member("inputSchema")),
        (with("inputSchema", json!({})), Bad::InputNotAnObject),
        (
            with("inputSchema", json!({ "type": "string" })),
            Bad::InputNotAnObject,
        ),
        (
            with("inputSchema", json!({ "type": ["object"] })),
            Bad::InputNotAnObject,
        ),
        (with("outputSchema", json!(null)), member("outputSchema")),
        (with("outputSchema", json!(true)), member("outputSchema")),
        (with("title", json!(null)), member("title")),
        (with("description", json!({})), member("description")),
        (with("annotations", json!([])), member("annotations")),
        (
            with("annotations", json!({ "readOnlyHint": "yes" })),
            member("annotations"),
        ),
        (with("annotations", json!({ "title": 1 })), member("annotations")),
        (with("execution", json!("optional")), member("execution")),
        (
            with("execution", json!({ "taskSupport": "maybe" })),
            member("execution"),
        ),
        (with("icons", json!({})), member("icons")),
        (with("_meta", json!([])), member("_meta")),
    ];
    for (value, expect) in &bad {
        let listing = listed(&[tool("first"), value.clone(), tool("last")]);
        let names: Vec<&str> = listing.tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["first", "last"], "{value}");
        let dropped: Vec<&Bad> = listing.dropped.iter().map(|dropped| &dropped.why).collect();
        assert_eq!((dropped, listing.dropped_count), (vec![expect], 1), "{value}");
    }
    for good in [tool(&"x".repeat(128)), tool("A-z_0.9")] {
        assert_is(Official::Core, "Tool", &good);
        assert_eq!(listed(&[good]).dropped, []);
    }
    let number = r#"{"name":"t","inputSchema":{"type":"object","maximum":1e999}}"#;
    let path = "/inputSchema/maximum".to_owned();
    assert_eq!(
        Definition::read(&Raw::parse(number).expect("JSON")),
        Err(Bad::NotFinite { path })
    );
    let named = listed(&[json!({ "name": "bad\u{1b}[2J" })]);
    assert_eq!(named.dropped[0].name.as_deref(), Some("bad[2J"));
}

/// B-25.
#[test]
fn a_tool_with_mirrors_that_no_client_may_serve_is_dropped() {
    let mirrored = |name: &str| {
        let property = json!({ "type": "string", "x-mcp-header": name });
        with(
            "inputSchema",
            json!({ "type": "object", "properties": { "p": property } }),
        )
    };
    assert!(matches!(read(&mirrored("a b")), Err(Bad::Mirror(_))));
    let definition = read(&mirrored("P")).expect("a tool");
    let rule = definition.rule(TaskSupport::Required);
    let expect = ToolRule {
        mirrors: definition.mirrors.clone(),
        requires_task: true,
        forbids_task: false,
    };
    assert_eq!((rule, definition.mirrors.len()), (expect, 1));
}

/// B-53.
#[test]
fn pages_follow_each_other_until_there_is_no_cursor() {
    let mut listing = Listing::default();
    let mut add = |name: &str, cursor: Value| {
        let mut page = json!({ "tools": [tool(name)] });
        if !cursor.is_null() {
            page["nextCursor"] = cursor;
        }
        listing.add(&raw(&page))
    };
    assert_eq!(add("b", json!("")), Ok(Some(String::new())));
    assert_eq!(add("a", json!("x")), Ok(Some("x".to_owned())));
    assert_eq!(add("b", Value::Null), Ok(None));
    assert_eq!(add("c", json!(1)), Err(BadPage::BadCursor));
    assert_eq!(add("d", json!("x")), Err(BadPage::Endless));
    let names: Vec<&str> = listing.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["b", "a", "c", "d"]);
    assert_eq!(listing.dropped[0].why, Bad::Duplicate);
    for none in [
        json!([]),
        json!({}),
        json!({ "tools": {} }),
        json!({ "tools": null }),
    ] {
        assert_eq!(
            listing.add(&raw(&none)),
            Err(BadPage::NoItems { member: "tools" })
        );
    }
    let null = json!({ "tools": [], "nextCursor": null });
    assert_eq!(listing.add(&raw(&null)), Ok(None));
}

#[test]
fn no_server_fills_the_memory_with_its_list() {
    let tools: Vec<Value> = (0..TOOLS_MAX + 200).map(|n| tool(&format!("t{n}"))).collect();
    let listing = listed(&tools);
    assert_eq!(listing.tools.len(), TOOLS_MAX);
    assert_eq!((listing.dropped.len(), listing.dropped_count), (DROPPED_MAX, 200));
    assert_eq!(listing.dropped[0].why, Bad::TooMany);

    let large = |name: &str| {
        let mut tool = tool(name);
        tool["description"] = json!("x".repeat(BYTES_MAX / 2));
        tool
    };
    let listing = listed(&[large("a"), large("b"), tool("small")]);
    let names: Vec<&str> = listing.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["a", "small"]);

    let mut listing = Listing::default();
    let endless = (0..=list::PAGES_MAX).find(|n| {
        let page = json!({ "tools": [], "nextCursor": n.to_string() });
        listing.add(&raw(&page)) == Err(BadPage::Endless)
    });
    assert_eq!(endless, Some(list::PAGES_MAX - 1));
}
