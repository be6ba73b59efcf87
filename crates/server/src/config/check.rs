//! Rules that types cannot express: well-formed values that make no sense, alone or together.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use windlass_gearman::wire::frames::FRAME_BYTES_CEILING;

use super::error::Error;
use super::quantity::ByteSize;
use super::queues;
use super::sections::{Config, Listener};
use super::spiderq::CycleListener;
use super::throttle;
use crate::{logging, recurring, tls};

/// The smallest limit for packets and lines that clients can work with.
const FRAME_BYTES_MIN: u64 = 1024;
const LINE_BYTES_MIN: u64 = 64;

/// The longest text line: a command names one function and a few numbers.
const LINE_BYTES_CEILING: u64 = 1 << 20;

/// How much a packet may grow between its producer and its worker: a longer header, the job's handle, a function's name.
const OUTBOUND_SLACK_BYTES: u64 = 64 * 1024;

/// At least an envelope's delimiter and a payload; with more parts than this, reading one message takes too long.
const PARTS_RANGE: RangeInclusive<usize> = 2..=65_536;

/// The longest answer to `version`.
const VERSION_BYTES_MAX: usize = 64;

/// The longest reservation that a Faktory job can request.
const DAY_MS: u64 = 86_400_000;

impl Config {
    /// Checks all values and returns the first error. Reads the files of TLS and of passwords.
    ///
    /// # Errors
    ///
    /// [`Error::Senseless`] and [`Error::Tls`], with the key.
    pub fn check(&self) -> Result<(), Error> {
        self.check_zeros()?;
        self.check_log()?;
        self.check_times()?;
        self.check_keepalive()?;
        self.check_sizes()?;
        self.check_faktory()?;
        queues::check(&self.queues, &self.faktory.throttles)?;
        self.check_gearman()?;
        self.check_spiderq()?;
        self.check_eventmq()?;
        self.check_listeners()?;
        self.check_tls()
    }

    fn check_zeros(&self) -> Result<(), Error> {
        let (server, limits, store) = (&self.server, &self.limits, &self.store);
        let (faktory, eventmq, zmtp) = (&self.faktory, &self.eventmq, &self.zmtp);
        let table: [(&'static str, u64); 39] = [
            ("data_dir", self.data_dir.as_os_str().len() as u64),
            ("commit_interval", self.commit_interval.as_ms()),
            ("server.connections_max", server.connections_max as u64),
            ("server.buffer_bytes_max", server.buffer_bytes_max.0),
            ("server.outbound_bytes_max", server.outbound_bytes_max.0),
            ("server.read_bytes_max", server.read_bytes_max.0),
            ("server.unacknowledged_max", server.unacknowledged_max as u64),
            ("server.handshake_timeout", server.handshake_timeout.as_ms()),
            ("server.backlog", server.backlog.into()),
            ("server.shutdown_timeout", server.shutdown_timeout.as_ms()),
            ("limits.jobs_max", limits.jobs_max),
            ("limits.jobs_bytes_max", limits.jobs_bytes_max.0),
            ("limits.queues_max", limits.queues_max.into()),
            ("limits.abilities_max", limits.abilities_max.into()),
            ("limits.name_bytes_max", limits.name_bytes_max.0),
            ("limits.listeners_max", limits.listeners_max.into()),
            ("limits.lease_max", limits.lease_max.as_ms()),
            ("limits.dead_ttl", limits.dead_ttl.as_ms()),
            ("limits.wake_patience", limits.wake_patience.as_ms()),
            ("limits.beat_timeout", limits.beat_timeout.as_ms()),
            ("limits.page_max", limits.page_max.into()),
            ("store.cache", store.cache.0),
            ("store.checkpoint", store.checkpoint.0),
            ("store.checkpoint_quiet", store.checkpoint_quiet.as_ms()),
            ("store.compact_floor", store.compact_floor.0),
            ("store.commit_timeout", store.commit_timeout.as_ms()),
            ("store.commit_abort", store.commit_abort.as_ms()),
            ("faktory.hello_timeout", faktory.hello_timeout.as_ms()),
            ("faktory.fetch_wait", faktory.fetch_wait.as_ms()),
            ("faktory.reserve_min", faktory.reserve_min.as_ms()),
            ("faktory.batch_open_max", faktory.batch_open_max.as_ms()),
            ("spiderq.lends_max", self.spiderq.lends_max as u64),
            ("eventmq.heartbeat", eventmq.heartbeat.as_ms()),
            ("eventmq.jobs_max", eventmq.jobs_max.into()),
            ("eventmq.topics_max", eventmq.topics_max as u64),
            ("eventmq.topic_bytes_max", eventmq.topic_bytes_max.0),
            ("zmtp.handshake_timeout", zmtp.handshake_timeout.as_ms()),
            ("zmtp.handshakes_max", zmtp.handshakes_max as u64),
            ("zmtp.ping_timeout", zmtp.ping_timeout.as_ms()),
        ];
        match table.into_iter().find(|(_, value)| *value == 0) {
            Some(("data_dir", _)) => senseless("data_dir", "must not be empty"),
            Some((key, _)) => senseless(key, "must be more than 0"),
            None => Ok(()),
        }
    }

    fn check_log(&self) -> Result<(), Error> {
        logging::filter(&self.log.level).map(drop).or_else(|error| senseless("log.level", error))
    }

    fn check_times(&self) -> Result<(), Error> {
        let (timeout, abort) = (self.store.commit_timeout, self.store.commit_abort);
        if abort < timeout {
            return senseless("store.commit_abort", format!("{abort} is less than store.commit_timeout, {timeout}"));
        }
        Ok(())
    }

    /// The system accepts only whole seconds, up to a maximum.
    fn check_keepalive(&self) -> Result<(), Error> {
        const SECONDS_MAX: u64 = 32_767;
        const COUNT_MAX: u32 = 127;
        let server = &self.server;
        let times = [
            ("server.keepalive_idle", server.keepalive_idle.as_ms()),
            ("server.keepalive_interval", server.keepalive_interval.as_ms()),
        ];
        if let Some((key, _)) = times.iter().find(|(_, ms)| ms % 1000 != 0 || *ms > SECONDS_MAX * 1000) {
            return senseless(key, format!("must be whole seconds, at most {SECONDS_MAX}s"));
        }
        if server.keepalive_count > COUNT_MAX {
            return senseless("server.keepalive_count", format!("must be at most {COUNT_MAX}"));
        }
        Ok(())
    }

    fn check_sizes(&self) -> Result<(), Error> {
        let (out, frame, line) =
            (self.server.outbound_bytes_max, self.gearman.frame_bytes_max, self.faktory.line_bytes_max);
        let message = self.zmtp.message_bytes_max;
        let least = frame.0.max(line.0).max(message.0).saturating_add(OUTBOUND_SLACK_BYTES);
        within("faktory.line_bytes_max", line, FRAME_BYTES_MIN, FRAME_BYTES_CEILING as u64)?;
        within("zmtp.message_bytes_max", message, FRAME_BYTES_MIN, FRAME_BYTES_CEILING as u64)?;
        within("gearman.frame_bytes_max", frame, FRAME_BYTES_MIN, FRAME_BYTES_CEILING as u64)?;
        within("gearman.line_bytes_max", self.gearman.line_bytes_max, LINE_BYTES_MIN, LINE_BYTES_CEILING)?;
        within("limits.name_bytes_max", self.limits.name_bytes_max, 1, u32::MAX.into())?;
        // Otherwise the daemon could accept a job that it cannot send to any worker.
        let least_two = [("server.outbound_bytes_max", out), ("server.buffer_bytes_max", self.server.buffer_bytes_max)];
        match least_two.into_iter().find(|(_, size)| size.0 < least) {
            Some((key, size)) => {
                senseless(key, format!("{size}, but the largest packet, line or message needs {}", ByteSize(least)))
            }
            None => Ok(()),
        }
    }

    fn check_faktory(&self) -> Result<(), Error> {
        let faktory = &self.faktory;
        if !faktory.password.is_empty() && !faktory.password_file.as_os_str().is_empty() {
            return senseless("faktory.password", "must not be given with faktory.password_file");
        }
        match faktory.secret() {
            Err(error) => {
                return senseless(
                    "faktory.password_file",
                    format!("cannot read {}: {error}", faktory.password_file.display()),
                );
            }
            Ok(secret) if secret.is_empty() && !faktory.password_file.as_os_str().is_empty() => {
                return senseless("faktory.password_file", format!("{} is empty", faktory.password_file.display()));
            }
            Ok(_) => {}
        }
        if !faktory.reserve_min.as_ms().is_multiple_of(1000) || faktory.reserve_min.as_ms() > DAY_MS {
            return senseless("faktory.reserve_min", "must be whole seconds, at most 1d");
        }
        if faktory.description.chars().any(char::is_control) {
            return senseless("faktory.description", "must be one line of text");
        }
        throttle::check(&faktory.throttles).or_else(|reason| senseless("faktory.throttles", reason))?;
        recurring::wanted(self).map(drop)
    }

    fn check_gearman(&self) -> Result<(), Error> {
        if let Err(error) = self.gearman.prefix() {
            return senseless("gearman.handle_prefix", error);
        }
        let version = &self.gearman.version;
        match version.len() {
            0 => senseless("gearman.version", "must not be empty"),
            VERSION_BYTES_MAX.. => senseless("gearman.version", "must be shorter than 64 bytes"),
            _ if version.chars().any(char::is_control) => senseless("gearman.version", "must be one line of text"),
            _ => Ok(()),
        }
    }

    fn check_spiderq(&self) -> Result<(), Error> {
        if !PARTS_RANGE.contains(&self.zmtp.parts_max) {
            let (least, most) = (PARTS_RANGE.start(), PARTS_RANGE.end());
            return senseless("zmtp.parts_max", format!("{} is not between {least} and {most}", self.zmtp.parts_max));
        }
        self.spiderq.cycles().try_for_each(|cycle| {
            let (bytes, most) = (cycle.queue.len() as u64, self.limits.name_bytes_max);
            if bytes == 0 {
                return senseless("spiderq.queue", "must not be empty");
            }
            if bytes > most.0 {
                return senseless("spiderq.queue", format!("{bytes} bytes, limits.name_bytes_max is {most}"));
            }
            check_login(&cycle)
        })
    }

    fn check_eventmq(&self) -> Result<(), Error> {
        let eventmq = &self.eventmq;
        if eventmq.nudge_max < eventmq.nudge {
            let reason = format!("{} is less than eventmq.nudge, {}", eventmq.nudge_max, eventmq.nudge);
            return senseless("eventmq.nudge_max", reason);
        }
        let (bytes, most) = (eventmq.fallback.len() as u64, self.limits.name_bytes_max);
        if bytes > most.0 {
            return senseless("eventmq.fallback", format!("{bytes} bytes, limits.name_bytes_max is {most}"));
        }
        Ok(())
    }

    fn check_listeners(&self) -> Result<(), Error> {
        let mut seen = HashSet::new();
        let twice = self.listeners().find(|it| !it.address.is_any_port() && !seen.insert(it.address));
        if let Some(Listener { address, protocol, .. }) = twice {
            let key = match protocol {
                "faktory" => "faktory.listen",
                "spiderq" => "spiderq.listen",
                "eventmq" => "eventmq.listen",
                "eventmq-admin" => "eventmq.admin_listen",
                "eventmq-publish" => "eventmq.publish_listen",
                "eventmq-subscribe" => "eventmq.subscribe_listen",
                _ => "gearman.listen",
            };
            return senseless(key, format!("{address} is configured twice"));
        }
        match self.listeners().next() {
            Some(_) => Ok(()),
            None => senseless("gearman.listen", "no protocol has an address to listen on"),
        }
    }

    fn check_tls(&self) -> Result<(), Error> {
        let all = [("faktory", &self.faktory.tls), ("gearman", &self.gearman.tls)];
        all.into_iter()
            .try_for_each(|(protocol, tls)| tls::check(tls).map_err(|reason| Error::Tls { protocol, reason }))
    }
}

/// PLAIN needs a user and a password; each has a length field of one byte.
fn check_login(cycle: &CycleListener<'_>) -> Result<(), Error> {
    const BYTES_MAX: usize = 255;
    let named = !cycle.password_file.as_os_str().is_empty();
    if named && !cycle.password.is_empty() {
        return senseless("spiderq.password", "must not be given with password_file");
    }
    let secret = match cycle.secret() {
        Ok(secret) => secret,
        Err(error) => {
            let reason = format!("cannot read {}: {error}", cycle.password_file.display());
            return senseless("spiderq.password_file", reason);
        }
    };
    if named && secret.is_empty() {
        return senseless("spiderq.password_file", format!("{} is empty", cycle.password_file.display()));
    }
    match (cycle.user.len(), secret.len()) {
        (0, 0) => Ok(()),
        (0, _) => senseless("spiderq.user", "must be given with a password"),
        (_, 0) => senseless("spiderq.password", "must be given with user"),
        (BYTES_MAX.., _) => senseless("spiderq.user", "must be shorter than 255 bytes"),
        (_, BYTES_MAX..) => senseless("spiderq.password", "must be shorter than 255 bytes"),
        _ => Ok(()),
    }
}

fn within(key: &'static str, size: ByteSize, least: u64, most: u64) -> Result<(), Error> {
    if (least..=most).contains(&size.0) {
        return Ok(());
    }
    senseless(key, format!("{size} is not between {} and {}", ByteSize(least), ByteSize(most)))
}

fn senseless(key: &'static str, reason: impl ToString) -> Result<(), Error> {
    Err(Error::Senseless { key, reason: reason.to_string() })
}
