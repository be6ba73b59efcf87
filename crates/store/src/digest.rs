//! What a stretch of the log adds up to: the last word on each thing, and nothing of what began and ended within it.
//!
//! Not here: putting it into the table (`checkpoint`).

use std::ops::ControlFlow;

use windlass_engine::JobId;

use crate::codec::Reader;
use crate::log::records;
use crate::record::{Effect, Record, Subject, Tag};
use crate::store::{Error, LogTail, Place};

/// Records taken up at once: a digest takes 32 bytes for each.
const RECORDS_MAX: usize = 1 << 20;

/// Where a record stands in the log, and how long it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) place: Place,
    pub(crate) len: usize,
}

/// What became of one thing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Update {
    pub(crate) subject: Subject,
    pub(crate) number: u64,
    /// What was there before is gone.
    pub(crate) gone: bool,
    /// What there is now, whole; `None`: nothing, or what was there before.
    pub(crate) whole: Option<Span>,
    /// The part that changed last.
    pub(crate) part: Option<Span>,
}

/// The updates of a stretch of the log, by subject and number.
#[derive(Debug)]
pub(crate) struct Digest {
    pub(crate) updates: Vec<Update>,
    /// The last commit that was read; what was asked for, if nothing was.
    pub(crate) seq: u64,
    /// The next job's number after it; `None`: no commit was read.
    pub(crate) next_job: Option<JobId>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    number: u64,
    place: Place,
    len: u32,
    subject: Subject,
    effect: Effect,
}

impl Digest {
    /// Reads the commits behind `after` up to `upto`, or fewer if there is much in them. What has the number `born_from` or
    /// a higher one is younger than commit `after`.
    pub(crate) fn read(tail: &dyn LogTail, after: u64, upto: u64, born_from: JobId) -> Result<Self, Error> {
        let (mut seen, mut seq, mut head, mut damage) = (Vec::new(), after, None, None);
        tail.read(after, &mut |entry| {
            if entry.seq > upto || seen.len() >= RECORDS_MAX {
                return ControlFlow::Break(());
            }
            for record in records(entry.records) {
                let taken = record.and_then(|(at, record)| {
                    let tag = Tag::of(record)?;
                    if tag.subject == Subject::Head {
                        head = Some(record.to_vec());
                    }
                    let (place, len) =
                        (Place(entry.place.0 + at as u64), u32::try_from(record.len()).unwrap_or(u32::MAX));
                    seen.push(Seen { number: tag.number, place, len, subject: tag.subject, effect: tag.effect });
                    Ok(())
                });
                if let Err(why) = taken {
                    damage = Some(format!("commit {} cannot be read: {why}", entry.seq));
                    return ControlFlow::Break(());
                }
            }
            seq = entry.seq;
            ControlFlow::Continue(())
        })?;
        if let Some(what) = damage {
            return Err(Error::Damaged { path: std::path::PathBuf::new(), what });
        }
        seen.sort_unstable_by_key(|seen| (seen.subject, seen.number, seen.place));
        let same = |one: &Seen, two: &Seen| (one.subject, one.number) == (two.subject, two.number);
        let updates = seen.chunk_by(same).filter_map(|records| fold(records, born_from)).collect();
        Ok(Self { updates, seq, next_job: head.as_deref().and_then(next_job) })
    }
}

/// What all records of one thing come to; `None`: it began and ended among them.
fn fold(records: &[Seen], born_from: JobId) -> Option<Update> {
    let first = records.first()?;
    let mut update = Update { subject: first.subject, number: first.number, gone: false, whole: None, part: None };
    for record in records {
        let span = Span { place: record.place, len: record.len as usize };
        match record.effect {
            Effect::Whole => (update.whole, update.part) = (Some(span), None),
            // Of what is gone there are no parts.
            Effect::Part if update.gone && update.whole.is_none() => {}
            Effect::Part => update.part = Some(span),
            Effect::Gone => (update.gone, update.whole, update.part) = (true, None, None),
        }
    }
    let is_young = update.subject == Subject::Entity && JobId(update.number) >= born_from;
    let is_nothing = update.whole.is_none() && is_young;
    (!is_nothing).then_some(update)
}

fn next_job(head: &[u8]) -> Option<JobId> {
    match Record::decode(&mut Reader::new(head)) {
        Ok(Record::Head(head)) => Some(JobId(head.head.next_job)),
        _ => None,
    }
}
