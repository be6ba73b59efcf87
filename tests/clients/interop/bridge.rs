//! `windlass bridge` from Debian's gearmand, with stock clients at the old server and stock workers at the daemon.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Output};

use windlass_gearman::wire::{AssignForm, Kind, Request, Response};

use super::peers::GEAR;
use super::stage::Stage;
use crate::client::installed;
use crate::common::{Peer, submission, wait_until};
use crate::programs::{Running, printed, stock};

/// A gearmand.
struct Gearmand {
    address: SocketAddr,
    _running: Running,
}

impl Gearmand {
    fn start(dir: &Path) -> Self {
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .unwrap()
            .local_addr()
            .unwrap();
        let mut command = Command::new(installed("gearmand/gearmand"));
        command.env("LD_LIBRARY_PATH", installed("gearmand"));
        command.args(["--listen=127.0.0.1", "--verbose=ERROR", "--log-file=stderr"]);
        command
            .arg(format!("--port={}", address.port()))
            .arg(format!("--pid-file={}", dir.join("pid").display()));
        let running = Running::start(&mut command);
        wait_until("gearmand serves", || {
            Peer::connect(address).is_ok_and(|mut peer| peer.line("version").is_ok())
        });
        Self {
            address,
            _running: running,
        }
    }
}

fn bridge(old: &Gearmand, stage: &Stage, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command
        .arg("bridge")
        .arg(format!("--from=gearman://{}", old.address));
    command
        .arg(format!("--to=gearman://{}", stage.address()))
        .args(options);
    command
}

fn empty(old: &Gearmand, stage: &Stage) -> Output {
    let output = bridge(old, stage, &["--until-empty=1s"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output
}

fn total(peer: &mut Peer, function: &str) -> u64 {
    let rows = peer.listing("status").unwrap();
    let row = rows
        .iter()
        .find_map(|row| row.strip_prefix(&format!("{function}\t")));
    row.map_or(0, |row| row.split('\t').next().unwrap().parse().unwrap())
}

#[test]
fn background_jobs_of_the_stock_client_reach_stock_workers() {
    let stage = Stage::new();
    let old = Gearmand::start(stage.dir());
    let body: String = (0..100).map(|job| format!("job {job}\n")).collect();
    printed(
        stock("gearman", old.address).args(["-b", "-n", "-f", "note"]),
        body.as_bytes(),
    );
    empty(&old, &stage);
    let notes = stage.dir().join("notes");
    let note = format!("cat >> {0}; echo >> {0}", notes.display());
    let _worker = Running::start(
        stock("gearman", stage.address()).args(["-w", "-f", "note", "--", "sh", "-c", &note]),
    );
    let text = || std::fs::read_to_string(&notes).unwrap_or_default();
    wait_until("all jobs run", || {
        text().lines().filter(|line| !line.is_empty()).count() == 100
    });
    assert!(text().contains("job 0") && text().contains("job 99"));
    assert_eq!(total(&mut Peer::connect(old.address).unwrap(), "note"), 0);
}

#[test]
fn a_bridge_that_is_killed_loses_no_job_of_gearmand() {
    let stage = Stage::new();
    let old = Gearmand::start(stage.dir());
    let mut client = Peer::connect(old.address).unwrap();
    (0..1_000).for_each(|job| {
        drop(
            client
                .submit("note", &format!("u{job}"), format!("{job}"))
                .unwrap(),
        )
    });
    let mut there = Peer::connect(stage.address()).unwrap();
    for round in 1..=3 {
        let running = Running::start(&mut bridge(&old, &stage, &[]));
        wait_until("some jobs have moved", || {
            total(&mut there, "note") >= round * 150
        });
        running.kill();
    }
    empty(&old, &stage);
    assert_eq!(
        (total(&mut client, "note"), total(&mut there, "note")),
        (0, 1_000),
        "each once"
    );
}

#[test]
fn a_reducer_is_kept() {
    let stage = Stage::new();
    let old = Gearmand::start(stage.dir());
    let mut client = Peer::connect(old.address).unwrap();
    let Request::Submit { job, .. } = submission("map", "u", "w", true) else {
        unreachable!()
    };
    let reduce = Request::SubmitReduce {
        job,
        reducer: "sum".into(),
        aggregate: Some("".into()),
        background: true,
    };
    client.send(&reduce).unwrap();
    assert_eq!(client.packet().unwrap().kind, Kind::JOB_CREATED);
    empty(&old, &stage);
    let mut worker = Peer::connect(stage.address()).unwrap();
    worker.can_do("map").unwrap();
    worker.send(&Request::Grab(AssignForm::All)).unwrap();
    let packet = worker.packet().unwrap();
    let Ok(Response::JobAssignAll {
        function,
        unique,
        reducer,
        workload,
        ..
    }) = Response::parse(&packet)
    else {
        panic!("{packet:?}")
    };
    assert_eq!(
        [function, unique, reducer, workload],
        [&b"map"[..], b"u", b"sum", b"w"]
    );
}

#[test]
fn a_client_that_waits_at_the_old_server_gets_an_empty_result() {
    let stage = Stage::new();
    let old = Gearmand::start(stage.dir());
    let _running = Running::start(&mut bridge(&old, &stage, &[]));
    assert_eq!(
        printed(
            stock("gearman", old.address).args(["-t", "60000", "-f", "echo", "text"]),
            b""
        ),
        ""
    );
    let _worker = GEAR.worker(stage.address());
    let mut there = Peer::connect(stage.address()).unwrap();
    wait_until("the job runs", || total(&mut there, "echo") == 0);
}
