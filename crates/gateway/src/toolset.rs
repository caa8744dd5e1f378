//! `[toolsets.NAME]`: a part of what is offered, served at an endpoint of its own.
//!
//! A [`Selection`] comes with each caller and says which part its endpoint shows: for a pipe of `longhaul wrap` that is
//! its own server alone. The catalog makes them, and keeps what each part offers ([`crate::catalog::Offered::of`]);
//! dispatch asks a selection which servers it has whole. What a part does not show is, to whoever calls there, not there.

use std::sync::Arc;

use crate::{
    catalog::{BETWEEN, Entry, full_name},
    config::Toolset,
    upstream::fleet::Member,
};

/// What an endpoint shows: all that is configured, a toolset, or one wrapped server. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection(Shown);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Shown {
    #[default]
    All,
    Toolset(Arc<Toolset>),
    Wrapped(Arc<Member>),
}

impl Toolset {
    /// Whether it has the tool.
    ///
    /// A tool is taken by the name that it is listed by, or by `server__tool`, which it has however it is listed. It
    /// is excluded by any of its names: one that must not be called stays out when another server's tool makes its
    /// name longer.
    pub fn has(&self, tool: &Entry) -> bool {
        let of_server = tool.server_tool.as_ref();
        let is_taken = of_server.is_some_and(|of_server| self.has_server(&of_server.server))
            || self.tools.iter().any(|pattern| takes(pattern, tool));
        is_taken && !self.exclude.iter().any(|pattern| excludes(pattern, tool))
    }

    /// Whether it has the server whole.
    pub fn has_server(&self, server: &str) -> bool {
        self.servers.iter().any(|whole| whole == server)
    }

    /// Its patterns that fit none of these tools, as they are written.
    pub fn unmatched(&self, tools: &[Arc<Entry>]) -> Vec<String> {
        let of = |patterns: &[String], fits: fn(&str, &Entry) -> bool| -> Vec<String> {
            let left = patterns
                .iter()
                .filter(|pattern| !tools.iter().any(|tool| fits(pattern, tool)));
            left.cloned().collect()
        };
        [of(&self.tools, takes), of(&self.exclude, excludes)].concat()
    }
}

impl Selection {
    /// All that is configured.
    pub fn all() -> Selection {
        Selection(Shown::All)
    }

    pub(crate) fn of(toolset: &Arc<Toolset>) -> Selection {
        Selection(Shown::Toolset(Arc::clone(toolset)))
    }

    /// A wrapped server, and nothing else.
    pub(crate) fn of_wrapped(server: Arc<Member>) -> Selection {
        Selection(Shown::Wrapped(server))
    }

    /// The toolset, where it is one.
    pub fn toolset(&self) -> Option<&Toolset> {
        match &self.0 {
            Shown::Toolset(toolset) => Some(toolset),
            Shown::All | Shown::Wrapped(_) => None,
        }
    }

    /// The wrapped server, where it is one.
    pub fn wrapped(&self) -> Option<&Member> {
        match &self.0 {
            Shown::Wrapped(server) => Some(server),
            Shown::All | Shown::Toolset(_) => None,
        }
    }

    /// The name of the toolset or of the wrapped server; empty where everything is shown.
    pub fn name(&self) -> &str {
        match &self.0 {
            Shown::All => "",
            Shown::Toolset(toolset) => &toolset.name,
            Shown::Wrapped(server) => &server.config.name,
        }
    }

    /// Whether all that this server of the configuration offers is shown.
    pub fn has_server(&self, server: &str) -> bool {
        match &self.0 {
            Shown::All => true,
            Shown::Toolset(toolset) => toolset.has_server(server),
            Shown::Wrapped(_) => false,
        }
    }
}

fn takes(pattern: &str, tool: &Entry) -> bool {
    fits(pattern, &tool.listing.name) || full_name_of(tool).is_some_and(|full| fits(pattern, &full))
}

fn excludes(pattern: &str, tool: &Entry) -> bool {
    takes(pattern, tool)
        || tool.server_tool.as_ref().is_some_and(|of_server| {
            fits(pattern, &of_server.tool) || fits(pattern, bare(&of_server.server, &tool.listing.name))
        })
}

/// The name that means this tool however it is listed: of a server's tool, with the server's. A command has none.
pub(crate) fn full_name_of(tool: &Entry) -> Option<String> {
    let server = &tool.server_tool.as_ref()?.server;
    Some(full_name(server, bare(server, &tool.listing.name)))
}

/// The listed name of a server's tool without the server's.
fn bare<'a>(server: &str, listed: &'a str) -> &'a str {
    let own = listed.strip_prefix(server);
    own.and_then(|own| own.strip_prefix(BETWEEN)).unwrap_or(listed)
}

/// Whether a name fits a pattern in which each `*` stands for any text.
pub(crate) fn fits(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(mut left) = name.strip_prefix(first) else {
        return false;
    };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in middle.split('*') {
        match left.find(part) {
            Some(at) => left = &left[at + part.len()..],
            None => return false,
        }
    }
    left.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, name) in [
            ("deploy", "deploy"),
            ("*", "deploy"),
            ("git__*", "git__log"),
            ("*_log", "git_log"),
            ("git*log", "gitlog"),
            ("*a*b*", "xaxbx"),
            ("a**b", "ab"),
        ] {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("deploy", "deploys"),
            ("git__*", "hub__log"),
            ("ab*ba", "aba"),
            ("*a*b", "ba"),
            ("", "deploy"),
        ] {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
    }
}
