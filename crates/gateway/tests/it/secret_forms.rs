//! Forms that ask for a secret, and forms that only look so (A-74, G-29). `corpora/` has them.

use longhaul_gateway::outbound::{self, Question, Unasked};
use longhaul_mcp::{frame::Raw, url_rule::Reach};
use serde_json::{Value as Json, json};

/// One in so many harmless forms may be declined.
const WRONG_ONE_IN: usize = 50;

fn forms(file: &str) -> Vec<Json> {
    file.lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

/// What becomes of a form: declined, or shown.
fn asked(form: &Json) -> Result<(), Unasked> {
    let params = &form["params"];
    let question = Question {
        message: params["message"].as_str().expect("a message").to_owned(),
        form: Some(Raw::of(&params["requestedSchema"]).expect("JSON")),
        ..Question::default()
    };
    outbound::question(&question, Reach::Public, 65_536).map(drop)
}

#[test]
fn g_29_forms_that_ask_for_a_secret_are_declined() {
    crate::support::choose_fault();
    let forms = forms(include_str!("corpora/forms_secret.jsonl"));
    // What breaks the rules of forms is refused for that, before it is read.
    let (lawful, unlawful): (Vec<&Json>, Vec<&Json>) = forms.iter().partition(|form| form["legal"] != false);
    assert!(lawful.len() >= 220, "{}", lawful.len());
    let is_secret = |form: &&&Json| matches!(asked(form), Err(Unasked::Secret { .. }));
    let shown: Vec<&Json> = lawful
        .iter()
        .filter(|form| !is_secret(form))
        .map(|form| &form["name"])
        .collect();
    assert!(shown.is_empty(), "shown: {shown:?}");
    assert!(unlawful.iter().all(|form| asked(form).is_err()));
}

#[test]
fn g_29_a_word_beside_a_secret_does_not_hide_it() {
    let titled = |title: &str| {
        let schema = json!({ "type": "object", "properties": { "v": { "type": "string", "title": title } } });
        asked(&json!({ "params": { "message": "Next step", "requestedSchema": schema } }))
    };
    for title in [
        "Password (never share it)",
        "API key, do not share",
        "Second password",
        "Password box",
        "Password id",
    ] {
        assert!(matches!(titled(title), Err(Unasked::Secret { .. })), "{title}");
    }
    let said = |message: &str| {
        let schema = json!({ "type": "object", "properties": { "v": { "type": "string" } } });
        asked(&json!({ "params": { "message": message, "requestedSchema": schema } }))
    };
    assert!(matches!(
        said("Enter your password and never share it"),
        Err(Unasked::Secret { .. })
    ));
    assert!(said("What happened? Do not enter your password here").is_ok());
}

#[test]
fn g_29_harmless_forms_are_shown() {
    let forms = forms(include_str!("corpora/forms_benign.jsonl"));
    assert!(forms.len() >= 100);
    let declined: Vec<_> = forms
        .iter()
        .filter_map(|form| Some((&form["name"], asked(form).err()?)))
        .collect();
    assert!(
        declined.len() * WRONG_ONE_IN <= forms.len(),
        "declined: {declined:?}"
    );
}
