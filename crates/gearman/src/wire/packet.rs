//! The header of a packet, the numbers of the packet types, and the one function that writes a packet. The arguments of
//! packets are in `request` and `response`.
//!
//! Spec: `PROTOCOL`, "Binary Packet".

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};

/// Bytes of a header: magic, type and size, four each, numbers big-endian.
pub const HEADER_BYTES: usize = 12;

/// The first four bytes of a packet: its direction.
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

/// One whole packet. The body is a view of its read buffer. A reference to the body, or to a part of it, keeps that
/// whole buffer alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// The direction in the header; the decoder accepts both.
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
    1  CAN_DO "Worker request: registers a function."
    2  CANT_DO "Worker request: unregisters a function."
    3  RESET_ABILITIES "Worker request: unregisters all functions."
    4  PRE_SLEEP "Worker request: asks for a NOOP when there is work."
    5  UNUSED "Unused."
    6  NOOP "Worker response: wake up."
    7  SUBMIT_JOB "Client request: submits a job and waits for its result."
    8  JOB_CREATED "Client response: the handle of the submitted job."
    9  GRAB_JOB "Worker request: asks for a job."
    10 NO_JOB "Worker response: there is no job."
    11 JOB_ASSIGN "Worker response: a job."
    12 WORK_STATUS "Both: a job's progress."
    13 WORK_COMPLETE "Both: a job succeeded."
    14 WORK_FAIL "Both: a job failed."
    15 GET_STATUS "Client request: the status of the job with this handle."
    16 ECHO_REQ "Request by either side: asks for the same bytes back."
    17 ECHO_RES "Response to either side: the same bytes."
    18 SUBMIT_JOB_BG "Client request: submits a job without waiting."
    19 ERROR "Response to either side: a code and a text."
    20 STATUS_RES "Client response to GET_STATUS."
    21 SUBMIT_JOB_HIGH "As SUBMIT_JOB, before normal jobs."
    22 SET_CLIENT_ID "Worker request: sets the connection's id."
    23 CAN_DO_TIMEOUT "As CAN_DO, with the milliseconds a job may take."
    24 ALL_YOURS "Worker request: states that the worker has no other job server."
    25 WORK_EXCEPTION "Both: a job failed with this message."
    26 OPTION_REQ "Request by either side: set an option of this connection."
    27 OPTION_RES "Response to either side: the option is set."
    28 WORK_DATA "Both: a part of a result."
    29 WORK_WARNING "Both: a warning."
    30 GRAB_JOB_UNIQ "As GRAB_JOB, answered with the unique id."
    31 JOB_ASSIGN_UNIQ "As JOB_ASSIGN, with the unique id."
    32 SUBMIT_JOB_HIGH_BG "As SUBMIT_JOB_BG, before normal jobs."
    33 SUBMIT_JOB_LOW "As SUBMIT_JOB, after normal jobs."
    34 SUBMIT_JOB_LOW_BG "As SUBMIT_JOB_BG, after normal jobs."
    35 SUBMIT_JOB_SCHED "As SUBMIT_JOB_BG, at recurring times."
    36 SUBMIT_JOB_EPOCH "As SUBMIT_JOB_BG, not before a time."
    37 SUBMIT_REDUCE_JOB "As SUBMIT_JOB, with a reducer."
    38 SUBMIT_REDUCE_JOB_BACKGROUND "As SUBMIT_JOB_BG, with a reducer."
    39 GRAB_JOB_ALL "As GRAB_JOB_UNIQ, answered with the reducer too."
    40 JOB_ASSIGN_ALL "As JOB_ASSIGN_UNIQ, with the reducer."
    41 GET_STATUS_UNIQUE "Client request: the status of the job with this unique id."
    42 STATUS_RES_UNIQUE "Client response to GET_STATUS_UNIQUE."
}

impl Kind {
    /// Whether the specification lists this number. It lists 5, as unused.
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

/// Appends a packet whose arguments are separated by NULs, as those of every packet type are, without its last bytes, which
/// the caller sends behind `out`. They must be part of the last argument.
/// `out` grows at most once; nothing else is allocated.
pub(super) fn write_packet(
    omitted_bytes: usize,
    out: &mut BytesMut,
    magic: Magic,
    kind: Kind,
    arguments: &[&[u8]],
) {
    let separators = arguments.len().saturating_sub(1);
    let body_bytes = arguments
        .iter()
        .map(|argument| argument.len())
        .sum::<usize>()
        + separators;
    let Ok(size) = u32::try_from(body_bytes) else {
        // Frames are at most FRAME_BYTES_CEILING long, and a packet adds far less than 3 GiB.
        unreachable!("a body of {body_bytes} bytes passed the frame limit");
    };
    out.reserve(HEADER_BYTES + body_bytes.saturating_sub(omitted_bytes));
    let ([a, b, c, d], [e, f, g, h], [i, j, k, l]) =
        (magic.bytes(), kind.0.to_be_bytes(), size.to_be_bytes());
    out.put_slice(&[a, b, c, d, e, f, g, h, i, j, k, l]);
    for (position, argument) in arguments.iter().enumerate() {
        if position > 0 {
            out.put_u8(0);
        }
        let omitted = if position == separators {
            omitted_bytes
        } else {
            0
        };
        out.put_slice(
            argument
                .get(..argument.len().saturating_sub(omitted))
                .unwrap_or_default(),
        );
    }
}
