//! Rows of ended jobs in the log: they are read behind the commits, and the log keeps them for their reader.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use windlass_engine::{JobCommand, JobRef, NewJob, Protocol, Timestamp};
use windlass_store::{LogTail, StoreConfig, ended_rows};

use crate::files::{Daemon, home, small};

/// A daemon that keeps a history, with this number of ended jobs, each in a commit of its own.
fn ended(config: &StoreConfig, jobs: u64) -> Daemon {
    let mut daemon = Daemon::start(config, 1, Timestamp(1_000)).unwrap();
    let mut limits = daemon.engine.limits().clone();
    limits.history.keep_ms = 1;
    limits.history.body_max = 400; // so that there are several segments
    daemon.engine.set_limits(limits);
    daemon.engine.keep_history(true);
    daemon.open_clients();
    for _ in 0..jobs {
        let body = Bytes::from_static(&[7; 500]);
        let job = NewJob::new(Protocol::GEARMAN, Bytes::from_static(b"q"), body);
        daemon.apply(JobCommand::Push(Box::new(job)));
        let id = daemon.engine.jobs().next().unwrap().id;
        daemon.apply(JobCommand::Cancel(JobRef::Id(id)));
        daemon.commit();
    }
    daemon
}

/// The numbers of the jobs whose rows are in the log after a commit.
fn rows(tail: &dyn LogTail, after: u64) -> Vec<u64> {
    let mut rows = Vec::new();
    let read = tail.read(after, &mut |entry| {
        rows.extend(ended_rows(entry).map(|row| row.unwrap().0.job.0));
        ControlFlow::Continue(())
    });
    read.unwrap();
    rows
}

#[test]
fn the_log_keeps_rows_until_their_reader_has_them_and_over_a_start() {
    const JOBS: u64 = 300;
    let home = home();
    let path = home.path().join("data");
    let config = small(&path);
    let read_to = Arc::new(AtomicU64::new(0));
    let mut daemon = ended(&config, JOBS);
    daemon.checkpointer.keep_behind(Arc::clone(&read_to));
    let all = rows(&*daemon.log.tail(), 0);
    assert_eq!(all.len() as u64, JOBS);
    for _ in 0..3 {
        while daemon.checkpointer.run(true).unwrap() && daemon.checkpointer.holds_back() {}
    }
    assert_eq!(rows(&*daemon.log.tail(), 0), all, "checkpoints forget none");
    drop(daemon);

    // The table has everything, so a start reads nothing of these segments, but they are there.
    let kept = StoreConfig {
        checkpoints: windlass_store::StoreLimits {
            keep_from: Some(0),
            ..config.checkpoints.clone()
        },
        ..small(&path)
    };
    let mut daemon = Daemon::start(&kept, 2, Timestamp(2_000)).unwrap();
    assert_eq!(rows(&*daemon.log.tail(), 0), all);
    let half = daemon.log.tail().newest() / 2;
    let later = rows(&*daemon.log.tail(), half);
    assert!(all.ends_with(&later) && later.len() < all.len());

    // What its reader has read is forgotten.
    let newest = daemon.log.tail().newest();
    read_to.store(newest, std::sync::atomic::Ordering::Release);
    daemon.checkpointer.keep_behind(read_to);
    daemon.checkpointer.ask_for_rebuild();
    for _ in 0..3 {
        daemon.checkpointer.run(true).unwrap();
    }
    assert!(rows(&*daemon.log.tail(), 0).len() < all.len() / 2);
}
