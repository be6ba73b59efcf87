//! Which commits of a log a salvage takes, depending on the table.

use std::fs;

use tempfile::TempDir;

use super::*;
use crate::commit::{Commit, Run};
use crate::log::file::FileLog;
use crate::log::scan::scan;
use crate::store::Log as _;

const ID: u64 = 7;
/// Three commits fit.
const SEGMENT_BYTES: u64 = 4096;

/// A log of six commits.
fn log() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    FileLog::create(home.path(), LogId(ID), SEGMENT_BYTES).unwrap();
    let scanned = scan(home.path(), 0, 0, &mut |_, _| Ok(())).unwrap();
    let mut log = FileLog::resume(home.path(), scanned, SEGMENT_BYTES).unwrap();
    for seq in 1..=6 {
        // Each record deletes a job.
        let arena = [2, 3, 1].repeat(333);
        let runs = vec![Run {
            range: 0..arena.len(),
            tail: None,
        }];
        log.append(&Commit {
            seq,
            bytes: arena.len() as u64,
            arena,
            runs,
            ..Commit::default()
        })
        .unwrap();
    }
    home
}

/// The commits taken, the last of them, and the missing ones.
fn taken(log: &TempDir, table: Reached) -> (u64, u64, u64) {
    let mut found = Salvage::default();
    found.take_log(log.path(), table);
    (found.commits, found.commit, found.commits_missing)
}

#[test]
fn the_commits_after_the_tables_are_taken() {
    let log = log();
    let table = [
        (Reached::Whole(0), (6, 6, 0)),
        (Reached::Whole(3), (3, 6, 0)),
        (Reached::Whole(6), (0, 6, 0)),
        (Reached::AtLeast { seq: 2, log: ID }, (4, 6, 0)),
        (Reached::AtLeast { seq: 20, log: ID }, (0, 20, 0)),
        (Reached::Unknown, (6, 6, 0)),
    ];
    for (reached, expected) in table {
        assert_eq!(taken(&log, reached), expected, "{reached:?}");
    }
}

#[test]
fn all_commits_of_another_log_than_the_tables_are_taken() {
    let log = log();
    for seq in [2, 20] {
        assert_eq!(
            taken(&log, Reached::AtLeast { seq, log: ID + 1 }),
            (6, 6, 0),
            "the table is at {seq}"
        );
    }
}

#[test]
fn a_log_that_begins_after_the_tables_commits_is_whole() {
    let log = log();
    fs::remove_file(log.path().join("segment-1")).unwrap();
    for (point, expected) in [(2, (3, 6, 1)), (3, (3, 6, 0)), (4, (2, 6, 0))] {
        assert_eq!(
            taken(&log, Reached::Whole(point)),
            expected,
            "the table is at {point}"
        );
    }
}
