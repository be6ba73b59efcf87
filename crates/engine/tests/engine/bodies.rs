//! Bodies are moved out of memory and loaded again.

use std::collections::BTreeMap;

use bytes::Bytes;
use windlass_engine::{
    Backoff, Calls, Capacity, Clash, ClientCommand, ClientId, Command, Condition, Context, Engine,
    Event, Filter, Job, JobCommand, JobId, JobReader, JobStateKind, KeyUntil, Limits, Mutation,
    Notice, Query, Refusal, RepayTo, Reply, Stored, Tag, Timestamp,
};

use crate::common::*;

/// Commands with their clients.
type Commands = Vec<(u64, Command)>;

/// A body that is worth storing.
fn body(text: &str) -> Bytes {
    format!("{text:.<100}").into()
}

pub(crate) fn long(queue: &'static str, text: &str) -> Push {
    push(queue).with(|job| job.body = body(text))
}

/// An engine with bodies that are stored elsewhere on request of the test.
pub(crate) struct Cold {
    pub(crate) broker: Broker,
    disk: BTreeMap<u64, Bytes>,
}

impl Cold {
    pub(crate) fn new() -> Self {
        Self {
            broker: Broker::new(),
            disk: BTreeMap::new(),
        }
    }

    /// With this many jobs in a queue. The body of a job is its ID.
    pub(crate) fn with(queue: &'static str, jobs: u64) -> Self {
        let mut cold = Self::new();
        (1..=jobs).for_each(|job| drop(cold.broker.hear(1, long(queue, &job.to_string()))));
        cold
    }

    /// Moves the body of a job out of memory. The place is the job's ID, plus a thousand for each repetition.
    pub(crate) fn store(&mut self, job: u64) -> Stored {
        let body = self
            .broker
            .engine
            .job(JobId(job))
            .unwrap()
            .payload
            .share_body();
        let at = (0..)
            .map(|times| job + times * 1_000_000)
            .find(|at| !self.disk.contains_key(at))
            .unwrap();
        assert!(
            self.broker.engine.set_stored(JobId(job), &body, at),
            "j{job}"
        );
        self.disk.insert(at, body);
        self.stored(job).unwrap()
    }

    pub(crate) fn store_all(&mut self, jobs: impl IntoIterator<Item = u64>) {
        for job in jobs {
            self.store(job);
        }
    }

    pub(crate) fn stored(&self, job: u64) -> Option<Stored> {
        self.broker.engine.job(JobId(job))?.payload.stored()
    }

    pub(crate) fn load(&mut self, job: JobId, from: Stored) -> bool {
        self.broker
            .engine
            .set_loaded(job, from, &self.disk[&from.at])
    }

    fn freed(&mut self) -> Vec<u64> {
        self.broker
            .engine
            .take_freed()
            .iter()
            .map(|stored| stored.at)
            .collect()
    }

    fn wanted(&mut self) -> Vec<u64> {
        self.broker
            .engine
            .take_wanted()
            .iter()
            .map(|(job, _)| job.0)
            .collect()
    }

    pub(crate) fn cool(&mut self, bytes: u64) -> Vec<u64> {
        self.broker
            .engine
            .cool(bytes)
            .iter()
            .map(|(job, _)| job.0)
            .collect()
    }

    /// Repeats a command until nothing is missing. Returns the events of the last attempt, and the bodies
    /// that were missing before.
    fn insist(&mut self, command: &Command) -> (Vec<(ClientId, Event)>, Vec<u64>) {
        let mut missed = Vec::new();
        loop {
            let mut context = Context::new(Timestamp(self.broker.now), 1);
            self.broker
                .engine
                .apply(ClientId(1), Tag(9), command.clone(), &mut context);
            self.broker.engine.check();
            if context.missing.is_empty() {
                return (context.events, missed);
            }
            assert!(
                context.events.is_empty() && context.changes.is_empty(),
                "{command:?} has done a part"
            );
            for (job, from) in context.missing {
                missed.push(job.0);
                assert!(self.load(job, from));
            }
        }
    }
}

#[test]
fn jobs_whose_bodies_have_left_are_packed_until_one_is_looked_at() {
    let mut cold = Cold::with("q", 2_000);
    let resident = |cold: &Cold| cold.broker.engine.resident_bytes();
    cold.store_all(1..=2_000);
    let without_bodies = resident(&cold);
    while cold.cool(u64::MAX) != Vec::<u64>::new() {}
    // The last page stays unpacked, because the next new job belongs there.
    let packed = resident(&cold);
    assert!(
        packed < without_bodies / 2,
        "{packed} of {without_bodies} bytes are left"
    );
    assert_eq!(cold.cool(u64::MAX), Vec::<u64>::new());
    assert_eq!(
        resident(&cold),
        packed,
        "a look for bodies leaves what is packed alone"
    );

    let one_page = |cold: &Cold| resident(cold) > packed && resident(cold) < packed + 40_000;
    assert_eq!(
        cold.broker
            .engine
            .job(JobId(1_000))
            .unwrap()
            .payload
            .body_len(),
        100
    );
    assert!(one_page(&cold), "a look opens a page");
    cold.broker.engine.pack([JobId(1_000)].into_iter());
    assert_eq!(resident(&cold), packed, "and it is closed again");
    cold.broker.hear(1, JobCommand::Cancel(id(1_000)));
    assert!(one_page(&cold), "a change opens a page");
    cold.broker.engine.pack([JobId(999)].into_iter());
    assert!(resident(&cold) < packed, "the others are packed without it");

    cold.broker.hear(2, take(["q"]));
    cold.broker.engine.pack([JobId(1)].into_iter());
    cold.broker.hear(3, ClientCommand::Close);
    assert!(
        (1..=2_000)
            .filter(|job| *job != 1_000)
            .all(|job| cold.stored(job).is_some())
    );
    cold.broker.engine.check();
}

#[test]
fn bodies_leave_from_the_newest_on_and_those_that_are_needed_soon_stay() {
    let mut cold = Cold::with("q", 600);
    assert_eq!(cold.cool(1_000), (591..=600).rev().collect::<Vec<_>>());
    assert_eq!(cold.cool(300), [590, 589, 588], "the round goes on");
    cold.broker.hear(1, long("q", "new"));
    assert_eq!(cold.cool(150), [601, 587], "new ones come first");
    assert_eq!(cold.cool(u64::MAX).len(), 586);
    // The next round: leased jobs stay, and so do those of a window.
    cold.broker.hear(2, take(["q"]));
    assert_eq!(
        cold.cool(u64::MAX),
        (2..=601).rev().collect::<Vec<_>>(),
        "no window is needed while all are here"
    );
    cold.store(601);
    cold.broker.hear(2, take(["q"]));
    assert_eq!(
        cold.cool(u64::MAX),
        Vec::<u64>::new(),
        "all others are in the window"
    );
    assert_eq!(
        cold.cool(u64::MAX),
        (3..=600).rev().collect::<Vec<_>>(),
        "nothing else is left"
    );
    assert_eq!(
        cold.cool(u64::MAX),
        Vec::<u64>::new(),
        "again those that are not needed"
    );
}

#[test]
fn bodies_that_take_no_memory_or_have_no_place_stay() {
    let mut cold = Cold {
        broker: Broker::limited(|limits| limits.name_bytes_max = 100_000),
        disk: BTreeMap::new(),
    };
    let key: &'static str = String::leak("k".repeat(70_000));
    cold.broker.hear(1, push("q"));
    cold.broker
        .hear(1, long("q", "keyed").unique(key, Clash::Attach));
    cold.broker
        .hear(1, push("q").with(|job| job.body = vec![b'.'; 47].into()));
    cold.broker
        .hear(1, push("q").with(|job| job.body = vec![b'.'; 48].into()));
    let both: Vec<u64> = (0..4).flat_map(|_| cold.cool(u64::MAX)).collect();
    assert_eq!(both, [4, 4], "in every second round");
}

#[test]
fn bytes_of_bodies_in_memory_are_counted() {
    let mut cold = Cold::with("q", 3);
    let stored = cold.store(2);
    assert_eq!(cold.broker.engine.bodies_here(), 200);
    assert!(cold.load(JobId(2), stored));
    cold.broker.hear(1, JobCommand::Cancel(id(1)));
    assert_eq!(cold.broker.engine.bodies_here(), 200);
}

#[test]
fn one_call_looks_at_a_few_thousand_jobs() {
    let mut cold = Cold::with("q", 300);
    for _ in 0..5_000 {
        cold.broker.hear(1, push("r"));
    }
    assert_eq!(cold.cool(u64::MAX), Vec::<u64>::new());
    assert_eq!(cold.cool(u64::MAX), (1..=300).rev().collect::<Vec<_>>());
}

/// The bodies of short queues are moved out in a round that finds nothing else, however many jobs arrive in
/// between.
#[test]
fn jobs_that_come_between_do_not_keep_the_others_in_memory() {
    let mut cold = Cold::with("q", 10);
    let found = (0..4).find(|_| {
        cold.broker.hear(1, push("r"));
        cold.cool(u64::MAX).len() == 10
    });
    assert!(found.is_some());
}

#[test]
fn a_queue_that_is_handed_out_has_its_next_bodies_loaded() {
    let mut cold = Cold::with("q", 5_000);
    cold.store_all(1..=5_000);
    assert_eq!(cold.wanted(), [], "nothing is handed out");
    for (taken, expected) in [
        (1, 2..2_050),
        (2, 0..0),
        (1_024, 0..0),
        (1_025, 2_050..3_074),
    ] {
        while cold
            .broker
            .engine
            .job(JobId(taken))
            .unwrap()
            .lease()
            .is_none()
        {
            cold.broker.hear(2, take(["q"]));
        }
        assert_eq!(
            cold.wanted(),
            expected.collect::<Vec<_>>(),
            "j{taken} is handed out"
        );
    }
}

#[test]
fn a_window_of_large_bodies_is_short() {
    let mut cold = Cold::new();
    for _ in 0..20 {
        cold.broker
            .hear(1, push("q").with(|job| job.body = vec![7; 1 << 20].into()));
    }
    cold.store_all(1..=20);
    cold.broker.hear(2, take(["q"]));
    assert_eq!(cold.wanted(), [2, 3, 4, 5]);
}

#[test]
fn a_job_whose_body_is_elsewhere_is_handed_out_with_its_place() {
    let mut cold = Cold::with("q", 1);
    let place = cold.store(1);
    assert_eq!(cold.broker.engine.stored(), (1, 100));
    let mut events = cold.broker.hear(2, take(["q"]));
    let [(_, event)] = &mut events[..] else {
        panic!("{events:?}")
    };
    assert!(event.waits_for_body() && event.bodies().eq([(JobId(1), place)]));
    let (waits, empty) = (event.clone(), Event::Reply(Tag(6), Reply::Empty));
    assert_eq!(
        waits
            .without_body(JobId(1))
            .map(|event| format!("{event:?}")),
        Some(format!("{empty:?}"))
    );
    event.supply(|_, _| None);
    assert!(event.waits_for_body(), "there is no body");
    event.supply(|job, from| Some(cold.disk[&from.at].clone()).filter(|_| job == JobId(1)));
    assert!(!event.waits_for_body() && event.bodies().next().is_none());
    let Event::Reply(_, Reply::Taken(taken)) = event else {
        panic!("{event:?}")
    };
    assert_eq!((&taken.body, taken.stored), (&body("1"), None));
    cold.broker.says(2, finish(1), ["2 finished j1"]);
    assert_eq!(
        (cold.freed(), cold.broker.engine.stored()),
        (vec![1], (0, 0))
    );
}

#[test]
fn a_delivery_waits_for_its_body_and_has_no_other_answer() {
    let mut cold = Cold::with("q", 1);
    cold.store(1);
    cold.broker.hear(2, serve("q"));
    let events = cold.broker.hear(2, credit(1));
    let [(_, event @ Event::Notice(Notice::Delivered(_)))] = &events[..] else {
        panic!("{events:?}")
    };
    assert!(event.waits_for_body() && event.without_body(JobId(1)).is_none());
}

#[test]
fn a_place_is_taken_and_left_for_the_right_body_only() {
    let mut cold = Cold::with("q", 2);
    let (one, two) = (body("1"), body("2"));
    let Broker { engine, .. } = &mut cold.broker;
    assert!(!engine.set_stored(JobId(9), &one, 5), "no such job");
    assert!(!engine.set_stored(JobId(1), &two, 5), "another body by now");
    assert!(engine.set_stored(JobId(1), &one, 5));
    assert!(
        !engine.set_stored(JobId(1), &one, 6),
        "it is stored already"
    );
    let place = Stored::new(5, &one).unwrap();
    assert!(!engine.set_loaded(JobId(9), place, &one), "no such job");
    assert!(!engine.set_loaded(JobId(2), place, &one), "it is in memory");
    assert!(
        !engine.set_loaded(JobId(1), Stored { at: 6, ..place }, &one),
        "another place"
    );
    assert!(!engine.set_loaded(JobId(1), place, &two), "another body");
    assert_eq!((engine.take_freed(), engine.stored()), (vec![], (1, 100)));
    assert!(engine.set_loaded(JobId(1), place, &one));
    assert_eq!(
        (engine.take_freed(), engine.stored()),
        (vec![place], (0, 0))
    );
    assert_eq!(engine.job(JobId(1)).unwrap().body(), one);
    // It is handed out between the choice and the report.
    cold.broker.hear(2, take(["q"]));
    assert!(!cold.broker.engine.set_stored(JobId(1), &one, 7));
    cold.broker.engine.check();
}

#[test]
fn a_place_is_free_once_when_its_job_needs_it_no_more() {
    let replace = |body| Command::Job(JobCommand::Replace { job: id(1), body });
    let table: [(&str, Commands); 9] = [
        ("cancelled", vec![(1, JobCommand::Cancel(id(1)).into())]),
        ("replaced", vec![(1, replace(body("2")))]),
        ("replaced by the same", vec![(1, replace(body("1")))]),
        (
            "done and kept",
            vec![(2, take(["q"]).into()), (2, finish(1))],
        ),
        ("discarded", vec![(1, mutate(all(), Mutation::Discard))]),
        (
            "killed and cancelled",
            vec![
                (1, mutate(all(), Mutation::Kill)),
                (1, mutate(all(), Mutation::Cancel)),
            ],
        ),
        ("its queue removed", vec![(1, remove_queue("q", false))]),
        (
            "failed for good",
            vec![
                (2, take(["q"]).into()),
                (2, fail(1)),
                (1, mutate(all(), Mutation::Discard)),
            ],
        ),
        (
            "released and discarded",
            vec![
                (2, take(["q"]).into()),
                (2, release(1, false)),
                (1, mutate(all(), Mutation::Discard)),
            ],
        ),
    ];
    for (how, commands) in table {
        let mut cold = Cold::new();
        cold.broker.hear(
            1,
            long("q", "1").retry(-1, Backoff::None).keep_result(9_000),
        );
        cold.store(1);
        for (client, command) in commands {
            assert_eq!(cold.freed(), [], "{how}: not yet");
            cold.broker.hear(client, command);
            cold.broker.engine.check();
        }
        assert_eq!(
            (cold.freed(), cold.broker.engine.stored()),
            (vec![1], (0, 0)),
            "{how}"
        );
        assert_eq!(cold.freed(), [], "{how}: once");
    }
}

#[test]
fn a_job_lives_on_while_its_body_is_elsewhere() {
    let table: [(&str, Push, Commands); 5] = [
        (
            "retried",
            long("q", "1").retry(5, Backoff::None),
            vec![(2, take(["q"]).into()), (2, fail(1))],
        ),
        (
            "dead and requeued",
            long("q", "1"),
            vec![
                (1, mutate(all(), Mutation::Kill)),
                (1, mutate(all(), Mutation::Requeue)),
            ],
        ),
        (
            "its key ends",
            long("q", "1").unique_until("k", Clash::Attach, KeyUntil::Start),
            vec![(2, take(["q"]).into()), (2, release(1, false))],
        ),
        (
            "lost",
            long("q", "1"),
            vec![(2, take(["q"]).into()), (2, ClientCommand::Close.into())],
        ),
        (
            "shelved",
            long("q", "1")
                .cycle()
                .with(|job| job.name = Some(name("n"))),
            vec![(2, take_round("q").into()), (2, release(1, true))],
        ),
    ];
    for (how, push, commands) in table {
        let mut cold = Cold::new();
        cold.broker.hear(1, push);
        let place = cold.store(1);
        commands
            .into_iter()
            .for_each(|(client, command)| drop(cold.broker.hear(client, command)));
        cold.broker.engine.check();
        assert_eq!(
            (cold.stored(1), cold.freed()),
            (Some(place), vec![]),
            "{how}"
        );
        cold.broker.restart(Limits::default());
        assert_eq!(
            (cold.stored(1), cold.broker.engine.stored()),
            (Some(place), (1, 100)),
            "{how}: recalled"
        );
        assert!(cold.load(JobId(1), place), "{how}");
        assert_eq!(
            cold.broker.engine.job(JobId(1)).unwrap().body(),
            body("1"),
            "{how}"
        );
    }
}

#[test]
fn an_entry_that_is_repaid_has_its_new_value_in_memory() {
    let mut cold = Cold::new();
    cold.broker.hear(1, long("c", "1").cycle());
    let place = cold.store(1);
    cold.broker.says(2, take_round("c"), ["2 took j1.2"]);
    cold.broker
        .says(2, repay(1, 2, RepayTo::Reward), ["2 done"]);
    assert_eq!((cold.stored(1), cold.freed()), (None, vec![place.at]));
    assert_eq!(cold.broker.engine.job(JobId(1)).unwrap().body(), b"value");
}

/// The function that a job calls: the first byte of the body.
#[derive(Debug)]
struct Reader;

impl JobReader for Reader {
    fn calls<'a>(&self, job: &'a Job) -> Calls<'a> {
        Calls::Named(String::from_utf8_lossy(&job.body()[..1]))
    }

    fn has_type(&self, job: &Job, name: &str) -> bool {
        job.body().starts_with(name.as_bytes())
    }

    fn text(&self, job: &Job, _: i64) -> Option<Vec<u8>> {
        Some(job.body().to_vec())
    }
}

fn cold_with_texts() -> Cold {
    let mut cold = Cold::new();
    cold.broker.engine.set_reader(std::sync::Arc::new(Reader));
    for text in ["cat", "dog", "cow", "dot"] {
        cold.broker.hear(1, long("q", text));
    }
    cold
}

fn that(condition: Condition) -> Filter {
    Filter {
        conditions: vec![condition],
        ..all()
    }
}

#[test]
fn a_filter_that_reads_bodies_waits_for_those_that_decide() {
    let c = || Condition::Calls {
        name: "c".into(),
        or_queue: false,
    };
    let table: Vec<(&str, Filter, &[u64], &[u64])> = vec![
        ("text", that(Condition::Body("do".into())), &[2, 1], &[4, 2]),
        ("what it calls", that(c()), &[2, 1], &[3, 1]),
        (
            "its type",
            that(Condition::Type("dog".into())),
            &[2, 1],
            &[2],
        ),
        (
            "its text",
            that(Condition::Text(name("*ca*").into())),
            &[2, 1],
            &[1],
        ),
        (
            "the name alone",
            that(Condition::Unnamed),
            &[],
            &[4, 3, 2, 1],
        ),
        (
            "the name first",
            Filter {
                conditions: vec![Condition::Named("x".into()), c()],
                ..all()
            },
            &[],
            &[],
        ),
        (
            "the name behind",
            Filter {
                conditions: vec![c(), Condition::Named("x".into())],
                ..all()
            },
            &[],
            &[],
        ),
        (
            "another state",
            Filter {
                state: Some(JobStateKind::Dead),
                ..that(c())
            },
            &[],
            &[],
        ),
        (
            "both",
            Filter {
                conditions: vec![c(), Condition::Body("cow".into())],
                ..all()
            },
            &[2, 1],
            &[3],
        ),
    ];
    for (what, filter, missing, found) in table {
        let mut cold = cold_with_texts();
        cold.store_all([1, 2]);
        let (events, missed) = cold.insist(&list_jobs(filter.clone()));
        let [(_, Event::Reply(_, Reply::Jobs { rows, next: None }))] = &events[..] else {
            panic!("{what}: {events:?}")
        };
        let rows: Vec<u64> = rows.iter().map(|row| row.job.id.0).collect();
        assert_eq!((&missed[..], &rows[..]), (missing, found), "{what}");

        let mut cold = cold_with_texts();
        cold.store_all([1, 2]);
        let (after, limit, action) = (Default::default(), 1_000, Mutation::Kill);
        let preview = Query::Preview {
            filter: filter.clone().into(),
            action,
            after,
            limit,
        };
        let (events, missed) = cold.insist(&Command::Query(preview));
        assert_eq!(
            (words(&events), &missed[..]),
            (vec![format!("1 counted {}", found.len())], missing),
            "{what}"
        );

        let mut cold = cold_with_texts();
        cold.store_all([1, 2]);
        let (events, missed) = cold.insist(&mutate(filter, Mutation::Kill));
        assert_eq!(
            (words(&events), &missed[..]),
            (vec![format!("1 mutated {}", found.len())], missing),
            "{what}"
        );
        let killed = (1..=4)
            .rev()
            .filter(|job| cold.broker.place(*job).starts_with("dead"));
        assert_eq!(killed.collect::<Vec<_>>(), found, "{what}");
    }
}

#[test]
fn commands_that_may_wait_for_bodies_are_known() {
    let (text, none) = (that(Condition::Body("a".into())), that(Condition::Unnamed));
    assert!(list_jobs(text.clone()).reads_bodies() && mutate(text, Mutation::Kill).reads_bodies());
    assert!(
        !list_jobs(none.clone()).reads_bodies() && !mutate(none, Mutation::Kill).reads_bodies()
    );
    assert!(!Command::from(push("q")).reads_bodies() && !look(1).reads_bodies());
}

/// The rows of a page need the bodies, but not too many together.
#[test]
fn a_page_of_jobs_waits_for_a_few_megabytes_at_most() {
    let mut cold = Cold::new();
    for _ in 0..10 {
        cold.broker
            .hear(1, push("q").with(|job| job.body = vec![7; 1 << 20].into()));
    }
    cold.store_all(1..=10);
    let (mut seen, mut after) = (Vec::new(), Some(Default::default()));
    while let Some(cursor) = after {
        let list = Query::Jobs {
            filter: all().into(),
            after: cursor,
            limit: 1_000,
        };
        let events = cold.broker.hear(1, Command::Query(list));
        let [(_, event @ Event::Reply(_, Reply::Jobs { rows, next }))] = &events[..] else {
            panic!("{events:?}")
        };
        assert!(
            event.bodies().count() == rows.len() && rows.len() <= 4,
            "{} rows",
            rows.len()
        );
        seen.extend(rows.iter().map(|row| row.job.id.0));
        after = *next;
    }
    assert_eq!(seen, (1..=10).rev().collect::<Vec<_>>());
    // A page with a filter that reads bodies has the same limit.
    let mut context = Context::new(Timestamp(1_000), 1);
    let command = list_jobs(that(Condition::Body("x".into())));
    cold.broker
        .engine
        .apply(ClientId(1), Tag(9), command, &mut context);
    assert_eq!((context.missing.len(), context.events.len()), (4, 0));
}

#[test]
fn a_job_page_waits_for_its_body() {
    let mut cold = Cold::with("q", 1);
    cold.store(1);
    let mut events = cold.broker.hear(1, look(1));
    let [(_, event)] = &mut events[..] else {
        panic!("{events:?}")
    };
    assert!(event.waits_for_body());
    let refused = Event::Reply(Tag(6), Reply::Refused(Refusal::Unavailable));
    assert_eq!(
        format!("{:?}", event.without_body(JobId(1))),
        format!("{:?}", Some(refused))
    );
    event.supply(|_, from| Some(cold.disk[&from.at].clone()));
    let Event::Reply(
        _,
        Reply::Looked {
            job: Some(view), ..
        },
    ) = event
    else {
        panic!("{event:?}")
    };
    assert_eq!(view.job.body(), body("1"));
}

#[test]
fn a_watcher_of_a_text_misses_changes_of_bodies_that_are_elsewhere() {
    let mut cold = Cold::with("q", 1);
    cold.store(1);
    let watch = |text: &'static str| ClientCommand::Watch {
        queue: None,
        text: text.into(),
        room: 9,
    };
    cold.broker.hear(2, watch("no such text"));
    cold.broker.hear(3, watch(""));
    cold.broker.says(
        1,
        mutate(all(), Mutation::Kill),
        ["1 mutated 1", "3 sees j1 Dead"],
    );
    cold.broker.says(2, watch("no such text"), ["2 missed 1"]);
}

#[test]
fn jobs_that_exceed_memory_are_refused_and_bodies_elsewhere_make_room() {
    let kib = |queue| push(queue).with(|job| job.body = vec![7; 1_024].into());
    let mut broker = Broker::new();
    broker.says(1, kib("q"), ["1 new j1"]);
    let memory_max = broker.leave_memory(3_750);
    let pushed: Vec<String> = (0..4)
        .flat_map(|_| words(&broker.hear(1, kib("q"))))
        .collect();
    let held = broker.engine.resident_bytes();
    assert_eq!(
        pushed.last(),
        Some(&format!(
            "1 refused: {}",
            Capacity::JobBytes.exceeded(held, memory_max)
        ))
    );
    let mut cold = Cold {
        broker,
        disk: BTreeMap::new(),
    };
    cold.store(1);
    assert!(cold.broker.engine.resident_bytes() < held - 1_024);
    cold.broker.says(
        1,
        push("q").with(|job| job.body = vec![7; 1_000].into()),
        ["1 new j5"],
    );
    // Loading the same bytes exceeds the memory, and further jobs are refused.
    let place = cold.stored(1).unwrap();
    assert!(cold.load(JobId(1), place));
    assert!(cold.broker.engine.resident_bytes() > held);
    let said = words(&cold.broker.hear(1, push("q")));
    assert!(said[0].starts_with("1 refused"), "{said:?}");
}

/// Whatever is reported about bodies, an engine never names a body that it does not have.
#[test]
fn an_empty_engine_has_nothing_to_store() {
    let mut engine = Engine::new(Limits::default(), 1);
    assert!((0..3).all(|_| engine.cool(u64::MAX).is_empty()));
    assert_eq!(
        (engine.stored(), engine.take_wanted(), engine.take_freed()),
        ((0, 0), vec![], vec![])
    );
}
