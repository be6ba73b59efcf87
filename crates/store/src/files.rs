//! Files and folders with the right permissions, and making them durable. Also used by a table in
//! files.

use std::cell::RefCell;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek as _, Write};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use rustix::io::Errno;

use crate::store::Error;

/// Only the owner may read jobs.
pub const FILE_MODE: u32 = 0o600;
/// The same for folders.
pub const FOLDER_MODE: u32 = 0o700;
const LOCK: &str = "lock";
/// Line of the lock file once a store has existed, so that a missing store is detected. The number is the
/// version of the store's format.
const HAD_STORE: &str = "store 2";
/// The first line of the lock file of version 1.
const OF_VERSION_1: &str = "store\n";
/// Prefix of the line that names the holding process.
const PROCESS: &str = "process ";

/// Receives each step with the file or folder, in a test. A sync that is about to start fails with the
/// returned error.
pub type Watch = Box<dyn FnMut(Step, &Path) -> io::Result<()>>;

/// A step after which a test may cut the power.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Bytes of a file were written: offset and length.
    Put(u64, u64),
    /// A write is complete.
    Written,
    /// A file, or the list of names in a folder, is about to be made durable.
    Syncing,
    /// A file, or the list of names in a folder, was made durable.
    Synced,
}

thread_local! {
    static WATCH: RefCell<Option<Watch>> = const { RefCell::new(None) };
}

/// For tests: reports all further steps of this thread.
#[doc(hidden)]
pub fn watch_steps(watch: Option<Watch>) {
    WATCH.set(watch);
}

/// Reports a step to a test.
pub(crate) fn step(step: Step, path: &Path) {
    // A test can only make a sync fail.
    let _ = show(step, path);
}

fn show(step: Step, path: &Path) -> io::Result<()> {
    WATCH.with_borrow_mut(|watch| watch.as_mut().map_or(Ok(()), |watch| watch(step, path)))
}

/// Makes a file, or the list of names in a folder, durable.
pub(crate) fn sync(file: &File, path: &Path) -> Result<(), Error> {
    show(Step::Syncing, path)
        .and_then(|()| file.sync_all())
        .map_err(at("syncing", path))?;
    step(Step::Synced, path);
    Ok(())
}

/// Makes a file's contents durable, with the metadata needed to read them.
pub fn sync_data(file: &File, path: &Path) -> Result<(), Error> {
    show(Step::Syncing, path)
        .and_then(|()| file.sync_data())
        .map_err(at("syncing", path))?;
    step(Step::Synced, path);
    Ok(())
}

/// Renames a file or a folder.
pub fn rename(from: &Path, to: &Path) -> Result<(), Error> {
    fs::rename(from, to).map_err(at("naming", to))?;
    step(Step::Written, to);
    Ok(())
}

/// Swaps the names of two files or folders, atomically. Returns `true` if the file system supports that.
pub(crate) fn exchange(one: &Path, other: &Path) -> Result<bool, Error> {
    match renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE) {
        Ok(()) => {
            step(Step::Written, other);
            Ok(true)
        }
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(false),
        Err(why) => Err(at("naming", other)(why.into())),
    }
}

/// Adds the attempted operation and the path to an I/O error.
pub fn at(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |why| Error::Io {
        doing,
        place: path.display().to_string(),
        why,
    }
}

/// The data directory, locked by this process: the directory itself, which cannot be removed like the lock
/// file, and the lock file, because older versions lock only that.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
    name: PathBuf,
    had_store: bool,
    _folder: File,
}

/// The data directory, held for reading.
#[derive(Debug, Default)]
pub(crate) struct Look {
    /// True if a store has existed in this directory.
    pub(crate) had_store: bool,
    _held: Vec<File>,
}

impl Lock {
    /// Locks the directory, and creates it if needed. The lock is released when the process ends at
    /// the latest.
    pub(crate) fn take(path: &Path) -> Result<Self, Error> {
        if !path.exists() {
            make_folder(path)?;
            // The creator of the parent makes the parent's directory entry durable.
            path.parent()
                .filter(|parent| !parent.as_os_str().is_empty())
                .map_or(Ok(()), sync_entry)?;
        }
        let name = path.join(LOCK);
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE);
        let mut file = options.open(&name).map_err(at("opening", &name))?;
        let text = lock(&mut file, path, &name)?;
        let had_store = has_store(&text, path)?;
        let folder = lock_folder(path)?;
        let mut lock = Self {
            file,
            name,
            had_store,
            _folder: folder,
        };
        lock.write(had_store)?;
        Ok(lock)
    }

    /// Locks the directory for reading: nothing is created or written.
    pub(crate) fn look(path: &Path) -> Result<Look, Error> {
        if !path.exists() {
            return Ok(Look::default());
        }
        let name = path.join(LOCK);
        match File::open(&name) {
            Ok(mut file) => {
                let had_store = has_store(&lock(&mut file, path, &name)?, path)?;
                Ok(Look {
                    had_store,
                    _held: vec![file, lock_folder(path)?],
                })
            }
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(Look {
                had_store: false,
                _held: vec![lock_folder(path)?],
            }),
            Err(why) => Err(at("opening", &name)(why)),
        }
    }

    /// Returns true if a store has existed in this directory.
    pub(crate) const fn had_store(&self) -> bool {
        self.had_store
    }

    /// Records that a store now exists.
    pub(crate) fn has_store(&mut self) -> Result<(), Error> {
        if !self.had_store {
            self.write(true)?;
            self.had_store = true;
            sync(&self.file, &self.name)?;
        }
        Ok(())
    }

    fn write(&mut self, has_store: bool) -> Result<(), Error> {
        // The line that must survive is first, so it is intact even if only a part of the file is written.
        let store = if has_store {
            format!("{HAD_STORE}\n")
        } else {
            String::new()
        };
        let text = format!("{store}{PROCESS}{}\n", std::process::id());
        let written = self
            .file
            .rewind()
            .and_then(|()| self.file.write_all(text.as_bytes()));
        written
            .and_then(|()| self.file.set_len(text.len() as u64))
            .map_err(at("writing", &self.name))
    }
}

/// Returns true if a lock file records a store. A lock file of version 1 is refused, because the store would
/// otherwise be reported as damaged. A line that no program writes is ignored, because a damaged lock file
/// must not make an intact store unusable.
fn has_store(text: &str, path: &Path) -> Result<bool, Error> {
    if text.starts_with(OF_VERSION_1) {
        return Err(Error::Refused {
            place: path.display().to_string(),
            why: other_format(1),
        });
    }
    Ok(text.lines().any(|line| line == HAD_STORE))
}

/// The reason for refusing a store of another format.
pub fn other_format(version: i32) -> String {
    format!(
        "the store has format {version}, and this program has format 2: export it with the program that wrote it (windlass \
         export), and import the file with this one (windlass import jsonl)"
    )
}

/// Locks the file and reads it.
fn lock(file: &mut File, path: &Path, name: &Path) -> Result<String, Error> {
    let locked = flock(&*file, FlockOperation::NonBlockingLockExclusive);
    // Only a hint for operators.
    let mut text = String::new();
    let known = file.read_to_string(&mut text).is_ok();
    match locked {
        Ok(()) => Ok(text),
        Err(Errno::WOULDBLOCK) => {
            let holder = text.lines().find(|line| known && line.starts_with(PROCESS));
            let holder = holder.map(|line| format!(" ({line})")).unwrap_or_default();
            Err(Error::InUse {
                place: path.display().to_string(),
                holder,
            })
        }
        Err(why) => Err(at("locking", name)(why.into())),
    }
}

/// Locks a folder itself. A network file system that locks files only leaves it at the lock file.
fn lock_folder(path: &Path) -> Result<File, Error> {
    let folder = File::open(path).map_err(at("opening", path))?;
    match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(Error::InUse {
            place: path.display().to_string(),
            holder: String::new(),
        }),
        Ok(()) | Err(_) => Ok(folder),
    }
}

/// The identity of a folder, to detect another folder with the same path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Identity(u64, u64);

impl Identity {
    pub(crate) fn of(folder: &Path) -> Result<Self, Error> {
        let about = fs::metadata(folder).map_err(at("looking for", folder))?;
        Ok(Self(about.dev(), about.ino()))
    }

    /// Fails if the folder was removed or replaced.
    pub(crate) fn is_at(self, folder: &Path) -> Result<(), Error> {
        if Self::of(folder)? == self {
            return Ok(());
        }
        let why =
            io::Error::other("another directory has taken its place under the running daemon");
        Err(at("looking for", folder)(why))
    }
}

/// Creates a folder and all parents, accessible only to the owner.
pub fn make_folder(path: &Path) -> Result<(), Error> {
    DirBuilder::new()
        .recursive(true)
        .mode(FOLDER_MODE)
        .create(path)
        .map_err(at("making", path))
}

/// Makes a folder, the folders in it, and every file in them durable.
pub fn sync_folder(folder: &Path) -> Result<(), Error> {
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
pub fn sync_entry(path: &Path) -> Result<(), Error> {
    sync(&File::open(path).map_err(at("syncing", path))?, path)
}

/// Removes a folder with the contents, if it exists.
pub fn remove_folder(path: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(path) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => {
            step(Step::Written, path);
            removed.map_err(at("removing", path))
        }
    }
}

/// Bytes of the files in a folder and subfolders.
pub fn bytes(folder: &Path) -> u64 {
    let Ok(paths) = entries(folder) else { return 0 };
    let sizes = paths
        .into_iter()
        .map(|path| match fs::symlink_metadata(&path) {
            Ok(about) if about.is_dir() => bytes(&path),
            Ok(about) => about.len(),
            Err(_) => 0,
        });
    sizes.sum()
}

/// The contents of a folder; empty if the folder does not exist.
pub fn entries(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(why) => return Err(at("reading", folder)(why)),
    };
    entries
        .map(|entry| {
            entry
                .map(|entry| entry.path())
                .map_err(at("reading", folder))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn a_folder_that_does_not_exist_is_empty() {
        let home = tempfile::tempdir().unwrap();
        let [none, folder, file] =
            ["none", "folder", "folder/file"].map(|name| home.path().join(name));
        assert_eq!((entries(&none).unwrap(), bytes(&none)), (Vec::new(), 0));
        remove_folder(&none).unwrap();
        make_folder(&folder).unwrap();
        fs::write(&file, [0; 300]).unwrap();
        make_folder(&folder.join("below")).unwrap();
        fs::write(folder.join("below/file"), [0; 20]).unwrap();
        assert_eq!((entries(&folder).unwrap().len(), bytes(&folder)), (2, 320));
        assert!(entries(&file).is_err(), "a file is no folder");
        assert!(remove_folder(&file).is_err());
        sync_folder(&folder).unwrap();
        remove_folder(&folder).unwrap();
        assert!(!folder.exists());
    }

    #[test]
    fn a_new_directory_is_made_durable_in_its_parent() {
        let synced = |path: &Path| {
            let synced = Rc::new(RefCell::new(Vec::new()));
            let seen = Rc::clone(&synced);
            watch_steps(Some(Box::new(move |step, path| {
                seen.borrow_mut()
                    .extend((step == Step::Synced).then(|| path.to_owned()));
                Ok(())
            })));
            Lock::take(path).unwrap();
            watch_steps(None);
            synced.take()
        };
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("data");
        assert_eq!(synced(&path), [home.path()]);
        assert_eq!(synced(&path), Vec::<PathBuf>::new(), "it exists");
    }

    #[test]
    fn a_directory_is_held_without_its_lock_file() {
        let home = tempfile::tempdir().unwrap();
        let in_use = |outcome: Result<(), Error>| matches!(outcome, Err(Error::InUse { .. }));
        let held = Lock::take(home.path()).unwrap();
        for state in ["with its lock file", "after it was removed"] {
            assert!(in_use(Lock::look(home.path()).map(drop)), "{state}");
            assert!(in_use(Lock::take(home.path()).map(drop)), "{state}");
            fs::remove_file(home.path().join(LOCK)).unwrap();
        }
        drop(held);
        let looking = Lock::look(home.path()).unwrap();
        assert!(
            in_use(Lock::take(home.path()).map(drop)),
            "while another process reads it"
        );
        drop(looking);
        Lock::take(home.path()).unwrap();
    }

    #[test]
    fn a_lock_that_cannot_be_read_is_not_a_missing_one() {
        let home = tempfile::tempdir().unwrap();
        assert!(!Lock::look(home.path()).unwrap().had_store);
        assert!(!Lock::look(&home.path().join("none")).unwrap().had_store);
        let file = home.path().join("file");
        fs::write(&file, []).unwrap();
        assert!(Lock::look(&file).is_err(), "a file is no directory");
    }
}
