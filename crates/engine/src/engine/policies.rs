//! Policies: applying them, reading the keys of existing jobs, and listing keys.

use super::call::{Call, Page};
use super::serve::serve;
use super::state::State;
use crate::event::Reply;
use crate::ids::{JobId, QueueId};
use crate::jobs::Slot;
use crate::query::{KeyRow, PolicyRow};
use crate::queues::Queue;
use crate::request::Cursor;
use crate::work::{CHANGE, ROW, STEP};

/// The limit of bodies that a page loads.
const LOADED_MAX: usize = 256;
/// Approximate bytes of bodies that a page reads.
const BYTES_MAX: usize = 1 << 20;

/// Applies the present policies of these queues.
pub(super) fn renew_policies(state: &mut State, ids: &[QueueId], call: &mut Call<'_>) {
    let State {
        queues,
        jobs,
        now,
        timers,
        ..
    } = state;
    let changed = queues.renew_policies(ids, jobs, *now, timers);
    for queue in changed {
        serve(state, queue, call.context);
    }
}

/// Reads the keys of jobs without a key, a page at a time.
pub(super) fn read_keys(state: &mut State, page: Page, call: &mut Call<'_>) {
    let limit = state.page(page.limit);
    let lent = std::mem::take(&mut call.context.lent);
    let mut found: Vec<(Slot, Option<&[u8]>)> = Vec::new();
    let mut next = None;
    let mut loads = 0;
    let mut bytes = 0;
    for (looked, (id, slot)) in state.jobs.oldest_from(JobId(page.after.0)).enumerate() {
        if looked >= limit || loads >= LOADED_MAX || bytes > BYTES_MAX {
            next = Some(Cursor(id.0, 0));
            break;
        }
        let Some(job) = state
            .jobs
            .at(slot)
            .filter(|job| state.queues.lacks_key(job))
        else {
            continue;
        };
        let stored = job
            .payload
            .stored()
            .filter(|_| state.queues.keys_are_in_bodies(job.queue));
        if stored.is_some() && state.unreadable.contains(&id) {
            continue;
        }
        let body = lent
            .get(&id)
            .filter(|(from, _)| stored == Some(*from))
            .map(|(_, body)| &**body);
        found.push((slot, body));
        call.context
            .missing
            .extend(stored.filter(|_| body.is_none()).map(|stored| (id, stored)));
        loads += usize::from(stored.is_some());
        bytes += job.payload.body_len();
    }
    state.work.spend(STEP * limit as u64);
    if !call.context.missing.is_empty() {
        return;
    }
    let changed: u32 = found
        .into_iter()
        .map(|(slot, body)| u32::from(read_key(state, slot, body)))
        .sum();
    state.work.spend(CHANGE * u64::from(changed));
    call.reply(Reply::Mutated { changed, next });
}

/// Reads the key of a job again, from the given body if it is not in memory. Returns `true` if the key is
/// different.
pub(super) fn read_key(state: &mut State, slot: Slot, lent: Option<&[u8]>) -> bool {
    let State {
        queues,
        jobs,
        now,
        timers,
        reader,
        ..
    } = state;
    jobs.at(slot)
        .is_some_and(|job| queues.read_key(job, slot, lent, reader.as_deref(), *now, timers))
}

/// A queue's policy, and a page of keys.
pub(super) fn list_keys(state: &State, name: &[u8], page: Page, call: &mut Call<'_>) {
    let home = state.home(call.client);
    let queue = state.queues.named(home, name);
    let queue = queue.and_then(|id| state.queues.at(id));
    let first = u32::try_from(page.after.0).unwrap_or(u32::MAX);
    let mut keys = queue.into_iter().flat_map(|queue| queue.keys_from(first));
    let rows: Vec<KeyRow> = keys
        .by_ref()
        .take(state.page(page.limit))
        .map(|(_, row)| row)
        .collect();
    let next = keys.next().map(|(number, _)| Cursor(number.into(), 0));
    state.work.spend(ROW * rows.len() as u64);
    let section = state.queues.section_of(home, name).cloned();
    let policy = queue
        .and_then(Queue::policy_row)
        .map(|row| Box::new(PolicyRow { section, ..row }));
    call.reply(Reply::Keys { policy, rows, next });
}
