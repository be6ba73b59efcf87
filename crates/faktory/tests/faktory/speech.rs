//! FWP for transcripts: commands and replies as words. This does not use the crate's codec, so that a mistake in the
//! codec shows.
//!
//! `VERB a b c` is a line: the verb and its arguments, separated by blanks, and CRLF. `text "…" "…"` sends text
//! verbatim, line ends included. Replies are `OK`, `HI {…}`, `ERR "…"` (or another code), `BULK …`, `NULL`.
//!
//! A new connection sends HELLO by itself. A name with `@` is a worker: `W@w1` belongs to the worker `w1`. Connections
//! whose names begin with `raw` send no HELLO.
//!
//! Spec: "Commands and Responses".
#![allow(dead_code, reason = "not every test needs all of it")]

use bytes::{Buf, Bytes, BytesMut};
use windlass_testkit::transcript::{Heard, Said, Speech, Spoken, Wire};

pub(crate) struct Faktory;

impl Speech for Faktory {
    fn encode(&self, verb: &str, arguments: &[Bytes]) -> Result<Said, String> {
        if verb == "text" {
            let bytes: Bytes = arguments.concat().into();
            return Ok(Said {
                whole: bytes.ends_with(b"\n"),
                bytes,
            });
        }
        let words: Vec<&[u8]> = std::iter::once(verb.as_bytes())
            .chain(arguments.iter().map(AsRef::as_ref))
            .collect();
        Ok(Said {
            bytes: [&words.join(&b' '), b"\r\n".as_slice()].concat().into(),
            whole: true,
        })
    }

    fn decode(&self, input: &mut BytesMut) -> Result<Option<Spoken>, String> {
        let Some(end) = input.windows(2).position(|pair| pair == b"\r\n") else {
            return Ok(None);
        };
        let line = Bytes::copy_from_slice(&input[..end]);
        match line.first() {
            Some(b'+' | b'-') => {
                input.advance(end + 2);
                let (verb, rest) = cut(&line.slice(1..));
                Ok(Some(Spoken {
                    verb,
                    arguments: rest.into_iter().collect(),
                }))
            }
            Some(b'$') if line.as_ref() == b"$-1" => {
                input.advance(end + 2);
                Ok(Some(Spoken {
                    verb: "NULL".to_owned(),
                    arguments: Vec::new(),
                }))
            }
            Some(b'$') => {
                let digits = String::from_utf8_lossy(&line[1..]).into_owned();
                let size: usize = digits
                    .parse()
                    .map_err(|error| format!("${digits}: {error}"))?;
                if input.len() < end + 2 + size + 2 {
                    return Ok(None);
                }
                input.advance(end + 2);
                let bulk = input.split_to(size).freeze();
                if !input.starts_with(b"\r\n") {
                    return Err("a bulk string without CRLF behind it".to_owned());
                }
                input.advance(2);
                Ok(Some(Spoken {
                    verb: "BULK".to_owned(),
                    arguments: vec![bulk],
                }))
            }
            _ => Err(format!("no server says {}", line.escape_ascii())),
        }
    }

    fn barrier(&self, number: u64) -> (Bytes, Spoken) {
        let verb = format!("BARRIER{number}");
        let answer = Spoken {
            verb: "ERR".to_owned(),
            arguments: vec![format!("unknown command {verb}").into()],
        };
        (format!("{verb}\r\n").into(), answer)
    }
}

fn cut(line: &Bytes) -> (String, Option<Bytes>) {
    match line.iter().position(|byte| *byte == b' ') {
        None => (String::from_utf8_lossy(line).into_owned(), None),
        Some(at) => (
            String::from_utf8_lossy(&line[..at]).into_owned(),
            Some(line.slice(at + 1..)),
        ),
    }
}

/// Connections that send HELLO by themselves.
pub(crate) struct Greeting<W>(pub(crate) W);

impl<W: Wire> Wire for Greeting<W> {
    fn open(&mut self, who: &str) -> Result<(), String> {
        self.0.open(who)?;
        if who.starts_with("raw") {
            return Ok(());
        }
        let worker = who
            .split_once('@')
            .map(|(_, wid)| format!(",\"wid\":\"{wid}\",\"hostname\":\"h\",\"pid\":1"));
        self.0.send(
            who,
            format!("HELLO {{\"v\":2{}}}\r\n", worker.unwrap_or_default()).as_bytes(),
        );
        let mut said = BytesMut::new();
        while !said.ends_with(b"}\r\n+OK\r\n") {
            match self.0.receive(who, &mut said) {
                Heard::Bytes => {}
                heard @ (Heard::Nothing | Heard::Closed) => {
                    return Err(format!(
                        "no welcome: {}, then {heard:?}",
                        said.escape_ascii()
                    ));
                }
            }
        }
        Ok(())
    }

    fn send(&mut self, who: &str, bytes: &[u8]) {
        self.0.send(who, bytes);
    }

    fn receive(&mut self, who: &str, into: &mut BytesMut) -> Heard {
        self.0.receive(who, into)
    }

    fn half_close(&mut self, who: &str) {
        self.0.half_close(who);
    }

    fn close(&mut self, who: &str) {
        self.0.close(who);
    }

    fn advance_ms(&mut self, ms: u64) -> Result<(), String> {
        self.0.advance_ms(ms)
    }

    fn stall(&mut self) -> Result<(), String> {
        self.0.stall()
    }

    fn resume(&mut self) -> Result<(), String> {
        self.0.resume()
    }

    fn is_immediate(&self) -> bool {
        self.0.is_immediate()
    }
}
