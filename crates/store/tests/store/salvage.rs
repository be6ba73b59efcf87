//! Reading a damaged store, and the reported losses.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use windlass_engine::{
    DAYS_KEPT, DayBegin, JobCommand, Limits, NewJob, Protocol, Timestamp, Totals,
};
use windlass_store::{Record, Salvage, Table as _, accept_loss, open, salvage, unnamed};
use windlass_testkit::store::MemoryTable;

use crate::disk::{Image, image_of, restore};
use crate::files::{Daemon, home, small};

/// Three commits of a job fill a segment.
const BODY_BYTES: usize = 9_000;

/// A directory after a kill, with a job in each commit. There is a checkpoint after `point` of
/// them.
struct Made {
    image: Image,
    /// The number of the first commit with a job.
    first: u64,
    /// The number of the last commit.
    last: u64,
    /// The table's commit.
    point: u64,
    /// The segments of the log with their first commits, in order.
    segments: Vec<(u64, PathBuf)>,
}

fn made(jobs: u64, point: Option<u64>) -> Made {
    let home = home();
    let path = home.path().join("data");
    let mut daemon = Daemon::start(&small(&path), 1, Timestamp(1_000)).unwrap();
    daemon.open_clients();
    daemon.commit();
    let first = daemon.log.tail().newest() + 1;
    let mut table = 0;
    for n in 1..=jobs {
        let body = Bytes::from(vec![n.to_le_bytes()[0]; BODY_BYTES]);
        daemon.apply(JobCommand::Push(Box::new(NewJob::new(
            Protocol::FAKTORY,
            Bytes::from_static(b"q"),
            body,
        ))));
        daemon.commit();
        if point == Some(n) {
            daemon.checkpointer.run(true).unwrap();
            table = daemon.log.tail().newest();
        }
    }
    let (image, last) = (image_of(&path), daemon.log.tail().newest());
    let number = |bytes: &Vec<u8>| u64::from_le_bytes(bytes[24..32].try_into().unwrap());
    let segments = image
        .iter()
        .filter(|(name, _)| name.to_string_lossy().contains("log/segment-"));
    let mut segments: Vec<_> = segments
        .map(|(name, bytes)| (number(bytes.as_ref().unwrap()), name.clone()))
        .collect();
    segments.retain(|(first, _)| *first > 0);
    segments.sort();
    assert_eq!(segments[0].0, 1, "the log has all commits");
    Made {
        image,
        first,
        last,
        point: table,
        segments,
    }
}

impl Made {
    /// Salvages the directory without a file.
    fn without(&self, name: &Path) -> Salvage {
        let home = home();
        let path = home.path().join("data");
        restore(&self.image, &path);
        fs::remove_file(path.join(name)).unwrap();
        salvage(&small(&path)).unwrap()
    }

    /// Checks the result without the segment at this place in the log.
    fn check(&self, at: usize, missing: Option<(u64, u64)>) {
        let found = self.without(&self.segments[at].1);
        let text = missing
            .map(|(first, last)| format!("commits {first} to {last} of the log are missing"));
        let named: Vec<_> = found
            .unreadable
            .iter()
            .filter(|text| text.starts_with("commits "))
            .cloned()
            .collect();
        assert_eq!(named, text.into_iter().collect::<Vec<_>>(), "segment {at}");
        let commits = missing.map_or(0, |(first, last)| last + 1 - first);
        assert_eq!(
            (found.commits_missing, found.is_whole()),
            (commits, missing.is_none()),
            "segment {at}"
        );
        let reached = missing
            .filter(|(_, last)| *last == self.last)
            .map_or(self.last, |(first, _)| first - 1);
        assert_eq!(
            (found.commit, found.commits),
            (reached, self.last - self.point - commits),
            "segment {at}"
        );
        let lost = missing.map_or(0, |(first, last)| (first.max(self.first)..=last).count());
        let jobs = (self.first..=self.last).count();
        assert_eq!(found.jobs().len(), jobs - lost, "segment {at}");
    }
}

#[test]
fn missing_commits_of_the_log_are_counted_and_named() {
    let made = made(10, None);
    let begins: Vec<u64> = made.segments.iter().map(|(first, _)| *first).collect();
    assert!(begins.len() >= 4, "{begins:?}");
    made.check(0, Some((1, begins[1] - 1)));
    made.check(1, Some((begins[1], begins[2] - 1)));
    made.check(
        begins.len() - 1,
        Some((begins[begins.len() - 1], made.last)),
    );
}

#[test]
fn commits_of_the_table_do_not_count_as_missing() {
    let made = made(11, Some(4));
    let begins: Vec<u64> = made.segments.iter().map(|(first, _)| *first).collect();
    let at = begins
        .iter()
        .rposition(|first| *first <= made.point)
        .unwrap();
    assert!(
        at > 0 && begins[at + 1] > made.point + 1,
        "the table ends within a segment: {begins:?}, {}",
        made.point
    );
    (0..at).for_each(|before| made.check(before, None));
    made.check(at, Some((made.point + 1, begins[at + 1] - 1)));
    made.check(at + 1, Some((begins[at + 1], begins[at + 2] - 1)));
}

#[test]
fn each_missing_part_is_named() {
    let made = made(5, Some(2));
    let jobs = |found: &Salvage| found.jobs().len();
    let found = made.without(Path::new("store/log/mark"));
    assert!(
        found
            .unreadable
            .iter()
            .any(|text| text.ends_with("log: its mark is missing, damaged or of another store")),
        "{found:?}"
    );
    assert_eq!((jobs(&found), found.commits_missing), (5, 0));
    assert_eq!(
        found.unreadable.len(),
        2,
        "the mark, and why the store is refused: {:?}",
        found.unreadable
    );
    let table = made.image.keys().find(|name| name.ends_with("db")).unwrap();
    let found = made.without(table);
    assert_eq!(
        (jobs(&found), found.commits, found.commit),
        (5, made.last, made.last),
        "all are in the log"
    );
    assert!(!found.is_whole());
}

/// The names of queues in a salvage, by job.
fn names(found: &Salvage) -> BTreeSet<Bytes> {
    found
        .jobs()
        .values()
        .map(|job| found.queues[&job.queue].name.clone())
        .collect()
}

/// For a log that has dropped the first commits, including the queue, and without the table.
#[test]
fn every_segment_has_the_names_of_its_queues() {
    let made = made(20, Some(8));
    let home = home();
    let path = home.path().join("data");
    for first in 1..made.segments.len() {
        restore(&made.image, &path);
        let lost = made.segments[..first].iter().map(|(_, name)| name);
        lost.for_each(|name| fs::remove_file(path.join(name)).unwrap());
        fs::remove_file(path.join(made.image.keys().find(|name| name.ends_with("db")).unwrap()))
            .unwrap();
        let found = salvage(&small(&path)).unwrap();
        let jobs = (made.segments[first].0.max(made.first)..=made.last).count();
        assert_eq!(
            (found.jobs().len(), names(&found)),
            (jobs, BTreeSet::from(["q".into()])),
            "from segment {first}"
        );
        let (kept, _) = accept_loss(&small(&path), Limits::default(), 1).unwrap();
        assert_eq!(kept.job_count, jobs as u64);
        let daemon = Daemon::start(&small(&path), 1, Timestamp(2_000)).unwrap();
        assert_eq!(daemon.engine.job_count(), jobs, "from segment {first}");
        drop(daemon);
        fs::remove_dir_all(&path).unwrap();
    }
}

#[test]
fn segments_that_agree_are_believed_before_the_mark_of_another_store() {
    let (made, other) = (made(5, Some(2)), made(1, None));
    let home = home();
    let path = home.path().join("data");
    restore(&made.image, &path);
    let mark = Path::new("store/log/mark");
    fs::write(path.join(mark), other.image[mark].as_ref().unwrap()).unwrap();
    let refused = open(&small(&path), Limits::default(), 1)
        .unwrap_err()
        .to_string();
    assert!(refused.contains(
        "the mark, which records how far the log reached, is missing, damaged or of another store"
    ));
    let found = salvage(&small(&path)).unwrap();
    assert_eq!(
        (found.jobs().len(), found.commit, found.commits_missing),
        (5, made.last, 0),
        "{:?}",
        found.unreadable
    );
}

/// Segments of older versions do not repeat names.
#[test]
fn a_queue_whose_name_is_lost_has_a_made_up_one() {
    let mut daemon = crate::daemon::Daemon::new();
    let mut records = Vec::new();
    for n in 0..3 {
        daemon.push(&[n; 20]);
        records.push(daemon.commit());
    }
    let scan = MemoryTable::new().scan().unwrap();
    let found = Salvage::of_parts(&*scan, None, |_, show| {
        records[1..]
            .iter()
            .for_each(|commit| show(commit.seq(), Ok(&commit.records())));
        Ok(())
    });
    let found = found.unwrap();
    let (id, image) = found.queues.iter().next().unwrap();
    assert_eq!(
        (found.jobs().len(), names(&found)),
        (2, BTreeSet::from([unnamed(*id)]))
    );
    assert_eq!(image.name, format!("unnamed-queue-{}", id.0));
    assert!(
        image.is_known()
            && found
                .unreadable
                .iter()
                .any(|text| text.starts_with("the names of queues (1): "))
    );
}

#[test]
fn parts_elsewhere_are_read_with_the_commits_that_can_be() {
    let mut daemon = crate::daemon::Daemon::new();
    let mut records = Vec::new();
    for n in 0..7 {
        daemon.push(&[n; 20]);
        let commit = daemon.commit();
        records.push((commit.seq(), commit.records()));
        if n == 1 {
            assert!(daemon.checkpoint());
        }
    }
    let scan = daemon.table.cut(|| false).scan().unwrap();
    let of = |left_out: &[u64], unreadable: &[u64]| {
        let found = Salvage::of_parts(&*scan, None, |after, show| {
            assert_eq!(after, 2);
            let behind = records
                .iter()
                .filter(|(seq, _)| *seq > after && !left_out.contains(seq));
            behind.for_each(|(seq, bytes)| match unreadable.contains(seq) {
                true => show(*seq, Err(format!("commit {seq} is damaged"))),
                false => show(*seq, Ok(bytes)),
            });
            Ok(())
        });
        let found = found.unwrap();
        (
            found.jobs().len(),
            found.commits,
            found.commit,
            found.commits_missing,
            found.unreadable,
        )
    };
    let named = |texts: &[&str]| {
        texts
            .iter()
            .map(|text| (*text).to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(of(&[], &[]), (7, 5, 7, 0, named(&[])));
    assert_eq!(
        of(&[3], &[]),
        (
            6,
            4,
            7,
            1,
            named(&["commits 3 to 3 of the log are missing"])
        )
    );
    assert_eq!(
        of(&[4, 5], &[]),
        (
            5,
            3,
            7,
            2,
            named(&["commits 4 to 5 of the log are missing"])
        )
    );
    assert_eq!(
        of(&[], &[4, 7]),
        (
            5,
            3,
            6,
            2,
            named(&["commit 4 is damaged", "commit 7 is damaged"])
        )
    );
    assert_eq!(
        of(&[3, 4, 5, 6, 7], &[]),
        (2, 0, 2, 0, named(&[])),
        "the table's commits"
    );
}

#[test]
fn the_beginnings_of_the_last_days_are_kept() {
    let (mut bytes, last) = (Vec::new(), DAYS_KEPT + 2);
    for number in 1..=last {
        let mut record = Vec::new();
        Record::Day(DayBegin {
            number,
            day: 20_000 + number,
            totals: Totals::default(),
        })
        .encode(&mut record);
        bytes.push(u8::try_from(record.len()).unwrap());
        bytes.extend(record);
    }
    let scan = MemoryTable::new().scan().unwrap();
    let found = Salvage::of_parts(&*scan, None, |_, show| {
        show(1, Ok(&bytes));
        Ok(())
    });
    let found = found.unwrap();
    let mut days: Vec<u64> = found.days.values().map(|begin| begin.number).collect();
    days.sort_unstable();
    assert_eq!((days, found.unreadable), ((3..=last).collect(), Vec::new()));
}
