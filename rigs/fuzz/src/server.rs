//! What a server sends, and what is passed on to one: frames are taken for what they are, results and definitions
//! keep their text, and parameters arrive as they were written but for what belongs to the hop.

use longhaul_mcp::{
    RequestId,
    client::{
        self, Carrier, Dial, Era, Hello, Incoming, Kind, Outgoing, Version,
        dial::{Choice, Heard, Step},
        incoming::Notice,
        result::{self, Came},
        tools::Listing,
    },
    frame::{Frame, Obj, Raw},
    request::Answers,
    scan::Limits,
};

const ERAS: [Era; 2] = [Era::Stateless, Era::Session(Version::LATEST)];

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let Ok(incoming) = client::read(bytes, &Limits::default()) else {
        return;
    };
    match incoming {
        Incoming::Reply { id: _, outcome } => {
            dial(&outcome);
            match outcome {
                Ok(result) => check_result(&result),
                Err(error) => check_error(&error),
            }
        }
        Incoming::Unread(error) => check_error(&error),
        Incoming::Notice { notice, .. } => match notice {
            Notice::Progress { progress, .. } => assert!(progress.progress.is_finite()),
            Notice::Other { method, params } => pass_on(&method, params.as_ref()),
            Notice::Log { .. }
            | Notice::ToolsChanged
            | Notice::PromptsChanged
            | Notice::ResourcesChanged
            | Notice::ResourceUpdated { .. }
            | Notice::Cancelled { .. }
            | Notice::Task { .. }
            | Notice::LinkDone { .. }
            | Notice::Acknowledged { .. } => {}
        },
        Incoming::Ask(ask) => pass_on(&ask.method, ask.params.as_ref()),
    }
}

fn hello() -> Hello {
    Hello::own(Obj::default())
}

/// Whatever a server answers, it is spoken to or not after a few tries.
fn dial(outcome: &Result<Raw, Raw>) {
    for first in [Kind::Stateless, Kind::Sessions] {
        for status in [None, Some(200), Some(400), Some(404)] {
            let mut dial = Dial::new(hello(), Carrier::Http, Choice::Find { first });
            dial.first();
            let ends = (0..5).any(|_| {
                let heard = Heard::Reply {
                    outcome: outcome.clone(),
                    status,
                };
                !matches!(dial.heard(heard), Step::Send(_))
            });
            assert!(ends, "the same answer is asked for again and again");
        }
    }
}

fn check_result(result: &Raw) {
    for era in ERAS {
        match result::read(result.clone(), era) {
            Ok(Came::Complete(complete)) => {
                let mut whole: Obj = result.read().expect("a result is an object");
                drop(whole.take("resultType"));
                let kept: Obj = complete.read().expect("an object");
                assert_eq!(kept, whole, "a member is lost or changed");
            }
            Ok(Came::InputRequired { requests, state }) => assert!(!requests.is_empty() || state.is_some()),
            Ok(Came::Task { .. }) => {}
            Err(bad) => drop(bad.error(Answers::default())),
        }
    }
    let mut listing = Listing::default();
    drop(listing.add(result));
    let given = result
        .read::<Obj>()
        .ok()
        .and_then(|page| page.get::<Vec<Raw>>("tools"));
    let given = given.unwrap_or_default();
    assert_eq!(listing.tools.len() + listing.dropped_count, given.len());
    for tool in &listing.tools {
        let whole = given.iter().filter_map(|raw| raw.read::<Obj>().ok());
        assert!(
            whole.into_iter().any(|raw| raw == tool.raw),
            "a definition is changed"
        );
    }
}

fn check_error(error: &Raw) {
    match result::error(error) {
        Ok(kept) => assert_eq!(error.read::<Obj>().ok(), Some(kept)),
        Err(bad) => drop(bad.error(Answers::default())),
    }
}

/// The members that are written anew.
fn is_of_the_hop(name: &str) -> bool {
    matches!(name, "task" | "_meta" | "inputResponses" | "requestState")
}

fn pass_on(method: &str, params: Option<&Obj>) {
    for era in ERAS {
        let outgoing = Outgoing {
            method,
            params,
            progress_token: None,
            log_level: None,
            mirrors: &[],
            task_ttl_ms: None,
        };
        let id = RequestId::Integer(1);
        let sent = outgoing.write(&id, &hello(), era, Carrier::Http);
        assert!(
            !sent.frame.iter().any(|byte| matches!(byte, b'\n' | b'\r')),
            "more than one line"
        );
        let plain = |value: &str| value.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        assert!(
            sent.headers.iter().all(|(_, value)| plain(value)),
            "no header can hold it"
        );
        let Ok(Frame::Request {
            method: read,
            params: arrived,
            ..
        }) = Frame::parse(&sent.frame, &Limits::default())
        else {
            panic!("what is sent is no request")
        };
        assert_eq!(read, method);
        let others = |params: Option<&Obj>| -> Vec<_> {
            let members = params.into_iter().flat_map(|params| params.0.clone());
            let others = members.filter(|(name, _)| !is_of_the_hop(&name.unescaped()));
            // A frame is one line, so a line end between two tokens arrives as a space.
            others
                .map(|(name, value)| (name, value.text().replace(['\n', '\r'], " ")))
                .collect()
        };
        assert_eq!(others(arrived.as_ref()), others(params));
        if params.is_none() && era != Era::Stateless {
            assert_eq!(arrived, None, "nothing became something");
        }
    }
}
