//! Prometheus' own tool on `/metrics`, and on the alerts.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bytes::BytesMut;

use crate::common;
use crate::common::http::{Answer, Http};
use crate::common::{Peer, submission};

fn promtool() -> Command {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../target/clients/promtool"]
        .iter()
        .collect();
    assert!(
        path.exists(),
        "{} is missing: tests/install-clients installs it",
        path.display()
    );
    Command::new(path)
}

#[test]
fn the_page_is_as_prometheus_wants_it() {
    const QUEUES: usize = 10_000;
    const AT_ONCE: usize = 1_000;
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path()).start();
    let (http, mut peer) = (
        Http(daemon.address("http")),
        Peer::connect(daemon.address("gearman")).unwrap(),
    );
    for queue in ["plain", "with \"quotes\" and \\", "line\nend", "\u{fc}"] {
        peer.submit(queue, "", "x").unwrap();
    }
    peer.can_do("plain").unwrap();
    let job = peer.grab().unwrap().unwrap();
    peer.complete(&job.handle).unwrap();
    let page = http.get("/metrics");
    check(&page);
    let before = series(&page);

    // Ten thousand queues have the series of the bound, and those of all others together.
    for first in (0..QUEUES).step_by(AT_ONCE) {
        let mut many = BytesMut::new();
        (0..AT_ONCE).for_each(|n| {
            submission(&format!("queue-{}", first + n), "", "x", true).encode(&mut many)
        });
        peer.send_raw(&many).unwrap();
        (0..AT_ONCE).for_each(|_| drop(peer.packet().unwrap()));
    }
    let page = http.get("/metrics");
    check(&page);
    let of = |label: &str| {
        page.text()
            .lines()
            .filter(|line| line.contains(label))
            .count()
    };
    let name = |line: &str| {
        line.split_once("{queue=\"")?
            .1
            .split_once("\",")
            .map(|(name, _)| name.to_owned())
    };
    let names: BTreeSet<String> = page.text().lines().filter_map(name).collect();
    assert_eq!(names.len(), QUEUES_MAX + 1, "{names:?}");
    let most = before + (QUEUES_MAX + 1) * of("queue=\"_other\"");
    assert!(
        series(&page) <= most,
        "{} series, {most} at most",
        series(&page)
    );
}

/// The default of `metrics.queues_max`.
const QUEUES_MAX: usize = 200;

/// Lines with values.
fn series(page: &Answer) -> usize {
    page.text()
        .lines()
        .filter(|line| !line.starts_with('#'))
        .count()
}

/// Lets Prometheus' own tool look at a page.
#[track_caller]
fn check(page: &Answer) {
    let mut command = promtool();
    command
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(&page.body).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(
        output.status.success() && said.is_empty(),
        "{}\n{}",
        String::from_utf8_lossy(&said),
        page.text()
    );
}

#[test]
fn the_alerts_fire_when_they_should() {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config");
    let output = promtool()
        .args(["test", "rules"])
        .arg(config.join("alerts_test.yml"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat())
    );
}
