//! Mail that waits for commits of a previous leader.

use super::Mailbox;
use super::queued::disclaim;

impl Mailbox {
    /// Handles the restart of commit numbers: acknowledgements of commits after `reached` can no
    /// longer be given, the others can. A take whose lease is lost gets no reply, because the
    /// caller repeats it.
    pub fn begin_epoch(&self, reached: u64) {
        let mut inner = self.lock();
        inner.registered = 0;
        inner.mail.retain_mut(|queued| {
            let is_lost = std::mem::take(&mut queued.gate) > reached;
            if is_lost {
                disclaim(&mut queued.mail);
            }
            !(is_lost && queued.answers_take())
        });
        inner.weigh();
        self.count(&inner);
        drop(inner);
        self.ring();
    }
}
