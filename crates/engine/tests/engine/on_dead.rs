//! A job is pushed because another one died, in the same visit.

use std::sync::Arc;

use bytes::Bytes;
use windlass_engine::{
    Backoff, Capacity, Change, ClientCommand, ClientId, Context, Job, JobId, JobStateKind,
    LeaseCommand, Limits, Mutation, NewJob, OnDead, Proof, Protocol, Tag, Timestamp, WarningKind,
};

use crate::common::*;

/// Reports the dead of `mail` in `reports`, by name.
#[derive(Debug)]
struct Reports;

impl OnDead for Reports {
    fn job(&self, dead: &Job, queue: &[u8], _: &[u8], wall: Timestamp) -> Option<NewJob> {
        assert!(dead.state.kind() == JobStateKind::Dead && wall == Timestamp(1_000));
        let body = Bytes::copy_from_slice(dead.name());
        (queue == b"mail")
            .then(|| NewJob::new(Protocol::GEARMAN, Bytes::from_static(b"reports"), body))
    }
}

fn broker() -> Broker {
    let mut broker = Broker::limited(|limits| limits.losses_max = 1);
    broker.engine.set_on_dead(Some(Arc::new(Reports)));
    broker
}

/// The bodies of the jobs of `reports`, by number.
fn reports(broker: &Broker) -> Vec<(u64, String)> {
    let is_report = |job: &&Job| {
        broker
            .engine
            .queue(job.queue)
            .is_some_and(|it| it.image().name == "reports")
    };
    let reports = broker.engine.jobs().filter(is_report);
    let mut found: Vec<_> = reports
        .map(|job| (job.id.0, String::from_utf8_lossy(job.body()).into_owned()))
        .collect();
    found.sort();
    found
}

#[test]
fn every_way_to_the_dead_letter_queue_causes_one_job() {
    let dies = |broker: &mut Broker, how: &str| match how {
        "fails" => drop(broker.hear(2, fail(1))),
        "is lost" => drop(broker.hear(2, ClientCommand::Close)),
        "has no form" => {
            let why = name("no form");
            broker.hear(
                2,
                LeaseCommand::Unconvertible {
                    job: id(1),
                    proof: Proof::Connection,
                    why,
                },
            );
        }
        _ => panic!("{how}"),
    };
    for how in ["fails", "is lost", "has no form"] {
        let mut broker = broker();
        broker.hear(1, push("mail").named("first").retry(-1, Backoff::None));
        broker.hear(2, take(["mail"]));
        dies(&mut broker, how);
        assert_eq!(broker.place(1).split(' ').next(), Some("dead"), "{how}");
        assert_eq!(reports(&broker), [(2, "first".to_owned())], "{how}");
        // It is ready like any other job.
        broker.restart(Limits::default());
        assert_eq!(reports(&broker).len(), 1, "{how}: a restart causes none");
        assert_eq!(broker.drain("reports"), [2], "{how}");
    }
}

#[test]
fn a_death_and_its_job_are_changes_of_one_visit() {
    let mut broker = broker();
    broker.hear(1, push("mail").retry(-1, Backoff::None));
    broker.hear(2, take(["mail"]));
    let mut context = Context::new(Timestamp(broker.now), 1);
    broker
        .engine
        .apply(ClientId(2), Tag(1), fail(1), &mut context);
    let there = |change: Change| context.changes.contains(&change);
    assert!(
        there(Change::JobMoved(JobId(1))) && there(Change::JobPut(JobId(2))),
        "{:?}",
        context.changes
    );
    // The same if a connection is closed in parts.
    let mut broker = Broker::limited(|limits| (limits.losses_max, limits.page_max) = (1, 2));
    broker.engine.set_on_dead(Some(Arc::new(Reports)));
    for job in 1..=3 {
        broker.hear(1, push("mail"));
        broker.says(2, take(["mail"]), [&*format!("2 took j{job}.1")]);
    }
    let mut context = Context::new(Timestamp(broker.now), 1);
    assert!(
        broker
            .engine
            .apply_in_part(ClientId(2), &ClientCommand::Close.into(), &mut context)
    );
    broker.engine.check();
    assert_eq!(reports(&broker).len(), 2);
}

#[test]
fn jobs_that_do_not_die_cause_none() {
    let mut broker = broker();
    // Discarded at its first failure.
    broker.hear(1, push("mail").retry(0, Backoff::None));
    broker.hear(2, take(["mail"]));
    broker.hear(2, fail(1));
    // An operator knows.
    broker.hear(1, push("mail"));
    broker.says(
        1,
        mutate(placed(JobStateKind::Ready), Mutation::Kill),
        ["1 mutated 1"],
    );
    // Another queue.
    broker.hear(1, push("other").retry(-1, Backoff::None));
    broker.hear(2, take(["other"]));
    broker.hear(2, fail(3));
    assert_eq!(reports(&broker), []);
}

#[test]
fn a_refused_job_gives_a_notice_and_the_dead_stay() {
    let mut broker = broker();
    broker.hear(1, limit("reports", 1));
    for job in [1, 2] {
        broker.hear(1, push("mail").named("first").retry(-1, Backoff::None));
        broker.hear(2, take(["mail"]));
        broker.hear(2, fail(if job == 1 { 1 } else { 3 }));
    }
    assert_eq!(
        (broker.place(3).split(' ').next(), reports(&broker).len()),
        (Some("dead"), 1)
    );
    let refused = WarningKind::OnDeadRefused(Capacity::QueueJobs.exceeded(1_u32, 1_u32));
    let notice = broker
        .warnings
        .iter()
        .find(|notice| notice.kind == refused)
        .unwrap();
    assert_eq!(
        (&*notice.queue, &*notice.name),
        (&b"reports"[..], &b"first"[..])
    );
}
