//! Which protocol each listener speaks: from the configuration to the sessions of its connections.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use windlass_engine::{ClientInfo, QueueCommand, QueueKind, Select};
use windlass_eventmq::publish::{PublishSettings, SubscriberSession};
use windlass_eventmq::session::{EventmqSession, Scheduler, Settings as EventmqSettings};
use windlass_faktory::session::{FaktorySession, Settings as FaktorySettings};
use windlass_gearman::session::{GearmanSession, OnTimeout, Settings, TimeoutUnit};
use windlass_session::alias::{Aliased, Aliases};
use windlass_session::{Post, Session};
use windlass_spiderq::session::{Settings as SpiderqSettings, SpiderqSession};
use windlass_spiderq::wire::Dialect;
use windlass_zmtp::{ConnectionRegistry, HangUp, Limits, Login, Mechanism, Registration, Role};

use crate::clock;
use crate::config::{self, Config, CycleListener, Eventmq, ListenAddress, Tls};
use crate::failure::Failure;
use crate::hub::Hub;
use crate::listen::{Endpoint, SessionFactory};
use crate::run::random_seed;
use crate::tls::Handshaker;

/// A protocol, and its addresses.
pub(crate) type Served<'a> = (Endpoint, &'a [ListenAddress]);

/// All enabled protocols.
pub(crate) fn all(config: &Config) -> Result<Vec<Served<'_>>, Failure> {
    let [faktory_names, gearman_names, eventmq_names] = config::aliases(&config.queues)?;
    let settings = Arc::new(faktory(config)?);
    let guarded = !settings.password.is_empty() || asks_for_certificates(&config.faktory.tls);
    let faktory = Endpoint {
        name: "faktory",
        greet: under(faktory_names, move |info, _| {
            let rng = [random_seed(), random_seed()];
            FaktorySession::new(Arc::clone(&settings), info, rng)
        }),
        tls: acceptor("faktory", &config.faktory.tls, config)?,
        guarded,
        is_admin: |_| false,
    };
    let settings = Arc::new(gearman(config)?);
    let gearman = Endpoint {
        name: "gearman",
        greet: under(gearman_names, move |info, _| GearmanSession::new(Arc::clone(&settings), info)),
        tls: acceptor("gearman", &config.gearman.tls, config)?,
        guarded: asks_for_certificates(&config.gearman.tls),
        // Packets begin with NUL, lines of text with anything else.
        is_admin: |first| first != 0,
    };
    let mut served: Vec<Served<'_>> = vec![(faktory, &config.faktory.listen), (gearman, &config.gearman.listen)];
    for cycle in config.spiderq.cycles() {
        served.push((spiderq(&cycle, config)?, cycle.listen));
    }
    served.extend(eventmq(config, &Arc::new(eventmq_names)));
    Ok(served)
}

/// Makes sessions, wrapped in [`Aliased`] if queues have other names in this protocol.
fn under<S: Session + 'static>(
    names: Aliases,
    greet: impl Fn(ClientInfo, Arc<dyn Post>) -> S + Send + Sync + 'static,
) -> SessionFactory {
    let names = Arc::new(names);
    Arc::new(move |info, line| named(&names, greet(info, line)))
}

fn named<S: Session + 'static>(names: &Arc<Aliases>, session: S) -> Box<dyn Session> {
    if names.is_empty() { Box::new(session) } else { Box::new(Aliased::new(session, Arc::clone(names))) }
}

/// The listener of one cycle queue: its connections share a roster and their counters.
fn spiderq(cycle: &CycleListener<'_>, config: &Config) -> Result<Endpoint, Failure> {
    let settings = Arc::new(cycle_settings(cycle, config)?);
    let guarded = matches!(settings.zmtp.mechanism, Mechanism::Plain(_));
    let greet = move |info, registration, _| -> Box<dyn Session> {
        Box::new(SpiderqSession::new(Arc::clone(&settings), info, registration))
    };
    Ok(Endpoint { guarded, ..zeromq("spiderq", config, greet) })
}

/// EventMQ's roles. All share workers, schedulers and subscribers; identities belong to one listener.
fn eventmq<'a>(config: &'a Config, names: &Arc<Aliases>) -> [Served<'a>; 4] {
    let subscribers = Arc::new(subscriber_settings(config));
    let everywhere = EventmqSettings { exchange: Arc::clone(&subscribers.exchange), ..eventmq_settings(config) };
    let admin = Arc::new(EventmqSettings { disconnect: config.eventmq.disconnect, ..everywhere.clone() });
    let everywhere = Arc::new(everywhere);
    config.eventmq.roles().map(|(name, listen)| {
        let (subscribers, names) = (Arc::clone(&subscribers), Arc::clone(names));
        let settings = Arc::clone(if name == Eventmq::ADMIN { &admin } else { &everywhere });
        let protocol = zeromq(name, config, move |info, registration, line| {
            if name == Eventmq::SUBSCRIBE {
                return Box::new(SubscriberSession::new(Arc::clone(&subscribers), info, registration, line));
            }
            named(&names, EventmqSession::new(Arc::clone(&settings), info, registration, line, random_seed()))
        });
        (protocol, listen.as_slice())
    })
}

/// A protocol over ZeroMQ. All connections of a listener share a roster.
fn zeromq<F>(name: &'static str, config: &Config, greet: F) -> Endpoint
where
    F: Fn(ClientInfo, Registration, Arc<dyn Post>) -> Box<dyn Session> + Send + Sync + 'static,
{
    let registry = ConnectionRegistry::new(config.zmtp.handshakes_max);
    let greet = move |info, line: Arc<dyn Post>| {
        let hung_up = Arc::clone(&line);
        let hang_up: HangUp = Arc::new(move |close| hung_up.dismiss(close.into()));
        greet(info, registry.enter(hang_up), line)
    };
    Endpoint { name, greet: Arc::new(greet), tls: None, guarded: false, is_admin: |_| false }
}

/// Creates the queues that listeners serve by name, before a client can create queues of the same names with another kind.
///
/// # Errors
///
/// A queue exists with another kind, or there are too many queues.
pub(crate) fn make_queues(hub: &Hub, config: &Config) -> Result<(), Failure> {
    for cycle in config.spiderq.cycles() {
        let queue = cycle.queue.to_owned().into();
        if let Err(why) = hub.ask(QueueCommand::Create { queue, kind: QueueKind::Cycle }) {
            let reason = format!("{}: {why}", cycle.queue.escape_debug());
            return Err(config::Error::Senseless { key: "spiderq.queue", reason }.into());
        }
    }
    Ok(())
}

fn asks_for_certificates(files: &Tls) -> bool {
    !files.client_ca.as_os_str().is_empty()
}

fn acceptor(protocol: &'static str, files: &Tls, config: &Config) -> Result<Option<Arc<Handshaker>>, Failure> {
    let acceptor = Handshaker::new(files, config.server.handshake_timeout.into());
    Ok(acceptor.map_err(|reason| config::Error::Tls { protocol, reason })?.map(Arc::new))
}

pub(crate) fn faktory(config: &Config) -> Result<FaktorySettings, Failure> {
    let faktory = &config.faktory;
    let password = faktory
        .secret()
        .map_err(|error| config::Error::Senseless { key: "faktory.password_file", reason: error.to_string() })?;
    Ok(FaktorySettings {
        line_bytes_max: faktory.line_bytes_max.bytes(),
        password,
        description: faktory.description.clone(),
        reserve_min_s: faktory.reserve_min.as_ms() / 1_000,
        batch_open_ms: faktory.batch_open_max.as_ms(),
        unique_args_bytes_max: faktory.unique_args_bytes_max.bytes(),
        fetch_wait_ms: faktory.fetch_wait.as_ms(),
        handshake_ms: faktory.hello_timeout.as_ms(),
        connections_max: if faktory.connections_max == 0 { usize::MAX } else { faktory.connections_max },
        memory_mb: resident_mb,
        clock_ns: clock::wall_ns,
        ..FaktorySettings::new(clock::now())
    })
}

/// Resident memory of this process as the system counts it, in MiB; 0 if unknown.
fn resident_mb() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    (pages.unwrap_or_default() * rustix::param::page_size() as u64) >> 20
}

pub(crate) fn gearman(config: &Config) -> Result<Settings, Failure> {
    let gearman = &config.gearman;
    let prefix = gearman
        .prefix()
        .map_err(|error| config::Error::Senseless { key: "gearman.handle_prefix", reason: error.to_string() })?;
    Ok(Settings {
        frame_bytes_max: gearman.frame_bytes_max.bytes(),
        line_bytes_max: gearman.line_bytes_max.bytes(),
        version_text: gearman.version.clone(),
        verbosity_text: config.log.level.to_uppercase(),
        job_retries: gearman.job_retries,
        keep_failed: gearman.keep_failed,
        on_timeout: match gearman.on_timeout {
            config::OnTimeout::Auto | config::OnTimeout::Fail => OnTimeout::Fail,
            config::OnTimeout::Requeue => OnTimeout::Requeue,
        },
        timeout_unit: match gearman.timeout_unit {
            config::TimeoutUnit::Ms => TimeoutUnit::Milliseconds,
            config::TimeoutUnit::S => TimeoutUnit::Seconds,
        },
        round_robin: gearman.round_robin,
        exceptions: gearman.exceptions,
        shutdown: gearman.shutdown,
        ..Settings::new(prefix)
    })
}

/// The settings of spiderq's connections to one cycle queue.
pub(crate) fn cycle_settings(cycle: &CycleListener<'_>, config: &Config) -> Result<SpiderqSettings, Failure> {
    let password = cycle
        .secret()
        .map_err(|error| config::Error::Senseless { key: "spiderq.password_file", reason: error.to_string() })?;
    let login = Login { user: cycle.user.to_owned().into(), password: password.into() };
    let mechanism = if cycle.user.is_empty() { Mechanism::Null } else { Mechanism::Plain(vec![login]) };
    let transport = windlass_zmtp::Settings { mechanism, ..transport(config, Role::Router) };
    Ok(SpiderqSettings {
        dialect: match cycle.dialect {
            config::Dialect::Auto => None,
            config::Dialect::V1_3 => Some(Dialect::V1_3),
            config::Dialect::V1_4 => Some(Dialect::V1_4),
        },
        terminate: cycle.terminate,
        release_on_disconnect: cycle.release_on_disconnect,
        frame_bytes_max: config.zmtp.message_bytes_max.bytes(),
        lends_max: config.spiderq.lends_max,
        zmtp: Arc::new(transport),
        ..SpiderqSettings::new(cycle.queue.to_owned().into())
    })
}

/// By the names that EventMQ uses for the queues.
fn failure_values(config: &Config) -> BTreeMap<Bytes, Vec<Bytes>> {
    let queues = config.queues.iter().filter(|(_, rules)| !rules.failure_values.is_empty());
    let values = queues.map(|(queue, rules)| {
        let name = rules.aliases.eventmq.as_ref().unwrap_or(queue);
        (name.clone().into(), rules.failure_values.iter().map(|pattern| pattern.clone().into()).collect())
    });
    values.collect()
}

/// The settings of EventMQ's connections, except those that may stop the daemon.
fn eventmq_settings(config: &Config) -> EventmqSettings {
    let eventmq = &config.eventmq;
    EventmqSettings {
        disconnect: false,
        heartbeat_ms: eventmq.heartbeat.as_ms(),
        heartbeat_timeout_ms: eventmq.heartbeat_timeout.as_ms(),
        nudge_ms: eventmq.nudge.as_ms(),
        nudge_ms_max: eventmq.nudge_max.as_ms(),
        lease_ms: eventmq.lease.as_ms(),
        timeout_grace_ms: eventmq.timeout_grace.as_ms(),
        select: match eventmq.order {
            config::Order::Weight => Select::Weighted,
            config::Order::Inform => Select::ListOrder,
        },
        fallback: eventmq.fallback.clone().into(),
        jobs_max: eventmq.jobs_max,
        keep_failed: eventmq.keep_failed,
        failure_values: failure_values(config),
        binary_workers: eventmq.binary_workers,
        losses_max: eventmq.losses_max,
        dedup_ms: eventmq.dedup.as_ms(),
        scheduler: match eventmq.scheduler {
            config::Scheduler::Embedded => Scheduler::Embedded,
            config::Scheduler::External => Scheduler::External,
        },
        zmtp: Arc::new(transport(config, Role::Router)),
        ..EventmqSettings::new()
    }
}

/// The settings of subscribers' connections.
fn subscriber_settings(config: &Config) -> PublishSettings {
    PublishSettings {
        topics_max: config.eventmq.topics_max,
        topic_bytes_max: config.eventmq.topic_bytes_max.bytes(),
        zmtp: Arc::new(transport(config, Role::Pub)),
        exchange: Arc::default(),
    }
}

/// The settings of ZeroMQ's transport without security, for one side of a pattern.
fn transport(config: &Config, role: Role) -> windlass_zmtp::Settings {
    let zmtp = &config.zmtp;
    let message_bytes_max = zmtp.message_bytes_max.bytes();
    windlass_zmtp::Settings {
        limits: Limits {
            frame_bytes_max: message_bytes_max,
            message_bytes_max,
            parts_max: zmtp.parts_max,
            outbound_bytes_max: config.server.outbound_bytes_max.bytes(),
            ..Limits::default()
        },
        handshake_ms: zmtp.handshake_timeout.as_ms(),
        ping_idle_ms: zmtp.ping_idle.as_ms(),
        ping_timeout_ms: zmtp.ping_timeout.as_ms(),
        ..windlass_zmtp::Settings::new(role)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use windlass_gearman::wire::HandlePrefix;

    use super::*;

    fn settings(text: &str) -> Settings {
        gearman(&Config::parse(Path::new("windlass.toml"), text).unwrap()).unwrap()
    }

    #[test]
    fn every_key_of_gearman_reaches_its_sessions() {
        let text = "log.level = \"debug\"\n[gearman]\nframe_bytes_max = \"1MiB\"\nline_bytes_max = \"4KiB\"\njob_retries = 3\n\
                    keep_failed = false\non_timeout = \"requeue\"\ntimeout_unit = \"s\"\nround_robin = true\nexceptions = true\nshutdown = true\n\
                    handle_prefix = \"H:here\"\nversion = \"2.0.0\"\n";
        let expected = Settings {
            frame_bytes_max: 1 << 20,
            line_bytes_max: 4096,
            handle_prefix: HandlePrefix::new(b"H:here").unwrap(),
            version_text: "2.0.0".to_owned(),
            verbosity_text: "DEBUG".to_owned(),
            pid: std::process::id(),
            job_retries: 3,
            keep_failed: false,
            on_timeout: OnTimeout::Requeue,
            timeout_unit: TimeoutUnit::Seconds,
            round_robin: true,
            exceptions: true,
            shutdown: true,
        };
        assert_eq!(settings(text), expected);
    }

    fn cycles(text: &str) -> Vec<SpiderqSettings> {
        let config = Config::parse(Path::new("windlass.toml"), text).unwrap();
        config.spiderq.cycles().map(|cycle| cycle_settings(&cycle, &config).unwrap()).collect()
    }

    #[test]
    fn every_key_of_spiderq_reaches_its_sessions() {
        let text = "server.outbound_bytes_max = 7654321\n[spiderq]\nqueue = \"a\"\ndialect = \"1.4\"\nterminate = true\n\
                    release_on_disconnect = true\nlends_max = 7\nuser = \"u\"\npassword = \"p\"\n\
                    more = [{listen = [\"ipc:///b\"], queue = \"b\"}]\n\
                    [zmtp]\nmessage_bytes_max = \"1MiB\"\nparts_max = 3\nhandshake_timeout = \"4ms\"\nping_idle = \"5ms\"\n\
                    ping_timeout = \"6ms\"\n";
        let limits = Limits {
            frame_bytes_max: 1 << 20,
            message_bytes_max: 1 << 20,
            parts_max: 3,
            outbound_bytes_max: 7_654_321,
            ..Limits::default()
        };
        let zmtp = windlass_zmtp::Settings {
            role: Role::Router,
            mechanism: Mechanism::Plain(vec![Login { user: "u".into(), password: "p".into() }]),
            limits,
            handshake_ms: 4,
            ping_idle_ms: 5,
            ping_timeout_ms: 6,
        };
        for (settings, queue) in cycles(text).iter().zip(["a", "b"]) {
            assert_eq!(
                (&*settings.queue, settings.dialect, &*settings.zmtp),
                (queue.as_bytes(), Some(Dialect::V1_4), &zmtp)
            );
            assert_eq!((settings.terminate, settings.release_on_disconnect), (true, true));
            assert_eq!((settings.frame_bytes_max, settings.lends_max), (1 << 20, 7));
        }
    }

    #[test]
    fn the_defaults_are_those_of_a_spiderq_session() {
        let settings = cycles("").remove(0);
        assert_eq!(format!("{settings:?}"), format!("{:?}", SpiderqSettings::new("spiderq".into())));
    }

    #[test]
    fn every_key_of_eventmq_reaches_its_sessions() {
        let text = "[eventmq]\nheartbeat = \"1ms\"\nheartbeat_timeout = \"2ms\"\nnudge = \"3ms\"\nnudge_max = \"4ms\"\n\
                    lease = \"5ms\"\ntimeout_grace = \"6ms\"\norder = \"inform\"\nfallback = \"f\"\njobs_max = 7\n\
                    keep_failed = false\nbinary_workers = true\nlosses_max = 8\ndedup = \"9ms\"\nscheduler = \"external\"\ntopics_max = 10\n\
                    topic_bytes_max = 11\n[zmtp]\nmessage_bytes_max = \"1MiB\"\n[queues.a]\nfailure_values = [\"e*\"]\n\
                    [queues.b]\nfailure_values = [\"f\"]\naliases.eventmq = \"c\"\n";
        let config = Config::parse(Path::new("windlass.toml"), text).unwrap();
        let expected = EventmqSettings {
            disconnect: false,
            heartbeat_ms: 1,
            heartbeat_timeout_ms: 2,
            nudge_ms: 3,
            nudge_ms_max: 4,
            lease_ms: 5,
            timeout_grace_ms: 6,
            select: Select::ListOrder,
            fallback: "f".into(),
            jobs_max: 7,
            keep_failed: false,
            failure_values: BTreeMap::from([("a".into(), vec!["e*".into()]), ("c".into(), vec!["f".into()])]),
            binary_workers: true,
            losses_max: 8,
            dedup_ms: 9,
            scheduler: Scheduler::External,
            zmtp: Arc::new(transport(&config, Role::Router)),
            directory: Arc::default(),
            exchange: Arc::default(),
        };
        assert_eq!(expected.zmtp.limits.message_bytes_max, 1 << 20);
        assert_eq!(format!("{:?}", eventmq_settings(&config)), format!("{expected:?}"));
        let subscribers = subscriber_settings(&config);
        assert_eq!((subscribers.topics_max, subscribers.topic_bytes_max), (10, 11));
        assert_eq!(*subscribers.zmtp, transport(&config, Role::Pub));
    }

    #[test]
    fn the_defaults_are_those_of_an_eventmq_session() {
        let config = Config::default();
        assert_eq!(format!("{:?}", eventmq_settings(&config)), format!("{:?}", EventmqSettings::new()));
        assert_eq!(*subscriber_settings(&config).zmtp, windlass_zmtp::Settings::new(Role::Pub));
    }

    #[test]
    fn the_defaults_are_those_of_a_session() {
        let settings = settings("");
        let expected = Settings { version_text: "1.1.20".to_owned(), ..Settings::new(settings.handle_prefix) };
        assert_eq!(settings, expected);
    }
}
