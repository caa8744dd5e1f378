//! Lists of prompts, resources and templates pass on whole, and end.

use longhaul_mcp::{
    Reply,
    client::list::{BYTES_MAX, Bad, BadPage, ITEMS_MAX, Items, Of, PAGES_MAX},
    edge::{Edge, Version},
    frame::{Obj, Raw},
    request::RequestId,
};
use serde_json::{Value, json};

use crate::support::{Official, assert_is, raw};

const ALL: [(Of, &str); 3] = [
    (Of::Prompts, "ListPromptsResult"),
    (Of::Resources, "ListResourcesResult"),
    (Of::Templates, "ListResourceTemplatesResult"),
];

fn item(of: Of, key: &str) -> Value {
    let mut item = json!({ "name": key });
    item[of.key()] = json!(key);
    item
}

fn page(of: Of, items: &[Value]) -> Value {
    let mut page = json!({});
    page[of.member()] = json!(items);
    page
}

fn keys(items: &Items) -> Vec<&str> {
    items.items.iter().map(|item| item.key.as_str()).collect()
}

#[test]
fn items_are_kept_whole_and_listed_again() {
    for (of, definition) in ALL {
        let text = item(of, "a:b")
            .to_string()
            .replacen('{', r#"{"z":1.50,"\u0061":null,"#, 1);
        let mut items = Items::new(of);
        let sent = format!(r#"{{"vendor":1,"{}":[{text}],"nextCursor":""}}"#, of.member());
        assert_eq!(
            items.add(&Raw::parse(&sent).expect("JSON")),
            Ok(Some(String::new()))
        );
        assert_eq!(keys(&items), ["a:b"]);
        let listed = of.page(items.items.iter().map(|item| &item.raw), Some("next"));
        assert_eq!(
            listed.text(),
            format!(r#"{{"{}":[{text}],"nextCursor":"next"}}"#, of.member())
        );
        let reply = Reply::Relayed {
            result: listed,
            cache: None,
        };
        let frame = Edge::Session(Version::LATEST).render(&reply, &RequestId::Integer(1));
        let frame: Value = serde_json::from_slice(&frame).expect("JSON");
        assert_is(Official::Sessions, definition, &frame["result"]);
        assert!(of.method().is_cacheable());
        let empty = of.page(&Vec::<Obj>::new(), None);
        assert_eq!(empty, raw(&page(of, &[])));
    }
}

#[test]
fn one_bad_item_takes_no_other_with_it() {
    for (of, _) in ALL {
        let with = |member: &str, value: Value| {
            let mut item = item(of, "x:bad");
            item[member] = value;
            item
        };
        for bad in [
            json!(1),
            json!({}),
            with(of.key(), json!(1)),
            with("name", Value::Null),
            with("title", json!({})),
            with("description", Value::Null),
            item(of, ""),
            item(of, "x:a\nb"),
            item(of, "x:first"),
        ] {
            let mut items = Items::new(of);
            let sent = page(of, &[item(of, "x:first"), bad.clone(), item(of, "x:last")]);
            assert_eq!(items.add(&raw(&sent)), Ok(None));
            assert_eq!(
                (keys(&items), items.dropped_count),
                (vec!["x:first", "x:last"], 1),
                "{bad}"
            );
        }
        let arguments = with("arguments", json!({}));
        let mut items = Items::new(of);
        assert_eq!(items.add(&raw(&page(of, &[arguments]))), Ok(None));
        assert_eq!(items.dropped_count, usize::from(of == Of::Prompts));
    }
}

#[test]
fn a_resource_without_a_scheme_is_left_out_and_a_prompt_needs_none() {
    for (of, _) in ALL {
        let mut items = Items::new(of);
        let sent = page(
            of,
            &[item(of, "plain"), item(of, "1x:y"), item(of, "file:///a b")],
        );
        assert_eq!(items.add(&raw(&sent)), Ok(None));
        assert_eq!(
            items.items.len(),
            if of == Of::Resources { 1 } else { 3 },
            "{of:?}"
        );
        let dropped: Vec<_> = items
            .dropped
            .iter()
            .map(|one| (one.key.as_deref(), one.why))
            .collect();
        let why = Bad::Key { member: of.key() };
        let expected = match of {
            Of::Resources => vec![(Some("plain"), why), (Some("1x:y"), why)],
            Of::Prompts | Of::Templates => Vec::new(),
        };
        assert_eq!(dropped, expected);
    }
}

#[test]
fn a_list_ends_and_is_bounded() {
    let of = Of::Prompts;
    let mut items = Items::new(of);
    for none in [
        json!([]),
        json!({}),
        json!({ "prompts": {} }),
        json!({ "resources": [] }),
    ] {
        assert_eq!(
            items.add(&raw(&none)),
            Err(BadPage::NoItems { member: "prompts" })
        );
    }
    let cursor = json!({ "prompts": [item(of, "a")], "nextCursor": 5 });
    assert_eq!(items.add(&raw(&cursor)), Err(BadPage::BadCursor));
    assert_eq!(keys(&items), ["a"]);
    let endless = (0..=PAGES_MAX).find(|n| {
        let page = json!({ "prompts": [], "nextCursor": n.to_string() });
        items.add(&raw(&page)) == Err(BadPage::Endless)
    });
    assert_eq!(endless, Some(PAGES_MAX - 1));

    let many: Vec<Value> = (0..ITEMS_MAX + 5).map(|n| item(of, &n.to_string())).collect();
    let mut items = Items::new(of);
    assert_eq!(items.add(&raw(&page(of, &many))), Ok(None));
    assert_eq!((items.items.len(), items.dropped_count), (ITEMS_MAX, 5));

    let large = |key: &str| {
        let mut item = item(of, key);
        item["description"] = json!("x".repeat(BYTES_MAX / 2));
        item
    };
    let mut items = Items::new(of);
    assert_eq!(
        items.add(&raw(&page(of, &[large("a"), large("b"), item(of, "c")]))),
        Ok(None)
    );
    assert_eq!(keys(&items), ["a", "c"]);
}
