//! The present refusals of the daemon, with reason and start. The probes, the status, the pages, the metrics
//! and the log use this module, so that they agree.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use windlass_config::counted;
use windlass_daemon::client::Readiness;
use windlass_daemon::{Role, clock};
use windlass_engine::{NamespaceRow, Stats, Timestamp};

use crate::api::namespaces::limit_name;
use crate::app::App;
use crate::name::Name;
use crate::reasons::{Reason, reasons};
use crate::time::moment_text;
use crate::view::view;

view! {
    /// Something that is refused.
    Refusing(reason: &'static str, text: String, since: Option<String>) {
        /// `store_failed`, `no_leader`, `disk_full`, `memory_full`, `jobs_full`, `bytes_full`, `connections_full`, `draining`,
        /// `stopping`, or `namespace_full` for what concerns one namespace only.
        reason: &'static str = reason,
        /// The reason, and what is refused.
        text: String = text,
        /// Since when, as far as this daemon has looked; of a namespace, when a push was refused last.
        since: Option<String> = since,
    }
}

/// The reason of what a namespace refuses.
pub(crate) const NAMESPACE_FULL: &str = "namespace_full";

/// A namespace that has refused a push within this time is told.
const LATELY_MS: u64 = 60_000;

/// Namespaces that are told.
const NAMESPACES_MAX: usize = 20;

/// The namespaces that refused a push lately. One that is at its limit refuses its own pushes only, so the daemon is
/// ready.
pub(crate) fn namespaces(app: &App, rows: &[NamespaceRow]) -> Vec<Refusing> {
    let wall = app.now().wall;
    let full = |row: &NamespaceRow| {
        let (limit, at) = row.refused_last?;
        let name = Name(row.name.clone());
        let text = format!(
            "namespace {name} is at its limit of {}: rejecting its new jobs, {} so far",
            limit_name(limit),
            row.refused
        );
        (wall.ms_since(at) < LATELY_MS).then(|| Refusing::of(NAMESPACE_FULL, text, moment_text(at)))
    };
    rows.iter().filter_map(full).take(NAMESPACES_MAX).collect()
}

/// All that the readers of a page or of the status are told: what the daemon refuses, and which of the namespaces
/// they see are full.
pub(crate) fn told(app: &App, stats: Option<&Stats>, rows: &[NamespaceRow]) -> Vec<Refusing> {
    let mut all = look(app, stats);
    all.extend(namespaces(app, rows));
    all
}

/// All reasons to refuse something now, the most important first. `stats` are those of the engine, if it has
/// replied.
pub(crate) fn look(app: &App, stats: Option<&Stats>) -> Vec<Refusing> {
    hold(app, stats)
        .into_iter()
        .map(|(reason, since)| {
            Refusing::of(
                reason.code(),
                reason.text().to_owned(),
                app.now().text(since),
            )
        })
        .collect()
}

/// The reasons that apply now, with the start of each.
pub(crate) fn hold(app: &App, stats: Option<&Stats>) -> BTreeMap<Reason, Timestamp> {
    if app.namespace().is_some() {
        // These figures are of a part, and say nothing about the daemon's limits.
        return app.refusing.last();
    }
    let reasons = reasons(
        app.readiness(),
        &app.control.role(),
        &app.daemon_figures.read(),
        stats,
    );
    app.refusing.note(&reasons, app.now().engine)
}

/// The engine's figures for a probe, which must not wait for an engine that cannot reply, or that is in
/// another daemon with different limits.
pub(crate) async fn stats_for_probe(app: &App) -> Option<Box<Stats>> {
    let may_ask = app.readiness() != Readiness::StoreFailed
        && matches!(app.control.role(), Role::Alone | Role::Leading { .. });
    if may_ask {
        app.stats().await.ok()
    } else {
        None
    }
}

/// A certificate that expires sooner causes a warning.
const CERTIFICATE: u64 = 14 * 86_400;

/// A disk with less space, in bytes, causes a warning.
const ROOM: u64 = 1 << 30;

/// A wall clock that differs more from the database's causes a warning.
const FAR: Duration = Duration::from_secs(5);

/// A warning that something will soon be refused, or expire.
#[derive(Debug)]
pub(crate) struct Nearly {
    /// The subject, independent of the figures.
    about: String,
    pub(crate) text: String,
    /// The page about it; empty if there is no such page.
    pub(crate) to: &'static str,
}

/// The logged warnings, and when each last applied.
#[derive(Debug, Default)]
pub(crate) struct Logged(BTreeMap<String, Instant>);

impl Logged {
    /// Records a warning that applies now. Returns `true` if it is new. A warning that reappears soon is
    /// logged only once.
    fn is_new(&mut self, about: &str, now: Instant) -> bool {
        const APART: Duration = Duration::from_secs(600);
        let before = self.0.insert(about.to_owned(), now);
        before.is_none_or(|before| now.duration_since(before) > APART)
    }
}

/// Checks periodically, even without requests, so that starts and ends are logged at the right times.
pub(crate) fn watch(app: &App, stats: Option<&Stats>, logged: &mut Logged) {
    hold(app, stats);
    for Nearly { about, text, .. } in warnings(app, stats) {
        if logged.is_new(&about, Instant::now()) {
            tracing::warn!("{text}");
        }
    }
}

/// Limits that are nearly reached, the disk, and certificates.
pub(crate) fn warnings(app: &App, stats: Option<&Stats>) -> Vec<Nearly> {
    // Those of a namespace say nothing about the daemon's limits.
    let stats = stats.filter(|_| app.namespace().is_none());
    let snapshot = app.daemon_figures.read();
    let bad = |about: &str, text: String, to: &'static str| Nearly {
        about: about.to_owned(),
        text,
        to,
    };
    let nearly = |is: u64, most: u64| most > 0 && is >= most.saturating_sub(most / 10);
    let (live, live_bytes) = stats.map_or((0, 0), Stats::staying);
    let jobs = nearly(live, snapshot.jobs_max).then(|| {
        bad(
            "jobs",
            format!("{live} of {} jobs: limits.jobs_max", snapshot.jobs_max),
            "/jobs",
        )
    });
    let bytes = snapshot
        .jobs_bytes_max
        .filter(|most| nearly(live_bytes, *most))
        .map(|most| {
            let text = format!(
                "Jobs take {} of {} MiB: limits.jobs_bytes_max",
                live_bytes >> 20,
                most >> 20
            );
            bad("bytes", text, "/queues?sort=-states.ready")
        });
    let (in_memory, most) = snapshot.memory.bytes;
    let memory = (most > 0 && snapshot.memory.room < most / 10).then(|| {
        let text = format!(
            "Jobs take {} of the {} MiB that limits.memory leaves for them",
            in_memory >> 20,
            most >> 20
        );
        bad("memory", text, "/queues?sort=-states.ready")
    });
    let (open, most) = snapshot.places;
    let places = nearly(open as u64, most as u64).then(|| {
        bad(
            "connections",
            format!("{open} of {most} connections: {}", snapshot.places_limit),
            "/connections",
        )
    });
    let names = stats.filter(|it| nearly(it.queues.into(), snapshot.queues_max));
    let names = names.map(|it| {
        bad(
            "names",
            format!(
                "{} of {} names of queues: limits.queues_max",
                it.queues, snapshot.queues_max
            ),
            "/queues",
        )
    });
    let free = snapshot.free_bytes.filter(|free| *free < ROOM);
    let free = free.map(|free| {
        bad(
            "disk",
            format!("The disk of the store has {} MiB left", free >> 20),
            "",
        )
    });
    let ahead =
        clock::machine_ahead_ms().filter(|ms| Duration::from_millis(ms.unsigned_abs()) > FAR);
    let ahead = ahead.map(|ms| {
        bad(
            "clock",
            format!("The wall clock is {ms} ms ahead of the database's"),
            "/cluster",
        )
    });
    let now = app.now().wall.0 / 1_000;
    let ends = snapshot
        .certificates_end_at
        .into_iter()
        .filter_map(|(protocol, at)| match at.saturating_sub(now) {
            0 => Some(bad(
                &format!("{protocol} ended"),
                format!("The certificate of {protocol} has expired"),
                "",
            )),
            left if left < CERTIFICATE => Some(bad(
                protocol,
                format!(
                    "The certificate of {protocol} expires in {}",
                    counted(left / 86_400, "day")
                ),
                "",
            )),
            _ => None,
        });
    jobs.into_iter()
        .chain(bytes)
        .chain(memory)
        .chain(places)
        .chain(names)
        .chain(free)
        .chain(ahead)
        .chain(ends)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_that_comes_and_goes_is_logged_once() {
        let (mut logged, begun) = (Logged::default(), Instant::now());
        let mut at = |s, about| logged.is_new(about, begun + Duration::from_secs(s));
        assert_eq!(
            [
                at(0, "disk"),
                at(5, "disk"),
                at(5, "gearman"),
                at(500, "disk")
            ],
            [true, false, true, false]
        );
        assert_eq!(
            [at(1_101, "disk"), at(1_102, "gearman ended")],
            [true, true]
        );
    }
}
