//! What an endpoint says of itself: what it offers, how it is to be used, and its tools.
//!
//! Called by `dispatch`, and for a session that opens. The store is not asked.

use longhaul_mcp::{
    Reply, RpcError, clean,
    reply::{Cache, CacheScope, Discovery, ToolPage},
    request::Takes,
};

use super::{Dispatch, wait};
use crate::{
    config::INSTRUCTIONS_BYTES_MAX,
    toolset::Selection,
    upstream::{Server, fleet::Member},
};

/// Told to the model by `server/discover`.
const INSTRUCTIONS: &str = "Slow tools return a task: wait for it by its poll interval, answer its questions, \
                            or cancel it. A task goes on when the client ends.";

impl Dispatch {
    /// What the server is and offers to whoever is shown this.
    pub(crate) fn discovery(&self, selection: &Selection) -> Discovery {
        Discovery {
            tasks: self.inner.settings.tasks_enabled,
            // D-13: this version knows its callers.
            tasks_list: true,
            tools_change: self.has_servers(selection),
            logging: true,
            relays: self.inner.catalog.now().of(selection).relays(),
            instructions: Some(self.instructions(selection)),
            title: wrapped_title(selection),
            cache: self.cache(),
        }
    }

    /// The servers that are shown whole, in the order of the configuration.
    pub(super) fn members<'a>(
        &'a self,
        selection: &'a Selection,
    ) -> impl Iterator<Item = &'a Member> + Clone {
        let members = self.inner.fleet.members().iter().map(|member| &**member);
        let shown = members.filter(|member| selection.has_server(&member.config.name));
        shown.chain(selection.wrapped())
    }

    /// Whether there are servers whose lists may change, for whoever is shown this.
    pub(super) fn has_servers(&self, selection: &Selection) -> bool {
        selection.wrapped().is_some() || self.inner.fleet.is_any()
    }

    /// The servers that whoever is shown this may use, whole or in part.
    pub(super) fn usable<'a>(&'a self, selection: &'a Selection) -> impl Iterator<Item = &'a Server> {
        let wrapped = selection.wrapped();
        let configured = self.inner.fleet.servers().filter(move |_| wrapped.is_none());
        configured.chain(wrapped.and_then(|member| member.server.as_ref()))
    }

    /// Our own, the toolset's, and those of every server that is shown whole.
    fn instructions(&self, selection: &Selection) -> String {
        let mut instructions = INSTRUCTIONS.to_owned();
        if let Some(said) = selection
            .toolset()
            .and_then(|toolset| toolset.instructions.as_ref())
        {
            instructions.push_str(&format!("\n\n{said}"));
        }
        for server in self
            .members(selection)
            .filter_map(|member| member.server.as_ref())
        {
            let said = server
                .definitions()
                .and_then(|definitions| definitions.spoken.instructions.clone());
            let Some(said) = said else { continue };
            let lines: Vec<String> = said.lines().map(|line| clean(line, usize::MAX)).collect();
            let head = match selection.wrapped() {
                // There is no other.
                Some(_) => String::new(),
                None => format!("Of the server `{}`:\n", server.name()),
            };
            let said = format!("\n\n{head}{}", lines.join("\n"));
            // What does not fit is left out whole: half a rule may say the contrary.
            if instructions.len() + said.len() <= INSTRUCTIONS_BYTES_MAX {
                instructions.push_str(&said);
            }
        }
        instructions
    }

    pub(super) fn list_tools(
        &self,
        selection: &Selection,
        takes: Takes,
        cursor: Option<&str>,
    ) -> Result<Reply, RpcError> {
        if cursor.is_some_and(|cursor| !cursor.is_empty()) {
            return Err(RpcError::invalid_params(
                "Unknown cursor: the list of tools has one page",
            ));
        }
        let offered = self.inner.catalog.now();
        let tools = offered.of(selection).entries().iter();
        let helper = self.inner.settings.wait_tool.then(wait::listing);
        Ok(Reply::Tools(ToolPage {
            tools: tools.map(|entry| entry.listed(takes)).chain(helper).collect(),
            next_cursor: None,
            cache: self.cache_of_tools(selection),
        }))
    }

    pub(super) fn cache(&self) -> Cache {
        Cache {
            ttl_ms: self.inner.settings.list_cache_ms,
            scope: CacheScope::Private,
        }
    }
}

/// What a wrapped server is called, for people.
fn wrapped_title(selection: &Selection) -> Option<String> {
    let definitions = selection.wrapped()?.server.as_ref()?.definitions()?;
    let info = definitions.spoken.server_info.as_ref()?;
    let title: String = info.get("title").or_else(|| info.get("name"))?;
    Some(clean(&title, TITLE_MAX))
}

/// The longest title of a server that is passed on, in characters.
const TITLE_MAX: usize = 100;
