//! Durable storage: a log of what the engine changed, and a table of live records.
//!
//! Each visit to the engine produces changes. A [`Journal`] gathers them into commits, a [`Log`] stores the
//! commits, a [`Checkpointer`] copies live records to a [`Table`], and [`open`] rebuilds the engine from
//! both. The journal is bookkeeping and does no I/O. A driver cuts commits from it and appends them to the
//! log:
//!
//! ```
//! use bytes::Bytes;
//! use windlass_engine::{ClientId, JobCommand, Limits, NewJob, Protocol, Tag, Timestamp, Context};
//! use windlass_store::{Opened, StoreConfig, open};
//! use windlass_table_sled::SledTables;
//!
//! let dir = tempfile::tempdir()?;
//! let config = StoreConfig::new(dir.path(), SledTables::default());
//! let Opened { mut log, mut checkpointer, recovered, guard } = open(&config, Limits::default(), 7)?;
//! let (mut engine, mut journal) = (recovered.engine, recovered.journal);
//!
//! // A visit: under the engine's lock.
//! let mut context = Context::new(Timestamp(1_000), 7);
//! let job = NewJob::new(Protocol::GEARMAN, Bytes::from_static(b"resize"), Bytes::from_static(b"cat.png"));
//! engine.apply(ClientId(1), Tag(1), JobCommand::Push(Box::new(job)), &mut context);
//! journal.append(&engine, &context.changes);
//! let acknowledge_after = journal.pending_seq();
//!
//! // The committer: `cut` and `committed` under the lock, `append` without it.
//! let commit = journal.cut(&engine).expect("something was appended");
//! assert_eq!(commit.seq(), acknowledge_after);
//! log.append(&commit)?;
//! journal.committed(commit.seq());
//!
//! // Whenever the log has grown, on a thread of its own.
//! checkpointer.run(true)?;
//!
//! drop((log, checkpointer, guard));
//! let again = open(&config, Limits::default(), 8)?;
//! assert_eq!(again.recovered.engine.job_count(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A failed commit is written again, unchanged, once [`Log::reopen`] succeeds. Until then neither it nor a
//! later commit is acknowledged.
//!
//! Reading order: the README (where data is at each moment, and what a power cut can do) · [`Record`] (the
//! facts) · [`Journal`] and `pending` (gathering them) · `log` · `page` (the table's values) · `digest`,
//! `checkpoint` · `load`, `recover` · `parts`, `directory` (opening; the table in files is the crate
//! `table-sled`) · `export`, `picture` (everything at one commit, as lines), `restore` · `body_file` (copies
//! of bodies that are not in memory).
//!
//! # Invariants
//!
//! * A commit contains no more than one record of each job, schedule or batch: the last one.
//! * Acknowledged changes are in the log, or in the table at or before the table's point.
//! * The log drops only commits before a point that was durable before the current point.
//! * A table is used only if it contains exactly the pages of the point. The census verifies this.
//! * Opening a store detects all missing data, and then starts nothing.
//! * Every record ever written stays readable (`golden/`).

mod body_file;
mod checkpoint;
mod cold;
mod commit;
mod consistency;
mod damage;
mod digest;
mod directory;
mod export;
pub mod files;
mod jobs;
mod journal;
mod load;
mod log;
mod memory;
mod page;
mod parts;
mod pending;
mod picture;
mod record;
mod recover;
mod restore;
mod salvage;
mod store;

pub use body_file::{BodyFile, BodyReader, Overflow};
pub use checkpoint::{Checkpointer, StoreFigures, StoreLimits};
pub use commit::Commit;
pub use damage::{Damage, Loss, OpenError};
pub use directory::{
    Contents, Guard, Holder, Opened, Remote, State, StoreConfig, fill, open, retire,
};
pub use export::{About, EXPORT_VERSION, Exported};
pub use files::{Step, Watch, watch_steps};
pub use journal::Journal;
pub use load::offset_in;
pub use log::{ended_rows, records};
pub use memory::{MemoryLog, MemoryTable};
pub use parts::{Found, new_table, open_found, open_parts, point_key, verify_parts};
pub use picture::{ExportError, Picture};
pub use record::{BatchMoved, MetaRecord, Moved, NextRun, Record};
pub use recover::{Recovered, Report};
pub use restore::Restore;
pub use salvage::Salvage;
pub use salvage::files::{accept_loss, queues, salvage, verify};
pub use salvage::unnamed::unnamed;
pub use store::{
    Entry, Error, Log, LogTail, Position, Scan, ShowPair, Span, Table, Tables, Tenure, UNVERIFIED,
};
pub use windlass_codec::DecodeError;
