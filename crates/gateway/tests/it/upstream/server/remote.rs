//! A server behind a URL over its life: its sessions, its generation, its credentials, and its absence.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use longhaul_gateway::upstream::{
    Caller, Outcome, State,
    dial::{LookUp, Place},
    http::Remote,
    subscription::Due,
};
use longhaul_mcp::{client::Era, request::Answers};
use serde_json::{Value as Json, json};
use tempfile::TempDir;
use tokio::time::Instant;

use super::{PATIENCE, Rig, Site, caller, directory, text, within};

#[tokio::test]
async fn a_forgotten_session_fails_its_call_and_the_next_one_has_a_new_session() {
    let site = Site::start(&["--era=2025"]).await;
    let rig = Rig::remote(&site, |_| {}).await;
    let outcome = rig.call("a", "forget", json!({})).await;
    assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
    let outcome = rig.call("a", "echo", json!({})).await;
    assert!(matches!(outcome, Outcome::Came(_)), "{outcome:?}");
    assert_eq!(site.seen().await["calls"]["forget"], 1);
    rig.close().await;
}

#[tokio::test]
async fn a_stateless_server_behind_a_url_has_one_connection_for_all() {
    let site = Site::start(&["--era=2026"]).await;
    let rig = Rig::remote(&site, |_| {}).await;
    assert_eq!(
        rig.server.definitions().expect("it was seen").spoken.era,
        Era::Stateless
    );
    for session in ["a", "b", "c"] {
        rig.text(session, "counted").await;
    }
    assert_eq!(rig.server.live().len(), 1);
    rig.close().await;
}

#[tokio::test]
async fn a_server_behind_a_url_that_goes_and_comes_back_is_found_again() {
    for era in ["--era=2025", "--era=2026"] {
        let site = Site::start(&[era]).await;
        let rig = Rig::remote(&site, |_| {}).await;
        let port = format!("--port={}", site.port);
        drop(site);
        let gone = async {
            while matches!(rig.server.state(), State::Ready) {
                let outcome = rig.call("a", "echo", json!({})).await;
                assert!(!matches!(outcome, Outcome::Came(_)), "{outcome:?}");
                tokio::task::yield_now().await;
            }
        };
        within(PATIENCE, gone).await;
        let _site = Site::start(&[era, &port]).await;
        rig.until(|state| *state == State::Ready).await;
        let outcome = rig.call("a", "echo", json!({})).await;
        assert!(matches!(outcome, Outcome::Came(_)), "{outcome:?}");
        rig.close().await;
    }
}

#[tokio::test]
async fn owners_share_no_session_of_a_server_that_kept_none_before() {
    let site = Site::start(&[]).await;
    let rig = Rig::remote(&site, |_| {}).await;
    let session = async |owner: &str| {
        let caller = Caller {
            session: None,
            principal: owner.to_owned(),
            declared: Answers::default(),
            is_local: false,
        };
        let never = std::future::pending();
        text(&rig.call_by(&caller, "session", json!({}), never).await)
    };
    assert_eq!(session("ann").await.as_deref(), Some("none"));
    assert_eq!(session("bob").await.as_deref(), Some("none"));
    rig.text("", "turn").await;
    let deadline = Instant::now() + PATIENCE;
    let first = loop {
        assert!(Instant::now() < deadline, "it is spoken to as it speaks now");
        if let Some(own) = session("ann").await {
            break own;
        }
        tokio::task::yield_now().await;
    };
    assert_ne!(first, "none");
    let second = session("bob").await.expect("a session");
    assert_ne!(second, first);
    assert_eq!(session("ann").await, Some(first));
    assert_eq!(session("bob").await, Some(second));
    rig.close().await;
}

/// A server behind a site that refuses any token but the one in its file, which is also where the gateway looks it up.
struct Guarded {
    rig: Rig,
    site: Site,
    folder: TempDir,
}

impl Guarded {
    async fn ready(era: &str) -> Guarded {
        let folder = directory();
        let path = folder.path().join("token");
        std::fs::write(&path, "first").expect("written");
        let option = format!("--token={}", path.display());
        let site = Site::start(&[era, &option]).await;
        let url = site.url();
        let find = move |_refused| -> BoxFuture<'static, _> {
            let bearer = format!("Bearer {}", std::fs::read_to_string(&path).expect("a token"));
            let headers = vec![("Authorization".to_owned(), bearer)];
            let url = url.clone();
            Box::pin(async move { Ok(Place::Remote(Remote { url, headers })) })
        };
        let place = Place::LookedUp(LookUp {
            is_remote: true,
            find: Arc::new(find),
        });
        let rig = Rig::at(place, directory(), |_| {});
        rig.until(|state| *state == State::Ready).await;
        Guarded { rig, site, folder }
    }

    /// From here on the token before is refused.
    fn change_token(&self) {
        std::fs::write(self.folder.path().join("token"), "second").expect("written");
    }
}

#[tokio::test]
async fn a_subscription_begins_with_credentials_that_are_looked_up_again() {
    for era in ["--era=2025", "--era=2026"] {
        let guarded = Guarded::ready(era).await;
        let rig = &guarded.rig;
        // Its connection is there, and shows what is refused from now on.
        rig.text("a", "counted").await;
        guarded.change_token();
        let due = Arc::new(Due::default());
        let caller = caller("a");
        let subscribed = rig.server.subscribe(&caller, "fixture://one", &due);
        let subscribed = within(PATIENCE, subscribed).await;
        assert!(subscribed.is_ok(), "{era}");
        guarded.rig.close().await;
    }
}

#[tokio::test]
async fn a_subscription_follows_a_server_that_begins_to_keep_sessions() {
    let site = Site::start(&[]).await;
    let rig = Rig::remote(&site, |_| {}).await;
    let due = Arc::new(Due::default());
    let caller = caller("a");
    let subscribed = rig.server.subscribe(&caller, "fixture://one", &due).await;
    let _subscription = subscribed.expect("it subscribes");
    assert_eq!(within(PATIENCE, due.next()).await, "fixture://one");
    rig.text("a", "turn").await;
    let turned = async {
        while !matches!(rig.call("a", "session", json!({})).await, Outcome::Came(_)) {}
        // Something may have changed meanwhile.
        due.next().await
    };
    assert_eq!(within(PATIENCE, turned).await, "fixture://one");
    let is_subscribed = async {
        loop {
            let seen: Json = serde_json::from_str(&rig.text("a", "seen").await).expect("JSON");
            if seen["sessions"] == json!(["fixture://one"]) {
                return;
            }
        }
    };
    within(PATIENCE, is_subscribed).await;
    rig.close().await;
}

#[tokio::test]
async fn credentials_that_are_refused_are_looked_up_again() {
    for era in ["--era=2025", "--era=2026"] {
        let guarded = Guarded::ready(era).await;
        let rig = &guarded.rig;
        assert_eq!(rig.text("a", "counted").await, "1");
        guarded.change_token();
        assert_eq!(rig.text("a", "counted").await, "2", "{era}");
        let seen = guarded.site.seen().await;
        assert_eq!(
            (&seen["refused"], &seen["calls"]["counted"]),
            (&json!(1), &json!(2)),
            "{era}"
        );
        guarded.rig.close().await;
    }
}

#[tokio::test]
async fn what_changed_while_a_stream_was_broken_is_seen_after_it() {
    let site = Site::start(&["--era=2026"]).await;
    let rig = Rig::remote(&site, |_| {}).await;
    let mut defined = rig.server.watch();
    assert!(!rig.names().contains(&"late_tool".to_owned()));
    assert_eq!(rig.text("a", "break_streams").await, "broken");
    within(
        PATIENCE,
        defined.wait_for(|_| rig.names().contains(&"late_tool".to_owned())),
    )
    .await
    .expect("the server lives");
    rig.close().await;
}
