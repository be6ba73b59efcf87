//! The history: jobs that have ended, from files that no other request waits for.

use bytes::Bytes;
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use axum::Json;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;
use utoipa::{IntoParams, ToSchema};
use windlass_config::Period;
use windlass_daemon::operator_port::history;
use windlass_daemon::operator_port::history::{
    Answer, Attempt, Book, Cursor, DAY_MS, Ends, HOUR_MS, HourRow, Hours, Question, Row, RowId,
};
use windlass_engine::{
    Ending, Excerpt, Expiry, Histogram, JobId, NewJob, Protocol, QueueKind, Timestamp,
};
use windlass_session::protocol::EndedJob;

use super::kinds::Durations;
use super::listing::{Rows, sorted};
use super::push::{PushedJob, new_name, pushed};
use super::views::text;
use crate::app::{App, Shared};
use crate::cursor::CursorText;
use crate::name::Name;
use crate::params::{Params, Segments, rows};
use crate::problem::{Outcome, Problem};
use crate::sight::{Home, Sight};
use crate::time::{moment_text, parse_moment};
use crate::view::view;

/// The most hours of one answer: a month.
const HOURS_MAX: u64 = 31 * 24;

/// The place of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ToSchema)]
#[schema(value_type = String)]
pub(crate) struct Place(pub(crate) RowId);

/// A text that is not a place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the id of an ended job")]
pub(crate) struct PlaceError;

impl FromStr for Place {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, PlaceError> {
        text.parse().map(Self).map_err(|()| PlaceError)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

windlass_config::as_text!(Place);

/// Where a list goes on.
#[derive(Clone, Debug, PartialEq, Eq, ToSchema)]
#[schema(value_type = String)]
pub(crate) struct Next(pub(crate) Cursor);

/// A text that is no cursor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a cursor from an earlier response")]
pub(crate) struct NextError;

impl FromStr for Next {
    type Err = NextError;

    fn from_str(text: &str) -> Result<Self, NextError> {
        text.parse().map(Self).map_err(|()| NextError)
    }
}

impl fmt::Display for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

windlass_config::as_text!(Next);

/// How jobs ended: some of `done`, `failed`, `dead`, `cancelled`, `expired`, `deleted`, `replaced`, with commas between them.
#[derive(Clone, Debug, Default, PartialEq, Eq, ToSchema)]
#[schema(value_type = String)]
pub(crate) struct Outcomes(pub(crate) Vec<Ending>);

/// A text that names no outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no outcome: done, failed, dead, cancelled, expired, deleted, replaced")]
pub(crate) struct OutcomeError(String);

impl FromStr for Outcomes {
    type Err = OutcomeError;

    fn from_str(text: &str) -> Result<Self, OutcomeError> {
        let named = |name: &str| Ending::named(name).ok_or_else(|| OutcomeError(name.to_owned()));
        let all: Result<_, _> = text
            .split(',')
            .filter(|it| !it.is_empty())
            .map(named)
            .collect();
        all.map(Self)
    }
}

impl fmt::Display for Outcomes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.0.iter().map(|ending| ending.name()).collect();
        f.write_str(&names.join(","))
    }
}

windlass_config::as_text!(Outcomes);

/// When jobs ended, as a request says it.
struct Span<'a> {
    day: Option<&'a str>,
    from: Option<&'a str>,
    until: Option<&'a str>,
    since: Option<Period>,
}

/// Which jobs that have ended. All conditions must hold.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// On this day, UTC, as `2026-11-28`.
    pub(crate) day: Option<String>,
    /// At this time (RFC 3339) or later.
    pub(crate) from: Option<String>,
    /// Before this time (RFC 3339).
    pub(crate) until: Option<String>,
    /// Within this time until now, as `1h` or `7d`.
    #[param(value_type = Option<String>)]
    pub(crate) since: Option<Period>,
    /// Of this queue.
    pub(crate) queue: Option<Name>,
    /// What they call: a job type, a function, a callable.
    pub(crate) kind: Option<Name>,
    /// How they ended, with commas between: `done`, `failed`, `dead`, `cancelled`, `expired`, `deleted`, `replaced`.
    #[param(value_type = Option<String>)]
    pub(crate) outcome: Option<Outcomes>,
    /// With this key in the policy of their queue.
    pub(crate) key: Option<Name>,
    /// Their last worker has this name or this address.
    pub(crate) worker: Option<Name>,
    /// Their public name (jid, message id) or their unique id.
    pub(crate) name: Option<Name>,
    /// The job with this number.
    pub(crate) job: Option<u64>,
    /// Runs of the schedule with this number.
    pub(crate) schedule: Option<u64>,
    /// Other runs of the ended job with this number (`run_again`).
    pub(crate) again_of: Option<u64>,
    /// Members of the batch with this number.
    pub(crate) batch: Option<u64>,
    /// Their last run took longer, as `5s`.
    #[param(value_type = Option<String>)]
    pub(crate) slower_than: Option<Period>,
    /// This text is in a name, an error, or what was kept of body, result and output, whatever the case of ASCII letters.
    pub(crate) text: Option<String>,
    /// `next` of the answer before; nothing for the first one.
    #[param(value_type = Option<String>)]
    pub(crate) cursor: Option<Next>,
    /// The most rows, 1 to 1000; 100 if it is left out.
    pub(crate) limit: Option<u32>,
}

/// Over which hours, and of which jobs.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WhichHours {
    /// From the hour of this time (RFC 3339); a day ago if it is left out.
    pub(crate) from: Option<String>,
    /// Before this time (RFC 3339).
    pub(crate) until: Option<String>,
    /// Within this time until now, as `1h` or `7d`.
    #[param(value_type = Option<String>)]
    pub(crate) since: Option<Period>,
    /// Of this queue.
    pub(crate) queue: Option<Name>,
    /// Of this kind.
    pub(crate) kind: Option<Name>,
}

/// Jobs that have ended, the last one first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EndedPage {
    /// The rows.
    pub(crate) ended: Vec<Ended>,
    /// The cursor of the next page, also if the time of this question was over before there were rows; null at the end.
    pub(crate) next: Option<Next>,
    /// Files of the history that cannot be read, and why.
    pub(crate) unreadable: Vec<String>,
}

/// What ended in each hour.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HourPage {
    /// A row for each hour, queue and kind in which something ended, the oldest hour first: 10,000 at most.
    pub(crate) hours: Vec<Hour>,
    /// All of them together, with those that have no row.
    pub(crate) total: HourTotal,
    /// Since when they are counted: later than asked if there was too much to read at once, or if the history begins later.
    pub(crate) from: Option<String>,
}

view! {
    /// One end of one job.
    Ended(row: &Row, app: &App, sight: Sight) with {
        // The bodies of a protocol that this daemon does not know are bytes.
        let protocol = app.daemon.bridge.protocol(&row.protocol).unwrap_or(Protocol::HTTP);
        let home = Home { namespace: &row.namespace, queue: &row.queue, protocol };
        let ran_ms = row.started_at.map(|at| row.ended_at.saturating_sub(at));
        let waited_ms = row.started_at.map(|at| at.saturating_sub(row.ready_at));
    } {
        /// Its place, by which it can be asked for again.
        id: Place = Place(row.id),
        /// The job's number.
        job: u64 = row.job.0,
        /// How it ended: `done`, `failed`, `dead`, `cancelled`, `expired`, `deleted` or `replaced`.
        outcome: &'static str = row.ending.name(),
        /// When.
        ended_at: Option<String> = moment_text(Timestamp(row.ended_at)),
        /// Its queue.
        queue: Name = Name(row.queue.clone()),
        /// The namespace, if it has a name.
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<Name> = Name::of(&row.namespace),
        /// What it calls, if that is not its queue.
        kind: Option<Name> = Name::of(&row.kind),
        /// The protocol of its producer.
        protocol: String = row.protocol.to_string(),
        /// The producer's name for it: a jid, a message id.
        name: Option<Name> = Name::of(&row.name),
        /// Its unique id.
        unique: Option<Name> = sight.key(app, home, &row.unique),
        /// Its key in the policy of its queue.
        key: Option<Name> = Name::of(&row.key),
        /// When it was pushed; null if it was pushed before its queue had a history.
        pushed_at: Option<String> = moment(row.pushed_at),
        /// The time that its producer set for it.
        due_at: Option<String> = moment(row.due_at),
        /// When it was last ready.
        ready_at: Option<String> = moment(Some(row.ready_at)),
        /// When its last worker got it; null if none had it at its end.
        started_at: Option<String> = moment(row.started_at),
        /// How long it waited for this worker, from ready to taken, in milliseconds.
        waited_ms: Option<u64> = waited_ms,
        /// How long the run took with which it ended, in milliseconds.
        ran_ms: Option<u64> = ran_ms,
        /// The address of its producer.
        producer: Option<String> = some(&row.producer),
        /// The name of its last worker.
        worker: Option<Name> = Name::of(&row.worker),
        /// The address of its last worker, or of one of its connections.
        worker_address: Option<String> = some(&row.worker_address),
        /// The protocol of its last worker.
        worker_protocol: Option<String> = some(&row.worker_protocol),
        /// How many times it was handed out.
        attempts: u32 = row.deliveries,
        /// How many times it failed.
        failures: u32 = row.failures,
        /// How many submits became this job.
        submits: u32 = row.submits,
        /// The number of its batch.
        batch: Option<u64> = row.batch.map(|id| id.0),
        /// The number of the schedule of which it is a run.
        schedule: Option<u64> = row.schedule.map(|id| id.0),
        /// The number of the ended job that was run again as this one.
        #[serde(skip_serializing_if = "Option::is_none")]
        again_of: Option<u64> = row.again_of.map(|id| id.0),
        /// Its last failure.
        failure: Option<LastFailure> = LastFailure::of_row(row),
        /// Its attempts that did not succeed, the oldest first.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        history: Vec<Past> = row.attempts.iter().map(Past::of).collect(),
        /// Units done of its last progress.
        #[serde(skip_serializing_if = "Option::is_none")]
        progress_done: Option<u32> = row.progress.map(|it| it.0),
        /// Units in total of its last progress.
        #[serde(skip_serializing_if = "Option::is_none")]
        progress_of: Option<u32> = row.progress.map(|it| it.1),
        /// The first bytes of its body, if its queue keeps them.
        #[serde(skip_serializing_if = "Option::is_none")]
        body: Option<Kept> = row.body.as_ref().map(|kept| {
            let shown = sight.body(app, home, &kept.bytes);
            Kept::of(kept, &shown, matches!(shown, Cow::Owned(_)))
        }),
        /// The first bytes of its result, if its queue keeps them.
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<Kept> = row.result.as_ref().map(Kept::whole),
        /// The first bytes of what its worker sent while it ran, if its queue keeps them.
        #[serde(skip_serializing_if = "Option::is_none")]
        output: Option<Kept> = row.output.as_ref().map(Kept::whole),
    }
}

view! {
    /// The last failure of a job that has ended.
    LastFailure(row: &Row) {
        /// The class of the error.
        kind: Option<String> = (!row.error.is_empty()).then(|| text(&row.error)),
        /// The message.
        message: String = text(&row.message),
        /// The stack trace.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        backtrace: Vec<String> = text(&row.backtrace).lines().map(str::to_owned).collect(),
    }
}

impl LastFailure {
    fn of_row(row: &Row) -> Option<Self> {
        (!row.error.is_empty() || !row.message.is_empty()).then(|| Self::of(row))
    }
}

view! {
    /// What was kept of some bytes.
    Kept(kept: &Excerpt, shown: &[u8], is_masked: bool) with {
        let text = std::str::from_utf8(shown).ok();
    } {
        /// The first bytes, if they are UTF-8.
        text: Option<String> = text.map(str::to_owned),
        /// The first bytes in base64, if they are not.
        base64: Option<String> = text.is_none().then(|| {
            use base64::Engine as _;
            base64::engine::general_purpose::STANDARD.encode(shown)
        }),
        /// How many bytes there were.
        bytes: u64 = kept.len,
        /// Whether all of them were kept.
        is_complete: bool = kept.len == kept.bytes.len() as u64,
        /// Whether parts are hidden from this login (`queues.NAME.mask`).
        is_masked: bool = is_masked,
    }
}

impl Kept {
    fn whole(kept: &Excerpt) -> Self {
        Self::of(kept, &kept.bytes, false)
    }
}

view! {
    /// An attempt that did not succeed.
    Past(attempt: &Attempt) {
        /// Which delivery it was, from 1.
        number: u32 = attempt.number,
        /// The worker's name, or else its address.
        worker: Option<String> = some(&attempt.worker),
        /// When the worker got the job.
        began_at: Option<String> = moment(Some(attempt.began_at)),
        /// When the worker had it no more.
        ended_at: Option<String> = moment(Some(attempt.ended_at)),
        /// How it ended.
        end: String = attempt.end.clone(),
        /// The class of the error.
        kind: Option<String> = some(&attempt.error),
        /// The message of the error.
        message: Option<String> = some(&attempt.message),
    }
}

view! {
    /// What ended in an hour, of one queue and kind.
    Hour(row: &HourRow) {
        /// When the hour begins.
        hour: Option<String> = moment(Some(row.hour_ms)),
        /// The queue.
        queue: Name = Name(row.name()),
        /// The namespace, if it has a name.
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<Name> = Name::of(&row.namespace),
        /// What the jobs call, if that is not their queue.
        kind: Option<Name> = Name::of(&row.kind),
        /// Jobs that succeeded.
        done: u64 = row.done,
        /// Jobs that failed for good.
        failed: u64 = row.failed,
        /// Jobs that were cancelled, deleted or replaced, or expired.
        other: u64 = row.other,
        /// How long they waited, from ready to taken.
        waited: Durations = Durations::of(&row.waited),
        /// How long they ran.
        ran: Durations = Durations::of(&row.ran),
    }
}

view! {
    /// What ended over all hours of an answer.
    HourTotal(ends: &Ends) with {
        let rows = || ends.rows.iter().chain(&ends.others);
        let sum = |of: fn(&HourRow) -> u64| rows().map(of).sum();
        let all = |of: fn(&HourRow) -> &Histogram| {
            rows().fold(Histogram::default(), |all, row| all.merged(of(row), u64::saturating_add))
        };
    } {
        /// Jobs that succeeded.
        done: u64 = sum(|row| row.done),
        /// Jobs that failed for good.
        failed: u64 = sum(|row| row.failed),
        /// Jobs that were cancelled, deleted or replaced, or expired.
        other: u64 = sum(|row| row.other),
        /// How long they waited, from ready to taken.
        waited: Durations = Durations::of(&all(|row| &row.waited)),
        /// How long they ran.
        ran: Durations = Durations::of(&all(|row| &row.ran)),
    }
}

/// What ended of each kind, those with the most ends first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EndedKindPage {
    /// A row for each queue and kind: the 1,000 with the most ends.
    pub(crate) kinds: Vec<EndedKind>,
    /// All others, together; null if there are none.
    pub(crate) others: Option<HourTotal>,
    /// Since when they are counted: later than asked if there was too much to read at once, or if the history begins later.
    pub(crate) from: Option<String>,
    /// The cursor of the next page; null at the end.
    pub(crate) next: Option<CursorText>,
}

view! {
    /// What ended of a queue and kind.
    EndedKind(row: &HourRow) {
        /// The queue.
        queue: Name = Name(row.name()),
        /// The namespace, if it has a name.
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<Name> = Name::of(&row.namespace),
        /// What the jobs call, if that is not their queue.
        kind: Option<Name> = Name::of(&row.kind),
        /// Jobs that succeeded.
        done: u64 = row.done,
        /// Jobs that failed for good.
        failed: u64 = row.failed,
        /// Jobs that were cancelled, deleted or replaced, or expired.
        other: u64 = row.other,
        /// All of them.
        ends: u64 = row.ends(),
        /// How long they waited, from ready to taken.
        waited: Durations = Durations::of(&row.waited),
        /// How long they ran.
        ran: Durations = Durations::of(&row.ran),
    }
}

fn moment(ms: Option<u64>) -> Option<String> {
    ms.and_then(|ms| moment_text(Timestamp(ms)))
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

impl Span<'_> {
    const fn is_open(&self) -> bool {
        self.day.is_none() && self.from.is_none() && self.since.is_none()
    }

    /// From when until when, in milliseconds since 1970.
    fn bounds(&self, app: &App) -> Outcome<(u64, u64)> {
        let at = |text: Option<&str>, missing: u64| match text {
            None => Ok(missing),
            Some(text) => parse_moment(text).map(|at| at.0).ok_or_else(|| {
                Problem::bad_request(format!("not a moment as 2026-11-28T06:30:00Z: {text:?}"))
            }),
        };
        let (mut from, mut until) = (at(self.from, 0)?, at(self.until, u64::MAX)?);
        if let Some(day) = self.day {
            let begin = parse_moment(&format!("{day}T00:00:00Z"));
            let begin = begin
                .map(|at| at.0)
                .ok_or_else(|| Problem::bad_request(format!("not a day as 2026-11-28: {day:?}")))?;
            from = from.max(begin);
            until = until.min(begin + DAY_MS);
        }
        if let Some(since) = self.since {
            from = from.max(app.now().wall.0.saturating_sub(since.as_ms()));
        }
        Ok((from, until))
    }
}

impl Which {
    fn span(&self) -> Span<'_> {
        Span {
            day: self.day.as_deref(),
            from: self.from.as_deref(),
            until: self.until.as_deref(),
            since: self.since,
        }
    }

    /// Whether all of the history is asked for.
    pub(crate) fn is_open(&self) -> bool {
        self.span().is_open()
    }

    /// The hours of the same time, queue and kind.
    pub(crate) fn hours(&self, app: &App) -> Outcome<Hours> {
        hours_of(app, self.span(), self.queue.clone(), self.kind.clone())
    }

    fn question(&self, app: &App) -> Outcome<Question> {
        let (from_ms, until_ms) = self.span().bounds(app)?;
        let bytes = |name: &Option<Name>| name.as_ref().map(|name| name.0.clone());
        Ok(Question {
            from_ms,
            until_ms,
            namespace: namespace_of(app),
            queue: bytes(&self.queue),
            kind: bytes(&self.kind),
            endings: self.outcome.clone().unwrap_or_default().0,
            key: bytes(&self.key),
            worker: bytes(&self.worker),
            name: bytes(&self.name),
            job: self.job.map(JobId),
            schedule: self.schedule.map(JobId),
            again_of: self.again_of.map(JobId),
            batch: self.batch.map(JobId),
            slower_than_ms: self.slower_than.map(Period::as_ms),
            text: self
                .text
                .as_deref()
                .filter(|it| !it.is_empty())
                .map(Into::into),
            limit: rows(self.limit)? as usize,
            after: self.cursor.clone().map(|next| next.0),
        })
    }
}

/// Asks the history on a thread that may wait for the disk.
async fn ask<T: Send + 'static>(
    app: &App,
    ask: impl FnOnce(&Book) -> Result<T, history::Error> + Send + 'static,
) -> Outcome<T> {
    let Some(book) = app.book.clone() else {
        return Err(Problem::not_found(
            "this daemon has no place for a history: it is ephemeral",
        ));
    };
    let Some(place) = app.asking.try_take() else {
        return Err(Problem::unavailable(
            "busy",
            "too many questions to the history at once",
        ));
    };
    let asker = Arc::new(());
    let book = book.asked_by(&asker);
    // The question has its place until its thread is done: an asker that leaves before must not make room for another one.
    let asked = spawn_blocking(move || {
        let answer = ask(&book);
        drop(place);
        answer
    })
    .await;
    asked
        .map_err(|_| Problem::internal("the history cannot be asked"))?
        .map_err(|error| {
            if matches!(error, history::Error::Database(_)) {
                Problem::unavailable("unavailable", error)
            } else {
                Problem::internal(error)
            }
        })
}

/// Jobs that have ended
///
/// The last one first. A question is answered within about a second: if `next` is given without rows, it has looked through
/// a part of the history, and the next page goes on there.
#[utoipa::path(get, path = "/api/v1/ended", tag = "jobs", operation_id = "list_ended", params(Which), responses(
    (status = 200, body = EndedPage), (status = 400, body = Problem), (status = 404, body = Problem), (status = 503, body = Problem)
))]
pub(crate) async fn list(
    app: Shared,
    sight: Sight,
    Params(which): Params<Which>,
) -> Outcome<Json<EndedPage>> {
    if which.text.is_some() {
        sight.check_search(&app, which.queue.as_ref()).await?;
    }
    let question = which.question(&app)?;
    let Answer {
        rows,
        next,
        unreadable,
    } = ask(&app, move |book| book.ask(&question)).await?;
    Ok(Json(EndedPage {
        ended: rows.iter().map(|row| Ended::of(row, &app, sight)).collect(),
        next: next.map(Next),
        unreadable,
    }))
}

/// One end of a job
#[utoipa::path(get, path = "/api/v1/ended/{end}", tag = "jobs", operation_id = "get_ended", responses(
    (status = 200, body = Ended), (status = 400, body = Problem), (status = 404, body = Problem), (status = 503, body = Problem)
))]
pub(crate) async fn get(
    app: Shared,
    sight: Sight,
    Segments(place): Segments<Place>,
) -> Outcome<Json<Ended>> {
    let row = row(&app, place).await?;
    Ok(Json(Ended::of(&row, &app, sight)))
}

/// The namespace whose jobs a request is about; `None`: those of all.
fn namespace_of(app: &App) -> Option<Bytes> {
    let name = app.namespace()?;
    Some(Bytes::copy_from_slice(name.as_bytes()))
}

async fn row(app: &App, place: Place) -> Outcome<Row> {
    let row = ask(app, move |book| book.row(place.0)).await?;
    let own = namespace_of(app);
    let row = row.filter(|row| own.is_none_or(|own| own == row.namespace));
    row.ok_or_else(|| Problem::not_found(format!("there is no ended job {place}")))
}

/// When a job runs again.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct When {
    /// It is ready after this many milliseconds; at once if it is left out.
    #[serde(default)]
    #[param(value_type = Option<u64>)]
    delay_ms: u64,
}

/// Run an ended job again
///
/// It is pushed to its queue as a new job of its protocol: with its body, of which the history must have all, and the
/// defaults of the protocol. A work unit of FWP keeps its own terms, a spiderq entry its key. The new job belongs to no batch,
/// and only its queue's `ttl` lets it expire. Its row of the history names the old job (`again_of`).
#[utoipa::path(post, path = "/api/v1/ended/{end}/again", tag = "jobs", operation_id = "run_again", params(When), responses(
    (status = 201, body = PushedJob, headers(("location" = String, description = "The job"))),
    (status = 200, body = PushedJob, description = "A job of the same identity waits or runs"),
    (status = 400, body = Problem), (status = 404, body = Problem), (status = 409, body = Problem), (status = 429, body = Problem),
    (status = 503, body = Problem)
))]
pub(crate) async fn again(
    app: Shared,
    Segments(place): Segments<Place>,
    Params(when): Params<When>,
) -> Outcome<Response> {
    let Row {
        job,
        queue,
        protocol,
        unique,
        body,
        namespace,
        ..
    } = row(&app, place).await?;
    let whole = body.filter(|kept| kept.len == kept.bytes.len() as u64);
    let body = whole.ok_or_else(|| {
        Problem::conflict("the history has no body of this job, or only its beginning")
    })?;
    let of = app.protocols.iter().find(|it| it.id().name() == &*protocol);
    let of = of.ok_or_else(|| {
        Problem::conflict(format!("this daemon does not speak {protocol} any more"))
    })?;
    let (wall, skew_ms) = app.now().with_skew();
    let new = of.again(EndedJob {
        queue,
        body: body.bytes,
        unique,
        new_name: &new_name(&app),
        wall,
        skew_ms,
    });
    let new = new.map_err(Problem::conflict)?;
    if when.delay_ms > 0 && new.kind == QueueKind::Cycle {
        return Err(Problem::conflict(
            "entries of spiderq's queues are not scheduled: delay_ms must be 0",
        ));
    }
    let new = NewJob {
        not_before: (when.delay_ms > 0).then(|| Timestamp(wall.0.saturating_add(when.delay_ms))),
        expires: Expiry::Never,
        batch: None,
        past: None,
        again_of: Some(job),
        ..new
    };
    // A queue of this name may be in other namespaces, too.
    pushed(&app.beside(&namespace), new).await
}

/// What ended in each hour
///
/// By queue and kind, over at most 31 days.
#[utoipa::path(get, path = "/api/v1/ended/hours", tag = "jobs", operation_id = "ended_hours", params(WhichHours), responses(
    (status = 200, body = HourPage), (status = 400, body = Problem), (status = 404, body = Problem), (status = 503, body = Problem)
))]
pub(crate) async fn hours(
    app: Shared,
    Params(which): Params<WhichHours>,
) -> Outcome<Json<HourPage>> {
    let ends = of_hours(&app, which.hours(&app)?).await?;
    Ok(Json(HourPage {
        hours: ends.rows.iter().map(Hour::of).collect(),
        total: HourTotal::of(&ends),
        from: moment(Some(ends.from_ms)),
    }))
}

/// Over which time, and of which jobs, by kind.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WhichKinds {
    /// From the hour of this time (RFC 3339); a day ago if it is left out.
    pub(crate) from: Option<String>,
    /// Before this time (RFC 3339).
    pub(crate) until: Option<String>,
    /// Within this time until now, as `1h` or `180d`.
    #[param(value_type = Option<String>)]
    pub(crate) since: Option<Period>,
    /// Of this queue.
    pub(crate) queue: Option<Name>,
    /// Of this kind.
    pub(crate) kind: Option<Name>,
    /// `next` of the page before; nothing for the first one.
    pub(crate) cursor: Option<CursorText>,
    /// The most rows, 1 to 1000; 100 if it is left out.
    pub(crate) limit: Option<u32>,
    /// A field by which the rows are sorted, as `failed` or `ran.p95`; with a `-` in front the largest comes first. Those with
    /// the most ends come first if it is left out.
    pub(crate) sort: Option<String>,
}

/// What ended of each kind
///
/// By queue and kind, over as many days as the history has.
#[utoipa::path(get, path = "/api/v1/ended/kinds", tag = "jobs", operation_id = "ended_kinds", params(WhichKinds), responses(
    (status = 200, body = EndedKindPage), (status = 400, body = Problem), (status = 404, body = Problem), (status = 503, body = Problem)
))]
pub(crate) async fn kinds(
    app: Shared,
    Params(which): Params<WhichKinds>,
) -> Outcome<Json<EndedKindPage>> {
    let WhichKinds {
        from,
        until,
        since,
        queue,
        kind,
        cursor,
        limit,
        sort,
    } = which;
    let hours = WhichHours {
        from,
        until,
        since,
        queue,
        kind,
    };
    let hours = hours.hours(&app)?;
    let found = ask(&app, move |book| book.kinds(&hours)).await?;
    let others = Ends {
        others: found.others,
        ..Ends::default()
    };
    let all = found.rows.iter().map(EndedKind::of).collect();
    let sort = sort.filter(|sort| !sort.is_empty());
    let sort = sort.unwrap_or_else(|| "-ends".to_owned());
    let Rows { rows, next, .. } = sorted(all, &sort, cursor.unwrap_or_default().0.0, rows(limit)?)?;
    Ok(Json(EndedKindPage {
        kinds: rows,
        others: (!others.others.is_empty()).then(|| HourTotal::of(&others)),
        from: moment(Some(found.from_ms)),
        next,
    }))
}

/// The hours as the history has them.
pub(crate) async fn of_hours(app: &App, hours: Hours) -> Outcome<Ends> {
    if hours.until_ms.saturating_sub(hours.from_ms) > (HOURS_MAX + 1) * HOUR_MS {
        return Err(Problem::bad_request("at most 31 days at once"));
    }
    ask(app, move |book| book.hours(&hours)).await
}

impl WhichHours {
    fn hours(self, app: &App) -> Outcome<Hours> {
        let Self {
            from,
            until,
            since,
            queue,
            kind,
        } = self;
        let span = Span {
            day: None,
            from: from.as_deref(),
            until: until.as_deref(),
            since,
        };
        hours_of(app, span, queue, kind)
    }
}

/// The hours of a span, and those of the last day if it is open.
fn hours_of(app: &App, span: Span<'_>, queue: Option<Name>, kind: Option<Name>) -> Outcome<Hours> {
    let last_day = span.is_open().then_some(Period::from_days(1));
    let span = Span {
        since: span.since.or(last_day),
        ..span
    };
    let (from_ms, until_ms) = span.bounds(app)?;
    Ok(Hours {
        from_ms,
        until_ms: until_ms.min(app.now().wall.0.saturating_add(HOUR_MS)),
        namespace: namespace_of(app),
        queue: queue.map(|name| name.0),
        kind: kind.map(|name| name.0),
    })
}
