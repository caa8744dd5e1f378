//! What a client carries for us, sealed: task ids, list cursors, request states and session ids. What we seal opens
//! as it was; whatever else opens at all is, to the letter, something that we sealed.
//!
//! The first 64 bytes of an input say what is sealed and what is altered; the rest is a text that a client sends.

use std::sync::LazyLock;

use longhaul_core::{Millis, TaskId};
use longhaul_gateway::{
    request_state::{self, State},
    sealed_id::{Keys, owner_digest},
    session::seal::{self, Opened},
    toolset::Selection,
};
use longhaul_mcp::{
    Client,
    edge::{Peer, Version},
    request::{Answers, Asked},
};
use longhaul_store::Owner;

struct Seals {
    ids: Keys,
    states: request_state::Sealer,
    sessions: seal::Sealer,
    owner: Owner,
    other: Owner,
}

static SEALS: LazyLock<Seals> = LazyLock::new(|| {
    let ids = Keys::derive(1, &[7; 32]);
    let owner = |subject: &str| Owner {
        tenant: "default".to_owned(),
        issuer: "local".to_owned(),
        subject: subject.to_owned(),
        app: String::new(),
    };
    Seals {
        states: request_state::Sealer::new(&ids),
        sessions: seal::Sealer::new(&ids),
        ids,
        owner: owner("uid:1"),
        other: owner("uid:2"),
    }
});

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let Some((said, text)) = bytes.split_first_chunk::<64>() else {
        return;
    };
    if let Ok(text) = std::str::from_utf8(text) {
        check_opened(text);
    }
    match said[0] % 4 {
        0 => task_id(said),
        1 => cursor(said),
        2 => request_state(said),
        _ => session_id(said),
    }
}

/// Nobody but us makes what opens, and there is one text for it.
fn check_opened(text: &str) {
    let Seals {
        ids,
        states,
        sessions,
        owner,
        ..
    } = &*SEALS;
    if let Some(opened) = ids.open(text) {
        assert_eq!(opened.owner, owner_digest(owner));
        assert_eq!(ids.seal(opened.task, owner, opened.created_at), text);
    }
    if let Some((created_at, task)) = ids.open_cursor(text, owner) {
        assert_eq!(ids.seal_cursor(task, owner, created_at), text);
    }
    if let Some(state) = states.open(text, owner, Millis(0)) {
        let nonce = nonce_of(text, "lhr1.");
        assert_eq!(states.seal(&state, owner, nonce), text);
    }
    if let Some(opened) = sessions.open(text, owner, &Selection::all(), Millis(0)) {
        let nonce = nonce_of(text, "lhs1.");
        assert_eq!(sessions.seal(owner, &Selection::all(), &opened, nonce), text);
    }
}

/// The nonce that stands at the front of a sealed text.
fn nonce_of(text: &str, prefix: &str) -> [u8; 24] {
    use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
    let body = text.strip_prefix(prefix).expect("what opens has its prefix");
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(body).expect("what opens is base64");
    *bytes.first_chunk().expect("what opens has a nonce")
}

fn task_id(said: &[u8; 64]) {
    let Seals {
        ids,
        states,
        sessions,
        owner,
        ..
    } = &*SEALS;
    let (task, created_at) = (task(said), Millis(number(said)));
    let id = ids.seal(task, owner, created_at);
    let opened = ids.open(&id).expect("our own id opens");
    assert_eq!(
        (opened.task, opened.created_at, opened.owner),
        (task, created_at, owner_digest(owner))
    );
    // Each kind has a key of its own.
    assert!(ids.open_cursor(&id, owner).is_none());
    assert!(states.open(&id, owner, Millis(0)).is_none());
    assert!(sessions.open(&id, owner, &Selection::all(), Millis(0)).is_none());
    assert!(ids.open(&altered(&id, said)).is_none(), "an altered id opens");
}

fn cursor(said: &[u8; 64]) {
    let Seals {
        ids, owner, other, ..
    } = &*SEALS;
    let (task, created_at) = (task(said), Millis(number(said)));
    let cursor = ids.seal_cursor(task, owner, created_at);
    assert_eq!(ids.open_cursor(&cursor, owner), Some((created_at, task)));
    assert!(ids.open(&cursor).is_none());
    assert!(ids.open_cursor(&cursor, other).is_none());
    assert!(
        ids.open_cursor(&altered(&cursor, said), owner).is_none(),
        "an altered cursor opens"
    );
}

fn request_state(said: &[u8; 64]) {
    let Seals {
        states, owner, other, ..
    } = &*SEALS;
    let state = State {
        task: task(said),
        digest: *said.last_chunk().expect("there are 64 bytes"),
        expires_at: Millis(number(said)),
        round: u32::from(said[0]),
    };
    let text = states.seal(&state, owner, nonce(said));
    let is_good = state.expires_at > Millis(0);
    assert_eq!(states.open(&text, owner, Millis(0)), is_good.then_some(state));
    assert_eq!(states.open(&text, owner, state.expires_at), None);
    assert_eq!(states.open(&text, other, Millis(0)), None);
    assert_eq!(
        states.open(&altered(&text, said), owner, Millis(0)),
        None,
        "an altered state opens"
    );
}

fn session_id(said: &[u8; 64]) {
    let Seals {
        sessions,
        owner,
        other,
        ..
    } = &*SEALS;
    let opened = || Opened {
        peer: peer(said),
        expires_at: Millis(number(said)),
    };
    let id = sessions.seal(owner, &Selection::all(), &opened(), nonce(said));
    assert!(id.bytes().all(|byte| byte.is_ascii_graphic()), "A-24");
    let found = sessions.open(&id, owner, &Selection::all(), Millis(0));
    assert_eq!(found.is_some(), opened().expires_at > Millis(0));
    if let Some(found) = found {
        assert_eq!((found.peer, found.expires_at), (peer(said), opened().expires_at));
    }
    assert!(
        sessions
            .open(&id, owner, &Selection::all(), opened().expires_at)
            .is_none()
    );
    assert!(sessions.open(&id, other, &Selection::all(), Millis(0)).is_none());
    assert!(
        sessions
            .open(&altered(&id, said), owner, &Selection::all(), Millis(0))
            .is_none(),
        "an altered id opens"
    );
}

fn task(said: &[u8; 64]) -> TaskId {
    TaskId(*said[1..].first_chunk().expect("there are 64 bytes"))
}

/// A moment; all of them, since none may be out of reach.
fn number(said: &[u8; 64]) -> u64 {
    u64::from_le_bytes(*said[17..].first_chunk().expect("there are 64 bytes"))
}

fn nonce(said: &[u8; 64]) -> [u8; 24] {
    *said[25..].first_chunk().expect("there are 64 bytes")
}

fn peer(said: &[u8; 64]) -> Peer {
    let is = |bit: u8| said[49] >> bit & 1 == 1;
    let name = String::from_utf8_lossy(&said[50..58]).into_owned();
    Peer {
        version: Version::ALL[usize::from(said[58]) % Version::ALL.len()],
        client: Client {
            answers: Answers {
                form: is(0),
                url: is(1),
                sampling: is(2),
                roots: is(3),
            },
            asked: Asked::OnStream,
            version: is(4).then(|| name.clone()),
            name: is(5).then_some(name),
            ..Client::default()
        },
    }
}

/// The text with one bit of it flipped, or one character of it changed where that bit makes no text.
fn altered(text: &str, said: &[u8; 64]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    let at = usize::from(u16::from_le_bytes([said[62], said[63]])) % bytes.len();
    bytes[at] ^= 1 << (said[61] % 7);
    String::from_utf8(bytes).expect("seven bits of ASCII are ASCII")
}
