//! The files around sled: who may open them, and making them durable.
//!
//! sled's folder holds `db` (the log), `conf`, `snap.N` (the page table as of opening) and `blobs/`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};

use crate::store::Error;

/// sled's log.
pub(super) const DB: &str = "db";
const BLOBS: &str = "blobs";
const LOCK: &str = "lock";
const COPY_BYTES: usize = 1 << 20;
/// How long sled's threads may take to let go of its log: 2,500 times 2 ms.
const RELEASE_TRIES: u32 = 2_500;
const RELEASE_PAUSE: Duration = Duration::from_millis(2);

/// Makes an I/O error say what was tried where.
pub(super) fn at(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_path_buf();
    move |why| Error::Io { doing, path, why }
}

/// The data directory, for one process alone.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes it, making the directory if need be. It is given back with the process at the latest.
    pub(super) fn take(path: &Path) -> Result<Self, Error> {
        if !path.exists() {
            fs::create_dir_all(path).map_err(at("making", path))?;
            // Whoever made the parent sees to the parent's own entry.
            path.parent().filter(|parent| !parent.as_os_str().is_empty()).map_or(Ok(()), sync_entry)?;
        }
        let name = path.join(LOCK);
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&name);
        let mut file = open.map_err(at("opening", &name))?;
        if let Err(why) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
            if why != rustix::io::Errno::WOULDBLOCK {
                return Err(at("locking", &name)(why.into()));
            }
            let mut holder = String::new();
            // Only a hint for people: without it they find out otherwise.
            let known = file.read_to_string(&mut holder).is_ok() && !holder.trim().is_empty();
            let holder = if known { format!(" ({})", holder.trim()) } else { String::new() };
            return Err(Error::InUse { path: path.to_path_buf(), holder });
        }
        file.set_len(0).map_err(at("writing", &name))?;
        write!(file, "process {}", std::process::id()).map_err(at("writing", &name))?;
        Ok(Self { _file: file })
    }
}

/// Pages that sled keeps in files of their own. There should be none (see `sled`); if there are, they are synced.
#[derive(Debug)]
pub(super) struct Blobs {
    path: PathBuf,
    changed: SystemTime,
}

impl Blobs {
    pub(super) fn of(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(BLOBS);
        let changed = changed_at(&path)?;
        Ok(Self { path, changed })
    }

    pub(super) fn sync_if_changed(&mut self) -> Result<(), Error> {
        let changed = changed_at(&self.path)?;
        if changed != self.changed {
            self.changed = changed;
            sync_folder(&self.path)?;
        }
        Ok(())
    }
}

fn changed_at(path: &Path) -> Result<SystemTime, Error> {
    fs::metadata(path).and_then(|about| about.modified()).map_err(at("looking at", path))
}

/// Waits until nobody has sled's own lock on its log. Nobody else can: but sled's threads may let go of it a little later
/// than the store that was dropped.
pub(super) fn wait_for_release(folder: &Path) -> Result<(), Error> {
    let path = folder.join(DB);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(why) => return Err(at("opening", &path)(why)),
    };
    let mut left = RELEASE_TRIES;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(why) if why != rustix::io::Errno::WOULDBLOCK || left == 0 => {
                return Err(at("locking", &path)(why.into()));
            }
            Err(_) => std::thread::sleep(RELEASE_PAUSE),
        }
        left -= 1;
    }
}

/// Writes the log's own contents over it, and syncs: after an error nobody knows which of the pages that can be read
/// are on the disk as well.
pub(super) fn rewrite(folder: &Path) -> Result<(), Error> {
    let path = folder.join(DB);
    let file = OpenOptions::new().read(true).write(true).open(&path).map_err(at("opening", &path))?;
    let mut buffer = vec![0; COPY_BYTES];
    let mut offset = 0;
    loop {
        let read = match file.read_at(&mut buffer, offset) {
            Ok(0) => break,
            Ok(read) => read,
            Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
            Err(why) => return Err(at("reading", &path)(why)),
        };
        let bytes = buffer.get(..read).unwrap_or_default();
        file.write_all_at(bytes, offset).map_err(at("rewriting", &path))?;
        offset += read as u64;
    }
    file.sync_all().map_err(at("syncing", &path))?;
    sync_folder(folder)
}

/// Makes a folder, the folders in it, and every file in them durable.
pub(super) fn sync_folder(folder: &Path) -> Result<(), Error> {
    for path in entries(folder)? {
        if path.is_dir() {
            sync_folder(&path)?;
        } else {
            sync_entry(&path)?;
        }
    }
    sync_entry(folder)
}

/// Makes one file, or the list of names in a folder, durable.
pub(super) fn sync_entry(path: &Path) -> Result<(), Error> {
    match File::open(path).and_then(|file| file.sync_all()) {
        // What sled has removed meanwhile needs no syncing.
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
        synced => synced.map_err(at("syncing", path)),
    }
}

/// Removes a folder with everything in it, if it is there.
pub(super) fn remove_folder(path: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(path) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(at("removing", path)),
    }
}

/// Bytes of the files in a folder and those in it.
pub(super) fn bytes(folder: &Path) -> u64 {
    let Ok(paths) = entries(folder) else { return 0 };
    let sizes = paths.into_iter().map(|path| match fs::symlink_metadata(&path) {
        Ok(about) if about.is_dir() => bytes(&path),
        Ok(about) => about.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

/// What is in a folder; nothing, if it is not there.
pub(super) fn entries(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(why) => return Err(at("reading", folder)(why)),
    };
    entries.map(|entry| entry.map(|entry| entry.path()).map_err(at("reading", folder))).collect()
}
