//! Throttles: the queues that have one, and the jobs that occupy the slots.

use windlass_engine::{JobId, LeaseHolder, ThrottleRow, Timestamp};

use super::listing::listing;
use super::views::Throttle;
use crate::app::{App, Now};
use crate::name::Name;
use crate::view::view;

view! {
    /// A queue with a throttle.
    Throttled(row: &ThrottleRow, _app: &App, now: Now) {
        /// The queue.
        queue: Name = Name(row.queue.clone()),
        /// Whether a client has used the queue. Otherwise only the configuration names it.
        used: bool = row.known,
        /// Its throttle.
        throttle: Throttle = Throttle::of(row.throttle, row.slots_held),
        /// Its jobs that wait to be taken.
        ready: u32 = row.ready,
        /// The earliest holders of its slots; 10 at most.
        holders: Vec<SlotHolder> = row.holders.iter().map(|slot| SlotHolder::of(slot, now)).collect(),
        /// The namespace, if it has a name.
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<Name> = Name::of(&row.namespace),
    }
}

view! {
    /// A job that holds a slot.
    SlotHolder(slot: &(JobId, Timestamp, LeaseHolder), now: Now) with {
        let (id, taken_at, holder) = slot;
    } {
        /// The job.
        job: u64 = id.0,
        /// The name of the worker that has it, if it has given one.
        worker: Option<Name> = Name::of(&holder.worker),
        /// The address of the worker's connection, if the lease ends with the connection.
        address: Option<Box<str>> = Some(holder.address.clone()).filter(|address| !address.is_empty()),
        /// Since when.
        since: Option<String> = now.text(*taken_at),
    }
}

listing! {
    /// Queues with throttles, and who holds their slots
    "/api/v1/throttles", "queues", "list_throttles";
    /// A page of queues with throttles.
    ThrottlePage { throttles: Vec<Throttled> } = Throttles {}
}
