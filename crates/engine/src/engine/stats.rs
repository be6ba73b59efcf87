//! Figures: counters since the data directory was created, and current values; in total, and by the job's
//! protocol.

use std::collections::BTreeMap;

use super::call::Call;
use super::state::State;
use crate::event::Reply;
use crate::ids::Protocol;
use crate::jobs::StateCounts;
use crate::query::{ProtocolStats, Stats};
use crate::work::ROW;

pub(super) fn stats(state: &State, call: &mut Call<'_>) {
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let mut places = StateCounts::default();
    for (_, of_protocol) in state.jobs.counts() {
        for (sum, n) in places.iter_mut().zip(of_protocol) {
            *sum += n;
        }
    }
    let stats = Stats {
        totals: state.meta.kept().totals,
        places,
        protocols: protocol_stats(state),
        jobs: state.jobs.len() as u64,
        bytes: state.bytes(),
        past_bytes: state.jobs.kept().dead + state.jobs.kept().done,
        queues: state.queues.known(),
        throttled: count(
            state
                .queues
                .special()
                .filter(|queue| queue.image().throttle.is_some())
                .count(),
        ),
        clients: count(state.clients.len()),
        workers: count(state.workers.len()),
        schedules: count(state.schedules.len()),
        batches: count(state.batches.len()),
    };
    call.reply(Reply::Stats(Box::new(stats)));
}

pub(super) fn days(state: &State, call: &mut Call<'_>) {
    let days = state.days.counts(&state.meta.kept().totals);
    state.work.spend(ROW * days.len() as u64);
    call.reply(Reply::Days(days));
}

/// The figures of each protocol that has, or had, any jobs.
fn protocol_stats(state: &State) -> Vec<ProtocolStats> {
    let had = state
        .meta
        .kept()
        .protocols
        .iter()
        .map(|(protocol, _)| (*protocol, StateCounts::default()));
    let all: BTreeMap<Protocol, StateCounts> = had.chain(state.jobs.counts()).collect();
    let row = |(protocol, places)| ProtocolStats {
        protocol,
        totals: state.meta.totals_of(protocol),
        places,
    };
    all.into_iter().map(row).collect()
}
