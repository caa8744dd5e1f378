//! Lines: what is one, and what is not.

use serde_json::{Value, json};

use super::{Client, Place, meta, plain_meta};

fn direct(place: &Place) -> Client {
    Client::start(&place.rig, &["serve", "--stdio"])
}

#[test]
fn a_client_is_served_on_the_standard_streams_and_the_server_ends_with_its_input() {
    let place = Place::new("");
    let mut client = direct(&place);
    let tools = client.call("tools/list", json!({}));
    assert_eq!(tools["result"]["tools"][0]["name"], "waits");
    let said = client.call("tools/call", json!({ "name": "says", "arguments": {} }));
    assert_eq!(said["result"]["content"][0]["text"], "hello");
    client.leave();
    assert_eq!(client.hear(), None);
    assert_eq!((client.exit(), client.complaints()), (0, String::new()));
}

#[test]
fn no_address_is_served_unless_one_is_set() {
    let place = Place::new("");
    std::fs::write(
        place.rig.path("longhaul.toml"),
        "[tools.says]\ndescription = \"x\"\ncommand = [\"echo\"]\n",
    )
    .unwrap();
    let mut client = direct(&place);
    client.call("tools/list", json!({}));
    let found = place.health().expect("a server answers on the socket");
    assert_eq!(found["verdict"], "fine", "{found}");
    let ran = place.rig.run(&["page"]);
    assert_ne!(ran.code, 0, "there is no page without an address");
}

#[test]
fn a_line_that_is_too_long_or_no_frame_gets_an_error_and_the_connection_goes_on() {
    let place = Place::new("body_max = \"1KiB\"");
    for mut client in [direct(&place), place.pipe()] {
        client.raw(&[b'x'; 5_000]);
        let error = client.expect();
        assert_eq!(
            (&error["error"]["code"], error.get("id")),
            (&json!(-32600), None),
            "{error}"
        );
        for (line, code) in [
            (&b"no JSON"[..], -32700),
            (b"[]", -32600),
            (b"{}", -32600),
            (b"\xff\xfe", -32700),
            (br#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600),
        ] {
            client.raw(line);
            let error = client.expect();
            assert_eq!(error["error"]["code"], code, "{error}");
            assert_eq!(error.get("id"), None, "{error}");
        }
        client.raw(b"");
        client.raw(b"  \r");
        assert!(client.call("tools/list", json!({}))["result"].is_object());
        client.leave();
        assert_eq!(client.exit(), 0);
    }
}

#[test]
fn a_second_request_with_an_open_id_is_refused_and_an_id_is_free_after_its_reply() {
    let place = Place::new("");
    let mut client = place.pipe();
    let wait = json!({ "name": "waits", "arguments": {}, "_meta": plain_meta() });
    let frame =
        |params: &Value| json!({ "jsonrpc": "2.0", "id": "one", "method": "tools/call", "params": params });
    client.send(&frame(&wait));
    client.send(&frame(&wait));
    let refused = client.expect();
    assert_eq!(
        (&refused["id"], &refused["error"]["code"]),
        (&json!("one"), &json!(-32600))
    );
    place.open();
    let over = client.expect();
    assert_eq!(over["result"]["content"][0]["text"], "over", "{over}");
    client.send(&frame(
        &json!({ "name": "says", "arguments": {}, "_meta": plain_meta() }),
    ));
    assert_eq!(client.expect()["result"]["content"][0]["text"], "hello");
}

#[test]
fn a_call_that_waits_keeps_nobody_waiting() {
    let place = Place::new("");
    let mut client = place.pipe();
    let params = json!({ "name": "waits", "arguments": {}, "_meta": plain_meta() });
    let waits = client.ask_plainly("tools/call", params);
    for _ in 0..20 {
        assert!(client.call("tools/list", json!({}))["result"].is_object());
    }
    place.open();
    assert_eq!(client.reply(waits)["result"]["content"][0]["text"], "over");
}

#[test]
fn what_the_client_cancels_gets_no_reply() {
    let place = Place::new("");
    let mut client = place.pipe();
    let params = json!({ "name": "waits", "arguments": {}, "_meta": plain_meta() });
    let id = client.ask_plainly("tools/call", params);
    client.send(
        &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } }),
    );
    // The id is free at once, so the next reply with it is that of the next request.
    client
        .send(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/list", "params": { "_meta": meta() } }));
    assert!(client.reply(id)["result"]["tools"].is_array());
    place.open();
    client.leave();
    assert_eq!(client.hear(), None);
}

#[test]
fn a_subscription_ends_with_its_response_and_a_cancellation() {
    let place = Place::new("");
    let mut client = place.pipe();
    let task = client.task("waits");
    let id = client.ask(
        "subscriptions/listen",
        json!({ "notifications": { "taskIds": [task] } }),
    );
    place.open();
    client.reply(id);
    let last = loop {
        let frame = client.expect();
        if frame["method"] == "notifications/cancelled" {
            break frame;
        }
    };
    assert_eq!(last["params"]["requestId"], id);
}

#[test]
fn everything_that_the_client_said_before_it_left_is_served() {
    let place = Place::new("");
    let mut client = place.pipe();
    let ids: Vec<i64> = (0..50).map(|_| client.ask("tools/list", json!({}))).collect();
    client.leave();
    for id in ids {
        assert!(client.reply(id)["result"].is_object());
    }
    assert_eq!((client.hear(), client.exit()), (None, 0));
}
