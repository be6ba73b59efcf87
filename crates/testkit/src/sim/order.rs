//! Laws of handing out, which look only at commands, events and the engine's jobs. The oracle has no part in them.
//!
//! - A job that was reported finished is gone, or kept for its result alone, and never comes back.
//! - A paused queue hands out nothing.
//! - A throttled queue has no more leases than its throttle allows once it has handed out a job.
//! - A job is handed out before every ready job of lower priority that the same clients may get.
//! - Jobs of one priority that became ready when they were pushed are handed out in that order.

use std::collections::{BTreeMap, BTreeSet};

use windlass_engine::{
    ClientId, Command, Engine, Event, Job, JobId, JobState, Pushed, Queue, Reply, Taken, Throttle,
    Timestamp,
};

/// The state that the laws need.
#[derive(Debug, Default)]
pub(crate) struct Order {
    finished: BTreeSet<JobId>,
    /// Jobs that have been ready since the step in which they were pushed, with that step.
    ready: BTreeMap<JobId, u64>,
    step: u64,
}

impl Order {
    /// Checks the events of a command, or of time that has passed.
    pub(crate) fn watch(
        &mut self,
        asked: Option<&Command>,
        said: &[(ClientId, Event)],
        engine: &Engine,
        now: Timestamp,
    ) {
        self.step += 1;
        // The events before the command's own were due earlier, under the queue's former settings.
        let resets = matches!(asked, Some(Command::Queue(_)));
        for taken in said.iter().filter_map(|(_, event)| event.handed_out()) {
            let Some((job, queue)) = leased_work(engine, taken) else {
                continue;
            };
            if !resets {
                assert!(
                    !queue.image().paused.has(job.protocol),
                    "a paused queue handed out {taken:?}"
                );
                queue
                    .image()
                    .throttle
                    .iter()
                    .for_each(|throttle| obeys(*throttle, job, engine, now));
            }
            self.watch_order(job, engine);
        }
        self.watch_ends(said, engine);
        self.note_ready(asked, said, engine);
    }

    /// Of two jobs in one queue that the same clients may get, a client gets the one that comes first.
    fn watch_order(&self, taken: &Job, engine: &Engine) {
        let class = |job: &Job| (job.queue, job.protocol, job.unfit);
        let same = |job: &&Job| class(job) == class(taken);
        let left = self
            .ready
            .keys()
            .filter_map(|id| engine.job(*id))
            .filter(same);
        // One that came back meanwhile may have been away when this one was handed out.
        for job in left
            .filter(|job| matches!(job.state, JobState::Ready) && job.attempts + job.failures == 0)
        {
            assert!(
                job.priority <= taken.priority,
                "{job:?} has a higher priority than {taken:?}"
            );
            let (Some(left_at), Some(taken_at)) =
                (self.ready.get(&job.id), self.ready.get(&taken.id))
            else {
                continue;
            };
            let is_first = job.priority == taken.priority && taken.attempts == 1;
            assert!(
                !is_first || taken_at < left_at,
                "{job:?} came before {taken:?}"
            );
        }
    }

    fn watch_ends(&mut self, said: &[(ClientId, Event)], engine: &Engine) {
        self.finished
            .extend(said.iter().filter_map(|(_, event)| match event {
                Event::Reply(_, Reply::Finished(job)) => Some(*job),
                _ => None,
            }));
        let is_over = |job: &Job| matches!(job.state, JobState::Done(_));
        let back = self
            .finished
            .iter()
            .filter_map(|id| engine.job(*id))
            .find(|job| !is_over(job));
        assert!(back.is_none(), "a finished job is back: {back:?}");
    }

    /// Records a job that waits since it was pushed, unless it was pushed to the front.
    fn note_ready(&mut self, asked: Option<&Command>, said: &[(ClientId, Event)], engine: &Engine) {
        let is_ready = |id: JobId| {
            engine
                .job(id)
                .is_some_and(|job| matches!(job.state, JobState::Ready) && job.cycle().is_none())
        };
        self.ready.retain(|id, _| is_ready(*id));
        let is_ordered = asked
            .and_then(Command::new_job)
            .is_some_and(|job| !job.front);
        let pushed = said.iter().find_map(|(_, event)| match event {
            Event::Reply(
                _,
                Reply::Pushed {
                    job,
                    how: Pushed::New,
                    ..
                },
            ) => Some(*job),
            _ => None,
        });
        if let Some(job) = pushed.filter(|job| is_ordered && is_ready(*job)) {
            self.ready.insert(job, self.step);
        }
    }
}

/// The job that was handed out and its queue, if the job is still leased. Entries of `cycle` queues have an order of
/// their own.
fn leased_work<'a>(engine: &'a Engine, taken: &Taken) -> Option<(&'a Job, &'a Queue)> {
    let job = engine
        .job(taken.id)
        .filter(|job| job.lease().is_some() && job.cycle().is_none())?;
    Some((job, engine.queue(job.queue)?))
}

/// Asserts that a job was handed out under the limits of its queue.
fn obeys(throttle: Throttle, taken: &Job, engine: &Engine, now: Timestamp) {
    let holds_slot = |job: &&Job| {
        let lease = job.lease().filter(|_| job.queue == taken.queue);
        lease.is_some_and(|lease| {
            throttle
                .timeout_ms
                .is_none_or(|ms| lease.taken_at.0.saturating_add(ms) > now.0)
        })
    };
    let slots = || engine.jobs().filter(holds_slot);
    let holder = |job: &Job| job.lease().map(|lease| lease.holder.clone());
    let (all, own) = (
        slots().count(),
        slots().filter(|job| holder(job) == holder(taken)).count(),
    );
    let allows = |max: Option<u32>, held: usize| max.is_none_or(|max| held <= max as usize);
    assert!(
        allows(throttle.leased_max, all),
        "{all} slots of {throttle:?} after {taken:?}"
    );
    assert!(
        allows(throttle.per_worker_max, own),
        "{own} slots of one worker of {throttle:?} after {taken:?}"
    );
}
