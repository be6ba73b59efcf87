//! The jobs of each protocol and state.

use super::state::JobStateKind;
use crate::ids::Protocol;

/// Jobs by state, in the order of [`JobStateKind::ALL`].
pub(crate) type StateCounts = [u64; JobStateKind::ALL.len()];

/// Jobs by protocol and state. There are few protocols, so a linear search is short.
#[derive(Debug, Default)]
pub(super) struct Counts(Vec<(Protocol, StateCounts)>);

impl Counts {
    /// Records that a job entered a state (1) or left it (-1).
    #[inline]
    pub(super) fn count(&mut self, protocol: Protocol, state: JobStateKind, by: i64) {
        let Some((_, states)) = self.0.iter_mut().find(|(other, _)| *other == protocol) else {
            return self.count_first(protocol, state, by);
        };
        if let Some(n) = states.get_mut(state as usize) {
            *n = n.saturating_add_signed(by);
        }
    }

    #[cold]
    fn count_first(&mut self, protocol: Protocol, state: JobStateKind, by: i64) {
        let at = self.0.partition_point(|(other, _)| *other < protocol);
        self.0.insert(at, (protocol, StateCounts::default()));
        self.count(protocol, state, by);
    }

    /// The figures of each protocol that has any jobs, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Protocol, StateCounts)> {
        self.0
            .iter()
            .filter(|(_, states)| *states != StateCounts::default())
            .copied()
    }

    /// Asserts the figures of these jobs.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(super) fn check(&self, jobs: impl Iterator<Item = (Protocol, JobStateKind)>) {
        let mut actual = Self::default();
        jobs.for_each(|(protocol, state)| actual.count(protocol, state, 1));
        let some = |counts: &Self| counts.iter().collect::<Vec<_>>();
        assert_eq!(
            some(self),
            some(&actual),
            "jobs by protocol and state, left: counted, right: actual"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_are_counted_in_their_order() {
        let (mut counts, mut expected) = (
            Counts::default(),
            [Protocol::EVENTMQ, Protocol::FAKTORY, Protocol::GEARMAN],
        );
        for protocol in expected {
            counts.count(protocol, JobStateKind::Ready, 1);
        }
        expected.sort_unstable();
        assert!(counts.iter().map(|(protocol, _)| protocol).eq(expected));
    }
}
