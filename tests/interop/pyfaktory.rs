//! The scenes of `pyfaktory_peer.py`.

use std::process::Command;

use crate::common::daemon;
use crate::{installed, run, top};

/// Plays a scene with a daemon that wants a password, or `""` for none.
fn play(scene: &str, password: &str) {
    let dir = tempfile::tempdir().unwrap();
    let faktory = format!("[faktory]\nlisten = [\"127.0.0.1:0\"]\npassword = {password:?}");
    let daemon = daemon(dir.path()).set(&faktory).start();
    let url = format!("tcp://:{password}@{}", daemon.address("faktory"));
    let mut peer = Command::new(installed("python/bin/python"));
    peer.env("PYTHONDONTWRITEBYTECODE", "1").arg(top().join("tests/interop/pyfaktory_peer.py")).args([&url, scene]);
    let (well, said) = run(&mut peer);
    assert!(well, "{said}\n{}", daemon.log_text());
}

#[test]
fn password() {
    play("push_fetch_ack", "open-sesame");
}

/// A test for every scene.
macro_rules! scenes {
    ($($scene:ident)*) => {
        $(#[test]
        fn $scene() {
            play(stringify!($scene), "");
        })*
    };
}

scenes! { push_fetch_ack bulk refused fail beat mutations queues scheduled info consumer }
