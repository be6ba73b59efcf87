//! Few open files: connections get what the store and the other parts of the daemon leave.

use windlass_testkit::daemon::Daemon;

use crate::common::http::Http;
use crate::common::{Peer, daemon, wait_for_log};

const MIB: usize = 1 << 20;

/// A daemon whose system allows it this many open files. `None`: the tests may not take the right to have more away.
fn limited(dir: &std::path::Path, open_files: u32) -> Option<Daemon> {
    let mut plan = daemon(dir).ulimit(&format!("-n {open_files}"));
    if rustix::process::geteuid().is_root() {
        let without = ["setpriv", "--bounding-set", "-sys_resource"];
        std::process::Command::new(without[0])
            .args(&without[1..])
            .arg("true")
            .status()
            .ok()
            .filter(|it| it.success())?;
        plan = plan.through(&without);
    }
    Some(plan.start())
}

#[test]
fn connections_leave_open_files_to_the_store() {
    const CONNECTIONS: usize = 500;
    let dir = tempfile::tempdir().unwrap();
    let Some(daemon) = limited(dir.path(), 256) else {
        return;
    };
    let mut first = Peer::connect(daemon.address("gearman")).unwrap();
    assert!(first.line("version").unwrap().starts_with("OK "));
    let mut served: Vec<Peer> = (0..CONNECTIONS)
        .filter_map(|_| {
            let mut peer = Peer::connect(daemon.address("gearman")).ok()?;
            // Binary, so that none has the place of an administrator.
            peer.can_do("f").ok()?;
            peer.grab().is_ok_and(|job| job.is_none()).then_some(peer)
        })
        .collect();
    assert!((90..256).contains(&served.len()), "{}", served.len());
    wait_for_log(
        &daemon,
        "the limit on open files (ulimit -n) leaves fewer connections than server.connections_max",
    );
    wait_for_log(&daemon, ": open files (ulimit -n)\"");
    // Segments of the log are opened meanwhile.
    for number in 0..64 {
        first.submit("large", "", vec![number; MIB]).unwrap();
    }
    let http: Vec<u16> = (0..10)
        .map(|_| Http(daemon.address("http")).get("/metrics").status)
        .collect();
    assert_eq!(http, [200; 10]);
    let mut again = served.pop().unwrap();
    again.submit("small", "", "x").unwrap();
    assert!(
        !daemon.log_text().contains("could not accept"),
        "{}",
        daemon.log_text()
    );
}
