//! Properties for all items and all bytes.

use std::fmt::Debug;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use windlass_link::{Decoder, Encoder, FRAME_BYTES_MAX, Item, ToEdge, ToLeader};

use windlass_testkit::dice::Dice;

/// The items that these dice make, but for those that cannot be.
fn items<T: Item>(seeds: &[u64]) -> Vec<T> {
    seeds
        .iter()
        .filter_map(|seed| Dice::new(*seed).make().ok())
        .collect()
}

fn encoded<T: Item>(items: &[T]) -> Vec<u8> {
    let mut encoder = Encoder::new(FRAME_BYTES_MAX);
    items.iter().for_each(|item| encoder.push(item).unwrap());
    encoder.take()
}

/// All items in a stream that arrives in these pieces, as far as it can be read.
fn decoded<T: Item>(bytes: &[u8], cuts: &[Index]) -> Vec<T> {
    let mut places: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    places.push(bytes.len());
    places.sort_unstable();
    let (mut decoder, mut items, mut at) = (Decoder::new(FRAME_BYTES_MAX), Vec::new(), 0);
    for place in places {
        decoder.input().extend_from_slice(&bytes[at..place]);
        at = place;
        while let Ok(Some(item)) = decoder.next() {
            items.push(item);
        }
    }
    items
}

fn come_back<T: Item + Debug>(seeds: &[u64], cuts: &[Index]) {
    let items = items::<T>(seeds);
    let looks = |items: &[T]| {
        items
            .iter()
            .map(|item| format!("{item:?}"))
            .collect::<Vec<_>>()
    };
    assert_eq!(looks(&decoded(&encoded(&items), cuts)), looks(&items));
}

/// Items that are read from altered bytes are written again and read the same.
fn stay<T: Item + Debug>(seeds: &[u64], changes: &[(Index, u8)]) {
    let mut bytes = encoded(&items::<T>(seeds));
    for (place, bits) in changes {
        if !bytes.is_empty() {
            let place = place.index(bytes.len());
            bytes[place] ^= bits;
        }
    }
    let read = decoded::<T>(&bytes, &[]);
    let again = decoded::<T>(&encoded(&read), &[]);
    assert_eq!(format!("{read:?}"), format!("{again:?}"));
}

proptest! {
    #[test]
    fn what_was_sent_arrives(seeds in vec(any::<u64>(), 0..20), cuts in vec(any::<Index>(), 0..5)) {
        come_back::<ToLeader>(&seeds, &cuts);
        come_back::<ToEdge>(&seeds, &cuts);
    }

    #[test]
    fn noise_does_no_harm(
        seeds in vec(any::<u64>(), 1..5),
        changes in vec((any::<Index>(), any::<u8>()), 0..6),
        noise in vec(any::<u8>(), 0..200),
    ) {
        stay::<ToLeader>(&seeds, &changes);
        stay::<ToEdge>(&seeds, &changes);
        let framed = [&(u32::try_from(noise.len()).unwrap() + 1).to_le_bytes()[..], &[windlass_link::VERSION], &noise].concat();
        decoded::<ToLeader>(&framed, &[]);
        decoded::<ToEdge>(&framed, &[]);
    }
}
