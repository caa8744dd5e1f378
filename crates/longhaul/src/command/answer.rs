//! `longhaul answer`: answers the open questions of a task, by flags, by what is typed, or by what is piped in.

use std::{
    collections::BTreeMap,
    io::{self, Read as _},
};

use longhaul_gateway::{
    admin::api::{Action, Answer as Given, Question, Settled, Task},
    local::form,
};
use serde_json::value::RawValue;

use crate::{
    arguments, background,
    client::Client,
    exit::{Exit, Failure, Outcome},
    flags::{Answer, Common},
    prompt,
    screen::{counted, line, say, say_json, tell},
};

/// The most that is read from standard input, in bytes.
const PIPED_MAX: u64 = 256 * 1024;
/// The argument that stands for standard input.
const PIPED: &str = "-";

/// Runs the command.
pub(crate) async fn answer(common: &Common, flags: &Answer) -> Outcome {
    let client = background::client(common)?;
    let task = client.task(&flags.name).await?;
    let answered = match way(&task, flags)? {
        Way::Typed(questions) => typed(&client, task, &questions, &mut prompt::Typed::begin()).await?,
        Way::Made(answers) => given(&client, task, &answers).await?,
    };
    let Answered { task, last } = answered;
    if common.json {
        say_json(&task)?;
        return Ok(Exit::Done);
    }
    say(done(&task, last));
    if !task.questions.is_empty() {
        let more = counted(task.questions.len(), "open question");
        say(format!("{more}: longhaul answer {}", task.name));
    }
    Ok(Exit::Done)
}

/// Asks a person all that this task asks, and says what was done.
pub(crate) async fn dialogue(
    client: &Client,
    name: &str,
    lines: &mut prompt::Typed,
) -> Result<String, Failure> {
    let task = client.task(name).await?;
    let questions = task.questions.clone();
    let Answered { task, last } = typed(client, task, &questions, lines).await?;
    Ok(done(&task, last))
}

fn done(task: &Task, last: Action) -> String {
    let word = match last {
        Action::Accept => "answered",
        Action::Decline => "declined",
        Action::Dismiss => "dismissed",
    };
    format!("{word}; task {} is {}", task.name, task.state.word())
}

/// How the answers come.
enum Way {
    /// A person is asked these.
    Typed(Vec<Question>),
    /// They are here.
    Made(Vec<Given>),
}

/// What was done.
struct Answered {
    task: Task,
    last: Action,
}

fn way(task: &Task, flags: &Answer) -> Result<Way, Failure> {
    if flags.fields.first().is_some_and(|field| field == PIPED) {
        return piped(task, flags).map(Way::Made);
    }
    let is_asked = flags.fields.is_empty() && !flags.accept && !flags.decline && !flags.dismiss;
    if is_asked && prompt::is_possible() {
        let questions = match &flags.question {
            None if !task.questions.is_empty() => task.questions.clone(),
            key => vec![pick(task, key.as_deref())?.clone()],
        };
        return Ok(Way::Typed(questions));
    }
    let question = pick(task, flags.question.as_deref())?;
    Ok(Way::Made(vec![made(task, question, flags)?]))
}

/// Asks at the terminal, one question after the other.
async fn typed(
    client: &Client,
    mut task: Task,
    questions: &[Question],
    typed: &mut prompt::Typed,
) -> Result<Answered, Failure> {
    let mut last = Action::Accept;
    for question in questions {
        let mut earlier = prompt::Earlier::new();
        loop {
            let answer = prompt::ask(typed, &task, question, &mut earlier)
                .await
                .ok_or_else(|| Failure::new(Exit::Interrupted, "interrupted", "nothing was answered"))?;
            last = answer.action;
            match client.answer(&task.name, &answer).await {
                Ok(newer) => {
                    task = newer;
                    break;
                }
                Err(failure) if failure.reason == "misfit" => {
                    tell(format!("  {}", line(&failure.message)));
                    task = client.task(&task.name).await?;
                    if !task.questions.iter().any(|open| open.key == question.key) {
                        last = Action::Decline;
                        break;
                    }
                }
                // The others may still be open.
                Err(failure) if failure.reason == "question_closed" && questions.len() > 1 => {
                    tell(format!("  {}", line(&failure.message)));
                    break;
                }
                Err(failure) => return Err(failure),
            }
        }
    }
    Ok(Answered { task, last })
}

/// Gives answers that are here.
async fn given(client: &Client, mut task: Task, answers: &[Given]) -> Result<Answered, Failure> {
    let mut last = Action::Accept;
    for answer in answers {
        last = answer.action;
        let question = task
            .questions
            .iter()
            .find(|open| Some(&open.key) == answer.question.as_ref());
        let fields = question.and_then(|question| question.form.as_deref());
        let fields = fields.map(form::fields).unwrap_or_default();
        task = client
            .answer(&task.name, answer)
            .await
            .map_err(|failure| match failure.reason.as_str() {
                "misfit" => {
                    let usage = arguments::usage(&fields);
                    failure.fix(format!("longhaul answer {} {usage}", task.name))
                }
                _ => failure,
            })?;
    }
    Ok(Answered { task, last })
}

fn pick<'a>(task: &'a Task, key: Option<&str>) -> Result<&'a Question, Failure> {
    let open: Vec<&str> = task
        .questions
        .iter()
        .map(|question| question.key.as_str())
        .collect();
    let none = |message: String| Failure::new(Exit::Refused, "no_question", message);
    let over = key.and_then(|key| task.settled.iter().find(|settled| settled.key == key));
    if let Some(Settled { key, how }) = over {
        return Err(none(format!("{key}: {}", how.words())).fix(format!("longhaul tasks {}", task.name)));
    }
    match (task.questions.as_slice(), key) {
        ([], _) => {
            let last = task.settled.last();
            let last = last.map(|last| format!("; {}: {}", last.key, last.how.words()));
            let last = last.unwrap_or_default();
            Err(
                none(format!("task {} asks nothing at the moment{last}", task.name))
                    .fix(format!("longhaul tasks {}", task.name)),
            )
        }
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

fn settled(question: &Question, action: Action, content: Option<Box<RawValue>>) -> Given {
    Given {
        question: Some(question.key.clone()),
        action,
        content,
    }
}

/// The answer that the flags make.
fn made(task: &Task, question: &Question, flags: &Answer) -> Result<Given, Failure> {
    if flags.decline {
        return Ok(settled(question, Action::Decline, None));
    }
    if flags.dismiss {
        return Ok(settled(question, Action::Dismiss, None));
    }
    let Some(schema) = &question.form else {
        return match flags.accept {
            true => Ok(settled(question, Action::Accept, None)),
            false => Err(Failure::usage("this question asks for consent and has no fields")
                .fix(format!("longhaul answer {} --accept, or --decline", task.name))),
        };
    };
    if flags.fields.is_empty() && !flags.accept {
        let usage = arguments::usage(&form::fields(schema));
        return Err(Failure::usage(format!("asks: {}", line(&question.message)))
            .fix(format!("longhaul answer {} {usage}, or --decline", task.name)));
    }
    let content = arguments::object(schema, &flags.fields)?;
    Ok(settled(question, Action::Accept, Some(content)))
}

/// The answers on standard input: an object with the fields of the only question, or with one such object for the key of
/// each of several.
fn piped(task: &Task, flags: &Answer) -> Result<Vec<Given>, Failure> {
    let mut text = String::new();
    let read = io::stdin().lock().take(PIPED_MAX + 1).read_to_string(&mut text);
    read.map_err(|error| Failure::usage(format!("cannot read standard input: {error}")))?;
    if text.len() as u64 > PIPED_MAX {
        return Err(Failure::usage("standard input holds more than 256 KiB"));
    }
    let no_object = |error: serde_json::Error| {
        Failure::usage(format!("standard input holds no JSON object: {error}"))
            .fix(r#"{"FIELD": VALUE}, or {"q1": {…}, "q2": {…}} for several questions"#)
    };
    let content: BTreeMap<String, Box<RawValue>> = serde_json::from_str(&text).map_err(no_object)?;
    if flags.question.is_none() && task.questions.len() > 1 {
        return content
            .into_iter()
            .map(|(key, content)| Ok(accepted(pick(task, Some(&key))?, content)))
            .collect();
    }
    let question = pick(task, flags.question.as_deref())?;
    Ok(vec![accepted(question, form::object(&content))])
}

/// Consent has no content.
fn accepted(question: &Question, content: Box<RawValue>) -> Given {
    settled(question, Action::Accept, question.form.as_ref().map(|_| content))
}
