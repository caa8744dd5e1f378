//! The rule of links: what passes is a link that browsers would open as it stands, to a public name or to this
//! machine, and the rule takes its own result again.

use std::net::{Ipv4Addr, Ipv6Addr};

use longhaul_mcp::url_rule::{LINK_BYTES_MAX, Link, Reach};
use url::{Host, Url};

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let public = Link::parse(text, Reach::Public);
    let here = Link::parse(text, Reach::ThisMachine);
    if let Ok(link) = &public {
        assert_eq!(here.as_ref(), Ok(link), "a wider reach takes less");
        check(link, Reach::Public);
        check_public_name(link);
    }
    if let Ok(link) = &here {
        check(link, Reach::ThisMachine);
        if public.is_err() {
            check_this_machine(link);
        }
    }
}

fn check(link: &Link, reach: Reach) {
    let shown = link.as_str();
    assert!(shown.len() <= LINK_BYTES_MAX);
    assert!(
        shown.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\'),
        "{shown}"
    );
    assert_eq!(
        Link::parse(shown, reach).as_ref(),
        Ok(link),
        "what is shown is judged otherwise"
    );
    let url = Url::parse(shown).expect("what is shown is a URL");
    assert_eq!(url.as_str(), shown, "browsers write it otherwise");
    assert_eq!((url.username(), url.password()), ("", None));
    assert_eq!(url.host_str(), Some(link.host()));
    // A reader with no more than a split must see the same host.
    let after = shown.split_once("://").map_or("", |(_, rest)| rest);
    let authority = after.split('/').next().unwrap_or_default();
    let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
    assert_eq!(authority, format!("{}{port}", link.host()));
}

fn check_public_name(link: &Link) {
    assert!(link.as_str().starts_with("https://"));
    let host = link.host();
    let labels: Vec<&str> = host.split('.').collect();
    assert!(labels.len() >= 2 && host.len() <= 253, "{host}");
    for label in &labels {
        assert!((1..=63).contains(&label.len()), "{host}");
        assert!(
            label
                .bytes()
                .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-')),
            "{host}"
        );
    }
    // A name beyond ASCII is known by how it is spelt, and no label of it reads as one in ASCII.
    let is_encoded = labels.iter().any(|label| label.starts_with("xn--"));
    assert_eq!(link.spelt().is_some(), is_encoded, "{host}");
    for (label, spelt) in labels.iter().zip(link.spelt().unwrap_or(host).split('.')) {
        assert_eq!(label.starts_with("xn--"), !spelt.is_ascii(), "{host}");
    }
    assert!(host.ends_with(link.site()) && !link.site().is_empty(), "{host}");
    assert!(host.parse::<Ipv4Addr>().is_err());
    let last = labels.last().copied().unwrap_or_default();
    let private = [
        "localhost",
        "local",
        "internal",
        "home",
        "lan",
        "corp",
        "arpa",
        "test",
        "invalid",
        "onion",
    ];
    assert!(
        !private.contains(&last)
            && (last.starts_with("xn--") || last.bytes().all(|byte| byte.is_ascii_alphabetic())),
        "{host}"
    );
}

fn check_this_machine(link: &Link) {
    let url = Url::parse(link.as_str()).expect("what is shown is a URL");
    assert!(matches!(url.scheme(), "http" | "https"));
    let is_loopback = match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.octets()[0] == 127,
        Some(Host::Ipv6(address)) => address == Ipv6Addr::LOCALHOST,
        None => false,
    };
    assert!(is_loopback, "{}", link.as_str());
}
