//! The header of a packet, the numbers of the packet types, and the one function that writes a packet.
//! What the arguments of a packet mean is in `request` and `response`.
//!
//! Spec: `PROTOCOL`, "Binary Packet".

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};

/// Bytes of a header: magic, type and size, four each, numbers big-endian.
pub const HEADER_BYTES: usize = 12;

/// The first four bytes of a packet: the direction it claims to travel in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Magic {
    /// `\0REQ`, towards the job server.
    Request,
    /// `\0RES`, from the job server.
    Response,
}

impl Magic {
    /// The four bytes on the wire.
    pub const fn bytes(self) -> [u8; 4] {
        match self {
            Self::Request => *b"\0REQ",
            Self::Response => *b"\0RES",
        }
    }
}

/// One whole packet. The body is a view into the buffer it was read from, so whatever keeps it, or a
/// part of it, keeps that whole buffer alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// The direction it claims; the decoder lets both pass.
    pub magic: Magic,
    /// Its type, between 1 and 42 when it comes from the decoder.
    pub kind: Kind,
    /// Everything after the header.
    pub body: Bytes,
}

/// A packet type: any number, with constants for those of the specification.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(pub u32);

macro_rules! kinds {
    ($($number:literal $name:ident $meaning:literal)*) => {
        impl Kind {
            $(#[doc = $meaning] pub const $name: Self = Self($number);)*

            /// The specification's name for logs, `UNKNOWN` for a number it does not list.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                    _ => "UNKNOWN",
                }
            }
        }
    };
}

kinds! {
    1  CAN_DO "Worker request: I perform this function."
    2  CANT_DO "Worker request: I no longer perform this function."
    3  RESET_ABILITIES "Worker request: I perform nothing any more."
    4  PRE_SLEEP "Worker request: wake me when there is work."
    5  UNUSED "A number without a meaning."
    6  NOOP "Worker response: wake up."
    7  SUBMIT_JOB "Client request: run this and tell me how it went."
    8  JOB_CREATED "Client response: the handle of what was submitted."
    9  GRAB_JOB "Worker request: hand me a job."
    10 NO_JOB "Worker response: there is none."
    11 JOB_ASSIGN "Worker response: a job."
    12 WORK_STATUS "Both: how far a job has come."
    13 WORK_COMPLETE "Both: a job succeeded."
    14 WORK_FAIL "Both: a job failed."
    15 GET_STATUS "Client request: how is the job with this handle?"
    16 ECHO_REQ "Request by either side: send this back."
    17 ECHO_RES "Response to either side: here it is again."
    18 SUBMIT_JOB_BG "Client request: run this, I am not waiting."
    19 ERROR "Response to either side: a code and a text."
    20 STATUS_RES "Client response to GET_STATUS."
    21 SUBMIT_JOB_HIGH "As SUBMIT_JOB, before normal jobs."
    22 SET_CLIENT_ID "Worker request: call me this in reports."
    23 CAN_DO_TIMEOUT "As CAN_DO, with the milliseconds a job may take."
    24 ALL_YOURS "Worker request: you are my only job server."
    25 WORK_EXCEPTION "Both: a job failed with these words."
    26 OPTION_REQ "Request by either side: set an option of this connection."
    27 OPTION_RES "Response to either side: the option is set."
    28 WORK_DATA "Both: a part of a result."
    29 WORK_WARNING "Both: a warning."
    30 GRAB_JOB_UNIQ "As GRAB_JOB, answered with the unique id."
    31 JOB_ASSIGN_UNIQ "As JOB_ASSIGN, with the unique id."
    32 SUBMIT_JOB_HIGH_BG "As SUBMIT_JOB_BG, before normal jobs."
    33 SUBMIT_JOB_LOW "As SUBMIT_JOB, after normal jobs."
    34 SUBMIT_JOB_LOW_BG "As SUBMIT_JOB_BG, after normal jobs."
    35 SUBMIT_JOB_SCHED "As SUBMIT_JOB_BG, when the calendar says so."
    36 SUBMIT_JOB_EPOCH "As SUBMIT_JOB_BG, not before a time."
    37 SUBMIT_REDUCE_JOB "As SUBMIT_JOB, with a reducer."
    38 SUBMIT_REDUCE_JOB_BACKGROUND "As SUBMIT_JOB_BG, with a reducer."
    39 GRAB_JOB_ALL "As GRAB_JOB_UNIQ, answered with the reducer too."
    40 JOB_ASSIGN_ALL "As JOB_ASSIGN_UNIQ, with the reducer."
    41 GET_STATUS_UNIQUE "Client request: how is the job with this unique id?"
    42 STATUS_RES_UNIQUE "Client response to GET_STATUS_UNIQUE."
}

impl Kind {
    /// Whether the specification lists this number. It does list 5, as unused.
    pub const fn is_known(self) -> bool {
        1 <= self.0 && self.0 <= Self::STATUS_RES_UNIQUE.0
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Appends a packet whose arguments are separated by NULs, as those of every packet type are.
/// `out` grows at most once; nothing else is allocated.
pub(super) fn write_packet(out: &mut BytesMut, magic: Magic, kind: Kind, arguments: &[&[u8]]) {
    let separators = arguments.len().saturating_sub(1);
    let body_bytes = arguments.iter().map(|argument| argument.len()).sum::<usize>() + separators;
    let Ok(size) = u32::try_from(body_bytes) else {
        // Frames are at most FRAME_BYTES_CEILING, and nothing a packet adds comes near 3 GiB.
        unreachable!("a body of {body_bytes} bytes passed the frame limit");
    };
    out.reserve(HEADER_BYTES + body_bytes);
    out.put_slice(&magic.bytes());
    out.put_u32(kind.0);
    out.put_u32(size);
    for (position, argument) in arguments.iter().enumerate() {
        if position > 0 {
            out.put_u8(0);
        }
        out.put_slice(argument);
    }
}
