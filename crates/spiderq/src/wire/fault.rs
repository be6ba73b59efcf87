//! Errors in a request, as the server reports them to its sender.
//!
//! The specification does not list these replies, but the server it describes sends them and every client reads them.

use bytes::{BufMut, BytesMut};

use super::reader::Short;

/// An error in a request: which field was being read, and what was found. On the wire: `0B`, the flaw, the details.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A field is too short.
    Short {
        /// The field.
        flaw: Flaw,
        /// Bytes the field needs.
        required: u32,
        /// Bytes present.
        given: u32,
    },
    /// An invalid byte.
    Unknown {
        /// The field.
        flaw: Flaw,
        /// The byte.
        byte: u8,
    },
}

/// The number of an error on the wire. Numbers missing here stand for unreadable replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flaw(pub u8);

impl Flaw {
    /// The frame is empty.
    pub const EMPTY: Self = Self(1);
    /// Unknown request.
    pub const REQUEST: Self = Self(2);
    /// `Add`: length of the key, key, length of the value, value.
    pub const ADD: [Self; 4] = [Self(3), Self(4), Self(5), Self(6)];
    /// `Add`: the mode is missing.
    pub const ADD_MODE: Self = Self(53);
    /// `Add`: unknown mode.
    pub const ADD_MODE_UNKNOWN: Self = Self(54);
    /// `Lend`: the time-out is missing.
    pub const LEND_TIMEOUT: Self = Self(7);
    /// `Lend`: the mode is missing.
    pub const LEND_MODE: Self = Self(51);
    /// `Lend`: unknown mode.
    pub const LEND_MODE_UNKNOWN: Self = Self(52);
    /// `Repay`: the lend key is missing.
    pub const REPAY_LEND_KEY: Self = Self(8);
    /// `Repay`: length of the key, key, length of the value, value.
    pub const REPAY: [Self; 4] = [Self(9), Self(10), Self(11), Self(12)];
    /// `Repay`: the status is missing.
    pub const REPAY_STATUS: Self = Self(13);
    /// `Repay`: unknown status.
    pub const REPAY_STATUS_UNKNOWN: Self = Self(14);
    /// `Update`: length of the key, key, length of the value, value.
    pub const UPDATE: [Self; 4] = [Self(39), Self(40), Self(41), Self(42)];
    /// `Heartbeat`: the lend key is missing.
    pub const HEARTBEAT_LEND_KEY: Self = Self(43);
    /// `Heartbeat`: length of the key, key.
    pub const HEARTBEAT: [Self; 2] = [Self(44), Self(45)];
    /// `Heartbeat`: the time-out is missing.
    pub const HEARTBEAT_TIMEOUT: Self = Self(46);
    /// `Lookup`: length of the key, key.
    pub const LOOKUP: [Self; 2] = [Self(47), Self(48)];
    /// `Remove`: length of the key, key.
    pub const REMOVE: [Self; 2] = [Self(57), Self(58)];
    /// The server could not do what the request asked. The reason follows as text.
    pub const SERVER: Self = Self(36);
}

impl Fault {
    pub(super) const fn short(flaw: Flaw, Short { required, given }: Short) -> Self {
        Self::Short {
            flaw,
            required,
            given,
        }
    }

    /// Length on the wire, in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Short { .. } => 10,
            Self::Unknown { .. } => 3,
        }
    }

    pub(super) fn encode(self, out: &mut BytesMut) {
        match self {
            Self::Short {
                flaw,
                required,
                given,
            } => {
                out.put_u8(flaw.0);
                out.put_u32(required);
                out.put_u32(given);
            }
            Self::Unknown { flaw, byte } => out.put_slice(&[flaw.0, byte]),
        }
    }
}
