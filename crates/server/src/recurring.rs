//! Jobs that are pushed again and again because the configuration says so: from it to schedules, and the engine's schedules
//! brought into agreement with them, when the daemon starts and when it is told to read its configuration again.
//!
//! Ours are those whose names begin with [`CONFIGURED`]; nobody else's are touched. What is as it should be is left alone:
//! a run that fell due while the daemon was down is made up for once, whether or not it was restarted with another
//! configuration.

use std::collections::BTreeMap;

use bytes::Bytes;
use windlass_engine::{Command, NewSchedule, Origin, Schedule, ScheduleRef, Timestamp};
use windlass_faktory::session::Settings as FaktorySettings;
use windlass_session::cron;

use crate::agreement::{Agreement, refusal};
use crate::config::{Config, Cron, Error};
use crate::hub::Hub;

/// What the names of schedules begin with that are in the configuration.
const CONFIGURED: &str = "configuration: ";

/// Every schedule that the configuration wants.
///
/// # Errors
///
/// [`Error::Senseless`]: an entry cannot be understood, or is no job that a client could push.
pub(crate) fn wanted(config: &Config) -> Result<Vec<NewSchedule>, Error> {
    let reserve_min_s = config.faktory.reserve_min.as_ms() / 1_000;
    let unique_args_bytes_max = config.faktory.unique_args_bytes_max.bytes();
    let settings = FaktorySettings { reserve_min_s, unique_args_bytes_max, ..FaktorySettings::new(Timestamp(0)) };
    let mut namesakes = BTreeMap::new();
    let mut wanted = Vec::new();
    for (entry, number) in config.faktory.cron.iter().zip(1..) {
        let fields: Vec<&str> = entry.schedule.split_whitespace().collect();
        // Its arguments may change without its becoming another.
        let name = format!("{CONFIGURED}{} {}", entry.job.jobtype, fields.join(" "));
        let namesake = namesakes.entry(name.clone()).and_modify(|count| *count += 1).or_insert(1);
        let name = if *namesake == 1 { name } else { format!("{name} ({namesake})") };
        let schedule = schedule(&settings, entry, name).map_err(|reason| {
            let reason = format!("entry {number} ({}): {reason}", entry.job.jobtype.escape_debug());
            Error::Senseless { key: "faktory.cron", reason }
        })?;
        wanted.push(schedule);
    }
    Ok(wanted)
}

/// Whether an entry can be understood, and is a job that a client could push.
pub(crate) fn check(entry: &Cron) -> Result<(), String> {
    schedule(&FaktorySettings::new(Timestamp(0)), entry, String::new()).map(drop)
}

fn schedule(settings: &FaktorySettings, entry: &Cron, name: String) -> Result<NewSchedule, String> {
    let recurrence =
        cron::when(&entry.schedule, entry.timezone.as_deref()).map_err(|error| format!("schedule: {error}"))?;
    if !recurrence.happens() {
        return Err("schedule: there is no such day".to_owned());
    }
    let unit = entry.job.work_unit().map_err(|error| error.to_string())?;
    let job = settings.template(&unit).map_err(|error| error.to_string())?;
    Ok(NewSchedule { key: Some(name.into()), job, recurrence, at_once: false, keep_grid: true, runs: None })
}

/// Brings the engine's schedules into agreement with what is wanted.
pub(crate) fn agree(hub: &Hub, wanted: Vec<NewSchedule>) -> Agreement {
    let mut done = Agreement::new("faktory.cron");
    let mut there = configured(hub);
    let mut to_set = Vec::new();
    for new in wanted {
        match new.key.as_ref().and_then(|key| there.remove(key)) {
            Some(old) if is_same(&old, &new) => done.same += 1,
            old => to_set.push((new, old.is_some())),
        }
    }
    // First these, for there may be no room for others.
    for schedule in there.into_values() {
        hub.ask(Command::RemoveSchedule(ScheduleRef::Id(schedule.id)));
        done.removed += 1;
    }
    for (new, is_change) in to_set {
        let name = String::from_utf8_lossy(new.key.as_deref().unwrap_or_default()).into_owned();
        let refusal = hub.ask(Command::SetSchedule(Box::new(new))).into_iter().find_map(refusal);
        match (refusal, is_change) {
            (Some(why), _) => done.refused.push((name, why)),
            (None, true) => done.changed += 1,
            (None, false) => done.new += 1,
        }
    }
    done
}

fn is_same(old: &Schedule, new: &NewSchedule) -> bool {
    old.job == new.job && old.recurrence == new.recurrence && old.runs_left == new.runs
}

/// Those that a configuration has set, by name.
fn configured(hub: &Hub) -> BTreeMap<Bytes, Schedule> {
    let ours = |row: &Schedule| {
        let key = row.key.clone().filter(|key| key.starts_with(CONFIGURED.as_bytes()))?;
        (row.job.origin == Origin::FAKTORY).then(|| (key, row.clone()))
    };
    hub.with_journal(|engine, _| engine.schedules().filter_map(ours).collect())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use windlass_engine::{Engine, Limits, Refusal};
    use windlass_store::Journal;

    use super::*;
    use crate::hub::Promise;

    fn hub(limits: Limits) -> Hub {
        Hub::new(Engine::new(limits, 7), Journal::new(), Promise::Soon, 7)
    }

    fn entry(schedule: &str, rest: &str) -> String {
        format!("[[faktory.cron]]\nschedule = \"{schedule}\"\njob = {{ {rest} }}\n")
    }

    fn wanted_of(text: &str) -> Vec<NewSchedule> {
        wanted(&Config::parse(Path::new("windlass.toml"), text).unwrap()).unwrap()
    }

    /// New, changed, removed, as before.
    fn agree_on(hub: &Hub, text: &str) -> (usize, usize, usize, usize) {
        let Agreement { new, changed, removed, same, refused, .. } = agree(hub, wanted_of(text));
        assert_eq!(refused, []);
        (new, changed, removed, same)
    }

    #[test]
    fn what_changed_is_changed_and_nothing_else() {
        let hub = hub(Limits::default());
        let (a, b) = (entry("* * * * *", "type = 'A'"), entry("0  1 * * *", "type = 'B', args = [1]"));
        assert!(agree(&hub, Vec::new()).is_of_nothing());
        assert_eq!(agree_on(&hub, &(a.clone() + &b)), (2, 0, 0, 0));
        let before = configured(&hub);
        assert_eq!(agree_on(&hub, &(b + &a)), (0, 0, 0, 2));
        assert_eq!(configured(&hub), before, "left alone");
        // Another argument is a change; another time, or another type, is another job.
        let b = entry("0 1 * * *", "type = 'B', args = [2]");
        assert_eq!(agree_on(&hub, &(a.clone() + &b)), (0, 1, 0, 1));
        let changed = configured(&hub);
        let at = |map: &BTreeMap<Bytes, Schedule>| map.values().map(|row| (row.id, row.next_at)).collect::<Vec<_>>();
        assert_eq!(at(&changed), at(&before), "its next run stays");
        assert_eq!(agree_on(&hub, &(a + &entry("0 2 * * *", "type = 'B', args = [2]"))), (1, 0, 1, 1));
        assert_eq!(agree_on(&hub, ""), (0, 0, 2, 0));
        assert!(configured(&hub).is_empty());
    }

    #[test]
    fn two_of_a_kind_are_two() {
        let hub = hub(Limits::default());
        let two = |one: u8, other: u8| {
            let entry = |n| entry("* * * * *", &format!("type = 'A', args = [{n}]"));
            entry(one) + &entry(other)
        };
        assert_eq!(agree_on(&hub, &two(1, 2)), (2, 0, 0, 0));
        assert_eq!(agree_on(&hub, &two(1, 2)), (0, 0, 0, 2));
        assert_eq!(agree_on(&hub, &two(1, 3)), (0, 1, 0, 1));
        assert_eq!(agree_on(&hub, &entry("* * * * *", "type = 'A', args = [3]")), (0, 1, 1, 0));
    }

    #[test]
    fn nobody_elses_are_touched() {
        let hub = hub(Limits::default());
        let mut others = wanted_of(&(1..=5).map(|n| entry("* * * * *", &format!("type = 'O{n}'"))).collect::<String>());
        others.iter_mut().zip(0..).for_each(|(schedule, n)| schedule.key = [None, Some("mine".into())][n % 2].clone());
        others[2].job.origin = Origin::GEARMAN;
        others[2].key = Some(format!("{CONFIGURED}x").into());
        others.into_iter().for_each(|schedule| drop(hub.ask(Command::SetSchedule(Box::new(schedule)))));
        let five = (1..=5).map(|n| entry("* * * * *", &format!("type = 'A{n}'"))).collect::<String>();
        assert_eq!(agree_on(&hub, &five), (5, 0, 0, 0));
        assert_eq!(agree_on(&hub, &five), (0, 0, 0, 5));
        assert_eq!(agree_on(&hub, ""), (0, 0, 5, 0));
        let left = hub.with_journal(|engine, _| engine.schedules().count());
        // Two of the same name were one.
        assert_eq!(left, 4);
    }

    #[test]
    fn what_cannot_be_is_told_by_name() {
        let hub = hub(Limits { schedules_max: 1, ..Limits::default() });
        let agreement = agree(&hub, wanted_of(&(entry("@daily", "type = 'A'") + &entry("@daily", "type = 'B'"))));
        let refused = vec![("configuration: B @daily".to_owned(), Refusal::SchedulesFull { limit: 1 })];
        assert_eq!(agreement, Agreement { new: 1, refused, ..Agreement::new("faktory.cron") });
        // Whoever goes makes room.
        assert_eq!(agree_on(&hub, &entry("@daily", "type = 'B'")), (1, 0, 1, 0));
    }
}
