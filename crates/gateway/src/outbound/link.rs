//! Whether a link may be shown to a person: what can be told from its text alone.
//!
//! `outbound` calls it for each link that a tool asks somebody to open. The grammar is narrower than that of URLs,
//! so that no two parsers read another host in it. It resolves no name and opens nothing: a name that leads to a
//! private address passes.

/// The longest link, in bytes.
pub(super) const LINK_BYTES_MAX: usize = 2048;

/// Last labels of names that lead nowhere public.
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

/// Checks a link (semantics of URL-mode questions, the part without a resolver).
///
/// # Errors
/// What the link must be.
pub(super) fn check(link: &str) -> Result<(), &'static str> {
    if link.len() > LINK_BYTES_MAX {
        return Err("at most 2048 bytes long");
    }
    if !link.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') {
        return Err("ASCII without spaces and backslashes");
    }
    let rest = link
        .strip_prefix("https://")
        .ok_or("one that begins with `https://`")?;
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if host.contains('@') {
        return Err("without a user name");
    }
    if host.contains(':') {
        return Err("without a port");
    }
    let labels: Vec<&str> = host.split('.').collect();
    if !labels.iter().all(|label| is_label(label)) {
        return Err("one with a plain host name");
    }
    // A number as the last label makes an address of the host.
    let last = labels.last().copied().unwrap_or_default();
    if labels.len() < 2 || !last.bytes().all(|byte| byte.is_ascii_lowercase()) || NOT_PUBLIC.contains(&last) {
        return Err("one to a public host name, in lower case");
    }
    Ok(())
}

/// Encoded names (`xn--`) can look like another name, so none is a label here.
fn is_label(label: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&label.len())
        && label.bytes().all(inner)
        && !label.starts_with('-')
        && !label.ends_with('-')
        && !label.starts_with("xn--")
}
