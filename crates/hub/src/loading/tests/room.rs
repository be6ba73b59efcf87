//! Jobs wait for memory, or are refused.

use super::*;

/// Pushes jobs of these sizes as one client; all bodies are needed at the end.
fn pushed(bench: &mut Bench, sizes: &[usize]) -> Vec<Option<Refusal>> {
    let pushes = sizes
        .iter()
        .zip((1..=u8::MAX).cycle())
        .map(|(bytes, number)| JobCommand::Push(Box::new(job(number, *bytes))).into());
    let mut pushes: VecDeque<Item> = pushes.map(|push| Item::Command(Tag(1), push)).collect();
    let memory_max = bench
        .hub
        .with_journal(|engine, _| engine.limits().memory_max);
    while bench.visit(1, &mut pushes) == Visited::UntilRung {
        assert!(
            bench.resident() <= memory_max + 1_000,
            "what a job has beside its body comes on top"
        );
        bench.is_rung(1);
        bench.settle();
        assert!(
            bench.is_rung(1),
            "{} jobs are left, and the client waits",
            pushes.len()
        );
    }
    refusals(&bench.mail(1))
}

#[test]
fn a_job_waits_until_others_have_left_memory() {
    let table: [(&str, &[usize]); 4] = [
        ("small", &[1_000; 250]),
        (
            "of different sizes",
            &[
                20_000, 1_000, 30_000, 60_000, 10, 80_000, 40_000, 1_000, 90_000,
            ],
        ),
        ("half of memory", &[50_000; 5]),
        ("nearly all", &[99_000, 99_000]),
    ];
    for (what, sizes) in table {
        let mut bench = Bench::new(100_000);
        assert_eq!(pushed(&mut bench, sizes), vec![None; sizes.len()], "{what}");
        for (bytes, number) in sizes.iter().zip(1..) {
            bench.visit(2, &mut items([take()]));
            bench.steps();
            assert_eq!(
                bodies(&bench.mail(2)),
                [Some(filled(number, *bytes))],
                "{what}: j{number}"
            );
            bench.visit(2, &mut items([finish(number.into())]));
            bench.mail(2);
        }
        bench.settle();
        assert!(bench.resident() <= BESIDE, "{what}: {}", bench.resident());
        assert_eq!(
            (bench.stored(), bench.work.file.bytes()),
            ((0, 0), 0),
            "{what}"
        );
    }
}

#[test]
fn jobs_are_packed_when_their_bodies_have_left_memory() {
    let sizes = [200; 2_000];
    let mut bench = Bench::new(220_000);
    assert_eq!(pushed(&mut bench, &sizes), vec![None; sizes.len()]);
    assert!(bench.stored().0 > 1_500);
}

/// Bodies so short that they stay.
#[test]
fn room_is_made_by_packing_alone() {
    let sizes = [10; 2_000];
    let mut bench = Bench::new(220_000);
    let log = crate::testing::captured(|| {
        assert_eq!(pushed(&mut bench, &sizes), vec![None; sizes.len()])
    });
    assert_eq!((bench.stored(), log.as_str()), ((0, 0), ""));
}

#[test]
fn jobs_are_refused_when_nothing_can_leave_memory() {
    // Bodies that take no memory, so none can be moved.
    let mut bench = Bench::new(20_000);
    let log = crate::testing::captured(|| {
        let refused = pushed(&mut bench, &[10; 100]);
        assert!(
            refused[..70].iter().all(Option::is_none) && refused[80..].iter().all(Option::is_some),
            "{refused:?}"
        );
    });
    assert!(log.contains("no body is left that could leave it"), "{log}");
    let mut bench = Bench::new(20_000);
    let mut push = items([JobCommand::Push(Box::new(job(1, 30_000))).into()]);
    assert!(bench.visit(1, &mut push) == Visited::All);
    assert!(
        matches!(refusals(&bench.mail(1))[..], [Some(Refusal::Limit { .. })]),
        "it fits into no memory"
    );
    bench.steps();
}

#[test]
fn after_a_pause_the_thread_looks_again_whether_bodies_can_leave() {
    let mut bench = Bench::new(20_000);
    pushed(&mut bench, &[10; 100]);
    assert!(!bench.hub.loading.makes_room());
    bench.work.stuck_until = Some(Instant::now());
    bench.steps();
    assert!(bench.hub.loading.makes_room());
    // Large bodies replace others: these can be moved.
    for job in 1..=40 {
        bench.visit(
            1,
            &mut items([JobCommand::Cancel(JobRef::Id(JobId(job))).into()]),
        );
    }
    bench.mail(1);
    assert_eq!(pushed(&mut bench, &[5_000; 6]), vec![None; 6]);
    assert!(bench.stored().0 > 0);
}

#[test]
fn room_for_a_large_body_is_made_of_many_small_ones() {
    let mut bench = Bench::new(13 << 20);
    let sizes = [vec![1 << 20; 12], vec![11 << 20]].concat();
    assert_eq!(pushed(&mut bench, &sizes), vec![None; sizes.len()]);
}

/// A load without a client, as for a job that is needed soon.
fn ahead(bench: &Bench, job: u64) -> Load {
    let job = JobId(job);
    let from = bench
        .hub
        .with_journal(|engine, _| engine.job(job).and_then(|job| job.payload.stored()))
        .unwrap();
    Load {
        job,
        from,
        who: None,
        is_for_mail: false,
    }
}

#[test]
fn loads_come_before_room_unless_memory_is_full() {
    for (left, stored, waits) in [(100, 1, true), (-100, 4, false)] {
        let mut bench = Bench::with_cold_jobs(1);
        (2..=4).for_each(|number| drop(bench.run(1, push(number))));
        bench.commit();
        let memory_max = bench.resident().saturating_add_signed(left);
        bench.hub.with_journal(|engine, _| {
            engine.set_limits(Limits {
                memory_max,
                ..Limits::default()
            })
        });
        bench.hub.loading.load(vec![ahead(&bench, 1)]);
        bench.work.make_room();
        let is_short = bench.hub.loading.lock().is_short;
        assert_eq!(
            (bench.stored().0, is_short),
            (stored, waits),
            "{left} bytes are left"
        );
    }
}

/// Loads what is requested. No memory is freed yet.
fn load_all(bench: &mut Bench) {
    let loads = std::mem::take(&mut bench.hub.loading.lock().loads);
    bench.work.load(loads);
}

#[test]
fn what_is_needed_soon_is_loaded_as_far_as_there_is_room() {
    let mut bench = Bench::with_cold_jobs(50);
    // The engine's search opens the page of packed jobs, as the take will.
    bench
        .hub
        .with_journal(|engine, _| assert!(engine.job(JobId(1)).is_some()));
    let memory_max = (bench.resident() + 3_500) * 4 / 3;
    bench.hub.with_journal(|engine, _| {
        engine.set_limits(Limits {
            memory_max,
            ..Limits::default()
        })
    });
    bench.visit(2, &mut items([take()]));
    load_all(&mut bench);
    assert!(
        (42..=48).contains(&bench.stored().0),
        "{} of 50 are left",
        bench.stored().0
    );
}

#[test]
fn without_room_mail_gets_its_bodies_past_the_engine_and_a_command_through_it() {
    let short = || {
        let bench = Bench::with_cold_jobs(20);
        bench.hub.with_journal(|engine, _| {
            engine.set_limits(Limits {
                memory_max: 1_000,
                ..Limits::default()
            })
        });
        bench
    };
    let mut bench = short();
    bench.visit(2, &mut items([list(Vec::new())]));
    load_all(&mut bench);
    assert_eq!((bench.stored().0, bench.mail(2).len()), (20, 1));
    let mut bench = short();
    let mut command = items([with_text(7)]);
    assert!(bench.visit(2, &mut command) == Visited::UntilRung);
    load_all(&mut bench);
    assert!(bench.visit(2, &mut command) == Visited::All);
}

#[test]
fn room_is_made_before_memory_is_full() {
    let mut bench = Bench::new(100_000);
    let most = (100_000 + BESIDE) * 3 / 4;
    while bench.resident() <= most + 1_000 {
        bench.run(1, push(1));
        commit(&bench.hub);
    }
    assert_eq!(bench.stored().0, 0);
    bench.steps();
    assert!(
        bench.resident() <= most && bench.stored().0 > 0,
        "{} bytes",
        bench.resident()
    );
}

#[test]
fn a_few_bodies_stay_however_full_memory_is() {
    let mut bench = Bench::with_cold_jobs(250);
    bench
        .hub
        .with_journal(|engine, _| assert!(engine.job(JobId(1)).is_some()));
    let memory_max = bench.resident() * 11 / 10;
    bench.hub.with_journal(|engine, _| {
        engine.set_limits(Limits {
            memory_max,
            ..Limits::default()
        })
    });
    bench.run(1, JobCommand::Push(Box::new(job(1, 100))).into());
    bench.steps();
    assert_eq!(bench.stored().0, 250);
}

/// A hub with its thread, and the replies to a client that pushes jobs of this size until
/// `is_enough`.
fn with_thread(
    memory_max: u64,
    bytes: usize,
    is_enough: impl Fn(&Hub, &[Event]) -> bool,
) -> (Arc<Hub>, Loader) {
    let limits = Limits {
        memory_max,
        ..Limits::default()
    };
    let hub = Arc::new(Hub::new(
        Engine::new(limits, 7),
        Journal::new(),
        Durability::Soon,
        7,
    ));
    let loader = Loader::start(Arc::clone(&hub), body_file()).unwrap();
    let mailbox = Arc::new(Mailbox::new(usize::MAX, Arc::clone(&hub.budget), nowhere()));
    hub.open(ClientId(1), Arc::clone(&mailbox));
    let (mut jobs, mut events) = (
        items([ClientCommand::Open(ClientInfo::default()).into()]),
        Vec::new(),
    );
    while !is_enough(&hub, &events) {
        jobs.push_back(Item::Command(
            Tag(1),
            JobCommand::Push(Box::new(job(1, bytes))).into(),
        ));
        hub.visit_one(ClientId(1), &clock::read(), &mut jobs, usize::MAX);
        let mut mail = Vec::new();
        hub.mail(&mailbox, usize::MAX, &mut mail);
        commit(&hub);
        events.extend(mail.into_iter().filter_map(|it| {
            if let Mail::Event(event) = it {
                Some(event)
            } else {
                None
            }
        }));
        thread::yield_now();
    }
    (hub, loader)
}

#[test]
fn a_thread_that_could_make_no_room_looks_again_by_itself() {
    // Memory cannot be freed when a job is refused.
    let (hub, _loader) = with_thread(20_000, 10, |_, events| {
        refusals(events).iter().any(Option::is_some)
    });
    while !hub.loading.makes_room() {
        thread::yield_now();
    }
}

#[test]
fn the_thread_is_woken_before_memory_is_full() {
    let resident = |hub: &Hub| hub.with_journal(|engine, _| engine.resident_bytes());
    let (hub, _loader) = with_thread(100_000, BODY, |hub, _| resident(hub) > 75_000);
    while hub.with_journal(|engine, _| engine.stored().0) == 0 {
        thread::yield_now();
    }
}

#[test]
fn a_question_of_the_daemon_itself_does_not_wait_for_bodies() {
    let bench = Bench::with_cold_jobs(1);
    assert!(matches!(
        bench.hub.ask(list(Vec::new())),
        Err(Refusal::Unknown)
    ));
    assert!(matches!(
        bench.hub.ask(Query::Stats.into()),
        Ok(Reply::Stats(_))
    ));
}
