//! The open connections, and which of them is evicted for a new one.
//!
//! - When no place is left, the connection is evicted that has been without a complete request for longest,
//!   since it was opened or since its last response. A connection with a request in progress is never
//!   evicted.
//! - When all have requests in progress, a few extra connections are accepted for a single request: probes
//!   and the socket of the data directory are served; anything else is refused, unless a place has become
//!   free.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// Connections that are accepted beyond the limit.
const EXTRA_MAX: usize = 4;

/// All connections.
#[derive(Debug)]
pub(crate) struct ConnectionPool(Mutex<State>);

#[derive(Debug)]
struct State {
    /// The limit of connections.
    all: usize,
    /// Places in use, without extra connections.
    open: usize,
    extra: usize,
    next: u64,
    /// Connections without a complete request, in the order of eviction.
    waiting: BTreeMap<u64, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    is_extra: bool,
    peer: Arc<str>,
    leave: CancellationToken,
}

/// A connection's place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    pool: Arc<ConnectionPool>,
    /// Cancelled when the connection is evicted, and has no place.
    pub(crate) leave: CancellationToken,
    peer: Arc<str>,
    own: Mutex<Own>,
}

#[derive(Debug)]
struct Own {
    turn: u64,
    at_work: usize,
    is_extra: bool,
}

/// A request in progress, until this is dropped.
#[derive(Debug)]
pub(crate) struct Work(Arc<Place>);

impl ConnectionPool {
    pub(crate) fn new(all: usize) -> Arc<Self> {
        let state = State {
            all,
            open: 0,
            extra: 0,
            next: 0,
            waiting: BTreeMap::new(),
        };
        Arc::new(Self(Mutex::new(state)))
    }

    /// Sets the limit. Existing connections retain the places they have.
    pub(crate) fn limit(&self, all: usize) {
        self.lock().all = all;
    }

    /// A place for a connection, and the peer of the evicted connection, if any. `None` if all have requests
    /// in progress, including the extra ones.
    pub(crate) fn enter(self: &Arc<Self>, peer: &str) -> Option<(Arc<Place>, Option<Arc<str>>)> {
        let mut state = self.lock();
        let (is_extra, displaced) = if state.open < state.all {
            (false, None)
        } else if let Some(peer) = state.give_way(false) {
            (false, Some(peer))
        } else if state.extra < EXTRA_MAX {
            (true, None)
        } else {
            (true, Some(state.give_way(true)?))
        };
        *state.count(is_extra) += 1;
        let (leave, peer) = (CancellationToken::new(), Arc::from(peer));
        let turn = state.wait(Waiting {
            is_extra,
            peer: Arc::clone(&peer),
            leave: leave.clone(),
        });
        drop(state);
        let own = Mutex::new(Own {
            turn,
            at_work: 0,
            is_extra,
        });
        Some((
            Arc::new(Place {
                pool: Arc::clone(self),
                leave,
                peer,
                own,
            }),
            displaced,
        ))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics in the middle of a change while it has this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn count(&mut self, is_extra: bool) -> &mut usize {
        if is_extra {
            &mut self.extra
        } else {
            &mut self.open
        }
    }

    /// Evicts a connection without a request, if there is one. Returns the peer of it.
    fn give_way(&mut self, is_extra: bool) -> Option<Arc<str>> {
        let turn = self
            .waiting
            .iter()
            .find(|(_, it)| it.is_extra == is_extra)
            .map(|(turn, _)| *turn)?;
        let Waiting { leave, peer, .. } = self.waiting.remove(&turn)?;
        *self.count(is_extra) -= 1;
        leave.cancel();
        Some(peer)
    }

    fn wait(&mut self, waiting: Waiting) -> u64 {
        let turn = self.next;
        self.next += 1;
        self.waiting.insert(turn, waiting);
        turn
    }
}

impl Place {
    /// Records that a complete request has arrived. `is_reserved` permits it on an extra connection. Returns
    /// a place for it, if there is one, and `true` if the connection must be closed after the response.
    pub(crate) fn begin(self: &Arc<Self>, is_reserved: bool) -> (Option<Work>, bool) {
        let (mut state, mut own) = (self.pool.lock(), self.own());
        state.waiting.remove(&own.turn);
        own.at_work += 1;
        if own.is_extra && !self.leave.is_cancelled() && state.open < state.all {
            own.is_extra = false;
            state.extra -= 1;
            state.open += 1;
        }
        drop(state);
        let (work, is_extra) = (Work(Arc::clone(self)), own.is_extra);
        // Before `work` can end.
        drop(own);
        (Some(work).filter(|_| is_reserved || !is_extra), is_extra)
    }

    /// Records that the response was sent.
    fn rest(&self) {
        let (mut state, mut own) = (self.pool.lock(), self.own());
        own.at_work -= 1;
        if own.at_work == 0 && !self.leave.is_cancelled() {
            let (peer, leave) = (Arc::clone(&self.peer), self.leave.clone());
            own.turn = state.wait(Waiting {
                is_extra: own.is_extra,
                peer,
                leave,
            });
        }
    }

    fn own(&self) -> MutexGuard<'_, Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let (mut state, own) = (self.pool.lock(), self.own());
        state.waiting.remove(&own.turn);
        if !self.leave.is_cancelled() {
            *state.count(own.is_extra) -= 1;
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.0.rest();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enter(pool: &Arc<ConnectionPool>) -> Arc<Place> {
        pool.enter("").unwrap().0
    }

    fn served(place: &Arc<Place>) -> Work {
        let (Some(work), false) = place.begin(false) else {
            panic!("it is beyond the limit")
        };
        work
    }

    fn left(held: &[&Arc<Place>]) -> Vec<bool> {
        held.iter()
            .map(|place| place.leave.is_cancelled())
            .collect()
    }

    #[test]
    fn the_connection_that_has_been_without_a_request_for_longest_gives_way() {
        let pool = ConnectionPool::new(4);
        let [idle, busy, first, second] = [(); 4].map(|()| enter(&pool));
        drop(served(&idle));
        let work = served(&busy);
        let (entered, displaced) = pool.enter("192.0.2.1:1").unwrap();
        let all = [&idle, &busy, &first, &second];
        assert!(displaced.is_some() && left(&all) == [false, false, true, false]);
        drop(served(&entered));
        let more = [(); 2].map(|()| enter(&pool));
        assert_eq!(left(&all), [true, false, true, true]);
        assert_eq!(left(&[&entered, &more[0]]), [false, false]);
        drop((work, idle, busy, first, second, entered, more));
        let state = pool.lock();
        assert_eq!((state.open, state.extra, state.waiting.len()), (0, 0, 0));
    }

    #[test]
    fn probes_have_places_when_all_are_at_work() {
        let pool = ConnectionPool::new(1);
        let place = enter(&pool);
        let work = served(&place);
        let probe = enter(&pool);
        assert!(matches!(probe.begin(true), (Some(_), true)));
        let other = enter(&pool);
        assert!(matches!(other.begin(false), (None, true)));
        drop((probe, other));
        // Incomplete requests are evicted there, too.
        let halves: Vec<_> = (0..EXTRA_MAX + 2).map(|_| enter(&pool)).collect();
        assert_eq!(
            left(&halves.iter().collect::<Vec<_>>()),
            [true, true, false, false, false, false]
        );
        let probes: Vec<_> = halves
            .iter()
            .skip(2)
            .map(|place| place.begin(true))
            .collect();
        assert!(pool.enter("").is_none(), "{probes:?}");
        drop((probes, halves));
        // A place has become free before the request was complete.
        let late = enter(&pool);
        drop((work, place));
        let work = served(&late);
        assert!(
            pool.enter("")
                .is_some_and(|(_, displaced)| displaced.is_none()),
            "beyond the limit, {work:?}"
        );
        drop((work, late));
        let state = pool.lock();
        assert_eq!((state.open, state.extra, state.waiting.len()), (0, 0, 0));
    }

    #[test]
    fn the_limit_changes() {
        let pool = ConnectionPool::new(1);
        let first = enter(&pool);
        let work = served(&first);
        pool.limit(2);
        let second = enter(&pool);
        let more = served(&second);
        pool.limit(1);
        assert!(matches!(enter(&pool).begin(false), (None, true)));
        drop((work, first));
        assert!(
            matches!(enter(&pool).begin(false), (None, true)),
            "{more:?}"
        );
    }
}
