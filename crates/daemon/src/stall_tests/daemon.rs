//! A daemon in this process: real listeners, connections, sessions and a committing thread, over a store that a test
//! can stall.
//!
//! One thread serves all connections. So everything sent before a probe's ECHO has been handled when the ECHO is
//! answered, and a test need not wait for time to pass.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::runtime::Builder;
use tokio_util::sync::CancellationToken;
use windlass_session::Listen;
use windlass_store::{Recovered, StoreLimits, open_parts};
use windlass_testkit::store::{MemoryLog, MemoryTable};

use crate::config::{self, Config, Polling, fixture};
use crate::protocols;
use windlass_hub::{Committer, Durability, Hub, Pace, QueuedMail};
use windlass_net::{Acceptor, Clients, listen};
use windlass_net::{Bounds, Inherited, Patience, PlaceLimits, Shared, Threads};

/// Timeout of everything that should happen.
const PATIENCE: Duration = Duration::from_secs(20);

/// The number of probes. The first reply shows that connections with mail are about to run, the
/// second that they have run; the next two cover connections that received mail from these.
const PROBES: u8 = 4;

const PLACES: PlaceLimits = PlaceLimits {
    connections_limit: "connections_max",
    connections_max: 100,
    reserved: 0,
    per_address_max: 0,
    rate: None,
    failures: None,
    silence_min: Duration::ZERO,
};

const BOUNDS: Bounds = Bounds {
    read_bytes_max: 1 << 20,
    outbound_bytes_max: 1 << 20,
    unacknowledged_max: 1_000,
    idle_max: None,
    patience: Patience {
        timeout_ms: 0,
        bytes_per_s: 0,
    },
};

/// A daemon, and the connection of the probe.
pub(super) struct Daemon {
    pub(super) hub: Arc<Hub>,
    /// Its clients other than connections.
    pub(super) clients: Clients,
    pub(super) store: MemoryLog,
    dir: TempDir,
    probe: Option<UnixStream>,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Daemon {
    /// Starts it with these settings, as keys and TOML values, in addition to its addresses.
    pub(super) fn start<'a>(settings: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let (dir, store, stop) = (
            tempfile::tempdir().unwrap(),
            MemoryLog::new(),
            CancellationToken::new(),
        );
        let config = config(dir.path(), settings);
        let (ready, started) = mpsc::channel();
        let (its_store, its_stop) = (store.clone(), stop.clone());
        let thread = thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(serve(&config, its_store, &ready, its_stop));
        });
        let (hub, clients) = started.recv().expect("the daemon starts");
        let mut daemon = Self {
            hub,
            clients,
            store,
            dir,
            probe: None,
            stop,
            thread: Some(thread),
        };
        daemon.probe = Some(daemon.connect("gearman"));
        daemon
    }

    /// Connects, and waits until the connection is served.
    pub(super) fn connect(&self, protocol: &str) -> UnixStream {
        let newest = self.hub.newest_client();
        let stream = UnixStream::connect(socket(self.dir.path(), protocol)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let end = Instant::now() + PATIENCE;
        while self.hub.newest_client() <= newest {
            assert!(Instant::now() < end, "a connection is not served");
            thread::yield_now();
        }
        stream
    }

    /// Returns once everything sent has taken effect. If the store works, all changes are on disk
    /// and the clients that waited for them have their replies. If it is stalled, the first change
    /// is in the blocked commit, so later ones go into another commit.
    pub(super) fn settle(&mut self, stalled: bool) {
        let end = Instant::now() + PATIENCE;
        loop {
            let commit = self.pending_seq();
            let before = (stalled || self.is_durable()) && self.is_read();
            (0..PROBES).for_each(|_| self.probe());
            if before
                && (stalled || self.is_durable())
                && self.is_read()
                && commit == self.pending_seq()
            {
                break;
            }
            assert!(Instant::now() < end, "the daemon does not settle");
            thread::yield_now();
        }
        if stalled && !self.is_durable() && !self.hub.failed() {
            self.store.wait_until_stuck();
        }
    }

    /// Whether all changes are on disk.
    pub(super) fn is_durable(&self) -> bool {
        self.hub.with_journal(|_, journal| {
            journal.is_empty() && journal.pending_seq() == self.hub.durable() + 1
        })
    }

    /// Whether no connection has readable mail.
    fn is_read(&self) -> bool {
        let (durable, failed) = (self.hub.durable(), self.hub.failed());
        let first_may_be_read = |mail: &mut dyn Iterator<Item = &QueuedMail>| {
            mail.next()
                .is_some_and(|queued| queued.gate <= Some(durable) || failed)
        };
        !self
            .hub
            .mailboxes()
            .iter()
            .any(|mailbox| mailbox.look(first_may_be_read))
    }

    fn pending_seq(&self) -> u64 {
        self.hub.with_journal(|_, journal| journal.pending_seq())
    }

    /// Sends an ECHO and waits for the reply.
    fn probe(&mut self) {
        const REQUEST: &[u8] = b"\0REQ\0\0\0\x10\0\0\0\x05probe";
        const ANSWER: &[u8] = b"\0RES\0\0\0\x11\0\0\0\x05probe";
        let Some(probe) = &mut self.probe else { return };
        let mut answer = [0; ANSWER.len()];
        probe.write_all(REQUEST).unwrap();
        probe.read_exact(&mut answer).expect("the daemon answers");
        assert_eq!(answer, ANSWER);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Its last commit must finish.
        self.store.unblock();
        self.stop.cancel();
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(
            thread::panicking() || ended.is_some_and(|ended| ended.is_ok()),
            "the daemon panicked"
        );
    }
}

fn socket(dir: &Path, protocol: &str) -> PathBuf {
    dir.join(protocol)
}

/// Heartbeats and their timeouts are off, because transcripts have no clock.
fn config<'a>(dir: &Path, settings: impl IntoIterator<Item = (&'a str, &'a str)>) -> Config {
    let mut text = "eventmq.admin_listen = []\neventmq.publish_listen = []\neventmq.subscribe_listen = []\n\
                    eventmq.heartbeat = \"1h\"\neventmq.heartbeat_timeout = \"0s\"\neventmq.nudge = \"0s\"\n\
                    gearman.handle_prefix = \"H:here\"\nzmtp.ping_idle = \"1h\"\ncommit_interval = \"1ms\"\n"
        .to_owned();
    for protocol in ["gearman", "faktory", "spiderq", "eventmq"] {
        let path = socket(dir, protocol).display().to_string();
        writeln!(text, "{protocol}.listen = [\"unix:{path}\"]").unwrap();
    }
    for (key, value) in settings {
        writeln!(text, "{key} = {value}").unwrap();
    }
    fixture::config(&text)
}

/// Does the work of `run`, without signals, ticker and disk.
async fn serve(
    config: &Config,
    log: MemoryLog,
    ready: &mpsc::Sender<(Arc<Hub>, Clients)>,
    stop: CancellationToken,
) {
    let table = Box::new(MemoryTable::new());
    let (_, recovered) = open_parts(
        &log,
        table,
        &StoreLimits::default(),
        config.engine_limits(),
        7,
    )
    .unwrap();
    let Recovered {
        engine, journal, ..
    } = recovered;
    let (durability, interval) = match config.durability {
        config::Durability::Sync => (Durability::Durable, None),
        config::Durability::Interval => (Durability::Soon, Some(config.commit_interval.into())),
    };
    let hub = Hub::new(engine, journal, durability, 7)
        .hand_out_after_commit(config.server.hand_out_after_commit);
    let hub = Arc::new(hub);
    let shared = Shared::new(Arc::<Hub>::clone(&hub), Arc::clone(&hub.budget), BOUNDS);
    let (threads, thread_slots) = Threads::start(1, 0, &shared, Polling::Auto).unwrap();
    let acceptor = Arc::new(Acceptor::new(
        windlass_hub::ProtocolNames::default(),
        thread_slots,
        shared,
        PLACES,
    ));
    let pace = Pace {
        interval,
        retry: PATIENCE,
    };
    let committer = Committer::start(Arc::clone(&hub), Box::new(log), None, pace).unwrap();
    hub.first_commit().await;
    protocols::make_queues(&hub, config).unwrap();
    for served in protocols::all(config).unwrap() {
        let bind = |it: &Listen| {
            listen::bind(&it.address, &config.server, &mut Inherited::default()).unwrap()
        };
        for listener in served.endpoint.listen.iter().flat_map(bind) {
            tokio::spawn(listener.accept(
                Arc::clone(&acceptor),
                served.clone(),
                "127.0.0.1:0".parse().unwrap(),
            ));
        }
    }
    ready.send((hub, acceptor.clients())).unwrap();
    stop.cancelled().await;
    acceptor.closed.cancel();
    drop(threads);
    assert!(
        tokio::task::spawn_blocking(move || committer.finish())
            .await
            .unwrap()
    );
}
