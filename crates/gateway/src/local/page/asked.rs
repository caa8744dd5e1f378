//! What a question looks like on the local page: who asks, in our words, and what the tool asks, set apart from them
//! (G-31, S11). Pure: data in, markup out.

use std::collections::BTreeMap;

use longhaul_mcp::{
    clean,
    url_rule::{Link, Reach},
};
use maud::{Markup, html};

use super::show::{self, notice, span, text};
use crate::{
    admin::api::{Question, Task},
    local::{
        form::{self, Choice, Field, Kind},
        links::Visit,
    },
    outbound::MESSAGE_CHARS_MAX,
};

/// Choices up to this number are shown as buttons, more as a list that opens.
const RADIOS_MAX: usize = 6;

/// What stands on the page of questions besides them.
#[derive(Default)]
pub(super) struct Page<'a> {
    /// What was done.
    pub(super) said: Option<&'static str>,
    /// What was not done.
    pub(super) warned: Option<&'static str>,
    /// An answer that did not fit, and what was typed.
    pub(super) wrong: Option<(&'a Wrong, &'a BTreeMap<String, Vec<String>>)>,
}

impl Page<'_> {
    pub(super) fn said(said: Option<&'static str>) -> Self {
        Page {
            said,
            ..Page::default()
        }
    }

    pub(super) fn warned(warned: &'static str) -> Self {
        Page {
            warned: Some(warned),
            ..Page::default()
        }
    }
}

/// An answer that did not fit.
pub(super) struct Wrong {
    pub(super) question: String,
    pub(super) field: Option<String>,
    pub(super) message: String,
}

pub(super) fn page(visit: &Visit, task: &Task, shown: &Page<'_>) -> Markup {
    let title = match (shown.wrong, shown.warned) {
        (Some(_), _) => format!("Does not fit · {} asks", text(&task.tool)),
        (None, Some(_)) => format!("Too late · {} asks", text(&task.tool)),
        (None, None) => format!("{} asks", text(&task.tool)),
    };
    let count = task.questions.len();
    show::page(
        &title,
        None,
        html! {
            p { a href="/" { "← All tasks" } }
            (notice(shown.said))
            @if let Some(warned) = shown.warned { p.notice.warn role="alert" { (warned) } }
            @if task.questions.is_empty() {
                h1 { (text(&task.tool)) }
                (asker(task))
                p { "Nothing is asked at the moment. " a href=(format!("/tasks/{}", task.name)) { "See the task." } }
            } @else {
                h1 { (text(&task.tool)) " asks" }
                (asker(task))
                @if count > 1 { p { "It asks " (count) " questions. Each is answered by itself." } }
                p.muted { "What stands beside a bar comes from the tool, and so do the fields. Never type a password or a key here." }
            }
            @for (at, question) in task.questions.iter().enumerate() {
                @if count > 1 { h2 { "Question " (at + 1) " of " (count) } }
                @let wrong = shown.wrong.filter(|(wrong, _)| wrong.question == question.key);
                (one_question(visit, task, question, wrong))
            }
        },
    )
}

/// Who asks, as Longhaul knows it (G-31).
pub(super) fn asker(task: &Task) -> Markup {
    html! {
        p.asker {
            @if let Some(server) = &task.server { "Server " strong { (text(server)) } " · task " } @else { "Task " }
            a href=(format!("/tasks/{}", task.name)) { code { (task.name) } }
            " · called by " strong { (text(task.caller())) }
        }
    }
}

/// The tool's own words, set apart from ours (S11).
pub(super) fn words(question: &Question) -> Markup {
    html! { blockquote.message { (clean(&question.message, MESSAGE_CHARS_MAX)) } }
}

/// The name of the field's input: apart from the form's own, so that no tool can name a field `form_token`.
pub(super) fn input_name(field: &Field) -> String {
    format!("f.{}", field.name)
}

fn one_question(
    visit: &Visit,
    task: &Task,
    question: &Question,
    wrong: Option<(&Wrong, &BTreeMap<String, Vec<String>>)>,
) -> Markup {
    let fields = question.form.as_deref().map(form::fields).unwrap_or_default();
    // Without a form of its own, a question has this field.
    let is_plain = matches!(fields.as_slice(), [only] if only.label == "answer");
    let kept = wrong.map(|(_, typed)| typed);
    let wrong = wrong.map(|(wrong, _)| wrong);
    html! {
        form.card.ask method="post" action=(format!("/ask/{}", task.name)) {
            input type="hidden" name="form_token" value=(visit.form_token);
            input type="hidden" name="question" value=(question.key);
            (words(question))
            @if let Some(wrong) = wrong {
                p.notice.bad role="alert" { "This does not fit: " (text(&wrong.message)) (tries(question)) }
            }
            @if let Some(url) = &question.url { (address(url, question)) }
            @for field in &fields {
                @let shown = kept.map_or(&field.default, |kept| kept.get(&input_name(field)).unwrap_or(EMPTY));
                @let bad = wrong.is_some_and(|wrong| wrong.field.as_deref() == Some(&field.name));
                @let label = if is_plain { "Your answer" } else { &field.label };
                (input(&question.key, field, label, shown, bad))
            }
            div.actions {
                button.primary name="action" value="accept" {
                    @if fields.is_empty() { "Yes, go on" } @else { "Answer" }
                }
                button name="action" value="decline" formnovalidate { "Decline" }
                button name="action" value="dismiss" formnovalidate { "Dismiss" }
            }
            p.muted.last {
                "Open for another " (span(question.until_ms.saturating_sub(task.now_ms) / 1_000)) "."
                @if wrong.is_none() && question.misfits > 0 { " An answer did not fit before." (tries(question)) }
            }
        }
    }
}

/// How often an answer may still not fit.
fn tries(question: &Question) -> &'static str {
    match question.misfits {
        0 => "",
        1 => " After two more that do not fit, the question counts as declined.",
        2.. => " After one more that does not fit, the question counts as declined.",
    }
}

const EMPTY: &Vec<String> = &Vec::new();

fn input(key: &str, field: &Field, label: &str, shown: &[String], bad: bool) -> Markup {
    let (id, name) = (format!("{key}-{}", field.name), input_name(field));
    let help = format!("{id}-help");
    let one = shown.first().map_or("", String::as_str);
    let described = field.help.as_ref().map(|_| help.as_str());
    let invalid = bad.then_some("true");
    let label = html! {
        (text(label))
        @if field.required { span.muted { " (needed)" } }
    };
    let help = html! {
        @if let Some(words) = &field.help { p.muted id=(help) { (text(words)) } }
    };
    let choices = |choices: &[Choice], kind: &str| {
        html! {
            fieldset aria-describedby=[described] {
                legend { (label) }
                (help)
                @for (at, choice) in choices.iter().enumerate() {
                    div.choice {
                        input type=(kind) id=(format!("{id}-{at}")) name=(name) value=(choice.value)
                            checked[shown.contains(&choice.value)]
                            required[kind == "radio" && field.required] aria-invalid=[invalid];
                        label for=(format!("{id}-{at}")) { (text(&choice.label)) }
                    }
                }
            }
        }
    };
    html! {
        div.field {
            @match &field.kind {
                Kind::One(options) if options.len() <= RADIOS_MAX => (choices(options, "radio")),
                Kind::Several(options) => (choices(options, "checkbox")),
                Kind::One(options) => {
                    label for=(id) { (label) }
                    (help)
                    select id=(id) name=(name) required[field.required] aria-describedby=[described] aria-invalid=[invalid] {
                        option value="" { "Choose…" }
                        @for choice in options {
                            option value=(choice.value) selected[shown.contains(&choice.value)] { (text(&choice.label)) }
                        }
                    }
                },
                Kind::Check => {
                    div.choice {
                        input type="checkbox" id=(id) name=(name) value="true" checked[one == "true"]
                            aria-describedby=[described] aria-invalid=[invalid];
                        label for=(id) { (label) }
                    }
                    (help)
                },
                Kind::Number { whole, min, max } => {
                    label for=(id) { (label) }
                    (help)
                    input type="number" id=(id) name=(name) value=(one) min=[min.as_ref()] max=[max.as_ref()]
                        step=(if *whole { "1" } else { "any" }) required[field.required]
                        aria-describedby=[described] aria-invalid=[invalid];
                },
                Kind::Text { min, max, format } => {
                    label for=(id) { (label) }
                    (help)
                    input type=(input_type(format.as_deref())) id=(id) name=(name) value=(one)
                        minlength=[min] maxlength=[max] required[field.required] autocomplete="off"
                        aria-describedby=[described] aria-invalid=[invalid];
                },
                Kind::List(_) | Kind::Json => {
                    label for=(id) { (label) }
                    (help)
                    // A line break of its own: browsers drop the first one of a text area.
                    textarea id=(id) name=(name) rows="4" required[field.required]
                        aria-describedby=[described] aria-invalid=[invalid] { "\n" (shown.join("\n")) }
                    @if matches!(field.kind, Kind::List(_)) { p.muted { "One value on each line." } }
                },
            }
        }
    }
}

fn input_type(format: Option<&str>) -> &'static str {
    match format {
        Some("email") => "email",
        Some("uri") => "url",
        Some("date") => "date",
        Some(_) | None => "text",
    }
}

/// An address in full, with the part that somebody registered set apart; a link only when it may be one (A-79, G-30).
/// Who reads the page sits at this machine.
fn address(url: &str, question: &Question) -> Markup {
    let link = Link::parse(url, Reach::ThisMachine)
        .ok()
        .filter(|link| link.as_str() == url);
    html! {
        @match link {
            None => p { code { (text(url)) } },
            Some(link) => {
                @let (before, after) = around(link.as_str(), link.site());
                p { code.url { (before) strong { (link.site()) } (after) } }
                @if let Some(warning) = &question.warning { p.notice.warn { (text(warning)) } }
                p {
                    a.button href=(link.as_str()) target="_blank" rel="noopener noreferrer" {
                        "Open " strong { (link.site()) } " in a new tab"
                    }
                }
            }
        }
        p.muted { "Nothing is opened for you. “Yes, go on” tells the tool that you have seen the address." }
    }
}

/// What stands before and after the site of a link.
fn around<'a>(url: &'a str, site: &str) -> (&'a str, &'a str) {
    let authority = url.find("://").map_or(0, |at| at + 3);
    let end = url[authority..].find('/').map_or(url.len(), |at| authority + at);
    match url[authority..end].rfind(site) {
        Some(at) => (&url[..authority + at], &url[authority + at + site.len()..]),
        None => (url, ""),
    }
}
