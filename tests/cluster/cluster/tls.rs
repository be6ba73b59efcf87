//! Links over TLS: each daemon shows a certificate, and one authority must have signed them all.

use std::fs;
use std::path::Path;

use windlass_testkit::daemon::free_port;

use super::daemons::{Daemons, role};
use crate::common::authority::{Authority, Identity};
use crate::common::postgres::Postgres;
use crate::common::{Peer, wait_for_log, wait_until};

/// The section that makes a daemon show this certificate, and trust this authority.
fn section(dir: &Path, shown: &Identity, trusted: &Authority) -> String {
    let write = |name: &str, text: &str| {
        let path = dir.join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let certificate = write("daemon.crt", &shown.certificate);
    let (key, ca) = (
        write("daemon.key", &shown.key),
        write("ca.crt", &trusted.certificate),
    );
    format!("[cluster.tls]\ncertificate = {certificate:?}\nkey = {key:?}\nclient_ca = {ca:?}\n")
}

/// Adds a daemon with a certificate of an authority. It need not trust that one.
fn add(daemons: &mut Daemons, signed_by: &Authority, trusted: &Authority, is_linked: bool) {
    let port = free_port();
    let (plan, dir) = daemons.plan(port, "");
    let plan = plan.set(&section(dir.path(), &signed_by.sign("127.0.0.1"), trusted));
    if is_linked {
        daemons.start_one((plan, dir));
    } else {
        daemons.all.push((plan.start(), dir));
    }
}

/// A job goes from one daemon to another. It has a function of its own: it may run again if the leader ends with its end.
fn crosses(daemons: &Daemons, from: usize, to: usize) {
    let body = format!("{from} to {to}");
    Peer::connect(daemons[from].address("gearman"))
        .unwrap()
        .submit(&body, "", body.clone())
        .unwrap();
    let mut worker = Peer::connect(daemons[to].address("gearman")).unwrap();
    worker.can_do(&body).unwrap();
    let mut job = None;
    wait_until("the job is handed out", || {
        job = worker.grab().unwrap();
        job.is_some()
    });
    let job = job.unwrap();
    assert_eq!(job.workload, body);
    worker.complete(&job.handle).unwrap();
    assert!(worker.grab().unwrap().is_none());
}

#[test]
fn links_over_tls_carry_jobs_and_outlive_a_leader() {
    let (postgres, authority) = (Postgres::start(), Authority::new());
    let mut daemons = Daemons::on(postgres.section());
    (0..3).for_each(|_| add(&mut daemons, &authority, &authority, true));
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        crosses(&daemons, from, to);
    }
    daemons[0].kill();
    wait_until(
        "another daemon leads, and the third is linked to it",
        || {
            let roles = [1, 2].map(|number| role(&daemons[number]));
            roles.contains(&"leading".to_owned()) && roles.contains(&"following".to_owned())
        },
    );
    crosses(&daemons, 1, 2);
    crosses(&daemons, 2, 1);
}

#[test]
fn a_daemon_with_a_certificate_of_another_authority_is_refused() {
    let (postgres, authority, other) = (Postgres::start(), Authority::new(), Authority::new());
    let mut daemons = Daemons::on(postgres.section());
    add(&mut daemons, &authority, &authority, true);
    // It trusts the leader, which does not trust it.
    add(&mut daemons, &other, &authority, false);
    wait_for_log(&daemons[0], "invalid peer certificate");
    wait_for_log(&daemons[1], "received fatal alert");
    // It does not trust the leader.
    add(&mut daemons, &authority, &other, false);
    wait_for_log(&daemons[2], "invalid peer certificate");
    // One without TLS.
    daemons.all.push({
        let (plan, dir) = daemons.plan(free_port(), "");
        (plan.start(), dir)
    });
    wait_for_log(&daemons[3], "disconnected from the leader");
    add(&mut daemons, &authority, &authority, true);
    crosses(&daemons, 0, 4);
    assert!((1..4).all(|number| role(&daemons[number]) == "seeking"));
    assert_eq!(
        daemons[0].log_text().matches("edge connected").count(),
        1,
        "none of them has linked"
    );
    let said = daemons[0].log_text().matches("edge rejected").count();
    assert!((1..60).contains(&said), "{said} lines");
}
