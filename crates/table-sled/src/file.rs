//! Reads sled's log without sled: it writes nothing, trusts nothing, and never panics on any bytes.
//!
//! Opening a log with sled blanks and cuts off parts that sled considers unneeded. Even reading with sled writes: it
//! splits and merges nodes on its way. This module reads the file as it is: while sled has it open (after a flush,
//! without concurrent writes), after it was closed, and after a power cut.
//!
//! The log is a sequence of segments, each somewhere in the file. A free segment is reused at the log's end. Segments
//! hold messages: pages written anew, changes to pages, freed pages. A page is its last image and the changes after it.
//! A message's position in the log is its `lsn`. One byte of log is one `lsn`, so the `lsn` also determines the
//! position in the segment.
//!
//! Reading order: `message` (segments, messages) · `node` (pages) · `index` (which messages make up which page) ·
//! `walk` (a tree in order of keys) · `salvage` (everything readable).
//!
//! # What sled does to its file
//!
//! * After a flush everything written before it is in the file. Without a flush, everything up to some point is, if
//!   there is one writer. The rest of the last segment is blank, or left from the segment's previous use: then its
//!   messages carry another segment's number.
//! * An unneeded segment is reused or cut off once the replacement of its last page was on the disk before the header
//!   of a later segment was written. So the log can still be read at any `lsn` that is at most one segment before the
//!   start of the last one, and not before sled opened it. Further back, pages may be missing or outdated.
//! * Another thread cuts off free segments at the end of the file, maybe after the flush that freed them. Segments are
//!   blanked only while sled opens the log: all free segments, and everything after the last message.
//! * A power cut may leave holes: several writes fill a segment, and any block of a write without a later sync may have
//!   its old contents. Messages after a hole are read too; [`Index::tears`] returns where to cut.
//! * A log cut between any two messages holds consistent trees: a split node is replaced after its new neighbour is
//!   written, and a merged node is freed after its neighbour has taken over its entries. But the log may end within a
//!   batch.
//!
//! # What a reader must check
//!
//! Checksums detect altered data. They do not detect missing data: after a hole, a change may be applied to an outdated
//! image of its page, with a wrong start of its key if the page was split or reused meanwhile. So a value must identify
//! its own key, and the whole must verify its own completeness.

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
use windlass_store::Error;
use windlass_store::files::at;

#[cfg(test)]
use self::index::Index;
#[cfg(test)]
use self::salvage::Salvaged;
#[cfg(test)]
use self::walk::Gap;

/// Segment sizes that sled accepts.
const SEGMENT_BYTES: std::ops::RangeInclusive<usize> = 256..=16 << 20;
/// Limit of a page with all changes to it: in the log, or in a file of its own.
const PAGE_BYTES_MAX: usize = 16 << 20;
const BLOBS: &str = "blobs";

/// Receives the keys and values of entries, and where the values are in the file, unless they are in one of their own.
pub(crate) type Each<'a> = dyn FnMut(&[u8], &[u8], Option<u64>) -> ControlFlow<()> + 'a;
/// Receives every entry ever written: key, value, and position in the log.
pub(crate) type EachWritten<'a> = dyn FnMut(&[u8], &[u8], u64) -> ControlFlow<()> + 'a;

/// sled's log, open for reading.
///
/// Memory: one segment while its messages are read, one page while its entries are, and for an index some 100 bytes a
/// page and 24 for each change after its last image.
#[derive(Debug)]
pub(crate) struct SledFile {
    file: File,
    pub(crate) path: PathBuf,
    segment_bytes: usize,
}

impl SledFile {
    /// Opens the file `db` in sled's folder. `segment_bytes` is the segment size that sled was configured with.
    ///
    /// # Errors
    ///
    /// If it cannot be opened, and if sled allows no such segment size.
    pub(crate) fn open(path: &Path, segment_bytes: usize) -> Result<Self, Error> {
        let path = path.to_path_buf();
        if !segment_bytes.is_power_of_two() || !SEGMENT_BYTES.contains(&segment_bytes) {
            let what = format!("invalid segment size of {segment_bytes} bytes");
            return Err(Error::damaged(path.display(), what));
        }
        match File::open(&path) {
            Ok(file) => Ok(Self {
                file,
                path,
                segment_bytes,
            }),
            Err(why) => Err(at("opening", &path)(why)),
        }
    }

    fn failed(&self, why: io::Error) -> Error {
        at("reading", &self.path)(why)
    }

    /// Fills a buffer, as far as the file reaches.
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

    /// Positions of segments in the file, with the intact headers.
    fn headers(&self) -> Result<Vec<(u64, Option<Segment>)>, Error> {
        let length = self.file.metadata().map_err(|why| self.failed(why))?.len();
        let last = length.saturating_sub(SEGMENT_HEADER_BYTES as u64 - 1);
        let mut headers = Vec::new();
        for offset in (0..last).step_by(self.segment_bytes) {
            let mut header = [0; SEGMENT_HEADER_BYTES];
            // A header on a bad block counts as damaged. A failed disk is detected when messages are read.
            let read = self.read(offset, &mut header).is_ok();
            headers.push((
                offset,
                Segment::read(&header, offset, self.segment_bytes).filter(|_| read),
            ));
        }
        Ok(headers)
    }

    /// The contents of a message. Contents in a file of their own are read into `buffer`.
    fn contents<'a>(
        &self,
        message: &Message<'a>,
        buffer: &'a mut Vec<u8>,
    ) -> Result<Result<&'a [u8], Flaw>, Error> {
        match message.blob() {
            None => Ok(Ok(message.body)),
            Some(Ok(id)) => self.blob(id, message.tag, buffer),
            Some(Err(flaw)) => Ok(Err(flaw)),
        }
    }

    /// The contents of a file of its own.
    fn blob<'a>(
        &self,
        id: u64,
        tag: u8,
        buffer: &'a mut Vec<u8>,
    ) -> Result<Result<&'a [u8], Flaw>, Error> {
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
            // The file may be deleted or incomplete while sled is open.
            Err(why)
                if matches!(
                    why.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof
                ) =>
            {
                Ok(Err(Flaw::Blob))
            }
            Err(why) => Err(at("reading", &path)(why)),
        }
    }
}

/// Decodes a file of its own: a checksum of the rest, the kind, the contents.
fn blob(tag: u8, bytes: &[u8]) -> Option<&[u8]> {
    let (sum, rest) = bytes.split_first_chunk()?;
    let (kind, contents) = rest.split_first()?;
    (crc32fast::hash(rest) == u32::from_le_bytes(*sum) && *kind == tag).then_some(contents)
}
