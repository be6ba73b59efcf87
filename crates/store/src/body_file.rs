//! Bodies of jobs that are not in memory: an unnamed file, which is deleted with the process.
//!
//! It contains copies. The data that a job needs after a crash is in the log and in the table, so nothing
//! here is ever synced, and no file remains, whatever happens to the process. The file is divided into
//! extents. Bodies are appended to a run of free extents; an extent without bodies is reused, or returned to
//! the disk.
//!
//! Bodies that were not in memory when the store was opened are not copied. They stay in the files of the
//! previous process, the table's and segments of the log, which are no longer modified. When the store
//! removes such a file, it exists only through this reference, and the extents are also returned to the disk.
//!
//! A single thread owns it. Other threads read through a [`BodyReader`].

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate};
use windlass_engine::Stored;

/// Bytes of an extent.
const EXTENT: u64 = 256 << 10;
/// Extents of a run, unless a body needs more.
const RUN: u64 = 16;
/// Free extents that remain allocated, so that on a full disk, finished jobs make space for new
/// ones.
const KEPT: usize = 32;

/// The place for bodies that do not fit into memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Overflow {
    /// A folder on the disk, for the unnamed file.
    pub folder: PathBuf,
    /// The limit of bytes of jobs in memory.
    pub memory: u64,
}

/// The file.
#[derive(Debug)]
pub struct BodyFile {
    reader: BodyReader,
    own: Arc<File>,
    extents: Extents,
    free: BTreeSet<u64>,
    /// Extents of the store's files, and the free ones among them.
    others: Vec<(Extents, Vec<u64>)>,
    /// The extents that are being filled, and the offset of the next body.
    run: Range<u64>,
    at: u64,
    bytes: u64,
}

/// Number of bodies that overlap each extent of a file.
#[derive(Debug, Default)]
struct Extents {
    uses: Vec<u32>,
    /// Extents with bodies.
    used: usize,
}

impl Extents {
    fn uses_of(&self, extent: u64) -> u32 {
        usize::try_from(extent)
            .ok()
            .and_then(|extent| self.uses.get(extent))
            .copied()
            .unwrap_or_default()
    }

    /// Adds a body to the counts of the extents, and returns them.
    fn count(&mut self, at: u64, bytes: u64, by: i32) -> Range<u64> {
        let extents = at / EXTENT..(at + bytes.max(1)).div_ceil(EXTENT);
        for extent in extents
            .clone()
            .filter_map(|extent| usize::try_from(extent).ok())
        {
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

/// The bits of a place that are the offset in a file. The file's number is in the bits above.
const OFFSET_BITS: u32 = 44;

/// A file that has bodies.
#[derive(Clone, Debug)]
struct Kept {
    path: Arc<Path>,
    /// As long as it has bodies.
    file: Option<Arc<File>>,
}

/// Reads bodies.
#[derive(Clone, Debug)]
pub struct BodyReader {
    /// The file of this process, then those of the store.
    files: Arc<Mutex<Vec<Kept>>>,
}

impl BodyReader {
    /// Reads a body.
    ///
    /// # Errors
    ///
    /// The body cannot be read, or is not the one that was written. The error names the file.
    pub fn read(&self, stored: Stored) -> io::Result<Bytes> {
        let (number, at) = split(stored.at);
        let Kept { path, file } = self
            .files()
            .get(number)
            .cloned()
            .ok_or(io::ErrorKind::NotFound)?;
        let mut body = vec![0; stored.len as usize];
        let read = file
            .ok_or(io::ErrorKind::NotFound.into())
            .and_then(|file| file.read_exact_at(&mut body, at));
        let read = match read {
            Ok(()) if stored.is(&body) => return Ok(body.into()),
            Ok(()) => io::Error::new(
                io::ErrorKind::InvalidData,
                "it is not the body that was written",
            ),
            Err(why) => why,
        };
        Err(io::Error::new(
            read.kind(),
            format!("{}: {read}", path.display()),
        ))
    }

    fn files(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of a file, and the place in it.
fn split(at: u64) -> (usize, u64) {
    (
        usize::try_from(at >> OFFSET_BITS).unwrap_or(usize::MAX),
        at & ((1 << OFFSET_BITS) - 1),
    )
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
        let path = folder.join("bodies");
        let made = rustix::fs::open(folder, flags | OFlags::TMPFILE, mode).or_else(|_| {
            // For a file system without unnamed files.
            let made = rustix::fs::open(&path, flags | OFlags::CREATE | OFlags::TRUNC, mode)?;
            rustix::fs::unlink(&path).map(|()| made)
        })?;
        let own = Arc::new(File::from(made));
        let kept = Kept {
            path: path.into(),
            file: Some(Arc::clone(&own)),
        };
        Ok(Self {
            reader: BodyReader {
                files: Arc::new(vec![kept].into()),
            },
            own,
            extents: Extents::default(),
            free: BTreeSet::new(),
            others: Vec::new(),
            run: 0..0,
            at: 0,
            bytes: 0,
        })
    }

    /// The place of a body at this offset of a file of the store. `None`: the file cannot be
    /// opened.
    pub(crate) fn refer(&mut self, path: &Path, at: u64, bytes: usize) -> Option<u64> {
        let mut files = self.reader.files();
        if files
            .last()
            .is_some_and(|last| *last.path != *path || last.file.is_none())
        {
            // Free extents are returned to the disk if the file can be opened for writing.
            let file = File::options()
                .read(true)
                .write(true)
                .open(path)
                .or_else(|_| File::open(path))
                .ok()?;
            files.push(Kept {
                path: path.into(),
                file: Some(file.into()),
            });
            self.others.push(Default::default());
        }
        self.others.last_mut()?.0.count(at, bytes as u64, 1);
        self.bytes += bytes as u64;
        Some((self.others.len() as u64) << OFFSET_BITS | at)
    }

    /// Returns true if this file of the store, which is also open elsewhere, contains bodies.
    pub(crate) fn shares(&self, path: &Path, file: &Arc<File>) -> bool {
        let mut files = self.reader.files();
        let here = files
            .iter_mut()
            .filter(|kept| kept.file.is_some() && *kept.path == *path);
        here.map(|kept| kept.file = Some(Arc::clone(file))).count() > 0
    }

    /// A reader for other threads.
    pub fn reader(&self) -> BodyReader {
        self.reader.clone()
    }

    /// Approximate bytes on the disk. Bytes in files of the store are included in the store's
    /// figure.
    pub fn disk_bytes(&self) -> u64 {
        let own = self
            .extents
            .uses
            .len()
            .saturating_sub(self.free.len().saturating_sub(KEPT));
        let files = self.reader.files();
        let others = files.iter().skip(1).zip(&self.others);
        let removed = others.filter(|(kept, _)| kept.file.as_deref().is_some_and(is_removed));
        (own + removed.map(|(_, (extents, _))| extents.used).sum::<usize>()) as u64 * EXTENT
    }

    /// Bytes of bodies.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes a body and returns its place.
    ///
    /// # Errors
    ///
    /// The body cannot be written. Nothing has changed.
    pub fn write(&mut self, body: &[u8]) -> io::Result<u64> {
        // An empty body must also occupy an extent.
        let bytes = body.len().max(1) as u64;
        if self.at + bytes > self.run.end * EXTENT {
            self.begin_run(bytes);
        }
        self.own.write_all_at(body, self.at)?;
        let at = self.at;
        self.at += bytes;
        self.bytes += body.len() as u64;
        self.extents.count(at, bytes, 1);
        Ok(at)
    }

    /// Writes bodies, and returns the places of those that could be written.
    pub fn write_all<'a>(
        &mut self,
        bodies: impl IntoIterator<Item = &'a [u8]>,
    ) -> (Vec<u64>, io::Result<()>) {
        let mut places = Vec::new();
        for body in bodies {
            match self.write(body) {
                Ok(at) => places.push(at),
                Err(why) => return (places, Err(why)),
            }
        }
        (places, Ok(()))
    }

    /// Frees a body.
    pub fn free(&mut self, stored: Stored) {
        self.bytes -= u64::from(stored.len);
        let (number, at) = split(stored.at);
        if number > 0 {
            return self.free_elsewhere(number, at, stored.len.into());
        }
        for extent in self.extents.count(at, stored.len.into(), -1) {
            if !self.run.contains(&extent) && self.extents.uses_of(extent) == 0 {
                self.release(extent);
            }
        }
    }

    fn free_elsewhere(&mut self, number: usize, at: u64, bytes: u64) {
        let mut files = self.reader.files();
        let Some((kept, (extents, free))) =
            files.get_mut(number).zip(self.others.get_mut(number - 1))
        else {
            return;
        };
        let freed = free.len();
        free.extend(
            extents
                .count(at, bytes, -1)
                .filter(|extent| extents.uses_of(*extent) == 0),
        );
        if extents.used == 0 {
            // A removed file is deleted when the last holder closes it.
            kept.file = None;
        // A file that the store still has must not be modified.
        } else if let Some(file) = kept
            .file
            .as_deref()
            .filter(|file| free.len() > freed && is_removed(file))
        {
            free.drain(..).for_each(|extent| punch(file, extent));
        }
    }

    fn release(&mut self, extent: u64) {
        self.free.insert(extent);
        if self.free.len() > KEPT {
            punch(&self.own, extent);
        }
    }

    /// Completes the run, and starts another with space for a body.
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
        self.extents
            .uses
            .resize(self.extents.uses.len().max(end), 0);
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

/// Returns true if no folder has the file any more.
fn is_removed(file: &File) -> bool {
    file.metadata().is_ok_and(|about| about.nlink() == 0)
}

/// Returns an extent to the disk. If that is not supported, the space is freed when the process ends.
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
        let sizes = [
            0, 1, 100, 4_096, 100_000, 262_143, 262_144, 262_145, 5_000_000, 3,
        ];
        let bodies: Vec<Vec<u8>> = sizes
            .iter()
            .zip(1..)
            .map(|(bytes, fill)| vec![fill; *bytes])
            .collect();
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
        let mut living = std::collections::VecDeque::new();
        // Neighbours differ, so that a place that is used too early is noticed.
        for fill in (0..=250).cycle().take(20_000) {
            living.push_back(put(&mut file, &[fill; 10_000]));
            if living.len() > 1_000 {
                file.free(living.pop_front().unwrap());
            }
        }
        let extents = 1_000 * 10_000 / EXTENT + 2 * RUN;
        assert!(
            file.extents.uses.len() as u64 <= extents,
            "{} extents",
            file.extents.uses.len()
        );
        living
            .iter()
            .for_each(|stored| drop(file.reader().read(*stored).unwrap()));
    }

    #[test]
    fn the_disk_gets_back_what_has_gone() {
        let mut file = file();
        let places: Vec<Stored> = (0..1_000)
            .map(|_| put(&mut file, &vec![7; 50_000]))
            .collect();
        let on_disk = |file: &BodyFile| file.own.metadata().unwrap().blocks() * 512;
        assert!(on_disk(&file) >= 50_000_000 && file.disk_bytes() >= 50_000_000);
        places.into_iter().for_each(|stored| file.free(stored));
        let left = (KEPT as u64 + 2 * RUN) * EXTENT;
        assert!(
            on_disk(&file) <= left && file.disk_bytes() <= left,
            "{} {}",
            on_disk(&file),
            file.disk_bytes()
        );
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
        file.own.write_all_at(b"dog.png", first.at).unwrap();
        assert!(reader.read(first).is_err());
        assert!(
            reader
                .read(Stored {
                    at: 1 << 40,
                    ..first
                })
                .is_err(),
            "behind the end"
        );
    }

    /// A file of the store with this body at byte 100.
    fn of_store(folder: &Path, name: &str, body: &[u8]) -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, [&[0; 100], body].concat()).unwrap();
        path
    }

    #[test]
    fn a_body_that_cannot_be_read_is_an_error_with_the_name_of_its_file() {
        let (dir, mut file, body) = (tempfile::tempdir().unwrap(), file(), b"cat.png".as_slice());
        let path = of_store(dir.path(), "db", body);
        let here = Stored::new(file.refer(&path, 100, body.len()).unwrap(), body).unwrap();
        assert_eq!(file.reader().read(here).unwrap(), body);
        let failed = |file: &BodyFile, stored, path: &Path| {
            let why = file.reader().read(stored).unwrap_err();
            assert!(why.to_string().starts_with(path.to_str().unwrap()), "{why}");
            why.kind()
        };
        std::fs::write(&path, [7; 107]).unwrap();
        assert_eq!(failed(&file, here, &path), io::ErrorKind::InvalidData);
        std::fs::write(&path, [7; 106]).unwrap();
        assert_eq!(failed(&file, here, &path), io::ErrorKind::UnexpectedEof);
        std::fs::write(&path, [&[0; 100], body].concat()).unwrap();
        assert_eq!(
            file.reader().read(here).unwrap(),
            body,
            "the place is still known"
        );
        // The process cannot read this address of the memory, so the system reports an I/O error.
        let memory = Path::new("/proc/self/mem");
        let bad = Stored {
            at: file.refer(memory, 0, body.len()).unwrap(),
            ..here
        };
        let why = file.reader().read(bad).unwrap_err();
        assert!(
            why.to_string().contains("/proc/self/mem: ") && why.to_string().contains("os error 5"),
            "{why}"
        );
        file.free(bad);
        assert_eq!(
            failed(&file, bad, memory),
            io::ErrorKind::NotFound,
            "nothing is left there"
        );
        assert_eq!(file.refer(&dir.path().join("gone"), 0, 7), None);
        assert_eq!(
            (file.bytes(), file.reader().read(here).unwrap().to_vec()),
            (7, body.to_vec())
        );
    }

    #[test]
    fn each_file_of_the_store_keeps_its_bodies_apart() {
        let (dir, mut file) = (tempfile::tempdir().unwrap(), file());
        let bodies = [
            "one".repeat(100_000),
            "two".repeat(100_000),
            "again".repeat(100_000),
        ]
        .map(String::into_bytes);
        let [first, second, third] =
            [0, 1, 2].map(|n| of_store(dir.path(), &n.to_string(), &bodies[n]));
        let refer = |file: &mut BodyFile, path: &Path, body: &[u8]| {
            Stored::new(file.refer(path, 100, body.len()).unwrap(), body).unwrap()
        };
        let own = put(&mut file, b"own");
        let one = refer(&mut file, &first, &bodies[0]);
        file.free(one);
        let places = [
            (&first, &bodies[0]),
            (&second, &bodies[1]),
            (&third, &bodies[2]),
        ]
        .map(|(path, body)| refer(&mut file, path, body));
        assert_eq!(
            file.bytes(),
            3 + bodies.iter().map(Vec::len).sum::<usize>() as u64
        );
        let shared = Arc::new(File::open(&third).unwrap());
        assert!(file.shares(&third, &shared) && !file.shares(&dir.path().join("3"), &shared));
        assert_eq!(Arc::strong_count(&shared), 2);
        let disk = file.disk_bytes();
        std::fs::remove_file(&second).unwrap();
        assert_eq!(file.disk_bytes() - disk, 2 * EXTENT, "it is here alone");
        for (place, body) in places.iter().zip(&bodies) {
            assert_eq!(file.reader().read(*place).unwrap(), body);
        }
        places.into_iter().for_each(|place| file.free(place));
        assert_eq!(
            (file.bytes(), file.disk_bytes(), Arc::strong_count(&shared)),
            (3, disk, 1)
        );
        assert!(!file.shares(&third, &shared), "it has no body any more");
        assert_eq!(file.reader().read(own).unwrap(), b"own".as_slice());
    }

    #[test]
    fn a_file_that_was_removed_gives_back_what_is_free_and_keeps_the_rest() {
        let (dir, mut file) = (tempfile::tempdir().unwrap(), file());
        let (path, body) = (
            dir.path().join("db"),
            vec![7; usize::try_from(2 * EXTENT).unwrap()],
        );
        std::fs::write(&path, body.repeat(3)).unwrap();
        let [first, second, third] = [0, 2, 4].map(|at| {
            Stored::new(file.refer(&path, at * EXTENT, body.len()).unwrap(), &body).unwrap()
        });
        let opened = File::open(&path).unwrap();
        let on_disk = || opened.metadata().unwrap().blocks() * 512 / EXTENT;
        file.free(first);
        assert_eq!(on_disk(), 6, "the store still has it");
        std::fs::remove_file(&path).unwrap();
        file.free(second);
        assert_eq!(on_disk(), 2);
        assert_eq!(file.reader().read(third).unwrap(), body);
    }

    #[test]
    fn no_body_is_written_over_another_one_in_whatever_order_they_go() {
        let (mut file, mut living, mut random) = (file(), Vec::new(), 7_u64);
        for fill in (0..=250).cycle().take(1_000) {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let bytes = usize::try_from(random >> 45).unwrap();
            living.push(put(&mut file, &vec![fill; bytes]));
            if living.len() > 100 {
                let gone = living.swap_remove(usize::try_from(random >> 33).unwrap() % 100);
                assert_eq!(file.reader().read(gone).unwrap().len(), gone.len as usize);
                file.free(gone);
            }
        }
        living
            .iter()
            .for_each(|stored| drop(file.reader().read(*stored).unwrap()));
    }
}
