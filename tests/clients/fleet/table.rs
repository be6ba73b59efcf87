//! The rows: the producer's protocol, the worker's protocol and a condition; what the producer receives, in its own
//! protocol, and the final state of the job.
//!
//! `payloads.rs` has the payloads that workers receive, and `scenes.rs` the steps for each condition.

use super::peers::Protocol::{self, Eventmq, Faktory, Gearman};

/// The condition of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    /// The job is completed with a result.
    Done,
    /// It fails once.
    Failed,
    /// It fails as often as its own protocol allows.
    RetriedToDeath,
    /// The worker's connection breaks.
    WorkerDied,
    /// The worker falls silent.
    LeaseExpired,
    /// The worker reports its progress: 1 of 4.
    Progress,
    /// The same job is submitted twice.
    UniqueClash,
    /// The payload is not text, or is in an unusual form.
    BinaryPayload,
    /// The queue has a name that FWP does not allow: `no fwp/größe …`.
    IllegalName,
}

impl Condition {
    pub const ALL: [Self; 9] = [
        Self::Done,
        Self::Failed,
        Self::RetriedToDeath,
        Self::WorkerDied,
        Self::LeaseExpired,
        Self::Progress,
        Self::UniqueClash,
        Self::BinaryPayload,
        Self::IllegalName,
    ];
}

/// The expected outcome.
#[derive(Debug, Clone, Copy)]
pub enum Cell {
    /// The messages that the producer receives after the job is accepted, and the texts that `JOB GET` then shows.
    Ends(&'static [&'static str], &'static [&'static str]),
    /// The job is refused, with this text.
    Refused(&'static str),
    /// The condition is impossible here, with the reason.
    None(&'static str),
}

use Cell::{Ends, None, Refused};

/// A row.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub from: Protocol,
    pub to: Protocol,
    pub condition: Condition,
    pub cell: Cell,
}

/// The job no longer exists.
pub const GONE: &[&str] = &["gone"];
/// FWP keeps a tracked job for a while.
const SUCCESS: &[&str] = &["\"state\":\"success\""];

/// All rows, by condition.
pub fn rows() -> Vec<Row> {
    let of = |condition: Condition| {
        let rows = match condition {
            Condition::Done => DONE,
            Condition::Failed => FAILED,
            Condition::RetriedToDeath => RETRIED_TO_DEATH,
            Condition::WorkerDied => WORKER_DIED,
            Condition::LeaseExpired => LEASE_EXPIRED,
            Condition::Progress => PROGRESS,
            Condition::UniqueClash => UNIQUE_CLASH,
            Condition::BinaryPayload => BINARY_PAYLOAD,
            Condition::IllegalName => ILLEGAL_NAME,
        };
        rows.map(|(from, to, cell)| Row {
            from,
            to,
            condition,
            cell,
        })
    };
    Condition::ALL.into_iter().flat_map(of).collect()
}

/// The messages that a producer receives for a completed job.
pub fn done(from: Protocol) -> &'static [&'static str] {
    match from {
        Gearman => &["WORK_COMPLETE three eggs"],
        Faktory => &["success three eggs"],
        Eventmq => &[r#"REPLY {"value": "three eggs"}"#],
    }
}

type Rows = [(Protocol, Protocol, Cell); 9];

const DONE: Rows = [
    (Gearman, Gearman, Ends(&["WORK_COMPLETE three eggs"], GONE)),
    (Gearman, Faktory, Ends(&["WORK_COMPLETE three eggs"], GONE)),
    (Gearman, Eventmq, Ends(&["WORK_COMPLETE three eggs"], GONE)),
    (Faktory, Gearman, Ends(&["success three eggs"], SUCCESS)),
    (Faktory, Faktory, Ends(&["success three eggs"], SUCCESS)),
    (Faktory, Eventmq, Ends(&["success three eggs"], SUCCESS)),
    (
        Eventmq,
        Gearman,
        Ends(&[r#"REPLY {"value": "three eggs"}"#], GONE),
    ),
    (
        Eventmq,
        Faktory,
        Ends(&[r#"REPLY {"value": "three eggs"}"#], GONE),
    ),
    (
        Eventmq,
        Eventmq,
        Ends(&[r#"REPLY {"value": "three eggs"}"#], GONE),
    ),
];

/// FWP's jobs are retried; failures of the others are final.
const FAILED: Rows = [
    (Gearman, Gearman, Ends(&["WORK_EXCEPTION burnt"], GONE)),
    (Gearman, Faktory, Ends(&["WORK_EXCEPTION burnt"], GONE)),
    (
        Gearman,
        Eventmq,
        Ends(&["WORK_EXCEPTION TimeoutError"], GONE),
    ),
    (
        Faktory,
        Gearman,
        Ends(
            &["failed"],
            &[
                RETRYING,
                r#""errtype":"GearmanException""#,
                r#""message":"burnt""#,
            ],
        ),
    ),
    (
        Faktory,
        Faktory,
        Ends(
            &["failed"],
            &[RETRYING, r#""errtype":"Burnt""#, r#""message":"burnt""#],
        ),
    ),
    (
        Faktory,
        Eventmq,
        Ends(&["failed"], &[RETRYING, r#""errtype":"TimeoutError""#]),
    ),
    (
        Eventmq,
        Gearman,
        Ends(
            &[r#"REPLY {"value": "burnt"}"#],
            &[DEAD, r#""errtype":"GearmanException""#],
        ),
    ),
    (
        Eventmq,
        Faktory,
        Ends(
            &[r#"REPLY {"value": "burnt"}"#],
            &[DEAD, r#""errtype":"Burnt""#],
        ),
    ),
    (
        Eventmq,
        Eventmq,
        Ends(
            &[r#"REPLY {"value": "TimeoutError"}"#],
            &[DEAD, r#""errtype":"TimeoutError""#],
        ),
    ),
];

const RETRYING: &str = r#""state":"retrying""#;
const DEAD: &str = r#""state":"dead""#;
const ONCE: &str = r#""failures":1"#;
const TWICE: &str = r#""failures":2"#;

/// A Gearman background job, for which no client waits; `retry` 1; `retry-count:1`.
const RETRIED_TO_DEATH: Rows = [
    (
        Gearman,
        Gearman,
        Ends(
            &["STATUS_RES 0 0 0 0"],
            &[DEAD, ONCE, r#""errtype":"GearmanFail""#],
        ),
    ),
    (
        Gearman,
        Faktory,
        Ends(
            &["STATUS_RES 0 0 0 0"],
            &[DEAD, ONCE, r#""errtype":"Burnt""#],
        ),
    ),
    (
        Gearman,
        Eventmq,
        Ends(
            &["STATUS_RES 0 0 0 0"],
            &[DEAD, ONCE, r#""errtype":"TimeoutError""#],
        ),
    ),
    (
        Faktory,
        Gearman,
        Ends(&["dead"], &[DEAD, TWICE, r#""errtype":"GearmanFail""#]),
    ),
    (
        Faktory,
        Faktory,
        Ends(&["dead"], &[DEAD, TWICE, r#""errtype":"Burnt""#]),
    ),
    (
        Faktory,
        Eventmq,
        Ends(&["dead"], &[DEAD, TWICE, r#""errtype":"TimeoutError""#]),
    ),
    (
        Eventmq,
        Gearman,
        Ends(
            &[r#"REPLY {"value": "GearmanFail"}"#],
            &[DEAD, TWICE, r#""errtype":"GearmanFail""#],
        ),
    ),
    // An empty message is FWP's "unknown".
    (
        Eventmq,
        Faktory,
        Ends(
            &[r#"REPLY {"value": "unknown"}"#],
            &[DEAD, TWICE, r#""errtype":"Burnt""#],
        ),
    ),
    (
        Eventmq,
        Eventmq,
        Ends(
            &[r#"REPLY {"value": "TimeoutError"}"#],
            &[DEAD, TWICE, r#""errtype":"TimeoutError""#],
        ),
    ),
];

/// Another worker gets the job at once. But a worker holds FWP's own jobs by name: the lease continues, and any
/// connection may report the job's end.
const WORKER_DIED: Rows = DONE;

/// With `CAN_DO_TIMEOUT`, `reserve_for`, `timeout:1` or `eventmq.lease`.
const LEASE_EXPIRED: Rows = [
    (Gearman, Gearman, Ends(&["WORK_FAIL"], GONE)),
    (
        Gearman,
        Faktory,
        None(
            "an FWP worker has half an hour by default, and Gearman's jobs have no lease of their own",
        ),
    ),
    // Not a failure: another worker gets it.
    (Gearman, Eventmq, Ends(&["WORK_COMPLETE three eggs"], GONE)),
    (Faktory, Gearman, Ends(&["failed"], &[RETRYING, EXPIRED])),
    (Faktory, Faktory, Ends(&["failed"], &[RETRYING, EXPIRED])),
    (Faktory, Eventmq, Ends(&["failed"], &[RETRYING, EXPIRED])),
    (
        Eventmq,
        Gearman,
        Ends(&[r#"REPLY {"value": "TimeoutError"}"#], &[DEAD, EXPIRED]),
    ),
    (
        Eventmq,
        Faktory,
        Ends(&[r#"REPLY {"value": "TimeoutError"}"#], &[DEAD, EXPIRED]),
    ),
    (
        Eventmq,
        Eventmq,
        Ends(&[r#"REPLY {"value": "TimeoutError"}"#], &[DEAD, EXPIRED]),
    ),
];

const EXPIRED: &str = r#""errtype":"ReservationExpired""#;

const SILENT: Cell = None("an EventMQ worker cannot report progress");

const PROGRESS: Rows = [
    (
        Gearman,
        Gearman,
        Ends(&["WORK_STATUS 1 4", "WORK_COMPLETE three eggs"], GONE),
    ),
    (
        Gearman,
        Faktory,
        Ends(&["WORK_STATUS 25 100", "WORK_COMPLETE three eggs"], GONE),
    ),
    (Gearman, Eventmq, SILENT),
    (
        Faktory,
        Gearman,
        Ends(&["25%", "success three eggs"], SUCCESS),
    ),
    (
        Faktory,
        Faktory,
        Ends(&["25%", "success three eggs"], SUCCESS),
    ),
    (Faktory, Eventmq, SILENT),
    // EventMQ's client has no message for progress: it receives only the end.
    (
        Eventmq,
        Gearman,
        Ends(&[r#"REPLY {"value": "three eggs"}"#], GONE),
    ),
    (
        Eventmq,
        Faktory,
        Ends(&[r#"REPLY {"value": "three eggs"}"#], GONE),
    ),
    (Eventmq, Eventmq, SILENT),
];

/// The messages that both producers receive for the one job: the second is attached to it, or refused.
const UNIQUE_CLASH: Rows = DONE;

const BINARY_PAYLOAD: Rows = [
    (Gearman, Gearman, Ends(&["WORK_COMPLETE three eggs"], GONE)),
    (Gearman, Faktory, Ends(&["WORK_COMPLETE three eggs"], GONE)),
    // The job waits until a worker that can have it connects.
    (Gearman, Eventmq, Ends(&["WORK_COMPLETE three eggs"], GONE)),
    (Faktory, Gearman, Ends(&["success three eggs"], SUCCESS)),
    (Faktory, Faktory, Ends(&["success three eggs"], SUCCESS)),
    (Faktory, Eventmq, Ends(&["success three eggs"], SUCCESS)),
    (
        Eventmq,
        Gearman,
        Ends(&[r#"REPLY {"value": "three eggs"}"#], GONE),
    ),
    (
        Eventmq,
        Faktory,
        Ends(&[r#"REPLY {"value": "three eggs"}"#], GONE),
    ),
    (
        Eventmq,
        Eventmq,
        Ends(&[r#"REPLY {"value": "three eggs"}"#], GONE),
    ),
];

const UNSPEAKABLE: Cell = Refused("queue names must match");

/// An FWP worker never gets such a job: it stays for workers of its own protocol.
const ILLEGAL_NAME: Rows = [
    (Gearman, Gearman, Ends(&["WORK_COMPLETE three eggs"], GONE)),
    (Gearman, Faktory, Ends(&["WORK_COMPLETE three eggs"], GONE)),
    (Gearman, Eventmq, Ends(&["WORK_COMPLETE three eggs"], GONE)),
    (Faktory, Gearman, UNSPEAKABLE),
    (Faktory, Faktory, UNSPEAKABLE),
    (Faktory, Eventmq, UNSPEAKABLE),
    (
        Eventmq,
        Gearman,
        Ends(&[r#"REPLY {"value": "three eggs"}"#], GONE),
    ),
    (
        Eventmq,
        Faktory,
        Ends(&[r#"REPLY {"value": "three eggs"}"#], GONE),
    ),
    (
        Eventmq,
        Eventmq,
        Ends(&[r#"REPLY {"value": "three eggs"}"#], GONE),
    ),
];
