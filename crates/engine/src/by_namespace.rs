//! Values by realm, and sums by namespace.

use std::collections::BTreeMap;

use crate::ids::{Namespace, Protocol, Realm};

/// A value for each realm. Those of the namespace without a name are found by a short linear search, because
/// there are few protocols and every change of a job is counted.
#[derive(Debug, Clone)]
pub(crate) struct ByRealm<T> {
    /// Of the namespace without a name, in order of protocol.
    unnamed: Vec<(Protocol, T)>,
    named: BTreeMap<Realm, T>,
}

impl<T> Default for ByRealm<T> {
    fn default() -> Self {
        Self {
            unnamed: Vec::new(),
            named: BTreeMap::new(),
        }
    }
}

impl<T: Default> ByRealm<T> {
    /// Changes the value of a realm, which begins with the default.
    #[inline]
    pub(crate) fn change(&mut self, realm: Realm, change: impl FnOnce(&mut T)) {
        let mut unnamed = self.unnamed.iter_mut();
        if realm.namespace != Namespace::UNNAMED {
            self.change_named(realm, change);
        } else if let Some((_, value)) = unnamed.find(|(other, _)| *other == realm.protocol) {
            change(value);
        } else {
            self.begin(realm.protocol, change);
        }
    }

    #[inline(never)]
    fn change_named(&mut self, realm: Realm, change: impl FnOnce(&mut T)) {
        change(self.named.entry(realm).or_default());
    }

    #[cold]
    fn begin(&mut self, protocol: Protocol, change: impl FnOnce(&mut T)) {
        let mut value = T::default();
        change(&mut value);
        let at = self.unnamed.partition_point(|(other, _)| *other < protocol);
        self.unnamed.insert(at, (protocol, value));
    }

    /// All values, in order of realm.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Realm, &T)> {
        let unnamed = self.unnamed.iter();
        unnamed
            .map(|(protocol, value)| (Namespace::UNNAMED.realm(*protocol), value))
            .chain(self.named.iter().map(|(realm, value)| (*realm, value)))
    }
}

/// Things and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) count: u64,
    pub(crate) bytes: u64,
}

/// Sums of things: of all, and of each namespace with a name. The rest is in that without one.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    all: Sum,
    named: BTreeMap<Namespace, Sum>,
}

impl Sums {
    #[inline]
    pub(crate) fn add(&mut self, namespace: Namespace, bytes: u64) {
        self.all.add(bytes);
        if namespace != Namespace::UNNAMED {
            self.named.entry(namespace).or_default().add(bytes);
        }
    }

    #[inline]
    pub(crate) fn subtract(&mut self, namespace: Namespace, bytes: u64) {
        self.all.subtract(bytes);
        if namespace != Namespace::UNNAMED {
            self.subtract_named(namespace, bytes);
        }
    }

    #[inline(never)]
    fn subtract_named(&mut self, namespace: Namespace, bytes: u64) {
        if let Some(sum) = self.named.get_mut(&namespace) {
            sum.subtract(bytes);
            if *sum == Sum::default() {
                self.named.remove(&namespace);
            }
        }
    }

    /// The bytes of a thing have changed.
    #[inline]
    pub(crate) fn move_to(&mut self, namespace: Namespace, before: u64, now: u64) {
        self.all.bytes = self.all.bytes + now - before;
        if namespace != Namespace::UNNAMED
            && let Some(sum) = self.named.get_mut(&namespace)
        {
            sum.bytes = sum.bytes + now - before;
        }
    }

    pub(crate) const fn all(&self) -> Sum {
        self.all
    }

    /// The sum of a namespace; for `None`, of all.
    pub(crate) fn of(&self, namespace: Option<Namespace>) -> Sum {
        match namespace {
            None => self.all,
            Some(Namespace::UNNAMED) => {
                let named = self.named.values();
                named.fold(self.all, |rest, sum| Sum {
                    count: rest.count - sum.count,
                    bytes: rest.bytes - sum.bytes,
                })
            }
            Some(namespace) => self.named.get(&namespace).copied().unwrap_or_default(),
        }
    }
}

impl Sum {
    const fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes += bytes;
    }

    const fn subtract(&mut self, bytes: u64) {
        self.count -= 1;
        self.bytes -= bytes;
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_in_no_named_namespace_is_in_that_without_a_name() {
        let mut sums = Sums::default();
        for (namespace, bytes) in [(0, 5), (3, 7), (0, 1), (9, 2), (3, 4)] {
            sums.add(Namespace(namespace), bytes);
        }
        sums.subtract(Namespace(9), 2);
        let of = |namespace: Option<u16>| {
            let Sum { count, bytes } = sums.of(namespace.map(Namespace));
            (count, bytes)
        };
        let all = [None, Some(0), Some(3), Some(9)].map(of);
        assert_eq!(all, [(4, 17), (2, 6), (2, 11), (0, 0)]);
    }

    use super::*;

    #[test]
    fn values_are_in_the_order_of_namespaces_and_then_of_protocols() {
        let mut values = ByRealm::<u32>::default();
        let realms = [
            Namespace(7).realm(Protocol::FAKTORY),
            Namespace::UNNAMED.realm(Protocol::EVENTMQ),
            Namespace(2).realm(Protocol::GEARMAN),
            Namespace::UNNAMED.realm(Protocol::FAKTORY),
            Namespace(2).realm(Protocol::FAKTORY),
        ];
        for (value, realm) in (1..).zip(realms) {
            values.change(realm, |sum| *sum += value);
        }
        let all: Vec<(Realm, u32)> = values
            .iter()
            .map(|(realm, value)| (realm, *value))
            .collect();
        let mut expected: Vec<(Realm, u32)> = realms.into_iter().zip(1..).collect();
        expected.sort_unstable();
        assert_eq!(all, expected);
    }
}
