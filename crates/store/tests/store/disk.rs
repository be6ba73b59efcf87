//! A disk that forgets: it tracks the durable part of a directory, and produces the state after a power cut.
//!
//! The bytes of a file are durable once it was synced, names once the folder was synced. Each later write to
//! a sector of 512 bytes, a size or a name survives or not, at random.
//!
//! A sync may fail. The bytes of a failed sync can be read until the power fails, and no further sync makes
//! them durable unless they are written again. Linux behaves like this.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use windlass_store::{Step, watch_steps};

use crate::files::Expected;
use crate::rng::Rng;

const SECTOR: usize = 512;

/// The files of a directory with their contents; folders have none.
pub(crate) type Image = BTreeMap<PathBuf, Option<Vec<u8>>>;

/// The directory as it is.
pub(crate) fn image_of(root: &Path) -> Image {
    fn add(root: &Path, folder: &Path, image: &mut Image) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_owned();
            if path.is_dir() {
                image.insert(name, None);
                add(root, &path, image);
            } else {
                image.insert(name, Some(fs::read(&path).unwrap()));
            }
        }
    }
    let mut image = Image::new();
    add(root, root, &mut image);
    image
}

/// Creates a directory from an image.
pub(crate) fn restore(image: &Image, root: &Path) {
    fs::create_dir_all(root).unwrap();
    for (name, bytes) in image {
        let path = root.join(name);
        match bytes {
            Some(bytes) => fs::write(path, bytes).unwrap(),
            None => fs::create_dir_all(path).unwrap(),
        }
    }
}

/// Identifies a file or folder, independent of names.
type Inode = u64;
type Names = BTreeMap<PathBuf, Inode>;

#[derive(Clone, Debug, Default)]
struct State {
    files: HashMap<Inode, Vec<u8>>,
    folders: HashMap<Inode, Names>,
}

impl State {
    /// Reads everything below a folder. Files may disappear in the meantime, and are then ignored.
    fn read(&mut self, path: &Path) -> Option<Inode> {
        let inode = fs::metadata(path).ok()?.ino();
        if path.is_dir() {
            let names = names(path);
            for name in names.keys() {
                self.read(&path.join(name));
            }
            self.folders.insert(inode, names);
        } else {
            self.files.insert(inode, fs::read(path).ok()?);
        }
        Some(inode)
    }
}

fn names(folder: &Path) -> Names {
    let Ok(entries) = fs::read_dir(folder) else {
        return Names::new();
    };
    let entry = |entry: fs::DirEntry| {
        Some((
            PathBuf::from(entry.file_name()),
            entry.metadata().ok()?.ino(),
        ))
    };
    entries.filter_map(|found| entry(found.ok()?)).collect()
}

/// The durable state of a directory.
struct Disk {
    root: PathBuf,
    durable: State,
    /// The state that a sync in progress makes durable.
    begun: State,
    /// Sectors of failed syncs.
    lost: HashMap<Inode, BTreeSet<usize>>,
}

impl Disk {
    /// All present contents are durable.
    fn new(root: &Path) -> Self {
        let mut durable = State::default();
        durable.read(root);
        Self {
            root: root.to_owned(),
            durable,
            begun: State::default(),
            lost: HashMap::new(),
        }
    }

    fn step(&mut self, step: Step, path: &Path) {
        let Ok(about) = fs::metadata(path) else {
            return;
        };
        let inode = about.ino();
        match step {
            Step::Put(from, bytes) => {
                let [first, end] = [from, from + bytes].map(|at| usize::try_from(at).unwrap());
                let sectors = first / SECTOR..end.div_ceil(SECTOR);
                self.lost
                    .get_mut(&inode)
                    .into_iter()
                    .for_each(|lost| lost.retain(|at| !sectors.contains(at)));
            }
            Step::Written => {}
            // Writes by a thread of sled's during the sync are not part of it.
            Step::Syncing if about.is_dir() => drop(self.begun.folders.insert(inode, names(path))),
            Step::Syncing => {
                drop(fs::read(path).map(|bytes| self.begun.files.insert(inode, bytes)))
            }
            Step::Synced => {
                if let Some(mut bytes) = self.begun.files.remove(&inode) {
                    self.without_lost(inode, &mut bytes);
                    self.durable.files.insert(inode, bytes);
                }
                self.begun
                    .folders
                    .remove(&inode)
                    .map(|names| self.durable.folders.insert(inode, names));
            }
        }
    }

    /// Fails the sync in progress.
    fn fail(&mut self, path: &Path, rng: &mut Rng) {
        let Ok(about) = fs::metadata(path) else {
            return;
        };
        let Some(mut bytes) = self.begun.files.remove(&about.ino()) else {
            return;
        };
        let durable = self.durable.files.entry(about.ino()).or_default();
        durable.resize(bytes.len(), 0);
        let differs = |(at, (old, new)): (usize, (&[u8], &[u8]))| (old != new).then_some(at);
        let sectors = durable
            .chunks(SECTOR)
            .zip(bytes.chunks(SECTOR))
            .enumerate()
            .filter_map(differs);
        let lost: Vec<usize> = sectors.filter(|_| !rng.one_in(4)).collect();
        self.lost.entry(about.ino()).or_default().extend(lost);
        self.without_lost(about.ino(), &mut bytes);
        self.durable.files.insert(about.ino(), bytes);
    }

    /// Restores the old bytes of sectors that did not survive.
    fn without_lost(&self, inode: Inode, bytes: &mut [u8]) {
        let Some(old) = self.durable.files.get(&inode) else {
            return;
        };
        for sector in self.lost.get(&inode).into_iter().flatten() {
            let at = sector * SECTOR..bytes.len().min(sector * SECTOR + SECTOR);
            if let (Some(old), Some(new)) = (old.get(at.clone()), bytes.get_mut(at)) {
                new.copy_from_slice(old);
            }
        }
    }

    /// The image that a power cut leaves now.
    fn cut(&self, rng: &mut Rng) -> Image {
        let mut written = State::default();
        let root = written.read(&self.root);
        for (inode, bytes) in &mut written.files {
            self.without_lost(*inode, bytes);
        }
        let mut cut = Cut {
            old: &self.durable,
            new: &written,
            luck: Luck::new(rng),
            image: Image::new(),
        };
        root.into_iter()
            .for_each(|root| cut.folder(root, Path::new("")));
        cut.image
    }
}

/// Decides which of the last writes survive.
struct Luck<'a> {
    rng: &'a mut Rng,
    chance: u64,
    new_is_likely: bool,
}

impl<'a> Luck<'a> {
    fn new(rng: &'a mut Rng) -> Self {
        let (chance, new_is_likely) = (rng.one_of(&[2, 2, 3, 10, 50, 1000]), rng.one_in(2));
        Self {
            rng,
            chance,
            new_is_likely,
        }
    }

    fn arrives(&mut self) -> bool {
        self.rng.one_in(self.chance) != self.new_is_likely
    }
}

struct Cut<'a> {
    old: &'a State,
    new: &'a State,
    luck: Luck<'a>,
    image: Image,
}

impl Cut<'_> {
    fn folder(&mut self, inode: Inode, path: &Path) {
        let (old, new) = (self.old.folders.get(&inode), self.new.folders.get(&inode));
        let names: BTreeSet<&PathBuf> = old
            .into_iter()
            .chain(new)
            .flat_map(BTreeMap::keys)
            .collect();
        for name in names {
            let [old, new] =
                [old, new].map(|names| names.and_then(|names| names.get(name)).copied());
            let inode = if old == new || self.luck.arrives() {
                new
            } else {
                old
            };
            inode
                .into_iter()
                .for_each(|inode| self.entry(inode, &path.join(name)));
        }
    }

    fn entry(&mut self, inode: Inode, path: &Path) {
        if self.old.folders.contains_key(&inode) || self.new.folders.contains_key(&inode) {
            self.image.insert(path.to_owned(), None);
            return self.folder(inode, path);
        }
        let nothing = Vec::new();
        let old = self.old.files.get(&inode);
        let bytes = match (old, self.new.files.get(&inode)) {
            (old, Some(new)) => self.mix(old.unwrap_or(&nothing), new),
            // It has no name now, so the last writes to it cannot be seen.
            (old, None) => old.unwrap_or(&nothing).clone(),
        };
        self.image.insert(path.to_owned(), Some(bytes));
    }

    fn mix(&mut self, old: &[u8], new: &[u8]) -> Vec<u8> {
        let len = if old.len() == new.len() || self.luck.arrives() {
            new.len()
        } else {
            old.len()
        };
        let mut bytes = old.to_vec();
        // Unwritten bytes read as zeros.
        bytes.resize(len, 0);
        for (at, sector) in (0..).step_by(SECTOR).zip(new.chunks(SECTOR)) {
            let Some(state) = bytes.get_mut(at..len.min(at + sector.len())) else {
                break;
            };
            let sector = sector.split_at(state.len()).0;
            if state != sector && self.luck.arrives() {
                state.copy_from_slice(sector);
            }
        }
        bytes
    }
}

/// Watches a directory. At random steps it stores the image after a power cut, with the expected state.
pub(crate) struct Watcher {
    state: Rc<RefCell<Watching>>,
}

struct Watching {
    disk: Disk,
    rng: Rng,
    one_in: u64,
    expected: Expected,
    cuts: Vec<(Image, Expected)>,
    steps: u64,
    /// The rate of failing syncs of the log or the table (1/n).
    failing: Option<u64>,
    failed: u64,
}

impl Watcher {
    /// Starts watching this thread's steps. The power is cut at one in `one_in` steps.
    pub(crate) fn new(root: &Path, rng: Rng, one_in: u64, expected: Expected) -> Self {
        let watching = Watching {
            disk: Disk::new(root),
            rng,
            one_in,
            expected,
            cuts: Vec::new(),
            steps: 0,
            failing: None,
            failed: 0,
        };
        let state = Rc::new(RefCell::new(watching));
        let seen = Rc::clone(&state);
        watch_steps(Some(Box::new(move |step, path| {
            seen.borrow_mut().step(step, path)
        })));
        Self { state }
    }

    /// Sets the expected state after later cuts.
    pub(crate) fn expect(&self, expected: Expected) {
        self.state.borrow_mut().expected = expected;
    }

    /// Lets one in `one_in` syncs of the log or the table fail.
    pub(crate) fn fail_syncs(&self, one_in: Option<u64>) {
        self.state.borrow_mut().failing = one_in;
    }

    /// Number of failed syncs.
    pub(crate) fn failed_syncs(&self) -> u64 {
        self.state.borrow().failed
    }

    /// Ends the watch. Returns the images of all cuts.
    pub(crate) fn end(self) -> Vec<(Image, Expected)> {
        watch_steps(None);
        std::mem::take(&mut self.state.borrow_mut().cuts)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        watch_steps(None);
    }
}

impl Watching {
    fn step(&mut self, step: Step, path: &Path) -> io::Result<()> {
        self.disk.step(step, path);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let may_fail = step == Step::Syncing && (name == "db" || name.starts_with("segment-"));
        let fails = may_fail && self.failing.is_some_and(|one_in| self.rng.one_in(one_in));
        if fails {
            self.disk.fail(path, &mut self.rng);
            self.failed += 1;
        }
        self.steps += 1;
        if self.rng.one_in(self.one_in) {
            let image = self.disk.cut(&mut self.rng);
            self.cuts.push((image, self.expected.clone()));
        }
        if fails {
            Err(io::Error::other("a random sync failure"))
        } else {
            Ok(())
        }
    }
}
