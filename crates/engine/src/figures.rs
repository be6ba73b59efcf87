//! Counters: since the data directory was created, and now; in total, and by the job's protocol.

use crate::engine::{Engine, Head};
use crate::event::{Event, OriginStats, Stats, Totals};
use crate::ids::{ClientId, Origin, Tag};
use crate::job::PlaceKind;
use crate::turn::Turn;

/// Jobs by state, in the order of [`PlaceKind::ALL`].
type Places = [u64; PlaceKind::ALL.len()];

/// Jobs by protocol and state. There are few protocols, so a linear search is short.
#[derive(Debug, Default)]
pub(crate) struct Census(Vec<(Origin, Places)>);

impl Census {
    /// Counts a job that enters a state (1) or leaves one (-1).
    pub(crate) fn count(&mut self, origin: Origin, place: PlaceKind, by: i64) {
        let places = match self.0.iter_mut().find(|(other, _)| *other == origin) {
            Some((_, places)) => places,
            None => {
                let at = self.0.partition_point(|(other, _)| *other < origin);
                self.0.insert(at, (origin, Places::default()));
                return self.count(origin, place, by);
            }
        };
        if let Some(n) = places.get_mut(place as usize) {
            *n = n.saturating_add_signed(by);
        }
    }

    /// Asserts the counts of these jobs.
    pub(crate) fn check(&self, jobs: impl Iterator<Item = (Origin, PlaceKind)>) {
        let mut census = Self::default();
        jobs.for_each(|(origin, place)| census.count(origin, place, 1));
        let some = |census: &Self| -> Vec<_> {
            census.0.iter().filter(|(_, places)| *places != Places::default()).copied().collect()
        };
        assert_eq!(some(self), some(&census), "jobs by protocol and state, left: counted, right: actual");
    }
}

impl Head {
    /// Counts an event of a job of this protocol.
    pub(crate) fn count(&mut self, origin: Origin, add: impl Fn(&mut Totals)) {
        add(&mut self.totals);
        match self.origins.iter_mut().find(|(other, _)| *other == origin) {
            Some((_, totals)) => add(totals),
            None => {
                let mut totals = Totals::default();
                add(&mut totals);
                let at = self.origins.partition_point(|(other, _)| *other < origin);
                self.origins.insert(at, (origin, totals));
            }
        }
    }
}

impl Engine {
    pub(crate) fn tell_stats(&self, client: ClientId, tag: Tag, turn: &mut Turn) {
        let mut places = Places::default();
        for (_, of_origin) in &self.census.0 {
            for (sum, n) in places.iter_mut().zip(of_origin) {
                *sum += n;
            }
        }
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let stats = Stats {
            totals: self.head.totals,
            places,
            origins: self.origin_stats(),
            jobs: self.jobs.len() as u64,
            bytes: self.bytes(),
            queues: self.queues.known(),
            throttled: count(self.queues.special().filter(|queue| queue.image.throttle.is_some()).count()),
            clients: count(self.clients.len()),
            workers: count(self.workers.len()),
            schedules: count(self.schedules.len()),
            batches: count(self.batches.len()),
        };
        turn.tell(client, Event::Stats { tag, stats: Box::new(stats) });
    }

    /// The counters of each protocol that has, or had, any.
    fn origin_stats(&self) -> Vec<OriginStats> {
        let totals_of = |origin: Origin| self.head.origins.iter().find(|(other, _)| *other == origin).map(|row| row.1);
        let places_of = |origin: Origin| self.census.0.iter().find(|(other, _)| *other == origin).map(|row| row.1);
        let there = self.census.0.iter().filter(|(_, places)| *places != Places::default());
        let mut origins: Vec<Origin> =
            self.head.origins.iter().map(|row| row.0).chain(there.map(|row| row.0)).collect();
        origins.sort_unstable();
        origins.dedup();
        let stats = |origin| OriginStats {
            origin,
            totals: totals_of(origin).unwrap_or_default(),
            places: places_of(origin).unwrap_or_default(),
        };
        origins.into_iter().map(stats).collect()
    }
}
