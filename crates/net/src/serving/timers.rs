//! The deadlines of a thread's connections.
//!
//! Setting a timer costs more than reading a message, and most deadlines are extended before they
//! pass. So a timer that is too early is left alone: when it fires, the connection checks its
//! deadlines and sets it again.

use std::collections::BTreeSet;

use windlass_engine::Timestamp;

use windlass_hub::ConnectionId;

/// One timer for each connection with a deadline.
#[derive(Debug, Default)]
pub(super) struct Timers(BTreeSet<(Timestamp, ConnectionId)>);

/// When a connection's timer fires, if it is set.
#[derive(Debug, Default)]
pub(super) struct Timer(Option<Timestamp>);

impl Timers {
    /// Sets a timer to fire at this deadline or earlier.
    pub(super) fn set(&mut self, id: ConnectionId, timer: &mut Timer, deadline: Option<Timestamp>) {
        let Some(deadline) = deadline else { return };
        if timer.0.is_some_and(|at| at <= deadline) {
            return;
        }
        self.clear(id, timer);
        self.0.insert((deadline, id));
        timer.0 = Some(deadline);
    }

    /// Removes a timer, if it is set.
    pub(super) fn clear(&mut self, id: ConnectionId, timer: &mut Timer) {
        if let Some(at) = timer.0.take() {
            self.0.remove(&(at, id));
        }
    }

    /// When the next timer fires.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.0.first().map(|(at, _)| *at)
    }

    /// Removes a timer that has fired. Its owner must clear it.
    pub(super) fn take_due(&mut self, now: Timestamp) -> Option<ConnectionId> {
        let (_, id) = *self.0.first().filter(|(at, _)| *at <= now)?;
        self.0.pop_first();
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use windlass_engine::ClientId;

    use super::*;

    const NOW: Timestamp = Timestamp(1_000);

    fn id(index: usize) -> ConnectionId {
        ConnectionId {
            index,
            client: ClientId(index as u64 + 1),
        }
    }

    #[test]
    fn a_timer_is_due_at_its_earliest_deadline_and_once() {
        let (mut timers, mut timer) = (Timers::default(), Timer::default());
        timers.set(id(0), &mut timer, None);
        assert_eq!(timers.next(), None);
        for (deadline, next) in [(500, 500), (900, 500), (200, 200), (300, 200)] {
            timers.set(id(0), &mut timer, Some(NOW.after_ms(deadline)));
            assert_eq!(timers.next(), Some(NOW.after_ms(next)));
        }
        assert_eq!(timers.take_due(NOW.after_ms(199)), None);
        assert_eq!(timers.take_due(NOW.after_ms(200)), Some(id(0)));
        timers.clear(id(0), &mut timer);
        timers.set(id(0), &mut timer, Some(NOW.after_ms(700)));
        assert_eq!(
            timers.take_due(NOW.after_ms(699)),
            None,
            "the earlier deadlines are forgotten"
        );
    }

    #[test]
    fn timers_are_due_in_order_and_a_cleared_one_never() {
        let mut timers = Timers::default();
        let mut all: Vec<Timer> = (0..4).map(|_| Timer::default()).collect();
        for (index, at) in [(0, 40), (1, 10), (2, 10), (3, 30)] {
            timers.set(id(index), &mut all[index], Some(NOW.after_ms(at)));
        }
        timers.clear(id(2), &mut all[2]);
        let due: Vec<usize> = std::iter::from_fn(|| timers.take_due(NOW.after_ms(35)))
            .map(|id| id.index)
            .collect();
        assert_eq!(due, [1, 3]);
        assert_eq!(timers.next(), Some(NOW.after_ms(40)));
    }
}
