//! `cycle` queues, compared with a slow implementation of the algorithm.
//!
//! Spec: spiderq protocol 1.4, "Lend" and "Repay". A heap of (key, priority, boost) where the smallest
//! priority is lent first, and a serial that is increased by each change and identifies the leases.

use bytes::Bytes;
use windlass_engine::{
    ClientCommand, ClientId, Command, Context, Event, From, JobCommand, JobId, JobRef,
    LeaseCommand, LeaseTerms, OnExpiry, Proof, RepayTo, Reply, Select, Tag, Take, TakeCommand,
    Timestamp, Token, Wait,
};

use crate::common;
use crate::common::{Broker, push, repay, take, take_round};

const LEASE_MS: u64 = 1_000;

/// An entry of the model; `inserted` orders equals first in, first out.
#[derive(Clone, Debug)]
struct Entry {
    key: u64,
    priority: u64,
    boost: u32,
    inserted: u64,
}

/// The algorithm as the specification gives it.
#[derive(Debug)]
struct Model {
    serial: u64,
    queue: Vec<Entry>,
    lent: Vec<(Entry, u64, u64)>,
    inserted: u64,
}

impl Model {
    fn insert(&mut self, key: u64, priority: u64, boost: u32) {
        self.inserted += 1;
        self.queue.push(Entry {
            key,
            priority,
            boost,
            inserted: self.inserted,
        });
        self.queue
            .sort_by_key(|entry| (entry.priority, entry.inserted));
    }

    fn add(&mut self, key: u64, head: bool) {
        self.serial += 1;
        self.insert(key, if head { 0 } else { self.serial }, 0);
    }

    /// The key and the lend key.
    fn lend(&mut self, until: u64) -> Option<(u64, u64)> {
        if self.queue.is_empty() {
            return None;
        }
        let entry = self.queue.remove(0);
        let lent = (entry.key, self.serial);
        self.lent.push((entry, self.serial, until));
        Some(lent)
    }

    fn repay(&mut self, key: u64, lend_key: u64, to: RepayTo) -> bool {
        let Some(at) = self
            .lent
            .iter()
            .position(|(entry, serial, _)| (entry.key, *serial) == (key, lend_key))
        else {
            return false;
        };
        let (entry, ..) = self.lent.remove(at);
        let min = self.queue.first().map_or(0, |head| head.priority);
        let region = self.serial + 1 - min;
        let (boost, shift) = match to {
            RepayTo::Penalty => (entry.boost.saturating_sub(1), entry.boost.saturating_sub(1)),
            RepayTo::Reward if region >> (entry.boost + 1) != 0 => {
                (entry.boost + 1, entry.boost + 1)
            }
            RepayTo::Reward => (entry.boost, entry.boost),
            RepayTo::Front => (entry.boost, 0),
            RepayTo::Drop => return true,
        };
        self.serial += 1;
        let priority = if to == RepayTo::Front {
            0
        } else {
            self.serial - (region - (region >> shift))
        };
        self.insert(key, priority, boost);
        true
    }

    fn time_out(&mut self, now: u64) {
        self.lent
            .sort_by_key(|(entry, _, until)| (*until, entry.key));
        while let Some((entry, ..)) = self
            .lent
            .first()
            .filter(|(_, _, until)| *until <= now)
            .cloned()
        {
            self.lent.remove(0);
            self.serial += 1;
            self.insert(entry.key, 0, entry.boost);
        }
    }
}

fn lend() -> Command {
    take_round("c").for_ms(LEASE_MS, OnExpiry::Front).into()
}

/// The job that the engine lent, with the token.
fn lent(events: &[(ClientId, Event)]) -> Option<(u64, u64)> {
    match events {
        [(_, Event::Reply(_, Reply::Taken(job)))] => Some((job.id.0, job.token.0)),
        [(_, Event::Reply(_, Reply::Empty))] => None,
        other => panic!("{other:?}"),
    }
}

/// Jobs are keys: the n-th job added is key n.
#[test]
fn random_operations_follow_the_algorithm() {
    for seed in 0..60 {
        let mut rng = Context::new(Timestamp(0), seed);
        let mut broker = Broker::new();
        let mut model = Model {
            serial: 1,
            queue: Vec::new(),
            lent: Vec::new(),
            inserted: 0,
        };
        let (mut keys, mut leases) = (0, Vec::new());
        for step in 0..400 {
            let at = format!("seed {seed}, step {step}");
            broker.now += rng.roll(LEASE_MS / 4);
            model.time_out(broker.now);
            match rng.roll(10) {
                0 | 1 if keys < 40 => {
                    keys += 1;
                    let head = rng.roll(4) == 0;
                    model.add(keys, head);
                    let job = push("c").cycle().with(|job| job.front = head);
                    assert_eq!(
                        common::words(&broker.hear(1, job)),
                        [format!("1 new j{keys}")],
                        "{at}"
                    );
                }
                0..5 => {
                    let got = lent(&broker.hear(2, lend()));
                    assert_eq!(got, model.lend(broker.now + LEASE_MS), "{at}");
                    leases.extend(got);
                }
                _ => {
                    let statuses = [
                        RepayTo::Penalty,
                        RepayTo::Reward,
                        RepayTo::Reward,
                        RepayTo::Front,
                        RepayTo::Drop,
                    ];
                    // Drops must be rare, or the queue becomes empty.
                    let sides = if rng.roll(8) == 0 { 5 } else { 4 };
                    let to = statuses[usize::try_from(rng.roll(sides)).unwrap()];
                    let pick = usize::try_from(rng.roll(leases.len() as u64)).unwrap();
                    let Some((key, lend_key)) = leases.get(pick).copied() else {
                        continue;
                    };
                    let said = common::words(&broker.hear(3, repay(key, lend_key, to)));
                    let expected = if model.repay(key, lend_key, to) {
                        "3 done"
                    } else {
                        "3 refused: lease not held"
                    };
                    assert_eq!(said, [expected], "{at}: {to:?} of {key}.{lend_key}");
                }
            }
            broker.engine.check();
        }
        while let Some(expected) = model.lend(broker.now + LEASE_MS) {
            assert_eq!(
                lent(&broker.hear(2, lend())),
                Some(expected),
                "seed {seed}, at the end"
            );
        }
    }
}

/// Lend keys as the original server gives them: shared between leases, moved on by every change.
#[test]
fn lend_keys_match_the_original_server() {
    let mut broker = Broker::new();
    broker.says(1, push("c").cycle(), ["1 new j1"]);
    broker.says(1, push("c").cycle(), ["1 new j2"]);
    broker.says(2, lend(), ["2 took j1.3 until 2000"]);
    broker.says(2, lend(), ["2 took j2.3 until 2000"]);
    broker.says(2, lend(), ["2 empty"]);
    broker.says(2, repay(1, 3, RepayTo::Penalty), ["2 done"]);
    broker.says(2, lend(), ["2 took j1.4 until 2000"]);
    broker.says(2, repay(1, 3, RepayTo::Drop), ["2 refused: lease not held"]);
    broker.at(2_000, []);
    // Both leases have expired, in the order of keys. Each expiry increases the serial.
    broker.says(2, lend(), ["2 took j1.6 until 3000"]);
    broker.says(2, repay(2, 3, RepayTo::Drop), ["2 refused: lease not held"]);
}

#[test]
fn where_a_repaid_entry_goes() {
    // Five other entries are ready. The columns: the boost earned so far, the repay, and the resulting number
    // of entries before it.
    let table = [
        ("penalty, nothing earned: the tail", 0, RepayTo::Penalty, 5),
        ("reward: half way", 0, RepayTo::Reward, 3),
        ("two rewards: a quarter of the way", 1, RepayTo::Reward, 2),
        ("front", 0, RepayTo::Front, 0),
    ];
    for (name, rewards, to, before) in table {
        let mut broker = Broker::new();
        broker.says(1, push("c").cycle().front(), ["1 new j1"]);
        for _ in 0..rewards {
            let Some((1, token)) = lent(&broker.hear(2, lend())) else {
                panic!("{name}")
            };
            broker.says(2, repay(1, token, RepayTo::Reward), ["2 done"]);
        }
        let Some((1, token)) = lent(&broker.hear(2, lend())) else {
            panic!("{name}")
        };
        for _ in 0..5 {
            broker.hear(1, push("c").cycle());
        }
        broker.says(2, repay(1, token, to), ["2 done"]);
        let order: Vec<u64> = std::iter::from_fn(|| lent(&broker.hear(3, lend())))
            .map(|(job, _)| job)
            .collect();
        assert_eq!(
            order.iter().position(|job| *job == 1),
            Some(before),
            "{name}: {order:?}"
        );
    }
}

#[test]
fn a_dropped_entry_is_out_of_the_queue_and_still_there() {
    let mut broker = Broker::new();
    broker.says(
        1,
        push("c").cycle().unique("k", windlass_engine::Clash::Keep),
        ["1 new j1"],
    );
    broker.says(2, lend(), ["2 took j1.2 until 2000"]);
    broker.says(2, repay(1, 2, RepayTo::Drop), ["2 done"]);
    assert_eq!(broker.place(1), "shelved");
    assert_eq!(broker.engine.job(JobId(1)).unwrap().body(), b"value");
    broker.says(2, lend(), ["2 empty"]);
    broker.says(
        1,
        push("c").cycle().unique("k", windlass_engine::Clash::Keep),
        ["1 kept j1"],
    );
    broker.says(
        1,
        Command::Job(JobCommand::Cancel(common::id(1))),
        ["1 done"],
    );
    broker.says(
        1,
        push("c").cycle().unique("k", windlass_engine::Clash::Keep),
        ["1 new j2"],
    );
}

#[test]
fn a_dropped_entry_is_removed_if_it_lived_for_its_listeners_only() {
    let mut broker = Broker::new();
    broker.says(1, push("c").cycle().foreground(), ["1 new j1"]);
    broker.says(2, lend(), ["2 took j1.2 until 2000"]);
    broker.says(1, ClientCommand::Close, []);
    broker.says(2, repay(1, 2, RepayTo::Drop), ["2 done"]);
    assert_eq!(broker.place(1), "gone");
}

#[test]
fn the_value_repaid_is_the_value_lent_next() {
    let mut broker = Broker::new();
    broker.says(1, push("c").cycle(), ["1 new j1"]);
    broker.says(2, lend(), ["2 took j1.2 until 2000"]);
    let replace = Command::Job(JobCommand::Replace {
        job: common::id(1),
        body: "meanwhile".into(),
    });
    broker.says(3, replace, ["3 done"]);
    broker.says(2, repay(1, 2, RepayTo::Front), ["2 done"]);
    let events = broker.hear(2, lend());
    let [(_, Event::Reply(_, Reply::Taken(job)))] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!(job.body, "value");
}

/// A worker that disappears with a connection returns an entry. The token must not repay the next
/// lease.
#[test]
fn a_lend_key_is_not_granted_twice_for_one_entry() {
    let mut broker = Broker::new();
    broker.says(1, push("c").cycle(), ["1 new j1"]);
    broker.says(2, take_round("c"), ["2 took j1.2"]);
    broker.says(2, Command::Client(ClientCommand::Close), []);
    broker.says(3, take_round("c"), ["3 took j1.3"]);
    broker.says(1, repay(1, 2, RepayTo::Drop), ["1 refused: lease not held"]);
}

#[test]
fn cycle_queues_refuse_the_commands_of_work_queues() {
    let mut broker = Broker::new();
    broker.says(1, push("c").cycle(), ["1 new j1"]);
    broker.says(2, take_round("c"), ["2 took j1.2"]);
    for command in [
        common::finish(1),
        common::fail(1),
        common::release(1, false),
    ] {
        broker.says(2, command, ["2 refused: queue of the other kind"]);
    }
    broker.says(
        2,
        common::serve("c"),
        ["2 refused: queue of the other kind"],
    );
    broker.says(1, push("q"), ["1 new j2"]);
    broker.says(2, take(["q"]), ["2 took j2.1"]);
    broker.says(
        2,
        repay(2, 1, RepayTo::Front),
        ["2 refused: queue of the other kind"],
    );
}

/// The daemon returns an entry that the client never received.
#[test]
fn an_entry_is_released_with_its_token() {
    let mut broker = Broker::new();
    broker.says(1, push("c").cycle(), ["1 new j1"]);
    broker.says(2, take_round("c"), ["2 took j1.2"]);
    let (job, proof) = (JobRef::Id(JobId(1)), Proof::Token(Token(2)));
    broker.says(
        2,
        Command::Lease(LeaseCommand::Release {
            job,
            proof,
            front: false,
        }),
        ["2 done"],
    );
    broker.says(3, take_round("c"), ["3 took j1.3"]);
}

/// A lease granted before the daemon stopped may be forgotten: the lend key must not match a lease granted
/// after.
#[test]
fn a_lend_key_is_not_granted_again_by_another_run() {
    let lent_by = |starts| {
        let mut broker = Broker::new();
        (0..starts).for_each(|_| {
            broker
                .engine
                .recall_meta(broker.engine.meta().clone(), true)
        });
        broker.hear(1, push("c").cycle());
        lent(&broker.hear(2, lend())).map(|(_, token)| token)
    };
    assert_eq!(
        (lent_by(0), lent_by(1), lent_by(2)),
        (Some(2), Some(2 | 1 << 44), Some(2 | 2 << 44))
    );
}

#[test]
fn a_take_by_kind_waits_at_a_cycle_queue() {
    let wish = |queue: &'static str| {
        let lease = LeaseTerms {
            connection_bound: false,
            lease_ms: Some(LEASE_MS),
            on_expiry: OnExpiry::Front,
            wish: None,
        };
        let from = From::Cycle {
            queue: queue.into(),
            lease,
        };
        Take {
            from,
            select: Select::ListOrder,
            wait: Wait::No,
            worker: Bytes::new(),
        }
    };
    let forever = |queue| {
        Command::Take(TakeCommand::Take(Take {
            wait: Wait::Forever,
            ..wish(queue)
        }))
    };
    let mut broker = Broker::new();
    broker.says(1, Command::Take(TakeCommand::Take(wish("c"))), ["1 empty"]);
    assert_eq!(
        broker.engine.queues().count(),
        0,
        "the queue existed only for the take"
    );
    broker.says(1, forever("c"), []);
    broker.says(2, push("c").cycle(), ["1 took j1.2 until 2000", "2 new j1"]);
    broker.says(2, push("w"), ["2 new j2"]);
    broker.says(1, forever("w"), ["1 refused: queue of the other kind"]);
}

/// Tags and times of the engine do not affect the arithmetic: the serial survives in the queue's image.
#[test]
fn the_serial_is_journalled() {
    let mut broker = Broker::new();
    let mut context = Context::new(Timestamp(1_000), 1);
    broker
        .engine
        .apply(ClientId(1), Tag::NONE, push("c").cycle(), &mut context);
    let queue = broker.engine.queues().next().unwrap().image();
    assert_eq!(queue.serial, 2);
    assert!(
        context
            .changes
            .contains(&windlass_engine::Change::QueueSet(queue.id)),
        "{:?}",
        context.changes
    );
}
