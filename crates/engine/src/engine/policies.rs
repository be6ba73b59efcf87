//! Policies: obeyed once they are set, the keys of jobs that are there read, and keys listed.

use super::call::Call;
use super::serve::serve;
use super::state::State;
use crate::event::Reply;
use crate::ids::{JobId, QueueId};
use crate::jobs::Slot;
use crate::query::KeyRow;
use crate::queues::Queue;
use crate::request::Cursor;
use crate::work::{CHANGE, ROW, STEP};

/// Bodies that one page loads, at most.
const LOADED_MAX: usize = 256;
/// Bytes of bodies that one page reads, about.
const BYTES_MAX: usize = 1 << 20;

/// Obeys the policies that hold for these queues now.
pub(super) fn renew_policies(state: &mut State, ids: &[QueueId], call: &mut Call<'_>) {
    let State { queues, jobs, now, timers, .. } = state;
    let changed = queues.renew_policies(ids, jobs, *now, timers);
    changed.into_iter().for_each(|queue| serve(state, queue, call.context));
}

/// Reads the keys of jobs that have none, a page at a time.
pub(super) fn read_keys(state: &mut State, (after, limit): (Cursor, u32), call: &mut Call<'_>) {
    let limit = state.page(limit);
    let (mut slots, mut next, mut bytes): (Vec<Slot>, Option<Cursor>, usize) = (Vec::new(), None, 0);
    for (looked, (id, slot)) in state.jobs.oldest_from(JobId(after.0)).enumerate() {
        if looked >= limit || call.context.missing.len() >= LOADED_MAX || bytes > BYTES_MAX {
            next = Some(Cursor(id.0, 0));
            break;
        }
        let Some(job) = state.jobs.at(slot).filter(|job| state.queues.lacks_key(job)) else { continue };
        slots.push(slot);
        bytes += job.payload.body_len();
        call.context.missing.extend(job.payload.stored().map(|stored| (id, stored)));
    }
    state.work.spend(STEP * limit as u64);
    if !call.context.missing.is_empty() {
        return;
    }
    let changed: u32 = slots.into_iter().map(|slot| u32::from(read_key(state, slot))).sum();
    state.work.spend(CHANGE * u64::from(changed));
    call.reply(Reply::Mutated { changed, next });
}

/// Reads the key of a job again. Returns whether it has changed.
pub(super) fn read_key(state: &mut State, slot: Slot) -> bool {
    let State { queues, jobs, now, timers, reader, .. } = state;
    jobs.at(slot).is_some_and(|job| queues.read_key((job, slot), reader.as_deref(), *now, timers))
}

/// A queue's policy, and a page of its keys.
pub(super) fn list_keys(state: &State, name: &[u8], (after, limit): (Cursor, u32), call: &mut Call<'_>) {
    let queue = state.queues.named(name).and_then(|id| state.queues.at(id));
    let first = u32::try_from(after.0).unwrap_or(u32::MAX);
    let mut keys = queue.into_iter().flat_map(|queue| queue.keys_from(first));
    let rows: Vec<KeyRow> = keys.by_ref().take(state.page(limit)).map(|(_, row)| row).collect();
    let next = keys.next().map(|(number, _)| Cursor(number.into(), 0));
    state.work.spend(ROW * rows.len() as u64);
    call.reply(Reply::Keys { policy: queue.and_then(Queue::policy_row).map(Box::new), rows, next });
}
