//! The contents of a store as lines of JSON: for people and scripts to read, and for `windlass import jsonl` to take
//! back.
//!
//! Lines are independent, so they can be selected, dropped and combined. The named fields are for readers. All other
//! state is in `record_base64`: the stored record without the body, which has a field of its own. A line without a
//! record is a new job.
//!
//! The first line describes the export, the last one completes it: with both, and nothing changed between them, an
//! import can restore the store as it was. All times are wall-clock times, by the clock in the engine's own values. The
//! lines, in their order:
//!
//! * `windlass_export` (the version of this format), `daemon` (the version that wrote it), `commit` (the last commit
//!   whose changes are in it), `written_at_ms`, `records` (the number of lines with a record), `whole` (0 if the store
//!   was damaged);
//! * the engine's own values: `engine` (how often a daemon has opened the store), `pushed`, `succeeded`, `failed`;
//! * queues: `queue_settings` (the queue's name), `kind`, `paused` (1 or 0), `paused_at_ms`;
//! * in the order of their numbers, jobs: `job`, `queue` (earlier versions: `queue_number`, if its name was lost), `origin` (the
//!   protocol's number), `priority`, `place`, `ready_at_ms`, `due_at_ms` (when it is scheduled or tried again; until
//!   when it is leased or kept), `attempts`, `failures`, `key`, `name`, `failure`, `in_batch`, `meta_base64`,
//!   `body_base64`;
//! * among them schedules: `schedule`, `queue`, `origin`, `priority`, `cron` (and `timezone`, if it is not UTC) or
//!   `every_ms`, `next_at_ms`, `runs_left`, `key`, `unique`, `name`, `meta_base64`, `body_base64`;
//! * and batches, whose numbers jobs give as `in_batch`: `batch`, `origin`, `jobs`, `succeeded`, `name`, `parent`,
//!   `about`, `meta_base64`, and of callbacks still to be pushed `complete_queue`, `complete_body_base64`,
//!   `success_queue`, `success_body_base64`;
//! * the totals when each day began: `day` (counted from 1 January 1970), `number`, `pushed`, `succeeded`, `failed`;
//! * `next_number`, the lower bound of unassigned numbers;
//! * `export_end` (the number of lines before this one), `jobs`, `queues`, `schedules`, `batches`, `days`, and `sha256`
//!   of all lines before, each with its line feed.
//!
//! A byte string that is not UTF-8 goes under its name with the suffix `_base64`. Missing fields are left out.

mod line;

use std::collections::BTreeMap;
use std::io::{self, Write};

use sha2::{Digest as _, Sha256};
use windlass_engine::{
    Batch, DayBegin, Job, JobState, NewJob, Payload, QueueId, QueueImage, QueueKind, Recurrence, Schedule, Timestamp,
    Totals,
};

use self::line::Line;
use crate::record::{MetaRecord, Record, encode_queue};
use crate::salvage::Salvage;

/// The version of the format.
pub const EXPORT_VERSION: u64 = 1;

/// The writer of an export, and the time.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// The version of the daemon.
    pub daemon: &'a str,
    /// The time by the wall clock.
    pub written_at: Timestamp,
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
    /// Writes everything as lines of JSON, an object each: `export` lists them.
    ///
    /// # Errors
    ///
    /// An error of the writer.
    pub fn export(&self, about: About<'_>, to: &mut dyn Write) -> io::Result<Exported> {
        // Of two queues with the same name the younger counts: the other was deleted.
        let queues: BTreeMap<_, _> = self.queues.values().map(|image| (&image.name, image)).collect();
        let counts = [queues.len(), self.jobs.len(), self.schedules.len(), self.batches.len(), self.days.len()];
        let records = counts.iter().sum::<usize>() as u64 + u64::from(self.meta().is_some());
        let mut lines = Lines::begin(to, about, Shown { commit: self.commit, records, whole: self.is_whole() })?;
        self.meta().map_or(Ok(()), |meta| lines.put(Record::Meta(meta.clone())))?;
        for image in self.queues.values() {
            lines.name(image);
        }
        queues.into_values().try_for_each(|image| lines.put(Record::QueueSet(image.clone())))?;
        let schedules = self.schedules.iter().map(|(id, schedule)| (id, Thing::Schedule(schedule)));
        let batches = self.batches.iter().map(|(id, batch)| (id, Thing::Batch(batch)));
        let others: BTreeMap<_, _> = schedules.chain(batches).collect();
        let mut others = others.into_iter().peekable();
        for (id, job) in &self.jobs {
            while let Some((_, other)) = others.next_if(|(other, _)| *other < id) {
                lines.put(other.record())?;
            }
            lines.put(Record::Put(job.clone()))?;
        }
        others.try_for_each(|(_, other)| lines.put(other.record()))?;
        self.days.values().try_for_each(|begin| lines.put(Record::Day(*begin)))?;
        lines.end()
    }
}

/// An entity among the jobs.
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
    /// The names of queues, for the lines of their jobs.
    names: BTreeMap<QueueId, bytes::Bytes>,
    /// The wall clock minus the engine's time.
    skew_ms: i64,
    next_number: Option<u64>,
}

impl<'a> Lines<'a> {
    pub(crate) fn begin(to: &'a mut dyn Write, about: About<'_>, shown: Shown) -> io::Result<Self> {
        let (sum, exported, names) = (Sha256::new(), Exported::default(), BTreeMap::new());
        let mut lines = Self { to, sum, written: 0, exported, names, skew_ms: 0, next_number: None };
        let mut line = Line::default();
        line.number("windlass_export", EXPORT_VERSION);
        line.text("daemon", about.daemon.as_bytes());
        line.number("commit", shown.commit);
        line.number("written_at_ms", about.written_at.0);
        line.number("records", shown.records);
        line.number("whole", shown.whole.into());
        lines.write(&line.finish())?;
        Ok(lines)
    }

    /// Names a queue that has no line of its own.
    fn name(&mut self, image: &QueueImage) {
        self.names.insert(image.id, image.name.clone());
    }

    /// Writes the line of a whole record. The engine's own values come first, queues before their jobs. Other records
    /// have no line.
    pub(crate) fn put(&mut self, record: Record) -> io::Result<()> {
        let (skew_ms, exported) = (self.skew_ms, &mut self.exported);
        let line = match record {
            Record::Meta(meta) => {
                self.skew_ms = meta.meta.clock.skew_ms;
                // After a kill, numbers that were only reserved may have been assigned.
                let (next, reserved) = (meta.meta.next_job, meta.meta.reserved);
                self.next_number = Some(if meta.clean { next } else { next.max(reserved) });
                engine_line(meta)
            }
            Record::QueueSet(image) => {
                exported.queues += 1;
                self.name(&image);
                queue_line(&image)
            }
            Record::Put(mut job) => {
                exported.jobs += 1;
                job.shift(skew_ms);
                job_line(&job, self.names.get(&job.queue))
            }
            Record::Schedule(mut schedule) => {
                exported.schedules += 1;
                schedule.shift(skew_ms);
                schedule_line(&schedule)
            }
            Record::Batch(mut batch) => {
                exported.batches += 1;
                batch.shift(skew_ms);
                batch_line(&batch)
            }
            Record::Day(begin) => {
                exported.days += 1;
                day_line(&begin)
            }
            Record::Moved(_) | Record::Gone(_) | Record::QueueGone(_) | Record::NextRun(_) | Record::BatchMoved(_) => {
                return Ok(());
            }
        };
        self.write(&line)
    }

    /// Completes the export.
    pub(crate) fn end(mut self) -> io::Result<Exported> {
        if let Some(next) = self.next_number {
            let mut line = Line::default();
            line.number("next_number", next);
            self.write(&line.finish())?;
        }
        let mut line = Line::default();
        let Exported { jobs, queues, schedules, batches, days } = self.exported;
        line.number("export_end", self.written);
        let counts =
            [("jobs", jobs), ("queues", queues), ("schedules", schedules), ("batches", batches), ("days", days)];
        counts.into_iter().for_each(|(name, count)| line.number(name, count));
        line.text("sha256", hex::encode(self.sum.finalize()).as_bytes());
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

fn engine_line(meta: MetaRecord) -> String {
    let mut line = Line::default();
    line.number("engine", meta.meta.boot_count);
    put_totals(&mut line, &meta.meta.totals);
    line.record(&Record::Meta(meta));
    line.finish()
}

fn day_line(begin: &DayBegin) -> String {
    let mut line = Line::default();
    line.number("day", begin.day);
    line.number("number", begin.number);
    put_totals(&mut line, &begin.totals);
    line.record(&Record::Day(*begin));
    line.finish()
}

fn put_totals(line: &mut Line, totals: &Totals) {
    let named = [("pushed", totals.pushed), ("succeeded", totals.succeeded), ("failed", totals.failed)];
    named.into_iter().for_each(|(name, total)| line.number(name, total));
}

fn queue_line(image: &QueueImage) -> String {
    let mut line = Line::default();
    line.text("queue_settings", &image.name);
    let kind = match image.kind {
        QueueKind::Work => "work",
        QueueKind::Cycle => "cycle",
    };
    line.text("kind", kind.as_bytes());
    line.number("paused", u64::from(!image.paused.is_empty()));
    image.paused_at.into_iter().for_each(|at| line.number("paused_at_ms", at.0));
    let mut record = Vec::new();
    encode_queue(image, &mut record);
    line.base64("record_base64", &record);
    line.finish()
}

fn job_line(job: &Job, queue: Option<&bytes::Bytes>) -> String {
    let mut line = Line::default();
    line.number("job", job.id.0);
    match queue {
        Some(name) => line.text("queue", name),
        None => line.number("queue_number", job.queue.0.into()),
    }
    line.number("origin", job.protocol.0.into());
    line.number("priority", job.priority.value().into());
    let (place, due_at) = place(&job.state);
    line.text("place", place.as_bytes());
    line.number("ready_at_ms", job.ready_at.0);
    if let Some(at) = due_at.filter(|at| *at < Timestamp::NEVER) {
        line.number("due_at_ms", at.0);
    }
    line.number("attempts", job.attempts.into());
    line.number("failures", job.failures.into());
    if let Some(key) = job.key() {
        line.text("key", key);
    }
    if !job.name().is_empty() {
        line.text("name", job.name());
    }
    if let Some(failure) = job.extra.as_deref().and_then(|extra| extra.failure.as_deref()) {
        line.text("failure", &failure.message);
    }
    if let Some(member) = job.extra.as_deref().and_then(|extra| extra.member) {
        line.number("in_batch", member.batch.0);
    }
    if !job.meta().is_empty() {
        line.base64("meta_base64", &job.meta());
    }
    line.base64("body_base64", job.body());
    let bare = Job { payload: Payload::copy(job.key(), job.name(), &[]), ..job.clone() };
    line.record(&Record::Put(bare));
    line.finish()
}

fn batch_line(batch: &Batch) -> String {
    let mut line = Line::default();
    line.number("batch", batch.id.0);
    line.number("origin", batch.protocol.0.into());
    line.number("jobs", batch.progress.total);
    line.number("succeeded", batch.progress.succeeded);
    line.text("name", &batch.name);
    if let Some(parent) = &batch.parent_name {
        line.text("parent", parent);
    }
    if !batch.about.is_empty() {
        line.text("about", &batch.about);
    }
    if !batch.meta.is_empty() {
        line.base64("meta_base64", &batch.meta);
    }
    if let Some(job) = &batch.complete {
        line.text("complete_queue", &job.queue);
        line.base64("complete_body_base64", &job.body);
    }
    if let Some(job) = &batch.success {
        line.text("success_queue", &job.queue);
        line.base64("success_body_base64", &job.body);
    }
    line.record(&Record::Batch(Box::new(batch.clone())));
    line.finish()
}

fn schedule_line(schedule: &Schedule) -> String {
    let (mut line, job) = (Line::default(), &schedule.job);
    line.number("schedule", schedule.id.0);
    line.text("queue", &job.queue);
    line.number("origin", job.protocol.0.into());
    line.number("priority", job.priority.value().into());
    match &schedule.recurrence {
        Recurrence::Cron(cron) => line.text("cron", cron.to_string().as_bytes()),
        Recurrence::Zoned(cron, zone) => {
            line.text("cron", cron.to_string().as_bytes());
            line.text("timezone", zone.name().as_bytes());
        }
        Recurrence::Every { interval_ms } => line.number("every_ms", *interval_ms),
    }
    line.number("next_at_ms", schedule.next_at.0);
    if let Some(runs) = schedule.runs_left {
        line.number("runs_left", runs);
    }
    let unique = job.unique.as_ref().map(|unique| &unique.key);
    for (field, bytes) in [("key", schedule.key.as_ref()), ("unique", unique), ("name", job.name.as_ref())] {
        if let Some(bytes) = bytes {
            line.text(field, bytes);
        }
    }
    if !job.meta.is_empty() {
        line.base64("meta_base64", &job.meta);
    }
    line.base64("body_base64", &job.body);
    let job = NewJob { body: bytes::Bytes::new(), ..job.clone() };
    line.record(&Record::Schedule(Box::new(Schedule { job, ..schedule.clone() })));
    line.finish()
}

/// The name of a place, and its time.
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
