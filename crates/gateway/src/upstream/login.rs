//! OAuth towards the servers behind this one: how somebody logs in at one, and the tokens that its requests carry then.
//!
//! `fleet` makes one [`Logins`] for all servers; `place` takes tokens of it, the local API begins logins, and the
//! browser's callback ends them. Tokens are kept by the address of the server they are for, in a record that the store
//! encrypts. No token, code, verifier or secret is logged, put into an error, or shown.

mod callback;
mod discovery;
mod egress;
mod grant;
mod register;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use futures_util::future::BoxFuture;
use longhaul_core::{Millis, hex};
use longhaul_engine::clock;
use sha2::{Digest as _, Sha256};
use url::Url;

pub use self::{callback::router, egress::Trouble};
use self::{
    discovery::Found,
    egress::Egress,
    grant::{Ending, Stored},
    register::Registration,
};
use crate::{command, config::Login};

/// How long a browser may take to come back.
pub const TIME: Duration = Duration::from_secs(600);
/// The most logins that are begun at the same time.
pub const BEGUN_MAX: usize = 32;

/// Where the records are. The audit gets `what`, and never a body.
pub trait Shelf: Send + Sync {
    /// The record's body.
    fn read(&self, id: String) -> BoxFuture<'_, Result<Option<Vec<u8>>, Unkept>>;

    /// Writes the record, or deletes it, where it is still as it was before; whether it was. It is durable then.
    fn swap(
        &self,
        id: String,
        before: Option<Vec<u8>>,
        after: Option<Vec<u8>>,
        what: &'static str,
    ) -> BoxFuture<'_, Result<bool, Unkept>>;
}

/// The records cannot be read or written now.
#[derive(Debug, thiserror::Error)]
#[error("the database does not answer")]
pub struct Unkept;

/// Why somebody cannot log in, or not log out. No secret stands in it.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// An address that it goes through.
    #[error(transparent)]
    Trouble(#[from] Trouble),
    /// The store.
    #[error(transparent)]
    Unkept(#[from] Unkept),
    /// The server has no address.
    #[error("it is a program of this machine, which nobody logs in at")]
    NoAddress,
    /// The authorization server takes no unknown client.
    #[error(
        "`{0}` registers no clients by itself: register one there and set `client_id` in `[servers.NAME.oauth]`"
    )]
    NoRegistration(String),
    /// The authorization server said no.
    #[error("`{host}` refused: {why}")]
    Refused {
        /// Its host.
        host: String,
        /// What it said.
        why: String,
    },
    /// Too many are begun.
    #[error("{BEGUN_MAX} logins are begun already; end one in the browser, or try again in 10 minutes")]
    TooMany,
    /// The browser could not come back.
    #[error("cannot listen for the browser's return: {0}")]
    NoListener(String),
}

/// A server that somebody logs in at.
#[derive(Clone)]
pub struct Target {
    /// Its address.
    pub url: Url,
    /// What is said of it.
    pub settings: Login,
    /// The secret of the registered client, looked up.
    pub client_secret: Option<String>,
}

/// A login that was begun.
pub struct Begun {
    /// Names it; it is no secret.
    pub id: String,
    /// What to open in a browser.
    pub link: String,
    /// The same, as a browser is started with it: works once.
    pub opened: String,
    /// Where the person logs in.
    pub issuer: String,
}

/// How far a login is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The browser did not come back yet.
    Waiting,
    /// Tokens are kept.
    Done {
        /// Who gave them.
        issuer: String,
        /// When the access ends, unless it is refreshed.
        expires_at: Option<Millis>,
        /// It is refreshed.
        is_refreshed: bool,
        /// What it is for.
        url: Url,
    },
    /// It came to nothing.
    Failed(String),
}

/// All logins. Cheap to clone.
#[derive(Clone)]
pub struct Logins {
    inner: Arc<Inner>,
}

struct Inner {
    shelf: Arc<dyn Shelf>,
    /// Where this server listens.
    address: Mutex<Option<SocketAddr>>,
    begun: Mutex<Begins>,
    /// One token is refreshed at a time.
    refreshing: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

#[derive(Default)]
struct Begins {
    /// By their state, each used once.
    by_state: BTreeMap<String, Pending>,
    /// Where a browser is sent that comes with this, once.
    entrances: BTreeMap<String, (Millis, String)>,
    progress: BTreeMap<String, (Millis, Progress)>,
}

/// A login whose browser has not come back.
struct Pending {
    id: String,
    since: Millis,
    verifier: String,
    found: Found,
    registration: Registration,
    scopes: Vec<String>,
    target: Target,
}

impl Logins {
    /// Logins whose records are there.
    pub(crate) fn new(shelf: Arc<dyn Shelf>) -> Logins {
        Logins {
            inner: Arc::new(Inner {
                shelf,
                address: Mutex::default(),
                begun: Mutex::default(),
                refreshing: Mutex::default(),
            }),
        }
    }

    /// The callback is served at this address.
    pub(crate) fn served_at(&self, address: SocketAddr) {
        *self.inner.address.lock().unwrap_or_else(PoisonError::into_inner) = Some(address);
    }

    fn begun(&self) -> MutexGuard<'_, Begins> {
        // Invariant: what is under this lock is whole at each step, so a poisoned one is used on.
        let mut begun = self.inner.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock::now();
        let is_live = |since: Millis| now.since(since).0 < millis(TIME);
        begun.by_state.retain(|_, pending| is_live(pending.since));
        begun.entrances.retain(|_, (since, _)| is_live(*since));
        for (since, progress) in begun.progress.values_mut() {
            if *progress == Progress::Waiting && !is_live(*since) {
                *progress = Progress::Failed("the browser did not come back within 10 minutes".to_owned());
            }
        }
        begun
            .progress
            .retain(|_, (since, _)| now.since(*since).0 < 2 * millis(TIME));
        begun
    }

    /// Begins a login: finds the authorization server, registers with it where it must, and says what to open.
    ///
    /// # Errors
    /// [`Failed`]; nothing is kept then.
    pub async fn begin(&self, target: Target) -> Result<Begun, Failed> {
        if self.begun().by_state.len() >= BEGUN_MAX {
            return Err(Failed::TooMany);
        }
        let egress = Egress::new(&target.url, &target.settings.hosts)?;
        let found = discovery::discover(&egress, &target.url).await?;
        let redirect = self.redirect(&target.settings).await?;
        let key = key(&target.url);
        let stored = grant::read(&*self.inner.shelf, &key).await?;
        let scopes = scopes(&target.settings, &found, stored.as_ref());
        let known = stored.map(|(_, stored)| stored.registration);
        let registration = register::registration(&egress, &target, &found, redirect, &scopes, known).await?;
        let (state, id, verifier) = (random::<32>(), random::<12>(), random::<48>());
        let link = authorize(&found, &registration, &scopes, &state, &verifier);
        let issuer = found.server.issuer.clone();
        // What a browser is started with can be read by every user of this machine. This works once, and the state that
        // it leads to is not in it.
        let entrance = random::<24>();
        let mut opened = Url::parse(&registration.redirect_uri).expect("it was just written");
        opened.set_path(callback::ENTRANCE);
        opened.query_pairs_mut().append_pair("login", &entrance);
        let pending = Pending {
            id: id.clone(),
            since: clock::now(),
            verifier,
            found,
            registration,
            scopes,
            target,
        };
        let mut begun = self.begun();
        begun
            .progress
            .insert(id.clone(), (pending.since, Progress::Waiting));
        begun.entrances.insert(entrance, (pending.since, link.clone()));
        begun.by_state.insert(state, pending);
        Ok(Begun {
            id,
            link,
            opened: opened.into(),
            issuer,
        })
    }

    /// Where a browser is sent that was started for a login.
    pub(crate) fn entrance(&self, entrance: &str) -> Option<String> {
        self.begun().entrances.remove(entrance).map(|(_, link)| link)
    }

    /// How far a login is; `None` where there is no such one.
    pub fn progress(&self, id: &str) -> Option<Progress> {
        self.begun()
            .progress
            .get(id)
            .map(|(_, progress)| progress.clone())
    }

    /// Where the browser comes back to. Without an address of the server's own, one is served for this login.
    async fn redirect(&self, settings: &Login) -> Result<String, Failed> {
        let served = *self.inner.address.lock().unwrap_or_else(PoisonError::into_inner);
        let address = match served {
            Some(address) => address,
            None => callback::serve_once(self.clone()).await?,
        };
        let host = match (settings.callback_host, address) {
            (crate::config::CallbackHost::Name, _) => "localhost".to_owned(),
            (crate::config::CallbackHost::Address, SocketAddr::V4(_)) => "127.0.0.1".to_owned(),
            (crate::config::CallbackHost::Address, SocketAddr::V6(_)) => "[::1]".to_owned(),
        };
        Ok(format!("http://{host}:{}{}", address.port(), callback::PATH))
    }

    /// The token for requests to this address, refreshed where it must be; another one than `refused`. `None` where
    /// nobody is logged in there.
    pub async fn token(
        &self,
        url: &Url,
        settings: &Login,
        secret: Option<String>,
        refused: Option<&str>,
    ) -> Option<String> {
        let key = key(url);
        let one_at_a_time = {
            let mut all = self
                .inner
                .refreshing
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            Arc::clone(all.entry(key.clone()).or_default())
        };
        let _one_at_a_time = one_at_a_time.lock().await;
        let target = Target {
            url: url.clone(),
            settings: settings.clone(),
            client_secret: secret,
        };
        let found = grant::token(&*self.inner.shelf, &key, &target, refused);
        found.await.unwrap_or_else(|error| {
            let why = command::causes(&error);
            tracing::warn!(host = egress::host(url), why, "a token could not be had");
            None
        })
    }

    /// Forgets the tokens of an address, and has them revoked where that can be. Whether there were some, and whether they
    /// are revoked.
    ///
    /// # Errors
    /// [`Failed::Unkept`].
    pub async fn log_out(&self, target: &Target) -> Result<Option<bool>, Failed> {
        let shelf = &*self.inner.shelf;
        let key = key(&target.url);
        // Somebody may refresh it meanwhile.
        while let Some((body, stored)) = grant::read(shelf, &key).await? {
            if !shelf.swap(key.clone(), Some(body), None, "logged_out").await? {
                continue;
            }
            let Some(grant) = &stored.grant else {
                return Ok(None);
            };
            let egress = Egress::new(&target.url, &target.settings.hosts)?;
            let revoked = grant::revoke(&egress, target, &stored, grant).await;
            return Ok(Some(revoked));
        }
        Ok(None)
    }

    /// The browser came back. What it is told, and whether it is good news.
    pub(crate) async fn come_back(&self, came: callback::Came) -> Result<(), String> {
        let pending = came
            .state
            .as_ref()
            .and_then(|state| self.begun().by_state.remove(state));
        // Whether it was used, is too old, or never was one is not told apart.
        let Some(pending) = pending else {
            return Err(
                "No login waits for this: it is over, it is older than ten minutes, or Longhaul was started \
                        anew since it began. Nothing was changed. Run `longhaul login` again."
                    .to_owned(),
            );
        };
        let (id, since) = (pending.id.clone(), pending.since);
        let ended = self.end(pending, came).await;
        let (progress, told) = match ended {
            Ok(progress) => (progress, Ok(())),
            Err(why) => (
                Progress::Failed(why.clone()),
                Err(format!(
                    "You are not logged in: {why}. Run `longhaul login` again."
                )),
            ),
        };
        self.begun().progress.insert(id, (since, progress));
        told
    }

    async fn end(&self, pending: Pending, came: callback::Came) -> Result<Progress, String> {
        let issuer = &pending.found.server.issuer;
        // B-58: a reply of another issuer is one that somebody mixed up.
        let must_name = pending
            .found
            .server
            .authorization_response_iss_parameter_supported;
        if came.iss.as_ref().map_or(must_name, |named| named != issuer) {
            return Err("the reply does not come from the place where the login began".to_owned());
        }
        if let Some(error) = &came.error {
            return Err(format!(
                "the authorization server said `{}`",
                longhaul_mcp::clean(error, 100)
            ));
        }
        let code = came.code.ok_or_else(|| "the reply has no code".to_owned())?;
        let ended = grant::exchange(
            &*self.inner.shelf,
            Ending {
                key: key(&pending.target.url),
                target: &pending.target,
                found: &pending.found,
                registration: &pending.registration,
                scopes: &pending.scopes,
                verifier: &pending.verifier,
                code: &code,
            },
        );
        let grant = ended.await.map_err(|error| command::causes(&error))?;
        Ok(Progress::Done {
            issuer: issuer.clone(),
            expires_at: grant.expires_at.map(Millis),
            is_refreshed: grant.refresh.is_some(),
            url: pending.target.url.clone(),
        })
    }
}

/// The scopes to ask for: what the operator says, or what the server wants; and what was had before (B-58).
fn scopes(settings: &Login, found: &Found, stored: Option<&(Vec<u8>, Stored)>) -> Vec<String> {
    let mut scopes = match settings.scopes.is_empty() {
        true => found.scopes.clone(),
        false => settings.scopes.clone(),
    };
    let stored = stored
        .map(|(_, stored)| stored)
        .filter(|stored| stored.registration.issuer == found.server.issuer);
    let before = stored
        .and_then(|stored| stored.grant.as_ref())
        .map(|grant| grant.scopes.clone());
    let offline = found
        .server
        .scopes_supported
        .iter()
        .filter(|scope| *scope == OFFLINE);
    for scope in before.into_iter().flatten().chain(offline.cloned()) {
        if !scopes.contains(&scope) {
            scopes.push(scope);
        }
    }
    scopes
}

/// The scope that brings a refresh token at many authorization servers.
const OFFLINE: &str = "offline_access";

/// What the person opens.
fn authorize(
    found: &Found,
    registration: &Registration,
    scopes: &[String],
    state: &str,
    verifier: &str,
) -> String {
    let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()));
    // It was checked when it was found.
    let mut url = Url::parse(&found.server.authorization_endpoint).expect("a checked URL");
    let mut query = url.query_pairs_mut();
    query
        .append_pair("response_type", "code")
        .append_pair("client_id", &registration.client_id)
        .append_pair("redirect_uri", &registration.redirect_uri)
        .append_pair("state", state)
        .append_pair("code_challenge", &challenge)
        .append_pair("code_challenge_method", "S256")
        .append_pair("resource", &found.resource);
    if !scopes.is_empty() {
        query.append_pair("scope", &scopes.join(" "));
    }
    if scopes.iter().any(|scope| scope == OFFLINE) {
        query.append_pair("prompt", "consent");
    }
    drop(query);
    url.into()
}

/// The address as a resource (RFC 8707): without a fragment, and without a slash alone.
fn canonical(url: &Url) -> String {
    let mut url = url.clone();
    url.set_fragment(None);
    let text = String::from(url);
    text.strip_suffix('/').map(str::to_owned).unwrap_or(text)
}

/// The id of an address's record. The address itself may hold a key.
fn key(url: &Url) -> String {
    hex(&Sha256::digest(canonical(url).as_bytes())[..16])
}

fn random<const N: usize>() -> String {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
