//! The log: a sequence of commits, one per entry.
//!
//! Reading order: `entry` (bytes on the disk) · `mark` (the last durable commit) · `scan` (which entries are
//! valid, and what is damage) · `file` (the log in segment files) · `names` (settings of queues that segments
//! repeat) · `room` (file operations).

pub(crate) mod entry;
pub(crate) mod file;
pub(crate) mod mark;
mod names;
mod room;
pub(crate) mod scan;

use windlass_codec::{DecodeError, Reader};
use windlass_engine::Ended;

use crate::record::read_ended;
use crate::store::{Entry, Error};

/// The records of an entry: the offset of each within the entry's records, and the bytes.
pub fn records(bytes: &[u8]) -> impl Iterator<Item = Result<(usize, &[u8]), DecodeError>> {
    Reader::new(bytes).each(move |reader| {
        let len = reader.u64()?;
        let at = bytes.len() - reader.left();
        reader.slice(len).map(|record| (at, record))
    })
}

/// The rows for the history in a commit, each with the bytes of its record.
///
/// # Errors
///
/// A record cannot be read.
pub fn ended_rows(entry: &Entry<'_>) -> impl Iterator<Item = Result<(Ended, usize), Error>> {
    let seq = entry.seq;
    let row = |record: Result<(usize, &[u8]), DecodeError>| match record {
        Ok((_, record)) => Some(read_ended(record)?.map(|row| (row, record.len()))),
        Err(why) => Some(Err(why)),
    };
    let damaged = move |why| Error::damaged("log", format!("commit {seq} cannot be read: {why}"));
    records(entry.records)
        .filter_map(row)
        .map(move |row| row.map_err(damaged))
}
