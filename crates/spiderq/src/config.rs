//! `[spiderq]`: cycle queues with their addresses, the section's checks, and the sessions that it makes.
//! `config/windlass.toml` explains each key to the operator.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};
use windlass_config::{ByteSize, Error, Secret, Tls, credential, positive, senseless};
use windlass_engine::{Clash, NewJob, QueueKind};
use windlass_session::protocol::{
    Daemon, EndedJob, Endpoint, ImportTerms, Listener, NamedNamespace, Protocol, ServedQueue,
    SessionFactory,
};
use windlass_session::{ByNamespace, Listen};
use windlass_zmtp::curve::CurvePublicKey;
use windlass_zmtp::{Access, ConnectionRegistry, Guests, NamespaceLogin, Role, Zmtp};

use crate::session::{Counters, Others, Settings, SpiderqSpeaker, entry};
use crate::wire;

/// The protocol's name.
const NAME: &str = "spiderq";

/// The port of the examples in spiderq's own documentation; it has no port of its own.
const PORT: u16 = 5555;

windlass_config::section! {
    /// `[spiderq]`
    pub struct Spiderq {
        /// Serve the protocol at all.
        pub enabled: bool = true,
        /// Addresses of spiderq; empty for none.
        pub listen: Vec<Listen> = vec![Listen::local(PORT)],
        /// The queue served there.
        pub queue: String = "spiderq".to_owned(),
        /// The dialect.
        pub dialect: Dialect = Dialect::Auto,
        /// Let clients stop the daemon.
        pub terminate: bool = false,
        /// Return a connection's lent entries to the queue when it ends.
        pub release_on_disconnect: bool = false,
        /// The most blocking lends of one connection that may wait.
        pub lends_max: usize = 10_000,
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
        /// More listeners, each with addresses of its own.
        pub more: Vec<SpiderqMore>,
        /// TLS for every TCP address of all listeners.
        pub tls: Tls,
        /// `[zmtp]`, which the registry of protocols puts here.
        #[serde(skip)]
        pub zmtp: Zmtp,
    }
}

/// `[[spiderq.more]]`: missing keys have the values of `[spiderq]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpiderqMore {
    /// Addresses.
    pub listen: Vec<Listen>,
    /// The queue served there.
    pub queue: String,
    /// The dialect.
    pub dialect: Option<Dialect>,
    /// Let clients stop the daemon.
    pub terminate: Option<bool>,
    /// Return a connection's lent entries to the queue when it ends.
    pub release_on_disconnect: Option<bool>,
    /// The user. The keys for access belong together: if one is given, those of `[spiderq]` are not inherited.
    pub user: Option<String>,
    /// The password.
    pub password: Option<Secret>,
    /// A file with the password.
    #[serde(default, deserialize_with = "given")]
    pub password_file: Option<PathBuf>,
    /// A file with the secret key of CURVE.
    #[serde(default, deserialize_with = "given")]
    pub curve_secret_key_file: Option<PathBuf>,
    /// The keys of clients.
    pub curve_clients: Option<Vec<CurvePublicKey>>,
}

/// The dialect of a spiderq listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dialect {
    /// Detected from each client's messages.
    #[serde(rename = "auto")]
    Auto,
    /// 1.3, and 1.4 for clients whose messages show it.
    #[serde(rename = "1.3")]
    V1_3,
    /// 1.4 from the first message.
    #[serde(rename = "1.4")]
    V1_4,
}

/// A file that a listener names itself.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    credential(deserializer).map(Some)
}

impl Dialect {
    /// The dialect from a client's first message on; `None`: each client's requests show it.
    pub(crate) const fn fixed(self) -> Option<wire::Dialect> {
        match self {
            Self::Auto => None,
            Self::V1_3 => Some(wire::Dialect::V1_3),
            Self::V1_4 => Some(wire::Dialect::V1_4),
        }
    }
}

/// The key with this name in a section of `[[spiderq.more]]`, by its number from 1; 0: in `[spiderq]` itself.
fn key(section: usize, name: &str) -> Cow<'static, str> {
    match section {
        0 => format!("{NAME}.{name}").into(),
        section => format!("{NAME}.more.{section}.{name}").into(),
    }
}

impl SpiderqMore {
    fn over(&self, first: &Spiderq) -> Spiderq {
        let more = self.clone();
        let named = Spiderq {
            listen: more.listen,
            queue: more.queue,
            dialect: more.dialect.unwrap_or(first.dialect),
            terminate: more.terminate.unwrap_or(first.terminate),
            release_on_disconnect: more
                .release_on_disconnect
                .unwrap_or(first.release_on_disconnect),
            ..first.clone()
        };
        let is_own = [
            self.password_file.is_some(),
            self.curve_secret_key_file.is_some(),
            self.curve_clients.is_some(),
        ];
        if self.user.is_none() && self.password.is_none() && !is_own.contains(&true) {
            return named;
        }
        Spiderq {
            user: more.user.unwrap_or_default(),
            password: more.password.unwrap_or_default(),
            password_file: more.password_file.unwrap_or_default(),
            curve_secret_key_file: more.curve_secret_key_file.unwrap_or_default(),
            curve_clients: more.curve_clients.unwrap_or_default(),
            namespaces: BTreeMap::new(),
            ..named
        }
    }
}

/// What all connections of an endpoint share, before and after a reload.
#[derive(Debug)]
struct Shared {
    queue: String,
    counters: Arc<Counters>,
    /// Those of namespaces with a name.
    named: Arc<ByNamespace<Counters>>,
    registry: Arc<ConnectionRegistry>,
}

impl Spiderq {
    /// Every served cycle queue with its own section, inherited values filled in, and the section's number: see
    /// `key`.
    pub fn cycles(&self) -> impl Iterator<Item = (usize, Self)> {
        let first = Self {
            more: Vec::new(),
            ..self.clone()
        };
        let more: Vec<_> = self.more.iter().map(|more| more.over(&first)).collect();
        (0..)
            .zip(std::iter::once(first).chain(more))
            .filter(|(_, cycle)| !cycle.listen.is_empty())
    }

    /// The settings of the connections to one cycle queue: to the one of this name, or to the first one.
    ///
    /// # Errors
    ///
    /// [`Error::Senseless`]: there is no such cycle queue, or the password's file cannot be read.
    pub fn settings(&self, queue: Option<&str>, daemon: &Daemon) -> Result<Settings, Error> {
        let cycle = self
            .cycles()
            .find(|(_, cycle)| queue.is_none_or(|queue| queue == cycle.queue));
        let (_, cycle) = cycle.ok_or_else(|| {
            let named = queue.map_or_else(
                || "no cycle".to_owned(),
                |queue| format!("no queue {queue}"),
            );
            Error::senseless("spiderq.queue", format!("{named} is served"))
        })?;
        cycle.own_settings(daemon)
    }

    /// The settings of the connections to the queue of this very section.
    fn own_settings(self, daemon: &Daemon) -> Result<Settings, Error> {
        let transport = self.zmtp.settings(Role::Router, daemon.outbound_bytes_max);
        Ok(Settings {
            zmtp: Arc::new(transport.with(self.guests(daemon)?)),
            ..Settings::new(self)
        })
    }

    fn guests(&self, daemon: &Daemon) -> Result<Guests, Error> {
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
        access.guests(daemon.random)
    }

    /// The endpoint of the queue of this very section.
    fn endpoint(self, daemon: &Daemon) -> Result<Endpoint, Error> {
        let (listen, queue, registry) = (
            self.listen.clone(),
            self.queue.clone(),
            Arc::<ConnectionRegistry>::default(),
        );
        let settings = self.own_settings(daemon)?;
        let guarded = settings.zmtp.mechanism.is_guarded();
        let shared = Shared {
            queue,
            counters: Arc::default(),
            named: Arc::default(),
            registry,
        };
        let sessions = sessions(&shared, settings);
        Ok(Endpoint {
            guarded,
            ..Endpoint::new(NAME, listen, sessions, Arc::new(shared))
        })
    }
}

fn sessions(shared: &Shared, settings: Settings) -> SessionFactory {
    let settings = Arc::new(Settings {
        counters: Arc::clone(&shared.counters),
        others: Some(Arc::new(Others::new(Arc::clone(&shared.named)))),
        ..settings
    });
    Arc::clone(&shared.registry).sessions(move |info, registration| {
        let settings = settings.within(info.namespace.as_deref());
        Box::new(SpiderqSpeaker::session(settings, info, registration))
    })
}

impl Protocol for Spiderq {
    fn id(&self) -> windlass_engine::Protocol {
        windlass_engine::Protocol::SPIDERQ
    }

    fn import_terms(&self) -> ImportTerms {
        ImportTerms {
            kind: QueueKind::Cycle,
            clash: Clash::Keep,
            key_is_identity: true,
        }
    }

    fn check(&self, daemon: &Daemon) -> Result<(), Error> {
        positive(&[("spiderq.lends_max", self.lends_max as u64)])?;
        self.zmtp.check()?;
        self.cycles().try_for_each(|(section, cycle)| {
            let (bytes, most) = (cycle.queue.len() as u64, daemon.name_bytes_max);
            if bytes == 0 {
                return senseless(key(section, "queue"), "must not be empty");
            }
            if bytes > most.0 {
                return senseless(
                    key(section, "queue"),
                    format!("{bytes} bytes, limits.name_bytes_max is {most}"),
                );
            }
            cycle.guests(daemon).map(drop)
        })
    }

    fn listeners(&self) -> Vec<Listener<'_>> {
        let first = std::iter::once((&self.listen, &self.queue));
        let lists =
            (0..).zip(first.chain(self.more.iter().map(|more| (&more.listen, &more.queue))));
        let listeners = lists.flat_map(|(section, (listen, queue))| {
            let listeners = Listener::each(NAME, key(section, "listen"), listen, self.tls());
            listeners.map(move |listener| Listener {
                queue: Some(queue),
                ..listener
            })
        });
        listeners.collect()
    }

    fn namespaces(&self) -> Vec<NamedNamespace> {
        NamedNamespace::each("spiderq.namespaces", self.namespaces.keys())
    }

    fn tls(&self) -> Option<&Tls> {
        Some(&self.tls)
    }

    fn message_bytes_max(&self) -> ByteSize {
        self.zmtp.message_bytes_max
    }

    fn again(&self, ended: EndedJob<'_>) -> Result<NewJob, String> {
        let mut new = entry(ended.queue, ended.unique, ended.body);
        // An entry that is still there goes round, or was dropped: `Add` would leave it as it is.
        if let Some(unique) = &mut new.unique {
            unique.clash = Clash::Refuse;
        }
        Ok(new)
    }

    fn queues(&self) -> Vec<ServedQueue> {
        // Each namespace has a queue of its own under this name.
        let namespaces = |cycle: &Self| -> BTreeSet<Option<Box<str>>> {
            let listen = cycle.listen.iter().map(|it| it.namespace.clone());
            let logins = cycle
                .namespaces
                .keys()
                .map(|name| Some(name.as_str().into()));
            listen.chain(logins).collect()
        };
        let queues = |(section, cycle): (usize, Self)| {
            let of = |namespace| ServedQueue {
                key: key(section, "queue"),
                name: cycle.queue.clone().into(),
                kind: QueueKind::Cycle,
                namespace,
            };
            namespaces(&cycle)
                .into_iter()
                .map(of)
                .collect::<Vec<ServedQueue>>()
        };
        self.cycles().flat_map(queues).collect()
    }

    fn endpoints(&self, daemon: &Daemon) -> Result<Vec<Endpoint>, Error> {
        self.cycles()
            .map(|(_, cycle)| cycle.endpoint(daemon))
            .collect()
    }

    fn renewed(
        &self,
        daemon: &Daemon,
        running: &Endpoint,
    ) -> Result<Option<SessionFactory>, Error> {
        let Some(shared) = running.shared.downcast_ref::<Shared>() else {
            return Ok(None);
        };
        // Several may have the same addresses, with ports of the system's choice.
        let there = self
            .cycles()
            .filter(|(_, cycle)| cycle.listen == running.listen);
        let Some((_, cycle)) = there.min_by_key(|(_, cycle)| cycle.queue != shared.queue) else {
            return Ok(None);
        };
        let settings = Self {
            queue: shared.queue.clone(),
            ..cycle
        }
        .own_settings(daemon)?;
        Ok(Some(sessions(shared, settings)))
    }
}

#[cfg(test)]
mod tests {
    use windlass_testkit::protocol::daemon;
    use windlass_zmtp::{Limits, Login, Mechanism};

    use super::*;

    #[test]
    fn more_cycles_inherit_from_the_first() {
        let text = "dialect = '1.4'\nterminate = true\nuser = 'u'\npassword = 'p'\n\
                    [[more]]\nlisten = ['ipc:///b']\nqueue = 'b'\n\
                    [[more]]\nlisten = ['ipc:///c']\nqueue = 'c'\ndialect = '1.3'\nterminate = false\n\
                    release_on_disconnect = true\nuser = 'v'\npassword_file = '/p'\n\
                    [[more]]\nlisten = []\nqueue = 'nowhere'\n";
        let spiderq: Spiderq = toml::from_str(text).unwrap();
        let cycles: Vec<_> = spiderq.cycles().collect();
        let (_, first) = &cycles[0];
        assert_eq!(
            (&*first.queue, first.dialect, &*first.user),
            ("spiderq", Dialect::V1_4, "u")
        );
        assert_eq!((first.password.expose(), first.more.len()), ("p", 0));
        let listen = |index: usize| spiderq.more[index].listen.clone();
        let b = Spiderq {
            listen: listen(0),
            queue: "b".to_owned(),
            ..first.clone()
        };
        let c = Spiderq {
            listen: listen(1),
            queue: "c".to_owned(),
            dialect: Dialect::V1_3,
            terminate: false,
            release_on_disconnect: true,
            user: "v".to_owned(),
            password_file: "/p".into(),
            ..Spiderq::default()
        };
        assert_eq!(cycles[1..], [(1, b), (2, c)]);
        let off = Spiderq {
            listen: Vec::new(),
            ..Spiderq::default()
        };
        assert_eq!(off.cycles().count(), 0);
    }

    #[derive(Deserialize)]
    struct File {
        #[serde(default)]
        spiderq: Spiderq,
        #[serde(default)]
        zmtp: Zmtp,
    }

    fn cycles(text: &str, daemon: &Daemon) -> Vec<Settings> {
        let File { spiderq, zmtp } = toml::from_str(text).unwrap();
        let spiderq = Spiderq { zmtp, ..spiderq };
        spiderq
            .cycles()
            .map(|(_, cycle)| cycle.own_settings(daemon).unwrap())
            .collect()
    }

    #[test]
    fn every_key_of_spiderq_reaches_its_sessions() {
        let text = "[spiderq]\nqueue = \"a\"\ndialect = \"1.4\"\nterminate = true\n\
                    release_on_disconnect = true\nlends_max = 7\nuser = \"u\"\npassword = \"p\"\n\
                    more = [{listen = [\"ipc:///b\"], queue = \"b\"}]\n\
                    [zmtp]\nmessage_bytes_max = \"1MiB\"\nparts_max = 3\nhandshake_timeout = \"4ms\"\nping_idle = \"5ms\"\n\
                    ping_timeout = \"6ms\"\n";
        let daemon = Daemon {
            outbound_bytes_max: 7_654_321,
            ..daemon()
        };
        let limits = Limits {
            frame_bytes_max: 1 << 20,
            message_bytes_max: 1 << 20,
            parts_max: 3,
            outbound_bytes_max: 7_654_321,
            ..Limits::default()
        };
        let zmtp = windlass_zmtp::Settings {
            role: Role::Router,
            guests: None,
            mechanism: Mechanism::Plain(vec![Login {
                user: "u".into(),
                password: "p".into(),
            }]),
            limits,
            handshake_ms: 4,
            ping_idle_ms: 5,
            ping_timeout_ms: 6,
        };
        for (settings, queue) in cycles(text, &daemon).iter().zip(["a", "b"]) {
            assert_eq!(
                (
                    &*settings.queue,
                    settings.section.dialect.fixed(),
                    &*settings.zmtp
                ),
                (queue.as_bytes(), Some(wire::Dialect::V1_4), &zmtp)
            );
            let section = &settings.section;
            assert_eq!(
                (
                    section.terminate,
                    section.release_on_disconnect,
                    section.lends_max
                ),
                (true, true, 7)
            );
            assert_eq!(settings.frame_bytes_max(), 1 << 20);
        }
    }

    #[test]
    fn the_defaults_are_those_of_a_spiderq_session() {
        let settings = cycles("", &daemon()).remove(0);
        assert_eq!(
            format!("{settings:?}"),
            format!("{:?}", Settings::new(Spiderq::default()))
        );
    }
}
