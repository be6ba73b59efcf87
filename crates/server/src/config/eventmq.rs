//! `[eventmq]`: the addresses of its roles, and the rules for all of them.

use serde::{Deserialize, Serialize};

use super::address::ListenAddress;
use super::quantity::{ByteSize, Period};
use super::sections::Listener;

/// The stock router's front end, for clients and schedulers, and its back end, for workers.
const ROUTER_PORTS: [u16; 2] = [47291, 47290];

/// The stock router's administrative port.
const ADMIN_PORT: u16 = 47293;

/// The stock publisher's two ports.
const PUBLISH_PORT: u16 = 47298;
const SUBSCRIBE_PORT: u16 = 47299;

/// `[eventmq]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Eventmq {
    /// Addresses for clients, workers and schedulers; empty for none.
    pub listen: Vec<ListenAddress>,
    /// Addresses for the same roles and for administrators, who can stop the daemon if [`Eventmq::disconnect`] is set.
    pub admin_listen: Vec<ListenAddress>,
    /// Addresses for the same roles, where stock publishers connect.
    pub publish_listen: Vec<ListenAddress>,
    /// Addresses for subscribers.
    pub subscribe_listen: Vec<ListenAddress>,
    /// `DISCONNECT` at [`Eventmq::admin_listen`] stops the daemon.
    pub disconnect: bool,
    /// The time between two heartbeats to a worker or scheduler.
    pub heartbeat: Period,
    /// The silence after which a worker or scheduler counts as dead; 0 = never.
    pub heartbeat_timeout: Period,
    /// The time between two extra heartbeats to a worker that has jobs and no credit; 0 = none.
    pub nudge: Period,
    /// The longest time between two such heartbeats.
    pub nudge_max: Period,
    /// How long a worker may have a job without a `timeout`; 0 = for ever.
    pub lease: Period,
    /// How long after a job's `timeout` its worker may still answer.
    pub timeout_grace: Period,
    /// How a worker's next job is chosen.
    pub order: Order,
    /// The queue whose workers also serve queues without workers of their own; empty for none.
    pub fallback: String,
    /// The most jobs and credits of one worker together.
    pub jobs_max: u32,
    /// Keep jobs that failed for good in the dead-letter queue.
    pub keep_failed: bool,
    /// Workers accept bodies that are not UTF-8.
    pub binary_workers: bool,
    /// Workers that may be lost with a job; 0 = the value of `limits.losses_max`.
    pub losses_max: u32,
    /// How long the identifier of a finished request is remembered; 0 = not at all.
    pub dedup: Period,
    /// Which scheduler runs schedules.
    pub scheduler: Scheduler,
    /// The most topics of one subscriber.
    pub topics_max: usize,
    /// The most bytes of those topics together.
    pub topic_bytes_max: ByteSize,
}

/// How a worker's next job is chosen when several of its queues have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// From the queue with the greatest weight.
    Weight,
    /// From the first queue in the worker's `INFORM` list, whatever its weight.
    Inform,
}

/// Which scheduler runs schedules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheduler {
    /// This daemon.
    Embedded,
    /// The stock scheduler that connected last.
    External,
}

impl Eventmq {
    /// The name of the role at [`Eventmq::admin_listen`].
    pub const ADMIN: &'static str = "eventmq-admin";

    /// The name of the role at [`Eventmq::subscribe_listen`].
    pub const SUBSCRIBE: &'static str = "eventmq-subscribe";

    /// Each role's name and addresses.
    #[must_use]
    pub const fn roles(&self) -> [(&'static str, &Vec<ListenAddress>); 4] {
        [
            ("eventmq", &self.listen),
            (Self::ADMIN, &self.admin_listen),
            ("eventmq-publish", &self.publish_listen),
            (Self::SUBSCRIBE, &self.subscribe_listen),
        ]
    }

    /// All addresses.
    pub(super) fn listeners(&self) -> impl Iterator<Item = Listener<'_>> {
        self.roles().into_iter().flat_map(|(protocol, listen)| {
            listen.iter().map(move |address| Listener { protocol, address, tls: false, queue: None })
        })
    }

    /// Removes all addresses.
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
