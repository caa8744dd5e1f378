//! What is sealed opens in its own place, for ever, and nowhere else.

use std::{fs, os::unix::fs::PermissionsExt, thread};

use longhaul_store::{
    Fault, Owner,
    crypt::{KeyRing, Name, Place, Vault},
};
use tempfile::TempDir;

fn owner() -> Owner {
    Owner {
        tenant: "default".to_owned(),
        issuer: "local".to_owned(),
        subject: "uid:1000".to_owned(),
        app: "any".to_owned(),
    }
}

fn sample(field: &str) -> Vec<u8> {
    let text = include_str!("samples/sealed-v1.txt");
    let hex = text
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(' '))
        .unwrap();
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect()
}

fn vault() -> Vault {
    let master: Vec<u8> = (0..32).collect();
    let vault = Vault::new(KeyRing::new([1; 32], &[master.try_into().unwrap()]));
    vault.learn(7, Name::of(&owner()), &sample("wrapped")).unwrap();
    vault
}

const ROW: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
const PLACE: Place<'_> = Place {
    tenant: "default",
    row: &ROW,
    column: "args",
};

#[test]
fn format_1_opens_for_ever() {
    assert_eq!(vault().open(PLACE, &sample("sealed")).unwrap(), sample("plain"));
}

/// Ids that clients hold are made with such a key.
#[test]
fn a_derived_key_is_the_same_for_ever() {
    let ring = KeyRing::new([7; 32], &[[1; 32]]);
    let hex = |purpose: &str| -> String {
        let key = ring.derive(purpose).unwrap();
        key.iter().map(|byte| format!("{byte:02x}")).collect()
    };
    assert_eq!(
        hex("ids"),
        "dd68f931c7ca9cc4b7553d52d1719fe88ffeb803143a48b6108e47b779bff35b"
    );
    assert_ne!(hex("ids"), hex("states"));
}

#[test]
fn what_was_moved_or_altered_does_not_open() {
    let (vault, sealed) = (vault(), sample("sealed"));
    let elsewhere = [
        Place {
            tenant: "other",
            ..PLACE
        },
        Place {
            row: &ROW[..15],
            ..PLACE
        },
        Place {
            column: "context",
            ..PLACE
        },
        Place {
            tenant: "",
            row: b"default\0",
            column: "args",
        },
    ];
    for place in elsewhere {
        assert_eq!(vault.open(place, &sealed).unwrap_err().fault, Fault::Broken);
    }
    for at in 0..sealed.len() {
        let mut altered = sealed.clone();
        altered[at] ^= 1;
        assert!(vault.open(PLACE, &altered).is_err(), "byte {at}");
        assert!(vault.open(PLACE, &sealed[..at]).is_err(), "cut at {at}");
    }
}

#[test]
fn one_text_is_never_sealed_the_same_way_twice() {
    let vault = vault();
    let sealed = [(); 2].map(|()| vault.seal(7, PLACE, b"text").unwrap());
    assert_ne!(sealed[0], sealed[1]);
    assert_eq!(vault.open(PLACE, &sealed[1]).unwrap(), b"text");
}

#[test]
fn another_principal_has_another_key() {
    let vault = vault();
    let mut other = owner();
    other.subject = "uid:1001".to_owned();
    assert!(
        vault.learn(8, Name::of(&other), &sample("wrapped")).is_err(),
        "a moved data key does not open"
    );
    let mut app = owner();
    app.app = "another".to_owned();
    assert_eq!(vault.id(&Name::of(&app)), Some(7));
    assert_eq!(vault.id(&Name::of(&other)), None);
}

#[test]
fn the_master_key_is_made_once_and_only_its_owner_may_read_it() {
    let directory = TempDir::new().unwrap();
    let keys = directory.path().join("keys");
    let opened: Vec<_> = (0..4)
        .map(|_| {
            let keys = keys.clone();
            thread::spawn(move || Vault::new(KeyRing::open(&keys).unwrap()))
        })
        .collect();
    let vaults: Vec<Vault> = opened.into_iter().map(|thread| thread.join().unwrap()).collect();
    let name = Name::of(&owner());
    let wrapped = vaults[0].make(&name).unwrap();
    vaults
        .iter()
        .for_each(|vault| vault.learn(1, name.clone(), &wrapped).unwrap());

    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let master = keys.join("master");
    assert_eq!((mode(&keys), mode(&master)), (0o700, 0o600));
    assert_eq!(
        fs::read_dir(&keys).unwrap().count(),
        1,
        "nothing is left beside the key"
    );
    assert_eq!(fs::read(&master).unwrap().len(), 32);
}

#[test]
fn an_older_master_key_still_opens_and_a_missing_one_is_named() {
    let directory = TempDir::new().unwrap();
    let name = Name::of(&owner());
    let wrapped = Vault::new(KeyRing::open(directory.path()).unwrap())
        .make(&name)
        .unwrap();
    fs::rename(
        directory.path().join("master"),
        directory.path().join("master.2026"),
    )
    .unwrap();
    let rotated = Vault::new(KeyRing::open(directory.path()).unwrap());
    rotated.learn(1, name.clone(), &wrapped).unwrap();
    fs::remove_file(directory.path().join("master.2026")).unwrap();
    let missing = Vault::new(KeyRing::open(directory.path()).unwrap());
    let refused = missing.learn(1, name, &wrapped).unwrap_err();
    assert!(matches!(refused.fault, Fault::Refused(why) if why.contains("is missing")));
}

#[test]
fn a_key_file_that_is_wrong_is_refused() {
    let directory = TempDir::new().unwrap();
    let master = directory.path().join("master");
    for (bytes, mode) in [
        (vec![1; 32], 0o640),
        (vec![1; 32], 0o604),
        (vec![1; 31], 0o600),
        (vec![1; 33], 0o600),
    ] {
        fs::write(&master, bytes).unwrap();
        fs::set_permissions(&master, fs::Permissions::from_mode(mode)).unwrap();
        let Err(refused) = KeyRing::open(directory.path()) else {
            panic!("opened with mode {mode:o}")
        };
        assert!(matches!(refused.fault, Fault::Refused(_)));
    }
}
