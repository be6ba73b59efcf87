//! Jobs as spans, at a collector of this machine (feature `otlp`).

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::common;
use crate::common::faktory::Fwp;
use crate::common::wait_until;

/// The trace, and the span in it that pushed the job.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PRODUCER: &str = "00f067aa0ba902b7";

/// What a collector was sent: requests with their bodies.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<(String, Vec<u8>)>>>);

impl Collector {
    /// Listens until the test ends. Returns its address.
    fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let collector = self.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let collector = collector.clone();
                thread::spawn(move || collector.serve(&stream));
            }
        });
        address
    }

    fn serve(&self, mut stream: &TcpStream) {
        let mut reader = BufReader::new(stream);
        loop {
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) == 0 {
                    return;
                }
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line.trim().is_empty() {
                    break;
                }
                head.push_str(&line);
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            self.0.lock().unwrap().push((head, body));
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        }
    }

    /// How often some bytes were sent.
    fn count(&self, bytes: &[u8]) -> usize {
        let of = |body: &Vec<u8>| body.windows(bytes.len()).filter(|it| *it == bytes).count();
        self.0.lock().unwrap().iter().map(|(_, body)| of(body)).sum()
    }
}

fn job(jid: &str, trace: &str) -> String {
    format!(r#"{{"jid":"{jid}","jobtype":"T","args":[],"queue":"q","retry":3,"custom":{{"traceparent":"{trace}"}}}}"#)
}

#[test]
fn what_a_job_goes_through_is_in_its_trace() {
    let dir = tempfile::tempdir().unwrap();
    let collector = Collector::default();
    let keys = format!("[telemetry]\notlp = \"http://{}/v1/traces\"\nservice = \"broker-7\"\n", collector.start());
    let mut daemon = common::daemon(dir.path()).set(&keys).start();
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    for (jid, flags) in [("job-sampled", "01"), ("job-ignored", "00")] {
        assert_eq!(fwp.ask(&format!("PUSH {}", job(jid, &format!("00-{TRACE}-{PRODUCER}-{flags}")))), "+OK");
        assert!(fwp.ask("FETCH q").contains(jid));
        assert_eq!(fwp.ask(&format!(r#"ACK {{"jid":"{jid}"}}"#)), "+OK");
    }
    assert_eq!(fwp.ask(r#"PUSH {"jid":"job-without","jobtype":"T","args":[],"queue":"q"}"#), "+OK");
    wait_until("three spans", || collector.count(b"run q") == 1);
    assert_eq!(["push q", "wait q", "run q"].map(|name| collector.count(name.as_bytes())), [1; 3]);
    assert_eq!(collector.count(&hex::decode(TRACE).unwrap()), 3);
    assert_eq!(collector.count(&hex::decode(PRODUCER).unwrap()), 1, "the other two are children of `push`");
    assert!(
        collector.count(b"broker-7") > 0 && collector.0.lock().unwrap()[0].0.starts_with("POST /v1/traces HTTP/1.1")
    );

    // What has not left yet does so before the daemon ends.
    assert_eq!(fwp.ask(&format!("PUSH {}", job("job-last", &format!("00-{TRACE}-{PRODUCER}-01")))), "+OK");
    drop(fwp);
    daemon.signal("TERM");
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log_text());
    assert_eq!(collector.count(b"push q"), 2);
}

#[test]
fn a_collector_that_is_gone_holds_nothing_up() {
    let dir = tempfile::tempdir().unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let daemon = common::daemon(dir.path()).set(&format!("[telemetry]\notlp = \"http://{gone}/v1/traces\"\n")).start();
    let mut fwp = Fwp::connect(daemon.address("faktory"));
    for n in 0..2_000 {
        let jid = format!("job-{n:08}");
        assert_eq!(fwp.ask(&format!("PUSH {}", job(&jid, &format!("00-{TRACE}-{PRODUCER}-01")))), "+OK");
        assert!(fwp.ask("FETCH q").contains(&jid));
        assert_eq!(fwp.ask(&format!(r#"ACK {{"jid":"{jid}"}}"#)), "+OK");
    }
    common::wait_for_log(&daemon, "spans are lost");
}
