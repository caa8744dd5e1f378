//! Whether a link may be shown to a person: what can be told from its text alone (T5, S11).
//!
//! `outbound` calls it for each link that a tool asks somebody to open, and the local page before it makes one of it.
//! A link is read by the parser that browsers have, and only what that parser writes again is ever shown. The rule
//! resolves no name and opens nothing: a name of the public kind that leads to a private address passes.

use std::net::{Ipv4Addr, Ipv6Addr};

use thiserror::Error;
use url::{Host, ParseError, Url};

/// The longest link, in bytes, as it comes and as it is written again.
pub const LINK_BYTES_MAX: usize = 2048;

/// Last labels of names that lead nowhere public (RFC 6761, 6762, 7686, 8375, 9476, ICANN's `internal`, and the
/// names that home and office networks use).
const NOT_PUBLIC: &[&str] = &[
    "localhost",
    "localdomain",
    "local",
    "internal",
    "intranet",
    "private",
    "home",
    "lan",
    "corp",
    "arpa",
    "test",
    "invalid",
    "example",
    "onion",
    "alt",
];

/// How a label begins that stands for a name beyond ASCII.
const ENCODED: &str = "xn--";

/// How far a link may lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// To public names, by https.
    Public,
    /// Also to this machine's own loopback addresses, at any port and by http: for a user of this machine.
    ThisMachine,
}

/// A link that may be shown, as it is written again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    url: Url,
    host: String,
}

/// The rule that a link breaks; each fits after "a link must be".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadLink {
    /// Longer than [`LINK_BYTES_MAX`].
    #[error("at most 2048 bytes long")]
    TooLong,
    /// A control character, white space or a backslash, which readers drop or take for something else.
    #[error("without spaces, control characters and backslashes")]
    Unwritable,
    /// Not `https://` and a host. To a browser, `https:a` and `https:///a` are the same link.
    #[error("one that begins with `https://` and a host")]
    Scheme,
    /// Something stands before an `@` in front of the host.
    #[error("without a user name")]
    UserInfo,
    /// A name beyond ASCII, or one that stands for such a name: it can look like another.
    #[error("to a name in plain ASCII")]
    International,
    /// A label of the name is none of a host: empty, over 63 bytes, escaped, or of other characters than letters,
    /// digits and inner hyphens.
    #[error("to a plain host name")]
    Label,
    /// The parser of browsers reads no host or no port in it.
    #[error("a URL with a host")]
    NotAUrl,
    /// A port other than 443.
    #[error("without a port")]
    Port,
    /// An address in place of a name, public or not, however it is spelt.
    #[error("to a name, not to an address")]
    Address,
    /// One label, or a last label that no public name has.
    #[error("to a public host name")]
    NotPublic,
}

impl Link {
    /// Reads a link.
    ///
    /// # Errors
    /// A rule that it breaks.
    pub fn parse(text: &str, reach: Reach) -> Result<Link, BadLink> {
        if text.len() > LINK_BYTES_MAX {
            return Err(BadLink::TooLong);
        }
        if text
            .chars()
            .any(|c| c.is_control() || c.is_whitespace() || c == '\\')
        {
            return Err(BadLink::Unwritable);
        }
        let authority = authority(text, reach)?;
        if authority.contains('@') {
            return Err(BadLink::UserInfo);
        }
        check_characters(authority)?;
        let url = Url::parse(text).map_err(|error| {
            if matches!(
                error,
                ParseError::InvalidIpv4Address | ParseError::InvalidIpv6Address
            ) {
                BadLink::Address
            } else {
                BadLink::NotAUrl
            }
        })?;
        if url.as_str().len() > LINK_BYTES_MAX {
            return Err(BadLink::TooLong);
        }
        let host = url.host().ok_or(BadLink::NotAUrl)?;
        let is_here = reach == Reach::ThisMachine && is_loopback(&host);
        if !is_here {
            check_public(&url, &host)?;
        }
        let host = host.to_string();
        Ok(Link { url, host })
    }

    /// The link as it is shown and opened.
    pub fn as_str(&self) -> &str {
        self.url.as_str()
    }

    /// The host that it leads to.
    pub fn host(&self) -> &str {
        &self.host
    }
}

/// What stands between `//` and the path.
fn authority(text: &str, reach: Reach) -> Result<&str, BadLink> {
    let (scheme, rest) = text.split_once("://").ok_or(BadLink::Scheme)?;
    let is_https = scheme.eq_ignore_ascii_case("https");
    let is_http = reach == Reach::ThisMachine && scheme.eq_ignore_ascii_case("http");
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if (is_https || is_http) && !authority.is_empty() {
        Ok(authority)
    } else {
        Err(BadLink::Scheme)
    }
}

/// Readers differ about hosts that are escaped or beyond ASCII, so the parser never sees one.
fn check_characters(authority: &str) -> Result<(), BadLink> {
    let is_encoded = |label: &str| {
        let start = label.get(..ENCODED.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(ENCODED))
    };
    if !authority.is_ascii() || authority.split('.').any(is_encoded) {
        return Err(BadLink::International);
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-.:[]".contains(&byte);
    if authority.bytes().all(is_plain) {
        Ok(())
    } else {
        Err(BadLink::Label)
    }
}

fn is_loopback(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => *name == "localhost" || name.ends_with(".localhost"),
        Host::Ipv4(address) => Ipv4Addr::is_loopback(address),
        Host::Ipv6(address) => Ipv6Addr::is_loopback(address),
    }
}

fn check_public(url: &Url, host: &Host<&str>) -> Result<(), BadLink> {
    if url.scheme() != "https" {
        return Err(BadLink::Scheme);
    }
    // The parser leaves 443 out.
    if url.port().is_some() {
        return Err(BadLink::Port);
    }
    let Host::Domain(name) = host else {
        return Err(BadLink::Address);
    };
    let labels: Vec<&str> = name.split('.').collect();
    if name.len() > 253 || !labels.iter().all(|label| is_label(label)) {
        return Err(BadLink::Label);
    }
    let last = labels.last().copied().unwrap_or_default();
    if labels.len() < 2 || !last.bytes().all(|byte| byte.is_ascii_lowercase()) || NOT_PUBLIC.contains(&last) {
        return Err(BadLink::NotPublic);
    }
    Ok(())
}

/// The parser has made capitals small.
fn is_label(label: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&label.len())
        && label.bytes().all(inner)
        && !label.starts_with('-')
        && !label.ends_with('-')
}
