//! The world: time passes, daemons have their turns, clients ask, and things go wrong. Everything follows from the
//! seed.

use std::collections::{BTreeMap, VecDeque};

use windlass_engine::{Claim, ClientId, Holder, Job, Lease};
use windlass_link::Edge as EdgeNumber;
use windlass_testkit::rng::Rng;
use windlass_testkit::sim::Tally;

use super::client::{Client, Who, named, serial};
use super::daemon::Daemon;
use super::database::{Database, Run, Statement, Trouble};
use super::laws::Laws;
use super::links::{Delays, Links};
use super::room::Room;
use super::{DAEMONS, Plan};
use windlass_hub::Mail;

/// How many of the last events a failure prints.
const TRACE_MAX: usize = 60;

/// How long a cluster without faults may take to answer everything, in milliseconds.
const RECOVERY_MS: u64 = 60_000;

/// The environment of the daemons.
#[derive(Debug)]
pub(super) struct Around {
    pub(super) plan: Plan,
    pub(super) rng: Rng,
    /// In milliseconds.
    pub(super) now: u64,
    pub(super) database: Database,
    pub(super) links: Links,
    pub(super) clients: BTreeMap<Who, Client>,
    /// The runs of the daemons that are up.
    pub(super) alive: [Option<Run>; DAEMONS],
    /// The owner of each edge number.
    pub(super) numbers: BTreeMap<u32, Run>,
    pub(super) laws: Laws,
    pub(super) tally: Tally,
    /// How often a thread stalls, in a thousand steps.
    stalls: u64,
    trace: VecDeque<String>,
}

impl Around {
    fn new(plan: Plan) -> Self {
        let mut rng = Rng::new(plan.seed);
        Self {
            database: Database::new(plan.has_fence, &mut rng),
            plan,
            rng,
            now: 1_000,
            links: Links::default(),
            clients: BTreeMap::new(),
            alive: [None; DAEMONS],
            numbers: BTreeMap::new(),
            laws: Laws::default(),
            tally: Tally::default(),
            stalls: 0,
            trace: VecDeque::new(),
        }
    }

    pub(super) fn note(&mut self, what: impl FnOnce() -> String) {
        if self.trace.len() == TRACE_MAX {
            self.trace.pop_front();
        }
        self.trace.push_back(format!("{:>6} {}", self.now, what()));
    }

    pub(super) fn send(&mut self, from: Run, statement: Statement) -> u64 {
        self.database.send(self.now, &mut self.rng, from, statement)
    }

    /// Whether a thread stalls now, and for how long.
    pub(super) fn stands_still(&mut self) -> bool {
        self.stalls > 0 && self.rng.below(1_000) < self.stalls
    }

    pub(super) fn pause_ms(&mut self) -> u64 {
        let most = self.rng.one_of([50, 400, 3_000, 6_000]);
        self.rng.between(1, most)
    }

    /// Whether no later daemon has become leader.
    pub(super) const fn is_leader(&self, epoch: u64) -> bool {
        self.database.epoch() == epoch
    }

    // ---- what leaders do -------------------------------------------------------------------------------------------

    fn whose(&self, own: Run, client: ClientId) -> Option<Who> {
        match EdgeNumber::of(client) {
            Some(edge) => Some((
                *self.numbers.get(&edge.number())?,
                ClientId(client.0 ^ edge.first_client().0),
            )),
            None => Some((own, client)),
        }
    }

    /// Something that a leader has decided leaves it.
    pub(super) fn leaves(&mut self, epoch: u64) {
        let present = self.database.epoch();
        self.laws.leaves(epoch, present);
    }

    /// A job is leased in the engine of a leader. `recovers`: the lease was in the store.
    pub(super) fn leased(
        &mut self,
        epoch: u64,
        own: Run,
        (job, lease): (&Job, &Lease),
        recovers: bool,
    ) {
        let (who, bound) = match &lease.holder {
            Holder::Connection(client) => (self.whose(own, *client), true),
            Holder::Named(name) => (named(name), false),
            // A leader has no such leases.
            Holder::Away(_) => (None, false),
        };
        if recovers {
            return who
                .into_iter()
                .for_each(|who| self.laws.recovers(epoch, (job.id, lease.token), who));
        }
        let serial = self.laws.serial(serial(job.body()), job.id, Some(epoch));
        let leader = (epoch, self.is_leader(epoch));
        who.into_iter().for_each(|who| {
            self.laws
                .leased(leader, serial, (job.id, lease.token), who, bound)
        });
    }

    /// A client of an edge claims what it has.
    pub(super) fn claims(&mut self, epoch: u64, client: ClientId, claim: &Claim, in_grace: bool) {
        let Claim::Holds { job, held } = claim else {
            return;
        };
        self.tally.note(if in_grace {
            "a job is claimed in the grace"
        } else {
            "a job is claimed late"
        });
        if let Some(who) = self.whose((usize::MAX, 0), client)
            && self.is_leader(epoch)
        {
            self.laws.claims(epoch, who, (*job, held.token), in_grace);
        }
    }

    // ---- clients ---------------------------------------------------------------------------------------------------

    /// A daemon has sent this to a client.
    pub(super) fn sent(&mut self, who: Who, mail: Vec<Mail>) {
        let pause = if self.stands_still() {
            self.pause_ms()
        } else {
            0
        };
        let at = self.now + pause;
        let Some(client) = self.clients.get_mut(&who) else {
            return;
        };
        for mail in mail {
            client.promise(&mail, &mut self.laws);
            client.sent(at, mail);
        }
    }

    /// A daemon has closed a client.
    pub(super) fn closed(&mut self, who: Who) {
        let now = self.now;
        self.laws.leaves_for_good(who);
        self.clients
            .get_mut(&who)
            .into_iter()
            .for_each(|client| client.closed(now));
    }

    /// Closes the clients of a daemon that is gone.
    pub(super) fn close_all_of(&mut self, run: Run) {
        let now = self.now;
        for client in self
            .clients
            .values_mut()
            .filter(|client| client.who().0 == run && client.is_served)
        {
            client.cut(now);
            client.is_served = false;
            self.laws.leaves_for_good(client.who());
        }
    }
}

/// Checks that a leader, its edges and their clients agree.
mod agreement;

pub(super) struct World {
    around: Around,
    daemons: Vec<Daemon>,
    pushes: u64,
    /// How often each kind of fault happens, in a thousand steps.
    odds: Odds,
}

#[derive(Clone, Copy, Debug, Default)]
struct Odds {
    kill: u64,
    stall: u64,
    cut: u64,
    yields: u64,
    clocks: u64,
    fail_over: u64,
    part: u64,
    stop: u64,
}

impl World {
    /// Runs a life.
    ///
    /// # Errors
    ///
    /// The law that was broken, and the events before.
    pub(super) fn live(plan: Plan) -> Result<Tally, String> {
        let mut world = Self::new(plan);
        let lived = world.live_on();
        let Around {
            trace,
            laws,
            mut tally,
            database,
            ..
        } = world.around;
        let (pushes, ends) = laws.promises();
        tally.note_many("jobs acknowledged", pushes as u64);
        tally.note_many("ends acknowledged", ends as u64);
        tally.note_many("commits refused by the fence", database.refused);
        match lived {
            None => Ok(tally),
            Some(law) => {
                let trace: Vec<_> = trace.into_iter().collect();
                Err(format!(
                    "seed {}: {law}\n  {}",
                    plan.seed,
                    trace.join("\n  ")
                ))
            }
        }
    }

    fn new(plan: Plan) -> Self {
        let mut around = Around::new(plan);
        let daemons = (0..DAEMONS)
            .map(|index| Daemon::new(index, &mut around))
            .collect();
        let mut odds = Odds::default();
        if plan.trouble {
            let rng = &mut around.rng;
            let mut some = |odds: [u64; 4]| rng.one_of(odds);
            odds = Odds {
                kill: some([0, 2, 5, 10]),
                stall: some([0, 5, 10, 20]),
                cut: some([0, 3, 6, 15]),
                yields: some([0, 0, 3, 6]),
                clocks: some([0, 0, 3, 20]),
                fail_over: some([0, 0, 2, 5]),
                part: some([0, 0, 2, 5]),
                stop: some([0, 0, 2, 5]),
            };
            around.stalls = some([0, 0, 5, 20]);
            around.database.trouble = Trouble {
                slow: some([0, 1, 5, 20]),
                lost: some([0, 0, 1, 5]),
            };
            around.links.delays = Delays {
                slow: some([0, 1, 5, 20]),
            };
        }
        Self {
            around,
            daemons,
            pushes: 0,
            odds,
        }
    }

    fn live_on(&mut self) -> Option<String> {
        for _ in 0..self.around.plan.steps {
            self.upset();
            self.step(true);
            if let Some(law) = self.around.laws.broken() {
                return Some(law.clone());
            }
        }
        self.end();
        self.around.laws.broken().cloned()
    }

    /// Time passes. Each daemon has a turn, and some clients send requests.
    fn step(&mut self, acts: bool) {
        let Self {
            around, daemons, ..
        } = self;
        let most = around.rng.one_of([5, 30, 60, 120]);
        around.now += around.rng.between(1, most);
        around.laws.now = around.now;
        around.database.step(around.now, &mut around.rng);
        let first = around.rng.below(DAEMONS as u64);
        for at in 0..DAEMONS {
            let at = (at + usize::try_from(first).unwrap()) % DAEMONS;
            daemons[at].turn(around);
        }
        around.database.step(around.now, &mut around.rng);
        let Around {
            clients,
            laws,
            tally,
            now,
            ..
        } = around;
        clients.retain(|_, client| client.receive(*now, laws, tally));
        for _ in 0..around.rng.below(4) * u64::from(acts) {
            self.act();
        }
        // Commands that clients sent on their own.
        for (who, client) in &self.around.clients {
            if !client.items.is_empty() && !client.waits {
                self.daemons[who.0.0].note_items(who.1);
            }
        }
    }

    fn act(&mut self) {
        let Self {
            around,
            daemons,
            pushes,
            ..
        } = self;
        let at = usize::try_from(around.rng.below(DAEMONS as u64)).unwrap();
        let daemon = &mut daemons[at];
        if !daemon.is_up() || daemon.is_stopping() {
            return;
        }
        let run = daemon.run();
        let of: Vec<Who> = around
            .clients
            .values()
            .filter(|it| it.is_open())
            .map(Client::who)
            .collect();
        let of: Vec<Who> = of.into_iter().filter(|who| who.0 == run).collect();
        if of.len() < around.plan.clients && around.rng.chance(40) || of.is_empty() {
            if !daemon.is_stalled(around.now) {
                daemon.on(around.now, |daemon| daemon.connect(around));
            }
            return;
        }
        let who = *around.rng.pick(&of).unwrap();
        let now = daemon.on(around.now, |_| windlass_hub::clock::now());
        let Around {
            clients, rng, laws, ..
        } = around;
        let Some(client) = clients.get_mut(&who) else {
            return;
        };
        if rng.chance(1) {
            client.leave(laws);
        } else {
            client.act(now, rng, pushes, laws);
        }
        daemon.note_items(who.1);
    }

    /// Injects a fault.
    fn upset(&mut self) {
        let Self {
            around,
            daemons,
            odds,
            ..
        } = self;
        let any = usize::try_from(around.rng.below(DAEMONS as u64)).unwrap();
        let leader = daemons.iter().position(|daemon| daemon.leads().is_some());
        let at = leader.filter(|_| around.rng.chance(50)).unwrap_or(any);
        let daemon = &mut daemons[at];
        let mut happens = |odds| around.rng.below(1_000) < odds;
        let (kill, stall, yields) = (
            happens(odds.kill),
            happens(odds.stall),
            happens(odds.yields),
        );
        let (clocks, cut) = (happens(odds.clocks), happens(odds.cut));
        let (fail_over, part, stop) = (
            happens(odds.fail_over),
            happens(odds.part),
            happens(odds.stop),
        );
        if kill && daemon.is_up() {
            around.note(|| format!("{at} is killed"));
            around.tally.note("a daemon is killed");
            daemon.kill(around);
        }
        if stall {
            daemon.stalled_until = around.now + around.pause_ms();
            around.tally.note("a daemon stands still");
            around.note(|| format!("{at} stands still until {}", daemon.stalled_until));
        }
        if yields {
            daemon.ask_to_yield();
        }
        if stop {
            around.note(|| format!("{at} is asked to stop"));
            daemon.ask_to_stop();
        }
        if clocks {
            daemon.upset_clock(around);
            around.tally.note("a clock jumps");
        }
        if cut && around.links.cut_one(around.now, &mut around.rng) {
            around.note(|| "a link is cut".to_owned());
            around.tally.note("a link is cut");
        }
        if fail_over {
            around.note(|| "the database fails over".to_owned());
            around.tally.note("the database fails over");
            around.database.fail_over(around.now, &mut around.rng);
        }
        if part {
            let until = around.now + around.pause_ms();
            around.note(|| format!("{at} cannot reach the database until {until}"));
            around.tally.note("a daemon is parted from the database");
            around.database.part(at, until);
        }
    }

    // ---- the end ---------------------------------------------------------------------------------------------------

    /// Without further faults, everything must be answered and all jobs must be taken.
    fn end(&mut self) {
        self.around.note(|| "no more trouble".to_owned());
        (self.odds, self.around.stalls) = (Odds::default(), 0);
        self.around.database.heal();
        self.around.links.delays = Delays::default();
        for daemon in &mut self.daemons {
            daemon.recover(self.around.now);
        }
        if !self.settle(|world| world.trouble_left()) {
            return;
        }
        self.compare_ledgers();
        self.find_waits();
        self.each_client(|client, _| client.unwait());
        self.each_client(|client, laws| drop(client.finish_all(laws)));
        if self.settle(|world| world.trouble_left()) {
            self.drain();
        }
    }

    fn each_client(&mut self, mut act: impl FnMut(&mut Client, &mut Laws)) {
        let Around { clients, laws, .. } = &mut self.around;
        clients
            .values_mut()
            .filter(|client| client.is_open())
            .for_each(|client| act(client, laws));
    }

    /// Continues until nothing is pending, and for a while longer. At the end nothing is in flight:
    /// an edge that has not received a job, or whose client's departure has not arrived, would
    /// differ from the leader.
    fn settle(&mut self, left: impl Fn(&Self) -> Option<String>) -> bool {
        const QUIET: u32 = 12;
        let (until, mut quiet) = (self.around.now + RECOVERY_MS, 0);
        while quiet < QUIET || self.is_under_way() {
            self.step(false);
            let left = left(self);
            quiet = if left.is_none() { quiet + 1 } else { 0 };
            if self.around.laws.broken().is_some() {
                return false;
            }
            if self.around.now > until {
                self.around
                    .laws
                    .is_broken(|| format!("the cluster does not recover: {left:?}"));
                return false;
            }
        }
        true
    }

    /// Whether something is to be sent to an edge, or is in flight between two daemons.
    fn is_under_way(&self) -> bool {
        self.around.links.carry_any()
            || self
                .daemons
                .iter()
                .filter_map(Daemon::leads)
                .any(Room::has_to_send)
    }

    /// Work that the cluster has not completed yet.
    fn trouble_left(&self) -> Option<String> {
        let mut leaders = self
            .daemons
            .iter()
            .filter_map(|daemon| Some((daemon.run(), daemon.leads()?)));
        let Some((run, leader)) = leaders.next() else {
            return Some("no daemon leads".to_owned());
        };
        if self.daemons.iter().any(Daemon::is_stopping) {
            return Some("a daemon is about to stop".to_owned());
        }
        if leaders.next().is_some() {
            return Some("a daemon is deposed and does not know it".to_owned());
        }
        if !self
            .daemons
            .iter()
            .all(|daemon| daemon.leads().is_some() || daemon.follows(run, &self.around.links))
        {
            return Some("a daemon has no leader".to_owned());
        }
        if self
            .daemons
            .iter()
            .any(|daemon| daemon.leads().is_none() && daemon.broker().edge().is_busy())
        {
            return Some("the leader has not done all that an edge has asked".to_owned());
        }
        let unanswered = self
            .around
            .clients
            .values()
            .filter(|client| client.is_open())
            .find_map(|client| Some(format!("{:?}: {}", client.who(), client.unanswered()?)));
        unanswered.or_else(|| leader.is_busy().then(|| "commits, or the grace".to_owned()))
    }

    /// A client connects to any daemon.
    fn connect(&mut self) -> Who {
        let Self {
            around, daemons, ..
        } = self;
        let at = usize::try_from(around.rng.below(DAEMONS as u64)).unwrap();
        let who = daemons[at].on(around.now, |daemon| daemon.connect(around));
        let Around { clients, rng, .. } = around;
        clients.get_mut(&who).unwrap().open(rng);
        who
    }

    /// A client takes everything. When its daemon disconnects it after a change of leader, it
    /// reconnects.
    fn drain(&mut self) {
        let mut who = self.connect();
        let until = self.around.now + RECOVERY_MS;
        loop {
            if !self.around.clients.get(&who).is_some_and(Client::is_open) {
                who = self.connect();
            }
            let Around { clients, laws, .. } = &mut self.around;
            // Refused ends are requested again.
            let others = clients
                .values_mut()
                .filter(|client| client.who() != who && client.is_open());
            others.for_each(|client| drop(client.finish_all(laws)));
            let client = clients.get_mut(&who).unwrap();
            for serial in client.finish_all(laws) {
                laws.is_left(serial);
            }
            (0..8).for_each(|_| client.take_any());
            (0..5).for_each(|_| self.step(false));
            let jobs = self
                .daemons
                .iter()
                .find_map(Daemon::leads)
                .map(|room| room.jobs());
            let lacks = self.around.laws.lacks_runs();
            if jobs.as_ref().is_some_and(Vec::is_empty)
                && lacks.is_none()
                && self.trouble_left().is_none()
            {
                break;
            }
            if self.around.laws.broken().is_some() {
                return;
            }
            if self.around.now > until {
                let left = self.trouble_left().or(lacks);
                let story = |(serial, state): &(u64, String)| {
                    format!("{serial} {state}\n    {}", self.around.laws.story(*serial))
                };
                let stories: Vec<_> = jobs.iter().flatten().map(story).collect();
                return self.around.laws.is_broken(|| {
                    format!("jobs cannot be taken, {left:?}: {}", stories.join("\n  "))
                });
            }
        }
        self.settle(|world| world.trouble_left());
        self.around.laws.judge_the_end();
    }
}
