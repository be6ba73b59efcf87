//! The reasons for which a daemon refuses something, and the start of each.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use windlass_daemon::Role;
use windlass_daemon::client::Readiness;
use windlass_daemon::figures::Snapshot;
use windlass_engine::{Stats, Timestamp};

/// A reason to refuse something. The most important is first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Reason {
    Stopping,
    StoreFailed,
    NoLeader,
    DiskFull,
    Memory,
    Jobs,
    JobBytes,
    Connections,
    Draining,
}

impl Reason {
    pub(crate) const ALL: [Self; 9] = [
        Self::Stopping,
        Self::StoreFailed,
        Self::NoLeader,
        Self::DiskFull,
        Self::Memory,
        Self::Jobs,
        Self::JobBytes,
        Self::Connections,
        Self::Draining,
    ];

    /// The name for programs.
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::Stopping => "stopping",
            Self::StoreFailed => "store_failed",
            Self::NoLeader => "no_leader",
            Self::DiskFull => "disk_full",
            Self::Memory => "memory_full",
            Self::Jobs => "jobs_full",
            Self::JobBytes => "bytes_full",
            Self::Connections => "connections_full",
            Self::Draining => "draining",
        }
    }

    /// The reason, and what is refused.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Stopping => "the daemon is stopping",
            Self::StoreFailed => "the store is not responding: nothing is acknowledged",
            Self::NoLeader => {
                "no leader: clients wait for one, and are disconnected after cluster.hold"
            }
            Self::DiskFull => "disk full: rejecting new jobs; existing jobs continue",
            Self::Memory => "limits.memory reached: rejecting new jobs; existing jobs continue",
            Self::Jobs => "limits.jobs_max reached: rejecting new jobs; existing jobs continue",
            Self::JobBytes => {
                "limits.jobs_bytes_max reached: rejecting new jobs; existing jobs continue"
            }
            Self::Connections => {
                "connection limit reached (server.connections_max or open files): rejecting new connections"
            }
            Self::Draining => "draining: not accepting connections or handing out jobs",
        }
    }

    /// Returns true if an operator has requested it.
    const fn is_wanted(self) -> bool {
        matches!(self, Self::Stopping | Self::Draining)
    }
}

/// When each reason started to apply, and when it last applied.
#[derive(Debug, Default)]
pub(crate) struct Since(Mutex<BTreeMap<Reason, (Timestamp, Timestamp)>>);

impl Since {
    /// The reasons that applied last, with the start of each.
    pub(crate) fn last(&self) -> BTreeMap<Reason, Timestamp> {
        let since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        since
            .iter()
            .map(|(reason, (since, _))| (*reason, *since))
            .collect()
    }

    /// Records the reasons that apply now, and logs the starts and ends.
    pub(crate) fn note(&self, reasons: &[Reason], now: Timestamp) -> BTreeMap<Reason, Timestamp> {
        let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let held = since.clone();
        // Full memory may be relieved and fill again repeatedly, and is reported without interruption.
        since.retain(|reason, (_, last)| {
            *reason == Reason::Memory && now.ms_since(*last) < LINGERS_MS
        });
        for reason in reasons {
            since.insert(
                *reason,
                (held.get(reason).map_or(now, |(since, _)| *since), now),
            );
        }
        for reason in since
            .keys()
            .filter(|reason| !held.contains_key(reason) && !reason.is_wanted())
        {
            tracing::warn!(reason = reason.code(), "{}", reason.text());
        }
        for reason in held
            .keys()
            .filter(|reason| !since.contains_key(reason) && !reason.is_wanted())
        {
            tracing::warn!(reason = reason.code(), "over: {}", reason.text());
        }
        since
            .iter()
            .map(|(reason, (since, _))| (*reason, *since))
            .collect()
    }
}

/// How long full memory is still reported after it was relieved.
const LINGERS_MS: u64 = 10_000;

/// With less available memory, in bytes, a small job may be refused.
const LEAST_ROOM: u64 = 4 << 10;

/// The reasons that apply.
pub(crate) fn reasons(
    readiness: Readiness,
    role: &Role,
    figures: &Snapshot,
    stats: Option<&Stats>,
) -> Vec<Reason> {
    let state = match readiness {
        Readiness::Ready => None,
        Readiness::DiskFull => Some(Reason::DiskFull),
        Readiness::StoreFailed if matches!(role, Role::Seeking { .. }) => Some(Reason::NoLeader),
        Readiness::StoreFailed => Some(Reason::StoreFailed),
        Readiness::Draining => Some(Reason::Draining),
        Readiness::Stopping => Some(Reason::Stopping),
    };
    let is_reached = |(is, most): (u64, u64)| most > 0 && is >= most;
    // The figures and limits of the engine are 0 if the engine is in another daemon. Memory that is
    // full of bodies is no reason, because bodies can be moved to the disk, and pushes wait for
    // that.
    let has_room = figures.memory.bytes.1 == 0 || figures.memory.room >= LEAST_ROOM;
    let memory = Some(Reason::Memory).filter(|_| !has_room && readiness != Readiness::StoreFailed);
    let (jobs, bytes) = stats.map_or((0, 0), Stats::staying);
    let jobs = Some(Reason::Jobs).filter(|_| is_reached((jobs, figures.jobs_max)));
    let bytes =
        Some(Reason::JobBytes).filter(|_| is_reached((bytes, figures.jobs_bytes_max.unwrap_or(0))));
    let (open, most) = figures.places;
    let connections = Some(Reason::Connections).filter(|_| is_reached((open as u64, most as u64)));
    [state, memory, jobs, bytes, connections]
        .into_iter()
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use windlass_engine::JobStateKind;

    use super::*;

    #[test]
    fn a_limit_that_is_reached_is_a_reason_to_refuse() {
        let full = |change: fn(&mut Snapshot, &mut Stats)| {
            let (mut figures, mut stats) = (
                Snapshot {
                    places: (0, 20),
                    ..Snapshot::default()
                },
                Stats::default(),
            );
            (figures.jobs_max, figures.jobs_bytes_max) = (10, Some(10));
            (figures.memory.bytes, figures.memory.room) = ((0, 1 << 20), 1 << 20);
            change(&mut figures, &mut stats);
            reasons(Readiness::Ready, &Role::Alone, &figures, Some(&stats))
        };
        assert_eq!(full(|_, _| {}), []);
        assert_eq!(
            full(|figures, _| figures.memory.bytes = (1 << 20, 1 << 20)),
            [],
            "bodies leave it"
        );
        assert_eq!(full(|figures, _| figures.memory.room = 0), [Reason::Memory]);
        assert_eq!(full(|_, stats| stats.jobs = 10), [Reason::Jobs]);
        assert_eq!(full(|_, stats| stats.bytes = 11), [Reason::JobBytes]);
        let past = |_: &mut Snapshot, stats: &mut Stats| {
            (stats.jobs, stats.bytes, stats.past_bytes) = (10, 11, 2);
            stats.places[JobStateKind::Dead as usize] = 1;
        };
        assert_eq!(full(past), [], "dead jobs make way");
        assert_eq!(
            full(|figures, _| figures.places = (20, 20)),
            [Reason::Connections]
        );
        assert_eq!(
            full(
                |figures, _| (figures.memory.bytes, figures.memory.room, figures.jobs_max) =
                    ((0, 0), 0, 0)
            ),
            [],
            "they are elsewhere"
        );
    }

    #[test]
    fn a_reason_holds_since_it_was_seen_first() {
        let since = Since::default();
        let at = |now: u64, reasons: &[Reason]| {
            let noted = since.note(reasons, Timestamp(now));
            noted
                .into_iter()
                .map(|(reason, at)| (reason, at.0))
                .collect::<Vec<_>>()
        };
        assert_eq!(at(5, &[Reason::Jobs]), [(Reason::Jobs, 5)]);
        assert_eq!(
            at(7, &[Reason::Jobs, Reason::DiskFull]),
            [(Reason::DiskFull, 7), (Reason::Jobs, 5)]
        );
        assert_eq!(at(8, &[]), []);
        assert_eq!(
            at(9, &[Reason::Jobs, Reason::Memory]),
            [(Reason::Memory, 9), (Reason::Jobs, 9)]
        );
        assert_eq!(at(9 + LINGERS_MS - 1, &[]), [(Reason::Memory, 9)]);
        assert_eq!(
            at(9 + LINGERS_MS, &[Reason::Memory]),
            [(Reason::Memory, 9)],
            "it has held meanwhile"
        );
        assert_eq!(at(9 + 2 * LINGERS_MS, &[]), []);
    }
}
