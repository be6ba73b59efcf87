//! Outcomes for clients that reconnect. A producer may give a job a persistent collector's name
//! ([`Listen::As`](crate::Listen)). A client that collects with this name becomes a listener of the
//! unfinished jobs, and receives the outcomes of jobs that finished while no client was listening.

use bytes::Bytes;

use super::call::Call;
use super::ended::end_of;
use super::ends::{KEEP_MS, collect_no_more, dead_ms};
use super::place::remove_job;
use super::push::listen;
use super::state::State;
use crate::context::Context;
use crate::event::{Notice, Reply};
use crate::ids::JobId;
use crate::jobs::{JobState, Slot};
use crate::outcome::End;
use crate::refusal::{Outcome, Refusal};
use crate::request::Cursor;
use crate::work::CHANGE;

/// Bytes of outcomes in a page.
const PAGE_BYTES: usize = 256 << 10;

/// Sends a page of the jobs with this collector's name.
#[inline(never)]
pub(super) fn collect(state: &mut State, name: &[u8], from: JobId, call: &mut Call<'_>) -> Outcome {
    let protocol = state
        .clients
        .opened(call.client)?
        .protocol()
        .ok_or(Refusal::OutOfPlace)?;
    let limit = state.page(u32::MAX);
    let found: Vec<JobId> = {
        let realm = state.home(call.client).realm(protocol);
        let all = state.jobs.holders().collected_by(realm, name);
        all.range(from..).take(limit + 1).copied().collect()
    };
    let mut jobs = 0;
    let mut bytes = 0;
    let mut next = None;
    for id in found {
        if jobs as usize == limit || bytes >= PAGE_BYTES {
            next = Some(Cursor(id.0, 0));
            break;
        }
        state.work.spend(CHANGE);
        jobs += 1;
        if let Some(notice) = state
            .jobs
            .slot(id)
            .and_then(|slot| collect_one(state, slot, call))
        {
            bytes += notice.bytes();
            call.context.notify(call.client, notice);
        }
    }
    call.reply(Reply::Counted { jobs, next });
    Ok(())
}

fn collect_one(state: &mut State, slot: Slot, call: &mut Call<'_>) -> Option<Notice> {
    let job = state.jobs.at(slot)?;
    let id = job.id;
    let key = Bytes::copy_from_slice(job.key().unwrap_or_default());
    let end = if job.is_over() {
        Some(Box::new(hand_over(state, slot, call.context)?))
    } else if job.listeners().contains(&call.client) {
        return None;
    } else {
        listen(state, call.client, slot).ok()?;
        None
    };
    Some(Notice::Collected { job: id, key, end })
}

/// The outcome of a job for the collector. It is then no longer retained for that.
pub(super) fn hand_over(state: &mut State, slot: Slot, context: &mut Context) -> Option<End> {
    let job = state
        .jobs
        .at(slot)
        .filter(|job| !job.collector().is_empty())?;
    let is_done = matches!(job.state, JobState::Done(_));
    let kept_until = state
        .now
        .after_ms(dead_ms(state, job.queue).saturating_sub(KEEP_MS));
    let is_kept = is_done || matches!(job.state, JobState::Dead(until) if until > kept_until);
    let end = is_kept.then(|| end_of(job))?;
    let stays = job
        .extra
        .as_deref()
        .is_some_and(|extra| extra.result_keep_ms > 0 || extra.track.is_some());
    if is_done && !stays {
        remove_job(state, slot, context);
    } else {
        collect_no_more(state, slot, context);
    }
    Some(end)
}
