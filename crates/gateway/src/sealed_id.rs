//! Sealed task ids: what a client sees instead of a row id.
//!
//! Called by `dispatch` only. A sealed id says which row it means and who it was made for, and proves that we
//! made it; whatever was altered, forged or made for another root key is refused here, before the store is
//! touched (G-35). It never grants access by itself: the gate checks the owner on every request (B-57).
//!
//! Form: `lh1.<kid>.<base64url>`, where the last part is `nonce(24) ‖ XChaCha20-Poly1305(plain)`. The nonce is
//! `HMAC(nonce key, row id)`, so that a task has one id for ever, on every replica: clients compare ids by
//! equality.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use chacha20poly1305::{
    KeyInit as _, XChaCha20Poly1305, XNonce,
    aead::{Aead as _, Payload},
};
use hmac::{Hmac, Mac as _};
use longhaul_core::{Millis, TaskId, hex};
use longhaul_store::Owner;
use sha2::{Digest as _, Sha256};

/// The longest text that is looked at, in bytes; an id of ours has about 140.
const TEXT_MAX: usize = 256;
const PREFIX: &str = "lh1";
const NONCE: usize = 24;
const PLAIN: usize = 16 + 16 + 8 + 1;
const CLASS_TASK: u8 = 1;
const CLASS_CURSOR: u8 = 2;

/// The keys of this server, derived once at start from its root key, one for each purpose.
#[derive(Clone)]
pub struct Keys {
    kid: u32,
    root: [u8; 32],
    seal: XChaCha20Poly1305,
    nonce: [u8; 32],
    cursor: XChaCha20Poly1305,
    cursor_nonce: [u8; 32],
    reference: [u8; 32],
}

/// What a genuine id says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The row.
    pub task: TaskId,
    /// When the task was born.
    pub created_at: Millis,
    /// A digest of the owner for whom it was made.
    pub owner: [u8; 16],
}

impl Keys {
    /// Derives the keys from the root key. `kid` names the root key in every id that is made with it.
    pub fn derive(kid: u32, root: &[u8; 32]) -> Keys {
        let seal = XChaCha20Poly1305::new(&derive(root, "task-id").into());
        Keys {
            kid,
            root: *root,
            seal,
            nonce: derive(root, "task-id-nonce"),
            cursor: XChaCha20Poly1305::new(&derive(root, "list-cursor").into()),
            cursor_nonce: derive(root, "list-cursor-nonce"),
            reference: derive(root, "reference"),
        }
    }

    /// The key id that new tasks are sealed under.
    pub fn kid(&self) -> u32 {
        self.kid
    }

    /// A key for another purpose, such as `request-state`.
    pub fn purpose(&self, purpose: &str) -> [u8; 32] {
        derive(&self.root, purpose)
    }

    /// The id of a task, always the same for the same row.
    pub fn seal(&self, task: TaskId, owner: &Owner, created_at: Millis) -> String {
        let plain = plain(task, owner, created_at, CLASS_TASK);
        self.sealed(&self.seal, &self.nonce, task, &plain)
    }

    /// Opens an id, or refuses it without saying why.
    pub fn open(&self, text: &str) -> Option<Opened> {
        self.opened(&self.seal, text, CLASS_TASK)
    }

    /// Where a page of an owner's list ended: at this task.
    pub fn seal_cursor(&self, task: TaskId, owner: &Owner, created_at: Millis) -> String {
        let plain = plain(task, owner, created_at, CLASS_CURSOR);
        self.sealed(&self.cursor, &self.cursor_nonce, task, &plain)
    }

    /// Opens a cursor that was made for this owner, or refuses it without saying why.
    pub fn open_cursor(&self, text: &str, owner: &Owner) -> Option<(Millis, TaskId)> {
        let opened = self.opened(&self.cursor, text, CLASS_CURSOR)?;
        (opened.owner == owner_digest(owner)).then_some((opened.created_at, opened.task))
    }

    fn sealed(&self, key: &XChaCha20Poly1305, nonce: &[u8; 32], task: TaskId, plain: &[u8]) -> String {
        let nonce = &hmac(nonce, &[&task.0])[..NONCE];
        let header = format!("{PREFIX}.{}", self.kid);
        let payload = Payload {
            msg: plain,
            aad: header.as_bytes(),
        };
        let sealed = key
            .encrypt(&xnonce(nonce), payload)
            .expect("sealing a few bytes in memory cannot fail");
        format!("{header}.{}", URL_SAFE_NO_PAD.encode([nonce, &sealed].concat()))
    }

    fn opened(&self, key: &XChaCha20Poly1305, text: &str, class: u8) -> Option<Opened> {
        if text.len() > TEXT_MAX {
            return None;
        }
        let (header, body) = text.rsplit_once('.')?;
        if header != format!("{PREFIX}.{}", self.kid) {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(body).ok()?;
        let (nonce, sealed) = bytes.split_at_checked(NONCE)?;
        let payload = Payload {
            msg: sealed,
            aad: header.as_bytes(),
        };
        let plain = key.decrypt(&xnonce(nonce), payload).ok()?;
        let plain: [u8; PLAIN] = plain.try_into().ok()?;
        let (task, rest) = plain.split_first_chunk::<16>()?;
        let (owner, rest) = rest.split_first_chunk::<16>()?;
        let (created_at, rest) = rest.split_first_chunk::<8>()?;
        (rest == [class]).then(|| Opened {
            task: TaskId(*task),
            created_at: Millis(u64::from_be_bytes(*created_at)),
            owner: *owner,
        })
    }

    /// The short keyed hash by which logs and the audit name a task; never the id itself (G-36).
    pub fn reference(&self, task: TaskId) -> String {
        hex(&hmac(&self.reference, &[&task.0])[..5])
    }
}

fn plain(task: TaskId, owner: &Owner, created_at: Millis, class: u8) -> Vec<u8> {
    let mut plain = Vec::with_capacity(PLAIN);
    plain.extend_from_slice(&task.0);
    plain.extend_from_slice(&owner_digest(owner));
    plain.extend_from_slice(&created_at.0.to_be_bytes());
    plain.push(class);
    plain
}

/// A digest of an owner, for ids and bindings. Length-prefixed, so that no two owners share one by moving
/// bytes between fields.
pub fn owner_digest(owner: &Owner) -> [u8; 16] {
    let mut hash = Sha256::new();
    for part in [&owner.tenant, &owner.issuer, &owner.subject, &owner.app] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    let digest: [u8; 32] = hash.finalize().into();
    let mut short = [0; 16];
    short.copy_from_slice(&digest[..16]);
    short
}

fn derive(root: &[u8; 32], purpose: &str) -> [u8; 32] {
    hmac(root, &[b"longhaul/1/", purpose.as_bytes()])
}

fn hmac(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac =
        <Hmac<Sha256> as hmac::KeyInit>::new_from_slice(key).expect("HMAC takes a key of any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

fn xnonce(bytes: &[u8]) -> XNonce {
    let mut nonce = [0; NONCE];
    nonce.copy_from_slice(bytes);
    nonce.into()
}
