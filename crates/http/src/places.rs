//! Places for requests that wait. Their number can change while some are taken.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A number of places.
#[derive(Debug)]
pub(crate) struct Places {
    free: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// How many places there are.
    all: usize,
    /// This many taken places are removed when they become free.
    surplus: usize,
}

/// A place. It becomes free when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    permit: Option<OwnedSemaphorePermit>,
    places: Arc<Places>,
}

impl Places {
    pub(crate) fn new(all: usize) -> Arc<Self> {
        Arc::new(Self { free: Arc::new(Semaphore::new(all)), state: Mutex::new(State { all, surplus: 0 }) })
    }

    /// From now on there are this many. Those that are taken stay taken.
    pub(crate) fn limit(&self, all: usize) {
        let mut state = self.lock();
        let State { all: before, surplus } = &mut *state;
        if let Some(fewer) = before.checked_sub(all) {
            *surplus += fewer - self.free.forget_permits(fewer);
        } else {
            let more = all - *before;
            let kept = more.min(*surplus);
            *surplus -= kept;
            self.free.add_permits(more - kept);
        }
        *before = all;
    }

    /// A place, if there is one now.
    pub(crate) fn try_take(self: &Arc<Self>) -> Option<Place> {
        let permit = Arc::clone(&self.free).try_acquire_owned().ok()?;
        Some(Place { permit: Some(permit), places: Arc::clone(self) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics half-way through a change under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.places.lock();
        if let Some(less) = state.surplus.checked_sub(1) {
            state.surplus = less;
            self.permit.take().into_iter().for_each(OwnedSemaphorePermit::forget);
        } else {
            // Freed under the lock, so that no change of the number comes between.
            self.permit = None;
        }
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
            assert!(places.try_take().is_none(), "{left} are taken, one is allowed");
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
        assert!(places.try_take().is_none(), "three are taken, three are allowed");
        taken.pop();
        assert!(places.try_take().is_some());
    }
}
