//! Operator ports: listeners beside those of the protocols, for operators. A port serves on a thread of its own, so that nothing
//! it does slows a connection of a protocol. It reaches the queue through [`Clients`].

use std::any::Any;
use std::fmt;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;
use windlass_config::ListenAddress;
use windlass_session::protocol::{Daemon, Page, Protocol};

use crate::control::requests::Control;
use crate::export::Exports;
use crate::figures::Figures;
use windlass_hub::warn_limited;
pub use windlass_net::Admitted;
pub use windlass_net::Pulse;
use windlass_net::{Acceptor, Bound, Clients, KeepAlive, Places, SocketFile};

/// A listener beside those of the protocols, as it is configured.
pub trait OperatorPort: Send + Sync + fmt::Debug {
    /// Its name: that of its section.
    fn name(&self) -> &'static str;

    /// All addresses.
    fn listen(&self) -> &[ListenAddress];

    /// The name of a Unix socket in the data directory, for the owner of the directory alone.
    fn private_socket(&self) -> &'static str;

    /// Starts a thread that serves on these sockets until the daemon stops, and ends when all its connections are
    /// closed. A socket may come at any time.
    ///
    /// # Errors
    ///
    /// The thread cannot start.
    fn open(&self, sockets: UnboundedReceiver<Socket>, inside: Inside) -> io::Result<OpenPort>;

    /// The keys of its section that [`OperatorPort::renew`] applies.
    fn renewable(&self) -> &'static [&'static str];

    /// Applies their values to an open port: `shared` is that of the [`OpenPort`].
    fn renew(&self, shared: &(dyn Any + Send + Sync));
}

/// A port that is open.
pub struct OpenPort {
    /// The thread that serves.
    pub thread: JoinHandle<()>,
    /// What its connections share.
    pub shared: Arc<dyn Any + Send + Sync>,
}

/// A socket that listens and does not block.
#[derive(Debug)]
pub enum Socket {
    /// TCP.
    Tcp(TcpListener),
    /// A Unix socket.
    Unix(UnixListener),
}

/// What a port reaches of the daemon.
#[derive(Clone, Debug)]
pub struct Inside {
    /// The queue.
    pub clients: Clients,
    /// The clocks, the bridge between the protocols, and the machine's name.
    pub daemon: Daemon,
    /// All protocols, as they were configured at the start.
    pub protocols: Vec<Arc<dyn Protocol>>,
    /// Pages that deployed servers of the protocols have.
    pub pages: Vec<Arc<dyn Page>>,
    /// The daemon as a whole: drain it.
    pub control: Control,
    /// The daemon's own figures.
    pub figures: Figures,
    /// Exports of the store.
    pub exports: Exports,
    /// Whether the daemon's threads turn.
    pub pulse: Arc<Pulse>,
    /// What holds for the connections of all listeners.
    pub connects: Connects,
    /// Cancelled when the daemon stops.
    pub stop: CancellationToken,
}

/// What holds for the connections of all listeners.
#[derive(Clone, Debug)]
pub struct Connects {
    pub(crate) places: Arc<Places>,
    pub(crate) keep_alive: KeepAlive,
    pub(crate) most: usize,
}

impl Connects {
    /// Counts a new connection among those of its address, until the result is dropped. `None`: the connection must be
    /// closed, and the log has the reason.
    #[must_use]
    pub fn admit(&self, address: IpAddr) -> Option<Admitted> {
        self.places.admit(address)
    }

    /// How many connections a port may have that is configured to have so many: the system may allow fewer open files.
    pub fn most(&self, configured: usize) -> usize {
        configured.min(self.most)
    }

    /// Logs what a port has done because its own limit on connections is reached, once a second at most.
    pub fn warn_full(&self, limit: &'static str, peer: &str, done: &'static str) {
        warn_limited!(done, peer, limit, "too many connections: {done}");
    }

    /// Sets TCP's keep-alive of a new connection, if it has changed since the daemon listens.
    pub fn keep_alive(&self, stream: &impl AsFd) {
        self.keep_alive.apply(stream);
    }
}

/// A port that is open, for new values of its section.
#[derive(Debug)]
pub(crate) struct Renewable {
    name: &'static str,
    keys: &'static [&'static str],
    shared: Arc<dyn Any + Send + Sync>,
    entrance: Entrance,
}

/// Where sockets come to an open port.
#[derive(Clone, Debug)]
pub(crate) struct Entrance {
    name: &'static str,
    sockets: UnboundedSender<Socket>,
}

impl Entrance {
    /// The name of the port's section.
    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    /// The port serves on this socket from now on. The file of a Unix socket lives as long as the result.
    pub(crate) fn add(&self, bound: Bound) -> io::Result<Option<SocketFile>> {
        let address = bound
            .address()
            .map_or_else(|_| "?".to_owned(), |address| address.to_string());
        tracing::info!(protocol = self.name, %address, tls = false, "listening");
        let (socket, file) = match bound {
            Bound::Tcp(listener) => (Socket::Tcp(listener.into_std()?), None),
            Bound::Unix(listener, file) => (Socket::Unix(listener.into_std()?), Some(file)),
        };
        // A port that has ended needs no socket.
        let _ = self.sockets.send(socket);
        Ok(file)
    }
}

impl Renewable {
    /// The name of the port's section.
    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    /// Where its sockets come.
    pub(crate) const fn entrance(&self) -> &Entrance {
        &self.entrance
    }

    /// Whether a key of the section applies while the port is open.
    pub(crate) fn applies(&self, key: &str) -> bool {
        self.keys.contains(&key)
    }

    /// Applies new values, if the section is the port's own.
    pub(crate) fn renew(&self, section: &dyn OperatorPort) {
        if section.name() == self.name {
            section.renew(&*self.shared);
        }
    }
}

/// A port whose addresses are bound.
#[derive(Debug)]
pub(crate) struct BoundPort {
    port: Arc<dyn OperatorPort>,
    bound: Vec<Bound>,
}

impl BoundPort {
    pub(crate) fn name(&self) -> &'static str {
        self.port.name()
    }

    pub(crate) const fn new(port: Arc<dyn OperatorPort>, bound: Vec<Bound>) -> Self {
        Self { port, bound }
    }

    pub(crate) fn private_socket(&self) -> &'static str {
        self.port.private_socket()
    }

    pub(crate) fn add(&mut self, bound: Vec<Bound>) {
        self.bound.extend(bound);
    }

    pub(crate) fn bound(&self) -> &[Bound] {
        &self.bound
    }

    /// Opens the port. The daemon waits for the port's thread when it stops. The files of Unix sockets live as long as
    /// the result.
    pub(crate) fn open(
        self,
        inside: Inside,
        acceptor: &Acceptor,
    ) -> io::Result<(Vec<SocketFile>, Renewable)> {
        let Self { port, bound } = self;
        let (sender, receiver) = unbounded_channel();
        let OpenPort { thread, shared } = port.open(receiver, inside)?;
        // A panic in the thread has been logged by its hook.
        acceptor.tasks.spawn_blocking(move || drop(thread.join()));
        let entrance = Entrance {
            name: port.name(),
            sockets: sender,
        };
        let files: io::Result<Vec<_>> = bound
            .into_iter()
            .filter_map(|it| entrance.add(it).transpose())
            .collect();
        Ok((
            files?,
            Renewable {
                name: port.name(),
                keys: port.renewable(),
                shared,
                entrance,
            },
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A port of this name, whose connections share the number of its values.
    #[derive(Debug)]
    struct Named(&'static str);

    impl OperatorPort for Named {
        fn name(&self) -> &'static str {
            self.0
        }

        fn listen(&self) -> &[ListenAddress] {
            &[]
        }

        fn private_socket(&self) -> &'static str {
            "socket"
        }

        fn open(&self, _: UnboundedReceiver<Socket>, _: Inside) -> io::Result<OpenPort> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn renewable(&self) -> &'static [&'static str] {
            &["key"]
        }

        fn renew(&self, shared: &(dyn Any + Send + Sync)) {
            shared
                .downcast_ref::<AtomicUsize>()
                .unwrap()
                .fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_door_takes_new_values_of_its_own_section() {
        let renewed = Arc::new(AtomicUsize::new(0));
        let entrance = Entrance {
            name: "http",
            sockets: unbounded_channel().0,
        };
        let shared = Arc::<AtomicUsize>::clone(&renewed);
        let port = Renewable {
            name: "http",
            keys: Named("http").renewable(),
            shared,
            entrance,
        };
        for (section, times) in [("metrics", 0), ("http", 1)] {
            port.renew(&Named(section));
            assert_eq!(renewed.load(Ordering::Relaxed), times, "{section}");
        }
        assert_eq!(["key", "other"].map(|key| port.applies(key)), [true, false]);
    }
}
