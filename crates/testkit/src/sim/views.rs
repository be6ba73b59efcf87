//! Laws of what the engine shows: each listing has every row once and in order, and each figure equals a count over the jobs that
//! there are.

use std::collections::BTreeSet;

use windlass_engine::{
    Batch, CallbackState, ClientId, Cursor, Engine, Job, JobRef, JobStateKind, Priority, Protocol, ProtocolStats,
    Protocols, Query, Queue, QueueKind, QueueRow, QueueRules, Refusal, Reply, Schedule, Stage, Stats, Thing, Totals,
};

use super::oracle::{ClientMemo, Oracle, QueueMemo, Waiting};

type States = [u64; JobStateKind::ALL.len()];

impl Oracle {
    /// Asserts that a query was answered with what there is.
    pub(crate) fn judge_view(&self, engine: &Engine, client: ClientId, query: &Query, reply: &Reply) {
        let own = self.client(client).and_then(|client| client.info.protocol);
        match (query, reply) {
            (Query::Job(which), Reply::Looked { job, schedule }) => {
                let id = self.find(which).ok();
                assert_eq!(job.as_ref().map(|view| &view.job), id.and_then(|id| engine.job(id)), "{which:?}");
                if let Some(view) = job {
                    let queue = engine.queue(view.job.queue).map(Queue::image);
                    let is = queue.map(|queue| (queue.name.clone(), queue.rules().codec));
                    assert_eq!(is, Some((view.queue.clone(), view.codec)), "{view:?}");
                }
                let numbered = if let JobRef::Id(id) = which { engine.schedule(*id) } else { None };
                assert_eq!(schedule.as_deref(), numbered, "{which:?}");
            }
            (Query::Batch { batch }, reply) => judge_batch(engine.batches().find(|row| row.name == *batch), reply),
            (Query::Queue { queue }, Reply::Queues { rows, next: None }) => {
                let is_set = |memo: &QueueMemo| memo.throttle.is_some() || memo.rules != QueueRules::default();
                let is_shown = |memo: &&QueueMemo| memo.is_known_to(own) || (own.is_none() && is_set(memo));
                let shown = self.queues.iter().filter(|memo| memo.name == *queue).filter(is_shown);
                assert_eq!(
                    rows.iter().map(|row| &row.name).collect::<Vec<_>>(),
                    shown.map(|memo| &memo.name).collect::<Vec<_>>()
                );
                rows.iter().for_each(|row| self.judge_queue(engine, own, row));
            }
            (Query::Queues { after, limit }, Reply::Queues { rows, next }) => {
                let number = |memo: &QueueMemo| memo.id.map_or(0, |id| u64::from(id.0));
                let known = self.queues.iter().filter(|memo| memo.is_known_to(own));
                let mut known: Vec<_> = known.map(|memo| (number(memo), &memo.name)).collect();
                known.sort_unstable();
                let (listed, then) = self.page_of(known, *after, *limit);
                assert_eq!(rows.iter().map(|row| &row.name).collect::<Vec<_>>(), listed);
                // The rest of the cursor is internal to the engine.
                assert_eq!(next.map(|next| next.0), then.map(|next| next.0));
                rows.iter().for_each(|row| self.judge_queue(engine, own, row));
            }
            (Query::Workers { after, limit }, Reply::Workers { rows, next }) => {
                let (listed, then) =
                    self.page_of(self.workers.iter().map(|worker| (worker.number, worker)), *after, *limit);
                assert_eq!((rows.len(), *next), (listed.len(), then), "{rows:?}");
                for (row, worker) in rows.iter().zip(listed) {
                    let shown = (&row.name, &row.about, row.protocol, row.state, row.beat_at);
                    assert_eq!(shown, (&worker.name, &worker.about, worker.protocol, worker.state, worker.beat_at));
                    let connections = self.clients.iter().filter(|client| client.worker == Some(worker.number)).count();
                    let held = self.jobs.iter().filter(|memo| memo.lease_worker == Some(worker.number)).count();
                    assert_eq!((row.connections as usize, row.held as usize), (connections, held), "{row:?}");
                }
            }
            (Query::Clients { after, limit }, Reply::Clients { rows, next }) => {
                let (listed, then) =
                    self.page_of(self.clients.iter().map(|client| (client.id.0, client)), *after, *limit);
                assert_eq!((rows.len(), *next), (listed.len(), then), "{rows:?}");
                for (row, client) in rows.iter().zip(listed) {
                    let ClientMemo { id, info, label, subscriptions, credits, waiting, .. } = client;
                    let shown = (row.id, row.number, &row.address, &row.label, row.protocol);
                    assert_eq!(shown, (*id, info.number, &info.address, label, info.protocol));
                    let served = subscriptions.iter().map(|served| &self.queue(served.queue).name);
                    assert_eq!(row.subscriptions.iter().collect::<Vec<_>>(), served.collect::<Vec<_>>());
                    let held = self.jobs.iter().filter(|memo| memo.connection() == Some(*id)).count();
                    let waits = *credits > 0 || matches!(waiting, Waiting::Jobs(_) | Waiting::Asleep { .. });
                    assert_eq!((row.held as usize, row.waits), (held, waits), "{row:?}");
                }
            }
            (Query::Schedules { protocol, after, limit }, Reply::Schedules { rows, next }) => {
                let (listed, then) = self.page_of(engine.schedules().map(|row| (row.id.0, row)), *after, *limit);
                let is_shown = |row: &&Schedule| protocol.is_none_or(|protocol| row.job.protocol == protocol);
                assert_eq!(rows.iter().collect::<Vec<_>>(), listed.into_iter().filter(is_shown).collect::<Vec<_>>());
                assert_eq!(*next, then);
            }
            (Query::Stats, Reply::Stats(stats)) => self.judge_stats(engine, stats),
            (Query::Days, Reply::Days(days)) => {
                // Days without an end add up to the totals, while none has been dropped.
                let counted =
                    days.values().fold(Totals::default(), |sum, day| sum.merged(day, |one, other| one + other));
                let lacks = self.totals.merged(&counted, u64::saturating_sub);
                let dropped = engine.days().next().map(|begin| begin.totals).unwrap_or_default();
                assert_eq!(lacks, dropped, "the days add up to {counted:?}");
            }
            (_, reply) => panic!("{query:?} is answered with {reply:?}"),
        }
    }

    /// The rows from a cursor on that fit a page, in the order of their numbers, and where the next page begins.
    fn page_of<T>(
        &self,
        all: impl IntoIterator<Item = (u64, T)>,
        after: Cursor,
        limit: u32,
    ) -> (Vec<T>, Option<Cursor>) {
        let mut left = all.into_iter().filter(|(number, _)| *number >= after.0);
        let rows = left.by_ref().take(self.page(limit)).map(|(_, row)| row).collect();
        (rows, left.next().map(|(number, _)| Cursor(number, 0)))
    }

    /// Asserts that a row shows the part of a queue that clients of one protocol see.
    fn judge_queue(&self, engine: &Engine, own: Option<Protocol>, row: &QueueRow) {
        let memo = self.queues.iter().find(|queue| queue.name == row.name).expect("it is listed");
        let scope = memo.scope(own);
        let image = memo.id.and_then(|id| engine.queue(id)).map(Queue::image).expect("the oracle has it");
        let settings = (row.kind, row.paused_at, row.jobs_max_of, row.throttle, row.rules, row.bridged);
        assert_eq!(
            settings,
            (image.kind, image.paused_at, image.jobs_max_of, image.throttle, image.rules(), memo.bridged)
        );
        assert_eq!((row.paused, row.jobs_max), (image.paused.within(Protocols::of(scope)), memo.limits_for(scope)));
        let jobs = || engine.jobs().filter(|job| job.queue == image.id && scope.is_none_or(|own| job.protocol == own));
        assert_eq!(row.places.map(u64::from), places(jobs()), "{row:?}");
        let mut ready = [0; Priority::COUNT];
        for job in jobs().filter(|job| job.state.kind() == JobStateKind::Ready) {
            ready[if row.kind == QueueKind::Cycle { Priority::NORMAL } else { job.priority }.lane()] += 1;
        }
        assert_eq!(row.ready, ready, "{row:?}");
        let first = self.ready_queue(memo.number).into_iter().find_map(|id| jobs().find(|job| job.id == id));
        assert_eq!(row.oldest_ready_at, first.map(|job| job.ready_at), "{row:?}");
        assert_eq!((row.slots_held, row.workers), (self.slots_held(memo.number), self.workers_of(memo.number, scope)));
    }

    fn judge_stats(&self, engine: &Engine, stats: &Stats) {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let weights = engine.jobs().map(Job::weight_bytes).chain(engine.batches().map(Batch::weight_bytes));
        let images = || engine.queues().map(Queue::image);
        let all = self.protocols.keys().copied().chain(engine.jobs().map(|job| job.protocol)).collect::<BTreeSet<_>>();
        let of = |protocol| ProtocolStats {
            protocol,
            totals: self.protocols.get(&protocol).copied().unwrap_or_default(),
            places: places(engine.jobs().filter(|job| job.protocol == protocol)),
        };
        let expected = Stats {
            totals: self.totals,
            places: places(engine.jobs()),
            protocols: all.into_iter().map(of).collect(),
            jobs: engine.jobs().count() as u64,
            bytes: weights.chain(engine.schedules().map(Schedule::weight_bytes)).sum(),
            queues: count(images().filter(|image| image.is_known()).count()),
            throttled: count(images().filter(|image| image.throttle.is_some()).count()),
            clients: count(self.clients.len()),
            workers: count(self.workers.len()),
            batches: count(engine.batches().count()),
            schedules: count(engine.schedules().count()),
        };
        assert_eq!(*stats, expected, "left: the figures, right: a count");
    }
}

/// Jobs by state, in the order of [`JobStateKind::ALL`].
fn places<'a>(jobs: impl Iterator<Item = &'a Job>) -> States {
    let mut places = States::default();
    jobs.for_each(|job| places[job.state.kind() as usize] += 1);
    places
}

/// Asserts that a batch is shown as it is.
fn judge_batch(batch: Option<&Batch>, reply: &Reply) {
    let (Some(batch), Reply::Batch(view)) = (batch, reply) else {
        assert!(batch.is_none() && *reply == Reply::Refused(Refusal::NotFound(Thing::Batch)), "{batch:?}: {reply:?}");
        return;
    };
    let Batch { name, protocol, parent_name, about, meta, created_at, progress: at, .. } = batch;
    let shown = (&view.name, view.protocol, &view.parent, &view.about, &view.meta, view.created_at, view.committed);
    assert_eq!(shown, (name, *protocol, parent_name, about, meta, *created_at, at.committed));
    let counts = (view.total, view.total - view.pending, view.pending - view.failed);
    assert_eq!(counts, (at.total, at.succeeded, at.total - at.ran), "{view:?}: {at:?}");
    for (state, stage) in [(view.complete, at.complete), (view.success, at.success)] {
        let is_pushed = matches!(stage, Stage::Enqueued | Stage::Succeeded);
        assert_eq!(state != CallbackState::None, is_pushed, "{view:?}: {at:?}");
        assert_eq!(state == CallbackState::Ok, stage == Stage::Succeeded, "{view:?}: {at:?}");
    }
}
