//! Commands: what two ZMTP implementations send each other between messages.
//!
//! Spec: RFC 37, "Commands", "The NULL Security Mechanism", "The Publish-Subscribe Pattern", "Connection Heartbeating";
//! RFC 24 for PLAIN's.

use bytes::{BufMut, BytesMut};

use super::frame::{Flags, Header};
use super::{Malformed, Metadata};

/// The longest context of a PING. A longer one is cut, as in libzmq.
pub const PING_CONTEXT_BYTES_MAX: usize = 16;

/// One command, as views of the frame it was read from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command<'a> {
    /// NULL: the sender's metadata. PLAIN: the last command of the handshake.
    Ready(Metadata),
    /// The connection is over. The reason is for the log.
    Error(&'a [u8]),
    /// PLAIN: user and password.
    Hello {
        /// User name.
        user: &'a [u8],
        /// Password.
        password: &'a [u8],
    },
    /// PLAIN: the login succeeded.
    Welcome,
    /// PLAIN: the sender's metadata.
    Initiate(Metadata),
    /// Asks for a sign of life.
    Ping {
        /// Time to live, in tenths of a second: hang up if nothing comes for this long after the PING; 0 = never.
        ttl_ds: u16,
        /// Must be sent back in PONG.
        context: &'a [u8],
    },
    /// The answer to a PING, with its context.
    Pong(&'a [u8]),
    /// Subscribes to messages that begin with this.
    Subscribe(&'a [u8]),
    /// Cancels one subscription.
    Cancel(&'a [u8]),
    /// An unknown command.
    Unknown {
        /// Its name.
        name: &'a [u8],
    },
}

impl<'a> Command<'a> {
    /// Reads the body of a command frame.
    ///
    /// # Errors
    /// It has no name, or its data do not match the name.
    pub fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let (name, data) = short_string(body).ok_or(Malformed { what: "command" })?;
        Ok(match name {
            b"" => return Err(Malformed { what: "command" }),
            b"READY" => Self::Ready(Metadata::parse(data)?),
            b"ERROR" => Self::Error(alone(short_string(data)).ok_or(Malformed { what: "ERROR" })?),
            b"HELLO" => hello(data).ok_or(Malformed { what: "HELLO" })?,
            b"WELCOME" => Self::Welcome,
            b"INITIATE" => Self::Initiate(Metadata::parse(data)?),
            b"PING" => ping(data).ok_or(Malformed { what: "PING" })?,
            b"PONG" => Self::Pong(data),
            b"SUBSCRIBE" => Self::Subscribe(data),
            b"CANCEL" => Self::Cancel(data),
            name => Self::Unknown { name },
        })
    }

    /// Appends the whole frame.
    pub fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Ready(metadata) => metadata_frame(b"READY", metadata, out),
            Self::Error(reason) => frame(b"ERROR", &[&[short_length(reason)], short(reason)], out),
            Self::Hello { user, password } => {
                let (user_bytes, password_bytes) = ([short_length(user)], [short_length(password)]);
                frame(
                    b"HELLO",
                    &[&user_bytes, short(user), &password_bytes, short(password)],
                    out,
                );
            }
            Self::Welcome => frame(b"WELCOME", &[], out),
            Self::Initiate(metadata) => metadata_frame(b"INITIATE", metadata, out),
            Self::Ping { ttl_ds, context } => frame(
                b"PING",
                &[&ttl_ds.to_be_bytes(), ping_context(context)],
                out,
            ),
            Self::Pong(context) => frame(b"PONG", &[ping_context(context)], out),
            Self::Subscribe(topic) => frame(b"SUBSCRIBE", &[topic], out),
            Self::Cancel(topic) => frame(b"CANCEL", &[topic], out),
            Self::Unknown { name } => frame(name, &[], out),
        }
    }
}

fn hello(data: &[u8]) -> Option<Command<'_>> {
    let (user, rest) = short_string(data)?;
    let password = alone(short_string(rest))?;
    Some(Command::Hello { user, password })
}

fn ping(data: &[u8]) -> Option<Command<'_>> {
    let (ttl, context) = data.split_first_chunk()?;
    Some(Command::Ping {
        ttl_ds: u16::from_be_bytes(*ttl),
        context: ping_context(context),
    })
}

fn ping_context(context: &[u8]) -> &[u8] {
    context.get(..PING_CONTEXT_BYTES_MAX).unwrap_or(context)
}

/// Splits off a string preceded by its length in one byte. Returns it and the rest.
pub(super) fn short_string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*length))
}

/// The string, if nothing follows it.
fn alone<'a>(found: Option<(&'a [u8], &'a [u8])>) -> Option<&'a [u8]> {
    found
        .filter(|(_, rest)| rest.is_empty())
        .map(|(string, _)| string)
}

/// Cuts a string to the length that one byte can express.
fn short(string: &[u8]) -> &[u8] {
    string.get(..usize::from(u8::MAX)).unwrap_or(string)
}

fn short_length(string: &[u8]) -> u8 {
    u8::try_from(string.len()).unwrap_or(u8::MAX)
}

fn frame(name: &[u8], data: &[&[u8]], out: &mut BytesMut) {
    let data_bytes: usize = data.iter().map(|piece| piece.len()).sum();
    head(name, data_bytes, out);
    data.iter().for_each(|piece| out.put_slice(piece));
}

fn metadata_frame(name: &[u8], metadata: &Metadata, out: &mut BytesMut) {
    head(name, metadata.encoded_bytes(), out);
    metadata.encode(out);
}

fn head(name: &[u8], data_bytes: usize, out: &mut BytesMut) {
    Header::encode(Flags::COMMAND, 1 + short(name).len() + data_bytes, out);
    out.put_u8(short_length(name));
    out.put_slice(short(name));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(command: &Command<'_>) -> BytesMut {
        let mut out = BytesMut::new();
        command.encode(&mut out);
        out
    }

    #[test]
    fn commands_are_encoded_and_parsed() {
        let table: [(Command<'_>, &[u8]); 8] = [
            (Command::Error(b"400"), b"\x04\x0a\x05ERROR\x03400"),
            (
                Command::Hello {
                    user: b"ann",
                    password: b"pw",
                },
                b"\x04\x0d\x05HELLO\x03ann\x02pw",
            ),
            (Command::Welcome, b"\x04\x08\x07WELCOME"),
            (
                Command::Ping {
                    ttl_ds: 300,
                    context: b"",
                },
                b"\x04\x07\x04PING\x01\x2c",
            ),
            (
                Command::Ping {
                    ttl_ds: 0,
                    context: b"ctx",
                },
                b"\x04\x0a\x04PING\0\0ctx",
            ),
            (Command::Pong(b"ctx"), b"\x04\x08\x04PONGctx"),
            (Command::Subscribe(b"abc"), b"\x04\x0d\x09SUBSCRIBEabc"),
            (Command::Cancel(b"abc"), b"\x04\x0a\x06CANCELabc"),
        ];
        for (command, bytes) in table {
            assert_eq!(encoded(&command), bytes, "{command:?}");
            assert_eq!(Command::parse(&bytes[2..]), Ok(command));
        }
    }

    #[test]
    fn malformed_commands_are_refused() {
        let table: [(&[u8], &str); 9] = [
            (b"", "command"),
            (b"\x00", "command"),
            (b"\x05PING", "command"),
            (b"\x04PING\x00", "PING"),
            (b"\x05ERROR", "ERROR"),
            (b"\x05ERROR\x04400", "ERROR"),
            (b"\x05ERROR\x02400", "ERROR"),
            (b"\x05HELLO\x03ann", "HELLO"),
            (b"\x05HELLO\x03ann\x02pw!", "HELLO"),
        ];
        for (body, what) in table {
            assert_eq!(
                Command::parse(body),
                Err(Malformed { what }),
                "{}",
                body.escape_ascii()
            );
        }
    }

    #[test]
    fn an_unknown_command_is_not_malformed() {
        assert_eq!(
            Command::parse(b"\x04JOINgroup"),
            Ok(Command::Unknown { name: b"JOIN" })
        );
        assert_eq!(
            Command::parse(b"\x04ping"),
            Ok(Command::Unknown { name: b"ping" })
        );
    }

    #[test]
    fn long_strings_are_cut() {
        let ping = Command::parse(b"\x04PING\0\x010123456789abcdefgh");
        assert_eq!(
            ping,
            Ok(Command::Ping {
                ttl_ds: 1,
                context: b"0123456789abcdef"
            })
        );
        let reason = [b'x'; 300];
        let bytes = encoded(&Command::Error(&reason));
        assert_eq!(
            Command::parse(&bytes[9..]),
            Ok(Command::Error(&reason[..255]))
        );
    }
}
