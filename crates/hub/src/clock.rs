//! The real clocks, and the engine's time derived from them. Only this module reads clocks for the
//! engine.
//!
//! The engine's time follows `CLOCK_BOOTTIME`, which cannot be set and continues while the machine
//! sleeps. It excludes pauses of the daemon, and the time in which it may not act: a leader whose
//! lease is uncertain, an edge without a leader. Details, and how it survives a restart:
//! [`windlass_engine::Timekeeper`].
//!
//! The wall clock is the machine's, unless the store's host has one: a leader with a wrong clock
//! must not release jobs that are not due.

#[cfg(any(test, feature = "testing"))]
pub mod simulated;

use std::cell::Cell;
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use windlass_engine::{Clock, Reading, Timekeeper, Timestamp};

use crate::shared::lock;

/// All threads of a process share one time. A test that sets it has its own, on its thread.
static CLOCKS: Mutex<Clocks> = Mutex::new(Clocks::new());

/// Two daemons' readings of one clock differ by the network delay between them, so smaller
/// differences are ignored.
const WAY_MS: u64 = 5;

/// The engine's time in a process.
#[derive(Debug)]
pub struct Clocks {
    keeper: Option<Timekeeper>,
    /// Whether the keeper continues from a journal, because this daemon has or had an engine.
    has_journal: bool,
    /// The time of another daemon, as an offset from the time since boot in milliseconds, and the
    /// relation of its other clocks to it.
    followed: Option<(i64, Clock)>,
    /// Since when the time has been stopped, in milliseconds since boot.
    still_ms: Option<u64>,
    /// The wall clock of the store's host, as an offset from the time since boot in milliseconds.
    wall_ahead_ms: Option<i64>,
}

impl Clocks {
    /// Clocks that were never read.
    pub const fn new() -> Self {
        Self {
            keeper: None,
            has_journal: false,
            followed: None,
            still_ms: None,
            wall_ahead_ms: None,
        }
    }

    /// Whether the time is another daemon's.
    #[cfg(any(test, feature = "testing"))]
    pub const fn follows(&self) -> bool {
        self.followed.is_some()
    }

    fn follow(&mut self, reading: &Reading) {
        let ahead_ms =
            i64::try_from(i128::from(reading.now.0) - i128::from(since_boot_ms())).unwrap_or(0);
        let ahead_ms = match self.followed {
            Some((known_ms, _)) if known_ms.abs_diff(ahead_ms) <= WAY_MS => known_ms,
            Some(_) | None => ahead_ms,
        };
        self.followed = Some((ahead_ms, reading.clock));
        self.still_ms = None;
    }

    fn stand_still(&mut self, since_boot_ms: u64) {
        self.read(since_boot_ms);
        self.still_ms.get_or_insert(since_boot_ms);
    }

    fn go_on(&mut self, since_boot_ms: u64) {
        self.read(since_boot_ms);
        if self.still_ms.take().is_some()
            && let Some(keeper) = &mut self.keeper
        {
            keeper.settle();
        }
    }

    fn read(&mut self, since_boot_ms: u64) -> Reading {
        let wall = wall_at(since_boot_ms, self.wall_ahead_ms);
        let begin = || Timekeeper::start(&Clock::default(), 0, since_boot_ms, wall);
        let keeper = self.keeper.get_or_insert_with(begin);
        if let Some(still_ms) = &mut self.still_ms {
            keeper.stand_still(since_boot_ms);
            let passed_ms = since_boot_ms
                .saturating_sub(std::mem::replace(still_ms, since_boot_ms.max(*still_ms)));
            if let Some((ahead_ms, _)) = &mut self.followed {
                *ahead_ms = ahead_ms.saturating_sub_unsigned(passed_ms);
            }
        }
        let reading = keeper.read(since_boot_ms, wall);
        // After a pause of this daemon the leader's time is unknown until the leader sends it.
        // A time ahead of it would end leases early, and make new waits too long.
        if let (Some((ahead_ms, _)), Some(pause_ms)) = (&mut self.followed, reading.pause_ms) {
            *ahead_ms = ahead_ms.saturating_sub_unsigned(pause_ms);
        }
        match self.followed {
            Some((ahead_ms, clock)) => Reading {
                now: Timestamp(since_boot_ms).shifted(ahead_ms),
                clock,
                pause_ms: None,
            },
            // Without an engine no deadline depends on a pause.
            None => Reading {
                pause_ms: reading.pause_ms.filter(|_| self.has_journal),
                ..reading
            },
        }
    }
}

/// The clocks of this process, or those of the acting machine in a simulation.
fn with_clocks<T>(act: impl FnOnce(&mut Clocks) -> T) -> T {
    #[cfg(any(test, feature = "testing"))]
    let act = match simulated::with_clocks(act) {
        Ok(done) => return done,
        Err(act) => act,
    };
    act(&mut lock(&CLOCKS))
}

/// Continues from the clock in the journal. Until then the engine's time is the wall clock's. With
/// `wall_ahead_ms`, the wall clock is at this offset from the time since boot, instead of the
/// machine's.
pub fn start(kept: &Clock, wall_ahead_ms: Option<i64>) {
    #[cfg(any(test, feature = "testing"))]
    simulated::own();
    let since_boot_ms = since_boot_ms();
    let wall = wall_at(since_boot_ms, wall_ahead_ms);
    let keeper = Timekeeper::start(kept, boot(), since_boot_ms, wall);
    with_clocks(|clocks| {
        *clocks = Clocks {
            keeper: Some(keeper),
            has_journal: true,
            wall_ahead_ms,
            ..Clocks::new()
        };
    });
    LATEST.set(None);
}

/// Sets the offset of the wall clock of the store's host from the time since boot, in milliseconds.
pub fn keep_wall(wall_ahead_ms: i64) {
    with_clocks(|clocks| clocks.wall_ahead_ms = Some(wall_ahead_ms));
    LATEST.set(None);
}

/// How far the machine's wall clock is ahead of the authoritative one, that of the store's host or
/// of the leader, in milliseconds. `None`: the time is stopped, and the authoritative clock
/// unknown.
pub fn machine_ahead_ms() -> Option<i64> {
    let machine = wall();
    let counts = read().wall();
    let stands_still = with_clocks(|clocks| clocks.still_ms.is_some());
    let ahead_ms = i128::from(machine.0) - i128::from(counts.0);
    (!stands_still).then_some(i64::try_from(ahead_ms).unwrap_or(i64::MAX))
}

/// Makes the engine's time follow the daemon that has the engine.
pub fn follow(reading: &Reading) {
    #[cfg(any(test, feature = "testing"))]
    simulated::own();
    with_clocks(|clocks| clocks.follow(reading));
}

/// Makes the engine's time this daemon's own.
pub fn lead() {
    with_clocks(|clocks| {
        clocks.followed = None;
        clocks.still_ms = None;
    });
    LATEST.set(None);
}

/// Stops the time, because the daemon may not act, and deadlines that it cannot meet must not count
/// against its clients.
pub fn stand_still() {
    #[cfg(any(test, feature = "testing"))]
    simulated::own();
    with_clocks(|clocks| clocks.stand_still(since_boot_ms()));
    LATEST.set(None);
}

/// Continues the time when the daemon may act again.
pub fn go_on() {
    with_clocks(|clocks| clocks.go_on(since_boot_ms()));
    LATEST.set(None);
}

thread_local! {
    /// The last reading of this thread, with its millisecond since boot.
    static LATEST: Cell<Option<(u64, Reading)>> = const { Cell::new(None) };
}

/// Reads all clocks. Readings of one thread in the same millisecond are equal, because a busy
/// daemon needs them a hundred times in it.
pub fn read() -> Reading {
    let since_boot_ms = since_boot_ms();
    if let Some((at, reading)) = LATEST.get()
        && at == since_boot_ms
    {
        return reading;
    }
    let reading = with_clocks(|clocks| clocks.read(since_boot_ms));
    if let Some(pause_ms) = reading.pause_ms {
        tracing::warn!(
            pause_ms,
            "the daemon was suspended: deadlines are extended by the pause"
        );
    }
    LATEST.set(Some((
        since_boot_ms,
        Reading {
            pause_ms: None,
            ..reading
        },
    )));
    reading
}

/// The current time of the engine's clock.
pub fn now() -> Timestamp {
    read().now
}

/// The current time of the machine's wall clock, in milliseconds since the epoch. A clock set
/// before 1970 reads as 1970.
pub fn wall() -> Timestamp {
    Timestamp(ms(since_epoch()))
}

/// The wall clock at this offset from the time since boot; without an offset, the machine's.
fn wall_at(since_boot_ms: u64, ahead_ms: Option<i64>) -> Timestamp {
    ahead_ms.map_or_else(wall, |ahead_ms| Timestamp(since_boot_ms).shifted(ahead_ms))
}

/// The current time of the machine's wall clock, in nanoseconds since the epoch.
pub fn wall_ns() -> u64 {
    u64::try_from(since_epoch().as_nanos()).unwrap_or(u64::MAX)
}

/// The time until a moment of the engine's clock; zero if it has passed.
pub fn until(at: Timestamp) -> Duration {
    Duration::from_millis(at.ms_since(now()))
}

/// The moment this long after another one.
pub fn after(at: Timestamp, time: Duration) -> Timestamp {
    at.after_ms(ms(time))
}

/// A time in milliseconds.
pub(crate) fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn since_epoch() -> Duration {
    #[cfg(any(test, feature = "testing"))]
    if let Some(machine) = simulated::machine() {
        return Duration::from_millis(machine.wall_ms);
    }
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO)
}

/// Milliseconds since boot, including suspension. This clock cannot be set.
pub fn since_boot_ms() -> u64 {
    #[cfg(any(test, feature = "testing"))]
    if let Some(machine) = simulated::machine() {
        return machine.since_boot_ms;
    }
    let at = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(at.tv_sec).unwrap_or(0);
    let ns = u64::try_from(at.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000).saturating_add(ns / 1_000_000)
}

/// An identifier of this boot, and of the clock offset of a container; 0 if the system provides
/// none.
fn boot() -> u64 {
    #[cfg(any(test, feature = "testing"))]
    if let Some(machine) = simulated::machine() {
        return machine.boot;
    }
    let Ok(id) = std::fs::read("/proc/sys/kernel/random/boot_id") else {
        return 0;
    };
    let offsets = std::fs::read("/proc/self/timens_offsets").unwrap_or_default();
    fnv_1a(id.iter().chain(&offsets)).max(1)
}

fn fnv_1a<'a>(bytes: impl Iterator<Item = &'a u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise a test that opens a store one hour ahead would end the deadlines of all daemons
    /// under test.
    #[test]
    fn a_test_that_starts_the_time_has_a_time_of_its_own() {
        const HOUR_MS: u64 = 3_600_000;
        let elsewhere = || std::thread::spawn(now).join().unwrap();
        let begin = elsewhere();
        start(&Clock::skewed(-2 * HOUR_MS.cast_signed()), None);
        assert!(now() > begin.after_ms(HOUR_MS));
        assert!(elsewhere() < begin.after_ms(HOUR_MS));
        follow(&Reading {
            now: begin.after_ms(9 * HOUR_MS),
            clock: Clock::default(),
            pause_ms: None,
        });
        assert!(elsewhere() < begin.after_ms(HOUR_MS));
    }

    #[test]
    fn the_system_has_an_uptime_and_a_boot_id() {
        assert!(since_boot_ms() > 0);
        assert_eq!(boot(), boot());
        assert!(boot() > 1, "an identifier, not a flag");
        // From the authors of the function.
        assert_eq!(fnv_1a(b"foobar".iter()), 0x8594_4171_f739_67e8);
    }

    const MACHINE: simulated::Machine = simulated::Machine {
        boot: 1,
        since_boot_ms: 1_000_000,
        wall_ms: 9_000_000,
    };

    #[test]
    fn a_followed_time_does_not_change_by_the_way_of_its_messages() {
        simulated::on(MACHINE, &mut Clocks::new(), || {
            let mut clocks = Clocks::new();
            let mut follow = |now_ms: u64| {
                clocks.follow(&Reading {
                    now: Timestamp(now_ms),
                    clock: Clock::default(),
                    pause_ms: None,
                });
                clocks.read(since_boot_ms()).now.0
            };
            let (near, far) = (5000 + WAY_MS, 5001 + WAY_MS);
            assert_eq!(
                [5000, near, 5000 - WAY_MS, far, far - 1].map(&mut follow),
                [5000, 5000, 5000, far, far]
            );
            assert_eq!(follow(2_000_000), 2_000_000, "ahead of the time since boot");
        });
    }

    #[test]
    fn after_a_pause_an_edge_waits_for_the_leader_s_time() {
        let mut clocks = Clocks::new();
        let mut at = |passed_ms: u64, act: &dyn Fn()| {
            let machine = simulated::Machine {
                since_boot_ms: MACHINE.since_boot_ms + passed_ms,
                ..MACHINE
            };
            simulated::on(machine, &mut clocks, || (act(), now()).1)
        };
        let leader = |now_ms| {
            follow(&Reading {
                now: Timestamp(now_ms),
                clock: Clock::default(),
                pause_ms: None,
            })
        };
        assert_eq!(at(0, &|| leader(5_000)), Timestamp(5_000));
        assert_eq!(at(1_000, &|| ()), Timestamp(6_000));
        assert_eq!(
            at(3_601_000, &|| ()),
            Timestamp(6_000),
            "it may have been suspended, and the leader not"
        );
        assert_eq!(at(3_601_100, &|| ()), Timestamp(6_100));
        assert_eq!(at(3_601_200, &|| leader(3_606_200)), Timestamp(3_606_200));
    }

    #[test]
    fn no_time_passes_while_the_daemon_may_not_act() {
        fn nothing() {}
        fn begin_to_follow() {
            follow(&Reading {
                now: Timestamp(5_000),
                clock: Clock::default(),
                pause_ms: None,
            });
        }
        for begin in [nothing, begin_to_follow] {
            let mut clocks = Clocks::new();
            let mut at = |passed_ms: u64, act: fn()| {
                let (since_boot_ms, wall_ms) = (
                    MACHINE.since_boot_ms + passed_ms,
                    MACHINE.wall_ms + passed_ms,
                );
                let machine = simulated::Machine {
                    since_boot_ms,
                    wall_ms,
                    ..MACHINE
                };
                simulated::on(machine, &mut clocks, || (act(), now()).1)
            };
            let begun = at(0, begin);
            let still = [
                at(10, stand_still),
                at(60_000, nothing),
                at(61_000, stand_still),
                at(90_000, go_on),
            ];
            assert_eq!(still, [begun.after_ms(10); 4]);
            assert!(at(92_000, nothing) > begun.after_ms(10), "it goes on");
        }
    }

    #[test]
    fn the_time_of_a_thread_goes_on() {
        start(&Clock::default(), None);
        let (begun_ms, begin) = (since_boot_ms(), now());
        while now() == begin {
            assert!(since_boot_ms() < begun_ms + 20_000, "the time stands still");
        }
        assert!(now() > begin);
    }

    #[test]
    fn a_pause_is_reported_once_and_not_by_a_daemon_that_never_had_the_engine() {
        for (has_journal, reported) in [(true, [true, false]), (false, [false, false])] {
            let mut clocks = Clocks {
                has_journal,
                ..Clocks::new()
            };
            simulated::on(MACHINE, &mut clocks, read);
            let later = simulated::Machine {
                since_boot_ms: MACHINE.since_boot_ms + 60_000,
                ..MACHINE
            };
            let pauses = simulated::on(later, &mut clocks, || {
                [read(), read()].map(|reading| reading.pause_ms)
            });
            assert_eq!(
                pauses.map(|pause_ms| pause_ms.is_some()),
                reported,
                "{pauses:?}"
            );
        }
    }

    /// A leader whose clock was an hour ahead, and is set while it leads.
    #[test]
    fn the_wall_clock_is_that_of_the_store_s_place() {
        const HOUR_MS: u64 = 3_600_000;
        let mut clocks = Clocks::new();
        let mut at = |passed_ms: u64, set_ms: u64, act: &dyn Fn()| {
            let since_boot_ms = MACHINE.since_boot_ms + passed_ms;
            let machine = simulated::Machine {
                since_boot_ms,
                wall_ms: MACHINE.wall_ms + set_ms,
                ..MACHINE
            };
            simulated::on(machine, &mut clocks, || (act(), read(), machine_ahead_ms()))
        };
        let ahead_ms = i64::try_from(MACHINE.wall_ms - MACHINE.since_boot_ms).unwrap();
        let (_, begun, ahead_of_it_ms) =
            at(0, HOUR_MS, &|| start(&Clock::default(), Some(ahead_ms)));
        assert_eq!(
            (begun.now, begun.wall()),
            (Timestamp(MACHINE.wall_ms), Timestamp(MACHINE.wall_ms))
        );
        assert_eq!(ahead_of_it_ms, Some(HOUR_MS.cast_signed()));
        for (passed_ms, set_ms) in [(10, 0), (500, 9 * HOUR_MS), (1_000, 1_000)] {
            let (_, reading, ahead_of_it_ms) = at(passed_ms, set_ms, &|| ());
            assert_eq!(reading.wall(), Timestamp(MACHINE.wall_ms + passed_ms));
            assert_eq!(
                ahead_of_it_ms,
                Some(set_ms.cast_signed() - passed_ms.cast_signed())
            );
        }
        let (_, reading, _) = at(1_500, 0, &|| keep_wall(ahead_ms + 2_000));
        assert_eq!(
            reading.wall(),
            Timestamp(MACHINE.wall_ms + 3_500),
            "it is followed"
        );
        assert_eq!(
            reading.now,
            Timestamp(MACHINE.wall_ms + 1_500),
            "and no deadline moves"
        );
        assert_eq!(
            at(2_000, 0, &stand_still).2,
            None,
            "no daemon knows the time"
        );
    }

    #[test]
    fn the_wall_clock_counts_milliseconds_and_nanoseconds_since_the_same_moment() {
        simulated::on(MACHINE, &mut Clocks::new(), || {
            assert_eq!(
                (wall().0, wall_ns()),
                (MACHINE.wall_ms, MACHINE.wall_ms * 1_000_000)
            );
        });
    }

    #[test]
    fn the_time_until_a_moment_ends_with_it() {
        simulated::on(MACHINE, &mut Clocks::new(), || {
            let at = now();
            let left = [0, 1, 500].map(|ms| until(at.after_ms(ms)).as_millis());
            assert_eq!(left, [0, 1, 500]);
            assert_eq!(until(Timestamp(at.0 - 1)), Duration::ZERO);
            assert_eq!(after(at, Duration::from_secs(2)), at.after_ms(2000));
        });
    }
}
