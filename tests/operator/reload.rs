//! Reloads of the configuration: the keys that apply while clients are served, and the reports on the others.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use rcgen::{Certificate, CertificateParams, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};
use windlass_testkit::daemon::Daemon;

use crate::common::bystander::Bystander;
use crate::common::faktory::Fwp;
use crate::common::http::Http;
use crate::common::spiderq::{ADDED, Bare, add};
use crate::common::zmtp::plain_login;
use crate::common::{Peer, daemon, socket, wait_for_log, wait_until};

/// A daemon with TLS for Gearman and a password for Faktory, its files, and its operator.
struct Scene {
    dir: tempfile::TempDir,
    certificates: [Certificate; 2],
    daemon: Daemon,
}

impl Scene {
    fn new() -> Self {
        Self::with(|_| String::new())
    }

    /// With further sections, which may name files in the directory.
    fn with(sections: impl Fn(&Path) -> String) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        // Two certificates of one key: a renewal.
        let certificates = [1, 2].map(|_| {
            CertificateParams::new(["localhost".to_owned()])
                .unwrap()
                .self_signed(&key)
                .unwrap()
        });
        fs::write(dir.path().join("key.pem"), key.serialize_pem()).unwrap();
        let file = |name: &str| dir.path().join(name);
        show(&file("chain.pem"), &certificates[0]);
        fs::write(file("secret"), "before\n").unwrap();
        let toml = format!(
            "[log]\nlevel = \"info\"\n[limits]\njobs_max = 1000000\n[faktory]\nlisten = [\"127.0.0.1:0\"]\npassword_file = {:?}\n\
             [gearman]\nlisten = [\"127.0.0.1:0\"]\n[gearman.tls]\ncertificate = {:?}\nkey = {:?}\n",
            file("secret"),
            file("chain.pem"),
            file("key.pem")
        );
        let daemon = daemon(dir.path())
            .set(&toml)
            .set(&sections(dir.path()))
            .start();
        Self {
            dir,
            certificates,
            daemon,
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn edit(&self, from: &str, to: &str) {
        let file = self.file("windlass.toml");
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains(from), "{from}: {text}");
        fs::write(file, text.replace(from, to)).unwrap();
    }

    fn reload(&self) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command
            .arg("reload")
            .arg("--data-dir")
            .arg(self.file("data"))
            .env_clear()
            .output()
            .unwrap()
    }

    #[track_caller]
    fn says(&self, expected: &str) {
        let Output {
            status,
            stdout,
            stderr,
        } = self.reload();
        assert_eq!(
            (
                String::from_utf8(stdout).unwrap(),
                String::from_utf8(stderr).unwrap()
            ),
            (expected.to_owned(), String::new())
        );
        assert_eq!(status.code(), Some(0));
    }

    /// A connection that expects this certificate.
    fn gearman(&self, certificate: usize) -> Peer {
        Peer::over(tls(
            self.daemon.address("gearman"),
            self.certificates[certificate].der(),
        ))
    }
}

fn show(file: &Path, certificate: &Certificate) {
    fs::write(file, certificate.pem()).unwrap();
}

fn tls(
    address: SocketAddr,
    expected: &CertificateDer<'static>,
) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(expected.clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = Arc::new(builder.with_no_client_auth());
    let connection = ClientConnection::new(config, "localhost".try_into().unwrap()).unwrap();
    let mut stream = StreamOwned::new(connection, socket(address).unwrap());
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).unwrap();
    }
    assert_eq!(stream.conn.peer_certificates().unwrap()[0], *expected);
    stream
}

#[test]
fn a_limit_the_log_level_a_password_and_a_certificate_apply_under_load() {
    let scene = Scene::new();
    let address = scene.daemon.address("faktory");
    let (mut old, mut gearman) = (Fwp::hello(address, "before").0, scene.gearman(0));
    let pushes = move |number| {
        let push = format!(r#"PUSH {{"jid":"job{number:06}","jobtype":"T","args":[]}}"#);
        assert_eq!(old.ask(&push), "+OK");
        assert!(
            old.ask("FETCH default")
                .contains(&format!("job{number:06}"))
        );
        assert_eq!(
            old.ask(&format!(r#"ACK {{"jid":"job{number:06}"}}"#)),
            "+OK"
        );
    };
    let faktory = Bystander::new(pushes, || {});
    gearman.can_do("f").unwrap();
    let works = move |_| {
        gearman.submit("f", "", "x").unwrap();
        let job = gearman.grab().unwrap().unwrap();
        gearman.complete(&job.handle).unwrap();
        assert!(
            gearman.line("version").unwrap().starts_with("OK "),
            "the job has ended"
        );
    };
    let gearman = Bystander::new(works, || {});
    faktory.is_served();
    gearman.is_served();

    scene.edit("jobs_max = 1000000", "jobs_max = 5");
    scene.edit("level = \"info\"", "level = \"debug\"");
    fs::write(scene.file("secret"), "after\n").unwrap();
    show(&scene.file("chain.pem"), &scene.certificates[1]);
    scene.says(
        "faktory.password_file: applied\ngearman.tls.certificate: applied\nlimits.jobs_max: applied\nlog.level: applied\n",
    );
    faktory.is_served();
    gearman.is_served();
    drop((faktory, gearman));

    assert_eq!(Fwp::hello(address, "before").1, "-ERR Invalid password");
    assert_eq!(Fwp::hello(address, "after").1, "+OK");
    let mut peer = scene.gearman(1);
    let submitted = (0..6)
        .map(|_| peer.submit("other", "", "x").is_ok())
        .collect::<Vec<_>>();
    assert_eq!(submitted, [true, true, true, true, true, false], "jobs_max");
    wait_for_log(&scene.daemon, "\"DEBUG\"");
    scene.says("nothing has changed\n");
}

#[test]
fn what_needs_a_restart_is_named_until_then() {
    let scene = Scene::new();
    let http = Http(scene.daemon.address("http"));
    scene.edit(
        "[gearman]\nlisten = [\"127.0.0.1:0\"]",
        "[gearman]\nlisten = [\"127.0.0.1:1\"]\njob_retries = 3",
    );
    scene.says("gearman.job_retries: applied\ngearman.listen: needs a restart\n");
    scene.edit(
        "[log]",
        "durability = \"interval\"\n[server]\nthreads = 1\nidle_timeout = \"1h\"\n[log]",
    );
    let changes = http.post("/api/v1/reload", "");
    let expected = json!({
        "applied": ["server.idle_timeout"], "needs_restart": ["gearman.listen", "server.threads"], "taken_back": [],
    });
    let mut said: Value = changes.json();
    said["needs_restart"]
        .as_array_mut()
        .unwrap()
        .retain(|key| key != "durability");
    assert_eq!(said, expected);
    scene.edit("127.0.0.1:1", "127.0.0.1:0");
    scene.edit("threads = 1\n", "");
    scene.edit("durability = \"interval\"\n", "");
    scene.says("nothing has changed\n");
    let log = scene.daemon.log_text();
    assert!(
        log.contains("needs a restart") && log.contains("\"key\":\"server.threads\""),
        "{log}"
    );
}

#[test]
fn tls_and_addresses_change_with_a_restart() {
    let scene = Scene::with(|_| "[http]\nlisten = [\"127.0.0.1:0\"]\n".to_owned());
    let files = format!(
        "certificate = {:?}\nkey = {:?}\n",
        scene.file("chain.pem"),
        scene.file("key.pem")
    );
    scene.edit("[gearman]\n", &format!("[faktory.tls]\n{files}[gearman]\n"));
    scene.says("faktory.tls.certificate: needs a restart\nfaktory.tls.key: needs a restart\n");
    scene.edit(&format!("[faktory.tls]\n{files}"), "");
    scene.edit(&format!("[gearman.tls]\n{files}"), "");
    scene.says("gearman.tls.certificate: needs a restart\ngearman.tls.key: needs a restart\n");
    scene.edit("[gearman]\n", &format!("[gearman.tls]\n{files}[gearman]\n"));
    scene.edit(
        "[http]\nlisten = [\"127.0.0.1:0\"]",
        "[http]\nlisten = [\"127.0.0.1:1\"]",
    );
    scene.says("http.listen: needs a restart\n");
    scene.gearman(0);
}

#[test]
fn a_throttle_that_an_operator_has_set_stays_over_restarts_until_its_section_changes() {
    let mut scene = Scene::with(|_| {
        "[queues.other]\nttl = \"1d\"\n[http]\nlisten = [\"127.0.0.1:0\"]\n".to_owned()
    });
    let concurrency = |scene: &Scene| {
        let queue: Value = Http(scene.daemon.address("http"))
            .get("/api/v1/queues/mail")
            .json();
        queue["throttle"]["concurrency"].clone()
    };
    let set = "/api/v1/queues/mail/throttle?concurrency=7";
    assert_eq!(
        Http(scene.daemon.address("http"))
            .request("PUT", set, &[], b"")
            .status,
        201
    );
    scene.says("nothing has changed\n");
    scene.edit(
        "[queues.other]",
        "[queues.mail]\nttl = \"2d\"\n[queues.other]",
    );
    scene.says("queues.mail.ttl: applied\n");
    scene.daemon.kill();
    scene.daemon.restart();
    assert_eq!(concurrency(&scene), 7);
    scene.edit(
        "[queues.mail]\n",
        "[queues.mail]\nthrottle.concurrency = 2\n",
    );
    scene.says("queues.mail.throttle.concurrency: applied\nthe throttle of mail: taken back\n");
    assert_eq!(concurrency(&scene), 2);
    scene.edit("throttle.concurrency = 2\n", "");
    scene.says("queues.mail.throttle.concurrency: applied\n");
    assert_eq!(concurrency(&scene), Value::Null);
}

#[test]
fn names_of_queues_stay_until_the_next_start() {
    let rules =
        "[queues.images]\naliases.gearman = \"resize\"\n[http]\nlisten = [\"127.0.0.1:0\"]\n";
    let scene = Scene::with(|_| rules.to_owned());
    scene.edit(
        "aliases.gearman = \"resize\"",
        "aliases.gearman = \"shrink\"",
    );
    scene.edit("[gearman]\n", "[gearman]\njob_retries = 3\n");
    scene.says("gearman.job_retries: applied\nqueues.images.aliases.gearman: needs a restart\n");
    scene.gearman(0).submit("resize", "", "x").unwrap();
    let queue: Value = Http(scene.daemon.address("http"))
        .get("/api/v1/queues/images")
        .json();
    assert_eq!(queue["states"]["ready"], 1, "{queue}");
}

#[test]
fn each_section_of_spiderq_says_what_applies_to_it() {
    let sections = |dir: &Path| {
        fs::write(dir.join("more"), "before").unwrap();
        format!(
            "[spiderq]\nlisten = [\"127.0.0.1:0\"]\nqueue = \"first\"\n[[spiderq.more]]\nlisten = [\"127.0.0.2:0\"]\n\
             queue = \"second\"\nuser = \"u\"\npassword_file = {:?}\n[zmtp]\nping_timeout = \"29s\"\n",
            dir.join("more")
        )
    };
    let scene = Scene::with(sections);
    let [first, second] = scene.daemon.addresses("spiderq")[..] else {
        panic!("two addresses")
    };
    fs::write(scene.file("more"), "after").unwrap();
    scene.edit("29s", "28s");
    scene.says("spiderq.more.1.password_file: applied\nzmtp.ping_timeout: applied\n");
    assert!(plain_login(second, "after") && !plain_login(second, "before"));

    let mut old = Bare::connect(first);
    scene.edit("queue = \"first\"", "queue = \"other\"\nlends_max = 7");
    scene.edit("user = \"u\"", "user = \"u\"\ndialect = \"1.4\"");
    scene.says("spiderq.lends_max: applied\nspiderq.more.1.dialect: applied\nspiderq.queue: needs a restart\n");
    assert_eq!(Bare::connect(first).ask(&add("a", b"1")), ADDED);
    assert_eq!(old.count(), 1, "one queue for all");
    scene.edit("127.0.0.2:0", "127.0.0.3:0");
    scene.says("spiderq.more.1.listen: needs a restart\nspiderq.queue: needs a restart\n");
    scene.edit("queue = \"other\"", "queue = \"first\"");
    scene.edit("127.0.0.3:0", "127.0.0.2:0");
    scene.says("nothing has changed\n");
}

#[test]
fn connections_of_operators_get_more_places() {
    let section =
        "[http]\nlisten = [\"127.0.0.1:0\"]\nconnections_max = 1\nsession_idle = \"1h\"\n";
    let scene = Scene::with(|_| section.to_owned());
    let http = Http(scene.daemon.address("http"));
    // It stays until the test ends.
    let mut first = TcpStream::connect(http.0).unwrap();
    first
        .write_all(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    first.read_exact(&mut [0]).unwrap();
    assert_eq!(http.get("/api/v1/status").status, 503);
    scene.edit(
        "connections_max = 1\nsession_idle = \"1h\"",
        "connections_max = 2\nsession_idle = \"2h\"",
    );
    scene.daemon.signal("HUP");
    for key in ["http.connections_max", "http.session_idle"] {
        wait_for_log(
            &scene.daemon,
            &format!("\"message\":\"applied\",\"key\":{key:?}"),
        );
    }
    wait_until("the second place", || {
        http.get("/api/v1/status").status == 200
    });
}

#[test]
fn new_connections_have_a_changed_keepalive_and_commits_their_new_timeouts() {
    let scene = Scene::with(|_| {
        "[server]\nkeepalive_idle = \"1h\"\n[store]\ncommit_timeout = \"20s\"\n".to_owned()
    });
    let doors = ["faktory", "http"].map(|door| scene.daemon.address(door));
    let open = || doors.map(|door| TcpStream::connect(door).unwrap());
    let is_within = |peers: &[TcpStream; 2], seconds| {
        peers.iter().all(|peer| seconds_to_probe(peer) <= seconds)
    };
    let old = open();
    wait_until("they have the first value", || is_within(&old, 3_600));
    scene.edit("keepalive_idle = \"1h\"", "keepalive_idle = \"90s\"");
    scene.edit(
        "commit_timeout = \"20s\"",
        "commit_timeout = \"21s\"\ncommit_abort = \"6m\"",
    );
    scene.says("server.keepalive_idle: applied\nstore.commit_abort: applied\nstore.commit_timeout: applied\n");
    let new = open();
    wait_until("they have the new value", || is_within(&new, 90));
    assert!(!is_within(&old, 90));
    scene.edit("[store]", "[postgres]\nlease = \"3s\"\n[store]");
    scene.says("postgres.lease: needs a restart\n");
}

/// When the daemon's end of a connection is due to be probed; for ever if the kernel keeps no such timer.
fn seconds_to_probe(peer: &TcpStream) -> u64 {
    let (local, remote) = (
        peer.peer_addr().unwrap().port(),
        peer.local_addr().unwrap().port(),
    );
    let (local, remote) = (format!(":{local:04X}"), format!(":{remote:04X}"));
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let rows = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut rows = rows.filter(|row| row[1].ends_with(&local) && row[2].ends_with(&remote));
    // Kind of the timer and hundredths of a second, in hexadecimal.
    let timer = rows.next().and_then(|row| row[5].strip_prefix("02:"));
    timer.map_or(u64::MAX, |ticks| {
        u64::from_str_radix(ticks, 16).unwrap() / 100
    })
}

#[test]
fn an_invalid_configuration_changes_nothing() {
    let scene = Scene::new();
    let mistakes = [
        ("jobs_max = 1000000", "jobs_max = 0", "limits.jobs_max: "),
        ("level = \"info\"", "level = \"loud\"", "log.level: "),
        ("[log]", "[lug]", "unknown key `lug`; the nearest is `log`"),
        ("secret", "nothing", "faktory.password_file: "),
    ];
    fs::write(scene.file("secret"), "after\n").unwrap();
    show(&scene.file("chain.pem"), &scene.certificates[1]);
    for (right, wrong, why) in mistakes {
        scene.edit(right, wrong);
        let Output {
            status,
            stdout,
            stderr,
        } = scene.reload();
        let said = String::from_utf8(stderr).unwrap();
        assert!(
            said.contains(why) && stdout.is_empty() && status.code() == Some(1),
            "{said}"
        );
        assert!(scene.gearman(0).line("version").unwrap().starts_with("OK "));
        assert_eq!(
            Fwp::hello(scene.daemon.address("faktory"), "before").1,
            "+OK"
        );
        scene.edit(wrong, right);
    }
    // A certificate without its key.
    let other = CertificateParams::new(["localhost".to_owned()])
        .unwrap()
        .self_signed(&KeyPair::generate().unwrap())
        .unwrap();
    show(&scene.file("chain.pem"), &other);
    assert!(
        String::from_utf8(scene.reload().stderr)
            .unwrap()
            .contains("gearman.tls.key: ")
    );
    assert!(scene.gearman(0).line("version").unwrap().starts_with("OK "));
    show(&scene.file("chain.pem"), &scene.certificates[1]);
    scene.daemon.signal("HUP");
    wait_until("both apply", || {
        scene.daemon.log_text().matches("\"applied\"").count() == 2
    });
    scene.gearman(1);
}
