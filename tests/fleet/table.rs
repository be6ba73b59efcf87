//! The rows: who submits, who works, what happens; what the producer hears of it, in its own protocol's words, and where the job ends.
//!
//! What a worker is given stands in `payloads.rs`, and how each condition is brought about in `scenes.rs`.

use crate::peers::Protocol::{self, Eventmq, Faktory, Gearman};

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    /// It is done, and there is a result.
    Done,
    /// It fails once.
    Failed,
    /// It fails as often as its own protocol lets it.
    RetriedToDeath,
    /// The worker's connection is lost.
    WorkerDied,
    /// The worker says nothing any more.
    LeaseExpired,
    /// The worker says how far it is: 1 of 4.
    Progress,
    /// The same job is submitted twice.
    UniqueClash,
    /// The payload is no text, or not as anybody would write it.
    BinaryPayload,
    /// The queue is called as FWP's cannot be: `no fwp/größe …`.
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

/// What comes of it.
#[derive(Debug, Clone, Copy)]
pub enum Cell {
    /// What the producer hears behind the acceptance of its job, word by word, and what `JOB GET` then shows of it.
    Ends(&'static [&'static str], &'static [&'static str]),
    /// The producer's job is not taken, in these words.
    Refused(&'static str),
    /// There is no such thing, and why.
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

/// Nobody knows it any more.
pub const GONE: &[&str] = &["gone"];
/// A tracked job of FWP's is known for a while.
const SUCCESS: &[&str] = &["\"state\":\"success\""];

/// Every row, by condition.
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
        rows.map(|(from, to, cell)| Row { from, to, condition, cell })
    };
    Condition::ALL.into_iter().flat_map(of).collect()
}

/// What a producer hears of a job that was done.
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
    (Eventmq, Gearman, Ends(&[r#"REPLY {"value": "three eggs"}"#], GONE)),
    (Eventmq, Faktory, Ends(&[r#"REPLY {"value": "three eggs"}"#], GONE)),
    (Eventmq, Eventmq, Ends(&[r#"REPLY {"value": "three eggs"}"#], GONE)),
];

/// FWP's jobs are tried again, the others' failures are final.
const FAILED: Rows = [
    (Gearman, Gearman, Ends(&["WORK_EXCEPTION burnt"], GONE)),
    (Gearman, Faktory, Ends(&["WORK_EXCEPTION burnt"], GONE)),
    (Gearman, Eventmq, Ends(&["WORK_EXCEPTION TimeoutError"], GONE)),
    (Faktory, Gearman, Ends(&["failed"], &[RETRYING, r#""errtype":"GearmanException""#, r#""message":"burnt""#])),
    (Faktory, Faktory, Ends(&["failed"], &[RETRYING, r#""errtype":"Burnt""#, r#""message":"burnt""#])),
    (Faktory, Eventmq, Ends(&["failed"], &[RETRYING, r#""errtype":"TimeoutError""#])),
    (Eventmq, Gearman, Ends(&[r#"REPLY {"value": "burnt"}"#], &[DEAD, r#""errtype":"GearmanException""#])),
    (Eventmq, Faktory, Ends(&[r#"REPLY {"value": "burnt"}"#], &[DEAD, r#""errtype":"Burnt""#])),
    (Eventmq, Eventmq, Ends(&[r#"REPLY {"value": "TimeoutError"}"#], &[DEAD, r#""errtype":"TimeoutError""#])),
];

const RETRYING: &str = r#""state":"retrying""#;
const DEAD: &str = r#""state":"dead""#;
const ONCE: &str = r#""failures":1"#;
const TWICE: &str = r#""failures":2"#;

/// A background job of Gearman's, for which no client waits; `retry` 1; `retry-count:1`.
const RETRIED_TO_DEATH: Rows = [
    (Gearman, Gearman, Ends(&["STATUS_RES 0 0 0 0"], &[DEAD, ONCE, r#""errtype":"GearmanFail""#])),
    (Gearman, Faktory, Ends(&["STATUS_RES 0 0 0 0"], &[DEAD, ONCE, r#""errtype":"Burnt""#])),
    (Gearman, Eventmq, Ends(&["STATUS_RES 0 0 0 0"], &[DEAD, ONCE, r#""errtype":"TimeoutError""#])),
    (Faktory, Gearman, Ends(&["dead"], &[DEAD, TWICE, r#""errtype":"GearmanFail""#])),
    (Faktory, Faktory, Ends(&["dead"], &[DEAD, TWICE, r#""errtype":"Burnt""#])),
    (Faktory, Eventmq, Ends(&["dead"], &[DEAD, TWICE, r#""errtype":"TimeoutError""#])),
    (Eventmq, Gearman, Ends(&[r#"REPLY {"value": "GearmanFail"}"#], &[DEAD, TWICE, r#""errtype":"GearmanFail""#])),
    // An empty message is FWP's "unknown".
    (Eventmq, Faktory, Ends(&[r#"REPLY {"value": "unknown"}"#], &[DEAD, TWICE, r#""errtype":"Burnt""#])),
    (Eventmq, Eventmq, Ends(&[r#"REPLY {"value": "TimeoutError"}"#], &[DEAD, TWICE, r#""errtype":"TimeoutError""#])),
];

/// Another worker gets it at once. But FWP's own jobs are their workers' by name: the lease runs on, and any connection may say what
/// became of the job.
const WORKER_DIED: Rows = DONE;

/// With `CAN_DO_TIMEOUT`, `reserve_for`, `timeout:1` or `eventmq.lease`.
const LEASE_EXPIRED: Rows = [
    (Gearman, Gearman, Ends(&["WORK_FAIL"], GONE)),
    (
        Gearman,
        Faktory,
        None("a worker of FWP's has half an hour for a job that says nothing else, and Gearman's say nothing"),
    ),
    // No failure: another worker gets it.
    (Gearman, Eventmq, Ends(&["WORK_COMPLETE three eggs"], GONE)),
    (Faktory, Gearman, Ends(&["failed"], &[RETRYING, EXPIRED])),
    (Faktory, Faktory, Ends(&["failed"], &[RETRYING, EXPIRED])),
    (Faktory, Eventmq, Ends(&["failed"], &[RETRYING, EXPIRED])),
    (Eventmq, Gearman, Ends(&[r#"REPLY {"value": "TimeoutError"}"#], &[DEAD, EXPIRED])),
    (Eventmq, Faktory, Ends(&[r#"REPLY {"value": "TimeoutError"}"#], &[DEAD, EXPIRED])),
    (Eventmq, Eventmq, Ends(&[r#"REPLY {"value": "TimeoutError"}"#], &[DEAD, EXPIRED])),
];

const EXPIRED: &str = r#""errtype":"ReservationExpired""#;

const SILENT: Cell = None("a worker of EventMQ's has no word for progress");

const PROGRESS: Rows = [
    (Gearman, Gearman, Ends(&["WORK_STATUS 1 4", "WORK_COMPLETE three eggs"], GONE)),
    (Gearman, Faktory, Ends(&["WORK_STATUS 25 100", "WORK_COMPLETE three eggs"], GONE)),
    (Gearman, Eventmq, SILENT),
    (Faktory, Gearman, Ends(&["25%", "success three eggs"], SUCCESS)),
    (Faktory, Faktory, Ends(&["25%", "success three eggs"], SUCCESS)),
    (Faktory, Eventmq, SILENT),
    // Nor has its client: it hears the end alone.
    (Eventmq, Gearman, Ends(&[r#"REPLY {"value": "three eggs"}"#], GONE)),
    (Eventmq, Faktory, Ends(&[r#"REPLY {"value": "three eggs"}"#], GONE)),
    (Eventmq, Eventmq, SILENT),
];

/// What both producers hear of the one job: the second is attached to it, or refused.
const UNIQUE_CLASH: Rows = DONE;

const BINARY_PAYLOAD: Rows = [
    (Gearman, Gearman, Ends(&["WORK_COMPLETE three eggs"], GONE)),
    (Gearman, Faktory, Ends(&["WORK_COMPLETE three eggs"], GONE)),
    // It waits for a worker who can have it, and one comes.
    (Gearman, Eventmq, Ends(&["WORK_COMPLETE three eggs"], GONE)),
    (Faktory, Gearman, Ends(&["success three eggs"], SUCCESS)),
    (Faktory, Faktory, Ends(&["success three eggs"], SUCCESS)),
    (Faktory, Eventmq, Ends(&["success three eggs"], SUCCESS)),
    (Eventmq, Gearman, Ends(&[r#"REPLY {"value": "three eggs"}"#], GONE)),
    (Eventmq, Faktory, Ends(&[r#"REPLY {"value": "three eggs"}"#], GONE)),
    (Eventmq, Eventmq, Ends(&[r#"REPLY {"value": "three eggs"}"#], GONE)),
];

const UNSPEAKABLE: Cell = Refused("queue names must match");

/// A worker of FWP's never gets such a job: it stays for workers of its own protocol.
const ILLEGAL_NAME: Rows = [
    (Gearman, Gearman, Ends(&["WORK_COMPLETE three eggs"], GONE)),
    (Gearman, Faktory, Ends(&["WORK_COMPLETE three eggs"], GONE)),
    (Gearman, Eventmq, Ends(&["WORK_COMPLETE three eggs"], GONE)),
    (Faktory, Gearman, UNSPEAKABLE),
    (Faktory, Faktory, UNSPEAKABLE),
    (Faktory, Eventmq, UNSPEAKABLE),
    (Eventmq, Gearman, Ends(&[r#"REPLY {"value": "three eggs"}"#], GONE)),
    (Eventmq, Faktory, Ends(&[r#"REPLY {"value": "three eggs"}"#], GONE)),
    (Eventmq, Eventmq, Ends(&[r#"REPLY {"value": "three eggs"}"#], GONE)),
];
