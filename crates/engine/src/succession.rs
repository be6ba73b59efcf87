//! What an engine knows of the one that it succeeds: clients of that one claim what they had.
//!
//! Not here: what a claim changes (`engine/claims`), and requests for work that wait meanwhile ([`crate::deferred`]).

use std::collections::{BTreeMap, BTreeSet};

use crate::claim::Held;
use crate::command::LeaseCommand;
use crate::ids::{ClientId, JobId, Tag};
use crate::refusal::{Outcome, Refusal};
use crate::request::JobRef;

/// Commands that may wait for one job.
const REPORTS_MAX: usize = 1 << 12;

/// Jobs that the earlier engine had, and this one does not know of yet.
#[derive(Debug)]
pub(crate) struct Succession {
    /// The earlier engine's numbers are below this one.
    numbers_below: u64,
    /// Leases of jobs that no client has brought back yet.
    expected: BTreeMap<JobId, Expected>,
    /// Jobs that clients have brought back.
    returned: BTreeSet<JobId>,
}

/// A claimed lease whose job is not here yet.
#[derive(Debug)]
pub(crate) struct Expected {
    pub(crate) client: ClientId,
    pub(crate) held: Held,
    /// What the worker has reported meanwhile.
    pub(crate) reports: Vec<(Tag, LeaseCommand)>,
}

impl Succession {
    /// The earlier engine's numbers are below this one.
    pub(crate) const fn new(numbers_below: u64) -> Self {
        Self {
            numbers_below,
            expected: BTreeMap::new(),
            returned: BTreeSet::new(),
        }
    }

    /// Whether the earlier engine may have given this number.
    pub(crate) const fn may_be_of_before(&self, job: JobId) -> bool {
        job.0 < self.numbers_below
    }

    /// Whether a client may bring the job back: none has done so before.
    pub(crate) fn may_bring_back(&self, job: JobId) -> bool {
        self.may_be_of_before(job) && !self.returned.contains(&job)
    }

    /// A client claims a lease of a job that is not here. If several do, the highest token counts.
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

    /// The claimed lease of a job that is here now.
    pub(crate) fn arrived(&mut self, job: JobId) -> Option<Expected> {
        self.returned.insert(job);
        self.expected.remove(&job)
    }

    /// The job has no listener left, and has not ended: another one may bring it back.
    pub(crate) fn may_return(&mut self, job: JobId) {
        self.returned.remove(&job);
    }

    /// Whether leases of jobs are claimed that no client has brought back.
    pub(crate) fn expects_any(&self) -> bool {
        !self.expected.is_empty()
    }

    /// The claimed lease that a worker means, if its job is not here yet.
    pub(crate) fn expected_by(&mut self, client: ClientId, job: &JobRef) -> Option<&mut Expected> {
        let mut of_client = self
            .expected
            .iter_mut()
            .filter(|(_, expected)| expected.client == client);
        of_client
            .find(|(id, expected)| expected.held.is_named(**id, job))
            .map(|(_, expected)| expected)
    }

    /// A client's connection has ended.
    pub(crate) fn forget(&mut self, client: ClientId) {
        self.expected
            .retain(|_, expected| expected.client != client);
    }

    /// Gives up a lease whose job no client has brought back.
    pub(crate) fn give_up_one(&mut self) -> Option<Expected> {
        self.expected.pop_first().map(|(_, expected)| expected)
    }
}

impl Expected {
    /// Keeps a worker's report until its job is here.
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
