//! An orderly change of the store's holder, in the row of its lease: the holder offers the store while it still serves,
//! and a daemon that stands by reads the table meanwhile.
//!
//! The stages only save time. The lease alone decides which daemon has the store.

use std::thread;
use std::time::{Duration, Instant};

use windlass_store::Error;

use crate::link::Link;

/// How often the holder looks for an answer.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long a holder waits for a daemon that stands by to answer.
const ANSWER_MAX: Duration = Duration::from_millis(500);
/// How long it waits for that daemon to read the table.
const READ_MAX: Duration = Duration::from_secs(15);

/// How far a change of the holder is. A new lease begins with `None`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(i16)]
pub(crate) enum Stage {
    /// The holder keeps the store.
    None = 0,
    /// It will give the store back soon.
    Offered = 1,
    /// A daemon that stands by reads the table.
    Reading = 2,
    /// It has read the table.
    Ready = 3,
}

impl Stage {
    /// The stage in the lease's row. A newer program's stages count as the last one.
    pub(crate) const fn of(number: i16) -> Self {
        match number {
            i16::MIN..=0 => Self::None,
            1 => Self::Offered,
            2 => Self::Reading,
            3..=i16::MAX => Self::Ready,
        }
    }
}

/// The holder offers the store, and waits until a daemon that stands by has read the table, or `is_over`.
pub(crate) fn offer(link: &Link, epoch: i64, is_over: impl Fn() -> bool) -> Result<(), Error> {
    const DOING: &str = "offering";
    let set = format!("UPDATE {} SET hand_over = $2 WHERE id = 1 AND epoch = $1", link.lease());
    link.execute(DOING, &set, &[&epoch, &(Stage::Offered as i16)])?;
    let begun = Instant::now();
    let look = format!("SELECT hand_over FROM {} WHERE id = 1", link.lease());
    while !is_over() {
        let rows = link.query(DOING, &look, &[])?;
        let most = match rows.first().map_or(Stage::None, |row| Stage::of(row.get(0))) {
            Stage::None | Stage::Offered => ANSWER_MAX,
            Stage::Reading => READ_MAX,
            Stage::Ready => break,
        };
        if begun.elapsed() > most {
            break;
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Answers an offer. An offer that is no longer there stays so.
pub(crate) fn answer(link: &Link, stage: Stage) -> Result<(), Error> {
    let set = format!("UPDATE {} SET hand_over = $1 WHERE id = 1 AND hand_over BETWEEN 1 AND $1", link.lease());
    link.execute("answering an offer of", &set, &[&(stage as i16)]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_what_its_number_was() {
        for stage in [Stage::None, Stage::Offered, Stage::Reading, Stage::Ready] {
            assert_eq!(Stage::of(stage as i16), stage);
        }
        assert_eq!((Stage::of(-1), Stage::of(9)), (Stage::None, Stage::Ready));
    }
}
