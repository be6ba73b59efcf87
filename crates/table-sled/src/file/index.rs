//! Which messages make up which page: one pass over the log, segment by segment.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::SledFile;
use super::message::{HEADER_BYTES_MAX, Head, Kind, Messages, SEGMENT_HEADER_BYTES, Segment};
use windlass_store::Error;

/// Changes to a page after its image. sled writes a page anew after ten; its snapshots have space for this many.
const LINKS_MAX: usize = 254;

/// The positions of all pages.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(super) pages: HashMap<u64, Page, FixedState>,
    tears: Vec<u64>,
    /// The end of the last segment's messages.
    pub(crate) end: u64,
    /// Segments that were read.
    pub(crate) segments: u64,
    /// Intact messages.
    pub(crate) messages: u64,
    /// Segments with a damaged header, and damaged messages, except for the one after the log's end.
    pub(crate) unreadable: u64,
}

/// A page: its last image, and the changes after it.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) image: Fragment,
    pub(super) links: Vec<Fragment>,
}

/// A message of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fragment {
    pub(super) lsn: u64,
    pub(super) offset: u64,
    pub(super) bytes: usize,
}

impl Index {
    /// Positions where the log may be cut, newest first: where messages end before their segment does although a later
    /// segment exists, and where a missing segment would begin, from the last position that a header calls stable. If
    /// sled blanked such a segment while it opened the log, nothing is missing there.
    pub(crate) fn tears(&self) -> &[u64] {
        &self.tears
    }

    fn add(&mut self, kind: Kind, page: u64, fragment: Fragment) {
        self.messages += 1;
        match kind {
            Kind::Counter | Kind::Meta | Kind::Node => {
                self.pages.insert(
                    page,
                    Page {
                        image: fragment,
                        links: Vec::new(),
                    },
                );
            }
            Kind::Link => {
                // A change without an image belongs to a replaced image; the segment with its successor is missing too.
                let Some(page) = self.pages.get_mut(&page) else {
                    return;
                };
                if page.links.len() < LINKS_MAX {
                    page.links.push(fragment);
                } else {
                    self.unreadable += 1;
                }
            }
            Kind::Free => drop(self.pages.remove(&page)),
            Kind::Nothing | Kind::Cap => {}
        }
    }

    /// Adds the messages of a segment that are before position `upto` of the log.
    fn add_all(&mut self, segment: Segment, messages: &mut Messages<'_>, upto: u64) {
        for (at, message) in messages {
            let (lsn, offset) = (segment.lsn + at as u64, segment.offset + at as u64);
            if lsn >= upto {
                break;
            }
            self.add(
                message.kind,
                message.page,
                Fragment {
                    lsn,
                    offset,
                    bytes: message.bytes,
                },
            );
        }
    }
}

impl SledFile {
    /// Indexes all messages by their headers alone, which takes little of the time. Each is verified when its page is read.
    /// If all pages of a tree can be read, and are all that it must have, then no message was missed that matters. Those of
    /// the last segment are verified here: a process that was killed may have written half of one.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub(crate) fn outline(&self) -> Result<Index, Error> {
        let (mut index, mut buffer) = (Index::default(), vec![0; self.segment_bytes]);
        let mut segments = self.segments(&mut 0, &mut buffer)?;
        let last = segments.pop();
        for Segment { lsn, offset, .. } in segments {
            // One read of the disk: the pages are needed, too.
            let whole = (self.segment_bytes as u64).try_into().ok();
            let _ = rustix::fs::fadvise(&self.file, offset, whole, rustix::fs::Advice::WillNeed);
            let mut at = SEGMENT_HEADER_BYTES;
            while at.saturating_add(HEADER_BYTES_MAX) <= self.segment_bytes {
                let (lsn, offset) = (lsn + at as u64, offset + at as u64);
                let mut head = [0; HEADER_BYTES_MAX];
                let head = Head::read(
                    self.read(offset, &mut head)
                        .map_err(|why| self.failed(why))?,
                );
                let Some(head) =
                    head.filter(|head| head.segment == lsn / self.segment_bytes as u64)
                else {
                    break;
                };
                let bytes = head.bytes.saturating_add(head.body_bytes);
                index.add(head.kind(), head.page, Fragment { lsn, offset, bytes });
                at = at.saturating_add(bytes);
            }
        }
        if let Some(last) = last {
            let bytes = self
                .read(last.offset, &mut buffer)
                .map_err(|why| self.failed(why))?;
            index.add_all(
                last,
                &mut Messages::of(bytes, last.lsn, self.segment_bytes),
                u64::MAX,
            );
        }
        Ok(index)
    }

    /// Indexes all messages, or those before position `upto` of the log.
    ///
    /// # Errors
    ///
    /// If the file cannot be read. Readable but invalid data is skipped.
    pub(crate) fn index(&self, upto: Option<u64>) -> Result<Index, Error> {
        let upto = upto.unwrap_or(u64::MAX);
        let mut index = Index::default();
        let mut buffer = vec![0; self.segment_bytes];
        let segments = self.segments(&mut index.unreadable, &mut buffer)?;
        let step = self.segment_bytes as u64;
        let stable = segments
            .iter()
            .map(|segment| segment.stable)
            .max()
            .unwrap_or(0);
        // From here on no segment was free, so none may be missing.
        let mut expected = stable - stable % step;
        let mut torn = None;
        for segment in segments
            .into_iter()
            .take_while(|segment| segment.lsn < upto)
        {
            if let Some(lsn) = torn.take() {
                index.tears.push(lsn);
                index.unreadable += 1;
            }
            if segment.lsn > expected {
                index.tears.push(expected);
            }
            expected = expected.max(segment.lsn + step);
            let bytes = self
                .read(segment.offset, &mut buffer)
                .map_err(|why| self.failed(why))?;
            // sled may cut off free segments at the end of the file meanwhile.
            if bytes.len() < SEGMENT_HEADER_BYTES {
                continue;
            }
            let mut messages = Messages::of(bytes, segment.lsn, self.segment_bytes);
            index.add_all(segment, &mut messages, upto);
            index.end = upto.min(segment.lsn + step);
            if let Some((at, _)) = messages.tear {
                index.end = segment.lsn + at as u64;
                torn = Some(index.end);
            }
            index.segments += 1;
        }
        index.tears.reverse();
        Ok(index)
    }

    /// The segments with a header, in the order of the log. Counts damaged headers.
    fn segments(&self, unreadable: &mut u64, buffer: &mut [u8]) -> Result<Vec<Segment>, Error> {
        let mut segments = Vec::new();
        for (offset, segment) in self.headers()? {
            if let Some(segment) = segment {
                segments.push(segment);
            } else if !blank(self.read(offset, buffer).map_err(|why| self.failed(why))?) {
                *unreadable += 1;
            }
        }
        segments.sort_unstable();
        segments.dedup_by(|later, earlier| {
            let twice = later.lsn == earlier.lsn;
            *unreadable += u64::from(twice);
            twice
        });
        Ok(segments)
    }
}

/// Whether a segment is empty.
pub(super) fn blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}
