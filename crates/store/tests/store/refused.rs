//! Records with values that the engine never writes: each is refused by the field that has one.

use windlass_store::{DecodeError, Record};

/// A job's standing: ready, in the middle of the ranks, at 0 ms, without deliveries and failures.
const STANDING: [u8; 5] = [0, 0, 1, 0, 0];
const RETRY: [u8; 3] = [0, 0, 0];
/// A template without its bits: its protocol, priority, queue and retries.
const TEMPLATE: [u8; 7] = [2, 5, 1, b'q', 0, 0, 0];
/// 2^63 in the journal's format.
const TOO_MUCH: [u8; 10] = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1];

fn number(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(u8::try_from(number & 0x7f).unwrap() | 0x80);
        number >>= 7;
    }
    bytes.push(u8::try_from(number).unwrap());
    bytes
}

fn put(bits: u64, standing: &[u8], retry: &[u8], extra: &[u8]) -> Vec<u8> {
    [
        &[1, 5, 0],
        &number(bits)[..],
        &[2, 5],
        standing,
        retry,
        extra,
        &[0],
    ]
    .concat()
}

/// A job with an optional field.
fn with(bits: u64, extra: &[u8]) -> Vec<u8> {
    put(bits, &STANDING, &RETRY, extra)
}

fn moved(bits: u64, rest: &[u8]) -> Vec<u8> {
    [&[2, 5], &number(bits)[..], &STANDING, rest].concat()
}

/// Its flags, when the batch was held, and its counts.
fn progress(flags: u8, held: &[u8], counts: [u8; 3]) -> Vec<u8> {
    [&[10, 5, flags, 1], held, &counts, &[0, 0]].concat()
}

fn batch(bits: u8, parent: &[u8]) -> Vec<u8> {
    [
        &[9, 5, bits, 2, 0, 1, b'b'],
        parent,
        &[0, 0, 1],
        &progress(0, &[], [0; 3])[2..],
    ]
    .concat()
}

fn queue(kind: u8, flags: u8, limit: &[u8], rest: &[u8]) -> Vec<u8> {
    [&[4, 0, 1, b'q', kind, flags], limit, &[0; 8], &[0], rest].concat()
}

fn schedule(bits: u64, template: &[u8], recurrence: &[u8], runs: &[u8]) -> Vec<u8> {
    [
        &[7, 5],
        &number(bits)[..],
        template,
        recurrence,
        &[1, 1],
        runs,
        &[0],
    ]
    .concat()
}

fn every(bits: u64, extra: &[u8]) -> Vec<u8> {
    schedule(bits, &[&TEMPLATE, extra].concat(), &[0, 60], &[0])
}

fn meta(kind: u8, flags: u8, protocols: &[u8]) -> Vec<u8> {
    [&[kind, flags, 1, 1], &[0; 13][..], protocols].concat()
}

fn read(bytes: &[u8]) -> Result<Record, DecodeError> {
    Record::all(bytes).next().unwrap()
}

#[test]
fn a_value_that_the_engine_never_writes_is_refused_by_its_field() {
    let rank = |zigzag: &[u8]| put(0, &[&[0][..], zigzag, &[1, 0, 0]].concat(), &RETRY, &[]);
    let zoned = |months: u64| [&[2, 0, 1, 1, 1, 1], &number(months)[..], &[1, 0]].concat();
    let two = |first: u8, second: u8| [&[2, first], &[0; 13][..], &[second], &[0; 13]].concat();
    let table: [(&str, Vec<u8>); 53] = [
        ("a job's number", [&[3][..], &TOO_MUCH].concat()),
        ("a job's bits", with(1 << 12, &[])),
        ("a job's bits", with(1 << 22, &[])),
        ("a job's bits", with(1 << 23, &[])),
        ("a number of attempts", with(1 << 20, &[26])),
        (
            "an attempt's number",
            with(1 << 20, &[&[1][..], &number(1 << 32)].concat()),
        ),
        // An end that is not known, two kinds of errors, and an error as before without one.
        ("an attempt's end", with(1 << 20, &[1, 1, 0, 1, 0, 6])),
        ("an attempt's end", with(1 << 20, &[1, 1, 0, 1, 0, 0xc0])),
        ("an attempt's end", with(1 << 20, &[1, 1, 0, 1, 0, 0x80])),
        (
            "an attempt's end",
            moved(1 << 20, &[2, 1, 0, 1, 0, 0, 2, 0, 1, 0, 0x80]),
        ),
        ("a job's bits", with(1 << 3 | 1 << 18, &[1, 1])),
        ("a failure's bits", with(1 << 14, &[1, 1])),
        ("a failure's bits", with(1 << 16, &[1, 1])),
        ("a standing's bits", moved(1, &[])),
        ("a standing's bits", moved(1 << 18, &[])),
        ("a failure's bits", moved(1 << 14, &[1, 1])),
        ("a failure's bits", moved(1 << 16, &[1, 1])),
        ("a state", put(0, &[7], &RETRY, &[])),
        (
            "a rank",
            rank(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]),
        ),
        ("a rank", rank(&TOO_MUCH)),
        ("a lease's end", put(0, &[1, 0, 0, 1, 1, 3], &RETRY, &[])),
        (
            "a retry budget",
            put(0, &STANDING, &[&number(1 << 32)[..], &[0, 0]].concat(), &[]),
        ),
        ("a back-off", put(0, &STANDING, &[0, 0, 4], &[])),
        (
            "a priority",
            [&[1, 5, 0, 0, 2, 10][..], &STANDING, &RETRY, &[0]].concat(),
        ),
        ("a job's role", with(1 << 11, &[7, 6])),
        (
            "a batch's number",
            with(1 << 11, &[&TOO_MUCH[..], &[0]].concat()),
        ),
        ("a key's end", with(1 << 4, &[5])),
        ("a key's end", with(1 << 4, &[0])),
        (
            "a cycle's priority",
            with(1 << 5, &[&TOO_MUCH[..], &[0]].concat()),
        ),
        ("a cycle's boost", with(1 << 5, &[0, 64])),
        ("a batch's bits", batch(8, &[])),
        ("a batch's parent", batch(1, &[5, 1, b'p'])),
        ("a batch's flags", progress(64, &[], [0; 3])),
        ("a batch's flags", progress(32, &[1], [0; 3])),
        (
            "a batch's flags",
            progress(1 | 1 << 1 | 1 << 3 | 32, &[1], [0; 3]),
        ),
        ("jobs of a batch that ran", progress(0, &[], [1, 2, 0])),
        (
            "jobs of a batch that succeeded",
            progress(0, &[], [2, 1, 2]),
        ),
        ("a queue's kind", queue(2, 0, &[0], &[])),
        ("a queue's flags", queue(0, 128, &[2, 0], &[])),
        (
            "a policy's flags",
            queue(0, 64, &[0], &[&[0][..], &number(1 << 9)].concat()),
        ),
        ("a queue's limit", queue(0, 0, &number(1 << 33), &[])),
        ("a throttle's flags", queue(0, 4, &[0], &[16])),
        ("a queue's codec", queue(0, 8, &[0], &[3, 0])),
        ("a rule's flags", queue(0, 8, &[0], &[0, 128, 2])),
        ("flags of coalescing", queue(0, 8, &[0], &[0, 128, 1, 16])),
        (
            "the protocol of a queue's limit",
            queue(0, 32, &[0], &[&[0, 0][..], &number(257)].concat()),
        ),
        ("the engine meta's flags", meta(12, 16, &[0])),
        ("a protocol", meta(12, 0, &two(3, 3))),
        ("a day's number", [&[13, 0, 1], &[0; 14][..]].concat()),
        ("a template's bits", every(1 << 15, &[])),
        ("a template's bits", every(1 << 5 | 1 << 14, &[1, 1])),
        ("a clash rule", every(1 << 3, &[1, b'k', 3])),
        ("months", schedule(0, &TEMPLATE, &zoned(1 << 16), &[0])),
    ];
    for (expected, bytes) in table {
        let read = read(&bytes);
        let Err(DecodeError::Range { field, .. }) = read else {
            panic!("{expected}: {read:?}")
        };
        assert_eq!(field, expected, "{bytes:?}");
    }
    for (expected, recurrence, runs) in [
        ("a recurrence", &[3][..], &[0][..]),
        ("the day rule", &[1, 2], &[0]),
        ("the end of a run", &[0, 60], &[1, 1, 5, 4, 0]),
        (
            "a schedule's remaining runs",
            &[0, 60],
            &[1, 1, 5, 0, 1, 1, 4, 1],
        ),
        ("earlier runs", &[0, 60], &[1, 1, 5, 0, 1, 0, 0]),
        ("earlier runs", &[0, 60], &[1, 1, 5, 0, 1, 33]),
    ] {
        let read = read(&schedule(0, &TEMPLATE, recurrence, runs));
        assert!(
            matches!(read, Err(DecodeError::Range { field, .. }) if field == expected),
            "{expected}: {read:?}"
        );
    }

    let accepted = [
        with(0, &[]),
        with(1 << 6 | 1 << 14 | 1 << 16, &[1, 1, 1, 0, 0, 0]),
        rank(&[0xfd, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]),
        rank(&[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]),
        with(1 << 11, &[7, 5]),
        with(1 << 5, &[0, 63]),
        moved(1 << 6 | 1 << 14 | 1 << 16, &[1, 1, 1, 0, 0, 0]),
        batch(0, &[]),
        batch(1, &[4, 1, b'p']),
        progress(1 | 32, &[1], [2, 2, 2]),
        progress(1 | 1 << 1 | 32, &[1], [0; 3]),
        progress(1 | 1 << 3 | 32, &[1], [0; 3]),
        queue(1, 0, &number((1 << 33) - 1), &[]),
        queue(0, 4, &[0], &[7, 1, 1, 1]),
        queue(0, 16, &[0], &[1]),
        queue(0, 8, &[0], &[2, 6, 0, 0, 0, 1]),
        queue(0, 32, &[0], &[&[0, 0][..], &number(256)].concat()),
        meta(12, 0, &two(2, 3)),
        [&[13, 1, 1], &[0; 14][..]].concat(),
        every(1 << 3, &[1, b'k', 2]),
        schedule(0, &TEMPLATE, &zoned((1 << 16) - 1), &[2]),
    ];
    for bytes in accepted {
        let mut written = Vec::new();
        read(&bytes)
            .unwrap_or_else(|why| panic!("{bytes:?}: {why}"))
            .encode(&mut written);
        assert_eq!(read(&written), read(&bytes), "{bytes:?}");
    }
}
