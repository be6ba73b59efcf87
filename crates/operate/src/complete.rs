//! Completes the next word of a command line with names from a running daemon.

use std::time::Duration;

use serde_json::Value;

use crate::arguments::{Ask, Operate};
use crate::client::{DataDir, runtime};
use crate::show::{at, printable, text};

/// How long a shell waits for names.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Maximum number of rows that are read.
const ROWS_MAX: usize = 10_000;

/// Where names come from: a listing, the path of the name in a row, and the paths of its
/// description.
type Source = (&'static str, &'static str, &'static [&'static str]);

/// Where the names for an argument come from.
fn source(command: &str, argument: &str) -> Option<Source> {
    const JOB: &[&str] = &["/state", "/queue", "/kind"];
    Some(match (command, argument) {
        (_, "queue" | "queues") => ("/queues", "/name", &[]),
        (_, "worker") => ("/workers", "/name", &["/state", "/host"]),
        (_, "batch") => ("/batches", "/name", &["/description"]),
        (_, "namespace") | ("namespace", "named" | "to") => ("/namespaces", "/name", &[]),
        ("schedule", "ids") => ("/schedules", "/id", &["/name", "/queue", "/when"]),
        ("disconnect", "ids") => ("/connections", "/id", &["/protocol", "/address", "/name"]),
        ("retry", "ids") => ("/jobs?state=dead", "/id", JOB),
        ("requeue", "ids") => ("/jobs?state=leased", "/id", JOB),
        ("job", "id") | (_, "ids") => ("/jobs", "/id", JOB),
        _ => return None,
    })
}

/// The names for an argument of a command, with descriptions; none if the daemon does not respond
/// soon.
pub fn names(
    asker: &Operate,
    command: &str,
    argument: &str,
    data_dir: DataDir,
) -> Vec<(String, String)> {
    let Some((path, name, about)) = source(command, argument) else {
        return Vec::new();
    };
    let found = runtime().map(|runtime| {
        runtime.block_on(async {
            tokio::time::timeout(WAIT_MAX, rows(&asker.ask, path, data_dir)).await
        })
    });
    let rows = found.ok().and_then(Result::ok).unwrap_or_default();
    let named = |row: &Value| {
        let about = about.iter().map(|place| printable(&text(at(row, place))));
        (
            text(at(row, name)),
            about
                .filter(|it| !it.is_empty())
                .collect::<Vec<_>>()
                .join(" "),
        )
    };
    rows.iter()
        .map(named)
        .filter(|(name, _)| is_plain(name))
        .collect()
}

async fn rows(ask: &Ask, path: &str, data_dir: DataDir) -> Vec<Value> {
    match ask.connect(data_dir).await {
        Ok(mut client) => client.rows(path, ROWS_MAX).await.unwrap_or_default(),
        Err(_) => Vec::new(),
    }
}

/// Whether a name has no special meaning in any shell, and is not an option. Clients choose names,
/// so a shell might otherwise execute them.
fn is_plain(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:@%+,".contains(&byte);
    !name.is_empty() && !name.starts_with('-') && name.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_gets_only_names_that_mean_nothing_to_it() {
        for name in ["mails", "app:mails", "a/b.c", "worker-05@host", "7"] {
            assert!(is_plain(name), "{name}");
        }
        for name in [
            "", "a b", "$(id)", "`id`", "-x", "a;b", "a\nb", "~root", "*", "a'b", "ü", "a\tb",
            "{a,b}",
        ] {
            assert!(!is_plain(name), "{name}");
        }
    }
}
