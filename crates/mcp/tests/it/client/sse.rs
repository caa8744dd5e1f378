//! Events come out the same, however the bytes come in.

use longhaul_mcp::client::sse::{Broken, Decoder, Event, Limits};
use proptest::prelude::*;

fn decode(pieces: &[&[u8]], limits: Limits) -> (Vec<Event>, Result<(), Broken>) {
    let mut decoder = Decoder::new(limits);
    let mut events = Vec::new();
    for piece in pieces {
        if let Err(broken) = decoder.feed(piece, &mut events) {
            return (events, Err(broken));
        }
    }
    (events, Ok(()))
}

fn events(bytes: &[u8]) -> Vec<Event> {
    let (events, end) = decode(&[bytes], Limits::default());
    assert_eq!(end, Ok(()));
    events
}

fn message(data: &str) -> Event {
    Event {
        data: data.as_bytes().to_vec(),
        ..Event::default()
    }
}

#[test]
fn an_event_is_what_stands_between_empty_lines() {
    let text = ": hello\n\nid: r14.0\nretry: 2000\ndata:\n\nid: r14.1\nevent: message\ndata: {\"a\":1}\n\ndata: cut off\n";
    let first = Event {
        id: Some("r14.0".to_owned()),
        retry: Some(2_000),
        ..Event::default()
    };
    let second = Event {
        id: Some("r14.1".to_owned()),
        event: Some("message".to_owned()),
        data: b"{\"a\":1}".to_vec(),
        retry: None,
    };
    assert_eq!(events(text.as_bytes()), [first, second]);
}

#[test]
fn lines_of_data_are_joined_and_one_space_is_dropped() {
    assert_eq!(
        events(b"data:a\ndata:  b\ndata\ndata: \n\n"),
        [message("a\n b\n\n")]
    );
    assert_eq!(events(b"data: \xff\n\n")[0].data, b"\xff");
}

#[test]
fn a_line_ends_in_any_of_three_ways() {
    for end in ["\n", "\r", "\r\n"] {
        let text = ["data: a", "", "data: b", "", ""].join(end);
        assert_eq!(events(text.as_bytes()), [message("a"), message("b")], "{end:?}");
    }
}

#[test]
fn a_byte_order_mark_is_dropped_at_the_start_only() {
    assert_eq!(events(b"\xef\xbb\xbfdata: a\n\n"), [message("a")]);
    assert_eq!(events(b"data: a\n\n\xef\xbb\xbfdata: b\n\n"), [message("a")]);
    assert_eq!(events(b"data: \xef\xbb\xbfa\n\n"), [message("\u{feff}a")]);
}

#[test]
fn what_is_no_field_says_nothing() {
    assert_eq!(
        events(b": a comment\nDATA: a\n data: b\nother: c\nnothing\n\n\n\n"),
        []
    );
    assert_eq!(events(b"event: ping\n\ndata: a\n\n"), [message("a")]);
    for bad in [
        "retry: -1",
        "retry: 1s",
        "retry:",
        "retry: 99999999999999999999",
        "id: a\0b",
        "id: \u{7}",
    ] {
        assert_eq!(events(format!("{bad}\n\n").as_bytes()), [], "{bad:?}");
    }
    assert_eq!(events(b"id: \xff\n\n"), []);
    let long = format!("id: {}\ndata: a\n\n", "x".repeat(1_025));
    assert_eq!(events(long.as_bytes()), [message("a")]);
    // An empty id is a word, too: after it there is nothing to go on from.
    assert_eq!(events(b"id\n\n")[0].id.as_deref(), Some(""));
}

#[test]
fn neither_a_line_nor_an_event_grows_past_its_limit() {
    let limits = Limits {
        line_bytes_max: 10,
        event_bytes_max: 8,
    };
    let end = |text: &[u8]| {
        let whole = decode(&[text], limits);
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(decode(&bytes, limits), whole);
        whole
    };
    assert_eq!(end(b"data:12345\n\n"), (vec![message("12345")], Ok(())));
    assert_eq!(end(b"data:123456"), (vec![], Err(Broken::LineTooLong)));
    assert_eq!(end(b":1234567890"), (vec![], Err(Broken::LineTooLong)));
    assert_eq!(
        end(b"data:1234\ndata:567\n\n"),
        (vec![message("1234\n567")], Ok(()))
    );
    assert_eq!(
        end(b"data:1234\ndata:5678\n"),
        (vec![], Err(Broken::EventTooLarge))
    );
    let (before, broken) = end(b"data:a\n\ndata:123456\n\n");
    assert_eq!((before, broken), (vec![message("a")], Err(Broken::LineTooLong)));
}

#[test]
fn every_cut_in_two_or_three_gives_the_same_events() {
    let text = "\u{feff}id: 1\r\ndata: é\r\ndata: b\r\r\nretry: 5\n\n: c\n\rdata: x\n\r\n";
    let bytes = text.as_bytes();
    let whole = events(bytes);
    assert_eq!(whole.len(), 3);
    for first in 0..=bytes.len() {
        for second in first..=bytes.len() {
            let pieces = [&bytes[..first], &bytes[first..second], &bytes[second..]];
            assert_eq!(
                decode(&pieces, Limits::default()).0,
                whole,
                "cut at {first} and {second}"
            );
        }
    }
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        Just(b"data".to_vec()),
        Just(b"data: ".to_vec()),
        Just(b"id: ".to_vec()),
        Just(b"retry: 7".to_vec()),
        Just(b"event: e".to_vec()),
        Just(b":".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"\r".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"\n\n".to_vec()),
        Just(b"\xef\xbb\xbf".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..8),
    ];
    proptest::collection::vec(part, 0..40).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn all_pieces_give_the_same_events(bytes in stream(), cuts in proptest::collection::vec(1_usize..6, 0..60)) {
        let limits = Limits { line_bytes_max: 40, event_bytes_max: 60 };
        let whole = decode(&[&bytes], limits);
        let mut pieces = Vec::new();
        let mut rest = bytes.as_slice();
        for cut in cuts {
            let (piece, after) = rest.split_at(cut.min(rest.len()));
            pieces.push(piece);
            rest = after;
        }
        pieces.push(rest);
        prop_assert_eq!(decode(&pieces, limits), whole);
    }
}
