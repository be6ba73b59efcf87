//! What a command was for, folded into its tag, so that the answer can be put into the right words without remembering anything.
//!
//! Not here: those words (`refusal`, and the file of each topic).

use windlass_engine::{JobId, Tag};

use crate::wire::AssignForm;

/// The purpose of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    /// CAN_DO and its like, SET_CLIENT_ID, PRE_SLEEP: nothing is said on success.
    Worker,
    /// WORK_COMPLETE, WORK_FAIL, WORK_STATUS: nothing is said on success.
    Result,
    /// WORK_DATA, WORK_WARNING: nothing is said on success.
    Data,
    /// WORK_EXCEPTION: nothing is said on success.
    Exception,
    /// SUBMIT_JOB and its like.
    Submit,
    /// GRAB_JOB and its like.
    Grab(AssignForm),
    /// A step of a text command; which one is the session's state.
    Admin,
    /// OPTION_REQ, which takes effect behind everything before it.
    Option,
    /// GET_STATUS of a job.
    Status(JobId),
    /// GET_STATUS_UNIQUE: of which id, the session knows.
    StatusUnique,
}

/// Bits of a tag that say what; the job's number is above them.
const KIND_BITS: u32 = 4;

/// Numbers from here on fit into no tag. The engine counts from 1 and never comes near.
pub(super) const JOB_NUMBER_END: u64 = 1 << (63 - KIND_BITS);

impl Ask {
    pub(super) const fn tag(self) -> Tag {
        match self {
            Self::Worker => Tag::silent(1),
            Self::Result => Tag::silent(2),
            Self::Data => Tag::silent(3),
            Self::Exception => Tag::silent(4),
            Self::Submit => Tag(5),
            Self::Grab(AssignForm::Plain) => Tag(6),
            Self::Grab(AssignForm::Unique) => Tag(7),
            Self::Grab(AssignForm::All) => Tag(8),
            Self::Admin => Tag(9),
            Self::Option => Tag(10),
            Self::StatusUnique => Tag(12),
            Self::Status(job) => Tag(job.0 << KIND_BITS | 11),
        }
    }

    /// `None` for a tag that no session of ours gave.
    pub(super) const fn of(tag: Tag) -> Option<Self> {
        let number = tag.number();
        Some(match number & ((1 << KIND_BITS) - 1) {
            1 => Self::Worker,
            2 => Self::Result,
            3 => Self::Data,
            4 => Self::Exception,
            5 => Self::Submit,
            6 => Self::Grab(AssignForm::Plain),
            7 => Self::Grab(AssignForm::Unique),
            8 => Self::Grab(AssignForm::All),
            9 => Self::Admin,
            10 => Self::Option,
            11 => Self::Status(JobId(number >> KIND_BITS)),
            12 => Self::StatusUnique,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tag_is_understood() {
        let asks = [
            (Ask::Worker, false),
            (Ask::Result, false),
            (Ask::Data, false),
            (Ask::Exception, false),
            (Ask::Submit, true),
            (Ask::Grab(AssignForm::Plain), true),
            (Ask::Grab(AssignForm::Unique), true),
            (Ask::Grab(AssignForm::All), true),
            (Ask::Admin, true),
            (Ask::Option, true),
            (Ask::StatusUnique, true),
            (Ask::Status(JobId(0)), true),
            (Ask::Status(JobId(JOB_NUMBER_END - 1)), true),
        ];
        for (ask, answered) in asks {
            assert_eq!(Ask::of(ask.tag()), Some(ask));
            assert_eq!(ask.tag().wants_answer(), answered, "{ask:?}");
        }
        assert_eq!(Ask::of(Tag::NONE), None);
    }
}
