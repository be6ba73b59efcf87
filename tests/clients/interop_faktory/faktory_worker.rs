//! The scenes of `faktory_worker_peer.py`, which hashes its password once and sends no version.

use super::served::Served;
use crate::client::python;

fn play(served: &Served) {
    served.play(|| python("interop/faktory_worker_peer.py"), "work");
}

#[test]
fn plain() {
    play(&Served::plainly());
}

#[test]
fn password() {
    play(&Served::with_password("open-sesame"));
}

#[test]
fn wrong_password() {
    Served::with_password("open-sesame")
        .play(|| python("interop/faktory_worker_peer.py"), "refused");
}

#[test]
fn tls() {
    play(&Served::over_tls("open-sesame"));
}
