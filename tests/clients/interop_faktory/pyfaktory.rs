//! The scenes of `pyfaktory_peer.py`.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use super::served::Served;
use crate::client::python;
use crate::common::daemon;
use crate::common::faktory::Fwp;

fn play(scene: &str) {
    Served::plainly().play(|| python("interop/pyfaktory_peer.py"), scene);
}

/// A test for every scene.
macro_rules! scenes {
    ($($scene:ident)*) => {
        $(#[test]
        fn $scene() {
            play(stringify!($scene));
        })*
    };
}

scenes! { push_fetch_ack bulk refused fail beat mutations queues scheduled info consumer }

#[test]
fn password() {
    Served::with_password("open-sesame")
        .play(|| python("interop/pyfaktory_peer.py"), "push_fetch_ack");
}

#[test]
fn tls() {
    Served::over_tls("open-sesame").play(|| python("interop/pyfaktory_peer.py"), "push_fetch_ack");
}

/// The number of concurrent producers in the scene `produce`.
const PRODUCERS: usize = 4;

#[test]
fn acknowledged_jobs_survive_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path()).start();
    let url = format!("tcp://{}", daemon.address("faktory"));
    let mut producers: Command = python("interop/pyfaktory_peer.py");
    let mut producers = producers
        .args([&url, "produce"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(producers.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let mut acknowledged: HashSet<String> = lines.by_ref().take(200).collect();
    assert_eq!(acknowledged.len(), 200);
    daemon.kill();
    acknowledged.extend(lines);
    assert!(producers.wait().unwrap().success());

    daemon.restart();
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    let mut found = HashSet::new();
    loop {
        let answer = fwp.ask("FETCH q");
        if answer == "null" {
            break;
        }
        let (_, jid) = answer.split_once("\"jid\":\"").unwrap();
        let jid = jid.split('"').next().unwrap().to_owned();
        assert!(found.insert(jid), "twice: {answer}");
    }
    let lost: Vec<_> = acknowledged.difference(&found).collect();
    assert!(
        lost.is_empty(),
        "{} of {}: {lost:?}",
        lost.len(),
        acknowledged.len()
    );
    // Jobs in transit may or may not be there.
    assert!(
        found.len() <= acknowledged.len() + PRODUCERS,
        "{} for {}",
        found.len(),
        acknowledged.len()
    );
}
