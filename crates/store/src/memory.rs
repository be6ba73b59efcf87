//! A store in memory that fails when it is told to: for tests, here and above.
//!
//! A clone is another handle on the same store: a test keeps one while the daemon's committer has the other.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::commit::Commit;
use crate::store::{Error, Store};

/// Values per batch: few, so that commits are cut in the middle.
const BATCH_VALUES: u32 = 1;

/// How a commit goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Nothing of it is written.
    Nothing,
    /// About half of it is written.
    Half,
    /// All of it is written, and an error returned all the same.
    Everything,
}

/// A store in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    values: BTreeMap<u64, Vec<u8>>,
    commits: u64,
    /// Commits that still succeed, and how the one after them does not.
    fault: Option<(u32, Fault)>,
    /// The fault stays until it is healed.
    lasting: bool,
    failed: bool,
    blocked: bool,
    waiting: bool,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A store that holds these values.
    #[must_use]
    pub fn with(values: BTreeMap<u64, Vec<u8>>) -> Self {
        let store = Self::new();
        store.state().values = values;
        store
    }

    /// After so many more commits one fails in this way; if `lasting`, all that follow fail too, and so does reopening,
    /// until [`MemoryStore::heal`].
    pub fn fail(&self, after: u32, fault: Fault, lasting: bool) {
        let mut state = self.state();
        (state.fault, state.lasting) = (Some((after, fault)), lasting);
    }

    /// Ends a lasting fault. The store must still be reopened if it has failed.
    pub fn heal(&self) {
        let mut state = self.state();
        (state.fault, state.lasting) = (None, false);
    }

    /// From now on commits do not return.
    pub fn block(&self) {
        self.state().blocked = true;
    }

    /// Lets commits return again.
    pub fn unblock(&self) {
        self.state().blocked = false;
        self.shared.changed.notify_all();
    }

    /// Returns once a commit hangs in a blocked store.
    pub fn wait_until_stuck(&self) {
        let stuck = self.shared.changed.wait_while(self.state(), |state| !state.waiting);
        drop(stuck.unwrap_or_else(PoisonError::into_inner));
    }

    /// How many commits have succeeded.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.state().commits
    }

    /// What is in it now.
    #[must_use]
    pub fn values(&self) -> BTreeMap<u64, Vec<u8>> {
        self.state().values.clone()
    }

    /// Changes a value behind everybody's back.
    pub fn damage(&self, key: u64, damage: impl FnOnce(&mut Vec<u8>)) {
        self.state().values.entry(key).and_modify(damage);
    }

    /// Removes a value behind everybody's back.
    pub fn lose(&self, key: u64) {
        self.state().values.remove(&key);
    }

    /// The store as a power cut in the middle of this commit leaves it: the first `batches` of it are there. If `torn`,
    /// the last value of them is there only in part.
    #[must_use]
    pub fn cut_during(&self, commit: &Commit, batches: usize, torn: bool) -> Self {
        let mut values = self.values();
        let last = write_batches(commit, &mut values, batches);
        if let Some(value) = last.filter(|_| torn).and_then(|key| values.get_mut(&key)) {
            value.truncate(value.len() / 2);
        }
        Self::with(values)
    }

    /// How many steps this store takes to write a commit.
    #[must_use]
    pub fn batches(commit: &Commit) -> usize {
        commit.batches(BATCH_VALUES).count()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_while_blocked(&self) -> MutexGuard<'_, State> {
        let mut state = self.state();
        if state.blocked {
            state.waiting = true;
            self.shared.changed.notify_all();
            state =
                self.shared.changed.wait_while(state, |state| state.blocked).unwrap_or_else(PoisonError::into_inner);
            state.waiting = false;
        }
        state
    }
}

impl Store for MemoryStore {
    fn commit(&mut self, commit: &Commit) -> Result<(), Error> {
        let mut state = self.wait_while_blocked();
        if state.failed {
            return Err(Error::Closed);
        }
        let all = Self::batches(commit);
        match state.fault {
            Some((0, fault)) => {
                state.failed = true;
                if !state.lasting {
                    state.fault = None;
                }
                let batches = match fault {
                    Fault::Nothing => 0,
                    Fault::Half => all / 2,
                    Fault::Everything => all,
                };
                write_batches(commit, &mut state.values, batches);
                return Err(Error::Asked);
            }
            Some((after, fault)) => state.fault = Some((after - 1, fault)),
            None => {}
        }
        write_batches(commit, &mut state.values, all);
        state.commits += 1;
        Ok(())
    }

    fn reopen(&mut self) -> Result<(), Error> {
        let mut state = self.state();
        if state.lasting && matches!(state.fault, Some((0, _))) {
            return Err(Error::Asked);
        }
        state.failed = false;
        Ok(())
    }

    fn scan(&self, each: &mut dyn FnMut(u64, &[u8]) -> ControlFlow<()>) -> Result<(), Error> {
        // Not under the lock: whoever looks may look at the store as well.
        for (key, value) in self.values() {
            if each(key, &value).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn disk_bytes(&self) -> u64 {
        self.state().values.values().map(|value| value.len() as u64).sum()
    }
}

/// Does the first batches of a commit. Returns the last key that was written.
fn write_batches(commit: &Commit, to: &mut BTreeMap<u64, Vec<u8>>, batches: usize) -> Option<u64> {
    let (mut values, mut last) = (commit.values(), None);
    for batch in commit.batches(BATCH_VALUES).take(batches) {
        batch.removals().for_each(|key| drop(to.remove(&key)));
        for _ in 0..batch.values() {
            let Some((key, value)) = values.next() else { break };
            to.insert(key, value.to_vec());
            last = Some(key);
        }
    }
    last
}
