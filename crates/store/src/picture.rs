//! The contents of a store at a commit, read while the store is in use.
//!
//! A picture is the table after a checkpoint of everything. Creating it does not use the engine or the
//! engine's lock, and reading it delays no commit and no checkpoint: while a picture of a table is being
//! read, the next checkpoint leaves that table unmodified and builds a new one. Memory: the names of queues,
//! a single record, and the memory of a table scan.

use std::io::{self, Write};
use std::sync::Arc;

use crate::export::{About, Exported, Lines, Shown};
use crate::load::{Loaded, load};
use crate::page::Point;
use crate::record::Record;
use crate::store::{Error, Scan};
use windlass_codec::{DecodeError, Reader};

/// The contents of a store at one commit.
pub struct Picture {
    pub(crate) scan: Box<dyn Scan>,
    pub(crate) point: Point,
    /// While it exists, checkpoints do not modify the table.
    pub(crate) _pin: Arc<()>,
}

/// Why a picture was not written completely.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] Error),
    /// Writing the lines failed.
    #[error("cannot write the export: {0}")]
    Writer(#[source] io::Error),
}

impl Picture {
    /// The last commit that is included.
    pub const fn commit(&self) -> u64 {
        self.point.seq
    }

    /// Writes everything as lines of JSON, as [`crate::Salvage::export`] does.
    ///
    /// # Errors
    ///
    /// The table is damaged or cannot be read, or the lines cannot be written. The last line is then missing.
    pub fn export(&self, about: About<'_>, to: &mut dyn Write) -> Result<Exported, ExportError> {
        let shown = Shown {
            commit: self.point.seq,
            records: self.point.records,
            whole: true,
        };
        let lines = Lines::begin(to, about, shown).map_err(ExportError::Writer)?;
        let mut entities = Entities { lines, open: None };
        let mut failed = None;
        let loaded = load(&*self.scan, 0, &mut |record, _| {
            let record = Record::decode(&mut Reader::new(record))?;
            entities.take(record).map_err(|why| {
                failed = Some(why);
                // Stop reading.
                DecodeError::Short
            })
        })?;
        if let Some(why) = failed {
            return Err(ExportError::Writer(why));
        }
        match loaded {
            Loaded::Whole(point) if point.seq == self.point.seq => {
                entities.end().map_err(ExportError::Writer)
            }
            Loaded::Whole(point) => Err(damaged(format!("it is at commit {} now", point.seq))),
            Loaded::Damaged(what) => Err(damaged(what)),
            Loaded::None => Err(damaged("it is missing".to_owned())),
        }
    }
}

fn damaged(what: String) -> ExportError {
    Error::damaged("table", what).into()
}

/// Combines the records of each entity: the full record, and the part that changed since.
struct Entities<'a> {
    lines: Lines<'a>,
    open: Option<Record>,
}

impl Entities<'_> {
    fn take(&mut self, record: Record) -> io::Result<()> {
        match (record, &mut self.open) {
            (Record::Moved(moved), Some(Record::Put(job))) if moved.job == job.id => {
                moved.apply(job)
            }
            (Record::NextRun(next), Some(Record::Schedule(schedule)))
                if next.schedule == schedule.id =>
            {
                next.apply(schedule);
            }
            (Record::BatchMoved(moved), Some(Record::Batch(batch))) if moved.batch == batch.id => {
                batch.progress = moved.progress;
            }
            // The changed part of a deleted entity may still exist: it has no line.
            (record, open) => {
                let before = open.replace(record);
                before.map_or(Ok(()), |before| self.lines.put(before))?;
            }
        }
        Ok(())
    }

    fn end(mut self) -> io::Result<Exported> {
        self.open
            .take()
            .map_or(Ok(()), |last| self.lines.put(last))?;
        self.lines.end()
    }
}

#[cfg(test)]
mod tests {
    use windlass_engine::{
        Batch, BatchProgress, JobId, NewJob, Protocol, Recurrence, Schedule, Timestamp,
    };

    use super::*;
    use crate::memory::MemoryTable;
    use crate::page::POINT_KEY;
    use crate::record::{BatchMoved, NextRun, encode_moved, plain_job};
    use crate::store::Table as _;

    #[test]
    fn a_picture_is_written_only_of_its_own_commit() {
        let about = About {
            daemon: "0.1.0",
            written_at: Timestamp(1),
            namespace: None,
        };
        for (seq, expected) in [
            (5, None),
            (6, Some("table is damaged: it is at commit 6 now")),
        ] {
            let point = Point {
                seq,
                ..Point::start(1)
            };
            let scan = MemoryTable::with([(POINT_KEY.to_vec(), point.encode())].into())
                .scan()
                .unwrap();
            let picture = Picture {
                scan,
                point: Point { seq: 5, ..point },
                _pin: Arc::default(),
            };
            let mut out = Vec::new();
            let why = picture
                .export(about, &mut out)
                .map_err(|why| why.to_string())
                .err();
            assert_eq!((picture.commit(), why.as_deref()), (5, expected));
            assert_eq!(
                String::from_utf8(out).unwrap().contains("export_end"),
                expected.is_none()
            );
        }
    }

    /// The lines of these records, in the order of the table.
    fn lines(records: &[Vec<u8>]) -> String {
        let (about, mut out) = (
            About {
                daemon: "0.1.0",
                written_at: Timestamp(1),
                namespace: None,
            },
            Vec::new(),
        );
        let lines = Lines::begin(
            &mut out,
            about,
            Shown {
                commit: 1,
                records: 1,
                whole: true,
            },
        )
        .unwrap();
        let mut entities = Entities { lines, open: None };
        for bytes in records {
            entities
                .take(Record::decode(&mut Reader::new(bytes)).unwrap())
                .unwrap();
        }
        entities.end().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_changed_part_is_that_of_the_entity_with_its_number() {
        let job = |id| Record::Put(plain_job(id));
        let job_moved = |id| {
            let mut job = plain_job(id);
            job.failures = 9;
            let mut bytes = Vec::new();
            encode_moved(&job, &mut bytes);
            bytes
        };
        let schedule = |id| Schedule {
            id: JobId(id),
            key: None,
            job: NewJob::new(Protocol::GEARMAN, "q".into(), "".into()),
            recurrence: Recurrence::Every { interval_ms: 60 },
            anchor: Timestamp(0),
            next_at: Timestamp(1),
            runs_left: None,
            last: None,
        };
        let batch = |id| Batch {
            namespace: windlass_engine::Namespace::UNNAMED,
            id: JobId(id),
            name: "b".into(),
            protocol: Protocol::FAKTORY,
            parent: None,
            parent_name: None,
            depth: 0,
            about: "".into(),
            meta: "".into(),
            created_at: Timestamp(0),
            complete: None,
            success: None,
            progress: BatchProgress::default(),
        };
        let next = |id| NextRun {
            schedule: JobId(id),
            next_at: Timestamp(49),
            runs_left: None,
            last: None,
        };
        let progress = |id| BatchMoved {
            batch: JobId(id),
            progress: BatchProgress {
                total: 3,
                ran: 2,
                ..BatchProgress::default()
            },
        };
        let bytes_of = |record: Record| {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            bytes
        };
        let table = [
            (bytes_of(job(5)), [5, 6].map(job_moved)),
            (
                bytes_of(Record::Schedule(Box::new(schedule(5)))),
                [5, 6].map(|id| bytes_of(Record::NextRun(next(id)))),
            ),
            (
                bytes_of(Record::Batch(Box::new(batch(5)))),
                [5, 6].map(|id| bytes_of(Record::BatchMoved(progress(id)))),
            ),
        ];
        for (whole, [own, other]) in table {
            let alone = lines(std::slice::from_ref(&whole));
            assert_ne!(lines(&[whole.clone(), own]), alone);
            assert_eq!(lines(&[whole, other]), alone, "number 6 was deleted");
        }
    }
}
