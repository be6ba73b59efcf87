//! Which protocols are spoken where: from the configuration to the session each listener greets with.

use std::sync::Arc;

use windlass_faktory::session::{FaktorySession, Settings as FaktorySettings};
use windlass_gearman::session::{GearmanSession, OnTimeout, Settings};

use crate::clock;
use crate::config::{self, Config, ListenAddress, Tls};
use crate::failure::Failure;
use crate::listen::Protocol;
use crate::run::random_seed;
use crate::tls::Acceptor;

/// A protocol, and where it listens.
pub(crate) type Served<'a> = (Protocol, &'a [ListenAddress]);

/// Every protocol that is on.
pub(crate) fn all(config: &Config) -> Result<Vec<Served<'_>>, Failure> {
    let settings = Arc::new(faktory(config)?);
    let faktory = Protocol {
        name: "faktory",
        greet: Arc::new(move |info, _| {
            let dice = [random_seed(), random_seed()];
            Box::new(FaktorySession::new(Arc::clone(&settings), info, dice))
        }),
        tls: acceptor("faktory", &config.faktory.tls, config)?,
    };
    let settings = Arc::new(gearman(config)?);
    let gearman = Protocol {
        name: "gearman",
        greet: Arc::new(move |info, _| Box::new(GearmanSession::new(Arc::clone(&settings), info))),
        tls: acceptor("gearman", &config.gearman.tls, config)?,
    };
    Ok(vec![(faktory, &config.faktory.listen), (gearman, &config.gearman.listen)])
}

fn acceptor(protocol: &'static str, files: &Tls, config: &Config) -> Result<Option<Arc<Acceptor>>, Failure> {
    let acceptor = Acceptor::new(files, config.server.handshake_timeout.into());
    Ok(acceptor.map_err(|reason| config::Error::Tls { protocol, reason })?.map(Arc::new))
}

pub(crate) fn faktory(config: &Config) -> Result<FaktorySettings, Failure> {
    let faktory = &config.faktory;
    let password = faktory
        .secret()
        .map_err(|error| config::Error::Senseless { key: "faktory.password_file", reason: error.to_string() })?;
    Ok(FaktorySettings {
        line_bytes_max: faktory.line_bytes_max.bytes(),
        password,
        description: faktory.description.clone(),
        reserve_min_s: faktory.reserve_min.as_ms() / 1_000,
        fetch_wait_ms: faktory.fetch_wait.as_ms(),
        handshake_ms: faktory.hello_timeout.as_ms(),
        connections_max: if faktory.connections_max == 0 { usize::MAX } else { faktory.connections_max },
        memory_mb: resident_mb,
        clock_ns: clock::now_ns,
        ..FaktorySettings::new(clock::now())
    })
}

/// What this process has in memory, as the system counts it; 0 where it does not say.
fn resident_mb() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    (pages.unwrap_or_default() * rustix::param::page_size() as u64) >> 20
}

pub(crate) fn gearman(config: &Config) -> Result<Settings, Failure> {
    let gearman = &config.gearman;
    let prefix = gearman
        .prefix()
        .map_err(|error| config::Error::Senseless { key: "gearman.handle_prefix", reason: error.to_string() })?;
    Ok(Settings {
        frame_bytes_max: gearman.frame_bytes_max.bytes(),
        line_bytes_max: gearman.line_bytes_max.bytes(),
        version_text: gearman.version.clone(),
        verbosity_text: config.log.level.to_uppercase(),
        job_retries: gearman.job_retries,
        keep_failed: gearman.keep_failed,
        on_timeout: match gearman.on_timeout {
            config::OnTimeout::Fail => OnTimeout::Fail,
            config::OnTimeout::Requeue => OnTimeout::Requeue,
        },
        round_robin: gearman.round_robin,
        exceptions: gearman.exceptions,
        shutdown: gearman.shutdown,
        ..Settings::new(prefix)
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use windlass_gearman::wire::HandlePrefix;

    use super::*;

    fn settings(text: &str) -> Settings {
        gearman(&Config::parse(Path::new("windlass.toml"), text).unwrap()).unwrap()
    }

    #[test]
    fn every_key_of_gearman_reaches_its_sessions() {
        let text = "log.level = \"debug\"\n[gearman]\nframe_bytes_max = \"1MiB\"\nline_bytes_max = \"4KiB\"\njob_retries = 3\n\
                    keep_failed = false\non_timeout = \"requeue\"\nround_robin = true\nexceptions = true\nshutdown = true\n\
                    handle_prefix = \"H:here\"\nversion = \"2.0.0\"\n";
        let expected = Settings {
            frame_bytes_max: 1 << 20,
            line_bytes_max: 4096,
            handle_prefix: HandlePrefix::new(b"H:here").unwrap(),
            version_text: "2.0.0".to_owned(),
            verbosity_text: "DEBUG".to_owned(),
            pid: std::process::id(),
            job_retries: 3,
            keep_failed: false,
            on_timeout: OnTimeout::Requeue,
            round_robin: true,
            exceptions: true,
            shutdown: true,
        };
        assert_eq!(settings(text), expected);
    }

    #[test]
    fn the_defaults_are_those_of_a_session() {
        let settings = settings("");
        let expected = Settings { version_text: "1.1.20".to_owned(), ..Settings::new(settings.handle_prefix) };
        assert_eq!(settings, expected);
    }
}
