//! JSON-RPC frames whose members keep their order, their spelling and their digits.
//!
//! Both generations read and write frames through this module. It never builds a tree of a payload: what was
//! scanned is what is relayed (E-2). It says nothing about MCP.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::{
    malformed::{Malformed, Rule},
    request::RequestId,
    scan::{self, Limits, Scanned},
};

/// One JSON value as it was written. It keeps order, digits and escapes, and its `Debug` shows the length only:
/// arguments, answers and results never reach a log.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Raw(Box<RawValue>);

impl Raw {
    /// The value in `text`.
    ///
    /// # Errors
    /// `text` is not exactly one JSON value.
    pub fn parse(text: &str) -> Result<Raw, serde_json::Error> {
        serde_json::from_str(text).map(Raw)
    }

    /// The value in `bytes`.
    ///
    /// # Errors
    /// `bytes` is not exactly one JSON value in UTF-8.
    pub fn parse_bytes(bytes: &[u8]) -> Result<Raw, serde_json::Error> {
        serde_json::from_slice(bytes).map(Raw)
    }

    /// A string.
    pub fn string(text: &str) -> Raw {
        Raw::built(RawName::of(text).0)
    }

    /// `value` as JSON.
    ///
    /// # Errors
    /// `value` has no JSON form (a map whose keys are no strings).
    pub fn of(value: &(impl Serialize + ?Sized)) -> Result<Raw, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(Raw)
    }

    /// Invariant: `text` is one JSON value.
    pub(crate) fn built(text: String) -> Raw {
        Raw(RawValue::from_string(text).expect("built from JSON values"))
    }

    /// The value as it was written.
    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// The value read as a `T`; a view, never the carrier.
    ///
    /// # Errors
    /// The value is no `T`.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.text())
    }
}

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Raw({} bytes)", self.text().len())
    }
}

impl PartialEq for Raw {
    /// Equal text. Equal *values* have equal digests: see [`crate::canon`].
    fn eq(&self, other: &Raw) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Raw {}

/// A member's name as it was written, quotes and escapes included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawName(String);

impl RawName {
    /// The name without its escapes.
    pub fn unescaped(&self) -> Cow<'_, str> {
        let inner = &self.0[1..self.0.len() - 1];
        if inner.contains('\\') {
            // Invariant: a `RawName` is made from a JSON string only.
            serde_json::from_str::<String>(&self.0).map_or(Cow::Borrowed(inner), Cow::Owned)
        } else {
            Cow::Borrowed(inner)
        }
    }

    fn of(name: &str) -> RawName {
        RawName(serde_json::Value::from(name).to_string())
    }

    fn is(&self, name: &str) -> bool {
        self.unescaped() == name
    }
}

/// An object: its members in the order and spelling in which they were written (E-2).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Obj(pub Vec<(RawName, Raw)>);

impl Obj {
    /// The object in `text`.
    ///
    /// # Errors
    /// `text` is no JSON object.
    pub fn parse(text: &str) -> Result<Obj, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The member called `name`, as it was written.
    pub fn raw(&self, name: &str) -> Option<&Raw> {
        self.0
            .iter()
            .find(|(own, _)| own.is(name))
            .map(|(_, value)| value)
    }

    /// The member called `name` read as a `T`; `None` when it is absent or no `T`.
    pub fn get<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        self.raw(name).and_then(|value| value.read().ok())
    }

    /// The member called `name` as an object; `None` when it is absent or no object.
    pub fn obj(&self, name: &str) -> Option<Obj> {
        self.get(name)
    }

    /// Sets the member called `name`: in its place, or at the end when there is none. `value` must have a JSON
    /// form: no map in it has keys that are no strings.
    pub fn set(&mut self, name: &str, value: &(impl Serialize + ?Sized)) {
        self.put(name, Raw::of(value).expect("a member's value has a JSON form"));
    }

    /// As [`Obj::set`], for a value that may be large: it is not copied.
    pub fn put(&mut self, name: &str, value: Raw) {
        match self.0.iter_mut().find(|(own, _)| own.is(name)) {
            Some((_, old)) => *old = value,
            None => self.0.push((RawName::of(name), value)),
        }
    }

    /// As [`Obj::set`], unless there is no value.
    pub(crate) fn set_some(&mut self, name: &str, value: Option<&(impl Serialize + ?Sized)>) {
        if let Some(value) = value {
            self.set(name, value);
        }
    }

    pub(crate) fn has_nulls(&self) -> bool {
        self.0.iter().any(|(_, value)| value.text() == "null")
    }

    /// The members that are not null.
    pub(crate) fn without_nulls(mut self) -> Obj {
        self.0.retain(|(_, value)| value.text() != "null");
        self
    }

    /// Removes the member called `name`.
    pub fn take(&mut self, name: &str) -> Option<Raw> {
        let at = self.0.iter().position(|(own, _)| own.is(name))?;
        Some(self.0.remove(at).1)
    }

    /// Changes the member called `name` as an object. An absent member, or one that is no object, begins empty.
    pub fn edit(&mut self, name: &str, change: impl FnOnce(&mut Obj)) {
        let mut inner = self.obj(name).unwrap_or_default();
        change(&mut inner);
        self.set(name, &inner.to_raw());
    }

    /// The object as one value.
    pub fn to_raw(&self) -> Raw {
        let mut text = String::new();
        self.write(&mut text);
        Raw::built(text)
    }

    /// Appends the object's text to `out`.
    pub fn write(&self, out: &mut String) {
        // A large text is not copied while it grows. Each member has a colon and a comma.
        let members = self.0.iter();
        let length: usize = members
            .map(|(name, value)| name.0.len() + value.text().len() + 2)
            .sum();
        // The braces, and one that may close what is around it.
        out.reserve(length + 3);
        out.push('{');
        for (index, (name, value)) in self.0.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            out.push_str(&name.0);
            out.push(':');
            out.push_str(value.text());
        }
        out.push('}');
    }
}

impl<'de> Deserialize<'de> for Obj {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Obj, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Obj;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Obj, A::Error> {
                let mut members = Vec::new();
                while let Some(name) = map.next_key::<Box<RawValue>>()? {
                    members.push((RawName(name.get().to_owned()), Raw(map.next_value()?)));
                }
                Ok(Obj(members))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// A JSON-RPC frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// Wants a reply.
    Request {
        /// Echoed in the reply.
        id: RequestId,
        /// What is asked.
        method: String,
        /// `None` when the frame has no `params`, which is not the same as an empty object.
        params: Option<Obj>,
    },
    /// Wants none.
    Notification {
        /// What is told.
        method: String,
        /// `None` when the frame has no `params`.
        params: Option<Obj>,
    },
    /// The reply to a request of ours.
    Response {
        /// The id of our request, unless the sender could not read it.
        id: Option<RequestId>,
        /// The result, or the error object.
        outcome: Result<Raw, Raw>,
    },
}

impl Frame {
    /// Scans the bytes of a frame and reads it.
    ///
    /// # Errors
    /// The bytes do not pass the scan (E-1), or as [`Frame::read`].
    pub fn parse(body: &[u8], limits: &Limits) -> Result<Frame, Malformed> {
        let scanned = scan::frame(body, limits);
        Frame::read(scanned.map_err(|refused| Malformed::anonymous(Rule::Scan(refused)))?)
    }

    /// The id to answer to, if there is one.
    pub fn id(&self) -> Option<&RequestId> {
        match self {
            Frame::Request { id, .. } => Some(id),
            Frame::Notification { .. } | Frame::Response { .. } => None,
        }
    }

    /// Reads a frame. Members that JSON-RPC does not know are ignored.
    ///
    /// # Errors
    /// The shape is none of the three; the id is named when it could be read.
    pub fn read(scanned: Scanned<'_>) -> Result<Frame, Malformed> {
        let bad = |id: Option<&RequestId>, rule| {
            Err(Malformed {
                id: id.cloned(),
                rule,
            })
        };
        let text = scanned.text();
        if text.trim_start().starts_with('[') {
            return bad(None, Rule::Batch);
        }
        let Ok(mut frame) = Obj::parse(text) else {
            return bad(None, Rule::NotAnObject);
        };
        let id = match frame.raw("id") {
            None => None,
            // Who answers with an error may have read no id.
            Some(id) if id.text() == "null" && frame.raw("error").is_some() => None,
            Some(id) => match request_id(id) {
                Some(id) => Some(id),
                None => return bad(None, Rule::BadId),
            },
        };
        if frame.get::<String>("jsonrpc").as_deref() != Some("2.0") {
            return bad(id.as_ref(), Rule::NotJsonRpc2);
        }
        let is_response = frame.raw("result").is_some() || frame.raw("error").is_some();
        let method = match frame.raw("method").map(Raw::read::<String>) {
            // Two readers could take it for two things.
            Some(_) if is_response => return bad(id.as_ref(), Rule::RequestAndResponse),
            Some(Ok(method)) => method,
            Some(Err(_)) => return bad(id.as_ref(), Rule::BadMethod),
            None => {
                return match (frame.take("result"), frame.take("error"), &id) {
                    (Some(result), None, Some(_)) => Ok(Frame::Response {
                        id,
                        outcome: Ok(result),
                    }),
                    (None, Some(error), _) => Ok(Frame::Response {
                        id,
                        outcome: Err(error),
                    }),
                    _ => bad(id.as_ref(), Rule::BadMethod),
                };
            }
        };
        let params = match frame.raw("params").map(Raw::read::<Obj>) {
            None => None,
            Some(Ok(params)) => Some(params),
            Some(Err(_)) => return bad(id.as_ref(), Rule::ParamsNotAnObject),
        };
        Ok(match id {
            Some(id) => Frame::Request { id, method, params },
            None => Frame::Notification { method, params },
        })
    }
}

/// The longest id of a request or progress token, in bytes: it is kept for as long as the request is served.
const ID_BYTES_MAX: usize = 1_024;

/// Reads a string of at most [`ID_BYTES_MAX`], or an integer of up to 39 digits; `None` for anything else.
pub(crate) fn request_id(value: &Raw) -> Option<RequestId> {
    let text = value.text();
    if text.starts_with('"') {
        let id: Option<String> = value.read().ok();
        return id.filter(|id| id.len() <= ID_BYTES_MAX).map(RequestId::Text);
    }
    text.parse().ok().map(RequestId::Integer)
}
