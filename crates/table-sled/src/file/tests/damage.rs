//! Files that sled did not leave in this state.

use super::super::message::Kind;
use super::*;

pub(super) const SEGMENT_BYTES: usize = 16 << 10;

impl Beside {
    /// Sets and removes a few hundred random keys.
    fn shuffle(
        &mut self,
        steps: usize,
        bytes: u64,
        seed: &mut u64,
        done: &mut dyn FnMut(&Entries),
    ) {
        for _ in 0..steps {
            let key = (1_200 + rng(seed) % 300).to_be_bytes();
            if rng(seed) % 5 < 3 {
                self.set(&key, one(seed, bytes));
            } else {
                self.remove(&key);
            }
            done(&self.entries);
        }
        self.flush();
    }
}

#[test]
fn a_log_cut_within_two_segments_of_its_end_holds_what_it_held() {
    for segment_bytes in [SEGMENT_BYTES, 4 * SEGMENT_BYTES] {
        let (mut beside, mut seed) = (Beside::new(segment_bytes), 1);
        let (file, step) = (beside.file(), segment_bytes as u64);
        let mut before: Vec<(u64, Entries)> = Vec::new();
        for _ in 0..80 {
            beside.shuffle(20, 300, &mut seed, &mut |_| ());
            let end = beside.check().end;
            let last = end - end % step;
            before.retain(|(end, _)| end + step >= last);
            for (end, entries) in &before {
                let index = file.index(Some(*end)).unwrap();
                let (read, walk) = read(&file, &index);
                assert!(
                    walk.is_none() && read == *entries,
                    "cut at {end}: {:?}",
                    walk
                );
            }
            before.push((end, beside.entries.clone()));
        }
    }
}

/// As it is after a `kill -9`: not all messages have to be verified to find that out.
#[test]
fn half_a_message_at_the_end_is_none_by_headers_alone_too() {
    let (bytes, _) = worn();
    let index = written(&bytes).1.index(None).unwrap();
    let fragments = index
        .pages
        .values()
        .flat_map(|page| std::iter::once(&page.image).chain(&page.links));
    let last = fragments.max_by_key(|fragment| fragment.lsn).unwrap();
    for left in 0..last.bytes {
        let mut bytes = bytes.clone();
        let cut = usize::try_from(last.offset).unwrap() + left;
        let end = cut.next_multiple_of(SEGMENT_BYTES).min(bytes.len());
        bytes[cut..end].fill(0);
        let (_home, file) = written(&bytes);
        let [(all, walk), (outline, other)] =
            [file.index(None), file.outline()].map(|index| read(&file, &index.unwrap()));
        assert_eq!((walk, other), (None, None), "{left} bytes of it");
        assert!(all == outline, "{left} bytes of it");
    }
}

/// Random blocks of one file or of the other: what a power cut may leave between two syncs.
fn mixed(old: &[u8], new: &[u8], seed: &mut u64) -> Vec<u8> {
    let (bytes, share) = (
        if one(seed, 2) == 0 {
            old.len()
        } else {
            new.len()
        },
        one(seed, 9),
    );
    let mut mixed = vec![0; bytes];
    for (n, block) in mixed.chunks_mut(4_096).enumerate() {
        let from = if one(seed, 8) < share { new } else { old };
        let from = from.get(n * 4_096..).unwrap_or_default();
        block
            .iter_mut()
            .zip(from)
            .for_each(|(to, from)| *to = *from);
    }
    mixed
}

#[test]
fn a_power_cut_leaves_one_of_the_states_since_the_last_sync() {
    let mut needed = [0; 8];
    for mut seed in 0..2 {
        let mut beside = Beside::new(64 << 10);
        let (db, mix) = (
            beside.home.path().join("db"),
            beside.home.path().join("mix"),
        );
        beside.flush();
        let mut old = fs::read(&db).unwrap();
        for round in 0..200 {
            let mut states = vec![beside.entries.clone()];
            beside.shuffle(45, 800, &mut seed, &mut |entries| {
                states.push(entries.clone())
            });
            let new = fs::read(&db).unwrap();
            fs::write(&mix, mixed(&old, &new, &mut seed)).unwrap();
            old = new;

            let file = SledFile::open(&mix, beside.segment_bytes).unwrap();
            let index = file.index(None).unwrap();
            let cuts = [None]
                .into_iter()
                .chain(index.tears().iter().copied().map(Some));
            let right = cuts.enumerate().find(|(_, cut)| {
                let (entries, walk) = read(&file, &file.index(*cut).unwrap());
                walk.is_none() && states.contains(&entries)
            });
            let Some((cuts, _)) = right else {
                panic!("round {round}: none of {:?}", index.tears())
            };
            needed[cuts] += 1;
        }
    }
    assert!(needed[1] > 10, "no test of cuts: {needed:?}");
}

/// A file with reused segments and with split and merged pages, and its contents.
fn worn() -> (Vec<u8>, Entries) {
    let mut beside = Beside::new(SEGMENT_BYTES);
    churn(&mut beside, 0..1_500, 200, 0..200);
    beside.shuffle(1_000, 200, &mut 5, &mut |_| ());
    // sled's own threads must not write while the file is read.
    beside.close();
    beside.check();
    (
        fs::read(beside.home.path().join("db")).unwrap(),
        beside.entries,
    )
}

/// Salvages a file: each key with its last value, and the number of keys that differ from the keys in their values.
fn salvage(file: &SledFile) -> (Entries, Salvaged, usize) {
    let (mut entries, mut last, mut astray) = (Entries::new(), 0, 0);
    let salvaged = file.for_each_leaf_entry(&mut |key, value, lsn| {
        assert!(lsn >= last, "not in the order of the log");
        last = lsn;
        astray += usize::from(!genuine(key, value));
        entries.insert(key.to_vec(), value.to_vec());
        ControlFlow::Continue(())
    });
    (entries, salvaged.unwrap(), astray)
}

#[test]
fn damage_is_noticed_and_salvage_loses_one_message_of_it() {
    let (bytes, entries) = worn();
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("db");
    fs::write(&path, &bytes).unwrap();
    let file = SledFile::open(&path, SEGMENT_BYTES).unwrap();
    let whole = file.index(None).unwrap();
    let (found, salvaged, astray) = salvage(&file);
    assert!(
        entries
            .iter()
            .all(|(key, value)| found.get(key) == Some(value))
    );
    assert_eq!(
        (astray, salvaged.unreadable),
        (0, 1),
        "the end of the log alone"
    );

    let mut seed = 3;
    for round in 0..150 {
        let mut damaged = bytes.clone();
        let at = one(&mut seed, bytes.len() as u64);
        if round % 2 == 0 {
            damaged[at] ^= 1 << one(&mut seed, 8);
        } else {
            let block = at / 4_096 * 4_096;
            damaged[block..bytes.len().min(block + 4_096)].fill(0);
        }
        fs::write(&path, &damaged).unwrap();
        let index = file.index(None).unwrap();
        let (got, walk) = read(&file, &index);
        let noticed = walk.is_some() || index.unreadable > 0 || index.end != whole.end;
        assert!(got == entries || noticed, "round {round}, byte {at}");
        for cut in index.tears() {
            read(&file, &file.index(Some(*cut)).unwrap());
        }
        let (found, salvaged, astray) = salvage(&file);
        // Changes to a page with a lost image, shown with the key prefix of the image before it.
        assert!(astray <= 9, "round {round}, byte {at}: {astray} astray");
        let lost = entries
            .iter()
            .filter(|(key, value)| found.get(*key) != Some(value))
            .count();
        // A page and the changes to it are up to 26 entries, a block is part of up to five pages.
        assert!(
            lost <= if round % 2 == 0 { 26 } else { 130 },
            "round {round}, byte {at}: {lost} lost, {salvaged:?}"
        );
    }
}

#[test]
fn a_file_that_was_cut_off_yields_values_that_were_written() {
    let (bytes, _) = worn();
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("db");
    let file = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        SledFile::open(&path, SEGMENT_BYTES).unwrap()
    };
    let written = |value: &[u8]| {
        let key_bytes = u32::from_le_bytes(value[..4].try_into().unwrap()) as usize;
        genuine(&value[4..4 + key_bytes], value)
    };
    let mut seed = 9;
    for _ in 0..60 {
        let file = file(&bytes[..one(&mut seed, bytes.len() as u64)]);
        let (got, _) = read(&file, &file.index(None).unwrap());
        assert!(got.values().all(|value| written(value)));
        let (found, ..) = salvage(&file);
        assert!(found.values().all(|value| written(value)));
    }
}

#[test]
fn segments_without_a_header_are_salvaged() {
    let (bytes, entries) = worn();
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("db");
    let mut damaged = bytes.clone();
    damaged
        .chunks_mut(SEGMENT_BYTES)
        .for_each(|segment| segment.iter_mut().take(20).for_each(|byte| *byte ^= 1));
    fs::write(&path, &damaged).unwrap();
    let file = SledFile::open(&path, SEGMENT_BYTES).unwrap();
    let index = file.index(None).unwrap();
    assert_eq!((index.segments, index.messages), (0, 0));
    assert_eq!(index.unreadable, bytes.len().div_ceil(SEGMENT_BYTES) as u64);
    assert_eq!(read(&file, &index).1, Some(Gap::NoMeta));
    let (found, _, astray) = salvage(&file);
    assert!(
        astray == 0
            && entries
                .iter()
                .all(|(key, value)| found.get(key) == Some(value))
    );
}

/// A number in its longest encoding.
pub(super) fn number(number: u64) -> Vec<u8> {
    [vec![255], number.to_le_bytes().to_vec()].concat()
}

pub(super) fn string(bytes: &[u8]) -> Vec<u8> {
    [number(bytes.len() as u64), bytes.to_vec()].concat()
}

pub(super) fn message(kind: u8, page: u64, body: &[u8]) -> Vec<u8> {
    message_of(0, kind, page, body)
}

pub(super) fn message_of(segment: u64, kind: u8, page: u64, body: &[u8]) -> Vec<u8> {
    let header = [
        vec![kind],
        number(body.len() as u64),
        number(segment),
        number(page),
    ]
    .concat();
    let sum = !crc32fast::hash(&[body, &header].concat());
    [&sum.to_le_bytes()[..], &header, body].concat()
}

pub(super) fn segment(messages: &[Vec<u8>]) -> Vec<u8> {
    segment_at(0, -1, messages)
}

pub(super) fn segment_at(lsn: i64, stable: i64, messages: &[Vec<u8>]) -> Vec<u8> {
    let header = [lsn, stable]
        .map(|at| (at ^ i64::MAX).to_le_bytes())
        .concat();
    let sum = !crc32fast::hash(&header);
    [&sum.to_le_bytes()[..], &header, &messages.concat()].concat()
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![Just(vec![]), proptest::collection::vec(0..3u8, 0..4)]
}

/// Nodes with arbitrary references, and invalid bytes.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let entries = proptest::collection::vec((text(), 0..6u64), 0..4);
    let node = (0..6u64, 0..3u8, text(), text(), 0..3u8, entries);
    let node = node.prop_map(|(next, prefix, lo, hi, kind, entries)| {
        let mut body = [
            number(next),
            number(0),
            vec![0, prefix],
            string(&lo),
            string(&hi),
            vec![kind],
        ]
        .concat();
        body.extend(number(entries.len() as u64));
        body.extend(entries.iter().flat_map(|(key, _)| string(key)));
        body.extend(entries.iter().flat_map(|(key, page)| {
            if kind == 0 {
                string(key)
            } else {
                number(*page)
            }
        }));
        body
    });
    let link = (0..6u8, text(), text())
        .prop_map(|(kind, key, value)| [vec![kind], string(&key), string(&value)].concat());
    let meta = (0..6u64).prop_map(|page| [string(TREE), number(page)].concat());
    prop_oneof![6 => node, 3 => link, 3 => meta, 1 => proptest::collection::vec(any::<u8>(), 0..40)]
}

proptest! {
    #[test]
    fn invalid_pages_end_the_walk(
        root in 1..6u64,
        messages in proptest::collection::vec((prop_oneof![4 => Just(8u8), 2 => Just(10), 1 => 0..13u8], 0..6u64, body()), 0..40),
    ) {
        let mut bytes = segment(&[]);
        bytes.extend(message(6, 0, &[string(TREE), number(root)].concat()));
        bytes.extend(messages.iter().flat_map(|(kind, page, body)| message(*kind, *page, body)));
        bytes.extend(message(2, u64::MAX, &[0; 9]));
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("db");
        fs::write(&path, bytes).unwrap();
        let file = SledFile::open(&path, SEGMENT_BYTES).unwrap();
        let index = file.index(None).unwrap();
        prop_assert_eq!(index.segments, 1);
        file.for_each(&index, TREE, &mut |_, _, _| ControlFlow::Continue(())).unwrap();
        file.for_each_leaf_entry(&mut |_, _, _| ControlFlow::Continue(())).unwrap();
    }

    #[test]
    fn noise_does_not_read_as_a_log(noise in proptest::collection::vec(any::<u8>(), 0..2_000), header in any::<bool>()) {
        let bytes = if header { [segment(&[]), noise].concat() } else { noise };
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("db");
        fs::write(&path, bytes).unwrap();
        let file = SledFile::open(&path, 256).unwrap();
        let index = file.index(None).unwrap();
        prop_assert_eq!(read(&file, &index).1, Some(Gap::NoMeta));
        prop_assert!(salvage(&file).0.is_empty());
    }
}

#[test]
fn a_made_up_log_reads_as_a_log() {
    let leaf = |next: u64, lo: &[u8], hi: &[u8], keys: &[&[u8]]| {
        let mut body = [
            number(next),
            number(0),
            vec![0, 0],
            string(lo),
            string(hi),
            vec![0],
        ]
        .concat();
        body.extend(number(keys.len() as u64));
        body.extend([keys, keys].concat().iter().flat_map(|key| string(key)));
        message(8, if lo.is_empty() { 2 } else { 3 }, &body)
    };
    let meta = message(6, 0, &[string(TREE), number(2)].concat());
    let set = message(10, 3, &[vec![0], string(b"m"), string(b"new")].concat());
    let nonsense = Gap::Unreadable {
        page: 2,
        offset: 20 + meta.len() as u64,
        flaw: Flaw::Nonsense,
    };
    let cases = [
        (
            "one leaf",
            vec![meta.clone(), leaf(0, b"", b"", &[b"a"])],
            Ok(1),
        ),
        (
            "two",
            vec![
                meta.clone(),
                leaf(3, b"", b"k", &[b"a"]),
                leaf(0, b"k", b"", &[b"k"]),
            ],
            Ok(2),
        ),
        (
            "and a change",
            vec![
                meta.clone(),
                leaf(3, b"", b"k", &[]),
                leaf(0, b"k", b"", &[b"k"]),
                set.clone(),
            ],
            Ok(2),
        ),
        (
            "round and round",
            vec![meta.clone(), leaf(2, b"", b"k", &[b"a"])],
            Err(Gap::Misplaced(2)),
        ),
        (
            "no neighbour",
            vec![meta.clone(), leaf(3, b"", b"k", &[b"a"])],
            Err(Gap::Lost(3)),
        ),
        (
            "an empty range",
            vec![
                meta.clone(),
                leaf(3, b"", b"k", &[]),
                leaf(9, b"k", b"k", &[]),
            ],
            Err(Gap::Misplaced(3)),
        ),
        (
            "no node",
            vec![meta.clone(), message(5, 2, &[])],
            Err(nonsense),
        ),
        (
            "freed",
            vec![meta.clone(), leaf(0, b"", b"", &[]), message(4, 2, &[])],
            Err(Gap::Lost(2)),
        ),
        (
            "a key too high",
            vec![meta, leaf(3, b"", b"k", &[b"x"]), leaf(0, b"k", b"", &[])],
            Err(Gap::UnclaimedJob(2)),
        ),
    ];
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("db");
    for (name, messages, expected) in cases {
        fs::write(&path, segment(&messages)).unwrap();
        let file = SledFile::open(&path, SEGMENT_BYTES).unwrap();
        let index = file.index(None).unwrap();
        assert_eq!(index.messages, messages.len() as u64, "{name}");
        let (entries, walk) = read(&file, &index);
        assert_eq!(walk.map_or(Ok(entries.len()), Err), expected, "{name}");
    }
    assert_eq!(Message::read(&set).unwrap().kind, Kind::Link);
}

/// A leaf that is the whole tree, with one entry.
pub(super) fn only_leaf() -> Vec<u8> {
    let head = [
        number(0),
        number(0),
        vec![0, 0],
        string(b""),
        string(b""),
        vec![0],
        number(1),
    ]
    .concat();
    [head, string(b"key"), string(b"value")].concat()
}

pub(super) fn written(bytes: &[u8]) -> (TempDir, SledFile) {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("db");
    fs::write(&path, bytes).unwrap();
    let file = SledFile::open(&path, SEGMENT_BYTES).unwrap();
    (home, file)
}

#[test]
fn large_contents_are_in_a_file_of_their_own() {
    const TAG: u8 = 9;
    let blob = |tag: u8| {
        let rest = [&[tag][..], &only_leaf()].concat();
        [&crc32fast::hash(&rest).to_le_bytes()[..], &rest].concat()
    };
    let damaged = |mut blob: Vec<u8>| {
        *blob.last_mut().unwrap() ^= 1;
        blob
    };
    let meta = message(6, 0, &[string(TREE), number(2)].concat());
    let offset = 20 + meta.len() as u64;
    let flaw = |flaw| {
        Err(Gap::Unreadable {
            page: 2,
            offset,
            flaw,
        })
    };
    let cases = [
        ("whole", 77_i64, Some(blob(TAG)), Ok(1)),
        ("damaged", 77, Some(damaged(blob(TAG))), flaw(Flaw::Blob)),
        ("of another kind", 77, Some(blob(8)), flaw(Flaw::Blob)),
        ("cut off", 77, Some(vec![1; 3]), flaw(Flaw::Blob)),
        ("missing", 77, None, flaw(Flaw::Blob)),
        ("of another name", 78, Some(blob(TAG)), flaw(Flaw::Blob)),
        ("of no name", -1, Some(blob(TAG)), flaw(Flaw::Nonsense)),
    ];
    for (name, id, blob, expected) in cases {
        let (home, file) = written(&segment(&[
            meta.clone(),
            message(TAG, 2, &id.to_le_bytes()),
        ]));
        fs::create_dir(home.path().join(BLOBS)).unwrap();
        blob.into_iter()
            .for_each(|blob| fs::write(home.path().join(BLOBS).join("77"), blob).unwrap());
        let (entries, walk) = read(&file, &file.index(None).unwrap());
        assert_eq!(walk.map_or(Ok(entries.len()), Err), expected, "{name}");
        let (found, salvaged, _) = salvage_any(&file);
        assert_eq!(
            (found, salvaged.unreadable),
            (expected.unwrap_or(0), 1 + u64::from(expected.is_err())),
            "{name}"
        );
    }
    let (home, file) = written(&segment(&[meta, message(TAG, 2, &77_i64.to_le_bytes())]));
    fs::create_dir(home.path().join(BLOBS)).unwrap();
    let blob = fs::File::create(home.path().join(BLOBS).join("77")).unwrap();
    blob.set_len(PAGE_BYTES_MAX as u64 + 1).unwrap();
    assert_eq!(
        read(&file, &file.index(None).unwrap()).1,
        flaw(Flaw::Large).err()
    );
}

/// The number of entries, whatever their values; the totals; and the number of intact messages.
pub(super) fn salvage_any(file: &SledFile) -> (usize, Salvaged, u64) {
    let mut entries = 0;
    let salvaged = file.for_each_leaf_entry(&mut |_, _, _| {
        entries += 1;
        ControlFlow::Continue(())
    });
    let salvaged = salvaged.unwrap();
    (entries, salvaged.clone(), salvaged.messages)
}

#[test]
fn a_page_has_as_many_changes_as_sled_can_note() {
    for (links, flaws) in [(253, 0), (254, 0), (255, 1), (256, 2)] {
        let mut messages = vec![
            message(6, 0, &[string(TREE), number(2)].concat()),
            message(8, 2, &only_leaf()),
        ];
        let set = message(10, 2, &[vec![0], string(b"k"), string(b"v")].concat());
        messages.extend(std::iter::repeat_n(set, links));
        let (_home, file) = written(&segment(&messages));
        let index = file.index(None).unwrap();
        assert_eq!(
            (index.unreadable, index.messages),
            (flaws, messages.len() as u64),
            "{links} changes"
        );
        let (entries, _, read) = salvage_any(&file);
        assert_eq!(
            (entries, read),
            (1 + links, messages.len() as u64),
            "{links} changes"
        );
    }
}

#[test]
fn a_log_may_be_cut_where_a_segment_is_missing_or_ends_early() {
    let step = i64::try_from(SEGMENT_BYTES).unwrap();
    let filled = |n: i64, stable: i64, messages: &[Vec<u8>]| {
        let mut bytes = segment_at(n * step, stable, messages);
        bytes.resize(SEGMENT_BYTES, 0);
        bytes
    };
    let cap = |n: i64| message_of(n.unsigned_abs(), 2, u64::MAX, &[]);
    let table: [(&[i64], i64, &[i64]); 6] = [
        (&[0, 1, 2], 0, &[]),
        (&[0, 2], 0, &[step]),
        (&[2, 4], 2 * step + 9, &[3 * step]),
        (&[3, 4], 2 * step + 9, &[2 * step]),
        (&[0, 1, 3], 3 * step, &[]),
        (&[0, 2, 4], step + 100, &[3 * step, step]),
    ];
    for (numbers, stable, tears) in table {
        let segments: Vec<_> = numbers
            .iter()
            .map(|n| filled(*n, stable, &[cap(*n)]))
            .collect();
        let index = written(&segments.concat()).1.index(None).unwrap();
        let is: Vec<i64> = index
            .tears()
            .iter()
            .map(|lsn| (*lsn).try_into().unwrap())
            .collect();
        assert_eq!(
            (is, index.unreadable),
            (tears.to_vec(), 0),
            "{numbers:?}, stable to {stable}"
        );
    }

    // sled leaves the last 32 bytes of a segment blank, if no message fits. More is a tear, unless it is the last one.
    for (left, is_torn) in [(34, true), (33, true), (32, false), (31, false), (0, false)] {
        let filler = message(1, 0, &vec![1; SEGMENT_BYTES - 20 - 32 - left]);
        let bytes = [filled(0, -1, &[filler]), filled(1, 0, &[cap(1)])].concat();
        let index = written(&bytes).1.index(None).unwrap();
        let tears = if is_torn {
            vec![(SEGMENT_BYTES - left) as u64]
        } else {
            vec![]
        };
        assert_eq!(index.tears(), tears, "{left} bytes are left");
        assert_eq!(
            index.unreadable,
            u64::from(is_torn),
            "{left} bytes are left"
        );
        assert_eq!(index.end, 2 * SEGMENT_BYTES as u64);
        let cut = written(&bytes).1.index(Some(SEGMENT_BYTES as u64)).unwrap();
        assert_eq!(
            (cut.segments, cut.unreadable),
            (1, 0),
            "a cut before the second segment"
        );
    }
}
