//! One job: everything about it, and why it does not run, as one code and one sentence.

use bytes::Bytes;
use windlass_bridge::Job as Crossing;
use windlass_config::counted;
use windlass_engine::{
    Expiry, Hold, Holder, JobId, JobState, JobStateKind, JobView, LeaseHolder, OnExpiry, Protocol, QueueRow, Timestamp,
    Why,
};

use super::attempts::Attempt;
use super::trace::traceparent;
use super::view::view;
use super::views::{Failure, Job, body, state_name, text};
use crate::app::{App, Now};
use crate::name::Name;
use crate::time::moment_text;

view! {
    /// Everything about a job.
    JobDetail(view: &JobView, reason: Option<(Why, Option<&QueueRow>)>, kept: (Option<Name>, &[windlass_engine::Attempt]), app: &App, now: Now) with {
        let (mut row, job) = (Job::of(view, app, now), &view.job);
        let extra = job.extra.as_deref();
        if let (Some(shown), Some(failure)) = (&mut row.failure, extra.and_then(|extra| extra.failure.as_deref())) {
            shown.backtrace = failure.backtrace.iter().map(|line| text(line)).collect();
        }
        if let (Some(lease), Some(Why::Leased(holder))) = (&mut row.lease, reason.as_ref().map(|(why, _)| why)) {
            lease.worker = lease.worker.take().or_else(|| Name::of(&holder.worker));
        }
        let (body, body_base64) = body(job.body());
        let result = extra.and_then(|extra| extra.result.as_deref());
        let unfit = Protocol::sharing().filter(|it| job.unfit.has(*it));
    } {
        #[serde(flatten)]
        job: Job = row,
        /// Why it does not run.
        why: Option<Reason> = reason.map(|why| Reason::of(why, view, app, now)),
        /// Its body, if it is UTF-8 and not longer than 1 MiB.
        body: Option<String> = body,
        /// Its body, if it is not UTF-8 and not longer than 1 MiB.
        body_base64: Option<String> = body_base64,
        /// Its batch, if it is in one that is known.
        batch: Option<Name> = kept.0,
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
        history: Vec<Attempt> = kept.1.iter().map(Attempt::of).collect(),
        /// What its worker last reported.
        progress: Option<Progress> = extra.and_then(|extra| extra.progress.as_ref()).map(Progress::of),
        /// The result of a done job, if it is UTF-8.
        result: Option<String> = result.and_then(|it| String::from_utf8(it.to_vec()).ok()),
        /// Whether it lives only as long as a client waits for it.
        foreground: bool = !job.durable,
        /// Protocols whose workers cannot take it because it has no form there.
        unconvertible_for: Vec<&'static str> = unfit.map(|it| app.protocol_name(it)).collect(),
        /// The trace that its producer has named (W3C Trace Context), of a job of Faktory's.
        traceparent: Option<String> = traceparent(job.protocol, job.body()),
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
    Reason(reason: (Why, Option<&QueueRow>), view: &JobView, app: &App, now: Now) with {
        let (why, queue) = reason;
        let (code, sentence) = sentence((&why, queue), view, app, now);
        let misfits = if matches!(code, "unserved" | "waiting") { misfits(view, app) } else { Vec::new() };
    } {
        /// `leased`, `scheduled`, `retrying`, `dead`, `parked`, `done`, `paused`, `throttled`, `held`, `coalesced`, `unserved`
        /// or `waiting`.
        code: &'static str = code,
        /// The same as a sentence.
        text: String = std::iter::once(sentence).chain(misfits).collect::<Vec<_>>().join("; "),
        /// Jobs that hold the slots of the queue's throttle, if it is throttled.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        held_by: Vec<u64> = if let Why::Throttled { holders } = why {
            holders.into_iter().map(|job| job.0).collect()
        } else {
            Vec::new()
        },
    }
}

fn sentence((why, row): (&Why, Option<&QueueRow>), view: &JobView, app: &App, now: Now) -> (&'static str, String) {
    let queue = Name(view.queue.clone());
    match why {
        Why::Leased(holder) => ("leased", leased(holder, view, app, now)),
        Why::NotReady => (state_name(view.job.state.kind()), not_ready(view, now)),
        Why::Paused { since } => {
            let since = since.and_then(moment_text).map_or_else(String::new, |at| format!(" since {at}"));
            ("paused", format!("the queue {queue} is paused{since}"))
        }
        Why::Throttled { .. } => ("throttled", format!("jobs in progress hold all slots of the throttle of {queue}")),
        Why::Held(hold) => ("held", held(hold, &queue, now)),
        Why::Coalesced { submits, behind } => ("coalesced", coalesced(*submits, *behind, not_ready(view, now))),
        Why::Unserved { others } if others.is_empty() => ("unserved", format!("no worker serves {queue}")),
        Why::Unserved { others } => {
            let others: Vec<_> = others.iter().map(|protocol| app.protocol_name(*protocol)).collect();
            let (others, own) = (others.join(" and "), app.protocol_name(view.job.protocol));
            ("unserved", format!("only workers of {others} serve {queue}, and they do not see this job of {own}"))
        }
        Why::Behind { jobs: 0, .. } => ("waiting", format!("it is the next job of {queue}{}", busy(row))),
        Why::Behind { jobs, more } => {
            let (least, are) = (if *more { "at least " } else { "" }, if *jobs == 1 { "is" } else { "are" });
            ("waiting", format!("{least}{} of {queue} {are} before it{}", counted((*jobs).into(), "job"), busy(row)))
        }
    }
}

/// What a policy waits for.
fn held(hold: &Hold, queue: &Name, now: Now) -> String {
    let key_name = |key: &Bytes| match &**key {
        [] => "jobs without a key".to_owned(),
        key => format!("the key {}", String::from_utf8_lossy(key).escape_debug()),
    };
    let in_s = |until: Timestamp| until.ms_since(now.engine) as f64 / 1_000.0;
    match hold {
        Hold::Rate { until } => format!("the rate of {queue} allows the next start in {:.1} s", in_s(*until)),
        Hold::KeyRate { key, until } => {
            format!("the rate of {} in {queue} allows the next start in {:.1} s", key_name(key), in_s(*until))
        }
        Hold::Paused { key } => {
            let verb = if key.is_empty() { "are" } else { "is" };
            format!("{} {verb} paused in {queue}", key_name(key))
        }
        Hold::Key { key, jobs } => {
            let verb = if *jobs == 1 { "holds" } else { "hold" };
            format!("{jobs} running or to be retried {verb} {} in {queue}", key_name(key))
        }
    }
}

/// What has become of the submits of a job, and what it waits for.
fn coalesced(submits: u32, behind: Option<JobId>, state: String) -> String {
    let text = behind.map_or(state, |job| format!("it runs once more when job {} has ended", job.0));
    match submits {
        0 | 1 => text,
        _ => format!("{text}; {submits} submits became this job, which has the body of one of them"),
    }
}

/// What the workers of the queue do.
fn busy(row: Option<&QueueRow>) -> String {
    match row.map(|row| (row.workers, row.jobs(JobStateKind::Leased))) {
        None | Some((_, 0)) => String::new(),
        Some((0 | 1, _)) => "; its worker is busy".to_owned(),
        Some((workers, jobs)) if jobs >= workers => format!("; all {workers} of its workers are busy"),
        Some((workers, jobs)) => format!("; busy: {jobs} of its {workers} workers"),
    }
}

/// Why workers of other protocols, which have tried, cannot have the job.
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
    let tried = bridge.protocols().filter(|(protocol, _)| job.unfit.has(*protocol));
    tried.filter_map(|(protocol, _)| Some(bridge.misfit(&crossing, protocol)?.to_string())).collect()
}

fn leased(holder: &LeaseHolder, view: &JobView, app: &App, now: Now) -> String {
    let LeaseHolder { worker, address, protocol, .. } = holder;
    let mut text = match Name::of(worker) {
        Some(worker) => format!("the worker {worker} has it"),
        None => "a worker without a name has it".to_owned(),
    };
    if view.job.lease().is_some_and(|lease| matches!(lease.holder, Holder::Away(_))) {
        text.push_str(" from before the daemon was stopped, and may come back to report");
    } else if let Some(protocol) = protocol {
        text.push_str(&format!(", a client of {} at {address}", app.protocol_name(*protocol)));
    }
    if let Some(lease) = view.job.lease() {
        let since = now.text(lease.taken_at).map(|since| format!(", since {since}"));
        let until = now.text(lease.until).map(|until| format!(", until {until} at the latest"));
        let is_faktorys = view.job.protocol == Protocol::FAKTORY && lease.on_expiry == OnExpiry::Fail;
        let until = until.map(|until| match (Name::of(worker), is_faktorys) {
            (Some(_), true) => until + "; with faktory.requeue_on_worker_death, until the worker is lost",
            (None, _) | (_, false) => until,
        });
        text.extend([since, until].into_iter().flatten());
    }
    text
}

fn not_ready(view: &JobView, now: Now) -> String {
    let job = &view.job;
    let failure = job.extra.as_deref().and_then(|extra| extra.failure.as_deref());
    let failed = failure.map_or_else(String::new, |failure| {
        let failures = if job.failures == 1 { "failure" } else { "failures" };
        format!(", after {} {failures}, the last: {}", job.failures, Failure::of(failure).text())
    });
    let at = |moment: Option<String>| moment.unwrap_or_else(|| "never".to_owned());
    match &job.state {
        JobState::Scheduled(due) => format!("it is due at {}", at(moment_text(*due))),
        JobState::Retrying(due) => format!("it is retried at {}{failed}", at(now.text(*due))),
        JobState::Dead(until) => format!("it is dead, and kept until {}{failed}", at(now.text(*until))),
        JobState::Parked if job.cycle().is_none() => "it waits for another job".to_owned(),
        JobState::Parked => "it is out of its cycle queue".to_owned(),
        JobState::Done(_) => "it has ended".to_owned(),
        JobState::Ready | JobState::Leased(_) => "it has just changed".to_owned(),
    }
}
