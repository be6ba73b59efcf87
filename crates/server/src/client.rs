//! Clients within the daemon: a part of it that is no connection sends commands and awaits their replies.
//!
//! A reply arrives when it may leave the daemon: an acknowledgement, once its commit is on the disk.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use windlass_engine::{
    ClientCommand, ClientId, ClientInfo, Command, Event, JobRef, LeaseCommand, Notice, Proof, Reading, Refusal, Reply,
    Tag, Watched,
};
use windlass_session::Item;

use crate::broker::{Batch, Health, Visited};
use crate::clock;
use crate::connection::Shared;
use crate::mailbox::{Mail, Mailbox};
use crate::serving::{Ringer, Seat};

/// Makes clients within the daemon.
#[derive(Clone, Debug)]
pub struct Clients {
    shared: Shared,
    next: Arc<AtomicU64>,
    closed: CancellationToken,
}

/// Whether the daemon serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Readiness {
    /// It does.
    Ready,
    /// The store does not respond: nothing is acknowledged.
    StoreFailed,
    /// The daemon accepts no more connections, and stops when nothing is left to wait for.
    Draining,
    /// The daemon stops.
    Stopping,
}

/// A client of the engine. Dropping it closes the client: a command without a reply by then is withdrawn, and a job
/// that was given to it unnoticed returns to its queue.
#[derive(Debug)]
pub struct Client {
    id: ClientId,
    shared: Shared,
    mailbox: Arc<Mailbox>,
    /// Notified when there may be mail.
    rung: Arc<Notify>,
    /// The command that opens the client, until it is sent.
    opening: Option<ClientInfo>,
    last_tag: u64,
}

impl Clients {
    /// `next` gives out the numbers of clients. `closed` is cancelled when the daemon accepts no more connections.
    pub(crate) const fn new(shared: Shared, next: Arc<AtomicU64>, closed: CancellationToken) -> Self {
        Self { shared, next, closed }
    }

    /// A new client.
    #[must_use]
    pub fn open(&self, info: ClientInfo) -> Client {
        let id = ClientId(self.next.fetch_add(1, Ordering::Relaxed));
        let shared = self.shared.renewed();
        let Shared { broker, budget, bounds, .. } = &shared;
        let rung = Arc::new(Notify::new());
        let seat = (Arc::new(Ringer::for_task(Arc::clone(&rung))), Seat { index: 0, client: id });
        let bytes_max = bounds.outbound_bytes_max;
        let mailbox = Arc::new(Mailbox::new(bytes_max, Arc::clone(budget), seat));
        budget.enter(id, Arc::clone(&mailbox));
        broker.open(id, Arc::clone(&mailbox));
        Client { id, shared, mailbox, rung, opening: Some(info), last_tag: 0 }
    }

    /// Reads the clocks.
    #[must_use]
    pub fn read_clock(&self) -> Reading {
        clock::read()
    }

    /// Whether the daemon serves.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        match self.shared.broker.health() {
            Health::Stopping => Readiness::Stopping,
            Health::StoreFailed => Readiness::StoreFailed,
            Health::Serving if self.closed.is_cancelled() => Readiness::Draining,
            Health::Serving => Readiness::Ready,
        }
    }
}

impl Client {
    /// Sends a command and waits for its reply. A command that waits for work ends as unavailable when the daemon
    /// stops.
    ///
    /// # Errors
    ///
    /// The command is refused, or its outcome is unknown.
    pub async fn ask(&mut self, command: impl Into<Command>) -> Result<Reply, Refusal> {
        let command = command.into();
        let waits = command.waits_for_work();
        self.last_tag += 1;
        let tag = Tag(self.last_tag);
        let mut items = VecDeque::with_capacity(2);
        let opening = self.opening.take().map(|info| Item::Command(Tag::NONE, ClientCommand::Open(info).into()));
        items.extend(opening);
        items.push_back(Item::Command(tag, command));
        loop {
            let visited = self.visit(&mut items);
            if let Some(reply) = self.reply_to(tag) {
                return reply;
            }
            if self.mailbox.close_reason().is_some() {
                return Err(Refusal::Unknown);
            }
            if waits && self.shared.broker.health() == Health::Stopping {
                return Err(Refusal::Unavailable);
            }
            self.wait_after(visited).await;
        }
    }

    /// Watches jobs change their states, those of one queue or all. The first call begins it; each gives `room` for
    /// more notices, and returns those that have come. `None` if the daemon stops, or closes the client.
    pub async fn watch(&mut self, (queue, text): (Option<Bytes>, Bytes), room: u32) -> Option<Vec<Watched>> {
        let opening = self.opening.take().map(ClientCommand::Open);
        let commands = opening.into_iter().chain([ClientCommand::Watch { queue, text, room }]);
        let mut items: VecDeque<Item> = commands.map(|command| Item::Command(Tag::NONE, command.into())).collect();
        loop {
            let visited = self.visit(&mut items);
            let mut mail = Vec::new();
            self.shared.broker.mail(&self.mailbox, usize::MAX, &mut mail);
            let is_close = |mail: &Mail| matches!(mail, Mail::Event(Event::Notice(Notice::Close)));
            let is_over = self.mailbox.close_reason().is_some() || mail.iter().any(is_close);
            if is_over || self.shared.broker.health() == Health::Stopping {
                return None;
            }
            let watched = mail.into_iter().filter_map(|mail| match mail {
                Mail::Event(Event::Notice(Notice::Watched(watched))) => Some(watched),
                Mail::Event(_) | Mail::Bytes(_) | Mail::Posted(_) => None,
            });
            let watched: Vec<Watched> = watched.collect();
            if !watched.is_empty() {
                return Some(watched);
            }
            self.wait_after(visited).await;
        }
    }

    /// Begins to look at the mailbox, and visits with what is left of the items.
    fn visit(&self, items: &mut VecDeque<Item>) -> Visited {
        // What comes from here on is announced, also if it comes before it is read.
        let _ = self.mailbox.bell().look();
        let mut visited = Visited::All;
        if !items.is_empty() {
            let (client, room) = (self.id, self.shared.bounds.outbound_bytes_max);
            let batch = Batch { client, items, room, visited: &mut visited };
            self.shared.broker.visit_apart(&clock::read(), batch);
        }
        visited
    }

    /// Waits until there is more to do, or more mail.
    async fn wait_after(&self, visited: Visited) {
        match visited {
            Visited::Part => tokio::task::yield_now().await,
            Visited::All | Visited::UntilRung => self.rung.notified().await,
        }
    }

    /// The reply, or the end of a client that an operator closed.
    fn reply_to(&self, tag: Tag) -> Option<Result<Reply, Refusal>> {
        let mut mail = Vec::new();
        self.shared.broker.mail(&self.mailbox, usize::MAX, &mut mail);
        mail.into_iter().find_map(|mail| match mail {
            Mail::Event(Event::Reply(to, Reply::Refused(why))) if to == tag => Some(Err(why)),
            Mail::Event(Event::Reply(to, reply)) if to == tag => Some(Ok(reply)),
            Mail::Event(Event::Notice(Notice::Close)) => Some(Err(Refusal::Unavailable)),
            Mail::Event(_) | Mail::Bytes(_) | Mail::Posted(_) => None,
        })
    }

    /// Returns the jobs that arrived and were not read.
    fn release_unread(&self) {
        let mut mail = Vec::new();
        self.mailbox.take(u64::MAX, false, usize::MAX, &mut mail);
        for mail in &mail {
            let Mail::Event(event) = mail else { continue };
            if let Some(taken) = event.handed_out() {
                let (job, proof) = (JobRef::Id(taken.id), Proof::Token(taken.token));
                // Refused, if its lease ended with the client.
                let _ = self.shared.broker.ask(LeaseCommand::Release { job, proof, front: false }.into());
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        while !self.shared.broker.close(self.id) {}
        if self.shared.broker.health() != Health::Stopping {
            self.release_unread();
        }
        self.shared.budget.leave(self.id);
    }
}

#[cfg(test)]
mod tests {
    use windlass_engine::{
        Engine, From, JobCommand, JobState, LeaseTerms, Limits, NewJob, OnExpiry, Protocol, Query, Select, Take,
        TakeCommand, Wait,
    };
    use windlass_store::Journal;

    use super::*;
    use crate::connection::tests::shared;
    use crate::hub::{Durability, Hub};

    fn client() -> (Arc<Hub>, Client) {
        let hub = Arc::new(Hub::new(Engine::new(Limits::default(), 7), Journal::new(), Durability::Soon, 7));
        let clients = Clients::new(shared(&hub), Arc::new(AtomicU64::new(1)), CancellationToken::new());
        let client = clients.open(ClientInfo::default());
        (hub, client)
    }

    /// Another client submits a job.
    fn push(hub: &Hub, queue: &'static str) {
        let job = NewJob::new(Protocol::GEARMAN, queue.into(), Bytes::new());
        let open = ClientCommand::Open(ClientInfo::default()).into();
        let commands: [Command; 2] = [open, JobCommand::Push(Box::new(job)).into()];
        let mut items = commands.map(|command| Item::Command(Tag(1), command)).into();
        assert!(hub.visit_all(ClientId(99), &clock::read(), &mut items));
    }

    /// Waits for a job of `q`, under a lease that outlives the client.
    fn take() -> TakeCommand {
        let lease =
            LeaseTerms { connection_bound: false, lease_ms: Some(3_600_000), on_expiry: OnExpiry::Fail, wish: None };
        let from = From::Listed { queues: vec![Bytes::from_static(b"q")], lease };
        TakeCommand::Take(Take { from, select: Select::BestPriority, wait: Wait::Forever, worker: Bytes::new() })
    }

    #[test]
    fn a_reply_has_the_tag_of_its_command() {
        let (hub, client) = client();
        let reply = |tag, reply| Mail::Event(Event::Reply(Tag(tag), reply));
        let mailbox = hub.mailboxes().pop().unwrap();
        mailbox.push(0, reply(1, Reply::Done), None);
        mailbox.push(0, reply(2, Reply::Refused(Refusal::InUse)), None);
        assert!(client.reply_to(Tag(3)).is_none());
        mailbox.push(0, reply(1, Reply::Refused(Refusal::InUse)), None);
        mailbox.push(0, reply(3, Reply::Done), None);
        assert!(matches!(client.reply_to(Tag(3)), Some(Ok(Reply::Done))));
        mailbox.push(0, reply(4, Reply::Done), None);
        mailbox.push(0, reply(5, Reply::Refused(Refusal::InUse)), None);
        assert!(matches!(client.reply_to(Tag(5)), Some(Err(Refusal::InUse))));
        mailbox.push(0, Mail::Event(Event::Notice(Notice::Close)), None);
        assert!(matches!(client.reply_to(Tag(6)), Some(Err(Refusal::Unavailable))), "an operator closed it");
    }

    #[tokio::test]
    async fn a_client_asks_and_is_gone_when_it_is_dropped() {
        let (hub, mut client) = client();
        for _ in 0..2 {
            assert!(matches!(client.ask(Query::Stats).await, Ok(Reply::Stats(_))));
        }
        drop(client);
        assert!(hub.mailboxes().is_empty());
    }

    #[test]
    fn the_store_that_fails_and_the_stop_come_before_draining() {
        let hub = Arc::new(Hub::new(Engine::new(Limits::default(), 7), Journal::new(), Durability::Soon, 7));
        let closed = CancellationToken::new();
        let clients = Clients::new(shared(&hub), Arc::default(), closed.clone());
        assert_eq!(clients.readiness(), Readiness::Ready);
        closed.cancel();
        assert_eq!(clients.readiness(), Readiness::Draining);
        hub.set_failed(true);
        assert_eq!(clients.readiness(), Readiness::StoreFailed);
        crate::broker::Broker::stop(&*hub);
        assert_eq!(clients.readiness(), Readiness::Stopping);
    }

    #[tokio::test]
    async fn a_client_waits_for_a_job_until_the_daemon_stops() {
        let (hub, mut client) = client();
        let (given, ()) = tokio::join!(client.ask(take()), async { push(&hub, "q") });
        assert!(matches!(given, Ok(Reply::Taken(_))), "{given:?}");
        let (given, ()) = tokio::join!(client.ask(take()), async { crate::broker::Broker::stop(&*hub) });
        assert!(matches!(given, Err(Refusal::Unavailable)), "{given:?}");
    }

    #[tokio::test]
    async fn a_job_that_nobody_has_read_returns_to_its_queue() {
        let (hub, mut client) = client();
        tokio::select! {
            biased;
            given = client.ask(take()) => panic!("{given:?}"),
            () = async {} => push(&hub, "q"),
        }
        let is_ready = || hub.with_journal(|engine, _| engine.jobs().all(|job| job.state == JobState::Ready));
        assert!(!is_ready(), "the client has got it");
        drop(client);
        assert!(is_ready());
    }

    #[tokio::test]
    async fn a_client_watches_jobs_until_the_daemon_stops() {
        let (hub, mut client) = client();
        let what = || (Some(Bytes::from_static(b"q")), Bytes::new());
        let (watched, ()) = tokio::join!(client.watch(what(), 9), async {
            ["other", "q"].into_iter().for_each(|queue| push(&hub, queue));
        });
        assert_eq!(watched.unwrap().len(), 1);
        let (watched, ()) = tokio::join!(client.watch(what(), 9), async { crate::broker::Broker::stop(&*hub) });
        assert!(watched.is_none());
        // An operator closes it.
        let (hub, mut client) = self::client();
        let mailbox = hub.mailboxes().pop().unwrap();
        let close = async { _ = mailbox.push(0, Mail::Event(Event::Notice(Notice::Close)), None) };
        assert!(tokio::join!(client.watch(what(), 9), close).0.is_none());
        let (hub, mut client) = self::client();
        let mailbox = hub.mailboxes().pop().unwrap();
        let evict = async { mailbox.evict(windlass_session::Reason::ClosedByServer) };
        assert!(tokio::join!(client.watch(what(), 9), evict).0.is_none());
    }
}
