//! `longhaul top`: all tasks, kept up to date; keys look at one, cancel it, and answer what it asks.
//!
//! Where no terminal shows it, one plain listing. What is drawn is made in [`view`], from data only.

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use longhaul_gateway::admin::api::{Filter, State, Task};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
};

use self::{
    terminal::{Key, Terminal},
    view::{Mode, Shown},
};
use crate::{
    background,
    client::Client,
    command::answer,
    exit::{Exit, Failure, Outcome},
    flags::Common,
    prompt::Typed,
    screen::{self, say},
};

mod terminal;
mod view;

/// How often what is shown is read anew.
const EVERY: Duration = Duration::from_secs(1);
/// The same while processes end.
const EVERY_STOPPING: Duration = Duration::from_millis(300);
/// The most tasks that are asked for.
const TASKS_MAX: u32 = 200;

/// Runs the command.
pub(crate) async fn top(common: &Common) -> Outcome {
    let client = background::client(common)?;
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    if common.json || !io::stdout().is_terminal() || is_dumb {
        return once(&client, common.json).await;
    }
    Top::begin(client)?.run().await
}

async fn once(client: &Client, as_json: bool) -> Outcome {
    let listed = client.list(&filter()).await?;
    if as_json {
        screen::say_json(&listed)?;
        return Ok(Exit::Done);
    }
    let health = client.health().await?;
    let tasks = sorted(listed.tasks);
    say(view::heading(&health));
    say("");
    screen::tasks(&tasks, screen::width()).iter().for_each(say);
    if tasks.is_empty() {
        say(view::NOTHING);
    }
    Ok(Exit::Done)
}

/// What needs a person first, then what runs, then the newest of what has ended.
fn sorted(mut tasks: Vec<Task>) -> Vec<Task> {
    tasks.sort_by_key(|task| match task.state {
        State::Asking | State::Held => 0,
        State::Running | State::Stopping => 1,
        State::Queued => 2,
        State::Done | State::Failed | State::Cancelled | State::Lost => 3,
    });
    tasks
}

fn filter() -> Filter {
    Filter {
        limit: Some(TASKS_MAX),
        ..Filter::default()
    }
}

struct Top {
    client: Client,
    terminal: Terminal,
    shown: Shown,
    resized: Signal,
    told: Signal,
    interrupted: Signal,
}

/// What ends a wait.
enum Next {
    Look,
    Draw,
    Key(Key),
    End,
}

impl Top {
    fn begin(client: Client) -> Result<Top, Failure> {
        let listen = |kind| signal(kind).map_err(|error| Failure::fault(error.to_string()));
        Ok(Top {
            client,
            resized: listen(SignalKind::window_change())?,
            told: listen(SignalKind::terminate())?,
            interrupted: listen(SignalKind::interrupt())?,
            terminal: Terminal::begin()?,
            shown: Shown::default(),
        })
    }

    async fn run(mut self) -> Outcome {
        self.look().await?;
        loop {
            let (columns, rows) = terminal::size();
            self.terminal.draw(&view::draw(&mut self.shown, columns, rows));
            let every = match self.shown.is_stopping() {
                true => EVERY_STOPPING,
                false => EVERY,
            };
            let next = tokio::select! {
                () = tokio::time::sleep(every) => Next::Look,
                _ = self.resized.recv() => Next::Draw,
                key = self.terminal.key() => Next::Key(key),
                _ = self.told.recv() => Next::End,
                _ = self.interrupted.recv() => Next::End,
            };
            match next {
                Next::Look => self.look().await?,
                Next::Draw => self.terminal.forget(),
                Next::Key(key) => {
                    if !self.obey(key).await? {
                        return Ok(Exit::Done);
                    }
                }
                Next::End => return Ok(Exit::Done),
            }
        }
    }

    /// Reads anew what is shown.
    async fn look(&mut self) -> Result<(), Failure> {
        match self.read().await {
            Ok(()) => {
                self.shown.away = None;
                Ok(())
            }
            Err(failure) if failure.exit == Exit::Unreachable => {
                self.shown.away = Some(failure.message);
                Ok(())
            }
            Err(failure) => Err(failure),
        }
    }

    async fn read(&mut self) -> Result<(), Failure> {
        self.shown.health = Some(self.client.health().await?);
        self.shown.servers = self.client.servers().await?.servers;
        self.shown.take(sorted(self.client.list(&filter()).await?.tasks));
        self.shown.details = match (&self.shown.mode, &self.shown.selected) {
            (Mode::Details, Some(name)) => self.client.task(name).await.ok(),
            (Mode::Details | Mode::List, _) => None,
        };
        Ok(())
    }

    /// Does what the key says; whether it goes on.
    async fn obey(&mut self, key: Key) -> Result<bool, Failure> {
        if let Some(name) = self.shown.cancelling.take() {
            if key == Key::Letter('y') {
                self.shown.said = match self.client.cancel(&name).await {
                    Ok(task) if task.state == State::Stopping => {
                        format!("{name} is cancelled; its work is being stopped")
                    }
                    Ok(task) => format!("{name} is {}", task.state.word()),
                    Err(failure) => screen::line(&failure.message),
                };
                self.look().await?;
            }
            return Ok(true);
        }
        self.shown.said.clear();
        match key {
            Key::Letter('q') => return Ok(false),
            Key::Up | Key::Letter('k') => self.shown.step(-1),
            Key::Down | Key::Letter('j') => self.shown.step(1),
            Key::Enter if self.shown.mode == Mode::List && self.shown.selected.is_some() => {
                self.shown.mode = Mode::Details;
            }
            Key::Enter | Key::Escape => self.shown.mode = Mode::List,
            Key::Letter('c') => self.shown.ask_to_cancel(),
            Key::Letter('a') => self.answer().await?,
            Key::Letter(_) => {}
        }
        if self.shown.mode == Mode::Details {
            self.look().await?;
        }
        Ok(true)
    }

    /// The dialogue of `longhaul answer`, on the plain terminal.
    async fn answer(&mut self) -> Result<(), Failure> {
        let Some(task) = self.shown.task().filter(|task| !task.questions.is_empty()) else {
            self.shown.said = "this task asks nothing".to_owned();
            return Ok(());
        };
        let name = task.name.clone();
        self.terminal.leave();
        let (sender, lines) = mpsc::channel(16);
        let mut typed = Typed::from_lines(lines);
        let said = tokio::select! {
            answered = answer::dialogue(&self.client, &name, &mut typed) => match answered {
                Ok(said) => said,
                Err(failure) => screen::line(&failure.message),
            },
            () = self.terminal.pass_lines(sender) => "nothing was answered".to_owned(),
            _ = self.interrupted.recv() => "nothing was answered".to_owned(),
        };
        self.terminal.enter()?;
        self.shown.said = said;
        self.look().await
    }
}
