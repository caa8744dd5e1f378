//! Forms that ask for a secret, and forms that only look so (A-74, G-29): `corpora/` has them, written by somebody who
//! did not know the code.

use longhaul_gateway::outbound::{self, Question, Unasked};
use longhaul_mcp::{frame::Raw, url_rule::Reach};
use serde_json::Value as Json;

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
    assert!(forms.len() >= 120);
    let shown: Vec<&Json> = forms
        .iter()
        .filter(|form| asked(form).is_ok())
        .map(|form| &form["name"])
        .collect();
    assert!(shown.is_empty(), "shown: {shown:?}");
    // A form may also break the rules of forms; most of these do not.
    let unlawful = forms
        .iter()
        .filter(|form| matches!(asked(form), Err(Unasked::Form(_))))
        .count();
    assert!(unlawful <= 12, "{unlawful}");
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
