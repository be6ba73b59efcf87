//! What an operator should look at first.

use std::sync::Arc;
use std::time::Duration;

use windlass_engine::{Cursor, JobStateKind, Query, QueueRow, Reply};

use super::shell::Age;
use crate::app::App;
use crate::name::Name;

/// Queues that are looked at for each overview.
const QUEUES_MAX: u32 = 1_000;

/// Queues that are named.
const NAMED_MAX: usize = 5;

/// A job that has waited longer is worth a line.
const OLD: Duration = Duration::from_secs(600);

/// A certificate that ends sooner is worth a line.
const CERTIFICATE: u64 = 14 * 86_400;

/// A disk with less room is worth a line, in bytes.
const ROOM: u64 = 1 << 30;

/// A line, and where it leads.
#[derive(Debug)]
pub(super) struct Concern {
    pub(super) text: String,
    /// Below the prefix; empty if there is no page.
    pub(super) to: String,
    /// It is not only a hint.
    pub(super) is_bad: bool,
}

/// Looks at the daemon. What does not answer is left out.
pub(super) async fn look(app: &Arc<App>) -> Vec<Concern> {
    let mut concerns = limits(app).await;
    let query = Query::Queues { after: Cursor::default(), limit: QUEUES_MAX };
    if let Ok(Reply::Queues { rows, .. }) = app.ask(query).await {
        concerns.extend(unserved(&rows));
        concerns.extend(oldest(app, &rows));
    }
    concerns
}

fn ready(row: &QueueRow) -> u32 {
    row.places.get(JobStateKind::Ready as usize).copied().unwrap_or_default()
}

/// Queues whose jobs nobody takes.
fn unserved(rows: &[QueueRow]) -> Option<Concern> {
    let leased = |row: &QueueRow| row.places.get(JobStateKind::Leased as usize).copied().unwrap_or_default();
    let is_unserved = |row: &&QueueRow| ready(row) > 0 && row.workers == 0 && leased(row) == 0 && !row.is_paused();
    let queues: Vec<String> = rows.iter().filter(is_unserved).map(|row| Name(row.name.clone()).to_string()).collect();
    let named = queues.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    let more = queues.len().saturating_sub(NAMED_MAX);
    let text = match (queues.len(), more) {
        (0, _) => return None,
        (1, _) => format!("Jobs of {named} wait, and no worker serves it"),
        (_, 0) => format!("Jobs wait where no worker serves: {named}"),
        (_, more) => format!("Jobs wait where no worker serves: {named} and {more} more"),
    };
    Some(Concern { text, to: "/queues?sort=ready".to_owned(), is_bad: true })
}

/// The oldest job that could run.
fn oldest(app: &App, rows: &[QueueRow]) -> Option<Concern> {
    let waits = rows.iter().filter(|row| !row.is_paused()).filter_map(|row| Some((row.oldest_ready_at?, row)));
    let (at, row) = waits.min_by_key(|(at, _)| *at)?;
    let waited = Duration::from_millis(app.now().wall.ms_since(at));
    let name = Name(row.name.clone()).to_string();
    let to: String = form_urlencoded::byte_serialize(name.as_bytes()).collect();
    let text = format!("The oldest ready job has waited for {}, in {name}", Age(waited));
    (waited > OLD).then(|| Concern { text, to: format!("/jobs?state=ready&queue={to}"), is_bad: false })
}

/// Limits that are nearly reached, the disk, and certificates.
async fn limits(app: &App) -> Vec<Concern> {
    let snapshot = app.daemon_figures.read();
    let hint = |text: String, to: &str, is_bad| Concern { text, to: to.to_owned(), is_bad };
    let mut concerns = Vec::new();
    if let Ok(stats) = app.stats().await {
        let nearly = |is: u64, most: u64| most > 0 && is >= most.saturating_sub(most / 10);
        if nearly(stats.jobs, snapshot.jobs_max) {
            concerns.push(hint(
                format!("{} of {} jobs: limits.jobs_max", stats.jobs, snapshot.jobs_max),
                "/jobs",
                true,
            ));
        }
        let (in_memory, most) = snapshot.memory.bytes;
        if nearly(in_memory, most) {
            let text = format!("Jobs take {} of {} MiB of memory: limits.memory", in_memory >> 20, most >> 20);
            concerns.push(hint(text, "/queues?sort=ready", true));
        }
        if let Some(most) = snapshot.jobs_bytes_max.filter(|most| nearly(stats.bytes, *most)) {
            let text = format!("Jobs take {} of {} MiB: limits.jobs_bytes_max", stats.bytes >> 20, most >> 20);
            concerns.push(hint(text, "/queues?sort=ready", true));
        }
    }
    if let Some(free) = snapshot.free_bytes.filter(|free| *free < ROOM) {
        concerns.push(hint(format!("The disk of the store has {} MiB left", free >> 20), "", true));
    }
    let now = app.now().wall.0 / 1_000;
    for (protocol, ends_at) in snapshot.certificates_end_at {
        let left = ends_at.saturating_sub(now);
        if left < CERTIFICATE {
            let text = match left {
                0 => format!("The certificate of {protocol} has ended"),
                left => format!("The certificate of {protocol} ends in {} days", left / 86_400),
            };
            concerns.push(hint(text, "", true));
        }
    }
    concerns
}
