//! Policies where jobs are in PostgreSQL, and another daemon takes the lead.

use super::daemons::{Daemons, role};
use crate::common::faktory::Fwp;
use crate::common::http::Http;
use crate::common::in_order::{InOrder, ORDERED};
use crate::common::postgres::Postgres;
use crate::common::wait_until;

#[test]
fn jobs_of_a_key_stay_in_order_and_never_overlap_through_fail_overs() {
    let postgres = Postgres::start();
    let mut daemons = Daemons::on(format!("{ORDERED}{}", postgres.section()));
    (0..2).for_each(|_| daemons.add(""));
    let address = |daemons: &Daemons, number: usize| daemons[number].address("gearman");
    let jobs = InOrder::submit(6, 30, vec![address(&daemons, 0), address(&daemons, 1)]);
    let workers: Vec<_> = [0, 1, 0, 1].map(|daemon| jobs.work(daemon)).into();
    for (leader, percent) in [(0, 25), (1, 60)] {
        jobs.wait_for(percent);
        daemons[leader].kill();
        jobs.killed(leader);
        wait_until("the other one leads", || {
            role(&daemons[1 - leader]) == "leading"
        });
        daemons[leader].restart();
        jobs.restarted(leader, address(&daemons, leader));
    }
    jobs.finish(workers);
}

#[test]
fn a_job_that_waits_for_the_run_before_it_does_so_under_the_next_leaders_too() {
    const LATEST: &str = "[queues.sync]\nkey.args = \"/0\"\ncoalesce = { by = \"key\" }\n";
    let postgres = Postgres::start();
    let mut daemons = Daemons::on(format!("{LATEST}{}", postgres.section()));
    (0..2).for_each(|_| daemons.add(""));
    let push = |n: u32| {
        format!(
            r#"PUSH {{"jid":"sync0000000{n}","queue":"sync","jobtype":"S","args":["acct",{n}]}}"#
        )
    };
    let count = |daemon: &Daemons, number: usize, state: &str| {
        let row = Http(daemon[number].address("http"))
            .get("/api/v1/queues/sync")
            .json();
        row["states"][state].as_u64()
    };
    // Its worker's daemon goes on when the leader ends, so its connection does, too.
    let mut worker = Fwp::connect(daemons[1].address("faktory"));
    assert_eq!(worker.ask(&push(1)), "+OK");
    assert!(worker.ask("FETCH sync").contains(r#"["acct",1]"#));
    assert_eq!(
        Fwp::connect(daemons[0].address("faktory")).ask(&push(2)),
        "+OK"
    );
    for (leader, next) in [(0, 1), (1, 0)] {
        daemons[leader].kill();
        wait_until("the other one leads", || role(&daemons[next]) == "leading");
        let mut client = Fwp::connect(daemons[next].address("faktory"));
        assert_eq!(
            client.ask("FETCH other"),
            "null",
            "workers have had time to come back"
        );
        assert_eq!(client.ask(&push(3)), "+OK", "it becomes the parked one");
        wait_until("one waits for the other", || {
            ["parked", "leased"].map(|it| count(&daemons, next, it)) == [Some(1); 2]
        });
        daemons[leader].restart();
        wait_until("it is linked", || role(&daemons[leader]) == "following");
    }
    // The worker's own daemon was killed last. A client may report the job over another connection.
    let mut worker = Fwp::connect(daemons[1].address("faktory"));
    assert_eq!(
        worker.ask("FETCH sync"),
        "null",
        "the first run is not over"
    );
    assert_eq!(worker.ask(r#"ACK {"jid":"sync00000001"}"#), "+OK");
    let job = std::iter::repeat_with(|| worker.ask("FETCH sync"))
        .find(|job| job != "null")
        .unwrap();
    assert!(job.contains(r#"["acct",3]"#), "{job}");
    assert_eq!(worker.ask(r#"ACK {"jid":"sync00000003"}"#), "+OK");
    wait_until("nothing is left", || {
        ["ready", "parked", "leased"]
            .iter()
            .all(|it| count(&daemons, 0, it) == Some(0))
    });
}
