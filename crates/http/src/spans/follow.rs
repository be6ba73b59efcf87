//! Changes of jobs to spans: `push` when a job arrives, `wait` until a worker takes it, `run` while a worker has it.
//!
//! `push` is a child of the span that the job names, and the others are children of `push`: a job that is tried again
//! has several of them. Moments are the engine's, in milliseconds. A job that leaves the dead-letter queue is followed
//! as if it were pushed then.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use windlass_engine::{JobChange, JobId, JobStateKind, Timestamp};

use crate::api::trace::traceparent;
use crate::api::views::state_name;
use crate::name::Name;

/// Jobs that are followed at a time. Further ones have the span `push` alone.
const JOBS_MAX: usize = 100_000;

/// Jobs on their way, whose last spans have not ended.
#[derive(Debug, Default)]
pub(super) struct Followed(HashMap<JobId, Stay>);

/// A job stays in one state.
#[derive(Debug)]
struct Stay {
    push: SpanContext,
    state: JobStateKind,
    since: Timestamp,
}

/// What one span differs in from others.
struct Shape {
    name: &'static str,
    kind: SpanKind,
    state: JobStateKind,
    since: Timestamp,
    status: Status,
}

impl Followed {
    /// A job has changed. Returns the span that ended with the change.
    pub(super) fn change(&mut self, change: &JobChange, protocol: &'static str) -> Option<SpanData> {
        let (push, span) = match self.0.remove(&change.job) {
            Some(stay) => {
                let span = stay.span(change, protocol);
                (stay.push, span)
            }
            None => match push(change, protocol) {
                Some(span) => (span.span_context.clone(), Some(span)),
                None => return None,
            },
        };
        if let Some(state) = change.now.filter(goes_on)
            && self.0.len() < JOBS_MAX
        {
            self.0.insert(change.job, Stay { push, state, since: change.at });
        }
        span
    }
}

/// Whether a job in this state is about to run, or runs.
const fn goes_on(state: &JobStateKind) -> bool {
    use JobStateKind::{Dead, Done, Leased, Parked, Ready, Retrying, Scheduled};
    match state {
        Ready | Leased | Scheduled | Retrying => true,
        Dead | Parked | Done => false,
    }
}

/// The span of a job's arrival, if its trace is sampled.
fn push(change: &JobChange, protocol: &'static str) -> Option<SpanData> {
    // A job in another state has arrived before this daemon followed it.
    let state = change.now.filter(|now| matches!(now, JobStateKind::Ready | JobStateKind::Scheduled))?;
    let parent = parent(change).filter(SpanContext::is_sampled)?;
    let shape = Shape { name: "push", kind: SpanKind::Producer, state, since: change.at, status: Status::Unset };
    shape.span(&parent, change, protocol)
}

impl Stay {
    /// The span of a stay that ends with this change.
    fn span(&self, change: &JobChange, protocol: &'static str) -> Option<SpanData> {
        let is_run = self.state == JobStateKind::Leased;
        let (name, kind) = if is_run { ("run", SpanKind::Consumer) } else { ("wait", SpanKind::Internal) };
        let has_failed = matches!(change.now, Some(JobStateKind::Retrying | JobStateKind::Dead));
        let status = if has_failed && is_run { Status::error("the job has failed") } else { Status::Unset };
        Shape { name, kind, state: self.state, since: self.since, status }.span(&self.push, change, protocol)
    }
}

impl Shape {
    /// `None` if the system has no random bytes for its number.
    fn span(self, parent: &SpanContext, change: &JobChange, protocol: &'static str) -> Option<SpanData> {
        let mut id = [0; 8];
        getrandom::fill(&mut id).ok()?;
        let number = SpanId::from_bytes(id);
        let context = SpanContext::new(parent.trace_id(), number, parent.trace_flags(), false, TraceState::default());
        Some(SpanData {
            span_context: context,
            parent_span_id: parent.span_id(),
            parent_span_is_remote: parent.is_remote(),
            span_kind: self.kind,
            name: format!("{} {}", self.name, Name(change.queue.clone())).into(),
            start_time: moment(self.since),
            end_time: moment(change.at),
            attributes: vec![
                KeyValue::new("messaging.system", "windlass"),
                KeyValue::new("messaging.destination.name", Name(change.queue.clone()).to_string()),
                KeyValue::new("messaging.message.id", change.job.0.to_string()),
                KeyValue::new("windlass.protocol", protocol),
                KeyValue::new("windlass.state", state_name(self.state)),
                KeyValue::new("windlass.next_state", change.now.map_or("gone", state_name)),
            ],
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: self.status,
            instrumentation_scope: InstrumentationScope::default(),
        })
    }
}

/// The span that a job names. A valid name has hexadecimal numbers only.
fn parent(change: &JobChange) -> Option<SpanContext> {
    let name = traceparent(change.protocol, &change.body)?;
    let mut parts = name.split('-').skip(1);
    let trace = TraceId::from_hex(parts.next()?).ok()?;
    let span = SpanId::from_hex(parts.next()?).ok()?;
    let flags = TraceFlags::new(u8::from_str_radix(parts.next()?, 16).ok()?);
    Some(SpanContext::new(trace, span, flags, true, TraceState::default()))
}

fn moment(at: Timestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(at.0)
}

#[cfg(test)]
mod tests {
    use windlass_engine::Protocol;

    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    fn change(at: u64, flags: &str, now: Option<JobStateKind>) -> JobChange {
        let body = format!(r#"{{"jid":"a","custom":{{"traceparent":"00-{TRACE}-00f067aa0ba902b7-{flags}"}}}}"#);
        let (job, queue) = (JobId(7), "q".into());
        JobChange { job, queue, protocol: Protocol::FAKTORY, now, at: Timestamp(at), body: body.into() }
    }

    /// Name, milliseconds from beginning to end, whether it failed.
    fn shown(span: &SpanData) -> (&str, u128, bool) {
        assert_eq!(span.span_context.trace_id().to_string(), TRACE);
        let time = span.end_time.duration_since(span.start_time).unwrap().as_millis();
        (&*span.name, time, span.status != Status::Unset)
    }

    #[test]
    fn a_job_that_is_tried_twice() {
        use JobStateKind::{Leased, Ready, Retrying};
        let mut followed = Followed::default();
        let steps = [
            (10, Some(Ready), ("push q", 0, false)),
            (15, Some(Leased), ("wait q", 5, false)),
            (35, Some(Retrying), ("run q", 20, true)),
            (65, Some(Ready), ("wait q", 30, false)),
            (66, Some(Leased), ("wait q", 1, false)),
            (70, None, ("run q", 4, false)),
        ];
        let mut push = None;
        for (at, now, (name, time, failed)) in steps {
            let span = followed.change(&change(at, "01", now), "faktory").unwrap();
            assert_eq!(shown(&span), (name, time, failed), "at {at}");
            let parent = push.map_or_else(|| "00f067aa0ba902b7".to_owned(), |push: SpanId| push.to_string());
            assert_eq!((span.parent_span_id.to_string(), span.parent_span_is_remote), (parent, push.is_none()));
            push.get_or_insert(span.span_context.span_id());
        }
        assert!(followed.0.is_empty());
    }

    #[test]
    fn jobs_without_a_sampled_trace_and_jobs_that_were_there_before_have_no_spans() {
        let mut followed = Followed::default();
        let table = [("00", Some(JobStateKind::Ready)), ("01", Some(JobStateKind::Leased)), ("01", None)];
        for (flags, now) in table {
            assert_eq!(followed.change(&change(1, flags, now), "faktory"), None);
        }
        let plain = JobChange { body: "traceparent".into(), ..change(1, "01", Some(JobStateKind::Ready)) };
        assert_eq!(followed.change(&plain, "faktory"), None);
        assert!(followed.0.is_empty());
    }
}
