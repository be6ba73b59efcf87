//! The purpose of a command to the engine.
//!
//! Not here: the answers (`refusal`, and the file of each topic).

use windlass_engine::JobId;
use windlass_session::Question;

use crate::wire::AssignForm;

/// Codes of commands that are answered only if they are refused.
///
/// CAN_DO and its variants, SET_CLIENT_ID, PRE_SLEEP.
pub(super) const WORKER: u64 = 1;
/// WORK_COMPLETE, WORK_FAIL, WORK_STATUS.
pub(super) const RESULT: u64 = 2;
/// WORK_DATA, WORK_WARNING.
pub(super) const DATA: u64 = 3;
/// WORK_EXCEPTION.
pub(super) const EXCEPTION: u64 = 4;

/// The purpose of a command that has a reply.
#[derive(Debug)]
pub enum Ask {
    /// SUBMIT_JOB and its variants.
    Submit,
    /// GRAB_JOB and its variants.
    Grab(AssignForm),
    /// A step of a text command. The session's state contains which one.
    Admin,
    /// OPTION_REQ for this option, which takes effect after everything before it.
    Option(Box<[u8]>),
    /// GET_STATUS of a job.
    Status(JobId),
    /// GET_STATUS_UNIQUE of this id.
    StatusUnique(Box<[u8]>),
}

impl Question for Ask {
    const WEIGHT_MAX: usize = 64;

    fn weight(&self) -> usize {
        match self {
            Self::Submit | Self::Status(_) => 0,
            // Replies carry workloads, so a few bytes of requests must not release all of them at once. Ids are kept
            // meanwhile.
            Self::Grab(_) | Self::StatusUnique(_) => 1,
            // Answers keep their order, and packets after an option follow its new value.
            Self::Admin | Self::Option(_) => Self::WEIGHT_MAX,
        }
    }
}
