//! The vocabulary of transcripts, from the peer's side: packets and text lines as words. Independent of the crate's
//! codec, so that a mistake there cannot cancel out here.
//!
//! `KIND a b c` is a request whose arguments are separated by NULs. `RES:KIND` has the magic of a response. A number
//! stands for an unnamed kind. `text "…"` is verbatim text, line ends included; a line from the server is also `text`.
//!
//! Spec: `PROTOCOL`, "Binary Packet" and the sections "… Responses".

use bytes::{Buf, Bytes, BytesMut};
use windlass_gearman::wire::Kind;
use windlass_testkit::transcript::{Said, Speech, Spoken};

pub(crate) struct Gearman;

const HEADER_BYTES: usize = 12;

/// The packets that servers send, and their number of arguments.
const RESPONSES: [(&str, usize); 17] = [
    ("NOOP", 0),
    ("NO_JOB", 0),
    ("JOB_CREATED", 1),
    ("JOB_ASSIGN", 3),
    ("JOB_ASSIGN_UNIQ", 4),
    ("JOB_ASSIGN_ALL", 5),
    ("WORK_STATUS", 3),
    ("WORK_DATA", 2),
    ("WORK_WARNING", 2),
    ("WORK_COMPLETE", 2),
    ("WORK_EXCEPTION", 2),
    ("WORK_FAIL", 1),
    ("STATUS_RES", 5),
    ("STATUS_RES_UNIQUE", 6),
    ("ECHO_RES", 1),
    ("OPTION_RES", 1),
    ("ERROR", 2),
];

impl Speech for Gearman {
    fn encode(&self, verb: &str, arguments: &[Bytes]) -> Result<Said, String> {
        if verb == "text" {
            let bytes: Bytes = arguments.concat().into();
            return Ok(Said {
                whole: bytes.ends_with(b"\n"),
                bytes,
            });
        }
        let (magic, name) = match verb.strip_prefix("RES:") {
            Some(name) => (b"\0RES", name),
            None => (b"\0REQ", verb),
        };
        let kind = number_of(name).ok_or_else(|| format!("unknown packet type {name}"))?;
        Ok(Said {
            bytes: packet(magic, kind, &arguments.join(&0)),
            whole: true,
        })
    }

    fn decode(&self, input: &mut BytesMut) -> Result<Option<Spoken>, String> {
        match input.first() {
            None => Ok(None),
            Some(0) => decode_packet(input),
            Some(_) => Ok(decode_line(input)),
        }
    }

    fn barrier(&self, number: u64) -> (Bytes, Spoken) {
        let data = Bytes::from(format!("barrier {number}"));
        let answer = Spoken {
            verb: "ECHO_RES".to_owned(),
            arguments: vec![data.clone()],
        };
        (packet(b"\0REQ", 16, &data), answer)
    }
}

fn number_of(name: &str) -> Option<u32> {
    name.parse()
        .ok()
        .or_else(|| (1..=42).find(|number| Kind(*number).name() == name))
}

fn packet(magic: &[u8; 4], kind: u32, body: &[u8]) -> Bytes {
    let size = u32::try_from(body.len()).unwrap_or(u32::MAX);
    [
        magic.as_slice(),
        &kind.to_be_bytes(),
        &size.to_be_bytes(),
        body,
    ]
    .concat()
    .into()
}

fn decode_line(input: &mut BytesMut) -> Option<Spoken> {
    let end = input.iter().position(|byte| *byte == b'\n')?;
    let line = input.split_to(end + 1).freeze();
    Some(Spoken {
        verb: "text".to_owned(),
        arguments: vec![line],
    })
}

fn decode_packet(input: &mut BytesMut) -> Result<Option<Spoken>, String> {
    let Some((header, rest)) = input.split_first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let mut header = header.as_slice();
    let (magic, kind, size) = (
        header.get_u32().to_be_bytes(),
        Kind(header.get_u32()).name(),
        header.get_u32() as usize,
    );
    if &magic != b"\0RES" {
        return Err(format!("a packet starts with {}", magic.escape_ascii()));
    }
    let (verb, count) = RESPONSES
        .iter()
        .find(|(name, _)| *name == kind)
        .ok_or_else(|| format!("no server sends {kind}"))?;
    if rest.len() < size {
        return Ok(None);
    }
    input.advance(HEADER_BYTES);
    let body = input.split_to(size).freeze();
    if *count == 0 && !body.is_empty() {
        return Err(format!("{verb} with a body"));
    }
    let arguments = body
        .splitn(*count, |byte| *byte == 0)
        .take(*count)
        .map(|part| body.slice_ref(part))
        .collect();
    Ok(Some(Spoken {
        verb: (*verb).to_owned(),
        arguments,
    }))
}
