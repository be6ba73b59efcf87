//! Namespaces from the configuration (`namespaces`): creates them in the engine and sets their limits. One whose section
//! was removed stays in the store with its jobs and its last limits, because a removed line must not cost anybody's jobs;
//! no client can enter it until the configuration names it again.

use std::collections::BTreeMap;

use bytes::Bytes;
use windlass_engine::{NamespaceCommand, NamespaceLimits, NamespaceRow, Query, Reply};
use windlass_hub::Broker;

use crate::config::Config;
use crate::reconcile::{self, Reconciliation};

/// Creates the configured namespaces, and sets their limits where they differ.
pub(crate) fn agree(broker: &dyn Broker, config: &Config) -> Reconciliation {
    let wanted: BTreeMap<Bytes, NamespaceLimits> = config
        .namespaces
        .iter()
        .map(|(name, section)| (Bytes::from(name.clone()), section.limits.for_engine()))
        .collect();
    let there = rows(broker)
        .into_iter()
        .filter(|row| wanted.contains_key(&row.name))
        .map(|row| (row.name, row.limits))
        .collect();
    let set = |name, limits: Option<NamespaceLimits>| {
        let limits = Box::new(limits.unwrap_or_default());
        NamespaceCommand::Set { name, limits }.into()
    };
    reconcile::agree("namespaces", broker, there, wanted, PartialEq::eq, set)
}

/// All namespaces of the engine.
fn rows(broker: &dyn Broker) -> Vec<NamespaceRow> {
    let query = |after| Query::Namespaces {
        after,
        limit: u32::MAX,
    };
    reconcile::listed(broker, query, |reply| {
        let Reply::Namespaces { rows, next } = reply else {
            return None;
        };
        Some((rows, next))
    })
}

#[cfg(test)]
mod tests {
    use windlass_engine::{Engine, Limits};
    use windlass_store::Journal;

    use super::*;
    use crate::config::fixture::config;
    use windlass_hub::{Durability, Hub};

    #[test]
    fn namespaces_are_made_and_limited_and_never_removed() {
        let hub = Hub::new(
            Engine::new(Limits::default(), 7),
            Journal::new(),
            Durability::Soon,
            7,
        );
        let agree_on = |text: &str| agree(&hub, &config(text)).counts();
        let limits = || -> Vec<_> {
            let named = rows(&hub).into_iter().filter(|row| !row.name.is_empty());
            named.map(|row| (row.name, row.limits.jobs_max)).collect()
        };
        let shop = "[namespaces.shop]\nlimits.jobs = 5\n";
        assert_eq!(agree_on(""), (0, 0, 0, 0));
        assert_eq!(agree_on(&format!("{shop}[namespaces.b]\n")), (2, 0, 0, 0));
        assert_eq!(agree_on("[namespaces.shop]\nlimits.jobs = 6"), (0, 1, 0, 0));
        assert_eq!(agree_on(""), (0, 0, 0, 0));
        let expected = [("b".into(), None), ("shop".into(), Some(6))];
        assert_eq!(limits(), expected);
        assert_eq!(agree_on("[namespaces.shop]"), (0, 1, 0, 0));
        assert_eq!(limits(), [("b".into(), None), ("shop".into(), None)]);
    }
}
