//! Stock ZeroMQ against the daemon: pyzmq, which is libzmq. `tests/install-clients` installs it.
//!
//! It plays scenes of ours (`spiderq_peer.py`), over TCP and a Unix socket, in both dialects, each with a daemon of its
//! own.
//!
//! A missing client is a failure, never a skip.

use std::path::Path;

use windlass_testkit::daemon::Daemon;

use crate::client::{python, run};
use crate::common::daemon;

/// The daemon's transport, and the clients' dialect.
struct Stage {
    transport: &'static str,
    dialect: &'static str,
    /// Further keys of `[spiderq]`. Without a `dialect` among them the daemon detects the dialect.
    keys: &'static str,
}

impl Stage {
    fn listen(&self, dir: &Path) -> String {
        match self.transport {
            "tcp" => "tcp://127.0.0.1:0".to_owned(),
            transport => format!("{transport}://{}", dir.join("spiderq.ipc").display()),
        }
    }

    fn address(&self, daemon: &Daemon, dir: &Path) -> String {
        match self.transport {
            "tcp" => format!("tcp://{}", daemon.address("spiderq")),
            _ => self.listen(dir),
        }
    }

    /// Runs a client's scene, and asserts that it succeeds.
    fn play(&self, scene: &str, login: &[&str]) -> (Daemon, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let listen = format!("listen = [{:?}]", self.listen(dir.path()));
        let daemon = daemon(dir.path())
            .set(&format!("[spiderq]\n{listen}\n{}", self.keys))
            .start();
        let mut client = python("interop/spiderq_peer.py");
        client
            .args([&self.address(&daemon, dir.path()), self.dialect, scene])
            .args(login);
        let (well, said) = run(&mut client);
        assert!(well, "{said}\n{}", daemon.log_text());
        (daemon, dir)
    }
}

/// A test for every scene on every stage.
macro_rules! interop {
    ($($name:ident: $transport:literal $dialect:literal $keys:literal;)*) => {
        $(interop! { $name $transport $dialect $keys: a_life bytes_of_any_kind faults places rewards_add_up leases_end
            times_that_are_hardly_any those_who_wait those_who_leave envelopes many_at_once stats removal
            terminate_is_for_those_who_may heartbeats handover })*
    };
    ($name:ident $transport:literal $dialect:literal $keys:literal: $($scene:ident)*) => {
        mod $name {
            use super::Stage;

            const STAGE: Stage = Stage { transport: $transport, dialect: $dialect, keys: $keys };

            $(#[test]
            fn $scene() {
                STAGE.play(stringify!($scene), &[]);
            })*
        }
    };
}

interop! {
    tcp_1_3: "tcp" "1.3" "";
    tcp_1_4: "tcp" "1.4" "";
    ipc_1_3: "ipc" "1.3" "dialect = '1.3'";
    ipc_1_4: "ipc" "1.4" "dialect = '1.4'";
}

#[test]
fn an_allowed_client_stops_the_daemon() {
    let (mut daemon, dir) = Stage {
        transport: "ipc",
        dialect: "1.3",
        keys: "terminate = true",
    }
    .play("terminate", &[]);
    assert!(daemon.wait().success());
    assert!(
        !dir.path().join("spiderq.ipc").exists(),
        "nothing is left of the socket"
    );
}

#[test]
fn a_password_is_required() {
    let stage = Stage {
        transport: "tcp",
        dialect: "1.4",
        keys: "user = \"u\"\npassword = \"secret\"",
    };
    stage.play("login", &["u", "secret"]);
    for login in [&[][..], &["u", "wrong"], &["v", "secret"]] {
        stage.play("no_login", login);
    }
}

#[test]
fn a_login_without_a_configured_password_fails() {
    Stage {
        transport: "tcp",
        dialect: "1.4",
        keys: "",
    }
    .play("no_login", &["u", "secret"]);
}
