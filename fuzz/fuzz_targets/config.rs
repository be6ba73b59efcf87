//! Any text as a configuration, with keys overridden as by `--set` and the environment. It is parsed or refused with a
//! reason. A parsed configuration is the same after it was written and parsed again.
#![no_main]
#![allow(
    dead_code,
    unreachable_pub,
    reason = "the file of the binary that is included has more in it than this needs"
)]

use std::ffi::OsString;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use windlass_config::Override;

use crate::config::Config;

#[path = "../../crates/cli/src/config/mod.rs"]
mod config;

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
            Override::from_assignment::<Config>(assignment).map(|set| vec![set])
        } else {
            let (name, value) = assignment.split_once('=').unwrap_or((assignment, ""));
            Override::from_environment::<Config>([(
                OsString::from(format!("WINDLASS_{name}")),
                OsString::from(value),
            )])
        };
        match set {
            Ok(set) => overrides.extend(set),
            Err(why) => assert!(!why.to_string().is_empty()),
        }
    }
    let Ok(config) = config.with(overrides) else {
        return;
    };
    // Named files are opened, and some files are endless.
    if !config.faktory.tls.is_on() && !config.gearman.tls.is_on() {
        let _ = config
            .check()
            .map_err(|why| assert!(!why.to_string().is_empty()));
    }
    let _ = config.for_server().engine_limits();
    assert!(
        config.spiderq.cycles().count() > 0,
        "the first cycle always exists"
    );
    // Some of TOML's numbers (NaN) do not equal themselves.
    let Ok(written) = toml::to_string(&config) else {
        return;
    };
    let again = Config::parse(Path::new("again"), &written)
        .unwrap_or_else(|why| panic!("{written}\n{why}"));
    assert_eq!(toml::to_string(&again).ok(), Some(written));
});
