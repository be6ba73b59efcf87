//! Rules that types cannot express: well-formed values that are invalid alone or in combination.

use std::collections::HashSet;

use windlass_config::{Address, ByteSize, Error, ListenAddress, positive, senseless, within};
use windlass_session::protocol::Listener;

use super::queues;
use super::sections::{Cluster, Config};
use windlass_net::tls;

use crate::{cluster, logging, protocols};

/// How much larger a packet may be at the worker than at the producer, because of a longer header,
/// the job's handle, or a function's name.
const OUTBOUND_SLACK_BYTES: u64 = 64 * 1024;

impl Config {
    /// Checks all values and returns the first error. Reads the files of TLS and of passwords.
    ///
    /// # Errors
    ///
    /// [`Error::Senseless`] and [`Error::Tls`], with the key.
    pub fn check(&self) -> Result<(), Error> {
        self.check_zeros()?;
        self.check_log()?;
        self.check_times()?;
        self.check_keepalive()?;
        within(
            "limits.name_bytes_max",
            self.limits.name_bytes_max,
            1,
            u32::MAX.into(),
        )?;
        for protocol in &self.protocols {
            protocol.check(&protocols::daemon(self, protocol.name())?)?;
        }
        self.check_sizes()?;
        queues::check(&self.queues, &self.protocols)?;
        self.check_history()?;
        self.check_namespaces()?;
        self.check_listeners()?;
        self.check_tls()?;
        self.check_cluster()
    }

    /// Other daemons have all rights, so they must present a certificate of the cluster's CA, or be
    /// on this machine.
    fn check_cluster(&self) -> Result<(), Error> {
        let Cluster {
            listen,
            name,
            tls: files,
            ..
        } = &self.cluster;
        if !self.cluster.is_on() {
            return Ok(());
        }
        if name.is_empty() {
            return senseless("cluster.name", "must not be empty");
        }
        if files.is_on() && !files.asks_for_certificates() {
            return senseless(
                "cluster.tls.client_ca",
                "must name the CA that signed the certificates of all daemons",
            );
        }
        let is_local = |it: &ListenAddress| {
            it.resolve()
                .is_ok_and(|found| found.iter().all(Address::is_local))
        };
        if !files.is_on() && !listen.iter().all(is_local) {
            return senseless(
                "cluster.listen",
                "addresses other than loopback require cluster.tls",
            );
        }
        let address = self.cluster.address();
        if address
            .rsplit_once(':')
            .is_some_and(|(host, port)| port == "0" || matches!(host, "0.0.0.0" | "[::]" | "*"))
        {
            let what = format!("other daemons cannot connect to {address}: set a host and port");
            return senseless("cluster.address", what);
        }
        cluster::check_certificates(files, &address)
    }

    fn check_history(&self) -> Result<(), Error> {
        let asking = self
            .queues
            .iter()
            .filter_map(|(name, rules)| Some((name, rules.history?)));
        for (queue, rule) in asking {
            if rule.keep.is_none() && self.history.keep.is_zero() {
                let what = "history.keep must be set here, or for all queues in [history]";
                return Err(queues::senseless(queue, what));
            }
        }
        Ok(())
    }

    fn check_zeros(&self) -> Result<(), Error> {
        let (server, limits, store) = (&self.server, &self.limits, &self.store);
        if self.data_dir.as_os_str().is_empty() {
            return senseless("data_dir", "must not be empty");
        }
        positive(&[
            ("commit_interval", self.commit_interval.as_ms()),
            ("server.connections_max", server.connections_max as u64),
            ("server.buffer_bytes_max", server.buffer_bytes_max.0),
            ("server.outbound_bytes_max", server.outbound_bytes_max.0),
            ("server.read_bytes_max", server.read_bytes_max.0),
            (
                "server.unacknowledged_max",
                server.unacknowledged_max as u64,
            ),
            ("server.handshake_timeout", server.handshake_timeout.as_ms()),
            ("server.backlog", server.backlog.into()),
            ("server.shutdown_timeout", server.shutdown_timeout.as_ms()),
            ("limits.jobs_max", limits.jobs_max),
            ("limits.queues_max", limits.queues_max.into()),
            ("limits.abilities_max", limits.abilities_max.into()),
            ("limits.name_bytes_max", limits.name_bytes_max.0),
            ("limits.listeners_max", limits.listeners_max.into()),
            ("limits.lease_max", limits.lease_max.as_ms()),
            ("limits.dead_ttl", limits.dead_ttl.as_ms()),
            ("limits.wake_patience", limits.wake_patience.as_ms()),
            ("limits.beat_timeout", limits.beat_timeout.as_ms()),
            ("limits.page_max", limits.page_max.into()),
            ("store.cache", store.cache.0),
            ("store.checkpoint", store.checkpoint.0),
            ("store.checkpoint_quiet", store.checkpoint_quiet.as_ms()),
            ("store.compact_floor", store.compact_floor.0),
            ("store.commit_timeout", store.commit_timeout.as_ms()),
            ("store.commit_abort", store.commit_abort.as_ms()),
        ])
    }

    fn check_log(&self) -> Result<(), Error> {
        logging::filter(&self.log.level)
            .map(drop)
            .or_else(|error| senseless("log.level", error))
    }

    fn check_times(&self) -> Result<(), Error> {
        let (timeout, abort) = (self.store.commit_timeout, self.store.commit_abort);
        if abort < timeout {
            return senseless(
                "store.commit_abort",
                format!("{abort} is less than store.commit_timeout, {timeout}"),
            );
        }
        Ok(())
    }

    /// The system accepts only whole seconds up to a maximum.
    fn check_keepalive(&self) -> Result<(), Error> {
        const SECONDS_MAX: u64 = 32_767;
        const COUNT_MAX: u32 = 127;
        let server = &self.server;
        let times = [
            ("server.keepalive_idle", server.keepalive_idle.as_ms()),
            (
                "server.keepalive_interval",
                server.keepalive_interval.as_ms(),
            ),
        ];
        if let Some((key, _)) = times
            .iter()
            .find(|(_, ms)| ms % 1000 != 0 || *ms > SECONDS_MAX * 1000)
        {
            return senseless(
                *key,
                format!("must be whole seconds, at most {SECONDS_MAX}s"),
            );
        }
        if server.keepalive_count > COUNT_MAX {
            return senseless(
                "server.keepalive_count",
                format!("must be at most {COUNT_MAX}"),
            );
        }
        Ok(())
    }

    /// Without this check the daemon could accept a job that it cannot send to any worker.
    fn check_sizes(&self) -> Result<(), Error> {
        let server = &self.server;
        let largest = self
            .protocols
            .iter()
            .map(|protocol| protocol.message_bytes_max().0)
            .max()
            .unwrap_or(0);
        let least = largest.saturating_add(OUTBOUND_SLACK_BYTES);
        let sizes = [
            ("server.outbound_bytes_max", server.outbound_bytes_max),
            ("server.buffer_bytes_max", server.buffer_bytes_max),
        ];
        match sizes.into_iter().find(|(_, size)| size.0 < least) {
            Some((key, size)) => senseless(
                key,
                format!(
                    "{size}, but the largest packet, line or message needs {}",
                    ByteSize(least)
                ),
            ),
            None => Ok(()),
        }
    }

    fn check_listeners(&self) -> Result<(), Error> {
        let mut seen = HashSet::new();
        let twice = self.listeners().find(|it| {
            let covered = it.address.covered();
            !it.address.is_any_port()
                && covered
                    .into_iter()
                    .filter(|address| !seen.insert(address.clone()))
                    .count()
                    > 0
        });
        match twice {
            Some(Listener { address, key, .. }) => {
                senseless(key, format!("{address} is configured twice"))
            }
            None => Ok(()),
        }
    }

    fn check_tls(&self) -> Result<(), Error> {
        self.protocols.iter().try_for_each(|protocol| {
            let files = protocol.tls().map_or(Ok(()), tls::check);
            files.map_err(|reason| Error::Tls {
                protocol: protocol.name(),
                reason,
            })
        })
    }
}
