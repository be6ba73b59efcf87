//! Stock ZeroMQ against the daemon: pyzmq, which is libzmq. `tests/install-clients` installs it.
//!
//! It plays scenes of ours (`spiderq_peer.py`), over TCP and a Unix socket, in both dialects, in three
//! namespaces of a daemon at once.
//!
//! A missing client is a failure, never a skip.

use std::path::Path;

use windlass_testkit::daemon::Daemon;

use crate::client::{python, run};
use crate::common::{daemon, namespaces};

/// The daemon's transport, and the clients' dialect.
struct Stage {
    transport: &'static str,
    dialect: &'static str,
    /// Further keys of `[spiderq]`. Without a `dialect` among them the daemon detects the dialect.
    keys: &'static str,
}

impl Stage {
    fn listen(&self, dir: &Path, namespace: &str) -> String {
        match self.transport {
            "tcp" => "tcp://127.0.0.1:0".to_owned(),
            transport => format!(
                "{transport}://{}",
                dir.join(format!("{namespace}spiderq.ipc")).display()
            ),
        }
    }

    /// The namespaces' addresses.
    fn addresses(&self, daemon: &Daemon, dir: &Path) -> Vec<String> {
        if self.transport == "tcp" {
            let found = daemon.addresses("spiderq").into_iter();
            return found.map(|at| format!("tcp://{at}")).collect();
        }
        let of = |name| self.listen(dir, name);
        namespaces::NAMES.into_iter().map(of).collect()
    }

    /// Runs a client's scene in three namespaces at once, and asserts that it succeeds.
    fn play(&self, scene: &str, login: &[&str]) {
        self.play_in(namespaces::NAMES.len(), scene, login);
    }

    /// In the first of the namespaces.
    fn play_in(&self, count: usize, scene: &str, login: &[&str]) -> (Daemon, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let listen = namespaces::listen(|name| self.listen(dir.path(), name));
        let sections = namespaces::SECTIONS;
        let daemon = daemon(dir.path())
            .set(&format!("{sections}[spiderq]\n{listen}{}", self.keys))
            .start();
        namespaces::at_once(&self.addresses(&daemon, dir.path())[..count], |address| {
            let mut client = python("interop/spiderq_peer.py");
            client.args([address, self.dialect, scene]).args(login);
            let (well, said) = run(&mut client);
            assert!(well, "{said}\n{}", daemon.log_text());
        });
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
    .play_in(1, "terminate", &[]);
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
