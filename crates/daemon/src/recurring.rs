//! Recurring jobs of the configuration: reconciles the engine's schedules with the entries of each
//! protocol's section, at startup and on reload.
//!
//! Only schedules whose names begin with [`CONFIGURED`] are touched, and only those that differ, so
//! that a run missed while the daemon was down is made up for once even if the configuration has
//! changed. An entry may skip such runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use windlass_config::Error;
use windlass_engine::{
    Engine, NewSchedule, Protocol, Query, Reply, Schedule, ScheduleCommand, ScheduleRef,
};
use windlass_session::protocol::Schedules;

use crate::config::Config;
use crate::reconcile::{self, Reconciliation};
use windlass_hub::Broker;

/// The prefix of the names of all configured schedules.
const CONFIGURED: &str = "configuration: ";

/// The schedules of one protocol's section.
#[derive(Debug)]
pub(crate) struct Recurring {
    protocol: Protocol,
    schedules: Schedules,
}

/// All schedules in the configuration.
///
/// # Errors
///
/// [`Error::Senseless`]: an entry is invalid, or no client could push its job.
pub(crate) fn wanted(config: &Config) -> Result<Vec<Recurring>, Error> {
    let mut wanted = Vec::new();
    for protocol in &config.protocols {
        if let Some(mut schedules) = protocol.schedules()? {
            for NewSchedule { key, .. } in &mut schedules.entries {
                *key = key.take().map(|name| configured_name(&name));
            }
            wanted.push(Recurring {
                protocol: protocol.id(),
                schedules,
            });
        }
    }
    Ok(wanted)
}

fn configured_name(name: &[u8]) -> Bytes {
    [CONFIGURED.as_bytes(), name].concat().into()
}

/// Sets which configured schedules skip missed runs.
pub(crate) fn set_missed(engine: &mut Engine, config: &Config) {
    let of = |protocol: &Arc<dyn windlass_session::protocol::Protocol>| {
        let names = protocol
            .schedules()
            .ok()
            .flatten()
            .map(|schedules| schedules.skip_missed)
            .unwrap_or_default();
        let id = protocol.id();
        names
            .into_iter()
            .map(move |name| (id, configured_name(&name)))
    };
    engine.skip_missed(config.protocols.iter().flat_map(of).collect());
}

/// Reconciles the engine's schedules with the configuration.
pub(crate) fn agree(
    broker: &dyn Broker,
    Recurring {
        protocol,
        schedules,
    }: Recurring,
) -> Reconciliation {
    let wanted = schedules
        .entries
        .into_iter()
        .map(|new| (new.key.clone().unwrap_or_default(), new));
    let set = |key, new: Option<NewSchedule>| match new {
        Some(new) => ScheduleCommand::Set(Box::new(new)).into(),
        None => ScheduleCommand::Remove(ScheduleRef::Key { protocol, key }).into(),
    };
    reconcile::agree(
        schedules.key,
        broker,
        configured(broker, protocol),
        wanted,
        is_same,
        set,
    )
}

fn is_same(old: &Schedule, new: &NewSchedule) -> bool {
    old.job == new.job && old.recurrence == new.recurrence && old.runs_left == new.runs
}

/// The existing configured schedules of a protocol, by name.
fn configured(broker: &dyn Broker, protocol: Protocol) -> BTreeMap<Bytes, Schedule> {
    let is_ours = |key: &Bytes| key.starts_with(CONFIGURED.as_bytes());
    let ours = |row: Schedule| Some((row.key.clone().filter(is_ours)?, row));
    let query = |after| Query::Schedules {
        protocol: Some(protocol),
        after,
        limit: u32::MAX,
    };
    let rows = reconcile::listed(broker, query, |reply| {
        let Reply::Schedules { rows, next } = reply else {
            return None;
        };
        Some((rows, next))
    });
    rows.into_iter().filter_map(ours).collect()
}

#[cfg(test)]
mod tests {
    use windlass_engine::{Capacity, Engine, Limits};
    use windlass_store::Journal;

    use super::*;
    use crate::config::fixture::config;
    use windlass_hub::{Durability, Hub};

    fn hub(limits: Limits) -> Hub {
        Hub::new(Engine::new(limits, 7), Journal::new(), Durability::Soon, 7)
    }

    fn entry(schedule: &str, rest: &str) -> String {
        format!("[[faktory.cron]]\nschedule = \"{schedule}\"\njob = {{ {rest} }}\n")
    }

    fn wanted_of(text: &str) -> Recurring {
        wanted(&config(text)).unwrap().remove(0)
    }

    /// The numbers of new, changed, removed and unchanged schedules.
    fn agree_on(hub: &Hub, text: &str) -> (usize, usize, usize, usize) {
        agree(hub, wanted_of(text)).counts()
    }

    #[test]
    fn only_changed_entries_are_changed() {
        let hub = hub(Limits::default());
        let (a, b) = (
            entry("* * * * *", "type = 'A'"),
            entry("0  1 * * *", "type = 'B', args = [1]"),
        );
        assert!(agree(&hub, wanted_of("")).is_of_nothing());
        assert_eq!(agree_on(&hub, &(a.clone() + &b)), (2, 0, 0, 0));
        let before = configured(&hub, Protocol::FAKTORY);
        assert_eq!(agree_on(&hub, &(b + &a)), (0, 0, 0, 2));
        assert_eq!(configured(&hub, Protocol::FAKTORY), before, "unchanged");
        // Other arguments change the schedule; another time or type creates a new one.
        let b = entry("0 1 * * *", "type = 'B', args = [2]");
        assert_eq!(agree_on(&hub, &(a.clone() + &b)), (0, 1, 0, 1));
        let changed = configured(&hub, Protocol::FAKTORY);
        let at = |map: &BTreeMap<Bytes, Schedule>| {
            map.values()
                .map(|row| (row.id, row.next_at))
                .collect::<Vec<_>>()
        };
        assert_eq!(at(&changed), at(&before), "its next run stays");
        assert_eq!(
            agree_on(&hub, &(a + &entry("0 2 * * *", "type = 'B', args = [2]"))),
            (1, 0, 1, 1)
        );
        assert_eq!(agree_on(&hub, ""), (0, 0, 2, 0));
        assert!(configured(&hub, Protocol::FAKTORY).is_empty());
    }

    #[test]
    fn two_entries_of_one_name_are_two_schedules() {
        let hub = hub(Limits::default());
        let two = |one: u8, other: u8| {
            let entry = |n| entry("* * * * *", &format!("type = 'A', args = [{n}]"));
            entry(one) + &entry(other)
        };
        assert_eq!(agree_on(&hub, &two(1, 2)), (2, 0, 0, 0));
        assert_eq!(agree_on(&hub, &two(1, 2)), (0, 0, 0, 2));
        assert_eq!(agree_on(&hub, &two(1, 3)), (0, 1, 0, 1));
        assert_eq!(
            agree_on(&hub, &entry("* * * * *", "type = 'A', args = [3]")),
            (0, 1, 1, 0)
        );
    }

    #[test]
    fn schedules_of_clients_stay_untouched() {
        let hub = hub(Limits::default());
        let mut others = wanted_of(
            &(1..=5)
                .map(|n| entry("* * * * *", &format!("type = 'O{n}'")))
                .collect::<String>(),
        )
        .schedules
        .entries;
        others
            .iter_mut()
            .zip(0..)
            .for_each(|(schedule, n)| schedule.key = [None, Some("mine".into())][n % 2].clone());
        others[2].job.protocol = Protocol::GEARMAN;
        others[2].key = Some(format!("{CONFIGURED}x").into());
        others
            .into_iter()
            .for_each(|schedule| drop(hub.ask(ScheduleCommand::Set(Box::new(schedule)).into())));
        let five = (1..=5)
            .map(|n| entry("* * * * *", &format!("type = 'A{n}'")))
            .collect::<String>();
        assert_eq!(agree_on(&hub, &five), (5, 0, 0, 0));
        assert_eq!(agree_on(&hub, &five), (0, 0, 0, 5));
        assert_eq!(agree_on(&hub, ""), (0, 0, 5, 0));
        let left = hub.with_journal(|engine, _| engine.schedules().count());
        // Two entries with the same name count as one.
        assert_eq!(left, 4);
    }

    #[test]
    fn refused_entries_are_reported_by_name() {
        let hub = hub(Limits {
            schedules_max: 1,
            ..Limits::default()
        });
        let reconcile = agree(
            &hub,
            wanted_of(&(entry("@daily", "type = 'A'") + &entry("@daily", "type = 'B'"))),
        );
        let refused = vec![(
            "configuration: B @daily".to_owned(),
            Capacity::Schedules.exceeded(1_u32, 1_u32),
        )];
        assert_eq!(
            reconcile,
            Reconciliation {
                new: 1,
                refused,
                ..Reconciliation::new("faktory.cron")
            }
        );
        // A removal makes space.
        assert_eq!(agree_on(&hub, &entry("@daily", "type = 'B'")), (1, 0, 1, 0));
    }
}
