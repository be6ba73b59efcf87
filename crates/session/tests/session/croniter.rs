//! EventMQ's cron expressions against recorded answers of croniter to the same expressions;
//! `interop_croniter` asks croniter anew.

use crate::played::{Played, play};

#[test]
fn expressions_come_due_at_the_times_croniter_gives() {
    let recorded = include_str!("asked.txt");
    assert_eq!(
        play(recorded),
        Played {
            due: 1_561,
            overlooked: 2,
            refused: 423,
            seconds: 16
        }
    );
}
