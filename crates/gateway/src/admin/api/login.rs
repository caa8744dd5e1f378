//! Logins at servers behind this one, as the command line reads them.

use serde::{Deserialize, Serialize};

/// The server that a login or a logout is about.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct At {
    /// Its name, or its address.
    pub server: String,
}

/// A login that was begun.
#[derive(Clone, Serialize, Deserialize)]
pub struct Login {
    /// Names it.
    pub id: String,
    /// What to open in a browser.
    pub url: String,
    /// The same, as a browser is started with it: works once.
    pub opened: String,
    /// Where the person logs in: text from outside.
    pub issuer: String,
    /// How long the browser may take.
    pub valid_ms: u64,
}

/// How far a login is: as long as neither `issuer` nor `failed` is there, the browser has not come back.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LoginProgress {
    /// It is done, at this authorization server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// How long the access lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
    /// It is refreshed then, without anybody.
    #[serde(default)]
    pub is_refreshed: bool,
    /// Why it came to nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// What a logout did.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoggedOut {
    /// There were tokens.
    pub was_logged_in: bool,
    /// The authorization server knows that they are over.
    pub is_revoked: bool,
}
