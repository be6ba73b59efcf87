//! A blocking HTTP client, one request for each connection: for exact control over what is sent.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The value of a header, whose name is given in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// The server of one daemon.
#[derive(Debug, Clone, Copy)]
pub struct Http(pub SocketAddr);

impl Http {
    pub fn get(self, path: &str) -> Answer {
        self.request("GET", path, &[], b"")
    }

    /// The value of a series of `/metrics`, whose labels are part of its name.
    pub fn metric(self, series: &str) -> f64 {
        let page = self.get("/metrics");
        let value = page
            .text()
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value
            .unwrap_or_else(|| panic!("{series} is missing:\n{}", page.text()))
            .parse()
            .unwrap()
    }

    pub fn post(self, path: &str, body: impl AsRef<[u8]>) -> Answer {
        self.request("POST", path, &[], body.as_ref())
    }

    pub fn delete(self, path: &str) -> Answer {
        self.request("DELETE", path, &[], b"")
    }

    pub fn request(
        self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        if !headers.iter().any(|(name, _)| *name == "Host") {
            head.push_str("Host: localhost\r\n");
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if method != "GET" {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        let mut bytes = (head + "\r\n").into_bytes();
        bytes.extend_from_slice(body);
        self.raw(&bytes)
    }

    /// Sends these bytes and reads the answer to its end.
    pub fn raw(self, bytes: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.0).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        // The server may answer, and close, before it has read everything.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let end = answer
            .windows(4)
            .position(|window| window == b"\r\n\r\n")
            .unwrap_or_else(|| {
                panic!(
                    "no answer to {}: {}",
                    String::from_utf8_lossy(bytes),
                    String::from_utf8_lossy(&answer)
                )
            });
        let head = String::from_utf8(answer[..end].to_vec()).unwrap();
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .unwrap();
        Answer {
            status,
            head,
            body: answer.split_off(end + 4),
        }
    }
}
