//! The handshake: HI, HELLO and the password.
//!
//! Spec: "Not Identified State", "`HELLO` Command". A client of a version below 2 hashes once.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::json::{self, Unexpected};

/// The lowest number of rounds, and how many numbers there are.
const ROUNDS_MIN: u32 = 4_000;
const ROUNDS_COUNT: u64 = 4_096;

/// Labels kept of a worker.
const LABELS_MAX: usize = 100;

/// The input of a client's password hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Challenge {
    /// How often to hash.
    pub rounds: u32,
    /// The salt.
    pub salt: String,
}

impl Challenge {
    /// A challenge, as unpredictable as the random numbers.
    pub fn new(rng: [u64; 2]) -> Self {
        let [salt, rounds] = rng;
        let rounds = ROUNDS_MIN + u32::try_from(rounds % ROUNDS_COUNT).unwrap_or(0);
        // 63 bits, as many as on deployed servers.
        Self {
            rounds,
            salt: format!("{:x}", salt >> 1),
        }
    }
}

/// The server's greeting. It has one blank only, because Node's client splits it at the first one.
pub fn hi(challenge: Option<&Challenge>) -> String {
    match challenge {
        None => "+HI {\"v\":2}\r\n".to_owned(),
        Some(Challenge { rounds, salt }) => {
            format!("+HI {{\"v\":2,\"i\":{rounds},\"s\":\"{salt}\"}}\r\n")
        }
    }
}

/// A client's description of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hello {
    /// The worker's name; empty for a producer.
    pub wid: String,
    /// The worker's host.
    pub hostname: String,
    /// The worker's process.
    pub pid: i64,
    /// The worker's labels.
    pub labels: Vec<String>,
    /// The hash of the password and the salt, in hexadecimal.
    pub pwdhash: String,
    /// The version of the protocol; 0 if absent.
    pub version: u8,
}

impl Hello {
    /// Parses the first line. `None` if it is not a HELLO: the server then closes the connection.
    pub fn parse(line: &str) -> Option<Self> {
        let text = line
            .strip_prefix("HELLO ")
            .filter(|text| text.starts_with('{'))?;
        Self::read(text).ok()
    }

    fn read(text: &str) -> Result<Self, Unexpected> {
        const FIELDS: [&str; 8] = [
            "wid", "hostname", "pid", "labels", "pwdhash", "v", "rss_kb", "username",
        ];
        let [
            wid,
            hostname,
            pid,
            labels,
            pwdhash,
            version,
            rss_kb,
            username,
        ] = json::members(text, &FIELDS)?;
        let int = |value: Option<&_>| value.map_or(Ok(0), json::int);
        int(rss_kb)?;
        json::text_or_empty(username)?;
        Ok(Self {
            wid: json::text_or_empty(wid)?,
            hostname: json::text_or_empty(hostname)?,
            pid: int(pid)?,
            labels: labels
                .map_or(Ok((Vec::new(), 0)), |value| json::texts(value, LABELS_MAX))?
                .0,
            pwdhash: json::text_or_empty(pwdhash)?,
            version: u8::try_from(int(version)?).map_err(|_| Unexpected)?,
        })
    }
}

/// Whether a client has hashed the right password. Takes the same time if it has not.
#[must_use]
pub fn password_matches(password: &str, challenge: &Challenge, hello: &Hello) -> bool {
    let rounds = if hello.version < 2 {
        1
    } else {
        challenge.rounds
    };
    let mut hash = Sha256::new()
        .chain_update(password)
        .chain_update(&challenge.salt)
        .finalize();
    for _ in 1..rounds {
        hash = Sha256::digest(hash);
    }
    let expected: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    expected.as_bytes().ct_eq(hello.pwdhash.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_of_the_published_example() {
        let challenge = Challenge {
            rounds: 1_545,
            salt: "55104dc76695721d".to_owned(),
        };
        let pwdhash = "6d877f8e5544b1f2598768f817413ab8a357afffa924dedae99eb91472d4ec30".to_owned();
        let hello = Hello {
            pwdhash,
            version: 2,
            ..Hello::default()
        };
        assert!(password_matches("foobar", &challenge, &hello));
        assert!(!password_matches("foobaz", &challenge, &hello));
        for version in [0, 1] {
            assert!(!password_matches(
                "foobar",
                &challenge,
                &Hello {
                    version,
                    ..hello.clone()
                }
            ));
        }
        assert!(password_matches(
            "foobar",
            &challenge,
            &Hello {
                version: 3,
                ..hello
            }
        ));
        assert!(!password_matches(
            "foobar",
            &challenge,
            &Hello {
                version: 2,
                ..Hello::default()
            }
        ));
    }

    #[test]
    fn old_clients_hash_once() {
        let challenge = Challenge {
            rounds: 4_000,
            salt: "abc".to_owned(),
        };
        let pwdhash = Sha256::digest("secretabc")
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let hello = Hello {
            pwdhash,
            ..Hello::default()
        };
        assert!(password_matches("secret", &challenge, &hello));
        assert!(!password_matches(
            "secret",
            &challenge,
            &Hello {
                version: 2,
                ..hello
            }
        ));
    }

    #[test]
    fn challenges_are_in_range() {
        for rng in [0, 1, u64::MAX, 0xdead_beef_dead_beef] {
            let challenge = Challenge::new([rng, rng]);
            assert!((4_000..=8_095).contains(&challenge.rounds) && challenge.salt.len() <= 16);
        }
        let challenge = Challenge {
            rounds: 4_321,
            salt: "f".to_owned(),
        };
        assert_eq!(
            hi(Some(&challenge)),
            "+HI {\"v\":2,\"i\":4321,\"s\":\"f\"}\r\n"
        );
        assert_eq!(hi(None), "+HI {\"v\":2}\r\n");
    }

    #[test]
    fn only_a_hello_is_a_hello() {
        for good in [
            "HELLO {}",
            "HELLO {\"v\":2}",
            "HELLO {\"v\":2} ",
            "HELLO {\"v\":1}",
            "HELLO {\"v\":255}",
            "HELLO {\"v\":2,\"unknown\":1}",
            "HELLO {\"v\":2,\"wid\":null,\"hostname\":null,\"pid\":null,\"labels\":null}",
            "HELLO {\"v\":2,\"labels\":[\"a\",null],\"rss_kb\":1,\"username\":\"u\"}",
        ] {
            assert!(Hello::parse(good).is_some(), "{good}");
        }
        for bad in [
            "",
            "HELLO",
            "HELLO ",
            "HELLO{\"v\":2}",
            "hello {\"v\":2}",
            "HELLO  {\"v\":2}",
            "HELLO {bad}",
            "HELLO {\"v\":\"2\"}",
            "HELLO {\"v\":300}",
            "HELLO {\"v\":-1}",
            "HELLO {\"v\":2,\"pid\":\"12\"}",
            "HELLO {\"v\":2,\"labels\":\"x\"}",
            "HELLO {\"v\":2,\"pwdhash\":7}",
            "HELLO {\"v\":2} junk",
            "PUSH {}",
            "GET / HTTP/1.1",
        ] {
            assert_eq!(Hello::parse(bad), None, "{bad}");
        }
        let hello =
            Hello::parse("HELLO {\"wid\":\"w\",\"hostname\":\"h\",\"pid\":7,\"labels\":[\"x\"]}")
                .unwrap();
        assert_eq!(
            (&*hello.wid, &*hello.hostname, hello.pid, hello.labels),
            ("w", "h", 7, vec!["x".to_owned()])
        );
    }
}
