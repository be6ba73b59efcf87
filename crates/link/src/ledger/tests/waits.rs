//! Waits that outlive their leader.

use super::*;

/// Of a lease by time the next leader knows only what the store has.
#[test]
fn a_take_whose_lease_is_lost_with_its_leader_waits_again() {
    const GATE: u64 = 7;
    let waits = |(bound, durable, reached): (bool, u64, &[Option<u64>])| {
        let mut ledger = ledger_of(vec![open_one(), ask(5, take_of(Wait::Forever)), Applied(2)]);
        let event = Event::Reply(Tag(5), Reply::Taken(taken(3, bound)));
        ledger.received(&ToEdge::Event {
            client: ONE,
            gate: GATE,
            event,
        });
        ledger.received(&ToEdge::Durable { commit: durable });
        ledger.received(&ToEdge::Applied {
            client: ONE,
            count: 0,
        });
        let claims = reached
            .iter()
            .map(|reached| ledger.claims(*reached))
            .next_back()
            .unwrap();
        let is_take = |item: &ToLeader| {
            matches!(
                item,
                ToLeader::Command {
                    tag: Tag(5),
                    command: Command::Take(_),
                    ..
                }
            )
        };
        claims.iter().any(is_take)
    };
    let table = [
        (
            (false, 0, &[Some(GATE - 1)][..]),
            true,
            "its commit is lost",
        ),
        ((false, 0, &[Some(GATE)]), false, "the next leader has it"),
        (
            (false, GATE, &[Some(0)]),
            false,
            "it was durable, and was given to the client",
        ),
        ((true, 0, &[Some(0)]), false, "the client claims the job"),
        (
            (false, 0, &[None]),
            false,
            "the same leader goes on with it",
        ),
        (
            (false, 0, &[None, Some(0)]),
            true,
            "that leader is gone as well",
        ),
    ];
    for (case, expected, why) in table {
        assert_eq!(waits(case), expected, "{why}");
    }
}

/// A worker that asks for a job and sleeps if there is none may send both at once.
#[test]
fn a_client_that_sleeps_behind_a_poll_sleeps_when_the_poll_is_answered() {
    for (wait, sleeps) in [(Wait::No, true), (Wait::Forever, false)] {
        let sleep = ask(0, TakeCommand::WaitForWork);
        let mut ledger = ledger_of(vec![
            open_one(),
            ask(5, take_of(wait)),
            sleep,
            Applied(3),
            Replied(5, Reply::Empty),
        ]);
        let is_sleep = |item: &ToLeader| {
            matches!(
                item,
                ToLeader::Command {
                    command: Command::Take(TakeCommand::WaitForWork),
                    ..
                }
            )
        };
        assert_eq!(
            ledger.claims(Some(0)).iter().any(is_sleep),
            sleeps,
            "{wait:?}"
        );
    }
}
