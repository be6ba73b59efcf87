//! Decides which entries of a log are valid, where the log stops, and what is damage.
//!
//! The entries of a log form a chain: each contains the number after that of the previous entry, and the
//! checksum of that entry. The chain stops where no complete entry continues it. This end is valid, with or
//! without a torn entry after it, if it is the end of the last segment, no complete entry follows it, and the
//! mark names no later commit. Anything else is damage.
//!
//! Damage before the table's point is harmless, because the table contains those commits. The chain then
//! starts after the damage, and that segment receives no more entries. If the damage reaches the end of the
//! log, the mark must name the table's last commit as the last of all, and no complete entry after it may
//! exist anywhere.
//!
//! Not here: writing (`file`).

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::entry::{HEADER_BYTES, LogId, SegmentHeader, entry_at, next_entry, resembles_entry};
use super::mark::Mark;
use crate::damage::{Damage, Loss, OpenError};
use crate::files::at;
use crate::store::{Entry, Error, Position};

/// Receives a commit that is read back, and the file that contains it, if that file will not be modified. The
/// lower half of the commit's place is the offset in the file.
pub(crate) type ShowEntry<'a> = dyn FnMut(&Entry<'_>, Option<&Path>) -> Result<(), OpenError> + 'a;

pub(crate) const MARK: &str = "mark";
/// Prefix of segment file names. The number after it has no meaning.
pub(crate) const SEGMENT: &str = "segment-";

/// A segment file.
#[derive(Clone, Debug)]
pub(crate) struct SegmentFile {
    pub(crate) path: PathBuf,
    /// `None`: the file contains no segment of this log and is free.
    pub(crate) header: Option<SegmentHeader>,
    pub(crate) bytes: u64,
}

/// The files of a log.
#[derive(Debug)]
pub(crate) struct Files {
    /// `None`: it is missing, damaged or of another log.
    pub(crate) mark: Option<Mark>,
    pub(crate) id: LogId,
    /// Ordered by segment number; files without a number are last.
    pub(crate) segments: Vec<SegmentFile>,
}

impl Files {
    /// Lists a log's folder. The id is that of the mark, unless all segments with a header have another one.
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
        let ids: Vec<LogId> = heads
            .iter()
            .filter_map(|(_, (head, _))| id_of(head))
            .collect();
        let mark = mark.filter(|mark| ids.is_empty() || ids.contains(&mark.id));
        let id = mark
            .map(|mark| mark.id)
            .or(ids.first().copied())
            .unwrap_or(LogId(0));
        let segment = |(path, (head, bytes)): (PathBuf, (Vec<u8>, u64))| {
            let header = SegmentHeader::decode(id, &head);
            SegmentFile {
                path,
                header,
                bytes,
            }
        };
        let mut segments: Vec<_> = heads.into_iter().map(segment).collect();
        let place = |header: SegmentHeader| (header.number, header.first_seq);
        segments.sort_by_key(|segment| segment.header.map_or((u64::MAX, 0), place));
        Ok(Self { mark, id, segments })
    }

    /// The segments with contents, in order.
    pub(crate) fn used(&self) -> impl Iterator<Item = (&SegmentFile, SegmentHeader)> {
        self.segments
            .iter()
            .filter_map(|segment| Some((segment, segment.header?)))
    }
}

fn head_of(path: &Path) -> io::Result<(Vec<u8>, u64)> {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    let mut head = Vec::with_capacity(HEADER_BYTES);
    file.take(HEADER_BYTES as u64).read_to_end(&mut head)?;
    Ok((head, bytes))
}

/// The log id in a segment's header, if the header is intact.
fn id_of(head: &[u8]) -> Option<LogId> {
    let id = LogId(u64::from_le_bytes(*head.get(8..)?.first_chunk()?));
    SegmentHeader::decode(id, head).map(|_| id)
}

/// The part of a segment that a scan read.
#[derive(Clone, Debug)]
pub(crate) struct Walked {
    pub(crate) path: PathBuf,
    /// The first commit is the first one after any damage.
    pub(crate) header: SegmentHeader,
    /// Offset of that commit.
    pub(crate) begin: usize,
    /// Offset of the next entry.
    pub(crate) end: usize,
    pub(crate) bytes: u64,
    /// Part of it is damaged.
    pub(crate) damaged: bool,
}

/// A log in order.
#[derive(Debug)]
pub(crate) struct Scanned {
    pub(crate) id: LogId,
    /// Segments before the walked ones. A table that is still at its previous point needs them.
    pub(crate) held: Vec<SegmentFile>,
    /// From the segment with the first requested entry to the last one. Empty if the log is.
    pub(crate) walked: Vec<Walked>,
    /// Bytes of the last segment that can be read but may not be durable: the offset, and the bytes.
    pub(crate) unsynced: (usize, Vec<u8>),
    /// The last commit and its checksum; zeros before the first.
    pub(crate) last: (u64, u32),
    /// An entry was torn. It was never acknowledged, unless the disk has failed.
    pub(crate) torn: bool,
    /// Damage without loss of data.
    pub(crate) harmless: Vec<Damage>,
    /// Files that contain no requested entry.
    pub(crate) spare: Vec<SegmentFile>,
}

/// The end of a chain.
#[derive(Clone, Copy, Debug)]
struct Link {
    /// The number of the next commit.
    next: u64,
    /// The checksum of the last entry.
    last: u32,
    /// The checksum of the entry before the last.
    before: u32,
}

/// Reads the entries after commit `after`, in order, and passes them on. Segments with commits after `kept`
/// are listed as held.
///
/// # Errors
///
/// The log cannot be read or is damaged. The entries already passed on are then invalid.
pub(crate) fn scan(
    folder: &Path,
    after: u64,
    kept: u64,
    show: &mut ShowEntry<'_>,
) -> Result<Scanned, OpenError> {
    let files = Files::list(folder)?;
    let Some(mark) = files.mark else {
        let what = "the mark, which records how far the log reached, is missing, damaged or of another store";
        return Err(Damage::of(folder.join(MARK).display(), what).into());
    };
    let before = |seq: u64| {
        files
            .used()
            .filter(|(_, header)| header.first_seq <= seq + 1)
            .count()
            .saturating_sub(1)
    };
    let (skipped, forgotten) = (before(after), before(kept.min(after)));
    let mut used = files.used().skip(skipped).peekable();
    let Some((_, first)) = used.peek().copied() else {
        return match mark.seq {
            0 if after == 0 => Ok(nothing(&files)),
            newest => Err(lost(
                folder,
                after + 1,
                newest.max(after + 1),
                "all segments of the log are missing",
            )),
        };
    };
    if first.first_seq > after + 1 {
        return Err(lost(
            folder,
            after + 1,
            first.first_seq - 1,
            "the log begins after the table's last commit",
        ));
    }
    let mut scanned = nothing(&files);
    let link = Link {
        next: first.first_seq,
        last: first.before,
        before: 0,
    };
    let mut chain = Chain {
        id: files.id,
        after,
        mark,
        link,
        show,
        harmless: Vec::new(),
    };
    let mut buffer = Vec::new();
    while let Some((segment, header)) = used.next() {
        chain.begin(&segment.path, header, scanned.walked.last())?;
        read_file(&segment.path, &mut buffer)?;
        let (walked, unmarked) = chain.walk(segment, header, &buffer)?;
        if used.peek().is_none() {
            scanned.torn = chain.check_end(&segment.path, &buffer, walked.end, &files)?;
            scanned.unsynced = (
                unmarked,
                buffer
                    .get(unmarked..walked.end)
                    .unwrap_or_default()
                    .to_vec(),
            );
        }
        scanned.walked.push(walked);
    }
    // Missing commits that the table contains have been recorded as harmless damage before.
    let Link { next, last, .. } = chain.link;
    scanned.last = if next > after {
        (next - 1, last)
    } else {
        (after, 0)
    };
    scanned.harmless = chain.harmless;
    scanned.held = files
        .used()
        .take(skipped)
        .skip(forgotten)
        .map(|(segment, _)| segment.clone())
        .collect();
    let older = files.used().take(forgotten).map(|(segment, _)| segment);
    scanned.spare = files
        .segments
        .iter()
        .filter(|segment| segment.header.is_none())
        .chain(older)
        .cloned()
        .collect();
    Ok(scanned)
}

fn nothing(files: &Files) -> Scanned {
    Scanned {
        id: files.id,
        held: Vec::new(),
        walked: Vec::new(),
        unsynced: (0, Vec::new()),
        last: (0, 0),
        torn: false,
        harmless: Vec::new(),
        spare: files.segments.clone(),
    }
}

/// Follows the chain from segment to segment.
struct Chain<'a> {
    id: LogId,
    /// The last commit in the table.
    after: u64,
    mark: Mark,
    link: Link,
    show: &'a mut ShowEntry<'a>,
    harmless: Vec<Damage>,
}

impl Chain<'_> {
    /// Checks that a segment continues the one before it.
    fn begin(
        &mut self,
        path: &Path,
        header: SegmentHeader,
        last: Option<&Walked>,
    ) -> Result<(), OpenError> {
        let link = &mut self.link;
        let continues = header.first_seq == link.next && header.before == link.last;
        // A commit that failed in the middle is written again, to a new segment.
        let again = header.first_seq + 1 == link.next && header.before == link.before;
        let numbered = last.is_none_or(|last| last.header.number < header.number);
        if !numbered || !(continues || again) {
            let why = "the entries before this segment are missing or damaged";
            return Err(self.lost(path, header.first_seq.saturating_sub(1), why));
        }
        if again {
            (link.next, link.last) = (link.next - 1, link.before);
        }
        Ok(())
    }

    /// Follows the chain through a segment, and starts again after damage to commits that the table contains.
    /// Also returns the offset in the segment that the mark has not reached.
    fn walk(
        &mut self,
        file: &SegmentFile,
        mut header: SegmentHeader,
        segment: &[u8],
    ) -> Result<(Walked, usize), OpenError> {
        let (mut begin, mut at, mut unmarked, mut damaged) = (HEADER_BYTES, HEADER_BYTES, 0, false);
        loop {
            while let Some(found) = entry_at(self.id, segment, at) {
                if (found.seq, found.before) != (self.link.next, self.link.last) {
                    break;
                }
                if found.seq > self.after {
                    let place = place_of(header.number, found.records.start);
                    let records = segment.get(found.records.clone()).unwrap_or_default();
                    (self.show)(
                        &Entry {
                            seq: found.seq,
                            place,
                            records,
                        },
                        Some(&file.path),
                    )?;
                }
                if !found.padded {
                    damaged = true;
                    let what = format!(
                        "the padding of commit {} at byte {at} is damaged",
                        found.seq
                    );
                    self.harmless.push(Damage::of(file.path.display(), what));
                }
                at = found.end();
                unmarked = if found.seq <= self.mark.seq {
                    at
                } else {
                    unmarked
                };
                self.link = Link {
                    next: found.seq + 1,
                    last: found.checksum,
                    before: self.link.last,
                };
            }
            if self.link.next > self.after {
                break;
            }
            let behind = next_entry(self.id, segment, at, self.link.next);
            let Some((next, found)) = behind.filter(|(_, found)| found.seq <= self.after + 1)
            else {
                break;
            };
            let (first, last) = (self.link.next, found.seq - 1);
            let what = format!(
                "the entries from byte {at} to {next}, commits {first} to {last}, are damaged"
            );
            self.harmless.push(Damage::of(file.path.display(), what));
            self.link = Link {
                next: found.seq,
                last: found.before,
                before: 0,
            };
            (begin, at, header.first_seq, damaged) = (next, next, found.seq, true);
        }
        damaged |= self.link.next <= self.after;
        let (path, bytes) = (file.path.clone(), file.bytes);
        Ok((
            Walked {
                path,
                header,
                begin,
                end: at,
                bytes,
                damaged,
            },
            unmarked.min(at),
        ))
    }

    /// Checks that the log may end here. Returns `true` if a torn entry follows.
    fn check_end(
        &mut self,
        path: &Path,
        segment: &[u8],
        end: usize,
        files: &Files,
    ) -> Result<bool, OpenError> {
        let (next, mark) = (self.link.next, self.mark);
        if let Some((_, behind)) = next_entry(self.id, segment, end, next) {
            let why = "an entry is damaged, and intact entries follow it";
            return Err(self.lost(path, behind.seq - 1, why));
        }
        if next <= self.after {
            return self.check_missing_end(path, end, files).map(|()| false);
        }
        if mark.seq >= next {
            let why = if mark.clean {
                "the daemon had stopped cleanly"
            } else {
                "they were on the disk"
            };
            return Err(self.lost(path, mark.seq, why));
        }
        Ok(resembles_entry(segment, end, next))
    }

    /// Checks that the log may end before the table's last commit.
    fn check_missing_end(
        &mut self,
        path: &Path,
        end: usize,
        files: &Files,
    ) -> Result<(), OpenError> {
        let Self {
            id, after, mark, ..
        } = *self;
        if mark.seq > after {
            return Err(self.lost(path, mark.seq, "an entry is damaged"));
        }
        if mark.seq < after {
            let what = format!(
                "the log ends with commit {}, the table with {after}: later commits may have been lost",
                self.link.next - 1
            );
            return Err(Damage::of(path.display(), what).into());
        }
        let mut buffer = Vec::new();
        for segment in &files.segments {
            read_file(&segment.path, &mut buffer)?;
            if let Some((_, behind)) = next_entry(id, &buffer, 0, after + 1) {
                return Err(self.lost(
                    &segment.path,
                    behind.seq - 1,
                    "the entries before this segment are damaged",
                ));
            }
        }
        let what = format!(
            "the entries from byte {end} on, commits {} to {after}, are damaged",
            self.link.next
        );
        self.harmless.push(Damage::of(path.display(), what));
        Ok(())
    }

    /// The error for missing commits up to `last`, excluding those in the table.
    fn lost(&self, path: &Path, last: u64, why: &str) -> OpenError {
        let first = self.link.next.max(self.after + 1);
        lost(path, first, last.max(first), why)
    }
}

/// Passes on every complete entry in order of segments, with the file, even if it is not part of a chain: for
/// damaged logs. Returns the number of entries, and the ranges of commits missing between them.
pub(crate) fn scan_loosely(
    folder: &Path,
    show: &mut dyn FnMut(&Entry<'_>, &Path),
) -> Result<Loose, Error> {
    let files = Files::list(folder)?;
    let mut loose = Loose {
        mark: files.mark,
        id: Some(files.id),
        ..Loose::default()
    };
    let mut buffer = Vec::new();
    // A segment with a damaged header may still contain entries. They determine the position of the segment
    // in the order.
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
            loose
                .unreadable
                .push((segment.path.clone(), why.to_string()));
            continue;
        }
        let number = segment.header.map_or(0, |header| header.number);
        let mut at = if segment.header.is_some() {
            HEADER_BYTES
        } else {
            0
        };
        while let Some((_, found)) = next_entry(files.id, &buffer, at, 0) {
            at = found.end();
            // A reused segment file contains obsolete entries after the last one, and a commit may be written
            // twice.
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
            show(
                &Entry {
                    seq: found.seq,
                    place: place_of(number, found.records.start),
                    records,
                },
                &segment.path,
            );
        }
    }
    loose.last = last.unwrap_or(0);
    if let Some(mark) = files.mark.filter(|mark| mark.seq > loose.last) {
        loose.missing.push((loose.last + 1, mark.seq));
    }
    Ok(loose)
}

/// The result of [`scan_loosely`].
#[derive(Debug, Default)]
pub(crate) struct Loose {
    pub(crate) id: Option<LogId>,
    pub(crate) mark: Option<Mark>,
    pub(crate) found: u64,
    pub(crate) first: Option<u64>,
    pub(crate) last: u64,
    /// First and last commit of each range.
    pub(crate) missing: Vec<(u64, u64)>,
    pub(crate) unreadable: Vec<(PathBuf, String)>,
}

impl Loose {
    /// The first commit of the unbroken range up to `seq`; `seq + 1` if `seq` is missing.
    pub(crate) fn unbroken_to(&self, seq: u64) -> u64 {
        let gap = self.missing.iter().rev().find(|(first, _)| *first <= seq);
        let first = self.first.unwrap_or(0);
        if seq > self.last {
            seq + 1
        } else {
            gap.map_or(first, |(_, last)| (last + 1).min(seq + 1))
        }
    }
}

pub(crate) fn place_of(segment: u64, at: usize) -> Position {
    Position(segment << 32 | at as u64)
}

/// Reads a complete file.
pub(crate) fn read_file(path: &Path, buffer: &mut Vec<u8>) -> Result<(), Error> {
    buffer.clear();
    let read = File::open(path).and_then(|mut file| file.read_to_end(buffer));
    read.map(drop).map_err(at("reading", path))
}

fn lost(path: &Path, first: u64, last: u64, why: &str) -> OpenError {
    Damage {
        place: path.display().to_string(),
        what: why.to_owned(),
        loss: Some(Loss { first, last }),
    }
    .into()
}

#[cfg(test)]
mod tests;
