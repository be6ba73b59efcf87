//! Small logs, damaged in a single place: the valid commits, and those reported as missing.

use std::ops::{Range, RangeInclusive};

use tempfile::TempDir;

use super::*;
use crate::log::entry::{ENTRY_HEADER_BYTES, seal};

const ID: LogId = LogId(0x0123_4567);
/// An entry has records of five bytes, and padding of three.
const ENTRY_BYTES: usize = 40;

/// The number of a segment, the commits, and the checksum of the commit before them; also returns that of the
/// last commit.
fn segment(number: u64, seqs: RangeInclusive<u64>, before: u32) -> (Vec<u8>, u32) {
    let mut bytes = SegmentHeader {
        number,
        first_seq: *seqs.start(),
        before,
    }
    .encode(ID)
    .to_vec();
    let mut last = before;
    for seq in seqs {
        let (entry, sum) = entry(seq, last);
        bytes.extend(entry);
        last = sum;
    }
    bytes.resize(512, 0);
    (bytes, last)
}

fn entry(seq: u64, before: u32) -> (Vec<u8>, u32) {
    let (mut header, rest) = (
        [0; ENTRY_HEADER_BYTES],
        [[seq.to_le_bytes()[0]; 5].as_slice(), &[0; 3]].concat(),
    );
    let sum = seal(ID, seq, before, 5, &mut header, [&rest[..5]].into_iter());
    ([&header[..], &rest].concat(), sum)
}

/// A log of three segments with three commits each.
struct Made {
    home: TempDir,
}

impl Made {
    fn new(mark: u64) -> Self {
        let made = Self {
            home: tempfile::tempdir().unwrap(),
        };
        let mut last = 0;
        for number in 1..=3 {
            let (bytes, sum) = segment(number, 3 * number - 2..=3 * number, last);
            made.write(number, &bytes);
            last = sum;
        }
        let mark = Mark {
            id: ID,
            seq: mark,
            segment: 3,
            clean: false,
        };
        fs::write(made.home.path().join(MARK), mark.encode()).unwrap();
        made
    }

    fn path(&self, number: u64) -> PathBuf {
        self.home.path().join(format!("{SEGMENT}{number}"))
    }

    fn write(&self, number: u64, bytes: &[u8]) {
        fs::write(self.path(number), bytes).unwrap();
    }

    fn remove(&self, number: u64) {
        fs::remove_file(self.path(number)).unwrap();
    }

    fn remove_mark(&self) {
        fs::remove_file(self.home.path().join(MARK)).unwrap();
    }

    fn flip(&self, number: u64, at: usize) {
        let mut bytes = fs::read(self.path(number)).unwrap();
        bytes[at] ^= 1;
        self.write(number, &bytes);
    }

    /// Changes a byte of a commit's records.
    fn damage(&self, seq: u64) {
        self.flip(seq.div_ceil(3), place(seq) + ENTRY_HEADER_BYTES);
    }

    /// The valid commits, or the missing ones.
    fn scan(&self, after: u64, kept: u64) -> Result<(Vec<u64>, Scanned), Option<Loss>> {
        let mut shown = Vec::new();
        let scanned = scan(self.home.path(), after, kept, &mut |entry, _| {
            assert_eq!(entry.records, [entry.seq.to_le_bytes()[0]; 5]);
            shown.push(entry.seq);
            Ok(())
        });
        match scanned {
            Ok(scanned) => Ok((shown, scanned)),
            Err(OpenError::Damaged(damage)) => Err(damage.loss),
            Err(why) => panic!("{why}"),
        }
    }

    fn scan_loosely(&self) -> (Vec<u64>, Loose) {
        let mut shown = Vec::new();
        let loose = scan_loosely(self.home.path(), &mut |entry, _| shown.push(entry.seq)).unwrap();
        assert_eq!(loose.found, shown.len() as u64);
        (shown, loose)
    }
}

/// The offset of a commit in a segment.
fn place(seq: u64) -> usize {
    HEADER_BYTES + usize::try_from((seq - 1) % 3).unwrap() * ENTRY_BYTES
}

/// The commits that are shown, and the number of harmless damages; or the first and the last missing commit.
type Outcome = Result<(Range<u64>, usize), Option<(u64, u64)>>;

const fn lost(first: u64, last: u64) -> Outcome {
    Err(Some((first, last)))
}

#[test]
fn damage_is_harmless_in_the_table_s_commits_and_named_beyond() {
    type Change = fn(&Made);
    const NOTHING: Change = |_| {};
    let table: [(&str, Change, u64, u64, Outcome); 29] = [
        ("nothing", NOTHING, 0, 9, Ok((1..10, 0))),
        ("nothing", NOTHING, 4, 9, Ok((5..10, 0))),
        ("nothing", NOTHING, 9, 9, Ok((10..10, 0))),
        ("a mark before the end", NOTHING, 0, 7, Ok((1..10, 0))),
        ("a mark behind the end", NOTHING, 0, 10, lost(10, 10)),
        ("the first segment", |made| made.remove(1), 0, 9, lost(1, 3)),
        ("the first segment", |made| made.remove(1), 2, 9, lost(3, 3)),
        (
            "the first segment",
            |made| made.remove(1),
            3,
            9,
            Ok((4..10, 0)),
        ),
        (
            "the second segment",
            |made| made.remove(2),
            0,
            9,
            lost(4, 6),
        ),
        (
            "the second segment",
            |made| made.remove(2),
            5,
            9,
            lost(6, 6),
        ),
        ("the last segment", |made| made.remove(3), 0, 9, lost(7, 9)),
        (
            "all segments",
            |made| (1..=3).for_each(|n| made.remove(n)),
            4,
            9,
            lost(5, 9),
        ),
        (
            "all segments",
            |made| (1..=3).for_each(|n| made.remove(n)),
            9,
            9,
            lost(10, 10),
        ),
        (
            "all segments",
            |made| (1..=3).for_each(|n| made.remove(n)),
            0,
            0,
            Ok((1..1, 0)),
        ),
        (
            "all segments",
            |made| (1..=3).for_each(|n| made.remove(n)),
            3,
            0,
            lost(4, 4),
        ),
        (
            "a commit in the middle",
            |made| made.damage(5),
            0,
            9,
            lost(5, 6),
        ),
        (
            "a commit in the middle",
            |made| made.damage(5),
            4,
            9,
            lost(5, 6),
        ),
        (
            "a commit in the middle",
            |made| made.damage(5),
            5,
            9,
            Ok((6..10, 1)),
        ),
        (
            "a commit in the middle",
            |made| made.damage(5),
            6,
            9,
            Ok((7..10, 0)),
        ),
        (
            "the end of a segment",
            |made| made.damage(6),
            6,
            9,
            Ok((7..10, 0)),
        ),
        (
            "a commit in the last segment",
            |made| made.damage(8),
            0,
            9,
            lost(8, 8),
        ),
        ("the last commit", |made| made.damage(9), 0, 9, lost(9, 9)),
        (
            "the last commit",
            |made| made.damage(9),
            0,
            8,
            Ok((1..9, 0)),
        ),
        (
            "the last commit",
            |made| made.damage(9),
            9,
            9,
            Ok((10..10, 1)),
        ),
        ("the last commit", |made| made.damage(9), 9, 8, Err(None)),
        (
            "the last commit",
            |made| made.damage(9),
            9,
            10,
            lost(10, 10),
        ),
        (
            "the last two commits",
            |made| [8, 9].iter().for_each(|seq| made.damage(*seq)),
            8,
            9,
            lost(9, 9),
        ),
        ("the mark", |made| made.remove_mark(), 0, 9, Err(None)),
        (
            "padding",
            |made| made.flip(2, place(5) + ENTRY_BYTES - 1),
            0,
            9,
            Ok((1..10, 1)),
        ),
    ];
    for (what, change, after, mark, expected) in table {
        let made = Made::new(mark);
        change(&made);
        let is = made.scan(after, after).map(|(shown, scanned)| {
            assert_eq!(
                scanned.last.0,
                if shown.is_empty() {
                    after
                } else {
                    *shown.last().unwrap()
                },
                "{what}"
            );
            (shown, scanned.harmless.len())
        });
        let expected = expected.map(|(shown, harmless)| (shown.collect(), harmless));
        let is = is.map_err(|loss| loss.map(|loss| (loss.first, loss.last)));
        assert_eq!(
            is, expected,
            "{what} is damaged; the table is at {after}, the mark at {mark}"
        );
    }
}

/// If the damage reaches the end of the log, no later commit may be in any file, in use or not.
#[test]
fn commits_in_unused_files_count_if_they_follow_the_table_s_last() {
    let lost = |last: u64| Err(Some(Loss { first: 10, last }));
    for (seq, expected) in [(9, Ok(())), (10, lost(10)), (11, lost(10)), (13, lost(12))] {
        let made = Made::new(9);
        made.damage(9);
        made.write(4, &[vec![0; HEADER_BYTES], entry(seq, 0).0].concat());
        assert_eq!(made.scan(9, 9).map(drop), expected, "commit {seq}");
    }
}

#[test]
fn a_torn_entry_differs_from_no_entry() {
    for (is_blank, torn) in [(false, true), (true, false)] {
        let made = Made::new(8);
        let mut bytes = fs::read(made.path(3)).unwrap();
        let at = place(9);
        if is_blank {
            bytes[at..].fill(0)
        } else {
            bytes[at + ENTRY_HEADER_BYTES] ^= 1
        }
        made.write(3, &bytes);
        assert_eq!(made.scan(0, 0).unwrap().1.torn, torn);
    }
}

#[test]
fn segments_are_held_back_to_the_commit_that_is_kept() {
    // The table's last commit, the kept one; the segments that are held, walked, and free.
    type Case = (u64, u64, &'static [u64], &'static [u64], &'static [u64]);
    let table: [Case; 7] = [
        (0, 0, &[], &[1, 2, 3], &[]),
        (3, 3, &[], &[2, 3], &[1]),
        (3, 2, &[1], &[2, 3], &[]),
        (7, 2, &[1, 2], &[3], &[]),
        (7, 3, &[2], &[3], &[1]),
        (7, 6, &[], &[3], &[1, 2]),
        (2, 9, &[], &[1, 2, 3], &[]),
    ];
    for (after, kept, held, walked, spare) in table {
        let made = Made::new(9);
        let scanned = made.scan(after, kept).unwrap().1;
        let paths = |numbers: &[u64]| numbers.iter().map(|n| made.path(*n)).collect::<Vec<_>>();
        let of = |files: &[SegmentFile]| {
            files
                .iter()
                .map(|file| file.path.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(of(&scanned.held), paths(held), "held, {after} and {kept}");
        assert_eq!(
            of(&scanned.spare),
            paths(spare),
            "spare, {after} and {kept}"
        );
        let is: Vec<_> = scanned
            .walked
            .iter()
            .map(|walked| walked.path.clone())
            .collect();
        assert_eq!(is, paths(walked), "walked, {after} and {kept}");
    }
}

#[test]
fn entries_beyond_the_mark_are_written_again() {
    for (mark, from) in [
        (9, place(9) + ENTRY_BYTES),
        (8, place(9)),
        (7, place(8)),
        (6, 0),
    ] {
        let made = Made::new(mark);
        let scanned = made.scan(0, 0).unwrap().1;
        let bytes = fs::read(made.path(3)).unwrap();
        let end = HEADER_BYTES + 3 * ENTRY_BYTES;
        assert_eq!(
            scanned.unsynced,
            (from, bytes[from..end].to_vec()),
            "mark {mark}"
        );
        let walked = &scanned.walked[2];
        assert_eq!(
            (walked.begin, walked.end, walked.bytes, walked.damaged),
            (HEADER_BYTES, end, 512, false)
        );
    }
}

#[test]
fn a_segment_begins_after_damage_and_gets_no_more_entries() {
    let made = Made::new(9);
    made.damage(8);
    let walked = made.scan(8, 8).unwrap().1.walked.pop().unwrap();
    assert_eq!(
        (walked.begin, walked.header.first_seq, walked.damaged),
        (place(9), 9, true)
    );
    let made = Made::new(9);
    made.damage(6);
    let walked = made.scan(6, 4).unwrap().1.walked;
    assert_eq!(
        walked
            .iter()
            .map(|walked| walked.damaged)
            .collect::<Vec<_>>(),
        [false],
        "it is held"
    );
}

#[test]
fn a_commit_that_was_written_again_continues_the_one_before_it() {
    let written = |number: u64, first: u64, before: u32| {
        let made = Made::new(9);
        made.write(4, &segment(number, first..=first + 1, before).0);
        made.scan(0, 0).map(|(shown, _)| shown[8..].to_vec())
    };
    let sums: Vec<u32> = (1..=9)
        .scan(0, |last, seq| {
            Some(std::mem::replace(last, entry(seq, *last).1))
        })
        .collect();
    let last = entry(9, sums[8]).1;
    assert_eq!(written(4, 10, last), Ok(vec![9, 10, 11]));
    assert_eq!(written(4, 9, sums[8]), Ok(vec![9, 9, 10]), "it is in both");
    assert_eq!(
        written(4, 9, last),
        Err(Some(Loss {
            first: 10,
            last: 10
        })),
        "after another commit"
    );
    assert_eq!(
        written(4, 10, sums[8]),
        Err(Some(Loss {
            first: 10,
            last: 10
        })),
        "after another commit"
    );
    assert_eq!(
        written(3, 10, last),
        Err(Some(Loss {
            first: 10,
            last: 10
        })),
        "of the same number"
    );
}

#[test]
fn a_segment_that_does_not_continue_the_one_before_it_is_damage_even_without_entries() {
    let sums: Vec<u32> = (1..=9)
        .scan(0, |last, seq| {
            Some(std::mem::replace(last, entry(seq, *last).1))
        })
        .collect();
    let (before, last) = (sums[8], entry(9, sums[8]).1);
    let table = [
        (4, 10, last, true),
        (4, 9, before, true),
        (4, 10, before, false),
        (4, 9, last, false),
        (4, 11, last, false),
        (3, 10, last, false),
    ];
    for (number, first_seq, before, continues) in table {
        let made = Made::new(8);
        let mut bytes = SegmentHeader {
            number,
            first_seq,
            before,
        }
        .encode(ID)
        .to_vec();
        bytes.resize(512, 0);
        made.write(4, &bytes);
        assert_eq!(
            made.scan(0, 0).is_ok(),
            continues,
            "segment {number} from commit {first_seq}"
        );
    }
}

#[test]
fn a_loose_scan_shows_all_and_names_the_gaps() {
    /// The damaged part, the damage, the mark, the commits from the first to the last one found, and the gaps in them.
    type Case = (
        &'static str,
        fn(&Made),
        u64,
        RangeInclusive<u64>,
        &'static [(u64, u64)],
    );
    let table: [Case; 9] = [
        ("nothing", |_| {}, 9, 1..=9, &[]),
        ("a mark behind the end", |_| {}, 10, 1..=9, &[(10, 10)]),
        ("a mark far behind the end", |_| {}, 12, 1..=9, &[(10, 12)]),
        ("a commit", |made| made.damage(5), 9, 1..=9, &[(5, 5)]),
        ("a segment", |made| made.remove(2), 9, 1..=9, &[(4, 6)]),
        ("the first segment", |made| made.remove(1), 9, 4..=9, &[]),
        ("a header", |made| made.flip(2, 0), 9, 1..=9, &[]),
        (
            "the last commit",
            |made| made.damage(9),
            9,
            1..=8,
            &[(9, 9)],
        ),
        ("the mark", |made| made.remove_mark(), 9, 1..=9, &[]),
    ];
    for (what, change, mark, expected, missing) in table {
        let made = Made::new(mark);
        change(&made);
        let (shown, loose) = made.scan_loosely();
        assert_eq!(
            (loose.first, loose.last),
            (Some(*expected.start()), *expected.end()),
            "{what}"
        );
        let is_missing = |seq: &u64| {
            missing
                .iter()
                .any(|(first, last)| (first..=last).contains(&seq))
        };
        assert_eq!(
            shown,
            expected.filter(|seq| !is_missing(seq)).collect::<Vec<_>>(),
            "{what}"
        );
        assert_eq!(loose.missing, missing, "{what}");
    }
}

#[test]
fn a_loose_scan_leaves_out_copies_and_the_entries_of_an_earlier_use() {
    let made = Made::new(9);
    let mut bytes = fs::read(made.path(3)).unwrap();
    bytes[place(9)..place(9) + ENTRY_BYTES].copy_from_slice(&entry(2, 0).0);
    made.write(3, &bytes);
    made.write(4, &segment(4, 8..=9, 0).0);
    let (shown, loose) = made.scan_loosely();
    assert_eq!((shown, loose.missing), ((1..=9).collect(), Vec::new()));
}

#[test]
fn an_unbroken_range_ends_at_a_commit() {
    let loose = Loose {
        first: Some(3),
        last: 20,
        missing: vec![(6, 8), (12, 12)],
        ..Loose::default()
    };
    let table = [
        (3, 3),
        (5, 3),
        (6, 7),
        (8, 9),
        (9, 9),
        (11, 9),
        (12, 13),
        (13, 13),
        (20, 13),
        (21, 22),
        (30, 31),
    ];
    for (seq, first) in table {
        assert_eq!(loose.unbroken_to(seq), first, "up to {seq}");
    }
}
