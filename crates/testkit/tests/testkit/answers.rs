//! Which replies answer which command.

use bytes::Bytes;
use windlass_engine::{
    Command, From, JobCommand, JobId, JobRef, LeaseCommand, LeaseTerms, NewJob, Proof, Protocol,
    Pushed, Refusal, Reply, Select, Take, TakeCommand, Wait,
};
use windlass_testkit::answers::is_answered_by;

fn push() -> Command {
    let job = NewJob::new(Protocol::GEARMAN, Bytes::from_static(b"q"), Bytes::new());
    JobCommand::Push(Box::new(job)).into()
}

fn finish() -> Command {
    LeaseCommand::Finish {
        job: JobRef::Id(JobId(1)),
        proof: Proof::Connection,
        result: Bytes::new(),
    }
    .into()
}

fn take() -> Command {
    let from = From::Listed {
        queues: vec![Bytes::from_static(b"q")],
        lease: LeaseTerms::CONNECTION,
    };
    TakeCommand::Take(Take {
        from,
        select: Select::ListOrder,
        wait: Wait::No,
        worker: Bytes::new(),
    })
    .into()
}

fn credit() -> Command {
    TakeCommand::Credit {
        credits: 1,
        select: Select::ListOrder,
    }
    .into()
}

#[test]
fn a_reply_answers_a_command_of_its_kind_and_a_refusal_answers_all() {
    let table: [(Command, Reply, bool); 8] = [
        (
            push(),
            Reply::Pushed {
                job: JobId(1),
                how: Pushed::New,
                durable: true,
            },
            true,
        ),
        (push(), Reply::Done, false),
        (push(), Reply::Refused(Refusal::NotUnique), true),
        (finish(), Reply::Finished(JobId(1)), true),
        (finish(), Reply::Done, false),
        (take(), Reply::Empty, true),
        (credit(), Reply::Empty, false),
        (credit(), Reply::Refused(Refusal::OutOfPlace), true),
    ];
    for (command, reply, expected) in table {
        assert_eq!(
            is_answered_by(&command, &reply),
            expected,
            "{command:?} {reply:?}"
        );
    }
}
