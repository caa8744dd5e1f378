//! What can go wrong with a store, for the engine and the binary. It never carries a body, a key or a row.

use std::{error, fmt, sync::Arc};

/// A store's failure. Unless [`Error::ambiguous`] says otherwise, nothing was written.
#[derive(Clone, Debug)]
pub struct Error {
    /// What kind of failure it is, and so what the caller does next.
    pub fault: Fault,
    /// Whether the step may have been committed all the same: the commit was sent and its reply is lost.
    pub ambiguous: bool,
    doing: String,
    source: Option<Arc<dyn error::Error + Send + Sync>>,
}

/// The kinds of failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The store cannot be reached, or was busy for too long. Trying again later may help.
    Unavailable,
    /// The disk is full. Reads go on; writes go on once there is space.
    Full,
    /// The database was written by a newer program.
    Newer {
        /// The schema that was found.
        found: u32,
        /// The newest schema that this program knows.
        known: u32,
    },
    /// The store refuses to work in this place or with this setting, which is named.
    Refused(String),
    /// Anything else: a broken promise, a damaged file, a failed disk. Trying again does not help.
    Broken,
}

impl Error {
    /// A failure of this kind while doing `doing`: an infinitive, what with what.
    pub fn new(fault: Fault, doing: impl Into<String>) -> Error {
        Error {
            fault,
            ambiguous: false,
            doing: doing.into(),
            source: None,
        }
    }

    /// A failure with its cause.
    #[must_use]
    pub fn caused_by(mut self, source: impl error::Error + Send + Sync + 'static) -> Error {
        self.source = Some(Arc::new(source));
        self
    }

    /// The same failure, of a commit whose reply is lost.
    #[must_use]
    pub fn ambiguous(mut self) -> Error {
        self.ambiguous = true;
        self
    }

    pub(crate) fn broken(doing: impl Into<String>) -> Error {
        Error::new(Fault::Broken, doing)
    }
}

impl fmt::Display for Error {
    /// What was tried, with what, and what to do. It fits after "failed to".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.doing)?;
        match &self.fault {
            Fault::Unavailable => f.write_str("the store cannot be reached or is busy; try again later")?,
            Fault::Full => f.write_str("the disk is full; free some space and try again")?,
            Fault::Newer { found, known } => write!(
                f,
                "the database has schema {found} and this program knows schemas up to {known}; run a newer longhaul"
            )?,
            Fault::Refused(setting) => f.write_str(setting)?,
            Fault::Broken => f.write_str("the store is broken or was misused; run `longhaul doctor`")?,
        }
        if self.ambiguous {
            f.write_str(" (the step may have been committed)")?;
        }
        Ok(())
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.source
            .as_ref()
            .map(|source| &**source as &(dyn error::Error + 'static))
    }
}
