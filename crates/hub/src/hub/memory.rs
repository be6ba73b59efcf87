//! Bodies that are not in memory: visits report them, and the loading thread updates them under the
//! lock.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use windlass_engine::{ClientId, Command, Engine, JobId, Stored, Tag};
use windlass_session::Item;
use windlass_store::Commit;

use super::visit::Rest;
use super::{Core, Hub};
use crate::loads::{Cool, Load};
use crate::mailbox::{GivenUp, Mailbox};

/// Bodies start to move to disk when less than this fraction is free.
const LEFT_PART: u64 = Engine::LEFT_PART;

/// Bodies that together use less than this fraction stay in memory while there is space.
const BODIES_PART: u64 = Engine::BODIES_PART;

/// A waiting job needs this fraction in addition to its body.
const BESIDE_PART: u64 = 64;

/// Jobs that the engine examines per search for bodies.
const JOBS_PER_LOOK: usize = 4_096;

impl Core {
    /// Bytes that count towards `limits.memory` in addition to the buffers of connections: the
    /// engine, and changes that wait for the disk.
    fn memory_used(&self) -> u64 {
        self.engine
            .resident_bytes()
            .saturating_add(self.journal.uncommitted_bytes())
    }

    fn memory_left(&self) -> u64 {
        self.engine
            .limits()
            .memory_max
            .saturating_sub(self.memory_used())
    }

    /// Whether bodies must be moved to disk, for jobs that wait and those that come next, and
    /// enough of them can be.
    fn is_short_of_memory(&self) -> bool {
        let max = self.engine.limits().memory_max;
        let used = self.memory_used();
        let is_short = |bytes| used.saturating_add(bytes) > max;
        is_short(self.for_room.most())
            || is_short(max / LEFT_PART) && self.engine.bodies_here() > max / BODIES_PART
    }

    /// Whether a job must wait for memory. If so, the client's mailbox is woken when there is
    /// space, or when there will be none.
    pub(super) fn must_wait_for_memory(
        &mut self,
        client: ClientId,
        item: &Item,
        hub: &Hub,
    ) -> bool {
        let Item::Command(_, command) = item else {
            return false;
        };
        let Some(job) = command.new_job() else {
            return false;
        };
        let max = self.engine.limits().memory_max;
        let bytes = job.body.len() as u64;
        // The job also needs its key and name, and the neighbours of the jobs that the engine
        // examines for it.
        let bytes = bytes.max((bytes + max / BESIDE_PART).min(max));
        if bytes <= self.memory_left() || bytes > hub.room_to_come(self) {
            return false;
        }
        let Some(mailbox) = self.mailboxes.get(&client) else {
            return false;
        };
        self.for_room
            .add(bytes, mailbox, |other| Arc::ptr_eq(other, mailbox));
        hub.loading.make_room();
        true
    }

    /// Executes a command, unless it must be repeated once the bodies that it needs are loaded.
    pub(super) fn apply_or_load(&mut self, client: ClientId, tag: Tag, command: Command) -> Rest {
        if self.engine.stored().0 == 0 || !command.reads_bodies() {
            self.apply(client, tag, command);
            return Rest::Nothing;
        }
        let unreadable = self.unreadable.remove(&client).unwrap_or_default();
        self.context.unreadable.clone_from(&unreadable);
        self.apply(client, tag, command.clone());
        if self.context.missing.is_empty() {
            return Rest::Nothing;
        }
        if !unreadable.is_empty() {
            self.unreadable.insert(client, unreadable);
        }
        let who = self.mailboxes.get(&client);
        let load = |(job, from)| Load {
            job,
            from,
            who: who.cloned(),
            is_for_mail: false,
        };
        self.visit
            .loads
            .extend(self.context.missing.drain(..).map(load));
        Rest::UntilLoaded(Item::Command(tag, command))
    }
}

impl Hub {
    /// Reads the bodies that a commit needs, without holding the lock.
    pub(super) fn load_bodies_of(&self, commit: &mut Commit) {
        let read = |stored| {
            self.loading.reader()?.read(stored).inspect_err(|error| {
                crate::warn_limited!("body of a commit", %error, "cannot read the body of a job for a commit");
            })
        };
        if let Err(error) = commit.load(read) {
            // The log contains everything that was acknowledged.
            tracing::error!(
                %error,
                "cannot read a body that a commit needs: exiting to restart from the journal"
            );
            crate::last_words::exit();
        }
    }

    /// Passes the work that a visit has left to the loading thread.
    pub(super) fn leave_to_loading(&self, core: &mut Core, commit: u64) {
        let ahead = core.engine.take_wanted().into_iter();
        core.visit.loads.extend(ahead.map(|(job, from)| Load {
            job,
            from,
            who: None,
            is_for_mail: false,
        }));
        self.loading.load(std::mem::take(&mut core.visit.loads));
        self.loading.free(commit, core.engine.take_freed());
        if core.is_short_of_memory() {
            self.loading.make_room();
        }
    }

    pub(crate) fn is_short_of_memory(&self) -> bool {
        self.lock().is_short_of_memory()
    }

    /// Memory that will become free although no job ends, by moving bodies and by commits.
    fn room_to_come(&self, core: &Core) -> u64 {
        let max = core.engine.limits().memory_max;
        if self.failed() {
            0
        } else if self.loading.makes_room() {
            max
        } else {
            max.saturating_sub(core.engine.resident_bytes())
        }
    }

    /// Takes the mailboxes whose jobs fit now, or never will. The caller must wake them.
    pub(super) fn take_with_room(&self, core: &mut Core) -> Vec<Arc<Mailbox>> {
        if core.for_room.most() == 0 {
            return Vec::new();
        }
        let left = core.memory_left();
        core.for_room.take(left, self.room_to_come(core))
    }

    /// Wakes the clients whose jobs fit now, or never will.
    pub(crate) fn ring_with_room(&self) {
        let with_room = self.take_with_room(&mut self.lock());
        Mailbox::ring_all(&with_room);
    }

    /// Bytes that count towards the limit of memory, and that limit.
    pub fn memory(&self) -> (u64, u64) {
        let core = self.lock();
        (core.memory_used(), core.engine.limits().memory_max)
    }

    /// Memory for new jobs if none ends: bodies that can be moved to disk count as free.
    pub fn memory_room(&self) -> u64 {
        self.room_to_come(&self.lock())
    }

    /// Bytes of bodies that fit into memory before others must move to disk.
    pub(crate) fn memory_left(&self) -> u64 {
        let core = self.lock();
        core.engine
            .room_for_bodies()
            .saturating_sub(core.journal.uncommitted_bytes())
    }

    /// Whether memory exceeds its limit.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        let core = self.lock();
        core.memory_used() > core.engine.limits().memory_max
    }

    /// Whether jobs alone, without changes that wait for the disk, exceed the limit.
    pub(crate) fn has_too_many_jobs(&self) -> bool {
        let core = self.lock();
        core.engine
            .resident_bytes()
            .saturating_add(core.for_room.most())
            > core.engine.limits().memory_max
    }

    /// Selects bodies that can be moved to disk.
    pub(crate) fn cool(&self, bytes: u64) -> Cool {
        let mut core = self.lock();
        let looks = 3 * (core.engine.job_count() / JOBS_PER_LOOK + 2);
        let before = core.engine.resident_bytes();
        let bodies = core.engine.cool(bytes);
        Cool {
            bodies,
            has_packed: core.engine.resident_bytes() < before,
            looks,
        }
    }

    /// Records that bodies are stored at these places. Returns the places that no job needs.
    pub(crate) fn set_stored(&self, bodies: &[(JobId, Bytes)], places: &[u64]) -> Vec<Stored> {
        let mut core = self.lock();
        let mut refused = Vec::new();
        for ((job, body), at) in bodies.iter().zip(places) {
            if !core.engine.set_stored(*job, body, *at) {
                refused.extend(Stored::new(*at, body));
            }
        }
        core.engine.pack(bodies.iter().map(|(job, _)| *job));
        refused
    }

    /// Records that these bodies were read.
    pub(crate) fn set_loaded<'a>(
        &self,
        bodies: impl Iterator<Item = (&'a (JobId, Stored), &'a Bytes)>,
    ) {
        self.act(|core| {
            for ((job, from), body) in bodies {
                core.engine.set_loaded(*job, *from, body);
            }
        });
    }

    /// Reads bodies on this thread. Also returns the jobs with unreadable bodies.
    pub(super) fn read_now(
        &self,
        missing: Vec<(JobId, Stored)>,
    ) -> (BTreeMap<JobId, (Stored, Bytes)>, Vec<JobId>) {
        let mut lent = BTreeMap::new();
        let mut unreadable = Vec::new();
        for (job, from) in missing {
            match self.loading.reader().and_then(|reader| reader.read(from)) {
                Ok(body) => drop(lent.insert(job, (from, body))),
                Err(error) => {
                    crate::warn_limited!("body cannot be read", %error, job = job.0, "cannot read the body of a job");
                    unreadable.push(job);
                }
            }
        }
        (lent, unreadable)
    }

    /// Handles a body that cannot be read. Mail that waits for it gets another reply. A job to be
    /// handed out dies, so that it does not block others; while the daemon is stopping it is
    /// requeued instead. A command that waits for the body skips its job when it is repeated.
    pub(crate) fn cannot_load(&self, mailbox: &Arc<Mailbox>, job: JobId, from: Stored) {
        let GivenUp {
            waited,
            unsent,
            deliveries,
        } = mailbox.give_up_on(job);
        let client = mailbox.client();
        self.act(|core| {
            for (job, token) in unsent {
                let is_dead = !self.stopping()
                    && core
                        .engine
                        .bury_unreadable(job, token, from, &mut core.context);
                if !is_dead {
                    core.release(client, vec![(job, token)]);
                }
            }
            if !core.mailboxes.contains_key(&client) {
                return;
            }
            if !waited {
                core.unreadable.entry(client).or_default().insert(job);
            }
            for _ in 0..deliveries {
                core.engine.return_credit(client, &mut core.context);
            }
        });
        mailbox.ring();
    }
}
