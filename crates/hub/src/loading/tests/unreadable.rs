//! Bodies that cannot be read.

use super::*;

#[test]
fn a_body_that_cannot_be_read_is_tried_again() {
    let mut bench = Bench::with_cold_jobs(1);
    let file = bench.lose_file();
    bench.visit(2, &mut items([take()]));
    bench.steps();
    assert_eq!(
        (
            bench.work.again.len(),
            bench.mail(2).len(),
            bench.stored().0
        ),
        (1, 0, 1)
    );
    bench.work.file = file;
    bench.steps();
    assert_eq!(
        (bench.work.again.len(), bodies(&bench.mail(2))),
        (0, vec![Some(filled(1, BODY))])
    );
}

#[test]
fn a_job_whose_body_cannot_be_read_dies_and_those_behind_it_are_handed_out() {
    let mut bench = Bench::with_cold_jobs(1);
    bench.run(1, push(2));
    let file = bench.lose_file();
    bench.visit(2, &mut items([take(), Query::Stats.into()]));
    bench.steps();
    bench.lose_patience();
    let log = crate::testing::captured(|| bench.steps());
    assert!(
        log.contains("cannot read the body of a job back into memory"),
        "{log}"
    );
    assert!(log.contains("moved to the dead-letter queue"), "{log}");
    assert!(
        log.contains(std::env::temp_dir().join("bodies").to_str().unwrap()),
        "the file is named: {log}"
    );
    let mail = bench.mail(2);
    assert!(
        matches!(
            mail[..],
            [
                Event::Reply(Tag(1), Reply::Empty),
                Event::Reply(Tag(2), Reply::Stats(_))
            ]
        ),
        "{mail:?}"
    );
    assert_eq!(bench.hub.loading.figures.failed.load(Ordering::Relaxed), 1);
    assert_eq!(
        (bodies(&bench.run(2, take())), bench.stored().0),
        (vec![Some(filled(2, BODY))], 1)
    );
    // The job is not lost: once its body can be read, a retry runs it.
    bench.work.file = file;
    bench.run(1, mutate(Mutation::Requeue));
    bench.visit(3, &mut items([take()]));
    bench.steps();
    let mail = bench.mail(3);
    let Some(taken) = mail[0].handed_out() else {
        panic!("{mail:?}")
    };
    assert_eq!(
        (taken.id, taken.body.clone(), taken.failures),
        (JobId(1), filled(1, BODY), 0)
    );
}

#[test]
fn a_daemon_that_stops_buries_no_job() {
    let mut bench = Bench::with_cold_jobs(1);
    bench.lose_file();
    bench.visit(2, &mut items([take()]));
    bench.hub.stop();
    bench.steps();
    let is_ready = |engine: &mut Engine| {
        engine
            .job(JobId(1))
            .is_some_and(|job| job.state == JobState::Ready)
    };
    assert!(bench.hub.with_journal(|engine, _| is_ready(engine)));
}

/// Its credit is used for the next job.
#[test]
fn another_job_is_delivered_for_one_whose_body_cannot_be_read() {
    let mut bench = Bench::with_cold_jobs(1);
    bench.run(1, push(2));
    let _file = bench.lose_file();
    bench.visit(2, &mut items(one_credit()));
    bench.steps();
    bench.lose_patience();
    bench.steps();
    let delivered = bench
        .mail(2)
        .into_iter()
        .filter(|event| event.handed_out().is_some());
    assert_eq!(
        bodies(&delivered.collect::<Vec<_>>()),
        [Some(filled(2, BODY))]
    );
    assert!(bench.mailbox(2).close_reason().is_none() && bench.mailbox(2).len() == 0);
}

#[test]
fn lists_and_changes_do_without_bodies_that_cannot_be_read() {
    let mut bench = Bench::with_cold_jobs(3);
    let _file = bench.lose_file();
    let (mut rows, mut read) = (
        items([list(Vec::new())]),
        items([with_text(1), Query::Stats.into()]),
    );
    let mut job = items([Query::Job(JobRef::Id(JobId(1))).into()]);
    assert!(
        bench.visit(2, &mut rows) == Visited::All
            && bench.visit(3, &mut read) == Visited::UntilRung
    );
    assert!(bench.visit(4, &mut job) == Visited::All);
    bench.steps();
    bench.is_rung(3);
    bench.lose_patience();
    bench.steps();
    let mail = bench.mail(2);
    let [Event::Reply(_, Reply::Jobs { rows, .. })] = &mail[..] else {
        panic!("{mail:?}")
    };
    assert_eq!(
        rows.iter()
            .map(|row| row.job.body().len())
            .collect::<Vec<_>>(),
        [0, 0, 0]
    );
    assert_eq!(
        refusals(&bench.mail(4)),
        [Some(Refusal::Unavailable)],
        "who asks for one job asks for its body"
    );
    assert!(bench.is_rung(3) && bench.visit(3, &mut read) == Visited::All);
    let mail = bench.mail(3);
    let [Event::Reply(_, Reply::Jobs { rows, .. }), _] = &mail[..] else {
        panic!("{mail:?}")
    };
    assert_eq!(rows.len(), 0, "no text is found in them");
    let mail = bench.run(1, mutate(Mutation::Kill));
    assert!(
        matches!(
            mail[..],
            [Event::Reply(_, Reply::Mutated { changed: 3, .. })]
        ),
        "{mail:?}"
    );
}

/// A job that an earlier commit contains is written without its body, and the daemon continues.
#[test]
fn a_commit_does_without_a_body_that_it_cannot_read() {
    let bench = Bench::of(u64::MAX, Durability::Durable);
    let keyed = |key: &'static [u8]| {
        let unique = Some(Unique {
            key: Bytes::from_static(key),
            clash: Clash::Attach,
            until: Default::default(),
        });
        JobCommand::Push(Box::new(NewJob {
            unique,
            ..job(1, BODY)
        }))
        .into()
    };
    let mut log = MemoryLog::new();
    let mut commit = |bench: &Bench| {
        while let Some(Cut { commit, .. }) = bench.hub.cut() {
            log.append(&commit).unwrap();
            bench.hub.committed(commit);
        }
    };
    bench.visit(1, &mut items([keyed(b"k")]));
    commit(&bench);
    bench.visit(1, &mut items([mutate(Mutation::Kill)]));
    commit(&bench);
    // A place without a body.
    assert!(bench.hub.with_journal(|engine, _| engine.set_stored(
        JobId(1),
        &filled(1, BODY),
        1 << 30
    )));
    // Its key is free again, which only a whole record can express.
    bench.visit(1, &mut items([mutate(Mutation::Requeue)]));
    commit(&bench);
    let (table, limits) = (Box::new(MemoryTable::new()), StoreLimits::default());
    let (_, recovered) = open_parts(&log, table, &limits, Limits::default(), 1).unwrap();
    let job = recovered.engine.job(JobId(1)).unwrap();
    assert_eq!(
        (job.body(), &job.state),
        (&filled(1, BODY)[..], &JobState::Ready)
    );
}
