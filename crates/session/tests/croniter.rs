//! Cron expressions of EventMQ against what croniter said of the same ones. It was asked once, and what it said recorded;
//! `tests/interop_croniter.rs` asks it anew.
#![allow(clippy::panic, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "croniter/played.rs"]
mod played;

use played::{Played, play};

#[test]
fn expressions_come_due_when_croniter_says() {
    let recorded = include_str!("croniter/asked.txt");
    assert_eq!(play(recorded), Played { due: 1_561, overlooked: 2, refused: 423, seconds: 16 });
}
