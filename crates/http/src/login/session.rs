//! Sessions: a person who has logged in on a page is identified by a cookie, until they log out or use no
//! page for `http.session_idle`.
//!
//! The cookie is random, and only a hash of it is stored. A session belongs to a line of the file of logins:
//! it has the line's current role, and expires when the line or the password is replaced. Sessions are stored
//! only in memory, and limited in number.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, header};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

/// The cookie's name, before the port. The port is included because browsers ignore ports for cookies, and
/// another daemon may use another port of the same host.
const COOKIE: &str = "windlass_session";

/// Random bytes of a cookie.
const TOKEN_BYTES: usize = 32;

/// The limit of sessions. Beyond it, the session that was idle for longest is dropped.
const SESSIONS_MAX: usize = 1_024;

/// The maximum age of a session, even if it is in use.
const LIFETIME: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The value that a browser sends to identify the session.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(String);

/// All sessions.
#[derive(Debug)]
pub(super) struct Sessions {
    idle: Duration,
    by_mark: HashMap<[u8; 32], Session>,
}

#[derive(Debug)]
struct Session {
    name: String,
    /// The hash in the login's line when the session began.
    hash: String,
    begun_at: Instant,
    used_at: Instant,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// The cookie's name at the address that a request is for.
    pub(crate) fn cookie_name(headers: &HeaderMap) -> String {
        let host = headers
            .get(header::HOST)
            .and_then(|host| host.to_str().ok())
            .unwrap_or_default();
        let port = host
            .rsplit_once(':')
            .map(|(_, port)| port)
            .filter(|port| port.parse::<u16>().is_ok());
        port.map_or_else(|| COOKIE.to_owned(), |port| format!("{COOKIE}_{port}"))
    }

    /// Reads `Cookie`. A browser may send several of these headers.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let own = Self::cookie_name(headers);
        let values = headers
            .get_all(header::COOKIE)
            .iter()
            .filter_map(|value| value.to_str().ok());
        let mut pairs = values
            .flat_map(|value| value.split(';'))
            .filter_map(|pair| pair.trim().split_once('='));
        pairs
            .find(|(name, _)| *name == own)
            .map(|(_, token)| Self(token.to_owned()))
    }

    fn new() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; TOKEN_BYTES];
        getrandom::fill(&mut bytes)?;
        Ok(Self(URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// `Set-Cookie`: no script reads it, and no page of another site sends it. `is_secure`: only over TLS.
    pub(crate) fn cookie(&self, name: &str, prefix: &str, is_secure: bool) -> String {
        let secure = if is_secure { "; Secure" } else { "" };
        format!(
            "{name}={}; Path={prefix}/; HttpOnly; SameSite=Strict{secure}",
            self.0
        )
    }

    /// `Set-Cookie` that removes the cookie.
    pub(crate) fn no_cookie(name: &str, prefix: &str) -> String {
        format!("{name}=; Path={prefix}/; HttpOnly; SameSite=Strict; Max-Age=0")
    }

    fn mark(&self) -> [u8; 32] {
        Sha256::digest(&self.0).into()
    }
}

impl Sessions {
    /// An empty set of sessions. `idle` is the limit of idle time.
    pub(super) fn new(idle: Duration) -> Self {
        Self {
            idle,
            by_mark: HashMap::new(),
        }
    }

    pub(super) const fn set_idle(&mut self, idle: Duration) {
        self.idle = idle;
    }

    /// Starts a session of the login with this name and hash.
    ///
    /// # Errors
    ///
    /// The system has no random bytes.
    pub(super) fn begin(
        &mut self,
        name: String,
        hash: String,
        now: Instant,
    ) -> Result<Token, getrandom::Error> {
        let token = Token::new()?;
        let idle = self.idle;
        self.by_mark
            .retain(|_, session| session.is_alive(idle, now));
        if self.by_mark.len() >= SESSIONS_MAX
            && let Some(oldest) = self
                .by_mark
                .iter()
                .min_by_key(|(_, it)| it.used_at)
                .map(|(mark, _)| *mark)
        {
            self.by_mark.remove(&oldest);
        }
        self.by_mark.insert(
            token.mark(),
            Session {
                name,
                hash,
                begun_at: now,
                used_at: now,
            },
        );
        Ok(token)
    }

    /// The name of the session's login, and the hash that the line must still have. `is_use` resets the idle
    /// time.
    pub(super) fn find(
        &mut self,
        token: &Token,
        is_use: bool,
        now: Instant,
    ) -> Option<(&str, &str)> {
        let mark = token.mark();
        if !self.by_mark.get(&mark)?.is_alive(self.idle, now) {
            self.by_mark.remove(&mark);
            return None;
        }
        let session = self.by_mark.get_mut(&mark)?;
        if is_use {
            session.used_at = now;
        }
        Some((&session.name, &session.hash))
    }

    /// Removes a session.
    pub(super) fn end(&mut self, token: &Token) {
        self.by_mark.remove(&token.mark());
    }
}

impl Session {
    fn is_alive(&self, idle: Duration, now: Instant) -> bool {
        now.duration_since(self.used_at) < idle && now.duration_since(self.begun_at) < LIFETIME
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(60);

    fn begun(sessions: &mut Sessions, name: &str, now: Instant) -> Token {
        sessions
            .begin(name.to_owned(), "hash".to_owned(), now)
            .unwrap()
    }

    fn name(sessions: &mut Sessions, token: &Token, is_use: bool, now: Instant) -> Option<String> {
        sessions
            .find(token, is_use, now)
            .map(|(name, _)| name.to_owned())
    }

    #[test]
    fn cookies_are_found_among_others() {
        let table = [
            (&["windlass_session=abc"][..], Some("abc")),
            (&["a=b; windlass_session=abc; c=d"], Some("abc")),
            (&["a=b", "windlass_session=abc"], Some("abc")),
            (&["windlass_sessions=abc"], None),
            (&["a=windlass_session"], None),
            (&[], None),
        ];
        for (values, expected) in table {
            let headers = values
                .iter()
                .map(|value| (header::COOKIE, value.parse().unwrap()))
                .collect();
            assert_eq!(
                Token::of(&headers).map(|token| token.0).as_deref(),
                expected,
                "{values:?}"
            );
        }
        let of = |host: &'static str| {
            let cookie = (
                header::COOKIE,
                "windlass_session=a; windlass_session_7420=b"
                    .parse()
                    .unwrap(),
            );
            Token::of(&HeaderMap::from_iter([
                cookie,
                (header::HOST, host.parse().unwrap()),
            ]))
            .map(|token| token.0)
        };
        let table = [
            ("localhost:7420", Some("b")),
            ("[::1]:7420", Some("b")),
            ("h:1", None),
            ("[::1]", Some("a")),
        ];
        for (host, expected) in table {
            assert_eq!(of(host).as_deref(), expected, "{host}");
        }
    }

    #[test]
    fn a_cookie_is_for_this_site_and_no_script() {
        let token = Token("abc".to_owned());
        let expected = "windlass_session=abc; Path=/; HttpOnly; SameSite=Strict";
        assert_eq!(token.cookie(COOKIE, "", false), expected);
        let expected = "windlass_session=abc; Path=/queue/; HttpOnly; SameSite=Strict; Secure";
        assert_eq!(token.cookie(COOKIE, "/queue", true), expected);
        assert!(Token::no_cookie(COOKIE, "").ends_with("Max-Age=0"));
        assert!(!format!("{token:?}").contains("abc"));
    }

    #[test]
    fn a_session_ends_when_it_is_not_used_and_after_a_week() {
        let (mut sessions, mut now) = (Sessions::new(IDLE), Instant::now());
        let token = begun(&mut sessions, "ada", now);
        for _ in 0..3 {
            now += IDLE / 2;
            assert_eq!(
                name(&mut sessions, &token, true, now).as_deref(),
                Some("ada")
            );
        }
        now += IDLE / 2;
        assert!(
            name(&mut sessions, &token, false, now).is_some(),
            "a look that is not use"
        );
        now += IDLE / 2;
        assert_eq!(name(&mut sessions, &token, true, now), None);
        assert!(sessions.by_mark.is_empty());

        let token = begun(&mut sessions, "ada", now);
        let end = now + LIFETIME;
        while now < end {
            assert!(name(&mut sessions, &token, true, now).is_some());
            now += IDLE / 2;
        }
        assert_eq!(name(&mut sessions, &token, true, now), None);
    }

    #[test]
    fn sessions_are_bounded_and_end_on_request() {
        let (mut sessions, now) = (Sessions::new(IDLE), Instant::now());
        let first = begun(&mut sessions, "first", now);
        let later = now + IDLE / 2;
        let tokens: Vec<_> = (0..SESSIONS_MAX)
            .map(|n| begun(&mut sessions, &n.to_string(), later))
            .collect();
        assert_eq!(sessions.by_mark.len(), SESSIONS_MAX);
        assert_eq!(
            name(&mut sessions, &first, true, later),
            None,
            "the one that was unused the longest"
        );
        sessions.end(&tokens[7]);
        assert_eq!(name(&mut sessions, &tokens[7], true, later), None);
        assert_eq!(
            name(&mut sessions, &tokens[8], true, later).as_deref(),
            Some("8")
        );
    }
}
