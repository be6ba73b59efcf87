//! Clients inside the daemon: parts other than connections that send commands and await replies.
//!
//! A reply arrives when it may leave the daemon; for an acknowledgement, that is once its commit is
//! on disk. No call blocks its thread, and all have a timeout: see [`PATIENCE`].

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use windlass_engine::{
    ClientCommand, ClientId, ClientInfo, Command, Event, Notice, Reading, Refusal, Reply, Tag,
    Watched,
};
use windlass_session::Item;

use crate::connection::Shared;
use windlass_hub::{Batch, ConnectionId, Health, Home, Mail, Mailbox, Visited, Waker, clock};

/// How long a client waits for the engine. After that, a client waits only for the commit of a
/// change that the engine has made.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// How long a client waits for a commit while the store responds. This exceeds the default of
/// `store.commit_timeout`, after which the store counts as failed.
const COMMIT_PATIENCE: Duration = Duration::from_secs(60);

/// How often a client checks whether this daemon holds the store again.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Creates clients inside the daemon.
#[derive(Clone, Debug)]
pub struct Clients {
    shared: Shared,
    next: Arc<AtomicU64>,
    closed: CancellationToken,
}

/// Whether the daemon is ready to serve clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Readiness {
    /// It is ready.
    Ready,
    /// It is ready, but the disk is full: new jobs are refused; existing jobs continue.
    DiskFull,
    /// The store does not respond, or may belong to another daemon, so nothing is acknowledged.
    StoreFailed,
    /// The daemon accepts no connections, and stops once nothing is pending.
    Draining,
    /// The daemon is stopping.
    Stopping,
}

/// A client of the engine. Dropping it closes the client: an unanswered command is withdrawn, and a
/// job that it has not received returns to its queue.
#[derive(Debug)]
pub struct Client {
    id: ClientId,
    shared: Shared,
    mailbox: Arc<Mailbox>,
    /// Notified when there may be mail.
    rung: Arc<Notify>,
    /// The command that registers the client, until it is sent.
    opening: Option<ClientInfo>,
    last_tag: u64,
    patience: Duration,
    /// Whether the engine may have received the last command.
    is_under_way: bool,
}

impl Clients {
    /// `next` issues client numbers. `closed` is cancelled when the daemon stops accepting
    /// connections.
    pub const fn new(shared: Shared, next: Arc<AtomicU64>, closed: CancellationToken) -> Self {
        Self {
            shared,
            next,
            closed,
        }
    }

    /// Creates a client.
    pub fn open(&self, info: ClientInfo) -> Client {
        let id = ClientId(self.next.fetch_add(1, Ordering::Relaxed));
        let shared = self.shared.renewed();
        let Shared {
            broker,
            budget,
            bounds,
            ..
        } = &shared;
        let rung = Arc::new(Notify::new());
        let home = Home {
            waker: Arc::clone(&rung) as Arc<dyn Waker>,
            connection: ConnectionId {
                index: 0,
                client: id,
            },
        };
        let bytes_max = bounds.outbound_bytes_max;
        let mailbox = Arc::new(Mailbox::new(bytes_max, Arc::clone(budget), home));
        budget.enter(id, Arc::<Mailbox>::clone(&mailbox));
        broker.open(id, Arc::clone(&mailbox));
        Client {
            id,
            shared,
            mailbox,
            rung,
            opening: Some(info),
            last_tag: 0,
            patience: PATIENCE,
            is_under_way: false,
        }
    }

    /// Reads the clocks.
    pub fn read_clock(&self) -> Reading {
        clock::read()
    }

    /// The state of the daemon.
    pub fn readiness(&self) -> Readiness {
        match self.shared.broker.health() {
            Health::Stopping => Readiness::Stopping,
            Health::StoreFailed => Readiness::StoreFailed,
            Health::Serving | Health::DiskFull if self.closed.is_cancelled() => Readiness::Draining,
            Health::DiskFull => Readiness::DiskFull,
            Health::Serving => Readiness::Ready,
        }
    }
}

impl Client {
    /// Extends the client's timeout by this much, for commands that wait for work.
    #[must_use]
    pub fn waiting(mut self, longer: Duration) -> Self {
        self.patience = PATIENCE + longer;
        self
    }

    /// Sends a command and waits for its reply. Commands that wait for work fail as unavailable
    /// when the daemon stops.
    ///
    /// # Errors
    ///
    /// The command is refused, or its outcome is unknown. Without a reply in time, a command that
    /// certainly had no effect is unavailable.
    pub async fn ask(&mut self, command: impl Into<Command>) -> Result<Reply, Refusal> {
        let command = command.into();
        let (changes, patience) = (!matches!(command, Command::Query(_)), self.patience);
        let broker = Arc::clone(&self.shared.broker);
        let late = {
            let mut asked = pin!(self.ask_in_any_time(command));
            match timeout(patience, asked.as_mut()).await {
                Err(_)
                    if changes && matches!(broker.health(), Health::Serving | Health::DiskFull) =>
                {
                    timeout(COMMIT_PATIENCE, asked).await
                }
                answered => answered,
            }
        };
        match late {
            Ok(answered) => answered,
            Err(_) if changes && self.is_under_way => Err(Refusal::Unknown),
            Err(_) => Err(Refusal::Unavailable),
        }
    }

    async fn ask_in_any_time(&mut self, command: Command) -> Result<Reply, Refusal> {
        self.is_under_way = false;
        let waits = command.waits_for_work();
        self.last_tag += 1;
        let tag = Tag(self.last_tag);
        let mut items = VecDeque::with_capacity(2);
        let opening = self
            .opening
            .take()
            .map(|info| Item::Command(Tag::NONE, ClientCommand::Open(info).into()));
        items.extend(opening);
        items.push_back(Item::Command(tag, command));
        loop {
            let visited = self.visit(&mut items);
            self.is_under_way |= matches!(visited, Some(Visited::All | Visited::Part));
            let mut mail = Vec::new();
            let has_looked = self
                .shared
                .broker
                .mail_nonblocking(&self.mailbox, &mut mail);
            if let Some(reply) = reply_to(tag, mail) {
                return reply;
            }
            if self.mailbox.close_reason().is_some() {
                return Err(Refusal::Unknown);
            }
            if waits && self.shared.broker.health() == Health::Stopping {
                return Err(Refusal::Unavailable);
            }
            self.wait_after(visited.filter(|_| has_looked)).await;
        }
    }

    /// Watches state changes of the jobs of one queue, or of all. The first call starts this; each
    /// call allows `room` more notices and returns the ones received. Returns `None` if the daemon
    /// stops or closes the client.
    pub async fn watch(
        &mut self,
        queue: Option<Bytes>,
        text: Bytes,
        room: u32,
    ) -> Option<Vec<Watched>> {
        let opening = self.opening.take().map(ClientCommand::Open);
        let commands = opening
            .into_iter()
            .chain([ClientCommand::Watch { queue, text, room }]);
        let mut items: VecDeque<Item> = commands
            .map(|command| Item::Command(Tag::NONE, command.into()))
            .collect();
        loop {
            let visited = self.visit(&mut items);
            let mut mail = Vec::new();
            let has_looked = self
                .shared
                .broker
                .mail_nonblocking(&self.mailbox, &mut mail);
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
            self.wait_after(visited.filter(|_| has_looked)).await;
        }
    }

    /// Arms the mailbox and visits the engine with the remaining items. Returns `None` if this
    /// daemon may not hold the store.
    fn visit(&self, items: &mut VecDeque<Item>) -> Option<Visited> {
        // Mail is announced from here on, even if it arrives before the mailbox is read.
        let _ = self.mailbox.wake_flag().look();
        let mut visited = Visited::All;
        if !items.is_empty() {
            let (client, room) = (self.id, self.shared.bounds.outbound_bytes_max);
            let batch = Batch {
                client,
                items,
                room,
                visited: &mut visited,
            };
            return self
                .shared
                .broker
                .visit_nonblocking(&clock::read(), batch)
                .then_some(visited);
        }
        Some(visited)
    }

    /// Waits until more can be done, or mail has arrived.
    async fn wait_after(&self, visited: Option<Visited>) {
        match visited {
            Some(Visited::Part) => tokio::task::yield_now().await,
            Some(Visited::All | Visited::UntilRung) => self.rung.notified().await,
            // Nothing notifies a client when this daemon holds the store again.
            None => sleep(LOOK_EVERY).await,
        }
    }
}

/// Finds the reply in the mail, or the notice that an operator closed the client.
fn reply_to(tag: Tag, mail: Vec<Mail>) -> Option<Result<Reply, Refusal>> {
    mail.into_iter().find_map(|mail| match mail {
        Mail::Event(Event::Reply(to, Reply::Refused(why))) if to == tag => Some(Err(why)),
        Mail::Event(Event::Reply(to, reply)) if to == tag => Some(Ok(reply)),
        Mail::Event(Event::Notice(Notice::Close)) => Some(Err(Refusal::Unavailable)),
        Mail::Event(_) | Mail::Bytes(_) | Mail::Posted(_) => None,
    })
}

impl Drop for Client {
    fn drop(&mut self) {
        while !self.shared.broker.close(self.id) {}
        self.shared.budget.leave(self.id);
    }
}

#[cfg(test)]
mod tests {
    use windlass_engine::{
        Engine, From, JobCommand, JobState, LeaseTerms, Limits, NewJob, OnExpiry, Protocol, Query,
        Select, Take, TakeCommand, Wait,
    };
    use windlass_store::{Error, Journal, Tenure};

    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::connection::tests::shared;
    use windlass_hub::{Durability, Hub};

    fn client() -> (Arc<Hub>, Client) {
        let hub = Arc::new(Hub::new(
            Engine::new(Limits::default(), 7),
            Journal::new(),
            Durability::Soon,
            7,
        ));
        let clients = Clients::new(
            shared(&hub),
            Arc::new(AtomicU64::new(1)),
            CancellationToken::new(),
        );
        let client = clients.open(ClientInfo::default());
        (hub, client)
    }

    /// Another client pushes a job.
    fn push(hub: &Hub, queue: &'static str) {
        let job = NewJob::new(Protocol::GEARMAN, queue.into(), Bytes::new());
        let open = ClientCommand::Open(ClientInfo::default()).into();
        let commands: [Command; 2] = [open, JobCommand::Push(Box::new(job)).into()];
        let mut items = commands
            .map(|command| Item::Command(Tag(1), command))
            .into();
        assert!(hub.visit_all(ClientId(99), &clock::read(), &mut items));
    }

    /// Waits for a job of `q`, under a time-bound lease.
    fn take() -> TakeCommand {
        let lease = LeaseTerms {
            connection_bound: false,
            lease_ms: Some(3_600_000),
            on_expiry: OnExpiry::Fail,
            wish: None,
        };
        let from = From::Listed {
            queues: vec![Bytes::from_static(b"q")],
            lease,
        };
        TakeCommand::Take(Take {
            from,
            select: Select::BestPriority,
            wait: Wait::Forever,
            worker: Bytes::new(),
        })
    }

    #[test]
    fn a_reply_has_the_tag_of_its_command() {
        let done = |tag| Mail::Event(Event::Reply(Tag(tag), Reply::Done));
        let refused = |tag| Mail::Event(Event::Reply(Tag(tag), Reply::Refused(Refusal::InUse)));
        assert!(reply_to(Tag(3), vec![done(1), refused(2)]).is_none());
        assert!(matches!(
            reply_to(Tag(3), vec![refused(1), done(3)]),
            Some(Ok(Reply::Done))
        ));
        assert!(matches!(
            reply_to(Tag(5), vec![done(4), refused(5)]),
            Some(Err(Refusal::InUse))
        ));
        let closed = vec![Mail::Event(Event::Notice(Notice::Close))];
        assert!(
            matches!(reply_to(Tag(6), closed), Some(Err(Refusal::Unavailable))),
            "an operator closed it"
        );
    }

    #[tokio::test]
    async fn a_client_asks_and_is_gone_when_it_is_dropped() {
        let (hub, mut client) = client();
        for _ in 0..2 {
            assert!(matches!(
                client.ask(Query::Stats).await,
                Ok(Reply::Stats(_))
            ));
        }
        drop(client);
        assert!(hub.mailboxes().is_empty());
    }

    #[test]
    fn the_store_that_fails_and_the_stop_come_before_draining() {
        let hub = Arc::new(Hub::new(
            Engine::new(Limits::default(), 7),
            Journal::new(),
            Durability::Soon,
            7,
        ));
        let closed = CancellationToken::new();
        let clients = Clients::new(shared(&hub), Arc::default(), closed.clone());
        assert_eq!(clients.readiness(), Readiness::Ready);
        closed.cancel();
        assert_eq!(clients.readiness(), Readiness::Draining);
        hub.set_failed(true);
        assert_eq!(clients.readiness(), Readiness::StoreFailed);
        windlass_hub::Broker::stop(&*hub);
        assert_eq!(clients.readiness(), Readiness::Stopping);
    }

    /// A lease of the store that a test controls.
    #[derive(Debug, Default)]
    struct Right(AtomicBool);

    impl Tenure for Right {
        fn holds(&self) -> bool {
            self.0.load(Ordering::Acquire)
        }

        fn wait(&self, _: Duration) {
            panic!("a client within the daemon blocks no thread");
        }

        fn lost(&self) -> Option<Error> {
            None
        }

        fn epoch(&self) -> u64 {
            1
        }

        fn length(&self) -> Duration {
            Duration::ZERO
        }
    }

    #[tokio::test]
    async fn while_the_store_may_not_be_its_own_a_daemon_answers_in_time_and_blocks_no_thread() {
        let right = Arc::new(Right::default());
        let hub = Hub::new(
            Engine::new(Limits::default(), 7),
            Journal::new(),
            Durability::Durable,
            7,
        );
        let hub = Arc::new(hub.under(Some(Arc::clone(&right) as Arc<dyn Tenure>)));
        let clients = Clients::new(shared(&hub), Arc::default(), CancellationToken::new());
        let client = || {
            let mut client = clients.open(ClientInfo::default());
            client.patience = LOOK_EVERY / 2;
            client
        };
        let push = || {
            JobCommand::Push(Box::new(NewJob::new(
                Protocol::GEARMAN,
                "q".into(),
                Bytes::new(),
            )))
        };
        let jobs = || hub.with_journal(|engine, _| engine.job_count());
        assert_eq!(clients.readiness(), Readiness::StoreFailed);
        assert!(matches!(
            client().ask(Query::Stats).await,
            Err(Refusal::Unavailable)
        ));
        assert!(matches!(
            client().ask(push()).await,
            Err(Refusal::Unavailable)
        ));
        assert_eq!(jobs(), 0);
        let mut patient = client().waiting(Duration::ZERO);
        let holds = async { right.0.store(true, Ordering::Release) };
        assert!(
            matches!(
                tokio::join!(patient.ask(Query::Stats), holds).0,
                Ok(Reply::Stats(_))
            ),
            "it looks again"
        );
        assert_eq!(clients.readiness(), Readiness::Ready);
        // The engine has the job, but no commit contains it.
        let lapses = async { right.0.store(false, Ordering::Release) };
        let mut client = client();
        assert!(matches!(
            tokio::join!(client.ask(push()), lapses).0,
            Err(Refusal::Unknown)
        ));
        assert_eq!(jobs(), 1);
        let stop = async { windlass_hub::Broker::stop(&*hub) };
        assert!(
            tokio::join!(client.watch(None, Bytes::new(), 9), stop)
                .0
                .is_none()
        );
    }

    #[tokio::test]
    async fn a_client_waits_for_a_job_until_the_daemon_stops() {
        let (hub, mut client) = client();
        let (given, ()) = tokio::join!(client.ask(take()), async { push(&hub, "q") });
        assert!(matches!(given, Ok(Reply::Taken(_))), "{given:?}");
        let (given, ()) = tokio::join!(client.ask(take()), async {
            windlass_hub::Broker::stop(&*hub)
        });
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
        let is_ready =
            || hub.with_journal(|engine, _| engine.jobs().all(|job| job.state == JobState::Ready));
        assert!(!is_ready(), "the client has got it");
        drop(client);
        while !is_ready() {
            sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test]
    async fn a_client_watches_jobs_until_the_daemon_stops() {
        let (hub, mut client) = client();
        let queue = || Some(Bytes::from_static(b"q"));
        let (watched, ()) = tokio::join!(client.watch(queue(), Bytes::new(), 9), async {
            ["other", "q"]
                .into_iter()
                .for_each(|queue| push(&hub, queue));
        });
        assert_eq!(watched.unwrap().len(), 1);
        let (watched, ()) = tokio::join!(client.watch(queue(), Bytes::new(), 9), async {
            windlass_hub::Broker::stop(&*hub)
        });
        assert!(watched.is_none());
        // An operator closes the client.
        let (hub, mut client) = self::client();
        let mailbox = hub.mailboxes().pop().unwrap();
        let close = async { _ = mailbox.push(0, Mail::Event(Event::Notice(Notice::Close)), None) };
        assert!(
            tokio::join!(client.watch(queue(), Bytes::new(), 9), close)
                .0
                .is_none()
        );
        let (hub, mut client) = self::client();
        let mailbox = hub.mailboxes().pop().unwrap();
        let evict = async { mailbox.evict(windlass_session::Reason::ClosedByServer) };
        assert!(
            tokio::join!(client.watch(queue(), Bytes::new(), 9), evict)
                .0
                .is_none()
        );
    }
}
