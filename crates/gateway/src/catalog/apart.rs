//! The places of wrapped servers, which have no part in what everybody else sees.
//!
//! They come and go while Longhaul runs; the fleet says when.

use std::sync::Arc;

use super::{Beside, Catalog, Part, Versions};
use crate::config::Prefix;

impl Catalog {
    /// Makes a place for a wrapped server, which offers nothing yet, and never anything to others.
    pub fn wrap(&self, server: &str) {
        let mut parts = self.lock();
        if parts.servers.iter().all(|part| part.server != server) {
            parts.servers.push(Part {
                server: server.to_owned(),
                prefix: Prefix::Never,
                tools: Vec::new(),
                beside: Beside::default(),
                apart: Some(Versions::default()),
                is_known: false,
            });
        }
    }

    /// A wrapped server is kept no longer: its place goes.
    pub fn unwrap(&self, server: &str) {
        let mut parts = self.lock();
        parts
            .servers
            .retain(|part| part.apart.is_none() || part.server != server);
        let offered = Arc::new(parts.offered());
        self.offered.send_replace(offered);
    }
}
