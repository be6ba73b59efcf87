//! Who has to say something when: heartbeats to a worker or scheduler, its own signs of life, and the nudge.
//!
//! The stock `JobManager` waits up to a second for a message before it looks whether a job has finished. One that has jobs
//! and no credit is told something for no other reason than to wake it up: soon after it was given a job, and then ever
//! more rarely, so that long jobs cost little.

use windlass_engine::Timestamp;

use super::Settings;

/// The times that count, of one worker or scheduler.
#[derive(Debug)]
pub(super) struct Beat {
    /// It was heard last.
    heard_at: Timestamp,
    /// It was sent a heartbeat last.
    said_at: Timestamp,
    /// It got or did a job last.
    worked_at: Timestamp,
}

impl Beat {
    /// It has just informed, and is about to be sent its first heartbeat.
    pub(super) const fn new(now: Timestamp) -> Self {
        Self { heard_at: now, said_at: now, worked_at: now }
    }

    /// It has said something, or could not.
    pub(super) fn heard(&mut self, now: Timestamp) {
        self.heard_at = now;
    }

    /// It was sent a heartbeat.
    pub(super) fn said(&mut self, now: Timestamp) {
        self.said_at = now;
    }

    /// It got a job, or has done one.
    pub(super) fn worked(&mut self, now: Timestamp) {
        self.worked_at = now;
    }

    /// When it is to be taken for dead.
    pub(super) fn dead_at(&self, settings: &Settings) -> Timestamp {
        match settings.heartbeat_timeout_ms {
            0 => Timestamp::NEVER,
            ms => self.heard_at.after_ms(ms),
        }
    }

    /// When it is to be sent a heartbeat; `busy` if it has jobs and no credit.
    pub(super) fn due_at(&self, busy: bool, settings: &Settings) -> Timestamp {
        let regular = self.said_at.after_ms(settings.heartbeat_ms);
        if busy && settings.nudge_ms > 0 { regular.min(self.nudge_at(settings)) } else { regular }
    }

    /// A quarter of the time it has been busy after the last one.
    fn nudge_at(&self, settings: &Settings) -> Timestamp {
        let last = self.said_at.max(self.worked_at);
        let pause_ms = last.ms_since(self.worked_at) / 4;
        last.after_ms(pause_ms.clamp(settings.nudge_ms, settings.nudge_ms_max.max(settings.nudge_ms)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings { heartbeat_ms: 3_000, nudge_ms: 10, nudge_ms_max: 1_000, ..Settings::new() }
    }

    #[test]
    fn nudges_become_rarer_and_end_with_the_job() {
        let mut beat = Beat::new(Timestamp(0));
        beat.worked(Timestamp(5));
        let mut times = Vec::new();
        while beat.said_at < Timestamp(10_000) {
            beat.said(beat.due_at(true, &settings()));
            times.push(beat.said_at.0 - 5);
        }
        assert_eq!(times[..9], [10, 20, 30, 40, 50, 62, 77, 96, 120]);
        assert_eq!(times[times.len() - 3..].windows(2).map(|two| two[1] - two[0]).collect::<Vec<_>>(), [1_000, 1_000]);
        assert!(times.len() < 40, "a job of ten seconds is nudged {} times", times.len());
        assert_eq!(beat.due_at(false, &settings()), beat.said_at.after_ms(3_000));
        beat.worked(Timestamp(12_000));
        assert_eq!(beat.due_at(true, &settings()), Timestamp(12_010), "and begin anew with the next");
    }

    #[test]
    fn what_is_0_is_never() {
        let beat = Beat::new(Timestamp(0));
        let off = Settings { nudge_ms: 0, heartbeat_timeout_ms: 0, ..settings() };
        assert_eq!((beat.due_at(true, &off), beat.dead_at(&off)), (Timestamp(3_000), Timestamp::NEVER));
        assert_eq!(beat.dead_at(&settings()), Timestamp(10_000));
    }
}
