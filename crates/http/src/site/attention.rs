//! What an operator should look at first.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use windlass_engine::{Cursor, JobStateKind, Query, QueueRow, Reply, Timestamp};

use super::shell::Age;
use crate::app::App;
use crate::name::Name;

/// Queues that are looked at for each overview. More of them are looked at in between.
const QUEUES_MAX: u32 = 1_000;

/// How long queues are looked at after an overview.
const ASKED: Duration = Duration::from_secs(60);

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

/// What all queues show together.
#[derive(Clone, Debug, Default)]
struct Survey {
    /// Queues whose jobs no worker takes.
    unserved: usize,
    /// Some of them.
    names: Vec<String>,
    /// The oldest job that could run: since when, and where.
    oldest: Option<(Timestamp, String)>,
}

/// The last survey of more queues than one look can see, and when an overview last asked for it.
#[derive(Debug, Default)]
pub(crate) struct Surveys(Mutex<(Option<Survey>, Option<Instant>)>);

/// Looks at the daemon. What does not answer is left out.
pub(super) async fn look(app: &Arc<App>) -> Vec<Concern> {
    let mut concerns = limits(app).await;
    let query = Query::Queues { after: Cursor::default(), limit: QUEUES_MAX };
    if let Ok(Reply::Queues { rows, next }) = app.ask(query).await {
        let mut survey = Survey::default();
        survey.add(&rows);
        let of_all = next.and_then(|_| app.surveys.ask());
        concerns.extend(of_all.unwrap_or(survey).concerns(app));
    }
    concerns
}

/// Looks at all queues, a page at a time, while overviews ask for it.
pub(super) async fn survey(app: &Arc<App>) {
    let is_asked = app.surveys.of().1.is_some_and(|at| at.elapsed() < ASKED);
    let (mut survey, mut client) = (Survey::default(), app.client());
    let mut after = is_asked.then(Cursor::default);
    while let Some(from) = after.take() {
        let query = Query::Queues { after: from, limit: QUEUES_MAX };
        let Ok(Reply::Queues { rows, next }) = client.ask(query).await else { return };
        survey.add(&rows);
        after = next;
    }
    app.surveys.of().0 = is_asked.then_some(survey);
}

impl Surveys {
    fn of(&self) -> MutexGuard<'_, (Option<Survey>, Option<Instant>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last one, if there is one. More will follow for a while.
    fn ask(&self) -> Option<Survey> {
        let mut of = self.of();
        of.1 = Some(Instant::now());
        of.0.clone()
    }
}

impl Survey {
    fn add(&mut self, rows: &[QueueRow]) {
        for row in rows.iter().filter(|row| !row.is_paused()) {
            let name = || Name(row.name.clone()).to_string();
            if row.workers == 0 && row.jobs(JobStateKind::Ready) > 0 && row.jobs(JobStateKind::Leased) == 0 {
                self.unserved += 1;
                if self.names.len() < NAMED_MAX {
                    self.names.push(name());
                }
            }
            let is_older = |at: &Timestamp| self.oldest.as_ref().is_none_or(|(oldest, _)| at < oldest);
            if let Some(at) = row.oldest_ready_at.filter(is_older) {
                self.oldest = Some((at, name()));
            }
        }
    }

    fn concerns(&self, app: &App) -> impl Iterator<Item = Concern> {
        let (named, more) = (self.names.join(", "), self.unserved.saturating_sub(self.names.len()));
        let text = match (self.unserved, more) {
            (0, _) => None,
            (1, _) => Some(format!("Jobs of {named} wait, and no worker serves it")),
            (_, 0) => Some(format!("Jobs wait where no worker serves: {named}")),
            (_, more) => Some(format!("Jobs wait where no worker serves: {named} and {more} more")),
        };
        let unserved = text.map(|text| Concern { text, to: "/queues?sort=ready".to_owned(), is_bad: true });
        let oldest = self.oldest.as_ref().and_then(|(at, name)| {
            let waited = Duration::from_millis(app.now().wall.ms_since(*at));
            let to: String = form_urlencoded::byte_serialize(name.as_bytes()).collect();
            let text = format!("The oldest ready job has waited for {}, in {name}", Age(waited));
            (waited > OLD).then(|| Concern { text, to: format!("/jobs?state=ready&queue={to}"), is_bad: false })
        });
        unserved.into_iter().chain(oldest)
    }
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
