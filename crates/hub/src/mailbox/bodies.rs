//! Mail that waits for bodies.

use bytes::Bytes;
use windlass_engine::{JobId, Stored};

use super::Mailbox;
use super::queued::{GivenUp, Mail};

impl Mailbox {
    /// Puts bodies into the mail that waits for them, and wakes the owner.
    pub(crate) fn supply(&self, find: impl Fn(JobId, Stored) -> Option<Bytes>) {
        let mut inner = self.lock();
        for queued in inner
            .mail
            .iter_mut()
            .filter(|queued| queued.waits_for_body())
        {
            if let Mail::Event(event) = &mut queued.mail {
                event.supply(&find);
            }
        }
        inner.weigh();
        self.count(&inner);
        drop(inner);
        self.ring();
    }

    /// Replaces mail that waits for the unreadable body of this job, and drops a delivery of the
    /// job.
    pub(crate) fn give_up_on(&self, job: JobId) -> GivenUp {
        let mut given_up = GivenUp::default();
        let mut inner = self.lock();
        inner.mail.retain_mut(|queued| {
            let Mail::Event(event) = &mut queued.mail else {
                return true;
            };
            if !event.bodies().any(|(other, _)| other == job) {
                return true;
            }
            given_up.waited = true;
            given_up
                .unsent
                .extend(event.handed_out().map(|job| (job.id, job.token)));
            let answer = event.without_body(job);
            given_up.deliveries += u32::from(answer.is_none());
            answer
                .map(|answer| (*event, queued.hold) = (answer, None))
                .is_some()
        });
        inner.urgent &= !inner.mail.is_empty();
        inner.weigh();
        self.count(&inner);
        drop(inner);
        given_up
    }
}
