//! Maps the engine's refusals to Gearman's errors. The codec refuses malformed packets itself (`wire::refusal`).
//!
//! Rules: `PROTOCOL`, "ERROR", names no code. Errors that gearmand also has are identical to gearmand's.

use windlass_engine::Refusal;

use super::ask::Ask;
use crate::wire::ErrorReply;

/// A worker's function name contains a NUL: no job could be submitted to it or assigned.
pub(super) const FUNCTION_WITH_NUL: ErrorReply =
    ErrorReply { code: "INVALID_ARGUMENTS", text: "Function name holds a NUL" };
pub(super) const FUNCTIONS_FULL: ErrorReply = ErrorReply { code: "QUEUE_ERROR", text: "Too many functions" };
/// A workload longer than the function's queue allows.
pub(super) const WORKLOAD_TOO_LARGE: ErrorReply =
    ErrorReply { code: "ARGUMENT_TOO_LARGE", text: "Workload is too large for this function" };
pub(super) const WRONG_KIND: ErrorReply =
    ErrorReply { code: "INVALID_ARGUMENTS", text: "Function name belongs to a queue of another kind" };

pub(super) const SCHEDULES_FULL: ErrorReply = ErrorReply { code: "QUEUE_ERROR", text: "Too many schedules" };
/// A SUBMIT_JOB_SCHED for 31 February.
pub(super) const NEVER_DUE: ErrorReply =
    ErrorReply { code: "INVALID_ARGUMENTS", text: "Schedule never comes due: no month of it has such a day" };

/// The answer to a refused packet.
pub(super) const fn reply(ask: Ask, why: Refusal) -> ErrorReply {
    match why {
        Refusal::UnknownJob | Refusal::NotHeld => not_held(ask),
        Refusal::QueueFull { .. } | Refusal::JobsFull { .. } | Refusal::BytesFull { .. } => ErrorReply::QUEUE_FULL,
        Refusal::QueuesFull { .. } | Refusal::AbilitiesFull { .. } => FUNCTIONS_FULL,
        Refusal::SchedulesFull { .. } => SCHEDULES_FULL,
        Refusal::NeverDue => NEVER_DUE,
        Refusal::NameTooLong { .. } => ErrorReply::FUNCTION_TOO_LARGE,
        Refusal::BodyTooLong { .. } => WORKLOAD_TOO_LARGE,
        Refusal::WrongKind => WRONG_KIND,
        Refusal::Unavailable
        | Refusal::Unknown
        | Refusal::NotUnique
        | Refusal::UnknownQueue
        | Refusal::QueueInUse
        | Refusal::UnknownWorker
        | Refusal::UnknownSchedule
        | Refusal::UnknownBatch
        | Refusal::BatchesFull { .. }
        | Refusal::BatchTooDeep { .. }
        | Refusal::OutOfPlace => ErrorReply::QUEUE_ERROR,
    }
}

/// The answer to a worker that reports on a job it does not hold: one text for each kind of packet.
pub(super) const fn not_held(ask: Ask) -> ErrorReply {
    match ask {
        Ask::Data => ErrorReply::JOB_NOT_FOUND_FOR_DATA,
        Ask::Exception => ErrorReply::JOB_NOT_FOUND_FOR_EXCEPTION,
        Ask::Result
        | Ask::Worker
        | Ask::Submit
        | Ask::Grab(_)
        | Ask::Admin
        | Ask::Option
        | Ask::Status(_)
        | Ask::StatusUnique => ErrorReply::JOB_NOT_FOUND_FOR_RESULT,
    }
}
