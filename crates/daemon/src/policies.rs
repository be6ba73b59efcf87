//! Policies of the configuration (of `queues`), which decide which job may start when. The engine gets all of them when
//! the daemon starts and when it reads its configuration again.

use bytes::Bytes;
use windlass_config::Error;
use windlass_engine::{BulkCommand, Cursor, Policies, QueueCommand, Reply};

use crate::config::{self, Config};
use windlass_hub::broker::Broker;

/// All policies in the configuration. A queue that the configuration names is among them, too: patterns do not hold for
/// it.
///
/// # Errors
///
/// [`Error::Senseless`], with the queue.
pub(crate) fn wanted(config: &Config) -> Result<Policies, Error> {
    let of = |(queue, rules): (&String, &config::Queue)| match config::policy(rules) {
        Ok(policy) => Ok((Bytes::from(queue.clone()), policy)),
        Err(reason) => Err(Error::senseless("queues", format!("{}: {reason}", queue.escape_debug()))),
    };
    config.queues.iter().map(of).collect()
}

/// Sets the engine's policies, and has it read the keys of jobs that are there.
pub(crate) fn agree(broker: &dyn Broker, wanted: Policies) {
    let has_keys = wanted.iter().any(|(_, policy)| policy.has_keys());
    let _ = broker.ask(QueueCommand::Policies(Box::new(wanted)).into());
    let mut after = has_keys.then(Cursor::default);
    while let Some(page) = after {
        let read = BulkCommand::ReadKeys { after: page, limit: u32::MAX };
        let Ok(Reply::Mutated { next, .. }) = broker.ask(read.into()) else {
            tracing::error!("the keys of waiting jobs cannot be read: until the next reload they have none");
            return;
        };
        after = next;
    }
}

#[cfg(test)]
mod tests {
    use windlass_engine::Policy;

    use super::*;
    use crate::config::fixture::config;

    #[test]
    fn a_plain_name_shields_its_queue_from_patterns() {
        let text = "[queues.\"mail-*\"]\nrate = { jobs = 1, per = '1s' }\n[queues.mail-urgent]\n";
        let policies = wanted(&config(text)).unwrap();
        assert!(policies.find(b"mail-a").unwrap().rate.is_some());
        assert_eq!(policies.find(b"mail-urgent"), Some(&Policy::default()));
        let error = wanted(&config("[queues.q]\nfair = true\n")).unwrap_err().to_string();
        assert!(error.contains("q: key must be given"), "{error}");
    }
}
