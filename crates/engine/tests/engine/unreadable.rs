//! Unreadable bodies: each affects only a single job.

use windlass_engine::{
    Backoff, BulkCommand, ClientId, Command, Condition, Context, Filter, JobId, JobStateKind,
    Mutation, Stored, Tag, Timestamp, Token, UNREADABLE, WarningKind,
};

use crate::bodies::{Cold, long};
use crate::common::*;

/// Buries a job that was delivered but cannot be read from this place. Returns the events of other clients,
/// or `None` if it has not died.
fn bury(cold: &mut Cold, job: u64, from: Stored) -> Option<Vec<String>> {
    let token = cold
        .broker
        .engine
        .job(JobId(job))?
        .lease()
        .map_or(Token(0), |lease| lease.token);
    let mut context = Context::new(Timestamp(cold.broker.now), 7);
    let has_died = cold
        .broker
        .engine
        .bury_unreadable(JobId(job), token, from, &mut context);
    cold.broker.engine.check();
    cold.broker.warnings.append(&mut context.warnings);
    has_died.then(|| words(&context.events))
}

fn is_dead(cold: &Cold, job: u64) -> bool {
    cold.broker
        .engine
        .job(JobId(job))
        .is_some_and(|job| job.state.kind() == JobStateKind::Dead)
}

#[test]
fn a_job_whose_body_cannot_be_read_dies_and_the_next_one_is_handed_out() {
    let table = [
        ("background", long("q", "1"), vec![]),
        (
            "kept on failure",
            long("q", "1").retry(5, Backoff::None),
            vec![],
        ),
        (
            "heard",
            long("q", "1").listen(),
            vec!["1 failed j1 its body cannot be read"],
        ),
    ];
    for (what, push, heard) in table {
        let mut cold = Cold::new();
        cold.broker.hear(1, push);
        cold.broker.hear(1, long("q", "2"));
        let place = cold.store(1);
        cold.broker.says(2, take(["q"]), ["2 took j1.1"]);
        let said = bury(&mut cold, 1, place).unwrap();
        assert_eq!(said.len(), heard.len(), "{what}: {said:?}");
        assert!(
            said.iter()
                .all(|said| said.contains("its body cannot be read")),
            "{what}: {said:?}"
        );
        assert!(is_dead(&cold, 1), "{what}");
        let job = cold.broker.engine.job(JobId(1)).unwrap();
        let failure = job
            .extra
            .as_deref()
            .and_then(|extra| extra.failure.as_deref())
            .unwrap();
        assert_eq!(
            (&*failure.kind, job.failures, job.payload.stored()),
            (UNREADABLE, 0, Some(place)),
            "{what}"
        );
        let warning = cold.broker.warnings.last().unwrap();
        assert_eq!(
            (&warning.kind, &*warning.why),
            (
                &WarningKind::Buried,
                &b"unreadable: its body cannot be read"[..]
            )
        );
        cold.broker.says(2, take(["q"]), ["2 took j2.1"]);
        // It is still there: a retry delivers it again, and by then another place may have the
        // body.
        cold.broker
            .says(1, mutate(all(), Mutation::Requeue), ["1 mutated 1"]);
        cold.broker.says(3, take(["q"]), ["3 took j1.2"]);
        assert!(
            bury(&mut cold, 1, Stored { at: 9, ..place }).is_none(),
            "{what}: another place"
        );
        assert!(
            cold.load(JobId(1), place) && bury(&mut cold, 1, place).is_none(),
            "{what}: it is in memory by now"
        );
        cold.broker.says(3, finish(1), ["3 finished j1"]);
    }
}

/// A job that exists only for listeners is never dead, but an entry of a `cycle` queue may be.
#[test]
fn other_jobs_whose_bodies_cannot_be_read() {
    let mut cold = Cold::new();
    cold.broker.hear(1, long("q", "1").foreground());
    let place = cold.store(1);
    cold.broker.hear(2, take(["q"]));
    let said = bury(&mut cold, 1, place).unwrap();
    assert!(
        said.len() == 1 && said[0].contains("its body cannot be read"),
        "{said:?}"
    );
    assert_eq!(cold.broker.place(1), "gone");

    let mut cold = Cold::new();
    cold.broker.hear(
        1,
        long("r", "1")
            .cycle()
            .with(|job| job.name = Some(name("n"))),
    );
    let place = cold.store(1);
    cold.broker.hear(2, take_round("r"));
    assert!(bury(&mut cold, 1, place).is_some() && is_dead(&cold, 1));
}

#[test]
fn a_client_has_another_delivery_for_one_that_it_never_got() {
    let mut cold = Cold::with("q", 2);
    let place = cold.store(1);
    cold.broker.hear(2, serve("q"));
    cold.broker.says(2, credit(1), ["2 took j1.1"]);
    assert_eq!(bury(&mut cold, 1, place), Some(vec![]));
    let mut context = Context::new(Timestamp(cold.broker.now), 7);
    cold.broker.engine.return_credit(ClientId(2), &mut context);
    cold.broker.engine.check();
    assert_eq!(words(&context.events), ["2 took j2.1"]);
    cold.broker.engine.return_credit(ClientId(99), &mut context);
}

/// A command that needs bodies skips jobs with unreadable ones.
#[test]
fn commands_pass_over_jobs_whose_bodies_cannot_be_read() {
    let text = || Filter {
        conditions: vec![Condition::Body("1".into())],
        ..all()
    };
    let redrive = BulkCommand::Redrive {
        filter: Filter {
            state: Some(JobStateKind::Dead),
            ..all()
        }
        .into(),
        to: name("r"),
        delay_ms: 0,
        per_second: 9,
        after: Default::default(),
        limit: 9,
    };
    let table: [(&str, Command, Option<Mutation>, &str); 5] = [
        ("listed by text", list_jobs(text()), None, "1 jobs j1"),
        (
            "killed by text",
            mutate(text(), Mutation::Kill),
            None,
            "1 mutated 1",
        ),
        ("killed", mutate(all(), Mutation::Kill), None, "1 mutated 3"),
        (
            "discarded",
            mutate(all(), Mutation::Discard),
            Some(Mutation::Kill),
            "1 mutated 3",
        ),
        ("moved", redrive.into(), Some(Mutation::Kill), "1 mutated 2"),
    ];
    for (what, command, before, expected) in table {
        let mut cold = Cold::with("q", 1);
        cold.broker.hear(1, long("q", "1"));
        cold.broker.hear(1, long("q", "3"));
        cold.store(2);
        before
            .into_iter()
            .for_each(|action| drop(cold.broker.hear(1, mutate(all(), action))));
        let mut context = Context::new(Timestamp(cold.broker.now), 1);
        cold.broker
            .engine
            .apply(ClientId(1), Tag(9), command.clone(), &mut context);
        if context.events.is_empty() {
            assert_eq!(
                context
                    .missing
                    .drain(..)
                    .map(|(job, _)| job)
                    .collect::<Vec<_>>(),
                [JobId(2)],
                "{what}"
            );
            context.unreadable.insert(JobId(2));
            cold.broker
                .engine
                .apply(ClientId(1), Tag(9), command, &mut context);
        }
        cold.broker.engine.check();
        assert_eq!(
            (words(&context.events), context.missing.len()),
            (vec![expected.to_owned()], 0),
            "{what}"
        );
        assert!(context.unreadable.is_empty(), "{what}: for one command");
    }
}
