//! How many connections there may be, and what each may hold, by the configuration.

use std::time::Duration;

use windlass_net::Allowance;
use windlass_net::{Bounds, Patience, PlaceLimits};

use crate::config::Config;

/// A connection that has sent nothing for so long may give way to others: honest peers begin sooner.
const SILENCE_MIN: Duration = Duration::from_secs(1);

/// The limits of new connections.
pub(crate) fn bounds(config: &Config) -> Bounds {
    let idle: Duration = config.server.idle_timeout.into();
    Bounds {
        read_bytes_max: config.server.read_bytes_max.bytes(),
        outbound_bytes_max: config.server.outbound_bytes_max.bytes(),
        unacknowledged_max: config.server.unacknowledged_max,
        idle_max: (!idle.is_zero()).then_some(idle),
        patience: Patience {
            timeout_ms: config.server.message_timeout.as_ms(),
            bytes_per_s: config.server.message_rate_min.0,
        },
    }
}

/// How many connections there may be.
pub(crate) fn places(config: &Config) -> PlaceLimits {
    PlaceLimits {
        connections_max: config.server.connections_max,
        reserved: config.server.connections_reserved,
        per_address_max: config.server.connections_per_address_max,
        rate: Allowance::per_minute(config.server.connections_per_address_per_minute),
        failures: Allowance::per_minute(config.server.failed_logins_per_address_per_minute),
        silence_min: SILENCE_MIN,
    }
}

/// Raises the limit on open files so that it allows this many connections, as far as the system permits: each
/// connection is an open file, and many shells allow 1,024 by default. [`crate::run`] calls this. A process that drops
/// privileges first must call it before that.
pub fn allow_open_files(connections_max: usize) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    const OTHERS: u64 = 256;
    let wanted = connections_max as u64 + OTHERS;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < wanted) {
        // Root may go beyond the maximum.
        let beyond = Rlimit { current: Some(wanted), maximum: maximum.map(|maximum| maximum.max(wanted)) };
        if setrlimit(Resource::Nofile, beyond).is_ok() {
            return;
        }
        let allowed = maximum.map_or(wanted, |maximum| maximum.min(wanted));
        let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(allowed), maximum }).is_ok();
        if !raised || allowed < wanted {
            tracing::warn!(wanted, allowed, "the limit on open files is lower than server.connections_max needs");
        }
    }
}
