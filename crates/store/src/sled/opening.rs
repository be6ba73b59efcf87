//! Opening without a risk: what sled overwrites while it opens is kept aside until the opening is over.
//!
//! Opening, sled writes a snapshot of its page table, blanks the log behind the last message that holds together, and
//! blanks or cuts off every segment that the new snapshot does not need. It syncs neither the names of its snapshots nor
//! that blanking, so a power cut may leave the blanked segments and the old snapshot, or none. Starting from those, sled
//! asks for every segment from the last stable position on (the log's tail), takes a blanked one for the end of the log,
//! and forgets all that comes after it.
//!
//! So before it opens, the snapshot and the tail are written to a file beside sled's folder. If that file is found whole,
//! an opening was cut short: its contents are put back, and the next opening starts from what the last one started from.
//! Segments before the tail need no such care: blanked ones among them are skipped, as everything in them was replaced.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::files::{DB, at, entries, sync_entry, sync_folder};
use crate::store::Error;

/// What is kept, beside sled's folder: a checksum of the rest, the log's length, and pieces of files.
const KEPT: &str = "opening";
const SNAPSHOT: &str = "snap.";
const HALF_WRITTEN: &str = ".generating";
const CHECKSUM_BYTES: usize = 4;
/// A segment starts with a checksum of its header, its position in the log, and a position that was stable by then.
const HEADER_BYTES: usize = 20;

/// An opening under way. Dropped before its end, it leaves what is kept for the next one.
#[derive(Debug)]
pub(super) struct Opening {
    kept: PathBuf,
}

impl Opening {
    /// Keeps what opening may spoil, or puts back what an opening before this one has spoilt.
    pub(super) fn begin(folder: &Path, segment_bytes: usize) -> Result<Self, Error> {
        let home = folder.parent().unwrap_or(Path::new("."));
        let kept = home.join(KEPT);
        match fs::read(&kept) {
            Ok(bytes) if put_back(folder, &bytes)? => {
                tracing::warn!("an opening was cut short: the log is put back to what it was before");
            }
            Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(at("reading", &kept)(why)),
            // Nothing kept, or only a part: then sled has not begun.
            Ok(_) | Err(_) => {
                let bytes = keep(folder, segment_bytes)?;
                fs::write(&kept, bytes).map_err(at("writing", &kept))?;
                sync_entry(&kept)?;
                sync_entry(home)?;
            }
        }
        Ok(Self { kept })
    }

    /// Makes durable what sled has opened, and lets go of what was kept: nothing may be written to the log before.
    pub(super) fn end(self, folder: &Path) -> Result<(), Error> {
        sync_folder(folder)?;
        fs::remove_file(&self.kept).map_err(at("removing", &self.kept))?;
        sync_entry(self.kept.parent().unwrap_or(Path::new(".")))
    }
}

/// The snapshots and the log's tail, as bytes.
fn keep(folder: &Path, segment_bytes: usize) -> Result<Vec<u8>, Error> {
    let mut kept = vec![0; CHECKSUM_BYTES];
    let path = folder.join(DB);
    let (length, tail) = match File::open(&path) {
        Ok(log) => tail(&log, segment_bytes).map_err(at("reading", &path))?,
        Err(why) if why.kind() == io::ErrorKind::NotFound => (0, Vec::new()),
        Err(why) => return Err(at("reading", &path)(why)),
    };
    kept.extend_from_slice(&length.to_le_bytes());
    for (offset, bytes) in tail {
        add(&mut kept, DB, offset, &bytes);
    }
    for path in entries(folder)? {
        if let Some(name) = snapshot(&path) {
            add(&mut kept, name, 0, &fs::read(&path).map_err(at("reading", &path))?);
        }
    }
    let sum = checksum(&kept);
    if let Some(place) = kept.first_chunk_mut() {
        *place = sum;
    }
    Ok(kept)
}

fn add(kept: &mut Vec<u8>, name: &str, offset: u64, bytes: &[u8]) {
    for len in [name.len() as u64, offset, bytes.len() as u64] {
        kept.extend_from_slice(&len.to_le_bytes());
    }
    kept.extend_from_slice(name.as_bytes());
    kept.extend_from_slice(bytes);
}

/// Puts back what was kept, and tells whether it could: what was not kept whole was never needed.
fn put_back(folder: &Path, kept: &[u8]) -> Result<bool, Error> {
    let sum = kept.first_chunk::<CHECKSUM_BYTES>();
    let mut rest = kept.get(CHECKSUM_BYTES..).unwrap_or_default();
    if sum != Some(&checksum(kept)) {
        return Ok(false);
    }
    let Some(length) = number(&mut rest) else { return Ok(false) };
    for path in entries(folder)? {
        if snapshot(&path).is_some() || path.to_string_lossy().ends_with(HALF_WRITTEN) {
            fs::remove_file(&path).map_err(at("removing", &path))?;
        }
    }
    let path = folder.join(DB);
    if length > 0 {
        let log = OpenOptions::new().write(true).open(&path).map_err(at("opening", &path))?;
        log.set_len(length).map_err(at("resizing", &path))?;
    }
    while let (Some(name), Some(offset), Some(len)) = (number(&mut rest), number(&mut rest), number(&mut rest)) {
        let (Some(name), Some(bytes)) = (take(&mut rest, name), take(&mut rest, len)) else { break };
        let path = folder.join(String::from_utf8_lossy(name).as_ref());
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        file.and_then(|file| file.write_all_at(bytes, offset)).map_err(at("writing", &path))?;
    }
    sync_folder(folder)?;
    Ok(true)
}

fn checksum(kept: &[u8]) -> [u8; CHECKSUM_BYTES] {
    crc32fast::hash(kept.get(CHECKSUM_BYTES..).unwrap_or_default()).to_le_bytes()
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let (number, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(u64::from_le_bytes(*number))
}

fn take<'a>(rest: &mut &'a [u8], len: u64) -> Option<&'a [u8]> {
    let (taken, behind) = rest.split_at_checked(usize::try_from(len).ok()?)?;
    *rest = behind;
    Some(taken)
}

/// The name of a finished snapshot.
fn snapshot(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?;
    (name.starts_with(SNAPSHOT) && !name.ends_with(HALF_WRITTEN)).then_some(name)
}

/// A piece of the log: where it starts in the file, and what is there.
type Piece = (u64, Vec<u8>);

/// The log's length, and its segments from the last stable position on.
fn tail(log: &File, segment_bytes: usize) -> io::Result<(u64, Vec<Piece>)> {
    let (length, step) = (log.metadata()?.len(), segment_bytes as u64);
    let mut headers = Vec::new();
    let mut offset = 0;
    while offset + HEADER_BYTES as u64 <= length {
        let mut header = [0; HEADER_BYTES];
        log.read_exact_at(&mut header, offset)?;
        headers.extend(positions(&header).map(|positions| (offset, positions)));
        offset += step;
    }
    let stable = headers.iter().map(|(_, (_, stable))| *stable).max().unwrap_or(0).max(0);
    let first = stable - stable % i64::try_from(step).unwrap_or(i64::MAX);
    let mut tail = Vec::new();
    for (offset, _) in headers.into_iter().filter(|(_, (start, _))| *start >= first) {
        let mut bytes = vec![0; usize::try_from(step.min(length - offset)).unwrap_or(segment_bytes)];
        log.read_exact_at(&mut bytes, offset)?;
        tail.push((offset, bytes));
    }
    Ok((length, tail))
}

/// Where a segment is in the log, and what was stable when it was begun; nothing, if its header is torn or blank.
fn positions(header: &[u8; HEADER_BYTES]) -> Option<(i64, i64)> {
    let (sum, positions) = header.split_first_chunk::<4>()?;
    let (start, stable) = positions.split_first_chunk::<8>()?;
    let whole = crc32fast::hash(positions) == !u32::from_le_bytes(*sum);
    let plain = |position: &[u8; 8]| i64::from_le_bytes(*position) ^ i64::MAX;
    whole.then_some((plain(start), plain(stable.first_chunk()?)))
}
