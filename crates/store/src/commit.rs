//! A commit: the records of a write to the log.
//!
//! It is taken from the journal with the engine's lock held and written without the lock. The bytes are
//! already in the log's format, so that nothing is copied on the way; large bodies are shared with the engine
//! until then.

use std::ops::Range;

use bytes::Bytes;
use windlass_engine::{QueueId, Stored};

use crate::record::Tail;

/// The records that become durable together. A commit that fails is written again unchanged.
#[derive(Clone, Debug, Default)]
pub struct Commit {
    pub(crate) seq: u64,
    /// The records without large tails, each preceded by the length of the full record.
    pub(crate) arena: Vec<u8>,
    /// The valid parts of the arena, in order. Most commits have one.
    pub(crate) runs: Vec<Run>,
    /// Bytes of the records.
    pub(crate) bytes: u64,
    /// The queues of jobs that are written in full.
    pub(crate) queues: Vec<QueueId>,
    /// The records of queues in this commit, by number; `None`: the queue was deleted.
    pub(crate) settings: Vec<(QueueId, Option<Box<[u8]>>)>,
}

/// Bytes of the arena, and the tail of the last record in them, if it was too large to copy.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) range: Range<usize>,
    pub(crate) tail: Option<Box<Tail>>,
}

impl Commit {
    /// The number. Commits are numbered consecutively over the life of the data directory.
    pub const fn seq(&self) -> u64 {
        self.seq
    }

    /// Bytes of the records.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads the bodies that are not in memory. A commit with such bodies cannot be written before this call.
    /// If a body cannot be read, only the changing part of the job is written, provided that a previous
    /// commit has the job.
    ///
    /// # Errors
    ///
    /// An error of `read` about a job that no previous commit has. The bodies that were read are retained.
    pub fn load<E>(&mut self, mut read: impl FnMut(Stored) -> Result<Bytes, E>) -> Result<(), E> {
        let mut moved = Vec::new();
        for run in &mut self.runs {
            let Some(tail) = run.tail.as_deref_mut() else {
                continue;
            };
            let Some(stored) = tail.stored else { continue };
            match read(stored) {
                Ok(body) => (tail.body, tail.stored) = (body, None),
                Err(why) if tail.moved.is_empty() => return Err(why),
                Err(_) => {
                    self.bytes -= (tail.inline + tail.len()) as u64;
                    run.range.end -= tail.inline;
                    moved.append(&mut run.tail.take().unwrap_or_default().framed_moved());
                }
            }
        }
        if !moved.is_empty() {
            let begin = self.arena.len();
            self.arena.append(&mut moved);
            self.bytes += (self.arena.len() - begin) as u64;
            self.runs.push(Run {
                range: begin..self.arena.len(),
                tail: None,
            });
        }
        Ok(())
    }

    /// The entry for a queue.
    pub(crate) fn settings_of(&self, queue: QueueId) -> Option<&(QueueId, Option<Box<[u8]>>)> {
        let at = self
            .settings
            .binary_search_by_key(&queue, |(queue, _)| *queue)
            .ok()?;
        self.settings.get(at)
    }

    /// The records, each preceded by the length, in parts: the contents of the log's entry.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.runs.iter().flat_map(|Run { range, tail }| {
            let inline = self.arena.get(range.clone()).unwrap_or_default();
            let shared = tail.as_deref().map_or(&[][..], |tail| &tail.body);
            [inline, shared].into_iter().filter(|part| !part.is_empty())
        })
    }

    /// The records, each preceded by the length, in one piece.
    pub fn records(&self) -> Vec<u8> {
        self.parts().collect::<Vec<_>>().concat()
    }
}
