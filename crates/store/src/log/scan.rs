//! Which entries of a log count, where it ends, and what is damage.
//!
//! The entries of a log are a chain: each has the number behind that of the one before, and its checksum. The chain ends
//! where no whole entry continues it. That end is in order, with or without a torn entry behind it, if it is the end of
//! the last segment, no whole entry lies behind it, and the mark says that no more was durable. Anything else is damage.
//!
//! Not here: writing (`file`).

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::entry::{HEADER_BYTES, LogId, SegmentHeader, entry_at, next_entry, resembles_entry};
use super::mark::Mark;
use crate::damage::{Damage, Loss, OpenError};
use crate::files::at;
use crate::store::{Entry, Error, Place};

pub(crate) const MARK: &str = "mark";
/// How segment files are called: this, and a number that means nothing.
pub(crate) const SEGMENT: &str = "segment-";

/// A segment file.
#[derive(Clone, Debug)]
pub(crate) struct SegmentFile {
    pub(crate) path: PathBuf,
    /// `None`: it holds no segment of this log, it is room for one.
    pub(crate) header: Option<SegmentHeader>,
    pub(crate) bytes: u64,
}

/// The files of a log.
#[derive(Debug)]
pub(crate) struct Files {
    /// `None`: it is missing or damaged.
    pub(crate) mark: Option<Mark>,
    pub(crate) id: LogId,
    /// In order of the segments' numbers, those without one last.
    pub(crate) segments: Vec<SegmentFile>,
}

impl Files {
    /// Looks at a log's folder. Without a mark the id is taken from whichever segment has one.
    pub(crate) fn list(folder: &Path) -> Result<Self, Error> {
        let (mut heads, mut mark) = (Vec::new(), None);
        for path in crate::files::entries(folder)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name == MARK {
                mark = Mark::decode(&fs::read(&path).map_err(at("reading", &path))?);
            } else if name.starts_with(SEGMENT) {
                let head = head_of(&path).map_err(at("reading", &path))?;
                heads.push((path, head));
            }
        }
        let guess = || heads.iter().find_map(|(_, (head, _))| id_of(head));
        let id = mark.map(|mark| mark.id).or_else(guess).unwrap_or(LogId(0));
        let segment = |(path, (head, bytes)): (PathBuf, (Vec<u8>, u64))| {
            let header = SegmentHeader::decode(id, &head);
            SegmentFile { path, header, bytes }
        };
        let mut segments: Vec<_> = heads.into_iter().map(segment).collect();
        segments.sort_by_key(|segment| segment.header.map_or(u64::MAX, |header| header.number));
        Ok(Self { mark, id, segments })
    }

    /// The segments that hold something, in order.
    pub(crate) fn used(&self) -> impl Iterator<Item = (&SegmentFile, SegmentHeader)> {
        self.segments.iter().filter_map(|segment| Some((segment, segment.header?)))
    }
}

fn head_of(path: &Path) -> io::Result<(Vec<u8>, u64)> {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    let mut head = Vec::with_capacity(HEADER_BYTES);
    file.take(HEADER_BYTES as u64).read_to_end(&mut head)?;
    Ok((head, bytes))
}

/// The id of the log that a segment says it is of, if its header is whole.
fn id_of(head: &[u8]) -> Option<LogId> {
    let id = LogId(u64::from_le_bytes(*head.get(8..)?.first_chunk()?));
    SegmentHeader::decode(id, head).map(|_| id)
}

/// A stretch of one segment that a scan went through.
#[derive(Clone, Debug)]
pub(crate) struct Walked {
    pub(crate) path: PathBuf,
    pub(crate) header: SegmentHeader,
    /// Where the next entry would begin.
    pub(crate) end: usize,
    pub(crate) bytes: u64,
}

/// A log that is in order.
#[derive(Debug)]
pub(crate) struct Scanned {
    pub(crate) id: LogId,
    /// From the one that holds the first entry asked for to the last. Empty if the log is.
    pub(crate) walked: Vec<Walked>,
    /// The last commit and its checksum; zeros before the first.
    pub(crate) last: (u64, u32),
    /// An entry was torn: it was never acknowledged.
    pub(crate) torn: bool,
    /// Files that hold nothing that was asked for.
    pub(crate) spare: Vec<SegmentFile>,
}

/// Where a chain has come to.
#[derive(Clone, Copy, Debug)]
struct Link {
    /// The next commit.
    next: u64,
    /// The checksum of the last entry.
    last: u32,
    /// The checksum of the one before that.
    before: u32,
}

/// Reads the entries behind commit `after`, in order, and shows them.
///
/// # Errors
///
/// If the log cannot be read, or is damaged: nothing that was shown counts then.
pub(crate) fn scan(
    folder: &Path,
    after: u64,
    show: &mut dyn FnMut(&Entry<'_>) -> Result<(), OpenError>,
) -> Result<Scanned, OpenError> {
    let files = Files::list(folder)?;
    let Some(mark) = files.mark else {
        let what = "the mark, which says how far the log reached, is missing or damaged";
        return Err(Damage::of(folder.join(MARK), what).into());
    };
    let first_wanted = after + 1;
    let starts = files.used().filter(|(_, header)| header.first_seq <= first_wanted).count();
    let skipped = starts.saturating_sub(1);
    let mut used = files.used().skip(skipped).peekable();
    let Some((_, first)) = used.peek().copied() else {
        return match mark.seq {
            0 if after == 0 => Ok(nothing(&files)),
            newest => Err(lost(folder, first_wanted, newest.max(first_wanted), "no segment of the log is there")),
        };
    };
    if first.first_seq > first_wanted {
        return Err(lost(folder, first_wanted, first.first_seq - 1, "the log begins behind what the table holds"));
    }
    let mut scanned = nothing(&files);
    let mut link = Link { next: first.first_seq, last: first.before, before: 0 };
    let mut buffer = Vec::new();
    while let Some((segment, header)) = used.next() {
        let continues = header.first_seq == link.next && header.before == link.last;
        // A commit that failed half way is written again, to a new segment.
        let again = header.first_seq + 1 == link.next && header.before == link.before;
        let numbered = scanned.walked.last().is_none_or(|last| last.header.number < header.number);
        if !numbered || !(continues || again) {
            let upto = header.first_seq.saturating_sub(1).max(link.next);
            return Err(lost(&segment.path, link.next, upto, "what stood before this segment is missing or damaged"));
        }
        if again {
            (link.next, link.last) = (link.next - 1, link.before);
        }
        read_file(&segment.path, &mut buffer)?;
        let end = walk(files.id, header, &buffer, after, &mut link, show)?;
        let (path, bytes) = (segment.path.clone(), segment.bytes);
        scanned.walked.push(Walked { path, header, end, bytes });
        if used.peek().is_none() {
            scanned.torn = check_end(&segment.path, files.id, mark, &buffer, end, link)?;
        }
    }
    scanned.last = (link.next - 1, link.last);
    if scanned.last.0 < after {
        return Err(lost(folder, scanned.last.0 + 1, after, "the log ends before what the table holds"));
    }
    let older = files.used().take(skipped).map(|(segment, _)| segment);
    scanned.spare = files.segments.iter().filter(|segment| segment.header.is_none()).chain(older).cloned().collect();
    Ok(scanned)
}

fn nothing(files: &Files) -> Scanned {
    let spare = files.segments.clone();
    Scanned { id: files.id, walked: Vec::new(), last: (0, 0), torn: false, spare }
}

/// Follows the chain through one segment. Returns where it ends there.
fn walk(
    id: LogId,
    header: SegmentHeader,
    segment: &[u8],
    after: u64,
    link: &mut Link,
    show: &mut dyn FnMut(&Entry<'_>) -> Result<(), OpenError>,
) -> Result<usize, OpenError> {
    let mut at = HEADER_BYTES;
    while let Some(found) = entry_at(id, segment, at) {
        if (found.seq, found.before) != (link.next, link.last) {
            break;
        }
        if found.seq > after {
            let place = place_of(header.number, found.records.start);
            let records = segment.get(found.records.clone()).unwrap_or_default();
            show(&Entry { seq: found.seq, place, records })?;
        }
        at = found.end();
        *link = Link { next: found.seq + 1, last: found.checksum, before: link.last };
    }
    Ok(at)
}

/// Whether the log may end here. Returns whether a torn entry stands there.
fn check_end(path: &Path, id: LogId, mark: Mark, segment: &[u8], end: usize, link: Link) -> Result<bool, OpenError> {
    if let Some((_, behind)) = next_entry(id, segment, end, link.next) {
        let upto = (behind.seq - 1).max(link.next);
        return Err(lost(path, link.next, upto, "an entry is damaged, and whole ones lie behind it"));
    }
    if mark.seq >= link.next {
        let why = if mark.clean { "the daemon had stopped in order" } else { "they were on the disk" };
        return Err(lost(path, link.next, mark.seq, why));
    }
    Ok(resembles_entry(segment, end, link.next))
}

/// Every whole entry there is, in order of segments, whether or not it is part of a chain: for what is damaged. Returns
/// the stretches of commits that are missing between those that are there, and how many are there.
pub(crate) fn scan_loosely(folder: &Path, show: &mut dyn FnMut(&Entry<'_>)) -> Result<Loose, Error> {
    let files = Files::list(folder)?;
    let mut loose = Loose { mark: files.mark, ..Loose::default() };
    let mut buffer = Vec::new();
    // A segment whose header is damaged may hold entries all the same: its place in the row is then told by them.
    let mut row: Vec<(u64, &SegmentFile)> = Vec::new();
    for segment in &files.segments {
        let first = match segment.header {
            Some(header) => Some(header.first_seq),
            None => read_file(&segment.path, &mut buffer)
                .ok()
                .and_then(|()| next_entry(files.id, &buffer, 0, 0).map(|(_, entry)| entry.seq)),
        };
        row.extend(first.map(|first| (first, segment)));
    }
    row.sort_by_key(|(first, _)| *first);
    let mut last = None;
    for (_, segment) in row {
        if let Err(why) = read_file(&segment.path, &mut buffer) {
            loose.unreadable.push((segment.path.clone(), why.to_string()));
            continue;
        }
        let number = segment.header.map_or(0, |header| header.number);
        let (mut at, mut least) = (if segment.header.is_some() { HEADER_BYTES } else { 0 }, 0);
        while let Some((_, found)) = next_entry(files.id, &buffer, at, least) {
            at = found.end();
            // Older ones lie behind the last in a segment file that was used before.
            least = found.seq + 1;
            if last.is_some_and(|last| found.seq <= last) {
                continue;
            }
            let expected = last.map_or(found.seq, |last: u64| last + 1);
            if expected < found.seq {
                loose.missing.push((expected, found.seq - 1));
            }
            last = Some(found.seq);
            loose.first.get_or_insert(found.seq);
            loose.found += 1;
            let records = buffer.get(found.records.clone()).unwrap_or_default();
            show(&Entry { seq: found.seq, place: place_of(number, found.records.start), records });
        }
    }
    loose.last = last.unwrap_or(0);
    if let Some(mark) = files.mark.filter(|mark| mark.seq > loose.last) {
        loose.missing.push((loose.last + 1, mark.seq));
    }
    Ok(loose)
}

/// What [`scan_loosely`] found.
#[derive(Debug, Default)]
pub(crate) struct Loose {
    pub(crate) mark: Option<Mark>,
    pub(crate) found: u64,
    pub(crate) first: Option<u64>,
    pub(crate) last: u64,
    /// From the first to the last commit of each stretch.
    pub(crate) missing: Vec<(u64, u64)>,
    pub(crate) unreadable: Vec<(PathBuf, String)>,
}

pub(crate) fn place_of(segment: u64, at: usize) -> Place {
    Place(segment << 32 | at as u64)
}

/// Reads a whole file.
pub(crate) fn read_file(path: &Path, buffer: &mut Vec<u8>) -> Result<(), Error> {
    buffer.clear();
    let read = File::open(path).and_then(|mut file| file.read_to_end(buffer));
    read.map(drop).map_err(at("reading", path))
}

fn lost(path: &Path, first: u64, last: u64, why: &str) -> OpenError {
    Damage { path: path.to_owned(), what: why.to_owned(), loss: Some(Loss { first, last }) }.into()
}
