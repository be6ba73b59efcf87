//! What the engine thinks somebody should know, as lines of the log.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use windlass_engine::{Notice, Origin, Timestamp};

/// At most one line in so many milliseconds; the next one says how many were left out.
const PAUSE_MS: u64 = 1_000;

/// The way to the log.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    /// When the last line was written.
    told_at: AtomicU64,
    left_out: AtomicU64,
}

impl Notices {
    /// Logs what was noticed at this time.
    pub(crate) fn tell(&self, notices: &[Notice], now: Timestamp) {
        for notice in notices {
            let told_at = self.told_at.load(Ordering::Acquire);
            let again = told_at == 0 || now.0 >= told_at.saturating_add(PAUSE_MS);
            let ours = self.told_at.compare_exchange(told_at, now.0, Ordering::AcqRel, Ordering::Acquire);
            if !again || ours.is_err() {
                self.left_out.fetch_add(1, Ordering::AcqRel);
                continue;
            }
            match self.left_out.swap(0, Ordering::AcqRel) {
                0 => tracing::warn!("{}", Line(notice)),
                left_out => tracing::warn!(left_out, "{}", Line(notice)),
            }
        }
    }
}

/// A notice in words.
struct Line<'a>(&'a Notice);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Notice::Unserved { queue, jobs, workers } => {
                let workers: Vec<&str> = workers.iter().map(|workers| name(*workers)).collect();
                let (jobs, workers) = (name(*jobs), workers.join(" and "));
                write!(
                    f,
                    "{jobs} jobs wait in `{}`, which only {workers} workers serve: see bridge.queues",
                    shown(queue)
                )
            }
            Notice::Unfit { queue, job, why, is_dead } => {
                let what = if *is_dead { "is dead" } else { "waits for a worker of another protocol" };
                write!(f, "job {} of `{}` {what}: {}", job.0, shown(queue), shown(why))
            }
        }
    }
}

fn shown(bytes: &[u8]) -> impl fmt::Display + '_ {
    bytes.escape_ascii()
}

/// What people call a protocol.
fn name(origin: Origin) -> &'static str {
    match origin {
        Origin::FAKTORY => "FWP",
        Origin::GEARMAN => "Gearman",
        Origin::EVENTMQ => "EventMQ",
        Origin::SPIDERQ => "spiderq",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use windlass_engine::JobId;

    use super::*;

    #[test]
    fn lines() {
        let queue = Bytes::from_static(b"resize");
        let unserved = Notice::Unserved { queue: queue.clone(), jobs: Origin::FAKTORY, workers: vec![Origin::GEARMAN] };
        let why = Bytes::from_static(b"conversion: faktory to eventmq: the jobtype is not path.callable");
        let unfit = |is_dead| Notice::Unfit { queue: queue.clone(), job: JobId(7), why: why.clone(), is_dead };
        let table = [
            (unserved, "FWP jobs wait in `resize`, which only Gearman workers serve: see bridge.queues"),
            (
                unfit(false),
                "job 7 of `resize` waits for a worker of another protocol: conversion: faktory to eventmq: the jobtype is not path.callable",
            ),
            (
                unfit(true),
                "job 7 of `resize` is dead: conversion: faktory to eventmq: the jobtype is not path.callable",
            ),
        ];
        table.iter().for_each(|(notice, line)| assert_eq!(Line(notice).to_string(), *line));
    }
}
