//! Maps the engine's refusals to Gearman's errors. The codec refuses malformed packets itself (`wire::refusal`).
//!
//! Rules: `PROTOCOL`, "ERROR", names no code. Errors that gearmand also has are identical to gearmand's.

use windlass_engine::{Capacity, Refusal, Thing};

use super::ask::{DATA, EXCEPTION};
use crate::wire::ErrorReply;

/// A worker's function name contains a NUL: no job could be submitted to it or assigned.
pub(super) const FUNCTION_WITH_NUL: ErrorReply = ErrorReply {
    code: "INVALID_ARGUMENTS",
    text: "Function name holds a NUL",
};
pub(super) const FUNCTIONS_FULL: ErrorReply = ErrorReply {
    code: "QUEUE_ERROR",
    text: "Too many functions",
};
/// A workload longer than the function's queue allows.
pub(super) const WORKLOAD_TOO_LARGE: ErrorReply = ErrorReply {
    code: "ARGUMENT_TOO_LARGE",
    text: "Workload is too large for this function",
};
pub(super) const WRONG_KIND: ErrorReply = ErrorReply {
    code: "INVALID_ARGUMENTS",
    text: "Function name belongs to a queue of another kind",
};

pub(super) const SCHEDULES_FULL: ErrorReply = ErrorReply {
    code: "QUEUE_ERROR",
    text: "Too many schedules",
};
/// A job while the disk has no room for it.
pub(super) const DISK_FULL: ErrorReply = ErrorReply {
    code: "QUEUE_ERROR",
    text: "Disk full",
};
/// A SUBMIT_JOB_SCHED for 31 February.
pub(super) const NEVER_DUE: ErrorReply = ErrorReply {
    code: "INVALID_ARGUMENTS",
    text: "Schedule never comes due: no month of it has such a day",
};

/// The answer to a refused packet. `not_held` is the one for a job that the worker does not hold.
pub(super) const fn reply(not_held: ErrorReply, why: Refusal) -> ErrorReply {
    match why {
        Refusal::NotFound(Thing::Job) | Refusal::NotHeld => not_held,
        Refusal::Limit { what, .. } => over(what),
        Refusal::NotPermitted => ErrorReply::NOT_PERMITTED,
        Refusal::NeverDue => NEVER_DUE,
        Refusal::WrongKind => WRONG_KIND,
        Refusal::DiskFull => DISK_FULL,
        Refusal::NotFound(
            Thing::Schedule
            | Thing::Batch
            | Thing::Queue
            | Thing::Worker
            | Thing::Client
            | Thing::Namespace,
        )
        | Refusal::NotUnique
        | Refusal::InUse
        | Refusal::OutOfPlace
        | Refusal::Unavailable
        | Refusal::Unknown => ErrorReply::QUEUE_ERROR,
    }
}

/// The answer to a packet that exceeds a limit.
const fn over(what: Capacity) -> ErrorReply {
    match what {
        Capacity::QueueJobs
        | Capacity::KeyJobs
        | Capacity::Jobs
        | Capacity::JobBytes
        | Capacity::NamespaceJobs
        | Capacity::NamespaceBytes
        | Capacity::NamespaceClients
        | Capacity::NamespacePushes => ErrorReply::QUEUE_FULL,
        Capacity::Queues
        | Capacity::Subscriptions
        | Capacity::NamespaceQueues
        | Capacity::Namespaces => FUNCTIONS_FULL,
        Capacity::Schedules => SCHEDULES_FULL,
        Capacity::NameBytes => ErrorReply::FUNCTION_TOO_LARGE,
        Capacity::BodyBytes => WORKLOAD_TOO_LARGE,
        Capacity::Batches | Capacity::BatchDepth => ErrorReply::QUEUE_ERROR,
    }
}

/// The answer to a worker that reports on a job it does not hold: one text for each kind of packet.
pub(super) const fn not_held(code: u64) -> ErrorReply {
    match code {
        DATA => ErrorReply::JOB_NOT_FOUND_FOR_DATA,
        EXCEPTION => ErrorReply::JOB_NOT_FOUND_FOR_EXCEPTION,
        _ => ErrorReply::JOB_NOT_FOUND_FOR_RESULT,
    }
}
