//! The way out to authorization servers: to public https addresses, and to those that the operator's own settings name.
//!
//! Used by all of `login`. Every address that a server or its metadata names goes through [`Egress::check`], and every
//! name is resolved once, checked, and connected to as checked (S7). No redirect is followed, no proxy used, no body read
//! without a limit.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use reqwest::{
    Client, RequestBuilder, Response, StatusCode,
    dns::{Addrs, Name, Resolve, Resolving},
    redirect::Policy,
};
use url::{Host, Url};

use super::super::http::causes;

/// How long one exchange may take.
pub(super) const TIME: Duration = Duration::from_secs(15);
/// The most that is read of one reply, in bytes.
pub(super) const BODY_MAX: usize = 256 << 10;

/// Why an address is not spoken to, or what went wrong with it. No secret stands in it.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// It is none that may be spoken to.
    #[error("`{0}` is not spoken to: only public https addresses are, and hosts that `oauth.hosts` names")]
    Forbidden(String),
    /// It did not answer.
    #[error("`{host}` does not answer: {why}")]
    Unreached {
        /// The host.
        host: String,
        /// Why.
        why: String,
    },
    /// What it says cannot be read.
    #[error("`{host}` gives no fitting reply: {why}")]
    Unfit {
        /// The host.
        host: String,
        /// Why.
        why: String,
    },
}

/// What may be reached for one server.
#[derive(Clone)]
pub(super) struct Egress {
    client: Client,
    rule: Arc<Rule>,
}

/// Where its requests may go.
struct Rule {
    /// Hosts that the operator named: the server's own, and `oauth.hosts`.
    named: Vec<String>,
    /// The operator named this machine itself.
    is_here: bool,
}

/// A whole reply.
pub(super) struct Said {
    pub status: StatusCode,
    pub host: String,
    pub body: Vec<u8>,
}

impl Egress {
    pub(super) fn new(server: &Url, hosts: &[String]) -> Result<Egress, Trouble> {
        let own = host(server);
        let mut named: Vec<String> = hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
        named.push(own.clone());
        let rule = Arc::new(Rule {
            named,
            is_here: is_here(server),
        });
        // Another part of the process may have chosen one before.
        let _chosen = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")))
            .redirect(Policy::none())
            .referer(false)
            .no_proxy()
            .timeout(TIME)
            .pool_max_idle_per_host(0)
            .dns_resolver(Arc::new(Checked(Arc::clone(&rule))))
            .build();
        let client = client.map_err(|error| Trouble::Unreached {
            host: own,
            why: error.to_string(),
        })?;
        Ok(Egress { client, rule })
    }

    /// Reads an address that somebody else named, if it may be spoken to, or be opened in a browser.
    pub(super) fn check(&self, text: &str) -> Result<Url, Trouble> {
        let shown = || longhaul_mcp::clean(text.split(['?', '#']).next().unwrap_or_default(), 200);
        let url = Url::parse(text).map_err(|_| Trouble::Forbidden(shown()))?;
        match self.rule.allows(&url) {
            true => Ok(url),
            false => Err(Trouble::Forbidden(shown())),
        }
    }

    pub(super) fn get(&self, url: &Url) -> RequestBuilder {
        self.client.get(url.clone()).header("accept", "application/json")
    }

    pub(super) fn post(&self, url: &Url) -> RequestBuilder {
        self.client.post(url.clone()).header("accept", "application/json")
    }

    pub(super) async fn send(&self, url: &Url, request: RequestBuilder) -> Result<Response, Trouble> {
        request.send().await.map_err(|error| Trouble::Unreached {
            host: host(url),
            why: causes(&error),
        })
    }

    /// The whole reply, however it turns out.
    pub(super) async fn said(&self, url: &Url, request: RequestBuilder) -> Result<Said, Trouble> {
        let mut response = self.send(url, request).await?;
        let (status, host, mut body) = (response.status(), host(url), Vec::new());
        loop {
            match response.chunk().await {
                Ok(Some(bytes)) if body.len() + bytes.len() > BODY_MAX => {
                    let why = format!("it is longer than {BODY_MAX} bytes");
                    return Err(Trouble::Unfit { host, why });
                }
                Ok(Some(bytes)) => body.extend_from_slice(&bytes),
                Ok(None) => return Ok(Said { status, host, body }),
                Err(error) => {
                    let why = causes(&error);
                    return Err(Trouble::Unreached { host, why });
                }
            }
        }
    }
}

impl Said {
    /// Its JSON.
    pub(super) fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, Trouble> {
        serde_json::from_slice(&self.body).map_err(|_| Trouble::Unfit {
            host: self.host.clone(),
            // What stands there may be a secret.
            why: format!("HTTP status {}, and not the JSON that belongs there", self.status),
        })
    }
}

impl Rule {
    fn allows(&self, url: &Url) -> bool {
        let has_user = !url.username().is_empty() || url.password().is_some();
        if has_user || url.fragment().is_some() {
            return false;
        }
        if is_here(url) {
            return self.is_here && matches!(url.scheme(), "http" | "https");
        }
        if url.scheme() != "https" {
            return false;
        }
        match url.host() {
            Some(Host::Domain(name)) => self.names(name) || name.contains('.'),
            Some(Host::Ipv4(_) | Host::Ipv6(_)) => {
                let address = host(url).trim_matches(['[', ']']).parse();
                self.names(&host(url)) && address.is_ok_and(|address| self.takes(&host(url), address))
            }
            None => false,
        }
    }

    fn names(&self, host: &str) -> bool {
        self.named.iter().any(|named| named == host)
    }

    /// Whether a host may be at this address.
    fn takes(&self, host: &str, address: IpAddr) -> bool {
        let address = address.to_canonical();
        if address.is_loopback() {
            return self.is_here;
        }
        is_public(address) || (self.names(host) && !is_metadata(address) && !address.is_unspecified())
    }
}

/// Resolves a name to the addresses that it may have.
struct Checked(Arc<Rule>);

impl Resolve for Checked {
    fn resolve(&self, name: Name) -> Resolving {
        let rule = Arc::clone(&self.0);
        Box::pin(async move {
            let name = name.as_str().to_ascii_lowercase();
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            // All of them: a name with one bad address is not to be trusted with the next one.
            if found.is_empty() || !found.iter().all(|found| rule.takes(&name, found.ip())) {
                return Err(io::Error::other("its name leads to an address that is not public").into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

pub(super) fn host(url: &Url) -> String {
    url.host_str().unwrap_or_default().to_ascii_lowercase()
}

/// Whether an address is this machine itself.
pub(super) fn is_here(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.to_canonical().is_loopback(),
        None => false,
    }
}

/// Where clouds tell a machine its own secrets, and whatever else is on the link.
fn is_metadata(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local() || address == Ipv4Addr::new(100, 100, 100, 200),
        IpAddr::V6(address) => {
            address.segments()[0] & 0xffc0 == 0xfe80
                || address == Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)
        }
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            let is_special = address.is_private()
                || address.is_loopback()
                || address.is_link_local()
                || address.is_documentation()
                || matches!((a, b, c), (0, ..) | (192, 0, 0) | (192, 88, 99))
                || (a == 100 && b & 0xc0 == 64)
                || (a == 198 && b & 0xfe == 18)
                || a >= 224;
            !is_special
        }
        IpAddr::V6(address) => {
            let [a, b, ..] = address.segments();
            // Tunnels carry an IPv4 address that nobody would check.
            let is_tunnel = a == 0x2002 || (a == 0x2001 && b < 0x200);
            let is_isatap = matches!(address.segments()[4..6], [0 | 0x200, 0x5efe]);
            let is_documentation = (a == 0x2001 && b == 0xdb8) || (a == 0x3fff && b < 0x1000);
            a & 0xe000 == 0x2000 && !is_tunnel && !is_isatap && !is_documentation
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn egress(server: &str, hosts: &[&str]) -> Egress {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        Egress::new(&Url::parse(server).expect("a URL"), &hosts).expect("a client")
    }

    #[test]
    fn s7_only_public_https_addresses_and_what_the_operator_named_are_spoken_to() {
        let public = egress("https://mcp.example.org/mcp", &["id.corp"]);
        let fits = [
            "https://id.example.org/a",
            "https://id.corp/x",
            "https://mcp.example.org:8443/",
        ];
        for text in fits {
            assert!(public.check(text).is_ok(), "{text}");
        }
        let bad = [
            "http://id.example.org/",
            "https://localhost/",
            "http://127.0.0.1:8080/",
            "https://169.254.169.254/latest/meta-data",
            "https://[::ffff:169.254.169.254]/",
            "https://10.0.0.1/",
            "https://2130706433/",
            "https://0x7f.1/",
            "https://[fd00:ec2::254]/",
            "https://93.184.216.34/",
            "https://user@id.example.org/",
            "https://id.example.org/#x",
            "https://intranet/",
            "ftp://id.example.org/",
            "file:///etc/passwd",
            "javascript:alert(1)",
        ];
        for text in bad {
            assert!(public.check(text).is_err(), "{text}");
        }
        let here = egress("http://127.0.0.1:4000/mcp", &[]);
        assert!(
            here.check("http://localhost:4001/token").is_ok(),
            "this machine named itself"
        );
        assert!(here.check("http://169.254.169.254/").is_err());
        assert!(here.check("http://10.0.0.1/").is_err());
    }

    #[test]
    fn s7_a_name_leads_to_public_addresses_or_to_where_the_operator_named_it() {
        let rule = egress("https://mcp.example.org/mcp", &["id.corp"]).rule;
        let takes = |host: &str, address: &str| rule.takes(host, address.parse().expect("an address"));
        assert!(takes("id.example.org", "93.184.216.34") && takes("id.example.org", "2606:4700::1"));
        assert!(takes("id.corp", "10.1.2.3"), "the operator named it");
        for address in [
            "127.0.0.1",
            "::1",
            "0.0.0.0",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "100.100.100.200",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "fe80::1",
            "fc00::1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "2002:a00:1::1",
            "2001::1",
            "2001:db8::1",
            "2606:4700::5efe:a00:1",
        ] {
            assert!(!takes("id.example.org", address), "{address}");
        }
        for address in ["169.254.169.254", "127.0.0.1", "fe80::1", "fd00:ec2::254"] {
            assert!(!takes("id.corp", address), "not even a named one: {address}");
        }
    }
}
