//! A form for a new job, empty or with the body of another one.

use std::collections::BTreeMap;

use askama::Template;
use serde_json::value::RawValue;

use super::shell::{Rendered, Shell, page};
use crate::api::jobs;
use crate::app::Shared;
use crate::params::Segments;
use crate::problem::Problem;

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
    origin: &'static str,
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
    let (mut queue, mut protocol) = (queue.to_owned(), protocol.to_owned());
    let no_number = |_| Problem::bad_request(format!("`{job}` is not a number"));
    let from = if job.is_empty() {
        None
    } else {
        Some(job.parse().map_err(no_number)?)
    };
    let (mut origin, mut body) = ("http", String::new());
    if let Some(id) = from {
        let detail = jobs::get(app, Segments(id)).await?.0;
        queue = detail.job.queue.to_string();
        origin = detail.job.protocol;
        if origin == "faktory" {
            origin.clone_into(&mut protocol);
        }
        body = detail
            .body
            .ok_or_else(|| Problem::conflict("the body is no text: a form cannot change it"))?;
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
