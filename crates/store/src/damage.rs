//! Reasons not to open a store. They require the operator.

use std::fmt;

use crate::store::Error;

/// Why a store is not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It cannot be read or written.
    #[error(transparent)]
    Store(#[from] Error),
    /// Data is missing, or opening the store would destroy data.
    #[error(transparent)]
    Damaged(#[from] Damage),
}

/// Damage to a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The damaged part; empty for the complete store.
    pub place: String,
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
    pub(crate) fn of(place: impl fmt::Display, what: impl Into<String>) -> Self {
        Self {
            place: place.to_string(),
            what: what.into(),
            loss: None,
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(&self.what)?;
        match self.loss {
            None => Ok(()),
            Some(Loss { first, last }) if first == last => {
                write!(f, " (commit {first} is missing)")
            }
            Some(Loss { first, last }) => write!(f, " (commits {first} to {last} are missing)"),
        }
    }
}

impl std::error::Error for Damage {}
