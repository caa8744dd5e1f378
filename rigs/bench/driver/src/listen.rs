//! Many `subscriptions/listen` streams, each on a task of its own, and how soon each is told that its task ended.
//!
//! The change is a cancel: it costs the server no work but the telling.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    growth,
    http::Connection,
    load::{self, Subject},
    machine,
    wire::{self, Way},
};

const OPEN_MAX: Duration = Duration::from_secs(30);
/// A change that is not told by then was missed.
const TOLD_MAX: Duration = Duration::from_secs(10);
const CANCELLERS: usize = 16;
/// What a server needs until its memory says what the streams take.
const REST: Duration = Duration::from_secs(1);

/// What the streams and the cancellers share.
struct Shared {
    ids: Vec<Box<str>>,
    /// When each task's cancel was sent.
    sent: Vec<Cell<Option<Instant>>>,
    opened: Cell<usize>,
    nanos: RefCell<Vec<u64>>,
    failed: RefCell<Vec<String>>,
    next: Cell<usize>,
}

/// Opens so many streams and ends their tasks at a rate.
pub async fn measure(subject: &Rc<Subject>, streams: usize, per_second: f64) -> Result<Value, String> {
    let had = subject.ids.borrow().len();
    growth::fill(subject, (had + streams) as u64, 32, OPEN_MAX).await;
    let ids: Vec<Box<str>> = subject
        .ids
        .borrow()
        .iter()
        .skip(had)
        .take(streams)
        .cloned()
        .collect();
    if ids.len() < streams {
        return Err(format!("only {} tasks to listen to", ids.len()));
    }
    let shared = Rc::new(Shared {
        sent: ids.iter().map(|_| Cell::new(None)).collect(),
        ids,
        opened: Cell::new(0),
        nanos: RefCell::default(),
        failed: RefCell::default(),
        next: Cell::new(0),
    });
    let before = machine::memory(&subject.process);
    let open: Vec<_> = (0..streams)
        .map(|at| tokio::task::spawn_local(follow(Rc::clone(subject), Rc::clone(&shared), at)))
        .collect();
    let begun = Instant::now();
    let settled = || shared.opened.get() + shared.failed.borrow().len() >= streams;
    while !settled() && begun.elapsed() < OPEN_MAX {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(REST).await;
    let with_streams = machine::memory(&subject.process);
    let cancellers: Vec<_> = (0..CANCELLERS)
        .map(|_| tokio::task::spawn_local(cancel(Rc::clone(subject), Rc::clone(&shared), per_second)))
        .collect();
    for canceller in cancellers {
        canceller.await.map_err(|error| error.to_string())?;
    }
    let begun = Instant::now();
    let told = || shared.nanos.borrow().len() + shared.failed.borrow().len() >= streams;
    while !told() && begun.elapsed() < TOLD_MAX {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    open.iter().for_each(tokio::task::JoinHandle::abort);
    let mut nanos = shared.nanos.borrow_mut();
    nanos.sort_unstable();
    let kib = |memory: &Value| memory["rss_kib"].as_f64().unwrap_or(0.0);
    let failed = shared.failed.borrow();
    Ok(json!({
        "streams": streams, "opened": shared.opened.get(), "told": nanos.len(), "missed": streams - nanos.len(),
        "errors": failed.len(), "why": failed.iter().take(3).collect::<Vec<_>>(),
        "p50_us": load::share(&nanos, 0.5), "p99_us": load::share(&nanos, 0.99), "max_us": load::share(&nanos, 1.0),
        "kib_per_stream": load::round((kib(&with_streams) - kib(&before)) / streams as f64),
    }))
}

async fn follow(subject: Rc<Subject>, shared: Rc<Shared>, at: usize) {
    let Way::Http(target) = subject.way.clone() else {
        shared
            .failed
            .borrow_mut()
            .push("streams are measured over HTTP".to_owned());
        return;
    };
    let body = wire::listen(&shared.ids[at]);
    let mut open = false;
    let outcome = Connection::new(target)
        .follow("subscriptions/listen", body.as_bytes(), |read| {
            if !open && has(read, "\"working\"") {
                open = true;
                shared.opened.set(shared.opened.get() + 1);
            }
            has(read, "\"cancelled\"")
        })
        .await;
    match (outcome, shared.sent[at].get()) {
        (Ok(()), Some(sent)) => {
            let nanos = u64::try_from(sent.elapsed().as_nanos()).unwrap_or(u64::MAX);
            shared.nanos.borrow_mut().push(nanos);
        }
        (Ok(()), None) => shared
            .failed
            .borrow_mut()
            .push("told before the cancel".to_owned()),
        (Err(why), _) => shared.failed.borrow_mut().push(why),
    }
}

fn has(bytes: &[u8], what: &str) -> bool {
    bytes.windows(what.len()).any(|window| window == what.as_bytes())
}

/// Cancels the next task that no other canceller took, each at its moment.
async fn cancel(subject: Rc<Subject>, shared: Rc<Shared>, per_second: f64) {
    let mut caller = subject.caller();
    let begun = Instant::now();
    loop {
        let at = shared.next.get();
        let Some(id) = shared.ids.get(at) else { return };
        shared.next.set(at + 1);
        let due = begun + Duration::from_secs_f64(at as f64 / per_second);
        tokio::time::sleep_until(due.into()).await;
        shared.sent[at].set(Some(Instant::now()));
        if let Err(why) = caller.cancel(id).await {
            shared.failed.borrow_mut().push(why);
        }
    }
}
