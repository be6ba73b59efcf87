//! Namespaces at the HTTP door: each as if alone, all for an operator, and logins that see only some.

use std::process::Command;

use serde_json::Value;
use windlass_testkit::daemon::Daemon;

use crate::common;
use crate::common::ended::wait_for_rows;
use crate::common::http::{Answer, Http};
use crate::login::{asked, basic, new_login};

fn names(answer: &Answer, rows: &str) -> Vec<String> {
    let json = answer.json();
    let rows = json[rows].as_array().unwrap_or_else(|| panic!("{json}"));
    let name = |row: &Value| {
        let name = row["name"].as_str().unwrap();
        row["namespace"]
            .as_str()
            .map_or_else(|| name.to_owned(), |of| format!("{of}/{name}"))
    };
    let names = rows.iter().map(name);
    // The listener of spiderq has a queue before anyone uses it.
    names.filter(|name| name != "spiderq").collect()
}

fn put(http: Http, path: &str) -> Answer {
    http.request("PUT", path, &[], b"")
}

/// A daemon with two namespaces, each with a job in a queue of the same name, as has the namespace without a name.
fn filled(daemon: &Daemon) -> Http {
    let http = Http(daemon.address("http"));
    for name in ["shop", "mail"] {
        assert_eq!(put(http, &format!("/api/v1/namespaces/{name}")).status, 201);
        let path = format!("/api/v1/queues/q/jobs?namespace={name}&priority=9");
        assert_eq!(http.post(&path, name).status, 201);
    }
    assert_eq!(http.post("/api/v1/queues/q/jobs", "unnamed").status, 201);
    http
}

#[test]
fn each_request_is_about_one_namespace_or_all() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path()).start();
    let http = filled(&daemon);
    assert_eq!(
        names(&http.get("/api/v1/queues"), "queues"),
        ["q", "shop/q", "mail/q"]
    );
    let one = http.get("/api/v1/queues?namespace=shop");
    assert_eq!(names(&one, "queues"), ["shop/q"]);
    assert_eq!(
        names(&http.get("/api/v1/queues?namespace="), "queues"),
        ["q"]
    );
    let all = http.get("/api/v1/queues").json();
    let of_http = all["queues"].as_array().unwrap().iter();
    for row in of_http.filter(|row| row["name"] == "q") {
        assert_eq!(row["ready_by_protocol"]["http"], 1, "{row}");
    }
    let sorted = http.get("/api/v1/queues?sort=-namespace").json();
    assert_eq!(sorted["queues"][0]["namespace"], "shop");
    assert_eq!(sorted["queues"][0]["ready_by_protocol"]["http"], 1);
    assert!(all["queues"][0].get("namespace").is_none());
    assert_eq!(http.get("/api/v1/queues?namespace=none").status, 404);
    assert_eq!(
        http.post("/api/v1/queues/q/take?namespace=none", "").status,
        404
    );
    let namespaces = http.get("/api/v1/namespaces");
    assert_eq!(
        names(&namespaces, "namespaces"),
        ["", "shop", "mail"],
        "asking for one creates none"
    );
    let used = &namespaces.json()["namespaces"][1];
    assert_eq!(
        (&used["jobs"], &used["queues"], &used["connections"]),
        (&1.into(), &1.into(), &0.into())
    );
    let taken = http.post("/api/v1/queues/q/take?namespace=shop", "").json();
    assert_eq!(taken["body"], "shop");
    assert_eq!(
        http.post("/api/v1/queues/q/take?namespace=shop", "").status,
        204
    );
    // The job of another namespace is not there, whatever the request knows about it.
    let lease = taken["lease"].as_str().unwrap();
    let done = |of: &str| {
        let path = format!("/api/v1/leases/{lease}/done?namespace={of}");
        http.post(&path, "").status
    };
    assert_eq!(http.get("/api/v1/jobs/1?namespace=mail").status, 404);
    assert_eq!(http.get("/api/v1/jobs/1").json()["namespace"], "shop");
    assert_eq!((done("mail"), done("shop")), (404, 204));
    let status = |of: &str| http.get(&format!("/api/v1/status{of}")).json()["jobs"].clone();
    assert_eq!(
        (status(""), status("?namespace=mail")),
        (2.into(), 1.into())
    );
    for path in ["/api/v1/history", "/api/v1/cluster", "/metrics"] {
        assert_eq!(http.get(&format!("{path}?namespace=mail")).status, 403);
    }
}

#[test]
fn a_namespace_is_limited_paused_emptied_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path()).start();
    let http = filled(&daemon);
    let shop = "/api/v1/namespaces/shop";
    let limited = put(http, &format!("{shop}?jobs_max=2&pushes_max=100"));
    assert_eq!(limited.status, 200);
    assert_eq!(
        limited.json()["limits"],
        serde_json::json!({
            "jobs_max": 2, "job_bytes_max": null, "queues_max": null, "connections_max": null, "pushes_max": 100,
            "pushes_per": "1s"
        })
    );
    let push = || {
        http.post("/api/v1/queues/other/jobs?namespace=shop", "x")
            .status
    };
    assert_eq!([push(), push()], [201, 429]);
    let row = http.get("/api/v1/namespaces?namespace=shop").json()["namespaces"][0].clone();
    assert_eq!(
        (&row["refused"], &row["refused_last"]["limit"]),
        (&1.into(), &"jobs".into())
    );
    let status = http.get("/api/v1/status").json();
    assert_eq!(
        (&status["state"], &status["refusing"][0]["text"]),
        (
            &"ready".into(),
            &"namespace shop is at its limit of jobs: rejecting its new jobs, 1 so far".into()
        )
    );
    assert_eq!(http.get("/readyz").status, 200);
    let elsewhere = http.get("/api/v1/status?namespace=mail").json();
    assert_eq!(elsewhere["refusing"], serde_json::json!([]));
    let series = [
        ("jobs{queue=\"q\",state=\"ready\",namespace=\"shop\"}", 1.0),
        ("namespace_jobs{namespace=\"shop\"}", 2.0),
        ("namespace_queues{namespace=\"shop\"}", 2.0),
        ("namespace_connections{namespace=\"shop\"}", 0.0),
        ("namespace_pushes_refused_total{namespace=\"shop\"}", 1.0),
    ];
    for (name, value) in series {
        assert!(
            (http.metric(&format!("windlass_{name}")) - value).abs() < 0.1,
            "{name}"
        );
    }
    let changed = |path: &str| http.post(&format!("{shop}/{path}"), "").json()["changed"].clone();
    assert_eq!(changed("pause"), 2);
    assert_eq!(changed("pause"), 0);
    let paused = |of: &str| http.get(&format!("/api/v1/queues/q{of}")).json()["paused"].clone();
    assert_eq!(
        (
            paused("?namespace=shop"),
            paused("?namespace=mail"),
            paused("")
        ),
        (true.into(), false.into(), false.into())
    );
    assert_eq!(changed("resume"), 2);
    assert_eq!(http.delete(shop).status, 409);
    assert_eq!(changed("empty?dry_run=true"), 2);
    assert_eq!(changed("empty"), 2);
    assert_eq!(http.get("/api/v1/status").json()["jobs"], 2);
    for queue in ["q", "other"] {
        let path = format!("/api/v1/queues/{queue}?namespace=shop");
        assert_eq!(http.delete(&path).status, 204);
    }
    assert_eq!(http.delete(shop).status, 204);
    assert_eq!(http.delete(shop).status, 404);
    assert_eq!(http.post(&format!("{shop}/empty"), "").status, 404);
    for wrong in ["a%2Fb", "~", "%20"] {
        assert_eq!(
            put(http, &format!("/api/v1/namespaces/{wrong}")).status,
            400
        );
    }
    assert_eq!(
        put(http, "/api/v1/namespaces/x?pushes_per=1s").status,
        400,
        "a period without a number"
    );
}

#[test]
fn a_namespace_without_room_for_jobs_drains() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path()).start();
    let http = filled(&daemon);
    let shop = "/api/v1/namespaces/shop?jobs_max=0";
    assert_eq!(put(http, shop).status, 200);
    let post = |path: &str| http.post(&format!("/api/v1/{path}?namespace=shop"), "");
    assert_eq!(post("queues/q/jobs").status, 429);
    let taken = post("queues/q/take").json();
    let lease = taken["lease"].as_str().unwrap();
    assert_eq!(post(&format!("leases/{lease}/done")).status, 204);
    let left = http.get("/api/v1/status?namespace=shop").json();
    assert_eq!(left["jobs"], 0);
    assert_eq!(
        http.post("/api/v1/queues/q/jobs?namespace=mail", "x")
            .status,
        201
    );
}

#[test]
fn a_queue_moves_to_another_namespace_and_is_there_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = common::daemon(dir.path()).start();
    let http = filled(&daemon);
    let limited = "/api/v1/queues/q/limit?jobs=9&namespace=shop";
    assert_eq!(put(http, limited).status, 200);
    let to = |from: &str, to: &str| {
        let path = format!("/api/v1/queues/q/move?namespace={from}&to={to}");
        http.post(&path, "")
    };
    assert_eq!(to("shop", "shop").status, 400);
    assert_eq!(to("shop", "none").status, 404);
    assert_eq!(to("none", "shop").status, 404);
    put(http, "/api/v1/namespaces/new");
    let moved = to("shop", "new").json();
    assert_eq!(
        (&moved["changed"], &moved["left"]),
        (&1.into(), &0.into()),
        "{moved}"
    );
    daemon.kill();
    let daemon = common::daemon(dir.path()).start();
    let http = Http(daemon.address("http"));
    let row = |of: &str| http.get(&format!("/api/v1/queues/q?namespace={of}"));
    assert_eq!(row("shop").status, 404, "an empty queue goes");
    assert_eq!(row("new").json()["jobs_max"]["5"], 9);
    let taken = http.post("/api/v1/queues/q/take?namespace=new", "").json();
    assert_eq!(taken["body"], "shop");
    let path = "/api/v1/queues/q/move?namespace=new&to=mail";
    let held = http.post(path, "").json();
    assert_eq!((&held["changed"], &held["left"]), (&0.into(), &1.into()));
    let path = "/api/v1/queues/q/move?namespace=mail&to=~";
    assert_eq!(http.post(path, "").json()["changed"], 1);
    assert_eq!(
        http.get("/api/v1/queues/q?namespace=").json()["states"]["ready"],
        2
    );
}

#[test]
fn a_page_about_a_namespace_leads_to_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path()).start();
    let http = Http(daemon.address("http"));
    let page = |path: &str| {
        let answer = http.get(path);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.text().to_owned()
    };
    let paths = [
        "/",
        "/queues",
        "/jobs",
        "/dead",
        "/kinds",
        "/workers",
        "/schedules",
        "/batches",
        "/throttles",
        "/connections",
        "/push",
        "/jobs/1",
        "/queues/q",
    ];
    assert_eq!(http.post("/api/v1/queues/q/jobs", "x").status, 201);
    for path in paths {
        let html = page(path);
        assert!(
            !html.contains("/in/") && !html.contains("places"),
            "{path}: {html}"
        );
    }
    for name in ["shop", "mail"] {
        put(http, &format!("/api/v1/namespaces/{name}"));
        let path = format!("/api/v1/queues/q/jobs?namespace={name}");
        assert_eq!(http.post(&path, "x").status, 201);
    }
    for path in paths {
        let path = path.replace("/1", "/2");
        let html = page(&format!("/in/shop{path}"));
        let links = html
            .split("href=\"/")
            .skip(1)
            .chain(html.split("action=\"/").skip(1));
        let mut links = links.filter_map(|rest| rest.split('"').next());
        let is_own = |link: &&str| {
            // The choice leads to all, the other ones, and their list.
            link.starts_with("in/shop/") || ["", "in/~/", "in/mail/", "namespaces"].contains(link)
        };
        assert_eq!(links.find(|link| !is_own(link)), None, "{path}");
        assert!(
            html.contains("<html lang=\"en\" data-prefix=\"/in/shop\">"),
            "{path}"
        );
        assert!(!html.contains("/cluster"), "{path}");
    }
    let all = page("/queues");
    for part in [
        "<a href=\"/queues/q\">q</a>",
        "<a href=\"/in/shop/queues/q\">q</a>",
        "<tr data-row data-prefix=\"/in/shop\">",
        "<a href=\"/\" aria-current=\"true\">all namespaces</a>",
    ] {
        assert!(all.contains(part), "{part}: {all}");
    }
    assert!(page("/namespaces").contains("<a href=\"/in/mail/\">mail</a>"));
    assert!(page("/queues?namespace=shop").contains("data-prefix=\"/in/shop\""));
    assert_eq!(http.get("/in/shop/history").status, 200);
    assert_eq!(http.get("/in/shop/cluster").status, 403);
    assert_eq!(http.get("/in/none/queues").status, 404);
}

#[test]
fn commands_ask_about_one_namespace() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = common::daemon(dir.path()).start();
    let address = format!("http://{}", daemon.address("http"));
    let run = |line: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command
            .args(line.split(' '))
            .args(["--url", &address])
            .env_clear();
        let output = command.output().unwrap();
        let text =
            String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        (output.status.success(), text)
    };
    let says = |line: &str| {
        let (is_done, text) = run(line);
        assert!(is_done, "{line}: {text}");
        text
    };
    assert!(says("namespace set shop --jobs-max 7").contains("shop"));
    says("-n shop push orders x");
    assert!(!says("push other x -n=").is_empty());
    let (one, all) = (says("-n shop queues"), says("queues"));
    assert!(one.contains("orders") && !one.contains("other"), "{one}");
    assert!(
        all.contains("NAMESPACE") && all.contains("other") && all.contains("orders"),
        "{all}"
    );
    let list = says("namespaces --json");
    assert!(list.contains("\"jobs_max\":7"), "{list}");
    assert_eq!(says("namespace pause shop"), "1 queue paused\n");
    assert_eq!(says("namespace resume shop"), "1 queue resumed\n");
    let moved = says("namespace move shop --queue orders --to=");
    assert_eq!(moved, "1 job moved, 0 jobs left\n");
    says("-n shop push orders x");
    assert_eq!(says("namespace empty shop --yes"), "1 job removed\n");
    says("-n shop remove orders --yes");
    says("namespace remove shop --yes");
    let (is_done, text) = run("queues -n shop");
    assert!(
        !is_done && text.contains("there is no namespace shop"),
        "{text}"
    );
    let (is_done, text) = run("namespace pause shop --jobs-max 1");
    assert!(
        !is_done && text.contains("limits are for `namespace set`"),
        "{text}"
    );
    let (is_done, text) = run("namespace move shop --queue orders");
    assert!(
        !is_done && text.contains("needs --queue and --to"),
        "{text}"
    );
}

#[test]
fn a_login_for_some_namespaces_sees_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let user = |name, role| new_login("password", name, role, "long-password\n").0;
    let logins = [
        user("root", "admin"),
        user("shop", "shop:operate"),
        user("both", "shop:read,mail:admin"),
    ];
    std::fs::write(dir.path().join("logins"), logins.concat()).unwrap();
    let keys = format!("[http]\nlogins = {:?}\n", dir.path().join("logins"));
    let daemon = common::daemon(dir.path()).set(&keys).start();
    let http = Http(daemon.address("http"));
    let by = |name: &str, request: &str| asked(http, &basic(name, "long-password"), request);
    for name in ["shop", "mail", "secret"] {
        by("root", &format!("PUT /api/v1/namespaces/{name}"));
        let path = format!("POST /api/v1/queues/{name}-q/jobs?namespace={name}");
        assert_eq!(by("root", &path).status, 201);
    }
    let listed = |name, of: &str| names(&by(name, &format!("GET /api/v1/queues{of}")), "queues");
    assert_eq!(listed("shop", ""), ["shop/shop-q"]);
    assert_eq!(listed("both", "?namespace=mail"), ["mail/mail-q"]);
    let namespaces = |name| names(&by(name, "GET /api/v1/namespaces"), "namespaces");
    assert_eq!(namespaces("shop"), ["shop"]);
    assert_eq!(namespaces("both"), ["mail", "shop"]);
    assert_eq!(namespaces("root"), ["", "shop", "mail", "secret"]);
    let table = [
        ("shop", "GET /api/v1/queues?namespace=secret", 403),
        ("shop", "GET /api/v1/queues?namespace=none", 403),
        ("shop", "GET /api/v1/queues?namespace=", 403),
        ("shop", "GET /api/v1/jobs/3", 404),
        ("shop", "GET /api/v1/jobs/1", 200),
        ("shop", "POST /api/v1/queues/shop-q/pause", 200),
        ("shop", "POST /api/v1/namespaces/shop/pause", 200),
        ("shop", "POST /api/v1/namespaces/secret/pause", 403),
        ("shop", "POST /api/v1/namespaces/shop/empty", 403),
        ("shop", "GET /metrics", 403),
        ("shop", "GET /api/v1/ended", 200),
        ("shop", "GET /api/v1/cluster", 403),
        ("shop", "PUT /api/v1/namespaces/other", 403),
        ("both", "GET /api/v1/queues", 400),
        ("both", "GET /api/v1/queues?namespace=*", 400),
        ("both", "POST /api/v1/queues/x/jobs?namespace=shop", 403),
        ("both", "POST /api/v1/namespaces/mail/empty", 200),
        (
            "both",
            "POST /api/v1/queues/mail-q/move?namespace=mail&to=shop",
            403,
        ),
        ("both", "GET /api/v1/export?namespace=mail", 200),
        ("both", "GET /api/v1/export?namespace=shop", 403),
        ("both", "GET /api/v1/export?namespace=secret", 403),
        ("both", "GET /api/v1/export", 400),
        ("shop", "GET /api/v1/export", 403),
        ("root", "GET /api/v1/export?namespace=none", 404),
        ("both", "DELETE /api/v1/namespaces/mail?namespace=mail", 403),
        ("root", "GET /api/v1/queues?namespace=none", 404),
    ];
    for (name, request, status) in table {
        let answer = by(name, request);
        assert_eq!(answer.status, status, "{name} {request}: {answer:?}");
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let is_told = request.contains("secret") || !text.contains("secret");
        assert!(is_told || name == "root", "{name} {request}: {text}");
    }
    let page = |name, path: &str| by(name, &format!("GET {path}"));
    assert_eq!(page("both", "/").status, 400);
    for (name, path) in [
        ("both", "/namespaces"),
        ("both", "/in/mail/queues"),
        ("shop", "/"),
        ("shop", "/queues"),
    ] {
        let answer = page(name, path);
        assert_eq!(answer.status, 200, "{name} {path}");
        assert!(
            !answer.text().contains("secret"),
            "{name} {path}: {}",
            answer.text()
        );
    }
    for path in [
        "/in/secret/queues",
        "/in/secret/history",
        "/cluster",
        "/in/none/",
    ] {
        assert_eq!(page("shop", path).status, 403, "{path}");
    }
    assert!(
        page("both", "/")
            .text()
            .contains("<a href=\"/in/mail/\">mail</a>")
    );
    let several = by("both", "GET /api/v1/queues").json();
    assert_eq!(
        several["detail"],
        "this login is for several namespaces: choose one with ?namespace= of \"mail\", \"shop\""
    );
}

#[test]
fn the_history_of_a_namespace_has_its_own_jobs_and_runs_them_again_there() {
    let dir = tempfile::tempdir().unwrap();
    let settings = "history.keep = \"7d\"\n[queues.\"*\"]\nhistory = { body = \"1KiB\" }\n";
    let daemon = common::daemon(dir.path()).set(settings).start();
    let http = filled(&daemon);
    for place in ["?namespace=shop", "?namespace=mail", ""] {
        let taken = http
            .post(&format!("/api/v1/queues/q/take{place}"), "")
            .json();
        let lease = taken["lease"].as_str().unwrap();
        let done = http.post(&format!("/api/v1/leases/{lease}/done{place}"), "");
        assert!(done.status < 300, "{}", done.text());
    }
    let all = wait_for_rows(http, "queue=q", 3);
    let mut of: Vec<_> = all.iter().map(|row| row["namespace"].as_str()).collect();
    of.sort_unstable();
    assert_eq!(of, [None, Some("mail"), Some("shop")]);
    let own = wait_for_rows(http, "queue=q&namespace=shop", 1);
    assert_eq!(own[0]["namespace"], "shop");
    let end = own[0]["id"].as_str().unwrap();
    for path in ["hours", "kinds"] {
        let all = http.get(&format!("/api/v1/ended/{path}?queue=q")).json()[path].clone();
        let all = all.as_array().unwrap().iter();
        let mut of: Vec<_> = all.map(|row| row["namespace"].as_str()).collect();
        of.sort_unstable();
        assert_eq!(of, [None, Some("mail"), Some("shop")], "{path}");
    }
    // Each row of the whole daemon's pages leads to its own namespace.
    let page = http.get(&format!("/history/{end}"));
    let page = page.text();
    assert!(
        page.contains(&format!("/in/shop/push?ended={end}")) && page.contains("/in/shop/queues/q")
    );
    let page = http.get("/history/kinds?since=1d");
    let page = page.text();
    assert!(
        page.contains("/in/mail/queues/q\"") && page.contains("\"/queues/q\""),
        "{page}"
    );
    let path = format!("/api/v1/ended/{end}");
    assert_eq!(http.get(&format!("{path}?namespace=mail")).status, 404);
    let again = |place: &str| http.post(&format!("{path}/again{place}"), "").status;
    assert_eq!(again("?namespace=mail"), 404);
    assert_eq!((again("?namespace=shop"), again("")), (201, 201));
    let jobs = |place: &str| http.get(&format!("/api/v1/status{place}")).json()["jobs"].clone();
    assert_eq!(jobs("?namespace=shop"), 2);
    assert_eq!(jobs("?namespace=mail"), 0);
    assert_eq!(jobs("?namespace="), 0);
}
