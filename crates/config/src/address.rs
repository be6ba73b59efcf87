//! Addresses of listeners: as the operator writes them, and as the system binds them.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

/// The longest path a Unix socket can have: `sun_path` without its terminator.
const UNIX_PATH_BYTES_MAX: usize = 107;

/// An address as configured: `host:port`, `[ipv6]:port` or `unix:/path`. Also accepts ZeroMQ's notation:
/// `tcp://host:port`, where the host `*` means every IPv4 address, and `ipc:///path`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ListenAddress {
    /// A host and a port; with port 0 the system chooses one.
    Tcp {
        /// A host name, or an IP address without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// A socket in the file system.
    Unix(PathBuf),
}

/// An address that can be bound.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A TCP socket.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// Why a text is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bad address `{text}`: {reason}")]
pub struct AddressError {
    text: String,
    reason: &'static str,
}

impl Address {
    /// Whether other machines cannot reach it.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

impl ListenAddress {
    /// All addresses the host name stands for. `localhost` has both loopback addresses, without a question to the system
    /// (RFC 6761, 6.3), in which one of them is often missing.
    ///
    /// # Errors
    ///
    /// The name is unknown, or the name server cannot be reached.
    pub fn resolve(&self) -> io::Result<Vec<Address>> {
        match self {
            Self::Unix(path) => Ok(vec![Address::Unix(path.clone())]),
            Self::Tcp { port, .. } if self.is_localhost() => {
                let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
                Ok(loopback
                    .map(|ip: IpAddr| Address::Tcp(SocketAddr::new(ip, *port)))
                    .to_vec())
            }
            Self::Tcp { host, port } => {
                let mut found: Vec<SocketAddr> =
                    (host.as_str(), *port).to_socket_addrs()?.collect();
                found.sort_unstable();
                found.dedup();
                Ok(found.into_iter().map(Address::Tcp).collect())
            }
        }
    }

    /// Whether the host is `localhost`, which stands for this machine with IPv6 and without.
    pub fn is_localhost(&self) -> bool {
        matches!(self, Self::Tcp { host, .. } if host.eq_ignore_ascii_case("localhost"))
    }

    /// The addresses by which it equals another one in a configuration: names are not looked up.
    pub fn covered(&self) -> Vec<Self> {
        match self {
            Self::Tcp { port, .. } if self.is_localhost() => ["127.0.0.1", "::1"]
                .map(|host| Self::Tcp {
                    host: host.to_owned(),
                    port: *port,
                })
                .to_vec(),
            Self::Tcp { .. } | Self::Unix(_) => vec![self.clone()],
        }
    }

    /// Whether this is a TCP socket.
    pub const fn is_tcp(&self) -> bool {
        matches!(self, Self::Tcp { .. })
    }

    /// Whether the system chooses the port, so that two such addresses do not collide.
    pub const fn is_any_port(&self) -> bool {
        matches!(self, Self::Tcp { port: 0, .. })
    }
}

impl FromStr for ListenAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = if let Some(path) = text.strip_prefix("unix:") {
            unix(path)
        } else if let Some(path) = text.strip_prefix("ipc://") {
            ipc(path)
        } else if let Some(port) = text.strip_prefix("tcp://*:") {
            tcp(&format!("0.0.0.0:{port}"))
        } else {
            tcp(text.strip_prefix("tcp://").unwrap_or(text))
        };
        parsed.map_err(|reason| AddressError {
            text: text.to_owned(),
            reason,
        })
    }
}

fn unix(path: &str) -> Result<ListenAddress, &'static str> {
    match path.len() {
        0 => Err("no path"),
        _ if path.contains('\0') => Err("a path must not contain NUL"),
        bytes if bytes > UNIX_PATH_BYTES_MAX => Err("a path of more than 107 bytes"),
        _ => Ok(ListenAddress::Unix(path.into())),
    }
}

/// For ZeroMQ, `@name` is an abstract socket, and `*` a path of its own choice; neither is supported.
fn ipc(path: &str) -> Result<ListenAddress, &'static str> {
    match path {
        "*" => Err("a path is expected after ipc://"),
        path if path.starts_with('@') => {
            Err("a path is expected after ipc://, sockets without a file are not served")
        }
        path => unix(path),
    }
}

fn tcp(text: &str) -> Result<ListenAddress, &'static str> {
    let (host, port) = text
        .rsplit_once(':')
        .ok_or("no port; host:port, [ipv6]:port or unix:/path expected")?;
    let host = match host.strip_prefix('[') {
        Some(inside) => ipv6(
            inside
                .strip_suffix(']')
                .ok_or("no ] after the IPv6 address")?,
        )?,
        None if host.contains(':') => {
            return Err("an IPv6 address needs brackets, as in [::1]:4730");
        }
        None if host.is_empty() => {
            return Err("no host; 0.0.0.0 or [::] stands for every address of this machine");
        }
        None if !host.bytes().all(is_host_byte) => return Err("a host is a name or an IP address"),
        None => host.to_owned(),
    };
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port
        .parse()
        .ok()
        .filter(|_| digits)
        .ok_or("a port is a number from 0 to 65535")?;
    Ok(ListenAddress::Tcp { host, port })
}

const fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_')
}

/// The address in its shortest form, with its zone (`fe80::1%eth0`) if it has one.
fn ipv6(text: &str) -> Result<String, &'static str> {
    let (number, zone) = text
        .split_once('%')
        .map_or((text, None), |(number, zone)| (number, Some(zone)));
    let number: Ipv6Addr = number
        .parse()
        .map_err(|_| "an IPv6 address is expected between brackets")?;
    match zone {
        None => Ok(number.to_string()),
        Some(zone) if !zone.is_empty() && zone.bytes().all(is_host_byte) => {
            Ok(format!("{number}%{zone}"))
        }
        Some(_) => Err("an IPv6 zone is the name or number of a network interface"),
    }
}

crate::as_text!(ListenAddress);

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_and_written() {
        let table: [(&str, Result<&str, &str>); 30] = [
            ("127.0.0.1:4730", Ok("127.0.0.1:4730")),
            ("0.0.0.0:0", Ok("0.0.0.0:0")),
            ("localhost:4730", Ok("localhost:4730")),
            (
                "job_server-1.example.org:1",
                Ok("job_server-1.example.org:1"),
            ),
            ("[::1]:4730", Ok("[::1]:4730")),
            ("[0:0::0:1]:4730", Ok("[::1]:4730")),
            ("[fe80::1%eth0]:4730", Ok("[fe80::1%eth0]:4730")),
            ("unix:/run/windlass.sock", Ok("unix:/run/windlass.sock")),
            ("unix:gearman.sock", Ok("unix:gearman.sock")),
            ("tcp://127.0.0.1:5555", Ok("127.0.0.1:5555")),
            ("tcp://*:5555", Ok("0.0.0.0:5555")),
            ("tcp://[::1]:5555", Ok("[::1]:5555")),
            ("ipc:///run/windlass.ipc", Ok("unix:/run/windlass.ipc")),
            ("ipc://./spiderq.ipc", Ok("unix:./spiderq.ipc")),
            ("", Err("no port")),
            (
                "ipc://@name",
                Err("a path is expected after ipc://, sockets"),
            ),
            ("ipc://*", Err("a path is expected after ipc://")),
            ("ipc://", Err("no path")),
            ("4730", Err("no port")),
            (":4730", Err("no host")),
            ("*:4730", Err("a host is a name or an IP address")),
            ("::1:4730", Err("an IPv6 address needs brackets")),
            ("[::1:4730", Err("no ] after")),
            (
                "[localhost]:4730",
                Err("an IPv6 address is expected between brackets"),
            ),
            ("[fe80::1%]:4730", Err("an IPv6 zone is")),
            ("localhost:", Err("a port is a number")),
            ("localhost:+1", Err("a port is a number")),
            ("localhost:65536", Err("a port is a number")),
            ("unix:", Err("no path")),
            ("unix:/\0", Err("a path must not contain NUL")),
        ];
        for (text, expected) in table {
            let parsed: Result<ListenAddress, _> = text.parse();
            match expected {
                Ok(written) => assert_eq!(parsed.unwrap().to_string(), written, "{text}"),
                Err(reason) => {
                    let said = parsed.unwrap_err().to_string();
                    assert!(
                        said.starts_with(&format!("bad address `{text}`: {reason}")),
                        "{text}: {said}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_socket_path_has_a_maximum_length() {
        let path =
            |bytes: usize| format!("unix:/{}", "x".repeat(bytes - 1)).parse::<ListenAddress>();
        assert!(path(UNIX_PATH_BYTES_MAX).is_ok());
        assert!(
            path(UNIX_PATH_BYTES_MAX + 1)
                .unwrap_err()
                .to_string()
                .ends_with("a path of more than 107 bytes")
        );
    }

    #[test]
    fn numbers_resolve_to_themselves() {
        for text in ["127.0.0.1:4730", "[::1]:4730", "unix:/run/x"] {
            let address: ListenAddress = text.parse().unwrap();
            let found: Vec<String> = address
                .resolve()
                .unwrap()
                .iter()
                .map(Address::to_string)
                .collect();
            assert_eq!(found, [text]);
        }
    }

    #[test]
    fn localhost_resolves_to_loopback() {
        let address: ListenAddress = "localhost:4730".parse().unwrap();
        let found: Vec<String> = address
            .resolve()
            .unwrap()
            .iter()
            .map(Address::to_string)
            .collect();
        assert_eq!(found, ["127.0.0.1:4730", "[::1]:4730"]);
    }
}
