//! One connection to the database, used from threads that have no runtime: each call runs the connection until its
//! answer is here.
//!
//! A link that has failed is not repaired: its owner drops it and opens another one.

use std::error::Error as _;
use std::io;
use std::pin::{Pin, pin};

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Row, RowStream, Statement};
use windlass_store::Error;

use crate::address::Target;
use crate::tls::MakeTls;

/// Parameters of a statement.
pub(crate) type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// What every connection sets: an acknowledged commit is on the disk, whatever the database's default is, and no
/// statement is ended from the server's side.
const SESSION: &str = "SELECT set_config('synchronous_commit', 'on', false) \
                       WHERE current_setting('synchronous_commit', true) = 'off'; \
                       SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED; \
                       SET statement_timeout = 0; SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0";

/// A connection.
pub(crate) struct Link {
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
    client: Client,
    place: String,
    /// The schema with the store's tables.
    pub(crate) schema: String,
}

/// Rows as they come.
pub(crate) struct Rows<'a> {
    link: &'a Link,
    stream: Pin<Box<RowStream>>,
}

impl Link {
    /// Connects.
    pub(crate) fn open(target: &Target) -> Result<Self, Error> {
        let place = target.place.clone();
        let failed = |why: io::Error| Error::Io {
            doing: "connecting to",
            place: place.clone(),
            why,
        };
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let opened = runtime.block_on(async {
            Ok(match &target.tls {
                Some(tls) => {
                    let (client, connection) = target.config.connect(MakeTls(tls.clone())).await?;
                    drop(tokio::spawn(connection));
                    client
                }
                None => {
                    let (client, connection) = target.config.connect(NoTls).await?;
                    drop(tokio::spawn(connection));
                    client
                }
            })
        });
        let client = match opened {
            Ok(client) => client,
            Err(why) => {
                runtime.shutdown_background();
                return Err(failed(in_words(&why)));
            }
        };
        let link = Self {
            runtime: Some(runtime),
            client,
            place,
            schema: target.schema.clone(),
        };
        link.batch("connecting to", SESSION)?;
        Ok(link)
    }

    /// Whether the connection has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Runs statements without parameters.
    pub(crate) fn batch(&self, doing: &'static str, sql: &str) -> Result<(), Error> {
        self.wait(doing, self.client.batch_execute(sql))
    }

    /// Runs statements without parameters, with the database's own error.
    pub(crate) fn try_batch(&self, sql: &str) -> Result<(), tokio_postgres::Error> {
        self.run(self.client.batch_execute(sql))
    }

    /// Prepares a statement.
    pub(crate) fn prepare(&self, doing: &'static str, sql: &str) -> Result<Statement, Error> {
        self.wait(doing, self.client.prepare(sql))
    }

    /// Runs a statement and returns how many rows it changed.
    pub(crate) fn execute(
        &self,
        doing: &'static str,
        sql: &str,
        with: Parameters<'_>,
    ) -> Result<u64, Error> {
        self.wait(doing, self.client.execute(sql, with))
    }

    /// Runs a prepared statement and returns how many rows it changed, with the database's own error.
    pub(crate) fn try_execute(
        &self,
        statement: &Statement,
        with: Parameters<'_>,
    ) -> Result<u64, tokio_postgres::Error> {
        self.run(self.client.execute(statement, with))
    }

    /// The rows of a query, all at once.
    pub(crate) fn query(
        &self,
        doing: &'static str,
        sql: &str,
        with: Parameters<'_>,
    ) -> Result<Vec<Row>, Error> {
        self.wait(doing, self.client.query(sql, with))
    }

    /// The rows of a query, all at once, with the database's own error.
    pub(crate) fn try_query(
        &self,
        sql: &str,
        with: Parameters<'_>,
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        self.run(self.client.query(sql, with))
    }

    /// The rows of a query, one after the other.
    pub(crate) fn rows(
        &self,
        doing: &'static str,
        sql: &str,
        with: Parameters<'_>,
    ) -> Result<Rows<'_>, Error> {
        let with = with.iter().copied();
        let stream = self.wait(doing, self.client.query_raw(sql, with))?;
        Ok(Rows {
            link: self,
            stream: Box::pin(stream),
        })
    }

    /// Runs `COPY … FROM STDIN` with this text.
    pub(crate) fn copy(&self, doing: &'static str, sql: &str, text: Bytes) -> Result<(), Error> {
        self.wait(doing, async {
            let mut sink = pin!(self.client.copy_in(sql).await?);
            sink.send(text).await?;
            sink.finish().await.map(drop)
        })
    }

    /// Where it leads to, for messages.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// An error of this connection, for the operator.
    pub(crate) fn error(&self, doing: &'static str, why: &tokio_postgres::Error) -> Error {
        Error::Io {
            doing,
            place: self.place.clone(),
            why: in_words(why),
        }
    }

    fn wait<T>(
        &self,
        doing: &'static str,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Error> {
        self.run(answer).map_err(|why| self.error(doing, &why))
    }

    fn run<T>(
        &self,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, tokio_postgres::Error> {
        match &self.runtime {
            Some(runtime) => runtime.block_on(answer),
            None => unreachable!("a link that is dropped is not used"),
        }
    }
}

impl Rows<'_> {
    /// The next row.
    pub(crate) fn next(&mut self, doing: &'static str) -> Result<Option<Row>, Error> {
        let Self { link, stream } = self;
        link.wait(doing, async { stream.next().await.transpose() })
    }
}

/// Ends without waiting: a link may be dropped on a thread that runs another runtime.
impl Drop for Link {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Whether the database has this code for an error.
pub(crate) fn has_code(why: &tokio_postgres::Error, code: &SqlState) -> bool {
    why.code() == Some(code)
}

/// Whether the same statement may succeed at once: the database has put other transactions first.
pub(crate) fn is_conflict(why: &tokio_postgres::Error) -> bool {
    has_code(why, &SqlState::T_R_SERIALIZATION_FAILURE)
        || has_code(why, &SqlState::T_R_DEADLOCK_DETECTED)
}

/// The database's own words, which the library keeps in the source of its error.
fn in_words(why: &tokio_postgres::Error) -> io::Error {
    let text = match (why.as_db_error(), why.source()) {
        (Some(error), _) => format!("{} ({})", error.message(), error.code().code()),
        (None, Some(source)) => format!("{why}: {source}"),
        (None, None) => why.to_string(),
    };
    let has_no_tls = text.contains("server does not support TLS");
    let advice = if has_no_tls {
        " (postgres.sslmode = \"disable\" goes without)"
    } else {
        ""
    };
    io::Error::other(text + advice)
}
