//! Arbitrary bytes as the importers' input: lines of JSON, the records in them, jobs from Faktory's Redis, rows of
//! gearmand's SQLite queue, spiderq's snapshots. Each becomes a job or is left with a reason. Imported jobs go through
//! an engine that checks itself.
#![no_main]
#![allow(
    dead_code,
    unreachable_pub,
    reason = "the file of the binary that is included has more in it than this needs"
)]

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use windlass_engine::{NewJob, Timestamp};
use windlass_faktory::session::{Settings as Faktory, Standing};
use windlass_gearman::session::Settings as Gearman;
use windlass_gearman::wire::{Priority, Submission};
use windlass_migrate::intake::{Importer, Line, Ranks};
use windlass_migrate::{Configured, snapshot};
use windlass_spiderq::config::Spiderq as Section;
use windlass_spiderq::session::Settings as Spiderq;
use windlass_store::Record;

use crate::config::Config;

#[path = "../../crates/cli/src/config/mod.rs"]
mod config;

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    Jsonl(&'a [u8]),
    /// Concatenated records. Each becomes a line.
    Records(&'a [u8]),
    Faktory(Vec<(&'a [u8], Stands, u64)>),
    Gearman(Vec<(&'a [u8], &'a [u8], &'a [u8], u8, u64)>),
    Spiderq(&'a [u8]),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Stands {
    Queued,
    Scheduled,
    Retrying,
    Dead,
    Reserved,
}

static CONFIGURED: LazyLock<Configured> = LazyLock::new(|| {
    let config = Config::default();
    let server = config.for_server();
    let Config {
        faktory,
        gearman,
        spiderq,
        zmtp,
        ..
    } = config;
    Configured {
        server,
        faktory,
        gearman,
        spiderq: Section { zmtp, ..spiderq },
    }
});
static FAKTORY: LazyLock<Faktory> = LazyLock::new(|| {
    CONFIGURED
        .daemon(&CONFIGURED.faktory)
        .and_then(|it| CONFIGURED.faktory.settings(&it))
        .expect("no file is named")
});
static GEARMAN: LazyLock<Gearman> = LazyLock::new(|| {
    CONFIGURED
        .daemon(&CONFIGURED.gearman)
        .and_then(|it| CONFIGURED.gearman.settings(&it))
        .expect("no prefix is set")
});
static SPIDERQ: LazyLock<Spiderq> = LazyLock::new(|| {
    let spiderq = &CONFIGURED.spiderq;
    CONFIGURED
        .daemon(spiderq)
        .and_then(|it| spiderq.settings(None, &it))
        .expect("one is served")
});

fuzz_target!(|input: Input<'_>| {
    let mut importer = Importer::rehearse(&CONFIGURED.server);
    match input {
        Input::Jsonl(text) => jsonl(text, &mut importer),
        Input::Records(bytes) => jsonl(&lines(bytes), &mut importer),
        Input::Faktory(jobs) => {
            let jobs = jobs.into_iter().filter_map(|(text, stands, at)| {
                FAKTORY
                    .adopt(
                        Timestamp(1_800_000_000_000),
                        text,
                        standing(stands, Timestamp(at)),
                    )
                    .ok()
            });
            take(jobs, &mut importer);
        }
        Input::Gearman(rows) => {
            let jobs = rows
                .into_iter()
                .filter_map(|(function, unique, data, priority, at)| {
                    let [function, unique, workload] =
                        [function, unique, data].map(Bytes::copy_from_slice);
                    let priority = [Priority::High, Priority::Normal, Priority::Low]
                        [usize::from(priority % 3)];
                    GEARMAN
                        .adopt(
                            Submission {
                                function,
                                unique,
                                workload,
                            },
                            priority,
                            at,
                        )
                        .ok()
                });
            take(jobs, &mut importer);
        }
        Input::Spiderq(file) => {
            let Ok(entries) = snapshot::entries(file) else {
                return;
            };
            take(
                entries
                    .into_iter()
                    .filter_map(|it| SPIDERQ.adopt(it.key, it.value).ok()),
                &mut importer,
            );
        }
    }
    importer.finish().expect("a rehearsal writes nothing");
});

fn standing(stands: Stands, at: Timestamp) -> Standing {
    match stands {
        Stands::Queued => Standing::Queued,
        Stands::Scheduled => Standing::Scheduled(at),
        Stands::Retrying => Standing::Retrying(at),
        Stands::Dead => Standing::Dead(at),
        Stands::Reserved => Standing::Reserved(at),
    }
}

fn take(jobs: impl Iterator<Item = NewJob>, importer: &mut Importer) {
    for (job, place) in jobs.zip(0..) {
        importer
            .take(place, job)
            .expect("a rehearsal writes nothing");
    }
}

/// Lines like those of `windlass salvage`: three queues, and short bodies.
fn lines(records: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    for (record, n) in Record::all(records).map_while(Result::ok).zip(0..) {
        let (mut bytes, queue) = (Vec::new(), ["q", "r", "s"][n % 3]);
        record.encode(&mut bytes);
        let settings = matches!(record, Record::QueueSet(_)).then_some(queue);
        let record = BASE64_STANDARD.encode(bytes);
        let line = serde_json::json!({
            "queue": queue, "queue_settings": settings.unwrap_or_default(), "body": "b", "stored_base64": record
        });
        text.extend(format!("{line}\n").into_bytes());
    }
    text
}

/// Like `windlass import jsonl`: one pass to relate the jobs, one to import them.
fn jsonl(text: &[u8], importer: &mut Importer) {
    let lines = || {
        text.split(|byte| *byte == b'\n')
            .map(|line| Line::read(line, &CONFIGURED.server.protocols))
    };
    let mut ranks = Ranks::default();
    lines().flatten().for_each(|line| ranks.see(&line));
    importer.expect(ranks);
    for (line, place) in lines().zip(0..) {
        match line {
            Ok(line) => drop(
                importer
                    .take_line(place, line)
                    .expect("a rehearsal writes nothing"),
            ),
            Err(why) => assert!(!why.to_string().is_empty()),
        }
    }
}
