//! Maps the engine's refusals to spiderq's replies.

use windlass_engine::{Capacity, Refusal, Thing};

use super::ask::What;
use crate::wire::Reply;

/// The texts of `Trouble`.
const UNAVAILABLE: &[u8] = b"store unavailable, nothing was done";
const DISK_FULL: &[u8] = b"disk full, nothing was done";
const UNKNOWN: &[u8] = b"store failed, it may have been done or not";
const JOBS_FULL: &[u8] = b"server is full";
const QUEUE_FULL: &[u8] = b"queue is full";
const QUEUES_FULL: &[u8] = b"too many queues";
const KEY_TOO_LONG: &[u8] = b"key too long";
const VALUE_TOO_LONG: &[u8] = b"value too long";
const WRONG_KIND: &[u8] = b"queue of this listener is used for something else";
const NOT_PERMITTED: &[u8] = b"not permitted at this address";
const REFUSED: &[u8] = b"refused";

/// The reply to a request that was refused.
pub(super) const fn reply(what: What, why: Refusal) -> Reply<'static> {
    match (what, why) {
        (
            What::Update | What::Repay,
            Refusal::NotFound(Thing::Job | Thing::Queue) | Refusal::NotHeld,
        ) => Reply::NotFound,
        (What::Heartbeat, Refusal::NotFound(Thing::Job | Thing::Queue) | Refusal::NotHeld) => {
            Reply::Skipped
        }
        (What::Remove, Refusal::NotFound(Thing::Job | Thing::Queue)) => Reply::NotRemoved,
        (_, why) => Reply::Trouble(words(why)),
    }
}

const fn words(why: Refusal) -> &'static [u8] {
    match why {
        Refusal::Unavailable => UNAVAILABLE,
        Refusal::DiskFull => DISK_FULL,
        Refusal::Unknown => UNKNOWN,
        Refusal::Limit { what, .. } => over(what),
        Refusal::WrongKind => WRONG_KIND,
        Refusal::NotPermitted => NOT_PERMITTED,
        Refusal::NotFound(_)
        | Refusal::NotUnique
        | Refusal::NotHeld
        | Refusal::InUse
        | Refusal::NeverDue
        | Refusal::OutOfPlace => REFUSED,
    }
}

const fn over(what: Capacity) -> &'static [u8] {
    match what {
        Capacity::Jobs
        | Capacity::JobBytes
        | Capacity::NamespaceJobs
        | Capacity::NamespaceBytes
        | Capacity::NamespaceQueues
        | Capacity::NamespaceClients
        | Capacity::NamespacePushes
        | Capacity::Namespaces => JOBS_FULL,
        Capacity::QueueJobs | Capacity::KeyJobs => QUEUE_FULL,
        Capacity::Queues => QUEUES_FULL,
        Capacity::NameBytes => KEY_TOO_LONG,
        Capacity::BodyBytes => VALUE_TOO_LONG,
        Capacity::Schedules
        | Capacity::Batches
        | Capacity::BatchDepth
        | Capacity::Subscriptions => REFUSED,
    }
}
