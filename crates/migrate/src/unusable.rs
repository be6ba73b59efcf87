//! The error for a file that is of no use.

use std::fmt::Display;
use std::path::Path;

use windlass_daemon::Failure;

/// A file that cannot be used, and why.
pub(crate) fn unusable(file: &Path, reason: impl Display) -> Failure {
    Failure::Source { file: file.to_owned(), reason: reason.to_string() }
}
