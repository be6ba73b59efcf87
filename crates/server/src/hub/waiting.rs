//! Mailboxes to ring for commits.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::mailbox::Mailbox;

/// Mailboxes with the commits for which they are rung, in order of commits.
#[derive(Debug, Default)]
pub(super) struct Waiting(VecDeque<(u64, Arc<Mailbox>)>);

impl Waiting {
    /// Rings the mailbox once this commit is durable. Most come in order: a large job may wait for an older one.
    pub(super) fn add(&mut self, commit: u64, mailbox: &Arc<Mailbox>) {
        let at = match self.0.back() {
            Some((last, _)) if *last > commit => self.0.partition_point(|(gate, _)| *gate <= commit),
            Some(_) | None => self.0.len(),
        };
        self.0.insert(at, (commit, Arc::clone(mailbox)));
    }

    /// Takes out the mailboxes that wait for commits up to this one.
    pub(super) fn take(&mut self, durable: u64) -> Vec<Arc<Mailbox>> {
        let due = self.0.partition_point(|(gate, _)| *gate <= durable);
        self.0.drain(..due).map(|(_, mailbox)| mailbox).collect()
    }

    pub(super) fn mailboxes(&self) -> Vec<Arc<Mailbox>> {
        self.0.iter().map(|(_, mailbox)| Arc::clone(mailbox)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serving::nowhere;

    #[test]
    fn mailboxes_come_out_in_order_of_their_commits() {
        let mailbox = |bytes| Arc::new(Mailbox::new(bytes, Arc::default(), nowhere()));
        let (a, b, c) = (mailbox(1), mailbox(2), mailbox(3));
        let mut waiting = Waiting::default();
        waiting.add(5, &a);
        waiting.add(7, &b);
        waiting.add(4, &c);
        let is = |got: Vec<Arc<Mailbox>>, expected: &[&Arc<Mailbox>]| {
            assert_eq!(got.len(), expected.len());
            assert!(got.iter().zip(expected).all(|(got, expected)| Arc::ptr_eq(got, expected)));
        };
        is(waiting.take(3), &[]);
        is(waiting.take(4), &[&c]);
        is(waiting.mailboxes(), &[&a, &b]);
        is(waiting.take(9), &[&a, &b]);
    }
}
