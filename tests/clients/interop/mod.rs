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
                super::scenes::$scene(&super::peers::$stock);
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
