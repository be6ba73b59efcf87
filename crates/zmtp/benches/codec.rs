//! The cost of the codec for a message of three small parts: read, or read and answered.

use std::hint::black_box;
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use windlass_engine::Timestamp;
use windlass_zmtp::{Event, Message, Peer, Role, Settings};

const NOW: Timestamp = Timestamp(0);
/// What one read of a socket may return.
const BATCH: u32 = 64;

/// A peer with traffic.
struct Server {
    peer: Peer,
    input: BytesMut,
    out: BytesMut,
}

impl Server {
    fn new() -> Self {
        let mut dealer = Peer::new(Arc::new(Settings::new(Role::Dealer)));
        let mut peer = Peer::new(Arc::new(Settings::new(Role::Router)));
        let (mut input, mut out) = (BytesMut::new(), BytesMut::new());
        dealer.open(NOW, &mut input);
        peer.open(NOW, &mut out);
        while peer
            .read(NOW, &mut input, &mut out)
            .is_ok_and(|event| event.is_some())
        {}
        out.clear();
        Self { peer, input, out }
    }

    fn read(&mut self, batch: &[u8], answers: bool) {
        self.input.extend_from_slice(batch);
        while let Ok(Some(event)) = self.peer.read(NOW, &mut self.input, &mut self.out) {
            let Event::Message(message) = &event else {
                continue;
            };
            black_box(message.parts().map(<[u8]>::len).sum::<usize>());
            if answers {
                let _ = self
                    .peer
                    .reply(&message.envelope(), 1, &mut self.out, |out| {
                        out.extend_from_slice(b"\x11")
                    });
            }
        }
        let written = self.out.len();
        self.out.advance(written);
    }
}

fn codec(criterion: &mut Criterion) {
    let message = Message::new([&b""[..], b"cookie00", b"\x0b"]);
    let batch = message.frames().repeat(64);
    let mut group = criterion.benchmark_group("64 messages");
    group.throughput(Throughput::Elements(BATCH.into()));
    for (name, answers) in [("read", false), ("read and answer", true)] {
        let mut server = Server::new();
        group.bench_function(name, |bencher| {
            bencher.iter(|| server.read(&batch, answers))
        });
    }
    group.finish();
}

criterion_group!(benches, codec);
criterion_main!(benches);
