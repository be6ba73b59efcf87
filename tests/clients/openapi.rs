//! A client that a stock generator makes of the OpenAPI document. `tests/install-clients` installs the generator.

use std::process::Command;

use crate::client::{installed, run, top};
use crate::common;

#[test]
fn a_generated_client_plays_the_life_of_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let mut generator = Command::new(installed("openapi/bin/openapi-python-client"));
    generator.args(["generate", "--meta", "none", "--fail-on-warning"]);
    generator
        .arg("--path")
        .arg(top().join("crates/http/openapi.json"));
    generator
        .arg("--output-path")
        .arg(dir.path().join("windlass_api"));
    // It formats what it has generated with a program beside it.
    generator.env("PATH", installed("openapi/bin"));
    let (generated, said) = run(&mut generator);
    assert!(generated, "{said}");

    let daemon = common::daemon(dir.path()).start();
    let mut peer = Command::new(installed("openapi/bin/python"));
    peer.arg(top().join("tests/clients/interop/openapi_peer.py"))
        .arg(dir.path());
    peer.arg(format!("http://{}", daemon.address("http")));
    let (played, said) = run(&mut peer);
    assert!(played, "{said}");
}
