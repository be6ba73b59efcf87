//! Debian's `gearman`, as client and as worker.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use windlass_gearman::wire::{Report, Request};

use super::peers::{GEAR, Held};
use super::stage::Stage;
use crate::common::{Assigned, Peer, wait_until};
use crate::programs::{Running, admin, printed, run, stock};

fn gearman(stage: &Stage, arguments: &[&str]) -> Command {
    let mut command = stock("gearman", stage.address());
    if !arguments.contains(&"-w") {
        // A timeout in milliseconds, so that an error does not block the test for ever.
        command.args(["-t", "60000"]);
    }
    command.args(arguments);
    command
}

/// A worker that pipes jobs through a shell command.
fn worker(stage: &Stage, function: &str, command: &str) -> Running {
    Running::start(&mut gearman(
        stage,
        &["-w", "-f", function, "--", "sh", "-c", command],
    ))
}

#[test]
fn foreground() {
    let stage = Stage::new();
    let _worker = worker(&stage, "wc", "wc -l");
    assert_eq!(
        printed(&mut gearman(&stage, &["-f", "wc"]), b"one\ntwo\nthree\n").trim(),
        "3"
    );
    assert_eq!(
        printed(&mut gearman(&stage, &["-f", "wc"]), b"").trim(),
        "0"
    );
}

/// A megabyte of arbitrary bytes there and back. The program takes seconds to read more; the libgearman tests use
/// larger bodies.
#[test]
fn large() {
    let stage = Stage::new();
    // The worker reads nothing until its command has read everything.
    let kept = stage.dir().join("kept");
    let _worker = worker(
        &stage,
        "cat",
        &format!("cat > {0}; cat {0}", kept.display()),
    );
    let body: Vec<u8> = (0..260_000_u32)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes())
        .collect();
    let output = run(&mut gearman(&stage, &["-f", "cat"]), &body);
    assert!(
        output.stdout == body,
        "not the bytes that were sent: {} {:?}",
        output.stdout.len(),
        output.stderr
    );
}

#[test]
fn failures_and_exceptions_fail_the_client() {
    let stage = Stage::new();
    let _worker = GEAR.worker(stage.address());
    for function in ["fail", "raise"] {
        let output = run(&mut gearman(&stage, &["-f", function]), b"x");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "Job failed\n");
    }
}

#[test]
fn a_failing_command_fails_the_client() {
    let stage = Stage::new();
    let _worker = worker(&stage, "doomed", "exit 1");
    let output = run(&mut gearman(&stage, &["-f", "doomed"]), b"x");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "Job failed\n");
}

/// The requirement from the issue: 10,000 jobs submitted with `gearman -b`, the daemon killed, each job executed.
#[test]
fn ten_thousand_background_jobs_survive_kill_9() {
    const JOBS: usize = 10_000;
    let mut stage = Stage::new();
    let lines: String = (0..JOBS).map(|n| format!("job {n}\n")).collect();
    printed(
        &mut gearman(&stage, &["-b", "-n", "-f", "note"]),
        lines.as_bytes(),
    );
    stage.daemon.kill();
    stage.daemon.restart();
    assert_eq!(
        admin(stage.address(), &["--status"]),
        format!("note\t{JOBS}\t0\t0\n.\n")
    );

    let notes = stage.dir().join("notes");
    work_off(stage.address(), JOBS / 2, &notes);
    stage.daemon.kill();
    stage.daemon.restart();
    work_off(stage.address(), waiting(stage.address()), &notes);

    let notes = std::fs::read_to_string(&notes).unwrap();
    let mut seen: Vec<usize> = notes
        .lines()
        .map(|line| line.strip_prefix("job ").unwrap().parse().unwrap())
        .collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, (0..JOBS).collect::<Vec<_>>());
    // The worker has ended; its connection may be seen to end a moment later.
    wait_until("nothing is left", || {
        admin(stage.address(), &["--status"]) == "note\t0\t0\t0\n.\n"
    });
}

/// Executes that many jobs with the stock worker, which prints each workload: they are lines.
fn work_off(address: SocketAddr, jobs: usize, notes: &Path) {
    let notes = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(notes)
        .unwrap();
    let mut worker = stock("gearman", address);
    worker
        .args(["-w", "-c", &jobs.to_string(), "-f", "note"])
        .stdin(std::process::Stdio::null())
        .stdout(notes);
    let status = worker
        .status()
        .unwrap_or_else(|error| panic!("{error}; tests/install-clients installs it"));
    assert!(status.success(), "{status}");
}

/// The number of waiting jobs in the only queue.
fn waiting(address: SocketAddr) -> usize {
    let status = admin(address, &["--status"]);
    status.split('\t').nth(1).unwrap().parse().unwrap()
}

#[test]
fn priorities() {
    let stage = Stage::new();
    printed(
        &mut gearman(&stage, &["-b", "-L", "-f", "order", "low "]),
        b"",
    );
    printed(&mut gearman(&stage, &["-b", "-f", "order", "normal "]), b"");
    printed(
        &mut gearman(&stage, &["-b", "-I", "-f", "order", "high "]),
        b"",
    );
    assert_eq!(
        printed(&mut gearman(&stage, &["-w", "-c", "3", "-f", "order"]), b""),
        "high normal low "
    );
}

#[test]
fn uniqueness() {
    let stage = Stage::new();
    printed(
        &mut gearman(&stage, &["-b", "-f", "once", "-u", "same", "first"]),
        b"",
    );
    printed(
        &mut gearman(&stage, &["-b", "-f", "once", "-u", "same", "second"]),
        b"",
    );
    assert_eq!(admin(stage.address(), &["--status"]), "once\t1\t0\t0\n.\n");
    assert_eq!(
        printed(&mut gearman(&stage, &["-w", "-c", "1", "-f", "once"]), b""),
        "first"
    );
}

/// A job that our peer holds until the test has checked its state.
fn grab(worker: &mut Peer) -> Assigned {
    let mut job = None;
    wait_until("a job", || {
        job = worker.grab().unwrap();
        job.is_some()
    });
    job.unwrap()
}

/// Two clients on one unique id both get the result of one run. A warning that reaches both proves that both are
/// attached.
#[test]
fn two_clients_get_one_result() {
    let stage = Stage::new();
    let mut worker = Peer::connect(stage.address()).unwrap();
    worker.can_do("once").unwrap();
    let wanted = ["-f", "once", "-u", "same", "x"];
    let mut one = Running::start_piped(&mut gearman(&stage, &wanted));
    let job = grab(&mut worker);
    let mut other = Running::start_piped(&mut gearman(&stage, &wanted));
    let heard = std::thread::spawn(move || (other.complains(), other));
    wait_until("a warning received by the second", || {
        let data = "is anybody there?\n".into();
        worker
            .send(&Request::Work {
                handle: job.handle.clone(),
                report: Report::Warning(data),
            })
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(5));
        heard.is_finished()
    });
    let (complaint, other) = heard.join().unwrap();
    assert_eq!([complaint, one.complains()], ["is anybody there?\n"; 2]);
    worker
        .send(&Request::Work {
            handle: job.handle,
            report: Report::Complete("the news".into()),
        })
        .unwrap();
    for client in [one, other] {
        assert_eq!(String::from_utf8_lossy(&client.output().stdout), "the news");
    }
    assert!(worker.grab().unwrap().is_none(), "one run was enough");
}

/// As a worker it sends data for each line its command prints, and all of it at the end.
#[test]
fn a_worker_streams_lines() {
    let stage = Stage::new();
    let mut lines = gearman(
        &stage,
        &["-w", "-n", "-f", "lines", "--", "sh", "-c", "cat; echo two"],
    );
    let _worker = Running::start(&mut lines);
    assert_eq!(
        printed(&mut gearman(&stage, &["-f", "lines"]), b"one\n"),
        "one\none\ntwo\n"
    );
}

/// As a client it prints data, the result, progress and warnings.
#[test]
fn a_client_receives_data_progress_and_warnings() {
    let stage = Stage::new();
    let _worker = GEAR.worker(stage.address());
    let output = run(&mut gearman(&stage, &["-f", "steps", "a cake"]), b"");
    assert!(output.status.success(), "{output:?}");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        stdout.contains("half of whole of a cake") && stdout.contains("50% Complete\n"),
        "{output:?}"
    );
    assert_eq!(output.stderr, b"mind the gap");
}

/// `kill -9` of a worker that holds a job: the next worker gets it, and the client its result.
#[test]
fn worker_death() {
    let stage = Stage::new();
    let held = Held::new(stage.dir(), "held");
    // The command outlives its worker; it ends when the file is gone, at the latest with the test's directory.
    let wait = format!("while [ -e {} ]; do sleep 0.01; done; cat", held.body());
    let first = worker(&stage, "long", &wait);
    let client = Running::start_piped(&mut gearman(&stage, &["-f", "long", "at last"]));
    let is_held = || admin(stage.address(), &["--status"]) == "long\t1\t1\t1\n.\n";
    wait_until("the first worker has the job", is_held);
    first.kill();
    wait_until("the job waits again", || {
        admin(stage.address(), &["--status"]) == "long\t1\t0\t0\n.\n"
    });
    let _second = worker(&stage, "long", &wait);
    wait_until("the second worker has the job", is_held);
    held.let_go();
    assert_eq!(String::from_utf8_lossy(&client.output().stdout), "at last");
}

/// One client, one connection, many functions at once.
#[test]
fn in_flight() {
    let stage = Stage::new();
    let functions: Vec<String> = (0..50).map(|n| format!("f{n}")).collect();
    let arguments: Vec<&str> = functions
        .iter()
        .flat_map(|function| ["-f", function])
        .collect();
    let mut cat = gearman(&stage, &["-w"]);
    let _worker = Running::start(cat.args(&arguments).args(["--", "cat"]));
    let output = printed(gearman(&stage, &["-P"]).args(&arguments), b"a cake\n");
    let mut lines: Vec<&str> = output.lines().collect();
    lines.sort_unstable();
    let mut expected: Vec<String> = functions
        .iter()
        .map(|function| format!("{function}: a cake"))
        .collect();
    expected.sort_unstable();
    assert_eq!(lines, expected);
}
