//! Knowledge of an engine about the predecessor. Clients of that engine claim the state that they had there.
//!
//! Not here: the effects of a claim (`engine/claims`), and requests for work that are blocked until then
//! ([`crate::deferred`]).

use std::collections::{BTreeMap, BTreeSet};

use crate::claim::Held;
use crate::command::LeaseCommand;
use crate::ids::{ClientId, JobId, Tag};
use crate::refusal::{Outcome, Refusal};
use crate::request::JobRef;

/// The limit of postponed reports per claimed lease.
const REPORTS_MAX: usize = 1 << 12;

/// Jobs of the previous engine that have not been restored yet.
#[derive(Debug)]
pub(crate) struct Succession {
    /// The previous engine assigned only IDs below this.
    numbers_below: u64,
    /// Leases of jobs that no client has restored yet.
    expected: BTreeMap<JobId, Expected>,
    /// Jobs that clients have restored.
    returned: BTreeSet<JobId>,
}

/// A claimed lease of a job that has not been restored yet.
#[derive(Debug)]
pub(crate) struct Expected {
    pub(crate) client: ClientId,
    pub(crate) held: Held,
    /// Reports of the worker that arrived before the job.
    pub(crate) reports: Vec<(Tag, LeaseCommand)>,
}

impl Succession {
    /// The previous engine assigned only IDs below this.
    pub(crate) const fn new(numbers_below: u64) -> Self {
        Self {
            numbers_below,
            expected: BTreeMap::new(),
            returned: BTreeSet::new(),
        }
    }

    /// Returns true if the previous engine may have assigned this ID.
    pub(crate) const fn may_be_of_before(&self, job: JobId) -> bool {
        job.0 < self.numbers_below
    }

    /// Returns true if a client may restore the job, which is allowed only once.
    pub(crate) fn may_bring_back(&self, job: JobId) -> bool {
        self.may_be_of_before(job) && !self.returned.contains(&job)
    }

    /// Records a claim to a lease of a job that has not been restored. If several clients claim it,
    /// the highest token wins.
    pub(crate) fn expect(&mut self, job: JobId, client: ClientId, held: Held) {
        if self
            .expected
            .get(&job)
            .is_none_or(|other| other.held.token < held.token)
        {
            self.expected.insert(
                job,
                Expected {
                    client,
                    held,
                    reports: Vec::new(),
                },
            );
        }
    }

    /// Removes and returns the claimed lease of a restored job.
    pub(crate) fn arrived(&mut self, job: JobId) -> Option<Expected> {
        self.returned.insert(job);
        self.expected.remove(&job)
    }

    /// Allows another client to restore an unfinished job without listeners.
    pub(crate) fn may_return(&mut self, job: JobId) {
        self.returned.remove(&job);
    }

    /// Returns true if leases of jobs are claimed that no client has brought back.
    pub(crate) fn expects_any(&self) -> bool {
        !self.expected.is_empty()
    }

    /// The claimed lease that a worker refers to, if the job has not been restored yet.
    pub(crate) fn expected_by(&mut self, client: ClientId, job: &JobRef) -> Option<&mut Expected> {
        let mut of_client = self
            .expected
            .iter_mut()
            .filter(|(_, expected)| expected.client == client);
        of_client
            .find(|(id, expected)| expected.held.is_named(**id, job))
            .map(|(_, expected)| expected)
    }

    /// Removes the claims of a closed connection.
    pub(crate) fn forget(&mut self, client: ClientId) {
        self.expected
            .retain(|_, expected| expected.client != client);
    }

    /// Gives up a lease of a job that no client has restored.
    pub(crate) fn give_up_one(&mut self) -> Option<Expected> {
        self.expected.pop_first().map(|(_, expected)| expected)
    }
}

impl Expected {
    /// Stores a worker's report until the job is restored.
    pub(crate) fn keep(&mut self, tag: Tag, report: LeaseCommand) -> Outcome {
        if self.reports.len() >= REPORTS_MAX {
            return Err(Refusal::Unavailable);
        }
        self.reports.push((tag, report));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Protocol, Timestamp, Token};
    use crate::request::Proof;

    fn held(token: u64) -> Held {
        let names = bytes::Bytes::new;
        let (token, until, protocol) = (Token(token), Timestamp::NEVER, Protocol::GEARMAN);
        Held {
            token,
            until,
            protocol,
            queue: names(),
            name: names(),
            key: names(),
        }
    }

    #[test]
    fn a_lease_that_is_claimed_twice_keeps_its_first_client_and_a_later_lease_takes_its_place() {
        let job = JobId(7);
        for (second, expected) in [(4, 1), (5, 1), (6, 2)] {
            let mut succession = Succession::new(8);
            succession.expect(job, ClientId(1), held(5));
            succession.expect(job, ClientId(2), held(second));
            assert_eq!(
                succession.arrived(job).map(|claimed| claimed.client),
                Some(ClientId(expected)),
                "{second}"
            );
        }
    }

    #[test]
    fn a_job_returns_once_unless_it_has_lost_its_listeners_since() {
        let mut succession = Succession::new(8);
        assert_eq!(
            [7, 8].map(|job| succession.may_bring_back(JobId(job))),
            [true, false]
        );
        assert!(succession.arrived(JobId(7)).is_none());
        assert!(!succession.may_bring_back(JobId(7)));
        succession.may_return(JobId(7));
        assert!(succession.may_bring_back(JobId(7)));
    }

    #[test]
    fn a_bounded_number_of_reports_waits_for_a_job() {
        let mut expected = Expected {
            client: ClientId(1),
            held: held(5),
            reports: Vec::new(),
        };
        let report = LeaseCommand::Release {
            job: JobRef::Id(JobId(7)),
            proof: Proof::Connection,
            front: false,
        };
        let kept = (0..=REPORTS_MAX).filter(|_| expected.keep(Tag(1), report.clone()).is_ok());
        assert_eq!(kept.count(), REPORTS_MAX);
    }
}
