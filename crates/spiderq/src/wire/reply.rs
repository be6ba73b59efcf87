//! The server's replies.
//!
//! Spec: `spiderq-protocol`, "Reply" of each section. `Error`, `Removed` and `NotRemoved` are not in the text, but the
//! server it describes sends them.

use bytes::{BufMut, BytesMut};

use super::request::put;
use super::{Dialect, Fault, Flaw};

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

/// Number of answered requests: `Ping`, `Count`, `Add`, `Update`, `Lookup`, `Remove`, `Lend`, `Repay`, `Heartbeat`,
/// `Stats`.
pub type Counts = [u64; 10];

/// The places of `Ping` and `Remove`, which 1.3 does not have.
const NEW_COUNTS: [usize; 2] = [0, 5];

/// The first byte of both kinds of errors.
const ERROR: u8 = 0x0B;

impl Reply<'_> {
    /// Length on the wire, in bytes.
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
        match *self {
            Self::Counted(count) => {
                out.put_u8(0x01);
                out.put_u32(count);
            }
            Self::Added => out.put_u8(0x02),
            Self::Kept => out.put_u8(0x03),
            Self::Updated => out.put_u8(0x04),
            Self::NotFound => out.put_u8(0x05),
            Self::Lent {
                lend_key,
                key,
                value,
            } => {
                out.put_u8(0x06);
                out.put_u64(lend_key);
                put(key, out);
                put(value, out);
            }
            Self::Repaid => out.put_u8(0x07),
            Self::Heartbeaten => out.put_u8(0x08),
            Self::Skipped => out.put_u8(0x09),
            Self::StatsGot(counts, dialect) => {
                out.put_u8(0x0A);
                let new = |at| dialect == Dialect::V1_3 && NEW_COUNTS.contains(&at);
                counts
                    .iter()
                    .enumerate()
                    .filter(|(at, _)| !new(*at))
                    .for_each(|(_, count)| out.put_u64(*count));
            }
            Self::Error(fault) => {
                out.put_u8(ERROR);
                fault.encode(out);
            }
            Self::Trouble(text) => {
                out.put_slice(&[ERROR, Flaw::SERVER.0]);
                put(text, out);
            }
            Self::Terminated => out.put_u8(0x0C),
            Self::ValueFound(value) => {
                out.put_u8(0x0D);
                put(value, out);
            }
            Self::ValueNotFound => out.put_u8(0x0E),
            Self::Flushed => out.put_u8(0x0F),
            Self::QueueEmpty => out.put_u8(0x10),
            Self::Pong => out.put_u8(0x11),
            Self::Removed => out.put_u8(0x12),
            Self::NotRemoved => out.put_u8(0x13),
        }
    }
}
