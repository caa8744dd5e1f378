//! Opening the file: modes, pragmas, schema, and what SQLite's errors mean to us.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{
    Connection, ErrorCode, OpenFlags, ToSql,
    config::DbConfig,
    types::{ToSqlOutput, ValueRef},
};

use crate::{Error, Fault, layout::Cell, migrate, sqlite::Options};

/// How long a connection waits for another process's transaction.
const BUSY_MS_MAX: u64 = 5_000;

/// File systems over a network, as the kernel names them. Their locks may not hold, and SQLite's shared memory
/// does not work across machines.
const NETWORK: [&str; 17] = [
    "afs",
    "beegfs",
    "ceph",
    "cifs",
    "fuse.ceph",
    "fuse.glusterfs",
    "fuse.rclone",
    "fuse.s3fs",
    "fuse.sshfs",
    "glusterfs",
    "gpfs",
    "lustre",
    "ncpfs",
    "nfs",
    "nfs4",
    "smb3",
    "smbfs",
];

/// Makes the directory and an empty file with their modes, and returns the file's path.
pub(super) fn prepare(options: &Options) -> Result<PathBuf, Error> {
    let directory = &options.directory;
    let failed = |cause: io::Error| {
        let fault = if cause.kind() == io::ErrorKind::StorageFull {
            Fault::Full
        } else {
            Fault::Broken
        };
        Error::new(
            fault,
            format!("make the state directory `{}`", directory.display()),
        )
        .caused_by(cause)
    };
    let make = |path: &Path| DirBuilder::new().recursive(true).mode(0o700).create(path);
    make(directory).map_err(failed)?;
    make(&directory.join("runners")).map_err(failed)?;
    if !options.allow_network_file_system {
        refuse_network(&fs::canonicalize(directory).map_err(failed)?)?;
    }
    let path = directory.join("longhaul.db");
    // SQLite gives its other files the mode of this one.
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&path)
        .map_err(failed)?;
    Ok(path)
}

fn refuse_network(directory: &Path) -> Result<(), Error> {
    // Where the kernel does not list its mounts this way, nothing is known and nothing refused.
    let Ok(mounts) = fs::read_to_string("/proc/self/mountinfo") else {
        return Ok(());
    };
    match file_system(&mounts, directory) {
        Some(kind) if NETWORK.contains(&kind.as_str()) => {
            let why = format!(
                "`{}` is on a network file system (`{kind}`), where locks may not hold; choose a local directory, \
                 or use PostgreSQL",
                directory.display()
            );
            Err(Error::new(Fault::Refused(why), "open the database"))
        }
        Some(_) | None => Ok(()),
    }
}

/// The type of the file system that holds `directory`: of its mounts, the one mounted deepest and last.
fn file_system(mounts: &str, directory: &Path) -> Option<String> {
    let mount = |line: &str| {
        let (place, kind) = line.split_once(" - ")?;
        let place = place.split(' ').nth(4)?.replace("\\040", " ");
        let depth = Path::new(&place).components().count();
        directory
            .starts_with(&place)
            .then(|| (depth, kind.split(' ').next().unwrap_or("").to_owned()))
    };
    mounts
        .lines()
        .filter_map(mount)
        .max_by_key(|(depth, _)| *depth)
        .map(|(_, kind)| kind)
}

/// Opens the file for writing. A committed transaction is on the disk: WAL with `synchronous=FULL`.
pub(super) fn open(path: &Path) -> Result<Connection, Error> {
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let mode: String = connection
        .query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))
        .map_err(|cause| failed("open the database", cause))?;
    if mode != "wal" {
        let why =
            format!("its journal mode stays `{mode}`, and only `wal` is safe here; choose a local directory");
        return Err(Error::new(Fault::Refused(why), "open the database"));
    }
    connection
        .execute_batch("PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON;")
        .map_err(|cause| failed("open the database", cause))?;
    Ok(connection)
}

/// Opens the file for reading only.
pub(super) fn open_reader(path: &Path) -> Result<Connection, Error> {
    // A reader may have to make the shared-memory file, so the file itself is opened for writing.
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection
        .execute_batch("PRAGMA query_only = ON")
        .map_err(|cause| failed("open the database", cause))?;
    Ok(connection)
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, Error> {
    let doing = || format!("open the database `{}`", path.display());
    let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .map_err(|cause| failed(&doing(), cause))?;
    connection
        .busy_timeout(Duration::from_millis(BUSY_MS_MAX))
        .map_err(|cause| failed(&doing(), cause))?;
    connection
        .execute_batch("PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF; PRAGMA temp_store = MEMORY;")
        .map_err(|cause| failed(&doing(), cause))?;
    // Without it the planner looks at bound values to choose among partial indexes, and so compiles such a statement
    // anew each time that it runs with another value.
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)
        .map_err(|cause| failed(&doing(), cause))?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// Brings the schema up to date, in one transaction that no other process shares.
pub(super) fn migrate(connection: &Connection) -> Result<(), Error> {
    let failed = |cause| failed("bring the database's schema up to date", cause);
    connection.execute_batch("BEGIN IMMEDIATE").map_err(failed)?;
    let migrated = steps(connection);
    let end = if migrated.is_ok() { "COMMIT" } else { "ROLLBACK" };
    connection.execute_batch(end).map_err(failed)?;
    migrated
}

fn steps(connection: &Connection) -> Result<(), Error> {
    let failed = |cause| failed("bring the database's schema up to date", cause);
    connection
        .execute_batch(
            "CREATE TABLE IF NOT EXISTS meta (version INTEGER PRIMARY KEY, checksum BLOB NOT NULL) STRICT",
        )
        .map_err(failed)?;
    let mut statement = connection
        .prepare("SELECT version, checksum FROM meta ORDER BY version")
        .map_err(failed)?;
    let rows = statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .map_err(failed)?;
    let done = rows.collect::<Result<Vec<(u32, Vec<u8>)>, _>>().map_err(failed)?;
    for step in migrate::missing(migrate::SQLITE, &done)? {
        connection.execute_batch(step.sql).map_err(failed)?;
        connection
            .execute(
                "INSERT INTO meta (version, checksum) VALUES (?1, ?2)",
                (step.version, step.checksum()),
            )
            .map_err(failed)?;
    }
    Ok(())
}

/// What a failure of SQLite means.
pub(super) fn failed(doing: &str, cause: rusqlite::Error) -> Error {
    Error::new(fault(&cause), doing).caused_by(cause)
}

fn fault(cause: &rusqlite::Error) -> Fault {
    match cause.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Fault::Unavailable,
        Some(ErrorCode::DiskFull) => Fault::Full,
        Some(_) | None => Fault::Broken,
    }
}

impl ToSql for Cell {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Cell::Null => ValueRef::Null,
            Cell::Int(int) => ValueRef::Integer(*int),
            Cell::Text(text) => ValueRef::Text(text.as_bytes()),
            Cell::Blob(blob) => ValueRef::Blob(blob),
        }))
    }
}

/// The cells of one row.
pub(super) fn row_cells(row: &rusqlite::Row<'_>) -> rusqlite::Result<Vec<Cell>> {
    let columns = row.as_ref().column_count();
    (0..columns)
        .map(|column| {
            Ok(match row.get_ref(column)? {
                ValueRef::Null => Cell::Null,
                ValueRef::Integer(int) => Cell::Int(int),
                ValueRef::Real(real) => Cell::Text(real.to_string()),
                ValueRef::Text(text) => Cell::Text(String::from_utf8_lossy(text).into_owned()),
                ValueRef::Blob(blob) => Cell::Blob(blob.to_vec()),
            })
        })
        .collect()
}

/// All rows of a query, as cells.
pub(super) fn all(connection: &Connection, sql: &str, values: &[Cell]) -> Result<Vec<Vec<Cell>>, Error> {
    let failed = |cause| failed("read from the database", cause);
    let mut statement = connection.prepare_cached(sql).map_err(failed)?;
    let rows = statement
        .query_map(rusqlite::params_from_iter(values), row_cells)
        .map_err(failed)?;
    rows.collect::<rusqlite::Result<Vec<_>>>().map_err(failed)
}

/// Runs one writing statement and returns how many rows it touched.
pub(super) fn execute(connection: &Connection, sql: &str, values: &[Cell]) -> Result<usize, Error> {
    let failed = |cause| failed("write to the database", cause);
    let mut statement = connection.prepare_cached(sql).map_err(failed)?;
    statement
        .execute(rusqlite::params_from_iter(values))
        .map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::file_system;

    #[test]
    fn the_deepest_and_last_mount_tells_the_file_system() {
        let mounts = "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:5 / /home rw shared:1 - nfs4 host:/home rw\n\
                      3 2 8:2 / /home/me\\040too rw - xfs /dev/b rw\n4 1 8:3 / /home rw - cifs //host/home rw\n";
        let kind = |path| file_system(mounts, Path::new(path));
        assert_eq!(kind("/var").as_deref(), Some("ext4"));
        assert_eq!(kind("/home/you").as_deref(), Some("cifs"));
        assert_eq!(kind("/home/me too/state").as_deref(), Some("xfs"));
        assert_eq!(kind("/homeless").as_deref(), Some("ext4"));
    }
}
