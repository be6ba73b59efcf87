//! Power cuts of the whole daemon: a record of all changes to the data directory under load, over kills and stops, gives the
//! directory that a power cut leaves, and a daemon starts from it. Every acknowledged end is in the history once. With `interval`
//! the last ends of a client may be missing, and no job that still exists has a row.
//!
//! `WINDLASS_TEST_POWER_CUTS=1000` makes as many with each durability (12 by default), `WINDLASS_TEST_POWER_SEED` with another
//! seed. A C compiler makes the recorder.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use windlass_testkit::daemon::Daemon;
use windlass_testkit::power::{Disk, Recorder, place};
use windlass_testkit::rng::Rng;

use crate::common::ended::{files, rows};
use crate::common::http::Http;
use crate::common::ledger::{Ledger, SETTINGS, load_until, recorded};
use crate::common::{daemon, from_env, wait_until};
use crate::ended::terminate;

/// Cuts of one record.
const CUTS_OF_A_RECORD: u64 = 50;

/// Runs a daemon under load, ends it at random, and starts it again, a few times.
fn record(home: &Path, settings: &str, rng: &mut Rng) -> (Arc<Ledger>, Disk) {
    // There is a store, and no history yet.
    terminate(&mut daemon(home).start());
    let data = home.join("data");
    let recorder = Arc::new(Recorder::new(home, &data));
    let mut plan = daemon(home).set(settings);
    for (name, value) in recorder.variables() {
        plan = plan.variable(name, value.to_str().unwrap());
    }
    let ledger = Arc::new(Ledger::with(&recorder));
    let mut daemon = plan.start();
    for _ in 0..rng.between(2, 4) {
        let more = usize::try_from(rng.between(1, 150)).unwrap();
        if rng.chance(50) {
            load_until(&ledger, &mut daemon, more, |_| {});
            // A record has cuts before and after the history's first look at the log.
            let written = rng.below(2);
            wait_until("some rows are there", || {
                rows(Http(daemon.address("http")), "").len() as u64 >= written
            });
        }
        let end = if rng.chance(50) {
            Daemon::kill
        } else {
            terminate
        };
        load_until(&ledger, &mut daemon, more, end);
        daemon.restart();
    }
    daemon.kill();
    drop(daemon);
    let disk = recorder.end();
    std::fs::remove_dir_all(&data).unwrap();
    (ledger, disk)
}

/// Jobs that are in the store and have not ended.
fn living(http: Http) -> BTreeSet<u64> {
    let mut jobs = BTreeSet::new();
    let mut cursor = String::new();
    loop {
        let page = http.get(&format!("/api/v1/jobs?limit=100{cursor}")).json();
        for job in page["jobs"].as_array().unwrap() {
            if job["state"] != "dead" {
                jobs.insert(job["id"].as_u64().unwrap());
            }
        }
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return jobs,
        }
    }
}

/// Starts a daemon after a cut. Returns the number of ends in the history.
fn check(home: &Path, settings: &str, before: &Ledger, moment: u64, is_sync: bool) -> usize {
    let mut daemon = daemon(home).set(settings).start();
    // Commits get the numbers of lost ones. A daemon that stops writes all rows first.
    let ledger = Arc::new(before.after_a_cut());
    load_until(&ledger, &mut daemon, 5, terminate);
    let mut must_be_there = ledger.acknowledged();
    let by_client = before.by_client();
    if is_sync {
        let all = by_client.iter().flatten();
        must_be_there.extend(all.filter(|it| it.moment <= moment).map(|it| it.job));
    }
    daemon.restart();
    let log = daemon.log_text();
    let http = Http(daemon.address("http"));
    let found = recorded(&ledger, http);
    let lost: Vec<_> = must_be_there.difference(&found).collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}\n{log}");
    for client in by_client {
        // A job whose end was lost came back to another client.
        let client = client.iter().map(|it| it.job);
        let client: Vec<u64> = client.filter(|job| ledger.sent_once(*job)).collect();
        let lost = client.iter().position(|job| !found.contains(job));
        let later = client.iter().skip(lost.unwrap_or(client.len()));
        let later: Vec<_> = later.filter(|job| found.contains(job)).collect();
        assert!(
            later.is_empty(),
            "of {client:?} number {lost:?} is lost, but not {later:?}\n{log}"
        );
    }
    let ended: BTreeSet<u64> = rows(http, "")
        .iter()
        .map(|row| row["job"].as_u64().unwrap())
        .collect();
    let both: Vec<u64> = living(http).intersection(&ended).copied().collect();
    assert!(
        both.is_empty(),
        "they have a row, and are still there: {both:?}\n{log}"
    );
    assert!(files(home, ".damaged-1").is_empty(), "{log}");
    found.len()
}

fn cut(durability: &str) {
    let wanted = from_env("WINDLASS_TEST_POWER_CUTS", 12);
    let mut rng = Rng::new(from_env("WINDLASS_TEST_POWER_SEED", 1));
    let settings = format!("durability = \"{durability}\"\n{}", SETTINGS);
    let home = tempfile::tempdir_in(place()).unwrap();
    let mut cuts = 0;
    let mut records = 0;
    let mut ends = 0;
    while cuts < wanted {
        let (ledger, mut disk) = record(home.path(), &settings, &mut rng);
        let count = disk.count();
        // A cut between a new position and the sync of a file would seldom happen by chance, so half of them are near.
        let of_history = disk.moments_of("position");
        let mut moment = || match rng.pick(&of_history) {
            Some(begin) if rng.chance(50) => begin + rng.between(1, 12),
            _ => 1 + rng.below(count),
        };
        let cuts_of_it = CUTS_OF_A_RECORD.min(wanted - cuts);
        let mut moments: Vec<u64> = (0..cuts_of_it).map(|_| moment()).collect();
        moments.sort_unstable();
        for event in moments {
            disk.go_to(event);
            let data = home.path().join("data");
            disk.cut(&mut rng).restore(&data).unwrap();
            println!("record {records}, cut {cuts} after event {event} of {count}");
            ends += check(
                home.path(),
                &settings,
                &ledger,
                disk.moment(),
                durability == "sync",
            );
            std::fs::remove_dir_all(&data).unwrap();
            cuts += 1;
        }
        records += 1;
    }
    println!("{durability}: {cuts} cuts of {records} records, {ends} ends found");
}

#[test]
fn each_acknowledged_end_is_in_the_history_once_after_a_power_cut() {
    cut("sync");
}

#[test]
fn with_an_interval_a_power_cut_takes_only_the_last_ends_and_the_history_is_not_ahead_of_the_store()
{
    cut("interval");
}
