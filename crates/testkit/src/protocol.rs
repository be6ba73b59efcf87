//! What protocols use of their daemon, for tests of their configuration.

use bytes::Bytes;
use windlass_config::ByteSize;
use windlass_engine::Timestamp;
use windlass_session::protocol::Daemon;

/// A daemon with the default configuration, whose clocks stand still.
#[must_use]
pub fn daemon() -> Daemon {
    Daemon {
        now: || Timestamp(0),
        wall_ns: || 0,
        memory_mb: || 0,
        random: || 7,
        host: Bytes::from_static(b"here"),
        log_level: "info".to_owned(),
        outbound_bytes_max: 128 << 20,
        name_bytes_max: ByteSize(8192),
        bridge: std::sync::Arc::default(),
        aliases: std::sync::Arc::default(),
        failure_values: windlass_engine::Patterns::default(),
    }
}
