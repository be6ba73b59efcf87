//! The client's side of spiderq, without the transport: requests into a buffer, replies from slices. No allocation. Only what
//! the load needs; deliberately shares no code with the daemon's codec.
//!
//! Spec: `spiderq-protocol`, "Requests" and "Replies". Integers are big-endian; keys and values follow their length, four
//! bytes.

use crate::load::stamp::Stamp;

/// The size of every value: a stamp, and filler bytes.
pub const VALUE_BYTES: usize = 100;
/// Count: the number of queued tasks.
pub const COUNT: &[u8] = &[0x01];
/// Stats: the replies so far.
pub const STATS: &[u8] = &[0x07];
/// Ping.
pub const PING: &[u8] = &[0x0B];

const ADD: u8 = 0x02;
/// Adds to the end of the queue. Clients of 1.3 leave it out.
const ADD_TAIL: u8 = 0x02;
const LEND: u8 = 0x04;
const REPAY: u8 = 0x05;
/// The length of every key; a key is a number.
const KEY_LENGTH: [u8; 4] = 8_u32.to_be_bytes();
/// [`VALUE_BYTES`], as written before a value.
const VALUE_LENGTH: [u8; 4] = 100_u32.to_be_bytes();
const FILLER: u8 = b'x';

/// The behaviour of Lend on an empty queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Waits for ever.
    Block,
    /// Answers at once.
    Poll,
}

/// The effect of Repay on the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Moves it back: to the end, if it was never rewarded.
    Penalty,
    /// Removes it.
    Drop,
}

/// A reply that a load may expect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply<'a> {
    /// Tasks that are queued.
    Counted(u32),
    /// The task is queued.
    Added,
    /// A task with this key exists already.
    Kept,
    /// A task on loan.
    Lent {
        /// Proof of the loan, together with the key.
        lend_key: u64,
        /// The task's key.
        key: &'a [u8],
        /// The task's value.
        value: &'a [u8],
    },
    /// The task is taken back.
    Repaid,
    /// The loan does not exist.
    NotFound,
    /// The queue is empty.
    QueueEmpty,
    /// The answer to Ping.
    Pong,
    /// The replies so far.
    Stats(Stats),
    /// An error, a reply to a request that no load sends, or invalid bytes.
    Other(&'a [u8]),
}

/// Replies of the server since its start, without errors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// To Ping; missing in 1.3.
    pub ping: Option<u64>,
    /// To Add.
    pub add: u64,
    /// To Lend.
    pub lend: u64,
    /// To Repay.
    pub repay: u64,
    /// To Update, Lookup, Remove and Heartbeat, which no load sends.
    pub strange: u64,
}

/// The value with this stamp, [`VALUE_BYTES`] long.
pub fn value_of(stamp: Stamp) -> [u8; VALUE_BYTES] {
    let mut value = [FILLER; VALUE_BYTES];
    let head = stamp.number.to_le_bytes().into_iter().chain(stamp.sent_nanos.to_le_bytes());
    value.iter_mut().zip(head).for_each(|(place, byte)| *place = byte);
    value
}

/// The number in a key.
pub fn number_of(key: &[u8]) -> Option<u64> {
    key.try_into().ok().map(u64::from_be_bytes)
}

/// Add: a task with this number as its key.
pub fn put_add(out: &mut Vec<u8>, number: u64, value: &[u8; VALUE_BYTES]) {
    out.push(ADD);
    put_task(out, number, value);
    out.push(ADD_TAIL);
}

/// Lend for `timeout_ms` milliseconds.
pub fn put_lend(out: &mut Vec<u8>, timeout_ms: u64, patience: Patience) {
    out.push(LEND);
    out.extend_from_slice(&timeout_ms.to_be_bytes());
    out.push(match patience {
        Patience::Block => 1,
        Patience::Poll => 2,
    });
}

/// Repay the task with this number.
pub fn put_repay(out: &mut Vec<u8>, lend_key: u64, number: u64, value: &[u8; VALUE_BYTES], status: Status) {
    out.push(REPAY);
    out.extend_from_slice(&lend_key.to_be_bytes());
    put_task(out, number, value);
    out.push(match status {
        Status::Penalty => 1,
        Status::Drop => 4,
    });
}

fn put_task(out: &mut Vec<u8>, number: u64, value: &[u8; VALUE_BYTES]) {
    out.extend_from_slice(&KEY_LENGTH);
    out.extend_from_slice(&number.to_be_bytes());
    out.extend_from_slice(&VALUE_LENGTH);
    out.extend_from_slice(value);
}

impl<'a> Reply<'a> {
    /// Reads the reply that fills these bytes.
    pub fn decode(bytes: &'a [u8]) -> Self {
        let known = match bytes {
            [0x01, count @ ..] => count.try_into().ok().map(|count| Self::Counted(u32::from_be_bytes(count))),
            [0x02] => Some(Self::Added),
            [0x03] => Some(Self::Kept),
            [0x05] => Some(Self::NotFound),
            [0x06, rest @ ..] => lent(rest),
            [0x07] => Some(Self::Repaid),
            [0x0A, rest @ ..] => Stats::decode(rest).map(Self::Stats),
            [0x10] => Some(Self::QueueEmpty),
            [0x11] => Some(Self::Pong),
            _ => None,
        };
        known.unwrap_or(Self::Other(bytes))
    }
}

fn lent(bytes: &[u8]) -> Option<Reply<'_>> {
    let (lend_key, rest) = bytes.split_first_chunk()?;
    let (key, rest) = split_vec(rest)?;
    let (value, rest) = split_vec(rest)?;
    rest.is_empty().then_some(Reply::Lent { lend_key: u64::from_be_bytes(*lend_key), key, value })
}

fn split_vec(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)
}

impl Stats {
    /// 1.3 has eight counters, 1.4 has ten.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (counters, []) = bytes.as_chunks() else { return None };
        let counters: Vec<u64> = counters.iter().map(|counter| u64::from_be_bytes(*counter)).collect();
        match *counters {
            [_, add, update, lookup, lend, repay, heartbeat, _] => {
                Some(Self { ping: None, add, lend, repay, strange: sum([update, lookup, heartbeat, 0]) })
            }
            [ping, _, add, update, lookup, remove, lend, repay, heartbeat, _] => {
                Some(Self { ping: Some(ping), add, lend, repay, strange: sum([update, lookup, remove, heartbeat]) })
            }
            _ => None,
        }
    }
}

fn sum(counters: [u64; 4]) -> u64 {
    counters.into_iter().fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STAMP: Stamp = Stamp { number: 0x0102, sent_nanos: 0x0304 };

    #[test]
    fn requests_to_the_byte() {
        let mut value = b"\x02\x01\0\0\0\0\0\0\x04\x03\0\0\0\0\0\0".to_vec();
        value.resize(100, b'x');
        let task = [b"\0\0\0\x08\0\0\0\0\0\0\x01\x02\0\0\0\x64", &value[..]].concat();
        let mut out = Vec::new();
        put_add(&mut out, 0x0102, &value_of(STAMP));
        assert_eq!(out, [b"\x02", &task[..], b"\x02"].concat());
        out.clear();
        put_lend(&mut out, 0x0102, Patience::Block);
        put_lend(&mut out, 3, Patience::Poll);
        assert_eq!(out, b"\x04\0\0\0\0\0\0\x01\x02\x01\x04\0\0\0\0\0\0\0\x03\x02");
        for (status, byte) in [(Status::Penalty, 1), (Status::Drop, 4)] {
            out.clear();
            put_repay(&mut out, 0x0506, 0x0102, &value_of(STAMP), status);
            assert_eq!(out, [b"\x05\0\0\0\0\0\0\x05\x06", &task[..], &[byte]].concat());
        }
    }

    #[test]
    fn replies() {
        let old: Vec<u8> = (1_u64..=8).flat_map(u64::to_be_bytes).collect();
        let new: Vec<u8> = (1_u64..=10).flat_map(u64::to_be_bytes).collect();
        let lent = Reply::Lent { lend_key: 0x0908, key: b"ab", value: b"c" };
        let table: [(&[u8], Reply<'_>); 11] = [
            (b"\x01\0\0\x01\x02", Reply::Counted(0x0102)),
            (b"\x02", Reply::Added),
            (b"\x03", Reply::Kept),
            (b"\x05", Reply::NotFound),
            (b"\x06\0\0\0\0\0\0\x09\x08\0\0\0\x02ab\0\0\0\x01c", lent),
            (b"\x07", Reply::Repaid),
            (
                &[b"\x0a", &old[..]].concat(),
                Reply::Stats(Stats { ping: None, add: 2, lend: 5, repay: 6, strange: 3 + 4 + 7 }),
            ),
            (
                &[b"\x0a", &new[..]].concat(),
                Reply::Stats(Stats { ping: Some(1), add: 3, lend: 7, repay: 8, strange: 4 + 5 + 6 + 9 }),
            ),
            (b"\x10", Reply::QueueEmpty),
            (b"\x11", Reply::Pong),
            (b"\x0b\x02\x0c", Reply::Other(b"\x0b\x02\x0c")),
        ];
        for (bytes, reply) in table {
            assert_eq!(Reply::decode(bytes), reply);
            let more = [bytes, b"\0"].concat();
            assert_eq!(Reply::decode(&more), Reply::Other(&more), "a byte too many");
            let less = &bytes[..bytes.len() - 1];
            assert_eq!(Reply::decode(less), Reply::Other(less), "a byte too few");
        }
    }

    proptest! {
        #[test]
        fn a_stamp_survives_its_task(number: u64, sent_nanos: u64) {
            let stamp = Stamp { number, sent_nanos };
            let mut out = Vec::new();
            put_add(&mut out, number, &value_of(stamp));
            prop_assert_eq!(number_of(&out[5..13]), Some(number));
            prop_assert_eq!(Stamp::of(&out[17..117]), Some(stamp));
        }

        #[test]
        fn noise_never_panics(tag in 0_u8..20, noise: Vec<u8>) {
            let _ = (Reply::decode(&[&[tag], &noise[..]].concat()), number_of(&noise));
        }
    }
}
