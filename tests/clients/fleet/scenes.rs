//! The steps that produce each condition.

use super::payloads::{self, Payload, Seen};
use super::peers::{Protocol, Word};
use super::stage::{Job, Producer, Stage, Worker};
use super::table::{Cell, Condition, Row};

const RESULT: &str = "three eggs";
const WHY: &str = "burnt";

/// Plays a row; a panic describes the error.
pub fn play(row: &Row, stage: &Stage<'_>) {
    let (heard, ends) = match row.cell {
        Cell::Ends(heard, ends) => (heard, ends),
        Cell::Refused(words) => return refused(row, stage, words),
        Cell::None(_) => return,
    };
    let producer = match row.condition {
        Condition::Done => done(row, stage, heard),
        Condition::Failed => failed(row, stage, heard),
        Condition::RetriedToDeath => retried_to_death(row, stage, heard, ends),
        Condition::WorkerDied => worker_died(row, stage, heard),
        Condition::LeaseExpired => lease_expired(row, stage, heard),
        Condition::Progress => progress(row, stage, heard),
        Condition::UniqueClash => unique_clash(row, stage, heard),
        Condition::BinaryPayload => binary_payload(row, stage, heard),
        Condition::IllegalName => illegal_name(row, stage, heard),
    };
    stage.ends(&producer, ends);
}

fn payload(row: &Row) -> Payload {
    payloads::ordinary(row.from, row.to)
}

/// The job of most rows.
fn job(row: &Row) -> Job<'static> {
    Job {
        body: payload(row).sent,
        ..Job::default()
    }
}

fn submitted<'a>(row: &Row, stage: &Stage<'a>, job: &Job<'_>) -> Producer<'a> {
    let mut producer = stage.producer(row.from);
    producer.submit(job);
    producer
}

fn hears(producer: &Producer<'_>, heard: &[&str]) {
    heard.iter().for_each(|words| producer.hears(words));
}

/// A worker takes the row's job, which must have its expected form.
fn takes(worker: &Worker<'_>, row: &Row, stage: &Stage<'_>, producer: &Producer<'_>) -> Word {
    let word = worker.takes();
    payload(row).is_seen(&word, &stage.queue, &producer.id);
    word
}

// ---- the conditions -------------------------------------------------------------------------------------------------

fn done<'a>(row: &Row, stage: &Stage<'a>, heard: &[&str]) -> Producer<'a> {
    let producer = submitted(row, stage, &job(row));
    let worker = stage.worker(row.to);
    let word = takes(&worker, row, stage, &producer);
    if (row.from, row.to) == (Protocol::Eventmq, Protocol::Eventmq) {
        // The whole message, not only its job.
        assert_eq!(
            (word.more("id"), word.more("headers")),
            (&*producer.id, "reply-requested")
        );
    }
    worker.is_done(RESULT);
    hears(&producer, heard);
    producer
}

fn failed<'a>(row: &Row, stage: &Stage<'a>, heard: &[&str]) -> Producer<'a> {
    let producer = submitted(row, stage, &job(row));
    let worker = stage.worker(row.to);
    takes(&worker, row, stage, &producer);
    worker.fails(WHY);
    hears(&producer, heard);
    producer
}

fn retried_to_death<'a>(
    row: &Row,
    stage: &Stage<'a>,
    heard: &[&str],
    ends: &[&str],
) -> Producer<'a> {
    let job = Job {
        background: true,
        retries: Some(1),
        ..job(row)
    };
    let producer = submitted(row, stage, &job);
    let worker = stage.worker(row.to);
    takes(&worker, row, stage, &producer);
    worker.fails("");
    match row.from {
        Protocol::Gearman => {
            // The job's clients no longer see it. Operators do.
            stage.ends(&producer, ends);
            producer.asks();
        }
        Protocol::Faktory => {
            producer.hears("failed");
            producer.does_not_wait();
            takes(&worker, row, stage, &producer);
            worker.fails("");
        }
        Protocol::Eventmq => {
            takes(&worker, row, stage, &producer);
            worker.fails("");
        }
    }
    hears(&producer, heard);
    producer
}

fn worker_died<'a>(row: &Row, stage: &Stage<'a>, heard: &[&str]) -> Producer<'a> {
    let producer = submitted(row, stage, &job(row));
    let lost = stage.worker(row.to);
    let jid = takes(&lost, row, stage, &producer).more("id").to_owned();
    lost.dies();
    let worker = stage.worker(row.to);
    if (row.from, row.to) == (Protocol::Faktory, Protocol::Faktory) {
        worker.takes_none();
        stage.ends(&producer, &[r#""state":"working""#, r#""attempts":1"#]);
        worker.has(&jid);
    } else {
        takes(&worker, row, stage, &producer);
    }
    worker.is_done(RESULT);
    hears(&producer, heard);
    producer
}

fn lease_expired<'a>(row: &Row, stage: &Stage<'a>, heard: &[&str]) -> Producer<'a> {
    let job = Job {
        secs: Some(1),
        ..job(row)
    };
    let producer = submitted(row, stage, &job);
    let stuck = stage.worker_with_timeout(row.to);
    takes(&stuck, row, stage, &producer);
    if (row.from, row.to) == (Protocol::Gearman, Protocol::Eventmq) {
        let worker = stage.worker(row.to);
        takes(&worker, row, stage, &producer);
        worker.is_done(RESULT);
    }
    hears(&producer, heard);
    producer
}

fn progress<'a>(row: &Row, stage: &Stage<'a>, heard: &[&str]) -> Producer<'a> {
    let producer = submitted(row, stage, &job(row));
    let worker = stage.worker(row.to);
    takes(&worker, row, stage, &producer);
    worker.is_at(1, 4);
    let (end, before) = heard.split_last().unwrap();
    hears(&producer, before);
    worker.is_done(RESULT);
    producer.hears(end);
    producer
}

fn unique_clash<'a>(row: &Row, stage: &Stage<'a>, heard: &[&str]) -> Producer<'a> {
    let job = Job {
        unique: true,
        ..job(row)
    };
    let first = submitted(row, stage, &job);
    let mut second = stage.producer(row.from);
    if row.from == Protocol::Faktory {
        second.send(&job);
        let words = second.voice.hears("refused").text();
        assert!(words.contains("NOTUNIQUE"), "{words}");
    } else {
        second.submit(&job);
        assert_eq!(second.id, first.id);
    }
    let worker = stage.worker(row.to);
    payload(row).is_seen(&worker.takes(), &stage.queue, &first.id);
    // There is no other job until this one is completed.
    let egg = payloads::another(row.from, row.to);
    let other = submitted(
        row,
        stage,
        &Job {
            body: egg.sent,
            ..Job::default()
        },
    );
    worker.is_done(RESULT);
    hears(&first, heard);
    if row.from != Protocol::Faktory {
        hears(&second, heard);
    }
    egg.is_seen(&worker.takes(), &stage.queue, &other.id);
    worker.is_done(RESULT);
    hears(&other, heard);
    first
}

fn binary_payload<'a>(row: &Row, stage: &Stage<'a>, heard: &[&str]) -> Producer<'a> {
    let binary = payloads::binary(row.from, row.to);
    let custom = if row.to == Protocol::Gearman {
        r#", "_encoding": "base64""#
    } else {
        ""
    };
    let producer = submitted(
        row,
        stage,
        &Job {
            body: binary.sent,
            custom,
            verbatim: true,
            ..Job::default()
        },
    );
    let worker = stage.worker(row.to);
    if matches!(binary.seen, Seen::Nothing) {
        goes_on_without(row, stage, &worker, &producer, heard);
    } else {
        binary.is_seen(&worker.takes(), &stage.queue, &producer.id);
        worker.is_done(RESULT);
        hears(&producer, heard);
    }
    producer
}

/// The worker cannot have its first job. It gets the next; the first waits for a worker of its own protocol.
fn goes_on_without(
    row: &Row,
    stage: &Stage<'_>,
    worker: &Worker<'_>,
    producer: &Producer<'_>,
    heard: &[&str],
) {
    worker.voice.tell("take");
    stage.ends(producer, &["\"state\":\"enqueued\"", "\"waits_for\":["]);
    let other = submitted(row, stage, &job(row));
    payload(row).is_seen(&worker.voice.hears("job"), &stage.queue, &other.id);
    worker.is_done(RESULT);
    hears(&other, super::table::done(row.from));
    let own = stage.worker(row.from);
    own.takes();
    own.is_done(RESULT);
    hears(producer, heard);
}

fn illegal_name<'a>(row: &Row, stage: &Stage<'a>, heard: &[&str]) -> Producer<'a> {
    let producer = submitted(row, stage, &job(row));
    let worker = if row.to == Protocol::Faktory {
        // FWP has no such queue name, so its worker asks for another queue.
        stage.worker(row.to).takes_none();
        stage.worker(row.from)
    } else {
        stage.worker(row.to)
    };
    let seen = payloads::ordinary(row.from, worker.protocol());
    let word = worker.takes();
    assert_eq!(word.more("queue"), super::peers::octets(&stage.queue));
    if row.to == worker.protocol() {
        seen.is_seen(&word, &stage.queue, &producer.id);
    }
    worker.is_done(RESULT);
    hears(&producer, heard);
    producer
}

fn refused(row: &Row, stage: &Stage<'_>, words: &str) {
    let mut producer = stage.producer(row.from);
    producer.send(&job(row));
    let heard = producer.voice.hears("refused").text();
    assert!(heard.contains(words), "{heard}");
    assert_eq!(stage.look(&producer), None);
}
