use super::*;
use windlass_hub::testing::captured;
use windlass_hub::testing::nowhere;

const TEXT: IsAdmin = |byte| byte != 0;
const NO_ADMIN: IsAdmin = |_| false;

fn places(connections_max: usize, reserved: usize, per_address_max: usize) -> Arc<Places> {
    let limits = PlaceLimits {
        connections_limit: "connections_max",
        connections_max,
        reserved,
        per_address_max,
        rate: None,
        failures: None,
        silence_min: Duration::ZERO,
    };
    let places = Places::new(limits);
    ["gearman", "faktory"]
        .iter()
        .for_each(|protocol| places.keep_for(protocol));
    places
}

fn spoken(
    places: &Arc<Places>,
    protocol: &'static str,
    is_admin: IsAdmin,
) -> Result<Admission, Full> {
    let mut admission = places.take(protocol, "", is_admin)?;
    admission
        .spoke(Some(0))
        .map_or(Ok(admission), |_| Err(Full::Limit("not an administrator")))
}

#[test]
fn one_protocol_cannot_take_the_places_of_another() {
    let places = places(10, 3, 0);
    let mut gearman: Vec<Admission> = (0..20)
        .map_while(|_| spoken(&places, "gearman", NO_ADMIN).ok())
        .collect();
    assert_eq!(
        gearman.len(),
        8,
        "half of all are reserved, for two protocols"
    );
    let faktory: Vec<Admission> = (0..20)
        .map_while(|_| spoken(&places, "faktory", NO_ADMIN).ok())
        .collect();
    assert_eq!(faktory.len(), 2);
    gearman.truncate(4);
    let more: Vec<Admission> = (0..20)
        .map_while(|_| spoken(&places, "faktory", NO_ADMIN).ok())
        .collect();
    assert_eq!(more.len(), 4);
    drop((gearman, faktory, more));
    assert_eq!(places.lock().open, 0);
}

#[test]
fn the_longest_silent_connection_makes_room() {
    let places = places(10, 1, 0);
    let mut silent: Vec<Admission> = (0..9)
        .map(|_| places.take("gearman", "", NO_ADMIN).unwrap())
        .collect();
    silent[0].spoke(Some(0));
    let newest = spoken(&places, "gearman", NO_ADMIN).unwrap();
    let evicted = |admissions: &[Admission]| {
        admissions
            .iter()
            .map(|admission| u8::from(admission.entry.evicted.load(Ordering::Acquire)))
            .collect::<Vec<_>>()
    };
    assert_eq!(evicted(&silent), [0, 1, 0, 0, 0, 0, 0, 0, 0]);
    // Another protocol gets its reserved place, then more at the expense of silent connections.
    let others = [(); 2].map(|()| spoken(&places, "faktory", NO_ADMIN).unwrap());
    assert_eq!(evicted(&silent), [0, 1, 1, 0, 0, 0, 0, 0, 0]);
    for admission in &mut silent[3..] {
        admission.spoke(Some(0));
    }
    assert_eq!(
        spoken(&places, "gearman", NO_ADMIN).unwrap_err(),
        Full::Limit("connections_max")
    );
    drop((silent, newest, others));
    let inner = places.lock();
    assert_eq!((inner.open, inner.silent.len()), (0, 0));
}

#[test]
fn a_protocols_own_silent_connections_give_way_first_and_reserved_places_stay() {
    let places = places(4, 1, 0);
    let silent = ["faktory", "faktory", "gearman", "gearman"]
        .map(|it| places.take(it, "", NO_ADMIN).unwrap());
    let _newest = spoken(&places, "gearman", NO_ADMIN).unwrap();
    assert_eq!(
        silent
            .each_ref()
            .map(|admission| admission.entry.evicted.load(Ordering::Acquire)),
        [false, false, true, false]
    );
    let places = self::places(4, 1, 0);
    let silent = places.take("faktory", "", NO_ADMIN).unwrap();
    let _spoken = [(); 3].map(|()| spoken(&places, "gearman", NO_ADMIN).unwrap());
    assert_eq!(
        spoken(&places, "gearman", NO_ADMIN).unwrap_err(),
        Full::Limit("connections_max")
    );
    assert!(
        !silent.entry.evicted.load(Ordering::Acquire),
        "the place is reserved for its protocol"
    );
}

#[test]
fn a_connection_that_may_be_on_its_way_stays_and_the_new_one_waits() {
    let places = places(2, 0, 0);
    let limits = **places.limits.load();
    let set = |silence_min| {
        places.limit(PlaceLimits {
            silence_min,
            ..limits
        })
    };
    let mut first = places.take("gearman", "", NO_ADMIN).unwrap();
    let second = places.take("gearman", "", NO_ADMIN).unwrap();
    set(Duration::MAX);
    for protocol in ["gearman", "faktory"] {
        assert_eq!(places.take(protocol, "", TEXT).unwrap_err(), Full::Yet);
    }
    first.shakes_hands();
    set(Duration::ZERO);
    let third = places.take("faktory", "", NO_ADMIN).unwrap();
    let evicted =
        [&first, &second].map(|admission| admission.entry.evicted.load(Ordering::Acquire));
    assert_eq!(
        evicted,
        [false, true],
        "the first has sent something meanwhile"
    );
    drop((first, second, third));
    assert!(places.lock().silent.is_empty());
}

#[test]
fn an_administrator_is_let_in_when_no_connection_is_silent() {
    let places = places(4, 1, 0);
    let admissions: Vec<Admission> = (0..3)
        .map(|_| spoken(&places, "gearman", TEXT).unwrap())
        .collect();
    assert_eq!(
        spoken(&places, "gearman", TEXT).unwrap_err(),
        Full::Limit("not an administrator")
    );
    let mut silent: Vec<Admission> = (0..ADMINISTRATORS_MAX)
        .map(|_| places.take("gearman", "", TEXT).unwrap())
        .collect();
    let mut admin = places.take("gearman", "", TEXT).unwrap();
    assert!(
        silent[0].entry.evicted.load(Ordering::Acquire),
        "a silent connection in an administrator's place makes room"
    );
    assert_eq!(admin.spoke(Some(b's')), None);
    assert_eq!(admin.spoke(Some(0)), None, "only the first byte counts");
    silent
        .iter_mut()
        .skip(1)
        .for_each(|admission| drop(admission.spoke(Some(b'w'))));
    assert_eq!(
        places.take("gearman", "", TEXT).unwrap_err(),
        Full::Limit("connections_max")
    );
    drop((admissions, silent, admin));
    let inner = places.lock();
    assert_eq!((inner.open, inner.administrators), (0, 0));
}

#[test]
fn an_address_has_a_limit() {
    let places = places(10, 0, 2);
    let mut admissions: Vec<Admission> = (0..2)
        .map(|_| places.take("gearman", "192.0.2.1", NO_ADMIN).unwrap())
        .collect();
    assert_eq!(
        places.take("faktory", "192.0.2.1", NO_ADMIN).unwrap_err(),
        Full::Limit("connections_per_address_max")
    );
    admissions.push(places.take("gearman", "192.0.2.2", NO_ADMIN).unwrap());
    admissions.extend((0..5).map(|_| places.take("gearman", "", NO_ADMIN).unwrap()));
    admissions.remove(0);
    admissions.push(places.take("gearman", "192.0.2.1", NO_ADMIN).unwrap());
    drop(admissions);
    assert!(places.lock().addresses.is_empty());
}

#[test]
fn an_address_connects_so_often_and_fails_so_often() {
    let places = places(100, 0, 0);
    let take = |address: &str| places.take("faktory", address, NO_ADMIN).map(drop);
    let limits = **places.limits.load();
    places.limit(PlaceLimits {
        rate: Allowance::per_minute(1),
        ..limits
    });
    assert_eq!(["192.0.2.1", "192.0.2.2"].map(take), [Ok(()); 2]);
    assert_eq!(take("192.0.2.1"), Err(Full::Limit(CONNECTS)));
    assert_eq!(["", ""].map(take), [Ok(()); 2], "a Unix socket");
    places.limit(PlaceLimits {
        failures: Allowance::per_minute(1),
        ..limits
    });
    let admission = places.take("faktory", "2001:db8::1", NO_ADMIN).unwrap();
    assert_eq!(take("2001:db8::1"), Ok(()));
    admission.failed_to_log_in();
    assert_eq!(
        take("2001:db8::2"),
        Err(Full::Limit(FAILED_LOGINS)),
        "the same network"
    );
    assert_eq!(take("2001:db8:0:1::1"), Ok(()));
    places.limit(limits);
    assert_eq!(
        ["192.0.2.1", "2001:db8::1"].map(take),
        [Ok(()); 2],
        "without limits"
    );
}

#[test]
fn a_connection_that_gives_way_is_closed() {
    let places = places(1, 0, 0);
    let mailbox = || Arc::new(Mailbox::new(1000, Arc::default(), nowhere()));
    let take = || places.take("gearman", "", NO_ADMIN).unwrap();
    let (with_mailbox, without) = (mailbox(), mailbox());
    let first = take();
    first.can_be_reached(&with_mailbox);
    assert_eq!(with_mailbox.close_reason(), None);
    let second = take();
    assert_eq!(
        with_mailbox.close_reason(),
        Some(&Reason::Limit(CONNECTIONS))
    );
    let third = take();
    second.can_be_reached(&without);
    assert_eq!(
        without.close_reason(),
        Some(&Reason::Limit(CONNECTIONS)),
        "it gave way before it could be reached"
    );
    drop((first, second, third));
    let inner = places.lock();
    assert_eq!(
        (inner.open, inner.protocols["gearman"], inner.silent.len()),
        (0, 0, 0)
    );
}

#[test]
fn a_doors_connections_have_the_limits_of_their_address() {
    let places = places(1, 0, 0);
    let admit = |address: [u8; 4]| places.admit(address.into()).is_some();
    assert!(
        admit([192, 0, 2, 1]) && admit([192, 0, 2, 1]),
        "without a limit"
    );
    let limits = **places.limits.load();
    places.limit(PlaceLimits {
        rate: Allowance::per_minute(1),
        ..limits
    });
    let logged = captured(|| {
        assert_eq!(
            [[192, 0, 2, 1], [192, 0, 2, 1], [192, 0, 2, 2]].map(admit),
            [true, false, true]
        );
    });
    assert_eq!(logged.lines().count(), 1, "{logged}");
    assert!(
        logged.contains("peer=192.0.2.1 limit=\"connections_per_address_per_minute\""),
        "{logged}"
    );
    let places = self::places(9, 0, 2);
    let admission = places.take("gearman", "192.0.2.1", NO_ADMIN).unwrap();
    let admit = || places.admit("::ffff:192.0.2.1".parse().unwrap());
    let admitted = admit();
    let logged = captured(|| assert!(admitted.is_some() && admit().is_none()));
    assert!(
        logged.contains("peer=192.0.2.1 limit=\"connections_per_address_max\""),
        "{logged}"
    );
    assert!(places.take("gearman", "192.0.2.1", NO_ADMIN).is_err());
    drop((admission, admitted));
    assert!(places.lock().addresses.is_empty());
}
