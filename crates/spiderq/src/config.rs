//! `[spiderq]`: cycle queues with their addresses, the section's checks, and the sessions that it makes.
//! `config/windlass.toml` explains each key to the operator.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};
use windlass_config::{ByteSize, Error, Secret, Tls, credential, positive, senseless};
use windlass_engine::{Clash, QueueKind};
use windlass_session::Listen;
use windlass_session::protocol::{Daemon, Endpoint, ImportTerms, Listener, Protocol, ServedQueue, SessionFactory};
use windlass_zmtp::curve::CurvePublicKey;
use windlass_zmtp::{Access, AccessKeys, ConnectionRegistry, Role, Zmtp};

use crate::session::{Counters, Settings, SpiderqSpeaker};
use crate::wire;

/// The protocol's name.
const NAME: &str = "spiderq";

/// The port of the examples in spiderq's own documentation; it has no port of its own.
const PORT: u16 = 5555;

const ACCESS: AccessKeys = AccessKeys {
    user: "spiderq.user",
    password: "spiderq.password",
    password_file: "spiderq.password_file",
    curve_secret_key_file: "spiderq.curve_secret_key_file",
    curve_clients: "spiderq.curve_clients",
};

/// `[spiderq]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Spiderq {
    /// Serve the protocol at all.
    pub enabled: bool,
    /// Addresses of spiderq; empty for none.
    pub listen: Vec<Listen>,
    /// The queue served there.
    pub queue: String,
    /// The dialect.
    pub dialect: Dialect,
    /// Let clients stop the daemon.
    pub terminate: bool,
    /// Return a connection's lent entries to the queue when it ends.
    pub release_on_disconnect: bool,
    /// The most blocking lends of one connection that may wait.
    pub lends_max: usize,
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
    /// More listeners, each with addresses of its own.
    pub more: Vec<SpiderqMore>,
    /// TLS for every TCP address of all listeners.
    pub tls: Tls,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dialect: Option<Dialect>,
    /// Let clients stop the daemon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminate: Option<bool>,
    /// Return a connection's lent entries to the queue when it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release_on_disconnect: Option<bool>,
    /// The user. The keys for access belong together: if one is given, those of `[spiderq]` are not inherited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
    /// A file with the password.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// A file with the secret key of CURVE.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub curve_secret_key_file: Option<PathBuf>,
    /// The keys of clients.
    #[serde(skip_serializing_if = "Option::is_none")]
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

/// One cycle queue, its addresses, and all its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CycleListener<'a> {
    /// The number of its section among `[[spiderq.more]]`, from 1; 0: it is `[spiderq]` itself.
    pub section: usize,
    /// Addresses.
    pub listen: &'a [Listen],
    /// The queue.
    pub queue: &'a str,
    /// The dialect.
    pub dialect: Dialect,
    /// Clients may stop the daemon.
    pub terminate: bool,
    /// A connection's lent entries return to the queue when it ends.
    pub release_on_disconnect: bool,
    /// The clients that may connect.
    pub access: Access<'a>,
}

/// A file that a listener names itself.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    credential(deserializer).map(Some)
}

impl Spiderq {
    /// Every served cycle queue, with inherited values filled in.
    pub fn cycles(&self) -> impl Iterator<Item = CycleListener<'_>> {
        let first = CycleListener {
            section: 0,
            listen: &self.listen,
            queue: &self.queue,
            dialect: self.dialect,
            terminate: self.terminate,
            release_on_disconnect: self.release_on_disconnect,
            access: Access {
                user: &self.user,
                password: &self.password,
                password_file: &self.password_file,
                curve_secret_key_file: &self.curve_secret_key_file,
                curve_clients: &self.curve_clients,
            },
        };
        let more = (1..).zip(&self.more).map(move |(section, more)| CycleListener { section, ..more.over(first) });
        std::iter::once(first).chain(more).filter(|cycle| !cycle.listen.is_empty())
    }
}

impl CycleListener<'_> {
    /// The key with this name in its section.
    fn key(&self, name: &str) -> Cow<'static, str> {
        match self.section {
            0 => format!("{NAME}.{name}").into(),
            section => format!("{NAME}.more.{section}.{name}").into(),
        }
    }
}

impl SpiderqMore {
    fn over<'a>(&'a self, first: CycleListener<'a>) -> CycleListener<'a> {
        let named = CycleListener {
            listen: &self.listen,
            queue: &self.queue,
            dialect: self.dialect.unwrap_or(first.dialect),
            terminate: self.terminate.unwrap_or(first.terminate),
            release_on_disconnect: self.release_on_disconnect.unwrap_or(first.release_on_disconnect),
            ..first
        };
        let nothing = Path::new("");
        let access = Access {
            user: self.user.as_deref().unwrap_or_default(),
            password: self.password.as_ref().unwrap_or(Secret::NONE),
            password_file: self.password_file.as_deref().unwrap_or(nothing),
            curve_secret_key_file: self.curve_secret_key_file.as_deref().unwrap_or(nothing),
            curve_clients: self.curve_clients.as_deref().unwrap_or_default(),
        };
        let is_own = [self.password_file.is_some(), self.curve_secret_key_file.is_some(), self.curve_clients.is_some()];
        if self.user.is_some() || self.password.is_some() || is_own.contains(&true) {
            CycleListener { access, ..named }
        } else {
            named
        }
    }
}

/// spiderq with its transport.
#[derive(Clone, Debug)]
pub struct Configured {
    /// `[spiderq]`
    pub spiderq: Spiderq,
    /// `[zmtp]`
    pub zmtp: Zmtp,
}

/// What all connections of an endpoint share, before and after a reload.
#[derive(Debug)]
struct Shared {
    queue: String,
    counters: Arc<Counters>,
    registry: Arc<ConnectionRegistry>,
}

impl Configured {
    /// The settings of the connections to one cycle queue: to the one of this name, or to the first one.
    ///
    /// # Errors
    ///
    /// [`Error::Senseless`]: there is no such cycle queue, or the password's file cannot be read.
    pub fn settings(&self, queue: Option<&str>, daemon: &Daemon) -> Result<Settings, Error> {
        let cycle = self.spiderq.cycles().find(|cycle| queue.is_none_or(|queue| queue == cycle.queue));
        let cycle = cycle.ok_or_else(|| {
            let named = queue.map_or_else(|| "no cycle".to_owned(), |queue| format!("no queue {queue}"));
            Error::senseless("spiderq.queue", format!("{named} is served"))
        })?;
        self.cycle_settings(&cycle, daemon)
    }

    fn cycle_settings(&self, cycle: &CycleListener<'_>, daemon: &Daemon) -> Result<Settings, Error> {
        let mechanism = cycle.access.mechanism(&ACCESS, daemon.random)?;
        let transport = self.zmtp.settings(Role::Router, daemon.outbound_bytes_max);
        Ok(Settings {
            dialect: match cycle.dialect {
                Dialect::Auto => None,
                Dialect::V1_3 => Some(wire::Dialect::V1_3),
                Dialect::V1_4 => Some(wire::Dialect::V1_4),
            },
            terminate: cycle.terminate,
            release_on_disconnect: cycle.release_on_disconnect,
            frame_bytes_max: self.zmtp.message_bytes_max.bytes(),
            lends_max: self.spiderq.lends_max,
            zmtp: Arc::new(windlass_zmtp::Settings { mechanism, ..transport }),
            ..Settings::new(cycle.queue.to_owned().into())
        })
    }

    /// The endpoint of one cycle queue.
    fn endpoint(&self, cycle: &CycleListener<'_>, daemon: &Daemon) -> Result<Endpoint, Error> {
        let settings = self.cycle_settings(cycle, daemon)?;
        let guarded = settings.zmtp.mechanism.is_guarded();
        let (queue, counters) = (cycle.queue.to_owned(), Arc::clone(&settings.counters));
        let shared = Shared { queue, counters, registry: self.zmtp.registry() };
        Ok(Endpoint {
            name: NAME,
            listen: cycle.listen.to_vec(),
            sessions: Self::sessions(&shared, settings),
            shared: Arc::new(shared),
            guarded,
            is_admin: |_| false,
            pages: Vec::new(),
            publications: None,
        })
    }

    fn sessions(shared: &Shared, settings: Settings) -> SessionFactory {
        let settings = Arc::new(settings);
        Arc::clone(&shared.registry).sessions(move |info, registration| {
            Box::new(SpiderqSpeaker::session(Arc::clone(&settings), info, registration))
        })
    }
}

impl Protocol for Configured {
    fn name(&self) -> &'static str {
        NAME
    }

    fn id(&self) -> windlass_engine::Protocol {
        windlass_engine::Protocol::SPIDERQ
    }

    fn title(&self) -> &'static str {
        "spiderq"
    }

    fn import_terms(&self) -> ImportTerms {
        ImportTerms { kind: QueueKind::Cycle, clash: Clash::Keep, key_is_identity: true }
    }

    fn check(&self, daemon: &Daemon) -> Result<(), Error> {
        positive(&[("spiderq.lends_max", self.spiderq.lends_max as u64)])?;
        self.zmtp.check()?;
        self.spiderq.cycles().try_for_each(|cycle| {
            let (bytes, most) = (cycle.queue.len() as u64, daemon.name_bytes_max);
            if bytes == 0 {
                return senseless(cycle.key("queue"), "must not be empty");
            }
            if bytes > most.0 {
                return senseless(cycle.key("queue"), format!("{bytes} bytes, limits.name_bytes_max is {most}"));
            }
            cycle.access.mechanism(&ACCESS, daemon.random).map(drop)
        })
    }

    fn listeners(&self) -> Vec<Listener<'_>> {
        let cycles = self.spiderq.cycles().flat_map(|cycle| {
            let listeners = Listener::each(NAME, cycle.key("listen"), cycle.listen, self.tls());
            listeners.map(move |listener| Listener { queue: Some(cycle.queue), ..listener })
        });
        cycles.collect()
    }

    fn tls(&self) -> Option<&Tls> {
        Some(&self.spiderq.tls)
    }

    fn message_bytes_max(&self) -> ByteSize {
        self.zmtp.message_bytes_max
    }

    fn queues(&self) -> Vec<ServedQueue> {
        let queue = |cycle: CycleListener<'_>| ServedQueue {
            key: cycle.key("queue"),
            name: cycle.queue.to_owned().into(),
            kind: QueueKind::Cycle,
        };
        self.spiderq.cycles().map(queue).collect()
    }

    fn endpoints(&self, daemon: &Daemon) -> Result<Vec<Endpoint>, Error> {
        self.spiderq.cycles().map(|cycle| self.endpoint(&cycle, daemon)).collect()
    }

    fn renewed(&self, daemon: &Daemon, running: &Endpoint) -> Result<Option<SessionFactory>, Error> {
        let Some(shared) = running.shared.downcast_ref::<Shared>() else { return Ok(None) };
        // Several may have the same addresses, with ports of the system's choice.
        let there = self.spiderq.cycles().filter(|cycle| cycle.listen == running.listen);
        let Some(cycle) = there.min_by_key(|cycle| cycle.queue != shared.queue) else { return Ok(None) };
        let cycle = CycleListener { queue: &shared.queue, ..cycle };
        let settings = Settings { counters: Arc::clone(&shared.counters), ..self.cycle_settings(&cycle, daemon)? };
        Ok(Some(Self::sessions(shared, settings)))
    }
}

impl Default for Spiderq {
    fn default() -> Self {
        Self {
            enabled: true,
            listen: vec![Listen::local(PORT)],
            queue: "spiderq".to_owned(),
            dialect: Dialect::Auto,
            terminate: false,
            release_on_disconnect: false,
            lends_max: 10_000,
            user: String::new(),
            password: Secret::default(),
            password_file: PathBuf::new(),
            curve_secret_key_file: PathBuf::new(),
            curve_clients: Vec::new(),
            more: Vec::new(),
            tls: Tls::default(),
        }
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
        let first = cycles[0];
        assert_eq!((first.queue, first.dialect, first.access.user), ("spiderq", Dialect::V1_4, "u"));
        assert_eq!(first.access.password.expose(), "p");
        let b = CycleListener { section: 1, listen: &spiderq.more[0].listen, queue: "b", ..first };
        let nothing = Spiderq::default();
        let none = nothing.cycles().next().unwrap().access;
        let c = CycleListener {
            section: 2,
            listen: &spiderq.more[1].listen,
            queue: "c",
            dialect: Dialect::V1_3,
            terminate: false,
            release_on_disconnect: true,
            access: Access { user: "v", password: Secret::NONE, password_file: Path::new("/p"), ..none },
        };
        assert_eq!(cycles[1..], [b, c]);
        let off = Spiderq { listen: Vec::new(), ..Spiderq::default() };
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
        let configured = Configured { spiderq, zmtp };
        configured.spiderq.cycles().map(|cycle| configured.cycle_settings(&cycle, daemon).unwrap()).collect()
    }

    #[test]
    fn every_key_of_spiderq_reaches_its_sessions() {
        let text = "[spiderq]\nqueue = \"a\"\ndialect = \"1.4\"\nterminate = true\n\
                    release_on_disconnect = true\nlends_max = 7\nuser = \"u\"\npassword = \"p\"\n\
                    more = [{listen = [\"ipc:///b\"], queue = \"b\"}]\n\
                    [zmtp]\nmessage_bytes_max = \"1MiB\"\nparts_max = 3\nhandshake_timeout = \"4ms\"\nping_idle = \"5ms\"\n\
                    ping_timeout = \"6ms\"\n";
        let daemon = Daemon { outbound_bytes_max: 7_654_321, ..daemon() };
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
        for (settings, queue) in cycles(text, &daemon).iter().zip(["a", "b"]) {
            assert_eq!(
                (&*settings.queue, settings.dialect, &*settings.zmtp),
                (queue.as_bytes(), Some(wire::Dialect::V1_4), &zmtp)
            );
            assert_eq!((settings.terminate, settings.release_on_disconnect), (true, true));
            assert_eq!((settings.frame_bytes_max, settings.lends_max), (1 << 20, 7));
        }
    }

    #[test]
    fn the_defaults_are_those_of_a_spiderq_session() {
        let settings = cycles("", &daemon()).remove(0);
        assert_eq!(format!("{settings:?}"), format!("{:?}", Settings::new("spiderq".into())));
    }
}
