//! A joined job becomes independent when the leading job is removed, even if that is restored
//! later.

use windlass_engine::{Bridge, ClientInfo};

use super::*;

/// Job 1 was durable and failed, so it is a part of job 2, which leads.
fn part_of_two(rule: Coalesce, second: impl FnOnce() -> Push) -> Broker {
    let mut broker = coalescing(rule);
    broker.hear(
        1,
        submit("u", "one").track(9_000).retry(9, Backoff::Fixed(50)),
    );
    broker.at(1_100, []);
    assert_eq!(taken(&mut broker), Some((1, b"one".to_vec())));
    broker.says(2, second(), ["2 new j2"]);
    broker.hear(4, fail(1));
    assert_eq!(broker.place(1), "shelved");
    broker
}

#[test]
fn it_keeps_its_key_when_it_gets_a_body_that_other_workers_may_take() {
    let mut broker = part_of_two(
        Coalesce {
            quiet_ms: 0,
            ..RULE
        },
        || foreground("u", "two"),
    );
    broker.hear(2, ClientCommand::Close);
    broker.at(1_200, []);
    let bridge = Bridge {
        patterns: vec![name("q")],
        ..Bridge::default()
    };
    broker.hear(1, Command::Queue(QueueCommand::Bridge(Box::new(bridge))));
    broker.hear(
        5,
        ClientCommand::Open(ClientInfo {
            protocol: Some(Protocol::FAKTORY),
            ..ClientInfo::default()
        }),
    );
    broker.says(5, take(["q"]), ["5 took j1.2"]);
    let report = LeaseCommand::Unconvertible {
        job: id(1),
        proof: Proof::Connection,
        why: Bytes::new(),
    };
    broker.says(5, Command::Lease(report), ["5 done"]);
    broker.says(1, submit("u", "three"), ["1 attached j1"]);
    broker.says(1, submit("u", "four"), ["1 attached j1"]);
    broker.says(5, take(["q"]), ["5 took j1.4"]);
    assert_eq!(body(&broker, 1), b"four");
}

#[test]
fn a_later_submit_that_became_it_does_not_end_with_the_job_that_led_before() {
    let mut broker = part_of_two(RULE, || submit("u", "two"));
    broker.hear(
        1,
        mutate(
            Filter {
                ids: vec![JobId(2)],
                ..all()
            },
            Mutation::Kill,
        ),
    );
    broker.says(1, submit("u", "three"), ["1 attached j1"]);
    broker.hear(
        1,
        mutate(
            Filter {
                ids: vec![JobId(2)],
                ..all()
            },
            Mutation::Requeue,
        ),
    );
    broker.at(1_500, []);
    let mut ran = Vec::new();
    while let Some((job, body)) = taken(&mut broker) {
        broker.hear(4, finish(job));
        ran.push(String::from_utf8(body).unwrap());
    }
    ran.sort_unstable();
    assert_eq!(ran, ["three", "two"]);
}
