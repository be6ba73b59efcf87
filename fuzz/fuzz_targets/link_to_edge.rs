//! Arbitrary bytes as a leader's stream: noise, and real items with any damage. Decoding does not panic, and what can
//! be read is written and read the same. What a carrier asks of an event has an answer for any event.
#![no_main]

#[path = "link/stream.rs"]
mod stream;

use libfuzzer_sys::fuzz_target;
use windlass_link::ToEdge;

const GOLDEN: &str = include_str!("../../crates/link/golden/to_edge.txt");

fuzz_target!(|input: stream::Input| {
    for item in stream::items::<ToEdge>(&input.bytes(GOLDEN)) {
        if let ToEdge::Event { mut event, .. } = item {
            let bytes = event.bytes();
            assert!(
                event.large_body(1).is_none_or(|body| !body.is_empty()),
                "{bytes} bytes"
            );
            event.queue_names_mut(|name| name.clear());
            let _ = (
                event.acknowledges(),
                event.is_barrier(),
                event.handed_out().is_some(),
                event.is_urgent(),
            );
        }
    }
});
