//! A log in memory that fails on demand: for tests, here and in other crates.
//!
//! A clone is another handle on the same log: a test keeps one while the daemon's committer has the other.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use windlass_store::{Commit, Entry, Error, Log, LogTail, Position, Span};

/// The outcome of a commit that fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Nothing was written.
    Nothing,
    /// Everything was written, yet an error is returned.
    Everything,
}

/// A log in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryLog {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    entries: VecDeque<Written>,
    newest: u64,
    /// Position of the next entry.
    place: u64,
    commits: u64,
    /// Number of commits that still succeed, and how the next one fails.
    fault: Option<(u32, Fault)>,
    /// The fault lasts until [`MemoryLog::heal`].
    lasting: bool,
    failed: bool,
    blocked: bool,
    waiting: bool,
}

#[derive(Clone, Debug)]
struct Written {
    seq: u64,
    place: u64,
    records: Vec<u8>,
}

impl MemoryLog {
    /// An empty log.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A log of commits with these bytes, valid or not.
    #[must_use]
    pub fn with(commits: Vec<Vec<u8>>) -> Self {
        let log = Self::new();
        {
            let mut state = log.shared.state();
            commits.into_iter().for_each(|records| {
                let seq = state.newest + 1;
                state.place_at_end(seq, records);
            });
        }
        log
    }

    /// The commit after `after` more fails in this way. If `lasting`, all later commits and reopening fail too, until
    /// [`MemoryLog::heal`].
    pub fn fail(&self, after: u32, fault: Fault, lasting: bool) {
        let mut state = self.shared.state();
        (state.fault, state.lasting) = (Some((after, fault)), lasting);
    }

    /// Ends a lasting fault. A log that has failed must still be reopened.
    pub fn heal(&self) {
        let mut state = self.shared.state();
        (state.fault, state.lasting) = (None, false);
    }

    /// From now on commits block.
    pub fn block(&self) {
        self.shared.state().blocked = true;
    }

    /// Unblocks commits.
    pub fn unblock(&self) {
        self.shared.state().blocked = false;
        self.shared.changed.notify_all();
    }

    /// Returns once a commit is blocked.
    pub fn wait_until_stuck(&self) {
        let stuck = self
            .shared
            .changed
            .wait_while(self.shared.state(), |state| !state.waiting);
        drop(stuck.unwrap_or_else(PoisonError::into_inner));
    }

    /// Number of commits that have succeeded.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.shared.state().commits
    }

    /// The log after a power cut: with the commit in flight complete, or missing.
    #[must_use]
    pub fn cut(&self, on_its_way: Option<&Commit>) -> Self {
        let other = Self::new();
        {
            let (state, mut new) = (self.shared.state(), other.shared.state());
            (new.entries, new.newest, new.place) =
                (state.entries.clone(), state.newest, state.place);
            if let Some(commit) = on_its_way {
                new.write(commit);
            }
        }
        other
    }

    /// The numbers of its commits.
    #[must_use]
    pub fn seqs(&self) -> Vec<u64> {
        self.shared
            .state()
            .entries
            .iter()
            .map(|entry| entry.seq)
            .collect()
    }

    /// Changes the records of a commit unnoticed.
    pub fn damage(&self, seq: u64, damage: impl FnOnce(&mut Vec<u8>)) {
        if let Some(entry) = self
            .shared
            .state()
            .entries
            .iter_mut()
            .find(|entry| entry.seq == seq)
        {
            damage(&mut entry.records);
        }
    }
}

impl State {
    fn write(&mut self, commit: &Commit) {
        self.entries.retain(|entry| entry.seq != commit.seq());
        self.place_at_end(commit.seq(), commit.records());
    }

    fn place_at_end(&mut self, seq: u64, records: Vec<u8>) {
        let place = self.place;
        self.place += records.len() as u64 + 1;
        self.entries.push_back(Written {
            seq,
            place,
            records,
        });
        self.newest = seq;
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_while_blocked(&self) -> MutexGuard<'_, State> {
        let mut state = self.state();
        if state.blocked {
            state.waiting = true;
            self.changed.notify_all();
            state = self
                .changed
                .wait_while(state, |state| state.blocked)
                .unwrap_or_else(PoisonError::into_inner);
            state.waiting = false;
        }
        state
    }
}

impl Log for MemoryLog {
    fn append(&mut self, commit: &Commit) -> Result<(), Error> {
        let mut state = self.shared.wait_while_blocked();
        if state.failed {
            return Err(Error::Closed);
        }
        match state.fault {
            Some((0, fault)) => {
                state.failed = true;
                if !state.lasting {
                    state.fault = None;
                }
                if fault == Fault::Everything {
                    state.write(commit);
                }
                return Err(Error::Asked);
            }
            Some((after, fault)) => state.fault = Some((after - 1, fault)),
            None => {}
        }
        state.write(commit);
        state.commits += 1;
        Ok(())
    }

    fn reopen(&mut self) -> Result<(), Error> {
        let mut state = self.shared.state();
        if state.lasting && matches!(state.fault, Some((0, _))) {
            return Err(Error::Asked);
        }
        state.failed = false;
        Ok(())
    }

    fn close(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn tail(&self) -> Arc<dyn LogTail> {
        Arc::clone(&self.shared) as Arc<dyn LogTail>
    }
}

impl LogTail for Shared {
    fn newest(&self) -> u64 {
        self.state().newest
    }

    fn bytes_behind(&self, seq: u64) -> u64 {
        let state = self.state();
        state
            .entries
            .iter()
            .filter(|entry| entry.seq > seq)
            .map(|entry| entry.records.len() as u64)
            .sum()
    }

    fn behind_bytes(&self, bytes: u64) -> u64 {
        let (state, mut behind) = (self.state(), 0);
        for entry in state.entries.iter().rev() {
            behind += entry.records.len() as u64;
            if behind >= bytes {
                return entry.seq - 1;
            }
        }
        0
    }

    fn read(
        &self,
        after: u64,
        each: &mut dyn FnMut(&Entry<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let entries: Vec<Written> = self
            .state()
            .entries
            .iter()
            .filter(|entry| entry.seq > after)
            .cloned()
            .collect();
        for Written {
            seq,
            place,
            records,
        } in &entries
        {
            if each(&Entry {
                seq: *seq,
                place: Position(*place),
                records,
            })
            .is_break()
            {
                break;
            }
        }
        Ok(())
    }

    fn fetch(&self, spans: &[Span], into: &mut Vec<u8>) -> Result<(), Error> {
        let state = self.state();
        spans.iter().try_for_each(|span| {
            let bytes = state.entries.iter().find_map(|entry| {
                let from = usize::try_from(span.place.0.checked_sub(entry.place)?).ok()?;
                entry.records.get(from..from.checked_add(span.len)?)
            });
            bytes
                .map(|bytes| into.extend_from_slice(bytes))
                .ok_or(Error::Closed)
        })
    }

    fn forget(&self, upto: u64) -> Result<(), Error> {
        self.state().entries.retain(|entry| entry.seq > upto);
        Ok(())
    }

    fn disk_bytes(&self) -> u64 {
        self.bytes_behind(0)
    }
}
