//! One client at one server behind Longhaul: what it did, and what it left.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use serde_json::{Value, json};

use crate::{
    Outcome,
    clients::{Client, Installed, Peer, Steps},
    server::Server,
    workspace::{make_folder, write},
};

use super::{
    place::Place,
    rows::{After, Row, Rows, STEPS},
};

/// The longest that work may go on after its task was cancelled.
const END_MAX: Duration = Duration::from_secs(10);
/// Work that left no mark for so long has ended.
const STILL: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Cell<'a> {
    pub(super) client: &'a Client,
    pub(super) row: &'a Row,
    /// The steps that the pair has.
    has: Vec<&'static str>,
    scenario: Value,
    url: String,
    folder: PathBuf,
    work: PathBuf,
    steps: Steps,
    left: Option<Value>,
    /// The client that left it, still connected.
    peer: Option<Peer>,
}

impl<'a> Cell<'a> {
    pub(super) fn new(
        client: &'a Client,
        row: &'a Row,
        rows: &Rows,
        place: &Place,
        longhaul: &Server,
    ) -> Result<Cell<'a>, String> {
        let has: Vec<&str> = STEPS
            .into_iter()
            .filter(|step| rows.has(client, row, step))
            .collect();
        let name = format!("{}/{}", client.name, row.name);
        let (root, file) = (longhaul.url(), name.replace('/', "."));
        let mut scenario = json!({});
        for step in &has {
            let Some(call) = rows.step(row, step) else {
                continue;
            };
            let label = format!("{file}.{step}");
            let text = place.fill(&call.to_string());
            let text = text
                .replace("${LABEL}", &label)
                .replace("${PAGE}", &place.page(row));
            scenario[*step] =
                serde_json::from_str(&text).map_err(|error| format!("{name}: {step}: {error}"))?;
        }
        Ok(Cell {
            client,
            row,
            has,
            scenario,
            url: format!("{root}/{}", row.name),
            folder: place.work.with_file_name(&file),
            work: place.work.clone(),
            steps: Steps::of(name),
            left: None,
            peer: None,
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.steps.name
    }

    /// Everything up to the work that is left.
    pub(super) fn first(&mut self, installed: &Installed) -> Outcome {
        make_folder(&self.folder)?;
        let mut peer = self.start(installed, "pair", &self.scenario)?;
        let ready = self.steps.listen(&mut peer, "ready").is_some();
        if !ready && !self.steps.why.contains_key("connect") {
            self.steps
                .note("connect", "ended before its turn", Duration::ZERO);
        }
        self.peer = ready.then_some(peer);
        let cancelled = self.steps.why.get("cancel").is_some_and(String::is_empty);
        if cancelled && let Err(why) = ended(&self.mark("cancel", "beat"), END_MAX) {
            self.steps.note("cancel", &why, END_MAX);
        }
        Ok(())
    }

    /// Leaves work that runs and a question that is open.
    pub(super) fn leave(&mut self) -> Outcome {
        let Some(peer) = &mut self.peer else { return Ok(()) };
        peer.go()?;
        self.left = self.steps.listen(peer, "left");
        Ok(())
    }

    /// Ends the client, as a crash of the machine would.
    pub(super) fn crash(&mut self) {
        if let Some(mut peer) = self.peer.take() {
            peer.end();
        }
    }

    /// A new process of the client finds what was left.
    pub(super) fn later(&mut self, installed: &Installed) -> Outcome {
        let Some(left) = self
            .left
            .take()
            .filter(|left| left.as_object().is_some_and(|left| !left.is_empty()))
        else {
            return Ok(());
        };
        if self.row.after("restart") == After::GoesOn {
            write(&self.mark("restart", "open"), "")?;
        }
        let mut peer = self.start(installed, "find", &left)?;
        self.steps.listen(&mut peer, "left");
        peer.end();
        let begun = fs::read_to_string(self.mark("restart", "starts")).unwrap_or_default();
        if begun.lines().count() > 1 {
            let why = format!("its work began {} times", begun.lines().count());
            self.steps.note("restart", &why, Duration::ZERO);
        }
        Ok(())
    }

    /// Once Longhaul is gone, nothing may be left of what it started.
    pub(super) fn left_behind(&mut self) {
        let of_longhaul = self.row.start.is_empty();
        for step in ["cancel", "restart"] {
            for ending in ["beat", "child.beat"] {
                if of_longhaul && let Err(why) = ended(&self.mark(step, ending), END_MAX) {
                    self.steps.note(step, &format!("{why} without Longhaul"), END_MAX);
                }
            }
        }
    }

    /// Why each step that it has failed, or nothing. What did not run failed.
    pub(super) fn verdicts(&self) -> BTreeMap<String, String> {
        let verdict = |step: &str| {
            let connect = self.steps.why.get("connect").cloned();
            let absent = || connect.unwrap_or_else(|| "did not run".to_owned());
            let known = [step.to_owned(), format!("{step}, left")].map(|name| self.steps.why.get(&name));
            let told = known
                .into_iter()
                .flatten()
                .find(|why| !why.is_empty())
                .or(known[0]);
            told.cloned().unwrap_or_else(absent)
        };
        self.has
            .iter()
            .map(|step| ((*step).to_owned(), verdict(step)))
            .collect()
    }

    fn start(&self, installed: &Installed, phase: &str, given: &Value) -> Result<Peer, String> {
        let program = installed
            .program(self.client)?
            .args([phase, &self.url, &given.to_string()])
            .env("LONGHAUL_CLIENT_FOLDER", &self.folder)
            .env("LONGHAUL_CLIENT_GENERATION", &self.client.generation);
        Peer::start(program, &self.folder.join(format!("{phase}.log")))
    }

    /// A mark of the work of a step.
    fn mark(&self, step: &str, ending: &str) -> PathBuf {
        let file = self.steps.name.replace('/', ".");
        self.work.join(format!("{file}.{step}.{ending}"))
    }
}

impl Drop for Cell<'_> {
    fn drop(&mut self) {
        self.crash();
    }
}

/// Waits until work leaves no mark any more; work that never left one is none.
fn ended(mark: &Path, limit: Duration) -> Result<(), String> {
    let start = Instant::now();
    loop {
        let last = fs::metadata(mark).and_then(|file| file.modified());
        let age = last
            .ok()
            .and_then(|last| SystemTime::now().duration_since(last).ok());
        if age.is_none_or(|age| age > STILL) {
            return Ok(());
        }
        if start.elapsed() > limit {
            return Err(format!("its work still goes on after {} s", limit.as_secs()));
        }
        std::thread::sleep(PAUSE);
    }
}
