use std::net::SocketAddr;

use super::*;
use crate::file_mode::FileMode;
use windlass_config::Period;

/// A name may have several addresses.
#[tokio::test]
async fn only_addresses_of_other_machines_are_left_out_beside_others() {
    let busy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (own, busy) = ("127.0.0.1:0".parse().unwrap(), busy.local_addr().unwrap());
    // TEST-NET-1 of RFC 5737: no machine has it.
    let other: SocketAddr = "192.0.2.1:0".parse().unwrap();
    let bound = |addresses: &[SocketAddr]| {
        let addresses = addresses.iter().copied().map(Address::Tcp).collect();
        let listen = "localhost:0".parse().unwrap();
        let bound = bind_all(
            &listen,
            addresses,
            &Server::default(),
            &mut Inherited::default(),
        );
        bound.map(|bound| bound.len()).map_err(|error| error.kind())
    };
    assert_eq!(bound(&[own, own]), Ok(2));
    assert_eq!(bound(&[other, own]), Ok(1));
    assert_eq!(bound(&[other]), Err(io::ErrorKind::AddrNotAvailable));
    assert_eq!(bound(&[busy, own]), Err(io::ErrorKind::AddrInUse));
}

#[tokio::test]
async fn localhost_is_bound_with_ipv6_and_without() {
    let listen = "localhost:0".parse().unwrap();
    let bound = bind(&listen, &Server::default(), &mut Inherited::default()).unwrap();
    let addresses: Vec<Address> = bound.iter().map(|bound| bound.address().unwrap()).collect();
    let Some(Address::Tcp(first)) = addresses.first() else {
        panic!("{addresses:?}")
    };
    assert!(first.is_ipv4());
    let port = first.port();
    let has_ipv6 = std::net::TcpListener::bind("[::1]:0").is_ok();
    let expected = [format!("127.0.0.1:{port}"), format!("[::1]:{port}")];
    let found: Vec<String> = addresses.iter().map(Address::to_string).collect();
    assert_eq!(found, expected[..1 + usize::from(has_ipv6)]);
    // Another process has one of the two.
    drop(bound);
    let Ok(_other) = std::net::TcpListener::bind(("::1", port)) else {
        return;
    };
    let listen = format!("localhost:{port}").parse().unwrap();
    let bind_within = |in_use_timeout| {
        bind(
            &listen,
            &Server {
                in_use_timeout,
                ..Server::default()
            },
            &mut Inherited::default(),
        )
        .map(|bound| bound.len())
        .map_err(|error| error.kind())
    };
    assert_eq!(bind_within(Period::from_secs(0)), Ok(1));
    assert_eq!(
        bind_within(Period::from_secs(1)),
        Err(io::ErrorKind::AddrInUse),
        "it is tried again"
    );
}

#[tokio::test]
async fn a_client_has_the_number_of_its_socket_and_over_tcp_its_address() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ipc");
    let listens = ["127.0.0.1:0".to_owned(), format!("unix:{}", path.display())];
    for (listen, address) in listens.into_iter().zip(["127.0.0.1", ""]) {
        let listen = listen.parse().unwrap();
        let bound = bind(&listen, &Server::default(), &mut Inherited::default())
            .unwrap()
            .remove(0);
        let _peer: Box<dyn std::any::Any> = match bound.address().unwrap() {
            Address::Tcp(address) => Box::new(std::net::TcpStream::connect(address).unwrap()),
            Address::Unix(path) => Box::new(std::os::unix::net::UnixStream::connect(path).unwrap()),
        };
        let (accepted, info) = bound.next(&KeepAlive::default()).await.unwrap();
        let fd = match &accepted {
            Accepted::Tcp(socket) => socket.as_raw_fd(),
            Accepted::Unix(socket) => socket.as_raw_fd(),
        };
        assert_eq!(
            (&*info.address, i64::from(info.number)),
            (address, i64::from(fd))
        );
    }
}

#[tokio::test]
async fn accepted_sockets_have_the_configured_keepalive() {
    let listen: ListenAddress = "127.0.0.1:0".parse().unwrap();
    let mut server = Server {
        keepalive_idle: Period::from_secs(30),
        keepalive_interval: Period::from_secs(7),
        ..Server::default()
    };
    server.keepalive_count = 3;
    let bound = bind(&listen, &server, &mut Inherited::default()).unwrap();
    let [Bound::Tcp(listener)] = &bound[..] else {
        panic!("{bound:?}")
    };
    let _peer = tokio::net::TcpStream::connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    let socket = SockRef::from(&stream);
    assert!(socket.keepalive().unwrap());
    assert_eq!(
        socket.tcp_keepalive_time().unwrap(),
        Duration::from_secs(30)
    );
    assert_eq!(
        socket.tcp_keepalive_interval().unwrap(),
        Duration::from_secs(7)
    );
    assert_eq!(socket.tcp_keepalive_retries().unwrap(), 3);
    assert_eq!(
        socket.tcp_user_timeout().unwrap(),
        Some(Duration::from_secs(51)),
        "for what is not acknowledged"
    );

    let changed = KeepAlive::default();
    changed.apply(&stream);
    assert_eq!(socket.tcp_keepalive_retries().unwrap(), 3, "no change yet");
    changed.renew(&Server {
        keepalive_idle: Period::from_secs(40),
        ..Server::default()
    });
    changed.apply(&stream);
    let system = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    assert_eq!(
        socket.tcp_keepalive_time().unwrap(),
        Duration::from_secs(40)
    );
    assert_eq!(
        socket.tcp_keepalive_interval().unwrap(),
        system.tcp_keepalive_interval().unwrap()
    );
    assert_eq!(
        socket.tcp_keepalive_retries().unwrap(),
        system.tcp_keepalive_retries().unwrap()
    );
}

#[tokio::test]
async fn a_unix_socket_replaces_a_stale_one_has_its_mode_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ipc");
    // A killed daemon leaves this behind.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let listen: ListenAddress = format!("ipc://{}", path.display()).parse().unwrap();
    let server = Server {
        unix_mode: FileMode(Some(0o600)),
        ..Server::default()
    };
    let bound = bind(&listen, &server, &mut Inherited::default()).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(
        bind(&listen, &server, &mut Inherited::default())
            .unwrap_err()
            .kind(),
        io::ErrorKind::AddrInUse
    );
    let [Bound::Unix(listener, _)] = &bound[..] else {
        panic!("{bound:?}")
    };
    let _peer = std::os::unix::net::UnixStream::connect(&path).unwrap();
    listener.accept().await.unwrap();
    drop(bound);
    assert!(!path.exists());
}

#[test]
fn addresses_of_other_machines_and_of_missing_families_may_be_left_out() {
    let family = io::Error::from_raw_os_error(rustix::io::Errno::AFNOSUPPORT.raw_os_error());
    let table = [
        (family, true),
        (io::ErrorKind::AddrNotAvailable.into(), true),
        (io::ErrorKind::AddrInUse.into(), false),
        (io::ErrorKind::PermissionDenied.into(), false),
    ];
    for (error, expected) in table {
        assert_eq!(is_not_ours(&error), expected, "{error}");
    }
}

#[test]
fn a_socket_whose_backlog_is_full_is_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ipc");
    let listening = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    listening.bind(&SockAddr::unix(&path).unwrap()).unwrap();
    listening.listen(1).unwrap();
    for _ in 0..8 {
        assert_eq!(
            clear_stale(&path).unwrap_err().kind(),
            io::ErrorKind::AddrInUse
        );
    }
    assert!(path.exists());
}

#[tokio::test]
async fn only_a_stale_socket_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let server = Server::default();
    let refused = |name: &str| bind_one(&Address::Unix(path(name)), &server).unwrap_err();
    std::fs::write(path("file"), "precious").unwrap();
    std::fs::create_dir(path("dir")).unwrap();
    std::os::unix::fs::symlink(path("file"), path("link")).unwrap();
    std::os::unix::fs::symlink(path("gone"), path("dangling")).unwrap();
    for name in ["file", "dir", "link", "dangling"] {
        assert_eq!(
            refused(name).to_string(),
            "the file there is not a socket",
            "{name}"
        );
        assert!(std::fs::symlink_metadata(path(name)).is_ok(), "{name}");
    }
    assert_eq!(std::fs::read(path("file")).unwrap(), b"precious");
    assert_eq!(
        clear_stale(&path("file").join("ipc")).unwrap_err().kind(),
        io::ErrorKind::NotADirectory
    );
    // A socket of another type is in use too, and so is one with a full backlog.
    let _datagrams = std::os::unix::net::UnixDatagram::bind(path("datagrams")).unwrap();
    let full = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    full.bind(&SockAddr::unix(path("full")).unwrap()).unwrap();
    full.listen(0).unwrap();
    let _first = std::os::unix::net::UnixStream::connect(path("full")).unwrap();
    for name in ["datagrams", "full"] {
        assert_eq!(refused(name).kind(), io::ErrorKind::AddrInUse, "{name}");
        assert!(path(name).exists(), "{name}");
    }
}

#[tokio::test]
async fn an_address_of_another_machine_is_an_error_if_there_is_no_other() {
    // TEST-NET-1 of RFC 5737: no machine has it.
    let listen: ListenAddress = "192.0.2.1:0".parse().unwrap();
    let error = bind(&listen, &Server::default(), &mut Inherited::default()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
    let address: SocketAddr = "192.0.2.1:0".parse().unwrap();
    assert!(is_not_ours(
        &bind_one(&Address::Tcp(address), &Server::default()).unwrap_err()
    ));
}
