//! Durable memory: a journal of what the engine changed, in a store that survives.
//!
//! Every visit to the engine leaves changes; [`Journal`] turns them into commits, a [`Store`] keeps commits, [`recover`]
//! makes an engine of them again. The journal is bookkeeping and does no I/O; a driver cuts commits from it and hands
//! them to the store:
//!
//! ```
//! use bytes::Bytes;
//! use windlass_engine::{ClientId, Command, Limits, NewJob, Origin, Tag, Timestamp, Turn};
//! use windlass_store::{JournalLimits, MemoryStore, Recovered, Store, recover};
//!
//! let mut store = MemoryStore::new();
//! let Recovered { mut engine, mut journal, .. } = recover(&store, Limits::default(), JournalLimits::default(), 7)?;
//!
//! // A visit: under the engine's lock.
//! let mut turn = Turn::new(Timestamp(1_000), 7);
//! let job = NewJob::new(Origin::GEARMAN, Bytes::from_static(b"resize"), Bytes::from_static(b"cat.png"));
//! engine.apply(ClientId(1), Tag(1), Command::Push(Box::new(job)), &mut turn);
//! journal.append(&engine, &turn.changes);
//! let acknowledge_after = journal.pending_seq();
//!
//! // The committer: `cut` and `committed` under the lock, `commit` without it.
//! let commit = journal.cut(&engine).expect("something was appended");
//! assert_eq!(commit.seq(), acknowledge_after);
//! store.commit(&commit)?;
//! journal.committed(commit.seq());
//!
//! let again = recover(&store, Limits::default(), JournalLimits::default(), 8)?;
//! assert_eq!(again.engine.job_count(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A commit that fails is written again, the same, once [`Store::reopen`] succeeds: nothing of it or of a later one is
//! acknowledged before.
//!
//! Reading order: [`Record`] (the facts) · `frame` (bytes on the disk) · [`Journal`] and `ledger` (what is where, and
//! what may go) · `compact` · [`recover`] · `sled`.
//!
//! # Invariants
//!
//! * At most one record of a job, or of a schedule, in a commit; of all records of a job in the store, the one in the highest commit counts.
//! * What overrides an older record goes later than that record, never before.
//! * What is removed is superfluous by what was on the disk before the commit that removes it.
//! * Every commit says how many commits there are and which: one that is lost is noticed.
//! * A record that was ever written can be read for ever (`golden/`).

mod codec;
mod commit;
mod compact;
mod fingerprint;
mod frame;
mod journal;
mod ledger;
mod memory;
mod pending;
mod record;
mod recover;
mod replay;
mod roll;
mod salvage;
mod sled;
#[cfg_attr(
    not(test),
    expect(dead_code, unused_imports, reason = "recovery and salvage are to read the log without sled")
)]
mod sled_file;
mod store;

pub use codec::DecodeError;
pub use commit::{Batch, Commit, Values};
pub use fingerprint::Fingerprint;
pub use frame::{FrameError, VALUE_BYTES_MAX, VERSION};
pub use journal::{Journal, JournalLimits, JournalStats};
pub use memory::{Fault, MemoryStore};
pub use record::{BatchMoved, HeadRecord, Moved, NextRun, Record};
pub use recover::{Recovered, Report, recover};
pub use replay::{RecoverError, Torn};
pub use salvage::{Salvage, salvage};
pub use sled::{SledConfig, SledStore, Watch};
pub use store::{Error, Store};
