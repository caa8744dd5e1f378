//! Finds the authorization server of an MCP server, and what it can do (A-82, A-86, B-58).

use reqwest::header::WWW_AUTHENTICATE;
use serde::{Deserialize, Serialize};
use url::Url;

use super::egress::{Egress, Trouble, host};

/// Where a login goes.
pub(super) struct Found {
    /// The resource that tokens are asked for (RFC 8707).
    pub resource: String,
    /// The scopes that the server wants, if it says any.
    pub scopes: Vec<String>,
    /// The authorization server.
    pub server: Metadata,
}

/// What an authorization server says of itself (RFC 8414).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Metadata {
    pub issuer: String,
    pub authorization_endpoint: String,
    pub token_endpoint: String,
    pub registration_endpoint: Option<String>,
    pub revocation_endpoint: Option<String>,
    #[serde(default)]
    pub code_challenge_methods_supported: Vec<String>,
    #[serde(default)]
    pub token_endpoint_auth_methods_supported: Vec<String>,
    #[serde(default)]
    pub scopes_supported: Vec<String>,
    #[serde(default)]
    pub authorization_response_iss_parameter_supported: bool,
    #[serde(default)]
    pub client_id_metadata_document_supported: bool,
}

/// What a resource says of itself (RFC 9728).
#[derive(Deserialize)]
struct Resource {
    resource: String,
    #[serde(default)]
    authorization_servers: Vec<String>,
    #[serde(default)]
    scopes_supported: Vec<String>,
}

/// What a server says when it lets nobody in.
#[derive(Default)]
struct Challenge {
    metadata: Option<String>,
    scope: Option<String>,
}

pub(super) async fn discover(egress: &Egress, server: &Url) -> Result<Found, Trouble> {
    let challenge = challenge(egress, server).await?;
    let resource = resource(egress, server, challenge.metadata.as_deref()).await?;
    let (resource, issuer, listed) = match resource {
        Some(found) => {
            let issuer = found.authorization_servers.first().cloned();
            let issuer = issuer.ok_or_else(|| unfit(server, "it names no authorization server"))?;
            (found.resource, issuer, found.scopes_supported)
        }
        // Servers of before RFC 9728 are their own.
        None => {
            let origin = server.origin().ascii_serialization();
            (super::canonical(server), origin, Vec::new())
        }
    };
    // A-83: what the challenge says comes first.
    let scopes = match challenge.scope {
        Some(scope) => scope.split_ascii_whitespace().map(str::to_owned).collect(),
        None => listed,
    };
    let server = metadata(egress, &issuer).await?;
    Ok(Found {
        resource,
        scopes,
        server,
    })
}

/// Asks as somebody whom it does not know.
async fn challenge(egress: &Egress, server: &Url) -> Result<Challenge, Trouble> {
    let hello = serde_json::json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    let request = egress
        .post(server)
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .body(hello.to_string());
    let response = egress.send(server, request).await?;
    let values = response.headers().get_all(WWW_AUTHENTICATE);
    let mut found = Challenge::default();
    for value in values.iter().filter_map(|value| value.to_str().ok()) {
        found.metadata = found.metadata.or_else(|| parameter(value, "resource_metadata"));
        found.scope = found.scope.or_else(|| parameter(value, "scope"));
    }
    Ok(found)
}

/// A parameter of a challenge, quoted or not.
fn parameter(challenge: &str, name: &str) -> Option<String> {
    let mut rest = challenge;
    loop {
        let at = rest.find(name)?;
        let starts = rest[..at].ends_with([' ', ',', '\t']);
        rest = &rest[at + name.len()..];
        let Some(value) = rest.trim_start().strip_prefix('=').filter(|_| starts) else {
            continue;
        };
        let value = value.trim_start();
        let value = match value.strip_prefix('"') {
            Some(quoted) => quoted.split('"').next(),
            None => value.split([',', ' ']).next(),
        };
        return value.filter(|value| !value.is_empty()).map(str::to_owned);
    }
}

/// What the server's resource metadata says, if there is some.
async fn resource(egress: &Egress, server: &Url, told: Option<&str>) -> Result<Option<Resource>, Trouble> {
    let known = "/.well-known/oauth-protected-resource";
    let at = |path: String| {
        let mut url = server.clone();
        url.set_path(&path);
        url.set_query(None);
        url
    };
    let places = match told {
        Some(told) => vec![egress.check(told)?],
        None => vec![
            at(format!("{known}{}", server.path().trim_end_matches('/'))),
            at(known.to_owned()),
        ],
    };
    for place in places {
        let said = egress.said(&place, egress.get(&place)).await?;
        if !said.status.is_success() {
            continue;
        }
        let found: Resource = said.json()?;
        let own = Url::parse(&found.resource).map_err(|_| unfit(&place, "its `resource` is no URL"))?;
        // A token for one server must not be asked for by another.
        if own.origin() != server.origin() || !is_below(server.path(), own.path()) {
            return Err(unfit(&place, "its `resource` is not the server's address"));
        }
        return Ok(Some(found));
    }
    match told {
        Some(_) => Err(unfit(server, "the resource metadata that it names is not there")),
        None => Ok(None),
    }
}

fn is_below(path: &str, above: &str) -> bool {
    let above = above.trim_end_matches('/');
    let rest = path.strip_prefix(above);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The metadata of an issuer, from the places in their order (A-86).
pub(super) async fn metadata(egress: &Egress, issuer: &str) -> Result<Metadata, Trouble> {
    let base = egress.check(issuer)?;
    let path = base.path().trim_end_matches('/').to_owned();
    let (oauth, openid) = (
        "/.well-known/oauth-authorization-server",
        "/.well-known/openid-configuration",
    );
    let mut paths = vec![format!("{oauth}{path}"), format!("{openid}{path}")];
    if !path.is_empty() {
        paths.push(format!("{path}{openid}"));
    }
    for path in paths {
        let mut place = base.clone();
        place.set_path(&path);
        place.set_query(None);
        let said = egress.said(&place, egress.get(&place)).await?;
        if !said.status.is_success() {
            continue;
        }
        let found: Metadata = said.json()?;
        checked(egress, &base, issuer, &found)?;
        return Ok(found);
    }
    Err(unfit(&base, "it has no metadata of an authorization server"))
}

fn checked(egress: &Egress, base: &Url, issuer: &str, found: &Metadata) -> Result<(), Trouble> {
    // B-58. An origin and the same with a slash are one issuer, however it was named.
    if found.issuer.trim_end_matches('/') != issuer.trim_end_matches('/') {
        return Err(unfit(base, "its metadata is of another issuer"));
    }
    if !found
        .code_challenge_methods_supported
        .iter()
        .any(|method| method == "S256")
    {
        return Err(unfit(
            base,
            "it does not say that it checks PKCE (`S256`), without which a login can be stolen",
        ));
    }
    let more = found
        .registration_endpoint
        .iter()
        .chain(&found.revocation_endpoint);
    for endpoint in [&found.authorization_endpoint, &found.token_endpoint]
        .into_iter()
        .chain(more)
    {
        egress.check(endpoint)?;
    }
    Ok(())
}

fn unfit(url: &Url, why: &str) -> Trouble {
    Trouble::Unfit {
        host: host(url),
        why: why.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_82_the_challenge_is_read_however_it_is_written() {
        let challenge =
            r#"Bearer error="invalid_token", resource_metadata="https://a.example/x", scope="a b""#;
        assert_eq!(
            parameter(challenge, "resource_metadata").as_deref(),
            Some("https://a.example/x")
        );
        assert_eq!(parameter(challenge, "scope").as_deref(), Some("a b"));
        assert_eq!(parameter("Bearer scope=a, x=y", "scope").as_deref(), Some("a"));
        assert_eq!(parameter("Bearer xscope=\"b\"", "scope"), None);
        assert_eq!(parameter("Basic realm=\"x\"", "scope"), None);
    }

    #[test]
    fn a_resource_covers_what_is_below_it_and_nothing_beside_it() {
        assert!(is_below("/mcp", "/mcp") && is_below("/mcp/a", "/mcp/") && is_below("/mcp", "/"));
        assert!(!is_below("/mcpx", "/mcp") && !is_below("/", "/mcp"));
    }
}
