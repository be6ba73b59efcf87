//! Figures: counters since the data directory was created, and current values; in total, and by the job's
//! protocol.

use std::collections::BTreeMap;

use super::call::Call;
use super::scope::{Scope, must_see_all};
use super::state::State;
use crate::event::Reply;
use crate::ids::{Namespace, Protocol};
use crate::jobs::StateCounts;
use crate::query::{ProtocolStats, Stats, Totals};
use crate::queues::Queue;
use crate::refusal::Outcome;
use crate::work::ROW;

/// The figures of a client's namespace, or of all: of every protocol.
pub(super) fn stats(state: &State, call: &mut Call<'_>) {
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let scope = Scope::of(state, call);
    let sees_all = scope.namespace().is_none();
    let protocols = protocol_stats(state, scope);
    let mut places = StateCounts::default();
    let mut totals = Totals::default();
    for row in &protocols {
        totals = totals.sum(&row.totals);
        for (sum, n) in places.iter_mut().zip(row.places) {
            *sum += n;
        }
    }
    let throttled = |queue: &&Queue| queue.image().throttle.is_some();
    let of = scope.namespace();
    let schedules = state.schedules.sum_of(of);
    let batches = state.batches.sum_of(of);
    let kept = state.jobs.kept_in(of);
    let stats = Stats {
        totals: if sees_all {
            state.meta.kept().totals
        } else {
            totals
        },
        jobs: places.iter().sum(),
        places,
        protocols,
        bytes: state.jobs.sum_of(of).bytes + schedules.bytes + batches.bytes,
        past_bytes: kept.dead + kept.done,
        queues: state.queues.known(of),
        throttled: count(
            state
                .queues
                .special_of(scope.namespace())
                .filter(throttled)
                .count(),
        ),
        clients: state.clients.count_of(of),
        workers: count(match of {
            None => state.workers.len(),
            Some(_) => state.workers.numbers(of).count(),
        }),
        schedules: u32::try_from(schedules.count).unwrap_or(u32::MAX),
        batches: u32::try_from(batches.count).unwrap_or(u32::MAX),
    };
    call.reply(Reply::Stats(Box::new(stats)));
}

pub(super) fn days(state: &State, call: &mut Call<'_>) -> Outcome {
    must_see_all(state, call)?;
    let days = state.days.counts(&state.meta.kept().totals);
    state.work.spend(ROW * days.len() as u64);
    call.reply(Reply::Days(days));
    Ok(())
}

/// The figures of each protocol that has, or had, any jobs in the namespaces of a scope.
fn protocol_stats(state: &State, scope: Scope) -> Vec<ProtocolStats> {
    let mut rows: BTreeMap<Protocol, (Totals, StateCounts)> = BTreeMap::new();
    if scope.reaches(Namespace::UNNAMED) {
        for (protocol, totals) in &state.meta.kept().protocols {
            let (sum, _) = rows.entry(*protocol).or_default();
            *sum = sum.sum(totals);
        }
    }
    let namespaces = state.queues.namespaces().iter();
    for namespace in namespaces.filter(|it| scope.reaches(it.id)) {
        for (protocol, totals) in &namespace.protocols {
            let (sum, _) = rows.entry(*protocol).or_default();
            *sum = sum.sum(totals);
        }
    }
    for (realm, counts) in state
        .jobs
        .counts()
        .filter(|(it, _)| scope.reaches(it.namespace))
    {
        let (_, places) = rows.entry(realm.protocol).or_default();
        for (sum, n) in places.iter_mut().zip(counts) {
            *sum += n;
        }
    }
    let row = |(protocol, (totals, places))| ProtocolStats {
        protocol,
        totals,
        places,
    };
    rows.into_iter().map(row).collect()
}
