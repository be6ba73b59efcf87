//! Policies of the configuration (of `queues`), which decide which job may start when. The engine gets all of them when
//! the daemon starts and when it reads its configuration again.

use std::cmp::Reverse;

use bytes::Bytes;
use windlass_config::Error;
use windlass_engine::{BulkCommand, Cursor, Policies, Policy, QueueCommand, Reply};

use crate::config::{self, Config};
use windlass_hub::broker::Broker;

/// All policies in the configuration. A name comes before patterns, and a pattern with more text of its
/// own before one with less.
///
/// # Errors
///
/// [`Error::Senseless`], with the queue.
pub(crate) fn wanted(config: &Config) -> Result<Policies, Error> {
    let of = |(queue, rules): (&String, &config::Queue)| match config::policy(rules) {
        Ok(policy) => Ok((Bytes::from(queue.clone()), policy)),
        Err(reason) => Err(Error::senseless("queues", format!("{}: {reason}", queue.escape_debug()))),
    };
    let mut rows: Vec<(Bytes, Policy)> = config.queues.iter().map(of).collect::<Result<_, _>>()?;
    let text = |queue: &Bytes| queue.iter().filter(|byte| !b"*?".contains(*byte)).count();
    rows.sort_by_key(|(queue, _)| (text(queue) < queue.len(), Reverse(text(queue))));
    // A plain queue keeps patterns behind it from holding. Without patterns behind them they are not needed.
    let needed = rows.iter().rposition(|(_, policy)| *policy != Policy::default()).map_or(0, |last| last + 1);
    rows.truncate(needed);
    Ok(Policies { rows })
}

/// Sets the engine's policies, and has it read the keys of jobs that are there.
pub(crate) fn agree(broker: &dyn Broker, wanted: Policies) {
    let has_keys = wanted.rows.iter().any(|(_, policy)| policy.has_keys());
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
    use super::*;
    use crate::config::fixture::config;

    #[test]
    fn names_come_before_patterns_and_a_plain_name_shields_its_queue() {
        let text = "[queues.\"mail-*\"]\nrate = { jobs = 1, per = '1s' }\n[queues.mail-urgent]\n[queues.\"*\"]\n";
        let rows = wanted(&config(text)).unwrap().rows;
        let names: Vec<&[u8]> = rows.iter().map(|(name, _)| &name[..]).collect();
        assert_eq!(names, [&b"mail-urgent"[..], b"mail-*"]);
        assert_eq!(wanted(&config("[queues.plain]\n")).unwrap(), Policies::default());
        let error = wanted(&config("[queues.q]\nfair = true\n")).unwrap_err().to_string();
        assert!(error.contains("q: key must be given"), "{error}");
    }
}
