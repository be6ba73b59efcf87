//! Records: written records are read back, invalid bytes are rejected, and the records of older programs stay
//! readable.

use std::fmt::Write as _;
use std::path::Path;

use bytes::Bytes;

use proptest::prelude::*;
use windlass_engine::{
    ClientId, Clock, DayBegin, EngineMeta, Extra, Holder, Job, JobId, JobState, Lease, Namespace,
    NamespaceImage, NamespaceLimits, OnExpiry, Progress, Protocol, QueueId, Schedule, Timestamp,
    Token, Totals,
};
use windlass_store::{BatchMoved, DecodeError, MetaRecord, Moved, NextRun, Record};

use crate::golden_records::golden;
use crate::jobs;

fn bytes_of(record: &Record) -> Vec<u8> {
    let mut out = Vec::new();
    record.encode(&mut out);
    out
}

fn one(bytes: &[u8]) -> Result<Record, DecodeError> {
    let mut records = Record::all(bytes);
    let first = records.next().expect("there are bytes");
    assert!(
        first.is_err() || records.next().is_none(),
        "more than one record"
    );
    first
}

fn any_record() -> impl Strategy<Value = Record> {
    prop_oneof![
        4 => jobs::any_job().prop_map(Record::Put).boxed(),
        2 => any_moved().prop_map(Record::Moved).boxed(),
        1 => (0..1u64 << 63).prop_map(|id| Record::Gone(JobId(id))),
        1 => jobs::any_queue().prop_map(Record::QueueSet),
        1 => any::<u32>().prop_map(|id| Record::QueueGone(QueueId(id))),
        1 => any_namespace().prop_map(|image| Record::Namespace(Box::new(image))),
        1 => (1..4_096u16).prop_map(|id| Record::NamespaceGone(Namespace(id))),
        1 => any_head().prop_map(Record::Meta),
        1 => any_day().prop_map(Record::Day),
        2 => jobs::any_ended().prop_map(|row| Record::Ended(Box::new(row))).boxed(),
        2 => jobs::any_batch().prop_map(|batch| Record::Batch(Box::new(batch))).boxed(),
        1 => jobs::any_batch().prop_map(|b| Record::BatchMoved(BatchMoved { batch: b.id, progress: b.progress })).boxed(),
        2 => jobs::any_schedule().prop_map(|schedule| Record::Schedule(Box::new(schedule))).boxed(),
        1 => jobs::any_schedule().prop_map(|s| Record::NextRun(next_run(&s))).boxed(),
    ]
}

fn any_namespace() -> impl Strategy<Value = NamespaceImage> {
    let limits = prop::option::of(any::<u64>()).prop_map(|jobs_max| NamespaceLimits {
        jobs_max,
        ..NamespaceLimits::default()
    });
    let name = "[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}";
    (1..4_096u16, name, limits).prop_map(|(id, name, limits)| NamespaceImage {
        id: Namespace(id),
        name: name.into(),
        limits,
        protocols: Vec::new(),
    })
}

pub(crate) fn next_run(schedule: &Schedule) -> NextRun {
    let Schedule {
        id,
        next_at,
        runs_left,
        last,
        ..
    } = schedule.clone();
    NextRun {
        schedule: id,
        next_at,
        runs_left,
        last,
    }
}

fn any_moved() -> impl Strategy<Value = Moved> {
    jobs::any_job().prop_map(|job| {
        let extra = job.extra.unwrap_or_default();
        Moved {
            job: job.id,
            state: job.state,
            rank: job.rank,
            ready_at: job.ready_at,
            attempts: job.attempts,
            failures: job.failures,
            cycle: extra.cycle,
            failure: extra.failure,
            progress: extra.progress,
            ran: extra.member.is_some_and(|member| member.ran),
            updated_at: extra.track.map(|track| track.updated_at),
            losses: extra.losses,
            past: extra.attempts,
        }
    })
}

fn any_head() -> impl Strategy<Value = MetaRecord> {
    let count = || 0..1u64 << 63;
    let protocols = prop::collection::btree_map(any::<u8>(), any_totals(), 0..4);
    let clock = prop_oneof![
        Just(Clock::default()),
        (any::<i64>(), any::<u64>(), any::<i64>(), any::<u64>()).prop_map(
            |(skew_ms, boot, ahead_ms, at)| Clock {
                skew_ms,
                boot,
                ahead_ms,
                at: Timestamp(at)
            }
        ),
    ];
    (
        (count(), count(), count()),
        any_totals(),
        protocols,
        (any::<bool>(), clock),
    )
        .prop_map(
            |((next_job, reserved, boot_count), totals, protocols, (clean, clock))| {
                let protocols = protocols
                    .into_iter()
                    .map(|(protocol, totals)| (Protocol(protocol), totals))
                    .collect();
                MetaRecord {
                    meta: EngineMeta {
                        next_job,
                        reserved,
                        boot_count,
                        clock,
                        totals,
                        protocols,
                    },
                    clean,
                }
            },
        )
}

fn any_day() -> impl Strategy<Value = DayBegin> {
    let count = 0..1u64 << 63;
    (1..1u64 << 63, count, any_totals()).prop_map(|(number, day, totals)| DayBegin {
        number,
        day,
        totals,
    })
}

fn any_totals() -> impl Strategy<Value = Totals> {
    prop::array::uniform14(0..1u64 << 63).prop_map(|n| Totals {
        pushed: n[0],
        taken: n[1],
        succeeded: n[2],
        failed: n[3],
        buried: n[4],
        lost: n[5],
        expired: n[6],
        cancelled: n[7],
        released: n[8],
        retried: n[9],
        purged: n[10],
        timed_out: n[11],
        workers_lost: n[12],
        misfits: n[13],
    })
}

proptest! {
    #[test]
    fn written_records_read_back(records in prop::collection::vec(any_record(), 0..20)) {
        let bytes = records.iter().flat_map(bytes_of).collect::<Vec<u8>>();
        let read: Result<Vec<_>, _> = Record::all(&bytes).collect();
        prop_assert_eq!(read, Ok(records));
    }

    #[test]
    fn a_truncated_record_is_refused(record in any_record(), at in any::<prop::sample::Index>()) {
        let bytes = bytes_of(&record);
        let at = at.index(bytes.len());
        prop_assert!(at == 0 || one(&bytes[..at]).is_err(), "{} of {} bytes", at, bytes.len());
    }

    #[test]
    fn noise_is_read_without_harm(noise in prop::collection::vec(any::<u8>(), 0..300), kind in 0u8..14) {
        let bytes: Vec<u8> = std::iter::once(kind).chain(noise).collect();
        for record in Record::all(&bytes).flatten() {
            // A record that can be read can be written, and is the same then.
            prop_assert_eq!(one(&bytes_of(&record)), Ok(record));
        }
    }

    #[test]
    fn a_flipped_bit_does_no_harm(record in any_record(), at in any::<prop::sample::Index>(), bit in 0u32..8) {
        let mut bytes = bytes_of(&record);
        let at = at.index(bytes.len());
        bytes[at] ^= 1u8 << bit;
        Record::all(&bytes).for_each(drop);
    }
}

#[test]
fn connection_bound_state_is_not_read() {
    let lease = |holder| {
        Lease::new(
            holder,
            Token(3),
            Timestamp(50),
            Timestamp(90),
            OnExpiry::Requeue,
        )
    };
    let extra = Extra {
        progress: Some(Progress {
            numerator: 1,
            denominator: 2,
            text: Bytes::new(),
        }),
        listeners: vec![ClientId(4)],
        ..Extra::default()
    };
    let job = Job {
        attempts: 3,
        extra: Some(Box::new(extra.clone())),
        ..jobs::plain()
    };
    let read = |state: JobState| match one(&bytes_of(&Record::Put(Job {
        state,
        ..job.clone()
    }))) {
        Ok(Record::Put(job)) => job,
        other => panic!("{other:?}"),
    };

    let bound = read(JobState::Leased(Box::new(lease(Holder::Connection(
        ClientId(9),
    )))));
    assert_eq!(
        (&bound.state, bound.attempts, &bound.extra),
        (&JobState::Ready, 2, &None)
    );

    let named = read(JobState::Leased(Box::new(lease(Holder::Named(
        b"w1"[..].into(),
    )))));
    assert_eq!(named.lease(), Some(&lease(Holder::Named(b"w1"[..].into()))));
    let kept = Extra {
        listeners: Vec::new(),
        ..extra
    };
    assert_eq!((named.attempts, named.extra.as_deref()), (3, Some(&kept)));
}

// ---- golden files: written once, readable for ever ------------------------------------------------------------------

#[test]
fn golden_records_are_read_and_written_unchanged() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    for (name, record) in golden() {
        let path = folder.join(format!("{name}.hex"));
        if std::env::var_os("WINDLASS_GOLDEN").is_some() && !path.exists() {
            let hex = bytes_of(&record)
                .chunks(32)
                .fold(String::new(), |mut text, line| {
                    line.iter()
                        .for_each(|byte| write!(text, "{byte:02x}").unwrap());
                    text + "\n"
                });
            std::fs::write(&path, hex).unwrap();
        }
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        let bytes = unhex(&text);
        assert_eq!(
            one(&bytes).as_ref(),
            Ok(&record),
            "{name}: no longer read as it was written"
        );
        assert_eq!(
            bytes_of(&record),
            bytes,
            "{name}: written differently; a new field must come last, and take no byte while it is not set"
        );
    }
    let files = std::fs::read_dir(&folder)
        .unwrap()
        .filter(|f| f.as_ref().unwrap().path().extension() == Some("hex".as_ref()));
    assert_eq!(
        files.count(),
        golden().len(),
        "a golden file that nothing reads"
    );
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}
