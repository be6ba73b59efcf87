//! Merges the records of a page of the table with the updates of a range of the log.

use std::collections::VecDeque;

use windlass_engine::JobId;

use crate::digest::{Digest, Update};
use crate::page::{Item, Large, PIECE_BYTES, items, put_large, put_record};
use crate::record::{Effect, Subject, Tag};
use crate::store::{Error, LogTail, Span, Table};
use windlass_codec::DecodeError;

/// Bytes of records that are read from the log together; at least one record.
const AHEAD_BYTES: usize = 1 << 20;

/// The records of updates, read from the log in batches. They are needed in the order of the updates, but
/// some may be skipped.
pub(super) struct Records<'a> {
    tail: &'a dyn LogTail,
    /// Not read yet.
    updates: Box<dyn Iterator<Item = Update> + 'a>,
    /// Read and not needed yet: from `at` on, one after the other.
    ahead: VecDeque<Span>,
    bytes: Vec<u8>,
    at: usize,
}

impl<'a> Records<'a> {
    pub(super) fn of(tail: &'a dyn LogTail, digest: &'a Digest) -> Self {
        Self {
            tail,
            updates: Box::new(digest.updates()),
            ahead: VecDeque::new(),
            bytes: Vec::new(),
            at: 0,
        }
    }

    fn get(&mut self, wanted: Span) -> Result<&[u8], Error> {
        loop {
            while let Some(span) = self.ahead.pop_front() {
                let from = self.at;
                self.at += span.len;
                if span == wanted {
                    return self
                        .bytes
                        .get(from..self.at)
                        .ok_or_else(|| damaged(b"log", &DecodeError::Short));
                }
            }
            self.read_ahead()?;
        }
    }

    fn read_ahead(&mut self) -> Result<(), Error> {
        self.at = 0;
        self.bytes.clear();
        self.bytes.shrink_to(2 * AHEAD_BYTES);
        let mut len = 0;
        while len < AHEAD_BYTES
            && let Some(update) = self.updates.next()
        {
            let spans = [update.whole, update.part].into_iter().flatten();
            len += spans.clone().map(|span| span.len).sum::<usize>();
            self.ahead.extend(spans);
        }
        if self.ahead.is_empty() {
            return Err(Error::damaged("log", "a record was requested twice"));
        }
        self.tail
            .fetch(self.ahead.make_contiguous(), &mut self.bytes)
    }
}

/// Reads records from the log, and puts large ones into the table.
pub(super) struct Fetch<'a, 'b> {
    pub(super) records: &'b mut Records<'a>,
    pub(super) table: &'b mut dyn Table,
}

impl Fetch<'_, '_> {
    /// Appends the item for this record. Returns the record if it is large.
    fn put(&mut self, span: Span, out: &mut Vec<u8>) -> Result<(Option<Large>, u64), Error> {
        let record = self.records.get(span)?;
        let tag = Tag::of(record).map_err(|why| damaged(b"log", &why))?;
        if !Large::applies(record, tag) {
            put_record(out, record);
            return Ok((None, record.len() as u64));
        }
        let large = Large::of(record, tag, span.place.0);
        for (key, piece) in large.keys().zip(record.chunks(PIECE_BYTES)) {
            self.table.set(&key, piece)?;
        }
        put_large(out, large);
        Ok((Some(large), record.len() as u64))
    }
}

/// A page after the updates.
#[derive(Debug, Default)]
pub(super) struct Merged {
    pub(super) items: Vec<u8>,
    /// Large records it names.
    pub(super) kept: Vec<Large>,
    /// Large records it no longer names.
    pub(super) dropped: Vec<Large>,
    pub(super) records: u64,
    pub(super) records_before: u64,
    pub(super) bytes: u64,
    pub(super) bytes_before: u64,
}

impl Merged {
    fn keep(&mut self, tag: Tag, item: Item<'_>, raw: &[u8]) {
        self.items.extend_from_slice(raw);
        self.records += u64::from(tag.effect == Effect::Whole);
        self.bytes += bytes_of(item);
        if let Item::Large(large) = item {
            self.kept.push(large);
        }
    }

    fn write(
        &mut self,
        span: Option<Span>,
        whole: bool,
        fetch: &mut Fetch<'_, '_>,
    ) -> Result<(), Error> {
        let Some(span) = span else { return Ok(()) };
        let (large, bytes) = fetch.put(span, &mut self.items)?;
        self.records += u64::from(whole);
        self.bytes += bytes;
        self.kept.extend(large);
        Ok(())
    }
}

/// The items of a page that an unfinished checkpoint wrote, without those created after the point. Only the
/// log shows whether those are still alive, and the updates omit entities created and deleted since.
pub(super) fn older(key: &[u8], page: &[u8], born_from: JobId) -> Result<Vec<u8>, Error> {
    let mut older = Vec::new();
    for item in items(page) {
        let (tag, _, raw) = item.map_err(|why| damaged(key, &why))?;
        if tag.subject != Subject::Entity || JobId(tag.number) < born_from {
            older.extend_from_slice(raw);
        }
    }
    Ok(older)
}

const fn bytes_of(item: Item<'_>) -> u64 {
    match item {
        Item::Record(record) => record.len() as u64,
        Item::Large(large) => large.bytes as u64,
    }
}

/// The items of a page after the updates. Both inputs are sorted by number.
pub(super) fn merge(
    key: &[u8],
    old: &[u8],
    updates: &[Update],
    fetch: &mut Fetch<'_, '_>,
) -> Result<Merged, Error> {
    let mut merged = Merged::default();
    let mut updates = updates.iter().peekable();
    let mut old = items(old).peekable();
    loop {
        let number = match old.peek() {
            Some(Ok((tag, ..))) => Some(tag.number),
            Some(Err(why)) => return Err(damaged(key, why)),
            None => None,
        };
        let update = updates.next_if(|update| number.is_none_or(|number| update.number <= number));
        let Some(number) = update.map(|update| update.number).or(number) else {
            break;
        };
        let mut is_there = false;
        while let Some(item) =
            old.next_if(|item| matches!(item, Ok((tag, ..)) if tag.number == number))
        {
            let (tag, item, raw) = item.map_err(|why| damaged(key, &why))?;
            merged.records_before += u64::from(tag.effect == Effect::Whole);
            merged.bytes_before += bytes_of(item);
            let stays = update.is_none_or(|update| match tag.effect {
                Effect::Part => !update.gone && update.whole.is_none() && update.part.is_none(),
                Effect::Whole | Effect::Gone => !update.gone && update.whole.is_none(),
            });
            is_there |= tag.effect == Effect::Whole;
            match item {
                _ if stays => merged.keep(tag, item, raw),
                Item::Large(large) => merged.dropped.push(large),
                Item::Record(_) => {}
            }
        }
        if let Some(update) = update {
            merged.write(update.whole, true, fetch)?;
            // A changed part without a record is left over from a deleted entity.
            if update.whole.is_some() || is_there {
                merged.write(update.part, false, fetch)?;
            }
        }
    }
    // After an error the same range of the log is processed again, and the large records already
    // exist.
    let Merged { dropped, kept, .. } = &mut merged;
    dropped.retain(|one| {
        !kept
            .iter()
            .any(|other| (other.number, other.place) == (one.number, one.place))
    });
    Ok(merged)
}

pub(super) fn damaged(key: &[u8], why: &dyn std::fmt::Display) -> Error {
    Error::damaged("table", format!("page {key:02x?} cannot be read: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{MemoryLog, MemoryTable};
    use crate::store::Log as _;
    use windlass_codec::put_bytes;

    /// A full record of a job, as far as the tag is concerned.
    fn record(number: u8, bytes: usize) -> Vec<u8> {
        let mut record = vec![1, 2, 1, number];
        record.resize(bytes, 7);
        record
    }

    /// The log of a single commit.
    fn tail(records: impl IntoIterator<Item = Vec<u8>>) -> std::sync::Arc<dyn LogTail> {
        let mut commit = Vec::new();
        records
            .into_iter()
            .for_each(|record| put_bytes(&mut commit, &record));
        MemoryLog::with(vec![commit]).tail()
    }

    #[test]
    fn records_are_read_ahead_by_the_megabyte() {
        let tail = tail((1..=9).map(|number| record(number, AHEAD_BYTES / 4)));
        let digest = Digest::read(&*tail, 0, 1, JobId(1)).unwrap();
        let spans: Vec<Span> = digest.updates().filter_map(|update| update.whole).collect();
        let mut records = Records::of(&*tail, &digest);
        for (n, span) in (1..).zip(spans) {
            assert_eq!(records.get(span).unwrap(), record(n, AHEAD_BYTES / 4));
            let expected = if n == 9 { AHEAD_BYTES / 4 } else { AHEAD_BYTES };
            assert_eq!(records.bytes.len(), expected, "record {n}");
        }
    }

    #[test]
    fn of_an_unfinished_page_what_existed_before_it_is_kept() {
        let mut page = Vec::new();
        (3..=6).for_each(|number| put_record(&mut page, &record(number, 9)));
        let older = older(b"key", &page, JobId(5)).unwrap();
        let numbers: Vec<u64> = items(&older).map(|item| item.unwrap().0.number).collect();
        assert_eq!(numbers, [3, 4]);
    }

    #[test]
    fn a_replaced_large_record_is_dropped_unless_it_is_the_same() {
        let record = record(5, 3_000);
        let tail = tail([record.clone()]);
        let digest = Digest::read(&*tail, 0, 1, JobId(1)).unwrap();
        let update = digest.updates().next().unwrap();
        let place = update.whole.unwrap().place.0;
        for (before, dropped) in [(place, vec![]), (place + 1, vec![place + 1])] {
            let mut page = Vec::new();
            put_large(
                &mut page,
                Large::of(&record, Tag::of(&record).unwrap(), before),
            );
            let (mut records, mut table) = (Records::of(&*tail, &digest), MemoryTable::new());
            table.begin_anew().unwrap();
            let mut fetch = Fetch {
                records: &mut records,
                table: &mut table,
            };
            let merged = merge(b"key", &page, &[update], &mut fetch).unwrap();
            let places =
                |large: Vec<Large>| large.iter().map(|large| large.place).collect::<Vec<_>>();
            assert_eq!(
                (places(merged.kept), places(merged.dropped)),
                (vec![place], dropped)
            );
        }
    }
}
