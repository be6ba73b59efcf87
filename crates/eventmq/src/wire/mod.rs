//! The codec: eMQP's messages as frames. Pure: no sockets, no clock, no engine.
//!
//! Reading order: [`Packet`] and its [`Command`], [`Fault`] (its errors); then single frames: [`Headers`], [`queues`],
//! [`When`], [`identity`], [`is_time_out`]; last the reports for administrators, [`Status`], [`Workers`],
//! [`Schedulers`].
//!
//! Reading is lenient: extra frames are ignored, and both the specification's and the released programs' forms are
//! accepted. Writing is exact: always the released programs' form.
//!
//! Spec: `eventmq-protocol.rst`. Released programs are those of 0.3.13.

mod fault;
mod headers;
mod inform;
mod job;
mod packet;
mod python;
mod report;
mod scanner;

pub use fault::Fault;
pub use headers::{Headers, Runs};
pub use inform::{QUEUES_MAX, Queue, queues};
pub use job::{Identity, JOB_BYTES_MAX, identity, is_time_out, value_text};
pub use packet::{Command, Frames, Packet, PeerKind, Plan, Request, When, unix_seconds};
pub use report::{Members, Schedulers, Status, Worker, Workers, json};
