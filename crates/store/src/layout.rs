//! How a row is laid out in columns, the same for SQLite and PostgreSQL.
//!
//! A task's machine is kept in plain columns, so that the indexes can find due work and a person can read the
//! table; its bodies are rows of `bodies`, sealed. Called by both backends. It decides nothing.

mod words;

use std::collections::BTreeMap;

use crate::{
    Error, List, Owner, Record, RecordKey, RecordKind, Row, Runner,
    crypt::{Place, Vault, digest},
    step,
};
use longhaul_core::{
    Body, Fence, Millis, Question, QuestionKey, RunnerId, Stop, Task, TaskId,
    task::{QuestionState, Reader},
};

use words::{STOPS, phase_words, read_phase, read_rules, read_run, read_word, rules_text, run_word};

/// The layout of a row, for whoever reads it with a later program.
const FORMAT: i64 = 1;

/// The columns of `tasks`, in the order in which [`cells`] writes and [`row`] reads them.
pub(crate) const TASK_COLUMNS: [&str; 39] = [
    "id",
    "tenant",
    "issuer",
    "subject",
    "app",
    "owner",
    "kid",
    "name",
    "tool",
    "session",
    "origin",
    "hidden",
    "version",
    "created_at",
    "updated_at",
    "purge_after",
    "idem",
    "digest",
    "phase",
    "ending",
    "run",
    "runner",
    "fence",
    "starts",
    "legs",
    "strays",
    "stop",
    "open",
    "claim_at",
    "due_at",
    "expires_at",
    "not_before",
    "approved_until",
    "upstream",
    "checkpoint",
    "rules",
    "status",
    "format",
    "is_error",
];

/// The columns of `questions`.
pub(crate) const QUESTION_COLUMNS: [&str; 7] = ["task", "key", "reader", "state", "until", "misfits", "bind"];

/// One value of a column.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    Null,
    Int(i64),
    Text(String),
    Blob(Vec<u8>),
}

/// A task as it is to be written, with everything sealed.
pub(crate) struct Plan {
    pub(crate) id: TaskId,
    pub(crate) born: bool,
    pub(crate) version: u64,
    pub(crate) cells: Vec<Cell>,
    /// New bodies by name.
    pub(crate) bodies: Vec<(String, Vec<u8>)>,
    /// Names of bodies that are dropped.
    pub(crate) dropped: Vec<String>,
    pub(crate) questions: Vec<Vec<Cell>>,
}

/// Seals what is new in `row` under the data key `key`.
pub(crate) fn plan(vault: &Vault, key: u32, old: Option<&Row>, row: &Row) -> Result<Plan, Error> {
    let version = old.map_or(0, |old| old.version) + 1;
    let place = |column| Place {
        tenant: &row.owner.tenant,
        row: &row.id.0,
        column,
    };
    let bodies = step::bodies(row);
    let had = old.map(step::bodies).unwrap_or_default();
    let dropped = had
        .iter()
        .filter(|(name, _)| step::is_replaceable(name) && bodies.iter().all(|(new, _)| new != name));
    let dropped = dropped.map(|(name, _)| name.clone()).collect();
    let mut sealed = Vec::new();
    for (name, body) in &bodies {
        if let Body::Bytes(bytes) = body {
            sealed.push((name.clone(), vault.seal(key, place(name), bytes)?));
        }
    }
    let status = vault.seal(key, place("status"), &row.note)?;
    let asked = old.map_or(&[][..], |old| &old.task.questions);
    let changed = row
        .task
        .questions
        .iter()
        .enumerate()
        .filter(|(n, question)| asked.get(*n) != Some(question));
    let questions = changed
        .map(|(_, question)| question_cells(row.id, question))
        .collect();
    Ok(Plan {
        id: row.id,
        born: old.is_none(),
        version,
        cells: cells(row, version, status)?,
        bodies: sealed,
        dropped,
        questions,
    })
}

fn cells(row: &Row, version: u64, status: Vec<u8>) -> Result<Vec<Cell>, Error> {
    let task = &row.task;
    let (phase, ending, is_error) = phase_words(&task.phase);
    let blob = |bytes: &[u8]| Cell::Blob(bytes.to_vec());
    let text = |text: &str| Cell::Text(text.to_owned());
    let flag = |flag: bool| Cell::Int(i64::from(flag));
    Ok(vec![
        blob(&row.id.0),
        text(&row.owner.tenant),
        text(&row.owner.issuer),
        text(&row.owner.subject),
        text(&row.owner.app),
        blob(&owner_hash(&row.owner)),
        Cell::Int(row.kid.into()),
        text(&row.name),
        text(&row.tool),
        text(&row.session),
        text(&row.origin),
        flag(row.hidden),
        Cell::Int(signed(version)),
        moment(row.created_at),
        moment(row.updated_at),
        moment(row.purge_after),
        row.idem.map_or(Cell::Null, |idem| blob(&idem)),
        blob(&row.digest),
        text(phase),
        ending.map_or(Cell::Null, Cell::Text),
        text(run_word(task.run)),
        task.runner().map_or(Cell::Null, |runner| blob(&runner.0)),
        Cell::Int(task.fence.0.into()),
        Cell::Int(task.starts.into()),
        Cell::Int(task.legs.into()),
        flag(task.strays),
        text(task.stop.name()),
        flag(task.is_open()),
        task.claim_at().map_or(Cell::Null, moment),
        task.due_at().map_or(Cell::Null, moment),
        moment(task.expires_at),
        moment(task.not_before),
        task.approved_until.map_or(Cell::Null, moment),
        flag(task.upstream.is_some()),
        flag(task.checkpoint.is_some()),
        Cell::Text(rules_text(&task.rules, task.can_ask)?),
        Cell::Blob(status),
        Cell::Int(FORMAT),
        flag(is_error),
    ])
}

/// A task's row from its columns, with its bodies left in the store. Its note is still sealed, its questions are
/// not there yet.
pub(crate) fn row(cells: Vec<Cell>) -> Result<Row, Error> {
    let mut cells = Cells(cells.into_iter());
    let id = TaskId(cells.array()?);
    let owner = Owner {
        tenant: cells.text()?,
        issuer: cells.text()?,
        subject: cells.text()?,
        app: cells.text()?,
    };
    cells.blob()?;
    let (kid, name, tool) = (cells.small()?, cells.text()?, cells.text()?);
    let (session, origin, hidden) = (cells.text()?, cells.text()?, cells.flag()?);
    let version = cells.unsigned()?;
    let (created_at, updated_at, purge_after) = (cells.moment()?, cells.moment()?, cells.moment()?);
    let idem = cells.optional(Cells::array)?;
    let digest = cells.array()?;
    let (phase, ending) = (cells.text()?, cells.optional(Cells::text)?);
    let (run, runner) = (cells.text()?, cells.optional(Cells::array)?.map(RunnerId));
    let (fence, starts, legs) = (Fence(cells.small()?), cells.small()?, cells.small()?);
    let (strays, stop) = (cells.flag()?, cells.text()?);
    let _derived = (
        cells.flag()?,
        cells.optional(Cells::moment)?,
        cells.optional(Cells::moment)?,
    );
    let (expires_at, not_before) = (cells.moment()?, cells.moment()?);
    let approved_until = cells.optional(Cells::moment)?;
    let (upstream, checkpoint) = (cells.flag()?, cells.flag()?);
    let (rules, can_ask) = read_rules(&cells.text()?)?;
    let note = cells.blob()?;
    match cells.int()? {
        FORMAT => {}
        format => return Err(Error::broken(format!("read task {id} of format {format}"))),
    }
    let phase = read_phase(&phase, ending.as_deref(), cells.flag()?)?;
    let task = Task {
        phase,
        run: read_run(&run, runner)?,
        stop: read_word(&STOPS, Stop::name, &stop)?,
        fence,
        starts,
        legs,
        strays,
        rules,
        can_ask,
        upstream: upstream.then_some(Body::Stored),
        checkpoint: checkpoint.then_some(Body::Stored),
        questions: Vec::new(),
        expires_at,
        not_before,
        approved_until,
    };
    Ok(Row {
        id,
        owner,
        kid,
        name,
        tool,
        session,
        origin,
        version,
        created_at,
        updated_at,
        purge_after,
        idem,
        digest,
        hidden,
        task,
        args: Body::Stored,
        context: Body::Stored,
        note,
    })
}

/// Opens the note of a row as [`row`] returned it.
pub(crate) fn open_note(vault: &Vault, row: &mut Row) -> Result<(), Error> {
    let place = Place {
        tenant: &row.owner.tenant,
        row: &row.id.0,
        column: "status",
    };
    row.note = vault.open(place, &row.note)?;
    Ok(())
}

/// Opens a row's bodies and puts them in.
pub(crate) fn open_bodies(
    vault: &Vault,
    row: &mut Row,
    sealed: &BTreeMap<String, Vec<u8>>,
) -> Result<(), Error> {
    let (tenant, id) = (row.owner.tenant.clone(), row.id);
    let mut failed = None;
    step::change_bodies(row, |name, body| {
        let place = Place {
            tenant: &tenant,
            row: &id.0,
            column: name,
        };
        let lost = || Error::broken(format!("read `{name}` of task {id}: it is not there"));
        match sealed
            .get(name)
            .ok_or_else(lost)
            .and_then(|sealed| vault.open(place, sealed))
        {
            Ok(bytes) => *body = Body::new(&bytes),
            Err(error) => failed = Some(error),
        }
    });
    failed.map_or(Ok(()), Err)
}

fn question_cells(task: TaskId, question: &Question) -> Vec<Cell> {
    let (state, until) = match &question.state {
        QuestionState::Open { until } => ("open", moment(*until)),
        QuestionState::Given { .. } => ("given", Cell::Null),
        QuestionState::Declined => ("declined", Cell::Null),
        QuestionState::Dismissed => ("dismissed", Cell::Null),
        QuestionState::Withdrawn => ("withdrawn", Cell::Null),
    };
    let reader = match question.reader {
        Reader::Client => "client",
        Reader::Operator => "operator",
    };
    vec![
        Cell::Blob(task.0.to_vec()),
        Cell::Int(question.key.0.into()),
        Cell::Text(reader.to_owned()),
        Cell::Text(state.to_owned()),
        until,
        Cell::Int(question.misfits.into()),
        Cell::Blob(question.bind.to_vec()),
    ]
}

/// A question from its columns, with its task.
pub(crate) fn question(cells: Vec<Cell>) -> Result<(TaskId, Question), Error> {
    let mut cells = Cells(cells.into_iter());
    let task = TaskId(cells.array()?);
    let key = QuestionKey(cells.small()?);
    let reader = match cells.text()?.as_str() {
        "client" => Reader::Client,
        "operator" => Reader::Operator,
        other => return Err(unknown("reader", other)),
    };
    let (state, until) = (cells.text()?, cells.optional(Cells::moment)?);
    let state = match (state.as_str(), until) {
        ("open", Some(until)) => QuestionState::Open { until },
        ("given", None) => QuestionState::Given { answer: Body::Stored },
        ("declined", None) => QuestionState::Declined,
        ("dismissed", None) => QuestionState::Dismissed,
        ("withdrawn", None) => QuestionState::Withdrawn,
        (other, _) => return Err(unknown("question state", other)),
    };
    let misfits = u8::try_from(cells.int()?).map_err(|_| unknown("number", "misfits"))?;
    Ok((
        task,
        Question {
            key,
            reader,
            ask: Body::Stored,
            bind: cells.array()?,
            state,
            misfits,
        },
    ))
}

/// What the indexes know of an owner.
pub(crate) fn owner_hash(owner: &Owner) -> [u8; 32] {
    let parts = [&owner.tenant, &owner.issuer, &owner.subject, &owner.app];
    digest(&parts.map(|part| part.as_bytes()))
}

/// The word by which a kind of record is stored.
pub(crate) fn kind_word(kind: RecordKind) -> &'static str {
    match kind {
        RecordKind::Spent => "spent",
        RecordKind::Setting => "setting",
        RecordKind::Session => "session",
        RecordKind::Join => "join",
        RecordKind::Patience => "patience",
        RecordKind::Definitions => "definitions",
        RecordKind::Wrapped => "wrapped",
        RecordKind::Login => "login",
    }
}

/// What a record's body is bound to beside its tenant.
pub(crate) fn record_row(key: &RecordKey) -> Vec<u8> {
    digest(&[kind_word(key.kind).as_bytes(), key.id.as_bytes()]).to_vec()
}

/// Columns hold signed numbers; a moment beyond them is as good as never.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) fn moment(moment: Millis) -> Cell {
    Cell::Int(signed(moment.0))
}

/// Takes columns from the left.
pub(crate) struct Cells(pub(crate) std::vec::IntoIter<Cell>);

impl Cells {
    fn next(&mut self) -> Result<Cell, Error> {
        self.0.next().ok_or_else(|| unknown("row", "too short"))
    }

    pub(crate) fn optional<T>(
        &mut self,
        read: fn(&mut Cells) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        match self.0.as_slice().first() {
            Some(Cell::Null) => self.next().map(|_| None),
            Some(Cell::Int(_) | Cell::Text(_) | Cell::Blob(_)) | None => read(self).map(Some),
        }
    }

    pub(crate) fn int(&mut self) -> Result<i64, Error> {
        match self.next()? {
            Cell::Int(int) => Ok(int),
            Cell::Null | Cell::Text(_) | Cell::Blob(_) => Err(unknown("column", "not a number")),
        }
    }

    pub(crate) fn unsigned(&mut self) -> Result<u64, Error> {
        u64::try_from(self.int()?).map_err(|_| unknown("number", "negative"))
    }

    pub(crate) fn small(&mut self) -> Result<u32, Error> {
        u32::try_from(self.int()?).map_err(|_| unknown("number", "too large"))
    }

    fn flag(&mut self) -> Result<bool, Error> {
        self.int().map(|int| int != 0)
    }

    pub(crate) fn moment(&mut self) -> Result<Millis, Error> {
        self.unsigned().map(Millis)
    }

    pub(crate) fn text(&mut self) -> Result<String, Error> {
        match self.next()? {
            Cell::Text(text) => Ok(text),
            Cell::Null | Cell::Int(_) | Cell::Blob(_) => Err(unknown("column", "not a text")),
        }
    }

    pub(crate) fn blob(&mut self) -> Result<Vec<u8>, Error> {
        match self.next()? {
            Cell::Blob(blob) => Ok(blob),
            Cell::Null | Cell::Int(_) | Cell::Text(_) => Err(unknown("column", "not bytes")),
        }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        self.blob()?
            .try_into()
            .map_err(|_| unknown("column", "of a wrong length"))
    }
}

fn unknown(what: &str, found: &str) -> Error {
    Error::broken(format!("read a stored {what}: `{found}`"))
}

/// What follows `FROM tasks` for a list, with its values; places are `$1`, `$2`, ….
pub(crate) fn list_conditions(list: &List) -> (String, Vec<Cell>) {
    let mut conditions = vec!["1 = 1".to_owned()];
    let mut values = Vec::new();
    let mut add = |condition: &str, value: Cell| {
        values.push(value);
        conditions.push(condition.replace('#', &format!("${}", values.len())));
    };
    if let Some(owner) = &list.owner {
        add("owner = #", Cell::Blob(owner_hash(owner).to_vec()));
    }
    if let Some(open) = list.open {
        add("open = #", Cell::Int(open.into()));
    }
    if let Some(tool) = &list.tool {
        add("tool = #", Cell::Text(tool.clone()));
    }
    if let Some(session) = &list.session {
        add("session = #", Cell::Text(session.clone()));
    }
    if !list.hidden {
        add("hidden = #", Cell::Int(0));
    }
    if let Some((created_at, id)) = list.before {
        add("created_at <= #", moment(created_at));
        values.extend([moment(created_at), Cell::Blob(id.0.to_vec())]);
        conditions.push(format!(
            "(created_at, id) < (${}, ${})",
            values.len() - 1,
            values.len()
        ));
    }
    values.push(Cell::Int(list.limit.into()));
    let rest = format!(
        "WHERE {} ORDER BY created_at DESC, id DESC LIMIT ${}",
        conditions.join(" AND "),
        values.len()
    );
    (rest, values)
}

/// A record from `id, version, expires_at, body`, its body still sealed.
pub(crate) fn record(kind: RecordKind, tenant: &str, cells: Vec<Cell>) -> Result<Record, Error> {
    let mut cells = Cells(cells.into_iter());
    let key = RecordKey {
        kind,
        tenant: tenant.to_owned(),
        id: cells.text()?,
    };
    let version = cells.unsigned()?;
    Ok(Record {
        key,
        version,
        expires_at: cells.optional(Cells::moment)?,
        body: cells.blob()?,
    })
}

/// Opens the body of a record as [`record`] returned it.
pub(crate) fn open_record(vault: &Vault, mut record: Record) -> Result<Record, Error> {
    let row = record_row(&record.key);
    let place = Place {
        tenant: &record.key.tenant,
        row: &row,
        column: "records.body",
    };
    record.body = vault.open(place, &record.body)?;
    Ok(record)
}

/// `id, host, boot, pid, pid_start` of a runner. The start is a text: it uses all 64 bits.
pub(crate) fn runner_cells(runner: &Runner) -> Vec<Cell> {
    vec![
        Cell::Blob(runner.id.0.to_vec()),
        Cell::Text(runner.host.clone()),
        Cell::Text(runner.boot.clone()),
        Cell::Int(runner.pid.into()),
        Cell::Text(runner.pid_start.to_string()),
    ]
}

/// A runner from its columns, and whether it was declared dead.
pub(crate) fn runner(cells: Vec<Cell>) -> Result<(Runner, bool), Error> {
    let mut cells = Cells(cells.into_iter());
    let (id, host, boot) = (RunnerId(cells.array()?), cells.text()?, cells.text()?);
    let (pid, pid_start) = (cells.small()?, cells.text()?);
    let pid_start = pid_start.parse().map_err(|_| unknown("number", &pid_start))?;
    Ok((
        Runner {
            id,
            host,
            boot,
            pid,
            pid_start,
        },
        cells.flag()?,
    ))
}
