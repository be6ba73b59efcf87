//! The daemon from start to stop: open the store, recover, listen, serve, drain.

use std::fmt::Display;
use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use windlass_engine::TICK_MS;
use windlass_store::{CheckpointLimits, Error as StoreError, OpenError, Opened, Recovered, StoreConfig};

use crate::agreement::Wanted;
use crate::checkpoints::Checkpoints;
use crate::clock;
use crate::commit::{Committer, Pace};
use crate::config::{self, Config, Durability, ListenAddress};
use crate::connection::Bounds;
use crate::control::{self, EarlySignals, Signals};
use crate::dead::DropsTold;
use crate::failure::Failure;
use crate::hub::{Hub, Promise};
use crate::listen::{self, Bound, Door, Protocol};
use crate::logging::limited;
use crate::notices;
use crate::patience::Patience;
use crate::places::PlaceLimits;
use crate::protocols;
use crate::threads::Threads;

/// How long after a failed commit the store is tried again.
const STORE_RETRY: Duration = Duration::from_secs(1);

/// How often what is in use is tried again.
const TRY_EVERY: Duration = Duration::from_millis(100);

/// A log of so many times the size at which a checkpoint is made is worth a warning.
const LOG_WARN_MULTIPLE: u64 = 4;

/// How often the committing thread is looked after.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// Runs the daemon until it is told to stop, and drains it. `reread` makes the configuration anew from where it came from:
/// what can be changed while the daemon runs is taken from that on SIGHUP. `ready` is called once the daemon has its data
/// and its addresses, and can end it again.
///
/// # Errors
///
/// Whatever keeps it from starting, or from having everything on the disk when it stops.
pub fn run(
    config: &Config,
    reread: impl Fn() -> Result<Config, Failure>,
    ready: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    allow_open_files(config.server.connections_max);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(no_threads)?;
    // Whoever rotates logs or asks what goes on while a large journal is read must not end the daemon: it is heeded after that.
    let early = {
        let _inside = runtime.enter();
        EarlySignals::new()?
    };
    let opened = open(config)?;
    runtime.block_on(serve(config, opened, early, &reread, ready))
}

fn no_threads(error: io::Error) -> Failure {
    Failure::Runtime(format!("cannot start threads: {error}"))
}

/// Raises the limit on open files so far that it holds so many connections, if that is allowed: each is an open file, and
/// many a shell allows no more than 1,024 unless asked. [`run`] does so; whoever gives rights up before does it earlier.
pub fn allow_open_files(connections_max: usize) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    const OTHERS: u64 = 256;
    let wanted = connections_max as u64 + OTHERS;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < wanted) {
        // Root may go beyond the maximum.
        let beyond = Rlimit { current: Some(wanted), maximum: maximum.map(|maximum| maximum.max(wanted)) };
        if setrlimit(Resource::Nofile, beyond).is_ok() {
            return;
        }
        let allowed = maximum.map_or(wanted, |maximum| maximum.min(wanted));
        let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(allowed), maximum }).is_ok();
        if !raised || allowed < wanted {
            tracing::warn!(wanted, allowed, "fewer files may be open than server.connections_max needs");
        }
    }
}

/// How the configuration sets the store up.
pub(crate) fn store_config(config: &Config) -> StoreConfig {
    let limits = CheckpointLimits::default();
    let (log_bytes, table_floor_bytes) = (config.store.checkpoint.into(), config.store.compact_floor.into());
    let keep_bytes = limits.keep_bytes.min(log_bytes / 4);
    let checkpoints = CheckpointLimits { log_bytes, table_floor_bytes, keep_bytes, ..limits };
    StoreConfig { cache_bytes: config.store.cache.into(), checkpoints, ..StoreConfig::new(&config.data_dir) }
}

fn try_open(config: &Config) -> Result<Opened, OpenError> {
    let started = Instant::now();
    let opened = windlass_store::open(&store_config(config), config.engine_limits(), random_seed())?;
    clock::start(&opened.recovered.engine.head().clock);
    let (ms, report) = (started.elapsed().as_millis(), &opened.recovered.report);
    let (jobs, schedules, clean) = (report.jobs, report.schedules, report.clean);
    tracing::info!(jobs, schedules, clean, ms, data_dir = %config.data_dir.display(), "opened");
    Ok(opened)
}

/// Opens the data directory, and waits for another process to let go of it if it may.
pub(crate) fn open(config: &Config) -> Result<Opened, Failure> {
    let mut trying = Trying::new(config);
    loop {
        match try_open(config) {
            Err(OpenError::Store(error @ StoreError::InUse { .. })) if trying.goes_on(&error) => {
                std::thread::sleep(TRY_EVERY);
            }
            outcome => return outcome.map_err(|error| Failure::store(&config.data_dir, &error)),
        }
    }
}

/// Binds everything an address stands for, and waits for another process to let go of it if it may.
async fn bind_in_time(listen: &ListenAddress, config: &Config) -> Result<Vec<Bound>, Failure> {
    let mut trying = Trying::new(config);
    loop {
        match listen::bind(listen, &config.server) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && trying.goes_on(&listen) => {
                tokio::time::sleep(TRY_EVERY).await;
            }
            outcome => return outcome.map_err(|error| Failure::listen(listen, &error)),
        }
    }
}

/// How long something that is in use is tried again.
struct Trying {
    timeout: Duration,
    since: Option<Instant>,
}

impl Trying {
    fn new(config: &Config) -> Self {
        Self { timeout: config.server.in_use_timeout.into(), since: None }
    }

    /// Whether to try again; the first time, that is told.
    fn goes_on(&mut self, what: &dyn Display) -> bool {
        let since = *self.since.get_or_insert_with(|| {
            if !self.timeout.is_zero() {
                tracing::warn!(%what, seconds = self.timeout.as_secs_f64(), "in use: tried again for a while");
            }
            Instant::now()
        });
        since.elapsed() < self.timeout
    }
}

async fn serve(
    config: &Config,
    opened: Opened,
    early: EarlySignals,
    reread: &dyn Fn() -> Result<Config, Failure>,
    ready: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let wanted = Wanted::of(config)?;
    let (promise, pace) = pace(config);
    let Opened { log, checkpointer, recovered: Recovered { engine, journal, .. }, guard } = opened;
    let buffers = config.server.buffer_bytes_max.bytes();
    let hub = Hub::new(engine, journal, promise, random_seed()).bounded(buffers);
    let hub = Arc::new(hub.hand_out_after_commit(config.server.hand_out_after_commit));
    let (threads, seating) = Threads::start(config.server.threads_or_default()).map_err(no_threads)?;
    let door = Arc::new(Door::new(Arc::clone(&hub), seating, bounds(config), places(config), buffers));
    // Every address is bound before anything is served or committed: a busy one leaves no trace.
    let served = protocols::all(config)?;
    let mut bound: Vec<(Bound, Protocol)> = Vec::new();
    for (protocol, addresses) in &served {
        for listen in *addresses {
            door.places.keep_for(protocol.name);
            let listeners = bind_in_time(listen, config).await?;
            bound.extend(listeners.into_iter().map(|listener| (listener, protocol.clone())));
        }
    }
    // Until here a signal to stop ends the process at once: nothing has begun.
    let mut signals = Signals::new(early)?;
    ready()?;
    let committer = Committer::start(Arc::clone(&hub), log, Some(guard), pace).map_err(no_threads)?;
    let log_max = LOG_WARN_MULTIPLE * u64::from(config.store.checkpoint);
    let checkpoints =
        Checkpoints::start(checkpointer, config.store.checkpoint_quiet.into(), log_max).map_err(no_threads)?;
    // That the daemon has been started once more must be known before a lend key is given out: it is part of them.
    hub.first_commit().await;
    if promise == Promise::Durable {
        door.seating().commit_in_turns(committer.commits());
    }
    protocols::make_queues(&hub, config)?;
    // Before anything is due: what is no longer wanted does not run.
    agree(&hub, wanted)?;
    let ticker = tokio::spawn(tick(Arc::clone(&hub)));
    for (listener, protocol) in bound {
        let address = listener.address().map_or_else(|_| "?".to_owned(), |address| address.to_string());
        let tls = protocol.tls.is_some() && matches!(listener, Bound::Tcp(_));
        tracing::info!(protocol = protocol.name, %address, tls, "listening");
        if let Some(address) = listener.open_to_all(&protocol) {
            notices::open_to_all(protocol.name, &address);
        }
        tokio::spawn(listener.accept(Arc::clone(&door), protocol));
    }
    tracing::info!("ready");
    let reload = || control::reload(&served, &hub, reread);
    let outcome = tokio::select! {
        why = control::heed(&mut signals, &door, &reload) => {
            tracing::info!(why, "stopping");
            Ok(())
        }
        why = watch(&committer, &hub, pace) => Err(Failure::Runtime(why.to_owned())),
    };
    door.stop.cancel();
    if outcome.is_ok() {
        drain(&door, config.server.shutdown_timeout.into()).await;
    }
    ticker.abort();
    outcome?;
    drop(threads);
    checkpoints.finish();
    limited::finish();
    // The last commit blocks; nothing else is left to run.
    match tokio::task::spawn_blocking(move || committer.finish()).await {
        Ok(true) => {
            tracing::info!("stopped: everything is on the disk");
            Ok(())
        }
        Ok(false) | Err(_) => Err(Failure::Runtime("the last commit did not reach the store".to_owned())),
    }
}

/// What is configured and cannot be had is a mistake in the configuration.
fn agree(hub: &Hub, wanted: Wanted) -> Result<(), Failure> {
    for agreement in wanted.agree(hub) {
        if let Some((name, why)) = agreement.refused.first() {
            let reason = format!("{name}: {why}");
            return Err(config::Error::Senseless { key: agreement.key, reason }.into());
        }
        agreement.report();
    }
    Ok(())
}

/// No more is accepted; connections say what they still owe and close.
async fn drain(door: &Door, deadline: Duration) {
    door.hub.stop();
    door.tasks.close();
    if tokio::time::timeout(deadline, door.tasks.wait()).await.is_err() {
        tracing::warn!(open = door.tasks.len(), "connections were still open when the time to stop was up");
    }
}

/// Wakes the engine when something is due, and often enough to see that a clock was set or that the daemon stood still.
async fn tick(hub: Arc<Hub>) {
    const EVERY: Duration = Duration::from_millis(TICK_MS);
    loop {
        let due = hub.tick().map_or(EVERY, |at| clock::until(at).min(EVERY));
        tokio::select! {
            () = hub.deadline_moved.notified() => {}
            () = tokio::time::sleep(due) => {}
        }
        // What is due at once may be a part of something long: others come first.
        tokio::task::yield_now().await;
    }
}

/// Comes back only if the daemon has to die, and says what of.
async fn watch(committer: &Committer, hub: &Hub, pace: Pace) -> &'static str {
    let mut drops = DropsTold::default();
    loop {
        tokio::time::sleep(WATCH_EVERY).await;
        if let Some(why) = committer.watch(pace) {
            return why;
        }
        drops.tell(hub.with_journal(|engine, _| engine.dead_dropped()));
        limited::flush();
        give_memory_back();
    }
}

/// The allocator holds on to what is freed for a second, and gives it back when a large block is freed after that. A
/// daemon that has gone quiet frees none: so this one does.
fn give_memory_back() {
    const LARGE: usize = 1 << 20;
    drop(black_box(Vec::<u8>::with_capacity(LARGE)));
}

fn pace(config: &Config) -> (Promise, Pace) {
    let (promise, interval) = match config.durability {
        Durability::Sync => (Promise::Durable, None),
        Durability::Interval => (Promise::Soon, Some(config.commit_interval.into())),
    };
    let pace = Pace {
        interval,
        retry: STORE_RETRY,
        timeout: config.store.commit_timeout.into(),
        abort: config.store.commit_abort.into(),
    };
    (promise, pace)
}

fn bounds(config: &Config) -> Bounds {
    let idle: Duration = config.server.idle_timeout.into();
    Bounds {
        read_bytes_max: config.server.read_bytes_max.bytes(),
        outbound_bytes_max: config.server.outbound_bytes_max.bytes(),
        unacknowledged_max: config.server.unacknowledged_max,
        idle_max: (!idle.is_zero()).then_some(idle),
        patience: Patience {
            timeout_ms: config.server.message_timeout.as_ms(),
            bytes_per_s: config.server.message_rate_min.0,
        },
    }
}

fn places(config: &Config) -> PlaceLimits {
    PlaceLimits {
        connections_max: config.server.connections_max,
        reserved: config.server.connections_reserved,
        per_address_max: config.server.connections_per_address_max,
    }
}

/// A seed nobody outside can guess: for hash tables and dice.
pub(crate) fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}
