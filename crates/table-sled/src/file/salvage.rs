//! Reads everything readable: the entries of every leaf in the file, and every entry set, in the order of writing,
//! including outdated ones.
//!
//! Unlike the index, this continues after a damaged message at the next intact one. It also reads segments with a
//! damaged header, if their messages identify the segment.

use std::io;
use std::ops::ControlFlow;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::index::blank;
use super::message::{Flaw, Kind, Message, Messages, Segment, segment_number};
use super::node::{Data, Link, Node};
use super::{EachWritten, SledFile};
use windlass_store::Error;

/// Bytes checked in search of a message after damage, at most: this many segments for each segment.
const SEARCH_SEGMENTS: usize = 64;
/// Block size for reading a segment that the disk cannot read whole.
const PIECE_BYTES: usize = 4096;

/// Totals of a salvage.
#[derive(Clone, Debug, Default)]
pub(crate) struct Salvaged {
    /// Intact messages.
    pub(crate) messages: u64,
    /// Entries not shown: the start of their keys is unknown.
    pub(crate) keyless: u64,
    /// Unreadable places. They include the end of the log.
    pub(crate) unreadable: u64,
}

/// A part of the log, in its order.
enum Found<'a> {
    Message {
        lsn: u64,
        message: Message<'a>,
    },
    /// Messages may be missing here: damaged ones, or those of a reused segment.
    Loss,
}

/// The last leaf of a page so far. It has the prefix that later changes omit from their keys.
struct Image {
    lsn: u64,
    losses: u64,
    prefix: Box<[u8]>,
}

impl SledFile {
    /// Shows every readable entry, with its position in the log, until `each` breaks. Most entries come more than once:
    /// a page is written anew with all its entries.
    ///
    /// The log holds only the end of a set entry's key: its page's prefix is omitted. An entry is not shown if an image
    /// of its page may be missing before it, except for the last entries of a page, which may be its only ones. In an
    /// undamaged file those are right.
    ///
    /// # Errors
    ///
    /// If the file no longer exists. Unreadable blocks of it are skipped.
    pub(crate) fn for_each_leaf_entry(
        &self,
        each: &mut EachWritten<'_>,
    ) -> Result<Salvaged, Error> {
        let mut salvaged = Salvaged::default();
        let mut buffer = vec![0; self.segment_bytes];
        let segments = self.all_segments(&mut salvaged.unreadable, &mut buffer)?;

        let mut last_images = HashMap::with_hasher(FixedState::default());
        let look = &mut |found: Found<'_>| {
            if let Found::Message { lsn, message, .. } = found {
                salvaged.messages += 1;
                if message.kind == Kind::Node {
                    last_images.insert(message.page, lsn);
                }
            }
            ControlFlow::Continue(())
        };
        let _ = self.pass(&segments, &mut 0, &mut buffer, look);

        let mut sieve = Sieve::new(self, last_images, salvaged, each);
        let mut unreadable = 0;
        let _ = self.pass(&segments, &mut unreadable, &mut buffer, &mut |found| {
            sieve.take(found)
        });
        let mut salvaged = sieve.salvaged;
        salvaged.unreadable += unreadable;
        Ok(salvaged)
    }

    /// All messages of these segments that can be found.
    fn pass(
        &self,
        segments: &[Segment],
        unreadable: &mut u64,
        buffer: &mut [u8],
        each: &mut dyn FnMut(Found<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut expected = 0;
        for segment in segments {
            if segment.lsn != expected {
                each(Found::Loss)?;
            }
            expected = segment.lsn + self.segment_bytes as u64;
            let bytes = self.read_around(segment.offset, buffer, unreadable);
            let mut messages = Messages::of(bytes, segment.lsn, self.segment_bytes);
            let mut spare = self.segment_bytes.saturating_mul(SEARCH_SEGMENTS);
            loop {
                for (at, message) in messages.by_ref() {
                    each(Found::Message {
                        lsn: segment.lsn + at as u64,
                        message,
                    })?;
                }
                if messages.tear.is_none() {
                    break;
                }
                *unreadable += 1;
                each(Found::Loss)?;
                if !messages.resume(&mut spare) {
                    break;
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// The segments in the order of the log. Those without a header are placed by their messages.
    fn all_segments(&self, unreadable: &mut u64, buffer: &mut [u8]) -> Result<Vec<Segment>, Error> {
        let mut segments = Vec::new();
        for (offset, segment) in self.headers()? {
            if let Some(segment) = segment {
                segments.push(segment);
                continue;
            }
            let bytes = self.read_around(offset, buffer, &mut 0);
            if blank(bytes) {
                continue;
            }
            *unreadable += 1;
            let spare = self.segment_bytes.saturating_mul(SEARCH_SEGMENTS);
            if let Some(number) = segment_number(bytes, self.segment_bytes, spare) {
                segments.push(Segment {
                    lsn: number * self.segment_bytes as u64,
                    offset,
                    stable: 0,
                });
            }
        }
        segments.sort_unstable();
        Ok(segments)
    }

    /// A segment, with zeros for blocks that the disk cannot read.
    fn read_around<'a>(&self, offset: u64, buffer: &'a mut [u8], unreadable: &mut u64) -> &'a [u8] {
        around(
            &|offset, piece| Ok(self.read(offset, piece)?.len()),
            offset,
            buffer,
            unreadable,
        )
    }
}

fn around<'a>(
    read: &dyn Fn(u64, &mut [u8]) -> io::Result<usize>,
    offset: u64,
    buffer: &'a mut [u8],
    unreadable: &mut u64,
) -> &'a [u8] {
    let mut filled = 0;
    match read(offset, buffer) {
        Ok(whole) => filled = whole,
        Err(_) => {
            for piece in buffer.chunks_mut(PIECE_BYTES) {
                let at = offset + filled as u64;
                match read(at, piece) {
                    Ok(read) if read < piece.len() => {
                        filled += read;
                        break;
                    }
                    Ok(_) => {}
                    Err(_) => {
                        piece.fill(0);
                        *unreadable += 1;
                    }
                }
                filled += piece.len();
            }
        }
    }
    buffer.get(..filled).unwrap_or_default()
}

/// Extracts entries from messages.
struct Sieve<'a> {
    file: &'a SledFile,
    /// Position of the last image of each page.
    last_images: HashMap<u64, u64, FixedState>,
    images: HashMap<u64, Image, FixedState>,
    losses: u64,
    salvaged: Salvaged,
    each: &'a mut EachWritten<'a>,
    key: Vec<u8>,
}

impl<'a> Sieve<'a> {
    fn new(
        file: &'a SledFile,
        last_images: HashMap<u64, u64, FixedState>,
        salvaged: Salvaged,
        each: &'a mut EachWritten<'a>,
    ) -> Self {
        Self {
            file,
            last_images,
            images: HashMap::default(),
            losses: 0,
            salvaged,
            each,
            key: Vec::new(),
        }
    }

    fn take(&mut self, found: Found<'_>) -> ControlFlow<()> {
        let Found::Message { lsn, message } = found else {
            self.losses += 1;
            return ControlFlow::Continue(());
        };
        let page = message.page;
        if matches!(message.kind, Kind::Node | Kind::Free) {
            self.images.remove(&page);
        }
        if !matches!(message.kind, Kind::Node | Kind::Link) {
            return ControlFlow::Continue(());
        }
        let mut blob = Vec::new();
        let body = match self
            .file
            .contents(&message, &mut blob)
            .unwrap_or(Err(Flaw::Disk))
        {
            Ok(body) => body,
            Err(_) => {
                // A replaced image no longer has its files.
                self.salvaged.unreadable +=
                    u64::from(self.last_images.get(&page).is_none_or(|last| *last <= lsn));
                return ControlFlow::Continue(());
            }
        };
        let read = if message.kind == Kind::Node {
            Node::read(body).map(|node| self.node(lsn, page, &node))
        } else {
            Link::read(body).map(|link| self.link(lsn, page, link))
        };
        read.unwrap_or_else(|| {
            self.salvaged.unreadable += 1;
            ControlFlow::Continue(())
        })
    }

    fn node(&mut self, lsn: u64, page: u64, node: &Node<'_>) -> ControlFlow<()> {
        let Data::Leaf(leaf) = &node.data else {
            return ControlFlow::Continue(());
        };
        self.images.insert(
            page,
            Image {
                lsn,
                losses: self.losses,
                prefix: node.prefix.into(),
            },
        );
        leaf.0
            .iter()
            .try_for_each(|(suffix, value)| self.show(node.prefix, suffix, value, lsn))
    }

    fn link(&mut self, lsn: u64, page: u64, link: Link<'_>) -> ControlFlow<()> {
        let Link::Set(suffix, value) = link else {
            return ControlFlow::Continue(());
        };
        let last = self.last_images.get(&page);
        let sure = |image: &Image| image.losses == self.losses || last == Some(&image.lsn);
        let Some(image) = self.images.remove(&page).filter(sure) else {
            self.salvaged.keyless += 1;
            return ControlFlow::Continue(());
        };
        let shown = self.show(&image.prefix, suffix, value, lsn);
        self.images.insert(page, image);
        shown
    }

    fn show(&mut self, prefix: &[u8], suffix: &[u8], value: &[u8], lsn: u64) -> ControlFlow<()> {
        self.key.clear();
        self.key.extend_from_slice(prefix);
        self.key.extend_from_slice(suffix);
        (self.each)(&self.key, value, lsn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_the_disk_cannot_read_are_blank() {
        let disk: Vec<u8> = (0..20_000u32).map(|at| at.to_le_bytes()[0] | 1).collect();
        let bad = 4_096..8_192u64;
        let read = |offset: u64, piece: &mut [u8]| {
            let end = offset + piece.len() as u64;
            if offset < bad.end && end > bad.start {
                return Err(io::Error::other("a bad block"));
            }
            let rest = &disk[disk.len().min(offset.try_into().unwrap())..];
            let bytes = rest.len().min(piece.len());
            piece[..bytes].copy_from_slice(&rest[..bytes]);
            Ok(bytes)
        };
        let (mut buffer, mut unreadable) = (vec![7; 32_768], 0);
        let got = around(&read, 0, &mut buffer, &mut unreadable);
        let mut expected = disk.clone();
        expected[4_096..8_192].fill(0);
        assert_eq!(got, expected);
        assert_eq!(unreadable, 1);
    }
}
