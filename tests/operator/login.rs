//! Logins and roles at the HTTP door, and the audit log.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use windlass_testkit::daemon::Daemon;

use crate::common;
use crate::common::http::{Answer, Http};
use crate::common::wait_until;

const ROLES: [&str; 3] = ["read", "operate", "admin"];

/// Runs a command that prints a line for the file. Returns the line and what is on standard error.
pub fn new_login(kind: &str, name: &str, role: &str, password: &str) -> (String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.args([kind, name, "--role", role]).env_clear();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A token needs no password.
    let _ = child.stdin.take().unwrap().write_all(password.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    assert!(output.status.success(), "{}", text(output.stderr));
    (text(output.stdout), text(output.stderr).trim().to_owned())
}

/// A daemon with a user of each role, whose password is the role's name doubled, with a token, and with these settings. Returns
/// the token.
pub fn started(dir: &Path, settings: &str) -> (Daemon, String) {
    let users = ROLES.map(|role| new_login("password", role, role, &format!("{role}-{role}\n")).0);
    let (line, token) = new_login("token", "ci", "operate", "");
    std::fs::write(dir.join("logins"), users.concat() + &line).unwrap();
    let keys = format!(
        "[http]\nlisten = [\"127.0.0.1:0\"]\nlogins = {:?}\naudit = {:?}\n",
        dir.join("logins"),
        dir.join("audit")
    );
    (common::daemon(dir).set(settings).set(&keys).start(), token)
}

pub fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

pub fn of_role(role: &str) -> String {
    basic(role, &format!("{role}-{role}"))
}

pub fn asked(http: Http, login: &str, request: &str) -> Answer {
    let (method, path) = request.split_once(' ').unwrap();
    http.request(method, path, &[("Authorization", login)], b"")
}

#[test]
fn each_role_may_do_what_it_may() {
    let dir = tempfile::tempdir().unwrap();
    let (daemon, token) = started(dir.path(), "");
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
        ("PUT /api/v1/queues/q/limit?jobs=9", [403, 200, 200]),
        ("DELETE /api/v1/queues/q", [403, 403, 204]),
        ("GET /nothing", [404, 404, 404]),
    ];
    for (request, expected) in table {
        for (role, expected) in ROLES.into_iter().zip(expected) {
            let answer = asked(http, &of_role(role), request);
            assert_eq!(answer.status, expected, "{request} as {role}: {answer:?}");
            if expected == 403 {
                assert_eq!(answer.json()["code"], "forbidden");
                assert_eq!(
                    answer.header("content-type"),
                    Some("application/problem+json")
                );
            }
        }
        for (path, login) in [(request, ""), (request, &*basic("read", "wrong"))] {
            let answer = asked(http, login, path);
            // Guessing ends.
            assert!(matches!(answer.status, 401 | 429), "{path}: {answer:?}");
        }
        let none = asked(http, "", request);
        assert_eq!(none.json()["code"], "login_required");
        assert!(
            none.header("www-authenticate")
                .is_some_and(|scheme| scheme.starts_with("Basic "))
        );
    }
    assert_eq!(
        asked(http, &bearer, "POST /api/v1/queues/q/jobs").status,
        201
    );
    assert_eq!(
        asked(http, &bearer, "POST /api/v1/jobs/cancel?queue=q").status,
        403
    );
    for open in ["/livez", "/readyz", "/health"] {
        assert_eq!(http.get(open).status, 200, "{open}");
    }
    let log = daemon.log_text();
    assert!(
        !log.contains("argon2") && !log.contains(&token) && !log.contains("admin-admin"),
        "{log}"
    );
}

#[test]
fn changes_are_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let (daemon, _) = started(dir.path(), "");
    let http = Http(daemon.address("http"));
    for _ in 0..3 {
        assert_eq!(
            asked(http, &of_role("operate"), "POST /api/v1/queues/q/jobs").status,
            201
        );
    }
    asked(http, &of_role("admin"), "GET /api/v1/jobs");
    asked(http, &of_role("operate"), "POST /api/v1/jobs/kill?queue=q");
    asked(http, &of_role("read"), "POST /api/v1/queues/q/clear");
    let line = ["status", "queues", "jobs", "pause"].map(|command| {
        let mut windlass = Command::new(env!("CARGO_BIN_EXE_windlass"));
        windlass
            .arg(command)
            .args((command == "pause").then_some("q"));
        windlass
            .arg("--data-dir")
            .arg(dir.path().join("data"))
            .env_clear()
            .output()
            .unwrap()
            .status
            .success()
    });
    assert_eq!(
        line, [true; 4],
        "the owner of the data directory needs no login"
    );
    let text = std::fs::read_to_string(dir.path().join("audit")).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let shown: Vec<String> = lines
        .iter()
        .map(|line| {
            let who = line["who"].to_string();
            let who = who.strip_prefix(&format!("\"{} ", user())).unwrap_or(&who);
            format!(
                "{who} {} {} {} {}",
                line["change"], line["parameters"], line["status"], line["changed"]
            )
        })
        .collect();
    let expected = [
        r#""operate" "POST /api/v1/jobs/kill" "queue=q" 200 3"#,
        r#""read" "POST /api/v1/queues/q/clear" "" 403 null"#,
        r#"(operator.sock)" "POST /api/v1/queues/q/pause" "" 200 null"#,
    ];
    assert_eq!(shown, expected);
    assert!(
        lines[0]["at"].is_string()
            && lines[0]["address"]
                .as_str()
                .unwrap()
                .starts_with("127.0.0.1:"),
        "{text}"
    );
}

#[test]
fn the_file_is_read_again_and_commands_log_in() {
    let dir = tempfile::tempdir().unwrap();
    let (daemon, token) = started(dir.path(), "");
    let (http, url) = (
        Http(daemon.address("http")),
        format!("http://{}", daemon.address("http")),
    );
    let windlass = |secret: &str| {
        std::fs::write(dir.path().join("secret"), secret).unwrap();
        let mut windlass = Command::new(env!("CARGO_BIN_EXE_windlass"));
        windlass
            .args(["status", "--url", &url, "--login"])
            .arg(dir.path().join("secret"));
        windlass.env_clear().output().unwrap().status.success()
    };
    assert!(
        windlass(&format!("{token}\n")) && windlass("read:read-read") && !windlass("read:read")
    );
    let mut live = Command::new(env!("CARGO_BIN_EXE_windlass"));
    live.args(["check", "--live", "--url", &url]).env_clear();
    let mut checked = |expected: i32, line: &str| {
        let output = live.output().unwrap();
        let shown = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.code() == Some(expected) && shown.starts_with(line),
            "{expected} {line}: {shown}"
        );
        live.arg("--login").arg(dir.path().join("secret"));
    };
    checked(3, "WINDLASS UNKNOWN - login required (");
    std::fs::write(dir.path().join("secret"), "read:read-read").unwrap();
    checked(0, "WINDLASS OK - ready");
    let path = dir.path().join("logins");
    let rest = std::fs::read_to_string(&path)
        .unwrap()
        .lines()
        .filter(|line| !line.contains("ci"))
        .collect::<Vec<_>>()
        .join("\n");
    std::fs::write(&path, rest).unwrap();
    wait_until("the token is gone", || {
        asked(http, &format!("Bearer {token}"), "GET /api/v1/status").status != 200
    });
    // The daemon may have read the file while it was empty.
    wait_until("the other logins are still there", || {
        asked(http, &of_role("read"), "GET /api/v1/status").status == 200
    });
}

/// That a known login never waits behind guesses is shown where these can be held up: in the door's own tests.
#[test]
fn guessing_ends_and_a_known_login_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (daemon, _) = started(dir.path(), "");
    let http = Http(daemon.address("http"));
    assert_eq!(
        asked(http, &of_role("read"), "GET /api/v1/status").status,
        200
    );
    let guesses: Vec<_> = (0..20)
        .map(|n| {
            thread::spawn(move || {
                asked(
                    http,
                    &basic("admin", &format!("guess-{n}")),
                    "GET /api/v1/status",
                )
                .status
            })
        })
        .collect();
    while guesses.iter().any(|guess| !guess.is_finished()) {
        assert_eq!(
            asked(http, &of_role("read"), "GET /api/v1/status").status,
            200
        );
    }
    let mut statuses: Vec<u16> = guesses
        .into_iter()
        .map(|guess| guess.join().unwrap())
        .collect();
    statuses.sort_unstable();
    assert!(
        statuses.contains(&401)
            && statuses
                .iter()
                .all(|status| matches!(status, 401 | 429 | 503)),
        "{statuses:?}"
    );
    let is_refused = |_| asked(http, &basic("admin", "guess"), "GET /api/v1/status").status == 429;
    assert!(
        (0..100).any(is_refused),
        "on a slow machine twenty guesses may take long enough to be allowed"
    );
    let right = asked(http, &basic("admin", "admin-admin"), "GET /api/v1/status");
    assert_eq!(right.status, 429, "even if it is right now");
}

/// Fills in the form. Returns the answer and the cookie, as a browser sends it back.
fn filled_in(http: Http, name: &str, password: &str, to: &str) -> (Answer, String) {
    let body = format!("name={name}&password={password}&to={to}");
    let answer = http.request(
        "POST",
        "/login",
        &[("Origin", "http://localhost")],
        body.as_bytes(),
    );
    let cookie = answer
        .header("set-cookie")
        .and_then(|cookie| cookie.split(';').next())
        .unwrap_or_default()
        .to_owned();
    (answer, cookie)
}

/// A page as a browser asks for it.
fn visited(http: Http, path: &str, cookie: &str) -> Answer {
    http.request(
        "GET",
        path,
        &[("Accept", "text/html,*/*"), ("Cookie", cookie)],
        b"",
    )
}

/// A change as a page sends it.
fn changed(http: Http, path: &str, cookie: &str) -> u16 {
    http.request(
        "POST",
        path,
        &[("Cookie", cookie), ("Sec-Fetch-Site", "same-origin")],
        b"",
    )
    .status
}

#[test]
fn people_log_in_with_a_form_and_out_again() {
    let dir = tempfile::tempdir().unwrap();
    let (daemon, _) = started(dir.path(), "");
    let http = Http(daemon.address("http"));
    assert_eq!(
        asked(http, &of_role("operate"), "POST /api/v1/queues/q/jobs").status,
        201
    );
    let sent_away = visited(http, "/jobs?state=dead", "");
    assert_eq!(
        (sent_away.status, sent_away.header("location")),
        (303, Some("/login?to=%2Fjobs%3Fstate%3Ddead"))
    );
    let form = visited(http, "/login?to=%2Fjobs%3Fstate%3Ddead", "");
    assert_eq!(form.status, 200);
    assert!(
        form.text()
            .contains(r#"name="to" value="/jobs?state=dead""#)
            && !form.text().contains("<nav"),
        "{form:?}"
    );
    assert_eq!(
        visited(http, "/assets/windlass.css", "").status,
        200,
        "the form has a look"
    );

    let (answer, cookie) = filled_in(http, "read", "read-read", "%2Fjobs%3Fstate%3Ddead");
    assert_eq!(
        (answer.status, answer.header("location")),
        (303, Some("/jobs?state=dead"))
    );
    let attributes = answer.header("set-cookie").unwrap();
    assert!(
        attributes.ends_with("; Path=/; HttpOnly; SameSite=Strict"),
        "{attributes}"
    );
    let page = visited(http, "/jobs", &cookie);
    assert!(
        page.status == 200
            && page.text().contains("read (read)")
            && page.text().contains("Log out"),
        "{page:?}"
    );
    assert_eq!(
        http.request("GET", "/api/v1/status", &[("Cookie", &cookie)], b"")
            .status,
        200
    );
    assert_eq!(
        changed(http, "/api/v1/queues/q/pause", &cookie),
        403,
        "its role does not allow it"
    );

    let (_, admin) = filled_in(http, "admin", "admin-admin", "https://elsewhere.example");
    assert_eq!(changed(http, "/api/v1/queues/q/pause", &admin), 200);
    let blind = http.request(
        "POST",
        "/api/v1/queues/q/resume",
        &[("Cookie", &admin)],
        b"",
    );
    assert_eq!(
        (blind.status, &blind.json()["code"]),
        (403, &"cross_site".into()),
        "from nowhere"
    );
    let foreign = [("Cookie", &*admin), ("Sec-Fetch-Site", "cross-site")];
    assert_eq!(
        http.request("POST", "/api/v1/queues/q/resume", &foreign, b"")
            .status,
        403
    );

    assert_eq!(changed(http, "/logout", &admin), 303);
    assert_eq!(visited(http, "/jobs", &admin).status, 303);
    let ended = http.request("GET", "/api/v1/status", &[("Cookie", &admin)], b"");
    assert_eq!(
        (ended.status, ended.header("www-authenticate")),
        (401, None),
        "no dialog of the browser"
    );
    assert_eq!(
        visited(http, "/jobs", &cookie).status,
        200,
        "the other session goes on"
    );
    let audit = std::fs::read_to_string(dir.path().join("audit")).unwrap();
    let done: Vec<String> = audit
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|line| format!("{} {}", line["who"], line["change"]))
        .collect();
    let expected = [
        r#""read" "POST /login""#,
        r#""read" "POST /api/v1/queues/q/pause""#,
        r#""admin" "POST /login""#,
        r#""admin" "POST /api/v1/queues/q/pause""#,
        r#""admin" "POST /logout""#,
    ];
    assert_eq!(done, expected);
    assert!(!audit.contains("read-read") && !daemon.log_text().contains(&cookie));
}

#[test]
fn a_wrong_password_is_refused_and_guessing_in_the_form_ends() {
    let dir = tempfile::tempdir().unwrap();
    let (daemon, _) = started(dir.path(), "");
    let http = Http(daemon.address("http"));
    let (answer, cookie) = filled_in(http, "%3Cimg%3E", "wrong", "/");
    assert_eq!((answer.status, &*cookie), (401, ""));
    let page = answer.text();
    assert!(
        page.contains("invalid login") && page.contains("&#60;img&#62;") && !page.contains("<img>"),
        "{page}"
    );
    assert_eq!(answer.header("www-authenticate"), None);
    assert_eq!(
        http.request(
            "POST",
            "/login",
            &[("Origin", "http://elsewhere.example")],
            b""
        )
        .status,
        403
    );
    assert_eq!(
        filled_in(http, "read", &"x".repeat(10_000), "/").0.status,
        413
    );
    let is_refused = |_| filled_in(http, "admin", "guess", "/").0.status == 429;
    assert!((0..100).any(is_refused), "guesses are few in a minute");
    assert_eq!(
        filled_in(http, "read", "guess", "/").0.status,
        401,
        "others behind the same address may log in"
    );
    assert_eq!(visited(http, "/jobs", "windlass_session=guess").status, 303);
}

#[test]
fn a_session_ends_with_its_line_and_when_it_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let logins = dir.path().join("logins");
    let write = |role: &str, password: &str| {
        std::fs::write(
            &logins,
            new_login("password", "ada", role, &format!("{password}\n")).0,
        )
        .unwrap();
    };
    write("read", "first-password");
    let start = |idle: &str| {
        let keys = format!(
            "[http]\nlisten = [\"127.0.0.1:0\"]\nsession_idle = {idle:?}\nlogins = {logins:?}\n"
        );
        common::daemon(dir.path()).set(&keys).start()
    };
    let daemon = start("8h");
    let http = Http(daemon.address("http"));
    let (_, cookie) = filled_in(http, "ada", "first-password", "/");
    assert_eq!(visited(http, "/", &cookie).status, 200);
    write("read", "second-password");
    wait_until("the session is over", || {
        visited(http, "/", &cookie).status == 303
    });
    drop(daemon);

    let daemon = start("1s");
    let http = Http(daemon.address("http"));
    let (_, cookie) = filled_in(http, "ada", "second-password", "/");
    let refreshed = || {
        let headers = [
            ("Accept", "text/html"),
            ("Cookie", &*cookie),
            ("X-Windlass-Refresh", "1"),
        ];
        http.request("GET", "/", &headers, b"").status
    };
    assert!(!cookie.is_empty());
    wait_until("a page that only stays current is no use", || {
        refreshed() == 303
    });
}

/// The name of the user who runs the test.
fn user() -> String {
    let output = Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
