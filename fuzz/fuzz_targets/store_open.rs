//! A data directory with any damage to its files. Opening either finds all acknowledged data or refuses, and `verify`
//! reports the same before. It never panics. An opened store continues, and is found again.
#![no_main]

mod directory;

use libfuzzer_sys::fuzz_target;
use windlass_engine::{BulkCommand, Context, Mutation, Tag, Timestamp};
use windlass_store::{Opened, Recovered, open, verify};
use windlass_testkit::store::Fingerprint;

use directory::{Input, damaged, limits};

fuzz_target!(|input: Input| {
    let (directory, _home, config) = damaged(&input);
    let verdict = verify(&config, limits());
    let opened = match open(&config, limits(), 1) {
        Ok(opened) => opened,
        Err(why) => {
            assert!(verdict.is_err(), "verify does not report {why}");
            return;
        }
    };
    let Opened {
        mut log,
        mut checkpointer,
        recovered,
        guard,
    } = opened;
    let Recovered {
        mut engine,
        mut journal,
        report,
        ..
    } = recovered;
    assert_eq!(verdict.expect("it can be opened"), report);
    engine.check();
    assert_eq!(
        Fingerprint::of(&engine).differs_from(&directory.acknowledged),
        None
    );

    let mut context = Context::new(Timestamp(2_000), 1);
    for n in 0..3 {
        context.changes.clear();
        let (filter, after) = (Default::default(), Default::default());
        engine.apply(
            windlass_engine::ClientId(1),
            Tag::NONE,
            BulkCommand::Mutate {
                filter,
                action: Mutation::Discard,
                after,
                limit: 1,
            },
            &mut context,
        );
        journal.append(&engine, &context.changes);
        while let Some(commit) = journal.cut(&engine) {
            log.append(&commit).expect("room");
            journal.committed(commit.seq());
        }
        checkpointer
            .run(n % 2 == 0)
            .expect("what was opened can be read");
    }
    let print = Fingerprint::of(&engine);
    drop((log, checkpointer, guard));
    let again = open(&config, limits(), 1).expect("it was opened before");
    assert_eq!(
        Fingerprint::of(&again.recovered.engine).differs_from(&print),
        None
    );
});
