//! The person who runs Longhaul: the local page, and what `longhaul answer` reads and sends.

use std::{sync::Arc, time::Duration};

use axum::{Router, body::Body, http::Request};
use http_body_util::BodyExt as _;
use longhaul_gateway::{
    admin::{Backend as _, api},
    dispatch::Dispatch,
    local::{links::Links, page},
};
use serde_json::json;
use tower::ServiceExt as _;

use super::PATIENCE;
use crate::support::{ADDRESS, ME, World};

const LOOKS_AGAIN: Duration = Duration::from_millis(2);

pub(crate) struct Person {
    dispatch: Dispatch,
    page: Router,
    cookie: String,
}

/// A task that asks.
#[derive(Clone)]
pub(crate) struct Asking {
    pub name: String,
    pub questions: Vec<api::Question>,
}

impl Person {
    /// One whose browser was let in.
    pub(crate) fn at(world: &World) -> Person {
        let links = Links::new(&format!("http://{ADDRESS}"));
        let link = links.hand_out(ME, None).url;
        let (_, token) = link.split_once("link=").expect("a link");
        let session = links.spend(token).expect("a new link");
        let cookie = format!("{}={session}", links.cookie());
        let backend = Arc::new(world.dispatch.clone());
        Person {
            dispatch: world.dispatch.clone(),
            page: page::router(backend, links, vec![ADDRESS.to_owned()]),
            cookie,
        }
    }

    /// The task that asks so many questions in which this mark stands, once there is one.
    pub(super) async fn asked(&self, mark: &str, count: usize) -> Asking {
        let found = async {
            loop {
                let mut asking = self.asking(mark).await.into_iter();
                if let Some(asking) = asking.find(|asking| asking.questions.len() == count) {
                    return asking;
                }
                // A look now and then leaves the processors to the servers.
                tokio::time::sleep(LOOKS_AGAIN).await;
            }
        };
        tokio::time::timeout(PATIENCE, found)
            .await
            .expect("a question in time")
    }

    /// The tasks that ask something in which this mark stands.
    pub(crate) async fn asking(&self, mark: &str) -> Vec<Asking> {
        let listed = self.dispatch.list(ME, api::Filter::default()).await;
        let tasks = listed.expect("a list").tasks.into_iter();
        let asking = tasks.map(|task| Asking {
            name: task.name,
            questions: task.questions,
        });
        let with_mark = |asking: &Asking| asking.questions.iter().any(|asked| asked.message.contains(mark));
        asking.filter(with_mark).collect()
    }

    /// What the page shows of these questions, in words.
    pub(super) async fn sees_on_page(&self, asking: &Asking) -> String {
        let shown = self.get(&asking.name).await;
        // Parts of a text may be set apart.
        let bare: String = shown
            .split('<')
            .filter_map(|part| part.split_once('>'))
            .map(|(_, text)| text)
            .collect();
        let seen = asking.questions.iter().map(|question| {
            assert!(bare.contains(&question.message), "{shown}");
            match &question.url {
                Some(url) if bare.contains(url.as_str()) => "the link in full",
                None if shown.contains(r#"name="f.name""#) => "the form",
                Some(_) | None => "the question alone",
            }
        });
        seen.collect::<Vec<_>>().join(" and ")
    }

    /// What `longhaul answer NAME` can show of them, in words.
    pub(super) fn sees_in_terminal(asking: &Asking) -> String {
        let seen = asking
            .questions
            .iter()
            .map(|question| match (&question.url, &question.form) {
                (Some(_), _) => "the link in full",
                (None, Some(_)) => "the form",
                (None, None) => "the question alone",
            });
        seen.collect::<Vec<_>>().join(" and ")
    }

    /// Answers on the page; the answer may be late.
    pub(crate) async fn answers_on_page(&self, asking: &Asking, question: &api::Question, value: &str) {
        let shown = self.get(&asking.name).await;
        let Some((_, rest)) = shown.split_once(r#"name="form_token" value=""#) else {
            assert!(shown.contains("Nothing is asked"), "{shown}");
            return;
        };
        let token = rest.split('"').next().unwrap_or_default();
        let filled_in = match question.url {
            Some(_) => String::new(),
            None => format!("&f.name={value}"),
        };
        let sent = format!(
            "form_token={token}&question={}&action=accept{filled_in}",
            question.key
        );
        let request = self
            .request(Request::post(format!("/ask/{}", asking.name)))
            .header("origin", format!("http://{ADDRESS}"))
            .header("content-type", "application/x-www-form-urlencoded")
            .body(Body::from(sent))
            .expect("a request");
        let (status, text) = self.send(request).await;
        let is_late = text.contains("<title>Too late");
        assert!(status == 303 || is_late, "{status}: {text}");
    }

    /// Answers as the terminal does: whether the answer was in time.
    pub(crate) async fn answers_in_terminal(
        &self,
        asking: &Asking,
        question: &api::Question,
        value: &str,
    ) -> bool {
        let content = serde_json::value::to_raw_value(&json!({ "name": value })).expect("JSON");
        let answer = api::Answer {
            question: Some(question.key.clone()),
            action: api::Action::Accept,
            content: question.form.is_some().then_some(content),
        };
        self.dispatch
            .answer(ME, asking.name.clone(), answer)
            .await
            .is_ok()
    }

    async fn get(&self, name: &str) -> String {
        let request = self.request(Request::get(format!("/ask/{name}")));
        let (status, text) = self.send(request.body(Body::empty()).expect("a request")).await;
        assert_eq!(status, 200, "{text}");
        text
    }

    fn request(&self, request: axum::http::request::Builder) -> axum::http::request::Builder {
        request.header("host", ADDRESS).header("cookie", &self.cookie)
    }

    async fn send(&self, request: Request<Body>) -> (u16, String) {
        let response = self.page.clone().oneshot(request).await.expect("a reply");
        let status = response.status().as_u16();
        let body = tokio::time::timeout(Duration::from_secs(20), response.into_body().collect());
        let body = body.await.expect("in time").expect("a body").to_bytes();
        (status, String::from_utf8(body.to_vec()).expect("UTF-8"))
    }
}
