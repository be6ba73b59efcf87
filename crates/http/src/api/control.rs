//! Operations on the daemon: drain it, reload the configuration.

use std::collections::BTreeSet;

use axum::Json;
use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;
use windlass_config::counted;
use windlass_daemon::control::{Changes, Draining};
use windlass_engine::Protocol;

use crate::app::{App, Shared};
use crate::problem::{Outcome, Problem};
use crate::view::view;

view! {
    /// A drain under way.
    Drain(draining: &Draining, app: &App) with {
        let now = app.now();
    } {
        /// When it began.
        since: Option<String> = now.text(draining.since),
        /// When the daemon stops, whatever connected workers still have; null: it waits for ever.
        until: Option<String> = now.text(draining.until),
        /// Jobs that connected workers have, by the workers' protocol.
        held: Vec<Held> = draining.held.iter().map(|(protocol, jobs)| Held::of(*protocol, *jobs, app)).collect(),
    }
}

view! {
    /// Jobs that the workers of one protocol have.
    Held(of: Option<Protocol>, count: u64, app: &App) {
        /// The workers' protocol; null for workers that have shown none.
        protocol: Option<&'static str> = of.map(|protocol| app.protocol_name(protocol)),
        /// Their jobs.
        jobs: u64 = count,
    }
}

impl Drain {
    /// When the daemon stops even if workers still have jobs.
    pub(crate) fn until(&self) -> Option<&str> {
        self.until.as_deref()
    }

    /// The jobs that a drain waits for, for people; empty if there are no such jobs.
    pub(crate) fn held_text(&self) -> String {
        let held = self.held.iter().map(|Held { protocol, jobs }| {
            let of = protocol.map_or_else(String::new, |protocol| format!(" of {protocol}"));
            format!("{} of workers{of}", counted(*jobs, "job"))
        });
        held.collect::<Vec<_>>().join(", ")
    }
}

/// Drain the daemon, then stop it
///
/// No more connections, no more jobs for workers; named workers are asked to be quiet. The daemon stops when no
/// connected worker has a job, or after `server.drain_timeout`. Jobs may still be pushed over open connections. A
/// second request stops the daemon now.
#[utoipa::path(post, path = "/api/v1/drain", tag = "status", operation_id = "drain", responses(
    (status = 202, description = "The drain has begun", body = Drain),
    (status = 409, description = "A drain or a graceful stop was under way: the daemon stops now", body = Problem)
))]
pub(super) async fn drain(app: Shared) -> Outcome<(StatusCode, Json<Drain>)> {
    let draining = app
        .control
        .drain()
        .await
        .ok_or_else(|| Problem::conflict("the daemon stops now"))?;
    Ok((StatusCode::ACCEPTED, Json(Drain::of(&draining, &app))))
}

/// What a reload has changed.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Reloaded {
    /// Keys whose new values apply. Limits of a connection apply to connections that are opened from now on.
    applied: BTreeSet<String>,
    /// Keys whose new values apply from the next start.
    needs_restart: BTreeSet<String>,
    /// Policies and throttles that operators had set, and that the configuration has taken back because their
    /// sections have changed.
    taken_back: BTreeSet<String>,
}

/// Read the configuration again
///
/// Certificates, passwords, limits, time-outs, the log's level, rules and throttles of queues and recurring jobs are
/// applied without closing a connection. A policy, throttle or limit that an operator has set stays, unless its
/// section in the file has changed. An invalid configuration changes nothing.
#[utoipa::path(post, path = "/api/v1/reload", tag = "status", operation_id = "reload", responses(
    (status = 200, body = Reloaded),
    (status = 422, description = "The configuration is invalid", body = Problem)
))]
pub(super) async fn reload(app: Shared) -> Outcome<Json<Reloaded>> {
    let invalid = |why| {
        Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "invalid_configuration",
            why,
        )
    };
    let Changes {
        applied,
        restart,
        taken_back,
    } = app.control.reload().await.map_err(invalid)?;
    Ok(Json(Reloaded {
        applied,
        needs_restart: restart,
        taken_back,
    }))
}
