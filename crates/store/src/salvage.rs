//! What can be read of a journal that recovery refuses: every job that is whole, as lines of JSON for people and scripts.
//!
//! Nothing here trusts anything else to be there. Values that are damaged are passed over, records that begin in one are
//! lost, and those that follow in the next are found again. A job whose end was lost may be told of although it had
//! ended: whoever reads the export decides.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::ControlFlow;

use windlass_engine::{Batch, Job, JobId, PlaceKind, QueueId, QueueImage, Recurrence, Schedule};

use crate::codec::Reader;
use crate::frame::{Frame, open};
use crate::record::Record;
use crate::store::{Error, Store};

/// What was saved, and what was not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Salvage {
    /// Jobs by number, as they last stood.
    pub jobs: BTreeMap<JobId, Job>,
    /// Schedules by number, as they last stood.
    pub schedules: BTreeMap<JobId, Schedule>,
    /// Batches by number, as they last stood.
    pub batches: BTreeMap<JobId, Batch>,
    /// Queues by number.
    pub queues: BTreeMap<QueueId, QueueImage>,
    /// Values looked at.
    pub values: u64,
    /// Keys of values that could not be read, and why.
    pub damaged: Vec<(u64, String)>,
}

/// Reads whatever can be read.
///
/// # Errors
///
/// Only if the store itself gives up.
pub fn salvage(store: &dyn Store) -> Result<Salvage, Error> {
    let (mut found, mut thread) = (Salvage::default(), Thread::default());
    store.scan(&mut |key, value| {
        found.values += 1;
        match open(key, value) {
            Ok(frame) => thread.follow(key, &frame, &mut found),
            Err(why) => {
                thread.end(&mut found);
                found.damaged.push((key, why.to_string()));
            }
        }
        ControlFlow::Continue(())
    })?;
    thread.end(&mut found);
    Ok(found)
}

/// The records of one commit, as far as its parts are there without a gap.
#[derive(Debug, Default)]
struct Thread {
    /// The commit, the key of its part that was read last, and whether that was the last there is.
    at: Option<(u64, u64)>,
    records: Vec<u8>,
}

impl Thread {
    fn follow(&mut self, key: u64, frame: &Frame<'_>, found: &mut Salvage) {
        let goes_on = frame.part > 0 && self.at.is_some_and(|(seq, last)| (seq, last + 1) == (frame.seq, key));
        let slice = if goes_on {
            frame.slice
        } else {
            self.end(found);
            // Whatever is before this belongs to a record whose beginning is not there.
            frame.slice.get(frame.starts_at as usize..).unwrap_or_default()
        };
        self.records.extend_from_slice(slice);
        self.at = Some((frame.seq, key));
        if frame.part + 1 == frame.parts {
            self.end(found);
        }
    }

    /// Takes down what has been gathered.
    fn end(&mut self, found: &mut Salvage) {
        let records = std::mem::take(&mut self.records);
        let Some((_, key)) = self.at.take() else { return };
        let mut reader = Reader::new(&records);
        while reader.left() > 0 {
            match Record::decode(&mut reader) {
                Ok(record) => found.take(record),
                Err(why) => return found.damaged.push((key, why.to_string())),
            }
        }
    }
}

impl Salvage {
    fn take(&mut self, record: Record) {
        match record {
            Record::Put(job) => drop(self.jobs.insert(job.id, job)),
            Record::Moved(moved) => {
                if let Some(job) = self.jobs.get_mut(&moved.job) {
                    moved.apply(job);
                }
            }
            Record::Gone(id) => drop((self.jobs.remove(&id), self.schedules.remove(&id), self.batches.remove(&id))),
            Record::Schedule(schedule) => drop(self.schedules.insert(schedule.id, *schedule)),
            Record::NextRun(next) => {
                if let Some(schedule) = self.schedules.get_mut(&next.schedule) {
                    next.apply(schedule);
                }
            }
            Record::Batch(batch) => drop(self.batches.insert(batch.id, *batch)),
            Record::BatchMoved(moved) => {
                if let Some(batch) = self.batches.get_mut(&moved.batch) {
                    batch.standing = moved.standing;
                }
            }
            // A queue that is gone may be the only one that tells what its jobs' queue was called.
            Record::QueueSet(image) => drop(self.queues.insert(image.id, image)),
            Record::QueueGone(_) | Record::Head(_) => {}
        }
    }

    /// Writes every job as one line of JSON: `job`, `queue`, `origin`, `priority`, `place`, `ready_at_ms`, `attempts`,
    /// `failures`, `key`, `name`, `meta_base64`, `body_base64`. A byte string that is not UTF-8 goes under its name with
    /// `_base64` behind it; what a job lacks is left out. Then the schedules: `schedule`, `queue`, `origin`, `priority`,
    /// `cron` or `every_ms`, `next_at_ms`, `runs_left`, `key`, `unique`, `name`, `meta_base64`, `body_base64`. Then the
    /// batches, whose numbers jobs give as `in_batch`: `batch`, `origin`, `jobs`, `succeeded`, `name`, `parent`, `about`,
    /// `meta_base64`, and of callbacks still to be pushed `complete_queue`, `complete_body_base64`, `success_queue`,
    /// `success_body_base64`.
    ///
    /// # Errors
    ///
    /// Whatever the writer says.
    pub fn export(&self, to: &mut dyn Write) -> io::Result<()> {
        for job in self.jobs.values() {
            let mut line = Line::default();
            line.number("job", job.id.0);
            match self.queues.get(&job.queue) {
                Some(queue) => line.text("queue", &queue.name),
                None => line.number("queue_number", job.queue.0.into()),
            }
            line.number("origin", job.origin.0.into());
            line.number("priority", job.priority.value().into());
            line.text("place", place_name(job.place.kind()).as_bytes());
            line.number("ready_at_ms", job.ready_at.0);
            line.number("attempts", job.attempts.into());
            line.number("failures", job.failures.into());
            if let Some(key) = job.key() {
                line.text("key", key);
            }
            if !job.name().is_empty() {
                line.text("name", job.name());
            }
            if let Some(member) = job.extra.as_deref().and_then(|extra| extra.member) {
                line.number("in_batch", member.batch.0);
            }
            if !job.meta().is_empty() {
                line.base64("meta_base64", &job.meta());
            }
            line.base64("body_base64", job.body());
            to.write_all(line.finish().as_bytes())?;
        }
        for schedule in self.schedules.values() {
            to.write_all(schedule_line(schedule).as_bytes())?;
        }
        for batch in self.batches.values() {
            to.write_all(batch_line(batch).as_bytes())?;
        }
        to.flush()
    }
}

fn batch_line(batch: &Batch) -> String {
    let mut line = Line::default();
    line.number("batch", batch.id.0);
    line.number("origin", batch.origin.0.into());
    line.number("jobs", batch.standing.total);
    line.number("succeeded", batch.standing.succeeded);
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
    line.finish()
}

fn schedule_line(schedule: &Schedule) -> String {
    let (mut line, job) = (Line::default(), &schedule.job);
    line.number("schedule", schedule.id.0);
    line.text("queue", &job.queue);
    line.number("origin", job.origin.0.into());
    line.number("priority", job.priority.value().into());
    match &schedule.recurrence {
        Recurrence::Cron(cron) => line.text("cron", cron.to_string().as_bytes()),
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
    line.finish()
}

const fn place_name(place: PlaceKind) -> &'static str {
    match place {
        PlaceKind::Ready => "ready",
        PlaceKind::Leased => "leased",
        PlaceKind::Scheduled => "scheduled",
        PlaceKind::Retrying => "retrying",
        PlaceKind::Dead => "dead",
        PlaceKind::Shelved => "shelved",
        PlaceKind::Done => "done",
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

/// Three bytes as four letters of base64 (RFC 4648), fewer bytes padded.
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
