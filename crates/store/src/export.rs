//! The contents of a store as lines of JSON: for people and scripts to read, and for `windlass import jsonl`.
//!
//! Lines are independent, so they can be selected, dropped and combined. The named fields are for readers.
//! All other state is in `stored_base64`: the stored record without the body, which has a separate field. A
//! line without a record is a new job.
//!
//! The first line describes the export, the last line completes it. If both are present, and everything
//! between them is unmodified, an import can restore the store exactly. All times are wall-clock times, by
//! the clock in the engine meta. The lines, in this order:
//!
//! * `windlass_export` (the version of this format), `daemon` (the version that wrote it), `commit` (the last
//!   commit whose changes are included), `written_at_ms`, `records` (the number of lines with a record),
//!   `whole` (0 if the store was damaged);
//! * the engine meta: `engine` (how often a daemon has opened the store), `pushed`, `succeeded`, `failed`;
//! * namespaces with names: `namespace_settings` (the name);
//! * queues: `queue_settings` (the queue's name), `namespace` (if it has a name; jobs, schedules and batches have it, too), `kind`, `paused` (1 or 0), `paused_at_ms`;
//! * in the order of numbers, jobs: `job`, `queue` (older versions: `queue_number`, if its name was lost),
//!   `origin` (the protocol's number), `priority`, `place`, `ready_at_ms`, `due_at_ms` (the next time of a
//!   scheduled or retrying job; the end of a lease or of retention), `attempts`, `failures`, `key`, `name`,
//!   `failure`, `in_batch`, `meta_base64`, `body_base64`;
//! * among them schedules: `schedule`, `queue`, `origin`, `priority`, `cron` (and `timezone`, if it is not
//!   UTC) or `every_ms`, `next_at_ms`, `runs_left`, `key`, `unique`, `name`, `meta_base64`, `body_base64`;
//! * and batches, whose numbers jobs give as `in_batch`: `batch`, `origin`, `jobs`, `succeeded`, `name`,
//!   `parent`, `about`, `meta_base64`, and of callbacks still to be pushed `complete_queue`,
//!   `complete_body_base64`, `success_queue`, `success_body_base64`;
//! * the totals when each day started: `day` (counted from 1 January 1970), `number`, `pushed`, `succeeded`,
//!   `failed`;
//! * `next_number`, the lower bound of unassigned numbers;
//! * `export_end` (the number of lines before this one), `jobs`, `queues`, `schedules`, `batches`, `days`,
//!   and `sha256` of all lines before, each with its line feed.
//!
//! An export of one namespace has only the lines of that namespace, and no `day`. `records` is missing, and the
//! counters of the engine meta are those of the namespace.
//!
//! The name of a byte string that is not UTF-8 has the suffix `_base64`. Missing fields are omitted.

mod line;

use std::collections::BTreeMap;
use std::io::{self, Write};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use windlass_engine::{
    Batch, DayBegin, Job, JobState, Namespace, NewJob, Payload, Protocol, QueueId, QueueImage,
    QueueKind, Recurrence, Schedule, Timestamp, Totals,
};

use self::line::Line;
use crate::body_file::BodyFile;
use crate::jobs::with_body;
use crate::record::{MetaRecord, Record};
use crate::salvage::Salvage;

/// The version of the format.
pub const EXPORT_VERSION: u64 = 2;

/// The writer of an export, the time, and what is exported.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// The version of the daemon.
    pub daemon: &'a str,
    /// The time by the wall clock.
    pub written_at: Timestamp,
    /// The name of the only namespace to export, empty for the one without a name; `None` for all.
    pub namespace: Option<&'a str>,
}

/// The numbers of exported entities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Jobs in all states.
    pub jobs: u64,
    /// Queues.
    pub queues: u64,
    /// Schedules.
    pub schedules: u64,
    /// Batches.
    pub batches: u64,
    /// Beginnings of days.
    pub days: u64,
    /// Namespaces with names.
    pub namespaces: u64,
}

/// The store that an export shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    /// The last commit.
    pub(crate) commit: u64,
    /// Lines with a record.
    pub(crate) records: u64,
    pub(crate) whole: bool,
}

impl Salvage {
    /// Writes everything as lines of JSON objects, as listed in `export`. A job with an unreadable body is
    /// omitted, and named in `unreadable`.
    ///
    /// # Errors
    ///
    /// An error of the writer.
    pub fn export(&mut self, about: About<'_>, to: &mut dyn Write) -> io::Result<Exported> {
        // If two queues have the same name, the younger one is valid, because the older must have
        // been deleted.
        let queues: BTreeMap<_, _> = self
            .queues
            .values()
            .map(|image| ((image.id.namespace(), &image.name), image))
            .collect();
        let counts = [
            queues.len(),
            self.jobs.len(),
            self.schedules.len(),
            self.batches.len(),
            self.days.len(),
            self.namespaces.len(),
        ];
        let records = counts.iter().sum::<usize>() as u64 + u64::from(self.meta().is_some());
        let mut lines = Lines::begin(
            to,
            about,
            Shown {
                commit: self.commit,
                records,
                whole: self.is_whole(),
            },
        )?;
        self.meta()
            .map_or(Ok(()), |meta| lines.put(Record::Meta(meta.clone())))?;
        for image in self.namespaces.values() {
            lines.put(Record::Namespace(Box::new(image.clone())))?;
        }
        for image in self.queues.values() {
            lines.name(image);
        }
        queues
            .into_values()
            .try_for_each(|image| lines.put(Record::QueueSet(image.clone())))?;
        let schedules = self
            .schedules
            .iter()
            .map(|(id, schedule)| (id, Thing::Schedule(schedule)));
        let batches = self
            .batches
            .iter()
            .map(|(id, batch)| (id, Thing::Batch(batch)));
        let others: BTreeMap<_, _> = schedules.chain(batches).collect();
        let mut others = others.into_iter().peekable();
        let (bodies, unreadable) = (self.jobs.file().map(BodyFile::reader), &mut self.unreadable);
        self.jobs.each(|job| {
            // The bodies of others are not read.
            if !lines.shows(job.queue.namespace()) {
                return Ok(());
            }
            while let Some((_, other)) = others.next_if(|(other, _)| **other < job.id) {
                lines.put(other.record())?;
            }
            match with_body(job, bodies.as_ref()) {
                Ok(job) => lines.put(Record::Put(job)),
                Err(why) => {
                    unreadable.push(format!("the body of job {}: {why}", job.id.0));
                    Ok(())
                }
            }
        })?;
        others.try_for_each(|(_, other)| lines.put(other.record()))?;
        self.days
            .values()
            .try_for_each(|begin| lines.put(Record::Day(*begin)))?;
        lines.end()
    }
}

/// An entity that shares the numbers of jobs.
enum Thing<'a> {
    Schedule(&'a Schedule),
    Batch(&'a Batch),
}

impl Thing<'_> {
    fn record(&self) -> Record {
        match *self {
            Self::Schedule(schedule) => Record::Schedule(Box::new(schedule.clone())),
            Self::Batch(batch) => Record::Batch(Box::new(batch.clone())),
        }
    }
}

/// Writes the lines of an export, in the order that `export` describes.
pub(crate) struct Lines<'a> {
    to: &'a mut dyn Write,
    sum: Sha256,
    written: u64,
    exported: Exported,
    /// The only namespace that is shown.
    only: Option<&'a str>,
    /// The engine meta, until the counters of that namespace are known.
    meta: Option<MetaRecord>,
    /// The names of queues, for the lines of jobs.
    names: BTreeMap<QueueId, Bytes>,
    /// The names of the namespaces that are shown.
    namespaces: BTreeMap<Namespace, Bytes>,
    /// The wall clock minus the engine's time.
    skew_ms: i64,
    next_number: Option<u64>,
}

impl<'a> Lines<'a> {
    pub(crate) fn begin(to: &'a mut dyn Write, about: About<'a>, shown: Shown) -> io::Result<Self> {
        let (sum, exported, names) = (Sha256::new(), Exported::default(), BTreeMap::new());
        let mut lines = Self {
            to,
            sum,
            written: 0,
            exported,
            only: about.namespace,
            meta: None,
            names,
            namespaces: BTreeMap::new(),
            skew_ms: 0,
            next_number: None,
        };
        let line = Line::default()
            .number("windlass_export", EXPORT_VERSION)
            .text("daemon", about.daemon.as_bytes())
            .number("commit", shown.commit)
            .number("written_at_ms", about.written_at.0)
            .number(
                "records",
                about.namespace.is_none().then_some(shown.records),
            )
            .number("whole", u64::from(shown.whole));
        lines.write(&line.finish())?;
        Ok(lines)
    }

    /// Returns true if the lines of this namespace are written, whose own line precedes them.
    fn shows(&self, namespace: Namespace) -> bool {
        match self.only {
            None => true,
            Some("") => namespace == Namespace::UNNAMED,
            Some(_) => self.namespaces.contains_key(&namespace),
        }
    }

    /// Records the name of a queue without a line.
    fn name(&mut self, image: &QueueImage) {
        self.names.insert(image.id, image.name.clone());
    }

    /// Writes the line of a full record. The engine meta is first, then namespaces, and queues precede jobs.
    /// Other records have no line.
    pub(crate) fn put(&mut self, record: Record) -> io::Result<()> {
        if !record.namespace().is_none_or(|of| self.shows(of)) {
            return Ok(());
        }
        let skew_ms = self.skew_ms;
        let exported = &mut self.exported;
        let namespaces = &self.namespaces;
        let name_of = |id: Namespace| namespaces.get(&id).map(|name| &**name);
        let line = match record {
            Record::Namespace(image) => {
                if self
                    .only
                    .is_some_and(|only| *only.as_bytes() != *image.name)
                {
                    return Ok(());
                }
                exported.namespaces += 1;
                let line = Line::default().text("namespace_settings", &*image.name);
                self.namespaces.insert(image.id, image.name.clone());
                if let Some(mut meta) = self.meta.take() {
                    meta.meta.totals = sum_of(&image.protocols);
                    // They are those of the namespace without a name.
                    meta.meta.protocols = Vec::new();
                    self.engine(meta)?;
                }
                line.record(&Record::Namespace(image))
            }
            Record::Meta(mut meta) => {
                match self.only {
                    None => {}
                    Some("") => meta.meta.totals = sum_of(&meta.meta.protocols),
                    Some(_) => {
                        self.meta = Some(meta);
                        return Ok(());
                    }
                }
                return self.engine(meta);
            }
            Record::QueueSet(image) => {
                exported.queues += 1;
                self.names.insert(image.id, image.name.clone());
                queue_line(&image, name_of(image.id.namespace()))
            }
            Record::Put(mut job) => {
                exported.jobs += 1;
                job.shift(skew_ms);
                let namespace = name_of(job.queue.namespace());
                job_line(&job, self.names.get(&job.queue), namespace)
            }
            Record::Schedule(mut schedule) => {
                exported.schedules += 1;
                schedule.shift(skew_ms);
                schedule_line(&schedule, name_of(schedule.job.namespace))
            }
            Record::Batch(mut batch) => {
                exported.batches += 1;
                batch.shift(skew_ms);
                batch_line(&batch, name_of(batch.namespace))
            }
            // Its counters are those of all namespaces.
            Record::Day(_) if self.only.is_some() => return Ok(()),
            Record::Day(begin) => {
                exported.days += 1;
                day_line(&begin)
            }
            Record::Moved(_)
            | Record::Gone(_)
            | Record::QueueGone(_)
            | Record::NamespaceGone(_)
            | Record::NextRun(_)
            | Record::BatchMoved(_)
            | Record::Ended(_) => {
                return Ok(());
            }
        };
        self.write(&line)
    }

    fn engine(&mut self, meta: MetaRecord) -> io::Result<()> {
        self.skew_ms = meta.meta.clock.skew_ms;
        // After a kill, numbers that were only reserved may have been assigned.
        let (next, reserved) = (meta.meta.next_job, meta.meta.reserved);
        self.next_number = Some(if meta.clean { next } else { next.max(reserved) });
        self.write(&engine_line(meta))
    }

    /// Completes the export.
    pub(crate) fn end(mut self) -> io::Result<Exported> {
        if let Some(next) = self.next_number {
            self.write(&Line::default().number("next_number", next).finish())?;
        }
        let Exported {
            jobs,
            queues,
            schedules,
            batches,
            days,
            namespaces,
        } = self.exported;
        let counts = [
            ("jobs", jobs),
            ("queues", queues),
            ("schedules", schedules),
            ("batches", batches),
            ("days", days),
        ];
        let line = Line::default().number("export_end", self.written);
        let line = counts
            .into_iter()
            .fold(line, |line, (name, count)| line.number(name, count));
        // Not written by older versions.
        let line = line.number("namespaces", Some(namespaces).filter(|count| *count > 0));
        let line = line.text("sha256", hex::encode(self.sum.finalize()).as_bytes());
        self.to.write_all(line.finish().as_bytes())?;
        self.to.flush()?;
        Ok(self.exported)
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        self.sum.update(line.as_bytes());
        self.written += 1;
        self.to.write_all(line.as_bytes())
    }
}

/// The counters of all protocols together.
fn sum_of(protocols: &[(Protocol, Totals)]) -> Totals {
    let each = protocols.iter().map(|(_, totals)| totals);
    each.fold(Totals::default(), |sum, totals| sum.sum(totals))
}

fn engine_line(meta: MetaRecord) -> String {
    let line = Line::default().number("engine", meta.meta.boot_count);
    with_totals(line, &meta.meta.totals).record(&Record::Meta(meta))
}

fn day_line(begin: &DayBegin) -> String {
    let line = Line::default()
        .number("day", begin.day)
        .number("number", begin.number);
    with_totals(line, &begin.totals).record(&Record::Day(*begin))
}

fn with_totals(line: Line, totals: &Totals) -> Line {
    line.number("pushed", totals.pushed)
        .number("succeeded", totals.succeeded)
        .number("failed", totals.failed)
}

fn queue_line(image: &QueueImage, namespace: Option<&[u8]>) -> String {
    let kind = match image.kind {
        QueueKind::Work => "work",
        QueueKind::Cycle => "cycle",
    };
    Line::default()
        .text("queue_settings", &*image.name)
        .text("namespace", namespace)
        .text("kind", kind.as_bytes())
        .number("paused", u64::from(!image.paused.is_empty()))
        .number("paused_at_ms", image.paused_at.map(|at| at.0))
        .record(&Record::QueueSet(image.clone()))
}

/// `None` for an empty byte string.
fn given(bytes: &[u8]) -> Option<&[u8]> {
    Some(bytes).filter(|bytes| !bytes.is_empty())
}

/// The body of a job is in a separate field at the end.
fn job_line(job: &Job, queue: Option<&Bytes>, namespace: Option<&[u8]>) -> String {
    let (place, due_at) = place(&job.state);
    let extra = job.extra.as_deref();
    let bare = Job {
        payload: Payload::copy(job.key(), job.name(), &[]),
        ..job.clone()
    };
    Line::default()
        .number("job", job.id.0)
        .text("queue", queue.map(|name| &**name))
        .text("namespace", namespace)
        .number(
            "queue_number",
            queue.is_none().then_some(job.queue.0.into()),
        )
        .number("origin", u64::from(job.protocol.0))
        .number("priority", u64::from(job.priority.value()))
        .text("place", place.as_bytes())
        .number("ready_at_ms", job.ready_at.0)
        .number(
            "due_at_ms",
            due_at.filter(|at| *at < Timestamp::NEVER).map(|at| at.0),
        )
        .number("attempts", u64::from(job.attempts))
        .number("failures", u64::from(job.failures))
        .text("key", job.key())
        .text("name", given(job.name()))
        .text(
            "failure",
            extra
                .and_then(|extra| extra.failure.as_deref())
                .map(|failure| &*failure.message),
        )
        .number(
            "in_batch",
            extra
                .and_then(|extra| extra.member)
                .map(|member| member.batch.0),
        )
        .base64("meta_base64", given(&job.meta()))
        .base64("body_base64", job.body())
        .record(&Record::Put(bare))
}

fn batch_line(batch: &Batch, namespace: Option<&[u8]>) -> String {
    let (complete, success) = (batch.complete.as_deref(), batch.success.as_deref());
    Line::default()
        .number("batch", batch.id.0)
        .text("namespace", namespace)
        .number("origin", u64::from(batch.protocol.0))
        .number("jobs", batch.progress.total)
        .number("succeeded", batch.progress.succeeded)
        .text("name", &*batch.name)
        .text("parent", batch.parent_name.as_deref())
        .text("about", given(&batch.about))
        .base64("meta_base64", given(&batch.meta))
        .text("complete_queue", complete.map(|job| &*job.queue))
        .base64("complete_body_base64", complete.map(|job| &*job.body))
        .text("success_queue", success.map(|job| &*job.queue))
        .base64("success_body_base64", success.map(|job| &*job.body))
        .record(&Record::Batch(Box::new(batch.clone())))
}

fn schedule_line(schedule: &Schedule, namespace: Option<&[u8]>) -> String {
    let job = &schedule.job;
    let (cron, zone, every_ms) = match &schedule.recurrence {
        Recurrence::Cron(cron) => (Some(cron.to_string()), None, None),
        Recurrence::Zoned(cron, zone) => (Some(cron.to_string()), Some(zone.name()), None),
        Recurrence::Every { interval_ms } => (None, None, Some(*interval_ms)),
    };
    let bare = Schedule {
        job: NewJob {
            body: Bytes::new(),
            ..job.clone()
        },
        ..schedule.clone()
    };
    Line::default()
        .number("schedule", schedule.id.0)
        .text("queue", &*job.queue)
        .text("namespace", namespace)
        .number("origin", u64::from(job.protocol.0))
        .number("priority", u64::from(job.priority.value()))
        .text("cron", cron.as_deref().map(str::as_bytes))
        .text("timezone", zone.map(str::as_bytes))
        .number("every_ms", every_ms)
        .number("next_at_ms", schedule.next_at.0)
        .number("runs_left", schedule.runs_left)
        .text("key", schedule.key.as_deref())
        .text("unique", job.unique.as_ref().map(|unique| &*unique.key))
        .text("name", job.name.as_deref())
        .base64("meta_base64", given(&job.meta))
        .base64("body_base64", &*job.body)
        .record(&Record::Schedule(Box::new(bare)))
}

/// The name of a state, and the time.
fn place(place: &JobState) -> (&'static str, Option<Timestamp>) {
    match place {
        JobState::Ready => ("ready", None),
        JobState::Leased(lease) => ("leased", Some(lease.until)),
        JobState::Scheduled(at) => ("scheduled", Some(*at)),
        JobState::Retrying(at) => ("retrying", Some(*at)),
        JobState::Dead(until) => ("dead", Some(*until)),
        JobState::Parked => ("shelved", None),
        JobState::Done(until) => ("done", Some(*until)),
    }
}
