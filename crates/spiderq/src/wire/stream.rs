//! Finds the end of the first request on a stream of bare requests.
//!
//! Only dialect 1.3 can be split this way: a byte after an `Add` could be its mode or the next request.

use super::request::{
    ADD, COUNT, FLUSH, HEARTBEAT, LEND, LOOKUP, PING, REMOVE, REPAY, STATS, TERMINATE, UPDATE,
};
use super::{Fault, Flaw};

/// What is at the front of the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// A whole request, with its length in bytes.
    Whole(usize),
    /// The beginning of a request, with the minimum length of the whole. That is more than the stream holds.
    Begun(usize),
}

/// Why the stream cannot be split.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Uncut {
    /// The stream is out of step: no request begins here, so the next request cannot be found either.
    Unknown(Fault),
    /// A key or a value exceeds the limit.
    TooLong,
}

/// Finds the request at the front of a stream. Keys and values may have at most `bytes_max` bytes.
///
/// # Errors
///
/// The rest of the stream cannot be read.
pub fn cut(stream: &[u8], bytes_max: usize) -> Result<Cut, Uncut> {
    let Some(tag) = stream.first() else {
        return Ok(Cut::Begun(1));
    };
    // Bytes before the first length; number of strings with a length; bytes after them.
    let (before, vectors, behind) = match *tag {
        COUNT | STATS | TERMINATE | FLUSH | PING => (1, 0, 0),
        ADD | UPDATE => (1, 2, 0),
        LEND => (10, 0, 0),
        REPAY => (9, 2, 1),
        HEARTBEAT => (9, 1, 8),
        LOOKUP | REMOVE => (1, 1, 0),
        byte => {
            return Err(Uncut::Unknown(Fault::Unknown {
                flaw: Flaw::REQUEST,
                byte,
            }));
        }
    };
    let mut bytes = before;
    for _ in 0..vectors {
        let Some(length) = stream.get(bytes..).and_then(<[u8]>::first_chunk) else {
            return Ok(Cut::Begun(bytes + 4));
        };
        let length = usize::try_from(u32::from_be_bytes(*length))
            .ok()
            .filter(|length| *length <= bytes_max);
        bytes = length
            .and_then(|length| length.checked_add(bytes + 4))
            .ok_or(Uncut::TooLong)?;
    }
    bytes += behind;
    Ok(if bytes <= stream.len() {
        Cut::Whole(bytes)
    } else {
        Cut::Begun(bytes)
    })
}
