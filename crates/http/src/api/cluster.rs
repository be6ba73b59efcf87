//! Several daemons as one broker: the role of this daemon, and yielding leadership.

use axum::Json;
use axum::http::StatusCode;
use windlass_daemon::{Edge, Reasons, Refused, Role, clock};

use crate::app::Shared;
use crate::problem::{Outcome, Problem};
use crate::time::moment_text;
use crate::view::view;

view! {
    /// What this daemon is among the others.
    Membership(is: Role, reasons: Reasons) with {
        let text = |text: String| Some(text).filter(|text| !text.is_empty());
        let (name, began, number, leads, linked) = match is {
            Role::Alone => ("alone", None, None, None, Vec::new()),
            Role::Seeking { since } => ("seeking", Some(since), None, None, Vec::new()),
            Role::Following { leader, link, epoch, since, edges } => {
                ("following", Some(since), Some(epoch), Some((leader, link)), edges)
            }
            Role::Leading { epoch, since, edges } => ("leading", Some(since), Some(epoch), None, edges),
        };
        let (leader, link) = leads.unzip();
    } {
        /// `alone`, `leading`, `following`, or `seeking`: it has no leader, or is about to lead.
        role: &'static str = name,
        /// Since when; null if it is alone.
        since: Option<String> = began.and_then(moment_text),
        /// Epoch of the leader's lease. Each later one is larger.
        epoch: Option<u64> = number,
        /// The leader's name, if another daemon leads.
        leader: Option<String> = leader,
        /// The address of the leader's link, if another daemon leads.
        leader_link: Option<String> = link,
        /// The leader's version, if another daemon leads and has sent it.
        leader_version: Option<String> = text(reasons.leader.version),
        /// This daemon's version.
        version: String = reasons.own.version,
        /// Why this daemon could not lead; null if it could.
        cannot_lead: Option<String> = text(reasons.own.cannot_lead),
        /// Why this daemon has no link to a leader; null if it has one, or leads.
        cannot_follow: Option<String> = text(reasons.cannot_follow),
        /// How far this daemon's wall clock is ahead of the one that counts, in milliseconds: the database's. Null while
        /// the daemon may not act.
        clock_ahead_ms: Option<i64> = clock::machine_ahead_ms(),
        /// The daemons that are linked to the leader.
        edges: Vec<LinkedDaemon> = linked.into_iter().map(LinkedDaemon::of).collect(),
        /// The last daemons that this one has refused while it leads.
        refused: Vec<RefusedDaemon> = reasons.refused.into_iter().map(RefusedDaemon::of).collect(),
    }
}

view! {
    /// A daemon that is linked to the leader.
    LinkedDaemon(edge: Edge) {
        /// The address of its own link.
        link: String = edge.link,
        /// Since when it is linked.
        since: Option<String> = moment_text(edge.since),
        /// Its version; null until it has sent that, or if it is older.
        version: Option<String> = Some(edge.about.version).filter(|text| !text.is_empty()),
        /// Why it could not lead; null if it could, or is older.
        cannot_lead: Option<String> = Some(edge.about.cannot_lead).filter(|text| !text.is_empty()),
    }
}

view! {
    /// A daemon whose link was refused.
    RefusedDaemon(refused: Refused) {
        /// The address that it came from.
        from: String = refused.from,
        /// Why.
        reason: String = refused.why,
        /// When it was refused last.
        at: Option<String> = moment_text(refused.at),
    }
}

/// What this daemon is among the others
#[utoipa::path(get, path = "/api/v1/cluster", tag = "status", operation_id = "cluster", responses(
    (status = 200, body = Membership)
))]
pub(crate) async fn show(app: Shared) -> Outcome<Json<Membership>> {
    app.check_whole()?;
    let (role, reasons) = (app.control.role(), app.control.reasons());
    Ok(Json(Membership::of(role, reasons)))
}

/// Lead no more
///
/// This daemon writes everything to the store, gives the lease back, and is linked to the daemon that leads next. Its
/// connections are closed, as at a restart. For two seconds it does not take the lease itself.
#[utoipa::path(post, path = "/api/v1/cluster/yield", tag = "status", operation_id = "yield_lead", responses(
    (status = 202, description = "Another daemon may lead soon"),
    (status = 409, description = "This daemon does not lead, or is alone", body = Problem)
))]
pub(super) async fn yield_lead(app: Shared) -> Outcome<StatusCode> {
    match app.control.role() {
        Role::Leading { .. } => {
            app.control.yield_lead();
            Ok(StatusCode::ACCEPTED)
        }
        Role::Alone | Role::Following { .. } | Role::Seeking { .. } => {
            Err(Problem::conflict("this daemon is not a leader"))
        }
    }
}
