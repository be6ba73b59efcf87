//! A daemon, whose threads follow a leader, stand by for the lease, or lead. A turn performs, one
//! step at a time, what `role` and `roles` do with threads and sockets.

use std::collections::BTreeSet;
use std::sync::Arc;

use windlass_engine::ClientId;
use windlass_link::{Decoder, Encoder, FRAME_BYTES_MAX, Hello, ToEdge, ToLeader};

use super::as_ms;
use super::client::{Client, Who};
use super::database::{Answer, Run, Statement, YEARS_MS};
use super::lease::{Lease, Renewals, ahead_ms};
use super::links::{End, Links};
use super::room::{OPEN_MS, OUTBOUND_MAX, Room, SETTINGS};
use super::world::Around;
use windlass_cluster::broker::ClusterBroker;
use windlass_cluster::link::SILENCE_MAX;
use windlass_cluster::roles::YIELD;
use windlass_cluster::roles::{LOOK_EVERY, RETRY};
use windlass_hub::clock::{
    self, Clocks,
    simulated::{self, Machine},
};
use windlass_hub::{
    Batch, Broker as _, Budget, ConnectionId, Home, Mail, Mailbox, Visited, Waker, WithMail,
};

/// An edge that receives nothing for this long looks for a leader again, in milliseconds.
const SILENCE_MS: u64 = as_ms(SILENCE_MAX);

/// How long a daemon without a leader waits before it looks for one again, in milliseconds.
const LOOK_MS: u64 = as_ms(LOOK_EVERY);
const RETRY_MS: u64 = as_ms(RETRY);

/// How long clients wait for a leader, in milliseconds.
const HOLD_MS: u64 = 30_000;

/// How long a daemon that has yielded leaves the lease to others, in milliseconds.
const YIELD_MS: u64 = as_ms(YIELD);

/// The part that stands by and leads.
mod following;

#[derive(Debug)]
enum Office {
    /// Tries to acquire the lease at this time.
    Out(u64),
    /// Requested the lease at this time since boot.
    Asks { number: u64, sent_ms: u64 },
    /// Has the lease and is reading the store.
    Reads { renewals: Renewals, number: u64 },
    /// Has an engine room, and has completed this many steps towards leading.
    In { room: Box<Room>, steps: u32 },
}

/// The link thread while the daemon is not the leader.
#[derive(Debug)]
enum Follow {
    Looks(u64),
    Asks(u64),
    Links(Box<Following>),
    /// The thread serves edges.
    Leads,
}

#[derive(Debug)]
struct Following {
    link: u64,
    decoder: Decoder<ToEdge>,
    encoder: Encoder<ToLeader>,
    to_edge: Vec<ToEdge>,
    since: u64,
    received_at: u64,
    /// When the leader was last certain of its lease.
    certain_at: u64,
    is_welcome: bool,
}

#[derive(Debug)]
pub(super) struct Daemon {
    index: usize,
    starts: u32,
    is_up: bool,
    /// When it restarts.
    up_at: u64,
    /// All its threads are stalled until then.
    pub(super) stalled_until: u64,
    boot: u64,
    /// Offsets of its clocks from the world's.
    boot_ahead_ms: u64,
    wall_ahead_ms: u64,
    clocks: Clocks,
    broker: Arc<ClusterBroker>,
    with_mail: Arc<WithMail>,
    /// Clients with new items.
    to_visit: BTreeSet<ClientId>,
    /// The serving threads are stalled until then.
    serves_at: u64,
    office: Office,
    follow: Follow,
    follows_at: u64,
    without_since: u64,
    next_client: u64,
    wants_to_yield: bool,
    stopping: Stopping,
}

/// The steps of an orderly stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stopping {
    No,
    Asked,
    /// Its clients are closed. Links close, or the stop continues, at this time.
    Closed(u64),
}

impl Daemon {
    pub(super) fn new(index: usize, around: &mut Around) -> Self {
        const HOUR_MS: u64 = 3_600_000;
        let skewed = around.plan.trouble && around.rng.chance(30);
        let wall_ahead_ms = YEARS_MS
            + if skewed {
                around.rng.below(2 * HOUR_MS)
            } else {
                around.rng.below(500)
            };
        Self {
            index,
            starts: 0,
            is_up: false,
            up_at: 0,
            stalled_until: 0,
            boot: 100 + index as u64,
            boot_ahead_ms: around.rng.between(1_000, 10_000_000),
            wall_ahead_ms,
            clocks: Clocks::new(),
            broker: Arc::new(ClusterBroker::new(Arc::new(Budget::new(1 << 30)))),
            with_mail: Arc::default(),
            to_visit: BTreeSet::new(),
            serves_at: 0,
            office: Office::Out(0),
            follow: Follow::Looks(0),
            follows_at: 0,
            without_since: 0,
            next_client: 0,
            wants_to_yield: false,
            stopping: Stopping::No,
        }
    }

    pub(super) const fn run(&self) -> Run {
        (self.index, self.starts)
    }

    pub(super) const fn is_up(&self) -> bool {
        self.is_up
    }

    pub(super) fn is_stalled(&self, now: u64) -> bool {
        !self.is_up || now < self.stalled_until
    }

    /// The engine room, if it leads.
    pub(super) fn leads(&self) -> Option<&Room> {
        match &self.office {
            Office::In { room, .. } if matches!(self.follow, Follow::Leads) => Some(room),
            _ => None,
        }
    }

    /// Whether it has an open link to this leader.
    pub(super) fn follows(&self, leader: Run, links: &Links) -> bool {
        let is_whole =
            |following: &Following| following.is_welcome && links.is_whole(following.link, leader);
        matches!(&self.follow, Follow::Links(following) if is_whole(following))
    }

    pub(super) const fn broker(&self) -> &Arc<ClusterBroker> {
        &self.broker
    }

    // ---- from outside ----------------------------------------------------------------------------------------------

    fn start(&mut self, around: &mut Around) {
        let now = around.now;
        self.starts += 1;
        self.is_up = true;
        self.clocks = Clocks::new();
        self.broker = Arc::new(ClusterBroker::new(Arc::new(Budget::new(1 << 30))));
        self.with_mail = Arc::default();
        self.to_visit.clear();
        (self.office, self.follow) = (Office::Out(now), Follow::Looks(now));
        (
            self.stalled_until,
            self.follows_at,
            self.serves_at,
            self.without_since,
        ) = (0, 0, 0, now);
        (self.next_client, self.wants_to_yield, self.stopping) = (0, false, Stopping::No);
        around.alive[self.index] = Some(self.run());
        if around.plan.asks_the_time {
            self.on(now, |_| {
                clock::keep_wall(ahead_ms(
                    clock::since_boot_ms(),
                    around.database.clock_ms(now),
                ))
            });
        }
    }

    /// `kill -9`, or loss of the machine.
    pub(super) fn kill(&mut self, around: &mut Around) {
        let silently = around.rng.chance(30);
        self.end(silently, around);
    }

    /// The process is gone; with `silently`, its machine too.
    fn end(&mut self, silently: bool, around: &mut Around) {
        around.links.forget(self.run(), around.now, silently);
        around.alive[self.index] = None;
        around.close_all_of(self.run());
        self.is_up = false;
        self.up_at = around.now + around.rng.between(10, 8_000);
        if silently {
            // A new boot.
            self.boot += 100;
            self.boot_ahead_ms = 0;
        }
        // Only the clients of links act when they are dropped, and their hub is gone as well.
        (self.office, self.follow) = (Office::Out(0), Follow::Looks(0));
    }

    /// Ends all stalls.
    pub(super) const fn recover(&mut self, now: u64) {
        self.up_at = now;
        (self.stalled_until, self.follows_at, self.serves_at) = (0, 0, 0);
        self.wants_to_yield = false;
    }

    /// SIGTERM.
    pub(super) fn ask_to_stop(&mut self) {
        if self.is_up && self.stopping == Stopping::No {
            self.stopping = Stopping::Asked;
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.is_up && self.stopping != Stopping::No
    }

    pub(super) const fn ask_to_yield(&mut self) {
        self.wants_to_yield = true;
    }

    /// Sets a clock, or suspends the machine.
    pub(super) fn upset_clock(&mut self, around: &mut Around) {
        const HOUR_MS: u64 = 3_600_000;
        match around.rng.below(3) {
            0 => self.wall_ahead_ms += HOUR_MS,
            1 => self.wall_ahead_ms -= HOUR_MS,
            _ => self.boot_ahead_ms += around.rng.one_of([HOUR_MS, 3_500, 1_000]),
        }
    }

    /// Acts on this daemon's machine.
    pub(super) fn on<T>(&mut self, now: u64, act: impl FnOnce(&mut Self) -> T) -> T {
        let machine = Machine {
            boot: self.boot,
            since_boot_ms: now + self.boot_ahead_ms,
            wall_ms: now + self.wall_ahead_ms,
        };
        let mut clocks = std::mem::replace(&mut self.clocks, Clocks::new());
        let done = simulated::on(machine, &mut clocks, || act(self));
        self.clocks = clocks;
        done
    }

    /// A client connects.
    pub(super) fn connect(&mut self, around: &mut Around) -> Who {
        self.next_client += 1;
        let (number, run) = (ClientId(self.next_client), self.run());
        let home = Home {
            waker: Arc::clone(&self.with_mail) as Arc<dyn Waker>,
            connection: ConnectionId {
                index: 0,
                client: number,
            },
        };
        let mailbox = Arc::new(Mailbox::new(
            OUTBOUND_MAX,
            Arc::new(Budget::new(1 << 30)),
            home,
        ));
        self.broker.open(number, Arc::clone(&mailbox));
        let who = (run, number);
        around.clients.insert(who, Client::new(who, mailbox));
        who
    }

    /// Called when a client has sent something.
    pub(super) fn note_items(&mut self, number: ClientId) {
        self.to_visit.insert(number);
    }

    // ---- a turn ----------------------------------------------------------------------------------------------------

    /// Runs a step of every thread that is not stalled.
    pub(super) fn turn(&mut self, around: &mut Around) {
        if !self.is_up {
            if self.up_at > around.now {
                return;
            }
            self.start(around);
        }
        if self.is_stalled(around.now) {
            return;
        }
        self.on(around.now, |daemon| {
            clock::read();
            for (number, answer) in around.database.answers(around.now, daemon.run()) {
                daemon.receive(number, answer, around);
            }
            daemon.stand_by(around);
            daemon.follow(around);
            if let Office::In { room, .. } = &mut daemon.office {
                room.tick();
                if std::mem::take(&mut room.ends_early) {
                    around.tally.note("a grace ends early");
                }
                room.observe(around);
                room.serve(around);
            }
            daemon.serve(around);
            let run = daemon.run();
            if let Office::In { room, .. } = &mut daemon.office {
                room.commit(around);
                room.renewals.turn(run, around);
            }
            daemon.step_down(around);
            daemon.stop(around);
        });
        if self.leads().is_some() && self.clocks.follows() {
            around
                .laws
                .is_broken(|| format!("{} leads by the clock of another daemon", self.index));
        }
    }

    fn receive(&mut self, number: u64, answer: Answer, around: &mut Around) {
        let now = around.now;
        if let Follow::Asks(asked) = &self.follow
            && *asked == number
        {
            return self.found(&answer, around);
        }
        match &mut self.office {
            Office::Asks {
                number: asked,
                sent_ms,
            } if *asked == number => match answer {
                Answer::Taken {
                    epoch,
                    clock_ms,
                    edges,
                } => {
                    let lease =
                        Arc::new(Lease::new(epoch, (*sent_ms, clock_ms), edges, &around.plan));
                    around.laws.begins(epoch, (self.index, self.starts));
                    let renewals = Renewals::new(lease, now);
                    let number = around.send((self.index, self.starts), Statement::Read);
                    self.office = Office::Reads { renewals, number };
                }
                Answer::InUse => self.office = Office::Out(now + LOOK_MS),
                _ => self.office = Office::Out(now + RETRY_MS),
            },
            Office::Reads {
                renewals,
                number: asked,
            } => {
                let Some(answer) = renewals
                    .receive(number, answer, now)
                    .filter(|_| *asked == number)
                else {
                    return;
                };
                let Office::Reads { renewals, .. } =
                    std::mem::replace(&mut self.office, Office::Out(now + RETRY_MS))
                else {
                    return;
                };
                // Without the log, the lease is left to expire.
                if let Answer::Log(log) = answer
                    && let Some(room) = Room::open((self.index, self.starts), renewals, log, around)
                {
                    around.note(|| format!("{} opens epoch {}", self.index, room.hub.epoch()));
                    self.office = Office::In {
                        room: Box::new(room),
                        steps: 0,
                    };
                }
            }
            Office::In { room, .. } => room.receive(number, answer, around),
            Office::Out(_) | Office::Asks { .. } => {}
        }
    }

    /// Acquires the lease, and leads once the store has the first commit. The thread may stall
    /// between any two steps.
    fn stand_by(&mut self, around: &mut Around) {
        let run = self.run();
        match &mut self.office {
            Office::Out(at) if *at <= around.now => {
                let number = around.send(run, Statement::Take);
                self.office = Office::Asks {
                    number,
                    sent_ms: clock::since_boot_ms(),
                };
            }
            Office::Reads { renewals, .. } => renewals.turn(run, around),
            Office::In { room, steps }
                if *steps < 3 && room.hub.has_begun() && !room.is_yielding() =>
            {
                if around.stands_still() && around.rng.chance(50) {
                    return;
                }
                match *steps {
                    // Like a visit, it waits while the lease is uncertain.
                    0 if !room.is_free() => return,
                    0 => self.broker.lead(&room.hub),
                    1 => {
                        self.follow = match std::mem::replace(&mut self.follow, Follow::Leads) {
                            Follow::Links(following) => {
                                around.links.close(following.link, End::Edge, around.now);
                                Follow::Leads
                            }
                            _ => Follow::Leads,
                        };
                        room.accept();
                    }
                    _ => {
                        room.begin_grace();
                        around.tally.note("a daemon leads");
                    }
                }
                *steps += 1;
                room.observe(around);
            }
            _ => {}
        }
    }

    /// Steps down after losing the lease, or on request.
    fn step_down(&mut self, around: &mut Around) {
        if matches!(self.stopping, Stopping::Closed(_)) {
            return;
        }
        let Office::In { room, steps } = &mut self.office else {
            return;
        };
        let is_deposed = room.is_over();
        if *steps < 3 || !is_deposed && !std::mem::take(&mut self.wants_to_yield) {
            return;
        }
        // The thread looks every 50 ms.
        if is_deposed && around.rng.chance(50) {
            return;
        }
        let has_yielded = room.is_yielding();
        if !has_yielded {
            self.broker.follow();
            self.follow = Follow::Looks(around.now);
            self.without_since = around.now;
            room.stop(around);
        }
        if is_deposed {
            around.tally.note(if has_yielded {
                "a daemon has yielded"
            } else {
                "a daemon is deposed"
            });
            self.office = Office::Out(around.now + if has_yielded { YIELD_MS } else { 0 });
        }
    }

    /// Stops in order: closes clients, closes links, commits everything, and releases the lease.
    fn stop(&mut self, around: &mut Around) {
        match (self.stopping, &mut self.office) {
            (Stopping::Asked, Office::In { room, steps }) if *steps < 3 || room.is_yielding() => {}
            (Stopping::Asked, _) => {
                self.broker.stop();
                self.close_clients(around);
                self.stopping = Stopping::Closed(around.now + around.rng.below(500));
            }
            (Stopping::Closed(at), _) if around.now < at => {}
            (Stopping::Closed(_), Office::In { room, .. }) if !room.is_over() => {
                if !room.is_yielding() {
                    room.stop(around);
                }
            }
            (Stopping::Closed(_), _) => {
                around.tally.note("a daemon stops in order");
                around.note(|| format!("{} has stopped", self.index));
                self.end(false, around);
            }
            (Stopping::No, _) => {}
        }
    }

    fn close_clients(&mut self, around: &mut Around) {
        let run = self.run();
        let open: Vec<_> = around
            .clients
            .values()
            .filter(|client| client.who().0 == run && client.is_served)
            .collect();
        let open: Vec<_> = open.into_iter().map(Client::who).collect();
        for who in open {
            around
                .clients
                .get_mut(&who)
                .into_iter()
                .for_each(|client| client.is_served = false);
            while !self.broker.close(who.1) {}
            around.closed(who);
        }
    }
}
