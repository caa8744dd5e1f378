//! What a client carries between two rounds of one call, sealed (B-41).
//!
//! Called by `dispatch` when a call asks before it is a task, and when the answers come back. The client may
//! hold it, lose it or forge it: whatever was altered, made for another caller or for other arguments, or is
//! too old is refused before the store is touched. It names the hidden row that waits; the answers settle its
//! questions, each at most once, so that sending the same retry again gives the same reply and nothing more.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use chacha20poly1305::{
    KeyInit as _, XChaCha20Poly1305, XNonce,
    aead::{Aead as _, Payload},
};
use longhaul_core::{Millis, TaskId};
use longhaul_store::Owner;

use crate::sealed_id::{Keys, owner_digest};

/// The longest text that is looked at, in bytes.
const TEXT_MAX: usize = 512;
const PREFIX: &str = "lhr1.";
const NONCE: usize = 24;
const PLAIN: usize = 16 + 16 + 32 + 8 + 4;

/// Seals and opens the state of calls.
pub struct Sealer {
    key: XChaCha20Poly1305,
}

/// What a call goes on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The row that waits.
    pub task: TaskId,
    /// The digest of tool and arguments, which must be the same in every round.
    pub digest: [u8; 32],
    /// When the state is worth nothing any more.
    pub expires_at: Millis,
    /// Which round this is, so that no two states of a call are equal.
    pub round: u32,
}

impl Sealer {
    /// A sealer under the server's keys.
    pub fn new(keys: &Keys) -> Sealer {
        Sealer {
            key: XChaCha20Poly1305::new(&keys.purpose("request-state").into()),
        }
    }

    /// Seals a state for one owner. `nonce` is random.
    pub fn seal(&self, state: &State, owner: &Owner, nonce: [u8; NONCE]) -> String {
        let mut plain = Vec::with_capacity(PLAIN);
        plain.extend_from_slice(&state.task.0);
        plain.extend_from_slice(&owner_digest(owner));
        plain.extend_from_slice(&state.digest);
        plain.extend_from_slice(&state.expires_at.0.to_be_bytes());
        plain.extend_from_slice(&state.round.to_be_bytes());
        let sealed = self
            .key
            .encrypt(
                &XNonce::from(nonce),
                Payload {
                    msg: &plain,
                    aad: PREFIX.as_bytes(),
                },
            )
            .expect("sealing a few bytes in memory cannot fail");
        format!(
            "{PREFIX}{}",
            URL_SAFE_NO_PAD.encode([&nonce[..], &sealed].concat())
        )
    }

    /// Opens a state that was sealed for this owner and is still good, or refuses it without saying why.
    pub fn open(&self, text: &str, owner: &Owner, now: Millis) -> Option<State> {
        if text.len() > TEXT_MAX {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(text.strip_prefix(PREFIX)?).ok()?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE>()?;
        let payload = Payload {
            msg: sealed,
            aad: PREFIX.as_bytes(),
        };
        let plain: [u8; PLAIN] = self
            .key
            .decrypt(&XNonce::from(*nonce), payload)
            .ok()?
            .try_into()
            .ok()?;
        let (task, rest) = plain.split_first_chunk::<16>()?;
        let (for_owner, rest) = rest.split_first_chunk::<16>()?;
        let (digest, rest) = rest.split_first_chunk::<32>()?;
        let (expires_at, round) = rest.split_first_chunk::<8>()?;
        let state = State {
            task: TaskId(*task),
            digest: *digest,
            expires_at: Millis(u64::from_be_bytes(*expires_at)),
            round: u32::from_be_bytes(round.try_into().ok()?),
        };
        (*for_owner == owner_digest(owner) && now < state.expires_at).then_some(state)
    }
}
