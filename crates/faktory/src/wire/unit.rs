//! A job as a producer sends it: required and optional fields.
//!
//! Spec: "Work units". The order of checks is that of deployed servers. Fields that are not listed here are dropped.
//! Strings and numbers in `args` and `custom` keep their spelling; nothing is rounded or sorted.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::go::{self, Type};
use super::json::{self, Unexpected};
use super::number_of;
use super::time::parse_time;

/// Retries of a job that omits `retry`.
const RETRY_DEFAULT: i64 = 25;

/// Bytes of the shortest name.
const JID_BYTES_MIN: usize = 8;

/// Jobs in one list. Bounds the time to parse it.
const LIST_MAX: usize = 100_000;

const DEFAULT_QUEUE: &str = "default";

/// The fields, in the order that [`Unit::read`] expects.
const FIELDS: [&str; 13] = [
    "jid",
    "queue",
    "jobtype",
    "args",
    "custom",
    "failure",
    "created_at",
    "enqueued_at",
    "at",
    "retry",
    "reserve_for",
    "backtrace",
    "priority",
];

/// One job.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Unit<'a> {
    /// The job's name.
    pub jid: Cow<'a, str>,
    /// The job's queue.
    pub queue: Cow<'a, str>,
    /// The job's type.
    pub jobtype: Cow<'a, str>,
    /// The arguments, an array in the producer's spelling; `None` if absent.
    pub args: Option<&'a str>,
    /// A non-empty object in the producer's spelling.
    pub custom: Option<&'a str>,
    /// An earlier failure, in the producer's spelling.
    pub failure: Option<&'a str>,
    /// Time of creation; empty if absent.
    pub created_at: Cow<'a, str>,
    /// Not before this time; empty for at once.
    pub at: Cow<'a, str>,
    /// Retries. 0: delete after the first failure; negative: no retry, to the dead-letter queue.
    pub retry: i64,
    /// The producer has sent `retry`.
    pub retry_given: bool,
    /// Seconds a worker has for the job; 0 for the default.
    pub reserve_for: i64,
    /// Lines of a backtrace to keep. Only returned to workers.
    pub backtrace: i64,
    /// 1 to 9, 9 first.
    pub priority: Option<u8>,
}

/// The parsed options of a valid job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wishes<'a> {
    /// Not before this time, in milliseconds since the epoch.
    pub at_ms: Option<u64>,
    /// Reject equal jobs for this many milliseconds.
    pub unique_for_ms: Option<u64>,
    /// The unique lock ends when a worker gets the job.
    pub unique_until_start: bool,
    /// `unique_until` has no effect: a lock needs `unique_for`.
    pub is_unique_in_vain: bool,
    /// Drop the job after this.
    pub expires: Option<Expires>,
    /// Keep its progress for TRACK.
    pub track: bool,
    /// The batch it joins.
    pub bid: Option<Cow<'a, str>>,
}

/// When a job expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expires {
    /// At this time, in milliseconds since the epoch.
    At(u64),
    /// After this many milliseconds.
    In(u64),
}

impl<'a> Unit<'a> {
    /// Parses one job. [`Unit::judge`] checks it.
    ///
    /// # Errors
    /// Invalid JSON, or a value of a wrong kind. All errors here are texts for the client.
    pub fn parse(text: &'a str) -> Result<Self, String> {
        let found = json::members(text, &FIELDS).and_then(|fields| Self::read(fields, 1));
        found.map_err(|Unexpected| explained(text, Type::Struct(&go::JOB)))
    }

    /// Checks the kinds of the fields. `outside` is the depth of the job itself.
    fn read(
        fields: [Option<&'a RawValue>; FIELDS.len()],
        outside: usize,
    ) -> Result<Self, Unexpected> {
        let [
            jid,
            queue,
            jobtype,
            args,
            custom,
            failure,
            created_at,
            enqueued_at,
            at,
            retry,
            reserve_for,
            backtrace,
            priority,
        ] = fields;
        let text = |value: Option<&'a RawValue>| value.map_or(Ok(Cow::Borrowed("")), json::text);
        let int = |value: Option<&RawValue>, default| value.map_or(Ok(default), json::int);
        let of = |value: Option<&'a RawValue>, fits: fn(&RawValue) -> bool| match value {
            Some(value)
                if fits(value) && !json::is_too_deep(value.get(), outside, json::DEPTH_MAX) =>
            {
                Ok(Some(value.get()))
            }
            Some(_) => Err(Unexpected),
            None => Ok(None),
        };
        // The server sets this field, but a producer's value must be of the right kind.
        text(enqueued_at)?;
        let queue = match text(queue)? {
            empty if empty.is_empty() => Cow::Borrowed(DEFAULT_QUEUE),
            queue => queue,
        };
        let failure = of(failure, json::is_object)?;
        failure.map_or(Ok(()), check_failure)?;
        Ok(Self {
            jid: text(jid)?,
            queue,
            jobtype: text(jobtype)?,
            args: of(args, json::is_array)?,
            custom: of(custom, json::is_object)?.filter(|custom| !is_empty(custom)),
            failure,
            created_at: text(created_at)?,
            at: text(at)?,
            retry: int(retry, RETRY_DEFAULT)?,
            retry_given: retry.is_some(),
            reserve_for: int(reserve_for, 0)?,
            backtrace: int(backtrace, 0)?,
            // Invalid values are ignored: deployed servers do not have this field.
            priority: priority
                .and_then(|value| value.get().parse().ok())
                .filter(|value| (1..=9).contains(value)),
        })
    }

    /// Checks the job in the order of deployed servers, and parses its options. A worker may have it for `reserve_max_s`
    /// seconds.
    ///
    /// # Errors
    /// The first error found.
    pub fn judge(&self, reserve_max_s: i64) -> Result<Wishes<'a>, String> {
        if self.jid.len() < JID_BYTES_MIN {
            return Err("jobs must have a reasonable jid parameter".to_owned());
        }
        if number_of(&self.jid).is_some() {
            return Err("this jid is for jobs that were given none".to_owned());
        }
        self.judge_nameless(reserve_max_s)
    }

    /// Checks a recurring job's template, which must have neither a name nor times.
    ///
    /// # Errors
    /// The first error found.
    pub fn judge_template(&self, reserve_max_s: i64) -> Result<Wishes<'a>, String> {
        let given = [
            ("jid", !self.jid.is_empty()),
            ("created_at", !self.created_at.is_empty()),
            ("at", !self.at.is_empty()),
            ("failure", self.failure.is_some()),
        ];
        if let Some((key, _)) = given.into_iter().find(|(_, given)| *given) {
            return Err(no_template(key));
        }
        let wishes = self.judge_nameless(reserve_max_s)?;
        match wishes {
            Wishes {
                expires: Some(Expires::At(_)),
                ..
            } => Err(no_template("custom.expires_at")),
            Wishes { bid: Some(_), .. } => Err(no_template("custom.bid")),
            wishes => Ok(wishes),
        }
    }

    fn judge_nameless(&self, reserve_max_s: i64) -> Result<Wishes<'a>, String> {
        if self.jobtype.is_empty() {
            return Err("jobs must have a jobtype parameter".to_owned());
        }
        if self.args.is_none() {
            return Err("jobs must have an args parameter".to_owned());
        }
        if self.reserve_for > reserve_max_s {
            return Err(format!(
                "jobs cannot be reserved for more than {}",
                span(reserve_max_s)
            ));
        }
        let at_ms = match self.at.as_ref() {
            "" => None,
            at => {
                let wrong =
                    |error| format!("invalid timestamp for 'at': {}: {error}", go::quote(at));
                Some(parse_time(at).map_err(wrong)?)
            }
        };
        if !is_queue_name(self.queue.as_bytes()) {
            let name = go::quote(&self.queue);
            return Err(format!(
                "cannot get {name} queue: queue names must match \\A[a-zA-Z0-9._-]+\\z"
            ));
        }
        self.custom.map_or(
            Ok(Wishes {
                at_ms,
                ..Wishes::default()
            }),
            |custom| wishes(custom, at_ms),
        )
    }
}

/// A list of jobs in parts, so that a long list takes no more memory than a short one.
#[derive(Debug)]
pub struct List<'a> {
    /// The first jobs of the list, at most as many as requested.
    pub first: Vec<Unit<'a>>,
    /// Offset of the next job, if there is one.
    pub rest: Option<usize>,
}

impl<'a> List<'a> {
    /// Parses a whole list and keeps the beginning of it.
    ///
    /// # Errors
    /// Invalid JSON, or a value of a wrong kind anywhere in the list; too many jobs.
    pub fn parse(text: &'a str, keep_max: usize) -> Result<Self, String> {
        let (mut first, mut count) = (Vec::new(), 0);
        let read = json::elements(text, &FIELDS, |fields| {
            count += 1;
            let unit = Unit::read(fields, 2)?;
            if first.len() < keep_max {
                first.push(unit);
            }
            if count > LIST_MAX {
                Err(Unexpected)
            } else {
                Ok(())
            }
        });
        match read {
            Err(Unexpected) if count > LIST_MAX => {
                return Err(format!("more than {LIST_MAX} jobs in one list"));
            }
            Err(Unexpected) => return Err(explained(text, Type::StructSlice(&go::JOB))),
            Ok(()) => {}
        }
        let more = count > keep_max;
        let begin = text.find('[').map_or(text.len(), |at| at + 1);
        let rest = more.then(|| {
            (0..keep_max).fold(begin, |at, _| {
                json::element(text, at).map_or(text.len(), |(_, end)| end)
            })
        });
        Ok(Self { first, rest })
    }

    /// The next jobs of a list that [`List::parse`] has accepted, from the end of the last part.
    pub fn go_on(text: &'a str, from: usize, keep_max: usize) -> Self {
        let (mut first, mut at) = (Vec::new(), from);
        while first.len() < keep_max {
            let Some((value, end)) = json::element(text, at) else {
                return Self { first, rest: None };
            };
            first.extend(Unit::parse(value));
            at = end;
        }
        Self {
            first,
            rest: json::element(text, at).map(|_| at),
        }
    }
}

/// Whether a queue may have this name in FWP.
pub fn is_queue_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

fn explained(text: &str, expected: Type) -> String {
    invalid(
        &go::explain(text, expected).unwrap_or_else(|| "a string that is not Unicode".to_owned()),
    )
}

pub(super) fn invalid(reason: &str) -> String {
    format!("invalid JSON: {reason}")
}

fn no_template(key: &str) -> String {
    format!("a recurring job must not have {key}")
}

fn is_empty(object: &str) -> bool {
    object
        .get(1..object.len().saturating_sub(1))
        .is_some_and(|inner| inner.trim().is_empty())
}

fn check_failure(failure: &str) -> Result<(), Unexpected> {
    const FIELDS: [&str; 7] = [
        "failed_at",
        "next_at",
        "message",
        "errtype",
        "retry_count",
        "remaining",
        "backtrace",
    ];
    let [
        failed_at,
        next_at,
        message,
        errtype,
        retry_count,
        remaining,
        backtrace,
    ] = json::members(failure, &FIELDS)?;
    for value in [failed_at, next_at, message, errtype].into_iter().flatten() {
        json::text(value)?;
    }
    for value in [retry_count, remaining].into_iter().flatten() {
        json::int(value)?;
    }
    backtrace.map_or(Ok(()), |value| json::texts(value, 0).map(drop))
}

/// Parses the options in `custom`. Keys are case-sensitive here.
fn wishes(custom: &str, at_ms: Option<u64>) -> Result<Wishes<'_>, String> {
    let mut wishes = Wishes {
        at_ms,
        ..Wishes::default()
    };
    let mut wrong = None;
    // `custom` is a valid object already.
    let _ = json::for_each(custom, |key, value| {
        wrong = wrong.take().or_else(|| wish(key, value, &mut wishes).err());
        Ok(())
    });
    wishes.is_unique_in_vain &= wishes.unique_for_ms.is_none();
    wrong.map_or(Ok(wishes), Err)
}

/// A span in the words of deployed servers.
fn span(seconds: i64) -> String {
    if seconds == 86_400 {
        "one day".to_owned()
    } else {
        format!("{seconds} seconds")
    }
}

fn wish<'a>(key: &str, value: &'a RawValue, wishes: &mut Wishes<'a>) -> Result<(), String> {
    let wrong = |key, reason| format!("invalid custom parameter {key}: {reason}");
    if value.get() == "null" {
        return Ok(());
    }
    match key {
        "unique_for" => {
            let for_ms = seconds(value).filter(|ms| *ms >= 1_000);
            wishes.unique_for_ms =
                Some(for_ms.ok_or_else(|| {
                    wrong("unique_for", "must be a number of seconds, at least 1")
                })?);
        }
        "unique_until" => {
            wishes.is_unique_in_vain = true;
            wishes.unique_until_start = match json::text(value).as_deref() {
                Ok("start") => true,
                Ok("success") => false,
                _ => return Err(wrong("unique_until", "must be \"success\" or \"start\"")),
            };
        }
        "expires_at" => {
            let at = json::text(value).ok().and_then(|at| parse_time(&at).ok());
            wishes.expires = Some(Expires::At(
                at.ok_or_else(|| wrong("expires_at", "must be a time"))?,
            ));
        }
        "expires_in" => {
            let ms =
                seconds(value).ok_or_else(|| wrong("expires_in", "must be a number of seconds"))?;
            wishes.expires = Some(Expires::In(ms));
        }
        "track" => wishes.track = !matches!(value.get(), "0" | "false" | "\"\""),
        "bid" => {
            let bid = json::text(value).map_err(|Unexpected| wrong("bid", "must be a string"))?;
            wishes.bid = Some(bid).filter(|bid| !bid.is_empty());
        }
        _ => {}
    }
    Ok(())
}

/// A number of seconds, in milliseconds; `None` if it is negative. More than a century counts as a century.
fn seconds(value: &RawValue) -> Option<u64> {
    const YEARS_MS: f64 = 100.0 * 365.0 * 86_400_000.0;
    let ms = json::number(value).ok().filter(|seconds| *seconds >= 0.0)? * 1_000.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is between 0 and a century"
    )]
    let ms = ms.min(YEARS_MS) as u64;
    Some(ms)
}
