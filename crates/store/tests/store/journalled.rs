//! Which queues and jobs are journalled, and the bytes of commits.

use bytes::Bytes;
use windlass_engine::{
    Change, ClientCommand, From, LeaseTerms, Listen, NewJob, Protocol, QueueCommand, QueueKind,
    Select, Subscription, Take, TakeCommand, Wait,
};
use windlass_store::{Journal, Log as _};
use windlass_testkit::store::{Fingerprint, MemoryLog, MemoryTable};

use crate::daemon::{Daemon, QUEUE, recovered};
use crate::journal::words;

#[test]
fn queues_with_only_waiting_clients_are_not_stored() {
    let mut daemon = Daemon::new();
    let lease = LeaseTerms::CONNECTION;
    let from = From::Listed {
        queues: vec![Bytes::from_static(b"nothing here")],
        lease,
    };
    daemon.apply(TakeCommand::Take(Take {
        from,
        select: Select::ListOrder,
        wait: Wait::Forever,
        worker: Bytes::new(),
    }));
    daemon.apply(ClientCommand::Serve(Subscription {
        queue: Bytes::from_static(b"served"),
        weight: 0,
        lease,
        unclaimed: None,
    }));
    assert_eq!(words(&daemon.commit()), ["queue served"]);
    let names: Vec<Bytes> = daemon
        .again()
        .engine
        .queues()
        .map(|queue| queue.image().name.clone())
        .collect();
    assert_eq!(names, ["served"]);
}

#[test]
fn the_deletion_of_an_uncommitted_queue_is_not_written() {
    let mut daemon = Daemon::new();
    let there = Bytes::from_static(b"there");
    daemon.apply(QueueCommand::Create {
        queue: QUEUE,
        kind: QueueKind::Work,
    });
    daemon.apply(QueueCommand::Remove {
        queue: QUEUE,
        only_idle: false,
    });
    assert_eq!(words(&daemon.commit()), [""; 0]);
    daemon.apply(QueueCommand::Create {
        queue: QUEUE,
        kind: QueueKind::Work,
    });
    daemon.apply(QueueCommand::Remove {
        queue: QUEUE,
        only_idle: false,
    });
    daemon.apply(QueueCommand::Create {
        queue: there.clone(),
        kind: QueueKind::Work,
    });
    assert_eq!(words(&daemon.commit()), ["queue there"]);
    let mut daemon = daemon.again();
    daemon.apply(QueueCommand::Remove {
        queue: there,
        only_idle: false,
    });
    let is = words(&daemon.commit());
    assert!(
        is.len() == 1 && is[0].starts_with("no queue "),
        "one that was recovered is known: {is:?}"
    );
    assert_eq!(daemon.again().engine.queues().count(), 0);
}

/// Names may be longer than the space for one record on a page.
#[test]
fn queues_with_long_names_come_back() {
    let mut daemon = Daemon::new();
    let names: Vec<Bytes> = (1u8..=40)
        .map(|n| Bytes::from(vec![n + 64; usize::from(n) * 200]))
        .collect();
    for name in &names {
        daemon.apply(QueueCommand::Create {
            queue: name.clone(),
            kind: QueueKind::Work,
        });
        daemon.push_job(NewJob::new(
            Protocol::GEARMAN,
            name.clone(),
            Bytes::from(vec![1; 9_000]),
        ));
    }
    daemon.commit();
    let print = Fingerprint::of(&daemon.engine);
    for checkpoints in 1..4 {
        daemon.checkpoint();
        let why = |why| panic!("after {checkpoints} checkpoints: {why}");
        let again = recovered(&daemon.log, &daemon.table).unwrap_or_else(why);
        assert_eq!(
            Fingerprint::of(&again.engine).differs_from(&print),
            None,
            "after {checkpoints} checkpoints"
        );
        daemon.apply(QueueCommand::Pause {
            queue: names[39].clone(),
            paused: checkpoints % 2 == 0,
        });
        daemon.apply(QueueCommand::Pause {
            queue: names[39].clone(),
            paused: false,
        });
        daemon.commit_all();
    }
}

#[test]
fn the_bytes_of_a_commit_are_counted_until_it_is_durable() {
    let mut daemon = Daemon::new();
    daemon.commit();
    let bytes = |daemon: &Daemon| {
        let journal = &daemon.journal;
        (
            journal.pending_bytes() > 0,
            journal.in_flight_bytes() > 0,
            journal.uncommitted_bytes(),
            journal.is_behind(),
        )
    };
    assert_eq!(bytes(&daemon), (false, false, 0, false));
    daemon.push(&[1; 500]);
    let pending = daemon.journal.pending_bytes();
    assert!(pending > 500);
    assert_eq!(bytes(&daemon), (true, false, pending, false));
    daemon.journal.begin_anew(&daemon.engine);
    let complete = daemon.journal.uncommitted_bytes();
    assert!(complete > pending, "with its queue and the engine meta");
    assert_eq!(bytes(&daemon), (false, false, complete, true));
    daemon.journal.begin_anew(&daemon.engine);
    daemon.push(&[2; 500]);
    let next = daemon.journal.pending_bytes();
    assert_eq!(bytes(&daemon), (true, false, complete + next, true));
    let commit = daemon.cut();
    assert_eq!(
        (commit.bytes(), daemon.journal.in_flight_bytes()),
        (complete, complete)
    );
    assert_eq!(bytes(&daemon), (true, true, complete + next, false));
    daemon.log.append(&commit).unwrap();
    daemon.journal.committed(commit.seq());
    assert_eq!(bytes(&daemon), (true, false, next, false));
    assert_eq!(
        daemon.commit().seq(),
        commit.seq() + 1,
        "an empty commit is not begun anew"
    );
}

#[test]
fn changes_are_known_if_their_job_is_in_an_earlier_commit() {
    let mut daemon = Daemon::new();
    let old = daemon.push(b"old");
    daemon.commit();
    let new = daemon.push(b"new");
    for change in [Change::JobPut, Change::JobMoved, Change::JobGone] {
        assert!(
            daemon.journal.knows_any(&[change(old)]) && !daemon.journal.knows_any(&[change(new)])
        );
        assert!(
            daemon
                .journal
                .knows_any(&[Change::Meta, change(new), change(old)])
        );
    }
    for change in [
        Change::SchedulePut,
        Change::ScheduleGone,
        Change::BatchMoved,
        Change::BatchGone,
    ] {
        assert!(!daemon.journal.knows_any(&[change(old)]));
    }
    assert!(!daemon.journal.knows_any(&[]));
}

#[test]
fn the_contents_of_an_engine_are_appended_in_commits_of_a_few_megabytes() {
    let mut daemon = Daemon::new();
    for _ in 0..11 {
        daemon.push(&[7; 1 << 20]);
    }
    daemon.push_job(NewJob {
        durable: false,
        listen: Listen::Yes,
        ..NewJob::new(Protocol::GEARMAN, QUEUE, Bytes::new())
    });
    let waiting = vec![Bytes::from_static(b"only waited for")];
    let from = From::Listed {
        queues: waiting,
        lease: LeaseTerms::CONNECTION,
    };
    daemon.apply(TakeCommand::Take(Take {
        from,
        select: Select::ListOrder,
        wait: Wait::Forever,
        worker: Bytes::new(),
    }));
    assert!(
        daemon
            .engine
            .queues()
            .any(|queue| queue.image().name == "only waited for")
    );

    let (mut log, mut sizes, mut records) = (MemoryLog::new(), Vec::new(), Vec::new());
    let appended = Journal::new().append_all(&mut daemon.engine, |commit| {
        sizes.push(commit.bytes() >> 20);
        records.extend(words(&commit));
        log.append(&commit)
    });
    appended.unwrap();
    assert_eq!(sizes, [4, 4, 3], "megabytes");
    let queues: Vec<_> = records
        .iter()
        .filter(|word| word.starts_with("queue"))
        .collect();
    assert_eq!(queues, ["queue resize"]);
    let again = recovered(&log, &MemoryTable::new()).unwrap();
    assert_eq!(
        (again.engine.job_count(), again.engine.queues().count()),
        (11, 1)
    );

    let mut written = 0;
    let failed = Journal::new().append_all(&mut daemon.engine, |_| {
        written += 1;
        if written == 2 { Err("full") } else { Ok(()) }
    });
    assert_eq!(
        (failed, written),
        (Err("full"), 2),
        "the first error ends it"
    );
}
