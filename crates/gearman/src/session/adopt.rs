//! Converts a background job of another server, as if it had been submitted here.
//!
//! Not here: reading that server's storage.

use windlass_engine::NewJob;

use super::Settings;
use super::submit::{Manner, new_job};
use crate::wire::{FUNCTION_BYTES_MAX, Priority, Submission, UNIQUE_BYTES_MAX};

/// Why a job could not have been submitted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// The job could not be assigned to any worker.
    #[error("function name of {bytes} bytes, {FUNCTION_BYTES_MAX} allowed")]
    FunctionTooLarge {
        /// Its length.
        bytes: usize,
    },
    /// A NUL ends a name in a packet.
    #[error("a NUL in the function name")]
    FunctionWithNul,
    /// Longer than a client may make it.
    #[error("unique id of {bytes} bytes, {UNIQUE_BYTES_MAX} allowed")]
    UniqueTooLarge {
        /// Its length.
        bytes: usize,
    },
    /// A NUL ends an id in a packet.
    #[error("a NUL in the unique id")]
    UniqueWithNul,
    /// Too large for a packet: the job could neither be submitted nor assigned.
    #[error("workload of {bytes} bytes, gearman.frame_bytes_max is {limit}")]
    WorkloadTooLarge {
        /// Its length.
        bytes: usize,
        /// The largest packet.
        limit: usize,
    },
}

impl Settings {
    /// A background job as SUBMIT_JOB_BG and its variants make it. It does not run before `run_at_s`, in seconds since
    /// 1970 (0 = at once).
    ///
    /// # Errors
    ///
    /// The job does not fit into a packet.
    pub fn adopt(&self, job: Submission, priority: Priority, run_at_s: u64) -> Result<NewJob, Unfit> {
        self.check_fit(&job)?;
        Ok(new_job(self, job, Manner { priority, ..Manner::at(run_at_s) }))
    }

    fn check_fit(&self, job: &Submission) -> Result<(), Unfit> {
        let Submission { function, unique, workload } = job;
        let limit = self.section.frame_bytes_max.bytes();
        let packet_bytes = function.len() + unique.len() + workload.len() + PACKET_BYTES;
        match (function.len(), unique.len()) {
            (bytes, _) if bytes > FUNCTION_BYTES_MAX => Err(Unfit::FunctionTooLarge { bytes }),
            (_, bytes) if bytes > UNIQUE_BYTES_MAX => Err(Unfit::UniqueTooLarge { bytes }),
            _ if function.contains(&0) => Err(Unfit::FunctionWithNul),
            _ if unique.contains(&0) => Err(Unfit::UniqueWithNul),
            _ if packet_bytes > limit => Err(Unfit::WorkloadTooLarge { bytes: workload.len(), limit }),
            _ => Ok(()),
        }
    }
}

/// The bytes of a SUBMIT_JOB_BG beside its three arguments: the header and two NULs.
const PACKET_BYTES: usize = crate::wire::HEADER_BYTES + 2;

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use windlass_config::ByteSize;
    use windlass_engine::{Listen, Priority as Urgency, Timestamp};

    use super::*;
    use crate::wire::HandlePrefix;

    fn adopt(function: &[u8], unique: &[u8], workload: &[u8], run_at_s: u64) -> Result<NewJob, Unfit> {
        let mut settings = Settings::new(HandlePrefix::new(b"H:here").unwrap());
        settings.section.frame_bytes_max = ByteSize(9000);
        let [function, unique, workload] = [function, unique, workload].map(Bytes::copy_from_slice);
        settings.adopt(Submission { function, unique, workload }, Priority::High, run_at_s)
    }

    #[test]
    fn a_converted_job_equals_a_submitted_one() {
        let job = adopt(b"f", b"id", b"work", 7).unwrap();
        assert_eq!((&job.queue[..], &job.body[..], job.priority), (&b"f"[..], &b"work"[..], Urgency::clamped(7)));
        assert_eq!(job.unique.map(|unique| unique.key), Some(Bytes::from_static(b"id")));
        assert_eq!((job.not_before, job.durable, job.listen), (Some(Timestamp(7_000)), true, Listen::No));
        assert!(adopt(b"", b"", b"", 0).is_ok_and(|job| job.unique.is_none() && job.not_before.is_none()));
        assert!(adopt(b"f", &[b'u'; 64], &[0; 8000], u64::MAX).is_ok());
    }

    #[test]
    fn jobs_that_fit_into_no_packet_are_refused() {
        type Case = (&'static [u8], &'static [u8], &'static [u8], Unfit);
        let table: [Case; 5] = [
            (&[b'f'; 8193], b"", b"", Unfit::FunctionTooLarge { bytes: 8193 }),
            (b"a\0b", b"", b"", Unfit::FunctionWithNul),
            (b"f", &[b'u'; 65], b"", Unfit::UniqueTooLarge { bytes: 65 }),
            (b"f", b"\0work", b"", Unfit::UniqueWithNul),
            (b"f", b"", &[0; 9000], Unfit::WorkloadTooLarge { bytes: 9000, limit: 9000 }),
        ];
        for (function, unique, workload, why) in table {
            assert_eq!(adopt(function, unique, workload, 0).unwrap_err(), why);
        }
    }
}
