//! Which rules and which policy apply to each queue, and the lists of dead jobs that they limit:
//! part of [`Queues`].

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use super::patterns::Patterns;
use super::policy::Policy;
use super::queue::{Queue, QueueImage};
use super::rules::{QueueRules, QueueSettings};
use super::table::Queues;
use crate::ids::{JobId, Namespace, QueueId};
use crate::jobs::{JobStateKind, Jobs};

impl Queues {
    /// The rules that apply to the jobs of a queue with this image, unless they are the defaults.
    pub(super) fn rules_of(&self, image: &QueueImage) -> Option<QueueRules> {
        let of_pattern = || {
            self.patterns
                .find(&self.setting_name(image))
                .map(|(rules, _)| rules)
        };
        let rules = image.rules.as_deref().or_else(of_pattern);
        rules
            .copied()
            .filter(|rules| *rules != QueueRules::default())
    }

    /// The policy of a queue with this image, if it has any effect.
    pub(super) fn policy_of<'a>(&'a self, image: &'a QueueImage) -> Option<&'a Arc<Policy>> {
        let of_pattern = || {
            self.patterns
                .find(&self.setting_name(image))
                .map(|(_, policy)| policy)
        };
        let own = image.policy.as_deref().map(|own| &own.policy);
        own.or_else(of_pattern)
            .filter(|policy| ***policy != Policy::default())
    }

    /// The name or pattern in the configuration that applies to a queue.
    pub(crate) fn section_of(&self, namespace: Namespace, queue: &[u8]) -> Option<&Bytes> {
        self.patterns
            .find_name(&self.namespaces.qualified(namespace, queue))
    }

    /// Replaces the settings by pattern. They take effect in each returned queue, which are all
    /// queues, once the rules and the policy are renewed.
    pub(crate) fn set_patterns(&mut self, patterns: Patterns<QueueSettings>) -> Vec<QueueId> {
        let shared =
            |(name, QueueSettings { rules, policy }): (Bytes, _)| (name, (rules, Arc::new(policy)));
        self.patterns = patterns.into_iter().map(shared).collect();
        self.iter().map(|queue| queue.image.id).collect()
    }

    /// Determines the rules of a queue again. Returns the previous rules if they are different.
    pub(crate) fn renew_rules(&mut self, id: QueueId) -> Option<QueueRules> {
        let rules = self.at(id).and_then(|queue| self.rules_of(&queue.image));
        let queue = self
            .at_mut(id)
            .filter(|queue| queue.rules.as_deref().copied() != rules)?;
        Some(
            std::mem::replace(&mut queue.rules, rules.map(Box::new))
                .map(|rules| *rules)
                .unwrap_or_default(),
        )
    }

    /// Rebuilds the lists of dead jobs of queues with different rules. Examines all dead jobs once,
    /// if the number becomes limited anywhere.
    pub(crate) fn list_dead(&mut self, changed: &[QueueId], jobs: &Jobs) {
        let mut begun = BTreeSet::new();
        for id in changed {
            let Some(queue) = self.at_mut(*id) else {
                continue;
            };
            let is_limited = queue.rules().is_some_and(|rules| rules.dead_max.is_some());
            if is_limited != queue.dead.is_some() {
                queue.dead = is_limited.then(BTreeSet::new);
                begun.extend(is_limited.then_some(*id));
            }
        }
        for (until, job) in jobs
            .timed(JobStateKind::Dead)
            .into_iter()
            .flatten()
            .filter(|_| !begun.is_empty())
        {
            let queue = jobs
                .get(*job)
                .map(|job| job.queue)
                .filter(|queue| begun.contains(queue));
            if let Some(dead) = queue.and_then(|queue| self.at_mut(queue)?.dead.as_mut()) {
                dead.insert((*until, *job));
            }
        }
        for id in changed {
            self.note_dead(*id);
        }
    }

    /// Called after an update of the number of dead jobs of a queue, or of the limit.
    pub(super) fn note_dead(&mut self, id: QueueId) {
        if self.at(id).is_some_and(Queue::has_too_many_dead) {
            self.overfull.insert(id);
        } else {
            self.overfull.remove(&id);
        }
    }

    /// The dead job with the earliest end of retention, of a queue with more dead jobs than the
    /// rules permit.
    pub(crate) fn oldest_of_too_many_dead(&self) -> Option<JobId> {
        let dead = self.at(*self.overfull.first()?)?.dead.as_ref()?;
        dead.first().map(|(_, job)| *job)
    }

    /// Asserts that a queue has the right rules, and lists the dead jobs if they are limited.
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    pub(super) fn check_rules(&self, queue: &Queue, jobs: &Jobs) {
        let name = &queue.image.name;
        assert_eq!(
            queue.rules().copied(),
            self.rules_of(&queue.image),
            "{name:?} has rules"
        );
        assert_eq!(
            self.overfull.contains(&queue.image.id),
            queue.has_too_many_dead(),
            "{name:?} is overfull"
        );
        if let Some(listed) = queue.dead.as_ref() {
            let dead = jobs.timed(JobStateKind::Dead).into_iter().flatten();
            let own = dead.filter(|(_, job)| {
                jobs.get(*job)
                    .is_some_and(|job| job.queue == queue.image.id)
            });
            assert!(listed.iter().eq(own), "dead jobs of {name:?}");
        }
    }
}
