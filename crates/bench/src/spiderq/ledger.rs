//! The expected state of the queue: each task's state and value, and the number of replies of each kind. All connections of a
//! run update it, and so do later runs on the same server.
//!
//! Spec: `spiderq-protocol`, "Lend" and "Repay": a task on loan is lent to no other client, and comes back with the value of its
//! Repay.

use crate::error::Error;
use crate::spiderq::wire::{self, Stats, Status};
use crate::stamp::Stamp;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// By number.
    tasks: Vec<Task>,
    queued: u64,
    /// Replies so far; of Lend and Repay, requests.
    pub(super) stats: Stats,
}

#[derive(Debug, Clone, Copy)]
struct Task {
    state: State,
    /// The time in its value. It increases with every write of the value, so that an old value is detected.
    sent_nanos: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Queued,
    Lent,
    Dropped,
}

impl Ledger {
    /// How many tasks are queued when all sent requests are done.
    pub(super) fn queued(&self) -> u64 {
        self.queued
    }

    /// What differs between these counts of a server and those of this queue.
    pub(super) fn difference(&self, queued: u64, stats: Stats) -> Option<String> {
        // 1.3 does not report its number of Pings.
        let expected = Stats { ping: stats.ping.and(self.stats.ping.or(Some(0))), ..self.stats };
        ((queued, stats) != (self.queued, expected)).then(|| {
            let queue = format!("the server counts {queued} tasks, {} were expected", self.queued);
            format!("{queue}; it has answered {stats:?}, {expected:?} was expected")
        })
    }

    /// A new task is being added. Returns the stamp for its value. It may be lent before the answer arrives.
    pub(super) fn add(&mut self, sent_nanos: u64) -> Stamp {
        let number = self.tasks.len() as u64;
        self.tasks.push(Task { state: State::Queued, sent_nanos });
        self.queued += 1;
        Stamp { number, sent_nanos }
    }

    /// A task was lent. Returns the stamp in its value.
    /// [`Error::Mismatch`] if that is impossible: the task was never added, is on loan or gone, or never had this value.
    pub(super) fn lend(&mut self, key: &[u8], value: &[u8]) -> Result<Stamp, Error> {
        self.stats.lend += 1;
        let wrong = |what: &str| Err(Error::Mismatch(format!("task {} {what}", key.escape_ascii())));
        let number = key.try_into().ok().map(u64::from_be_bytes);
        let task = number.and_then(|number| self.tasks.get_mut(usize::try_from(number).ok()?));
        let (Some(number), Some(task)) = (number, task) else {
            return wrong("was never added");
        };
        match task.state {
            State::Queued => {}
            State::Lent => return wrong("was lent while it was on loan"),
            State::Dropped => return wrong("was lent after it was dropped"),
        }
        let stamp = Stamp { number, sent_nanos: task.sent_nanos };
        if *value != wire::value_of(stamp) {
            return wrong("came with another value");
        }
        task.state = State::Lent;
        self.queued -= 1;
        Ok(stamp)
    }

    /// A task on loan is being repaid. Returns the stamp for its value. From here on it may be lent again.
    pub(super) fn repay(&mut self, lent: Stamp, status: Status) -> Stamp {
        self.stats.repay += 1;
        let stamp = Stamp { sent_nanos: lent.sent_nanos + 1, ..lent };
        let state = match status {
            Status::Penalty => State::Queued,
            Status::Drop => State::Dropped,
        };
        if let Some(task) = usize::try_from(lent.number).ok().and_then(|number| self.tasks.get_mut(number)) {
            *task = Task { state, sent_nanos: stamp.sent_nanos };
            self.queued += u64::from(state == State::Queued);
        }
        stamp
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lend(ledger: &mut Ledger, stamp: Stamp) -> Result<Stamp, String> {
        ledger.lend(&stamp.number.to_be_bytes(), &wire::value_of(stamp)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_task_goes_round_and_out() {
        let mut ledger = Ledger::default();
        let stamp = ledger.add(7);
        let other = ledger.add(7);
        assert_eq!((stamp.number, other.number, ledger.queued()), (0, 1, 2));
        assert_eq!(lend(&mut ledger, stamp), Ok(stamp));
        assert_eq!(ledger.queued(), 1);
        let again = ledger.repay(stamp, Status::Penalty);
        assert_eq!(ledger.queued(), 2);
        assert_eq!(lend(&mut ledger, again), Ok(again));
        ledger.repay(again, Status::Drop);
        assert_eq!(ledger.queued(), 1);
        let stats = Stats { ping: None, add: 0, lend: 2, repay: 2, strange: 0 };
        assert_eq!(ledger.difference(1, stats), None);
        for (queued, stats) in [(2, stats), (1, Stats { lend: 3, ..stats }), (1, Stats { ping: Some(1), ..stats })] {
            assert!(ledger.difference(queued, stats).is_some(), "{queued} {stats:?}");
        }
    }

    #[test]
    fn impossible_loans_are_refused() {
        let mut ledger = Ledger::default();
        let [lent, dropped, repaid] = [0; 3].map(|_| ledger.add(5));
        for stamp in [lent, dropped, repaid] {
            lend(&mut ledger, stamp).unwrap();
        }
        ledger.repay(dropped, Status::Drop);
        ledger.repay(repaid, Status::Penalty);
        let table = [
            (lent, "was lent while it was on loan"),
            (dropped, "was lent after it was dropped"),
            (repaid, "came with another value"),
            (Stamp { number: 3, sent_nanos: 5 }, "was never added"),
            (Stamp { number: u64::MAX, sent_nanos: 5 }, "was never added"),
        ];
        for (stamp, expected) in table {
            let error = lend(&mut ledger, stamp).unwrap_err();
            assert!(error.starts_with("count mismatch: task \\x") && error.ends_with(expected), "{error}");
        }
        let error = ledger.lend(b"key", b"").unwrap_err().to_string();
        assert_eq!(error, "count mismatch: task key was never added");
    }
}
