//! The rules of queues, and jobs that cannot be expressed in their worker's protocol.

use bytes::Bytes;
use windlass_engine::{
    AttemptEnd, Bridge, Capacity, ClientId, End, JobId, MISFIT, NewJob, Patterns, Protocol,
    Protocols, QueueId, QueueKind, QueueRules, QueueSettings, Refusal, Reply, Retry, Unfit,
    matches,
};

use super::end::Claim;
use super::memo::QueueMemo;
use super::{Answer, Checked, ClientMemo, JobMemo, Oracle};

impl Oracle {
    pub(super) fn rule_queue(
        &mut self,
        client: ClientId,
        name: &Bytes,
        rules: QueueRules,
    ) -> Answer {
        if let Some(queue) = self.queue_to_set(client, name, rules != QueueRules::default())? {
            let before = self.rules(queue);
            self.queue_mut(queue).rules = rules;
            self.obey(queue, before);
        }
        Ok(Some(Reply::Done))
    }

    pub(super) fn rule_patterns(&mut self, patterns: &Patterns<QueueSettings>) -> Answer {
        let mut queues: Vec<_> = self
            .queues
            .iter()
            .map(|queue| (queue.id, queue.number))
            .collect();
        queues.sort_unstable();
        let before: Vec<_> = queues
            .iter()
            .map(|(_, queue)| (*queue, self.rules(*queue)))
            .collect();
        self.patterns = patterns.clone();
        before
            .into_iter()
            .for_each(|(queue, before)| self.obey(queue, before));
        Ok(Some(Reply::Done))
    }

    fn obey(&mut self, queue: QueueId, before: QueueRules) {
        if before.codec != self.rules(queue).codec {
            self.ready_queue(queue)
                .into_iter()
                .for_each(|id| self.job_mut(id).job.unfit = Unfit::NONE);
            self.serve(queue);
        }
    }

    /// The rules that hold for a queue: its own, or those of the pattern with the most text of its own; a name is no
    /// pattern and comes first.
    pub(super) fn rules(&self, queue: QueueId) -> QueueRules {
        let queue = self.queue(queue);
        if queue.rules != QueueRules::default() {
            return queue.rules;
        }
        self.settings_of(queue.number)
            .map(|settings| settings.rules)
            .unwrap_or_default()
    }

    /// What holds for a queue of this name, besides rules of its own.
    pub(super) fn settings_of(&self, queue: QueueId) -> Option<&QueueSettings> {
        let queue = self.queue(queue);
        let is_wild = |pattern: &Bytes| pattern.contains(&b'*') || pattern.contains(&b'?');
        let text = |pattern: &Bytes| {
            pattern
                .iter()
                .filter(|byte| **byte != b'*' && **byte != b'?')
                .count()
        };
        let mut found: Option<(&Bytes, &QueueSettings)> = None;
        for (pattern, settings) in self
            .patterns
            .iter()
            .filter(|(pattern, _)| matches(pattern, &queue.name))
        {
            let is_better = |(best, _): (&Bytes, _)| match (is_wild(pattern), is_wild(best)) {
                (false, true) => true,
                (true, true) => (text(pattern), best) > (text(best), pattern),
                (_, false) => false,
            };
            if found.is_none_or(is_better) {
                found = Some((pattern, settings));
            }
        }
        found.map(|(_, settings)| settings)
    }

    /// The queue of this name. One that does not exist is made only for a setting that differs from the default.
    pub(super) fn queue_to_set(
        &mut self,
        client: ClientId,
        name: &Bytes,
        differs: bool,
    ) -> Result<Option<QueueId>, Refusal> {
        self.check_name(name)?;
        let own = self.protocol_of(client);
        if self
            .queue_named(name)
            .is_some_and(|queue| !queue.is_open_to(own))
        {
            return Err(Refusal::WrongKind);
        }
        let there = self.queue_named(name).map(|queue| queue.number);
        if there.is_some() || !differs {
            Ok(there)
        } else {
            self.find_or_make_queue(name, QueueKind::Work).map(Some)
        }
    }

    pub(super) fn bridge(&mut self, bridge: &Bridge) -> Answer {
        self.bridge = bridge.clone();
        let of = |queue: &QueueMemo| queue.kind == QueueKind::Work && bridge.includes(&queue.name);
        let mut changed: Vec<_> = self
            .queues
            .iter()
            .filter(|queue| queue.bridged != of(queue))
            .collect();
        changed.sort_by_key(|queue| queue.id);
        let changed: Vec<QueueId> = changed.into_iter().map(|queue| queue.number).collect();
        for queue in changed {
            let queue_is = &mut self.queue_mut(queue).bridged;
            *queue_is = !*queue_is;
            self.serve(queue);
        }
        Ok(Some(Reply::Done))
    }

    /// Whether a client may name a job: its protocol has made it, or its queue is bridged.
    pub(crate) fn may_name(&self, client: ClientId, memo: &JobMemo) -> bool {
        self.may_see(client, Some(memo.job.protocol)) || self.queue(memo.job.queue).bridged
    }

    /// Whether a client sees what a client of this protocol has made.
    pub(super) fn may_see(&self, client: ClientId, of: Option<Protocol>) -> bool {
        let own = self.protocol_of(client);
        own.is_none() || own == of
    }

    /// Whether a client of this protocol sees a waiting job.
    pub(super) fn sees(&self, own: Option<Protocol>, memo: &JobMemo) -> bool {
        let queue = self.queue(memo.job.queue);
        match own {
            Some(own) if queue.bridged => !memo.job.unfit.has(own),
            Some(own) => memo.job.protocol == own || queue.kind == QueueKind::Cycle,
            None => true,
        }
    }

    /// The ready jobs of a queue that it hands out.
    pub(super) fn open_queue(&self, queue: QueueId) -> Vec<JobId> {
        let QueueMemo { paused, kind, .. } = *self.queue(queue);
        let held = |memo: &JobMemo| match kind {
            QueueKind::Work => paused.has(memo.job.protocol),
            QueueKind::Cycle => paused != Protocols::NONE,
        };
        let mut line = self.ready_queue(queue);
        line.retain(|id| self.job(*id).is_some_and(|memo| !held(memo)));
        line
    }

    /// The ready jobs of a queue that a client may be handed.
    pub(super) fn open_to(&self, queue: QueueId, client: ClientId) -> Vec<JobId> {
        let own = self.protocol_of(client);
        let mut line = self.open_queue(queue);
        line.retain(|id| self.job(*id).is_some_and(|memo| self.sees(own, memo)));
        line
    }

    /// Whether a queue has more for a client than the jobs that woken clients are about to take.
    pub(super) fn has_unclaimed(&self, queue: QueueId, client: &ClientMemo) -> bool {
        let own = client.info.protocol;
        let woken: Vec<&ClientMemo> = self
            .clients
            .iter()
            .filter(|c| c.woken_for() == Some(queue))
            .collect();
        let rival = |other: &&&ClientMemo| match (own, other.info.protocol) {
            (Some(own), Some(other)) => own == other || self.queue(queue).bridged,
            (Some(_) | None, _) => true,
        };
        let rivals = woken.iter().filter(rival).count();
        self.slots_free(queue) > woken.len() && self.open_to(queue, client.id).len() > rivals
    }

    /// Whether a body is within its queue's limit, if the queue exists.
    pub(super) fn check_body(&self, queue: Option<QueueId>, body: &Bytes) -> Checked {
        let limit = queue
            .and_then(|queue| self.rules(queue).body_bytes_max)
            .unwrap_or(u32::MAX);
        let given = u32::try_from(body.len()).unwrap_or(u32::MAX);
        if given <= limit {
            Ok(())
        } else {
            Err(Capacity::BodyBytes.exceeded(given, limit))
        }
    }

    pub(super) fn check_new_body(&self, new: &NewJob) -> Checked {
        self.check_body(
            self.queue_named(&new.queue).map(|queue| queue.number),
            &new.body,
        )
    }

    /// The retry policy of a new job.
    pub(super) fn retry_of(&self, queue: QueueId, new: &NewJob) -> Retry {
        match self.rules(queue).retry {
            Some(retry) if new.retry_default => retry,
            Some(_) | None => new.retry,
        }
    }

    pub(super) fn misfit(&mut self, client: ClientId, claim: Claim, why: &Bytes) -> Answer {
        let id = self.claimed_of(client, claim, QueueKind::Work)?;
        self.end_attempt(id, AttemptEnd::Unconvertible);
        self.count_total(id, |totals| totals.misfits += 1);
        let own = self.client(client).and_then(|client| client.info.protocol);
        let queue = self.job_mut(id).job.queue;
        let bridged = self.queue(queue).bridged;
        let job = &mut self.job_mut(id).job;
        let marked = own.and_then(|own| job.unfit.and(own));
        job.unfit = marked.unwrap_or(job.unfit);
        let others = match bridged {
            true => Protocol::sharing().any(|protocol| !job.unfit.has(protocol)),
            false => !job.unfit.has(job.protocol),
        };
        if marked.is_some() && others {
            self.see("Misfit::Waits");
            self.make_ready(id, None);
        } else {
            self.see("Misfit::Dies");
            let failure = self.fail_with(id, MISFIT, why.clone());
            self.bury_after(id, &End::Failed(failure));
        }
        Ok(Some(Reply::Done))
    }
}
