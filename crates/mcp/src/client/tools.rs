//! The list of tools of a server: each definition whole, and what a gateway reads of it.
//!
//! A definition passes on as it was written, so one that a strict client would choke on must not: it is dropped
//! alone, with a reason, and the rest of the list stands. What a server says of its tools' effects is its own
//! word (B-60).

use std::{borrow::Cow, collections::BTreeSet};

use thiserror::Error;

pub use super::list::BadPage;
use super::list::{Pages, shown};
use crate::{
    canon::{self, Digest},
    clean,
    frame::{Obj, Raw},
    header::{self, BadMirror, Mirror},
    reply::{Annotations, TaskSupport, Tool},
    request::ToolRule,
};

/// The most tools of one server.
pub const TOOLS_MAX: usize = 2_000;
/// The most bytes of definitions of one server.
pub const BYTES_MAX: usize = 8 * 1_024 * 1_024;
/// The longest name that a server may give a tool, in bytes.
pub const NAME_MAX: usize = 512;
/// The longest name that a tool is listed by (B-60).
pub const LISTED_MAX: usize = 128;
/// The most dropped definitions that are remembered with their reasons.
pub const DROPPED_MAX: usize = 100;

/// A tool as its server defines it.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// All of it, as it was written.
    pub raw: Obj,
    /// Equal for equal definitions, whatever their spelling (E-3).
    pub digest: Digest,
    /// As the server writes it: 1 to [`NAME_MAX`] bytes. [`listable`] says by what name it can be listed.
    pub name: String,
    /// For people.
    pub title: Option<String>,
    /// For the model.
    pub description: Option<String>,
    /// A JSON Schema whose root is `type: object`.
    pub input_schema: Raw,
    /// A JSON Schema of the structured result.
    pub output_schema: Option<Raw>,
    /// What the server says of the tool's effects.
    pub annotations: Annotations,
    /// Whether the server itself can run a call as a task; absent means that it cannot.
    pub task_support: TaskSupport,
    /// The arguments that headers mirror.
    pub mirrors: Vec<Mirror>,
}

impl Definition {
    /// Reads one definition.
    ///
    /// # Errors
    /// The first reason for which it cannot be listed.
    pub fn read(raw: &Raw) -> Result<Definition, Bad> {
        let object: Obj = raw.read().map_err(|_| Bad::NotAnObject)?;
        let name = text(&object, "name")?
            .filter(|name| (1..=NAME_MAX).contains(&name.len()))
            .ok_or(Bad::Name)?;
        let (input_schema, output_schema) =
            (schema(&object, "inputSchema")?, schema(&object, "outputSchema")?);
        let input_schema = input_schema.ok_or(Bad::Member {
            member: "inputSchema",
        })?;
        let root = input_schema
            .read::<Obj>()
            .ok()
            .and_then(|root| root.get::<String>("type"));
        if root.as_deref() != Some("object") {
            return Err(Bad::InputNotAnObject);
        }
        // A schema that nothing can read is a tool that nothing can call.
        canon::check_finite(raw).map_err(|bad| Bad::NotFinite {
            path: clean(&bad.path, 200),
        })?;
        object
            .raw("icons")
            .map_or(Ok(()), |icons| is(icons, '[', "icons"))?;
        object
            .raw("_meta")
            .map_or(Ok(()), |members| is(members, '{', "_meta"))?;
        Ok(Definition {
            digest: canon::digest(raw).map_err(|_| Bad::NotAnObject)?,
            title: text(&object, "title")?,
            description: text(&object, "description")?,
            annotations: annotations(&object)?,
            task_support: task_support(&object)?,
            mirrors: header::mirrors(&input_schema)?,
            name,
            input_schema,
            output_schema,
            raw: object,
        })
    }

    /// The tool as it is listed under `name`. `support` is what is offered to clients; the output schema is shown only
    /// where a call is sure to end with a result (D-44).
    pub fn listing(&self, name: &str, support: TaskSupport, shows_output: bool) -> Tool {
        Tool {
            name: name.to_owned(),
            title: self.title.clone(),
            description: self.description.clone(),
            input_schema: self.input_schema.clone(),
            output_schema: self.output_schema.clone().filter(|_| shows_output),
            annotations: self.annotations,
            task_support: support,
            relayed: Some(self.raw.clone()),
        }
    }

    /// What a call of the tool must be like. `support` is what is offered to clients, which is not what the server
    /// offers to us.
    pub fn rule(&self, support: TaskSupport) -> ToolRule {
        ToolRule {
            mirrors: self.mirrors.clone(),
            requires_task: support == TaskSupport::Required,
            forbids_task: support == TaskSupport::Forbidden,
        }
    }
}

/// Why a definition is dropped.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Bad {
    /// It is no object.
    #[error("it is no object")]
    NotAnObject,
    /// The name is absent, empty or too long.
    #[error("it has no name of 1 to {NAME_MAX} bytes")]
    Name,
    /// An earlier definition has the name.
    #[error("its name is taken by an earlier tool")]
    Duplicate,
    /// A member is missing or of the wrong type.
    #[error("its `{member}` is missing or of the wrong type")]
    Member {
        /// The member.
        member: &'static str,
    },
    /// The input schema describes something else than an object (B-54).
    #[error("the root of its `inputSchema` has not the type `object`")]
    InputNotAnObject,
    /// It holds a number that is no finite double.
    #[error("the number at `{path}` is too large")]
    NotFinite {
        /// A JSON pointer into the definition, fit to be shown.
        path: String,
    },
    /// It mirrors arguments into headers in a way that no client may serve (B-25).
    #[error("{0}")]
    Mirror(#[from] BadMirror),
    /// The server has more than [`TOOLS_MAX`] tools, or more than [`BYTES_MAX`] of definitions.
    #[error("the server defines more than one server may")]
    TooMany,
}

/// A definition that was dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Its name, fit to be shown, if it has one.
    pub name: Option<String>,
    /// Why.
    pub why: Bad,
}

/// The tools of one server, page by page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// In the server's own order.
    pub tools: Vec<Definition>,
    /// The first [`DROPPED_MAX`] that were dropped.
    pub dropped: Vec<Dropped>,
    /// All that were dropped.
    pub dropped_count: usize,
    names: BTreeSet<String>,
    pages: Pages,
    bytes: usize,
}

impl Listing {
    /// Adds the result of one `tools/list`. Gives the cursor of the next page, if there is one; an empty one is a
    /// cursor too (B-53).
    ///
    /// # Errors
    /// The result is no page, or the pages do not end; the tools of the pages before stand.
    pub fn add(&mut self, result: &Raw) -> Result<Option<String>, BadPage> {
        let (page, tools) = Pages::items(result, "tools")?;
        for raw in tools {
            if let Err(why) = self.take(&raw) {
                self.drop_one(&raw, why);
            }
        }
        self.pages.next(&page)
    }

    fn take(&mut self, raw: &Raw) -> Result<(), Bad> {
        let bytes = self.bytes + raw.text().len();
        if self.tools.len() >= TOOLS_MAX || bytes > BYTES_MAX {
            return Err(Bad::TooMany);
        }
        let definition = Definition::read(raw)?;
        if !self.names.insert(definition.name.clone()) {
            return Err(Bad::Duplicate);
        }
        self.bytes = bytes;
        self.tools.push(definition);
        Ok(())
    }

    fn drop_one(&mut self, raw: &Raw, why: Bad) {
        self.dropped_count += 1;
        if self.dropped.len() < DROPPED_MAX {
            self.dropped.push(Dropped {
                name: shown(raw, "name"),
                why,
            });
        }
    }
}

/// The name by which a tool can be listed, `A–Z a–z 0–9 _ - .` (B-60): its own, or the nearest to it. Two tools may come
/// to the same.
pub fn listable(name: &str) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.len() <= LISTED_MAX && name.chars().all(fits) {
        return Cow::Borrowed(name);
    }
    let fitting = name.chars().map(|c| if fits(c) { c } else { '_' });
    Cow::Owned(fitting.take(LISTED_MAX).collect())
}

fn text(object: &Obj, member: &'static str) -> Result<Option<String>, Bad> {
    let text = object.raw(member).map(Raw::read::<String>).transpose();
    text.map_err(|_| Bad::Member { member })
}

fn is(value: &Raw, opens: char, member: &'static str) -> Result<(), Bad> {
    if value.text().starts_with(opens) {
        Ok(())
    } else {
        Err(Bad::Member { member })
    }
}

fn schema(object: &Obj, member: &'static str) -> Result<Option<Raw>, Bad> {
    let Some(schema) = object.raw(member) else {
        return Ok(None);
    };
    is(schema, '{', member)?;
    Ok(Some(schema.clone()))
}

fn annotations(object: &Obj) -> Result<Annotations, Bad> {
    const MEMBER: &str = "annotations";
    let Some(raw) = object.raw(MEMBER) else {
        return Ok(Annotations::default());
    };
    let bad = Bad::Member { member: MEMBER };
    let hints: Obj = raw.read().map_err(|_| bad.clone())?;
    let hint = |name| {
        hints
            .raw(name)
            .map(Raw::read::<bool>)
            .transpose()
            .map_err(|_| bad.clone())
    };
    if hints
        .raw("title")
        .is_some_and(|title| title.read::<String>().is_err())
    {
        return Err(bad);
    }
    Ok(Annotations {
        read_only: hint("readOnlyHint")?,
        destructive: hint("destructiveHint")?,
        idempotent: hint("idempotentHint")?,
        open_world: hint("openWorldHint")?,
    })
}

fn task_support(object: &Obj) -> Result<TaskSupport, Bad> {
    const MEMBER: &str = "execution";
    let Some(raw) = object.raw(MEMBER) else {
        return Ok(TaskSupport::Forbidden);
    };
    let bad = Bad::Member { member: MEMBER };
    let execution: Obj = raw.read().map_err(|_| bad.clone())?;
    match execution.raw("taskSupport").map(Raw::read::<String>) {
        None => Ok(TaskSupport::Forbidden),
        Some(Ok(support)) => match support.as_str() {
            "forbidden" => Ok(TaskSupport::Forbidden),
            "optional" => Ok(TaskSupport::Optional),
            "required" => Ok(TaskSupport::Required),
            _ => Err(bad),
        },
        Some(Err(_)) => Err(bad),
    }
}
