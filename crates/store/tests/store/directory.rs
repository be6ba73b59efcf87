//! A directory with missing parts, and one that is in use.

use std::fs;

use windlass_engine::Limits;
use windlass_store::{Error, OpenError, open, verify};

use crate::disk::restore;
use crate::files::{home, small};
use crate::recovery::few;

#[test]
fn missing_parts_of_a_directory_are_detected() {
    let home = home();
    let path = home.path().join("data");
    let image = few(&path).image;
    for part in [
        "store",
        "store/log",
        "store/log/mark",
        "store/table-1",
        "store/table-1/db",
    ] {
        restore(&image, &path);
        let state = path.join(part);
        if state.is_dir() {
            fs::remove_dir_all(state).unwrap()
        } else {
            fs::remove_file(state).unwrap()
        }
        let config = small(&path);
        for _ in 0..2 {
            let refused = [
                open(&config, Limits::default(), 1).map(drop),
                verify(&config, Limits::default()).map(drop),
            ];
            assert!(
                refused
                    .iter()
                    .all(|it| matches!(it, Err(OpenError::Damaged(_)))),
                "without {part}: {refused:?}"
            );
        }
        fs::remove_dir_all(&path).unwrap();
    }
    restore(&image, &path);
    fs::remove_dir_all(path.join("store/table-1")).unwrap();
    fs::write(path.join("store/table-1"), []).unwrap();
    let refused = open(&small(&path), Limits::default(), 1).unwrap_err();
    assert!(
        matches!(refused, OpenError::Store(_)),
        "it is there, and cannot be opened: {refused}"
    );
    fs::remove_dir_all(&path).unwrap();
    // The line that names the holder is not required.
    restore(&image, &path);
    fs::remove_file(path.join("lock")).unwrap();
    assert!(open(&small(&path), Limits::default(), 1).is_ok());
}

#[test]
fn one_daemon_at_a_time() {
    let home = home();
    let config = small(home.path());
    let daemon = open(&config, Limits::default(), 1).unwrap();
    let refused = open(&config, Limits::default(), 1).unwrap_err();
    let text = refused.to_string();
    assert!(
        matches!(refused, OpenError::Store(Error::InUse { .. })),
        "{text}"
    );
    assert!(
        text.contains(&format!(
            "in use by another process (process {})",
            std::process::id()
        )),
        "{text}"
    );
    assert!(
        verify(&config, Limits::default()).is_err(),
        "nor is it read meanwhile"
    );
    drop(daemon);
    open(&config, Limits::default(), 1).unwrap();
}
