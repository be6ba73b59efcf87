//! The bytes of one item of each kind, with each command, reply and notice, as they were when the kind was new. They
//! stay readable, and are written the same: what a newer program has added is not set in them, and takes no byte.
//!
//! `WINDLASS_GOLDEN=1 cargo test -p windlass-link golden` adds kinds that are new, and the names of new fields to how an item
//! looks. It changes no bytes.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs;
use std::path::PathBuf;

use windlass_link::{Decoder, Encoder, FRAME_BYTES_MAX, Item, ToEdge, ToLeader};

use windlass_testkit::dice::each_variant;

/// The enums of which each variant has an item of its own.
const KINDS: &[&str] = &[
    "ToLeader",
    "ToEdge",
    "Claim",
    "Rejection",
    "Command",
    "ClientCommand",
    "JobCommand",
    "TakeCommand",
    "LeaseCommand",
    "QueueCommand",
    "ScheduleCommand",
    "BatchCommand",
    "BulkCommand",
    "WorkerCommand",
    "NamespaceCommand",
    "Query",
    "Event",
    "Reply",
    "Notice",
    "Watched",
    "Why",
    "Refusal",
    "Condition",
    "From",
    "End",
    "Note",
    "Fate",
    "Recurrence",
    "ScheduleRef",
];

/// The enums of a job's fields, whose variants only a push has.
const FIELDS: &[&str] = &[
    "ToLeader",
    "ToEdge",
    "Command",
    "JobCommand",
    "Listen",
    "Expiry",
];

/// An item's bytes as hex, and how it looks.
type Golden = BTreeMap<String, (String, String)>;

fn path(direction: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("golden")
        .join(direction)
        .with_extension("txt")
}

/// Three lines for each item: its name, its bytes, how it looks.
fn read(direction: &str) -> Golden {
    let text = fs::read_to_string(path(direction)).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    let items = lines.chunks_exact(3);
    items
        .map(|item| {
            (
                item[0].to_owned(),
                (item[1].trim().to_owned(), item[2].trim().to_owned()),
            )
        })
        .collect()
}

fn write(direction: &str, golden: &Golden) {
    let items = golden
        .iter()
        .map(|(name, (bytes, looks))| format!("{name}\n  {bytes}\n  {looks}\n"));
    fs::write(path(direction), items.collect::<String>()).unwrap();
}

fn encoded<T: Item>(item: &T) -> Vec<u8> {
    let mut encoder = Encoder::new(FRAME_BYTES_MAX);
    encoder.push(item).unwrap();
    encoder.take()
}

fn check<T: Item + Debug>(direction: &str) {
    let renews = std::env::var_os("WINDLASS_GOLDEN").is_some();
    let mut golden = read(direction);
    let fields = each_variant::<T>(FIELDS)
        .into_iter()
        .filter(|(name, _)| name.starts_with("Command.Job.Push."));
    for (name, item) in each_variant::<T>(KINDS).into_iter().chain(fields) {
        golden.entry(name).or_insert_with(|| {
            assert!(renews, "a new kind: {item:?}");
            (hex::encode(encoded(&item)), format!("{item:?}"))
        });
    }
    for (name, (bytes, looks)) in &mut golden {
        let bytes = hex::decode(&*bytes).unwrap();
        let mut decoder = Decoder::<T>::new(FRAME_BYTES_MAX);
        decoder.input().extend_from_slice(&bytes);
        let item = decoder
            .next()
            .unwrap_or_else(|error| panic!("{name}: {error}"))
            .unwrap();
        if renews {
            *looks = format!("{item:?}");
        }
        assert_eq!(&format!("{item:?}"), looks, "{name}");
        assert_eq!(encoded(&item), bytes, "{name}");
    }
    if renews {
        write(direction, &golden);
    }
}

#[test]
fn golden_to_leader() {
    check::<ToLeader>("to_leader");
}

#[test]
fn golden_to_edge() {
    check::<ToEdge>("to_edge");
}
