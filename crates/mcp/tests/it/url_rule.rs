//! Links that tools ask somebody to open: 150 of them, most of them hostile, each with its verdict.

use longhaul_mcp::url_rule::{Link, Reach};
use proptest::prelude::{ProptestConfig, prop_assert, prop_assert_eq, proptest};
use serde_json::Value;

/// Each line: the link, then what is shown of it or the rule it breaks, for a public reach and for this machine's.
/// One verdict stands for both.
const LINKS: &str = include_str!("../links.jsonl");

fn verdict(text: &str, reach: Reach) -> String {
    match Link::parse(text, reach) {
        Ok(link) => link.as_str().to_owned(),
        Err(rule) => format!("{rule:?}"),
    }
}

// T5, S11
#[test]
fn a_link_is_shown_as_browsers_write_it_or_breaks_the_rule_that_is_named() {
    let (mut hostile, mut wrong) = (0, Vec::new());
    for line in LINKS.lines() {
        let line: Vec<String> = serde_json::from_str(line).expect("a list of texts");
        let [text, public, here @ ..] = &*line else {
            panic!("{line:?}");
        };
        let here = here.first().unwrap_or(public);
        for (reach, expected) in [(Reach::Public, public), (Reach::ThisMachine, here)] {
            let found = verdict(text, reach);
            if found != *expected {
                wrong.push(format!("{text:?} {reach:?}: {found}, not {expected}"));
            }
        }
        hostile += usize::from(!public.contains("://"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(hostile >= 76, "{hostile}");
}

#[test]
fn the_length_counts_before_and_after_it_is_written_again() {
    let long = |len: usize, filling: &str| {
        let start = "https://a.example.com/";
        format!("{start}{}", filling.repeat(len - start.len()))
    };
    assert_eq!(verdict(&long(2048, "x"), Reach::Public), long(2048, "x"));
    assert_eq!(verdict(&long(2049, "x"), Reach::Public), "TooLong");
    assert_eq!(verdict(&long(1000, "<"), Reach::Public), "TooLong");
}

#[test]
fn the_host_is_that_of_what_is_shown() {
    let link = Link::parse("https://A.Example.com:443/@b.example.com", Reach::Public).expect("a good link");
    assert_eq!(link.host(), "a.example.com");
    let link = Link::parse("http://[::1]:8080/", Reach::ThisMachine).expect("a good link");
    assert_eq!(link.host(), "[::1]");
}

/// Each message fits after "a link must be".
#[test]
fn every_rule_says_what_a_link_must_be() {
    let mut rules: Vec<String> = Vec::new();
    for line in LINKS.lines() {
        let line: Value = serde_json::from_str(line).expect("JSON");
        if let Err(rule) = Link::parse(line[0].as_str().expect("a text"), Reach::Public) {
            rules.push(format!("{rule:?}: a link must be {rule}"));
        }
    }
    rules.sort();
    rules.dedup();
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    assert_eq!(
        rules,
        [
            "Address: a link must be to a name, not to an address",
            "Label: a link must be to a plain host name",
            "LookAlike: a link must be to a name that looks like no other",
            "NotAUrl: a link must be a URL with a host",
            "NotPublic: a link must be to a public host name",
            "Port: a link must be without a port",
            "Scheme: a link must be one that begins with `https://` and a host",
            "Unwritable: a link must be without spaces, control characters and backslashes",
            "UserInfo: a link must be without a user name",
        ]
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]

    // G-30
    #[test]
    fn a_name_beyond_ascii_reads_the_same_when_it_is_read_again(
        encoded in "(xn--[a-z0-9-]{0,24}\\.){1,2}[a-z]{2,4}",
        spelt in "[a-zA-Z0-9à-žͰ-Ͽа-яא-ת一-丿\u{300}-\u{33f}-]{1,12}\\.[a-zрф]{2,4}",
    ) {
        for name in [encoded, spelt] {
            let Ok(link) = Link::parse(&format!("https://{name}/"), Reach::Public) else {
                continue;
            };
            let shown = Link::parse(link.as_str(), Reach::Public);
            prop_assert_eq!(shown.as_ref(), Ok(&link));
            prop_assert!(link.host().ends_with(link.site()));
            if let Some(spelt) = link.spelt() {
                let again = Link::parse(&format!("https://{spelt}/"), Reach::Public);
                prop_assert_eq!(again.as_ref(), Ok(&link), "{}", spelt);
            }
        }
    }
}
