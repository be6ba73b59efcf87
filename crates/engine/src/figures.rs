//! Counters: since the data directory was created, and now; in total, and by the job's protocol.

use crate::context::Context;
use crate::engine::{Engine, Head};
use crate::event::Reply;
use crate::ids::{ClientId, Protocol, Tag};
use crate::job::JobStateKind;
use crate::query::{ProtocolStats, Stats, Totals};

/// Jobs by state, in the order of [`JobStateKind::ALL`].
type Places = [u64; JobStateKind::ALL.len()];

/// Jobs by protocol and state. There are few protocols, so a linear search is short.
#[derive(Debug, Default)]
pub(crate) struct Census(Vec<(Protocol, Places)>);

impl Census {
    /// Counts a job that enters a state (1) or leaves one (-1).
    pub(crate) fn count(&mut self, protocol: Protocol, state: JobStateKind, by: i64) {
        let places = match self.0.iter_mut().find(|(other, _)| *other == protocol) {
            Some((_, places)) => places,
            None => {
                let at = self.0.partition_point(|(other, _)| *other < protocol);
                self.0.insert(at, (protocol, Places::default()));
                return self.count(protocol, state, by);
            }
        };
        if let Some(n) = places.get_mut(state as usize) {
            *n = n.saturating_add_signed(by);
        }
    }

    /// Asserts the counts of these jobs.
    pub(crate) fn check(&self, jobs: impl Iterator<Item = (Protocol, JobStateKind)>) {
        let mut census = Self::default();
        jobs.for_each(|(protocol, state)| census.count(protocol, state, 1));
        let some = |census: &Self| -> Vec<_> {
            census.0.iter().filter(|(_, places)| *places != Places::default()).copied().collect()
        };
        assert_eq!(some(self), some(&census), "jobs by protocol and state, left: counted, right: actual");
    }
}

impl Head {
    /// Counts an event of a job of this protocol.
    pub(crate) fn count(&mut self, protocol: Protocol, add: impl Fn(&mut Totals)) {
        add(&mut self.totals);
        match self.protocols.iter_mut().find(|(other, _)| *other == protocol) {
            Some((_, totals)) => add(totals),
            None => {
                let mut totals = Totals::default();
                add(&mut totals);
                let at = self.protocols.partition_point(|(other, _)| *other < protocol);
                self.protocols.insert(at, (protocol, totals));
            }
        }
    }
}

impl Engine {
    pub(crate) fn tell_stats(&self, client: ClientId, tag: Tag, context: &mut Context) {
        let mut places = Places::default();
        for (_, of_protocol) in &self.census.0 {
            for (sum, n) in places.iter_mut().zip(of_protocol) {
                *sum += n;
            }
        }
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let stats = Stats {
            totals: self.head.totals,
            places,
            protocols: self.protocol_stats(),
            jobs: self.jobs.len() as u64,
            bytes: self.bytes(),
            queues: self.queues.known(),
            throttled: count(self.queues.special().filter(|queue| queue.image.throttle.is_some()).count()),
            clients: count(self.clients.len()),
            workers: count(self.workers.len()),
            schedules: count(self.schedules.len()),
            batches: count(self.batches.len()),
        };
        context.reply(client, tag, Reply::Stats(Box::new(stats)));
    }

    /// The counters of each protocol that has, or had, any.
    fn protocol_stats(&self) -> Vec<ProtocolStats> {
        let totals_of =
            |protocol: Protocol| self.head.protocols.iter().find(|(other, _)| *other == protocol).map(|row| row.1);
        let places_of =
            |protocol: Protocol| self.census.0.iter().find(|(other, _)| *other == protocol).map(|row| row.1);
        let there = self.census.0.iter().filter(|(_, places)| *places != Places::default());
        let mut protocols: Vec<Protocol> =
            self.head.protocols.iter().map(|row| row.0).chain(there.map(|row| row.0)).collect();
        protocols.sort_unstable();
        protocols.dedup();
        let stats = |protocol| ProtocolStats {
            protocol,
            totals: totals_of(protocol).unwrap_or_default(),
            places: places_of(protocol).unwrap_or_default(),
        };
        protocols.into_iter().map(stats).collect()
    }
}
