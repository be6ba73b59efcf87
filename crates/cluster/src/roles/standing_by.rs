//! A daemon that stands by: it tries to take the lease of the store, and gives way to the daemon that had it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use windlass_hub::{View, clock, warn_limited};
use windlass_store::{Error as StoreError, OpenError, Remote};

use super::{LOOK_EVERY, RETRY};
use crate::edge::Edge;

/// Whether this daemon gives way to the one that led before: the database was away. When it is back, that daemon has
/// the length of a lease to renew its own, and if it is known to live, the time for a connection to the database.
pub(super) struct GiveWay {
    /// How long the lease of the store lasts, and a connection to the database may take.
    pub(super) terms: (Duration, Duration),
    pub(super) remote: Option<Arc<dyn Remote>>,
    pub(super) was_away: bool,
    pub(super) back_at: Option<Instant>,
}

impl GiveWay {
    fn is_over(&mut self, edge: &Edge) -> bool {
        if let Some(remote) = self.remote.as_ref().filter(|_| self.was_away) {
            match remote.holder() {
                Err(_) => self.back_at = None,
                Ok(Some(_)) => self.was_away = false,
                Ok(None) => {
                    let (lease, connect) = self.terms;
                    let length = lease
                        + if edge.in_doubt() {
                            connect
                        } else {
                            Duration::ZERO
                        };
                    self.was_away =
                        self.back_at.get_or_insert_with(Instant::now).elapsed() < length;
                }
            }
        }
        !self.was_away
    }
}

/// Tries to open the store until it is free.
pub(super) fn stand_by<T>(
    mut open: impl FnMut() -> Result<T, OpenError>,
    mut give_way: GiveWay,
    edge: &Edge,
    view: &View,
    stop: &AtomicBool,
) -> Result<Option<T>, OpenError> {
    let (remote, mut knows_the_time) = (give_way.remote.clone(), false);
    loop {
        // Before a daemon has led, or followed a leader, its clients' deadlines would come from its own wall clock, and
        // mean another moment at the leader.
        if let Some(remote) = remote.as_ref().filter(|_| !knows_the_time)
            && let Ok(ahead_ms) = remote.wall_ahead_ms()
        {
            ahead_ms.into_iter().for_each(clock::keep_wall);
            knows_the_time = true;
        }
        let (pause, why) = match give_way.is_over(edge).then(&mut open).transpose() {
            Ok(Some(opened)) => return Ok(Some(opened)),
            Ok(None) => (LOOK_EVERY, None),
            Err(OpenError::Store(StoreError::InUse { .. })) => (LOOK_EVERY, Some(String::new())),
            Err(OpenError::Store(why @ (StoreError::Io { .. } | StoreError::Deposed { .. }))) => {
                warn_limited!("stand_by", %why, "cannot acquire the lease of the store");
                (give_way.was_away, give_way.back_at) =
                    (matches!(why, StoreError::Io { .. }), None);
                (RETRY, Some(why.to_string()))
            }
            Err(why) => return Err(why),
        };
        why.iter().for_each(|why| view.cannot_lead(why));
        if stop.load(Ordering::Acquire) {
            return Ok(None);
        }
        std::thread::sleep(pause);
    }
}
