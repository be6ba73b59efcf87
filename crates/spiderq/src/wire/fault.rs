//! What is wrong with a request, as its sender is told.
//!
//! The specification's page has no such reply, but the server it describes has, and so has every client.

use bytes::{BufMut, BytesMut};

use super::reader::Short;

/// What is wrong with a request: what was being read, and what was found. On the wire `0B`, the flaw, and the finding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A field is cut short.
    Short {
        /// Which.
        flaw: Flaw,
        /// Bytes it has.
        required: u32,
        /// Bytes that are there.
        given: u32,
    },
    /// A byte that has no meaning where it stands.
    Unknown {
        /// Where.
        flaw: Flaw,
        /// The byte.
        byte: u8,
    },
}

/// What is wrong: the number on the wire. Those that are not here are for replies that cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flaw(pub u8);

impl Flaw {
    /// Nothing at all.
    pub const EMPTY: Self = Self(1);
    /// No such request.
    pub const REQUEST: Self = Self(2);
    /// `Add`: length of the key, key, length of the value, value.
    pub const ADD: [Self; 4] = [Self(3), Self(4), Self(5), Self(6)];
    /// `Add`: no mode.
    pub const ADD_MODE: Self = Self(53);
    /// `Add`: no such mode.
    pub const ADD_MODE_UNKNOWN: Self = Self(54);
    /// `Lend`: no time-out.
    pub const LEND_TIMEOUT: Self = Self(7);
    /// `Lend`: no mode.
    pub const LEND_MODE: Self = Self(51);
    /// `Lend`: no such mode.
    pub const LEND_MODE_UNKNOWN: Self = Self(52);
    /// `Repay`: no lend key.
    pub const REPAY_LEND_KEY: Self = Self(8);
    /// `Repay`: length of the key, key, length of the value, value.
    pub const REPAY: [Self; 4] = [Self(9), Self(10), Self(11), Self(12)];
    /// `Repay`: no status.
    pub const REPAY_STATUS: Self = Self(13);
    /// `Repay`: no such status.
    pub const REPAY_STATUS_UNKNOWN: Self = Self(14);
    /// `Update`: length of the key, key, length of the value, value.
    pub const UPDATE: [Self; 4] = [Self(39), Self(40), Self(41), Self(42)];
    /// `Heartbeat`: no lend key.
    pub const HEARTBEAT_LEND_KEY: Self = Self(43);
    /// `Heartbeat`: length of the key, key.
    pub const HEARTBEAT: [Self; 2] = [Self(44), Self(45)];
    /// `Heartbeat`: no time-out.
    pub const HEARTBEAT_TIMEOUT: Self = Self(46);
    /// `Lookup`: length of the key, key.
    pub const LOOKUP: [Self; 2] = [Self(47), Self(48)];
    /// `Remove`: length of the key, key.
    pub const REMOVE: [Self; 2] = [Self(57), Self(58)];
    /// The server could not do what was asked. What is wrong stands behind it as bytes.
    pub const SERVER: Self = Self(36);
}

impl Fault {
    pub(super) const fn short(flaw: Flaw, Short { required, given }: Short) -> Self {
        Self::Short { flaw, required, given }
    }

    /// Bytes on the wire.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Short { .. } => 10,
            Self::Unknown { .. } => 3,
        }
    }

    pub(super) fn encode(self, out: &mut BytesMut) {
        match self {
            Self::Short { flaw, required, given } => {
                out.put_u8(flaw.0);
                out.put_u32(required);
                out.put_u32(given);
            }
            Self::Unknown { flaw, byte } => out.put_slice(&[flaw.0, byte]),
        }
    }
}
