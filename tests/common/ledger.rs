//! Clients that end jobs of FWP and Gearman, and a record of what was acknowledged to them, to be compared with the history.
#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};
use windlass_gearman::wire::{Report, Request};
use windlass_testkit::daemon::Daemon;
use windlass_testkit::power::Recorder;

use super::ended::rows;
use super::faktory::Fwp;
use super::http::Http;
use super::{Peer, wait_until};

/// Two times for which rows are kept, so there are two files a day, each with its own count of commits.
pub const SETTINGS: &str = r#"
[history]
keep = "7d"
[queues.ended-gearman]
history = { keep = "1d", body = "64B" }
"#;

/// The combined records of all clients in all rounds. A job's number is a part of its name.
#[derive(Default)]
pub struct Ledger {
    next: AtomicU64,
    /// Jobs whose end was sent, and how often. The history may have a row for it.
    sent: Mutex<BTreeMap<u64, u64>>,
    /// Jobs whose end was acknowledged. The history must have a row for it.
    acknowledged: Mutex<BTreeSet<u64>>,
    /// The acknowledged jobs of the clients, in order.
    by_client: Mutex<BTreeMap<u64, Vec<Acknowledged>>>,
    /// Present if the daemon is recorded.
    recorder: Option<Arc<Recorder>>,
}

/// A job whose end was acknowledged before a moment of the record.
#[derive(Clone, Copy)]
pub struct Acknowledged {
    pub job: u64,
    pub moment: u64,
}

impl Ledger {
    /// Of a daemon that is recorded.
    pub fn with(recorder: &Arc<Recorder>) -> Self {
        Self {
            recorder: Some(Arc::clone(recorder)),
            ..Self::default()
        }
    }

    /// For the clients of a daemon that continues after a power cut.
    pub fn after_a_cut(&self) -> Self {
        Self {
            next: AtomicU64::new(self.next()),
            sent: Mutex::new(self.sent.lock().unwrap().clone()),
            ..Self::default()
        }
    }

    fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn send(&self, job: u64) {
        *self.sent.lock().unwrap().entry(job).or_default() += 1;
    }

    fn acknowledge(&self, client: u64, job: u64) {
        let moment = self.recorder.as_ref().map_or(0, |recorder| recorder.now());
        let mut by_client = self.by_client.lock().unwrap();
        let acknowledged = Acknowledged { job, moment };
        by_client.entry(client).or_default().push(acknowledged);
        self.acknowledged.lock().unwrap().insert(job);
    }

    /// The acknowledged jobs of the clients, in order.
    pub fn by_client(&self) -> Vec<Vec<Acknowledged>> {
        self.by_client.lock().unwrap().values().cloned().collect()
    }

    /// Whether only one client has sent the end of a job, once.
    pub fn sent_once(&self, job: u64) -> bool {
        self.sent.lock().unwrap().get(&job) == Some(&1)
    }

    /// Jobs whose end was acknowledged by now.
    pub fn acknowledged(&self) -> BTreeSet<u64> {
        self.acknowledged.lock().unwrap().clone()
    }
}

fn name(job: u64) -> String {
    format!("ended-{job:09}")
}

fn number(name: &str) -> u64 {
    name.strip_prefix("ended-").unwrap().parse().unwrap()
}

/// How the workers end a job of FWP.
fn fwp_outcome(job: u64) -> &'static str {
    match job % 7 {
        0 => "failed",
        1 => "dead",
        _ => "done",
    }
}

/// The same for Gearman, whose failed jobs all go to the dead-letter queue.
fn gearman_outcome(job: u64) -> &'static str {
    if job.is_multiple_of(7) {
        "dead"
    } else {
        "done"
    }
}

/// Pushes, takes and ends jobs until the daemon is gone. A reply to ACK and FAIL is the proof of the end.
fn fwp(ledger: &Ledger, address: SocketAddr, stop: &AtomicBool) -> io::Result<()> {
    let client = ledger.next();
    let mut fwp = Fwp::try_worker(address, &format!("worker-{client}"))?;
    while !stop.load(Ordering::Relaxed) {
        let job = ledger.next();
        let retry = match fwp_outcome(job) {
            "dead" => -1,
            _ => 0,
        };
        let jid = name(job);
        let push = format!(
            r#"PUSH {{"jid":"{jid}","jobtype":"T","queue":"ended-fwp","args":[{job}],"retry":{retry}}}"#
        );
        fwp.try_ask(&push)?;
        let fetched: Value = serde_json::from_str(&fwp.try_ask("FETCH ended-fwp")?)?;
        let Some(jid) = fetched["jid"].as_str() else {
            continue;
        };
        let job = number(jid);
        ledger.send(job);
        let end = match fwp_outcome(job) {
            "done" => format!(r#"ACK {{"jid":"{jid}"}}"#),
            _ => format!(r#"FAIL {{"jid":"{jid}","errtype":"E","message":"no luck"}}"#),
        };
        if fwp.try_ask(&end)? == "+OK" {
            ledger.acknowledge(client, job);
        }
    }
    Ok(())
}

/// The same with Gearman. The end of a job has no reply: the reply to a later submit on the same connection is the proof.
fn gearman(ledger: &Ledger, address: SocketAddr, stop: &AtomicBool) -> io::Result<()> {
    let mut peer = Peer::connect(address)?;
    peer.can_do("ended-gearman")?;
    let client = ledger.next();
    let mut last = None;
    while !stop.load(Ordering::Relaxed) {
        let job = ledger.next();
        peer.submit("ended-gearman", &name(job), name(job))?;
        if let Some(job) = last.take() {
            ledger.acknowledge(client, job);
        }
        let Some(taken) = peer.grab()? else { continue };
        let job = number(std::str::from_utf8(&taken.workload).unwrap());
        ledger.send(job);
        let report = match gearman_outcome(job) {
            "done" => Report::Complete(taken.workload.clone()),
            _ => Report::Fail,
        };
        peer.send(&Request::Work {
            handle: taken.handle,
            report,
        })?;
        last = Some(job);
    }
    Ok(())
}

type Client = fn(&Ledger, SocketAddr, &AtomicBool) -> io::Result<()>;

/// Runs four clients of FWP and two of Gearman until `more` further ends are acknowledged, then ends the daemon under them.
pub fn load_until(ledger: &Arc<Ledger>, daemon: &mut Daemon, more: usize, end: fn(&mut Daemon)) {
    let stop = Arc::new(AtomicBool::new(false));
    let run = |client: Client, protocol: &str| {
        let (ledger, stop) = (Arc::clone(ledger), Arc::clone(&stop));
        let address = daemon.address(protocol);
        // It ends with an error, because the test ends the daemon under it.
        thread::spawn(move || {
            if let Err(error) = client(&ledger, address, &stop) {
                println!("a client ended: {error}");
            }
        })
    };
    let goal = ledger.acknowledged().len() + more;
    let threads: Vec<_> = (0..4)
        .map(|_| run(fwp, "faktory"))
        .chain((0..2).map(|_| run(gearman, "gearman")))
        .collect();
    while ledger.acknowledged.lock().unwrap().len() < goal {
        assert!(
            !threads.iter().any(JoinHandle::is_finished),
            "a client gave up before the daemon ended: {}",
            daemon.log_text()
        );
        thread::yield_now();
    }
    end(daemon);
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().expect("a client failed an assertion");
    }
}

/// The jobs that have a row. No job has two, each has the right outcome, and its end was sent.
pub fn recorded(ledger: &Ledger, http: Http) -> BTreeSet<u64> {
    let (mut jobs, mut numbers) = (BTreeSet::new(), BTreeSet::new());
    let mut outcomes = BTreeMap::<_, u64>::new();
    // What is in the history was sent before it was asked.
    let rows = rows(http, "");
    let sent = ledger.sent.lock().unwrap().clone();
    for row in &rows {
        let (name, outcome) = match row["protocol"].as_str() {
            Some("faktory") => (&row["name"], fwp_outcome as fn(u64) -> &'static str),
            _ => (&row["unique"], gearman_outcome as fn(u64) -> &'static str),
        };
        let job = number(name.as_str().unwrap());
        assert!(jobs.insert(job), "{job} is there twice: {row}");
        assert!(numbers.insert(row["job"].as_u64().unwrap()), "{row}");
        assert!(sent.contains_key(&job), "no worker ended {job}: {row}");
        assert_eq!(row["outcome"], outcome(job), "{row}");
        let kept = row["protocol"] == "gearman";
        assert_eq!(
            row["body"]["text"],
            if kept { json!(name) } else { Value::Null },
            "{row}"
        );
        *outcomes.entry(outcome(job)).or_default() += 1;
    }
    let hours = http.get("/api/v1/ended/hours").json();
    let total = &hours["total"];
    let of = |outcome| outcomes.get(outcome).copied().unwrap_or_default();
    // Unless rows were written since they were asked for.
    if super::ended::rows(http, "").len() == rows.len() {
        assert_eq!(
            [&total["done"], &total["failed"], &total["other"]],
            [of("done"), of("failed") + of("dead"), 0],
            "each row is counted once in its hour"
        );
    }
    jobs
}

/// Clients that begin anew after each error, as while no daemon has the store.
pub struct Persistent {
    ledger: Arc<Ledger>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Persistent {
    /// Starts two clients at each address. Those of Gearman want one daemon: another one that leads proves nothing of ends
    /// without a reply.
    pub fn start(
        ledger: &Arc<Ledger>,
        of_faktory: &[SocketAddr],
        of_gearman: &[SocketAddr],
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let run = |client: Client, address: SocketAddr| {
            let (ledger, stop) = (Arc::clone(ledger), Arc::clone(&stop));
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if client(&ledger, address, &stop).is_err() {
                        thread::sleep(Duration::from_millis(20));
                    }
                }
            })
        };
        let of_faktory = of_faktory.iter().map(|address| (fwp as Client, *address));
        let of_gearman = of_gearman
            .iter()
            .map(|address| (gearman as Client, *address));
        let all = of_faktory.chain(of_gearman);
        let twice = all.clone().chain(all);
        Self {
            ledger: Arc::clone(ledger),
            threads: twice
                .map(|(client, address)| run(client, address))
                .collect(),
            stop,
        }
    }

    /// Waits until so many further ends are acknowledged.
    pub fn wait_for_more(&self, more: usize) {
        let acknowledged = || self.ledger.acknowledged.lock().unwrap().len();
        let goal = acknowledged() + more;
        wait_until("ends are acknowledged", || {
            assert!(!self.threads.iter().any(JoinHandle::is_finished));
            acknowledged() >= goal
        });
    }

    /// Ends the clients.
    pub fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("a client failed an assertion");
        }
    }
}

/// Waits until each acknowledged end has its row. Returns all jobs with a row.
pub fn wait_for_all(ledger: &Ledger, http: Http) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    wait_until("each acknowledged end is in the history", || {
        found = recorded(ledger, http);
        ledger.acknowledged().is_subset(&found)
    });
    found
}
