//! A serving thread and its turns.
//!
//! In a turn the thread checks which sockets are ready, reads them all, visits the engine once with
//! all commands, passes the mail to the sessions, and writes to each socket once. So the cost of
//! the lock, the journal and the wake-ups is shared by everything that is ready, and a flooding
//! peer gets no larger share of a turn than others.
//!
//! A connection that receives mail from another one's commands joins the turn after the visit. At
//! the end of the turn the thread commits, if its clients wait for that and the disk is fast
//! (`commit`).
//!
//! If turns have many commands, the thread may move some of its connections to a helper for a while
//! (`sharing`).
//!
//! This does not use tokio, because a task per connection costs 1 to 2 µs of CPU more per job and
//! cannot share a visit.
//!
//! Invariants: a connection is either in `members`, or in `turn` with its slot in `members` empty.
//! It is in `ready` at most once.

use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};
use slab::Slab;
use windlass_engine::{ClientId, Reading, Timestamp};
use windlass_session::Reason;

use super::alarm::{ALARM, Alarm};
use super::arrival::{Arrival, Place};
use super::member::Member;
use super::polling::{self, Idle};
use super::sharing::{Partner, Sharing};
use super::tenants::Tenants;
use super::timers::{Timer, Timers};
use super::waker::{Due, ThreadWaker, WAKER};
use crate::connection::{Connection, End, Next, Shared, Turn};
use crate::polling::Polling;
use crate::traffic::ThreadTraffic;
use windlass_hub::{Commits, ConnectionId, Health, Home, TurnCommits, Waker, clock, warn_limited};

/// A connection with more commands in a turn has much to do.
const SHALLOW_MAX: usize = 4;
/// Maximum number of events per poll.
const EVENTS_MAX: usize = 1024;

/// The state of one thread.
#[derive(Debug)]
pub(super) struct Serving {
    poll: Poll,
    events: Events,
    waker: Arc<ThreadWaker>,
    shared: Shared,
    traffic: ThreadTraffic,
    commits: TurnCommits,
    idle: Idle,
    alarm: Alarm,
    timers: Timers,
    /// All connections; `None` while one is in `turn`.
    members: Slab<Option<Box<Member>>>,
    /// The slots of connections in the next turn.
    ready: Vec<usize>,
    /// The connections in this turn.
    #[expect(
        clippy::vec_box,
        reason = "they move between here and `members`, and are large"
    )]
    turn: Vec<Box<Member>>,
    due: Due,
    /// Clients whose removal takes the engine several visits.
    leaving: Vec<ClientId>,
    tenants: Tenants,
    /// The slots of ready connections that must wait for the next turn.
    put_off: Vec<usize>,
    sharing: Option<Sharing>,
}

impl Serving {
    pub(super) fn new(
        shared: Shared,
        polling: Polling,
        commits: Arc<OnceLock<Arc<Commits>>>,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Arc::new(ThreadWaker::new(poll.registry())?);
        let alarm = Alarm::new(poll.registry())?;
        Ok(Self {
            poll,
            events: Events::with_capacity(EVENTS_MAX),
            commits: TurnCommits::new(commits, Arc::clone(&waker) as Arc<dyn Waker>),
            waker,
            traffic: ThreadTraffic::new(Arc::clone(&shared.traffic)),
            shared,
            idle: Idle::new(polling),
            alarm,
            timers: Timers::default(),
            members: Slab::new(),
            ready: Vec::new(),
            turn: Vec::new(),
            due: Due::default(),
            leaving: Vec::new(),
            tenants: Tenants::default(),
            put_off: Vec::new(),
            sharing: None,
        })
    }

    pub(super) const fn waker(&self) -> &Arc<ThreadWaker> {
        &self.waker
    }

    /// Enables moving connections to and from this thread.
    pub(super) fn share_with(&mut self, partner: Partner) {
        self.sharing = Some(Sharing::new(partner));
    }

    /// Sets the result of the load windows: see [`Sharing::pretend`].
    #[cfg(test)]
    pub(super) fn pretend(&mut self, kind: Option<super::load::Kind>) {
        self.sharing
            .iter_mut()
            .for_each(|sharing| sharing.pretend(kind));
    }

    /// Serves until the thread must stop.
    pub(super) fn run(mut self) {
        while !self.due.stop {
            self.step(Duration::MAX);
        }
    }

    /// Waits for work, but at most this long, and runs a turn.
    pub(super) fn step(&mut self, most: Duration) {
        if let Err(error) = self.wait(most)
            && error.kind() != io::ErrorKind::Interrupted
        {
            tracing::error!(%error, "cannot wait for sockets");
        }
        self.take_events();
        self.take_due();
        self.turn(&clock::read());
    }

    // ---- readiness
    // --------------------------------------------------------------------------------------

    fn wait(&mut self, most: Duration) -> io::Result<()> {
        let begun = Instant::now();
        let waited = self.wait_for_work(begun, most);
        if let Some(sharing) = &mut self.sharing {
            sharing.add_wait(begun.elapsed());
        }
        waited
    }

    fn wait_for_work(&mut self, begun: Instant, most: Duration) -> io::Result<()> {
        let commits_in = self.commits.waits_for();
        let has_work = self.has_work(commits_in);
        let Self {
            poll,
            events,
            waker,
            idle,
            alarm,
            ..
        } = self;
        if has_work {
            return poll.poll(events, Some(Duration::ZERO));
        }
        if let Some(limit) = idle.begin(begun) {
            let mut looked = Ok(());
            let found = polling::poll(commits_in.map_or(limit, |time| limit.min(time)), || {
                looked = poll.poll(events, Some(Duration::ZERO));
                looked.is_err() || !events.is_empty() || waker.is_due()
            });
            idle.end(found);
            if found {
                return looked;
            }
        }
        let timer = self.timers.next().map(clock::until);
        let timeout = [timer, self.commits.due_in()]
            .into_iter()
            .flatten()
            .fold(most, Duration::min);
        let timeout = Some(timeout).filter(|timeout| *timeout < Duration::MAX);
        if let Some(time) = commits_in {
            alarm.set(time)?;
        }
        let sleeps = waker.fall_asleep();
        let waited = poll.poll(
            events,
            if sleeps {
                timeout
            } else {
                Some(Duration::ZERO)
            },
        );
        waker.wake_up();
        waited
    }

    /// Whether there is work without a socket event. `commits_in`: time until a pending commit is
    /// due.
    fn has_work(&self, commits_in: Option<Duration>) -> bool {
        let has_more = !self.ready.is_empty() || !self.leaving.is_empty() || self.waker.is_due();
        has_more || (self.commits.is_due() && commits_in.is_none())
    }

    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        !self.has_work(self.commits.waits_for())
    }

    /// Records which sockets are ready, and which timers have fired.
    fn take_events(&mut self) {
        let Self {
            events,
            members,
            ready,
            timers,
            ..
        } = self;
        for event in events
            .iter()
            .filter(|event| ![WAKER, ALARM].contains(&event.token()))
        {
            if let Some(Some(member)) = members.get_mut(event.token().0) {
                let closed = event.is_read_closed() || event.is_error();
                member.connection.notice(
                    event.is_readable() || closed,
                    event.is_writable() || closed,
                    closed,
                );
                member.make_ready(ready);
            }
        }
        events.clear();
        if timers.next().is_none() {
            return;
        }
        let now = clock::now();
        while let Some(id) = timers.take_due(now) {
            if let Some(Some(member)) = members.get_mut(id.index) {
                timers.clear(id, &mut member.timer);
                member.make_ready(ready);
            }
        }
    }

    /// Takes the work that other threads, and this one's connections, have queued for it.
    fn take_due(&mut self) {
        if !self.waker.is_due() {
            return;
        }
        let mut due = mem::take(&mut self.due);
        self.waker.take(&mut due);
        for ConnectionId { index, client } in due.mail.drain(..) {
            if let Some(Some(member)) = self.members.get_mut(index)
                && member.connection.id().client == client
            {
                member.connection.rung();
                member.make_ready(&mut self.ready);
            }
        }
        for (arrival, place) in due.arrivals.drain(..) {
            self.enter(arrival, place);
        }
        for member in due.moved.drain(..) {
            self.enter_from_partner(member);
        }
        if mem::take(&mut due.commit) {
            self.commits.make_due();
        }
        if mem::take(&mut due.asked) {
            self.waker.answers().answer();
        }
        self.due = due;
    }

    /// Adds a new connection, whose first turn is the next one.
    fn enter(&mut self, arrival: Arrival, place: Place) {
        let Arrival {
            newcomer,
            client,
            label,
            debt,
            token,
        } = arrival;
        let entry = self.members.vacant_entry();
        let id = ConnectionId {
            index: entry.key(),
            client,
        };
        let home = Home {
            waker: Arc::clone(&self.waker) as Arc<dyn Waker>,
            connection: id,
        };
        let inside = label.span.clone().entered();
        tracing::debug!("open");
        let counts = self.traffic.of(label.protocol);
        let (own_counts, now) = (Arc::clone(&counts), clock::now());
        let mut connection = Connection::new(newcomer, home, &self.shared, own_counts, now);
        drop(inside);
        if let Err(error) =
            self.poll
                .registry()
                .register(connection.source(), Token(id.index), Interest::READABLE)
        {
            let protocol = label.protocol;
            warn_limited!("register", %error, protocol, "could not serve a connection");
            self.leave(client);
            return;
        }
        counts.opened();
        entry.insert(Some(Box::new(Member {
            connection,
            namespace: None,
            tenant: self.tenants.number(None),
            is_deep: false,
            timer: Timer::default(),
            is_ready: true,
            waits_to_write: false,
            worked_in: 0,
            leaves: false,
            label,
            debt,
            place,
            _token: token,
        })));
        self.ready.push(id.index);
    }

    // ---- the turn
    // ---------------------------------------------------------------------------------------

    fn turn(&mut self, reading: &Reading) {
        self.tenants.begin_turn();
        self.begin_turns(reading);
        self.commits.begin_turn(
            self.turn
                .iter()
                .filter(|member| member.connection.has_read())
                .count(),
        );
        if let Some(sharing) = &mut self.sharing {
            sharing.add_turn(&mut self.turn);
        }
        let mut batches = self
            .turn
            .iter_mut()
            .filter_map(|member| member.connection.batch())
            .peekable();
        if batches.peek().is_some() {
            let duty = self.shared.broker.visit(reading, &mut batches);
            self.commits.add(duty);
        }
        self.take_due();
        self.begin_turns(reading);
        for member in &mut self.turn {
            member.guard(Connection::answer);
        }
        let mut turn = mem::take(&mut self.turn);
        turn.drain(..)
            .for_each(|member| self.end_turn(member, reading.now));
        self.turn = turn;
        self.waker.answers().at_disk(true);
        self.commits.end_turn();
        self.waker.answers().at_disk(false);
        self.share();
        let leaving = mem::take(&mut self.leaving);
        leaving.into_iter().for_each(|client| self.leave(client));
    }

    /// Moves the ready connections into the turn. Beside those of another namespace, some must wait for the next one.
    fn begin_turns(&mut self, reading: &Reading) {
        if self.ready.is_empty() {
            return;
        }
        let is_mixed = self.tenants.are_mixed(reading.now);
        let turn = Turn::of(
            self.ready.len(),
            *reading,
            self.shared.broker.health() == Health::Stopping,
        );
        let turn = if is_mixed { turn.mixed() } else { turn };
        for index in self.ready.drain(..) {
            let Some(place) = self.members.get_mut(index) else {
                continue;
            };
            let may_begin = |member: &mut Box<Member>| {
                !(is_mixed && member.is_deep) || self.tenants.admit(member.tenant)
            };
            if let Some(mut member) = place.take_if(may_begin) {
                member.is_ready = false;
                member.guard(|connection| connection.begin_turn(&turn));
                member.is_deep = member.connection.is_deep(SHALLOW_MAX);
                if let Some(namespace) = member.connection.entered() {
                    member.tenant = self.tenants.number(Some(&namespace));
                    member.namespace = Some(namespace);
                }
                if member.connection.has_read() {
                    let now = reading.now;
                    self.tenants.was_active(member.tenant, member.is_deep, now);
                }
                self.turn.push(member);
            } else if place.is_some() {
                self.put_off.push(index);
            }
        }
        mem::swap(&mut self.ready, &mut self.put_off);
    }

    /// Ends a connection's turn: it waits, gets another turn, or is removed.
    fn end_turn(&mut self, mut member: Box<Member>, now: Timestamp) {
        let id = member.connection.id();
        if member.connection.was_refused() {
            let until = self.tenants.rest(member.tenant, now);
            member.connection.rest(until);
        }
        match member.connection.next() {
            Next::Over(end) => return self.remove(member, &end),
            Next::Turn => member.make_ready(&mut self.ready),
            Next::Wait(deadline) => self.timers.set(id, &mut member.timer, deadline),
        }
        let waits_to_write = member.connection.waits_to_write();
        if member.waits_to_write != waits_to_write {
            member.waits_to_write = waits_to_write;
            let interest = if waits_to_write {
                Interest::READABLE | Interest::WRITABLE
            } else {
                Interest::READABLE
            };
            let (registry, token) = (self.poll.registry(), Token(id.index));
            if let Err(error) = registry.reregister(member.connection.source(), token, interest) {
                tracing::error!(%error, "cannot wait for a socket");
                return self.remove(member, &End::Closed(Reason::PeerClosed));
            }
        }
        if member.leaves {
            return self.send_to_partner(member);
        }
        if let Some(place) = self.members.get_mut(id.index) {
            *place = Some(member);
        }
    }

    fn remove(&mut self, mut member: Box<Member>, end: &End) {
        let id = member.connection.id();
        self.timers.clear(id, &mut member.timer);
        self.members.try_remove(id.index);
        member.connection.give_back(end);
        self.leave(id.client);
        member.connection.count_end(end);
        member.label.log_end(end);
        member.debt.add(member.connection.pause_after(end));
        if end.is_failed_login() {
            member.connection.admission().failed_to_log_in();
        }
        // A session that panicked may panic again.
        let dropped = catch_unwind(AssertUnwindSafe(move || drop(member)));
        if dropped.is_err() {
            tracing::error!("the end of a connection panicked");
        }
    }

    // ---- moving connections
    // -----------------------------------------------------------------------------

    /// Moves connections to the partner. Those in the next turn move after it.
    fn share(&mut self) {
        let members = self
            .members
            .iter_mut()
            .filter_map(|(_, member)| member.as_mut());
        if !self
            .sharing
            .as_mut()
            .is_some_and(|sharing| sharing.choose(Instant::now(), members))
        {
            return;
        }
        let members = self.members.iter_mut();
        let leaving = members
            .filter_map(|(_, member)| member.take_if(|member| member.leaves && !member.is_ready));
        let leaving: Vec<_> = leaving.collect();
        leaving
            .into_iter()
            .for_each(|member| self.send_to_partner(member));
    }

    fn send_to_partner(&mut self, mut member: Box<Member>) {
        let id = member.connection.id();
        self.timers.clear(id, &mut member.timer);
        self.members.try_remove(id.index);
        if let Err(error) = self.poll.registry().deregister(member.connection.source()) {
            tracing::error!(%error, "cannot hand a socket to another thread");
        }
        let given = match &self.sharing {
            Some(sharing) => sharing.give(member),
            None => Err(member),
        };
        if let Err(member) = given {
            self.remove(member, &End::Closed(Reason::Shutdown));
        }
    }

    /// Adds a connection of the partner, whose first turn here is the next one.
    fn enter_from_partner(&mut self, mut member: Box<Member>) {
        let entry = self.members.vacant_entry();
        let id = ConnectionId {
            index: entry.key(),
            client: member.connection.id().client,
        };
        let counts = self.traffic.of(member.label.protocol);
        let home = Home {
            waker: Arc::clone(&self.waker) as Arc<dyn Waker>,
            connection: id,
        };
        member.connection.move_to(home, counts);
        (
            member.leaves,
            member.worked_in,
            member.waits_to_write,
            member.is_ready,
        ) = (false, 0, false, true);
        let (registry, token) = (self.poll.registry(), Token(id.index));
        if let Err(error) = registry.register(member.connection.source(), token, Interest::READABLE)
        {
            tracing::error!(%error, "cannot wait for a socket");
            return self.remove(member, &End::Closed(Reason::PeerClosed));
        }
        member.tenant = self.tenants.number(member.namespace.as_deref());
        entry.insert(Some(member));
        self.ready.push(id.index);
    }

    /// Closes a client in the engine. A large client takes several turns.
    fn leave(&mut self, client: ClientId) {
        if !self.shared.broker.close(client) {
            self.leaving.push(client);
        }
    }
}

/// Closes the thread's connections.
impl Drop for Serving {
    fn drop(&mut self) {
        let members = mem::take(&mut self.members);
        self.waker.take(&mut self.due);
        self.leaving.extend(
            self.due
                .moved
                .drain(..)
                .map(|member| member.connection.id().client),
        );
        self.leaving.extend(
            members
                .into_iter()
                .filter_map(|(_, member)| Some(member?.connection.id().client)),
        );
        while let Some(client) = self.leaving.pop() {
            while !self.shared.broker.close(client) {}
        }
    }
}

#[cfg(test)]
mod tests {
    use windlass_engine::{Engine, Limits};
    use windlass_store::Journal;

    use super::*;
    use crate::connection::tests::shared;
    use windlass_hub::{Durability, Hub};

    /// An event by name, and whether it counts as work without and with a pending commit.
    type Case = (&'static str, fn(&mut Serving), [bool; 2]);

    #[test]
    fn a_thread_with_something_to_do_does_not_sleep() {
        let hub = Arc::new(Hub::new(
            Engine::new(Limits::default(), 7),
            Journal::new(),
            Durability::Soon,
            7,
        ));
        let soon = Some(Duration::from_micros(100));
        let table: [Case; 5] = [
            ("nothing", |_| (), [false, false]),
            (
                "a connection is ready",
                |serving| serving.ready.push(0),
                [true, true],
            ),
            (
                "a client ends",
                |serving| serving.leaving.push(ClientId(1)),
                [true, true],
            ),
            (
                "another thread has rung",
                |serving| serving.waker.wake_to_commit(),
                [true, true],
            ),
            (
                "a commit is due",
                |serving| serving.commits.make_due(),
                [true, false],
            ),
        ];
        for (name, happens, expected) in table {
            let mut serving = Serving::new(shared(&hub), Polling::Off, Arc::default()).unwrap();
            happens(&mut serving);
            assert_eq!(
                [None, soon].map(|commits_in| serving.has_work(commits_in)),
                expected,
                "{name}"
            );
        }
    }
}
