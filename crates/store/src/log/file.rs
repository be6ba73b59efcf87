//! The log in files: preallocated segments that are reused.
//!
//! A commit is a single write and `fdatasync` on the thread that commits. Large bodies are written without a
//! copy. Segment files are allocated in full before they are needed, and are reused once a checkpoint has
//! copied the contents. Therefore neither metadata updates of the file system nor a full disk delays a
//! commit. A segment is identified by the header, never by the file name. An entry larger than a segment gets
//! a segment of exactly that size, which is not reused. A segment in which a previous process stored bodies
//! is not reused either while those are not in memory.
//!
//! A power cut can leave: the last entry torn or missing (`scan` drops it, because it was never acknowledged,
//! unless the disk lies); a segment's header without its first entry, or the reverse (treated alike); an
//! outdated mark. After a failed write or sync the segment is not written to again: the commit is written to
//! a new one. Entries after the mark that a process reads when it opens the log may exist only in memory,
//! after a failed sync. They are written again before any other entry.
//!
//! A folder or a file that was removed or moved while the log is open is a failure, because writes to the
//! open files would succeed but no start could find the commits. The log continues once the same folder is
//! back in its place, and writes the files again (`lost`).

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_engine::QueueId;

use super::entry::{
    ENTRY_HEADER_BYTES, HEADER_BYTES, LogId, PADDING, SegmentHeader, entry_at, entry_bytes, seal,
};
use super::mark::Mark;
use super::names::Names;
use super::room::{allocate, create, open, put, remove};
use super::scan::{MARK, SEGMENT, Scanned, Walked, place_of};
use crate::commit::Commit;
use crate::files::{Identity, at, sync, sync_data, sync_entry};
use crate::store::{Entry, Error, Log, LogTail, Span};

/// Bytes of a segment.
pub(crate) const SEGMENT_BYTES: u64 = 8 << 20;
/// Maximum number of segment files that are retained for reuse.
const SPARES_MAX: usize = 12;
/// Segment files that are allocated in advance.
const SPARES_MIN: usize = 2;
/// Bytes that [`LogTail::fetch`] reads together.
const WINDOW_BYTES: usize = 256 << 10;

/// A log on the disk, for the thread that commits.
pub(crate) struct FileLog {
    shared: Arc<Shared>,
    mark: File,
    /// The position of the next entry. `None`: the log has failed.
    open: Option<Open>,
    last: (u64, u32),
    names: Names,
}

#[derive(Debug)]
struct Open {
    /// `None`: the next entry starts a segment.
    file: Option<Arc<File>>,
    path: PathBuf,
    at: u64,
    bytes: u64,
}

/// State shared by commits and checkpoints.
struct Shared {
    folder: PathBuf,
    identity: Identity,
    id: LogId,
    segment_bytes: u64,
    newest: AtomicU64,
    /// Bytes of space that stay allocated: see [`LogTail::reserve`].
    reserved: AtomicU64,
    /// A file was removed and could not be written again.
    is_incomplete: AtomicBool,
    state: Mutex<State>,
    window: Mutex<Window>,
}

#[derive(Debug, Default)]
struct State {
    /// In order. The last one is written to.
    segments: VecDeque<Segment>,
    /// Used files are last and are taken first, because writing to them modifies no metadata.
    spares: Vec<Spare>,
    next_name: u64,
}

#[derive(Clone, Debug)]
struct Segment {
    header: SegmentHeader,
    path: PathBuf,
    file: Arc<File>,
    /// Offset of the first valid entry.
    begin: usize,
    /// The durable bytes.
    used: u64,
    bytes: u64,
    /// Part of it was damaged, or bodies stay in it: it is not reused.
    stays: bool,
}

#[derive(Debug)]
struct Spare {
    path: PathBuf,
    file: Arc<File>,
}

/// The last bytes read for [`LogTail::fetch`].
#[derive(Debug, Default)]
struct Window {
    segment: u64,
    at: usize,
    bytes: Vec<u8>,
}

impl Segment {
    /// Whether a start has found it behind the table's point, and has not read it.
    const fn is_held(&self) -> bool {
        self.used == HEADER_BYTES as u64
    }
}

impl FileLog {
    /// Creates an empty log in an existing folder.
    pub(crate) fn create(folder: &Path, id: LogId, segment_bytes: u64) -> Result<(), Error> {
        let path = folder.join(MARK);
        let file = create(&path)?;
        let mark = Mark {
            id,
            seq: 0,
            segment: 0,
            clean: true,
        };
        file.write_all_at(&mark.encode(), 0)
            .map_err(at("writing", &path))?;
        sync(&file, &path)?;
        allocate(&folder.join(format!("{SEGMENT}1")), segment_bytes)?;
        sync_entry(folder)
    }

    /// Continues after the entries that a scan has found.
    pub(crate) fn resume(
        folder: &Path,
        scanned: Scanned,
        segment_bytes: u64,
    ) -> Result<Self, Error> {
        let mut state = State::default();
        let held = scanned.held.iter().filter_map(|held| {
            let (path, header, bytes) = (held.path.clone(), held.header?, held.bytes);
            Some(Walked {
                path,
                header,
                begin: HEADER_BYTES,
                end: HEADER_BYTES,
                bytes,
                damaged: false,
            })
        });
        for Walked {
            path,
            header,
            begin,
            end,
            bytes,
            damaged,
        } in held.chain(scanned.walked.iter().cloned())
        {
            let file = Arc::new(open(&path)?);
            state.segments.push_back(Segment {
                header,
                path,
                file,
                begin,
                used: end as u64,
                bytes,
                stays: damaged,
            });
        }
        for spare in &scanned.spare {
            // As many as exist: a previous process may have reserved them on a disk that is full now.
            if spare.bytes == segment_bytes {
                let file = Arc::new(open(&spare.path)?);
                state.spares.push(Spare {
                    path: spare.path.clone(),
                    file,
                });
            } else {
                remove(&spare.path)?;
            }
        }
        let names = crate::files::entries(folder)?;
        let number = |path: &PathBuf| {
            path.file_name()?
                .to_str()?
                .strip_prefix(SEGMENT)?
                .parse::<u64>()
                .ok()
        };
        state.next_name = names.iter().filter_map(number).max().unwrap_or(0) + 1;
        let mut open_at = Open {
            file: None,
            path: PathBuf::new(),
            at: 0,
            bytes: 0,
        };
        if let Some(last) = state.segments.back() {
            // Entries that were written but never synced have been read and are now valid, so they must stay.
            // After a failed sync a further sync would skip them, so the same bytes are written again at the
            // same position.
            let (from, unsynced) = &scanned.unsynced;
            put(&last.file, &last.path, &[unsynced], *from as u64)?;
            sync_data(&last.file, &last.path)?;
            if !last.stays {
                let file = Some(Arc::clone(&last.file));
                open_at = Open {
                    file,
                    path: last.path.clone(),
                    at: last.used,
                    bytes: last.bytes,
                };
            }
        }
        let path = folder.join(MARK);
        let mark = open(&path)?;
        let shared = Arc::new(Shared {
            folder: folder.to_owned(),
            identity: Identity::of(folder)?,
            id: scanned.id,
            segment_bytes,
            newest: AtomicU64::new(scanned.last.0),
            reserved: AtomicU64::new(0),
            is_incomplete: AtomicBool::new(false),
            state: Mutex::new(state),
            window: Mutex::default(),
        });
        let log = Self {
            shared,
            mark,
            open: Some(open_at),
            last: scanned.last,
            names: Names::default(),
        };
        // The daemon is running now: clear the mark of a clean shutdown.
        log.write_mark(log.last.0, false, true)?;
        Ok(log)
    }

    /// Records the settings of the queues in the store.
    pub(crate) fn know(&mut self, queues: impl Iterator<Item = (QueueId, Vec<u8>)>) {
        queues.for_each(|(queue, record)| self.names.add(queue, &record));
    }

    /// Files that must not be modified are removed, instead of reused, when the log drops them.
    pub(crate) fn keep(&self, stays: impl Fn(&Path, &Arc<File>) -> bool) {
        let mut state = self.shared.state();
        state
            .segments
            .iter_mut()
            .for_each(|segment| segment.stays |= stays(&segment.path, &segment.file));
    }

    /// The length of an entry's records.
    fn payload(&self, named: &[u8], commit: &Commit) -> Result<u32, Error> {
        u32::try_from(
            named.len() as u64 + commit.parts().map(|part| part.len() as u64).sum::<u64>(),
        )
        .map_err(|_| {
            let why = io::Error::new(io::ErrorKind::FileTooLarge, "a commit is larger than 4 GiB");
            at("writing", &self.shared.folder)(why)
        })
    }

    fn write_mark(&self, seq: u64, clean: bool, durable: bool) -> Result<(), Error> {
        let path = self.shared.folder.join(MARK);
        let segment = self
            .shared
            .newest_header()
            .map_or(0, |header| header.number);
        let mark = Mark {
            id: self.shared.id,
            seq,
            segment,
            clean,
        };
        put(&self.mark, &path, &[&mark.encode()], 0)?;
        if durable {
            sync_data(&self.mark, &path)
        } else {
            Ok(())
        }
    }
}

impl Log for FileLog {
    fn append(&mut self, commit: &Commit) -> Result<(), Error> {
        let mut open = self.open.take().ok_or(Error::Closed)?;
        self.shared.is_in_place()?;
        if self.shared.is_incomplete.load(Ordering::Acquire) {
            return Err(lost::removed(&self.shared.folder));
        }
        let mut named = self.names.lacking(commit, open.file.is_none());
        let mut payload = self.payload(&named, commit)?;
        let begins = open.file.is_none() || open.at + entry_bytes(payload) as u64 > open.bytes;
        if begins {
            named = self.names.lacking(commit, true);
            payload = self.payload(&named, commit)?;
            let bytes = (HEADER_BYTES + entry_bytes(payload)) as u64;
            open = self
                .shared
                .begin_segment(commit.seq(), self.last.1, bytes)?;
        }
        let entry_bytes = entry_bytes(payload);
        let mut parts: Vec<&[u8]> = std::iter::once(&*named).chain(commit.parts()).collect();
        let mut head = [0; ENTRY_HEADER_BYTES];
        let checksum = seal(
            self.shared.id,
            commit.seq(),
            self.last.1,
            payload,
            &mut head,
            parts.iter().copied(),
        );
        parts.insert(0, &head);
        parts.push(
            PADDING
                .get(..entry_bytes - ENTRY_HEADER_BYTES - payload as usize)
                .unwrap_or_default(),
        );
        let header = begins
            .then(|| self.shared.newest_header())
            .flatten()
            .map(|header| header.encode(self.shared.id));
        if let Some(header) = &header {
            parts.insert(0, header);
        }
        let file = open.file.clone().ok_or(Error::Closed)?;
        put(&file, &open.path, &parts, if begins { 0 } else { open.at })?;
        sync_data(&file, &open.path)?;
        open.at += entry_bytes as u64;
        self.shared.appended(commit.seq(), open.at, &file)?;
        self.write_mark(commit.seq(), false, begins)?;
        // An acknowledged commit must be in files that a start finds.
        self.shared
            .has_name(&self.shared.folder.join(MARK), &self.mark)?;
        self.names.wrote(commit, begins);
        self.last = (commit.seq(), checksum);
        self.open = Some(open);
        Ok(())
    }

    fn reopen(&mut self) -> Result<(), Error> {
        self.shared.is_in_place()?;
        self.restore()?;
        self.shared.make_room()?;
        self.open = Some(Open {
            file: None,
            path: PathBuf::new(),
            at: 0,
            bytes: 0,
        });
        Ok(())
    }

    fn close(&mut self) -> Result<(), Error> {
        self.shared.is_in_place()?;
        self.restore()?;
        self.write_mark(self.last.0, true, true)
    }

    fn tail(&self) -> Arc<dyn LogTail> {
        Arc::clone(&self.shared) as Arc<dyn LogTail>
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_in_place(&self) -> Result<(), Error> {
        self.identity.is_at(&self.folder)
    }

    fn newest_header(&self) -> Option<SegmentHeader> {
        self.state().segments.back().map(|segment| segment.header)
    }

    /// Takes the next segment file, or creates one.
    fn begin_segment(&self, first_seq: u64, before: u32, bytes: u64) -> Result<Open, Error> {
        let mut state = self.state();
        state
            .spares
            .retain(|spare| self.has_name(&spare.path, &spare.file).is_ok());
        let number = state
            .segments
            .back()
            .map_or(1, |last| last.header.number + 1);
        // A segment that failed before anything in it was durable is only useful as a spare file.
        if state.segments.back().is_some_and(|last| last.used == 0)
            && let Some(failed) = state.segments.pop_back()
        {
            state.spares.insert(
                0,
                Spare {
                    path: failed.path,
                    file: failed.file,
                },
            );
        }
        let (path, file, bytes) = if bytes <= self.segment_bytes {
            let spare = match state.spares.pop() {
                Some(spare) => spare,
                None => self.new_spare(state.new_name(&self.folder))?,
            };
            (spare.path, spare.file, self.segment_bytes)
        } else {
            let path = state.new_name(&self.folder);
            let file = Arc::new(allocate(&path, bytes)?);
            sync_entry(&self.folder)?;
            (path, file, bytes)
        };
        let header = SegmentHeader {
            number,
            first_seq,
            before,
        };
        let (name, begin) = (path.clone(), HEADER_BYTES);
        let segment = Segment {
            header,
            path: name,
            file: Arc::clone(&file),
            begin,
            used: 0,
            bytes,
            stays: false,
        };
        state.segments.push_back(segment);
        Ok(Open {
            file: Some(file),
            path,
            at: HEADER_BYTES as u64,
            bytes,
        })
    }

    fn new_spare(&self, path: PathBuf) -> Result<Spare, Error> {
        self.is_in_place()?;
        let file = Arc::new(allocate(&path, self.segment_bytes)?);
        sync_entry(&self.folder)?;
        Ok(Spare { path, file })
    }

    fn add_spares_while(&self, lacks: impl Fn(&Self) -> bool) -> Result<(), Error> {
        while lacks(self) {
            let path = self.state().new_name(&self.folder);
            let spare = self.new_spare(path)?;
            self.state().spares.insert(0, spare);
        }
        Ok(())
    }

    /// Records that a commit is durable, unless the file was removed in the meantime.
    fn appended(&self, seq: u64, used: u64, file: &Arc<File>) -> Result<(), Error> {
        let mut state = self.state();
        let Some(segment) = state.segments.back_mut() else {
            return Err(Error::Closed);
        };
        self.has_name(&segment.path, file)?;
        if !Arc::ptr_eq(&segment.file, file) {
            // The file was removed and written again, without this commit.
            return Err(lost::removed(&segment.path));
        }
        segment.used = used;
        self.newest.store(seq, Ordering::Release);
        Ok(())
    }

    /// The segments that contain commits after this one.
    fn segments_behind(&self, after: u64) -> Vec<Segment> {
        let state = self.state();
        let starts = state
            .segments
            .iter()
            .filter(|segment| segment.header.first_seq <= after + 1)
            .count();
        state
            .segments
            .iter()
            .skip(starts.saturating_sub(1))
            .cloned()
            .collect()
    }

    fn read_segment(
        &self,
        segment: &Segment,
        buffer: &mut Vec<u8>,
        after: u64,
        each: &mut dyn FnMut(&Entry<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Error> {
        // Where the entries of a held segment end is known once it is read.
        let is_held = segment.is_held();
        let bytes = if is_held { segment.bytes } else { segment.used };
        buffer.resize(usize::try_from(bytes).unwrap_or(usize::MAX), 0);
        segment
            .file
            .read_exact_at(buffer, 0)
            .map_err(at("reading", &segment.path))?;
        let mut place = segment.begin;
        let mut next = segment.header.first_seq;
        while place < buffer.len() {
            let found = entry_at(self.id, buffer, place);
            if is_held && found.as_ref().is_none_or(|found| found.seq != next) {
                break;
            }
            let Some(found) = found else {
                let what = format!("the entry at byte {place} is damaged");
                return Err(Error::damaged(segment.path.display(), what));
            };
            place = found.end();
            next = found.seq + 1;
            if found.seq <= after {
                continue;
            }
            let start = found.records.start;
            let records = buffer.get(found.records).unwrap_or_default();
            let entry = Entry {
                seq: found.seq,
                place: place_of(segment.header.number, start),
                records,
            };
            if each(&entry).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn remove_spares(&self, state: &mut State) -> Result<(), Error> {
        let reserved = self
            .reserved
            .load(Ordering::Relaxed)
            .div_ceil(self.segment_bytes);
        let most = usize::try_from(reserved)
            .unwrap_or(usize::MAX)
            .max(SPARES_MAX);
        while state.spares.len() > most {
            let spare = state.spares.remove(0);
            remove(&spare.path)?;
        }
        Ok(())
    }
}

impl LogTail for Shared {
    fn newest(&self) -> u64 {
        self.newest.load(Ordering::Acquire)
    }

    fn bytes_behind(&self, seq: u64) -> u64 {
        if seq >= self.newest() {
            return 0;
        }
        self.segments_behind(seq)
            .iter()
            .map(|segment| segment.used)
            .sum()
    }

    fn behind_bytes(&self, bytes: u64) -> u64 {
        let (state, mut behind) = (self.state(), 0);
        for segment in state.segments.iter().rev() {
            behind += segment.used;
            if behind >= bytes {
                return segment.header.first_seq.saturating_sub(1);
            }
        }
        0
    }

    fn read(
        &self,
        after: u64,
        each: &mut dyn FnMut(&Entry<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        // Every checkpoint starts here, and must not write the table to another directory.
        self.is_in_place()?;
        let mut buffer = Vec::new();
        // A commit that was written again after a failure may be in two segments.
        let mut newest = after;
        for segment in self
            .segments_behind(after)
            .iter()
            .filter(|segment| segment.used > 0)
        {
            let before = newest;
            let mut show = |entry: &Entry<'_>| {
                newest = entry.seq;
                each(entry)
            };
            if self
                .read_segment(segment, &mut buffer, before, &mut show)?
                .is_break()
            {
                break;
            }
        }
        Ok(())
    }

    fn fetch(&self, spans: &[Span], into: &mut Vec<u8>) -> Result<(), Error> {
        spans
            .iter()
            .try_for_each(|span| self.fetch_one(*span, into))
    }

    fn forget(&self, upto: u64) -> Result<(), Error> {
        *self.window.lock().unwrap_or_else(PoisonError::into_inner) = Window::default();
        let mut state = self.state();
        while state
            .segments
            .get(1)
            .is_some_and(|next| next.used > 0 && next.header.first_seq <= upto + 1)
        {
            let Some(segment) = state.segments.pop_front() else {
                break;
            };
            if segment.bytes == self.segment_bytes && !segment.stays {
                state.spares.push(Spare {
                    path: segment.path,
                    file: segment.file,
                });
            } else {
                remove(&segment.path)?;
            }
        }
        self.remove_spares(&mut state)
    }

    fn disk_bytes(&self) -> u64 {
        let state = self.state();
        let segments: u64 = state.segments.iter().map(|segment| segment.bytes).sum();
        segments + state.spares.len() as u64 * self.segment_bytes
    }

    fn room_bytes(&self) -> u64 {
        let state = self.state();
        let left = state
            .segments
            .back()
            .map_or(0, |segment| segment.bytes.saturating_sub(segment.used));
        left + state.spares.len() as u64 * self.segment_bytes
    }

    fn free_bytes(&self) -> u64 {
        let about = rustix::fs::statvfs(&self.folder);
        about.map_or(u64::MAX, |about| {
            about.f_bavail.saturating_mul(about.f_frsize)
        })
    }

    fn reserve(&self, bytes: u64) -> Result<(), Error> {
        self.reserved.store(bytes, Ordering::Relaxed);
        self.add_spares_while(|log| log.room_bytes() < bytes)
    }

    fn look(&self) -> Result<(), Error> {
        self.look_for_lost()
    }

    fn make_room(&self) -> Result<(), Error> {
        while self.state().spares.len() < SPARES_MIN {
            // Commits continue meanwhile.
            let path = self.state().new_name(&self.folder);
            let spare = self.new_spare(path)?;
            self.state().spares.insert(0, spare);
        }
        Ok(())
    }
}

impl State {
    fn new_name(&mut self, folder: &Path) -> PathBuf {
        self.next_name += 1;
        folder.join(format!("{SEGMENT}{}", self.next_name - 1))
    }
}

mod fetch;
mod lost;
#[cfg(test)]
mod tests;
