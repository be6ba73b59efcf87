//! Throttles of the configuration (of `queues` and of protocols' sections), which limit the
//! concurrent jobs of a queue: reconciles the engine's throttles with them. Throttles set by
//! operators remain until the configuration of their queues changes.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use windlass_config::Period;
use windlass_engine::{QueueCommand, QueueRow, Throttle};

use crate::config::Config;
use crate::reconcile::{self, Reconciliation, configured};
use windlass_hub::Broker;

/// Throttles by queue.
pub(crate) type Throttles = BTreeMap<Bytes, Throttle>;

/// All throttles in the configuration.
pub(crate) fn wanted(config: &Config) -> Throttles {
    let throttle = |(queue, throttle): (&String, &windlass_config::Throttle)| {
        let windlass_config::Throttle {
            concurrency,
            worker,
            timeout,
        } = *throttle;
        let timeout_ms = timeout.map(Period::as_ms);
        (
            Bytes::from(queue.clone()),
            Throttle {
                leased_max: concurrency,
                per_worker_max: worker,
                timeout_ms,
                configured: true,
            },
        )
    };
    let of_queues = config
        .queues
        .iter()
        .filter_map(|(queue, rules)| Some((queue, rules.throttle.as_ref()?)));
    let of_protocols = config
        .protocols
        .iter()
        .filter_map(|protocol| Some(protocol.throttles()?.1))
        .flatten();
    of_protocols.chain(of_queues).map(throttle).collect()
}

/// The queues whose throttles differ between two configurations.
pub(crate) fn changed(before: &Throttles, now: &Throttles) -> BTreeSet<Bytes> {
    before
        .keys()
        .chain(now.keys())
        .filter(|queue| before.get(*queue) != now.get(*queue))
        .cloned()
        .collect()
}

/// The queues among these whose throttle an operator has set.
pub(crate) fn own(broker: &dyn Broker, among: &BTreeSet<Bytes>) -> Vec<Bytes> {
    let is_own =
        |(queue, throttle): &(Bytes, Throttle)| !throttle.configured && among.contains(queue);
    configured(broker, throttled)
        .into_iter()
        .filter(is_own)
        .map(|(queue, _)| queue)
        .collect()
}

/// Reconciles the engine's throttles with the configuration: for the queues that a reload has
/// `changed`, or without it for all queues except those set by operators.
pub(crate) fn agree(
    broker: &dyn Broker,
    mut wanted: Throttles,
    changed: Option<&BTreeSet<Bytes>>,
) -> Reconciliation {
    let mut there = configured(broker, throttled);
    let own: BTreeSet<_> = there
        .iter()
        .filter(|(_, it)| !it.configured)
        .map(|(queue, _)| queue.clone())
        .collect();
    let concerns = |queue: &Bytes| {
        changed.map_or_else(|| !own.contains(queue), |changed| changed.contains(queue))
    };
    there.retain(|queue, _| concerns(queue));
    wanted.retain(|queue, _| concerns(queue));
    let set = |queue, throttle| QueueCommand::Throttle { queue, throttle }.into();
    reconcile::agree("throttles", broker, there, wanted, PartialEq::eq, set)
}

fn throttled(row: &QueueRow) -> Option<Throttle> {
    row.throttle
}

#[cfg(test)]
mod tests {
    use windlass_engine::{Engine, Limits};
    use windlass_store::Journal;

    use super::*;
    use crate::config::fixture::config;
    use windlass_hub::{Durability, Hub};

    fn wanted_of(text: &str) -> Throttles {
        wanted(&config(&format!("[faktory.throttles]\n{text}")))
    }

    #[test]
    fn only_changed_entries_are_changed() {
        let hub = Hub::new(
            Engine::new(Limits::default(), 7),
            Journal::new(),
            Durability::Soon,
            7,
        );
        let agree_on = |text: &str| {
            let agreed = agree(&hub, wanted_of(text), None);
            assert_eq!(configured(&hub, throttled), wanted_of(text));
            agreed.counts()
        };
        let a = "a = { concurrency = 4, timeout = \"1m\" }\n";
        assert_eq!(agree_on(""), (0, 0, 0, 0));
        assert_eq!(agree_on(&format!("{a}b.worker = 2")), (2, 0, 0, 0));
        assert_eq!(agree_on(&format!("{a}b.worker = 2")), (0, 0, 0, 2));
        assert_eq!(agree_on(&format!("{a}b.worker = 3")), (0, 1, 0, 1));
        assert_eq!(agree_on(a), (0, 0, 1, 1));
        let expected = Throttle {
            leased_max: Some(4),
            per_worker_max: None,
            timeout_ms: Some(60_000),
            configured: true,
        };
        assert_eq!(
            configured(&hub, throttled),
            Throttles::from([(Bytes::from_static(b"a"), expected)])
        );
        assert_eq!(agree_on(""), (0, 0, 1, 0));
    }

    #[test]
    fn an_operators_throttle_stays_until_the_configuration_says_something_new_about_its_queue() {
        let hub = Hub::new(
            Engine::new(Limits::default(), 7),
            Journal::new(),
            Durability::Soon,
            7,
        );
        let (a, b) = (Bytes::from_static(b"a"), Bytes::from_static(b"b"));
        let own = Throttle {
            leased_max: Some(9),
            ..Throttle::default()
        };
        for queue in [&a, &b] {
            hub.ask(
                QueueCommand::Throttle {
                    queue: queue.clone(),
                    throttle: Some(own),
                }
                .into(),
            )
            .unwrap();
        }
        let there = || configured(&hub, throttled);
        let files = [
            "",
            "a.worker = 1\n",
            "a.worker = 1\nc.worker = 5\n",
            "a.worker = 2\n",
            "",
        ]
        .map(wanted_of);
        agree(&hub, files[0].clone(), None);
        assert_eq!(
            there(),
            Throttles::from([(a.clone(), own), (b.clone(), own)]),
            "after a start"
        );
        for pair in files.windows(2) {
            let changed = changed(&pair[0], &pair[1]);
            agree(&hub, pair[1].clone(), Some(&changed));
            let expected = pair[1]
                .clone()
                .into_iter()
                .chain([(b.clone(), own)])
                .collect();
            assert_eq!(there(), expected, "{changed:?}");
        }
        hub.ask(
            QueueCommand::Throttle {
                queue: a.clone(),
                throttle: Some(own),
            }
            .into(),
        )
        .unwrap();
        agree(&hub, files[1].clone(), None);
        assert_eq!(
            there(),
            Throttles::from([(a, own), (b, own)]),
            "a start does not know what is new in the file"
        );
    }

    #[test]
    fn refused_entries_are_reported_by_name() {
        let limits = Limits {
            name_bytes_max: 3,
            ..Limits::default()
        };
        let hub = Hub::new(Engine::new(limits, 7), Journal::new(), Durability::Soon, 7);
        let Reconciliation { refused, new, .. } =
            agree(&hub, wanted_of("long.worker = 1\nabc.worker = 1"), None);
        assert_eq!((refused.len(), refused[0].0.as_str(), new), (1, "long", 1));
    }
}
