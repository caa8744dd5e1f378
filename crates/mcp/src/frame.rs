//! JSON-RPC frames whose members keep their order, their spelling and their digits.
//!
//! Both generations read and write frames through this module. It never builds a tree of a payload: what was
//! scanned is what is relayed (E-2). It says nothing about MCP.

use std::fmt;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

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

    /// `value` as JSON.
    ///
    /// # Errors
    /// `value` has no JSON form (a map whose keys are no strings).
    pub fn of(value: &(impl Serialize + ?Sized)) -> Result<Raw, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(Raw)
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
