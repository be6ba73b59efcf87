//! Properties for all inputs: the cuts that TCP makes in the stream do not matter, noise does no harm, and JSON comes
//! out with the same values as it went in.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::Value;
use windlass_bridge::{Bridge, Origin, Side};
use windlass_config::ByteSize;
use windlass_engine::{Glob, Limits, Protocol, Timestamp};
use windlass_faktory::bridge::FwpOrigin;
use windlass_faktory::config::Faktory;
use windlass_faktory::session::{FaktorySpeaker, Settings};
use windlass_faktory::wire::{Lines, Mutate, Request, Text, Unit, jobtype_of};
use windlass_testkit::memory::MemoryHub;
use windlass_testkit::play::{Move, World, pieces, single_bytes};

/// Peers of the other tests. Tests that depend on the order between peers use one, because split input gives other
/// peers a turn.
const PEERS: usize = 3;
const START: Timestamp = Timestamp(1_700_000_000_000);

// ---- input: few different values, so that they collide --------------------------------------------------------------

fn jid() -> impl Strategy<Value = String> {
    (0..6u32).prop_map(|n| format!("jid0000{n}"))
}

fn queue() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("default"), Just("q"), Just("bad/name")]
}

fn custom() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        4 => Just(""),
        1 => Just(r#","custom":{"unique_for":2}"#),
        1 => Just(r#","custom":{"unique_for":2,"unique_until":"start"}"#),
        1 => Just(r#","custom":{"expires_in":1}"#),
        1 => Just(r#","custom":{"track":1}"#),
        1 => Just(r#","custom":{"bid":"b-nosuch"}"#),
        1 => Just(r#","at":"2023-11-14T22:13:22Z""#),
        1 => Just(r#","reserve_for":60,"priority":9"#),
        1 => Just(r#","failure":{"retry_count":1}"#),
    ]
}

fn unit() -> impl Strategy<Value = String> {
    (jid(), queue(), custom(), -1..3i32, any::<u8>()).prop_map(|(jid, queue, custom, retry, arg)| {
        format!(r#"{{"jid":"{jid}","jobtype":"T","args":[{arg}, "x"],"queue":"{queue}","retry":{retry}{custom}}}"#)
    })
}

fn line() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => unit().prop_map(|unit| format!("PUSH {unit}")),
        2 => vec(unit(), 0..4).prop_map(|units| format!("PUSHB [{}]", units.join(","))),
        8 => Just("FETCH q default".to_owned()),
        1 => Just("FETCH".to_owned()),
        6 => jid().prop_map(|jid| format!(r#"ACK {{"jid":"{jid}"}}"#)),
        4 => jid().prop_map(|jid| format!(r#"FAIL {{"jid":"{jid}","message":"m"}}"#)),
        1 => jid().prop_map(|jid| format!(r#"REQUEUE {{"jid":"{jid}"}}"#)),
        1 => jid().prop_map(|jid| format!("JOB GET {jid}")),
        1 => jid().prop_map(|jid| format!("JOB CANCEL {jid}")),
        1 => jid().prop_map(|jid| format!("TRACK GET {jid}")),
        1 => jid().prop_map(|jid| format!(r#"TRACK SET {{"jid":"{jid}","percent":7}}"#)),
        1 => Just(r#"BATCH NEW {"success":{"jid":"callback1","jobtype":"T","args":[]}}"#.to_owned()),
        2 => prop_oneof![Just(""), Just("quiet"), Just("terminate")]
            .prop_map(|state| format!(r#"BEAT {{"wid":"w1","current_state":"{state}"}}"#)),
        2 => (prop_oneof![Just("PAUSE"), Just("RESUME"), Just("REMOVE"), Just("LATENCY")], prop_oneof![Just("q"), Just("*"), Just("q x")])
            .prop_map(|(verb, names)| format!("QUEUE {verb} {names}")),
        2 => (
            prop_oneof![Just("kill"), Just("discard"), Just("requeue"), Just("clear")],
            prop_oneof![Just("scheduled"), Just("retries"), Just("dead")],
            prop_oneof![Just("null"), Just(r#"{"jids":["jid00001"]}"#), Just(r#"{"regexp":"*default*"}"#), Just(r#"{"jobtype":"T"}"#)],
        )
            .prop_map(|(cmd, target, filter)| format!(r#"MUTATE {{"cmd":"{cmd}","target":"{target}","filter":{filter}}}"#)),
        1 => Just("INFO".to_owned()),
        1 => Just("NOPE".to_owned()),
        1 => Just("END".to_owned()),
    ]
}

/// One line, or noise.
fn message() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        30 => (line(), prop_oneof![Just("\n"), Just("\r\n")]).prop_map(|(line, end)| (line + end).into_bytes()),
        1 => vec(any::<u8>(), 0..40),
        1 => (line(), 0..60usize).prop_map(|(line, bytes)| line.into_bytes().into_iter().take(bytes).collect()),
    ]
}

fn moves(peers: usize) -> impl Strategy<Value = Vec<Move>> {
    let peer = move || 0..peers;
    let one = prop_oneof![
        20 => (peer(), vec(message(), 1..8)).prop_map(|(peer, messages)| Move::Send(peer, messages.concat())),
        2 => peer().prop_map(Move::Replace),
        1 => peer().prop_map(Move::HalfClose),
        3 => (0..70_000u64).prop_map(Move::Wait),
    ];
    vec(one, 0..25)
}

// ---- a server -------------------------------------------------------------------------------------------------------

/// Plays moves on a server. `cuts` are the places where input is split.
fn play(moves: &[Move], cuts: &[Index]) -> Vec<String> {
    let hub = MemoryHub::new(
        Limits {
            page_max: 2,
            ..Limits::default()
        },
        START,
        7,
    )
    .reading(reader());
    let settings = Arc::new(Settings::new(
        Faktory {
            line_bytes_max: ByteSize(4_096),
            ..Faktory::default()
        },
        START,
    ));
    let mut rng = 0;
    let greet = move |hub: &mut MemoryHub, peer: usize| {
        rng += 1;
        let (settings, rng) = (Arc::clone(&settings), [rng, 7]);
        let client = hub.open(|info| Box::new(FaktorySpeaker::session(settings, info, rng)));
        let hello: &[u8] = if peer == 0 {
            b"HELLO {\"v\":2}\n"
        } else {
            b"HELLO {\"v\":2,\"wid\":\"w1\"}\n"
        };
        hub.send(client, hello);
        client
    };
    World::new(hub, PEERS, greet).play(moves, |bytes| places(cuts, bytes))
}

/// What reads FWP's jobs for MUTATE.
fn reader() -> Arc<Bridge> {
    let origin: Arc<dyn Origin> = Arc::new(FwpOrigin);
    Arc::new(Bridge::new(vec![Side {
        protocol: Protocol::FAKTORY,
        name: "faktory",
        origin: Some(origin),
    }]))
}

fn places(cuts: &[Index], bytes: usize) -> Vec<usize> {
    cuts.iter().map(|cut| cut.index(bytes + 1)).collect()
}

// ---- JSON -----------------------------------------------------------------------------------------------------------

/// Random JSON in a random valid spelling.
fn json(depth: u32) -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        any::<i64>().prop_map(|n| n.to_string()),
        Just("123456789012345678901234567890".to_owned()),
        Just("-1.50e+3".to_owned()),
        ".{0,6}".prop_map(|text| Value::String(text).to_string()),
        Just(r#""\u00e9\/\ud83d\ude00]}\"""#.to_owned()),
    ];
    let blank = || prop_oneof![3 => Just(""), 1 => Just(" "), 1 => Just("\t ")];
    leaf.prop_recursive(depth, 24, 4, move |inner| {
        let list = (vec(inner.clone(), 0..4), blank()).prop_map(|(items, blank)| {
            format!(
                "[{blank}{}{blank}]",
                items.join(&format!("{blank},{blank}"))
            )
        });
        let object =
            (vec(("[a-z\\\\\"]{0,3}", inner), 0..4), blank()).prop_map(|(members, blank)| {
                let members: Vec<String> = members
                    .into_iter()
                    .map(|(key, value)| format!("{}{blank}:{blank}{value}", Value::String(key)))
                    .collect();
                format!("{{{}}}", members.join(&format!("{blank},{blank}")))
            });
        prop_oneof![list, object]
    })
}

proptest! {
    #[test]
    fn cuts_do_not_matter(moves in moves(1), cuts in vec(any::<Index>(), 0..6)) {
        prop_assert_eq!(play(&moves, &[]), play(&moves, &cuts));
    }

    #[test]
    fn cuts_between_all_bytes_do_not_matter(moves in moves(1)) {
        prop_assert_eq!(play(&moves, &[]), play(&single_bytes(&moves), &[]));
    }

    #[test]
    fn concurrent_peers_do_no_harm(moves in moves(PEERS)) {
        play(&moves, &[]);
    }

    #[test]
    fn noise_does_no_harm(noise in vec((0..PEERS, vec(prop_oneof![Just(b' '), Just(b'\n'), Just(b'{'), any::<u8>()], 0..200)), 0..20)) {
        let moves: Vec<Move> = noise.into_iter().map(|(peer, bytes)| Move::Send(peer, bytes)).collect();
        play(&moves, &[]);
    }

    #[test]
    fn lines_are_cut_at_line_ends(lines in vec("[a-z\r ]{0,9}", 0..9), cuts in vec(any::<Index>(), 0..9)) {
        let whole = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        let (mut decoder, mut input, mut found) = (Lines::default(), BytesMut::new(), Vec::new());
        for piece in pieces(whole.as_bytes(), places(&cuts, whole.len())) {
            input.extend_from_slice(piece);
            while let Some(line) = decoder.decode(&mut input, 100).unwrap() {
                found.push(String::from_utf8(line.to_vec()).unwrap());
            }
        }
        let expected: Vec<&str> = lines.iter().map(|line| line.strip_suffix('\r').unwrap_or(line)).collect();
        prop_assert_eq!(found, expected);
        prop_assert!(input.is_empty());
    }

    /// A worker gets the JSON that was sent, and parsing the text again gives the same text.
    #[test]
    fn jobs_come_out_as_they_went_in(args in vec(json(3), 0..4), custom in proptest::option::of(json(2)), jobtype in "\\PC{1,8}") {
        let args = format!("[ {} ]", args.join(" , "));
        let custom = custom.filter(|custom| custom.starts_with('{'));
        let jobtype_text = Value::String(jobtype.clone()).to_string();
        let custom_text = custom.as_ref().map(|custom| format!(",\"custom\" : {custom}")).unwrap_or_default();
        let sent = format!("{{ \"jobtype\":{jobtype_text}, \"jid\" : \"jid00000001\" ,\"args\": {args}{custom_text}}}");
        let unit = Unit::parse(&sent).unwrap_or_else(|error| panic!("{sent}: {error}"));
        let body = Text::of(&unit, "2023-11-14T22:13:20Z");
        let text = Text::new(&body).unwrap();
        prop_assert!(text.has_jobtype(&jobtype));
        for stored in [&body, &Text::template(&unit)] {
            let shown = jobtype_of(stored);
            prop_assert_eq!(shown.as_deref(), Some(&*jobtype));
        }
        let whole = text.whole(None, Some(START.0));
        let (whole, sent): (Value, Value) = (serde_json::from_slice(&whole).unwrap(), serde_json::from_str(&sent).unwrap());
        prop_assert_eq!(&whole["args"], &sent["args"]);
        prop_assert_eq!(&whole["jobtype"], &sent["jobtype"]);
        prop_assert_eq!(&whole["enqueued_at"], "2023-11-14T22:13:20Z");
        let empty = Value::Object(serde_json::Map::new());
        prop_assert_eq!(whole.get("custom").unwrap_or(&empty), sent.get("custom").unwrap_or(&empty));
        let again = String::from_utf8(body.clone()).unwrap();
        prop_assert_eq!(Text::of(&Unit::parse(&again).unwrap(), ""), body);
    }

    /// The crate accepts the same text as serde_json, and returns Go's error for the rest.
    #[test]
    fn invalid_json_has_an_error(text in "\\PC{0,40}", json in json(2), cut in any::<Index>()) {
        for text in [text, json[..(0..=cut.index(json.len() + 1)).rev().find(|at| json.is_char_boundary(*at)).unwrap()].to_owned()] {
            let is_json = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
            if let Err(error) = Unit::parse(&text) {
                let wrong_kind = error.to_string().starts_with("invalid JSON: json: cannot unmarshal");
                prop_assert_eq!(wrong_kind, is_json, "{}: {}", text, error);
            } else {
                prop_assert!(is_json, "{}", text);
            }
            let _ = Mutate::parse(&text);
            let _ = Request::parse(&Bytes::from(text));
        }
    }

    /// A glob matches as a naive implementation does.
    #[test]
    fn globs_match_as_defined(pattern in "[ab*?]{0,8}", text in "[ab]{0,8}") {
        fn matches(pattern: &[u8], text: &[u8]) -> bool {
            match (pattern, text) {
                ([], _) => text.is_empty(),
                ([b'*', rest @ ..], _) => (0..=text.len()).any(|at| matches(rest, &text[at..])),
                ([b'?', rest @ ..], [_, text @ ..]) => matches(rest, text),
                ([byte, rest @ ..], [first, text @ ..]) => byte == first && matches(rest, text),
                (_, []) => false,
            }
        }
        let expected = matches(pattern.as_bytes(), text.as_bytes());
        prop_assert_eq!(Glob::new(pattern.as_bytes()).matches(text.as_bytes()), expected);
    }
}
