//! eMQP for transcripts: a command, and the frames behind it.

use bytes::{Bytes, BytesMut};
use windlass_testkit::transcript::{Said, Speech, Spoken};
use windlass_zmtp::Message;
use windlass_zmtp::wire::Header;

/// Messages: the verb is the command, the arguments are the identifier and the frames behind it. `RAW` sends its
/// arguments verbatim, without a head.
pub(crate) struct Emqp;

impl Speech for Emqp {
    fn encode(&self, verb: &str, arguments: &[Bytes]) -> Result<Said, String> {
        let arguments = arguments.iter().map(|argument| &argument[..]);
        let message = match verb {
            "RAW" => Message::new(arguments),
            _ => Message::new(
                [b"", &b"eMQP/1.0"[..], verb.as_bytes()]
                    .into_iter()
                    .chain(arguments),
            ),
        };
        Ok(Said {
            bytes: message.into_frames(),
            whole: true,
        })
    }

    fn decode(&self, input: &mut BytesMut) -> Result<Option<Spoken>, String> {
        let mut frames: Vec<Bytes> = Vec::new();
        let mut more = true;
        while more {
            let Some(header) = Header::decode(input).map_err(|why| why.to_string())? else {
                return Ok(None);
            };
            more = header.flags.is_more();
            let mut frame =
                input.split_to(header.header_bytes + usize::try_from(header.body_bytes).unwrap());
            frames.push(frame.split_off(header.header_bytes).freeze());
        }
        let mut frames = frames.into_iter();
        let head = [frames.next(), frames.next()].map(Option::unwrap_or_default);
        assert_eq!(
            (&*head[0], &*head[1]),
            (&b""[..], &b"eMQP/1.0"[..]),
            "the head"
        );
        let verb = frames.next().unwrap_or_default();
        Ok(Some(Spoken {
            verb: String::from_utf8_lossy(&verb).into_owned(),
            arguments: frames.collect(),
        }))
    }

    fn barrier(&self, _number: u64) -> (Bytes, Spoken) {
        panic!("eMQP has no message that every peer answers at once")
    }
}
