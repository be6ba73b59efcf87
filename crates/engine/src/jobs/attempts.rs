//! The past deliveries of a job that did not succeed: the most recent ones, each cut to a few hundred bytes.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::extra::Failure;
use crate::ids::Timestamp;

/// A delivery that did not succeed. Times are by the wall clock.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Attempt {
    /// Which delivery of the job it was, from 1.
    pub number: u32,
    /// The worker's name, else the address; empty if neither is known.
    pub worker: Box<[u8]>,
    /// When the worker got the job.
    pub began_at: Timestamp,
    /// When the lease ended.
    pub ended_at: Timestamp,
    /// The outcome of the delivery.
    pub end: AttemptEnd,
    /// The reported error. `None` for the last attempt while the job's [`Failure`] is that error.
    pub error: Option<Arc<AttemptError>>,
}

/// The outcome of an unsuccessful delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum AttemptEnd {
    /// The worker reported a failure.
    Failed,
    /// The worker disappeared: the connection closed, the heartbeat stopped, or the worker did not return
    /// after a restart.
    Lost,
    /// The lease ran out.
    TimedOut,
    /// The worker gave the job back.
    Released,
    /// An operator, or another client, took the job back.
    TakenBack,
    /// The job has no form in the worker's protocol.
    Unconvertible,
}

impl AttemptEnd {
    /// Its name, for people and in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Lost => "lost",
            Self::TimedOut => "timed out",
            Self::Released => "released",
            Self::TakenBack => "taken back",
            Self::Unconvertible => "unconvertible",
        }
    }
}

/// An error, cut.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct AttemptError {
    /// The class.
    pub kind: Box<[u8]>,
    /// The message.
    pub message: Box<[u8]>,
    /// The first lines of the stack trace, separated by line feeds. Only the most recent attempts have it.
    pub backtrace: Box<[u8]>,
}

/// The last attempts of a job that did not succeed, oldest first. Equal errors that follow each other share memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attempts(Vec<Attempt>);

impl Attempts {
    /// The number of attempts that are stored.
    pub const MAX: usize = 25;
    /// The number of most recent attempts with stored stack traces.
    const BACKTRACES_MAX: usize = 8;
    /// Bytes of a worker's name, and of an error's class.
    const NAME_BYTES_MAX: usize = 64;
    const MESSAGE_BYTES_MAX: usize = 160;
    const BACKTRACE_BYTES_MAX: usize = 512;

    /// Oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Attempt> {
        self.0.iter()
    }

    /// Adds an attempt, with long fields cut. The oldest is dropped if there are [`Attempts::MAX`].
    pub fn push(&mut self, attempt: Attempt) {
        let worker = cut(&attempt.worker, Self::NAME_BYTES_MAX);
        let error = attempt.error.as_deref();
        let error =
            error.map(|error| AttemptError::of([&error.kind, &error.message, &error.backtrace]));
        if self.0.len() >= Self::MAX {
            self.0.remove(0);
        }
        self.0.push(Attempt {
            worker,
            error: None,
            ..attempt
        });
        self.set_error(self.0.len() - 1, error);
        let old = self.0.len().checked_sub(Self::BACKTRACES_MAX + 1);
        if let Some((old, error)) =
            old.and_then(|old| Some((old, self.0.get(old)?.error.as_deref()?)))
        {
            self.set_error(
                old,
                Some(AttemptError {
                    backtrace: Box::default(),
                    ..error.clone()
                }),
            );
        }
    }

    /// Copies the job's failure into the last attempt, if that attempt ended with the failure.
    pub(crate) fn explain(&mut self, failure: &Failure) {
        use AttemptEnd::{Failed, TimedOut, Unconvertible};
        if let Some(last) = self.0.last()
            && last.error.is_none()
            && last.ended_at == failure.at
            && matches!(last.end, Failed | TimedOut | Unconvertible)
        {
            self.set_error(
                self.0.len() - 1,
                Some(AttemptError::of([
                    &failure.kind,
                    &failure.message,
                    &first_lines(failure),
                ])),
            );
        }
    }

    fn set_error(&mut self, at: usize, error: Option<AttemptError>) {
        let before = at
            .checked_sub(1)
            .and_then(|before| self.0.get(before)?.error.clone());
        let same = before.filter(|before| error.as_ref() == Some(before));
        if let Some(attempt) = self.0.get_mut(at) {
            attempt.error = same.or_else(|| error.map(Arc::new));
        }
    }

    /// The bytes of the attempts towards memory limits.
    pub(super) fn weight_bytes(&self) -> usize {
        const FIXED: usize = 64;
        let (mut bytes, mut before) = (0, None);
        for Attempt { worker, error, .. } in &self.0 {
            let error = error.as_deref();
            let own = error.filter(|_| error != before);
            let texts = own.map_or(0, |own| {
                FIXED + own.kind.len() + own.message.len() + own.backtrace.len()
            });
            (bytes, before) = (bytes + FIXED + worker.len() + texts, error);
        }
        bytes
    }
}

impl AttemptError {
    fn of([kind, message, backtrace]: [&[u8]; 3]) -> Self {
        let (message, backtrace) = (
            cut(message, Attempts::MESSAGE_BYTES_MAX),
            cut(backtrace, Attempts::BACKTRACE_BYTES_MAX),
        );
        Self {
            kind: cut(kind, Attempts::NAME_BYTES_MAX),
            message,
            backtrace,
        }
    }
}

/// The first bytes of a text, with `…` behind them if there were more. No character of UTF-8 is split.
fn cut(text: &[u8], bytes_max: usize) -> Box<[u8]> {
    const MORE: &[u8] = "…".as_bytes();
    if text.len() <= bytes_max {
        return text.into();
    }
    let longest = bytes_max.saturating_sub(MORE.len());
    let is_begin = |at: &usize| text.get(*at).is_none_or(|byte| byte & 0xc0 != 0x80);
    let end = (longest.saturating_sub(3)..=longest)
        .rev()
        .find(is_begin)
        .unwrap_or(longest);
    [text.get(..end).unwrap_or_default(), MORE].concat().into()
}

/// The first lines of a stack trace, slightly more than is stored.
fn first_lines(failure: &Failure) -> Vec<u8> {
    const BYTES_MAX: usize = Attempts::BACKTRACE_BYTES_MAX;
    let mut text = Vec::new();
    for line in &failure.backtrace {
        text.extend_from_slice(line.get(..=BYTES_MAX).unwrap_or(line));
        if text.len() > BYTES_MAX {
            return text;
        }
        text.push(b'\n');
    }
    text.pop();
    text
}

/// The encoding of an attempt. Most errors of a job are equal, so an error that equals that of the previous
/// attempt is not repeated.
#[derive(Deserialize, Serialize)]
struct Written<W, E> {
    number: u32,
    worker: W,
    began_at: Timestamp,
    /// Signed: the wall clock may have been set meanwhile.
    took_ms: i64,
    end: AttemptEnd,
    error: WrittenError<E>,
}

#[derive(Deserialize, Serialize)]
enum WrittenError<E> {
    None,
    SameAsBefore,
    New(E),
}

impl Serialize for Attempts {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut before = None;
        to.collect_seq(self.0.iter().map(|attempt| {
            let error = attempt.error.as_deref();
            let written = match error {
                None => WrittenError::None,
                Some(_) if error == before => WrittenError::SameAsBefore,
                Some(error) => WrittenError::New(error),
            };
            before = error;
            Written {
                number: attempt.number,
                worker: &attempt.worker,
                began_at: attempt.began_at,
                took_ms: attempt
                    .ended_at
                    .0
                    .wrapping_sub(attempt.began_at.0)
                    .cast_signed(),
                end: attempt.end,
                error: written,
            }
        }))
    }
}

impl<'de> Deserialize<'de> for Attempts {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let written: Vec<Written<Box<[u8]>, AttemptError>> = Vec::deserialize(from)?;
        let mut attempts = Self::default();
        let mut before: Option<Arc<AttemptError>> = None;
        for attempt in written {
            let error = match attempt.error {
                WrittenError::None => None,
                WrittenError::SameAsBefore => before.take(),
                WrittenError::New(error) => Some(Arc::new(error)),
            };
            before.clone_from(&error);
            attempts.push(Attempt {
                number: attempt.number,
                worker: attempt.worker,
                began_at: attempt.began_at,
                ended_at: Timestamp(attempt.began_at.0.wrapping_add_signed(attempt.took_ms)),
                end: attempt.end,
                error,
            });
        }
        Ok(attempts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(number: u32, error: Option<AttemptError>) -> Attempt {
        let (began_at, ended_at) = (Timestamp(1), Timestamp(number.into()));
        Attempt {
            number,
            worker: b"w".as_slice().into(),
            began_at,
            ended_at,
            end: AttemptEnd::Failed,
            error: error.map(Arc::new),
        }
    }

    fn error(message: &str, backtrace: &str) -> AttemptError {
        AttemptError {
            kind: Box::default(),
            message: message.as_bytes().into(),
            backtrace: backtrace.as_bytes().into(),
        }
    }

    #[test]
    fn the_last_attempts_are_kept_and_the_last_of_these_keep_their_backtraces() {
        let mut attempts = Attempts::default();
        (1..=40).for_each(|number| {
            attempts.push(attempt(number, Some(error(&number.to_string(), "line"))))
        });
        let numbers: Vec<u32> = attempts.iter().map(|attempt| attempt.number).collect();
        assert_eq!(numbers, (16..=40).collect::<Vec<_>>());
        let traced = |attempt: &&Attempt| !attempt.error.as_deref().unwrap().backtrace.is_empty();
        let traced: Vec<u32> = attempts
            .iter()
            .filter(traced)
            .map(|attempt| attempt.number)
            .collect();
        assert_eq!(traced, (33..=40).collect::<Vec<_>>());
    }

    #[test]
    fn attempts_stay_below_15_kib() {
        let mut attempts = Attempts::default();
        for number in 1..=40 {
            let long = |text: u8| vec![text; 10_000].into_boxed_slice();
            let letter = if number % 2 == 0 { b'a' } else { b'b' };
            let long = AttemptError {
                kind: long(letter),
                message: long(b'm'),
                backtrace: long(b'\n'),
            };
            attempts.push(Attempt {
                worker: vec![b'w'; 10_000].into(),
                ..attempt(number, Some(long))
            });
            assert!(
                attempts.weight_bytes() < 15 << 10,
                "{}",
                attempts.weight_bytes()
            );
        }
    }

    #[test]
    fn equal_errors_that_follow_each_other_share_memory() {
        let mut attempts = Attempts::default();
        (1..=12)
            .for_each(|number| attempts.push(attempt(number, Some(error("no such file", "line")))));
        let errors: Vec<_> = attempts
            .iter()
            .map(|attempt| attempt.error.clone().unwrap())
            .collect();
        let shared: Vec<bool> = errors
            .windows(2)
            .map(|pair| Arc::ptr_eq(&pair[0], &pair[1]))
            .collect();
        // The backtraces of the first four were dropped.
        assert_eq!(
            shared,
            [
                true, true, true, false, true, true, true, true, true, true, true
            ]
        );
        let one = |text: &str| 64 + "no such file".len() + text.len();
        assert_eq!(attempts.weight_bytes(), 12 * 65 + one("") + one("line"));
        attempts.push(attempt(13, None));
        attempts.push(attempt(14, Some(error("no such file", "line"))));
        let errors: Vec<_> = attempts
            .iter()
            .map(|attempt| attempt.error.clone())
            .collect();
        assert!(errors[12].is_none() && errors[11] == errors[13]);
    }

    #[test]
    fn a_failure_explains_the_attempt_that_ended_with_it() {
        let failure = Failure {
            at: Timestamp(7),
            message: "late".into(),
            ..Failure::default()
        };
        for (ended_at, end, is_explained) in [
            (7, AttemptEnd::Failed, true),
            (7, AttemptEnd::TimedOut, true),
            (7, AttemptEnd::Unconvertible, true),
            (7, AttemptEnd::Released, false),
            (7, AttemptEnd::Lost, false),
            (8, AttemptEnd::Failed, false),
        ] {
            let mut attempts = Attempts::default();
            attempts.push(Attempt {
                ended_at: Timestamp(ended_at),
                end,
                ..attempt(1, None)
            });
            attempts.explain(&failure);
            let message = |attempts: &Attempts| {
                let error = attempts.iter().next().unwrap().error.clone();
                error.map(|error| String::from_utf8(error.message.to_vec()).unwrap())
            };
            assert_eq!(
                message(&attempts),
                is_explained.then(|| "late".to_owned()),
                "{end:?}"
            );
            // Only the first error is used.
            attempts.explain(&Failure {
                message: "other".into(),
                ..failure.clone()
            });
            assert_eq!(
                message(&attempts).as_deref() == Some("late"),
                is_explained,
                "{end:?}"
            );
        }
    }

    #[test]
    fn texts_are_cut_between_characters() {
        let table = [
            ("abc", 3, "abc"),
            ("abcdefg", 6, "abc…"),
            ("abcéfghi", 8, "abcé…"),
            ("abcéfghi", 7, "abc…"),
            ("éé", 3, "…"),
        ];
        for (text, bytes_max, expected) in table {
            assert_eq!(
                String::from_utf8(cut(text.as_bytes(), bytes_max).into()).unwrap(),
                expected,
                "{text}"
            );
        }
        // Bytes that are no text are cut anywhere.
        assert_eq!(
            *cut(&[0x80; 20], 10),
            [&[0x80; 7][..], "…".as_bytes()].concat()
        );
        let lines = |lines: &[&'static [u8]]| {
            let backtrace = lines
                .iter()
                .map(|line| bytes::Bytes::from_static(line))
                .collect();
            first_lines(&Failure {
                backtrace,
                ..Failure::default()
            })
        };
        assert_eq!(lines(&[b"one", b"", b"three"]), b"one\n\nthree");
        assert_eq!(lines(&[]), b"");
        // Only this much is read.
        assert_eq!(
            lines(&[b"one", &[b'x'; 600], b"three"]),
            [&b"one\n"[..], &[b'x'; 513]].concat()
        );
    }
}
