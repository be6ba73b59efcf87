//! `[eventmq]`: the addresses of its roles, the section's checks, and the sessions that it makes.
//! `config/windlass.toml` explains each key to the operator.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use windlass_bridge::Origin;
use windlass_config::{ByteSize, Error, Period, Secret, Tls, credential, positive, senseless};
use windlass_engine::{Clash, NewJob, QueueKind, Select};
use windlass_session::Listen;
use windlass_session::protocol::{
    Daemon, EndedJob, Endpoint, ImportTerms, Listener, NamedNamespace, Protocol, Publications,
    SessionFactory,
};
use windlass_zmtp::curve::CurvePublicKey;
use windlass_zmtp::{Access, ConnectionRegistry, NamespaceLogin, Role, Zmtp};

use crate::bridge::EventmqOrigin;
use crate::elsewhere::Everywhere;
use crate::publish::SubscriberSpeaker;
use crate::session::{EventmqSpeaker, Others, Settings, without_headers};

/// The protocol's name.
const NAME: &str = "eventmq";

/// The stock router's front end, for clients and schedulers, and its back end, for workers.
const ROUTER_PORTS: [u16; 2] = [47291, 47290];

/// The stock router's administrative port.
const ADMIN_PORT: u16 = 47293;

/// The stock publisher's two ports.
const PUBLISH_PORT: u16 = 47298;
const SUBSCRIBE_PORT: u16 = 47299;

windlass_config::section! {
    /// `[eventmq]`
    pub struct Eventmq {
        /// Serve the protocol at all.
        pub enabled: bool = true,
        /// Addresses for clients, workers and schedulers; empty for none.
        pub listen: Vec<Listen> = ROUTER_PORTS.map(Listen::local).to_vec(),
        /// Addresses for the same roles and for administrators, who can stop the daemon if [`Eventmq::disconnect`] is set.
        pub admin_listen: Vec<Listen> = vec![Listen::local(ADMIN_PORT)],
        /// Addresses for the same roles, where stock publishers connect.
        pub publish_listen: Vec<Listen> = vec![Listen::local(PUBLISH_PORT)],
        /// Addresses for subscribers.
        pub subscribe_listen: Vec<Listen> = vec![Listen::local(SUBSCRIBE_PORT)],
        /// `DISCONNECT` at [`Eventmq::admin_listen`] stops the daemon.
        pub disconnect: bool = false,
        /// The user that clients must send, with `password`; both empty for no login.
        pub user: String,
        /// The password that clients must send.
        pub password: Secret,
        /// A file with the password, surrounding blanks ignored; empty for none.
        #[serde(deserialize_with = "credential")]
        pub password_file: PathBuf,
        /// A file with the secret key of CURVE; empty for no encryption.
        #[serde(deserialize_with = "credential")]
        pub curve_secret_key_file: PathBuf,
        /// The keys of clients that may connect with CURVE; empty for all.
        pub curve_clients: Vec<CurvePublicKey>,
        /// The logins that tell a client's namespace, by its name.
        pub namespaces: BTreeMap<String, NamespaceLogin>,
        /// The time between two heartbeats to a worker or scheduler.
        pub heartbeat: Period = Period::from_secs(3),
        /// The silence after which a worker or scheduler counts as dead; 0 = never.
        pub heartbeat_timeout: Period = Period::from_secs(10),
        /// The time between two extra heartbeats to a worker that has jobs and no credit; 0 = none.
        pub nudge: Period = Period::from_ms(2),
        /// The longest time between two such heartbeats.
        pub nudge_max: Period = Period::from_secs(1),
        /// How long a worker may have a job without a `timeout`; 0 = for ever.
        pub lease: Period = Period::from_secs(3_600),
        /// How long after a job's `timeout` its worker may still answer.
        pub timeout_grace: Period = Period::from_secs(5),
        /// How a worker's next job is chosen.
        pub order: Order = Order::Weight,
        /// The queue whose workers also serve queues without workers of their own; empty for none.
        pub fallback: String = "default".to_owned(),
        /// The most jobs and credits of one worker together.
        pub jobs_max: u32 = 4096,
        /// Keep jobs that failed for good in the dead-letter queue.
        pub keep_failed: bool = true,
        /// Workers accept bodies that are not UTF-8.
        pub binary_workers: bool = false,
        /// Workers that may be lost with a job; 0 = the value of `limits.losses_max`.
        pub losses_max: u32 = 0,
        /// How long the identifier of a finished request is remembered; 0 = not at all.
        pub dedup: Period = Period::from_ms(0),
        /// Which scheduler runs schedules.
        pub scheduler: Scheduler = Scheduler::Embedded,
        /// The most topics of one subscriber.
        pub topics_max: usize = 1000,
        /// The most bytes of those topics together.
        pub topic_bytes_max: ByteSize = ByteSize(64 << 10),
        /// TLS for every TCP address of all roles.
        pub tls: Tls,
        /// `[zmtp]`, which the registry of protocols puts here.
        #[serde(skip)]
        pub zmtp: Zmtp,
    }
}

/// The scheduler to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheduler {
    /// The engine. Stock schedulers may connect, but get nothing.
    Embedded,
    /// The stock scheduler that registered last. Without one, schedules are dropped.
    External,
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

impl Order {
    pub(crate) const fn select(self) -> Select {
        match self {
            Self::Weight => Select::Weighted,
            Self::Inform => Select::ListOrder,
        }
    }
}

/// One role with its addresses.
#[derive(Clone, Copy)]
struct RoleListen<'a> {
    role: ServedRole,
    name: &'static str,
    key: &'static str,
    listen: &'a [Listen],
}

/// What the connections of a role share, whatever configuration they were opened under.
#[derive(Debug)]
struct Shared {
    registry: Arc<ConnectionRegistry>,
    everywhere: Arc<Everywhere>,
}

/// What connections may be besides clients, workers and schedulers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ServedRole {
    /// Nothing else.
    Any,
    /// Administrators, too.
    Administrators,
    /// Only subscribers.
    Subscribers,
}

impl Eventmq {
    fn roles(&self) -> [RoleListen<'_>; 4] {
        let role = |role, name, key, listen| RoleListen {
            role,
            name,
            key,
            listen,
        };
        [
            role(ServedRole::Any, NAME, "eventmq.listen", &self.listen),
            role(
                ServedRole::Administrators,
                "eventmq-admin",
                "eventmq.admin_listen",
                &self.admin_listen,
            ),
            role(
                ServedRole::Any,
                "eventmq-publish",
                "eventmq.publish_listen",
                &self.publish_listen,
            ),
            role(
                ServedRole::Subscribers,
                "eventmq-subscribe",
                "eventmq.subscribe_listen",
                &self.subscribe_listen,
            ),
        ]
    }

    /// The transport's settings, for one side of a pattern.
    fn transport(&self, role: Role, daemon: &Daemon) -> Result<windlass_zmtp::Settings, Error> {
        let Self {
            user,
            password,
            password_file,
            curve_secret_key_file,
            curve_clients,
            namespaces,
            ..
        } = self;
        let access = Access {
            section: NAME,
            user,
            password,
            password_file,
            curve_secret_key_file,
            curve_clients,
            namespaces,
        };
        let settings = self.zmtp.settings(role, daemon.outbound_bytes_max);
        Ok(settings.with(access.guests(daemon.random)?))
    }

    /// The settings of a role's connections.
    fn settings(
        &self,
        role: ServedRole,
        shared: &Shared,
        daemon: &Daemon,
    ) -> Result<Settings, Error> {
        let disconnect = self.disconnect && role == ServedRole::Administrators;
        let own = shared.everywhere.within(None);
        let side = if role == ServedRole::Subscribers {
            Role::Pub
        } else {
            Role::Router
        };
        Ok(Settings {
            section: Self {
                disconnect,
                ..self.clone()
            },
            failure_values: daemon.failure_values.clone(),
            bridge: Arc::clone(&daemon.bridge),
            zmtp: Arc::new(self.transport(side, daemon)?),
            directory: Arc::clone(&own.directory),
            exchange: Arc::clone(&own.exchange),
            others: None,
        })
    }

    fn sessions(
        &self,
        role: ServedRole,
        shared: &Shared,
        daemon: &Daemon,
    ) -> Result<SessionFactory, Error> {
        let registry = Arc::clone(&shared.registry);
        let settings = Arc::new(Settings {
            others: Some(Arc::new(Others::new(Arc::clone(&shared.everywhere)))),
            ..self.settings(role, shared, daemon)?
        });
        let daemon = daemon.clone();
        if role == ServedRole::Subscribers {
            return Ok(registry.sessions(move |info, registration| {
                let settings = settings.within(info.namespace.as_deref());
                Box::new(SubscriberSpeaker::session(settings, info, registration))
            }));
        }
        Ok(registry.sessions(move |info, registration| {
            let settings = settings.within(info.namespace.as_deref());
            let random = (daemon.random)();
            daemon.under_aliases(EventmqSpeaker::session(
                settings,
                info,
                registration,
                random,
            ))
        }))
    }
}

impl Protocol for Eventmq {
    fn id(&self) -> windlass_engine::Protocol {
        windlass_engine::Protocol::EVENTMQ
    }

    fn origin(&self) -> Option<Arc<dyn Origin>> {
        Some(Arc::new(EventmqOrigin))
    }

    fn import_terms(&self) -> ImportTerms {
        ImportTerms {
            kind: QueueKind::Work,
            clash: Clash::Attach,
            key_is_identity: false,
        }
    }

    fn check(&self, daemon: &Daemon) -> Result<(), Error> {
        positive(&[
            ("eventmq.heartbeat", self.heartbeat.as_ms()),
            ("eventmq.jobs_max", self.jobs_max.into()),
            ("eventmq.topics_max", self.topics_max as u64),
            ("eventmq.topic_bytes_max", self.topic_bytes_max.0),
        ])?;
        self.zmtp.check()?;
        self.transport(Role::Router, daemon)?;
        if self.nudge_max < self.nudge {
            let reason = format!(
                "{} is less than eventmq.nudge, {}",
                self.nudge_max, self.nudge
            );
            return senseless("eventmq.nudge_max", reason);
        }
        let (bytes, most) = (self.fallback.len() as u64, daemon.name_bytes_max);
        if bytes > most.0 {
            return senseless(
                "eventmq.fallback",
                format!("{bytes} bytes, limits.name_bytes_max is {most}"),
            );
        }
        Ok(())
    }

    fn listeners(&self) -> Vec<Listener<'_>> {
        let roles = self.roles().into_iter();
        roles
            .flat_map(
                |RoleListen {
                     name, key, listen, ..
                 }| Listener::each(name, key, listen, self.tls()),
            )
            .collect()
    }

    fn namespaces(&self) -> Vec<NamedNamespace> {
        NamedNamespace::each("eventmq.namespaces", self.namespaces.keys())
    }

    fn tls(&self) -> Option<&Tls> {
        Some(&self.tls)
    }

    fn message_bytes_max(&self) -> ByteSize {
        self.zmtp.message_bytes_max
    }

    fn alias_rule(&self) -> Option<fn(&[u8]) -> bool> {
        Some(|_| true)
    }

    /// All roles share workers, schedulers and subscribers; identities belong to one role's listeners.
    fn again(&self, ended: EndedJob<'_>) -> Result<NewJob, String> {
        Ok(without_headers(self, ended.queue, ended.body))
    }

    fn endpoints(&self, daemon: &Daemon) -> Result<Vec<Endpoint>, Error> {
        let everywhere = Arc::new(Everywhere::new((daemon.random)()));
        let guarded = self.transport(Role::Router, daemon)?.mechanism.is_guarded();
        let endpoint = |RoleListen {
                            role, name, listen, ..
                        }: RoleListen<'_>| {
            let registry = Arc::<ConnectionRegistry>::default();
            let shared = Shared {
                registry,
                everywhere: Arc::clone(&everywhere),
            };
            let publications = Some(Arc::<Everywhere>::clone(&everywhere) as Arc<dyn Publications>);
            let sessions = self.sessions(role, &shared, daemon)?;
            let endpoint = Endpoint::new(name, listen.to_vec(), sessions, Arc::new(shared));
            Ok(Endpoint {
                guarded,
                publications,
                ..endpoint
            })
        };
        self.roles().into_iter().map(endpoint).collect()
    }

    fn renewed(
        &self,
        daemon: &Daemon,
        running: &Endpoint,
    ) -> Result<Option<SessionFactory>, Error> {
        let role = self.roles().into_iter().find(|it| it.name == running.name);
        let Some((RoleListen { role, .. }, shared)) = role.zip(running.shared.downcast_ref())
        else {
            return Ok(None);
        };
        self.sessions(role, shared, daemon).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use windlass_engine::Patterns;
    use windlass_testkit::protocol::daemon;
    use windlass_zmtp::{Login, Mechanism};

    use super::*;

    fn shared() -> Shared {
        Shared {
            registry: Arc::default(),
            everywhere: Arc::new(Everywhere::new(0)),
        }
    }

    #[test]
    fn every_key_of_eventmq_reaches_its_sessions() {
        let text = "heartbeat = \"1ms\"\nheartbeat_timeout = \"2ms\"\nnudge = \"3ms\"\nnudge_max = \"4ms\"\n\
                    lease = \"5ms\"\ntimeout_grace = \"6ms\"\norder = \"inform\"\nfallback = \"f\"\njobs_max = 7\n\
                    keep_failed = false\nbinary_workers = true\nlosses_max = 8\ndedup = \"9ms\"\nscheduler = \"external\"\ntopics_max = 10\n\
                    topic_bytes_max = 11\nuser = \"u\"\npassword = \"p\"\ndisconnect = true\n";
        let zmtp = Zmtp {
            message_bytes_max: ByteSize(1 << 20),
            ..Zmtp::default()
        };
        let eventmq = Eventmq {
            zmtp,
            ..toml::from_str(text).unwrap()
        };
        let failure_values = Patterns::from_iter([("a".into(), vec!["e*".into()])]);
        let daemon = Daemon {
            failure_values: failure_values.clone(),
            ..daemon()
        };
        let mechanism = Mechanism::Plain(vec![Login {
            user: "u".into(),
            password: "p".into(),
        }]);
        let zmtp = |role| {
            let settings = eventmq.zmtp.settings(role, daemon.outbound_bytes_max);
            windlass_zmtp::Settings {
                mechanism: mechanism.clone(),
                ..settings
            }
        };
        let expected = Settings {
            failure_values,
            zmtp: Arc::new(zmtp(Role::Router)),
            ..Settings::new(Eventmq {
                disconnect: false,
                ..eventmq.clone()
            })
        };
        assert_eq!(expected.zmtp.limits.message_bytes_max, 1 << 20);
        assert_eq!(expected.section.order.select(), Select::ListOrder);
        let shared = shared();
        let settings = |role| eventmq.settings(role, &shared, &daemon).unwrap();
        assert_eq!(
            format!("{:?}", settings(ServedRole::Any)),
            format!("{expected:?}")
        );
        let administrators = Settings {
            section: eventmq.clone(),
            ..expected
        };
        assert_eq!(
            format!("{:?}", settings(ServedRole::Administrators)),
            format!("{administrators:?}")
        );
        assert_eq!(*settings(ServedRole::Subscribers).zmtp, zmtp(Role::Pub));
    }

    #[test]
    fn the_defaults_are_those_of_an_eventmq_session() {
        let settings = Eventmq::default()
            .settings(ServedRole::Any, &shared(), &daemon())
            .unwrap();
        assert_eq!(
            format!("{settings:?}"),
            format!("{:?}", Settings::new(Eventmq::default()))
        );
    }
}
