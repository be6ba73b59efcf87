//! The work on a store at rest takes no more memory than a daemon, however many bodies are in the store.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use windlass_gearman::wire::Kind;

use crate::common::{Peer, daemon, submission};

const JOBS: usize = 600;
const BODY_BYTES: usize = 512 << 10;

/// The most memory of a tool: as much as the smallest daemon may use, and less than the bodies take.
const PEAK_MAX: u64 = 256 << 20;

/// A store with more bodies than the tools may have memory.
fn filled(dir: &Path) {
    let mut daemon = daemon(dir).start();
    let mut peer = Peer::connect(daemon.address("gearman")).unwrap();
    for number in 0..JOBS {
        let mut body = vec![b'x'; BODY_BYTES];
        body[..8].copy_from_slice(format!("{number:8}").as_bytes());
        peer.send(&submission("large", "", Bytes::from(body), true))
            .unwrap();
    }
    (0..JOBS).for_each(|_| assert_eq!(peer.packet().unwrap().kind, Kind::JOB_CREATED));
    daemon.signal("TERM");
    assert!(daemon.wait().success());
}

/// The most memory that a process has used so far; 0 if it has ended.
fn peak(process: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap_or_default();
    let kib = status.lines().find_map(|line| {
        line.strip_prefix("VmHWM:")?
            .trim()
            .strip_suffix(" kB")?
            .parse::<u64>()
            .ok()
    });
    kib.unwrap_or_default() << 10
}

/// Runs the program, and looks at its memory until it ends.
fn bounded(words: &[&str], out: Stdio) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    let mut process = command
        .args(words)
        .stdout(out)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut most = 0;
    while process.try_wait().unwrap().is_none() {
        most = most.max(peak(&process));
        thread::sleep(Duration::from_millis(1));
    }
    println!("{}: {} MiB", words.join(" "), most >> 20);
    assert!(most < PEAK_MAX, "{words:?}: {most} bytes");
    process.wait_with_output().unwrap()
}

fn succeeds(words: &[&str]) -> String {
    let output = bounded(words, Stdio::piped());
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The lines of an export or a salvage, in a file.
fn lines(words: &[&str], file: &Path, code: i32) -> usize {
    let output = bounded(words, fs::File::create(file).unwrap().into());
    assert_eq!(
        output.status.code(),
        Some(code),
        "{words:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    std::io::BufRead::lines(std::io::BufReader::new(fs::File::open(file).unwrap()))
        .filter(|line| line.as_ref().unwrap().starts_with("{\"job\":"))
        .count()
}

fn path(dir: &Path) -> &str {
    dir.to_str().unwrap()
}

/// The file of the table.
fn table(data: &Path) -> PathBuf {
    let mut folders = fs::read_dir(data.join("store"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    folders
        .find(|folder| {
            folder
                .file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with("table-")
        })
        .unwrap()
        .join("db")
}

#[test]
fn tools_read_more_bodies_than_they_have_memory() {
    let home = tempfile::tempdir().unwrap();
    filled(home.path());
    let data = home.path().join("data");
    let jobs = format!("ok: {JOBS} jobs");
    assert!(succeeds(&["verify", path(&data)]).starts_with(&jobs));
    succeeds(&["compact", path(&data)]);
    assert!(succeeds(&["verify", path(&data)]).starts_with(&jobs));
    let file = home.path().join("lines");
    assert_eq!(lines(&["salvage", path(&data)], &file, 0), JOBS);
    let restored = home.path().join("restored");
    succeeds(&[
        "import",
        "jsonl",
        "--data-dir",
        path(&restored),
        path(&file),
    ]);
    assert!(succeeds(&["verify", path(&restored)]).starts_with(&jobs));
    fs::remove_dir_all(&restored).unwrap();
    // Without its last line it is added job by job.
    let text = fs::read(&file).unwrap();
    let end = text[..text.len() - 1]
        .iter()
        .rposition(|byte| *byte == b'\n')
        .unwrap();
    fs::write(&file, &text[..=end]).unwrap();
    drop(text);
    succeeds(&[
        "import",
        "jsonl",
        "--incomplete",
        "--data-dir",
        path(&restored),
        path(&file),
    ]);
    assert!(succeeds(&["verify", path(&restored)]).starts_with(&jobs));
    fs::remove_dir_all(&restored).unwrap();

    // One byte of some pages: the others can be read. The file has dead pages, too.
    let db = table(&data);
    let mut bytes = fs::read(&db).unwrap();
    let first = bytes.iter().position(|byte| *byte == b'x').unwrap();
    (first..bytes.len())
        .step_by(10 << 20)
        .for_each(|at| bytes[at] ^= 1);
    fs::write(&db, bytes).unwrap();
    assert_eq!(
        bounded(&["verify", path(&data)], Stdio::piped())
            .status
            .code(),
        Some(4)
    );
    let saved = lines(&["salvage", path(&data)], &file, 5);
    // Some of the pages may hold no job any more.
    assert!((JOBS / 2..=JOBS).contains(&saved), "{saved}");
}
