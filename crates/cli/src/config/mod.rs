//! The registry of protocols: the one file that names all of them. The configuration is one TOML file with the daemon's
//! sections and the protocols' sections; every key is optional.
//!
//! A new protocol is a field of [`Config`], a default, and an entry in [`Config::protocols`].

mod database;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_config::{Error, ListenAddress, Override, Period};
use windlass_daemon::config::{
    self, Bridge, Cluster, Durability, History, Limits, Log, Namespaces, Postgres, Queue, Server,
    Store,
};
use windlass_daemon::operator_port::OperatorPort;
use windlass_eventmq::config::Eventmq;
use windlass_faktory::config::Faktory;
use windlass_gearman::config::Gearman;
use windlass_http::{Configured as ConfiguredHttp, Http, Metrics};
use windlass_session::Listen;
use windlass_session::protocol::Protocol;
use windlass_spiderq::config::Spiderq;
use windlass_zmtp::Zmtp;

/// The default configuration, with an explanation of every key.
pub(crate) const DEFAULTS: &str = include_str!("../../../../config/windlass.toml");

windlass_config::section! {
    /// The whole configuration.
    pub(crate) struct Config {
        /// The directory of the journal; relative to the working directory.
        #[serde(serialize_with = "windlass_config::path_as_text")]
        pub data_dir: PathBuf = config::Config::default().data_dir,
        /// What an acknowledgement promises.
        pub durability: Durability = config::Config::default().durability,
        /// The longest time between two commits with [`Durability::Interval`].
        pub commit_interval: Period = config::Config::default().commit_interval,
        /// The log's level, format and file.
        pub log: Log,
        /// Threads, connections and timeouts.
        pub server: Server,
        /// Limits of the queues.
        pub limits: Limits,
        /// The journal.
        pub store: Store,
        /// The database that has the store instead of the data directory.
        pub postgres: Postgres,
        /// The other daemons that form one broker with this one.
        pub cluster: Cluster,
        /// The history of ended jobs.
        pub history: History,
        /// Queues that all protocols share.
        pub bridge: Bridge,
        /// Rules for the jobs of single queues.
        pub queues: BTreeMap<String, Queue>,
        /// Namespaces, by name.
        pub namespaces: Namespaces,
        /// Where their sections stand.
        #[serde(skip)]
        pub places: BTreeMap<String, String>,
        /// HTTP.
        pub http: Http,
        /// What Prometheus scrapes.
        pub metrics: Metrics,
        /// Faktory.
        pub faktory: Faktory,
        /// Gearman.
        pub gearman: Gearman,
        /// spiderq.
        pub spiderq: Spiderq,
        /// EventMQ.
        pub eventmq: Eventmq,
        /// ZeroMQ's transport, under spiderq and EventMQ.
        pub zmtp: Zmtp,
    }
}

impl Config {
    /// All protocols, in the order in which their listeners are bound. Those that are not enabled have no addresses.
    fn protocols(&self) -> Vec<Arc<dyn Protocol>> {
        let mut served = self.clone();
        for (.., lists) in served
            .job_protocols()
            .into_iter()
            .filter(|(_, enabled, _)| !**enabled)
        {
            lists.into_iter().for_each(Vec::clear);
        }
        let Self {
            faktory,
            gearman,
            spiderq,
            eventmq,
            zmtp,
            ..
        } = served;
        vec![
            Arc::new(faktory),
            Arc::new(gearman),
            Arc::new(Spiderq {
                zmtp: zmtp.clone(),
                ..spiderq
            }),
            Arc::new(Eventmq { zmtp, ..eventmq }),
            Arc::new(self.configured_http()),
        ]
    }

    /// The job protocols: their names, whether they are enabled, and all their lists of addresses.
    fn job_protocols(&mut self) -> [(&'static str, &mut bool, Vec<&mut Vec<Listen>>); 4] {
        let Self {
            faktory,
            gearman,
            spiderq,
            eventmq,
            ..
        } = self;
        let more = spiderq.more.iter_mut().map(|more| &mut more.listen);
        let cycles = std::iter::once(&mut spiderq.listen).chain(more).collect();
        let Eventmq {
            listen,
            admin_listen,
            publish_listen,
            subscribe_listen,
            ..
        } = eventmq;
        [
            ("faktory", &mut faktory.enabled, vec![&mut faktory.listen]),
            ("gearman", &mut gearman.enabled, vec![&mut gearman.listen]),
            ("spiderq", &mut spiderq.enabled, cycles),
            (
                "eventmq",
                &mut eventmq.enabled,
                vec![listen, admin_listen, publish_listen, subscribe_listen],
            ),
        ]
    }

    /// Enables the job protocols in the list, and no others.
    pub(crate) fn keep_only(&mut self, protocols: &[String]) {
        for (name, enabled, _) in self.job_protocols() {
            *enabled = protocols.iter().any(|protocol| protocol == name);
        }
    }

    /// Removes the default addresses of all protocols but one: for the command line of another server.
    pub(crate) fn serve_only(&mut self, protocol: &str) {
        let default = Self::default();
        let are_default = [
            self.faktory.listen == default.faktory.listen,
            self.gearman.listen == default.gearman.listen,
            self.spiderq == default.spiderq,
            self.eventmq == default.eventmq,
        ];
        for ((name, _, lists), is_default) in self.job_protocols().into_iter().zip(are_default) {
            if is_default && name != protocol {
                lists.into_iter().for_each(Vec::clear);
            }
        }
        if self.http == default.http {
            self.http.listen.clear();
        }
    }

    /// Serves everything that is served on free ports of this machine.
    pub(crate) fn use_free_ports(&mut self) {
        // Each has one address for each of its namespaces, that without a name first. The daemon prints them.
        let free = ListenAddress::Tcp {
            host: "127.0.0.1".to_owned(),
            port: 0,
        };
        let lists = self
            .job_protocols()
            .into_iter()
            .flat_map(|(.., lists)| lists);
        for listen in lists.filter(|listen| !listen.is_empty()) {
            let own = listen.drain(..).map(|it| it.namespace);
            let at = |namespace| Listen {
                namespace,
                ..free.clone().into()
            };
            let all: BTreeSet<_> = own.collect();
            *listen = all.into_iter().map(at).collect();
        }
        if !self.http.listen.is_empty() {
            self.http.listen = vec![free];
        }
    }

    /// HTTP with its metrics.
    fn configured_http(&self) -> ConfiguredHttp {
        ConfiguredHttp {
            http: self.http.clone(),
            metrics: self.metrics.clone(),
        }
    }

    /// The server's configuration, with all protocols.
    pub(crate) fn for_server(&self) -> config::Config {
        let database = database::remote(&self.postgres, &self.cluster);
        let (remote, remote_history) = database
            .map(|database| (database.store, database.history))
            .unzip();
        let (protocols, ports): (_, Vec<Arc<dyn OperatorPort>>) =
            (self.protocols(), vec![Arc::new(self.configured_http())]);
        let (values, defaults) = (
            windlass_config::values(self),
            windlass_config::values(&Self::default()),
        );
        let own = self.clone();
        config::Config {
            data_dir: own.data_dir,
            durability: own.durability,
            commit_interval: own.commit_interval,
            log: own.log,
            server: own.server,
            limits: own.limits,
            store: own.store,
            postgres: own.postgres,
            cluster: own.cluster,
            history: own.history,
            bridge: own.bridge,
            queues: own.queues,
            namespaces: own.namespaces,
            places: own.places,
            remote,
            remote_history,
            protocols,
            ports,
            values,
            defaults,
            ephemeral: false,
        }
    }

    /// What an import uses.
    #[cfg(feature = "migrate")]
    pub(crate) fn for_import(&self) -> windlass_migrate::Configured {
        let Self {
            faktory,
            gearman,
            spiderq,
            zmtp,
            ..
        } = self.clone();
        let spiderq = Spiderq { zmtp, ..spiderq };
        windlass_migrate::Configured {
            server: self.for_server(),
            faktory,
            gearman,
            spiderq,
        }
    }

    /// Reads a file. Checks only its form; [`Config::check`] checks the values.
    ///
    /// # Errors
    ///
    /// [`Error::Unreadable`], [`Error::Malformed`].
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        Self::parse(path, &windlass_config::read(path)?)
    }

    /// Reads the text of a file; the path is for messages only. The only values checked here are those whose place in
    /// the text is lost afterwards.
    ///
    /// # Errors
    ///
    /// [`Error::Malformed`].
    pub(crate) fn parse(path: &Path, text: &str) -> Result<Self, Error> {
        let config: Self = windlass_config::parse(path, text)?;
        let protocols = config.protocols();
        let mut checks = protocols.iter().map(|protocol| protocol.check_text(text));
        let checked = checks.try_for_each(|checked| checked);
        checked
            .and_then(|()| config::check_text(&config.queues, &protocols, text))
            .map_err(|misplaced| misplaced.within(path, text))?;
        Ok(config)
    }

    /// Replaces single keys; a later override wins over an earlier one.
    ///
    /// # Errors
    ///
    /// [`Error::Override`]: a value has the wrong type for its key.
    pub(crate) fn with(self, overrides: impl IntoIterator<Item = Override>) -> Result<Self, Error> {
        windlass_config::with(self, overrides)
    }

    /// Checks all values and returns the first error. Reads the files of TLS and of passwords.
    ///
    /// # Errors
    ///
    /// [`Error::Senseless`] and [`Error::Tls`], with the key.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let config = self.for_server();
        config.check()?;
        database::check(&self.postgres, &self.cluster)?;
        match config.listeners().next() {
            Some(_) => Ok(()),
            None => windlass_config::senseless(
                "gearman.listen",
                "no protocol has an address to listen on",
            ),
        }
    }
}
