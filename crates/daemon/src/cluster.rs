//! This daemon as a member of a cluster: its configuration, and how it opens the store when that is
//! free.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};
pub use windlass_cluster::LINK_VERSION;
pub(crate) use windlass_cluster::Listening;
pub(crate) use windlass_cluster::roles::YIELD;
use windlass_cluster::tls::{self, Tls};
use windlass_cluster::{Cluster, ClusterBroker, Relay, Settings};
use windlass_config::{Error as ConfigError, Failure, Unbound};
use windlass_hub::{Broker, Budget, Hub, View};
use windlass_session::protocol::Publications;

use crate::config::Config;
use crate::data::{self, Store};

/// Checks that the other daemons will accept this one's certificate for its own address.
pub(crate) fn check_certificates(
    files: &windlass_config::Tls,
    address: &str,
) -> Result<(), ConfigError> {
    tls::check(files, address).map_err(|reason| ConfigError::Tls {
        protocol: "cluster",
        reason,
    })
}

/// Checks that the other daemons, if any, will accept this one's certificate today.
///
/// # Errors
///
/// The reason why they would not.
pub fn check_certificates_today(config: &Config) -> Result<(), ConfigError> {
    let section = &config.cluster;
    if !section.is_on() {
        return Ok(());
    }
    tls::check_today(&section.tls, &section.address()).map_err(|reason| ConfigError::Tls {
        protocol: "cluster",
        reason,
    })
}

/// Binds the addresses of the links.
pub(crate) fn bind(config: &Config) -> Result<Listening, Failure> {
    Listening::bind(&config.cluster.listen).map_err(|(listen, error)| {
        Failure::Listen(vec![Unbound::new(
            listen,
            "cluster.listen".to_owned(),
            error,
        )])
    })
}

/// A member that has not been started.
pub(crate) struct Joining {
    broker: Arc<ClusterBroker>,
    listening: Listening,
    relay: Arc<Relay>,
}

impl Joining {
    pub(crate) fn new(
        listening: Listening,
        budget: &Arc<Budget>,
        publications: impl Iterator<Item = Arc<dyn Publications>>,
    ) -> Self {
        let broker = Arc::new(ClusterBroker::new(Arc::clone(budget)));
        Self {
            broker,
            listening,
            relay: Relay::new(publications),
        }
    }

    /// The broker that connections use.
    pub(crate) fn broker(&self) -> Arc<dyn Broker> {
        Arc::<ClusterBroker>::clone(&self.broker)
    }

    /// Starts looking for the leader.
    ///
    /// # Errors
    ///
    /// A thread cannot be started, or a certificate cannot be used.
    pub(crate) fn start(self, config: &Config, view: Arc<View>) -> Result<Member, Failure> {
        let Self {
            broker,
            listening,
            relay,
        } = self;
        // The daemon can lead without it, and the certificate may be replaced meanwhile.
        if let Err(why) = check_certificates_today(config) {
            tracing::error!(%why, "the other daemons will reject this daemon's certificate, or it theirs");
        }
        let edge = Arc::clone(broker.edge());
        let cluster = Cluster::start(settings(config)?, listening, edge, relay, view)
            .map_err(Failure::no_threads)?;
        Ok(Member { cluster, broker })
    }
}

/// A daemon of a cluster.
pub(crate) struct Member {
    cluster: Cluster,
    broker: Arc<ClusterBroker>,
}

impl Member {
    /// Waits until this daemon has the store.
    pub(crate) async fn stand_by(&self, config: &Config) -> Result<Store, Failure> {
        let its = config.clone();
        let opened = self.cluster.stand_by(move || data::try_open(&its)).await;
        match opened.map_err(|why| data::cannot_open(config, &why))? {
            Some(opened) => Ok(opened.into()),
            None => Err(Failure::Runtime("stopped while standing by".to_owned())),
        }
    }

    /// Moves this daemon's clients to its own engine room.
    pub(crate) fn take_over(&self, hub: &Arc<Hub>) {
        self.broker.lead(hub);
    }

    /// Starts accepting links from other daemons.
    pub(crate) fn accept(&self, hub: &Arc<Hub>) {
        self.cluster.lead(hub);
    }

    /// Stops leading.
    pub(crate) fn follow(&self) {
        self.broker.follow();
        self.cluster.follow();
    }

    /// Closes the links.
    pub(crate) fn finish(mut self) {
        self.cluster.finish();
    }
}

fn settings(config: &Config) -> Result<Settings, ConfigError> {
    let section = &config.cluster;
    Ok(Settings {
        name: section.name.clone(),
        address: section.address(),
        hold: section.hold.into(),
        tls: Tls::new(&section.tls).map_err(|reason| ConfigError::Tls {
            protocol: "cluster",
            reason,
        })?,
        agreed: agreed(config),
        outbound_bytes_max: config.server.outbound_bytes_max.bytes(),
        remote: config.remote.clone(),
        give_way: (
            config.postgres.lease.into(),
            config.postgres.connect_timeout.into(),
        ),
    })
}

/// A digest of the settings that must be equal on all daemons, because those of the leader apply.
fn agreed(config: &Config) -> [u8; 32] {
    let is_agreed = |key: &str| {
        let sections = [
            "durability",
            "commit_interval",
            "limits.",
            "bridge.",
            "queues.",
            "history.",
        ];
        sections.iter().any(|section| key.starts_with(section))
            || key.contains(".cron")
            || key.contains(".throttles")
    };
    let mut digest = Sha256::new();
    for (key, value) in config.values.iter().filter(|(key, _)| is_agreed(key)) {
        digest.update(format!("{key}\0{value}\0"));
    }
    digest.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemons_of_a_cluster_agree_on_what_counts_whichever_leads() {
        let digest = |key: &str, value: &str| {
            agreed(&Config {
                values: [(key.to_owned(), value.to_owned())].into(),
                ..Config::default()
            })
        };
        let none = agreed(&Config::default());
        let table = [
            ("durability", true),
            ("limits.jobs_max", true),
            ("bridge.rules", true),
            ("queues.mail.ttl", true),
            ("history.keep", true),
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
}
