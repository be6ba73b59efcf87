//! The codec: bytes to requests, replies to bytes. Pure: no socket, no clock, no engine but its arithmetic of dates.
//!
//! Reading order: [`lines`](Lines) and [`request`](Request) (commands) · [`unit`](Unit) (a job, and its text) ·
//! `hello`, `report`, `mutate` (arguments of the other verbs) · [`reply`] (RESP). Shared parts: `json`, `go` (error
//! texts of deployed servers for bad JSON), `canonical` (equality of values), `time`.

mod batch;
mod canonical;
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
pub use hello::{Challenge, Hello, hi, password_matches};
pub use info::{
    Chore, InfoText, JobText, health_object, queue_member, seconds_object, texts_object,
};
pub use lines::{LineTooLong, Lines};
pub use mutate::Mutate;
pub use report::{Ack, Beat, Failed, requeued};
pub use request::{QueueRequest, Request};
pub use template::run_text;
pub use text::{FailureText, Text, jobtype_of};
pub use time::{parse_time, time_text, time_text_ns};
pub use unit::{Expires, List, Unit, Wishes, is_queue_name};
pub use windlass_session::jid::{jid_of, number_of};

/// Bytes of a peer's text that an error repeats.
const ECHO_BYTES_MAX: usize = 1024;

/// The beginning of a peer's text, for an error.
pub(crate) fn echo(sent: &[u8]) -> &[u8] {
    sent.get(..ECHO_BYTES_MAX).unwrap_or(sent)
}
