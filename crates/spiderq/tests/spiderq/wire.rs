//! Every frame as bytes: the specification's examples, every flaw of a request, both dialects.

use bytes::BytesMut;

use crate::client;
use windlass_spiderq::wire::{
    Counts, Cut, Dialect, Fault, Flaw, Mode, Patience, Reply, Request, Status, Uncut, cut,
};

fn bytes(hex: &str) -> Vec<u8> {
    hex::decode(hex.replace(' ', "")).unwrap()
}

fn text(bytes: &[u8]) -> String {
    hex::encode(bytes)
}

/// Decodes a request, and returns its `Debug` text or the bytes of the error reply.
fn read(request: &str, dialect: Dialect) -> String {
    let request = bytes(request);
    match Request::decode(&request, dialect) {
        Ok(request) => format!("{request:?}"),
        Err(fault) => {
            let mut out = BytesMut::new();
            let reply = Reply::Error(fault);
            reply.encode(&mut out);
            assert_eq!(reply.bytes(), out.len());
            assert_eq!(client::decode(&out), Ok((reply, out.len())));
            text(&out)
        }
    }
}

#[test]
fn requests_of_the_specification() {
    let (key, small, big) = (&b"cat"[..], &b"small"[..], &b"big"[..]);
    let table: [(&str, Request<'_>); 19] = [
        ("0B", Request::Ping),
        ("01", Request::Count),
        (
            "02 00000003 636174 00000005 736D616C6C",
            Request::Add {
                key,
                value: small,
                mode: None,
            },
        ),
        (
            "02 00000003 636174 00000005 736D616C6C 01",
            Request::Add {
                key,
                value: small,
                mode: Some(Mode::Head),
            },
        ),
        (
            "02 00000003 636174 00000005 736D616C6C 02",
            Request::Add {
                key,
                value: small,
                mode: Some(Mode::Tail),
            },
        ),
        (
            "02 00000000 00000000",
            Request::Add {
                key: b"",
                value: b"",
                mode: None,
            },
        ),
        (
            "03 00000003 636174 00000005 736D616C6C",
            Request::Update { key, value: small },
        ),
        ("09 00000003 636174", Request::Lookup { key }),
        (
            "04 00000000000003E8 01",
            Request::Lend {
                timeout_ms: 1_000,
                patience: Patience::Block,
            },
        ),
        (
            "04 FFFFFFFFFFFFFFFF 02",
            Request::Lend {
                timeout_ms: u64::MAX,
                patience: Patience::Poll,
            },
        ),
        (
            "05 0000000000000001 00000003 636174 00000003 626967 01",
            repay(Status::Penalty),
        ),
        (
            "05 0000000000000001 00000003 636174 00000003 626967 02",
            repay(Status::Reward),
        ),
        (
            "05 0000000000000001 00000003 636174 00000003 626967 03",
            repay(Status::Front),
        ),
        (
            "05 0000000000000001 00000003 636174 00000003 626967 04",
            repay(Status::Drop),
        ),
        (
            "06 0000000000000001 00000003 636174 00000000000007D0",
            Request::Heartbeat {
                lend_key: 1,
                key,
                timeout_ms: 2_000,
            },
        ),
        ("07", Request::Stats),
        ("0A", Request::Flush),
        ("08", Request::Terminate),
        ("0C 00000003 636174", Request::Remove { key }),
    ];
    assert_eq!(big, b"big");
    for (frame, request) in table {
        let frame = bytes(frame);
        assert_eq!(Request::decode(&frame, Dialect::V1_3), Ok(request));
        let mut out = BytesMut::new();
        client::encode(&request, &mut out);
        assert_eq!(text(&out), text(&frame), "{request:?}");
        if !matches!(request, Request::Add { mode: None, .. }) {
            assert_eq!(Request::decode(&frame, Dialect::V1_4), Ok(request));
        }
        let new = matches!(
            request,
            Request::Add { mode: Some(_), .. } | Request::Remove { .. }
        );
        assert_eq!(request.dialect() == Some(Dialect::V1_4), new);
    }
}

const fn repay(status: Status) -> Request<'static> {
    Request::Repay {
        lend_key: 1,
        key: b"cat",
        value: b"big",
        status,
    }
}

#[test]
fn every_flaw_has_its_number() {
    let table = [
        ("empty", "", "0b010000000100000000"),
        ("no such request", "00", "0b0200"),
        ("no such request", "ff", "0b02ff"),
        ("no such request", "0d", "0b020d"),
        (
            "add: no length of the key",
            "020000",
            "0b030000000400000002",
        ),
        ("add: short key", "02 00000005 6162", "0b040000000500000002"),
        (
            "add: no length of the value",
            "02 00000001 61",
            "0b050000000400000000",
        ),
        (
            "add: short value",
            "02 00000001 61 00000002 62",
            "0b060000000200000001",
        ),
        (
            "add: a key longer than can be",
            "02 ffffffff 61",
            "0b04ffffffff00000001",
        ),
        ("lend: no time-out", "0400", "0b070000000800000001"),
        (
            "lend: no mode",
            "04 0000000000000000",
            "0b330000000100000000",
        ),
        ("lend: no such mode", "04 0000000000000000 07", "0b3407"),
        ("repay: no lend key", "05", "0b080000000800000000"),
        (
            "repay: no length of the key",
            "05 0000000000000000",
            "0b090000000400000000",
        ),
        (
            "repay: short key",
            "05 0000000000000000 00000002 61",
            "0b0a0000000200000001",
        ),
        (
            "repay: no length of the value",
            "05 0000000000000000 00000001 61",
            "0b0b0000000400000000",
        ),
        (
            "repay: short value",
            "05 0000000000000000 00000001 61 00000002 62",
            "0b0c0000000200000001",
        ),
        (
            "repay: no status",
            "05 0000000000000000 00000001 61 00000000",
            "0b0d0000000100000000",
        ),
        (
            "repay: no such status",
            "05 0000000000000000 00000001 61 00000000 07",
            "0b0e07",
        ),
        ("update: no length of the key", "03", "0b270000000400000000"),
        (
            "update: short key",
            "03 00000002 61",
            "0b280000000200000001",
        ),
        (
            "update: no length of the value",
            "03 00000001 61",
            "0b290000000400000000",
        ),
        (
            "update: short value",
            "03 00000001 61 00000002 62",
            "0b2a0000000200000001",
        ),
        ("heartbeat: no lend key", "06", "0b2b0000000800000000"),
        (
            "heartbeat: no length of the key",
            "06 0000000000000000",
            "0b2c0000000400000000",
        ),
        (
            "heartbeat: short key",
            "06 0000000000000000 00000002 61",
            "0b2d0000000200000001",
        ),
        (
            "heartbeat: no time-out",
            "06 0000000000000000 00000001 61",
            "0b2e0000000800000000",
        ),
        ("lookup: no length of the key", "09", "0b2f0000000400000000"),
        (
            "lookup: short key",
            "09 00000002 61",
            "0b300000000200000001",
        ),
        ("remove: no length of the key", "0c", "0b390000000400000000"),
        (
            "remove: short key",
            "0c 00000002 61",
            "0b3a0000000200000001",
        ),
    ];
    for (name, request, reply) in table {
        assert_eq!(read(request, Dialect::V1_3), reply, "{name}, 1.3");
        assert_eq!(read(request, Dialect::V1_4), reply, "{name}, 1.4");
    }
}

#[test]
fn the_mode_of_an_add_shows_the_dialect() {
    let (add, plain) = (
        "02 00000001 61 00000001 62",
        "Add { key: [97], value: [98], mode: None }",
    );
    let head = "Add { key: [97], value: [98], mode: Some(Head) }";
    let tail = "Add { key: [97], value: [98], mode: Some(Tail) }";
    let table = [
        ("", plain, "0b350000000100000000"),
        ("01", head, head),
        ("02", tail, tail),
        ("09", plain, "0b3609"),
        ("00", plain, "0b3600"),
        // Both dialects ignore trailing bytes. In 1.3 these are trailing bytes.
        ("01 ff", plain, head),
        ("02 02", plain, tail),
    ];
    for (mode, old, new) in table {
        let request = format!("{add}{mode}");
        assert_eq!(
            (
                &*read(&request, Dialect::V1_3),
                &*read(&request, Dialect::V1_4)
            ),
            (old, new),
            "{mode}"
        );
    }
    for request in [
        "0b7a7a",
        "01ff",
        "04 0000000000000000 01 02",
        "09 00000001 61 ff",
        "0c 00000001 61 ff",
    ] {
        for dialect in [Dialect::V1_3, Dialect::V1_4] {
            assert!(
                read(request, dialect).contains(char::is_uppercase),
                "{request}: trailing bytes are ignored"
            );
        }
    }
}

#[test]
fn replies_are_encoded_and_decoded() {
    let counts: Counts = [9, 1, 2, 3, 4, 10, 5, 6, 7, 8];
    let mut old_counts = counts;
    (old_counts[0], old_counts[5]) = (0, 0);
    let old = "0A 0000000000000001 0000000000000002 0000000000000003 0000000000000004 0000000000000005 0000000000000006 \
               0000000000000007 0000000000000008";
    let new = "0A 0000000000000009 0000000000000001 0000000000000002 0000000000000003 0000000000000004 000000000000000a \
               0000000000000005 0000000000000006 0000000000000007 0000000000000008";
    let table: [(&str, Reply<'_>); 21] = [
        ("01 0000000A", Reply::Counted(10)),
        ("02", Reply::Added),
        ("03", Reply::Kept),
        ("04", Reply::Updated),
        ("05", Reply::NotFound),
        (
            "06 0000000000000001 00000003 636174 00000005 736D616C6C",
            Reply::Lent {
                lend_key: 1,
                key: b"cat",
                value: b"small",
            },
        ),
        ("07", Reply::Repaid),
        ("08", Reply::Heartbeaten),
        ("09", Reply::Skipped),
        (old, Reply::StatsGot(old_counts, Dialect::V1_3)),
        (new, Reply::StatsGot(counts, Dialect::V1_4)),
        ("0B 02 08", Reply::Error(Request::NO_TERMINATE)),
        ("0B 24 00000002 6f68", Reply::Trouble(b"oh")),
        ("0C", Reply::Terminated),
        ("0D 00000005 736D616C6C", Reply::ValueFound(b"small")),
        ("0E", Reply::ValueNotFound),
        ("0F", Reply::Flushed),
        ("10", Reply::QueueEmpty),
        ("11", Reply::Pong),
        ("12", Reply::Removed),
        ("13", Reply::NotRemoved),
    ];
    for (frame, reply) in table {
        let mut out = BytesMut::new();
        reply.encode(&mut out);
        assert_eq!(text(&out), text(&bytes(frame)), "{reply:?}");
        assert_eq!(reply.bytes(), out.len(), "{reply:?}");
        assert_eq!(client::decode(&out), Ok((reply, out.len())));
        // The first eight of ten counters are a valid `Stats` reply of 1.3.
        for cut in (0..out.len()).filter(|cut| *cut != 65) {
            assert!(
                client::decode(&out[..cut]).is_err(),
                "{reply:?} cut at {cut}"
            );
        }
    }
    assert!(client::decode(&[0x14]).is_err());
}

#[test]
fn bare_requests_are_cut_off_one_by_one() {
    let table = [
        ("", Ok(Cut::Begun(1))),
        ("0b", Ok(Cut::Whole(1))),
        ("0b0b", Ok(Cut::Whole(1))),
        ("02", Ok(Cut::Begun(5))),
        ("02 00000003 63", Ok(Cut::Begun(12))),
        ("02 00000003 636174 00000005", Ok(Cut::Begun(17))),
        ("02 00000001 61 00000001 62 02", Ok(Cut::Whole(11))),
        ("03 00000001 61 00000001 62", Ok(Cut::Whole(11))),
        ("04 00000000000003E8", Ok(Cut::Begun(10))),
        ("04 00000000000003E8 01", Ok(Cut::Whole(10))),
        ("05 0000000000000001", Ok(Cut::Begun(13))),
        (
            "05 0000000000000001 00000001 61 00000001 62",
            Ok(Cut::Begun(20)),
        ),
        (
            "05 0000000000000001 00000001 61 00000001 62 04",
            Ok(Cut::Whole(20)),
        ),
        (
            "06 0000000000000001 00000001 61 00000000000007D0",
            Ok(Cut::Whole(22)),
        ),
        ("09 00000001 61", Ok(Cut::Whole(6))),
        ("0c 00000001 61", Ok(Cut::Whole(6))),
        ("09 00000065", Err(Uncut::TooLong)),
        ("02 00000001 61 ffffffff", Err(Uncut::TooLong)),
        (
            "0d",
            Err(Uncut::Unknown(Fault::Unknown {
                flaw: Flaw::REQUEST,
                byte: 13,
            })),
        ),
    ];
    for (stream, found) in table {
        assert_eq!(cut(&bytes(stream), 100), found, "{stream}");
    }
}
