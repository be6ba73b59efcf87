//! The released Python programs of EventMQ against the daemon, unmodified. `tests/install-clients` installs them.
//!
//! The stock JobManager works on `tasks.py`; the stock client and scheduler request jobs. pyzmq, which is libzmq, sends
//! messages that the stock programs never send, and acts as workers where a test must see details. All programs are
//! child processes that a scene directs.
//!
//! A missing program is a failure, never a skip.

/// Tests that play scenes in three namespaces of a daemon at once.
macro_rules! in_namespaces {
    ($($scene:ident)*) => {
        mod in_namespaces {
            $(#[test]
            fn $scene() {
                let stages = super::Stage::in_namespaces();
                crate::common::namespaces::at_once(&stages, super::$scene);
            })*
        }
    };
}

mod admin;
mod bridge;
mod crashes;
mod hostile;
mod jobs;
mod peers;
mod publish;
mod routing;
mod schedules;
mod stage;
