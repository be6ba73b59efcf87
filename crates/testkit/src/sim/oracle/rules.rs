//! The rules of queues, and jobs that their workers' protocol cannot have.

use bytes::Bytes;
use windlass_engine::{
    ClientId, End, Failure, JobId, MISFIT, NewJob, QueueId, QueueKind, QueueRules, Refusal, Retry, Tag,
};

use super::end::Claim;
use super::{Answer, ClientMemo, Oracle};

impl Oracle {
    pub(super) fn rule_queue(&mut self, client: ClientId, tag: Tag, name: &Bytes, rules: QueueRules) -> Answer {
        self.check_name(name)?;
        let there = self.queue_named(name).map(|queue| queue.number);
        let queue = match there {
            Some(queue) => Some(queue),
            None if rules != QueueRules::default() => Some(self.find_or_make_queue(name, QueueKind::Work)?),
            None => None,
        };
        if let Some(queue) = queue {
            let was_apart = self.queue(queue).is_apart();
            self.queue_mut(queue).rules = rules;
            if self.queue(queue).is_apart() != was_apart {
                self.serve(queue);
            }
        }
        self.say_done(client, tag);
        Ok(())
    }

    /// A queue's ready jobs, as far as a client sees them.
    pub(super) fn seen(&self, queue: QueueId, client: ClientId) -> Vec<JobId> {
        let own = self.client(client).and_then(|client| client.info.origin).filter(|_| self.queue(queue).is_apart());
        let mut line = self.line(queue);
        line.retain(|id| own.is_none_or(|own| self.job(*id).is_some_and(|memo| memo.job.origin == own)));
        line
    }

    /// Whether there is more in a queue for a client than those who were woken are on their way to.
    pub(super) fn has_unclaimed(&self, queue: QueueId, client: &ClientMemo) -> bool {
        let own = client.info.origin;
        let woken: Vec<&ClientMemo> = self.clients.iter().filter(|c| c.woken_for() == Some(queue)).collect();
        let rival = |other: &&&ClientMemo| match (own, other.info.origin) {
            (Some(own), Some(other)) => own == other || !self.queue(queue).is_apart(),
            (Some(_) | None, _) => true,
        };
        let rivals = woken.iter().filter(rival).count();
        self.slots_free(queue) > woken.len() && self.seen(queue, client.id).len() > rivals
    }

    /// Whether a body is as short as a queue, if it is there, wants it.
    pub(super) fn check_body(&self, queue: Option<QueueId>, body: &Bytes) -> Answer {
        let limit = queue.and_then(|queue| self.queue(queue).rules.body_bytes_max).unwrap_or(u32::MAX);
        let given = u32::try_from(body.len()).unwrap_or(u32::MAX);
        if given <= limit { Ok(()) } else { Err(Refusal::BodyTooLong { given, limit }) }
    }

    pub(super) fn check_new_body(&self, new: &NewJob) -> Answer {
        self.check_body(self.queue_named(&new.queue).map(|queue| queue.number), &new.body)
    }

    /// What failure means for a new job.
    pub(super) fn retry_of(&self, queue: QueueId, new: &NewJob) -> Retry {
        match self.queue(queue).rules.retry {
            Some(retry) if new.retry_default => retry,
            Some(_) | None => new.retry,
        }
    }

    pub(super) fn misfit(&mut self, client: ClientId, tag: Tag, claim: Claim, why: &Bytes) -> Answer {
        let id = self.claimed_of(client, claim, QueueKind::Work)?;
        let now = self.now;
        self.count_total(id, |totals| totals.misfits += 1);
        let last = &mut self.job_mut(id).extra().failure;
        let first_at = last.as_ref().map_or(now, |last| last.first_at);
        let (kind, message) = (Bytes::from_static(MISFIT), why.clone());
        let failure = Box::new(Failure { at: now, first_at, kind, message, backtrace: Vec::new() });
        *last = Some(failure.clone());
        self.tell_end(id, &End::Failed(failure));
        if self.job_mut(id).job.durable {
            self.bury(id);
        } else {
            self.end_badly(id);
        }
        self.say_done(client, tag);
        Ok(())
    }
}
