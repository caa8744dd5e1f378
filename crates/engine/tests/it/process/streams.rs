//! What goes in and comes out: bytes as they are, within bounds, in order.

use std::{
    io::{Read, Seek},
    os::unix::fs::MetadataExt,
};

use longhaul_engine::process::{Exit, Gone, Reason, Stream};

use super::*;

const MIB: u64 = 1 << 20;

#[tokio::test]
async fn p3_a_flood_without_a_newline_is_bounded() {
    const FLOOD: u64 = 200_000_000;
    let directory = directory();
    let mut spec = script(&directory, "exec head -c 200000000 /dev/zero");
    spec.lines = Lines::Output;
    let before = memory("VmRSS:");
    let (mut facts, _orders) = start(spec).await;
    let mut told = 0;
    let ended = loop {
        match next(&mut facts).await {
            Fact::Line {
                bytes,
                stream: Stream::Output,
                ..
            } if bytes.len() <= 64 << 10 => told += bytes.len() as u64,
            Fact::Ended(ended) => break ended,
            Fact::Closed(Stream::Output) => {}
            other @ (Fact::Line { .. }
            | Fact::Closed(_)
            | Fact::Message(_)
            | Fact::TooLong { .. }
            | Fact::Garbled) => {
                panic!("{other:?}")
            }
        }
    };
    assert_eq!((told, ended.output.total), (FLOOD, FLOOD));
    assert_eq!(ended.output.bytes.len() as u64, 8 * MIB);
    assert_eq!(ended.output.dropped, FLOOD - 64 * MIB);
    let spill = ended.output.spilled.expect("a file in the spool");
    let metadata = spill.file().metadata().expect("it is there");
    // No name: after any kill its space is free, and nobody else can open it.
    assert_eq!((metadata.len(), metadata.nlink()), (64 * MIB, 0));
    let grown = memory("VmHWM:").saturating_sub(before);
    assert!(grown < 64 * MIB, "grew by {grown} bytes");
    println!("200 MB of output: memory grew by {} MiB at most", grown / MIB);
}

fn memory(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the status");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .expect("the line");
    line.trim()
        .trim_end_matches(" kB")
        .parse::<u64>()
        .expect("a number")
        * 1024
}

#[tokio::test]
async fn the_spool_holds_the_output_from_its_first_byte() {
    let directory = directory();
    let mut spec = script(
        &directory,
        "for i in 1 2 3 4 5 6 7 8 9; do printf 'line %s\\n' $i; done",
    );
    spec.limits.output_max = 10;
    spec.limits.spill_max = 30;
    let output = run(spec).await.output;
    assert_eq!(output.bytes, b"line 1\nlin");
    let spill = output.spilled.expect("a file in the spool");
    let mut kept = Vec::new();
    spill.file().rewind().expect("a file");
    spill.file().read_to_end(&mut kept).expect("readable");
    assert_eq!(kept, b"line 1\nline 2\nline 3\nline 4\nli");
    assert_eq!((output.total, output.dropped), (63, 33));
}

#[tokio::test]
async fn p3_bytes_that_are_not_utf_8_are_kept() {
    let directory = directory();
    let mut spec = script(&directory, r"printf '\377\376\n\200'");
    spec.lines = Lines::Both;
    let (mut facts, _orders) = start(spec).await;
    let mut told = Vec::new();
    while told.len() < 2 {
        match next(&mut facts).await {
            Fact::Line {
                bytes, more: false, ..
            } => told.push(bytes),
            Fact::Closed(Stream::Errors) => {}
            other @ (Fact::Line { .. }
            | Fact::Closed(_)
            | Fact::Message(_)
            | Fact::TooLong { .. }
            | Fact::Garbled
            | Fact::Ended(_)) => {
                panic!("{other:?}")
            }
        }
    }
    assert_eq!(told, [&b"\xff\xfe"[..], b"\x80"]);
    assert_eq!(ended(facts).await.output.bytes, b"\xff\xfe\n\x80");
}

#[tokio::test]
async fn p3_a_program_that_closes_its_output_is_followed_to_its_end() {
    let directory = directory();
    let ended = run(script(&directory, "exec >&- 2>&-; exit 5")).await;
    assert_eq!((ended.exit, ended.output.total), (Some(Exit::Code(5)), 0));
}

#[tokio::test]
async fn p3_a_hundred_thousand_lines_of_errors_leave_their_tail() {
    let directory = directory();
    let ended = run(script(&directory, "seq 1 100000 >&2")).await;
    assert_eq!(ended.error_total, 588_895);
    assert_eq!(ended.error_tail.len(), 64 << 10);
    assert!(ended.error_tail.ends_with(b"\n99999\n100000\n"));
}

#[tokio::test]
async fn exit_codes_and_signals_are_told_as_they_are() {
    let directory = directory();
    for (text, exit) in [
        ("exit 0", Exit::Code(0)),
        ("exit 255", Exit::Code(255)),
        ("kill -SEGV $$", Exit::Signal(11)),
        ("kill -TERM $$", Exit::Signal(15)),
    ] {
        let ended = run(script(&directory, text)).await;
        assert_eq!((ended.exit, ended.reason), (Some(exit), Reason::Exited), "{text}");
    }
}

#[tokio::test]
async fn messages_go_both_ways_on_the_descriptor() {
    let directory = directory();
    let text = r#"
        echo '{"ask":"Which region?"}' >&$LONGHAUL_FD
        IFS= read -r answer <&$LONGHAUL_FD
        printf '%s' "$answer"
    "#;
    let (mut facts, orders) = start(script(&directory, text)).await;
    let Fact::Message(message) = next(&mut facts).await else {
        panic!("a message comes first")
    };
    assert_eq!(message, br#"{"ask":"Which region?"}"#);
    orders
        .answer(b"{\"answer\":\n\"north\"}".to_vec())
        .await
        .expect("it is read");
    assert_eq!(ended(facts).await.output.bytes, br#"{"answer": "north"}"#);
    assert_eq!(orders.answer(b"{}".to_vec()).await, Err(Gone));
}

#[tokio::test]
async fn a_helper_program_takes_the_descriptor_by_its_number() {
    for text in ["\"$0\" ask", "LONGHAUL_FD=0 \"$0\" ask <&$LONGHAUL_FD"] {
        let directory = directory();
        let mut spec = script(&directory, text);
        spec.argv.push(shim().program.into());
        let (mut facts, orders) = start(spec).await;
        assert!(matches!(next(&mut facts).await, Fact::Message(message) if message == b"{\"ask\":1}"));
        orders
            .answer(b"{\"answer\":2}".to_vec())
            .await
            .expect("it is read");
        assert_eq!(ended(facts).await.output.bytes, b"{\"answer\":2}\n");
    }
}

#[tokio::test]
async fn what_is_no_message_is_told_and_dropped() {
    let directory = directory();
    let text = r#"
        { echo 'not json'; echo; head -c 5000 /dev/zero | tr '\0' x; echo; echo '[1]'; } >&$LONGHAUL_FD
    "#;
    let mut spec = script(&directory, text);
    spec.limits.message_max = 1000;
    let (mut facts, _orders) = start(spec).await;
    assert!(matches!(next(&mut facts).await, Fact::Garbled));
    assert!(matches!(next(&mut facts).await, Fact::TooLong { start } if start == [b'x'; 1000]));
    assert!(matches!(next(&mut facts).await, Fact::Message(message) if message == b"[1]"));
    assert!(matches!(next(&mut facts).await, Fact::Ended(_)));
}

#[tokio::test]
async fn an_open_input_is_written_until_it_is_closed() {
    let directory = directory();
    let mut spec = script(&directory, "while IFS= read -r line; do echo \"<$line>\"; done");
    spec.input = Input::Open;
    spec.lines = Lines::Output;
    let (mut facts, orders) = start(spec).await;
    for line in ["one", "two"] {
        orders
            .write(format!("{line}\n").into_bytes())
            .await
            .expect("it reads");
        let Fact::Line { bytes, .. } = next(&mut facts).await else {
            panic!("a line comes back")
        };
        assert_eq!(bytes, format!("<{line}>").into_bytes());
    }
    orders.close_input().await;
    assert_eq!(ended(facts).await.exit, Some(Exit::Code(0)));
}

#[tokio::test]
async fn s23_a_secret_on_standard_input_is_in_no_argv_and_no_environ() {
    const SECRET: &[u8] = b"correct-horse-battery";
    let directory = directory();
    let mut spec = script(
        &directory,
        "read -r secret; echo '{}' >&$LONGHAUL_FD; read x <&$LONGHAUL_FD; echo \"$secret\"",
    );
    spec.input = Input::Bytes([SECRET, b"\n"].concat());
    assert!(!format!("{spec:?}").contains("correct-horse"));
    let (mut facts, orders) = start(spec).await;
    assert!(matches!(next(&mut facts).await, Fact::Message(_)));
    for pid in [orders.pid(), parent(orders.pid())] {
        for file in ["cmdline", "environ"] {
            let shown = std::fs::read(format!("/proc/{pid}/{file}")).expect("readable");
            assert!(!shown.is_empty());
            assert!(
                !shown.windows(SECRET.len()).any(|window| window == SECRET),
                "{file} of {pid}"
            );
        }
    }
    orders.answer(b"{}".to_vec()).await.expect("it is read");
    assert_eq!(ended(facts).await.output.bytes, [SECRET, b"\n"].concat());
}

#[tokio::test]
async fn s6_an_argument_arrives_as_one_item_whatever_it_holds() {
    let directory = directory();
    let arguments = [
        "; echo no",
        "$(echo no)",
        "-x",
        "a\nb",
        "",
        "*",
        "`no`",
        "\u{fffd}é",
    ];
    let python = "import sys; sys.stdout.write('\\0'.join(sys.argv[1:]))";
    let argv: Vec<&str> = ["/usr/bin/env", "python3", "-c", python]
        .into_iter()
        .chain(arguments)
        .collect();
    let mut spec = command(&directory, &argv);
    spec.env.push(("PYTHONUTF8".into(), "1".into()));
    spec.env[0].1 = std::env::var_os("PATH").expect("a PATH");
    let output = run(spec).await.output.bytes;
    assert_eq!(
        String::from_utf8(output)
            .expect("UTF-8")
            .split('\0')
            .collect::<Vec<_>>(),
        arguments
    );
}

#[tokio::test]
async fn a_reader_who_does_not_read_does_not_hold_up_the_stop() {
    let directory = directory();
    let mut spec = script(&directory, "yes");
    spec.lines = Lines::Output;
    let (mut facts, orders) = start(spec).await;
    assert!(matches!(next(&mut facts).await, Fact::Line { .. }));
    orders.stop();
    until("the program is gone", PATIENCE, || !is_alive(orders.pid())).await;
    assert!(ended(facts).await.confirmed);
}

#[tokio::test]
async fn the_end_of_standard_error_is_there_while_the_program_runs() {
    let directory = directory();
    let mut spec = script(
        &directory,
        "printf 'one two three' >&2; read line; printf ' four' >&2",
    );
    spec.input = Input::Open;
    spec.limits.error_tail_max = 9;
    let (facts, orders) = start(spec).await;
    until("it has written", PATIENCE, || orders.error_tail() == b"two three").await;
    orders.close_input().await;
    let ended = ended(facts).await;
    assert_eq!(
        (&ended.error_tail[..], ended.error_total),
        (&b"hree four"[..], 18)
    );
    assert_eq!(orders.error_tail(), ended.error_tail);
}

#[tokio::test]
async fn a_limit_of_nothing_keeps_nothing_and_still_tells_lines() {
    let directory = directory();
    let mut spec = script(&directory, "echo one; echo two");
    spec.lines = Lines::Output;
    spec.limits.output_max = 0;
    spec.limits.spill_max = 0;
    let (mut facts, _orders) = start(spec).await;
    let mut told = Vec::new();
    let ended = loop {
        match next(&mut facts).await {
            Fact::Line { bytes, .. } => told.push(bytes),
            Fact::Closed(Stream::Output) => {}
            Fact::Ended(ended) => break ended,
            other @ (Fact::Closed(_) | Fact::Message(_) | Fact::TooLong { .. } | Fact::Garbled) => {
                panic!("{other:?}")
            }
        }
    };
    assert_eq!(told, [b"one", b"two"]);
    let output = ended.output;
    assert_eq!((output.bytes.len(), output.total, output.dropped), (0, 8, 8));
    assert!(output.spilled.is_none());
}

#[tokio::test]
async fn the_end_of_its_output_is_told_while_the_program_lives_on() {
    let directory = directory();
    let mut spec = script(&directory, "echo last; exec >&-; read line");
    spec.input = Input::Open;
    spec.lines = Lines::Output;
    let (mut facts, orders) = start(spec).await;
    assert!(matches!(next(&mut facts).await, Fact::Line { bytes, .. } if bytes == b"last"));
    assert!(matches!(next(&mut facts).await, Fact::Closed(Stream::Output)));
    assert!(is_alive(orders.pid()));
    orders.close_input().await;
    assert!(ended(facts).await.confirmed);
}
