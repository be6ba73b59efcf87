//! A log and a table in memory: the store of a daemon without persistence, and the smallest examples of both.
//!
//! A clone is another handle on the same log or table. Implementations that fail on demand are in the
//! testkit.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::commit::Commit;
use crate::page::{POINT_KEY, Point};
use crate::store::{Entry, Error, Log, LogTail, Position, Scan, ShowPair, Span, Table};

type Values = BTreeMap<Vec<u8>, Vec<u8>>;

/// A log in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryLog(Arc<Mutex<Entries>>);

#[derive(Debug, Default)]
struct Entries {
    all: VecDeque<Written>,
    newest: u64,
    /// Position of the next entry.
    place: u64,
}

#[derive(Clone, Debug)]
struct Written {
    seq: u64,
    place: u64,
    records: Vec<u8>,
}

impl MemoryLog {
    /// An empty log.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Log for MemoryLog {
    fn append(&mut self, commit: &Commit) -> Result<(), Error> {
        let mut entries = locked(&self.0);
        let (seq, place, records) = (commit.seq(), entries.place, commit.records());
        (entries.newest, entries.place) = (seq, place + records.len() as u64 + 1);
        entries.all.push_back(Written {
            seq,
            place,
            records,
        });
        Ok(())
    }

    fn reopen(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn close(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn tail(&self) -> Arc<dyn LogTail> {
        Arc::clone(&self.0) as Arc<dyn LogTail>
    }
}

impl LogTail for Mutex<Entries> {
    fn newest(&self) -> u64 {
        locked(self).newest
    }

    fn bytes_behind(&self, seq: u64) -> u64 {
        locked(self)
            .all
            .iter()
            .filter(|entry| entry.seq > seq)
            .map(|entry| entry.records.len() as u64)
            .sum()
    }

    fn behind_bytes(&self, bytes: u64) -> u64 {
        let (entries, mut behind) = (locked(self), 0);
        let last = entries.all.iter().rev().find(|entry| {
            behind += entry.records.len() as u64;
            behind >= bytes
        });
        last.map_or(0, |entry| entry.seq - 1)
    }

    fn read(
        &self,
        after: u64,
        each: &mut dyn FnMut(&Entry<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let entries: Vec<Written> = locked(self)
            .all
            .iter()
            .filter(|entry| entry.seq > after)
            .cloned()
            .collect();
        let _ = entries.iter().try_for_each(
            |Written {
                 seq,
                 place,
                 records,
             }| {
                each(&Entry {
                    seq: *seq,
                    place: Position(*place),
                    records,
                })
            },
        );
        Ok(())
    }

    fn fetch(&self, spans: &[Span], into: &mut Vec<u8>) -> Result<(), Error> {
        let entries = locked(self);
        spans.iter().try_for_each(|span| {
            let bytes = entries.all.iter().find_map(|entry| {
                let from = usize::try_from(span.place.0.checked_sub(entry.place)?).ok()?;
                entry.records.get(from..from.checked_add(span.len)?)
            });
            bytes
                .map(|bytes| into.extend_from_slice(bytes))
                .ok_or(Error::Closed)
        })
    }

    fn forget(&self, upto: u64) -> Result<(), Error> {
        locked(self).all.retain(|entry| entry.seq > upto);
        Ok(())
    }

    fn disk_bytes(&self) -> u64 {
        self.bytes_behind(0)
    }
}

/// A table in memory. The values, and those of the new table while it is being built.
#[derive(Clone, Debug)]
pub struct MemoryTable(Arc<Mutex<(Values, Option<Values>)>>);

impl MemoryTable {
    /// A table of an empty store.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new((
            Values::from([(POINT_KEY.to_vec(), Point::start(0).encode())]),
            None,
        ))))
    }

    /// Calls with the table that is read and written at present.
    fn present<T>(&self, call: impl FnOnce(&mut Values) -> T) -> T {
        let (values, building) = &mut *locked(&self.0);
        call(building.as_mut().unwrap_or(values))
    }
}

impl Default for MemoryTable {
    fn default() -> Self {
        Self::new()
    }
}

impl Table for MemoryTable {
    fn scan(&self) -> Result<Box<dyn Scan>, Error> {
        Ok(Box::new(MemoryScan(locked(&self.0).0.clone())))
    }

    fn is_writable(&self) -> bool {
        locked(&self.0).1.is_none()
    }

    fn begin_anew(&mut self) -> Result<(), Error> {
        locked(&self.0).1 = Some(Values::new());
        Ok(())
    }

    fn end_anew(&mut self) -> Result<(), Error> {
        let mut tables = locked(&self.0);
        tables.0 = tables.1.take().ok_or(Error::Closed)?;
        Ok(())
    }

    fn abandon(&mut self) {
        locked(&self.0).1 = None;
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.present(|values| values.get(key).cloned()))
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.present(|values| drop(values.insert(key.to_vec(), value.to_vec())));
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) -> Result<(), Error> {
        self.present(|values| drop(values.remove(key)));
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn disk_bytes(&self) -> u64 {
        locked(&self.0)
            .0
            .iter()
            .map(|(key, value)| (key.len() + value.len()) as u64)
            .sum()
    }
}

struct MemoryScan(Values);

impl Scan for MemoryScan {
    fn each(&self, candidate: usize, each: &mut ShowPair<'_>) -> Result<bool, Error> {
        if candidate == 0 {
            let _ = self
                .0
                .iter()
                .try_for_each(|(key, value)| each(key, value, None));
        }
        Ok(candidate == 0)
    }
}

fn locked<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
impl MemoryLog {
    /// A log of commits with these bytes.
    pub(crate) fn with(commits: Vec<Vec<u8>>) -> Self {
        let log = Self::new();
        for (records, seq) in commits.into_iter().zip(1..) {
            let mut entries = locked(&log.0);
            let place = entries.place;
            (entries.newest, entries.place) = (seq, place + records.len() as u64 + 1);
            entries.all.push_back(Written {
                seq,
                place,
                records,
            });
        }
        log
    }
}

#[cfg(test)]
impl MemoryTable {
    /// A table of these values.
    pub(crate) fn with(values: Values) -> Self {
        Self(Arc::new(Mutex::new((values, None))))
    }

    /// The values.
    pub(crate) fn values(&self) -> Values {
        locked(&self.0).0.clone()
    }
}
