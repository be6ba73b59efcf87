//! The status of a daemon in standby, as operators see it.

use windlass_store::Error as StoreError;

use super::super::*;

#[test]
fn operators_see_why_a_daemon_could_not_lead_until_it_could() {
    let (view, edge) = (View::alone(), Edge::new(Arc::default()));
    let look = |why: StoreError| {
        let stop = AtomicBool::new(false);
        let (terms, remote) = ((Duration::ZERO, Duration::ZERO), None);
        let give_way = GiveWay {
            terms,
            remote,
            was_away: false,
            back_at: None,
        };
        let mut why = Some(why);
        let open = || -> Result<(), OpenError> {
            stop.store(true, Ordering::Relaxed);
            Err(why.take().unwrap().into())
        };
        assert!(stand_by(open, give_way, &edge, &view, &stop).is_ok());
        view.reasons().own.cannot_lead
    };
    let (doing, place) = ("connecting to", "the database".to_owned());
    let away = StoreError::Io {
        doing,
        place: place.clone(),
        why: io::Error::other("no route"),
    };
    assert!(look(away).contains("no route"));
    assert_eq!(
        look(StoreError::InUse {
            place,
            holder: String::new()
        }),
        "",
        "another daemon leads, and that is all"
    );
}
