//! One namespace of a daemon in an export, and an export that becomes a namespace: the fleet's clients notice nothing.

use std::collections::BTreeSet;
use std::fs;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use serde_json::Value;
use windlass_gearman::wire::{Request, Response, Schedule, Submission};
use windlass_testkit::daemon::Daemon;

use super::states::{fetch, ok, push};
use super::{Home, stop};
use crate::common::faktory::Fwp;
use crate::common::http::Http;
use crate::common::{Peer, daemon};

/// A daemon of the data in `place`/data, with addresses of the namespace without a name, and of these.
fn served(home: &Home, place: &str, names: &[&str]) -> Daemon {
    let mut listen = String::from("\"127.0.0.1:0\"");
    let mut sections = String::new();
    for name in names {
        listen += &format!(", {{ address = \"127.0.0.1:0\", namespace = {name:?} }}");
        sections += &format!("[namespaces.{name}]\n");
    }
    let dir = home.path(place);
    fs::create_dir_all(&dir).unwrap();
    let protocols = ["gearman", "faktory"].map(|it| format!("[{it}]\nlisten = [{listen}]\n"));
    daemon(&dir).set(&sections).set(&protocols.concat()).start()
}

/// A fleet of a namespace, at its addresses.
struct Fleet {
    name: &'static str,
    gearman: Peer,
    faktory: Fwp,
    http: Http,
}

impl Fleet {
    /// The fleet at the addresses with this index.
    fn at(daemon: &Daemon, index: usize, name: &'static str) -> Self {
        Self {
            name,
            gearman: Peer::connect(daemon.addresses("gearman")[index]).unwrap(),
            faktory: Fwp::connect(daemon.addresses("faktory")[index]),
            http: Http(daemon.address("http")),
        }
    }

    fn ask(&mut self, line: &str) -> String {
        self.faktory.ask(line)
    }

    fn push(&mut self, jid: &str, queue: &str, more: &str) {
        let name = self.name;
        let job = format!(
            "{{\"jid\":{jid:?},\"queue\":{queue:?},\"jobtype\":\"T\",\"args\":[\"of {name}\"]{more}}}"
        );
        assert_eq!(self.ask(&format!("PUSH {job}")), "+OK", "{job}");
    }

    /// Jobs in several states, a schedule and a batch, with the names that every fleet uses, and one that is its own.
    fn fill(&mut self) -> Known {
        let of = format!("of {}", self.name);
        let handle = self.gearman.submit("resize", "u", of.clone()).unwrap();
        let own = format!("only-{}", self.name);
        self.gearman.submit(&own, "", of.clone()).unwrap();
        let schedule = Schedule {
            minute: "3".into(),
            hour: "17".into(),
            day_of_month: "29".into(),
            month: "2".into(),
            day_of_week: "".into(),
        };
        let job = Submission {
            function: "nightly".into(),
            unique: "r".into(),
            workload: Bytes::from(of.clone()),
        };
        let request = Request::SubmitSched {
            job,
            schedule: Box::new(schedule),
        };
        self.gearman.send(&request).unwrap();
        let packet = self.gearman.packet().unwrap();
        assert!(matches!(
            Response::parse(&packet),
            Ok(Response::JobCreated { .. })
        ));
        let custom = |text: &str| format!(",\"custom\":{{{text}}}");
        self.push("scheduled-1", "default", ",\"at\":\"2099-01-01T00:00:00Z\"");
        self.push("unique-0001", "unique", &custom("\"unique_for\":86400"));
        self.push("reserved-01", "reserved", ",\"reserve_for\":86400");
        self.push("failing-001", "failing", "");
        assert_eq!(fetch(&mut self.faktory, "reserved"), "reserved-01");
        assert_eq!(fetch(&mut self.faktory, "failing"), "failing-001");
        assert_eq!(
            self.ask(r#"FAIL {"jid":"failing-001","errtype":"E","message":"on fire"}"#),
            "+OK"
        );
        assert_eq!(self.ask("QUEUE PAUSE unique"), "+OK");
        let callback =
            "{\"jid\":\"callback-01\",\"queue\":\"callbacks\",\"jobtype\":\"T\",\"args\":[]}";
        let new = format!("BATCH NEW {{\"description\":{of:?},\"success\":{callback}}}");
        let batch = self.ask(&new);
        self.push(
            "member-0001",
            "members",
            &custom(&format!("\"bid\":{batch:?}")),
        );
        assert_eq!(self.ask(&format!("BATCH COMMIT {batch}")), "+OK");
        let place = format!("namespace={}", self.name);
        let dead = push(self.http, "dead", &place, of.as_bytes());
        ok(self.http.post(&format!("/api/v1/jobs/{dead}/kill"), ""));
        Known { of, handle, batch }
    }

    /// The number of its jobs in each state, its queues, schedules and batches.
    fn figures(&self) -> Value {
        let get = |what: &str| {
            let path = format!("/api/v1/{what}?namespace={}", self.name);
            self.http.get(&path).json()
        };
        let count = |what: &str| get(what)[what].as_array().unwrap().len();
        let mut states = get("status")["states"].clone();
        // A failed job may be tried again meanwhile.
        let waiting = ["ready", "retrying"].map(|state| states[state].take().as_u64().unwrap());
        serde_json::json!({
            "states": states, "waiting": waiting.iter().sum::<u64>(), "queues": count("queues"),
            "schedules": count("schedules"), "batches": count("batches"),
        })
    }

    /// What the clients of the fleet that filled it find: its jobs by their names and unique ids.
    fn works(&mut self, known: &Known, keeps_handles: bool) {
        let handle = self.gearman.submit("resize", "u", "again").unwrap();
        assert_eq!(
            handle == known.handle,
            keeps_handles,
            "its unique id is there"
        );
        assert_eq!(self.gearman.listing("status").unwrap().len(), 3);
        let again = format!(
            "PUSH {{\"jid\":\"unique-0002\",\"queue\":\"unique\",\"jobtype\":\"T\",\"args\":[{:?}],\"custom\":{{\"unique_for\":9}}}}",
            known.of
        );
        let again = self.ask(&again);
        assert!(again.starts_with("-NOTUNIQUE"), "{again}");
        assert_eq!(self.ask(r#"ACK {"jid":"reserved-01"}"#), "+OK");
        let batch = self.ask(&format!("BATCH STATUS {}", known.batch));
        assert!(batch.contains("\"pending\":1"), "{batch}");
        assert_eq!(fetch(&mut self.faktory, "members"), "member-0001");
        assert_eq!(self.ask(r#"ACK {"jid":"member-0001"}"#), "+OK");
        assert_eq!(fetch(&mut self.faktory, "callbacks"), "callback-01");
    }
}

/// What a fleet's clients know.
struct Known {
    /// In each of its jobs.
    of: String,
    handle: Bytes,
    batch: String,
}

/// The lines of what clients have made, without their numbers.
fn things(lines: &[Value], of: Option<&str>) -> BTreeSet<String> {
    let kinds = [
        "namespace_settings",
        "queue_settings",
        "job",
        "schedule",
        "batch",
    ];
    let is_thing = |line: &&Value| kinds.iter().any(|kind| line.get(kind).is_some());
    let is_of = |line: &&Value| {
        let own = line.get("namespace").or(line.get("namespace_settings"));
        of.is_none_or(|of| own.and_then(Value::as_str).unwrap_or_default() == of)
    };
    let things = lines.iter().filter(is_thing).filter(is_of);
    things.map(Value::to_string).collect()
}

const NAMES: [&str; 2] = ["shop", "mail"];

/// The data of a daemon with three fleets that use equal names; and what those of `shop` and of the namespace without
/// a name know, with the figures of each.
struct Three {
    home: Home,
    shop: Known,
    of_shop: Value,
    unnamed: Known,
    of_unnamed: Value,
}

impl Three {
    /// Fills the namespaces, exports `shop` and the namespace without a name while the daemon serves, and stops it.
    fn new() -> Self {
        let home = Home::new();
        let daemon = served(&home, ".", &NAMES);
        let [mut unnamed, mut shop, mut mail] = [(0, ""), (1, "shop"), (2, "mail")]
            .map(|(index, name)| Fleet::at(&daemon, index, name));
        let [of_unnamed, of_shop] = [&mut unnamed, &mut shop].map(|fleet| {
            let known = fleet.fill();
            (known, fleet.figures())
        });
        mail.fill();
        for (name, file) in [("shop", "shop"), ("", "unnamed")] {
            let args = ["export", "-n", name, "-o", &home.text(file)];
            let (said, error) = home.says("data", &args);
            assert!(
                said.is_empty() && error.contains(" 1 schedule, 1 batch as of"),
                "{error}"
            );
        }
        home.says("data", &["export", "-o", &home.text("all")]);
        let error = home.refused("data", &["-n", "none", "export"], 1);
        assert!(error.contains("there is no namespace none"), "{error}");
        drop((unnamed, shop, mail));
        stop(daemon);
        Self {
            home,
            shop: of_shop.0,
            of_shop: of_shop.1,
            unnamed: of_unnamed.0,
            of_unnamed: of_unnamed.1,
        }
    }

    /// Serves the data in a directory with this namespace, in which the fleet of `shop` goes on.
    #[track_caller]
    fn goes_on(&self, place: &str, name: &'static str, keeps_handles: bool) {
        let daemon = served(&self.home, place, &[name]);
        let mut fleet = Fleet::at(&daemon, 1, name);
        assert_eq!(fleet.figures(), self.of_shop, "{place}");
        fleet.works(&self.shop, keeps_handles);
        stop(daemon);
    }
}

#[test]
fn an_export_of_a_namespace_has_its_lines_and_nothing_of_others() {
    let three = Three::new();
    let home = &three.home;
    let all = home.lines("all");
    let stopped = |name: &str| {
        let (text, _) = home.says("data", &["export", "--namespace", name]);
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.collect::<Vec<Value>>()
    };
    for (name, file) in [("shop", "shop"), ("", "unnamed")] {
        let lines = home.lines(file);
        assert_eq!(things(&lines, None), things(&all, Some(name)), "{name}");
        assert_eq!(things(&stopped(name), None), things(&lines, None), "{name}");
        let (first, last) = (&lines[0], lines.last().unwrap());
        assert_eq!(first["commit"].as_u64(), all[0]["commit"].as_u64());
        let count = |kind: &str| lines.iter().filter(|line| line.get(kind).is_some()).count();
        for (kind, many) in [
            ("job", "jobs"),
            ("queue_settings", "queues"),
            ("day", "days"),
        ] {
            assert_eq!(last[many], count(kind), "{name} {many}");
        }
        assert_eq!((count("day"), count("engine")), (0, 1), "{name}");
        let pushed = last["jobs"].as_u64();
        assert_eq!(
            lines[1]["pushed"].as_u64(),
            pushed,
            "no job has ended: its own counters"
        );
        let text = fs::read_to_string(home.path(file)).unwrap();
        let bodies = lines.iter().filter_map(|line| line["body_base64"].as_str());
        let bodies = bodies.map(|body| BASE64_STANDARD.decode(body).unwrap());
        let others = ["shop", "mail"].into_iter().filter(|other| *other != name);
        for other in others {
            assert!(!text.contains(other), "{name}: {text}");
            let of = format!("of {other}").into_bytes();
            let is_of = |body: Vec<u8>| body.windows(of.len()).any(|part| part == of);
            assert!(!bodies.clone().any(is_of), "{name}");
        }
    }
    let error = home.refused("data", &["export", "-n", "none"], 1);
    assert!(error.contains("there is no namespace none"), "{error}");
}

#[test]
fn a_whole_export_is_restored_with_its_namespaces() {
    let three = Three::new();
    let home = &three.home;
    let all = home.lines("all");
    let written = |place: &str| {
        home.says(place, &["export", "-o", &home.text("again")]);
        home.lines("again")
    };
    home.says("restored/data", &["import", "jsonl", &home.text("all")]);
    let restored = written("restored/data");
    assert_eq!(things(&restored, None), things(&all, None));
    three.goes_on("restored", "shop", true);
    // Jobs that are there already do not disturb. They take numbers of the exported ones.
    fs::write(home.path("one"), "{\"queue\":\"resize\",\"body\":\"x\"}\n").unwrap();
    home.says("added/data", &["import", "jsonl", &home.text("one")]);
    let (said, _) = home.says("added/data", &["import", "jsonl", &home.text("all")]);
    assert!(
        said.contains("without counters") && !said.contains("left"),
        "{said}"
    );
    let many = |lines: &[Value]| {
        lines
            .iter()
            .filter(|line| line.get("job").is_some())
            .count()
    };
    assert_eq!(many(&written("added/data")), many(&all) + 1);
    three.goes_on("added", "shop", false);
}

#[test]
fn a_fleet_moves_into_a_namespace_of_another_store() {
    let three = Three::new();
    let home = &three.home;
    let shop = home.text("shop");
    home.says("fresh/data", &["import", "jsonl", &shop]);
    three.goes_on("fresh", "shop", true);
    let (said, _) = home.says(
        "same/data",
        &["import", "jsonl", "--namespace", "shop", &shop],
    );
    assert!(!said.contains("left"), "{said}");
    three.goes_on("same", "shop", true);
    home.says("renamed/data", &["import", "-n", "other", "jsonl", &shop]);
    home.says("renamed/data", &["export", "-o", &home.text("moved")]);
    let text = fs::read_to_string(home.path("moved")).unwrap();
    assert!(
        !text.contains("\"shop\"") && !text.contains("mail"),
        "{text}"
    );
    three.goes_on("renamed", "other", true);
    // A daemon without namespaces becomes one of a shared daemon, where clients use the same names already.
    let unnamed = home.text("unnamed");
    home.says("fresh/data", &["import", "jsonl", "-n", "old", &unnamed]);
    let daemon = served(home, "fresh", &["shop", "old"]);
    let mut old = Fleet::at(&daemon, 2, "old");
    assert_eq!(old.figures(), three.of_unnamed);
    old.works(&three.unnamed, false);
    let none = Fleet::at(&daemon, 0, "").figures();
    assert_eq!(
        (&none["waiting"], &none["schedules"]),
        (&0.into(), &0.into()),
        "{none}"
    );
}

#[test]
fn a_fleet_is_copied_within_a_store() {
    let three = Three::new();
    let home = &three.home;
    let shop = home.text("shop");
    for expected in ["without counters", "imported earlier"] {
        let (said, _) = home.says("data", &["import", "jsonl", &shop, "-n", "copy"]);
        assert!(said.contains(expected), "{said}");
    }
    let daemon = served(home, ".", &["shop", "copy"]);
    let (mut source, mut copy) = (Fleet::at(&daemon, 1, "shop"), Fleet::at(&daemon, 2, "copy"));
    assert_eq!(source.figures(), three.of_shop);
    assert_eq!(copy.figures(), three.of_shop);
    copy.works(&three.shop, false);
    assert_eq!(source.figures(), three.of_shop, "the copy is apart");
    source.works(&three.shop, true);
    stop(daemon);
    // Of several namespaces none is the one to import.
    let error = home.refused("new", &["import", "jsonl", "-n", "x", &home.text("all")], 2);
    assert!(
        error.contains("it has 3 namespaces (\"\", \"mail\", \"shop\")"),
        "{error}"
    );
    let error = home.refused("new", &["import", "jsonl", "-n", "../x", &shop], 2);
    assert!(error.contains("letters, digits"), "{error}");
    assert!(!home.path("new").exists());
}

#[test]
fn limits_go_with_a_namespace_and_stay_with_one_that_is_there() {
    let home = Home::new();
    let daemon = served(&home, ".", &[]);
    for line in ["namespace set shop --jobs-max 7", "-n shop push q x"] {
        home.says("data", &line.split(' ').collect::<Vec<_>>());
    }
    home.says("data", &["-n", "shop", "export", "-o", &home.text("shop")]);
    home.says("data", &["namespace", "set", "there", "--jobs-max", "9"]);
    stop(daemon);
    for name in ["new", "there"] {
        home.says("data", &["import", "jsonl", "-n", name, &home.text("shop")]);
    }
    let daemon = served(&home, ".", &[]);
    let rows = Http(daemon.address("http"))
        .get("/api/v1/namespaces")
        .json();
    let rows = rows["namespaces"].as_array().unwrap().iter();
    let limit = |row: &Value| {
        (
            row["name"].clone(),
            row["limits"]["jobs_max"].clone(),
            row["jobs"].clone(),
        )
    };
    let limits: Vec<_> = rows.skip(1).map(limit).collect();
    let row = |name: &str, jobs_max: u64| (name.into(), jobs_max.into(), 1.into());
    assert_eq!(limits, [row("shop", 7), row("there", 9), row("new", 7)]);
}
