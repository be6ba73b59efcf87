//! Errors of the configuration. Every message names the place to look at; its first line is enough to act on.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::PathBuf;

use crate::secret::{is_in_passwords, shown_bytes};
use crate::words::system;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read {}: {}", path.display(), system(reason))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        reason: io::Error,
    },
    /// The file is not TOML, has an unknown key, or a value of the wrong kind.
    #[error("{}:{spot}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The place, and what is wrong there.
        spot: Box<Spot>,
    },
    /// A key set outside the file is unknown or has a wrong value.
    #[error("{protocol}: {reason}")]
    Override {
        /// The variable or the argument.
        protocol: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A well-formed value that makes no sense, alone or beside others.
    #[error("{key}: {reason}")]
    Senseless {
        /// The key, as `section.key`.
        key: Cow<'static, str>,
        /// What is wrong with it.
        reason: String,
    },
    /// The files of a TLS listener cannot be used.
    #[error("{protocol}.tls.{reason}")]
    Tls {
        /// The section with the listener.
        protocol: &'static str,
        /// The key, the file, and what is wrong with it.
        reason: TlsError,
    },
}

impl Error {
    /// A well-formed value that makes no sense.
    pub fn senseless(key: impl Into<Cow<'static, str>>, reason: impl ToString) -> Self {
        Self::Senseless {
            key: key.into(),
            reason: reason.to_string(),
        }
    }
}

/// Why the files of a TLS listener cannot be used. The message starts with the key.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A key that another key requires is missing.
    #[error("{key}: must be given with {with}")]
    Missing {
        /// The missing key.
        key: &'static str,
        /// The key that requires it.
        with: &'static str,
    },
    /// A file cannot be read.
    #[error("{key}: cannot read {}: {}", path.display(), system(reason))]
    Unreadable {
        /// The key with the file's name.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        reason: io::Error,
    },
    /// A file has the wrong content.
    #[error("{key}: {}: {reason}", path.display())]
    Unusable {
        /// The key with the file's name.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with the content.
        reason: String,
    },
}

/// A place in a text, and what is wrong there: `line:column: message`, followed by the line with carets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// The line.
    text: String,
    /// How many characters to mark; at least 1.
    width: usize,
}

impl Spot {
    /// The place of a range of bytes in a text.
    pub(crate) fn new(text: &str, range: Range<usize>, message: &str) -> Self {
        let before = text.get(..range.start).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let rest = text.get(line_start..).unwrap_or_default();
        let line = rest
            .split('\n')
            .next()
            .unwrap_or_default()
            .trim_end_matches('\r');
        let shown = if is_in_passwords(before) {
            line.find('=').map_or(line.len(), |at| at + 1)
        } else {
            shown_bytes(line)
        };
        let line = line.get(..shown).unwrap_or_default();
        // A wrong value is in the message, too.
        let is_hidden = range.start > line_start + line.len();
        let message = if is_hidden { "invalid value" } else { message };
        let column = before.get(line_start..).unwrap_or_default().chars().count();
        let meant = text
            .get(range)
            .filter(|_| !is_hidden)
            .unwrap_or_default()
            .split('\n')
            .next()
            .unwrap_or_default();
        Self {
            line: before.matches('\n').count() + 1,
            column: column + 1,
            message: message.trim().replace('\n', "; "),
            // A tab would shift the carets.
            text: line.replace('\t', " "),
            width: meant.trim_end().chars().count().max(1),
        }
    }
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            line,
            column,
            message,
            text,
            width,
        } = self;
        let margin = line.to_string().len();
        writeln!(f, "{line}:{column}: {message}")?;
        writeln!(f, "{:margin$} |", "")?;
        writeln!(f, "{line} | {text}")?;
        write!(
            f,
            "{:margin$} | {:indent$}{}",
            "",
            "",
            "^".repeat(*width),
            indent = column - 1
        )
    }
}
