//! Stock clients against the daemon. `tests/install-clients` installs them.
//!
//! Debian's programs have tests of their own, `gearman.rs` and `gearadmin.rs`. All libraries play the same scenes
//! (`scenes.rs`), through a small program around each (`peers.rs` describes its protocol).
//!
//! A missing client is a failure, never a skip.
#![cfg(test)]
#![allow(unreachable_pub, reason = "the modules are this program's own")]

#[path = "interop/bridge.rs"]
mod bridge;
#[path = "interop/client.rs"]
mod client;
mod common;
#[path = "interop/gearadmin.rs"]
mod gearadmin;
#[path = "interop/gearman.rs"]
mod gearman;
#[path = "interop/peers.rs"]
mod peers;
#[path = "interop/programs.rs"]
mod programs;
#[path = "interop/scenes.rs"]
mod scenes;
#[path = "interop/stage.rs"]
mod stage;

/// A test for every library and scene.
macro_rules! interop {
    ($($library:ident, $stock:ident $(, and $more:ident)*;)*) => {
        $(interop! { $library, $stock: foreground background priorities coalescing status exceptions streaming
            worker_death large in_flight serves_every_client $($more)* })*
    };
    ($library:ident, $stock:ident: $($scene:ident)*) => {
        mod $library {
            $(#[test]
            fn $scene() {
                crate::scenes::$scene(&crate::peers::$stock);
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
    scenes::two_writes(&peers::GEARMANODE);
}
