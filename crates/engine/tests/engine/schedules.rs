//! Schedules: set, replaced, pushed on the grid, late, rejected, and finished.

use windlass_engine::{
    Backoff, Clash, Command, Cron, Cursor, EARLIER_RUNS_MAX, Event, Filter, JobCommand, JobId,
    JobRef, JobStateKind, KeyUntil, Mutation, Priority, Protocol, Query, QueueCommand, QueueKind,
    Recurrence, Reply, RunEnd, ScheduleCommand, ScheduleRef, Timestamp, Zone,
};

use crate::common::{
    Broker, cron, every, fail, finish, limit, list_schedules, look, mutate, name, placed, push,
    remove_keyed, remove_schedule, take,
};

#[test]
fn a_schedule_runs_on_its_grid() {
    let mut broker = Broker::new();
    broker.says(1, every(500, push("q").priority(9)), ["1 schedule s1"]);
    broker.says(1, look(1), ["1 sees s1 in q at 1500"]);
    broker.is_due_at(1_500);
    broker.at(1_499, []);
    assert_eq!(broker.place(2), "gone");
    broker.at(1_500, []);
    assert_eq!(broker.place(2), "ready");
    assert_eq!(
        broker.engine.job(JobId(2)).map(|job| job.priority),
        Some(Priority::MAX)
    );
    broker.is_due_at(2_000);
    broker.at(2_000, []);
    assert_eq!(broker.drain("q"), [2, 3]);
    broker.says(1, look(1), ["1 sees s1 in q at 2500"]);
}

#[test]
fn a_late_schedule_runs_once_and_keeps_its_grid() {
    let mut broker = Broker::new();
    broker.hear(1, every(500, push("q")));
    broker.at(9_750, []);
    assert_eq!(broker.drain("q"), [2]);
    broker.is_due_at(10_000);
    let minutely = Cron {
        hours: 0b111,
        ..Cron::ALWAYS
    };
    broker.hear(1, cron(minutely, push("c")));
    broker.at(185 * 60_000 + 7, []);
    assert_eq!(broker.drain("c"), [5], "after j4 of the first schedule");
    broker.says(1, remove_schedule(1), ["1 done"]);
    broker.is_due_at(24 * 3_600_000);
}

fn run(schedule: u64) -> Command {
    Command::Schedule(ScheduleCommand::Run(ScheduleRef::Id(JobId(schedule))))
}

fn one(job: u64) -> Filter {
    Filter {
        ids: vec![JobId(job)],
        ..Filter::default()
    }
}

fn pause(schedule: u64, paused: bool) -> Command {
    Command::Schedule(ScheduleCommand::Pause {
        schedule: ScheduleRef::Id(JobId(schedule)),
        paused,
    })
}

#[test]
fn a_run_out_of_turn_changes_no_times() {
    let mut broker = Broker::new();
    broker.hear(1, every(500, push("q")).runs(2));
    broker.says(1, run(1), ["1 new j2"]);
    broker.says(1, look(1), ["1 sees s1 in q at 1500, 2 left"]);
    broker.says(1, run(9), ["1 refused: schedule unknown"]);
    assert_eq!(broker.drain("q"), [2]);
}

#[test]
fn a_paused_schedule_does_not_run_and_keeps_its_grid() {
    let mut broker = Broker::new();
    broker.hear(1, every(500, push("q")).key("k"));
    broker.says(1, pause(1, true), ["1 done"]);
    broker.says(1, pause(1, true), ["1 done"]);
    assert_eq!(broker.engine.next_deadline(), None);
    broker.at(9_750, []);
    broker.says(
        1,
        every(500, push("q")).key("k").keep_grid(),
        ["1 schedule s1 replaced"],
    );
    assert!(
        broker
            .engine
            .schedule(JobId(1))
            .is_some_and(windlass_engine::Schedule::is_paused)
    );
    broker.says(1, pause(1, false), ["1 done"]);
    broker.says(1, look(1), ["1 sees s1 in q at 10000"]);
    broker.says(1, pause(1, false), ["1 done"]);
    broker.at(10_000, []);
    assert_eq!(broker.drain("q"), [2]);
    broker.says(1, pause(9, true), ["1 refused: schedule unknown"]);
}

#[test]
fn a_waiting_client_gets_the_job_of_a_run() {
    let mut broker = Broker::new();
    broker.says(2, take(["q"]).forever(), []);
    broker.hear(1, every(500, push("q")));
    broker.at(1_500, ["2 took j2.1"]);
    broker.says(2, finish(2), ["2 finished j2"]);
}

#[test]
fn a_run_at_once_counts_as_a_run() {
    let mut broker = Broker::new();
    broker.says(
        1,
        every(500, push("q")).at_once().runs(2),
        ["1 schedule s1"],
    );
    broker.is_due_at(1_000);
    broker.at(1_000, []);
    broker.says(1, look(1), ["1 sees s1 in q at 1500, 1 left"]);
    broker.at(1_500, []);
    broker.says(1, look(1), ["1 sees nothing"]);
    assert_eq!(
        (broker.engine.next_deadline(), broker.drain("q")),
        (None, vec![2, 3])
    );
}

#[test]
fn setting_a_schedule_again_replaces_it() {
    let mut broker = Broker::new();
    broker.says(1, every(500, push("q")).key("k"), ["1 schedule s1"]);
    broker.now = 1_200;
    broker.says(
        1,
        every(500, push("other")).key("k"),
        ["1 schedule s1 replaced"],
    );
    broker.says(1, look(1), ["1 sees s1 in other at 1700"]);
    let foreign = every(500, push("q").with(|job| job.protocol = Protocol::FAKTORY)).key("k");
    broker.says(1, foreign, ["1 schedule s2"]);
    broker.says(1, every(500, push("q")), ["1 schedule s3"]);
    broker.says(1, remove_keyed("k"), ["1 done"]);
    broker.says(1, remove_keyed("k"), ["1 refused: schedule unknown"]);
    broker.says(1, every(500, push("q")).key("k"), ["1 schedule s4"]);
    broker.says(1, list_schedules(0, 9), ["1 schedules s2 s3 s4"]);
}

#[test]
fn a_grid_can_be_kept() {
    let mut broker = Broker::new();
    broker.hear(1, every(500, push("q")).key("k"));
    broker.at(1_750, []);
    broker.says(
        1,
        every(500, push("r")).key("k").keep_grid().at_once().runs(7),
        ["1 schedule s1 replaced"],
    );
    broker.says(1, look(1), ["1 sees s1 in r at 2000, 7 left"]);
    broker.says(
        1,
        every(300, push("r")).key("k").keep_grid(),
        ["1 schedule s1 replaced"],
    );
    broker.says(1, look(1), ["1 sees s1 in r at 2050"]);
    broker.says(
        1,
        every(300, push("r")).key("k"),
        ["1 schedule s1 replaced"],
    );
    broker.now = 1_850;
    broker.says(
        1,
        every(300, push("r")).key("k"),
        ["1 schedule s1 replaced"],
    );
    broker.says(1, look(1), ["1 sees s1 in r at 2150"]);
}

#[test]
fn runs_coalesce_as_the_template_says() {
    for clash in [Clash::Attach, Clash::Keep, Clash::Refuse] {
        let mut broker = Broker::new();
        broker.hear(1, every(500, push("q").unique("u", clash)).runs(3));
        broker.at(1_500, []);
        broker.at(2_000, []);
        let left = if clash == Clash::Refuse { 2 } else { 1 };
        broker.says(
            1,
            look(1),
            [format!("1 sees s1 in q at 2500, {left} left").as_str()],
        );
        assert_eq!(broker.drain("q"), [2], "{clash:?}");
        broker.at(2_500, []);
        assert_eq!(broker.drain("q"), [3], "{clash:?}");
    }
}

#[test]
fn a_refused_run_is_skipped() {
    let mut broker = Broker::limited(|limits| limits.jobs_max = 1);
    broker.hear(1, every(500, push("q")).runs(1));
    broker.hear(1, push("other"));
    broker.at(1_600, []);
    broker.says(1, look(1), ["1 sees s1 in q at 2000, 1 left"]);
    assert_eq!(broker.drain("other"), [2]);
    broker.at(2_000, []);
    assert_eq!(broker.drain("q"), [3]);
    broker.says(1, look(1), ["1 sees nothing"]);
}

#[test]
fn times_in_the_template_are_counted_from_the_run() {
    let mut broker = Broker::new();
    let template = push("q").not_before(200).expires(300).unique_until(
        "u",
        Clash::Keep,
        KeyUntil::EndOr(Timestamp(100)),
    );
    broker.hear(1, every(500, template));
    broker.at(1_500, []);
    assert_eq!(broker.place(2), "scheduled 1700");
    broker.says(1, push("q").unique("u", Clash::Keep), ["1 kept j2"]);
    broker.at(1_600, []);
    broker.says(1, push("q").unique("u", Clash::Keep), ["1 new j3"]);
    broker.at(1_800, []);
    assert_eq!(broker.place(2), "gone");
}

#[test]
fn impossible_schedules_are_refused() {
    let mut broker = Broker::limited(|limits| {
        (
            limits.schedules_max,
            limits.name_bytes_max,
            limits.jobs_bytes_max,
        ) = (1, 8, 3_000);
    });
    let never = Cron {
        days: 1 << 31,
        months: 1 << 2,
        ..Cron::ALWAYS
    };
    broker.says(
        1,
        cron(never, push("q")),
        ["1 refused: schedule never comes due"],
    );
    broker.says(
        1,
        every(0, push("q")),
        ["1 refused: schedule never comes due"],
    );
    broker.says(
        1,
        every(5, push("q")).runs(0),
        ["1 refused: schedule never comes due"],
    );
    broker.says(
        1,
        every(5, push("q").listen()),
        ["1 refused: not allowed in this state"],
    );
    broker.says(
        1,
        every(5, push("q").with(|job| job.durable = false)),
        ["1 refused: not allowed in this state"],
    );
    broker.says(
        1,
        every(5, push("a long name")),
        ["1 refused: name of 11 bytes, limit 8"],
    );
    broker.says(
        1,
        every(5, push("q")).key("a long name"),
        ["1 refused: name of 11 bytes, limit 8"],
    );
    let large = every(
        5_000,
        push("q").with(|job| job.body = vec![7; 3_001].into()),
    );
    broker.says(
        1,
        large,
        ["1 refused: daemon is full: bytes of jobs 0, limit 3000"],
    );
    assert_eq!(
        (
            broker.engine.queues().count(),
            broker.engine.next_deadline()
        ),
        (0, None)
    );

    broker.says(1, every(5_000, push("q")).key("k"), ["1 schedule s1"]);
    broker.says(
        1,
        every(5_000, push("q")),
        ["1 refused: limit of schedules reached: 1"],
    );
    let large = every(
        5_000,
        push("q").with(|job| job.body = vec![7; 2_000].into()),
    )
    .key("k");
    broker.says(1, large, ["1 schedule s1 replaced"]);
    broker.says(
        1,
        push("q").with(|job| job.body = vec![7; 2_000].into()),
        ["1 refused: daemon is full: bytes of jobs 2610, limit 3000"],
    );
    broker.hear(
        1,
        QueueCommand::Create {
            queue: "ring".into(),
            kind: QueueKind::Cycle,
        },
    );
    broker.says(
        1,
        every(5_000, push("ring")).key("k"),
        ["1 refused: queue of the other kind"],
    );
    broker.says(1, look(1), ["1 sees s1 in q at 6000"]);
    broker.says(1, remove_schedule(7), ["1 refused: schedule unknown"]);
}

#[test]
fn a_recurrence_in_a_zone_needs_a_time_that_comes_and_a_known_zone() {
    let never = Cron {
        days: 1 << 31,
        months: 1 << 2,
        ..Cron::ALWAYS
    };
    let berlin = Zone::named("Europe/Berlin").unwrap();
    for (cron, zone, happens) in [
        (Cron::ALWAYS, berlin, true),
        (never, berlin, false),
        (Cron::ALWAYS, Zone::UNKNOWN, false),
    ] {
        assert_eq!(
            Recurrence::Zoned(cron, zone).happens(),
            happens,
            "{cron} in {zone:?}"
        );
    }
}

#[test]
fn jobs_and_schedules_share_no_number() {
    let mut broker = Broker::new();
    broker.hear(1, every(500, push("q")));
    broker.says(
        1,
        Command::Job(JobCommand::Cancel(JobRef::Id(JobId(1)))),
        ["1 refused: job unknown"],
    );
    broker.hear(1, push("q"));
    broker.says(1, remove_schedule(2), ["1 refused: schedule unknown"]);
    broker.says(1, look(2), ["1 sees j2 ready in q"]);
}

#[test]
fn removing_a_schedule_leaves_its_jobs() {
    let mut broker = Broker::new();
    broker.hear(1, every(500, push("q")));
    broker.at(1_500, []);
    broker.says(1, remove_schedule(1), ["1 done"]);
    assert_eq!(broker.engine.next_deadline(), None);
    assert_eq!(broker.drain("q"), [2]);
}

#[test]
fn schedules_are_listed_in_pages() {
    let mut broker = Broker::limited(|limits| limits.page_max = 2);
    for n in 1..=3 {
        let protocol = if n == 2 {
            Protocol::FAKTORY
        } else {
            Protocol::GEARMAN
        };
        broker.hear(1, every(500, push("q").with(|job| job.protocol = protocol)));
    }
    broker.says(1, list_schedules(0, 100), ["1 schedules s1 s2 and more"]);
    broker.says(1, list_schedules(3, 100), ["1 schedules s3"]);
    let mine = |after| {
        Command::Query(Query::Schedules {
            protocol: Some(Protocol::FAKTORY),
            after: Cursor(after, 0),
            limit: 2,
        })
    };
    broker.says(1, mine(0), ["1 schedules s2 and more"]);
    broker.says(1, mine(3), ["1 schedules"]);
}

#[test]
fn a_queue_that_was_removed_comes_back_with_the_next_run() {
    let mut broker = Broker::new();
    broker.hear(1, every(500, push("q")));
    broker.says(
        1,
        Command::Queue(QueueCommand::Remove {
            queue: "q".into(),
            only_idle: true,
        }),
        ["1 done"],
    );
    broker.at(1_500, []);
    assert_eq!(broker.drain("q"), [2]);
}

#[test]
fn a_schedule_is_recalled_as_it_was() {
    let mut broker = Broker::new();
    broker.hear(1, every(500, push("q")).key("k").runs(3));
    let kept = broker.engine.schedule(JobId(1)).cloned().unwrap();
    let mut after = Broker::new();
    assert!(after.engine.recall_schedule(kept.clone()));
    assert!(
        !after.engine.recall_schedule(kept.clone()),
        "its number is taken"
    );
    let namesake = windlass_engine::Schedule {
        id: JobId(9),
        ..kept.clone()
    };
    assert!(!after.engine.recall_schedule(namesake), "its name is taken");
    assert_eq!(after.engine.schedule(JobId(1)), Some(&kept));
    after.at(7_100, []);
    assert_eq!(after.drain("q"), [2], "a number of its own");
    after.says(1, look(1), ["1 sees s1 in q at 7500, 2 left"]);
}

#[test]
fn a_schedule_stops_at_the_end_of_time() {
    let mut broker = Broker::new();
    broker.now = u64::MAX - 10;
    broker.hear(1, every(100, push("q")).at_once());
    broker.hear(1, cron(Cron::ALWAYS, push("q")));
    broker.now = u64::MAX;
    broker.at(u64::MAX, []);
    assert_eq!(broker.drain("q"), [2]);
    assert_eq!(broker.engine.next_deadline(), None);
}

#[test]
fn a_schedule_knows_its_last_run_and_what_became_of_its_job() {
    let last = |broker: &mut Broker| {
        let events = broker.hear(1, look(1));
        let [
            (
                _,
                Event::Reply(
                    _,
                    Reply::Looked {
                        schedule: Some(schedule),
                        ..
                    },
                ),
            ),
        ] = &events[..]
        else {
            panic!()
        };
        let listed = broker.hear(1, list_schedules(0, 9));
        let [(_, Event::Reply(_, Reply::Schedules { rows, .. }))] = &listed[..] else {
            panic!()
        };
        assert_eq!(rows[0].last, schedule.last);
        schedule
            .last
            .as_ref()
            .map(|last| (last.at.0, last.job.0, last.end))
    };
    let mut broker = Broker::new();
    broker.hear(1, every(500, push("q").retry(-1, Backoff::None)));
    assert_eq!(last(&mut broker), None);
    broker.at(1_500, []);
    assert_eq!(last(&mut broker), Some((1_500, 2, RunEnd::Unserved)));
    broker.hear(2, take(["q"]));
    assert_eq!(
        last(&mut broker),
        Some((1_500, 2, RunEnd::In(JobStateKind::Leased)))
    );
    broker.hear(2, finish(2));
    assert_eq!(last(&mut broker), Some((1_500, 2, RunEnd::Done)));
    // The job dies, an operator retries it, and it succeeds.
    broker.at(2_000, []);
    broker.hear(2, take(["q"]));
    broker.hear(2, fail(3));
    assert_eq!(last(&mut broker), Some((2_000, 3, RunEnd::Dead)));
    broker.hear(1, mutate(placed(JobStateKind::Dead), Mutation::Requeue));
    assert_eq!(
        last(&mut broker),
        Some((2_000, 3, RunEnd::In(JobStateKind::Ready))),
        "client 2 has just taken from q"
    );
    assert_eq!(broker.drain("q"), [3]);
    assert_eq!(last(&mut broker), Some((2_000, 3, RunEnd::Done)));
    // A manual run is recorded like any other. An operator removes the job.
    broker.says(1, run(1), ["1 new j4"]);
    broker.hear(1, mutate(placed(JobStateKind::Ready), Mutation::Discard));
    assert_eq!(last(&mut broker), Some((2_000, 4, RunEnd::Forgotten)));
    // A rejected run is not recorded.
    broker.hear(1, limit("q", 0));
    broker.at(2_500, []);
    assert_eq!(last(&mut broker), Some((2_000, 4, RunEnd::Forgotten)));
    broker.engine.check();
}

#[test]
fn a_schedule_knows_which_earlier_runs_still_wait() {
    let earlier = |broker: &mut Broker| {
        let events = broker.hear(1, look(1));
        let [
            (
                _,
                Event::Reply(
                    _,
                    Reply::Looked {
                        schedule: Some(schedule),
                        ..
                    },
                ),
            ),
        ] = &events[..]
        else {
            panic!()
        };
        schedule
            .last
            .as_ref()
            .unwrap()
            .earlier
            .iter()
            .map(|id| id.0)
            .collect::<Vec<_>>()
    };
    let mut broker = Broker::new();
    broker.hear(1, every(500, push("q")));
    for at in [1_500, 2_000, 2_500, 3_000] {
        broker.at(at, []);
    }
    assert_eq!(earlier(&mut broker), [2, 3, 4], "j5 is the last run");
    broker.hear(2, take(["q"]));
    assert_eq!(earlier(&mut broker), [3, 4], "j2 is worked on");
    // It is ready again. Finished jobs do not reappear.
    broker.hear(1, mutate(placed(JobStateKind::Leased), Mutation::Release));
    broker.hear(1, mutate(one(3), Mutation::Discard));
    broker.hear(1, mutate(one(4), Mutation::Kill));
    broker.at(3_500, []);
    assert_eq!(earlier(&mut broker), [2, 5]);
    broker.hear(1, mutate(one(4), Mutation::Requeue));
    assert_eq!(earlier(&mut broker), [2, 5]);
    for run in 1..=EARLIER_RUNS_MAX as u64 {
        broker.at(3_500 + run * 500, []);
    }
    let seen = earlier(&mut broker);
    assert_eq!(
        (seen.len(), seen[0]),
        (EARLIER_RUNS_MAX, 6),
        "the oldest are forgotten"
    );
    // If another job has the key, that job is recorded as the run's job, and not as a previous one.
    broker.hear(
        1,
        every(500, push("k").unique("k", Clash::Attach)).key("keyed"),
    );
    broker.at(60_000, []);
    broker.at(60_500, []);
    let keyed = broker
        .engine
        .schedules()
        .last()
        .and_then(|it| it.last.clone())
        .unwrap();
    assert_eq!((keyed.earlier.len(), keyed.end), (0, RunEnd::Running));
    broker.engine.check();
}

#[test]
fn a_job_that_two_schedules_share_ends_for_both() {
    let mut broker = Broker::new();
    for name in ["a", "b"] {
        let job = push("q").retry(0, Backoff::None).unique("k", Clash::Attach);
        broker.hear(1, every(500, job).key(name));
    }
    broker.at(1_500, []);
    broker.hear(2, take(["q"]));
    broker.hear(2, fail(3));
    let ends: Vec<_> = broker
        .engine
        .schedules()
        .map(|it| it.last.as_ref().map(|last| (last.job.0, last.end)))
        .collect();
    assert_eq!(ends, [Some((3, RunEnd::Failed)); 2]);
    broker.says(1, remove_schedule(1), ["1 done"]);
    broker.engine.check();
}

#[test]
fn a_run_that_fell_due_before_the_first_visit_is_made_up_for_unless_its_schedule_skips_it() {
    let mut broker = Broker::new();
    broker.hear(1, every(1_000, push("q")).key("once"));
    broker.hear(1, every(1_000, push("q")).key("skip"));
    let schedules: Vec<_> = broker.engine.schedules().cloned().collect();
    let mut engine = windlass_engine::Engine::new(windlass_engine::Limits::default(), 1);
    engine.recall_meta(broker.engine.meta().clone(), true);
    broker
        .engine
        .queues()
        .for_each(|queue| engine.recall_queue(queue.image().clone()));
    schedules
        .into_iter()
        .for_each(|schedule| assert!(engine.recall_schedule(schedule)));
    engine.wake_up();
    let protocol = broker.engine.schedules().next().unwrap().job.protocol;
    engine.skip_missed([(protocol, name("skip"))].into());
    broker.engine = engine;
    broker.at(4_500, []);
    assert_eq!(broker.engine.job_count(), 1);
    // Occurrences after that are pushed.
    broker.at(5_000, []);
    assert_eq!(broker.engine.job_count(), 3);
}
