//! An import that goes on where another one ended, and the jobs of a batch.

use bytes::Bytes;
use windlass_engine::{Clock, Context, Engine, Job, JobId, JobState};

use super::round::{config, contents, export, half_done_batch, lines, live, run, source, take};
use super::*;
use crate::fixture;

#[test]
fn a_resumed_import_knows_the_jobs_that_were_there_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let to = config(&dir.path().join("to"));
    live(&to, 1, 20);
    let first = JobId(contents(&to).next);
    let line = br#"{"queue":"q","body":"hi"}"#.to_vec();
    take(&to, &[line.clone(), line], 1);
    assert!(contents(&to).next > first.0);
    assert_eq!(Importer::open(&to, &source(), false).unwrap().first, first);
}

#[test]
fn an_import_reads_the_clock_of_the_engine() {
    let mut importer = Importer::rehearse(&fixture::config(Path::new("")));
    importer.context.clock = Clock::skewed(-5000);
    assert_eq!(importer.ahead_ms(), 5000);
}

#[test]
fn jobs_of_a_batch_stay_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (
        config(&dir.path().join("from")),
        config(&dir.path().join("to")),
    );
    run(
        &from,
        1,
        half_done_batch()
            .into_iter()
            .map(|command| move |_: &mut Context, _: &Engine| command),
    );
    assert_eq!(
        take(&to, &lines(&export(&from.data_dir)), usize::MAX),
        vec![]
    );
    let before = contents(&from);
    assert!(
        before
            .jobs
            .iter()
            .any(|(job, _)| matches!(job.state, JobState::Done(_)))
    );
    let members = |(job, _): &(Job, Bytes)| {
        job.extra
            .as_deref()
            .is_some_and(|extra| extra.member.is_some())
    };
    assert_eq!(before.jobs.iter().filter(|job| members(job)).count(), 2);
    assert_eq!(before, contents(&to));
    // The second import begins behind the first lines of the export, and knows the batch from the engine.
    let exported = lines(&export(&from.data_dir));
    for cut in 1..exported.len() {
        let to = config(&dir.path().join(format!("cut-{cut}")));
        take(&to, &exported, cut);
        assert_eq!(take(&to, &exported, usize::MAX), vec![], "{cut}");
        assert_eq!(before, contents(&to), "{cut}");
    }
}
