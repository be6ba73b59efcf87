//! Data directories with a log and a table, and damage to their files.
#![allow(
    dead_code,
    reason = "each target that includes this needs a part of it"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::iter;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use arbitrary::Arbitrary;
use bytes::Bytes;
use tempfile::TempDir;
use windlass_engine::{
    ClientCommand, ClientId, ClientInfo, Command, Context, JobCommand, JobId, JobRef, Limits,
    NewJob, Protocol, Tag, Timestamp,
};
use windlass_store::{Opened, Recovered, StoreConfig, StoreLimits, open};
use windlass_table_sled::SledTables;
use windlass_testkit::store::Fingerprint;

#[derive(Arbitrary, Debug)]
pub struct Input {
    /// Selects the directory.
    directory: u8,
    /// At least one, and few: with many changes one of them always dominates.
    first: Change,
    more: Vec<Change>,
}

/// Changes that count besides the first.
const MORE_MAX: usize = 2;

/// A change to a file. Positions count only its part up to the trailing blanks.
#[derive(Arbitrary, Debug)]
enum Change {
    Byte {
        file: u8,
        at: u32,
        bits: u8,
    },
    Put {
        file: u8,
        at: u32,
        bytes: Vec<u8>,
    },
    Blank {
        file: u8,
        at: u32,
        len: u16,
    },
    /// A part of a file is copied to another position.
    Copy {
        file: u8,
        from: u32,
        to: u32,
        len: u16,
    },
    Cut {
        file: u8,
        at: u32,
    },
    Remove {
        file: u8,
    },
    Swap {
        file: u8,
        other: u8,
    },
}

/// A file: its length, and its bytes without trailing blanks.
#[derive(Clone, PartialEq, Debug)]
struct Contents {
    len: u64,
    used: Vec<u8>,
}

/// A directory at the end of a run.
pub struct Directory {
    folders: Vec<PathBuf>,
    files: BTreeMap<PathBuf, Contents>,
    pub acknowledged: Fingerprint,
    /// All bodies that the job of each number ever had.
    pub bodies: BTreeMap<JobId, Vec<Vec<u8>>>,
}

pub fn limits() -> Limits {
    Limits {
        queues_max: 1_000,
        ..Limits::default()
    }
}

pub fn config(path: PathBuf) -> StoreConfig {
    let mut config = StoreConfig::new(
        path,
        SledTables {
            segment_bytes: 2 << 20,
            ..SledTables::default()
        },
    );
    config.segment_bytes = 4 << 10;
    config.checkpoints = StoreLimits {
        log_bytes: 1,
        keep_bytes: 500,
        table_floor_bytes: 10_000,
        table_multiple: 2,
        overflow: None,
        keep_from: None,
    };
    config
}

fn home() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        tempfile::tempdir_in(memory)
    } else {
        tempfile::tempdir()
    }
    .expect("a folder")
}

/// One of a few directories, each with another history, with some damage. An input's changes fit its directory alone.
pub fn damaged(input: &Input) -> (&'static Directory, TempDir, StoreConfig) {
    static DIRECTORIES: OnceLock<Vec<Directory>> = OnceLock::new();
    let all = DIRECTORIES.get_or_init(|| (0..8).map(Directory::make).collect());
    let directory = &all[usize::from(input.directory) % all.len()];
    let home = home();
    let config = config(home.path().join("data"));
    let mut files = directory.files.clone();
    let changes = iter::once(&input.first).chain(input.more.iter().take(MORE_MAX));
    changes.for_each(|change| damage(change, &mut files));
    for folder in &directory.folders {
        fs::create_dir_all(config.path.join(folder)).expect("a folder");
    }
    for (name, contents) in &files {
        let file = File::create(config.path.join(name)).expect("a file");
        file.set_len(contents.len)
            .and_then(|()| file.write_all_at(&contents.used, 0))
            .expect("room");
    }
    (directory, home, config)
}

impl Directory {
    /// Pushes, changes and cancels jobs, with a commit after each and a checkpoint after some.
    fn make(kind: u64) -> Self {
        let home = home();
        let config = config(home.path().join("data"));
        let opened = open(&config, limits(), 1).expect("an empty store");
        let Opened {
            mut log,
            mut checkpointer,
            recovered,
            guard,
        } = opened;
        let Recovered {
            mut engine,
            mut journal,
            ..
        } = recovered;
        let mut context = Context::new(Timestamp(1_000), 1);
        engine.apply(
            ClientId(1),
            Tag::NONE,
            ClientCommand::Open(ClientInfo::default()),
            &mut context,
        );
        let mut bodies: BTreeMap<JobId, Vec<Vec<u8>>> = BTreeMap::new();
        for n in 0..12 + 8 * kind {
            context.changes.clear();
            let body = vec![n as u8; 40 + (n as usize * 397) % 3_000];
            let old = JobId(1 + n * 5 % 17);
            let command = match n % 4 {
                0 | 1 => {
                    bodies
                        .entry(JobId(engine.meta().next_job))
                        .or_default()
                        .push(body.clone());
                    let job = NewJob::new(
                        Protocol::GEARMAN,
                        Bytes::from_static(b"q"),
                        Bytes::from(body),
                    );
                    Command::Job(JobCommand::Push(Box::new(job)))
                }
                2 => {
                    bodies.entry(old).or_default().push(body.clone());
                    Command::Job(JobCommand::Replace {
                        job: JobRef::Id(old),
                        body: Bytes::from(body),
                    })
                }
                _ => Command::Job(JobCommand::Cancel(JobRef::Id(old))),
            };
            engine.apply(ClientId(1), Tag::NONE, command, &mut context);
            journal.append(&engine, &context.changes);
            while let Some(commit) = journal.cut(&engine) {
                log.append(&commit).expect("room");
                journal.committed(commit.seq());
            }
            if n % 7 == kind % 7 {
                checkpointer.run(n % 2 == 0).expect("room");
            }
        }
        if kind % 2 == 0 {
            log.close().expect("room");
        }
        if kind % 4 == 3 {
            checkpointer.run(true).expect("room");
        }
        let acknowledged = Fingerprint::of(&engine);
        drop((log, checkpointer, guard));
        let (mut folders, mut files) = (Vec::new(), BTreeMap::new());
        read(&config.path, &config.path, &mut folders, &mut files);
        Self {
            folders,
            files,
            acknowledged,
            bodies,
        }
    }
}

/// Reads the contents of a directory.
fn read(
    root: &Path,
    folder: &Path,
    folders: &mut Vec<PathBuf>,
    files: &mut BTreeMap<PathBuf, Contents>,
) {
    for path in fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("a name").path())
    {
        let name = path.strip_prefix(root).expect("it is below").to_owned();
        if path.is_dir() {
            folders.push(name);
            read(root, &path, folders, files);
        } else {
            let mut used = fs::read(&path).expect("a file");
            let len = used.len() as u64;
            used.truncate(
                used.iter()
                    .rposition(|byte| *byte != 0)
                    .map_or(0, |last| last + 1),
            );
            files.insert(name, Contents { len, used });
        }
    }
}

/// The files of a directory, to detect changes.
pub fn contents(config: &StoreConfig) -> impl PartialEq {
    let (mut folders, mut files) = (Vec::new(), BTreeMap::new());
    read(&config.path, &config.path, &mut folders, &mut files);
    (folders.into_iter().collect::<BTreeSet<_>>(), files)
}

fn damage(change: &Change, files: &mut BTreeMap<PathBuf, Contents>) {
    // The lock holds no jobs, and is lost only with the whole directory.
    let names: Vec<PathBuf> = files
        .keys()
        .filter(|name| name.starts_with("store"))
        .cloned()
        .collect();
    let name = |file: u8| names.get(usize::from(file) % names.len().max(1));
    let (Change::Byte { file, .. }
    | Change::Put { file, .. }
    | Change::Blank { file, .. }
    | Change::Copy { file, .. }
    | Change::Cut { file, .. }
    | Change::Remove { file }
    | Change::Swap { file, .. }) = change;
    let Some(first) = name(*file) else { return };
    if let Change::Swap { other, .. } = change {
        let Some(second) = name(*other) else { return };
        let (one, two) = (files[first].clone(), files[second].clone());
        files.extend([(first.clone(), two), (second.clone(), one)]);
        return;
    }
    let Some(Contents { len, used }) = files.get_mut(first) else {
        return;
    };
    let place = |at: u32| at as usize % used.len().max(1);
    match change {
        Change::Byte { at, bits, .. } => {
            let at = place(*at);
            used.get_mut(at).into_iter().for_each(|byte| *byte ^= bits);
        }
        Change::Put { at, bytes, .. } => {
            let at = place(*at);
            used.iter_mut()
                .skip(at)
                .zip(bytes)
                .for_each(|(byte, new)| *byte = *new);
        }
        Change::Blank { at, len, .. } => {
            let at = place(*at);
            used.iter_mut()
                .skip(at)
                .take(usize::from(*len))
                .for_each(|byte| *byte = 0);
        }
        Change::Copy { from, to, len, .. } => {
            let (from, to) = (place(*from), place(*to));
            let len = usize::from(*len).min(used.len() - from.max(to));
            used.copy_within(from..from + len, to);
        }
        Change::Cut { at, .. } => {
            let at = place(*at);
            used.truncate(at);
            *len = at as u64;
        }
        Change::Remove { .. } => drop(files.remove(first)),
        Change::Swap { .. } => {}
    }
}
