//! The end of work on a job.

use bytes::Bytes;
use windlass_engine::{
    AttemptEnd, Backoff, ClientId, Cycle, End, Expiry, Failure, Fate, Holder, JobId, JobRef,
    JobState, JobStateKind, LOSSES, Notice, OnDead as _, OnExpiry, Proof, Protocol, QueueKind,
    Refusal, RepayTo, Reply, Timestamp, Token,
};

use super::dice::After;
use super::{Answer, JobMemo, Oracle};
use crate::sim::on_dead::Reports;

pub(super) type Claim<'a> = (&'a JobRef, Proof);

impl Oracle {
    /// The job, if it is leased and the claim is valid.
    pub(super) fn claimed(&self, client: ClientId, (job, proof): Claim) -> Result<JobId, Refusal> {
        let holder = |holder: &Holder| match holder {
            Holder::Connection(holder) => self.protocol_of(*holder),
            Holder::Named(name) => {
                self.workers
                    .iter()
                    .find(|worker| worker.name == **name)?
                    .protocol
            }
            Holder::Away(protocol) => Some(*protocol),
        };
        let holds = |memo: &JobMemo| {
            memo.job.lease().is_some_and(|lease| match proof {
                Proof::AnyLease => {
                    let worker = self.client(client).and_then(|client| client.worker);
                    let free = worker.is_none()
                        || !memo
                            .job
                            .extra
                            .as_deref()
                            .is_some_and(|extra| extra.taken_back);
                    (free || self.is_own(client, &lease.holder))
                        && (self.may_name(client, memo)
                            || self.may_see(client, holder(&lease.holder)))
                }
                Proof::Token(token) => token == lease.token,
                Proof::Connection => match lease.holder {
                    Holder::Connection(holder) => holder == client,
                    Holder::Away(protocol) => self.protocol_of(client) == Some(protocol),
                    Holder::Named(_) => false,
                },
                Proof::Late => false,
            })
        };
        let id = self.find_where(job, |memo| holds(memo) || self.may_name(client, memo))?;
        if self.job(id).is_some_and(holds) {
            Ok(id)
        } else {
            Err(Refusal::NotHeld)
        }
    }

    pub(super) fn claimed_of(
        &self,
        client: ClientId,
        claim: Claim,
        kind: QueueKind,
    ) -> Result<JobId, Refusal> {
        let id = self.claimed(client, claim)?;
        let right = self
            .job(id)
            .is_some_and(|memo| self.queue(memo.job.queue).kind == kind);
        if right {
            Ok(id)
        } else {
            Err(Refusal::WrongKind)
        }
    }

    /// Whether the client, or its worker, has a lease with this holder.
    fn is_own(&self, client: ClientId, holder: &Holder) -> bool {
        let worker = self.client(client).and_then(|client| client.worker);
        match holder {
            Holder::Connection(holder) => *holder == client,
            Holder::Named(name) => self
                .worker_named(name)
                .is_some_and(|named| Some(named.number) == worker),
            Holder::Away(protocol) => self.protocol_of(client) == Some(*protocol),
        }
    }

    /// The job, if its lease is over and it waits again, so that a worker's late report may still be true.
    fn left(&self, client: ClientId, (job, proof): Claim) -> Result<JobId, Refusal> {
        let id = self.find(client, job)?;
        let memo = self.job(id).expect("it was just found");
        let (attempts, is_old) = (u64::from(memo.job.attempts), id.0 < self.first_new);
        let was_its = match proof {
            Proof::Late | Proof::AnyLease => attempts > 0 || is_old,
            Proof::Connection => false,
            Proof::Token(Token(token)) => {
                let delivery = token % (1 << 32);
                delivery > 0 && delivery == attempts || is_old && delivery > attempts
            }
        };
        let taken_back = memo
            .job
            .extra
            .as_deref()
            .is_some_and(|extra| extra.taken_back);
        match memo.job.state {
            JobState::Ready | JobState::Retrying(_) if taken_back || !was_its => {
                Err(Refusal::NotHeld)
            }
            JobState::Ready | JobState::Retrying(_) if memo.job.cycle().is_none() => Ok(id),
            JobState::Ready | JobState::Retrying(_) => Err(Refusal::WrongKind),
            _ => Err(Refusal::NotHeld),
        }
    }

    pub(super) fn finish(&mut self, client: ClientId, claim: Claim, result: &Bytes) -> Answer {
        let held = if claim.1 == Proof::Late {
            (claim.0, Proof::Connection)
        } else {
            claim
        };
        let id = match self.claimed(client, held) {
            Err(Refusal::NotHeld) => self.left(client, claim)?,
            _ => self.claimed_of(client, held, QueueKind::Work)?,
        };
        if self.job(id).is_some_and(JobMemo::is_away) {
            self.see("Away::Reports");
        }
        if self.job(id).is_some_and(|memo| memo.job.lease().is_none()) {
            self.see(match claim.1 {
                Proof::Late => "Finish::Late",
                Proof::AnyLease => "Finish::LateByName",
                Proof::Connection => unreachable!("it is refused"),
                Proof::Token(_) => "Finish::LateByToken",
            });
        }
        self.count_total(id, |totals| totals.succeeded += 1);
        let by = self.protocol_of(client).or(Some(Protocol::HTTP));
        self.tell_end(
            id,
            &End::Succeeded {
                result: result.clone(),
                by,
            },
        );
        self.succeeded(id);
        self.end_well(id, result, by);
        Ok(Some(Reply::Finished(id)))
    }

    /// A job succeeded: it is kept with its result, or removed.
    pub(super) fn end_well(&mut self, id: JobId, result: &Bytes, by: Option<Protocol>) {
        let until = |ms| self.now.after_ms(ms);
        let memo = self.job(id).expect("it is there");
        let result_keep_ms = memo
            .job
            .extra
            .as_deref()
            .map_or(0, |extra| extra.result_keep_ms.max(memo.uncollected_ms()));
        let track_ms = memo
            .job
            .extra
            .as_deref()
            .and_then(|extra| extra.track)
            .map_or(0, |track| track.keep_ms);
        let keep_ms = result_keep_ms.max(track_ms);
        if keep_ms > 0 && memo.job.durable {
            self.put(id, JobState::Done(until(keep_ms)));
            let memo = self.job_mut(id);
            memo.job.payload = memo.job.payload.with_body(&Bytes::new());
            let protocol = memo.job.protocol;
            let extra = memo.extra();
            extra.origin = None;
            extra.output = None;
            extra.result = Some(if result_keep_ms > 0 {
                result.clone()
            } else {
                Bytes::new()
            });
            extra.result_by = if result_keep_ms > 0 && by != Some(protocol) {
                by
            } else {
                None
            };
        } else {
            self.remove(id);
        }
    }

    pub(super) fn fail(&mut self, client: ClientId, claim: Claim, failure: &Failure) -> Answer {
        let id = match self.claimed(client, claim) {
            Err(Refusal::NotHeld) if claim.1 != Proof::Late => {
                let id = self.left(client, claim)?;
                let memo = self.job(id).expect("it was just found");
                let last = memo
                    .job
                    .extra
                    .as_deref()
                    .and_then(|extra| extra.failure.as_ref());
                let is_new = memo.job.state == JobState::Ready
                    && last.is_none_or(|last| last.at < self.began);
                if id.0 >= self.first_new || !is_new {
                    return self.fail_late(id, failure);
                }
                self.see("Fail::LostWithDaemon");
                id
            }
            _ => self.claimed_of(client, claim, QueueKind::Work)?,
        };
        let end = End::Failed(Box::new(failure.clone()));
        if self.job(id).is_some_and(|memo| memo.job.lease().is_some()) {
            self.end_attempt(id, AttemptEnd::Failed);
        }
        let fate = self.fail_job(id, failure.clone(), &end);
        Ok(Some(Reply::Failed { job: id, fate }))
    }

    /// The words of a worker whose reservation ran out are kept, and its report is refused.
    fn fail_late(&mut self, id: JobId, failure: &Failure) -> Answer {
        if let Some(last) = self
            .job_mut(id)
            .job
            .extra
            .as_deref_mut()
            .and_then(|extra| extra.failure.as_mut())
            && last.kind == "ReservationExpired"
        {
            let (at, first_at, next_at) = (last.at, last.first_at, last.next_at);
            **last = Failure {
                at,
                first_at,
                next_at,
                ..failure.clone()
            };
            self.see("Fail::Late");
        }
        Err(Refusal::NotHeld)
    }

    fn fail_job(&mut self, id: JobId, failure: Failure, end: &End) -> Fate {
        let (now, wall) = (self.now, self.wall());
        self.void_token(id);
        self.count_total(id, |totals| totals.failed += 1);
        let memo = self.job_mut(id);
        memo.job.failures += 1;
        let first_at = memo
            .extra()
            .failure
            .as_ref()
            .map_or(wall, |last| last.first_at);
        let tried_at = memo.extra().failure.as_ref().and_then(|last| last.next_at);
        memo.extra().failure = Some(Box::new(Failure {
            at: wall,
            first_at,
            next_at: tried_at,
            ..failure
        }));
        self.ran(id);
        let memo = self.job_mut(id);
        let (failures, retry) = (memo.job.failures, memo.job.retry);
        if i64::from(failures) > i64::from(retry.failures_max) || memo.is_abandoned() {
            return self.give_up(id, end);
        }
        let wait_ms = self.wait_ms(id, After::Failure, Self::backoff(retry.backoff, failures));
        let at = now.after_ms(wait_ms);
        let next_at = Some(wall.after_ms(wait_ms));
        self.job_mut(id)
            .extra()
            .failure
            .iter_mut()
            .for_each(|failure| failure.next_at = next_at);
        if wait_ms > 0 {
            self.pause(id, at);
        } else {
            let rank = self.rank(false);
            self.make_ready(id, Some(rank));
        }
        Fate::Retried(at)
    }

    /// The waits that a policy allows: the shortest one, and how often a step may be added to it, up to which number.
    fn backoff(backoff: Backoff, failures: u32) -> (u64, u64, u64) {
        let before = failures - 1;
        match backoff {
            Backoff::None => (0, 1, 1),
            Backoff::Fixed(ms) => (ms.into(), 1, 1),
            Backoff::Doubling(ms) => (
                (0..before)
                    .fold(u64::from(ms), |ms, _| (ms * 2).min(3_600_000))
                    .min(3_600_000),
                1,
                1,
            ),
            Backoff::Faktory => {
                let n = u64::from(before);
                ((n * n * n * n + 15) * 1_000, (n + 1) * 1_000, 30)
            }
        }
    }

    fn give_up(&mut self, id: JobId, end: &End) -> Fate {
        self.tell_end(id, end);
        let job = &self.job_mut(id).job;
        if job.retry.failures_max == 0 || !job.durable {
            self.end_badly(id);
            return Fate::Discarded;
        }
        Fate::Buried(self.die(id))
    }

    /// Removes a job that did not succeed; a tracked job keeps its state for a while.
    pub(super) fn end_badly(&mut self, id: JobId) {
        let now = self.now;
        let job = &self.job_mut(id).job;
        let track_ms = job
            .extra
            .as_deref()
            .and_then(|extra| extra.track)
            .map_or(0, |track| track.keep_ms);
        let keep_ms = track_ms.max(self.job_mut(id).uncollected_ms());
        if keep_ms == 0 || !self.job_mut(id).job.durable {
            return self.remove(id);
        }
        self.ran(id);
        self.put(id, JobState::Done(now.after_ms(keep_ms)));
        let memo = self.job_mut(id);
        memo.job.payload = memo.job.payload.with_body(&Bytes::new());
        memo.extra().result = None;
        memo.extra().result_by = None;
        memo.extra().origin = None;
        memo.extra().output = None;
    }

    /// Buries a job that failed or was lost for good, and notes the report of its death.
    fn die(&mut self, id: JobId) -> Timestamp {
        let until = self.bury(id);
        let job = self.job_mut(id).job.clone();
        let report = Reports.job(&job, &self.queue(job.queue).name, b"", self.wall());
        self.reports.extend(report);
        until
    }

    /// Pushes the reports of deaths in this visit.
    pub(super) fn push_reports(&mut self) {
        for report in std::mem::take(&mut self.reports) {
            self.forget_idle_queues();
            let is_new = self.push(ClientId(u64::MAX), &report).is_ok();
            self.forget_idle_queues();
            self.see(if is_new {
                "OnDead::Pushed"
            } else {
                "OnDead::Refused"
            });
        }
    }

    pub(super) fn bury(&mut self, id: JobId) -> Timestamp {
        let queue = self.job_mut(id).job.queue;
        let until = self.now.after_ms(self.dead_ms(queue));
        self.count_total(id, |totals| totals.buried += 1);
        self.ran(id);
        self.put(id, JobState::Dead(until));
        until
    }

    pub(super) fn release(&mut self, client: ClientId, claim: Claim, front: bool) -> Answer {
        let by_token = matches!(claim, (_, Proof::Token(_)));
        let id = if by_token {
            self.claimed(client, claim)
        } else {
            self.claimed_of(client, claim, QueueKind::Work)
        }?;
        let own = self
            .job(id)
            .and_then(|memo| memo.job.lease())
            .is_some_and(|lease| self.is_own(client, &lease.holder));
        if claim.1 == Proof::AnyLease && !own {
            self.see("Release::TakenBack");
            self.job_mut(id).extra().taken_back = true;
            self.end_attempt(id, AttemptEnd::TakenBack);
        } else if !by_token {
            self.end_attempt(id, AttemptEnd::Released);
        }
        self.void_token(id);
        let rank = front.then(|| self.rank(true));
        self.make_ready(id, rank);
        Ok(Some(Reply::Done))
    }

    pub(super) fn extend(
        &mut self,
        client: ClientId,
        claim: Claim,
        until: Timestamp,
        only_later: bool,
    ) -> Answer {
        let id = self.claimed(client, claim)?;
        self.move_end(id, until, only_later);
        Ok(Some(Reply::Done))
    }

    pub(super) fn move_end(&mut self, id: JobId, until: Timestamp, only_later: bool) {
        let (now, longest) = (self.now, self.now.after_ms(self.limits.lease_ms_max));
        let until = until.min(longest);
        let memo = self.job_mut(id);
        if let JobState::Leased(lease) = &mut memo.job.state
            && (until > lease.until || !only_later)
        {
            lease.until = until;
            memo.lease_due = until.max(now);
        }
    }

    pub(super) fn repay(
        &mut self,
        client: ClientId,
        claim: Claim,
        body: &Bytes,
        to: RepayTo,
    ) -> Answer {
        let id = self.claimed_of(client, claim, QueueKind::Cycle)?;
        self.check_body(self.job(id).map(|memo| memo.job.queue), body)?;
        self.count_total(id, |totals| totals.succeeded += 1);
        let memo = self.job_mut(id);
        memo.job.payload = memo.job.payload.with_body(body);
        let (abandoned, boost) = (
            memo.is_abandoned(),
            memo.job.cycle().map_or(0, |cycle| cycle.boost),
        );
        if to == RepayTo::Drop {
            if abandoned {
                self.remove(id)
            } else {
                self.put(id, JobState::Parked)
            }
        } else {
            let queue = memo.job.queue;
            let head = self
                .ready_queue(queue)
                .first()
                .and_then(|id| self.job(*id)?.job.cycle());
            let min = head.map_or(0, |cycle| cycle.priority);
            let region = self.queue(queue).serial + 1 - min;
            let halved = |times: u32| (0..times).fold(region, |way, _| way / 2);
            if to == RepayTo::Penalty && boost > 0 {
                self.see("Repay::Demoted");
            }
            let boost = match to {
                RepayTo::Penalty => boost.saturating_sub(1),
                RepayTo::Reward if halved(boost + 1) > 0 => boost + 1,
                RepayTo::Reward | RepayTo::Front | RepayTo::Drop => boost,
            };
            let priority = if to == RepayTo::Front {
                0
            } else {
                min + halved(boost)
            };
            self.go_round(id, Cycle { priority, boost });
        }
        Ok(Some(Reply::Done))
    }

    fn go_round(&mut self, id: JobId, cycle: Cycle) {
        let queue = self.job_mut(id).job.queue;
        self.next_serial(queue);
        let rank = self.rank(false);
        self.job_mut(id).extra().cycle = Some(cycle);
        self.make_ready(id, Some(rank));
    }

    /// The token of a `cycle` entry is its queue's number, which must have advanced before the entry is lent again.
    fn void_token(&mut self, id: JobId) {
        let job = &self.job_mut(id).job;
        let (queue, is_cycle) = (job.queue, job.cycle().is_some());
        if is_cycle {
            self.next_serial(queue);
        }
    }

    /// Ends a delivery whose worker is gone.
    pub(super) fn lose(&mut self, id: JobId) {
        self.void_token(id);
        self.count_total(id, |totals| totals.lost += 1);
        let memo = self.job_mut(id);
        memo.extra().progress = None;
        memo.extra().losses += 1;
        let losses = memo.extra().losses;
        let own = memo.job.retry.losses_max;
        if own > 0 && losses >= own {
            self.give_up(id, &End::Lost);
            return;
        }
        if own > 0 || memo.job.cycle().is_some() || memo.is_abandoned() {
            return self.make_ready(id, None);
        }
        if self.limits.losses_max > 0 && losses >= self.limits.losses_max {
            self.see("Loss::Dies");
            self.fail_with(
                id,
                LOSSES,
                format!("{losses} workers were lost with it").into(),
            );
            return self.bury_after(id, &End::Lost);
        }
        // 0, 1, 2, 4, 8 … times the pause.
        let times = if losses < 2 {
            0
        } else {
            1 << (losses - 2).min(32)
        };
        let pause_ms = (self.limits.loss_pause_ms * times).min(3_600_000);
        if pause_ms == 0 {
            return self.make_ready(id, None);
        }
        self.see("Loss::Pauses");
        let pause_ms = self.wait_ms(id, After::Loss, (pause_ms, 1, pause_ms));
        self.pause(id, self.now.after_ms(pause_ms));
    }

    /// Whether losing this client would exceed the job's limit of losses.
    pub(crate) fn kills(&self, client: ClientId) -> bool {
        let held = self.jobs.iter().filter(|memo| {
            memo.job
                .lease()
                .is_some_and(|lease| lease.holder == Holder::Connection(client))
        });
        let is_last = |losses: u32, max: u32| max > 0 && losses >= max;
        held.map(|memo| {
            (
                memo.job.extra.as_deref().map_or(0, |extra| extra.losses) + 1,
                memo.job.retry.losses_max,
            )
        })
        .any(|(losses, own)| is_last(losses, own) || is_last(losses, self.limits.losses_max))
    }

    /// Records a failure that no worker reported.
    pub(super) fn fail_with(
        &mut self,
        id: JobId,
        kind: &'static [u8],
        message: Bytes,
    ) -> Box<Failure> {
        let now = self.wall();
        let last = &mut self.job_mut(id).extra().failure;
        let (first_at, next_at) = last
            .as_ref()
            .map_or((now, None), |last| (last.first_at, last.next_at));
        let kind = Bytes::from_static(kind);
        last.insert(Box::new(Failure {
            at: now,
            first_at,
            next_at,
            kind,
            message,
            backtrace: Vec::new(),
        }))
        .clone()
    }

    /// Keeps a job for an operator, whatever its retry policy is.
    pub(super) fn bury_after(&mut self, id: JobId, end: &End) {
        self.tell_end(id, end);
        if self.job_mut(id).job.durable {
            self.die(id);
        } else {
            self.end_badly(id);
        }
    }

    pub(super) fn lease_due(&mut self, id: JobId) {
        let is_away = self.job_mut(id).is_away();
        self.end_attempt(
            id,
            if is_away {
                AttemptEnd::Lost
            } else {
                AttemptEnd::TimedOut
            },
        );
        let memo = self.job_mut(id);
        let Some(lease) = memo.job.lease() else {
            return;
        };
        let (on_expiry, is_held, own) = (
            lease.on_expiry,
            lease.connection_bound(),
            memo.job.retry.losses_max,
        );
        let cycle = memo.job.cycle();
        if is_away {
            memo.job
                .extra
                .iter_mut()
                .for_each(|extra| extra.progress = None);
            self.see("Away::NotBack");
            return self.make_ready(id, None);
        }
        self.count_total(id, |totals| totals.timed_out += 1);
        match on_expiry {
            OnExpiry::Requeue if is_held && own == 0 && self.limits.losses_max == 0 => {
                self.see("Late::NoLoss");
                self.void_token(id);
                self.job_mut(id)
                    .job
                    .extra
                    .iter_mut()
                    .for_each(|extra| extra.progress = None);
                self.make_ready(id, None);
            }
            OnExpiry::Requeue => self.lose(id),
            OnExpiry::Fail => {
                let (kind, message) = (
                    "ReservationExpired".into(),
                    "job reservation expired".into(),
                );
                let failure = Failure {
                    kind,
                    message,
                    ..Failure::default()
                };
                self.fail_job(id, failure, &End::TimedOut);
            }
            OnExpiry::Front => {
                self.count_total(id, |totals| totals.lost += 1);
                match cycle {
                    Some(cycle) => self.go_round(
                        id,
                        Cycle {
                            priority: 0,
                            ..cycle
                        },
                    ),
                    None => {
                        let rank = self.rank(true);
                        self.make_ready(id, Some(rank));
                    }
                }
            }
        }
    }

    pub(super) fn place_due(&mut self, id: JobId) {
        let state = self.job_mut(id).job.state.kind();
        self.count_total(id, |totals| match state {
            JobStateKind::Scheduled => totals.released += 1,
            JobStateKind::Retrying => totals.retried += 1,
            JobStateKind::Dead => totals.purged += 1,
            _ => {}
        });
        if matches!(state, JobStateKind::Dead | JobStateKind::Done) {
            return self.remove(id);
        }
        let rank = self.rank(false);
        self.make_ready(id, Some(rank));
    }

    /// A job has expired. A job that was taken in time, or has ended, stays.
    pub(super) fn expire(&mut self, id: JobId) {
        let memo = self.job_mut(id);
        memo.extra().expires = Expiry::Never;
        let follows = memo.ahead().is_some() && memo.job.state == JobState::Parked;
        if follows
            || matches!(
                memo.job.state,
                JobState::Ready | JobState::Scheduled(_) | JobState::Retrying(_)
            )
        {
            self.count_total(id, |totals| totals.expired += 1);
            self.tell_end(id, &End::Expired);
            self.end_badly(id);
        }
    }

    pub(super) fn tell_end(&mut self, id: JobId, end: &End) {
        self.tell_listeners(id, end);
        self.end_parts(id, end);
    }

    pub(super) fn tell_listeners(&mut self, id: JobId, end: &End) {
        let has_room = self.may_keep(end);
        let memo = self.job_mut(id);
        let listeners = memo
            .job
            .extra
            .as_deref_mut()
            .map(|extra| std::mem::take(&mut extra.listeners));
        let listeners = listeners.unwrap_or_default();
        if !memo.collector().is_empty() && (!listeners.is_empty() || !has_room) {
            memo.extra().collector = Bytes::new();
        }
        for listener in listeners {
            self.notify(
                listener,
                Notice::Ended {
                    job: id,
                    end: end.clone(),
                },
            );
        }
    }
}
