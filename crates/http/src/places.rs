//! Places for waiting requests. The number can be modified while some are in use.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A number of places.
#[derive(Debug)]
pub(crate) struct Places {
    /// The limit of places.
    all: AtomicUsize,
    taken: AtomicUsize,
}

/// A place. It becomes free when this is dropped.
#[derive(Debug)]
pub(crate) struct Place(Arc<Places>);

impl Places {
    pub(crate) fn new(all: usize) -> Arc<Self> {
        Arc::new(Self {
            all: all.into(),
            taken: AtomicUsize::new(0),
        })
    }

    /// Sets the limit. Places in use stay in use.
    pub(crate) fn limit(&self, all: usize) {
        self.all.store(all, Ordering::Relaxed);
    }

    /// A place, if there is one now.
    pub(crate) fn try_take(self: &Arc<Self>) -> Option<Place> {
        let one_more = |taken| (taken < self.all.load(Ordering::Relaxed)).then_some(taken + 1);
        self.taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .ok()?;
        Some(Place(Arc::clone(self)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_changes_while_places_are_taken() {
        let places = Places::new(3);
        let mut taken: Vec<Place> = (0..3).filter_map(|_| places.try_take()).collect();
        assert_eq!(taken.len(), 3);
        places.limit(1);
        for left in [2, 1] {
            taken.pop();
            assert!(
                places.try_take().is_none(),
                "{left} are taken, one is allowed"
            );
        }
        taken.pop();
        taken.extend(places.try_take());
        assert!(taken.len() == 1 && places.try_take().is_none());
        places.limit(0);
        places.limit(4);
        taken.extend((0..9).map_while(|_| places.try_take()));
        assert_eq!(taken.len(), 4);
        places.limit(2);
        places.limit(3);
        taken.pop();
        assert!(
            places.try_take().is_none(),
            "three are taken, three are allowed"
        );
        taken.pop();
        assert!(places.try_take().is_some());
    }
}
