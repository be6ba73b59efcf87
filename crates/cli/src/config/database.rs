//! `[postgres]`: the store in a database, if the program is built with it (feature `postgres`).

use std::sync::Arc;

use windlass_config::Error;
use windlass_daemon::config::{Cluster, Postgres};
use windlass_daemon::operator_port::history::shelf::Shelf;
use windlass_store::Remote;

#[cfg(feature = "postgres")]
use self::built_in::database;

pub(super) struct Parts {
    pub(super) store: Arc<dyn Remote>,
    pub(super) history: Arc<dyn Shelf>,
}

/// The database that has the store; `None`: the data directory has it.
pub(super) fn remote(postgres: &Postgres, cluster: &Cluster) -> Option<Parts> {
    #[cfg(feature = "postgres")]
    if !postgres.url.is_empty() {
        let database = Arc::new(database(postgres, cluster));
        return Some(Parts {
            store: Arc::<windlass_postgres::Database>::clone(&database),
            history: database,
        });
    }
    let _ = (postgres, cluster);
    None
}

/// Checks the section and reads its files.
///
/// # Errors
///
/// [`Error::Senseless`], with the key.
#[cfg(feature = "postgres")]
pub(super) fn check(postgres: &Postgres, cluster: &Cluster) -> Result<(), Error> {
    if postgres.url.is_empty() && cluster.is_on() {
        return windlass_config::senseless("cluster.listen", "needs a database: set postgres.url");
    }
    if postgres.url.is_empty() {
        return Ok(());
    }
    database(postgres, cluster)
        .check()
        .or_else(|why| windlass_config::senseless(format!("postgres.{}", why.key), why))
}

/// This program has no part that could use the section.
///
/// # Errors
///
/// [`Error::Senseless`], if the section names a database.
#[cfg(not(feature = "postgres"))]
pub(super) fn check(postgres: &Postgres, _cluster: &Cluster) -> Result<(), Error> {
    if postgres.url.is_empty() {
        return Ok(());
    }
    windlass_config::senseless(
        "postgres.url",
        "this program is built without PostgreSQL (feature `postgres`)",
    )
}

#[cfg(feature = "postgres")]
mod built_in {
    use std::time::Duration;

    use windlass_config::Period;
    use windlass_daemon::config::{Cluster, Postgres, SslMode};
    use windlass_postgres::{Address, Database};

    /// The database of a section.
    pub(super) fn database(section: &Postgres, cluster: &Cluster) -> Database {
        let Postgres {
            url,
            password_file,
            sslmode,
            ca_file,
            schema,
            lease,
            connect_timeout,
        } = section.clone();
        let ssl_mode = match sslmode {
            SslMode::Auto => windlass_postgres::SslMode::Auto,
            SslMode::Disable => windlass_postgres::SslMode::Disable,
            SslMode::VerifyFull => windlass_postgres::SslMode::VerifyFull,
        };
        let time = |period: Period| Duration::from_millis(period.as_ms());
        let (lease, connect_timeout) = (time(lease), time(connect_timeout));
        let (link, speaks) = (cluster.address(), windlass_daemon::LINK_VERSION);
        let cluster = if cluster.is_on() {
            cluster.name.clone()
        } else {
            String::new()
        };
        Database::at(Address {
            url,
            password_file,
            ssl_mode,
            ca_file,
            schema,
            lease,
            connect_timeout,
            link,
            cluster,
            speaks,
        })
    }
}
