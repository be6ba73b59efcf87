//! Tests of the configuration: the document of defaults, values, and all errors.

mod overriding;

use std::collections::HashSet;
use std::path::Path;

use toml::{Table, Value};
use windlass_config::{ByteSize, Throttle, variable};
use windlass_daemon::config::{FileMode, LogFormat};
use windlass_eventmq::config::{Order, Scheduler};
use windlass_gearman::config::OnTimeout;

use super::*;

fn keys() -> Vec<(String, Value)> {
    windlass_config::keys::<Config>()
}

fn parse(text: &str) -> Result<Config, Error> {
    Config::parse(Path::new("windlass.toml"), text)
}

// ---- the document ----------------------------------------------------------------------------------------------------

#[test]
fn the_document_shows_every_key_at_its_default() {
    assert_eq!(parse(DEFAULTS).unwrap(), Config::default());
    let document: Table = DEFAULTS.parse().unwrap();
    let mut shown = HashSet::new();
    gather(&document, "", &mut shown);
    let known: HashSet<String> = keys().into_iter().map(|(key, _)| key).collect();
    assert_eq!(shown, known);
}

fn gather(section: &Table, prefix: &str, keys: &mut HashSet<String>) {
    for (name, value) in section {
        if let Value::Table(section) = value {
            gather(section, &format!("{prefix}{name}."), keys);
        } else {
            keys.insert(format!("{prefix}{name}"));
        }
    }
}

#[test]
fn the_document_explains_every_key() {
    let lines: Vec<&str> = DEFAULTS.lines().collect();
    for (number, line) in lines
        .iter()
        .enumerate()
        .filter(|(_, line)| line.contains(" = ") && !line.starts_with('#'))
    {
        assert!(
            lines[number - 1].starts_with("# "),
            "line {}: no comment explains {line}",
            number + 1
        );
    }
}

#[test]
fn the_defaults_make_sense() {
    Config::default().check().unwrap();
    assert_eq!(parse("").unwrap(), Config::default());
}

#[test]
fn a_written_configuration_reads_back_the_same() {
    let mut config = Config {
        durability: Durability::Interval,
        ..Config::default()
    };
    config.log.format = LogFormat::Json;
    config.gearman.on_timeout = OnTimeout::Requeue;
    config.gearman.listen = vec!["[::1]:1".parse().unwrap(), "unix:/run/x".parse().unwrap()];
    config.gearman.tls.certificate = "/etc/tls/chain.pem".into();
    config.limits.jobs_max = i64::MAX as u64;
    let entry = "schedule = \"@daily\"\njob = { type = \"T\", args = [1, 2.5, {a = []}], custom = {b = 2026-11-21T03:59:09Z} }";
    config.faktory.cron = vec![toml::from_str(entry).unwrap(); 2];
    config.limits.lease_max = Period::from_ms(1);
    config.server.unix_mode = FileMode(Some(0o660));
    let more = "listen = [\"ipc:///x\"]\nqueue = \"x\"\ndialect = \"1.4\"\nterminate = true\nrelease_on_disconnect = true\n\
                user = \"u\"\npassword = \"p\"\npassword_file = \"/p\"\n";
    config.spiderq.more = vec![
        toml::from_str(more).unwrap(),
        toml::from_str("listen = []\nqueue = \"y\"").unwrap(),
    ];
    config.eventmq.order = Order::Inform;
    config.eventmq.scheduler = Scheduler::External;
    config
        .job_protocols()
        .into_iter()
        .filter(|(name, ..)| *name == "eventmq")
        .for_each(|(.., lists)| lists.into_iter().for_each(Vec::clear));
    config.faktory.throttles.insert(
        "q".to_owned(),
        Throttle {
            worker: Some(1),
            ..Throttle::default()
        },
    );
    let rules = "codec = 'json'\nbridge = false\nretry = { count = -1, backoff = '1s' }\nbody_bytes_max = '1KiB'\n\
                 throttle = { worker = 1 }\nttl = '1d'\ndead = { ttl = '2d', max = 3 }\ndedup = { window = '1m', by = 'unique' }\naliases = { faktory = 'a', gearman = 'b', eventmq = 'c' }\n";
    config
        .queues
        .insert("a b".to_owned(), toml::from_str(rules).unwrap());
    let rules = "key = { args = '/0' }\n\
                 coalesce = { by = 'key', latest = false, quiet = '5s', at_most = '1m', while_running = 'join' }\n\
                 history = { keep = '90d', body = '4KiB', result = '1KiB', output = '2KiB' }";
    config
        .queues
        .insert("c".to_owned(), toml::from_str(rules).unwrap());
    let text = toml::to_string(&config).unwrap();
    assert_eq!(parse(&text).unwrap(), config, "{text}");
}

#[test]
fn every_key_has_its_own_variable() {
    let names: HashSet<String> = keys().iter().map(|(key, _)| variable(key)).collect();
    assert_eq!(names.len(), keys().len());
}

// ---- values ----------------------------------------------------------------------------------------------------------

#[test]
fn a_file_sets_its_keys_and_no_others() {
    let config = parse(
        "data_dir = \"/var/lib/windlass\"\ndurability = \"interval\"\ncommit_interval = \"1s\"\n\
         [limits]\njobs_bytes_max = \"2GiB\"\nlease_max = \"1h30m\"\n\
         [gearman]\nlisten = [\"0.0.0.0:4730\", \"unix:/run/windlass.sock\"]\non_timeout = \"requeue\"\n",
    )
    .unwrap();
    let mut expected = Config {
        data_dir: "/var/lib/windlass".into(),
        ..Config::default()
    };
    expected.durability = Durability::Interval;
    expected.commit_interval = Period::from_secs(1);
    expected.limits.jobs_bytes_max = ByteSize(2 << 30);
    expected.limits.lease_max = Period::from_ms(5_400_000);
    expected.gearman.listen = vec![
        "0.0.0.0:4730".parse().unwrap(),
        "unix:/run/windlass.sock".parse().unwrap(),
    ];
    expected.gearman.on_timeout = OnTimeout::Requeue;
    assert_eq!(config, expected);
    config.check().unwrap();
}

#[test]
fn limits_are_converted_to_the_engines_units() {
    let config = parse(
        "[limits]\njobs_max = 1\nmemory = \"1GiB\"\njobs_bytes_max = \"2KiB\"\nschedules_max = 12\nbatches_max = 13\nbatch_depth_max = 14\nbatch_ttl = \"15s\"\nqueues_max = 3\nabilities_max = 4\nname_bytes_max = 5\n\
         listeners_max = 6\nlease_max = \"7s\"\ndead_ttl = \"8d\"\ndead_max = 16\ndead_bytes_max = 17\nwake_patience = \"9ms\"\nbeat_timeout = \"10m\"\n\
         page_max = 11\nlosses_max = 16\nloss_pause = \"17s\"\n[server]\nreturn_grace = \"18s\"\n[faktory]\nrequeue_on_worker_death = true\n[history]\nkeep = \"2d\"\n",
    )
    .unwrap();
    let expected = windlass_engine::Limits {
        jobs_max: 1,
        jobs_bytes_max: 2048,
        memory_max: (704 << 20) - 10_000 * (3 << 10),
        schedules_max: 12,
        batches_max: 13,
        batch_depth_max: 14,
        batch_keep_ms: 15_000,
        queues_max: 3,
        abilities_max: 4,
        name_bytes_max: 5,
        listeners_max: 6,
        lease_ms_max: 7_000,
        dead_ms: 691_200_000,
        dead_max: 16,
        dead_bytes_max: 17,
        dead_memory_max: 256 << 20,
        wake_ms: 9,
        beat_ms: 600_000,
        return_ms: 18_000,
        requeue_dead_workers: true,
        losses_max: 16,
        loss_pause_ms: 17_000,
        page_max: 11,
        history: windlass_engine::HistoryRules {
            keep_ms: 172_800_000,
            ..windlass_engine::HistoryRules::default()
        },
    };
    assert_eq!(config.for_server().engine_limits(), expected);
    let quarter = parse("[limits]\njobs_bytes_max = \"2KiB\"\n")
        .unwrap()
        .for_server()
        .engine_limits()
        .dead_bytes_max;
    assert_eq!(quarter, 512);
}

#[test]
fn threads_default_to_one_per_two_cores() {
    assert!(Server::default().threads_or_default() >= 1);
    assert_eq!(
        Server {
            threads: 7,
            ..Server::default()
        }
        .threads_or_default(),
        7
    );
}

// ---- errors ----------------------------------------------------------------------------------------------------------

/// Whether a text is as expected, where an expected line may end in `…`.
fn is_like(text: &str, expected: &str) -> bool {
    let alike = |(line, expected): (&str, &str)| match expected.strip_suffix('…') {
        Some(start) => line.starts_with(start),
        None => line == expected,
    };
    text.lines().count() == expected.lines().count()
        && text.lines().zip(expected.lines()).all(alike)
}

#[test]
fn a_malformed_file_shows_where() {
    for case in include_str!("malformed.txt").split("== ").skip(1) {
        let (name, rest) = case.split_once('\n').unwrap();
        let (text, expected) = rest.split_once("\n--\n").unwrap();
        let said = parse(text).unwrap_err().to_string();
        assert!(
            is_like(&said, expected.trim_end()),
            "{name}:\n{said}\n\nexpected:\n{expected}"
        );
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let said = Config::read(Path::new("/no/such/file.toml"))
        .unwrap_err()
        .to_string();
    assert_eq!(
        said,
        "cannot read /no/such/file.toml: no such file or directory"
    );
}

#[test]
fn values_that_make_no_sense_are_refused() {
    for line in include_str!("senseless.txt")
        .lines()
        .filter(|line| line.contains(" -> "))
    {
        let (text, expected) = line.split_once(" -> ").unwrap();
        let said = parse(&text.replace(" ; ", "\n"))
            .unwrap()
            .check()
            .unwrap_err()
            .to_string();
        assert!(
            said.starts_with(expected) && !said.contains('\n'),
            "{text}: {said}"
        );
    }
}

#[test]
fn values_at_their_bounds_are_taken() {
    let table = [
        "gearman.listen = [\"127.0.0.1:0\", \"127.0.0.1:0\"]",
        "gearman.listen = [\"127.0.0.1:1\", \"127.0.0.2:1\", \"127.0.0.1:2\"]",
        "gearman.frame_bytes_max = \"1GiB\"\nserver.outbound_bytes_max = \"2GiB\"\nserver.buffer_bytes_max = \"2GiB\"",
        "server.outbound_bytes_max = \"65600KiB\"",
        "server.idle_timeout = 0\nserver.threads = 0",
        "server.keepalive_idle = \"32767s\"\nserver.keepalive_interval = \"32767s\"\nserver.keepalive_count = 127",
        "server.message_timeout = 0\nserver.message_rate_min = 0\nserver.connections_reserved = 0",
        "zmtp.ping_idle = 0\nzmtp.parts_max = 2",
        "[eventmq]\nheartbeat_timeout = 0\nnudge = 0\nnudge_max = 0\nlease = 0\ntimeout_grace = 0\nfallback = \"\"",
        "spiderq.listen = [\"tcp://*:5555\", \"ipc://./spiderq.ipc\"]\nspiderq.user = \"u\"\nspiderq.password = \"p\"",
        "spiderq.more = [{listen = [\"ipc:///x\"], queue = \"spiderq\", dialect = \"1.4\"}]",
        "store.commit_timeout = \"30s\"\nstore.commit_abort = \"30s\"",
        "gearman.handle_prefix = \"H:1234567890123456789012345678901234567890\"",
    ];
    for text in table {
        parse(text)
            .unwrap()
            .check()
            .unwrap_or_else(|error| panic!("{text}: {error}"));
    }
}

#[test]
fn a_bad_entry_of_cron_names_its_line() {
    let entry = |rest: &str| format!("[[faktory.cron]]\n{rest}\njob.type = \"T\"\n");
    let good = entry("schedule = \"CRON_TZ=Europe/Berlin 0 9 * * *\"");
    let table = [
        (
            "schedule = \"0 25 * * *\"",
            ":5:12: faktory.cron: entry 2 (T): schedule: hour: 25 is not between 0 and 23\n",
        ),
        (
            "schedule = \"@every 5 minutes\"",
            ":5:12: faktory.cron: entry 2 (T): schedule: `5 minutes` is not a duration such as 1h30m\n",
        ),
        (
            "timezone = \"Mars/Here\"\nschedule = \"@daily\"",
            ":6:12: faktory.cron: entry 2 (T): schedule: unknown time zone `Mars/Here`; expected a name such as Europe/Berlin\n",
        ),
        (
            "schedule = \"0 0 30 2 *\"",
            ":5:12: faktory.cron: entry 2 (T): schedule: there is no such day\n",
        ),
        (
            "schedule = \"@daily\"\njob.reserve_for = 90000",
            ":5:12: faktory.cron: entry 2 (T): jobs cannot be reserved for more than one day\n",
        ),
        (
            "schedule = 7",
            ":5:12: expected a string, not the number 7\n",
        ),
    ];
    for (rest, expected) in table {
        let said = parse(&(good.clone() + &entry(rest)))
            .unwrap_err()
            .to_string();
        assert!(said.contains(expected), "{rest}: {said}");
    }
}

#[test]
fn free_ports_keep_the_namespaces_of_the_addresses() {
    let at = |port| format!("{{ address = \"h:{port}\", namespace = \"shop\" }}");
    let text = format!("gearman.listen = [{}, {}, \"h:1\"]", at(2), at(3));
    let mut config = parse(&text).unwrap();
    config.use_free_ports();
    let listen = config.gearman.listen.iter();
    let found: Vec<_> = listen
        .map(|it| (it.address.to_string(), it.namespace.as_deref()))
        .collect();
    let free = || "127.0.0.1:0".to_owned();
    assert_eq!(found, [(free(), None), (free(), Some("shop"))]);
}
