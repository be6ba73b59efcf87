//! The tables of the history, and the names of their partitions.

use std::fmt::Write as _;

use windlass_history::{COLUMNS, FileId};
use windlass_store::Error;

use crate::link::Link;

const DOING: &str = "making the history's tables in";

/// An index cannot have values of more than 2,704 bytes, and names may be longer: it has so many characters of each.
const INDEXED_CHARACTERS: u32 = 100;

/// The columns that may be NULL are those which are not always known.
const ALWAYS: [&str; 7] = [
    "job",
    "ending",
    "ended_at",
    "queue",
    "deliveries",
    "failures",
    "submits",
];

/// Columns with numbers; all others have text.
const NUMBERS: [&str; 18] = [
    "n",
    "job",
    "ended_at",
    "pushed_at",
    "due_at",
    "ready_at",
    "started_at",
    "deliveries",
    "failures",
    "submits",
    "batch",
    "schedule",
    "again_of",
    "progress_done",
    "progress_of",
    "body_bytes",
    "result_bytes",
    "output_bytes",
];

/// The names of the history's tables, as statements need them.
impl Link {
    pub(super) fn history_at(&self) -> String {
        self.table("history_at")
    }

    /// The partition of a table.
    pub(super) fn part(&self, table: &str, file: FileId) -> String {
        self.table(&part(table, file))
    }
}

/// `ended_2026_11_28_7d`: a name without quotes.
fn part(table: &str, file: FileId) -> String {
    format!("{table}_{file}").replace(['-', '.'], "_")
}

/// The inverse of [`part`]; `None`: a table of another kind.
pub(super) fn file_of(part: &str) -> Option<FileId> {
    let words = part.strip_prefix("ended_")?;
    let (day, keep) = words.rsplit_once('_')?;
    format!("{}.{keep}", day.replace('_', "-")).parse().ok()
}

/// The first characters of a column or a mark, as the indexes have them.
pub(super) fn indexed(what: &str) -> String {
    format!("left({what}, {INDEXED_CHARACTERS})")
}

/// What there is of the history's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tables {
    /// No daemon has begun a history.
    None,
    /// Those of an earlier daemon, without a column for the namespace.
    WithoutNamespaces,
    /// All of them.
    Whole,
}

impl Tables {
    pub(super) fn look(link: &Link) -> Result<Self, Error> {
        let look = "SELECT to_regclass($1) IS NOT NULL, EXISTS (
                        SELECT FROM pg_attribute
                        WHERE attrelid = to_regclass($2) AND attname = 'namespace' AND NOT attisdropped)";
        let rows = link.query(DOING, look, &[&link.history_at(), &link.table("ended")])?;
        Ok(match rows.first().map(|row| (row.get(0), row.get(1))) {
            Some((true, true)) => Self::Whole,
            Some((true, false)) => Self::WithoutNamespaces,
            Some((false, _)) | None => Self::None,
        })
    }

    /// A table as a question reads it. Rows of an earlier daemon are of the namespace without a name. If the column is added
    /// meanwhile, there are two of its name, and the question is refused.
    pub(super) fn readable(self, link: &Link, table: &str) -> String {
        let name = link.table(table);
        if self == Self::Whole {
            return name;
        }
        let none = if table == "hours" { "''" } else { "NULL" };
        format!("(SELECT *, {none}::text AS namespace FROM {name}) AS earlier")
    }
}

fn is_there(link: &Link, table: &str) -> Result<bool, Error> {
    let look = "SELECT to_regclass($1) IS NOT NULL";
    let rows = link.query(DOING, look, &[&table])?;
    Ok(rows.first().is_some_and(|row| row.get(0)))
}

/// Makes the tables, without partitions, in the present transaction. Texts are compared as bytes: an operator's language must
/// not change what is found.
pub(super) fn make(link: &Link) -> Result<(), Error> {
    let [ended, hours, at] = ["ended", "hours", "history_at"].map(|name| link.table(name));
    let mut columns = String::new();
    for column in COLUMNS.split(", ") {
        let kind = if NUMBERS.contains(&column) {
            "bigint"
        } else {
            "text COLLATE \"C\""
        };
        let always = if ALWAYS.contains(&column) {
            " NOT NULL"
        } else {
            ""
        };
        // Writing to a String does not fail.
        let _ = write!(columns, ", {column} {kind}{always}");
    }
    let [queue, name, unique, kind] = ["queue", "name", "unique_id", "kind"].map(indexed);
    link.batch(
        DOING,
        &format!(
            "CREATE TABLE {ended} (file text COLLATE \"C\" NOT NULL{columns}, PRIMARY KEY (file, n)) PARTITION BY LIST (file);
             CREATE INDEX ended_queue ON {ended} ({queue}, n);
             CREATE INDEX ended_job ON {ended} (job);
             CREATE INDEX ended_name ON {ended} ({name}) WHERE name IS NOT NULL;
             CREATE INDEX ended_unique ON {ended} ({unique}) WHERE unique_id IS NOT NULL;
             CREATE TABLE {hours} (
                 file text COLLATE \"C\" NOT NULL, hour bigint NOT NULL, queue text COLLATE \"C\" NOT NULL,
                 kind text COLLATE \"C\" NOT NULL, done bigint NOT NULL, failed bigint NOT NULL, other bigint NOT NULL,
                 waited text NOT NULL, ran text NOT NULL, namespace text COLLATE \"C\" NOT NULL DEFAULT ''
             ) PARTITION BY LIST (file);
             CREATE INDEX hours_key ON {hours} (hour, {queue}, {kind});
             CREATE TABLE {at} (
                 id int PRIMARY KEY CHECK (id = 1), store text NOT NULL, commit_number bigint NOT NULL
             ) WITH (fillfactor = 10);
             INSERT INTO {at} VALUES (1, '', 0)"
        ),
    )
}

/// Adds the column that the tables of an earlier daemon lack, in the present transaction. Rows are not touched, and all
/// partitions get it, too.
pub(super) fn add_namespaces(link: &Link) -> Result<(), Error> {
    let [ended, hours] = ["ended", "hours"].map(|name| link.table(name));
    link.batch(
        DOING,
        &format!(
            "ALTER TABLE {ended} ADD COLUMN IF NOT EXISTS namespace text COLLATE \"C\";
             ALTER TABLE {hours} ADD COLUMN IF NOT EXISTS namespace text COLLATE \"C\" NOT NULL DEFAULT ''"
        ),
    )
}

/// Makes the partitions of a file in the present transaction, unless they are there. A table that is attached waits for
/// nobody who reads the others; one that is made as a partition would.
pub(super) fn make_parts(link: &Link, file: FileId) -> Result<(), Error> {
    if is_there(link, &link.part("ended", file))? {
        return Ok(());
    }
    for (table, options) in [("ended", ""), ("hours", "WITH (fillfactor = 50)")] {
        let whole = link.table(table);
        let part = link.part(table, file);
        link.batch(
            DOING,
            &format!(
                "CREATE TABLE {part} (LIKE {whole} INCLUDING ALL) {options};
                 ALTER TABLE {whole} ATTACH PARTITION {part} FOR VALUES IN ('{file}')"
            ),
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_s_name_says_which_file_it_is() {
        let file: FileId = "2026-11-28.7d".parse().unwrap();
        assert_eq!(part("ended", file), "ended_2026_11_28_7d");
        assert_eq!(file_of("ended_2026_11_28_7d"), Some(file));
        for other in [
            "ended",
            "ended_queue",
            "hours_2026_11_28_7d",
            "ended_2026_11_28_7d_pkey",
        ] {
            assert_eq!(file_of(other), None, "{other}");
        }
    }
}
