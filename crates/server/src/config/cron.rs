//! `[[faktory.cron]]`: recurring jobs. [`crate::recurring`] turns them into schedules.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use toml::{Table, Value};

use crate::recurring;

/// A job and its schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cron {
    /// Five crontab fields, six fields with the seconds first, a word like `@daily`, or `@every 1h30m`. `CRON_TZ=` and a time
    /// zone can precede them.
    pub schedule: String,
    /// The time zone; UTC by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    /// The job to push.
    pub job: CronJob,
}

/// A job, with the fields a client would push.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CronJob {
    /// The job's type.
    #[serde(rename = "type")]
    pub jobtype: String,
    /// The queue; `default` if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The number of retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<i64>,
    /// The reservation time, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve_for: Option<i64>,
    /// The priority, 1 to 9; 9 is taken first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    /// Lines of a backtrace to keep. Only echoed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
        recurring::check(self)
    }
}

impl CronJob {
    /// The job in a client's JSON, without a `jid`.
    ///
    /// # Errors
    ///
    /// [`NotJson`].
    pub fn work_unit(&self) -> Result<String, NotJson> {
        let mut unit = serde_json::Map::new();
        unit.insert("jobtype".to_owned(), self.jobtype.clone().into());
        if let Some(queue) = &self.queue {
            unit.insert("queue".to_owned(), queue.clone().into());
        }
        let numbers = [
            ("retry", self.retry),
            ("reserve_for", self.reserve_for),
            ("priority", self.priority),
            ("backtrace", self.backtrace),
        ];
        for (key, number) in numbers.into_iter().filter_map(|(key, number)| Some((key, number?))) {
            unit.insert(key.to_owned(), number.into());
        }
        unit.insert("args".to_owned(), self.args.iter().map(json).collect::<Result<Json, _>>()?);
        unit.insert("custom".to_owned(), object(&self.custom)?);
        Ok(Json::Object(unit).to_string())
    }
}

fn json(value: &Value) -> Result<Json, NotJson> {
    Ok(match value {
        Value::String(text) => text.clone().into(),
        Value::Integer(number) => (*number).into(),
        Value::Float(number) => serde_json::Number::from_f64(*number).map(Json::Number).ok_or(NotJson(*number))?,
        Value::Boolean(value) => (*value).into(),
        Value::Datetime(time) => time.to_string().into(),
        Value::Array(values) => values.iter().map(json).collect::<Result<_, _>>()?,
        Value::Table(table) => object(table)?,
    })
}

fn object(table: &Table) -> Result<Json, NotJson> {
    table.iter().map(|(key, value)| Ok((key.clone(), json(value)?))).collect()
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
}
