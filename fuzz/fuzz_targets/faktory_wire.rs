//! Hostile bytes against Faktory's codec: lines are the same however the stream is cut; an accepted job is stored as a
//! text that parses as the same job; a refused one has a reason; no pattern takes long.
#![no_main]

use std::borrow::Cow;

use arbitrary::Arbitrary;
use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use serde::de::IgnoredAny;
use windlass_engine::Glob;
use windlass_faktory::wire::{
    Ack, Beat, Failed, Hello, Lines, List, Mutate, NewBatch, Request, Text, TrackSet, Unit,
    parse_time, run_text, time_text,
};

#[derive(Debug, Arbitrary)]
enum Input<'a> {
    Lines { pieces: Vec<u8>, stream: &'a [u8] },
    Unit(Cow<'a, str>),
    List(Cow<'a, str>),
    Mutate(Cow<'a, str>),
    Others(Cow<'a, str>),
    Glob { pattern: &'a [u8], text: &'a [u8] },
    Text(&'a [u8]),
    Time(Cow<'a, str>),
}

const LINE_BYTES_MAX: usize = 64;

fuzz_target!(|input: Input<'_>| match input {
    Input::Lines { pieces, stream } => {
        let whole = lines([stream]);
        assert_eq!(lines(stream.chunks(1)), whole, "cut into bytes");
        let (mut cut, mut rest) = (Vec::new(), stream);
        for bytes in pieces {
            let (piece, left) = rest.split_at(usize::from(bytes).min(rest.len()));
            cut.push(piece);
            rest = left;
        }
        cut.push(rest);
        assert_eq!(lines(cut), whole, "cut into pieces");
        whole.0.iter().for_each(|line| drop(Request::parse(line)));
    }
    Input::Unit(text) => match Unit::parse(&text) {
        Ok(unit) => {
            kept(&unit);
            if unit.judge_template(86_400).is_ok() {
                run(&unit);
            }
        }
        Err(error) => explained(&text, &error),
    },
    Input::List(text) => match List::parse(&text, 2) {
        Ok(List { first, mut rest }) => {
            let mut count = first.len();
            while let Some(from) = rest {
                let List { first, rest: next } = List::go_on(&text, from, 2);
                assert!(!first.is_empty(), "a part of nothing");
                count += first.len();
                rest = next;
            }
            let all = List::parse(&text, usize::MAX)
                .expect("it was one before")
                .first;
            assert_eq!(all.len(), count, "in parts");
            all.iter().for_each(kept);
        }
        Err(error) => explained(&text, &error),
    },
    Input::Mutate(text) => drop(Mutate::parse(&text)),
    Input::Others(text) => {
        drop((
            Ack::parse(&text),
            Beat::parse(&text),
            Failed::parse(&text),
            Hello::parse(&text),
        ));
        drop((NewBatch::parse(&text), TrackSet::parse(&text)));
    }
    Input::Glob { pattern, text } => drop(Glob::new(pattern).matches(text)),
    Input::Text(body) => {
        if let Some(text) = Text::new(body) {
            assert!(text.whole(None, Some(0)).len() >= body.len());
        }
    }
    Input::Time(text) => {
        if let Ok(ms) = parse_time(&text) {
            assert_eq!(parse_time(&time_text(ms)), Ok(ms), "{text}");
        }
    }
});

/// All lines, and whether one was too long.
fn lines<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Bytes>, bool) {
    let (mut decoder, mut input, mut lines) = (Lines::default(), BytesMut::new(), Vec::new());
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            match decoder.decode(&mut input, LINE_BYTES_MAX) {
                Ok(Some(line)) => lines.push(line),
                Ok(None) => break,
                Err(_) => return (lines, true),
            }
        }
        assert!(input.len() <= LINE_BYTES_MAX + 1);
    }
    (lines, false)
}

/// The stored text of an accepted job parses as the same job.
fn kept(unit: &Unit<'_>) {
    if unit.judge(86_400).is_err() {
        return;
    }
    let body = Text::of(unit, "2020-01-01T00:00:00Z");
    let text = Text::new(&body).expect("one of ours");
    assert!(text.has_jobtype(&unit.jobtype));
    let whole = text.whole(None, Some(1));
    let whole = std::str::from_utf8(&whole).expect("text");
    let again = Unit::parse(whole).unwrap_or_else(|error| panic!("{whole}: {error}"));
    assert_eq!(
        (&again.jid, &again.queue, &again.jobtype),
        (&unit.jid, &unit.queue, &unit.jobtype)
    );
    assert_eq!(
        (again.retry, again.reserve_for, again.priority),
        (unit.retry, unit.reserve_for, unit.priority)
    );
    assert_eq!(again.failure.is_some(), unit.failure.is_some());
    assert_eq!(Text::of(&again, ""), body, "kept again");
}

/// A run of a schedule equals the job of its template, under its own jid.
fn run(unit: &Unit<'_>) {
    let text = run_text(&Text::template(unit), "jid00000001", 1_000).expect("one of ours");
    let named = Unit {
        jid: Cow::Borrowed("jid00000001"),
        ..unit.clone()
    };
    assert_eq!(text, Text::of(&named, &time_text(1_000)));
}

/// JSON is refused for its contents, anything else for its form.
fn explained(text: &str, error: &str) {
    let Some(words) = error.strip_prefix("invalid JSON: ") else {
        return;
    };
    let is_json = serde_json::from_str::<IgnoredAny>(text).is_ok();
    let about_kinds =
        words.starts_with("json: ") || words.contains("not Unicode") || words.contains("max depth");
    assert!(!is_json || about_kinds, "{text}: {words}");
}
