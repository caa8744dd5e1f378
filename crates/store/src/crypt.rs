//! Keeps bodies unreadable to whoever gets the database or a backup of it (S13).
//!
//! Three layers: the master key in a file of its own, one data key for each tenant and principal (wrapped under
//! the master key, in the table `data_keys`), and under it each body. A sealed value is
//! `format(1) kid(4) nonce(24) ciphertext`, XChaCha20-Poly1305; what it is bound to is its place: tenant, row,
//! column and format. It is bound to nothing that changes while a task lives, such as the fence.
//!
//! Called by the SQLite and PostgreSQL backends. It never writes a key in the clear anywhere but into the master
//! key's file, and no type here that holds a key can be printed.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::Path,
    sync::{PoisonError, RwLock},
};

use chacha20poly1305::{
    KeyInit, XChaCha20Poly1305, XNonce,
    aead::{Aead, AeadInOut, Payload},
};
use sha2::{Digest, Sha256};
use zeroize::{Zeroize, Zeroizing};

use crate::{Error, Fault, Owner};

const FORMAT: u8 = 1;
const KID: usize = 1;
const NONCE: usize = KID + 4;
const CIPHERTEXT: usize = NONCE + 24;
/// The bytes after the ciphertext.
const TAG: usize = 16;

/// The most data keys held in memory. Beyond it they are forgotten and read again.
const CACHED_KEYS_MAX: usize = 10_000;

/// The master keys: the one under which data keys are wrapped now, and older ones that still open.
pub struct KeyRing {
    keys: Vec<(u32, Key)>,
}

struct Key(Zeroizing<[u8; 32]>);

impl KeyRing {
    /// Opens the master key `master` in the directory, or makes the directory (mode 0700) and a new key (mode
    /// 0600). Files named `master.*` beside it hold older keys.
    ///
    /// # Errors
    /// [`Fault::Refused`] when a file is not 32 bytes long or may be read by others, [`Fault::Broken`] when it
    /// cannot be read or written.
    pub fn open(directory: &Path) -> Result<KeyRing, Error> {
        let failed = |cause: io::Error| {
            Error::broken(format!("open the master key in `{}`", directory.display())).caused_by(cause)
        };
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(failed)?;
        let path = directory.join("master");
        match create(directory, &path) {
            Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {}
            created => created.map_err(failed)?,
        }
        let mut ring = KeyRing {
            keys: vec![read(&path)?],
        };
        let mut older: Vec<_> = fs::read_dir(directory)
            .and_then(Iterator::collect::<io::Result<Vec<_>>>)
            .map_err(failed)?
            .into_iter()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("master."))
            .map(|entry| entry.path())
            .collect();
        older.sort();
        for path in older {
            ring.keys.push(read(&path)?);
        }
        Ok(ring)
    }

    /// A ring of keys that the caller holds: the current one and older ones.
    pub fn new(current: [u8; 32], older: &[[u8; 32]]) -> KeyRing {
        let keys = [current]
            .iter()
            .chain(older)
            .map(|key| named(Zeroizing::new(*key)))
            .collect();
        KeyRing { keys }
    }

    /// A key for one purpose, made from the current master key: the same for ever as long as that key is current.
    /// It tells nothing about the master key or the keys for other purposes.
    ///
    /// # Errors
    /// [`Fault::Broken`] for a ring without keys.
    pub fn derive(&self, purpose: &str) -> Result<[u8; 32], Error> {
        let (_, master) = self.current()?;
        let mut digest = Sha256::new();
        digest.update(purpose.as_bytes());
        digest.update([0]);
        digest.update(*master.0);
        Ok(digest.finalize().into())
    }

    fn current(&self) -> Result<&(u32, Key), Error> {
        self.keys
            .first()
            .ok_or_else(|| Error::broken("seal with an empty key ring"))
    }

    fn key(&self, kid: u32) -> Option<&Key> {
        self.keys.iter().find(|(id, _)| *id == kid).map(|(_, key)| key)
    }
}

/// Makes the file whole before it appears under its name, so that a crash leaves a key or none.
fn create(directory: &Path, path: &Path) -> io::Result<()> {
    if path.exists() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let mut key = Zeroizing::new([0; 32]);
    random(&mut *key).map_err(io::Error::other)?;
    let mut suffix = [0; 8];
    random(&mut suffix).map_err(io::Error::other)?;
    let fresh = directory.join(format!("new.{:016x}", u64::from_be_bytes(suffix)));
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&fresh)?;
    file.write_all(&*key)?;
    file.sync_all()?;
    // A link never replaces: of two processes that start at once, one makes the key and the other reads it.
    let linked = fs::hard_link(&fresh, path);
    fs::remove_file(&fresh)?;
    linked?;
    File::open(directory)?.sync_all()
}

fn read(path: &Path) -> Result<(u32, Key), Error> {
    let doing = || format!("read the master key `{}`", path.display());
    let failed = |cause: io::Error| Error::broken(doing()).caused_by(cause);
    let mut file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.permissions().mode() & 0o077 != 0 {
        let why = "others may read it; set its mode to 0600 (`chmod 600`)";
        return Err(Error::new(Fault::Refused(why.to_owned()), doing()));
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(33));
    Read::by_ref(&mut file)
        .take(33)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    let mut key = Zeroizing::new([0; 32]);
    if bytes.len() != key.len() {
        let why = "it is not 32 bytes long; put the right file back (a new key cannot open what is stored)";
        return Err(Error::new(Fault::Refused(why.to_owned()), doing()));
    }
    key.copy_from_slice(&bytes);
    Ok(named(key))
}

/// A key with its id, which is derived from it so that no file has to say it.
fn named(key: Zeroizing<[u8; 32]>) -> (u32, Key) {
    let digest = digest(&[b"longhaul master key", &*key]);
    (
        u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]),
        Key(key),
    )
}

/// Where a sealed value belongs. Moved anywhere else, it does not open.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// The tenant.
    pub tenant: &'a str,
    /// The row's key.
    pub row: &'a [u8],
    /// The column, or the body's name.
    pub column: &'a str,
}

/// The key ring with the data keys that were read so far.
pub struct Vault {
    ring: KeyRing,
    /// Read by every body that is sealed or opened, written when a data key is met for the first time.
    known: RwLock<Known>,
}

#[derive(Default)]
struct Known {
    ids: BTreeMap<Name, u32>,
    keys: BTreeMap<u32, Key>,
}

/// Whose data key it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// The tenant.
    pub tenant: String,
    /// A digest over the principal; zeros for what belongs to the tenant as a whole.
    pub principal: [u8; 32],
}

impl Name {
    /// The name of the data key under which an owner's bodies are sealed: one for tenant and principal, whatever
    /// the app.
    pub fn of(owner: &Owner) -> Name {
        let principal = digest(&[owner.issuer.as_bytes(), owner.subject.as_bytes()]);
        Name {
            tenant: owner.tenant.clone(),
            principal,
        }
    }

    /// The name of the data key under which a tenant's records are sealed.
    pub fn tenant(tenant: &str) -> Name {
        Name {
            tenant: tenant.to_owned(),
            principal: [0; 32],
        }
    }
}

impl Vault {
    /// A vault that knows no data key yet.
    pub fn new(ring: KeyRing) -> Vault {
        Vault {
            ring,
            known: RwLock::default(),
        }
    }

    /// A new data key, wrapped for the table `data_keys`.
    ///
    /// # Errors
    /// [`Fault::Broken`] when the system gives no randomness.
    pub fn make(&self, name: &Name) -> Result<Vec<u8>, Error> {
        let (kid, master) = self.ring.current()?;
        let mut key = Zeroizing::new([0; 32]);
        random(&mut *key)?;
        seal(master, *kid, wrapping(name), &*key)
    }

    /// Unwraps a data key that was read from `data_keys` and keeps it in memory under its id.
    ///
    /// # Errors
    /// [`Fault::Refused`] when its master key is not in the ring, [`Fault::Broken`] when it does not open.
    pub fn learn(&self, id: u32, name: Name, wrapped: &[u8]) -> Result<(), Error> {
        let kid = key_id(wrapped)?;
        let master = self.ring.key(kid).ok_or_else(|| {
            let why = format!(
                "the master key {kid:08x} is missing; put the key file back that was in use when the data was written"
            );
            Error::new(Fault::Refused(why), "open a data key")
        })?;
        let mut plain = open(master, wrapping(&name), wrapped)?;
        let mut key = Zeroizing::new([0; 32]);
        if plain.len() != key.len() {
            return Err(Error::broken("open a data key: it has a wrong length"));
        }
        key.copy_from_slice(&plain);
        plain.zeroize();
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.keys.len() >= CACHED_KEYS_MAX {
            *known = Known::default();
        }
        known.ids.insert(name, id);
        known.keys.insert(id, Key(key));
        Ok(())
    }

    /// The id of a data key, when it is in memory.
    pub fn id(&self, name: &Name) -> Option<u32> {
        self.known().ids.get(name).copied()
    }

    /// Whether the data key under which `sealed` was sealed is in memory; `Err` with its id when it is not.
    ///
    /// # Errors
    /// [`Fault::Broken`] when the value is of no known format.
    pub fn knows(&self, sealed: &[u8]) -> Result<Result<(), u32>, Error> {
        let kid = key_id(sealed)?;
        Ok(if self.known().keys.contains_key(&kid) {
            Ok(())
        } else {
            Err(kid)
        })
    }

    /// Seals a body for its place, under a data key that is in memory.
    ///
    /// # Errors
    /// [`Fault::Broken`] when the key is not in memory or the system gives no randomness.
    pub fn seal(&self, key: u32, place: Place<'_>, plain: &[u8]) -> Result<Vec<u8>, Error> {
        let known = self.known();
        let data_key = known
            .keys
            .get(&key)
            .ok_or_else(|| Error::broken("seal under an unknown data key"))?;
        seal(data_key, key, place, plain)
    }

    /// Opens a body that was sealed for this place.
    ///
    /// # Errors
    /// [`Fault::Broken`] when its key is not in memory, or when it was sealed for another place or altered.
    pub fn open(&self, place: Place<'_>, sealed: &[u8]) -> Result<Vec<u8>, Error> {
        let kid = key_id(sealed)?;
        let known = self.known();
        let key = known
            .keys
            .get(&kid)
            .ok_or_else(|| Error::broken("open under an unknown data key"))?;
        open(key, place, sealed)
    }

    fn known(&self) -> std::sync::RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wrapping(name: &Name) -> Place<'_> {
    Place {
        tenant: &name.tenant,
        row: &name.principal,
        column: "data_keys.wrapped",
    }
}

fn seal(key: &Key, kid: u32, place: Place<'_>, plain: &[u8]) -> Result<Vec<u8>, Error> {
    let mut nonce = [0; 24];
    random(&mut nonce)?;
    let mut sealed = Vec::with_capacity(CIPHERTEXT + plain.len() + TAG);
    sealed.push(FORMAT);
    sealed.extend(kid.to_be_bytes());
    sealed.extend(nonce);
    sealed.extend_from_slice(plain);
    // In its place: a large body is copied once.
    let body = (&mut sealed[CIPHERTEXT..]).into();
    let tag = cipher(key)
        .encrypt_inout_detached(&XNonce::from(nonce), &bound(place, FORMAT), body)
        .map_err(|_| Error::broken(format!("seal `{}`: it is too long", place.column)))?;
    sealed.extend(tag);
    Ok(sealed)
}

fn open(key: &Key, place: Place<'_>, sealed: &[u8]) -> Result<Vec<u8>, Error> {
    let altered = || {
        Error::broken(format!(
            "open `{}`: it was altered, moved or sealed with another key",
            place.column
        ))
    };
    let nonce: [u8; 24] = sealed
        .get(NONCE..CIPHERTEXT)
        .and_then(|nonce| nonce.try_into().ok())
        .ok_or_else(altered)?;
    let payload = Payload {
        msg: &sealed[CIPHERTEXT..],
        aad: &bound(place, sealed[0]),
    };
    cipher(key)
        .decrypt(&XNonce::from(nonce), payload)
        .map_err(|_| altered())
}

fn cipher(key: &Key) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new((&*key.0).into())
}

/// What a sealed value is bound to. Each part has its length before it, so that no two places look alike.
fn bound(place: Place<'_>, format: u8) -> Vec<u8> {
    let mut bound = Vec::new();
    for part in [
        place.tenant.as_bytes(),
        place.row,
        place.column.as_bytes(),
        &[format],
    ] {
        bound.extend((part.len() as u64).to_be_bytes());
        bound.extend(part);
    }
    bound
}

fn key_id(sealed: &[u8]) -> Result<u32, Error> {
    match (
        sealed.first(),
        sealed.get(KID..NONCE).and_then(|kid| kid.try_into().ok()),
    ) {
        (Some(&FORMAT), Some(kid)) => Ok(u32::from_be_bytes(kid)),
        (Some(format), _) => Err(Error::broken(format!("open a sealed value of format {format}"))),
        (None, _) => Err(Error::broken("open an empty sealed value")),
    }
}

/// SHA-256 over the parts, each with its length before it.
pub(crate) fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

fn random(bytes: &mut [u8]) -> Result<(), Error> {
    getrandom::fill(bytes).map_err(|cause| Error::broken("read randomness from the system").caused_by(cause))
}
