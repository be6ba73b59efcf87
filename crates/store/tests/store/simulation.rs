//! A daemon's life from one seed: visits, commits that fail, crashes in the middle of a commit, recoveries. After each
//! crash the engine must be what it was at the last commit that was whole, and the books must be what they were.
//!
//! `WINDLASS_SEED=n` runs one seed, `WINDLASS_SEEDS=n` more of them.

use crate::dice::Dice;
use crate::world::{any_command, discard_all, open_clients, queue_names, unschedule};
use windlass_engine::{ClientId, Command, Engine, Limits, QueueKind, Tag, Timestamp, Turn};
use windlass_store::{Commit, Fault, Fingerprint, Journal, JournalLimits, JournalStats, MemoryStore, Store, recover};

const VISITS: u64 = 150;

/// What is known of a commit: what recovery from it must bring back, and the journal's books.
#[derive(Clone, Debug)]
struct Known {
    print: Fingerprint,
    stats: JournalStats,
}

struct Daemon {
    seed: u64,
    dice: Dice,
    engine: Engine,
    journal: Journal,
    limits: JournalLimits,
    store: MemoryStore,
    turn: Turn,
    durable: Known,
    on_its_way: Option<(Commit, Known)>,
    recoveries: u64,
    torn: u64,
}

impl Daemon {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let limits = match dice.roll(3) {
            0 => JournalLimits::default(),
            1 => JournalLimits { floor_bytes: 2_000, live_multiple: 2, step_bytes: 300, commits_max: 1 << 16 },
            _ => JournalLimits { floor_bytes: 0, live_multiple: 1, step_bytes: 50, commits_max: 5 },
        };
        let engine = Engine::new(Limits::default(), seed);
        let mut journal = Journal::new(limits.clone());
        let turn = Turn::new(Timestamp(1_000_000), seed);
        let mut store = MemoryStore::new();
        let commit = journal.cut(&engine).unwrap();
        store.commit(&commit).unwrap();
        journal.committed(commit.seq());
        let durable = known(&engine, &journal);
        let mut daemon = Self {
            seed,
            dice,
            engine,
            journal,
            limits,
            store,
            turn,
            durable,
            on_its_way: None,
            recoveries: 0,
            torn: 0,
        };
        open_clients(&mut daemon.engine, &mut daemon.turn);
        daemon
    }

    fn visit(&mut self) {
        let step = if self.dice.one_in(20) { 20_000 } else { 300 };
        self.turn.now = self.turn.now.after_ms(self.dice.roll(step));
        self.turn.changes.clear();
        self.turn.events.clear();
        for _ in 0..=self.dice.roll(4) {
            let (client, command) = any_command(&mut self.dice, &self.engine, self.turn.now);
            self.engine.apply(client, Tag(1), command, &mut self.turn);
        }
        self.journal.append(&self.engine, &self.turn.changes);
    }

    fn apply(&mut self, command: Command) {
        self.turn.changes.clear();
        self.engine.apply(ClientId(0), Tag(1), command, &mut self.turn);
        self.journal.append(&self.engine, &self.turn.changes);
    }

    fn cut(&mut self) {
        if self.on_its_way.is_some() {
            return;
        }
        if let Some(commit) = self.journal.cut(&self.engine) {
            let known = known(&self.engine, &self.journal);
            self.on_its_way = Some((commit, known));
        }
    }

    /// Tries to write what is on its way.
    fn write(&mut self) {
        let Some((commit, known)) = self.on_its_way.take() else { return };
        if self.dice.one_in(6) {
            let fault = self.dice.one_of(&[Fault::Nothing, Fault::Half, Fault::Everything]);
            self.store.fail(0, fault, false);
        }
        match self.store.commit(&commit) {
            Ok(()) => {
                self.journal.committed(commit.seq());
                self.durable = known;
            }
            Err(_) => {
                self.store.reopen().unwrap();
                self.on_its_way = Some((commit, known));
            }
        }
    }

    /// The power fails, possibly in the middle of a commit. Then a new daemon starts on what is there.
    fn crash(&mut self) {
        if let Some((commit, known)) = self.on_its_way.take() {
            let batches = self.dice.roll(MemoryStore::batches(&commit) as u64 + 1);
            let torn = self.dice.one_in(2);
            self.store = self.store.cut_during(&commit, usize::try_from(batches).unwrap(), torn);
            // An earlier try may have written what this one did not.
            let there = self.store.values();
            if parts(&commit).iter().all(|(key, value)| there.get(key) == Some(value)) {
                self.durable = known;
            } else {
                self.torn += 1;
            }
        }
        self.recover();
    }

    fn recover(&mut self) {
        let seed = self.seed;
        let recovered = recover(&self.store, Limits::default(), self.limits.clone(), seed)
            .unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        let print = Fingerprint::of(&recovered.engine);
        if let Some(difference) = print.differs_from(&self.durable.print) {
            panic!("seed {seed}: recovered (first) and durable (second) differ: {difference}");
        }
        let (head, was) = (recovered.engine.head(), self.durable.print.head.clone());
        assert!(head.next_job >= was.next_job, "seed {seed}: numbers would be used again");
        let books = |stats: JournalStats| (stats.live_bytes, stats.jobs);
        let (is, was) = (recovered.journal.stats(), self.durable.stats);
        assert_eq!(books(is), books(was), "seed {seed}: live bytes and jobs in the books");
        if recovered.report.torn.is_none() {
            assert_eq!((is.commits, is.bytes), (was.commits, was.bytes), "seed {seed}: commits in the books");
        }
        self.recoveries += 1;
        self.engine = recovered.engine;
        self.journal = recovered.journal;
        self.turn = Turn::new(self.turn.now, seed + self.recoveries);
        open_clients(&mut self.engine, &mut self.turn);
        // What was due while the daemon was down is done by now.
        self.journal.append(&self.engine, &self.turn.changes);
    }

    fn commit_all(&mut self) {
        while self.on_its_way.is_some() || self.journal.wants_cut() {
            self.cut();
            self.write();
        }
    }
}

fn parts(commit: &Commit) -> Vec<(u64, Vec<u8>)> {
    let (mut values, mut parts) = (commit.values(), Vec::new());
    while let Some((key, value)) = values.next() {
        parts.push((key, value.to_vec()));
    }
    parts
}

fn known(engine: &Engine, journal: &Journal) -> Known {
    Known { print: Fingerprint::of(engine), stats: journal.stats() }
}

/// One life. Returns how often it recovered, found a torn commit, and rewrote something.
fn live(seed: u64) -> [u64; 3] {
    let mut daemon = Daemon::new(seed);
    let mut rewritten = 0;
    for _ in 0..VISITS {
        match daemon.dice.roll(12) {
            0..=5 => daemon.visit(),
            6..=8 => daemon.cut(),
            9 | 10 => daemon.write(),
            _ if daemon.dice.one_in(4) => {
                rewritten += daemon.journal.stats().compactions;
                daemon.crash();
            }
            _ => {}
        }
    }
    daemon.commit_all();
    daemon.recover();
    // At the end everything goes, and then so must the journal, but for the last word on each queue and the head.
    while daemon.engine.schedules().next().is_some() {
        let command = unschedule(&mut daemon.dice, &daemon.engine);
        daemon.apply(command);
    }
    for _ in 0..4 {
        // Batches push what they still had to, come to rest and are forgotten.
        daemon.turn.now = daemon.turn.now.after_ms(1_000_000_000_000);
        daemon.apply(discard_all());
        daemon.apply(Command::Close);
    }
    queue_names().for_each(|queue| daemon.apply(Command::RemoveQueue { queue, only_idle: false }));
    // What is superfluous goes a little with each commit, so some commits more are needed.
    let queue = queue_names().next().unwrap();
    daemon.apply(Command::CreateQueue { queue: queue.clone(), kind: QueueKind::Work });
    for n in 0..200 {
        daemon.apply(discard_all());
        daemon.apply(Command::PauseQueue { queue: queue.clone(), paused: n % 2 == 0 });
        daemon.commit_all();
        if daemon.journal.stats().commits <= 3 {
            break;
        }
    }
    daemon.recover();
    let stats = daemon.journal.stats();
    let left = (daemon.engine.job_count(), daemon.engine.batches().count());
    assert_eq!(left, (0, 0), "seed {seed}: jobs and batches are left");
    assert!(stats.commits <= 3, "seed {seed}: {stats:?} for nothing");
    [daemon.recoveries, daemon.torn, rewritten]
}

#[test]
fn every_crash_recovers_what_was_durable() {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    if let Some(seed) = number("WINDLASS_SEED") {
        println!("seed {seed}: {:?}", live(seed));
        return;
    }
    let seeds = number("WINDLASS_SEEDS").unwrap_or(400);
    let sums = (0..seeds).map(live).fold([0; 3], |sums, one| [0, 1, 2].map(|i| sums[i] + one[i]));
    // The dice must have found what is worth finding.
    assert!(sums.iter().all(|sum| *sum > seeds / 4), "{sums:?} recoveries, torn commits, passes in {seeds} lives");
}
