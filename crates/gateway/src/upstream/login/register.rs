//! As whom Longhaul comes to an authorization server: a client that the operator registered, one with a document of its
//! own, or one that is registered now, in this order.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    Failed, Target,
    discovery::Found,
    egress::{Egress, host},
    grant,
};

/// A registered client. It is kept for one issuer and one way back; with another, there is another one (B-58).
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Registration {
    pub issuer: String,
    pub client_id: String,
    /// The secret of a client that was registered by us. The operator's is looked up each time.
    pub client_secret: Option<String>,
    pub redirect_uri: String,
}

#[derive(Deserialize)]
struct Registered {
    client_id: String,
    client_secret: Option<String>,
}

pub(super) async fn registration(
    egress: &Egress,
    target: &Target,
    found: &Found,
    redirect_uri: String,
    scopes: &[String],
    known: Option<Registration>,
) -> Result<Registration, Failed> {
    let issuer = found.server.issuer.clone();
    let as_client = |client_id: String, redirect_uri: String| Registration {
        issuer: issuer.clone(),
        client_id,
        client_secret: None,
        redirect_uri,
    };
    if let Some(given) = &target.settings.client_id {
        return Ok(as_client(given.clone(), redirect_uri));
    }
    if let Some(document) = &target.settings.client_document
        && found.server.client_id_metadata_document_supported
    {
        return Ok(as_client(document.clone(), redirect_uri));
    }
    if let Some(known) = known
        && known.issuer == issuer
        && known.redirect_uri == redirect_uri
    {
        return Ok(known);
    }
    let Some(endpoint) = &found.server.registration_endpoint else {
        return Err(Failed::NoRegistration(issuer));
    };
    let endpoint = egress.check(endpoint)?;
    let wanted = json!({
        "client_name": "Longhaul",
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "application_type": "native",
        "token_endpoint_auth_method": "none",
        "scope": scopes.join(" "),
    });
    let request = egress
        .post(&endpoint)
        .header("content-type", "application/json")
        .body(wanted.to_string());
    let said = egress.said(&endpoint, request).await?;
    if !said.status.is_success() {
        return Err(Failed::Refused {
            host: host(&endpoint),
            why: format!("it does not register Longhaul as a client: {}", grant::why(&said)),
        });
    }
    let registered: Registered = said.json()?;
    Ok(Registration {
        issuer,
        client_id: registered.client_id,
        client_secret: registered.client_secret,
        redirect_uri,
    })
}
