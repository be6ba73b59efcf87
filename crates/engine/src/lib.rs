//! The queue: one deterministic state machine that decides and never acts.
//!
//! It has no socket, file, clock, thread, randomness or log. Time and a random seed enter with the [`Context`]. What to journal
//! ([`Change`]), to send ([`Event`]) and to log ([`Warning`]) leaves with it. The same start, inputs and times give the same
//! outputs.
//!
//! Reading order: [`Job`], [`JobState`], [`Schedule`] and [`Batch`] (the data) · [`Command`] (the requests) · [`Event`] (the
//! answers) · `engine` (the state, and the dispatch of commands).
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
//! Debug builds assert them with [`Engine::check`], after every call while the engine is small and regularly when it is large:
//!
//! - A job is in exactly one state, and every index agrees with it.
//! - A ready job is in its queue's ready queue; a leased job is in no ready queue.
//! - A key identifies one job.
//! - A job has at most one lease.
//! - A queue's figures are the sums over its jobs.
//! - If a ready job waits, no client waits that can see and take it, as a stray or otherwise.
//! - A client sees only jobs of its own protocol, except in a bridged queue ([`Bridge`]). There it sees all jobs but those that
//!   had a conversion error for its protocol ([`Unfit`]).

mod adopt;
mod alarm;
mod batch;
mod calendar;
mod check;
mod client;
mod clients;
mod clock;
mod command;
mod consumers;
mod context;
mod cycle;
pub mod date;
mod dead;
mod dispatch;
mod due;
mod edit;
mod end;
mod engine;
mod event;
mod figures;
mod flush;
mod gather;
mod ids;
mod isolation;
mod job;
mod limits;
mod list;
mod numbered;
mod outcome;
mod part;
mod payload;
mod place;
mod push;
mod query;
mod queue;
mod ready;
mod recur;
mod refusal;
mod request;
mod rules;
mod schedule;
mod table;
mod take;
mod terms;
mod throttle;
mod track;
mod unclaimed;
mod wait;
mod warning;
mod work;
mod workers;
mod zone;

pub use batch::{Batch, BatchStanding, Member, NewBatch, Role, Stage};
pub use calendar::Cron;
pub use clock::{Clock, Reading, TICK_MS, Timekeeper};
pub use command::*;
pub use context::{Change, Context};
pub use dead::DeadDropped;
pub use end::{LOSSES, MISFIT};
pub use engine::{Engine, Head};
pub use event::*;
pub use ids::*;
pub use isolation::{Bridge, Unfit, matches};
pub use job::*;
pub use limits::Limits;
pub use numbered::Numbered;
pub use outcome::*;
pub use payload::Payload;
pub use query::*;
pub use queue::{Queue, QueueImage};
pub use refusal::{Capacity, Refusal, Thing};
pub use request::*;
pub use rules::{Codec, QueueRules};
pub use schedule::{NewSchedule, Recurrence, Schedule, ScheduleRef};
pub use throttle::Throttle;
pub use warning::{Warning, WarningKind};
pub use zone::Zone;
