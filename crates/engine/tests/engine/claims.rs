//! An engine with a predecessor: nothing is delivered for a while, and clients claim their previous state.

use bytes::Bytes;
use windlass_engine::{
    Claim, Clash, ClientCommand, ClientId, ClientInfo, Command, Context, Engine, Held, JobId,
    JobRef, LeaseCommand, Limits, NewJob, OnExpiry, Proof, Protocol, Tag, TakeCommand, Timestamp,
    Token,
};

use crate::common::{
    Broker, Push, credit, finish, push, release, serve, serve_on, take, take_served, throttle,
    timed, words,
};

/// The first number that a successor without jobs gives.
const FIRST: u64 = (1 << 20) + 1;

/// Recovered with these jobs, and from 1,000 ms on the successor of another engine. The grace is over at
/// 3,000 ms.
fn successor<const N: usize>(jobs: [Push; N]) -> Broker {
    let mut broker = Broker::new();
    for job in jobs {
        broker.hear(4, job);
    }
    succeed(&mut broker);
    broker
}

fn succeed(broker: &mut Broker) {
    let mut context = Context::new(Timestamp(1_000), 1);
    broker.engine.succeed(&mut context);
    assert!(!context.changes.is_empty(), "the journal has the numbers");
    broker.engine.end_grace_at(Timestamp(3_000));
}

fn claim(claim: Claim) -> Command {
    Command::Claim(Box::new(claim))
}

fn held(token: u64, until: u64, name: &'static str) -> Held {
    let (queue, key) = (Bytes::from_static(b"q"), Bytes::new());
    Held {
        token: Token(token),
        until: Timestamp(until),
        protocol: Protocol::GEARMAN,
        queue,
        name: name.into(),
        key,
    }
}

fn holds(job: u64, token: u64) -> Command {
    claim(Claim::Holds {
        job: JobId(job),
        held: held(token, u64::MAX, ""),
    })
}

fn hears(job: u64) -> Command {
    claim(Claim::Hears { job: JobId(job) })
}

fn pushed(job: u64, push: Push) -> Command {
    let new: Box<NewJob> = Box::new(push.0);
    claim(Claim::Pushed {
        job: JobId(job),
        new,
    })
}

fn foreground() -> Push {
    push("q").foreground()
}

// ---- the grace -----------------------------------------------------------------------------------------------------

#[test]
fn requests_for_work_wait_for_the_end_of_the_grace_and_have_their_turns() {
    let mut broker = successor([push("q"), push("q")]);
    broker.says(1, serve("q"), []);
    broker.says(1, Command::Take(TakeCommand::WaitForWork), []);
    broker.says(2, take(["q"]), []);
    broker.says(3, take(["q"]), []);
    broker.says(3, take(["q"]), []);
    broker.says(4, push("q"), [format!("4 new j{}", FIRST + 2).as_str()]);
    broker.is_due_at(3_000);
    broker.at(2_999, []);
    broker.at(
        3_000,
        ["1 woken", "2 took j1.1", "3 took j2.1", "3 took j1048579.1"],
    );
    broker.says(1, take_served(), ["1 empty"]);
}

#[test]
fn a_request_that_comes_after_the_grace_waits_behind_those_before() {
    let mut broker = successor([push("q")]);
    broker.says(1, take(["q"]), []);
    broker.now = 3_000;
    broker.says(2, take(["q"]), ["1 took j1.1", "2 empty"]);
}

#[test]
fn what_has_waited_is_done_page_by_page() {
    let mut broker = Broker::limited(|limits| limits.page_max = 2);
    let mut context = Context::new(Timestamp(1_000), 1);
    broker.engine.succeed(&mut context);
    (0..5).for_each(|_| broker.says(1, take(["q"]), []));
    broker.at(9_000, []);
    broker.engine.end_grace_at(Timestamp(9_000));
    broker.at(9_000, ["1 empty", "1 empty"]);
    broker.is_due_at(9_000);
    broker.says(2, take(["q"]), ["1 empty", "1 empty"]);
    broker.at(9_000, ["1 empty", "2 empty"]);
    broker.says(2, take(["q"]), ["2 empty"]);
}

#[test]
fn who_withdraws_or_leaves_asks_no_more() {
    let mut broker = successor([push("q")]);
    broker.says(1, take(["q"]), []);
    broker.says(1, Command::Take(TakeCommand::Unwait), []);
    broker.says(2, take(["q"]), []);
    broker.says(2, ClientCommand::Close, []);
    broker.says(3, serve("q"), []);
    broker.says(3, credit(1), []);
    broker.at(3_000, ["3 took j1.1"]);
}

// ---- leases --------------------------------------------------------------------------------------------------------

#[test]
fn a_claimed_job_is_leased_again_under_its_token() {
    let mut broker = successor([push("q")]);
    broker.says(1, take(["q"]), []);
    broker.says(2, holds(1, 3), []);
    assert_eq!(broker.place(1), "leased");
    broker.at(3_000, ["1 empty"]);
    broker.says(2, finish(1), ["2 finished j1"]);
}

#[test]
fn a_claimed_job_whose_worker_leaves_is_delivered_under_a_higher_token() {
    let mut broker = successor([push("q")]);
    broker.says(2, holds(1, 3), []);
    broker.says(2, ClientCommand::Close, []);
    broker.says(1, take(["q"]), []);
    broker.at(3_000, ["1 took j1.4"]);
}

#[test]
fn of_two_claims_the_higher_token_counts() {
    let (earlier, later) = (Token::of(1, 5).0, Token::of(2, 1).0);
    let table = [
        (2, 3, 2),
        (3, 2, 1),
        (3, 3, 2),
        (earlier, later, 2),
        (later, earlier, 1),
    ];
    for (first, second, holder) in table {
        let mut broker = successor([push("q")]);
        broker.says(1, holds(1, first), []);
        broker.says(2, holds(1, second), []);
        broker.says(
            3 - holder,
            finish(1),
            [format!("{} refused: lease not held", 3 - holder).as_str()],
        );
        broker.says(
            holder,
            finish(1),
            [format!("{holder} finished j1").as_str()],
        );
    }
}

#[test]
fn a_claimed_lease_needs_a_delivery() {
    for (token, place) in [(Token::of(3, 0).0, "ready"), (Token::of(3, 1).0, "leased")] {
        let mut broker = successor([push("q")]);
        broker.says(2, holds(1, token), []);
        assert_eq!(broker.place(1), place, "{token}");
    }
}

/// The journal contains a delivery of the job, and the end of that delivery.
#[test]
fn during_the_grace_the_last_delivery_of_the_journal_may_be_claimed_and_later_only_a_higher_one() {
    for (now, token, place) in [
        (1_500, 1, "leased"),
        (1_500, 2, "leased"),
        (3_000, 1, "ready"),
        (3_000, 2, "leased"),
    ] {
        let mut broker = Broker::new();
        broker.hear(4, push("q"));
        broker.says(3, take(["q"]), ["3 took j1.1"]);
        broker.hear(3, release(1, false));
        succeed(&mut broker);
        broker.at(now, []);
        broker.says(2, holds(1, token), []);
        assert_eq!(broker.place(1), place, "{now} {token}");
    }
}

#[test]
fn an_entry_is_claimed_during_the_grace_only() {
    for (now, place) in [(1_500, "leased"), (3_000, "ready")] {
        let mut broker = successor([push("q").cycle()]);
        broker.at(now, []);
        broker.says(2, holds(1, 5), []);
        assert_eq!(broker.place(1), place, "{now}");
    }
}

/// The end of an earlier lease may not have been journalled. The journal contains a time-bound lease.
#[test]
fn a_claim_counts_if_its_lease_was_granted_after_that_in_the_journal() {
    for (token, place) in [(1, "leased until 10000"), (2, "leased")] {
        let mut broker = Broker::new();
        broker.hear(4, push("q"));
        broker.hear(1, serve_on("q", 0, timed(9_000, OnExpiry::Requeue)));
        broker.hear(1, take_served());
        assert_eq!(broker.place(1), "leased until 10000");
        succeed(&mut broker);
        broker.says(2, holds(1, token), []);
        assert_eq!(broker.place(1), place);
    }
}

/// The previous leader has granted a time-bound lease, and the commit is missing. The worker reports with the
/// token.
#[test]
fn two_leaders_give_no_token_twice() {
    let mut broker = Broker::new();
    broker.hear(4, push("q"));
    broker.hear(1, serve_on("q", 0, timed(9_000, OnExpiry::Requeue)));
    let mut engine = Engine::new(Limits::default(), 1);
    engine.recall_meta(broker.engine.meta().clone(), false);
    broker
        .engine
        .queues()
        .for_each(|queue| engine.recall_queue(queue.image().clone()));
    broker
        .engine
        .jobs()
        .for_each(|job| assert!(engine.recall_job(job.clone())));
    broker.says(1, take_served(), ["1 took j1.1 until 10000"]);
    broker.engine = engine;
    succeed(&mut broker);
    for client in [1, 2] {
        broker.says(client, ClientCommand::Open(ClientInfo::default()), []);
    }
    broker.says(2, take(["q"]), []);
    broker.at(3_000, [format!("2 took j1.{}", Token::of(1, 1).0).as_str()]);
    let (job, proof) = (JobRef::Id(JobId(1)), Proof::Token(Token(1)));
    let late = LeaseCommand::Finish {
        job,
        proof,
        result: Bytes::new(),
    };
    broker.says(1, late, ["1 refused: lease not held"]);
    broker.says(2, finish(1), ["2 finished j1"]);
}

#[test]
fn a_lease_that_is_over_is_not_claimed_and_one_that_is_not_ends_in_time() {
    let mut broker = successor([push("q"), push("q")]);
    let until = |job, until| {
        claim(Claim::Holds {
            job: JobId(job),
            held: held(1, until, ""),
        })
    };
    broker.says(1, until(1, 1_000), []);
    broker.says(1, until(2, 2_000), []);
    assert_eq!(
        [1, 2].map(|job| broker.place(job)),
        ["ready", "leased until 2000"]
    );
    broker.says(2, take(["q"]), []);
    broker.at(2_000, []);
    broker.at(3_000, ["2 took j1.1"]);
}

/// The worker that had the job before may report with a token that the engine grants again.
#[test]
fn after_the_grace_only_what_this_engine_cannot_have_given_is_claimed() {
    let mut broker = successor([push("q")]);
    broker.says(1, take(["q"]), []);
    broker.at(3_000, ["1 took j1.1"]);
    broker.says(2, holds(1, 5), []);
    broker.says(1, release(1, false), ["1 done"]);
    broker.says(2, holds(1, 1), []);
    assert_eq!(broker.place(1), "ready");
    broker.says(2, holds(1, 2), []);
    broker.says(2, finish(1), ["2 finished j1"]);
    broker.says(2, holds(1, 2), []);
}

/// A daemon claims the state of clients with new IDs after an interruption of the link.
#[test]
fn the_lease_that_a_job_has_may_be_claimed_at_any_time_and_moves_to_the_claimant() {
    let mut broker = Broker::new();
    broker.hear(4, push("q"));
    broker.says(1, take(["q"]), ["1 took j1.1"]);
    broker.says(2, holds(1, 2), []);
    broker.says(2, finish(1), ["2 refused: lease not held"]);
    broker.says(2, holds(1, 1), []);
    broker.hear(1, ClientCommand::Close);
    assert_eq!(broker.engine.job(JobId(1)).unwrap().attempts, 1);
    broker.says(2, finish(1), ["2 finished j1"]);
}

#[test]
fn a_claimed_lease_takes_a_slot_of_its_queue_s_throttle() {
    let mut broker = successor([push("q"), push("q")]);
    broker.says(4, throttle("q", Some(1), None, None), ["4 done"]);
    broker.says(1, holds(1, 1), []);
    broker.says(2, take(["q"]).forever(), []);
    broker.at(3_000, []);
    broker.says(1, finish(1), ["1 finished j1", "2 took j2.1"]);
}

// ---- listeners and their jobs --------------------------------------------------------------------------------------

#[test]
fn a_listener_hears_again_of_a_job_that_is_there() {
    let mut broker = successor([push("q")]);
    broker.says(1, hears(1), []);
    broker.says(1, hears(1), []);
    broker.says(1, hears(7), ["1 ended j7 lost"]);
    broker.says(2, holds(1, 1), []);
    broker.says(
        2,
        finish(1),
        [
            "1 ended j1 succeeded result",
            "1 ended j1 succeeded result",
            "2 finished j1",
        ],
    );
}

#[test]
fn a_foreground_job_comes_back_under_its_number() {
    let mut broker = successor([]);
    broker.says(1, pushed(7, foreground()), []);
    broker.says(2, pushed(7, foreground()), []);
    broker.says(2, holds(7, 2), []);
    broker.says(
        2,
        finish(7),
        [
            "2 ended j7 succeeded result",
            "1 ended j7 succeeded result",
            "2 finished j7",
        ],
    );
    broker.says(3, pushed(7, foreground()), ["3 ended j7 lost"]);
}

/// The clients of one daemon disconnect before those of another have claimed: the job is
/// unfinished.
#[test]
fn a_foreground_job_that_its_first_listener_leaves_comes_back_for_the_next_one() {
    for has_worker in [false, true] {
        let mut broker = successor([]);
        broker.says(1, pushed(7, foreground()), []);
        if has_worker {
            broker.says(2, holds(7, 1), []);
        }
        broker.says(1, ClientCommand::Close, []);
        broker.says(2, ClientCommand::Close, []);
        assert_eq!(broker.place(7), "gone");
        broker.says(3, pushed(7, foreground()), []);
        assert_eq!(broker.place(7), "ready");
        broker.says(4, holds(7, 2), []);
        assert_eq!(broker.place(7), "leased");
    }
}

#[test]
fn a_foreground_job_without_a_worker_is_delivered_after_the_grace() {
    let mut broker = successor([]);
    broker.says(2, take(["q"]), []);
    broker.says(1, pushed(7, foreground().unique("key", Clash::Attach)), []);
    broker.says(
        3,
        foreground().unique("key", Clash::Attach),
        ["3 attached j7"],
    );
    broker.at(3_000, ["2 took j7.1"]);
}

/// The worker took it in time, and claims it before or after.
#[test]
fn a_foreground_job_whose_time_is_over_comes_back() {
    let late = || foreground().expires(900);
    let mut broker = successor([]);
    broker.says(1, pushed(7, late()), []);
    broker.says(2, holds(7, 1), []);
    broker.says(
        2,
        finish(7),
        ["1 ended j7 succeeded result", "2 finished j7"],
    );
    broker.says(1, pushed(8, foreground().expires(2_000)), []);
    broker.at(2_000, ["1 ended j8 expired"]);
}

/// Claims of different daemons arrive in any order.
#[test]
fn a_worker_s_claim_and_its_result_wait_for_the_job() {
    let mut broker = successor([]);
    broker.says(2, holds(7, 2), []);
    broker.says(3, holds(7, 1), []);
    broker.says(2, finish(7), []);
    broker.says(
        1,
        pushed(7, foreground()),
        ["1 ended j7 succeeded result", "2 finished j7"],
    );
    let by_name = |token| {
        claim(Claim::Holds {
            job: JobId(8),
            held: held(token, u64::MAX, "eight"),
        })
    };
    let finish = || LeaseCommand::Finish {
        job: JobRef::Name("eight".into()),
        proof: Proof::Connection,
        result: Bytes::new(),
    };
    broker.says(2, by_name(1), []);
    broker.says(2, finish(), []);
    broker.at(3_000, ["2 refused: job unknown"]);
    broker.says(1, pushed(8, foreground().named("eight")), []);
    broker.says(2, finish(), ["2 refused: lease not held"]);
}

#[test]
fn a_worker_that_leaves_does_not_get_the_job_that_it_has_claimed() {
    let mut broker = successor([]);
    broker.says(2, holds(7, 1), []);
    broker.says(3, holds(8, 1), []);
    broker.says(2, ClientCommand::Close, []);
    broker.says(1, pushed(7, foreground()), []);
    broker.says(1, pushed(8, foreground()), []);
    assert_eq!(
        (broker.place(7).as_str(), broker.place(8).as_str()),
        ("ready", "leased")
    );
}

#[test]
fn a_job_is_brought_back_once_and_after_the_grace_no_claim_of_it_waits() {
    let mut broker = successor([]);
    broker.says(1, pushed(7, foreground()), []);
    broker.says(2, holds(7, 1), []);
    broker.says(
        2,
        finish(7),
        ["1 ended j7 succeeded result", "2 finished j7"],
    );
    // The job was restored before: a late claim of another worker is not stored.
    broker.says(3, holds(7, 2), []);
    broker.says(3, finish(7), ["3 refused: job unknown"]);
    broker.at(3_000, []);
    broker.says(3, holds(8, 1), []);
    broker.says(3, finish(8), ["3 refused: job unknown"]);
}

#[test]
fn numbers_that_no_earlier_engine_gave_are_not_claimed() {
    let mut broker = successor([]);
    broker.says(1, pushed(FIRST, foreground()), ["1 ended j1048577 lost"]);
    for job in [
        push("q"),
        push("q").listen(),
        push("q").with(|job| job.durable = false),
    ] {
        broker.says(1, pushed(7, job), ["1 ended j7 lost"]);
    }
    broker.says(2, holds(FIRST, 1), []);
    broker.says(2, finish(FIRST), ["2 refused: job unknown"]);
    broker.says(1, foreground(), ["1 new j1048577"]);
    let mut alone = Broker::new();
    alone.says(1, pushed(7, foreground()), ["1 ended j7 lost"]);
    alone.hear(1, ClientCommand::Close);
    let mut context = Context::new(Timestamp(1_000), 1);
    alone
        .engine
        .apply(ClientId(1), Tag(1), hears(7), &mut context);
    assert_eq!(
        words(&context.events),
        ["1 refused: not allowed in this state"]
    );
}

// ---- terms and bounds ----------------------------------------------------------------------------------------------

/// The client serves two queues on different terms.
#[test]
fn a_claimed_lease_ends_by_the_client_s_terms_for_the_job_s_queue() {
    for (queue, end) in [("q", "gone"), ("r", "ready"), ("s", "ready")] {
        let mut broker = successor([push("q"), push("r"), push("s")]);
        broker.says(1, serve_on("r", 0, timed(9_000, OnExpiry::Requeue)), []);
        broker.says(1, serve_on("q", 0, timed(9_000, OnExpiry::Fail)), []);
        let job = match queue {
            "q" => 1,
            "r" => 2,
            _ => 3,
        };
        broker.says(
            1,
            claim(Claim::Holds {
                job: JobId(job),
                held: held(1, 4_000, ""),
            }),
            [],
        );
        assert_eq!(broker.place(job), "leased until 4000");
        broker.at(4_000, []);
        assert_eq!(broker.place(job), end, "{queue}");
    }
}

#[test]
fn a_client_has_a_bounded_number_of_requests_in_the_grace() {
    const MAX: usize = 1 << 16;
    let mut broker = Broker::limited(|limits| limits.page_max = 1);
    succeed(&mut broker);
    let ask = |broker: &mut Broker| broker.hear(1, take(["q"])).len();
    assert_eq!((0..MAX).map(|_| ask(&mut broker)).sum::<usize>(), 0);
    assert_eq!(
        words(&broker.hear(1, take(["q"]))),
        ["1 refused: not allowed in this state"]
    );
    assert_eq!(
        broker.hear(2, take(["q"])).len(),
        0,
        "another client has its own bound"
    );
    // One page, one request: there is space for another.
    broker.at(3_000, ["1 empty"]);
    broker.engine.end_grace_at(Timestamp(9_000));
    assert_eq!(ask(&mut broker), 0);
    assert_eq!(
        words(&broker.hear(1, take(["q"]))),
        ["1 refused: not allowed in this state"]
    );
}
