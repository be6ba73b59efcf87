//! The law of namespaces: whatever the clients of two namespaces do, each sees exactly what it would see if its
//! namespace were alone.
//!
//! Three engines live at the same time: one with the clients of both namespaces, and one for those of each. Dice make
//! the commands from their types, so that a new command is in the law from its first day. All names are the same few,
//! and all numbers are small, so that commands meet what the other namespace has.

use windlass_engine::{
    BatchCommand, BulkCommand, ClientCommand, ClientId, ClientInfo, Command, Context, Engine,
    Event, Limits, NamespaceCommand, NamespaceLimits, Protocol, Query, Reply, ScheduleCommand, Tag,
    Timestamp, WorkerCommand,
};

use super::Tally;
use crate::dice::Dice;
use crate::rng::Rng;

const WORDS: &[&str] = &["a", "b", "shop", ""];

/// Clients of each namespace: those of each protocol, and an operator.
const CLIENTS: u64 = 6;

/// The namespaces, by number.
const NAMES: [&str; 2] = ["shop", "staging"];

/// An engine and the namespaces whose clients it has.
struct Side {
    engine: Engine,
    of: [bool; 2],
}

/// Two namespaces that live together and alone.
struct World {
    rng: Rng,
    dice: Dice,
    now: u64,
    turn: u64,
    both: Side,
    alone: [Side; 2],
    tally: Tally,
}

/// Lives one life. Returns counts of what happened.
///
/// # Panics
///
/// If a namespace sees something that it would not see alone.
#[must_use]
pub fn live_apart(seed: u64, steps: u32) -> Tally {
    let side = |of: [bool; 2]| Side {
        engine: Engine::new(Limits::default(), seed ^ 7),
        of,
    };
    let mut world = World {
        rng: Rng::new(seed),
        dice: Dice::of_words(seed ^ 0xd1ce, WORDS),
        now: 1_000,
        turn: 0,
        both: side([true, true]),
        alone: [side([true, false]), side([false, true])],
        tally: Tally::default(),
    };
    world.begin();
    for step in 0..steps {
        world.step(seed, step);
    }
    world.compare_jobs(seed);
    world.tally
}

/// The namespace of a client; `None`: the operator of both.
fn namespace_of(client: ClientId) -> Option<usize> {
    let index = client.0.checked_sub(1)? / CLIENTS;
    usize::try_from(index).ok().filter(|index| *index < 2)
}

fn info_of(client: ClientId) -> Option<ClientInfo> {
    let namespace = NAMES[namespace_of(client)?];
    let protocol = u8::try_from((client.0 - 1) % CLIENTS).ok()?;
    Some(ClientInfo {
        protocol: (protocol > 0).then_some(Protocol(protocol)),
        namespace: Some(namespace.into()),
        ..ClientInfo::default()
    })
}

impl World {
    fn begin(&mut self) {
        let operator = ClientId(100);
        for side in [&mut self.both].into_iter().chain(&mut self.alone) {
            let mut context = Context::new(Timestamp(self.now), 0);
            let open = ClientCommand::Open(ClientInfo::default());
            side.engine.apply(operator, Tag::NONE, open, &mut context);
        }
        for name in NAMES {
            let set = NamespaceCommand::Set {
                name: name.into(),
                limits: Box::new(NamespaceLimits::default()),
            };
            for side in [&mut self.both].into_iter().chain(&mut self.alone) {
                let mut context = Context::new(Timestamp(self.now), 0);
                side.engine
                    .apply(operator, Tag(1), set.clone(), &mut context);
            }
        }
        for client in (1..=2 * CLIENTS).map(ClientId) {
            self.open(client);
        }
    }

    fn open(&mut self, client: ClientId) {
        if let Some(info) = info_of(client) {
            self.ask(client, Tag::NONE, &ClientCommand::Open(info).into());
        }
    }

    fn step(&mut self, seed: u64, step: u32) {
        if self.rng.chance(40) {
            self.now += self.rng.below(400);
        }
        let ticked = self.tick();
        self.compare(&ticked, seed, step, "time passes");
        let client = ClientId(self.rng.between(1, 2 * CLIENTS));
        let Some(command) = self.command(seed, client) else {
            return;
        };
        self.tally.note_command(&command);
        let tag = Tag(u64::from(step) + 2);
        let asked = self.ask(client, tag, &command);
        self.compare(&asked, seed, step, &format!("{client:?}: {command:?}"));
        if matches!(command, Command::Client(ClientCommand::Close)) {
            self.open(client);
        }
    }

    /// A random command. `None`: the dice made one that is not for these lives.
    fn command(&mut self, seed: u64, client: ClientId) -> Option<Command> {
        let mut command: Command = self.dice.make().ok()?;
        // Most commands need jobs and workers to be about.
        for _ in 0..self.rng.below(6) {
            if is_about_work(&command) {
                break;
            }
            command = self.dice.make().ok()?;
        }
        widen(&mut command);
        // Jobs that the engine pushes by itself get the next free numbers. In one namespace of each life only, so that
        // all engines give the same ones.
        let pushes_by_itself = matches!(
            command,
            Command::Schedule(ScheduleCommand::Set(_)) | Command::Batch(BatchCommand::New(_))
        );
        let is_left_out = matches!(
            command,
            Command::Client(ClientCommand::Open(_)) | Command::Worker(WorkerCommand::Drain)
        );
        let may_push = namespace_of(client) == Some(usize::from(seed.is_multiple_of(2)));
        (!is_left_out && (may_push || !pushes_by_itself)).then_some(command)
    }

    /// Gives the engines of single namespaces the numbers that the one of both would give next.
    fn agree_on_numbers(&mut self) {
        let next = self.both.engine.meta().next_job;
        let rank = self.both.engine.reserve_ranks(0);
        for side in &mut self.alone {
            let mut context = Context::new(Timestamp(self.now), 0);
            side.engine.adopt_numbers(next, &mut context);
            let own = side.engine.reserve_ranks(0);
            side.engine.reserve_ranks(rank.saturating_sub(own));
        }
    }

    /// What the clients of both namespaces were told, as they live together and alone.
    fn ask(&mut self, client: ClientId, tag: Tag, command: &Command) -> [Vec<String>; 2] {
        let own = namespace_of(client);
        self.each(|side, context| {
            let is_there = own.is_some_and(|own| side.of[own]);
            if is_there {
                side.engine.apply(client, tag, command.clone(), context);
            }
        })
    }

    fn tick(&mut self) -> [Vec<String>; 2] {
        self.each(|side, context| side.engine.tick(context))
    }

    fn each(&mut self, act: impl Fn(&mut Side, &mut Context)) -> [Vec<String>; 2] {
        self.agree_on_numbers();
        self.turn += 1;
        let act_on = |side: &mut Side| {
            let mut context = Context::new(Timestamp(self.now), self.turn);
            act(side, &mut context);
            context.events
        };
        let together = told(&act_on(&mut self.both));
        let mut alone: Vec<String> = Vec::new();
        for side in &mut self.alone {
            alone.extend(told(&act_on(side)));
        }
        [together, alone]
    }

    fn compare(&mut self, told: &[Vec<String>; 2], seed: u64, step: u32, what: &str) {
        let [together, alone] = told;
        for name in NAMES {
            let of = |all: &[String]| {
                let own = all.iter().filter(|line| line.starts_with(name));
                own.cloned().collect::<Vec<_>>()
            };
            assert_eq!(
                of(together),
                of(alone),
                "seed {seed}, step {step}, {what}: {name} sees the left, and alone the right"
            );
        }
        self.tally
            .note_many("events", together.len().try_into().unwrap_or(0));
    }

    /// Asserts that each namespace has the jobs that it would have alone.
    fn compare_jobs(&self, seed: u64) {
        let jobs = |engine: &Engine| {
            let line = |job: &windlass_engine::Job| {
                let namespace = engine.namespace(job.queue.namespace());
                let namespace = namespace.map(|it| it.name.clone());
                let queue = engine.queue(job.queue).map(|it| it.image().name.clone());
                format!("{namespace:?} {queue:?} {}", plain(&format!("{job:?}")))
            };
            let mut jobs: Vec<String> = engine.jobs().map(line).collect();
            jobs.sort();
            jobs
        };
        let mut alone: Vec<String> = self.alone.iter().flat_map(|it| jobs(&it.engine)).collect();
        alone.sort();
        assert_eq!(
            jobs(&self.both.engine),
            alone,
            "seed {seed}: jobs at the end"
        );
    }
}

const fn is_about_work(command: &Command) -> bool {
    matches!(
        command,
        Command::Job(_) | Command::Take(_) | Command::Lease(_) | Command::Client(_)
    )
}

/// Lets a command that walks queues or jobs have all of them in a page: the numbers of queues give their order, and
/// jobs of others are passed over at a cost, so that a small page has other rows or ends sooner.
fn widen(command: &mut Command) {
    match command {
        Command::Query(
            Query::Queues { limit, .. }
            | Query::Configured { limit, .. }
            | Query::Throttles { limit, .. }
            | Query::Figures { limit, .. }
            | Query::Jobs { limit, .. }
            | Query::JobsBy { limit, .. }
            | Query::Preview { limit, .. },
        )
        | Command::Bulk(
            BulkCommand::Mutate { limit, .. }
            | BulkCommand::Flush { limit, .. }
            | BulkCommand::Redrive { limit, .. },
        ) => *limit = (*limit).max(100),
        _ => {}
    }
}

/// A line for each event, without what only tells engines apart.
fn told(events: &[(ClientId, Event)]) -> Vec<String> {
    let line = |(client, event): &(ClientId, Event)| {
        let name = namespace_of(*client).map_or("nobody", |own| NAMES[own]);
        let mut event = event.clone();
        // The numbers of queues give their order.
        match &mut event {
            Event::Reply(_, Reply::Queues { rows, .. }) => {
                rows.sort_by(|one, other| one.name.cmp(&other.name));
            }
            Event::Reply(_, Reply::Throttles { rows, .. }) => {
                rows.sort_by(|one, other| one.queue.cmp(&other.queue));
            }
            Event::Reply(_, Reply::Figures { rows, .. }) => {
                rows.sort_by(|one, other| one.name.cmp(&other.name));
            }
            _ => {}
        }
        format!("{name} {client:?} {}", plain(&format!("{event:?}")))
    };
    events.iter().map(line).collect()
}

/// Without the numbers that depend on what else an engine has: those of queues, the ranks of jobs, and cursors.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    const HIDDEN: [(&str, char); 3] = [("QueueId(", ')'), ("rank: ", ','), ("Cursor(", ')')];
    while let Some((at, (word, end))) = HIDDEN
        .iter()
        .filter_map(|hidden| Some((rest.find(hidden.0)?, *hidden)))
        .min()
    {
        let from = at + word.len();
        let until = rest[from..].find(end).map_or(rest.len(), |len| from + len);
        plain.push_str(&rest[..from]);
        rest = &rest[until..];
    }
    plain.push_str(rest);
    plain
}
