//! Commands about a queue's settings, and about which queues are bridged.

use std::sync::Arc;

use bytes::Bytes;

use super::call::Call;
use super::flush::discard_waiting;
use super::policies::renew_policies;
use super::scope::must_see_all;
use super::serve::serve;
use super::state::{State, own};
use super::warnings::head;
use crate::event::{QueueChange, Reply, Watched};
use crate::ids::{Priority, Protocols, QueueId};
use crate::queues::{
    Bridge, KEY_BYTES_MAX, OwnPolicy, Patterns, Policy, QueueImage, QueueRules, QueueSettings,
    Throttle,
};
use crate::refusal::{Outcome, Refusal, Thing};
use crate::request::{Cursor, QueueKind};

/// The limit of paused keys per queue.
const PAUSED_MAX: usize = 1_000;

pub(super) fn create_queue(
    state: &mut State,
    name: &Bytes,
    kind: QueueKind,
    call: &mut Call<'_>,
) -> Outcome {
    state.check_name(name)?;
    let own = state.clients.protocol_of(call.client);
    let queue = state.find_or_make(state.home(call.client), name, kind, own)?;
    state
        .queues
        .make_known(queue, own, &mut call.context.changes);
    call.done()
}

/// Removes a queue with the ready jobs. While there are leased, scheduled or retrying jobs, the queue
/// continues to exist, unlisted. In an isolated queue, a client affects only the client's protocol.
pub(super) fn remove_queue(
    state: &mut State,
    name: &Bytes,
    only_idle: bool,
    call: &mut Call<'_>,
) -> Outcome {
    let own = state.clients.protocol_of(call.client);
    let known = |id: &QueueId| {
        state
            .queues
            .at(*id)
            .is_some_and(|queue| queue.is_known_to(own))
    };
    let id = state
        .queues
        .named(state.home(call.client), name)
        .filter(known)
        .ok_or(Refusal::NotFound(Thing::Queue))?;
    let Some(queue) = state.queues.at(id) else {
        return Err(Refusal::NotFound(Thing::Queue));
    };
    let scope = queue.scope(own);
    if only_idle && (queue.workers_of(scope) > 0 || queue.live(scope) > 0) {
        return Err(Refusal::InUse);
    }
    if let Err(changed) = discard_waiting(state, id, scope, call.context) {
        call.reply(Reply::Mutated {
            changed,
            next: Some(Cursor(0, 0)),
        });
        return Ok(());
    }
    let gone = state
        .queues
        .at(id)
        .map_or(Protocols::NONE, |queue| queue.removed_with(own));
    state
        .queues
        .set(id, |image| image.forget(gone), &mut call.context.changes);
    if state
        .queues
        .at(id)
        .is_some_and(|queue| !queue.image().is_known())
    {
        show(state, id, name, QueueChange::Removed);
    }
    state.queues.drop_if_unknown(id);
    call.done()
}

/// Pauses or resumes the jobs of a queue that the client can see.
pub(super) fn pause_queue(
    state: &mut State,
    name: &Bytes,
    paused: bool,
    call: &mut Call<'_>,
) -> Outcome {
    let own = state.clients.protocol_of(call.client);
    let queue = state
        .queues
        .named(state.home(call.client), name)
        .and_then(|id| Some((id, state.queues.at(id)?)));
    let queue = queue.filter(|(_, queue)| queue.is_open_to(own));
    if let Some((id, queue)) = queue {
        let before = queue.image().paused;
        let protocols = Protocols::of(queue.scope(own));
        let is_so = if paused {
            before.include(protocols)
        } else {
            before.within(protocols).is_empty()
        };
        if !is_so {
            let at = paused.then(|| state.wall());
            state.queues.set(
                id,
                |image| image.pause(protocols, at),
                &mut call.context.changes,
            );
            show(
                state,
                id,
                name,
                if paused {
                    QueueChange::Paused
                } else {
                    QueueChange::Resumed
                },
            );
            serve(state, id, call.context);
        }
    }
    call.done()
}

pub(super) fn limit_queue(
    state: &mut State,
    name: &Bytes,
    jobs_max: [Option<u32>; Priority::COUNT],
    call: &mut Call<'_>,
) -> Outcome {
    state.check_name(name)?;
    let own = state.clients.protocol_of(call.client);
    let id = state.find_or_make(state.home(call.client), name, QueueKind::Work, own)?;
    let scope = state.queues.at(id).and_then(|queue| queue.scope(own));
    let set = |image: &mut QueueImage| {
        image.known = image.known.and(Protocols::of(own));
        image.set_limits(jobs_max, scope);
    };
    state.queues.set(id, set, &mut call.context.changes);
    call.done()
}

pub(super) fn throttle_queue(
    state: &mut State,
    name: &Bytes,
    throttle: Option<Throttle>,
    call: &mut Call<'_>,
) -> Outcome {
    if let Some(id) = find_special(state, name, throttle.is_none(), call)?
        && state
            .queues
            .at(id)
            .is_some_and(|queue| queue.image().throttle != throttle)
    {
        state.queues.set(
            id,
            |image| image.throttle = throttle,
            &mut call.context.changes,
        );
        state
            .queues
            .count_slots(id, &state.jobs, state.now, &mut state.timers);
        serve(state, id, call.context);
        state.queues.drop_if_unknown(id);
    }
    call.done()
}

pub(super) fn rule_queue(
    state: &mut State,
    name: &Bytes,
    rules: QueueRules,
    call: &mut Call<'_>,
) -> Outcome {
    let plain = rules == QueueRules::default();
    if let Some(id) = find_special(state, name, plain, call)?
        && state
            .queues
            .at(id)
            .is_some_and(|queue| queue.image().rules() != rules)
    {
        let set = |image: &mut QueueImage| image.rules = (!plain).then(|| Box::new(rules));
        state.queues.set(id, set, &mut call.context.changes);
        let changed = state.queues.renew_rules(id).map(|before| (id, before));
        obey(state, changed.as_slice(), call);
        state.queues.drop_if_unknown(id);
    }
    call.done()
}

/// Sets a queue's policy, or restores the policy by pattern.
pub(super) fn set_policy(
    state: &mut State,
    name: &Bytes,
    policy: Option<Box<Policy>>,
    by: &[u8],
    call: &mut Call<'_>,
) -> Outcome {
    if let Some(id) = find_special(state, name, policy.is_none(), call)? {
        let is_cycle = state
            .queues
            .at(id)
            .is_some_and(|queue| queue.image().kind == QueueKind::Cycle);
        if is_cycle && policy.as_ref().is_some_and(|policy| policy.has_keys()) {
            return Err(Refusal::WrongKind);
        }
        let by = Bytes::copy_from_slice(head(by));
        let at = state.wall();
        let own = policy.map(|policy| {
            Box::new(OwnPolicy {
                policy: Arc::new(*policy),
                by,
                at,
            })
        });
        state
            .queues
            .set(id, |image| image.policy = own, &mut call.context.changes);
        renew_policies(state, &[id], call);
        state.queues.drop_if_unknown(id);
    }
    call.done()
}

/// Pauses or resumes a key.
pub(super) fn pause_key(
    state: &mut State,
    name: &[u8],
    key: &[u8],
    paused: bool,
    call: &mut Call<'_>,
) -> Outcome {
    let id = state
        .queues
        .named(state.home(call.client), name)
        .ok_or(Refusal::NotFound(Thing::Queue))?;
    let queue = state.queues.at(id).ok_or(Refusal::NotFound(Thing::Queue))?;
    let of_queue = &queue.image().paused_keys;
    if paused && (!queue.has_keys() || key.len() > KEY_BYTES_MAX || of_queue.len() >= PAUSED_MAX) {
        return Err(Refusal::OutOfPlace);
    }
    if of_queue.contains(key) != paused {
        let set = |image: &mut QueueImage| match paused {
            true => image.paused_keys.insert(Bytes::copy_from_slice(key)),
            false => image.paused_keys.remove(key),
        };
        state
            .queues
            .set(id, |image| _ = set(image), &mut call.context.changes);
        renew_policies(state, &[id], call);
        state.queues.drop_if_unknown(id);
    }
    call.done()
}

/// Replaces the settings of queues by pattern.
pub(super) fn set_patterns(
    state: &mut State,
    patterns: Patterns<QueueSettings>,
    call: &mut Call<'_>,
) -> Outcome {
    must_see_all(state, call)?;
    let all = state.queues.set_patterns(patterns);
    let changed: Vec<_> = all
        .iter()
        .filter_map(|id| Some((*id, state.queues.renew_rules(*id)?)))
        .collect();
    obey(state, &changed, call);
    renew_policies(state, &all, call);
    call.done()
}

/// Applies the rules of queues to existing jobs, given the previous rules.
fn obey(state: &mut State, changed: &[(QueueId, QueueRules)], call: &mut Call<'_>) {
    for (id, before) in changed {
        let rules = state.queues.rules(*id);
        let codec = rules.map(|rules| rules.codec).unwrap_or_default();
        if before.codec != codec {
            state.queues.clear_unfit(*id, &mut state.jobs);
            serve(state, *id, call.context);
        }
    }
    let ids: Vec<QueueId> = changed.iter().map(|(id, _)| *id).collect();
    state.queues.list_dead(&ids, &state.jobs);
}

/// The queue for a throttle, rules or a policy. It is created if it does not exist, unless the settings are
/// the defaults.
fn find_special(
    state: &mut State,
    name: &Bytes,
    plain: bool,
    call: &Call<'_>,
) -> Outcome<Option<QueueId>> {
    state.check_name(name)?;
    let own = state.clients.protocol_of(call.client);
    let home = state.home(call.client);
    match state.queues.named(home, name) {
        Some(id)
            if state
                .queues
                .at(id)
                .is_some_and(|queue| queue.is_open_to(own)) =>
        {
            Ok(Some(id))
        }
        Some(_) => Err(Refusal::WrongKind),
        None if plain => Ok(None),
        None => state
            .find_or_make(home, name, QueueKind::Work, own)
            .map(Some),
    }
}

/// Reports an event of a queue to watchers.
pub(super) fn show(state: &mut State, id: QueueId, queue: &Bytes, change: QueueChange) {
    let namespace = id.namespace();
    state.watchers.note(namespace, Some(queue), || {
        Watched::Queue(own(queue), change)
    });
}

/// Replaces the set of queues that all protocols share.
pub(super) fn bridge(state: &mut State, bridge: Bridge, call: &mut Call<'_>) -> Outcome {
    must_see_all(state, call)?;
    let changed = state.queues.set_bridge(bridge);
    for queue in changed {
        serve(state, queue, call.context);
    }
    call.done()
}
