//! Rules and policies of the configuration (`queues`) by name and pattern. The engine receives all
//! of them at startup and on reload.

use bytes::Bytes;
use windlass_config::Error;
use windlass_engine::{
    BulkCommand, Cursor, Patterns, PolicyRow, QueueCommand, QueueRow, QueueSettings, Reply,
};

use crate::config::{self, Config};
use crate::reconcile::configured;
use crate::rules;
use windlass_hub::Broker;

/// The settings for each name and pattern. A queue that is configured by name ignores patterns and
/// uses defaults for the rest.
///
/// # Errors
///
/// [`Error::Senseless`], with the queue.
pub(crate) fn patterns(config: &Config) -> Result<Patterns<QueueSettings>, Error> {
    let of = |(queue, section): (&String, &config::Queue)| match config::policy(section) {
        Ok(policy) => Ok((
            Bytes::from(queue.clone()),
            QueueSettings {
                rules: rules::of(section, config.history.keep),
                policy,
            },
        )),
        Err(reason) => Err(Error::senseless(
            "queues",
            format!("{}: {reason}", queue.escape_debug()),
        )),
    };
    config.queues.iter().map(of).collect()
}

/// Discards policies that operators have set for queues whose configuration has changed. Returns
/// these queues with the operators.
pub(crate) fn take_back(
    broker: &dyn Broker,
    before: &Patterns<QueueSettings>,
    now: &Patterns<QueueSettings>,
) -> Vec<(Bytes, Bytes)> {
    let policy = |of: &Patterns<QueueSettings>, queue: &Bytes| {
        of.find(queue)
            .map(|it| it.policy.clone())
            .unwrap_or_default()
    };
    let mut own = configured(broker, |row| Some(own(row)?.set.clone()?.0));
    own.retain(|queue, _| policy(before, queue) != policy(now, queue));
    own.retain(|queue, _| {
        let forget = QueueCommand::SetPolicy {
            queue: queue.clone(),
            policy: None,
            by: Bytes::new(),
        };
        broker.ask(forget.into()).is_ok()
    });
    own.into_iter().collect()
}

/// A policy set by an operator.
fn own(row: &QueueRow) -> Option<&PolicyRow> {
    row.policy.as_deref().filter(|row| row.set.is_some())
}

/// Applies the settings of queues, and makes the engine read the keys of existing jobs.
pub(crate) fn agree(broker: &dyn Broker, patterns: Patterns<QueueSettings>) {
    let has_keys = patterns
        .iter()
        .any(|(_, settings)| settings.policy.has_keys())
        || configured(broker, |row| own(row).map(|row| row.policy.has_keys()))
            .into_values()
            .any(|has_keys| has_keys);
    let _ = broker.ask(QueueCommand::SetPatterns(Box::new(patterns)).into());
    let mut after = has_keys.then(Cursor::default);
    while let Some(page) = after {
        let read = BulkCommand::ReadKeys {
            after: page,
            limit: u32::MAX,
        };
        let Ok(Reply::Mutated { next, .. }) = broker.ask(read.into()) else {
            tracing::error!(
                "cannot read the policy keys of waiting jobs; they share the empty key until the next reload"
            );
            return;
        };
        after = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::fixture::config;

    #[test]
    fn a_plain_name_shields_its_queue_from_patterns() {
        let text = "[queues.\"mail-*\"]\nrate = { jobs = 1, per = '1s' }\n[queues.mail-urgent]\n";
        let patterns = patterns(&config(text)).unwrap();
        assert!(patterns.find(b"mail-a").unwrap().policy.rate.is_some());
        assert_eq!(
            patterns.find(b"mail-urgent"),
            Some(&QueueSettings::default())
        );
        let error = super::patterns(&config("[queues.q]\nfair = true\n"))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("q: per_key, fair and ordered require key"),
            "{error}"
        );
    }
}
