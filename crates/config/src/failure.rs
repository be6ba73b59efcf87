//! Why a command or the daemon ended, grouped by what its supervisor should do about it. The exit code is part of the interface.

use std::fmt::{self, Display};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// Why the daemon did not start, or did not stop cleanly, or why a command failed. Its text is one line, except for [`Failure::Config`], which
/// may show a place in a file below.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The daemon ran and cannot continue: the store has failed, a thread cannot start, there is a bug.
    #[error("{0}")]
    Runtime(String),
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] Error),
    /// Names of addresses cannot be resolved. Each with its key.
    #[error("{}", .0.join("; "))]
    Unresolved(Vec<String>),
    /// Addresses that cannot be bound.
    #[error("cannot listen on {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; on "))]
    Listen(Vec<Unbound>),
    /// The data directory, or the database with the store, is in use, damaged or unreachable.
    #[error("cannot open {place}: {reason}")]
    Data {
        /// The directory, or the database.
        place: String,
        /// The problem with it.
        reason: String,
    },
    /// Another daemon has taken the store over.
    #[error("{0}: stopped; no acknowledged change is lost")]
    Deposed(String),
    /// A file to import has the wrong format, or cannot be read.
    #[error("{}: {reason}", file.display())]
    Source {
        /// The file.
        file: PathBuf,
        /// The problem with it.
        reason: String,
    },
    /// The import or export is incomplete.
    #[error("{0}")]
    Incomplete(String),
}

/// An address that cannot be bound, its key and the system's error.
#[derive(Debug)]
pub struct Unbound {
    address: String,
    key: String,
    error: io::Error,
}

impl Unbound {
    /// An address, its key, and why it cannot be listened on.
    pub fn new(address: &impl Display, key: String, error: io::Error) -> Self {
        Self {
            address: address.to_string(),
            key,
            error,
        }
    }

    /// Whether another program listens on it.
    pub fn is_in_use(&self) -> bool {
        self.error.kind() == io::ErrorKind::AddrInUse
    }
}

impl Display for Unbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            address,
            key,
            error,
        } = self;
        if self.is_in_use() {
            write!(f, "{address}: the address is in use ({key})")
        } else {
            write!(f, "{address}: {error} ({key})")
        }
    }
}

impl Failure {
    /// A data directory that cannot be opened, or whose journal cannot be read.
    pub fn data(data_dir: &Path, reason: impl Display) -> Self {
        Self::data_at(data_dir.display(), reason)
    }

    /// A store that cannot be opened, wherever it is.
    pub fn data_at(place: impl Display, reason: impl Display) -> Self {
        Self::Data {
            place: place.to_string(),
            reason: reason.to_string(),
        }
    }

    /// A file that cannot be used, with the reason.
    pub fn unusable(file: &Path, reason: impl Display) -> Self {
        Self::Source {
            file: file.to_owned(),
            reason: reason.to_string(),
        }
    }

    /// The system starts no more threads.
    pub fn no_threads(error: io::Error) -> Self {
        Self::Runtime(format!("cannot start threads: {error}"))
    }

    /// The exit code of the process.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Runtime(_) => 1,
            Self::Config(_) | Self::Source { .. } => 2,
            Self::Listen(_) | Self::Unresolved(_) => 3,
            Self::Data { .. } => 4,
            Self::Incomplete(_) => 5,
            Self::Deposed(_) => 6,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_and_messages() {
        let busy = io::Error::from(io::ErrorKind::AddrInUse);
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        let zero = Error::senseless("limits.jobs_max", "must be more than 0");
        let table = [
            (
                1,
                Failure::Runtime("the store has failed".to_owned()),
                "the store has failed",
            ),
            (2, zero.into(), "limits.jobs_max: must be more than 0"),
            (
                3,
                Failure::Listen(vec![
                    Unbound::new(&"127.0.0.1:4730", "gearman.listen".to_owned(), busy),
                    Unbound::new(&"unix:/x", "http.listen".to_owned(), denied),
                ]),
                "cannot listen on 127.0.0.1:4730: the address is in use (gearman.listen); on unix:/x: permission denied (http.listen)",
            ),
            (
                4,
                Failure::data(Path::new("/data"), "locked"),
                "cannot open /data: locked",
            ),
            (
                5,
                Failure::Incomplete("1 row is left".to_owned()),
                "1 row is left",
            ),
            (
                6,
                Failure::Deposed("postgres://h/d was taken over by h2".to_owned()),
                "postgres://h/d was taken over by h2: stopped; no acknowledged change is lost",
            ),
        ];
        for (code, failure, line) in table {
            assert_eq!(
                (failure.exit_code(), failure.to_string().as_str()),
                (code, line)
            );
        }
    }
}
