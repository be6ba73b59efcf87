//! What the engine costs at depth: nanoseconds per command and resident bytes per job.
//!
//! `cargo run --release -p windlass-engine --example cost [JOBS]`. Prints one line per measurement; compares nothing.

use std::time::Instant;

use bytes::Bytes;
use windlass_engine::{
    Ability, Clash, ClientId, ClientInfo, Command, Engine, Event, From, JobRef, KeyUntil, LeaseTerms, Limits, NewJob,
    Origin, Proof, Select, Tag, Take, Timestamp, Turn, Unique, Wait,
};

const CLIENT: ClientId = ClientId(1);

fn main() {
    let jobs: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    for (name, keyed) in [("no key", false), ("random keys of 36 bytes", true)] {
        println!("{jobs} jobs of 100 bytes, {name}");
        life(jobs, keyed);
    }
}

/// Pushes all, then takes and finishes all.
fn life(jobs: u64, keyed: bool) {
    let mut engine = Engine::new(Limits::default(), 42);
    let mut turn = Turn::new(Timestamp(1_000), 1);
    let mut ask = |tag, command| {
        engine.apply(CLIENT, tag, command, &mut turn);
        turn.changes.clear();
        std::mem::take(&mut turn.events)
    };
    ask(Tag::NONE, Command::Open(ClientInfo::default()));
    let queue = Bytes::from_static(b"resize");
    let before = resident_bytes();
    let mut dice = Turn::new(Timestamp(0), 9);
    timed("push", jobs, |_| {
        let mut job = NewJob::new(Origin::GEARMAN, queue.clone(), Bytes::copy_from_slice(&[7; 100]));
        if keyed {
            let key = format!("{:016x}-{:016x}-ab", dice.roll(u64::MAX), dice.roll(u64::MAX));
            job.unique = Some(Unique { key: key.into(), clash: Clash::Attach, until: KeyUntil::End });
        }
        drop(ask(Tag(1), Command::Push(Box::new(job))));
    });
    println!("  {:>8} resident bytes per job", (resident_bytes().saturating_sub(before)) / jobs);
    let ability = Ability { queue, weight: 0, lease: LeaseTerms::CONNECTION };
    ask(Tag::NONE, Command::Serve(ability));
    timed("take and finish", jobs, |_| {
        let take = Take { from: From::Abilities, select: Select::BestPriority, wait: Wait::No, worker: Bytes::new() };
        let events = ask(Tag(1), Command::Take(take));
        if let Some((_, Event::Taken { job, .. })) = events.first() {
            let (job, result) = (JobRef::Id(job.id), Bytes::new());
            drop(ask(Tag::NONE, Command::Finish { job, proof: Proof::Connection, result }));
        }
    });
    println!("  {:>8} resident bytes left", resident_bytes().saturating_sub(before));
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn timed(what: &str, times: u64, mut run: impl FnMut(u64)) {
    let start = Instant::now();
    (0..times).for_each(&mut run);
    println!("  {:>8} ns {what}", start.elapsed().as_nanos() / u128::from(times));
}

/// Resident bytes of this process, 0 where the system does not say.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}
