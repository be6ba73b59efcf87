//! Records: written records read back, noise is refused, and all old formats stay readable.

use std::fmt::Write as _;
use std::path::Path;

use bytes::Bytes;

use proptest::prelude::*;
use windlass_engine::{
    Backoff, Batch, BatchProgress, Clash, ClientId, Clock, Codec, Cron, Cycle, DayBegin, EngineMeta, Expiry, Extra,
    Failure, Holder, Job, JobId, JobState, KeyUntil, LastRun, Lease, Member, NewJob, OnExpiry, Payload, Priority,
    Progress, Protocol, Protocols, QueueId, QueueImage, QueueKind, QueueRules, Recurrence, Retry, Role, RunEnd,
    Schedule, Stage, Throttle, Timestamp, Token, Totals, Track, Unique, Zone,
};
use windlass_store::{BatchMoved, DecodeError, MetaRecord, Moved, NextRun, Record};

use crate::jobs;

fn bytes_of(record: &Record) -> Vec<u8> {
    let mut out = Vec::new();
    record.encode(&mut out);
    out
}

fn one(bytes: &[u8]) -> Result<Record, DecodeError> {
    let mut records = Record::all(bytes);
    let first = records.next().expect("there are bytes");
    assert!(first.is_err() || records.next().is_none(), "more than one record");
    first
}

fn any_record() -> impl Strategy<Value = Record> {
    prop_oneof![
        4 => jobs::any_job().prop_map(Record::Put).boxed(),
        2 => any_moved().prop_map(Record::Moved).boxed(),
        1 => (0..1u64 << 63).prop_map(|id| Record::Gone(JobId(id))),
        1 => jobs::any_queue().prop_map(Record::QueueSet),
        1 => any::<u32>().prop_map(|id| Record::QueueGone(QueueId(id))),
        1 => any_head().prop_map(Record::Meta),
        1 => any_day().prop_map(Record::Day),
        2 => jobs::any_batch().prop_map(|batch| Record::Batch(Box::new(batch))).boxed(),
        1 => jobs::any_batch().prop_map(|b| Record::BatchMoved(BatchMoved { batch: b.id, progress: b.progress })).boxed(),
        2 => jobs::any_schedule().prop_map(|schedule| Record::Schedule(Box::new(schedule))).boxed(),
        1 => jobs::any_schedule().prop_map(|s| Record::NextRun(next_run(&s))).boxed(),
    ]
}

const fn next_run(schedule: &Schedule) -> NextRun {
    let Schedule { id, next_at, runs_left, last, .. } = *schedule;
    NextRun { schedule: id, next_at, runs_left, last }
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
        }
    })
}

fn any_head() -> impl Strategy<Value = MetaRecord> {
    let count = || 0..1u64 << 63;
    let protocols = prop::collection::btree_map(any::<u8>(), any_totals(), 0..4);
    let clock = prop_oneof![
        Just(Clock::default()),
        (any::<i64>(), any::<u64>(), any::<i64>(), any::<u64>()).prop_map(|(skew_ms, boot, ahead_ms, at)| Clock {
            skew_ms,
            boot,
            ahead_ms,
            at: Timestamp(at)
        }),
    ];
    ((count(), count(), count()), any_totals(), protocols, (any::<bool>(), clock)).prop_map(
        |((next_job, reserved, boot_count), totals, protocols, (clean, clock))| {
            let protocols = protocols.into_iter().map(|(protocol, totals)| (Protocol(protocol), totals)).collect();
            MetaRecord { meta: EngineMeta { next_job, reserved, boot_count, clock, totals, protocols }, clean }
        },
    )
}

fn any_day() -> impl Strategy<Value = DayBegin> {
    let count = 0..1u64 << 63;
    (1..1u64 << 63, count, any_totals()).prop_map(|(number, day, totals)| DayBegin { number, day, totals })
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
fn a_total_of_one_protocol_is_written_without_one_of_all() {
    let misfits = |misfits| Totals { misfits, ..Totals::default() };
    for (all, of_one) in [(0, 0), (0, 3), (3, 0), (3, 3)] {
        let protocols = vec![(Protocol::FAKTORY, misfits(of_one))];
        let meta = EngineMeta { totals: misfits(all), protocols, ..EngineMeta::default() };
        let record = Record::Meta(MetaRecord { meta, clean: false });
        assert_eq!(one(&bytes_of(&record)), Ok(record), "{all} of all, {of_one} of one");
    }
}

#[test]
fn connection_bound_state_is_not_written() {
    let lease = |holder| Lease::new(holder, Token(3), Timestamp(50), Timestamp(90), OnExpiry::Requeue);
    let extra = Extra {
        progress: Some(Progress { numerator: 1, denominator: 2, text: Bytes::new() }),
        listeners: vec![ClientId(4)],
        ..Extra::default()
    };
    let job = Job { attempts: 3, extra: Some(Box::new(extra.clone())), ..jobs::plain() };
    let read = |state: JobState| match one(&bytes_of(&Record::Put(Job { state, ..job.clone() }))) {
        Ok(Record::Put(job)) => job,
        other => panic!("{other:?}"),
    };

    let bound = read(JobState::Leased(Box::new(lease(Holder::Connection(ClientId(9))))));
    assert_eq!((&bound.state, bound.attempts, &bound.extra), (&JobState::Ready, 2, &None));

    let named = read(JobState::Leased(Box::new(lease(Holder::Named(b"w1"[..].into())))));
    assert_eq!(named.lease(), Some(&lease(Holder::Named(b"w1"[..].into()))));
    let kept = Extra { listeners: Vec::new(), ..extra };
    assert_eq!((named.attempts, named.extra.as_deref()), (3, Some(&kept)));
}

#[test]
fn values_that_the_engine_never_writes_are_refused() {
    let job = |bytes: &[u8]| one(&[&[1, 5, 0, 0, 2, 5], bytes].concat());
    let table: [(&str, Result<Record, DecodeError>); 11] = [
        ("an unknown kind", one(&[77])),
        ("kind 0", one(&[0, 0, 0])),
        ("priority 0", one(&[1, 5, 0, 0, 2, 0, 0])),
        ("priority 10", one(&[1, 5, 0, 0, 2, 10, 0])),
        ("place 7", job(&[7])),
        ("a worker of a protocol without a number", job(&[1, 0, 9, 0, 0, 3, 0, 1, 0, 0, 0, 0, 0])),
        ("rank 0", job(&[0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 1, 0, 0])),
        ("bits of a later version", one(&[1, 5, 0, 0x80, 0x80, 1, 2, 5, 0])),
        ("no run left", one(&[8, 5, 1, 1])),
        ("a schedule's bits of a later version", one(&[7, 5, 0x80, 0x40, 2, 5, 0])),
        ("a body that is not there", job(&[0, 0, 1, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f])),
    ];
    for (name, read) in table {
        assert!(read.is_err(), "{name}: {read:?}");
    }
    assert!(job(&[0, 0, 1, 0, 0, 0, 0, 0, 2, b'h', b'i']).is_ok(), "the plainest job");
}

// ---- golden files: written once, readable for ever ------------------------------------------------------------------

/// Every record in the golden files, with the name of its file.
fn golden() -> Vec<(&'static str, Record)> {
    let failure = Failure {
        at: Timestamp(1_700_000_000_123),
        first_at: Timestamp(1_700_000_000_123),
        next_at: None,
        kind: Bytes::from_static(b"IOError"),
        message: Bytes::from_static(b"no such file \xff"),
        backtrace: vec![Bytes::from_static(b"a.rs:1"), Bytes::new(), Bytes::from_static(b"b.rs:22")],
    };
    let lease = Lease::new(
        Holder::Named(b"worker-7"[..].into()),
        Token(9),
        Timestamp(1_700_000_000_000),
        Timestamp::NEVER,
        OnExpiry::Front,
    );
    let full = Job {
        id: JobId(1 << 40),
        queue: QueueId(70_000),
        priority: Priority::MAX,
        rank: (1 << 62) - 12,
        state: JobState::Leased(Box::new(lease.clone())),
        payload: Payload::copy(Some(b"unique"), b"jid-1", b"{\"n\":1}\0\xff"),
        attempts: 9,
        failures: 2,
        retry: Retry { failures_max: -1, losses_max: 3, backoff: Backoff::Doubling(2_000) },
        extra: Some(Box::new(Extra {
            losses: 0,
            meta: Bytes::from_static(b"meta"),
            expires: Expiry::At(Timestamp(1_800_000_000_000)),
            key_until: KeyUntil::StartOr(Timestamp(1_750_000_000_000)),
            cycle: Some(Cycle { priority: 41, boost: 3 }),
            failure: Some(Box::new(failure.clone())),
            progress: Some(Progress { numerator: 3, denominator: 4, text: Bytes::from_static(b"most") }),
            result_keep_ms: 60_000,
            lease_ms: Some(1_800_000),
            result: Some(Bytes::from_static(b"so far")),
            result_by: None,
            track: None,
            member: None,
            collector: Bytes::new(),
            taken_back: false,
            listeners: Vec::new(),
        })),
        ..jobs::plain()
    };
    let at = Timestamp(1_700_000_100_000);
    let away = Lease::new(Holder::Away(Protocol::EVENTMQ), Token(9), at, at.after_ms(5_000), OnExpiry::Requeue);
    let placed = |state| Record::Put(Job { state, ..jobs::plain() });
    let moved = Moved {
        job: JobId(8),
        state: JobState::Retrying(at),
        rank: 1 << 62,
        ready_at: at,
        attempts: 2,
        failures: 1,
        cycle: None,
        failure: None,
        progress: None,
        ran: false,
        updated_at: None,
        losses: 0,
    };
    let queue = QueueImage {
        id: QueueId(3),
        name: Bytes::from_static(b"resize"),
        kind: QueueKind::Work,
        known: Protocols::ALL,
        paused: Protocols::ALL,
        paused_at: None,
        jobs_max: [None, Some(0), Some(u32::MAX), None, Some(7), None, None, None, None],
        jobs_max_of: None,
        throttle: None,
        rules: None,
        serial: 1,
    };
    let throttle = |ms| Throttle { leased_max: Some(u32::MAX), per_worker_max: Some(300), timeout_ms: Some(ms) };
    let retry = Retry { failures_max: -1, losses_max: 300, backoff: Backoff::Fixed(1_000) };
    let rules = QueueRules { codec: Codec::Base64, retry: Some(retry), body_bytes_max: Some(1 << 20) };
    let json = QueueRules { codec: Codec::Json, ..QueueRules::default() };
    let cron = Cron {
        seconds: 1,
        minutes: 1 << 59,
        hours: 1 << 23,
        days: 1 << 31 | 1,
        months: 1 << 12,
        weekdays: Cron::weekday(6) | 1 << 41,
        either_day: true,
    };
    let full_schedule = Schedule {
        id: JobId(1 << 40),
        key: Some(Bytes::from_static(b"nightly")),
        job: NewJob {
            kind: QueueKind::Cycle,
            priority: Priority::MIN,
            front: true,
            name: Some(Bytes::from_static(b"jid-1")),
            name_unique: true,
            meta: Bytes::from_static(b"meta"),
            unique: Some(Unique {
                key: Bytes::from_static(b"unique"),
                clash: Clash::Keep,
                until: KeyUntil::StartOr(Timestamp(60_000)),
            }),
            not_before: Some(Timestamp(1_000)),
            expires: Expiry::At(Timestamp(90_000)),
            retry: Retry { failures_max: 25, losses_max: 3, backoff: Backoff::Faktory },
            result_keep_ms: 60_000,
            lease_ms: Some(1_800_000),
            ..NewJob::new(Protocol::EVENTMQ, Bytes::from_static(b"resize"), Bytes::from_static(b"{\"n\":1}\0\xff"))
        },
        recurrence: Recurrence::Cron(cron),
        anchor: at,
        next_at: Timestamp::NEVER,
        runs_left: Some(3),
        last: None,
    };
    let plain_schedule = Schedule {
        id: JobId(9),
        key: None,
        job: NewJob::new(Protocol::GEARMAN, Bytes::from_static(b"resize"), Bytes::from_static(b"cat.png")),
        recurrence: Recurrence::Every { interval_ms: 60_000 },
        anchor: at,
        next_at: at.after_ms(60_000),
        runs_left: None,
        last: None,
    };
    let berlin = Zone::named("Europe/Berlin").unwrap();
    let zoned_schedule = Schedule { recurrence: Recurrence::Zoned(cron, berlin), ..plain_schedule.clone() };
    let to_the_second = Cron { seconds: 1 | 1 << 59, ..Cron::ALWAYS };
    let to_the_second = Schedule { recurrence: Recurrence::Cron(to_the_second), ..plain_schedule.clone() };
    let last = Some(LastRun { at, job: JobId(8), end: RunEnd::Done });
    let ran_schedule = Schedule { last, ..plain_schedule.clone() };
    let last = Some(LastRun { at, job: JobId(1 << 40), end: RunEnd::Running });
    let running = NextRun { last, ..next_run(&full_schedule) };
    let plain_batch = jobs::plain_batch(JobId(9), "b-1", at);
    let over = BatchProgress {
        committed: true,
        total: 3,
        ran: 3,
        succeeded: 3,
        complete: Stage::Passed,
        success: Stage::Succeeded,
        ..BatchProgress::new(at)
    };
    let held = BatchProgress { success: Stage::Waiting, held_until: Some(Timestamp(1_700_000_900_000)), ..over };
    let full_batch = Batch {
        id: JobId(1 << 40),
        name: Bytes::from_static(b"b-2"),
        parent: Some(JobId(300)),
        parent_name: Some(Bytes::from_static(b"b-1")),
        depth: 1,
        about: Bytes::from_static(b"resize all"),
        meta: Bytes::from_static(b"meta"),
        complete: Some(Box::new(full_schedule.job.clone())),
        success: Some(Box::new(plain_schedule.job.clone())),
        progress: BatchProgress {
            committed: true,
            total: 300,
            ran: 200,
            succeeded: 100,
            incomplete: 2,
            unsuccessful: 3,
            ..BatchProgress::new(at)
        },
        ..plain_batch.clone()
    };
    let member =
        Extra { member: Some(Member { batch: JobId(300), role: Role::Success, ran: true }), ..Extra::default() };
    let moved_ran = moved.clone();
    let result = Extra {
        result_keep_ms: 60_000,
        result: Some(Bytes::from_static(b"{\"value\": 1}")),
        result_by: Some(Protocol::EVENTMQ),
        ..Extra::default()
    };
    let lost = Extra { losses: 300, ..Extra::default() };
    let by = Expiry::By(Timestamp(1_700_000_090_000));
    let spanned = Extra { expires: by, losses: 1, ..Extra::default() };
    let collected = Extra { collector: Bytes::from_static(b"client-1"), ..Extra::default() };
    let spanned_schedule = Schedule {
        job: NewJob { expires: Expiry::By(Timestamp(90_000)), track_ms: 1, ..plain_schedule.job.clone() },
        ..plain_schedule.clone()
    };
    let tracked = Extra { track: Some(Track { keep_ms: 1_800_000, updated_at: at }), ..Extra::default() };
    let tracked_schedule =
        Schedule { job: NewJob { track_ms: 1_800_000, ..plain_schedule.job.clone() }, ..plain_schedule.clone() };
    let silent_schedule =
        Schedule { job: NewJob { retry_default: true, ..plain_schedule.job.clone() }, ..plain_schedule.clone() };
    let again = Failure { first_at: Timestamp(1_600_000_000_000), ..failure.clone() };
    let retried = Failure { next_at: Some(Timestamp(1_700_000_015_000)), ..failure.clone() };
    let retried_extra = Extra { failure: Some(Box::new(retried.clone())), ..Extra::default() };
    let meta = EngineMeta {
        protocols: vec![
            (Protocol::FAKTORY, totals()),
            (Protocol::EVENTMQ, Totals { retried: 300, ..Totals::default() }),
        ],
        ..old_meta()
    };
    let started = MetaRecord { meta: EngineMeta { boot_count: 300, ..meta.clone() }, clean: true };
    let misfits = MetaRecord {
        meta: EngineMeta { totals: Totals { misfits: 300, ..meta.totals }, ..meta.clone() },
        clean: false,
    };
    let clock = Clock { skew_ms: -3_600_000, boot: 0x0123_4567_89ab_cdef, ahead_ms: 1_700_000_000_000, at };
    let clocked = MetaRecord { meta: EngineMeta { clock, ..old_meta() }, clean: false };
    vec![
        ("put_plain", Record::Put(jobs::plain())),
        ("put_full", Record::Put(full)),
        ("put_scheduled", placed(JobState::Scheduled(at))),
        ("put_away", placed(JobState::Leased(Box::new(away)))),
        ("put_dead", placed(JobState::Dead(at))),
        ("put_shelved", placed(JobState::Parked)),
        ("put_done", placed(JobState::Done(at))),
        ("moved_retrying", Record::Moved(moved.clone())),
        (
            "moved_full",
            Record::Moved(Moved {
                state: JobState::Leased(Box::new(lease)),
                cycle: Some(Cycle { priority: 0, boost: 63 }),
                failure: Some(Box::new(failure)),
                progress: Some(Progress::default()),
                ..moved
            }),
        ),
        ("gone", Record::Gone(JobId(300))),
        ("queue_set", Record::QueueSet(queue.clone())),
        ("queue_set_paused_at", Record::QueueSet(QueueImage { paused_at: Some(at), ..queue.clone() })),
        (
            "queue_set_isolated",
            Record::QueueSet(QueueImage {
                known: Protocols::of(Some(Protocol::GEARMAN)).and(Protocols::of(Some(Protocol::FAKTORY))),
                paused: Protocols::of(Some(Protocol::FAKTORY)),
                jobs_max_of: Some(Protocol::GEARMAN),
                ..queue.clone()
            }),
        ),
        (
            "queue_set_cycle",
            Record::QueueSet(QueueImage {
                kind: QueueKind::Cycle,
                known: Protocols::NONE,
                paused: Protocols::NONE,
                jobs_max: [None; Priority::COUNT],
                serial: 99,
                ..queue.clone()
            }),
        ),
        ("queue_set_throttled", Record::QueueSet(QueueImage { throttle: Some(throttle(60_000)), ..queue.clone() })),
        (
            "queue_set_throttled_in_part",
            Record::QueueSet(QueueImage {
                throttle: Some(Throttle { leased_max: None, timeout_ms: None, ..throttle(0) }),
                ..queue.clone()
            }),
        ),
        ("queue_set_ruled_again", Record::QueueSet(QueueImage { rules: Some(Box::new(rules)), ..queue.clone() })),
        (
            "queue_set_ruled_in_part",
            Record::QueueSet(QueueImage { rules: Some(Box::new(json)), throttle: Some(throttle(1)), ..queue }),
        ),
        ("schedule_plain", Record::Schedule(Box::new(plain_schedule.clone()))),
        ("schedule_full", Record::Schedule(Box::new(full_schedule.clone()))),
        ("next_run", Record::NextRun(next_run(&plain_schedule))),
        ("next_run_counted", Record::NextRun(next_run(&full_schedule))),
        ("batch_plain", Record::Batch(Box::new(plain_batch.clone()))),
        ("batch_full", Record::Batch(Box::new(full_batch.clone()))),
        ("batch_moved", Record::BatchMoved(BatchMoved { batch: JobId(1 << 40), progress: full_batch.progress })),
        ("batch_moved_held", Record::BatchMoved(BatchMoved { batch: JobId(9), progress: held })),
        ("batch_moved_over", Record::BatchMoved(BatchMoved { batch: JobId(9), progress: over })),
        ("put_member", Record::Put(Job { extra: Some(Box::new(member)), ..jobs::plain() })),
        ("moved_ran", Record::Moved(Moved { ran: true, ..moved_ran.clone() })),
        ("put_result", Record::Put(Job { extra: Some(Box::new(result)), state: JobState::Done(at), ..jobs::plain() })),
        ("put_tracked", Record::Put(Job { extra: Some(Box::new(tracked)), ..jobs::plain() })),
        ("moved_tracked", Record::Moved(Moved { updated_at: Some(at), ..moved_ran.clone() })),
        ("put_lost", Record::Put(Job { extra: Some(Box::new(lost)), ..jobs::plain() })),
        ("moved_lost", Record::Moved(Moved { losses: 4, ..moved_ran.clone() })),
        ("schedule_tracked", Record::Schedule(Box::new(tracked_schedule))),
        ("moved_failed_again", Record::Moved(Moved { failure: Some(Box::new(again)), ..moved_ran.clone() })),
        ("moved_to_be_retried", Record::Moved(Moved { failure: Some(Box::new(retried)), ..moved_ran })),
        ("put_to_be_retried", Record::Put(Job { extra: Some(Box::new(retried_extra)), ..jobs::plain() })),
        ("queue_gone", Record::QueueGone(QueueId(3))),
        ("day", Record::Day(DayBegin { number: 300, day: 20_000, totals: totals() })),
        ("head_plain", Record::Meta(MetaRecord { meta: old_meta(), clean: false })),
        ("head_clean", Record::Meta(MetaRecord { meta: meta.clone(), clean: true })),
        ("head_started", Record::Meta(started)),
        ("head_misfits", Record::Meta(misfits)),
        ("head_clock", Record::Meta(clocked)),
        ("schedule_zoned", Record::Schedule(Box::new(zoned_schedule))),
        ("schedule_seconds", Record::Schedule(Box::new(to_the_second))),
        ("schedule_retry_default", Record::Schedule(Box::new(silent_schedule))),
        ("schedule_ran", Record::Schedule(Box::new(ran_schedule))),
        ("next_run_running", Record::NextRun(running)),
        ("put_spanned", Record::Put(Job { extra: Some(Box::new(spanned)), ..jobs::plain() })),
        ("put_collected", Record::Put(Job { extra: Some(Box::new(collected)), ..jobs::plain() })),
        ("schedule_spanned", Record::Schedule(Box::new(spanned_schedule))),
    ]
}

fn totals() -> Totals {
    Totals {
        pushed: 10,
        taken: 9,
        succeeded: 5,
        failed: 2,
        buried: 1,
        lost: 1,
        expired: 3,
        cancelled: 4,
        released: 6,
        retried: 7,
        purged: 8,
        timed_out: 11,
        workers_lost: 12,
        misfits: 0,
    }
}

/// Without totals of single protocols.
fn old_meta() -> EngineMeta {
    let (released, retried, purged, timed_out, workers_lost) = (0, 0, 0, 0, 0);
    let totals = Totals { released, retried, purged, timed_out, workers_lost, ..totals() };
    EngineMeta { next_job: 12, reserved: 65_548, totals, ..EngineMeta::default() }
}

/// Records that are written differently today.
fn golden_of_old() -> Vec<(&'static str, Record)> {
    // It also isolated the protocols from one another.
    let is_ruled = |(name, _): &(&str, Record)| *name == "queue_set_ruled_again";
    let (_, ruled) = golden().into_iter().find(is_ruled).unwrap();
    vec![("queue_set_ruled", ruled)]
}

#[test]
fn golden_records_are_read_and_written_unchanged() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    for (name, record) in golden_of_old() {
        let text = std::fs::read_to_string(folder.join(format!("{name}.hex"))).unwrap();
        let bytes = unhex(&text);
        assert_eq!(one(&bytes).as_ref(), Ok(&record), "{name}: no longer read as it was written");
        assert_ne!(bytes_of(&record), bytes, "{name}: written so again");
    }
    for (name, record) in golden() {
        let path = folder.join(format!("{name}.hex"));
        if std::env::var_os("WINDLASS_GOLDEN").is_some() && !path.exists() {
            let hex = bytes_of(&record).chunks(32).fold(String::new(), |mut text, line| {
                line.iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
                text + "\n"
            });
            std::fs::write(&path, hex).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        let bytes = unhex(&text);
        assert_eq!(one(&bytes).as_ref(), Ok(&record), "{name}: no longer read as it was written");
        assert_eq!(bytes_of(&record), bytes, "{name}: written differently; a record that changes needs a new kind");
    }
    let files =
        std::fs::read_dir(&folder).unwrap().filter(|f| f.as_ref().unwrap().path().extension() == Some("hex".as_ref()));
    assert_eq!(files.count(), golden().len() + golden_of_old().len(), "a golden file that nothing reads");
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}
