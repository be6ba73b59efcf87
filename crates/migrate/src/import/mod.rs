//! `windlass import`: imports jobs from another server's files or database, or from lines of JSON, through the engine,
//! into a data directory that no other process has open.
//!
//! Each source reads one format (`gearmand_sqlite`, `faktory_redis`, `spiderq_snapshot`, `jsonl`). They share
//! `options`. `eventmq_redis` alone sends what it reads to a running daemon.

mod eventmq_redis;
mod faktory_redis;
#[cfg(feature = "sqlite")]
mod gearmand_sqlite;
mod jsonl;
mod options;
mod report;
pub mod snapshot;
mod spiderq_snapshot;
#[cfg(feature = "sqlite")]
mod take_over;

use clap::Subcommand;
use windlass_config::Failure;
use windlass_operate::Settings;

use crate::configured::Configured;

use self::eventmq_redis::EventmqRedis;
use self::faktory_redis::FaktoryRedis;
#[cfg(feature = "sqlite")]
use self::gearmand_sqlite::GearmandSqlite;
use self::jsonl::Jsonl;
use self::spiderq_snapshot::SpiderqSnapshot;
#[cfg(feature = "sqlite")]
pub use self::take_over::take_over;

/// The sources of an import.
#[derive(Debug, Subcommand)]
pub enum Import {
    /// The schedules in the Redis of EventMQ's scheduler, into a running daemon.
    EventmqRedis(EventmqRedis),
    /// All jobs in a Faktory's Redis.
    FaktoryRedis(FaktoryRedis),
    /// The background jobs in gearmand's SQLite queue (gearmand -q libsqlite3).
    #[cfg(feature = "sqlite")]
    GearmandSqlite(GearmandSqlite),
    /// The output of `windlass export` or `windlass salvage`, or jobs of your own, one line of JSON each.
    Jsonl(Jsonl),
    /// The keys and values in a spiderq's snapshot.
    SpiderqSnapshot(SpiderqSnapshot),
}

/// Runs an import. `configure` makes the configuration of its options.
///
/// # Errors
///
/// [`Failure::Incomplete`], if something is left; others, if the source, the configuration or the data directory is of
/// no use.
pub fn run(
    import: &Import,
    configure: &dyn Fn(&Settings) -> Result<Configured, Failure>,
) -> Result<(), Failure> {
    match import {
        Import::EventmqRedis(import) => import.run(),
        Import::FaktoryRedis(import) => import.run(configure),
        #[cfg(feature = "sqlite")]
        Import::GearmandSqlite(import) => import.run(configure),
        Import::Jsonl(import) => import.run(configure),
        Import::SpiderqSnapshot(import) => import.run(configure),
    }
}
