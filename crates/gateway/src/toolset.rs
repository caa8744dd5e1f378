//! `[toolsets.NAME]`: a part of what is offered, served at an endpoint of its own.
//!
//! A [`Selection`] comes with each caller and says which part its endpoint shows. The catalog makes them, and keeps
//! what each part offers ([`crate::catalog::Offered::of`]); dispatch asks a selection which servers it has whole. What
//! a part does not show is, to whoever calls there, not there.

use std::sync::Arc;

use crate::{
    catalog::{BETWEEN, Entry, full_name},
    config::Toolset,
};

/// What an endpoint shows: all that is offered, or a toolset. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection(Option<Arc<Toolset>>);

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
    /// All that is offered.
    pub fn all() -> Selection {
        Selection(None)
    }

    pub(crate) fn of(toolset: &Arc<Toolset>) -> Selection {
        Selection(Some(Arc::clone(toolset)))
    }

    /// The toolset; `None` where everything is shown.
    pub fn toolset(&self) -> Option<&Toolset> {
        self.0.as_deref()
    }

    /// The toolset's name; empty where everything is shown.
    pub fn name(&self) -> &str {
        self.toolset().map_or("", |toolset| &toolset.name)
    }

    /// Whether all that this server offers is shown.
    pub fn has_server(&self, server: &str) -> bool {
        self.toolset().is_none_or(|toolset| toolset.has_server(server))
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
