//! The tables, and the version of their form.
//!
//! ```text
//! lease          one row: the daemon that has the store, the version of the tables, and what must outlive the log's rows
//! log_0 … log_7  the log, in turn: a commit is a row. A table whose commits are all in the pages is truncated as a whole
//! pages          the table of living records, as `windlass-store` describes its pages
//! ```
//! Only the holder of the lease makes and changes tables, except for the lease's own.

use tokio_postgres::error::SqlState;
use windlass_store::files::other_format;
use windlass_store::{Error, new_table};

use crate::lease::Lease;
use crate::link::{Link, has_code};
use crate::names::refused;

/// The present version. 0 is a store that has only its lease.
pub(crate) const VERSION: i32 = 2;

/// Instead of a version: a store that is being filled, or whose filling was interrupted.
pub(crate) const FILLING: i32 = -1;
/// Instead of a version: the contents were moved to another store.
pub(crate) const RETIRED: i32 = -2;

/// Tables of the log.
pub(crate) const LOG_TABLES: usize = 8;

/// The version of the tables; `None`: there is not even a lease.
pub(crate) fn version(link: &Link) -> Result<Option<i32>, Error> {
    const DOING: &str = "reading the version of";
    match link.try_query(
        &format!("SELECT version FROM {} WHERE id = 1", link.lease()),
        &[],
    ) {
        Ok(rows) => Ok(rows.first().map(|row| row.get(0))),
        Err(why)
            if has_code(&why, &SqlState::UNDEFINED_TABLE)
                || has_code(&why, &SqlState::INVALID_SCHEMA_NAME) =>
        {
            Ok(None)
        }
        Err(why) => Err(link.error(DOING, &why)),
    }
}

/// Makes the lease's table, with a lease that is free, if it does not exist.
pub(crate) fn make_lease(link: &Link) -> Result<(), Error> {
    const DOING: &str = "making the lease in";
    if version(link)?.is_some() {
        return Ok(());
    }
    let (schema, lease) = (&link.schema, link.lease());
    // Two daemons may do this at the same time: one of them fails, and finds it made.
    let made = link.try_batch(&format!(
        "CREATE SCHEMA IF NOT EXISTS \"{schema}\";
         CREATE TABLE IF NOT EXISTS {lease} (
             id int PRIMARY KEY CHECK (id = 1), version int NOT NULL, epoch bigint NOT NULL, holder text NOT NULL,
             until timestamptz NOT NULL, place bigint NOT NULL, link text NOT NULL DEFAULT '',
             hand_over smallint NOT NULL DEFAULT 0, cluster text NOT NULL DEFAULT '',
             link_version bigint NOT NULL DEFAULT 0, progress bigint NOT NULL DEFAULT 0,
             lease_ms bigint NOT NULL DEFAULT 0, edges text NOT NULL DEFAULT ''
         ) WITH (fillfactor = 10);
         INSERT INTO {lease} VALUES (1, 0, 0, '', '2000-01-01 00:00:00Z', 0) ON CONFLICT DO NOTHING"
    ));
    match made {
        Err(why) if version(link)?.is_none() => Err(link.error(DOING, &why)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Why the user cannot make or change the tables; `None`: it can. Changes nothing.
pub(crate) fn permission(link: &Link) -> Result<Option<String>, Error> {
    const DOING: &str = "reading the privileges in";
    let schema = &link.schema;
    let look = "SELECT current_user::text, current_database()::text,
                    (SELECT oid FROM pg_namespace WHERE nspname = $1) IS NOT NULL,
                    has_database_privilege(current_database(), 'CREATE'),
                    coalesce((SELECT has_schema_privilege(oid, 'USAGE') AND has_schema_privilege(oid, 'CREATE')
                              FROM pg_namespace WHERE nspname = $1), true),
                    coalesce((SELECT bool_and(pg_has_role(relowner, 'USAGE')) FROM pg_class
                              WHERE relkind = 'r' AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1)
                                  AND (relname IN ('lease', 'pages') OR relname ~ '^log_[0-9]+$')),
                             true)";
    let rows = link.query(DOING, look, &[&schema])?;
    let Some(row) = rows.first() else {
        return Ok(None);
    };
    let (user, database): (String, String) = (row.get(0), row.get(1));
    let (is_there, may_make, may_use, owns): (bool, bool, bool, bool) =
        (row.get(2), row.get(3), row.get(4), row.get(5));
    Ok(if !is_there && !may_make {
        Some(format!(
            "the user {user} may not make the schema {schema}: GRANT CREATE ON DATABASE {database} TO {user}, or CREATE \
             SCHEMA {schema} AUTHORIZATION {user}"
        ))
    } else if !may_use {
        Some(format!(
            "the user {user} may not make tables: GRANT USAGE, CREATE ON SCHEMA {schema} TO {user}"
        ))
    } else if !owns {
        Some(format!(
            "the tables in schema {schema} do not belong to the user {user}, who must change them"
        ))
    } else {
        None
    })
}

/// Brings the tables to the present version, under the lease.
pub(crate) fn migrate(link: &Link, lease: &Lease) -> Result<(), Error> {
    const DOING: &str = "making the tables of";
    let found = version(link)?.unwrap_or(0);
    if found != 0 {
        return check(found, lease.place());
    }
    let storage = Storage::of(link);
    link.batch(DOING, "BEGIN")?;
    for number in 0..LOG_TABLES {
        link.batch(DOING, &log_table(&link.log(number), storage))?;
    }
    link.batch(DOING, &pages_table(&link.pages(), storage))?;
    let (key, value) = new_table();
    link.execute(
        DOING,
        &format!("INSERT INTO {} VALUES ($1, $2)", link.pages()),
        &[&key, &value],
    )?;
    set_version(link, lease, VERSION)?;
    link.batch(DOING, "COMMIT")
}

/// Refuses tables that this program cannot use.
pub(crate) fn check(version: i32, place: &str) -> Result<(), Error> {
    let what = match version {
        VERSION => return Ok(()),
        FILLING => "a move into it was interrupted: drop the schema and repeat the move".to_owned(),
        RETIRED => {
            "its contents were moved to another store; drop the schema to use it anew".to_owned()
        }
        other => return Err(refused(place, other_format(other))),
    };
    Err(Error::damaged(place, what))
}

/// Records what the tables are: of this version, being filled, or retired.
pub(crate) fn set_version(link: &Link, lease: &Lease, version: i32) -> Result<(), Error> {
    let set = format!(
        "UPDATE {} SET version = $2 WHERE id = 1 AND epoch = $1",
        link.lease()
    );
    match link.execute("making the tables of", &set, &[&lease.epoch(), &version])? {
        1 => Ok(()),
        _ => Err(lease.find_successor(link)),
    }
}

/// How large values are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Storage {
    /// The records of a commit resemble each other, and a large value is many rows to the database: compression by LZ4
    /// costs less than it saves. The database's own older method costs more.
    Lz4,
    /// As it is.
    Plain,
}

impl Storage {
    /// What this database has.
    pub(crate) fn of(link: &Link) -> Self {
        let look = "SELECT 1 FROM pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY(enumvals)";
        if link.try_query(look, &[]).is_ok_and(|rows| !rows.is_empty()) {
            Self::Lz4
        } else {
            Self::Plain
        }
    }

    fn set(self, table: &str, column: &str) -> String {
        let set = match self {
            Self::Lz4 => format!("SET STORAGE EXTENDED, ALTER COLUMN {column} SET COMPRESSION lz4"),
            Self::Plain => "SET STORAGE EXTERNAL".to_owned(),
        };
        format!("ALTER TABLE {table} ALTER COLUMN {column} {set}")
    }
}

/// Rows are only added, and all removed at once: nothing to vacuum.
fn log_table(name: &str, storage: Storage) -> String {
    let storage = storage.set(name, "records");
    format!(
        "CREATE TABLE {name} (
             seq bigint PRIMARY KEY, epoch bigint NOT NULL, place bigint NOT NULL, checksum bigint NOT NULL,
             records bytea NOT NULL
         ) WITH (autovacuum_enabled = false, toast.autovacuum_enabled = false);
         {storage}"
    )
}

/// Pages are replaced by each checkpoint, and what they replace is vacuumed soon and without pauses.
pub(crate) fn pages_table(name: &str, storage: Storage) -> String {
    let storage = storage.set(name, "value");
    const OFTEN: &str = "autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0";
    let of_bodies: Vec<String> = OFTEN
        .split(", ")
        .map(|parameter| format!("toast.{parameter}"))
        .collect();
    let of_bodies = of_bodies.join(", ");
    format!(
        "CREATE TABLE {name} (key bytea PRIMARY KEY, value bytea NOT NULL) WITH ({OFTEN}, {of_bodies});
         {storage}"
    )
}
