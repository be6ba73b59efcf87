//! Debian's `gearadmin`: every command it has.

use windlass_gearman::wire::Request;

use super::stage::Stage;
use crate::common::{Peer, wait_until};
use crate::programs::{admin, run, stock};

/// The error of a refused command.
fn refused(stage: &Stage, command: &[&str]) -> String {
    let output = run(stock("gearadmin", stage.address()).args(command), b"");
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr)
        .unwrap()
        .trim_end()
        .to_owned()
}

#[test]
fn the_server() {
    let stage = Stage::new();
    assert_eq!(admin(stage.address(), &["--server-version"]), "1.1.20\n");
    assert_eq!(admin(stage.address(), &["--server-verbose"]), "INFO\n");
    assert_eq!(
        admin(stage.address(), &["--getpid"]),
        format!("{}\n", stage.daemon.pid())
    );
}

#[test]
fn functions() {
    let stage = Stage::new();
    assert_eq!(
        admin(stage.address(), &["--create-function", "paint"]),
        "OK\n"
    );
    assert_eq!(admin(stage.address(), &["--status"]), "paint\t0\t0\t0\n.\n");
    assert_eq!(
        admin(stage.address(), &["--drop-function", "paint"]),
        "OK\n"
    );
    assert_eq!(admin(stage.address(), &["--status"]), ".\n");
    assert_eq!(
        refused(&stage, &["--drop-function", "paint"]),
        "Error: function not found"
    );
    let mut worker = Peer::connect(stage.address()).unwrap();
    worker.can_do("paint").unwrap();
    worker.grab().unwrap();
    let busy = "Error: there are still connected workers or executing clients";
    assert_eq!(refused(&stage, &["--drop-function", "paint"]), busy);
}

#[test]
fn workers() {
    let stage = Stage::new();
    let mut worker = Peer::connect(stage.address()).unwrap();
    worker.can_do("paint").unwrap();
    worker.can_do("glue").unwrap();
    worker
        .send(&Request::SetClientId {
            id: "painter 1".into(),
        })
        .unwrap();
    worker.grab().unwrap();
    let workers = admin(stage.address(), &["--workers"]);
    let row = workers
        .lines()
        .find(|line| line.ends_with(" 127.0.0.1 painter 1 : glue paint"));
    assert!(row.is_some() && workers.ends_with("\n.\n"), "{workers}");
}

#[test]
fn jobs() {
    let stage = Stage::new();
    let mut peer = Peer::connect(stage.address()).unwrap();
    let handles: Vec<_> = ["red", "green", "blue"]
        .map(|unique| {
            String::from_utf8(peer.submit("paint", unique, "wall").unwrap().to_vec()).unwrap()
        })
        .into();
    peer.can_do("paint").unwrap();
    peer.grab().unwrap().unwrap();
    assert_eq!(admin(stage.address(), &["--status"]), "paint\t3\t1\t1\n.\n");
    assert_eq!(
        admin(stage.address(), &["--priority-status"]),
        "paint\t0\t2\t0\t1\n.\n"
    );
    let rows: String = handles
        .iter()
        .rev()
        .map(|handle| format!("{handle}\t0\t0\t1\n"))
        .collect();
    assert_eq!(admin(stage.address(), &["--show-jobs"]), rows + ".\n");
    assert_eq!(
        admin(stage.address(), &["--show-unique-jobs"]),
        "blue\ngreen\nred\n.\n"
    );
    assert_eq!(
        admin(stage.address(), &["--cancel-job", &handles[2]]),
        "OK\n"
    );
    assert_eq!(
        admin(stage.address(), &["--show-unique-jobs"]),
        "green\nred\n.\n"
    );
    assert_eq!(
        refused(&stage, &["--cancel-job", &handles[2]]),
        "Error: UNKNOWN_JOB"
    );
    // After its worker is gone, the job waits again, and the output shows that it was delivered before.
    drop(peer);
    wait_until("the job waits again", || {
        admin(stage.address(), &["--show-jobs"])
            == format!("{}\t0\t0\t1\n{}\t1\t0\t1\n.\n", handles[1], handles[0])
    });
    assert_eq!(
        admin(stage.address(), &["--priority-status"]),
        "paint\t0\t2\t0\t0\n.\n"
    );
}
