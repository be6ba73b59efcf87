//! What keeps a store from being opened: an operator acts on it.

use std::fmt;
use std::path::PathBuf;

use crate::store::Error;

/// Why a store is not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It cannot be read or written.
    #[error(transparent)]
    Store(#[from] Error),
    /// It is not as it was left: something is missing, or would be if it were opened.
    #[error(transparent)]
    Damaged(#[from] Damage),
}

/// What of a store is not as it was left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file or folder where that was noticed.
    pub path: PathBuf,
    /// What is wrong there.
    pub what: String,
    /// The commits that are missing, if that is known.
    pub loss: Option<Loss>,
}

/// A stretch of commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The first commit that is missing.
    pub first: u64,
    /// The last commit that is known to be missing.
    pub last: u64,
}

impl Damage {
    pub(crate) fn of(path: impl Into<PathBuf>, what: impl Into<String>) -> Self {
        Self { path: path.into(), what: what.into(), loss: None }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.as_os_str().is_empty() {
            write!(f, "{}: ", self.path.display())?;
        }
        f.write_str(&self.what)?;
        match self.loss {
            None => Ok(()),
            Some(Loss { first, last }) if first == last => write!(f, " (commit {first} is missing)"),
            Some(Loss { first, last }) => {
                write!(f, " ({} commits are missing, {first} to {last})", last.saturating_sub(first).saturating_add(1))
            }
        }
    }
}

impl std::error::Error for Damage {}
