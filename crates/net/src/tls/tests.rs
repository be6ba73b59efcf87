//! A TLS stream between two local sockets, one step at a time.

use std::net::{TcpListener, TcpStream as StdStream};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use socket2::SockRef;

use super::*;
use crate::testing::Files;

fn handshaker_of(files: &Files) -> Handshaker {
    Handshaker::new(&files.tls, Duration::from_secs(5), CertificateNames::new())
        .unwrap()
        .unwrap()
}

/// The peer's side.
struct Peer {
    socket: StdStream,
    session: ClientConnection,
}

impl Peer {
    /// Sends its pending bytes, and receives those that are there.
    fn step(&mut self) {
        while self.session.wants_write() && self.session.write_tls(&mut self.socket).is_ok() {}
        while self
            .session
            .read_tls(&mut self.socket)
            .is_ok_and(|read| read > 0)
        {
            // An alert is among the session's results of reads.
            let _ = self.session.process_new_packets();
        }
    }

    fn read(&mut self, all: &mut Vec<u8>) -> io::Result<usize> {
        self.step();
        let mut some = vec![0; 1 << 16];
        let read = self.session.reader().read(&mut some)?;
        all.extend_from_slice(&some[..read]);
        Ok(read)
    }
}

/// The two ends of a TCP connection.
fn sockets() -> (TcpStream, StdStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let theirs = StdStream::connect(listener.local_addr().unwrap()).unwrap();
    let ours = listener.accept().unwrap().0;
    ours.set_nonblocking(true).unwrap();
    theirs.set_nonblocking(true).unwrap();
    (TcpStream::from_std(ours), theirs)
}

/// Both sides before their handshake.
fn pair(files: &Files) -> (TlsStream, Peer) {
    let (ours, socket) = sockets();
    let roots = Arc::new(authorities(&files.tls.certificate).unwrap());
    let versions = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = versions
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let name = ServerName::try_from("localhost").unwrap();
    let session = ClientConnection::new(Arc::new(config.with_no_client_auth()), name).unwrap();
    (
        handshaker_of(files).wrap(ours).unwrap(),
        Peer { socket, session },
    )
}

/// Repeats a step until it has a result.
fn until<T>(mut step: impl FnMut() -> io::Result<Option<T>>) -> io::Result<T> {
    let end = std::time::Instant::now() + Duration::from_secs(20);
    loop {
        match step() {
            Ok(Some(done)) => return Ok(done),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            Ok(None) | Err(_) => assert!(std::time::Instant::now() < end, "it does not come"),
        }
    }
}

fn shake(ours: &mut TlsStream, peer: &mut Peer) -> io::Result<()> {
    until(|| {
        peer.step();
        Ok(ours.shake_hands()?.then_some(()))
    })?;
    peer.step();
    Ok(())
}

fn shaken() -> (Files, TlsStream, Peer) {
    let files = Files::new(2040);
    let (mut ours, mut peer) = pair(&files);
    assert!(!ours.shake_hands().unwrap(), "the peer has sent nothing");
    shake(&mut ours, &mut peer).unwrap();
    (files, ours, peer)
}

fn says(peer: &mut Peer, bytes: &[u8]) {
    peer.session.writer().write_all(bytes).unwrap();
    peer.step();
}

#[test]
fn bytes_are_read_as_they_come() {
    let (_files, mut ours, mut peer) = shaken();
    let mut buffer = [0; 100];
    assert_eq!(
        ours.read(&mut buffer).unwrap_err().kind(),
        io::ErrorKind::WouldBlock
    );
    says(&mut peer, b"hello");
    assert_eq!(until(|| ours.read(&mut buffer).map(Some)).unwrap(), 5);
    assert_eq!(&buffer[..5], b"hello");
    assert_eq!(
        ours.read(&mut buffer).unwrap_err().kind(),
        io::ErrorKind::WouldBlock
    );
    assert!(!ours.is_drained_by_short_reads());
}

#[test]
fn bytes_are_read_behind_others_up_to_a_record() {
    let (_files, mut ours, mut peer) = shaken();
    let all: Vec<u8> = (0..40_000_u32)
        .map(|n| u8::try_from(n % 251).unwrap())
        .collect();
    says(&mut peer, &all);
    let mut buffer = Vec::with_capacity(1 << 20);
    while buffer.len() < all.len() {
        let held = buffer.len();
        let read = until(|| {
            peer.step();
            ours.read_behind(&mut buffer).map(Some)
        });
        let read = read.unwrap();
        assert!((1..=RECORD_BYTES).contains(&read));
        assert_eq!(buffer.len(), held + read);
    }
    assert!(buffer == all);
    let before = buffer.len();
    assert_eq!(
        ours.read_behind(&mut buffer).unwrap_err().kind(),
        io::ErrorKind::WouldBlock
    );
    assert_eq!(buffer.len(), before);
    says(&mut peer, b"0123456789");
    let mut small = Vec::with_capacity(8);
    small.extend_from_slice(b"ab");
    let room = small.capacity() - 2;
    assert_eq!(
        until(|| ours.read_behind(&mut small).map(Some)).unwrap(),
        room.min(10)
    );
    assert_eq!(small[..8], *b"ab012345");
}

#[test]
fn the_end_is_read_with_and_without_a_notice() {
    for is_noticed in [true, false] {
        let (_files, mut ours, mut peer) = shaken();
        says(&mut peer, b"x");
        if is_noticed {
            peer.session.send_close_notify();
            peer.step();
        }
        drop(peer);
        let mut buffer = [0; 100];
        assert_eq!(
            until(|| ours.read(&mut buffer).map(Some)).unwrap(),
            1,
            "{is_noticed}"
        );
        for _ in 0..2 {
            assert_eq!(
                until(|| ours.read(&mut buffer).map(Some)).unwrap(),
                0,
                "{is_noticed}"
            );
        }
    }
}

#[test]
fn the_socket_acknowledges_when_the_stream_is_asked_to() {
    let (_files, ours, _peer) = shaken();
    socket2::SockRef::from(&ours.socket)
        .set_tcp_quickack(false)
        .unwrap();
    ours.acknowledge();
    assert!(socket2::SockRef::from(&ours.socket).tcp_quickack().unwrap());
}

#[test]
fn a_file_without_a_certificate_is_refused() {
    let files = Files::new(2040);
    assert_eq!(
        certificates("client_ca", &files.tls.certificate)
            .unwrap()
            .len(),
        1
    );
    let error = certificates("client_ca", &files.tls.key)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("client_ca") && error.ends_with("no certificate found (PEM)"),
        "{error}"
    );
}

/// The writer offers the same bytes until the kernel has them.
#[test]
fn bytes_are_written_once_and_in_order() {
    let (_files, mut ours, mut peer) = shaken();
    let all: Vec<u8> = (0..(32_u32 << 20))
        .map(|n| u8::try_from(n % 251).unwrap())
        .collect();
    let (mut written, mut got) = (0, Vec::new());
    assert!(!ours.has_unwritten());
    let mut blocked = loop {
        match ours.write(&all[written..(written + 100_000).min(all.len())]) {
            Ok(bytes) => written += bytes,
            Err(error) => break error.kind(),
        }
    };
    assert!(ours.has_unwritten(), "the kernel takes no more");
    until(|| {
        peer.read(&mut got)?;
        match ours.write(&all[written..(written + 100_000).min(all.len())]) {
            Ok(bytes) => written += bytes,
            Err(error) => blocked = error.kind(),
        }
        assert_eq!(blocked, io::ErrorKind::WouldBlock);
        Ok((written == all.len()).then_some(()))
    })
    .unwrap();
    until(|| {
        peer.read(&mut got)?;
        Ok((got.len() == all.len()).then_some(()))
    })
    .unwrap();
    assert!(got == all);
    assert!(!ours.has_unwritten());
}

#[test]
fn a_stream_ends_with_a_notice_after_a_complete_handshake() {
    let (_files, ours, mut peer) = shaken();
    drop(ours);
    let end = until(|| peer.read(&mut Vec::new()).map(Some));
    assert_eq!(end.unwrap(), 0, "without a notice it is an error");
    let files = Files::new(2040);
    let (ours, mut peer) = pair(&files);
    drop(ours);
    let mut some = [0; 100];
    assert_eq!(
        until(|| peer.socket.read(&mut some).map(Some)).unwrap(),
        0,
        "nothing was sent"
    );
}

#[test]
fn a_failed_handshake_has_the_kind_of_its_cause() {
    let kind = |files: &Files, act: &dyn Fn(Peer) -> Option<Peer>| {
        let (mut ours, peer) = pair(files);
        let mut peer = act(peer);
        let shaken = until(|| {
            peer.iter_mut().for_each(Peer::step);
            Ok(ours.shake_hands()?.then_some(()))
        });
        shaken.map_err(|error| error.kind())
    };
    let files = Files::new(2040);
    assert_eq!(kind(&files, &Some), Ok(()));
    let goes = |bytes: &'static [u8], resets: bool| {
        move |mut peer: Peer| {
            peer.socket.write_all(bytes).unwrap();
            SockRef::from(&peer.socket)
                .set_linger(resets.then_some(Duration::ZERO))
                .unwrap();
            None
        }
    };
    // The second way to end is a reset.
    for resets in [false, true] {
        assert_eq!(
            kind(&files, &goes(b"", resets)),
            Err(io::ErrorKind::ConnectionAborted),
            "{resets}"
        );
    }
    assert_eq!(
        kind(&files, &goes(b"\x16\x03\x01", false)),
        Err(io::ErrorKind::UnexpectedEof)
    );
    let talks_plainly = |mut peer: Peer| {
        peer.socket.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        Some(peer)
    };
    assert_eq!(
        kind(&files, &talks_plainly),
        Err(io::ErrorKind::InvalidData)
    );
    let mut strict = files;
    strict.tls.client_ca = strict.tls.certificate.clone();
    assert_eq!(
        kind(&strict, &Some),
        Err(io::ErrorKind::PermissionDenied),
        "a peer without a certificate"
    );
}

#[test]
fn new_terms_are_for_new_connections() {
    const END_OF: [(i32, u64); 2] = [(2040, 2_208_988_800), (2030, 1_893_456_000)];
    let [late, early] = END_OF.map(|(year, _)| Files::new(year));
    let handshaker = handshaker_of(&late);
    assert_eq!(handshaker.certificate_ends_at(), Some(END_OF[0].1));
    handshaker
        .set(Terms::new(&early.tls, Duration::from_secs(9), CertificateNames::new()).unwrap());
    assert_eq!(
        (handshaker.certificate_ends_at(), handshaker.handshake_max()),
        (Some(END_OF[1].1), Duration::from_secs(9))
    );
    let chain = [&late, &early]
        .map(|files| fs::read_to_string(&files.tls.certificate).unwrap())
        .concat();
    fs::write(&late.tls.certificate, chain).unwrap();
    assert_eq!(
        handshaker_of(&late).certificate_ends_at(),
        Some(END_OF[1].1),
        "the first end of the chain"
    );
    assert!(
        Handshaker::new(&Tls::default(), Duration::ZERO, CertificateNames::new())
            .unwrap()
            .is_none()
    );
}

#[test]
fn a_certificate_that_is_not_valid_now_is_named() {
    use windlass_hub::testing::captured;
    let warned = |files: &Files| captured(|| drop(handshaker_of(files)));
    let expired = Files::new(2001);
    let said = warned(&expired);
    let path = expired.tls.certificate.display().to_string();
    assert!(
        said.contains("a certificate has expired") && said.contains(&path),
        "{said}"
    );
    assert_eq!(warned(&Files::new(2040)), "");
}
