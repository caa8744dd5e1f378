//! What the local page looks like. Pure: data in, markup out.
//!
//! Every text goes in through maud's braces, which escape it, or through [`text`], which also takes away
//! characters that change how other text is shown. Nothing here uses `PreEscaped` except the doctype.

use longhaul_mcp::clean;
use maud::{DOCTYPE, Markup, html};
use serde_json::Value;

use super::asked::{asker, words};
use crate::{
    admin::api::{Health, Left, Outcome, Server, Servers, State, Stop, Task, Tasks},
    local::links::Visit,
};

/// The longest line of a text from a tool, in characters.
const LINE_MAX: usize = 2_000;
/// The longest text in a table, in characters.
const SHORT_MAX: usize = 160;
/// The longest result shown, in bytes; the rest is read with the command line.
const RESULT_MAX: usize = 256 * 1024;
/// How often a page that shows open tasks is loaded again, in seconds.
const RELOAD_SECONDS: u32 = 5;
/// The same while processes are being ended, which a person who pressed Cancel watches.
const RELOAD_STOPPING_SECONDS: u32 = 1;

/// A page that is loaded again by itself.
pub(super) struct Reload<'a> {
    /// Its address.
    here: &'a str,
    seconds: u32,
    /// The person wants it to hold still.
    still: bool,
}

impl<'a> Reload<'a> {
    /// Of a page that shows these tasks; `None` when nothing of it changes any more.
    fn of<'t>(here: &'a str, still: bool, tasks: impl IntoIterator<Item = &'t Task>) -> Option<Reload<'a>> {
        let mut open = tasks
            .into_iter()
            .filter(|task| !task.state.is_settled())
            .peekable();
        open.peek()?;
        let seconds = match open.any(|task| task.state == State::Stopping) {
            true => RELOAD_STOPPING_SECONDS,
            false => RELOAD_SECONDS,
        };
        Some(Reload { here, seconds, still })
    }
}

pub(super) fn overview(
    visit: &Visit,
    listed: &Tasks,
    servers: &Servers,
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
    let title = match (asking.len(), open.len()) {
        (0, 0) => "Tasks".to_owned(),
        (0, open) => format!("{open} at work"),
        (asking, _) => format!("({asking}) Waiting for your answer"),
    };
    page(
        &title,
        Reload::of("/", still, open.iter().copied()),
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
                                    p.who { (text(&task.tool)) " asks" }
                                    (asker(task))
                                    (words(question))
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
                h2 #open { "At work" }
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
            @if !servers.servers.is_empty() {
                section aria-labelledby="servers" {
                    h2 #servers { "Servers" }
                    ul.servers { @for one in &servers.servers { (server(one)) } }
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
    page(
        &format!("{} {} · {}", task.state.word(), text(&task.tool), task.name),
        Reload::of(&here, still, [task]),
        html! {
            p { a href="/" { "← All tasks" } }
            (notice(said))
            div.row.top {
                h1 { (text(&task.tool)) " " span.muted { (task.name) } }
                @if !task.state.is_finished() { (cancel(visit, task)) }
            }
            p.standing {
                (state(task)) " "
                @if task.questions.is_empty() { span { (text(standing(task))) } }
            }
            @if task.progress.is_some() && !task.state.is_finished() { p.far { (progress(task)) } }
            @if let Some(stop) = task.stop { (tree(stop, task.left.as_ref())) }
            @for question in &task.questions {
                div.card.ask {
                    (words(question))
                    a.button.primary href=(format!("/ask/{}", task.name)) { "Answer" }
                }
            }
            dl {
                @if let Some(server) = &task.server { dt { "Server" } dd { (text(server)) } }
                dt { "From" } dd { (text(task.caller())) }
                dt { "Age" } dd { (age(task)) }
                @if !task.session.is_empty() { dt { "Session" } dd { (text(&task.session)) } }
                dt { "Attempts" } dd { (task.attempts) }
                @if let Some(reason) = &task.reason { dt { "Why" } dd { (text(reason)) } }
            }
            (written("It wrote last", &task.stdout))
            (written("Standard error", &task.stderr))
            @if let Some(outcome) = outcome { (result(outcome)) }
        },
    )
}

/// What is left of the processes of a task that was ended from outside.
fn tree(stop: Stop, left: Option<&Left>) -> Markup {
    let left = left.filter(|_| stop == Stop::Stopping);
    html! {
        section.card.tree aria-labelledby="tree" data-stop=(stop_word(stop)) {
            h2 #tree { "Its processes" }
            p role="status" {
                @match left {
                    Some(left) => {
                        progress max=(left.seen) value=(left.seen.saturating_sub(left.alive)) aria-label="Processes that are gone" {}
                        " " strong { (left.words()) }
                    },
                    None => (stop_words(stop)),
                }
            }
            @if let Some(left) = left {
                ul.processes {
                    @for process in &left.named {
                        li { (text(&process.name)) " " span.muted { (process.pid) } }
                    }
                    @let more = (left.alive as usize).saturating_sub(left.named.len());
                    @if more > 0 { li.more { "and " (more) " more" } }
                }
            }
        }
    }
}

/// The last lines of what a program wrote so far.
fn written(heading: &str, tail: &str) -> Markup {
    html! {
        @if !tail.is_empty() {
            h2 { (heading) }
            pre.tail tabindex="0" { span { (lines(tail)) } }
        }
    }
}

/// A server behind this one, for whoever configured it.
fn server(server: &Server) -> Markup {
    let state = server.state.word();
    html! {
        li {
            strong { (text(&server.name)) } " "
            span.state data-state=(state) { (state) } " "
            span.muted {
                (server.tools) @if server.tools == 1 { " tool" } @else { " tools" }
                @if let Some(itself) = &server.calls_itself { " · " (short(itself)) }
                @if server.waiting > 0 { " · " (server.waiting) " waiting" }
            }
            @if let Some(why) = &server.why { p.why { (short(why)) } }
        }
    }
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
                        td data-label="Tool" { (short(&task.tool)) }
                        td data-label="State" { (state(task)) }
                        td.age data-label="Age" { (age(task)) }
                        td data-label="From" { (text(task.caller())) }
                        td.now data-label="Now" { (progress(task)) (now(task)) }
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
    let shown = task.progress.as_ref();
    let shown = shown.filter(|_| !task.state.is_finished() && task.questions.is_empty());
    let total = shown.and_then(|progress| progress.total.filter(|total| *total > 0.0));
    html! {
        @match (shown, total) {
            (Some(progress), Some(total)) => {
                progress max=(total) value=(progress.done.clamp(0.0, total)) aria-label=(format!("Progress of {}", task.name)) {}
                " " span.count { (percent(progress.done, total)) " % · " (progress.done) "/" (total) } " "
            },
            (Some(progress), None) => { span.count { (progress.done) } " " },
            (None, _) => {},
        }
    }
}

fn percent(done: f64, total: f64) -> u8 {
    (done / total * 100.0).clamp(0.0, 100.0) as u8
}

/// What it does now, in a table.
fn now(task: &Task) -> Markup {
    if let Some(question) = task.questions.first() {
        return html! { "“" (short(&question.message)) "”" };
    }
    html! {
        @match (task.state, task.stop, &task.left) {
            (State::Stopping, _, Some(left)) => (left.words()),
            (State::Stopping, _, None) => "its processes are being stopped",
            (State::Cancelled, Some(stop), _) => (stop_words(stop)),
            (State::Held | State::Queued | State::Running | State::Asking | State::Done | State::Failed | State::Cancelled | State::Lost, _, _) => (short(standing(task))),
        }
    }
}

/// What the tool says that it does, or how it ended.
fn standing(task: &Task) -> &str {
    let progress = task.progress.as_ref().filter(|_| !task.state.is_finished());
    progress
        .and_then(|progress| progress.message.as_deref())
        .unwrap_or(&task.status)
}

fn stop_words(stop: Stop) -> &'static str {
    match stop {
        Stop::NotStarted => "it never began",
        Stop::Stopping => "told to stop; not confirmed yet",
        Stop::Stopped => "stopped; nothing of it is left",
        Stop::Unknown => "it may still be running: nobody is left who could tell",
    }
}

fn stop_word(stop: Stop) -> &'static str {
    match stop {
        Stop::NotStarted => "not-started",
        Stop::Stopping => "stopping",
        Stop::Stopped => "stopped",
        Stop::Unknown => "unknown",
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

pub(super) fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {:02} min", seconds / 3_600, seconds / 60 % 60),
        86_400.. => format!("{} d {:02} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

pub(super) fn notice(said: Option<&str>) -> Markup {
    html! { @if let Some(said) = said { p.notice role="status" { (said) } } }
}

/// One line of text from outside.
pub(super) fn text(words: &str) -> String {
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

pub(super) fn page(title: &str, reload: Option<Reload<'_>>, body: Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { (title) " · Longhaul" }
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                @if let Some(Reload { here, seconds, still: false }) = &reload {
                    meta http-equiv="refresh" content=(format!("{seconds};url={here}"));
                }
                link rel="stylesheet" href="/style.css";
            }
            body {
                a.skip href="#main" { "To the content" }
                header {
                    a.brand href="/" { "Longhaul" }
                    // Early in the order of the keyboard: each loading begins it anew.
                    @if let Some(Reload { here, still, .. }) = &reload {
                        @match still {
                            true => a href=(here) { "Update by itself" },
                            false => a href=(format!("{here}?still=1")) { "Hold still" },
                        }
                    }
                }
                main #main tabindex="-1" { (body) }
            }
        }
    }
}
