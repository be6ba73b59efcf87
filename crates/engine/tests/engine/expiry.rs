//! Scheduled jobs, which must not be taken yet, and expired jobs, which must not be taken any more.

use windlass_engine::Backoff;

use crate::common;
use crate::common::{Broker, finish, push, release, take};

#[test]
fn a_scheduled_job_is_ready_at_its_time_behind_those_before_it() {
    let mut broker = Broker::new();
    broker.says(1, push("q").not_before(2_000), ["1 new j1"]);
    assert_eq!(broker.place(1), "scheduled 2000");
    broker.says(2, take(["q"]), ["2 empty"]);
    broker.hear(1, push("q"));
    broker.is_due_at(2_000);
    broker.at(2_000, []);
    broker.hear(1, push("q"));
    assert_eq!(broker.drain("q"), [2, 1, 3]);
}

#[test]
fn jobs_due_together_come_in_order_of_time_then_birth() {
    let mut broker = Broker::new();
    for at in [3_000, 2_000, 2_000, 2_500] {
        broker.hear(1, push("q").not_before(at));
    }
    broker.at(9_000, []);
    assert_eq!(broker.drain("q"), [2, 3, 4, 1]);
}

#[test]
fn a_job_scheduled_in_the_past_is_ready_at_once() {
    for at in [0, 999, 1_000] {
        let mut broker = Broker::new();
        broker.hear(1, push("q").not_before(at));
        assert_eq!(broker.place(1), "ready", "{at}");
    }
}

#[test]
fn a_job_expires_unless_it_is_leased() {
    let table = [
        ("ready", push("q")),
        ("scheduled", push("q").not_before(9_000)),
    ];
    for (state, job) in table {
        let mut broker = Broker::new();
        broker.says(1, job.expires(2_000).listen(), ["1 new j1"]);
        assert!(broker.place(1).starts_with(state));
        broker.at(1_999, []);
        broker.at(2_000, ["1 ended j1 expired"]);
        assert_eq!(broker.place(1), "gone", "{state}");
    }
    let mut broker = Broker::new();
    broker.hear(1, push("q").expires(2_000).retry(3, Backoff::Fixed(5_000)));
    broker.says(2, take(["q"]), ["2 took j1.1"]);
    broker.says(2, common::fail(1), ["2 failed j1, retried 6000"]);
    broker.at(2_000, []);
    assert_eq!(broker.place(1), "gone", "retrying");
}

#[test]
fn a_span_outlasts_a_wrong_wall_clock_and_a_moment_of_the_calendar_does_not() {
    const HOUR_MS: i64 = 3_600_000;
    for (wrong_ms, lost) in [(HOUR_MS, vec![1]), (-HOUR_MS, vec![])] {
        let mut broker = Broker::new();
        broker.hear(1, push("q").expires(3_000));
        broker.hear(1, push("q").expires_by(3_000));
        broker.skew_ms = wrong_ms;
        broker.at(2_000, []);
        broker.skew_ms = 0;
        broker.at(2_500, []);
        let gone: Vec<u64> = [1, 2]
            .into_iter()
            .filter(|job| broker.place(*job) == "gone")
            .collect();
        assert_eq!(gone, lost, "{wrong_ms}");
        broker.at(2_999, []);
        assert_eq!(broker.place(2), "ready");
        broker.skew_ms = wrong_ms;
        broker.at(3_000, []);
        assert_eq!(broker.place(2), "gone", "{wrong_ms}");
    }
}

#[test]
fn a_job_taken_in_time_does_not_expire() {
    let mut broker = Broker::new();
    broker.hear(1, push("q").expires(2_000));
    broker.says(2, take(["q"]), ["2 took j1.1"]);
    broker.at(2_000, []);
    assert_eq!(broker.place(1), "leased");
    broker.says(2, release(1, false), ["2 done"]);
    broker.at(9_000, []);
    broker.says(3, take(["q"]), ["3 took j1.2"]);
    broker.says(3, finish(1), ["3 finished j1"]);
}

#[test]
fn a_released_job_expires_at_its_time() {
    let mut broker = Broker::new();
    broker.hear(1, push("q").expires(2_000));
    broker.says(2, take(["q"]), ["2 took j1.1"]);
    broker.says(2, release(1, false), ["2 done"]);
    broker.at(2_000, []);
    assert_eq!(broker.place(1), "gone");
}

#[test]
fn a_command_runs_everything_due_as_a_tick_does() {
    let mut broker = Broker::new();
    broker.hear(1, push("q").expires(2_000));
    broker.now = 2_000;
    broker.says(2, take(["q"]), ["2 empty"]);
}

#[test]
fn a_job_pushed_after_its_expiry_is_not_handed_out() {
    let mut broker = Broker::new();
    broker.says(2, take(["q"]).forever(), []);
    broker.says(
        1,
        push("q").expires(1_000).listen(),
        ["1 ended j1 expired", "1 new j1"],
    );
    broker.says(1, push("q").expires(1_001), ["2 took j2.1", "1 new j2"]);
}

#[test]
fn time_that_goes_back_is_ignored() {
    let mut broker = Broker::new();
    broker.at(5_000, []);
    broker.at(4_000, []);
    broker.says(1, push("q").not_before(4_500), ["1 new j1"]);
    assert_eq!(broker.place(1), "ready");
}
