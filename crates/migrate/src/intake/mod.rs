//! Imports jobs from elsewhere while no daemon runs. Each job goes through the engine, under the daemon's own limits,
//! and jobs are committed in batches.
//!
//! Not here: the `cli` crate reads the sources, and each protocol's crate defines how a source's entry becomes a job.
//!
//! A complete export and a directory without a store need no engine: the store gets the exported records as they are
//! (`restore`).
//!
//! A record beside the journal (`record`) lists the jobs already imported from a source. An interrupted import
//! therefore continues where it stopped, and a complete one is not repeated.

mod adopt;
mod complete;
mod format_1;
mod jsonl;
#[cfg(test)]
mod merged;
mod record;
mod restore;
#[cfg(test)]
mod resumed;
mod room;
#[cfg(test)]
mod round;
#[cfg(test)]
mod round_restore;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use windlass_config::Failure;
use windlass_engine::{
    Clash, ClientCommand, ClientId, ClientInfo, Command, Context, Engine, Event, JobCommand, JobId,
    Namespace, NamespaceImage, NamespaceLimits, NewJob, Pushed, QueueCommand, QueueKind, Refusal,
    Reply, Tag, Thing,
};
use windlass_session::protocol::Protocol;
use windlass_store::{BodyFile, Guard, Journal, Log, Opened};

pub use self::adopt::Adopted;
use self::adopt::Adoption;
pub use self::complete::{Completeness, Survey};
pub use self::jsonl::{Ending, Fleets, Heading, Line, Origins, Ranks};
pub use self::record::Source;
use self::record::{Record, cannot_write};
pub use self::restore::Restorer;
use self::room::Room;
use windlass_daemon::clock;
use windlass_daemon::config::Config;
use windlass_daemon::random_seed;
use windlass_operate::Counter;

/// Jobs and bytes in one batch: as much as an interrupted import may repeat.
const BATCH_JOBS: u64 = 1_000;
const BATCH_BYTES: u64 = 1 << 20;

/// The only client of the engine.
const CLIENT: ClientId = ClientId(1);

/// The result for one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The job is queued.
    Taken,
    /// The data directory already has a job with the same coalescing key, or had one of the same public name before
    /// this import.
    Known,
    /// The engine refuses the job under the daemon's configuration.
    Refused(Refusal),
}

/// A data directory, opened for an import.
pub struct Importer {
    engine: Engine,
    journal: Journal,
    context: Context,
    to: Option<To>,
    room: Room,
    batch_jobs: u64,
    /// Jobs with smaller numbers existed before the import.
    first: JobId,
    adoption: Adoption,
    /// Everything goes into this namespace; `None`: each record into its own, and a new job into that without a name.
    into: Option<Namespace>,
    protocols: Vec<Arc<dyn Protocol>>,
    counter: Counter,
    /// A new job whose batch does not exist becomes one without a batch, and how many did.
    drops_batches: bool,
    outside: u64,
}

/// The destination; a rehearsal has none.
struct To {
    data_dir: Box<Path>,
    log: Box<dyn Log>,
    record: Record,
    _guard: Guard,
}

impl Importer {
    /// Opens or creates the configured data directory. `again` ignores the record of earlier imports from this source.
    ///
    /// # Errors
    ///
    /// [`Failure::Data`]: a daemon uses the directory, it is damaged, or access is denied.
    pub fn open(config: &Config, source: &Source, again: bool) -> Result<Self, Failure> {
        let Opened {
            log,
            recovered,
            guard,
            ..
        } = windlass_daemon::open_to_add(config)?;
        let mut record = Record::open(&config.data_dir, source, again)
            .map_err(|why| Failure::data(&config.data_dir, why))?;
        let first = *record.first.get_or_insert(recovered.engine.meta().next_job);
        let to = To {
            data_dir: config.data_dir.as_path().into(),
            log,
            record,
            _guard: guard,
        };
        let importer = Self::new(
            config,
            recovered.engine,
            recovered.bodies,
            recovered.journal,
            Some(to),
        );
        Ok(Self {
            first: JobId(first),
            ..importer
        })
    }

    /// Imports as into a new data directory, and stores nothing.
    pub fn rehearse(config: &Config) -> Self {
        let engine = Engine::new(config.engine_limits(), random_seed());
        Self::new(config, engine, None, Journal::new(), None)
    }

    fn new(
        config: &Config,
        engine: Engine,
        bodies: Option<BodyFile>,
        journal: Journal,
        to: Option<To>,
    ) -> Self {
        let reading = clock::read();
        let mut context = Context::new(reading.now, random_seed());
        context.clock = reading.clock;
        let first = JobId(engine.meta().next_job);
        let (adoption, protocols) = (Adoption::default(), config.protocols.clone());
        let counter = Counter::of("jobs imported");
        let room = Room::new(
            &config.data_dir,
            windlass_daemon::bytes_to_add(config),
            bodies,
        );
        let mut importer = Self {
            engine,
            journal,
            context,
            to,
            room,
            batch_jobs: 0,
            first,
            adoption,
            into: None,
            protocols,
            counter,
            drops_batches: false,
            outside: 0,
        };
        importer.apply(Tag::NONE, ClientCommand::Open(ClientInfo::default()));
        importer
    }

    /// Directs everything into the namespace with this name, empty for the one without a name. A new one has these
    /// limits. Must be called before the first job is imported.
    ///
    /// # Errors
    ///
    /// The name is invalid, or there are as many namespaces as can be.
    pub fn enter(&mut self, name: &str, limits: NamespaceLimits) -> Result<(), Refusal> {
        let image = NamespaceImage {
            name: Bytes::copy_from_slice(name.as_bytes()),
            limits,
            ..NamespaceImage::default()
        };
        self.context.changes.clear();
        let here = self.engine.adopt_namespace(&image, &mut self.context)?;
        self.journal.append(&self.engine, &self.context.changes);
        self.into = Some(here);
        self.apply(Tag::NONE, ClientCommand::Close);
        let namespace = Some(name.into());
        let info = ClientInfo {
            namespace,
            ..ClientInfo::default()
        };
        self.apply(Tag::NONE, ClientCommand::Open(info));
        Ok(())
    }

    /// Whether new jobs whose batches do not exist become jobs without a batch.
    pub fn without_batches(&mut self, drops_batches: bool) {
        self.drops_batches = drops_batches;
    }

    /// How many did.
    pub const fn outside(&self) -> u64 {
        self.outside
    }

    /// Whether the job at this position of the source has not been imported yet.
    pub fn wants(&self, place: u64) -> bool {
        self.to.as_ref().is_none_or(|to| to.record.wants(place))
    }

    /// Imports the job at this position of the source. Positions must increase. If the engine would refuse a job
    /// because of its coalescing key, the job is imported without the key: in the source the jobs did coexist.
    ///
    /// # Errors
    ///
    /// [`Failure::Runtime`]: a full batch could not be written to the store.
    pub fn take(&mut self, place: u64, mut job: NewJob) -> Result<Outcome, Failure> {
        job.namespace = self.into.unwrap_or(Namespace::UNNAMED);
        let outcome = self.push_new(self.by_engine(job));
        self.count(place, outcome)?;
        Ok(outcome)
    }

    /// How far the engine's clock is ahead of the wall clock; imported times are shifted by this.
    fn ahead_ms(&self) -> i64 {
        self.context.clock.skew_ms.saturating_neg()
    }

    /// Converts a job's times to the engine's clock.
    fn by_engine(&self, mut job: NewJob) -> NewJob {
        let ahead_ms = self.ahead_ms();
        job.shift(ahead_ms);
        job
    }

    /// Counts the job at this position, and commits if the batch is full.
    fn count(&mut self, place: u64, outcome: Outcome) -> Result<(), Failure> {
        if let Some(to) = &mut self.to {
            match outcome {
                Outcome::Taken | Outcome::Known => to.record.took(place),
                Outcome::Refused(_) => to.record.left(place),
            }
        }
        self.counter.add(1);
        self.batch_jobs += 1;
        if self.batch_jobs >= BATCH_JOBS || self.journal.pending_bytes() >= BATCH_BYTES {
            self.commit()?;
        }
        Ok(())
    }

    /// Skips the job at this position, which cannot be imported as it is; a later import tries it again.
    pub fn leave(&mut self, place: u64) {
        if let Some(to) = &mut self.to {
            to.record.left(place);
        }
    }

    /// Creates a queue, paused if `paused`.
    ///
    /// # Errors
    ///
    /// The engine refuses the queue.
    pub fn make_queue(&mut self, queue: Bytes, paused: bool) -> Result<(), Refusal> {
        self.ask(QueueCommand::Create {
            queue: queue.clone(),
            kind: QueueKind::Work,
        })?;
        if paused {
            self.ask(QueueCommand::Pause { queue, paused })
        } else {
            Ok(())
        }
    }

    /// Commits the rest and closes the data directory cleanly.
    ///
    /// # Errors
    ///
    /// [`Failure::Runtime`]: the batch could not be written to the store.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.apply(Tag::NONE, ClientCommand::Close);
        self.commit()?;
        self.engine.finish_meta();
        self.journal.stop_in_order();
        self.commit()?;
        self.to.as_mut().map_or(Ok(()), |to| {
            to.log
                .close()
                .map_err(|why| cannot_write(&to.data_dir, why))
        })
    }

    fn push_new(&mut self, job: NewJob) -> Outcome {
        let namesake = job
            .name
            .as_deref()
            .and_then(|name| self.engine.job_named(job.namespace, name));
        if namesake.is_some_and(|other| other.id < self.first && other.protocol == job.protocol) {
            return Outcome::Known;
        }
        let refuses = job
            .unique
            .as_ref()
            .is_some_and(|unique| unique.clash == Clash::Refuse);
        let keyless = refuses.then(|| NewJob {
            unique: None,
            ..job.clone()
        });
        let outside = (self.drops_batches && job.batch.is_some()).then(|| NewJob {
            batch: None,
            ..job.clone()
        });
        let outcome = match (self.push(job), keyless) {
            (Outcome::Refused(Refusal::NotUnique), Some(keyless)) => self.push(keyless),
            (outcome, _) => outcome,
        };
        match (outcome, outside) {
            (Outcome::Refused(Refusal::NotFound(Thing::Batch)), Some(outside)) => {
                let outcome = self.push_new(outside);
                self.outside += u64::from(outcome == Outcome::Taken);
                outcome
            }
            (outcome, _) => outcome,
        }
    }

    fn ask(&mut self, command: impl Into<Command>) -> Result<(), Refusal> {
        if let Some(Reply::Refused(why)) = self.reply(command) {
            Err(why)
        } else {
            Ok(())
        }
    }

    fn push(&mut self, job: NewJob) -> Outcome {
        match self.reply(JobCommand::Push(Box::new(job))) {
            Some(Reply::Pushed {
                how: Pushed::New, ..
            }) => Outcome::Taken,
            Some(Reply::Pushed { .. }) => Outcome::Known,
            Some(Reply::Refused(why)) => Outcome::Refused(why),
            // The engine always answers a push; without an answer, nothing was acknowledged.
            _ => Outcome::Refused(Refusal::Unknown),
        }
    }

    fn reply(&mut self, command: impl Into<Command>) -> Option<Reply> {
        self.apply(Tag(1), command);
        let events = self.context.events.drain(..);
        events
            .filter_map(|(_, event)| {
                if let Event::Reply(_, reply) = event {
                    Some(reply)
                } else {
                    None
                }
            })
            .last()
    }

    fn apply(&mut self, tag: Tag, command: impl Into<Command>) {
        self.wake_up();
        let reading = clock::read();
        (self.context.now, self.context.clock) = (reading.now, reading.clock);
        self.context.changes.clear();
        self.context.events.clear();
        self.engine.apply(CLIENT, tag, command, &mut self.context);
        self.journal.append(&self.engine, &self.context.changes);
    }

    /// Commits everything imported so far: it is on the disk when this returns. Writes the pending changes, then the record.
    /// An interruption between the two repeats the batch.
    ///
    /// # Errors
    ///
    /// [`Failure::Runtime`]: the batch could not be written to the store.
    pub fn commit(&mut self) -> Result<(), Failure> {
        self.batch_jobs = 0;
        while let Some(mut commit) = self.journal.cut(&self.engine) {
            if let Some(to) = &mut self.to {
                commit
                    .load(|stored| self.room.read(stored))
                    .map_err(|why| Failure::data(&to.data_dir, why))?;
                to.log
                    .append(&commit)
                    .map_err(|why| cannot_write(&to.data_dir, why))?;
            }
            self.journal.committed(commit.seq());
        }
        self.room.make(&mut self.engine);
        self.to.as_ref().map_or(Ok(()), |to| {
            to.record
                .save()
                .map_err(|why| cannot_write(&to.data_dir, why))
        })
    }
}

/// Whether all `jobs` jobs of a source were imported earlier, according to the data directory's record. Does not open
/// the data directory.
pub fn was_taken(config: &Config, source: &Source, jobs: u64) -> bool {
    Record::find(&config.data_dir, source)
        .is_some_and(|record| (0..jobs).all(|place| !record.wants(place)))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use windlass_engine::{Capacity, Clash, KeyUntil, Protocol, Unique};

    use super::*;
    use crate::fixture;

    fn config(dir: &Path) -> Config {
        fixture::config(&dir.join("data"))
    }

    fn source() -> Source {
        Source {
            kind: "test",
            digest: "00ff".to_owned(),
        }
    }

    fn job(key: &'static str, body: &'static str) -> NewJob {
        let unique = Unique {
            key: Bytes::from_static(key.as_bytes()),
            clash: Clash::Attach,
            until: KeyUntil::End,
        };
        let new = NewJob::new(
            Protocol::GEARMAN,
            Bytes::from_static(b"f"),
            Bytes::from_static(body.as_bytes()),
        );
        NewJob {
            unique: (!key.is_empty()).then_some(unique),
            ..new
        }
    }

    fn jobs(config: &Config) -> usize {
        windlass_daemon::open(config)
            .unwrap()
            .recovered
            .engine
            .job_count()
    }

    #[test]
    fn imported_jobs_are_there_and_are_not_imported_again() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path());
        let mut importer = Importer::open(&config, &source(), false).unwrap();
        assert!(
            Importer::open(&config, &source(), false)
                .is_err_and(|why| why.to_string().contains("in use"))
        );
        let outcomes = [("a", "1"), ("a", "2"), ("", "3"), ("", "3")]
            .iter()
            .zip(0..)
            .map(|((key, body), place)| importer.take(place, job(key, body)).unwrap());
        assert_eq!(
            outcomes.collect::<Vec<_>>(),
            [
                Outcome::Taken,
                Outcome::Known,
                Outcome::Taken,
                Outcome::Taken
            ]
        );
        importer.leave(4);
        importer.finish().unwrap();
        assert_eq!(jobs(&config), 3);

        let importer = Importer::open(&config, &source(), false).unwrap();
        assert_eq!(
            (0..6)
                .filter(|place| importer.wants(*place))
                .collect::<Vec<_>>(),
            [4, 5]
        );
        drop(importer);
        let importer = Importer::open(&config, &source(), true).unwrap();
        assert!((0..6).all(|place| importer.wants(place)));
        drop(importer);
        let other = Source {
            digest: "00fe".to_owned(),
            ..source()
        };
        assert!(Importer::open(&config, &other, false).unwrap().wants(0));
    }

    #[test]
    fn a_job_that_was_left_is_wanted_by_the_next_import() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path());
        assert!(!was_taken(&config, &source(), 3), "there is no record");
        let mut importer = Importer::open(&config, &source(), false).unwrap();
        importer.take(0, job("", "x")).unwrap();
        importer.leave(1);
        importer.take(2, job("", "x")).unwrap();
        importer.finish().unwrap();
        assert!(!was_taken(&config, &source(), 3));
        let mut importer = Importer::open(&config, &source(), false).unwrap();
        assert_eq!(
            [0, 1, 2].map(|place| importer.wants(place)),
            [false, true, false]
        );
        importer.take(1, job("", "x")).unwrap();
        importer.finish().unwrap();
        assert!(was_taken(&config, &source(), 3));
        assert!(!was_taken(&config, &source(), 4));
    }

    #[test]
    fn a_name_is_imported_once_unless_jobs_of_one_source_share_it() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path());
        let named = || NewJob {
            name: Some(Bytes::from_static(b"jid")),
            ..job("", "x")
        };
        for expected in [Outcome::Taken, Outcome::Known] {
            let mut importer = Importer::open(&config, &source(), true).unwrap();
            assert_eq!(
                [0, 1].map(|place| importer.take(place, named()).unwrap()),
                [expected; 2]
            );
            importer.finish().unwrap();
        }
        assert_eq!(jobs(&config), 2);
    }

    #[test]
    fn jobs_of_one_source_may_share_a_refusing_key() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path());
        let unique = Unique {
            key: Bytes::from_static(b"k"),
            clash: Clash::Refuse,
            until: KeyUntil::End,
        };
        let mut importer = Importer::open(&config, &source(), false).unwrap();
        for place in 0..2 {
            let job = NewJob {
                unique: Some(unique.clone()),
                ..job("", "x")
            };
            assert_eq!(importer.take(place, job).unwrap(), Outcome::Taken);
        }
        importer.finish().unwrap();
        assert_eq!(jobs(&config), 2);
    }

    #[test]
    fn queues_are_imported_too() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(dir.path());
        config.limits.queues_max = 2;
        let mut importer = Importer::open(&config, &source(), false).unwrap();
        importer
            .make_queue(Bytes::from_static(b"paused"), true)
            .unwrap();
        // The first one that only its name keeps gives way.
        for queue in [&b"empty"[..], b"empty too"] {
            importer
                .make_queue(Bytes::from_static(queue), false)
                .unwrap();
        }
        importer.commit().unwrap();
        drop(importer);
        let engine = windlass_daemon::open(&config).unwrap().recovered.engine;
        let mut queues: Vec<_> = engine
            .queues()
            .map(|it| (it.image().name.clone(), !it.image().paused.is_empty()))
            .collect();
        queues.sort();
        assert_eq!(
            queues,
            [
                (Bytes::from_static(b"empty too"), false),
                (Bytes::from_static(b"paused"), true)
            ]
        );
    }

    #[test]
    fn an_interrupted_import_continues_after_the_last_batch() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path());
        let mut importer = Importer::open(&config, &source(), false).unwrap();
        for place in 0..BATCH_JOBS + 1 {
            importer.take(place, job("", "x")).unwrap();
        }
        drop(importer);
        let mut importer = Importer::open(&config, &source(), false).unwrap();
        assert!(!importer.wants(BATCH_JOBS - 1) && importer.wants(BATCH_JOBS));
        importer.take(BATCH_JOBS, job("", "x")).unwrap();
        importer.finish().unwrap();
        assert_eq!(jobs(&config), usize::try_from(BATCH_JOBS).unwrap() + 1);
    }

    #[test]
    fn refused_jobs_are_tried_again_by_the_next_import() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(dir.path());
        config.limits.jobs_max = 1;
        let full = Outcome::Refused(Capacity::Jobs.exceeded(1_u32, 1_u32));
        let mut rehearsal = Importer::rehearse(&config);
        assert_eq!(rehearsal.take(0, job("", "x")).unwrap(), Outcome::Taken);
        assert_eq!(rehearsal.take(1, job("", "x")).unwrap(), full);
        rehearsal.finish().unwrap();
        assert!(
            !config.data_dir.exists(),
            "a rehearsal leaves nothing behind"
        );

        let mut importer = Importer::open(&config, &source(), false).unwrap();
        importer.take(0, job("", "x")).unwrap();
        assert_eq!(importer.take(1, job("", "x")).unwrap(), full);
        importer.finish().unwrap();
        config.limits.jobs_max = 2;
        let mut importer = Importer::open(&config, &source(), false).unwrap();
        assert!(!importer.wants(0) && importer.wants(1));
        assert_eq!(importer.take(1, job("", "x")).unwrap(), Outcome::Taken);
        importer.finish().unwrap();
        assert!(!Importer::open(&config, &source(), false).unwrap().wants(1));
    }
}
