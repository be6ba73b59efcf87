//! A push after the rules of the queue are applied. Rules about pushes with the same identity may replace the
//! unique ID and set times.

use super::state::State;
use crate::ids::{ClientId, Protocol, QueueId, Timestamp};
use crate::jobs::{Expiry, KeyUntil, Retry, Slot};
use crate::queues::{Coalesce, Facts, QueueRules, READ_KEY};
use crate::request::{Clash, NewJob, QueueKind, Unique};

/// Pseudo-client of jobs that the engine pushes itself, as for a schedule.
pub(super) const NOBODY: ClientId = ClientId(u64::MAX);

/// Keys of submits with times start with [`READ_KEY`] and this.
const TIMED: &[u8] = b"\0";

/// A new job, and the values that rules may replace.
pub(super) struct Push<'a> {
    pub(super) client: ClientId,
    pub(super) queue: QueueId,
    pub(super) new: &'a NewJob,
    /// In place of the unique id that the producer gave.
    ruled: Option<Unique>,
    pub(super) result_keep_ms: u64,
    pub(super) not_before: Option<Timestamp>,
    /// The rule that merges pushes with the same identity.
    pub(super) coalesce: Option<Coalesce>,
}

impl<'a> Push<'a> {
    pub(super) const fn plain(client: ClientId, queue: QueueId, new: &'a NewJob) -> Self {
        Self {
            client,
            queue,
            new,
            ruled: None,
            result_keep_ms: new.result_keep_ms,
            not_before: new.not_before,
            coalesce: None,
        }
    }

    /// Jobs that the engine pushes are never repeated pushes.
    pub(super) fn by_rules(
        state: &State,
        client: ClientId,
        queue: QueueId,
        new: &'a NewJob,
    ) -> Self {
        let mut push = Self::plain(client, queue, new);
        if client != NOBODY
            && new.kind == QueueKind::Work
            && let Some(rules) = state.queues.rules(queue)
        {
            push.obey(rules, state);
        }
        push
    }

    #[inline(never)]
    fn obey(&mut self, rules: &QueueRules, state: &State) {
        // A batch counts each job, so jobs of a batch are never merged.
        if let Some(rule) = rules.coalesce
            && self.new.batch.is_none()
            && self.new.past.is_none()
        {
            if self.not_before.is_some_and(|at| at > state.wall()) {
                self.ruled = self.apart(rule);
                return;
            }
            self.ruled = self.identity(rule, state);
            if self.ruled.is_some() {
                self.coalesce = Some(rule);
                return;
            }
        }
        if let Some(dedup_ms) = rules.dedup_ms
            && self.new.durable
            && let own = self.unique().map(|unique| &unique.key)
            && let Some(key) = own
                .or(self.new.name.as_ref())
                .filter(|key| self.is_own(key))
        {
            self.ruled = Some(Unique {
                key: key.clone(),
                clash: Clash::Attach,
                until: KeyUntil::Gone,
            });
            self.result_keep_ms = self.result_keep_ms.max(dedup_ms);
        }
    }

    /// The unique ID of a submit with a time, which differs from that of a submit without a time so that they
    /// are not merged.
    fn apart(&self, rule: Coalesce) -> Option<Unique> {
        let unique = self
            .unique()
            .filter(|unique| !rule.by_key && !unique.key.is_empty())?;
        Some(Unique {
            key: [READ_KEY, TIMED, &unique.key].concat().into(),
            ..*unique
        })
    }

    /// The unique ID by which a rule merges submits. The producer's [`Clash`] is ignored: a submit that is
    /// merged into a job has the same guarantee as one that creates a job.
    fn identity(&self, rule: Coalesce, state: &State) -> Option<Unique> {
        let key = if rule.by_key {
            let read = self.key(state);
            (!read.is_empty()).then(|| [READ_KEY, &read].concat().into())
        } else {
            let own = self.unique().map(|unique| &unique.key);
            own.filter(|key| self.is_own(key)).cloned()
        };
        Some(Unique {
            key: key?,
            clash: Clash::Attach,
            until: KeyUntil::End,
        })
    }

    /// Returns true if this is a key that the client does not derive from the body.
    fn is_own(&self, key: &[u8]) -> bool {
        let is_derived = self.new.protocol == Protocol::GEARMAN && key.starts_with(&[0]);
        !key.is_empty() && !is_derived
    }

    pub(super) fn unique(&self) -> Option<&Unique> {
        self.ruled.as_ref().or(self.new.unique.as_ref())
    }

    /// The job that has the unique ID.
    pub(super) fn holder(&self, state: &State) -> Option<Slot> {
        let unique = self.unique()?;
        state.jobs.keyed(self.queue, self.new.protocol, &unique.key)
    }

    /// The key by the policy of the queue; empty if there is none.
    pub(super) fn key(&self, state: &State) -> Vec<u8> {
        let facts = Facts {
            protocol: self.new.protocol,
            body: Some(&self.new.body),
            unique: self.unique().map(|unique| &*unique.key),
        };
        state
            .queues
            .key_of(self.queue, facts, state.reader.as_deref())
    }

    /// The retry policy of the job.
    pub(super) fn retry(&self, state: &State) -> Retry {
        let rules = state.queues.rules(self.queue);
        let rule = rules.and_then(|rules| rules.retry);
        rule.filter(|_| self.new.retry_default)
            .unwrap_or(self.new.retry)
    }

    /// When the job expires.
    pub(super) fn expires(&self, state: &State) -> Expiry {
        let rules = state.queues.rules(self.queue);
        let rules = rules.filter(|_| self.new.kind == QueueKind::Work);
        // A scheduled job starts waiting at the scheduled time.
        let from = self.not_before.map_or(state.now, |at| {
            at.shifted(state.skew_ms.saturating_neg()).max(state.now)
        });
        expires_by(
            state,
            from,
            self.new.expires,
            rules.and_then(|rules| rules.ttl_ms),
        )
    }
}

/// When a job expires that waits from this moment on, in a queue where no job waits for longer than `ttl_ms`.
pub(super) fn expires_by(
    state: &State,
    from: Timestamp,
    expires: Expiry,
    ttl_ms: Option<u64>,
) -> Expiry {
    let Some(ttl_ms) = ttl_ms else { return expires };
    let own = match expires {
        Expiry::Never => Timestamp::NEVER,
        Expiry::At(at) => at.shifted(state.skew_ms.saturating_neg()),
        Expiry::By(at) => at,
    };
    let by = from.after_ms(ttl_ms);
    if own <= by { expires } else { Expiry::By(by) }
}
