//! Connections of all protocols: list, close.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;
use windlass_engine::{ClientCommand, ClientId, ClientRow, Query, Reply};

use super::queues::Page;
use crate::app::App;
use crate::cursor::CursorText;
use crate::name::Name;
use crate::params::{Params, Segments, rows};
use crate::problem::{Outcome, Problem};

/// A connection.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Connection {
    /// Its number.
    pub(crate) id: u64,
    /// Its protocol, if it has shown one. Requests over HTTP are connections while they last.
    pub(crate) protocol: Option<&'static str>,
    /// The peer's address; empty for a Unix socket.
    pub(crate) address: String,
    /// The client's name for itself, or that of the worker it belongs to (FWP's wid).
    pub(crate) name: Option<Name>,
    /// The queues that it serves.
    pub(crate) queues: Vec<Name>,
    /// The row continues the one before, which has too many queues.
    pub(crate) continued: bool,
    /// Jobs that it has, under leases that end with it: `GET /jobs?connection=` lists them.
    pub(crate) jobs: u32,
    /// Whether it waits for work.
    pub(crate) waits: bool,
}

/// A page of connections.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ConnectionPage {
    /// The rows.
    pub(crate) connections: Vec<Connection>,
    /// The cursor of the next page; null at the end.
    pub(crate) next: Option<CursorText>,
}

/// Connections, the oldest first
#[utoipa::path(get, path = "/api/v1/connections", tag = "connections", operation_id = "list_connections", params(Page),
    responses((status = 200, body = ConnectionPage), (status = 400, body = Problem))
)]
pub(crate) async fn list(State(app): State<Arc<App>>, Params(page): Params<Page>) -> Outcome<Json<ConnectionPage>> {
    let (after, limit) = (page.cursor(), rows(page.limit)?);
    let Reply::Clients { rows, next } = app.ask(Query::Clients { after, limit }).await? else {
        return Err(Problem::unexpected());
    };
    let connections = rows.into_iter().map(|row| Connection::of(row, &app)).collect();
    Ok(Json(ConnectionPage { connections, next: next.map(CursorText) }))
}

/// Close a connection
///
/// The consequences are those of a client that goes: jobs that it has return to their queues.
#[utoipa::path(post, path = "/api/v1/connections/{id}/close", tag = "connections", operation_id = "close_connection",
    params(("id" = u64, Path, description = "Its number")),
    responses((status = 204), (status = 404, body = Problem))
)]
pub(super) async fn close(State(app): State<Arc<App>>, Segments(id): Segments<u64>) -> Outcome<StatusCode> {
    app.ask(ClientCommand::Disconnect(ClientId(id))).await?;
    Ok(StatusCode::NO_CONTENT)
}

impl Connection {
    fn of(row: ClientRow, app: &App) -> Self {
        let ClientRow { id, address, label, protocol, subscriptions, is_continued, held, waits, .. } = row;
        Self {
            id: id.0,
            protocol: protocol.map(|protocol| app.protocol_name(protocol)),
            address: address.into(),
            name: Name::of(&label),
            queues: subscriptions.into_iter().map(Name).collect(),
            continued: is_continued,
            jobs: held,
            waits,
        }
    }
}
