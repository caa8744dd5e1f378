//! Connections: the pool, time-outs, settings, schema, and sending several statements in one round trip.

use std::{error, fmt, future::poll_fn, pin::Pin, task::Poll, time::Duration};

use bytes::BytesMut;
use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime};
use tokio_postgres::{
    Config, NoTls,
    error::SqlState,
    types::{FromSql, IsNull, ToSql, Type, to_sql_checked},
};

use crate::{Error, Fault, layout::Cell, migrate, postgres::Options};

/// The longest wait for one round trip.
const CALL: Duration = Duration::from_secs(3);
/// The longest wait for a new connection.
const CONNECT: Duration = Duration::from_secs(5);
/// The longest time that sent bytes may stay unacknowledged by the server's machine.
const UNACKNOWLEDGED: Duration = Duration::from_secs(8);
/// What the server is told, in milliseconds: no statement, lock or open transaction lasts longer.
const SESSION: &str = "-c statement_timeout=5000 -c lock_timeout=2000 \
                       -c idle_in_transaction_session_timeout=5000 -c tcp_user_timeout=8000";
/// The advisory lock under which one process at a time changes the schema.
const MIGRATING: i64 = 0x6c6f_6e67_6861_756c;

/// The time in milliseconds, by the database's clock.
pub(super) const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000)::int8";

pub(super) fn pool(options: &Options) -> Result<Pool, Error> {
    let mut config: Config = options.url.parse().map_err(|cause: tokio_postgres::Error| {
        let why = "the connection string cannot be read; write `postgresql://user@host/database`".to_owned();
        Error::new(Fault::Refused(why), "connect to PostgreSQL").caused_by(cause)
    })?;
    let session = config
        .get_options()
        .map_or(SESSION.to_owned(), |own| format!("{SESSION} {own}"));
    config.options(session).application_name("longhaul");
    config.connect_timeout(CONNECT).tcp_user_timeout(UNACKNOWLEDGED);
    let manager = Manager::from_config(
        config,
        NoTls,
        ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        },
    );
    Pool::builder(manager)
        .max_size(options.connections_max.max(2))
        .runtime(Runtime::Tokio1)
        .create_timeout(Some(CONNECT))
        .wait_timeout(Some(CALL))
        .recycle_timeout(Some(CALL))
        .build()
        .map_err(|cause| Error::broken("set up the connections to PostgreSQL").caused_by(cause))
}

/// Refuses a server that acknowledges what is not on its disk.
pub(super) async fn check(pool: &Pool, allow_unsafe: bool) -> Result<(), Error> {
    let lease = Lease::take(pool).await?;
    for setting in ["fsync", "full_page_writes", "synchronous_commit"] {
        let call = Call::new("SELECT current_setting($1)", vec![Cell::Text(setting.to_owned())]);
        let rows = lease
            .one(call)
            .await
            .map_err(|failure| failure.error("read PostgreSQL's settings"))?;
        if rows.first() == Some(&vec![Cell::Text("off".to_owned())]) && !allow_unsafe {
            let why = format!(
                "PostgreSQL runs with `{setting} = off`, and the loss of power would lose acknowledged tasks; set it to `on`"
            );
            return Err(Error::new(Fault::Refused(why), "use PostgreSQL"));
        }
    }
    lease.give_back();
    Ok(())
}

/// Brings the schema up to date, in one transaction and one process at a time.
pub(super) async fn migrate(pool: &Pool) -> Result<(), Error> {
    let doing = "bring the database's schema up to date";
    let failed = |failure: Failure| failure.error(doing);
    let lease = Lease::take(pool).await?;
    let begin = format!(
        "BEGIN; SELECT pg_advisory_xact_lock({MIGRATING}); \
         CREATE TABLE IF NOT EXISTS meta (version BIGINT PRIMARY KEY, checksum BYTEA NOT NULL)"
    );
    lease.batch(&begin).await.map_err(failed)?;
    let call = Call::new("SELECT version, checksum FROM meta ORDER BY version", Vec::new());
    let mut done = Vec::new();
    for row in lease.one(call).await.map_err(failed)? {
        let mut cells = crate::layout::Cells(row.into_iter());
        done.push((cells.small()?, cells.blob()?));
    }
    for step in migrate::missing(migrate::POSTGRES, &done)? {
        lease.batch(step.sql).await.map_err(failed)?;
        let values = vec![Cell::Int(step.version.into()), Cell::Blob(step.checksum())];
        lease
            .one(Call::new(
                "INSERT INTO meta (version, checksum) VALUES ($1, $2)",
                values,
            ))
            .await
            .map_err(failed)?;
    }
    lease.batch("COMMIT").await.map_err(failed)?;
    lease.give_back();
    Ok(())
}

/// A connection on loan. One that is not given back is closed, because nobody knows what it is in the middle of.
pub(super) struct Lease(Option<Object>);

impl Lease {
    pub(super) async fn take(pool: &Pool) -> Result<Lease, Error> {
        pool.get()
            .await
            .map(|client| Lease(Some(client)))
            .map_err(|cause| {
                let fault = match &cause {
                    PoolError::Backend(cause) => fault(cause),
                    PoolError::Timeout(_) => Fault::Unavailable,
                    PoolError::Closed | PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_) => {
                        Fault::Broken
                    }
                };
                Error::new(fault, "connect to PostgreSQL").caused_by(cause)
            })
    }

    /// Returns a connection that is in no transaction.
    pub(super) fn give_back(mut self) {
        drop(self.0.take());
    }

    fn client(&self) -> Result<&Object, Failure> {
        self.0.as_ref().ok_or(Failure::TimedOut)
    }

    pub(super) async fn batch(&self, sql: &str) -> Result<(), Failure> {
        timed(async { Ok(self.client()?.batch_execute(sql).await?) }).await
    }

    /// Runs one statement.
    pub(super) async fn one(&self, call: Call) -> Result<Vec<Vec<Cell>>, Failure> {
        let mut rows = self.all(None, &[call], None).await?;
        Ok(rows.pop().unwrap_or_default())
    }

    /// Sends `first`, the calls and `last` in one round trip and returns the rows of the calls. The first failure
    /// in their order is returned; the server does nothing after it, and a `COMMIT` then undoes.
    pub(super) async fn all(
        &self,
        first: Option<&str>,
        calls: &[Call],
        last: Option<&str>,
    ) -> Result<Vec<Vec<Vec<Cell>>>, Failure> {
        let client = self.client()?;
        timed(async {
            let mut sent: Vec<Sent<'_>> = Vec::new();
            let plain = |sql| -> Sent<'_> {
                Box::pin(async move { client.batch_execute(sql).await.map(|()| Vec::new()) })
            };
            sent.extend(first.map(plain));
            for call in calls {
                let statement = client.prepare_cached(&call.sql).await?;
                sent.push(Box::pin(async move {
                    let values: Vec<_> = call
                        .values
                        .iter()
                        .map(|cell| cell as &(dyn ToSql + Sync))
                        .collect();
                    client.query(&statement, &values).await
                }));
            }
            sent.extend(last.map(plain));
            let answers = in_order(sent).await.into_iter().collect::<Result<Vec<_>, _>>()?;
            let of_calls = answers
                .into_iter()
                .skip(usize::from(first.is_some()))
                .take(calls.len());
            of_calls
                .map(|rows| Ok(rows.iter().map(cells).collect::<Result<_, _>>()?))
                .collect()
        })
        .await
    }

    /// The versions of these tasks.
    pub(super) async fn versions(&self, ids: &[&[u8]]) -> Result<Vec<Vec<Cell>>, Failure> {
        let client = self.client()?;
        timed(async {
            let statement = client
                .prepare_cached("SELECT id, version FROM tasks WHERE id = ANY($1)")
                .await?;
            let rows = client.query(&statement, &[&ids]).await?;
            Ok(rows.iter().map(cells).collect::<Result<_, _>>()?)
        })
        .await
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(client) = self.0.take() {
            drop(Object::take(client));
        }
    }
}

/// One statement with its values.
pub(super) struct Call {
    sql: String,
    values: Vec<Cell>,
}

impl Call {
    pub(super) fn new(sql: impl Into<String>, values: Vec<Cell>) -> Call {
        Call {
            sql: sql.into(),
            values,
        }
    }
}

/// Why a round trip failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server or the connection said so.
    Database(tokio_postgres::Error),
    /// No answer in time.
    TimedOut,
}

impl From<tokio_postgres::Error> for Failure {
    fn from(cause: tokio_postgres::Error) -> Failure {
        Failure::Database(cause)
    }
}

impl Failure {
    /// The connection is of no more use, and whether the last statement was done is unknown.
    pub(super) fn is_lost(&self) -> bool {
        match self {
            Failure::Database(cause) => cause.is_closed() || cause.code().is_none_or(ends_connection),
            Failure::TimedOut => true,
        }
    }

    /// The database asks to try again.
    pub(super) fn is_conflict(&self) -> bool {
        self.has(&SqlState::T_R_SERIALIZATION_FAILURE) || self.has(&SqlState::T_R_DEADLOCK_DETECTED)
    }

    /// The server has this reason.
    pub(super) fn has(&self, state: &SqlState) -> bool {
        matches!(self, Failure::Database(cause) if cause.code() == Some(state))
    }

    pub(super) fn error(self, doing: &str) -> Error {
        match self {
            Failure::Database(cause) => Error::new(fault(&cause), doing).caused_by(cause),
            Failure::TimedOut => Error::new(Fault::Unavailable, doing).caused_by(NoAnswer),
        }
    }
}

#[derive(Debug)]
struct NoAnswer;

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgreSQL did not answer within {} s", CALL.as_secs())
    }
}

impl error::Error for NoAnswer {}

type Sent<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<tokio_postgres::Row>, tokio_postgres::Error>> + Send + 'a>>;

/// Polls all in their order, so that they are sent in it, and waits for all.
async fn in_order(mut sent: Vec<Sent<'_>>) -> Vec<Result<Vec<tokio_postgres::Row>, tokio_postgres::Error>> {
    let mut answers: Vec<Option<_>> = sent.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (sent, answer) in sent.iter_mut().zip(&mut answers) {
            if answer.is_none()
                && let Poll::Ready(ready) = sent.as_mut().poll(context)
            {
                *answer = Some(ready);
            }
        }
        if answers.iter().all(Option::is_some) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    answers.into_iter().flatten().collect()
}

async fn timed<T>(call: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::time::timeout(CALL, call)
        .await
        .unwrap_or(Err(Failure::TimedOut))
}

fn ends_connection(state: &SqlState) -> bool {
    state.code().starts_with("08")
        || state.code().starts_with("57P")
        || *state == SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT
}

fn fault(cause: &tokio_postgres::Error) -> Fault {
    let Some(state) = cause.code() else {
        // Without a code it never reached the server, or never came back, unless we built it wrong ourselves.
        let ours =
            error::Error::source(cause).is_some_and(|source| source.is::<tokio_postgres::types::WrongType>());
        return if ours { Fault::Broken } else { Fault::Unavailable };
    };
    let busy = [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::QUERY_CANCELED,
        SqlState::TOO_MANY_CONNECTIONS,
        SqlState::READ_ONLY_SQL_TRANSACTION,
    ];
    if *state == SqlState::DISK_FULL {
        Fault::Full
    } else if busy.contains(state) || ends_connection(state) {
        Fault::Unavailable
    } else {
        Fault::Broken
    }
}

fn cells(row: &tokio_postgres::Row) -> Result<Vec<Cell>, tokio_postgres::Error> {
    (0..row.len()).map(|column| row.try_get(column)).collect()
}

impl ToSql for Cell {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn error::Error + Sync + Send>> {
        match self {
            Cell::Null => Ok(IsNull::Yes),
            Cell::Int(int) => int.to_sql_checked(ty, out),
            Cell::Text(text) => text.to_sql_checked(ty, out),
            Cell::Blob(blob) => blob.to_sql_checked(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Cell {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Cell, Box<dyn error::Error + Sync + Send>> {
        if *ty == Type::INT8 {
            i64::from_sql(ty, raw).map(Cell::Int)
        } else if *ty == Type::BYTEA {
            Vec::from_sql(ty, raw).map(Cell::Blob)
        } else {
            String::from_sql(ty, raw).map(Cell::Text)
        }
    }

    fn from_sql_null(_: &Type) -> Result<Cell, Box<dyn error::Error + Sync + Send>> {
        Ok(Cell::Null)
    }

    fn accepts(ty: &Type) -> bool {
        [Type::INT8, Type::BYTEA, Type::TEXT].contains(ty)
    }
}
