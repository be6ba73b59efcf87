//! Reading the history, over a connection of its own for each question.

use std::cmp::Reverse;

use bytes::Bytes;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use windlass_history::shelf::{Columns, Dialect, Held, Reader, Select, ShowRow};
use windlass_history::{Error, FileId};

use super::tables::{Tables, file_of, indexed};
use super::text::{self, Encoding};
use crate::address::Target;
use crate::link::Link;
use crate::tail::unsigned;

const READING: &str = "reading the history in";

/// A statement of a question is small, so one that takes so long waits for something.
const SESSION: &str = "SET statement_timeout = '15s'; SET lock_timeout = '5s'; SET default_transaction_read_only = on";

/// The columns with an index.
const INDEXED: [&str; 3] = ["queue", "name", "unique_id"];

pub(super) struct DatabaseReader {
    link: Link,
    encoding: Encoding,
    tables: Tables,
}

impl DatabaseReader {
    pub(super) fn open(target: &Target) -> Result<Self, Error> {
        let link = Link::open(target)?;
        link.batch(READING, SESSION)?;
        let encoding = encoding(&link)?;
        let tables = Tables::look(&link)?;
        Ok(Self {
            link,
            encoding,
            tables,
        })
    }
}

/// The encoding of the database.
pub(super) fn encoding(link: &Link) -> Result<Encoding, Error> {
    let rows = link.query(READING, "SELECT current_setting('server_encoding')", &[])?;
    let name: Option<String> = rows.first().map(|row| row.get(0));
    Ok(Encoding::named(&name.unwrap_or_default()))
}

/// All files with their sizes, in the order of their days, the newest first.
pub(super) fn files(link: &Link) -> Result<Vec<Held>, Error> {
    let look = "SELECT part.relname::text,
                    pg_total_relation_size(part.oid) + coalesce(pg_total_relation_size(hours.oid), 0)
                FROM pg_inherits JOIN pg_class part ON part.oid = inhrelid
                    LEFT JOIN pg_class hours ON hours.relnamespace = part.relnamespace
                        AND hours.relname = regexp_replace(part.relname, '^ended', 'hours')
                WHERE inhparent = to_regclass($1)";
    let rows = link.query(READING, look, &[&link.table("ended")])?;
    let held = |row: &Row| {
        // A partition that has just been dropped has no size.
        let bytes: Option<i64> = row.get(1);
        Some(Held {
            file: file_of(row.get(0))?,
            bytes: unsigned(bytes.unwrap_or_default()),
        })
    };
    let mut files: Vec<Held> = rows.iter().filter_map(held).collect();
    files.sort_unstable_by_key(|held| Reverse(held.file));
    Ok(files)
}

impl Reader for DatabaseReader {
    fn dialect(&self) -> Dialect {
        Dialect {
            like: "ILIKE",
            equals: |column, mark| {
                let all = format!("{column} = {mark}");
                if INDEXED.contains(&column) {
                    format!("({} = {} AND {all})", indexed(column), indexed(mark))
                } else {
                    all
                }
            },
            // What is not text begins with `text::MARK`, once, in front of the namespace.
            own_queue: r"CASE WHEN namespace = '' THEN queue
                WHEN left(queue, 7) = '\bytes:' THEN '\bytes:' || substr(queue, length(namespace) + 9)
                ELSE substr(queue, length(namespace) + 2) END",
        }
    }

    fn files(&mut self) -> Result<Vec<FileId>, Error> {
        let files = files(&self.link)?.into_iter();
        Ok(files.map(|held| held.file).collect())
    }

    fn select(
        &mut self,
        file: FileId,
        select: &Select<'_>,
        each: &mut ShowRow<'_>,
    ) -> Result<(), Error> {
        if self.tables == Tables::None {
            return Ok(());
        }
        let table = self.tables.readable(&self.link, select.table);
        let sql = select.sql(&table, &format!("file = '{file}'"));
        let values = select.conditions.values.iter();
        let values: Vec<_> = values.map(|value| self.encoding.text(value)).collect();
        let values: Vec<&(dyn ToSql + Sync)> = values
            .iter()
            .map(|value| value as &(dyn ToSql + Sync))
            .collect();
        let mut rows = self.link.rows(READING, &sql, &values)?;
        while let Some(row) = rows.next(READING)? {
            if each(&DatabaseRow(&row))?.is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// A row of a table of the history.
pub(super) struct DatabaseRow<'a>(pub(super) &'a Row);

impl Columns for DatabaseRow<'_> {
    fn number(&self, column: &str) -> Result<Option<i64>, Error> {
        self.0.try_get(column).map_err(|why| odd(&why))
    }

    fn bytes(&self, column: &str) -> Result<Option<Bytes>, Error> {
        let text: Option<&str> = self.0.try_get(column).map_err(|why| odd(&why))?;
        Ok(text.map(text::bytes))
    }
}

fn odd(why: &tokio_postgres::Error) -> Error {
    windlass_store::Error::damaged("the history's tables", why.to_string()).into()
}
