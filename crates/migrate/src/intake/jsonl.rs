//! Lines of JSON, from `windlass export`, `windlass salvage`, or written by hand.
//!
//! A line with a `stored_base64` (`record_base64` in exports of version 1) is that record; only its queue and its body
//! come from other fields. A line without one is a new job, which needs only a `queue`, or the first or last line of an export. Unknown fields in a new job are
//! errors.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use serde_json::{Map, Value};
use windlass_codec::DecodeError;
use windlass_engine::{
    Batch, DayBegin, Job, JobState, KeyUntil, Namespace, NamespaceImage, NamespaceLimits, NewJob,
    Past, Payload, Priority, Protocol, QueueId, QueueImage, QueueKind, Schedule, Timestamp, Unique,
};
use windlass_session::protocol::{self, ImportTerms};
use windlass_store::{MetaRecord, Record, unnamed};

use super::format_1;

/// The content of a line.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// A queue and its settings.
    Queue(QueueImage),
    /// An exported job, and the name of its queue.
    Job(Box<Job>, Bytes),
    /// A new job.
    New(Box<NewJob>),
    /// A schedule.
    Schedule(Box<Schedule>),
    /// A batch.
    Batch(Box<Batch>),
    /// The smallest number that was never assigned.
    NextNumber(u64),
    /// The engine's own values.
    Engine(Box<MetaRecord>),
    /// The totals when a day began.
    Day(DayBegin),
    /// A namespace.
    Namespace(Box<NamespaceImage>),
    /// The first line of an export.
    Heading(Heading),
    /// The last line of an export.
    Ending(Ending),
}

impl From<NewJob> for Line {
    fn from(job: NewJob) -> Self {
        Self::New(Box::new(job))
    }
}

/// The first line of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heading {
    /// The version of its format.
    pub version: u64,
    /// The last commit whose changes are in it.
    pub commit: u64,
    /// The store was in order.
    pub whole: bool,
}

/// The last line of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// The lines before it.
    pub lines: u64,
    /// SHA-256 of these lines, in lower-case hex.
    pub digest: String,
}

/// The protocols that a new job can have, by number.
pub type Origins = [Arc<dyn protocol::Protocol>];

/// Their names, as a sentence has them.
fn names(origins: &Origins) -> String {
    let names: Vec<&str> = origins.iter().map(|protocol| protocol.name()).collect();
    names
        .split_last()
        .map_or_else(String::new, |(last, others)| {
            format!("{} or {last}", others.join(", "))
        })
}

/// Fields of a new job, and fields of an export that serve only for reading.
const FIELDS: &str = "queue queue_base64 kind origin priority place ready_at_ms due_at_ms failures key key_base64 name name_base64 \
                      meta_base64 body body_base64 job attempts failure in_batch";

impl Line {
    /// Reads a line. Of a format of a later version, only the first and last lines can be relied on.
    ///
    /// # Errors
    ///
    /// Why the line cannot be imported.
    pub fn read(line: &[u8], origins: &Origins) -> Result<Self, String> {
        let fields = match serde_json::from_slice(line) {
            Ok(Value::Object(fields)) => Fields(fields),
            Ok(_) => return Err("not a JSON object: another value".to_owned()),
            Err(why) => return Err(format!("not a JSON object: {why}")),
        };
        if let Some(next) = fields.number("next_number")? {
            return Ok(Self::NextNumber(next));
        }
        if let Some(version) = fields.number("windlass_export")? {
            let number = |field| Ok::<_, String>(fields.number(field)?.unwrap_or_default());
            return Ok(Self::Heading(Heading {
                version,
                commit: number("commit")?,
                whole: number("whole")? == 1,
            }));
        }
        if let Some(lines) = fields.number("export_end")? {
            let digest = fields.text("sha256")?.unwrap_or_default().to_owned();
            return Ok(Self::Ending(Ending { lines, digest }));
        }
        if let Some(stored) = fields.base64("stored_base64")? {
            let mut records = Record::all(&stored);
            let record = records.next().ok_or_else(|| missing("stored_base64"))?;
            let is_all = records.next().is_none();
            return fields.recorded(record.map(|record| is_all.then_some(record)));
        }
        match fields.base64("record_base64")? {
            Some(record) => fields.recorded(format_1::record(&record)),
            None => fields.new_job(origins).map(|job| Self::New(Box::new(job))),
        }
    }
}

struct Fields(Map<String, Value>);

impl Fields {
    /// `None`: something follows the record.
    fn recorded(&self, record: Result<Option<Record>, DecodeError>) -> Result<Line, String> {
        let record = record.map_err(|why| unreadable(&why))?;
        let record = record.ok_or_else(|| unreadable(&"trailing bytes after the record"))?;
        let queue = || self.queue();
        let body = || self.bytes("body")?.ok_or_else(|| missing("body_base64"));
        match record {
            Record::Put(job) => {
                let payload = Payload::new(job.key(), job.name(), &body()?);
                Ok(Line::Job(Box::new(Job { payload, ..job }), queue()?))
            }
            Record::Schedule(mut schedule) => {
                (schedule.job.queue, schedule.job.body) = (queue()?, body()?);
                Ok(Line::Schedule(schedule))
            }
            Record::Batch(batch) => Ok(Line::Batch(batch)),
            Record::QueueSet(image) => {
                let name = self
                    .bytes("queue_settings")?
                    .ok_or_else(|| missing("queue_settings"))?;
                Ok(Line::Queue(QueueImage { name, ..image }))
            }
            Record::Day(begin) => Ok(Line::Day(begin)),
            Record::Namespace(image) => Ok(Line::Namespace(image)),
            Record::Meta(meta) => Ok(Line::Engine(Box::new(meta))),
            Record::Moved(_)
            | Record::Gone(_)
            | Record::QueueGone(_)
            | Record::NamespaceGone(_)
            | Record::NextRun(_)
            | Record::BatchMoved(_)
            | Record::Ended(_) => Err(unreadable(&"it is not a job, schedule, batch or queue")),
        }
    }

    /// The name of a queue. `windlass salvage` gave a number in place of one that was lost.
    fn queue(&self) -> Result<Bytes, String> {
        if let Some(name) = self.bytes("queue")? {
            return Ok(name);
        }
        let number = self
            .number("queue_number")?
            .and_then(|number| number.try_into().ok());
        number
            .map(|number| unnamed(QueueId(number)))
            .ok_or_else(|| missing("queue"))
    }

    fn new_job(&self, origins: &Origins) -> Result<NewJob, String> {
        if ["schedule", "batch", "queue_settings"]
            .iter()
            .any(|field| self.0.contains_key(*field))
        {
            return Err(missing("stored_base64"));
        }
        if let Some(unknown) = self
            .0
            .keys()
            .find(|field| !FIELDS.split(' ').any(|known| known == *field))
        {
            return Err(format!("`{unknown}` is not a field of a new job"));
        }
        let queue = self.bytes("queue")?.ok_or_else(|| missing("queue"))?;
        let (protocol, terms) = self.origin(origins)?;
        let kind = match self.text("kind")? {
            None => terms.kind,
            Some("work") => QueueKind::Work,
            Some("cycle") => QueueKind::Cycle,
            Some(_) => return Err(unfit("kind", "work or cycle")),
        };
        let body = self.bytes("body")?.unwrap_or_default();
        let priority = match self.number("priority")? {
            None => Priority::NORMAL,
            Some(value @ 1..=9) => Priority::clamped(u8::try_from(value).unwrap_or_default()),
            Some(_) => return Err(unfit("priority", "a number from 1 to 9")),
        };
        let unique = self.bytes("key")?.map(|key| Unique {
            key,
            clash: terms.clash,
            until: KeyUntil::End,
        });
        let failures = u32::try_from(self.number("failures")?.unwrap_or(0)).unwrap_or(u32::MAX);
        let ready_at = self.number("ready_at_ms")?.map(Timestamp);
        let (not_before, place) = self.place()?;
        let past = Past {
            ready_at,
            failures,
            state: place,
        };
        Ok(NewJob {
            kind,
            priority,
            name: self.bytes("name")?.filter(|name| !name.is_empty()),
            meta: self.base64("meta_base64")?.unwrap_or_default().into(),
            unique,
            not_before,
            retry_default: true,
            past: (past != Past::default() && kind == QueueKind::Work).then(|| Box::new(past)),
            ..NewJob::new(protocol, queue, body)
        })
    }

    /// The protocol of a new job, by name or by number. Without either it is Gearman's.
    fn origin(&self, origins: &Origins) -> Result<(Protocol, ImportTerms), String> {
        let known = |id: Protocol| origins.iter().find(|protocol| protocol.id() == id);
        let found = match self.0.get("origin") {
            None => known(Protocol::GEARMAN),
            Some(Value::String(name)) => origins.iter().find(|protocol| protocol.name() == name),
            Some(_) => self
                .number("origin")?
                .and_then(|number| u8::try_from(number).ok())
                .and_then(|id| known(Protocol(id))),
        };
        let found = found.map(|protocol| (protocol.id(), protocol.import_terms()));
        found.ok_or_else(|| {
            let expected = if self.0.get("origin").is_some_and(Value::is_string) {
                names(origins)
            } else {
                format!(
                    "a number from 1 to {}, or the name of a protocol",
                    origins.len()
                )
            };
            unfit("origin", &expected)
        })
    }

    /// When a new job may first be taken, and its state if the time does not imply it.
    fn place(&self) -> Result<(Option<Timestamp>, Option<JobState>), String> {
        let due_at = || {
            self.number("due_at_ms")?
                .map(Timestamp)
                .ok_or_else(|| missing("due_at_ms"))
        };
        match self.text("place")? {
            None | Some("ready" | "leased") => Ok((None, None)),
            Some("scheduled") => Ok((Some(due_at()?), None)),
            Some("retrying") => Ok((None, Some(JobState::Retrying(due_at()?)))),
            Some("dead") => Ok((None, Some(JobState::Dead(due_at()?)))),
            Some(_) => Err(unfit("place", "ready, leased, scheduled, retrying or dead")),
        }
    }

    fn text(&self, field: &str) -> Result<Option<&str>, String> {
        match self.0.get(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(unfit(field, "a string")),
        }
    }

    fn number(&self, field: &str) -> Result<Option<u64>, String> {
        match self.0.get(field) {
            None => Ok(None),
            Some(value) => value
                .as_u64()
                .map(Some)
                .ok_or_else(|| unfit(field, "a whole number")),
        }
    }

    fn base64(&self, field: &str) -> Result<Option<Vec<u8>>, String> {
        let Some(text) = self.text(field)? else {
            return Ok(None);
        };
        BASE64_STANDARD
            .decode(text)
            .map(Some)
            .map_err(|_| unfit(field, "base64"))
    }

    /// A byte string: as text under its name, or as base64 under the name with `_base64` appended.
    fn bytes(&self, field: &'static str) -> Result<Option<Bytes>, String> {
        let coded = format!("{field}_base64");
        match (self.text(field)?, self.base64(&coded)?) {
            (Some(_), Some(_)) => Err(unfit(&coded, "allowed beside the field without `_base64`")),
            (Some(text), None) => Ok(Some(Bytes::copy_from_slice(text.as_bytes()))),
            (None, coded) => Ok(coded.map(Bytes::from)),
        }
    }
}

fn unfit(field: &str, expected: &str) -> String {
    format!("`{field}` is not {expected}")
}

fn missing(field: &str) -> String {
    format!("`{field}` is missing")
}

fn unreadable(why: &dyn fmt::Display) -> String {
    format!("the stored record cannot be read: {why}")
}

/// The range of sort keys in a file: an import moves the range as a whole, so that the jobs keep their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ranks(Option<(u64, u64)>);

impl Ranks {
    /// The length above which a range is taken as corrupt: no file holds this many jobs.
    const MANY: u64 = 1 << 60;

    /// Extends the range by one line.
    pub fn see(&mut self, line: &Line) {
        if let Line::Job(job, _) = line {
            let (first, last) = self.0.unwrap_or((job.rank, job.rank));
            self.0 = Some((first.min(job.rank), last.max(job.rank)));
        }
    }

    /// The first sort key, and the length of the range. `None`: the order cannot be kept.
    pub(super) fn span(self) -> Option<(u64, u64)> {
        let (first, last) = self.0?;
        Some((first, last - first + 1)).filter(|(_, many)| *many < Self::MANY)
    }
}

/// The namespaces of the lines of a file, by their numbers there. One without a line of its own has no name.
#[derive(Clone, Debug, Default)]
pub struct Fleets(BTreeMap<Namespace, NamespaceImage>);

impl Fleets {
    /// How many an error names.
    const NAMED_MAX: usize = 5;

    /// Notes the namespace of one line.
    pub fn see(&mut self, line: &Line) {
        let of = match line {
            Line::Namespace(image) => {
                self.0.insert(image.id, NamespaceImage::clone(image));
                return;
            }
            Line::Queue(image) => image.id.namespace(),
            Line::Job(job, _) => job.queue.namespace(),
            Line::New(job) => job.namespace,
            Line::Schedule(schedule) => schedule.job.namespace,
            Line::Batch(batch) => batch.namespace,
            Line::NextNumber(_)
            | Line::Engine(_)
            | Line::Day(_)
            | Line::Heading(_)
            | Line::Ending(_) => return,
        };
        self.0.entry(of).or_default();
    }

    /// The limits of the only namespace of the file.
    ///
    /// # Errors
    ///
    /// The file has several, and which.
    pub fn limits_of_one(&self) -> Result<NamespaceLimits, String> {
        if self.0.len() <= 1 {
            let one = self.0.values().next();
            return Ok(one.map(|image| image.limits).unwrap_or_default());
        }
        let name = |image: &NamespaceImage| format!("{:?}", String::from_utf8_lossy(&image.name));
        let names: Vec<String> = self.0.values().take(Self::NAMED_MAX).map(name).collect();
        Err(format!(
            "it has {} namespaces ({}); `windlass export --namespace NAME` exports one",
            self.0.len(),
            names.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_one_namespace_has_its_limits() {
        let image = |id, name: &'static str| NamespaceImage {
            id: Namespace(id),
            name: name.into(),
            limits: NamespaceLimits {
                jobs_max: Some(7),
                ..NamespaceLimits::default()
            },
            ..NamespaceImage::default()
        };
        let new_job = || Line::from(NewJob::new(Protocol::GEARMAN, "q".into(), "".into()));
        let queue_of = |id| {
            Line::Queue(QueueImage {
                id: QueueId::new(Namespace(id), 1),
                ..QueueImage::new(QueueId(1), "q".into(), QueueKind::Work)
            })
        };
        let shop = || Line::Namespace(Box::new(image(3, "shop")));
        let table = [
            (vec![], Ok(None)),
            (vec![new_job(), queue_of(0), Line::NextNumber(3)], Ok(None)),
            (vec![shop(), queue_of(3)], Ok(Some(7))),
            (
                vec![queue_of(4), new_job(), shop()],
                Err("it has 3 namespaces (\"\", \"shop\", \"\")"),
            ),
        ];
        for (lines, expected) in table {
            let mut fleets = Fleets::default();
            lines.iter().for_each(|line| fleets.see(line));
            let found = fleets.limits_of_one().map(|limits| limits.jobs_max);
            let found = found.map_err(|why| why.split(';').next().map(str::to_owned));
            assert_eq!(found, expected.map_err(|why: &str| Some(why.to_owned())));
        }
    }

    #[test]
    fn a_range_of_sort_keys_has_a_length() {
        let span = |range| Ranks(range).span();
        assert_eq!(span(None), None);
        assert_eq!(span(Some((5, 5))), Some((5, 1)));
        assert_eq!(span(Some((5, 9))), Some((5, 5)));
        assert_eq!(span(Some((1, Ranks::MANY - 1))), Some((1, Ranks::MANY - 1)));
        assert_eq!(span(Some((0, Ranks::MANY - 1))), None, "corrupt");
    }
}
