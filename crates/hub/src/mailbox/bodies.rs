//! Mail that waits for bodies.

use bytes::Bytes;
use windlass_engine::{JobId, Stored, Token};
use windlass_session::Reason;

use super::{Mail, Mailbox};

impl Mailbox {
    /// Puts bodies into the mail that waits for them, and rings.
    pub(crate) fn supply(&self, find: impl Fn(JobId, Stored) -> Option<Bytes>) {
        let mut inner = self.lock();
        for letter in inner.mail.iter_mut().filter(|letter| letter.waits_for_body()) {
            if let Mail::Event(event) = &mut letter.mail {
                event.supply(&find);
            }
        }
        inner.weigh();
        self.count(&inner);
        drop(inner);
        self.ring();
    }

    /// The body of this job cannot be read: its mail gets another answer. Returns the jobs that the owner does not get;
    /// one that has no such answer ends the owner's connection. `None`: no mail here waits for it.
    pub(crate) fn give_up_on(&self, job: JobId) -> Option<Vec<(JobId, Token)>> {
        let (mut unsent, mut waits, mut is_mute) = (Vec::new(), false, false);
        let mut inner = self.lock();
        for letter in &mut inner.mail {
            let Mail::Event(event) = &mut letter.mail else { continue };
            if !event.bodies().any(|(other, _)| other == job) {
                continue;
            }
            waits = true;
            match event.without_body() {
                Some(answer) => {
                    unsent.extend(event.handed_out().map(|job| (job.id, job.token)));
                    (*event, letter.hold) = (answer, None);
                }
                None => is_mute = true,
            }
        }
        inner.weigh();
        self.count(&inner);
        drop(inner);
        if is_mute {
            self.evict(Reason::ClosedByServer);
        }
        waits.then_some(unsent)
    }
}
