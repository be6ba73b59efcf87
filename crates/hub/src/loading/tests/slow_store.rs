//! Lives of a hub whose store takes commits quickly, slowly, or not at all, while clients push more than memory holds and
//! bodies leave it. Each life is made from a seed. The laws hold at any moment:
//!
//! - `sync`: each acknowledged job is in a durable commit.
//! - `interval`: the acknowledged jobs that are not have at most 32 MiB, and all were acknowledged within two intervals of
//!   the oldest change that is not durable.
//! - Memory holds no more than its limit and one visit.
//! - A client that waits goes on only when it is rung. When the store takes commits again, each job of each client is
//!   acknowledged or refused.

use windlass_testkit::rng::Rng;

use super::*;

const INTERVAL: Duration = Duration::from_millis(100);
/// The acknowledged bytes that a crash may lose, plus the last visit.
const LOSS_MAX: u64 = (32 << 20) + VISIT_MAX;
const VISIT_MAX: u64 = 3 * BODY_MAX;
const BODY_MAX: u64 = 2 << 20;
const STEPS: u32 = 400;

/// A job that a client has pushed, by its tag.
struct Pushed {
    bytes: u64,
    /// The commit that contains it.
    commit: u64,
    /// When it was pushed, and when its reply came.
    at: u64,
    acknowledged: Option<u64>,
}

struct Life {
    bench: Bench,
    rng: Rng,
    /// Bodies are slices of it.
    bytes: Bytes,
    now: u64,
    durability: Durability,
    memory_max: u64,
    /// The items that each client has still to push, and whether it waits to be woken.
    items: [(VecDeque<Item>, bool); 4],
    pushed: HashMap<u64, Pushed>,
    next_tag: u64,
    /// The commit being written, and when the write completes.
    writing: Option<(Cut, u64)>,
    /// The current duration of a commit.
    slow_ms: u64,
}

impl Life {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let durability = rng.one_of([Durability::Soon, Durability::Soon, Durability::Durable]);
        let memory_max = rng.between(8 << 20, 96 << 20);
        let engine = Engine::new(
            Limits {
                memory_max,
                ..Limits::default()
            },
            seed,
        );
        let bench = Bench::on(engine, durability, Some(INTERVAL));
        let now = clock::read().now.0 + 10_000;
        let bytes = Bytes::from(vec![7; usize::try_from(BODY_MAX).unwrap()]);
        let (items, pushed) = (Default::default(), HashMap::default());
        Self {
            bench,
            rng,
            bytes,
            now,
            durability,
            memory_max,
            items,
            pushed,
            next_tag: 1,
            writing: None,
            slow_ms: 0,
        }
    }

    fn step(&mut self) {
        self.now += self.rng.one_of([0, 1, 5, 40]);
        match self.rng.below(10) {
            0..=3 => self.push(),
            4..=6 => self.store(),
            7 => drop(self.bench.work.step()),
            8 => self.slow_ms = self.rng.one_of([0, 20, 150, 1_000, 100_000]),
            _ => self.fail_or_recover(),
        }
        self.turns();
        self.check();
    }

    fn push(&mut self) {
        let client = usize::try_from(self.rng.below(4)).unwrap();
        for _ in 0..self.rng.between(1, 3) {
            let most = self.rng.one_of([100, 20_000, BODY_MAX]);
            let bytes = self.rng.between(1, most);
            let body = self.bytes.slice(..usize::try_from(bytes).unwrap());
            let new = NewJob::new(Protocol::GEARMAN, QUEUE, body);
            let push = Item::Command(Tag(self.next_tag), JobCommand::Push(Box::new(new)).into());
            self.items[client].0.push_back(push);
            let pushed = Pushed {
                bytes,
                commit: u64::MAX,
                at: self.now,
                acknowledged: None,
            };
            self.pushed.insert(self.next_tag, pushed);
            self.next_tag += 1;
        }
    }

    /// Gives a turn to all clients that may have one, like a serving thread.
    fn turns(&mut self) {
        for client in 1..=4 {
            self.answers(client);
            while self.turn(client) {}
            self.answers(client);
        }
    }

    /// Returns whether there is more to do immediately.
    fn turn(&mut self, client: u64) -> bool {
        let (items, waits) = &mut self.items[usize::try_from(client).unwrap() - 1];
        *waits &= !self.bench.is_rung(client);
        if items.is_empty() || *waits {
            return false;
        }
        let before: Vec<_> = items.iter().map(tag).collect();
        let reading = windlass_engine::Reading {
            now: windlass_engine::Timestamp(self.now),
            ..clock::read()
        };
        let visited = self
            .bench
            .hub
            .visit_one(ClientId(client), &reading, items, usize::MAX);
        *waits = visited == Visited::UntilRung;
        let commit = self
            .bench
            .hub
            .with_journal(|_, it| it.pending_seq() - u64::from(it.is_empty()));
        for done in &before[..before.len() - items.len()] {
            let pushed = self.pushed.get_mut(done).unwrap();
            (pushed.commit, pushed.at) = (commit, self.now);
        }
        visited == Visited::Part
    }

    fn answers(&mut self, client: u64) {
        let mut mail = Vec::new();
        self.bench
            .hub
            .mail(self.bench.mailbox(client), usize::MAX, &mut mail);
        for mail in mail {
            let Mail::Event(Event::Reply(tag, reply)) = mail else {
                continue;
            };
            if matches!(reply, Reply::Refused(_)) {
                self.pushed.remove(&tag.0);
            } else if let Some(pushed) = self.pushed.get_mut(&tag.0) {
                pushed.acknowledged = Some(self.now);
            }
        }
    }

    fn store(&mut self) {
        if let Some((_, until)) = &self.writing
            && *until > self.now
        {
            return;
        }
        if let Some((cut, _)) = self.writing.take() {
            let seq = cut.commit.seq();
            self.bench
                .hub
                .committed(cut.commit)
                .iter()
                .for_each(|mailbox| mailbox.ring());
            self.bench.hub.set_failed(false);
            self.pushed
                .retain(|_, pushed| pushed.commit > seq || pushed.acknowledged.is_none());
        }
        self.writing = self
            .bench
            .hub
            .cut()
            .map(|cut| (cut, self.now + self.slow_ms));
    }

    fn fail_or_recover(&mut self) {
        if self.writing.is_some() {
            self.bench.hub.set_failed(self.rng.chance(10));
        }
    }

    fn check(&self) {
        let durable = self.bench.hub.durable();
        let at_risk = || {
            self.pushed
                .values()
                .filter(|it| it.commit > durable && it.acknowledged.is_some())
        };
        let lost: u64 = at_risk().map(|it| it.bytes).sum();
        if self.durability == Durability::Durable {
            assert_eq!(lost, 0, "acknowledged, and in no durable commit");
        }
        assert!(lost <= LOSS_MAX, "{lost} acknowledged bytes are at risk");
        let unwritten = self
            .pushed
            .values()
            .filter(|it| it.commit > durable && it.commit != u64::MAX);
        let oldest = unwritten.map(|it| it.at).min().unwrap_or(self.now);
        let within = u64::try_from(2 * INTERVAL.as_millis()).unwrap();
        let late = at_risk().filter(|it| it.at > oldest + within).count();
        assert_eq!(
            late,
            0,
            "acknowledged at once although the disk is behind since {} ms",
            self.now - oldest
        );
        let (used, limit) = (self.bench.hub.memory().0, self.memory_max + 2 * VISIT_MAX);
        assert!(used <= limit, "memory holds {used} of {limit} bytes");
    }

    /// The store responds, and accepts everything.
    fn settle(&mut self) {
        self.slow_ms = 0;
        self.bench.hub.set_failed(false);
        for _ in 0..100_000 {
            self.now += 1;
            self.turns();
            self.bench.steps();
            self.store();
            if self.writing.is_none() && self.items.iter().all(|(items, _)| items.is_empty()) {
                break;
            }
        }
        self.turns();
        let left = self
            .pushed
            .values()
            .filter(|it| it.acknowledged.is_none())
            .count();
        assert_eq!(left, 0, "jobs of clients that nobody has rung");
    }
}

fn tag(item: &Item) -> u64 {
    let Item::Command(tag, _) = item else {
        unreachable!("clients push only")
    };
    tag.0
}

#[test]
fn a_slow_store_loses_no_more_than_was_promised_and_forgets_no_client() {
    let seeds = windlass_testkit::sim::number("WINDLASS_SEEDS").unwrap_or(20);
    for seed in 0..seeds {
        let lived = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let mut life = Life::new(seed);
            (0..STEPS).for_each(|_| life.step());
            life.settle();
        }));
        assert!(lived.is_ok(), "seed {seed}");
    }
}
