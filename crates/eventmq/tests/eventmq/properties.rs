//! Properties for all bytes: a written message is read as the same message, and noise does no harm.

use std::sync::Arc;

use bytes::BytesMut;
use proptest::collection::vec;
use proptest::prelude::*;
use windlass_engine::Timestamp;
use windlass_eventmq::wire::{
    Command, Headers, Packet, PeerKind, Plan, QUEUES_MAX, Request, identity, is_time_out, queues,
};
use windlass_zmtp::{Event, Message, Peer, Role, Settings};

const NOW: Timestamp = Timestamp(1);

/// The parts of a message: its kind, its identifier, and five frames.
type Seed = (u8, Vec<u8>, [Vec<u8>; 5]);

/// A frame with a meaning, or noise.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let word = prop::sample::select(vec![
        "",
        "eMQP/1.0",
        "INFORM",
        "ACK",
        "HEARTBEAT",
        "READY",
        "REQUEST",
        "REPLY",
        "SCHEDULE",
        "UNSCHEDULE",
        "PUBLISH",
        "worker",
        "scheduler",
        "[[10, \"default\"], [20, \"fast\"]]",
        "[40, 'email'],[1,'x']",
        "reply-requested,timeout:5,run_count:-1",
        "-1",
        "*/5 * * * *",
        "[\"run\", {\"args\": [1.5e300, \"\\ud83d\"], \"path\": \"p\"}]",
        "{\"value\": \"TimeoutError\"}",
    ]);
    prop_oneof![
        word.prop_map(|word| word.as_bytes().to_vec()),
        vec(any::<u8>(), 0..300),
        "[\\[\\]{}\",:'0-9a-e.\\\\ +-]{0,40}".prop_map(String::into_bytes),
    ]
}

fn seed() -> impl Strategy<Value = Seed> {
    (
        0..17_u8,
        frame(),
        [frame(), frame(), frame(), frame(), frame()],
    )
}

fn packet((which, id, [a, b, c, d, e]): &Seed) -> Packet<'_> {
    let plan = Plan {
        queue: a,
        headers: Headers(b),
        interval: c,
        job: d,
        cron: e,
    };
    let command = match which {
        0 => Command::Inform {
            queues: a,
            kind: PeerKind::Worker,
        },
        1 => Command::Inform {
            queues: a,
            kind: PeerKind::Scheduler,
        },
        2 => Command::Ack { of: a },
        3 => Command::Heartbeat { time: a },
        4 => Command::Ready,
        5 => Command::Request(Request {
            queue: a,
            headers: Headers(b),
            job: c,
        }),
        6 => Command::Reply { text: a, of: None },
        7 => Command::Reply {
            text: a,
            of: Some(b),
        },
        8 => Command::Schedule(plan),
        9 => Command::Unschedule(plan),
        10 => Command::Publish { topic: a, text: b },
        11 => Command::Disconnect,
        12 => Command::Kbye,
        13 => Command::Status,
        14 => Command::ShowWorkers,
        15 => Command::ShowSchedulers,
        _ => Command::Hello,
    };
    Packet { id, command }
}

/// Two peers after the handshake: the client, and its outgoing bytes.
fn connected(server: &mut Peer) -> (Peer, BytesMut) {
    let mut client = Peer::new(Arc::new(Settings::new(Role::Dealer)));
    let (mut to_server, mut to_client) = (BytesMut::new(), BytesMut::new());
    server.open(NOW, &mut to_client);
    client.open(NOW, &mut to_server);
    assert!(matches!(
        server.read(NOW, &mut to_server, &mut to_client),
        Ok(Some(Event::Ready(_)))
    ));
    assert!(matches!(
        client.read(NOW, &mut to_client, &mut to_server),
        Ok(Some(Event::Ready(_)))
    ));
    (client, to_server)
}

proptest! {
    #[test]
    fn sent_messages_arrive(seed in seed()) {
        let packet = packet(&seed);
        let mut server = Peer::new(Arc::new(Settings::new(Role::Router)));
        let (client, mut to_server) = connected(&mut server);
        client.send(packet.frames(), &mut to_server).unwrap();
        let Ok(Some(Event::Message(message))) = server.read(NOW, &mut to_server, &mut BytesMut::new()) else {
            return Err(TestCaseError::fail("no message"));
        };
        prop_assert_eq!(Packet::decode(&message), Ok(packet));
    }

    #[test]
    fn written_messages_are_read_as_the_same(seed in seed()) {
        let packet = packet(&seed);
        let message = Message::new(packet.frames());
        prop_assert_eq!(Packet::decode(&message).unwrap(), packet);
    }

    #[test]
    fn messages_in_any_form_are_written_in_one_form(frames in vec(frame(), 0..12)) {
        let head = [&b""[..], b"eMQP/1.0"];
        for message in [
            Message::new(frames.iter().map(Vec::as_slice)),
            Message::new(head.into_iter().chain(frames.iter().map(Vec::as_slice))),
        ] {
            if let Ok(packet) = Packet::decode(&message) {
                let written = Message::new(packet.frames());
                prop_assert_eq!(Packet::decode(&written), Ok(packet));
                if let Command::Schedule(plan) | Command::Unschedule(plan) = packet.command {
                    let _ = plan.when();
                }
            }
        }
    }

    #[test]
    fn noise_in_a_frame_does_no_harm(frame in frame()) {
        if let Ok(queues) = queues(&frame) {
            prop_assert!(queues.len() <= QUEUES_MAX);
        }
        if let Ok(known) = identity(&frame) {
            prop_assert_eq!(identity(&[b" ", &frame[..], b"\n"].concat()), Ok(known), "blanks are no part of a job");
        }
        let is_object = frame.trim_ascii_start().starts_with(b"{");
        prop_assert!(is_object || !is_time_out(&frame));
        let headers = Headers(&frame);
        let extended = headers.with_reply_requested();
        prop_assert!(extended.starts_with(&frame));
        let extended = Headers(&extended);
        prop_assert!(extended.reply_requested());
        prop_assert_eq!(
            (extended.timeout_secs(), extended.retry_count(), extended.guarantee(), extended.nohaste(), extended.run_count()),
            (headers.timeout_secs(), headers.retry_count(), headers.guarantee(), headers.nohaste(), headers.run_count())
        );
    }
}
