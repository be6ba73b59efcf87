//! Mail that has waited for commits of a leader that is gone.

use super::Mailbox;
use super::letter::disclaim;

impl Mailbox {
    /// The numbers of commits begin anew: acknowledgements that wait for a commit behind `reached` can no longer be
    /// given, the others can. A take whose lease is lost is not answered: the caller asks for it again.
    pub fn begin_epoch(&self, reached: u64) {
        let mut inner = self.lock();
        inner.registered = 0;
        inner.mail.retain_mut(|letter| {
            let is_lost = std::mem::take(&mut letter.gate) > reached;
            if is_lost {
                disclaim(&mut letter.mail);
            }
            !(is_lost && letter.answers_take())
        });
        inner.weigh();
        self.count(&inner);
        drop(inner);
        self.ring();
    }
}
