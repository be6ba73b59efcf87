//! The codec: bytes to requests, answers to bytes. Pure: no socket, no clock, no engine.
//!
//! Reading order: [`lines`](Lines) and [`request`](Request) (what a line asks) · [`unit`](Unit) (a job, and its text) ·
//! `hello`, `report`, `mutate` (what the other verbs carry) · [`reply`] (RESP). What they share: `json`, `go` (the words of
//! deployed servers for bad JSON), `canonical` (when two values are equal), `time`, `glob`.

mod batch;
mod canonical;
mod glob;
mod go;
mod hello;
mod info;
pub(crate) mod json;
mod lines;
mod mutate;
pub mod reply;
mod report;
mod request;
mod template;
mod text;
mod time;
mod unit;

pub use batch::{BatchText, NewBatch, TrackSet, TrackText, batch_name, callback_custom};
pub use canonical::canonical;
pub use glob::Glob;
pub use hello::{Challenge, Hello, hi, password_matches};
pub use info::{Chore, InfoText, JobText, queue_member, seconds_object, texts_object};
pub use lines::{LineTooLong, Lines};
pub use mutate::{BadMutation, Mutate, MutateCmd, MutateTarget};
pub use report::{Ack, Beat, Failed, JobName};
pub use request::{QueueRequest, Request};
pub use template::run_text;
pub use text::{FailureText, Foreign, Text};
pub use time::{TimeError, parse_time, time_text, time_text_ns};
pub use unit::{Expires, List, Unit, UnitError, Wishes, is_queue_name};
pub use windlass_session::jid::{jid_of, number_of};

/// How much of what a peer sent is sent back to it in an error.
const ECHO_BYTES_MAX: usize = 1024;

/// The beginning of what a peer sent, for an error to show.
pub(crate) fn echo(sent: &[u8]) -> &[u8] {
    sent.get(..ECHO_BYTES_MAX).unwrap_or(sent)
}
