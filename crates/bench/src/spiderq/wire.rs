//! The client's side of spiderq, without the transport: requests into a buffer, replies from slices. No allocation. Only what
//! the load needs; deliberately shares no code with the daemon's codec.
//!
//! Spec: `spiderq-protocol`, "Requests" and "Replies". Integers are big-endian; keys and values follow their length, four
//! bytes.

use crate::stamp::Stamp;

/// The size of every value: a stamp, and filler bytes.
const VALUE_BYTES: usize = 100;
/// Count: the number of queued tasks.
pub(super) const COUNT: &[u8] = &[0x01];
/// Stats: the replies so far.
pub(super) const STATS: &[u8] = &[0x07];
pub(super) const PING: &[u8] = &[0x0B];
/// Replies without further bytes.
pub(super) const ADDED: &[u8] = &[0x02];
pub(super) const KEPT: &[u8] = &[0x03];
pub(super) const NOT_FOUND: &[u8] = &[0x05];
pub(super) const REPAID: &[u8] = &[0x07];
pub(super) const QUEUE_EMPTY: &[u8] = &[0x10];
pub(super) const PONG: &[u8] = &[0x11];
/// Longer than a run, so no loan expires.
const LEND_MS: u64 = 3_600_000;

/// The effect of Repay on the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    /// Moves it back: to the end, if it was never rewarded.
    Penalty = 1,
    /// Removes it.
    Drop = 4,
}

/// The value with this stamp.
pub(super) fn value_of(stamp: Stamp) -> [u8; VALUE_BYTES] {
    let mut value = [b'x'; VALUE_BYTES];
    value.iter_mut().zip(stamp.to_bytes()).for_each(|(place, byte)| *place = byte);
    value
}

/// Add to the end of the queue: a task with this number as its key.
pub(super) fn put_add(out: &mut Vec<u8>, task: Stamp) {
    out.push(0x02);
    put_task(out, task);
    out.push(0x02);
}

/// Lend, which waits for a task or answers at once.
pub(super) fn put_lend(out: &mut Vec<u8>, waits: bool) {
    out.push(0x04);
    out.extend_from_slice(&LEND_MS.to_be_bytes());
    out.push(if waits { 1 } else { 2 });
}

/// Repay.
pub(super) fn put_repay(out: &mut Vec<u8>, lend_key: u64, task: Stamp, status: Status) {
    out.push(0x05);
    out.extend_from_slice(&lend_key.to_be_bytes());
    put_task(out, task);
    out.push(status as u8);
}

fn put_task(out: &mut Vec<u8>, task: Stamp) {
    out.extend_from_slice(&8_u32.to_be_bytes());
    out.extend_from_slice(&task.number.to_be_bytes());
    out.extend_from_slice(&100_u32.to_be_bytes());
    out.extend_from_slice(&value_of(task));
}

/// The loan's key, the task's key and its value, if the reply is a task on loan.
pub(super) fn lent(reply: &[u8]) -> Option<(u64, &[u8], &[u8])> {
    let (lend_key, rest) = reply.strip_prefix(&[0x06])?.split_first_chunk()?;
    let (key, rest) = split_vec(rest)?;
    let (value, rest) = split_vec(rest)?;
    rest.is_empty().then_some((u64::from_be_bytes(*lend_key), key, value))
}

fn split_vec(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)
}

/// The number of queued tasks, if the reply is a count.
pub(super) fn counted(reply: &[u8]) -> Option<u64> {
    Some(u64::from(u32::from_be_bytes(reply.strip_prefix(&[0x01])?.try_into().ok()?)))
}

/// Replies of the server since its start, without errors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Stats {
    /// To Ping; missing in 1.3.
    pub(super) ping: Option<u64>,
    pub(super) add: u64,
    pub(super) lend: u64,
    pub(super) repay: u64,
    /// To Update, Lookup, Remove and Heartbeat, which no load sends.
    pub(super) strange: u64,
}

impl Stats {
    /// 1.3 has eight counters, 1.4 has ten.
    pub(super) fn decode(reply: &[u8]) -> Option<Self> {
        let (counters, []) = reply.strip_prefix(&[0x0A])?.as_chunks() else { return None };
        let counters: Vec<u64> = counters.iter().map(|counter| u64::from_be_bytes(*counter)).collect();
        let sum = |counters: &[u64]| counters.iter().copied().fold(0, u64::saturating_add);
        match *counters {
            [_, add, update, lookup, lend, repay, heartbeat, _] => {
                Some(Self { ping: None, add, lend, repay, strange: sum(&[update, lookup, heartbeat]) })
            }
            [ping, _, add, update, lookup, remove, lend, repay, heartbeat, _] => {
                Some(Self { ping: Some(ping), add, lend, repay, strange: sum(&[update, lookup, remove, heartbeat]) })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_to_the_byte() {
        let stamp = Stamp { number: 0x0102, sent_nanos: 0x0304 };
        let mut value = b"\x02\x01\0\0\0\0\0\0\x04\x03\0\0\0\0\0\0".to_vec();
        value.resize(100, b'x');
        let task = [b"\0\0\0\x08\0\0\0\0\0\0\x01\x02\0\0\0\x64", &value[..]].concat();
        let made = |put: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            put(&mut out);
            out
        };
        assert_eq!(made(&|out| put_add(out, stamp)), [b"\x02", &task[..], b"\x02"].concat());
        assert_eq!(made(&|out| put_lend(out, true)), b"\x04\0\0\0\0\0\x36\xee\x80\x01");
        for (status, byte) in [(Status::Penalty, 1), (Status::Drop, 4)] {
            let expected = [b"\x05\0\0\0\0\0\0\x05\x06", &task[..], &[byte]].concat();
            assert_eq!(made(&|out| put_repay(out, 0x0506, stamp, status)), expected);
        }
    }

    #[test]
    fn replies() {
        let counters = |count| [vec![0x0a], (1_u64..=count).flat_map(u64::to_be_bytes).collect()].concat();
        let of_1_3 = Stats { ping: None, add: 2, lend: 5, repay: 6, strange: 3 + 4 + 7 };
        let of_1_4 = Stats { ping: Some(1), add: 3, lend: 7, repay: 8, strange: 4 + 5 + 6 + 9 };
        let found = [8, 9, 10].map(|count| Stats::decode(&counters(count)));
        assert_eq!(found, [Some(of_1_3), None, Some(of_1_4)]);
        assert_eq!(counted(b"\x01\0\0\x01\x02"), Some(0x0102));
        let task = b"\x06\0\0\0\0\0\0\x09\x08\0\0\0\x02ab\0\0\0\x01c";
        assert_eq!(lent(task), Some((0x0908, &b"ab"[..], &b"c"[..])));
        for cut in 0..task.len() {
            assert_eq!((lent(&task[..cut]), counted(&task[..cut])), (None, None), "{cut}");
        }
        assert_eq!(lent(&[task, &b"\0"[..]].concat()), None, "a byte too many");
    }
}
