//! The history of ended jobs, asked over HTTP.
#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::http::Http;
use super::wait_until;

/// All rows of a question (`queue=q&outcome=done`), the newest first.
pub fn rows(http: Http, question: &str) -> Vec<Value> {
    let (mut rows, mut cursor) = (Vec::new(), String::new());
    loop {
        let answer = http.get(&format!("/api/v1/ended?limit=1000&{question}{cursor}"));
        assert_eq!(answer.status, 200, "{}", answer.text());
        let mut page = answer.json();
        assert_eq!(page["unreadable"], Value::Array(Vec::new()));
        let Value::Array(more) = page["ended"].take() else {
            panic!("no rows: {page}");
        };
        rows.extend(more);
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return rows,
        }
    }
}

/// Waits until a question has this many rows, and returns them, the oldest first.
#[track_caller]
pub fn wait_for_rows(http: Http, question: &str, number: usize) -> Vec<Value> {
    let mut found = Vec::new();
    wait_until(&format!("{number} rows of {question:?}"), || {
        found = rows(http, question);
        found.len() >= number
    });
    assert_eq!(found.len(), number, "{question}: {found:#?}");
    found.reverse();
    found
}

/// Names of files in the history's folder that end with `suffix`, in order.
pub fn files(dir: &Path, suffix: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir.join("data/history")) else {
        return Vec::new();
    };
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = paths
        .filter(|path| path.to_string_lossy().ends_with(suffix))
        .collect();
    found.sort();
    found
}
