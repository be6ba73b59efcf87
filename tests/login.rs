//! Logins and roles at the HTTP door, and the audit log.
#![cfg(test)]

mod common;

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::http::{Answer, Http};
use common::wait_until;
use serde_json::Value;
use windlass_testkit::daemon::Daemon;

const ROLES: [&str; 3] = ["read", "operate", "admin"];

/// Runs a command that prints a line for the file. Returns the line and what is on standard error.
fn new_login(kind: &str, name: &str, role: &str, password: &str) -> (String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.args([kind, name, "--role", role]).env_clear();
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A token needs no password.
    let _ = child.stdin.take().unwrap().write_all(password.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    assert!(output.status.success(), "{}", text(output.stderr));
    (text(output.stdout), text(output.stderr).trim().to_owned())
}

/// A daemon with a user of each role, whose password is the role's name doubled, and with a token. Returns the token.
fn started(dir: &Path) -> (Daemon, String) {
    let users = ROLES.map(|role| new_login("password", role, role, &format!("{role}-{role}\n")).0);
    let (line, token) = new_login("token", "ci", "operate", "");
    std::fs::write(dir.join("logins"), users.concat() + &line).unwrap();
    let keys = format!(
        "[http]\nlisten = [\"127.0.0.1:0\"]\nlogins = {:?}\naudit = {:?}\n",
        dir.join("logins"),
        dir.join("audit")
    );
    (common::daemon(dir).set(&keys).start(), token)
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

fn of_role(role: &str) -> String {
    basic(role, &format!("{role}-{role}"))
}

fn asked(http: Http, login: &str, request: &str) -> Answer {
    let (method, path) = request.split_once(' ').unwrap();
    http.request(method, path, &[("Authorization", login)], b"")
}

#[test]
fn each_role_may_do_what_it_may() {
    let dir = tempfile::tempdir().unwrap();
    let (daemon, token) = started(dir.path());
    let http = Http(daemon.address("http"));
    let bearer = format!("Bearer {token}");
    assert_eq!(asked(http, &bearer, "GET /api/v1/queues").status, 200);
    let table = [
        ("GET /api/v1/status", [200, 200, 200]),
        ("GET /metrics", [200, 200, 200]),
        ("GET /stats", [200, 200, 200]),
        ("GET /api/v1/openapi.json", [200, 200, 200]),
        ("POST /api/v1/queues/q/jobs", [403, 201, 201]),
        ("GET /api/v1/jobs", [200, 200, 200]),
        ("GET /api/v1/jobs/1", [200, 200, 200]),
        ("GET /api/v1/jobs/1/body", [200, 200, 200]),
        ("POST /api/v1/jobs/1/retry", [403, 409, 409]),
        ("POST /api/v1/jobs/retry?queue=q", [403, 200, 200]),
        ("POST /api/v1/queues/q/pause", [403, 200, 200]),
        ("POST /api/v1/queues/q/resume", [403, 200, 200]),
        ("POST /api/v1/queues/q/take", [403, 200, 200]),
        ("DELETE /api/v1/jobs/99", [403, 403, 404]),
        ("POST /api/v1/jobs/cancel?queue=q", [403, 403, 200]),
        ("POST /api/v1/queues/q/clear", [403, 403, 200]),
        ("GET /nothing", [404, 404, 404]),
    ];
    for (request, expected) in table {
        for (role, expected) in ROLES.into_iter().zip(expected) {
            let answer = asked(http, &of_role(role), request);
            assert_eq!(answer.status, expected, "{request} as {role}: {answer:?}");
            if expected == 403 {
                assert_eq!(answer.json()["code"], "forbidden");
                assert_eq!(answer.header("content-type"), Some("application/problem+json"));
            }
        }
        for (path, login) in [(request, ""), (request, &*basic("read", "wrong"))] {
            let answer = asked(http, login, path);
            // Guessing ends.
            assert!(matches!(answer.status, 401 | 429), "{path}: {answer:?}");
        }
        let none = asked(http, "", request);
        assert_eq!(none.json()["code"], "login_required");
        assert!(none.header("www-authenticate").is_some_and(|scheme| scheme.starts_with("Basic ")));
    }
    assert_eq!(asked(http, &bearer, "POST /api/v1/queues/q/jobs").status, 201);
    assert_eq!(asked(http, &bearer, "POST /api/v1/jobs/cancel?queue=q").status, 403);
    for open in ["/livez", "/readyz", "/health"] {
        assert_eq!(http.get(open).status, 200, "{open}");
    }
    let log = daemon.log_text();
    assert!(!log.contains("argon2") && !log.contains(&token) && !log.contains("admin-admin"), "{log}");
}

#[test]
fn changes_are_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let (daemon, _) = started(dir.path());
    let http = Http(daemon.address("http"));
    for _ in 0..3 {
        assert_eq!(asked(http, &of_role("operate"), "POST /api/v1/queues/q/jobs").status, 201);
    }
    asked(http, &of_role("admin"), "GET /api/v1/jobs");
    asked(http, &of_role("operate"), "POST /api/v1/jobs/kill?queue=q");
    asked(http, &of_role("read"), "POST /api/v1/queues/q/clear");
    let line = ["status", "queues", "jobs", "pause"].map(|command| {
        let mut windlass = Command::new(env!("CARGO_BIN_EXE_windlass"));
        windlass.arg(command).args((command == "pause").then_some("q"));
        windlass.arg("--data-dir").arg(dir.path().join("data")).env_clear().output().unwrap().status.success()
    });
    assert_eq!(line, [true; 4], "the owner of the data directory needs no login");
    let text = std::fs::read_to_string(dir.path().join("audit")).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let shown: Vec<String> = lines
        .iter()
        .map(|line| {
            format!("{} {} {} {} {}", line["who"], line["change"], line["parameters"], line["status"], line["changed"])
        })
        .collect();
    let expected = [
        r#""operate" "POST /api/v1/jobs/kill" "queue=q" 200 3"#,
        r#""read" "POST /api/v1/queues/q/clear" "" 403 null"#,
        r#""operator.sock" "POST /api/v1/queues/q/pause" "" 200 null"#,
    ];
    assert_eq!(shown, expected);
    assert!(lines[0]["at"].is_string() && lines[0]["address"].as_str().unwrap().starts_with("127.0.0.1:"), "{text}");
}

#[test]
fn the_file_is_read_again_and_commands_log_in() {
    let dir = tempfile::tempdir().unwrap();
    let (daemon, token) = started(dir.path());
    let (http, url) = (Http(daemon.address("http")), format!("http://{}", daemon.address("http")));
    let windlass = |secret: &str| {
        std::fs::write(dir.path().join("secret"), secret).unwrap();
        let mut windlass = Command::new(env!("CARGO_BIN_EXE_windlass"));
        windlass.args(["status", "--url", &url, "--login"]).arg(dir.path().join("secret"));
        windlass.env_clear().output().unwrap().status.success()
    };
    assert!(windlass(&format!("{token}\n")) && windlass("read:read-read") && !windlass("read:read"));
    let path = dir.path().join("logins");
    let rest = std::fs::read_to_string(&path)
        .unwrap()
        .lines()
        .filter(|line| !line.contains("ci"))
        .collect::<Vec<_>>()
        .join("\n");
    std::fs::write(&path, rest).unwrap();
    wait_until("the token is gone", || asked(http, &format!("Bearer {token}"), "GET /api/v1/status").status != 200);
    assert_eq!(asked(http, &of_role("read"), "GET /api/v1/status").status, 200);
}

#[test]
fn guessing_stalls_no_one() {
    let dir = tempfile::tempdir().unwrap();
    let (daemon, _) = started(dir.path());
    let http = Http(daemon.address("http"));
    assert_eq!(asked(http, &of_role("read"), "GET /api/v1/status").status, 200);
    let guesses: Vec<_> = (0..20)
        .map(|n| {
            thread::spawn(move || asked(http, &basic("admin", &format!("guess-{n}")), "GET /api/v1/status").status)
        })
        .collect();
    let mut longest = Duration::ZERO;
    while guesses.iter().any(|guess| !guess.is_finished()) {
        let begun = Instant::now();
        assert_eq!(asked(http, &of_role("read"), "GET /api/v1/status").status, 200);
        longest = longest.max(begun.elapsed());
    }
    assert!(longest < Duration::from_millis(500), "{longest:?}");
    let mut statuses: Vec<u16> = guesses.into_iter().map(|guess| guess.join().unwrap()).collect();
    statuses.sort_unstable();
    assert!(statuses.contains(&401) && statuses.iter().all(|status| matches!(status, 401 | 429 | 503)), "{statuses:?}");
    assert_eq!(
        asked(http, &basic("admin", "admin-admin"), "GET /api/v1/status").status,
        429,
        "even if it is right now"
    );
}
