//! What the local page looks like. Pure: data in, markup out.
//!
//! Every text goes in through maud's braces, which escape it, or through [`text`], which also takes away
//! characters that change how other text is shown. Nothing here uses `PreEscaped` except the doctype.

use std::collections::BTreeMap;

use longhaul_mcp::{
    clean,
    url_rule::{Link, Reach},
};
use maud::{DOCTYPE, Markup, html};
use serde_json::Value;

use crate::{
    admin::api::{Health, Outcome, Question, State, Stop, Task, Tasks},
    local::{
        form::{self, Choice, Field, Kind},
        links::Visit,
    },
};

/// The longest line of a text from a tool, in characters.
const LINE_MAX: usize = 2_000;
/// The longest text in a table, in characters.
const SHORT_MAX: usize = 160;
/// The longest result shown, in bytes; the rest is read with the command line.
const RESULT_MAX: usize = 256 * 1024;
/// Choices up to this number are shown as buttons, more as a list that opens.
const RADIOS_MAX: usize = 6;
/// How often a page that shows open tasks is loaded again, in seconds.
const RELOAD_SECONDS: u32 = 5;

/// An answer that did not fit.
pub(super) struct Wrong {
    pub(super) question: String,
    pub(super) field: Option<String>,
    pub(super) message: String,
}

pub(super) fn overview(
    visit: &Visit,
    listed: &Tasks,
    health: &Health,
    still: bool,
    said: Option<&str>,
) -> Markup {
    let (open, ended): (Vec<&Task>, Vec<&Task>) =
        listed.tasks.iter().partition(|task| !task.state.is_settled());
    let asking: Vec<&Task> = open
        .iter()
        .copied()
        .filter(|task| !task.questions.is_empty())
        .collect();
    let reload = (!still && !open.is_empty()).then_some("/");
    page(
        "Tasks",
        reload,
        html! {
            h1.unseen { "Tasks" }
            (notice(said))
            @for problem in &health.problems {
                p.notice.warn role="status" { (text(problem)) }
            }
            @if !asking.is_empty() {
                section aria-labelledby="asking" {
                    h2 #asking { "Waiting for your answer" }
                    ul.cards {
                        @for task in &asking {
                            @for question in &task.questions {
                                li.card.ask {
                                    p.who { (text(&task.tool)) " asks" span.muted { " · " (task.name) } }
                                    p.message { (text(&question.message)) }
                                    a.button.primary href=(format!("/ask/{}", task.name)) {
                                        "Answer" span.unseen { " " (task.name) }
                                    }
                                }
                            }
                        }
                    }
                }
            }
            section aria-labelledby="open" {
                div.row {
                    h2 #open { "At work" }
                    @if !open.is_empty() { (updates(still, "/")) }
                }
                @if open.is_empty() {
                    p.muted { "Nothing is running. Start something with " code { "longhaul run TOOL" } " or from a client." }
                } @else {
                    (table(visit, &open, "Tasks that are open", true))
                }
            }
            @if !ended.is_empty() {
                section aria-labelledby="ended" {
                    h2 #ended { "Ended" }
                    (table(visit, &ended, "Tasks that have ended", false))
                    @if listed.next.is_some() {
                        p.muted { "Older ones: " code { "longhaul tasks list" } }
                    }
                }
            }
            footer {
                p.muted {
                    "Longhaul " (text(&health.version)) " · " (health.open) " open · " (health.tasks) " kept"
                    @if health.draining { " · ending: takes no new work" }
                }
            }
        },
    )
}

pub(super) fn task(
    visit: &Visit,
    task: &Task,
    outcome: Option<&Outcome>,
    still: bool,
    said: Option<&str>,
) -> Markup {
    let here = format!("/tasks/{}", task.name);
    let reload = (!still && !task.state.is_settled()).then_some(here.as_str());
    page(
        &format!("{} · {}", text(&task.tool), task.name),
        reload,
        html! {
            p { a href="/" { "← All tasks" } }
            (notice(said))
            div.row {
                h1 { (text(&task.tool)) " " span.muted { (task.name) } }
                @if !task.state.is_settled() { (updates(still, &here)) }
            }
            p {
                (state(task)) " "
                @if task.questions.is_empty() { span.muted { (now(task)) } }
            }
            (progress(task))
            @for question in &task.questions {
                div.card.ask {
                    p.message { (text(&question.message)) }
                    a.button.primary href=(format!("/ask/{}", task.name)) { "Answer" }
                }
            }
            dl {
                dt { "Age" } dd { (age(task)) }
                dt { "From" } dd { (text(task.caller())) }
                @if !task.session.is_empty() { dt { "Session" } dd { (text(&task.session)) } }
                dt { "Attempts" } dd { (task.attempts) }
                @if let Some(stop) = task.stop { dt { "Its work" } dd { (stop_words(stop)) } }
                @if let Some(reason) = &task.reason { dt { "Why" } dd { (text(reason)) } }
            }
            @if let Some(outcome) = outcome { (result(outcome)) }
            @if !task.state.is_finished() { (cancel(visit, task)) }
        },
    )
}

pub(super) fn ask(
    visit: &Visit,
    task: &Task,
    typed: &BTreeMap<String, Vec<String>>,
    wrong: Option<&Wrong>,
) -> Markup {
    let title = match wrong {
        Some(_) => format!("Does not fit · {} asks", text(&task.tool)),
        None => format!("{} asks", text(&task.tool)),
    };
    page(
        &title,
        None,
        html! {
            p { a href="/" { "← All tasks" } }
            h1 { (text(&task.tool)) " asks " span.muted { (task.name) } }
            @if task.questions.is_empty() {
                p { "Nothing is asked at the moment. " a href=(format!("/tasks/{}", task.name)) { "See the task." } }
            }
            @for question in &task.questions {
                @let wrong = wrong.filter(|wrong| wrong.question == question.key);
                @let kept = wrong.map(|_| typed);
                (one_question(visit, task, question, kept, wrong))
            }
        },
    )
}

pub(super) fn refused(title: &str, message: &str) -> Markup {
    page(
        title,
        None,
        html! {
            h1 { (title) }
            p { (text(message)) }
            p { a href="/" { "All tasks" } }
        },
    )
}

/// The name of the field's input: apart from the form's own, so that no tool can name a field `form_token`.
pub(super) fn input_name(field: &Field) -> String {
    format!("f.{}", field.name)
}

fn one_question(
    visit: &Visit,
    task: &Task,
    question: &Question,
    kept: Option<&BTreeMap<String, Vec<String>>>,
    wrong: Option<&Wrong>,
) -> Markup {
    let fields = question.form.as_deref().map(form::fields).unwrap_or_default();
    html! {
        form.card.ask method="post" action=(format!("/ask/{}", task.name)) {
            input type="hidden" name="form_token" value=(visit.form_token);
            input type="hidden" name="question" value=(question.key);
            p.message { (text(&question.message)) }
            p.muted { "Asked by the tool " strong { (text(&task.tool)) } ". Never type a password or a key here." }
            @if let Some(wrong) = wrong {
                p.notice.bad role="alert" { "This does not fit: " (text(&wrong.message)) }
            }
            @if let Some(url) = &question.url { (address(url)) }
            @for field in &fields {
                @let shown = kept.map_or(&field.default, |kept| kept.get(&input_name(field)).unwrap_or(EMPTY));
                @let bad = wrong.is_some_and(|wrong| wrong.field.as_deref() == Some(&field.name));
                (input(&question.key, field, shown, bad))
            }
            div.actions {
                button.primary name="action" value="accept" {
                    @if fields.is_empty() { "Yes, go on" } @else { "Answer" }
                }
                button name="action" value="decline" formnovalidate { "Decline" }
                button name="action" value="dismiss" formnovalidate { "Dismiss" }
            }
        }
    }
}

const EMPTY: &Vec<String> = &Vec::new();

fn input(key: &str, field: &Field, shown: &[String], bad: bool) -> Markup {
    let (id, name) = (format!("{key}-{}", field.name), input_name(field));
    let help = format!("{id}-help");
    let one = shown.first().map_or("", String::as_str);
    let described = field.help.as_ref().map(|_| help.as_str());
    let invalid = bad.then_some("true");
    let label = html! {
        (text(&field.label))
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

/// An address in full, with its host set apart; a link only when it may be one (A-79, G-30). Who reads the page
/// sits at this machine.
fn address(url: &str) -> Markup {
    let shown = text(url);
    let link = Link::parse(url, Reach::ThisMachine)
        .ok()
        .filter(|link| link.as_str() == shown);
    html! {
        p { code { (shown) } }
        @if let Some(link) = link {
            p {
                a href=(link.as_str()) target="_blank" rel="noopener noreferrer" {
                    "Open " strong { (link.host()) } " in a new tab"
                }
            }
        }
        p.muted { "“Yes, go on” says that you have seen this address. Nothing is opened for you." }
    }
}

fn table(visit: &Visit, tasks: &[&Task], caption: &str, acts: bool) -> Markup {
    html! {
        table {
            caption.unseen { (caption) }
            thead {
                tr {
                    th scope="col" { "Name" }
                    th scope="col" { "Tool" }
                    th scope="col" { "State" }
                    th scope="col" { "Age" }
                    th scope="col" { "From" }
                    th scope="col" { "Now" }
                    @if acts { th scope="col" { span.unseen { "Actions" } } }
                }
            }
            tbody {
                @for task in tasks {
                    tr {
                        th scope="row" data-label="Name" { a href=(format!("/tasks/{}", task.name)) { (task.name) } }
                        td data-label="Tool" { (text(&task.tool)) }
                        td data-label="State" { (state(task)) }
                        td.age data-label="Age" { (age(task)) }
                        td data-label="From" { (text(task.caller())) }
                        td data-label="Now" { (progress(task)) (now(task)) }
                        @if acts {
                            td data-label="" { @if !task.state.is_finished() { (cancel(visit, task)) } }
                        }
                    }
                }
            }
        }
    }
}

fn cancel(visit: &Visit, task: &Task) -> Markup {
    html! {
        form.inline method="post" action=(format!("/tasks/{}/cancel", task.name)) {
            input type="hidden" name="form_token" value=(visit.form_token);
            button.danger { "Cancel" span.unseen { " " (text(&task.tool)) " " (task.name) } }
        }
    }
}

fn state(task: &Task) -> Markup {
    let word = task.state.word();
    html! { span.state data-state=(word) { (word) } }
}

fn progress(task: &Task) -> Markup {
    let shown = task.progress.as_ref().filter(|_| !task.state.is_finished());
    let parts =
        shown.and_then(|progress| Some((progress.done, progress.total.filter(|total| *total > 0.0)?)));
    html! {
        @if let Some((done, total)) = parts {
            progress max=(total) value=(done.clamp(0.0, total)) aria-label=(format!("Progress of {}", task.name)) {}
            " " (percent(done, total)) " % "
        }
    }
}

fn percent(done: f64, total: f64) -> u8 {
    (done / total * 100.0).clamp(0.0, 100.0) as u8
}

fn now(task: &Task) -> Markup {
    if let Some(question) = task.questions.first() {
        return html! { "“" (short(&question.message)) "”" };
    }
    let from_tool = task
        .progress
        .as_ref()
        .filter(|_| !task.state.is_finished())
        .and_then(|progress| progress.message.as_deref())
        .unwrap_or(&task.status);
    html! {
        @match (task.state, task.stop) {
            (State::Stopping, _) => "its processes are being stopped",
            (State::Cancelled, Some(stop)) => (stop_words(stop)),
            (State::Held | State::Queued | State::Running | State::Asking | State::Done | State::Failed | State::Cancelled | State::Lost, _) => (text(from_tool)),
        }
    }
}

fn stop_words(stop: Stop) -> &'static str {
    match stop {
        Stop::NotStarted => "it never began",
        Stop::Stopping => "told to stop; not confirmed yet",
        Stop::Stopped => "stopped; nothing of it is left",
        Stop::Unknown => "it may still be running: nobody is left who could tell",
    }
}

fn result(outcome: &Outcome) -> Markup {
    let parsed = outcome
        .result
        .as_deref()
        .and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok());
    let failed = outcome
        .error
        .as_deref()
        .and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok());
    html! {
        @if let Some(result) = parsed {
            h2 { @if result["isError"] == true { "The tool's error" } @else { "Result" } }
            @for block in result["content"].as_array().into_iter().flatten() {
                @match block["text"].as_str() {
                    Some(words) => pre tabindex="0" { (lines(words)) },
                    None => p.muted { "(" (text(block["type"].as_str().unwrap_or("content"))) ": read it with " code { "longhaul tasks result " (outcome.name) } ")" },
                }
            }
            @if let Some(structured) = result.get("structuredContent") {
                details { summary { "Structured" } pre tabindex="0" { (lines(&format!("{structured:#}"))) } }
            }
        }
        @if let Some(error) = failed {
            h2 { "Error" }
            pre tabindex="0" { (lines(error["message"].as_str().unwrap_or_default())) }
        }
    }
}

fn age(task: &Task) -> Markup {
    let seconds = task.now_ms.saturating_sub(task.created_at_ms) / 1_000;
    html! { (span(seconds)) }
}

fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {:02} min", seconds / 3_600, seconds / 60 % 60),
        86_400.. => format!("{} d {:02} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

fn updates(still: bool, here: &str) -> Markup {
    html! {
        @if still { a href=(here) { "Update by itself" } } @else { a href=(format!("{here}?still=1")) { "Hold still" } }
    }
}

fn notice(said: Option<&str>) -> Markup {
    html! { @if let Some(said) = said { p.notice role="status" { (said) } } }
}

/// One line of text from outside.
fn text(words: &str) -> String {
    clean(words, LINE_MAX)
}

/// The beginning of a text from outside.
fn short(words: &str) -> String {
    clean(words, SHORT_MAX)
}

/// Several lines of text from outside.
fn lines(words: &str) -> String {
    let mut end = words.len().min(RESULT_MAX);
    while !words.is_char_boundary(end) {
        end -= 1;
    }
    let mut shown: Vec<String> = words[..end].lines().map(text).collect();
    if end < words.len() {
        shown.push("… (the rest: longhaul tasks result)".to_owned());
    }
    shown.join("\n")
}

fn page(title: &str, reload: Option<&str>, body: Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { (title) " · Longhaul" }
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                @if let Some(here) = reload {
                    meta http-equiv="refresh" content=(format!("{RELOAD_SECONDS};url={here}"));
                }
                link rel="stylesheet" href="/style.css";
            }
            body {
                a.skip href="#main" { "To the content" }
                header { a.brand href="/" { "Longhaul" } }
                main #main tabindex="-1" { (body) }
            }
        }
    }
}
