//! Connections of all protocols: list, close.

use axum::http::StatusCode;
use windlass_engine::{ClientCommand, ClientId, ClientRow};

use super::listing::listing;
use crate::app::{App, Now};
use crate::name::Name;
use crate::view::{of_one, view};

view! {
    /// A connection.
    Connection(row: &ClientRow, app: &App, _now: Now) {
        /// Its number.
        id: u64 = row.id.0,
        /// Its protocol, if it has shown one. Requests over HTTP are connections while they last.
        protocol: Option<&'static str> = row.protocol.map(|protocol| app.protocol_name(protocol)),
        /// The peer's address; empty for a Unix socket.
        address: String = row.address.to_string(),
        /// The client's name for itself, or that of the worker it belongs to (FWP's wid).
        name: Option<Name> = Name::of(&row.label),
        /// The queues that it serves.
        queues: Vec<Name> = row.subscriptions.iter().cloned().map(Name).collect(),
        /// The row continues the one before, which has too many queues.
        continued: bool = row.is_continued,
        /// Jobs that it has, under leases that end with it: `GET /jobs?connection=` lists them.
        jobs: u32 = row.held,
        /// Whether it waits for work.
        waits: bool = row.waits,
        /// The namespace, if it has a name.
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<Name> = Name::of(&row.namespace),
    }
}

listing! {
    /// Connections, the oldest first
    "/api/v1/connections", "connections", "list_connections";
    /// A page of connections.
    ConnectionPage { connections: Vec<Connection> } = Clients {}
}

of_one! {
    /// Close a connection
    ///
    /// The consequences are those of a client that goes: jobs that it has return to their queues.
    post "/api/v1/connections/{id}/close" "connections" "close_connection" 204, 404;
    pub(super) fn close(app, id: u64) -> StatusCode {
        app.ask(ClientCommand::Disconnect(ClientId(id))).await?;
        Ok(StatusCode::NO_CONTENT)
    }
}
