//! The specification's example conversation, and packets recorded from a running gearmand.
//!
//! Spec: `PROTOCOL`, "Binary Protocol Example".

use bytes::{Bytes, BytesMut};

use super::{decode, decode_one};
use crate::wire::{
    AssignForm, Limits, Message, Packet, Priority, Report, Request, Response, Submission,
};

/// The content of one frame of the example.
#[derive(Debug)]
enum Said {
    ToServer(Request),
    ToPeer(Response<'static>),
}

fn example() -> Vec<(&'static str, &'static str, Said)> {
    let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
    let job = Submission {
        function: bytes("reverse"),
        unique: bytes(""),
        workload: bytes("test"),
    };
    let handle = b"H:lap:1".as_slice();
    vec![
        (
            "worker registration",
            "00524551 00000001 00000007 72657665727365",
            Said::ToServer(Request::CanDo {
                function: bytes("reverse"),
            }),
        ),
        (
            "worker check for job",
            "00524551 00000009 00000000",
            Said::ToServer(Request::Grab(AssignForm::Plain)),
        ),
        (
            "no job",
            "00524553 0000000a 00000000",
            Said::ToPeer(Response::NoJob),
        ),
        (
            "worker sleeps",
            "00524551 00000004 00000000",
            Said::ToServer(Request::PreSleep),
        ),
        (
            "client job submission",
            "00524551 00000007 0000000d 7265766572736500 00 74657374",
            Said::ToServer(Request::Submit {
                job,
                priority: Priority::Normal,
                background: false,
            }),
        ),
        (
            "job created",
            "00524553 00000008 00000007 483a6c61703a31",
            Said::ToPeer(Response::JobCreated { handle }),
        ),
        (
            "worker wakeup",
            "00524553 00000006 00000000",
            Said::ToPeer(Response::Noop),
        ),
        (
            "job assigned",
            "00524553 0000000b 00000014 483a6c61703a3100 7265766572736500 74657374",
            Said::ToPeer(Response::JobAssign {
                handle,
                function: b"reverse",
                workload: b"test",
            }),
        ),
        (
            "worker response for job",
            "00524551 0000000d 0000000c 483a6c61703a3100 74736574",
            Said::ToServer(Request::Work {
                handle: bytes("H:lap:1"),
                report: Report::Complete(bytes("tset")),
            }),
        ),
        (
            "job server response to client",
            "00524553 0000000d 0000000c 483a6c61703a3100 74736574",
            Said::ToPeer(Response::Work {
                handle,
                report: Report::Complete(b"tset"),
            }),
        ),
    ]
}

#[test]
fn the_example_is_understood_and_written_to_the_byte() {
    for (name, hex, said) in example() {
        let frame = unhex(hex);
        let packet = decode_one(&frame);
        let mut out = BytesMut::new();
        match said {
            Said::ToServer(request) => {
                assert_eq!(Request::parse(&packet).as_ref(), Ok(&request), "{name}");
                request.encode(&mut out);
            }
            Said::ToPeer(response) => {
                assert_eq!(Response::parse(&packet), Ok(response), "{name}");
                response.encode(&mut out);
            }
        }
        assert_eq!(out, frame, "{name}");
    }
}

#[test]
fn recorded_packets_are_understood_and_written_to_the_byte() {
    let mut stream = Vec::new();
    let recorded: Vec<_> = recorded().collect();
    for (magic, name, frame) in &recorded {
        let packet = decode_one(frame);
        assert_eq!(packet.kind.name(), *name);
        assert_eq!(written(magic, &packet), *frame, "{magic} {name}");
        stream.extend_from_slice(frame);
    }
    let decoded = decode(Limits::new(1 << 20), stream.chunks(7));
    assert_eq!(decoded.messages.len(), recorded.len());
    for (message, (_, name, _)) in decoded.messages.iter().zip(&recorded) {
        assert!(matches!(message, Message::Packet(packet) if packet.kind.name() == *name));
    }
}

fn recorded() -> impl Iterator<Item = (&'static str, &'static str, Vec<u8>)> {
    include_str!("recorded.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let mut words = line.split(' ');
            let mut word = || words.next().expect("magic, type and frame");
            (word(), word(), unhex(word()))
        })
}

fn written(magic: &str, packet: &Packet) -> Vec<u8> {
    let mut out = BytesMut::new();
    match magic {
        "REQ" => Request::parse(packet).expect("a request").encode(&mut out),
        _ => Response::parse(packet)
            .expect("a response")
            .encode(&mut out),
    }
    out.to_vec()
}

fn unhex(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex
        .chars()
        .filter_map(|digit| digit.to_digit(16))
        .map(|digit| u8::try_from(digit).unwrap())
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}
