//! Reasons not to open a store. They require the operator.

use std::fmt;
use std::path::PathBuf;

use crate::store::Error;

/// Why a store is not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It cannot be read or written.
    #[error(transparent)]
    Store(#[from] Error),
    /// Data is missing, or would be lost by opening the store.
    #[error(transparent)]
    Damaged(#[from] Damage),
}

/// Damage to a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file or folder with the damage.
    pub path: PathBuf,
    /// The damage.
    pub what: String,
    /// The missing commits, if known.
    pub loss: Option<Loss>,
}

/// A range of commits.
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
