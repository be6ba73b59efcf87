//! Data directories of version 0.1.0, which stored its journal in sled: they are read once and taken over.
//!
//! Each commit of that version is split into values of at most 4 KiB under consecutive keys (`frame`, `replay`), and
//! its engine meta counts the existing commits. sled's file is read by `sled_file`.

mod frame;
mod opening;
mod replay;

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use self::replay::{Assembler, Refusal, Whole};
use crate::codec::Reader;
use crate::damage::{Damage, Loss, OpenError};
use crate::record::{Counted, Record, census_share};
use crate::recover::Replay;
use crate::sled_file::SledFile;
use crate::store::Error;

const DB: &str = "db";
const CONF: &str = "conf";
const TREE: &[u8] = b"journal";
const SEGMENT_BYTES: usize = 8 << 20;

/// Reads the journal in this folder. Returns its net effect, and the number of its last commit.
///
/// # Errors
///
/// If it cannot be read, or commits are missing.
pub(crate) fn load(folder: &Path) -> Result<(Replay, u64), OpenError> {
    opening::mend(folder)?;
    read(folder)
}

/// Like [`load`], but changes nothing.
///
/// # Errors
///
/// As [`load`]; also if the journal must first be restored to its state before an interrupted opening.
pub(crate) fn load_as_it_is(folder: &Path) -> Result<(Replay, u64), OpenError> {
    if opening::was_cut_short(folder)? {
        let what = "an opening was interrupted: the next start restores the journal's earlier state";
        return Err(Damage::of(folder.display(), what).into());
    }
    read(folder)
}

fn read(folder: &Path) -> Result<(Replay, u64), OpenError> {
    let file = SledFile::open(&folder.join(DB), segment_bytes(folder))?;
    let whole_index = file.index(None)?;
    let tears: Vec<u64> = whole_index.tears().to_vec();
    let mut first = None;
    for upto in std::iter::once(None).chain(tears.into_iter().map(Some)) {
        match try_load(&file, upto)? {
            Ok((replay, last_seq)) => {
                check_end(folder, &file, last_seq)?;
                return Ok((replay, last_seq));
            }
            Err(why) => drop(first.get_or_insert(why)),
        }
    }
    let what = first.map_or_else(|| "nothing in it can be read".to_owned(), |why| why.to_string());
    Err(Damage::of(folder.display(), what).into())
}

/// Checks that commit `last_seq` can be the last acknowledged one: damage in sled's log may also end it early. A commit
/// was begun only after the acknowledgement of the previous one, so there may be traces of one more commit, not of two.
fn check_end(folder: &Path, file: &SledFile, last_seq: u64) -> Result<(), OpenError> {
    let mut newest = last_seq;
    file.for_each_value(&mut |value| {
        newest = newest.max(frame::seq(value).unwrap_or(0));
        ControlFlow::Continue(())
    })?;
    if newest <= last_seq + 1 {
        return Ok(());
    }
    let what = "the journal is damaged: it ends before commits whose traces it holds".to_owned();
    let loss = Some(Loss { first: last_seq + 1, last: newest - 1 });
    Err(Damage { place: folder.display().to_string(), what, loss }.into())
}

fn try_load(file: &SledFile, upto: Option<u64>) -> Result<Result<(Replay, u64), Refusal>, OpenError> {
    let index = file.index(upto)?;
    let (mut replay, mut assembler, mut count) =
        (Replay::new(), Assembler::default(), Counted { commits: 0, census: 0 });
    let mut refused = None;
    let walk = file.for_each(&index, TREE, &mut |key, value| {
        let key = key.try_into().map_or(u64::MAX, u64::from_be_bytes);
        let mut show = |whole: &Whole<'_>| {
            count.commits += 1;
            count.census = count.census.wrapping_add(census_share(whole.seq));
            take(&mut replay, whole)
        };
        match assembler.push(key, value, &mut show) {
            Ok(()) => ControlFlow::Continue(()),
            Err(why) => {
                refused = Some(why);
                ControlFlow::Break(())
            }
        }
    })?;
    if let Some(why) = refused.or(walk.gap.map(Refusal::Gap)) {
        return Ok(Err(why));
    }
    let last_seq = assembler.last_seq();
    let torn = match assembler.finish() {
        Ok(torn) => torn,
        Err(why) => return Ok(Err(why)),
    };
    // A torn commit may have removed old values: then the count is lower, and nothing is lost.
    let expected = replay.meta().and_then(|meta| meta.counted).filter(|_| torn.is_none());
    Ok(match expected.filter(|expected| *expected != count) {
        Some(expected) => Err(Refusal::Lost { expected: expected.commits, found: count.commits }),
        None => Ok((replay, last_seq)),
    })
}

fn take(replay: &mut Replay, whole: &Whole<'_>) -> Result<(), Refusal> {
    let mut reader = Reader::new(whole.records);
    while reader.left() > 0 {
        let record = Record::decode(&mut reader).map_err(|why| Refusal::Damaged {
            key: whole.first_key,
            after: whole.seq - 1,
            why: why.into(),
        })?;
        replay.apply(record);
    }
    Ok(())
}

/// The size in sled's own settings file, or the default of that version.
fn segment_bytes(folder: &Path) -> usize {
    let notes = fs::read(folder.join(CONF)).unwrap_or_default();
    let text = String::from_utf8_lossy(&notes);
    let line = text.lines().find_map(|line| line.trim().strip_prefix("segment_size:"));
    line.and_then(|size| size.trim().parse().ok())
        .filter(|size| (256..=1 << 30).contains(size))
        .unwrap_or(SEGMENT_BYTES)
}

/// Receives the records of a commit, or why a value cannot be read.
pub(crate) type ShowCommit<'a> = dyn FnMut(Result<&[u8], String>) + 'a;

/// Shows the records of every complete commit, and the damage of other values. Returns the number of missing commits,
/// according to the last one.
///
/// # Errors
///
/// If nothing can be read.
pub(crate) fn salvage(folder: &Path, show: &mut ShowCommit<'_>) -> Result<u64, Error> {
    let file = SledFile::open(&folder.join(DB), segment_bytes(folder))?;
    // Of each value the last version counts. A removed value may reappear: then a later commit overrides it.
    let mut values: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    file.for_each_leaf_entry(&mut |key, value, _| {
        if let Ok(key) = key.try_into().map(u64::from_be_bytes) {
            values.insert(key, value.to_vec());
        }
        ControlFlow::Continue(())
    })?;
    let (mut commit, mut at, mut found, mut expected) = (Vec::new(), None, 0, None);
    for (key, value) in &values {
        let frame = match frame::open(*key, value) {
            Ok(frame) => frame,
            Err(why) => {
                show(Err(format!("value {key}: {why}")));
                continue;
            }
        };
        if frame.part > 0 && at != Some((frame.seq, frame.part)) {
            at = None;
            continue;
        }
        if frame.part == 0 {
            commit.clear();
        }
        commit.extend_from_slice(frame.slice);
        at = Some((frame.seq, frame.part + 1));
        if frame.part + 1 == frame.parts {
            found += 1;
            for record in Record::all(&commit).map_while(Result::ok) {
                if let Record::Meta(meta) = record {
                    expected = meta.counted.map(|counted| counted.commits);
                }
            }
            show(Ok(&commit));
        }
    }
    Ok(expected.unwrap_or(0).saturating_sub(found))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;
    use windlass_engine::EngineMeta;

    use super::*;
    use crate::record::MetaRecord;

    const SEGMENT_BYTES: usize = 64 << 10;

    /// The engine meta of a commit, as the last of so many.
    fn meta(commits: u64) -> Vec<u8> {
        let census = (1..=commits).fold(0_u64, |sum, seq| sum.wrapping_add(census_share(seq)));
        let counted = Some(Counted { commits, census });
        let mut bytes = Vec::new();
        Record::Meta(MetaRecord { meta: EngineMeta::default(), clean: false, counted }).encode(&mut bytes);
        bytes
    }

    /// A key, a commit, its part and number of parts, and the part's bytes.
    type Value<'a> = (u64, u64, (u32, u32), &'a [u8]);

    /// A journal with these values.
    fn journal(values: &[Value<'_>]) -> TempDir {
        let home = tempfile::tempdir().unwrap();
        let config = sled::Config::new().path(home.path()).segment_size(SEGMENT_BYTES).flush_every_ms(None);
        let db = config.open().unwrap();
        let tree = db.open_tree(TREE).unwrap();
        for (key, seq, parts, slice) in values {
            let mut value = [&[0; 25][..], slice].concat();
            frame::tests::seal(*key, *seq, *parts, 0, &mut value);
            tree.insert(key.to_be_bytes(), value).unwrap();
        }
        db.flush().unwrap();
        drop((tree, db));
        home
    }

    #[test]
    fn salvage_shows_whole_commits_and_counts_the_others() {
        let last = meta(6);
        let home = journal(&[
            (1, 1, (0, 1), b"one"),
            (3, 2, (1, 3), b"without"),
            (4, 2, (2, 3), b"its first"),
            (5, 3, (0, 2), b"two "),
            (6, 3, (1, 2), b"parts"),
            (7, 4, (0, 3), b"without"),
            (9, 4, (2, 3), b"its second"),
            (10, 5, (0, 2), b"another"),
            (11, 4, (1, 2), b"commit's"),
            (12, 6, (0, 1), &last),
        ]);
        let mut shown = Vec::new();
        let missing = salvage(home.path(), &mut |commit| shown.push(commit.unwrap().to_vec())).unwrap();
        assert_eq!(shown, [b"one".to_vec(), b"two parts".to_vec(), last]);
        assert_eq!(missing, 3);
    }

    #[test]
    fn a_journal_with_fewer_commits_than_its_last_one_counts_is_refused() {
        let metas = [1, 2, 3].map(meta);
        let values = [(1, 1, (0, 1), &metas[0][..]), (2, 2, (0, 1), &metas[1]), (3, 3, (0, 1), &metas[2])];
        assert_eq!(load(journal(&values).path()).map(|(_, last)| last).unwrap(), 3);
        let Err(OpenError::Damaged(damage)) = load(journal(&[values[0], values[2]]).path()) else {
            panic!("the second one is missing")
        };
        assert!(damage.what.contains("found 2 of 3"), "{damage}");
    }

    #[test]
    fn an_invalid_record_is_reported_after_the_last_whole_commit() {
        let commit = Whole { seq: 7, first_key: 9, records: &[77] };
        let Err(Refusal::Damaged { key, after, .. }) = take(&mut Replay::new(), &commit) else {
            panic!("kind 77 does not exist")
        };
        assert_eq!((key, after), (9, 6));
    }
}
