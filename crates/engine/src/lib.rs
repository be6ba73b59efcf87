//! The queue: one deterministic state machine that decides and never acts.
//!
//! No socket, file, clock, thread, randomness or log line: time and dice come in with the [`Turn`], what must be
//! remembered ([`Change`]), told ([`Event`]) or noticed ([`Notice`]) goes out with it. Same start, same inputs, same times: same outputs.
//!
//! Reading order: [`Job`], [`Place`], [`Schedule`] and [`Batch`] (what there is) · [`Command`] (what may be asked) · [`Event`] (what is
//! answered) · `engine` (the state, and the table of contents of what moves it).
//!
//! ```
//! use bytes::Bytes;
//! use windlass_engine::{ClientId, ClientInfo, Command, Engine, Limits, NewJob, Origin, Tag, Timestamp, Turn};
//!
//! let mut engine = Engine::new(Limits::default(), 0);
//! let mut turn = Turn::new(Timestamp(1_000), 7);
//! let client = ClientId(1);
//! engine.apply(client, Tag::NONE, Command::Open(ClientInfo::default()), &mut turn);
//! let job = NewJob::new(Origin::GEARMAN, Bytes::from_static(b"resize"), Bytes::from_static(b"cat.png"));
//! engine.apply(client, Tag(1), Command::Push(Box::new(job)), &mut turn);
//! assert_eq!(turn.events.len(), 1); // Pushed, to be sent once `turn.changes` are in the journal
//! ```
//!
//! # Invariants
//!
//! [`Engine::check`] asserts them after every call in debug builds:
//! a job is in exactly one place and every index agrees with it; a ready job is in its queue's line, a leased one in no
//! line; a key leads to one job; no two leases of a job at once; a queue's figures are the sums of its jobs; no ready job
//! waits while a client that sees it and could take it waits too, be it as a stray; and nobody sees what was born in another
//! protocol than its own, but in a bridged queue ([`Bridge`]), and not if its protocol has no words for it ([`Unfit`]).

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
mod cycle;
mod dead;
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
mod line;
mod list;
mod notice;
mod numbered;
mod part;
mod payload;
mod place;
mod push;
mod queue;
mod recur;
mod rules;
mod schedule;
mod strays;
mod table;
mod take;
mod throttle;
mod track;
mod turn;
mod wait;
mod work;
mod workers;
mod zone;

pub use batch::{Batch, BatchStanding, Member, NewBatch, Role, Stage};
pub use calendar::Cron;
pub use clock::{Clock, Reading, TICK_MS, Timekeeper};
pub use command::*;
pub use dead::DeadDropped;
pub use end::{LOSSES, MISFIT};
pub use engine::{Engine, Head};
pub use event::*;
pub use ids::*;
pub use isolation::{Bridge, Unfit, matches};
pub use job::*;
pub use limits::Limits;
pub use notice::{Notice, NoticeKind};
pub use numbered::Numbered;
pub use payload::Payload;
pub use queue::{Queue, QueueImage};
pub use rules::{Codec, QueueRules};
pub use schedule::{NewSchedule, Recurrence, Schedule, ScheduleRef};
pub use throttle::Throttle;
pub use turn::{Change, Turn};
pub use zone::Zone;
