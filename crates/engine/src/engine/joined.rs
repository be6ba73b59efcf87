//! Jobs that are merged with another one: parked behind it, they finish when it does (see `give_way`).

use super::place::{behind, move_job, remember_put};
use super::state::State;
use crate::context::Context;
use crate::ids::{JobId, Timestamp};
use crate::jobs::{Coalesced, Job, JobState, Slot};
use crate::queues::Coalesce;

/// Joins a job to another one.
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

/// Schedules a parked job at this time, because the job ahead is finished or removed. If another unfinished
/// job now has the key of the identity, the job is joined to that one, which is returned. Otherwise a joined
/// job becomes independent, and the caller must journal that: later submits may be merged into it, and must
/// not finish with the run of the previous leading job, if that is restored.
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

/// The job that has the key of this one, unless it is finished or queued behind this one.
fn lead_of(state: &State, slot: Slot) -> Option<Slot> {
    let job = state.jobs.at(slot)?;
    let lead = state.jobs.keyed(job.queue, job.protocol, job.key()?)?;
    state
        .jobs
        .at(lead)
        .filter(|lead| !lead.is_over() && lead.behind() != Some(job.id))
        .map(|_| lead)
}

/// The end of the quiet time after a submit. It is not stored for a joined job, so when such a job becomes
/// independent, the quiet time starts again.
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

/// Starts the quiet time of a job after the leading job finished before a restart. The time is unknown during
/// recovery, so the job was due immediately, in the middle of its quiet time. The result is journalled,
/// because otherwise the quiet time would start again at each restart.
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

/// The jobs that are joined to this one, directly or to another joined job.
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

/// When a job becomes ready that is submitted now, and was first submitted at `since`. All times are by the
/// wall clock.
pub(super) fn due_at(state: &State, since: Timestamp, rule: Coalesce) -> Timestamp {
    let last = rule
        .at_most_ms
        .map_or(Timestamp::NEVER, |ms| since.after_ms(ms));
    state.wall().after_ms(rule.quiet_ms).min(last)
}
