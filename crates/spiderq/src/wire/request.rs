//! The client's requests.
//!
//! Spec: `spiderq-protocol`, "Request" of each section. Bytes after a whole request are ignored.

use bytes::{BufMut, BytesMut};

pub use windlass_engine::RepayTo as Status;

use super::{Fault, Flaw, Reader};

/// The dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// 1.3, and the parts of 1.4 that cannot be mistaken: an `Add` followed by exactly one mode, and `Remove`.
    V1_3,
    /// 1.4: an `Add` must have a mode.
    V1_4,
}

/// A request, as a view of the frame it came in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// Returns the number of queued entries.
    Count,
    /// Adds an entry.
    Add {
        /// Its key.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
        /// Where the entry goes; only in 1.4.
        mode: Option<Mode>,
    },
    /// Gives an entry another value.
    Update {
        /// Its key.
        key: &'a [u8],
        /// The new value.
        value: &'a [u8],
    },
    /// Borrows the next entry.
    Lend {
        /// Duration of the lease, in milliseconds.
        timeout_ms: u64,
        /// Whether to wait if there is no entry.
        patience: Patience,
    },
    /// Returns a borrowed entry.
    Repay {
        /// The key from `Lent`.
        lend_key: u64,
        /// The entry's key.
        key: &'a [u8],
        /// The entry's new value.
        value: &'a [u8],
        /// Where the entry goes.
        status: Status,
    },
    /// Changes the end of a lease, to later or earlier.
    Heartbeat {
        /// The key from `Lent`.
        lend_key: u64,
        /// The entry's key.
        key: &'a [u8],
        /// Duration from now, in milliseconds.
        timeout_ms: u64,
    },
    /// Returns the number of requests of each kind.
    Stats,
    /// Stops the server.
    Terminate,
    /// Returns an entry's value.
    Lookup {
        /// The entry's key.
        key: &'a [u8],
    },
    /// Answered when everything before it is on disk.
    Flush,
    /// Answered at once.
    Ping,
    /// Removes an entry. 1.4 only.
    Remove {
        /// The entry's key.
        key: &'a [u8],
    },
}

/// The position of a new entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Ahead of all other entries, but behind those added at the head before.
    Head,
    /// Behind all other entries.
    Tail,
}

/// The behaviour if there is no entry to lend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// Wait for one.
    Block,
    /// Reply at once that the queue is empty.
    Poll,
}

pub(super) const COUNT: u8 = 0x01;
pub(super) const ADD: u8 = 0x02;
pub(super) const UPDATE: u8 = 0x03;
pub(super) const LEND: u8 = 0x04;
pub(super) const REPAY: u8 = 0x05;
pub(super) const HEARTBEAT: u8 = 0x06;
pub(super) const STATS: u8 = 0x07;
pub(super) const TERMINATE: u8 = 0x08;
pub(super) const LOOKUP: u8 = 0x09;
pub(super) const FLUSH: u8 = 0x0A;
pub(super) const PING: u8 = 0x0B;
pub(super) const REMOVE: u8 = 0x0C;

impl<'a> Request<'a> {
    /// The answer to a `Terminate` that clients may not use: unknown request.
    pub const NO_TERMINATE: Fault = Fault::Unknown {
        flaw: Flaw::REQUEST,
        byte: TERMINATE,
    };

    /// Reads one frame.
    ///
    /// # Errors
    ///
    /// The first invalid field.
    pub fn decode(frame: &'a [u8], dialect: Dialect) -> Result<Self, Fault> {
        let mut from = Reader::new(frame);
        let request = match from
            .u8()
            .map_err(|short| Fault::short(Flaw::EMPTY, short))?
        {
            COUNT => Self::Count,
            ADD => {
                let (key, value) = pair(&mut from, Flaw::ADD)?;
                Self::Add {
                    key,
                    value,
                    mode: mode(from, dialect)?,
                }
            }
            UPDATE => {
                let (key, value) = pair(&mut from, Flaw::UPDATE)?;
                Self::Update { key, value }
            }
            LEND => Self::Lend {
                timeout_ms: number(&mut from, Flaw::LEND_TIMEOUT)?,
                patience: patience(&mut from)?,
            },
            REPAY => {
                let lend_key = number(&mut from, Flaw::REPAY_LEND_KEY)?;
                let (key, value) = pair(&mut from, Flaw::REPAY)?;
                Self::Repay {
                    lend_key,
                    key,
                    value,
                    status: status(&mut from)?,
                }
            }
            HEARTBEAT => {
                let lend_key = number(&mut from, Flaw::HEARTBEAT_LEND_KEY)?;
                let key = bytes(&mut from, Flaw::HEARTBEAT)?;
                Self::Heartbeat {
                    lend_key,
                    key,
                    timeout_ms: number(&mut from, Flaw::HEARTBEAT_TIMEOUT)?,
                }
            }
            STATS => Self::Stats,
            TERMINATE => Self::Terminate,
            LOOKUP => Self::Lookup {
                key: bytes(&mut from, Flaw::LOOKUP)?,
            },
            FLUSH => Self::Flush,
            PING => Self::Ping,
            REMOVE => Self::Remove {
                key: bytes(&mut from, Flaw::REMOVE)?,
            },
            byte => {
                return Err(Fault::Unknown {
                    flaw: Flaw::REQUEST,
                    byte,
                });
            }
        };
        Ok(request)
    }

    /// Reads one frame of a client whose dialect is not known. An `Add` without a mode is 1.3; everything else is 1.4.
    ///
    /// # Errors
    ///
    /// The first invalid field.
    pub fn decode_either(frame: &'a [u8]) -> Result<Self, Fault> {
        match Self::decode(frame, Dialect::V1_4) {
            Err(Fault::Short {
                flaw: Flaw::ADD_MODE,
                ..
            }) => Self::decode(frame, Dialect::V1_3),
            outcome => outcome,
        }
    }

    /// The dialect that the request shows; `None` if both dialects have it.
    pub const fn dialect(&self) -> Option<Dialect> {
        match self {
            Self::Add { mode: None, .. } => Some(Dialect::V1_3),
            Self::Add { mode: Some(_), .. } | Self::Remove { .. } => Some(Dialect::V1_4),
            Self::Count
            | Self::Update { .. }
            | Self::Lend { .. }
            | Self::Repay { .. }
            | Self::Heartbeat { .. }
            | Self::Stats
            | Self::Terminate
            | Self::Lookup { .. }
            | Self::Flush
            | Self::Ping => None,
        }
    }
}

fn number(from: &mut Reader<'_>, flaw: Flaw) -> Result<u64, Fault> {
    from.u64().map_err(|short| Fault::short(flaw, short))
}

fn bytes<'a>(from: &mut Reader<'a>, [length, body]: [Flaw; 2]) -> Result<&'a [u8], Fault> {
    let required = from.u32().map_err(|short| Fault::short(length, short))?;
    from.bytes(required)
        .map_err(|short| Fault::short(body, short))
}

fn pair<'a>(
    from: &mut Reader<'a>,
    [key_length, key, value_length, value]: [Flaw; 4],
) -> Result<(&'a [u8], &'a [u8]), Fault> {
    Ok((
        bytes(from, [key_length, key])?,
        bytes(from, [value_length, value])?,
    ))
}

/// In 1.3 the bytes after an `Add` are ignored, unless they are exactly a mode.
fn mode(mut from: Reader<'_>, dialect: Dialect) -> Result<Option<Mode>, Fault> {
    match (dialect, from.rest()) {
        (Dialect::V1_3, [1]) => Ok(Some(Mode::Head)),
        (Dialect::V1_3, [2]) => Ok(Some(Mode::Tail)),
        (Dialect::V1_3, _) => Ok(None),
        (Dialect::V1_4, _) => match from
            .u8()
            .map_err(|short| Fault::short(Flaw::ADD_MODE, short))?
        {
            1 => Ok(Some(Mode::Head)),
            2 => Ok(Some(Mode::Tail)),
            byte => Err(Fault::Unknown {
                flaw: Flaw::ADD_MODE_UNKNOWN,
                byte,
            }),
        },
    }
}

fn patience(from: &mut Reader<'_>) -> Result<Patience, Fault> {
    match from
        .u8()
        .map_err(|short| Fault::short(Flaw::LEND_MODE, short))?
    {
        1 => Ok(Patience::Block),
        2 => Ok(Patience::Poll),
        byte => Err(Fault::Unknown {
            flaw: Flaw::LEND_MODE_UNKNOWN,
            byte,
        }),
    }
}

fn status(from: &mut Reader<'_>) -> Result<Status, Fault> {
    match from
        .u8()
        .map_err(|short| Fault::short(Flaw::REPAY_STATUS, short))?
    {
        1 => Ok(Status::Penalty),
        2 => Ok(Status::Reward),
        3 => Ok(Status::Front),
        4 => Ok(Status::Drop),
        byte => Err(Fault::Unknown {
            flaw: Flaw::REPAY_STATUS_UNKNOWN,
            byte,
        }),
    }
}

/// Appends a key or a value. Strings in memory are never longer than the length field allows.
pub(super) fn put(bytes: &[u8], out: &mut BytesMut) {
    out.put_u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    out.put_slice(bytes);
}
