//! Verification of credentials. It is slow by design, so it is executed on separate threads, a few at a time,
//! and valid credentials are remembered.
//!
//! A credential is remembered as a hash with a key of this process, together with the line that it matches,
//! so that a modified line is verified again. The file is checked once a second; if it cannot be read, the
//! lines read before remain valid.

use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use argon2::Argon2;
use argon2::password_hash::PasswordVerifier as _;
use argon2::password_hash::phc::PasswordHash;
use axum::http::StatusCode;
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use windlass_config::Secret;
use windlass_daemon::rates::{self, Allowance, Rates};

use super::file::{Entries, Entry};
use super::identity::{Credentials, Identity, Kind, LOGIN_WRONG};
use super::session::{Sessions, Token};
use crate::config::Http;
use crate::problem::{Outcome, Problem};

/// Concurrent verifications. Each takes 19 MiB and some 20 ms of a core.
const AT_ONCE: u32 = 2;

/// How long a request may wait for verification.
const PATIENCE: Duration = Duration::from_secs(5);

/// Wrong logins of an address with one name.
const FAILURES_PER_MINUTE: u32 = 10;

/// The interval at which the file is checked.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The limit of remembered credentials. Beyond it, all of them are dropped.
const KNOWN_MAX: usize = 1_024;

/// A hash without a secret, so that an unknown name takes as long as a wrong password.
const NOBODY: &str = "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// The logins of a file, or a common password.
#[derive(Debug)]
pub(crate) struct Logins {
    /// The file, if there is one.
    path: Option<PathBuf>,
    /// Keys the hashes of remembered credentials.
    key: [u8; 32],
    places: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    entries: Arc<Entries>,
    /// The common password; empty if there is a file.
    password: Secret,
    stamp: Option<Stamp>,
    looked_at: Instant,
    known: HashSet<[u8; 32]>,
    sessions: Sessions,
    failures: Rates,
    /// When a failure was last logged.
    logged_at: Option<Instant>,
}

/// Metadata that differs when the file was modified.
type Stamp = (SystemTime, u64);

impl Logins {
    /// Reads the file, or uses the password; `None` if neither is configured.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or a line is invalid.
    pub(crate) fn of(http: &Http) -> io::Result<Option<Self>> {
        let idle = http.session_idle.into();
        match http.logins_file() {
            Some(path) => Self::open(path, idle).map(Some),
            None if http.password.is_empty() => Ok(None),
            None => {
                let entries = Entries::of_password(http.password.expose())?;
                tracing::info!("http: requests need Faktory's password, with any user name");
                Self::new(None, entries, http.password.clone(), idle).map(Some)
            }
        }
    }

    fn open(path: &Path, session_idle: Duration) -> io::Result<Self> {
        Self::new(
            Some(path.to_owned()),
            Entries::read(path)?,
            Secret::default(),
            session_idle,
        )
    }

    fn new(
        path: Option<PathBuf>,
        entries: Entries,
        password: Secret,
        session_idle: Duration,
    ) -> io::Result<Self> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(io::Error::other)?;
        let state = State {
            entries: Arc::new(entries),
            password,
            stamp: path.as_deref().and_then(stamp),
            looked_at: Instant::now(),
            known: HashSet::new(),
            sessions: Sessions::new(session_idle),
            failures: Rates::default(),
            logged_at: None,
        };
        Ok(Self {
            path,
            key,
            places: Semaphore::new(AT_ONCE as usize),
            state: Mutex::new(state),
        })
    }

    /// Applies new values of `session_idle` and of the password. Changes of the file are detected without
    /// this.
    pub(crate) fn renew(&self, http: &Http) {
        let mut state = self.state();
        state.sessions.set_idle(http.session_idle.into());
        if self.path.is_some() || http.password.is_empty() || http.password == state.password {
            return;
        }
        match Entries::of_password(http.password.expose()) {
            Ok(entries) => {
                (state.entries, state.password) = (Arc::new(entries), http.password.clone())
            }
            Err(error) => tracing::error!(%error, "http: keeping the current password"),
        }
    }

    /// The identity with these credentials.
    ///
    /// # Errors
    ///
    /// The credentials are wrong, or the address has made too many wrong attempts with this name.
    pub(crate) async fn identify(
        &self,
        credentials: Credentials,
        address: Option<IpAddr>,
    ) -> Outcome<Identity> {
        let entry = self.entry(&credentials);
        let mark = self.mark(&credentials, entry.as_ref());
        if let Some(identity) = self.known(&mark, entry.as_ref()) {
            return Ok(identity);
        }
        let guesser = self.guesser(&credentials, address);
        let is_admitted = |allowance| {
            self.state()
                .failures
                .admit(guesser, Instant::now(), allowance)
        };
        if !Allowance::per_minute(FAILURES_PER_MINUTE).is_none_or(is_admitted) {
            let detail = "too many failed logins with this name from this address: wait a minute";
            return Err(Problem::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too_many_failures",
                detail,
            ));
        }
        let busy = || Problem::unavailable("too_many_logins", "too many logins at once");
        let place = tokio::time::timeout(PATIENCE, self.places.acquire()).await;
        let _place = place.map_err(|_| busy())?.map_err(|_| busy())?;
        // The same credentials may have been verified meanwhile.
        if let Some(identity) = self.known(&mark, entry.as_ref()) {
            return Ok(identity);
        }
        let name = credentials.name.clone();
        let hash = entry
            .as_ref()
            .map_or_else(|| NOBODY.to_owned(), |entry| entry.hash.clone());
        let is_right = tokio::task::spawn_blocking(move || fits(&credentials, &hash))
            .await
            .unwrap_or(false);
        match entry.filter(|_| is_right) {
            Some(entry) => {
                self.remember(mark);
                Ok(entry.identity)
            }
            None => {
                self.refuse(&name, address, guesser);
                Err(Problem::unauthorized(LOGIN_WRONG, "invalid login"))
            }
        }
    }

    /// Starts a session of the person with these credentials.
    ///
    /// # Errors
    ///
    /// As [`Logins::identify`], or the system has no random bytes.
    pub(crate) async fn begin(
        &self,
        credentials: Credentials,
        address: Option<IpAddr>,
    ) -> Outcome<(Identity, Token)> {
        let (kind, name) = (credentials.kind, credentials.name.clone());
        let identity = self.identify(credentials, address).await?;
        let mut state = self.fresh_state();
        let wrong = || Problem::unauthorized(LOGIN_WRONG, "invalid login");
        let hash = state
            .entries
            .get(kind, &name)
            .ok_or_else(wrong)?
            .hash
            .clone();
        let no_random = |error| Problem::internal(error);
        let token = state
            .sessions
            .begin(name, hash, Instant::now())
            .map_err(no_random)?;
        Ok((identity, token))
    }

    /// The identity of a session, if it is valid. `is_use` resets the idle time.
    pub(crate) fn of_session(&self, token: &Token, is_use: bool) -> Option<Identity> {
        let mut state = self.fresh_state();
        let State {
            sessions, entries, ..
        } = &mut *state;
        let (name, hash) = sessions.find(token, is_use, Instant::now())?;
        let entry = entries
            .get(Kind::User, name)
            .filter(|entry| entry.hash == hash);
        let identity = entry.map(|entry| entry.identity.clone());
        if identity.is_none() {
            sessions.end(token);
        }
        identity
    }

    /// Removes a session.
    pub(crate) fn end(&self, token: &Token) {
        self.state().sessions.end(token);
    }

    fn entry(&self, credentials: &Credentials) -> Option<Entry> {
        self.fresh_state()
            .entries
            .get(credentials.kind, &credentials.name)
            .cloned()
    }

    /// The state, with the lines of the file as of a moment ago.
    fn fresh_state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state();
        if state.looked_at.elapsed() >= LOOK_EVERY {
            self.path.iter().for_each(|path| state.look(path));
        }
        state
    }

    fn mark(&self, credentials: &Credentials, entry: Option<&Entry>) -> [u8; 32] {
        let hash = entry.map_or("", |entry| &entry.hash);
        let mut mark = Sha256::new_with_prefix(self.key);
        for part in [
            &*credentials.kind.to_string(),
            &credentials.name,
            hash,
            &credentials.secret,
        ] {
            mark.update((part.len() as u64).to_le_bytes());
            mark.update(part);
        }
        mark.finalize().into()
    }

    fn known(&self, mark: &[u8; 32], entry: Option<&Entry>) -> Option<Identity> {
        entry
            .filter(|_| self.state().known.contains(mark))
            .map(|entry| entry.identity.clone())
    }

    fn remember(&self, mark: [u8; 32]) {
        let known = &mut self.state().known;
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(mark);
    }

    /// The key by which guesses are limited: an address together with a name. A common password has
    /// no names.
    fn guesser(&self, credentials: &Credentials, address: Option<IpAddr>) -> u128 {
        let source = address.map_or(u128::MAX, rates::source);
        let Credentials { kind, name, .. } = credentials;
        let who = if self.path.is_some() {
            format!("{kind} {name}")
        } else {
            String::new()
        };
        let hash = Sha256::new_with_prefix(self.key)
            .chain_update(source.to_le_bytes())
            .chain_update(who)
            .finalize();
        hash.iter()
            .take(16)
            .fold(0, |number, byte| number << 8 | u128::from(*byte))
    }

    fn refuse(&self, name: &str, address: Option<IpAddr>, guesser: u128) {
        let (mut state, now) = (self.state(), Instant::now());
        if let Some(allowance) = Allowance::per_minute(FAILURES_PER_MINUTE) {
            state.failures.count(guesser, now, allowance);
        }
        if state
            .logged_at
            .is_none_or(|at| now.duration_since(at) >= LOOK_EVERY)
        {
            state.logged_at = Some(now);
            let name: String = name.chars().take(64).collect();
            let address = address.map(tracing::field::display);
            tracing::warn!(?name, address, "http: invalid login");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Reads the file again if it was modified.
    fn look(&mut self, path: &Path) {
        self.looked_at = Instant::now();
        let now = stamp(path);
        if now == self.stamp {
            return;
        }
        self.stamp = now;
        match Entries::read(path) {
            Ok(entries) => {
                self.entries = Arc::new(entries);
                tracing::info!(path = %path.display(), "http: logins reloaded");
            }
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "http: cannot read logins; keeping the current ones");
            }
        }
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = path.metadata().ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

fn fits(credentials: &Credentials, hash: &str) -> bool {
    let verify = |hash| {
        Argon2::default()
            .verify_password(credentials.secret.as_bytes(), &hash)
            .is_ok()
    };
    PasswordHash::new(hash).is_ok_and(verify)
}

#[cfg(test)]
mod tests {
    use super::super::{Grant, NewLogin, Role};
    use super::*;

    fn credentials(name: &str, secret: &str) -> Credentials {
        Credentials {
            kind: Kind::User,
            name: name.to_owned(),
            secret: secret.to_owned(),
        }
    }

    fn file(dir: &tempfile::TempDir, password: &str) -> PathBuf {
        let path = dir.path().join("logins");
        std::fs::write(
            &path,
            NewLogin::user("ada", &Grant::Everywhere(Role::Operate), password)
                .unwrap()
                .line,
        )
        .unwrap();
        path
    }

    async fn status(logins: &Logins, name: &str, secret: &str) -> u16 {
        let identified = logins.identify(credentials(name, secret), None).await;
        identified.map_or_else(
            |problem| problem.status,
            |identity| {
                if identity.grant == Grant::Everywhere(Role::Operate) {
                    200
                } else {
                    0
                }
            },
        )
    }

    #[tokio::test]
    async fn what_was_right_costs_nothing_and_guessing_ends() {
        let dir = tempfile::tempdir().unwrap();
        let logins = Logins::open(&file(&dir, "right-password"), LOOK_EVERY).unwrap();
        assert_eq!(status(&logins, "ada", "right-password").await, 200);
        // While all places are taken nothing is verified.
        let places = logins.places.acquire_many(AT_ONCE).await.unwrap();
        for _ in 0..1_000 {
            assert_eq!(status(&logins, "ada", "right-password").await, 200);
        }
        drop(places);
        let mut last = 401;
        for _ in 0..100 {
            last = if last == 401 {
                status(&logins, "ada", "y").await
            } else {
                last
            };
        }
        assert_eq!(last, 429);
        assert_eq!(
            status(&logins, "bob", "right-password").await,
            401,
            "another name"
        );
        assert_eq!(
            status(&logins, "ada", "right-password").await,
            200,
            "a known login is not kept out"
        );
    }

    #[tokio::test]
    async fn a_password_is_for_any_user_and_no_token() {
        let with = |password: &str| Http {
            password: password.into(),
            ..Http::default()
        };
        assert!(Logins::of(&with("")).unwrap().is_none());
        let logins = Logins::of(&with("pw")).unwrap().unwrap();
        let status = async |kind, name: &str, secret: &str| {
            let credentials = Credentials {
                kind,
                ..credentials(name, secret)
            };
            logins.identify(credentials, None).await.map_or_else(
                |it| it.status,
                |it| if it.grant == Grant::ALL { 200 } else { 0 },
            )
        };
        assert_eq!(
            (
                status(Kind::User, "", "pw").await,
                status(Kind::User, "ada", "pw").await
            ),
            (200, 200)
        );
        assert_eq!(
            (
                status(Kind::User, "ada", "").await,
                status(Kind::Token, "ada", "pw").await
            ),
            (401, 401)
        );
        let (_, token) = logins.begin(credentials("ada", "pw"), None).await.unwrap();
        logins.renew(&with("pw"));
        assert!(logins.of_session(&token, true).is_some());
        logins.renew(&with("other"));
        assert_eq!(
            (
                status(Kind::User, "", "pw").await,
                status(Kind::User, "", "other").await
            ),
            (401, 200)
        );
        assert!(logins.of_session(&token, true).is_none());
    }

    #[test]
    fn a_known_login_waits_for_no_guess() {
        let dir = tempfile::tempdir().unwrap();
        let logins = Logins::open(&file(&dir, "right-password"), LOOK_EVERY).unwrap();
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().max_blocking_threads(1).build().unwrap().block_on(async {
            assert_eq!(status(&logins, "ada", "right-password").await, 200);
            // The only thread for verifications is busy until `release` is dropped.
            let (release, held) = std::sync::mpsc::channel::<()>();
            let busy = tokio::task::spawn_blocking(move || held.recv().is_err());
            let guess = status(&logins, "ada", "guess");
            tokio::pin!(guess);
            for _ in 0..100 {
                tokio::select! {
                    biased;
                    _ = &mut guess => panic!("the guess is verified where requests are answered"),
                    status = status(&logins, "ada", "right-password") => assert_eq!(status, 200),
                }
            }
            drop(release);
            assert!(busy.await.unwrap());
            assert_eq!(guess.await, 401);
        });
    }

    #[tokio::test]
    async fn a_changed_file_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = file(&dir, "first-password");
        let logins = Logins::open(&path, LOOK_EVERY).unwrap();
        assert_eq!(status(&logins, "ada", "first-password").await, 200);
        std::fs::write(&path, "user ada").unwrap();
        logins.state().look(&path);
        assert_eq!(
            status(&logins, "ada", "first-password").await,
            200,
            "a broken file changes nothing"
        );
        file(&dir, "second-password-is-longer");
        logins.state().look(&path);
        assert_eq!(status(&logins, "ada", "first-password").await, 401);
        assert_eq!(
            status(&logins, "ada", "second-password-is-longer").await,
            200
        );
    }
}
