//! Jobs, queues and schedules of every shape, for tests.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use proptest::option;
use proptest::prelude::*;
use windlass_engine::{
    Attempt, AttemptEnd, AttemptError, Attempts, Backoff, Batch, BatchProgress, Clash, Coalesce,
    Coalesced, Codec, Cron, Cycle, EARLIER_RUNS_MAX, Ended, EndedWorker, Ending, Excerpt, Expiry,
    Extra, Failure, HistoryRules, Holder, Job, JobId, JobState, KeySource, KeyUntil, LastRun,
    Lease, Member, NewJob, OnExpiry, Origin, OwnPolicy, Payload, Policy, Priority, Progress,
    Protocol, Protocols, QueueId, QueueImage, QueueKind, QueueRules, Rate, Recurrence, Retry, Role,
    RunEnd, SavedRates, Schedule, Stage, Throttle, Timestamp, Token, Track, Unfit, Unique, Zone,
};

/// The plainest job.
pub(crate) fn plain() -> Job {
    Job {
        unfit: Unfit::NONE,
        id: JobId(7),
        queue: QueueId(0),
        protocol: Protocol::GEARMAN,
        priority: Priority::NORMAL,
        durable: true,
        rank: 1 << 62,
        state: JobState::Ready,
        ready_at: Timestamp(1_700_000_000_000),
        payload: Payload::copy(None, b"", b"cat.png"),
        attempts: 0,
        failures: 0,
        retry: Retry::NONE,
        extra: None,
    }
}

/// The plainest batch: open, and without a job.
pub(crate) fn plain_batch(id: JobId, name: &'static str, created_at: Timestamp) -> Batch {
    Batch {
        namespace: windlass_engine::Namespace::UNNAMED,
        id,
        name: Bytes::from_static(name.as_bytes()),
        protocol: Protocol::FAKTORY,
        parent: None,
        parent_name: None,
        depth: 0,
        about: Bytes::new(),
        meta: Bytes::new(),
        created_at,
        complete: None,
        success: None,
        progress: BatchProgress::new(created_at),
    }
}

/// A job that an engine could have, without any connection-bound state.
pub(crate) fn any_job() -> impl Strategy<Value = Job> {
    let number = prop_oneof![0u64..200, 0..1u64 << 63];
    let numbers = (number, any::<u32>(), any::<u8>(), 1u8..=9, 1..1u64 << 63);
    let payload = (
        any_bytes(),
        option::of(any_bytes()),
        option::of(any_bytes()),
    );
    let parts = (any_place(), any_time(), payload, any::<(u32, u32)>());
    (numbers, parts, any_retry(), option::of(any_extra())).prop_map(
        |(
            (id, queue, protocol, priority, rank),
            (state, ready_at, (body, key, name), (attempts, failures)),
            retry,
            extra,
        )| Job {
            unfit: Unfit::NONE,
            id: JobId(id),
            queue: QueueId(queue),
            protocol: Protocol(protocol),
            priority: Priority::clamped(priority),
            durable: true,
            rank,
            state,
            ready_at,
            payload: Payload::new(key.as_deref(), name.as_deref().unwrap_or_default(), &body),
            attempts,
            failures,
            retry,
            extra: extra
                .filter(|extra| *extra != Extra::default())
                .map(Box::new),
        },
    )
}

/// Any schedule.
pub(crate) fn any_schedule() -> impl Strategy<Value = Schedule> {
    let seconds = prop_oneof![Just(1), any::<u64>()];
    let cron = (
        any::<[u64; 2]>(),
        any::<[u32; 2]>(),
        any::<u16>(),
        any::<bool>(),
        seconds,
    );
    let zone = option::of(prop_oneof![Just("Europe/Berlin"), Just("UTC"), Just("?")]);
    let recurrence = prop_oneof![
        any::<u64>().prop_map(|interval_ms| Recurrence::Every { interval_ms }),
        (cron, zone).prop_map(
            |(([minutes, weekdays], [hours, days], months, either_day, seconds), zone)| {
                let cron = Cron {
                    seconds,
                    minutes,
                    hours,
                    days,
                    months,
                    weekdays,
                    either_day,
                };
                let zoned =
                    |zone| Recurrence::Zoned(cron, Zone::named(zone).unwrap_or(Zone::UNKNOWN));
                zone.map_or(Recurrence::Cron(cron), zoned)
            }
        ),
    ];
    let clash = prop_oneof![Just(Clash::Attach), Just(Clash::Refuse), Just(Clash::Keep)];
    let until = (any_bytes(), clash, any_key_until());
    let unique = option::of(until.prop_map(|(key, clash, until)| Unique { key, clash, until }));
    let next = (
        recurrence,
        any_time(),
        any_time(),
        option::of(1..1u64 << 63),
    );
    let times = (
        option::of(any_time()),
        any::<[bool; 4]>(),
        option::of(any_last_run()),
    );
    (
        any_job().boxed(),
        option::of(any_bytes()),
        any_bytes(),
        unique.boxed(),
        next.boxed(),
        times,
    )
        .prop_map(
            |(
                job,
                key,
                queue,
                unique,
                (recurrence, anchor, next_at, runs_left),
                (not_before, [cycle, front, alone, retry_default], last),
            )| {
                let extra = job.extra.unwrap_or_default();
                let template = NewJob {
                    kind: if cycle {
                        QueueKind::Cycle
                    } else {
                        QueueKind::Work
                    },
                    priority: job.priority,
                    front,
                    name: Some(job.payload.name())
                        .filter(|name| !name.is_empty())
                        .map(Bytes::copy_from_slice),
                    name_unique: alone,
                    meta: extra.meta,
                    unique,
                    not_before,
                    expires: extra.expires,
                    retry: job.retry,
                    retry_default,
                    result_keep_ms: extra.result_keep_ms,
                    lease_ms: extra.lease_ms,
                    track_ms: extra.track.map_or(0, |track| track.keep_ms),
                    ..NewJob::new(job.protocol, queue, job.payload.share_body())
                };
                Schedule {
                    id: job.id,
                    key,
                    job: template,
                    recurrence,
                    anchor,
                    next_at,
                    runs_left,
                    last,
                }
            },
        )
}

pub(crate) fn any_last_run() -> impl Strategy<Value = LastRun> {
    let end = prop_oneof![
        Just(RunEnd::Running),
        Just(RunEnd::Done),
        Just(RunEnd::Failed),
        Just(RunEnd::Dead)
    ];
    let earlier = proptest::collection::vec((0..1u64 << 63).prop_map(JobId), 0..=EARLIER_RUNS_MAX);
    let run = (any_time(), 0..1u64 << 63, end, earlier);
    run.prop_map(|(at, job, end, earlier)| LastRun {
        at,
        job: JobId(job),
        end,
        earlier,
    })
}

fn any_key_until() -> impl Strategy<Value = KeyUntil> {
    prop_oneof![
        Just(KeyUntil::End),
        Just(KeyUntil::Start),
        Just(KeyUntil::Gone),
        any_time().prop_map(KeyUntil::EndOr),
        any_time().prop_map(KeyUntil::StartOr),
    ]
}

fn any_member() -> impl Strategy<Value = Member> {
    let role = prop_oneof![Just(Role::Job), Just(Role::Complete), Just(Role::Success)];
    (0..1u64 << 63, role, any::<bool>()).prop_map(|(batch, role, ran)| Member {
        batch: JobId(batch),
        role,
        ran,
    })
}

/// Any batch.
pub(crate) fn any_batch() -> impl Strategy<Value = Batch> {
    let number = prop_oneof![1u64..200, 1..1u64 << 63];
    let parent = option::of((any::<prop::sample::Index>(), any_bytes()));
    let texts = (any_bytes(), any_bytes(), any_bytes());
    let callback = || option::of(any_schedule().prop_map(|schedule| Box::new(schedule.job)));
    let numbers = (any::<u8>(), any::<u32>(), any_time());
    (
        number,
        parent,
        texts,
        (callback(), callback()),
        numbers,
        any_progress(),
    )
        .prop_map(
            |(
                id,
                parent,
                (name, about, meta),
                (complete, success),
                (protocol, depth, created_at),
                progress,
            )| {
                let older = |index: prop::sample::Index| JobId(index.index(usize::MAX) as u64 % id);
                let (parent, parent_name) =
                    parent.map(|(index, name)| (older(index), name)).unzip();
                let (id, protocol) = (JobId(id), Protocol(protocol));
                Batch {
                    namespace: windlass_engine::Namespace::UNNAMED,
                    id,
                    name,
                    protocol,
                    parent,
                    parent_name,
                    depth,
                    about,
                    meta,
                    created_at,
                    complete,
                    success,
                    progress,
                }
            },
        )
}

fn any_progress() -> impl Strategy<Value = BatchProgress> {
    let stage = || {
        prop_oneof![
            Just(Stage::Waiting),
            Just(Stage::Enqueued),
            Just(Stage::Succeeded),
            Just(Stage::Passed)
        ]
    };
    let counts = (0..1u64 << 62, 0..1u64 << 10, 0..1u64 << 10);
    let held_until = option::of(any_time());
    (
        any::<bool>(),
        any_time(),
        counts,
        any::<[u32; 2]>(),
        (stage(), stage()),
        held_until,
    )
        .prop_map(
            |(
                committed,
                since,
                (succeeded, failed, waiting),
                [incomplete, unsuccessful],
                stages,
                held_until,
            )| {
                let ran = succeeded + failed;
                let (total, (complete, success)) = (ran + waiting, stages);
                let can_be_held =
                    committed && (complete == Stage::Waiting || success == Stage::Waiting);
                let held_until = held_until.filter(|_| can_be_held);
                let counted = BatchProgress {
                    total,
                    ran,
                    succeeded,
                    incomplete,
                    unsuccessful,
                    ..BatchProgress::new(since)
                };
                BatchProgress {
                    committed,
                    complete,
                    success,
                    held_until,
                    ..counted
                }
            },
        )
}

/// Any queue.
pub(crate) fn any_queue() -> impl Strategy<Value = QueueImage> {
    let limits = prop::array::uniform9(option::of(any::<u32>()));
    let throttle = (
        any::<Option<u32>>(),
        any::<Option<u32>>(),
        any::<Option<u64>>(),
    )
        .prop_map(|(leased_max, per_worker_max, timeout_ms)| Throttle {
            leased_max,
            per_worker_max,
            timeout_ms,
            configured: timeout_ms.is_some(),
        });
    let codec = prop_oneof![Just(Codec::Text), Just(Codec::Json), Just(Codec::Base64)];
    let coalesce = (any::<[bool; 3]>(), any::<u64>(), any::<Option<u64>>()).prop_map(
        |([by_key, latest, once_more], quiet_ms, at_most_ms)| Coalesce {
            by_key,
            latest,
            quiet_ms,
            at_most_ms,
            once_more,
        },
    );
    let history = (any::<u64>(), any::<[u32; 3]>()).prop_map(
        |(keep_ms, [body_max, result_max, output_max])| HistoryRules {
            keep_ms,
            body_max,
            result_max,
            output_max,
        },
    );
    let later = (
        any::<Option<u64>>(),
        any::<Option<u32>>(),
        any::<Option<u64>>(),
        option::of(coalesce),
        option::of(history),
    );
    let rules = (
        codec,
        option::of(any_retry()),
        any::<Option<u32>>(),
        any::<Option<u64>>(),
        later,
    )
        .prop_map(
            |(
                codec,
                retry,
                body_bytes_max,
                ttl_ms,
                (dead_ms, dead_max, dedup_ms, coalesce, history),
            )| {
                QueueRules {
                    codec,
                    retry,
                    body_bytes_max,
                    ttl_ms,
                    dead_ms,
                    dead_max,
                    dedup_ms,
                    coalesce,
                    history,
                }
            },
        );
    // Default rules are stored as `None`.
    let rules = rules.prop_map(|rules| {
        Some(rules)
            .filter(|rules| *rules != QueueRules::default())
            .map(Box::new)
    });
    let bounds = (
        option::of(throttle),
        prop_oneof![Just(None), rules],
        option::of(any_policy()),
        any_keys(),
    );
    let protocols = || {
        prop_oneof![
            Just(Protocols::ALL),
            any::<u8>().prop_map(Protocols::from_bits)
        ]
    };
    let pause = (protocols(), option::of(any_time()));
    let limits = (limits, option::of(any::<u8>().prop_map(Protocol)));
    (
        any::<u32>(),
        any_bytes(),
        any::<bool>(),
        protocols(),
        pause,
        limits,
        bounds,
        0..1u64 << 63,
    )
        .prop_map(
            |(
                id,
                name,
                cycle,
                known,
                (paused, at),
                (jobs_max, jobs_max_of),
                (throttle, rules, policy, paused_keys),
                serial,
            )| {
                let kind = if cycle {
                    QueueKind::Cycle
                } else {
                    QueueKind::Work
                };
                let (id, paused_at) = (QueueId(id), at.filter(|_| !paused.is_empty()));
                let policy = policy.map(Box::new);
                QueueImage {
                    id,
                    name,
                    kind,
                    known,
                    paused,
                    paused_at,
                    jobs_max,
                    jobs_max_of,
                    throttle,
                    rules,
                    policy,
                    // Any of those that are stored.
                    saved: (serial % 3 == 0).then(|| {
                        let keys = paused_keys
                            .iter()
                            .map(|key| (key.clone(), Timestamp(serial)))
                            .collect();
                        Box::new(SavedRates {
                            full_at: Timestamp(serial / 2),
                            keys,
                        })
                    }),
                    paused_keys,
                    serial,
                }
            },
        )
}

fn any_keys() -> impl Strategy<Value = BTreeSet<Bytes>> {
    prop_oneof![
        Just(BTreeSet::new()),
        prop::collection::btree_set(any_bytes(), 0..3)
    ]
}

fn any_policy() -> impl Strategy<Value = OwnPolicy> {
    let rate = || {
        option::of(any::<[u32; 3]>().prop_map(|[jobs, per_ms, burst]| Rate {
            jobs,
            per_ms,
            burst,
        }))
    };
    let key = prop_oneof![
        "[a-z/0-9]{0,9}".prop_map(|at| KeySource::Args(at.into())),
        "[a-z/0-9]{0,9}".prop_map(|at| KeySource::Custom(at.into())),
        any::<Option<u8>>().prop_map(KeySource::Unique),
        any::<u8>().prop_map(KeySource::Prefix),
        "[A-Za-z-]{0,9}".prop_map(|name| KeySource::Header(name.into())),
    ];
    let limits = (any::<Option<u32>>(), any::<Option<u32>>());
    let weights = prop::collection::btree_map(any_bytes(), any::<u32>(), 0..3);
    (
        rate(),
        option::of(key),
        limits,
        rate(),
        any::<[bool; 2]>(),
        weights,
        any_bytes(),
        any_time(),
    )
        .prop_map(
            |(
                rate,
                key,
                (key_running_max, key_waiting_max),
                key_rate,
                [fair, ordered],
                weights,
                by,
                at,
            )| {
                let limits = Policy {
                    rate,
                    key_running_max,
                    key_rate,
                    key_waiting_max,
                    ..Policy::default()
                };
                OwnPolicy {
                    policy: Arc::new(Policy {
                        key,
                        fair,
                        weights,
                        ordered,
                        ..limits
                    }),
                    by,
                    at,
                }
            },
        )
}

fn any_time() -> impl Strategy<Value = Timestamp> {
    prop_oneof![
        Just(Timestamp::NEVER),
        Just(Timestamp(0)),
        any::<u64>().prop_map(Timestamp)
    ]
}

fn any_bytes() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        6 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from),
        1 => prop::collection::vec(any::<u8>(), 1000..3000).prop_map(Bytes::from),
    ]
}

fn any_place() -> impl Strategy<Value = JobState> {
    let on_expiry = prop_oneof![
        Just(OnExpiry::Fail),
        Just(OnExpiry::Requeue),
        Just(OnExpiry::Front)
    ];
    let lease = (any_bytes(), any::<u64>(), any_time(), any_time(), on_expiry);
    let away = (any::<u8>(), any::<u64>(), any_time(), any_time());
    prop_oneof![
        Just(JobState::Ready),
        lease.prop_map(|(name, token, taken_at, until, on_expiry)| {
            let holder = Holder::Named(name.as_ref().into());
            JobState::Leased(Box::new(Lease::new(
                holder,
                Token(token),
                taken_at,
                until,
                on_expiry,
            )))
        }),
        away.prop_map(|(protocol, token, taken_at, until)| {
            let holder = Holder::Away(Protocol(protocol));
            JobState::Leased(Box::new(Lease::new(
                holder,
                Token(token),
                taken_at,
                until,
                OnExpiry::Requeue,
            )))
        }),
        any_time().prop_map(JobState::Scheduled),
        any_time().prop_map(JobState::Retrying),
        any_time().prop_map(JobState::Dead),
        Just(JobState::Parked),
        any_time().prop_map(JobState::Done),
    ]
}

fn any_retry() -> impl Strategy<Value = Retry> {
    let backoff = prop_oneof![
        Just(Backoff::None),
        any::<u32>().prop_map(Backoff::Fixed),
        any::<u32>().prop_map(Backoff::Doubling),
        Just(Backoff::Faktory),
    ];
    (any::<i32>(), any::<u32>(), backoff).prop_map(|(failures_max, losses_max, backoff)| Retry {
        failures_max,
        losses_max,
        backoff,
    })
}

/// The past that these attempts make.
pub(crate) fn attempts(list: impl IntoIterator<Item = Attempt>) -> Arc<Attempts> {
    let mut attempts = Attempts::default();
    list.into_iter().for_each(|attempt| attempts.push(attempt));
    Arc::new(attempts)
}

/// Errors are often the same, and some texts are too long.
fn any_attempt() -> impl Strategy<Value = Attempt> {
    use AttemptEnd::{Failed, Lost, Released, TakenBack, TimedOut, Unconvertible};
    let text = || any_bytes().prop_map(|text| text.as_ref().into());
    let error = (text(), text(), text()).prop_map(|(kind, message, backtrace)| AttemptError {
        kind,
        message,
        backtrace,
    });
    let plain = ["one", "other"].map(|message| AttemptError {
        kind: Box::default(),
        message: message.as_bytes().into(),
        backtrace: b"line"[..].into(),
    });
    let error =
        prop_oneof![1 => error, 3 => prop::sample::select(plain.to_vec())].prop_map(Arc::new);
    let end = prop::sample::select(vec![
        Failed,
        Lost,
        TimedOut,
        Released,
        TakenBack,
        Unconvertible,
    ]);
    (
        any::<u32>(),
        text(),
        any_time(),
        any_time(),
        end,
        option::of(error),
    )
        .prop_map(|(number, worker, began_at, ended_at, end, error)| Attempt {
            number,
            worker,
            began_at,
            ended_at,
            end,
            error,
        })
}

fn any_origin() -> impl Strategy<Value = Box<Origin>> {
    let number = || option::of((0..1u64 << 60).prop_map(JobId));
    (
        any_time(),
        option::of(any_time()),
        "[0-9.:]{0,20}",
        number(),
        number(),
    )
        .prop_map(|(pushed_at, due_at, producer, schedule, again_of)| {
            Box::new(Origin {
                pushed_at,
                due_at,
                producer: producer.into(),
                schedule,
                again_of,
            })
        })
}

/// A row for the history, of which the engine writes what it has of a job.
pub(crate) fn any_ended() -> impl Strategy<Value = Ended> {
    let endings = prop::sample::select(Ending::ALL.to_vec());
    let excerpt = (any_bytes(), any::<u64>()).prop_map(|(bytes, len)| Excerpt { bytes, len });
    (
        any_job(),
        endings,
        any_time(),
        option::of(any_time()),
        any_bytes(),
        option::of(excerpt),
    )
        .prop_map(|(job, ending, ended_at, started_at, text, body)| {
            let extra = job.extra.clone().unwrap_or_default();
            Ended {
                job: job.id,
                ending,
                ended_at,
                keep_ms: 7,
                queue: text.clone(),
                namespace: text.clone(),
                protocol: job.protocol,
                name: Bytes::copy_from_slice(job.name()),
                unique: Bytes::copy_from_slice(job.key().unwrap_or_default()),
                kind: text.clone(),
                key: text.clone(),
                origin: extra.origin,
                batch: extra.member.map(|member| member.batch),
                submits: 1,
                ready_at: job.ready_at,
                started_at,
                worker: Some(Box::new(EndedWorker {
                    protocol: extra.result_by,
                    name: text,
                    address: "127.0.0.1".into(),
                })),
                deliveries: job.attempts,
                failures: job.failures,
                attempts: extra.attempts,
                failure: extra.failure,
                progress: extra.progress,
                body,
                result: None,
                output: None,
            }
        })
}

fn any_extra() -> impl Strategy<Value = Extra> {
    let key_until = any_key_until();
    let cycle = (0..1u64 << 63, 0u32..64).prop_map(|(priority, boost)| Cycle { priority, boost });
    let times = prop_oneof![any_time().prop_map(|at| (at, at)), (any_time(), any_time())];
    let times = (times, option::of(any_time()));
    let failure = (
        times,
        any_bytes(),
        any_bytes(),
        prop::collection::vec(any_bytes(), 0..4),
    )
        .prop_map(|(((at, first_at), next_at), kind, message, backtrace)| {
            Box::new(Failure {
                at,
                first_at,
                next_at,
                kind,
                message,
                backtrace,
            })
        });
    let past = (prop::collection::vec(any_attempt(), 1..30)).prop_map(attempts);
    let progress =
        (any::<u32>(), any::<u32>(), any_bytes()).prop_map(|(numerator, denominator, text)| {
            Progress {
                numerator,
                denominator,
                text,
            }
        });
    let told = (
        option::of(cycle),
        option::of(failure),
        option::of(past),
        option::of(progress),
    );
    let expiry = prop_oneof![
        Just(Expiry::Never),
        any_time().prop_map(Expiry::At),
        any_time().prop_map(Expiry::By)
    ];
    let coalesced = (
        any_time(),
        any::<[u32; 2]>(),
        option::of((1..1u64 << 60).prop_map(JobId)),
        any::<bool>(),
    )
        .prop_map(|(since, [submits, attempts], behind, joined)| {
            Box::new(Coalesced {
                since,
                submits,
                attempts,
                behind,
                joined,
            })
        });
    let track = (any::<u64>(), any_time()).prop_map(|(keep_ms, updated_at)| Track {
        keep_ms,
        updated_at,
    });
    let rest = (
        (
            any::<u64>(),
            any_bytes(),
            option::of(coalesced),
            option::of(any_origin()),
        ),
        option::of(any::<u64>()),
        (
            option::of(any_bytes()),
            option::of(any::<u8>().prop_map(Protocol)),
        ),
        (
            option::of(any_member()),
            option::of(track),
            prop_oneof![Just(0), any::<u32>()],
        ),
    );
    (any_bytes(), expiry, key_until, told, rest).prop_map(
        |(
            meta,
            expires,
            key_until,
            (cycle, failure, attempts, progress),
            (
                (result_keep_ms, collector, coalesced, origin),
                lease_ms,
                (result, result_by),
                (member, track, losses),
            ),
        )| Extra {
            meta,
            expires,
            key_until,
            cycle,
            failure,
            attempts,
            progress,
            result_keep_ms,
            lease_ms,
            result,
            result_by,
            track,
            member,
            losses,
            collector,
            taken_back: false,
            coalesced,
            listeners: Vec::new(),
            origin,
            output: None,
        },
    )
}
