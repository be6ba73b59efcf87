//! sled's log, read without sled: nothing is written, nothing is trusted, and no bytes make it panic.
//!
//! Opening a log with sled blanks and cuts off what sled takes for superfluous, and even reading with it writes: it
//! splits and merges nodes on its way. This reads the file as it is, while sled has it open (after a flush, with nobody
//! writing), after it was closed, and after a power cut.
//!
//! The log is a sequence of segments, each somewhere in the file; a segment that is free is used again, at the log's end.
//! It holds messages: pages written anew, changes to pages, pages that are free. A page is its last image and the changes
//! behind it. Where a message is in the log is its `lsn`; one byte of log is one `lsn`, so where it is in its segment
//! follows from it.
//!
//! Reading order: `message` (segments, messages) · `node` (pages) · `index` (which messages make up which page) · `walk`
//! (a tree in order of keys) · `salvage` (whatever can be read).
//!
//! # What sled does to its file
//!
//! * After a flush everything written before is there; without, everything up to some point, if there is one writer. What
//!   follows in the last segment is blank, or left from the segment's last use: then it says to be of another segment.
//! * A segment that nothing needs is used again, or cut off, once what replaced the last of it was on the disk before
//!   the header of a later segment was written. So what the log said at any `lsn` that is at most one segment before the
//!   beginning of the last one, and not before sled opened it, can be read still. Further back, pages may be missing, or
//!   be older than they were.
//! * Free segments at the end of the file are cut off by another thread, maybe after the flush that freed them. Segments
//!   are blanked only while sled opens the log: all that are free then, and what is behind the last message.
//! * After a power cut there may be holes: a segment is filled by several writes, and any block of those that no sync
//!   followed may be as it was before. What is behind a hole is read too; [`Index::tears`] says where to cut.
//! * A log that is cut between any two messages holds trees that hold together: a node that is split is replaced after
//!   its new neighbour is there, and one that is merged is freed after its neighbour has taken over its entries. But it
//!   may end within a batch.
//!
//! # What a reader must check
//!
//! Checksums tell what was not written so. They do not tell what is missing: behind a hole, a change may be applied to an
//! image of its page that is too old, with a wrong beginning of its key if the page was split or used anew meanwhile. So
//! a value must tell itself which key it belongs to, and the whole whether it is whole.

mod index;
mod message;
mod node;
mod salvage;
#[cfg(test)]
mod tests;
mod walk;

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use self::message::{Flaw, Message, SEGMENT_HEADER_BYTES, Segment};
use crate::store::Error;

#[cfg(test)]
use self::index::Index;
#[cfg(test)]
use self::salvage::Salvaged;
#[cfg(test)]
use self::walk::Walk;

pub(crate) use self::walk::Gap;

/// What sled takes for the size of a segment.
const SEGMENT_BYTES: std::ops::RangeInclusive<usize> = 256..=16 << 20;
/// What a page may take, with all changes to it: in the log, or in a file of its own.
const PAGE_BYTES_MAX: usize = 16 << 20;
/// Places that are told of one by one.
const PLACES_MAX: usize = 64;
const BLOBS: &str = "blobs";

/// Who is shown entries: their keys and values.
pub(crate) type Each<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;
/// Who is shown whatever was ever written: keys, values, and where in the log they were.
pub(crate) type EachWritten<'a> = dyn FnMut(&[u8], &[u8], u64) -> ControlFlow<()> + 'a;

/// sled's log, open for reading.
///
/// Memory: a segment while its messages are read, a page while its entries are, and for an index some 100 bytes a page and
/// 24 for each change behind its last image.
#[derive(Debug)]
pub(crate) struct SledFile {
    file: File,
    path: PathBuf,
    segment_bytes: usize,
}

/// Places in the file that cannot be read: how many, and the first of them with what is wrong there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    pub(crate) total: u64,
    pub(crate) first: Vec<(u64, Flaw)>,
}

impl Places {
    fn add(&mut self, offset: u64, flaw: Flaw) {
        self.total += 1;
        if self.first.len() < PLACES_MAX {
            self.first.push((offset, flaw));
        }
    }

    fn join(&mut self, other: Self) {
        let room = PLACES_MAX.saturating_sub(self.first.len());
        self.total += other.total;
        self.first.extend(other.first.into_iter().take(room));
    }
}

impl SledFile {
    /// Opens the file called `db` in sled's folder. The size of its segments is what sled was configured with.
    ///
    /// # Errors
    ///
    /// If it cannot be opened, and if no log of sled's has such segments.
    pub(crate) fn open(path: &Path, segment_bytes: usize) -> Result<Self, Error> {
        let path = path.to_path_buf();
        if !segment_bytes.is_power_of_two() || !SEGMENT_BYTES.contains(&segment_bytes) {
            let what = format!("a log has no segments of {segment_bytes} bytes");
            return Err(Error::Damaged { path, what });
        }
        match File::open(&path) {
            Ok(file) => Ok(Self { file, path, segment_bytes }),
            Err(why) => Err(Error::Io { doing: "opening", path, why }),
        }
    }

    fn failed(&self, why: io::Error) -> Error {
        Error::Io { doing: "reading", path: self.path.clone(), why }
    }

    /// Fills a buffer as far as the file reaches.
    fn read<'a>(&self, offset: u64, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
        Ok(buffer.get(..filled).unwrap_or_default())
    }

    /// Where segments begin in the file, and their headers if they are as they were written.
    fn headers(&self) -> Result<Vec<(u64, Option<Segment>)>, Error> {
        let length = self.file.metadata().map_err(|why| self.failed(why))?.len();
        let last = length.saturating_sub(SEGMENT_HEADER_BYTES as u64 - 1);
        let mut headers = Vec::new();
        for offset in (0..last).step_by(self.segment_bytes) {
            let mut header = [0; SEGMENT_HEADER_BYTES];
            // A header on a bad block is as good as a damaged one; a disk that is gone is found when messages are read.
            let read = self.read(offset, &mut header).is_ok();
            headers.push((offset, Segment::read(&header, offset, self.segment_bytes).filter(|_| read)));
        }
        Ok(headers)
    }

    /// The contents of a message, wherever they are. Those in a file of their own are read into `buffer`.
    fn contents<'a>(&self, message: &Message<'a>, buffer: &'a mut Vec<u8>) -> Result<Result<&'a [u8], Flaw>, Error> {
        match message.blob() {
            None => Ok(Ok(message.body)),
            Some(Ok(id)) => self.blob(id, message.tag, buffer),
            Some(Err(flaw)) => Ok(Err(flaw)),
        }
    }

    /// What is in a file of its own.
    fn blob<'a>(&self, id: u64, tag: u8, buffer: &'a mut Vec<u8>) -> Result<Result<&'a [u8], Flaw>, Error> {
        let path = self.path.with_file_name(BLOBS).join(id.to_string());
        let read = File::open(&path).and_then(|file| {
            let bytes = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
            if bytes > PAGE_BYTES_MAX {
                return Ok(false);
            }
            buffer.resize(bytes, 0);
            file.read_exact_at(buffer, 0).map(|()| true)
        });
        match read {
            Ok(true) => Ok(blob(tag, buffer).ok_or(Flaw::Blob)),
            Ok(false) => Ok(Err(Flaw::Large)),
            // It may also be removed, or not yet be whole, while sled is open.
            Err(why) if matches!(why.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof) => {
                Ok(Err(Flaw::Blob))
            }
            Err(why) => Err(Error::Io { doing: "reading", path, why }),
        }
    }
}

/// What is in a file of its own, behind a checksum (of all that follows) and the kind.
fn blob(tag: u8, bytes: &[u8]) -> Option<&[u8]> {
    let (sum, rest) = bytes.split_first_chunk()?;
    let (kind, contents) = rest.split_first()?;
    (crc32fast::hash(rest) == u32::from_le_bytes(*sum) && *kind == tag).then_some(contents)
}
