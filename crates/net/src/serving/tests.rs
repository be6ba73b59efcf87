//! A serving thread whose turns are run by a test.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio_util::task::TaskTracker;
use windlass_engine::{ClientId, Rights};
use windlass_session::{Closer, Session};

use super::arrival::Place;
use super::load::Kind;
use super::sharing::{Partner, Role};
use super::turn::Serving;
use super::{Arrival, Debt, Label};
use crate::connection::tests::admission;
use crate::connection::{Newcomer, Shared};
use crate::polling::Polling;
use crate::stream::Stream;
use windlass_hub::Commits;

/// Timeout of everything that should happen.
const PATIENCE: Duration = Duration::from_secs(20);

/// The minimum that the kernel allows.
const SOCKET_BUFFER_BYTES: usize = 1;

/// A thread.
pub(crate) struct ByHand {
    serving: Serving,
    tasks: TaskTracker,
    taken: Arc<AtomicUsize>,
    clients: u64,
}

impl ByHand {
    pub(crate) fn new(shared: Shared) -> Self {
        let serving = Serving::new(shared, Polling::Off, Arc::default()).unwrap();
        Self {
            serving,
            tasks: TaskTracker::new(),
            taken: Arc::default(),
            clients: 0,
        }
    }

    /// A thread that commits.
    pub(crate) fn committing(shared: Shared, commits: &Arc<Commits>) -> Self {
        commits.leave_to_turns();
        let commits = Arc::new(Arc::clone(commits).into());
        let serving = Serving::new(shared, Polling::Off, commits).unwrap();
        Self {
            serving,
            tasks: TaskTracker::new(),
            taken: Arc::default(),
            clients: 0,
        }
    }

    /// A thread and its helper.
    pub(crate) fn with_helper(shared: &Shared) -> [Self; 2] {
        let [mut main, mut helper] = [(); 2].map(|()| Self::new(shared.clone()));
        helper.clients = 1 << 20;
        let is_helper_full = Arc::default();
        let partner = |of: &Self, role| {
            let (waker, taken) = (Arc::clone(of.serving.waker()), Arc::clone(&of.taken));
            Partner {
                waker,
                taken,
                role,
                is_helper_full: Arc::clone(&is_helper_full),
            }
        };
        main.serving.share_with(partner(&helper, Role::Helper));
        helper.serving.share_with(partner(&main, Role::Helped));
        for thread in [&mut main, &mut helper] {
            thread.serving.pretend(None);
        }
        [main, helper]
    }

    /// Runs a turn whose load window has this result.
    pub(crate) fn turn_as(&mut self, kind: Kind) {
        self.serving.pretend(Some(kind));
        self.turns(1);
        self.serving.pretend(None);
    }

    /// The number of connections of the thread.
    pub(crate) fn connections(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Whether the thread would sleep now.
    pub(crate) fn is_idle(&self) -> bool {
        self.serving.is_idle()
    }

    /// The probe of the thread.
    pub(crate) fn pulse(&self) -> super::Pulse {
        super::Pulse::new(vec![Arc::clone(self.serving.waker())])
    }

    /// Stops the thread.
    pub(crate) fn stop(&self) {
        self.serving.waker().stop();
    }

    /// A connection, and the peer's end of its socket, with a small kernel buffer. Clients count
    /// from 1.
    pub(crate) fn connect(
        &mut self,
        greet: impl FnOnce(Arc<dyn Closer>) -> Box<dyn Session> + Send + 'static,
    ) -> UnixStream {
        self.connect_as(|socket| Box::new(socket), greet)
    }

    /// The same over a given stream.
    pub(crate) fn connect_as(
        &mut self,
        stream: impl FnOnce(mio::net::UnixStream) -> Box<dyn Stream>,
        greet: impl FnOnce(Arc<dyn Closer>) -> Box<dyn Session> + Send + 'static,
    ) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        socket2::SockRef::from(&ours)
            .set_send_buffer_size(SOCKET_BUFFER_BYTES)
            .unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        self.clients += 1;
        let arrival = Arrival {
            newcomer: Newcomer {
                stream: stream(mio::net::UnixStream::from_std(ours)),
                handshake_max: Duration::ZERO,
                greet: Box::new(|closer, _| greet(closer)),
                admission: admission(),
                rights: Rights::ALL,
            },
            client: ClientId(self.clients),
            label: Label {
                span: tracing::Span::none(),
                protocol: "any",
                peer: "".into(),
            },
            debt: Debt::default(),
            token: self.tasks.token(),
        };
        self.serving
            .waker()
            .arrive(arrival, Place::take(&self.taken));
        theirs
    }

    /// Runs turns until the condition holds.
    pub(crate) fn until(&mut self, mut is_so: impl FnMut() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < end, "it does not come");
            self.turns(1);
        }
    }

    /// Runs this many turns.
    pub(crate) fn turns(&mut self, turns: usize) {
        (0..turns).for_each(|_| self.serving.step(Duration::from_millis(1)));
    }

    /// Runs turns until the peer has read this many bytes, and returns them.
    pub(crate) fn read(&mut self, peer: &mut UnixStream, bytes: usize) -> Vec<u8> {
        use std::io::Read as _;
        let mut all = Vec::new();
        self.until(|| {
            let mut some = [0; 4096];
            let most = some.len().min(bytes - all.len());
            if let Ok(read @ 1..) = peer.read(&mut some[..most]) {
                all.extend_from_slice(&some[..read]);
            }
            all.len() == bytes
        });
        all
    }

    /// Runs turns until this many connections are open.
    pub(crate) fn until_open(&mut self, connections: usize) {
        let tasks = self.tasks.clone();
        self.until(|| tasks.len() == connections);
    }

    /// Runs turns until no connection is open.
    pub(crate) fn until_closed(&mut self) {
        self.until_open(0);
    }
}
