//! What a server defines: how it speaks, and its lists, fetched whole and kept as they were written.
//!
//! Called by `server` after each dial and each change. A list of tools that cannot be fetched is a failure. Of another
//! list that cannot be, what was known before counts.

use std::{fmt, future::pending, time::Duration};

use longhaul_mcp::{
    canon::{self, Digest},
    client::{
        Era, Spoken, Version,
        list::{self, BadPage, Item, Items, Of},
        result::Came,
        tools::{Definition, Dropped, Listing},
    },
    frame::{Obj, Raw},
    scan::Refused,
};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};

use super::{
    connection::Connection,
    outcome::{Failed, Outcome, Request},
    times::Times,
};

/// What one server defines.
#[derive(Clone, Debug)]
pub struct Definitions {
    /// How it speaks and what it offers.
    pub spoken: Spoken,
    /// Its tools, in its own order.
    pub tools: Vec<Definition>,
    /// The first of the tools, prompts, resources and templates that cannot be listed, with the reasons.
    pub dropped: Vec<LeftOut>,
    /// How many cannot be listed.
    pub dropped_count: usize,
    /// Its prompts.
    pub prompts: Vec<Item>,
    /// Its resources.
    pub resources: Vec<Item>,
    /// Its templates of resources.
    pub templates: Vec<Item>,
    /// Equal for equal definitions, whatever their spelling.
    pub digest: Digest,
}

/// For how long a server says that its lists may be kept, in milliseconds (B-51); `None` where it does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ages {
    /// The list of tools.
    pub tools: Option<u64>,
    /// The list of prompts.
    pub prompts: Option<u64>,
    /// The list of resources.
    pub resources: Option<u64>,
    /// The list of templates of resources.
    pub templates: Option<u64>,
}

/// The shortest time for which any page of a list may be kept.
#[derive(Default)]
struct Age(Option<u64>);

impl Age {
    fn add(&mut self, page: &Raw) {
        let said = page.read::<Obj>().ok().and_then(|page| page.get::<u64>("ttlMs"));
        self.0 = match (self.0, said) {
            (Some(known), Some(said)) => Some(known.min(said)),
            (known, said) => known.or(said),
        };
    }
}

/// How often each list has changed. Two that are equal are of the same lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// That of tools.
    pub tools: u64,
    /// That of prompts.
    pub prompts: u64,
    /// Those of resources and templates.
    pub resources: u64,
}

/// What cannot be listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Its name, fit to be shown, if it has one. What is no tool is named with what it is.
    pub name: Option<String>,
    /// Why, in words.
    pub why: String,
}

impl LeftOut {
    fn item(of: Of, dropped: list::Dropped) -> LeftOut {
        let one = of.one();
        LeftOut {
            name: Some(match dropped.key {
                Some(key) => format!("{one} {key}"),
                None => format!("a {one}"),
            }),
            why: dropped.why.to_string(),
        }
    }
}

impl From<Dropped> for LeftOut {
    fn from(dropped: Dropped) -> LeftOut {
        LeftOut {
            name: dropped.name,
            why: dropped.why.to_string(),
        }
    }
}

/// What was fetched of a server.
pub struct Fetched {
    /// What it defines.
    pub definitions: Definitions,
    /// For how long that may be kept.
    pub ages: Ages,
    /// Lists that could not be fetched whole.
    pub cut: Vec<Cut>,
}

/// A list that could not be fetched whole: what was known of it before counts, or what came where nothing was known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{method}: it was not fetched whole, and may be out of date: {why}")]
pub struct Cut {
    /// What lists it.
    pub method: &'static str,
    /// Why, in words.
    pub why: String,
}

/// Why a list could not be fetched.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct Unlisted {
    why: String,
    /// The server does not answer any more.
    pub(super) is_silent: bool,
    /// The server wants other credentials.
    pub(super) is_refused: bool,
}

impl Unlisted {
    fn because(why: impl fmt::Display) -> Unlisted {
        Unlisted {
            why: why.to_string(),
            is_silent: false,
            is_refused: false,
        }
    }

    fn of(outcome: &Outcome) -> Unlisted {
        Unlisted {
            why: outcome.why(),
            is_silent: matches!(outcome, Outcome::TimedOut),
            is_refused: matches!(outcome, Outcome::Failed(Failed::Status(401 | 403))),
        }
    }
}

impl Definitions {
    /// Fetches all of them. `known` is what the server defined before.
    ///
    /// # Errors
    /// The list of tools cannot be fetched.
    pub async fn fetch(
        connection: &Connection,
        times: &Times,
        known: Option<&Definitions>,
    ) -> Result<Fetched, Unlisted> {
        let until = Instant::now() + times.lists;
        let spoken = connection.spoken().clone();
        let offers = spoken.offers();
        let mut tools = Listing::default();
        let mut tools_age = Age::default();
        if offers.tools {
            let fetched = list(connection, "tools/list", times.request, |page| {
                tools_age.add(page);
                tools.add(page).map_err(|bad| bad.to_string())
            });
            in_time(until, fetched).await?;
        }
        let mut dropped: Vec<LeftOut> = tools.dropped.into_iter().map(LeftOut::from).collect();
        let mut dropped_count = tools.dropped_count;
        let mut cut = Vec::new();
        let mut lists =
            [Of::Prompts, Of::Resources, Of::Templates].map(|of| (of, Vec::new(), Age::default()));
        for (of, listed, age) in &mut lists {
            let is_offered = match of {
                Of::Prompts => offers.prompts,
                Of::Resources | Of::Templates => offers.resources,
            };
            if !is_offered {
                continue;
            }
            let method = of.method().as_str();
            let mut items = Items::new(*of);
            let mut is_endless = false;
            let fetched = list(connection, method, times.request, |page| {
                age.add(page);
                items.add(page).map_err(|bad| {
                    is_endless = bad == BadPage::Endless;
                    bad.to_string()
                })
            });
            if let Err(unlisted) = in_time(until, fetched).await {
                tracing::info!(method, why = %unlisted, "a server's list is cut short");
                let why = unlisted.to_string();
                cut.push(Cut { method, why });
                // One that does not end is never had whole.
                let known = known.map(|known| known.items(*of)).filter(|_| !is_endless);
                if let Some(known) = known.filter(|known| !known.is_empty()) {
                    *listed = known.to_vec();
                    continue;
                }
            }
            dropped.extend(
                items
                    .dropped
                    .into_iter()
                    .map(|dropped| LeftOut::item(*of, dropped)),
            );
            dropped_count += items.dropped_count;
            *listed = items.items;
        }
        let [prompts, resources, templates] = lists.map(|(_, items, age)| (items, age.0));
        let ages = Ages {
            tools: tools_age.0,
            prompts: prompts.1,
            resources: resources.1,
            templates: templates.1,
        };
        let dropped = (dropped, dropped_count);
        let definitions = Definitions::new(spoken, tools.tools, dropped, prompts.0, resources.0, templates.0);
        Ok(Fetched {
            definitions: definitions.map_err(Unlisted::because)?,
            ages,
            cut,
        })
    }

    /// One of its lists, as it was last seen.
    pub(crate) fn items(&self, of: Of) -> &[Item] {
        match of {
            Of::Prompts => &self.prompts,
            Of::Resources => &self.resources,
            Of::Templates => &self.templates,
        }
    }

    fn new(
        spoken: Spoken,
        tools: Vec<Definition>,
        dropped: (Vec<LeftOut>, usize),
        prompts: Vec<Item>,
        resources: Vec<Item>,
        templates: Vec<Item>,
    ) -> Result<Definitions, Refused> {
        let mut definitions = Definitions {
            spoken,
            tools,
            dropped: dropped.0,
            dropped_count: dropped.1,
            prompts,
            resources,
            templates,
            digest: Digest::default(),
        };
        definitions.digest = canon::digest(&definitions.encode())?;
        Ok(definitions)
    }

    /// All of it as one value, to be kept until the next start.
    pub fn encode(&self) -> Raw {
        let mut object = Obj::default();
        object.set("version", self.spoken.era.version());
        object.set("capabilities", &self.spoken.capabilities.to_raw());
        if let Some(info) = &self.spoken.server_info {
            object.set("serverInfo", &info.to_raw());
        }
        if let Some(instructions) = &self.spoken.instructions {
            object.set("instructions", instructions);
        }
        let tools: Vec<Raw> = self.tools.iter().map(|tool| tool.raw.to_raw()).collect();
        object.set("tools", &tools);
        if self.dropped_count > 0 {
            object.set("leftOut", &self.dropped);
            object.set("leftOutCount", &self.dropped_count);
        }
        for of in [Of::Prompts, Of::Resources, Of::Templates] {
            let items: Vec<Raw> = self.items(of).iter().map(|item| item.raw.to_raw()).collect();
            object.set(of.member(), &items);
        }
        object.to_raw()
    }

    /// What [`Definitions::encode`] wrote; `None` when it is something else.
    pub fn decode(encoded: &Raw) -> Option<Definitions> {
        let object: Obj = encoded.read().ok()?;
        let version: String = object.get("version")?;
        let era = match version == Era::Stateless.version() {
            true => Era::Stateless,
            false => Era::Session(Version::parse(&version)?),
        };
        let mut page = Obj::default();
        page.set("tools", object.raw("tools")?);
        let mut tools = Listing::default();
        tools.add(&page.to_raw()).ok()?;
        let spoken = Spoken {
            era,
            capabilities: object.obj("capabilities")?,
            server_info: object.obj("serverInfo"),
            instructions: object.get("instructions"),
            next_id: 1,
        };
        let items = |of: Of| {
            let mut page = Obj::default();
            page.set(of.member(), object.raw(of.member())?);
            let mut items = Items::new(of);
            items.add(&page.to_raw()).ok()?;
            Some(items.items)
        };
        let (prompts, resources, templates) =
            (items(Of::Prompts)?, items(Of::Resources)?, items(Of::Templates)?);
        let dropped = (
            object.get("leftOut").unwrap_or_default(),
            object.get("leftOutCount").unwrap_or_default(),
        );
        Definitions::new(spoken, tools.tools, dropped, prompts, resources, templates).ok()
    }
}

/// Whoever the pages of a list are asked of.
pub(crate) trait Asked: Sync {
    /// One request and what comes of it.
    fn ask(&self, request: Request<'_>) -> impl Future<Output = Outcome> + Send;
}

impl Asked for Connection {
    fn ask(&self, request: Request<'_>) -> impl Future<Output = Outcome> + Send {
        self.request(request, None, pending())
    }
}

/// What all lists of a server have left of their time.
async fn in_time(
    until: Instant,
    fetched: impl Future<Output = Result<(), Unlisted>>,
) -> Result<(), Unlisted> {
    timeout_at(until, fetched).await.unwrap_or_else(|_late| {
        Err(Unlisted {
            is_silent: true,
            ..Unlisted::because("they did not end in time (`lists_timeout`)")
        })
    })
}

/// Fetches the pages of a list from `asked`, until the last; each may take `page_time`.
///
/// # Errors
/// The first page that could not be had, or not be read.
pub(crate) async fn list(
    asked: &impl Asked,
    method: &str,
    page_time: Duration,
    mut add: impl FnMut(&Raw) -> Result<Option<String>, String>,
) -> Result<(), Unlisted> {
    let mut cursor: Option<String> = None;
    loop {
        let params = cursor.map(|cursor| {
            let mut params = Obj::default();
            params.set("cursor", &cursor);
            params
        });
        let request = Request {
            method,
            params: params.as_ref(),
            timeout: Some(page_time),
            ..Request::default()
        };
        let outcome = asked.ask(request).await;
        let Outcome::Came(Came::Complete(page)) = outcome else {
            return Err(Unlisted::of(&outcome));
        };
        cursor = add(&page).map_err(Unlisted::because)?;
        if cursor.is_none() {
            return Ok(());
        }
    }
}
