//! What an operator should look at first.

use std::time::Duration;

use windlass_daemon::client::Readiness;
use windlass_daemon::clock;
use windlass_engine::{Cursor, Query, Reply};

use super::shell::Age;
use super::survey::Survey;
use crate::app::App;

/// A job that has waited longer is worth a line.
const OLD: Duration = Duration::from_secs(600);

/// A certificate that ends sooner is worth a line.
const CERTIFICATE: u64 = 14 * 86_400;

/// A disk with less room is worth a line, in bytes.
const ROOM: u64 = 1 << 30;

/// A wall clock that differs more from the database's is worth a line.
const FAR: Duration = Duration::from_secs(5);

/// A line, and where it leads.
#[derive(Debug)]
pub(super) struct Concern {
    pub(super) text: String,
    /// Below the prefix; empty if there is no page.
    pub(super) to: String,
    /// It is not only a hint.
    pub(super) is_bad: bool,
}

/// Looks at the daemon, and at one page of its queues. More of them are looked at in between. What does not answer is left
/// out.
pub(super) async fn look(app: &App) -> Vec<Concern> {
    let mut concerns = Vec::from_iter(refusing(app));
    concerns.extend(limits(app).await);
    let query = Query::Queues { after: Cursor::default(), limit: u32::MAX };
    if let Ok(Reply::Queues { rows, next }) = app.ask(query).await {
        let mut survey = Survey::default();
        survey.add(&rows);
        let of_all = next.and_then(|_| app.surveys.ask());
        concerns.extend(of_queues(&of_all.unwrap_or(survey), app));
    }
    concerns
}

/// Looks at all queues, a page at a time, while overviews ask for it.
pub(super) async fn survey(app: &App) {
    let is_asked = app.surveys.is_asked();
    let (mut survey, mut client) = (Survey::default(), app.client());
    let mut after = is_asked.then(Cursor::default);
    while let Some(from) = after.take() {
        let query = Query::Queues { after: from, limit: u32::MAX };
        let Ok(Reply::Queues { rows, next }) = client.ask(query).await else { return };
        survey.add(&rows);
        after = next;
    }
    app.surveys.keep(is_asked.then_some(survey));
}

/// What there is to say of queues.
fn of_queues(survey: &Survey, app: &App) -> impl Iterator<Item = Concern> {
    let (named, more) = (survey.names.join(", "), survey.unserved.saturating_sub(survey.names.len()));
    let text = match (survey.unserved, more) {
        (0, _) => None,
        (1, _) => Some(format!("Jobs of {named} wait, and no worker serves it")),
        (_, 0) => Some(format!("Jobs wait where no worker serves: {named}")),
        (_, more) => Some(format!("Jobs wait where no worker serves: {named} and {more} more")),
    };
    let unserved = text.map(|text| Concern { text, to: "/queues?sort=-states.ready".to_owned(), is_bad: true });
    let oldest = survey.oldest.as_ref().and_then(|(at, name)| {
        let waited = Duration::from_millis(app.now().wall.ms_since(*at));
        let to: String = form_urlencoded::byte_serialize(name.as_bytes()).collect();
        let text = format!("The oldest ready job has waited for {}, in {name}", Age(waited));
        (waited > OLD).then(|| Concern { text, to: format!("/jobs?state=ready&queue={to}"), is_bad: false })
    });
    unserved.into_iter().chain(oldest)
}

/// What the daemon refuses, before everything else.
fn refusing(app: &App) -> Option<Concern> {
    let text = match app.clients.readiness() {
        Readiness::Ready | Readiness::Draining | Readiness::Stopping => return None,
        Readiness::DiskFull => "The disk is full: new jobs are refused, and existing jobs go on",
        Readiness::StoreFailed => "The store does not respond: nothing is acknowledged",
    };
    Some(Concern { text: text.to_owned(), to: String::new(), is_bad: true })
}

/// Limits that are nearly reached, the disk, and certificates.
async fn limits(app: &App) -> Vec<Concern> {
    let (snapshot, stats) = (app.daemon_figures.read(), app.stats().await.ok());
    let bad = |text: String, to: &str| Concern { text, to: to.to_owned(), is_bad: true };
    let nearly = |is: u64, most: u64| most > 0 && is >= most.saturating_sub(most / 10);
    let jobs = stats.as_ref().filter(|it| nearly(it.jobs, snapshot.jobs_max));
    let jobs = jobs.map(|it| bad(format!("{} of {} jobs: limits.jobs_max", it.jobs, snapshot.jobs_max), "/jobs"));
    let bytes = stats.as_ref().zip(snapshot.jobs_bytes_max).filter(|(it, most)| nearly(it.bytes, *most));
    let bytes = bytes.map(|(it, most)| {
        let text = format!("Jobs take {} of {} MiB: limits.jobs_bytes_max", it.bytes >> 20, most >> 20);
        bad(text, "/queues?sort=-states.ready")
    });
    let (in_memory, most) = snapshot.memory.bytes;
    let memory = nearly(in_memory, most).then(|| {
        let text = format!("Jobs take {} of {} MiB of memory: limits.memory", in_memory >> 20, most >> 20);
        bad(text, "/queues?sort=-states.ready")
    });
    let [.., unreadable] = snapshot.memory.loads;
    let unreadable = (unreadable > 0).then(|| {
        let text =
            format!("Bodies of jobs could not be read back into memory, {unreadable} times: their jobs are dead");
        bad(text, "/jobs?state=dead")
    });
    let free = snapshot.free_bytes.filter(|free| *free < ROOM);
    let free = free.map(|free| bad(format!("The disk of the store has {} MiB left", free >> 20), ""));
    let ahead = clock::machine_ahead_ms().filter(|ms| Duration::from_millis(ms.unsigned_abs()) > FAR);
    let ahead = ahead.map(|ms| bad(format!("The wall clock is {ms} ms ahead of the database's"), "/cluster"));
    let now = app.now().wall.0 / 1_000;
    let ends = snapshot.certificates_end_at.into_iter().filter_map(|(protocol, at)| match at.saturating_sub(now) {
        0 => Some(bad(format!("The certificate of {protocol} has ended"), "")),
        left if left < CERTIFICATE => {
            Some(bad(format!("The certificate of {protocol} ends in {}", Age(Duration::from_secs(left))), ""))
        }
        _ => None,
    });
    jobs.into_iter().chain(bytes).chain(memory).chain(unreadable).chain(free).chain(ahead).chain(ends).collect()
}
