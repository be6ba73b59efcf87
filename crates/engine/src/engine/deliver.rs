//! Delivery: choosing a queue, granting a lease on the first job, sending the job.
//!
//! Not here: blocking a take when there is no job (`take`), and which waiting client is served
//! (`serve`).

use bytes::Bytes;

use super::ahead::look_ahead;
use super::place::{count_taken, move_job, remember_move};
use super::state::State;
use crate::clients::{Client, Served};
use crate::context::Context;
use crate::event::{Notice, Reply};
use crate::ids::{ClientId, Protocol, Tag, Timestamp, Token};
use crate::jobs::{Holder, Job, JobState, Lease, OnExpiry, Slot};
use crate::outcome::Taken;
use crate::queues::{Queue, Queues, SortKey, Whose};
use crate::request::{LeaseTerms, Select};

/// The job of a queue that a client of protocol `own` gets next, in the name of this worker.
pub(super) fn first(
    queues: &Queues,
    client: ClientId,
    own: Option<Protocol>,
    served: &Served,
    worker: &[u8],
) -> Option<(SortKey, Slot)> {
    queues
        .at(served.queue)?
        .first_for(own, Whose::taking(client, served.lease, worker))
}

/// The unclaimed job that a client gets next on the terms of this subscription, if it takes
/// unclaimed jobs.
pub(super) fn first_unclaimed(
    queues: &Queues,
    client: ClientId,
    own: Option<Protocol>,
    served: &Served,
) -> Option<(SortKey, Slot)> {
    let realm = served.unclaimed_realm()?;
    let whose = Whose::taking(client, served.lease, &[]);
    let mut queues = queues.unclaimed(realm).filter(|queue| queue.admits(whose));
    queues.find_map(|queue| queue.first_unclaimed(realm.protocol, own))
}

/// The queue and the job that a client gets next, given the `first` job that it would get of each queue.
pub(super) fn choose(
    state: &State,
    client: ClientId,
    sources: &[Served],
    select: Select,
    first: impl Fn(&Served) -> Option<(SortKey, Slot)>,
) -> Option<(Served, Slot)> {
    if let [only] = sources {
        return first(only).map(|(_, slot)| (*only, slot));
    }
    let client = if select == Select::RoundRobin {
        state.clients.get(client)
    } else {
        None
    };
    let birth = |served: &Served| state.queues.at(served.queue).map(Queue::birth);
    let last = client
        .and_then(Client::last_queue)
        .and_then(|last| {
            sources
                .iter()
                .position(|served| birth(served) == Some(last))
        })
        .unwrap_or(sources.len());
    // The distance of a queue before that one in the round.
    let distance = |index: usize| (last + sources.len() - 1 - index) % sources.len().max(1);
    let mut ready = sources.iter().enumerate().filter_map(|(index, served)| {
        let (key, slot) = first(served)?;
        Some((index, *served, key, slot))
    });
    let best = match select {
        Select::ListOrder => ready.next(),
        Select::BestPriority => ready.min_by_key(|(_, _, key, _)| *key),
        Select::RoundRobin => ready.min_by_key(|(index, _, key, _)| (key.lane, distance(*index))),
        Select::Weighted => {
            ready.min_by_key(|(_, served, key, _)| (std::cmp::Reverse(served.weight), *key))
        }
    };
    best.map(|(_, served, _, slot)| (served, slot))
}

/// Leases a ready job to a client and sends it.
pub(super) fn hand_out(
    state: &mut State,
    client: ClientId,
    tag: Tag,
    slot: Slot,
    served: Served,
    worker: &[u8],
    context: &mut Context,
) {
    let (token, excludes) = lease_job(state, client, slot, served.lease, worker);
    if let Some(known) = state.clients.get_mut(client)
        && let Some(birth) = state.queues.add_protocol(served.queue, known.protocol())
    {
        known.set_last_queue(birth);
    }
    count_taken(state, slot);
    let Some(job) = state.jobs.at(slot) else {
        return;
    };
    // A connection-bound lease is released when the daemon stops, so it is not journalled.
    if job.lease().is_some_and(|lease| !lease.connection_bound()) {
        remember_move(state, slot, context);
    }
    if excludes {
        context.exclusive.push(job.id);
    }
    if let Some(taken) = taken(state, job, token).map(Box::new) {
        context.room = context.room.saturating_sub(taken.body_len() as u64);
        match tag {
            Tag::NONE => context.notify(client, Notice::Delivered(taken)),
            tag => context.reply(client, tag, Reply::Taken(taken)),
        }
    }
    if state.jobs.stored().0 > 0 {
        look_ahead(state, slot);
    }
}

/// Returns the token, and `true` if no other job of the same key may start because of it.
fn lease_job(
    state: &mut State,
    client: ClientId,
    slot: Slot,
    terms: LeaseTerms,
    worker: &[u8],
) -> (Token, bool) {
    let now = state.now;
    let Some(attempts) = state.jobs.count_attempt(slot) else {
        return (Token(0), false);
    };
    let Some(job) = state.jobs.at(slot) else {
        return (Token(0), false);
    };
    let boot_count = state.meta.kept().boot_count;
    let token = match job.cycle() {
        Some(_) => Token(
            state
                .queues
                .at(job.queue)
                .map_or(0, |queue| cycle_token(boot_count, queue)),
        ),
        None => Token::of(boot_count, attempts),
    };
    // A worker without a name has no heartbeat. The client of another protocol does not know reservations.
    let is_foreign = || {
        let own = state.clients.protocol_of(client);
        own.is_some_and(|own| own != job.protocol) && job.cycle().is_none()
    };
    let holder = match terms.connection_bound
        || terms.is_reservation() && worker.is_empty() && is_foreign()
    {
        true => Holder::Connection(client),
        false => Holder::Named(worker.into()),
    };
    let (until, on_expiry) = lease_end(state, terms, job);
    let mut lease = Lease::new(holder, token, now, until, on_expiry);
    lease.kind = state.kinds.of(job, state.reader.as_deref());
    let excludes = state.queues.start(job, now, &mut state.timers);
    move_job(state, slot, JobState::Leased(Box::new(lease)));
    (token, excludes)
}

/// The expiry of a lease on these terms that starts now, and the effect of the expiry.
pub(super) fn lease_end(state: &State, terms: LeaseTerms, job: &Job) -> (Timestamp, OnExpiry) {
    let wish = terms
        .wish
        .and_then(|on_expiry| Some((job.extra.as_deref()?.lease_ms?, on_expiry)));
    let (lease_ms, on_expiry) = wish
        .map_or((terms.lease_ms, terms.on_expiry), |(ms, on_expiry)| {
            (Some(ms), on_expiry)
        });
    // At least 1 ms: a lease that expires immediately would loop while a client has credits.
    let until = |ms: u64| state.now.after_ms(ms.min(state.limits.lease_ms_max).max(1));
    (lease_ms.map_or(Timestamp::NEVER, until), on_expiry)
}

/// A client's terms for the queue of a job.
pub(super) fn terms_of(state: &State, client: ClientId, job: &Job) -> LeaseTerms {
    let mut served = state
        .clients
        .get(client)
        .into_iter()
        .flat_map(Client::subscriptions);
    served
        .find(|served| served.queue == job.queue)
        .map_or(LeaseTerms::CONNECTION, |served| served.lease)
}

fn taken(state: &State, job: &Job, token: Token) -> Option<Taken> {
    let queue = state.queues.at(job.queue)?;
    Some(Taken {
        id: job.id,
        token,
        queue: queue.image().name.clone(),
        protocol: job.protocol,
        priority: job.priority,
        body: if job.payload.stored().is_some() {
            Bytes::new()
        } else {
            job.payload.share_body()
        },
        stored: job.payload.stored(),
        codec: queue.rules().map(|rules| rules.codec).unwrap_or_default(),
        name: if job.name().is_empty() {
            Bytes::new()
        } else {
            Bytes::copy_from_slice(job.name())
        },
        meta: job.meta(),
        key: job.key().map_or_else(Bytes::new, Bytes::copy_from_slice),
        attempts: job.attempts,
        failures: job.failures,
        failures_max: job.retry.failures_max,
        failure: job.extra.as_deref().and_then(|extra| extra.failure.clone()),
        ready_at: job.ready_at,
        until: job.lease().map_or(Timestamp::NEVER, |lease| lease.until),
        connection_bound: job.lease().is_some_and(Lease::connection_bound),
        heard: !job.listeners().is_empty() || !job.collector().is_empty(),
    })
}

/// The queue's serial, with the number of the daemon's starts in the bits above it. This keeps tokens unique,
/// because serials that were not journalled are used again after a restart.
const fn cycle_token(boot_count: u64, queue: &Queue) -> u64 {
    // Space for 2^44 changes of a queue and 2^20 starts of the daemon.
    const SERIAL_BITS: u32 = 44;
    (boot_count << SERIAL_BITS).wrapping_add(queue.image().serial)
}
