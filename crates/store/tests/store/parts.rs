//! A store that another crate reads part by part: verified, salvaged, followed, compared.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use windlass_engine::{JobId, Limits, QueueCommand, QueueKind};
use windlass_store::{
    Entry, Error, Found, Log as _, LogTail, Loss, OpenError, Salvage, Span, Table as _, new_table,
    point_key, verify_parts,
};
use windlass_testkit::store::{MemoryLog, MemoryTable};

use crate::daemon::{Daemon, opened, recovered};

/// A log without one of its commits.
struct Without(Arc<dyn LogTail>, u64);

impl LogTail for Without {
    fn newest(&self) -> u64 {
        self.0.newest()
    }

    fn bytes_behind(&self, seq: u64) -> u64 {
        self.0.bytes_behind(seq)
    }

    fn behind_bytes(&self, bytes: u64) -> u64 {
        self.0.behind_bytes(bytes)
    }

    fn read(
        &self,
        after: u64,
        each: &mut dyn FnMut(&Entry<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.0.read(after, &mut |entry| {
            if entry.seq == self.1 {
                ControlFlow::Continue(())
            } else {
                each(entry)
            }
        })
    }

    fn fetch(&self, spans: &[Span], into: &mut Vec<u8>) -> Result<(), Error> {
        self.0.fetch(spans, into)
    }

    fn forget(&self, upto: u64) -> Result<(), Error> {
        self.0.forget(upto)
    }

    fn disk_bytes(&self) -> u64 {
        self.0.disk_bytes()
    }

    fn room_bytes(&self) -> u64 {
        self.0.room_bytes()
    }

    fn make_room(&self) -> Result<(), Error> {
        self.0.make_room()
    }
}

/// A daemon with two jobs in the table, and three in later commits of the log. Returns the last commit of the table.
fn daemon() -> (Daemon, u64) {
    let mut daemon = Daemon::new();
    for body in [b"one", b"two"] {
        daemon.push(body);
        daemon.commit();
    }
    daemon.commit_all();
    assert!(daemon.checkpoint());
    let point = daemon.log.tail().newest();
    for body in [b"new", b"old", b"mid"] {
        daemon.push(body);
        daemon.commit();
    }
    (daemon, point)
}

#[test]
fn parts_are_verified_as_a_start_reads_them() {
    let (daemon, point) = daemon();
    let report = verify_parts(
        &*daemon.log.tail(),
        &*daemon.table.scan().unwrap(),
        None,
        Limits::default(),
    )
    .unwrap();
    let started = recovered(&daemon.log.cut(None), &daemon.table)
        .unwrap()
        .report;
    assert_eq!((report.table_seq, report.last_seq), (point, point + 3));
    assert_eq!((report.jobs, report.queues), (5, 1));
    assert_eq!(
        (started.jobs, started.queues, started.last_seq),
        (report.jobs, report.queues, report.last_seq)
    );
}

#[test]
fn a_commit_that_is_missing_is_named() {
    let (daemon, point) = daemon();
    for missing in point + 1..=point + 3 {
        let tail = Without(daemon.log.tail(), missing);
        let verdict = verify_parts(
            &tail,
            &*daemon.table.scan().unwrap(),
            None,
            Limits::default(),
        );
        let Err(OpenError::Damaged(damage)) = verdict else {
            panic!("{missing}: {verdict:?}")
        };
        assert_eq!(
            damage.loss,
            Some(Loss {
                first: missing,
                last: missing
            }),
            "{damage}"
        );
    }
    // The table has it.
    let tail = Without(daemon.log.tail(), point);
    assert_eq!(
        verify_parts(
            &tail,
            &*daemon.table.scan().unwrap(),
            None,
            Limits::default()
        )
        .unwrap()
        .last_seq,
        point + 3
    );
}

/// The commits of a log, with the reason in place of those that cannot be read.
fn salvaged(daemon: &Daemon, missing: &[u64], unreadable: &[u64]) -> Salvage {
    Salvage::of_parts(&*daemon.table.scan().unwrap(), None, |after, show| {
        daemon.log.tail().read(after, &mut |entry| {
            match entry.seq {
                seq if missing.contains(&seq) => {}
                seq if unreadable.contains(&seq) => {
                    show(seq, Err(format!("commit {seq} is unreadable")))
                }
                seq => show(seq, Ok(entry.records)),
            }
            ControlFlow::Continue(())
        })
    })
    .unwrap()
}

#[test]
fn salvage_of_parts_counts_what_it_read_and_what_is_missing() {
    let (daemon, point) = daemon();
    let gap = |first: u64, last: u64| {
        format!(
            "commits {} to {} of the log are missing",
            point + first,
            point + last
        )
    };
    let table: [(&[u64], &[u64], &[u64], _, _); 5] = [
        (&[], &[], &[1, 2, 3, 4, 5], (3, 0), vec![]),
        (&[1], &[], &[1, 2, 4, 5], (2, 1), vec![gap(1, 1)]),
        (&[1, 2], &[], &[1, 2, 5], (1, 2), vec![gap(1, 2)]),
        (&[2], &[], &[1, 2, 3, 5], (2, 1), vec![gap(2, 2)]),
        (
            &[1],
            &[2],
            &[1, 2, 5],
            (1, 2),
            vec![gap(1, 1), format!("commit {} is unreadable", point + 2)],
        ),
    ];
    for (missing, unreadable, jobs, (commits, commits_missing), why) in table {
        let behind = |seqs: &[u64]| seqs.iter().map(|seq| point + seq).collect::<Vec<_>>();
        let salvage = salvaged(&daemon, &behind(missing), &behind(unreadable));
        let found: Vec<u64> = salvage.jobs().keys().map(|id| id.0).collect();
        assert_eq!(
            found, jobs,
            "without {missing:?}, unreadable {unreadable:?}"
        );
        assert_eq!(
            (salvage.commits, salvage.commits_missing),
            (commits, commits_missing)
        );
        assert_eq!(salvage.unreadable, why);
        assert_eq!(salvage.is_whole(), why.is_empty());
    }
}

#[test]
fn salvage_of_a_damaged_table_reads_its_other_pages() {
    let (daemon, _) = daemon();
    let mut values = daemon.table.values();
    let page = values
        .keys()
        .find(|key| key.as_slice() != point_key())
        .unwrap()
        .clone();
    values.remove(&page);
    let damaged = MemoryTable::with(values);
    let salvage = Salvage::of_parts(&*damaged.scan().unwrap(), None, |after, show| {
        daemon.log.tail().read(after, &mut |entry| {
            show(entry.seq, Ok(entry.records));
            ControlFlow::Continue(())
        })
    });
    let salvage = salvage.unwrap();
    assert!(!salvage.is_whole());
    assert!(
        salvage
            .unreadable
            .iter()
            .any(|why| why.starts_with("the table: ")),
        "{:?}",
        salvage.unreadable
    );
    assert_eq!(
        (salvage.commits, salvage.commits_missing),
        (3, 0),
        "the log follows the table's point"
    );
    assert!(salvage.jobs().contains_key(&JobId(5)));
}

#[test]
fn salvage_puts_the_pieces_of_a_large_record_together() {
    let mut daemon = Daemon::new();
    let job = daemon.push(&[7; 40_000]);
    daemon.commit();
    assert!(daemon.checkpoint());
    let values = daemon.table.values();
    // The queue's page, which damages the table, and a piece.
    let queue = values.keys().find(|key| key[0] == 1).unwrap();
    let piece = values.keys().find(|key| key.len() > queue.len()).unwrap();
    for (lost, body) in [(queue, Some(40_000)), (piece, None)] {
        let mut values = values.clone();
        values.remove(lost);
        let found = Salvage::of_parts(&*MemoryTable::with(values).scan().unwrap(), None, |_, _| {
            Ok(())
        })
        .unwrap();
        assert_eq!(
            found.jobs().get(&job).map(|job| job.body().len()),
            body,
            "without {lost:?}"
        );
        let why = format!("a piece of the record of number {} is missing", job.0);
        assert_eq!(
            found.unreadable.contains(&why),
            body.is_none(),
            "{:?}",
            found.unreadable
        );
    }
}

#[test]
fn salvage_forgets_deleted_queues() {
    let mut daemon = Daemon::new();
    let [kept, deleted] = ["kept", "deleted"].map(|name| Bytes::from_static(name.as_bytes()));
    for queue in [&kept, &deleted] {
        daemon.apply(QueueCommand::Create {
            queue: queue.clone(),
            kind: QueueKind::Work,
        });
    }
    daemon.commit();
    daemon.apply(QueueCommand::Remove {
        queue: deleted,
        only_idle: false,
    });
    daemon.commit();
    let names: Vec<Bytes> = salvaged(&daemon, &[], &[])
        .queues
        .into_values()
        .map(|image| image.name)
        .collect();
    assert_eq!(names, [kept]);
}

#[test]
fn a_tables_point_shows_whether_it_was_read_before() {
    let (mut daemon, _) = daemon();
    let point = |table: &MemoryTable| table.values().get(point_key()).unwrap().clone();
    let found = Found::of_table(&*daemon.table.scan().unwrap(), None).unwrap();
    assert!(found.is_of(&point(&daemon.table)));
    assert!(daemon.checkpoint());
    assert!(!found.is_of(&point(&daemon.table)));
}

#[test]
fn a_new_table_is_the_table_of_an_empty_log() {
    let (key, value) = new_table();
    assert_eq!(key, point_key());
    let table = MemoryTable::with([(key.to_vec(), value.clone())].into());
    assert!(
        Found::of_table(&*table.scan().unwrap(), None)
            .unwrap()
            .is_of(&value)
    );
    let (_, recovered) = opened(&MemoryLog::new(), &table).unwrap();
    assert_eq!((recovered.report.jobs, recovered.report.table_seq), (0, 0));
    assert!(
        Found::of_table(&*MemoryTable::new().scan().unwrap(), None)
            .unwrap()
            .is_of(&value)
    );
}
