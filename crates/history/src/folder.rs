//! The folder of SQLite files: their names, their sizes, and their deletion.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::file_id::FileId;

const SUFFIX: &str = ".sqlite";

/// Where a file is.
pub(crate) fn path(folder: &Path, id: FileId) -> PathBuf {
    folder.join(format!("{id}{SUFFIX}"))
}

/// All files in a folder, the newest day first. A folder that does not exist has none.
pub(crate) fn list(folder: &Path) -> Result<Vec<FileId>, Error> {
    let entries = match fs::read_dir(folder) {
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|why| io(folder, why))?,
    };
    let id = |entry: std::io::Result<fs::DirEntry>| {
        let name = entry.ok()?.file_name();
        name.to_str()?.strip_suffix(SUFFIX)?.parse().ok()
    };
    let mut files: Vec<FileId> = entries.filter_map(id).collect();
    files.sort_unstable_by(|one, two| two.cmp(one));
    Ok(files)
}

/// What a file has on the disk, with what SQLite keeps beside it.
pub(crate) fn bytes_of(folder: &Path, id: FileId) -> u64 {
    let parts = parts(folder, id).into_iter();
    parts
        .filter_map(|path| fs::metadata(path).ok())
        .map(|about| about.len())
        .sum()
}

/// Deletes a file, which nobody writes any more. A question that reads it at this moment reads on.
pub(crate) fn delete(folder: &Path, id: FileId) -> Result<(), Error> {
    for path in parts(folder, id) {
        match fs::remove_file(&path) {
            Err(why) if why.kind() != std::io::ErrorKind::NotFound => return Err(io(&path, why)),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// A file, and SQLite's log and index of it.
pub(crate) fn parts(folder: &Path, id: FileId) -> [PathBuf; 3] {
    ["", "-wal", "-shm"].map(|part| folder.join(format!("{id}{SUFFIX}{part}")))
}

/// Sets a file aside that cannot be read, so that another one can take its place.
pub(crate) fn set_aside(folder: &Path, id: FileId) -> Result<PathBuf, Error> {
    let aside = (1..)
        .map(|n| folder.join(format!("{id}.damaged-{n}")))
        .find(|path| !path.exists())
        .unwrap_or_default();
    let path = path(folder, id);
    fs::rename(&path, &aside).map_err(|why| io(&path, why))?;
    // SQLite must not take what is in its log for a part of the new file.
    let [_, wal, shm] = parts(folder, id);
    let _ = (fs::remove_file(wal), fs::remove_file(shm));
    Ok(aside)
}

pub(crate) fn io(place: &Path, why: std::io::Error) -> Error {
    Error::Io {
        place: place.display().to_string(),
        why,
    }
}
