//! Visits, large jobs and the commits that contain them.

use std::collections::{BTreeSet, VecDeque};
use std::thread;

use bytes::Bytes;
use windlass_engine::{
    ClientCommand, ClientInfo, Command, From, Holder, JobCommand, JobId, JobRef, KeySource,
    LeaseCommand, LeaseTerms, Limits, NewJob, OnExpiry, Policy, Proof, Protocol, Query,
    QueueCommand, QueueSettings, Select, Subscription, Take, TakeCommand, Wait,
};
use windlass_session::Item;

use super::visit::LARGE_BYTES;
use super::*;
use crate::broker::{Batch, Broker as _, Visited};
use crate::mailbox::{Mail, Mailbox};
use crate::testing::captured;
use crate::testing::nowhere;

mod tenure;

fn ring(mailboxes: Vec<Arc<Mailbox>>) {
    mailboxes.iter().for_each(|mailbox| mailbox.ring());
}

const LARGE: usize = 3 * LARGE_BYTES;

fn push(bytes: usize) -> Command {
    let body = Bytes::from(vec![7; bytes]);
    Command::Job(JobCommand::Push(Box::new(NewJob::new(
        Protocol::GEARMAN,
        Bytes::from_static(b"f"),
        body,
    ))))
}

fn items(commands: impl IntoIterator<Item = Command>) -> VecDeque<Item> {
    commands
        .into_iter()
        .map(|command| Item::Command(Tag(1), command))
        .collect()
}

fn hub(durability: Durability, clients: u64) -> (Hub, Vec<Arc<Mailbox>>) {
    let hub = Hub::new(
        Engine::new(Limits::default(), 7),
        Journal::new(),
        durability,
        7,
    )
    .sharing(Arc::new(Budget::new(1 << 30)));
    let mailboxes = (1..=clients).map(|client| {
        let mailbox = Arc::new(Mailbox::new(usize::MAX, Arc::clone(&hub.budget), nowhere()));
        hub.open(ClientId(client), Arc::clone(&mailbox));
        visit(
            &hub,
            client,
            &mut items([Command::Client(ClientCommand::Open(ClientInfo::default()))]),
        );
        mailbox
    });
    let mailboxes = mailboxes.collect();
    (hub, mailboxes)
}

/// Visits until nothing more can be done. Returns whether a large job must wait.
fn visit(hub: &Hub, client: u64, items: &mut VecDeque<Item>) -> bool {
    loop {
        match hub.visit_one(ClientId(client), &clock::read(), items, usize::MAX) {
            Visited::Part => {}
            visited @ (Visited::All | Visited::UntilRung) => return visited == Visited::UntilRung,
        }
    }
}

/// Writes the next commit and returns its size in bytes.
fn commit(hub: &Hub) -> u64 {
    let Cut { commit, .. } = hub.cut().unwrap();
    let bytes = commit.bytes();
    ring(hub.committed(commit));
    bytes
}

fn acknowledged(hub: &Hub, mailbox: &Mailbox) -> usize {
    let mut mail = Vec::new();
    hub.mail(mailbox, usize::MAX, &mut mail);
    mail.len()
}

#[test]
fn small_jobs_wait_for_one_large_commit_at_most() {
    let (hub, mailboxes) = hub(Durability::Durable, 4);
    while hub
        .cut()
        .map(|cut| ring(hub.committed(cut.commit)))
        .is_some()
    {}
    let large = || [push(LARGE), push(LARGE)];
    let (mut one, mut other) = (items([push(10)].into_iter().chain(large())), items(large()));
    assert!(!visit(&hub, 3, &mut items([push(100)])));
    assert!(visit(&hub, 1, &mut one) && visit(&hub, 2, &mut other));
    assert_eq!((one.len(), other.len()), (1, 2), "one large job of all");
    assert!(!visit(&hub, 4, &mut items([push(100)])));

    assert!(
        commit(&hub) < LARGE as u64,
        "earlier changes are in a commit of their own"
    );
    // Everything that one connection sends at once is acknowledged at once.
    assert_eq!(
        [0, 2, 3].map(|at| acknowledged(&hub, &mailboxes[at])),
        [0, 1, 0]
    );
    assert!(visit(&hub, 2, &mut other), "not yet its turn");
    let (from, to) = (LARGE as u64, LARGE as u64 + 5000);
    assert!((from..to).contains(&commit(&hub)));
    assert_eq!(
        [0, 1, 3].map(|at| acknowledged(&hub, &mailboxes[at])),
        [2, 0, 1]
    );
    // Now the first connection to visit has the turn.
    assert!(visit(&hub, 2, &mut other) && visit(&hub, 1, &mut one));
    assert!((from..to).contains(&commit(&hub)));
    assert_eq!(acknowledged(&hub, &mailboxes[1]), 1);
    assert!(!visit(&hub, 1, &mut one) && one.is_empty());
    assert!(visit(&hub, 2, &mut other));
    // A failed store refuses large jobs instead of making them wait.
    hub.set_failed(true);
    assert!(!visit(&hub, 2, &mut other) && other.is_empty());
}

#[test]
fn large_jobs_do_not_wait_unless_acknowledgements_do() {
    let (hub, _) = hub(Durability::Soon, 1);
    let mut pushes = items([push(LARGE), push(LARGE), push(LARGE)]);
    assert!(!visit(&hub, 1, &mut pushes) && pushes.is_empty());
}

#[test]
fn a_refused_large_job_delays_nothing() {
    let (hub, mailboxes) = hub(Durability::Durable, 1);
    while hub
        .cut()
        .map(|cut| ring(hub.committed(cut.commit)))
        .is_some()
    {}
    hub.durable.full.set(true);
    let mut pushes = items([push(LARGE), push(LARGE)]);
    while !pushes.is_empty() {
        assert!(!visit(&hub, 1, &mut pushes));
    }
    assert_eq!(acknowledged(&hub, &mailboxes[0]), 2);
    assert!(hub.cut().is_none());
}

#[test]
fn a_visit_ends_when_its_answers_fill_the_room() {
    let (hub, mailboxes) = hub(Durability::Soon, 1);
    visit(&hub, 1, &mut items((0..9).map(|_| push(100_000))));
    let take = || {
        Command::Query(Query::Job(windlass_engine::JobRef::Id(
            windlass_engine::JobId(1),
        )))
    };
    let mut looks = items((0..9).map(|_| take()));
    assert_eq!(acknowledged(&hub, &mailboxes[0]), 9);
    assert!(hub.visit_one(ClientId(1), &clock::read(), &mut looks, 250_000) == Visited::Part);
    assert_eq!((looks.len(), acknowledged(&hub, &mailboxes[0])), (6, 3));
}

/// The small job was committed separately because of the large job after it, which was then
/// refused.
#[test]
fn jobs_before_a_refused_large_job_need_one_commit() {
    let (hub, mailboxes) = hub(Durability::Durable, 1);
    while hub
        .cut()
        .map(|cut| ring(hub.committed(cut.commit)))
        .is_some()
    {}
    hub.durable.set_room(LARGE as u64 - 1);
    assert!(!visit(&hub, 1, &mut items([push(100), push(LARGE)])));
    assert_eq!(acknowledged(&hub, &mailboxes[0]), 0);
    commit(&hub);
    assert_eq!(acknowledged(&hub, &mailboxes[0]), 2);
    assert!(hub.cut().is_none());
}

/// Another thread visits while the first of two commits is written.
#[test]
fn acknowledgements_behind_a_full_commit_are_not_left_to_gather() {
    let (hub, mailboxes) = hub(Durability::Durable, 1);
    while hub
        .cut()
        .map(|cut| ring(hub.committed(cut.commit)))
        .is_some()
    {}
    hub.durable.has_turns.set(true);
    let mut pushes = items([push(100), push(LARGE)]);
    while !visit(&hub, 1, &mut pushes) && !pushes.is_empty() {}
    let Cut { commit: first, .. } = hub.cut().unwrap();
    hub.tick();
    ring(hub.committed(first));
    assert_eq!(acknowledged(&hub, &mailboxes[0]), 0);
    assert!(hub.is_urgent(), "the committing thread does not rest");
    commit(&hub);
    assert_eq!(acknowledged(&hub, &mailboxes[0]), 2);
}

/// With `hand_out_after_commit`, each client of a visit that ends its job gets its next one after
/// the commit.
#[test]
fn all_clients_of_a_visit_get_their_next_jobs_when_their_ends_are_durable() {
    let (hub, mailboxes) = hub(Durability::Durable, 3);
    let hub = hub.hand_out_after_commit(true);
    visit(&hub, 3, &mut items((0..4).map(|_| push(10))));
    commit(&hub);
    let take = || {
        let lease = LeaseTerms {
            connection_bound: true,
            lease_ms: None,
            on_expiry: OnExpiry::Fail,
            wish: None,
        };
        let from = From::Listed {
            queues: vec![Bytes::from_static(b"f")],
            lease,
        };
        let take = Take {
            from,
            select: Select::ListOrder,
            wait: Wait::No,
            worker: Bytes::new(),
        };
        Item::Command(Tag(1), TakeCommand::Take(take).into())
    };
    let end = |job| {
        let (job, proof) = (JobRef::Id(JobId(job)), Proof::AnyLease);
        Item::Command(
            Tag::NONE,
            LeaseCommand::Finish {
                job,
                proof,
                result: Bytes::new(),
            }
            .into(),
        )
    };
    let handed_out = || {
        [0, 1].map(|at: usize| {
            let mut mail = Vec::new();
            hub.mail(&mailboxes[at], usize::MAX, &mut mail);
            mail.iter()
                .filter(|mail| matches!(mail, Mail::Event(event) if event.handed_out().is_some()))
                .count()
        })
    };
    let together = |each: &dyn Fn(u64) -> VecDeque<Item>| {
        let mut all = [1, 2].map(|client| (ClientId(client), each(client), Visited::All));
        let mut batches = all.iter_mut().map(|(client, items, visited)| {
            let client = *client;
            Batch {
                client,
                items,
                room: usize::MAX,
                visited,
            }
        });
        hub.visit(&clock::read(), &mut batches);
    };
    handed_out();
    together(&|_| [take()].into());
    assert_eq!(handed_out(), [1, 1], "nothing has ended");
    together(&|client| [end(client), take()].into());
    assert_eq!(handed_out(), [0, 0], "the ends are not on the disk");
    commit(&hub);
    assert_eq!(handed_out(), [1, 1]);
    assert_eq!(hub.lock().pending.ends.len(), 2);
    while !hub.close(ClientId(1)) {}
    assert_eq!(
        hub.lock().pending.ends.len(),
        1,
        "a client that has gone is forgotten"
    );
}

/// The next job of a key reaches another worker only after the end of the previous one is on disk.
#[test]
fn a_job_of_a_held_key_leaves_when_the_end_before_it_is_durable() {
    let (hub, mailboxes) = hub(Durability::Durable, 2);
    let policy = Policy {
        key: Some(KeySource::Prefix(b'|')),
        ordered: true,
        ..Policy::default()
    };
    let settings = QueueSettings {
        policy,
        ..QueueSettings::default()
    };
    let patterns = [(Bytes::from_static(b"f"), settings)].into_iter().collect();
    visit(
        &hub,
        1,
        &mut items([
            QueueCommand::SetPatterns(Box::new(patterns)).into(),
            push(10),
            push(10),
        ]),
    );
    commit(&hub);
    let take = || {
        let from = From::Listed {
            queues: vec![Bytes::from_static(b"f")],
            lease: LeaseTerms::CONNECTION,
        };
        TakeCommand::Take(Take {
            from,
            select: Select::ListOrder,
            wait: Wait::No,
            worker: Bytes::new(),
        })
        .into()
    };
    let has_job = |at: usize| {
        let mut mail = Vec::new();
        hub.mail(&mailboxes[at], usize::MAX, &mut mail);
        mail.iter()
            .any(|mail| matches!(mail, Mail::Event(event) if event.handed_out().is_some()))
    };
    visit(&hub, 1, &mut items([take()]));
    assert!(has_job(0), "nothing is pending");
    let (job, proof) = (JobRef::Id(JobId(1)), Proof::AnyLease);
    let end = LeaseCommand::Finish {
        job,
        proof,
        result: Bytes::new(),
    }
    .into();
    visit(
        &hub,
        1,
        &mut VecDeque::from([Item::Command(Tag::NONE, end)]),
    );
    visit(&hub, 2, &mut items([take()]));
    assert!(!has_job(1), "the end is not on the disk");
    commit(&hub);
    assert!(has_job(1));
}

/// Jobs held by workers wait for them after the stop. Jobs never sent are ready immediately.
#[test]
fn the_next_run_has_the_jobs_that_workers_have_in_hand_when_the_daemon_stops() {
    let (hub, _) = hub(Durability::Soon, 0);
    let info = ClientInfo {
        protocol: Some(Protocol::GEARMAN),
        ..ClientInfo::default()
    };
    let take = || {
        let from = From::Listed {
            queues: vec![Bytes::from_static(b"f")],
            lease: LeaseTerms::CONNECTION,
        };
        TakeCommand::Take(Take {
            from,
            select: Select::ListOrder,
            wait: Wait::No,
            worker: Bytes::new(),
        })
        .into()
    };
    let worker = Arc::new(Mailbox::new(usize::MAX, Arc::clone(&hub.budget), nowhere()));
    hub.open(ClientId(9), Arc::clone(&worker));
    visit(
        &hub,
        9,
        &mut items([
            ClientCommand::Open(info).into(),
            push(10),
            push(10),
            take(),
            take(),
        ]),
    );
    assert_eq!(acknowledged(&hub, &worker), 4);
    let lease = |job| {
        hub.with_journal(|engine, _| engine.job(JobId(job)).and_then(|job| job.lease()).cloned())
    };
    let never_left = lease(2).map(|lease| (JobId(2), lease.token));
    worker.give_back(never_left);
    hub.stop();
    while !hub.close(ClientId(9)) {}
    hub.leave_jobs();
    assert_eq!(
        lease(1).map(|lease| lease.holder),
        Some(Holder::Away(Protocol::GEARMAN))
    );
    assert_eq!(lease(2), None);
}

/// Its clients have moved, or are about to move, to another daemon, where a job for them would
/// count as lost with its worker. Found by the cluster simulator (seed 142).
#[test]
fn a_hub_that_gives_up_returns_the_jobs_that_its_own_clients_have_not_got_and_hands_out_none() {
    let (hub, mailboxes) = hub(Durability::Durable, 2);
    let from = || From::Listed {
        queues: vec![Bytes::from_static(b"f")],
        lease: LeaseTerms::CONNECTION,
    };
    let take = |wait| {
        TakeCommand::Take(Take {
            from: from(),
            select: Select::BestPriority,
            wait,
            worker: Bytes::new(),
        })
    };
    visit(&hub, 1, &mut items([push(10), take(Wait::No).into()]));
    visit(&hub, 2, &mut items([take(Wait::Forever).into()]));
    hub.step_down();
    let is_ready = |number| {
        hub.with_journal(|engine, _| {
            engine
                .job(JobId(number))
                .is_some_and(|it| it.lease().is_none())
        })
    };
    assert!(is_ready(1), "it went to nobody else");
    assert!(mailboxes.iter().all(|it| it.close_reason().is_some()));
}

/// Found by the cluster simulator (seed 433): the client's thread checks only after the store
/// responds again.
#[test]
fn a_reply_that_waits_for_a_commit_behind_a_failed_one_is_rung_for_its_own() {
    let (hub, mailboxes) = hub(Durability::Durable, 1);
    let first = hub.cut().unwrap();
    visit(&hub, 1, &mut items([push(10)]));
    hub.set_failed(true);
    ring(hub.committed(first.commit));
    hub.set_failed(false);
    assert_eq!(acknowledged(&hub, &mailboxes[0]), 0);
    let second = hub.cut().unwrap();
    assert_eq!(hub.committed(second.commit).len(), 1);
    assert_eq!(acknowledged(&hub, &mailboxes[0]), 1);
}

#[test]
fn a_client_with_large_jobs_waits_from_its_first_visit_on() {
    let (hub, _) = hub(Durability::Durable, 1);
    while hub
        .cut()
        .map(|cut| ring(hub.committed(cut.commit)))
        .is_some()
    {}
    let mut pushes = items([push(LARGE), push(LARGE)]);
    let visited = hub.visit_one(ClientId(1), &clock::read(), &mut pushes, usize::MAX);
    assert_eq!((visited, pushes.len()), (Visited::UntilRung, 1));
}

/// The clients' mail is there when the visit has ended.
#[test]
fn a_visit_goes_on_to_the_next_client_unless_it_has_cost_enough() {
    let (hub, mailboxes) = hub(Durability::Soon, 2);
    let stats = |many: usize| items((0..many).map(|_| Command::Query(Query::Stats)));
    let ended_before_the_next = |many: usize| {
        acknowledged(&hub, &mailboxes[0]);
        let mut all = [(1, stats(many)), (2, stats(1))];
        let (mut visited, mut mail) = ([Visited::All; 2], Vec::new());
        let mut batches = all
            .iter_mut()
            .zip(&mut visited)
            .map(|((client, items), visited)| {
                mail.push(mailboxes[0].len());
                Batch {
                    client: ClientId(*client),
                    items,
                    room: usize::MAX,
                    visited,
                }
            });
        hub.visit(&clock::read(), &mut batches);
        assert_eq!(
            visited,
            [
                if all[0].1.is_empty() {
                    Visited::All
                } else {
                    Visited::Part
                },
                Visited::All
            ]
        );
        mail[1] > 0
    };
    assert!(!ended_before_the_next(1));
    assert!(ended_before_the_next(100_000));
}

#[test]
fn only_pending_changes_are_urgent_and_those_that_no_client_waits_for_may_gather() {
    let (hub, _) = hub(Durability::Durable, 1);
    while hub
        .cut()
        .map(|cut| ring(hub.committed(cut.commit)))
        .is_some()
    {}
    let state = |gathers: bool| {
        hub.lock().pending.gathers = gathers;
        (hub.is_urgent(), hub.is_gathering())
    };
    assert_eq!([state(false), state(true)], [(false, false), (false, true)]);
    visit(&hub, 1, &mut [Item::Command(Tag::NONE, push(10))].into());
    assert_eq!([state(false), state(true)], [(true, false), (false, true)]);
    visit(&hub, 1, &mut items([push(10)]));
    assert_eq!([state(false), state(true)], [(true, false), (true, false)]);
}

/// Writes everything pending to disk.
fn settle(hub: &Hub) {
    while hub
        .cut()
        .map(|cut| ring(hub.committed(cut.commit)))
        .is_some()
    {}
}

fn settled_hub(clients: u64) -> (Hub, Vec<Arc<Mailbox>>) {
    let (hub, mailboxes) = hub(Durability::Durable, clients);
    settle(&hub);
    (hub, mailboxes)
}

#[test]
fn a_hub_knows_the_protocols_names_and_counts_answers_in_the_budget_of_all_connections() {
    let budget = Arc::new(Budget::new(1 << 30));
    let hub = Hub::new(
        Engine::new(Limits::default(), 7),
        Journal::new(),
        Durability::Soon,
        7,
    );
    let hub = hub
        .sharing(Arc::clone(&budget))
        .naming(ProtocolNames::new(vec![(
            Protocol::GEARMAN,
            "gearman",
            "Gearman",
        )]));
    assert_eq!(hub.names.name(Protocol::GEARMAN), "gearman");
    hub.open(
        ClientId(1),
        Arc::new(Mailbox::new(usize::MAX, Arc::clone(&budget), nowhere())),
    );
    visit(
        &hub,
        1,
        &mut items([
            Command::Client(ClientCommand::Open(ClientInfo::default())),
            push(100_000),
        ]),
    );
    let before = budget.held();
    visit(
        &hub,
        1,
        &mut items([Command::Query(Query::Job(JobRef::Id(JobId(1))))]),
    );
    assert!(budget.held() >= before + 100_000, "{}", budget.held());
}

#[test]
fn the_ticker_is_notified_when_something_is_due_earlier() {
    let (hub, _) = settled_hub(1);
    let is_notified = || {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        std::pin::pin!(hub.deadline_moved.notified())
            .poll(&mut context)
            .is_ready()
    };
    hub.tick();
    is_notified();
    let begin = clock::now();
    let push_at = |after_ms: u64| {
        let job = NewJob::new(Protocol::GEARMAN, Bytes::from_static(b"f"), Bytes::new());
        let job = NewJob {
            not_before: Some(begin.after_ms(after_ms)),
            ..job
        };
        visit(
            &hub,
            1,
            &mut items([Command::Job(JobCommand::Push(Box::new(job)))]),
        );
        (is_notified(), hub.lock().ticks_at.unwrap().ms_since(begin))
    };
    const HOUR_MS: u64 = 3_600_000;
    for (hours, notified, next) in [(2, true, 2), (3, false, 2), (2, false, 2), (1, true, 1)] {
        assert_eq!(
            push_at(hours * HOUR_MS),
            (notified, next * HOUR_MS),
            "{hours}"
        );
    }
}

#[test]
fn a_serving_thread_commits_what_is_pending_if_commits_are_left_to_turns() {
    let duty = |durability, in_turns: bool, item: Item| {
        let (hub, _) = hub(durability, 1);
        settle(&hub);
        hub.durable.has_turns.set(true);
        hub.durable.commit_in_turns.set(in_turns);
        let (mut items, mut visited) = ([item].into(), Visited::All);
        let batch = Batch {
            client: ClientId(1),
            items: &mut items,
            room: usize::MAX,
            visited: &mut visited,
        };
        hub.visit(&clock::read(), &mut std::iter::once(batch))
    };
    let query = || Item::Command(Tag(1), Command::Query(Query::Stats));
    let waits = || Item::Command(Tag(1), push(10));
    let table = [
        (
            Durability::Durable,
            true,
            waits(),
            CommitDuty::Now {
                acknowledgements: 1,
            },
        ),
        (
            Durability::Durable,
            true,
            Item::Command(Tag::NONE, push(10)),
            CommitDuty::Later,
        ),
        (Durability::Durable, true, query(), CommitDuty::None),
        (Durability::Durable, false, waits(), CommitDuty::None),
        (Durability::Soon, true, waits(), CommitDuty::None),
    ];
    for (durability, in_turns, item, expected) in table {
        let name = format!("{durability:?} {in_turns} {item:?}");
        assert_eq!(duty(durability, in_turns, item), expected, "{name}");
    }
}

#[test]
fn a_mailbox_is_rung_for_its_commit_or_at_once_if_there_is_nothing_to_wait_for() {
    let (hub, mailboxes) = settled_hub(4);
    let durable = hub.durable();
    let rung = || {
        mailboxes
            .iter()
            .map(|mailbox| u8::from(mailbox.wake_flag().look()))
            .collect::<Vec<_>>()
    };
    rung();
    hub.ring_when_durable(durable, &mailboxes[0]);
    assert_eq!(rung(), [1, 0, 0, 0], "it is durable");
    for (behind, mailbox) in [(2, 0), (1, 1), (1, 3)] {
        hub.ring_when_durable(durable + behind, &mailboxes[mailbox]);
    }
    assert_eq!(rung(), [0; 4]);
    visit(&hub, 3, &mut [Item::Command(Tag::NONE, push(10))].into());
    commit(&hub);
    assert_eq!(rung(), [0, 1, 0, 1], "in the order of commits");
    visit(&hub, 3, &mut [Item::Command(Tag::NONE, push(10))].into());
    commit(&hub);
    assert_eq!(rung(), [1, 0, 0, 0]);
    hub.set_failed(true);
    rung();
    hub.ring_when_durable(durable + 3, &mailboxes[2]);
    assert_eq!(rung(), [0, 0, 1, 0], "the store does not respond");
}

#[test]
fn a_job_is_large_above_a_limit() {
    for (bytes, waits) in [(LARGE_BYTES, false), (LARGE_BYTES + 1, true)] {
        let (hub, _) = settled_hub(1);
        assert_eq!(
            visit(&hub, 1, &mut items([push(bytes), push(bytes)])),
            waits,
            "{bytes}"
        );
        let (hub, _) = self::hub(Durability::Soon, 1);
        hub.durable.set_room(LARGE_BYTES as u64);
        visit(&hub, 1, &mut items([push(bytes), push(bytes)]));
        assert_eq!(
            hub.with_journal(|engine, _| engine.job_count()),
            if waits { 0 } else { 2 },
            "{bytes}"
        );
    }
}

#[test]
fn a_client_with_many_queues_leaves_them_a_part_at_a_time() {
    const QUEUES: usize = 20_000;
    let hub = Hub::new(
        Engine::new(Limits::default(), 7),
        Journal::new(),
        Durability::Soon,
        7,
    );
    hub.open(
        ClientId(1),
        Arc::new(Mailbox::new(usize::MAX, Arc::clone(&hub.budget), nowhere())),
    );
    visit(
        &hub,
        1,
        &mut items([Command::Client(ClientCommand::Open(ClientInfo::default()))]),
    );
    let serve = |number: usize| {
        let (queue, lease) = (
            Bytes::from(format!("queue {number}")),
            LeaseTerms::CONNECTION,
        );
        ClientCommand::Serve(Subscription {
            queue,
            weight: 0,
            lease,
            unclaimed: None,
        })
        .into()
    };
    visit(&hub, 1, &mut items((0..QUEUES).map(serve)));
    let mut leaves = items([ClientCommand::UnserveAll { requeue: false }.into()]);
    assert_eq!(
        hub.visit_one(ClientId(1), &clock::read(), &mut leaves, usize::MAX),
        Visited::Part
    );
    assert_eq!(leaves.len(), 1);
    visit(&hub, 1, &mut leaves);
    visit(&hub, 1, &mut items((0..QUEUES).map(serve)));
    assert!(
        !hub.close(ClientId(1)),
        "other clients have a turn before the rest"
    );
    while !hub.close(ClientId(1)) {}
}

#[test]
fn a_job_that_the_store_cannot_take_is_a_warning() {
    let (hub, _) = settled_hub(1);
    hub.durable.full.set(true);
    let logged = captured(|| {
        _ = visit(
            &hub,
            1,
            &mut items([push(10), Command::Query(Query::Stats)]),
        )
    });
    assert_eq!(logged.matches("job rejected").count(), 1, "{logged}");
}
