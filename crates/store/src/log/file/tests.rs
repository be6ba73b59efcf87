//! A log in files: how far it is read, what it forgets, and the space it keeps.

use std::fs;

use tempfile::TempDir;

use super::super::scan::scan;
use super::*;
use crate::commit::Run;
use crate::files::{Step, watch_steps};
use crate::log::entry::ALIGNMENT;
use crate::store::Position;

const ID: LogId = LogId(7);
/// Three commits of [`BYTES`] fit.
const SEGMENT: u64 = 4096;
const BYTES: usize = 1000;
/// The entry of such a commit.
const ENTRY: u64 = (BYTES + ENTRY_HEADER_BYTES) as u64;

/// A commit of bytes that are different everywhere.
fn commit(seq: u64, bytes: usize) -> Commit {
    let arena = (0u64..)
        .flat_map(|n| (n << 20 | seq).to_le_bytes())
        .take(bytes)
        .collect();
    Commit {
        seq,
        arena,
        runs: vec![Run {
            range: 0..bytes,
            tail: None,
        }],
        bytes: bytes as u64,
        ..Commit::default()
    }
}

fn log(segment_bytes: u64, sizes: impl IntoIterator<Item = usize>) -> (TempDir, FileLog) {
    let home = tempfile::tempdir().unwrap();
    FileLog::create(home.path(), ID, segment_bytes).unwrap();
    let scanned = scan(home.path(), 0, 0, &mut |_, _| Ok(())).unwrap();
    let mut log = FileLog::resume(home.path(), scanned, segment_bytes).unwrap();
    for (seq, bytes) in (1..).zip(sizes) {
        log.append(&commit(seq, bytes)).unwrap();
    }
    (home, log)
}

fn segment_files(home: &TempDir) -> u64 {
    // The other file is the mark.
    crate::files::entries(home.path()).unwrap().len() as u64 - 1
}

/// The commits after one, with the places of the records.
fn read(tail: &dyn LogTail, after: u64) -> Vec<(u64, Position, usize)> {
    let mut found = Vec::new();
    let read = tail.read(after, &mut |entry| {
        found.push((entry.seq, entry.place, entry.records.len()));
        ControlFlow::Continue(())
    });
    read.unwrap();
    found
}

#[test]
fn commits_after_any_other_are_read() {
    let (_home, log) = log(SEGMENT, [BYTES; 10]);
    let tail = log.tail();
    for after in 0..=10 {
        let seqs: Vec<u64> = read(&*tail, after).iter().map(|(seq, ..)| *seq).collect();
        assert_eq!(seqs, (after + 1..=10).collect::<Vec<_>>(), "after {after}");
    }
    let mut first = Vec::new();
    let each = &mut |entry: &Entry<'_>| {
        first.push(entry.seq);
        if entry.seq == 4 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    tail.read(1, each).unwrap();
    assert_eq!(first, [2, 3, 4], "until it is told to stop");
}

#[test]
fn bytes_of_the_log_are_counted_in_whole_segments() {
    let (_home, log) = log(SEGMENT, [BYTES; 10]);
    let tail = log.tail();
    let [full, last] = [3, 1].map(|entries| HEADER_BYTES as u64 + entries * ENTRY);
    for (seq, bytes) in [
        (0, 3 * full + last),
        (2, 3 * full + last),
        (3, 2 * full + last),
        (8, full + last),
        (9, last),
    ] {
        assert_eq!(tail.bytes_behind(seq), bytes, "after {seq}");
    }
    assert_eq!((tail.bytes_behind(10), tail.bytes_behind(11)), (0, 0));
    let table = [
        (1, 9),
        (last, 9),
        (last + 1, 6),
        (last + full, 6),
        (last + full + 1, 3),
        (1 << 20, 0),
    ];
    for (bytes, seq) in table {
        assert_eq!(tail.behind_bytes(bytes), seq, "{bytes} bytes");
    }
}

#[test]
fn segments_are_forgotten_once_all_their_commits_are() {
    for (upto, first) in [
        (0, 1),
        (2, 1),
        (3, 4),
        (5, 4),
        (6, 7),
        (9, 10),
        (10, 10),
        (99, 10),
    ] {
        let (_home, log) = log(SEGMENT, [BYTES; 10]);
        log.tail().forget(upto).unwrap();
        assert_eq!(read(&*log.tail(), 0)[0].0, first, "up to {upto}");
    }
}

#[test]
fn spare_segments_are_kept_up_to_a_limit_or_what_is_reserved() {
    let most = SPARES_MAX as u64;
    for (reserved, spares) in [(0, most), (most, most), (most + 3, most + 3)] {
        let (home, log) = log(SEGMENT, [BYTES; 60]);
        let tail = log.tail();
        assert_eq!(
            (segment_files(&home), tail.disk_bytes()),
            (20, 20 * SEGMENT)
        );
        tail.reserve(reserved * SEGMENT).unwrap();
        tail.forget(60).unwrap();
        assert_eq!(segment_files(&home), 1 + spares, "{reserved} are reserved");
        assert_eq!(tail.disk_bytes(), (1 + spares) * SEGMENT);
        let left = SEGMENT - (HEADER_BYTES as u64 + 3 * ENTRY);
        assert_eq!(tail.room_bytes(), left + spares * SEGMENT);
    }
}

#[test]
fn no_more_than_the_reserved_space_is_allocated() {
    let left = SEGMENT - (HEADER_BYTES as u64 + 3 * ENTRY);
    for (bytes, files) in [
        (0, 1),
        (left, 1),
        (left + 1, 2),
        (SEGMENT, 2),
        (left + SEGMENT, 2),
        (3 * SEGMENT, 4),
    ] {
        let (home, log) = log(SEGMENT, [BYTES; 3]);
        log.tail().reserve(bytes).unwrap();
        assert_eq!(segment_files(&home), files, "{bytes} bytes are reserved");
    }
    let (home, log) = log(SEGMENT, [BYTES; 3]);
    for _ in 0..2 {
        log.tail().make_room().unwrap();
        assert_eq!(segment_files(&home), 1 + SPARES_MIN as u64);
    }
    drop(log);
    let scanned = scan(home.path(), 0, 0, &mut |_, _| Ok(())).unwrap();
    let log = FileLog::resume(home.path(), scanned, SEGMENT).unwrap();
    assert_eq!(log.tail().disk_bytes(), 3 * SEGMENT, "they are found again");
}

#[test]
fn a_segment_is_filled_to_its_last_byte_and_a_larger_entry_gets_its_own() {
    let whole = usize::try_from(SEGMENT).unwrap() - HEADER_BYTES - ENTRY_HEADER_BYTES;
    let (home, log) = log(SEGMENT, [whole, whole + 1, BYTES]);
    assert_eq!(
        (segment_files(&home), log.tail().disk_bytes()),
        (3, 3 * SEGMENT + ALIGNMENT as u64)
    );
    log.tail().forget(3).unwrap();
    assert_eq!(
        (segment_files(&home), log.tail().disk_bytes()),
        (2, 2 * SEGMENT),
        "which is not used again"
    );
    drop(log);
    let (_home, log) = self::log(
        SEGMENT,
        [BYTES, BYTES, whole - 2 * (BYTES + ENTRY_HEADER_BYTES)],
    );
    assert_eq!(log.tail().room_bytes(), 0, "three entries fit exactly");
}

#[test]
fn records_are_fetched_from_any_place() {
    let sizes = [
        100_000,
        700_000,
        10,
        100_000,
        WINDOW_BYTES,
        WINDOW_BYTES + 1,
        5_000,
        100_000,
    ];
    let (home, log) = log(1 << 20, sizes);
    let tail = log.tail();
    let entries = read(&*tail, 0);
    let mut spans = Vec::new();
    for &(seq, Position(place), len) in &entries {
        let cuts = [
            (0, len),
            (0, 1),
            (len - 1, 1),
            (len / 2, len - len / 2),
            (3, len.min(9) - 3),
        ];
        spans.extend(cuts.map(|(from, len)| {
            (
                seq,
                from,
                Span {
                    place: Position(place + from as u64),
                    len,
                },
            )
        }));
    }
    let backwards: Vec<_> = spans.iter().rev().copied().collect();
    let mixed: Vec<_> = (0..spans.len())
        .map(|n| spans[n * 7 % spans.len()])
        .collect();
    for spans in [spans, backwards, mixed] {
        let (mut fetched, mut expected) = (Vec::new(), Vec::new());
        tail.fetch(
            &spans.iter().map(|(.., span)| *span).collect::<Vec<_>>(),
            &mut fetched,
        )
        .unwrap();
        for (seq, from, span) in spans {
            let whole = commit(seq, sizes[usize::try_from(seq).unwrap() - 1]).arena;
            expected.extend_from_slice(&whole[from..from + span.len]);
        }
        assert!(fetched == expected);
    }

    let fetch = |span| {
        tail.fetch(&[span], &mut Vec::new())
            .map_err(|why| why.to_string())
    };
    let damaged = |what: &str| Err(format!("{} is damaged: {what}", home.path().display()));
    let (_, last, len) = entries[7];
    let end = (last.0 & u64::from(u32::MAX)) + len as u64;
    assert_eq!(fetch(Span { place: last, len }), Ok(()));
    let ends = damaged(&format!(
        "segment 2 of the log ends before byte {}",
        end + 1
    ));
    assert_eq!(
        fetch(Span {
            place: last,
            len: len + 1
        }),
        ends
    );
    assert_eq!(
        fetch(Span {
            place: Position(9 << 32),
            len: 1
        }),
        damaged("segment 9 of the log is missing")
    );
    let first = Span {
        place: entries[0].1,
        len: 1,
    };
    assert_eq!(fetch(first), Ok(()));
    tail.forget(8).unwrap();
    assert_eq!(
        fetch(first),
        damaged("segment 1 of the log is missing"),
        "it is forgotten"
    );
}

#[test]
fn a_segment_is_kept_until_a_commit_of_the_next_is_durable() {
    let (_home, mut log) = log(SEGMENT, [BYTES; 3]);
    log.tail().make_room().unwrap();
    watch_steps(Some(Box::new(|step, _| {
        if step == Step::Syncing {
            Err(io::Error::other("a failed disk"))
        } else {
            Ok(())
        }
    })));
    assert!(log.append(&commit(4, BYTES)).is_err());
    watch_steps(None);
    log.tail().forget(3).unwrap();
    assert_eq!(
        read(&*log.tail(), 0).len(),
        3,
        "the last segments have no durable commit"
    );
    log.reopen().unwrap();
    log.append(&commit(4, BYTES)).unwrap();
    log.tail().forget(3).unwrap();
    assert_eq!(read(&*log.tail(), 0)[0].0, 4);
}

#[test]
fn a_clean_stop_is_marked_until_the_log_is_opened_again() {
    let (home, mut log) = log(SEGMENT, [BYTES; 2]);
    let mark = || {
        Mark::decode(&fs::read(home.path().join(MARK)).unwrap()).map(|mark| (mark.seq, mark.clean))
    };
    assert_eq!(mark(), Some((2, false)));
    log.close().unwrap();
    assert_eq!(mark(), Some((2, true)));
    let scanned = scan(home.path(), 0, 0, &mut |_, _| Ok(())).unwrap();
    let _log = FileLog::resume(home.path(), scanned, SEGMENT).unwrap();
    assert_eq!(mark(), Some((2, false)));
}

#[test]
fn the_free_bytes_are_those_of_the_disk() {
    let (home, log) = log(SEGMENT, []);
    let disk = rustix::fs::statvfs(home.path()).unwrap();
    let free = log.tail().free_bytes();
    assert!(
        (SEGMENT..=disk.f_blocks * disk.f_frsize).contains(&free),
        "{free} bytes"
    );
}

#[test]
fn a_log_whose_folder_is_not_in_its_place_takes_no_commits_and_goes_on_when_it_is_back() {
    let (home, mut log) = log(SEGMENT, [BYTES; 2]);
    let away = tempfile::tempdir().unwrap();
    let away = away.path().join("log");
    let fails = |log: &mut FileLog| {
        assert!(log.append(&commit(3, BYTES)).is_err());
        assert!(
            log.tail()
                .read(0, &mut |_| ControlFlow::Continue(()))
                .is_err(),
            "no checkpoint begins"
        );
        assert!(log.close().is_err(), "and no stop is clean");
    };
    fs::rename(home.path(), &away).unwrap();
    fails(&mut log);
    assert!(log.reopen().is_err(), "it needs another file");
    fs::create_dir(home.path()).unwrap();
    fails(&mut log);
    assert!(
        log.reopen().is_err() && fs::read_dir(home.path()).unwrap().next().is_none(),
        "nothing is made there"
    );
    fs::remove_dir(home.path()).unwrap();
    fs::rename(&away, home.path()).unwrap();
    log.reopen().unwrap();
    log.append(&commit(3, BYTES)).unwrap();
    assert_eq!(read(&*log.tail(), 0).len(), 3);
}

/// The commits that a start finds.
fn found(home: &TempDir) -> Vec<u64> {
    let mut found = Vec::new();
    let scanned = scan(home.path(), 0, 0, &mut |entry, _| {
        found.push(entry.seq);
        Ok(())
    });
    scanned.unwrap();
    // A commit that failed and was written again may be in two files.
    found.dedup();
    found
}

fn remove_files(home: &TempDir, which: impl Fn(&str) -> bool) {
    for path in crate::files::entries(home.path()).unwrap() {
        if which(&path.file_name().unwrap().to_string_lossy()) {
            fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn no_commit_is_taken_in_a_file_that_was_removed_and_all_are_there_again_afterwards() {
    type Which = fn(&str) -> bool;
    let table: [(&str, Which); 5] = [
        ("all segments", |name| name != MARK),
        ("all files", |_| true),
        ("the mark", |name| name == MARK),
        ("the first segment", |name| name == "segment-1"),
        ("the last segment", |name| name == "segment-3"),
    ];
    for (what, which) in table {
        let (home, mut log) = log(SEGMENT, [BYTES; 8]);
        remove_files(&home, which);
        // An older segment is noticed by the look that the daemon takes from time to time.
        let looked = log.tail().look();
        assert_eq!(
            looked.is_err(),
            which(MARK),
            "{what}: the mark comes back with the next commit"
        );
        let seen = if which(MARK) || which("segment-3") {
            log.append(&commit(9, BYTES))
        } else {
            Err(Error::Closed)
        };
        assert!(seen.is_err(), "{what}");
        log.reopen().unwrap();
        log.append(&commit(9, BYTES)).unwrap();
        assert_eq!(found(&home), (1..=9).collect::<Vec<_>>(), "{what}");
        assert!(log.tail().look().is_ok());
    }
}

#[test]
fn a_commit_into_a_removed_file_is_not_taken_although_it_was_written() {
    let (home, mut log) = log(SEGMENT, [BYTES; 2]);
    let path = home.path().to_owned();
    watch_steps(Some(Box::new(move |step, file| {
        if step == Step::Synced && file.file_name().is_some_and(|name| name == "segment-1") {
            fs::remove_file(path.join("segment-1")).unwrap();
        }
        Ok(())
    })));
    let refused = log.append(&commit(3, BYTES)).unwrap_err();
    watch_steps(None);
    assert!(
        refused
            .to_string()
            .contains("removed under the running daemon"),
        "{refused}"
    );
    assert_eq!(log.tail().newest(), 2);
    log.reopen().unwrap();
    log.append(&commit(3, BYTES)).unwrap();
    assert_eq!(found(&home), [1, 2, 3]);
}

#[test]
fn removed_files_come_back_with_an_orderly_stop() {
    let (home, mut log) = log(SEGMENT, [BYTES; 8]);
    remove_files(&home, |_| true);
    log.close().unwrap();
    assert_eq!(found(&home), (1..=8).collect::<Vec<_>>());
}
