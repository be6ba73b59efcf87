//! Several daemons as one broker: what this one is, and leading no more.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;
use windlass_server::{Edge, Role};

use crate::app::App;
use crate::problem::{Outcome, Problem};
use crate::time::moment_text;

/// What this daemon is among the others.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Membership {
    /// `alone`, `leading`, `following`, or `seeking`: it has no leader, or is about to lead.
    role: &'static str,
    /// Since when; null if it is alone.
    since: Option<String>,
    /// The number of the leader's right to lead. Each later one is larger.
    epoch: Option<u64>,
    /// The leader's name, if another daemon leads.
    leader: Option<String>,
    /// The address of the leader's link, if another daemon leads.
    leader_link: Option<String>,
    /// The daemons that are linked to this one, if it leads.
    edges: Vec<LinkedDaemon>,
}

/// A daemon that is linked to the leader.
#[derive(Debug, Serialize, ToSchema)]
struct LinkedDaemon {
    /// The address of its own link.
    link: String,
    /// Since when it is linked.
    since: Option<String>,
}

impl Membership {
    fn of(role: Role) -> Self {
        let alone =
            Self { role: "alone", since: None, epoch: None, leader: None, leader_link: None, edges: Vec::new() };
        match role {
            Role::Alone => alone,
            Role::Seeking { since } => Self { role: "seeking", since: moment_text(since), ..alone },
            Role::Following { leader, link, epoch, since } => Self {
                role: "following",
                since: moment_text(since),
                epoch: Some(epoch),
                leader: Some(leader),
                leader_link: Some(link),
                ..alone
            },
            Role::Leading { epoch, since, edges } => Self {
                role: "leading",
                since: moment_text(since),
                epoch: Some(epoch),
                edges: edges
                    .into_iter()
                    .map(|Edge { link, since }| LinkedDaemon { link, since: moment_text(since) })
                    .collect(),
                ..alone
            },
        }
    }
}

/// What this daemon is among the others
#[utoipa::path(get, path = "/api/v1/cluster", tag = "status", operation_id = "cluster", responses(
    (status = 200, body = Membership)
))]
pub(super) async fn show(State(app): State<Arc<App>>) -> Json<Membership> {
    Json(Membership::of(app.control.role()))
}

/// Lead no more
///
/// This daemon writes everything to the store, gives the lease back, and is linked to the daemon that leads next. Its
/// connections are closed, as at a restart. For two seconds it does not take the lease itself.
#[utoipa::path(post, path = "/api/v1/cluster/yield", tag = "status", operation_id = "yield_lead", responses(
    (status = 202, description = "Another daemon may lead soon"),
    (status = 409, description = "This daemon does not lead, or is alone", body = Problem)
))]
pub(super) async fn yield_lead(State(app): State<Arc<App>>) -> Outcome<StatusCode> {
    match app.control.role() {
        Role::Leading { .. } => {
            app.control.yield_lead();
            Ok(StatusCode::ACCEPTED)
        }
        Role::Alone | Role::Following { .. } | Role::Seeking { .. } => {
            Err(Problem::conflict("this daemon does not lead others"))
        }
    }
}
