//! Rules for the jobs of a queue from the configuration (`queues`): reconciles the engine's rules
//! with them. Only the configuration sets rules.

use std::collections::BTreeMap;

use bytes::Bytes;
use windlass_config::{ByteSize, Period};
use windlass_engine::{
    Backoff, Bridge, HistoryRules, NAMESPACE_SEPARATOR, QueueCommand, QueueRow, QueueRules, Retry,
    is_pattern,
};

use crate::config::{self, Config};
use crate::reconcile::{self, Reconciliation, configured};
use windlass_hub::Broker;

/// Rules by queue.
pub(crate) type Rules = BTreeMap<Bytes, QueueRules>;

/// The rules of single queues that differ from the default.
pub(crate) fn wanted(config: &Config) -> Rules {
    let all = config
        .queues
        .iter()
        .map(|(queue, section)| (Bytes::from(queue.clone()), of(section, config.history.keep)));
    // A section that names a queue of a namespace holds as a pattern: no queue of this text is made in that without a name.
    let is_elsewhere = |queue: &Bytes| {
        let behind = |namespace: &String| queue.strip_prefix(namespace.as_bytes());
        let mut rest = config.namespaces.keys().filter_map(behind);
        rest.any(|rest| rest.first() == Some(&NAMESPACE_SEPARATOR))
    };
    all.filter(|(queue, rules)| {
        !is_pattern(queue) && !is_elsewhere(queue) && *rules != QueueRules::default()
    })
    .collect()
}

/// The rules in a section. `keep`: how long the history keeps its jobs unless the section says so.
pub(crate) fn of(queue: &config::Queue, keep: Period) -> QueueRules {
    QueueRules {
        codec: queue.codec,
        retry: queue.retry.map(|config::Retry { count, backoff }| Retry {
            failures_max: count,
            losses_max: 0,
            backoff: match u32::try_from(backoff.as_ms()).unwrap_or(u32::MAX) {
                0 => Backoff::None,
                ms => Backoff::Doubling(ms),
            },
        }),
        body_bytes_max: queue
            .body_bytes_max
            .map(|max| u32::try_from(max.0).unwrap_or(u32::MAX)),
        ttl_ms: queue.ttl.map(Period::as_ms),
        dead_ms: queue.dead.and_then(|dead| dead.ttl).map(Period::as_ms),
        dead_max: queue.dead.and_then(|dead| dead.max),
        dedup_ms: queue.dedup.map(|dedup| dedup.window.as_ms()),
        coalesce: queue.coalesce.map(Into::into),
        history: queue.history.map(|rule| history(rule, keep)),
    }
}

fn history(rule: config::QueueHistory, keep: Period) -> HistoryRules {
    /// Longer excerpts would make the records of ends as large as those of jobs.
    const EXCERPT_MAX: u64 = 1 << 20;
    let most = |bytes: Option<ByteSize>| {
        let bytes = bytes.map_or(0, |bytes| bytes.0.min(EXCERPT_MAX));
        u32::try_from(bytes).unwrap_or(u32::MAX)
    };
    HistoryRules {
        keep_ms: rule.keep.unwrap_or(keep).as_ms(),
        body_max: most(rule.body),
        result_max: most(rule.result),
        output_max: most(rule.output),
    }
}

/// The queues that all protocols share.
pub(crate) fn bridge(config: &Config) -> Bridge {
    let named = config
        .queues
        .iter()
        .filter_map(|(queue, rules)| Some((Bytes::from(queue.clone()), rules.bridge?)));
    Bridge {
        patterns: config
            .bridge
            .queues
            .iter()
            .map(|pattern| Bytes::from(pattern.clone()))
            .collect(),
        named: named.collect(),
    }
}

/// Reconciles the engine's rules with the configuration.
pub(crate) fn agree(broker: &dyn Broker, wanted: Rules) -> Reconciliation {
    let set = |queue, rules: Option<QueueRules>| {
        QueueCommand::SetRules {
            queue,
            rules: rules.unwrap_or_default().into(),
        }
        .into()
    };
    reconcile::agree(
        "queues",
        broker,
        configured(broker, ruled),
        wanted,
        PartialEq::eq,
        set,
    )
}

fn ruled(row: &QueueRow) -> Option<QueueRules> {
    Some(row.rules).filter(|rules| *rules != QueueRules::default())
}

#[cfg(test)]
mod tests {
    use windlass_engine::{Codec, Engine, Limits};
    use windlass_store::Journal;

    use super::*;
    use crate::config::fixture::config;
    use windlass_hub::{Durability, Hub};

    fn wanted_of(text: &str) -> Rules {
        wanted(&config(text))
    }

    #[test]
    fn every_key_reaches_the_engine_and_only_what_changed_is_changed() {
        let hub = Hub::new(
            Engine::new(Limits::default(), 7),
            Journal::new(),
            Durability::Soon,
            7,
        );
        let agree_on = |text: &str| {
            let agreed = agree(&hub, wanted_of(text));
            assert_eq!(configured(&hub, ruled), wanted_of(text));
            agreed.counts()
        };
        let a = "[queues.\"a b\"]\ncodec = \"json\"\nretry = { count = 3, backoff = \"2s\" }\nbody_bytes_max = \"1KiB\"\n";
        assert_eq!(agree_on(""), (0, 0, 0, 0));
        assert_eq!(agree_on("[queues.plain]\n"), (0, 0, 0, 0), "the default");
        assert_eq!(
            agree_on(&format!("{a}[queues.b]\nretry.count = -1\n")),
            (2, 0, 0, 0)
        );
        assert_eq!(
            agree_on(&format!("{a}[queues.b]\nretry.count = -1\n")),
            (0, 0, 0, 2)
        );
        assert_eq!(
            agree_on(&format!("{a}[queues.b]\ncodec = \"base64\"\n")),
            (0, 1, 0, 1)
        );
        assert_eq!(agree_on(a), (0, 0, 1, 1));
        let retry = Retry {
            failures_max: 3,
            losses_max: 0,
            backoff: Backoff::Doubling(2_000),
        };
        let rules = QueueRules {
            codec: Codec::Json,
            retry: Some(retry),
            body_bytes_max: Some(1_024),
            ..QueueRules::default()
        };
        assert_eq!(
            configured(&hub, ruled),
            Rules::from([(Bytes::from_static(b"a b"), rules)])
        );
        assert_eq!(agree_on(""), (0, 0, 1, 0));
    }

    #[test]
    fn times_and_limits_of_a_queue_are_converted_to_the_engines_units() {
        let text = "[queues.q]\nttl = '1d'\ndead = { ttl = '2s', max = 3 }\ndedup.window = '5m'";
        let rules = QueueRules {
            ttl_ms: Some(86_400_000),
            dead_ms: Some(2_000),
            dead_max: Some(3),
            dedup_ms: Some(300_000),
            ..QueueRules::default()
        };
        assert_eq!(
            wanted_of(text),
            Rules::from([(Bytes::from_static(b"q"), rules)])
        );
    }
}
