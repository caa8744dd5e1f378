//! The forms that a text field may ask for, by the words of JSON Schema. Called by the fields of forms only.

use super::field::Unfit;

/// A form that text must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A mail address.
    Email,
    /// An absolute URI.
    Uri,
    /// A day, `2026-11-29`.
    Date,
    /// A moment of RFC 3339.
    DateTime,
}

impl Format {
    pub(super) fn named(word: &str) -> Option<Format> {
        match word {
            "email" => Some(Format::Email),
            "uri" => Some(Format::Uri),
            "date" => Some(Format::Date),
            "date-time" => Some(Format::DateTime),
            _ => None,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Format::Email => "email",
            Format::Uri => "uri",
            Format::Date => "date",
            Format::DateTime => "date-time",
        }
    }

    pub(super) fn check(self, text: &str) -> Result<(), Unfit> {
        let (fits, must_be) = match self {
            Format::Email => (is_email(text), "a mail address"),
            Format::Uri => (is_uri(text), "a URI"),
            Format::Date => (is_date(text), "a date"),
            Format::DateTime => (is_moment(text), "a date and time with an offset"),
        };
        if fits { Ok(()) } else { Err(Unfit::MustBe(must_be)) }
    }
}

/// One `@` with something that could be a host behind it. Whether mail arrives there, only mail can tell.
fn is_email(text: &str) -> bool {
    let Some((local, host)) = text.rsplit_once('@') else {
        return false;
    };
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(|c| c == '-' || c.is_alphanumeric())
    };
    !local.is_empty()
        && local.len() <= 64
        && !local.contains(|c: char| c.is_whitespace() || c.is_control() || "@<>(),;:\\\"[]".contains(c))
        && host.len() <= 253
        && host.split('.').all(is_label)
}

/// RFC 3339, `full-date`.
fn is_date(text: &str) -> bool {
    has_shape(text, b"0000-00-00") && text.parse::<jiff::civil::Date>().is_ok()
}

/// RFC 3339, `date-time`. The parser behind takes more spellings, and a leap second in any minute.
fn is_moment(text: &str) -> bool {
    let Some((whole, rest)) = text.split_at_checked(19) else {
        return false;
    };
    let offset = match rest.strip_prefix('.') {
        Some(fraction) => {
            let offset = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
            if offset.len() == fraction.len() {
                return false;
            }
            offset
        }
        None => rest,
    };
    let is_offset =
        offset.eq_ignore_ascii_case("z") || has_shape(offset, b"+00:00") || has_shape(offset, b"-00:00");
    let has_mark = matches!(whole.as_bytes().get(10), Some(b'T' | b't'));
    let date_and_time = whole.get(..10).zip(whole.get(11..));
    let is_written = date_and_time
        .is_some_and(|(date, time)| has_shape(date, b"0000-00-00") && has_shape(time, b"00:00:00"));
    if !is_offset || !has_mark || !is_written {
        return false;
    }
    // The fraction changes nothing, and the parser behind takes nine digits of it.
    let Ok(moment) = format!("{whole}{offset}").parse::<jiff::Timestamp>() else {
        return false;
    };
    // The last second of a day in UTC is where one more can be.
    !whole.ends_with(":60") || moment.as_second().rem_euclid(86_400) == 86_399
}

/// Whether `text` has a digit where `shape` has a `0`, and is the same elsewhere.
fn has_shape(text: &str, shape: &[u8]) -> bool {
    text.len() == shape.len()
        && text.bytes().zip(shape).all(|(byte, shape)| {
            if *shape == b'0' {
                byte.is_ascii_digit()
            } else {
                byte == *shape
            }
        })
}

/// By RFC 3986, which is what readers of the schema check, and with something behind the scheme.
fn is_uri(text: &str) -> bool {
    !text.ends_with(':') && fluent_uri::Uri::parse(text).is_ok()
}
