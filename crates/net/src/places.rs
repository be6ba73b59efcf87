//! Limits on connections: in all, for each protocol and from each address, at once and over time; and which connection
//! gives way to a new one.
//!
//! - Some places are reserved for each protocol, so that another protocol cannot take them all.
//! - When no place is left, a silent connection gives way: one that has sent nothing yet, or only parts of a TLS
//!   handshake. It is the one that has been silent for longest within the same protocol, or else within a protocol that
//!   has more than its reserved places. A connection that has sent a byte stays.
//! - A connection that has been silent for less than a second may be on its way, so it stays, too. The new connection
//!   waits until one has been silent for that long.
//! - When no silent connection is left, a few more are let in for administrators: peers whose first byte shows that
//!   they are. The daemon closes other connections in these places on their first byte.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use foldhash::HashMap;
use windlass_session::Reason;
use windlass_session::protocol::IsAdmin;

use crate::rates::{self, Allowance, Rates};
use windlass_hub::{Mailbox, warn_limited};

#[cfg(test)]
mod tests;

/// The limit on all connections.
pub const CONNECTIONS: &str = "connections_max";

/// The limit on the connection rate of an address.
const CONNECTS: &str = "connections_per_address_per_minute";

/// The limit on the connections of an address.
const PER_ADDRESS: &str = "connections_per_address_max";

/// The limit on failed logins of an address.
pub(crate) const FAILED_LOGINS: &str = "failed_logins_per_address_per_minute";

/// Administrators admitted beyond the limit.
const ADMINISTRATORS_MAX: usize = 4;

/// How many clients may connect.
#[derive(Clone, Copy, Debug)]
pub struct PlaceLimits {
    /// In total.
    pub connections_max: usize,
    /// The source of that limit.
    pub connections_limit: &'static str,
    /// Reserved for each protocol; together at most half of all places.
    pub reserved: usize,
    /// For each address; 0 = unlimited.
    pub per_address_max: usize,
    /// New connections of each address.
    pub rate: Option<Allowance>,
    /// Failed logins of each address, beyond which it may not connect.
    pub failures: Option<Allowance>,
    /// How long a connection must have been silent to be evicted.
    pub silence_min: Duration,
}

/// Why there is no place for a new connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Full {
    /// A silent connection may be evicted later.
    Yet,
    /// This limit is exceeded.
    Limit(&'static str),
}

/// How a new connection gets its place.
#[derive(Debug)]
enum Grant {
    Free,
    /// By evicting this connection.
    InPlaceOf(u64),
    /// Beyond the limit, by evicting this connection if there is one.
    Extra(Option<u64>),
}

/// All places.
#[derive(Debug)]
pub struct Places {
    limits: ArcSwap<PlaceLimits>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Connections in total, excluding administrators beyond the limit.
    open: usize,
    administrators: usize,
    protocols: HashMap<&'static str, usize>,
    addresses: HashMap<Box<str>, usize>,
    /// Connections that have sent nothing yet, with the start of their silence, longest first.
    silent: BTreeMap<u64, (Instant, Arc<Entry>)>,
    next: u64,
    connects: Rates,
    failures: Rates,
}

/// One connection: its origin, and how to close it.
#[derive(Debug)]
struct Entry {
    protocol: &'static str,
    address: Box<str>,
    /// The name of the limit on all connections.
    limit: &'static str,
    /// Whether it is beyond the limit, for administrators only.
    is_extra: bool,
    evicted: AtomicBool,
    mailbox: OnceLock<Arc<Mailbox>>,
}

/// A connection's place, until dropped.
#[derive(Debug)]
pub struct Admission {
    places: Arc<Places>,
    number: u64,
    entry: Arc<Entry>,
    is_admin: IsAdmin,
    has_spoken: bool,
}

/// A port's connection, which counts towards the limit of its address until this is dropped.
#[derive(Debug)]
pub struct Admitted {
    places: Arc<Places>,
    address: Box<str>,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.places.lock().discount_address(&self.address);
    }
}

impl Places {
    /// Creates places that are all free.
    pub fn new(limits: PlaceLimits) -> Arc<Self> {
        Arc::new(Self {
            limits: ArcSwap::from_pointee(limits),
            inner: Mutex::default(),
        })
    }

    /// Sets the limits for new connections. Open connections keep their places.
    pub fn limit(&self, limits: PlaceLimits) {
        self.limits.store(Arc::new(limits));
    }

    /// Open connections of clients, and the limit.
    pub fn used(&self) -> (usize, usize) {
        (self.lock().open, self.limits.load().connections_max)
    }

    /// The source of the limit on all connections.
    pub fn limit_of_all(&self) -> &'static str {
        self.limits.load().connections_limit
    }

    /// Reserves places for a protocol.
    pub fn keep_for(&self, protocol: &'static str) {
        self.lock().protocols.entry(protocol).or_default();
    }

    /// Takes a place for a connection.
    pub fn take(
        self: &Arc<Self>,
        protocol: &'static str,
        address: &str,
        is_admin: IsAdmin,
    ) -> Result<Admission, Full> {
        let (mut inner, now) = (self.lock(), Instant::now());
        // An administrator never sends NUL first.
        let grant = self.grant(&inner, protocol, is_admin(b'\n') && !is_admin(0), now)?;
        inner
            .admit(address, &self.limits.load())
            .map_err(Full::Limit)?;
        let (is_extra, evicted) = match grant {
            Grant::Free => (false, None),
            Grant::InPlaceOf(number) => (false, inner.let_go(number)),
            Grant::Extra(number) => (true, number.and_then(|number| inner.let_go(number))),
        };
        let entry = Arc::new(Entry {
            protocol,
            address: address.into(),
            limit: self.limits.load().connections_limit,
            is_extra,
            evicted: AtomicBool::new(false),
            mailbox: OnceLock::new(),
        });
        inner.count(&entry);
        let number = inner.add_silent(now, &entry);
        drop(inner);
        if let Some(entry) = evicted {
            entry.evict();
        }
        Ok(Admission {
            places: Arc::clone(self),
            number,
            entry,
            is_admin,
            has_spoken: false,
        })
    }

    /// Counts a port's connection, which needs no place here, towards the limit of its address.
    /// Returns `None` if the address has too many.
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Admitted> {
        let (address, source) = (address.to_canonical().to_string(), rates::source(address));
        let (mut inner, limits) = (self.lock(), self.limits.load());
        let limit = if !inner.has_room_for(&address, &limits) {
            PER_ADDRESS
        } else if !inner.admit_rate(source, Instant::now(), &limits) {
            CONNECTS
        } else {
            inner.count_address(&address);
            return Some(Admitted {
                places: Arc::clone(self),
                address: address.into(),
            });
        };
        drop(inner);
        warn_limited!(limit, peer = %address, limit, "too many connections: closed the new connection");
        None
    }

    /// Whether a protocol may have another place without using those reserved for others.
    fn has_room(&self, inner: &Inner, protocol: &str) -> bool {
        let reserved = self.reserved(inner);
        let others = inner
            .protocols
            .iter()
            .filter(|(name, _)| **name != protocol);
        let kept: usize = others.map(|(_, open)| reserved.saturating_sub(*open)).sum();
        inner.open + kept < self.limits.load().connections_max
    }

    fn reserved(&self, inner: &Inner) -> usize {
        let protocols = inner.protocols.len().max(1);
        let limits = self.limits.load();
        limits.reserved.min(limits.connections_max / 2 / protocols)
    }

    /// How another connection of a protocol can get a place.
    fn grant(
        &self,
        inner: &Inner,
        protocol: &str,
        has_administrators: bool,
        now: Instant,
    ) -> Result<Grant, Full> {
        if self.has_room(inner, protocol) {
            return Ok(Grant::Free);
        }
        let silence_min = self.limits.load().silence_min;
        let may_go = |since: Instant| now.saturating_duration_since(since) >= silence_min;
        let mut silent = self
            .longest_silent(inner, protocol)
            .into_iter()
            .flatten()
            .peekable();
        let is_any = silent.peek().is_some();
        match silent.find(|(_, since)| may_go(*since)) {
            Some((number, _)) => return Ok(Grant::InPlaceOf(number)),
            None if is_any => return Err(Full::Yet),
            None if !has_administrators => {
                return Err(Full::Limit(self.limits.load().connections_limit));
            }
            None if inner.administrators < ADMINISTRATORS_MAX => return Ok(Grant::Extra(None)),
            None => {}
        }
        match inner.silent.iter().find(|(_, (_, entry))| entry.is_extra) {
            Some((number, (since, _))) => may_go(*since)
                .then_some(Grant::Extra(Some(*number)))
                .ok_or(Full::Yet),
            None => Err(Full::Limit(self.limits.load().connections_limit)),
        }
    }

    /// Eviction candidates for a new connection of this protocol, best first, with the start of
    /// their silence: one of the same protocol, and one of a protocol with more than its reserved
    /// places.
    fn longest_silent(&self, inner: &Inner, protocol: &str) -> [Option<(u64, Instant)>; 2] {
        let reserved = self.reserved(inner);
        let open = |name: &str| inner.protocols.get(name).copied().unwrap_or_default();
        let mut silent = inner
            .silent
            .iter()
            .filter(|(_, (_, entry))| !entry.is_extra);
        let own = silent
            .clone()
            .find(|(_, (_, entry))| entry.protocol == protocol);
        let other = silent.find(|(_, (_, entry))| open(entry.protocol) > reserved);
        [own, other].map(|found| found.map(|(number, (since, _))| (*number, *since)))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No holder of this lock can panic halfway through a change.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Checks the limits of an address, and counts the connection. Unix sockets have no limits.
    fn admit(&mut self, address: &str, limits: &PlaceLimits) -> Result<(), &'static str> {
        if !self.has_room_for(address, limits) {
            return Err(PER_ADDRESS);
        }
        let Ok(source) = address.parse().map(rates::source) else {
            return Ok(());
        };
        let now = Instant::now();
        if limits
            .failures
            .is_some_and(|allowance| !self.failures.admit(source, now, allowance))
        {
            return Err(FAILED_LOGINS);
        }
        if self.admit_rate(source, now, limits) {
            Ok(())
        } else {
            Err(CONNECTS)
        }
    }

    /// Whether an address may have another connection.
    fn has_room_for(&self, address: &str, limits: &PlaceLimits) -> bool {
        let held = self.addresses.get(address).copied().unwrap_or_default();
        address.is_empty() || limits.per_address_max == 0 || held < limits.per_address_max
    }

    /// Checks the connection rate of an address, and counts the connection.
    fn admit_rate(&mut self, source: u128, now: Instant, limits: &PlaceLimits) -> bool {
        let Some(allowance) = limits.rate else {
            return true;
        };
        let is_admitted = self.connects.admit(source, now, allowance);
        if is_admitted {
            self.connects.count(source, now, allowance);
        }
        is_admitted
    }

    fn count(&mut self, entry: &Entry) {
        if entry.is_extra {
            self.administrators += 1;
        } else {
            self.open += 1;
            *self.protocols.entry(entry.protocol).or_default() += 1;
        }
        self.count_address(&entry.address);
    }

    fn count_address(&mut self, address: &str) {
        if !address.is_empty() {
            *self.addresses.entry(address.into()).or_default() += 1;
        }
    }

    fn discount(&mut self, entry: &Entry) {
        if entry.is_extra {
            self.administrators -= 1;
        } else {
            self.open -= 1;
            *self.protocols.entry(entry.protocol).or_insert(1) -= 1;
        }
        self.discount_address(&entry.address);
    }

    fn discount_address(&mut self, address: &str) {
        if let Some(held) = self.addresses.get_mut(address) {
            *held -= 1;
            if *held == 0 {
                self.addresses.remove(address);
            }
        }
    }

    /// Adds a connection that has been silent since now. Returns its number.
    fn add_silent(&mut self, now: Instant, entry: &Arc<Entry>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.silent.insert(number, (now, Arc::clone(entry)));
        number
    }

    /// Evicts a silent connection. The caller must notify it.
    fn let_go(&mut self, number: u64) -> Option<Arc<Entry>> {
        let (_, entry) = self.silent.remove(&number)?;
        entry.evicted.store(true, Ordering::Release);
        self.discount(&entry);
        Some(entry)
    }
}

impl Entry {
    const fn why(&self) -> Reason {
        Reason::Limit(self.limit)
    }

    fn evict(&self) {
        if let Some(mailbox) = self.mailbox.get() {
            mailbox.evict(self.why());
        }
    }
}

impl Admission {
    /// Sets the mailbox through which the connection is evicted.
    pub fn can_be_reached(&self, mailbox: &Arc<Mailbox>) {
        let _ = self.entry.mailbox.set(Arc::clone(mailbox));
        if self.entry.evicted.load(Ordering::Acquire) {
            mailbox.evict(self.entry.why());
        }
    }

    /// Called when the peer has failed to log in.
    pub fn failed_to_log_in(&self) {
        if let (Some(allowance), Ok(address)) = (
            self.places.limits.load().failures,
            self.entry.address.parse(),
        ) {
            self.places
                .lock()
                .failures
                .count(rates::source(address), Instant::now(), allowance);
        }
    }

    /// Called when the peer continues its TLS handshake, which restarts its silence.
    pub fn shakes_hands(&mut self) {
        let mut inner = self.places.lock();
        if let Some((_, entry)) = inner.silent.remove(&self.number) {
            self.number = inner.add_silent(Instant::now(), &entry);
        }
    }

    /// Whether this is the limit on all connections.
    pub fn is_limited_by(&self, limit: &str) -> bool {
        self.entry.limit == limit
    }

    /// Called when bytes have arrived: from the first byte on, the connection cannot be evicted.
    /// Returns a reason to close it if it is in an administrator's place and its first byte is not
    /// an administrator's.
    pub fn spoke(&mut self, first: Option<u8>) -> Option<Reason> {
        let first = first.filter(|_| !self.has_spoken)?;
        self.has_spoken = true;
        self.places.lock().silent.remove(&self.number);
        (self.entry.is_extra && !(self.is_admin)(first)).then(|| self.entry.why())
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let mut inner = self.places.lock();
        inner.silent.remove(&self.number);
        if !self.entry.evicted.load(Ordering::Acquire) {
            inner.discount(&self.entry);
        }
    }
}
