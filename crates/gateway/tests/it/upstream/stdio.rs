//! The link to a program: frames in order, noise skipped, limits held, nothing left alive.

use longhaul_gateway::upstream::{
    link::{FRAME_MAX, Heard, Lost, NOISE_MAX, Via, Why},
    stdio::{self, EOF_WAIT, Inlet, Outlet},
};
use serde_json::{Value as Json, json};

use super::*;

struct Link {
    outlet: Outlet,
    inlet: Inlet,
    spool: TempDir,
}

impl Link {
    async fn open(options: &[&str]) -> Link {
        let spool = directory();
        let (outlet, inlet) = stdio::open(&fixture(options), &host(&spool))
            .await
            .expect("it starts");
        Link { outlet, inlet, spool }
    }

    async fn call(&self, id: u64, tool: &str, arguments: Json) {
        let frame = json!({
            "jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": {"name": tool, "arguments": arguments},
        });
        let sent = self.outlet.send(frame.to_string().into_bytes());
        within(PATIENCE, sent).await.expect("it reads");
    }

    async fn next(&mut self) -> Heard {
        within(PATIENCE, self.inlet.next()).await
    }

    async fn frame(&mut self) -> Json {
        let heard = self.next().await;
        let Heard::Frame {
            bytes,
            via: Via::Shared,
        } = heard
        else {
            panic!("{heard:?}");
        };
        serde_json::from_slice(&bytes).expect("JSON")
    }

    async fn lost(&mut self) -> Lost {
        let heard = self.next().await;
        let Heard::Lost(lost) = heard else {
            panic!("{heard:?}");
        };
        lost
    }

    async fn close(self) -> Lost {
        let lost = within(PATIENCE, self.inlet.close(Why::Closed)).await;
        let left = std::fs::read_dir(self.spool.path()).expect("a folder").count();
        assert_eq!(left, 0, "nothing stays in the spool");
        lost
    }
}

fn said(frame: &Json) -> &str {
    frame["result"]["content"][0]["text"].as_str().expect("text")
}

#[tokio::test]
async fn frames_go_out_and_come_back_in_order() {
    let mut link = Link::open(&[]).await;
    link.call(1, "progress", json!({"steps": 3})).await;
    let mut steps = Vec::new();
    for _ in 0..3 {
        steps.push(link.frame().await["params"]["progress"].clone());
    }
    assert_eq!(steps, [1, 2, 3]);
    assert_eq!(link.frame().await["id"], 1);

    let lost = link.close().await;
    assert_eq!((lost.why, lost.confirmed), (Why::Closed, true));
}

#[tokio::test]
async fn lines_that_are_no_frames_are_skipped_and_counted() {
    let mut link = Link::open(&[]).await;
    link.call(1, "noise", json!({})).await;
    // What begins as an object is for the reader of frames to refuse.
    assert!(matches!(link.next().await, Heard::Frame { bytes, .. } if bytes == b"{"));
    assert_eq!(said(&link.frame().await), "after the noise");
    assert_eq!(link.inlet.skipped(), 5);
    link.close().await;
}

#[tokio::test]
async fn a_server_that_never_stops_its_noise_is_ended() {
    for tool in ["flood", "flood_line"] {
        let before = memory("VmRSS:");
        let mut link = Link::open(&[]).await;
        link.call(1, tool, json!({})).await;
        let lost = loop {
            match link.next().await {
                Heard::Lost(lost) => break lost,
                Heard::TooLong { reply_to } => assert_eq!(reply_to, None),
                other @ (Heard::Frame { .. }
                | Heard::Refused { .. }
                | Heard::Placed { .. }
                | Heard::Over { .. }) => {
                    panic!("{other:?}")
                }
            }
        };
        assert_eq!((lost.why, lost.confirmed), (Why::Noise, true), "{tool}");
        let grown = memory("VmHWM:").saturating_sub(before);
        assert!(grown < NOISE_MAX, "grew by {grown} bytes");
    }
}

#[tokio::test]
async fn long_frames_are_no_noise_however_many_there_are() {
    let mut link = Link::open(&[]).await;
    for id in 1..=NOISE_MAX / FRAME_MAX as u64 + 1 {
        link.call(id, "long", json!({"bytes": FRAME_MAX - 100})).await;
        assert!(matches!(link.next().await, Heard::Frame { .. }), "reply {id}");
    }
    link.close().await;
}

#[tokio::test]
async fn a_frame_of_the_longest_length_passes_and_a_longer_one_is_dropped_with_its_id() {
    let mut link = Link::open(&[]).await;
    let around = r#"{"jsonrpc":"2.0","id":1,"result":{"content":[],"x":""}}"#.len();
    link.call(1, "long", json!({"bytes": FRAME_MAX - around})).await;
    assert!(matches!(link.next().await, Heard::Frame { bytes, .. } if bytes.len() == FRAME_MAX));
    link.call(2, "long", json!({"bytes": FRAME_MAX})).await;
    assert!(matches!(link.next().await, Heard::TooLong { reply_to: Some(2) }));
    // The id stands behind the result.
    link.call(3, "long", json!({"bytes": FRAME_MAX, "first": true}))
        .await;
    assert!(matches!(link.next().await, Heard::TooLong { reply_to: Some(3) }));
    link.call(4, "echo", json!({})).await;
    assert_eq!(link.frame().await["id"], 4);
    link.close().await;
}

#[tokio::test]
async fn half_a_frame_before_the_end_is_no_frame() {
    let mut link = Link::open(&[]).await;
    link.call(1, "half", json!({})).await;
    assert_eq!(link.lost().await.why, Why::Exited(0));
}

#[tokio::test]
async fn a_death_is_told_with_the_end_of_standard_error() {
    let mut link = Link::open(&["--say=starting"]).await;
    link.call(1, "flood_stderr", json!({"lines": 20_000})).await;
    assert_eq!(said(&link.frame().await), "flooded");
    let outlet = link.outlet.clone();
    until("it is seen while the server lives", PATIENCE, || {
        outlet.stderr().ends_with("the last line\n")
    })
    .await;
    assert!(outlet.stderr().len() <= 64 << 10);

    link.call(2, "die", json!({})).await;
    let lost = link.lost().await;
    assert_eq!((lost.why, lost.confirmed), (Why::Exited(7), true));
    assert!(lost.stderr.ends_with("the last line\nabout to die\n"));
    assert!(link.outlet.send(b"{}".to_vec()).await.is_err());
}

#[tokio::test]
async fn a_server_that_closes_its_output_is_ended() {
    let mut link = Link::open(&[]).await;
    let pid = link.outlet.pid();
    link.call(1, "mute", json!({})).await;
    let lost = link.lost().await;
    assert_eq!((lost.why, lost.confirmed), (Why::OutputClosed, true));
    assert!(!is_alive(pid));
}

#[tokio::test]
async fn a_killed_server_is_told() {
    let mut link = Link::open(&[]).await;
    link.call(1, "pid", json!({})).await;
    let pid: i32 = said(&link.frame().await).parse().expect("a number");
    assert_eq!(pid, link.outlet.pid());
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL)
        .expect("it lives");
    assert_eq!(link.lost().await.why, Why::Signalled(9));
}

#[tokio::test]
async fn a_server_that_ignores_the_end_of_its_input_and_term_is_killed() {
    let mut link = Link::open(&["--stubborn"]).await;
    let pid = link.outlet.pid();
    link.call(1, "echo", json!({})).await;
    link.frame().await;
    let began = Instant::now();
    let lost = link.close().await;
    assert_eq!((lost.why, lost.confirmed), (Why::Closed, true));
    assert!(!is_alive(pid));
    let took = began.elapsed();
    assert!(
        took >= EOF_WAIT && took < EOF_WAIT + Duration::from_secs(2),
        "{took:?}"
    );
}

#[tokio::test]
async fn a_server_that_reads_nothing_any_more_is_closed_in_time() {
    let mut link = Link::open(&[]).await;
    link.call(1, "deaf", json!({})).await;
    assert_eq!(said(&link.frame().await), "deaf");
    let filler = "x".repeat(1 << 20);
    let held = async {
        for id in 2.. {
            link.call(id, "echo", json!({"x": filler})).await;
        }
    };
    assert!(timeout(Duration::from_millis(500), held).await.is_err());
    let pid = link.outlet.pid();
    assert!(link.close().await.confirmed);
    assert!(!is_alive(pid));
}

#[tokio::test]
async fn a_leaked_grandchild_does_not_survive_the_close() {
    let mut link = Link::open(&[]).await;
    link.call(1, "grandchild", json!({})).await;
    let grandchild: i32 = said(&link.frame().await).parse().expect("a number");
    assert!(is_alive(grandchild));
    assert!(link.close().await.confirmed);
    assert!(!is_alive(grandchild));
}

#[tokio::test]
async fn a_link_that_is_dropped_leaves_nothing() {
    let mut link = Link::open(&["--stubborn"]).await;
    link.call(1, "grandchild", json!({})).await;
    let grandchild: i32 = said(&link.frame().await).parse().expect("a number");
    let pid = link.outlet.pid();
    drop(link.inlet);
    until("nothing is left", PATIENCE, || {
        !is_alive(pid) && !is_alive(grandchild)
    })
    .await;
}

#[tokio::test]
async fn a_program_that_is_not_there_is_told_by_its_name() {
    let spool = directory();
    let mut program = fixture(&[]);
    program.command[0] = "no-such-program".into();
    let error = stdio::open(&program, &host(&spool))
        .await
        .expect_err("it is not there");
    assert!(
        error.to_string().starts_with("start `no-such-program`"),
        "{error}"
    );
}
