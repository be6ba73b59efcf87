//! The purpose of a command, encoded in its tag. So the session can answer in the right form without storing anything.
//!
//! Not here: the answers (`refusal`, and the file of each topic).

use windlass_engine::{JobId, Tag};

use crate::wire::AssignForm;

/// The purpose of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    /// CAN_DO and its variants, SET_CLIENT_ID, PRE_SLEEP: no answer on success.
    Worker,
    /// WORK_COMPLETE, WORK_FAIL, WORK_STATUS: no answer on success.
    Result,
    /// WORK_DATA, WORK_WARNING: no answer on success.
    Data,
    /// WORK_EXCEPTION: no answer on success.
    Exception,
    /// SUBMIT_JOB and its variants.
    Submit,
    /// GRAB_JOB and its variants.
    Grab(AssignForm),
    /// A step of a text command. The session's state contains which one.
    Admin,
    /// OPTION_REQ, which takes effect after everything before it.
    Option,
    /// GET_STATUS of a job.
    Status(JobId),
    /// GET_STATUS_UNIQUE. The session keeps the ids.
    StatusUnique,
}

/// Bits of a tag that hold the purpose. The job's number is above them.
const KIND_BITS: u32 = 4;

/// Numbers from here on do not fit into a tag. The engine's numbers begin at 1 and never come near.
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

    /// `None` for a tag that is not from a session.
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
    fn every_tag_is_decoded() {
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
