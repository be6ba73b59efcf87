//! `[eventmq]`: where each of its roles is served, and the rules for all of them.

use serde::{Deserialize, Serialize};

use super::address::ListenAddress;
use super::quantity::{ByteSize, Period};
use super::sections::Listener;

/// The stock router's front end, for clients and schedulers, and its back end, for workers.
const ROUTER_PORTS: [u16; 2] = [47291, 47290];

/// Its administrative port.
const ADMIN_PORT: u16 = 47293;

/// The stock publisher's own two.
const PUBLISH_PORT: u16 = 47298;
const SUBSCRIBE_PORT: u16 = 47299;

/// `[eventmq]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Eventmq {
    /// Where clients, workers and schedulers are served; nowhere if empty.
    pub listen: Vec<ListenAddress>,
    /// The same, for those who may stop the daemon if [`Eventmq::disconnect`] says so.
    pub admin_listen: Vec<ListenAddress>,
    /// The same, where stock publishers look for it.
    pub publish_listen: Vec<ListenAddress>,
    /// Where subscribers are served.
    pub subscribe_listen: Vec<ListenAddress>,
    /// `DISCONNECT` at [`Eventmq::admin_listen`] stops the daemon.
    pub disconnect: bool,
    /// Between two heartbeats to a worker or scheduler.
    pub heartbeat: Period,
    /// Silence after which one counts as dead; 0 = never.
    pub heartbeat_timeout: Period,
    /// Between two extra heartbeats to a worker that has jobs and no credit; 0 = none.
    pub nudge: Period,
    /// They do not become rarer than this.
    pub nudge_max: Period,
    /// How long a worker may have a job without a `timeout`; 0 = for ever.
    pub lease: Period,
    /// How long after a job's `timeout` its worker may still answer.
    pub timeout_grace: Period,
    /// How a worker's next job is chosen.
    pub order: Order,
    /// The queue whose workers also serve queues that nobody serves; empty for none.
    pub fallback: String,
    /// Jobs and credits of one worker together.
    pub jobs_max: u32,
    /// Keep jobs that failed for good in the dead set.
    pub keep_failed: bool,
    /// Workers may be given bodies that are no UTF-8.
    pub binary_workers: bool,
    /// Workers that may be lost with a job; 0 = what `limits.losses_max` says.
    pub losses_max: u32,
    /// How long the identifier of a request that has ended is known; 0 = not at all.
    pub dedup: Period,
    /// Who runs schedules.
    pub scheduler: Scheduler,
    /// Topics of one subscriber.
    pub topics_max: usize,
    /// And their bytes together.
    pub topic_bytes_max: ByteSize,
}

/// How a worker's next job is chosen when several of its queues have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// From the queue of the greatest weight.
    Weight,
    /// From the first queue of the list it informed of, whatever it weighs.
    Inform,
}

/// Who runs schedules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheduler {
    /// This daemon.
    Embedded,
    /// The stock scheduler that connected last.
    External,
}

impl Eventmq {
    /// The name of what is served at [`Eventmq::admin_listen`].
    pub const ADMIN: &'static str = "eventmq-admin";

    /// And at [`Eventmq::subscribe_listen`].
    pub const SUBSCRIBE: &'static str = "eventmq-subscribe";

    /// What is served under which name, and where.
    #[must_use]
    pub const fn roles(&self) -> [(&'static str, &Vec<ListenAddress>); 4] {
        [
            ("eventmq", &self.listen),
            (Self::ADMIN, &self.admin_listen),
            ("eventmq-publish", &self.publish_listen),
            (Self::SUBSCRIBE, &self.subscribe_listen),
        ]
    }

    /// Every address.
    pub(super) fn listeners(&self) -> impl Iterator<Item = Listener<'_>> {
        self.roles().into_iter().flat_map(|(protocol, listen)| {
            listen.iter().map(move |address| Listener { protocol, address, tls: false, queue: None })
        })
    }

    /// Serves it nowhere.
    pub fn turn_off(&mut self) {
        for listen in [&mut self.listen, &mut self.admin_listen, &mut self.publish_listen, &mut self.subscribe_listen] {
            listen.clear();
        }
    }
}

impl Default for Eventmq {
    fn default() -> Self {
        let local = |port| ListenAddress::Tcp { host: "127.0.0.1".to_owned(), port };
        Self {
            listen: ROUTER_PORTS.map(local).to_vec(),
            admin_listen: vec![local(ADMIN_PORT)],
            publish_listen: vec![local(PUBLISH_PORT)],
            subscribe_listen: vec![local(SUBSCRIBE_PORT)],
            disconnect: false,
            heartbeat: Period::from_secs(3),
            heartbeat_timeout: Period::from_secs(10),
            nudge: Period::from_ms(2),
            nudge_max: Period::from_secs(1),
            lease: Period::from_secs(3_600),
            timeout_grace: Period::from_secs(5),
            order: Order::Weight,
            fallback: "default".to_owned(),
            jobs_max: 4096,
            keep_failed: true,
            binary_workers: false,
            losses_max: 0,
            dedup: Period::from_ms(0),
            scheduler: Scheduler::Embedded,
            topics_max: 1000,
            topic_bytes_max: ByteSize(64 << 10),
        }
    }
}
