use std::collections::BTreeMap;
use std::fmt::Debug;

use bytes::Bytes;
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};

use super::*;

#[derive(Clone, PartialEq, Debug, Default, Deserialize, Serialize)]
struct Old {
    id: u64,
    name: Bytes,
    part: Part,
    kind: Kind,
    body: Bytes,
}

/// What a newer program has in the place of [`Old`].
#[derive(Clone, PartialEq, Debug, Default, Deserialize, Serialize)]
struct New {
    id: u64,
    name: Bytes,
    part: NewPart,
    kind: Kind,
    body: Bytes,
    more: Option<u32>,
    texts: Vec<Box<str>>,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize, Serialize)]
struct Part {
    at: i64,
    flag: bool,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize, Serialize)]
struct NewPart {
    at: i64,
    flag: bool,
    rate: f64,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize, Serialize)]
enum Kind {
    #[default]
    Plain,
    Named(Bytes),
    Sized {
        bytes: u64,
        wide: u128,
    },
    Pair(u8, char),
    All(Vec<Kind>),
}

#[derive(PartialEq, Debug, Deserialize, Serialize)]
enum FewKinds {
    Plain,
}

/// More fields than one byte has bits for, and a length of two bytes.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, Serialize)]
struct Wide {
    a: u8,
    b: u8,
    c: u8,
    d: u8,
    e: u8,
    f: u8,
    g: u8,
    h: u8,
    i: Bytes,
}

fn written<T: Serialize>(value: &T) -> Vec<u8> {
    let mut out = Vec::new();
    encode(value, &mut out).unwrap();
    out
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    let mut from = Reader::new(bytes);
    let value = decode(&mut from)?;
    assert_eq!(from.left(), 0, "all of it is read");
    Ok(value)
}

#[track_caller]
fn is_written_as<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T, bytes: &[u8]) {
    assert_eq!(written(value), bytes, "{value:?}");
    assert_eq!(read::<T>(bytes).as_ref(), Ok(value));
}

#[test]
fn values_and_their_bytes() {
    is_written_as(&300_u32, &[0xac, 2]);
    is_written_as(&-1_i8, &[1]);
    is_written_as(&true, &[1]);
    is_written_as(&1.0_f64, &[0xbf, 0xe0, 3]);
    is_written_as(&Bytes::from_static(b"ab"), b"\x02ab");
    is_written_as(&Some(0_u8), &[1, 0]);
    is_written_as(&vec![1_u8, 2], &[2, 1, 2]);
    is_written_as(&(1_u8, 2_u64), &[1, 2]);
    is_written_as(&BTreeMap::from([(1_u8, 2_u8)]), &[1, 1, 2]);
    is_written_as(&Part::default(), &[0]);
    is_written_as(&Part { at: 0, flag: true }, &[2, 0b10, 1]);
    is_written_as(&Kind::Plain, &[0]);
    is_written_as(&Kind::Named(Bytes::new()), &[1, 0]);
    is_written_as(
        &Kind::Sized { bytes: 7, wide: 0 },
        &[2, 4, 0b11, 7, 0, 0][..],
    );
    is_written_as(&Kind::Pair(7, 'x'), &[3, 7, b'x']);
    let old = Old {
        id: 5,
        body: b"cat"[..].into(),
        ..Old::default()
    };
    is_written_as(&old, b"\x06\x11\x05\x03cat");
    let wide = Wide {
        h: 1,
        ..Wide::default()
    };
    is_written_as(&wide, &[3, 0x80, 1, 1]);
}

#[test]
fn a_length_that_needs_more_room_moves_what_follows() {
    for bytes in [100, 125, 126, 127, 128, 16_000, 16_383, 16_384, 3_000_000] {
        let body = Bytes::from(vec![7; bytes]);
        let old = Old {
            body: body.clone(),
            part: Part { at: -3, flag: true },
            ..Old::default()
        };
        assert_eq!(read::<Old>(&written(&old)), Ok(old), "{bytes}");
        let wide = Wide {
            i: body,
            ..Wide::default()
        };
        assert_eq!(read::<Wide>(&written(&wide)), Ok(wide), "{bytes}");
    }
}

#[test]
fn versions_differ_freely() {
    let new = New {
        id: 1,
        name: b"n"[..].into(),
        part: NewPart {
            at: 2,
            flag: true,
            rate: 0.5,
        },
        kind: Kind::Pair(1, 'a'),
        body: b"b"[..].into(),
        more: Some(9),
        texts: vec!["x".into()],
    };
    let old = Old {
        id: 1,
        name: b"n"[..].into(),
        part: Part { at: 2, flag: true },
        kind: Kind::Pair(1, 'a'),
        body: b"b"[..].into(),
    };
    assert_eq!(read::<Old>(&written(&new)), Ok(old.clone()));
    let filled = New {
        part: NewPart {
            rate: 0.0,
            ..new.part
        },
        more: None,
        texts: Vec::new(),
        ..new
    };
    assert_eq!(read::<New>(&written(&old)), Ok(filled.clone()));
    assert_eq!(
        written(&old),
        written(&filled),
        "what is not set takes no byte"
    );
    assert_eq!(
        read::<FewKinds>(&written(&Kind::Pair(1, 'a'))),
        Err(DecodeError::Variant(3))
    );
}

/// A tail: here, or of so many bytes elsewhere.
enum Body {
    Here(Vec<u8>),
    Elsewhere(u64),
}

struct Raw<'a>(&'a [u8]);

impl Serialize for Raw<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(self.0)
    }
}

impl Serialize for Body {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Here(bytes) => to.serialize_newtype_struct(TAIL, &Raw(bytes)),
            Self::Elsewhere(bytes) => to.serialize_newtype_struct(TAIL, bytes),
        }
    }
}

#[derive(Serialize)]
struct Tailed {
    id: u64,
    name: Bytes,
    part: Part,
    kind: Kind,
    body: Body,
}

#[test]
fn the_tail_can_be_left_to_the_caller() {
    let tailed = |body| Tailed {
        id: 300,
        name: b"longer"[..].into(),
        part: Part::default(),
        kind: Kind::Plain,
        body,
    };
    for len in [0_usize, 4, 5, 130, 20_000] {
        let body = vec![7; len];
        let whole = written(&Old {
            id: 300,
            name: b"longer"[..].into(),
            body: body.clone().into(),
            ..Old::default()
        });
        let elsewhere = Body::Elsewhere(len as u64);
        for (body, is_shared) in [(Body::Here(body.clone()), len > 4), (elsewhere, true)] {
            let mut out = Vec::new();
            let shared = encode_sharing(&tailed(body), 4, &mut out).unwrap().shared;
            assert_eq!(shared, if is_shared { len } else { 0 });
            out.extend_from_slice(&vec![7; shared]);
            assert_eq!(out, whole, "{len}");
        }
    }
    let mut out = b"before".to_vec();
    encode(&tailed(Body::Elsewhere(3)), &mut out).unwrap_err();
    let followed = [tailed(Body::Elsewhere(3)).body, Body::Here(Vec::new())];
    #[derive(Serialize)]
    struct Followed {
        bodies: [Body; 1],
        id: u64,
    }
    let [elsewhere, _] = followed;
    let followed = Followed {
        bodies: [elsewhere],
        id: 1,
    };
    encode_sharing(&followed, 4, &mut out).unwrap_err();
    assert_eq!(out, b"before");
}

#[test]
fn invalid_bytes_are_refused() {
    assert_eq!(
        read::<bool>(&[2]),
        Err(DecodeError::Range {
            field: "a bool",
            value: 2
        })
    );
    assert_eq!(
        read::<u16>(&[0x80, 0x80, 4]),
        Err(DecodeError::Range {
            field: "a number",
            value: 65_536
        })
    );
    assert_eq!(
        read::<Vec<u8>>(&[9, 1]),
        Err(DecodeError::Short),
        "a count beyond the end"
    );
    assert_eq!(
        read::<Old>(&[9, 1]),
        Err(DecodeError::Short),
        "a length beyond the end"
    );
    assert_eq!(read::<Part>(&[1, 0x80]), Err(DecodeError::Short));
    assert!(matches!(
        read::<Box<str>>(b"\x01\xff"),
        Err(DecodeError::Refused(_))
    ));
    let many = [&[0xa0, 0x8d, 6][..], &[0; 100_000]].concat();
    assert!(read::<Vec<u64>>(&many).is_ok());
    assert!(matches!(
        read::<Vec<New>>(&many),
        Err(DecodeError::Range {
            field: "values that take much memory",
            ..
        })
    ));
    let mut nested = Vec::new();
    for _ in 0..1_000 {
        nested.extend_from_slice(&[4, 1]);
    }
    nested.push(0);
    assert!(matches!(
        read::<Kind>(&nested),
        Err(DecodeError::Range {
            field: "nesting",
            ..
        })
    ));
}

fn any_kind() -> impl Strategy<Value = Kind> {
    let leaf = prop_oneof![
        Just(Kind::Plain),
        any::<Vec<u8>>().prop_map(|name| Kind::Named(name.into())),
        (any::<u64>(), any::<u128>()).prop_map(|(bytes, wide)| Kind::Sized { bytes, wide }),
        (any::<u8>(), any::<char>()).prop_map(|(number, letter)| Kind::Pair(number, letter)),
    ];
    leaf.prop_recursive(4, 16, 4, |inner| {
        prop::collection::vec(inner, 0..4).prop_map(Kind::All)
    })
}

proptest! {
    #[test]
    fn what_is_written_reads_back(
        id in any::<u64>(), name in any::<Vec<u8>>(), at in any::<i64>(), rate in -1e300..1e300_f64,
        kind in any_kind(), body in any::<Vec<u8>>(), more in any::<Option<u32>>(), texts in any::<Vec<String>>(),
    ) {
        let texts = texts.into_iter().map(Into::into).collect();
        let part = NewPart { at, flag: at > 0, rate };
        let new = New { id, name: name.into(), part, kind, body: body.into(), more, texts };
        prop_assert_eq!(read::<New>(&written(&new)), Ok(new));
    }

    #[test]
    fn noise_is_read_or_refused(noise in any::<Vec<u8>>()) {
        let _ = decode::<New>(&mut Reader::new(&noise));
        let _ = decode::<Kind>(&mut Reader::new(&noise));
    }
}
