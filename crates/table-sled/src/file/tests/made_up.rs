//! Made-up logs: the limits of segments, messages and pages, and what a salvage makes of losses.

use super::super::message::segment_number;
use super::damage::{
    SEGMENT_BYTES, message, message_of, number, only_leaf, salvage_any, segment, segment_at,
    string, written,
};
use super::*;

fn damaged(mut message: Vec<u8>) -> Vec<u8> {
    *message.last_mut().unwrap() ^= 1;
    message
}

fn meta() -> Vec<u8> {
    message(6, 0, &[string(TREE), number(2)].concat())
}

/// A log of these segments: their numbers, and their messages.
fn log(segments: &[(u64, Vec<Vec<u8>>)]) -> Vec<u8> {
    let segments = segments.iter().map(|(number, messages)| {
        let lsn = i64::try_from(number * SEGMENT_BYTES as u64).unwrap();
        let mut bytes = segment_at(lsn, 0, messages);
        bytes.resize(SEGMENT_BYTES, 0);
        bytes
    });
    segments.collect::<Vec<_>>().concat()
}

#[test]
fn a_header_is_a_segment() {
    let header = segment(&[]);
    for (bytes, segments) in [(header.len(), 1), (header.len() - 1, 0), (0, 0)] {
        let index = written(&header[..bytes]).1.index(None).unwrap();
        let end = if segments == 1 {
            header.len() as u64
        } else {
            0
        };
        assert_eq!(
            (index.segments, index.messages, index.end),
            (segments, 0, end),
            "{bytes} bytes"
        );
    }
}

#[test]
fn a_message_may_end_a_segment() {
    let filler = message(1, 0, &vec![1; SEGMENT_BYTES - 20 - 32 - 32]);
    let index = written(&segment(&[filler, message(4, 2, &[])]))
        .1
        .index(None)
        .unwrap();
    assert_eq!((index.messages, index.unreadable), (2, 0));
}

#[test]
fn what_the_disk_cannot_read_is_an_error() {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join("db")).unwrap();
    let file = SledFile::open(&home.path().join("db"), SEGMENT_BYTES).unwrap();
    assert!(
        file.read(0, &mut [0; 20]).is_err(),
        "a folder is in the file's place"
    );

    let (home, file) = written(&segment(&[meta(), message(9, 2, &77_i64.to_le_bytes())]));
    fs::create_dir(home.path().join(BLOBS)).unwrap();
    std::os::unix::fs::symlink("77", home.path().join(BLOBS).join("77")).unwrap();
    let walk = file.for_each(&file.index(None).unwrap(), TREE, &mut |_, _, _| {
        ControlFlow::Continue(())
    });
    assert!(
        walk.is_err(),
        "a link to itself is in the place of the contents"
    );
}

#[test]
fn a_segment_without_a_header_is_placed_within_the_log() {
    let end = i64::MAX.unsigned_abs() / SEGMENT_BYTES as u64;
    for (number, is_placed) in [
        (0, true),
        (1 << 20, true),
        (end - 1, true),
        (end, false),
        (u64::MAX, false),
    ] {
        let bytes = [vec![0; 20], message_of(number, 8, 2, &only_leaf())].concat();
        let placed = segment_number(&bytes, SEGMENT_BYTES, SEGMENT_BYTES);
        assert_eq!(placed, is_placed.then_some(number), "number {number}");
    }
}

#[test]
fn after_damage_messages_are_found_up_to_the_size_that_sled_writes() {
    let most = SEGMENT_BYTES / 4;
    for (bytes, found) in [(most, 1), (most + 1, 0)] {
        let messages = [
            damaged(message(1, 0, b"damaged")),
            message(1, 0, &vec![7; bytes]),
        ];
        let (_home, file) = written(&segment(&messages));
        assert_eq!(salvage_any(&file).2, found, "a body of {bytes} bytes");
    }
}

#[test]
fn a_change_is_shown_unless_an_image_of_its_page_may_be_missing_before_it() {
    let leaf = |n: u64| message_of(n, 8, 2, &only_leaf());
    let set = |n: u64| message_of(n, 10, 2, &[vec![0], string(b"k"), string(b"v")].concat());
    let loss = || damaged(message(1, 0, b"damaged"));
    let cap = |n: u64| message_of(n, 2, u64::MAX, &[]);
    // Each leaf and each change has one entry.
    let cases = [
        ("no loss", vec![(0, vec![leaf(0), set(0), leaf(0)])], 3, 0),
        (
            "a loss",
            vec![(0, vec![leaf(0), loss(), set(0), leaf(0)])],
            2,
            1,
        ),
        (
            "two losses",
            vec![(0, vec![leaf(0), loss(), set(0), loss(), set(0), leaf(0)])],
            2,
            2,
        ),
        (
            "a loss behind the last image",
            vec![(0, vec![leaf(0), loss(), set(0)])],
            2,
            0,
        ),
        ("no image", vec![(0, vec![set(0)])], 0, 1),
        (
            "two segments",
            vec![(0, vec![leaf(0), cap(0)]), (1, vec![set(1), leaf(1)])],
            3,
            0,
        ),
        (
            "a missing segment",
            vec![(0, vec![leaf(0), cap(0)]), (2, vec![set(2), leaf(2)])],
            2,
            1,
        ),
    ];
    for (name, segments, entries, keyless) in cases {
        let (_home, file) = written(&log(&segments));
        let (found, salvaged, _) = salvage_any(&file);
        assert_eq!((found, salvaged.keyless), (entries, keyless), "{name}");
    }
}

#[test]
fn unreadable_messages_are_counted() {
    let nonsense = message_of(1, 10, 2, &[9]);
    let cap = message_of(0, 2, u64::MAX, &[]);
    let bytes = log(&[
        (0, vec![cap]),
        (1, vec![nonsense, damaged(message_of(1, 1, 0, b"damaged"))]),
    ]);
    let (_home, file) = written(&bytes);
    assert_eq!(salvage_any(&file).1.unreadable, 2);
}

#[test]
fn a_page_whose_place_was_used_again_since_the_file_was_indexed_is_not_read() {
    let offset = 20 + meta().len() as u64;
    let others = [
        (message_of(1, 8, 2, &only_leaf()), Flaw::Segment(1)),
        (message(8, 3, &only_leaf()), Flaw::Page(3)),
    ];
    for (other, flaw) in others {
        let (home, file) = written(&segment(&[meta(), message(8, 2, &only_leaf())]));
        let index = file.index(None).unwrap();
        fs::write(home.path().join("db"), segment(&[meta(), other])).unwrap();
        assert_eq!(
            read(&file, &index).1,
            Some(Gap::Unreadable {
                page: 2,
                offset,
                flaw
            })
        );
    }
}

/// A leaf that is the whole tree, of this size.
fn leaf_of(bytes: usize) -> Vec<u8> {
    let head = [
        number(0),
        number(0),
        vec![0, 0],
        string(b""),
        string(b""),
        vec![0],
        number(1),
        string(b"k"),
    ]
    .concat();
    let value = vec![7; bytes - head.len() - number(0).len()];
    [head, number(value.len() as u64), value].concat()
}

/// A change to a leaf, of this size.
fn change_of(bytes: usize) -> Vec<u8> {
    let head = [vec![0], string(b"l")].concat();
    let value = vec![7; bytes - head.len() - number(0).len()];
    [head, number(value.len() as u64), value].concat()
}

#[test]
fn a_page_with_its_changes_has_a_limit() {
    let named = 77_i64.to_le_bytes();
    let small = [
        message(8, 2, &leaf_of(100)),
        message(10, 2, &change_of(100)),
    ];
    for (more, expected) in [(0, Ok(2)), (1, Err(Flaw::Large))] {
        // A small leaf and a large change in a file of its own, and the reverse.
        let change = change_of(PAGE_BYTES_MAX - small[0].len() + more);
        let leaf = leaf_of(PAGE_BYTES_MAX - small[1].len() + more);
        let cases = [
            ([small[0].clone(), message(11, 2, &named)], 11, change),
            ([message(9, 2, &named), small[1].clone()], 9, leaf),
        ];
        for ([leaf, change], tag, contents) in cases {
            let (home, file) = written(&segment(&[meta(), leaf, change]));
            let rest = [vec![tag], contents].concat();
            fs::create_dir(home.path().join(BLOBS)).unwrap();
            let blob = [&crc32fast::hash(&rest).to_le_bytes()[..], &rest].concat();
            fs::write(home.path().join(BLOBS).join("77"), blob).unwrap();
            let (entries, walk) = read(&file, &file.index(None).unwrap());
            let is = match walk {
                None => Ok(entries.len()),
                Some(Gap::Unreadable { flaw, .. }) => Err(flaw),
                Some(gap) => panic!("{gap:?}"),
            };
            assert_eq!(is, expected, "{more} bytes beyond the limit, kind {tag}");
        }
    }
}
