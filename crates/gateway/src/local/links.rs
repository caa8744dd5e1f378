//! Who may open the local page: links that work once, and the sessions that they start.
//!
//! The socket hands links out ([`Links::hand_out`]); the page spends them. Both are kept as digests, in memory
//! only: a restart of the server ends every session.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use longhaul_engine::clock;
use sha2::{Digest, Sha256};

use crate::admin::{Entrance, Peer, api};

/// For how long an unused link works.
pub const LINK_VALID: Duration = Duration::from_secs(10 * 60);
/// For how long a browser stays let in.
pub const SESSION_VALID: Duration = Duration::from_secs(12 * 60 * 60);
/// The most unused links; the oldest goes first.
pub const LINKS_MAX: usize = 32;
/// The most browsers let in at once; the oldest goes first.
pub const SESSIONS_MAX: usize = 32;

/// The links and sessions of one page. Cheap to clone.
#[derive(Clone)]
pub struct Links {
    base: Arc<str>,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Default)]
struct Kept {
    links: VecDeque<Link>,
    sessions: VecDeque<Session>,
}

struct Link {
    digest: [u8; 32],
    peer: Peer,
    until: Instant,
}

#[derive(Clone)]
struct Session {
    digest: [u8; 32],
    form_token: String,
    peer: Peer,
    until: Instant,
}

/// A browser that was let in.
#[derive(Clone, Debug)]
pub struct Visit {
    /// Whose browser it is.
    pub peer: Peer,
    /// What each form of this session must carry.
    pub form_token: String,
}

impl Links {
    /// Links that begin with `base`, the page's own address such as `http://127.0.0.1:7410`.
    pub fn new(base: &str) -> Links {
        Links {
            base: base.trim_end_matches('/').into(),
            kept: Arc::default(),
        }
    }

    /// A link that lets one browser in as `peer`, once, and shows it the question of `task`.
    pub fn hand_out(&self, peer: Peer, task: Option<String>) -> api::Link {
        let token = random();
        let link = Link {
            digest: digest(&token),
            peer: Peer {
                entrance: Entrance::Page,
                ..peer
            },
            until: clock::monotonic() + LINK_VALID,
        };
        keep(&mut self.kept().links, link, LINKS_MAX);
        let base = &self.base;
        let task = task.filter(|name| is_name(name));
        let url = match task {
            Some(name) => format!("{base}/open?link={token}&task={name}"),
            None => format!("{base}/open?link={token}"),
        };
        api::Link {
            url,
            valid_ms: LINK_VALID.as_millis() as u64,
        }
    }

    /// The name of the session's cookie. It holds the port, because browsers send the cookies of one host to
    /// every port of it.
    pub fn cookie(&self) -> String {
        let port = self
            .base
            .rsplit(':')
            .next()
            .filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
        format!("longhaul_{}", port.unwrap_or("page"))
    }

    /// Spends a link: the value of the session's cookie, once.
    pub fn spend(&self, token: &str) -> Option<String> {
        let (wanted, now) = (digest(token), clock::monotonic());
        let mut kept = self.kept();
        kept.links.retain(|link| link.until > now);
        let found = kept.links.iter().position(|link| same(&link.digest, &wanted))?;
        let link = kept.links.remove(found)?;
        let cookie = random();
        let session = Session {
            digest: digest(&cookie),
            form_token: random(),
            peer: link.peer,
            until: now + SESSION_VALID,
        };
        keep(&mut kept.sessions, session, SESSIONS_MAX);
        Some(cookie)
    }

    /// The visit that this cookie stands for.
    pub fn visit(&self, cookie: &str) -> Option<Visit> {
        let (wanted, now) = (digest(cookie), clock::monotonic());
        let mut kept = self.kept();
        kept.sessions.retain(|session| session.until > now);
        let session = kept
            .sessions
            .iter()
            .find(|session| same(&session.digest, &wanted))?;
        Some(Visit {
            peer: session.peer,
            form_token: session.form_token.clone(),
        })
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Visit {
    /// Whether a form carries this session's token.
    pub fn sent(&self, form_token: &str) -> bool {
        same(&digest(form_token), &digest(&self.form_token))
    }
}

/// Whether the text has the shape of a short name: then it needs no escaping anywhere.
pub fn is_name(text: &str) -> bool {
    (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn keep<T>(kept: &mut VecDeque<T>, new: T, max: usize) {
    if kept.len() >= max {
        kept.pop_front();
    }
    kept.push_back(new);
}

fn random() -> String {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    URL_SAFE_NO_PAD.encode(bytes)
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// Compares digests, so that the time taken tells nothing about the token.
fn same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    one == other
}
