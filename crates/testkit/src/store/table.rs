//! A table in memory that fails on demand, and loses writes that were not synced: for tests.
//!
//! A clone is another handle on the same table.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_store::{Error, Scan, ShowPair, Table, new_table};

type Values = BTreeMap<Vec<u8>, Vec<u8>>;
type Change = (Vec<u8>, Option<Vec<u8>>);

/// A table in memory.
#[derive(Clone, Debug)]
pub struct MemoryTable {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// The durable contents of the current table.
    durable: Values,
    written: Values,
    /// Writes since the last sync, in order; `None`: removed.
    unsynced: Vec<Change>,
    /// Other candidates of the durable contents: see [`Scan::each`].
    candidates: Vec<Values>,
    /// The new table while it is being built.
    building: Option<Values>,
    writable: bool,
    /// Number of changes that still succeed.
    fails_after: Option<u32>,
}

impl MemoryTable {
    /// A table with nothing but the point of an empty log.
    #[must_use]
    pub fn new() -> Self {
        let (key, value) = new_table();
        Self::with(Values::from([(key.to_vec(), value)]))
    }

    /// The change after `after` more fails.
    pub fn fail(&self, after: u32) {
        self.state().fails_after = Some(after);
    }

    /// Ends the fault.
    pub fn heal(&self) {
        self.state().fails_after = None;
    }

    /// The table after a power cut: each write that was not synced survives or not, as `survives` decides. Its
    /// candidates are the table as it is, and without the writes that follow a lost one, the last of these first.
    #[must_use]
    pub fn cut(&self, mut survives: impl FnMut() -> bool) -> Self {
        let state = self.state();
        let mut values = state.durable.clone();
        let mut candidates = Vec::new();
        for change in &state.unsynced {
            if survives() {
                make(&mut values, change.clone());
            } else {
                candidates.push(values.clone());
            }
        }
        candidates.reverse();
        candidates.extend(state.candidates.iter().cloned());
        drop(state);
        let table = Self::with(values);
        table.state().candidates = candidates;
        table
    }

    /// A table with these values, as another process would have written it.
    #[must_use]
    pub fn with(values: BTreeMap<Vec<u8>, Vec<u8>>) -> Self {
        let table = Self {
            state: Arc::default(),
        };
        (table.state().durable, table.state().written) = (values.clone(), values);
        table
    }

    /// Its contents.
    #[must_use]
    pub fn values(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        self.state().written.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: Change) -> Result<(), Error> {
        let mut state = self.state();
        state.succeed()?;
        let writable = state.writable;
        match &mut state.building {
            Some(values) => make(values, change),
            None if writable => {
                make(&mut state.written, change.clone());
                state.unsynced.push(change);
            }
            None => return Err(Error::Closed),
        }
        Ok(())
    }
}

impl State {
    /// Fails if a fault is due.
    fn succeed(&mut self) -> Result<(), Error> {
        self.fails_after = match self.fails_after {
            Some(0) => return Err(Error::Asked),
            after => after.map(|after| after - 1),
        };
        Ok(())
    }
}

fn make(values: &mut Values, (key, value): Change) {
    match value {
        Some(value) => drop(values.insert(key, value)),
        None => drop(values.remove(&key)),
    }
}

impl Default for MemoryTable {
    fn default() -> Self {
        Self::new()
    }
}

impl Table for MemoryTable {
    fn scan(&self) -> Result<Box<dyn Scan>, Error> {
        let state = self.state();
        Ok(Box::new(MemoryScan(
            std::iter::once(&state.written)
                .chain(&state.candidates)
                .cloned()
                .collect(),
        )))
    }

    fn is_writable(&self) -> bool {
        let state = self.state();
        state.writable && state.building.is_none()
    }

    fn begin_anew(&mut self) -> Result<(), Error> {
        self.state().building = Some(Values::new());
        Ok(())
    }

    fn end_anew(&mut self) -> Result<(), Error> {
        let mut state = self.state();
        let values = state.building.take().ok_or(Error::Closed)?;
        (state.durable, state.written, state.writable) = (values.clone(), values, true);
        (state.unsynced, state.candidates) = (Vec::new(), Vec::new());
        Ok(())
    }

    fn abandon(&mut self) {
        let mut state = self.state();
        (state.building, state.writable, state.fails_after) = (None, false, None);
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let state = self.state();
        Ok(state
            .building
            .as_ref()
            .unwrap_or(&state.written)
            .get(key)
            .cloned())
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.change((key.to_vec(), Some(value.to_vec())))
    }

    fn remove(&mut self, key: &[u8]) -> Result<(), Error> {
        self.change((key.to_vec(), None))
    }

    fn sync(&mut self) -> Result<(), Error> {
        let mut state = self.state();
        state.succeed()?;
        if state.building.is_none() {
            state.durable = state.written.clone();
            state.unsynced.clear();
        }
        Ok(())
    }

    fn disk_bytes(&self) -> u64 {
        self.state()
            .written
            .iter()
            .map(|(key, value)| (key.len() + value.len()) as u64)
            .sum()
    }
}

struct MemoryScan(Vec<Values>);

impl Scan for MemoryScan {
    fn each(&self, candidate: usize, each: &mut ShowPair<'_>) -> Result<bool, Error> {
        let Some(values) = self.0.get(candidate) else {
            return Ok(false);
        };
        let _ = values
            .iter()
            .try_for_each(|(key, value)| each(key, value, None));
        Ok(true)
    }
}
