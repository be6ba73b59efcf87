//! Limits warnings that a peer, or a flood of jobs, could cause without end: at most one line a second for each reason,
//! with a count of the rest. Use `warn_limited!`.
//!
//! ```text
//! warn_limited!("wrong password", protocol, peer, "a client gave a wrong password");
//! warn_limited!(format!("refused: {why}"), times = 38, queue, "jobs were refused");
//! ```
//!
//! The first argument is the reason; lines of one reason share a second. The rest are arguments of `tracing::warn!`.
//! Text that comes from a peer goes through [`shown`]. The first line of a reason is logged at once. Further ones
//! within a second are counted. The next line after that second has the count (`more_like_it`), or [`flush`] logs it,
//! which the daemon calls every second.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::shared::lock;

/// How long after a line further lines of its reason are suppressed.
const WINDOW: Duration = Duration::from_secs(1);

/// How many reasons are limited separately. Further ones share one limit.
const REASONS_MAX: usize = 256;
const OTHER_REASONS: Cow<'static, str> = Cow::Borrowed("other reasons");

/// Maximum length of a logged text.
const SHOWN_CHARS_MAX: usize = 100;

/// Logs a warning, or counts it if there was a line of this reason within the last second. See
/// [`self`].
#[macro_export]
macro_rules! warn_limited {
    ($reason:expr, times = $times:expr, $($line:tt)+) => {
        if let Some(line) = $crate::limited::admit($reason, $times) {
            ::tracing::warn!(more_like_it = line.more, $($line)+);
        }
    };
    ($reason:expr, $($line:tt)+) => { $crate::warn_limited!($reason, times = 1, $($line)+) };
}

/// Permission to log a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// How often the same has happened since the last line; `None` if it has not.
    pub more: Option<u64>,
}

/// Whether a line of this reason may be logged now, for something that happened `times` times. If
/// not, counts it.
pub fn admit(reason: impl Into<Cow<'static, str>>, times: u64) -> Option<Line> {
    with_limiter(|limiter| limiter.admit(Instant::now(), reason.into(), times))
}

/// Logs the counts of all windows that have ended.
pub fn flush() {
    log(with_limiter(|limiter| limiter.flush(Instant::now())));
}

/// Logs all counts when the daemon stops.
pub fn finish() {
    log(with_limiter(Limiter::finish));
}

fn log(due: Vec<(Cow<'static, str>, u64)>) {
    for (reason, more) in due {
        tracing::warn!(%reason, more_like_it = more, "… and {more} more like it");
    }
}

/// There is one limiter per process, like the log.
fn with_limiter<T>(run: impl FnOnce(&mut Limiter) -> T) -> T {
    static LIMITER: Mutex<Limiter> = Mutex::new(Limiter::new());
    #[cfg(any(test, feature = "testing"))]
    if own::has_one() {
        return own::with(run);
    }
    run(&mut lock(&LIMITER))
}

/// A limiter for this thread alone, because unit tests share a process and must not suppress each
/// other's lines.
#[cfg(any(test, feature = "testing"))]
pub(crate) mod own {
    use std::cell::RefCell;

    use super::Limiter;

    std::thread_local! {
        static LIMITER: RefCell<Option<Limiter>> = const { RefCell::new(None) };
    }

    pub(crate) fn begin() {
        LIMITER.with_borrow_mut(|own| _ = own.get_or_insert_with(Limiter::new));
    }

    pub(super) fn has_one() -> bool {
        LIMITER.with_borrow(Option::is_some)
    }

    pub(super) fn with<T>(run: impl FnOnce(&mut Limiter) -> T) -> T {
        LIMITER.with_borrow_mut(|own| run(own.get_or_insert_with(Limiter::new)))
    }
}

/// Text from a peer made safe for the log: without control characters, and limited in length.
pub fn shown(bytes: &[u8]) -> String {
    // A character has at most four bytes.
    let head = bytes.get(..SHOWN_CHARS_MAX * 4).unwrap_or(bytes);
    let text = String::from_utf8_lossy(head);
    let mut shown: String = text
        .chars()
        .take(SHOWN_CHARS_MAX)
        .map(|char| if char.is_control() { '\u{fffd}' } else { char })
        .collect();
    if text.chars().nth(SHOWN_CHARS_MAX).is_some() || head.len() < bytes.len() {
        shown.push('…');
    }
    shown
}

#[derive(Debug)]
struct Limiter {
    windows: BTreeMap<Cow<'static, str>, Window>,
}

/// The second after a line.
#[derive(Debug)]
struct Window {
    ends: Instant,
    held_back: u64,
}

impl Limiter {
    const fn new() -> Self {
        Self {
            windows: BTreeMap::new(),
        }
    }

    fn admit(&mut self, now: Instant, reason: Cow<'static, str>, times: u64) -> Option<Line> {
        let is_new = !self.windows.contains_key(&reason);
        let reason = if is_new && self.windows.len() >= REASONS_MAX {
            OTHER_REASONS
        } else {
            reason
        };
        let window = self.windows.entry(reason).or_insert(Window {
            ends: now,
            held_back: 0,
        });
        if now < window.ends {
            window.held_back = window.held_back.saturating_add(times);
            return None;
        }
        let more = window.held_back.saturating_add(times.saturating_sub(1));
        window.ends = now + WINDOW;
        window.held_back = 0;
        Some(Line {
            more: (more > 0).then_some(more),
        })
    }

    /// Ends windows that are over. Returns their reasons with the counts; each is logged and starts
    /// a new window.
    fn flush(&mut self, now: Instant) -> Vec<(Cow<'static, str>, u64)> {
        self.windows
            .retain(|_, window| window.ends > now || window.held_back > 0);
        let over = self
            .windows
            .iter_mut()
            .filter(|(_, window)| window.ends <= now);
        let tell = over.map(|(reason, window)| {
            window.ends = now + WINDOW;
            (reason.clone(), std::mem::take(&mut window.held_back))
        });
        tell.collect()
    }

    fn finish(&mut self) -> Vec<(Cow<'static, str>, u64)> {
        let windows = std::mem::take(&mut self.windows).into_iter();
        windows
            .filter(|(_, window)| window.held_back > 0)
            .map(|(reason, window)| (reason, window.held_back))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Vec<(Cow<'static, str>, u64)> = Vec::new();

    fn line(more: u64) -> Option<Line> {
        Some(Line {
            more: (more > 0).then_some(more),
        })
    }

    #[test]
    fn one_line_a_second_for_each_reason_and_then_the_count() {
        let (mut limiter, start) = (Limiter::new(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(limiter.admit(at(0), "a".into(), 1), line(0));
        assert_eq!(
            limiter.admit(at(1), "b".into(), 1),
            line(0),
            "another reason has its own second"
        );
        for ms in 1..=37 {
            assert_eq!(limiter.admit(at(ms), "a".into(), 1), None);
        }
        assert_eq!(limiter.admit(at(999), "a".into(), 1), None);
        assert_eq!(
            limiter.admit(at(1_000), "a".into(), 1),
            line(38),
            "the next line has the count"
        );
        assert_eq!(limiter.admit(at(1_999), "a".into(), 1), None);
        assert_eq!(
            limiter.admit(at(2_000), "a".into(), 1),
            line(1),
            "counted anew"
        );
    }

    #[test]
    fn many_at_once_are_one_line() {
        let (mut limiter, now) = (Limiter::new(), Instant::now());
        assert_eq!(limiter.admit(now, "a".into(), 38), line(37));
        assert_eq!(limiter.admit(now, "a".into(), 5), None);
        assert_eq!(limiter.admit(now + WINDOW, "a".into(), 2), line(6));
        assert_eq!(limiter.admit(now, "a".into(), u64::MAX), None);
        assert_eq!(
            limiter.admit(now, "a".into(), u64::MAX),
            None,
            "counts do not overflow"
        );
    }

    #[test]
    fn flush_logs_the_count_when_the_second_is_over() {
        let (mut limiter, start) = (Limiter::new(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        limiter.admit(at(0), "a".into(), 1);
        limiter.admit(at(0), "b".into(), 1);
        limiter.admit(at(10), "a".into(), 3);
        assert_eq!(limiter.flush(at(999)), NOTHING);
        assert_eq!(limiter.flush(at(1_000)), [("a".into(), 3)]);
        assert_eq!(
            limiter.windows.len(),
            1,
            "a reason without lines for a second is forgotten"
        );
        assert_eq!(
            limiter.admit(at(1_500), "a".into(), 1),
            None,
            "the count was a line too"
        );
        assert_eq!(limiter.flush(at(2_000)), [("a".into(), 1)]);
        assert_eq!(limiter.flush(at(3_000)), NOTHING);
        assert!(limiter.windows.is_empty());
        assert_eq!(limiter.admit(at(3_000), "a".into(), 1), line(0));
    }

    #[test]
    fn flush_leaves_reasons_within_their_second() {
        let (mut limiter, now) = (Limiter::new(), Instant::now());
        limiter.admit(now, "a".into(), 1);
        assert_eq!(limiter.flush(now), NOTHING);
        assert_eq!(limiter.admit(now, "a".into(), 1), None);
    }

    #[test]
    fn finish_logs_all_counts() {
        let (mut limiter, now) = (Limiter::new(), Instant::now());
        limiter.admit(now, "a".into(), 1);
        limiter.admit(now, "b".into(), 2);
        limiter.admit(now, "b".into(), 2);
        assert_eq!(limiter.finish(), [("b".into(), 2)]);
        assert!(limiter.windows.is_empty());
    }

    #[test]
    fn reasons_beyond_the_limit_share_one() {
        let (mut limiter, now) = (Limiter::new(), Instant::now());
        for number in 0..REASONS_MAX {
            assert_eq!(limiter.admit(now, number.to_string().into(), 1), line(0));
        }
        assert_eq!(limiter.admit(now, "one more".into(), 1), line(0));
        assert_eq!(limiter.admit(now, "yet another".into(), 1), None);
        assert_eq!(
            limiter.admit(now, "7".into(), 1),
            None,
            "known reasons keep their own"
        );
        assert_eq!(limiter.windows.len(), REASONS_MAX + 1);
        assert_eq!(
            limiter.flush(now + WINDOW),
            [("7".into(), 1), (OTHER_REASONS, 1)]
        );
    }

    #[test]
    fn a_peers_bytes_cannot_forge_a_line() {
        let table: [(&[u8], &str); 4] = [
            (b"mail", "mail"),
            (b"a\nWARN forged\x1b[2J", "a\u{fffd}WARN forged\u{fffd}[2J"),
            (b"\xff\xc3\xa9", "\u{fffd}é"),
            (b"", ""),
        ];
        for (bytes, expected) in table {
            assert_eq!(shown(bytes), expected);
        }
        assert_eq!(shown(&[b'x'; SHOWN_CHARS_MAX]), "x".repeat(SHOWN_CHARS_MAX));
        for bytes in [SHOWN_CHARS_MAX + 1, 1 << 20] {
            assert_eq!(
                shown(&vec![b'x'; bytes]),
                format!("{}…", "x".repeat(SHOWN_CHARS_MAX))
            );
        }
        let wide = "é".repeat(SHOWN_CHARS_MAX);
        assert_eq!(shown(wide.as_bytes()), wide);
        let widest = "\u{1f600}".repeat(SHOWN_CHARS_MAX);
        assert_eq!(shown(widest.as_bytes()), widest);
        assert_eq!(shown(format!("{widest}x").as_bytes()), format!("{widest}…"));
    }
}
