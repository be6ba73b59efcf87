//! TLS from the view of clients, workers and administrators that renew certificates. Each test makes its own
//! certificates.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned,
    SupportedProtocolVersion,
};
use windlass_gearman::wire::{Report, Request, Response};
use windlass_testkit::daemon::{Daemon, Plan};

use crate::common::authority::{Authority, Identity};
use crate::common::http::Http;
use crate::common::zmtp::{greeting, message, ready};
use crate::common::{Peer, daemon, socket, submission, wait_for_log};

// ---- certificates ---------------------------------------------------------------------------------------------------

/// A directory with the files that a listener needs.
struct Files {
    dir: PathBuf,
}

impl Files {
    fn new(dir: &Path, authority: &Authority) -> Self {
        let files = Self {
            dir: dir.to_owned(),
        };
        files.write("ca.pem", &authority.certificate);
        files.put(&authority.sign("localhost"));
        files
    }

    /// Replaces the listener's certificate, as a renewal does.
    fn put(&self, identity: &Identity) {
        self.write("chain.pem", &identity.certificate);
        self.write("key.pem", &identity.key);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// The sections of a configuration that make a listener use them.
    fn toml(&self) -> String {
        let [chain, key] = ["chain.pem", "key.pem"].map(|name| self.path(name));
        format!(
            "[gearman]\nlisten = [\"127.0.0.1:0\"]\n[gearman.tls]\ncertificate = {chain:?}\nkey = {key:?}\n"
        )
    }

    fn plan(&self) -> Plan {
        daemon(&self.dir).set("[log]\nlevel = \"info,windlass_net=debug\"")
    }
}

// ---- the client side ------------------------------------------------------------------------------------------------

type TlsStream = StreamOwned<ClientConnection, TcpStream>;

fn client(
    authority: &Authority,
    identity: Option<&Identity>,
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(der(&authority.certificate)).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots);
    Arc::new(match identity {
        None => builder.with_no_client_auth(),
        Some(Identity { certificate, key }) => {
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder
                .with_client_auth_cert(vec![der(certificate)], key)
                .unwrap()
        }
    })
}

fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

const BOTH: &[&SupportedProtocolVersion] = &[&TLS12, &TLS13];

/// Connects and shakes hands, as far as the client can determine.
fn connect(address: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<TlsStream> {
    let mut session =
        ClientConnection::new(Arc::clone(config), "localhost".try_into().unwrap()).unwrap();
    let mut socket = socket(address)?;
    while session.is_handshaking() {
        session.complete_io(&mut socket)?;
    }
    Ok(StreamOwned::new(session, socket))
}

fn encoded(request: &Request) -> BytesMut {
    let mut bytes = BytesMut::new();
    request.encode(&mut bytes);
    bytes
}

// ---- serving --------------------------------------------------------------------------------------------------------

#[test]
fn jobs_run_over_tls() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let files = Files::new(dir.path(), &authority);
    let daemon = files.plan().set(&files.toml()).start();
    for version in BOTH {
        let config = client(&authority, None, &[version]);
        let connect = || Peer::over(connect(daemon.address("gearman"), &config).unwrap());
        let (mut producer, mut worker) = (connect(), connect());
        // Larger than any one read, write or record.
        let body: Bytes = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
        for workload in [Bytes::from_static(b"small"), body] {
            let handle = producer.submit("round", "", workload.clone()).unwrap();
            worker.can_do("round").unwrap();
            let job = worker.grab().unwrap().unwrap();
            assert_eq!(job.handle, handle);
            assert!(job.workload == workload, "another workload");
            worker.complete(&job.handle).unwrap();
        }
        assert!(worker.grab().unwrap().is_none());
    }
    // Certificates of these tests end with the year 4095.
    let line = "windlass_certificate_expiry_timestamp_seconds{protocol=\"gearman\"} 67090118400.0";
    let page = Http(daemon.address("http")).get("/metrics");
    assert!(page.text().lines().any(|it| it == line), "{}", page.text());
}

/// A proxy before an address of the daemon: it speaks TLS to clients, until its runtime ends. It may demand certificates
/// of an authority.
fn proxied(
    files: &Files,
    demands: Option<&Authority>,
    daemon: SocketAddr,
) -> (tokio::runtime::Runtime, SocketAddr) {
    let [chain, key] = ["chain.pem", "key.pem"].map(|name| fs::read(files.path(name)).unwrap());
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = match demands {
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(der(&authority.certificate)).unwrap();
            let provider = Arc::new(ring::default_provider());
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
        None => builder.with_no_client_auth(),
    };
    let chain = vec![CertificateDer::from_pem_slice(&chain).unwrap()];
    let config = builder
        .with_single_cert(chain, PrivateKeyDer::from_pem_slice(&key).unwrap())
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let listener = runtime
        .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
        .unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    return;
                };
                let mut behind = tokio::net::TcpStream::connect(daemon).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut behind).await;
            });
        }
    });
    (runtime, address)
}

#[test]
fn commands_reach_a_daemon_behind_a_proxy_with_tls() {
    let dir = tempfile::tempdir().unwrap();
    let files = Files::new(dir.path(), &Authority::new());
    let daemon = files.plan().start();
    let (_runtime, address) = proxied(&files, None, daemon.address("http"));
    let windlass = |words: &[&str], authority: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command
            .args(words)
            .arg("--url")
            .arg(format!("https://localhost:{}", address.port()));
        command
            .arg("--ca")
            .arg(authority)
            .env_clear()
            .output()
            .unwrap()
    };
    let own = files.path("ca.pem");
    assert_eq!(windlass(&["push", "mails", "hello"], &own).stdout, b"1\n");
    let live = windlass(&["check", "--live"], &own);
    assert!(
        live.status.success() && live.stdout.starts_with(b"WINDLASS OK"),
        "{live:?}"
    );
    let foreign = files.path("foreign.pem");
    fs::write(&foreign, Authority::new().certificate).unwrap();
    let refused = windlass(&["status"], &foreign);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&refused.stderr)
            .contains("its certificate is not signed by a trusted CA"),
        "{refused:?}"
    );
}

#[test]
fn commands_have_a_certificate_for_a_proxy_that_demands_one() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let files = Files::new(dir.path(), &authority);
    let own = authority.sign("operator");
    files.write("own.pem", &own.certificate);
    files.write("own.key", &own.key);
    let daemon = files.plan().start();
    let (_runtime, address) = proxied(&files, Some(&authority), daemon.address("http"));
    let status = |options: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command
            .args([
                "status",
                "--url",
                &format!("https://localhost:{}", address.port()),
            ])
            .env_clear();
        for (option, name) in options {
            command.arg(option).arg(files.path(name));
        }
        command.output().unwrap()
    };
    let [ca, certificate, key] = [
        ("--ca", "ca.pem"),
        ("--client-certificate", "own.pem"),
        ("--client-key", "own.key"),
    ];
    assert_eq!(status(&[ca]).status.code(), Some(1));
    assert_eq!(
        status(&[ca, certificate]).status.code(),
        Some(2),
        "a certificate without its key"
    );
    let shown = status(&[ca, certificate, key]);
    assert!(
        shown.status.success() && shown.stdout.starts_with(b"windlass"),
        "{shown:?}"
    );
}

#[test]
fn the_bridge_speaks_tls_to_both_sides() {
    let (dir, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let authority = Authority::new();
    let [files, new_files] = [&dir, &there].map(|dir| Files::new(dir.path(), &authority));
    let old = files.plan().set(&files.toml()).start();
    let new = new_files.plan().set(&new_files.toml()).start();
    let config = client(&authority, None, BOTH);
    let peer = |daemon: &Daemon| Peer::over(connect(daemon.address("gearman"), &config).unwrap());
    peer(&old).submit("mail", "u", "hello").unwrap();
    let url = |daemon: &Daemon| {
        format!(
            "gearman+tls://localhost:{}",
            daemon.address("gearman").port()
        )
    };
    let bridge = |authority: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command.args([
            "bridge",
            "--until-empty=1s",
            "--from",
            &url(&old),
            "--to",
            &url(&new),
        ]);
        command
            .arg("--from-ca")
            .arg(authority)
            .arg("--to-ca")
            .arg(authority)
            .output()
            .unwrap()
    };
    let foreign = files.path("foreign.pem");
    fs::write(&foreign, Authority::new().certificate).unwrap();
    let refused = bridge(&foreign);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("invalid peer certificate"),
        "{refused:?}"
    );
    let moved = bridge(&files.path("ca.pem"));
    assert!(
        moved.status.success() && String::from_utf8_lossy(&moved.stderr).contains("1 job moved"),
        "{moved:?}"
    );
    let mut worker = peer(&new);
    worker.can_do("mail").unwrap();
    assert_eq!(worker.grab().unwrap().unwrap().workload, "hello");
}

#[test]
fn the_bridge_has_a_certificate_for_brokers_that_demand_one() {
    let (dir, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let authority = Authority::new();
    let [files, new_files] = [&dir, &there].map(|dir| Files::new(dir.path(), &authority));
    let demanding = |files: &Files| {
        let ca = format!("{}client_ca = {:?}\n", files.toml(), files.path("ca.pem"));
        files.plan().set(&ca).start()
    };
    let (old, new) = (demanding(&files), demanding(&new_files));
    let own = authority.sign("bridge");
    files.write("bridge.pem", &own.certificate);
    files.write("bridge.key", &own.key);
    let config = client(&authority, Some(&own), BOTH);
    let peer = |daemon: &Daemon| Peer::over(connect(daemon.address("gearman"), &config).unwrap());
    peer(&old).submit("mail", "u", "hello").unwrap();
    let [ca, certificate, key] =
        ["ca.pem", "bridge.pem", "bridge.key"].map(|name| files.path(name));
    let bridge = |shows: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command.args(["bridge", "--until-empty=1s"]);
        for (side, daemon) in [("from", &old), ("to", &new)] {
            let port = daemon.address("gearman").port();
            command
                .arg(format!("--{side}=gearman+tls://localhost:{port}"))
                .arg(format!("--{side}-ca"))
                .arg(&ca);
            if shows.contains(&side) {
                command
                    .arg(format!("--{side}-certificate"))
                    .arg(&certificate);
                command.arg(format!("--{side}-key")).arg(&key);
            }
        }
        command.output().unwrap()
    };
    for shows in [&[][..], &["to"], &["from"]] {
        let refused = bridge(shows);
        assert_eq!(refused.status.code(), Some(1), "{shows:?}: {refused:?}");
        assert!(
            String::from_utf8_lossy(&refused.stderr).contains("CertificateRequired"),
            "{shows:?}: {refused:?}"
        );
    }
    let moved = bridge(&["from", "to"]);
    assert!(
        moved.status.success() && String::from_utf8_lossy(&moved.stderr).contains("1 job moved"),
        "{moved:?}"
    );
    let mut worker = peer(&new);
    worker.can_do("mail").unwrap();
    assert_eq!(worker.grab().unwrap().unwrap().workload, "hello");
}

#[test]
fn answers_to_a_peer_that_reads_late_arrive_whole_and_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let files = Files::new(dir.path(), &authority);
    let daemon = files.plan().set(&files.toml()).start();
    let config = client(&authority, None, BOTH);
    let mut client = connect(daemon.address("gearman"), &config).unwrap();
    let mut worker = Peer::over(connect(daemon.address("gearman"), &config).unwrap());
    client
        .write_all(&encoded(&submission("late", "", "x", false)))
        .unwrap();
    worker.can_do("late").unwrap();
    let job = loop {
        if let Some(job) = worker.grab().unwrap() {
            break job;
        }
    };
    // More than the kernel buffers for a peer that does not read, so that new data arrives while the daemon is in the
    // middle of a write.
    let data: Vec<u8> = (0..8_000_000_u32).map(|n| (n % 251) as u8).collect();
    client
        .write_all(&encoded(&Request::Echo {
            data: data.clone().into(),
        }))
        .unwrap();
    let mut expected = BytesMut::new();
    Response::JobCreated {
        handle: &job.handle,
    }
    .encode(&mut expected);
    let created = expected.len();
    Response::EchoRes { data: &data }.encode(&mut expected);
    let mut said = vec![0; created + 1];
    client.read_exact(&mut said).unwrap();
    for n in 0..100 {
        let data = Bytes::from(vec![n; 100]);
        Response::Work {
            handle: &job.handle,
            report: Report::Data(&data),
        }
        .encode(&mut expected);
        worker
            .send(&Request::Work {
                handle: job.handle.clone(),
                report: Report::Data(data),
            })
            .unwrap();
    }
    assert!(
        worker.grab().unwrap().is_none(),
        "the daemon has read all of it"
    );
    said.resize(expected.len(), 0);
    client.read_exact(&mut said[created + 1..]).unwrap();
    assert!(said == expected, "other bytes");
}

/// Shakes hands as ZeroMQ over TLS, sends a message, and returns what comes back after the handshake.
fn zmtp(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
    socket_type: &str,
    message: &[u8],
    bytes: usize,
) -> io::Result<Vec<u8>> {
    let mut stream = connect(address, config)?;
    stream.write_all(&[&greeting("NULL")[..], &ready(socket_type, b""), message].concat())?;
    let mut hands = [0; 64 + 2];
    stream.read_exact(&mut hands)?;
    stream.read_exact(&mut vec![0; hands[65].into()])?;
    let mut said = vec![0; bytes];
    stream.read_exact(&mut said)?;
    Ok(said)
}

#[test]
fn spiderq_and_eventmq_speak_tls_at_every_address() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let files = Files::new(dir.path(), &authority);
    let [chain, key, ca] = ["chain.pem", "key.pem", "ca.pem"].map(|name| files.path(name));
    let tls = format!("certificate = {chain:?}\nkey = {key:?}\nclient_ca = {ca:?}\n");
    let lists = [
        "listen",
        "admin_listen",
        "publish_listen",
        "subscribe_listen",
    ];
    let lists: String = lists
        .iter()
        .map(|list| format!("{list} = [\"127.0.0.1:0\"]\n"))
        .collect();
    let spiderq = "[spiderq]\nlisten = [\"127.0.0.1:0\"]\n";
    let daemon = files
        .plan()
        .set(&format!(
            "{spiderq}[spiderq.tls]\n{tls}[eventmq]\n{lists}[eventmq.tls]\n{tls}"
        ))
        .start();
    let signed = client(&authority, Some(&authority.sign("worker")), BOTH);
    let stranger = client(&authority, None, BOTH);
    assert_eq!(
        zmtp(
            daemon.address("spiderq"),
            &signed,
            "REQ",
            &message(&[b"", b"\x0b"]),
            5
        )
        .unwrap(),
        b"\x01\0\0\x01\x11"
    );
    let inform = message(&[b"", b"eMQP/1.0", b"INFORM", b"i", b"", b"scheduler"]);
    for name in ["eventmq", "eventmq-admin", "eventmq-publish"] {
        let said = zmtp(daemon.address(name), &signed, "DEALER", &inform, 17).unwrap();
        assert!(
            said.ends_with(b"\x03ACK"),
            "{name}: {}",
            said.escape_ascii()
        );
    }
    zmtp(daemon.address("eventmq-subscribe"), &signed, "SUB", b"", 0).unwrap();
    let names = [
        "spiderq",
        "eventmq",
        "eventmq-admin",
        "eventmq-publish",
        "eventmq-subscribe",
    ];
    for name in names {
        let refused = zmtp(daemon.address(name), &stranger, "DEALER", b"", 0);
        assert!(refused.is_err(), "{name}: without a certificate");
    }
    wait_for_log(&daemon, "peer sent no certificates");
    assert!(
        !daemon.log_text().contains("anyone who can reach"),
        "clients need a certificate"
    );
}

#[test]
fn a_unix_socket_beside_it_stays_plain() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let files = Files::new(dir.path(), &authority);
    let path = dir.path().join("gearman.sock");
    let listen = format!("listen = [\"127.0.0.1:0\", \"unix:{}\"]", path.display());
    let _daemon = files
        .plan()
        .set(&files.toml().replace("listen = [\"127.0.0.1:0\"]", &listen))
        .start();
    let mut peer = Peer::over(UnixStream::connect(path).unwrap());
    assert!(peer.line("version").unwrap().starts_with("OK "));
}

#[test]
fn a_half_closed_peer_gets_its_answers() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let files = Files::new(dir.path(), &authority);
    let daemon = files.plan().set(&files.toml()).start();
    for version in BOTH {
        for says_so in [true, false] {
            let mut stream = connect(
                daemon.address("gearman"),
                &client(&authority, None, &[version]),
            )
            .unwrap();
            stream
                .write_all(&encoded(&submission("late", "", "x", true)))
                .unwrap();
            if says_so {
                stream.conn.send_close_notify();
            }
            stream.flush().unwrap();
            stream.sock.shutdown(Shutdown::Write).unwrap();
            let mut said = Vec::new();
            // Without the daemon's close_notify this is an error.
            stream.read_to_end(&mut said).unwrap();
            assert!(
                said.starts_with(b"\0RES\0\0\0\x08"),
                "{version:?} {says_so}: JOB_CREATED: {said:?}"
            );
        }
    }
}

#[test]
fn openssl_can_connect() {
    if Command::new("openssl")
        .arg("version")
        .stdout(Stdio::null())
        .status()
        .is_err()
    {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let files = Files::new(dir.path(), &authority);
    let daemon = files.plan().set(&files.toml()).start();
    for version in ["-tls1_2", "-tls1_3"] {
        let mut command = Command::new("openssl");
        command.args([
            "s_client",
            "-quiet",
            "-verify_return_error",
            "-servername",
            "localhost",
        ]);
        command
            .arg(version)
            .arg("-CAfile")
            .arg(files.path("ca.pem"));
        command.args(["-connect", &daemon.address("gearman").to_string()]);
        let piped = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = piped.spawn().unwrap();
        child
            .stdin
            .as_mut()
            .unwrap()
            .write_all(b"version\n")
            .unwrap();
        let mut said = [0; 3];
        let read = child.stdout.as_mut().unwrap().read_exact(&mut said);
        child.kill().unwrap();
        child.wait().unwrap();
        read.unwrap();
        assert_eq!(&said, b"OK ", "{version}");
    }
}

#[test]
fn stopping_skips_handshakes_and_sends_close_notify() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let files = Files::new(dir.path(), &authority);
    let keys = "[server]\nhandshake_timeout = \"1h\"\nshutdown_timeout = \"1h\"\n";
    let mut daemon = files.plan().set(keys).set(&files.toml()).start();
    let mut silent = socket(daemon.address("gearman")).unwrap();
    let mut idle = connect(daemon.address("gearman"), &client(&authority, None, BOTH)).unwrap();
    idle.write_all(b"version\n").unwrap();
    idle.read_exact(&mut [0; 3]).unwrap();
    daemon.signal("TERM");
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log_text());
    idle.read_to_end(&mut Vec::new()).unwrap();
    let mut said = Vec::new();
    silent.read_to_end(&mut said).unwrap();
    assert_eq!(said, b"");
}

// ---- refused clients ------------------------------------------------------------------------------------------------

#[test]
fn with_a_client_ca_only_clients_it_signed_can_connect() {
    let dir = tempfile::tempdir().unwrap();
    let (authority, other) = (Authority::new(), Authority::new());
    let files = Files::new(dir.path(), &authority);
    let ca = format!("{}client_ca = {:?}\n", files.toml(), files.path("ca.pem"));
    let daemon = files.plan().set(&ca).start();
    let signed = authority.sign("worker");
    let stranger = other.sign("worker");
    for version in BOTH {
        let ask = |identity| {
            let config = client(&authority, identity, &[version]);
            Peer::over(connect(daemon.address("gearman"), &config)?).line("version")
        };
        assert!(
            ask(Some(&signed)).unwrap().starts_with("OK "),
            "{version:?}"
        );
        assert!(ask(None).is_err(), "{version:?}: without a certificate");
        assert!(
            ask(Some(&stranger)).is_err(),
            "{version:?}: signed by another"
        );
    }
    wait_for_log(&daemon, "peer sent no certificates");
    wait_for_log(&daemon, "invalid peer certificate");
}

#[test]
fn a_clients_certificate_tells_the_namespace_where_the_address_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let files = Files::new(dir.path(), &authority);
    let namespaces = "[namespaces.shop]\ncertificates = [\"worker.shop\", \"also.shop\"]\n[namespaces.staging]\n";
    let listen =
        "listen = [\"127.0.0.1:0\", { address = \"127.0.0.1:0\", namespace = \"staging\" }]";
    let toml = files.toml().replace("listen = [\"127.0.0.1:0\"]", listen);
    let ca = format!("{namespaces}{toml}client_ca = {:?}\n", files.path("ca.pem"));
    let mut daemon = files.plan().set(&ca).start();
    let submit = |daemon: &Daemon, at: usize, name: &str, function: &str| {
        let config = client(&authority, Some(&authority.sign(name)), BOTH);
        let stream = connect(daemon.addresses("gearman")[at], &config).unwrap();
        Peer::over(stream).submit(function, "u", "x").unwrap();
    };
    submit(&daemon, 0, "worker.shop", "a");
    submit(&daemon, 0, "also.shop", "b");
    submit(&daemon, 0, "elsewhere", "a");
    submit(&daemon, 1, "worker.shop", "a");
    let names = |daemon: &Daemon, namespace: &str| {
        let http = Http(daemon.address("http"));
        let rows = http
            .get(&format!("/api/v1/queues?namespace={namespace}"))
            .json();
        let rows = rows["queues"].as_array().unwrap().iter();
        let names = rows.map(|row| row["name"].as_str().unwrap().to_owned());
        names.filter(|name| name != "spiderq").collect::<Vec<_>>()
    };
    assert_eq!(names(&daemon, "shop"), ["a", "b"]);
    assert_eq!(names(&daemon, "staging"), ["a"]);
    assert_eq!(names(&daemon, ""), ["a"]);
    // New connections have the namespaces of a new file.
    let file = dir.path().join("windlass.toml");
    let text = fs::read_to_string(&file).unwrap();
    let moved = text.replace(", \"also.shop\"]", "]").replace(
        "[namespaces.staging]\n",
        "[namespaces.staging]\ncertificates = [\"also.shop\"]\n",
    );
    fs::write(&file, moved).unwrap();
    daemon.signal("HUP");
    wait_for_log(&daemon, "namespaces.staging.certificates");
    submit(&daemon, 0, "also.shop", "c");
    assert_eq!(names(&daemon, "staging"), ["a", "c"]);
    daemon.kill();
}

#[test]
fn invalid_handshakes_end_the_connection() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let files = Files::new(dir.path(), &authority);
    let daemon = files.plan().set(&files.toml()).start();
    // A plain Gearman client, a browser, an announced handshake that does not follow, noise.
    let hello = [&[22, 3, 1, 0xff, 0xff, 1, 0, 0xff, 0xff][..], &[0; 70_000]].concat();
    for garbage in [
        &b"version\n"[..],
        b"GET / HTTP/1.1\r\n\r\n",
        &encoded(&submission("late", "", "x", true)),
        &hello,
        &[0xa5; 4096],
    ] {
        let mut stream = socket(daemon.address("gearman")).unwrap();
        let _ = stream.write_all(garbage);
        let _ = stream.shutdown(Shutdown::Write);
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        assert!(!said.windows(2).any(|window| window == b"OK"), "{said:?}");
    }
    wait_for_log(&daemon, "TLS handshake failed");
    let mut peer =
        Peer::over(connect(daemon.address("gearman"), &client(&authority, None, BOTH)).unwrap());
    assert!(
        peer.line("version").unwrap().starts_with("OK "),
        "others are served"
    );
    assert!(
        peer.listing("status").unwrap().is_empty(),
        "nothing came in"
    );
}

#[test]
fn a_silent_peer_loses_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let files = Files::new(dir.path(), &authority);
    let keys = "[server]\nhandshake_timeout = \"200ms\"\nconnections_max = 1\n";
    let daemon = files.plan().set(keys).set(&files.toml()).start();
    let mut silent = socket(daemon.address("gearman")).unwrap();
    assert_eq!(silent.read(&mut [0; 16]).unwrap(), 0, "hung up on");
    wait_for_log(&daemon, "TLS handshake failed");
    let config = client(&authority, None, BOTH);
    let ask = || Peer::over(connect(daemon.address("gearman"), &config)?).line("version");
    // Not at once: the daemon first closes the connection, then frees the place.
    while ask().is_err() {}
}

// ---- files ----------------------------------------------------------------------------------------------------------

/// The certificate that a new connection gets.
fn shown(daemon: &Daemon, config: &Arc<ClientConfig>) -> CertificateDer<'static> {
    let stream = connect(daemon.address("gearman"), config).unwrap();
    stream.conn.peer_certificates().unwrap()[0].clone()
}

#[test]
fn a_renewed_certificate_is_taken_up_on_sighup() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let files = Files::new(dir.path(), &authority);
    let daemon = files.plan().set(&files.toml()).start();
    let config = client(&authority, None, BOTH);
    let mut old = Peer::over(connect(daemon.address("gearman"), &config).unwrap());
    let renewed = authority.sign("localhost");
    assert_ne!(shown(&daemon, &config), der(&renewed.certificate));
    files.put(&renewed);
    assert_ne!(
        shown(&daemon, &config),
        der(&renewed.certificate),
        "not before SIGHUP"
    );
    daemon.signal("HUP");
    wait_for_log(&daemon, "certificates reloaded");
    assert_eq!(shown(&daemon, &config), der(&renewed.certificate));
    // A mistake is logged and changes nothing.
    files.write("key.pem", &authority.sign("localhost").key);
    daemon.signal("HUP");
    wait_for_log(&daemon, "does not match the certificate");
    assert_eq!(shown(&daemon, &config), der(&renewed.certificate));
    assert!(
        old.line("version").unwrap().starts_with("OK "),
        "existing connections continue"
    );
}

#[test]
fn invalid_files_are_reported_before_the_daemon_listens() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let files = Files::new(dir.path(), &authority);
    files.write("empty.pem", "");
    files.write("noise.pem", "-----BEGIN CERTIFICATE-----\nxyz\n");
    files.write(
        "wrong.pem",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    );
    files.write("other.pem", &authority.sign("localhost").key);
    files.write(
        "locked.pem",
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    );
    let table = [
        ("certificate", "no.pem", "cannot read"),
        ("certificate", "empty.pem", "no certificate found"),
        ("certificate", "key.pem", "no certificate found"),
        ("certificate", "noise.pem", "truncated or malformed"),
        ("certificate", "wrong.pem", "invalid"),
        ("key", "no.pem", "cannot read"),
        ("key", "chain.pem", "no unencrypted private key found"),
        (
            "key",
            "locked.pem",
            "no unencrypted private key found (PEM)",
        ),
        ("key", "other.pem", "does not match the certificate"),
        ("client_ca", "no.pem", "cannot read"),
        ("client_ca", "key.pem", "no certificate found"),
        ("client_ca", "wrong.pem", "invalid"),
    ];
    let config = files.path("windlass.toml");
    fs::write(
        &config,
        format!("data_dir = {:?}\n{}", files.path("data"), files.toml()),
    )
    .unwrap();
    for (key, file, reason) in table {
        for command in ["check", "serve"] {
            let path = files.path(file);
            let output = Command::new("timeout")
                .args(["60", env!("CARGO_BIN_EXE_windlass"), command, "-c"])
                .arg(&config)
                .args(["--set", &format!("gearman.tls.{key}={}", path.display())])
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{key} {file}: {said}");
            let named =
                said.starts_with(&format!("windlass: gearman.tls.{key}: ")) && said.contains(file);
            assert!(
                named && said.contains(reason) && said.lines().count() == 1,
                "{key} {file}: {said}"
            );
        }
    }
    assert!(!files.path("data").exists(), "nothing was started");
    let output = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["check", "-c"])
        .arg(&config)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("gearman 127.0.0.1:0 (TLS)\n"), "{output:?}");
}
