//! The beginning of an engine that succeeds another one: clients of that one claim what they had, and until they had
//! time for it no job is handed out.
//!
//! [`Grace`] keeps what waits meanwhile. Not here: what a claim changes (`engine/claims`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::claim::Held;
use crate::command::{LeaseCommand, TakeCommand};
use crate::ids::{ClientId, JobId, Tag, Timestamp};
use crate::request::JobRef;

/// Commands that may wait for one client.
const CLIENT_MAX: u32 = 1 << 16;

/// Commands that may wait for one job.
const REPORTS_MAX: usize = 1 << 12;

/// What waits for the end of the grace.
#[derive(Debug, Default)]
pub(crate) struct Grace {
    /// When it ends. An engine that succeeds none has had none.
    until: Timestamp,
    /// The earlier engine's numbers are below this one.
    numbers_below: u64,
    takes: VecDeque<(ClientId, Tag, TakeCommand)>,
    /// How many of `takes` are whose.
    waiting: BTreeMap<ClientId, u32>,
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

impl Grace {
    /// Begins, without an end. The earlier engine's numbers are below this one.
    pub(crate) fn begin(&mut self, numbers_below: u64) {
        *self = Self { until: Timestamp::NEVER, numbers_below, ..Self::default() };
    }

    /// Sets the end, if it has begun.
    pub(crate) const fn end_at(&mut self, until: Timestamp) {
        if self.numbers_below > 0 {
            self.until = until;
        }
    }

    /// Whether clients of the earlier engine still come back.
    pub(crate) fn lasts(&self, now: Timestamp) -> bool {
        now < self.until
    }

    /// Whether a request for work must wait: behind others even after the end.
    pub(crate) fn defers_takes(&self, now: Timestamp) -> bool {
        self.lasts(now) || !self.takes.is_empty()
    }

    /// When something that has waited is due.
    pub(crate) fn next_at(&self) -> Timestamp {
        if self.has_any() { self.until } else { Timestamp::NEVER }
    }

    /// Whether something that has waited is due.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        self.has_any() && self.until <= now
    }

    fn has_any(&self) -> bool {
        !self.takes.is_empty() || !self.expected.is_empty()
    }

    /// Whether the earlier engine may have given this number.
    pub(crate) const fn may_be_of_before(&self, job: JobId) -> bool {
        job.0 < self.numbers_below
    }

    // ---- requests for work -----------------------------------------------------------------------------------------

    /// Whether a client's request for work waits.
    pub(crate) fn has_takes_of(&self, client: ClientId) -> bool {
        self.waiting.get(&client).is_some_and(|waiting| *waiting > 0)
    }

    /// A request for work waits for the end. Returns whether there is room for it.
    pub(crate) fn defer(&mut self, client: ClientId, tag: Tag, take: TakeCommand) -> bool {
        let waiting = self.waiting.entry(client).or_default();
        if *waiting >= CLIENT_MAX {
            return false;
        }
        *waiting += 1;
        self.takes.push_back((client, tag, take));
        true
    }

    /// A client asks for work no more.
    pub(crate) fn forget_takes(&mut self, client: ClientId) {
        if self.waiting.remove(&client).is_some() {
            self.takes.retain(|(waiting, ..)| *waiting != client);
        }
    }

    /// The request that has waited longest.
    pub(crate) fn pop_take(&mut self) -> Option<(ClientId, Tag, TakeCommand)> {
        let take = self.takes.pop_front()?;
        if self.takes.is_empty() {
            self.waiting.clear();
        } else if let Some(waiting) = self.waiting.get_mut(&take.0) {
            *waiting -= 1;
        }
        Some(take)
    }

    // ---- jobs that are not here yet --------------------------------------------------------------------------------

    /// A client claims a lease of a job that is not here. If several do, the highest token counts.
    pub(crate) fn expect(&mut self, job: JobId, client: ClientId, held: Held) {
        if self.expected.get(&job).is_none_or(|other| other.held.token < held.token) {
            self.expected.insert(job, Expected { client, held, reports: Vec::new() });
        }
    }

    /// The claimed lease of a job that is here now.
    pub(crate) fn arrived(&mut self, job: JobId) -> Option<Expected> {
        self.returned.insert(job);
        self.expected.remove(&job)
    }

    /// Whether a client has brought the job back before.
    pub(crate) fn has_returned(&self, job: JobId) -> bool {
        self.returned.contains(&job)
    }

    /// The job has no listener left, and has not ended: another one may bring it back.
    pub(crate) fn may_return(&mut self, job: JobId) {
        self.returned.remove(&job);
    }

    /// The job that a worker means that expects its return.
    pub(crate) fn expected_by(&self, client: ClientId, job: &JobRef) -> Option<JobId> {
        let mut named = self.expected.iter().filter(|(_, expected)| expected.client == client);
        named.find(|(id, expected)| expected.held.is_named(**id, job)).map(|(id, _)| *id)
    }

    /// Keeps a worker's report until its job is here. Returns whether there is room for it.
    pub(crate) fn keep_report(&mut self, job: JobId, tag: Tag, report: LeaseCommand) -> bool {
        let Some(expected) = self.expected.get_mut(&job) else { return false };
        let has_room = expected.reports.len() < REPORTS_MAX;
        if has_room {
            expected.reports.push((tag, report));
        }
        has_room
    }

    /// A client's connection has ended.
    pub(crate) fn forget_leases(&mut self, client: ClientId) {
        self.expected.retain(|_, expected| expected.client != client);
    }

    /// Gives up a lease that no client has brought back.
    pub(crate) fn give_up_one(&mut self) -> Option<Expected> {
        self.expected.pop_first().map(|(_, expected)| expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Protocol, Token};
    use crate::request::Proof;

    fn held(token: u64) -> Held {
        let names = bytes::Bytes::new;
        let (token, until, protocol) = (Token(token), Timestamp::NEVER, Protocol::GEARMAN);
        Held { token, until, protocol, queue: names(), name: names(), key: names() }
    }

    #[test]
    fn an_engine_without_predecessor_has_no_grace() {
        let mut grace = Grace::default();
        grace.end_at(Timestamp(9));
        assert!(!grace.lasts(Timestamp(8)));
        grace.begin(1);
        grace.end_at(Timestamp(9));
        assert_eq!([8, 9].map(|now| grace.lasts(Timestamp(now))), [true, false]);
    }

    #[test]
    fn a_lease_that_is_claimed_twice_keeps_its_first_client_and_a_later_lease_takes_its_place() {
        let job = JobId(7);
        for (second, expected) in [(4, 1), (5, 1), (6, 2)] {
            let mut grace = Grace::default();
            grace.expect(job, ClientId(1), held(5));
            grace.expect(job, ClientId(2), held(second));
            assert_eq!(grace.arrived(job).map(|claimed| claimed.client), Some(ClientId(expected)), "{second}");
        }
    }

    #[test]
    fn a_bounded_number_of_reports_waits_for_a_job() {
        let mut grace = Grace::default();
        grace.expect(JobId(7), ClientId(1), held(5));
        let report = LeaseCommand::Release { job: JobRef::Id(JobId(7)), proof: Proof::Connection, front: false };
        let kept = (0..=REPORTS_MAX).filter(|_| grace.keep_report(JobId(7), Tag(1), report.clone()));
        assert_eq!(kept.count(), REPORTS_MAX);
    }
}
