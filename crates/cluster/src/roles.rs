//! The roles of a daemon: in standby it serves its clients over the link to the daemon that holds
//! the lease of the store. When the lease is free, it acquires the lease, opens the store, and
//! leads until it stops.

mod standing_by;

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use windlass_config::{Address, ListenAddress};
use windlass_store::{Holder, OpenError, Remote};

use self::standing_by::{GiveWay, stand_by};
use super::edge::Edge;
use super::link::{self, BEAT, Kept, Leading, LinkError, Terms};
use super::relay::Relay;
use super::tls::Tls;
use windlass_hub::{Hub, View, warn_limited};
use windlass_net::shorten_slices;

/// How long a daemon that has yielded leaves the lease to others.
pub const YIELD: Duration = Duration::from_secs(2);

/// How often a daemon without a leader looks for one.
pub const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How often it does so while the database does not respond.
pub const RETRY: Duration = Duration::from_millis(500);

/// The part of a daemon that connects it to a cluster.
#[derive(Debug)]
pub struct Cluster {
    edge: Arc<Edge>,
    thread: Option<JoinHandle<()>>,
    /// The current task of the link thread.
    task: watch::Sender<Task>,
    terms: Arc<Terms>,
    view: Arc<View>,
    relay: Arc<Relay>,
    remote: Option<Arc<dyn Remote>>,
    give_way: (Duration, Duration),
    stop: Arc<AtomicBool>,
}

/// The configuration of a cluster member.
#[derive(Debug)]
pub struct Settings {
    /// The name of the cluster.
    pub name: String,
    /// The address at which other daemons reach this one.
    pub address: String,
    /// How long clients wait for a leader before they are disconnected.
    pub hold: Duration,
    /// The certificates of the links.
    pub tls: Option<Tls>,
    /// A digest of the settings that must be equal on all daemons.
    pub agreed: [u8; 32],
    /// Maximum bytes buffered for one client.
    pub outbound_bytes_max: usize,
    /// The database with the store.
    pub remote: Option<Arc<dyn Remote>>,
    /// The length of the store's lease, and the connection timeout of the database.
    pub give_way: (Duration, Duration),
}

/// A task of the link thread.
#[derive(Clone, Debug, Default)]
enum Task {
    /// Connect to the leader.
    #[default]
    Follow,
    /// Serve the edges of this daemon.
    Lead(Arc<Leading>),
    /// Exit.
    Stop,
}

/// The bound sockets for links.
#[derive(Debug)]
pub struct Listening(Vec<StdListener>);

impl Listening {
    /// Binds the addresses.
    ///
    /// # Errors
    ///
    /// An address cannot be bound.
    pub fn bind(all: &[ListenAddress]) -> Result<Self, (&ListenAddress, io::Error)> {
        let bind = |listen| Self::bind_one(listen).map_err(|error| (listen, error));
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
    /// Starts the link thread, which looks for the leader.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn start(
        settings: Settings,
        listening: Listening,
        edge: Arc<Edge>,
        relay: Arc<Relay>,
        view: Arc<View>,
    ) -> io::Result<Self> {
        let Settings {
            name,
            address,
            hold,
            tls,
            agreed,
            outbound_bytes_max,
            remote,
            give_way,
        } = settings;
        let (cluster, name) = (name.into(), address.as_str().into());
        let terms = Arc::new(Terms {
            cluster,
            name,
            settings: agreed,
            tls,
            outbound_bytes_max,
        });
        let (task, tasks) = watch::channel(Task::Follow);
        let follower = Follower {
            edge: Arc::clone(&edge),
            remote: remote.clone(),
            own: address,
            hold,
            terms: Arc::clone(&terms),
            view: Arc::clone(&view),
            relay: Arc::clone(&relay),
        };
        let work = move || run(&follower, listening, tasks);
        let thread = std::thread::Builder::new()
            .name("link".into())
            .spawn(work)?;
        let stop = Arc::default();
        Ok(Self {
            edge,
            thread: Some(thread),
            task,
            terms,
            view,
            relay,
            remote,
            give_way,
            stop,
        })
    }

    /// Waits until this daemon has the store, which `open` opens when it is free. Returns `None` if
    /// the daemon stops.
    ///
    /// # Errors
    ///
    /// The store is damaged.
    pub async fn stand_by<T: Send + 'static>(
        &self,
        open: impl FnMut() -> Result<T, OpenError> + Send + 'static,
    ) -> Result<Option<T>, OpenError> {
        let (edge, view, stop) = (
            Arc::clone(&self.edge),
            Arc::clone(&self.view),
            Arc::clone(&self.stop),
        );
        let give_way = GiveWay {
            terms: self.give_way,
            remote: self.remote.clone(),
            was_away: false,
            back_at: None,
        };
        let opened =
            tokio::task::spawn_blocking(move || stand_by(open, give_way, &edge, &view, &stop))
                .await;
        // The task is cancelled only when the daemon exits.
        opened.unwrap_or(Ok(None))
    }

    /// Switches the link thread to serving edges.
    pub fn lead(&self, hub: &Arc<Hub>) {
        let leading = Leading {
            hub: Arc::clone(hub),
            terms: Arc::clone(&self.terms),
            view: Arc::clone(&self.view),
            relay: Arc::clone(&self.relay),
            numbered: AtomicU32::new(1),
            kept: Kept::default(),
        };
        self.task.send_replace(Task::Lead(Arc::new(leading)));
    }

    /// Switches the link thread to looking for the leader.
    pub fn follow(&self) {
        self.task.send_replace(Task::Follow);
    }

    /// Closes the links, so that edges look for another leader.
    pub fn finish(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.task.send_replace(Task::Stop);
        self.edge.close_link();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("link thread panicked");
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.task.send_replace(Task::Stop);
    }
}

// ---- the link thread
// --------------------------------------------------------------------------------

/// The state of the thread that follows a leader.
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
    // Clients wait for this thread as they do for serving threads, so it needs the same latency.
    shorten_slices();
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return tracing::error!(%error, "cannot start the link thread"),
    };
    runtime.block_on(async {
        let listeners: io::Result<Vec<_>> =
            listening.0.into_iter().map(TcpListener::from_std).collect();
        let listeners = match listeners {
            Ok(listeners) => listeners,
            Err(error) => return tracing::error!(%error, "cannot accept edges' connections"),
        };
        loop {
            let task = tasks.borrow_and_update().clone();
            // Each of these returns when the task changes.
            let work = async {
                match &task {
                    Task::Follow => tokio::select! {
                        () = follower.follow(tasks.clone()) => {}
                        () = refuse(&listeners) => {}
                    },
                    Task::Lead(leading) => accept(&listeners, leading, tasks.clone()).await,
                    Task::Stop => {}
                }
            };
            tokio::select! {
                () = work => {}
                () = follower.relay.announce() => {}
            }
            if matches!(task, Task::Stop) {
                return;
            }
        }
    });
    // A query in progress may take long.
    runtime.shutdown_background();
}

impl Follower {
    /// Connects this daemon to the leader, repeatedly, until the task changes.
    async fn follow(&self, mut tasks: watch::Receiver<Task>) {
        let mut leaderless = Leaderless::since(Instant::now());
        while !tasks.has_changed().unwrap_or(true) {
            let holder = tokio::select! {
                holder = self.holder() => holder,
                _ = tasks.changed() => return,
            };
            if holder
                .as_ref()
                .is_some_and(|holder| !holder.link.is_empty() && holder.link == self.own)
            {
                // This daemon holds the lease and is reading the store.
                leaderless.is_about_to_end(Instant::now());
            }
            if let Some(leader) = holder.filter(|holder| can_follow(&self.own, &holder.link)) {
                let begun = Instant::now();
                let ended = tokio::select! {
                    ended = link::follow(&self.edge, &leader, &self.terms, &self.view, &self.relay, tasks.clone()) => ended,
                    why = self.superseded() => Ok(why),
                };
                self.edge.close_link();
                self.view.lost_link();
                let Holder {
                    name,
                    link: address,
                    ..
                } = leader;
                let (Ok(why) | Err(why)) = &ended;
                self.view.cannot_follow(&why.to_string());
                warn_limited!("link", leader = name, address, %why, "disconnected from the leader");
                match ended {
                    Ok(_) => leaderless.was_linked(begun, Instant::now()),
                    // The daemon renews its lease but closes connections: it is reading the store.
                    Err(why) if why.is_hang_up() => leaderless.is_about_to_end(Instant::now()),
                    Err(_) => {}
                }
            }
            if leaderless.lasts(Instant::now()) > self.hold {
                self.edge.close_waiting();
            }
            tokio::select! {
                () = sleep(LOOK_EVERY) => {}
                _ = tasks.changed() => return,
            }
        }
    }

    /// Returns once another daemon leads, although this link is up: a leader that cannot reach the
    /// database does not notice that it has lost the lease.
    async fn superseded(&self) -> LinkError {
        loop {
            sleep(RETRY).await;
            if !self.edge.in_doubt() {
                continue;
            }
            let holder = self.holder().await;
            if let (Some(holder), Some(known)) = (holder, self.edge.known())
                && holder.epoch != known.epoch
            {
                return LinkError::Superseded(holder.name);
            }
        }
    }

    async fn holder(&self) -> Option<Holder> {
        let remote = Arc::clone(self.remote.as_ref()?);
        let found = tokio::task::spawn_blocking(move || remote.holder())
            .await
            .ok()?;
        found
            .inspect_err(|why| warn_limited!("leader", %why, "cannot look up the leader"))
            .ok()?
    }
}

/// Whether a daemon whose own link address is `own` can follow the leader at `link`: the leader
/// must have an address, and be another daemon.
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

    /// Called when a link has closed. If it closed immediately, no leader was behind it.
    fn was_linked(&mut self, begun: Instant, ended: Instant) {
        if ended - begun > LOOK_EVERY {
            self.0 = ended;
        }
    }

    /// Called when a daemon has the lease and will lead once it has read the store, so that clients
    /// keep waiting.
    const fn is_about_to_end(&mut self, now: Instant) {
        self.0 = now;
    }

    fn lasts(&self, now: Instant) -> Duration {
        now - self.0
    }
}

/// Closes connections of daemons that take this one for the leader, so that they look again
/// immediately.
async fn refuse(listeners: &[TcpListener]) {
    loop {
        if accept_any(listeners).await.is_err() {
            sleep(LOOK_EVERY).await;
        }
    }
}

/// Accepts edges and serves each in a separate task until the task of all links changes. Then each
/// edge is sent a goodbye, with a short timeout.
async fn accept(
    listeners: &[TcpListener],
    leading: &Arc<Leading>,
    mut ends: watch::Receiver<Task>,
) {
    let mut links = JoinSet::new();
    loop {
        let (socket, peer) = tokio::select! {
            accepted = accept_any(listeners) => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    warn_limited!("accept", %error, "cannot accept an edge's connection");
                    sleep(LOOK_EVERY).await;
                    continue;
                }
            },
            Some(_) = links.join_next() => continue,
            _ = ends.changed() => break,
        };
        if link::set_up(&socket).is_err() {
            continue;
        }
        let (leading, ends) = (Arc::clone(leading), ends.clone());
        links.spawn(async move {
            match link::accept(socket, &leading).await {
                Ok(opened) => {
                    let why = link::serve(opened, &leading, ends).await.err();
                    let why =
                        why.map_or_else(|| "closed by the edge".to_owned(), |why| why.to_string());
                    tracing::info!(%peer, why, "edge disconnected");
                }
                Err(why) => {
                    leading
                        .view
                        .has_refused(&peer.ip().to_string(), &why.to_string());
                    warn_limited!("link_refused", %peer, %why, "edge rejected");
                }
            }
        });
    }
    let _ = timeout(BEAT, async { while links.join_next().await.is_some() {} }).await;
}

/// Accepts the next connection on any listener.
async fn accept_any(listeners: &[TcpListener]) -> io::Result<(TcpStream, SocketAddr)> {
    std::future::poll_fn(|context| {
        let accepted = listeners
            .iter()
            .find_map(|listener| match listener.poll_accept(context) {
                Poll::Ready(accepted) => Some(accepted),
                Poll::Pending => None,
            });
        accepted.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

#[cfg(test)]
mod tests {
    mod shown;
    use super::*;

    #[test]
    fn an_edge_is_without_a_leader_since_its_last_link_that_lasted() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let mut leaderless = Leaderless::since(begun);
        for (from, to, since) in [
            (100, 150, 0),
            (200, 251, 251),
            (300, 301, 251),
            (400, 9_000, 9_000),
        ] {
            leaderless.was_linked(at(from), at(to));
            assert_eq!(
                leaderless.lasts(at(10_000)),
                at(10_000) - at(since),
                "{from} {to}"
            );
        }
    }

    /// A large store takes longer to read than `cluster.hold`.
    #[test]
    fn an_edge_waits_for_a_daemon_that_has_the_lease_and_reads_the_store() {
        let begun = Instant::now();
        let mut leaderless = Leaderless::since(begun);
        leaderless.is_about_to_end(begun + Duration::from_secs(60));
        assert_eq!(
            leaderless.lasts(begun + Duration::from_secs(61)),
            Duration::from_secs(1)
        );
        let io = |kind: io::ErrorKind| LinkError::Io(kind.into()).is_hang_up();
        assert!(
            LinkError::Closed.is_hang_up()
                && io(io::ErrorKind::UnexpectedEof)
                && io(io::ErrorKind::ConnectionReset)
        );
        assert!(
            !io(io::ErrorKind::ConnectionRefused) && !LinkError::Slow.is_hang_up(),
            "nothing is known of it"
        );
    }

    #[test]
    fn a_daemon_follows_another_one_with_an_address() {
        for (own, link, expected) in [
            ("a:1", "b:1", true),
            ("", "b:1", true),
            ("a:1", "a:1", false),
            ("a:1", "", false),
            ("", "", false),
        ] {
            assert_eq!(can_follow(own, link), expected, "{own} {link}");
        }
    }
}
