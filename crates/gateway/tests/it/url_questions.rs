//! Links that a question asks somebody to open, most of them hostile (G-30, S11). `corpora/` has them.

use longhaul_gateway::{
    outbound::{self, Question, Unasked},
    question::Stored,
};
use longhaul_mcp::url_rule::Reach;
use serde_json::Value as Json;

struct Line {
    url: String,
    why: String,
    allowed: bool,
}

fn lines() -> Vec<Line> {
    let lines = include_str!("corpora/urls.jsonl").lines();
    let read = lines.map(|line| {
        let line: Json = serde_json::from_str(line).expect("JSON");
        let text = |name: &str| line[name].as_str().expect("a text").to_owned();
        Line {
            url: text("url"),
            why: text("why"),
            allowed: line["allowed"].as_bool().expect("a verdict"),
        }
    });
    read.collect()
}

/// What becomes of a link: not asked, or the request that a client is sent.
fn asked(url: &str) -> Result<Json, Unasked> {
    let question = Question {
        message: "Connect your account".to_owned(),
        url: Some(url.to_owned()),
        ..Question::default()
    };
    let ask = outbound::question(&question, Reach::Public, 65_536)?;
    let stored = Stored::decode(&ask.body).expect("a question of ours");
    Ok(stored.request.read().expect("JSON"))
}

#[test]
fn g_30_hostile_links_are_declined() {
    crate::support::choose_fault();
    let (_, hostile): (Vec<Line>, Vec<Line>) = lines().into_iter().partition(|line| line.allowed);
    assert!(hostile.len() >= 76, "{}", hostile.len());
    let is_shown = |line: &&Line| !matches!(asked(&line.url), Err(Unasked::Link(_)));
    let shown: Vec<(&str, &str)> = hostile
        .iter()
        .filter(is_shown)
        .map(|line| (&*line.why, &*line.url))
        .collect();
    assert!(shown.is_empty(), "shown: {shown:?}");
}

#[test]
fn g_30_harmless_links_are_shown_as_browsers_write_them() {
    let harmless: Vec<Line> = lines().into_iter().filter(|line| line.allowed).collect();
    assert!(harmless.len() >= 40, "{}", harmless.len());
    for Line { url, why, .. } in harmless {
        let request = asked(&url).unwrap_or_else(|broken| panic!("{why}: {url}: {broken}"));
        let shown = request["params"]["url"].as_str().expect("a link");
        assert_eq!(shown, url::Url::parse(&url).expect("a URL").as_str(), "{why}");
    }
}
