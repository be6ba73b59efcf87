//! Salvaged data as lines of JSON: for people and scripts to read, and for `windlass import jsonl` to take back.
//!
//! Lines are independent, so they can be selected, dropped and combined. The named fields are for readers. All other state is
//! in `record_base64`: the stored record without the body, which has a field of its own. A line without a record is a new job.

use std::collections::BTreeMap;
use std::io::{self, Write};

use windlass_engine::{Batch, Job, JobState, NewJob, Payload, QueueImage, QueueKind, Recurrence, Schedule, Timestamp};

use crate::record::{Record, encode_queue};
use crate::salvage::Salvage;

impl Salvage {
    /// Writes everything as lines of JSON, an object each. All times are wall-clock times, by the last known clock.
    ///
    /// First the queues: `queue_settings` (the queue's name), `kind`, `paused` (1 or 0), `paused_at_ms`. Then, in the order of their numbers,
    ///
    /// * jobs: `job`, `queue` (or `queue_number`, if its name is lost), `origin` (the protocol's number), `priority`, `place`, `ready_at_ms`,
    ///   `due_at_ms` (when it is scheduled or tried again; until when it is leased or kept), `attempts`, `failures`, `key`,
    ///   `name`, `failure`, `in_batch`, `meta_base64`, `body_base64`;
    /// * schedules: `schedule`, `queue`, `protocol`, `priority`, `cron` (and `timezone`, if it is not UTC) or `every_ms`,
    ///   `next_at_ms`, `runs_left`, `key`, `unique`, `name`, `meta_base64`, `body_base64`;
    /// * batches, whose numbers jobs give as `in_batch`: `batch`, `protocol`, `jobs`, `succeeded`, `name`, `parent`, `about`,
    ///   `meta_base64`, and of callbacks still to be pushed `complete_queue`, `complete_body_base64`, `success_queue`,
    ///   `success_body_base64`;
    ///
    /// and last `next_number`, the lower bound of unassigned numbers. Each line but the last also has `record_base64`. A byte
    /// string that is not UTF-8 goes under its name with the suffix `_base64`. Missing fields are left out.
    ///
    /// # Errors
    ///
    /// An error of the writer.
    pub fn export(&self, to: &mut dyn Write) -> io::Result<()> {
        // Of two queues with the same name the younger counts: the other was deleted.
        let skew_ms = self.meta().map_or(0, |meta| meta.meta.clock.skew_ms);
        let queues: BTreeMap<_, _> = self.queues.values().map(|image| (&image.name, image)).collect();
        for image in queues.into_values() {
            to.write_all(queue_line(image).as_bytes())?;
        }
        let schedules = self.schedules.iter().map(|(id, schedule)| (id, Thing::Schedule(schedule)));
        let batches = self.batches.iter().map(|(id, batch)| (id, Thing::Batch(batch)));
        let others: BTreeMap<_, _> = schedules.chain(batches).collect();
        let mut others = others.into_iter().peekable();
        for (id, job) in &self.jobs {
            while let Some((_, other)) = others.next_if(|(other, _)| *other < id) {
                to.write_all(other.line(skew_ms).as_bytes())?;
            }
            let mut job = job.clone();
            job.shift(skew_ms);
            to.write_all(job_line(&job, self.queues.get(&job.queue)).as_bytes())?;
        }
        for (_, other) in others {
            to.write_all(other.line(skew_ms).as_bytes())?;
        }
        if let Some(meta) = self.meta() {
            let mut line = Line::default();
            // After a kill, numbers that were only reserved may have been assigned.
            let given = if meta.clean { meta.meta.next_job } else { meta.meta.next_job.max(meta.meta.reserved) };
            line.number("next_number", given);
            to.write_all(line.finish().as_bytes())?;
        }
        to.flush()
    }
}

/// An entity among the jobs.
enum Thing<'a> {
    Schedule(&'a Schedule),
    Batch(&'a Batch),
}

impl Thing<'_> {
    fn line(&self, skew_ms: i64) -> String {
        match *self {
            Self::Schedule(schedule) => {
                let mut schedule = schedule.clone();
                schedule.shift(skew_ms);
                schedule_line(&schedule)
            }
            Self::Batch(batch) => {
                let mut batch = batch.clone();
                batch.shift(skew_ms);
                batch_line(&batch)
            }
        }
    }
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

fn job_line(job: &Job, queue: Option<&QueueImage>) -> String {
    let mut line = Line::default();
    line.number("job", job.id.0);
    match queue {
        Some(queue) => line.text("queue", &queue.name),
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

/// One line of JSON, an object of numbers and strings.
#[derive(Debug, Default)]
struct Line {
    text: String,
}

impl Line {
    fn name(&mut self, name: &str) {
        self.text.push(if self.text.is_empty() { '{' } else { ',' });
        self.string(name);
        self.text.push(':');
    }

    fn number(&mut self, name: &str, value: u64) {
        self.name(name);
        self.text.push_str(&value.to_string());
    }

    fn text(&mut self, name: &str, bytes: &[u8]) {
        match std::str::from_utf8(bytes) {
            Ok(text) => {
                self.name(name);
                self.string(text);
            }
            Err(_) => self.base64(&format!("{name}_base64"), bytes),
        }
    }

    fn base64(&mut self, name: &str, bytes: &[u8]) {
        self.name(name);
        self.text.push('"');
        bytes.chunks(3).for_each(|three| self.text.extend(four_letters(three)));
        self.text.push('"');
    }

    fn record(&mut self, record: &Record) {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        self.base64("record_base64", &bytes);
    }

    fn string(&mut self, text: &str) {
        self.text.push('"');
        for letter in text.chars() {
            match letter {
                '"' | '\\' => self.text.extend(['\\', letter]),
                '\0'..='\x1f' => self.text.push_str(&format!("\\u{:04x}", u32::from(letter))),
                _ => self.text.push(letter),
            }
        }
        self.text.push('"');
    }

    fn finish(mut self) -> String {
        self.text.push_str("}\n");
        self.text
    }
}

/// Encodes three bytes as four letters of base64 (RFC 4648), fewer bytes padded.
fn four_letters(bytes: &[u8]) -> [char; 4] {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits = (0..3).fold(0, |bits, i| bits << 8 | u32::from(bytes.get(i).copied().unwrap_or_default()));
    [0, 1, 2, 3].map(|i| {
        let letter = LETTERS.get((bits >> (18 - 6 * i) & 63) as usize).copied().unwrap_or_default();
        if i as usize <= bytes.len() { char::from(letter) } else { '=' }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_as_in_the_rfc() {
        let table =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("fooba", "Zm9vYmE=")];
        for (bytes, letters) in table {
            let encoded: String = bytes.as_bytes().chunks(3).flat_map(four_letters).collect();
            assert_eq!(encoded, letters, "{bytes}");
        }
        assert_eq!(four_letters(&[0xfb, 0xff, 0xfe]).iter().collect::<String>(), "+//+");
    }

    #[test]
    fn names_of_every_kind() {
        let mut line = Line::default();
        line.number("n", 7);
        line.text("plain", b"a \"b\" \\ \n \xc3\xa9");
        line.text("raw", b"\xff\xfe");
        assert_eq!(line.finish(), "{\"n\":7,\"plain\":\"a \\\"b\\\" \\\\ \\u000a \u{e9}\",\"raw_base64\":\"//4=\"}\n");
    }
}
