//! That dead jobs were dropped before their time, as a line of the log: at most one each time somebody looks, with how many.

use windlass_engine::DeadDropped;

/// What has been told so far.
#[derive(Debug, Default)]
pub(crate) struct DropsTold(DeadDropped);

impl DropsTold {
    /// Warns of those that were dropped since it was looked last. Says whether there were any.
    pub(crate) fn tell(&mut self, dropped: DeadDropped) -> bool {
        let before = std::mem::replace(&mut self.0, dropped);
        let (full, made_way) = (dropped.full - before.full, dropped.made_way - before.made_way);
        if full > 0 {
            tracing::warn!(
                jobs = full,
                "dead jobs dropped, the oldest first: the dead set is full (limits.dead_max, limits.dead_bytes_max)"
            );
        }
        if made_way > 0 {
            tracing::warn!(
                jobs = made_way,
                "dead jobs dropped, the oldest first, to make room for new ones (limits.jobs_max, limits.jobs_bytes_max)"
            );
        }
        full + made_way > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_told_once() {
        let mut told = DropsTold::default();
        assert!(!told.tell(DeadDropped::default()));
        assert!(told.tell(DeadDropped { full: 3, made_way: 0 }));
        assert!(!told.tell(DeadDropped { full: 3, made_way: 0 }));
        assert!(told.tell(DeadDropped { full: 3, made_way: 1 }));
        assert_eq!(told.0.total(), 4);
    }
}
