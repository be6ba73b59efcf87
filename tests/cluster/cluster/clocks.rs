//! Daemons whose wall clocks differ from the database's: its time counts, whichever daemon leads.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use windlass_gearman::wire::{Kind, Request, Submission};
use windlass_testkit::daemon::Daemon;

use super::daemons::{Daemons, role};
use crate::common::http::Http;
use crate::common::postgres::Postgres;
use crate::common::{Peer, kind, wait_for_log, wait_until};

const HALF_AN_HOUR: Duration = Duration::from_secs(1_800);

/// Submits a job that is due half an hour ago by the daemons' clocks, and in half an hour by the database's.
fn submit_for_later(daemon: &Daemon, body: &str) {
    let when = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() - HALF_AN_HOUR;
    let job = Submission {
        function: "later".into(),
        unique: "".into(),
        workload: body.to_owned().into(),
    };
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    peer.send(&Request::SubmitEpoch {
        job,
        when_s: when.as_secs(),
    })
    .unwrap();
    assert_eq!(kind(&peer.packet().unwrap()), Kind::JOB_CREATED);
}

fn grab(daemon: &Daemon) -> Option<String> {
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    peer.can_do("later").unwrap();
    let job = peer.grab().unwrap()?;
    peer.complete(&job.handle).unwrap();
    Some(String::from_utf8_lossy(&job.workload).into_owned())
}

#[test]
fn daemons_that_are_an_hour_ahead_release_nothing_early() {
    let postgres = Postgres::start();
    postgres.set_clock("-1 hour");
    let mut daemons = Daemons::on(postgres.section());
    (0..2).for_each(|_| daemons.add(""));
    for number in 0..2 {
        wait_for_log(
            &daemons[number],
            "the wall clock differs from the database's",
        );
        let cluster = Http(daemons[number].address("http"))
            .get("/api/v1/cluster")
            .json();
        let ahead_ms = cluster["clock_ahead_ms"].as_i64().unwrap();
        assert!((3_590_000..=3_610_000).contains(&ahead_ms), "{cluster}");
    }
    submit_for_later(&daemons[1], "at an edge");
    assert_eq!(
        grab(&daemons[0]),
        None,
        "it is not due by the database's clock"
    );
    daemons[0].kill();
    wait_until("the other one leads", || role(&daemons[1]) == "leading");
    submit_for_later(&daemons[1], "at a leader");
    assert_eq!(
        grab(&daemons[1]),
        None,
        "it is not due for a successor either"
    );
    // The leader follows the database, and both are due.
    postgres.set_clock("0");
    for body in ["at an edge", "at a leader"] {
        wait_until("it is due", || {
            let found = grab(&daemons[1]);
            assert!(
                found.as_deref().is_none_or(|found| found == body),
                "{found:?}"
            );
            found.is_some()
        });
    }
    wait_for_log(
        &daemons[1],
        "the wall clock agrees with the database's again",
    );
}
