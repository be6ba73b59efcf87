//! Simulates a broker's life from one seed: random numbers decide which client sends which command and when, a
//! machine's jumping clocks give the time, and an oracle computes the answer that the engine must give.
//!
//! After every command the simulator compares the engine's answers, jobs, queues and figures with the oracle's, its own
//! indexes with each other ([`Engine::check`]), and its changes with a journal from which it could be rebuilt; now and
//! then the engine *is* rebuilt. On every failure, the simulator prints the seed: a seed is a bug report.
#![expect(
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a checker reports by panicking, and the guard prints the seed"
)]
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the script and the laws single out what they are about"
)]

mod apart;
mod bodies;
mod history;
mod journal;
mod kind;
mod laws;
mod listings;
mod on_dead;
mod oracle;
mod order;
mod promises;
mod script;
mod script_jobs;
mod seeds;
mod tally;
mod world;

use std::collections::VecDeque;
use std::sync::Arc;

use windlass_engine::{
    BulkCommand, ClientCommand, ClientId, Command, Context, Engine, Event, Job, JobCommand, JobId,
    JobRef, Pushed, Query, QueueCommand, Reply, Tag, Timestamp,
};

use crate::clock::Machine;
use crate::rng::Rng;

pub use apart::live_apart;
use bodies::Bodies;
use history::History;
use journal::Journal;
use kind::Kind;
use laws::Laws;
use on_dead::Reports;
use oracle::{Oracle, same_events};
use order::Order;
use script::Script;
pub use seeds::{live_all, number};
pub use tally::Tally;
use world::World;

/// The unit of changes to the wall clock.
const HOUR_MS: i64 = 3_600_000;

/// How many of the last commands a failure prints.
const TRACE_MAX: usize = 25;

/// The parameters of a life.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Determines everything.
    pub seed: u64,
    /// The number of events.
    pub steps: u32,
    /// Keys the engine's hash tables; must change nothing.
    pub hash_seed: u64,
    /// Computes a fingerprint of all the engine's output, at a cost.
    pub fingerprint: bool,
}

/// Simulates one life. Returns counts of what happened.
///
/// # Panics
/// If the engine disagrees with the oracle; prints the seed and the last commands.
#[must_use]
pub fn live(plan: Plan) -> Tally {
    let mut life = Life::new(plan);
    for step in 0..plan.steps {
        life.step = step;
        life.happen();
    }
    for (what, count) in std::mem::take(&mut life.oracle.seen) {
        life.tally.note_many(what, count);
    }
    std::mem::take(&mut life.tally)
}

struct Life {
    plan: Plan,
    step: u32,
    rng: Rng,
    world: World,
    machine: Machine,
    engine: Engine,
    context: Context,
    oracle: Oracle,
    journal: Journal,
    bodies: Bodies,
    laws: Laws,
    history: History,
    order: Order,
    tally: Tally,
    tags: u64,
    trace: VecDeque<String>,
}

impl Drop for Life {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let trace = self.trace.make_contiguous().join("\n  ");
            let (seed, step) = (self.plan.seed, self.step);
            eprintln!(
                "seed {seed}, step {step}; the last commands:\n  {trace}\nreplay: WINDLASS_SIM_SEED={seed}"
            );
        }
    }
}

impl Life {
    fn new(plan: Plan) -> Self {
        let mut rng = Rng::new(plan.seed);
        let world = World::new(&mut rng);
        let limits = world.limits.clone();
        let now = Timestamp(1_700_000_000_000);
        let mut engine = Engine::new(limits.clone(), plan.hash_seed);
        engine.set_on_dead(Some(Arc::new(Reports)));
        engine.keep_history(true);
        Self {
            plan,
            step: 0,
            rng,
            world,
            machine: Machine::new(now),
            engine,
            context: Context::new(now, 0),
            oracle: Oracle::new(limits),
            journal: Journal::default(),
            bodies: Bodies::default(),
            laws: Laws::default(),
            history: History::default(),
            order: Order::default(),
            tally: Tally::default(),
            tags: 0,
            trace: VecDeque::new(),
        }
    }

    /// One turn: time passes, a few commands arrive together, the journal is written.
    fn happen(&mut self) {
        self.pass_time();
        self.upset_clocks();
        self.move_bodies();
        self.begin();
        if self.rng.chance(20) {
            self.tick();
        }
        for _ in 0..self.rng.one_of([1, 1, 1, 2, 4]) {
            let kind = self.kind();
            let mut script = Script {
                rng: &mut self.rng,
                world: &self.world,
                oracle: &self.oracle,
            };
            match (kind, script.command(kind)) {
                (Kind::Crash, _) => self.crash(),
                (_, (client, Command::Query(Query::Jobs { filter, limit, .. }))) => {
                    self.walk(client, &filter, limit)
                }
                (
                    _,
                    (client, Command::Query(Query::Job(JobRef::KeyAnywhere { protocol, key }))),
                ) => {
                    self.look_anywhere(client, protocol, key);
                }
                (
                    _,
                    (
                        client,
                        Command::Bulk(BulkCommand::Mutate {
                            filter,
                            action,
                            limit,
                            ..
                        }),
                    ),
                ) => {
                    self.mutate(client, &filter, action, limit);
                }
                (
                    _,
                    (
                        client,
                        Command::Bulk(BulkCommand::Redrive {
                            filter,
                            to,
                            delay_ms,
                            per_second,
                            limit,
                            ..
                        }),
                    ),
                ) => {
                    self.redrive(client, &filter, (to, delay_ms, per_second), limit);
                }
                (
                    _,
                    (
                        client,
                        Command::Bulk(BulkCommand::Flush {
                            protocol, limit, ..
                        }),
                    ),
                ) => self.flush(client, protocol, limit),
                (_, (client, command)) => {
                    // Their answers depend on the engine's queue numbers, and a run may create a queue.
                    if matches!(
                        command,
                        Command::Query(Query::Queues { .. })
                            | Command::Queue(
                                QueueCommand::Bridge(_) | QueueCommand::SetPatterns(_)
                            )
                    ) {
                        self.tick();
                    }
                    self.ask_in_parts(client, command);
                }
            }
        }
        self.journal
            .write(&self.engine, &self.context.changes, &self.bodies);
        self.history.watch(&self.engine, &self.context.changes);
        self.bodies.free(&mut self.engine);
        self.tally
            .note_changes(self.plan.fingerprint, &self.context.changes);
    }

    /// The kind of the next event: mostly, but not always, one that is possible now.
    fn kind(&mut self) -> Kind {
        let kind = self.world.pick(&mut self.rng);
        let leased = |cycle| {
            move |memo: &oracle::JobMemo| {
                memo.job.lease().is_some() && memo.job.cycle().is_some() == cycle
            }
        };
        let open = self.oracle.clients.len();
        let free = |client: &oracle::ClientMemo| client.blocked().is_empty();
        let possible = match kind {
            Kind::Open => open < self.world.clients_max,
            _ if open == 0 => false,
            Kind::Finish
            | Kind::Fail
            | Kind::Unconvertible
            | Kind::Release
            | Kind::Extend
            | Kind::Tell => self.oracle.jobs.iter().any(leased(false)),
            Kind::Repay => self.oracle.jobs.iter().any(leased(true)),
            Kind::Take | Kind::Sleep => self.oracle.clients.iter().any(free),
            Kind::BatchOpen | Kind::BatchCommit | Kind::LookBatch => {
                self.oracle.live_batches().next().is_some()
            }
            Kind::Beat | Kind::Signal => !self.oracle.workers.is_empty(),
            _ => true,
        };
        if possible || self.rng.chance(5) {
            return kind;
        }
        match self.rng.below(10) {
            _ if open == 0 => Kind::Open,
            0..6 => Kind::Take,
            6 => Kind::Serve,
            7 => Kind::Unwait,
            _ => Kind::Push,
        }
    }

    // ---- time and turns --------------------------------------------------------------------------------------------

    fn pass_time(&mut self) {
        let next = self
            .engine
            .next_deadline()
            .filter(|at| *at < Timestamp::NEVER);
        match (self.rng.below(12), next) {
            (0..5, _) => self.machine.advance_ms(self.rng.below(self.world.pace_ms)),
            (5, Some(at)) => self.machine.advance_to(at),
            (6, Some(at)) => self.machine.advance_to(Timestamp(at.0 - 1)),
            (7, Some(at)) => self.machine.advance_to(Timestamp(at.0 + 1)),
            (8, _) => self
                .machine
                .advance_ms(self.rng.below(self.world.pace_ms * 10)),
            _ => {}
        }
    }

    /// In some worlds the wall clock is set now and then, and the daemon pauses.
    fn upset_clocks(&mut self) {
        if self.rng.chance(self.world.steps_percent) {
            let ms = self.rng.one_of([
                HOUR_MS, -HOUR_MS, HOUR_MS, -HOUR_MS, 700, -700, 1_001, -1_001,
            ]);
            self.step_wall(ms);
        }
        if self.rng.chance(self.world.pauses_percent) {
            let ms = self.rng.one_of([2_999, 3_000, 3_001, 14_000, 3_600_000]);
            self.note(&format!("the daemon pauses for {ms} ms"));
            *self.oracle.seen.entry("Clock::Paused").or_default() += 1;
            self.machine.pause_ms(ms);
        }
    }

    fn step_wall(&mut self, ms: i64) {
        self.note(&format!("the wall clock is set by {ms} ms"));
        *self
            .oracle
            .seen
            .entry(if ms < 0 {
                "Clock::Back"
            } else {
                "Clock::Forward"
            })
            .or_default() += 1;
        self.machine.step_wall_ms(ms);
    }

    fn begin(&mut self) {
        let seed = self.rng.throw();
        // The engine ignores a time that goes back. The daemon takes the time and the clocks of a turn from one
        // reading. After a pause both must match: a restart goes on from the time that the engine noted with the new
        // clocks.
        let back = if self.rng.chance(3) {
            self.rng.below(100)
        } else {
            0
        };
        let reading = self.machine.read();
        let back = if reading.pause_ms.is_some() { 0 } else { back };
        self.laws.watch_clock(&reading);
        self.context = Context::new(Timestamp(reading.now.0 - back), seed);
        self.context.clock = reading.clock;
        self.oracle.begin(self.context.now, reading.clock);
    }

    fn tick(&mut self) {
        self.engine.tick(&mut self.context);
        self.engine.check();
        self.oracle.learn(&self.engine);
        self.note("tick");
        let said = self.oracle.wait();
        let heard = self.heard();
        self.laws.judge_promises(&self.oracle, &self.machine);
        self.judge(None, &heard, &said);
    }

    /// Sends the command part by part first, as far as it has parts: the result must be the same. There are three
    /// exceptions. If a job dies of it, or takes more bytes, dead jobs may be dropped between two parts. If the limits
    /// give a woken sleeper no time, a sleeper woken by one part oversleeps before the next command. And if a job may be
    /// gone behind which others wait, these are due then, and start before the next command.
    fn ask_in_parts(&mut self, client: ClientId, command: Command) {
        let asleep =
            |client: &oracle::ClientMemo| matches!(client.waiting, oracle::Waiting::Asleep { .. });
        let oversleeps = self.world.limits.wake_ms == 0 && self.oracle.clients.iter().any(asleep);
        let in_parts = matches!(
            command,
            Command::Client(ClientCommand::Close)
                | Command::Client(ClientCommand::UnserveAll { .. })
        );
        let drops = self.oracle.kills(client) || self.oracle.has_dead_to_drop_for(client);
        if in_parts && !oversleeps && !drops && !self.oracle.may_free_by(client) {
            self.come_to_rest();
            while self
                .engine
                .apply_in_part(client, &command, &mut self.context)
            {
                self.oracle.see("Part::Done");
            }
        }
        self.ask(client, command);
    }

    // ---- asking ----------------------------------------------------------------------------------------------------

    fn ask(&mut self, client: ClientId, command: Command) {
        let tag = self.tag(&command);
        self.note(&format!("{client:?} {tag:?} {command:?}"));
        let now = self.context.now.max(self.oracle.now);
        let due = self.oracle.is_upset(self.context.clock)
            || self.oracle.next_deadline().is_some_and(|at| at <= now);
        let away = self.bodies_away();
        let heard = self.hear(client, tag, command.clone());
        let said = self.oracle.apply(client, tag, &command);
        self.note_submits(&away, &heard);
        self.judge(Some((client, &command)), &heard, &said);
        if matches!(command, Command::Job(JobCommand::Push(_))) && !due {
            Laws::watch_push(&heard, self.oracle.takes_unclaimed());
        }
        self.tally.note_command(&command);
    }

    /// The jobs of submits whose bodies are out of memory.
    fn bodies_away(&self) -> Vec<JobId> {
        let is_submitted = |job: &&Job| {
            job.extra
                .as_deref()
                .is_some_and(|extra| extra.coalesced.is_some())
        };
        let jobs = self
            .engine
            .jobs()
            .filter(|job| job.payload.stored().is_some())
            .filter(is_submitted);
        jobs.map(|job| job.id).collect()
    }

    /// Counts submits that became such a job.
    fn note_submits(&mut self, away: &[JobId], heard: &[(ClientId, Event)]) {
        for (_, event) in heard {
            if let Event::Reply(
                _,
                Reply::Pushed {
                    job,
                    how: Pushed::Attached | Pushed::Kept,
                    ..
                },
            ) = event
                && away.contains(job)
            {
                self.oracle.see("Coalesce::BodyAway");
            }
        }
    }

    /// Sends a command to the engine alone.
    fn hear(&mut self, client: ClientId, tag: Tag, command: Command) -> Vec<(ClientId, Event)> {
        for tries in 0.. {
            let before = (self.context.events.len(), self.context.changes.len());
            self.engine
                .apply(client, tag, command.clone(), &mut self.context);
            if self.context.missing.is_empty() {
                break;
            }
            self.oracle.see("Bodies::Missing");
            let after = (self.context.events.len(), self.context.changes.len());
            assert_eq!(
                before, after,
                "{command:?} waits for bodies and has done something"
            );
            self.engine.check();
            self.bodies
                .load(&mut self.engine, &mut self.context, &mut self.rng);
            // Others leave meanwhile, but not for ever.
            if tries == 0 {
                self.move_bodies();
            }
        }
        self.engine.check();
        self.oracle.learn(&self.engine);
        self.heard()
    }

    /// The events since the last time, with their bodies.
    fn heard(&mut self) -> Vec<(ClientId, Event)> {
        let mut heard = std::mem::take(&mut self.context.events);
        self.bodies.supply(&mut heard);
        heard
    }

    /// In some worlds bodies leave memory now and then.
    fn move_bodies(&mut self) {
        if self.rng.chance(self.world.bodies_percent) {
            let jobs: Vec<_> = self.oracle.jobs.iter().map(|memo| memo.job.id).collect();
            self.bodies.shuffle(&mut self.engine, &jobs, &mut self.rng);
            self.oracle.see("Bodies::Moved");
            self.engine.check();
        }
    }

    fn judge(
        &mut self,
        asked: Option<(ClientId, &Command)>,
        heard: &[(ClientId, Event)],
        said: &[(ClientId, Event)],
    ) {
        self.order.watch(
            asked.map(|(_, command)| command),
            heard,
            &self.engine,
            self.context.now,
        );
        same_events(heard, said);
        self.laws.watch(asked, heard, &self.engine);
        self.oracle.compare(&self.engine);
        self.laws.watch_promises(&self.oracle, &self.machine);
        self.tally.note_events(self.plan.fingerprint, heard);
    }

    /// A tag for the answer; sometimes none, if the simulator does not need the answer.
    fn tag(&mut self, command: &Command) -> Tag {
        let needed = matches!(command, Command::Job(JobCommand::Push(new)) if new.listen.is_wanted())
            || self.rng.chance(80);
        self.tags += 1;
        let silent = self.rng.one_of([Tag::NONE, Tag::silent(self.tags)]);
        if needed { Tag(self.tags) } else { silent }
    }

    fn note(&mut self, what: &str) {
        if self.trace.len() == TRACE_MAX {
            self.trace.pop_front();
        }
        self.trace
            .push_back(format!("{} {:?} {what}", self.step, self.context.now));
    }

    /// The daemon crashes, or stops in order, and is started again.
    fn crash(&mut self) {
        let clean = self.rng.chance(60);
        // If the daemon is killed before it has noticed a pause, it counts as down since the pause.
        // A stop gives the jobs in hand its own time.
        if clean || self.oracle.is_upset(self.context.clock) {
            self.tick();
        }
        self.note(if clean { "restart" } else { "crash" });
        self.tally.note_restart(clean);
        if clean {
            let held = self.engine.held_over_connections();
            held.chunks(2)
                .for_each(|page| self.engine.leave(page, &mut self.context));
            self.oracle.leave();
            self.engine.finish_meta();
        }
        self.journal.write(
            &self.engine,
            &std::mem::take(&mut self.context.changes),
            &self.bodies,
        );
        self.bodies.end();
        self.engine = self.journal.recover(
            self.world.limits.clone(),
            self.plan.hash_seed.wrapping_add(1),
            clean,
        );
        self.engine.check();
        self.laws.survive();
        self.history.survive(&self.engine);
        self.oracle.survive(&self.engine);
        self.oracle.compare(&self.engine);
        self.laws.watch_promises(&self.oracle, &self.machine);
        self.be_down();
        self.begin();
        self.tick();
    }

    /// The clocks move while the daemon is down.
    fn be_down(&mut self) {
        let ms = self.rng.below(self.world.pace_ms);
        self.machine.pause_ms(ms);
        let booted = self.rng.chance(30);
        if booted {
            self.machine.boot();
            self.laws.boot();
        }
        if self.rng.chance(self.world.steps_percent * 8) {
            let ms = self.rng.one_of([HOUR_MS, -HOUR_MS]);
            self.step_wall(ms);
            // The downtime can no longer be determined.
            if booted {
                self.laws.forget_promises();
            }
        }
        self.machine.start(&self.engine.meta().clock);
    }
}
