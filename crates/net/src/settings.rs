//! The section `[server]` of the configuration. `config/windlass.toml` explains each key to the operator.

use std::thread;

use serde::{Deserialize, Serialize};
use windlass_config::{ByteSize, Period};

use crate::file_mode::FileMode;
use crate::polling::Polling;

const MIB: u64 = 1 << 20;

/// `[server]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// Threads that serve connections; 0 = one per two cores.
    pub threads: usize,
    /// Whether a serving thread looks for work for a moment before it sleeps.
    pub poll: Polling,
    /// Connections of all listeners together.
    pub connections_max: usize,
    /// Of these, connections reserved for each protocol.
    pub connections_reserved: usize,
    /// Connections from one address; 0 = no limit.
    pub connections_per_address_max: usize,
    /// New connections from one address; 0 = no limit.
    pub connections_per_address_per_minute: u32,
    /// Failed logins from one address; 0 = no limit.
    pub failed_logins_per_address_per_minute: u32,
    /// Bytes of partly read messages and partly sent answers, of all connections together.
    pub buffer_bytes_max: ByteSize,
    /// Bytes that may wait for a peer that does not read.
    pub outbound_bytes_max: ByteSize,
    /// Bytes read from a peer before a visit to the engine.
    pub read_bytes_max: ByteSize,
    /// Answers of one connection that may wait for the disk before no more is read from it.
    pub unacknowledged_max: usize,
    /// A worker gets its next job only when the end of its last job is on the disk, even if that end has no answer.
    pub hand_out_after_commit: bool,
    /// How long a connection may be silent; 0 = for ever.
    pub idle_timeout: Period,
    /// How long a message may take to arrive completely; 0 = for ever.
    pub message_timeout: Period,
    /// A message gets one more second per this number of bytes; 0 = none.
    pub message_rate_min: ByteSize,
    /// How long a peer may take for its TLS handshake.
    pub handshake_timeout: Period,
    /// Connections that the system queues before they are accepted.
    pub backlog: u32,
    /// Permissions of Unix sockets.
    pub unix_mode: FileMode,
    /// Silence before the system sends a keepalive probe; 0 = the system's default.
    pub keepalive_idle: Period,
    /// Time between two probes; 0 = the system's default.
    pub keepalive_interval: Period,
    /// Unanswered probes before the peer counts as gone; 0 = the system's default.
    pub keepalive_count: u32,
    /// How long a drain waits for the jobs of connected workers; 0 = for ever.
    pub drain_timeout: Period,
    /// How long connections may take to end when the daemon stops.
    pub shutdown_timeout: Period,
    /// How long after an orderly stop the jobs that workers had over connections wait for their reports; 0 = not at
    /// all.
    pub return_grace: Period,
    /// How long the start retries an address or a data directory that another process uses.
    pub in_use_timeout: Period,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            threads: 0,
            poll: Polling::Auto,
            connections_max: 10_000,
            connections_reserved: 16,
            connections_per_address_max: 0,
            connections_per_address_per_minute: 0,
            failed_logins_per_address_per_minute: 600,
            buffer_bytes_max: ByteSize(128 * MIB),
            outbound_bytes_max: ByteSize(128 * MIB),
            read_bytes_max: ByteSize(MIB / 4),
            unacknowledged_max: 4096,
            hand_out_after_commit: false,
            idle_timeout: Period::from_ms(0),
            message_timeout: Period::from_secs(30),
            message_rate_min: ByteSize(4096),
            handshake_timeout: Period::from_secs(10),
            backlog: 4096,
            unix_mode: FileMode(None),
            keepalive_idle: Period::from_ms(0),
            keepalive_interval: Period::from_ms(0),
            keepalive_count: 0,
            drain_timeout: Period::from_secs(300),
            shutdown_timeout: Period::from_secs(10),
            return_grace: Period::from_secs(5),
            in_use_timeout: Period::from_ms(0),
        }
    }
}

impl Server {
    /// The number of threads that serve connections.
    #[must_use]
    pub fn threads_or_default(&self) -> usize {
        match self.threads {
            0 => cores().div_ceil(2),
            threads => threads,
        }
    }

    /// The number of threads that help them when turns are deep. Not if replies wait for the disk: two threads commit
    /// more often, and less at a time.
    #[must_use]
    pub fn helpers(&self, waits_for_disk: bool) -> usize {
        if self.threads == 0 && !waits_for_disk { cores() / 2 } else { 0 }
    }
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serving_thread_and_a_helper_share_two_cores_unless_threads_are_set() {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let server = |threads| Server { threads, ..Server::default() };
        assert_eq!(server(0).threads_or_default(), cores.div_ceil(2));
        assert_eq!(server(0).helpers(false), cores / 2);
        assert_eq!(server(0).helpers(true), 0);
        assert_eq!((server(7).threads_or_default(), server(7).helpers(false)), (7, 0));
    }
}
