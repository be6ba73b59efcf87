//! Packed jobs with bodies in memory.

use windlass_engine::JobId;

use crate::bodies::Cold;

#[test]
fn the_bodies_of_packed_jobs_leave_as_others_do() {
    let mut cold = Cold::with("q", 600);
    let resident = |cold: &Cold| cold.broker.engine.resident_bytes();
    let unpacked = resident(&cold);
    cold.broker.engine.pack((1..=600).map(JobId));
    let packed = resident(&cold);
    assert!(
        packed + 600 * 200 < unpacked,
        "{packed} of {unpacked} bytes are left"
    );
    assert_eq!(cold.broker.engine.bodies_here(), 60_000);
    assert_eq!(cold.cool(1_000), (591..=600).rev().collect::<Vec<_>>());
    cold.store_all(591..=600);
    cold.broker.engine.pack([JobId(600)].into_iter());
    let gone = packed - resident(&cold);
    assert!(
        (10 * 90..10 * 97).contains(&gone),
        "{gone} bytes: a hash and a place are left of each"
    );
    assert_eq!(cold.cool(300), [590, 589, 588], "the round goes on");
    assert_eq!(cold.cool(u64::MAX), (1..=587).rev().collect::<Vec<_>>());
    cold.store_all(1..=590);
    cold.broker.engine.pack((1..=600).map(JobId));
    assert!(resident(&cold) < 600 * 50, "{}", resident(&cold));
    (0..3).for_each(|_| assert_eq!(cold.cool(u64::MAX), Vec::<u64>::new()));
}

#[test]
fn packed_jobs_that_are_needed_soon_keep_their_bodies_and_stay_packed() {
    let mut cold = Cold::with("q", 200);
    cold.broker.engine.pack((1..=200).map(JobId));
    let packed = cold.broker.engine.resident_bytes();
    assert_eq!(cold.cool(u64::MAX), Vec::<u64>::new(), "the queue is short");
    assert_eq!(cold.broker.engine.resident_bytes(), packed);
    assert_eq!(
        cold.cool(u64::MAX),
        (1..=200).rev().collect::<Vec<_>>(),
        "nothing else is left"
    );
}
