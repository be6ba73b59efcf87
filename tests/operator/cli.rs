//! The command line from outside: the output of the built binary and its exit code.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs the binary with only the given environment variables.
fn windlass(args: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command
        .args(args)
        .env_clear()
        .envs(variables.iter().copied())
        .stdin(Stdio::null());
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Its standard output, after checking that it exited with 0.
fn printed(args: &[&str]) -> String {
    let output = windlass(args, &[]);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{args:?}: {}",
        text(&output.stderr)
    );
    assert_eq!(text(&output.stderr), "", "{args:?}");
    text(&output.stdout).to_owned()
}

fn write(dir: &Path, toml: &str) -> String {
    let path = dir.join("windlass.toml");
    fs::write(&path, toml).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn version() {
    assert_eq!(
        printed(&["--version"]),
        concat!("windlass ", env!("CARGO_PKG_VERSION"), "\n")
    );
}

#[test]
fn help_needs_no_manual() {
    let help = printed(&["--help"]);
    let sections = [
        "Usage:",
        "Commands:",
        "Options:",
        "Examples:",
        "Environment:",
        "Signals:",
        "Exit codes:",
    ];
    let words = [
        "serve",
        "check",
        "config",
        "gearmand",
        "import",
        "--set",
        "--data-dir",
        "SIGTERM",
        "WINDLASS_<SECTION>_<KEY>",
        "4730",
    ];
    for expected in sections.iter().chain(&words) {
        assert!(help.contains(expected), "{expected} is missing:\n{help}");
    }
    let short = printed(&["-h"]);
    assert!(
        short.lines().count() < help.lines().count() && short.contains("windlass --help"),
        "{short}"
    );
    assert!(printed(&["check", "--help"]).contains("--config <FILE>"));
}

#[test]
fn the_printed_configuration_is_valid() {
    let dir = tempfile::tempdir().unwrap();
    let defaults = printed(&["config"]);
    assert_eq!(defaults, include_str!("../../config/windlass.toml"));
    let path = write(dir.path(), &defaults);
    assert_eq!(printed(&["check", "-c", &path]), printed(&["check"]));
}

#[test]
fn check_prints_what_would_be_served() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(
        printed(&["check"]),
        "ok\nlisten   faktory localhost:7419\nlisten   gearman localhost:4730\n\
         listen   spiderq localhost:5555 (queue spiderq)\nlisten   eventmq localhost:47291\n\
         listen   eventmq localhost:47290\nlisten   eventmq-admin localhost:47293\n\
         listen   eventmq-publish localhost:47298\nlisten   eventmq-subscribe localhost:47299\n\
         listen   http localhost:7420\n\
         data     windlass-data (sync; new)\n"
    );
    let listen = "[http]\nlisten = [\"unix:/run/h\"]\n[faktory]\nlisten = []\n[gearman]\nlisten = [\"[0::1]:4730\", { address = \"unix:/run/windlass.sock\", namespace = \"shop\" }]\n\
                  [namespaces.shop]\n[spiderq]\nlisten = [\"tcp://*:1\"]\nmore = [{listen = [\"ipc:///run/b\"], queue = \"b\"}]\n\
                  [eventmq]\nlisten = [\"ipc:///run/e\"]\nadmin_listen = []\npublish_listen = []\nsubscribe_listen = [\"127.0.0.1:2\"]\n";
    let path = write(dir.path(), &format!("durability = \"interval\"\n{listen}"));
    let expected = "ok\nlisten   gearman [::1]:4730\nlisten   gearman unix:/run/windlass.sock (namespace shop)\n\
                    listen   spiderq 0.0.0.0:1 (queue spiderq)\nlisten   spiderq unix:/run/b (queue b)\n\
                    listen   eventmq unix:/run/e\nlisten   eventmq-subscribe 127.0.0.1:2\n\
                    listen   http unix:/run/h\n";
    let data = dir.path().join("data");
    assert_eq!(
        printed(&[
            "check",
            "--config",
            &path,
            "--data-dir",
            data.to_str().unwrap()
        ]),
        format!(
            "{expected}data     {} (interval, 100ms; new)\n",
            data.display()
        )
    );
    assert!(!data.exists(), "nothing is started");
}

#[test]
fn the_command_line_overrides_the_environment() {
    let variables = [
        ("WINDLASS_GEARMAN_LISTEN", "127.0.0.1:1,127.0.0.1:2"),
        ("WINDLASS_FAKTORY_LISTEN", ""),
        ("WINDLASS_SPIDERQ_LISTEN", ""),
        ("WINDLASS_EVENTMQ_LISTEN", ""),
        ("WINDLASS_EVENTMQ_ADMIN_LISTEN", ""),
        ("WINDLASS_EVENTMQ_PUBLISH_LISTEN", ""),
        ("WINDLASS_EVENTMQ_SUBSCRIBE_LISTEN", ""),
        ("WINDLASS_HTTP_LISTEN", ""),
    ];
    let output = windlass(
        &["check", "--set", "data_dir=target/set"],
        &[
            variables.as_slice(),
            &[("WINDLASS_DATA_DIR", "/environment")],
        ]
        .concat(),
    );
    let expected = "ok\nlisten   gearman 127.0.0.1:1\nlisten   gearman 127.0.0.1:2\ndata     target/set (sync; new)\n";
    assert_eq!(text(&output.stdout), expected, "{}", text(&output.stderr));
}

#[test]
fn mistakes_give_one_line_and_exit_2() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), "data_dir = \"x\"\nno_such_key = 1\n");
    let spot = format!("{path}:2:1: unknown key `no_such_key`; the nearest is ");
    let table: [(&[&str], &str); 11] = [
        (&["swerve"], "unrecognized subcommand 'swerve'"),
        (
            &["serve", "--sett", "x"],
            "unexpected argument '--sett' found",
        ),
        (&["config", "-c", "x"], "unexpected argument '-c' found"),
        (
            &["serve", "--durability", "maybe"],
            "invalid value 'maybe' for '--durability <WHEN>'",
        ),
        (
            &["serve", "-c", "/no/such/file"],
            "cannot read /no/such/file: ",
        ),
        (
            &["check", "-c", "/no/such/file"],
            "cannot read /no/such/file: ",
        ),
        (&["serve", "-c", &path], &spot),
        (&["check", "-c", &path], &spot),
        (&["-c", &path], &spot),
        (
            &["check", "--set", "limits.jobs_max=0"],
            "limits.jobs_max: must be more than 0",
        ),
        (&["--log-level", "loud"], "log.level: `loud` is not one of "),
    ];
    for (args, reason) in table {
        assert_refused(&windlass(args, &[]), reason);
    }
    let table = [
        (
            "WINDLASS_LOGLEVEL",
            "info",
            "no key has this variable; the nearest is WINDLASS_LOG_LEVEL",
        ),
        (
            "WINDLASS_GEARMAN_LISTEN",
            "4730",
            "bad address `4730`: no port",
        ),
    ];
    for (name, value, reason) in table {
        assert_refused(
            &windlass(&[], &[(name, value)]),
            &format!("{name}: {reason}"),
        );
    }
}

fn assert_refused(output: &Output, reason: &str) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{reason}: {said}");
    assert!(
        said.starts_with(&format!("windlass: {reason}")),
        "{reason}: {said}"
    );
    assert_eq!(text(&output.stdout), "", "{reason}");
}

#[test]
fn carets_point_at_the_mistake() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), "[server]\nidle_timeout = 10\n");
    let expected = format!(
        "windlass: {path}:2:16: `10` has no unit, expected a number of ms, s, m, h or d, as in \"10s\" or \"1h30m\"\n  \
         |\n2 | idle_timeout = 10\n  |                ^^\n"
    );
    assert_eq!(
        text(&windlass(&["serve", "-c", &path], &[]).stderr),
        expected
    );
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    let mut child = command
        .arg("config")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
}

#[test]
fn completions_and_manual_pages_have_every_command() {
    let help = printed(&["-h"]);
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    let (commands, _) = commands.split_once("\n\n").unwrap();
    let lines = commands
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names: Vec<&str> = lines
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(names.len() > 25, "{names:?}");
    let dir = tempfile::tempdir().unwrap();
    let man = dir.path().join("man");
    printed(&["man", man.to_str().unwrap()]);
    let offered = printed(&["complete", "--", ""]);
    let offered: Vec<&str> = offered
        .lines()
        .filter_map(|line| line.split('\t').next())
        .collect();
    for name in &names {
        assert!(offered.contains(name), "{name}: {offered:?}");
    }
    for shell in ["bash", "fish", "zsh"] {
        assert!(
            printed(&["completions", shell]).contains(" complete -- "),
            "{shell}"
        );
    }
    for name in &names {
        let page = fs::read_to_string(man.join(format!("windlass-{name}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{name}");
    }
    let page = fs::read_to_string(man.join("windlass.1")).unwrap();
    assert!(
        page.contains("SIGUSR2") && page.contains("windlass\\-drain"),
        "{page}"
    );
}

#[test]
fn codes_are_explained() {
    assert!(printed(&["explain", "3"]).contains("with its key"));
    assert!(printed(&["explain", "unserved"]).contains("bridge.queues"));
    assert!(printed(&["explain"]).lines().count() > 30);
    assert_eq!(windlass(&["explain", "99"], &[]).status.code(), Some(1));
}

/// Whatever is wrong, the exit code is one that Nagios knows, and standard output has the reason.
#[test]
fn a_live_check_ends_as_a_plugin_of_nagios() {
    let mistakes: [&[&str]; 3] = [
        &["check", "--live", "--bogus"],
        &["--age-warning", "soon", "check", "--live"],
        &["check", "--live", "-c", "/nowhere"],
    ];
    for args in mistakes {
        let output = windlass(args, &[]);
        assert_eq!(output.status.code(), Some(3), "{args:?}: {output:?}");
        assert!(
            text(&output.stdout).starts_with("WINDLASS UNKNOWN - "),
            "{args:?}: {output:?}"
        );
        assert_eq!(
            text(&output.stdout).lines().count(),
            1,
            "{args:?}: {output:?}"
        );
    }
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let output = windlass(
        &[
            "check",
            "--live",
            "--json",
            "--data-dir",
            data.to_str().unwrap(),
        ],
        &[],
    );
    assert_eq!(output.status.code(), Some(2), "no daemon: {output:?}");
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&said["verdict"], &said["code"]),
        (&"CRITICAL".into(), &2.into()),
        "{said}"
    );
    assert!(
        said["text"].as_str().unwrap().contains("no daemon answers"),
        "{said}"
    );
    assert_eq!(
        windlass(&["check", "--bogus"], &[]).status.code(),
        Some(2),
        "a check that is no plugin"
    );
}
