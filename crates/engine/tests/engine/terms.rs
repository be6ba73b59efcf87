//! A command's requirements to the store, and the kind of command: the server uses these functions while the
//! store fails, when it drains, and for statistics.

use bytes::Bytes;
use windlass_engine::{
    BatchCommand, ClientCommand, ClientId, ClientInfo, Command, JobCommand, JobId, JobRef,
    Mutation, NewBatch, Protocol, QueueKind, RepayTo, ScheduleCommand, ScheduleRef, Tag,
    TakeCommand,
};

use crate::common::{
    all, beat, by_name, create, credit, data, enlist, every, extend, fail, finish, list_jobs,
    list_queues, look, mutate, name, pause, push, release, remove_queue, remove_schedule, repay,
    serve, take, tell,
};

const SILENT: Tag = Tag::NONE;
const ASKED: Tag = Tag(7);

/// The requirements of a command to the store: always, only if it needs a reply, or never.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Store {
    Always,
    Answered,
    Never,
}

fn batch() -> Command {
    Command::Batch(BatchCommand::New(Box::new(NewBatch {
        protocol: Protocol::FAKTORY,
        name: name("b"),
        parent: None,
        about: Bytes::new(),
        meta: Bytes::new(),
        complete: None,
        success: None,
        expires_ms: 1_000,
    })))
}

#[test]
fn a_change_needs_the_store_and_a_question_does_not() {
    use Store::{Always, Answered, Never};
    let run = ScheduleCommand::Run(ScheduleRef::Id(JobId(1)));
    // The command, the requirement, and `true` if that is space.
    let table: [(Command, Store, bool); 28] = [
        (push("q").into(), Always, true),
        (push("q").foreground().into(), Never, false),
        (every(1_000, push("q")).into(), Always, true),
        (run.into(), Always, true),
        (batch(), Always, true),
        (mutate(all(), Mutation::Requeue), Always, false),
        (
            JobCommand::Replace {
                job: by_name("j"),
                body: Bytes::new(),
            }
            .into(),
            Answered,
            false,
        ),
        (
            JobCommand::Cancel(JobRef::Id(JobId(1))).into(),
            Answered,
            false,
        ),
        (
            JobCommand::Collect {
                name: Bytes::new(),
                from: JobId(0),
            }
            .into(),
            Never,
            false,
        ),
        (finish(1), Answered, false),
        (fail(1), Answered, false),
        (release(1, false), Answered, false),
        (extend(1, 1, 9, false), Answered, false),
        (repay(1, 1, RepayTo::Front), Answered, false),
        (tell(1, data("half")), Never, false),
        (create("q", QueueKind::Work), Answered, false),
        (pause("q", true), Answered, false),
        (remove_queue("q", false), Answered, false),
        (remove_schedule(1), Answered, false),
        (
            BatchCommand::Commit { batch: name("b") }.into(),
            Answered,
            false,
        ),
        (Command::Barrier, Answered, false),
        (take(["q"]).into(), Never, false),
        (credit(1), Never, false),
        (serve("q"), Never, false),
        (
            ClientCommand::Open(ClientInfo::default()).into(),
            Never,
            false,
        ),
        (beat("w"), Never, false),
        (look(1), Never, false),
        (list_jobs(all()), Never, false),
    ];
    for (command, needs, room) in table {
        let found = match [SILENT, ASKED].map(|tag| command.needs_store(tag)) {
            [true, true] => Always,
            [false, true] => Answered,
            [false, false] => Never,
            [true, false] => panic!("{command:?}"),
        };
        assert_eq!((found, command.takes_room()), (needs, room), "{command:?}");
    }
}

#[test]
fn only_reports_end_a_job_and_only_requests_wait_for_work() {
    // The command, `true` if it finishes a job, `true` if it requests work, `true` if it may be too long for
    // a visit.
    let table: [(Command, bool, bool, bool); 11] = [
        (finish(1), true, false, false),
        (fail(1), true, false, false),
        (release(1, true), false, false, false),
        (tell(1, data("half")), false, false, false),
        (take(["q"]).into(), false, true, false),
        (TakeCommand::WaitForWork.into(), false, true, false),
        (credit(3), false, true, false),
        (TakeCommand::Unwait.into(), false, false, false),
        (ClientCommand::Close.into(), false, false, true),
        (
            ClientCommand::UnserveAll { requeue: false }.into(),
            false,
            false,
            true,
        ),
        (list_queues(), false, false, false),
    ];
    for (command, ends, waits, in_parts) in table {
        let found = (
            command.ends_job(),
            command.waits_for_work(),
            command.runs_in_parts(),
        );
        assert_eq!(found, (ends, waits, in_parts), "{command:?}");
    }
}

#[test]
fn a_command_without_a_tag_is_answered_only_if_its_answer_is_its_purpose() {
    let table: [(Command, bool, bool); 11] = [
        (serve("q"), false, false),
        (ClientCommand::Close.into(), false, false),
        (ClientCommand::Disconnect(ClientId(1)).into(), false, true),
        (push("q").into(), false, true),
        (finish(1), false, true),
        (take(["q"]).into(), true, true),
        (credit(1), false, false),
        (look(1), true, true),
        (beat("w"), true, true),
        (enlist("w"), false, true),
        (Command::Barrier, true, true),
    ];
    for (command, silent, asked) in table {
        assert_eq!(
            [SILENT, ASKED].map(|tag| command.is_answered(tag)),
            [silent, asked],
            "{command:?}"
        );
    }
}
