//! A whole data directory from this format's first version, in `golden/directory.txt`. Every later version that reads
//! this format must find the contents of `golden/directory.jsonl` in it.
//!
//! ```text
//! folder NAME
//! file NAME LENGTH         bytes not listed are zeros
//! OFFSET TIMES HEX         64 bytes at most, repeated TIMES times
//! ```

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use windlass_engine::{
    BatchCommand, From, JobCommand, JobRef, LeaseCommand, LeaseTerms, Limits, NewBatch, NewJob,
    NewSchedule, OnExpiry, Proof, Protocol, QueueCommand, Recurrence, ScheduleCommand, Select,
    Take, TakeCommand, Timestamp, Wait,
};
use windlass_store::{About, EXPORT_VERSION, salvage, verify};

use crate::disk::{Image, image_of, restore};
use crate::files::{Daemon, home, small};

const LINE_BYTES: usize = 64;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("golden")
        .join(name)
}

fn text_of(image: &Image) -> String {
    let mut text = String::new();
    for (name, bytes) in image {
        let Some(bytes) = bytes else {
            writeln!(text, "folder {}", name.display()).unwrap();
            continue;
        };
        writeln!(text, "file {} {}", name.display(), bytes.len()).unwrap();
        let lines: Vec<&[u8]> = bytes.chunks(LINE_BYTES).collect();
        let mut offset = 0;
        for same in lines.chunk_by(|one, two| one == two) {
            if let Some(last) = same[0].iter().rposition(|byte| *byte != 0) {
                let shown = if same.len() > 1 {
                    same[0]
                } else {
                    &same[0][..=last]
                };
                let hex: String = shown.iter().map(|byte| format!("{byte:02x}")).collect();
                writeln!(text, "{offset} {} {hex}", same.len()).unwrap();
            }
            offset += same.len() * LINE_BYTES;
        }
    }
    text
}

fn image_from(text: &str) -> Image {
    let mut image = Image::new();
    let mut file: Option<PathBuf> = None;
    for line in text.lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["folder", name] => drop(image.insert(name.into(), None)),
            ["file", name, len] if !name.is_empty() => {
                image.insert(name.into(), Some(vec![0; len.parse().unwrap()]));
                file = Some(name.into());
            }
            [offset, times, hex] => {
                let bytes = image
                    .get_mut(file.as_ref().unwrap())
                    .unwrap()
                    .as_mut()
                    .unwrap();
                let line: Vec<u8> = (0..hex.len() / 2)
                    .map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap())
                    .collect();
                let all = line.repeat(times.parse().unwrap());
                let offset: usize = offset.parse().unwrap();
                bytes[offset..offset + all.len()].copy_from_slice(&all);
            }
            _ => panic!("{line}"),
        }
    }
    image
}

fn exported(path: &Path) -> String {
    let mut out = Vec::new();
    let mut found = salvage(&small(path)).unwrap();
    assert!(found.is_whole(), "{:?}", found.unreadable);
    found
        .export(
            About {
                daemon: "0.1.0",
                written_at: Timestamp(2_000_000),
                namespace: None,
            },
            &mut out,
        )
        .unwrap();
    String::from_utf8(out).unwrap()
}

/// The lines of queues, jobs, schedules and batches, and the next number: the contents of the first exports.
fn entities(export: &str) -> String {
    const LATER: [&str; 4] = [
        "{\"windlass_export\":",
        "{\"engine\":",
        "{\"day\":",
        "{\"export_end\":",
    ];
    let is_first = |line: &&str| !LATER.iter().any(|begin| line.starts_with(begin));
    export
        .lines()
        .filter(is_first)
        .flat_map(|line| [line, "\n"])
        .collect()
}

/// `WINDLASS_GOLDEN=1` writes the file of a new version of the format, in addition to those of previous
/// versions.
#[test]
fn an_export_has_the_lines_of_its_version() {
    let home = home();
    let path = home.path().join("data");
    restore(
        &image_from(&fs::read_to_string(golden("directory.txt")).unwrap()),
        &path,
    );
    let file = golden(&format!("export_{EXPORT_VERSION}.jsonl"));
    if std::env::var_os("WINDLASS_GOLDEN").is_some() && !file.exists() {
        fs::write(&file, exported(&path)).unwrap();
    }
    assert_eq!(exported(&path), fs::read_to_string(file).unwrap());
}

#[test]
fn a_directory_of_the_first_version_of_this_format_is_read_for_ever() {
    let home = home();
    let path = home.path().join("data");
    let image = image_from(&fs::read_to_string(golden("directory.txt")).unwrap());
    assert_eq!(image_from(&text_of(&image)), image);
    restore(&image, &path);
    let expected = fs::read_to_string(golden("directory.jsonl")).unwrap();
    assert_eq!(entities(&exported(&path)), expected);
    let report = verify(&small(&path), Limits::default()).unwrap();
    assert!(
        report.table_seq > 0 && report.last_seq > report.table_seq,
        "both parts hold something: {report:?}"
    );
    assert_eq!(
        (report.jobs, report.schedules, report.batches, report.torn),
        (43, 1, 1, false)
    );
    let names: Vec<_> = windlass_store::queues(&small(&path))
        .unwrap()
        .into_iter()
        .map(|queue| queue.name)
        .collect();
    assert_eq!(names.len() as u64, report.queues, "{names:?}");
    assert!(names.iter().any(|name| name == "mail"), "{names:?}");
    assert!(image_of(&path) == image, "reading changes nothing");

    let mut daemon = Daemon::start(&small(&path), 1, Timestamp(2_000_000)).unwrap();
    assert_eq!(daemon.report, report);
    let print = daemon.print();
    // It is used again, and still has the same contents.
    for _ in 0..3 {
        for paused in [true, false] {
            daemon.apply(QueueCommand::Pause {
                queue: Bytes::from_static(b"mail"),
                paused,
            });
            daemon.commit();
        }
        assert!(daemon.checkpointer.run(true).unwrap());
    }
    daemon.stop();
    assert_eq!(entities(&exported(&path)), expected);
    let daemon = Daemon::start(&small(&path), 1, Timestamp(2_000_000)).unwrap();
    assert_eq!(daemon.print().jobs, print.jobs);
}

/// Creates such a directory. Needed only for a new version of the format; the old directory stays.
#[test]
#[ignore = "it writes golden/directory.txt and golden/directory.jsonl"]
fn write_the_directory() {
    let home = home();
    let path = home.path().join("data");
    let config = small(&path);
    let mut daemon = Daemon::start(&config, 1, Timestamp(1_000_000)).unwrap();
    daemon.open_clients();
    let job = |queue: &'static str, body: String| {
        NewJob::new(Protocol::GEARMAN, Bytes::from(queue), Bytes::from(body))
    };
    let push = |daemon: &mut Daemon, queue, body: String| {
        daemon.apply(JobCommand::Push(Box::new(job(queue, body))));
        daemon.commit();
    };
    for n in 0..40 {
        push(&mut daemon, "mail", format!("body of job {n}"));
    }
    daemon.apply(ScheduleCommand::Set(Box::new(NewSchedule {
        key: Some(Bytes::from_static(b"nightly")),
        job: job("sums", "of the day".to_owned()),
        recurrence: Recurrence::Every {
            interval_ms: 86_400_000,
        },
        at_once: false,
        keep_grid: true,
        runs: None,
    })));
    daemon.apply(BatchCommand::New(Box::new(NewBatch {
        protocol: Protocol::FAKTORY,
        name: Bytes::from_static(b"b-1"),
        parent: None,
        about: Bytes::from_static(b"import"),
        meta: Bytes::new(),
        complete: Some(Box::new(job("mail", "the batch is complete".to_owned()))),
        success: None,
        expires_ms: 1 << 40,
    })));
    daemon.commit();
    daemon.checkpointer.run(true).unwrap();
    push(&mut daemon, "index", "y".repeat(20_000));
    push(&mut daemon, "index", "z".repeat(3_000));
    daemon.apply(QueueCommand::Pause {
        queue: Bytes::from_static(b"mail"),
        paused: true,
    });
    daemon.apply(JobCommand::Cancel(JobRef::Id(windlass_engine::JobId(7))));
    daemon.commit();
    daemon.checkpointer.run(true).unwrap();
    push(&mut daemon, "index", "in the log alone".to_owned());
    push(&mut daemon, "index", "l".repeat(5_000));
    daemon.apply(QueueCommand::Pause {
        queue: Bytes::from_static(b"mail"),
        paused: false,
    });
    let lease = LeaseTerms {
        connection_bound: false,
        lease_ms: Some(90_000),
        on_expiry: OnExpiry::Requeue,
        wish: None,
    };
    let from = From::Listed {
        queues: vec![Bytes::from_static(b"mail")],
        lease,
    };
    let worker = Bytes::from_static(b"worker");
    daemon.apply(TakeCommand::Take(Take {
        from,
        select: Select::BestPriority,
        wait: Wait::No,
        worker,
    }));
    daemon.apply(LeaseCommand::Finish {
        job: JobRef::Id(windlass_engine::JobId(1)),
        proof: Proof::AnyLease,
        result: Bytes::new(),
    });
    push(&mut daemon, "mail", "the last one".to_owned());
    // As after a kill.
    let image = image_of(&path);
    drop(daemon);
    fs::remove_dir_all(&path).unwrap();
    restore(&image, &path);
    fs::write(golden("directory.txt"), text_of(&image)).unwrap();
    fs::write(golden("directory.jsonl"), entities(&exported(&path))).unwrap();
}
