//! Answers every message with itself, or publishes to subscribers: for trying the peer by hand with any client. One
//! blocking thread for each connection, unlike the daemon.
//!
//! `cargo run -p windlass-zmtp --example echo -- ADDRESS [router|pub] [USER:PASSWORD] [PING_IDLE_MS]`. It prints its
//! address and what it receives. A `pub` sends `[TOPIC, number]` for 1, 2 and 3 to each subscriber of a topic.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use windlass_engine::Timestamp;
use windlass_zmtp::{
    Close, ConnectionRegistry, Event, HangUp, Login, Mechanism, Peer, Role, Settings, Subscriptions,
};

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |index: usize| {
        arguments
            .get(index)
            .map(String::as_str)
            .filter(|text| !text.is_empty())
    };
    let role = if argument(1) == Some("pub") {
        Role::Pub
    } else {
        Role::Router
    };
    let mut settings = Settings::new(role);
    if let Some((user, password)) = argument(2).and_then(|text| text.split_once(':')) {
        let login = Login {
            user: user.to_owned().into(),
            password: password.to_owned().into(),
        };
        settings.mechanism = Mechanism::Plain(vec![login]);
    }
    if let Some(ms) = argument(3).and_then(|text| text.parse().ok()) {
        (settings.ping_idle_ms, settings.ping_timeout_ms) = (ms, ms);
    }
    let (settings, registry) = (Arc::new(settings), Arc::<ConnectionRegistry>::default());
    let listener = TcpListener::bind(argument(0).unwrap_or("127.0.0.1:0"))?;
    println!("listening {}", listener.local_addr()?);
    for stream in listener.incoming() {
        let (stream, settings, registry) = (stream?, Arc::clone(&settings), Arc::clone(&registry));
        std::thread::spawn(move || {
            let reason = serve(stream, settings, &registry);
            println!("closed {reason:?}");
        });
    }
    Ok(())
}

fn serve(
    mut stream: TcpStream,
    settings: Arc<Settings>,
    registry: &Arc<ConnectionRegistry>,
) -> Result<(), Close> {
    let begin = Instant::now();
    let now = || Timestamp(u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX));
    let hang_up: HangUp = match stream.try_clone() {
        Ok(stream) => Arc::new(move |close| {
            println!("closing: {close}");
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }),
        Err(_) => return Ok(()),
    };
    let mut registration = registry.enter(hang_up);
    let publisher = settings.role == Role::Pub;
    let (mut input, mut out, mut buffer) = (BytesMut::new(), BytesMut::new(), vec![0; 64 << 10]);
    let mut topics = Subscriptions::new(100, 10_000);
    let mut peer = Peer::new(settings);
    peer.open(now(), &mut out);
    loop {
        if stream.write_all(&out).is_err() {
            return Ok(());
        }
        out.clear();
        let wait = peer
            .next_deadline()
            .map(|at| Duration::from_millis(at.ms_since(now()).max(1)));
        let _ = stream.set_read_timeout(wait);
        let read = match stream.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => 0,
            Err(_) => return Ok(()),
        };
        input.extend_from_slice(buffer.get(..read).unwrap_or_default());
        let mut result = peer.tick(now(), &mut out);
        while result.is_ok() {
            let event = match peer.read(now(), &mut input, &mut out) {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(close) => {
                    result = Err(close);
                    break;
                }
            };
            match event {
                Event::Ready(ready) => {
                    println!("{ready:?}");
                    let identity = registration.settle(ready.identity, now());
                    println!("called {identity:?}");
                }
                Event::Message(message) => {
                    let (envelope, last) = (message.envelope(), message.last());
                    let _ = peer.reply(&envelope, last.len(), &mut out, |out| {
                        out.extend_from_slice(last)
                    });
                }
                Event::Subscribe(topic) => {
                    println!("subscribe {topic:?}");
                    let _ = topics.add(topic.clone());
                    for number in 1..=3 {
                        let text = number.to_string();
                        let _ = peer.send([&*topic, text.as_bytes()], &mut out);
                    }
                }
                Event::Cancel(topic) => {
                    println!("cancel {topic:?}");
                    topics.cancel(&topic);
                    debug_assert!(publisher);
                }
            }
        }
        if result.is_err() {
            let _ = stream.write_all(&out);
            return result;
        }
    }
}
