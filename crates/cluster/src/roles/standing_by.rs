//! A daemon in standby: it tries to acquire the lease of the store, but lets the previous leader go
//! first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use windlass_hub::{View, clock, warn_limited};
use windlass_store::{Error as StoreError, OpenError, Remote};

use super::{LOOK_EVERY, RETRY};
use crate::edge::Edge;

/// Whether this daemon defers to the previous leader after an outage of the database. That daemon
/// gets the length of a lease to renew its own and, if it is known to be alive, the time to
/// reconnect to the database.
pub(super) struct GiveWay {
    /// The length of the store's lease, and the connection timeout of the database.
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

/// Tries to open the store until it is available.
pub(super) fn stand_by<T>(
    mut open: impl FnMut() -> Result<T, OpenError>,
    mut give_way: GiveWay,
    edge: &Edge,
    view: &View,
    stop: &AtomicBool,
) -> Result<Option<T>, OpenError> {
    let (remote, mut knows_the_time) = (give_way.remote.clone(), false);
    loop {
        // A daemon that has neither led nor followed would compute its clients' deadlines from its
        // own wall clock, which may differ from the leader's.
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
