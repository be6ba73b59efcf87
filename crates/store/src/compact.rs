//! Rewriting what still counts out of old commits, so that they can go: a bounded amount with each cut.
//!
//! A pass goes over the commits that were there when it began, the oldest first. It empties those that are worth it: too
//! little of them counts, or one that counts for nothing is pinned behind them (the oldest commit of such a row always
//! holds something that counts, or it would be gone). What is in a commit is known from its roll; nothing is read back.
//!
//! A pass begins when the journal is larger than the floor and a multiple of what counts in it. It writes at most what
//! counts, once, so that endless churn costs at most one rewritten byte for each byte written. With very many very small
//! commits a pass merges them. And if next to nothing in the oldest commit counts, it is emptied without further ado: a
//! lone queue in the first commit of a life must not keep all that came after.

use windlass_engine::{Engine, JobId};

use crate::journal::{Entity, Journal};
use crate::ledger::{Entry, NOWHERE};
use crate::roll::RollCursor;

/// Commits and jobs looked at with one cut, at most.
const LOOKS_MAX: u32 = 8192;
/// Commits behind a commit that are looked at to see whether it keeps a superfluous one.
const PINNED_LOOKS_MAX: usize = 32;
/// The oldest commit is not worth a sweep if it is smaller than this.
const SWEEP_BYTES_MIN: u64 = 1024;
/// A commit smaller than this is small.
const SMALL_BYTES: u64 = 4096;

/// A pass over the commits.
#[derive(Debug)]
pub(crate) struct Pass {
    /// The commit it has come to.
    at: u32,
    /// Its number, to see whether the place is still that commit's.
    seq: u64,
    /// How far into it.
    cursor: RollCursor,
    /// The last commit of the pass.
    end_seq: u64,
    why: Why,
    /// The commit it has come to is being emptied.
    emptying: bool,
}

/// What a pass is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Why {
    /// Too much counts for nothing.
    Bloat,
    /// Too many commits are small.
    Crumbs,
    /// The oldest commit keeps others for next to nothing.
    Sweep,
}

/// What passes have done so far.
#[derive(Debug, Default)]
pub(crate) struct Gain {
    pub(crate) passes: u64,
    pub(crate) bytes: u64,
    /// What was left when the last one ended: the next waits until there is more.
    left_bytes: u64,
    left_commits: u64,
}

impl Journal {
    /// Whether a pass should begin.
    pub(crate) fn wants_pass(&self) -> bool {
        self.pass.is_none() && (self.is_bloated() || self.is_crumbled())
    }

    /// Larger than it may be for what counts in it.
    fn is_bloated(&self) -> bool {
        let (ledger, limits) = (&self.ledger, self.limits());
        ledger.bytes > limits.floor_bytes
            && ledger.bytes > limits.live_multiple.saturating_mul(ledger.live_bytes)
            && ledger.bytes > self.gain.left_bytes + self.gain.left_bytes / 8
    }

    /// Too many commits for the little they hold.
    fn is_crumbled(&self) -> bool {
        let ledger = &self.ledger;
        ledger.commits > self.limits().commits_max
            && ledger.bytes / ledger.commits.max(1) < SMALL_BYTES
            && ledger.commits > self.gain.left_commits + self.gain.left_commits / 8
    }

    /// Whether so little of the oldest commit counts that it costs next to nothing to be rid of it, and of all that is
    /// pinned behind it.
    fn wants_sweep(&self) -> bool {
        let oldest = self.ledger.entry(self.ledger.oldest());
        let hardly = |entry: &Entry| entry.bytes >= SWEEP_BYTES_MIN && entry.live_bytes <= entry.bytes / 16;
        self.pass.is_none() && self.pending.touched && oldest.is_some_and(hardly)
    }

    /// Goes on with the pass, if there is one or should be.
    pub(crate) fn compact(&mut self, engine: &Engine) {
        self.gain.left_bytes = self.gain.left_bytes.min(self.ledger.bytes);
        self.gain.left_commits = self.gain.left_commits.min(self.ledger.commits);
        if self.wants_pass() {
            self.gain.passes += 1;
            let why = if self.is_crumbled() { Why::Crumbs } else { Why::Bloat };
            self.begin_pass(why, self.ledger.newest_seq());
        } else if self.wants_sweep() {
            let oldest = self.ledger.entry(self.ledger.oldest());
            self.begin_pass(Why::Sweep, oldest.map_or(0, |entry| entry.seq));
        }
        let step = self.limits().step_bytes;
        let limit = self.pending.bytes() + (2 * self.pending.bytes()).clamp(step, 8 * step);
        let before = self.pending.bytes();
        let mut looks = LOOKS_MAX;
        while self.pass.is_some() && looks > 0 && self.pending.bytes() < limit {
            looks -= 1;
            self.compact_one(engine);
        }
        let rewritten = self.pending.bytes().saturating_sub(before);
        self.gain.bytes += rewritten;
        self.pending.touched |= rewritten > 0;
    }

    fn begin_pass(&mut self, why: Why, end_seq: u64) {
        let at = self.ledger.oldest();
        self.pass = Some(Pass { at, seq: 0, cursor: RollCursor::default(), end_seq, why, emptying: false });
        self.arrive_at(at);
    }

    /// Looks at one commit, or at one job of the commit that is being emptied.
    fn compact_one(&mut self, engine: &Engine) {
        let Some(pass) = &mut self.pass else { return };
        let at = pass.at;
        // What was there may be gone by itself, and the place another's: begin again, what was emptied is not worth it.
        let Some(entry) = self.ledger.entry(at).filter(|entry| entry.seq == pass.seq) else {
            let oldest = self.ledger.oldest();
            return self.arrive_at(oldest);
        };
        if pass.emptying {
            match pass.cursor.next(&entry.jobs) {
                Some(job) => return self.move_job(engine, job, at),
                None => self.move_queues(at),
            }
        } else if self.is_worth_emptying(entry) {
            if let Some(pass) = &mut self.pass {
                pass.emptying = true;
            }
            return;
        }
        let after = self.ledger.after(at);
        self.arrive_at(after);
    }

    /// Comes to a commit, or to the end of the pass.
    fn arrive_at(&mut self, slot: u32) {
        let Some(pass) = &mut self.pass else { return };
        match self.ledger.entry(slot) {
            Some(entry) if slot != NOWHERE && entry.seq <= pass.end_seq => {
                (pass.at, pass.seq, pass.cursor, pass.emptying) = (slot, entry.seq, RollCursor::default(), false);
            }
            Some(_) | None => {
                if pass.why != Why::Sweep {
                    (self.gain.left_bytes, self.gain.left_commits) = (self.ledger.bytes, self.ledger.commits);
                }
                self.pass = None;
            }
        }
    }

    fn is_worth_emptying(&self, entry: &Entry) -> bool {
        let merge = self.pass.as_ref().is_some_and(|pass| pass.why == Why::Crumbs) && entry.bytes < SMALL_BYTES;
        let keeps_idle = |(slot, _): &(u32, u32)| self.ledger.entry(*slot).is_some_and(|behind| behind.live == 0);
        entry.live > 0
            && (merge
                || entry.live_bytes <= entry.bytes / 4 * 3
                || entry.pinned.iter().take(PINNED_LOOKS_MAX).any(keeps_idle))
    }

    fn move_job(&mut self, engine: &Engine, id: JobId, from: u32) {
        if let Some(job) = engine.job(id) {
            self.move_entity(job, from);
        } else if let Some(schedule) = engine.schedule(id) {
            self.move_entity(schedule, from);
        } else if let Some(batch) = engine.batch(id) {
            self.move_entity(batch, from);
        }
    }

    fn move_entity(&mut self, what: &impl Entity, from: u32) {
        if self.ledger.puts.get(what.id()).is_some_and(|home| home.slot == from) {
            self.put(what);
        } else if self.ledger.standings.get(what.id()).is_some_and(|home| home.slot == from) {
            self.moved(what);
        }
    }

    fn move_queues(&mut self, from: u32) {
        let Some(entry) = self.ledger.entry(from) else { return };
        let queues = &self.ledger.queues;
        let here = entry.queues.iter().filter(|id| queues.get(*id).is_some_and(|home| home.slot == from));
        let before = self.pending.queues.len();
        self.pending.queues.extend(here);
        self.pending.touched |= self.pending.queues.len() > before;
    }
}
