//! The daemon from start to stop: open the store, recover, listen, serve, drain.

use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use windlass_config::Error as ConfigError;
use windlass_engine::{Rights, TICK_MS};
use windlass_store::{Guard, Recovered};

use crate::addresses::Addresses;
use crate::binding::Sockets;
use crate::checkpoints::Checkpoints;
use crate::clock;
use crate::commit::{Committer, Pace};
use crate::config::{self, Config, Server};
use crate::connection::{Bounds, Shared};
use crate::control::{Control, EarlySignals, Heeded, Reloader, Signals, Values};
use crate::data::{self, Store};
use crate::dead::DropsTold;
use crate::door::{BoundDoor, Inside};
use crate::export::Exports;
use crate::failure::Failure;
use crate::figures::Figures;
use crate::hub::{Durability, Hub};
use crate::listen::{Acceptor, Bound, SocketFile};
use crate::logging::limited;
use crate::notify;
use crate::patience::Patience;
use crate::places::PlaceLimits;
use crate::protocols::{self, ProtocolNames, Served};
use crate::random::random_seed;
use crate::rates::Allowance;
use crate::reconcile::Desired;
use crate::serving::Threads;
use crate::warnings;

/// How long after a failed commit the committing thread tries the store again.
const STORE_RETRY: Duration = Duration::from_secs(1);

/// The same for a store that other machines reach: it fails over within moments.
const REMOTE_RETRY: Duration = Duration::from_millis(100);

/// The daemon warns when the log has this many times the size at which a checkpoint is due.
const LOG_WARN_MULTIPLE: u64 = 4;

/// How often the main thread checks on commits.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// Runs the daemon until it is asked to stop, then drains it. `reread` reads the configuration again from its source: SIGHUP
/// applies the settings that may change while the daemon runs. `run` calls `ready` once it has its data and its addresses; an
/// error from `ready` ends the daemon.
///
/// # Errors
///
/// The daemon cannot start, or could not write everything to the disk before it stopped.
pub fn run(
    config: &Config,
    reread: impl Fn() -> Result<Config, Failure>,
    ready: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    allow_open_files(config.server.connections_max);
    let values = Values::of(config);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(no_threads)?;
    // Log rotation (SIGHUP) or a status request (SIGTTIN) must not end the daemon while it reads a large journal: it handles the
    // signal afterwards.
    let early = {
        let _inside = runtime.enter();
        EarlySignals::new()?
    };
    // First all addresses: connections that come while the journal is read wait, and a busy address leaves no trace.
    let mut sockets = runtime.block_on(Sockets::bind(config))?;
    let store = if config.ephemeral { Store::in_memory(config)? } else { data::open(config)?.into() };
    if !config.ephemeral {
        let _inside = runtime.enter();
        sockets.bind_private(config);
    }
    let outcome = runtime.block_on(serve((config, values), (store, sockets), early, &reread, ready));
    if outcome.is_err() {
        // A door's thread may wait for the store for ever, and the process ends.
        runtime.shutdown_background();
    }
    outcome
}

fn no_threads(error: io::Error) -> Failure {
    Failure::Runtime(format!("cannot start threads: {error}"))
}

/// Raises the limit on open files so that it allows this many connections, as far as the system permits: each connection is an
/// open file, and many shells allow 1,024 by default. [`run`] calls this. A process that drops privileges first must call it
/// before that.
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
            tracing::warn!(wanted, allowed, "the limit on open files is lower than server.connections_max needs");
        }
    }
}

async fn serve(
    (config, values): (&Config, Values),
    (store, sockets): (Store, Sockets),
    early: EarlySignals,
    reread: &dyn Fn() -> Result<Config, Failure>,
    ready: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let wanted = Desired::of(config)?;
    let (durability, pace) = pace(config);
    let Store { log, checkpointer, recovered: Recovered { engine, journal, .. }, guard } = store;
    let buffers = config.server.buffer_bytes_max.bytes();
    let hub = Hub::new(engine, journal, durability, random_seed()).bounded(buffers).naming(ProtocolNames::of(config));
    let tenure = guard.as_ref().and_then(Guard::tenure);
    let hub = Arc::new(hub.hand_out_after_commit(config.server.hand_out_after_commit).under(tenure));
    let shared = Shared::new(&hub, bounds(config));
    let Server { poll, .. } = config.server;
    let wanted_threads = config.server.threads_or_default();
    let (threads, thread_slots) = Threads::start(wanted_threads, &shared, poll).map_err(no_threads)?;
    let acceptor = Arc::new(Acceptor::new(Arc::clone(&hub), thread_slots, shared, places(config)));
    let Sockets { served, bound, doors } = sockets;
    bound.iter().for_each(|(_, it, _)| acceptor.places.keep_for(it.endpoint.name));
    // Until here a signal to stop ends the process at once: nothing has begun.
    let signals = Signals::new(early)?;
    ready()?;
    let (tail, store_figures) = (log.tail(), checkpointer.figures());
    let committer = Committer::start(Arc::clone(&hub), log, guard, pace).map_err(no_threads)?;
    let log_max = LOG_WARN_MULTIPLE * u64::from(config.store.checkpoint);
    let checkpoints =
        Checkpoints::start(checkpointer, config.store.checkpoint_quiet.into(), log_max).map_err(no_threads)?;
    // The new number of starts must be on the disk before the first lend key is given out: lend keys contain it.
    hub.first_commit().await;
    if durability == Durability::Durable {
        acceptor.thread_slots().commit_in_turns(committer.commits());
    }
    protocols::make_queues(&*hub, config)?;
    // Before anything is due: schedules that were removed from the configuration must not run.
    agree(&hub, wanted)?;
    let ticker = tokio::spawn(tick(Arc::clone(&hub)));
    let mut addresses = accept_all(bound, &acceptor);
    let stop = CancellationToken::new();
    doors.iter().for_each(|door| door.bound().iter().for_each(|bound| drop(addresses.note(door.name(), bound))));
    let (control, requests) = Control::new();
    let figures = Figures::new((&hub, acceptor.traffic()), committer.times(), (store_figures, tail), &served);
    let _socket_files =
        open_doors(doors, config, (&served, &figures, &checkpoints.exports()), &acceptor, (&control, &stop))?;
    if config.ephemeral {
        addresses.print()?;
    }
    tracing::info!("ready");
    notify::ready();
    let reloader = Reloader::new((config, values), &served, &acceptor, reread);
    let mut heeded = Heeded { signals, control, requests, acceptor: &acceptor, reloader };
    let outcome = tokio::select! {
        why = heeded.heed() => {
            tracing::info!(why, "stopping");
            notify::stopping();
            Ok(())
        }
        why = watch(&committer, &hub, pace) => Err(Failure::Runtime(why.to_owned())),
        why = deposed(&hub) => Err(Failure::Deposed(why)),
    };
    acceptor.closed.cancel();
    stop.cancel();
    if outcome.is_err() {
        // They may wait for the store for ever, and the process ends.
        std::mem::forget(threads);
        return outcome;
    }
    close(&acceptor, heeded.reloader.config().server.shutdown_timeout.into()).await;
    ticker.abort();
    if !hub.may_act() {
        std::mem::forget(threads);
        return Err(held_up(&hub));
    }
    drop(threads);
    checkpoints.finish();
    limited::finish();
    // The last commit blocks; no other work is left on this thread.
    match tokio::task::spawn_blocking(move || committer.finish()).await {
        Ok(true) => {
            tracing::info!("stopped: everything is on the disk");
            Ok(())
        }
        Ok(false) | Err(_) => Err(Failure::Runtime("the last commit did not reach the store".to_owned())),
    }
}

/// Accepts connections of the protocols from now on. Returns the addresses.
fn accept_all(bound: Vec<(Bound, Served, Rights)>, acceptor: &Arc<Acceptor>) -> Addresses {
    let mut addresses = Addresses::default();
    for (listener, it, rights) in bound {
        let protocol = it.endpoint.name;
        let address = addresses.note(protocol, &listener);
        let tls = it.tls.is_some() && matches!(listener, Bound::Tcp(_));
        tracing::info!(protocol, %address, tls, "listening");
        if let Some(address) = listener.open_to_all(&it.endpoint) {
            warnings::open_to_all(protocol, &address);
        }
        tokio::spawn(listener.accept(Arc::clone(acceptor), it, rights));
    }
    addresses
}

/// Opens the doors. The files of their Unix sockets live as long as the result.
fn open_doors(
    doors: Vec<BoundDoor>,
    config: &Config,
    (served, figures, exports): (&[Served], &Figures, &Exports),
    acceptor: &Acceptor,
    (control, stop): (&Control, &CancellationToken),
) -> Result<Vec<SocketFile>, Failure> {
    let mut files = Vec::new();
    for door in doors {
        let inside = Inside {
            clients: acceptor.clients(),
            daemon: protocols::daemon(config, door.name())?,
            pages: served.iter().flat_map(|it| it.endpoint.pages.iter().cloned()).collect(),
            control: control.clone(),
            figures: figures.clone(),
            exports: exports.clone(),
            stop: stop.clone(),
        };
        files.extend(door.open(inside, acceptor).map_err(no_threads)?);
    }
    Ok(files)
}

/// The engine's refusal of a configured entry is an error in the configuration.
fn agree(hub: &Hub, wanted: Desired) -> Result<(), Failure> {
    for reconcile in wanted.agree(hub) {
        if let Some((name, why)) = reconcile.refused.first() {
            let reason = format!("{name}: {why}");
            return Err(ConfigError::Senseless { key: reconcile.key, reason }.into());
        }
        reconcile.report();
    }
    Ok(())
}

/// Accepts no more connections. Open ones send what they still owe and close.
async fn close(acceptor: &Acceptor, deadline: Duration) {
    acceptor.hub.stop();
    acceptor.tasks.close();
    if tokio::time::timeout(deadline, acceptor.tasks.wait()).await.is_err() {
        tracing::warn!(open = acceptor.tasks.len(), "connections are still open after server.shutdown_timeout");
    }
}

/// Wakes the engine when something is due, and often enough to notice that a clock was set or that the daemon was suspended.
///
/// Deadlines are met a few milliseconds late, several at a time: a thousand workers a second whose wait ends would otherwise wake
/// this thread and their own a thousand times.
async fn tick(hub: Arc<Hub>) {
    const EVERY: Duration = Duration::from_millis(TICK_MS);
    const LATE: Duration = Duration::from_millis(4);
    loop {
        let due = hub.tick().map_or(EVERY, clock::until);
        let due = if due.is_zero() { due } else { due.clamp(LATE, EVERY) };
        tokio::select! {
            () = hub.deadline_moved.notified() => {}
            () = tokio::time::sleep(due) => {}
        }
        // The due work may be one part of something long: other tasks come first.
        tokio::task::yield_now().await;
    }
}

/// Returns only if another daemon has taken the store over.
async fn deposed(hub: &Hub) -> String {
    const LOOK_EVERY: Duration = Duration::from_millis(50);
    if !hub.has_tenure() {
        std::future::pending::<()>().await;
    }
    loop {
        if let Some(error) = hub.deposed() {
            return error.to_string();
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Why a daemon that was asked to stop cannot stop in order.
fn held_up(hub: &Hub) -> Failure {
    match hub.deposed() {
        Some(error) => Failure::Deposed(error.to_string()),
        None => Failure::Runtime("stopped while the lease of the store was not renewed".to_owned()),
    }
}

/// Returns only if the daemon must die, with the reason.
async fn watch(committer: &Committer, hub: &Hub, pace: Pace) -> &'static str {
    let mut drops = DropsTold::default();
    loop {
        tokio::time::sleep(WATCH_EVERY).await;
        if let Some(why) = committer.watch(pace) {
            return why;
        }
        drops.tell(hub.with_journal(|engine, _| engine.dead_dropped()));
        notify::watchdog();
        limited::flush();
        give_memory_back();
    }
}

/// The allocator keeps freed memory for a second, and returns it to the system when a large block is freed after that. An idle
/// daemon frees no large blocks, so this function does.
fn give_memory_back() {
    const LARGE: usize = 1 << 20;
    drop(black_box(Vec::<u8>::with_capacity(LARGE)));
}

fn pace(config: &Config) -> (Durability, Pace) {
    let (durability, interval) = match config.durability {
        config::Durability::Sync => (Durability::Durable, None),
        config::Durability::Interval => (Durability::Soon, Some(config.commit_interval.into())),
    };
    let pace = Pace {
        interval,
        retry: if config.remote.is_some() { REMOTE_RETRY } else { STORE_RETRY },
        timeout: config.store.commit_timeout.into(),
        abort: config.store.commit_abort.into(),
    };
    (durability, pace)
}

/// The limits of new connections.
pub(crate) fn bounds(config: &Config) -> Bounds {
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

/// How many connections there may be.
pub(crate) fn places(config: &Config) -> PlaceLimits {
    PlaceLimits {
        connections_max: config.server.connections_max,
        reserved: config.server.connections_reserved,
        per_address_max: config.server.connections_per_address_max,
        rate: Allowance::per_minute(config.server.connections_per_address_per_minute),
        failures: Allowance::per_minute(config.server.failed_logins_per_address_per_minute),
    }
}
