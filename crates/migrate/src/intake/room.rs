//! The memory of an import: bodies of imported jobs leave it for a file, as in a daemon.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use windlass_engine::{Engine, Stored};
use windlass_store::BodyFile;

/// Bytes that leave memory at once.
const STEP_BYTES: u64 = 1 << 20;
/// Looks for bodies without a result, before memory counts as relieved.
const LOOKS_MAX: u32 = 8;

/// Bodies that are not in memory, and when more of them leave it.
#[derive(Debug)]
pub(super) struct Room {
    file: Option<BodyFile>,
    folder: PathBuf,
    /// Bytes that jobs may take.
    memory: u64,
    /// With more bytes than this, bodies leave: they may be packed jobs in the end, which cannot.
    next: u64,
}

impl Room {
    pub(super) fn new(folder: &Path, memory: u64, file: Option<BodyFile>) -> Self {
        Self {
            file,
            folder: folder.to_owned(),
            memory,
            next: memory,
        }
    }

    /// Reads a body.
    pub(super) fn read(&self, stored: Stored) -> io::Result<Bytes> {
        self.file
            .as_ref()
            .ok_or(io::ErrorKind::NotFound)?
            .reader()
            .read(stored)
    }

    /// Moves bodies out of memory, if that is full. Everything that was imported must be on the disk.
    pub(super) fn make(&mut self, engine: &mut Engine) {
        if let Some(file) = &mut self.file {
            engine
                .take_freed()
                .into_iter()
                .for_each(|stored| file.free(stored));
        }
        // An import hands nothing out.
        drop(engine.take_wanted());
        if engine.resident_bytes() <= self.next {
            return;
        }
        let mut looks = 0;
        while engine.resident_bytes() > self.memory && looks < LOOKS_MAX {
            let before = engine.resident_bytes();
            if let Err(error) = self.step(engine) {
                tracing::warn!(%error, "bodies that do not fit into memory cannot be stored: they stay in memory");
                break;
            }
            looks = if engine.resident_bytes() < before {
                0
            } else {
                looks + 1
            };
        }
        self.next = self.memory.max(engine.resident_bytes()) + self.memory / 4;
    }

    fn step(&mut self, engine: &mut Engine) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let folder = if self.folder.is_dir() {
                    self.folder.clone()
                } else {
                    std::env::temp_dir()
                };
                none.insert(BodyFile::create(&folder)?)
            }
        };
        let bodies = engine.cool(STEP_BYTES);
        let (places, written) = file.write_all(bodies.iter().map(|(_, body)| &body[..]));
        for ((job, body), at) in bodies.iter().zip(places) {
            if !engine.set_stored(*job, body, at) {
                Stored::new(at, body)
                    .into_iter()
                    .for_each(|stored| file.free(stored));
            }
        }
        engine.pack(bodies.iter().map(|(job, _)| *job));
        written
    }
}
