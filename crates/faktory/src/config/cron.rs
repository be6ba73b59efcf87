//! `[[faktory.cron]]`: recurring jobs, and the schedules they become.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use toml::de::DeTable;
use toml::{Table, Value};
use windlass_config::{Error, Misplaced, Period};
use windlass_engine::{NewSchedule, Timestamp};
use windlass_session::cron;
use windlass_session::protocol::Schedules;

use super::Faktory;
use crate::session::Settings;

/// The key of the entries.
const KEY: &str = "faktory.cron";

/// A job and its schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cron {
    /// Five crontab fields, six fields with the seconds first, a word like `@daily`, or `@every 1h30m`. `CRON_TZ=` and
    /// a time zone can precede them.
    pub schedule: String,
    /// The time zone; UTC by default.
    pub timezone: Option<String>,
    /// What becomes of runs that fell due while the daemon was down.
    #[serde(default, skip_serializing_if = "Missed::is_default")]
    pub missed: Missed,
    /// The job of each run waits for a part of this time, always the same part for the same schedule.
    pub spread: Option<Period>,
    /// The job to push.
    pub job: CronJob,
}

/// Runs that fell due while the daemon was down, or the cluster had no leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Missed {
    /// One run makes up for all of them.
    #[default]
    Once,
    /// They are skipped.
    Skip,
}

impl Missed {
    fn is_default(&self) -> bool {
        *self == Self::Once
    }
}

/// A job, with the fields a client would push.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CronJob {
    /// The job's type.
    #[serde(rename = "type")]
    pub jobtype: String,
    /// The queue; `default` if missing.
    pub queue: Option<String>,
    /// The number of retries.
    pub retry: Option<i64>,
    /// The reservation time, in seconds.
    pub reserve_for: Option<i64>,
    /// The priority, 1 to 9; 9 is taken first.
    pub priority: Option<i64>,
    /// Lines of a backtrace to keep. Only echoed.
    pub backtrace: Option<i64>,
    /// The arguments.
    #[serde(default)]
    pub args: Vec<Value>,
    /// Custom fields for workers and the daemon.
    #[serde(default)]
    pub custom: Table,
}

/// A TOML number that JSON cannot express: `nan` or `inf`.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{0} cannot be written in JSON")]
pub struct NotJson(f64);

impl Cron {
    /// Checks that the entry is valid and that its job is one a client could push.
    ///
    /// # Errors
    ///
    /// What is wrong with the entry.
    pub fn check(&self) -> Result<(), String> {
        self.schedule(
            &Settings::new(Faktory::default(), Timestamp(0)),
            String::new(),
        )
        .map(drop)
    }

    fn schedule(&self, settings: &Settings, name: String) -> Result<NewSchedule, String> {
        let recurrence = cron::when(&self.schedule, self.timezone.as_deref())
            .map_err(|error| format!("schedule: {error}"))?;
        if !recurrence.happens() {
            return Err("schedule: there is no such day".to_owned());
        }
        let unit = self.job.work_unit().map_err(|error| error.to_string())?;
        let mut job = settings.template(&unit)?;
        job.not_before = self
            .spread
            .map(|spread| Timestamp(part_of(&name, spread.as_ms())));
        Ok(NewSchedule {
            key: Some(name.into()),
            job,
            recurrence,
            at_once: false,
            keep_grid: true,
            runs: None,
        })
    }

    /// The entry's number and type, and what is wrong with it.
    fn mistake(&self, number: usize, reason: &str) -> String {
        format!(
            "entry {number} ({}): {reason}",
            self.job.jobtype.escape_debug()
        )
    }
}

/// The schedules of all entries.
///
/// # Errors
///
/// [`Error::Senseless`]: an entry is invalid, or no client could push its job.
pub(super) fn schedules(section: &Faktory) -> Result<Schedules, Error> {
    let settings = Settings::new(section.clone(), Timestamp(0));
    let mut namesakes = BTreeMap::new();
    let mut schedules = Schedules {
        key: KEY,
        entries: Vec::new(),
        skip_missed: Vec::new(),
    };
    for (entry, number) in section.cron.iter().zip(1..) {
        let fields: Vec<&str> = entry.schedule.split_whitespace().collect();
        // The arguments are not part of the name: they may change, and it is still the same schedule.
        let name = format!("{} {}", entry.job.jobtype, fields.join(" "));
        let namesake = namesakes
            .entry(name.clone())
            .and_modify(|count| *count += 1)
            .or_insert(1);
        let name = if *namesake == 1 {
            name
        } else {
            format!("{name} ({namesake})")
        };
        if entry.missed == Missed::Skip {
            schedules.skip_missed.push(name.clone().into());
        }
        let schedule = entry.schedule(&settings, name);
        schedules.entries.push(
            schedule.map_err(|reason| Error::senseless(KEY, entry.mistake(number, &reason)))?,
        );
    }
    Ok(schedules)
}

/// Checks all entries. There can be many of them, and their line numbers are lost after the text was read.
///
/// # Errors
///
/// The `schedule` of the first wrong entry, and what is wrong with the entry.
pub(super) fn check_text(entries: &[Cron], text: &str) -> Result<(), Misplaced> {
    for (index, entry) in entries.iter().enumerate() {
        if let Err(reason) = entry.check() {
            let message = format!("{KEY}: {}", entry.mistake(index + 1, &reason));
            return Err(Misplaced {
                range: schedule_of(text, index).unwrap_or_default(),
                message,
            });
        }
    }
    Ok(())
}

/// The range of the `schedule` of an entry.
fn schedule_of(text: &str, index: usize) -> Option<Range<usize>> {
    let file = DeTable::parse(text).ok()?;
    let entry = file
        .get_ref()
        .get("faktory")?
        .get_ref()
        .get("cron")?
        .get_ref()
        .get(index)?;
    Some(entry.get_ref().get("schedule")?.span())
}

/// A number below `most` that depends on a name alone (FNV-1a), and 0 for 0.
fn part_of(name: &str, most: u64) -> u64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash.checked_rem(most).unwrap_or(0)
}

impl CronJob {
    /// The job in a client's JSON, without a `jid`.
    ///
    /// # Errors
    ///
    /// [`NotJson`].
    pub fn work_unit(&self) -> Result<String, NotJson> {
        let Self {
            jobtype,
            queue,
            retry,
            reserve_for,
            priority,
            backtrace,
            args,
            custom,
        } = self;
        let args = args.iter().map(json).collect::<Result<Json, _>>()?;
        let fields = [
            ("jobtype", Some(jobtype.clone().into())),
            ("queue", queue.clone().map(Json::from)),
            ("retry", retry.map(Json::from)),
            ("reserve_for", reserve_for.map(Json::from)),
            ("priority", priority.map(Json::from)),
            ("backtrace", backtrace.map(Json::from)),
            ("args", Some(args)),
            ("custom", Some(object(custom)?)),
        ];
        Ok(fields
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)))
            .collect::<Json>()
            .to_string())
    }
}

fn json(value: &Value) -> Result<Json, NotJson> {
    Ok(match value {
        Value::String(text) => text.clone().into(),
        Value::Integer(number) => (*number).into(),
        Value::Float(number) => serde_json::Number::from_f64(*number)
            .map(Json::Number)
            .ok_or(NotJson(*number))?,
        Value::Boolean(value) => (*value).into(),
        Value::Datetime(time) => time.to_string().into(),
        Value::Array(values) => values.iter().map(json).collect::<Result<_, _>>()?,
        Value::Table(table) => object(table)?,
    })
}

fn object(table: &Table) -> Result<Json, NotJson> {
    table
        .iter()
        .map(|(key, value)| Ok((key.clone(), json(value)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(text: &str) -> Result<String, NotJson> {
        toml::from_str::<CronJob>(text).unwrap().work_unit()
    }

    #[test]
    fn a_job_is_written_as_a_client_would() {
        let table = [
            ("type = \"T\"", r#"{"args":[],"custom":{},"jobtype":"T"}"#),
            (
                "type = \"T\"\nqueue = \"q\"\nretry = 0\nreserve_for = 60\npriority = 9\nbacktrace = 2",
                r#"{"args":[],"backtrace":2,"custom":{},"jobtype":"T","priority":9,"queue":"q","reserve_for":60,"retry":0}"#,
            ),
            (
                "type = \"T\"\nargs = [1, 1.5, \"\\\"x\", [true], {b = 1, a = 2}, 2026-11-21T03:59:09Z]\ncustom.unique_for = 60",
                r#"{"args":[1,1.5,"\"x",[true],{"a":2,"b":1},"2026-11-21T03:59:09Z"],"custom":{"unique_for":60},"jobtype":"T"}"#,
            ),
        ];
        for (text, expected) in table {
            assert_eq!(unit(text).as_deref(), Ok(expected), "{text}");
        }
        let error = unit("type = \"T\"\nargs = [[inf]]").unwrap_err();
        assert_eq!(error.to_string(), "inf cannot be written in JSON");
    }
    #[test]
    fn the_jobs_of_schedules_are_spread_by_their_names() {
        let section = |text: &str| toml::from_str::<Faktory>(text).unwrap();
        let offset = |spread: &str, jobtype: &str| {
            let text = format!(
                "[[cron]]\nschedule = '@daily'\nspread = '{spread}'\njob.type = '{jobtype}'"
            );
            let schedules = schedules(&section(&text)).unwrap();
            schedules.entries[0].job.not_before.map(|at| at.0)
        };
        let all: Vec<_> = (0..20)
            .filter_map(|n| offset("5m", &format!("T{n}")))
            .collect();
        assert!(
            all.len() == 20 && all.iter().all(|ms| *ms < 300_000),
            "{all:?}"
        );
        assert_eq!(
            all.iter().collect::<std::collections::BTreeSet<_>>().len(),
            20
        );
        // A later version must not move the runs.
        assert_eq!(
            [offset("5m", "T0"), offset("0s", "T0")],
            [Some(260_546), Some(0)]
        );
        let text = "[[cron]]\nschedule = '@daily'\njob.type = 'A'\n[[cron]]\nschedule = '@daily'\nmissed = 'skip'\njob.type = 'B'";
        assert_eq!(schedules(&section(text)).unwrap().skip_missed, ["B @daily"]);
    }
}
