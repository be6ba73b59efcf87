//! Namespaces: parts of the daemon whose clients see nothing of each other. Each has the names of its own
//! queues, jobs, workers, batches and schedules.
//!
//! The namespace without a name always exists and is not listed here: without namespaces, the daemon is it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::change::Change;
use crate::ids::{Namespace, Protocol, Realm, Timestamp};
use crate::limits::{NamespaceLimits, PushRate};
use crate::query::Totals;
use crate::refusal::{Capacity, Outcome, Refusal, Thing};

/// Between the name of a namespace and that of a queue, where a text names both.
pub const NAMESPACE_SEPARATOR: u8 = b'/';

/// The journalled part of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct NamespaceImage {
    /// The number.
    pub id: Namespace,
    /// The name, which is not empty.
    pub name: Bytes,
    /// What its clients may use.
    pub limits: NamespaceLimits,
    /// The counters of each protocol since the last flush, in order of protocol.
    pub protocols: Vec<(Protocol, Totals)>,
}

/// Refusals at the limits of a namespace, and the pushes of the present period. Not journalled.
#[derive(Debug, Default)]
pub(crate) struct Pressure {
    /// When the next push is due if pushes are even, in microseconds of the engine's time.
    next_us: u64,
    pub(crate) refused: u64,
    pub(crate) refused_last: Option<(Capacity, Timestamp)>,
}

impl Pressure {
    /// Returns true if another push is within a rate.
    pub(crate) const fn admits(&self, rate: PushRate, now: Timestamp) -> bool {
        let burst_us = rate.per_ms.saturating_mul(1_000) - rate.interval_us();
        self.next_us <= now.0.saturating_mul(1_000).saturating_add(burst_us)
    }

    /// Counts a push.
    pub(crate) fn pushed(&mut self, rate: PushRate, now: Timestamp) {
        let from_us = self.next_us.max(now.0.saturating_mul(1_000));
        self.next_us = from_us.saturating_add(rate.interval_us());
    }
}

/// All namespaces with names, by number and by name.
#[derive(Debug, Default)]
pub(crate) struct Namespaces {
    by_number: BTreeMap<Namespace, NamespaceImage>,
    pressure: BTreeMap<Namespace, Pressure>,
    by_name: BTreeMap<Bytes, Namespace>,
    /// Those with counters or settings that differ from their last record.
    changed: BTreeSet<Namespace>,
}

impl Namespaces {
    /// Returns true if the namespace without a name is the only one.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_number.is_empty()
    }

    pub(crate) fn at(&self, id: Namespace) -> Option<&NamespaceImage> {
        self.by_number.get(&id)
    }

    /// The namespace of this name; the empty name is that of the namespace without a name.
    pub(crate) fn named(&self, name: &[u8]) -> Option<Namespace> {
        if name.is_empty() {
            Some(Namespace::UNNAMED)
        } else {
            self.by_name.get(name).copied()
        }
    }

    /// The name; empty for the namespace without one.
    pub(crate) fn name(&self, id: Namespace) -> Bytes {
        self.at(id)
            .map_or_else(Bytes::new, |image| image.name.clone())
    }

    /// All with names, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &NamespaceImage> {
        self.by_number.values()
    }

    /// All numbers, also that of the namespace without a name.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = Namespace> {
        std::iter::once(Namespace::UNNAMED).chain(self.by_number.keys().copied())
    }

    /// The text for a name in a namespace: behind that namespace's name and a slash, if it has a name.
    pub(crate) fn qualified<'a>(&self, id: Namespace, name: &'a [u8]) -> Cow<'a, [u8]> {
        self.at(id).map_or(Cow::Borrowed(name), |image| {
            Cow::Owned([&*image.name, &[NAMESPACE_SEPARATOR], name].concat())
        })
    }

    /// The namespace of this name, which is created if there is none.
    ///
    /// # Errors
    ///
    /// The name is invalid, or there are as many as can be.
    pub(crate) fn find_or_make(&mut self, name: &[u8]) -> Outcome<Namespace> {
        if let Some(id) = self.named(name) {
            return Ok(id);
        }
        if !is_valid_name(name) {
            return Err(Refusal::NotFound(Thing::Namespace));
        }
        let free = (1..=Namespace::MAX.0).map(Namespace);
        let mut free = free.filter(|id| !self.by_number.contains_key(id));
        let id = free
            .next()
            .ok_or(Capacity::Namespaces.exceeded(Namespace::MAX.0, Namespace::MAX.0))?;
        self.put(NamespaceImage {
            id,
            name: Bytes::copy_from_slice(name),
            ..NamespaceImage::default()
        });
        self.changed.insert(id);
        Ok(id)
    }

    pub(crate) fn pressure(&self, id: Namespace) -> Option<&Pressure> {
        self.pressure.get(&id)
    }

    pub(crate) fn pressure_mut(&mut self, id: Namespace) -> &mut Pressure {
        self.pressure.entry(id).or_default()
    }

    /// Adds an event of a realm to the counters.
    #[cold]
    pub(crate) fn count(&mut self, realm: Realm, add: impl Fn(&mut Totals)) {
        let Some(image) = self.by_number.get_mut(&realm.namespace) else {
            return;
        };
        let of = |(protocol, _): &(Protocol, Totals)| *protocol;
        let at = image.protocols.binary_search_by_key(&realm.protocol, of);
        let at = at.unwrap_or_else(|at| {
            image
                .protocols
                .insert(at, (realm.protocol, Totals::default()));
            at
        });
        if let Some((_, totals)) = image.protocols.get_mut(at) {
            add(totals);
        }
        self.changed.insert(realm.namespace);
    }

    /// Resets the counters of a realm.
    pub(crate) fn forget_counts(&mut self, realm: Realm) {
        if let Some(image) = self.by_number.get_mut(&realm.namespace) {
            image
                .protocols
                .retain(|(other, _)| *other != realm.protocol);
            self.changed.insert(realm.namespace);
        }
    }

    /// Sets the limits. A new rate of pushes begins now: that of an hour would keep one of a second waiting for its hour.
    pub(crate) fn set_limits(&mut self, id: Namespace, limits: NamespaceLimits) {
        let Some(image) = self.by_number.get_mut(&id).filter(|it| it.limits != limits) else {
            return;
        };
        if image.limits.pushes != limits.pushes
            && let Some(pressure) = self.pressure.get_mut(&id)
        {
            pressure.next_us = 0;
        }
        image.limits = limits;
        self.changed.insert(id);
    }

    /// Returns true if any differ from their last record.
    pub(crate) fn have_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Those that differ from their last record get a new one.
    pub(crate) fn remember_changed(&mut self, changes: &mut Vec<Change>) {
        let changed = std::mem::take(&mut self.changed).into_iter();
        changes.extend(changed.map(Change::NamespaceSet));
    }

    /// Inserts a namespace, in place of that with the same number.
    pub(crate) fn put(&mut self, image: NamespaceImage) {
        if let Some(before) = self.by_number.remove(&image.id) {
            self.by_name.remove(&before.name);
        }
        self.by_name.insert(image.name.clone(), image.id);
        self.by_number.insert(image.id, image);
    }

    pub(crate) fn remove(&mut self, id: Namespace) {
        self.changed.insert(id);
        if let Some(image) = self.by_number.remove(&id) {
            self.by_name.remove(&image.name);
            self.pressure.remove(&id);
        }
    }
}

/// Returns true for a name of 1 to 64 bytes, of the ASCII letters and digits, `-`, `_` and `.`, that begins with a
/// letter or a digit: it stands in addresses of pages, where `..` is another page, and in patterns of queue names.
pub fn is_valid_name(name: &[u8]) -> bool {
    let is_valid = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let begins = name.first().is_some_and(u8::is_ascii_alphanumeric);
    begins && name.len() <= 64 && name.iter().all(is_valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_allows_a_burst_and_then_an_even_flow() {
        let rate = PushRate {
            jobs: 4,
            per_ms: 1_000,
        };
        let mut pressure = Pressure::default();
        let mut push = |at: u64| {
            let is_admitted = pressure.admits(rate, Timestamp(at));
            if is_admitted {
                pressure.pushed(rate, Timestamp(at));
            }
            is_admitted
        };
        let table = [
            (5_000, true),
            (5_000, true),
            (5_000, true),
            (5_001, true),
            (5_002, false),
            (5_249, false),
            (5_250, true),
            (5_251, false),
            (5_500, true),
            (9_000, true),
            (9_000, true),
            (9_000, true),
            (9_000, true),
            (9_000, false),
        ];
        for (step, (at, expected)) in table.into_iter().enumerate() {
            assert_eq!(push(at), expected, "step {step} at {at}");
        }
    }

    #[test]
    fn names_are_short_and_plain() {
        let long = "n".repeat(65);
        let table = [
            ("shop", true),
            ("a.b-c_D9", true),
            ("", false),
            ("..", false),
            (".a", false),
            ("a/b", false),
            ("a b", false),
            ("a\u{e9}", false),
            (&long, false),
            (&long[1..], true),
        ];
        for (name, expected) in table {
            assert_eq!(is_valid_name(name.as_bytes()), expected, "{name}");
        }
    }
}
