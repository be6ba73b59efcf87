//! Writes text commands: no part of the daemon sends any.

use bytes::{BufMut, BytesMut};

use super::AdminRequest;

impl AdminRequest {
    /// Appends the command and CRLF: with CRLF every server reads the whole last word. Names must not contain blanks or
    /// line feeds.
    pub fn encode(&self, out: &mut BytesMut) {
        let mut line = |words: &[&[u8]]| out.put_slice(&words.join(&b' '));
        match self {
            Self::Version => line(&[b"version"]),
            Self::Pid => line(&[b"getpid"]),
            Self::Verbosity => line(&[b"verbose"]),
            Self::Status => line(&[b"status"]),
            Self::PriorityStatus => line(&[b"prioritystatus"]),
            Self::Workers => line(&[b"workers"]),
            Self::ShowJobs => line(&[b"show", b"jobs"]),
            Self::ShowUniqueJobs => line(&[b"show", b"unique", b"jobs"]),
            Self::ShowDeadJobs => line(&[b"show", b"dead", b"jobs"]),
            Self::RequeueJob { handle } => line(&[b"requeue", b"job", handle]),
            Self::Shutdown { graceful: false } => line(&[b"shutdown"]),
            Self::Shutdown { graceful: true } => line(&[b"shutdown", b"graceful"]),
            Self::CancelJob { handle } => line(&[b"cancel", b"job", handle]),
            Self::CreateFunction { function } => line(&[b"create", b"function", function]),
            Self::DropFunction { function } => line(&[b"drop", b"function", function]),
            Self::MaxQueue { function, limits } => {
                let [high, normal, low] =
                    [limits.high, limits.normal, limits.low].map(|jobs| jobs.to_string());
                line(&[
                    b"maxqueue",
                    function,
                    high.as_bytes(),
                    normal.as_bytes(),
                    low.as_bytes(),
                ]);
            }
        }
        out.put_slice(b"\r\n");
    }
}
