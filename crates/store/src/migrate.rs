//! The steps that bring a database's schema up to what this program knows, in both dialects.
//!
//! A step that was released never changes: its checksum is kept in the table `meta` beside its number. Each
//! backend runs the missing steps in one transaction, alone.

use crate::{Error, Fault, crypt::digest};

/// One step.
pub(crate) struct Migration {
    /// Its number, from 1.
    pub(crate) version: u32,
    /// Its statements.
    pub(crate) sql: &'static str,
}

impl Migration {
    /// What `meta` remembers of it.
    pub(crate) fn checksum(&self) -> Vec<u8> {
        digest(&[self.sql.as_bytes()]).to_vec()
    }
}

/// The steps for SQLite.
#[cfg(feature = "sqlite")]
pub(crate) const SQLITE: &[Migration] = &[
    Migration {
        version: 1,
        sql: include_str!("../migrations/sqlite/0001_tasks.sql"),
    },
    Migration {
        version: 2,
        sql: include_str!("../migrations/sqlite/0002_claims.sql"),
    },
];

/// The steps for PostgreSQL.
#[cfg(feature = "postgres")]
pub(crate) const POSTGRES: &[Migration] = &[
    Migration {
        version: 1,
        sql: include_str!("../migrations/postgres/0001_tasks.sql"),
    },
    Migration {
        version: 2,
        sql: include_str!("../migrations/postgres/0002_claims.sql"),
    },
];

/// The newest schema among `all`.
pub(crate) fn newest(all: &[Migration]) -> u32 {
    all.iter().map(|step| step.version).max().unwrap_or(0)
}

/// The steps that are missing, given what `meta` says was done.
pub(crate) fn missing<'a>(
    all: &'a [Migration],
    done: &[(u32, Vec<u8>)],
) -> Result<Vec<&'a Migration>, Error> {
    let (found, known) = (
        done.iter().map(|(version, _)| *version).max().unwrap_or(0),
        newest(all),
    );
    if found > known {
        return Err(Error::new(Fault::Newer { found, known }, "open the database"));
    }
    for (version, checksum) in done {
        let same = all
            .iter()
            .any(|step| step.version == *version && step.checksum() == *checksum);
        if !same {
            return Err(Error::broken(format!(
                "open the database: its schema step {version} is not ours"
            )));
        }
    }
    Ok(all.iter().filter(|step| step.version > found).collect())
}
