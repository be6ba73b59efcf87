//! The state of a job, and the lease of a job that is being worked on.

use serde::{Deserialize, Serialize};

use crate::ids::{ClientId, KindNumber, Protocol, Timestamp, Token};

/// A job's state. A job is in exactly one state; a removed job has no state.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub enum JobState {
    /// Waiting to be taken.
    Ready,
    /// Taken and not finished.
    Leased(Box<Lease>),
    /// Not to be taken before this time, by the wall clock. The times of other states are in the engine's time.
    Scheduled(Timestamp),
    /// Failed; becomes ready again at this time.
    Retrying(Timestamp),
    /// Retries exhausted: in the dead-letter queue until this time.
    Dead(Timestamp),
    /// Parked: out of a `cycle` queue; the value is still readable.
    Parked,
    /// Finished, and not retried. Until this time the result, or the lack of one, can be queried.
    Done(Timestamp),
}

/// The kinds of [`JobState`] without contents, for listings and figures.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize, Serialize)]
#[expect(missing_docs, reason = "each is documented at JobState")]
pub enum JobStateKind {
    Ready,
    Leased,
    Scheduled,
    Retrying,
    Dead,
    Parked,
    Done,
}

impl JobStateKind {
    /// All kinds, in order.
    pub const ALL: [Self; 7] = [
        Self::Ready,
        Self::Leased,
        Self::Scheduled,
        Self::Retrying,
        Self::Dead,
        Self::Parked,
        Self::Done,
    ];

    /// Returns true if the job is ready, leased, or will become ready: it is neither dead, nor parked, nor
    /// done.
    pub const fn is_live(self) -> bool {
        matches!(
            self,
            Self::Ready | Self::Leased | Self::Scheduled | Self::Retrying
        )
    }
}

impl JobState {
    /// The kind of this state.
    pub const fn kind(&self) -> JobStateKind {
        match self {
            Self::Ready => JobStateKind::Ready,
            Self::Leased(_) => JobStateKind::Leased,
            Self::Scheduled(_) => JobStateKind::Scheduled,
            Self::Retrying(_) => JobStateKind::Retrying,
            Self::Dead(_) => JobStateKind::Dead,
            Self::Parked => JobStateKind::Parked,
            Self::Done(_) => JobStateKind::Done,
        }
    }
}

/// A worker's right to a job, with an expiry.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(from = "Written")]
pub struct Lease {
    /// The worker.
    pub holder: Holder,
    /// Identifies the lease together with the job.
    pub token: Token,
    /// When it began.
    pub taken_at: Timestamp,
    /// When it expires; [`Timestamp::NEVER`] if only the holder ends it.
    pub until: Timestamp,
    /// The effect of expiry on the job.
    pub on_expiry: OnExpiry,
    /// When the engine next checks `until`. An extension takes effect only then.
    #[serde(skip)]
    pub(super) alarm_at: Timestamp,
    /// The function that the job calls, for the figures. Known only to the daemon that delivered
    /// the job.
    #[serde(skip)]
    pub(crate) kind: Option<KindNumber>,
}

/// A lease as it is read.
#[derive(Deserialize)]
struct Written {
    holder: Holder,
    token: Token,
    taken_at: Timestamp,
    until: Timestamp,
    on_expiry: OnExpiry,
}

impl From<Written> for Lease {
    fn from(lease: Written) -> Self {
        Self::new(
            lease.holder,
            lease.token,
            lease.taken_at,
            lease.until,
            lease.on_expiry,
        )
    }
}

impl Lease {
    /// A lease from `taken_at` to `until`.
    pub const fn new(
        holder: Holder,
        token: Token,
        taken_at: Timestamp,
        until: Timestamp,
        on_expiry: OnExpiry,
    ) -> Self {
        Self {
            holder,
            token,
            taken_at,
            until,
            on_expiry,
            alarm_at: until,
            kind: None,
        }
    }

    /// Limits the lease to this time.
    pub(crate) fn end_by(&mut self, at: Timestamp) {
        self.until = self.until.min(at);
        self.alarm_at = self.until;
    }

    /// The worker that has this reservation ([`crate::LeaseTerms`]), if it has a name.
    pub(crate) fn reserved_by(&self) -> Option<&[u8]> {
        match &self.holder {
            Holder::Named(worker) if self.on_expiry == OnExpiry::Fail => {
                Some(&**worker).filter(|name| !name.is_empty())
            }
            Holder::Named(_) | Holder::Connection(_) | Holder::Away(_) => None,
        }
    }

    /// Returns true if the lease is connection-bound. Such a lease is not journalled.
    pub const fn connection_bound(&self) -> bool {
        matches!(self.holder, Holder::Connection(_))
    }
}

/// The holder of a lease. The taker's protocol determines whether it is a connection or a name.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub enum Holder {
    /// Bound to a connection: released with it and not journalled.
    Connection(ClientId),
    /// Bound to time: survives a reconnect and a restart. Contains the worker's name; empty if it has no
    /// name.
    Named(Box<[u8]>),
    /// Bound to a connection from before an orderly stop of the daemon. Any client of that connection's
    /// protocol may report on the job, for a short time; then the job is ready again.
    Away(Protocol),
}

/// The effect of a lease's expiry on the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum OnExpiry {
    /// Treated as a failure (FWP; Gearman by the specification).
    Fail,
    /// Treated as a loss: the job returns to the original position (EventMQ; Gearman as deployed).
    Requeue,
    /// Returns to the front (spiderq).
    Front,
}

impl JobState {
    /// Shifts the times, if they use the engine's time.
    pub fn shift(&mut self, ms: i64) {
        match self {
            Self::Leased(lease) => {
                for at in [&mut lease.taken_at, &mut lease.until, &mut lease.alarm_at] {
                    *at = at.shifted(ms);
                }
            }
            Self::Retrying(at) | Self::Dead(at) | Self::Done(at) => *at = at.shifted(ms),
            Self::Ready | Self::Scheduled(_) | Self::Parked => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_the_engine_move_and_those_of_the_wall_clock_stay() {
        let at = Timestamp;
        let lease = |taken_at, until, alarm_at| {
            let lease = Lease::new(
                Holder::Named(Box::default()),
                Token(1),
                at(taken_at),
                at(until),
                OnExpiry::Fail,
            );
            JobState::Leased(Box::new(Lease {
                alarm_at: at(alarm_at),
                ..lease
            }))
        };
        let table = [
            (lease(10, 20, 30), lease(15, 25, 35)),
            (JobState::Retrying(at(10)), JobState::Retrying(at(15))),
            (JobState::Dead(at(10)), JobState::Dead(at(15))),
            (JobState::Done(at(10)), JobState::Done(at(15))),
            (JobState::Scheduled(at(10)), JobState::Scheduled(at(10))),
            (JobState::Ready, JobState::Ready),
            (JobState::Parked, JobState::Parked),
        ];
        for (mut state, expected) in table {
            state.shift(5);
            assert_eq!(state, expected);
        }
    }
}
