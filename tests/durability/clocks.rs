//! The real daemon while the wall clock is set, and after pauses: a paused machine, SIGSTOP.
//!
//! libfaketime, which `tests/install-clients` installs, sets the wall clock for the daemon alone. A missing library is
//! a failure, never a skip.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use windlass_testkit::daemon::{Daemon, Plan};

use crate::common::faktory::Fwp;
use crate::common::http::Http;
use crate::common::spiderq::{ADDED, Bare, EMPTY, Lease, REPAID, Status, add, lend, repay};
use crate::common::{daemon, wait_for_log, wait_until};

const HOUR_S: i64 = 3_600;
const DAY_S: i64 = 24 * HOUR_S;

// ---- a wall clock that is set ---------------------------------------------------------------------------------------

/// The wall clock of one daemon.
struct WallClock(PathBuf);

impl WallClock {
    fn new(dir: &Path) -> Self {
        let there = fs::read_dir("/usr/lib").unwrap().flatten();
        let mut found =
            there.filter(|entry| entry.path().join("faketime/libfaketimeMT.so.1").exists());
        assert!(
            found.next().is_some(),
            "no libfaketime; tests/install-clients installs it"
        );
        let clock = Self(dir.join("wall-clock"));
        clock.set(0);
        clock
    }

    /// A daemon with this wall clock. Its other clocks are the machine's.
    fn start(&self, plan: Plan) -> Daemon {
        let plan = plan.variable("LD_PRELOAD", "/usr/$LIB/faketime/libfaketimeMT.so.1");
        let plan = plan.variable("FAKETIME_TIMESTAMP_FILE", &self.0.display().to_string());
        plan.variable("DONT_FAKE_MONOTONIC", "1")
            .variable("FAKETIME_NO_CACHE", "1")
            .start()
    }

    /// Sets it this many seconds ahead of the machine's.
    fn set(&self, ahead_s: i64) {
        // The daemon may read the file at any time, so it must be replaced atomically.
        let new = self.0.with_extension("new");
        fs::write(&new, format!("{ahead_s:+}\n")).unwrap();
        fs::rename(new, &self.0).unwrap();
    }
}

fn unix_s() -> i64 {
    i64::try_from(
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs(),
    )
    .unwrap()
}

/// In the format of Faktory's clients.
fn rfc3339(unix_s: i64) -> String {
    let (days, second) = (unix_s.div_euclid(86_400), unix_s.rem_euclid(86_400));
    // Days to a date: howardhinnant.github.io/date_algorithms.html, "civil_from_days".
    let era_day = days + 719_468;
    let (era, of_era) = (era_day.div_euclid(146_097), era_day.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let (day, month) = (
        of_year - (153 * shifted + 2) / 5 + 1,
        if shifted < 10 {
            shifted + 3
        } else {
            shifted - 9
        },
    );
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Waits until the daemon has noticed its new wall clock, as its answers show.
fn wait_until_seen(fwp: &mut Fwp, ahead_s: i64) {
    wait_until("the daemon's wall clock", || {
        let info = fwp.ask("INFO");
        let time = info
            .split_once("\"server_utc_time\":\"")
            .unwrap()
            .1
            .split('"')
            .next()
            .unwrap();
        // Within a minute or so, by the hour and minute.
        (-90..90).any(|off| {
            rfc3339(unix_s() + ahead_s + off)
                .contains(&format!("T{}", time.trim_end_matches(" UTC")))
        })
    });
}

fn push(fwp: &mut Fwp, jid: &str, more: &str) {
    let job = format!(r#"{{"jid":"{jid}","jobtype":"T","queue":"q","args":[],"retry":5{more}}}"#);
    assert_eq!(fwp.ask(&format!("PUSH {job}")), "+OK");
}

/// The number of jobs under a heading in the tasks of INFO.
fn size(fwp: &mut Fwp, heading: &str) -> u64 {
    let info = fwp.ask("INFO");
    let rest = info
        .split_once(&format!("\"{heading}\":{{"))
        .unwrap()
        .1
        .split_once("\"size\":")
        .unwrap()
        .1;
    rest.split(|c: char| !c.is_ascii_digit())
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
fn a_wall_clock_set_an_hour_ahead_ends_no_lease_and_brings_what_is_due() {
    let dir = tempfile::tempdir().unwrap();
    let clock = WallClock::new(dir.path());
    let mut daemon = clock.start(daemon(dir.path()));
    let (mut worker, mut fwp) = (
        Fwp::connect(daemon.address("faktory")),
        Fwp::connect(daemon.address("faktory")),
    );
    push(&mut fwp, "reserved-001", r#","reserve_for":600"#);
    assert!(worker.ask("FETCH q").contains("reserved-001"));
    push(&mut fwp, "expires-0001", r#","custom":{"expires_in":1800}"#);
    push(
        &mut fwp,
        "in-half-an-hour",
        &format!(r#","at":"{}""#, rfc3339(unix_s() + HOUR_S / 2)),
    );
    push(
        &mut fwp,
        "in-two-hours",
        &format!(r#","at":"{}""#, rfc3339(unix_s() + 2 * HOUR_S)),
    );
    let mut peer = Bare::connect(daemon.address("spiderq"));
    assert_eq!(peer.ask(&add("entry", b"value")), ADDED);
    let lease = Lease::of(&peer.ask(&lend(600_000, false))).unwrap();
    clock.set(HOUR_S);
    wait_until_seen(&mut fwp, HOUR_S);
    // A span is as long as before. Once a due job is there, all due events have happened.
    assert!(fwp.ask("FETCH q").contains("expires-0001"));
    assert_eq!(fwp.ask(r#"ACK {"jid":"expires-0001"}"#), "+OK");
    assert!(fwp.ask("FETCH q").contains("in-half-an-hour"));
    assert_eq!(
        (
            size(&mut fwp, "Scheduled"),
            size(&mut fwp, "Retries"),
            size(&mut fwp, "Busy")
        ),
        (1, 0, 2)
    );
    assert!(worker.ask(r#"BEAT {"wid":"wid-1"}"#).starts_with("+OK"));
    assert_eq!(peer.ask(&lend(0, false)), EMPTY, "it is lent");
    // The same holds after a restart, in which the clock continues. A lease is granted before it is on disk; a push is
    // on disk when it is answered, and with it every earlier lease.
    push(&mut fwp, "last-0000001", "");
    daemon.kill();
    clock.set(2 * HOUR_S);
    daemon.restart();
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    let mut peer = Bare::connect(daemon.address("spiderq"));
    assert_eq!((size(&mut fwp, "Retries"), size(&mut fwp, "Busy")), (0, 2));
    assert_eq!(fwp.ask(r#"ACK {"jid":"reserved-001"}"#), "+OK");
    assert_eq!(size(&mut fwp, "Busy"), 1);
    assert_eq!(peer.ask(&repay(&lease, Status::Reward)), REPAID);
}

#[test]
fn a_wall_clock_set_an_hour_back_prolongs_no_lease_and_brings_nothing_early() {
    let dir = tempfile::tempdir().unwrap();
    let clock = WallClock::new(dir.path());
    let daemon = clock.start(daemon(dir.path()));
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    push(
        &mut fwp,
        "in-half-an-hour",
        &format!(r#","at":"{}""#, rfc3339(unix_s() + HOUR_S / 2)),
    );
    let mut peer = Bare::connect(daemon.address("spiderq"));
    assert_eq!(peer.ask(&add("entry", b"value")), ADDED);
    let first = Lease::of(&peer.ask(&lend(3_000, false))).unwrap();
    clock.set(-HOUR_S);
    wait_until_seen(&mut fwp, -HOUR_S);
    // It waits for the end of the first lease.
    let second = Lease::of(&peer.ask(&lend(600_000, true))).unwrap();
    assert_eq!((&second.key, &second.value), (&first.key, &first.value));
    assert_eq!(size(&mut fwp, "Scheduled"), 1);
    // By the current clock it is due in an hour and a half.
    clock.set(HOUR_S / 2 - 60);
    wait_until_seen(&mut fwp, HOUR_S / 2 - 60);
    assert_eq!(size(&mut fwp, "Scheduled"), 1);
    clock.set(HOUR_S / 2);
    wait_until("the job is due", || size(&mut fwp, "Scheduled") == 0);
    assert!(fwp.ask("FETCH q").contains("in-half-an-hour"));
}

#[test]
fn counters_are_kept_by_day_and_outlast_the_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let clock = WallClock::new(dir.path());
    // No midnight comes by itself at noon.
    let noon = DAY_S / 2 - unix_s().rem_euclid(DAY_S);
    clock.set(noon);
    let mut daemon = clock.start(daemon(dir.path()));
    let days = |daemon: &Daemon| {
        let page = Http(daemon.address("http"))
            .get("/api/v1/history?days=3")
            .json();
        page["days"].as_array().unwrap().clone()
    };
    let pushed = |daemon: &Daemon| -> Vec<u64> {
        days(daemon)
            .iter()
            .map(|day| day["counts"]["pushed"].as_u64().unwrap())
            .collect()
    };
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    push(&mut fwp, "today-000001", "");
    assert_eq!(pushed(&daemon), [1, 0, 0]);
    clock.set(noon + DAY_S);
    wait_until("the next day", || {
        days(&daemon)[0]["date"] == rfc3339(unix_s() + noon + DAY_S)[..10]
    });
    push(&mut fwp, "tomorrow-001", "");
    push(&mut fwp, "tomorrow-002", "");
    assert_eq!(pushed(&daemon), [2, 1, 0]);
    daemon.kill();
    daemon.restart();
    assert_eq!(pushed(&daemon), [2, 1, 0], "the journal has them");
}

// ---- a paused daemon ------------------------------------------------------------------------------------------------

/// Long enough to count as a pause with certainty.
const PAUSE: Duration = Duration::from_secs(5);

#[test]
fn a_pause_of_the_daemon_extends_all_deadlines() {
    let dir = tempfile::tempdir().unwrap();
    // Every deadline passes before the daemon continues.
    let more = "[limits]\nbeat_timeout = \"3s\"\n[faktory]\nlisten = [\"127.0.0.1:0\"]\nreserve_min = \"3s\"\n";
    let server = "[server]\nidle_timeout = \"3s\"\nmessage_timeout = \"3s\"\n";
    let daemon = daemon(dir.path()).set(server).set(more).start();
    // Half of an ECHO_REQ arrives before the pause.
    let echo = [b"\0REQ\0\0\0\x10\0\0\0\x04".as_slice(), b"half"].concat();
    let mut gearman = TcpStream::connect(daemon.address("gearman")).unwrap();
    gearman.write_all(&echo[..10]).unwrap();
    let (mut worker, mut fwp) = (
        Fwp::connect(daemon.address("faktory")),
        Fwp::connect(daemon.address("faktory")),
    );
    let mut peer = Bare::connect(daemon.address("spiderq"));
    assert_eq!(peer.ask(&add("entry", b"value")), ADDED);
    push(&mut fwp, "reserved-001", r#","reserve_for":3"#);
    let lease = Lease::of(&peer.ask(&lend(3_000, false))).unwrap();
    assert!(worker.ask(r#"BEAT {"wid":"wid-1"}"#).starts_with("+OK"));
    assert!(worker.ask("FETCH q").contains("reserved-001"));
    daemon.signal("STOP");
    // All of it is sent while the daemon is paused, and in time.
    gearman.write_all(&echo[10..]).unwrap();
    let sent = [
        thread::spawn(move || worker.ask(r#"ACK {"jid":"reserved-001"}"#)),
        thread::spawn(move || fwp.ask(r#"BEAT {"wid":"wid-1"}"#)),
        thread::spawn(move || format!("{:?}", peer.ask(&repay(&lease, Status::Reward)))),
    ];
    thread::sleep(PAUSE);
    daemon.signal("CONT");
    let said = sent.map(|it| it.join().unwrap());
    assert_eq!(
        said,
        ["+OK".to_owned(), "+OK".to_owned(), format!("{REPAID:?}")]
    );
    let mut echoed = vec![0; echo.len()];
    gearman.read_exact(&mut echoed).unwrap();
    assert_eq!(&echoed[12..], b"half");
    wait_for_log(&daemon, "the daemon was suspended");
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    let info = fwp.ask("INFO");
    assert!(
        info.contains("\"total_failures\":0,\"total_processed\":1,"),
        "{info}"
    );
}

#[test]
fn a_reservation_keeps_its_remaining_time_over_a_pause() {
    let dir = tempfile::tempdir().unwrap();
    let more = "[faktory]\nlisten = [\"127.0.0.1:0\"]\nreserve_min = \"3s\"\n";
    let daemon = daemon(dir.path()).set(more).start();
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    push(&mut fwp, "reserved-001", r#","reserve_for":3"#);
    assert!(fwp.ask("FETCH q").contains("reserved-001"));
    daemon.signal("STOP");
    thread::sleep(PAUSE);
    daemon.signal("CONT");
    wait_for_log(&daemon, "the daemon was suspended");
    assert_eq!(
        (size(&mut fwp, "Busy"), size(&mut fwp, "Retries")),
        (1, 0),
        "its worker still has it"
    );
    // After that the reservation ends.
    wait_until("the reservation ends", || size(&mut fwp, "Retries") == 1);
}

// ---- late acknowledgements ------------------------------------------------------------------------------------------

#[test]
fn a_late_ack_ends_a_job_that_waits_for_its_retry() {
    let dir = tempfile::tempdir().unwrap();
    let more = "[faktory]\nlisten = [\"127.0.0.1:0\"]\nreserve_min = \"1s\"\n";
    let mut daemon = daemon(dir.path()).set(more).start();
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    push(&mut fwp, "reserved-001", r#","reserve_for":1"#);
    assert!(fwp.ask("FETCH q").contains("reserved-001"));
    wait_until("the reservation ends", || size(&mut fwp, "Retries") == 1);
    assert_eq!(fwp.ask(r#"ACK {"jid":"reserved-001"}"#), "+OK");
    // An acknowledged change is on the disk.
    daemon.kill();
    daemon.restart();
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    assert_eq!((size(&mut fwp, "Retries"), size(&mut fwp, "Busy")), (0, 0));
    // A client cannot acknowledge a job that no client has fetched.
    push(&mut fwp, "never-fetched", "");
    assert_eq!(fwp.ask(r#"ACK {"jid":"never-fetched"}"#), "+OK");
    assert!(fwp.ask("FETCH q").contains("never-fetched"));
}
