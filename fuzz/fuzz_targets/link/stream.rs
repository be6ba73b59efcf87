//! A stream of frames for the fuzzer: any bytes, or real items with changes in them.

use std::fmt::Debug;

use arbitrary::Arbitrary;
use windlass_link::{Decoder, Encoder, FRAME_BYTES_MAX, Item, VERSION};

#[derive(Arbitrary, Debug)]
pub enum Input {
    /// A stream.
    Stream(Vec<u8>),
    /// The items of one frame.
    Items(Vec<u8>),
    /// Items from the golden file, each with changed bytes.
    Golden(Vec<(u16, Vec<(u8, u8)>)>),
}

impl Input {
    pub fn bytes(&self, golden: &str) -> Vec<u8> {
        match self {
            Self::Stream(bytes) => bytes.clone(),
            Self::Items(bytes) => framed(bytes),
            Self::Golden(items) => {
                let frames: Vec<&str> = golden.lines().skip(1).step_by(3).collect();
                let item = |(which, changes): &(u16, Vec<(u8, u8)>)| {
                    let frame = frames.get(usize::from(*which) % frames.len().max(1))?;
                    let mut items = hex::decode(frame.trim()).ok()?.split_off(5);
                    for (place, bits) in changes {
                        let many = items.len().max(1);
                        items
                            .get_mut(usize::from(*place) % many)
                            .into_iter()
                            .for_each(|byte| *byte ^= bits);
                    }
                    Some(framed(&items))
                };
                items.iter().filter_map(item).flatten().collect()
            }
        }
    }
}

fn framed(items: &[u8]) -> Vec<u8> {
    let length = u32::try_from(items.len() + 1).unwrap_or(u32::MAX);
    [&length.to_le_bytes()[..], &[VERSION], items].concat()
}

/// The items at the front of a stream. They are written and read the same.
pub fn items<T: Item + Debug>(stream: &[u8]) -> Vec<T> {
    let items = read::<T>(stream);
    let mut encoder = Encoder::new(FRAME_BYTES_MAX);
    items
        .iter()
        .for_each(|item| encoder.push(item).expect("as long as before"));
    let again = read::<T>(&encoder.take());
    assert_eq!(format!("{items:?}"), format!("{again:?}"));
    items
}

fn read<T: Item>(stream: &[u8]) -> Vec<T> {
    let mut decoder = Decoder::new(FRAME_BYTES_MAX);
    decoder.input().extend_from_slice(stream);
    std::iter::from_fn(|| decoder.next().ok().flatten()).collect()
}
