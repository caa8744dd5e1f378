//! Bytes to server-sent events: however the bytes arrive, the events are the same, and none is over the limit.
//!
//! The first byte of an input is the limit of a line, the second that of an event, the third chooses how the rest
//! is cut into pieces.

use longhaul_mcp::client::sse::{Broken, Decoder, Event, Limits, NAME_BYTES_MAX};

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let [line, event, cut, input @ ..] = bytes else {
        return;
    };
    let limits = Limits {
        line_bytes_max: usize::from(*line),
        event_bytes_max: usize::from(*event),
    };
    let whole = read([input].into_iter(), limits);
    let pieces = read(input.chunks(usize::from(*cut).max(1)), limits);
    assert_eq!(pieces, whole, "in pieces by {cut}");
    for event in &whole.0 {
        assert!(event.data.len() <= limits.event_bytes_max);
        let mut names = event.id.iter().chain(&event.event);
        assert!(names.all(|name| name.len() <= NAME_BYTES_MAX));
    }
    if whole.1.is_ok() {
        assert_eq!(whole.0, expected(input));
    }
}

fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>, limits: Limits) -> (Vec<Event>, Result<(), Broken>) {
    let mut decoder = Decoder::new(limits);
    let mut events = Vec::new();
    for piece in pieces {
        if let Err(broken) = decoder.feed(piece, &mut events) {
            return (events, Err(broken));
        }
    }
    (events, Ok(()))
}

/// What the standard says, in other words: first the lines, then the fields of each.
fn expected(input: &[u8]) -> Vec<Event> {
    let input = input.strip_prefix(b"\xef\xbb\xbf").unwrap_or(input);
    let mut events = Vec::new();
    let mut lines: Vec<&[u8]> = Vec::new();
    for line in ended_lines(input) {
        if line.is_empty() {
            events.extend(event(&lines));
            lines.clear();
        } else {
            lines.push(line);
        }
    }
    events
}

fn ended_lines(mut input: &[u8]) -> Vec<&[u8]> {
    let mut lines = Vec::new();
    while let Some(end) = input.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
        lines.push(&input[..end]);
        let end_len = if input[end..].starts_with(b"\r\n") { 2 } else { 1 };
        input = &input[end + end_len..];
    }
    lines
}

/// An event of these lines; none when no field says anything.
fn event(lines: &[&[u8]]) -> Option<Event> {
    let fields: Vec<(&[u8], &[u8])> = lines.iter().filter_map(|line| field(line)).collect();
    let named = |name: &'static [u8]| {
        fields
            .iter()
            .filter(move |(own, _)| *own == name)
            .map(|(_, value)| *value)
    };
    let text = |value: &[u8]| {
        let text = String::from_utf8(value.to_vec()).ok()?;
        let is_sendable = text.len() <= NAME_BYTES_MAX && !text.chars().any(char::is_control);
        is_sendable.then_some(text)
    };
    let data: Vec<&[u8]> = named(b"data").collect();
    let id = named(b"id").filter_map(text).last();
    let retry = named(b"retry")
        .filter(|value| value.iter().all(u8::is_ascii_digit))
        .filter_map(|value| std::str::from_utf8(value).ok()?.parse().ok())
        .last();
    if data.is_empty() && id.is_none() && retry.is_none() {
        return None;
    }
    Some(Event {
        id,
        event: named(b"event")
            .last()
            .and_then(text)
            .filter(|name| !name.is_empty()),
        data: data.join(&b'\n'),
        retry,
    })
}

fn field<'a>(line: &&'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let mut parts = line.splitn(2, |byte| *byte == b':');
    let name = parts.next().filter(|name| !name.is_empty())?;
    let value = parts.next().unwrap_or_default();
    Some((name, value.strip_prefix(b" ").unwrap_or(value)))
}
