//! Server-sent events as bytes come in, whatever the pieces they come in.
//!
//! The gateway's HTTP link to a server feeds one [`Decoder`] a stream. It never holds more than one event, and
//! judges no payload: a frame in it is scanned like any other, so bytes that are no UTF-8 are refused there.

use std::mem;

use thiserror::Error;

/// How much one event may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one line, its end not counted.
    pub line_bytes_max: usize,
    /// Bytes of the data of one event.
    pub event_bytes_max: usize,
}

impl Default for Limits {
    /// 16 MiB of data, and room for its field name.
    fn default() -> Limits {
        let event_bytes_max = 16 * 1_024 * 1_024;
        Limits {
            line_bytes_max: event_bytes_max + 64,
            event_bytes_max,
        }
    }
}

/// The longest event id and event name that are kept, in bytes; a longer one is as if absent.
pub const NAME_BYTES_MAX: usize = 1_024;

/// What stood between two empty lines, comments aside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Where to go on after a break, once this event was taken. An empty one says: nowhere. `None` when this event
    /// says nothing about it.
    pub id: Option<String>,
    /// The kind of event; `None` for an ordinary message.
    pub event: Option<String>,
    /// The payload, lines joined by LF. Empty when the event has none: it sets `id` or `retry` only.
    pub data: Vec<u8>,
    /// How long to wait before connecting again, in milliseconds.
    pub retry: Option<u64>,
}

/// A stream that cannot be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Broken {
    /// A line is longer than [`Limits::line_bytes_max`].
    #[error("a line of the event stream is too long")]
    LineTooLong,
    /// An event holds more than [`Limits::event_bytes_max`].
    #[error("an event of the stream is too large")]
    EventTooLarge,
}

/// Reads one stream.
#[derive(Clone, Debug)]
pub struct Decoder {
    limits: Limits,
    line: Vec<u8>,
    event: Event,
    has_data: bool,
    /// Anything that a reader of the event would want to know.
    has_field: bool,
    last_was_cr: bool,
    is_at_start: bool,
}

const BOM: &[u8] = b"\xef\xbb\xbf";

impl Decoder {
    /// A stream of which nothing was read.
    pub fn new(limits: Limits) -> Decoder {
        Decoder {
            limits,
            line: Vec::new(),
            event: Event::default(),
            has_data: false,
            has_field: false,
            last_was_cr: false,
            is_at_start: true,
        }
    }

    /// Takes the next bytes of the stream and appends the events that end in them. An event that no empty line
    /// ends is never given out.
    ///
    /// # Errors
    /// A limit is reached. The events before are appended; the stream cannot be read on.
    pub fn feed(&mut self, mut bytes: &[u8], events: &mut Vec<Event>) -> Result<(), Broken> {
        while let Some(&first) = bytes.first() {
            if mem::take(&mut self.last_was_cr) && first == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let part = &bytes[..end.unwrap_or(bytes.len())];
            if self.line.len() + part.len() > self.limits.line_bytes_max {
                return Err(Broken::LineTooLong);
            }
            self.line.extend_from_slice(part);
            let Some(end) = end else {
                return Ok(());
            };
            self.last_was_cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            self.end_line(events)?;
        }
        Ok(())
    }

    /// How many bytes of an event that has not ended are held.
    pub fn held(&self) -> usize {
        self.line.len() + self.event.data.len()
    }

    fn end_line(&mut self, events: &mut Vec<Event>) -> Result<(), Broken> {
        let mut line = mem::take(&mut self.line);
        let text = if mem::take(&mut self.is_at_start) {
            line.strip_prefix(BOM).unwrap_or(&line)
        } else {
            &line
        };
        if text.is_empty() {
            self.end_event(events);
        } else {
            self.field(text)?;
        }
        // A stream of long lines should not allocate each of them anew, and a single one not stay allocated.
        if line.capacity() <= 64 * 1_024 {
            line.clear();
            self.line = line;
        }
        Ok(())
    }

    fn end_event(&mut self, events: &mut Vec<Event>) {
        let event = mem::take(&mut self.event);
        self.has_data = false;
        if mem::take(&mut self.has_field) {
            events.push(event);
        }
    }

    fn field(&mut self, line: &[u8]) -> Result<(), Broken> {
        let (name, value) = match line.iter().position(|byte| *byte == b':') {
            Some(0) => return Ok(()),
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &b""[..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => {
                let line_end = usize::from(self.has_data);
                if self.event.data.len() + line_end + value.len() > self.limits.event_bytes_max {
                    return Err(Broken::EventTooLarge);
                }
                if mem::replace(&mut self.has_data, true) {
                    self.event.data.push(b'\n');
                }
                self.event.data.extend_from_slice(value);
                self.has_field = true;
            }
            b"event" => self.event.event = named(value).filter(|name| !name.is_empty()),
            b"id" => {
                if let Some(id) = named(value) {
                    self.event.id = Some(id);
                    self.has_field = true;
                }
            }
            b"retry" => {
                let digits = std::str::from_utf8(value).ok();
                let digits = digits.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
                if let Some(retry) = digits.and_then(|text| text.parse().ok()) {
                    self.event.retry = Some(retry);
                    self.has_field = true;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// An id or a name that can be sent back in a header.
fn named(value: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(value).ok()?;
    let is_sendable = text.len() <= NAME_BYTES_MAX && !text.chars().any(char::is_control);
    is_sendable.then(|| text.to_owned())
}
