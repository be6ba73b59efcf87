//! Logs that dead jobs were dropped early: at most one line per check, with their number.

use windlass_engine::DeadDropped;

/// The counts that were already logged.
#[derive(Debug, Default)]
pub(crate) struct DropsLogged(DeadDropped);

impl DropsLogged {
    /// Warns of jobs dropped since the last call. Returns whether there were any.
    pub(crate) fn log(&mut self, dropped: DeadDropped) -> bool {
        let before = std::mem::replace(&mut self.0, dropped);
        let (full, made_way) = (
            dropped.full - before.full,
            dropped.made_way - before.made_way,
        );
        if full > 0 {
            tracing::warn!(
                jobs = full,
                "dropped the oldest dead jobs: the dead-letter queue is full (limits.dead_max, limits.dead_bytes_max)"
            );
        }
        if made_way > 0 {
            tracing::warn!(
                jobs = made_way,
                "dropped the oldest dead jobs to make room for new jobs (limits.jobs_max, limits.jobs_bytes_max)"
            );
        }
        full + made_way > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Log;
    use crate::logging::tests::captured;

    #[test]
    fn each_drop_is_logged_once() {
        let mut logged = DropsLogged::default();
        assert!(!logged.log(DeadDropped::default()));
        assert!(logged.log(DeadDropped {
            full: 3,
            made_way: 0
        }));
        assert!(!logged.log(DeadDropped {
            full: 3,
            made_way: 0
        }));
        assert!(logged.log(DeadDropped {
            full: 3,
            made_way: 1
        }));
        assert_eq!(logged.0.total(), 4);
        let said = captured(&Log::default(), || {
            _ = logged.log(DeadDropped {
                full: 5,
                made_way: 4,
            })
        });
        assert!(
            said.contains("jobs=2") && said.contains("jobs=3"),
            "how many more: {said}"
        );
    }

    #[test]
    fn each_reason_has_its_line() {
        let lines = |dropped| {
            let text = captured(&Log::default(), || _ = DropsLogged::default().log(dropped));
            ["queue is full", "to make room"].map(|reason| text.matches(reason).count())
        };
        assert_eq!(lines(DeadDropped::default()), [0, 0]);
        assert_eq!(
            lines(DeadDropped {
                full: 3,
                made_way: 0
            }),
            [1, 0]
        );
        assert_eq!(
            lines(DeadDropped {
                full: 0,
                made_way: 3
            }),
            [0, 1]
        );
    }
}
