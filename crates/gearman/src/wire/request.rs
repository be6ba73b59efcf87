//! Every request of the specification, and how it is written; `parse` parses it, and refuses missing and overlong
//! arguments. The session decides whether the request makes sense on its connection.
//!
//! Spec: `PROTOCOL`, the sections "… Requests". If arguments are missing, gearmand searches the packets that follow for
//! a NUL; here only the one packet fails.

mod parse;

use bytes::{Bytes, BytesMut};

use super::packet::{Kind, Magic, write_packet};
use super::report::Report;

/// A request. Its fields are views of the packet's body: copy a small field of a large body before keeping it for long.
///
/// The derived `Debug` shows workloads: do not log it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// CAN_DO.
    CanDo {
        /// Any bytes, NULs included, also in the two variants below; may be empty.
        function: Bytes,
    },
    /// CAN_DO_TIMEOUT.
    CanDoTimeout {
        /// As in `CanDo`, but a NUL ends it.
        function: Bytes,
        /// Milliseconds a job may take. 0 for no limit, and for anything but a positive number.
        timeout_ms: u64,
    },
    /// CANT_DO.
    CantDo {
        /// As in `CanDo`.
        function: Bytes,
    },
    /// RESET_ABILITIES.
    ResetAbilities,
    /// PRE_SLEEP.
    PreSleep,
    /// ALL_YOURS.
    AllYours,
    /// GRAB_JOB, GRAB_JOB_UNIQ, GRAB_JOB_ALL.
    Grab(AssignForm),
    /// SUBMIT_JOB and its five variants.
    Submit {
        /// The job.
        job: Submission,
        /// Normal, unless the packet type contains `_HIGH` or `_LOW`.
        priority: Priority,
        /// `_BG`: the client does not wait for the result.
        background: bool,
    },
    /// SUBMIT_JOB_SCHED: background, normal priority.
    SubmitSched {
        /// The job.
        job: Submission,
        /// The times of its runs.
        schedule: Box<Schedule>,
    },
    /// SUBMIT_JOB_EPOCH: background, normal priority.
    SubmitEpoch {
        /// The job.
        job: Submission,
        /// Seconds since 1970 before which it must not run. 0 for anything but a positive number.
        when_s: u64,
    },
    /// SUBMIT_REDUCE_JOB and SUBMIT_REDUCE_JOB_BACKGROUND: normal priority.
    SubmitReduce {
        /// The job.
        job: Submission,
        /// The function that combines the parts.
        reducer: Bytes,
        /// A fourth argument that libgearman sends and the specification does not define: empty or opaque. `None` in
        /// the three-argument form: the body has no NUL after its third argument.
        aggregate: Option<Bytes>,
        /// The client does not wait for the result.
        background: bool,
    },
    /// A WORK packet.
    Work {
        /// As the worker sent it; a handle that is too long matches no job. That of WORK_FAIL is cut at the NUL that
        /// some workers append and that breaks clients.
        handle: Bytes,
        /// About the job.
        report: Report<Bytes>,
    },
    /// GET_STATUS.
    GetStatus {
        /// Cut at its first NUL, so that it can be sent back.
        handle: Bytes,
    },
    /// GET_STATUS_UNIQUE.
    GetStatusUnique {
        /// Cut at its first NUL, so that it can be sent back.
        unique: Bytes,
    },
    /// ECHO_REQ.
    Echo {
        /// Opaque.
        data: Bytes,
    },
    /// OPTION_REQ; see [`is_exceptions`].
    SetOption {
        /// Verbatim, as OPTION_RES sends it back.
        name: Bytes,
    },
    /// SET_CLIENT_ID.
    SetClientId {
        /// Cut at its first NUL and after [`CLIENT_ID_BYTES_MAX`](super::CLIENT_ID_BYTES_MAX) bytes; may be empty.
        id: Bytes,
    },
}

/// The arguments that all submissions share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    /// Any bytes but NUL; may be empty.
    pub function: Bytes,
    /// Any bytes but NUL. Empty and `-` have special meanings.
    pub unique: Bytes,
    /// Opaque.
    pub workload: Bytes,
}

/// The priority of a job among those of its function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Priority {
    /// `_HIGH`.
    High,
    /// Neither `_HIGH` nor `_LOW`.
    Normal,
    /// `_LOW`.
    Low,
}

/// How much of a job a worker asks to receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AssignForm {
    /// GRAB_JOB, answered by JOB_ASSIGN.
    Plain,
    /// GRAB_JOB_UNIQ, answered by JOB_ASSIGN_UNIQ.
    Unique,
    /// GRAB_JOB_ALL, answered by JOB_ASSIGN_ALL if the job has a reducer, else by JOB_ASSIGN_UNIQ.
    All,
}

/// The five calendar arguments of SUBMIT_JOB_SCHED, as sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// 0–59.
    pub minute: Bytes,
    /// 0–23.
    pub hour: Bytes,
    /// 1–31.
    pub day_of_month: Bytes,
    /// 1–12.
    pub month: Bytes,
    /// 0–6, and 0 is Monday.
    pub day_of_week: Bytes,
}

/// The only argument of a packet, up to its first NUL. Some peers send it as a C string.
fn until_nul(argument: &[u8]) -> &[u8] {
    argument.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Whether an OPTION_REQ names the only option: case is ignored, and a NUL after it accepted.
pub fn is_exceptions(name: &[u8]) -> bool {
    until_nul(name).eq_ignore_ascii_case(b"exceptions")
}

impl Request {
    /// Appends the packet, as clients and workers send it. An argument that a NUL ends must not contain one.
    pub fn encode(&self, out: &mut BytesMut) {
        let mut packet =
            |kind, arguments: &[&[u8]]| write_packet(0, out, Magic::Request, kind, arguments);
        match self {
            Self::CanDo { function } => packet(Kind::CAN_DO, &[function]),
            Self::CanDoTimeout {
                function,
                timeout_ms,
            } => {
                packet(
                    Kind::CAN_DO_TIMEOUT,
                    &[function, itoa::Buffer::new().format(*timeout_ms).as_bytes()],
                );
            }
            Self::CantDo { function } => packet(Kind::CANT_DO, &[function]),
            Self::ResetAbilities => packet(Kind::RESET_ABILITIES, &[]),
            Self::PreSleep => packet(Kind::PRE_SLEEP, &[]),
            Self::AllYours => packet(Kind::ALL_YOURS, &[]),
            Self::Grab(AssignForm::Plain) => packet(Kind::GRAB_JOB, &[]),
            Self::Grab(AssignForm::Unique) => packet(Kind::GRAB_JOB_UNIQ, &[]),
            Self::Grab(AssignForm::All) => packet(Kind::GRAB_JOB_ALL, &[]),
            Self::Work { handle, report } => report.write(handle, packet),
            Self::GetStatus { handle } => packet(Kind::GET_STATUS, &[handle]),
            Self::GetStatusUnique { unique } => packet(Kind::GET_STATUS_UNIQUE, &[unique]),
            Self::Echo { data } => packet(Kind::ECHO_REQ, &[data]),
            Self::SetOption { name } => packet(Kind::OPTION_REQ, &[name]),
            Self::SetClientId { id } => packet(Kind::SET_CLIENT_ID, &[id]),
            Self::Submit {
                job,
                priority,
                background,
            } => {
                packet(
                    submit_kind(*priority, *background),
                    &[&job.function, &job.unique, &job.workload],
                );
            }
            Self::SubmitSched { job, schedule } => packet(
                Kind::SUBMIT_JOB_SCHED,
                &[
                    &job.function,
                    &job.unique,
                    &schedule.minute,
                    &schedule.hour,
                    &schedule.day_of_month,
                    &schedule.month,
                    &schedule.day_of_week,
                    &job.workload,
                ],
            ),
            Self::SubmitEpoch { job, when_s } => {
                let mut when = itoa::Buffer::new();
                let when = when.format(*when_s).as_bytes();
                packet(
                    Kind::SUBMIT_JOB_EPOCH,
                    &[&job.function, &job.unique, when, &job.workload],
                );
            }
            Self::SubmitReduce {
                job,
                reducer,
                aggregate,
                background,
            } => {
                let kind = if *background {
                    Kind::SUBMIT_REDUCE_JOB_BACKGROUND
                } else {
                    Kind::SUBMIT_REDUCE_JOB
                };
                match aggregate {
                    Some(aggregate) => packet(
                        kind,
                        &[
                            &job.function,
                            &job.unique,
                            reducer,
                            aggregate,
                            &job.workload,
                        ],
                    ),
                    // In the three-argument form a NUL in the workload would split it.
                    None if job.workload.contains(&0) => {
                        packet(
                            kind,
                            &[&job.function, &job.unique, reducer, b"", &job.workload],
                        );
                    }
                    None => packet(kind, &[&job.function, &job.unique, reducer, &job.workload]),
                }
            }
        }
    }
}

const fn submit_kind(priority: Priority, background: bool) -> Kind {
    match (priority, background) {
        (Priority::Normal, false) => Kind::SUBMIT_JOB,
        (Priority::Normal, true) => Kind::SUBMIT_JOB_BG,
        (Priority::High, false) => Kind::SUBMIT_JOB_HIGH,
        (Priority::High, true) => Kind::SUBMIT_JOB_HIGH_BG,
        (Priority::Low, false) => Kind::SUBMIT_JOB_LOW,
        (Priority::Low, true) => Kind::SUBMIT_JOB_LOW_BG,
    }
}
