//! Listings and bulk changes, a page at a time: no command looks at more than `page_max` rows, so none stalls the others.

use crate::command::{Cursor, Filter, Mutation, QueueKind};
use crate::engine::Engine;
use crate::event::{ClientRow, Event, JobView, QueueRow};
use crate::ids::{ClientId, JobId, Tag, Timestamp};
use crate::job::{Job, PlaceKind};
use crate::line::{Slot, Standing};
use crate::turn::Turn;

/// Rows looked at for each row that may be returned: a filter that matches little must not look at everything.
const LOOKS_PER_ROW: usize = 16;

impl Engine {
    pub(crate) fn look_queue(&self, client: ClientId, tag: Tag, name: &[u8], turn: &mut Turn) {
        let queue = self.queues.named(name).and_then(|id| self.queues.at(id)).filter(|queue| queue.image.known);
        let rows = queue.map(|queue| queue.row(self.oldest_ready(queue.image.id))).into_iter().collect();
        turn.tell(client, Event::Queues { tag, rows, next: None });
    }

    pub(crate) fn list_queues(&self, client: ClientId, tag: Tag, (after, limit): (Cursor, u32), turn: &mut Turn) {
        let limit = self.page(limit);
        let first = u32::try_from(after.0).unwrap_or(u32::MAX);
        let mut known = self.queues.from(first).filter(|queue| queue.image.known);
        let rows: Vec<QueueRow> =
            known.by_ref().take(limit).map(|queue| queue.row(self.oldest_ready(queue.image.id))).collect();
        let next = known.next().map(|queue| Cursor(queue.image.id.0.into(), 0));
        turn.tell(client, Event::Queues { tag, rows, next });
    }

    pub(crate) fn list_clients(&self, client: ClientId, tag: Tag, (after, limit): (Cursor, u32), turn: &mut Turn) {
        // Sorted by number: hash order must not show.
        let mut ids: Vec<ClientId> = self.clients.keys().copied().filter(|id| id.0 >= after.0).collect();
        ids.sort_unstable();
        let limit = self.page(limit);
        let next = ids.get(limit).map(|id| Cursor(id.0, 0));
        let row = |id: &ClientId| {
            let client = self.clients.get(id)?;
            let name = |queue| self.queues.at(queue).map(|queue| queue.image.name.clone());
            Some(ClientRow {
                number: client.info.number,
                address: client.info.address.clone(),
                label: client.label.clone(),
                origin: client.info.origin,
                abilities: client.abilities.iter().filter_map(|served| name(served.queue)).collect(),
                held: u32::try_from(client.held.len()).unwrap_or(u32::MAX),
            })
        };
        let rows = ids.iter().take(limit).filter_map(row).collect();
        turn.tell(client, Event::Clients { tag, rows, next });
    }

    pub(crate) fn list_jobs(
        &self,
        client: ClientId,
        tag: Tag,
        filter: &Filter,
        (after, limit): (Cursor, u32),
        turn: &mut Turn,
    ) {
        let limit = self.page(limit);
        let (slots, next) = self.matching(filter, after, limit);
        let rows: Vec<JobView> = slots.into_iter().filter_map(|slot| self.view(self.jobs.at(slot)?)).collect();
        turn.tell(client, Event::Jobs { tag, rows, next });
    }

    pub(crate) fn mutate(
        &mut self,
        client: ClientId,
        tag: Tag,
        filter: &Filter,
        action: Mutation,
        (after, limit): (Cursor, u32),
        turn: &mut Turn,
    ) {
        let (slots, next) = self.matching(filter, after, self.page(limit));
        let mut changed = 0;
        for slot in slots {
            changed += u32::from(self.mutate_one(slot, action, turn));
        }
        turn.tell(client, Event::Mutated { tag, changed, next });
    }

    fn mutate_one(&mut self, slot: Slot, action: Mutation, turn: &mut Turn) -> bool {
        let Some((kind, durable)) = self.jobs.at(slot).map(|job| (job.place.kind(), job.durable)) else { return false };
        match (action, kind) {
            (_, PlaceKind::Leased) => return false,
            (Mutation::Discard, _) => self.discard(slot, turn),
            (Mutation::Kill, PlaceKind::Dead | PlaceKind::Done | PlaceKind::Shelved) => return false,
            // The dead set is for those that are kept.
            (Mutation::Kill, _) if !durable => self.discard(slot, turn),
            (Mutation::Kill, _) => {
                self.tell_end(slot, &crate::event::End::Cancelled, turn);
                self.bury(slot, turn);
            }
            (Mutation::Requeue, PlaceKind::Ready | PlaceKind::Done | PlaceKind::Shelved) => return false,
            (Mutation::Requeue, _) => {
                let rank = self.rank(false);
                self.make_ready(slot, Some(rank), turn);
            }
        }
        true
    }

    // ---- which jobs ------------------------------------------------------------------------------------------------

    /// A page of jobs that match, and where to go on. Names lead straight to their jobs, a place with a time is gone
    /// through in order of time, a queue's ready jobs in theirs; anything else by slab, in no order that means anything.
    pub(crate) fn matching(&self, filter: &Filter, after: Cursor, limit: usize) -> (Vec<Slot>, Option<Cursor>) {
        if !filter.names.is_empty() {
            return self.matching_names(filter, after, limit);
        }
        let set = match filter.place {
            Some(PlaceKind::Scheduled) => Some(&self.sets.scheduled),
            Some(PlaceKind::Retrying) => Some(&self.sets.retrying),
            Some(PlaceKind::Dead) => Some(&self.sets.dead),
            Some(PlaceKind::Done) => Some(&self.sets.done),
            Some(PlaceKind::Ready | PlaceKind::Leased | PlaceKind::Shelved) | None => None,
        };
        if let Some(set) = set {
            let from = (Timestamp(after.0), JobId(after.1));
            let rows = set.range(from..).filter_map(|(at, id)| Some((Cursor(at.0, id.0), self.jobs.slot(*id)?)));
            return self.page_of(filter, rows, limit);
        }
        match (&filter.queue, filter.place) {
            (Some(name), Some(PlaceKind::Ready)) => self.matching_ready(filter, name, after, limit),
            (Some(_) | None, _) => {
                let first = u32::try_from(after.0).unwrap_or(u32::MAX);
                let rows = self.jobs.slots_from(first).map(|(slot, _)| (Cursor(slot.0.into(), 0), slot));
                self.page_of(filter, rows, limit)
            }
        }
    }

    /// Each name once, its jobs by age. The cursor holds which name, and which of its jobs.
    fn matching_names(&self, filter: &Filter, after: Cursor, limit: usize) -> (Vec<Slot>, Option<Cursor>) {
        let mut names: Vec<&[u8]> = filter.names.iter().map(AsRef::as_ref).collect();
        names.sort_unstable();
        names.dedup();
        let first = usize::try_from(after.0).unwrap_or(usize::MAX);
        let rows = (0_u64..).zip(names).skip(first).flat_map(|(index, name)| {
            let oldest = if index == after.0 { JobId(after.1) } else { JobId(0) };
            self.jobs.all_named(name, oldest).map(move |(id, slot)| (Cursor(index, id.0), slot))
        });
        self.page_of(filter, rows, limit)
    }

    fn matching_ready(&self, filter: &Filter, name: &[u8], after: Cursor, limit: usize) -> (Vec<Slot>, Option<Cursor>) {
        let Some(queue) = self.queues.named(name).and_then(|id| self.queues.at(id)) else { return (Vec::new(), None) };
        // The cursor names the last standing seen. A standing's lane says nothing in a `cycle` queue, its minor nothing in
        // a `work` queue: the other half of the cursor is for the one that does.
        let is_cycle = queue.image.kind == QueueKind::Cycle;
        let from = (after != Cursor::default()).then(|| match is_cycle {
            true => Standing { lane: 0, major: after.0, minor: after.1 },
            false => Standing { lane: u8::try_from(after.1).unwrap_or(u8::MAX), major: after.0, minor: 0 },
        });
        let walk = std::iter::successors(queue.line.after(from), |(at, _)| queue.line.after(Some(*at)));
        let mut last = after;
        let rows = walk.map(|(at, slot)| {
            let before = last;
            last = Cursor(at.major, if is_cycle { at.minor } else { at.lane.into() });
            (before, slot)
        });
        self.page_of(filter, rows, limit)
    }

    /// Takes rows until the page is full or enough has been looked at. Each row comes with the cursor that leads back to it.
    fn page_of(
        &self,
        filter: &Filter,
        rows: impl Iterator<Item = (Cursor, Slot)>,
        limit: usize,
    ) -> (Vec<Slot>, Option<Cursor>) {
        let mut page = Vec::new();
        for (looked, (cursor, slot)) in rows.enumerate() {
            if page.len() >= limit || looked >= limit * LOOKS_PER_ROW {
                return (page, Some(cursor));
            }
            if self.matches(filter, slot) {
                page.push(slot);
            }
        }
        (page, None)
    }

    fn matches(&self, filter: &Filter, slot: Slot) -> bool {
        let Some(job) = self.jobs.at(slot) else { return false };
        let in_queue = |name: &bytes::Bytes| self.queues.named(name) == Some(job.queue);
        let named = |job: &Job| filter.names.is_empty() || filter.names.iter().any(|name| name == job.name());
        filter.place.is_none_or(|place| job.place.kind() == place)
            && filter.queue.as_ref().is_none_or(in_queue)
            && filter.origin.is_none_or(|origin| job.origin == origin)
            && named(job)
            && filter.test.as_ref().is_none_or(|test| (test.0)(job))
    }

    pub(crate) fn page(&self, limit: u32) -> usize {
        limit.clamp(1, self.limits.page_max.max(1)) as usize
    }
}
