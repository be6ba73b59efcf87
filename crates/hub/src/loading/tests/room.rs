//! Jobs wait for room in memory, or are refused.

use super::*;

/// Pushes jobs of these sizes as one client, whose bodies are all needed at the end.
fn pushed(bench: &mut Bench, sizes: &[usize]) -> Vec<Option<Refusal>> {
    let pushes = sizes
        .iter()
        .zip((1..=u8::MAX).cycle())
        .map(|(bytes, number)| JobCommand::Push(Box::new(job(number, *bytes))).into());
    let mut pushes: VecDeque<Item> = pushes.map(|push| Item::Command(Tag(1), push)).collect();
    let memory_max = bench.hub.with_journal(|engine, _| engine.limits().memory_max);
    while bench.visit(1, &mut pushes) == Visited::UntilRung {
        assert!(bench.resident() <= memory_max + 1_000, "what a job has beside its body comes on top");
        bench.is_rung(1);
        bench.steps();
        assert!(bench.is_rung(1), "{} jobs are left, and the client waits", pushes.len());
    }
    refusals(&bench.mail(1))
}

#[test]
fn a_job_waits_until_others_have_left_memory() {
    let table: [(&str, &[usize]); 4] = [
        ("small", &[1_000; 250]),
        ("of different sizes", &[20_000, 1_000, 30_000, 60_000, 10, 80_000, 40_000, 1_000, 90_000]),
        ("half of memory", &[50_000; 5]),
        ("nearly all", &[99_000, 99_000]),
    ];
    for (what, sizes) in table {
        let mut bench = Bench::new(100_000);
        assert_eq!(pushed(&mut bench, sizes), vec![None; sizes.len()], "{what}");
        for (bytes, number) in sizes.iter().zip(1..) {
            bench.visit(2, &mut items([take()]));
            bench.steps();
            assert_eq!(bodies(&bench.mail(2)), [Some(filled(number, *bytes))], "{what}: j{number}");
            bench.visit(2, &mut items([finish(number.into())]));
            bench.mail(2);
        }
        bench.settle();
        assert_eq!((bench.stored(), bench.resident(), bench.work.file.bytes()), ((0, 0), 0, 0), "{what}");
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
    let log = crate::testing::captured(|| assert_eq!(pushed(&mut bench, &sizes), vec![None; sizes.len()]));
    assert_eq!((bench.stored(), log.as_str()), ((0, 0), ""));
}

#[test]
fn jobs_are_refused_when_nothing_can_leave_memory() {
    // Bodies that take no memory: none can leave.
    let mut bench = Bench::new(20_000);
    let log = crate::testing::captured(|| {
        let refused = pushed(&mut bench, &[10; 100]);
        assert!(refused[..70].iter().all(Option::is_none) && refused[80..].iter().all(Option::is_some), "{refused:?}");
    });
    assert!(log.contains("no body is left that could leave it"), "{log}");
    let mut bench = Bench::new(20_000);
    let mut push = items([JobCommand::Push(Box::new(job(1, 20_001))).into()]);
    assert!(bench.visit(1, &mut push) == Visited::All);
    assert!(matches!(refusals(&bench.mail(1))[..], [Some(Refusal::Limit { .. })]), "it fits into no memory");
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
    // Large bodies take the place of others: these can leave.
    for job in 1..=40 {
        bench.visit(1, &mut items([JobCommand::Cancel(JobRef::Id(JobId(job))).into()]));
    }
    bench.mail(1);
    assert_eq!(pushed(&mut bench, &[5_000; 6]), vec![None; 6]);
    assert!(bench.stored().0 > 0);
}
