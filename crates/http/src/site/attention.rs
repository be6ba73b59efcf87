//! What an operator should look at first.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use windlass_config::counted;
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
pub(crate) struct Concern {
    pub(crate) text: String,
    /// Below the prefix; empty if there is no page.
    pub(super) to: String,
    /// It is not only a hint.
    pub(super) is_bad: bool,
}

/// Looks at the daemon, and at one page of its queues. More of them are looked at in between. What does not answer is left
/// out.
pub(super) async fn look(app: &App) -> Vec<Concern> {
    let mut concerns = limits(app).await;
    concerns.extend(lately(app).await);
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
    let (count, names) = &survey.paused;
    let paused = (*count > 0).then(|| {
        let more = match count.saturating_sub(names.len()) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let text = format!("Paused while jobs wait: {}{more}", names.join(", "));
        Concern { text, to: "/queues?sort=-states.ready".to_owned(), is_bad: false }
    });
    unserved.into_iter().chain(oldest).chain(paused)
}

/// What has happened lately: connections that were refused, workers that were lost.
pub(super) async fn lately(app: &App) -> Vec<Concern> {
    let (snapshot, stats) = (app.daemon_figures.read(), app.stats().await.ok());
    let no_place: u64 = snapshot.traffic.values().filter_map(|it| it.closed.get("no_place")).sum();
    let lost = stats.map_or(0, |stats| stats.totals.lost);
    let [no_place, lost] = app.lately.note([no_place, lost], Instant::now());
    let ago = |at: Instant| Age(at.elapsed());
    let refused = no_place.map(|(times, at)| Concern {
        text: format!("{} refused, the last one {} ago: there was no place", counted(times, "connection"), ago(at)),
        to: "/connections".to_owned(),
        is_bad: true,
    });
    let lost = lost.map(|(times, at)| Concern {
        text: format!(
            "{} lost with a worker, the last one {} ago: the log names the workers",
            counted(times, "job"),
            ago(at)
        ),
        to: "/workers".to_owned(),
        is_bad: true,
    });
    refused.into_iter().chain(lost).collect()
}

/// What two counters have counted in the last hour.
#[derive(Debug, Default)]
pub(crate) struct Lately(Mutex<[Counter; 2]>);

/// A counter, and when it has grown.
#[derive(Debug, Default)]
struct Counter {
    last: Option<u64>,
    /// By how much it has grown in a minute: when that began, the last time, and how much.
    grown: VecDeque<(Instant, Instant, u64)>,
}

impl Lately {
    /// Notes the counters. Returns by how much each has grown in an hour, and when it did so last.
    fn note(&self, counts: [u64; 2], now: Instant) -> [Option<(u64, Instant)>; 2] {
        let mut counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let [one, other] = &mut *counters;
        [one.note(counts[0], now), other.note(counts[1], now)]
    }
}

impl Counter {
    fn note(&mut self, count: u64, now: Instant) -> Option<(u64, Instant)> {
        const MINUTE: Duration = Duration::from_secs(60);
        // What was counted before this daemon looked for the first time is not of this hour.
        let more = count.saturating_sub(self.last.replace(count).unwrap_or(count));
        match self.grown.back_mut().filter(|(began, ..)| now.duration_since(*began) < MINUTE) {
            _ if more == 0 => {}
            Some((_, last, grown)) => (*last, *grown) = (now, *grown + more),
            None => self.grown.push_back((now, now, more)),
        }
        while self.grown.pop_front_if(|(_, last, _)| now.duration_since(*last) > 60 * MINUTE).is_some() {}
        let (_, last, _) = self.grown.back()?;
        Some((self.grown.iter().map(|(.., grown)| grown).sum(), *last))
    }
}

/// Limits that are nearly reached, the disk, and certificates.
pub(crate) async fn limits(app: &App) -> Vec<Concern> {
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
    let (open, most) = snapshot.places;
    let places = nearly(open as u64, most as u64)
        .then(|| bad(format!("{open} of {most} connections: server.connections_max"), "/connections"));
    let names = stats.as_ref().filter(|it| nearly(it.queues.into(), snapshot.queues_max));
    let names = names.map(|it| {
        bad(format!("{} of {} names of queues: limits.queues_max", it.queues, snapshot.queues_max), "/queues")
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
    jobs.into_iter()
        .chain(bytes)
        .chain(memory)
        .chain(places)
        .chain(names)
        .chain(unreadable)
        .chain(free)
        .chain(ahead)
        .chain(ends)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_tells_what_it_has_counted_in_the_last_hour() {
        let (mut counter, begun) = (Counter::default(), Instant::now());
        let mut at = |minute: u64, count: u64| {
            let now = begun + Duration::from_secs(60 * minute);
            counter.note(count, now).map(|(grown, last)| (grown, last.duration_since(begun).as_secs() / 60))
        };
        assert_eq!(at(0, 1_000), None, "that was before");
        assert_eq!(at(1, 1_000), None);
        assert_eq!(at(2, 1_003), Some((3, 2)));
        assert_eq!(at(40, 1_004), Some((4, 40)));
        assert_eq!(at(50, 1_004), Some((4, 40)));
        assert_eq!(at(63, 1_004), Some((1, 40)));
        assert_eq!(at(101, 1_004), None);
    }
}
