//! `queues.NAME.mask`: what readers without the role `operate` do not see of bodies, wherever they look.

use std::fs;

use crate::common::http::Http;
use crate::common::{Peer, wait_for_log, wait_until};
use crate::login::{asked, of_role, started};

const SETTINGS: &str = r#"
[history]
keep = "7d"
[queues.plain]
[queues."pay*"]
mask = ["/0/card", "/card"]
history = { body = "1KiB" }
"#;

/// Pushes a job of FWP, or of HTTP if `form` is empty, as the operator. Returns its number.
fn push(http: Http, queue: &str, form: &str, body: &str) -> u64 {
    let path = format!("/api/v1/queues/{queue}/jobs{form}");
    let login = of_role("operate");
    let pushed = http.request("POST", &path, &[("Authorization", &login)], body.as_bytes());
    assert_eq!(pushed.status, 201, "{}", pushed.text());
    pushed.json()["id"].as_u64().unwrap()
}

#[test]
fn masked_arguments_are_seen_by_those_who_may_take_the_job_and_by_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let (daemon, _) = started(dir.path(), SETTINGS);
    let http = Http(daemon.address("http"));
    let unit = r#"{"jid":"unit-0001","jobtype":"T","args":[{"card":"4111","to":"ann"}],"custom":{"card":"4222"}}"#;
    let living = [
        push(http, "pay-fwp", "?protocol=faktory", unit),
        push(http, "pay", "", r#"[{"card":"4333","to":"bob"}]"#),
        push(http, "pay", "", "card=4444"),
        push(
            http,
            "pay",
            "",
            &format!(r#"{{"card":"4555","long":"{}"}}"#, "x".repeat(100 << 10)),
        ),
    ];
    push(http, "plain", "", r#"[{"card":"seen"}]"#);
    let ended = push(http, "pay-once", "", r#"{"card":"4666","to":"eve"}"#);
    let taken = asked(
        http,
        &of_role("operate"),
        "POST /api/v1/queues/pay-once/take",
    )
    .json();
    let lease = taken["lease"].as_str().unwrap();
    let done = asked(
        http,
        &of_role("operate"),
        &format!("POST /api/v1/leases/{lease}/done"),
    );
    assert!(done.status < 300, "{}", done.text());

    // The key of a job whose unique id is `-` is its body.
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    peer.submit("pay-by-body", "-", "card=4777".to_owned())
        .unwrap();
    let reader = of_role("read");
    wait_until("the row of the job that ended", || {
        let found = asked(http, &reader, "GET /api/v1/ended?queue=pay-once").json();
        found["ended"].as_array().unwrap().len() == 1
    });
    let row = asked(http, &reader, "GET /api/v1/ended?queue=pay-once").json();
    let row = row["ended"][0]["id"].as_str().unwrap().to_owned();

    // Wherever a body, or a part of it, is shown.
    let mut places = vec![
        "/api/v1/jobs?limit=100".to_owned(),
        "/jobs".to_owned(),
        "/queues/pay".to_owned(),
        "/queues/pay-fwp".to_owned(),
        "/api/v1/jobs?queue=pay-by-body".to_owned(),
        "/api/v1/ended".to_owned(),
        "/history".to_owned(),
        format!("/api/v1/ended/{row}"),
        format!("/history/{row}"),
        format!("/push?ended={row}"),
        "/api/v1/ended?queue=pay-once&name=x".to_owned(),
        format!("/jobs/{ended}"),
    ];
    for id in living {
        places.extend([
            format!("/api/v1/jobs/{id}"),
            format!("/api/v1/jobs/{id}/body"),
            format!("/jobs/{id}"),
            format!("/push?job={id}"),
        ]);
    }
    let shown = |login: &str| {
        let get = |place: &String| {
            asked(http, login, &format!("GET {place}"))
                .text()
                .to_owned()
        };
        places.iter().map(get).collect::<String>()
    };
    let (hidden, whole) = (shown(&reader), shown(&of_role("operate")));
    for secret in ["4111", "4222", "4333", "4444", "4555", "4666", "4777"] {
        assert!(!hidden.contains(secret), "{secret}: {hidden}");
        assert!(whole.contains(secret), "{secret}");
    }
    for open in ["ann", "bob", "eve", "seen", "***", "hidden from this login"] {
        assert!(hidden.contains(open), "{open}: {hidden}");
    }
    let masked = asked(http, &reader, &format!("GET /api/v1/jobs/{}", living[1])).json();
    assert_eq!(masked["body"], r#"[{"card":"***","to":"bob"}]"#);
    assert_eq!(masked["is_masked"], true);

    // A search would tell what is hidden.
    for (question, status) in [
        ("jobs?text=4111", 403),
        ("jobs?text=4111&queue=pay", 403),
        ("jobs/count?text=4111", 403),
        ("dead?text=4111", 403),
        ("ended?text=4666", 403),
        ("ended?text=4666&queue=pay-once", 403),
        ("jobs?text=seen&queue=plain", 200),
        ("ended?text=4666&queue=plain", 200),
    ] {
        let request = format!("GET /api/v1/{question}");
        assert_eq!(asked(http, &reader, &request).status, status, "{question}");
        assert_eq!(
            asked(http, &of_role("operate"), &request).status,
            200,
            "{question}"
        );
    }

    // A reload uncovers what no mask hides any more.
    let file = dir.path().join("windlass.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(
        &file,
        text.replace("mask = [\"/0/card\", \"/card\"]", "mask = [\"/card\"]"),
    )
    .unwrap();
    daemon.signal("HUP");
    wait_for_log(&daemon, "applied");
    let seen = asked(http, &reader, &format!("GET /api/v1/jobs/{}", living[1])).json();
    assert_eq!(seen["body"], r#"[{"card":"4333","to":"bob"}]"#);
}
