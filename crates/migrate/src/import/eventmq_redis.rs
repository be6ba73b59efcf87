//! `windlass import eventmq-redis`: gives a running daemon the schedules that EventMQ's scheduler keeps in Redis.
//!
//! The layout, as the released scheduler 0.3.13 writes it:
//!
//! ```text
//! interval_jobs   list    the identity of every schedule, by interval or by cron: SHA-1 of its job, in hexadecimal
//! IDENTITY        string  JSON: ["QUEUE", "HEADERS", "INTERVAL", "JOB", "CRON"], the frames of its SCHEDULE as text
//! ```

use std::collections::HashSet;

use clap::Args;
use serde_json::Value;
use tokio::runtime::Builder;
use windlass_config::Failure;
use windlass_eventmq::wire::{self, Headers, Plan, When};
use windlass_session::cron::croniter;

use super::faktory_redis::redis::{Page, Redis};
use super::report::{Nouns, Report};
use crate::transfer::{Place, Scheduling};

const HELP: &str = include_str!("../help/eventmq_redis.txt").trim_ascii_end();

const SCHEDULES: &[u8] = b"interval_jobs";

/// Import the schedules in the Redis of EventMQ's scheduler, into a running daemon.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct EventmqRedis {
    /// The address of Redis.
    #[arg(value_name = "ADDRESS")]
    address: String,
    /// The daemon's address for EventMQ.
    #[arg(long, value_name = "URL", default_value = "eventmq://127.0.0.1:47291")]
    to: Place,
    /// Print what would be imported, and import nothing.
    #[arg(long)]
    dry_run: bool,
}

const NOUNS: Nouns = Nouns::new("schedule", "", "");
impl EventmqRedis {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let mut redis = Redis::connect(&self.address)?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|why| Failure::Runtime(format!("cannot start: {why}")))?;
        let to = || {
            runtime
                .block_on(Scheduling::connect(&self.to))
                .map_err(Failure::Runtime)
        };
        let mut to = if self.dry_run { None } else { Some(to()?) };
        let mut report = Report::to_stdout(&NOUNS, self.dry_run);
        each(&mut redis, &mut |identity, text| {
            let taken = Schedule::read(text).and_then(|schedule| {
                schedule.check()?;
                let sent = to
                    .as_mut()
                    .map_or(Ok(()), |to| runtime.block_on(to.schedule(&schedule.plan())));
                sent.map(|()| schedule.to_string())
            });
            report.items += 1;
            match taken {
                Ok(shown) => {
                    report.taken += 1;
                    let verb = report.taken_word;
                    report.print(&format_args!("{verb}: {shown}"))
                }
                Err(why) => report.leave(&format_args!(
                    "schedule {} left: {why}",
                    identity.escape_ascii()
                )),
            }
        })?;
        report.write([], &format!("{} {}", report.taken, report.taken_word))?;
        report.outcome()
    }
}

/// Called with the identity of a schedule and its text, if there is one.
type Each<'a> = dyn FnMut(&[u8], Option<&[u8]>) -> Result<(), Failure> + 'a;

/// Visits all schedules, each once: the scheduler lists one twice that it has received twice.
fn each(redis: &mut Redis, each: &mut Each<'_>) -> Result<(), Failure> {
    let (mut page, mut read, mut known) = (Page::new(), 0, HashSet::new());
    loop {
        let mut identities = redis.list_page(SCHEDULES, read, &mut page)?;
        if identities.is_empty() {
            return Ok(());
        }
        read += identities.len();
        identities.retain(|identity| known.insert(identity.clone()));
        let texts = redis.texts(&identities)?;
        for (identity, text) in identities.iter().zip(texts) {
            each(identity, text.as_deref())?;
        }
    }
}

/// The frames of a SCHEDULE.
#[derive(Debug, PartialEq, Eq)]
struct Schedule {
    queue: String,
    headers: String,
    interval: String,
    job: String,
    cron: String,
}

impl Schedule {
    fn read(text: Option<&[u8]>) -> Result<Self, String> {
        let text = text.ok_or("Redis has no such key")?;
        let frames: Vec<Value> =
            serde_json::from_slice(text).map_err(|why| format!("not a list in JSON: {why}"))?;
        let frame = |value: &Value| match value {
            Value::String(text) => Ok(text.clone()),
            Value::Number(number) => Ok(number.to_string()),
            Value::Null => Ok(String::new()),
            Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                Err(format!("`{value}` is not a frame"))
            }
        };
        let frames = frames.iter().map(frame).collect::<Result<Vec<_>, _>>()?;
        let [queue, headers, interval, job, cron] = <[String; 5]>::try_from(frames)
            .map_err(|frames| format!("{} frames, but 5 expected", frames.len()))?;
        let headers = match Headers(headers.as_bytes()).nohaste() {
            true => headers,
            // Its first run was long ago.
            false if headers.is_empty() => "nohaste".to_owned(),
            false => format!("{headers},nohaste"),
        };
        Ok(Self {
            queue,
            headers,
            interval,
            job,
            cron,
        })
    }

    fn plan(&self) -> Plan<'_> {
        let Self {
            queue,
            headers,
            interval,
            job,
            cron,
        } = self;
        Plan {
            queue: queue.as_bytes(),
            headers: Headers(headers.as_bytes()),
            interval: interval.as_bytes(),
            job: job.as_bytes(),
            cron: cron.as_bytes(),
        }
    }

    /// Whether the daemon can accept it: the daemon itself sends no reason.
    fn check(&self) -> Result<(), String> {
        let plan = self.plan();
        wire::identity(plan.job).map_err(|why| why.to_string())?;
        match plan.when().map_err(|why| why.to_string())? {
            When::Every { .. } => Ok(()),
            When::Cron(text) => {
                let cron = croniter::parse(text)
                    .map_err(|why| format!("invalid cron expression: {why}"))?;
                if cron.can_match() {
                    Ok(())
                } else {
                    Err("the cron expression never comes due".to_owned())
                }
            }
        }
    }
}

impl std::fmt::Display for Schedule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            queue,
            interval,
            job,
            cron,
            ..
        } = self;
        let when = match self.plan().when() {
            Ok(When::Cron(_)) => format!("cron \"{}\"", cron.escape_debug()),
            Ok(When::Every { .. }) | Err(_) => format!("every {} s", interval.escape_debug()),
        };
        let name = |key| {
            let job: Option<Value> = serde_json::from_str(job).ok();
            job.and_then(|job| Some(job.get(1)?.get(key)?.as_str()?.escape_debug().to_string()))
                .unwrap_or_default()
        };
        write!(
            f,
            "{}.{} in queue \"{}\", {when}",
            name("path"),
            name("callable"),
            queue.escape_debug()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: &str = r#"[\"run\", {\"callable\": \"record\", \"path\": \"tasks\", \"args\": [\"a\"], \"kwargs\": {}, \"class_args\": [], \"class_kwargs\": {}}]"#;

    fn read(text: &str) -> Result<Schedule, String> {
        let schedule = Schedule::read(Some(text.replace("JOB", JOB).as_bytes()))?;
        schedule.check().map(|()| schedule)
    }

    #[test]
    fn schedules_as_the_released_scheduler_stores_them() {
        let table = [
            (
                r#"["default", "guarantee", "60", "JOB", ""]"#,
                "guarantee,nohaste",
                r#"tasks.record in queue "default", every 60 s"#,
            ),
            (
                r#"["nightly", "nohaste,run_count:2", "-1", "JOB", "30 4 * * *"]"#,
                "nohaste,run_count:2",
                r#"tasks.record in queue "nightly", cron "30 4 * * *""#,
            ),
            (
                r#"["q", "", 5, "JOB", null]"#,
                "nohaste",
                r#"tasks.record in queue "q", every 5 s"#,
            ),
        ];
        for (text, headers, shown) in table {
            let schedule = read(text).unwrap();
            assert_eq!(
                (schedule.headers.as_str(), schedule.to_string().as_str()),
                (headers, shown),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_not_a_schedule_is_left_with_its_reason() {
        let table = [
            (r#"["q", "", "60", "JOB"]"#, "4 frames"),
            (r#"["q", "", "60", "JOB", "", "more"]"#, "6 frames"),
            (r#"["q", "", "soon", "JOB", ""]"#, "interval"),
            (r#"["q", "", "-1", "JOB", "61 4 * * *"]"#, "cron"),
            (r#"["q", "", "-1", "JOB", "0 0 30 2 *"]"#, ""),
            (r#"["q", "", "60", "{}", ""]"#, ""),
            (r#"["q", [], "60", "JOB", ""]"#, "not a frame"),
            ("{}", "not a list"),
            ("", "not a list"),
        ];
        for (text, why) in table {
            assert!(read(text).is_err_and(|said| said.contains(why)), "{text}");
        }
        assert!(Schedule::read(None).is_err());
    }
}
