//! The jobs a commit has a word on, in about a byte each: the distances from one number to the next.

use windlass_engine::JobId;

use crate::codec::{Reader, put_i64};

/// Writes a roll.
#[derive(Debug, Default)]
pub(crate) struct RollWriter {
    last: u64,
    bytes: Vec<u8>,
}

impl RollWriter {
    pub(crate) fn push(&mut self, id: JobId) {
        put_i64(&mut self.bytes, id.0.wrapping_sub(self.last).cast_signed());
        self.last = id.0;
    }

    pub(crate) fn finish(self) -> Box<[u8]> {
        self.bytes.into_boxed_slice()
    }
}

/// How far a roll has been read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RollCursor {
    at: usize,
    last: u64,
}

impl RollCursor {
    /// The next job of the roll this cursor is for.
    pub(crate) fn next(&mut self, roll: &[u8]) -> Option<JobId> {
        let rest = roll.get(self.at..)?;
        let mut reader = Reader::new(rest);
        let distance = reader.i64().ok()?;
        self.at += rest.len() - reader.left();
        self.last = self.last.wrapping_add(distance.cast_unsigned());
        Some(JobId(self.last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_roll_is_read_as_it_was_written() {
        let ids = [5, 6, 7, 8, 1_000_000, 3, u64::MAX >> 1, 4];
        let mut writer = RollWriter::default();
        ids.iter().for_each(|id| writer.push(JobId(*id)));
        let roll = writer.finish();
        let mut cursor = RollCursor::default();
        let read: Vec<u64> = std::iter::from_fn(|| cursor.next(&roll)).map(|id| id.0).collect();
        assert_eq!(read, ids);
        let mut births = RollWriter::default();
        (1_000_000..1_001_000).for_each(|id| births.push(JobId(id)));
        assert_eq!(births.finish().len(), 1_002, "a byte a job, and three for the first");
    }
}
