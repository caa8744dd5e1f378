//! Equal calls: one that comes back waits for the work of the one that was left; any other begins its own (D-40,
//! D-45).

use longhaul_core::Span;
use longhaul_gateway::{
    dispatch::{Left, Settings},
    identity::{Caller, Origin},
};
use longhaul_mcp::{Reply, request::Takes};
use longhaul_store::{Owner, RecordKind};
use serde_json::{Value, json};

use crate::support::site::{Saying, Server, Site, impatient, patient, reply, result, said};

fn is_left(record: &Value) -> bool {
    record["left"] == true
}

/// A call that began and whose caller left.
async fn left(site: &Site, server: &Server, saying: &Saying, tool: &str) {
    let runs = site.runs();
    let mut held = server.held(saying, tool).await;
    tokio::select! {
        () = site.began(runs + 1) => {}
        step = held.next() => drop(step),
    }
    drop(held);
    server.record_until(RecordKind::Join, is_left).await;
}

#[tokio::test]
async fn ten_calls_that_come_back_are_one_run() {
    let site = Site::new();
    let server = site.serve(patient()).await;
    left(&site, &server, &Saying::default(), "work").await;
    let mut waiting = Vec::new();
    for _ in 0..10 {
        waiting.push(server.held(&Saying::default(), "work").await);
    }
    site.release();
    for held in waiting {
        assert_eq!(said(&result(held.finish().await)), "run 1");
    }
    assert_eq!(site.runs(), 1);
}

#[tokio::test]
async fn who_was_told_that_the_work_goes_on_may_call_again() {
    let site = Site::new();
    let server = site.serve(impatient()).await;
    let mut names = Vec::new();
    for _ in 0..3 {
        let told = server.result(&Saying::default(), "work", json!({})).await;
        names.push(crate::support::site::named(&told));
    }
    assert!(names.iter().all(|name| *name == names[0]), "{names:?}");
    assert_eq!(site.runs(), 1);
}

#[tokio::test]
async fn once_the_result_arrived_an_equal_call_is_new_work() {
    let site = Site::new();
    let server = site.serve(patient()).await;
    left(&site, &server, &Saying::default(), "work").await;
    site.release();
    let results = [
        server.result(&Saying::default(), "work", json!({})).await,
        server.result(&Saying::default(), "work", json!({})).await,
    ];
    assert_eq!((said(&results[0]), said(&results[1])), ("run 1", "run 2"));
}

#[tokio::test]
async fn a_result_that_did_not_arrive_is_given_again() {
    let site = Site::new();
    let server = site.serve(patient()).await;
    site.release();
    // The reply was made, and its caller was gone.
    let mut held = server.held(&Saying::default(), "work").await;
    assert_eq!(said(&result(reply(&mut held).await)), "run 1");
    drop(held);
    server.record_until(RecordKind::Join, is_left).await;
    let mut back = server.held(&Saying::default(), "work").await;
    assert_eq!(said(&result(reply(&mut back).await)), "run 1");
    drop(back);
    server.record_until(RecordKind::Join, is_left).await;
    assert_eq!(
        said(&server.result(&Saying::default(), "work", json!({})).await),
        "run 1"
    );
    assert_eq!(
        said(&server.result(&Saying::default(), "work", json!({})).await),
        "run 2"
    );
}

#[tokio::test]
async fn a_result_on_its_way_is_nobody_elses() {
    let site = Site::new();
    let server = site.serve(patient()).await;
    left(&site, &server, &Saying::default(), "work").await;
    site.release();
    let mut back = server.held(&Saying::default(), "work").await;
    assert_eq!(said(&result(reply(&mut back).await)), "run 1");
    let other = server.result(&Saying::default(), "work", json!({})).await;
    assert_eq!(said(&other), "run 2");
    back.delivered().await;
}

#[tokio::test]
async fn equal_calls_side_by_side_are_each_their_own_work() {
    let site = Site::new();
    let server = site.serve(patient()).await;
    let one = server.held(&Saying::default(), "work").await;
    let two = server.held(&Saying::default(), "work").await;
    site.began(2).await;
    site.release();
    let mut results =
        [result(one.finish().await), result(two.finish().await)].map(|result| said(&result).to_owned());
    results.sort();
    assert_eq!(results, ["run 1", "run 2"]);
}

#[tokio::test]
async fn calls_that_differ_in_anything_do_not_meet() {
    let site = Site::new();
    let server = site.serve(patient()).await;
    left(&site, &server, &Saying::in_session("s"), "work").await;
    let mut keyed = Saying::in_session("s");
    keyed.key = Some("k".to_owned());
    let local = Caller::local(Origin::Client);
    let stranger = Caller {
        owner: Owner {
            subject: "uid:nobody".to_owned(),
            ..local.owner.clone()
        },
        ..local.clone()
    };
    let same = Saying::in_session("s");
    let mut runs = 1;
    let mut others = Vec::new();
    for (caller, saying, tool, arguments) in [
        (&stranger, &same, "work", json!({})),
        (&local, &Saying::in_session("t"), "work", json!({})),
        (&local, &Saying::default(), "work", json!({})),
        (&local, &same, "finishes", json!({})),
        (&local, &same, "work", json!({ "n": 1 })),
        (&local, &keyed, "work", json!({})),
        (
            &local,
            &Saying {
                client: longhaul_mcp::Client {
                    takes: Takes::AtOnce,
                    ..same.client.clone()
                },
                ..same.clone()
            },
            "work",
            json!({}),
        ),
    ] {
        others.push(server.call_as(caller, saying, tool, arguments).await);
        runs += 1;
        site.began(runs).await;
    }
    // Equal by value, whatever the spelling and the order.
    let again = server.held(&same, "work").await;
    site.release();
    assert_eq!(said(&result(again.finish().await)), "run 1");
    assert_eq!(site.runs(), runs);
}

#[tokio::test]
async fn a_tool_may_begin_anew_each_time() {
    let site = Site::new();
    let server = site.serve(impatient()).await;
    for run in 1..=2 {
        let told = server.result(&Saying::default(), "anew", json!({})).await;
        site.began(run).await;
        assert!(
            said(&told).contains("Calling anew again would start it a second time."),
            "{told}"
        );
    }
    assert!(server.records(RecordKind::Join).await.is_empty());
}

#[tokio::test]
async fn what_ended_unseen_is_kept_for_a_while() {
    let site = Site::new();
    let server = site.serve(patient()).await;
    left(&site, &server, &Saying::default(), "work").await;
    site.release();
    server.until("done").await;
    let forgetful = Settings {
        kept_for_join: Span(0),
        ..patient()
    };
    let forgetful = site.serve(forgetful).await;
    assert_eq!(
        said(&forgetful.result(&Saying::default(), "work", json!({})).await),
        "run 2"
    );
}

// D-40: the handle of a task that did not arrive is found by the next equal call, and then is not found again.
#[tokio::test(start_paused = true)]
async fn a_handle_that_did_not_arrive_is_handed_to_the_next_equal_call() {
    let site = Site::new();
    let server = site.serve(patient()).await;
    let takes = Saying::taking(Takes::WhenSlow);
    let id = |reply: Reply| {
        let Reply::TaskCreated(task) = reply else {
            panic!("no task: {reply:?}");
        };
        task.id
    };
    let mut lost = server.held(&takes, "work").await;
    let first = id(reply(&mut lost).await);
    drop(lost);
    server.record_until(RecordKind::Join, is_left).await;
    let again = id(server.held(&takes, "work").await.finish().await);
    assert_eq!(again, first);
    let third = id(server.held(&takes, "work").await.finish().await);
    assert_ne!(third, first);
    assert_eq!(site.runs(), 2);
}

// A call that is answered in time costs no write beside those of its task.
#[tokio::test]
async fn a_call_that_is_answered_in_time_leaves_its_record_to_expire() {
    let site = Site::new();
    let server = site.serve(patient()).await;
    assert_eq!(
        said(&server.result(&Saying::default(), "quick", json!({})).await),
        "done at once"
    );
    let records = server.records(RecordKind::Join).await;
    let bodies: Vec<Value> = records
        .iter()
        .map(|record| serde_json::from_slice(&record.body).expect("JSON"))
        .collect();
    assert_eq!(bodies.len(), 1);
    assert_eq!(bodies[0]["left"], false);
    assert_eq!(records[0].version, 1);
    assert!(records[0].expires_at.is_some());
}

/// A process that is killed: nothing of it runs on, and nothing that it would have done at its end is done.
fn in_a_process_that_is_killed<T>(during: impl AsyncFnOnce() -> T) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let left_behind = runtime.block_on(during());
    drop(runtime);
    drop(left_behind);
}

fn in_the_next_process(during: impl Future<Output = ()>) {
    tokio::runtime::Runtime::new()
        .expect("a runtime")
        .block_on(during);
}

#[test]
fn after_a_crash_the_caller_that_comes_back_learns_what_became_of_its_call_and_nothing_ran_twice() {
    let site = Site::on_sqlite();
    in_a_process_that_is_killed(async || {
        let server = site.serve(patient()).await;
        let held = server.held(&Saying::default(), "work").await;
        site.began(1).await;
        (held, server)
    });
    in_the_next_process(async {
        let server = site.serve(patient()).await;
        let told = server.held(&Saying::default(), "work").await.finish().await;
        let Reply::Error(error) = told else {
            panic!("no error: {told:?}");
        };
        assert!(error.message.starts_with("Interrupted"), "{error:?}");
        assert_eq!(site.runs(), 1);
        // It was told; a further call is meant.
        site.release();
        assert_eq!(
            said(&server.result(&Saying::default(), "work", json!({})).await),
            "run 2"
        );
    });
}

#[test]
fn a_call_that_was_answered_before_the_crash_is_not_waited_for_after_it() {
    let site = Site::on_sqlite();
    site.release();
    in_a_process_that_is_killed(async || {
        let server = site.serve(patient()).await;
        assert_eq!(
            said(&server.result(&Saying::default(), "work", json!({})).await),
            "run 1"
        );
        server
    });
    in_the_next_process(async {
        let server = site.serve(patient()).await;
        assert_eq!(
            said(&server.result(&Saying::default(), "work", json!({})).await),
            "run 2"
        );
    });
}

#[test]
fn what_a_left_call_returned_outlives_the_process() {
    let site = Site::on_sqlite();
    in_a_process_that_is_killed(async || {
        let server = site.serve(patient()).await;
        left(&site, &server, &Saying::default(), "work").await;
        site.release();
        server.until("done").await;
        server
    });
    in_the_next_process(async {
        let server = site.serve(patient()).await;
        let results = [
            server.result(&Saying::default(), "work", json!({})).await,
            server.result(&Saying::default(), "work", json!({})).await,
        ];
        assert_eq!((said(&results[0]), said(&results[1])), ("run 1", "run 2"));
    });
}

#[tokio::test]
async fn a_call_cancelled_on_purpose_is_begun_anew_by_the_next() {
    let site = Site::new();
    let server = site.serve(patient()).await;
    left(&site, &server, &Saying::default(), "work").await;
    let back = server.held(&Saying::default(), "work").await;
    back.leave(Left::Cancelled);
    server.until("cancelled").await;
    while !server.records(RecordKind::Join).await.is_empty() {
        tokio::task::yield_now().await;
    }
    site.release();
    assert_eq!(
        said(&server.result(&Saying::default(), "work", json!({})).await),
        "run 2"
    );
}
