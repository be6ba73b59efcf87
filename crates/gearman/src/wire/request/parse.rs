//! Parses packets into requests. The requests and their encoding are in the parent module.
//!
//! Spec: `PROTOCOL`, the sections "… Requests". Leniency and limits are gearmand's.

use bytes::{Buf as _, Bytes};

use super::{AssignForm, Priority, Request, Schedule, Submission, until_nul};
use crate::wire::number::leading_number;
use crate::wire::packet::{Kind, Magic, Packet};
use crate::wire::refusal::ErrorReply;
use crate::wire::report::Report;
use crate::wire::{
    CLIENT_ID_BYTES_MAX, FUNCTION_BYTES_MAX, HANDLE_BYTES_MAX, OPTION_BYTES_MAX, REDUCER_BYTES_MAX,
    UNIQUE_BYTES_MAX,
};

impl Request {
    /// Parses a packet. Extra bytes in packets without arguments are ignored, as in gearmand.
    ///
    /// # Errors
    /// The packet must be answered with this ERROR packet; the connection continues.
    pub fn parse(packet: &Packet) -> Result<Self, ErrorReply> {
        Self::of(packet.clone())
    }

    /// The same, for a packet that is needed no more: its last argument takes the body's place and is not counted anew.
    pub(crate) fn of(packet: Packet) -> Result<Self, ErrorReply> {
        if packet.magic == Magic::Response {
            return Err(ErrorReply::INVALID_MAGIC);
        }
        let fields = Fields { rest: packet.body };
        match packet.kind {
            Kind::CAN_DO => fields
                .last_function()
                .map(|function| Self::CanDo { function }),
            Kind::CANT_DO => fields
                .last_function()
                .map(|function| Self::CantDo { function }),
            Kind::CAN_DO_TIMEOUT => fields.can_do_timeout(),
            Kind::RESET_ABILITIES => Ok(Self::ResetAbilities),
            Kind::PRE_SLEEP => Ok(Self::PreSleep),
            Kind::ALL_YOURS => Ok(Self::AllYours),
            Kind::GRAB_JOB => Ok(Self::Grab(AssignForm::Plain)),
            Kind::GRAB_JOB_UNIQ => Ok(Self::Grab(AssignForm::Unique)),
            Kind::GRAB_JOB_ALL => Ok(Self::Grab(AssignForm::All)),
            Kind::SUBMIT_JOB => fields.submit(Priority::Normal, false),
            Kind::SUBMIT_JOB_BG => fields.submit(Priority::Normal, true),
            Kind::SUBMIT_JOB_HIGH => fields.submit(Priority::High, false),
            Kind::SUBMIT_JOB_HIGH_BG => fields.submit(Priority::High, true),
            Kind::SUBMIT_JOB_LOW => fields.submit(Priority::Low, false),
            Kind::SUBMIT_JOB_LOW_BG => fields.submit(Priority::Low, true),
            Kind::SUBMIT_JOB_SCHED => fields.submit_sched(),
            Kind::SUBMIT_JOB_EPOCH => fields.submit_epoch(),
            Kind::SUBMIT_REDUCE_JOB => fields.submit_reduce(false),
            Kind::SUBMIT_REDUCE_JOB_BACKGROUND => fields.submit_reduce(true),
            Kind::WORK_STATUS => fields.work_status(),
            Kind::WORK_DATA => Ok(fields.work(Report::Data)),
            Kind::WORK_WARNING => Ok(fields.work(Report::Warning)),
            Kind::WORK_COMPLETE => Ok(fields.work(Report::Complete)),
            Kind::WORK_EXCEPTION => Ok(fields.work(Report::Exception)),
            Kind::WORK_FAIL => fields.last_handle().map(|handle| Self::Work {
                handle,
                report: Report::Fail,
            }),
            Kind::GET_STATUS => fields
                .last_handle()
                .map(|handle| Self::GetStatus { handle }),
            Kind::GET_STATUS_UNIQUE => fields.get_status_unique(),
            Kind::ECHO_REQ => Ok(Self::Echo { data: fields.rest }),
            Kind::OPTION_REQ => fields.set_option(),
            Kind::SET_CLIENT_ID => Ok(fields.set_client_id()),
            _ => Err(ErrorReply::INVALID_COMMAND),
        }
    }
}

/// The arguments of one packet, taken from the front as views of its body.
///
/// Spec: `PROTOCOL`, "Binary Packet" (the last argument is the whole rest, NULs included).
struct Fields {
    rest: Bytes,
}

impl Fields {
    fn terminated(&mut self) -> Result<Bytes, ErrorReply> {
        let end = self
            .rest
            .iter()
            .position(|byte| *byte == 0)
            .ok_or(ErrorReply::TOO_FEW_ARGUMENTS)?;
        let argument = self.rest.split_to(end);
        self.rest.advance(1);
        Ok(argument)
    }

    fn rest_until_nul(mut self) -> Bytes {
        self.rest.truncate(until_nul(&self.rest).len());
        self.rest
    }

    fn last_function(self) -> Result<Bytes, ErrorReply> {
        within(
            self.rest,
            FUNCTION_BYTES_MAX,
            ErrorReply::FUNCTION_TOO_LARGE,
        )
    }

    fn last_handle(self) -> Result<Bytes, ErrorReply> {
        within(
            self.rest_until_nul(),
            HANDLE_BYTES_MAX,
            ErrorReply::HANDLE_TOO_LARGE,
        )
    }

    fn function(&mut self) -> Result<Bytes, ErrorReply> {
        within(
            self.terminated()?,
            FUNCTION_BYTES_MAX,
            ErrorReply::FUNCTION_TOO_LARGE,
        )
    }

    fn unique(&mut self) -> Result<Bytes, ErrorReply> {
        within(
            self.terminated()?,
            UNIQUE_BYTES_MAX,
            ErrorReply::UNIQUE_TOO_LARGE,
        )
    }

    fn can_do_timeout(mut self) -> Result<Request, ErrorReply> {
        let function = self.function()?;
        let timeout_ms = leading_number(&self.rest).unwrap_or(0);
        Ok(Request::CanDoTimeout {
            function,
            timeout_ms,
        })
    }

    fn submit(mut self, priority: Priority, background: bool) -> Result<Request, ErrorReply> {
        let (function, unique) = (self.function()?, self.unique()?);
        let job = Submission {
            function,
            unique,
            workload: self.rest,
        };
        Ok(Request::Submit {
            job,
            priority,
            background,
        })
    }

    fn submit_sched(mut self) -> Result<Request, ErrorReply> {
        let (function, unique) = (self.function()?, self.unique()?);
        let schedule = Box::new(Schedule {
            minute: self.terminated()?,
            hour: self.terminated()?,
            day_of_month: self.terminated()?,
            month: self.terminated()?,
            day_of_week: self.terminated()?,
        });
        let job = Submission {
            function,
            unique,
            workload: self.rest,
        };
        Ok(Request::SubmitSched { job, schedule })
    }

    fn submit_epoch(mut self) -> Result<Request, ErrorReply> {
        let (function, unique) = (self.function()?, self.unique()?);
        let when_s = leading_number(&self.terminated()?)
            .filter(|when_s| i64::try_from(*when_s).is_ok())
            .ok_or(ErrorReply::EPOCH_OUT_OF_RANGE)?;
        let job = Submission {
            function,
            unique,
            workload: self.rest,
        };
        Ok(Request::SubmitEpoch { job, when_s })
    }

    fn submit_reduce(mut self, background: bool) -> Result<Request, ErrorReply> {
        let (function, unique) = (self.function()?, self.unique()?);
        let reducer = self.terminated()?;
        let reducer = within(reducer, REDUCER_BYTES_MAX, ErrorReply::UNIQUE_TOO_LARGE)?;
        let aggregate = self.terminated().ok();
        let job = Submission {
            function,
            unique,
            workload: self.rest,
        };
        Ok(Request::SubmitReduce {
            job,
            reducer,
            aggregate,
            background,
        })
    }

    fn work_status(mut self) -> Result<Request, ErrorReply> {
        let (handle, numerator) = (self.terminated()?, self.terminated()?);
        Ok(Request::Work {
            handle,
            report: Report::Status {
                numerator,
                denominator: self.rest,
            },
        })
    }

    /// A handle and opaque data. Without a NUL the data is empty: Perl's worker omits it if the result is nothing, or
    /// 0.
    fn work(mut self, report: fn(Bytes) -> Report<Bytes>) -> Request {
        match self.terminated() {
            Ok(handle) => Request::Work {
                handle,
                report: report(self.rest),
            },
            Err(_) => Request::Work {
                handle: self.rest,
                report: report(Bytes::new()),
            },
        }
    }

    fn get_status_unique(self) -> Result<Request, ErrorReply> {
        let unique = self.rest_until_nul();
        within(unique, UNIQUE_BYTES_MAX, ErrorReply::UNIQUE_TOO_LARGE)
            .map(|unique| Request::GetStatusUnique { unique })
    }

    fn set_option(self) -> Result<Request, ErrorReply> {
        let fits = until_nul(&self.rest).len() <= OPTION_BYTES_MAX;
        if fits {
            Ok(Request::SetOption { name: self.rest })
        } else {
            Err(ErrorReply::UNKNOWN_OPTION)
        }
    }

    fn set_client_id(self) -> Request {
        let mut id = self.rest_until_nul();
        id.truncate(CLIENT_ID_BYTES_MAX);
        Request::SetClientId { id }
    }
}

fn within(argument: Bytes, bytes_max: usize, refusal: ErrorReply) -> Result<Bytes, ErrorReply> {
    if argument.len() > bytes_max {
        Err(refusal)
    } else {
        Ok(argument)
    }
}
