//! The queue: one deterministic state machine that decides and never acts.
//!
//! It has no socket, file, clock, thread, randomness or log. Time and a random seed enter with the
//! [`Context`], which also returns the output: records for the journal ([`Change`]), messages to send
//! ([`Event`]) and lines to log ([`Warning`]). The same initial state, inputs and times give the same
//! outputs.
//!
//! Reading order: [`Job`], [`JobState`], [`Schedule`] and [`Batch`] (the data) · [`Command`] (the requests) ·
//! [`Event`] (the replies) · `engine` (the state, and the dispatch of commands).
//!
//! ```
//! use bytes::Bytes;
//! use windlass_engine::{ClientCommand, ClientId, ClientInfo, Context, Engine, JobCommand, Limits, NewJob, Protocol, Tag, Timestamp};
//!
//! let mut engine = Engine::new(Limits::default(), 0);
//! let mut context = Context::new(Timestamp(1_000), 7);
//! let client = ClientId(1);
//! engine.apply(client, Tag::NONE, ClientCommand::Open(ClientInfo::default()), &mut context);
//! let job = NewJob::new(Protocol::GEARMAN, Bytes::from_static(b"resize"), Bytes::from_static(b"cat.png"));
//! engine.apply(client, Tag(1), JobCommand::Push(Box::new(job)), &mut context);
//! assert_eq!(context.events.len(), 1); // Pushed: send it once the journal has `context.changes`
//! ```
//!
//! # Invariants
//!
//! Debug builds assert them with [`Engine::check`], after every call while the engine is small and regularly
//! when it is large:
//!
//! - A job is in exactly one state, and every index agrees with it.
//! - A ready job is in the ready queue of its queue; a leased job is in no ready queue.
//! - A key identifies one job.
//! - A job has no more than one lease.
//! - A queue's figures are the sums over the jobs.
//! - Memory that grows at the request of clients is counted: names, clients, subscriptions, waits, keys,
//!   workers, watchers.
//! - No client is waiting while there is a ready job that it can see and take, including unclaimed jobs.
//! - A client sees only jobs of the client's protocol, except in a bridged queue ([`Bridge`]). There it sees
//!   all jobs except those with a conversion error for that protocol ([`Unfit`]).

mod batches;
mod bodies;
mod by_namespace;
mod change;
mod claim;
mod clients;
mod clock;
mod command;
mod condition;
mod context;
pub mod date;
mod days;
mod deferred;
mod engine;
mod error_group;
mod event;
mod glob;
mod held;
mod history;
mod ids;
mod jobs;
mod kinds;
mod limits;
mod meta;
mod namespaces;
mod on_dead;
mod outcome;
mod query;
mod queues;
mod reason;
mod refusal;
mod request;
mod residency;
mod rights;
mod schedules;
mod starved;
mod succession;
mod terms;
mod timers;
mod warning;
mod work;

pub use batches::{Batch, BatchProgress, NewBatch, Stage};
pub use change::Change;
pub use claim::{Claim, Held};
pub use clock::{Clock, Reading, TICK_MS, Timekeeper};
pub use command::*;
pub use condition::{BODY_READ_MAX, Calls, Condition, JobReader, Order, Subject};
pub use context::Context;
pub use days::{DAYS_KEPT, DayBegin};
pub use engine::{DeadDropped, Engine, LOSSES, MISFIT, UNREADABLE};
pub use error_group::error_group;
pub use event::*;
pub use glob::Glob;
pub use history::{Ended, EndedWorker, Ending, Excerpt, HistoryRules, Origin, Output};
pub use ids::*;
pub use jobs::*;
pub use limits::{Limits, NamespaceLimits, PushRate};
pub use meta::EngineMeta;
pub use namespaces::{NAMESPACE_SEPARATOR, NamespaceImage, is_valid_name};
pub use on_dead::OnDead;
pub use outcome::*;
pub use query::*;
pub use queues::{
    Bridge, Coalesce, Codec, Histogram, Hold, KeySource, OwnPolicy, Patterns, Policy, Queue,
    QueueFigures, QueueImage, QueueRules, QueueSettings, READ_KEY, Rate, SavedRates, Throttle,
    is_pattern, matches,
};
pub use refusal::{Capacity, Refusal, Thing};
pub use request::*;
pub use rights::{Right, Rights};
pub use schedules::{
    Cron, EARLIER_RUNS_MAX, LastRun, NewSchedule, Recurrence, RunEnd, Schedule, ScheduleRef, Zone,
};
pub use warning::{Warning, WarningKind};
