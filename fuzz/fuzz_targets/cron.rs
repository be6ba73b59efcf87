//! Any text as a cron expression, in all dialects, including time zones, and in Gearman's five fields. It is parsed or
//! refused. A parsed expression comes due at the announced time, also after it was written and parsed again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use windlass_engine::{Cron, Recurrence, Timestamp};
use windlass_session::cron::{self, CronError, Week, croniter};

/// Start times: the beginning, a leap day, a year's end, and the last time possible.
const MOMENTS: [u64; 5] = [
    0,
    951_826_000_000,
    1_798_761_599_999,
    4_102_444_800_000,
    u64::MAX,
];

/// More than the greatest difference of a local clock from UTC.
const DAYS_MS: u64 = 2 * 86_400_000;

/// The rules of time zones end before the range of timestamps: in the year 9000.
const FAR: Timestamp = Timestamp(221_845_392_000_000);

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
    if let Ok(text) = str::from_utf8(bytes) {
        let (text, beside) = text
            .split_once('\0')
            .map_or((text, None), |(text, zone)| (text, Some(zone)));
        recurs(cron::when(text, beside));
    }
    let mut fields = bytes.split(|byte| *byte == 0);
    let fields = [(); 5].map(|()| fields.next().unwrap_or_default());
    for week in [Week::FromSunday, Week::FromMonday] {
        if let Ok(cron) = cron::compile(fields, week) {
            falls_due(&cron);
        }
    }
});

fn recurs(when: Result<Recurrence, CronError>) {
    match when {
        Ok(Recurrence::Cron(cron)) => falls_due(&cron),
        Ok(Recurrence::Zoned(cron, zone)) => {
            for moment in MOMENTS {
                let next = zone.next_after(&cron, Timestamp(moment));
                assert!(
                    next > Timestamp(moment) || next == Timestamp::NEVER,
                    "{cron} in {zone:?} after {moment}: {next:?}"
                );
                assert!(
                    next == Timestamp::NEVER || cron.can_match(),
                    "{cron} in {zone:?} comes due but cannot match"
                );
                // Any local clock differs from UTC by two days at most.
                let latest = cron
                    .next_after(Timestamp(moment).after_ms(DAYS_MS))
                    .after_ms(DAYS_MS);
                assert!(
                    next <= latest || latest >= FAR,
                    "{cron} in {zone:?} after {moment}: {next:?}"
                );
            }
        }
        Ok(Recurrence::Every { interval_ms }) => {
            assert!(interval_ms >= 1_000 && interval_ms % 1_000 == 0)
        }
        Err(why) => assert!(!why.to_string().is_empty()),
    }
}

fn times(cron: &Cron) -> [Timestamp; MOMENTS.len()] {
    MOMENTS.map(|moment| cron.next_after(Timestamp(moment)))
}

fn falls_due(cron: &Cron) {
    for (moment, next) in MOMENTS.into_iter().zip(times(cron)) {
        assert!(
            next > Timestamp(moment) || next == Timestamp::NEVER,
            "{cron} after {moment}: {next:?}"
        );
        assert!(
            next == Timestamp::NEVER || cron.can_match(),
            "{cron} comes due but cannot match"
        );
    }
}
