//! Power cuts of a real process: the changes to files are recorded, and the record gives the directory that a power cut leaves, at
//! any moment.
//!
//! A cut spares everything that was synced. Sectors of 512 bytes, sizes and names that were written later survive or not, at
//! random. Syncing a file covers the bytes, syncing the folder covers the name. So this disk is worse than most file systems, and
//! as bad as POSIX allows.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "this is a test's tool: a panic is how it reports"
)]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::preload::library;
use crate::rng::Rng;

const SECTOR: usize = 512;

/// Bytes of an event without its payload: see `recorder.c`.
const HEAD: usize = 21;

/// Records the changes that processes make below a folder. They are started with a library, for which a C compiler is needed.
#[derive(Debug)]
pub struct Recorder {
    library: PathBuf,
    record: PathBuf,
    root: PathBuf,
    base: State,
    base_root: Option<Id>,
    ids: HashMap<u64, Id>,
}

impl Recorder {
    /// Records below `root`, into a file in `home`. The present contents count as durable.
    ///
    /// # Panics
    /// If there is no C compiler.
    #[must_use]
    pub fn new(home: &Path, root: &Path) -> Self {
        let library = library(home, "recorder", include_str!("recorder.c"));
        let record = home.join("record");
        File::create(&record).expect("create the record");
        let mut base = State::default();
        let mut ids = HashMap::new();
        let base_root = base.read(root, &mut ids);
        Self {
            library,
            record,
            root: root.to_owned(),
            base,
            base_root,
            ids,
        }
    }

    /// The variables that a recorded process needs in its environment.
    #[must_use]
    pub fn variables(&self) -> [(&'static str, &Path); 3] {
        [
            ("LD_PRELOAD", &self.library),
            ("POWER_RECORD", &self.record),
            ("POWER_ROOT", &self.root),
        ]
    }

    /// This moment of the record: system calls that have returned are before it.
    ///
    /// # Panics
    /// If the record is gone.
    #[must_use]
    pub fn now(&self) -> u64 {
        fs::metadata(&self.record).expect("the record").len()
    }

    /// The record, once its processes have ended.
    ///
    /// # Panics
    /// If it cannot be read.
    #[must_use]
    pub fn end(&self) -> Disk {
        let record = fs::read(&self.record).expect("read the record");
        Disk {
            record,
            at: 0,
            events: 0,
            next_id: self.ids.len(),
            ids: self.ids.clone(),
            root: self.base_root,
            durable: self.base.clone(),
            cached: self.base.clone(),
            pending: HashMap::new(),
            syncing: HashMap::new(),
        }
    }
}

/// The place for the folders of such a test: in memory if possible, because the record decides what is durable, not the disk.
#[must_use]
pub fn place() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        memory.to_owned()
    } else {
        std::env::temp_dir()
    }
}

/// Notes a moment in the record of this process, if it is recorded. [`Disk::notes`] finds it.
///
/// # Panics
/// If it cannot be written.
pub fn note(text: &str) {
    let Some(record) = std::env::var_os("POWER_RECORD") else {
        return;
    };
    let mut bytes = vec![b'M'];
    bytes.extend([0; 16]);
    bytes.extend(u32::try_from(text.len()).unwrap_or_default().to_le_bytes());
    bytes.extend(text.as_bytes());
    let file = OpenOptions::new().append(true).open(record);
    file.and_then(|mut file| file.write_all(&bytes))
        .expect("write to the record");
}

/// A file or a folder. Inodes are used again, these numbers are not.
type Id = usize;
type Names = BTreeMap<PathBuf, Id>;

#[derive(Clone, Debug, Default)]
struct State {
    files: HashMap<Id, Vec<u8>>,
    folders: HashMap<Id, Names>,
}

impl State {
    /// Reads everything below a path.
    fn read(&mut self, path: &Path, ids: &mut HashMap<u64, Id>) -> Option<Id> {
        let about = fs::symlink_metadata(path).ok()?;
        let id = ids.len();
        if about.is_dir() {
            ids.insert(about.ino(), id);
            let entries = fs::read_dir(path).ok()?.flatten();
            let mut names = Names::new();
            for entry in entries {
                if let Some(id) = self.read(&entry.path(), ids) {
                    names.insert(entry.file_name().into(), id);
                }
            }
            self.folders.insert(id, names);
        } else if about.is_file() {
            ids.insert(about.ino(), id);
            self.files.insert(id, fs::read(path).ok()?);
        } else {
            return None;
        }
        Some(id)
    }
}

/// A change that is not durable yet.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// These bytes of the record are written at an offset.
    Write {
        at: usize,
        from: usize,
        end: usize,
    },
    Zeros {
        at: usize,
        bytes: usize,
    },
    Size(usize),
}

impl Change {
    /// The bytes that are written; none for a size.
    const fn span(self) -> Range<usize> {
        match self {
            Self::Write { at, from, end } => at..at + end - from,
            Self::Zeros { at, bytes } => at..at + bytes,
            Self::Size(_) => 0..0,
        }
    }
}

/// The disk of a record, as it is at a moment of it.
#[derive(Debug)]
pub struct Disk {
    record: Vec<u8>,
    at: usize,
    events: u64,
    /// Which file has an inode now.
    ids: HashMap<u64, Id>,
    next_id: Id,
    root: Option<Id>,
    durable: State,
    /// As the processes see it.
    cached: State,
    /// Changes of files that are not durable.
    pending: HashMap<Id, Pending>,
    /// Syncs that have begun.
    syncing: HashMap<u64, Syncing>,
}

#[derive(Debug, Default)]
struct Pending {
    before: usize,
    changes: Vec<Change>,
}

#[derive(Debug)]
enum Syncing {
    /// The changes up to this one.
    File(Id, usize),
    Folder(Id, Names),
}

/// The files of a directory with their contents; folders have none.
#[derive(Clone, Debug, Default)]
pub struct Image(BTreeMap<PathBuf, Option<Vec<u8>>>);

/// A note of a recorded process.
#[derive(Clone, Debug)]
pub struct Note {
    /// The number of events before it.
    pub before: u64,
    /// The text.
    pub text: String,
}

/// An event of the record.
struct Event {
    kind: u8,
    inode: u64,
    number: u64,
    payload: Range<usize>,
}

impl Disk {
    /// How many events the whole record has.
    #[must_use]
    pub fn count(&self) -> u64 {
        let mut at = 0;
        let mut count = 0;
        while let Some(event) = self.event(at) {
            at = event.payload.end;
            count += 1;
        }
        count
    }

    /// The moments (numbers of events) at which a folder with this file gets other names, or is synced.
    #[must_use]
    pub fn moments_of(&self, file: &str) -> Vec<u64> {
        let mut at = 0;
        let mut count = 0;
        let mut moments = Vec::new();
        while let Some(event) = self.event(at) {
            let payload = &self.record[event.payload.clone()];
            let mut windows = payload.windows(file.len());
            if event.kind == b'N' && windows.any(|name| name == file.as_bytes()) {
                moments.push(count);
            }
            at = event.payload.end;
            count += 1;
        }
        moments
    }

    /// All notes.
    #[must_use]
    pub fn notes(&self) -> Vec<Note> {
        let mut at = 0;
        let mut count = 0;
        let mut notes = Vec::new();
        while let Some(event) = self.event(at) {
            if event.kind == b'M' {
                let text = String::from_utf8_lossy(&self.record[event.payload.clone()]);
                notes.push(Note {
                    before: count,
                    text: text.into_owned(),
                });
            }
            at = event.payload.end;
            count += 1;
        }
        notes
    }

    /// The present moment, as [`Recorder::now`] has it.
    #[must_use]
    pub fn moment(&self) -> u64 {
        self.at as u64
    }

    /// Goes on until this many events have happened.
    pub fn go_to(&mut self, events: u64) {
        while self.events < events
            && let Some(event) = self.event(self.at)
        {
            self.at = event.payload.end;
            self.events += 1;
            self.happen(&event);
        }
    }

    /// The event at a byte. The last one is not complete if its process was killed.
    fn event(&self, at: usize) -> Option<Event> {
        let head = self.record.get(at..at + HEAD)?;
        let number = |from: usize| {
            let bytes = head[from..from + 8].try_into();
            u64::from_le_bytes(bytes.expect("eight bytes"))
        };
        let length = u32::from_le_bytes(head[17..].try_into().expect("four bytes"));
        let from = at + HEAD;
        let payload = from..from + length as usize;
        self.record.get(payload.clone())?;
        Some(Event {
            kind: head[0],
            inode: number(1),
            number: number(9),
            payload,
        })
    }

    fn happen(&mut self, event: &Event) {
        let at = usize::try_from(event.number).expect("a small file");
        let payload = event.payload.clone();
        if event.kind == b'C' {
            self.ids.insert(event.inode, self.next_id);
            if at == 1 {
                self.cached.folders.insert(self.next_id, Names::new());
            }
            self.next_id += 1;
            return;
        }
        let Some(id) = self.ids.get(&event.inode).copied() else {
            // Nobody saw the file being made, so a start does not need it.
            return;
        };
        match event.kind {
            b'W' => self.change(
                id,
                Change::Write {
                    at,
                    from: payload.start,
                    end: payload.end,
                },
            ),
            b'Z' => {
                let bytes = self.record[payload].try_into().expect("eight bytes");
                let bytes = usize::try_from(u64::from_le_bytes(bytes)).expect("a small file");
                self.change(id, Change::Zeros { at, bytes });
            }
            b'S' if self.cached.files.get(&id).map_or(0, Vec::len) != at => {
                self.change(id, Change::Size(at));
            }
            b'N' => {
                let names = self.names(payload);
                self.cached.folders.insert(id, names);
            }
            b'B' => {
                let sync = match self.cached.folders.get(&id) {
                    Some(names) => Syncing::Folder(id, names.clone()),
                    None => {
                        let pending = self.pending.entry(id).or_default();
                        Syncing::File(id, pending.before + pending.changes.len())
                    }
                };
                self.syncing.insert(event.number, sync);
            }
            b'E' => self.synced(event.number),
            _ => {}
        }
    }

    fn names(&self, payload: Range<usize>) -> Names {
        let mut rest = &self.record[payload];
        let mut names = Names::new();
        while let Some((head, more)) = rest.split_at_checked(11) {
            let inode = u64::from_le_bytes(head[..8].try_into().expect("eight bytes"));
            let length = u16::from_le_bytes(head[9..].try_into().expect("two bytes"));
            let (name, more) = more.split_at(length.into());
            rest = more;
            if let Some(id) = self.ids.get(&inode) {
                names.insert(String::from_utf8_lossy(name).into_owned().into(), *id);
            }
        }
        names
    }

    fn change(&mut self, id: Id, change: Change) {
        apply(
            self.cached.files.entry(id).or_default(),
            change,
            &self.record,
        );
        self.pending.entry(id).or_default().changes.push(change);
    }

    fn synced(&mut self, number: u64) {
        match self.syncing.remove(&number) {
            Some(Syncing::Folder(id, names)) => drop(self.durable.folders.insert(id, names)),
            Some(Syncing::File(id, upto)) => {
                let pending = self.pending.entry(id).or_default();
                // Another sync may have overtaken this one.
                let new = upto.saturating_sub(pending.before);
                let bytes = self.durable.files.entry(id).or_default();
                for change in pending.changes.drain(..new) {
                    apply(bytes, change, &self.record);
                }
                pending.before += new;
            }
            None => {}
        }
    }

    /// The directory that a power cut at this moment leaves.
    #[must_use]
    pub fn cut(&self, rng: &mut Rng) -> Image {
        let mut cut = Cut {
            disk: self,
            luck: Luck::new(rng),
            image: Image::default(),
        };
        if let Some(root) = self.root {
            cut.folder(root, Path::new(""));
        }
        cut.image
    }
}

fn apply(bytes: &mut Vec<u8>, change: Change, record: &[u8]) {
    if let Change::Size(size) = change {
        return bytes.resize(size, 0);
    }
    let changed = change.span();
    if bytes.len() < changed.end {
        bytes.resize(changed.end, 0);
    }
    match change {
        Change::Write { from, end, .. } => bytes[changed].copy_from_slice(&record[from..end]),
        Change::Zeros { .. } | Change::Size(_) => bytes[changed].fill(0),
    }
}

/// Decides which of the last changes survive.
struct Luck<'a> {
    rng: &'a mut Rng,
    chance: u64,
    new_is_likely: bool,
}

impl<'a> Luck<'a> {
    fn new(rng: &'a mut Rng) -> Self {
        let chance = rng.one_of([2, 2, 3, 10, 50, 1_000_000]);
        let new_is_likely = rng.chance(50);
        Self {
            rng,
            chance,
            new_is_likely,
        }
    }

    fn arrives(&mut self) -> bool {
        (self.rng.below(self.chance) == 0) != self.new_is_likely
    }
}

struct Cut<'a> {
    disk: &'a Disk,
    luck: Luck<'a>,
    image: Image,
}

impl Cut<'_> {
    fn folder(&mut self, id: Id, path: &Path) {
        let old = self.disk.durable.folders.get(&id);
        let new = self.disk.cached.folders.get(&id);
        let names: BTreeSet<&PathBuf> = old
            .into_iter()
            .chain(new)
            .flat_map(BTreeMap::keys)
            .collect();
        for name in names {
            let old = old.and_then(|names| names.get(name)).copied();
            let new = new.and_then(|names| names.get(name)).copied();
            let there = if old == new || self.luck.arrives() {
                new
            } else {
                old
            };
            if let Some(id) = there {
                self.entry(id, &path.join(name));
            }
        }
    }

    fn entry(&mut self, id: Id, path: &Path) {
        let disk = self.disk;
        if disk.durable.folders.contains_key(&id) || disk.cached.folders.contains_key(&id) {
            self.image.0.insert(path.to_owned(), None);
            return self.folder(id, path);
        }
        let bytes = self.file(id);
        self.image.0.insert(path.to_owned(), Some(bytes));
    }

    /// A file with some of the last changes: a sector is as it was after one of them, or before all.
    fn file(&mut self, id: Id) -> Vec<u8> {
        let mut there = self
            .disk
            .durable
            .files
            .get(&id)
            .cloned()
            .unwrap_or_default();
        let Some(pending) = self.disk.pending.get(&id) else {
            return there;
        };
        let mut cached = there.clone();
        let mut size = there.len();
        for change in &pending.changes {
            let before = cached.len();
            apply(&mut cached, *change, &self.disk.record);
            if cached.len() != before && self.luck.arrives() {
                size = cached.len();
            }
            there.resize(there.len().max(cached.len()), 0);
            let changed = change.span();
            for sector in changed.start / SECTOR..changed.end.div_ceil(SECTOR) {
                if self.luck.arrives() {
                    let bytes = sector * SECTOR..cached.len().min(sector * SECTOR + SECTOR);
                    there[bytes.clone()].copy_from_slice(&cached[bytes]);
                }
            }
        }
        there.resize(size, 0);
        there
    }
}

impl Image {
    /// Makes a directory of it.
    ///
    /// # Errors
    /// Of the file system.
    pub fn restore(&self, root: &Path) -> io::Result<()> {
        fs::create_dir_all(root)?;
        for (name, bytes) in &self.0 {
            let path = root.join(name);
            let Some(bytes) = bytes else {
                fs::create_dir_all(path)?;
                continue;
            };
            let file = File::create(path)?;
            file.set_len(bytes.len() as u64)?;
            // Most of a log is zeros, which take no time and no room.
            for (at, block) in (0..).step_by(4_096).zip(bytes.chunks(4_096)) {
                if block.iter().any(|byte| *byte != 0) {
                    file.write_all_at(block, at)?;
                }
            }
        }
        Ok(())
    }
}
