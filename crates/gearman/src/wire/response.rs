//! The server's responses: written, and parsed for load generators and tests. The session decides when to send them.
//!
//! Spec: `PROTOCOL`, the sections "… Responses".

use bytes::BytesMut;

use super::number::status_number;
use super::packet::{Kind, Magic, Packet, write_packet};
use super::report::Report;

/// A response, borrowing its contents. An argument that a NUL ends must not contain one. Handles are written without a
/// NUL: with a NUL in WORK_FAIL, stock clients do not recognize the handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Response<'a> {
    /// NOOP.
    Noop,
    /// NO_JOB.
    NoJob,
    /// JOB_CREATED.
    JobCreated {
        /// The handle of the new job, or of the job it joined.
        handle: &'a [u8],
    },
    /// JOB_ASSIGN.
    JobAssign {
        /// The job's handle.
        handle: &'a [u8],
        /// The job's function.
        function: &'a [u8],
        /// Opaque.
        workload: &'a [u8],
    },
    /// JOB_ASSIGN_UNIQ.
    JobAssignUniq {
        /// The job's handle.
        handle: &'a [u8],
        /// The job's function.
        function: &'a [u8],
        /// As submitted: `-` stays `-`.
        unique: &'a [u8],
        /// Opaque.
        workload: &'a [u8],
    },
    /// JOB_ASSIGN_ALL.
    JobAssignAll {
        /// The job's handle.
        handle: &'a [u8],
        /// The job's function.
        function: &'a [u8],
        /// As submitted: `-` stays `-`.
        unique: &'a [u8],
        /// The job's reducer, not empty.
        reducer: &'a [u8],
        /// Opaque.
        workload: &'a [u8],
    },
    /// A WORK packet.
    Work {
        /// The job's handle, without a NUL.
        handle: &'a [u8],
        /// As the worker sent it.
        report: Report<&'a [u8]>,
    },
    /// STATUS_RES.
    StatusRes {
        /// The handle from the request.
        handle: &'a [u8],
        /// The job's status.
        status: Status,
    },
    /// STATUS_RES_UNIQUE.
    StatusResUnique {
        /// The unique id from the request. The specification calls it a handle, but gearmand sends this.
        unique: &'a [u8],
        /// The job's status.
        status: Status,
        /// Number of foreground submissions attached to the job.
        clients: u32,
    },
    /// ECHO_RES.
    EchoRes {
        /// Opaque.
        data: &'a [u8],
    },
    /// OPTION_RES.
    OptionRes {
        /// Verbatim.
        name: &'a [u8],
    },
    /// ERROR; the server's own errors are [`ErrorReply`](super::ErrorReply)'s constants.
    Error {
        /// Upper case.
        code: &'a [u8],
        /// A sentence for people.
        text: &'a [u8],
    },
}

/// A job's status; the default is that of an unknown job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Status {
    /// The server has the job.
    pub known: bool,
    /// A worker has the job.
    pub running: bool,
    /// From the last WORK_STATUS of this attempt, else 0.
    pub numerator: u32,
    /// From the last WORK_STATUS of this attempt, else 0.
    pub denominator: u32,
}

/// The packet is not a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResponseError {
    /// Its magic is that of a request, or no server sends its type.
    #[error("{kind} is not a response")]
    NotAResponse {
        /// Its type.
        kind: Kind,
    },
    /// NULs are missing.
    #[error("{kind} with only {found} arguments")]
    TooFewArguments {
        /// Its type.
        kind: Kind,
        /// The number of arguments present.
        found: usize,
    },
}

impl<'a> Response<'a> {
    /// Appends the packet. `out` grows at most once; nothing else is allocated.
    pub fn encode(&self, out: &mut BytesMut) {
        self.encode_but(0, out);
    }

    /// Appends all but the last bytes of the packet: the end of the workload or data, which the caller sends behind
    /// them.
    pub fn encode_but(&self, omitted_bytes: usize, out: &mut BytesMut) {
        let mut packet = |kind, arguments: &[&[u8]]| {
            write_packet(omitted_bytes, out, Magic::Response, kind, arguments)
        };
        match *self {
            Self::Noop => packet(Kind::NOOP, &[]),
            Self::NoJob => packet(Kind::NO_JOB, &[]),
            Self::JobCreated { handle } => packet(Kind::JOB_CREATED, &[handle]),
            Self::JobAssign {
                handle,
                function,
                workload,
            } => packet(Kind::JOB_ASSIGN, &[handle, function, workload]),
            Self::JobAssignUniq {
                handle,
                function,
                unique,
                workload,
            } => {
                packet(Kind::JOB_ASSIGN_UNIQ, &[handle, function, unique, workload]);
            }
            Self::JobAssignAll {
                handle,
                function,
                unique,
                reducer,
                workload,
            } => {
                packet(
                    Kind::JOB_ASSIGN_ALL,
                    &[handle, function, unique, reducer, workload],
                );
            }
            Self::Work { handle, report } => report.write(handle, packet),
            Self::StatusRes { handle, status } => {
                status.write(|[known, running, numerator, denominator]| {
                    packet(
                        Kind::STATUS_RES,
                        &[handle, known, running, numerator, denominator],
                    );
                });
            }
            Self::StatusResUnique {
                unique,
                status,
                clients,
            } => {
                let mut buffer = itoa::Buffer::new();
                let clients = buffer.format(clients).as_bytes();
                status.write(|[known, running, numerator, denominator]| {
                    packet(
                        Kind::STATUS_RES_UNIQUE,
                        &[unique, known, running, numerator, denominator, clients],
                    );
                });
            }
            Self::EchoRes { data } => packet(Kind::ECHO_RES, &[data]),
            Self::OptionRes { name } => packet(Kind::OPTION_RES, &[name]),
            Self::Error { code, text } => packet(Kind::ERROR, &[code, text]),
        }
    }

    /// Parses a packet that a server sent. Handles are returned as the server wrote them; gearmand appends a NUL to
    /// some of those in WORK_FAIL.
    ///
    /// # Errors
    /// The packet is not a response of the specification.
    pub fn parse(packet: &'a Packet) -> Result<Self, ResponseError> {
        let kind = packet.kind;
        match kind {
            _ if packet.magic != Magic::Response => Err(ResponseError::NotAResponse { kind }),
            Kind::NOOP => Ok(Self::Noop),
            Kind::NO_JOB => Ok(Self::NoJob),
            Kind::JOB_CREATED => split(packet).map(|[handle]| Self::JobCreated { handle }),
            Kind::JOB_ASSIGN => split(packet).map(|[handle, function, workload]| Self::JobAssign {
                handle,
                function,
                workload,
            }),
            Kind::JOB_ASSIGN_UNIQ => {
                split(packet).map(|[handle, function, unique, workload]| Self::JobAssignUniq {
                    handle,
                    function,
                    unique,
                    workload,
                })
            }
            Kind::JOB_ASSIGN_ALL => {
                split(packet).map(|[handle, function, unique, reducer, workload]| {
                    Self::JobAssignAll {
                        handle,
                        function,
                        unique,
                        reducer,
                        workload,
                    }
                })
            }
            Kind::WORK_STATUS => split(packet).map(|[handle, numerator, denominator]| Self::Work {
                handle,
                report: Report::Status {
                    numerator,
                    denominator,
                },
            }),
            Kind::WORK_DATA => Self::work(packet, Report::Data),
            Kind::WORK_WARNING => Self::work(packet, Report::Warning),
            Kind::WORK_COMPLETE => Self::work(packet, Report::Complete),
            Kind::WORK_EXCEPTION => Self::work(packet, Report::Exception),
            Kind::WORK_FAIL => split(packet).map(|[handle]| Self::Work {
                handle,
                report: Report::Fail,
            }),
            Kind::STATUS_RES => {
                split(packet).map(|[handle, known, running, numerator, denominator]| {
                    Self::StatusRes {
                        handle,
                        status: Status::read([known, running, numerator, denominator]),
                    }
                })
            }
            Kind::STATUS_RES_UNIQUE => split(packet).map(
                |[unique, known, running, numerator, denominator, clients]| {
                    let status = Status::read([known, running, numerator, denominator]);
                    Self::StatusResUnique {
                        unique,
                        status,
                        clients: status_number(clients),
                    }
                },
            ),
            Kind::ECHO_RES => split(packet).map(|[data]| Self::EchoRes { data }),
            Kind::OPTION_RES => split(packet).map(|[name]| Self::OptionRes { name }),
            Kind::ERROR => split(packet).map(|[code, text]| Self::Error { code, text }),
            _ => Err(ResponseError::NotAResponse { kind }),
        }
    }

    fn work(
        packet: &'a Packet,
        report: fn(&'a [u8]) -> Report<&'a [u8]>,
    ) -> Result<Self, ResponseError> {
        split(packet).map(|[handle, data]| Self::Work {
            handle,
            report: report(data),
        })
    }
}

impl Status {
    fn read([known, running, numerator, denominator]: [&[u8]; 4]) -> Self {
        let (numerator, denominator) = (status_number(numerator), status_number(denominator));
        Self {
            known: known == b"1",
            running: running == b"1",
            numerator,
            denominator,
        }
    }

    fn write(self, packet: impl FnOnce([&[u8]; 4])) {
        let flag = |set: bool| if set { &b"1"[..] } else { b"0" };
        let (mut numerator, mut denominator) = (itoa::Buffer::new(), itoa::Buffer::new());
        let numbers = (
            numerator.format(self.numerator),
            denominator.format(self.denominator),
        );
        packet([
            flag(self.known),
            flag(self.running),
            numbers.0.as_bytes(),
            numbers.1.as_bytes(),
        ]);
    }
}

/// The arguments of a packet that needs this many. The last is the whole rest of the body, NULs included.
fn split<const NEEDED: usize>(packet: &Packet) -> Result<[&[u8]; NEEDED], ResponseError> {
    let mut arguments = [&b""[..]; NEEDED];
    let mut present = packet.body.splitn(NEEDED, |byte| *byte == 0);
    for (found, argument) in arguments.iter_mut().enumerate() {
        *argument = present.next().ok_or(ResponseError::TooFewArguments {
            kind: packet.kind,
            found,
        })?;
    }
    Ok(arguments)
}
