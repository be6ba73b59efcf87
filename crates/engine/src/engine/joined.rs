//! Jobs that are a part of another one: parked behind it, they end as it ends (`give_way` says how that comes about).

use super::place::{behind, move_job, remember_put};
use super::state::State;
use crate::context::Context;
use crate::ids::{JobId, Timestamp};
use crate::jobs::{Coalesced, Job, JobState, Slot};
use crate::queues::Coalesce;

/// A job goes on as a part of another one.
pub(super) fn join(state: &mut State, part: Slot, lead: Slot) {
    let Some(part_id) = state.jobs.at(part).map(|job| job.id) else {
        return;
    };
    let Some(job) = state.jobs.at(lead) else {
        return;
    };
    let lead_id = job.id;
    if job.behind() == Some(part_id) {
        set_behind(state, lead, None, false);
    }
    state.jobs.release_key(part, &mut state.timers);
    set_behind(state, part, Some(lead_id), true);
    move_job(state, part, JobState::Parked);
    state.jobs.claim_key(lead, &mut state.timers);
}

fn set_behind(state: &mut State, slot: Slot, behind: Option<JobId>, joined: bool) {
    let Some(job) = state.jobs.at(slot) else {
        return;
    };
    state.followers.step(job.id, job.behind(), behind);
    let first = Coalesced::first(state.wall());
    state.jobs.update(slot, |job| {
        let coalesced = job
            .extra_mut()
            .coalesced
            .get_or_insert_with(|| Box::new(first));
        coalesced.behind = behind;
        coalesced.joined = joined;
    });
}

/// The job ahead of a parked one is over, or gone: it is due at this time. If another job has the key of the identity by now,
/// it is a part of that one, which is returned. If none has it, a part stands alone, and the caller journals that: later
/// submits may become it, and must not end with the run of the job that led before, should that one come back.
pub(super) fn set_free(state: &mut State, slot: Slot, at: Timestamp) -> Option<Slot> {
    let was_part = state.jobs.at(slot)?.is_joined();
    move_job(state, slot, JobState::Scheduled(at));
    let lead = if state.jobs.claim_key(slot, &mut state.timers) {
        None
    } else {
        lead_of(state, slot)
    };
    match lead {
        Some(lead) => join(state, slot, lead),
        None if was_part => set_behind(state, slot, None, false),
        None => {}
    }
    lead
}

/// The job that has the key of this one, unless it is over or waits for this one.
fn lead_of(state: &State, slot: Slot) -> Option<Slot> {
    let job = state.jobs.at(slot)?;
    let lead = state.jobs.keyed(job.queue, job.protocol, job.key()?)?;
    state
        .jobs
        .at(lead)
        .filter(|lead| !lead.is_over() && lead.behind() != Some(job.id))
        .map(|_| lead)
}

/// The quiet time after a submit may not be over when its job becomes a part of another one. Nothing remembers when it is, so
/// for a part that is left alone it begins anew.
pub(super) fn quiet_until(state: &State, job: &Job) -> Timestamp {
    if job.is_joined() {
        quiet_from_now(state, job)
    } else {
        Timestamp(0)
    }
}

fn quiet_from_now(state: &State, job: &Job) -> Timestamp {
    let coalesced = job
        .extra
        .as_deref()
        .and_then(|extra| extra.coalesced.as_deref());
    let rules = state.queues.rules(job.queue);
    if let Some(coalesced) = coalesced
        && let Some(rule) = rules.and_then(|rules| rules.coalesce)
    {
        due_at(state, coalesced.since, rule)
    } else {
        Timestamp(0)
    }
}

/// The daemon begins, and the job of which this one was a part ended with the daemon before. While jobs are recovered the
/// time is not known, and so the part was due at once: it would start in the middle of its quiet time. It is journalled,
/// because the quiet time would begin anew with each restart.
pub(super) fn await_quiet(state: &mut State, slot: Slot, context: &mut Context) {
    let Some(job) = state
        .jobs
        .at(slot)
        .filter(|job| job.state == JobState::Scheduled(Timestamp(0)))
    else {
        return;
    };
    let until = quiet_from_now(state, job);
    if until > state.wall() {
        move_job(state, slot, JobState::Scheduled(until));
    }
    remember_put(state, slot, context);
}

/// The jobs that are a part of this one, each behind the one of which it is a part.
pub(super) fn joined(state: &State, id: JobId) -> Vec<Slot> {
    let mut found = Vec::new();
    let mut next = vec![id];
    while let Some(id) = next.pop() {
        for slot in behind(state, id) {
            if let Some(job) = state.jobs.at(slot).filter(|job| job.is_joined()) {
                next.push(job.id);
                found.push(slot);
            }
        }
    }
    found
}

/// When a job becomes ready that is submitted now, the first time at `since`. All times are the wall clock's.
pub(super) fn due_at(state: &State, since: Timestamp, rule: Coalesce) -> Timestamp {
    let last = rule
        .at_most_ms
        .map_or(Timestamp::NEVER, |ms| since.after_ms(ms));
    state.wall().after_ms(rule.quiet_ms).min(last)
}
