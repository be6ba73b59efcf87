//! When a checkpoint is made, which commits the log may drop after it, and the figures.

use std::sync::atomic::{AtomicU64, Ordering};

use windlass_engine::Limits;
use windlass_store::{Log as _, StoreLimits, Table as _, open_parts};
use windlass_testkit::store::{MemoryLog, MemoryTable};

use crate::daemon::Daemon;

/// A daemon with a checkpoint per this many bytes of log. The newest bytes stay in the log.
fn daemon(log_bytes: u64, keep_bytes: u64) -> Daemon {
    with_limits(
        Daemon::on(MemoryLog::new(), MemoryTable::new()),
        log_bytes,
        keep_bytes,
    )
}

fn with_limits(mut daemon: Daemon, log_bytes: u64, keep_bytes: u64) -> Daemon {
    let limits = StoreLimits {
        log_bytes,
        keep_bytes,
        ..StoreLimits::default()
    };
    let table = Box::new(daemon.table.clone());
    daemon.checkpointer = open_parts(&daemon.log, table, &limits, Limits::default(), 1)
        .unwrap()
        .0;
    daemon
}

/// Commits a job, and returns the bytes of this commit in the log.
fn commit(daemon: &mut Daemon, bytes: usize) -> u64 {
    daemon.push(&vec![7; bytes]);
    daemon.commit().records().len() as u64
}

#[test]
fn a_checkpoint_is_due_with_enough_bytes_of_log_unless_they_are_all_kept() {
    let mut sizes = daemon(1, 0);
    let sizes: Vec<u64> = (0..3).map(|_| commit(&mut sizes, 1_000)).collect();
    let (two, three) = (sizes[0] + sizes[1], sizes.iter().sum::<u64>());
    for (log_bytes, keep_bytes, due) in [
        (two, 0, [false, true, true]),
        (two + 1, 0, [false, false, true]),
        (two, sizes[1] + sizes[2], [false, false, true]),
        (two, three, [false, false, false]),
        (three, sizes[2], [false, false, true]),
    ] {
        let mut daemon = daemon(log_bytes, keep_bytes);
        assert!(!daemon.checkpointer.is_due());
        for due in due {
            commit(&mut daemon, 1_000);
            assert_eq!(
                daemon.checkpointer.is_due(),
                due,
                "{log_bytes}, {keep_bytes}"
            );
        }
        daemon.checkpoint();
        assert!(!daemon.checkpointer.is_due(), "it is made");
        daemon.checkpointer.ask_for_rebuild();
        assert!(daemon.checkpointer.is_due(), "it was asked for");
    }
}

#[test]
fn an_idle_daemon_makes_a_checkpoint_unless_a_new_table_costs_more() {
    let mut daemon = daemon(1, 0);
    assert!(!daemon.checkpointer.is_worth_while(), "the log is empty");
    commit(&mut daemon, 100_000);
    assert!(daemon.checkpointer.is_worth_while(), "the table is empty");
    daemon.checkpoint();
    assert!(!daemon.checkpointer.is_worth_while(), "nothing has changed");
    commit(&mut daemon, 10);
    assert!(
        daemon.checkpointer.is_worth_while(),
        "the table is changed in place"
    );
    let picture = daemon.checkpointer.picture().unwrap();
    commit(&mut daemon, 10);
    assert!(
        !daemon.checkpointer.is_worth_while(),
        "the table is read, and large"
    );
    commit(&mut daemon, 110_000);
    assert!(
        daemon.checkpointer.is_worth_while(),
        "as much as it has has changed"
    );
    drop(picture);
    daemon.checkpoint();
    commit(&mut daemon, 10);
    assert!(daemon.checkpointer.is_worth_while(), "no reader is left");
    let mut again = with_limits(daemon.again(), 1, 0);
    again.commit();
    assert!(
        !again.checkpointer.is_worth_while(),
        "another process wrote the table"
    );
    assert!(!again.checkpointer.is_due(), "not even in a busy daemon");
    again.checkpointer = again.checkpointer.estimated_by(|| 0);
    assert!(
        again.checkpointer.is_worth_while() && again.checkpointer.is_due(),
        "little of it is alive"
    );
    again.checkpointer = again.checkpointer.estimated_by(|| u64::MAX);
    commit(&mut again, 300_000);
    assert!(
        again.checkpointer.is_worth_while() && again.checkpointer.is_due(),
        "all of it has changed"
    );
}

#[test]
fn the_log_forgets_what_the_checkpoint_before_has_put_into_the_table() {
    let mut daemon = daemon(1, 0);
    for _ in 0..3 {
        commit(&mut daemon, 100);
    }
    assert!(!daemon.checkpointer.holds_back());
    assert!(daemon.checkpoint() && daemon.checkpointer.holds_back());
    assert_eq!(daemon.log.seqs(), [1, 2, 3]);
    assert!(!daemon.checkpointer.run(false).unwrap(), "nothing is new");
    assert_eq!(daemon.log.seqs(), [1, 2, 3]);
    assert!(daemon.checkpoint() && !daemon.checkpointer.holds_back());
    assert_eq!(daemon.log.seqs(), [0_u64; 0]);
    assert!(!daemon.checkpoint(), "nothing is left to do");
    commit(&mut daemon, 100);
    commit(&mut daemon, 100);
    assert!(daemon.checkpoint());
    assert_eq!(daemon.log.seqs(), [4, 5]);
    commit(&mut daemon, 100);
    assert!(daemon.checkpoint());
    assert_eq!(daemon.log.seqs(), [6]);
}

#[test]
fn the_newest_bytes_of_the_log_are_left_to_the_next_checkpoint() {
    let mut daemon = daemon(1, 1);
    for _ in 0..3 {
        commit(&mut daemon, 100);
    }
    let point = |daemon: &Daemon| daemon.checkpointer.figures().point.load(Ordering::Relaxed);
    assert!(daemon.checkpointer.run(false).unwrap());
    assert_eq!(point(&daemon), 2);
    assert!(!daemon.checkpointer.run(false).unwrap());
    assert!(daemon.checkpoint());
    assert_eq!(point(&daemon), 3);
    daemon.checkpointer.ask_for_rebuild();
    assert!(
        daemon.checkpointer.run(false).unwrap(),
        "a rebuild needs no new commit"
    );
    assert_eq!(point(&daemon), 3);
}

#[test]
fn the_figures_of_a_store_are_those_after_its_last_checkpoint() {
    let mut daemon = daemon(1, 0);
    let figures = daemon.checkpointer.figures();
    let read = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
    let counts = || {
        [
            &figures.checkpoints,
            &figures.rebuilds,
            &figures.point,
            &figures.records,
        ]
        .map(read)
    };
    assert_eq!((counts(), read(&figures.live_bytes)), ([0; 4], 0));
    let first = daemon.push(&[1; 3_000]);
    daemon.commit();
    daemon.checkpoint();
    // A job, its queue, and the engine meta.
    assert_eq!(counts(), [1, 1, 1, 3]);
    let with_one = read(&figures.live_bytes);
    assert!(with_one > 3_000);
    daemon.push(&[2; 5_000]);
    daemon.commit();
    daemon.checkpoint();
    assert_eq!(counts(), [2, 1, 2, 4]);
    assert!((with_one + 5_000..with_one + 5_100).contains(&read(&figures.live_bytes)));
    daemon.cancel(first);
    daemon.commit();
    daemon.checkpoint();
    assert_eq!(counts(), [3, 1, 3, 3]);
    let with_second = read(&figures.live_bytes);
    assert!(
        (with_one + 1_990..with_one + 2_010).contains(&with_second),
        "{with_one} {with_second}"
    );
    assert_eq!(read(&figures.table_bytes), daemon.table.disk_bytes());
    assert_eq!(read(&figures.log_bytes), daemon.log.tail().disk_bytes());
    daemon.checkpointer.ask_for_rebuild();
    daemon.checkpoint();
    assert_eq!(
        (counts(), read(&figures.live_bytes)),
        ([4, 2, 3, 3], with_second),
        "the new table has the same"
    );
}

#[test]
fn a_picture_is_of_a_table_of_this_process_and_takes_one_checkpoint_at_most() {
    let mut daemon = daemon(1, 0);
    commit(&mut daemon, 100);
    let made = |daemon: &mut Daemon| {
        let figures = daemon.checkpointer.figures();
        drop(daemon.checkpointer.picture().unwrap());
        [&figures.checkpoints, &figures.rebuilds].map(|figure| figure.load(Ordering::Relaxed))
    };
    assert_eq!(made(&mut daemon), [1, 1]);
    assert_eq!(made(&mut daemon), [1, 1], "nothing has changed");
    daemon.checkpointer.ask_for_rebuild();
    assert_eq!(made(&mut daemon), [2, 2], "a new table was asked for");
    assert_eq!(
        made(&mut daemon.again()),
        [1, 1],
        "another process wrote the table"
    );
}
