//! What recovery refuses and how it says so, what it can read for ever, and what can be salvaged of the rest.

use std::collections::BTreeMap;
use std::path::Path;

use crate::daemon::{Daemon, recovered};
use crate::dice::Dice;
use crate::jobs;
use bytes::Bytes;
use proptest::prelude::*;
use windlass_engine::{
    Batch, BatchStanding, Clash, Extra, Head, Job, JobId, KeyUntil, Member, NewJob, Origin, Place, QueueId, QueueImage,
    QueueKind, Role, Schedule, Stage, Timestamp, Token, Unique,
};
use windlass_store::{
    BatchMoved, Fingerprint, HeadRecord, MemoryStore, Moved, NextRun, Record, RecoverError, Recovered, Report, Store,
    salvage,
};

/// Five commits of a job each, under keys 1 to 5.
fn five() -> MemoryStore {
    let mut daemon = Daemon::new();
    for n in 0..5 {
        daemon.push(&[n; 10]);
        daemon.commit();
    }
    assert_eq!(daemon.store.values().keys().copied().collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    daemon.store
}

#[test]
fn a_torn_last_commit_is_dropped_and_cleared_away() {
    for damage in [(|value: &mut Vec<u8>| value.truncate(30)) as fn(&mut Vec<u8>), |value| value[40] ^= 1, Vec::clear] {
        let store = five();
        store.damage(5, damage);
        let found = recovered(&store).unwrap();
        assert_eq!(found.engine.job_count(), 4);
        assert_eq!(found.report.torn.unwrap().keys, [5]);
        let mut daemon = Daemon::on(store);
        daemon.push(b"five again");
        daemon.commit();
        assert_eq!(daemon.store.values().keys().copied().collect::<Vec<_>>(), [1, 2, 3, 4, 6]);
        let found = recovered(&daemon.store).unwrap();
        assert_eq!((found.report.jobs, found.report.torn), (5, None));
    }
}

#[test]
fn damage_before_the_last_commit_is_refused_by_its_number() {
    let store = five();
    store.damage(3, |value| value[40] ^= 1);
    let why = recovered(&store).unwrap_err();
    assert!(matches!(why, RecoverError::Damaged { key: 3, after: 2, .. }), "{why}");
    let text = "the journal is damaged at sequence 3, after commit 2, and more was written later: \
                the checksum does not match";
    assert_eq!(why.to_string(), text);
}

#[test]
fn a_lost_commit_is_noticed() {
    for key in 1..=4 {
        let store = five();
        store.lose(key);
        let why = recovered(&store).unwrap_err();
        assert!(matches!(why, RecoverError::Lost { expected: 5, found: 4 }), "{key}: {why}");
    }
    // The last one may never have been written.
    let store = five();
    store.lose(5);
    assert_eq!(recovered(&store).unwrap().report.jobs, 4);
}

#[test]
fn a_version_to_come_is_refused_even_at_the_end() {
    let store = five();
    store.damage(5, |value| {
        value[4] = 2;
        let mut hasher = crc32(&5u64.to_be_bytes(), &value[4..]).to_le_bytes().to_vec();
        value.splice(..4, hasher.drain(..));
    });
    let why = recovered(&store).unwrap_err();
    assert!(matches!(why, RecoverError::Version { key: 5, version: 2 }), "{why}");
}

/// The checksum of the format, bit by bit (CRC-32, IEEE 802.3).
fn crc32(key: &[u8], rest: &[u8]) -> u32 {
    let bytes = key.iter().chain(rest);
    !bytes.fold(!0u32, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 })
    })
}

// ---- golden journal ------------------------------------------------------------------------------------------------

/// A whole journal, written by the first version: `golden/journal.txt` has a key and a value in hex on each line.
#[test]
fn a_golden_journal_is_recovered() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/journal.txt");
    if std::env::var_os("WINDLASS_GOLDEN").is_some() && !path.exists() {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let lines: Vec<String> =
            written().values().iter().map(|(key, value)| format!("{key} {}\n", hex(value))).collect();
        std::fs::write(&path, lines.concat()).unwrap();
    }
    let text = std::fs::read_to_string(&path).unwrap();
    let values: BTreeMap<u64, Vec<u8>> = text.lines().map(line).collect();
    let found = recovered(&MemoryStore::with(values)).unwrap();
    let is = (found.report.commits, found.report.jobs, found.report.queues, found.report.last_seq, found.report.clean);
    assert_eq!(is, (4, 3, 2, 4, true));
    let job = |id| found.engine.job(JobId(id)).unwrap();
    let lease = job(1).lease().unwrap();
    assert_eq!((job(1).body(), lease.token, lease.until), (&b"first"[..], Token(1), Timestamp(2_000)));
    assert_eq!((job(2).body(), &job(2).place), (&[9; 1_500][..], &Place::Ready));
    assert_eq!((job(3).name(), &job(3).place), (&b"jid"[..], &Place::Scheduled(Timestamp(90_000))));
    assert_eq!((job(3).origin, job(3).key()), (Origin::FAKTORY, Some(&b"k"[..])));
    let names: Vec<&Bytes> = found.engine.queues().map(|queue| &queue.image().name).collect();
    assert_eq!(names, ["resize", "mail"]);
    let head = found.engine.head();
    assert_eq!((head.next_job, head.totals.pushed, head.totals.taken, head.totals.cancelled), (5, 4, 1, 1));
}

fn line(line: &str) -> (u64, Vec<u8>) {
    let (key, hex) = line.split_once(' ').unwrap_or_else(|| panic!("{line}"));
    let digits: Vec<u32> = hex.chars().map(|digit| digit.to_digit(16).unwrap()).collect();
    (key.parse().unwrap(), digits.chunks(2).map(|pair| u8::try_from(pair[0] << 4 | pair[1]).unwrap()).collect())
}

/// What the golden journal was made from.
fn written() -> MemoryStore {
    let mut daemon = Daemon::new();
    let first = daemon.push(b"first");
    daemon.push(&[9; 1_500]);
    daemon.commit();
    assert_eq!(daemon.take(false), first);
    let other = NewJob::new(Origin::FAKTORY, Bytes::from_static(b"mail"), Bytes::from_static(b"{}"));
    daemon.push_job(NewJob {
        name: Some(Bytes::from_static(b"jid")),
        not_before: Some(Timestamp(90_000)),
        unique: Some(Unique { key: Bytes::from_static(b"k"), clash: Clash::Keep, until: KeyUntil::Start }),
        ..other
    });
    daemon.commit();
    let gone = daemon.push(b"gone");
    daemon.commit();
    daemon.cancel(gone);
    daemon.engine.settle_head();
    daemon.journal.stop_in_order();
    daemon.commit();
    daemon.store
}

// ---- well framed nonsense --------------------------------------------------------------------------------------------

/// A store of commits that are framed as they should be, around these records and a head that agrees.
fn framed(commits: &[Vec<Record>]) -> MemoryStore {
    let (mut values, mut census) = (BTreeMap::new(), 0u64);
    for (seq, records) in (1u64..).zip(commits) {
        // A commit's share in the census is what these dice say to its number.
        census = census.wrapping_add(Dice(seq).roll(u64::MAX));
        let head = Head { next_job: 1, reserved: 1, ..Head::default() };
        let head = Record::Head(HeadRecord { head, clean: false, commits: seq, census });
        let mut value = vec![0; 4];
        value.push(1);
        value.extend_from_slice(&seq.to_le_bytes());
        [0u32, 1, 0].iter().for_each(|field| value.extend_from_slice(&field.to_le_bytes()));
        records.iter().chain([&head]).for_each(|record| record.encode(&mut value));
        let sum = crc32(&seq.to_be_bytes(), &value[4..]);
        value[..4].copy_from_slice(&sum.to_le_bytes());
        values.insert(seq, value);
    }
    MemoryStore::with(values)
}

fn callback(kind: QueueKind) -> Option<Box<NewJob>> {
    Some(Box::new(NewJob { kind, ..NewJob::new(Origin::FAKTORY, Bytes::new(), Bytes::new()) }))
}

fn pushed(batch: &mut Batch) {
    (batch.complete, batch.standing.complete) = (callback(QueueKind::Work), Stage::Enqueued);
}

fn cyclic(batch: &mut Batch) {
    batch.success = callback(QueueKind::Cycle);
}

/// Records about few jobs and few queues, that fit each other as often as not.
fn any_record() -> impl Strategy<Value = Record> {
    let job =
        (jobs::any_job(), 1u64..9, 0u32..3, 0u64..30, any::<bool>()).prop_map(|(mut job, id, queue, rank, fits)| {
            (job.id, job.queue, job.rank) = (JobId(id), QueueId(queue), (1 << 62) + rank);
            if let Some(extra) = job.extra.as_mut().filter(|_| fits) {
                extra.cycle = None;
                extra.member.iter_mut().for_each(|member| member.batch = JobId(10 + member.batch.0 % 4));
            }
            job
        });
    let job = job.boxed();
    let schedule = (jobs::any_schedule(), 7u64..12).prop_map(|(schedule, id)| Schedule { id: JobId(id), ..schedule });
    let schedule = schedule.boxed();
    let batch = (jobs::any_batch(), 10u64..14, any::<bool>()).prop_map(|(batch, id, fits)| {
        let parent = batch.parent.map(|parent| JobId(parent.0 % id));
        let callback = |job: Option<Box<NewJob>>| {
            job.map(|job| Box::new(NewJob { kind: QueueKind::Work, ..*job })).filter(|_| fits)
        };
        let (complete, success) = (callback(batch.complete), callback(batch.success));
        Batch { id: JobId(id), parent, complete, success, ..batch }
    });
    let batch = batch.boxed();
    prop_oneof![
        6 => job.clone().prop_map(Record::Put),
        2 => job.prop_map(|job| {
            let extra = job.extra.unwrap_or_default();
            let (cycle, failure, progress) = (extra.cycle, extra.failure, extra.progress);
            let ran = extra.member.is_some_and(|member| member.ran);
            let updated_at = extra.track.map(|track| track.updated_at);
            let Job { id, place, rank, ready_at, attempts, failures, .. } = job;
            Record::Moved(Moved { job: id, place, rank, ready_at, attempts, failures, cycle, failure, progress, ran, updated_at })
        }),
        2 => (1u64..9).prop_map(|id| Record::Gone(JobId(id))),
        4 => (jobs::any_queue(), 0u32..3).prop_map(|(image, id)| {
            let kind = if id == 2 { QueueKind::Cycle } else { QueueKind::Work };
            Record::QueueSet(QueueImage { id: QueueId(id), kind, ..image })
        }),
        1 => (0u32..3).prop_map(|id| Record::QueueGone(QueueId(id))),
        2 => batch.clone().prop_map(|batch| Record::Batch(Box::new(batch))),
        1 => batch.prop_map(|batch| {
            Record::BatchMoved(BatchMoved { batch: batch.id, standing: batch.standing })
        }),
        2 => schedule.clone().prop_map(|schedule| Record::Schedule(Box::new(schedule))),
        1 => schedule.prop_map(|Schedule { id, next_at, runs_left, .. }| {
            Record::NextRun(NextRun { schedule: id, next_at, runs_left })
        }),
    ]
}

proptest! {
    /// Recovery says no, or makes an engine that holds together, and that goes through the journal again unchanged.
    #[test]
    fn well_framed_nonsense_does_no_harm(commits in prop::collection::vec(prop::collection::vec(any_record(), 0..8), 1..8)) {
        let mut store = framed(&commits);
        salvage(&store).unwrap().export(&mut std::io::sink()).unwrap();
        let Ok(Recovered { engine, mut journal, .. }) = recovered(&store) else { return Ok(()) };
        engine.check();
        let commit = journal.cut(&engine).unwrap();
        store.commit(&commit).unwrap();
        let again = recovered(&store).unwrap();
        prop_assert_eq!(Fingerprint::of(&again.engine).differs_from(&Fingerprint::of(&engine)), None);
        prop_assert_eq!(again.journal.stats().live_bytes, journal.stats().live_bytes);
    }
}

#[test]
fn nonsense_is_named() {
    let queue = |id: u32, name: &'static str, kind| {
        let (name, jobs_max) = (Bytes::from_static(name.as_bytes()), [None; 9]);
        let (known, paused, throttle, rules) = (true, false, None, None);
        Record::QueueSet(QueueImage {
            id: QueueId(id),
            name,
            kind,
            known,
            paused,
            jobs_max,
            throttle,
            rules,
            serial: 1,
        })
    };
    let work = || queue(0, "q", QueueKind::Work);
    let schedule = |id: u64| {
        let mut daemon = Daemon::new();
        let set = daemon.schedule(b"");
        Record::Schedule(Box::new(Schedule { id: JobId(id), ..daemon.engine.schedule(set).unwrap().clone() }))
    };
    let batch = |id: u64, name: &'static str, change: fn(&mut Batch)| {
        let mut batch = Batch {
            id: JobId(id),
            name: Bytes::from_static(name.as_bytes()),
            origin: Origin::FAKTORY,
            parent: None,
            parent_name: None,
            depth: 0,
            about: Bytes::new(),
            meta: Bytes::new(),
            created_at: Timestamp(0),
            complete: None,
            success: None,
            standing: BatchStanding::new(Timestamp(0)),
        };
        change(&mut batch);
        Record::Batch(Box::new(batch))
    };
    let put = |id: u64, rank: u64| Record::Put(Job { id: JobId(id), rank, ..jobs::plain() });
    let member = |id: u64, batch: u64| {
        let member = Member { batch: JobId(batch), role: Role::Job, ran: false };
        let extra = Some(Box::new(Extra { member: Some(member), ..Extra::default() }));
        Record::Put(Job { id: JobId(id), extra, ..jobs::plain() })
    };
    let table = [
        ("JobId(1) is in QueueId(0), which is not there", vec![put(1, 5)]),
        ("JobId(1) does not fit the kind of QueueId(0)", vec![queue(0, "q", QueueKind::Cycle), put(1, 5)]),
        ("rank 5 is given twice", vec![work(), put(1, 5), put(2, 5)]),
        ("QueueId(1) and QueueId(0) have the same name", vec![work(), queue(1, "q", QueueKind::Work)]),
        ("JobId(1) is a job and a schedule", vec![work(), put(1, 5), schedule(1)]),
        ("JobId(2) and JobId(1) are schedules of the same name", vec![schedule(1), schedule(2)]),
        ("JobId(1) is a batch and something else", vec![work(), put(1, 5), batch(1, "b", |_| {})]),
        ("JobId(2) and JobId(1) are batches of the same name", vec![batch(1, "b", |_| {}), batch(2, "b", |_| {})]),
        ("JobId(2) has more jobs than it counts", vec![work(), batch(2, "b", |_| {}), member(1, 2)]),
        ("JobId(1) has a callback that was pushed", vec![batch(1, "b", pushed)]),
        ("JobId(1) succeeded before it was complete", vec![batch(1, "b", |b| b.standing.success = Stage::Passed)]),
        ("JobId(1) has a callback that cannot be one", vec![batch(1, "b", cyclic)]),
        ("QueueId(9000000) is beyond the limit of 1000000 queues", vec![queue(9_000_000, "q", QueueKind::Work)]),
    ];
    for (what, records) in table {
        let why = recovered(&framed(&[records])).unwrap_err();
        assert_eq!(why.to_string(), format!("the journal contradicts itself: {what}"));
    }
    assert_eq!(recovered(&framed(&[vec![work(), put(1, 5), put(2, 6)]])).unwrap().report.jobs, 2);
}

// ---- salvage -------------------------------------------------------------------------------------------------------

#[test]
fn what_can_be_read_is_salvaged() {
    let mut daemon = Daemon::new();
    for n in 0..40u8 {
        daemon.push(&[n; 2_000]);
    }
    daemon.commit();
    let end = daemon.push(b"\"the end\"");
    let schedule = daemon.schedule(b"the end");
    daemon.commit();
    let whole = salvage(&daemon.store).unwrap();
    assert_eq!((whole.jobs.len(), whole.queues.len(), whole.damaged.len()), (41, 1, 0));

    // The second of the parts of the first commit is damaged: what was whole before and behind it is there.
    daemon.store.damage(2, |value| value[100] ^= 1);
    assert!(recovered(&daemon.store).is_err());
    let found = salvage(&daemon.store).unwrap();
    let lost: Vec<u64> = whole.jobs.keys().filter(|id| !found.jobs.contains_key(id)).map(|id| id.0).collect();
    assert_eq!(lost, (2..=4).collect::<Vec<_>>(), "only those that were in the damaged part, wholly or in part");
    assert_eq!(found.damaged.len(), 2, "the part, and the record that went on in it: {:?}", found.damaged);
    assert!(found.jobs.values().all(|job| whole.jobs.get(&job.id) == Some(job)));

    let mut lines = Vec::new();
    found.export(&mut lines).unwrap();
    let text = String::from_utf8(lines).unwrap();
    assert_eq!(text.lines().count(), 39);
    let last = format!(
        "{{\"job\":{},\"queue\":\"resize\",\"origin\":2,\"priority\":5,\"place\":\"ready\",\"ready_at_ms\":1000,\
         \"attempts\":0,\"failures\":0,\"body_base64\":\"InRoZSBlbmQi\"}}",
        end.0
    );
    assert_eq!(text.lines().nth(37), Some(last.as_str()));
    let last = format!(
        "{{\"schedule\":{},\"queue\":\"resize\",\"origin\":2,\"priority\":5,\"every_ms\":60000,\"next_at_ms\":61000,\
         \"key\":\"minutely\",\"body_base64\":\"dGhlIGVuZA==\"}}",
        schedule.0
    );
    assert_eq!(text.lines().last(), Some(last.as_str()));
}

#[test]
fn an_empty_store_is_an_empty_journal() {
    let found = recovered(&MemoryStore::new()).unwrap();
    assert_eq!(found.report, Report::default());
    assert_eq!(found.journal.pending_seq(), 1);
}
