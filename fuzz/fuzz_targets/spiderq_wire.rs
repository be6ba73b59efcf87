//! Hostile bytes against the codec of spiderq: an encoded message decodes to itself, a message cut off a stream is
//! complete, and every flaw can be encoded and decoded.
#![no_main]

#[path = "../../crates/spiderq/tests/spiderq/client.rs"]
mod client;

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use windlass_spiderq::wire::{Cut, Dialect, Reply, Request, cut};

const BYTES_MAX: usize = 1_000;

fuzz_target!(|bytes: &[u8]| {
    for dialect in [Dialect::V1_3, Dialect::V1_4] {
        let mut out = BytesMut::new();
        match Request::decode(bytes, dialect) {
            Ok(request) => {
                client::encode(&request, &mut out);
                assert!(bytes.starts_with(&out), "{request:?}");
                assert_eq!(Request::decode(&out, dialect), Ok(request));
            }
            Err(fault) => {
                let reply = Reply::Error(fault);
                reply.encode(&mut out);
                assert_eq!(client::decode(&out), Ok((reply, out.len())));
            }
        }
    }
    if let Ok((reply, length)) = client::decode(bytes) {
        let mut out = BytesMut::new();
        reply.encode(&mut out);
        assert_eq!(
            (&out[..], reply.bytes()),
            (&bytes[..length], length),
            "{reply:?}"
        );
    }
    let mut rest = bytes;
    while let Ok(Cut::Whole(length)) = cut(rest, BYTES_MAX) {
        let (request, behind) = rest.split_at(length);
        // The message is complete: if it is invalid all the same, one of its choices is unknown.
        if let Err(fault) = Request::decode(request, Dialect::V1_3) {
            assert!(
                matches!(fault, windlass_spiderq::wire::Fault::Unknown { .. }),
                "{fault:?}"
            );
        }
        rest = behind;
    }
});
