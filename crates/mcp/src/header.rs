//! The headers that mirror a body, without an HTTP library: the transport hands them in as pairs.
//!
//! A router on the way may act on a header, so a header that says something else than the body is refused
//! (B-22). Nothing is ever decided by a header alone.

use std::{borrow::Cow, collections::BTreeMap};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::Value;
use thiserror::Error;

use crate::{
    canon,
    frame::{Obj, Raw},
    malformed::Rule,
};

/// The version that a message is written in.
pub(crate) const VERSION: &str = "mcp-protocol-version";
/// What the body asks.
pub(crate) const METHOD: &str = "mcp-method";
/// What the body asks it of.
pub(crate) const NAME: &str = "mcp-name";

/// The `Mcp-*` headers of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(BTreeMap<String, Vec<Vec<u8>>>);

impl Headers {
    /// Keeps the `Mcp-*` headers of all that a request has; names in any case.
    pub fn new<'a>(all: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Headers {
        let mut kept: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
        for (name, value) in all {
            let name = name.to_ascii_lowercase();
            if name.starts_with("mcp-") {
                kept.entry(name).or_default().push(value.to_vec());
            }
        }
        Headers(kept)
    }

    /// Whether a header is there at all; `name` in lower case.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The value of a header that may appear once, without the white space around it; `name` in lower case.
    ///
    /// # Errors
    /// It appears more than once, or its value is no visible ASCII.
    pub fn one(&self, name: &str) -> Result<Option<&str>, Rule> {
        let malformed = || Rule::HeaderMalformed {
            header: name.to_owned(),
        };
        match self.0.get(name).map(Vec::as_slice) {
            None | Some([]) => Ok(None),
            Some([value]) => {
                let text = std::str::from_utf8(value).map_err(|_| malformed())?;
                let text = text.trim_matches([' ', '\t']);
                if text.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~')) {
                    Ok(Some(text))
                } else {
                    Err(malformed())
                }
            }
            Some(_) => Err(malformed()),
        }
    }

    /// The value of a header that may be sent in base64 (B-24).
    ///
    /// # Errors
    /// As [`Headers::one`], or what is marked as base64 is none of UTF-8.
    pub fn decoded(&self, name: &str) -> Result<Option<Cow<'_, str>>, Rule> {
        let Some(text) = self.one(name)? else {
            return Ok(None);
        };
        let Some(inner) = text
            .strip_prefix(BASE64_START)
            .and_then(|rest| rest.strip_suffix(BASE64_END))
        else {
            return Ok(Some(Cow::Borrowed(text)));
        };
        let bytes = BASE64_STANDARD.decode(inner).ok();
        match bytes.and_then(|bytes| String::from_utf8(bytes).ok()) {
            Some(value) => Ok(Some(Cow::Owned(value))),
            None => Err(Rule::HeaderMalformed {
                header: name.to_owned(),
            }),
        }
    }

    /// Checks a header that must say exactly what the body says.
    ///
    /// # Errors
    /// It is absent, malformed or says something else.
    pub(crate) fn must_say(&self, name: &str, body: &str) -> Result<(), Rule> {
        match self.decoded(name)? {
            None => Err(Rule::HeaderMissing {
                header: name.to_owned(),
            }),
            Some(value) if value == body => Ok(()),
            Some(_) => Err(Rule::HeaderMismatch {
                header: name.to_owned(),
            }),
        }
    }
}

/// The parameter that `Mcp-Name` mirrors in requests of a method (B-21, C-46).
pub(crate) fn named_by(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    }
}

/// A value as it stands in a header: as it is, or in base64 when a header cannot hold it or a reader would take it
/// for base64 (B-24).
pub(crate) fn encoded(value: &str) -> String {
    let is_plain = value.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && !value.starts_with(' ')
        && !value.ends_with(' ')
        && !value.starts_with(BASE64_START);
    if is_plain {
        value.to_owned()
    } else {
        format!("{BASE64_START}{}{BASE64_END}", BASE64_STANDARD.encode(value))
    }
}

const BASE64_START: &str = "=?base64?";
const BASE64_END: &str = "?=";

/// An argument that a tool's schema mirrors into a header (`x-mcp-header`, B-25).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    header: String,
    path: Vec<String>,
}

/// Why a schema's `x-mcp-header` cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadMirror {
    /// The name is no token of RFC 9110.
    #[error("`x-mcp-header` of `{property}` is no header token")]
    NotAToken {
        /// The property.
        property: String,
    },
    /// Two properties name one header, ignoring case.
    #[error("`x-mcp-header` of `{property}` is taken by another property")]
    Duplicate {
        /// The second property.
        property: String,
    },
    /// The property is no string, integer or boolean.
    #[error("`x-mcp-header` of `{property}` needs type string, integer or boolean")]
    NotPrimitive {
        /// The property.
        property: String,
    },
    /// The schema is no object.
    #[error("schema is no object")]
    NotASchema,
}

/// The mirrored arguments of a tool's input schema. Only what is reachable from the root by `properties` alone
/// counts.
///
/// # Errors
/// The first annotation that breaks a rule of B-25.
pub fn mirrors(schema: &Raw) -> Result<Vec<Mirror>, BadMirror> {
    let schema: Value = schema.read().map_err(|_| BadMirror::NotASchema)?;
    let mut found = Vec::new();
    let mut open = vec![(Vec::<String>::new(), &schema)];
    while let Some((path, schema)) = open.pop() {
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
            continue;
        };
        for (name, property) in properties {
            let path: Vec<String> = path.iter().chain([name]).cloned().collect();
            if let Some(annotation) = property.get("x-mcp-header") {
                let mirror = mirror(&path, annotation, property)?;
                if found.iter().any(|other: &Mirror| other.header == mirror.header) {
                    return Err(BadMirror::Duplicate {
                        property: path.join("."),
                    });
                }
                found.push(mirror);
            }
            open.push((path, property));
        }
    }
    Ok(found)
}

fn mirror(path: &[String], annotation: &Value, property: &Value) -> Result<Mirror, BadMirror> {
    let is_token =
        |name: &&str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || is_mark(b));
    let Some(name) = annotation.as_str().filter(is_token) else {
        return Err(BadMirror::NotAToken {
            property: path.join("."),
        });
    };
    if !matches!(
        property.get("type").and_then(Value::as_str),
        Some("string" | "integer" | "boolean")
    ) {
        return Err(BadMirror::NotPrimitive {
            property: path.join("."),
        });
    }
    Ok(Mirror {
        header: format!("mcp-param-{}", name.to_ascii_lowercase()),
        path: path.to_vec(),
    })
}

/// The marks of an RFC 9110 token.
fn is_mark(byte: u8) -> bool {
    b"!#$%&'*+-.^_`|~".contains(&byte)
}

impl Mirror {
    /// B-26: no value, no header; a value needs its header; numbers compare by value. A value of another type
    /// than the schema's is left to the check of the arguments.
    pub(crate) fn check(&self, headers: &Headers, arguments: Option<&Raw>) -> Result<(), Rule> {
        let header = headers.decoded(&self.header)?;
        let mismatch = || {
            Err(Rule::HeaderMismatch {
                header: self.header.clone(),
            })
        };
        let value = arguments.and_then(|arguments| self.value(arguments));
        let Some(value) = value.filter(|value| value.text() != "null") else {
            return if header.is_some() { mismatch() } else { Ok(()) };
        };
        let Some(header) = header else {
            return Err(Rule::HeaderMissing {
                header: self.header.clone(),
            });
        };
        let matches = match value.text().as_bytes().first() {
            Some(b'"') => value.read::<String>().is_ok_and(|text| text == header),
            Some(b'-' | b'0'..=b'9') => {
                serde_json::from_str::<Raw>(&header).is_ok_and(|header| is_number(header.text()))
                    && canon::number(&header) == canon::number(value.text())
            }
            Some(b't' | b'f') => value.text() == header,
            Some(_) | None => true,
        };
        if matches { Ok(()) } else { mismatch() }
    }

    /// The header that these arguments need, if any (B-26). A value of another type than the schema's has none: the
    /// server refuses it for what it is.
    pub(crate) fn say(&self, arguments: &Raw) -> Option<(String, String)> {
        let value = self.value(arguments)?;
        let said = match value.text().as_bytes().first()? {
            b'"' => encoded(&value.read::<String>().ok()?),
            b'-' | b'0'..=b'9' | b't' | b'f' => value.text().to_owned(),
            _ => return None,
        };
        Some((self.header.clone(), said))
    }

    fn value(&self, arguments: &Raw) -> Option<Raw> {
        let mut value = arguments.clone();
        for name in &self.path {
            value = value.read::<Obj>().ok()?.take(name)?;
        }
        Some(value)
    }
}

fn is_number(text: &str) -> bool {
    text.starts_with(|c: char| c == '-' || c.is_ascii_digit())
}
