//! The engine room of a leader: its hub, the commits, the lease renewals, and the links of its
//! edges. In the daemon each has its own thread, which may stall by itself.

use std::collections::BTreeSet;
use std::sync::Arc;

use windlass_engine::{ClientId, Command, Context, Engine, Holder, JobId, Limits};
use windlass_link::{Decoder, Edge as EdgeNumber, Encoder, FRAME_BYTES_MAX, ToEdge, ToLeader};
use windlass_store::{StoreLimits, Tenure as _, open_parts};
use windlass_testkit::store::{MemoryLog, MemoryTable};

use super::as_ms;
use super::client::serial;
use super::database::{Answer, LEASE_MS, Run, Statement};
use super::lease::Renewals;
use super::links::End;
use super::world::Around;
use greeting::Greeting;
use windlass_cluster::leader::EdgeClients;
use windlass_cluster::link::{OPEN_MAX, SILENCE_MAX};
use windlass_hub::{Budget, Cut, Durability, Hub, clock};

mod greeting;

/// How soon a failed commit is retried, in milliseconds.
const RETRY_MS: u64 = 100;

/// How long a connection and its greeting may take, in milliseconds.
pub(super) const OPEN_MS: u64 = as_ms(OPEN_MAX);

/// How long the clients of a link that was cut are kept, in milliseconds.
const KEEP_MS: u64 = as_ms(SILENCE_MAX);

/// Bytes that may wait for a client.
pub(super) const OUTBOUND_MAX: usize = 1 << 26;

/// The digest of the settings that all daemons have in common.
pub(super) const SETTINGS: [u8; 32] = [7; 32];

/// Limits that never drop jobs whose workers are lost, because the laws expect these jobs back.
pub(super) fn limits() -> Limits {
    Limits {
        losses_max: 0,
        loss_pause_ms: 0,
        ..Limits::default()
    }
}

/// The thread that commits.
#[derive(Debug)]
enum Commits {
    Idle,
    /// A commit in flight.
    Writing(Cut, u64),
    /// A failed commit, retried at this time.
    Failed(Cut, u64),
}

/// One edge's link.
#[derive(Debug)]
struct Served {
    link: u64,
    edge: Run,
    decoder: Decoder<ToLeader>,
    encoder: Encoder<ToEdge>,
    /// The edge has sent its greeting, and is accepted when the database has recorded it.
    greeted: Option<Greeting>,
    /// `None` until the edge is accepted.
    clients: Option<EdgeClients>,
    /// The edge's number, once it has greeted.
    number: Option<EdgeNumber>,
    /// Whether another link of the edge has taken over the clients.
    is_replaced: bool,
    since: u64,
    /// Collected but not yet sent.
    to_edge: Vec<ToEdge>,
    /// Whether the lease was valid when the thread checked, so that the collected items may be
    /// sent.
    has_looked: bool,
    /// The thread is stalled until then.
    free_at: u64,
}

/// The clients of a link that was cut.
#[derive(Debug)]
struct Kept {
    clients: EdgeClients,
    edge: Run,
    until: u64,
}

/// The engine room.
#[derive(Debug)]
pub(super) struct Room {
    run: Run,
    pub(super) hub: Arc<Hub>,
    pub(super) renewals: Renewals,
    commits: Commits,
    commits_at: u64,
    links: u32,
    served: Vec<Served>,
    kept: Vec<Kept>,
    accepts: bool,
    /// Whether it may act, the grace is over, and due work was done.
    acts: bool,
    /// When the grace ends, by the engine's time, if edges do not claim what they had.
    grace_until: u64,
    /// Whether they have.
    pub(super) ends_early: bool,
    /// Whether an operator has asked it to step down.
    yields: bool,
    /// Everything is committed, and the lease is being released.
    gives_back: Option<u64>,
}

impl Room {
    /// Opens the store. If it cannot be read, a law is broken.
    pub(super) fn open(
        run: Run,
        renewals: Renewals,
        log: Vec<Vec<u8>>,
        around: &mut Around,
    ) -> Option<Self> {
        let (log, seed) = (MemoryLog::with(log), around.rng.throw());
        let opened = open_parts(
            &log,
            Box::new(MemoryTable::new()),
            &StoreLimits::default(),
            limits(),
            seed,
        );
        let recovered = match opened {
            Ok((_, recovered)) => recovered,
            Err(why) => {
                around
                    .laws
                    .is_broken(|| format!("the log cannot be read: {why}"));
                return None;
            }
        };
        let (mut engine, mut journal) = (recovered.engine, recovered.journal);
        clock::start(&engine.meta().clock, renewals.lease.wall_ahead_ms());
        let epoch = renewals.lease.epoch();
        if epoch > 1 {
            let mut context = Context::new(clock::now(), around.rng.throw());
            engine.succeed(&mut context);
            journal.append(&engine, &context.changes);
        }
        let tenure = Arc::clone(&renewals.lease) as Arc<dyn windlass_store::Tenure>;
        let hub =
            Hub::new(engine, journal, Durability::Durable, around.rng.throw()).under(Some(tenure));
        let hub = Arc::new(hub.sharing(Arc::new(Budget::new(1 << 30))));
        let room = Self {
            run,
            hub,
            renewals,
            commits: Commits::Idle,
            commits_at: 0,
            links: 0,
            served: Vec::new(),
            kept: Vec::new(),
            accepts: false,
            acts: false,
            grace_until: if epoch > 1 { u64::MAX } else { 0 },
            ends_early: false,
            yields: false,
            gives_back: None,
        };
        room.look(around, true);
        if around.is_leader(epoch) {
            around.laws.has_read(epoch);
        }
        Some(room)
    }

    /// Whether serving threads may act now, or must wait.
    pub(super) fn is_free(&self) -> bool {
        self.hub.may_act() || self.hub.deposed().is_some()
    }

    /// Does what is due, unless the lease is uncertain.
    pub(super) fn tick(&mut self) {
        self.acts = self.hub.may_act() && !self.is_in_grace();
        let _ = self.hub.tick();
        self.ends_early |= self.is_in_grace() && !self.hub.is_in_grace();
    }

    /// Starts accepting edges.
    pub(super) const fn accept(&mut self) {
        self.accepts = true;
    }

    pub(super) fn begin_grace(&mut self) {
        self.hub.begin_grace();
        self.grace_until = self.grace_until.min(clock::now().0 + LEASE_MS);
    }

    /// Whether a claim counts, whatever has happened since the leader began.
    fn is_in_grace(&self) -> bool {
        clock::now().0 < self.grace_until
    }

    pub(super) const fn is_yielding(&self) -> bool {
        self.yields
    }

    /// Releases the store when everything is committed. Its sockets are closed.
    pub(super) fn stop(&mut self, around: &mut Around) {
        self.hub.step_down();
        // The link thread may run once more.
        if around.rng.chance(50) {
            self.serve(around);
        }
        for served in self.served.drain(..) {
            around.links.close(served.link, End::Leader, around.now);
        }
        self.kept.clear();
        self.accepts = false;
        self.yields = true;
        self.hub.with_journal(|engine, journal| {
            engine.finish_meta();
            journal.stop_in_order();
        });
    }

    /// Whether the lease was released or lost.
    pub(super) fn is_over(&self) -> bool {
        self.hub.deposed().is_some()
    }

    /// Whether commits are pending, or the grace lasts.
    pub(super) fn is_busy(&self) -> bool {
        let keeps = !self.kept.is_empty()
            || self
                .served
                .iter()
                .any(|it| it.clients.as_ref().is_some_and(EdgeClients::keeps));
        keeps
            || !self.acts
            || !matches!(self.commits, Commits::Idle)
            || !self.hub.with_journal(|_, journal| journal.is_empty())
    }

    /// Whether a link thread sends something in its next round.
    pub(super) fn has_to_send(&self) -> bool {
        self.served.iter().any(|served| !served.to_edge.is_empty())
    }

    /// All jobs, with their states.
    pub(super) fn jobs(&self) -> Vec<(u64, String)> {
        self.hub.with_journal(|engine, _| {
            engine
                .jobs()
                .map(|job| (serial(job.body()), format!("{:?}", job.state)))
                .collect()
        })
    }

    // ---- the store -------------------------------------------------------------------------------------------------

    pub(super) fn receive(&mut self, number: u64, answer: Answer, around: &mut Around) {
        let Some(answer) = self.renewals.receive(number, answer, around.now) else {
            return;
        };
        if self.gives_back == Some(number) {
            return self.renewals.lease.lose();
        }
        let Commits::Writing(_, asked) = &self.commits else {
            return;
        };
        if *asked != number {
            return;
        }
        let Commits::Writing(cut, _) = std::mem::replace(&mut self.commits, Commits::Idle) else {
            return;
        };
        match answer {
            // The commit is stored, but may be acknowledged only while the lease is certain.
            Answer::Done if self.renewals.lease.is_certain() => {
                let rung = self.hub.committed(cut.commit);
                rung.iter().for_each(|mailbox| mailbox.ring());
                self.hub.set_failed(false);
            }
            Answer::Deposed => {
                self.renewals.lease.lose();
                self.fail(cut, around.now);
            }
            _ => self.fail(cut, around.now),
        }
    }

    fn fail(&mut self, cut: Cut, now: u64) {
        self.hub.set_failed(true);
        self.commits = Commits::Failed(cut, now + RETRY_MS);
    }

    pub(super) fn commit(&mut self, around: &mut Around) {
        if self.hub.deposed().is_some() {
            return self.hub.set_failed(true);
        }
        if around.now < self.commits_at {
            return;
        }
        if around.stands_still() {
            self.commits_at = around.now + around.pause_ms();
        }
        let cut = match std::mem::replace(&mut self.commits, Commits::Idle) {
            Commits::Idle if around.rng.chance(70) => self.hub.cut(),
            Commits::Failed(cut, at) if at <= around.now => Some(cut),
            other => return self.commits = other,
        };
        match cut {
            Some(cut) if !self.renewals.lease.is_certain() => self.fail(cut, around.now),
            Some(cut) => {
                let (epoch, seq, records) =
                    (self.hub.epoch(), cut.commit.seq(), cut.commit.records());
                let number = around.send(
                    self.run,
                    Statement::Commit {
                        epoch,
                        seq,
                        records,
                    },
                );
                self.commits = Commits::Writing(cut, number);
            }
            None if self.yields
                && self.gives_back.is_none()
                && self.hub.with_journal(|_, it| it.is_empty()) =>
            {
                let epoch = self.hub.epoch();
                self.gives_back = Some(around.send(self.run, Statement::GiveBack { epoch }));
            }
            None => {}
        }
    }

    // ---- links -----------------------------------------------------------------------------------------------------

    pub(super) fn serve(&mut self, around: &mut Around) {
        while self.accepts
            && let Some((link, edge)) = around.links.accept(self.run)
        {
            self.served.push(Served {
                link,
                edge,
                decoder: Decoder::new(FRAME_BYTES_MAX),
                encoder: Encoder::new(FRAME_BYTES_MAX),
                greeted: None,
                clients: None,
                number: None,
                is_replaced: false,
                since: around.now,
                to_edge: Vec::new(),
                has_looked: false,
                free_at: around.now,
            });
        }
        let mut at = 0;
        while at < self.served.len() {
            let is_over = self.serve_one(at, around).is_none();
            if is_over {
                let Served {
                    link,
                    edge,
                    clients,
                    number,
                    ..
                } = self.served.swap_remove(at);
                around.links.close(link, End::Leader, around.now);
                match clients {
                    Some(mut clients) => {
                        clients.suspend();
                        self.kept.push(Kept {
                            clients,
                            edge,
                            until: around.now + KEEP_MS,
                        });
                    }
                    None => number
                        .into_iter()
                        .for_each(|it| self.hub.remove_edge(it.number())),
                }
            } else {
                at += 1;
            }
            self.observe(around);
        }
        self.keep(around);
    }

    /// Keeps the clients of links that were cut, until the edge has another link.
    fn keep(&mut self, around: &mut Around) {
        let gone: Vec<_> = self
            .kept
            .extract_if(.., |kept| kept.until <= around.now)
            .collect();
        for Kept { edge, clients, .. } in gone {
            self.hub.remove_edge(clients.number().number());
            drop(clients);
            if around.is_leader(self.hub.epoch()) {
                around
                    .laws
                    .edge_lost(self.hub.epoch(), edge, &BTreeSet::new());
            }
            self.observe(around);
        }
        for kept in &mut self.kept {
            kept.clients.turn(&mut Vec::new());
        }
        self.observe(around);
    }

    /// Takes the clients of an earlier link of an edge in this epoch. That link closes.
    fn take_kept(&mut self, number: EdgeNumber) -> Option<EdgeClients> {
        if let Some(at) = self
            .kept
            .iter()
            .position(|kept| kept.clients.number() == number)
        {
            self.hub.remove_edge(number.number());
            return Some(self.kept.swap_remove(at).clients);
        }
        let is_it = |served: &&mut Served| {
            served
                .clients
                .as_ref()
                .is_some_and(|it| it.number() == number)
        };
        let served = self.served.iter_mut().find(is_it)?;
        served.is_replaced = true;
        served.clients.take()
    }

    /// One round of a link's thread. Returns `None` if the link has closed.
    fn serve_one(&mut self, at: usize, around: &mut Around) -> Option<()> {
        let served = &mut self.served[at];
        if served.is_replaced {
            return None;
        }
        if around.now < served.free_at {
            return Some(());
        }
        if !self.hub.may_act() && !served.has_looked {
            served.beat(around);
        }
        if !served.to_edge.is_empty() && !served.has_looked {
            if !self.hub.may_act() {
                return Some(());
            }
            served.has_looked = true;
            around.leaves(self.hub.epoch());
            if around.stands_still() {
                served.free_at = around.now + around.pause_ms();
                return Some(());
            }
        }
        served.send(around);
        if !self.is_free() {
            return Some(());
        }
        let served = &mut self.served[at];
        let ended = around
            .links
            .read(served.link, End::Leader, around.now, served.decoder.input())
            .unwrap_or(false);
        self.read_link(at, around)?;
        self.welcome(at, around);
        let served = &mut self.served[at];
        if let Some(clients) = &mut served.clients {
            let (number, edge, kept) = (clients.number(), served.edge, clients.keeps());
            for _ in 0..8 {
                if !clients.turn(&mut served.to_edge) {
                    break;
                }
            }
            // Leases that the edge has not claimed again are revoked.
            if kept && !clients.keeps() && around.is_leader(self.hub.epoch()) {
                let has = self.hub.with_journal(|engine, _| held_by(engine, number));
                around.laws.edge_lost(self.hub.epoch(), edge, &has);
            }
        } else if around.now > served.since + OPEN_MS {
            return None;
        }
        if around.stands_still() {
            served.free_at = around.now + around.pause_ms();
        }
        (!ended).then_some(())
    }

    fn read_link(&mut self, at: usize, around: &mut Around) -> Option<()> {
        let mut claims = Vec::new();
        let in_grace = self.is_in_grace();
        while let Some(item) = self.served[at]
            .decoder
            .next()
            .unwrap_or_else(|error| panic!("not a frame: {error}"))
        {
            match (item, self.served[at].clients.is_some()) {
                (ToLeader::Bye, _) => return None,
                (ToLeader::Hello(hello), false) => self.greet(at, *hello),
                (item, true) => {
                    if let ToLeader::Claim { client, claim } = &item {
                        claims.push((*client, claim.clone()));
                    }
                    if let ToLeader::Command {
                        command: Command::Claim(_),
                        ..
                    } = &item
                    {
                        panic!("a claim as a command");
                    }
                    let heard = self.served[at]
                        .clients
                        .as_mut()
                        .map_or(Ok(()), |clients| clients.receive(item));
                    heard.unwrap_or_else(|why| {
                        panic!("the leader refuses what its edge to_leader: {why}")
                    });
                }
                (item, false) => panic!("it does not begin with a greeting: {item:?}"),
            }
        }
        for (client, claim) in claims {
            around.claims(self.hub.epoch(), client, &claim, in_grace);
        }
        Some(())
    }

    /// Observes which client holds which job in the engine.
    pub(super) fn observe(&self, around: &mut Around) {
        self.look(around, false);
    }

    fn look(&self, around: &mut Around, recovers: bool) {
        let epoch = self.hub.epoch();
        let own = self.run;
        around.laws.leads_at(clock::now());
        if self.hub.may_act() {
            around.laws.has_wall(
                epoch,
                clock::read().wall(),
                around.database.clock_ms(around.now),
            );
        }
        self.hub.with_journal(|engine, _| {
            engine
                .jobs()
                .filter_map(|job| Some((job, job.lease()?)))
                .for_each(|(job, lease)| {
                    around.leased(epoch, own, (job, lease), recovers);
                });
        });
    }
}

/// The jobs held by clients of an edge, under the edge's numbers for them.
fn held_by(engine: &Engine, number: EdgeNumber) -> BTreeSet<(JobId, ClientId)> {
    let held = engine.jobs().filter_map(|job| match job.lease()?.holder {
        Holder::Connection(client) if number.owns(client) => {
            Some((job.id, ClientId(client.0 ^ number.first_client().0)))
        }
        _ => None,
    });
    held.collect()
}

impl Served {
    /// Sends a heartbeat of a leader that is not certain of its lease.
    fn beat(&mut self, around: &mut Around) {
        if self.clients.is_some() {
            self.encoder.push(&ToEdge::Beat).unwrap();
            around.links.send(
                self.link,
                End::Leader,
                self.encoder.take(),
                around.now,
                &mut around.rng,
            );
        }
    }

    /// Sends the collected items.
    fn send(&mut self, around: &mut Around) {
        self.to_edge
            .drain(..)
            .for_each(|item| self.encoder.push(&item).unwrap());
        self.has_looked = false;
        around.links.send(
            self.link,
            End::Leader,
            self.encoder.take(),
            around.now,
            &mut around.rng,
        );
    }
}
