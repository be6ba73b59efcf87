//! A job: the payload, the state and the history so far.
//!
//! Not here: lookups of jobs (`table`).

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::extra::{Cycle, Expiry, Extra, KeyUntil, Member};
use super::payload::Payload;
use super::state::{JobState, Lease};
use crate::ids::{ClientId, JobId, Priority, Protocol, QueueId, Realm, Timestamp};

/// A job. Fields are public to read; only the engine writes them.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Job {
    /// The number.
    pub id: JobId,
    /// The queue, which is immutable.
    pub queue: QueueId,
    /// The protocol of the producer.
    pub protocol: Protocol,
    /// The priority, which is immutable.
    pub priority: Priority,
    /// True if it is journalled. A foreground Gearman job is not, and is removed with the last client that
    /// waits for it.
    pub durable: bool,
    /// The sort key among ready jobs of the same priority: the lowest is taken first. A leased job retains
    /// it, so a returned job resumes the former position.
    #[serde(with = "rank")]
    pub rank: u64,
    /// The state.
    pub state: JobState,
    /// When it became ready (or was created, if it never was ready), by the wall clock.
    pub ready_at: Timestamp,
    /// Deliveries so far; also a part of the fencing token of the current lease.
    pub attempts: u32,
    /// Failures so far; they reduce the retry budget.
    pub failures: u32,
    /// The policy for failures and losses.
    pub retry: Retry,
    /// Protocols in which a conversion error occurred for this job. Not journalled.
    pub unfit: Unfit,
    /// Fields that most jobs lack. A new field of jobs belongs there.
    pub extra: Option<Box<Extra>>,
    /// The body, the coalescing key and the public name, if any. The key is unique within (queue, protocol).
    /// This is the last field in the encoding of a job, so that a large body is not copied on the way to the
    /// disk.
    pub payload: Payload,
}

/// The policy when a job fails or the worker disappears.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct Retry {
    /// Retries after failures. `n` = `n` retries; 0 = the first failure discards the job; negative = the
    /// first failure sends it to the dead-letter queue.
    pub failures_max: i32,
    /// Workers that may disappear with the job before it fails for good; after each loss it is retried
    /// immediately. 0 = [`crate::Limits::losses_max`] applies.
    pub losses_max: u32,
    /// The wait before the next attempt.
    pub backoff: Backoff,
}

/// Ranks are encoded as the distance from the first rank, which is short.
pub mod rank {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    /// See `Meta`.
    const MIDDLE: i64 = 1 << 62;

    /// For `#[serde(with = "rank")]`.
    pub fn serialize<S: Serializer>(rank: &u64, to: S) -> Result<S::Ok, S::Error> {
        rank.cast_signed().wrapping_sub(MIDDLE).serialize(to)
    }

    /// For `#[serde(with = "rank")]`.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        let rank = i64::deserialize(from)?.wrapping_add(MIDDLE);
        if rank > 0 {
            Ok(rank.cast_unsigned())
        } else {
            Err(de::Error::custom("a rank that no job can have"))
        }
    }
}

impl Job {
    /// Converts the job to the state after a restart: without connections, and therefore without listeners
    /// and without connection-bound leases and the effects of these. Taking a job with such a lease is not
    /// journalled, so this is the last state in the journal.
    pub fn rest(&mut self) {
        self.unfit = Unfit::NONE;
        // The journal contains only durable jobs.
        self.durable = true;
        let was_bound = self.lease().is_some_and(Lease::connection_bound);
        if was_bound {
            self.state = JobState::Ready;
            self.attempts = self.attempts.saturating_sub(1);
        }
        let Some(extra) = self.extra.as_deref_mut() else {
            return;
        };
        extra.listeners = Vec::new();
        extra.output = None;
        extra.taken_back = false;
        if was_bound {
            extra.progress = None;
        }
        if !extra.is_set() {
            self.extra = None;
        }
    }

    /// The realm: the namespace of the queue, and the protocol of the producer.
    pub const fn realm(&self) -> Realm {
        self.queue.realm(self.protocol)
    }

    /// See [`Extra::taken_back`].
    pub(crate) fn was_taken_back(&self) -> bool {
        self.extra.as_deref().is_some_and(|extra| extra.taken_back)
    }
}

impl Retry {
    /// No retries, discarded on failure, and the engine's limit of losses.
    pub const NONE: Self = Self {
        failures_max: 0,
        losses_max: 0,
        backoff: Backoff::None,
    };
}

/// The wait before the next attempt after the `n`th failure (`n` from 0). A new protocol adds a variant here and an arm
/// to `backoff_ms`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum Backoff {
    /// No wait.
    None,
    /// A constant number of milliseconds.
    Fixed(u32),
    /// Doubles from this many milliseconds, up to an hour.
    Doubling(u32),
    /// Faktory's: `n^4 + 15 + random(0..30) * (n + 1)` seconds.
    Faktory,
}

/// Protocols of workers that cannot take a job. Not journalled: after a restart the conversion fails again.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Deserialize, Serialize,
)]
pub struct Unfit(u8);

impl Unfit {
    /// No protocol.
    pub const NONE: Self = Self(0);

    /// Returns true if this protocol is in the set.
    pub const fn has(self, protocol: Protocol) -> bool {
        protocol.0 < 8 && self.0 & (1 << protocol.0) != 0
    }

    /// These and one more; `None` if the engine does not have this protocol's number.
    #[must_use]
    pub const fn and(self, protocol: Protocol) -> Option<Self> {
        if protocol.0 < 8 {
            Some(Self(self.0 | 1 << protocol.0))
        } else {
            None
        }
    }
}

impl Job {
    /// The lease, if it is leased.
    pub fn lease(&self) -> Option<&Lease> {
        if let JobState::Leased(lease) = &self.state {
            Some(lease)
        } else {
            None
        }
    }

    /// Returns true if it succeeded; `None` if it is unfinished, or is dead and can be retried.
    pub fn succeeded(&self) -> Option<bool> {
        let result = self
            .extra
            .as_deref()
            .and_then(|extra| extra.result.as_ref());
        matches!(self.state, JobState::Done(_)).then_some(result.is_some())
    }

    /// Returns true if the job will not run again unless a client requests it.
    pub(crate) const fn is_over(&self) -> bool {
        matches!(self.state, JobState::Dead(_) | JobState::Done(_))
    }

    /// Returns true if it exists only for listeners and has no listener left. The current lease may continue
    /// to the end, but the job is not retried.
    pub(crate) fn is_abandoned(&self) -> bool {
        !self.durable && self.listeners().is_empty()
    }

    /// When it expires.
    pub(crate) fn expiry(&self) -> Expiry {
        self.extra
            .as_deref()
            .map(|extra| extra.expires)
            .unwrap_or_default()
    }

    /// Returns true if it should have a coalescing key in the present state.
    pub(crate) fn wants_key(&self) -> bool {
        let until = self
            .extra
            .as_deref()
            .map(|extra| extra.key_until)
            .unwrap_or_default();
        let is_free = match until {
            KeyUntil::End | KeyUntil::EndOr(_) => self.is_over(),
            KeyUntil::Start | KeyUntil::StartOr(_) => self.is_over() || self.attempts > 0,
            KeyUntil::Gone => matches!(self.state, JobState::Dead(_)),
        };
        self.payload.has_key() && !is_free && !self.is_joined()
    }

    /// Returns true if it releases the key only when it finishes. Two such jobs never share a key while both
    /// are unfinished.
    pub(crate) fn keeps_key(&self) -> bool {
        let until = self
            .extra
            .as_deref()
            .map(|extra| extra.key_until)
            .unwrap_or_default();
        matches!(until, KeyUntil::End | KeyUntil::Gone)
    }

    /// When it releases the key at the latest.
    pub(crate) fn key_limit(&self) -> Timestamp {
        match self.extra.as_deref().map(|extra| extra.key_until) {
            Some(KeyUntil::EndOr(at) | KeyUntil::StartOr(at)) => at,
            Some(KeyUntil::End | KeyUntil::Start | KeyUntil::Gone) | None => Timestamp::NEVER,
        }
    }

    /// The role in a batch, if any.
    pub(crate) fn member(&self) -> Option<Member> {
        self.extra.as_deref().and_then(|extra| extra.member)
    }

    /// The job that must finish before this one starts, if it exists.
    pub(crate) fn behind(&self) -> Option<JobId> {
        self.extra.as_deref()?.coalesced.as_ref()?.behind
    }

    /// Returns true if it is merged with the job ahead, and finishes together with it.
    pub(crate) fn is_joined(&self) -> bool {
        let coalesced = self
            .extra
            .as_deref()
            .and_then(|extra| extra.coalesced.as_deref());
        self.state == JobState::Parked && coalesced.is_some_and(|coalesced| coalesced.joined)
    }

    /// The fields on which an index depends.
    #[cfg(debug_assertions)]
    pub(super) fn indexed(&self) -> impl PartialEq + std::fmt::Debug + use<> {
        let sorted = (self.state == JobState::Ready)
            .then(|| (self.priority, self.rank, self.cycle(), self.unfit));
        let lease = self.lease().map(|lease| {
            (
                lease.holder.clone(),
                lease.taken_at,
                lease.until,
                lease.alarm_at,
            )
        });
        let names = (
            self.key().map(<[u8]>::to_vec),
            self.name().to_vec(),
            self.collector().to_vec(),
        );
        let times = (self.expiry(), self.key_limit(), lease);
        (
            self.id,
            self.queue,
            self.protocol,
            self.state.kind(),
            sorted,
            names,
            times,
            self.listeners().to_vec(),
        )
    }

    /// Records a visible change.
    pub(crate) fn touch(&mut self, now: Timestamp) {
        if let Some(track) = self
            .extra
            .as_deref_mut()
            .and_then(|extra| extra.track.as_mut())
        {
            track.updated_at = now;
        }
    }

    /// The coalescing key, if any.
    pub fn key(&self) -> Option<&[u8]> {
        self.payload.key()
    }

    /// The producer's bytes, verbatim.
    pub fn body(&self) -> &[u8] {
        self.payload.body()
    }

    /// The producer's public name (FWP `jid`, EventMQ msgid); empty if it has no name. Not unique.
    pub fn name(&self) -> &[u8] {
        self.payload.name()
    }

    /// The bytes that the producer's session attached.
    pub fn meta(&self) -> Bytes {
        self.extra
            .as_deref()
            .map_or_else(Bytes::new, |e| e.meta.clone())
    }

    /// The clients that listen to it.
    pub fn listeners(&self) -> &[ClientId] {
        self.extra.as_deref().map_or(&[], |e| &e.listeners)
    }

    /// The name with which the producer collects the outcome; empty if it does not.
    pub(crate) fn collector(&self) -> &[u8] {
        self.extra.as_deref().map_or(&[], |extra| &extra.collector)
    }

    /// The position in a `cycle` queue, if it is in one.
    pub fn cycle(&self) -> Option<Cycle> {
        self.extra.as_deref().and_then(|e| e.cycle)
    }

    /// The optional fields, created if absent.
    pub(crate) fn extra_mut(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    /// Bytes of this job towards memory limits: payload, metadata, progress, result and past attempts,
    /// without the last failure, plus a fixed amount.
    pub fn weight_bytes(&self) -> u64 {
        const FIXED: usize = 250;
        let extra = self.extra.as_deref().map_or(0, Extra::weight_bytes);
        (FIXED + self.payload.len() + extra) as u64
    }
}

/// A job that moves to another engine retains wall-clock times. These functions convert the times that use
/// the engine's time.
impl Job {
    /// Moves all times that use the engine's time.
    pub fn shift(&mut self, ms: i64) {
        self.state.shift(ms);
        if let Some(extra) = &mut self.extra {
            extra.key_until.shift(ms);
            extra.expires.shift(ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_can_be_unfit_for_eight_protocols() {
        for number in 0..8 {
            let unfit = Unfit::NONE.and(Protocol(number)).unwrap();
            assert!(
                unfit.has(Protocol(number)) && !unfit.has(Protocol(7 - number)),
                "{number}"
            );
        }
        assert_eq!(Unfit::NONE.and(Protocol(8)), None);
        assert!(!Unfit::NONE.has(Protocol(8)));
    }

    /// A million jobs take a hundred megabytes here: growth of the type must be deliberate.
    #[test]
    fn a_job_takes_96_bytes() {
        assert_eq!(size_of::<Option<Job>>(), 96);
    }
}
