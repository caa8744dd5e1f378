//! Forms and their answers: a form that is accepted is the same form again when it was sent, and it takes exactly
//! the answers that a JSON Schema validator takes.
//!
//! An input is the `params` of an `elicitation/create` on the first line, and a result after it.

use jsonschema::Draft;
use longhaul_mcp::{
    form::{Answer, Fit, Form, Format, Kind, Misfit, Unfit},
    frame::Raw,
    scan::{self, Limits},
};
use serde_json::{Value, json};

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    let (params, result) = bytes.split_at(end.unwrap_or(bytes.len()));
    let Some(params) = scanned(params) else { return };
    let answer = scanned(result).map(|result| (Answer::parse(&result), result));
    if let Some((answer, result)) = &answer {
        check_result(answer.as_ref().ok(), result);
    }
    let Ok(form) = Form::parse(&params) else { return };
    let sent = form.params();
    scan::payload(sent.text().as_bytes(), &Limits::default()).expect("what is sent passes the scan");
    assert_eq!(
        Form::parse(&sent).as_ref(),
        Ok(&form),
        "the form that is sent is another: {}",
        sent.text()
    );
    for easy in [Answer::Decline, Answer::Dismiss] {
        assert!(form.check(&easy).is_ok());
    }
    if let Some((Ok(Answer::Accept(Some(content))), _)) = answer {
        check_answer(&form, &sent, content);
    }
}

/// As every payload comes in: through the scan.
fn scanned(bytes: &[u8]) -> Option<Raw> {
    let text = scan::payload(bytes, &Limits::default()).ok()?.text();
    Raw::parse(text).ok()
}

/// An `ElicitResult` is read as it stands.
fn check_result(answer: Option<&Answer>, result: &Raw) {
    let Ok(tree) = result.read::<Value>() else { return };
    let word = match answer {
        None => return,
        Some(Answer::Accept(content)) => {
            assert_eq!(content.is_some(), tree.get("content").is_some());
            "accept"
        }
        Some(Answer::Decline) => "decline",
        Some(Answer::Dismiss) => "cancel",
    };
    assert_eq!(tree["action"], word);
}

fn check_answer(form: &Form, sent: &Raw, content: Raw) {
    let Ok(tree) = content.read::<Value>() else { return };
    let ours = form.check(&Answer::Accept(Some(content.clone())));
    if let Ok(fit) = &ours {
        assert_eq!(fit, &Fit::Accept(content), "an answer is kept as it was sent");
    }
    let params: Value = sent.read().expect("what is sent is finite");
    let schema = strict(form, &params["requestedSchema"]);
    let validator = jsonschema::options()
        .with_draft(Draft::Draft202012)
        .should_validate_formats(true)
        .build(&schema)
        .unwrap_or_else(|error| panic!("what is sent is no schema: {error}: {schema}"));
    let theirs = validator.is_valid(&tree);
    if let Err(Misfit {
        why: Unfit::MustBe(what),
        field,
    }) = &ours
        && is_stricter(what, tree[field].as_str().unwrap_or_default())
    {
        return;
    }
    assert_eq!(ours.is_ok(), theirs, "{ours:?}: {schema} {tree}");
}

/// The schema of a form with what only its reader knows: no other field, each choice once. Mail addresses are left
/// out: ours may hold letters of every script, and what else `email` forbids, only mail can tell.
fn strict(form: &Form, schema: &Value) -> Value {
    let mut schema = schema.clone();
    schema["additionalProperties"] = json!(false);
    for field in form.fields() {
        let property = &mut schema["properties"][&field.name];
        match &field.kind {
            Kind::Choices { .. } => property["uniqueItems"] = json!(true),
            Kind::Text {
                format: Some(Format::Email),
                ..
            } => property["format"] = json!("x-email"),
            Kind::Text { .. } | Kind::Number { .. } | Kind::Boolean | Kind::Choice(_) => {}
        }
    }
    schema
}

/// Where we refuse what a validator takes.
fn is_stricter(must_be: &str, text: &str) -> bool {
    match must_be {
        "a mail address" => !is_plain_email(text),
        // A scheme and nothing behind it.
        "a URI" => text.ends_with(':'),
        _ => false,
    }
}

/// Of what every reader takes for a mail address.
fn is_plain_email(text: &str) -> bool {
    let is_word = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    text.len() < 64
        && text
            .split_once('@')
            .is_some_and(|(name, host)| is_word(name) && host.split('.').all(is_word))
}
