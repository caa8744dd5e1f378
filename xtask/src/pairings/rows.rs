//! `pairings.json`: the servers, what is called of each, and which steps a client or a server does not have.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::{clients::Client, program::Program, workspace::json};

use super::RIG;

/// What a pair shows, in this order. `restart` is of finished and of running work, `asked` of a question that is open
/// while Longhaul is killed.
pub(super) const STEPS: [&str; 6] = ["call", "result", "question", "cancel", "restart", "asked"];

/// Why a client or a server has no step of this name.
type Without = BTreeMap<String, String>;

#[derive(Deserialize)]
pub(super) struct Rows {
    /// What is called of each kind of server, step by step.
    tools: BTreeMap<String, BTreeMap<String, Value>>,
    pub(super) servers: Vec<Row>,
    /// What a client (`CLIENT`, or `CLIENT/SERVER`) cannot do here, beside what it cannot do at all.
    clients: BTreeMap<String, Without>,
    /// The pairs that CI runs.
    pub(super) covering: Vec<String>,
}

/// One server.
#[derive(Deserialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) title: String,
    tools: String,
    #[serde(default)]
    pub(super) without: Without,
    /// What becomes of its work when Longhaul is killed.
    #[serde(default)]
    after_restart: After,
    /// The same of work that asks, where that differs.
    after_restart_asked: Option<After>,
    /// What is started beside Longhaul: the server itself, or what it fetches.
    #[serde(default)]
    pub(super) start: Vec<String>,
    /// A program that not every machine has; without it the server is left out.
    pub(super) needs: Option<String>,
}

/// What becomes of work when Longhaul is killed.
#[derive(Clone, Copy, Default, PartialEq, Deserialize)]
pub(super) enum After {
    #[default]
    #[serde(rename = "goes on")]
    GoesOn,
    #[serde(rename = "interrupted")]
    Interrupted,
    /// A task of the server's own, which a new process of it does not have.
    #[serde(rename = "lost")]
    Lost,
}

impl Row {
    /// What becomes of the work of this step.
    pub(super) fn after(&self, step: &str) -> After {
        match (step, self.after_restart_asked) {
            ("asked", Some(after)) => after,
            _ => self.after_restart,
        }
    }

    /// The name by which a tool of it is listed.
    fn listed(&self, tool: &str) -> String {
        match self.name.as_str() {
            "command" => tool.to_owned(),
            name => format!("{name}__{tool}"),
        }
    }
}

impl Rows {
    pub(super) fn read() -> Result<Rows, String> {
        json(&format!("{RIG}/pairings.json"))
    }

    /// Whether this machine has what the server needs.
    pub(super) fn here(&self, row: &Row) -> bool {
        let there = |program: &String| Program::new(program).args(["--version"]).works();
        row.needs.as_ref().is_none_or(there)
    }

    /// Whether a pair has a step.
    pub(super) fn has(&self, client: &Client, row: &Row, step: &str) -> bool {
        self.why_not(client, row, step).is_none() && (step == "restart" || self.step(row, step).is_some())
    }

    /// Why a pair does not have a step.
    pub(super) fn why_not<'a>(&'a self, client: &'a Client, row: &'a Row, step: &str) -> Option<&'a str> {
        let pair = format!("{}/{}", client.name, row.name);
        let known = [&pair, &client.name];
        let here = known
            .into_iter()
            .find_map(|name| self.clients.get(name)?.get(step));
        let needed = match step {
            "asked" => client.without.get("question").or(client.without.get("restart")),
            _ => client.without.get(step),
        };
        row.without.get(step).or(here).or(needed).map(String::as_str)
    }

    /// What is called in a step, by the name that it is listed by; nothing where no call belongs to it.
    pub(super) fn step(&self, row: &Row, step: &str) -> Option<Value> {
        let mut call = self.tools.get(&row.tools)?.get(step)?.clone();
        call["tool"] = row.listed(call["tool"].as_str()?).into();
        let says = match row.after(step) {
            After::GoesOn => None,
            After::Interrupted => Some("Interrupted"),
            After::Lost => Some("no longer knows the task"),
        };
        if let Some(says) = says.filter(|_| matches!(step, "restart" | "asked")) {
            call["ends"] = "failed".into();
            call["says"] = says.into();
        }
        Some(call)
    }
}
