//! A protocol as the server sees it: a configured section that has listeners, makes sessions, and adds to the daemon's
//! state.
//!
//! The server gets a list of them and names none. A protocol's crate implements [`Protocol`] for its section of the
//! configuration; the binary puts the sections together.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use windlass_bridge::{Bridge, Origin};
use windlass_config::{ByteSize, Error, ListenAddress, Misplaced, Throttles, Tls};
use windlass_engine::{
    Clash, ClientId, ClientInfo, Limits, NewJob, NewSchedule, Patterns, QueueKind, QueueRow,
    Rights, Stats, Timestamp,
};

use crate::alias::Aliases;
use crate::{Closer, Conversation, Listen, Session, Speaker};

/// A job of a protocol that has ended.
#[derive(Clone, Debug)]
pub struct EndedJob<'a> {
    /// The name of its queue.
    pub queue: Bytes,
    /// Its body, whole.
    pub body: Bytes,
    /// Its unique id, or its key in the queue; empty: none.
    pub unique: Bytes,
    /// A public name that no other job has, for protocols whose jobs have one.
    pub new_name: &'a str,
    /// The wall clock.
    pub wall: Timestamp,
    /// How far it is ahead of the engine's.
    pub skew_ms: i64,
}

/// One protocol with its configuration.
pub trait Protocol: Send + Sync + fmt::Debug {
    /// How the engine names it.
    fn id(&self) -> windlass_engine::Protocol;

    /// Its name: that of its section, and of its aliases of queues.
    fn name(&self) -> &'static str {
        self.id().name()
    }

    /// Its common name, in messages to the operator.
    fn title(&self) -> &'static str {
        self.id().title()
    }

    /// How its jobs are read for workers of other protocols; `None` if they never cross.
    fn origin(&self) -> Option<Arc<dyn Origin>> {
        None
    }

    /// How an imported job behaves.
    fn import_terms(&self) -> ImportTerms;

    /// Checks the section's values, alone and against the daemon's limits. Reads files of passwords, and no others.
    ///
    /// # Errors
    ///
    /// [`Error::Senseless`], with the key.
    fn check(&self, daemon: &Daemon) -> Result<(), Error>;

    /// Checks values whose place is known only while the configuration's text is at hand.
    ///
    /// # Errors
    ///
    /// The place, and what is wrong there.
    fn check_text(&self, _text: &str) -> Result<(), Misplaced> {
        Ok(())
    }

    /// All addresses.
    fn listeners(&self) -> Vec<Listener<'_>>;

    /// The namespaces that its logins name.
    fn namespaces(&self) -> Vec<NamedNamespace> {
        Vec::new()
    }

    /// The files for TLS on its TCP addresses, if it can use TLS.
    fn tls(&self) -> Option<&Tls> {
        None
    }

    /// The largest packet, line or message. The daemon must be able to hold and to send one.
    fn message_bytes_max(&self) -> ByteSize;

    /// Whether a name can be an alias of a queue. `None`: queues have no aliases in this protocol.
    fn alias_rule(&self) -> Option<fn(&[u8]) -> bool> {
        None
    }

    /// The queues that its listeners serve by name.
    fn queues(&self) -> Vec<ServedQueue> {
        Vec::new()
    }

    /// Its recurring jobs, if its section can have any.
    ///
    /// # Errors
    ///
    /// [`Error::Senseless`]: an entry is invalid.
    fn schedules(&self) -> Result<Option<Schedules>, Error> {
        Ok(None)
    }

    /// A durable job of this queue and type whose only argument is this text, an object in JSON. `None`: the jobs of the
    /// protocol have neither types nor arguments in JSON.
    ///
    /// # Errors
    ///
    /// Why no client could push it, whatever the argument is.
    fn call(
        &self,
        _queue: &str,
        _jobtype: &str,
        _argument: &str,
    ) -> Option<Result<NewJob, String>> {
        None
    }

    /// A job as one of its clients pushes it to this queue: in JSON, whose members have precedence over `name`. The times
    /// are the wall clock and how far it is ahead of the engine's. `None`: only its own clients push its jobs.
    ///
    /// # Errors
    ///
    /// Why it would be refused.
    fn unit(
        &self,
        _queue: &str,
        _name: &str,
        _text: &str,
        _wall: Timestamp,
        _skew_ms: i64,
    ) -> Option<Result<NewJob, String>> {
        None
    }

    /// A job that has ended, as a new one: with the body and the defaults of the protocol, since the history has no other
    /// terms.
    ///
    /// # Errors
    ///
    /// Why it would be refused.
    fn again(&self, ended: EndedJob<'_>) -> Result<NewJob, String> {
        let EndedJob { queue, body, .. } = ended;
        Ok(NewJob {
            retry_default: true,
            ..NewJob::new(self.id(), queue, body)
        })
    }

    /// Its throttles of queues, with their key, if its section can have any.
    fn throttles(&self) -> Option<(&'static str, &Throttles)> {
        None
    }

    /// Adjusts the limits of the engine.
    fn limit(&self, _limits: &mut Limits) {}

    /// Its endpoints: the sessions of each group of addresses.
    ///
    /// # Errors
    ///
    /// [`Error::Senseless`]: a file of a password cannot be read any more.
    fn endpoints(&self, daemon: &Daemon) -> Result<Vec<Endpoint>, Error>;

    /// Makes the sessions of new connections to a running endpoint, which an earlier value of this section has made.
    /// Open connections go on as they are. `None`: a change of the section needs a restart.
    ///
    /// # Errors
    ///
    /// As [`Protocol::endpoints`].
    fn renewed(
        &self,
        _daemon: &Daemon,
        _running: &Endpoint,
    ) -> Result<Option<SessionFactory>, Error> {
        Ok(None)
    }
}

/// What protocols use of their daemon.
#[derive(Clone, Debug)]
pub struct Daemon {
    /// The engine's time.
    pub now: fn() -> Timestamp,
    /// The wall clock in nanoseconds since the epoch.
    pub wall_ns: fn() -> u64,
    /// Resident memory of the process, in MiB; 0 if unknown.
    pub memory_mb: fn() -> u64,
    /// A number that outsiders cannot guess.
    pub random: fn() -> u64,
    /// The name of the machine.
    pub host: Bytes,
    /// The log's level, as configured.
    pub log_level: String,
    /// Bytes that may wait for a peer that does not read.
    pub outbound_bytes_max: usize,
    /// The longest name of a queue.
    pub name_bytes_max: ByteSize,
    /// All protocols, for jobs that cross.
    pub bridge: Arc<Bridge>,
    /// The protocol's aliases of queues.
    pub aliases: Arc<Aliases>,
    /// By the protocol's names of queues: patterns of the answers by which its workers report a failed job.
    pub failure_values: Patterns<Vec<Bytes>>,
}

/// One address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener<'a> {
    /// The protocol's name, or that of one of its roles.
    pub protocol: &'static str,
    /// The key of the configuration with the address.
    pub key: Cow<'static, str>,
    /// The address.
    pub address: &'a ListenAddress,
    /// What clients may do there.
    pub rights: Rights,
    /// The namespace of all clients there, if the address has one.
    pub namespace: Option<&'a str>,
    /// Whether the listener uses TLS.
    pub tls: bool,
    /// The queue served there, if there is only one.
    pub queue: Option<&'a str>,
}

/// A namespace that the configuration names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedNamespace {
    /// The key that names it.
    pub key: Cow<'static, str>,
    /// The name.
    pub name: String,
}

impl NamedNamespace {
    /// Those that are keys of a section.
    pub fn each<'a>(section: &str, names: impl Iterator<Item = &'a String>) -> Vec<Self> {
        let named = |name: &String| Self {
            key: format!("{section}.{}", name.escape_debug()).into(),
            name: name.clone(),
        };
        names.map(named).collect()
    }
}

/// Makes the session of a new connection. Other parts of the daemon can end it with the [`Closer`].
pub type SessionFactory =
    Arc<dyn Fn(ClientInfo, Arc<dyn Closer>) -> Box<dyn Session> + Send + Sync>;

/// Whether a peer that begins with this byte is an administrator.
pub type IsAdmin = fn(u8) -> bool;

/// Addresses with the same sessions.
#[derive(Clone)]
pub struct Endpoint {
    /// The protocol's name, or that of one of its roles.
    pub name: &'static str,
    /// The addresses.
    pub listen: Vec<Listen>,
    /// Makes the sessions.
    pub sessions: SessionFactory,
    /// Clients need a password. The server adds whether they need a certificate.
    pub guarded: bool,
    /// Recognizes an administrator by the first byte.
    pub is_admin: IsAdmin,
    /// Its pages over HTTP.
    pub pages: Vec<Arc<dyn Page>>,
    /// What its connections send to connections of other daemons, if they do. Endpoints may share it.
    pub publications: Option<Arc<dyn Publications>>,
    /// What all its sessions share: renewed ones share it, too.
    pub shared: Arc<dyn Any + Send + Sync>,
}

/// Messages of a protocol between the daemons of a cluster: for connections that want them, at whichever daemon these
/// are, and about the connections of each daemon. Nothing is kept: a daemon that is away misses them.
pub trait Publications: Send + Sync + fmt::Debug {
    /// The protocol.
    fn protocol(&self) -> windlass_engine::Protocol;

    /// Takes a message of another daemon: the connections of this one that it concerns, and the bytes for them.
    fn receive(&self, message: &Bytes) -> (Vec<ClientId>, Bytes);

    /// What other daemons need to know of this one's connections, if anything. Asked for every second.
    fn announce(&self) -> Option<Bytes> {
        None
    }

    /// From now on messages for other daemons go to `send`. Only the first call counts.
    fn forward(&self, send: Box<dyn Fn(Bytes) + Send + Sync>);
}

/// A page over HTTP, in JSON, that deployed servers of a protocol have.
pub trait Page: Send + Sync + fmt::Debug {
    /// Its path.
    fn path(&self) -> &'static str;

    /// Whether it needs [`Figures::stats`] and [`Figures::queues`].
    fn needs_figures(&self) -> bool;

    /// Its text.
    fn text(&self, figures: &Figures) -> String;
}

/// What a page shows.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// The engine's time.
    pub now: Timestamp,
    /// The wall clock.
    pub wall: Timestamp,
    /// The figures of the whole engine.
    pub stats: Stats,
    /// All queues.
    pub queues: Vec<QueueRow>,
}

/// A queue that a listener serves by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedQueue {
    /// The key of the configuration with the name.
    pub key: Cow<'static, str>,
    /// The name.
    pub name: Bytes,
    /// The kind.
    pub kind: QueueKind,
    /// The name of its namespace; `None` = the one without a name.
    pub namespace: Option<Box<str>>,
}

/// How an imported job behaves, as far as its source does not define it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportTerms {
    /// The kind of its queue.
    pub kind: QueueKind,
    /// What happens if another job has its key.
    pub clash: Clash,
    /// A job whose key another job holds is that job.
    pub key_is_identity: bool,
}

/// Recurring jobs from a section.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedules {
    /// The key of the configuration with the entries.
    pub key: &'static str,
    /// The entries, each with a name of its own.
    pub entries: Vec<NewSchedule>,
    /// The names of those that make up for no run that fell due while there was no engine.
    pub skip_missed: Vec<Bytes>,
}

impl<'a> Listener<'a> {
    /// A listener for each address of a list. TLS is for TCP addresses only.
    pub fn each(
        protocol: &'static str,
        key: impl Into<Cow<'static, str>>,
        listen: &'a [Listen],
        tls: Option<&Tls>,
    ) -> impl Iterator<Item = Self> {
        let (key, tls) = (key.into(), tls.is_some_and(Tls::is_on));
        let of = move |Listen {
                           address,
                           rights,
                           namespace,
                       }: &'a Listen| Self {
            protocol,
            key: key.clone(),
            address,
            rights: *rights,
            namespace: namespace.as_deref(),
            tls: tls && address.is_tcp(),
            queue: None,
        };
        listen.iter().map(of)
    }
}

impl Endpoint {
    /// An endpoint without a password, administrators or pages, and without connections at other daemons.
    pub fn new(
        name: &'static str,
        listen: Vec<Listen>,
        sessions: SessionFactory,
        shared: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        let is_admin = |_| false;
        Self {
            name,
            listen,
            sessions,
            guarded: false,
            is_admin,
            pages: Vec::new(),
            publications: None,
            shared,
        }
    }
}

impl Daemon {
    /// The session, under the protocol's aliases of queues.
    pub fn under_aliases<S: Speaker + 'static>(
        &self,
        session: Conversation<S>,
    ) -> Box<dyn Session> {
        Box::new(session.under(&self.aliases))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Plain;

    impl Protocol for Plain {
        fn id(&self) -> windlass_engine::Protocol {
            windlass_engine::Protocol::GEARMAN
        }

        fn import_terms(&self) -> ImportTerms {
            ImportTerms {
                kind: QueueKind::Work,
                clash: Clash::Refuse,
                key_is_identity: false,
            }
        }

        fn check(&self, _: &Daemon) -> Result<(), Error> {
            Ok(())
        }

        fn listeners(&self) -> Vec<Listener<'_>> {
            Vec::new()
        }

        fn message_bytes_max(&self) -> ByteSize {
            ByteSize(1)
        }

        fn endpoints(&self, _: &Daemon) -> Result<Vec<Endpoint>, Error> {
            Ok(Vec::new())
        }
    }

    impl Publications for Plain {
        fn protocol(&self) -> windlass_engine::Protocol {
            windlass_engine::Protocol::GEARMAN
        }

        fn receive(&self, message: &Bytes) -> (Vec<ClientId>, Bytes) {
            (Vec::new(), message.clone())
        }

        fn forward(&self, _: Box<dyn Fn(Bytes) + Send + Sync>) {}
    }

    #[test]
    fn a_protocol_has_no_extras_by_default() {
        assert!(Plain.origin().is_none() && Plain.tls().is_none() && Plain.alias_rule().is_none());
        assert!(
            Plain.queues().is_empty()
                && Plain.schedules().unwrap().is_none()
                && Plain.throttles().is_none()
        );
        assert!(
            Plain.check_text("").is_ok()
                && Plain.announce().is_none()
                && Plain.call("q", "T", "{}").is_none()
        );
        assert!(Plain.unit("q", "name", "{}", Timestamp(0), 0).is_none());
    }

    #[test]
    fn tls_is_for_tcp_addresses() {
        let addresses = ["127.0.0.1:1", "unix:/s"].map(|at| at.parse::<Listen>().unwrap());
        let tls = Tls {
            certificate: "cert.pem".into(),
            ..Tls::default()
        };
        for (tls, expected) in [
            (Some(&tls), [true, false]),
            (Some(&Tls::default()), [false; 2]),
            (None, [false; 2]),
        ] {
            let found: Vec<_> = Listener::each("plain", "plain.listen", &addresses, tls)
                .map(|it| it.tls)
                .collect();
            assert_eq!(found, expected, "{tls:?}");
        }
    }
}
