//! `longhaul_wait`, and what a caller is told whose work asks what its client cannot be asked.

use std::time::Duration;

use longhaul_gateway::{
    dispatch::{Handled, Settings},
    identity::{Caller, Origin},
};
use longhaul_mcp::{Reply, request::Takes};
use longhaul_store::{Owner, RecordKind};
use serde_json::json;

use crate::support::site::{Saying, Site, impatient, named, patient, reply, result, said};

#[tokio::test]
async fn a_wait_gives_what_the_call_would_have_given() {
    let site = Site::new();
    let server = site.serve(impatient()).await;
    let name = named(&server.result(&Saying::default(), "work", json!({})).await);
    let told = server.wait(json!({ "task": name, "since": 1 })).await;
    assert!(
        said(&told).starts_with("STILL RUNNING (not an error). work: "),
        "{told}"
    );
    assert!(said(&told).contains("\"since\":2"), "{told}");
    assert!(said(&told).contains("also waits"), "{told}");
    assert_eq!(told["structuredContent"]["since"], 2);
    site.release();
    server.until("done").await;
    let given = server
        .wait(json!({ "task": name.to_uppercase(), "since": 2 }))
        .await;
    assert_eq!(said(&given), "run 1");
    assert_eq!(given["structuredContent"]["run"], 1);
    // It arrived: an equal call is new work.
    let patient = site.serve(patient()).await;
    assert_eq!(
        said(&patient.result(&Saying::default(), "work", json!({})).await),
        "run 2"
    );
}

// A client that takes tasks is not handed one for a wait.
#[tokio::test(start_paused = true)]
async fn a_wait_is_never_a_task() {
    let site = Site::new();
    let server = site.serve(patient()).await;
    let Reply::TaskCreated(task) = server
        .held(&Saying::taking(Takes::WhenSlow), "work")
        .await
        .finish()
        .await
    else {
        panic!("no task");
    };
    let wait = server
        .call(
            &Saying::taking(Takes::WhenSlow),
            "longhaul_wait",
            json!({ "task": task.name }),
        )
        .await;
    let Handled::Call(held) = wait else {
        panic!("not held")
    };
    site.release();
    assert_eq!(said(&result(held.finish().await)), "run 1");
    //
    let asked = server
        .call(
            &Saying::taking(Takes::AtOnce),
            "longhaul_wait",
            json!({ "task": task.name }),
        )
        .await;
    let Handled::Reply(refused) = asked else {
        panic!("taken")
    };
    assert!(
        matches!(*refused, Reply::Error(ref error) if error.code == -32601),
        "{refused:?}"
    );
}

#[tokio::test]
async fn another_owners_task_is_no_task_at_all() {
    let site = Site::new();
    let server = site.serve(impatient()).await;
    let name = named(&server.result(&Saying::default(), "work", json!({})).await);
    let local = Caller::local(Origin::Client);
    let stranger = Caller {
        owner: Owner {
            subject: "uid:nobody".to_owned(),
            ..local.owner.clone()
        },
        ..local
    };
    for cancel in [false, true] {
        let arguments = |name: &str| json!({ "task": name, "cancel": cancel });
        let said = async |caller: &Caller, name: &str| {
            let told = server
                .call_as(caller, &Saying::default(), "longhaul_wait", arguments(name))
                .await;
            let Handled::Reply(told) = told else {
                panic!("held")
            };
            result(*told).to_string().replace(name, "NAME")
        };
        let foreign = said(&stranger, &name).await;
        assert_eq!(foreign, said(&stranger, "zzzzzz").await);
        assert!(foreign.contains("\"isError\":true"), "{foreign}");
    }
    let listed = server
        .call_as(&stranger, &Saying::default(), "longhaul_wait", json!({}))
        .await;
    let Handled::Reply(listed) = listed else {
        panic!("held")
    };
    assert_eq!(result(*listed)["structuredContent"]["tasks"], json!([]));
    assert_eq!(server.tasks().await[0].2, "running");
}

#[tokio::test]
async fn tasks_are_listed_with_what_they_do() {
    let site = Site::new();
    let server = site.serve(impatient()).await;
    let none = server.wait(json!({})).await;
    assert_eq!(
        said(&none),
        "No task of yours is open, and none ended in the last hour."
    );
    let name = named(&server.result(&Saying::default(), "work", json!({})).await);
    let listed = server.listed_with("61 %, 214 of 350").await;
    let line = listed.lines().nth(1).expect("a line");
    assert!(line.starts_with(&format!("{name} work: running, ")), "{line}");
    site.release();
    server.until("done").await;
    let listed = server.wait(json!({})).await;
    let line = said(&listed).lines().nth(1).expect("a line");
    assert!(
        line.starts_with(&format!("{name} work: done, ")) && line.ends_with(" ago"),
        "{line}"
    );
}

#[tokio::test]
async fn a_cancel_says_what_is_known_of_the_stop() {
    let site = Site::new();
    let server = site.serve(impatient()).await;
    let name = named(&server.result(&Saying::default(), "work", json!({})).await);
    site.began(1).await;
    let told = server.wait(json!({ "task": name, "cancel": true })).await;
    assert_eq!(
        said(&told),
        format!("{name} (work) is cancelled: cancelled, its work is being stopped.")
    );
    assert_eq!(told["structuredContent"]["stop"], "stopping");
    server.until("cancelled").await;
    let told = server.wait(json!({ "task": name, "cancel": true })).await;
    assert_eq!(
        said(&told),
        format!("{name} (work) had ended before: cancelled, nothing of its work is left.")
    );
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_said() {
    let site = Site::new();
    let server = site.serve(patient()).await;
    for arguments in [
        json!({ "name": "k7f2m9" }),
        json!({ "task": 7 }),
        json!({ "task": "k7f2m9", "since": -1 }),
        json!({ "cancel": true }),
    ] {
        let told = server.wait(arguments.clone()).await;
        assert_eq!(told["isError"], true, "{arguments}");
        assert!(
            said(&told).starts_with("longhaul_wait: the arguments do not fit.\n"),
            "{told}"
        );
    }
}

#[tokio::test]
async fn the_helper_is_listed_last_or_not_at_all() {
    let site = Site::new();
    let names = async |settings: Settings| {
        let server = site.serve(settings).await;
        let caller = Caller::local(Origin::Client);
        let list = longhaul_mcp::Request::ListTools { cursor: None };
        let Handled::Reply(reply) = server.handle(&caller, Saying::default().client, list).await else {
            panic!("no reply");
        };
        let Reply::Tools(page) = *reply else {
            panic!("no tools")
        };
        page.tools.into_iter().map(|tool| tool.name).collect::<Vec<_>>()
    };
    let with = names(patient()).await;
    assert_eq!(
        with.iter().position(|name| name == "longhaul_wait"),
        Some(with.len() - 1)
    );
    let without = Settings {
        wait_tool: false,
        ..impatient()
    };
    assert!(!names(without.clone()).await.contains(&"longhaul_wait".to_owned()));
    let server = site.serve(without).await;
    let Handled::Reply(unknown) = server.call(&Saying::default(), "longhaul_wait", json!({})).await else {
        panic!("taken");
    };
    assert!(matches!(*unknown, Reply::Error(_)));
    let told = server.result(&Saying::default(), "work", json!({})).await;
    assert!(!said(&told).contains("longhaul_wait"), "{told}");
}

// The caller is told at once, once; then it waits for what comes of it.
#[tokio::test(start_paused = true)]
async fn a_question_that_the_client_cannot_be_asked_is_told_once() {
    let site = Site::new();
    let server = site.serve(patient()).await;
    let told = server.result(&Saying::default(), "asks", json!({})).await;
    let name = named(&told);
    assert_eq!(told["isError"], false);
    assert_eq!(told["structuredContent"]["state"], "asking");
    assert_eq!(
        said(&told),
        format!(
            "WAITING FOR AN ANSWER (not an error). asks asks: What is the name?\nTell the user: longhaul answer \
             {name}, or the local page. Then longhaul_wait {{\"task\":\"{name}\",\"since\":1}}."
        )
    );
    // A wait that never heard of it hears of it.
    let told = server.wait(json!({ "task": name })).await;
    assert!(said(&told).starts_with("WAITING FOR AN ANSWER"), "{told}");
    // One that has waits for the answer, and so does an equal call.
    let quiet = Duration::from_secs(3600);
    let wait = json!({ "task": name, "since": 1 });
    let Handled::Call(mut wait) = server.call(&Saying::default(), "longhaul_wait", wait).await else {
        panic!("answered");
    };
    let mut again = server.held(&Saying::default(), "asks").await;
    assert!(tokio::time::timeout(quiet, reply(&mut wait)).await.is_err());
    assert!(tokio::time::timeout(quiet, reply(&mut again)).await.is_err());
    server.answer(&name, json!({ "name": "Ada" })).await;
    assert_eq!(said(&result(wait.finish().await)), "Ada");
    assert_eq!(said(&result(again.finish().await)), "Ada");
    assert!(server.records(RecordKind::Join).await.is_empty());
}

// At the limit the caller hears again, so that its client does not give up.
#[tokio::test(start_paused = true)]
async fn a_wait_for_an_answer_has_the_same_limit() {
    let site = Site::new();
    let server = site.serve(Settings::default()).await;
    let name = named(&server.result(&Saying::default(), "asks", json!({})).await);
    let began = tokio::time::Instant::now();
    let told = server.wait(json!({ "task": name, "since": 1 })).await;
    assert!(began.elapsed() >= Duration::from_secs(25));
    assert!(said(&told).starts_with("WAITING FOR AN ANSWER"), "{told}");
    assert_eq!(told["structuredContent"]["since"], 2);
}

// A wait takes one of the places that held calls have.
#[tokio::test]
async fn waits_count_as_held_calls() {
    let site = Site::new();
    let settings = Settings {
        held_max: 1,
        ..patient()
    };
    let server = site.serve(settings).await;
    let held = server.held(&Saying::default(), "work").await;
    site.began(1).await;
    let Handled::Reply(refused) = server
        .call(&Saying::default(), "longhaul_wait", json!({ "task": "k7f2m9" }))
        .await
    else {
        panic!("taken");
    };
    assert!(
        matches!(*refused, Reply::Error(ref error) if error.code == 7402),
        "{refused:?}"
    );
    drop(held);
}
