//! The mark: the number of the last durable commit, stored next to the log in a file of 64 bytes.
//!
//! The mark is written after each commit, before the acknowledgement. It is synced when a segment starts and
//! on a clean shutdown. It therefore never names a commit that is not durable, and after a kill it is exact:
//! a missing commit up to the mark was lost after it was durable, and is not merely a torn write.
//!
//! ```text
//! bytes 0..4    crc32 of the log's id and of bytes 4..64
//!       4..8    "WLM1"
//!       8..16   the log's id
//!       16..24  number of the last durable commit
//!       24..32  number of the segment it is in
//!       32      1 if the daemon stopped in order after it
//!       33..64  zeros
//! ```
//! Numbers are little-endian.

use super::entry::{HEADER_BYTES, LogId};

pub(crate) const MARK_BYTES: usize = HEADER_BYTES;
const MAGIC: [u8; 4] = *b"WLM1";

/// The last commit of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mark {
    pub(crate) id: LogId,
    pub(crate) seq: u64,
    pub(crate) segment: u64,
    pub(crate) clean: bool,
}

impl Mark {
    pub(crate) fn encode(self) -> [u8; MARK_BYTES] {
        self.id.sealed(
            MAGIC,
            [self.id.0, self.seq, self.segment, self.clean.into()],
        )
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; MARK_BYTES] = bytes.try_into().ok()?;
        let number = |at: usize| {
            bytes
                .get(at..)?
                .first_chunk()
                .copied()
                .map(u64::from_le_bytes)
        };
        let id = LogId(number(8)?);
        let sum = bytes.first_chunk().copied().map(u32::from_le_bytes)?;
        let whole = bytes.get(4..8)? == MAGIC && id.checksum(bytes.get(4..)?) == sum;
        let mark = Self {
            id,
            seq: number(16)?,
            segment: number(24)?,
            clean: *bytes.get(32)? == 1,
        };
        whole.then_some(mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written_or_not_at_all() {
        let mark = Mark {
            id: LogId(7),
            seq: 1 << 40,
            segment: 12,
            clean: true,
        };
        let bytes = mark.encode();
        assert_eq!(Mark::decode(&bytes), Some(mark));
        assert_eq!(
            (Mark::decode(&bytes[..63]), Mark::decode(&[0; 64])),
            (None, None)
        );
        for at in 0..MARK_BYTES * 8 {
            let mut damaged = bytes;
            damaged[at / 8] ^= 1 << (at % 8);
            assert_eq!(Mark::decode(&damaged), None, "bit {at}");
        }
    }
}
