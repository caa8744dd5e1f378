//! `longhaul answer`: gives one answer to one question of a task.

use longhaul_gateway::{
    admin::api::{Action, Answer as Given, Question, Task},
    local::form,
};

use crate::{
    arguments, background,
    exit::{Exit, Failure, Outcome},
    flags::{Answer, Common},
    prompt,
    screen::{line, say, say_json},
};

/// Runs the command.
pub(crate) async fn answer(common: &Common, flags: &Answer) -> Outcome {
    let client = background::client(common)?;
    let task = client.task(&flags.name).await?;
    let question = pick(&task, flags.question.as_deref())?;
    let given = made(&task, question, flags).await?;
    let task = client
        .answer(&task.name, &given)
        .await
        .map_err(|failure| match failure.reason.as_str() {
            "misfit" => {
                let fields = question.form.as_deref().map(form::fields).unwrap_or_default();
                failure.fix(format!(
                    "longhaul answer {} {}",
                    task.name,
                    arguments::usage(&fields)
                ))
            }
            _ => failure,
        })?;
    match common.json {
        true => say_json(&task)?,
        false => {
            let word = match given.action {
                Action::Accept => "answered",
                Action::Decline => "declined",
                Action::Dismiss => "dismissed",
            };
            say(format!("{word}; task {} is {}", task.name, task.state.word()));
        }
    }
    Ok(Exit::Done)
}

fn pick<'a>(task: &'a Task, key: Option<&str>) -> Result<&'a Question, Failure> {
    let open: Vec<&str> = task
        .questions
        .iter()
        .map(|question| question.key.as_str())
        .collect();
    let none = |message: String| Failure::new(Exit::Refused, "no_question", message);
    match (task.questions.as_slice(), key) {
        ([], _) => Err(none(format!("task {} asks nothing at the moment", task.name))
            .fix(format!("longhaul tasks {}", task.name))),
        ([only], None) => Ok(only),
        (_, None) => Err(
            Failure::usage(format!("task {} asks {} questions", task.name, open.len()))
                .fix(format!("--question KEY, one of {}", open.join(", "))),
        ),
        (questions, Some(key)) => questions
            .iter()
            .find(|question| question.key == key)
            .ok_or_else(|| {
                none(format!("task {} has no open question `{}`", task.name, line(key)))
                    .fix(format!("open: {}", open.join(", ")))
            }),
    }
}

async fn made(task: &Task, question: &Question, flags: &Answer) -> Result<Given, Failure> {
    let settled = |action, content| Given {
        question: Some(question.key.clone()),
        action,
        content,
    };
    if flags.decline {
        return Ok(settled(Action::Decline, None));
    }
    if flags.dismiss {
        return Ok(settled(Action::Dismiss, None));
    }
    let Some(schema) = &question.form else {
        return match (flags.accept, flags.fields.is_empty()) {
            (true, _) => Ok(settled(Action::Accept, None)),
            (false, true) if prompt::is_possible() => asked(task, question).await,
            (false, _) => Err(Failure::usage("this question asks for consent and has no fields")
                .fix(format!("longhaul answer {} --accept, or --decline", task.name))),
        };
    };
    if flags.fields.is_empty() && !flags.accept {
        if prompt::is_possible() {
            return asked(task, question).await;
        }
        let usage = arguments::usage(&form::fields(schema));
        return Err(Failure::usage(format!("asks: {}", line(&question.message)))
            .fix(format!("longhaul answer {} {usage}, or --decline", task.name)));
    }
    Ok(settled(
        Action::Accept,
        Some(arguments::object(schema, &flags.fields)?),
    ))
}

async fn asked(task: &Task, question: &Question) -> Result<Given, Failure> {
    let mut typed = prompt::Typed::begin();
    prompt::ask(&mut typed, &task.tool, question, &mut prompt::Earlier::new())
        .await
        .ok_or_else(|| Failure::new(Exit::Interrupted, "interrupted", "nothing was answered"))
}
