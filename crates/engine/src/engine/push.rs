//! Jobs in: limits, coalescing, creation.

use bytes::Bytes;

use super::attach::{name_collector, outlast};
use super::call::Call;
use super::checks::{check_body, check_names};
use super::coalesce::{Standing, absorb, begin, check_submit, come_back, standing};
use super::ended::end_of;
use super::ends::expire_job;
use super::history::origin_of;
use super::identity::{NOBODY, Push};
use super::joined::due_at;
use super::namespaces::check_push;
use super::place::{count, insert_job, is_used};
use super::room::{check_memory_for, check_room_for, make_way};
use super::serve::serve;
use super::state::{FEW, State};
use super::warnings::{title_of_new, warn_keyless};
use crate::change::Change;
use crate::context::Context;
use crate::event::{Notice, Reply};
use crate::ids::{ClientId, JobId, QueueId, Token};
use crate::jobs::{
    Cycle, Expiry, Extra, Job, JobState, Jobs, KeyUntil, Lease, Member, Payload, Role, Slot, Track,
    Unfit,
};
use crate::outcome::Pushed;
use crate::queues::{Coalesce, Queue};
use crate::refusal::{Capacity, Outcome, Refusal, Thing};
use crate::request::{Clash, NewJob, Past, QueueKind};
use crate::warning::WarningKind;

pub(super) fn push(state: &mut State, new: &NewJob, call: &mut Call<'_>) -> Outcome {
    let pushed = push_job(state, call.client, new, call.context);
    if let Err(why) = pushed
        && why != Refusal::NotUnique
    {
        call.context.warn(WarningKind::Refused(why), || {
            (title_of_new(state, new), Bytes::new(), Bytes::new())
        });
    }
    let Accepted { job, durable, how } = pushed?;
    call.acknowledge(Reply::Pushed { job, how, durable });
    if how == Pushed::Attached
        && new.listen.is_wanted()
        && let Some(done) = state.jobs.get(job)
        && matches!(done.state, JobState::Done(_))
    {
        let end = end_of(done);
        call.context.notify(call.client, Notice::Ended { job, end });
    }
    Ok(())
}

/// The result of an accepted push.
#[derive(Clone, Copy)]
pub(super) struct Accepted {
    pub(super) job: JobId,
    pub(super) durable: bool,
    pub(super) how: Pushed,
}

/// Accepts a new job, or finds the job that has the key.
pub(super) fn push_job(
    state: &mut State,
    client: ClientId,
    new: &NewJob,
    context: &mut Context,
) -> Outcome<Accepted> {
    check_new(state, new)?;
    let queue = state.find_or_make(new.namespace, &new.queue, new.kind, Some(new.protocol))?;
    let outcome = accept(state, Push::by_rules(state, client, queue, new), context);
    state.queues.drop_if_unknown(queue);
    outcome
}

fn accept(state: &mut State, push: Push<'_>, context: &mut Context) -> Outcome<Accepted> {
    check_body(state, push.queue, &push.new.body)?;
    let holder = push.holder(state);
    if let Some(rule) = push.coalesce {
        coalesce_by(state, push, holder, rule, context)
    } else if let Some(slot) = holder {
        coalesce(state, &push, slot, context)
    } else {
        insert_new(state, &push, context)
    }
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
        Some(name)
            if new.name_unique && state.jobs.named(new.namespace, name, |_| true).is_some() =>
        {
            Err(Refusal::NotUnique)
        }
        Some(_) | None => membership(state, new).map(drop),
    }
}

/// Handles a submit to a queue with a coalesce rule.
#[inline(never)]
fn coalesce_by(
    state: &mut State,
    mut push: Push<'_>,
    holder: Option<Slot>,
    rule: Coalesce,
    context: &mut Context,
) -> Outcome<Accepted> {
    let mut behind = None;
    if let Some(slot) = holder {
        match standing(state, slot) {
            Standing::Waits => {
                check_submit(state, slot, push.new, rule)?;
                let accepted = coalesce(state, &push, slot, context)?;
                absorb(state, slot, push, rule, context);
                return Ok(accepted);
            }
            Standing::Runs(_) if !rule.once_more => return coalesce(state, &push, slot, context),
            Standing::Runs(job) => behind = Some(job),
            Standing::Over => {}
        }
        state.jobs.release_key(slot, &mut state.timers);
    }
    let wall = state.wall();
    // A job that follows another one is first scheduled, and is parked behind that one when the time arrives.
    let soonest = if behind.is_some() {
        wall.after_ms(1)
    } else {
        wall
    };
    push.not_before = Some(due_at(state, wall, rule).max(soonest));
    let accepted = insert_new(state, &push, context);
    if let Ok(new) = accepted {
        begin(state, new.job, behind);
    } else if let Some(slot) = holder {
        state.jobs.reclaim_key(slot, state.now, &mut state.timers);
    }
    accepted
}

/// Handles a push with a key that another job has, by the producer's [`Clash`].
#[inline(never)]
fn coalesce(
    state: &mut State,
    push: &Push<'_>,
    slot: Slot,
    context: &mut Context,
) -> Outcome<Accepted> {
    let how = match push.unique().map(|unique| unique.clash) {
        Some(Clash::Refuse) => return Err(Refusal::NotUnique),
        Some(Clash::Keep) => Pushed::Kept,
        Some(Clash::Attach) | None => {
            let job = state.jobs.at(slot);
            if job.is_some_and(|job| !matches!(job.state, JobState::Done(_))) {
                if push.new.listen.is_wanted() {
                    listen(state, push.client, slot)?;
                }
                outlast(state, slot, push, context);
                name_collector(state, slot, &push.new.listen, context);
            }
            Pushed::Attached
        }
    };
    let job = state.jobs.at(slot).ok_or(Refusal::NotFound(Thing::Job))?;
    Ok(Accepted {
        job: job.id,
        durable: job.durable,
        how,
    })
}

/// Adds a listener to a job.
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

fn insert_new(state: &mut State, push: &Push<'_>, context: &mut Context) -> Outcome<Accepted> {
    let Push { queue, new, .. } = *push;
    if new.listen.is_wanted() {
        check_listeners(state, push.client, 0)?;
    } else if !new.durable {
        // No client could ever receive the result.
        return Err(Refusal::OutOfPlace);
    }
    check_room(state, push)?;
    let namespace = queue.namespace();
    check_push(state, namespace, push.client, new.body.len() as u64)?;
    let member = membership(state, new)?;
    // Create the queue first: dropping dead jobs may remove the last job of an unlisted queue.
    state
        .queues
        .make_known(queue, Some(new.protocol), &mut context.changes);
    make_way(state, 1, new.body.len() as u64, context);
    let id = state.meta.new_job_id(&mut context.changes);
    let slot = place_new(state, id, push, member, context);
    if new.listen.is_wanted() {
        listen(state, push.client, slot)?;
    }
    announce(state, slot, queue, context);
    Ok(Accepted {
        job: id,
        durable: new.durable,
        how: Pushed::New,
    })
}

/// Pushes the jobs that were caused by deaths in this visit. A refusal has no effect on the dead
/// jobs.
#[cold]
pub(super) fn push_caused(state: &mut State, context: &mut Context) {
    // A push may deliver jobs, and a job that no worker can express then dies.
    while !state.caused.is_empty() {
        for (dead, new) in std::mem::take(&mut state.caused) {
            // Journal the dropped queues first, because this job may create a queue with the ID of a dropped
            // one.
            state.queues.remember_dropped(&mut context.changes);
            if let Err(why) = push_job(state, NOBODY, &new, context) {
                context.warn(WarningKind::OnDeadRefused(why), || {
                    (title_of_new(state, &new), dead, Bytes::new())
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
    let push = Push::plain(NOBODY, queue, new);
    let slot = place_new(state, id, &push, member, context);
    announce(state, slot, queue, context);
}

/// Creates a new job and inserts it in the initial state. The queue must be listed.
fn place_new(
    state: &mut State,
    id: JobId,
    push: &Push<'_>,
    member: Option<Member>,
    context: &mut Context,
) -> Slot {
    let job = make_job(state, id, push, member, context);
    let slot = insert_job(state, job);
    if let Some(member) = member {
        state.batches.join(member, &mut context.changes);
    }
    slot
}

/// Completes the insertion of a job: counts and journals it, and serves the queue.
fn announce(state: &mut State, slot: Slot, queue: QueueId, context: &mut Context) {
    count(state, slot, |totals| totals.pushed += 1);
    let Some(job) = state.jobs.at(slot) else {
        return;
    };
    if job.durable {
        context.remember(Change::JobPut(job.id));
    }
    // The job may have expired already, and must then not be delivered to a waiting client.
    let has_expired = job.expiry().has_come(state.now, state.wall());
    warn_keyless(state, queue, slot, context);
    if has_expired {
        expire_job(state, slot, context);
    }
    serve(state, queue, context);
}

/// Restores a job with the ID from a previous engine, which must be unused. The job exists only while clients
/// listen, and this client becomes a listener. The push is not counted, and the queue's limit is not checked,
/// because the previous engine did both.
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
    let queue = state.find_or_make(new.namespace, &new.queue, new.kind, Some(new.protocol))?;
    let push = Push::by_rules(state, client, queue, new);
    let other = push
        .holder(state)
        .filter(|_| push.coalesce.is_some())
        .and_then(|slot| state.jobs.at(slot))
        .map(|it| it.id);
    let has_room =
        check_body(state, queue, &new.body).and_then(|()| check_room_for(state, new.body.len()));
    if has_room.is_ok() {
        state
            .queues
            .make_known(queue, Some(new.protocol), &mut context.changes);
        let slot = place_new(state, id, &push, None, context);
        state.jobs.listen(slot, client);
        come_back(state, id, other, context);
        // It existed when the previous engine stopped, so a worker took it in time, or it is late only
        // because of the time since then.
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
fn check_room(state: &State, push: &Push<'_>) -> Outcome {
    check_room_for(state, push.new.body.len())?;
    let Some(queue) = state.queues.at(push.queue) else {
        return Ok(());
    };
    check_key(state, queue, push)?;
    let image = queue.image();
    let Some(limit) = image.limit(push.new.protocol, push.new.priority) else {
        return Ok(());
    };
    let held = queue.live(image.jobs_max_of);
    if held < limit {
        Ok(())
    } else {
        Err(Capacity::QueueJobs.exceeded(held, limit))
    }
}

/// Checks the limit of waiting jobs of the same key.
fn check_key(state: &State, queue: &Queue, push: &Push<'_>) -> Outcome {
    let Some(limit) = queue.policy().and_then(|policy| policy.key_waiting_max) else {
        return Ok(());
    };
    let waiting = queue.waiting_of(&push.key(state));
    if waiting < limit {
        Ok(())
    } else {
        Err(Capacity::KeyJobs.exceeded(waiting, limit))
    }
}

fn make_job(
    state: &mut State,
    id: JobId,
    push: &Push<'_>,
    member: Option<Member>,
    context: &mut Context,
) -> Job {
    let Push { queue, new, .. } = *push;
    let wall = state.wall();
    let payload = Payload::new(
        push.unique().map(|unique| &*unique.key),
        new.name.as_deref().unwrap_or_default(),
        &new.body,
    );
    let expires = push.expires(state);
    let extra = if is_plain(push, member, expires) && !state.keeps_history {
        None
    } else {
        extra_of(state, push, member, expires, context)
    };
    let past = new.past.as_deref().cloned().unwrap_or_default();
    // Each failure was a delivery, and so is a current lease.
    let is_leased = matches!(past.state, Some(JobState::Leased(_)));
    let attempts = past.failures.saturating_add(is_leased.into());
    let place = match past.state {
        Some(JobState::Leased(lease)) => {
            JobState::Leased(Box::new(moved_lease(state, *lease, attempts)))
        }
        Some(place) => place,
        None => match push.not_before {
            Some(at) if at > wall => JobState::Scheduled(at),
            Some(_) | None => JobState::Ready,
        },
    };
    Job {
        id,
        queue,
        protocol: new.protocol,
        priority: new.priority,
        durable: new.durable,
        rank: state.meta.rank(new.front && new.kind == QueueKind::Work),
        state: place,
        ready_at: past.ready_at.unwrap_or(wall).min(wall),
        payload,
        attempts,
        failures: past.failures,
        retry: push.retry(state),
        unfit: Unfit::NONE,
        extra,
    }
}

/// Returns true if a new job has none of the fields that most jobs lack, so that most pushes pay only for
/// this check.
fn is_plain(push: &Push<'_>, member: Option<Member>, expires: Expiry) -> bool {
    let new = push.new;
    new.kind == QueueKind::Work
        && new.meta.is_empty()
        && expires == Expiry::Never
        && push
            .unique()
            .is_none_or(|unique| unique.until == KeyUntil::End)
        && push.result_keep_ms == 0
        && new.track_ms == 0
        && new.lease_ms.is_none()
        && member.is_none()
        && new.listen.name().is_empty()
}

/// The fields that most jobs lack.
#[inline(never)]
fn extra_of(
    state: &mut State,
    push: &Push<'_>,
    member: Option<Member>,
    expires: Expiry,
    context: &mut Context,
) -> Option<Box<Extra>> {
    let new = push.new;
    let cycle = match new.kind {
        QueueKind::Work => None,
        QueueKind::Cycle => {
            let serial = state.queues.next_serial(push.queue, &mut context.changes);
            Some(Cycle {
                priority: if new.front { 0 } else { serial },
                boost: 0,
            })
        }
    };
    let extra = Extra {
        meta: new.meta.clone(),
        expires,
        key_until: push.unique().map_or(KeyUntil::End, |unique| unique.until),
        cycle,
        result_keep_ms: push.result_keep_ms,
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
        origin: origin_of(state, push),
        ..Extra::default()
    };
    debug_assert_eq!(extra.is_set(), extra != Extra::default());
    extra.is_set().then(|| Box::new(extra))
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
        .named(new.namespace, name)
        .ok_or(Refusal::NotFound(Thing::Batch))?
        .id;
    // A batch can only track durable jobs of `work` queues. A job with a past may already have finished in a
    // batch.
    if !new.durable || new.kind != QueueKind::Work || new.past.is_some() {
        return Err(Refusal::OutOfPlace);
    }
    Ok(Some(Member {
        batch,
        role: Role::Job,
        ran: false,
    }))
}

/// Returns true if a new job can have this past.
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
