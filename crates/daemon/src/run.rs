//! The daemon from start to stop: open the store, recover, listen, serve, drain.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio_util::sync::CancellationToken;
use windlass_config::Failure;
use windlass_session::Listen;

use crate::addresses::Addresses;
use crate::admission::{Shares, allow_open_files, bounds, places};
use crate::binding::{Sockets, accept};

use crate::cluster;
use crate::config::{Config, Durability};
use crate::control::{self, Control, EarlySignals, MainEvents, Reloader, Signals, Values};
use crate::data::{self, Store};
use crate::desired::Desired;
use crate::export::Exports;
use crate::figures::Figures;
use crate::history;
use crate::masks::Masks;
use crate::notify;
use crate::operator_port::{BoundPort, Connects, Inside, Renewable};
use crate::protocols;
use crate::role::{Parts, Place, Roles};
use crate::warnings;
use windlass_hub::Budget;
use windlass_net::{Acceptor, Bound, SocketFile};
use windlass_net::{Served, Shared, Threads};

/// Runs the daemon until it is told to stop, then drains it. `reread` reads the configuration again
/// from its source; SIGHUP applies the settings that can be reloaded. `ready` is called once the
/// daemon has its data and its addresses; if it returns an error, the daemon exits.
///
/// # Errors
///
/// The daemon cannot start, or could not write everything to disk before it stopped.
pub fn run(
    config: &Config,
    reread: impl Fn() -> Result<Config, Failure>,
    ready: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let values = Values::of(config);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::no_threads)?;
    // Log rotation (SIGHUP) or a status request (SIGTTIN) must not end the daemon while it reads a large journal: it
    // handles the signal afterwards.
    let early = {
        let _inside = runtime.enter();
        EarlySignals::new()?
    };
    allow_open_files(config.server.connections_max);
    // Addresses come first, so that early connections wait while the journal is read, and a busy
    // address has no side effects.
    let mut sockets = runtime.block_on(Sockets::bind(config))?;
    let place = if config.ephemeral {
        Place::Alone(Box::new(Store::in_memory(config)?))
    } else if config.cluster.is_on() {
        data::make_directory(&config.data_dir)?;
        Place::Cluster(cluster::bind(config)?)
    } else {
        Place::Alone(Box::new(data::open(config)?.into()))
    };
    if !config.ephemeral {
        let _inside = runtime.enter();
        sockets.bind_private(config);
    }
    warnings::exposed(config);
    let outcome = runtime.block_on(serve(config, values, place, sockets, early, &reread, ready));
    if outcome.is_err() {
        // The thread of a port may be blocked on the store forever, and the process exits anyway.
        runtime.shutdown_background();
    }
    outcome
}

/// Starts the threads that serve connections.
fn start_threads(config: &Config, shared: Shared) -> Result<(Threads, Arc<Acceptor>), Failure> {
    let server = &config.server;
    let (threads, thread_slots) = Threads::start(
        server.threads_or_default(),
        server.helpers(config.durability == Durability::Sync),
        &shared,
        server.poll,
    )
    .map_err(Failure::no_threads)?;
    Ok((
        threads,
        Arc::new(Acceptor::new(
            protocols::names(config),
            thread_slots,
            shared,
            places(config),
        )),
    ))
}

async fn serve(
    config: &Config,
    values: Values,
    place: Place,
    sockets: Sockets,
    early: EarlySignals,
    reread: &dyn Fn() -> Result<Config, Failure>,
    ready: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let wanted = Desired::of(config)?;
    let in_force = Arc::new(ArcSwap::from_pointee(config.clone()));
    let masks = Masks::new(Arc::clone(&in_force));
    let budget = Arc::new(Budget::new(config.server.buffer_bytes_max.bytes()));
    let roles = Roles::new(place, config, &budget, &sockets.served);
    let shared = Shared::new(roles.broker(), budget, bounds(config));
    let (threads, acceptor) = start_threads(config, shared)?;
    let Sockets {
        served,
        bound,
        ports,
        late,
    } = sockets;
    // Up to here a stop signal kills the process immediately, because nothing has begun.
    let signals = Signals::new(early)?;
    ready()?;
    let (control, (requests, yields)) = Control::new();
    control.set_places(&config.places);
    let (exports, figures) = (
        Exports::of(&config.data_dir),
        Figures::new(&acceptor, &served),
    );
    let parts = Parts {
        acceptor: &acceptor,
        figures: &figures,
        exports: &exports,
    };
    let mut roles = roles
        .start(config, &in_force, wanted, parts, control.view(), yields)
        .await?;
    let mut addresses = accept_all(bound, &acceptor);
    let stop = CancellationToken::new();
    ports.iter().for_each(|port| {
        port.bound()
            .iter()
            .for_each(|bound| addresses.note(port.name(), bound))
    });
    let (_socket_files, ports) =
        open_ports(ports, config, &served, parts, &control, &masks, &stop)?;
    let entrances: Vec<_> = ports.iter().map(|port| port.entrance().clone()).collect();
    for late in late {
        tokio::spawn(late.serve(
            config.server.clone(),
            Arc::clone(&acceptor),
            entrances.clone(),
        ));
    }
    announce(&addresses, config)?;
    notify::ready();
    let reloader = Reloader::new(
        config, &in_force, values, &served, &ports, &acceptor, reread,
    );
    let mut events = MainEvents {
        signals,
        control,
        requests,
        acceptor: &acceptor,
        reloader,
    };
    let outcome = tokio::select! {
        why = events.next_stop() => {
            tracing::info!(why, "stopping");
            notify::stopping();
            Ok(())
        }
        failure = roles.watch() => Err(failure),
    };
    if outcome.is_ok() {
        tokio::select! {
            () = roles.hand_over() => {}
            // With a second request the operator asks not to wait.
            _ = events.next_stop() => {}
        }
    }
    acceptor.thread_slots().pulse().end();
    acceptor.closed.cancel();
    if outcome.is_ok() {
        control::await_last_reports(&acceptor).await;
    }
    stop.cancel();
    if outcome.is_err() {
        // These threads may be blocked on the store forever, and the process exits anyway.
        std::mem::forget(threads);
        return outcome;
    }
    close(
        &acceptor,
        events.reloader.config().server.shutdown_timeout.into(),
    )
    .await;
    if let Err(failure) = roles.stop_time() {
        std::mem::forget(threads);
        return Err(failure);
    }
    drop(threads);
    roles.finish().await
}

/// Prints the addresses for the person or the script that has started the daemon.
fn announce(addresses: &Addresses, config: &Config) -> Result<(), Failure> {
    if config.ephemeral {
        addresses.print()?;
    } else {
        let database = config.remote.as_ref().map(|remote| remote.name());
        addresses.welcome(&database.map_or_else(
            || config.data_dir.display().to_string(),
            |name| name.to_string(),
        ));
    }
    match addresses.pages() {
        Some(pages) => tracing::info!(pages, "ready"),
        None => tracing::info!("ready"),
    }
    Ok(())
}

/// Starts accepting connections of the protocols. Returns the addresses.
fn accept_all(bound: Vec<(Bound, Served, Listen)>, acceptor: &Arc<Acceptor>) -> Addresses {
    let mut addresses = Addresses::default();
    for (listener, it, terms) in bound {
        addresses.note(it.endpoint.name, &listener);
        accept(listener, it, terms, acceptor);
    }
    addresses
}

/// Opens the ports. The files of their Unix sockets live as long as the first part of the result.
fn open_ports(
    ports: Vec<BoundPort>,
    config: &Config,
    served: &[Served],
    Parts {
        acceptor,
        figures,
        exports,
    }: Parts<'_>,
    control: &Control,
    masks: &Masks,
    stop: &CancellationToken,
) -> Result<(Vec<SocketFile>, Vec<Renewable>), Failure> {
    let (mut files, mut opened) = (Vec::new(), Vec::new());
    for port in ports {
        let inside = Inside {
            clients: acceptor.clients(),
            daemon: protocols::daemon(config, port.name())?,
            protocols: config.protocols.clone(),
            pages: served
                .iter()
                .flat_map(|it| it.endpoint.pages.iter().cloned())
                .collect(),
            control: control.clone(),
            figures: figures.clone(),
            exports: exports.clone(),
            history: history::book(config),
            masks: masks.clone(),
            pulse: Arc::clone(acceptor.thread_slots().pulse()),
            connects: Connects {
                places: Arc::clone(&acceptor.places),
                keep_alive: acceptor.keep_alive.clone(),
                most: Shares::now().operators,
            },
            stop: stop.clone(),
        };
        let (own, port) = port.open(inside, acceptor).map_err(Failure::no_threads)?;
        files.extend(own);
        opened.push(port);
    }
    Ok((files, opened))
}

/// Closes the listeners. Open connections send their pending output and close.
async fn close(acceptor: &Acceptor, deadline: Duration) {
    acceptor.broker().stop();
    acceptor.tasks.close();
    if tokio::time::timeout(deadline, acceptor.tasks.wait())
        .await
        .is_err()
    {
        tracing::warn!(
            open = acceptor.tasks.len(),
            "connections are still open after server.shutdown_timeout"
        );
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use windlass_engine::{Engine, Limits};
    use windlass_store::Journal;

    use super::*;
    use crate::config::fixture;
    use windlass_hub::testing::captured;
    use windlass_hub::{Durability, Hub};
    use windlass_net::testing::Files;
    use windlass_net::testing::acceptor;

    #[test]
    fn the_limit_on_open_files_is_raised_for_connections_and_never_lowered() {
        let open_files = || getrlimit(Resource::Nofile);
        let before = open_files();
        let enough = before.current.unwrap_or(1 << 20);
        let few = enough - 100;
        setrlimit(
            Resource::Nofile,
            Rlimit {
                current: Some(few),
                ..before
            },
        )
        .unwrap();
        allow_open_files(0);
        assert_eq!(open_files().current, Some(few));
        // The daemon needs 192 descriptors in addition, and operators an eighth of the connections.
        allow_open_files(usize::try_from((enough - 192) / 8 * 7).unwrap());
        assert!(
            open_files()
                .current
                .is_some_and(|now| (few + 1..=enough).contains(&now)),
            "{:?}",
            open_files()
        );
        setrlimit(Resource::Nofile, before).unwrap();
    }

    #[test]
    fn no_timeout_means_that_connections_may_be_idle_for_ever() {
        for (text, expected) in [("0", None), ("\"7s\"", Some(Duration::from_secs(7)))] {
            let config = fixture::config(&format!("server.idle_timeout = {text}"));
            assert_eq!(bounds(&config).idle_max, expected, "{text}");
        }
    }

    #[tokio::test]
    async fn addresses_are_logged_with_their_encryption() {
        let (dir, files) = (tempfile::tempdir().unwrap(), Files::new(2040));
        let unix = dir.path().join("gearman");
        let mut config = fixture::config(&format!(
            "faktory.listen = [\"127.0.0.1:0\"]\ngearman.listen = [\"127.0.0.1:0\", \"unix:{}\"]\n\
             [gearman.tls]\n{}",
            unix.display(),
            files.toml()
        ));
        config
            .protocols
            .retain(|protocol| ["faktory", "gearman"].contains(&protocol.name()));
        let bound = Sockets::bind(&config).await.unwrap().bound;
        let hub = Arc::new(Hub::new(
            Engine::new(Limits::default(), 7),
            Journal::new(),
            Durability::Soon,
            7,
        ));
        let said = captured(|| drop(accept_all(bound, &acceptor(&hub))));
        for (protocol, place, tls) in [
            ("faktory", "127.0.0.1:", false),
            ("gearman", "127.0.0.1:", true),
            ("gearman", "/gearman", false),
        ] {
            let protocol = format!("protocol=\"{protocol}\"");
            let line = said
                .lines()
                .find(|line| line.contains(&protocol) && line.contains(place))
                .unwrap();
            assert!(line.ends_with(&format!("tls={tls}")), "{line}");
        }
    }
}
