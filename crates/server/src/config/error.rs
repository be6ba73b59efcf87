//! Why there is no configuration. Every message says where the operator has to look; the first line is enough to act on.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::PathBuf;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read {}: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: io::Error,
    },
    /// The file is no TOML, has a key that does not exist, or a value of the wrong kind.
    #[error("{}:{spot}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where, and what is wrong there.
        spot: Box<Spot>,
    },
    /// A key given outside the file does not fit.
    #[error("{origin}: {reason}")]
    Override {
        /// The variable or the argument.
        origin: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Each value may be right, but together or in this place they make no sense.
    #[error("{key}: {reason}")]
    Senseless {
        /// The key, as `section.key`.
        key: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The files of a TLS listener cannot be used.
    #[error("{protocol}.tls.{reason}")]
    Tls {
        /// Whose listener it is: the section.
        protocol: &'static str,
        /// Which key, which file, and what is wrong with it.
        reason: TlsError,
    },
}

/// Why the files of a TLS listener cannot be used. What it displays starts with the key that is wrong.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// One key makes no sense without another.
    #[error("{key}: must be given with {with}")]
    Missing {
        /// The one that is not there.
        key: &'static str,
        /// The one that is.
        with: &'static str,
    },
    /// A file cannot be read.
    #[error("{key}: cannot read {}: {reason}", path.display())]
    Unreadable {
        /// The key that names it.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: io::Error,
    },
    /// A file is not what it should be.
    #[error("{key}: {}: {reason}", path.display())]
    Unusable {
        /// The key that names it.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with what is in it.
        reason: String,
    },
}

/// A place in a text, with what is wrong there: `line:column: message`, and below it the line with carets.
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
    /// How many characters of it are meant; at least 1.
    width: usize,
}

impl Spot {
    /// The place of a range of bytes in a text.
    pub(super) fn new(text: &str, range: Range<usize>, message: &str) -> Self {
        let before = text.get(..range.start).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let rest = text.get(line_start..).unwrap_or_default();
        let line = rest.split('\n').next().unwrap_or_default().trim_end_matches('\r');
        let column = before.get(line_start..).unwrap_or_default().chars().count();
        let meant = text.get(range).unwrap_or_default().split('\n').next().unwrap_or_default();
        Self {
            line: before.matches('\n').count() + 1,
            column: column + 1,
            message: message.trim().replace('\n', "; "),
            // A tab would move the carets away from what they point at.
            text: line.replace('\t', " "),
            width: meant.trim_end().chars().count().max(1),
        }
    }
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column, message, text, width } = self;
        let margin = line.to_string().len();
        writeln!(f, "{line}:{column}: {message}")?;
        writeln!(f, "{:margin$} |", "")?;
        writeln!(f, "{line} | {text}")?;
        write!(f, "{:margin$} | {:indent$}{}", "", "", "^".repeat(*width), indent = column - 1)
    }
}
