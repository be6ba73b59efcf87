//! The most urgent concerns for an operator.

use std::time::{Duration, Instant};

use windlass_config::counted;
use windlass_engine::{Cursor, JobStateKind, Query, Reply, RunEnd, Schedule, Stats};

use crate::api::dead::{self, Lately};
use crate::app::App;
use crate::name::Name;
use crate::namespace;
use crate::refusing::{self, Nearly};
use crate::survey::Survey;
use crate::time::Age;

/// A job that has waited longer is reported.
const OLD: Duration = Duration::from_secs(600);

/// Failures that will be retried are reported for this long, deaths for an hour.
const FAILING: Duration = Duration::from_secs(300);
const DIED: Duration = Duration::from_secs(3_600);

/// An older export is reported, if there ever was one.
const OLD_EXPORT: Duration = Duration::from_secs(7 * 86_400);

/// Errors and schedules that are named.
const ERRORS_MAX: usize = 3;

/// A schedule that is this late did not run.
const OVERDUE: Duration = Duration::from_secs(60);

/// A line of text, and the linked page.
#[derive(Debug)]
pub(crate) struct Concern {
    pub(crate) text: String,
    /// Below the prefix; empty if there is no page.
    pub(crate) to: String,
    /// It is not only a hint.
    pub(crate) is_bad: bool,
}

/// The concerns about the daemon, and about a page of queues. More queues are examined in the background.
/// Requests that fail are omitted.
pub(crate) async fn look(app: &App) -> Vec<Concern> {
    let stats = app.stats().await.ok();
    let nearly = refusing::warnings(app, stats.as_deref()).into_iter();
    let mut concerns: Vec<_> = nearly
        .map(|Nearly { text, to, .. }| Concern {
            text,
            to: to.to_owned(),
            is_bad: true,
        })
        .collect();
    let is_whole = app.namespace().is_none();
    if is_whole {
        concerns.extend(lately(app, stats.as_deref()));
    }
    concerns.extend(failures(app, JobStateKind::Retrying, FAILING).await);
    concerns.extend(failures(app, JobStateKind::Dead, DIED).await);
    concerns.extend(schedules(app).await);
    if is_whole {
        concerns.extend(history(app));
        concerns.extend(old_export(app));
    }
    let query = Query::Queues {
        after: Cursor::default(),
        limit: u32::MAX,
    };
    if let Ok(Reply::Queues { rows, next }) = app.ask(query).await {
        let mut survey = Survey::default();
        survey.add(&rows);
        // The survey names queues of all namespaces.
        let of_all = next.filter(|_| is_whole).and_then(|_| app.surveys.ask());
        concerns.extend(of_queues(&of_all.unwrap_or(survey), app));
    }
    concerns
}

/// The last export, if it was long ago.
fn old_export(app: &App) -> Option<Concern> {
    let since = app.exports.last()?.elapsed().ok()?;
    let text = format!("The last export was {} ago: windlass export", Age(since));
    (since > OLD_EXPORT).then_some(Concern {
        text,
        to: String::new(),
        is_bad: false,
    })
}

/// A history that is not written, or has gaps.
fn history(app: &App) -> Option<Concern> {
    let figures = app.daemon_figures.read().history?;
    let text = if let Some(why) = figures.failing {
        format!("The history is not written: {why}")
    } else if figures.left_out > 0 {
        let left_out = counted(figures.left_out, "ended job");
        format!("The history lacks {left_out} since the start: it was too far behind the log")
    } else {
        return None;
    };
    Some(Concern {
        text,
        to: "/history".to_owned(),
        is_bad: true,
    })
}

/// Examines all queues, a page at a time, while overviews request it.
pub(crate) async fn survey(app: &App) {
    let is_asked = app.surveys.is_asked();
    let (mut survey, mut client) = (Survey::default(), app.client());
    let mut after = is_asked.then(Cursor::default);
    while let Some(from) = after.take() {
        let query = Query::Queues {
            after: from,
            limit: u32::MAX,
        };
        let Ok(Reply::Queues { rows, next }) = client.ask(query).await else {
            return;
        };
        survey.add(&rows);
        after = next;
    }
    app.surveys.keep(is_asked.then_some(survey));
}

/// The concerns about queues.
fn of_queues(survey: &Survey, app: &App) -> impl Iterator<Item = Concern> {
    let (named, more) = (
        survey.names.join(", "),
        survey.unserved.saturating_sub(survey.names.len()),
    );
    let text = match (survey.unserved, more) {
        (0, _) => None,
        (1, _) => Some(format!("Jobs of {named} wait, and no worker serves it")),
        (_, 0) => Some(format!("Jobs wait where no worker serves: {named}")),
        (_, more) => Some(format!(
            "Jobs wait where no worker serves: {named} and {more} more"
        )),
    };
    let unserved = text.map(|text| Concern {
        text,
        to: "/queues?sort=-states.ready".to_owned(),
        is_bad: true,
    });
    let oldest = survey.oldest.as_ref().and_then(|(at, name)| {
        let waited = Duration::from_millis(app.now().wall.ms_since(*at));
        let to: String = form_urlencoded::byte_serialize(name.name.as_bytes()).collect();
        // In a page about the namespace, its path is there already.
        let elsewhere = name.namespace.as_deref();
        let place = namespace::segment(elsewhere.filter(|_| app.namespace().is_none()));
        let text = format!(
            "The oldest ready job has waited for {}, in {name}",
            Age(waited)
        );
        (waited > OLD).then(|| Concern {
            text,
            to: format!("{place}/jobs?state=ready&queue={to}"),
            is_bad: false,
        })
    });
    let (count, names) = &survey.paused;
    let paused = (*count > 0).then(|| {
        let more = match count.saturating_sub(names.len()) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let text = format!("Paused while jobs wait: {}{more}", names.join(", "));
        Concern {
            text,
            to: "/queues?sort=-states.ready".to_owned(),
            is_bad: false,
        }
    });
    unserved.into_iter().chain(oldest).chain(paused)
}

/// Events of the last hour: rejected connections, disappeared workers, unreadable bodies.
pub(crate) fn lately(app: &App, stats: Option<&Stats>) -> Vec<Concern> {
    let snapshot = app.daemon_figures.read();
    let no_place: u64 = snapshot
        .traffic
        .values()
        .filter_map(|it| it.closed.get("no_place"))
        .sum();
    let lost = stats.map_or(0, |stats| stats.totals.lost);
    let [.., unreadable] = snapshot.memory.loads;
    let [no_place, lost, unreadable] = app
        .lately
        .note([no_place, lost, unreadable], Instant::now());
    let concern = |grown: Option<(u64, Instant)>, thing: &str, what: &str, why: &str, to: &str| {
        let (times, last) = grown?;
        let text = format!(
            "{} {what}, the last one {} ago: {why}",
            counted(times, thing),
            Age(last.elapsed())
        );
        Some(Concern {
            text,
            to: to.to_owned(),
            is_bad: true,
        })
    };
    let all = [
        concern(
            no_place,
            "connection",
            "refused",
            "there was no place",
            "/connections",
        ),
        concern(
            lost,
            "job",
            "lost with a worker",
            "the log names the workers",
            "/workers",
        ),
        concern(
            unreadable,
            "body",
            "could not be read back into memory",
            "their jobs are dead",
            "/dead",
        ),
    ];
    all.into_iter().flatten().collect()
}

/// Errors of jobs that are to be retried, or that died, and happened lately.
async fn failures(app: &App, state: JobStateKind, within: Duration) -> Option<Concern> {
    let errors = dead::lately(app, state, within).await.ok()?;
    let one = |it: &Lately| {
        let error = if it.error.is_empty() {
            "an error without a text"
        } else {
            &it.error
        };
        let kind = if it.kind.is_empty() {
            String::new()
        } else {
            format!(" in {}", it.kind)
        };
        format!("{error}{kind}, {}", it.jobs)
    };
    let named: Vec<String> = errors.iter().take(ERRORS_MAX).map(one).collect();
    let more = errors.len().saturating_sub(named.len());
    let more = if more == 0 {
        String::new()
    } else {
        format!("; and {}", counted(more as u64, "other error"))
    };
    let (what, to) = match state == JobStateKind::Dead {
        true => ("Died in the last hour", "/dead"),
        false => ("Failing now, in the last 5 minutes", "/dead?state=retrying"),
    };
    let text = format!("{what}: {}{more}", named.join("; "));
    (!named.is_empty()).then(|| Concern {
        text,
        to: to.to_owned(),
        is_bad: true,
    })
}

/// Schedules with a last job that no worker serves, or that are overdue.
async fn schedules(app: &App) -> Option<Concern> {
    let query = Query::Schedules {
        protocol: None,
        after: Cursor::default(),
        limit: u32::MAX,
    };
    let Ok(Reply::Schedules { rows, .. }) = app.ask(query).await else {
        return None;
    };
    let now = app.now();
    let is_late = |row: &&Schedule| {
        let at = if row.recurrence.by_wall() {
            row.next_at
        } else {
            now.to_wall(row.next_at)
        };
        let is_overdue = !row.is_paused() && Duration::from_millis(now.wall.ms_since(at)) > OVERDUE;
        is_overdue
            || row
                .last
                .as_ref()
                .is_some_and(|last| last.end == RunEnd::Unserved)
    };
    let name = |row: &Schedule| {
        row.key
            .as_ref()
            .map_or_else(|| row.id.0.to_string(), |key| Name(key.clone()).to_string())
    };
    let late: Vec<String> = rows.iter().filter(is_late).map(name).collect();
    let more = late.len().saturating_sub(ERRORS_MAX);
    let named = late
        .iter()
        .take(ERRORS_MAX)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    let more = if more == 0 {
        String::new()
    } else {
        format!(" and {more} more")
    };
    let text = format!("Schedules whose jobs no worker takes, or that did not run: {named}{more}");
    (!late.is_empty()).then(|| Concern {
        text,
        to: "/schedules".to_owned(),
        is_bad: true,
    })
}
