//! The roles of a daemon: it stands by while another one has the lease of the store, and serves its clients over the
//! link to that one. When the lease is free it takes the lease, opens the store, and leads until it ends.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use windlass_config::{Address, Error as ConfigError, ListenAddress};
use windlass_store::{Error as StoreError, Holder, OpenError, Remote};

use super::edge::Edge;
use super::link::{self, Leading, Terms};
use super::relay::Relay;
use super::tls::Tls;
use super::view::View;
use crate::config::Config;
use crate::data::{self, Store};
use crate::failure::{Failure, Unbound};
use crate::hub::Hub;
use crate::logging::limited::warn_limited;
use crate::serving::shorten_slices;

/// How long a daemon without a leader waits before it looks for one again.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The same while the database does not respond.
pub(super) const RETRY: Duration = Duration::from_millis(500);

/// The part of a daemon that makes it one of several.
#[derive(Debug)]
pub(crate) struct Cluster {
    edge: Arc<Edge>,
    thread: Option<JoinHandle<()>>,
    /// What the link's thread does.
    task: watch::Sender<Task>,
    terms: Arc<Terms>,
    view: Arc<View>,
    relay: Arc<Relay>,
    stop: Arc<AtomicBool>,
}

/// What the link's thread does.
#[derive(Clone, Debug, Default)]
enum Task {
    /// It links this daemon to the leader.
    #[default]
    Follow,
    /// It serves the edges of this daemon.
    Lead(Arc<Leading>),
    /// It ends.
    Stop,
}

/// The bound address of the links.
#[derive(Debug)]
pub(crate) struct Listening(Vec<StdListener>);

impl Listening {
    /// Binds the addresses.
    ///
    /// # Errors
    ///
    /// One of them cannot be bound.
    pub(crate) fn bind(all: &[ListenAddress]) -> Result<Self, Failure> {
        let bind = |listen: &ListenAddress| {
            let failed = |error| Failure::Listen(vec![Unbound::new(listen, "cluster.listen".to_owned(), error)]);
            Self::bind_one(listen).map_err(failed)
        };
        let bound: Vec<Vec<_>> = all.iter().map(bind).collect::<Result<_, _>>()?;
        Ok(Self(bound.into_iter().flatten().collect()))
    }

    fn bind_one(listen: &ListenAddress) -> io::Result<Vec<StdListener>> {
        let bind = |address: Address| match address {
            Address::Tcp(address) => StdListener::bind(address).and_then(|bound| {
                bound.set_nonblocking(true)?;
                Ok(bound)
            }),
            Address::Unix(_) => Err(io::Error::new(io::ErrorKind::InvalidInput, "links use TCP")),
        };
        listen.resolve()?.into_iter().map(bind).collect()
    }
}

impl Cluster {
    /// Starts the link's thread, which looks for the leader.
    ///
    /// # Errors
    ///
    /// The files of TLS cannot be used, or the thread cannot start.
    pub(crate) fn start(
        config: &Config,
        listening: Listening,
        (edge, relay): (Arc<Edge>, Arc<Relay>),
        view: Arc<View>,
    ) -> Result<Self, Failure> {
        let section = &config.cluster;
        let tls = Tls::new(&section.tls).map_err(|reason| ConfigError::Tls { protocol: "cluster", reason })?;
        let terms = Arc::new(Terms {
            cluster: section.name.as_str().into(),
            name: section.address().into(),
            settings: agreed(config),
            tls,
            outbound_bytes_max: config.server.outbound_bytes_max.bytes(),
        });
        let (task, tasks) = watch::channel(Task::Follow);
        let follower = Follower {
            edge: Arc::clone(&edge),
            remote: config.remote.clone(),
            own: section.address(),
            hold: section.hold.into(),
            terms: Arc::clone(&terms),
            view: Arc::clone(&view),
            relay: Arc::clone(&relay),
        };
        let work = move || run(&follower, listening, tasks);
        let thread = std::thread::Builder::new().name("link".into()).spawn(work).map_err(crate::failure::no_threads)?;
        Ok(Self { edge, thread: Some(thread), task, terms, view, relay, stop: Arc::default() })
    }

    /// Stands by until this daemon has the store.
    ///
    /// # Errors
    ///
    /// The store is damaged.
    pub(crate) async fn stand_by(&self, config: &Config) -> Result<Store, Failure> {
        let (config, stop) = (config.clone(), Arc::clone(&self.stop));
        let opened = tokio::task::spawn_blocking(move || stand_by(&config, &stop)).await;
        opened.map_err(|error| Failure::Runtime(error.to_string()))?
    }

    /// This daemon leads from now on: the link's thread serves edges.
    pub(crate) fn lead(&self, hub: &Arc<Hub>) {
        let leading = Leading {
            hub: Arc::clone(hub),
            terms: Arc::clone(&self.terms),
            view: Arc::clone(&self.view),
            relay: Arc::clone(&self.relay),
            numbered: AtomicU32::new(1),
        };
        self.task.send_replace(Task::Lead(Arc::new(leading)));
    }

    /// This daemon leads no more: its link's thread looks for the leader.
    pub(crate) fn follow(&self) {
        self.task.send_replace(Task::Follow);
    }

    /// Ends the links: edges look for another leader.
    pub(crate) fn finish(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.task.send_replace(Task::Stop);
        self.edge.close_way();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the link's thread has panicked");
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.task.send_replace(Task::Stop);
    }
}

/// A digest of the settings that all daemons of a cluster must have in common: whichever of them leads, they count.
fn agreed(config: &Config) -> [u8; 32] {
    let is_agreed = |key: &str| {
        let sections = ["durability", "commit_interval", "limits.", "bridge.", "queues."];
        sections.iter().any(|section| key.starts_with(section)) || key.contains(".cron") || key.contains(".throttles")
    };
    let mut digest = Sha256::new();
    for (key, value) in config.values.iter().filter(|(key, _)| is_agreed(key)) {
        digest.update(format!("{key}\0{value}\0"));
    }
    digest.finalize().into()
}

/// Tries to open the store until it is free.
fn stand_by(config: &Config, stop: &AtomicBool) -> Result<Store, Failure> {
    loop {
        let pause = match data::try_open(config) {
            Ok(opened) => return Ok(opened.into()),
            Err(OpenError::Store(StoreError::InUse { .. })) => LOOK_EVERY,
            Err(OpenError::Store(why @ (StoreError::Io { .. } | StoreError::Deposed { .. }))) => {
                warn_limited!("stand_by", %why, "this daemon cannot take the lease of the store");
                RETRY
            }
            Err(why) => return Err(data::cannot_open(config, &why)),
        };
        if stop.load(Ordering::Acquire) {
            return Err(Failure::Runtime("stopped while standing by".to_owned()));
        }
        std::thread::sleep(pause);
    }
}

// ---- the link's thread ----------------------------------------------------------------------------------------------

/// What the thread needs to follow a leader.
struct Follower {
    edge: Arc<Edge>,
    remote: Option<Arc<dyn Remote>>,
    /// This daemon's own address.
    own: String,
    /// How long clients wait for a leader.
    hold: Duration,
    terms: Arc<Terms>,
    view: Arc<View>,
    relay: Arc<Relay>,
}

fn run(follower: &Follower, listening: Listening, mut tasks: watch::Receiver<Task>) {
    // Clients wait for it as they do for the threads that serve them.
    shorten_slices();
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return tracing::error!(%error, "the link's thread cannot start"),
    };
    runtime.block_on(async {
        let listeners: io::Result<Vec<_>> = listening.0.into_iter().map(TcpListener::from_std).collect();
        let listeners = match listeners {
            Ok(listeners) => listeners,
            Err(error) => return tracing::error!(%error, "cannot accept links"),
        };
        loop {
            let task = tasks.borrow_and_update().clone();
            let work = async {
                match &task {
                    Task::Follow => follower.follow().await,
                    Task::Lead(leading) => accept(&listeners, leading).await,
                    Task::Stop => {}
                }
            };
            tokio::select! {
                () = work => {}
                () = follower.relay.announce() => {}
                _ = tasks.changed() => {}
            }
            if matches!(task, Task::Stop) {
                return;
            }
        }
    });
    // A look at the database may take long.
    runtime.shutdown_background();
}

impl Follower {
    /// Links this daemon to the leader, again and again.
    async fn follow(&self) {
        let mut leaderless = Leaderless::since(Instant::now());
        loop {
            if let Some(leader) = self.find_leader().await {
                let begun = Instant::now();
                let why = link::follow(&self.edge, &leader, &self.terms, (&self.view, &self.relay)).await;
                self.view.lost_link();
                let Holder { name, link: address, .. } = leader;
                warn_limited!("link", leader = name, address, %why, "the link to the leader has ended");
                leaderless.was_linked(begun, Instant::now());
            }
            if leaderless.lasts(Instant::now()) > self.hold {
                self.edge.give_up();
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// The daemon that leads, if it is another one and can be reached.
    async fn find_leader(&self) -> Option<Holder> {
        let remote = Arc::clone(self.remote.as_ref()?);
        let found = tokio::task::spawn_blocking(move || remote.holder()).await.ok()?;
        let found = found.inspect_err(|why| warn_limited!("leader", %why, "cannot look for the leader")).ok()?;
        found.filter(|holder| can_follow(&self.own, &holder.link))
    }
}

/// Whether a daemon whose own links have the address `own` can link itself to a leader at `link`: the leader must have
/// one, and be another daemon.
fn can_follow(own: &str, link: &str) -> bool {
    !link.is_empty() && link != own
}

/// Since when an edge has been without a leader.
#[derive(Debug)]
struct Leaderless(Instant);

impl Leaderless {
    const fn since(begun: Instant) -> Self {
        Self(begun)
    }

    /// A link has ended. One that ended at once had no leader behind it.
    fn was_linked(&mut self, begun: Instant, ended: Instant) {
        if ended - begun > LOOK_EVERY {
            self.0 = ended;
        }
    }

    fn lasts(&self, now: Instant) -> Duration {
        now - self.0
    }
}

/// Accepts edges, and serves each in a task of its own. The tasks end with this one.
async fn accept(listeners: &[TcpListener], leading: &Arc<Leading>) {
    let mut tasks = JoinSet::new();
    loop {
        let (socket, peer) = tokio::select! {
            accepted = accept_any(listeners) => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    warn_limited!("accept", %error, "cannot accept a link");
                    sleep(LOOK_EVERY).await;
                    continue;
                }
            },
            Some(_) = tasks.join_next() => continue,
        };
        if link::set_up(&socket).is_err() {
            continue;
        }
        let leading = Arc::clone(leading);
        tasks.spawn(async move {
            match link::accept(socket, &leading).await {
                Ok(opened) => {
                    let why = link::serve(opened, &leading).await.err();
                    let why = why.map_or_else(|| "the edge has ended it".to_owned(), |why| why.to_string());
                    tracing::info!(%peer, why, "the link of an edge has ended");
                }
                Err(why) => warn_limited!("link_refused", %peer, %why, "a link was refused"),
            }
        });
    }
}

/// The next connection of any of these.
async fn accept_any(listeners: &[TcpListener]) -> io::Result<(TcpStream, SocketAddr)> {
    std::future::poll_fn(|context| {
        let accepted = listeners.iter().find_map(|listener| match listener.poll_accept(context) {
            Poll::Ready(accepted) => Some(accepted),
            Poll::Pending => None,
        });
        accepted.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemons_of_a_cluster_agree_on_what_counts_whichever_leads() {
        let digest = |key: &str, value: &str| {
            agreed(&Config { values: [(key.to_owned(), value.to_owned())].into(), ..Config::default() })
        };
        let none = agreed(&Config::default());
        let table = [
            ("durability", true),
            ("limits.jobs_max", true),
            ("bridge.rules", true),
            ("queues.mail.ttl", true),
            ("faktory.cron", true),
            ("gearman.throttles.mail", true),
            ("data_dir", false),
            ("gearman.listen", false),
            ("server.threads", false),
        ];
        for (key, counts) in table {
            assert_eq!(digest(key, "1") != digest(key, "2"), counts, "{key}");
            assert_eq!(digest(key, "1") != none, counts, "{key}");
        }
    }

    #[test]
    fn an_edge_is_without_a_leader_since_its_last_link_that_lasted() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let mut leaderless = Leaderless::since(begun);
        for (from, to, since) in [(100, 150, 0), (200, 251, 251), (300, 301, 251), (400, 9_000, 9_000)] {
            leaderless.was_linked(at(from), at(to));
            assert_eq!(leaderless.lasts(at(10_000)), at(10_000) - at(since), "{from} {to}");
        }
    }

    #[test]
    fn a_daemon_follows_another_one_with_an_address() {
        for (own, link, expected) in
            [("a:1", "b:1", true), ("", "b:1", true), ("a:1", "a:1", false), ("a:1", "", false), ("", "", false)]
        {
            assert_eq!(can_follow(own, link), expected, "{own} {link}");
        }
    }
}
