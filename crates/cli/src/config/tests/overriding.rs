//! Precedence of the file, the environment and the command line.

use std::ffi::OsString;

use windlass_config::{ByteSize, Error, Override, Period, variable};
use windlass_daemon::config::LogFormat;

use super::{keys, parse};
use crate::config::{Config, Durability};

fn environment(variables: &[(&str, &str)]) -> Result<Vec<Override>, Error> {
    Override::from_environment::<Config>(
        variables
            .iter()
            .map(|(name, value)| (OsString::from(name), OsString::from(value))),
    )
}

#[test]
fn the_environment_sets_any_key() {
    let overrides = environment(&[
        ("PATH", "/bin"),
        ("WINDLASS_DATA_DIR", "/data = x"),
        ("WINDLASS_DURABILITY", "interval"),
        ("WINDLASS_COMMIT_INTERVAL", "\"1s\""),
        ("WINDLASS_LOG_LEVEL", "info,windlass_net=debug"),
        ("WINDLASS_LIMITS_PAGE_MAX", "10_000"),
        ("WINDLASS_FAKTORY_REQUEUE_ON_WORKER_DEATH", "true"),
        ("WINDLASS_STORE_CACHE", "1048576"),
        ("WINDLASS_GEARMAN_LISTEN", "127.0.0.1:4730, unix:/run/x"),
        ("WINDLASS_GEARMAN_TLS_CLIENT_CA", "/etc/tls/ca.pem"),
    ]);
    let config = Config::default().with(overrides.unwrap()).unwrap();
    let mut expected = Config {
        data_dir: "/data = x".into(),
        ..Config::default()
    };
    expected.durability = Durability::Interval;
    expected.commit_interval = Period::from_secs(1);
    expected.log.level = "info,windlass_net=debug".to_owned();
    expected.limits.page_max = 10_000;
    expected.faktory.requeue_on_worker_death = true;
    expected.store.cache = ByteSize(1 << 20);
    expected.gearman.listen = vec![
        "127.0.0.1:4730".parse().unwrap(),
        "unix:/run/x".parse().unwrap(),
    ];
    expected.gearman.tls.client_ca = "/etc/tls/ca.pem".into();
    assert_eq!(config, expected);
}

#[test]
fn every_key_can_be_overridden() {
    for (key, default) in keys() {
        let text = default.to_string();
        let overrides = environment(&[(&variable(&key), &text)]).unwrap();
        assert_eq!(overrides.len(), 1, "{key}");
        assert_eq!(
            Config::default().with(overrides).unwrap(),
            Config::default(),
            "{key}"
        );
        let set = Override::from_assignment::<Config>(&format!("{key} = {text}")).unwrap();
        assert_eq!(
            Config::default().with([set]).unwrap(),
            Config::default(),
            "{key}"
        );
    }
}

#[test]
fn later_overrides_win() {
    let file =
        parse("[log]\nlevel = \"warn\"\nformat = \"json\"\n[server]\nthreads = 1\n").unwrap();
    let mut overrides = environment(&[
        ("WINDLASS_LOG_LEVEL", "error"),
        ("WINDLASS_SERVER_THREADS", "2"),
    ])
    .unwrap();
    overrides.push(Override::from_assignment::<Config>("server.threads=3").unwrap());
    overrides.push(Override::new::<Config>("--log-level", "log.level", "debug").unwrap());
    let config = file.with(overrides).unwrap();
    assert_eq!(
        (
            config.log.level.as_str(),
            config.log.format,
            config.server.threads
        ),
        ("debug", LogFormat::Json, 3)
    );
}

#[test]
fn lists_are_written_either_way() {
    let table: [(&str, &[&str]); 5] = [
        (
            "gearman.listen=[\"127.0.0.1:1\",\"unix:/a,b\"]",
            &["127.0.0.1:1", "unix:/a,b"],
        ),
        (
            "gearman.listen=127.0.0.1:1,unix:/x",
            &["127.0.0.1:1", "unix:/x"],
        ),
        ("gearman.listen=[::1]:1, [::1]:2", &["[::1]:1", "[::1]:2"]),
        ("gearman.listen=", &[]),
        ("gearman.listen=[]", &[]),
    ];
    for (text, expected) in table {
        let config =
            Override::from_assignment::<Config>(text).and_then(|set| Config::default().with([set]));
        match config {
            Ok(config) => {
                let listen: Vec<String> = config
                    .gearman
                    .listen
                    .iter()
                    .map(|it| it.address.to_string())
                    .collect();
                assert_eq!(listen, expected, "{text}");
            }
            Err(error) => panic!("{text}: {error}"),
        }
    }
}

#[test]
fn other_variables_are_ignored() {
    let overrides = environment(&[
        ("HOME", "/root"),
        ("WINDLASSES", "3"),
        ("WINDLASS_TEST_CRASHES", "1000"),
        ("WINDLASS_SIM_SEEDS", "1000"),
        ("WINDLASS_BENCH_RUNS", "3"),
        // Set by Kubernetes in every container, for services called `windlass` and `windlass-gearman`.
        ("WINDLASS_SERVICE_HOST", "10.0.0.1"),
        ("WINDLASS_SERVICE_PORT", "4730"),
        ("WINDLASS_SERVICE_PORT_GEARMAN", "4730"),
        ("WINDLASS_PORT", "tcp://10.0.0.1:4730"),
        ("WINDLASS_PORT_4730_TCP", "tcp://10.0.0.1:4730"),
        ("WINDLASS_PORT_4730_TCP_ADDR", "10.0.0.1"),
        ("WINDLASS_GEARMAN_SERVICE_HOST", "10.0.0.1"),
        ("WINDLASS_GEARMAN_PORT", "tcp://10.0.0.1:4730"),
        ("WINDLASS_GEARMAN_PORT_4730_TCP_PROTO", "tcp"),
    ]);
    assert_eq!(overrides.unwrap(), []);
}

#[test]
fn wrong_variables_are_named() {
    let table = [
        (
            "WINDLASS_GEARMAN_LISTENS",
            "x",
            "no key has this variable; the nearest is WINDLASS_GEARMAN_LISTEN",
        ),
        (
            "WINDLASS_LOGLEVEL",
            "info",
            "no key has this variable; the nearest is WINDLASS_LOG_LEVEL",
        ),
        (
            "WINDLASS_GEARMAN_PORT",
            "4730",
            "no key has this variable; the nearest is WINDLASS_GEARMAN_",
        ),
        (
            "WINDLASS_",
            "",
            "no key has this variable; the nearest is WINDLASS_",
        ),
        (
            "WINDLASS_DURABILITY",
            "maybe",
            "`maybe` is not one of `sync` and `interval`",
        ),
        (
            "WINDLASS_SERVER_THREADS",
            "many",
            "`many` is not a TOML integer",
        ),
        (
            "WINDLASS_SERVER_THREADS",
            "1\nlog.level = \"info\"",
            "`1\\nlog.level = \\\"info\\\"` is more than one value",
        ),
        ("WINDLASS_SERVER_THREADS", "", "`` is not a TOML integer"),
        (
            "WINDLASS_SERVER_THREADS",
            "\"2\"",
            "expected a whole number, not the string \"2\"",
        ),
        (
            "WINDLASS_GEARMAN_EXCEPTIONS",
            "yes",
            "`yes` is not a TOML boolean",
        ),
        (
            "WINDLASS_GEARMAN_LISTEN",
            "[4730]",
            "expected an address, or a table",
        ),
        (
            "WINDLASS_GEARMAN_LISTEN",
            "[\"4730\"",
            "bad address `[\"4730\"`: no port",
        ),
        (
            "WINDLASS_GEARMAN_LISTEN",
            "[4730 4731]",
            "`[4730 4731]` is not a TOML array",
        ),
        (
            "WINDLASS_GEARMAN_LISTEN",
            "4730",
            "bad address `4730`: no port",
        ),
        (
            "WINDLASS_SERVER_IDLE_TIMEOUT",
            "10",
            "`10` has no unit, expected",
        ),
    ];
    for (name, value, reason) in table {
        let outcome =
            environment(&[(name, value)]).and_then(|overrides| Config::default().with(overrides));
        let said = outcome.unwrap_err().to_string();
        assert!(
            said.starts_with(&format!("{name}: {reason}")),
            "{name}={value}: {said}"
        );
    }
}

#[cfg(unix)]
#[test]
fn a_variable_that_is_not_text_is_named() {
    use std::os::unix::ffi::OsStringExt as _;
    let variables = [(
        OsString::from("WINDLASS_DATA_DIR"),
        OsString::from_vec(b"/\xff".to_vec()),
    )];
    assert_eq!(
        Override::from_environment::<Config>(variables)
            .unwrap_err()
            .to_string(),
        "WINDLASS_DATA_DIR: the value is not UTF-8"
    );
}

#[test]
fn wrong_assignments_are_named() {
    let table = [
        (
            "gearman.listen",
            "--set gearman.listen: section.key=value expected",
        ),
        (
            "gearman.lisen=x",
            "--set gearman.lisen=x: unknown key `gearman.lisen`; the nearest is `gearman.listen`",
        ),
        (
            "gearman=x",
            "--set gearman=x: unknown key `gearman`; the nearest is `",
        ),
        ("=x", "--set =x: unknown key ``; the nearest is `"),
        (
            "faktory.pasword=x",
            "--set faktory.pasword=x: unknown key `faktory.pasword`; the nearest is `faktory.password`",
        ),
        (
            "faktory.password=\"hunter2",
            "--set faktory.password: the value is not a TOML string",
        ),
        (
            "spiderq.more=[{password=\"hunter2]",
            "--set spiderq.more: the value is not a TOML array",
        ),
        (
            "spiderq.more=[{user=\"u\",password=5}]",
            "--set spiderq.more: invalid value",
        ),
        (
            "spiderq.more=[{password=\"hunter2\",usr=\"u\"}]",
            "--set spiderq.more: unknown key `usr`",
        ),
        (
            "server.threads=-1",
            "--set server.threads=-1: expected a whole number, not the number -1",
        ),
    ];
    for (text, expected) in table {
        let outcome =
            Override::from_assignment::<Config>(text).and_then(|set| Config::default().with([set]));
        let said = outcome.unwrap_err().to_string();
        assert!(said.starts_with(expected), "{text}: {said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
}
