//! `longhaul top`: all tasks, again every second, until `q` or ctrl-c.

use std::{
    io::{self, IsTerminal, Read, Write},
    time::Duration,
};

use longhaul_gateway::admin::api::{Filter, Health, State, Task};
use nix::sys::termios::{self, LocalFlags, SetArg, Termios};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};

use crate::{
    background,
    client::Client,
    exit::{Exit, Failure, Outcome},
    flags::Common,
    screen::{self, say},
};

/// How often the table is made anew.
const EVERY: Duration = Duration::from_secs(1);
/// The most tasks that are asked for.
const TASKS_MAX: u32 = 200;

/// Runs the command.
pub(crate) async fn top(common: &Common) -> Outcome {
    let client = background::client(common)?;
    if common.json || !io::stdout().is_terminal() {
        return once(&client, common.json).await;
    }
    let listen = |kind| signal(kind).map_err(|error| Failure::fault(error.to_string()));
    let (mut resized, mut told) = (
        listen(SignalKind::window_change())?,
        listen(SignalKind::terminate())?,
    );
    let mut terminal = Terminal::begin()?;
    loop {
        let lines = match look(&client).await {
            Ok(lines) => lines,
            Err(failure) if failure.exit == Exit::Unreachable => {
                vec![failure.message, "waiting for it; q ends".into()]
            }
            Err(failure) => return Err(failure),
        };
        draw(&lines);
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            _ = resized.recv() => {}
            () = terminal.ended() => return Ok(Exit::Done),
            _ = told.recv() => return Ok(Exit::Done),
            _ = tokio::signal::ctrl_c() => return Ok(Exit::Done),
        }
    }
}

async fn once(client: &Client, as_json: bool) -> Outcome {
    if as_json {
        screen::say_json(&client.list(&filter()).await?)?;
    } else {
        for text in look(client).await? {
            say(text);
        }
    }
    Ok(Exit::Done)
}

async fn look(client: &Client) -> Result<Vec<String>, Failure> {
    let health = client.health().await?;
    let listed = client.list(&filter()).await?;
    let rows = terminal_size::terminal_size()
        .map_or(40, |(_, height)| usize::from(height.0))
        .saturating_sub(4)
        .max(5);
    let mut tasks = listed.tasks;
    // What needs a person first, then what runs, then the newest of what has ended.
    tasks.sort_by_key(|task| rank(task.state));
    tasks.truncate(rows);
    Ok(lines(&health, &tasks))
}

fn lines(health: &Health, tasks: &[Task]) -> Vec<String> {
    let up = screen::age(health.now_ms.saturating_sub(health.started_at_ms));
    let ending = if health.draining { "  ending" } else { "" };
    let mut lines = vec![
        format!(
            "longhaul {}  up {up}  {} open  {} kept{ending}",
            screen::line(&health.version),
            health.open,
            health.tasks
        ),
        String::new(),
    ];
    lines.extend(screen::tasks(tasks, screen::width()));
    if tasks.is_empty() {
        lines.push("no tasks yet: longhaul run TOOL".to_owned());
    }
    lines
}

fn filter() -> Filter {
    Filter {
        limit: Some(TASKS_MAX),
        ..Filter::default()
    }
}

const fn rank(state: State) -> u8 {
    match state {
        State::Asking | State::Held => 0,
        State::Running | State::Stopping => 1,
        State::Queued => 2,
        State::Done | State::Failed | State::Cancelled | State::Lost => 3,
    }
}

/// Draws the whole screen; lines that do not fit are left out.
fn draw(lines: &[String]) {
    let rows = terminal_size::terminal_size().map_or(40, |(_, height)| usize::from(height.0));
    let columns = screen::width();
    let shown: Vec<String> = lines
        .iter()
        .take(rows)
        .map(|line| format!("{}\x1b[K", screen::cut(line, columns)))
        .collect();
    write(&format!("\x1b[H{}\x1b[J", shown.join("\r\n")));
}

fn write(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// The terminal's second screen, and its keyboard without waiting for the enter key; both are put back at the end.
struct Terminal {
    before: Option<Termios>,
    ended: oneshot::Receiver<()>,
}

impl Terminal {
    fn begin() -> Result<Terminal, Failure> {
        let stdin = io::stdin();
        let before = termios::tcgetattr(&stdin).ok();
        if let Some(before) = &before {
            let mut plain = before.clone();
            plain.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO);
            termios::tcsetattr(&stdin, SetArg::TCSANOW, &plain)
                .map_err(|error| Failure::fault(error.to_string()))?;
        }
        write("\x1b[?1049h\x1b[?25l");
        let (sender, ended) = oneshot::channel();
        // A thread of its own: reading the keyboard cannot be stopped, and the process may end while it does.
        std::thread::spawn(move || {
            let quits = io::stdin()
                .lock()
                .bytes()
                .map_while(Result::ok)
                .any(|byte| matches!(byte, b'q' | b'Q' | 4));
            if quits {
                let _ = sender.send(());
            }
        });
        Ok(Terminal { before, ended })
    }

    async fn ended(&mut self) {
        if (&mut self.ended).await.is_err() {
            // Standard input was closed: ctrl-c still ends.
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        write("\x1b[?25h\x1b[?1049l");
        if let Some(before) = &self.before {
            let _ = termios::tcsetattr(io::stdin(), SetArg::TCSANOW, before);
        }
    }
}
