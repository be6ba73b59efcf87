//! The audit log: a line of JSON for each change that an operator requests, including rejected ones. It is
//! written to `http.audit`, else to the daemon's log. Pushing and taking jobs is normal work, and is not
//! logged.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use serde::Serialize;

/// The log.
#[derive(Debug)]
pub(crate) struct Audit {
    /// Opened for each line, so that it can be moved away at any time.
    path: Option<PathBuf>,
}

/// A line.
#[derive(Debug, Serialize)]
pub(crate) struct Line<'a> {
    pub(crate) at: Option<String>,
    pub(crate) who: &'a str,
    pub(crate) address: &'a str,
    /// The method and the path.
    pub(crate) change: &'a str,
    /// The parameters: conditions, and how.
    pub(crate) parameters: &'a str,
    pub(crate) status: u16,
    /// The number of modified jobs, for a bulk change.
    pub(crate) changed: Option<u64>,
}

/// The number of jobs that a request has modified: an extension of the response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Affected(pub(crate) u64);

impl Audit {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            path: (!path.as_os_str().is_empty()).then_some(path),
        }
    }

    pub(crate) fn record(&self, line: &Line<'_>) {
        let Some(path) = &self.path else {
            let Line {
                who,
                address,
                change,
                parameters,
                status,
                changed,
                ..
            } = line;
            tracing::info!(
                who,
                address,
                change,
                parameters,
                status,
                changed,
                "http: an operator's change"
            );
            return;
        };
        if let Err(error) = append(path, line) {
            tracing::error!(path = %path.display(), %error, ?line, "http: the audit log cannot be written");
        }
    }
}

fn append(path: &PathBuf, line: &Line<'_>) -> io::Result<()> {
    let text = serde_json::to_string(line)? + "\n";
    // It contains names of people, queues and addresses.
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)?
        .write_all(text.as_bytes())
}
