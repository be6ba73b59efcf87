//! Jobs in: limits, coalescing, creation.

use bytes::Bytes;

use super::attach::{name_collector, outlast, retry_of};
use super::call::Call;
use super::checks::{check_body, check_names};
use super::coalesce::{
    Standing, absorb, apart, begin, check_submit, come_back, identity, key_of, since, standing,
    stands_for_body,
};
use super::ended::end_of;
use super::ends::expire_job;
use super::joined::due_at;
use super::place::{count, insert_job, is_used};
use super::room::{check_memory_for, check_room_for, make_way};
use super::serve::serve;
use super::state::{FEW, State, own};
use super::warnings::warn_keyless;
use crate::change::Change;
use crate::context::Context;
use crate::event::{Notice, Reply};
use crate::ids::{ClientId, JobId, QueueId, Timestamp, Token};
use crate::jobs::{
    Cycle, Expiry, Extra, Job, JobState, Jobs, KeyUntil, Lease, Member, Payload, Role, Slot, Track,
    Unfit,
};
use crate::outcome::Pushed;
use crate::queues::{Coalesce, Queue};
use crate::refusal::{Capacity, Outcome, Refusal, Thing};
use crate::request::{Clash, NewJob, Past, QueueKind, Unique};
use crate::warning::WarningKind;

/// Pseudo-client of jobs that the engine pushes itself, such as runs of a schedule.
pub(super) const NOBODY: ClientId = ClientId(u64::MAX);

pub(super) fn push(state: &mut State, new: &NewJob, call: &mut Call<'_>) -> Outcome {
    let pushed = push_job(state, call.client, new, call.context);
    if let Err(why) = pushed
        && why != Refusal::NotUnique
    {
        call.context.warn(WarningKind::Refused(why), || {
            (own(&new.queue), Bytes::new(), Bytes::new())
        });
    }
    let (job, durable, how) = pushed?;
    call.acknowledge(Reply::Pushed { job, how, durable });
    if how == Pushed::Attached
        && new.listen.is_wanted()
        && let Some(done) = state
            .jobs
            .get(job)
            .filter(|job| matches!(job.state, JobState::Done(_)))
    {
        call.context.notify(
            call.client,
            Notice::Ended {
                job,
                end: end_of(done),
            },
        );
    }
    Ok(())
}

/// Accepts a new job, or finds the job that holds its key. Returns the job, whether it is durable, and how it was
/// pushed.
pub(super) fn push_job(
    state: &mut State,
    client: ClientId,
    new: &NewJob,
    context: &mut Context,
) -> Outcome<(JobId, bool, Pushed)> {
    check_new(state, new)?;
    let queue = state.find_or_make(&new.queue, new.kind, Some(new.protocol))?;
    let (ruled, rule) = as_ruled(state, client, queue, new);
    let new = ruled.as_deref().unwrap_or(new);
    let outcome =
        check_body(state, queue, &new.body).and_then(|()| match (clash(state, queue, new), rule) {
            (held, Some(rule)) => coalesce_by(state, client, queue, new, held, rule, context),
            (Some((slot, clash)), None) => coalesce(state, client, slot, clash, new, context),
            (None, None) => insert_new(state, client, queue, new, context),
        });
    state.queues.drop_if_unknown(queue);
    outcome
}

fn check_new(state: &State, new: &NewJob) -> Outcome {
    check_names(state, new)?;
    if new
        .past
        .as_deref()
        .is_some_and(|past| !is_possible(past, new))
    {
        return Err(Refusal::OutOfPlace);
    }
    match &new.name {
        Some(name) if new.name_unique && state.jobs.named(name, |_| true).is_some() => {
            Err(Refusal::NotUnique)
        }
        Some(_) | None => membership(state, new).map(drop),
    }
}

/// Applies the queue's dedup or coalesce rule. Returns the changed job, and the coalesce rule if it applies. Jobs that
/// the engine pushes itself are never repeats, and a batch counts each of its jobs.
fn as_ruled(
    state: &State,
    client: ClientId,
    queue: QueueId,
    new: &NewJob,
) -> (Option<Box<NewJob>>, Option<Coalesce>) {
    let rules = state
        .queues
        .at(queue)
        .filter(|_| client != NOBODY && new.kind == QueueKind::Work)
        .and_then(Queue::rules);
    let with = |unique| {
        Some(Box::new(NewJob {
            unique: Some(unique),
            ..new.clone()
        }))
    };
    if let Some(rule) = rules
        .and_then(|rules| rules.coalesce)
        .filter(|_| new.batch.is_none() && new.past.is_none())
    {
        if new.not_before.is_some_and(|at| at > state.wall()) {
            return (apart(new, rule).and_then(with), None);
        }
        if let Some(unique) = identity(state, queue, new, rule) {
            return (with(unique), Some(rule));
        }
    }
    if let Some(dedup_ms) = rules
        .and_then(|rules| rules.dedup_ms)
        .filter(|_| new.durable)
        && let Some(unique) = remembered_by(new)
    {
        let result_keep_ms = new.result_keep_ms.max(dedup_ms);
        return (
            Some(Box::new(NewJob {
                unique: Some(unique),
                result_keep_ms,
                ..new.clone()
            })),
            None,
        );
    }
    (None, None)
}

/// What makes a push the repetition of another.
fn remembered_by(new: &NewJob) -> Option<Unique> {
    let key = new
        .unique
        .as_ref()
        .map(|unique| &unique.key)
        .or(new.name.as_ref())?;
    let counts = !key.is_empty() && !stands_for_body(new.protocol, key);
    counts.then(|| Unique {
        key: key.clone(),
        clash: Clash::Attach,
        until: KeyUntil::Gone,
    })
}

/// A submit to a queue where those of one identity are one job while it waits, and one more while it runs.
#[inline(never)]
fn coalesce_by(
    state: &mut State,
    client: ClientId,
    queue: QueueId,
    new: &NewJob,
    held: Option<(Slot, Clash)>,
    rule: Coalesce,
    context: &mut Context,
) -> Outcome<(JobId, bool, Pushed)> {
    let behind = match held.map(|(slot, clash)| (slot, clash, standing(state, slot))) {
        Some((slot, clash, Standing::Waits)) => {
            check_submit(state, slot, new, rule)?;
            let pushed = coalesce(state, client, slot, clash, new, context)?;
            let at = due_at(state, since(state, slot), rule);
            let expires = expires(
                state,
                queue,
                &NewJob {
                    not_before: Some(at),
                    ..new.clone()
                },
            );
            absorb(state, slot, new, expires, rule, at, context);
            return Ok(pushed);
        }
        Some((slot, clash, Standing::Runs(_))) if !rule.once_more => {
            return coalesce(state, client, slot, clash, new, context);
        }
        Some((_, _, Standing::Runs(job))) => Some(job),
        Some((_, _, Standing::Over)) | None => None,
    };
    held.into_iter()
        .for_each(|(slot, _)| state.jobs.release_key(slot, &mut state.timers));
    let wall = state.wall();
    // The job that follows another one begins as a scheduled job, whose time finds it behind that one.
    let soonest = if behind.is_some() {
        wall.after_ms(1)
    } else {
        wall
    };
    let not_before = Some(due_at(state, wall, rule).max(soonest));
    let pushed = insert_new(
        state,
        client,
        queue,
        &NewJob {
            not_before,
            ..new.clone()
        },
        context,
    );
    if let Ok((job, ..)) = &pushed {
        begin(state, *job, behind);
    } else if let Some((slot, _)) = held {
        state.jobs.reclaim_key(slot, state.now, &mut state.timers);
    }
    pushed
}

/// The job that holds the key of a new job.
fn clash(state: &State, queue: QueueId, new: &NewJob) -> Option<(Slot, Clash)> {
    let unique = new.unique.as_ref()?;
    Some((
        state.jobs.keyed(queue, new.protocol, &unique.key)?,
        unique.clash,
    ))
}

/// The key is held by another job. The producer's [`Clash`] decides the answer.
#[inline(never)]
fn coalesce(
    state: &mut State,
    client: ClientId,
    slot: Slot,
    clash: Clash,
    new: &NewJob,
    context: &mut Context,
) -> Outcome<(JobId, bool, Pushed)> {
    let how = match clash {
        Clash::Refuse => return Err(Refusal::NotUnique),
        Clash::Keep => Pushed::Kept,
        Clash::Attach => {
            let is_done = state
                .jobs
                .at(slot)
                .is_some_and(|job| matches!(job.state, JobState::Done(_)));
            if new.listen.is_wanted() && !is_done {
                listen(state, client, slot)?;
            }
            if !is_done {
                outlast(state, slot, new, context);
                name_collector(state, slot, &new.listen, context);
            }
            Pushed::Attached
        }
    };
    let job = state.jobs.at(slot).ok_or(Refusal::NotFound(Thing::Job))?;
    Ok((job.id, job.durable, how))
}

/// One more listener of a job.
pub(super) fn listen(state: &mut State, client: ClientId, slot: Slot) -> Outcome {
    let Some(job) = state.jobs.at(slot) else {
        return Err(Refusal::NotFound(Thing::Job));
    };
    check_listeners(state, client, job.listeners().len())?;
    state.jobs.listen(slot, client);
    Ok(())
}

/// Checks that a client may listen to a job that has this many listeners.
fn check_listeners(state: &State, client: ClientId, held: usize) -> Outcome {
    state.clients.get(client).ok_or(Refusal::OutOfPlace)?;
    let limit = state.limits.listeners_max;
    if held >= FEW {
        check_memory_for(state, Jobs::LISTENER_BYTES)?;
    }
    if held >= limit as usize {
        Err(Capacity::QueueJobs.exceeded(limit, limit))
    } else {
        Ok(())
    }
}

fn insert_new(
    state: &mut State,
    client: ClientId,
    queue: QueueId,
    new: &NewJob,
    context: &mut Context,
) -> Outcome<(JobId, bool, Pushed)> {
    if new.listen.is_wanted() {
        check_listeners(state, client, 0)?;
    } else if !new.durable {
        // No client would ever ask for its result.
        return Err(Refusal::OutOfPlace);
    }
    check_room(state, queue, new)?;
    let member = membership(state, new)?;
    // Make the queue known first: dropping dead jobs may remove the last job of a queue that is not known.
    state
        .queues
        .make_known(queue, Some(new.protocol), &mut context.changes);
    make_way(state, 1, new.body.len() as u64, context);
    let id = state.meta.new_job_id(&mut context.changes);
    let slot = place_new(state, id, queue, new, member, context);
    if new.listen.is_wanted() {
        listen(state, client, slot)?;
    }
    announce(state, slot, queue, context);
    Ok((id, new.durable, Pushed::New))
}

/// Pushes the jobs that deaths in this visit have caused. A refusal changes nothing for the dead.
#[cold]
pub(super) fn push_caused(state: &mut State, context: &mut Context) {
    // A push may hand out jobs, and one that no worker can express dies then.
    while !state.caused.is_empty() {
        for (dead, new) in std::mem::take(&mut state.caused) {
            // Journal the dropped queues first: this job may create a queue with the number of one of them.
            state.queues.remember_dropped(&mut context.changes);
            if let Err(why) = push_job(state, NOBODY, &new, context) {
                context.warn(WarningKind::OnDeadRefused(why), || {
                    (own(&new.queue), dead, Bytes::new())
                });
            }
        }
    }
}

/// Creates a job without a pushing client or a listener, regardless of limits.
pub(super) fn push_internal(
    state: &mut State,
    queue: QueueId,
    new: &NewJob,
    member: Option<Member>,
    context: &mut Context,
) {
    state
        .queues
        .make_known(queue, Some(new.protocol), &mut context.changes);
    let id = state.meta.new_job_id(&mut context.changes);
    let slot = place_new(state, id, queue, new, member, context);
    announce(state, slot, queue, context);
}

/// Creates a new job and inserts it in its state. Its queue is known.
fn place_new(
    state: &mut State,
    id: JobId,
    queue: QueueId,
    new: &NewJob,
    member: Option<Member>,
    context: &mut Context,
) -> Slot {
    let job = make_job(state, id, queue, new, member, context);
    let slot = insert_job(state, job);
    if let Some(member) = member {
        state.batches.join(member, &mut context.changes);
    }
    slot
}

/// Completes the insertion of a job: counts and journals it, and serves its queue.
fn announce(state: &mut State, slot: Slot, queue: QueueId, context: &mut Context) {
    count(state, slot, |totals| totals.pushed += 1);
    let Some(job) = state.jobs.at(slot) else {
        return;
    };
    if job.durable {
        context.remember(Change::JobPut(job.id));
    }
    // The job may have expired already. Then no waiting client must get it.
    let has_expired = job.expiry().has_come(state.now, state.wall());
    warn_keyless(state, queue, slot, context);
    if has_expired {
        expire_job(state, slot, context);
    }
    serve(state, queue, context);
}

/// Creates a job again under the number that it had at an earlier engine, which is not used. The job lives only while
/// clients listen: this one does. Its push counted there, and so did the limit of its queue.
pub(super) fn bring_back(
    state: &mut State,
    client: ClientId,
    id: JobId,
    new: &NewJob,
    context: &mut Context,
) -> Outcome {
    if new.durable || !new.listen.is_wanted() || is_used(state, id) {
        return Err(Refusal::OutOfPlace);
    }
    check_new(state, new)?;
    check_listeners(state, client, 0)?;
    let queue = state.find_or_make(&new.queue, new.kind, Some(new.protocol))?;
    let (ruled, rule) = as_ruled(state, client, queue, new);
    let new = ruled.as_deref().unwrap_or(new);
    let other = rule
        .and_then(|_| clash(state, queue, new))
        .and_then(|(slot, _)| state.jobs.at(slot))
        .map(|it| it.id);
    let has_room =
        check_body(state, queue, &new.body).and_then(|()| check_room_for(state, new.body.len()));
    if has_room.is_ok() {
        state
            .queues
            .make_known(queue, Some(new.protocol), &mut context.changes);
        let slot = place_new(state, id, queue, new, None, context);
        state.jobs.listen(slot, client);
        come_back(state, id, other, context);
        // It was there when the earlier engine ended, so a worker took it in time, or it is late by the time between
        // both.
        if state
            .jobs
            .at(slot)
            .is_some_and(|job| job.expiry().has_come(state.now, state.wall()))
        {
            state
                .jobs
                .set_expiry(slot, Expiry::Never, &mut state.timers);
        }
        serve(state, queue, context);
    }
    state.queues.drop_if_unknown(queue);
    has_room
}

/// Checks all limits on the number and size of jobs.
fn check_room(state: &State, queue: QueueId, new: &NewJob) -> Outcome {
    check_room_for(state, new.body.len())?;
    let Some(queue) = state.queues.at(queue) else {
        return Ok(());
    };
    check_key(state, queue, new)?;
    let image = queue.image();
    match image.limit(new.protocol, new.priority) {
        Some(limit) => {
            let held = queue.live(image.jobs_max_of);
            if held < limit {
                Ok(())
            } else {
                Err(Capacity::QueueJobs.exceeded(held, limit))
            }
        }
        None => Ok(()),
    }
}

/// Checks that few enough jobs of its key wait.
fn check_key(state: &State, queue: &Queue, new: &NewJob) -> Outcome {
    let Some(limit) = queue.policy().and_then(|policy| policy.key_waiting_max) else {
        return Ok(());
    };
    let waiting = queue.waiting_of(&key_of(state, queue.image().id, new));
    if waiting < limit {
        Ok(())
    } else {
        Err(Capacity::KeyJobs.exceeded(waiting, limit))
    }
}

fn make_job(
    state: &mut State,
    id: JobId,
    queue: QueueId,
    new: &NewJob,
    member: Option<Member>,
    context: &mut Context,
) -> Job {
    let wall = state.wall();
    let unique = new.unique.as_ref();
    let payload = Payload::new(
        unique.map(|unique| &*unique.key),
        new.name.as_deref().unwrap_or_default(),
        &new.body,
    );
    let expires = expires(state, queue, new);
    let extra = if is_plain(new, member, expires) {
        None
    } else {
        extra_of(state, queue, new, member, expires, context)
    };
    let mut past = Past::default();
    if let Some(known) = new.past.as_deref() {
        past.clone_from(known);
    }
    let Past {
        ready_at,
        failures,
        state: past,
    } = past;
    // Each failure was a delivery, and so is a current lease.
    let attempts = failures.saturating_add(u32::from(matches!(past, Some(JobState::Leased(_)))));
    let place = match (past, new.not_before) {
        (Some(JobState::Leased(lease)), _) => {
            JobState::Leased(Box::new(moved_lease(state, *lease, attempts)))
        }
        (Some(past), _) => past,
        (None, Some(at)) if at > wall => JobState::Scheduled(at),
        (None, Some(_) | None) => JobState::Ready,
    };
    Job {
        id,
        queue,
        protocol: new.protocol,
        priority: new.priority,
        durable: new.durable,
        rank: state.meta.rank(new.front && new.kind == QueueKind::Work),
        state: place,
        ready_at: ready_at.unwrap_or(wall).min(wall),
        payload,
        attempts,
        failures,
        retry: retry_of(state, queue, new),
        unfit: Unfit::NONE,
        extra,
    }
}

/// Whether a new job has none of the fields that most jobs lack. Most pushes pay only for this question.
fn is_plain(new: &NewJob, member: Option<Member>, expires: Expiry) -> bool {
    new.kind == QueueKind::Work
        && new.meta.is_empty()
        && expires == Expiry::Never
        && new
            .unique
            .as_ref()
            .is_none_or(|unique| unique.until == KeyUntil::End)
        && (new.result_keep_ms, new.track_ms, new.lease_ms) == (0, 0, None)
        && member.is_none()
        && new.listen.name().is_empty()
}

/// The fields that most jobs lack.
#[inline(never)]
fn extra_of(
    state: &mut State,
    queue: QueueId,
    new: &NewJob,
    member: Option<Member>,
    expires: Expiry,
    context: &mut Context,
) -> Option<Box<Extra>> {
    let cycle = match new.kind {
        QueueKind::Work => None,
        QueueKind::Cycle => {
            let serial = state.queues.next_serial(queue, &mut context.changes);
            Some(Cycle {
                priority: if new.front { 0 } else { serial },
                boost: 0,
            })
        }
    };
    let extra = Extra {
        meta: new.meta.clone(),
        expires,
        key_until: new
            .unique
            .as_ref()
            .map_or(KeyUntil::End, |unique| unique.until),
        cycle,
        result_keep_ms: new.result_keep_ms,
        lease_ms: new.lease_ms,
        track: (new.track_ms > 0).then_some(Track {
            keep_ms: new.track_ms,
            updated_at: state.wall(),
        }),
        member,
        collector: if new.durable {
            Bytes::copy_from_slice(new.listen.name())
        } else {
            Bytes::new()
        },
        ..Extra::default()
    };
    debug_assert_eq!(extra.is_set(), extra != Extra::default());
    extra.is_set().then(|| Box::new(extra))
}

/// When a new job expires.
fn expires(state: &State, queue: QueueId, new: &NewJob) -> Expiry {
    let rules = state
        .queues
        .at(queue)
        .and_then(Queue::rules)
        .filter(|_| new.kind == QueueKind::Work);
    // A scheduled job begins to wait at its time.
    let from = new.not_before.map_or(state.now, |at| {
        at.shifted(state.skew_ms.saturating_neg()).max(state.now)
    });
    expires_by(
        state,
        from,
        new.expires,
        rules.and_then(|rules| rules.ttl_ms),
    )
}

/// When a job expires that waits from this moment on, in a queue where no job waits for longer than `ttl_ms`.
pub(super) fn expires_by(
    state: &State,
    from: Timestamp,
    expires: Expiry,
    ttl_ms: Option<u64>,
) -> Expiry {
    let Some(ttl_ms) = ttl_ms else { return expires };
    let own = match expires {
        Expiry::Never => Timestamp::NEVER,
        Expiry::At(at) => at.shifted(state.skew_ms.saturating_neg()),
        Expiry::By(at) => at,
    };
    let by = from.after_ms(ttl_ms);
    if own <= by { expires } else { Expiry::By(by) }
}

/// A lease granted by another server, cut to this daemon's limits.
fn moved_lease(state: &State, lease: Lease, attempts: u32) -> Lease {
    let until = lease
        .until
        .min(state.now.after_ms(state.limits.lease_ms_max));
    Lease::new(
        lease.holder,
        Token::of(state.meta.kept().boot_count, attempts),
        lease.taken_at,
        until,
        lease.on_expiry,
    )
}

/// The batch membership of a new job.
pub(super) fn membership(state: &State, new: &NewJob) -> Outcome<Option<Member>> {
    let Some(name) = &new.batch else {
        return Ok(None);
    };
    let batch = state
        .batches
        .named(name)
        .ok_or(Refusal::NotFound(Thing::Batch))?
        .id;
    // A batch can only wait for durable jobs of `work` queues. A job with a past may already have ended in its batch.
    if !new.durable || new.kind != QueueKind::Work || new.past.is_some() {
        return Err(Refusal::OutOfPlace);
    }
    Ok(Some(Member {
        batch,
        role: Role::Job,
        ran: false,
    }))
}

/// Whether a new job can have this past.
fn is_possible(past: &Past, new: &NewJob) -> bool {
    let state = match &past.state {
        None | Some(JobState::Retrying(_) | JobState::Dead(_)) => true,
        Some(JobState::Leased(lease)) => !lease.connection_bound(),
        Some(JobState::Ready | JobState::Scheduled(_) | JobState::Parked | JobState::Done(_)) => {
            false
        }
    };
    state && new.durable && new.kind == QueueKind::Work
}

/// Copies the names: the read buffer in which they arrived must not stay alive for them.
pub(super) fn owned(job: NewJob) -> NewJob {
    let own = |bytes: Bytes| Bytes::copy_from_slice(&bytes);
    let mut job = NewJob {
        queue: own(job.queue),
        name: job.name.map(own),
        meta: own(job.meta),
        ..job
    };
    if let Some(unique) = &mut job.unique {
        unique.key = Bytes::copy_from_slice(&unique.key);
    }
    job
}
