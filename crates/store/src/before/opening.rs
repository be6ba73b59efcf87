//! Backups that version 0.1.0 made while sled opened its journal. After an interrupted opening they are restored first.
//!
//! The file `opening` beside sled's folder holds a checksum of the rest, the log's length, and pieces of files. A piece
//! is the lengths of its name and bytes around its offset, its name, and its bytes.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::files::{at, entries, sync_folder};
use crate::store::Error;

const KEPT: &str = "opening";
const DB: &str = "db";
const SNAPSHOT: &str = "snap.";
const HALF_WRITTEN: &str = ".generating";
const CHECKSUM_BYTES: usize = 4;

/// Undoes an interrupted opening, if there was one.
pub(super) fn mend(folder: &Path) -> Result<(), Error> {
    if put_back(folder, &kept(folder)?)? {
        tracing::warn!("an opening was interrupted: the journal's earlier state is restored");
    }
    Ok(())
}

/// Whether an opening was interrupted.
pub(super) fn was_cut_short(folder: &Path) -> Result<bool, Error> {
    Ok(is_whole(&kept(folder)?))
}

/// The backup; empty if there is none.
fn kept(folder: &Path) -> Result<Vec<u8>, Error> {
    let kept = folder.parent().unwrap_or(Path::new(".")).join(KEPT);
    match fs::read(&kept) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read.map_err(at("reading", &kept)),
    }
}

fn is_whole(kept: &[u8]) -> bool {
    kept.len() > CHECKSUM_BYTES && kept.first_chunk::<CHECKSUM_BYTES>() == Some(&checksum(kept))
}

/// Restores the backup, and returns whether it was complete: an incomplete one was never needed.
fn put_back(folder: &Path, kept: &[u8]) -> Result<bool, Error> {
    let mut rest = kept.get(CHECKSUM_BYTES..).unwrap_or_default();
    if !is_whole(kept) {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// A backup: the length of the log, and pieces of files.
    fn backup(length: u64, pieces: &[(&str, u64, &str)]) -> Vec<u8> {
        let mut kept = [&[0; CHECKSUM_BYTES][..], &length.to_le_bytes()].concat();
        for (name, offset, bytes) in pieces {
            [name.len() as u64, *offset, bytes.len() as u64].iter().for_each(|n| kept.extend(n.to_le_bytes()));
            kept.extend([name.as_bytes(), bytes.as_bytes()].concat());
        }
        let sum = checksum(&kept);
        kept[..CHECKSUM_BYTES].copy_from_slice(&sum);
        kept
    }

    /// The files of a journal after it was mended; empty if the backup is not complete.
    fn mended(kept: Option<&[u8]>) -> BTreeMap<String, String> {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("journal");
        fs::create_dir(&folder).unwrap();
        for name in ["db", "snap.1", "snap.2.generating", "conf"] {
            fs::write(folder.join(name), "abcdefgh").unwrap();
        }
        kept.into_iter().for_each(|kept| fs::write(home.path().join(KEPT), kept).unwrap());
        let was_cut_short = was_cut_short(&folder).unwrap();
        mend(&folder).unwrap();
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let files = entries(&folder).unwrap().into_iter();
        let files: BTreeMap<_, _> = files.map(|path| (name(&path), fs::read_to_string(&path).unwrap())).collect();
        let is_unchanged = files.len() == 4 && files.values().all(|text| text == "abcdefgh");
        assert_eq!(is_unchanged, !was_cut_short);
        if is_unchanged { BTreeMap::new() } else { files }
    }

    #[test]
    fn a_complete_backup_is_put_back() {
        let of = |files: &[(&str, &str)]| -> BTreeMap<String, String> {
            files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
        };
        let kept = backup(6, &[("db", 2, "XY"), ("snap.0", 0, "old"), ("conf", 8, "z")]);
        let expected = of(&[("db", "abXYef"), ("snap.0", "old"), ("conf", "abcdefghz")]);
        assert_eq!(mended(Some(&kept)), expected);
        let log_alone = of(&[("db", "abcdefgh"), ("conf", "abcdefgh")]);
        assert_eq!(mended(Some(&backup(0, &[]))), log_alone, "the log had no length");
        assert_eq!(mended(Some(&backup(8, &[]))), log_alone);
        assert_eq!(mended(Some(&backup(1, &[]))), of(&[("db", "a"), ("conf", "abcdefgh")]));
    }

    #[test]
    fn an_incomplete_backup_was_never_needed() {
        let whole = backup(6, &[("db", 2, "XY")]);
        for kept in [&[][..], &[0; CHECKSUM_BYTES], &whole[..whole.len() - 1], &[&whole[..], &[0]].concat()] {
            assert_eq!(mended(Some(kept)), BTreeMap::new(), "{kept:?}");
        }
        assert_eq!(mended(None), BTreeMap::new());
    }

    #[test]
    fn a_backup_that_cannot_be_read_is_an_error() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join(KEPT)).unwrap();
        assert!(was_cut_short(&home.path().join("journal")).is_err(), "a folder is in its place");
    }
}
