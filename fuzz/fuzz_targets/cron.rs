//! Any text as a cron expression, in both dialects and in Gearman's five fields: it is read or refused, and what was read comes
//! due when it says, also when it is written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use windlass_engine::{Cron, Timestamp};
use windlass_session::cron::{self, Week, croniter};

/// Moments to go on from: the beginning, a leap day, a year's end, and the last there is.
const MOMENTS: [u64; 5] = [0, 951_826_000_000, 1_798_761_599_999, 4_102_444_800_000, u64::MAX];

fuzz_target!(|bytes: &[u8]| {
    if let Ok(cron) = cron::parse(bytes) {
        falls_due(&cron);
        let written = cron.to_string();
        let read = cron::parse(written.as_bytes()).unwrap_or_else(|why| panic!("{written}: {why}"));
        assert_eq!(times(&read), times(&cron), "{written}");
    }
    if let Ok(cron) = croniter::parse(bytes) {
        falls_due(&cron);
    }
    let mut fields = bytes.split(|byte| *byte == 0);
    let fields = [(); 5].map(|()| fields.next().unwrap_or_default());
    for week in [Week::FromSunday, Week::FromMonday] {
        if let Ok(cron) = cron::compile(fields, week) {
            falls_due(&cron);
        }
    }
});

fn times(cron: &Cron) -> [Timestamp; MOMENTS.len()] {
    MOMENTS.map(|moment| cron.next_after(Timestamp(moment)))
}

fn falls_due(cron: &Cron) {
    for (moment, next) in MOMENTS.into_iter().zip(times(cron)) {
        assert!(next > Timestamp(moment) || next == Timestamp::NEVER, "{cron} after {moment}: {next:?}");
        assert!(next == Timestamp::NEVER || cron.can_match(), "{cron} comes due and cannot");
    }
}
