//! What `longhaul top` looks like. Pure: data in, lines out, each no wider than the terminal.
//!
//! Every text from outside goes through `screen` before it stands in a line; the sequences in a line are our own.

use longhaul_gateway::admin::api::{Health, Left, Server, ServerState, State, Task};
use unicode_width::UnicodeWidthStr;

use crate::screen::{self, age, block, cut, line};

/// What stands in place of tasks.
pub(super) const NOTHING: &str = "no tasks yet: longhaul run TOOL";
/// The cells of a bar, where there is room and where there is little.
const BAR: (usize, usize) = (12, 6);
/// The columns from which on there is room for the longer one.
const BAR_FITS: usize = 48;
/// The narrowest terminal in which the column FROM is shown.
const FROM_FITS: usize = 72;
/// The narrowest terminal in which the column AGE is shown.
const AGE_FITS: usize = 48;

/// What there is to be shown, and what of it the person looks at.
#[derive(Default)]
pub(super) struct Shown {
    pub(super) health: Option<Health>,
    pub(super) servers: Vec<Server>,
    pub(super) tasks: Vec<Task>,
    /// One task whole.
    pub(super) details: Option<Task>,
    /// The name of the task under the mark.
    pub(super) selected: Option<String>,
    pub(super) mode: Mode,
    /// The task that is cancelled when the person says yes.
    pub(super) cancelling: Option<String>,
    /// What was done last.
    pub(super) said: String,
    /// Why the server cannot be reached.
    pub(super) away: Option<String>,
    /// The first row of the list that is on the screen.
    first: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    #[default]
    List,
    Details,
}

/// How a piece of a line looks. A terminal without colours leaves them out.
#[derive(Clone, Copy)]
enum Style {
    Plain,
    Strong,
    Faint,
    Good,
    Busy,
    Warn,
    Bad,
}

impl Style {
    fn code(self) -> &'static str {
        match self {
            Style::Plain => "",
            Style::Strong => "1",
            Style::Faint => "2",
            Style::Good => "32",
            Style::Busy => "36",
            Style::Warn => "33",
            Style::Bad => "31",
        }
    }

    fn of(state: State) -> Style {
        match state {
            State::Asking | State::Held | State::Stopping => Style::Warn,
            State::Running => Style::Busy,
            State::Done => Style::Good,
            State::Failed | State::Lost => Style::Bad,
            State::Queued | State::Cancelled => Style::Faint,
        }
    }
}

/// A line in pieces.
type Pieces = Vec<(Style, String)>;

impl Shown {
    /// Shows these tasks; the mark stays on its task.
    pub(super) fn take(&mut self, tasks: Vec<Task>) {
        let at = self.position();
        self.tasks = tasks;
        if self.position().is_none() {
            let at = at.unwrap_or(0).min(self.tasks.len().saturating_sub(1));
            self.selected = self.tasks.get(at).map(|task| task.name.clone());
        }
    }

    /// The task under the mark.
    pub(super) fn task(&self) -> Option<&Task> {
        self.tasks.get(self.position()?)
    }

    pub(super) fn step(&mut self, by: isize) {
        let last = self.tasks.len().saturating_sub(1);
        let at = self.position().unwrap_or(0).saturating_add_signed(by).min(last);
        self.selected = self.tasks.get(at).map(|task| task.name.clone());
    }

    pub(super) fn ask_to_cancel(&mut self) {
        match self.task() {
            Some(task) if task.state.is_finished() => self.said = format!("{} has ended", task.name),
            Some(task) => self.cancelling = Some(task.name.clone()),
            None => {}
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.tasks.iter().any(|task| task.state == State::Stopping)
    }

    fn position(&self) -> Option<usize> {
        let selected = self.selected.as_ref()?;
        self.tasks.iter().position(|task| task.name == *selected)
    }
}

/// The first line.
pub(super) fn heading(health: &Health) -> String {
    let up = age(health.now_ms.saturating_sub(health.started_at_ms));
    let ending = if health.draining { "  ending" } else { "" };
    format!(
        "longhaul {}  up {up}  {} open  {} kept{ending}",
        line(&health.version),
        health.open,
        health.tasks
    )
}

/// The whole screen.
pub(super) fn draw(shown: &mut Shown, columns: usize, rows: usize) -> Vec<String> {
    let mut top: Vec<Pieces> = Vec::new();
    if let Some(health) = &shown.health {
        top.push(vec![(Style::Strong, heading(health))]);
    }
    if let Some(away) = &shown.away {
        top.push(vec![(Style::Bad, line(away))]);
    }
    top.push(Pieces::new());
    let bottom = bottom(shown);
    let room = rows.saturating_sub(top.len() + bottom.len()).max(1);
    let middle = match (&shown.mode, &shown.details) {
        (Mode::Details, Some(task)) => details(task, columns, room),
        (Mode::Details | Mode::List, _) => list(shown, columns, room),
    };
    let blank = room.saturating_sub(middle.len());
    top.into_iter()
        .chain(middle)
        .chain(std::iter::repeat_n(Pieces::new(), blank))
        .chain(bottom)
        .take(rows)
        .map(|pieces| drawn(pieces, columns))
        .collect()
}

fn list(shown: &mut Shown, columns: usize, room: usize) -> Vec<Pieces> {
    if shown.tasks.is_empty() {
        return vec![vec![(Style::Plain, NOTHING.to_owned())]];
    }
    let rows = room.saturating_sub(1).max(1);
    let at = shown.position().unwrap_or(0);
    shown.first = shown.first.min(at).max((at + 1).saturating_sub(rows));
    let on_screen = shown.tasks.iter().skip(shown.first).take(rows);
    let widths = Widths::of(shown.tasks.iter(), columns);
    let mut lines = vec![widths.heading()];
    lines.extend(on_screen.map(|task| widths.row(task, Some(&task.name) == shown.selected.as_ref())));
    lines
}

/// The columns of the list.
struct Widths {
    tool: usize,
    from: usize,
    age: usize,
    now: usize,
}

impl Widths {
    fn of<'a>(tasks: impl Iterator<Item = &'a Task>, columns: usize) -> Widths {
        let (mut tool, mut from) = (4, 4);
        for task in tasks {
            tool = tool.max(line(&task.tool).width());
            from = from.max(line(task.caller()).width());
        }
        let tool = tool.min(columns / 4).max(4);
        let from = if columns < FROM_FITS {
            0
        } else {
            from.min(columns / 5)
        };
        let age = if columns < AGE_FITS { 0 } else { 6 };
        let taken: usize = [2 + 6, tool, 9, age, from]
            .iter()
            .map(|width| if *width == 0 { 0 } else { width + 2 })
            .sum();
        Widths {
            tool,
            from,
            age,
            now: columns.saturating_sub(taken),
        }
    }

    fn heading(&self) -> Pieces {
        let mut text = format!("  {}", cell("NAME", 6));
        for (name, width) in [
            ("TOOL", self.tool),
            ("STATE", 9),
            ("AGE", self.age),
            ("FROM", self.from),
        ] {
            text.push_str(&cell(name, width));
        }
        text.push_str("NOW");
        vec![(Style::Faint, text)]
    }

    fn row(&self, task: &Task, is_selected: bool) -> Pieces {
        let (mark, style) = match is_selected {
            true => ("› ", Style::Strong),
            false => ("  ", Style::Plain),
        };
        let passed = age(task.now_ms.saturating_sub(task.created_at_ms));
        let mut pieces = vec![
            (style, format!("{mark}{}", cell(&task.name, 6))),
            (style, cell(&line(&task.tool), self.tool)),
            (Style::of(task.state), cell(task.state.word(), 9)),
            (Style::Faint, cell(&passed, self.age)),
            (Style::Plain, cell(&line(task.caller()), self.from)),
        ];
        pieces.extend(now(task, self.now));
        pieces
    }
}

/// A text in a column of so many cells, and the space behind it; nothing in one of none.
fn cell(text: &str, width: usize) -> String {
    if width == 0 {
        return String::new();
    }
    let text = cut(text, width);
    let space = width.saturating_sub(text.width()) + 2;
    format!("{text}{}", " ".repeat(space))
}

fn now(task: &Task, room: usize) -> Pieces {
    if let Some(question) = task.questions.first() {
        const KEY: &str = "  a: answer";
        let asked = cut(&line(&question.message), room.saturating_sub(KEY.len() + 2));
        return vec![
            (Style::Plain, format!("\"{asked}\"")),
            (Style::Warn, KEY.to_owned()),
        ];
    }
    let told = (Style::Plain, screen::now(task, room));
    match bar(task, room).filter(|_| room >= BAR.0 * 2) {
        Some((style, filled)) => vec![(style, format!("{filled}  ")), told],
        None => vec![told],
    }
}

/// How far the work is, or the end of its processes.
fn bar(task: &Task, room: usize) -> Option<(Style, String)> {
    let cells = if room < BAR_FITS { BAR.1 } else { BAR.0 };
    let (style, done, total) = match (&task.left, &task.progress) {
        (Some(Left { seen, alive, .. }), _) => (
            Style::Warn,
            f64::from(seen.saturating_sub(*alive)),
            f64::from(*seen),
        ),
        (None, Some(progress)) if !task.state.is_finished() => (Style::Busy, progress.done, progress.total?),
        (None, Some(_) | None) => return None,
    };
    if total <= 0.0 {
        return None;
    }
    let filled = (done / total * cells as f64).clamp(0.0, cells as f64) as usize;
    Some((
        style,
        format!("{}{}", "█".repeat(filled), "░".repeat(cells - filled)),
    ))
}

fn details(task: &Task, columns: usize, room: usize) -> Vec<Pieces> {
    let mut lines = vec![
        vec![
            (Style::Strong, format!("{}  ", line(&task.tool))),
            (Style::Faint, format!("{}  ", task.name)),
            (Style::of(task.state), task.state.word().to_owned()),
        ],
        Pieces::new(),
    ];
    let mut row = |label: &str, text: &str| {
        if !text.is_empty() {
            lines.push(vec![
                (Style::Faint, cell(label, 10)),
                (Style::Plain, text.to_owned()),
            ]);
        }
    };
    row("server", &task.server.as_deref().map(line).unwrap_or_default());
    row("from", &line(task.caller()));
    row("session", &line(&task.session));
    row("age", &age(task.now_ms.saturating_sub(task.created_at_ms)));
    row("attempts", &task.attempts.to_string());
    if task.questions.is_empty() {
        let doing = screen::now(task, columns.saturating_sub(12 + BAR.0 + 2));
        let filled = bar(task, columns)
            .map(|(_, bar)| format!("{bar}  "))
            .unwrap_or_default();
        row("now", &format!("{filled}{doing}"));
    }
    row("why", &task.reason.as_deref().map(line).unwrap_or_default());
    row("its work", task.stop.map(screen::stop).unwrap_or_default());
    if let Some(left) = &task.left {
        row("alive", &screen::alive(left));
    }
    for question in &task.questions {
        let mut label = "asks";
        for quoted in screen::quoted_in(&line(&question.message), columns.saturating_sub(16)) {
            row(label, &format!("| {quoted}"));
            label = "";
        }
        row("address", &question.url.as_deref().map(line).unwrap_or_default());
        row("at", &question.site.as_deref().map(line).unwrap_or_default());
        row(
            "warning",
            &question.warning.as_deref().map(line).unwrap_or_default(),
        );
    }
    tails(task, room.saturating_sub(lines.len()), &mut lines);
    lines.truncate(room);
    lines
}

/// The last lines of both streams, as many as fit.
fn tails(task: &Task, room: usize, lines: &mut Vec<Pieces>) {
    let written = [("it wrote last", &task.stdout), ("standard error", &task.stderr)];
    let written: Vec<_> = written.into_iter().filter(|(_, text)| !text.is_empty()).collect();
    // A blank line and a heading for each.
    let each = (room / written.len().max(1)).saturating_sub(2);
    for (label, text) in written.into_iter().filter(|_| each > 0) {
        let shown = block(text);
        let all: Vec<&str> = shown.lines().collect();
        lines.push(Pieces::new());
        lines.push(vec![(Style::Faint, label.to_owned())]);
        let last = &all[all.len().saturating_sub(each)..];
        lines.extend(last.iter().map(|text| vec![(Style::Plain, format!("  {text}"))]));
    }
}

fn bottom(shown: &Shown) -> Vec<Pieces> {
    let mut lines = Vec::new();
    let unwell = shown
        .servers
        .iter()
        .filter(|server| server.state != ServerState::Ready);
    let unwell: Vec<String> = unwell
        .map(|server| format!("{} {}", line(&server.name), server.state.word()))
        .collect();
    if !shown.servers.is_empty() {
        let well = shown.servers.len() - unwell.len();
        let told = [vec![format!("{well} ready")], unwell].concat().join(" · ");
        lines.push(vec![(Style::Faint, "servers  ".to_owned()), (Style::Plain, told)]);
    }
    if let Some(name) = &shown.cancelling {
        let tool = shown.task().map(|task| line(&task.tool)).unwrap_or_default();
        lines.push(vec![(
            Style::Warn,
            format!("Cancel {tool} {name} and stop its work? y: yes  n: no"),
        )]);
        return lines;
    }
    if !shown.said.is_empty() {
        lines.push(vec![(Style::Plain, shown.said.clone())]);
    }
    let keys = match shown.mode {
        Mode::List => "↑↓ select  enter: look  c: cancel  a: answer  q: quit",
        Mode::Details => "enter: back  c: cancel  a: answer  q: quit",
    };
    lines.push(vec![(Style::Faint, keys.to_owned())]);
    lines
}

/// The pieces as one line of at most so many columns.
fn drawn(pieces: Pieces, columns: usize) -> String {
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty());
    let mut out = String::new();
    let mut room = columns;
    for (style, text) in pieces {
        let text = cut(&text, room);
        room = room.saturating_sub(text.width());
        match style {
            Style::Plain => out.push_str(&text),
            Style::Strong | Style::Faint => out.push_str(&format!("\x1b[{}m{text}\x1b[0m", style.code())),
            Style::Good | Style::Busy | Style::Warn | Style::Bad if is_plain => out.push_str(&text),
            Style::Good | Style::Busy | Style::Warn | Style::Bad => {
                out.push_str(&format!("\x1b[{}m{text}\x1b[0m", style.code()));
            }
        }
        if room == 0 {
            break;
        }
    }
    out
}
