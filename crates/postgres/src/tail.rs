//! Reading the log: what is in which of its tables, and the rows themselves.
//!
//! The index is in memory, read once when the store is opened: the log has one writer.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_store::{Entry, Error, LogTail, Position, Span};

use crate::address::Target;
use crate::lease::Lease;
use crate::link::Link;
use crate::schema::LOG_TABLES;

/// The bytes of the log are known to this many.
const MARK_BYTES: u64 = 64 << 10;
/// Records of a commit that are no further apart are read together.
const GAP_BYTES: u64 = 64 << 10;
/// How long a trim waits for a reader of a table, for instance a dump of the database.
const LOCK_TIMEOUT: &str = "3s";
const READING: &str = "reading the log in";
const TRIMMING: &str = "trimming the log in";

/// The commits of a log.
pub(crate) struct Tail {
    target: Target,
    /// `None`: the log is only read.
    lease: Option<Arc<Lease>>,
    /// A table of the log gets no more commits when it has this many bytes.
    table_bytes: u64,
    index: Mutex<Index>,
    /// Where the commits are that were read last, in order of their places.
    rows: Mutex<Vec<Place>>,
    /// The connection of the last fetch; a checkpoint makes many.
    reader: Mutex<Option<Link>>,
    /// The connection of the last reader that fetches nothing: the history looks for commits twice a second.
    skimmer: Mutex<Option<Link>>,
}

/// What is in which table.
#[derive(Debug, Default)]
struct Index {
    tables: [Held; LOG_TABLES],
    /// The table that takes commits.
    current: usize,
    /// The table that a commit is on its way to.
    on_its_way: Option<usize>,
    /// The newest durable commit.
    newest: u64,
    /// The place of the next commit.
    place: u64,
    /// Bytes of all commits ever seen by this process, and after some commits.
    total: u64,
    marks: VecDeque<(u64, u64)>,
}

/// The contents of one table.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    /// The last commit; 0: none.
    last: u64,
    bytes: u64,
}

/// Where a commit is.
#[derive(Clone, Copy, Debug)]
struct Place {
    place: u64,
    seq: u64,
    table: usize,
}

/// Where the next commit goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) table: usize,
    pub(crate) place: u64,
}

/// A commit's checksum.
pub(crate) fn checksum(seq: u64, records: &[u8]) -> i64 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&seq.to_le_bytes());
    hasher.update(records);
    hasher.finalize().into()
}

/// A number for the database. None of ours comes near the end of its range.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

impl Tail {
    /// Reads which commits there are. The caller has the lease, or no daemon has it.
    pub(crate) fn open(
        target: &Target,
        lease: Option<&Arc<Lease>>,
        link: &Link,
        table_bytes: u64,
    ) -> Result<Arc<Self>, Error> {
        let mut index = Index::default();
        let place = link.query(
            READING,
            &format!("SELECT place FROM {} WHERE id = 1", link.lease()),
            &[],
        )?;
        index.place = place
            .first()
            .map(|row| unsigned(row.get(0)))
            .unwrap_or_default();
        for (_, table) in in_order(link)? {
            let list = format!(
                "SELECT seq, place, octet_length(records) FROM {} ORDER BY seq",
                link.log(table)
            );
            let mut rows = link.rows(READING, &list, &[])?;
            while let Some(row) = rows.next(READING)? {
                let (seq, place, len): (i64, i64, i32) = (row.get(0), row.get(1), row.get(2));
                index.add(table, unsigned(seq), unsigned(place), unsigned(len.into()));
            }
            index.current = table;
        }
        Ok(Arc::new(Self {
            target: target.clone(),
            lease: lease.cloned(),
            table_bytes,
            index: Mutex::new(index),
            rows: Mutex::default(),
            reader: Mutex::default(),
            skimmer: Mutex::default(),
        }))
    }

    /// Where a commit of this many bytes goes. It stays there until [`Tail::appended`], however often it is tried.
    pub(crate) fn slot(&self) -> Slot {
        let mut index = lock(&self.index);
        let table = match index.on_its_way {
            Some(table) => table,
            None => {
                index.turn_if_full(self.table_bytes);
                index.current
            }
        };
        index.on_its_way = Some(table);
        Slot {
            table,
            place: index.place,
        }
    }

    /// A commit is durable.
    pub(crate) fn appended(&self, seq: u64, slot: Slot, bytes: u64) {
        let mut index = lock(&self.index);
        index.on_its_way = None;
        index.add(slot.table, seq, slot.place, bytes);
    }

    /// Reads the durable commits after `after` until `each` breaks, which also gets the table of each.
    fn read_over(
        &self,
        link: &Link,
        after: u64,
        each: &mut dyn FnMut(&Entry<'_>, usize) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Error> {
        let newest = self.newest();
        let mut damaged = None;
        let mut flow = ControlFlow::Continue(());
        read_rows(link, after, newest, &mut |table, place, seq, records| {
            flow = match records {
                Ok(records) => each(
                    &Entry {
                        seq,
                        place,
                        records,
                    },
                    table,
                ),
                Err(why) => {
                    damaged = Some(Error::damaged(&self.target.place, why));
                    ControlFlow::Break(())
                }
            };
            flow
        })?;
        damaged.map_or(Ok(flow), Err)
    }

    /// Reads stretches of one table. Shows the bytes from the beginning of each span to the end of its stretch, in any
    /// order.
    fn fetch_stretches(
        &self,
        link: &Link,
        stretches: &[Stretch],
        show: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<(), Error> {
        let Some(&Stretch { table, .. }) = stretches.first() else {
            return Ok(());
        };
        let (mut seqs, mut offsets, mut lens) = (Vec::new(), Vec::new(), Vec::new());
        for Stretch { seq, bytes, .. } in stretches {
            seqs.push(signed(*seq));
            offsets.push(signed(bytes.start + 1)); // the database counts bytes from 1
            lens.push(signed(bytes.end - bytes.start));
        }
        let select = format!(
            "SELECT wanted.i, substring(log.records FROM wanted.at::int FOR wanted.len::int)
             FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) WITH ORDINALITY AS wanted (seq, at, len, i)
             JOIN {} log ON log.seq = wanted.seq",
            link.log(table)
        );
        let mut rows = link.rows(READING, &select, &[&seqs, &offsets, &lens])?;
        while let Some(row) = rows.next(READING)? {
            let (number, bytes): (i64, &[u8]) = (row.get(0), row.get(1));
            let found = usize::try_from(number - 1)
                .ok()
                .and_then(|at| stretches.get(at));
            for (index, begin) in found.into_iter().flat_map(|found| &found.spans) {
                let bytes = usize::try_from(*begin)
                    .ok()
                    .and_then(|begin| bytes.get(begin..));
                show(*index, bytes.unwrap_or_default());
            }
        }
        Ok(())
    }

    /// Truncates a table whose commits are all up to this one.
    fn truncate(&self, link: &Link, table: usize, upto: u64, place: u64) -> Result<(), Error> {
        let (lease, name) = (self.lease.as_ref().ok_or(Error::Closed)?, link.log(table));
        link.batch(
            TRIMMING,
            &format!("BEGIN; SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'"),
        )?;
        link.batch(
            TRIMMING,
            &format!("LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE"),
        )?;
        let last = link.query(TRIMMING, &format!("SELECT max(seq) FROM {name}"), &[])?;
        let last: Option<i64> = last.first().and_then(|row| row.get(0));
        if last.is_some_and(|last| unsigned(last) > upto) {
            return Err(Error::damaged(
                lease.place(),
                format!("{name} has commits that are needed"),
            ));
        }
        link.batch(TRIMMING, &format!("TRUNCATE {name}"))?;
        // Last, so that renewals of the lease wait for nothing of the above. Places are never used again.
        let set = format!(
            "UPDATE {} SET place = GREATEST(place, $2) WHERE id = 1 AND epoch = $1",
            link.lease()
        );
        if link.execute(TRIMMING, &set, &[&lease.epoch(), &signed(place)])? != 1 {
            return Err(lease.find_successor(link));
        }
        link.batch(TRIMMING, "COMMIT")
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The tables of the log that have commits, in order of these: with the first commit of each.
pub(crate) fn in_order(link: &Link) -> Result<Vec<(u64, usize)>, Error> {
    let mut tables = Vec::new();
    for table in 0..LOG_TABLES {
        let first = link.query(
            READING,
            &format!("SELECT min(seq) FROM {}", link.log(table)),
            &[],
        )?;
        let first: Option<i64> = first.first().and_then(|row| row.get(0));
        tables.extend(first.map(|first| (unsigned(first), table)));
    }
    tables.sort_unstable();
    Ok(tables)
}

impl Index {
    fn add(&mut self, table: usize, seq: u64, place: u64, bytes: u64) {
        if let Some(held) = self.tables.get_mut(table) {
            (held.last, held.bytes) = (seq, held.bytes + bytes);
        }
        self.newest = seq;
        self.place = self.place.max(place + bytes + 1);
        self.total += bytes;
        if self
            .marks
            .back()
            .is_none_or(|(_, total)| self.total - total >= MARK_BYTES)
        {
            self.marks.push_back((seq, self.total));
        }
    }

    /// Begins the next table, if the present one has enough and the next one is empty.
    fn turn_if_full(&mut self, bytes: u64) {
        let next = (self.current + 1) % LOG_TABLES;
        let is_full = self
            .tables
            .get(self.current)
            .is_some_and(|held| held.bytes >= bytes);
        if is_full && self.tables.get(next).is_some_and(|held| held.last == 0) {
            self.current = next;
        }
    }

    /// The tables that have nothing but commits up to this one, and will get no more before they are empty.
    fn superfluous(&mut self, upto: u64) -> Vec<usize> {
        let is_old = |held: &Held| held.last > 0 && held.last <= upto;
        if self.tables.get(self.current).is_some_and(is_old) && self.on_its_way.is_none() {
            self.turn_if_full(0);
        }
        let (current, on_its_way) = (self.current, self.on_its_way);
        let tables = self
            .tables
            .iter()
            .enumerate()
            .filter(|(_, held)| is_old(held))
            .map(|(table, _)| table);
        tables
            .filter(|table| *table != current && Some(*table) != on_its_way)
            .collect()
    }

    /// Bytes up to a commit, as far as known.
    fn total_at(&self, seq: u64) -> u64 {
        let behind = self.marks.partition_point(|(mark, _)| *mark <= seq);
        let before = behind.checked_sub(1).and_then(|at| self.marks.get(at));
        if seq >= self.newest {
            self.total
        } else {
            before.map_or(0, |(_, total)| *total)
        }
    }

    fn begins_at(&self) -> u64 {
        let all: u64 = self.tables.iter().map(|held| held.bytes).sum();
        self.total.saturating_sub(all)
    }
}

impl LogTail for Tail {
    fn newest(&self) -> u64 {
        lock(&self.index).newest
    }

    fn bytes_behind(&self, seq: u64) -> u64 {
        let index = lock(&self.index);
        index.total - index.total_at(seq).max(index.begins_at())
    }

    fn behind_bytes(&self, bytes: u64) -> u64 {
        let index = lock(&self.index);
        let marks = index.marks.iter().rev();
        marks
            .map(|(seq, total)| (*seq, index.total - total))
            .find(|(_, behind)| *behind >= bytes)
            .map_or(0, |at| at.0)
    }

    fn read(
        &self,
        after: u64,
        each: &mut dyn FnMut(&Entry<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let link = Link::open(&self.target)?;
        let mut found = Vec::new();
        let read = self.read_over(&link, after, &mut |entry, table| {
            found.push(Place {
                place: entry.place.0,
                seq: entry.seq,
                table,
            });
            each(entry)
        });
        *lock(&self.rows) = found;
        read.map(drop)
    }

    fn skim(
        &self,
        after: u64,
        each: &mut dyn FnMut(&Entry<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let kept = lock(&self.skimmer).take().filter(|link| !link.is_closed());
        let link = kept.map_or_else(|| Link::open(&self.target), Ok)?;
        // Of a reading that was broken off the database still sends the rest.
        if self
            .read_over(&link, after, &mut |entry, _| each(entry))?
            .is_continue()
        {
            *lock(&self.skimmer) = Some(link);
        }
        Ok(())
    }

    fn fetch(&self, spans: &[Span], into: &mut Vec<u8>) -> Result<(), Error> {
        let kept = lock(&self.reader).take().filter(|link| !link.is_closed());
        let link = kept.map_or_else(|| Link::open(&self.target), Ok)?;
        let mut parts: Vec<Option<Vec<u8>>> = vec![None; spans.len()];
        let stretches = stretches(&lock(&self.rows), spans);
        for of_a_table in stretches.chunk_by(|one, next| one.table == next.table) {
            self.fetch_stretches(&link, of_a_table, &mut |index, bytes| {
                if let (Some(span), Some(part)) = (spans.get(index), parts.get_mut(index)) {
                    *part = bytes.get(..span.len).map(<[u8]>::to_vec);
                }
            })?;
        }
        *lock(&self.reader) = Some(link);
        for part in parts {
            match part {
                Some(part) => into.extend_from_slice(&part),
                None => {
                    return Err(Error::damaged(
                        &self.target.place,
                        "a record of the log is missing",
                    ));
                }
            }
        }
        Ok(())
    }

    fn forget(&self, upto: u64) -> Result<(), Error> {
        drop(lock(&self.reader).take()); // a checkpoint ends here
        let (tables, place) = {
            let mut index = lock(&self.index);
            (index.superfluous(upto), index.place)
        };
        if tables.is_empty() {
            return Ok(());
        }
        let link = Link::open(&self.target)?;
        for table in tables {
            self.truncate(&link, table, upto, place)?;
            let mut index = lock(&self.index);
            if let Some(held) = index.tables.get_mut(table) {
                *held = Held::default();
            }
            let begins_at = index.begins_at();
            index.marks.retain(|(_, total)| *total >= begins_at);
        }
        Ok(())
    }

    fn disk_bytes(&self) -> u64 {
        lock(&self.index).tables.iter().map(|held| held.bytes).sum()
    }
}

/// Receives a commit: its table, its place, its number, and its records or what is wrong with them.
pub(crate) type ShowRow<'a> =
    dyn FnMut(usize, Position, u64, Result<&[u8], String>) -> ControlFlow<()> + 'a;

/// Shows the commits after `after` up to `newest` in order, until `each` breaks.
pub(crate) fn read_rows(
    link: &Link,
    after: u64,
    newest: u64,
    each: &mut ShowRow<'_>,
) -> Result<(), Error> {
    for (_, table) in in_order(link)? {
        let name = link.log(table);
        let select = format!(
            "SELECT seq, place, checksum, records FROM {name} WHERE seq > $1 AND seq <= $2 ORDER BY seq"
        );
        let mut rows = link.rows(READING, &select, &[&signed(after), &signed(newest)])?;
        while let Some(row) = rows.next(READING)? {
            let (seq, place, sum): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
            let (seq, records): (u64, &[u8]) = (unsigned(seq), row.get(3));
            let is_whole = checksum(seq, records) == sum;
            let records = is_whole.then_some(records);
            let records = records
                .ok_or_else(|| format!("the checksum of commit {seq} in {name} does not match"));
            if each(table, Position(unsigned(place)), seq, records).is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Bytes of a commit that are read at once.
#[derive(Debug, PartialEq)]
struct Stretch {
    table: usize,
    seq: u64,
    /// Where it begins and ends in the commit's records.
    bytes: Range<u64>,
    /// The spans in it: their indexes, and where each begins in the stretch.
    spans: Vec<(usize, u64)>,
}

/// Where the spans are, in the order of their places. The database decompresses a commit from its first byte for each
/// stretch, so spans share one unless they are far apart.
fn stretches(rows: &[Place], spans: &[Span]) -> Vec<Stretch> {
    let mut order: Vec<(usize, &Span)> = spans.iter().enumerate().collect();
    order.sort_unstable_by_key(|(_, span)| span.place.0);
    let mut stretches: Vec<Stretch> = Vec::new();
    for (index, span) in order {
        let behind = rows.partition_point(|row| row.place <= span.place.0);
        let Some(&Place { place, seq, table }) = behind.checked_sub(1).and_then(|at| rows.get(at))
        else {
            continue;
        };
        let (begin, end) = (span.place.0 - place, span.place.0 - place + span.len as u64);
        match stretches.last_mut() {
            Some(last) if last.seq == seq && begin <= last.bytes.end + GAP_BYTES => {
                last.spans.push((index, begin - last.bytes.start));
                last.bytes.end = last.bytes.end.max(end);
            }
            _ => stretches.push(Stretch {
                table,
                seq,
                bytes: begin..end,
                spans: vec![(index, 0)],
            }),
        }
    }
    stretches
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An index of commits of this many bytes each, numbered from 1.
    fn index(commits: u64, bytes: u64, table_bytes: u64) -> Index {
        let mut index = Index::default();
        for seq in 1..=commits {
            index.turn_if_full(table_bytes);
            index.add(index.current, seq, index.place, bytes);
        }
        index
    }

    #[test]
    fn tables_are_used_in_turn_and_never_before_they_are_empty() {
        let full = index(100, 1_000, 10_000);
        assert!(full.tables.iter().all(|held| held.last > 0), "{full:?}");
        assert_eq!(
            full.current,
            LOG_TABLES - 1,
            "the last one takes what the first one cannot"
        );
        assert_eq!(
            full.tables.map(|held| held.bytes).iter().sum::<u64>(),
            100_000
        );
        assert_eq!(full.place, 100 * 1_001, "places are never used twice");
    }

    #[test]
    fn only_a_table_that_is_not_written_to_is_trimmed() {
        let mut three = index(25, 1_000, 10_000);
        assert_eq!(three.superfluous(9), [0; 0]);
        assert_eq!(three.superfluous(19), [0]);
        assert_eq!(three.superfluous(20), [0, 1]);
        three.on_its_way = Some(2);
        assert_eq!(
            three.superfluous(25),
            [0, 1],
            "a commit is on its way to the last one"
        );
        three.on_its_way = None;
        assert_eq!(three.superfluous(25), [0, 1, 2]);
        assert_eq!(three.current, 3, "later commits go elsewhere");
    }

    /// A history may be behind by more than all tables should have.
    #[test]
    fn a_log_that_must_be_kept_outgrows_its_tables_and_is_small_again_later() {
        const TABLE_BYTES: u64 = 10_000;
        let mut index = index(1_000, 1_000, TABLE_BYTES);
        let (last, others) = index.tables.split_last().unwrap();
        assert_eq!((last.last, last.bytes), (1_000, 930_000));
        assert!(others.iter().all(|held| held.bytes == TABLE_BYTES));
        assert_eq!(index.superfluous(0), [0; 0], "nothing was read");
        assert_eq!(index.superfluous(999), [0, 1, 2, 3, 4, 5, 6]);
        index.tables[..7].fill(Held::default());
        index.turn_if_full(TABLE_BYTES);
        index.add(index.current, 1_001, index.place, 1_000);
        assert_eq!(index.current, 0, "commits leave the large one");
        assert_eq!(index.superfluous(1_000), [7]);
    }

    #[test]
    fn bytes_are_known_to_the_next_mark() {
        let mut index = index(1_000, 1_000, u64::MAX);
        let behind =
            |index: &Index, seq: u64| index.total - index.total_at(seq).max(index.begins_at());
        assert_eq!(
            (
                behind(&index, 0),
                behind(&index, 1_000),
                behind(&index, 2_000)
            ),
            (1_000_000, 0, 0)
        );
        let about = behind(&index, 600);
        assert!(
            (400_000..400_000 + MARK_BYTES + 1_000).contains(&about),
            "{about}"
        );
        // After a trim only what is left counts.
        index.tables[0].bytes = 300_000;
        assert_eq!(behind(&index, 0), 300_000);
    }

    #[test]
    fn records_are_found_by_their_places() {
        let rows = [
            Place {
                place: 0,
                seq: 1,
                table: 0,
            },
            Place {
                place: 101,
                seq: 2,
                table: 1,
            },
        ];
        let span = |place: u64, len: usize| Span {
            place: Position(place),
            len,
        };
        let spans = [span(150, 3), span(5, 10), span(101, 7)];
        let expected = [
            Stretch {
                table: 0,
                seq: 1,
                bytes: 5..15,
                spans: vec![(1, 0)],
            },
            Stretch {
                table: 1,
                seq: 2,
                bytes: 0..52,
                spans: vec![(2, 0), (0, 49)],
            },
        ];
        assert_eq!(stretches(&rows, &spans), expected);
        assert_eq!(stretches(&[], &spans), []);
    }

    #[test]
    fn records_far_apart_are_read_one_by_one() {
        let rows = [Place {
            place: 10,
            seq: 7,
            table: 0,
        }];
        let near = Span {
            place: Position(10),
            len: 100,
        };
        for (gap, expected) in [(GAP_BYTES, 1), (GAP_BYTES + 1, 2)] {
            let far = Span {
                place: Position(110 + gap),
                len: 5,
            };
            let found = stretches(&rows, &[near, far]);
            assert_eq!(found.len(), expected, "{gap}");
            assert_eq!(found.last().map(|last| last.bytes.end), Some(100 + gap + 5));
        }
    }
}
