//! `windlass bridge` between two running daemons: the one with the old jobs stands for the old broker.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, Output, Stdio};

use bytes::Bytes;
use tempfile::{TempDir, tempdir};
use windlass_gearman::wire::{Report, Request};
use windlass_testkit::daemon::Daemon;

use crate::common::eventmq::Peer as Emq;
use crate::common::faktory::Fwp;
use crate::common::{Peer, daemon, submission, wait_until};

/// Two daemons that serve all protocols.
struct Stage {
    old: Daemon,
    new: Daemon,
    _dirs: [TempDir; 2],
}

impl Stage {
    fn new() -> Self {
        Self::with("", "")
    }

    /// With more of the configuration, as TOML. Sections of EventMQ cannot be among it.
    fn with(old: &str, new: &str) -> Self {
        let dirs = [tempdir().unwrap(), tempdir().unwrap()];
        let [old, new] = [(&dirs[0], old), (&dirs[1], new)]
            .map(|(dir, toml)| daemon(dir.path()).set(toml).eventmq("").start());
        Self {
            old,
            new,
            _dirs: dirs,
        }
    }

    fn bridge(&self, protocol: &str, options: &[&str]) -> Command {
        bridge(
            protocol,
            self.old.address(protocol),
            self.new.address(protocol),
            options,
        )
    }

    /// Runs the bridge until the old daemon has nothing, and returns its output.
    fn empty(&self, protocol: &str, options: &[&str]) -> Output {
        self.bridge(protocol, &[&["--until-empty=1s"], options].concat())
            .output()
            .unwrap()
    }
}

fn bridge(protocol: &str, old: SocketAddr, new: SocketAddr, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command
        .arg("bridge")
        .arg(format!("--from={protocol}://{old}"))
        .arg(format!("--to={protocol}://{new}"));
    command
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// The output of a bridge that has moved everything.
fn all_moved(output: &Output, jobs: usize) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    assert!(
        said.contains(&format!(
            "{} moved",
            windlass_config::counted(jobs as u64, "job")
        )),
        "{said}"
    );
}

/// A bridge that is killed when the test ends.
struct Running(Child);

impl Running {
    fn start(mut command: Command) -> Self {
        Self(command.spawn().unwrap())
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    fn stop(mut self) -> Output {
        let sent = Command::new("kill")
            .arg("-TERM")
            .arg(self.0.id().to_string())
            .status()
            .unwrap();
        assert!(sent.success());
        let child = std::mem::replace(&mut self.0, Command::new("true").spawn().unwrap());
        child.wait_with_output().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

// ---- Gearman --------------------------------------------------------------------------------------------------------

/// All jobs of functions, by workload, with how often each is there.
fn gearman_jobs(address: SocketAddr, functions: &[&str]) -> BTreeMap<String, usize> {
    let mut worker = Peer::connect(address).unwrap();
    functions
        .iter()
        .for_each(|function| worker.can_do(function).unwrap());
    let mut jobs = BTreeMap::new();
    while let Some(job) = worker.grab().unwrap() {
        *jobs
            .entry(String::from_utf8(job.workload.to_vec()).unwrap())
            .or_default() += 1;
        worker.complete(&job.handle).unwrap();
    }
    jobs
}

/// The `status` row of a function: jobs in total.
fn gearman_total(peer: &mut Peer, function: &str) -> u64 {
    let rows = peer.listing("status").unwrap();
    let row = rows
        .iter()
        .find_map(|row| row.strip_prefix(&format!("{function}\t")));
    row.map_or(0, |row| row.split('\t').next().unwrap().parse().unwrap())
}

#[test]
fn gearman_jobs_of_all_functions_move() {
    let stage = Stage::new();
    let mut client = Peer::connect(stage.old.address("gearman")).unwrap();
    for job in 0..300 {
        client
            .submit(
                ["mail", "resize"][job % 2],
                &format!("u{job}"),
                format!("job {job}"),
            )
            .unwrap();
    }
    client.submit("mail", "", "without a unique id").unwrap();
    all_moved(&stage.empty("gearman", &[]), 301);
    let jobs = gearman_jobs(stage.new.address("gearman"), &["mail", "resize"]);
    assert_eq!((jobs.len(), jobs.values().max()), (301, Some(&1)));
    assert!(jobs.contains_key("without a unique id") && jobs.contains_key("job 299"));
    assert_eq!(
        gearman_jobs(stage.old.address("gearman"), &["mail", "resize"]),
        BTreeMap::new()
    );
}

#[test]
fn the_bridge_takes_only_the_named_queues() {
    let stage = Stage::new();
    let mut client = Peer::connect(stage.old.address("gearman")).unwrap();
    client.submit("mail", "a", "moves").unwrap();
    client.submit("resize", "b", "stays").unwrap();
    all_moved(
        &stage.empty("gearman", &["--queue", "mail", "--jobs", "2"]),
        1,
    );
    assert_eq!(gearman_total(&mut client, "resize"), 1);
    assert_eq!(
        gearman_jobs(stage.new.address("gearman"), &["mail", "resize"]).len(),
        1
    );
}

#[test]
fn gearman_jobs_outlive_a_killed_bridge() {
    let stage = Stage::new();
    let mut client = Peer::connect(stage.old.address("gearman")).unwrap();
    for job in 0..1_500 {
        client
            .submit("mail", &format!("u{job}"), format!("job {job}"))
            .unwrap();
    }
    let mut there = Peer::connect(stage.new.address("gearman")).unwrap();
    for round in 1..=3 {
        let mut bridge = Running::start(stage.bridge("gearman", &[]));
        wait_until("some jobs have moved", || {
            gearman_total(&mut there, "mail") >= round * 200
        });
        bridge.kill();
    }
    assert!(stage.empty("gearman", &[]).status.success());
    let jobs = gearman_jobs(stage.new.address("gearman"), &["mail"]);
    assert_eq!(
        (jobs.len(), jobs.values().max()),
        (1_500, Some(&1)),
        "jobs with a unique id are recognised"
    );
    assert_eq!(gearman_total(&mut client, "mail"), 0);
}

#[test]
fn a_producer_still_feeds_the_old_broker_until_the_bridge_is_stopped() {
    let stage = Stage::new();
    let bridge = Running::start(stage.bridge("gearman", &["--jobs", "4"]));
    let mut client = Peer::connect(stage.old.address("gearman")).unwrap();
    let mut there = Peer::connect(stage.new.address("gearman")).unwrap();
    for function in ["first", "second"] {
        client.submit(function, "", "w").unwrap();
        wait_until("a function that is new", || {
            gearman_total(&mut there, function) == 1
        });
    }
    all_moved(&bridge.stop(), 2);
}

#[test]
fn a_refused_job_stays_with_the_old_broker_until_it_is_accepted() {
    let stage = Stage::with("", "[limits]\njobs_max = 2");
    let mut client = Peer::connect(stage.old.address("gearman")).unwrap();
    for job in 0..5 {
        client.submit("mail", "", format!("job {job}")).unwrap();
    }
    let bridge = Running::start(stage.bridge("gearman", &["--jobs", "2", "--until-empty=1s"]));
    let mut there = Peer::connect(stage.new.address("gearman")).unwrap();
    wait_until("the queue is full", || {
        gearman_total(&mut there, "mail") == 2
    });
    wait_until("two are acknowledged", || {
        gearman_total(&mut client, "mail") == 3
    });
    let mut found = 0;
    wait_until("all jobs", || {
        found += gearman_jobs(stage.new.address("gearman"), &["mail"]).len();
        found == 5
    });
    let mut bridge = bridge;
    wait_until("the bridge ends", || {
        bridge
            .0
            .try_wait()
            .unwrap()
            .is_some_and(|status| status.success())
    });
    assert_eq!(gearman_total(&mut client, "mail"), 0);
}

#[test]
fn a_bridge_that_is_stopped_leaves_refused_jobs() {
    let stage = Stage::with("", "[limits]\njobs_max = 1");
    let mut client = Peer::connect(stage.old.address("gearman")).unwrap();
    (0..3).for_each(|job| drop(client.submit("mail", "", format!("job {job}")).unwrap()));
    let bridge = Running::start(stage.bridge("gearman", &["--jobs", "1"]));
    let mut there = Peer::connect(stage.new.address("gearman")).unwrap();
    wait_until("the queue is full", || {
        gearman_total(&mut there, "mail") == 1 && gearman_total(&mut client, "mail") == 2
    });
    wait_until("a job is in hand", || {
        client
            .listing("status")
            .unwrap()
            .contains(&"mail\t2\t1\t1".to_owned())
    });
    let output = bridge.stop();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(
        said.contains("QUEUE_ERROR") && said.contains("1 job left with"),
        "{said}"
    );
    assert_eq!(
        gearman_jobs(stage.old.address("gearman"), &["mail"]).len(),
        2
    );
}

#[test]
fn the_bridge_waits_for_both_sides() {
    let mut stage = Stage::new();
    let mut client = Peer::connect(stage.old.address("gearman")).unwrap();
    client.submit("mail", "a", "w").unwrap();
    let (old, new) = (stage.old.address("gearman"), stage.new.address("gearman"));
    stage.new.kill();
    let bridge = Running::start(bridge("gearman", old, new, &["--jobs", "2"]));
    // It takes no job that it could not push.
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(client.listing("status").unwrap(), ["mail\t1\t0\t0"]);
    let output = bridge.stop();
    assert!(output.status.success());
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("refused"),
        "{output:?}"
    );
}

/// The next packet about a job, as its kind and its last argument.
fn told(client: &mut Peer) -> (String, String) {
    let packet = client.packet().unwrap();
    let last = packet
        .body
        .rsplit(|byte| *byte == 0)
        .next()
        .unwrap_or_default();
    (
        packet.kind.name().to_owned(),
        String::from_utf8_lossy(last).into_owned(),
    )
}

/// Submits a job, whose result the client waits for.
fn wait(client: &mut Peer, workload: &'static str) {
    client
        .send(&submission("resize", "", workload, false))
        .unwrap();
    assert_eq!(told(client).0, "JOB_CREATED");
}

#[test]
fn clients_that_wait_at_the_old_gearman_get_results() {
    let stage = Stage::new();
    let bridge = Running::start(stage.bridge("gearman", &["--results", "--queue", "resize"]));
    let mut client = Peer::connect(stage.old.address("gearman")).unwrap();
    client
        .send(&Request::SetOption {
            name: "exceptions".into(),
        })
        .unwrap();
    assert_eq!(told(&mut client).1, "exceptions");
    let mut worker = Peer::connect(stage.new.address("gearman")).unwrap();
    worker.can_do("resize").unwrap();
    let mut work = |ends: fn(Bytes) -> Vec<Request>| {
        let mut job = None;
        wait_until("a job", || {
            job = worker.grab().unwrap();
            job.is_some()
        });
        let job = job.unwrap();
        ends(job.handle)
            .iter()
            .for_each(|request| worker.send(request).unwrap());
        job.workload
    };
    wait(&mut client, "cat");
    let cat = work(|handle| {
        let (numerator, denominator) = ("1".into(), "2".into());
        vec![
            Request::Work {
                handle: handle.clone(),
                report: Report::Status {
                    numerator,
                    denominator,
                },
            },
            Request::Work {
                handle: handle.clone(),
                report: Report::Data("half".into()),
            },
            Request::Work {
                handle: handle.clone(),
                report: Report::Warning("grey".into()),
            },
            Request::Work {
                handle,
                report: Report::Complete("small cat".into()),
            },
        ]
    });
    assert_eq!(cat, "cat");
    let expected = [
        ("WORK_STATUS", "2"),
        ("WORK_DATA", "half"),
        ("WORK_WARNING", "grey"),
        ("WORK_COMPLETE", "small cat"),
    ];
    for (kind, last) in expected {
        assert_eq!(told(&mut client), (kind.to_owned(), last.to_owned()));
    }
    wait(&mut client, "dog");
    work(|handle| {
        vec![Request::Work {
            handle,
            report: Report::Fail,
        }]
    });
    assert_eq!(told(&mut client).0, "WORK_FAIL");
    wait(&mut client, "eel");
    work(|handle| {
        vec![Request::Work {
            handle,
            report: Report::Exception("too long".into()),
        }]
    });
    assert_eq!(
        told(&mut client),
        ("WORK_EXCEPTION".to_owned(), "too long".to_owned())
    );
    all_moved(&bridge.stop(), 3);
}

#[test]
fn a_job_whose_result_is_awaited_comes_again_after_a_killed_bridge() {
    let stage = Stage::new();
    let mut client = Peer::connect(stage.old.address("gearman")).unwrap();
    wait(&mut client, "cat");
    let mut worker = Peer::connect(stage.new.address("gearman")).unwrap();
    worker.can_do("resize").unwrap();
    let mut taken = || {
        let mut job = None;
        wait_until("a job", || {
            job = worker.grab().unwrap();
            job.is_some()
        });
        job.unwrap().handle
    };
    let mut bridge = Running::start(stage.bridge("gearman", &["--results"]));
    let lost = taken();
    bridge.kill();
    wait_until("it is back there", || {
        client
            .listing("status")
            .unwrap()
            .contains(&"resize\t1\t0\t0".to_owned())
    });
    let bridge = Running::start(stage.bridge("gearman", &["--results"]));
    let again = taken();
    assert_ne!(lost, again);
    worker
        .send(&Request::Work {
            handle: again,
            report: Report::Complete("small".into()),
        })
        .unwrap();
    assert_eq!(
        told(&mut client),
        ("WORK_COMPLETE".to_owned(), "small".to_owned())
    );
    all_moved(&bridge.stop(), 1);
}

/// An address that stays free while a daemon is down: no other test uses this host.
fn free_address(host: u8) -> SocketAddr {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    TcpListener::bind((Ipv4Addr::new(127, high, low, host), 0))
        .unwrap()
        .local_addr()
        .unwrap()
}

#[test]
fn jobs_outlive_crashes_of_either_daemon() {
    let section = |host| format!("[gearman]\nlisten = [\"{}\"]", free_address(host));
    let mut stage = Stage::with(&section(201), &section(202));
    let (old, new) = (stage.old.address("gearman"), stage.new.address("gearman"));
    let mut client = Peer::connect(old).unwrap();
    for job in 0..1_000 {
        client
            .submit("mail", &format!("u{job}"), format!("job {job}"))
            .unwrap();
    }
    let mut bridge = Running::start(bridge("gearman", old, new, &["--until-empty=3s"]));
    for round in 1..=4 {
        let mut there = Peer::connect(new).unwrap();
        wait_until("some jobs have moved", || {
            gearman_total(&mut there, "mail") >= round * 100
        });
        let daemon = if round % 2 == 0 {
            &mut stage.old
        } else {
            &mut stage.new
        };
        daemon.kill();
        daemon.restart();
    }
    wait_until("the bridge ends", || {
        bridge
            .0
            .try_wait()
            .unwrap()
            .is_some_and(|status| status.success())
    });
    let jobs = gearman_jobs(new, &["mail"]);
    assert_eq!((jobs.len(), jobs.values().max()), (1_000, Some(&1)));
    assert_eq!(gearman_total(&mut Peer::connect(old).unwrap(), "mail"), 0);
}

// ---- Faktory --------------------------------------------------------------------------------------------------------

const JOB: &str = r#"{"jid":"JID","queue":"QUEUE","jobtype":"Mail","args":[1.0,"é"],"retry":3,"reserve_for":600,"custom":{"a":{"b":1}},"priority":7}"#;

fn push(fwp: &mut Fwp, jid: &str, queue: &str) {
    assert_eq!(
        fwp.ask(&format!(
            "PUSH {}",
            JOB.replace("JID", jid).replace("QUEUE", queue)
        )),
        "+OK"
    );
}

/// All jobs of a queue, by jid, with how often each is there.
fn faktory_jobs(address: SocketAddr, queue: &str) -> BTreeMap<String, usize> {
    let mut worker = Fwp::connect(address);
    let mut jobs = BTreeMap::new();
    while queue_size(&mut worker, queue) > 0 {
        let job: serde_json::Value =
            serde_json::from_str(&worker.ask(&format!("FETCH {queue}"))).unwrap();
        let jid = job["jid"].as_str().unwrap().to_owned();
        assert_eq!(worker.ask(&format!("ACK {{\"jid\":\"{jid}\"}}")), "+OK");
        *jobs.entry(jid).or_default() += 1;
    }
    jobs
}

fn info(fwp: &mut Fwp) -> serde_json::Value {
    serde_json::from_str(&fwp.ask("INFO")).unwrap()
}

fn queue_size(fwp: &mut Fwp, queue: &str) -> u64 {
    info(fwp)["faktory"]["queues"][queue].as_u64().unwrap_or(0)
}

fn busy(fwp: &mut Fwp) -> u64 {
    info(fwp)["faktory"]["tasks"]["Busy"]["size"]
        .as_u64()
        .unwrap()
}

#[test]
fn faktory_jobs_of_all_queues_move_with_everything_they_have() {
    let stage = Stage::with(
        "[faktory]\nlisten = [\"127.0.0.1:0\"]\npassword = \"old secret\"",
        "",
    );
    let dir = tempdir().unwrap();
    let password = dir.path().join("password");
    std::fs::write(&password, "old secret\n").unwrap();
    let (mut old, said) = Fwp::hello(stage.old.address("faktory"), "old secret");
    assert_eq!(said, "+OK");
    (0..200).for_each(|job| {
        push(
            &mut old,
            &format!("job-{job:04}"),
            ["mail", "default"][job % 2],
        )
    });
    assert_eq!(
        old.ask(r#"PUSH {"jid":"later-001","jobtype":"t","args":[],"at":"2100-01-01T00:00:00Z"}"#),
        "+OK"
    );
    let refused = stage.empty("faktory", &[]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    all_moved(
        &stage.empty("faktory", &["--from-password", password.to_str().unwrap()]),
        200,
    );

    let mut new = Fwp::connect(stage.new.address("faktory"));
    let job: serde_json::Value = serde_json::from_str(&new.ask("FETCH mail")).unwrap();
    let sent: serde_json::Value =
        serde_json::from_str(&JOB.replace("JID", "job-0000").replace("QUEUE", "mail")).unwrap();
    for (key, value) in sent
        .as_object()
        .unwrap()
        .iter()
        .filter(|(key, _)| *key != "jid")
    {
        assert_eq!(&job[key], value, "{key}");
    }
    assert_eq!(faktory_jobs(stage.new.address("faktory"), "mail").len(), 99);
    assert_eq!(
        faktory_jobs(stage.new.address("faktory"), "default").len(),
        100
    );
    let left = info(&mut old);
    assert_eq!(
        (&left["faktory"]["total_enqueued"], busy(&mut old)),
        (&0.into(), 0)
    );
    assert_eq!(
        left["faktory"]["tasks"]["Scheduled"]["size"], 1,
        "a scheduled job stays"
    );
}

#[test]
fn faktory_jobs_outlive_a_killed_bridge() {
    let stage = Stage::with(
        "[faktory]\nlisten = [\"127.0.0.1:0\"]\nreserve_min = \"1s\"",
        "",
    );
    let mut old = Fwp::connect(stage.old.address("faktory"));
    let job = |number: usize| {
        JOB.replace("600", "2")
            .replace("QUEUE", "q")
            .replace("JID", &format!("job-{number:04}"))
    };
    (0..1_000).for_each(|number| assert_eq!(old.ask(&format!("PUSH {}", job(number))), "+OK"));
    let mut new = Fwp::connect(stage.new.address("faktory"));
    for round in 1..=3 {
        let mut bridge = Running::start(stage.bridge("faktory", &[]));
        wait_until("some jobs have moved", || {
            queue_size(&mut new, "q") >= round * 150
        });
        bridge.kill();
    }
    // A job in hand is retried there after its reservation.
    wait_until("nothing is in hand", || busy(&mut old) == 0);
    assert_eq!(
        old.ask(r#"MUTATE {"cmd":"requeue","target":"retries"}"#),
        "+OK"
    );
    assert!(stage.empty("faktory", &[]).status.success());
    let jobs = faktory_jobs(stage.new.address("faktory"), "q");
    assert_eq!(
        (jobs.len(), jobs.values().max()),
        (1_000, Some(&1)),
        "a jid is recognised"
    );
}

#[test]
fn a_faktory_job_that_cannot_be_accepted_is_left() {
    let stage = Stage::new();
    let mut old = Fwp::connect(stage.old.address("faktory"));
    let bid = old.ask(r#"BATCH NEW {"description":"d","success":{"jobtype":"t","args":[]}}"#);
    let in_batch = format!(
        r#"PUSH {{"jid":"in-batch-1","jobtype":"t","args":[],"custom":{{"bid":"{bid}"}}}}"#
    );
    assert_eq!(old.ask(&in_batch), "+OK");
    push(&mut old, "outside-1", "default");
    let output = stage.empty("faktory", &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(
        said.contains("left: jid \"in-batch-1\"")
            && said.contains("No such batch")
            && said.contains("1 job moved"),
        "{said}"
    );
    assert_eq!(busy(&mut old), 1, "its reservation lasts");
}

#[test]
fn an_operator_of_the_old_faktory_stops_the_bridge() {
    let stage = Stage::new();
    let url = format!("--url=http://{}", stage.old.address("http"));
    let mut bridge = Running::start(stage.bridge("faktory", &["--jobs", "2"]));
    let operate = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_windlass"))
            .args(words)
            .arg(&url)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    wait_until("the worker is known", || {
        operate(&["workers"]).contains("windlass-bridge")
    });
    operate(&["stop", "--all"]);
    wait_until("the bridge ends", || {
        bridge
            .0
            .try_wait()
            .unwrap()
            .is_some_and(|status| status.success())
    });
}

// ---- EventMQ --------------------------------------------------------------------------------------------------------

/// All jobs of queues, by body, with how often each is there.
fn eventmq_jobs(address: SocketAddr, queues: &str, count: usize) -> BTreeMap<String, usize> {
    let mut worker = Emq::worker(address, "taker", queues);
    let mut jobs = BTreeMap::new();
    for _ in 0..count {
        worker.ready(1);
        let request = worker.hear().unwrap();
        let [command, id, _, _, body] = &request[..] else {
            panic!("{request:?}")
        };
        assert_eq!(command, "REQUEST");
        worker.say(&["REPLY", "r", "{\"value\": 1}", id]).unwrap();
        *jobs.entry(format!("{id} {body}")).or_default() += 1;
    }
    // No reply acknowledges the last one, and the end of a connection can overtake it: this one lasts as long as the test.
    std::mem::forget(worker);
    jobs
}

/// Jobs in the daemon, whatever their state.
fn jobs_in(daemon: &Daemon) -> u64 {
    let url = format!("--url=http://{}", daemon.address("http"));
    let output = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["status", "--json", &url])
        .output()
        .unwrap();
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    // The ends of EventMQ's jobs are kept for a minute, for clients that are away.
    status["jobs"].as_u64().unwrap() - status["states"]["done"].as_u64().unwrap()
}

#[test]
fn eventmq_jobs_move_with_their_identifiers() {
    let stage = Stage::new();
    let mut client = Emq::connect(stage.old.address("eventmq"), "client");
    (0..100).for_each(|job| {
        client.request(
            &format!("m{job}"),
            ["default", "mail"][job % 2],
            "timeout:30",
            &format!("[{job}]"),
        )
    });
    all_moved(
        &stage.empty("eventmq", &["--queue", "default", "--queue", "mail"]),
        100,
    );
    let jobs = eventmq_jobs(
        stage.new.address("eventmq"),
        "[[10,\"mail\"],[10,\"default\"]]",
        100,
    );
    assert_eq!((jobs.len(), jobs.contains_key("m99 [99]")), (100, true));
    // No reply acknowledges a worker's result.
    wait_until("no daemon has a job", || {
        (jobs_in(&stage.old), jobs_in(&stage.new)) == (0, 0)
    });
}

#[test]
fn eventmq_jobs_outlive_a_killed_bridge() {
    let stage = Stage::new();
    let mut client = Emq::connect(stage.old.address("eventmq"), "client");
    (0..1_000)
        .for_each(|job| client.request(&format!("m{job}"), "default", "", &format!("[{job}]")));
    for round in 1..=3 {
        let mut bridge = Running::start(stage.bridge("eventmq", &[]));
        wait_until("some jobs have moved", || {
            jobs_in(&stage.new) >= round * 150
        });
        bridge.kill();
    }
    let output = stage.empty("eventmq", &[]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!((jobs_in(&stage.old), jobs_in(&stage.new)), (0, 1_000));
    let jobs = eventmq_jobs(stage.new.address("eventmq"), "[[10,\"default\"]]", 1_000);
    assert_eq!(jobs.len(), 1_000);
}

#[test]
fn eventmq_jobs_that_are_refused_are_printed_at_the_end() {
    let stage = Stage::with("", "[limits]\njobs_max = 1");
    let mut client = Emq::connect(stage.old.address("eventmq"), "client");
    (0..2).for_each(|job| client.request(&format!("m{job}"), "default", "", &format!("[{job}]")));
    let bridge = Running::start(stage.bridge("eventmq", &["--jobs", "1"]));
    wait_until("the queue is full", || {
        jobs_in(&stage.new) == 1 && jobs_in(&stage.old) == 1
    });
    let output = bridge.stop();
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    let line: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (line["queue"].as_str(), line["origin"].as_str()),
        (Some("default"), Some("eventmq"))
    );
    assert_eq!(
        jobs_in(&stage.old),
        1,
        "a router that acknowledges keeps it"
    );
}

#[test]
fn a_client_that_waits_at_the_old_router_gets_its_result() {
    let stage = Stage::new();
    let mut client = Emq::connect(stage.old.address("eventmq"), "client");
    client.request("m1", "default", "reply-requested", "[1]");
    client.request("m2", "default", "", "[2]");
    let bridge = Running::start(stage.bridge("eventmq", &["--results"]));
    assert_eq!(
        eventmq_jobs(stage.new.address("eventmq"), "[[10,\"default\"]]", 2).len(),
        2
    );
    let result = client.hear().unwrap();
    assert_eq!(
        (&*result[0], &*result[2], &*result[3]),
        ("REPLY", "{\"value\": 1}", "m1"),
        "{result:?}"
    );
    all_moved(&bridge.stop(), 2);
}

/// A daemon whose EventMQ addresses demand this, and an address of the old daemon's with a job.
fn moves_into(demand: &str, login: &str, options: &[&str]) -> (Output, u64) {
    let stage = Stage::new();
    Emq::connect(stage.old.address("eventmq"), "client").request("m1", "default", "", "[1]");
    let dir = tempdir().unwrap();
    let new = daemon(dir.path()).eventmq(demand).start();
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command
        .arg("bridge")
        .arg(format!("--from=eventmq://{}", stage.old.address("eventmq")));
    command
        .arg(format!("--to=eventmq://{login}{}", new.address("eventmq")))
        .arg("--until-empty=1s")
        .args(options);
    (command.output().unwrap(), jobs_in(&new))
}

#[test]
fn the_bridge_logs_in_by_user_and_password() {
    let demand = "user = \"ada\"\npassword = \"secret\"\n";
    let (output, jobs) = moves_into(demand, "ada:secret@", &[]);
    all_moved(&output, 1);
    assert_eq!(jobs, 1);
    let (output, jobs) = moves_into(demand, "", &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(1) && said.contains("the broker demands PLAIN"),
        "{output:?}"
    );
    assert_eq!(jobs, 0);
}

#[test]
fn the_bridge_logs_in_by_curve() {
    let dir = tempdir().unwrap();
    let pair = || {
        let output = Command::new(env!("CARGO_BIN_EXE_windlass"))
            .arg("curve-keypair")
            .output()
            .unwrap();
        let [secret, public] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        [
            secret.trim().to_owned(),
            public
                .trim()
                .strip_prefix("public key: ")
                .unwrap()
                .to_owned(),
        ]
    };
    let ([broker_secret, broker], [own_secret, own]) = (pair(), pair());
    let (broker_file, own_file) = (dir.path().join("broker"), dir.path().join("own"));
    std::fs::write(&broker_file, broker_secret).unwrap();
    std::fs::write(&own_file, own_secret).unwrap();
    let any = format!("curve_secret_key_file = {broker_file:?}\n");
    let known = format!("{any}curve_clients = [{own:?}]\n");
    let key = format!("--to-curve={broker}");
    let secret = format!("--to-curve-secret={}", own_file.display());
    for (demand, options) in [(&any, &[&*key][..]), (&known, &[&key, &secret])] {
        let (output, jobs) = moves_into(demand, "", options);
        all_moved(&output, 1);
        assert_eq!(jobs, 1);
    }
}

// ---- usage ----------------------------------------------------------------------------------------------------------

#[test]
fn mistakes_are_refused() {
    let table = [
        (&["--from=http://127.0.0.1:1"][..], "expected gearman://"),
        (&["--from=gearman://127.0.0.1:4730"], "the same address"),
        (
            &["--from=gearman://127.0.0.1:1", "--to=faktory://127.0.0.1:2"],
            "one protocol expected",
        ),
        (&["--from=gearman://127.0.0.1:1", "--jobs=0"], "0"),
        (
            &[
                "--from=gearman://127.0.0.1:1",
                "--from-password=/etc/hostname",
            ],
            "no password",
        ),
        (
            &["--from=gearman://127.0.0.1:1", "--from-ca=/etc/hostname"],
            "gearman+tls:// expected",
        ),
        (
            &[
                "--from=gearman+tls://127.0.0.1:1",
                "--from-ca=/etc/hostname",
            ],
            "no CA certificate",
        ),
        (
            &[
                "--from=gearman+tls://127.0.0.1:1",
                "--from-certificate=/etc/hostname",
            ],
            "--from-key",
        ),
        (
            &[
                "--from=gearman://127.0.0.1:1",
                "--to-certificate=/a",
                "--to-key=/b",
            ],
            "gearman+tls:// expected",
        ),
        (&[], "--from"),
    ];
    for (options, expected) in table {
        let output = Command::new(env!("CARGO_BIN_EXE_windlass"))
            .arg("bridge")
            .args(options)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(2) && said.contains(expected),
            "{options:?}: {said}"
        );
    }
}
