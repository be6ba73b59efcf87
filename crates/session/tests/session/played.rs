//! Compares the output of `ask.py` with our reading of the same expressions.

#![allow(unreachable_pub, reason = "two tests have it")]

use windlass_engine::Timestamp;
use windlass_session::cron::croniter;

/// croniter's answers, counted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Played {
    /// Expressions that come due at the same times.
    pub due: usize,
    /// Times that croniter gives only when asked from a later start.
    pub overlooked: usize,
    /// Expressions that croniter refuses; ours is not compared.
    pub refused: usize,
    /// Expressions with seconds other than 0, which ours refuses.
    pub seconds: usize,
}

/// Compares line by line.
pub fn play(lines: &str) -> Played {
    let mut played = Played::default();
    for line in lines.lines().filter(|line| !line.starts_with("# ")) {
        let [text, start, times] = line
            .split('\t')
            .collect::<Vec<_>>()
            .try_into()
            .expect("three columns");
        let ours = croniter::parse(text.as_bytes());
        if times == "refused" {
            played.refused += 1;
        } else if ours
            .as_ref()
            .is_err_and(|error| error.to_string().ends_with("seconds, can only be 0"))
        {
            assert_ne!(
                text.split_whitespace()
                    .nth(5)
                    .map(|second| second.trim_matches('0')),
                Some(""),
                "{line}"
            );
            played.seconds += 1;
        } else {
            let cron = ours.unwrap_or_else(|error| panic!("{error}: {line}"));
            let mut now = Timestamp(start.parse::<u64>().expect("a number") * 1_000);
            let mut next = || {
                now = cron.next_after(now);
                (now.0 / 1_000).to_string()
            };
            let found = [next(), next(), next()].join(" ");
            assert_eq!(found, times.replace('+', ""), "{cron}: {line}");
            played.due += 1;
            played.overlooked += usize::from(times.contains('+'));
        }
    }
    played
}
