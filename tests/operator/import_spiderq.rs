//! `windlass import spiderq-snapshot`: imports spiderq's database, and checks that a daemon then has its keys.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::common::daemon;
use crate::common::spiderq::{ADDED, Bare, REPAID, Status, add, lookup, repay, vec};

fn snapshot(dir: &Path, entries: &[(&str, &[u8])]) -> PathBuf {
    let mut file = (entries.len() as u64).to_ne_bytes().to_vec();
    for bytes in entries
        .iter()
        .flat_map(|(key, value)| [key.as_bytes(), value])
    {
        file.extend(u32::try_from(bytes.len()).unwrap().to_ne_bytes());
        file.extend(bytes);
    }
    let path = dir.join("snapshot");
    fs::write(&path, file).unwrap();
    path
}

fn import(dir: &Path, file: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command
        .args(["import", "spiderq-snapshot", "--data-dir"])
        .arg(dir.join("data"))
        .arg(file)
        .args(more);
    command.env_clear().stdin(Stdio::null()).output().unwrap()
}

/// Its output, after checking the exit code.
fn printed(output: &Output, code: i32) -> String {
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert_eq!(output.status.code(), Some(code), "{out}{err}");
    format!("{out}{err}")
}

const ENTRIES: [(&str, &[u8]); 4] = [
    ("one", b"1"),
    ("", b""),
    ("three", b"\0\xff"),
    ("four", &[4; 5000]),
];

#[test]
fn keys_and_values_are_queued_at_the_tail() {
    let dir = tempfile::tempdir().unwrap();
    let file = snapshot(dir.path(), &ENTRIES);
    let before = fs::read(&file).unwrap();
    assert_eq!(
        printed(&import(dir.path(), &file, &[]), 0),
        "4 entries: 4 imported\n"
    );
    assert_eq!(fs::read(&file).unwrap(), before, "the file is only read");
    let into_namespace = import(dir.path(), &file, &["--namespace", "shop"]);
    assert_eq!(printed(&into_namespace, 0), "4 entries: 4 imported\n");
    let listen = "[\"127.0.0.1:0\", { address = \"127.0.0.1:0\", namespace = \"shop\" }]";
    let set = format!("[namespaces.shop]\n[spiderq]\nlisten = {listen}\n");
    let daemon = daemon(dir.path()).set(&set).start();
    for address in daemon.addresses("spiderq") {
        let mut peer = Bare::connect(address);
        assert_eq!(peer.count(), 4);
        assert_eq!(peer.ask(&add("one", b"other")), [0x03], "kept");
        for (key, value) in ENTRIES {
            assert_eq!(peer.ask(&lookup(key)), [&[0x0D][..], &vec(value)].concat());
            let lease = peer.lease(false).unwrap();
            assert_eq!((lease.key.as_str(), &lease.value[..]), (key, value));
        }
    }
}

#[test]
fn existing_keys_are_kept_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = daemon(dir.path()).start();
    let mut peer = Bare::connect(daemon.address("spiderq"));
    for key in ["three", "one"] {
        assert_eq!(peer.ask(&add(key, b"ours")), ADDED);
    }
    let dropped = peer.lease(false).unwrap();
    assert_eq!(peer.ask(&repay(&dropped, Status::Drop)), REPAID);
    let file = snapshot(dir.path(), &ENTRIES);
    let busy = printed(&import(dir.path(), &file, &[]), 4);
    assert!(busy.contains("is in use by another process"), "{busy}");
    daemon.signal("TERM");
    daemon.wait();

    let expected = "entry 1 kept: key \"one\" is there already\nentry 3 kept: key \"three\" is there already\n\
                    4 entries: 2 imported\n2 there already, kept as they are\n";
    assert_eq!(printed(&import(dir.path(), &file, &[]), 0), expected);
    let again = "4 entries: 0 imported\n4 imported earlier from the same file; --again imports them once more\n";
    assert_eq!(printed(&import(dir.path(), &file, &[]), 0), again);
    let said = printed(&import(dir.path(), &file, &["--again"]), 0);
    assert!(
        said.ends_with("4 entries: 0 imported\n4 there already, kept as they are\n"),
        "{said}"
    );

    daemon.restart();
    let mut peer = Bare::connect(daemon.address("spiderq"));
    let keys: Vec<_> = std::iter::from_fn(|| peer.lease(false))
        .map(|lease| (lease.key, lease.value.len()))
        .collect();
    assert_eq!(
        keys,
        [
            ("one".to_owned(), 4),
            (String::new(), 0),
            ("four".to_owned(), 5000)
        ]
    );
}

#[test]
fn a_torn_file_is_refused_whole() {
    let dir = tempfile::tempdir().unwrap();
    let file = snapshot(dir.path(), &ENTRIES);
    let whole = fs::read(&file).unwrap();
    let path = file.display();
    let table: [(Vec<u8>, String); 4] = [
        (
            Vec::new(),
            format!("windlass: {path}: a snapshot begins with 8 bytes, but this file has 0\n"),
        ),
        (
            whole[..whole.len() - 1].to_vec(),
            format!("windlass: {path}: it ends within entry 4 of 4: it was cut short\n"),
        ),
        (
            [&whole[..], b"more"].concat(),
            format!(
                "windlass: {path}: it goes on behind entry 4 of 4: it is not a snapshot, or was written over another\n"
            ),
        ),
        (
            b"not a snapshot".to_vec(),
            format!(
                "windlass: {path}: its header promises more entries ({}) than 14 bytes",
                u64::from_ne_bytes(*b"not a sn")
            ),
        ),
    ];
    for (bytes, expected) in table {
        fs::write(&file, bytes).unwrap();
        let said = printed(&import(dir.path(), &file, &[]), 2);
        assert!(said.starts_with(&expected), "{said}");
        assert!(!dir.path().join("data").exists(), "nothing was taken");
    }
    let said = printed(&import(dir.path(), dir.path(), &[]), 2);
    assert!(
        said.contains("this is a directory; give the file snapshot in it"),
        "{said}"
    );
}

#[test]
fn entries_that_cannot_be_taken_are_named_and_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let file = snapshot(dir.path(), &ENTRIES);
    let small = [
        "--set",
        "zmtp.message_bytes_max=4KiB",
        "--set",
        "limits.name_bytes_max=7",
    ];
    let said = printed(&import(dir.path(), &file, &small), 5);
    let expected = "entry 4 left: key \"four\": key and value of 5004 bytes, zmtp.message_bytes_max is 4096\n4 entries: 3 imported\n\
                    windlass: 1 entry is left; fix the reason and import again\n";
    assert_eq!(said, expected);
    let said = printed(
        &import(dir.path(), &file, &["--set", "limits.jobs_max=3"]),
        5,
    );
    assert!(
        said.contains("entry 4 left: key \"four\": daemon is full: jobs 3, limit 3\n"),
        "{said}"
    );
    assert!(
        printed(&import(dir.path(), &file, &[]), 0)
            .starts_with("4 entries: 1 imported\n3 imported earlier from")
    );
}

#[test]
fn a_dry_run_leaves_nothing_behind_and_another_queue_is_another_import() {
    let dir = tempfile::tempdir().unwrap();
    let file = snapshot(dir.path(), &ENTRIES);
    assert_eq!(
        printed(&import(dir.path(), &file, &["--dry-run"]), 0),
        "4 entries: 4 would be imported\n"
    );
    assert!(!dir.path().join("data").exists());
    let more = [
        "--set",
        "spiderq.more=[{listen=[\"127.0.0.1:0\"], queue=\"b\"}]",
    ];
    assert_eq!(
        printed(&import(dir.path(), &file, &more), 0),
        "4 entries: 4 imported\n"
    );
    let to_b = [&more[..], &["--queue", "b"]].concat();
    assert_eq!(
        printed(&import(dir.path(), &file, &to_b), 0),
        "4 entries: 4 imported\n"
    );
    let said = printed(&import(dir.path(), &file, &["--queue", "b"]), 2);
    assert!(
        said.contains("spiderq.queue: no queue b is served"),
        "{said}"
    );
}
