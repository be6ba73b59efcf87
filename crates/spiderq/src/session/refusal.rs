//! Maps the engine's refusals to spiderq's replies.

use windlass_engine::Refusal;

use super::asked::Ask;
use crate::wire::Reply;

/// The texts of `Trouble`.
const UNAVAILABLE: &[u8] = b"store unavailable, nothing was done";
const UNKNOWN: &[u8] = b"store failed, it may have been done or not";
const JOBS_FULL: &[u8] = b"server is full";
const QUEUE_FULL: &[u8] = b"queue is full";
const QUEUES_FULL: &[u8] = b"too many queues";
const KEY_TOO_LONG: &[u8] = b"key too long";
const VALUE_TOO_LONG: &[u8] = b"value too long";
const WRONG_KIND: &[u8] = b"queue of this listener is used for something else";
const REFUSED: &[u8] = b"refused";

/// The reply to a request that was refused.
pub(super) const fn reply(ask: Ask, why: Refusal) -> Reply<'static> {
    match (ask, why) {
        (Ask::Update | Ask::Repay, Refusal::UnknownJob | Refusal::NotHeld | Refusal::UnknownQueue) => Reply::NotFound,
        (Ask::Heartbeat, Refusal::UnknownJob | Refusal::NotHeld | Refusal::UnknownQueue) => Reply::Skipped,
        (Ask::Remove, Refusal::UnknownJob | Refusal::UnknownQueue) => Reply::NotRemoved,
        (_, why) => Reply::Trouble(words(why)),
    }
}

const fn words(why: Refusal) -> &'static [u8] {
    match why {
        Refusal::Unavailable => UNAVAILABLE,
        Refusal::Unknown => UNKNOWN,
        Refusal::JobsFull { .. } | Refusal::BytesFull { .. } => JOBS_FULL,
        Refusal::QueueFull { .. } => QUEUE_FULL,
        Refusal::QueuesFull { .. } => QUEUES_FULL,
        Refusal::NameTooLong { .. } => KEY_TOO_LONG,
        Refusal::BodyTooLong { .. } => VALUE_TOO_LONG,
        Refusal::WrongKind => WRONG_KIND,
        Refusal::SchedulesFull { .. }
        | Refusal::NeverDue
        | Refusal::BatchesFull { .. }
        | Refusal::BatchTooDeep { .. }
        | Refusal::AbilitiesFull { .. }
        | Refusal::NotUnique
        | Refusal::UnknownJob
        | Refusal::UnknownSchedule
        | Refusal::UnknownBatch
        | Refusal::NotHeld
        | Refusal::UnknownQueue
        | Refusal::QueueInUse
        | Refusal::UnknownWorker
        | Refusal::OutOfPlace => REFUSED,
    }
}
