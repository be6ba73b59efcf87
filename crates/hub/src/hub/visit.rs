//! The hub as a [`Broker`]. A visit executes as many of a peer's requests as possible, in order.
//!
//! A visit ends when it has used its share of work, when its replies fill the peer's space, or
//! before a large job that must wait. The rest remains for a later visit.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use windlass_engine::{
    ClientCommand, ClientId, ClientInfo, Command, Event, Reading, Refusal, Reply, Tag, Take,
    TakeCommand, Wait, WarningKind,
};
use windlass_session::Item;

use super::{ASKED, Core, DAEMON, Durability, Hub};
use crate::broker::{Batch, Broker, CommitDuty, Health, Visited};
use crate::mailbox::{Mail, Mailbox};
use crate::waking::OnDisk;

/// The work of one visit, about half a millisecond by the engine's estimate ([`Engine::work`]). The
/// visit completes the command that exceeds it.
///
/// [`Engine::work`]: windlass_engine::Engine::work
const VISIT_WORK_MAX: u64 = 20_000;

/// The commit of a larger job takes long enough to delay others noticeably.
pub(super) const LARGE_BYTES: usize = 1 << 20;

/// Jobs that one visit requeues for a client that closes.
const RETURNED_MAX: usize = 1_000;

/// How often bodies are read for a command of the daemon itself.
const READS_MAX: u32 = 5;

/// What a client's next item waits for. The client's mailbox is woken when it may continue.
#[derive(PartialEq, Eq)]
enum WaitsFor {
    /// The commit of another large job.
    LargeJob,
    /// Buffer space, in which the engine answers a poll of this client.
    Buffers,
    /// Memory for a new job.
    Memory,
    /// Bodies on disk that a command needs.
    Bodies,
}

/// What is left of an item.
pub(super) enum Rest {
    /// Nothing: it was executed.
    Nothing,
    /// A part, once other clients had their turn.
    Part(Item),
    /// All of it, until the bodies that it needs are loaded.
    UntilLoaded(Item),
}

/// Whether an item pushes a job that must be alone in its commit.
fn is_large(item: &Item) -> bool {
    let Item::Command(_, command) = item else {
        return false;
    };
    command
        .new_job()
        .is_some_and(|job| job.durable && job.body.len() > LARGE_BYTES)
}

/// Whether an item requests a job without waiting.
const fn is_poll(item: &Item) -> bool {
    matches!(
        item,
        Item::Command(
            _,
            Command::Take(TakeCommand::Take(Take { wait: Wait::No, .. }))
        )
    )
}

impl Hub {
    /// As [`Broker::ask`], where names are those of an existing namespace; of that without a name for `None`.
    ///
    /// # Errors
    ///
    /// The command is refused.
    pub fn ask_in(&self, namespace: Option<&str>, command: Command) -> Result<Reply, Refusal> {
        let mut lent = BTreeMap::new();
        let mut unreadable = BTreeSet::new();
        // A body may have moved by the time it is read.
        for _ in 0..READS_MAX {
            let (ours, missing) = self.act(|core| {
                core.context.lent = std::mem::take(&mut lent);
                let open = ClientCommand::Open(ClientInfo {
                    namespace: namespace.map(Into::into),
                    ..ClientInfo::default()
                });
                core.apply(DAEMON, Tag::NONE, open);
                core.context.unreadable.clone_from(&unreadable);
                core.apply(DAEMON, ASKED, command.clone());
                core.apply(DAEMON, Tag::NONE, ClientCommand::Close);
                let (ours, others): (Vec<_>, Vec<_>) = std::mem::take(&mut core.context.events)
                    .into_iter()
                    .partition(|(client, _)| *client == DAEMON);
                core.context.events = others;
                (ours, std::mem::take(&mut core.context.missing))
            });
            let reply = ours.into_iter().find_map(|(_, event)| match event {
                event if event.waits_for_body() => None,
                Event::Reply(ASKED, reply) => Some(reply),
                Event::Reply(..) | Event::Notice(_) => None,
            });
            match reply {
                Some(Reply::Refused(why)) => return Err(why),
                Some(reply) => return Ok(reply),
                None if missing.is_empty() => return Err(Refusal::Unknown),
                None => {
                    let more;
                    (lent, more) = self.read_now(missing);
                    unreadable.extend(more);
                }
            }
        }
        Err(Refusal::Unavailable)
    }
}

impl Broker for Hub {
    fn open(&self, client: ClientId, mailbox: Arc<Mailbox>) {
        self.lock().mailboxes.insert(client, mailbox);
    }

    fn visit(&self, now: &Reading, batches: &mut dyn Iterator<Item = Batch<'_>>) -> CommitDuty {
        if self.assure() {
            return self.visit_all_of(now, batches, self.durable.has_turns.get());
        }
        for batch in batches {
            *batch.visited = Visited::UntilRung;
        }
        CommitDuty::None
    }

    fn visit_nonblocking(&self, now: &Reading, batch: Batch<'_>) -> bool {
        let may_act = self.may_act();
        if may_act {
            self.visit_all_of(now, &mut std::iter::once(batch), false);
        }
        may_act
    }

    fn mail(&self, mailbox: &Mailbox, room: usize, into: &mut Vec<Mail>) -> Option<usize> {
        if !self.assure() {
            return None;
        }
        mailbox.take(self.durable(), self.failed(), room, into)
    }

    fn mail_nonblocking(&self, mailbox: &Mailbox, into: &mut Vec<Mail>) -> bool {
        let may_act = self.may_act();
        if may_act {
            mailbox.take(self.durable(), self.failed(), usize::MAX, into);
        }
        may_act
    }

    /// Jobs that the peer has never received are requeued first.
    ///
    /// While the daemon is stopping, the engine is not notified of the rest: jobs that the peer
    /// holds must not count as lost ([`Hub::leave_jobs`]), and everything else ends with the
    /// daemon.
    fn close(&self, client: ClientId) -> bool {
        self.act(|core| {
            let unsent = core
                .mailboxes
                .get(&client)
                .map_or_else(Vec::new, |it| it.take_unsent_jobs(RETURNED_MAX));
            if !unsent.is_empty() {
                core.apply(client, Tag::NONE, TakeCommand::Unwait);
                core.release(client, unsent);
                return false;
            }
            core.mailboxes.remove(&client);
            if self.stopping() {
                return true;
            }
            core.pending.ends.remove(&client);
            core.polling.remove(&client);
            core.unreadable.remove(&client);
            let close = Command::from(ClientCommand::Close);
            let is_part = core.apply_in_part(client, &close);
            if !is_part {
                core.apply(client, Tag::NONE, close);
            }
            !is_part
        })
    }

    fn ask(&self, command: Command) -> Result<Reply, Refusal> {
        self.ask_in(None, command)
    }

    fn health(&self) -> Health {
        if self.stopping() {
            Health::Stopping
        } else if self.failed() || !self.may_act() {
            Health::StoreFailed
        } else if self.durable.full.get() {
            Health::DiskFull
        } else {
            Health::Serving
        }
    }

    fn stop(&self) {
        self.stopping.set(true);
        let mailboxes: Vec<_> = self.lock().mailboxes.values().cloned().collect();
        Mailbox::ring_all(&mailboxes);
    }
}

impl Hub {
    /// Executes items of every client. A visit that has lasted long enough ends, and another thread
    /// may take the lock before the next client. `in_turn`: see [`Hub::finish`].
    pub(super) fn visit_all_of(
        &self,
        now: &Reading,
        batches: &mut dyn Iterator<Item = Batch<'_>>,
        in_turn: bool,
    ) -> CommitDuty {
        let mut duty = CommitDuty::None;
        let mut visit = None;
        for Batch {
            client,
            items,
            room,
            visited,
        } in batches
        {
            let core = visit.get_or_insert_with(|| {
                let mut core = self.lock();
                core.begin(&self.time_of_visit(now), &self.budget);
                core
            });
            let mut waits_for = self.go(core, client, items, room);
            let is_long = core.engine.work().wrapping_sub(core.visit.begun) >= VISIT_WORK_MAX;
            let was_large = core.visit.is_large;
            if (was_large || is_long || waits_for.is_some())
                && let Some(core) = visit.take()
            {
                duty = duty.max(self.finish(core, in_turn));
            }
            // The commit of a large job is known only at the end of the visit.
            if was_large
                && waits_for == Some(WaitsFor::LargeJob)
                && !self.lock().waits_for_large(client, &self.durable.newest)
            {
                waits_for = None;
            }
            *visited = if waits_for.is_some() {
                Visited::UntilRung
            } else if items.is_empty() {
                Visited::All
            } else {
                Visited::Part
            };
        }
        match visit {
            Some(core) => duty.max(self.finish(core, in_turn)),
            None => duty,
        }
    }

    /// Executes a client's items, up to its share. Returns what the next one waits for, if it must
    /// wait. It remains in `items`, with everything after it.
    ///
    /// A large job is alone in its commit, and there is one such commit at a time, so that small
    /// jobs wait for at most one large job.
    fn go(
        &self,
        core: &mut Core,
        client: ClientId,
        items: &mut VecDeque<Item>,
        mut room: usize,
    ) -> Option<WaitsFor> {
        let one_by_one = self.durable.durability == Durability::Durable && !self.failed();
        let begun = core.engine.work();
        while room > 0 && core.engine.work().wrapping_sub(begun) < VISIT_WORK_MAX {
            let next = items.front();
            let is_large = one_by_one && next.is_some_and(is_large);
            if is_large && core.waits_for_large(client, &self.durable.newest) {
                return Some(WaitsFor::LargeJob);
            }
            if core.waits_for_buffers(client) {
                return Some(WaitsFor::Buffers);
            }
            if next.is_some_and(|item| core.must_wait_for_memory(client, item, self)) {
                return Some(WaitsFor::Memory);
            }
            let answers_at = core.context.events.len();
            let item = items.pop_front()?;
            if is_large {
                core.begin_commit();
                core.visit.is_large = true;
            }
            let is_poll = core.context.room == 0 && is_poll(&item);
            match self.do_one(core, client, item) {
                Rest::Nothing => {}
                Rest::Part(item) => items.push_front(item),
                Rest::UntilLoaded(item) => {
                    items.push_front(item);
                    return Some(WaitsFor::Bodies);
                }
            }
            if is_poll && core.engine.defers_takes_of(client) {
                core.polling.insert(client);
            }
            room = room.saturating_sub(core.answer_bytes(client, answers_at));
        }
        None
    }

    /// Executes one item, or a part of it.
    fn do_one(&self, core: &mut Core, client: ClientId, item: Item) -> Rest {
        match item {
            Item::Command(tag, command) if let Some(why) = self.refusal(tag, &command) => {
                core.notice_refused(&command, why);
                core.refuse(client, tag, why);
            }
            Item::Forbidden(tag) => core.refuse(client, tag, Refusal::NotPermitted),
            Item::Command(tag, command)
                if self.durable.hand_out_after_commit
                    && !tag.wants_answer()
                    && command.ends_job() =>
            {
                core.apply_end(client, tag, command);
            }
            Item::Command(tag, command) if core.apply_in_part(client, &command) => {
                return Rest::Part(Item::Command(tag, command));
            }
            Item::Command(tag, command) => return core.apply_or_load(client, tag, command),
            Item::Bytes(bytes) => {
                let place = core.context.events.len();
                core.visit.own_bytes.push_back((place, client, bytes));
            }
            Item::Publish(to, bytes) => {
                let mailboxes = core.mailboxes_of(&to);
                core.visit.publications.push((bytes, mailboxes));
            }
        }
        Rest::Nothing
    }

    /// Why the store cannot accept the command's data, if it cannot.
    fn refusal(&self, tag: Tag, command: &Command) -> Option<Refusal> {
        if self.failed() && command.needs_store(tag) {
            return Some(Refusal::Unavailable);
        }
        let is_full = self.durable.full.get() && command.takes_room();
        (is_full || self.is_too_large(command)).then_some(Refusal::DiskFull)
    }

    /// Whether a large job exceeds the free space. If it fits, the space is reduced by its size.
    /// Small jobs are not counted, because those in flight to the disk fit into the reserve
    /// (`commit::room`).
    fn is_too_large(&self, command: &Command) -> bool {
        command.new_job().is_some_and(|job| {
            job.body.len() > LARGE_BYTES
                && command.takes_room()
                && !self.durable.take_room(job.body.len() as u64)
        })
    }
}

impl Core {
    /// Whether a large job is in this visit or in flight to the disk. In flight, the hub wakes the
    /// client's mailbox when it is durable.
    fn waits_for_large(&mut self, client: ClientId, newest: &OnDisk) -> bool {
        if self.visit.is_large {
            return true;
        }
        let Some(commit) = self.pending.large_until else {
            return false;
        };
        match self.mailboxes.get(&client) {
            Some(mailbox) => self.pending.waiting.add_unless(newest, commit, mailbox),
            None => commit > newest.get(),
        }
    }

    /// Whether a poll of this client waits for buffer space. Its next poll must then wait too, or
    /// the client would get all jobs at once later. The reply wakes the mailbox.
    fn waits_for_buffers(&mut self, client: ClientId) -> bool {
        if self.polling.is_empty() {
            return false;
        }
        let waits = self.polling.contains(&client) && self.engine.defers_takes_of(client);
        if !waits {
            self.polling.remove(&client);
        }
        waits
    }

    pub(super) fn refuse(&mut self, client: ClientId, tag: Tag, why: Refusal) {
        self.context
            .events
            .push((client, Event::Reply(tag, Reply::Refused(why))));
    }

    /// Starts a new commit: everything done so far in this visit belongs to the previous one.
    fn begin_commit(&mut self) {
        self.append();
        self.context.changes.clear();
        self.journal.begin_anew(&self.engine);
    }

    /// Bytes that the events from an index on add for this client.
    fn answer_bytes(&self, client: ClientId, from: usize) -> usize {
        let answers = self.context.events.get(from..).unwrap_or_default();
        answers
            .iter()
            .filter(|(whose, _)| *whose == client)
            .map(|(_, event)| event.bytes())
            .sum()
    }

    /// Executes the end of a job, which gets no reply. If the job is recorded on disk, the client's
    /// next job waits for this commit, because after a restart the job would run again.
    fn apply_end(&mut self, client: ClientId, tag: Tag, command: Command) {
        let before = self.context.changes.len();
        self.apply(client, tag, command);
        if self
            .context
            .changes
            .get(before..)
            .is_some_and(|changes| self.journal.knows_any(changes))
        {
            self.visit.ended_by.push(client);
        }
    }

    /// Executes a part of a long command. Returns whether there is more of it.
    pub(super) fn apply_in_part(&mut self, client: ClientId, command: &Command) -> bool {
        if !command.runs_in_parts() {
            return false;
        }
        self.engine.tick(&mut self.context);
        self.engine
            .apply_in_part(client, command, &mut self.context)
    }

    /// Records that a job is refused because the store has failed or is full.
    fn notice_refused(&mut self, command: &Command, why: Refusal) {
        if let Some(job) = command.new_job() {
            let example = || {
                (
                    Bytes::copy_from_slice(&job.queue),
                    Bytes::new(),
                    Bytes::new(),
                )
            };
            self.context.warn(WarningKind::Refused(why), example);
        }
    }
}
