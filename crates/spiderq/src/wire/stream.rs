//! Bare requests, back to back on a stream: how long is the one at the front?
//!
//! Only 1.3 can be cut so: whether a byte behind an `Add` is its mode or the next request, nobody can tell.

use super::request::{ADD, COUNT, FLUSH, HEARTBEAT, LEND, LOOKUP, PING, REMOVE, REPAY, STATS, TERMINATE, UPDATE};
use super::{Fault, Flaw};

/// What stands at the front.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// A whole request of so many bytes.
    Whole(usize),
    /// The beginning of one that has so many bytes at least; more than there are.
    Begun(usize),
}

/// Why nothing can be cut off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Uncut {
    /// No request begins so; where the next begins nobody knows.
    Unknown(Fault),
    /// A key or a value that is too long.
    TooLong,
}

/// The request at the front of a stream. No key and no value of more than `bytes_max` bytes is waited for.
///
/// # Errors
///
/// Nothing that follows can be understood.
pub fn cut(stream: &[u8], bytes_max: usize) -> Result<Cut, Uncut> {
    let Some(tag) = stream.first() else { return Ok(Cut::Begun(1)) };
    // Bytes before the first length, lengths with what they count, bytes behind.
    let (before, vectors, behind) = match *tag {
        COUNT | STATS | TERMINATE | FLUSH | PING => (1, 0, 0),
        ADD | UPDATE => (1, 2, 0),
        LEND => (10, 0, 0),
        REPAY => (9, 2, 1),
        HEARTBEAT => (9, 1, 8),
        LOOKUP | REMOVE => (1, 1, 0),
        byte => return Err(Uncut::Unknown(Fault::Unknown { flaw: Flaw::REQUEST, byte })),
    };
    let mut bytes = before;
    for _ in 0..vectors {
        let Some(length) = stream.get(bytes..).and_then(<[u8]>::first_chunk) else { return Ok(Cut::Begun(bytes + 4)) };
        let length = usize::try_from(u32::from_be_bytes(*length)).ok().filter(|length| *length <= bytes_max);
        bytes = length.and_then(|length| length.checked_add(bytes + 4)).ok_or(Uncut::TooLong)?;
    }
    bytes += behind;
    Ok(if bytes <= stream.len() { Cut::Whole(bytes) } else { Cut::Begun(bytes) })
}
