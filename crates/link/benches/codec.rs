//! The cost of the link for a submit and for its reply: nanoseconds to encode and to decode, bytes on the wire, and
//! nanoseconds for the edge's ledger.
//!
//! `cargo bench -p windlass-link --bench codec`. Prints one line per measurement, and compares nothing.

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use windlass_engine::{
    Clash, ClientId, Event, JobCommand, JobId, KeyUntil, NewJob, Protocol, Pushed, Reply, Tag,
    Unique,
};
use windlass_link::{
    Bounds, Decoder, Edge, Encoder, FRAME_BYTES_MAX, Item, Ledger, ToEdge, ToLeader,
};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Items in one write.
const BATCH: u32 = 128;
const ROUNDS: u32 = 8_000;
/// Clients in the ledger.
const CLIENTS: u64 = 1_000;
/// Each measurement is the quickest of this many.
const TRIES: usize = 5;

/// The daemon's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Outcome {
    let edge = Edge::new(7).ok_or("no edge")?;
    let client = ClientId(edge.first_client().0 + 100_000);
    let job = |bytes: usize| {
        NewJob::new(
            Protocol::GEARMAN,
            Bytes::from_static(b"resize"),
            vec![7; bytes].into(),
        )
    };
    let push = |job| ToLeader::Command {
        client,
        tag: Tag(1_000_000),
        command: JobCommand::Push(Box::new(job)).into(),
    };
    let unique = Unique {
        key: Bytes::from(vec![b'k'; 36]),
        clash: Clash::Attach,
        until: KeyUntil::End,
    };
    let pushed = Reply::Pushed {
        job: JobId(10_000_000),
        how: Pushed::New,
        durable: true,
    };
    let pushed = ToEdge::Event {
        client,
        gate: 1_000_000,
        event: Event::Reply(Tag(1_000_000), pushed),
    };
    measure("submit, 100 bytes", &push(job(100)))?;
    measure(
        "submit, 100 bytes, key of 36",
        &push(NewJob {
            unique: Some(unique),
            ..job(100)
        }),
    )?;
    measure("submit, 1,000 bytes", &push(job(1_000)))?;
    measure("submit, 16 KiB", &push(job(16 << 10)))?;
    measure("pushed", &pushed)?;
    ledger(
        client,
        &[push(job(100))],
        &[ToEdge::Applied { client, count: 1 }, pushed],
    );
    Ok(())
}

/// The ledger's part of a command and what answers it.
fn ledger(client: ClientId, to_leader: &[ToLeader], to_edge: &[ToEdge]) {
    let mut ledger = Ledger::new(Bounds {
        bytes_max: 1 << 30,
        client_bytes_max: 1 << 30,
    });
    for other in 0..CLIENTS {
        ledger.sent(&ToLeader::Open {
            client: ClientId(client.0 + other),
            room: u64::MAX,
        });
    }
    let mut best = Duration::MAX;
    for _ in 0..TRIES {
        let begun = Instant::now();
        for _ in 0..ROUNDS * BATCH {
            to_leader
                .iter()
                .for_each(|item| ledger.sent(black_box(item)));
            to_edge
                .iter()
                .for_each(|item| ledger.received(black_box(item)));
        }
        best = best.min(begun.elapsed());
    }
    println!(
        "{:<30} {:>6} ns",
        "a submit in the ledger",
        best.as_nanos() / u128::from(ROUNDS * BATCH)
    );
}

fn measure<T: Item>(name: &str, item: &T) -> Outcome {
    let (mut encoder, mut decoder) = (
        Encoder::new(FRAME_BYTES_MAX),
        Decoder::<T>::new(FRAME_BYTES_MAX),
    );
    let (mut best, mut bytes) = ((Duration::MAX, Duration::MAX), Vec::new());
    for _ in 0..TRIES {
        let (mut writing, mut reading) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            (0..BATCH).try_for_each(|_| encoder.push(black_box(item)))?;
            bytes.clear();
            encoder.take_into(&mut bytes);
            writing += begun.elapsed();
            decoder.input().extend_from_slice(&bytes);
            let begun = Instant::now();
            while let Some(item) = decoder.next()? {
                drop(black_box(item));
            }
            reading += begun.elapsed();
        }
        best = (best.0.min(writing), best.1.min(reading));
    }
    let each = |time: Duration| time.as_nanos() / u128::from(ROUNDS * BATCH);
    let (writing, reading, size) = (each(best.0), each(best.1), bytes.len() / BATCH as usize);
    println!("{name:<30} {writing:>6} ns to encode {reading:>6} ns to decode {size:>6} bytes");
    Ok(())
}
