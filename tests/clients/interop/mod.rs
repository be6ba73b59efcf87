//! Stock clients against the daemon. `tests/install-clients` installs them.
//!
//! Debian's programs have tests of their own, `gearman.rs` and `gearadmin.rs`. All libraries play the same scenes
//! (`scenes.rs`), through a small program around each (`peers.rs` describes its protocol).
//!
//! A missing client is a failure, never a skip.

mod bridge;
mod gearadmin;
mod gearman;
mod peers;
mod scenes;
mod stage;

use std::path::Path;
use std::process::Command;

use crate::common::namespaces;

/// Plays a scene in the namespaces of a daemon at once.
fn play(stock: &peers::Stock, name: &str, scene: fn(&peers::Stock, &stage::Place)) {
    let stage = stage::Stage::in_namespaces(scenes::sections(name));
    namespaces::at_once(&stage.places(), |place| scene(stock, place));
}

/// A test for every library and scene.
macro_rules! interop {
    ($($library:ident, $stock:ident $(, and $more:ident)*;)*) => {
        $(interop! { $library, $stock: foreground background priorities coalescing repeats bursts status exceptions streaming
            worker_death large in_flight serves_every_client $($more)* })*
    };
    ($library:ident, $stock:ident: $($scene:ident)*) => {
        mod $library {
            $(#[test]
            fn $scene() {
                super::play(&super::peers::$stock, stringify!($scene), super::scenes::$scene);
            })*
        }
    };
}

interop! {
    gear, GEAR, and administration, and two_writes;
    python3_gearman, PYTHON3_GEARMAN;
    perl, PERL;
    libgearman, LIBGEARMAN;
    crate_gearman, CRATE, and administration, and status_by_unique;
}

#[test]
fn gearmanode_two_writes() {
    play(&peers::GEARMANODE, "two_writes", scenes::two_writes);
}

/// A handle never leaves together with the result of its job.
#[test]
fn aiogear_finds_the_result_of_every_job() {
    let (stage, top) = (
        stage::Stage::new(),
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."),
    );
    let mut program = Command::new(top.join("target/clients/python/bin/python"));
    program.arg(top.join("tests/clients/interop/aiogear_peer.py"));
    program.args([
        stage.address().ip().to_string(),
        stage.address().port().to_string(),
    ]);
    assert_eq!(crate::programs::printed(&mut program, b""), "20 of 20\n");
}
