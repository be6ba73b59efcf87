//! Measures the cost of the codec: messages of three small parts, read (with the argument `read`), or read and answered. Run it
//! with `--release`, under `time`.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Buf, BytesMut};
use windlass_engine::Timestamp;
use windlass_zmtp::{Event, Message, Peer, Role, Settings};

const NOW: Timestamp = Timestamp(0);
const MESSAGES: u32 = 20_000_000;

fn main() {
    // What one read of a socket may return: 64 messages.
    let message = Message::new([&b""[..], b"cookie00", b"\x0b"]);
    let batch = message.frames().repeat(64);
    let (mut dealer, mut peer) =
        (Peer::new(Arc::new(Settings::new(Role::Dealer))), Peer::new(Arc::new(Settings::new(Role::Router))));
    let (mut input, mut out) = (BytesMut::new(), BytesMut::new());
    dealer.open(NOW, &mut input);
    peer.open(NOW, &mut out);
    while peer.read(NOW, &mut input, &mut out).is_ok_and(|event| event.is_some()) {}
    let answers = std::env::args().nth(1).as_deref() != Some("read");
    out.clear();
    let (begin, mut bytes) = (Instant::now(), 0);
    for _ in 0..MESSAGES / 64 {
        input.extend_from_slice(&batch);
        while let Ok(Some(event)) = peer.read(NOW, &mut input, &mut out) {
            if let Event::Message(message) = &event {
                bytes += black_box(message.parts().map(<[u8]>::len).sum::<usize>());
                if answers {
                    let _ = peer.reply(&message.envelope(), 1, &mut out, |out| out.extend_from_slice(b"\x11"));
                }
            }
        }
        let written = out.len();
        out.advance(written);
    }
    let ns = begin.elapsed().as_nanos() / u128::from(MESSAGES);
    println!("{MESSAGES} messages with {bytes} bytes, {ns} ns each");
}
