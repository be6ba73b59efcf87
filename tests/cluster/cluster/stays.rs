//! What clients of a daemon keep, whatever happens to the leader, to the database and to the links: their connections,
//! the jobs that they have, and the results that they wait for.

use std::thread;
use std::time::Duration;

use windlass_gearman::wire::{Kind, Report, Request, Response};
use windlass_testkit::daemon::{Daemon, free_port};

use super::cut::Relay;
use super::daemons::{Daemons, role};
use crate::common::faktory::Fwp;
use crate::common::http::Http;
use crate::common::postgres::Postgres;
use crate::common::{Peer, from_env, kind, submission, wait_for_log, wait_until};

/// Clients of one daemon.
struct Guests {
    name: String,
    /// Sleeps until there is work.
    sleeper: Peer,
    fwp: Fwp,
    /// Has a job, whose client waits for the result.
    worker: Peer,
    handle: bytes::Bytes,
    client: Peer,
}

impl Guests {
    fn at(daemon: &Daemon, name: &str) -> Self {
        let peer = || Peer::connect(daemon.address("gearman")).unwrap();
        let (mut sleeper, mut worker, mut client) = (peer(), peer(), peer());
        sleeper.can_do(&format!("idle{name}")).unwrap();
        sleeper.send(&Request::PreSleep).unwrap();
        let mut fwp = Fwp::connect(daemon.address("faktory"));
        assert_eq!(fwp.ask("FETCH nothing"), "null");
        worker.can_do(&format!("held{name}")).unwrap();
        client
            .send(&submission(&format!("held{name}"), "", "abc", false))
            .unwrap();
        assert_eq!(kind(&client.packet().unwrap()), Kind::JOB_CREATED);
        let handle = worker.grab().unwrap().unwrap().handle;
        Self {
            name: name.to_owned(),
            sleeper,
            fwp,
            worker,
            handle,
            client,
        }
    }

    /// All of them go on where they were. Another client submits `from` there.
    fn go_on(mut self, from: &Daemon) {
        let name = &self.name;
        assert_eq!(self.fwp.ask("FETCH nothing"), "null", "{name}");
        let mut other = Peer::connect(from.address("gearman")).unwrap();
        other.can_do(&format!("held{name}")).unwrap();
        assert!(
            other.grab().unwrap().is_none(),
            "{name}: the job goes to another worker"
        );
        // Right after an outage the leader's first commit may fail.
        wait_until("a job is pushed", || {
            other.submit(&format!("idle{name}"), "", "wake up").is_ok()
        });
        assert_eq!(kind(&self.sleeper.packet().unwrap()), Kind::NOOP, "{name}");
        assert_eq!(self.sleeper.grab().unwrap().unwrap().workload, "wake up");
        self.worker
            .send(&Request::Work {
                handle: self.handle,
                report: Report::Complete("cba".into()),
            })
            .unwrap();
        let result = self.client.packet().unwrap();
        assert!(
            matches!(
                Response::parse(&result),
                Ok(Response::Work {
                    report: Report::Complete(b"cba"),
                    ..
                })
            ),
            "{name}"
        );
    }
}

/// How often a daemon has linked itself to a leader.
fn links(daemon: &Daemon) -> usize {
    daemon.log_text().matches("connected to the leader").count()
}

/// More rounds: `WINDLASS_TEST_YIELDS`.
#[test]
fn a_leader_that_yields_closes_no_client_of_another_daemon() {
    let daemons = Daemons::start(3);
    let all = || {
        (0..3)
            .map(|number| role(&daemons[number]))
            .collect::<Vec<_>>()
    };
    for round in 0..from_env("WINDLASS_TEST_YIELDS", 3) {
        let mut roles = all();
        wait_until("one daemon leads, and the others are linked to it", || {
            roles = all();
            roles.iter().filter(|it| *it == "following").count() == 2
                && roles.iter().any(|it| it == "leading")
        });
        let leader = roles.iter().position(|it| it == "leading").unwrap();
        let others = (0..3).filter(|number| *number != leader);
        let guests: Vec<_> = others
            .map(|number| {
                (
                    Guests::at(&daemons[number], &format!("{round}_{number}")),
                    number,
                )
            })
            .collect();
        wait_until("the leader yields", || {
            Http(daemons[leader].address("http")).post("/api/v1/cluster/yield", "");
            role(&daemons[leader]) == "following"
        });
        guests
            .into_iter()
            .for_each(|(guests, number)| guests.go_on(&daemons[number]));
    }
    for number in 0..3 {
        let log = daemons[number].log_text();
        assert!(
            !log.contains("close_notify") && !log.contains("ERROR"),
            "{log}"
        );
    }
}

/// The database is killed, and started again. Longer: `WINDLASS_TEST_OUTAGE_MS`.
#[test]
fn no_client_is_closed_while_the_database_is_away() {
    let mut postgres = Postgres::start();
    let daemons = Daemons::with_lease(postgres.section(), "800ms");
    outage(daemons, &mut postgres, Postgres::kill, Postgres::restart);
}

/// It does later all that it was asked meanwhile.
#[test]
fn no_client_is_closed_while_the_database_stands_still() {
    let mut postgres = Postgres::start();
    let relay = Relay::to(postgres.port());
    let far = postgres
        .section()
        .replace(&postgres.port().to_string(), &relay.port().to_string());
    let daemons = Daemons::with_lease(far, "800ms");
    outage(
        daemons,
        &mut postgres,
        |_| relay.silence(true),
        |_| relay.silence(false),
    );
}

fn outage(
    mut daemons: Daemons,
    postgres: &mut Postgres,
    begin: impl FnOnce(&mut Postgres),
    end: impl FnOnce(&mut Postgres),
) {
    let length = Duration::from_millis(from_env("WINDLASS_TEST_OUTAGE_MS", 4_000));
    (0..3).for_each(|_| daemons.add(""));
    let guests: Vec<_> = (0..3)
        .map(|number| Guests::at(&daemons[number], &number.to_string()))
        .collect();
    begin(postgres);
    let ready = |number: usize| Http(daemons[number].address("http")).get("/readyz").status;
    wait_until("no daemon is ready", || {
        (0..3).all(|number| ready(number) == 503)
    });
    thread::sleep(length);
    assert!((0..3).all(|number| Http(daemons[number].address("http")).get("/livez").status == 200));
    end(postgres);
    wait_until("all daemons are ready", || {
        (0..3).all(|number| ready(number) == 200)
    });
    assert_eq!(
        postgres.number("SELECT epoch FROM windlass.lease"),
        1,
        "another daemon has taken the lease"
    );
    for (number, guests) in guests.into_iter().enumerate() {
        guests.go_on(&daemons[(number + 1) % 3]);
    }
    assert_eq!(
        [1, 2].map(|number| links(&daemons[number])),
        [1, 1],
        "{}",
        daemons.said_last()
    );
}

#[test]
fn a_link_that_is_made_again_closes_no_client() {
    let postgres = Postgres::start();
    let (mut daemons, mut relays) = (Daemons::on(postgres.section()), Vec::new());
    for _ in 0..2 {
        let port = free_port();
        relays.push(Relay::to(port));
        let address = format!("address = \"127.0.0.1:{}\"", relays.last().unwrap().port());
        let plan = daemons.plan(port, &address);
        daemons.start_one(plan);
    }
    let guests = Guests::at(&daemons[1], "edge");
    for number in 2..5 {
        relays[0].cut();
        wait_until("it is linked again", || {
            links(&daemons[1]) == number && role(&daemons[1]) == "following"
        });
    }
    wait_for_log(&daemons[0], "\"again\":true");
    guests.go_on(&daemons[0]);
}

/// The leader lives, but only its edges know that: they find its successor in the database.
#[test]
fn edges_leave_a_leader_that_cannot_reach_the_database() {
    let postgres = Postgres::start();
    let relay = Relay::to(postgres.port());
    let far = postgres
        .section()
        .replace(&postgres.port().to_string(), &relay.port().to_string());
    let mut daemons = Daemons::with_lease(far, "2s");
    daemons.add("");
    daemons.store = postgres.section();
    (0..2).for_each(|_| daemons.add(""));
    let guests: Vec<_> = [1, 2]
        .map(|number| (Guests::at(&daemons[number], &number.to_string()), number))
        .into();
    relay.silence(true);
    wait_until(
        "another daemon leads, and the third is linked to it",
        || {
            let roles = [1, 2].map(|number| role(&daemons[number]));
            roles.contains(&"leading".to_owned()) && roles.contains(&"following".to_owned())
        },
    );
    wait_until("the third has left the one before", || {
        [1, 2].iter().any(|number| links(&daemons[*number]) == 2)
    });
    guests
        .into_iter()
        .for_each(|(guests, number)| guests.go_on(&daemons[3 - number]));
    relay.silence(false);
    wait_until("the deposed one follows", || {
        role(&daemons[0]) == "following"
    });
    assert!(
        !daemons[0]
            .log_text()
            .contains("no acknowledged change is lost"),
        "{}",
        daemons[0].log_text()
    );
}

/// With this lease a grace of its whole length would outlast the test.
#[test]
fn jobs_are_handed_out_as_soon_as_all_edges_have_claimed() {
    let postgres = Postgres::start();
    let mut daemons = Daemons::with_lease(postgres.section(), "10m");
    (0..3).for_each(|_| daemons.add(""));
    let mut worker = Peer::connect(daemons[2].address("gearman")).unwrap();
    worker.can_do("work").unwrap();
    worker.submit("work", "", "held").unwrap();
    worker.submit("work", "", "next").unwrap();
    let held = worker.grab().unwrap().unwrap();
    daemons[0].signal("TERM");
    assert!(daemons[0].wait().success(), "{}", daemons[0].log_text());
    wait_until("another one leads", || {
        (1..3).any(|at| role(&daemons[at]) == "leading")
    });
    let mut other = Peer::connect(daemons[1].address("gearman")).unwrap();
    other.can_do("work").unwrap();
    let next = other.grab().unwrap().unwrap();
    assert_eq!(
        (&*held.workload, &*next.workload),
        (&b"held"[..], &b"next"[..])
    );
    assert!(
        other.grab().unwrap().is_none(),
        "its worker has claimed the other one"
    );
}
