//! The number of connections, and the resources of each, from the configuration.

use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use windlass_net::Allowance;
use windlass_net::{Bounds, CONNECTIONS, Patience, PlaceLimits};

use crate::config::Config;

/// A connection that has sent nothing for this long may be closed in favour of new ones.
/// Well-behaved peers start sooner.
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

/// The limits on the number of connections, which leave descriptors for files and other threads.
pub(crate) fn places(config: &Config) -> PlaceLimits {
    let (configured, possible) = (config.server.connections_max, Shares::now().protocols);
    PlaceLimits {
        connections_max: configured.min(possible),
        connections_limit: if possible < configured {
            "open files (ulimit -n)"
        } else {
            CONNECTIONS
        },
        reserved: config.server.connections_reserved,
        per_address_max: config.server.connections_per_address_max,
        rate: Allowance::per_minute(config.server.connections_per_address_per_minute),
        failures: Allowance::per_minute(config.server.failed_logins_per_address_per_minute),
        silence_min: SILENCE_MIN,
    }
}

/// How the open files that the system allows are divided among connections. Some remain for the
/// store, listeners and threads, because the store could not work without them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shares {
    /// Connections of the protocols.
    pub(crate) protocols: usize,
    /// Connections of operators.
    pub(crate) operators: usize,
}

impl Shares {
    /// Descriptors that the daemon needs in addition to connections, if the system allows enough.
    const OTHERS: u64 = 192;
    /// Operators get one connection in this many.
    const OPERATORS_PART: u64 = 8;

    /// Computed from the current limit.
    pub(crate) fn now() -> Self {
        Self::of(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
    }

    fn of(limit: u64) -> Self {
        let connections = limit - Self::OTHERS.min(limit / 8 * 3);
        let operators = connections / Self::OPERATORS_PART;
        let [protocols, operators] = [connections - operators, operators]
            .map(|share| usize::try_from(share).unwrap_or(usize::MAX));
        Self {
            protocols,
            operators,
        }
    }

    /// The limit that leaves this many connections to the protocols.
    const fn wanted(protocols: u64) -> u64 {
        let of_all = protocols
            .saturating_mul(Self::OPERATORS_PART)
            .div_ceil(Self::OPERATORS_PART - 1);
        of_all.saturating_add(Self::OTHERS)
    }
}

/// Raises the limit on open files to allow this many connections, as far as the system permits,
/// because many shells allow only 1,024. [`crate::run`] calls this; a process that drops privileges
/// earlier must call it before that.
pub fn allow_open_files(connections_max: usize) {
    let wanted = Shares::wanted(connections_max as u64);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < wanted) {
        // Root may exceed the hard limit.
        let beyond = Rlimit {
            current: Some(wanted),
            maximum: maximum.map(|maximum| maximum.max(wanted)),
        };
        if setrlimit(Resource::Nofile, beyond).is_ok() {
            return;
        }
        let allowed = maximum.map_or(wanted, |maximum| maximum.min(wanted));
        let raised = setrlimit(
            Resource::Nofile,
            Rlimit {
                current: Some(allowed),
                maximum,
            },
        )
        .is_ok();
        let connections = Shares::now().protocols;
        if (!raised || allowed < wanted) && connections < connections_max {
            tracing::warn!(
                wanted,
                allowed,
                connections,
                "the limit on open files (ulimit -n) leaves fewer connections than server.connections_max"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_never_have_all_open_files() {
        let shares = |limit| {
            let Shares {
                protocols,
                operators,
            } = Shares::of(limit);
            (protocols, operators)
        };
        assert_eq!(
            [0, 8, 256, 1024].map(shares),
            [(0, 0), (5, 0), (140, 20), (728, 104)]
        );
        for protocols in [0, 1, 1_000, 10_000] {
            let limit = Shares::wanted(protocols as u64);
            assert!(Shares::of(limit).protocols >= protocols, "{protocols}");
        }
    }
}
