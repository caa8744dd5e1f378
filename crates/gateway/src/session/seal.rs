//! Session ids: what was agreed at `initialize`, sealed for one owner.
//!
//! Nothing is stored at `initialize`, and a session outlives its server and is known to every replica. An id that was
//! altered, made for another owner or at another endpoint, or is too old is refused without saying why. What ends
//! before its time, or is set later, is kept by `dispatch` under the id's digest.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use chacha20poly1305::{
    KeyInit as _, XChaCha20Poly1305, XNonce,
    aead::{Aead as _, Payload},
};
use longhaul_core::{Millis, hex};
use longhaul_mcp::edge::Peer;
use longhaul_store::Owner;
use sha2::{Digest as _, Sha256};

use crate::{
    sealed_id::{Keys, owner_digest},
    toolset::Selection,
};

/// The longest id that is looked at, in bytes.
const TEXT_MAX: usize = 2_048;
const PREFIX: &str = "lhs1.";
const NONCE: usize = 24;
const OWNER: usize = 16;
const TIME: usize = 8;

/// Seals and opens session ids.
pub struct Sealer {
    key: XChaCha20Poly1305,
}

/// What a genuine id says.
pub struct Opened {
    /// What was agreed.
    pub peer: Peer,
    /// When the id is worth nothing any more.
    pub expires_at: Millis,
}

impl Sealer {
    /// A sealer under the server's keys.
    pub fn new(keys: &Keys) -> Sealer {
        Sealer {
            key: XChaCha20Poly1305::new(&keys.purpose("session").into()),
        }
    }

    /// A new id for one owner at one endpoint, of visible ASCII. `nonce` is random.
    pub fn seal(&self, owner: &Owner, at: &Selection, opened: &Opened, nonce: [u8; NONCE]) -> String {
        let mut plain = Vec::new();
        plain.extend_from_slice(&owner_digest(owner));
        plain.extend_from_slice(&opened.expires_at.0.to_be_bytes());
        serde_json::to_writer(&mut plain, &opened.peer).expect("a peer always serializes");
        let payload = Payload {
            msg: &plain,
            aad: &bound(at),
        };
        let sealed = self
            .key
            .encrypt(&XNonce::from(nonce), payload)
            .expect("sealing a few bytes in memory cannot fail");
        format!(
            "{PREFIX}{}",
            URL_SAFE_NO_PAD.encode([&nonce[..], &sealed].concat())
        )
    }

    /// Opens an id that was made for this owner at this endpoint and is still good.
    pub fn open(&self, text: &str, owner: &Owner, at: &Selection, now: Millis) -> Option<Opened> {
        if text.len() > TEXT_MAX {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(text.strip_prefix(PREFIX)?).ok()?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE>()?;
        let payload = Payload {
            msg: sealed,
            aad: &bound(at),
        };
        let plain = self.key.decrypt(&XNonce::from(*nonce), payload).ok()?;
        let (for_owner, rest) = plain.split_first_chunk::<OWNER>()?;
        let (expires_at, peer) = rest.split_first_chunk::<TIME>()?;
        let opened = Opened {
            expires_at: Millis(u64::from_be_bytes(*expires_at)),
            peer: serde_json::from_slice(peer).ok()?,
        };
        (*for_owner == owner_digest(owner) && now < opened.expires_at).then_some(opened)
    }
}

/// What an id is bound to besides its owner: a session of one toolset is none of another.
fn bound(at: &Selection) -> Vec<u8> {
    [PREFIX, at.name()].concat().into_bytes()
}

/// Names a session in the store and beside its tasks; no secret, and the id does not follow from it.
pub(crate) fn key(id: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(b"longhaul session\0");
    hash.update(id.as_bytes());
    let digest: [u8; 32] = hash.finalize().into();
    hex(&digest[..10])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use longhaul_mcp::{
        Client,
        edge::{Peer, Version},
        request::Asked,
    };

    use super::*;
    use crate::config::Toolset;

    fn owner(subject: &str) -> Owner {
        Owner {
            tenant: "default".to_owned(),
            issuer: "local".to_owned(),
            subject: subject.to_owned(),
            app: String::new(),
        }
    }

    //
    #[test]
    fn an_id_is_good_for_its_owner_its_endpoint_its_time_and_its_keys_only() {
        let all = Selection::all();
        let sealer = Sealer::new(&Keys::derive(1, &[7; 32]));
        let opened = Opened {
            peer: Peer {
                version: Version::LATEST,
                client: Client {
                    asked: Asked::OnStream,
                    ..Client::default()
                },
            },
            expires_at: Millis(1_000),
        };
        let id = sealer.seal(&owner("uid:1"), &all, &opened, [3; NONCE]);
        assert!(id.bytes().all(|byte| (0x21..=0x7e).contains(&byte)));
        let found = sealer
            .open(&id, &owner("uid:1"), &all, Millis(999))
            .map(|opened| opened.peer);
        assert_eq!(found, Some(opened.peer));
        assert!(sealer.open(&id, &owner("uid:1"), &all, Millis(1_000)).is_none());
        let toolset = Selection::of(&Arc::new(Toolset {
            name: "review".to_owned(),
            ..Toolset::default()
        }));
        assert!(sealer.open(&id, &owner("uid:1"), &toolset, Millis(999)).is_none());
        assert!(sealer.open(&id, &owner("uid:2"), &all, Millis(999)).is_none());
        let others = Sealer::new(&Keys::derive(1, &[8; 32]));
        assert!(others.open(&id, &owner("uid:1"), &all, Millis(999)).is_none());
        for at in 0..id.len() {
            let mut altered = id.clone().into_bytes();
            altered[at] = if altered[at] == b'A' { b'B' } else { b'A' };
            let altered = String::from_utf8(altered).expect("ASCII");
            // The last character of base64 may hold bits that say nothing.
            let is_same = altered != id && at + 1 < id.len();
            assert!(
                !is_same
                    || sealer
                        .open(&altered, &owner("uid:1"), &all, Millis(999))
                        .is_none()
            );
        }
    }
}
