//! The section `[server]` of the configuration. `config/windlass.toml` explains each key to the operator.

use std::thread;

use windlass_config::{ByteSize, Period};

use crate::file_mode::FileMode;
use crate::polling::Polling;

const MIB: u64 = 1 << 20;

windlass_config::section! {
    /// `[server]`
    pub struct Server {
        /// Threads that serve connections; 0 = one per two cores.
        pub threads: usize = 0,
        /// Whether a serving thread polls before it sleeps.
        pub poll: Polling = Polling::Auto,
        /// Maximum number of connections of all listeners together.
        pub connections_max: usize = 10_000,
        /// Number of these reserved for each protocol.
        pub connections_reserved: usize = 16,
        /// Maximum number of connections from one address; 0 = no limit.
        pub connections_per_address_max: usize = 0,
        /// Maximum rate of new connections from one address; 0 = no limit.
        pub connections_per_address_per_minute: u32 = 0,
        /// Maximum rate of failed logins from one address; 0 = no limit.
        pub failed_logins_per_address_per_minute: u32 = 600,
        /// Maximum bytes of incomplete messages and pending replies of all connections together.
        pub buffer_bytes_max: ByteSize = ByteSize(128 * MIB),
        /// Maximum bytes pending for a peer that does not read.
        pub outbound_bytes_max: ByteSize = ByteSize(128 * MIB),
        /// Maximum bytes read from a peer before a visit to the engine.
        pub read_bytes_max: ByteSize = ByteSize(MIB / 4),
        /// Maximum replies of one connection that wait for the disk before reading stops.
        pub unacknowledged_max: usize = 4096,
        /// Whether a worker's next job waits until the end of its last job is on disk, even if that
        /// end has no reply.
        pub hand_out_after_commit: bool = false,
        /// How long a connection may be silent; 0 = forever.
        pub idle_timeout: Period = Period::from_ms(0),
        /// How long a message may take to arrive; 0 = forever.
        pub message_timeout: Period = Period::from_secs(30),
        /// Number of bytes that extend the timeout of a message by one second; 0 = none do.
        pub message_rate_min: ByteSize = ByteSize(4096),
        /// How long a peer may be silent in its TLS handshake, which may take four times as long in
        /// total.
        pub handshake_timeout: Period = Period::from_secs(30),
        /// Connections that the system queues before they are accepted.
        pub backlog: u32 = 4096,
        /// Permissions of Unix sockets.
        pub unix_mode: FileMode,
        /// Silence before the system sends a keepalive probe; 0 = the system's default.
        pub keepalive_idle: Period = Period::from_ms(0),
        /// Time between two probes; 0 = the system's default.
        pub keepalive_interval: Period = Period::from_ms(0),
        /// Unanswered probes before the peer counts as gone; 0 = the system's default.
        pub keepalive_count: u32 = 0,
        /// How long a drain waits for the jobs of connected workers; 0 = forever.
        pub drain_timeout: Period = Period::from_secs(300),
        /// How long connections may take to close when the daemon stops.
        pub shutdown_timeout: Period = Period::from_secs(10),
        /// After an orderly stop, how long jobs that workers held over connections wait for their
        /// reports; 0 = not at all.
        pub return_grace: Period = Period::from_secs(5),
        /// How long the daemon retries an address or a data directory in use at startup.
        pub in_use_timeout: Period = Period::from_ms(0),
    }
}

impl Server {
    /// The number of threads that serve connections.
    pub fn threads_or_default(&self) -> usize {
        match self.threads {
            0 => cores().div_ceil(2),
            threads => threads,
        }
    }

    /// The number of helper threads for deep turns. None if replies wait for the disk, because two
    /// threads would commit more often and less at a time.
    pub fn helpers(&self, waits_for_disk: bool) -> usize {
        if self.threads == 0 && !waits_for_disk {
            cores() / 2
        } else {
            0
        }
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
        let server = |threads| Server {
            threads,
            ..Server::default()
        };
        assert_eq!(server(0).threads_or_default(), cores.div_ceil(2));
        assert_eq!(server(0).helpers(false), cores / 2);
        assert_eq!(server(0).helpers(true), 0);
        assert_eq!(
            (server(7).threads_or_default(), server(7).helpers(false)),
            (7, 0)
        );
    }
}
