//! Which commits the store holds, what in each still counts, and which of them can go.
//!
//! Not here: what is about to be committed (`pending`), and moving live records out of old commits (`compact`).
//!
//! # What may go, and when
//!
//! A commit holds *live* records: the last word on a job, a job's standing, a queue, or the engine's head. And it may be
//! *needed* for words that are not live: a record that overrides an older one (a job gone, or put again) must outlive
//! every commit that still holds what it overrides, or the older word would count again. So an override pins its commit
//! to the commit it overrides, and only with the removal of that commit is the pin drawn. A standing that is overridden
//! needs no pin: alone it says nothing.
//!
//! A commit with nothing live, and not needed, goes with the next commit that is cut after the one that made it so: what
//! is removed is superfluous by what is on the disk already, whatever becomes of the commit that removes it.

use std::collections::VecDeque;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use windlass_engine::{JobId, Numbered, QueueId};

use crate::record::census_share;

/// No commit.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// Where a record is: a commit's place in the ledger, and the record's size there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Home {
    pub(crate) slot: u32,
    /// Bytes of the record. While its commit is pending: which of the pending records it is.
    pub(crate) size: u32,
}

impl Home {
    const NONE: Self = Self { slot: NOWHERE, size: 0 };
}

/// A commit, as far as the journal remembers it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) seq: u64,
    first_key: u64,
    parts: u32,
    /// It is not cut yet.
    open: bool,
    /// Bytes of its values.
    pub(crate) bytes: u64,
    pub(crate) live_bytes: u64,
    pub(crate) live: u32,
    /// Overrides in it of records that the store still holds.
    needed: u32,
    /// The commits pinned to this one, and by how many overrides.
    pub(crate) pinned: Vec<(u32, u32)>,
    /// The commit that made it superfluous.
    idle_since: u64,
    /// Jobs it has a word on: `roll` reads them.
    pub(crate) jobs: Box<[u8]>,
    pub(crate) queues: Box<[QueueId]>,
    before: u32,
    after: u32,
}

/// What a commit turned out to be when it was cut or read.
#[derive(Debug, Default)]
pub(crate) struct Shape {
    pub(crate) first_key: u64,
    pub(crate) parts: u32,
    /// Bytes of its values, their headers included.
    pub(crate) bytes: u64,
    pub(crate) jobs: Box<[u8]>,
    pub(crate) queues: Box<[QueueId]>,
}

/// The commits of the store.
#[derive(Debug)]
pub(crate) struct Ledger {
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    oldest: u32,
    newest: u32,
    pub(crate) puts: Numbered<Home>,
    /// Standings that are newer than what their job's own record says.
    pub(crate) standings: Numbered<Home>,
    pub(crate) queues: HashMap<QueueId, Home, FixedState>,
    head: Option<Home>,
    /// Superfluous as soon as what made them so is on the disk.
    dead: VecDeque<u32>,
    dead_bytes: u64,
    pub(crate) commits: u64,
    pub(crate) bytes: u64,
    pub(crate) live_bytes: u64,
    pub(crate) census: u64,
}

impl Ledger {
    pub(crate) fn new() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            oldest: NOWHERE,
            newest: NOWHERE,
            puts: Numbered::new(Home::NONE),
            standings: Numbered::new(Home::NONE),
            queues: HashMap::with_hasher(FixedState::default()),
            head: None,
            dead: VecDeque::new(),
            dead_bytes: 0,
            commits: 0,
            bytes: 0,
            live_bytes: 0,
            census: 0,
        }
    }

    pub(crate) fn entry(&self, slot: u32) -> Option<&Entry> {
        self.entries.get(slot as usize)?.as_ref()
    }

    fn entry_mut(&mut self, slot: u32) -> Option<&mut Entry> {
        self.entries.get_mut(slot as usize)?.as_mut()
    }

    /// The oldest commit the store holds.
    pub(crate) const fn oldest(&self) -> u32 {
        self.oldest
    }

    /// The commit after this one.
    pub(crate) fn after(&self, slot: u32) -> u32 {
        self.entry(slot).map_or(NOWHERE, |entry| entry.after)
    }

    pub(crate) fn newest_seq(&self) -> u64 {
        self.entry(self.newest).map_or(0, |entry| entry.seq)
    }

    /// Bytes that the next commits could remove.
    pub(crate) const fn dead_bytes(&self) -> u64 {
        self.dead_bytes
    }

    // ---- a commit begins and is complete ---------------------------------------------------------------------------

    /// Makes room for a commit that is to be cut or read.
    pub(crate) fn begin(&mut self, seq: u64) -> u32 {
        let entry = Entry {
            seq,
            first_key: 0,
            parts: 0,
            open: true,
            bytes: 0,
            live_bytes: 0,
            live: 0,
            needed: 0,
            pinned: Vec::new(),
            idle_since: 0,
            jobs: Box::default(),
            queues: Box::default(),
            before: NOWHERE,
            after: NOWHERE,
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            u32::try_from(self.entries.len() - 1).unwrap_or(NOWHERE)
        });
        if let Some(place) = self.entries.get_mut(slot as usize) {
            *place = Some(entry);
        }
        slot
    }

    /// A commit is complete: it joins the others as the newest.
    pub(crate) fn complete(&mut self, slot: u32, shape: Shape) {
        let before = std::mem::replace(&mut self.newest, slot);
        match self.entry_mut(before) {
            Some(entry) => entry.after = slot,
            None => self.oldest = slot,
        }
        let Some(entry) = self.entry_mut(slot) else { return };
        entry.open = false;
        entry.before = before;
        (entry.first_key, entry.parts, entry.bytes) = (shape.first_key, shape.parts, shape.bytes);
        (entry.jobs, entry.queues) = (shape.jobs, shape.queues);
        let (seq, superfluous) = (entry.seq, entry.live == 0 && entry.needed == 0);
        self.commits += 1;
        self.bytes += shape.bytes;
        self.census = self.census.wrapping_add(census_share(seq));
        if superfluous {
            self.bury(slot);
        }
    }

    // ---- words ------------------------------------------------------------------------------------------------------

    /// The commit at `slot` has the last word on a job.
    pub(crate) fn put(&mut self, job: JobId, home: Home) {
        let before = self.puts.set(job, home);
        self.count(home);
        self.override_with(before, home.slot);
        self.forget_standing(job, home.slot);
    }

    /// The commit at `slot` has the last word on how a job stands.
    pub(crate) fn moved(&mut self, job: JobId, home: Home) {
        let before = self.standings.set(job, home);
        self.count(home);
        self.discount(before, home.slot);
    }

    /// A job is gone, says the commit at `by`. Returns whether anything of it was known.
    pub(crate) fn gone(&mut self, job: JobId, by: u32) -> bool {
        self.forget_standing(job, by);
        let before = self.puts.remove(job);
        self.override_with(before, by);
        before.is_some()
    }

    /// A job's standing is told by its own record again.
    pub(crate) fn forget_standing(&mut self, job: JobId, by: u32) {
        let before = self.standings.remove(job);
        self.discount(before, by);
    }

    pub(crate) fn queue_set(&mut self, queue: QueueId, home: Home) {
        let before = self.queues.insert(queue, home);
        self.count(home);
        self.override_with(before, home.slot);
    }

    /// A queue is gone, says the commit at `by`. Returns whether anything of it was known.
    pub(crate) fn queue_gone(&mut self, queue: QueueId, by: u32) -> bool {
        let before = self.queues.remove(&queue);
        self.override_with(before, by);
        before.is_some()
    }

    pub(crate) fn head(&mut self, home: Home) {
        let before = self.head.replace(home);
        self.count(home);
        self.discount(before, home.slot);
    }

    /// A word counts.
    pub(crate) fn count(&mut self, home: Home) {
        if let Some(entry) = self.entry_mut(home.slot) {
            entry.live += 1;
            entry.live_bytes += u64::from(home.size);
            self.live_bytes += u64::from(home.size);
        }
    }

    /// A word that must outlive the one it overrides.
    pub(crate) fn override_with(&mut self, before: Option<Home>, by: u32) {
        let Some(home) = before else { return };
        self.discount(before, by);
        if home.slot == by {
            return;
        }
        let Some(entry) = self.entry_mut(home.slot) else { return };
        match entry.pinned.last_mut() {
            Some((slot, count)) if *slot == by => *count += 1,
            Some(_) | None => entry.pinned.push((by, 1)),
        }
        if let Some(entry) = self.entry_mut(by) {
            entry.needed += 1;
        }
    }

    /// A word counts no more, since the commit at `by`.
    fn discount(&mut self, before: Option<Home>, by: u32) {
        let Some(home) = before else { return };
        let since = self.entry(by).map_or(0, |entry| entry.seq);
        let Some(entry) = self.entry_mut(home.slot) else { return };
        debug_assert!(entry.live > 0, "commit {} holds less than nothing", entry.seq);
        entry.live -= 1;
        entry.live_bytes -= u64::from(home.size);
        let idle = entry.live == 0;
        if idle {
            entry.idle_since = since;
        }
        let superfluous = idle && entry.needed == 0 && !entry.open;
        self.live_bytes -= u64::from(home.size);
        if superfluous {
            self.bury(home.slot);
        }
    }

    // ---- what may go -------------------------------------------------------------------------------------------------

    fn bury(&mut self, slot: u32) {
        self.dead_bytes += self.entry(slot).map_or(0, |entry| entry.bytes);
        self.dead.push_back(slot);
    }

    /// Forgets commits that nothing keeps, those that commit `seq` itself made superfluous excepted, and then what only
    /// they needed, up to about `bytes_max`. Returns the keys of their values: any first few may go without the rest.
    pub(crate) fn reap(&mut self, seq: u64, bytes_max: u64) -> Vec<u64> {
        let (mut keys, mut bytes, mut not_yet) = (Vec::new(), 0, VecDeque::new());
        while bytes < bytes_max
            && let Some(slot) = self.dead.pop_front()
        {
            let Some(entry) = self.entry(slot) else { continue };
            if entry.idle_since >= seq {
                not_yet.push_back(slot);
                continue;
            }
            bytes += entry.bytes;
            keys.extend(entry.first_key..entry.first_key + u64::from(entry.parts));
            self.remove(slot);
        }
        self.dead.append(&mut not_yet);
        keys
    }

    /// Forgets a commit. Those that it alone kept are superfluous now, and behind it in the row.
    fn remove(&mut self, slot: u32) {
        let Some(entry) = self.entries.get_mut(slot as usize).and_then(Option::take) else { return };
        match self.entry_mut(entry.before) {
            Some(before) => before.after = entry.after,
            None => self.oldest = entry.after,
        }
        match self.entry_mut(entry.after) {
            Some(after) => after.before = entry.before,
            None => self.newest = entry.before,
        }
        self.free.push(slot);
        self.commits -= 1;
        self.bytes -= entry.bytes;
        self.dead_bytes -= entry.bytes;
        self.census = self.census.wrapping_sub(census_share(entry.seq));
        for (pinned, count) in entry.pinned {
            let Some(other) = self.entry_mut(pinned) else { continue };
            debug_assert!(other.needed >= count, "commit {} is needed less than not at all", other.seq);
            other.needed -= count;
            if other.needed == 0 && other.live == 0 && !other.open {
                self.bury(pinned);
            }
        }
    }
}
