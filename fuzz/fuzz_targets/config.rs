//! Any text as a configuration, with keys set over it as `--set` and the environment do: it is read or refused in words, and what
//! was read is the same when it is written and read again.
#![no_main]

use std::ffi::OsString;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use windlass_server::config::{self, Config, Override};

/// Between the file and each assignment.
const CUT: char = '\u{1f}';

fuzz_target!(|text: &str| {
    let mut parts = text.split(CUT);
    let file = parts.next().unwrap_or_default();
    let config = match Config::parse(Path::new("windlass.toml"), file) {
        Ok(config) => config,
        Err(why) => return assert!(!why.to_string().is_empty()),
    };
    let mut overrides = Vec::new();
    for (assignment, number) in parts.zip(0..8) {
        let set = if number % 2 == 0 {
            Override::from_assignment(assignment).map(|set| vec![set])
        } else {
            let (name, value) = assignment.split_once('=').unwrap_or((assignment, ""));
            Override::from_environment([(OsString::from(format!("WINDLASS_{name}")), OsString::from(value))])
        };
        match set {
            Ok(set) => overrides.extend(set),
            Err(why) => assert!(!why.to_string().is_empty()),
        }
    }
    let Ok(config) = config.with(overrides) else { return };
    // Files that are named are looked at, and there are files without an end.
    if !config.faktory.tls.is_on() && !config.gearman.tls.is_on() {
        let _ = config.check().map_err(|why| assert!(!why.to_string().is_empty()));
    }
    let _ = config.engine_limits();
    let _ = config::aliases(&config.queues);
    assert!(config.spiderq.cycles().count() > 0, "the first cycle is always there");
    // Some numbers of TOML's are not equal to themselves.
    let Ok(written) = toml::to_string(&config) else { return };
    let again = Config::parse(Path::new("again"), &written).unwrap_or_else(|why| panic!("{written}\n{why}"));
    assert_eq!(toml::to_string(&again).ok(), Some(written));
});
