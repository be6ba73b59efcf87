//! How work on a job ends: finished, failed, released, lost with its worker, expired. Also the worker's progress reports.

use bytes::Bytes;

use crate::context::Context;
use crate::engine::Engine;
use crate::event::{Notice, Reply};
use crate::ids::{ClientId, JobId, Tag, Timestamp};
use crate::job::{Backoff, Failure, Holder, Job, JobState, OnExpiry, Progress};
use crate::outcome::{End, Fate};
use crate::query::Totals;
use crate::ready::Slot;
use crate::refusal::{Refusal, Thing};
use crate::request::{JobRef, Note, Proof, QueueKind};
use crate::warning::WarningKind;

/// The failure recorded when a lease runs out and that counts as a failure.
const EXPIRED_KIND: &[u8] = b"ReservationExpired";
const EXPIRED_MESSAGE: &[u8] = b"job reservation expired";

/// The kind of failure of a job with which too many workers were lost.
pub const LOSSES: &[u8] = b"losses";

const HOUR_MS: u64 = 3_600_000;

/// The kind of failure of a job that no worker's protocol could express (conversion error).
pub const MISFIT: &[u8] = b"conversion";

impl Engine {
    pub(crate) fn finish(
        &mut self,
        client: ClientId,
        tag: Tag,
        job: &JobRef,
        proof: Proof,
        result: Bytes,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        let slot = match (proof, self.leased(client, job, proof)) {
            (Proof::Late, _) => self.left(job, 0)?,
            (Proof::AnyLease, Err(Refusal::NotHeld)) => self.left(job, 1)?,
            (_, leased) => leased?,
        };
        self.must_be(slot, QueueKind::Work)?;
        let Some(job) = self.jobs.at(slot) else { return Err(Refusal::NotFound(Thing::Job)) };
        let id = job.id;
        // A job that is not durable keeps no result.
        let extra = job.extra.as_deref().filter(|_| job.durable);
        let result_keep_ms = extra.map_or(0, |extra| extra.result_keep_ms);
        let keep_ms = extra.and_then(|extra| extra.track).map_or(0, |track| track.keep_ms).max(result_keep_ms);
        self.count(slot, |totals| totals.succeeded += 1);
        let by = self.protocol_of(client);
        self.tell_end(slot, &End::Succeeded { result: result.clone(), by }, context);
        self.succeeded_in_batch(slot, context);
        if keep_ms > 0 {
            let until = self.now.after_ms(keep_ms);
            self.jobs.reweigh(slot, |job| {
                job.payload = job.payload.with_body(&Bytes::new());
                let protocol = job.protocol;
                let extra = job.extra_mut();
                extra.result = Some(if result_keep_ms > 0 { Self::own(&result) } else { Bytes::new() });
                extra.result_by = by.filter(|by| *by != protocol && result_keep_ms > 0);
            });
            self.move_job(slot, JobState::Done(until));
            self.remember_put(slot, context);
        } else {
            self.remove_job(slot, context);
        }
        if tag.wants_answer() {
            context.reply(client, tag, Reply::Finished(id));
        }
        Ok(())
    }

    pub(crate) fn fail(
        &mut self,
        client: ClientId,
        tag: Tag,
        job: &JobRef,
        proof: Proof,
        failure: Box<Failure>,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        let slot = self.leased(client, job, proof)?;
        self.must_be(slot, QueueKind::Work)?;
        let id = self.jobs.at(slot).map(|job| job.id).ok_or(Refusal::NotFound(Thing::Job))?;
        let end = End::Failed(failure.clone());
        let fate = self.fail_job(slot, failure, &end, context);
        if tag.wants_answer() {
            context.reply(client, tag, Reply::Failed { job: id, fate });
        }
        Ok(())
    }

    /// Records a failure and applies the job's retry policy.
    fn fail_job(&mut self, slot: Slot, mut failure: Box<Failure>, end: &End, context: &mut Context) -> Fate {
        self.void_token(slot, context);
        (failure.at, failure.first_at) = (self.wall(), self.wall());
        self.count(slot, |totals| totals.failed += 1);
        self.jobs.reweigh(slot, |job| {
            job.failures = job.failures.saturating_add(1);
            let last = &mut job.extra_mut().failure;
            failure.first_at = last.as_ref().map_or(failure.at, |last| last.first_at);
            failure.next_at = last.as_ref().and_then(|last| last.next_at);
            *last = Some(failure);
        });
        self.ran_in_batch(slot, context);
        let Some(job) = self.jobs.at(slot) else { return Fate::Discarded };
        let (retry, failures) = (job.retry, job.failures);
        if i64::from(failures) > i64::from(retry.failures_max) || self.is_abandoned(slot) {
            return self.give_up(slot, end, context);
        }
        let wait_ms = backoff_ms(retry.backoff, failures - 1, context);
        let (at, next_at) = (self.now.after_ms(wait_ms), self.wall().after_ms(wait_ms));
        if let Some(last) = self.jobs.at_mut(slot).and_then(|job| job.extra_mut().failure.as_mut()) {
            last.next_at = Some(next_at);
        }
        if wait_ms == 0 {
            let rank = self.rank(false);
            self.make_ready(slot, Some(rank), context);
        } else {
            self.move_job(slot, JobState::Retrying(at));
            self.remember_move(slot, context);
        }
        Fate::Retried(at)
    }

    /// The job waits for a worker of another protocol. If no protocol is left, it goes to the dead-letter queue whatever its
    /// retry policy is, so that an operator can see the reason.
    pub(crate) fn misfit(
        &mut self,
        client: ClientId,
        tag: Tag,
        job: &JobRef,
        proof: Proof,
        why: &Bytes,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        let slot = self.leased(client, job, proof)?;
        self.must_be(slot, QueueKind::Work)?;
        self.count(slot, |totals| totals.misfits += 1);
        let waits = self.mark_unfit(slot, self.protocol_of(client));
        self.warn_unfit(slot, why, !waits, context);
        if waits {
            self.make_ready(slot, None, context);
        } else {
            self.bury_misfit(slot, why, context);
        }
        self.tell_done(client, tag, context);
        Ok(())
    }

    fn bury_misfit(&mut self, slot: Slot, why: &Bytes, context: &mut Context) {
        let now = self.wall();
        let failure = self.jobs.reweigh(slot, |job| {
            let last = &mut job.extra_mut().failure;
            let (first_at, next_at) = last.as_ref().map_or((now, None), |last| (last.first_at, last.next_at));
            let (kind, message) = (Bytes::from_static(MISFIT), Self::own(why));
            last.insert(Box::new(Failure { at: now, first_at, next_at, kind, message, backtrace: Vec::new() })).clone()
        });
        self.tell_end(slot, &End::Failed(failure.unwrap_or_default()), context);
        if self.jobs.at(slot).is_some_and(|job| job.durable) {
            self.bury(slot, context);
        } else {
            self.end_badly(slot, context);
        }
    }

    /// Gives up a job: to the dead-letter queue if its policy keeps it, otherwise it is removed.
    fn give_up(&mut self, slot: Slot, end: &End, context: &mut Context) -> Fate {
        self.tell_end(slot, end, context);
        let Some(job) = self.jobs.at(slot) else { return Fate::Discarded };
        let kept = job.retry.failures_max != 0 && job.durable;
        self.warn_end(slot, end, kept, context);
        if !kept {
            self.end_badly(slot, context);
            return Fate::Discarded;
        }
        Fate::Buried(self.bury(slot, context))
    }

    /// Removes a job that did not succeed. If it is tracked, its end stays known for a while.
    pub(crate) fn end_badly(&mut self, slot: Slot, context: &mut Context) {
        let tracked = |job: &Job| job.extra.as_deref()?.track.filter(|_| job.durable);
        let Some(track) = self.jobs.at(slot).and_then(tracked) else { return drop(self.remove_job(slot, context)) };
        self.ran_in_batch(slot, context);
        self.jobs.reweigh(slot, |job| {
            job.payload = job.payload.with_body(&Bytes::new());
            let extra = job.extra_mut();
            (extra.result, extra.result_by) = (None, None);
        });
        self.move_job(slot, JobState::Done(self.now.after_ms(track.keep_ms)));
        self.remember_put(slot, context);
    }

    /// Moves a job to the dead-letter queue.
    pub(crate) fn bury(&mut self, slot: Slot, context: &mut Context) -> Timestamp {
        let until = self.now.after_ms(self.limits.dead_ms);
        self.count(slot, |totals| totals.buried += 1);
        self.ran_in_batch(slot, context);
        self.move_job(slot, JobState::Dead(until));
        self.remember_move(slot, context);
        until
    }

    pub(crate) fn release(
        &mut self,
        client: ClientId,
        tag: Tag,
        job: &JobRef,
        proof: Proof,
        front: bool,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        let slot = self.leased(client, job, proof)?;
        self.must_be(slot, QueueKind::Work)?;
        let rank = front.then(|| self.rank(true));
        self.make_ready(slot, rank, context);
        self.tell_done(client, tag, context);
        Ok(())
    }

    pub(crate) fn extend(
        &mut self,
        client: ClientId,
        tag: Tag,
        job: &JobRef,
        proof: Proof,
        (until, only_later): (Timestamp, bool),
        context: &mut Context,
    ) -> Result<(), Refusal> {
        let slot = self.leased(client, job, proof)?;
        self.move_end(slot, until, only_later);
        if self.jobs.at(slot).and_then(Job::lease).is_some_and(|lease| !lease.connection_bound()) {
            self.remember_move(slot, context);
        }
        self.tell_done(client, tag, context);
        Ok(())
    }

    /// Moves the end of a lease, if there is one.
    pub(crate) fn move_end(&mut self, slot: Slot, until: Timestamp, only_later: bool) {
        let until = until.min(self.now.after_ms(self.limits.lease_ms_max));
        let now = self.now;
        let mut alarm = None;
        if let Some(JobState::Leased(lease)) = self.jobs.at_mut(slot).map(|job| &mut job.state)
            && !(only_later && until <= lease.until)
        {
            lease.until = until;
            // A later end is noticed when the alarm rings; an earlier end needs its own alarm.
            if until < lease.alarm_at {
                alarm = Some((lease.alarm_at, until.max(now)));
                lease.alarm_at = until.max(now);
            }
        }
        if let (Some((before, at)), Some(id)) = (alarm, self.jobs.at(slot).map(|job| job.id)) {
            self.alarms.forget(before);
            self.alarms.set(at, crate::alarm::Alarm::Lease(id));
        }
    }

    pub(crate) fn hear(
        &mut self,
        client: ClientId,
        tag: Tag,
        job: &JobRef,
        proof: Proof,
        note: Note,
        context: &mut Context,
    ) -> Result<(), Refusal> {
        let slot = self.leased(client, job, proof)?;
        if let Note::Progress { numerator, denominator, raw } = &note {
            let progress = Progress { numerator: *numerator, denominator: *denominator, text: Self::own(raw) };
            self.jobs.reweigh(slot, |job| job.extra_mut().progress = Some(progress));
            self.remember_track(slot, context);
        }
        if let Some(job) = self.jobs.at(slot) {
            // The newest listener is notified first.
            for listener in job.listeners().iter().rev() {
                context.notify(*listener, Notice::Progress { job: job.id, note: note.clone() });
            }
        }
        self.tell_done(client, tag, context);
        Ok(())
    }

    /// A worker was lost during a delivery. The job returns to its own position: at once the first time, later after a pause,
    /// and never if it happened too often.
    pub(crate) fn lose_job(&mut self, id: JobId, context: &mut Context) {
        let Some(slot) = self.jobs.slot(id) else { return };
        self.void_token(slot, context);
        self.count(slot, |totals| totals.lost += 1);
        self.jobs.reweigh(slot, |job| {
            let extra = job.extra_mut();
            extra.progress = None;
            extra.losses = extra.losses.saturating_add(1);
        });
        let Some(job) = self.jobs.at(slot) else { return };
        let (own, all) = (job.retry.losses_max, self.limits.losses_max);
        let losses = job.extra.as_deref().map_or(0, |extra| extra.losses);
        if own > 0 && losses >= own {
            self.give_up(slot, &End::Lost, context);
        } else if own > 0 || job.cycle().is_some() || self.is_abandoned(slot) {
            self.make_ready(slot, None, context);
        } else if all > 0 && losses >= all {
            self.bury_lost(slot, losses, context);
        } else {
            self.pause_lost(slot, losses, context);
        }
    }

    /// This job takes its workers down. It is kept for an operator, even if its policy would discard it on failure.
    fn bury_lost(&mut self, slot: Slot, losses: u32, context: &mut Context) {
        let now = self.wall();
        let message = Bytes::from(format!("{losses} workers were lost with it"));
        self.jobs.reweigh(slot, |job| {
            let last = &mut job.extra_mut().failure;
            let (first_at, next_at) = last.as_ref().map_or((now, None), |last| (last.first_at, last.next_at));
            let kind = Bytes::from_static(LOSSES);
            *last = Some(Box::new(Failure { at: now, first_at, next_at, kind, message, backtrace: Vec::new() }));
        });
        let kept = self.jobs.at(slot).is_some_and(|job| job.durable);
        self.warn_job(if kept { WarningKind::Buried } else { WarningKind::LostForGood }, slot, context);
        self.tell_end(slot, &End::Lost, context);
        if kept {
            self.bury(slot, context);
        } else {
            self.end_badly(slot, context);
        }
    }

    /// The pause grows with the number of lost workers. A random share separates the job from others lost with the same worker.
    fn pause_lost(&mut self, slot: Slot, losses: u32, context: &mut Context) {
        let pause_ms = match losses.checked_sub(2) {
            None => 0,
            Some(n) => self.limits.loss_pause_ms.saturating_mul(1 << n.min(32)).min(HOUR_MS),
        };
        if pause_ms == 0 {
            return self.make_ready(slot, None, context);
        }
        let at = self.now.after_ms(pause_ms + context.roll(pause_ms));
        self.move_job(slot, JobState::Retrying(at));
        self.remember_move(slot, context);
    }

    /// A lease has run out.
    pub(crate) fn expire_lease(&mut self, slot: Slot, context: &mut Context) {
        let Some(job) = self.jobs.at(slot) else { return };
        let (id, on_expiry) = (job.id, job.lease().map(|lease| lease.on_expiry));
        self.count(slot, |totals| totals.timed_out += u64::from(on_expiry.is_some()));
        match on_expiry {
            None => {}
            Some(OnExpiry::Requeue) => self.lose_job(id, context),
            Some(OnExpiry::Front) => self.return_to_front(slot, context),
            Some(OnExpiry::Fail) => {
                let failure = Failure {
                    kind: Bytes::from_static(EXPIRED_KIND),
                    message: Bytes::from_static(EXPIRED_MESSAGE),
                    ..Failure::default()
                };
                self.fail_job(slot, Box::new(failure), &End::TimedOut, context);
            }
        }
    }

    /// Counts an event of a job.
    pub(crate) fn count(&mut self, slot: Slot, add: impl Fn(&mut Totals)) {
        if let Some(job) = self.jobs.at(slot) {
            self.head.count(job.protocol, add);
        }
    }

    // ---- shared ----------------------------------------------------------------------------------------------------

    /// Finds the job, in any state.
    pub(crate) fn find(&self, job: &JobRef) -> Result<Slot, Refusal> {
        let slot = match job {
            JobRef::Id(id) => self.jobs.slot(*id),
            JobRef::Name(name) => self.jobs.named(name),
            JobRef::Key { queue, protocol, key } => {
                self.queues.named(queue).and_then(|queue| self.jobs.keyed(queue, *protocol, key))
            }
            JobRef::KeyAnywhere { protocol, key } => self.jobs.keyed_anywhere(*protocol, key, self.queues.numbers()),
        };
        slot.ok_or(Refusal::NotFound(Thing::Job))
    }

    /// Finds the job, if it is leased and the proof holds.
    pub(crate) fn leased(&self, client: ClientId, job: &JobRef, proof: Proof) -> Result<Slot, Refusal> {
        let slot = self.find(job)?;
        let lease = self.jobs.at(slot).and_then(Job::lease).ok_or(Refusal::NotHeld)?;
        let proved = match proof {
            Proof::AnyLease => true,
            Proof::Token(token) => lease.token == token,
            Proof::Connection => matches!(lease.holder, Holder::Connection(holder) if holder == client),
            Proof::Late => false,
        };
        if proved { Ok(slot) } else { Err(Refusal::NotHeld) }
    }

    /// Finds a job whose worker may have lost its lease, while no other worker holds the job. It must have had at least
    /// `attempts_min` deliveries.
    fn left(&self, job: &JobRef, attempts_min: u32) -> Result<Slot, Refusal> {
        let slot = self.find(job)?;
        let waits = self.jobs.at(slot).is_some_and(|job| {
            matches!(job.state, JobState::Ready | JobState::Retrying(_)) && job.attempts >= attempts_min
        });
        if waits { Ok(slot) } else { Err(Refusal::NotHeld) }
    }

    pub(crate) fn must_be(&self, slot: Slot, kind: QueueKind) -> Result<(), Refusal> {
        let queue = self.jobs.at(slot).and_then(|job| self.queues.at(job.queue));
        if queue.is_some_and(|queue| queue.image.kind == kind) { Ok(()) } else { Err(Refusal::WrongKind) }
    }

    /// Notifies all listeners of a job's end, the newest first, once for each registration, and removes them.
    pub(crate) fn tell_end(&mut self, slot: Slot, end: &End, context: &mut Context) {
        let Some((id, listeners)) = self.jobs.at(slot).map(|job| (job.id, job.listeners().to_vec())) else { return };
        if listeners.is_empty() {
            return;
        }
        for listener in listeners.into_iter().rev() {
            context.notify(listener, Notice::Ended { job: id, end: end.clone() });
            if let Some(client) = self.clients.get_mut(&listener) {
                client.hears.remove(&id);
            }
        }
        self.jobs.reweigh(slot, |job| job.extra_mut().listeners = Vec::new());
    }

    pub(crate) fn tell_done(&self, client: ClientId, tag: Tag, context: &mut Context) {
        if tag.wants_answer() {
            context.reply(client, tag, Reply::Done);
        }
    }
}

/// The wait after the `n`th failure, `n` from 0.
fn backoff_ms(backoff: Backoff, n: u32, context: &mut Context) -> u64 {
    match backoff {
        Backoff::None => 0,
        Backoff::Fixed(ms) => ms.into(),
        Backoff::Doubling(ms) => u64::from(ms).saturating_mul(1 << n.min(32)).min(HOUR_MS),
        Backoff::Faktory => {
            let n = u64::from(n);
            let seconds = n.saturating_pow(4).saturating_add(15).saturating_add(context.roll(30).saturating_mul(n + 1));
            seconds.saturating_mul(1_000)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_off_stays_in_its_bounds() {
        let ms = |backoff, n| backoff_ms(backoff, n, &mut Context::new(Timestamp(0), 1));
        let table = [
            (Backoff::None, 7, 0, 0),
            (Backoff::Fixed(250), 3, 250, 250),
            (Backoff::Doubling(1_000), 0, 1_000, 1_000),
            (Backoff::Doubling(1_000), 3, 8_000, 8_000),
            (Backoff::Doubling(1_000), 4_000_000, 3_600_000, 3_600_000),
            (Backoff::Faktory, 0, 15_000, 15_000 + 29_000),
            (Backoff::Faktory, 2, 31_000, 31_000 + 3 * 29_000),
            (Backoff::Faktory, u32::MAX, u64::MAX, u64::MAX),
        ];
        for (backoff, n, least, most) in table {
            let ms = ms(backoff, n);
            assert!((least..=most).contains(&ms), "{backoff:?} after {n}: {ms}");
        }
    }
}
