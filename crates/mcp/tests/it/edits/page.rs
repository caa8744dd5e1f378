//! The page of the edits.

use std::{env, fmt::Write as _, fs, path::Path};

use longhaul_mcp::{client::Era, edge::Edge};

use super::{EDITS, Place};

impl Place {
    fn title(self) -> &'static str {
        match self {
            Place::Request(Era::Session(_)) => "Parameters of a request, to a server with sessions",
            Place::Request(Era::Stateless) => "Parameters of a request, to a server of 2026-07-28",
            Place::Call => "Parameters of `tools/call`, to any server",
            Place::Result(Edge::Session(_)) => "The result of a tool, to a client with a session",
            Place::Result(Edge::Stateless) => "The result of a tool, to a client of 2026-07-28",
            Place::Relayed(Edge::Session(_)) => "Any other result, to a client with a session",
            Place::Relayed(Edge::Stateless) => "Any other result, to a client of 2026-07-28",
            Place::Error(Edge::Session(_)) => "An error, to a client with a session",
            Place::Error(Edge::Stateless) => "An error, to a client of 2026-07-28",
            Place::Page => "A list of prompts, resources or templates, to any client",
            Place::Definition(Edge::Session(_)) => "The definition of a tool, to a client with a session",
            Place::Definition(Edge::Stateless) => "The definition of a tool, to a client of 2026-07-28",
            Place::Notice(Edge::Session(_)) => "Parameters of a notification, to a client with a session",
            Place::Notice(Edge::Stateless) => "Parameters of a notification, to a client of 2026-07-28",
        }
    }
}

#[test]
fn the_page_of_the_edits_is_the_committed_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/relay.md");
    let page = page();
    if env::var("LONGHAUL_BLESS").as_deref() == Ok("1") {
        fs::write(&path, &page).expect("the page can be written");
    }
    let committed = fs::read_to_string(&path).expect("the page can be read");
    assert!(
        committed == page,
        "docs/reference/relay.md is stale: run `cargo xtask docs --write`"
    );
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    for place in Place::ALL {
        write!(
            page,
            "\n## {}\n\n| edit | rule | sent | arrives |\n|---|---|---|---|\n",
            place.title()
        )
        .expect("memory");
        for edit in EDITS.iter().filter(|edit| edit.place == place) {
            let arrives = edit.place.pass(edit.by, edit.sent);
            let row = format!(
                "| {} | {} | `{}` | `{arrives}` |\n",
                edit.what, edit.why, edit.sent
            );
            page.push_str(&row);
        }
    }
    page.push_str(TAIL);
    page
}

const HEAD: &str = "# What is changed in what is passed on

Generated from `crates/mcp/tests/it/edits.rs`; do not edit.

What a client sends to a server behind Longhaul, and what the server sends back, passes on as it was written: members that nobody knows, their order, the spelling of names, the digits of numbers.
These are the edits, and there are no others.
The examples are what the code did when this page was made; the versions in them are shortened to `1`.

A server and a client may be of different generations.
Then the edits towards the server are those of the server's generation, and the edits towards the client those of the client's.
A frame is one line, so a line end between two tokens arrives as a space (A-29); inside of texts line ends are escaped, and stay.
";

const TAIL: &str = "
## What comes of a task

The result of a task is what the reply to the call would have been: in `tasks/result` with the name of Longhaul's task in `_meta` (A-52), in `tasks/get` without the name of Longhaul as the server, which stands about it.

## What a server asks

A form that a server asks its caller to fill in, in the middle of a call, is read and written anew: its message and its fields pass, their text is made fit to be shown, and what stands about the form as a whole goes.
What a prompt or a resource of a server of 2026-07-28 asks passes as it was written to a client of that generation; where either has sessions, it is read and written anew as well.
A link that must be opened first (-32042) passes under a name of Longhaul's own, and not at all where it may not be shown.
The error -32021 of what a client with a session did not declare has the code -32603 there; the rest of it stands (D-9).

## What does not pass

- A frame that two readers could read differently is refused, in either direction: rule E-1 of [the rules](rules.md).
- Arguments with a number that no double can hold are refused: E-4.
- A tool whose definition a strict client would refuse is not listed. The other tools of its server are.
- A prompt, resource or template is not listed where it has no name, no URI or one without a scheme, control characters in it, or the name or URI of one before it. The others of its server are.
- Of a server that lists more than one server may, what comes beyond is not listed. `longhaul servers show` says what is left out, and why.
- A request of a server that Longhaul does not answer is refused as unknown. A ping is answered.
- What a server asks a person in a call is asked anew, as a question of Longhaul's: its message begins with a line that says who asks, its texts have no control characters, and a link is written as browsers write it (G-31).
- A log message that belongs to no call goes to the session whose own process sent it. Of a process that serves several it goes to nobody.
- Progress that is no further than what was told before is left out (A-33), and so is a notification that has not the shape of its method.
- An id comes back as the same value; how it is spelled is each hop's own.
- Headers, session ids and event ids belong to one hop; the headers of the next are made from the body that is sent.
";
