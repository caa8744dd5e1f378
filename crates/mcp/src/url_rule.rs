//! Whether a link may be shown to a person: what can be told from its text alone (T5, S11).
//!
//! `outbound` calls it for each link that a tool asks somebody to open, and the local page before it makes one of it.
//! A link is read by the parser that browsers have, and only what that parser writes again is ever shown. The rule
//! resolves no name and opens nothing: a name of the public kind that leads to a private address passes.

use std::net::{Ipv4Addr, Ipv6Addr};

use thiserror::Error;
use unicode_normalization::{UnicodeNormalization, char::canonical_combining_class};
use unicode_security::{GeneralSecurityProfile, MixedScript, skeleton};
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
    "i2p",
    "consul",
    "svc",
    "mail",
];

/// Public names of the services that tell a machine of a cloud its own secrets; names below them, too.
const METADATA: &[&str] = &[
    "metadata.goog",
    "metadata.tencentyun.com",
    "metadata.platformequinix.com",
    "metadata.packet.net",
    "metadata.cloud.ibm.com",
];

/// How a label begins that stands for a name beyond ASCII.
const ENCODED: &str = "xn--";

/// Letters that older readers take for other ones: a name with them has two readings.
const TWO_READINGS: &[char] = &['ß', 'ς', '\u{200c}', '\u{200d}'];

/// The combining class of marks below a letter, and the least one of marks that are no part of their script's letters.
const BELOW: u8 = 220;
const MARK: u8 = 200;

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
    spelt: Option<String>,
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
    /// A name beyond ASCII that looks like another: of letters of several scripts, of letters that all look like ASCII
    /// ones, of letters that no language writes, or of one that is not written as browsers write it.
    #[error("to a name that looks like no other")]
    LookAlike,
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
    /// One label, a last label that no public name has, or a name of a cloud's metadata service.
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
        let spelt = match host {
            Host::Domain(name) => spelt(authority, name)?,
            Host::Ipv4(_) | Host::Ipv6(_) => None,
        };
        let host = host.to_string();
        Ok(Link { url, host, spelt })
    }

    /// The link as it is shown and opened.
    pub fn as_str(&self) -> &str {
        self.url.as_str()
    }

    /// The host that it leads to, in ASCII.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The host in its own letters, where it has some beyond ASCII: whoever is shown it is to be warned.
    pub fn spelt(&self) -> Option<&str> {
        self.spelt.as_deref()
    }

    /// The part of the host that somebody registered, such as `example.co.uk` of `login.example.co.uk`; the whole host
    /// where nothing was. Who has it decides about all names below it.
    pub fn site(&self) -> &str {
        match self.url.domain() {
            Some(name) => psl::domain_str(name).unwrap_or(name),
            None => &self.host,
        }
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

/// Readers differ about hosts that are escaped, so the parser never sees one; nor does it see signs that it would take
/// for others.
fn check_characters(authority: &str) -> Result<(), BadLink> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-.:[]".contains(c);
    match authority.chars().find(|c| !is_plain(*c)) {
        None => Ok(()),
        Some(c) if c.is_ascii() => Err(BadLink::Label),
        Some(_) => {
            let is_letter = |c: char| is_plain(c) || c.identifier_allowed();
            let fits = authority.chars().all(is_letter);
            fits.then_some(()).ok_or(BadLink::LookAlike)
        }
    }
}

/// The name in its own letters; `None` where they are all ASCII.
fn spelt(authority: &str, name: &str) -> Result<Option<String>, BadLink> {
    let (spelt, read) = idna::domain_to_unicode(name);
    if read.is_err() {
        return Err(BadLink::LookAlike);
    }
    if !spelt.split('.').all(looks_like_itself) {
        return Err(BadLink::LookAlike);
    }
    // What the parser had to replace is one thing to who reads it, and another to who opens it.
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    let written = host.to_lowercase();
    let mut labels = written.trim_end_matches('.').split('.').zip(spelt.split('.'));
    if !host.is_ascii() && !labels.all(|(written, spelt)| written.starts_with(ENCODED) || written == spelt) {
        return Err(BadLink::LookAlike);
    }
    Ok((!spelt.is_ascii()).then_some(spelt))
}

/// Whether a label cannot well be taken for another one.
fn looks_like_itself(label: &str) -> bool {
    if label.is_ascii() {
        // One that does not decode stays encoded.
        return !label.starts_with(ENCODED);
    }
    let is_allowed = |c: char| c == '-' || (c.identifier_allowed() && !TWO_READINGS.contains(&c));
    // The line under a link hides what stands below a letter, and a mark of its own is easily overlooked.
    let is_marked = label.chars().any(|c| canonical_combining_class(c) >= MARK)
        || label.nfd().any(|c| canonical_combining_class(c) == BELOW);
    label.chars().all(is_allowed)
        && !is_marked
        && label.is_single_script()
        && !skeleton(label).all(|c| c.is_ascii())
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
    let is_word = last.bytes().all(|byte| byte.is_ascii_lowercase()) || last.starts_with(ENCODED);
    let is_metadata = METADATA.iter().any(|known| is_or_is_below(name, known));
    if labels.len() < 2 || !is_word || NOT_PUBLIC.contains(&last) || is_metadata {
        return Err(BadLink::NotPublic);
    }
    Ok(())
}

fn is_or_is_below(name: &str, known: &str) -> bool {
    let rest = name.strip_suffix(known);
    rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// The parser has made capitals small.
fn is_label(label: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&label.len())
        && label.bytes().all(inner)
        && !label.starts_with('-')
        && !label.ends_with('-')
}
