//! `ask` and `progress`, as a tool's command runs them: JSON lines on a socket.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    process::{Child, Stdio},
};

use serde_json::{Value, json};

use crate::support::{Ran, longhaul};

/// Starts the command with one end of a socket as its descriptor 0, and gives the other end.
fn start(arguments: &[&str]) -> (Child, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let theirs: OwnedFd = theirs.into();
    let child = longhaul()
        .args(arguments)
        .env("LONGHAUL_FD", "0")
        .stdin(Stdio::from(theirs.as_fd().try_clone_to_owned().unwrap()))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    (child, ours)
}

fn line(stream: &UnixStream) -> Value {
    let mut text = String::new();
    BufReader::new(stream.try_clone().unwrap())
        .read_line(&mut text)
        .unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Asks, answers with what `answer` makes of the question's id, and waits for the end.
fn ask(arguments: &[&str], answer: impl FnOnce(&Value) -> String) -> (Value, Ran) {
    let (child, mut stream) = start(&[&["ask"], arguments].concat());
    let said = line(&stream);
    stream.write_all(answer(&said["ask"]["id"]).as_bytes()).unwrap();
    drop(stream);
    (said, Ran::of(child.wait_with_output().unwrap()))
}

#[test]
fn progress_is_one_line() {
    let (child, stream) = start(&["progress", "3", "10", "half \"way\"\n"]);
    assert_eq!(
        line(&stream),
        json!({"progress": {"n": 3.0, "total": 10.0, "message": "half \"way\"\n"}})
    );
    assert_eq!(Ran::of(child.wait_with_output().unwrap()).code, 0);
}

#[test]
fn an_accepted_answer_is_printed_alone() {
    let (said, ran) = ask(
        &["--text", "Where?", "--choices", "eu,us", "--default", "eu"],
        |id| {
            format!(
                "{}\n",
                json!({"answer": {"id": id, "action": "accept", "content": {"answer": "us"}}})
            )
        },
    );
    assert_eq!(said["ask"]["message"], "Where?");
    assert_eq!(said["ask"]["choices"], json!(["eu", "us"]));
    assert_eq!(said["ask"]["default"], "eu");
    assert_eq!((ran.code, ran.out.as_str()), (0, "us\n"), "{ran:?}");
}

#[test]
fn a_forms_answer_is_printed_as_json() {
    let directory = tempfile::tempdir().unwrap();
    let form = directory.path().join("form.json");
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    fs::write(&form, schema.to_string()).unwrap();
    let (said, ran) = ask(&["--text", "How many?", "--form", form.to_str().unwrap()], |id| {
        format!(
            "{{\"answer\":{{\"id\":{id},\"action\":\"accept\",\"content\":{{\"n\":9007199254740993}}}}}}\n"
        )
    });
    assert_eq!(said["ask"]["form"], schema);
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (0, "{\"n\":9007199254740993}\n"),
        "{ran:?}"
    );
}

#[test]
fn a_question_too_long_for_its_id_to_be_read_is_declined_without_it() {
    let why = "its line has more than 65536 bytes";
    let (_, ran) = ask(&["--text", "Sure?"], |_| {
        format!(
            "{}\n",
            json!({ "answer": { "id": null, "action": "decline", "why": why } })
        )
    });
    assert_eq!(ran.code, 10, "{ran:?}");
    assert!(ran.err.contains(why), "{ran:?}");
}

#[test]
fn each_way_to_say_no_has_its_own_exit_code() {
    for (answer, code) in [
        (json!({"action": "decline"}), 10),
        (
            json!({"action": "decline", "why": "a question needs a message"}),
            10,
        ),
        (json!({"action": "cancel"}), 11),
        (json!({"action": "cancel", "why": "no_one_to_answer"}), 12),
        (json!({"action": "nobody", "why": "no_one_to_answer"}), 12),
    ] {
        let (_, ran) = ask(&["--text", "Sure?"], |id| {
            let mut answer = answer.clone();
            answer["id"] = id.clone();
            format!("{}\n", json!({ "answer": answer }))
        });
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{answer}: {ran:?}");
    }
}

#[test]
fn an_answer_to_another_command_is_passed_over() {
    let (_, ran) = ask(&["--text", "Sure?"], |id| {
        let other = json!({"answer": {"id": "another", "action": "decline"}});
        let own = json!({"answer": {"id": id, "action": "accept", "content": {"answer": "yes"}}});
        format!("{other}\nnonsense\n{own}\n")
    });
    assert_eq!((ran.code, ran.out.as_str()), (0, "yes\n"), "{ran:?}");
}

#[test]
fn two_that_ask_at_once_take_turns() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let theirs: OwnedFd = theirs.into();
    let start = |text: &str| {
        longhaul()
            .args(["ask", "--text", text])
            .env("LONGHAUL_FD", "0")
            .stdin(Stdio::from(theirs.try_clone().unwrap()))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let children = [start("first"), start("second")];
    drop(theirs);
    let mut lines = BufReader::new(ours.try_clone().unwrap());
    for _ in 0..2 {
        let mut text = String::new();
        lines.read_line(&mut text).unwrap();
        let said: Value = serde_json::from_str(&text).unwrap();
        assert!(lines.buffer().is_empty(), "one question at a time");
        let content = json!({ "answer": said["ask"]["message"] });
        let answer = json!({"answer": {"id": said["ask"]["id"], "action": "accept", "content": content}});
        (&ours).write_all(format!("{answer}\n").as_bytes()).unwrap();
    }
    let [first, second] = children.map(|child| Ran::of(child.wait_with_output().unwrap()));
    assert_eq!((first.code, first.out.as_str()), (0, "first\n"), "{first:?}");
    assert_eq!((second.code, second.out.as_str()), (0, "second\n"), "{second:?}");
}

#[test]
fn a_task_that_ends_meanwhile_leaves_nobody_to_answer() {
    let (_, ran) = ask(&["--text", "Sure?"], |_| String::new());
    assert_eq!(ran.code, 12, "{ran:?}");
}

#[test]
fn outside_a_tools_command_there_is_nobody_to_tell() {
    let output = longhaul().args(["progress", "1"]).output().unwrap();
    let ran = Ran::of(output);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("LONGHAUL_FD"), "{ran:?}");
}
