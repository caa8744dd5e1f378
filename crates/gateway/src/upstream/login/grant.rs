//! The tokens of one address: exchanged for a code, kept, refreshed, revoked.
//!
//! A refresh is claimed in the record first, so one process refreshes at a time, and what came of it is durable before it
//! is used: a refresh token that was spent is worth nothing.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use longhaul_engine::clock;
use serde::{Deserialize, Serialize};
use url::{
    Url,
    form_urlencoded::{Serializer, byte_serialize},
};

use super::{
    Failed, Shelf, Target, Unkept,
    discovery::Found,
    egress::{Egress, Said, host},
    millis,
    register::Registration,
};

/// How long before its end a token is refreshed; of a short-lived one, a quarter of its time.
const SKEW: Duration = Duration::from_secs(30);
/// How long a process that claimed a refresh may take.
const CLAIM: Duration = Duration::from_secs(20);
/// How long to wait for another process that refreshes before looking again.
const AGAIN: Duration = Duration::from_millis(200);
/// The longest token, in bytes.
const TOKEN_MAX: usize = 16 << 10;

/// What is kept of one address.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Stored {
    pub registration: Registration,
    pub resource: String,
    pub token_endpoint: String,
    pub revocation_endpoint: Option<String>,
    /// The authorization server takes a secret in a header.
    pub takes_basic: bool,
    /// Absent when it was revoked.
    pub grant: Option<Grant>,
    /// Until when somebody refreshes it.
    pub claimed_until: Option<u64>,
}

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Grant {
    pub access: String,
    pub refresh: Option<String>,
    /// From here on it is refreshed.
    fresh_until: Option<u64>,
    pub expires_at: Option<u64>,
    pub scopes: Vec<String>,
}

#[derive(Deserialize)]
struct Tokens {
    access_token: String,
    token_type: String,
    expires_in: Option<u64>,
    refresh_token: Option<String>,
    scope: Option<String>,
}

#[derive(Deserialize)]
struct Refusal {
    error: String,
}

/// A login at its end.
pub(super) struct Ending<'a> {
    pub key: String,
    pub target: &'a Target,
    pub found: &'a Found,
    pub registration: &'a Registration,
    pub scopes: &'a [String],
    pub verifier: &'a str,
    pub code: &'a str,
}

/// The record, as its bytes and read.
pub(super) async fn read(shelf: &dyn Shelf, key: &str) -> Result<Option<(Vec<u8>, Stored)>, Unkept> {
    let body = shelf.read(key.to_owned()).await?;
    // One of another version is one of nobody.
    Ok(body.and_then(|body| {
        let stored = serde_json::from_slice(&body).ok()?;
        Some((body, stored))
    }))
}

fn encode(stored: &Stored) -> Vec<u8> {
    serde_json::to_vec(stored).expect("texts always serialize")
}

/// Exchanges a code for tokens, and keeps them.
pub(super) async fn exchange(shelf: &dyn Shelf, ending: Ending<'_>) -> Result<Grant, Failed> {
    let server = &ending.found.server;
    let methods = &server.token_endpoint_auth_methods_supported;
    let mut stored = Stored {
        registration: ending.registration.clone(),
        resource: ending.found.resource.clone(),
        token_endpoint: server.token_endpoint.clone(),
        revocation_endpoint: server.revocation_endpoint.clone(),
        takes_basic: methods.is_empty() || methods.iter().any(|method| method == "client_secret_basic"),
        grant: None,
        claimed_until: None,
    };
    let egress = Egress::new(&ending.target.url, &ending.target.settings.hosts)?;
    let form = [
        ("grant_type", "authorization_code"),
        ("code", ending.code),
        ("redirect_uri", &ending.registration.redirect_uri),
        ("code_verifier", ending.verifier),
        ("resource", &stored.resource),
    ];
    let said = ask(&egress, ending.target, &stored, &stored.token_endpoint, &form).await?;
    let grant = tokens(&said, None, ending.scopes)?;
    stored.grant = Some(grant.clone());
    let after = encode(&stored);
    loop {
        let before = shelf.read(ending.key.clone()).await?;
        if shelf
            .swap(ending.key.clone(), before, Some(after.clone()), "logged_in")
            .await?
        {
            return Ok(grant);
        }
    }
}

/// A token to send: the kept one, or what it is refreshed to.
pub(super) async fn token(
    shelf: &dyn Shelf,
    key: &str,
    target: &Target,
    refused: Option<&str>,
) -> Result<Option<String>, Failed> {
    loop {
        let Some((body, stored)) = read(shelf, key).await? else {
            return Ok(None);
        };
        let Some(grant) = &stored.grant else {
            return Ok(None);
        };
        let now = clock::now().0;
        let is_refused = refused == Some(&*grant.access);
        if !is_refused && grant.fresh_until.is_none_or(|until| now < until) {
            return Ok(Some(grant.access.clone()));
        }
        let Some(refresh) = &grant.refresh else {
            let is_over = is_refused || grant.expires_at.is_some_and(|at| at <= now);
            return Ok((!is_over).then(|| grant.access.clone()));
        };
        if stored.claimed_until.is_some_and(|until| now < until) {
            tokio::time::sleep(AGAIN).await;
            continue;
        }
        let claimed = Stored {
            claimed_until: Some(now + millis(CLAIM)),
            ..stored.clone()
        };
        let claim = encode(&claimed);
        if !shelf
            .swap(
                key.to_owned(),
                Some(body),
                Some(claim.clone()),
                "token_refreshing",
            )
            .await?
        {
            continue;
        }
        return refreshed(shelf, key, target, (claim, stored.clone()), (refresh, is_refused)).await;
    }
}

async fn refreshed(
    shelf: &dyn Shelf,
    key: &str,
    target: &Target,
    (claim, mut stored): (Vec<u8>, Stored),
    (refresh, is_refused): (&str, bool),
) -> Result<Option<String>, Failed> {
    let egress = Egress::new(&target.url, &target.settings.hosts)?;
    let form = [
        ("grant_type", "refresh_token"),
        ("refresh_token", refresh),
        ("resource", &stored.resource),
    ];
    let said = ask(&egress, target, &stored, &stored.token_endpoint, &form).await;
    let (what, failed) = match said {
        Ok(said) if is_revoked(&said) => {
            stored.grant = None;
            tracing::warn!(
                host = host(&target.url),
                "a login was revoked: `longhaul login` makes a new one"
            );
            ("login_revoked", None)
        }
        Ok(said) => {
            let scopes = stored.grant.as_ref().map(|grant| grant.scopes.clone());
            let scopes = scopes.unwrap_or_default();
            match tokens(&said, Some(refresh), &scopes) {
                Ok(grant) => {
                    stored.grant = Some(grant);
                    ("token_refreshed", None)
                }
                Err(error) => ("token_not_refreshed", Some(error)),
            }
        }
        Err(error) => ("token_not_refreshed", Some(error)),
    };
    let is_kept = shelf
        .swap(key.to_owned(), Some(claim), Some(encode(&stored)), what)
        .await?;
    if !is_kept {
        // Somebody logged in or out meanwhile: what they did counts.
        let now = read(shelf, key).await?.and_then(|(_, stored)| stored.grant);
        return Ok(now.map(|grant| grant.access));
    }
    match failed {
        // What is not over yet still serves.
        Some(error) => {
            let alive = |grant: &Grant| grant.expires_at.is_none_or(|at| clock::now().0 < at);
            match stored.grant.filter(|grant| !is_refused && alive(grant)) {
                Some(grant) => Ok(Some(grant.access)),
                None => Err(error),
            }
        }
        None => Ok(stored.grant.map(|grant| grant.access)),
    }
}

/// Has tokens revoked (RFC 7009); whether they are.
pub(super) async fn revoke(egress: &Egress, target: &Target, stored: &Stored, grant: &Grant) -> bool {
    let Some(endpoint) = &stored.revocation_endpoint else {
        return false;
    };
    let kinds = [
        ("refresh_token", grant.refresh.as_deref()),
        ("access_token", Some(&*grant.access)),
    ];
    let mut all = true;
    for (hint, token) in kinds {
        let Some(token) = token else { continue };
        let form = [("token", token), ("token_type_hint", hint)];
        let said = ask(egress, target, stored, endpoint, &form).await;
        // Some revoke no access tokens, which are over soon.
        all &= hint == "access_token" || said.is_ok_and(|said| said.status.is_success());
    }
    all
}

/// Sends a form as the client that Longhaul is there.
async fn ask(
    egress: &Egress,
    target: &Target,
    stored: &Stored,
    endpoint: &str,
    form: &[(&str, &str)],
) -> Result<Said, Failed> {
    let endpoint: Url = egress.check(endpoint)?;
    let registration = &stored.registration;
    let own = registration.client_secret.as_ref();
    let secret = own.or(target
        .client_secret
        .as_ref()
        .filter(|_| target.settings.client_id.is_some()));
    let mut fields: Vec<(&str, &str)> = form.to_vec();
    let mut request = egress
        .post(&endpoint)
        .header("content-type", "application/x-www-form-urlencoded");
    match secret {
        Some(secret) if stored.takes_basic => {
            // RFC 6749, 2.3.1: both are encoded as in a form.
            let pair = [&registration.client_id, secret]
                .map(|part| byte_serialize(part.as_bytes()).collect::<String>());
            let mut value = format!("Basic {}", BASE64_STANDARD.encode(pair.join(":")))
                .parse::<reqwest::header::HeaderValue>()
                .expect("base64 is visible ASCII");
            value.set_sensitive(true);
            request = request.header("authorization", value);
        }
        Some(secret) => fields.extend([("client_id", &*registration.client_id), ("client_secret", secret)]),
        None => fields.push(("client_id", &registration.client_id)),
    }
    let body = Serializer::new(String::new()).extend_pairs(fields).finish();
    Ok(egress.said(&endpoint, request.body(body)).await?)
}

/// The tokens of a reply. Without a new refresh token the old one goes on.
fn tokens(said: &Said, refresh: Option<&str>, scopes: &[String]) -> Result<Grant, Failed> {
    let refused = |why: String| Failed::Refused {
        host: said.host.clone(),
        why,
    };
    if !said.status.is_success() {
        return Err(refused(why(said)));
    }
    let tokens: Tokens = said.json()?;
    let fits = |token: &str| {
        (1..=TOKEN_MAX).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic())
    };
    if !tokens.token_type.eq_ignore_ascii_case("bearer") {
        return Err(refused("its token is none that a header can carry".to_owned()));
    }
    let refresh = tokens.refresh_token.or_else(|| refresh.map(str::to_owned));
    if !fits(&tokens.access_token) || refresh.as_ref().is_some_and(|refresh| !fits(refresh)) {
        return Err(refused("its token holds what no token may".to_owned()));
    }
    let now = clock::now().0;
    let life = tokens.expires_in.map(|seconds| seconds.saturating_mul(1_000));
    Ok(Grant {
        access: tokens.access_token,
        refresh,
        fresh_until: life.map(|life| now.saturating_add(life - millis(SKEW).min(life / 4))),
        expires_at: life.map(|life| now.saturating_add(life)),
        scopes: match tokens.scope {
            Some(scope) => scope.split_ascii_whitespace().map(str::to_owned).collect(),
            None => scopes.to_vec(),
        },
    })
}

/// The refresh token is worth nothing any more.
fn is_revoked(said: &Said) -> bool {
    let refusal = said.json::<Refusal>();
    !said.status.is_success()
        && refusal.is_ok_and(|refusal| matches!(&*refusal.error, "invalid_grant" | "invalid_client"))
}

/// Why a reply is a no, by its code alone: what else it says may repeat a secret.
pub(super) fn why(said: &Said) -> String {
    match said.json::<Refusal>() {
        Ok(refusal) => format!("`{}`", longhaul_mcp::clean(&refusal.error, 60)),
        Err(_) => format!("HTTP status {}", said.status),
    }
}
