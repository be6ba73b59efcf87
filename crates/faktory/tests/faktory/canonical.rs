//! The canonical form of JSON, checked with random spellings: equal values have the same form, different values have
//! different forms. The test makes the values first and never reads them back from a text, so the model shares no code
//! with the crate.
#![expect(clippy::cast_possible_truncation, reason = "the numbers are small")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use windlass_faktory::wire::canonical;
use windlass_testkit::rng::Rng;

/// A value, independent of its spelling.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Plain(&'static str),
    /// `0.digits × 10^exponent`. The digits neither begin nor end with 0; the number 0 has none.
    Number {
        negative: bool,
        digits: String,
        exponent: i64,
    },
    Text(String),
    List(Vec<Value>),
    Object(BTreeMap<String, Value>),
}

fn text(rng: &mut Rng) -> String {
    let chars = [
        'a', 'b', '"', '\\', '/', '\n', '\u{0}', '\u{1f}', '\u{7f}', 'é', '\u{2028}', '\u{ffff}',
        '😀', '<',
    ];
    (0..rng.below(4)).map(|_| rng.one_of(chars)).collect()
}

fn number(rng: &mut Rng) -> Value {
    let many = rng.one_of([0, 1, 1, 2, 3, 16, 17, 25]);
    let mut digits: String = (0..many)
        .map(|_| char::from(b'0' + rng.one_of([0_u8, 0, 1, 9])))
        .collect();
    digits = digits.trim_matches('0').to_owned();
    let exponent = if digits.is_empty() {
        0
    } else {
        rng.one_of([0, 1, 2, 5, -5, -6, -7, 20, 21, 22, 23, 400, -400])
    };
    Value::Number {
        negative: !digits.is_empty() && rng.chance(30),
        digits,
        exponent,
    }
}

fn value(rng: &mut Rng, depth: u32) -> Value {
    match rng.below(if depth == 0 { 6 } else { 10 }) {
        0 => Value::Plain(rng.one_of(["null", "true", "false"])),
        1..4 => number(rng),
        4 | 5 => Value::Text(text(rng)),
        6 | 7 => Value::List((0..rng.below(4)).map(|_| value(rng, depth - 1)).collect()),
        _ => Value::Object(
            (0..rng.below(5))
                .map(|_| (text(rng), value(rng, depth - 1)))
                .collect(),
        ),
    }
}

fn blank(rng: &mut Rng, out: &mut String) {
    out.push_str(rng.one_of(["", "", "", " ", "\t", "\r\n "]));
}

fn spell_text(text: &str, rng: &mut Rng, out: &mut String) {
    out.push('"');
    for char in text.chars() {
        let must = matches!(char, '"' | '\\') || char < ' ';
        match (must, char) {
            (_, '\n') if rng.chance(50) => out.push_str("\\n"),
            (_, '"' | '\\' | '/') if rng.chance(50) => out.extend(['\\', char]),
            (false, _) if rng.chance(60) => out.push(char),
            _ => {
                for unit in char.encode_utf16(&mut [0; 2]) {
                    let upper = rng.chance(50);
                    out.push_str(&if upper {
                        format!("\\u{unit:04X}")
                    } else {
                        format!("\\u{unit:04x}")
                    });
                }
            }
        }
    }
    out.push('"');
}

/// Places the point anywhere near the digits, pads with zeros, and adjusts the exponent.
fn spell_number(negative: bool, digits: &str, exponent: i64, rng: &mut Rng, out: &mut String) {
    let (before, after) = (rng.below(4), rng.below(4));
    let all = "0".repeat(before as usize) + digits + &"0".repeat(after as usize);
    let point = rng.below(all.len() as u64 + 1) as usize;
    let (whole, fraction) = all.split_at(point);
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        whole => whole,
    };
    if negative || (digits.is_empty() && rng.chance(20)) {
        out.push('-');
    }
    out.push_str(whole);
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    // The point stands `point - before` places further right than in `0.digits`.
    let exponent = exponent - (point as i64 - before as i64);
    if exponent != 0 || rng.chance(20) {
        let e = rng.one_of(["e", "E"]);
        let zeros = rng.one_of(["", "", "0", "0000000000000000000000000"]);
        let sign = if exponent < 0 {
            "-"
        } else {
            rng.one_of(["", "+"])
        };
        out.push_str(&format!("{e}{sign}{zeros}{}", exponent.abs()));
    }
}

fn spell(value: &Value, rng: &mut Rng, out: &mut String) {
    blank(rng, out);
    match value {
        Value::Plain(word) => out.push_str(word),
        Value::Number {
            negative,
            digits,
            exponent,
        } => spell_number(*negative, digits, *exponent, rng, out),
        Value::Text(text) => spell_text(text, rng, out),
        Value::List(values) => {
            out.push('[');
            for (at, value) in values.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "," });
                spell(value, rng, out);
            }
            out.push(']');
        }
        Value::Object(members) => spell_object(members, rng, out),
    }
    blank(rng, out);
}

/// Members in any order; sometimes an earlier member has the same name.
fn spell_object(members: &BTreeMap<String, Value>, rng: &mut Rng, out: &mut String) {
    let mut shuffled: Vec<_> = members
        .iter()
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    for at in (1..shuffled.len()).rev() {
        shuffled.swap(at, rng.below(at as u64 + 1) as usize);
    }
    if !shuffled.is_empty() && rng.chance(25) {
        let key = shuffled[rng.below(shuffled.len() as u64) as usize]
            .0
            .clone();
        shuffled.insert(0, (key, self::value(rng, 1)));
    }
    out.push('{');
    for (at, (key, value)) in shuffled.iter().enumerate() {
        out.push_str(if at == 0 { "" } else { "," });
        blank(rng, out);
        spell_text(key, rng, out);
        blank(rng, out);
        out.push(':');
        spell(value, rng, out);
    }
    out.push('}');
}

fn form(value: &Value, rng: &mut Rng) -> (String, String) {
    let mut text = String::new();
    spell(value, rng, &mut text);
    let form =
        String::from_utf8(canonical(&text)).unwrap_or_else(|error| panic!("{text}: {error}"));
    (text, form)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn equal_values_have_one_form(seed in any::<u64>()) {
        let mut rng = Rng::new(seed);
        let value = value(&mut rng, 4);
        let ((one, first), (other, second)) = (form(&value, &mut rng), form(&value, &mut rng));
        prop_assert_eq!(&first, &second, "seed {}: {} and {}", seed, one, other);
        prop_assert_eq!(&first, &String::from_utf8(canonical(&first)).unwrap(), "seed {}: its own form", seed);
        prop_assert!(serde_json::from_str::<serde::de::IgnoredAny>(&first).is_ok(), "seed {}: {} is not JSON", seed, first);
    }

    #[test]
    fn different_values_have_two(seed in any::<u64>()) {
        let mut rng = Rng::new(seed);
        let (one, other) = (value(&mut rng, 2), value(&mut rng, 2));
        let ((a, first), (b, second)) = (form(&one, &mut rng), form(&other, &mut rng));
        prop_assert_eq!(one == other, first == second, "seed {}: {} and {}", seed, a, b);
    }

    #[test]
    fn noise_does_no_harm(text in r#"[\[\]{}:,"\\u0-9eE.+\-a-f \n]{0,40}"#) {
        drop(canonical(&text));
    }
}
