//! WORK packets: a worker sends them about its job, and the server passes them on to the job's clients.
//!
//! Spec: `PROTOCOL`, "Worker Requests" and "Client Responses".

use super::packet::Kind;

/// What a WORK packet says behind the job's handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report<D> {
    /// WORK_STATUS, verbatim; see [`status_number`](super::status_number) for the values of its numbers.
    Status {
        /// How much is done.
        numerator: D,
        /// How much there is to do.
        denominator: D,
    },
    /// WORK_DATA, opaque.
    Data(D),
    /// WORK_WARNING, opaque.
    Warning(D),
    /// WORK_COMPLETE, opaque.
    Complete(D),
    /// WORK_EXCEPTION, opaque.
    Exception(D),
    /// WORK_FAIL.
    Fail,
}

impl<D: AsRef<[u8]>> Report<D> {
    /// Passes the packet's type and arguments to `packet`.
    pub(super) fn write(&self, handle: &[u8], packet: impl FnOnce(Kind, &[&[u8]])) {
        let (kind, data) = match self {
            Self::Status {
                numerator,
                denominator,
            } => {
                return packet(
                    Kind::WORK_STATUS,
                    &[handle, numerator.as_ref(), denominator.as_ref()],
                );
            }
            Self::Data(data) => (Kind::WORK_DATA, data),
            Self::Warning(data) => (Kind::WORK_WARNING, data),
            Self::Complete(data) => (Kind::WORK_COMPLETE, data),
            Self::Exception(data) => (Kind::WORK_EXCEPTION, data),
            Self::Fail => return packet(Kind::WORK_FAIL, &[handle]),
        };
        packet(kind, &[handle, data.as_ref()]);
    }
}
