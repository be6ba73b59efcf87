//! Rows of the history: the run of a job that has ended, and its attempts.

use windlass_engine::{
    Backoff, Command, Ended, Ending, Failure, Filter, LeaseCommand, Mutation, Proof,
};

use crate::common::{Broker, id, mutate, name, push, take};

fn fail(kind: &'static str) -> Command {
    let failure = Box::new(Failure {
        kind: name(kind),
        ..Failure::default()
    });
    let (job, proof) = (id(1), Proof::Connection);
    LeaseCommand::Fail {
        job,
        proof,
        failure,
    }
    .into()
}

/// How the jobs have ended, and when the runs began with which they did.
fn runs(rows: &[Ended]) -> Vec<(Ending, Option<u64>)> {
    rows.iter()
        .map(|row| (row.ending, row.started_at.map(|at| at.0)))
        .collect()
}

/// The error of each attempt.
fn errors(row: &Ended) -> Vec<&[u8]> {
    let attempts = row.attempts.iter().flat_map(|attempts| attempts.iter());
    attempts
        .map(|attempt| &*attempt.error.as_deref().unwrap().kind)
        .collect()
}

#[test]
fn the_run_of_a_row_is_the_one_that_ended_the_job_and_no_earlier_one() {
    let mut broker = Broker::limited(|limits| limits.history.keep_ms = 1);
    broker.engine.keep_history(true);
    broker.hear(1, push("q").retry(1, Backoff::None));
    broker.now = 1_010;
    broker.hear(1, take(["q"]));
    broker.now = 1_030;
    broker.hear(1, fail("first"));
    broker.now = 1_040;
    broker.hear(1, take(["q"]));
    broker.now = 1_050;
    broker.hear(1, fail("second"));
    // The dead job is ready again, and no worker takes it.
    broker.now = 9_000;
    broker.hear(1, mutate(Filter::default(), Mutation::Requeue));
    broker.now = 9_100;
    broker.hear(1, mutate(Filter::default(), Mutation::Discard));
    assert_eq!(
        runs(&broker.rows),
        [(Ending::Dead, Some(1_040)), (Ending::Cancelled, None)]
    );
    for row in &broker.rows {
        assert_eq!(errors(row), [&b"first"[..], b"second"], "{row:?}");
        assert!(
            row.started_at.is_none_or(|at| row.ready_at <= at),
            "{row:?}"
        );
    }
}
