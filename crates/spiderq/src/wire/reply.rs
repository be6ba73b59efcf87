//! The server's replies.
//!
//! Spec: `spiderq-protocol`, "Reply" of each section. `Error`, `Removed` and `NotRemoved` are not in the text, but the
//! server it describes sends them.

use bytes::{BufMut, BytesMut};

use super::request::put;
use super::{Dialect, Fault, Flaw, Reader};

/// A reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply<'a> {
    /// Number of queued entries.
    Counted(u32),
    /// To `Add`: the entry was added.
    Added,
    /// To `Add`: an entry with this key existed and was not changed.
    Kept,
    /// To `Update`: the entry has the new value.
    Updated,
    /// To `Update`: there is no such entry. To `Repay`: the entry is not lent, or lent under another lend key.
    NotFound,
    /// A lent entry.
    Lent {
        /// Must be repeated in `Repay` and `Heartbeat`.
        lend_key: u64,
        /// Its key.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// To `Repay`: the entry is at its new position, or dropped.
    Repaid,
    /// To `Heartbeat`: the time-out runs anew from now.
    Heartbeaten,
    /// To `Heartbeat`: the entry is not lent, or lent under another lend key.
    Skipped,
    /// Number of answered requests by kind.
    StatsGot(Counts, Dialect),
    /// The request is invalid.
    Error(Fault),
    /// The server could not do what the request asked, with a text.
    Trouble(&'a [u8]),
    /// The server is about to stop.
    Terminated,
    /// An entry's value.
    ValueFound(&'a [u8]),
    /// There is no entry with this key.
    ValueNotFound,
    /// Everything before the `Flush` is on disk.
    Flushed,
    /// To a non-blocking `Lend`: there is no entry to lend.
    QueueEmpty,
    /// To `Ping`.
    Pong,
    /// To `Remove`: the entry was removed.
    Removed,
    /// To `Remove`: there is no entry with this key.
    NotRemoved,
}

/// Number of answered requests, by kind.
#[expect(missing_docs, reason = "each is named after its request")]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    pub ping: u64,
    pub count: u64,
    pub add: u64,
    pub update: u64,
    pub lookup: u64,
    pub remove: u64,
    pub lend: u64,
    pub repay: u64,
    pub heartbeat: u64,
    pub stats: u64,
}

/// The bytes are not a valid reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadReply;

const COUNTED: u8 = 0x01;
const ADDED: u8 = 0x02;
const KEPT: u8 = 0x03;
const UPDATED: u8 = 0x04;
const NOT_FOUND: u8 = 0x05;
const LENT: u8 = 0x06;
const REPAID: u8 = 0x07;
const HEARTBEATEN: u8 = 0x08;
const SKIPPED: u8 = 0x09;
const STATS_GOT: u8 = 0x0A;
const ERROR: u8 = 0x0B;
const TERMINATED: u8 = 0x0C;
const VALUE_FOUND: u8 = 0x0D;
const VALUE_NOT_FOUND: u8 = 0x0E;
const FLUSHED: u8 = 0x0F;
const QUEUE_EMPTY: u8 = 0x10;
const PONG: u8 = 0x11;
const REMOVED: u8 = 0x12;
const NOT_REMOVED: u8 = 0x13;

impl<'a> Reply<'a> {
    /// Length on the wire, in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        match self {
            Self::Counted(_) => 5,
            Self::Lent { key, value, .. } => 17 + key.len() + value.len(),
            Self::StatsGot(_, Dialect::V1_3) => 1 + 8 * 8,
            Self::StatsGot(_, Dialect::V1_4) => 1 + 10 * 8,
            Self::Error(fault) => fault.bytes(),
            Self::Trouble(text) => 6 + text.len(),
            Self::ValueFound(value) => 5 + value.len(),
            Self::Added
            | Self::Kept
            | Self::Updated
            | Self::NotFound
            | Self::Repaid
            | Self::Heartbeaten
            | Self::Skipped
            | Self::Terminated
            | Self::ValueNotFound
            | Self::Flushed
            | Self::QueueEmpty
            | Self::Pong
            | Self::Removed
            | Self::NotRemoved => 1,
        }
    }

    /// Appends the reply.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u8(self.tag());
        match *self {
            Self::Counted(count) => out.put_u32(count),
            Self::Lent { lend_key, key, value } => {
                out.put_u64(lend_key);
                put(key, out);
                put(value, out);
            }
            Self::StatsGot(counts, dialect) => counts.encode(dialect, out),
            Self::Error(fault) => fault.encode(out),
            Self::Trouble(text) => {
                out.put_u8(Flaw::SERVER.0);
                put(text, out);
            }
            Self::ValueFound(value) => put(value, out),
            Self::Added
            | Self::Kept
            | Self::Updated
            | Self::NotFound
            | Self::Repaid
            | Self::Heartbeaten
            | Self::Skipped
            | Self::Terminated
            | Self::ValueNotFound
            | Self::Flushed
            | Self::QueueEmpty
            | Self::Pong
            | Self::Removed
            | Self::NotRemoved => {}
        }
    }

    const fn tag(&self) -> u8 {
        match self {
            Self::Counted(_) => COUNTED,
            Self::Added => ADDED,
            Self::Kept => KEPT,
            Self::Updated => UPDATED,
            Self::NotFound => NOT_FOUND,
            Self::Lent { .. } => LENT,
            Self::Repaid => REPAID,
            Self::Heartbeaten => HEARTBEATEN,
            Self::Skipped => SKIPPED,
            Self::StatsGot(..) => STATS_GOT,
            Self::Error(_) | Self::Trouble(_) => ERROR,
            Self::Terminated => TERMINATED,
            Self::ValueFound(_) => VALUE_FOUND,
            Self::ValueNotFound => VALUE_NOT_FOUND,
            Self::Flushed => FLUSHED,
            Self::QueueEmpty => QUEUE_EMPTY,
            Self::Pong => PONG,
            Self::Removed => REMOVED,
            Self::NotRemoved => NOT_REMOVED,
        }
    }

    /// Reads the reply at the front of these bytes, and returns it with its length: the client's side, for tests and
    /// load generators. The counters must fill all remaining bytes, because their number shows the dialect.
    ///
    /// # Errors
    ///
    /// The bytes are not a reply, or the reply is cut short.
    pub fn decode(bytes: &'a [u8]) -> Result<(Self, usize), BadReply> {
        let mut from = Reader::new(bytes);
        let reply = Self::read(&mut from).ok_or(BadReply)?;
        Ok((reply, bytes.len() - from.rest().len()))
    }

    fn read(from: &mut Reader<'a>) -> Option<Self> {
        Some(match from.u8().ok()? {
            COUNTED => Self::Counted(from.u32().ok()?),
            ADDED => Self::Added,
            KEPT => Self::Kept,
            UPDATED => Self::Updated,
            NOT_FOUND => Self::NotFound,
            LENT => Self::Lent { lend_key: from.u64().ok()?, key: vector(from)?, value: vector(from)? },
            REPAID => Self::Repaid,
            HEARTBEATEN => Self::Heartbeaten,
            SKIPPED => Self::Skipped,
            STATS_GOT => {
                let dialect = if from.rest().len() == 64 { Dialect::V1_3 } else { Dialect::V1_4 };
                Self::StatsGot(Counts::decode(from, dialect)?, dialect)
            }
            ERROR => Self::read_error(from)?,
            TERMINATED => Self::Terminated,
            VALUE_FOUND => Self::ValueFound(vector(from)?),
            VALUE_NOT_FOUND => Self::ValueNotFound,
            FLUSHED => Self::Flushed,
            QUEUE_EMPTY => Self::QueueEmpty,
            PONG => Self::Pong,
            REMOVED => Self::Removed,
            NOT_REMOVED => Self::NotRemoved,
            _ => return None,
        })
    }

    fn read_error(from: &mut Reader<'a>) -> Option<Self> {
        let flaw = Flaw(from.u8().ok()?);
        let fault = match flaw {
            Flaw::SERVER => return Some(Self::Trouble(vector(from)?)),
            Flaw::REQUEST | Flaw::ADD_MODE_UNKNOWN | Flaw::LEND_MODE_UNKNOWN | Flaw::REPAY_STATUS_UNKNOWN => {
                Fault::Unknown { flaw, byte: from.u8().ok()? }
            }
            flaw => Fault::Short { flaw, required: from.u32().ok()?, given: from.u32().ok()? },
        };
        Some(Self::Error(fault))
    }
}

impl Counts {
    fn encode(&self, dialect: Dialect, out: &mut BytesMut) {
        let Self { ping, count, add, update, lookup, remove, lend, repay, heartbeat, stats } = *self;
        match dialect {
            Dialect::V1_3 => [count, add, update, lookup, lend, repay, heartbeat, stats].map(|n| out.put_u64(n)).len(),
            Dialect::V1_4 => {
                [ping, count, add, update, lookup, remove, lend, repay, heartbeat, stats].map(|n| out.put_u64(n)).len()
            }
        };
    }

    fn decode(from: &mut Reader<'_>, dialect: Dialect) -> Option<Self> {
        let mut next = || from.u64().ok();
        let new = dialect == Dialect::V1_4;
        Some(Self {
            ping: if new { next()? } else { 0 },
            count: next()?,
            add: next()?,
            update: next()?,
            lookup: next()?,
            remove: if new { next()? } else { 0 },
            lend: next()?,
            repay: next()?,
            heartbeat: next()?,
            stats: next()?,
        })
    }
}

fn vector<'a>(from: &mut Reader<'a>) -> Option<&'a [u8]> {
    let bytes = from.u32().ok()?;
    from.bytes(bytes).ok()
}
