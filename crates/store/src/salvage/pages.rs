//! The readable pages of a damaged table: the last existing version of each page. They are read in the order
//! in which they were written, so all of them are retained until the end: in a file, if there is one.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;

use windlass_engine::Stored;

use crate::body_file::{BodyFile, Overflow};
use crate::page::{Key, Large, Page, Point};
use crate::store::{Error, Scan};

/// The readable pages.
pub(super) struct Pages {
    /// The last existing point.
    pub(super) point: Option<Point>,
    pages: BTreeMap<Vec<u8>, (u64, Kept)>,
    pieces: Pieces,
}

/// Pieces of large records, by number and place, and the storage of pieces and pages.
pub(super) struct Pieces {
    pieces: BTreeMap<(u64, u64), BTreeMap<u32, Kept>>,
    file: Option<BodyFile>,
}

/// The bytes of a value.
pub(super) enum Kept {
    Here(Vec<u8>),
    There(Stored),
}

impl Pages {
    /// Reads all pages that can be read.
    pub(super) fn of(scan: &dyn Scan, overflow: Option<&Overflow>) -> Result<Self, Error> {
        let file = overflow.and_then(|overflow| BodyFile::create(&overflow.folder).ok());
        let pieces = Pieces {
            pieces: BTreeMap::new(),
            file,
        };
        let mut pages = Self {
            point: None,
            pages: BTreeMap::new(),
            pieces,
        };
        scan.each_readable(&mut |key, value, _| {
            pages.see(key, value);
            ControlFlow::Continue(())
        })?;
        Ok(pages)
    }

    /// Notes a value, if it can be read.
    fn see(&mut self, key: &[u8], value: &[u8]) {
        match Key::of(key) {
            Key::Page => {
                if let Ok(page) = Page::open(key, value)
                    && self
                        .pages
                        .get(key)
                        .is_none_or(|(generation, _)| *generation <= page.generation)
                {
                    let kept = self.pieces.keep(page.items);
                    let older = self.pages.insert(key.to_vec(), (page.generation, kept));
                    older
                        .into_iter()
                        .for_each(|(_, older)| self.pieces.free(&older));
                }
            }
            Key::Piece { number, place, n } => {
                let kept = self.pieces.keep(value);
                let older = self
                    .pieces
                    .pieces
                    .entry((number, place))
                    .or_default()
                    .insert(n, kept);
                older.into_iter().for_each(|older| self.pieces.free(&older));
            }
            Key::Point => {
                let last = Point::decode(value).ok().into_iter().chain(self.point);
                self.point = last.max_by_key(|point| point.generation);
            }
            Key::Unknown => {}
        }
    }

    /// The pages in the order of keys, and the reader.
    pub(super) fn into_parts(self) -> (impl Iterator<Item = Kept>, Pieces) {
        (self.pages.into_values().map(|(_, kept)| kept), self.pieces)
    }
}

impl Pieces {
    fn keep(&mut self, value: &[u8]) -> Kept {
        let written = self.file.as_mut().and_then(|file| file.write(value).ok());
        match written.and_then(|at| Stored::new(at, value)) {
            Some(stored) => Kept::There(stored),
            None => Kept::Here(value.to_vec()),
        }
    }

    fn free(&mut self, kept: &Kept) {
        if let (Kept::There(stored), Some(file)) = (kept, &mut self.file) {
            file.free(*stored);
        }
    }

    /// The bytes of a value. Frees the storage of the value.
    pub(super) fn take(&mut self, kept: Kept) -> io::Result<Vec<u8>> {
        let bytes = self.read(&kept)?;
        self.free(&kept);
        Ok(bytes)
    }

    /// A large record, as far as the pieces exist.
    pub(super) fn of(&self, large: Large) -> io::Result<Vec<u8>> {
        let mut record = Vec::new();
        for kept in self
            .pieces
            .get(&(large.number, large.place))
            .into_iter()
            .flat_map(BTreeMap::values)
        {
            record.extend(self.read(kept)?);
        }
        Ok(record)
    }

    fn read(&self, kept: &Kept) -> io::Result<Vec<u8>> {
        match (kept, &self.file) {
            (Kept::Here(bytes), _) => Ok(bytes.clone()),
            (Kept::There(stored), Some(file)) => file.reader().read(*stored).map(Vec::from),
            (Kept::There(_), None) => Err(io::ErrorKind::NotFound.into()),
        }
    }
}
