//! The records of the golden files.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use windlass_engine::{
    Attempt, AttemptEnd, AttemptError, Backoff, Batch, BatchProgress, Clash, Clock, Coalesce,
    Coalesced, Codec, Cron, Cycle, DayBegin, Ended, EndedWorker, Ending, EngineMeta, Excerpt,
    Expiry, Extra, Failure, HistoryRules, Holder, Job, JobId, JobState, KeySource, KeyUntil,
    LastRun, Lease, Member, Namespace, NamespaceImage, NamespaceLimits, NewJob, OnExpiry, Origin,
    OwnPolicy, Payload, Policy, Priority, Progress, Protocol, Protocols, PushRate, QueueId,
    QueueImage, QueueKind, QueueRules, Rate, Recurrence, Retry, Role, RunEnd, SavedRates, Schedule,
    Stage, Throttle, Timestamp, Token, Totals, Track, Unique, Zone,
};
use windlass_store::{BatchMoved, MetaRecord, Moved, NextRun, Record};

use crate::jobs;
use crate::record::next_run;

/// Every record in the golden files, with the file name.
pub(crate) fn golden() -> Vec<(&'static str, Record)> {
    let failure = Failure {
        at: Timestamp(1_700_000_000_123),
        first_at: Timestamp(1_700_000_000_123),
        next_at: None,
        kind: Bytes::from_static(b"IOError"),
        message: Bytes::from_static(b"no such file \xff"),
        backtrace: vec![
            Bytes::from_static(b"a.rs:1"),
            Bytes::new(),
            Bytes::from_static(b"b.rs:22"),
        ],
    };
    let origin = Origin {
        pushed_at: Timestamp(1_700_000_000_500),
        due_at: Some(Timestamp(1_700_000_001_000)),
        producer: "10.0.0.1:7".into(),
        schedule: Some(JobId(5)),
        again_of: None,
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
        retry: Retry {
            failures_max: -1,
            losses_max: 3,
            backoff: Backoff::Doubling(2_000),
        },
        extra: Some(Box::new(Extra {
            losses: 0,
            meta: Bytes::from_static(b"meta"),
            expires: Expiry::At(Timestamp(1_800_000_000_000)),
            key_until: KeyUntil::StartOr(Timestamp(1_750_000_000_000)),
            cycle: Some(Cycle {
                priority: 41,
                boost: 3,
            }),
            failure: Some(Box::new(failure.clone())),
            attempts: None,
            progress: Some(Progress {
                numerator: 3,
                denominator: 4,
                text: Bytes::from_static(b"most"),
            }),
            result_keep_ms: 60_000,
            lease_ms: Some(1_800_000),
            result: Some(Bytes::from_static(b"so far")),
            result_by: None,
            track: None,
            member: None,
            collector: Bytes::new(),
            taken_back: false,
            coalesced: None,
            listeners: Vec::new(),
            origin: None,
            output: None,
        })),
        ..jobs::plain()
    };
    let at = Timestamp(1_700_000_100_000);
    let away = Lease::new(
        Holder::Away(Protocol::EVENTMQ),
        Token(9),
        at,
        at.after_ms(5_000),
        OnExpiry::Requeue,
    );
    let placed = |state| {
        Record::Put(Job {
            state,
            ..jobs::plain()
        })
    };
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
        past: None,
    };
    let queue = QueueImage {
        id: QueueId(3),
        name: Bytes::from_static(b"resize"),
        kind: QueueKind::Work,
        known: Protocols::ALL,
        paused: Protocols::ALL,
        paused_at: None,
        jobs_max: [
            None,
            Some(0),
            Some(u32::MAX),
            None,
            Some(7),
            None,
            None,
            None,
            None,
        ],
        jobs_max_of: None,
        throttle: None,
        rules: None,
        policy: None,
        paused_keys: BTreeSet::new(),
        saved: None,
        serial: 1,
    };
    let throttle = |ms| Throttle {
        leased_max: Some(u32::MAX),
        per_worker_max: Some(300),
        timeout_ms: Some(ms),
        configured: false,
    };
    let retry = Retry {
        failures_max: -1,
        losses_max: 300,
        backoff: Backoff::Fixed(1_000),
    };
    let rules = QueueRules {
        codec: Codec::Base64,
        retry: Some(retry),
        body_bytes_max: Some(1 << 20),
        ..QueueRules::default()
    };
    let json = QueueRules {
        codec: Codec::Json,
        ..QueueRules::default()
    };
    let coalesce = Coalesce {
        by_key: true,
        latest: true,
        quiet_ms: 300,
        at_most_ms: Some(9_000),
        once_more: false,
    };
    let coalescing = QueueRules {
        coalesce: Some(coalesce),
        ..QueueRules::default()
    };
    let rate = |jobs| {
        Some(Rate {
            jobs,
            per_ms: 60_000,
            burst: 20,
        })
    };
    let policy = Policy {
        rate: rate(100),
        key: Some(KeySource::Unique(Some(b':'))),
        key_running_max: Some(2),
        key_rate: rate(u32::MAX),
        key_waiting_max: Some(300),
        fair: true,
        weights: [("gold".into(), 5)].into(),
        ordered: true,
    };
    let own = OwnPolicy {
        policy: Arc::new(policy),
        by: "ann".into(),
        at,
    };
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
            retry: Retry {
                failures_max: 25,
                losses_max: 3,
                backoff: Backoff::Faktory,
            },
            result_keep_ms: 60_000,
            lease_ms: Some(1_800_000),
            ..NewJob::new(
                Protocol::EVENTMQ,
                Bytes::from_static(b"resize"),
                Bytes::from_static(b"{\"n\":1}\0\xff"),
            )
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
        job: NewJob::new(
            Protocol::GEARMAN,
            Bytes::from_static(b"resize"),
            Bytes::from_static(b"cat.png"),
        ),
        recurrence: Recurrence::Every {
            interval_ms: 60_000,
        },
        anchor: at,
        next_at: at.after_ms(60_000),
        runs_left: None,
        last: None,
    };
    let berlin = Zone::named("Europe/Berlin").unwrap();
    let zoned_schedule = Schedule {
        recurrence: Recurrence::Zoned(cron, berlin),
        ..plain_schedule.clone()
    };
    let to_the_second = Cron {
        seconds: 1 | 1 << 59,
        ..Cron::ALWAYS
    };
    let to_the_second = Schedule {
        recurrence: Recurrence::Cron(to_the_second),
        ..plain_schedule.clone()
    };
    let run = LastRun {
        at,
        job: JobId(8),
        end: RunEnd::Done,
        earlier: Vec::new(),
    };
    let ran_schedule = Schedule {
        last: Some(run.clone()),
        ..plain_schedule.clone()
    };
    let run = LastRun {
        job: JobId(1 << 40),
        end: RunEnd::Running,
        ..run
    };
    let running = NextRun {
        last: Some(run.clone()),
        ..next_run(&full_schedule)
    };
    let run = LastRun {
        earlier: vec![JobId(3), JobId(1 << 39)],
        ..run
    };
    let behind = NextRun {
        last: Some(run),
        ..next_run(&plain_schedule)
    };
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
    let held = BatchProgress {
        success: Stage::Waiting,
        held_until: Some(Timestamp(1_700_000_900_000)),
        ..over
    };
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
    let member = Extra {
        member: Some(Member {
            batch: JobId(300),
            role: Role::Success,
            ran: true,
        }),
        ..Extra::default()
    };
    let (moved_ran, moved_tried) = (moved.clone(), moved.clone());
    let result = Extra {
        result_keep_ms: 60_000,
        result: Some(Bytes::from_static(b"{\"value\": 1}")),
        result_by: Some(Protocol::EVENTMQ),
        ..Extra::default()
    };
    let lost = Extra {
        losses: 300,
        ..Extra::default()
    };
    let by = Expiry::By(Timestamp(1_700_000_090_000));
    let spanned = Extra {
        expires: by,
        losses: 1,
        ..Extra::default()
    };
    let coalesced = Coalesced {
        since: at,
        submits: 300,
        attempts: 2,
        behind: Some(JobId(1 << 40)),
        joined: false,
    };
    let joined = Coalesced {
        joined: true,
        ..coalesced
    };
    let [coalesced, joined] = [coalesced, joined].map(|it| Extra {
        coalesced: Some(Box::new(it)),
        ..Extra::default()
    });
    let collected = Extra {
        collector: Bytes::from_static(b"client-1"),
        ..Extra::default()
    };
    let spanned_schedule = Schedule {
        job: NewJob {
            expires: Expiry::By(Timestamp(90_000)),
            track_ms: 1,
            ..plain_schedule.job.clone()
        },
        ..plain_schedule.clone()
    };
    let tracked = Extra {
        track: Some(Track {
            keep_ms: 1_800_000,
            updated_at: at,
        }),
        ..Extra::default()
    };
    let tracked_schedule = Schedule {
        job: NewJob {
            track_ms: 1_800_000,
            ..plain_schedule.job.clone()
        },
        ..plain_schedule.clone()
    };
    let silent_schedule = Schedule {
        job: NewJob {
            retry_default: true,
            ..plain_schedule.job.clone()
        },
        ..plain_schedule.clone()
    };
    let error = AttemptError {
        kind: b"IOError"[..].into(),
        message: b"no such file \xff"[..].into(),
        backtrace: b"a.rs:1\nb.rs:22"[..].into(),
    };
    let attempt = |number, ms, end, error: Option<&AttemptError>| Attempt {
        number,
        worker: if number == 3 {
            Box::default()
        } else {
            b"worker-7"[..].into()
        },
        began_at: at,
        ended_at: Timestamp(at.0.wrapping_add_signed(ms)),
        end,
        error: error.cloned().map(Arc::new),
    };
    let past = jobs::attempts([
        attempt(1, 300, AttemptEnd::Failed, Some(&error)),
        attempt(2, -1_000, AttemptEnd::TimedOut, Some(&error)),
        attempt(3, 1, AttemptEnd::Lost, None),
        attempt(4, 2, AttemptEnd::Released, None),
        attempt(
            5,
            3,
            AttemptEnd::Unconvertible,
            Some(&AttemptError {
                backtrace: Box::default(),
                ..error.clone()
            }),
        ),
        attempt(6, 4, AttemptEnd::TakenBack, None),
        attempt(300, 70_000, AttemptEnd::Failed, None),
    ]);
    let tried = Extra {
        failure: Some(Box::new(failure.clone())),
        attempts: Some(past.clone()),
        ..Extra::default()
    };
    let again = Failure {
        first_at: Timestamp(1_600_000_000_000),
        ..failure.clone()
    };
    let retried = Failure {
        next_at: Some(Timestamp(1_700_000_015_000)),
        ..failure.clone()
    };
    let retried_extra = Extra {
        failure: Some(Box::new(retried.clone())),
        ..Extra::default()
    };
    let meta = EngineMeta {
        protocols: vec![
            (Protocol::FAKTORY, totals()),
            (
                Protocol::EVENTMQ,
                Totals {
                    retried: 300,
                    ..Totals::default()
                },
            ),
        ],
        ..old_meta()
    };
    let started = MetaRecord {
        meta: EngineMeta {
            boot_count: 300,
            ..meta.clone()
        },
        clean: true,
    };
    let misfits = MetaRecord {
        meta: EngineMeta {
            totals: Totals {
                misfits: 300,
                ..meta.totals
            },
            ..meta.clone()
        },
        clean: false,
    };
    let clock = Clock {
        skew_ms: -3_600_000,
        boot: 0x0123_4567_89ab_cdef,
        ahead_ms: 1_700_000_000_000,
        at,
    };
    let clocked = MetaRecord {
        meta: EngineMeta {
            clock,
            ..old_meta()
        },
        clean: false,
    };
    let ended = Ended {
        job: JobId(17),
        ending: Ending::Dead,
        ended_at: Timestamp(1_700_000_009_000),
        keep_ms: 604_800_000,
        queue: "mail".into(),
        protocol: Protocol::FAKTORY,
        name: "jid-17".into(),
        unique: "order-4".into(),
        kind: "SendMail".into(),
        key: "acme".into(),
        origin: Some(Box::new(origin.clone())),
        batch: Some(JobId(3)),
        submits: 2,
        ready_at: Timestamp(1_700_000_001_000),
        started_at: Some(Timestamp(1_700_000_002_000)),
        worker: Some(Box::new(EndedWorker {
            protocol: Some(Protocol::GEARMAN),
            name: "w1".into(),
            address: "10.0.0.2:9".into(),
        })),
        deliveries: 2,
        failures: 1,
        attempts: None,
        failure: Some(Box::new(failure.clone())),
        progress: None,
        body: Excerpt::of(b"[1]", 9),
        result: None,
        output: Excerpt::of(b"half", 2),
        namespace: Bytes::new(),
    };
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
                cycle: Some(Cycle {
                    priority: 0,
                    boost: 63,
                }),
                failure: Some(Box::new(failure.clone())),
                progress: Some(Progress::default()),
                ..moved
            }),
        ),
        ("gone", Record::Gone(JobId(300))),
        ("queue_set", Record::QueueSet(queue.clone())),
        (
            "queue_set_paused_at",
            Record::QueueSet(QueueImage {
                paused_at: Some(at),
                ..queue.clone()
            }),
        ),
        (
            "queue_set_isolated",
            Record::QueueSet(QueueImage {
                known: Protocols::of(Some(Protocol::GEARMAN))
                    .and(Protocols::of(Some(Protocol::FAKTORY))),
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
        (
            "queue_set_throttled",
            Record::QueueSet(QueueImage {
                throttle: Some(throttle(60_000)),
                ..queue.clone()
            }),
        ),
        (
            "queue_set_throttled_by_the_file",
            Record::QueueSet(QueueImage {
                throttle: Some(Throttle {
                    configured: true,
                    ..throttle(60_000)
                }),
                ..queue.clone()
            }),
        ),
        (
            "queue_set_throttled_in_part",
            Record::QueueSet(QueueImage {
                throttle: Some(Throttle {
                    leased_max: None,
                    timeout_ms: None,
                    ..throttle(0)
                }),
                ..queue.clone()
            }),
        ),
        (
            "queue_set_policy",
            Record::QueueSet(QueueImage {
                policy: Some(Box::new(own.clone())),
                ..queue.clone()
            }),
        ),
        (
            "queue_set_paused_keys",
            Record::QueueSet(QueueImage {
                paused_keys: ["".into(), "acme".into()].into(),
                ..queue.clone()
            }),
        ),
        (
            "queue_set_buckets",
            Record::QueueSet(QueueImage {
                saved: Some(Box::new(SavedRates {
                    full_at: at,
                    keys: vec![("acme".into(), Timestamp(at.0 + 1_500))],
                })),
                ..queue.clone()
            }),
        ),
        (
            "queue_set_ruled_again",
            Record::QueueSet(QueueImage {
                rules: Some(Box::new(rules)),
                ..queue.clone()
            }),
        ),
        (
            "queue_set_coalescing",
            Record::QueueSet(QueueImage {
                rules: Some(Box::new(coalescing)),
                ..queue.clone()
            }),
        ),
        (
            "queue_set_history",
            Record::QueueSet(QueueImage {
                rules: Some(Box::new(QueueRules {
                    history: Some(HistoryRules {
                        keep_ms: 604_800_000,
                        body_max: 4_096,
                        result_max: 0,
                        output_max: 1_024,
                    }),
                    ..QueueRules::default()
                })),
                ..queue.clone()
            }),
        ),
        (
            "queue_set_ruled_in_part",
            Record::QueueSet(QueueImage {
                rules: Some(Box::new(json)),
                throttle: Some(throttle(1)),
                ..queue.clone()
            }),
        ),
        (
            "schedule_plain",
            Record::Schedule(Box::new(plain_schedule.clone())),
        ),
        (
            "schedule_full",
            Record::Schedule(Box::new(full_schedule.clone())),
        ),
        ("next_run", Record::NextRun(next_run(&plain_schedule))),
        (
            "next_run_counted",
            Record::NextRun(next_run(&full_schedule)),
        ),
        ("batch_plain", Record::Batch(Box::new(plain_batch.clone()))),
        ("batch_full", Record::Batch(Box::new(full_batch.clone()))),
        (
            "batch_moved",
            Record::BatchMoved(BatchMoved {
                batch: JobId(1 << 40),
                progress: full_batch.progress,
            }),
        ),
        (
            "batch_moved_held",
            Record::BatchMoved(BatchMoved {
                batch: JobId(9),
                progress: held,
            }),
        ),
        (
            "batch_moved_over",
            Record::BatchMoved(BatchMoved {
                batch: JobId(9),
                progress: over,
            }),
        ),
        (
            "put_member",
            Record::Put(Job {
                extra: Some(Box::new(member)),
                ..jobs::plain()
            }),
        ),
        (
            "moved_ran",
            Record::Moved(Moved {
                ran: true,
                ..moved_ran.clone()
            }),
        ),
        (
            "put_result",
            Record::Put(Job {
                extra: Some(Box::new(result)),
                state: JobState::Done(at),
                ..jobs::plain()
            }),
        ),
        (
            "put_tracked",
            Record::Put(Job {
                extra: Some(Box::new(tracked)),
                ..jobs::plain()
            }),
        ),
        (
            "moved_tracked",
            Record::Moved(Moved {
                updated_at: Some(at),
                ..moved_ran.clone()
            }),
        ),
        (
            "put_lost",
            Record::Put(Job {
                extra: Some(Box::new(lost)),
                ..jobs::plain()
            }),
        ),
        (
            "moved_lost",
            Record::Moved(Moved {
                losses: 4,
                ..moved_ran.clone()
            }),
        ),
        (
            "schedule_tracked",
            Record::Schedule(Box::new(tracked_schedule)),
        ),
        (
            "moved_failed_again",
            Record::Moved(Moved {
                failure: Some(Box::new(again)),
                ..moved_ran.clone()
            }),
        ),
        (
            "moved_to_be_retried",
            Record::Moved(Moved {
                failure: Some(Box::new(retried)),
                ..moved_ran
            }),
        ),
        (
            "put_to_be_retried",
            Record::Put(Job {
                extra: Some(Box::new(retried_extra)),
                ..jobs::plain()
            }),
        ),
        (
            "put_attempts",
            Record::Put(Job {
                extra: Some(Box::new(tried)),
                attempts: 300,
                ..jobs::plain()
            }),
        ),
        (
            "moved_attempts",
            Record::Moved(Moved {
                losses: 1,
                past: Some(past),
                ..moved_tried
            }),
        ),
        ("queue_gone", Record::QueueGone(QueueId(3))),
        (
            "namespace",
            Record::Namespace(Box::new(NamespaceImage {
                id: Namespace(4_095),
                name: "shop".into(),
                limits: NamespaceLimits {
                    jobs_max: Some(1_000_000),
                    job_bytes_max: Some(2 << 30),
                    queues_max: Some(1_000),
                    clients_max: Some(500),
                    pushes: Some(PushRate {
                        jobs: 2_000,
                        per_ms: 1_000,
                    }),
                },
                protocols: vec![(Protocol::FAKTORY, Totals::of([7; Totals::COUNT]))],
            })),
        ),
        ("namespace_gone", Record::NamespaceGone(Namespace(3))),
        (
            "day",
            Record::Day(DayBegin {
                number: 300,
                day: 20_000,
                totals: totals(),
            }),
        ),
        ("ended", Record::Ended(Box::new(ended.clone()))),
        (
            "ended_namespace",
            Record::Ended(Box::new(Ended {
                namespace: "shop".into(),
                ..ended
            })),
        ),
        (
            "head_plain",
            Record::Meta(MetaRecord {
                meta: old_meta(),
                clean: false,
            }),
        ),
        (
            "head_clean",
            Record::Meta(MetaRecord {
                meta: meta.clone(),
                clean: true,
            }),
        ),
        ("head_started", Record::Meta(started)),
        ("head_misfits", Record::Meta(misfits)),
        ("head_clock", Record::Meta(clocked)),
        ("schedule_zoned", Record::Schedule(Box::new(zoned_schedule))),
        (
            "schedule_seconds",
            Record::Schedule(Box::new(to_the_second)),
        ),
        (
            "schedule_retry_default",
            Record::Schedule(Box::new(silent_schedule)),
        ),
        ("schedule_ran", Record::Schedule(Box::new(ran_schedule))),
        ("next_run_running", Record::NextRun(running)),
        ("next_run_behind", Record::NextRun(behind)),
        (
            "put_spanned",
            Record::Put(Job {
                extra: Some(Box::new(spanned)),
                ..jobs::plain()
            }),
        ),
        (
            "put_coalesced",
            Record::Put(Job {
                extra: Some(Box::new(coalesced)),
                ..jobs::plain()
            }),
        ),
        (
            "put_joined",
            Record::Put(Job {
                state: JobState::Parked,
                extra: Some(Box::new(joined)),
                ..jobs::plain()
            }),
        ),
        (
            "put_run_again",
            Record::Put(Job {
                extra: Some(Box::new(Extra {
                    origin: Some(Box::new(Origin {
                        again_of: Some(JobId(300)),
                        ..origin.clone()
                    })),
                    ..Extra::default()
                })),
                ..jobs::plain()
            }),
        ),
        (
            "put_with_origin",
            Record::Put(Job {
                extra: Some(Box::new(Extra {
                    origin: Some(Box::new(origin)),
                    ..Extra::default()
                })),
                ..jobs::plain()
            }),
        ),
        (
            "put_collected",
            Record::Put(Job {
                extra: Some(Box::new(collected)),
                ..jobs::plain()
            }),
        ),
        (
            "schedule_spanned",
            Record::Schedule(Box::new(spanned_schedule)),
        ),
    ]
}

pub(crate) fn totals() -> Totals {
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
    let totals = Totals {
        released,
        retried,
        purged,
        timed_out,
        workers_lost,
        ..totals()
    };
    EngineMeta {
        next_job: 12,
        reserved: 65_548,
        totals,
        ..EngineMeta::default()
    }
}
