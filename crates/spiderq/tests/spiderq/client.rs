//! A client's side of the codec, which only tests need: requests as bytes, and bytes as replies.

use bytes::{Buf as _, BufMut as _, BytesMut};
use windlass_spiderq::wire::{
    Counts, Dialect, Fault, Flaw, Mode, Patience, Reply, Request, Status,
};

/// The bytes are not a valid reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BadReply;

/// Appends the request, as clients send it.
pub(crate) fn encode(request: &Request<'_>, out: &mut BytesMut) {
    match *request {
        Request::Count => out.put_u8(0x01),
        Request::Add { key, value, mode } => {
            out.put_u8(0x02);
            put_pair(key, value, out);
            mode.into_iter()
                .for_each(|mode| out.put_u8(if mode == Mode::Head { 1 } else { 2 }));
        }
        Request::Update { key, value } => {
            out.put_u8(0x03);
            put_pair(key, value, out);
        }
        Request::Lend {
            timeout_ms,
            patience,
        } => {
            out.put_u8(0x04);
            out.put_u64(timeout_ms);
            out.put_u8(if patience == Patience::Block { 1 } else { 2 });
        }
        Request::Repay {
            lend_key,
            key,
            value,
            status,
        } => {
            out.put_u8(0x05);
            out.put_u64(lend_key);
            put_pair(key, value, out);
            out.put_u8(match status {
                Status::Penalty => 1,
                Status::Reward => 2,
                Status::Front => 3,
                Status::Drop => 4,
            });
        }
        Request::Heartbeat {
            lend_key,
            key,
            timeout_ms,
        } => {
            out.put_u8(0x06);
            out.put_u64(lend_key);
            put(key, out);
            out.put_u64(timeout_ms);
        }
        Request::Stats => out.put_u8(0x07),
        Request::Terminate => out.put_u8(0x08),
        Request::Lookup { key } => {
            out.put_u8(0x09);
            put(key, out);
        }
        Request::Flush => out.put_u8(0x0A),
        Request::Ping => out.put_u8(0x0B),
        Request::Remove { key } => {
            out.put_u8(0x0C);
            put(key, out);
        }
    }
}

fn put(bytes: &[u8], out: &mut BytesMut) {
    out.put_u32(u32::try_from(bytes.len()).unwrap());
    out.put_slice(bytes);
}

fn put_pair(key: &[u8], value: &[u8], out: &mut BytesMut) {
    put(key, out);
    put(value, out);
}

/// Reads the reply at the front of these bytes, and returns it with its length. The counters must fill all remaining
/// bytes, because their number shows the dialect.
pub(crate) fn decode(bytes: &[u8]) -> Result<(Reply<'_>, usize), BadReply> {
    let mut from = bytes;
    let reply = read(&mut from).ok_or(BadReply)?;
    Ok((reply, bytes.len() - from.len()))
}

fn read<'a>(from: &mut &'a [u8]) -> Option<Reply<'a>> {
    Some(match from.try_get_u8().ok()? {
        0x01 => Reply::Counted(from.try_get_u32().ok()?),
        0x02 => Reply::Added,
        0x03 => Reply::Kept,
        0x04 => Reply::Updated,
        0x05 => Reply::NotFound,
        0x06 => Reply::Lent {
            lend_key: from.try_get_u64().ok()?,
            key: vector(from)?,
            value: vector(from)?,
        },
        0x07 => Reply::Repaid,
        0x08 => Reply::Heartbeaten,
        0x09 => Reply::Skipped,
        0x0A => {
            let dialect = if from.len() == 64 {
                Dialect::V1_3
            } else {
                Dialect::V1_4
            };
            Reply::StatsGot(counts(from, dialect)?, dialect)
        }
        0x0B => read_error(from)?,
        0x0C => Reply::Terminated,
        0x0D => Reply::ValueFound(vector(from)?),
        0x0E => Reply::ValueNotFound,
        0x0F => Reply::Flushed,
        0x10 => Reply::QueueEmpty,
        0x11 => Reply::Pong,
        0x12 => Reply::Removed,
        0x13 => Reply::NotRemoved,
        _ => return None,
    })
}

fn read_error<'a>(from: &mut &'a [u8]) -> Option<Reply<'a>> {
    let flaw = Flaw(from.try_get_u8().ok()?);
    let fault = match flaw {
        Flaw::SERVER => return Some(Reply::Trouble(vector(from)?)),
        Flaw::REQUEST
        | Flaw::ADD_MODE_UNKNOWN
        | Flaw::LEND_MODE_UNKNOWN
        | Flaw::REPAY_STATUS_UNKNOWN => Fault::Unknown {
            flaw,
            byte: from.try_get_u8().ok()?,
        },
        flaw => Fault::Short {
            flaw,
            required: from.try_get_u32().ok()?,
            given: from.try_get_u32().ok()?,
        },
    };
    Some(Reply::Error(fault))
}

fn counts(from: &mut &[u8], dialect: Dialect) -> Option<Counts> {
    let mut counts = Counts::default();
    let mut places = counts
        .iter_mut()
        .enumerate()
        .filter(|(at, _)| dialect == Dialect::V1_4 || ![0, 5].contains(at));
    places
        .try_for_each(|(_, count)| from.try_get_u64().map(|found| *count = found))
        .ok()?;
    Some(counts)
}

fn vector<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let bytes = usize::try_from(from.try_get_u32().ok()?).ok()?;
    let (vector, rest) = from.split_at_checked(bytes)?;
    *from = rest;
    Some(vector)
}
