//! Opening a store of more bodies than fit into memory: while jobs are read, those that exceed it go to a file.

use std::io;

use windlass_engine::{Job, Stored};

use crate::body_file::{BodyFile, Overflow};

/// What keeps bodies out of memory.
pub(crate) struct Cold {
    overflow: Overflow,
    file: Option<BodyFile>,
    /// Bytes of jobs in memory.
    bytes: u64,
}

impl Cold {
    pub(crate) fn new(overflow: &Overflow) -> Self {
        Self { overflow: overflow.clone(), file: None, bytes: 0 }
    }

    /// The file with the bodies that are stored.
    pub(crate) fn into_file(self) -> Option<BodyFile> {
        self.file
    }

    /// A job comes, in the place of another one, if that is there. Its body goes to the file if memory is full.
    pub(crate) fn replace(&mut self, old: Option<&Job>, new: Option<&mut Job>) {
        if let Some(old) = old {
            match old.payload.stored() {
                Some(stored) => self.file.iter_mut().for_each(|file| file.free(stored)),
                None => self.bytes -= old.weight_bytes(),
            }
        }
        let Some(job) = new else { return };
        self.bytes += job.weight_bytes();
        if self.bytes > self.overflow.memory && job.durable {
            let before = job.weight_bytes();
            match self.store(job) {
                Ok(true) => self.bytes -= before,
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "a body that does not fit into memory cannot be stored"),
            }
        }
    }

    fn store(&mut self, job: &mut Job) -> io::Result<bool> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(BodyFile::create(&self.overflow.folder)?),
        };
        let at = file.write(job.body())?;
        let Some(stored) = Stored::new(at, job.body()) else { return Ok(false) };
        let payload = job.payload.with_stored(stored);
        match payload {
            Some(payload) => job.payload = payload,
            None => file.free(stored),
        }
        Ok(job.payload.stored().is_some())
    }
}
