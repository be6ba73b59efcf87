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
/// How long it waits for that daemon while the reading does not go on.
const STUCK_MAX: Duration = Duration::from_secs(15);

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

/// The holder offers the store, and waits until a daemon that stands by has read the table, or `is_over`. It waits for
/// as long as the reading goes on: until then it serves.
pub(crate) fn offer(link: &Link, epoch: i64, is_over: impl Fn() -> bool) -> Result<(), Error> {
    const DOING: &str = "offering";
    let set = format!(
        "UPDATE {} SET hand_over = $2, progress = 0 WHERE id = 1 AND epoch = $1",
        link.lease()
    );
    link.execute(DOING, &set, &[&epoch, &(Stage::Offered as i16)])?;
    let mut patience = Patience::new(Instant::now());
    let look = format!(
        "SELECT hand_over, progress FROM {} WHERE id = 1",
        link.lease()
    );
    while !is_over() {
        let rows = link.query(DOING, &look, &[])?;
        let (stage, progress) = rows
            .first()
            .map_or((Stage::None, 0), |row| (Stage::of(row.get(0)), row.get(1)));
        if patience.is_over(stage, progress, Instant::now()) {
            break;
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// What the holder has seen of the daemon that reads, and since when.
struct Patience {
    seen: (Stage, i64),
    since: Instant,
}

impl Patience {
    const fn new(since: Instant) -> Self {
        Self {
            seen: (Stage::Offered, 0),
            since,
        }
    }

    /// Whether the holder waits no longer. An earlier program answers with its stage alone.
    fn is_over(&mut self, stage: Stage, progress: i64, now: Instant) -> bool {
        if (stage, progress) != self.seen {
            (self.seen, self.since) = ((stage, progress), now);
        }
        let most = match stage {
            Stage::None | Stage::Offered => ANSWER_MAX,
            Stage::Reading => STUCK_MAX,
            Stage::Ready => return true,
        };
        now.saturating_duration_since(self.since) > most
    }
}

/// Answers an offer, with how far the reading is. An offer that is no longer there stays so.
pub(crate) fn answer(link: &Link, stage: Stage, progress: i64) -> Result<(), Error> {
    let set = format!(
        "UPDATE {} SET hand_over = $1, progress = $2 WHERE id = 1 AND hand_over BETWEEN 1 AND $1",
        link.lease()
    );
    link.execute("answering an offer of", &set, &[&(stage as i16), &progress])
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A large store takes minutes to read, and its holder serves meanwhile.
    #[test]
    fn a_holder_waits_for_as_long_as_the_reading_goes_on() {
        let begun = Instant::now();
        let at = |seconds: u64| begun + Duration::from_secs(seconds);
        let mut patience = Patience::new(begun);
        let goes_on = (0..60).all(|step| {
            !patience.is_over(Stage::Reading, step, at(10 * u64::try_from(step).unwrap()))
        });
        assert!(goes_on);
        assert!(
            !patience.is_over(Stage::Reading, 59, at(605))
                && patience.is_over(Stage::Reading, 59, at(606))
        );
        assert!(
            patience.is_over(Stage::Ready, 60, at(606)),
            "it has read everything"
        );
        let mut unanswered = Patience::new(begun);
        assert!(
            !unanswered.is_over(Stage::Offered, 0, begun)
                && unanswered.is_over(Stage::Offered, 0, at(1))
        );
    }

    #[test]
    fn a_stage_is_what_its_number_was() {
        for stage in [Stage::None, Stage::Offered, Stage::Reading, Stage::Ready] {
            assert_eq!(Stage::of(stage as i16), stage);
        }
        assert_eq!((Stage::of(-1), Stage::of(9)), (Stage::None, Stage::Ready));
    }
}
