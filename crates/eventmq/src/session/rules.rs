//! Turns a request's headers into the terms of its job.
//!
//! Spec: "Headers". On the wire an exception looks like any result, so without `failure_values` only three events count
//! as failures: a lost worker, a time-out and a worker's own `TimeoutError`.

use std::borrow::Cow;

use bytes::Bytes;
use windlass_engine::{Backoff, Clash, KeyUntil, NewJob, Protocol, Retry, Unique, matches};
use windlass_zmtp::Message;

use super::Settings;
use crate::bridge::unwrapped;
use crate::config::Eventmq;
use crate::wire::{Headers, Request};

impl Settings {
    /// The job of a request, or the template of a schedule's runs. It has no key, and no client awaits its end.
    pub(super) fn job(&self, request: &Request<'_>, message: &Message) -> NewJob {
        let Request {
            queue,
            headers,
            job,
        } = *request;
        NewJob {
            meta: message.view(headers.0),
            retry: retry(&self.section, headers),
            retry_default: !headers.is_retry(),
            lease_ms: headers.timeout_secs().map(|s| {
                s.saturating_mul(1_000)
                    .saturating_add(self.section.timeout_grace.as_ms())
            }),
            ..NewJob::new(Protocol::EVENTMQ, message.view(queue), message.keep(job))
        }
    }

    /// Requests with the same identifier are the same job until it ends, and for `dedup` after its end.
    pub(super) fn unique(&self, id: Bytes) -> Option<Unique> {
        let until = if self.section.dedup.is_zero() {
            KeyUntil::End
        } else {
            KeyUntil::Gone
        };
        (!id.is_empty()).then_some(Unique {
            key: id,
            clash: Clash::Attach,
            until,
        })
    }
}

/// With `guarantee` the job must stay visible to an operator: it goes to the dead-letter queue if it fails for
/// good, or if too many workers were lost with it.
fn retry(section: &Eventmq, headers: Headers<'_>) -> Retry {
    let guarantee = headers.guarantee();
    let failures_max = match headers.retry_count() {
        0 if section.keep_failed || guarantee => -1,
        count => i32::try_from(count).unwrap_or(i32::MAX),
    };
    Retry {
        failures_max,
        losses_max: if guarantee { 0 } else { section.losses_max },
        backoff: Backoff::None,
    }
}

/// The job of a request without headers.
pub fn without_headers(section: &Eventmq, queue: Bytes, job: Bytes) -> NewJob {
    NewJob {
        retry: retry(section, Headers::default()),
        retry_default: true,
        ..NewJob::new(Protocol::EVENTMQ, queue, job)
    }
}

impl Settings {
    /// The text of a failure, if the queue's patterns match this result.
    pub(super) fn failure<'a>(&self, queue: &[u8], result: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        let patterns = self.failure_values.find(queue)?;
        let value = unwrapped(result);
        patterns
            .iter()
            .any(|pattern| matches(pattern, &value))
            .then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use windlass_config::Period;

    use super::*;

    #[test]
    fn headers_set_the_terms_of_a_job() {
        let section = Eventmq {
            losses_max: 3,
            timeout_grace: Period::from_ms(500),
            ..Eventmq::default()
        };
        let careless = Settings::new(Eventmq {
            keep_failed: false,
            ..section.clone()
        });
        let settings = Settings::new(section);
        let table: [(&str, &Settings, i32, u32, Option<u64>); 7] = [
            ("", &settings, -1, 3, None),
            ("", &careless, 0, 3, None),
            ("reply-requested,guarantee", &careless, -1, 0, None),
            ("retry-count:2", &careless, 2, 3, None),
            ("retry-count:99999999999", &settings, i32::MAX, 3, None),
            ("timeout:7", &settings, -1, 3, Some(7_500)),
            ("timeout:0,guarantee,retry-count:-1", &settings, -1, 0, None),
        ];
        for (headers, settings, failures_max, losses_max, lease_ms) in table {
            let message = Message::new([b"q", headers.as_bytes(), b"[]"]);
            let request = Request {
                queue: b"q",
                headers: Headers(headers.as_bytes()),
                job: b"[]",
            };
            let job = settings.job(&request, &message);
            assert_eq!(
                job.retry_default,
                !headers.contains("retry-count") && !headers.contains("guarantee"),
                "{headers}"
            );
            let terms = (job.retry.failures_max, job.retry.losses_max, job.lease_ms);
            assert_eq!(terms, (failures_max, losses_max, lease_ms), "{headers}");
            assert_eq!(
                (&*job.queue, &*job.meta, &*job.body),
                (&b"q"[..], headers.as_bytes(), &b"[]"[..])
            );
        }
    }

    #[test]
    fn results_that_match_failure_values_are_failures() {
        let patterns = vec![Bytes::from_static(b"Error*"), Bytes::from_static(b"false")];
        let settings = Settings {
            failure_values: [(Bytes::from_static(b"q"), patterns)].into_iter().collect(),
            ..Settings::new(Eventmq::default())
        };
        let table = [
            ("q", r#"{"value": "Error: no"}"#, Some("Error: no")),
            ("q", r#"{"value": "no Error"}"#, None),
            ("q", r#"{"value": false}"#, Some("false")),
            ("q", r#"{"value": null}"#, None),
            ("q", "Error: no", Some("Error: no")),
            ("other", r#"{"value": "Error: no"}"#, None),
        ];
        for (queue, result, expected) in table {
            let failure = settings.failure(queue.as_bytes(), result.as_bytes());
            assert_eq!(
                failure.as_deref(),
                expected.map(str::as_bytes),
                "{queue} {result}"
            );
        }
    }

    #[test]
    fn a_request_without_identifier_has_no_key() {
        let settings = Settings::new(Eventmq::default());
        assert_eq!(settings.unique(Bytes::new()), None);
        assert_eq!(
            settings
                .unique("a".into())
                .map(|unique| (unique.key, unique.until)),
            Some(("a".into(), KeyUntil::End))
        );
        let window = Settings::new(Eventmq {
            dedup: Period::from_ms(1),
            ..Eventmq::default()
        });
        assert_eq!(
            window.unique("a".into()).map(|unique| unique.until),
            Some(KeyUntil::Gone)
        );
    }
}
