//! The small types for identity, time and priority.
//!
//! They only convert and compare.

use std::fmt;
use std::hash::{Hash, Hasher};

use serde::{Deserialize, Serialize};

/// A moment in milliseconds, in the engine's time or by the wall clock (see [`crate::Clock`]). Both start at
/// the Unix epoch, or near it. Time enters the engine only as an argument.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Deserialize, Serialize)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// After every event.
    pub const NEVER: Self = Self(u64::MAX);

    /// This moment plus `ms` milliseconds; saturates at [`Timestamp::NEVER`].
    #[must_use]
    pub const fn after_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// This moment on a clock that is `ms` milliseconds ahead (behind, if negative). `NEVER` stays `NEVER`.
    #[must_use]
    pub const fn shifted(self, ms: i64) -> Self {
        if self.0 == Self::NEVER.0 {
            self
        } else {
            Self(self.0.saturating_add_signed(ms))
        }
    }

    /// Milliseconds from `earlier` to this moment, 0 if `earlier` is after it.
    pub const fn ms_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}

/// A job's number. Unique for the life of the data directory, never reused, increasing in order of creation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize, Serialize)]
pub struct JobId(pub u64);

/// A namespace's number. Journalled with the name; reused only when the namespace is removed.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Deserialize, Serialize,
)]
pub struct Namespace(pub u16);

impl Namespace {
    /// The namespace without a name, which always exists: that of all clients where no namespaces are
    /// configured.
    pub const UNNAMED: Self = Self(0);
    /// The highest number.
    pub const MAX: Self = Self((1 << (u32::BITS - QueueId::INDEX_BITS)) - 1);

    /// A protocol in this namespace.
    pub const fn realm(self, protocol: Protocol) -> Realm {
        Realm {
            namespace: self,
            protocol,
        }
    }
}

/// A protocol in a namespace: the part of the daemon that its clients see, as if it were all of it. Names are
/// unique within a realm, those of queues, workers and batches within the namespace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Realm {
    /// The namespace.
    pub namespace: Namespace,
    /// The protocol.
    pub protocol: Protocol,
}

/// A name in a namespace, to look it up in a table of [`Named`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NameIn<'a>(pub(crate) Namespace, pub(crate) &'a [u8]);

/// A name in a namespace, as a table has it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Named<T>(pub(crate) Namespace, pub(crate) T);

impl<T: AsRef<[u8]>> hashbrown::Equivalent<Named<T>> for NameIn<'_> {
    #[inline]
    fn equivalent(&self, Named(namespace, name): &Named<T>) -> bool {
        self.0 == *namespace && self.1 == name.as_ref()
    }
}

impl Hash for NameIn<'_> {
    /// A name in the namespace without a name is hashed alone, because every push looks one up.
    #[inline(always)]
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.1.hash(state);
        if self.0 != Namespace::UNNAMED {
            self.0.hash(state);
        }
    }
}

impl<T: AsRef<[u8]>> Hash for Named<T> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        NameIn(self.0, self.1.as_ref()).hash(state);
    }
}

/// A queue's ID: its index, and above [`QueueId::INDEX_BITS`] the namespace, in which it stays. Journalled;
/// reused only when the queue and all jobs in it are removed.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Deserialize, Serialize,
)]
pub struct QueueId(pub u32);

impl QueueId {
    /// Bits of the index.
    pub const INDEX_BITS: u32 = 20;
    /// The most queues that can exist at the same time.
    pub const COUNT_MAX: u32 = 1 << Self::INDEX_BITS;

    /// The queue with this index, which no other queue has, in a namespace.
    pub const fn new(namespace: Namespace, index: u32) -> Self {
        Self(((namespace.0 as u32) << Self::INDEX_BITS) | (index % Self::COUNT_MAX))
    }

    /// The namespace.
    pub const fn namespace(self) -> Namespace {
        Namespace((self.0 >> Self::INDEX_BITS) as u16)
    }

    /// The index among the queues of all namespaces.
    pub const fn index(self) -> u32 {
        self.0 % Self::COUNT_MAX
    }

    /// The realm of a protocol's jobs in this queue.
    pub const fn realm(self, protocol: Protocol) -> Realm {
        self.namespace().realm(protocol)
    }
}

/// The ID of a kind of job. IDs are never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct KindNumber(pub(crate) u32);

/// A connection's number, assigned by the server. Never reused within one run of the daemon. No connection has 0.
#[derive(
    Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize, Serialize,
)]
pub struct ClientId(pub u64);

impl ClientId {
    /// Bits of the part of a client's ID that the daemon assigns. The bits above identify the daemon.
    pub const OWN_BITS: u32 = 40;

    /// The number of the daemon at which the client is connected. 0: the one that has the engine.
    pub const fn daemon(self) -> u64 {
        self.0 >> Self::OWN_BITS
    }
}

/// Chosen by a session for each command; the direct reply repeats it.
///
/// A silent tag ([`Tag::silent`], [`Tag::NONE`]) requests no acknowledgement of success, so that later output
/// on the connection need not wait for the disk. Refusals are sent in any case, and the tag identifies the
/// refused command.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Deserialize, Serialize,
)]
pub struct Tag(pub u64);

impl Tag {
    /// Requests no acknowledgement; the session handles every refusal alike.
    pub const NONE: Self = Self(0);

    const SILENT: u64 = 1 << 63;

    /// Requests no acknowledgement; a refusal carries `number`.
    ///
    /// ```
    /// # use windlass_engine::Tag;
    /// assert!(Tag(7).wants_answer());
    /// assert!(!Tag::silent(7).wants_answer());
    /// assert_eq!(Tag::silent(7).number(), 7);
    /// assert!(!Tag::NONE.wants_answer());
    /// ```
    pub const fn silent(number: u64) -> Self {
        Self(number | Self::SILENT)
    }

    /// Returns true if this tag requests an acknowledgement of success.
    pub const fn wants_answer(self) -> bool {
        self.0 != 0 && self.0 & Self::SILENT == 0
    }

    /// The session's number, below 2^63.
    pub const fn number(self) -> u64 {
        self.0 & !Self::SILENT
    }
}

/// The fencing token of a lease; (job, token) identifies a lease. In a `work` queue it is the number of the
/// job's delivery, in a `cycle` queue the queue's serial at the time of the lease. The token also contains
/// the daemon's run, because a lease is granted before the journal has recorded it: after a crash, the next
/// run could otherwise grant the same token again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize, Serialize)]
pub struct Token(pub u64);

impl Token {
    const DELIVERY_BITS: u32 = 32;

    /// The token of a job's delivery of this number, in this run of the daemon. Later runs give higher tokens.
    ///
    /// ```
    /// # use windlass_engine::Token;
    /// assert_eq!(Token::of(0, 3), Token(3));
    /// assert!(Token::of(2, 1) > Token::of(1, 9));
    /// assert_eq!(Token::of(2, 9).delivery(), 9);
    /// ```
    pub const fn of(run: u64, delivery: u32) -> Self {
        Self(run << Self::DELIVERY_BITS | delivery as u64)
    }

    /// The number of the delivery, of a token of a `work` queue.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the bits above belong to the run"
    )]
    pub const fn delivery(self) -> u32 {
        self.0 as u32
    }
}

/// A job's protocol, which is that of the producer. The engine only compares these values, and new ones may
/// be added.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize, Serialize)]
pub struct Protocol(pub u8);

impl Protocol {
    /// All protocols. All lists of protocols are generated from these rows, so a new protocol needs
    /// only a row here.
    pub const ALL: [ProtocolRow; 5] = [
        ProtocolRow::new(Self::FAKTORY, "faktory", "FWP").sharing(),
        ProtocolRow::new(Self::GEARMAN, "gearman", "Gearman").sharing(),
        ProtocolRow::new(Self::SPIDERQ, "spiderq", "spiderq"),
        ProtocolRow::new(Self::EVENTMQ, "eventmq", "EventMQ").sharing(),
        ProtocolRow::new(Self::HTTP, "http", "HTTP"),
    ];
    /// Faktory's FWP.
    pub const FAKTORY: Self = Self(1);
    /// Gearman.
    pub const GEARMAN: Self = Self(2);
    /// spiderq.
    pub const SPIDERQ: Self = Self(3);
    /// EventMQ.
    pub const EVENTMQ: Self = Self(4);
    /// HTTP.
    pub const HTTP: Self = Self(5);

    /// The protocols with jobs and workers that share queues.
    pub fn sharing() -> impl Iterator<Item = Self> {
        Self::ALL
            .into_iter()
            .filter(|row| row.shares)
            .map(|row| row.id)
    }

    /// The name in filters and exports, of the protocol's section of the configuration, and of aliases of
    /// queues.
    pub fn name(self) -> &'static str {
        self.row().map_or("unknown", |row| row.name)
    }

    /// The common name, in messages to the operator.
    pub fn title(self) -> &'static str {
        self.row().map_or("unknown", |row| row.title)
    }

    fn row(self) -> Option<ProtocolRow> {
        Self::ALL.into_iter().find(|row| row.id == self)
    }
}

/// A row of [`Protocol::ALL`].
#[derive(Clone, Copy, Debug)]
pub struct ProtocolRow {
    /// The protocol.
    pub id: Protocol,
    /// See [`Protocol::name`].
    pub name: &'static str,
    /// See [`Protocol::title`].
    pub title: &'static str,
    /// Jobs and workers share queues with those of other protocols.
    pub shares: bool,
}

impl ProtocolRow {
    const fn new(id: Protocol, name: &'static str, title: &'static str) -> Self {
        Self {
            id,
            name,
            title,
            shares: false,
        }
    }

    const fn sharing(self) -> Self {
        Self {
            shares: true,
            ..self
        }
    }
}

/// A set of protocols. Protocols from number 7 on share a bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
pub struct Protocols(u8);

impl Protocols {
    /// No protocol.
    pub const NONE: Self = Self(0);
    /// All protocols.
    pub const ALL: Self = Self(u8::MAX);

    /// This protocol; all for `None`.
    pub const fn of(protocol: Option<Protocol>) -> Self {
        match protocol {
            Some(Protocol(number)) => Self(1 << if number < 7 { number } else { 7 }),
            None => Self::ALL,
        }
    }

    /// The set with these bits, by protocol number.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// The bits, by protocol number.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns true if it is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns true if all of `other` are in it.
    pub const fn include(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    /// Returns true if this protocol is in it.
    pub const fn has(self, protocol: Protocol) -> bool {
        self.include(Self::of(Some(protocol)))
    }

    /// The protocols of both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The protocols that are in both sets.
    #[must_use]
    pub const fn within(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The protocols of this set that are not in `others`.
    #[must_use]
    pub const fn but(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }
}

/// 1 to 9; 9 is taken first.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Debug,
    derive_more::Into,
    Deserialize,
    Serialize,
)]
#[serde(try_from = "u8", into = "u8")]
pub struct Priority(u8);

impl Priority {
    /// Taken last.
    pub const MIN: Self = Self(1);
    /// The default of a job without a priority.
    pub const NORMAL: Self = Self(5);
    /// Taken first.
    pub const MAX: Self = Self(9);
    /// The number of priorities.
    pub const COUNT: usize = 9;

    /// The nearest valid priority.
    pub const fn clamped(value: u8) -> Self {
        match value {
            0 => Self::MIN,
            1..=9 => Self(value),
            _ => Self::MAX,
        }
    }

    /// The number, 1 to 9.
    pub const fn value(self) -> u8 {
        self.0
    }

    /// 0 for the most urgent, 8 for the least urgent: an index into tables by priority.
    pub const fn lane(self) -> usize {
        (Self::MAX.0 - self.0) as usize
    }

    /// All priorities, most urgent first.
    pub fn all() -> impl Iterator<Item = Self> {
        (1..=9).rev().map(Self)
    }
}

impl TryFrom<u8> for Priority {
    type Error = BadPriority;

    fn try_from(value: u8) -> Result<Self, BadPriority> {
        let priority = Self::clamped(value);
        if priority.0 == value {
            Ok(priority)
        } else {
            Err(BadPriority(value))
        }
    }
}

/// A number that is no priority.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("priority {0} is not between 1 and 9")]
pub struct BadPriority(u8);

impl Default for Priority {
    fn default() -> Self {
        Self::NORMAL
    }
}
