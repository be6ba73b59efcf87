//! Reloads the configuration: each changed key is either applied immediately or needs a restart.
//!
//! All new values are validated, and everything that can fail is created from them, before the
//! first one is applied, so that an invalid configuration changes nothing. Limits of connections
//! apply to new connections.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use arc_swap::ArcSwap;
use windlass_config::{Error, Failure, Period, Tls};
use windlass_session::protocol::{Protocol, SessionFactory};

use super::requests::Changes;
use crate::admission::{allow_open_files, bounds, places};
use crate::config::{Config, History, Queue, Server};
use crate::desired::{self, Desired};
use crate::history;
use crate::logging;
use crate::operator_port::Renewable;
use crate::protocols;
use crate::warnings::is_password_file;
use windlass_net::{Acceptor, Served, Terms};

/// Keys of `[server]` that can be reloaded.
const SERVER: &str = "connections_max connections_reserved connections_per_address_max connections_per_address_per_minute \
                      failed_logins_per_address_per_minute buffer_bytes_max outbound_bytes_max read_bytes_max \
                      unacknowledged_max idle_timeout message_timeout message_rate_min handshake_timeout drain_timeout \
                      shutdown_timeout return_grace in_use_timeout keepalive_idle keepalive_interval keepalive_count";

/// Every key with its value. The value of a key that names a file includes the contents of the
/// file.
pub(crate) struct Values(BTreeMap<String, String>);

/// The current configuration, and the means to load the next one.
pub(crate) struct Reloader<'a> {
    current: Config,
    /// The configuration as last read, for the engine room.
    in_force: &'a ArcSwap<Config>,
    /// The current values.
    values: Values,
    served: &'a [Served],
    ports: &'a [Renewable],
    acceptor: &'a Acceptor,
    reread: &'a dyn Fn() -> Result<Config, Failure>,
}

/// A validated configuration, ready to be applied.
struct Prepared {
    config: Config,
    wanted: Desired,
    terms: Vec<Option<Terms>>,
    sessions: Vec<Option<SessionFactory>>,
}

impl<'a> Reloader<'a> {
    /// `config` is the configuration at startup, with its `values`.
    pub(crate) fn new(
        config: &Config,
        in_force: &'a ArcSwap<Config>,
        values: Values,
        served: &'a [Served],
        ports: &'a [Renewable],
        acceptor: &'a Acceptor,
        reread: &'a dyn Fn() -> Result<Config, Failure>,
    ) -> Self {
        Self {
            current: config.clone(),
            in_force,
            values,
            served,
            ports,
            acceptor,
            reread,
        }
    }

    /// The current configuration, as far as it can be reloaded.
    pub(crate) const fn config(&self) -> &Config {
        &self.current
    }

    /// Reopens the log file and reloads certificates and the configuration, so that log rotation
    /// and renewed certificates need no restart. Errors do not stop the daemon.
    ///
    /// # Errors
    ///
    /// The configuration is invalid, and nothing has changed.
    pub(crate) async fn reload(&mut self, by: &str) -> Result<Changes, Failure> {
        match logging::reopen() {
            Ok(()) => tracing::info!("{by}"),
            Err(error) => tracing::error!("log.file: {error}; still writing to the old file"),
        }
        let prepared = (self.reread)().and_then(|new| self.prepare(new));
        let prepared = prepared
            .inspect_err(|error| tracing::error!("{error}; keeping the current configuration"))?;
        Ok(self.apply(prepared).await)
    }

    /// Creates everything of a configuration that can fail.
    fn prepare(&self, config: Config) -> Result<Prepared, Failure> {
        // How long rows are kept needs a restart: whether there is a thread that writes them depends on it.
        let kept = History {
            keep: self.current.history.keep,
            ..config.history
        };
        let config = Config {
            history: kept,
            ..config
        };
        logging::filter(&config.log.level).map_err(|error| Error::senseless("log.level", error))?;
        let wanted = Desired::of(&config)?;
        // New aliases and failure patterns of queues need a restart.
        let named = Config {
            queues: self.current.queues.clone(),
            ..config.clone()
        };
        let (mut terms, mut sessions) = (Vec::new(), Vec::new());
        for Served { endpoint, tls, .. } in self.served {
            let protocol = config
                .protocols
                .iter()
                .find(|it| endpoint.name.split('-').next() == Some(it.name()));
            let files = protocol
                .and_then(|it| it.tls())
                .filter(|files| tls.is_some() && files.is_on());
            let of = |files| {
                let handshake_max = config.server.handshake_timeout.into();
                Terms::new(files, handshake_max, config.certificate_names())
            };
            let reason = |reason| Error::Tls {
                protocol: endpoint.name,
                reason,
            };
            terms.push(files.map(of).transpose().map_err(reason)?);
            let renewed = |it: &Arc<dyn Protocol>| {
                it.renewed(&protocols::daemon(&named, it.name())?, endpoint)
            };
            sessions.push(protocol.map(renewed).transpose()?.flatten());
        }
        Ok(Prepared {
            config,
            wanted,
            terms,
            sessions,
        })
    }

    async fn apply(
        &mut self,
        Prepared {
            config,
            wanted,
            terms,
            sessions,
        }: Prepared,
    ) -> Changes {
        let mut new = Values::of(&config);
        let mut changes = self.changes(&new, &config, &sessions);
        // Already validated.
        let _ = logging::set_level(&config.log.level);
        allow_open_files(config.server.connections_max);
        self.acceptor.limit(bounds(&config), places(&config));
        self.acceptor
            .budget()
            .limit(config.server.buffer_bytes_max.bytes());
        if keepalive(&config.server) != keepalive(&self.current.server) {
            self.acceptor.keep_alive.renew(&config.server);
        }
        let before = self.in_force.swap(Arc::new(config.clone()));
        // Limits and rules are those of the daemon with the engine.
        if let Some(hub) = self.acceptor.hub() {
            let wanted = match Desired::of(&before) {
                Ok(before) => wanted.after(before),
                Err(_) => wanted,
            };
            changes.taken_back = desired::apply(&config, wanted, &hub).await;
        }
        for ((served, terms), sessions) in self.served.iter().zip(terms).zip(sessions) {
            if let Some((tls, terms)) = served.tls.as_ref().zip(terms) {
                tls.set(terms);
                tracing::info!(protocol = served.endpoint.name, "certificates reloaded");
            }
            if let Some(sessions) = sessions {
                served.sessions.store(Arc::new(sessions));
            }
        }
        for section in &config.ports {
            self.ports.iter().for_each(|port| port.renew(&**section));
        }
        let late = changed_late(&self.current.queues, &config.queues);
        if !late.is_empty() {
            let queues = late.join(", ");
            tracing::warn!("queues {queues}: changed aliases and failure_values need a restart");
        }
        changes
            .applied
            .iter()
            .for_each(|key| tracing::info!(key, "applied"));
        changes
            .restart
            .iter()
            .for_each(|key| tracing::warn!(key, "needs a restart"));
        // Every reload lists the keys that still need a restart.
        changes
            .restart
            .iter()
            .for_each(|key| new.keep(key, &mut self.values));
        self.values = new;
        self.current = Config {
            queues: self.current.queues.clone(),
            ..config
        };
        changes
    }

    /// The changes that a configuration with these values makes.
    fn changes(
        &self,
        new: &Values,
        config: &Config,
        sessions: &[Option<SessionFactory>],
    ) -> Changes {
        // An additional section with changed addresses is a different one.
        let is_served = |key: &str| {
            let listen = further(key).map(|(section, _)| format!("{section}.listen"));
            listen.is_none_or(|key| {
                self.values
                    .0
                    .get(&key)
                    .is_some_and(|old| new.0.get(&key) == Some(old))
            })
        };
        let applies = |key: &String| is_served(key) && self.applies(key, config, sessions);
        let (applied, restart) = self.values.changed(new).into_iter().partition(applies);
        Changes {
            applied,
            restart,
            taken_back: BTreeSet::new(),
        }
    }

    /// Whether a changed key can be applied without a restart.
    fn applies(&self, key: &str, config: &Config, sessions: &[Option<SessionFactory>]) -> bool {
        let Some((section, name)) = key.split_once('.') else {
            return false;
        };
        let mut served = self
            .served
            .iter()
            .zip(sessions)
            .filter(|(served, _)| served.endpoint.name == section);
        let name = further(key).map_or(name, |(_, name)| name);
        if let Some(port) = self.ports.iter().find(|port| port.name() == section) {
            return port.applies(name);
        }
        match (section, name) {
            ("log", name) => name == "level",
            ("store", name) => matches!(name, "commit_timeout" | "commit_abort"),
            ("history", name) => name == "bytes_max",
            ("server", name) => SERVER.split(' ').any(|key| key == name),
            ("queues", name) if name.contains(".history.") => history::is_kept(&self.current),
            ("queues", name) => !(name.contains(".aliases.") || name.ends_with(".failure_values")),
            // `zmtp` applies to new sessions of its protocols.
            ("limits" | "namespaces" | "bridge" | "zmtp", _)
            | (_, "cron" | "requeue_on_worker_death") => true,
            (
                _,
                "listen" | "admin_listen" | "publish_listen" | "subscribe_listen" | "enabled"
                | "queue",
            ) => false,
            (_, name) if name.starts_with("throttles.") => true,
            (_, name) if name.starts_with("tls.") => {
                let protocol = config.protocols.iter().find(|it| it.name() == section);
                let is_on = protocol.and_then(|it| it.tls()).is_some_and(Tls::is_on);
                is_on && served.any(|(served, _)| served.tls.is_some())
            }
            (_, _) => served.any(|(_, sessions)| sessions.is_some()),
        }
    }
}

/// The additional section of a key, and the key's name there: `spiderq.more.1` and `queue`.
fn further(key: &str) -> Option<(&str, &str)> {
    let (section, rest) = key.split_once('.')?;
    let (_, name) = rest
        .strip_prefix("more.")
        .filter(|_| !matches!(section, "queues" | "namespaces"))?
        .split_once('.')?;
    Some((key.strip_suffix(name)?.trim_end_matches('.'), name))
}

impl Values {
    pub(crate) fn of(config: &Config) -> Self {
        let mut values = config.values.clone();
        for (key, value) in &mut values {
            if key.ends_with("_file") || key.contains(".tls.") || is_password_file(key) {
                let path = value.trim_matches('"');
                // Unreadable files were already rejected.
                let content = if path.is_empty() {
                    Vec::new()
                } else {
                    fs::read(path).unwrap_or_default()
                };
                let mut hasher = DefaultHasher::new();
                content.hash(&mut hasher);
                value.push_str(&hasher.finish().to_string());
            }
        }
        Self(values)
    }

    /// The keys whose values differ.
    fn changed(&self, new: &Self) -> BTreeSet<String> {
        let keys = self.0.keys().chain(new.0.keys());
        keys.filter(|key| self.0.get(*key) != new.0.get(*key))
            .cloned()
            .collect()
    }

    /// Sets a key to its value in `other`, if any.
    fn keep(&mut self, key: &str, other: &mut Self) {
        match other.0.remove(key) {
            Some(value) => drop(self.0.insert(key.to_owned(), value)),
            None => drop(self.0.remove(key)),
        }
    }
}

fn keepalive(server: &Server) -> (Period, Period, u32) {
    (
        server.keepalive_idle,
        server.keepalive_interval,
        server.keepalive_count,
    )
}

/// The queues with changed rules that need a restart.
fn changed_late(old: &BTreeMap<String, Queue>, new: &BTreeMap<String, Queue>) -> Vec<String> {
    let late = |queues: &BTreeMap<String, Queue>, queue| {
        queues
            .get(queue)
            .map(|rules| (rules.aliases.clone(), rules.failure_values.clone()))
            .unwrap_or_default()
    };
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    names
        .into_iter()
        .filter(|queue| late(old, *queue) != late(new, *queue))
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use windlass_engine::{Engine, Limits};
    use windlass_store::Journal;

    use super::*;
    use crate::config::fixture::config;
    use windlass_hub::{Durability, Hub};
    use windlass_net::testing::Files;
    use windlass_net::testing::acceptor;

    #[test]
    fn certificates_are_read_again_while_tls_stays_on() {
        let hub = Arc::new(Hub::new(
            Engine::new(Limits::default(), 7),
            Journal::new(),
            Durability::Soon,
            7,
        ));
        let (acceptor, files) = (acceptor(&hub), Files::new(2040));
        let [off, on] =
            [String::new(), format!("[gearman.tls]\n{}", files.toml())].map(|text| config(&text));
        for (before, after, read) in [
            (&on, &on, 1),
            (&on, &off, 0),
            (&off, &on, 0),
            (&off, &off, 0),
        ] {
            let (served, in_force) = (
                protocols::all(before).unwrap(),
                ArcSwap::from_pointee(before.clone()),
            );
            let reread = || Ok(after.clone());
            let values = Values::of(before);
            let reloader =
                Reloader::new(before, &in_force, values, &served, &[], &acceptor, &reread);
            let prepared = reloader.prepare(after.clone()).unwrap();
            assert_eq!(prepared.terms.iter().flatten().count(), read);
        }
    }
}
