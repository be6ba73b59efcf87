//! Property tests: an export imports as it was, and a damaged export does no harm.

use std::path::Path;
use std::sync::LazyLock;

use bytes::Bytes;
use proptest::prelude::*;
use windlass_engine::{
    Backoff, Batch, BatchCommand, Clash, ClientCommand, ClientId, ClientInfo, Codec, Command,
    Context, Engine, Expiry, Failure, From, Job, JobCommand, JobId, JobRef, KeyUntil, LeaseCommand,
    LeaseTerms, NewBatch, NewJob, NewSchedule, OnExpiry, Priority, Proof, Protocol, QueueCommand,
    QueueImage, QueueKind, QueueRules, Recurrence, RepayTo, Retry, Schedule, ScheduleCommand,
    Select, Tag, Take, TakeCommand, Throttle, Timestamp, Unique, Wait,
};
use windlass_store::{About, Opened, StoreConfig};
use windlass_table_sled::SledTables;

use super::*;
use crate::fixture;

/// The protocols of new jobs.
static ORIGINS: LazyLock<Vec<std::sync::Arc<dyn windlass_session::protocol::Protocol>>> =
    LazyLock::new(|| fixture::config(Path::new("")).protocols);

pub(super) fn read(line: &[u8]) -> Result<Line, String> {
    Line::read(line, &ORIGINS)
}

pub(super) const HOUR_MS: u64 = 3_600_000;
pub(super) const CLIENT: ClientId = ClientId(1);

/// A time so far ahead that nothing becomes due during a test.
fn later(context: &mut Context) -> Timestamp {
    context
        .now
        .after_ms(HOUR_MS + context.roll(1_000 * HOUR_MS))
}

fn one_of<T: Copy>(context: &mut Context, of: &[T]) -> T {
    of[usize::try_from(context.roll(of.len() as u64)).unwrap()]
}

fn bytes(context: &mut Context, names: u64) -> Bytes {
    match context.roll(8) {
        0 => Bytes::from_static(b"\xff\0\"\\"),
        _ => Bytes::from(format!("name {}", context.roll(names))),
    }
}

fn any_job(context: &mut Context) -> NewJob {
    let is_cycle = context.roll(4) == 0;
    let protocol = one_of(context, &Protocol::sharing().collect::<Vec<_>>());
    let queue = Bytes::from_static(if is_cycle {
        b"ring"
    } else {
        one_of(context, &[b"mail", b"\xff\xfe!!"])
    });
    let until = match context.roll(4) {
        0 => KeyUntil::Start,
        1 => KeyUntil::EndOr(later(context)),
        2 => KeyUntil::Gone,
        _ => KeyUntil::End,
    };
    let clash = one_of(context, &[Clash::Attach, Clash::Refuse, Clash::Keep]);
    let key = (is_cycle || context.roll(3) == 0).then(|| Unique {
        key: bytes(context, 30),
        clash,
        until,
    });
    let backoff = one_of(
        context,
        &[Backoff::None, Backoff::Fixed(3_600_000), Backoff::Faktory],
    );
    let body = Bytes::from(vec![b'x'; usize::try_from(context.roll(3_000)).unwrap()]);
    NewJob {
        kind: if is_cycle {
            QueueKind::Cycle
        } else {
            QueueKind::Work
        },
        priority: Priority::clamped(u8::try_from(1 + context.roll(9)).unwrap()),
        front: context.roll(6) == 0,
        name: (context.roll(3) == 0).then(|| bytes(context, 1_000)),
        meta: bytes(context, 3),
        unique: key,
        not_before: (context.roll(6) == 0).then(|| later(context)),
        expires: if context.roll(8) == 0 {
            Expiry::By(later(context))
        } else {
            Expiry::Never
        },
        retry: Retry {
            failures_max: i32::try_from(context.roll(4)).unwrap() - 1,
            losses_max: 3,
            backoff,
        },
        result_keep_ms: if context.roll(3) == 0 { HOUR_MS } else { 0 },
        track_ms: if context.roll(4) == 0 { HOUR_MS } else { 0 },
        lease_ms: (context.roll(5) == 0).then_some(HOUR_MS),
        batch: (!is_cycle && context.roll(3) == 0).then(|| batch(context)),
        ..NewJob::new(protocol, queue, body)
    }
}

fn template(context: &mut Context) -> NewJob {
    NewJob {
        batch: None,
        not_before: None,
        expires: Expiry::Never,
        ..any_job(context)
    }
}

fn batch(context: &mut Context) -> Bytes {
    Bytes::from(format!("batch {}", context.roll(4)))
}

pub(super) fn any_command(context: &mut Context, engine: &Engine) -> Command {
    let leased = engine
        .jobs()
        .filter(|job| job.lease().is_some())
        .min_by_key(|job| job.id)
        .cloned();
    match (context.roll(16), leased) {
        (0..=2, Some(job)) if job.cycle().is_some() => {
            let to = one_of(
                context,
                &[
                    RepayTo::Penalty,
                    RepayTo::Reward,
                    RepayTo::Front,
                    RepayTo::Drop,
                ],
            );
            Command::Lease(LeaseCommand::Repay {
                job: JobRef::Id(job.id),
                proof: Proof::AnyLease,
                body: bytes(context, 9),
                to,
            })
        }
        (0, Some(job)) => {
            let failure = Box::new(Failure {
                message: bytes(context, 9),
                ..Failure::default()
            });
            Command::Lease(LeaseCommand::Fail {
                job: JobRef::Id(job.id),
                proof: Proof::AnyLease,
                failure,
            })
        }
        (1, Some(job)) => Command::Lease(LeaseCommand::Finish {
            job: JobRef::Id(job.id),
            proof: Proof::AnyLease,
            result: bytes(context, 9),
        }),
        (2, Some(job)) => Command::Lease(LeaseCommand::Release {
            job: JobRef::Id(job.id),
            proof: Proof::AnyLease,
            front: context.roll(2) == 0,
        }),
        (0..=5, _) => {
            let (connection_bound, ms) = (context.roll(3) == 0, HOUR_MS + context.roll(HOUR_MS));
            let lease = LeaseTerms {
                connection_bound,
                lease_ms: Some(ms),
                on_expiry: OnExpiry::Fail,
                wish: None,
            };
            let ring = Bytes::from_static(b"ring");
            let from = match context.roll(3) {
                0 => From::Cycle { queue: ring, lease },
                _ => From::Listed {
                    queues: vec![
                        Bytes::from_static(b"mail"),
                        Bytes::from_static(b"\xff\xfe!!"),
                    ],
                    lease,
                },
            };
            Command::Take(TakeCommand::Take(Take {
                from,
                select: Select::BestPriority,
                wait: Wait::No,
                worker: bytes(context, 2),
            }))
        }
        (6, _) => {
            let retry = Some(Retry {
                failures_max: 7,
                losses_max: 1,
                backoff: Backoff::Faktory,
            });
            let rules = QueueRules {
                codec: Codec::Base64,
                retry,
                body_bytes_max: None,
                ..QueueRules::default()
            };
            Command::Queue(QueueCommand::SetRules {
                queue: Bytes::from_static(b"mail"),
                rules: rules.into(),
            })
        }
        (7, _) => {
            let throttle = Throttle {
                leased_max: Some(5),
                timeout_ms: Some(HOUR_MS),
                ..Throttle::default()
            };
            Command::Queue(QueueCommand::Throttle {
                queue: bytes(context, 3),
                throttle: Some(throttle),
            })
        }
        (8, _) => Command::Queue(QueueCommand::Pause {
            queue: bytes(context, 3),
            paused: true,
        }),
        (9, _) => Command::Queue(QueueCommand::Limit {
            queue: Bytes::from_static(b"mail"),
            jobs_max: [Some(40); Priority::COUNT],
        }),
        (10, _) => Command::Schedule(ScheduleCommand::Set(Box::new(NewSchedule {
            key: (context.roll(2) == 0).then(|| bytes(context, 3)),
            job: template(context),
            recurrence: Recurrence::Every {
                interval_ms: 100 * HOUR_MS,
            },
            at_once: false,
            keep_grid: false,
            runs: (context.roll(2) == 0).then_some(3),
        }))),
        (11, _) => {
            let mut callback =
                || Some(Box::new(template(context))).filter(|job| job.kind == QueueKind::Work);
            let (complete, success) = (callback(), callback());
            Command::Batch(BatchCommand::New(Box::new(NewBatch {
                protocol: Protocol::FAKTORY,
                name: batch(context),
                parent: (context.roll(3) == 0).then(|| batch(context)),
                about: bytes(context, 3),
                meta: Bytes::new(),
                complete,
                success,
                expires_ms: 9 * HOUR_MS,
            })))
        }
        (12, _) => Command::Batch(BatchCommand::Commit {
            batch: batch(context),
        }),
        _ => Command::Job(JobCommand::Push(Box::new(any_job(context)))),
    }
}

/// Creates a directory with the result of `commands` random commands.
pub(super) fn live(config: &Config, seed: u64, commands: u64) {
    run(config, seed, (0..commands).map(|_| any_command));
}

/// Creates a directory with the result of these commands.
pub(super) fn run<C: FnOnce(&mut Context, &Engine) -> Command>(
    config: &Config,
    seed: u64,
    commands: impl Iterator<Item = C>,
) {
    let Opened {
        mut log, recovered, ..
    } = windlass_daemon::open(config).unwrap();
    let (mut engine, mut journal) = (recovered.engine, recovered.journal);
    let mut context = Context::new(clock::read().now, seed);
    engine.apply(
        CLIENT,
        Tag(1),
        ClientCommand::Open(ClientInfo::default()),
        &mut context,
    );
    for command in commands {
        let command = command(&mut context, &engine);
        context.changes.clear();
        context.events.clear();
        engine.apply(CLIENT, Tag(1), command, &mut context);
        journal.append(&engine, &context.changes);
    }
    let commit = journal.cut(&engine).unwrap();
    log.append(&commit).unwrap();
}

/// The heading of an export.
pub(super) fn about() -> About<'static> {
    About {
        daemon: "0.1.0",
        written_at: clock::wall(),
        namespace: None,
    }
}

pub(super) fn export(dir: &Path) -> Vec<u8> {
    let mut found = windlass_store::salvage(&StoreConfig::new(dir, SledTables::default())).unwrap();
    assert!(found.is_whole());
    let mut lines = Vec::new();
    found.export(about(), &mut lines).unwrap();
    lines
}

/// Imports lines. Returns the lines that were refused or imported in part.
pub(super) fn take(config: &Config, lines: &[Vec<u8>], most: usize) -> Vec<(usize, Adopted)> {
    let lines: Vec<Line> = lines.iter().filter_map(|line| read(line).ok()).collect();
    let mut importer = Importer::open(config, &source(), false).unwrap();
    let mut ranks = Ranks::default();
    lines.iter().for_each(|line| ranks.see(line));
    importer.expect(ranks);
    let mut odd = Vec::new();
    for (place, line) in lines.into_iter().enumerate().take(most) {
        if importer.wants(place as u64) {
            let adopted = importer.take_line(place as u64, line).unwrap();
            let plain = Adopted {
                outcome: Outcome::Taken,
                without: None,
            };
            odd.extend(Some((place, adopted)).filter(|_| adopted != plain));
        } else {
            importer.skip_line(&line);
        }
    }
    if most < usize::MAX {
        importer.commit().unwrap()
    } else {
        importer.finish().unwrap()
    }
    odd
}

pub(super) fn source() -> Source {
    Source {
        kind: "jsonl",
        digest: "00ff".to_owned(),
    }
}

pub(super) fn config(dir: &Path) -> Config {
    fixture::config(dir)
}

/// A batch `b` of two jobs of the queue `q`, of which the first one has run and succeeded.
pub(super) fn half_done_batch() -> Vec<Command> {
    let name = || Bytes::from_static(b"b");
    let queue = || Bytes::from_static(b"q");
    let new = NewBatch {
        protocol: Protocol::FAKTORY,
        name: name(),
        parent: None,
        about: Bytes::new(),
        meta: Bytes::new(),
        complete: None,
        success: None,
        expires_ms: HOUR_MS,
    };
    let member = || {
        let job = NewJob::new(Protocol::FAKTORY, queue(), Bytes::new());
        JobCommand::Push(Box::new(NewJob {
            batch: Some(name()),
            result_keep_ms: HOUR_MS,
            ..job
        }))
        .into()
    };
    let lease = LeaseTerms {
        connection_bound: false,
        lease_ms: Some(HOUR_MS),
        on_expiry: OnExpiry::Fail,
        wish: None,
    };
    let from = From::Listed {
        queues: vec![queue()],
        lease,
    };
    let take = Take {
        from,
        select: Select::BestPriority,
        wait: Wait::No,
        worker: Bytes::new(),
    };
    let end = LeaseCommand::Finish {
        job: JobRef::Id(JobId(2)),
        proof: Proof::AnyLease,
        result: Bytes::new(),
    };
    vec![
        BatchCommand::New(Box::new(new)).into(),
        member(),
        member(),
        TakeCommand::Take(take).into(),
        end.into(),
    ]
}

/// The content of a directory, in an order and with names that do not depend on the directory.
#[derive(Debug, PartialEq)]
pub(super) struct Contents {
    /// Without queue and sort key, with the queue's name.
    pub(super) jobs: Vec<(Job, Bytes)>,
    /// The jobs' numbers, in the order of their sort keys.
    pub(super) order: Vec<JobId>,
    schedules: Vec<Schedule>,
    pub(super) batches: Vec<Batch>,
    queues: Vec<QueueImage>,
    pub(super) next: u64,
}

pub(super) fn contents(config: &Config) -> Contents {
    let engine = windlass_daemon::open(config).unwrap().recovered.engine;
    engine.check();
    let mut jobs: Vec<Job> = engine.jobs().cloned().collect();
    jobs.sort_by_key(|job| job.rank);
    let order = jobs.iter().map(|job| job.id).collect();
    jobs.sort_by_key(|job| job.id);
    let name = |job: &Job| engine.queue(job.queue).unwrap().image().name.clone();
    let bare = |job: &Job| Job {
        queue: windlass_engine::QueueId(0),
        rank: 1,
        ..job.clone()
    };
    let mut queues: Vec<QueueImage> = engine.queues().map(|queue| queue.image().clone()).collect();
    queues.sort_by(|one, other| one.name.cmp(&other.name));
    queues
        .iter_mut()
        .for_each(|image| image.id = windlass_engine::QueueId(0));
    Contents {
        jobs: jobs.iter().map(|job| (bare(job), name(job))).collect(),
        order,
        schedules: engine.schedules().cloned().collect(),
        batches: engine.batches().cloned().collect(),
        queues,
        next: engine.meta().next_job,
    }
}

pub(super) fn lines(export: &[u8]) -> Vec<Vec<u8>> {
    export
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(<[u8]>::to_vec)
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn an_export_imports_as_it_was(seed in any::<u64>(), cut in 0_usize..200) {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (config(&dir.path().join("from")), config(&dir.path().join("to")));
        live(&from, seed, 150);
        let lines = lines(&export(&from.data_dir));
        // Interrupted, and continued.
        take(&to, &lines, cut);
        let odd = take(&to, &lines, usize::MAX);
        prop_assert_eq!(odd, vec![]);
        let (before, after) = (contents(&from), contents(&to));
        prop_assert!(before.next <= after.next);
        prop_assert_eq!(Contents { next: after.next, ..before }, after);
    }

    #[test]
    fn existing_records_are_not_imported_again(seed in any::<u64>()) {
        let dir = tempfile::tempdir().unwrap();
        let from = config(&dir.path().join("from"));
        live(&from, seed, 100);
        let lines = lines(&export(&from.data_dir));
        let before = contents(&from);
        let odd = take(&from, &lines, usize::MAX);
        prop_assert!(odd.iter().all(|(_, adopted)| adopted.outcome == Outcome::Known), "{odd:?}");
        prop_assert_eq!(before, contents(&from));
    }

    #[test]
    fn imported_jobs_are_sorted_behind_existing_ones(seeds in any::<[u64; 2]>()) {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (config(&dir.path().join("from")), config(&dir.path().join("to")));
        live(&from, seeds[0], 60);
        live(&to, seeds[1], 60);
        let before = contents(&to);
        take(&to, &lines(&export(&from.data_dir)), usize::MAX);
        let after = contents(&to);
        prop_assert_eq!(&after.order[..before.order.len()], &before.order[..]);
        // The ends of a batch that both directories have may differ; the existing jobs do not.
        let kept: Vec<_> = after.jobs.iter().filter(|(job, _)| job.id.0 < before.next).cloned().collect();
        prop_assert_eq!(kept, before.jobs);
    }

    /// The importer may refuse changed lines, or read them as other records; the daemon can start from the result.
    #[test]
    fn a_damaged_export_does_no_harm(seed in any::<u64>(), damages in prop::collection::vec(any::<[u32; 2]>(), 1..40)) {
        use base64::Engine as _;
        use base64::prelude::BASE64_STANDARD;
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (config(&dir.path().join("from")), config(&dir.path().join("to")));
        live(&from, seed, 60);
        let mut lines = lines(&export(&from.data_dir));
        for [at, what] in damages {
            let index = at as usize % lines.len();
            let line = &mut lines[index];
            let text = String::from_utf8(line.clone()).unwrap_or_default();
            // Mostly inside of records: a flipped letter outside would only make the line unreadable.
            match text.split_once("\"stored_base64\":\"").filter(|_| what % 4 != 0) {
                Some((head, coded)) => {
                    let Ok(mut record) = BASE64_STANDARD.decode(coded.trim_end_matches("\"}")) else { continue };
                    let bits = record.len() * 8;
                    let bit = (what >> 2) as usize % bits;
                    record[bit / 8] ^= 1 << (bit % 8);
                    *line = format!("{head}\"stored_base64\":\"{}\"}}", BASE64_STANDARD.encode(record)).into_bytes();
                }
                None => {
                    let bit = (what >> 2) as usize % (line.len() * 8);
                    line[bit / 8] ^= 1 << (bit % 8);
                }
            }
        }
        take(&to, &lines, usize::MAX);
        contents(&to);
    }

    #[test]
    fn noise_is_no_line(noise in prop::collection::vec(any::<u8>(), 0..200), text in "\\PC{0,60}") {
        drop(read(&noise));
        drop(read(text.as_bytes()));
        drop(read(format!("{{\"queue\":\"q\",\"stored_base64\":\"{text}\"}}").as_bytes()));
    }
}

/// A key that is free from the start of a job on: after a restart the first job is ready again, and wants its key back.
#[test]
fn entries_that_held_a_key_in_turn_are_imported_both() {
    for until in [
        KeyUntil::End,
        KeyUntil::Gone,
        KeyUntil::EndOr(Timestamp::NEVER),
        KeyUntil::Start,
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (
            config(&dir.path().join("from")),
            config(&dir.path().join("to")),
        );
        let ring = Bytes::from_static(b"ring");
        let entry = |until| {
            let unique = Unique {
                key: Bytes::from_static(b"k"),
                clash: Clash::Refuse,
                until,
            };
            let new = NewJob::new(Protocol::SPIDERQ, ring.clone(), Bytes::from_static(b"same"));
            JobCommand::Push(Box::new(NewJob {
                kind: QueueKind::Cycle,
                unique: Some(unique),
                ..new
            }))
            .into()
        };
        let lease = LeaseTerms {
            connection_bound: true,
            lease_ms: None,
            on_expiry: OnExpiry::Fail,
            wish: None,
        };
        let take_one = Take {
            from: From::Cycle {
                queue: ring.clone(),
                lease,
            },
            select: Select::BestPriority,
            wait: Wait::No,
            worker: Bytes::new(),
        };
        let commands: [Command; 3] = [
            entry(KeyUntil::Start),
            TakeCommand::Take(take_one).into(),
            entry(until),
        ];
        run(
            &from,
            1,
            commands
                .into_iter()
                .map(|command| move |_: &mut Context, _: &Engine| command),
        );
        let lines = lines(&export(&from.data_dir));
        assert_eq!(take(&to, &lines, usize::MAX), vec![]);
        let before = contents(&from);
        assert_eq!(before.jobs.len(), 2, "{until:?}");
        assert_eq!(before, contents(&to));
        let again = take(&to, &lines, usize::MAX);
        assert_eq!(
            (again, contents(&to)),
            (vec![], before),
            "the record lists all lines"
        );
    }
}

/// An interruption between a commit and its record repeats lines, whose jobs may have new numbers by then.
#[test]
fn a_repeated_entry_is_imported_once() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (
        config(&dir.path().join("from")),
        config(&dir.path().join("to")),
    );
    live(&to, 1, 20);
    let unique = Unique {
        key: Bytes::from_static(b"k"),
        clash: Clash::Keep,
        until: KeyUntil::End,
    };
    let new = NewJob::new(
        Protocol::SPIDERQ,
        Bytes::from_static(b"own ring"),
        Bytes::new(),
    );
    let entry = NewJob {
        kind: QueueKind::Cycle,
        unique: Some(unique),
        ..new
    };
    let push = |_: &mut Context, _: &Engine| JobCommand::Push(Box::new(entry)).into();
    run(&from, 1, std::iter::once(push));
    let line = lines(&export(&from.data_dir))
        .into_iter()
        .find_map(|line| match read(&line) {
            Ok(line @ Line::Job(..)) => Some(line),
            _ => None,
        });
    let mut importer = Importer::open(&to, &source(), false).unwrap();
    let outcomes = [0, 1].map(|place| {
        importer
            .take_line(place, line.clone().unwrap())
            .unwrap()
            .outcome
    });
    assert_eq!(outcomes, [Outcome::Taken, Outcome::Known]);
}

#[test]
fn lines_written_by_hand() {
    let new = |line: &str| match read(line.as_bytes()) {
        Ok(Line::New(job)) => *job,
        other => panic!("{line}: {other:?}"),
    };
    let plain = new(r#"{"queue":"q","body":"hi"}"#);
    let expected = NewJob::new(
        Protocol::GEARMAN,
        Bytes::from_static(b"q"),
        Bytes::from_static(b"hi"),
    );
    assert_eq!(
        plain,
        NewJob {
            retry_default: true,
            ..expected
        }
    );
    assert_eq!(new(r#"{"queue":"q","body_base64":"aGk="}"#), plain);
    let full = new(
        r#"{"queue_base64":"/w==","origin":"eventmq","priority":9,"place":"retrying","due_at_ms":7,"failures":2,
            "ready_at_ms":5,"key":"k","name":"n","meta_base64":"bQ==","job":3,"attempts":4,"in_batch":5,"failure":"f"}"#,
    );
    assert_eq!(
        (&full.queue[..], full.protocol, full.priority),
        (&b"\xff"[..], Protocol::EVENTMQ, Priority::MAX)
    );
    let past = full.past.unwrap();
    assert_eq!(
        (past.failures, past.state),
        (2, Some(windlass_engine::JobState::Retrying(Timestamp(7))))
    );
    assert_eq!(
        new(r#"{"queue":"q","place":"scheduled","due_at_ms":9}"#).not_before,
        Some(Timestamp(9))
    );
    assert_eq!(
        new(r#"{"queue":"q","origin":3,"key":"k"}"#).kind,
        QueueKind::Cycle
    );
    assert_eq!(read(br#"{"next_number":7}"#).unwrap(), Line::NextNumber(7));
}

#[test]
fn errors_name_the_field() {
    let table = [
        ("", "not a JSON object: EOF"),
        ("[1]", "not a JSON object: another value"),
        (r#"{"queue":"q""#, "not a JSON object: EOF"),
        ("{}", "`queue` is missing"),
        (r#"{"queue":7}"#, "`queue` is not a string"),
        (
            r#"{"queue":"q","boddy":"x"}"#,
            "`boddy` is not a field of a new job",
        ),
        (
            r#"{"queue":"q","body":"x","body_base64":"eA=="}"#,
            "`body_base64` is not allowed beside",
        ),
        (
            r#"{"queue":"q","body_base64":"?"}"#,
            "`body_base64` is not base64",
        ),
        (
            r#"{"queue":"q","priority":10}"#,
            "`priority` is not a number from 1 to 9",
        ),
        (
            r#"{"queue":"q","priority":1.5}"#,
            "`priority` is not a whole number",
        ),
        (
            r#"{"queue":"q","origin":9}"#,
            "`origin` is not a number from 1 to 4",
        ),
        (
            r#"{"queue":"q","place":"done"}"#,
            "`place` is not ready, leased",
        ),
        (r#"{"queue":"q","place":"dead"}"#, "`due_at_ms` is missing"),
        (
            r#"{"schedule":1,"queue":"q"}"#,
            "`stored_base64` is missing",
        ),
        (
            r#"{"queue":"q","body":"","stored_base64":"AA=="}"#,
            "the stored record cannot be read: unknown record kind 0",
        ),
        (
            r#"{"queue":"q","body":"","stored_base64":"AwE="}"#,
            "the stored record cannot be read: it is not a job",
        ),
        (
            r#"{"queue":"q","body":"","stored_base64":"AwEDAQ=="}"#,
            "the stored record cannot be read: trailing bytes",
        ),
        (
            r#"{"queue":"q","body":"","stored_base64":""}"#,
            "`stored_base64` is missing",
        ),
    ];
    for (line, expected) in table {
        let said = read(line.as_bytes()).unwrap_err().to_string();
        assert!(said.starts_with(expected), "{line}: {said}");
    }
    let deep = "[".repeat(100_000);
    assert!(read(deep.as_bytes()).is_err());
}
