//! An import into a store that has jobs, queues and batches already.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use windlass_engine::{
    Batch, Clash, Command, Context, Engine, Job, JobCommand, JobId, JobState, KeyUntil, NewJob,
    Protocol, QueueCommand, QueueKind, Unique,
};

use super::round::{
    config, contents, export, half_done_batch, lines, live, read, run, source, take,
};
use super::*;
use crate::fixture;

fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn job(protocol: Protocol, body: &'static str) -> NewJob {
    NewJob::new(protocol, bytes("q"), bytes(body))
}

fn push(job: NewJob) -> Command {
    JobCommand::Push(Box::new(job)).into()
}

fn create(queue: &'static str) -> Command {
    QueueCommand::Create {
        queue: bytes(queue),
        kind: QueueKind::Work,
    }
    .into()
}

fn pause(queue: &'static str) -> Command {
    QueueCommand::Pause {
        queue: bytes(queue),
        paused: true,
    }
    .into()
}

/// A directory with the result of these commands.
fn made(dir: &Path, name: &str, commands: Vec<Command>) -> Config {
    let config = config(&dir.join(name));
    run(
        &config,
        1,
        commands
            .into_iter()
            .map(|command| move |_: &mut Context, _: &Engine| command),
    );
    config
}

fn exported(config: &Config) -> Vec<Vec<u8>> {
    lines(&export(&config.data_dir))
}

/// The bodies of all jobs, in the order of the jobs.
fn bodies(config: &Config) -> Vec<Bytes> {
    let contents = contents(config);
    let of = |id: &JobId| {
        contents
            .jobs
            .iter()
            .find(|(job, _)| job.id == *id)
            .map(|(job, _)| job.body())
    };
    contents
        .order
        .iter()
        .map(|id| Bytes::copy_from_slice(of(id).unwrap()))
        .collect()
}

#[test]
fn new_jobs_stand_behind_those_that_keep_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let commands = ["a", "b", "c"].map(|body| push(job(Protocol::GEARMAN, body)));
    let (from, to) = (
        made(dir.path(), "from", commands.into()),
        config(&dir.path().join("to")),
    );
    let mut lines = exported(&from);
    let first = lines
        .iter()
        .position(|line| matches!(read(line), Ok(Line::Job(..))))
        .unwrap();
    lines.insert(first + 1, br#"{"queue":"q","body":"new"}"#.to_vec());
    assert_eq!(take(&to, &lines, usize::MAX), vec![]);
    assert_eq!(bodies(&to), ["a", "b", "c", "new"]);
}

#[test]
fn a_new_job_has_the_name_of_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let to = config(&dir.path().join("to"));
    let lines = ["", "named"]
        .map(|name| format!(r#"{{"queue":"q","body":"b","name":"{name}"}}"#).into_bytes());
    assert_eq!(take(&to, &lines, usize::MAX), vec![]);
    let mut names: Vec<Bytes> = contents(&to)
        .jobs
        .iter()
        .map(|(job, _)| Bytes::copy_from_slice(job.name()))
        .collect();
    names.sort_unstable();
    assert_eq!(names.last(), Some(&bytes("named")));
    assert_eq!(names.len(), 2);
}

/// An interruption between a commit and its record repeats lines.
#[test]
fn a_repeated_job_has_a_place_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (
        made(dir.path(), "from", vec![push(job(Protocol::GEARMAN, "a"))]),
        config(&dir.path().join("to")),
    );
    // The job gets another number there, so it is not known again.
    live(&to, 1, 20);
    let lines = exported(&from);
    take(&to, &lines, 0);
    let record = to.data_dir.join("imports/00ff");
    let before = fs::read(&record).unwrap();
    for times in 1..=2 {
        take(&to, &lines, usize::MAX);
        assert_eq!(
            bodies(&to).iter().filter(|body| **body == "a").count(),
            times
        );
        fs::write(&record, &before).unwrap();
    }
}

#[test]
fn an_existing_queue_keeps_its_settings() {
    let dir = tempfile::tempdir().unwrap();
    let all_paused = ["a", "b", "c"]
        .into_iter()
        .flat_map(|queue| [create(queue), pause(queue)]);
    let from = made(dir.path(), "from", all_paused.collect());
    let to = made(dir.path(), "to", vec![create("a"), pause("a"), create("b")]);
    let mut importer = Importer::open(&to, &source(), false).unwrap();
    let queues = exported(&from)
        .into_iter()
        .filter_map(|line| match read(&line) {
            Ok(Line::Queue(image)) => Some((image.name.clone(), Line::Queue(image))),
            _ => None,
        });
    let mut adopted: Vec<_> = queues
        .zip(0..)
        .map(|((name, line), place)| (name, importer.take_line(place, line).unwrap()))
        .collect();
    adopted.sort_by(|(one, _), (other, _)| one.cmp(other));
    let of = |name, outcome, without| (bytes(name), Adopted { outcome, without });
    let others = Some("its settings, because the existing queue has others");
    let expected = [
        of("a", Outcome::Known, None),
        of("b", Outcome::Known, others),
        of("c", Outcome::Taken, None),
    ];
    assert_eq!(adopted, expected);
}

#[test]
fn the_text_of_a_line_names_the_queue() {
    let dir = tempfile::tempdir().unwrap();
    let from = made(dir.path(), "from", vec![create("old"), pause("old")]);
    let lines = exported(&from)
        .into_iter()
        .map(|line| String::from_utf8(line).unwrap());
    let line = lines
        .into_iter()
        .find(|line| line.contains("queue_settings"))
        .unwrap();
    let Line::Queue(image) = read(line.replace("\"old\"", "\"new\"").as_bytes()).unwrap() else {
        panic!("{line}")
    };
    assert!(image.name == "new" && !image.paused.is_empty(), "{image:?}");
}

#[test]
fn an_existing_job_of_the_same_name_or_key_counts_where_it_is_the_same_job() {
    let named = |name| {
        move |job| NewJob {
            name: Some(bytes(name)),
            ..job
        }
    };
    let keyed = |job| {
        let unique = Unique {
            key: bytes("k"),
            clash: Clash::Attach,
            until: KeyUntil::End,
        };
        NewJob {
            unique: Some(unique),
            ..job
        }
    };
    let plain = |job| job;
    type Make<'a> = &'a dyn Fn(NewJob) -> NewJob;
    let keyless = Some("its key, which another job holds");
    let table: [(&str, Make<'_>, Protocol, Outcome, Option<&str>); 6] = [
        (
            "a name",
            &named("n"),
            Protocol::GEARMAN,
            Outcome::Known,
            None,
        ),
        (
            "a name of another protocol",
            &named("n"),
            Protocol::FAKTORY,
            Outcome::Taken,
            None,
        ),
        (
            "another name",
            &named("m"),
            Protocol::GEARMAN,
            Outcome::Taken,
            None,
        ),
        ("no name", &plain, Protocol::GEARMAN, Outcome::Taken, None),
        (
            "a key that stands for the job",
            &keyed,
            Protocol::GEARMAN,
            Outcome::Known,
            None,
        ),
        ("a key", &keyed, Protocol::EVENTMQ, Outcome::Taken, keyless),
    ];
    for (case, make, protocol, outcome, without) in table {
        let dir = tempfile::tempdir().unwrap();
        let theirs = [push(make(job(protocol, "theirs")))];
        let ours = [
            push(named("n")(job(Protocol::GEARMAN, "ours"))),
            push(job(Protocol::GEARMAN, "ours")),
            push(keyed(job(Protocol::GEARMAN, "ours"))),
            push(keyed(job(Protocol::EVENTMQ, "ours"))),
        ];
        let (from, to) = (
            made(dir.path(), "from", theirs.into()),
            made(dir.path(), "to", ours.into()),
        );
        let lines = exported(&from);
        let mut jobs = lines
            .iter()
            .filter_map(|line| read(line).ok())
            .filter(|line| matches!(line, Line::Job(..)));
        let mut importer = Importer::open(&to, &source(), false).unwrap();
        let adopted = importer.take_line(0, jobs.next().unwrap()).unwrap();
        assert_eq!(adopted, Adopted { outcome, without }, "{case}");
    }
}

/// A batch of two jobs of which one has run and succeeded, that job, and the open one.
fn half_done() -> (Batch, Job, Job) {
    let dir = tempfile::tempdir().unwrap();
    let contents = contents(&made(dir.path(), "from", half_done_batch()));
    let mut jobs = contents.jobs.into_iter().map(|(job, _)| job);
    let [done, open] = [(); 2].map(|()| jobs.next().unwrap());
    assert!(matches!(
        (&done.state, &open.state),
        (JobState::Done(_), JobState::Ready)
    ));
    (contents.batches.into_iter().next().unwrap(), done, open)
}

/// A damaged export may have more jobs of a batch than the batch counts.
#[test]
fn a_batch_takes_the_jobs_that_it_counts() {
    let (batch, done, open) = half_done();
    let batch = || Line::Batch(Box::new(batch.clone()));
    let claim = |number: u64, ran: bool, is_done: bool| {
        let mut job = Job {
            id: JobId(100 + number),
            ..if is_done { &done } else { &open }.clone()
        };
        job.extra.as_mut().unwrap().member.as_mut().unwrap().ran = ran;
        Line::Job(Box::new(job), bytes("q"))
    };
    let table = [
        (
            "one has not run",
            [(false, false), (false, true)],
            [true, false],
        ),
        ("one is open", [(true, false), (true, false)], [true, false]),
        (
            "one of both",
            [(false, false), (false, false)],
            [true, false],
        ),
        (
            "any number is done",
            [(true, true), (true, true)],
            [true, true],
        ),
    ];
    for (case, claims, expected) in table {
        for is_resumed in [false, true] {
            let mut importer = Importer::rehearse(&fixture::config(Path::new("")));
            importer.take_line(0, batch()).unwrap();
            let taken = claims.into_iter().zip(1..).map(|((ran, is_done), number)| {
                if is_resumed {
                    importer.skip_line(&batch());
                }
                importer
                    .take_line(number, claim(number, ran, is_done))
                    .unwrap()
                    .without
                    .is_none()
            });
            assert_eq!(taken.collect::<Vec<_>>(), expected, "{case} {is_resumed}");
        }
    }
}
