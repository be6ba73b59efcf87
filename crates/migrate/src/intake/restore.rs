//! Restores a complete export in a data directory without a store: numbers, order, counters and clocks are those of the
//! exported store, as if its directory had been copied.
//!
//! The store gets its place when it is complete. An interruption leaves none, and the export can be restored again.

use windlass_config::Failure;
use windlass_engine::Limits;
use windlass_store::{OpenError, Record as StoreRecord, Restore};

use super::jsonl::Line;
use super::record::{Record, Source, cannot_write};
use windlass_daemon::config::Config;
use windlass_daemon::random_seed;
use windlass_operate::Counter;

/// A data directory that is being restored.
pub struct Restorer {
    restore: Restore,
    record: Record,
    lines: u64,
    limits: Limits,
    /// The exported engine's time minus the wall clock.
    ahead_ms: i64,
    data_dir: std::path::PathBuf,
    counter: Counter,
}

impl Restorer {
    /// Holds or creates the configured data directory. `None` if it has a store, or had one: [`super::Importer`]
    /// imports into that.
    ///
    /// # Errors
    ///
    /// [`Failure::Data`]: a daemon uses the directory, or access is denied.
    pub fn begin(config: &Config, source: &Source) -> Result<Option<Self>, Failure> {
        let Some(restore) = windlass_daemon::restore(config)? else {
            return Ok(None);
        };
        let data_dir = config.data_dir.clone();
        let record =
            Record::open(&data_dir, source, true).map_err(|why| Failure::data(&data_dir, why))?;
        let (limits, counter) = (config.engine_limits(), Counter::of("lines restored"));
        Ok(Some(Self {
            restore,
            record,
            lines: 0,
            limits,
            ahead_ms: 0,
            data_dir,
            counter,
        }))
    }

    /// Restores the next line.
    ///
    /// # Errors
    ///
    /// It is not a line of an export.
    pub fn take(&mut self, line: Line) -> Result<(), &'static str> {
        let ahead_ms = self.ahead_ms;
        let record = match line {
            Line::Job(mut job, _) => {
                job.shift(ahead_ms);
                Some(StoreRecord::Put(*job))
            }
            Line::Schedule(mut schedule) => {
                schedule.shift(ahead_ms);
                Some(StoreRecord::Schedule(schedule))
            }
            Line::Batch(mut batch) => {
                batch.shift(ahead_ms);
                Some(StoreRecord::Batch(batch))
            }
            Line::Queue(image) => Some(StoreRecord::QueueSet(image)),
            Line::Day(begin) => Some(StoreRecord::Day(begin)),
            Line::Namespace(image) => Some(StoreRecord::Namespace(image)),
            Line::Engine(meta) => {
                self.ahead_ms = meta.meta.clock.skew_ms.saturating_neg();
                Some(StoreRecord::Meta(*meta))
            }
            // The engine's own values contain it.
            Line::NextNumber(_) | Line::Heading(_) | Line::Ending(_) => None,
            Line::New(_) => return Err("it is a new job among the lines of an export"),
        };
        record
            .into_iter()
            .for_each(|record| self.restore.take(record));
        self.record.took(self.lines);
        self.lines += 1;
        self.counter.add(1);
        Ok(())
    }

    /// Creates the store. It is on the disk when this returns.
    ///
    /// # Errors
    ///
    /// [`Failure::Runtime`]: the store cannot be written; [`Failure::Data`]: the lines contradict each other.
    pub fn finish(self) -> Result<(), Failure> {
        let Self {
            restore,
            record,
            limits,
            data_dir,
            ..
        } = self;
        let done = restore.finish(limits, random_seed(), || record.save());
        done.map(drop).map_err(|why| match why {
            OpenError::Store(why) => cannot_write(&data_dir, why),
            OpenError::Damaged(why) => {
                Failure::data(&data_dir, format!("the export cannot be restored: {why}"))
            }
        })
    }
}
