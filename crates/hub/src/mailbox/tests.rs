use bytes::Bytes;
use windlass_engine::{Event, Notice, Reply, Tag, Taken};

use super::*;
use crate::budget::SMALL_BYTES;
use crate::testing::nowhere;

fn mailbox(bytes_max: usize) -> Mailbox {
    Mailbox::new(bytes_max, Arc::new(Budget::new(2 << 20)), nowhere())
}

fn published(bytes: usize) -> Arc<Publication> {
    Publication::new(Bytes::from(vec![0; bytes]), &Arc::new(Budget::new(2 << 20)))
}

fn taken(mailbox: &Mailbox, durable: u64, failed: bool) -> Vec<String> {
    let mut mail = Vec::new();
    assert_eq!(mailbox.take(durable, failed, usize::MAX, &mut mail), None);
    names(mail)
}

fn names(mail: Vec<Mail>) -> Vec<String> {
    let name = |mail| match mail {
        Mail::Event(Event::Reply(tag, Reply::Done)) => format!("done {}", tag.0),
        Mail::Event(Event::Reply(tag, Reply::Refused(why))) => format!("{why} {}", tag.0),
        Mail::Event(Event::Reply(tag, Reply::Empty)) => format!("no job {}", tag.0),
        Mail::Event(_) => "event".to_owned(),
        Mail::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Mail::Posted(published) => format!("posted {}", published.data().len()),
    };
    mail.into_iter().map(name).collect()
}

#[test]
fn mail_behind_an_acknowledgement_waits_with_it() {
    let mailbox = mailbox(1 << 20);
    assert!(!mailbox.push(0, Mail::Bytes(Bytes::from_static(b"echo 1")), None));
    assert!(
        mailbox.push(7, Mail::Event(Event::Reply(Tag(1), Reply::Done)), None),
        "must be rung for commit 7"
    );
    assert!(
        !mailbox.push(7, Mail::Event(Event::Reply(Tag(2), Reply::Done)), None),
        "registered already"
    );
    mailbox.push(0, Mail::Bytes(Bytes::from_static(b"echo 2")), None);
    assert_eq!(taken(&mailbox, 6, false), ["echo 1"]);
    assert_eq!(taken(&mailbox, 7, false), ["done 1", "done 2", "echo 2"]);
}

#[test]
fn a_failed_store_makes_acknowledgements_unknown() {
    let mailbox = mailbox(1 << 20);
    mailbox.push(7, Mail::Event(Event::Reply(Tag(1), Reply::Done)), None);
    mailbox.push(8, Mail::Event(Event::Notice(Notice::WorkAvailable)), None);
    assert_eq!(taken(&mailbox, 6, true), ["outcome unknown 1", "event"]);
}

fn lease(tag: u64, connection_bound: bool) -> Mail {
    let job = Taken {
        connection_bound,
        ..crate::testing::taken()
    };
    Mail::Event(Event::Reply(Tag(tag), Reply::Taken(Box::new(job))))
}

#[test]
fn a_lease_that_outlives_its_connection_waits_for_its_commit() {
    let mailbox = mailbox(1 << 20);
    mailbox.push(7, lease(1, false), None);
    mailbox.push(8, lease(2, false), None);
    mailbox.push(8, lease(3, true), None);
    assert_eq!(
        taken(&mailbox, 6, true),
        [""; 0],
        "the store may respond again"
    );
    mailbox.begin_epoch(7);
    assert_eq!(
        taken(&mailbox, 0, false),
        ["event", "event"],
        "the second take is asked again"
    );
}

#[test]
fn it_is_bounded() {
    let mailbox = mailbox(1000);
    mailbox.push(0, Mail::Bytes(Bytes::from_static(&[0; 900])), None);
    assert!(!mailbox.pressure.overflowed());
    mailbox.push(0, Mail::Bytes(Bytes::from_static(&[0; 900])), None);
    assert!(mailbox.pressure.overflowed());
}

#[test]
fn mail_and_posts_may_fill_it_exactly() {
    let bytes = || Mail::Bytes(Bytes::from_static(&[0; 900]));
    for (missing, overflows) in [(0, false), (1, true)] {
        let mailbox = mailbox(bytes().weight() - missing);
        mailbox.push(0, bytes(), None);
        assert_eq!(
            mailbox.pressure.overflowed(),
            overflows,
            "{missing} bytes short"
        );
    }
    let post = published(900);
    let weight = post.admit(0).unwrap().weight();
    assert_eq!(
        [0, 1].map(|missing| mailbox(weight - missing).post(&post)),
        [true, false]
    );
}

#[test]
fn the_budget_counts_mail_without_posts_until_the_mailbox_is_gone() {
    let budget = Arc::new(Budget::new(2 << 20));
    let mailbox = Mailbox::new(usize::MAX, Arc::clone(&budget), nowhere());
    for _ in 0..10 {
        assert!(mailbox.post(&Publication::new(Bytes::from_static(&[0; 900]), &budget)));
    }
    assert_eq!(budget.held(), 0, "posts have a budget of their own");
    let mail = || Mail::Bytes(Bytes::from_static(&[0; SMALL_BYTES]));
    mailbox.push(0, mail(), None);
    assert_eq!(budget.held(), mail().weight());
    drop(mailbox);
    assert_eq!(budget.held(), 0);
}

#[test]
fn its_owner_is_on_one_thread_at_a_time() {
    let [old, new] = [nowhere(), nowhere()];
    let mailbox = Mailbox::new(1000, Arc::default(), old.clone());
    assert_eq!(
        [&old, &new].map(|home| mailbox.is_on(&home.waker)),
        [true, false]
    );
    mailbox.move_to(new.clone());
    assert_eq!(
        [&old, &new].map(|home| mailbox.is_on(&home.waker)),
        [false, true]
    );
}

#[test]
fn posts_wait_in_order_until_there_is_room() {
    let mailbox = mailbox(1 << 20);
    let post = |bytes: usize| mailbox.post(&published(bytes));
    assert!(post(10) && post(20));
    mailbox.push(0, Mail::Bytes(Bytes::from_static(b"echo")), None);
    assert!(post(30));
    let take = |room| {
        let mut mail = Vec::new();
        (
            mailbox.take(0, false, room, &mut mail),
            names(mail).join(", "),
        )
    };
    let echo = Mail::Bytes(Bytes::from_static(b"echo")).weight();
    let one = POSTED_ROOM_BYTES + 1;
    assert_eq!(take(POSTED_ROOM_BYTES), (Some(echo), String::new()));
    assert_eq!(
        take(one),
        (Some(echo), "posted 10".to_owned()),
        "any room allows one"
    );
    assert_eq!(take(one), (Some(0), "posted 20, echo".to_owned()));
    assert_eq!(take(one), (None, "posted 30".to_owned()));
    assert_eq!(mailbox.len(), 0);
    mailbox.push(7, Mail::Event(Event::Reply(Tag(1), Reply::Done)), None);
    assert!(post(40));
    assert_eq!(
        take(usize::MAX),
        (None, String::new()),
        "an acknowledgement waits, and so does the mail behind it"
    );
    assert_eq!(taken(&mailbox, 7, false), ["done 1", "posted 40"]);
}

#[test]
fn mail_stays_while_there_is_no_room_unless_it_is_urgent() {
    let mailbox = mailbox(1 << 20);
    let words = |bytes: usize| Mail::Bytes(Bytes::from(vec![0; bytes]));
    for n in 1..4 {
        mailbox.push(0, words(1000 * n), None);
    }
    let take = |room| {
        let mut mail = Vec::new();
        let left = mailbox.take(0, false, room, &mut mail);
        (left, mail.iter().map(Mail::weight).sum::<usize>())
    };
    let (all, first) = (mailbox.pressure.holds(), words(1000).weight());
    assert_eq!(take(0), (Some(all), 0));
    assert_eq!(
        take(1),
        (Some(all - first), first),
        "the last may be larger than the room"
    );
    mailbox.push(0, Mail::Event(Event::Notice(Notice::Close)), None);
    assert_eq!(
        take(0),
        (
            None,
            all - first + Mail::Event(Event::Notice(Notice::Close)).weight()
        )
    );
    assert_eq!(mailbox.pressure.holds(), 0);
}

#[test]
fn posts_are_refused_before_they_overflow_the_mailbox() {
    let mailbox = mailbox(10_000);
    let posted = (0..100)
        .take_while(|_| mailbox.post(&published(900)))
        .count();
    assert!((1..12).contains(&posted), "{posted}");
    assert!(!mailbox.pressure.overflowed());
    assert_eq!(taken(&mailbox, 0, false).len(), posted);
    assert!(mailbox.post(&published(900)));
}
