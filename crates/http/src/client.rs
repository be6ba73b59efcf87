//! A client of the engine that reaches no further than the request for which it was opened.

use std::time::Duration;

use bytes::Bytes;
use windlass_daemon::client as inside;
use windlass_engine::{ClientInfo, Command, Cursor, Query, Refusal, Reply, Thing, Watched};

/// A client of the engine.
#[derive(Debug)]
pub(crate) struct Client {
    inner: inside::Client,
    /// The namespace that the client is to be limited to, until the engine has shown that it is.
    unconfirmed: Option<Box<str>>,
}

impl Client {
    pub(crate) fn open(clients: &inside::Clients, info: ClientInfo) -> Self {
        Self {
            unconfirmed: info.namespace.clone(),
            inner: clients.open(info),
        }
    }

    /// Extends the client's timeout by this much, for commands that wait for work.
    #[must_use]
    pub(crate) fn waiting(self, longer: Duration) -> Self {
        Self {
            inner: self.inner.waiting(longer),
            ..self
        }
    }

    /// Sends a command and returns the reply.
    pub(crate) async fn ask(&mut self, command: impl Into<Command>) -> Result<Reply, Refusal> {
        self.confirm().await?;
        self.inner.ask(command).await
    }

    /// See [`inside::Client::watch`].
    pub(crate) async fn watch(&mut self, queue: Option<Bytes>, room: u32) -> Option<Vec<Watched>> {
        self.confirm().await.ok()?;
        self.inner.watch(queue, Bytes::new(), room).await
    }

    /// Checks that the engine has limited the client to its namespace. The refusal to open a client is not a
    /// reply to its first command, and where there are no namespaces at all, a client that is not open sees everything.
    pub(crate) async fn confirm(&mut self) -> Result<(), Refusal> {
        let Some(name) = &self.unconfirmed else {
            return Ok(());
        };
        let unknown = Refusal::NotFound(Thing::Namespace);
        let query = Query::Namespaces {
            after: Cursor::default(),
            limit: u32::MAX,
        };
        let rows = match self.inner.ask(query).await {
            Ok(Reply::Namespaces { rows, .. }) => rows,
            Ok(_) => return Err(Refusal::Unavailable),
            Err(Refusal::OutOfPlace) => return Err(unknown),
            Err(why) => return Err(why),
        };
        if matches!(rows.as_slice(), [only] if only.name == name.as_bytes()) {
            self.unconfirmed = None;
            Ok(())
        } else {
            Err(unknown)
        }
    }
}
