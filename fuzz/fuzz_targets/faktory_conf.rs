//! Any text as the files in Faktory's `conf.d`: it is applied, ignored with a warning, or refused with a reason. A
//! client could push each of its scheduled jobs.
#![no_main]
#![allow(
    dead_code,
    unreachable_pub,
    reason = "the files of the binary that are included have more in them than this needs"
)]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/cli/src/faktory/conf.rs"]
mod conf;
#[path = "../../crates/cli/src/foreign.rs"]
mod foreign;
#[path = "../../crates/cli/src/faktory/options.rs"]
mod options;

fuzz_target!(|text: &str| {
    let Ok(table) = text.parse::<toml::Table>() else {
        return;
    };
    match conf::Conf::of(&table) {
        Ok(conf) => {
            for entry in &conf.cron {
                if let Ok(unit) = entry.job.work_unit() {
                    let json: serde_json::Value =
                        serde_json::from_str(&unit).expect("a work unit is JSON");
                    assert_eq!(json["jobtype"], entry.job.jobtype.as_str());
                }
            }
            assert!(
                conf.warnings
                    .iter()
                    .all(|warning| warning.starts_with("conf.d: ")),
                "{:?}",
                conf.warnings
            );
        }
        Err(wrong) => {
            assert!(!wrong.reason.is_empty());
            let entries = table
                .get("cron")
                .and_then(toml::Value::as_array)
                .map_or(0, Vec::len);
            assert!(
                wrong.entry.is_none_or(|entry| entry < entries),
                "{}: no such entry",
                wrong.reason
            );
        }
    }
});
