//! All data of a job, and why it is not running, as a code and a sentence.

use bytes::Bytes;
use windlass_bridge::Job as Crossing;
use windlass_config::{Period, counted};
use windlass_engine::{
    Expiry, Hold, Holder, JobId, JobState, JobStateKind, JobView, LeaseHolder, OnExpiry, Protocol,
    QueueRow, Timestamp, Turn, Why,
};

use super::attempts::Attempt;
use super::trace::traceparent;
use super::views::{Failure, Job, body, state_name, text};
use crate::app::{App, Now};
use crate::name::Name;
use crate::sight::Sight;
use crate::time::moment_text;
use crate::view::view;

view! {
    /// Everything about a job.
    JobDetail(
        view: &JobView, why: Option<Why>, queue: Option<&QueueRow>, batch: Option<Name>,
        attempts: &[windlass_engine::Attempt], app: &App, sight: Sight
    ) with {
        let now = app.now();
        let (mut row, job) = (Job::of(view, app, sight, now), &view.job);
        let extra = job.extra.as_deref();
        if let (Some(shown), Some(failure)) = (&mut row.failure, extra.and_then(|extra| extra.failure.as_deref())) {
            shown.backtrace = failure.backtrace.iter().map(|line| text(line)).collect();
        }
        if let (Some(lease), Some(Why::Leased(holder))) = (&mut row.lease, &why) {
            lease.worker = lease.worker.take().or_else(|| Name::of(&holder.worker));
        }
        let shown = sight.body(app, view.into(), job.body());
        let (body, body_base64) = body(&shown);
        let result = extra.and_then(|extra| extra.result.as_deref());
        let unfit = Protocol::sharing().filter(|it| job.unfit.has(*it));
    } {
        #[serde(flatten)]
        job: Job = row,
        /// Why it does not run.
        why: Option<Reason> = why.map(|why| Reason::of(why, queue, view, app, now)),
        /// Its body, if it is UTF-8 and not longer than 1 MiB.
        body: Option<String> = body,
        /// Its body, if it is not UTF-8 and not longer than 1 MiB.
        body_base64: Option<String> = body_base64,
        /// Its batch, if it is in one that is known.
        batch: Option<Name> = batch,
        /// Retries after failures: 0 discards the job at its first failure, -1 makes it dead.
        retries: i32 = job.retry.failures_max,
        /// When it is discarded unless it was taken before.
        expires_at: Option<String> = match extra.map(|extra| extra.expires).unwrap_or_default() {
            Expiry::Never => None,
            Expiry::At(at) => moment_text(at),
            Expiry::By(at) => now.text(at),
        },
        /// Workers lost with it.
        losses: u32 = extra.map_or(0, |extra| extra.losses),
        /// Its last deliveries that did not succeed, oldest first: 25 at most.
        history: Vec<Attempt> = attempts.iter().map(Attempt::of).collect(),
        /// What its worker last reported.
        progress: Option<Progress> = extra.and_then(|extra| extra.progress.as_ref()).map(Progress::of),
        /// The result of a done job, if it is UTF-8.
        result: Option<String> = result.and_then(|it| String::from_utf8(it.to_vec()).ok()),
        /// Whether it lives only as long as a client waits for it.
        foreground: bool = !job.durable,
        /// Protocols whose workers cannot take it because it has no form there.
        unconvertible_for: Vec<&'static str> = unfit.map(|it| app.protocol_name(it)).collect(),
        /// The trace that its producer has named (W3C Trace Context), of a job of Faktory's.
        traceparent: Option<String> = traceparent(job.protocol, &shown),
    }
}

view! {
    /// A worker's report.
    Progress(progress: &windlass_engine::Progress) {
        /// Units done, of `of`.
        done: u32 = progress.numerator,
        /// Units in total.
        of: u32 = progress.denominator,
        /// A text.
        text: String = text(&progress.text),
    }
}

view! {
    /// Why a job does not run.
    Reason(why: Why, queue: Option<&QueueRow>, view: &JobView, app: &App, now: Now) with {
        let (code, sentence) = sentence(&why, queue, view, app, now);
        let misfits = if matches!(code, "unserved" | "waiting") { misfits(view, app) } else { Vec::new() };
    } {
        /// `leased`, `scheduled`, `retrying`, `dead`, `parked`, `done`, `paused`, `throttled`, `held`, `coalesced`, `unserved`
        /// or `waiting`.
        code: &'static str = code,
        /// The same as a sentence.
        text: String = std::iter::once(sentence).chain(misfits).collect::<Vec<_>>().join("; "),
        /// Jobs that hold the slots of the queue's throttle, if it is throttled, or the job's key, if that is held.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        held_by: Vec<u64> = held_by(&why).iter().map(|job| job.0).collect(),
        /// Ready jobs that start before it, as far as they were counted.
        before: Option<u32> = before(&why).map(|(jobs, _)| jobs),
        /// Whether there may be more of them.
        before_more: bool = before(&why).is_some_and(|(_, more)| more),
        /// When it starts at the earliest by the policy of its queue, if workers are there; null: without a policy, or not
        /// before another job of its key ends.
        starts_at: Option<String> = earliest(&why).and_then(|at| now.text(at)),
    }
}

fn held_by(why: &Why) -> &[JobId] {
    if let Why::Throttled { holders } = why {
        holders
    } else if let Why::Turn(turn) = why {
        &turn.holders
    } else {
        &[]
    }
}

/// The number of jobs before it, and `true` if there may be more.
fn before(why: &Why) -> Option<(u32, bool)> {
    if let Why::Behind { jobs, more } = why {
        Some((*jobs, *more))
    } else if let Why::Turn(turn) = why {
        Some((turn.jobs, turn.more))
    } else {
        None
    }
}

fn earliest(why: &Why) -> Option<Timestamp> {
    if let Why::Turn(turn) = why {
        turn.at
    } else {
        None
    }
}

fn sentence(
    why: &Why,
    row: Option<&QueueRow>,
    view: &JobView,
    app: &App,
    now: Now,
) -> (&'static str, String) {
    let queue = Name(view.queue.clone());
    match why {
        Why::Leased(holder) => ("leased", leased(holder, view, app, now)),
        Why::NotReady => (state_name(view.job.state.kind()), not_ready(view, now)),
        Why::Paused { since } => {
            let since = since
                .and_then(moment_text)
                .map_or_else(String::new, |at| format!(" since {at}"));
            ("paused", format!("the queue {queue} is paused{since}"))
        }
        Why::Throttled { .. } => (
            "throttled",
            format!("jobs in progress hold all slots of the throttle of {queue}"),
        ),
        Why::Turn(turn) => turn_of(turn, &queue, row, now),
        Why::Coalesced { submits, behind } => (
            "coalesced",
            coalesced(*submits, *behind, not_ready(view, now)),
        ),
        Why::Unserved { others } if others.is_empty() => {
            ("unserved", format!("no worker serves {queue}"))
        }
        Why::Unserved { others } => {
            let others: Vec<_> = others
                .iter()
                .map(|protocol| app.protocol_name(*protocol))
                .collect();
            let (others, own) = (others.join(" and "), app.protocol_name(view.job.protocol));
            (
                "unserved",
                format!(
                    "only workers of {others} serve {queue}, and they do not see this job of {own}"
                ),
            )
        }
        Why::Behind { jobs: 0, .. } => (
            "waiting",
            format!("it is the next job of {queue}{}", busy(row)),
        ),
        Why::Behind { jobs, more } => {
            let (least, are) = (
                if *more { "at least " } else { "" },
                if *jobs == 1 { "is" } else { "are" },
            );
            (
                "waiting",
                format!(
                    "{least}{} of {queue} {are} before it{}",
                    counted((*jobs).into(), "job"),
                    busy(row)
                ),
            )
        }
    }
}

/// The effect of the queue's policy on the job. The last restriction to be lifted takes precedence: the end
/// of a job of the same key, then rates.
fn turn_of(turn: &Turn, queue: &Name, row: Option<&QueueRow>, now: Now) -> (&'static str, String) {
    let Turn {
        hold,
        jobs,
        more,
        at,
        ..
    } = turn;
    let in_time = |at: Timestamp| match at.ms_since(now.engine) {
        ms @ 0..1_000 => format!("{ms} ms"),
        ms => Period::from_ms(ms / 1_000 * 1_000).to_string(),
    };
    let least = if *more { "at least " } else { "" };
    let are_before = |of: &str| {
        let are = if *jobs == 1 { "is" } else { "are" };
        format!(
            "{least}{} of {of} {are} before it",
            counted((*jobs).into(), "job")
        )
    };
    let rates = matches!(hold, Some(Hold::Rate { .. } | Hold::KeyRate { .. }))
        || at.is_some_and(|at| at > now.engine);
    match (hold, at) {
        (Some(Hold::Paused { key }), _) => {
            let verb = if key.is_empty() { "are" } else { "is" };
            (
                "held",
                format!("{} {verb} paused in {queue}", key_name(key)),
            )
        }
        (Some(Hold::Key { key, jobs: holding }), None) => {
            let verb = if *holding == 1 { "holds" } else { "hold" };
            let behind = if *jobs > 0 {
                format!("; {}", are_before("its key"))
            } else {
                String::new()
            };
            let what = counted((*holding).into(), "job");
            (
                "held",
                format!(
                    "{what} running or to be retried {verb} {} in {queue}{behind}",
                    key_name(key)
                ),
            )
        }
        (_, None) => (
            "held",
            format!(
                "it starts when a job of its key in {queue} that starts before it has ended; {}",
                are_before("its key")
            ),
        ),
        (Some(Hold::Key { key, .. }), Some(at)) => {
            let text = format!(
                "{} may still run a job from before the daemon was killed",
                key_name(key)
            );
            (
                "held",
                format!(
                    "{text}: it starts in about {} at the earliest",
                    in_time(*at)
                ),
            )
        }
        (_, Some(at)) if rates => {
            let whose = match hold {
                Some(Hold::KeyRate { key, .. }) => {
                    format!("the rate of {} in {queue}", key_name(key))
                }
                _ => format!("the rate of {queue}"),
            };
            let before = if *jobs > 0 {
                format!("{}; ", are_before(&queue.to_string()))
            } else {
                String::new()
            };
            (
                "held",
                format!(
                    "{before}{whose} lets it start in about {} at the earliest",
                    in_time(*at)
                ),
            )
        }
        (_, Some(_)) if *jobs == 0 => (
            "waiting",
            format!("it is the next job of {queue}{}", busy(row)),
        ),
        (_, Some(_)) => (
            "waiting",
            format!(
                "{} by the policy{}",
                are_before(&queue.to_string()),
                busy(row)
            ),
        ),
    }
}

fn key_name(key: &Bytes) -> String {
    match &**key {
        [] => "jobs without a key".to_owned(),
        key => format!("the key {}", String::from_utf8_lossy(key).escape_debug()),
    }
}

/// The number of merged submits of a job, and the reason for the delay.
fn coalesced(submits: u32, behind: Option<JobId>, state: String) -> String {
    let text = behind.map_or(state, |job| {
        format!("it runs once more when job {} has ended", job.0)
    });
    match submits {
        0 | 1 => text,
        _ => {
            format!("{text}; {submits} submits became this job, which has the body of one of them")
        }
    }
}

/// The activity of the queue's workers.
fn busy(row: Option<&QueueRow>) -> String {
    match row.map(|row| (row.workers, row.jobs(JobStateKind::Leased))) {
        None | Some((_, 0)) => String::new(),
        Some((0 | 1, _)) => "; its worker is busy".to_owned(),
        Some((workers, jobs)) if jobs >= workers => {
            format!("; all {workers} of its workers are busy")
        }
        Some((workers, jobs)) => format!("; busy: {jobs} of its {workers} workers"),
    }
}

/// Why workers of other protocols could not take the job.
fn misfits(view: &JobView, app: &App) -> Vec<String> {
    let job = &view.job;
    let crossing = Crossing {
        protocol: job.protocol,
        queue: &view.queue,
        body: job.body(),
        codec: view.codec,
        key: job.key().unwrap_or_default(),
        priority: job.priority,
    };
    let bridge = &app.daemon.bridge;
    let tried = bridge
        .protocols()
        .filter(|(protocol, _)| job.unfit.has(*protocol));
    tried
        .filter_map(|(protocol, _)| Some(bridge.misfit(&crossing, protocol)?.to_string()))
        .collect()
}

fn leased(holder: &LeaseHolder, view: &JobView, app: &App, now: Now) -> String {
    let LeaseHolder {
        worker,
        address,
        protocol,
        ..
    } = holder;
    let mut text = match Name::of(worker) {
        Some(worker) => format!("the worker {worker} has it"),
        None => "a worker without a name has it".to_owned(),
    };
    if view
        .job
        .lease()
        .is_some_and(|lease| matches!(lease.holder, Holder::Away(_)))
    {
        text.push_str(" from before the daemon was stopped, and may come back to report");
    } else if let Some(protocol) = protocol {
        text.push_str(&format!(
            ", a client of {} at {address}",
            app.protocol_name(*protocol)
        ));
    }
    if let Some(lease) = view.job.lease() {
        let since = now
            .text(lease.taken_at)
            .map(|since| format!(", since {since}"));
        let until = now
            .text(lease.until)
            .map(|until| format!(", until {until} at the latest"));
        let is_faktorys =
            view.job.protocol == Protocol::FAKTORY && lease.on_expiry == OnExpiry::Fail;
        let until = until.map(|until| match (Name::of(worker), is_faktorys) {
            (Some(_), true) => {
                until + "; with faktory.requeue_on_worker_death, until the worker is lost"
            }
            (None, _) | (_, false) => until,
        });
        text.extend([since, until].into_iter().flatten());
    }
    text
}

fn not_ready(view: &JobView, now: Now) -> String {
    let job = &view.job;
    let failure = job
        .extra
        .as_deref()
        .and_then(|extra| extra.failure.as_deref());
    let failed = failure.map_or_else(String::new, |failure| {
        let failures = if job.failures == 1 {
            "failure"
        } else {
            "failures"
        };
        format!(
            ", after {} {failures}, the last: {}",
            job.failures,
            Failure::of(failure).text()
        )
    });
    let at = |moment: Option<String>| moment.unwrap_or_else(|| "never".to_owned());
    match &job.state {
        JobState::Scheduled(due) => format!("it is due at {}", at(moment_text(*due))),
        JobState::Retrying(due) => format!("it is retried at {}{failed}", at(now.text(*due))),
        JobState::Dead(until) => format!(
            "it is dead, and kept until {}{failed}",
            at(now.text(*until))
        ),
        JobState::Parked if job.cycle().is_none() => "it waits for another job".to_owned(),
        JobState::Parked => "it is out of its cycle queue".to_owned(),
        JobState::Done(_) => "it has ended".to_owned(),
        JobState::Ready | JobState::Leased(_) => "it has just changed".to_owned(),
    }
}
