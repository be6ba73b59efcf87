//! The jobs of each realm and state.

use super::state::JobStateKind;
use crate::by_namespace::ByRealm;
use crate::ids::Realm;

/// Jobs by state, in the order of [`JobStateKind::ALL`].
pub(crate) type StateCounts = [u64; JobStateKind::ALL.len()];

/// Jobs by realm and state.
#[derive(Debug, Default)]
pub(super) struct Counts(ByRealm<StateCounts>);

impl Counts {
    /// Records that a job entered a state (1) or left it (-1).
    #[inline]
    pub(super) fn count(&mut self, realm: Realm, state: JobStateKind, by: i64) {
        self.0.change(realm, |states| {
            if let Some(n) = states.get_mut(state as usize) {
                *n = n.saturating_add_signed(by);
            }
        });
    }

    /// The figures of each realm that has any jobs, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Realm, StateCounts)> {
        self.0
            .iter()
            .filter(|(_, states)| **states != StateCounts::default())
            .map(|(realm, states)| (realm, *states))
    }

    /// Asserts the figures of these jobs.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(super) fn check(&self, jobs: impl Iterator<Item = (Realm, JobStateKind)>) {
        let mut actual = Self::default();
        jobs.for_each(|(realm, state)| actual.count(realm, state, 1));
        let some = |counts: &Self| counts.iter().collect::<Vec<_>>();
        assert_eq!(
            some(self),
            some(&actual),
            "jobs by realm and state, left: counted, right: actual"
        );
    }
}
