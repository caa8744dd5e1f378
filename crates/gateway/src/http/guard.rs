//! Host and Origin: what keeps a web page in the user's browser away from a loopback server (S4, B-19, K-12).

use std::net::SocketAddr;

use axum::{
    http::{HeaderMap, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};

/// The names under which this server may be reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    hosts: Vec<String>,
    origins: Vec<String>,
}

/// A request that comes from where none may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Host,
    Origin,
    CrossSite,
}

impl Allowed {
    /// The loopback names of this address, and what the config adds (`server.allowed_hosts`, `server.allowed_origins`).
    pub fn new(bound: SocketAddr, hosts: &[String], origins: &[String]) -> Allowed {
        let port = bound.port();
        let mut names: Vec<String> = ["localhost", "127.0.0.1", "[::1]"]
            .iter()
            .map(|name| format!("{name}:{port}"))
            .collect();
        names.push(bound.to_string());
        if port == 80 {
            names.extend(["localhost", "127.0.0.1", "[::1]"].map(str::to_owned));
        }
        let mut allowed: Vec<String> = names.iter().map(|name| format!("http://{name}")).collect();
        allowed.extend(origins.iter().map(|origin| origin.to_ascii_lowercase()));
        names.extend(hosts.iter().map(|host| host.to_ascii_lowercase()));
        Allowed {
            hosts: names,
            origins: allowed,
        }
    }

    /// The authorities under which this server may be reached.
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// Both headers are checked apart: each alone has been the hole of some server.
    pub(super) fn check(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), Refusal> {
        let one = |name: header::HeaderName| {
            let mut values = headers.get_all(name).iter();
            match (values.next(), values.next()) {
                (None, _) => Some(None),
                (Some(value), None) => value.to_str().ok().map(|text| Some(text.to_ascii_lowercase())),
                (Some(_), Some(_)) => None,
            }
        };
        let host = match one(header::HOST) {
            Some(Some(host)) => Some(host),
            Some(None) => uri
                .authority()
                .map(|authority| authority.as_str().to_ascii_lowercase()),
            None => return Err(Refusal::Host),
        };
        if !host.is_some_and(|host| self.hosts.contains(&host)) {
            return Err(Refusal::Host);
        }
        match one(header::ORIGIN) {
            Some(None) => {}
            Some(Some(origin)) if self.origins.contains(&origin) => {}
            Some(Some(_)) | None => return Err(Refusal::Origin),
        }
        let site = headers.get("sec-fetch-site").map(|value| value.as_bytes());
        match site {
            None | Some(b"same-origin" | b"none") => Ok(()),
            Some(_) => Err(Refusal::CrossSite),
        }
    }
}

impl IntoResponse for Refusal {
    /// Names the setting that would let the request in (G-46).
    fn into_response(self) -> Response {
        let line = match self {
            Refusal::Host => {
                "the Host of this request is not one of this server's: add it to `server.allowed_hosts`\n"
            }
            Refusal::Origin => {
                "the Origin of this request may not call this server: add it to `server.allowed_origins`\n"
            }
            Refusal::CrossSite => "this request comes from another site\n",
        };
        (
            StatusCode::FORBIDDEN,
            [(header::CONTENT_TYPE, "text/plain; charset=utf-8")],
            line,
        )
            .into_response()
    }
}
