//! The net effect of a range of the log: the latest state of each subject. A subject created and deleted
//! within the range is omitted.
//!
//! Not here: writing the result to the table (`checkpoint`).

use std::ops::ControlFlow;

use windlass_engine::JobId;

use crate::log::records;
use crate::page::{page_key, page_number};
use crate::record::{Effect, Record, Subject, Tag, is_ended};
use crate::store::{Error, LogTail, Position, Span};
use windlass_codec::Reader;

/// Maximum records of a digest, which needs 24 bytes for each.
const RECORDS_MAX: usize = 1 << 20;
/// Memory is reserved for a record per this many bytes of the log, because growing the memory later would
/// copy it.
const RECORD_BYTES: u64 = 64;

/// The net change of a subject.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Update {
    pub(crate) subject: Subject,
    pub(crate) number: u64,
    /// The previous state is deleted.
    pub(crate) gone: bool,
    /// The full record of the subject; `None`: unchanged or deleted.
    pub(crate) whole: Option<Span>,
    /// The latest record of the changing part.
    pub(crate) part: Option<Span>,
}

/// The updates of a range of the log.
#[derive(Debug)]
pub(crate) struct Digest {
    /// Ordered by subject, number and place.
    seen: Vec<Seen>,
    born_from: JobId,
    /// The last commit that was read; `after` if no commit was read.
    pub(crate) seq: u64,
    /// The next job's number after that commit; `None`: no commit was read.
    pub(crate) next_job: Option<JobId>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    number: u64,
    place: Position,
    len: u32,
    subject: Subject,
    effect: Effect,
}

impl Digest {
    /// Reads the commits after `after` up to `upto`, or fewer if they contain many records. Numbers from
    /// `born_from` on were assigned after commit `after`.
    pub(crate) fn read(
        tail: &dyn LogTail,
        after: u64,
        upto: u64,
        born_from: JobId,
    ) -> Result<Self, Error> {
        let room = usize::try_from(tail.bytes_behind(after) / RECORD_BYTES)
            .map_or(RECORDS_MAX, |n| n.min(RECORDS_MAX));
        let (mut seen, mut seq, mut meta, mut damage) =
            (Vec::with_capacity(room), after, None, None);
        tail.read(after, &mut |entry| {
            if entry.seq > upto || seen.len() >= RECORDS_MAX {
                return ControlFlow::Break(());
            }
            for record in records(entry.records) {
                let taken = record.and_then(|(at, record)| {
                    if is_ended(record) {
                        return Ok(());
                    }
                    let tag = Tag::of(record)?;
                    if tag.subject == Subject::Meta {
                        meta = Some(record.to_vec());
                    }
                    let (place, len) = (
                        Position(entry.place.0 + at as u64),
                        u32::try_from(record.len()).unwrap_or(u32::MAX),
                    );
                    seen.push(Seen {
                        number: tag.number,
                        place,
                        len,
                        subject: tag.subject,
                        effect: tag.effect,
                    });
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
            return Err(Error::damaged("log", what));
        }
        // Most of them are sorted already, which this stable sort exploits. It retains the order of
        // places.
        seen.sort_by_key(|seen: &Seen| (seen.subject, seen.number));
        Ok(Self {
            seen,
            born_from,
            seq,
            next_job: meta.as_deref().and_then(next_job),
        })
    }

    /// The updates, ordered by subject and number. They are computed for each call, because storing them
    /// would take several times the memory of the source.
    pub(crate) fn updates(&self) -> impl Iterator<Item = Update> {
        updates(&self.seen, self.born_from)
    }

    /// The updates of each page of the table, with the page's key, in order of keys.
    pub(crate) fn pages(&self) -> impl Iterator<Item = (Vec<u8>, Vec<Update>)> {
        let pages = self.seen.chunk_by(|one, two| page_of(one) == page_of(two));
        pages.filter_map(|seen| {
            let updates: Vec<_> = updates(seen, self.born_from).collect();
            let first = updates.first()?;
            Some((page_key(first.subject, first.number), updates))
        })
    }
}

fn updates(seen: &[Seen], born_from: JobId) -> impl Iterator<Item = Update> {
    let same = |one: &Seen, two: &Seen| (one.subject, one.number) == (two.subject, two.number);
    seen.chunk_by(same)
        .filter_map(move |records| fold(records, born_from))
}

const fn page_of(seen: &Seen) -> (Subject, u64) {
    (seen.subject, page_number(seen.subject, seen.number))
}

/// The net effect of all records of a subject; `None`: it was created and deleted among them.
fn fold(records: &[Seen], born_from: JobId) -> Option<Update> {
    let first = records.first()?;
    let mut update = Update {
        subject: first.subject,
        number: first.number,
        gone: false,
        whole: None,
        part: None,
    };
    for record in records {
        let span = Span {
            place: record.place,
            len: record.len as usize,
        };
        match record.effect {
            Effect::Whole => (update.whole, update.part) = (Some(span), None),
            // A deleted subject has no parts.
            Effect::Part if update.gone && update.whole.is_none() => {}
            Effect::Part => update.part = Some(span),
            Effect::Gone => (update.gone, update.whole, update.part) = (true, None, None),
        }
    }
    let is_young = update.subject == Subject::Entity && JobId(update.number) >= born_from;
    let is_nothing = update.whole.is_none() && is_young;
    (!is_nothing).then_some(update)
}

fn next_job(meta: &[u8]) -> Option<JobId> {
    match Record::decode(&mut Reader::new(meta)) {
        Ok(Record::Meta(meta)) => Some(JobId(meta.meta.next_job)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use windlass_engine::{DAYS_KEPT, DayBegin, Totals};

    use super::*;

    /// The net effect of records at the places 1, 2, …: the number, `true` if the previous state is deleted,
    /// and the places of the full record and of the changed part.
    type Folded = (u64, bool, Option<u64>, Option<u64>);

    fn folded(subject: Subject, born_from: u64, records: &[(u64, Effect)]) -> Vec<Folded> {
        let seen = |(place, (number, effect)): (u64, &(u64, Effect))| Seen {
            number: *number,
            place: Position(place),
            len: 1,
            subject,
            effect: *effect,
        };
        let seen: Vec<Seen> = (1..).zip(records).map(seen).collect();
        let place = |span: Option<Span>| span.map(|span| span.place.0);
        let shown = |update: Update| {
            (
                update.number,
                update.gone,
                place(update.whole),
                place(update.part),
            )
        };
        updates(&seen, JobId(born_from)).map(shown).collect()
    }

    #[test]
    fn the_last_records_of_a_subject_count() {
        use Effect::{Gone, Part, Whole};
        let table: [(&[Effect], _); 9] = [
            (&[Whole], (false, Some(1), None)),
            (&[Whole, Part], (false, Some(1), Some(2))),
            (&[Part, Whole], (false, Some(2), None)),
            (&[Part, Part], (false, None, Some(2))),
            (&[Gone], (true, None, None)),
            (&[Part, Gone], (true, None, None)),
            (&[Gone, Part], (true, None, None)),
            (&[Gone, Whole], (true, Some(2), None)),
            (&[Gone, Whole, Part], (true, Some(2), Some(3))),
        ];
        for (effects, (gone, whole, part)) in table {
            let records: Vec<_> = effects.iter().map(|effect| (5, *effect)).collect();
            assert_eq!(
                folded(Subject::Entity, 9, &records),
                [(5, gone, whole, part)],
                "{effects:?}"
            );
        }
    }

    #[test]
    fn an_entity_that_came_and_went_leaves_nothing() {
        let table = [
            (Subject::Entity, 9, true),
            (Subject::Entity, 10, false),
            (Subject::Entity, 11, false),
            (Subject::Queue, 9, true),
            (Subject::Queue, 10, true),
        ];
        for (subject, number, leaves) in table {
            let left = folded(subject, 10, &[(number, Effect::Gone)]);
            assert_eq!(left.len(), usize::from(leaves), "{subject:?} {number}");
        }
    }

    #[test]
    fn a_day_replaces_the_one_that_is_no_longer_kept() {
        let tag = |number: u64| {
            let mut bytes = Vec::new();
            Record::Day(DayBegin {
                number,
                day: 20_000,
                totals: Totals::default(),
            })
            .encode(&mut bytes);
            Tag::of(&bytes).unwrap()
        };
        assert_eq!(tag(3), tag(3 + DAYS_KEPT));
        assert_ne!(tag(3), tag(4));
    }
}
