//! What each person sees of a question, and that each answer arrives: every kind of tool asks every kind of client.
//!
//! The tools are real: a command, and servers of each generation, without tasks and with them
//! (`fixtures/task_server.py`), on a pipe and over HTTP. What was seen is docs/reference/questions.md.

pub(crate) mod clients;
pub(crate) mod person;
mod settled;

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fmt::Write as _,
    fs,
    time::Duration,
};

use futures_util::stream::{self, StreamExt as _};
use longhaul_gateway::dispatch::Settings;
use serde_json::{Value, json};
use tokio::process::Child;

use self::{
    clients::{Client, Saw, Speaks, Who},
    person::Person,
};
use crate::support::{Client as Stateless, TASK_SERVER, World, listening};

const PATIENCE: Duration = Duration::from_secs(30);
const COMMAND: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fixtures/asking.py");
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/questions.md");
/// Gateways at the same time.
const AT_ONCE: usize = 3;

/// What a tool asks, and how it is told.
pub(crate) struct Asked {
    pub(crate) tool: &'static str,
    what: &'static str,
    /// The questions, round by round.
    rounds: &'static [&'static [Ask]],
}

pub(crate) struct Ask {
    key: &'static str,
    /// With `MARK` for the call's own.
    message: &'static str,
}

pub(crate) static ASKED: [Asked; 6] = [
    Asked {
        tool: "ask_form",
        what: "a form",
        rounds: &[&[ask("who", "Who are you, MARK?")]],
    },
    Asked {
        tool: "ask_url",
        what: "a link",
        rounds: &[&[ask("sign_in", "Sign in, MARK")]],
    },
    Asked {
        tool: "ask_two",
        what: "two forms at once",
        rounds: &[&[
            ask("first", "The first, MARK?"),
            ask("second", "The second, MARK?"),
        ]],
    },
    Asked {
        tool: "ask_again",
        what: "a form, and another one after its answer",
        rounds: &[&[ask("one", "Once, MARK?")], &[ask("two", "Again, MARK?")]],
    },
    Asked {
        tool: "ask_first",
        what: "a form before there is a task",
        rounds: &[&[ask("before", "Before all, MARK?")]],
    },
    Asked {
        tool: "needs_link",
        what: "a link, by an error (-32042)",
        rounds: &[&[ask("sign_in", "Sign in, MARK")]],
    },
];
/// How many of them every tool asks, those first.
pub(crate) const BY_ALL: usize = 4;

const fn ask(key: &'static str, message: &'static str) -> Ask {
    Ask { key, message }
}

/// What stands behind the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Behind {
    Command,
    Plain(&'static str),
    Tasks(&'static str),
}

impl Behind {
    const ALL: [Behind; 5] = [
        Behind::Command,
        Behind::Plain("2025"),
        Behind::Plain("2026"),
        Behind::Tasks("2025"),
        Behind::Tasks("2026"),
    ];

    fn name(self) -> String {
        match self {
            Behind::Command => "a command".to_owned(),
            Behind::Plain(era) => format!("a server of {era}"),
            Behind::Tasks(era) => format!("a server of {era} with tasks"),
        }
    }

    fn has(self, asked: &Asked) -> bool {
        match asked.tool {
            "ask_first" => self == Behind::Tasks("2026"),
            "needs_link" => matches!(self, Behind::Plain("2025") | Behind::Tasks("2025")),
            _ => true,
        }
    }

    /// How the server is started, when it is one.
    fn options(self, carrier: Carrier) -> Option<Vec<String>> {
        let (era, more) = match self {
            Behind::Command => return None,
            Behind::Plain(era) => (era, Some("--plain".to_owned())),
            Behind::Tasks(era) => (era, None),
        };
        let carrier = match carrier {
            Carrier::Pipe => "stdio",
            Carrier::Http => "http",
        };
        let options = [TASK_SERVER.to_owned(), carrier.to_owned(), format!("--era={era}")];
        Some(options.into_iter().chain(more).collect())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Carrier {
    Pipe,
    Http,
}

/// How a server is reached, as its configuration says it, and its process where that is nobody's child; `None` for a
/// command.
async fn how(behind: Behind, carrier: Carrier) -> Option<(Option<Child>, String)> {
    let options = behind.options(carrier)?;
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    Some(match carrier {
        Carrier::Pipe => {
            let command = [&["python3"], options.as_slice()].concat();
            let quiet = "env.PYTHONDONTWRITEBYTECODE = \"1\"";
            (None, format!("command = {command:?}\n{quiet}\n"))
        }
        Carrier::Http => {
            let (process, port) = listening(&options).await;
            (Some(process), format!("url = \"http://127.0.0.1:{port}/mcp\"\n"))
        }
    })
}

/// A gateway in front of it, and its process where that is nobody's child.
async fn world(behind: Behind, carrier: Carrier) -> (World, Option<Child>) {
    if let Some((process, how)) = how(behind, carrier).await {
        let config = format!("[servers.asks]\n{how}");
        return (listing(&config).await, process);
    }
    let tools = ASKED[..BY_ALL].iter().map(|Asked { tool, .. }| {
        let command = ["python3", COMMAND, tool, "{mark}"];
        format!("[tools.{tool}]\ndescription = \"asks\"\ncommand = {command:?}\nargs.mark = \"string\"\n")
    });
    let tools: String = tools.collect();
    (World::behind(&tools, Settings::default()).await, None)
}

/// A gateway whose one server's tools are listed.
pub(crate) async fn listing(config: &str) -> World {
    let world = World::ready_behind(config, Settings::default()).await;
    let listed = async {
        loop {
            let listed = world.rpc(&Stateless::with_tasks(), "tools/list", json!({})).await;
            let tools = listed.result()["tools"].as_array().expect("tools").clone();
            if tools.iter().any(|tool| tool["name"] == ASKED[0].tool) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, listed)
        .await
        .expect("its tools in time");
    world
}

/// What was seen of one kind of question by one kind of client.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cell {
    /// In one word or two.
    short: &'static str,
    /// How it went.
    how: String,
    /// What a model was told first.
    told: Option<String>,
    /// What the person saw on the page, and in the terminal.
    person: Option<(String, String)>,
}

impl Cell {
    fn of(asked: &Asked, mark: &str, mut saw: Saw) -> Cell {
        // A server with sessions asks in two requests, and between them a result may be on its way.
        if let [one, other] = saw.rounds.as_slice()
            && asked.rounds.len() == 1
        {
            let other = other.trim_start_matches("`input_required` with ");
            saw.rounds = vec![format!("{one} and {other}")];
        }
        let end = end(asked, mark, &saw.ended);
        let short = match (saw.rounds.is_empty(), saw.person.is_empty()) {
            (false, _) => "the client",
            (true, false) => "a person",
            (true, true) => "nobody",
        };
        let mut steps = Vec::new();
        if !saw.status.is_empty() {
            let status: Vec<&str> = saw.status.iter().map(String::as_str).collect();
            steps.push(format!("its task is `{}`", status.join("`, then `")));
        }
        if !saw.told.is_empty() {
            let first = saw.told.iter().filter_map(|told| told.split(" (").next());
            let first: BTreeSet<&str> = first.collect();
            let first: Vec<&str> = first.into_iter().collect();
            steps.push(format!("told `{}` at each round", first.join("`, `")));
        }
        if !saw.rounds.is_empty() {
            steps.push(saw.rounds.join(", then "));
        }
        if !saw.person.is_empty() {
            steps.push("a person answers".to_owned());
        }
        if !saw.told.is_empty() {
            steps.push("the same call again gets the result".to_owned());
        }
        let both = |of: fn(&(String, String)) -> &str| {
            let words: Vec<&str> = saw.person.iter().map(of).collect();
            words.join(", then ")
        };
        steps.push(end);
        Cell {
            short,
            how: steps.join("; ").replace(mark, "Ada"),
            told: saw.told.first().cloned(),
            person: (!saw.person.is_empty())
                .then(|| (both(|(page, _)| page), both(|(_, terminal)| terminal))),
        }
    }
}

/// The tool's own words of a message, in whose first line Longhaul says who asks.
pub(crate) fn words(message: &str) -> &str {
    message.lines().next_back().unwrap_or_default()
}

/// What is answered to a question with this message.
pub(crate) fn value(message: &str) -> String {
    words(message)
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .collect()
}

/// How the call ended, in words; an answer that is not the tool's own is a failure of the test.
pub(crate) fn end(asked: &Asked, mark: &str, ended: &Value) -> String {
    let result = match ended.get("result") {
        Some(result) => result,
        None => {
            let error = &ended["error"];
            let message = error["message"].as_str().unwrap_or_default();
            return format!("ends in the error {}: {message}", error["code"]);
        }
    };
    let text = result["content"][0]["text"].as_str().unwrap_or_default();
    let Ok(returned) = serde_json::from_str::<Value>(text) else {
        return format!("**ends with** {text}");
    };
    assert_eq!(returned["mark"], mark, "another call's result: {returned}");
    if let Some(mode) = returned["undeclared"].as_str() {
        let kind = if mode == "url" { "links" } else { "forms" };
        return format!("the server was told that {kind} cannot be shown, and does not ask");
    }
    if asked.tool == "needs_link" {
        return "the call is made again, and gets its result".to_owned();
    }
    let answers = returned["answers"].as_object().expect("answers");
    let asks: Vec<&Ask> = asked.rounds.iter().copied().flatten().collect();
    assert_eq!(answers.len(), asks.len(), "{returned}");
    let each = asks.iter().map(|ask| {
        let answer = &answers[ask.key];
        let own = value(&ask.message.replace("MARK", mark));
        match answer["action"].as_str() {
            Some("accept") if answer["content"]["name"].is_null() && asked.tool == "ask_url" => GIVEN,
            Some("accept") => {
                assert_eq!(
                    answer["content"]["name"], own,
                    "another question's answer: {returned}"
                );
                GIVEN
            }
            Some("decline") => "the tool reads that it was declined",
            Some("cancel") => "the tool reads that it was dismissed",
            _ => panic!("no answer: {returned}"),
        }
    });
    let each: BTreeSet<&str> = each.collect();
    each.into_iter().collect::<Vec<_>>().join(" and ")
}

/// The kind of a question of these parameters.
fn kind_of(params: &Value) -> &'static str {
    match params["url"].is_null() {
        true => "form",
        false => "link",
    }
}

type Cells = BTreeMap<(Who, &'static str), Cell>;

/// Every client, asked everything.
async fn everything(behind: Behind, carrier: Carrier) -> Cells {
    let (world, _process) = world(behind, carrier).await;
    let person = Person::at(&world);
    let mut cells = Cells::new();
    for who in clients() {
        let client = Client::open(&world, who, &person).await;
        for (index, asked) in ASKED.iter().enumerate().filter(|(_, asked)| behind.has(asked)) {
            let mark = format!("m{}x{index}", cells.len());
            let call = tokio::time::timeout(PATIENCE, client.calls(asked, &mark));
            let Ok(saw) = call.await else {
                panic!("{behind:?} {carrier:?} {who:?} {}: it never ended", asked.tool)
            };
            cells.insert((who, asked.tool), Cell::of(asked, &mark, saw));
        }
    }
    cells
}

fn clients() -> Vec<Who> {
    let all = [true, false]
        .into_iter()
        .flat_map(|can_be_asked| Speaks::ALL.map(|speaks| Who { speaks, can_be_asked }));
    all.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_question_is_seen_where_somebody_can_answer_it() {
    let runs = Behind::ALL.into_iter().flat_map(|behind| {
        let carriers: &[Carrier] = match behind {
            Behind::Command => &[Carrier::Pipe],
            Behind::Plain(_) | Behind::Tasks(_) => &[Carrier::Pipe, Carrier::Http],
        };
        carriers.iter().map(move |carrier| (behind, *carrier))
    });
    let runs = stream::iter(runs)
        .map(|(behind, carrier)| async move { ((behind, carrier), everything(behind, carrier).await) });
    let seen: BTreeMap<(Behind, Carrier), Cells> = runs.buffer_unordered(AT_ONCE).collect().await;
    let mut rows = BTreeMap::new();
    for ((behind, carrier), cells) in seen {
        match carrier {
            Carrier::Pipe => drop(rows.insert(behind, cells)),
            // The transport behind changes nothing.
            Carrier::Http => assert_eq!(rows[&behind], cells, "{behind:?}"),
        }
    }
    let page = page(&rows);
    if env::var("LONGHAUL_BLESS").as_deref() == Ok("1") {
        fs::write(PAGE, &page).expect("the page can be written");
    }
    let committed = fs::read_to_string(PAGE).unwrap_or_default();
    assert!(
        committed == page,
        "docs/reference/questions.md is stale: run `cargo xtask docs --write`\n{page}"
    );
}

fn page(rows: &BTreeMap<Behind, Cells>) -> String {
    let mut page = HEAD.to_owned();
    for (can_be_asked, head) in [(true, CAN), (false, CANNOT)] {
        page.push_str(head);
        let names = Speaks::ALL.map(Speaks::name).join(" | ");
        write!(page, "\n| asked | by | {names} |\n|---|---|---|---|---|---|\n").expect("memory");
        for (asked, by, shorts) in grouped(rows, |cells, tool| {
            let shorts = Speaks::ALL.map(|speaks| cells[&(Who { speaks, can_be_asked }, tool)].short);
            Some(shorts.join(" | "))
        }) {
            writeln!(page, "| {asked} | {by} | {shorts} |").expect("memory");
        }
        for speaks in Speaks::ALL {
            let who = Who { speaks, can_be_asked };
            write!(
                page,
                "\n### {}\n\n| asked | by | what happens |\n|---|---|---|\n",
                speaks.name()
            )
            .expect("memory");
            for (asked, by, how) in grouped(rows, |cells, tool| Some(cells[&(who, tool)].how.clone())) {
                writeln!(page, "| {asked} | {by} | {how} |").expect("memory");
            }
        }
    }
    page.push_str(PERSON);
    for (asked, by, seen) in grouped(rows, |cells, tool| {
        let seen = clients()
            .into_iter()
            .find_map(|who| cells[&(who, tool)].person.clone());
        seen.map(|(page, terminal)| format!("{page} | {terminal}"))
    }) {
        writeln!(page, "| {asked} | {by} | {seen} |").expect("memory");
    }
    page.push_str(TOLD);
    let cells = rows.values().flat_map(BTreeMap::values);
    let told = cells.filter_map(|cell| cell.told.as_deref());
    let told: BTreeSet<&str> = told.filter(|told| told.contains(ASKED[0].tool)).collect();
    for told in told {
        write!(page, "\n```\n{told}\n```\n").expect("memory");
    }
    page
}

/// One line for all that went the same way: what was asked, by which tools, and how it went.
fn grouped(
    rows: &BTreeMap<Behind, Cells>,
    words: impl Fn(&Cells, &'static str) -> Option<String>,
) -> Vec<(String, String, String)> {
    let mut lines: Vec<(Vec<&str>, Vec<Behind>, String)> = Vec::new();
    for asked in &ASKED {
        let mut ways: Vec<(String, Vec<Behind>)> = Vec::new();
        for (behind, cells) in rows {
            let Some(way) = behind.has(asked).then(|| words(cells, asked.tool)).flatten() else {
                continue;
            };
            match ways.iter_mut().find(|(known, _)| *known == way) {
                Some((_, by)) => by.push(*behind),
                None => ways.push((way, vec![*behind])),
            }
        }
        for (way, by) in ways {
            match lines.iter_mut().find(|(_, known, of)| *known == by && *of == way) {
                Some((what, _, _)) => what.push(asked.what),
                None => lines.push((vec![asked.what], by, way)),
            }
        }
    }
    let lines = lines.into_iter().map(|(what, by, way)| {
        let names: Vec<String> = by.iter().map(|behind| behind.name()).collect();
        let by = match by.len() == rows.len() {
            true => "every tool".to_owned(),
            false => names.join(", "),
        };
        let all = ASKED[..BY_ALL].iter().map(|asked| asked.what);
        let asked = match what.iter().copied().take(BY_ALL).eq(all) {
            true => [&["anything"], &what[BY_ALL..]].concat().join("; "),
            false => what.join("; "),
        };
        (asked, by, way)
    });
    lines.collect()
}

/// The end that everybody hopes for.
pub(crate) const GIVEN: &str = "the tool gets its answer";

const HEAD: &str = "# What each person sees of a question

Generated by `crates/gateway/tests/it/questions_seen.rs`; do not edit.

Every kind of tool asked every kind of client of the local user, and what was seen is written down here.
The servers stood behind Longhaul on a pipe and over HTTP, with the same outcome.
[Questions](../concepts/questions.md) has the rules.
";

const CAN: &str = "
## Clients that declared forms and links

Who is asked, as a client speaks:
";

const CANNOT: &str = "
## Clients that declared no `elicitation`

Who is asked, as a client speaks; a person is asked on the local page and in the terminal:
";

const PERSON: &str = "
## The person who runs Longhaul

| asked | by | local page, `/ask/NAME` | terminal, `longhaul answer NAME` |
|---|---|---|---|
";

const TOLD: &str = "
## What a model reads meanwhile

Of a client without tasks that cannot be asked:
";
