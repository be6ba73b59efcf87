//! What a mailbox contains, and what each piece of it waits for.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use windlass_engine::{Event, JobId, Refusal, Reply, Stored, Token};

use crate::budget::Hold;
use crate::published::Published;

/// The buffer space that the owner needs before it takes posted bytes. They are shared in the
/// mailbox but copied by the owner, and a peer that reads nothing must cost no more than one that
/// reads.
pub const POSTED_ROOM_BYTES: usize = 224 * 1024;

/// A larger buffer is freed when it is empty.
pub(super) const KEPT_MAX: usize = 1 << 10;

/// A piece of mail for a client.
#[derive(Debug)]
pub enum Mail {
    /// An event, which the session encodes.
    Event(Event),
    /// Encoded bytes.
    Bytes(Bytes),
    /// Bytes posted by another connection.
    Posted(Published),
}

impl Mail {
    /// Overhead charged for each mail in addition to its bytes.
    pub(super) const FIXED_BYTES: usize = 64;

    /// Its size as the mailbox counts it.
    pub fn weight(&self) -> usize {
        Self::FIXED_BYTES
            + match self {
                Self::Bytes(bytes) => bytes.len(),
                Self::Posted(published) => return published.weight(),
                Self::Event(event) => event.bytes(),
            }
    }
}

/// Mail, and the commit that it waits for.
#[derive(Debug)]
pub struct QueuedMail {
    /// The commit that it waits for, if any.
    pub gate: Option<u64>,
    /// The mail.
    pub mail: Mail,
    /// Counts its bytes in the budget.
    pub hold: Option<Arc<Hold>>,
}

/// Why mail cannot be read yet.
enum WaitsFor {
    /// The commit of the change that it acknowledges is not on disk.
    Commit,
    /// A body in it is being loaded.
    Body,
}

/// Bytes of mail.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sizes {
    pub(super) all: usize,
    /// The part of `all` in posts of other connections.
    pub(super) posted: usize,
    /// The part of `all` counted by a hold.
    pub(super) held: usize,
    /// The part of `held` in jobs for the owner.
    jobs: usize,
}

impl Sizes {
    const fn add(&mut self, more: Self) {
        self.all += more.all;
        self.posted += more.posted;
        self.held += more.held;
        self.jobs += more.jobs;
    }

    const fn subtract(&mut self, gone: Self) {
        self.all -= gone.all;
        self.posted -= gone.posted;
        self.held -= gone.held;
        self.jobs -= gone.jobs;
    }

    /// Bytes without jobs, which have an overall limit instead ([`Budget::room`]).
    ///
    /// [`Budget::room`]: crate::Budget::room
    pub(super) const fn without_jobs(self) -> usize {
        self.all - self.jobs
    }
}

impl QueuedMail {
    /// What it waits for while this is the newest commit on disk.
    fn waits_for(&self, durable: u64) -> Option<WaitsFor> {
        if self.waits_for_body() {
            Some(WaitsFor::Body)
        } else if self.gate > Some(durable) {
            Some(WaitsFor::Commit)
        } else {
            None
        }
    }

    /// Whether its body is being loaded.
    pub fn waits_for_body(&self) -> bool {
        self.event().is_some_and(Event::waits_for_body)
    }

    /// Whether it hands out a job under a lease that outlives the connection.
    fn grants_lasting_lease(&self) -> bool {
        self.event().is_some_and(Event::grants_lasting_lease)
    }

    /// Whether it is the reply to a take, with a time-bound lease.
    fn answers_take(&self) -> bool {
        matches!(self.event(), Some(Event::Reply(_, Reply::Taken(job))) if !job.connection_bound)
    }

    fn sizes(&self) -> Sizes {
        let all = self.mail.weight();
        let hold = self.hold.as_deref();
        Sizes {
            all,
            posted: if matches!(self.mail, Mail::Posted(_)) {
                all
            } else {
                0
            },
            held: hold.map_or(0, Hold::bytes),
            jobs: hold.map_or(0, Hold::job_bytes),
        }
    }

    pub(super) fn job(&self) -> Option<(JobId, Token)> {
        let job = self.event()?.handed_out()?;
        Some((job.id, job.token))
    }

    const fn event(&self) -> Option<&Event> {
        if let Mail::Event(event) = &self.mail {
            Some(event)
        } else {
            None
        }
    }
}

/// The mail of one client, in order.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) mail: VecDeque<QueuedMail>,
    /// The bytes of all mail here.
    pub(super) sizes: Sizes,
    /// Jobs for the owner that were not sent to its peer.
    pub(super) unsent_jobs: Vec<(JobId, Token)>,
    /// Whether there is mail that the owner must get, however much the peer has unread.
    urgent: bool,
    /// The newest commit for which this mailbox will be woken: no mail waits for a later one.
    registered: Option<u64>,
}

/// Mail that waited for an unreadable body.
#[derive(Debug, Default)]
pub(crate) struct GivenUp {
    /// Whether there was any.
    pub(crate) waited: bool,
    /// The job, if the mail handed it out: the owner does not get it.
    pub(crate) unsent: Vec<(JobId, Token)>,
    /// How many deliveries of it were dropped.
    pub(crate) deliveries: u32,
}

impl Queue {
    /// Adds mail. Returns the commit that it waits for, unless earlier mail waits for the same one
    /// or a later one, so that the mailbox is already registered to be woken.
    pub(super) fn add(&mut self, queued: QueuedMail) -> Option<u64> {
        self.sizes.add(queued.sizes());
        self.urgent |= queued.event().is_some_and(Event::is_urgent);
        let new = queued.gate.filter(|_| queued.gate > self.registered);
        self.registered = self.registered.max(queued.gate);
        self.mail.push_back(queued);
        new
    }

    /// See [`Mailbox::take`](super::Mailbox::take).
    pub(super) fn take(
        &mut self,
        durable: u64,
        failed: bool,
        mut room: usize,
        into: &mut Vec<Mail>,
    ) -> Option<usize> {
        let mut left = None;
        while !self.take_all(durable, room, into)
            && let Some(first) = self.mail.front()
        {
            let is_unknown = match first.waits_for(durable) {
                None => false,
                // A lease is not disclaimed, because it is valid when the store responds again.
                Some(WaitsFor::Commit) if failed && !first.grants_lasting_lease() => true,
                Some(WaitsFor::Commit | WaitsFor::Body) => break,
            };
            let sizes = first.sizes();
            let least = if sizes.posted > 0 {
                POSTED_ROOM_BYTES
            } else {
                0
            };
            if room <= least && !self.urgent {
                left = Some(self.sizes.all - self.sizes.posted);
                break;
            }
            room = room.saturating_sub(sizes.all);
            self.sizes.subtract(sizes);
            let Some(QueuedMail { mut mail, .. }) = self.mail.pop_front() else {
                break;
            };
            if is_unknown {
                disclaim(&mut mail);
            }
            into.push(mail);
        }
        if self.mail.is_empty() {
            self.urgent = false;
            if self.mail.capacity() > KEPT_MAX {
                self.mail = VecDeque::new();
            }
        }
        left
    }

    /// Takes all mail in the common case that the owner has space for it and no mail must wait. No
    /// mail is weighed again then.
    fn take_all(&mut self, durable: u64, room: usize, into: &mut Vec<Mail>) -> bool {
        let may = self.registered <= Some(durable)
            && self.sizes.posted == 0
            && self.sizes.all <= room
            && !self.mail.iter().any(QueuedMail::waits_for_body);
        if may {
            // Usually there is one mail, for which draining a range would cost more.
            while let Some(queued) = self.mail.pop_front() {
                into.push(queued.mail);
            }
            self.sizes = Sizes::default();
        }
        may
    }

    /// Takes all mail before the first that waits for a body, whatever commits it waits for.
    pub(super) fn take_early(&mut self, into: &mut Vec<QueuedMail>) {
        let complete = self
            .mail
            .iter()
            .take_while(|queued| !queued.waits_for_body())
            .count();
        into.extend(self.mail.drain(..complete));
        self.urgent &= complete == 0;
        self.weigh();
    }

    /// Takes all mail. Jobs in it count as not sent.
    pub(super) fn clear(&mut self) -> VecDeque<QueuedMail> {
        let gone = std::mem::take(&mut self.mail);
        self.sizes = Sizes::default();
        self.unsent_jobs
            .extend(gone.iter().filter_map(QueuedMail::job));
        gone
    }

    /// Drops all mail. Takes some of the jobs that were not sent to the peer.
    pub(super) fn take_unsent_jobs(&mut self, most: usize) -> Vec<(JobId, Token)> {
        self.clear();
        let rest = self.unsent_jobs.split_off(most.min(self.unsent_jobs.len()));
        std::mem::replace(&mut self.unsent_jobs, rest)
    }

    /// Puts bodies into the mail that waits for them.
    pub(super) fn supply(&mut self, find: impl Fn(JobId, Stored) -> Option<Bytes>) {
        for queued in &mut self.mail {
            if queued.waits_for_body()
                && let Mail::Event(event) = &mut queued.mail
            {
                event.supply(&find);
            }
        }
        self.weigh();
    }

    /// Replaces mail that waits for the unreadable body of this job, and drops a delivery of the
    /// job.
    pub(super) fn give_up_on(&mut self, job: JobId) -> GivenUp {
        let mut given_up = GivenUp::default();
        self.mail.retain_mut(|queued| {
            let Mail::Event(event) = &mut queued.mail else {
                return true;
            };
            if !event.bodies().any(|(other, _)| other == job) {
                return true;
            }
            given_up.waited = true;
            given_up
                .unsent
                .extend(event.handed_out().map(|job| (job.id, job.token)));
            let Some(answer) = event.without_body(job) else {
                given_up.deliveries += 1;
                return false;
            };
            *event = answer;
            queued.hold = None;
            true
        });
        self.urgent &= !self.mail.is_empty();
        self.weigh();
        given_up
    }

    /// See [`Mailbox::begin_epoch`](super::Mailbox::begin_epoch).
    pub(super) fn begin_epoch(&mut self, reached: u64) {
        self.registered = None;
        self.mail.retain_mut(|queued| {
            let is_lost = queued.gate.take() > Some(reached);
            if is_lost {
                disclaim(&mut queued.mail);
            }
            !(is_lost && queued.answers_take())
        });
        self.weigh();
    }

    /// Recounts the bytes of all mail.
    fn weigh(&mut self) {
        self.sizes = Sizes::default();
        for queued in &self.mail {
            self.sizes.add(queued.sizes());
        }
    }
}

/// Turns an acknowledgement that can no longer be given into an unknown outcome.
fn disclaim(mail: &mut Mail) {
    if let Mail::Event(Event::Reply(tag, reply)) = mail
        && reply.acknowledges(*tag)
    {
        *reply = Reply::Refused(Refusal::Unknown);
    }
}
