//! Arbitrary bytes as an edge's stream: noise, and real items with any damage. Decoding does not panic, and what can be
//! read is written and read the same. An engine takes every command that comes out of it, whatever its values are, and
//! stays consistent ([`Engine::check`]). Not tested here: what an edge may do in which order; the leader decides.
#![no_main]

#[path = "link/stream.rs"]
mod stream;

use libfuzzer_sys::fuzz_target;
use windlass_engine::{
    ClientCommand, ClientId, ClientInfo, Command, Context, Engine, Limits, Tag, Timestamp,
};
use windlass_link::ToLeader;

const GOLDEN: &str = include_str!("../../crates/link/golden/to_leader.txt");

fn limits() -> Limits {
    Limits {
        queues_max: 100,
        page_max: 10,
        batch_depth_max: 5,
        ..Limits::default()
    }
}

/// The command in an item, or the one that a claim is.
fn command(item: ToLeader) -> Option<(ClientId, Tag, Command)> {
    match item {
        ToLeader::Command {
            client,
            tag,
            command,
        } => Some((client, tag, command)),
        ToLeader::Claim { client, claim } => {
            Some((client, Tag::NONE, Command::Claim(Box::new(claim))))
        }
        _ => None,
    }
}

fuzz_target!(|input: stream::Input| {
    let mut engine = Engine::new(limits(), 1);
    let mut context = Context::new(Timestamp(1_000), 1);
    engine.succeed(&mut context);
    engine.end_grace_at(Timestamp(1_100));
    for client in 0..3 {
        engine.apply(
            ClientId(client),
            Tag::NONE,
            ClientCommand::Open(ClientInfo::default()),
            &mut context,
        );
    }
    for (client, tag, command) in stream::items::<ToLeader>(&input.bytes(GOLDEN))
        .into_iter()
        .filter_map(command)
    {
        context.now = context.now.after_ms(7);
        engine.apply(ClientId(client.0 % 3), tag, command, &mut context);
        engine.check();
        context.changes.clear();
        context.events.clear();
    }
});
