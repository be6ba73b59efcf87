//! Timers of one worker or scheduler: heartbeats in both directions, and the nudge.
//!
//! The stock `JobManager` waits up to a second for a message before it checks whether a job has finished. So a worker
//! that has jobs and no credit gets extra heartbeats (nudges) to wake it: soon after it was given a job, then less and
//! less often, so that long jobs cost little.

use windlass_engine::Timestamp;

use crate::config::Eventmq;

/// The timers of one worker or scheduler.
#[derive(Debug)]
pub(super) struct Beat {
    /// Time of its last message.
    received_at: Timestamp,
    /// Time of the last heartbeat to it.
    sent_at: Timestamp,
    /// Time when it last got or finished a job.
    worked_at: Timestamp,
}

impl Beat {
    /// It has just registered and gets its first heartbeat now.
    pub(super) const fn new(now: Timestamp) -> Self {
        Self {
            received_at: now,
            sent_at: now,
            worked_at: now,
        }
    }

    /// It has sent a message, or the session could not read its messages.
    pub(super) fn received(&mut self, now: Timestamp) {
        self.received_at = now;
    }

    /// A heartbeat was sent to it.
    pub(super) fn sent(&mut self, now: Timestamp) {
        self.sent_at = now;
    }

    /// It got or finished a job.
    pub(super) fn worked(&mut self, now: Timestamp) {
        self.worked_at = now;
    }

    /// When it counts as dead.
    pub(super) fn dead_at(&self, section: &Eventmq) -> Timestamp {
        match section.heartbeat_timeout.as_ms() {
            0 => Timestamp::NEVER,
            ms => self.received_at.after_ms(ms),
        }
    }

    /// When its next heartbeat is due. `busy`: it has jobs and no credit.
    pub(super) fn due_at(&self, busy: bool, section: &Eventmq) -> Timestamp {
        let regular = self.sent_at.after_ms(section.heartbeat.as_ms());
        if busy && !section.nudge.is_zero() {
            regular.min(self.nudge_at(section))
        } else {
            regular
        }
    }

    /// The time of the next nudge. The pause before it is a quarter of the time from the last job to the last
    /// heartbeat, within `nudge` and `nudge_max`.
    fn nudge_at(&self, section: &Eventmq) -> Timestamp {
        let last = self.sent_at.max(self.worked_at);
        let pause_ms = last.ms_since(self.worked_at) / 4;
        let (least, most) = (
            section.nudge.as_ms(),
            section.nudge_max.max(section.nudge).as_ms(),
        );
        last.after_ms(pause_ms.clamp(least, most))
    }
}

#[cfg(test)]
mod tests {
    use windlass_config::Period;

    use super::*;

    fn section() -> Eventmq {
        Eventmq {
            nudge: Period::from_ms(10),
            ..Eventmq::default()
        }
    }

    #[test]
    fn nudges_become_rarer_and_end_with_the_job() {
        let mut beat = Beat::new(Timestamp(0));
        beat.worked(Timestamp(5));
        let mut times = Vec::new();
        while beat.sent_at < Timestamp(10_000) {
            beat.sent(beat.due_at(true, &section()));
            times.push(beat.sent_at.0 - 5);
        }
        assert_eq!(times[..9], [10, 20, 30, 40, 50, 62, 77, 96, 120]);
        assert_eq!(
            times[times.len() - 3..]
                .windows(2)
                .map(|two| two[1] - two[0])
                .collect::<Vec<_>>(),
            [1_000, 1_000]
        );
        assert!(
            times.len() < 40,
            "a job of ten seconds is nudged {} times",
            times.len()
        );
        assert_eq!(beat.due_at(false, &section()), beat.sent_at.after_ms(3_000));
        beat.worked(Timestamp(12_000));
        assert_eq!(
            beat.due_at(true, &section()),
            Timestamp(12_010),
            "and begin anew with the next"
        );
    }

    #[test]
    fn what_is_0_is_never() {
        let beat = Beat::new(Timestamp(0));
        let off = Eventmq {
            nudge: Period::from_ms(0),
            heartbeat_timeout: Period::from_ms(0),
            ..section()
        };
        assert_eq!(
            (beat.due_at(true, &off), beat.dead_at(&off)),
            (Timestamp(3_000), Timestamp::NEVER)
        );
        assert_eq!(beat.dead_at(&section()), Timestamp(10_000));
    }
}
