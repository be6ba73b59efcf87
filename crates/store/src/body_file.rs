//! Bodies of jobs that are not in memory: a file without a name, which ends with the process.
//!
//! It holds copies. What a job needs after a crash is in the log and in the table, so nothing here is ever synced, and
//! no file is left behind, whatever happens to the process. The file is divided into extents. Bodies are appended to a
//! run of free extents; an extent whose bodies have all gone is used again, or given back to the disk.
//!
//! Bodies that were not in memory when the store was opened are not copied: they stay in the file of the table that the
//! process before has written, and which stays as it is. When this process has replaced that table, the file is kept
//! by this reference alone, and its extents are given back to the disk likewise.
//!
//! One thread owns it. Other threads read through a [`BodyReader`].

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate};
use windlass_engine::Stored;

/// Bytes of an extent.
const EXTENT: u64 = 256 << 10;
/// Extents of a run, unless a body needs more.
const RUN: u64 = 16;
/// Free extents that keep their place on the disk: on a full one, what is worked off makes room.
const KEPT: usize = 32;

/// Where bodies go that do not fit into memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Overflow {
    /// A folder on the disk, for the file without a name.
    pub folder: PathBuf,
    /// Bytes that jobs may take in memory.
    pub memory: u64,
}

/// The file.
#[derive(Debug)]
pub struct BodyFile {
    reader: BodyReader,
    extents: Extents,
    free: BTreeSet<u64>,
    /// Extents of the table's file, and those of them that are free.
    base: Extents,
    base_free: Vec<u64>,
    /// The extents that are filled now, and where the next body goes.
    run: Range<u64>,
    at: u64,
    bytes: u64,
}

/// How many bodies are in each extent of a file, in part or whole.
#[derive(Debug, Default)]
struct Extents {
    uses: Vec<u32>,
    /// Those with bodies.
    used: usize,
}

impl Extents {
    fn uses_of(&self, extent: u64) -> u32 {
        usize::try_from(extent).ok().and_then(|extent| self.uses.get(extent)).copied().unwrap_or_default()
    }

    /// Counts a body at its extents, and returns them.
    fn count(&mut self, at: u64, bytes: u64, by: i32) -> Range<u64> {
        let extents = at / EXTENT..(at + bytes.max(1)).div_ceil(EXTENT);
        for extent in extents.clone().filter_map(|extent| usize::try_from(extent).ok()) {
            if self.uses.len() <= extent {
                self.uses.resize(extent + 1, 0);
            }
            if let Some(uses) = self.uses.get_mut(extent) {
                let before = std::mem::replace(uses, uses.saturating_add_signed(by));
                self.used = self.used + usize::from(*uses > 0) - usize::from(before > 0);
            }
        }
        extents
    }
}

/// The bit of a place that is in the table's file.
const BASE: u64 = 1 << 63;

/// Reads bodies.
#[derive(Clone, Debug)]
pub struct BodyReader {
    own: Arc<File>,
    /// The table's file, as long as it has bodies.
    base: Arc<Mutex<Option<Arc<File>>>>,
}

impl BodyReader {
    /// Reads a body.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is not the one that was written.
    pub fn read(&self, stored: Stored) -> io::Result<Bytes> {
        let mut body = vec![0; stored.len as usize];
        let file = if stored.at & BASE == 0 { Some(Arc::clone(&self.own)) } else { self.base() };
        file.ok_or(io::ErrorKind::NotFound)?.read_exact_at(&mut body, stored.at & !BASE)?;
        match stored.is(&body) {
            true => Ok(body.into()),
            false => Err(io::Error::new(io::ErrorKind::InvalidData, "it is not the body that was written")),
        }
    }

    fn base(&self) -> Option<Arc<File>> {
        self.base.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_base(&self, base: Option<File>) {
        *self.base.lock().unwrap_or_else(PoisonError::into_inner) = base.map(Arc::new);
    }
}

impl BodyFile {
    /// An empty file on the disk of a folder.
    ///
    /// # Errors
    ///
    /// It cannot be created.
    pub fn create(folder: &Path) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let made: OwnedFd = match rustix::fs::open(folder, flags | OFlags::TMPFILE, mode) {
            Ok(made) => made,
            // A file system without such files.
            Err(_) => {
                let path = folder.join("bodies");
                let made = rustix::fs::open(&path, flags | OFlags::CREATE | OFlags::TRUNC, mode)?;
                rustix::fs::unlink(&path)?;
                made
            }
        };
        Ok(Self {
            reader: BodyReader { own: Arc::new(made.into()), base: Arc::default() },
            extents: Extents::default(),
            free: BTreeSet::new(),
            base: Extents::default(),
            base_free: Vec::new(),
            run: 0..0,
            at: 0,
            bytes: 0,
        })
    }

    /// Bodies may be in this file, too, which no other process writes.
    #[must_use]
    pub(crate) fn over(self, base: Option<File>) -> Self {
        self.reader.set_base(base);
        self
    }

    /// The place of a body that is in the table's file here. `None`: there is no such file.
    pub(crate) fn refer(&mut self, at: u64, bytes: usize) -> Option<u64> {
        self.reader.base()?;
        self.base.count(at, bytes as u64, 1);
        self.bytes += bytes as u64;
        Some(at | BASE)
    }

    /// What reads it on other threads.
    #[must_use]
    pub fn reader(&self) -> BodyReader {
        self.reader.clone()
    }

    /// Bytes on the disk, about. Those in the file of the present table count as the table's.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        let own = self.extents.uses.len().saturating_sub(self.free.len().saturating_sub(KEPT));
        let base = if self.reader.base().is_some_and(|base| is_removed(&base)) { self.base.used } else { 0 };
        (own + base) as u64 * EXTENT
    }

    /// Bytes of bodies.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes a body and returns its place.
    ///
    /// # Errors
    ///
    /// It cannot be written. Nothing has changed.
    pub fn write(&mut self, body: &[u8]) -> io::Result<u64> {
        // An empty body, too, is in an extent that it keeps.
        let bytes = body.len().max(1) as u64;
        if self.at + bytes > self.run.end * EXTENT {
            self.begin_run(bytes);
        }
        self.reader.own.write_all_at(body, self.at)?;
        let at = self.at;
        self.at += bytes;
        self.bytes += body.len() as u64;
        self.extents.count(at, bytes, 1);
        Ok(at)
    }

    /// Writes bodies, and returns their places as far as they could be written.
    pub fn write_all<'a>(&mut self, bodies: impl IntoIterator<Item = &'a [u8]>) -> (Vec<u64>, io::Result<()>) {
        let mut places = Vec::new();
        for body in bodies {
            match self.write(body) {
                Ok(at) => places.push(at),
                Err(why) => return (places, Err(why)),
            }
        }
        (places, Ok(()))
    }

    /// A body is not needed any more.
    pub fn free(&mut self, stored: Stored) {
        self.bytes -= u64::from(stored.len);
        if stored.at & BASE != 0 {
            return self.free_in_base(stored.at & !BASE, stored.len.into());
        }
        for extent in self.extents.count(stored.at, stored.len.into(), -1) {
            if !self.run.contains(&extent) && self.extents.uses_of(extent) == 0 {
                self.release(extent);
            }
        }
    }

    fn free_in_base(&mut self, at: u64, bytes: u64) {
        let extents = self.base.count(at, bytes, -1);
        let freed = self.base_free.len();
        self.base_free.extend(extents.filter(|extent| self.base.uses_of(*extent) == 0));
        if self.base.used == 0 {
            // A file that was removed ends with the last one who has it open.
            return self.reader.set_base(None);
        }
        // The present table must stay as it is.
        let is_new = self.base_free.len() > freed;
        if let Some(base) = self.reader.base().filter(|base| is_new && is_removed(base)) {
            self.base_free.drain(..).for_each(|extent| punch(&base, extent));
        }
    }

    fn release(&mut self, extent: u64) {
        self.free.insert(extent);
        if self.free.len() > KEPT {
            punch(&self.reader.own, extent);
        }
    }

    /// Ends the run, and begins another one with room for a body.
    fn begin_run(&mut self, bytes: u64) {
        for extent in std::mem::replace(&mut self.run, 0..0) {
            if self.extents.uses_of(extent) == 0 {
                self.release(extent);
            }
        }
        let least = bytes.div_ceil(EXTENT).max(1);
        let run = self.free_run(least).unwrap_or_else(|| {
            let begin = self.extents.uses.len() as u64;
            begin..begin + least.max(RUN)
        });
        let end = usize::try_from(run.end).unwrap_or(usize::MAX);
        self.extents.uses.resize(self.extents.uses.len().max(end), 0);
        self.free.retain(|extent| !run.contains(extent));
        self.at = run.start * EXTENT;
        self.run = run;
    }

    /// Neighbouring free extents: at least this many, and [`RUN`] of them if there are enough.
    fn free_run(&self, least: u64) -> Option<Range<u64>> {
        let mut run: Range<u64> = 0..0;
        for extent in &self.free {
            if run.end == *extent && run.end > run.start {
                run.end += 1;
            } else if run.end - run.start >= least {
                break;
            } else {
                run = *extent..*extent + 1;
            }
            if run.end - run.start >= least.max(RUN) {
                break;
            }
        }
        (run.end - run.start >= least).then_some(run)
    }
}

/// Whether no folder has the file any more.
fn is_removed(file: &File) -> bool {
    file.metadata().is_ok_and(|about| about.nlink() == 0)
}

/// Gives an extent back to the disk. Where that cannot be done, the space comes back when the process ends.
fn punch(file: &File, extent: u64) {
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let _ = fallocate(file, hole, extent * EXTENT, EXTENT);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> BodyFile {
        BodyFile::create(&std::env::temp_dir()).unwrap()
    }

    fn put(file: &mut BodyFile, body: &[u8]) -> Stored {
        Stored::new(file.write(body).unwrap(), body).unwrap()
    }

    #[test]
    fn bodies_of_all_sizes_come_back() {
        let mut file = file();
        let sizes = [0, 1, 100, 4_096, 100_000, 262_143, 262_144, 262_145, 5_000_000, 3];
        let bodies: Vec<Vec<u8>> = sizes.iter().zip(1..).map(|(bytes, fill)| vec![fill; *bytes]).collect();
        let places: Vec<Stored> = bodies.iter().map(|body| put(&mut file, body)).collect();
        for (body, stored) in bodies.iter().zip(&places) {
            assert_eq!(file.reader().read(*stored).unwrap(), body);
        }
        assert_eq!(file.bytes(), sizes.iter().sum::<usize>() as u64);
        places.into_iter().for_each(|stored| file.free(stored));
        assert_eq!(file.bytes(), 0);
        assert!(file.extents.uses.iter().all(|uses| *uses == 0));
    }

    #[test]
    fn the_place_of_bodies_that_have_gone_is_used_again() {
        let mut file = file();
        let body = vec![7; 10_000];
        let mut living = std::collections::VecDeque::new();
        for _ in 0..20_000 {
            living.push_back(put(&mut file, &body));
            if living.len() > 1_000 {
                file.free(living.pop_front().unwrap());
            }
        }
        let extents = 1_000 * 10_000 / EXTENT + 2 * RUN;
        assert!(file.extents.uses.len() as u64 <= extents, "{} extents", file.extents.uses.len());
        living.iter().for_each(|stored| drop(file.reader().read(*stored).unwrap()));
    }

    #[test]
    fn the_disk_gets_back_what_has_gone() {
        let mut file = file();
        let places: Vec<Stored> = (0..1_000).map(|_| put(&mut file, &vec![7; 50_000])).collect();
        let on_disk = |file: &BodyFile| file.reader.own.metadata().unwrap().blocks() * 512;
        assert!(on_disk(&file) >= 50_000_000 && file.disk_bytes() >= 50_000_000);
        places.into_iter().for_each(|stored| file.free(stored));
        let left = (KEPT as u64 + 2 * RUN) * EXTENT;
        assert!(on_disk(&file) <= left && file.disk_bytes() <= left, "{} {}", on_disk(&file), file.disk_bytes());
    }

    #[test]
    fn an_empty_body_at_the_end_of_a_run_does_not_use_the_next_extent() {
        let mut file = file();
        put(&mut file, &vec![7; usize::try_from(EXTENT * RUN).unwrap()]);
        let (empty, next) = (put(&mut file, b""), put(&mut file, b"next"));
        assert!(file.run.contains(&(empty.at / EXTENT)));
        file.free(empty);
        assert_eq!(file.extents.uses_of(next.at / EXTENT), 1);
        assert!(file.reader().read(empty).unwrap().is_empty());
    }

    #[test]
    fn another_body_at_the_place_is_noticed() {
        let mut file = file();
        let first = put(&mut file, b"cat.png");
        let reader = file.reader();
        reader.own.write_all_at(b"dog.png", first.at).unwrap();
        assert!(reader.read(first).is_err());
        assert!(reader.read(Stored { at: 1 << 40, ..first }).is_err(), "behind the end");
    }
}
