//! `scan` and `canon`: what passes is JSON for another parser too, what is refused for its grammar is not, and the
//! canonical form is one form for one value.

use longhaul_mcp::{
    canon,
    frame::{Obj, Raw},
    scan::{self, BadText, Limits, Rule},
};
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::json::same;

/// Wide enough for the canonical form of whatever passed the scan: an exponent may make a number longer.
const WIDE: Limits = Limits {
    depth_max: 120,
    values_max: 1_000_000,
    number_chars_max: 10_000,
};

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let limits = Limits::default();
    let payload = scan::payload(bytes, &limits);
    if scan::frame(bytes, &limits).is_ok() {
        assert!(payload.is_ok(), "a frame passed that is no payload");
    }
    match payload {
        Ok(scanned) => check_value(scanned.text()),
        Err(refused) => {
            assert!(refused.offset <= bytes.len(), "the place is outside of the text");
            check_refusal(bytes, refused.rule);
        }
    }
}

/// What we call a broken grammar is broken for others.
fn check_refusal(bytes: &[u8], rule: Rule) {
    let other = serde_json::from_slice::<IgnoredAny>(bytes);
    match rule {
        Rule::NotUtf8 => assert!(std::str::from_utf8(bytes).is_err()),
        Rule::Text(BadText::Syntax) => assert!(other.is_err(), "refused as no JSON, and is JSON"),
        Rule::Text(BadText::LoneSurrogate | BadText::Nul)
        | Rule::TooDeep
        | Rule::TooManyValues
        | Rule::NumberTooLong
        | Rule::DuplicateMember => {}
        Rule::WrongCase => panic!("a payload has no envelope"),
    }
}

fn check_value(text: &str) {
    let raw = Raw::parse(text).expect("what passes the scan is JSON");
    let form = canon::form(&raw).expect("what passes the scan has a canonical form");
    let again = Raw::parse(&form).expect("the canonical form is JSON");
    scan::payload(form.as_bytes(), &WIDE).expect("the canonical form passes the scan");
    assert_eq!(
        canon::form(&again).as_deref(),
        Ok(&*form),
        "the form of the form is another"
    );
    let digest = canon::digest(&raw).expect("what has a form has a digest");
    assert_eq!(canon::digest(&again), Ok(digest));
    let shuffled = shuffled(&raw);
    assert_eq!(
        canon::digest(&shuffled),
        Ok(digest),
        "the order of members counts: {}",
        shuffled.text()
    );
    // A tree holds finite doubles only, and so do arguments (E-4).
    let tree = serde_json::from_str::<Value>(text);
    assert_eq!(canon::check_finite(&raw).is_ok(), tree.is_ok());
    if let Ok(tree) = tree {
        let form: Value = serde_json::from_str(&form).expect("the canonical form is as finite");
        assert!(same(&tree, &form), "{tree} became {form}");
    }
}

/// The same value with its members the other way round, and space between them.
fn shuffled(raw: &Raw) -> Raw {
    Raw::parse(&shuffle(raw)).expect("JSON")
}

fn shuffle(raw: &Raw) -> String {
    match raw.text().as_bytes().first() {
        Some(b'{') => {
            let object: Obj = raw.read().expect("an object");
            let members: Vec<String> = object
                .0
                .iter()
                .rev()
                .map(|(name, value)| {
                    format!(" {} :\t{}", Raw::string(&name.unescaped()).text(), shuffle(value))
                })
                .collect();
            format!("{{{}\n}}", members.join(" ,"))
        }
        Some(b'[') => {
            let items: Vec<Raw> = raw.read().expect("an array");
            let items: Vec<String> = items.iter().map(shuffle).collect();
            format!("[ {} ]", items.join("\r,"))
        }
        _ => raw.text().to_owned(),
    }
}
