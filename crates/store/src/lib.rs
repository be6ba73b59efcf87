//! Durable memory: a log of what the engine changed, and a table of what lives.
//!
//! Every visit to the engine leaves changes; [`Journal`] gathers them into commits, a [`Log`] keeps commits, a
//! [`Checkpointer`] takes what lives of them to a [`Table`], and [`open`] makes an engine of both again. The journal is
//! bookkeeping and does no I/O; a driver cuts commits from it and hands them to the log:
//!
//! ```
//! use bytes::Bytes;
//! use windlass_engine::{ClientId, Command, Limits, NewJob, Origin, Tag, Timestamp, Turn};
//! use windlass_store::{Opened, StoreConfig, open};
//!
//! let dir = tempfile::tempdir()?;
//! let Opened { mut log, mut checkpointer, recovered, guard } = open(&StoreConfig::new(dir.path()), Limits::default(), 7)?;
//! let (mut engine, mut journal) = (recovered.engine, recovered.journal);
//!
//! // A visit: under the engine's lock.
//! let mut turn = Turn::new(Timestamp(1_000), 7);
//! let job = NewJob::new(Origin::GEARMAN, Bytes::from_static(b"resize"), Bytes::from_static(b"cat.png"));
//! engine.apply(ClientId(1), Tag(1), Command::Push(Box::new(job)), &mut turn);
//! journal.append(&engine, &turn.changes);
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
//! let again = open(&StoreConfig::new(dir.path()), Limits::default(), 8)?;
//! assert_eq!(again.recovered.engine.job_count(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A commit that fails is written again, the same, once [`Log::reopen`] succeeds: nothing of it or of a later one is
//! acknowledged before.
//!
//! Reading order: its README (what is where, and what a power cut can do) · [`Record`] (the facts) · [`Journal`] and
//! `pending` (gathering them) · `log` · `page` (the table's values) · `digest`, `checkpoint` · `load`, `recover` ·
//! `parts`, `directory` (opening).
//!
//! # Invariants
//!
//! * At most one record of a job, a schedule or a batch in a commit; the last one counts.
//! * What is acknowledged is in the log, or in the table and before its point.
//! * The log forgets only what lies before a point that was durable before the present one.
//! * A table holds all of its point's pages and no others, or is not used: the census tells.
//! * Anything that is missing is noticed when a store is opened, and nothing is started then.
//! * A record that was ever written can be read for ever (`golden/`).

mod before;
mod checkpoint;
mod codec;
mod commit;
mod damage;
mod digest;
mod directory;
mod export;
mod files;
mod fingerprint;
mod journal;
mod load;
mod log;
mod page;
mod parts;
mod pending;
mod record;
mod recover;
mod salvage;
mod sled_file;
mod store;
mod table;

pub use checkpoint::{CheckpointLimits, Checkpointer, StoreFigures};
pub use codec::DecodeError;
pub use commit::Commit;
pub use damage::{Damage, Loss, OpenError};
pub use directory::{Guard, Opened, StoreConfig, open};
pub use files::{Step, Watch, watch_steps};
pub use fingerprint::Fingerprint;
pub use journal::Journal;
pub use log::memory::{Fault, MemoryLog};
pub use log::records;
pub use parts::open_parts;
pub use record::{BatchMoved, Counted, HeadRecord, Moved, NextRun, Record};
pub use recover::{Recovered, Report};
pub use salvage::{Salvage, Verdict, accept_loss, salvage, verify};
pub use store::{Entry, Error, Log, LogTail, Place, Scan, ShowPair, Table};
pub use table::memory::MemoryTable;
