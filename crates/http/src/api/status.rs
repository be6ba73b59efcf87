//! Probes, and the figures of the daemon.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use windlass_daemon::Role;
use windlass_daemon::figures::JobMemory;
use windlass_engine::{ProtocolStats, Stats, Totals};

use super::control::Drain;
use super::views::counts;
use crate::app::{App, Shared};
use crate::attention::{self, Concern};
use crate::problem::Outcome;
use crate::refusing::{self, Refusing};
use crate::time::moment_text;
use crate::view::view;

view! {
    /// The daemon as a whole.
    Status(stats: &Stats, refused: Vec<Refusing>, nearly: Vec<String>, concerns: Vec<String>, app: &App) with {
        let clock = app.now();
    } {
        /// Windlass's version.
        version: &'static str = env!("CARGO_PKG_VERSION"),
        /// `ready`, or the first reason of `refusing` that concerns the whole daemon.
        state: &'static str = refused
            .first()
            .map(|first| first.reason)
            .filter(|reason| *reason != refusing::NAMESPACE_FULL)
            .unwrap_or("ready"),
        /// What is refused, why and since when; the most important first.
        refusing: Vec<Refusing> = refused,
        /// What is about to be refused or to end: limits that are nearly reached, certificates, the disk.
        warnings: Vec<String> = nearly,
        /// What an operator should look at first, these warnings among it: what fails or died lately, queues that no worker
        /// serves, the oldest job, lost workers, refused connections, schedules that did not run.
        attention: Vec<String> = concerns,
        /// What a drain waits for; null without one.
        drain: Option<Drain> = app.control.draining().map(|draining| Drain::of(&draining, app)),
        /// The time.
        now: Option<String> = moment_text(clock.wall),
        /// When the daemon started.
        started_at: Option<String> = clock.text(app.started_at),
        /// Jobs, all states together.
        jobs: u64 = stats.jobs,
        /// Bytes that jobs, schedules and batches count as.
        bytes: u64 = stats.bytes,
        /// Where their bytes are; null at a daemon of a cluster that does not lead.
        memory: Option<Memory> = Memory::here(app),
        /// Jobs by state.
        states: BTreeMap<&'static str, u64> = counts(&stats.places),
        /// Known queues.
        queues: u32 = stats.queues,
        /// Workers known by name.
        workers: u32 = stats.workers,
        /// Open connections.
        // One connection is that of this request.
        connections: u32 = stats.clients.saturating_sub(1),
        /// Recurring jobs.
        schedules: u32 = stats.schedules,
        /// Batches.
        batches: u32 = stats.batches,
        /// Counters since the data directory was created.
        totals: BTreeMap<String, u64> = totals(&stats.totals),
        /// Each protocol that has or had any jobs.
        protocols: Vec<ProtocolStatus> = stats.protocols.iter().map(|row| ProtocolStatus::of(row, app)).collect(),
    }
}

view! {
    /// What jobs, schedules and batches take in memory, and the bodies that are on the disk only.
    Memory(memory: JobMemory) {
        /// Bytes in memory, with what belongs to each job.
        used_bytes: u64 = memory.bytes.0,
        /// The most of it: what `limits.memory` leaves for jobs, beside buffers and checkpoints.
        limit_bytes: u64 = memory.bytes.1,
        /// Jobs whose bodies are on the disk only.
        stored_jobs: u64 = memory.stored.0,
        /// Bytes of these bodies.
        stored_bytes: u64 = memory.stored.1,
    }
}

impl Memory {
    fn here(app: &App) -> Option<Self> {
        let memory = app.daemon_figures.read().memory;
        (memory.bytes.1 > 0).then(|| Self::of(memory))
    }
}

view! {
    /// The jobs of one protocol.
    ProtocolStatus(row: &ProtocolStats, app: &App) {
        /// Its name.
        protocol: &'static str = app.protocol_name(row.protocol),
        /// Jobs by state.
        states: BTreeMap<&'static str, u64> = counts(&row.places),
        /// Counters since the data directory was created.
        totals: BTreeMap<String, u64> = totals(&row.totals),
    }
}

impl ProtocolStatus {
    /// The number of jobs in a state.
    pub(crate) fn state(&self, name: &str) -> u64 {
        self.states.get(name).copied().unwrap_or_default()
    }

    /// A counter.
    pub(crate) fn total(&self, name: &str) -> u64 {
        self.totals.get(name).copied().unwrap_or_default()
    }
}

/// Whether the daemon lives: its threads turn. A disk or a database that does not answer is no reason to restart it
#[utoipa::path(get, path = "/livez", tag = "status", responses(
    (status = 200, body = String), (status = 503, description = "The reason", body = String)
))]
pub(super) async fn livez(app: Shared) -> (StatusCode, String) {
    /// After a suspension of the process, each thread gets a chance to run first.
    const SECOND_LOOK: Duration = Duration::from_millis(500);
    if app.pulse.stuck().is_some() {
        tokio::time::sleep(SECOND_LOOK).await;
    }
    life(app.pulse.stuck())
}

/// The response, with the name of a thread that is stuck, if any.
fn life(stuck: Option<String>) -> (StatusCode, String) {
    match stuck {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

/// Whether the daemon takes jobs and connections: its store works and has room, no limit is reached, and it does not stop
#[utoipa::path(get, path = "/readyz", tag = "status", responses(
    (status = 200, body = String), (status = 503, description = "The reason", body = String)
))]
pub(super) async fn readyz(app: Shared) -> (StatusCode, String) {
    let refused = refusing::look(&app, refusing::stats_for_probe(&app).await.as_deref());
    let role = match app.control.role() {
        Role::Leading { .. } => ", leading",
        Role::Following { .. } => ", serving for the leader",
        Role::Alone | Role::Seeking { .. } => "",
    };
    let words = |it: &Refusing| format!("{}: {}\n", it.reason, it.text);
    match refused.as_slice() {
        [] => (StatusCode::OK, format!("ready{role}\n")),
        all => (
            StatusCode::SERVICE_UNAVAILABLE,
            all.iter().map(words).collect(),
        ),
    }
}

/// The figures of the whole daemon
#[utoipa::path(get, path = "/api/v1/status", tag = "status", responses((status = 200, body = Status)))]
pub(crate) async fn status(app: Shared) -> Outcome<Json<Status>> {
    let concerns = attention::look(&app).await;
    of(&app, &concerns).await.map(Json)
}

/// The figures of the daemon, with the concerns that need attention.
pub(crate) async fn of(app: &App, concerns: &[Concern]) -> Outcome<Status> {
    let stats = app.stats().await?;
    let nearly = refusing::warnings(app, Some(&stats))
        .into_iter()
        .map(|it| it.text)
        .collect();
    let concerns = concerns.iter().map(|it| it.text.clone()).collect();
    let namespaces = app.namespaces().await.unwrap_or_default();
    Ok(Status::of(
        &stats,
        refusing::told(app, Some(&stats), &namespaces),
        nearly,
        concerns,
        app,
    ))
}

/// Counters by name: the engine's names, except for two.
pub(super) fn totals(totals: &Totals) -> BTreeMap<String, u64> {
    let named = serde_json::to_value(totals).and_then(serde_json::from_value);
    let named: BTreeMap<String, u64> = named.unwrap_or_default();
    let renamed = named.into_iter().map(|(name, count)| match name.as_str() {
        "buried" => ("dead".to_owned(), count),
        "misfits" => ("unconvertible".to_owned(), count),
        _ => (name, count),
    });
    renamed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_whose_threads_turn_lives() {
        assert_eq!(life(None), (StatusCode::OK, "ok\n".to_owned()));
        let stuck = life(Some(
            "serving thread 0 has been unresponsive for 30 s".to_owned(),
        ));
        assert_eq!(
            stuck,
            (
                StatusCode::SERVICE_UNAVAILABLE,
                "serving thread 0 has been unresponsive for 30 s\n".to_owned()
            )
        );
    }
}
