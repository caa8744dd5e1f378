//! What servers behind this one answer besides calls of tools: resources, prompts and completions.
//!
//! Nothing of it is stored: a request is passed on to the server that it is about, in the caller's own process of it,
//! and its reply is passed back as it was written. A list is that of all servers, in the order of the configuration;
//! a server that does not answer in time is listed as it was last seen.

mod asking;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures_util::future::join_all;
use longhaul_mcp::{
    Reply, RpcError, canon, clean,
    client::{
        Era,
        dial::Offers,
        list::{Item, Items, Of},
    },
    frame::Raw,
    reply::Cache,
    request::{Answers, Client, Filter, LogLevel, Relay, RelayMethod, Subject},
    rpc_error::{INVALID_PARAMS, RESOURCE_NOT_FOUND},
};
use tokio::sync::{mpsc, watch};

use self::asking::{Asking, Telling};
use super::{
    Conversation, Dispatch,
    relaying::{Relaying, Way, Work},
};
use crate::{
    catalog::{full_name, repeated},
    changes::Wanted,
    config::Prefix,
    gate::{self, Action, View},
    identity,
    session::Session,
    toolset::Selection,
    upstream::{
        Definitions, Event, Server,
        asked::Inquiry,
        definitions::{Ages, list},
        fleet::Member,
        outcome::EVENTS_MAX,
        server,
        times::over,
    },
};

/// How long a list waits for one server before that one is listed as it was last seen.
const LIST_TIME: Duration = Duration::from_secs(10);
/// How long the servers are asked, all in all, for a resource that none of them lists.
const FIND_TIME: Duration = Duration::from_secs(60);

impl Dispatch {
    /// The lists whose changes a listener is told of, of those that it asked for.
    pub(crate) fn tells_of(&self, selection: &Selection, filter: &Filter) -> Wanted {
        let relays = self.inner.catalog.now().of(selection).relays();
        Wanted {
            tools: filter.tools_list_changed && self.has_servers(selection),
            prompts: filter.prompts_list_changed && relays.prompts_change,
            resources: filter.resources_list_changed && relays.resources_change,
        }
    }

    /// What servers behind say to nobody in particular in this session's own processes.
    pub(crate) fn hears(&self, caller: &identity::Caller, session: &Session) -> mpsc::Receiver<Event> {
        let (hears, heard) = mpsc::channel(EVENTS_MAX);
        let whose = in_session(caller, session);
        for server in self.usable(&caller.selection) {
            server.hear(&whose, hears.clone());
        }
        heard
    }

    /// Passes a request on. It has one of its owner's places for what is held, as a call has.
    pub(super) fn relaying(
        &self,
        caller: &identity::Caller,
        session: Option<&Conversation>,
        client: &Client,
        mut relay: Relay,
    ) -> Result<Relaying, RpcError> {
        let place = self.held_place(caller, &[])?;
        let level = wanted_level(session, &relay);
        let token = relay.progress_token.clone();
        let way = self.way_to_ask(caller, session, client, &relay);
        let work = match self.comes_back(caller, session, &mut relay)? {
            Some(work) => work,
            None => self.work(caller, session, client, relay, &way),
        };
        Ok(Relaying::new(token, level, work, way, place))
    }

    /// How this client is asked in the middle of the request.
    fn way_to_ask(
        &self,
        caller: &identity::Caller,
        session: Option<&Conversation>,
        client: &Client,
        relay: &Relay,
    ) -> Way {
        // B-37
        let may_ask = matches!(relay.method, RelayMethod::GetPrompt | RelayMethod::ReadResource);
        match session {
            _ if !may_ask || client.answers == Answers::default() => Way::Never,
            None => Way::in_reply(self, caller),
            Some(place) if place.has_stream => Way::on_stream(&place.session, super::short_name()),
            Some(_) => Way::Never,
        }
    }

    /// The request that this one goes on with; `None` where it is a new one. What its round before said must come back
    /// is taken out, where it is ours.
    fn comes_back(
        &self,
        caller: &identity::Caller,
        session: Option<&Conversation>,
        relay: &mut Relay,
    ) -> Result<Option<Work>, RpcError> {
        let digest = digest(relay);
        let Some(params) = relay.params.as_mut().filter(|_| session.is_none()) else {
            return Ok(None);
        };
        let now = self.inner.engine.now();
        let state = params.get::<String>("requestState");
        let state = state.and_then(|state| self.inner.states.open(&state, &caller.owner, now));
        // Another one is the server's.
        let Some(state) = state else {
            return Ok(None);
        };
        drop(params.take("requestState"));
        let answers = params.take("inputResponses");
        let answers = answers.and_then(|answers| answers.read().ok());
        let view = View::of_task(Action::Relay, &caller.owner, None);
        gate::judge(&view).map_err(gate::Refusal::reply)?;
        self.resumed(caller, &state, digest, &answers.unwrap_or_default())
    }

    fn work(
        &self,
        caller: &identity::Caller,
        session: Option<&Conversation>,
        client: &Client,
        relay: Relay,
        way: &Way,
    ) -> Work {
        let (asks, inquiries) = Inquiry::channel();
        let (events, heard) = mpsc::channel(EVENTS_MAX);
        let level = wanted_level(session, &relay);
        let digest = digest(&relay);
        let told = Telling {
            events: (relay.progress_token.is_some() || level.is_some()).then_some(events),
            level,
            asks,
            // Nothing is asked of a client that nobody can reach.
            answers: match way {
                Way::Never => Answers::default(),
                Way::InReply(_) | Way::OnStream(_) => client.answers,
            },
        };
        let (dispatch, caller) = (self.clone(), caller.clone());
        let (session, client) = (session.cloned(), client.clone());
        let reply = async move {
            let relayed = dispatch.relay(&caller, session.as_ref(), &client, relay, told);
            relayed.await.unwrap_or_else(Reply::Error)
        };
        Work::new(heard, inquiries, digest, reply)
    }

    async fn relay(
        &self,
        caller: &identity::Caller,
        session: Option<&Conversation>,
        client: &Client,
        relay: Relay,
        told: Telling,
    ) -> Result<Reply, RpcError> {
        let view = View::of_task(Action::Relay, &caller.owner, None);
        gate::judge(&view).map_err(gate::Refusal::reply)?;
        let asking = Asking {
            selection: &caller.selection,
            whose: whose(caller, session, client),
            declared: client.answers,
            // Only the stateless generation repeats such a request with the answers.
            can_repeat: session.is_none(),
            told,
            is_asked: watch::Sender::new(false),
        };
        match &relay.subject {
            Subject::List { cursor } => {
                let of = listed_by(relay.method)
                    .filter(|_| cursor.as_ref().is_none_or(String::is_empty))
                    .ok_or_else(|| RpcError::invalid_params("Unknown cursor: this list has one page"))?;
                Ok(self.relayed(asking.selection, &relay, self.list(&asking, of).await))
            }
            Subject::Resource { uri } => match (relay.method, session) {
                (method @ (RelayMethod::Subscribe | RelayMethod::Unsubscribe), Some(session)) => {
                    self.subscription(caller, session, &asking.whose, method, uri)
                        .await
                }
                (method @ (RelayMethod::Subscribe | RelayMethod::Unsubscribe), None) => {
                    Err(RpcError::method_not_found(method.as_str()))
                }
                (_, _) => self.about_resource(&asking, &relay, uri).await,
            },
            Subject::Prompt { name } => self.about_prompt(&asking, &relay, name).await,
        }
    }

    fn relayed(&self, selection: &Selection, relay: &Relay, result: Raw) -> Reply {
        Reply::Relayed {
            result,
            cache: relay
                .method
                .is_cacheable()
                .then(|| self.cache_of(selection, relay.method)),
        }
    }

    /// For how long a result may be kept whose server does not say it (B-51). A list is of several servers, so the
    /// shortest time of them counts; what a resource holds may change at any time.
    fn cache_of(&self, selection: &Selection, method: RelayMethod) -> Cache {
        match method {
            RelayMethod::ListPrompts => {
                self.cache_of_list(selection, |offers| offers.prompts, |ages| ages.prompts)
            }
            RelayMethod::ListResources => {
                self.cache_of_list(selection, |offers| offers.resources, |ages| ages.resources)
            }
            RelayMethod::ListTemplates => {
                self.cache_of_list(selection, |offers| offers.resources, |ages| ages.templates)
            }
            RelayMethod::ReadResource
            | RelayMethod::Subscribe
            | RelayMethod::Unsubscribe
            | RelayMethod::GetPrompt
            | RelayMethod::Complete => Cache {
                ttl_ms: 0,
                ..self.cache()
            },
        }
    }

    /// For how long the list of tools may be kept.
    pub(super) fn cache_of_tools(&self, selection: &Selection) -> Cache {
        self.cache_of_list(selection, |offers| offers.tools, |ages| ages.tools)
    }

    /// As [`Dispatch::cache`], for a list of which servers have a part. The list depends on who asks (B-52).
    fn cache_of_list(
        &self,
        selection: &Selection,
        has: impl Fn(Offers) -> bool,
        age: impl Fn(Ages) -> Option<u64>,
    ) -> Cache {
        let mut cache = self.cache();
        for server in self.usable(selection) {
            let Some(definitions) = server.definitions() else {
                continue;
            };
            let says_it = definitions.spoken.era == Era::Stateless;
            if says_it && has(definitions.spoken.offers()) {
                // Definitions of the last run are as old as they are.
                cache.ttl_ms = cache.ttl_ms.min(age(server.ages()).unwrap_or(0));
            }
        }
        cache
    }

    /// The lists of all servers as one.
    async fn list(&self, asking: &Asking<'_>, of: Of) -> Raw {
        let asked = self
            .defined(asking.selection)
            .filter_map(|(member, server, definitions)| {
                let whose = &asking.whose;
                answers(&definitions, of.method()).then_some(async move {
                    // Nobody needs a process for a list alone.
                    let items = match server.is_live(whose) {
                        true => tokio::time::timeout(LIST_TIME, pages(server, whose, of)).await,
                        false => Ok(None),
                    };
                    let items = items.ok().flatten();
                    (member, items.unwrap_or_else(|| definitions.items(of).to_vec()))
                })
            });
        let shared = match of {
            Of::Prompts => self.shared_prompts(),
            Of::Resources | Of::Templates => BTreeSet::new(),
        };
        let mut all = Vec::new();
        for (member, items) in join_all(asked).await {
            for Item { key, mut raw } in items {
                if of == Of::Prompts {
                    let name = listed_name(member, &key, &shared);
                    if name != key {
                        raw.set(of.key(), &name);
                    }
                }
                all.push(raw);
            }
        }
        of.page(&all, None)
    }

    /// The servers that are shown whole and that define something, in the order of the configuration.
    fn defined<'a>(
        &'a self,
        selection: &'a Selection,
    ) -> impl Iterator<Item = (&'a Member, &'a Server, Arc<Definitions>)> {
        self.members(selection).filter_map(|member| {
            let server = member.server.as_ref()?;
            Some((member, server, server.definitions()?))
        })
    }

    /// The names that prompts of several servers have.
    fn shared_prompts(&self) -> BTreeSet<String> {
        let members = self.inner.fleet.members().iter();
        let plain = members.filter(|member| member.config.prefix != Prefix::Always);
        let defined = plain.filter_map(|member| member.server.as_ref()?.definitions());
        repeated(defined.flat_map(|definitions| {
            let own = definitions.prompts.iter().map(|prompt| prompt.key.clone());
            own.collect::<BTreeSet<String>>()
        }))
    }

    /// A request about a resource, or a completion of a template's argument: to the server that lists it, then to the
    /// one whose template fits, then to each that may know it all the same, until one does. A server that does not
    /// answer is passed over; its error is told when no other server knows the resource.
    async fn about_resource(&self, asking: &Asking<'_>, relay: &Relay, uri: &str) -> Result<Reply, RpcError> {
        let mut failure = None;
        let mut unknown = RpcError::invalid_params(format!("Resource not found: {}", clean(uri, 200)));
        let is_asked = asking.is_asked.subscribe();
        let over = over(Some(FIND_TIME), Some(&is_asked));
        tokio::pin!(over);
        for candidate in self.ranked(asking.selection, &asking.whose, uri, relay.method) {
            let Candidate {
                rank, member, server, ..
            } = candidate;
            let asked = self.ask(member, server, asking, relay, relay.params.as_ref());
            let answered = match rank {
                // Found: it has all the time of a request.
                Rank::Listed => asked.await,
                Rank::Template | Rank::Unknown => tokio::select! {
                    biased;
                    answered = asked => answered,
                    () = &mut over => break,
                },
            };
            match answered {
                Ok(reply) => return Ok(reply),
                Err(error) if matches!(error.code, RESOURCE_NOT_FOUND | INVALID_PARAMS) => unknown = error,
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        Err(failure.unwrap_or(unknown))
    }

    /// The servers that may have a resource, the likeliest first.
    pub(super) fn ranked<'a>(
        &'a self,
        selection: &'a Selection,
        whose: &server::Caller,
        uri: &str,
        method: RelayMethod,
    ) -> Vec<Candidate<'a>> {
        let defined = self.defined(selection);
        let candidates = defined.filter_map(|(member, server, definitions)| {
            let rank = rank(&definitions, uri);
            // Nobody needs a process of a server for what that one cannot know.
            let may_know = rank < Rank::Unknown || !definitions.templates.is_empty() || server.is_live(whose);
            (may_know && answers(&definitions, method)).then(|| Candidate {
                rank,
                member,
                server,
                offers: definitions.spoken.offers(),
            })
        });
        let mut ranked: Vec<Candidate<'a>> = candidates.collect();
        ranked.sort_by_key(|candidate| candidate.rank);
        ranked
    }

    /// A request about a prompt, under the name that it has at its server.
    async fn about_prompt(&self, asking: &Asking<'_>, relay: &Relay, name: &str) -> Result<Reply, RpcError> {
        let shared = self.shared_prompts();
        let mut defined = self.defined(asking.selection);
        let found = defined.find_map(|(member, server, definitions)| {
            let mut bare = definitions.prompts.iter().map(|prompt| &prompt.key);
            let bare = bare.find(|bare| listed_name(member, bare, &shared) == name)?;
            Some((member, server, bare.clone()))
        });
        let Some((member, server, bare)) = found else {
            return Err(RpcError::invalid_params(format!(
                "Unknown prompt: {}",
                clean(name, 200)
            )));
        };
        let mut params = relay.params.clone().unwrap_or_default();
        if bare != name {
            if relay.method == RelayMethod::Complete {
                params.edit("ref", |prompt| prompt.set("name", &bare));
            } else {
                params.set("name", &bare);
            }
        }
        self.ask(member, server, asking, relay, Some(&params)).await
    }
}

/// What a request is, whatever its round (B-40).
fn digest(relay: &Relay) -> [u8; 32] {
    let mut params = relay.params.clone().unwrap_or_default();
    for of_the_round in ["_meta", "inputResponses", "requestState"] {
        drop(params.take(of_the_round));
    }
    let method = Raw::string(relay.method.as_str());
    let whole = Raw::parse(&format!("[{},{}]", method.text(), params.to_raw().text()));
    // One without a canonical form is told from others by the name of its state alone.
    whole
        .ok()
        .and_then(|whole| canon::digest(&whole).ok())
        .unwrap_or_default()
}

/// Whose process of a server serves this caller.
pub(super) fn whose(
    caller: &identity::Caller,
    session: Option<&Conversation>,
    client: &Client,
) -> server::Caller {
    match session {
        Some(place) => in_session(caller, &place.session),
        None => {
            let run = client.session.clone().or_else(|| caller.pipe.clone());
            server::Caller::of(&caller.owner, run, client.answers)
        }
    }
}

/// Whose process of a server serves this session.
pub(super) fn in_session(caller: &identity::Caller, session: &Session) -> server::Caller {
    let declared = session.peer().client.answers;
    server::Caller::of(&caller.owner, Some(session.key().to_owned()), declared)
}

/// The least grave log messages of a request that its client said it wants.
fn wanted_level(session: Option<&Conversation>, relay: &Relay) -> Option<LogLevel> {
    match session {
        Some(place) => place.session.level(),
        None => relay.log_level,
    }
}

/// Every page of one server's list; `None` when one could not be had.
async fn pages(server: &Server, whose: &server::Caller, of: Of) -> Option<Vec<Item>> {
    let mut items = Items::new(of);
    let add = |page: &Raw| items.add(page).map_err(|bad| bad.to_string());
    let listed = list(&(server, whose), of.method().as_str(), LIST_TIME, add).await;
    listed.ok().map(|()| items.items)
}

/// A server that may have a resource.
pub(super) struct Candidate<'a> {
    pub(super) rank: Rank,
    pub(super) member: &'a Member,
    pub(super) server: &'a Server,
    pub(super) offers: Offers,
}

/// How likely a server is to know a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// It lists it.
    Listed,
    /// A template of it fits.
    Template,
    /// It says nothing of it.
    Unknown,
}

fn rank(definitions: &Definitions, uri: &str) -> Rank {
    let mut listed = definitions.resources.iter().chain(&definitions.templates);
    let fits = |template: &Item| {
        let fixed = template.key.split('{').next().unwrap_or_default();
        !fixed.is_empty() && uri.starts_with(fixed)
    };
    if listed.any(|item| item.key == uri) {
        Rank::Listed
    } else if definitions.templates.iter().any(fits) {
        Rank::Template
    } else {
        Rank::Unknown
    }
}

/// Whether a server answers such a request.
fn answers(definitions: &Definitions, method: RelayMethod) -> bool {
    let offers = definitions.spoken.offers();
    match method {
        RelayMethod::ListResources | RelayMethod::ListTemplates | RelayMethod::ReadResource => {
            offers.resources
        }
        RelayMethod::Subscribe | RelayMethod::Unsubscribe => offers.subscribe,
        RelayMethod::ListPrompts | RelayMethod::GetPrompt => offers.prompts,
        RelayMethod::Complete => offers.completions,
    }
}

/// What a method lists, if it does.
fn listed_by(method: RelayMethod) -> Option<Of> {
    [Of::Prompts, Of::Resources, Of::Templates]
        .into_iter()
        .find(|of| of.method() == method)
}

fn listed_name(member: &Member, bare: &str, shared: &BTreeSet<String>) -> String {
    match member.config.prefix.begins(shared.contains(bare)) {
        true => full_name(&member.config.name, bare),
        false => bare.to_owned(),
    }
}
