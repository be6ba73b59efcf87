//! Asserts that queues agree with the jobs.

use std::collections::BTreeSet;

use super::audience::View;
use super::consumers::Consumers;
use super::queue::Queue;
use super::ready::SortKey;
use super::table::Queues;
use super::throttle::Slots;
use crate::ids::{Priority, QueueId, Timestamp};
use crate::jobs::{Job, JobState, JobStateKind, Jobs, Slot};
use crate::request::QueueKind;

impl Queues {
    /// Asserts that the queues agree with the jobs.
    pub(crate) fn check(&self, jobs: &Jobs, now: Timestamp) {
        let known = self.iter().filter(|queue| queue.image.is_known()).count();
        assert_eq!(known as u64, self.known.all().count, "queues known");
        self.check_names();
        let special: BTreeSet<QueueId> = self
            .iter()
            .filter(|queue| queue.image.is_special())
            .map(|queue| queue.image.id)
            .collect();
        let ids: BTreeSet<QueueId> = self.iter().map(|queue| queue.image.id).collect();
        assert_eq!(ids, self.order, "IDs in use");
        assert!(self.special == special, "queues with a throttle or rules");
        assert!(self.freed.is_empty(), "queues are left to serve");
        for queue in self.iter() {
            let name = &queue.image.name;
            assert_eq!(
                self.named(queue.image.id.namespace(), name),
                Some(queue.image.id),
                "{name:?} is not found by name"
            );
            assert_eq!(
                queue.bridged,
                self.bridges(&queue.image),
                "{name:?} is bridged"
            );
            self.check_rules(queue, jobs);
            assert!(
                queue.image.is_known() || !queue.is_idle(),
                "{name:?} is idle and not known"
            );
            check_ready(queue, jobs);
            assert_eq!(queue.held.bytes(), queue.own_bytes(), "bytes of {name:?}");
            queue.consumers.check(name);
            let throttle = queue.slots.as_deref().map(Slots::throttle);
            assert_eq!(throttle, queue.image.throttle, "{name:?} is throttled");
            if let Some(slots) = &queue.slots {
                let leased = jobs
                    .iter()
                    .map(|(_, job)| job)
                    .filter(|job| job.queue == queue.image.id);
                slots.check(
                    name,
                    leased.filter_map(|job| Some((job.id, job.lease()?))),
                    now,
                );
            }
        }
        self.check_unclaimed();
        self.check_gates(jobs);
    }
}

/// Asserts that the ready queue is in order, and that clients of each protocol see exactly the right jobs.
fn check_ready(queue: &Queue, jobs: &Jobs) {
    let name = &queue.image.name;
    let mut ready = 0;
    let mut before = None;
    for slot in queue.ready.slots() {
        let job = jobs.at(slot);
        let belongs = |job: &Job| job.state == JobState::Ready && job.queue == queue.image.id;
        assert!(job.is_some_and(belongs), "{name:?} {slot:?}");
        let at = job.map(SortKey::of);
        assert!(before < at, "{name:?} out of order");
        before = at;
        ready += 1;
    }
    assert_eq!(
        ready,
        queue.jobs(JobStateKind::Ready),
        "{name:?}: ready queue and count"
    );
    assert_eq!(queue.ready.is_empty(), ready == 0);
    assert_eq!(
        queue.ready.counts(View::ALL).iter().sum::<u32>(),
        ready,
        "{name:?}: {} lanes",
        Priority::COUNT
    );
    for own in queue.consumers.iter().map(Consumers::protocol) {
        let sees = |slot: &Slot| {
            let Some(job) = jobs.at(*slot) else {
                return false;
            };
            let words =
                own.is_none_or(|own| job.protocol == own || (queue.bridged && !job.unfit.has(own)));
            let own_words = !(queue.bridged && own.is_some_and(|own| job.unfit.has(own)));
            queue.image.kind == QueueKind::Cycle || (words && own_words)
        };
        let mut seen = queue.ready.slots().filter(sees);
        let first = queue.ready.first_of(queue.view(own)).map(|(_, slot)| slot);
        assert_eq!(
            first,
            seen.next(),
            "{name:?}, the first job that {own:?} sees"
        );
        let many = u32::try_from(seen.count()).unwrap_or(u32::MAX) + u32::from(first.is_some());
        assert_eq!(
            queue.ready.len_of(queue.view(own)),
            many,
            "{name:?}, jobs that {own:?} sees"
        );
    }
}
