//! `windlass import`: jobs from another server's files, through the engine, into a data directory nobody else has open.
//!
//! A source knows how to read its files (`gearmand_sqlite`); what all have in common is here: what is said of it.

mod gearmand_sqlite;
mod report;

use clap::Subcommand;
use windlass_server::Failure;

use self::gearmand_sqlite::GearmandSqlite;

/// Whose jobs are taken over.
#[derive(Debug, Subcommand)]
pub(crate) enum Import {
    /// The background jobs in gearmand's SQLite queue (gearmand -q libsqlite3).
    GearmandSqlite(GearmandSqlite),
}

pub(crate) fn run(import: &Import) -> Result<(), Failure> {
    match import {
        Import::GearmandSqlite(import) => import.run(),
    }
}
