//! A request's headers: comma-separated words, some with a number. Unknown headers are ignored, and passed on.
//!
//! Spec: "Headers"; `run_count` is the released scheduler's.

use std::borrow::Cow;
use std::num::IntErrorKind;

/// Headers in the client's spelling. Each query searches them again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Headers<'a>(pub &'a [u8]);

/// Runs of a schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Runs {
    /// No limit.
    Endless,
    /// This many in all, the one at once included.
    Count(u64),
}

const REPLY_REQUESTED: &[u8] = b"reply-requested";

impl<'a> Headers<'a> {
    /// Every header: its name and, behind a colon, its value, both without blanks around them. Empty headers are
    /// skipped.
    pub fn iter(self) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> {
        self.0
            .split(|byte| *byte == b',')
            .map(<[u8]>::trim_ascii)
            .filter(|word| !word.is_empty())
            .map(|word| {
                let mut halves = word.splitn(2, |byte| *byte == b':');
                (
                    halves.next().unwrap_or_default().trim_ascii(),
                    halves.next().map(<[u8]>::trim_ascii),
                )
            })
    }

    /// Whether the sender has requested a reply. True wherever the word stands, as in the released programs.
    pub fn reply_requested(self) -> bool {
        self.0
            .windows(REPLY_REQUESTED.len())
            .any(|window| window == REPLY_REQUESTED)
    }

    /// The job's limit in seconds; `None` if absent or 0, which leaves it to the worker (300 s).
    pub fn timeout_secs(self) -> Option<u64> {
        self.number(b"timeout")
            .and_then(|secs| u64::try_from(secs).ok())
            .filter(|secs| *secs > 0)
    }

    /// Retries of a failed job; 0 if absent or negative.
    pub fn retry_count(self) -> u64 {
        self.number(b"retry-count")
            .and_then(|count| u64::try_from(count).ok())
            .unwrap_or(0)
    }

    /// Whether a header concerns the job's failure.
    pub fn is_retry(self) -> bool {
        self.guarantee() || self.has(b"retry-count")
    }

    /// Whether the job has `guarantee`.
    pub fn guarantee(self) -> bool {
        self.has(b"guarantee")
    }

    /// Whether a schedule's first run waits for its time.
    pub fn nohaste(self) -> bool {
        self.has(b"nohaste")
    }

    /// Runs of a schedule; no limit if absent or negative.
    pub fn run_count(self) -> Runs {
        self.number(b"run_count")
            .and_then(|count| u64::try_from(count).ok())
            .map_or(Runs::Endless, Runs::Count)
    }

    /// The client's headers with `reply-requested`, which is appended if absent.
    pub fn with_reply_requested(self) -> Cow<'a, [u8]> {
        if self.reply_requested() {
            return Cow::Borrowed(self.0);
        }
        if self.0.is_empty() {
            return Cow::Borrowed(REPLY_REQUESTED);
        }
        Cow::Owned([self.0, b",", REPLY_REQUESTED].concat())
    }

    fn has(self, name: &[u8]) -> bool {
        self.iter().any(|(found, _)| found == name)
    }

    /// The first valid number of this name. Numbers that are too large saturate.
    fn number(self, name: &[u8]) -> Option<i64> {
        self.iter()
            .filter(|(found, _)| *found == name)
            .find_map(|(_, value)| number(value?))
    }
}

/// A decimal integer with optional blanks around it. Saturates.
pub(super) fn number(text: &[u8]) -> Option<i64> {
    match str::from_utf8(text.trim_ascii()).ok()?.parse::<i64>() {
        Ok(number) => Some(number),
        Err(why) if *why.kind() == IntErrorKind::PosOverflow => Some(i64::MAX),
        Err(why) if *why.kind() == IntErrorKind::NegOverflow => Some(-i64::MAX),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meaning_of_headers() {
        type Said = (bool, Option<u64>, u64, bool, bool, Runs);
        let nothing: Said = (false, None, 0, false, false, Runs::Endless);
        let table: [(&str, &str, Said); 13] = [
            ("none", "", nothing),
            (
                "as the released client writes them",
                "reply-requested,guarantee,retry-count:3,timeout:20",
                (true, Some(20), 3, true, false, Runs::Endless),
            ),
            (
                "as it writes schedules",
                "nohaste,run_count:5",
                (false, None, 0, false, true, Runs::Count(5)),
            ),
            (
                "blanks",
                " nohaste , timeout : 7 ,, ",
                (false, Some(7), 0, false, true, Runs::Endless),
            ),
            (
                "a reply is found anywhere",
                "no-reply-requested-at-all",
                (true, None, 0, false, false, Runs::Endless),
            ),
            (
                "other words that only begin so",
                "guaranteed,nohastes,timeouts:3",
                nothing,
            ),
            ("0 is nothing", "timeout:0", nothing),
            (
                "less than nothing",
                "timeout:-1,retry-count:-2,run_count:-1",
                nothing,
            ),
            (
                "no numbers",
                "timeout:,retry-count:x,run_count:1.5,timeout",
                nothing,
            ),
            (
                "the first readable one",
                "timeout:x,timeout:2,timeout:3",
                (false, Some(2), 0, false, false, Runs::Endless),
            ),
            (
                "too large",
                "retry-count:99999999999999999999",
                (false, None, i64::MAX as u64, false, false, Runs::Endless),
            ),
            (
                "never to run is a number",
                "run_count:0",
                (false, None, 0, false, false, Runs::Count(0)),
            ),
            (
                "a sign",
                "timeout:+4,retry-count:-",
                (false, Some(4), 0, false, false, Runs::Endless),
            ),
        ];
        for (name, text, said) in table {
            let headers = Headers(text.as_bytes());
            let found = (
                headers.reply_requested(),
                headers.timeout_secs(),
                headers.retry_count(),
                headers.guarantee(),
                headers.nohaste(),
                headers.run_count(),
            );
            assert_eq!(found, said, "{name}");
        }
    }

    #[test]
    fn the_clients_own_bytes_are_kept() {
        let table = [
            ("", "reply-requested"),
            ("reply-requested", "reply-requested"),
            ("timeout:3", "timeout:3,reply-requested"),
            (" odd ,,", " odd ,,,reply-requested"),
            ("x,reply-requested,y", "x,reply-requested,y"),
        ];
        for (text, extended) in table {
            let headers = Headers(text.as_bytes());
            assert_eq!(
                headers.with_reply_requested(),
                extended.as_bytes(),
                "{text}"
            );
        }
        assert_eq!(
            Headers(b"\xff:\x00").with_reply_requested(),
            &b"\xff:\x00,reply-requested"[..]
        );
    }
}
