//! Turns the configured protocols into bound listeners: the parts of the daemon that sessions use,
//! TLS, and queues that must exist.

use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use windlass_bridge::{Bridge, Side};
use windlass_config::{Error, Failure, Tls};
use windlass_engine::{Namespace, Patterns, QueueCommand, QueueImage, Refusal};
use windlass_session::protocol::{Daemon, Endpoint, Protocol, ServedQueue};

use crate::config::{self, Config};
use crate::random::random_seed;
use windlass_hub::{Hub, ProtocolNames, clock};
use windlass_net::{Handshaker, Served};

/// The names of the configured protocols.
pub(crate) fn names(config: &Config) -> ProtocolNames {
    let name = |protocol: &Arc<dyn Protocol>| (protocol.id(), protocol.name(), protocol.title());
    ProtocolNames::new(config.protocols.iter().map(name).collect())
}

/// The endpoints of all protocols.
pub(crate) fn all(config: &Config) -> Result<Vec<Served>, Failure> {
    let mut served = Vec::new();
    for protocol in &config.protocols {
        let tls = protocol
            .tls()
            .map_or(Ok(None), |files| handshaker(protocol.name(), files, config))?;
        let is_certified = protocol.tls().is_some_and(Tls::asks_for_certificates);
        let endpoints = protocol.endpoints(&daemon(config, protocol.name())?)?;
        served.extend(endpoints.into_iter().map(|endpoint| {
            let endpoint = Endpoint {
                guarded: endpoint.guarded || is_certified,
                ..endpoint
            };
            let sessions = Arc::new(ArcSwap::from_pointee(Arc::clone(&endpoint.sessions)));
            Served {
                endpoint,
                sessions,
                tls: tls.clone(),
            }
        }));
    }
    Ok(served)
}

fn handshaker(
    protocol: &'static str,
    files: &Tls,
    config: &Config,
) -> Result<Option<Arc<Handshaker>>, Failure> {
    let handshaker = Handshaker::new(
        files,
        config.server.handshake_timeout.into(),
        config.certificate_names(),
    );
    Ok(handshaker
        .map_err(|reason| Error::Tls { protocol, reason })?
        .map(Arc::new))
}

/// The parts of the daemon that a protocol or port uses under this configuration.
///
/// # Errors
///
/// [`Error::Senseless`] if one alias names two queues.
pub fn daemon(config: &Config, protocol: &str) -> Result<Daemon, Error> {
    Ok(Daemon {
        now: clock::now,
        wall_ns: clock::wall_ns,
        memory_mb: resident_mb,
        random: random_seed,
        host: host(config),
        log_level: config.log.level.clone(),
        outbound_bytes_max: config.server.outbound_bytes_max.bytes(),
        name_bytes_max: config.limits.name_bytes_max,
        bridge: Arc::new(bridge(config)),
        aliases: Arc::new(config::aliases(&config.queues, protocol)?),
        failure_values: failure_values(config, protocol),
    })
}

/// The name of the machine, or of the cluster, so that a handle issued by one daemon is valid at
/// all of them.
fn host(config: &Config) -> Bytes {
    if config.cluster.is_on() {
        return Bytes::copy_from_slice(config.cluster.name.as_bytes());
    }
    Bytes::copy_from_slice(rustix::system::uname().nodename().to_bytes())
}

/// All protocols that share jobs.
pub(crate) fn bridge(config: &Config) -> Bridge {
    let side = |protocol: &Arc<dyn Protocol>| Side {
        protocol: protocol.id(),
        name: protocol.name(),
        origin: protocol.origin(),
    };
    Bridge::new(config.protocols.iter().map(side).collect())
}

/// The patterns by the protocol's queue names. A queue without patterns overrides those of less
/// specific names.
fn failure_values(config: &Config, protocol: &str) -> Patterns<Vec<Bytes>> {
    let values = config.queues.iter().map(|(queue, rules)| {
        let name = rules.aliases.get(protocol).unwrap_or(queue);
        (
            name.clone().into(),
            rules
                .failure_values
                .iter()
                .map(|pattern| pattern.clone().into())
                .collect(),
        )
    });
    values.collect()
}

/// Resident memory of this process as the system counts it, in MiB; 0 if unknown.
fn resident_mb() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    (pages.unwrap_or_default() * rustix::param::page_size() as u64) >> 20
}

/// Creates the queues that listeners serve by name, before clients can create them with another
/// kind.
///
/// # Errors
///
/// A queue exists with another kind, or there are too many queues.
pub(crate) fn make_queues(hub: &Hub, config: &Config) -> Result<(), Failure> {
    for served in config
        .protocols
        .iter()
        .flat_map(|protocol| protocol.queues())
    {
        let create = QueueCommand::Create {
            queue: served.name.clone(),
            kind: served.kind,
        };
        hub.ask_in(served.namespace.as_deref(), create.into())
            .map_err(|why| refused(&served, &why))?;
    }
    Ok(())
}

/// Checks that none of these queues has another kind than a listener serves.
///
/// # Errors
///
/// The first such queue.
pub(crate) fn check_queues(queues: &[QueueImage], config: &Config) -> Result<(), Failure> {
    for served in config
        .protocols
        .iter()
        .flat_map(|protocol| protocol.queues())
    {
        let is_other = |queue: &QueueImage| {
            queue.id.namespace() == Namespace::UNNAMED
                && queue.name == served.name
                && queue.kind != served.kind
        };
        // Numbers of other namespaces are not known yet.
        if served.namespace.is_none() && queues.iter().any(is_other) {
            return Err(refused(&served, &Refusal::WrongKind));
        }
    }
    Ok(())
}

fn refused(served: &ServedQueue, why: &Refusal) -> Failure {
    let name = String::from_utf8_lossy(&served.name);
    let is_other = *why == Refusal::WrongKind;
    let advice = if is_other {
        ": name another queue, or start without this one, then end its jobs and remove it"
    } else {
        ""
    };
    Error::senseless(
        served.key.clone(),
        format!("{}: {why}{advice}", name.escape_debug()),
    )
    .into()
}

#[cfg(test)]
mod tests {
    use windlass_config::ListenAddress;
    use windlass_engine::{Engine, Limits, QueueKind};
    use windlass_store::Journal;

    use super::*;
    use crate::config::fixture::config;
    use windlass_hub::{Broker as _, Durability};
    use windlass_net::testing::Files;

    #[test]
    fn patterns_of_failures_stand_under_the_protocols_names_of_queues() {
        let config = config(
            "[queues.a]\nfailure_values = [\"e*\"]\n[queues.b]\nfailure_values = [\"f\"]\naliases.eventmq = \"c\"\n",
        );
        let values = |second: &'static str| {
            Patterns::from_iter([
                ("a".into(), vec!["e*".into()]),
                (Bytes::from(second), vec!["f".into()]),
            ])
        };
        assert_eq!(failure_values(&config, "eventmq"), values("c"));
        assert_eq!(failure_values(&config, "gearman"), values("b"));
    }

    #[test]
    fn certificates_guard_the_endpoints_of_a_protocol() {
        let files = Files::new(2040);
        let names = |text: &str, is_meant: fn(&Served) -> bool| {
            let served = all(&config(text)).unwrap();
            let mut names: Vec<_> = served
                .iter()
                .filter(|it| is_meant(it))
                .map(|it| it.endpoint.name)
                .collect();
            names.dedup();
            names
        };
        let (guarded, encrypted) = (
            |it: &Served| it.endpoint.guarded,
            |it: &Served| it.tls.is_some(),
        );
        let encrypts = format!("[gearman.tls]\n{}", files.toml());
        assert_eq!(
            (names(&encrypts, guarded), names(&encrypts, encrypted)),
            (vec![], vec!["gearman"])
        );
        let demands = format!("{encrypts}client_ca = {:?}", files.tls.certificate);
        assert_eq!(
            (names(&demands, guarded), names(&demands, encrypted)),
            (vec!["gearman"], vec!["gearman"])
        );
        assert_eq!(names("", encrypted), [""; 0]);
    }

    #[test]
    fn a_daemon_has_the_name_of_its_machine_or_of_its_cluster() {
        let mut config = config("");
        let machine = rustix::system::uname();
        assert_eq!(
            daemon(&config, "gearman").unwrap().host,
            machine.nodename().to_bytes()
        );
        (config.cluster.listen, config.cluster.name) =
            (vec!["127.0.0.1:7".parse().unwrap()], "ours".to_owned());
        assert_eq!(daemon(&config, "gearman").unwrap().host, "ours");
    }

    #[test]
    fn jobs_can_cross_to_every_configured_protocol() {
        let config = config("");
        let bridge = daemon(&config, "gearman").unwrap().bridge;
        for protocol in &config.protocols {
            assert_eq!(bridge.protocol(protocol.name()), Some(protocol.id()));
        }
    }

    #[test]
    fn resident_memory_is_counted_in_mebibytes() {
        const MIB: u64 = 32;
        let held = std::hint::black_box(vec![7_u8; usize::try_from(MIB << 20).unwrap()]);
        let memory_mb = (daemon(&config(""), "gearman").unwrap().memory_mb)();
        assert!((MIB..1 << 20).contains(&memory_mb), "{memory_mb}");
        drop(std::hint::black_box(held));
    }

    #[test]
    fn listeners_have_their_queues_before_a_client_can_make_others_of_these_names() {
        let hub = || {
            Hub::new(
                Engine::new(Limits::default(), 7),
                Journal::new(),
                Durability::Soon,
                7,
            )
        };
        let make = |hub: &Hub, kind| {
            hub.ask(
                QueueCommand::Create {
                    queue: "ring".into(),
                    kind,
                }
                .into(),
            )
        };
        let config = config("spiderq.queue = \"ring\"");
        let first = hub();
        make_queues(&first, &config).unwrap();
        assert!(make(&first, QueueKind::Work).is_err() && make(&first, QueueKind::Cycle).is_ok());
        make_queues(&first, &config).unwrap();
        let second = hub();
        make(&second, QueueKind::Work).unwrap();
        let failure = make_queues(&second, &config).unwrap_err().to_string();
        assert!(
            failure.contains("spiderq.queue") && failure.contains("ring"),
            "{failure}"
        );
    }

    #[test]
    fn endpoints_have_the_addresses_of_the_listeners() {
        let config = config("spiderq.more = [{ listen = [\"ipc:///b\"], queue = \"b\" }]");
        let served = all(&config).unwrap();
        let named = |name: &'static str, address: &ListenAddress| format!("{name} {address}");
        let listeners: Vec<String> = config
            .listeners()
            .map(|it| named(it.protocol, it.address))
            .collect();
        let endpoints = served.iter().map(|served| &served.endpoint);
        let endpoints = endpoints.flat_map(|it| {
            it.listen
                .iter()
                .map(|listen| named(it.name, &listen.address))
        });
        assert_eq!(endpoints.collect::<Vec<_>>(), listeners);
        assert_eq!(listeners.len(), 9);
    }
}
