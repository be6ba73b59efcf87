//! Clients of all four protocols at all daemons of a broker, and an account of what they were promised.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use windlass_gearman::wire::{Report, Request, Response};

use super::daemons::Daemons;
use crate::common::http::Http;
use crate::common::{Peer, submission};
use crate::common::{eventmq, faktory, spiderq};

/// Jobs of a protocol that may wait before its producers pause.
const BACKLOG: u64 = 500;
/// How long an EventMQ client waits: a request whose outcome is unknown gets no reply.
const EVENTMQ_PATIENCE: Duration = Duration::from_secs(5);
/// The longest wait for jobs: the machine may be very busy.
const PATIENCE: Duration = Duration::from_secs(300);
/// The pause after a connection has ended, and of a worker that finds no job.
const PAUSE: Duration = Duration::from_millis(5);

/// What a client does again and again; false: there was nothing to do.
type Step<'a> = Box<dyn FnMut() -> io::Result<bool> + 'a>;
/// Connects a client to a daemon.
type Connect = for<'a> fn(&'a Work, usize) -> io::Result<Step<'a>>;

/// A protocol's name, producer and worker.
struct Protocol {
    name: &'static str,
    produce: Connect,
    work: Connect,
}

const FAKTORY: usize = 0;
const GEARMAN: usize = 1;
const SPIDERQ: usize = 2;
const EVENTMQ: usize = 3;
const PROTOCOLS: [Protocol; 4] = [
    Protocol {
        name: "faktory",
        produce: Work::pushes,
        work: Work::fetches,
    },
    Protocol {
        name: "gearman",
        produce: Work::submits,
        work: Work::grabs,
    },
    Protocol {
        name: "spiderq",
        produce: Work::adds,
        work: Work::lends,
    },
    Protocol {
        name: "eventmq",
        produce: Work::requests,
        work: Work::replies,
    },
];

/// The jobs of one protocol.
#[derive(Default)]
struct Account {
    /// Acknowledged to their producers.
    pushed: Mutex<HashSet<u64>>,
    /// A worker has sent their ends.
    ended: Mutex<HashSet<u64>>,
    /// Their ends were acknowledged to a worker.
    done: Mutex<HashSet<u64>>,
    /// How often a job was handed out again although a worker had sent its end, which was not acknowledged.
    again: AtomicU64,
}

impl Account {
    fn pushed(&self, id: u64) {
        self.pushed.lock().unwrap().insert(id);
    }

    fn sent_end(&self, id: u64) {
        self.ended.lock().unwrap().insert(id);
    }

    fn missing(&self) -> Vec<u64> {
        self.pushed
            .lock()
            .unwrap()
            .difference(&self.ended.lock().unwrap())
            .copied()
            .collect()
    }

    fn is_behind(&self) -> bool {
        let (pushed, ended) = (
            self.pushed.lock().unwrap().len(),
            self.ended.lock().unwrap().len(),
        );
        pushed as u64 > ended as u64 + BACKLOG
    }
}

/// Clients at all daemons.
#[derive(Default)]
pub struct Work {
    addresses: Mutex<Vec<[SocketAddr; 4]>>,
    next: AtomicU64,
    accounts: [Account; 4],
    /// Foreground jobs whose clients have their results.
    answered: Mutex<HashSet<u64>>,
    /// Questions without an answer within a minute, on a connection that stayed open.
    unanswered: AtomicU64,
    /// What must not happen, and did.
    faults: Mutex<Vec<String>>,
    producers_stop: AtomicBool,
    workers_stop: AtomicBool,
}

/// The threads of all clients.
pub struct Clients {
    work: Arc<Work>,
    producers: Vec<JoinHandle<()>>,
    workers: Vec<JoinHandle<()>>,
}

impl Clients {
    /// A producer and a worker of each protocol at each daemon. They connect again and again.
    pub fn start(daemons: &Daemons) -> Self {
        let work = Arc::new(Work::default());
        work.look(daemons);
        let (mut producers, mut workers) = (Vec::new(), Vec::new());
        for number in 0..daemons.all.len() {
            for Protocol {
                produce,
                work: does,
                ..
            } in PROTOCOLS
            {
                let (one, other) = (Arc::clone(&work), Arc::clone(&work));
                producers.push(thread::spawn(move || {
                    one.repeat(produce, number, &one.producers_stop)
                }));
                workers.push(thread::spawn(move || {
                    other.repeat(does, number, &other.workers_stop)
                }));
            }
        }
        Self {
            work,
            producers,
            workers,
        }
    }

    /// What they do.
    pub fn work(&self) -> &Work {
        &self.work
    }

    /// Ends all clients, works off what is left, and checks the accounts. `what` has happened meanwhile.
    pub fn finish(self, daemons: &Daemons, what: &str) {
        let Self {
            work,
            producers,
            workers,
        } = self;
        work.producers_stop.store(true, Ordering::Relaxed);
        producers
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        work.workers_stop.store(true, Ordering::Relaxed);
        workers
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        let end = Instant::now() + PATIENCE;
        let lost = loop {
            (0..PROTOCOLS.len()).for_each(|protocol| work.work_off(protocol));
            let lost: Vec<_> = (0..PROTOCOLS.len())
                .map(|protocol| work.lost(protocol, daemons))
                .collect();
            if lost.iter().all(Vec::is_empty) || work.has_faults() || Instant::now() > end {
                break lost;
            }
        };
        work.report(what);
        assert!(!work.has_faults(), "{:?}", work.faults.lock().unwrap());
        assert!(
            lost.iter().all(Vec::is_empty),
            "acknowledged but lost: {lost:?}\n{}",
            daemons.said_last()
        );
    }
}

impl Work {
    /// Daemons that were started again have other addresses.
    pub fn look(&self, daemons: &Daemons) {
        let of = |number: usize| PROTOCOLS.map(|protocol| daemons[number].address(protocol.name));
        *self.addresses.lock().unwrap() = (0..daemons.all.len()).map(of).collect();
    }

    /// Waits until the workers of each protocol have ended this many more jobs.
    pub fn wait_for_more(&self, daemons: &Daemons, more: usize) {
        let ended = || {
            self.accounts
                .each_ref()
                .map(|account| account.ended.lock().unwrap().len())
        };
        let (begun, goals) = (Instant::now(), ended().map(|ended| ended + more));
        while !ended()
            .iter()
            .zip(goals)
            .all(|(ended, goal)| *ended >= goal)
            && !self.has_faults()
        {
            assert!(
                begun.elapsed() < PATIENCE,
                "only {:?} of {goals:?} jobs:\n{}",
                ended(),
                daemons.said_last()
            );
            thread::sleep(PAUSE);
        }
        assert!(!self.has_faults(), "{:?}", self.faults.lock().unwrap());
    }

    fn repeat(&self, connect: Connect, number: usize, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let outcome = connect(self, number).and_then(|mut step| {
                while !stop.load(Ordering::Relaxed) {
                    if !step()? {
                        thread::sleep(PAUSE);
                    }
                }
                Ok(())
            });
            if outcome.is_err() {
                thread::sleep(PAUSE);
            }
        }
    }

    /// Does the jobs that are left, as far as they can be had now.
    fn work_off(&self, protocol: usize) {
        let worker = (PROTOCOLS[protocol].work)(self, 0);
        let _ = worker.and_then(|mut step| {
            while step()? {}
            Ok(())
        });
    }

    /// Jobs that were acknowledged, and that no worker has ended and the broker does not have.
    fn lost(&self, protocol: usize, daemons: &Daemons) -> Vec<u64> {
        let mut missing = self.accounts[protocol].missing();
        // A time-bound lease stands, although its worker may not have lived to see it: the leader died behind the
        // commit.
        match protocol {
            FAKTORY => {
                let http = Http(daemons[0].address("http"));
                missing.retain(|id| {
                    let path = format!("/api/v1/jobs?queue=work&state=leased&name={}", jid(*id));
                    http.get(&path).json()["jobs"]
                        .as_array()
                        .is_none_or(|jobs| jobs.len() != 1)
                });
            }
            SPIDERQ => {
                let mut bare = spiderq::Bare::connect(self.address(0, SPIDERQ));
                missing
                    .retain(|id| bare.ask(&spiderq::lookup(&id.to_string()))[0] != spiderq::FOUND);
            }
            _ => {}
        }
        missing
    }

    fn report(&self, what: &str) {
        println!("{what}");
        for (Protocol { name, .. }, account) in PROTOCOLS.iter().zip(&self.accounts) {
            let [pushed, ended, done] = [&account.pushed, &account.ended, &account.done]
                .map(|jobs| jobs.lock().unwrap().len());
            let again = account.again.load(Ordering::Relaxed);
            println!(
                "{name}: {pushed} acknowledged, {ended} ended, {done} ends acknowledged, {again} again"
            );
        }
        let (answered, unanswered) = (
            self.answered.lock().unwrap().len(),
            self.unanswered.load(Ordering::Relaxed),
        );
        println!("{answered} foreground jobs answered, {unanswered} questions without an answer");
    }

    // ---- the accounts ----------------------------------------------------------------------------------------------

    fn address(&self, number: usize, protocol: usize) -> SocketAddr {
        self.addresses.lock().unwrap()[number][protocol]
    }

    fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn fault(&self, what: String) {
        self.faults.lock().unwrap().push(what);
    }

    fn has_faults(&self) -> bool {
        !self.faults.lock().unwrap().is_empty()
    }

    /// A worker has got a job, which must not be done.
    fn taken(&self, protocol: usize, id: u64) {
        let account = &self.accounts[protocol];
        if account.done.lock().unwrap().contains(&id) {
            self.fault(format!(
                "{}: {id} is done and was handed out again",
                PROTOCOLS[protocol].name
            ));
        }
        if account.ended.lock().unwrap().contains(&id) {
            account.again.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The end of a job was acknowledged to a worker: the only one.
    fn done(&self, protocol: usize, id: u64) {
        if !self.accounts[protocol].done.lock().unwrap().insert(id) {
            self.fault(format!(
                "{}: two workers have finished {id}",
                PROTOCOLS[protocol].name
            ));
        }
    }

    /// Counts answers that did not come within a minute.
    fn answer<T>(&self, answer: io::Result<T>) -> io::Result<T> {
        answer.inspect_err(|why| {
            if matches!(
                why.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
            ) {
                self.unanswered.fetch_add(1, Ordering::Relaxed);
            }
        })
    }

    // ---- producers -------------------------------------------------------------------------------------------------

    /// A producer's step: it pushes the job of a new number, unless very many wait.
    fn unless_behind<'a>(
        &'a self,
        protocol: usize,
        mut push: impl FnMut(u64) -> io::Result<()> + 'a,
    ) -> Step<'a> {
        Box::new(move || {
            let may = !self.accounts[protocol].is_behind();
            if may {
                push(self.next())?;
            }
            Ok(may)
        })
    }

    fn pushes(&self, number: usize) -> io::Result<Step<'_>> {
        let mut fwp = faktory::Fwp::try_hello(self.address(number, FAKTORY))?;
        Ok(self.unless_behind(FAKTORY, move |id| {
            let push = format!(
                r#"PUSH {{"jid":"{}","jobtype":"T","queue":"work","args":[]}}"#,
                jid(id)
            );
            if self.answer(fwp.try_ask(&push))? == "+OK" {
                self.accounts[FAKTORY].pushed(id);
            }
            Ok(())
        }))
    }

    /// Background jobs, and some whose results the client waits for.
    fn submits(&self, number: usize) -> io::Result<Step<'_>> {
        let mut peer = Peer::connect(self.address(number, GEARMAN))?;
        Ok(self.unless_behind(GEARMAN, move |id| {
            if id % 10 == 3 {
                return self.answer(self.wait_for_result(&mut peer, id));
            }
            self.answer(peer.submit("work", "", id.to_string()))?;
            self.accounts[GEARMAN].pushed(id);
            Ok(())
        }))
    }

    fn wait_for_result(&self, peer: &mut Peer, id: u64) -> io::Result<()> {
        let body = format!("f{id}");
        peer.send(&submission("work", "", body.clone(), false))?;
        loop {
            let packet = peer.packet()?;
            match Response::parse(&packet) {
                Ok(Response::JobCreated { .. }) => {}
                Ok(Response::Work {
                    report: Report::Complete(data),
                    ..
                }) => {
                    if data != body.as_bytes() || !self.answered.lock().unwrap().insert(id) {
                        self.fault(format!("gearman: a wrong or second result of {body}"));
                    }
                    return Ok(());
                }
                other => return Err(io::Error::other(format!("{other:?}"))),
            }
        }
    }

    fn adds(&self, number: usize) -> io::Result<Step<'_>> {
        let mut bare = spiderq::Bare::try_connect(self.address(number, SPIDERQ))?;
        Ok(self.unless_behind(SPIDERQ, move |id| {
            if self.answer(bare.try_ask(&spiderq::add(&id.to_string(), b"value")))?
                == spiderq::ADDED
            {
                self.accounts[SPIDERQ].pushed(id);
            }
            Ok(())
        }))
    }

    fn requests(&self, number: usize) -> io::Result<Step<'_>> {
        let mut peer = eventmq::Peer::try_connect(
            self.address(number, EVENTMQ),
            &format!("c{}", self.next()),
        )?;
        peer.dealer
            .stream
            .set_read_timeout(Some(EVENTMQ_PATIENCE))?;
        Ok(self.unless_behind(EVENTMQ, move |id| {
            peer.say(&[
                "REQUEST",
                &id.to_string(),
                "report",
                "",
                r#"["run", {"callable": "report", "path": "tasks"}]"#,
            ])?;
            let end = Instant::now() + EVENTMQ_PATIENCE;
            let reply = loop {
                match peer.hear_any()? {
                    heard if heard[0] != "HEARTBEAT" => break heard,
                    _ if Instant::now() > end => return Err(io::ErrorKind::TimedOut.into()),
                    _ => {}
                }
            };
            if reply[0] == "REPLY" && reply[2] == id.to_string() {
                self.accounts[EVENTMQ].pushed(id);
            }
            Ok(())
        }))
    }

    // ---- workers ---------------------------------------------------------------------------------------------------

    fn fetches(&self, number: usize) -> io::Result<Step<'_>> {
        let wid = format!("worker{number}");
        let mut fwp = faktory::Fwp::try_worker(self.address(number, FAKTORY), &wid)?;
        Ok(Box::new(move || {
            self.answer(fwp.try_ask(&format!(r#"BEAT {{"wid":"{wid}"}}"#)))?;
            let said = self.answer(fwp.try_ask("FETCH work"))?;
            let Some((_, rest)) = said.split_once(r#""jid":"jid"#) else {
                return Ok(false);
            };
            let id = rest.split('"').next().unwrap().parse().unwrap();
            self.taken(FAKTORY, id);
            self.accounts[FAKTORY].sent_end(id);
            if self.answer(fwp.try_ask(&format!(r#"ACK {{"jid":"{}"}}"#, jid(id))))? == "+OK" {
                self.done(FAKTORY, id);
            }
            Ok(true)
        }))
    }

    fn grabs(&self, number: usize) -> io::Result<Step<'_>> {
        let mut peer = Peer::connect(self.address(number, GEARMAN))?;
        peer.can_do("work")?;
        Ok(Box::new(move || {
            let Some(job) = self.answer(peer.grab())? else {
                return Ok(false);
            };
            let background: Option<u64> = std::str::from_utf8(&job.workload).unwrap().parse().ok();
            background.inspect(|id| self.taken(GEARMAN, *id));
            peer.send(&Request::Work {
                handle: job.handle,
                report: Report::Complete(job.workload),
            })?;
            background.inspect(|id| self.accounts[GEARMAN].sent_end(*id));
            Ok(true)
        }))
    }

    fn lends(&self, number: usize) -> io::Result<Step<'_>> {
        let mut bare = spiderq::Bare::try_connect(self.address(number, SPIDERQ))?;
        Ok(Box::new(move || {
            let reply = self.answer(bare.try_ask(&spiderq::lend(spiderq::FOREVER_MS, false)))?;
            let lent = (reply[0] == spiderq::LENT).then(|| spiderq::Lease::of(&reply).unwrap());
            let Some(lease) = lent else { return Ok(false) };
            let id = lease.key.parse().unwrap();
            self.taken(SPIDERQ, id);
            self.accounts[SPIDERQ].sent_end(id);
            let repaid = bare.try_ask(&spiderq::repay(&lease, spiderq::Status::Drop));
            if self.answer(repaid)? == spiderq::REPAID {
                self.done(SPIDERQ, id);
            }
            Ok(true)
        }))
    }

    fn replies(&self, number: usize) -> io::Result<Step<'_>> {
        let (address, name) = (self.address(number, EVENTMQ), format!("w{}", self.next()));
        let mut peer = eventmq::Peer::try_worker(address, &name, r#"[[10, "report"]]"#)?;
        peer.dealer
            .stream
            .set_read_timeout(Some(EVENTMQ_PATIENCE))?;
        let mut has_credit = false;
        Ok(Box::new(move || {
            if !std::mem::replace(&mut has_credit, true) {
                peer.say(&["READY", "ready"])?;
            }
            let heard = peer.hear_any()?;
            match (&heard[0][..], heard.get(1).map(|id| id.parse())) {
                ("HEARTBEAT", _) => Ok(false),
                ("REQUEST", Some(Ok(id))) => {
                    self.taken(EVENTMQ, id);
                    peer.say(&["REPLY", "reply", r#"{"value": 1}"#, &heard[1]])?;
                    self.accounts[EVENTMQ].sent_end(id);
                    has_credit = false;
                    Ok(true)
                }
                _ => Err(io::Error::other(format!("{heard:?}"))),
            }
        }))
    }
}

fn jid(id: u64) -> String {
    format!("jid{id:09}")
}
