//! PUSH: one job.
//!
//! Spec: "`PUSH` Command", "Work units".

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use windlass_engine::{
    Backoff, Clash, Expiry, JobCommand, KeyUntil, NewJob, Past, Priority, Protocol, Retry,
    Timestamp, Unique,
};
use windlass_session::protocol::EndedJob;

use super::ask::Ask;
use super::{FaktorySpeaker, Settings, Talk, readable};
use crate::wire::{Expires, Text, Unit, Wishes, canonical, json, reply, time_text};

/// Bytes of the hash that identifies a unique job: enough to rule out collisions.
const KEY_BYTES: usize = 16;

/// How long the end of a job with `custom.track` remains readable, in milliseconds.
const TRACK_KEEP_MS: u64 = 1_800_000;

impl FaktorySpeaker {
    pub(super) fn push(&self, line: &Bytes, talk: &mut Talk<'_>) {
        let pushed = Pushed::at(talk);
        let job = Unit::parse(&readable(line))
            .and_then(|unit| new_job(&self.settings, pushed, line, &unit));
        match job {
            Ok(job) => talk.ask(
                Ask::Push {
                    bid: job.batch.clone(),
                },
                JobCommand::Push(Box::new(job)),
            ),
            Err(error) => reply::error(error, talk.bytes()),
        }
    }
}

/// The time of a push.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pushed {
    /// By the wall clock.
    wall: Timestamp,
    /// The wall clock minus the engine's.
    skew_ms: i64,
}

impl Pushed {
    /// Now.
    pub(super) const fn at(talk: &Talk<'_>) -> Self {
        Self {
            wall: talk.wall(talk.now()),
            skew_ms: talk.skew_ms(),
        }
    }

    /// A time of the wall clock. Times derived from it are the wall clock's too.
    pub(super) const fn by_wall(wall: Timestamp) -> Self {
        Self { wall, skew_ms: 0 }
    }

    /// The end of a span that begins then, by the engine's time.
    const fn after_ms(self, ms: u64) -> Timestamp {
        self.wall
            .after_ms(ms)
            .shifted(self.skew_ms.saturating_neg())
    }
}

/// The job of a work unit. `line` contains the unit.
pub(super) fn new_job(
    settings: &Settings,
    at: Pushed,
    line: &Bytes,
    unit: &Unit<'_>,
) -> Result<NewJob, String> {
    let wishes = unit.judge(settings.section.reserve_max_s())?;
    let body = Bytes::from(Text::of(unit, &time_text(at.wall.0)));
    let name = Some(part_of(line, &unit.jid));
    Ok(NewJob {
        name,
        ..asked_for(settings, at, line, unit, wishes, body)
    })
}

impl Settings {
    /// The template for the runs of a recurring job. The unit has neither a name nor times; expiry and unique locks
    /// count from each run.
    ///
    /// # Errors
    ///
    /// PUSH would reject the job, or it has a field that only a run can have.
    pub fn template(&self, text: &str) -> Result<NewJob, String> {
        let unit = Unit::parse(text)?;
        let wishes = unit.judge_template(self.section.reserve_max_s())?;
        let body = Bytes::from(Text::template(&unit));
        Ok(asked_for(
            self,
            Pushed::by_wall(Timestamp(0)),
            &Bytes::new(),
            &unit,
            wishes,
            body,
        ))
    }
}

impl Settings {
    /// The job of a work unit for this queue, which may lack its name and its queue.
    ///
    /// # Errors
    ///
    /// PUSH would reject the job, or it names another queue.
    pub fn unit(
        &self,
        queue: &str,
        name: &str,
        text: &str,
        wall: Timestamp,
        skew_ms: i64,
    ) -> Result<NewJob, String> {
        let [name, quoted] = [name, queue].map(|text| serde_json::Value::from(text).to_string());
        let rest = text
            .trim_start()
            .strip_prefix('{')
            .ok_or("a work unit is an object in JSON")?;
        // Of two members of one name the last one counts.
        let comma = if rest.trim_start().starts_with('}') {
            ""
        } else {
            ","
        };
        let line = Bytes::from(format!(r#"{{"jid":{name},"queue":{quoted}{comma}{rest}"#));
        let (text, pushed) = (readable(&line), Pushed { wall, skew_ms });
        let unit = Unit::parse(&text)?;
        if unit.queue != queue {
            return Err(format!(
                "the work unit names the queue {}, not {queue}",
                unit.queue.escape_debug()
            ));
        }
        new_job(self, pushed, &line, &unit)
    }

    /// The job of a work unit that has ended, with a new jid. All other members are as they were written.
    ///
    /// # Errors
    ///
    /// It is not a work unit, or PUSH would reject it.
    pub fn again(&self, ended: &EndedJob<'_>) -> Result<NewJob, String> {
        let mut members: BTreeMap<String, &RawValue> =
            serde_json::from_slice(&ended.body).map_err(|_| "the body is not a work unit")?;
        for old in ["jid", "queue", "created_at", "enqueued_at", "at", "failure"] {
            members.remove(old);
        }
        let text = serde_json::to_string(&members).map_err(|error| error.to_string())?;
        let queue = str::from_utf8(&ended.queue).map_err(|_| "the queue's name is not text")?;
        self.unit(queue, ended.new_name, &text, ended.wall, ended.skew_ms)
    }
}

/// The job of a unit, without its name.
fn asked_for(
    settings: &Settings,
    at: Pushed,
    line: &Bytes,
    unit: &Unit<'_>,
    wishes: Wishes<'_>,
    body: Bytes,
) -> NewJob {
    if wishes.is_unique_in_vain && settings.shared.is_new_warning(&unit.jobtype) {
        tracing::warn!(
            jobtype = &*unit.jobtype,
            "`unique_until` has no effect without `unique_for`: the job is not unique"
        );
    }
    let keep_ms = if wishes.track { TRACK_KEEP_MS } else { 0 };
    let not_before = wishes
        .at_ms
        .map(Timestamp)
        .filter(|not_before| *not_before > at.wall);
    let queue = part_of(line, &unit.queue);
    let from = Pushed {
        wall: not_before.unwrap_or(at.wall),
        ..at
    };
    NewJob {
        priority: unit.priority.map_or(Priority::NORMAL, Priority::clamped),
        unique: unique(settings, unit, &wishes, from),
        not_before,
        expires: wishes
            .expires
            .map_or(Expiry::Never, |expires| match expires {
                Expires::At(ms) => Expiry::At(Timestamp(ms)),
                Expires::In(ms) => Expiry::By(from.after_ms(ms)),
            }),
        retry: retry(unit.retry),
        retry_default: !unit.retry_given,
        lease_ms: lease_ms(settings, unit.reserve_for),
        batch: wishes
            .bid
            .as_deref()
            .map(|bid| Bytes::copy_from_slice(bid.as_bytes())),
        result_keep_ms: keep_ms,
        track_ms: keep_ms,
        past: unit
            .failure
            .filter(|_| wishes.bid.is_none())
            .map(|failure| {
                Box::new(Past {
                    failures: failures(failure),
                    ..Past::default()
                })
            }),
        ..NewJob::new(Protocol::FAKTORY, queue, body)
    }
}

/// How often a job with this failure has failed: once more than it was retried.
pub(super) fn failures(failure: &str) -> u32 {
    let found = json::members(failure, &["retry_count"]).ok();
    let count = found
        .and_then(|[count]| json::int(count?).ok())
        .unwrap_or(0);
    u32::try_from(count.max(0))
        .unwrap_or(u32::MAX - 1)
        .saturating_add(1)
}

/// A slice of `line` with this text, without a copy. A text outside of it (it had escapes) is copied.
fn part_of(line: &Bytes, text: &str) -> Bytes {
    let (whole, part) = (line.as_ptr_range(), text.as_bytes().as_ptr_range());
    let inside = whole.start <= part.start && part.end <= whole.end;
    if inside {
        line.slice_ref(text.as_bytes())
    } else {
        Bytes::copy_from_slice(text.as_bytes())
    }
}

fn retry(retries: i64) -> Retry {
    let failures_max =
        i32::try_from(retries).unwrap_or(if retries < 0 { i32::MIN } else { i32::MAX });
    Retry {
        failures_max,
        losses_max: 0,
        backoff: Backoff::Faktory,
    }
}

/// The time for the job's worker, if it differs from the default.
fn lease_ms(settings: &Settings, reserve_for: i64) -> Option<u64> {
    match reserve_for {
        0 => None,
        seconds => Some(
            u64::try_from(seconds)
                .unwrap_or(0)
                .max(settings.section.reserve_min.as_ms() / 1_000)
                * 1_000,
        ),
    }
}

/// Two jobs are equal if their jobtype, queue and values of `args` are equal, however they are spelled. The key is a
/// hash; only the hash is journalled. Arguments in canonical form, as most are, have the same hash as in older
/// versions. A key that an older version made of other arguments never matches a new job, and ends in its time.
fn unique(
    settings: &Settings,
    unit: &Unit<'_>,
    wishes: &Wishes<'_>,
    from: Pushed,
) -> Option<Unique> {
    let end = from.after_ms(wishes.unique_for_ms?);
    let args = unit.args.unwrap_or_default();
    let args = if args.len() <= settings.section.unique_args_bytes_max.bytes() {
        canonical(args)
    } else {
        compact(args)
    };
    let hash = Sha256::new()
        .chain_update(unit.jobtype.as_bytes())
        .chain_update([0])
        .chain_update(&args)
        .finalize();
    let key = Bytes::copy_from_slice(hash.get(..KEY_BYTES).unwrap_or_default());
    let until = if wishes.unique_until_start {
        KeyUntil::StartOr(end)
    } else {
        KeyUntil::EndOr(end)
    };
    Some(Unique {
        key,
        clash: Clash::Refuse,
        until,
    })
}

fn compact(args: &str) -> Vec<u8> {
    let mut out = Vec::new();
    json::compact_into(args, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use windlass_config::ByteSize;

    use super::*;
    use crate::config::Faktory;

    #[test]
    fn a_job_without_retry_gets_the_default_of_its_queue() {
        let table = [
            ("", true),
            (r#","retry":null"#, true),
            (r#","retry":25"#, false),
            (r#","Retry":0"#, false),
        ];
        for (retry, expected) in table {
            let text = format!(r#"{{"jobtype":"t","args":[]{retry}}}"#);
            let job = Settings::new(Faktory::default(), Timestamp(0))
                .template(&text)
                .unwrap();
            assert_eq!(job.retry_default, expected, "{text}");
        }
    }

    fn key(settings: &Settings, args: &str) -> Bytes {
        let text = format!(r#"{{"jobtype":"t","args":{args},"custom":{{"unique_for":60}}}}"#);
        settings.template(&text).unwrap().unique.unwrap().key
    }

    #[test]
    fn keys_of_older_versions_match_arguments_in_canonical_form() {
        let before = |args: &str| {
            let hash = Sha256::new()
                .chain_update(b"t\0")
                .chain_update(compact(args))
                .finalize();
            Bytes::copy_from_slice(hash.get(..KEY_BYTES).unwrap())
        };
        let settings = Settings::new(Faktory::default(), Timestamp(0));
        for args in [
            "[]",
            "[ 1, \"a b\" ]",
            r#"["é/",{"a":[-1.5],"b":null},12345678901234567890]"#,
        ] {
            assert_eq!(key(&settings, args), before(args), "{args}");
        }
        assert_ne!(key(&settings, "[1.0]"), before("[1.0]"));
    }

    #[test]
    fn arguments_beyond_the_limit_are_compared_by_their_text() {
        let settings = Settings::new(
            Faktory {
                unique_args_bytes_max: ByteSize(5),
                ..Faktory::default()
            },
            Timestamp(0),
        );
        assert_eq!(key(&settings, "[1.0]"), key(&settings, "[1]"));
        assert_ne!(key(&settings, "[1.00]"), key(&settings, "[1]"));
    }
}
