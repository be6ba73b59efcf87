//! Converts a background job of another server, as if it had been submitted here.
//!
//! Not here: reading that server's storage.

use windlass_engine::NewJob;

use super::Settings;
use super::submit::{Manner, new_job};
use crate::wire::{FUNCTION_BYTES_MAX, Priority, Submission, UNIQUE_BYTES_MAX};

impl Settings {
    /// A background job as SUBMIT_JOB_BG and its variants make it. It does not run before `run_at_s`, in seconds since
    /// 1970 (0 = at once).
    ///
    /// # Errors
    ///
    /// The job does not fit into a packet.
    pub fn adopt(
        &self,
        job: Submission,
        priority: Priority,
        run_at_s: u64,
    ) -> Result<NewJob, String> {
        self.check_fit(&job)?;
        Ok(new_job(
            self,
            job,
            Manner {
                priority,
                ..Manner::at(run_at_s)
            },
        ))
    }

    fn check_fit(&self, job: &Submission) -> Result<(), String> {
        let Submission {
            function,
            unique,
            workload,
        } = job;
        let limit = self.section.frame_bytes_max.bytes();
        let packet_bytes = function.len() + unique.len() + workload.len() + PACKET_BYTES;
        match (function.len(), unique.len()) {
            (bytes, _) if bytes > FUNCTION_BYTES_MAX => Err(format!(
                "function name of {bytes} bytes, {FUNCTION_BYTES_MAX} allowed"
            )),
            (_, bytes) if bytes > UNIQUE_BYTES_MAX => Err(format!(
                "unique id of {bytes} bytes, {UNIQUE_BYTES_MAX} allowed"
            )),
            _ if function.contains(&0) => Err("a NUL in the function name".to_owned()),
            _ if unique.contains(&0) => Err("a NUL in the unique id".to_owned()),
            _ if packet_bytes > limit => {
                let bytes = workload.len();
                Err(format!(
                    "workload of {bytes} bytes, gearman.frame_bytes_max is {limit}"
                ))
            }
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

    fn adopt(
        function: &[u8],
        unique: &[u8],
        workload: &[u8],
        run_at_s: u64,
    ) -> Result<NewJob, String> {
        let mut settings = Settings::new(HandlePrefix::new(b"H:here").unwrap());
        settings.section.frame_bytes_max = ByteSize(9000);
        let [function, unique, workload] = [function, unique, workload].map(Bytes::copy_from_slice);
        settings.adopt(
            Submission {
                function,
                unique,
                workload,
            },
            Priority::High,
            run_at_s,
        )
    }

    #[test]
    fn a_converted_job_equals_a_submitted_one() {
        let job = adopt(b"f", b"id", b"work", 7).unwrap();
        assert_eq!(
            (&job.queue[..], &job.body[..], job.priority),
            (&b"f"[..], &b"work"[..], Urgency::clamped(7))
        );
        assert_eq!(
            job.unique.map(|unique| unique.key),
            Some(Bytes::from_static(b"id"))
        );
        assert_eq!(
            (job.not_before, job.durable, job.listen),
            (Some(Timestamp(7_000)), true, Listen::No)
        );
        assert!(
            adopt(b"", b"", b"", 0)
                .is_ok_and(|job| job.unique.is_none() && job.not_before.is_none())
        );
        assert!(adopt(b"f", &[b'u'; 64], &[0; 8000], u64::MAX).is_ok());
    }

    #[test]
    fn jobs_that_fit_into_no_packet_are_refused() {
        type Case = (&'static [u8], &'static [u8], &'static [u8], &'static str);
        let table: [Case; 5] = [
            (
                &[b'f'; 8193],
                b"",
                b"",
                "function name of 8193 bytes, 8192 allowed",
            ),
            (b"a\0b", b"", b"", "a NUL in the function name"),
            (b"f", &[b'u'; 65], b"", "unique id of 65 bytes, 64 allowed"),
            (b"f", b"\0work", b"", "a NUL in the unique id"),
            (
                b"f",
                b"",
                &[0; 9000],
                "workload of 9000 bytes, gearman.frame_bytes_max is 9000",
            ),
        ];
        for (function, unique, workload, why) in table {
            assert_eq!(adopt(function, unique, workload, 0).unwrap_err(), why);
        }
    }
}
