//! Throttles of the configuration (of `queues`, and of protocols' sections), which limit how much of a queue is worked
//! on at once: reconciles the engine's throttles with them. Only the configuration sets throttles.

use std::collections::BTreeMap;

use bytes::Bytes;
use windlass_config::Period;
use windlass_engine::{QueueCommand, QueueRow, Throttle};

use crate::config::Config;
use crate::reconcile::{self, Reconciliation, configured};
use windlass_hub::Broker;

/// By queue.
pub(crate) type Throttles = BTreeMap<Bytes, Throttle>;

/// All throttles in the configuration.
pub(crate) fn wanted(config: &Config) -> Throttles {
    let throttle = |(queue, throttle): (&String, &windlass_config::Throttle)| {
        let windlass_config::Throttle { concurrency, worker, timeout } = *throttle;
        let timeout_ms = timeout.map(Period::as_ms);
        (Bytes::from(queue.clone()), Throttle { leased_max: concurrency, per_worker_max: worker, timeout_ms })
    };
    let of_queues = config.queues.iter().filter_map(|(queue, rules)| Some((queue, rules.throttle.as_ref()?)));
    let of_protocols = config.protocols.iter().filter_map(|protocol| Some(protocol.throttles()?.1)).flatten();
    of_protocols.chain(of_queues).map(throttle).collect()
}

/// Reconciles the engine's throttles with the configuration.
pub(crate) fn agree(broker: &dyn Broker, wanted: Throttles) -> Reconciliation {
    let set = |queue, throttle| QueueCommand::Throttle { queue, throttle }.into();
    reconcile::agree("throttles", broker, configured(broker, throttled), wanted, PartialEq::eq, set)
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
        let hub = Hub::new(Engine::new(Limits::default(), 7), Journal::new(), Durability::Soon, 7);
        let agree_on = |text: &str| {
            let Reconciliation { new, changed, removed, same, refused, .. } = agree(&hub, wanted_of(text));
            assert_eq!(refused, []);
            assert_eq!(configured(&hub, throttled), wanted_of(text));
            (new, changed, removed, same)
        };
        let a = "a = { concurrency = 4, timeout = \"1m\" }\n";
        assert_eq!(agree_on(""), (0, 0, 0, 0));
        assert_eq!(agree_on(&format!("{a}b.worker = 2")), (2, 0, 0, 0));
        assert_eq!(agree_on(&format!("{a}b.worker = 2")), (0, 0, 0, 2));
        assert_eq!(agree_on(&format!("{a}b.worker = 3")), (0, 1, 0, 1));
        assert_eq!(agree_on(a), (0, 0, 1, 1));
        let expected = Throttle { leased_max: Some(4), per_worker_max: None, timeout_ms: Some(60_000) };
        assert_eq!(configured(&hub, throttled), Throttles::from([(Bytes::from_static(b"a"), expected)]));
        assert_eq!(agree_on(""), (0, 0, 1, 0));
    }

    #[test]
    fn refused_entries_are_reported_by_name() {
        let limits = Limits { name_bytes_max: 3, ..Limits::default() };
        let hub = Hub::new(Engine::new(limits, 7), Journal::new(), Durability::Soon, 7);
        let Reconciliation { refused, new, .. } = agree(&hub, wanted_of("long.worker = 1\nabc.worker = 1"));
        assert_eq!((refused.len(), refused[0].0.as_str(), new), (1, "long", 1));
    }
}
