//! The small types that name things: who, which, when, how urgent.
//!
//! Nothing here has behaviour beyond conversion and order.

use std::fmt;

/// A moment in milliseconds, by the engine's time or by the wall clock (see [`crate::Clock`]); both count from the Unix epoch,
/// or from near it. Time only ever enters the engine as an argument.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Later than anything that happens.
    pub const NEVER: Self = Self(u64::MAX);

    /// This moment plus `ms` milliseconds; saturates at [`Timestamp::NEVER`].
    #[must_use]
    pub const fn after_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// This moment as a clock shows it that is `ms` milliseconds ahead (behind, if negative); `NEVER` stays `NEVER`.
    #[must_use]
    pub const fn shifted(self, ms: i64) -> Self {
        if self.0 == Self::NEVER.0 { self } else { Self(self.0.saturating_add_signed(ms)) }
    }

    /// Milliseconds from `earlier` to this moment, 0 if `earlier` is later.
    #[must_use]
    pub const fn ms_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}

/// A job's number: unique for the life of the data directory, never used twice, increasing in order of birth.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct JobId(pub u64);

/// A queue's number: small, kept in the journal, free for another name only once the queue and all its jobs are gone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct QueueId(pub u32);

/// A connection, numbered by the server; a number is not used twice in one run of the daemon.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(pub u64);

/// Chosen by a session for one command and repeated in the direct answer to it.
///
/// A silent tag ([`Tag::silent`], [`Tag::NONE`]) asks for no acknowledgement of success, so nothing that follows on its
/// connection waits for the disk; refusals are sent all the same, and say by their tag what was refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Tag(pub u64);

impl Tag {
    /// The session does not want to hear of success, and has one answer to every refusal.
    pub const NONE: Self = Self(0);

    const SILENT: u64 = 1 << 63;

    /// The session does not want to hear of success, but of what was refused.
    ///
    /// ```
    /// # use windlass_engine::Tag;
    /// assert!(Tag(7).wants_answer());
    /// assert!(!Tag::silent(7).wants_answer());
    /// assert_eq!(Tag::silent(7).number(), 7);
    /// assert!(!Tag::NONE.wants_answer());
    /// ```
    #[must_use]
    pub const fn silent(number: u64) -> Self {
        Self(number | Self::SILENT)
    }

    /// Whether success is acknowledged.
    #[must_use]
    pub const fn wants_answer(self) -> bool {
        self.0 != 0 && self.0 & Self::SILENT == 0
    }

    /// What the session put into it, below 2^63.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0 & !Self::SILENT
    }
}

/// The fencing token of a lease: for a `work` queue the job's count of deliveries, for a `cycle` queue the
/// queue's serial number when it was lent, set apart from those of other runs of the daemon. A lease is identified by (job, token).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token(pub u64);

/// The protocol a job was born in. An open number: the engine only compares it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Origin(pub u8);

impl Origin {
    /// Faktory's FWP.
    pub const FAKTORY: Self = Self(1);
    /// Gearman.
    pub const GEARMAN: Self = Self(2);
    /// spiderq.
    pub const SPIDERQ: Self = Self(3);
    /// EventMQ.
    pub const EVENTMQ: Self = Self(4);
}

/// 1 to 9, 9 is taken first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Priority(u8);

impl Priority {
    /// The last to be taken.
    pub const MIN: Self = Self(1);
    /// What a job has whose producer said nothing.
    pub const NORMAL: Self = Self(5);
    /// The first to be taken.
    pub const MAX: Self = Self(9);
    /// How many there are.
    pub const COUNT: usize = 9;

    /// The nearest legal priority.
    #[must_use]
    pub const fn clamped(value: u8) -> Self {
        match value {
            0 => Self::MIN,
            1..=9 => Self(value),
            _ => Self::MAX,
        }
    }

    /// 1 to 9.
    #[must_use]
    pub const fn value(self) -> u8 {
        self.0
    }

    /// 0 for the most urgent, 8 for the least: an index into per-priority tables.
    #[must_use]
    pub const fn lane(self) -> usize {
        (Self::MAX.0 - self.0) as usize
    }

    /// All of them, most urgent first.
    pub fn all() -> impl Iterator<Item = Self> {
        (1..=9).rev().map(Self)
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self::NORMAL
    }
}
