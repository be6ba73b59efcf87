//! Two clocks: durations use the engine's time, calendar times use the wall clock, even when the wall clock is set.

use windlass_engine::{
    Backoff, Change, Clock, Context, Cron, Engine, JobId, KeyUntil, Limits, OnExpiry, Proof,
    Schedule, Timestamp,
};

use crate::common;
use crate::common::{Broker, cron, every, finish_by, look, push, take};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: u64 = 24 * 3_600_000;

/// Noon of some day, by both clocks.
fn noon() -> Broker {
    let mut broker = Broker::new();
    broker.at(DAY_MS + DAY_MS / 2, []);
    broker
}

#[test]
fn a_lease_ignores_changes_of_the_wall_clock() {
    for step in [HOUR_MS, -HOUR_MS] {
        let mut broker = noon();
        let now = broker.now;
        broker.hear(1, push("q").retry(5, Backoff::Fixed(20_000)));
        broker.hear(1, take(["q"]).for_ms(600_000, OnExpiry::Fail));
        broker.skew_ms = step;
        broker.at(now + 599_999, []);
        assert_eq!(broker.place(1), format!("leased until {}", now + 600_000));
        broker.at(now + 600_000, []);
        assert_eq!(broker.place(1), format!("retrying {}", now + 620_000));
        broker.skew_ms = 0;
        broker.at(now + 619_999, []);
        assert_eq!(
            broker.place(1),
            format!("retrying {}", now + 620_000),
            "and so does the wait for the retry"
        );
        broker.at(now + 620_000, []);
        assert_eq!(broker.place(1), "ready");
    }
}

#[test]
fn calendar_times_are_due_by_the_wall_clock() {
    let mut broker = noon();
    let now = broker.now;
    broker.hear(1, push("q").not_before(now + 1_800_000));
    broker.hear(1, push("q").expires(now + 1_800_000));
    broker.is_due_at(now + 1_800_000);
    broker.skew_ms = -HOUR_MS;
    broker.at(now + 1_800_000, []);
    assert_eq!(
        (broker.place(1), broker.place(2)),
        (format!("scheduled {}", now + 1_800_000), "ready".into())
    );
    broker.is_due_at(now + 5_400_000);
    broker.skew_ms = HOUR_MS;
    broker.at(now + 1_800_001, []);
    assert_eq!(
        (broker.place(1), broker.place(2)),
        ("ready".into(), "gone".into()),
        "due at once"
    );
    // A time that is in the past by now is due immediately, too.
    broker.hear(1, push("q").not_before(now + 1_800_000));
    assert_eq!(broker.place(3), "ready");
}

#[test]
fn key_limits_and_waits_ignore_changes_of_the_wall_clock() {
    let mut broker = noon();
    let now = broker.now;
    let until = KeyUntil::EndOr(Timestamp(now + 60_000));
    let unique = || push("q").unique_until("k", windlass_engine::Clash::Refuse, until);
    broker.hear(1, unique());
    broker.says(2, take(["empty"]).until(now + 60_000), []);
    broker.skew_ms = HOUR_MS;
    broker.at(now + 59_999, []);
    broker.says(1, unique(), ["1 refused: job not unique"]);
    broker.skew_ms = -HOUR_MS;
    broker.at(now + 60_000, ["2 empty"]);
    broker.says(1, unique(), ["1 new j2"]);
}

#[test]
fn intervals_go_by_the_engine_and_cron_by_the_wall_clock() {
    let mut broker = noon();
    let now = broker.now;
    broker.hear(1, every(1_800_000, push("every")));
    broker.hear(
        1,
        cron(
            Cron {
                minutes: 1,
                ..Cron::ALWAYS
            },
            push("hourly"),
        ),
    );
    broker.skew_ms = HOUR_MS;
    broker.at(now + 1, []);
    assert_eq!(
        (broker.drain("every"), broker.drain("hourly")),
        (vec![], vec![3]),
        "one run, however many were missed"
    );
    broker.at(now + 1_800_000, []);
    assert_eq!(
        (broker.drain("every"), broker.drain("hourly")),
        (vec![4], vec![])
    );
}

/// At ten past noon a schedule has had all occurrences so far. The clock is then set back an hour.
#[test]
fn a_clock_set_back_repeats_no_single_time_and_stops_nothing() {
    let minute = |minute: i64| (DAY_MS + DAY_MS / 2).saturating_add_signed(minute * 60_000);
    let at = |minutes, hours| Cron {
        minutes,
        hours,
        ..Cron::ALWAYS
    };
    let table = [
        ("daily at noon", at(1, 1 << 12), minute(24 * 60)),
        ("hourly", at(1, (1 << 24) - 1), minute(60)),
        ("every half hour", at(1 | 1 << 30, (1 << 24) - 1), minute(0)),
        ("every minute", Cron::ALWAYS, minute(12 - 60)),
        (
            "daily at one, which is still to come",
            at(1, 1 << 13),
            minute(60),
        ),
    ];
    for (name, recurrence, expected) in table {
        let mut broker = noon();
        broker.now -= 60_000;
        broker.hear(1, cron(recurrence, push("q")));
        broker.at(minute(10), []);
        broker.skew_ms = -HOUR_MS;
        broker.at(minute(10), []);
        assert_eq!(
            common::words(&broker.hear(1, look(1))),
            [format!("1 sees s1 in q at {expected}")],
            "{name}"
        );
        broker.is_due_at(expected + 3_600_000);
    }
}

/// At ten past noon the clock is set back half an hour. The schedule waits for the second occurrence after
/// that.
#[test]
fn a_clock_set_back_journals_no_schedule_that_waits_no_longer_than_it_may() {
    let mut broker = noon();
    broker.hear(
        1,
        cron(
            Cron {
                minutes: 1 | 1 << 30,
                ..Cron::ALWAYS
            },
            push("q"),
        ),
    );
    let mut context = Context::new(Timestamp(broker.now + 600_000), 1);
    context.clock = Clock::skewed(-HOUR_MS / 2);
    broker.engine.tick(&mut context);
    assert_eq!(context.changes, [Change::Meta]);
}

#[test]
fn a_small_step_of_the_clock_repeats_no_run() {
    let mut broker = noon();
    let now = broker.now;
    broker.hear(1, cron(Cron::ALWAYS, push("q")));
    broker.at(now + 60_000, []);
    assert_eq!(broker.drain("q"), [2]);
    broker.skew_ms = -800;
    broker.at(now + 60_100, []);
    broker.is_due_at(now + 120_800);
    broker.skew_ms = -1_800;
    broker.at(now + 60_200, []);
    broker.is_due_at(now + 121_800);
    assert!(broker.drain("q").is_empty());
}

#[test]
fn a_pause_leaves_the_next_run_of_a_schedule() {
    let mut broker = noon();
    let now = broker.now;
    broker.hear(1, cron(Cron::ALWAYS, push("q")));
    let far = Timestamp(now + DAY_MS);
    let schedule = Schedule {
        id: JobId(7),
        next_at: far,
        ..broker.engine.schedule(JobId(1)).cloned().unwrap()
    };
    let mut context = Context::new(Timestamp(now), 1);
    broker
        .engine
        .adopt_schedule(schedule, &mut context)
        .unwrap();
    context.clock = Clock {
        boot: 3,
        ahead_ms: -4,
        ..Clock::skewed(0)
    };
    broker.engine.tick(&mut context);
    assert_eq!(
        broker
            .engine
            .schedule(JobId(7))
            .map(|schedule| schedule.next_at),
        Some(far)
    );
}

#[test]
fn times_are_shown_by_the_wall_clock() {
    let mut broker = noon();
    let now = broker.now;
    broker.skew_ms = HOUR_MS;
    broker.hear(1, push("q").track(9_000).retry(3, Backoff::Fixed(50)));
    let wall = Timestamp(now + 3_600_000);
    let job = |broker: &Broker| broker.engine.job(JobId(1)).cloned().unwrap();
    assert_eq!(job(&broker).ready_at, wall);
    broker.says(1, take(["q"]), ["1 took j1.1"]);
    broker.hear(1, common::fail(1));
    let extra = job(&broker).extra.unwrap();
    assert_eq!(extra.track.map(|track| track.updated_at), Some(wall));
    assert_eq!(
        extra.failure.map(|failure| (failure.at, failure.first_at)),
        Some((wall, wall))
    );
}

#[test]
fn a_step_of_the_wall_clock_is_journalled() {
    let mut engine = Engine::new(Limits::default(), 1);
    let tick = |engine: &mut Engine, now, clock| {
        let mut context = Context::new(Timestamp(now), 1);
        context.clock = clock;
        engine.tick(&mut context);
        (context.changes.len(), engine.meta().clock)
    };
    let clock = Clock {
        skew_ms: 5_000,
        boot: 3,
        ahead_ms: -4,
        at: Timestamp(0),
    };
    let kept = |clock: Clock, at| Clock {
        at: Timestamp(at),
        ..clock
    };
    assert_eq!(
        tick(&mut engine, 10, Clock::skewed(0)),
        (0, Clock::default()),
        "nothing to keep"
    );
    assert_eq!(tick(&mut engine, 20, clock), (1, kept(clock, 20)));
    assert_eq!(
        tick(
            &mut engine,
            30,
            Clock {
                skew_ms: 5_900,
                ..clock
            }
        ),
        (0, kept(clock, 20)),
        "no step"
    );
    let stepped = Clock {
        skew_ms: -5_000,
        ..clock
    };
    assert_eq!(tick(&mut engine, 40, stepped), (1, kept(stepped, 40)));
    let paused = Clock {
        ahead_ms: -3_000,
        ..stepped
    };
    assert_eq!(tick(&mut engine, 50, paused), (1, kept(paused, 50)));
    assert_eq!(
        tick(&mut engine, 60_050, paused),
        (0, kept(paused, 50)),
        "a minute old"
    );
    assert_eq!(
        tick(&mut engine, 60_051, paused),
        (0, kept(paused, 60_051)),
        "it rides with the next commit"
    );
}

#[test]
fn an_acknowledgement_by_name_may_be_late() {
    let mut broker = Broker::new();
    broker.hear(1, push("q").retry(3, Backoff::Fixed(50)));
    broker.says(
        2,
        finish_by(1, Proof::AnyLease),
        ["2 refused: lease not held"],
    );
    broker.says(
        1,
        take(["q"]).for_ms(10, OnExpiry::Fail),
        ["1 took j1.1 until 1010"],
    );
    broker.at(1_010, []);
    assert_eq!(broker.place(1), "retrying 1060");
    broker.says(2, finish_by(1, Proof::AnyLease), ["2 finished j1"]);
    assert_eq!(broker.place(1), "gone");
    // A job that was already restored is not delivered again either.
    broker.hear(1, push("q").retry(3, Backoff::None));
    broker.says(
        1,
        take(["q"]).for_ms(10, OnExpiry::Fail),
        ["1 took j2.1 until 1020"],
    );
    broker.at(1_020, []);
    assert_eq!(broker.place(2), "ready");
    broker.says(2, finish_by(2, Proof::AnyLease), ["2 finished j2"]);
    broker.says(1, take(["q"]), ["1 empty"]);
}
