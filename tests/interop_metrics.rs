//! Prometheus' own tool on `/metrics`, and on the alerts.
#![cfg(test)]

mod common;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::Peer;
use common::http::Http;

fn promtool() -> Command {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../target/clients/promtool"].iter().collect();
    assert!(path.exists(), "{} is missing: tests/install-clients installs it", path.display());
    Command::new(path)
}

#[test]
fn the_page_is_as_prometheus_wants_it() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path()).start();
    let (http, mut peer) = (Http(daemon.address("http")), Peer::connect(daemon.address("gearman")).unwrap());
    for queue in ["plain", "with \"quotes\" and \\", "line\nend", "\u{fc}"] {
        peer.submit(queue, "", "x").unwrap();
    }
    peer.can_do("plain").unwrap();
    let job = peer.grab().unwrap().unwrap();
    peer.complete(&job.handle).unwrap();
    let page = http.get("/metrics");
    let mut child = promtool()
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&page.body).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && said.is_empty(), "{}\n{}", String::from_utf8_lossy(&said), page.text());
}

#[test]
fn the_alerts_fire_when_they_should() {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config");
    let output = promtool().args(["test", "rules"]).arg(config.join("alerts_test.yml")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&[output.stdout, output.stderr].concat()));
}
