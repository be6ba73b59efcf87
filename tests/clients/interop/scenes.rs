//! The scenes for every stock library, as client and as worker. They are played in three
//! namespaces of a daemon at once.

use std::time::Instant;

use super::peers::{ALL, Held, Stock};
use super::stage::Place;
use crate::common;

/// The sections of a scene's queues.
pub fn sections(scene: &str) -> &'static str {
    match scene {
        "repeats" => "[queues.\"*no*\"]\ndedup.window = \"1h\"\n",
        "bursts" => "[queues.\"*no*\"]\ncoalesce = { quiet = \"200ms\" }\n",
        _ => "",
    }
}

/// Jobs and their results: text, empty, any bytes; a job that fails.
pub fn foreground(stock: &Stock, stage: &Place) {
    let _worker = stock.worker(stage.address());
    let mut client = stock.client(stage.address());
    let any_bytes: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    client.submit("text", "foreground normal", "echo", "", "a cake");
    client.submit("nothing", "foreground normal", "echo", "", "");
    client.submit("failing", "foreground normal", "fail", "", "doomed");
    client.wait();
    assert_eq!(client.story("text"), ["complete a cake"]);
    assert_eq!(client.story("nothing"), ["complete"]);
    assert_eq!(client.story("failing"), ["fail"]);
    if stock.binary {
        client.submit("bytes", "foreground normal", "echo", "", &any_bytes);
        client.wait();
        assert!(
            client.result("bytes") == any_bytes,
            "not the bytes that were sent"
        );
    }
    client.leave();
}

/// A background job runs long after its client has gone.
pub fn background(stock: &Stock, stage: &Place) {
    let mut client = stock.client(stage.address());
    client.submit("later", "background normal", "note", "", "some day");
    client.wait();
    client.created("later");
    client.leave();
    assert_eq!(stock.worker(stage.address()).notes(1), ["note some day"]);
}

/// High before normal before low, with and without a waiting client.
pub fn priorities(stock: &Stock, stage: &Place) {
    let mut client = stock.client(stage.address());
    for way in ["background", "foreground"] {
        for priority in ["low", "normal", "high"] {
            let tag = format!("{way}-{priority}");
            client.submit(&tag, &format!("{way} {priority}"), "note", &tag, &tag);
            if way == "background" {
                client.wait();
                client.created(&tag);
            }
        }
    }
    client.wait();
    for priority in ["low", "normal", "high"] {
        client.created(&format!("foreground-{priority}"));
    }
    let mut worker = stock.worker(stage.address());
    let notes = worker.notes(6);
    for (pair, priority) in notes.chunks(2).zip(["high", "normal", "low"]) {
        assert!(
            pair.iter().all(|note| note.ends_with(priority)),
            "{notes:?}"
        );
    }
    for priority in ["low", "normal", "high"] {
        assert_eq!(
            client.story(&format!("foreground-{priority}")),
            [format!("complete foreground-{priority}")]
        );
    }
}

/// Two clients with the same unique id get the result from one run of one job.
pub fn coalescing(stock: &Stock, stage: &Place) {
    let (mut one, mut other) = (stock.client(stage.address()), stock.client(stage.address()));
    for client in [&mut one, &mut other] {
        client.submit("same", "foreground normal", "note", "only one", "the news");
        client.wait();
    }
    assert_eq!(one.created("same"), other.created("same"));
    let mut worker = stock.worker(stage.address());
    for client in [&mut one, &mut other] {
        assert_eq!(client.story("same"), ["complete the news"]);
    }
    one.submit(
        "next",
        "foreground normal",
        "note",
        "only one",
        "the next news",
    );
    one.wait();
    assert_eq!(one.story("next"), ["complete the next news"]);
    assert_eq!(worker.notes(2), ["note the news", "note the next news"]);
}

/// In a queue that remembers jobs, a submit that is repeated after the job's end is the same job, and a client that waits
/// gets the result that it had.
pub fn repeats(stock: &Stock, stage: &Place) {
    let mut worker = stock.worker(stage.address());
    let mut client = stock.client(stage.address());
    client.submit("first", "background normal", "note", "order 7", "one cake");
    client.wait();
    assert_eq!(worker.notes(1), ["note one cake"]);
    // The answer was lost with its connection.
    let mut again = stock.client(stage.address());
    again.submit("again", "background normal", "note", "order 7", "one cake");
    again.wait();
    assert_eq!(again.created("again"), client.created("first"));
    again.submit("waits", "foreground normal", "note", "order 7", "one cake");
    again.wait();
    assert_eq!(again.story("waits"), ["complete one cake"]);
    again.submit("other", "foreground normal", "note", "order 8", "two cakes");
    again.wait();
    assert_eq!(worker.notes(2), ["note one cake", "note two cakes"]);
}

/// In a queue where submits become one job, a burst of them is one run with the last body.
pub fn bursts(stock: &Stock, stage: &Place) {
    let mut client = stock.client(stage.address());
    for n in 0..100 {
        client.submit(
            &format!("s{n}"),
            "background normal",
            "note",
            "account 7",
            format!("balance {n}"),
        );
        client.wait();
        assert_eq!(client.created(&format!("s{n}")), client.created("s0"));
    }
    client.submit(
        "waits",
        "foreground normal",
        "note",
        "account 7",
        "balance 100",
    );
    client.wait();
    let mut worker = stock.worker(stage.address());
    assert_eq!(client.story("waits"), ["complete balance 100"]);
    client.submit(
        "other",
        "foreground normal",
        "note",
        "account 8",
        "balance 0",
    );
    client.wait();
    assert_eq!(client.story("other"), ["complete balance 0"]);
    assert_eq!(worker.notes(2), ["note balance 100", "note balance 0"]);
}

/// `GET_STATUS` of a job that waits, runs and is over.
pub fn status(stock: &Stock, stage: &Place) {
    let mut client = stock.client(stage.address());
    let mut other = (!stock.listens).then(|| stock.client(stage.address()));
    let held = Held::new(stage.dir(), "held");
    client.submit("long", "foreground normal", "hold", "", held.body());
    client.wait();
    let handle = client.created("long");
    assert_eq!(
        other.as_mut().unwrap_or(&mut client).ask(&handle),
        "1 0 0 0"
    );
    let _worker = stock.worker(stage.address());
    client.hears_of("long", "status", "3 4");
    assert_eq!(
        other.as_mut().unwrap_or(&mut client).ask(&handle),
        "1 1 3 4"
    );
    held.let_go();
    assert_eq!(client.story("long"), ["status 3 4", "complete let go"]);
    assert_eq!(
        other.as_mut().unwrap_or(&mut client).ask(&handle),
        "0 0 0 0"
    );
}

/// An exception reaches the clients that asked for exceptions; others see the job fail, once. The worker continues.
pub fn exceptions(stock: &Stock, stage: &Place) {
    let _worker = stock.worker(stage.address());
    let mut client = stock.client(stage.address());
    client.submit("raising", "foreground normal", "raise", "", "x");
    client.wait();
    assert_eq!(client.story("raising"), ["fail"]);
    client.submit("after", "foreground normal", "echo", "", "still here");
    client.wait();
    assert_eq!(client.story("after"), ["complete still here"]);
    assert_eq!(client.so_far("raising"), ["fail"]);
    client.leave();
    if stock.exceptions {
        let mut client = stock.client_with_exceptions(stage.address());
        client.submit("raising", "foreground normal", "raise", "", "x");
        client.wait();
        let story = client.story("raising");
        assert!(
            story.len() == 1
                && story[0].starts_with("exception ")
                && story[0].contains("went wrong"),
            "{story:?}"
        );
        client.submit("after", "foreground normal", "echo", "", "still here");
        client.wait();
        assert_eq!(client.story("after"), ["complete still here"]);
        assert_eq!(client.so_far("raising"), story);
        client.leave();
    }
}

/// Progress, data and a warning, in the order they were sent.
pub fn streaming(stock: &Stock, stage: &Place) {
    let _worker = stock.worker(stage.address());
    let mut client = stock.client(stage.address());
    client.submit("stream", "foreground normal", "steps", "", "a cake");
    client.wait();
    assert_eq!(client.story("stream"), STEPS);
    client.leave();
}

const STEPS: [&str; 4] = [
    "status 1 2",
    "data half of ",
    "warning mind the gap",
    "complete whole of a cake",
];

/// `kill -9` of a worker that holds a job: the next worker gets it, and the client its result.
pub fn worker_death(stock: &Stock, stage: &Place) {
    let mut client = stock.client(stage.address());
    let held = Held::new(stage.dir(), "held");
    let worker = stock.worker(stage.address());
    client.submit("long", "foreground normal", "hold", "", held.body());
    client.wait();
    client.hears_of("long", "status", "3 4");
    worker.kill();
    let _next = stock.worker(stage.address());
    held.let_go();
    assert_eq!(
        client.story("long"),
        ["status 3 4", "status 3 4", "complete let go"]
    );
    client.leave();
}

/// A body of several megabytes, there and back.
pub fn large(stock: &Stock, stage: &Place) {
    let _worker = stock.worker(stage.address());
    let mut client = stock.client(stage.address());
    // A pattern that any lost, doubled or displaced piece would change.
    let body: Vec<u8> = if stock.binary {
        (0..1_000_000_u32)
            .flat_map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes())
            .collect()
    } else {
        (0..100_000)
            .flat_map(|n| format!("line {n}\n").into_bytes())
            .collect()
    };
    client.submit("large", "foreground normal", "echo", "", &body);
    client.wait();
    assert!(
        client.result("large") == body,
        "not the bytes that were sent"
    );
    client.leave();
}

/// Many concurrent jobs on one connection, each with its own result.
pub fn in_flight(stock: &Stock, stage: &Place) {
    const JOBS: usize = 300;
    let mut client = stock.client(stage.address());
    for n in 0..JOBS {
        client.submit(
            &format!("job{n}"),
            "foreground normal",
            "echo",
            &format!("unique {n}"),
            format!("body {n}"),
        );
    }
    client.wait();
    for n in 0..JOBS {
        client.created(&format!("job{n}"));
    }
    let _workers = [stock.worker(stage.address()), stock.worker(stage.address())];
    for n in 0..JOBS {
        assert_eq!(
            client.story(&format!("job{n}")),
            [format!("complete body {n}")]
        );
    }
    client.leave();
}

/// A worker of this library serves clients of every library.
pub fn serves_every_client(stock: &Stock, stage: &Place) {
    let _worker = stock.worker(stage.address());
    for other in ALL {
        let mut client = other.client(stage.address());
        client.submit("stream", "foreground normal", "steps", "", "a cake");
        client.submit("raising", "foreground normal", "raise", "", "x");
        client.wait();
        assert_eq!(client.story("stream"), STEPS, "{}", other.name);
        assert_eq!(client.story("raising"), ["fail"], "{}", other.name);
        client.leave();
    }
}

/// Text commands, while the same client waits for a job.
pub fn administration(stock: &Stock, stage: &Place) {
    let held = Held::new(stage.dir(), "held");
    let mut client = stock.client(stage.address());
    let _worker = stock.worker(stage.address());
    client.submit("long", "foreground normal", "hold", "one", held.body());
    client.hears_of("long", "status", "3 4");
    client.submit("later", "background normal", "echo", "two", "x");
    let (long, later) = (client.created("long"), client.created("later"));
    assert_eq!(client.admin("version"), ["OK 1.1.20"]);
    let functions = client.admin("functions");
    assert!(
        functions.contains(&"hold 1 1 1".into()) && functions.contains(&"echo 1 0 1".into()),
        "{functions:?}"
    );
    let workers = client.admin("workers");
    let capable = workers.iter().find(|row| {
        ["echo", "hold", "note"]
            .iter()
            .all(|name| row.contains(name))
    });
    assert!(
        capable.is_some_and(|row| row.contains(" 127.0.0.1 ")),
        "{workers:?}"
    );
    assert_eq!(
        client.admin("jobs"),
        [format!("{later} 0 0 1"), format!("{long} 0 0 0")]
    );
    assert_eq!(client.admin("uniques"), ["two", "one"]);
    assert_eq!(client.admin(&format!("cancel {later}")), ["OK"]);
    assert_eq!(client.admin("uniques"), ["one"]);
    assert_eq!(client.admin(&format!("cancel {long}")), ["OK"]);
    assert_eq!(client.story("long"), ["status 3 4", "fail"]);
    held.let_go();
}

/// `GET_STATUS_UNIQUE`: the status of a job by its unique id, and how many clients wait for it.
pub fn status_by_unique(stock: &Stock, stage: &Place) {
    let held = Held::new(stage.dir(), "held");
    let (mut one, mut other) = (stock.client(stage.address()), stock.client(stage.address()));
    one.submit("long", "foreground normal", "hold", "the one", held.body());
    let handle = one.created("long");
    assert_eq!(one.ask_by_unique(&handle), "1 0 0 0 1");
    other.submit("long", "foreground normal", "hold", "the one", held.body());
    other.created("long");
    let _worker = stock.worker(stage.address());
    one.hears_of("long", "status", "3 4");
    assert_eq!(one.ask_by_unique(&handle), "1 1 3 4 2");
    held.let_go();
    assert_eq!(one.story("long"), ["status 3 4", "complete let go"]);
    assert_eq!(one.ask_by_unique(&handle), "0 0 0 0 0");
}

/// A worker that sends the end of a job and its next request in two writes, without TCP_NODELAY, has a full queue to
/// itself. The test prints the duration (see crates/bench/RESULTS.md): 40 ms a job if the first write waits to be
/// acknowledged.
pub fn two_writes(stock: &Stock, stage: &Place) {
    const JOBS: usize = 200;
    let mut producer = common::Peer::connect(stage.address()).unwrap();
    for n in 0..JOBS {
        producer.submit("note", "", format!("body {n}")).unwrap();
    }
    let begun = Instant::now();
    let mut worker = stock.worker(stage.address());
    let notes = worker.notes(JOBS);
    println!(
        "{}: {JOBS} jobs in {:?}, its start included",
        stock.name,
        begun.elapsed()
    );
    assert_eq!(
        notes,
        (0..JOBS)
            .map(|n| format!("note body {n}"))
            .collect::<Vec<_>>()
    );
    common::wait_until("the last is done", || {
        producer
            .listing("status")
            .unwrap()
            .contains(&"note\t0\t0\t1".into())
    });
}
