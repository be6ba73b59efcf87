//! A form for a new job, empty or with the body of another one.

use std::collections::BTreeMap;

use askama::Template;
use serde_json::value::RawValue;

use super::shell::{Rendered, Shell, page};
use crate::api::{ended, jobs};
use crate::app::Shared;
use crate::params::Segments;
use crate::problem::{Outcome, Problem};
use crate::sight::Sight;

/// Members of a work unit that are not copied from an old job to a new one, and members with separate fields
/// in the form.
const OWN: [&str; 10] = [
    "jid",
    "queue",
    "created_at",
    "enqueued_at",
    "at",
    "failure",
    "jobtype",
    "args",
    "custom",
    "priority",
];

#[derive(Debug, Template)]
#[template(path = "push.html")]
struct Push {
    shell: Shell,
    from: Option<u64>,
    /// The protocol of that job.
    origin: String,
    /// True if the new job is one of FWP.
    is_unit: bool,
    queue: String,
    body: String,
    unit: Unit,
}

/// A work unit in parts, each as it is written.
#[derive(Debug, Default)]
struct Unit {
    jobtype: String,
    args: String,
    custom: String,
    priority: String,
    /// All other members, as an object.
    rest: String,
}

/// The form. `job` is the job with the body to copy, `as` the protocol.
pub(super) async fn show(shell: Shell, app: Shared) -> Rendered {
    let [job, queue, protocol] = ["job", "queue", "as"].map(|name| shell.given(name));
    let mut protocol = protocol.to_owned();
    let no_number = |_| Problem::bad_request(format!("`{job}` is not a number"));
    let from = if job.is_empty() {
        None
    } else {
        Some(job.parse().map_err(no_number)?)
    };
    let ended = shell.given("ended");
    let copied = if let Some(id) = from {
        Copied::of_job(&app, shell.sight, id).await?
    } else if !ended.is_empty() {
        Copied::of_ended(&app, shell.sight, ended).await?
    } else {
        Copied {
            from,
            origin: "http".to_owned(),
            queue: queue.to_owned(),
            body: String::new(),
        }
    };
    let Copied {
        from,
        origin,
        queue,
        body,
    } = copied;
    if from.is_some() && origin == "faktory" {
        protocol.clone_from(&origin);
    }
    let is_unit = protocol == "faktory";
    let unit = if is_unit {
        Unit::of(&body).unwrap_or_default()
    } else {
        Unit::default()
    };
    page(&Push {
        shell,
        from,
        origin,
        is_unit,
        queue,
        body,
        unit,
    })
}

/// The job with the body to copy.
struct Copied {
    from: Option<u64>,
    origin: String,
    queue: String,
    body: String,
}

impl Copied {
    async fn of_job(app: &Shared, sight: Sight, id: u64) -> Outcome<Self> {
        let detail = jobs::get(app.clone(), sight, Segments(id)).await?.0;
        let no_text = || Problem::conflict("the body is no text: a form cannot change it");
        Ok(Self {
            from: Some(id),
            origin: detail.job.protocol.to_owned(),
            queue: detail.job.queue.to_string(),
            body: detail.body.ok_or_else(no_text)?,
        })
    }

    /// A job that has ended, of which the history has all of the body.
    async fn of_ended(app: &Shared, sight: Sight, place: &str) -> Outcome<Self> {
        let place = place.parse().map_err(Problem::bad_request)?;
        let row = ended::get(app.clone(), sight, Segments(place)).await?.0;
        let kept = row.body.filter(|kept| kept.is_complete);
        let body = kept.and_then(|kept| kept.text).ok_or_else(|| {
            Problem::conflict("the history has no body of this job, only a part of it, or no text")
        })?;
        Ok(Self {
            from: Some(row.job),
            origin: row.protocol,
            queue: row.queue.to_string(),
            body,
        })
    }
}

impl Unit {
    fn of(body: &str) -> Option<Self> {
        let mut members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(body).ok()?;
        let mut text = |name: &str| {
            members
                .remove(name)
                .map_or_else(String::new, |value| value.get().to_owned())
        };
        let [jobtype, args, custom, priority] =
            ["jobtype", "args", "custom", "priority"].map(&mut text);
        members.retain(|name, _| !OWN.contains(&name.as_str()));
        let rest = serde_json::to_string(&members).ok()?;
        Some(Self {
            jobtype: serde_json::from_str(&jobtype).ok()?,
            args,
            custom,
            priority,
            rest,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_taken_apart_and_not_rewritten() {
        let body = r#"{"retry":25,"custom":{"a":1.0},"jid":"jid-0001","queue":"q","jobtype":"Ma\u0069l","created_at":"x",
            "args":[12345678901234567890, "\u00e9"],"reserve_for":60,"priority":7}"#;
        let unit = Unit::of(body).unwrap();
        let Unit {
            jobtype,
            args,
            custom,
            priority,
            rest,
        } = unit;
        assert_eq!(
            (jobtype.as_str(), args.as_str()),
            ("Mail", r#"[12345678901234567890, "\u00e9"]"#)
        );
        assert_eq!((custom.as_str(), priority.as_str()), (r#"{"a":1.0}"#, "7"));
        assert_eq!(rest, r#"{"reserve_for":60,"retry":25}"#);
        assert!(Unit::of("[]").is_none() && Unit::of("{").is_none());
    }
}
