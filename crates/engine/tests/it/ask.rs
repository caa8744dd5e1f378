//! Questions: asked by work that waits, and by work that parks.

use longhaul_core::{
    Body, Outcome, Phase, Run, Span,
    event::Answer,
    task::{OnCrash, Rules},
};
use longhaul_engine::{
    tool::{Ended, Finish, Settled},
    transact::Done,
};

use crate::support::*;

on_each_store!(
    an_answer_reaches_the_work_that_waits_for_it,
    an_answer_given_to_another_process_reaches_the_work,
    a_question_nobody_answers_in_time_is_settled_by_the_rule,
    a_cancel_ends_the_wait_for_an_answer,
    work_that_waits_for_an_answer_takes_no_slot,
    more_questions_than_a_tool_may_ask_at_once_are_dismissed_unseen,
    parked_work_goes_on_from_its_checkpoint_with_the_answers,
);

async fn an_answer_reaches_the_work_that_waits_for_it(rig: Rig) {
    let tools = Toolbox::one("ask", |_, context| async move {
        let settled = context
            .ask(vec![question("which?"), question("sure?")])
            .await
            .unwrap();
        let [Settled::Accepted(body), Settled::Declined] = &settled[..] else {
            panic!("{settled:?}")
        };
        Finish::Returned {
            body: body.clone(),
            is_error: false,
        }
    });
    let engine = rig.engine(tools).await;
    let id = call(&engine, "ask").await;
    let asking = until(&engine, id, |row| row.task.phase == Phase::Asking).await;
    assert_eq!(asking.task.open_questions().count(), 2);

    answer(&engine, id, 2, Answer::Decline).await;
    answer(&engine, id, 1, Answer::Accept(Body::new(b"blue"))).await;
    let row = finished(&engine, id).await;
    let body = Body::new(b"blue");
    assert_eq!(
        row.task.phase,
        Phase::Finished(Outcome::Returned {
            body,
            is_error: false
        })
    );
    let again = answer(&engine, id, 1, Answer::Decline).await;
    assert!(matches!(again, Done::NotNow(..)), "{again:?}");
}

async fn an_answer_given_to_another_process_reaches_the_work(rig: Rig) {
    let tools = Toolbox::one("ask", |_, context| async move {
        assert_eq!(
            context.ask(vec![question("well?")]).await,
            Ok(vec![Settled::Dismissed])
        );
        returned("ok")
    });
    let engine = rig.engine(tools).await;
    let other = rig.engine(Toolbox::default()).await;
    let id = call(&engine, "ask").await;
    until(&other, id, |row| row.task.phase == Phase::Asking).await;
    answer(&other, id, 1, Answer::Dismiss).await;
    finished(&other, id).await;
}

async fn a_question_nobody_answers_in_time_is_settled_by_the_rule(rig: Rig) {
    let tools = Toolbox::one("ask", |_, context| async move {
        assert_eq!(
            context.ask(vec![question("well?")]).await,
            Ok(vec![Settled::Declined])
        );
        returned("alone")
    });
    let engine = rig.engine(tools).await;
    let rules = Rules {
        question_deadline: Span(50),
        ..rules(OnCrash::Fail)
    };
    let id = call_with(&engine, "ask", rules, |_| {}).await;
    let row = finished(&engine, id).await;
    let body = Body::new(b"alone");
    assert_eq!(
        row.task.phase,
        Phase::Finished(Outcome::Returned {
            body,
            is_error: false
        })
    );
}

async fn a_cancel_ends_the_wait_for_an_answer(rig: Rig) {
    let stage = Stage::new();
    let seen = stage.clone();
    let tools = Toolbox::one("ask", move |call, context| {
        let seen = seen.clone();
        async move {
            assert_eq!(context.ask(vec![question("well?")]).await, Err(Ended));
            seen.enter(&call);
            Finish::Stopped { confirmed: true }
        }
    });
    let engine = rig.engine(tools).await;
    let id = call(&engine, "ask").await;
    until(&engine, id, |row| row.task.phase == Phase::Asking).await;
    cancel(&engine, id).await;
    stage.began(1).await;
    finished(&engine, id).await;
}

async fn work_that_waits_for_an_answer_takes_no_slot(rig: Rig) {
    let tools = Toolbox::default().with("one", 1, |call, context| async move {
        if call.args == Body::new(b"ask") {
            context.ask(vec![question("well?")]).await.unwrap();
        }
        returned("ok")
    });
    let engine = rig.engine_with(tools, |options| options.waiting_max = 1).await;
    let ask = |opening: &mut longhaul_engine::transact::Opening| opening.args = Body::new(b"ask");
    let waits = call_with(&engine, "one", rules(OnCrash::Fail), ask).await;
    until(&engine, waits, |row| row.task.phase == Phase::Asking).await;
    let quick = call(&engine, "one").await;
    finished(&engine, quick).await;
    assert_eq!(engine.load().waiting.get("one"), Some(&1));

    // The second one that waits keeps the slot.
    let keeps = call_with(&engine, "one", rules(OnCrash::Fail), ask).await;
    until(&engine, keeps, |row| row.task.phase == Phase::Asking).await;
    let held = call(&engine, "one").await;
    assert_eq!(engine.load().running.get("one"), Some(&1));
    assert_eq!(row(&engine, held).await.task.run, Run::Queued { reattach: false });
    answer(&engine, waits, 1, Answer::Decline).await;
    for id in [waits, held] {
        finished(&engine, id).await;
    }
}

async fn more_questions_than_a_tool_may_ask_at_once_are_dismissed_unseen(rig: Rig) {
    let tools = Toolbox::one("ask", |_, context| async move {
        let asks = (0..5).map(|_| question("well?")).collect();
        assert_eq!(context.ask(asks).await, Ok(vec![Settled::Dismissed; 5]));
        returned("ok")
    });
    let engine = rig.engine(tools).await;
    let id = call(&engine, "ask").await;
    assert!(finished(&engine, id).await.task.questions.is_empty());
}

async fn parked_work_goes_on_from_its_checkpoint_with_the_answers(rig: Rig) {
    let stage = Stage::new();
    let seen = stage.clone();
    let tools = Toolbox::one("legs", move |call, context| {
        let seen = seen.clone();
        async move {
            seen.enter(&call);
            if call.checkpoint.is_some() {
                return returned("done");
            }
            // Asked without waiting: the leg parks while the question is open.
            let asking = tokio::spawn(async move { context.ask(vec![question("well?")]).await });
            seen.door().await;
            asking.abort();
            Finish::Parked {
                checkpoint: Body::new(b"so far"),
            }
        }
    });
    let engine = rig.engine(tools).await;
    let id = call(&engine, "legs").await;
    until(&engine, id, |row| row.task.phase == Phase::Asking).await;
    stage.open();
    until(&engine, id, |row| row.task.run == Run::Parked).await;
    answer(&engine, id, 1, Answer::Accept(Body::new(b"yes"))).await;
    finished(&engine, id).await;
    let calls = stage.began(2).await;
    assert_eq!(calls[1].checkpoint, Some(Body::new(b"so far")));
    let settled: Vec<_> = calls[1].asked.iter().map(|asked| asked.settled.clone()).collect();
    assert_eq!(settled, [Some(Settled::Accepted(Body::new(b"yes")))]);
}
